#include "plan/rates.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/outfile.h"
#include "base/rng.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Seconds for which a rate holds that was measured beside other work: for a row of runs, not for the next day's. */
#define BUSY_HOLDS 60

/* Ends a file whose rates were measured beside other work. */
static const char busy[] = "busy\n";

char *mt_rates_path(const char *kind, const char *key)
{
    mt_err ignored = { 0 };
    char *dir;
    if (mt_user_cache(&dir, &ignored)) return NULL;
    char *path = mt_asprintf("%s/%s-%016llx", dir, kind, (unsigned long long)mt_hash(key, strlen(key), 0));
    if (mt_dir_make(dir, &ignored)) mt_debug("%s", ignored.msg); /* then the next run measures again */
    mt_free(dir);
    return path;
}

static double seconds_since(const char *path)
{
    struct stat st;
    return stat(path, &st) ? INFINITY : difftime(time(NULL), st.st_mtime);
}

static double find_rate(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    const double x = at ? strtod(at + strlen(name), NULL) : 0;
    return x > 0 && isfinite(x) ? x : 0;
}

bool mt_rates_recall(const char *path, const mt_kept_rate *rates, size_t n)
{
    mt_err ignored = { 0 };
    char *text = NULL;
    if (!path || !mt_file_exists(path) || mt_file_read(&text, NULL, path, 1 << 16, &ignored)) return false;
    bool all = !strstr(text, busy) || seconds_since(path) <= BUSY_HOLDS;
    for (size_t i = 0; i < n; i++) all &= find_rate(text, rates[i].name) > 0;
    for (size_t i = 0; all && i < n; i++) *rates[i].rate = find_rate(text, rates[i].name);
    mt_free(text);
    return all;
}

/* A rate that is not remembered is measured again, so a failure here loses nothing. */
void mt_rates_remember(const char *path, const mt_kept_rate *rates, size_t n, bool calm)
{
    mt_err ignored = { 0 };
    mt_str s = { 0 };
    for (size_t i = 0; i < n; i++) mt_str_printf(&s, "%s %.6g\n", rates[i].name, *rates[i].rate);
    if (!calm) mt_str_puts(&s, busy);
    if (path && mt_str_ok(&s) && mt_outfile_save(path, s.s, s.n, &ignored)) mt_debug("%s", ignored.msg);
    mt_str_free(&s);
}
