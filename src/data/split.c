#include "data/split.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mt_rc malformed(const char *text, mt_err *err)
{
    return mt_fail(err, MT_EINVAL, "split \"%.100s\" is not understood; write train, train[:1000], train[5%%:] or train[1000:2000]", text);
}

/* A whole number with an optional %; moves *p behind it. */
static bool read_bound(const char **p, int64_t *value, bool *given, bool *percent)
{
    char *end;
    if (**p != '-' && !(**p >= '0' && **p <= '9')) return true;
    *value = strtoll(*p, &end, 10);
    if (end == *p) return false;
    *given = true;
    if (*end == '%') *percent = true, end++;
    *p = end;
    return true;
}

mt_rc mt_split_parse(mt_split *out, const char *text, mt_err *err)
{
    *out = (mt_split){ 0 };
    if (!text) return MT_OK;
    size_t n = strcspn(text, "[");
    if (strchr(text, '+')) return mt_fail(err, MT_EUNSUPPORTED, "split \"%.100s\": several splits are several entries of dataset.name, each with a split of its own", text);
    if (n >= sizeof out->name) return malformed(text, err);
    memcpy(out->name, text, n);
    if (!text[n]) return MT_OK;
    const char *p = text + n + 1;
    bool ok = read_bound(&p, &out->from, &out->has_from, &out->percent) && *p++ == ':' && read_bound(&p, &out->to, &out->has_to, &out->percent);
    if (!ok || strcmp(p, "]") != 0) return malformed(text, err);
    int64_t most = out->percent ? 100 : INT64_MAX;
    if (out->percent && (llabs(out->from) > most || llabs(out->to) > most))
        return mt_fail(err, MT_ERANGE, "split \"%.100s\": a share is between -100%% and 100%%", text);
    out->sliced = true;
    return MT_OK;
}

static int64_t bound(int64_t value, bool percent, int64_t n_rows)
{
    if (percent) value = (int64_t)nearbyint((double)value * (double)n_rows / 100);
    if (value < 0) value = n_rows + value < 0 ? 0 : n_rows + value;
    return value < n_rows ? value : n_rows;
}

void mt_split_rows(const mt_split *s, int64_t n_rows, int64_t *first, int64_t *end)
{
    *first = s->has_from ? bound(s->from, s->percent, n_rows) : 0;
    *end = s->has_to ? bound(s->to, s->percent, n_rows) : n_rows;
}

/* From the files' own numbers, or by reading them through. */
static mt_rc count_rows(const char *path, const mt_records_options *options, int64_t *n, mt_err *err)
{
    mt_records *r;
    mt_arena arena = { 0 };
    MT_TRY(mt_records_open(&r, path, options, err));
    mt_rc rc = mt_records_count(r, n, err);
    if (!rc && *n < 0) {
        mt_value record;
        mt_record_place where = { 0 };
        *n = -1;
        while (!rc && where.state != MT_RECORD_END) {
            mt_arena_reset(&arena);
            rc = mt_records_next(r, &arena, &record, &where, err);
            ++*n;
        }
    }
    mt_arena_free(&arena);
    mt_records_close(r);
    return rc;
}

mt_rc mt_split_apply(const mt_split *s, const char *path, mt_records_options *options, mt_err *err)
{
    int64_t n = INT64_MAX;
    if (!s->sliced) return MT_OK;
    if (s->percent || s->from < 0 || s->to < 0) MT_TRY(count_rows(path, options, &n, err));
    mt_split_rows(s, n, &options->first_row, &options->end_row);
    if (options->first_row >= options->end_row)
        return mt_fail(err, MT_EINVAL, "the split's slice [%lld:%lld] of %s holds no row", (long long)options->first_row, (long long)options->end_row, path);
    if (options->end_row == INT64_MAX) options->end_row = 0;
    return MT_OK;
}
