/* What the machine offers, read from a /proc and /sys laid out for the test; and the simulation's arithmetic. */
#define _GNU_SOURCE /* sched_getcpu */
#include "tempdir.h"
#include "test.h"

#include "base/file.h"
#include "base/pool.h"
#include "ckpt/outdir.h"
#include "plan/gpus.h"
#include "plan/host.h"
#include "plan/measure.h"
#include "plan/queues.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* root/path = text, with the folders it needs. */
static void lay(const char *root, const char *path, const char *text)
{
    char full[1024];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(full, 0777);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

#define MEMINFO "MemTotal:       131072000 kB\nMemFree:         1000000 kB\nMemAvailable:   104857600 kB\n"
static const size_t kib = 1024, gib = (size_t)1 << 30;

static void available_memory_counts_when_there_is_no_cgroup(void **state)
{
    mt_err err = { 0 };
    mt_host h;
    lay(*state, "/proc/meminfo", MEMINFO);
    lay(*state, "/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    lay(*state, "/sys/devices/system/node/online", "0-1,4\n");
    lay(*state, "/proc/cpuinfo", "processor : 0\nmodel name\t: Some CPU 9000\n");
    assert_ok(mt_host_read(&h, *state, &err));
    assert_true(h.ram_total == 131072000 * kib && h.ram_free == 104857600 * kib);
    assert_string_equal(h.limited_by, "MemAvailable");
    assert_true(h.huge_pages && h.numa_nodes == 3 && h.cores >= 1);
    assert_string_equal(h.cpu, "Some CPU 9000");
}

static void a_cgroup_v2_limits_it_less_what_is_used_but_not_its_droppable_pages(void **state)
{
    mt_err err = { 0 };
    mt_host h;
    lay(*state, "/proc/meminfo", MEMINFO);
    lay(*state, "/proc/self/cgroup", "0::/box/inner\n");
    lay(*state, "/sys/fs/cgroup/box/inner/memory.max", "max\n");
    lay(*state, "/sys/fs/cgroup/box/inner/memory.current", "1\n");
    lay(*state, "/sys/fs/cgroup/box/memory.max", "17179869184\n"); /* the one above decides */
    lay(*state, "/sys/fs/cgroup/box/memory.current", "3221225472\n");
    lay(*state, "/sys/fs/cgroup/box/memory.stat", "anon 1\nfile 2\ninactive_file 1073741824\n");
    assert_ok(mt_host_read(&h, *state, &err));
    assert_true(h.ram_free == 14 * gib); /* 16 - (3 - 1) */
    assert_string_equal(h.limited_by, "the memory cgroup /box");
}

static void a_cgroup_v1_limits_it_too(void **state)
{
    mt_err err = { 0 };
    mt_host h;
    lay(*state, "/proc/meminfo", MEMINFO);
    lay(*state, "/proc/self/cgroup", "5:cpu:/x\n4:memory:/job/7\n0::/\n");
    lay(*state, "/sys/fs/cgroup/memory/job/7/memory.limit_in_bytes", "8589934592\n");
    lay(*state, "/sys/fs/cgroup/memory/job/7/memory.usage_in_bytes", "1073741824\n");
    lay(*state, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    lay(*state, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
    assert_ok(mt_host_read(&h, *state, &err));
    assert_true(h.ram_free == 7 * gib);
}

/* Half of a small group is not "nearly used up" because the machine around it is large. */
static void what_is_left_is_compared_with_what_bounds_it(void **state)
{
    mt_err err = { 0 };
    mt_host h;
    lay(*state, "/proc/meminfo", MEMINFO);
    lay(*state, "/proc/self/cgroup", "0::/box\n");
    lay(*state, "/sys/fs/cgroup/box/memory.max", "1073741824\n");
    lay(*state, "/sys/fs/cgroup/box/memory.current", "536870912\n");
    assert_ok(mt_host_read(&h, *state, &err));
    assert_true(h.ram_limit == gib && !mt_host_nearly_full(&h));
    lay(*state, "/sys/fs/cgroup/box/memory.current", "1068498944\n"); /* 5 MiB less than all of it */
    assert_ok(mt_host_read(&h, *state, &err));
    assert_true(mt_host_nearly_full(&h));
    lay(*state, "/sys/fs/cgroup/box/memory.max", "max\n");
    assert_ok(mt_host_read(&h, *state, &err));
    assert_true(h.ram_limit == h.ram_total && !mt_host_nearly_full(&h));
}

static void a_machine_without_meminfo_is_asked_for_a_flag(void **state)
{
    mt_err err = { 0 };
    mt_host h;
    assert_int_equal(mt_host_read(&h, *state, &err), MT_ENOENT);
    assert_says("--ram");
}

static void gpus_are_found_by_name_and_by_what_the_driver_calls_them(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_gpu *g;
    assert_ok(mt_gpu_find(&g, "RTX4090", &err));
    assert_int_equal(mt_gpu_find(&g, "rtx4900", &err), MT_ENOENT);
    assert_says("rtx4090");
    assert_string_equal(mt_gpu_of_driver("NVIDIA H200")->name, "h200");
    assert_string_equal(mt_gpu_of_driver("NVIDIA GH200 480GB")->name, "gh200");
    assert_string_equal(mt_gpu_of_driver("NVIDIA RTX 6000 Ada Generation")->name, "rtx6000-ada");
    assert_string_equal(mt_gpu_of_driver("NVIDIA A100-SXM4-80GB")->name, "a100-80g");
    assert_string_equal(mt_gpu_of_driver("NVIDIA A100 80GB PCIe")->name, "a100-80g");
    assert_string_equal(mt_gpu_of_driver("NVIDIA A100-PCIE-40GB")->name, "a100-40g");
    assert_string_equal(mt_gpu_of_driver("NVIDIA L40")->name, "l40");
    assert_string_equal(mt_gpu_of_driver("NVIDIA L40S")->name, "l40s");
    assert_string_equal(mt_gpu_of_driver("NVIDIA L4")->name, "l4");
    assert_null(mt_gpu_of_driver("Voodoo 2"));
    assert_string_equal(mt_gpu_of_driver("NVIDIA A40")->name, "a40");
    assert_null(mt_gpu_of_driver("NVIDIA RTX A4000")); /* no a40 */
    assert_null(mt_gpu_of_driver("NVIDIA L400"));
    assert_string_equal(mt_gpu_of_driver("NVIDIA GeForce RTX 4070 Laptop GPU")->name, "rtx4070-laptop");
    assert_null(mt_gpu_of_driver("NVIDIA GeForce RTX 4090 Laptop GPU")); /* no rtx4090 */
    static const struct {
        const char *asked, *name;
    } as_people_write[] = {
        { "RTX 4090", "rtx4090" },           { "rtx-4090", "rtx4090" },
        { "NVIDIA H100 80GB HBM3", "h100" }, { "NVIDIA GeForce RTX 5090", "rtx5090" },
        { "A100 80G", "a100-80g" },          { "rtx a6000", "rtx-a6000" },
    };
    for (size_t i = 0; i < MT_COUNT(as_people_write); i++) {
        assert_ok(mt_gpu_find(&g, as_people_write[i].asked, &err));
        assert_string_equal(g->name, as_people_write[i].name);
    }
    assert_int_equal(mt_gpu_find(&g, "", &err), MT_ENOENT);
}

static void a_gpu_that_is_not_known_leads_to_its_kin(void **state)
{
    (void)state;
    static const struct {
        const char *name, *kin;
    } cases[] = {
        { "a100", "did you mean a100-40g or a100-80g?" },
        { "A6000", "did you mean rtx-a6000?" },
        { "h100-sxm", "did you mean h100?" },
        { "4090", "did you mean rtx4090?" },
    };
    const mt_gpu *g;
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        assert_int_equal(mt_gpu_find(&g, cases[i].name, &err), MT_ENOENT);
        assert_says(cases[i].kin);
        assert_says("use the most similar one, with its own --gpu-memory and --link");
    }
}

/* A measurement beside other processes' work must not be stored; a card without its full power is measured again each time. */
static void a_gpu_is_held_to_its_kind_more_closely_where_that_was_seen(void **state)
{
    (void)state;
    const mt_gpu seen = { .tflops = 700, .held = true }, worked_out = { .tflops = 700 };
    assert_true(mt_gpu_reaches(&seen, 620e12) && mt_gpu_reaches(&worked_out, 560e12));
    assert_false(mt_gpu_reaches(&seen, 560e12) || mt_gpu_reaches(&worked_out, 500e12));
}

static void only_hopper_has_cudnns_attention(void **state)
{
    (void)state;
    for (size_t i = 0; i < mt_n_gpus; i++) {
        bool hopper = strncmp(mt_gpus[i].name, "h100", 4) == 0 || strstr(mt_gpus[i].name, "h200");
        assert_true(mt_machine_of_gpu(&mt_gpus[i], 16).cudnn == hopper);
    }
}

/* -- a machine that is measured -------------------------------------------------------------------- */

static void a_cpu_is_measured_once_and_remembered(void **state)
{
    mt_err err = { 0 };
    mt_device *dev;
    mt_machine first, again, other;
    char cache[1024];
    snprintf(cache, sizeof cache, "%s/not/there/yet", (const char *)*state); /* as ~/.cache of a new user */
    setenv("XDG_CACHE_HOME", cache, 1);
    assert_ok(mt_device_open(&dev, "cpu", &(mt_device_options){ .n_threads = 2 }, &err));
    assert_ok(mt_machine_here(&first, dev, &(mt_machine_given){ .ram = gib }, true, &err));
    assert_ok(mt_machine_here(&again, dev, &(mt_machine_given){ .ram = gib }, true, &err));
    assert_ok(mt_machine_here(&other, dev, &(mt_machine_given){ .ram = gib }, false, &err));
    assert_true(first.host_bytes == gib);
    /* What a run may use does not make more of what there is. */
    assert_ok(mt_machine_here(&again, dev, &(mt_machine_given){ .ram = gib, .ram_most = gib / 2 }, true, &err));
    assert_true(again.host_bytes == gib / 2);
    assert_ok(mt_machine_here(&again, dev, &(mt_machine_given){ .ram_most = SIZE_MAX }, true, &err));
    assert_true(again.host_bytes < SIZE_MAX / 2);
    mt_device_close(dev);
    /* A file keeps six digits; a second measurement would not agree to them. */
    assert_true(fabs(again.flops / first.flops - 1) < 1e-5 &&
                fabs(again.adam_host[MT_MOMENTS_8BIT] / first.adam_host[MT_MOMENTS_8BIT] - 1) < 1e-5);
    assert_true(other.flops != again.flops);
    assert_true(first.flops > 1e8 && first.flops < 1e14 && first.attention > 1e7 && first.device_bandwidth > 1e7);
    for (int form = 0; form < MT_MOMENTS_FORMS; form++) assert_true(first.adam_host[form] > 1e6);
    assert_true(first.base_host > 16 << 20 && first.base_host < gib); /* the program itself */
}

/* Or a plan would count that memory as free: what a run may use has it added (mt_host_usable). */
static void memory_that_the_process_holds_is_counted(void **state)
{
    enum { HELD = 200 << 20 };
    mt_err err = { 0 };
    mt_device *dev;
    mt_machine before, after;
    setenv("XDG_CACHE_HOME", *state, 1);
    assert_ok(mt_device_open(&dev, "cpu", &(mt_device_options){ .n_threads = 2 }, &err));
    assert_ok(mt_machine_here(&before, dev, &(mt_machine_given){ .ram = gib }, true, &err));
    char *held = malloc(HELD);
    assert_non_null(held);
    memset(held, 1, HELD);
    assert_ok(mt_machine_here(&after, dev, &(mt_machine_given){ .ram = gib }, true, &err));
    assert_true(held[HELD / 2] == 1);
    free(held);
    mt_device_close(dev);
    assert_true(after.base_host > before.base_host + HELD / 100 * 90);
}

/* Rates of a table would be those of another processor. */
static void other_cores_scale_what_was_measured(void **state)
{
    mt_err err = { 0 };
    mt_device *dev;
    mt_machine all, half, more;
    setenv("XDG_CACHE_HOME", *state, 1);
    assert_ok(mt_device_open(&dev, "cpu", &(mt_device_options){ .n_threads = 2 }, &err));
    assert_ok(mt_machine_here(&all, dev, &(mt_machine_given){ .ram = gib }, true, &err));
    assert_ok(mt_machine_here(&half, dev, &(mt_machine_given){ .ram = gib, .cores = 1 }, true, &err));
    assert_ok(mt_machine_here(&more, dev, &(mt_machine_given){ .ram = gib, .cores = 4000 }, true, &err));
    mt_device_close(dev);
    for (int form = 0; form < MT_MOMENTS_FORMS; form++) {
        double memory = 0.86 * all.host_bandwidth / mt_machine_update_bytes((mt_state_form){ .moments = form });
        assert_true(fabs(half.adam_host[form] / (all.adam_host[form] / 2) - 1) < 1e-5);
        assert_true(fabs(more.adam_host[form] / fmax(all.adam_host[form], memory) - 1) < 1e-5);
    }
}

/* Ten seconds of a core in which other processes worked for the first number, and this process for the second. */
static bool crowded(const char *root, int others, int own)
{
    mt_cores_used look[2];
    long tick = sysconf(_SC_CLK_TCK);
    int core = sched_getcpu();
    for (int i = 0; i < 2; i++) {
        char text[256];
        int busy = i * (others + own), idle = i * 10 - busy;
        snprintf(text, sizeof text, "cpu  1 2 3\ncpu%d %ld 0 100 %ld 10 0 0 0 0 0\ncpu9999 1 2 3 %d\n", core, 1000 + busy * tick,
                 5000 + idle * tick, 1 + 1000000 * i);
        lay(root, "/proc/stat", text);
        look[i] = mt_cores_look(root);
    }
    look[1].clock = look[0].clock + 10;
    look[1].own = look[0].own + own;
    return mt_cores_crowded(&look[0], &look[1], 1);
}

static void cores_are_crowded_when_others_leave_fewer_than_are_wanted(void **state)
{
    assert_false(crowded(*state, 0, 0));
    assert_false(crowded(*state, 1, 9)); /* a tenth: no process is ever alone */
    assert_true(crowded(*state, 5, 5));
    assert_true(crowded(*state, 5, 0)); /* other threads would have had half */
    lay(*state, "/proc/stat", "");
    mt_cores_used nothing = mt_cores_look(*state);
    assert_false(mt_cores_crowded(&nothing, &nothing, 64)); /* a system that does not say */
}

/* Processes that never wait, as many as there are cores. */
static int start_others(pid_t *pids, int most)
{
    int n = (int)mt_min_i64(mt_cpu_count(), most);
    for (int i = 0; i < n; i++)
        if ((pids[i] = fork()) == 0)
            for (;;) continue;
    return n;
}

static void the_only_file(const char *dir, char *out, size_t n)
{
    mt_dir_names names;
    mt_err err = { 0 };
    char within[512];
    snprintf(within, sizeof within, "%s/megatrain", dir);
    assert_ok(mt_dir_list(&names, within, &err));
    assert_int_equal(names.n, 1);
    snprintf(out, n, "%s/%s", within, names.items[0]);
    mt_dir_names_free(&names);
}

static void what_is_measured_beside_others_does_not_last(void **state)
{
    enum { MOST = 512 };
    static pid_t pids[MOST];
    mt_err err = { 0 };
    mt_device *dev;
    mt_machine first, soon, later;
    char path[1024], *text;
    const struct timespec old[2] = { { .tv_sec = time(NULL) - 120 }, { .tv_sec = time(NULL) - 120 } };
    setenv("XDG_CACHE_HOME", *state, 1);
    assert_ok(mt_device_open(&dev, "cpu", &(mt_device_options){ .n_threads = mt_cpu_count() }, &err));
    int n = start_others(pids, MOST);
    mt_rc rc = mt_machine_here(&first, dev, &(mt_machine_given){ .ram = gib }, true, &err);
    for (int i = 0; i < n; i++) kill(pids[i], SIGKILL);
    for (int i = 0; i < n; i++) waitpid(pids[i], NULL, 0);
    assert_ok(rc);
    the_only_file(*state, path, sizeof path);
    assert_ok(mt_file_read(&text, NULL, path, 1 << 16, &err));
    assert_non_null(strstr(text, "busy"));
    mt_free(text);
    assert_ok(mt_machine_here(&soon, dev, &(mt_machine_given){ .ram = gib }, true, &err));
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_ok(mt_machine_here(&later, dev, &(mt_machine_given){ .ram = gib }, true, &err));
    mt_device_close(dev);
    assert_true(fabs(soon.flops / first.flops - 1) < 1e-5); /* for a minute it does */
    assert_true(later.flops != soon.flops);
}

/* The CPU's memory plays a GPU's of which the run may use a little: measuring does not fit, and the run starts anyway. */
static void a_gpu_with_too_little_room_to_measure_is_taken_for_its_kind(void **state)
{
    (void)state;
    /* Too little separate memory, beside it. */
    static const struct {
        size_t device, ram;
    } rooms[] = { { 1 << 20, 0 }, { (size_t)1 << 32, (size_t)1 << 30 } };
    mt_device_api played = mt_device_cpu;
    played.kind = MT_DEVICE_CUDA;
    for (size_t i = 0; i < MT_COUNT(rooms); i++) {
        mt_err err = { 0 };
        mt_device *dev;
        mt_machine m;
        assert_ok(mt_device_open(&dev, "cpu", &(mt_device_options){ .memory_limit = rooms[i].device }, &err));
        const mt_device_api *own = dev->api;
        dev->api = &played;
        assert_ok(mt_machine_here(&m, dev, &(mt_machine_given){ .ram = rooms[i].ram }, false, &err));
        dev->api = own;
        mt_device_close(dev);
        assert_true(m.device_bytes == rooms[i].device && m.flops == mt_machine_typical().flops &&
                    m.attention == mt_machine_typical().attention);
        assert_true(err.rc == MT_OK && !*err.msg);
    }
}

/* -- the simulation -------------------------------------------------------------------------------- */

static mt_machine simple(void)
{
    return (mt_machine){
        .copy_in = 10, .copy_out = 10, .copy_both = 8, .copy_toll = 0.1, .host_bandwidth = 26e3, .adam_host = { 100 }
    };
}

static void near(double a, double b) { assert_true(fabs(a - b) < 1e-6); }

static void queues_run_in_order_side_by_side_and_wait(void **state)
{
    (void)state;
    mt_machine m = simple();
    mt_queues q = { 0 };
    mt_queues_clear(&q);
    int a = mt_queues_add(&q, MT_Q_IN, 20, -1, -1, -1);       /* 0 to 2 */
    int b = mt_queues_add(&q, MT_Q_COMPUTE, 3, a, -1, -1);    /* 2 to 5 */
    int c = mt_queues_add(&q, MT_Q_OUT, 10, b, -1, -1);       /* 5 to 6 */
    int d = mt_queues_add(&q, MT_Q_COMPUTE, 0.5, -1, -1, -1); /* after b, beside the copy out: slower by a tenth */
    int e = mt_queues_add(&q, MT_Q_ADAM, 200, c, -1, -1);     /* 6 to 8 */
    assert_true(mt_queues_run(&q, &m, (mt_state_form){ 0 }));
    near(q.tasks[a].end, 2);
    near(q.tasks[b].end, 5);
    near(q.tasks[c].end, 6);
    near(q.tasks[d].end, 5 + 0.5 / 0.9);
    near(q.tasks[e].end, 8);
    mt_queues_free(&q);
}

static void what_runs_at_once_shares_the_link_and_the_memory(void **state)
{
    (void)state;
    mt_machine m = simple();
    m.host_bandwidth = 26 * 100 + 8; /* Adam alone, and half of both copies */
    mt_queues q = { 0 };
    mt_queues_clear(&q);
    int in = mt_queues_add(&q, MT_Q_IN, 8, -1, -1, -1), out = mt_queues_add(&q, MT_Q_OUT, 8, -1, -1, -1);
    int adam = mt_queues_add(&q, MT_Q_ADAM, 100, -1, -1, -1);
    assert_true(mt_queues_run(&q, &m, (mt_state_form){ 0 }));
    near(q.tasks[in].end, 1); /* 8 a second each while both are busy */
    near(q.tasks[out].end, 1);
    assert_true(q.tasks[adam].end > 1.001); /* 16 of the memory's 2608 go to the copies */
    mt_queues_free(&q);
}

/* The device has one engine for them: what became ready first goes first, and nothing overtakes. */
static void copies_out_take_turns_as_they_become_ready(void **state)
{
    (void)state;
    mt_machine m = simple();
    mt_queues q = { 0 };
    mt_queues_clear(&q);
    int computed = mt_queues_add(&q, MT_Q_COMPUTE, 0.5, -1, -1, -1);
    /* 0 to 1 to 2. */
    int back = mt_queues_add(&q, MT_Q_BACK, 10, -1, -1, -1), again = mt_queues_add(&q, MT_Q_BACK, 10, -1, -1, -1);
    /* Ready at 0.55, 2 to 3. */
    int out = mt_queues_add(&q, MT_Q_OUT, 10, computed, -1, -1);
    int later = mt_queues_add(&q, MT_Q_BACK, 10, out, -1, -1);
    assert_true(mt_queues_run(&q, &m, (mt_state_form){ 0 }));
    near(q.tasks[back].end, 1);
    near(q.tasks[again].end, 2);
    near(q.tasks[out].end, 3);
    near(q.tasks[later].end, 4);
    mt_queues_free(&q);
}

/* Their copies take turns with the others, and their updates with products. */
static void pieces_share_the_link_and_the_device(void **state)
{
    (void)state;
    mt_machine m = simple();
    m.copy_toll = 0;
    mt_queues q = { 0 };
    mt_queues_clear(&q);
    int piece = mt_queues_add(&q, MT_Q_PIECE_IN, 10, -1, -1, -1);      /* the weights first: 1 to 2 */
    int weights = mt_queues_add(&q, MT_Q_IN, 10, -1, -1, -1);          /* 0 to 1 */
    int product = mt_queues_add(&q, MT_Q_COMPUTE, 3, -1, -1, -1);      /* 0 to 2, 3 to 4 */
    int update = mt_queues_add(&q, MT_Q_PIECE, 1, piece, -1, -1);      /* 2 to 3 */
    int back = mt_queues_add(&q, MT_Q_PIECE_BACK, 10, update, -1, -1); /* 3 to 4 */
    assert_true(mt_queues_run(&q, &m, (mt_state_form){ 0 }));
    near(q.tasks[weights].end, 1);
    near(q.tasks[piece].end, 2);
    near(q.tasks[update].end, 3);
    near(q.tasks[product].end, 4);
    near(q.tasks[back].end, 4);
    mt_queues_free(&q);
}

/* Smaller moments have their own rate, and leave more of the memory to copies. */
static void adam_runs_at_the_rate_of_its_moments(void **state)
{
    (void)state;
    mt_machine m = simple();
    m.adam_host[MT_MOMENTS_8BIT] = 50;
    m.host_bandwidth = 14 * 50 + 10;
    for (int copies = 0; copies <= 1; copies++) {
        mt_queues q = { 0 };
        mt_queues_clear(&q);
        int adam = mt_queues_add(&q, MT_Q_ADAM, 100, -1, -1, -1), in = copies ? mt_queues_add(&q, MT_Q_IN, 10, -1, -1, -1) : -1;
        assert_true(mt_queues_run(&q, &m, (mt_state_form){ .moments = MT_MOMENTS_8BIT }));
        near(q.tasks[adam].end, 2);
        if (copies) near(q.tasks[in].end, 1);
        mt_queues_free(&q);
    }
}

static void a_task_that_waits_for_one_behind_it_is_noticed(void **state)
{
    (void)state;
    mt_machine m = simple();
    mt_queues q = { 0 };
    mt_queues_clear(&q);
    mt_queues_add(&q, MT_Q_COMPUTE, 1, 1, -1, -1);
    mt_queues_add(&q, MT_Q_COMPUTE, 1, -1, -1, -1);
    assert_false(mt_queues_run(&q, &m, (mt_state_form){ 0 }));
    mt_queues_free(&q);
}

/* With the folders that were laid out in it. */
static int remove_all(void **state)
{
    mt_rc rc = mt_dir_remove(*state, &(mt_err){ 0 });
    mt_free(*state);
    return rc != MT_OK;
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, remove_all)

MT_TEST_MAIN(IN_DIR(available_memory_counts_when_there_is_no_cgroup),
             IN_DIR(a_cgroup_v2_limits_it_less_what_is_used_but_not_its_droppable_pages), IN_DIR(a_cgroup_v1_limits_it_too),
             IN_DIR(what_is_left_is_compared_with_what_bounds_it), IN_DIR(a_machine_without_meminfo_is_asked_for_a_flag),
             cmocka_unit_test(gpus_are_found_by_name_and_by_what_the_driver_calls_them),
             cmocka_unit_test(a_gpu_that_is_not_known_leads_to_its_kin),
             cmocka_unit_test(a_gpu_is_held_to_its_kind_more_closely_where_that_was_seen),
             cmocka_unit_test(only_hopper_has_cudnns_attention), IN_DIR(a_cpu_is_measured_once_and_remembered),
             IN_DIR(memory_that_the_process_holds_is_counted), IN_DIR(other_cores_scale_what_was_measured),
             IN_DIR(cores_are_crowded_when_others_leave_fewer_than_are_wanted),
             IN_DIR(what_is_measured_beside_others_does_not_last),
             cmocka_unit_test(a_gpu_with_too_little_room_to_measure_is_taken_for_its_kind),
             cmocka_unit_test(queues_run_in_order_side_by_side_and_wait),
             cmocka_unit_test(copies_out_take_turns_as_they_become_ready), cmocka_unit_test(pieces_share_the_link_and_the_device),
             cmocka_unit_test(adam_runs_at_the_rate_of_its_moments),
             cmocka_unit_test(what_runs_at_once_shares_the_link_and_the_memory),
             cmocka_unit_test(a_task_that_waits_for_one_behind_it_is_noticed))
