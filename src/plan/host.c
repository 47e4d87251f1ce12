#define _GNU_SOURCE /* sched_getaffinity */
#include "plan/host.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/numa.h"
#include "base/pool.h"

#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Reads a small file of /proc or /sys, whose size is unknown until it is read; NULL: it does not exist. */
static char *read_small(const char *root, const char *path)
{
    enum { MOST = 1 << 16 };
    char *full = mt_asprintf("%s%s", root, path), *text = mt_calloc(1, MOST + 1);
    FILE *f = full && text ? fopen(full, "re") : NULL;
    if (f) {
        text[fread(text, 1, MOST, f)] = '\0';
        fclose(f);
    } else {
        mt_free(text);
        text = NULL;
    }
    mt_free(full);
    return text;
}

/* The number after `key` at the start of a line; SIZE_MAX: none (cgroups write "max"). */
static size_t number_after(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char *end;
        if (strncmp(line, key, n) != 0) continue;
        unsigned long long x = strtoull(line + n, &end, 10);
        return end == line + n ? SIZE_MAX : (size_t)x;
    }
    return SIZE_MAX;
}

static size_t read_number(const char *root, const char *dir, const char *name, const char *key)
{
    char *path = mt_asprintf("%s/%s", dir, name), *text = path ? read_small(root, path) : NULL;
    size_t n = text ? number_after(text, key) : SIZE_MAX;
    mt_free(text);
    mt_free(path);
    return n;
}

/* -- memory ---------------------------------------------------------------------------------------- */

static mt_rc read_meminfo(mt_host *h, const char *root, mt_err *err)
{
    char *text = read_small(root, "/proc/meminfo");
    if (!text) return mt_fail(err, MT_ENOENT, "%s/proc/meminfo cannot be read: give the host's memory with --ram", root);
    size_t total = number_after(text, "MemTotal:"), available = number_after(text, "MemAvailable:");
    mt_free(text);
    if (total == SIZE_MAX || available == SIZE_MAX)
        return mt_fail(err, MT_EFORMAT, "%s/proc/meminfo lacks MemTotal or MemAvailable: give the host's memory with --ram",
                       root);
    h->ram_total = h->ram_limit = total * 1024;
    h->ram_free = available * 1024;
    snprintf(h->limited_by, sizeof h->limited_by, "MemAvailable");
    return MT_OK;
}

/* One cgroup's limit less what it uses; pages of files that can be dropped count as free. */
static void apply_cgroup(mt_host *h, const char *root, const char *dir, const char *name, bool v2)
{
    static const char *const droppable[2][2] = { { "total_inactive_file ", "total_active_file " },
                                                 { "inactive_file ", "active_file " } };
    size_t limit = read_number(root, dir, v2 ? "memory.max" : "memory.limit_in_bytes", "");
    size_t used = read_number(root, dir, v2 ? "memory.current" : "memory.usage_in_bytes", "");
    if (limit == SIZE_MAX || used == SIZE_MAX || limit > h->ram_total) return;
    for (int i = 0; i < 2; i++) { /* as MemAvailable counts them: this includes the program's own libraries */
        size_t cache = read_number(root, dir, "memory.stat", droppable[v2][i]);
        if (cache != SIZE_MAX) used -= cache < used ? cache : used;
    }
    size_t left = limit > used ? limit - used : 0;
    if (left >= h->ram_free) return;
    h->ram_free = left;
    h->ram_limit = limit;
    snprintf(h->limited_by, sizeof h->limited_by, "the memory cgroup %.70s", *name ? name : "/");
}

/* The group and every group above it.  In a container its path may not exist below the mount; then the top of the mount is the
 * group itself. */
