#include "data/split_spec.h"

#include "base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static mt_rc malformed(const char *text, mt_err *err)
{
    return mt_fail(err, MT_EINVAL,
                   "\"%s\" is not a split: a name, or a name and the records of it that are meant, such as train[:1000] or "
                   "train[5%%:10%%]",
                   text);
}

/* "100", "-5%" or nothing, up to `stop`. */
static bool read_edge(const char **p, char stop, bool *given, bool *percent, int64_t *value)
{
    char *end;
    *given = **p != stop;
    *percent = false;
    if (*given) {
        errno = 0;
        *value = strtoll(*p, &end, 10);
        if (end == *p || errno || *value > INT64_MAX / 2 || *value < -INT64_MAX / 2) return false;
        *percent = *end == '%';
        *p = end + *percent;
    }
    return *(*p)++ == stop;
}

mt_rc mt_split_spec_parse(mt_split_spec *out, const char *text, mt_err *err)
{
    *out = (mt_split_spec){ 0 };
    if (!text) return MT_OK;
    size_t n = strcspn(text, "[");
    if (n >= sizeof out->name || strpbrk(text, "+()")) return malformed(text, err);
    memcpy(out->name, text, n);
    if (!text[n]) return MT_OK;
    const char *p = text + n + 1;
    bool from_percent, to_percent;
    bool ok = read_edge(&p, ':', &out->has_from, &from_percent, &out->from) &&
              read_edge(&p, ']', &out->has_to, &to_percent, &out->to) && !*p && n > 0;
    if (!ok) return malformed(text, err);
    out->sliced = true;
    out->percent = from_percent || to_percent;
    bool mixed = out->has_from && out->has_to && from_percent != to_percent;
    if (mixed) return mt_fail(err, MT_EINVAL, "\"%s\": give both ends as records, or both in percent", text);
    if (out->percent && (out->from < -100 || out->from > 100 || out->to < -100 || out->to > 100))
        return mt_fail(err, MT_EINVAL, "\"%s\": percents are from -100 to 100", text);
    return MT_OK;
}

bool mt_split_spec_counts(const mt_split_spec *s)
{
    return s->percent || (s->has_from && s->from < 0) || (s->has_to && s->to < 0);
}

/* An end in records, counted from the start and within them.  Ties round to even, as in Python. */
static int64_t place(const mt_split_spec *s, int64_t at, int64_t n)
{
    if (s->percent) at = (int64_t)nearbyint((double)at * (double)n / 100);
    if (at < 0) at += n;
    return mt_clamp_i64(at, 0, n);
}

void mt_split_spec_range(const mt_split_spec *s, int64_t n, int64_t *first, int64_t *end)
{
    *first = s->has_from ? place(s, s->from, n) : 0;
    *end = s->has_to ? place(s, s->to, n) : n;
    if (*end < *first) *end = *first;
}