static void apply_cgroups(mt_host *h, const char *root, const char *mount, const char *group, bool v2)
{
    char path[512];
    snprintf(path, sizeof path, "%s", strcmp(group, "/") ? group : "");
    for (;;) {
        char dir[640];
        snprintf(dir, sizeof dir, "%s%s", mount, path);
        apply_cgroup(h, root, dir, path, v2);
        char *slash = strrchr(path, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

static void read_cgroups(mt_host *h, const char *root)
{
    char *text = read_small(root, "/proc/self/cgroup"), *save = NULL;
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        if (strcmp(controllers + 1, "") == 0) apply_cgroups(h, root, "/sys/fs/cgroup", group, true);
        if (strstr(controllers + 1, "memory")) apply_cgroups(h, root, "/sys/fs/cgroup/memory", group, false);
    }
    mt_free(text);
}

static void read_own(mt_host *h, const char *root)
{
    size_t anon = read_number(root, "/proc/self", "status", "RssAnon:"),
           files = read_number(root, "/proc/self", "status", "RssFile:");
    h->own = anon == SIZE_MAX ? 0 : anon * 1024;
    h->files = files == SIZE_MAX ? 0 : files * 1024;
}

/* -- the rest -------------------------------------------------------------------------------------- */

static size_t memlock_limit(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_MEMLOCK, &r) || r.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    return (size_t)r.rlim_cur;
}

static bool has_huge_pages(const char *root)
{
    char *text = read_small(root, "/sys/kernel/mm/transparent_hugepage/enabled");
    bool yes = text && !strstr(text, "[never]");
    mt_free(text);
    return yes;
}

static void read_cpu_name(mt_host *h, const char *root)
{
    char *text = read_small(root, "/proc/cpuinfo"), *at = text ? strstr(text, "model name") : NULL;
    at = at ? strchr(at, ':') : NULL;
    if (at)
        snprintf(h->cpu, sizeof h->cpu, "%.*s", (int)strcspn(at + 2, "\n"), at + 2);
    else
        snprintf(h->cpu, sizeof h->cpu, "unknown");
    mt_free(text);
}

mt_rc mt_host_read(mt_host *out, const char *root, mt_err *err)
{
    *out = (mt_host){ 0 };
    MT_TRY(read_meminfo(out, root, err));
    read_cgroups(out, root);
    read_own(out, root);
    read_cpu_name(out, root);
    out->memlock = memlock_limit();
    out->huge_pages = has_huge_pages(root);
    out->numa_nodes = __builtin_popcountll(mt_numa_nodes(root));
    out->cores = mt_cpu_count();
    return MT_OK;
}

/* -- cores ----------------------------------------------------------------------------------------- */

static double seconds_of(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

static bool may_use(long core)
{
    cpu_set_t ours;
    return core >= 0 && core < CPU_SETSIZE && sched_getaffinity(0, sizeof ours, &ours) == 0 && CPU_ISSET(core, &ours);
}

/* A line of /proc/stat, "cpu3 user nice system idle iowait irq softirq stolen ...", in ticks, if this process may use that
 * core. */
static void add_core(mt_cores_used *u, char *line)
{
    if (strncmp(line, "cpu", 3) != 0 || line[3] < '0' || line[3] > '9' || !may_use(strtol(line + 3, &line, 10))) return;
    double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    for (int i = 0; i < 8; i++) {
        double spent = tick * (double)strtoull(line, &line, 10);
        u->all += spent;
        if (i == 3 || i == 4) u->idle += spent;
    }
}

mt_cores_used mt_cores_look(const char *root)
{
    mt_cores_used u = { 0 };
    struct rusage own;
    u.clock = mt_now_s();
    if (getrusage(RUSAGE_SELF, &own) == 0) u.own = seconds_of(own.ru_utime) + seconds_of(own.ru_stime);
    char *text = read_small(root, "/proc/stat");
    for (char *line = text; line; line = (line = strchr(line, '\n')) ? line + 1 : NULL) add_core(&u, line);
    mt_free(text);
    return u;
}

bool mt_cores_crowded(const mt_cores_used *before, const mt_cores_used *after, int threads)
{
    const double enough = 0.8; /* ticks are coarse, and some core is always busy */
    double all = after->all - before->all, wall = after->clock - before->clock;
    double others = all - (after->idle - before->idle) - (after->own - before->own);
    return before->all > 0 && all > 0 && all - fmax(others, 0) < enough * threads * wall;
}

size_t mt_disk_free(const char *path)
{
    struct statvfs v;
    char *at = mt_strdup(path);
    size_t bytes = 0;
    while (at && *at) { /* a path that does not exist yet will be on its parent's file system */
        if (statvfs(at, &v) == 0) {
            bytes = (size_t)v.f_bavail * v.f_frsize;
            break;
        }
        char *slash = strrchr(at, '/');
        if (!slash) {
            if (statvfs(".", &v) == 0) bytes = (size_t)v.f_bavail * v.f_frsize;
            break;
        }
        slash[slash == at] = '\0';
        if (slash == at && at[1] == '\0' && statvfs("/", &v)) break;
    }
    mt_free(at);
    return bytes;
}
