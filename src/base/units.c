#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

mt_short_text mt_bytes_text(uint64_t bytes)
{
    static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    mt_short_text t;
    double v = (double)bytes;
    int i = 0;
    while (v >= 1023.95 && i < 5) v /= 1024, i++;
    snprintf(t.s, sizeof t.s, i ? "%.1f %s" : "%.0f %s", v, names[i]);
    return t;
}

mt_short_text mt_count_text(uint64_t n)
{
    static const char *const names[] = { "", "K", "M", "B", "T" };
    mt_short_text t;
    double v = (double)n;
    int i = 0;
    while (v >= 999.5 && i < 4) v /= 1000, i++;
    int digits = 0;
    if (i > 0 && v < 99.95) digits = v < 9.995 ? 2 : 1;
    snprintf(t.s, sizeof t.s, "%.*f%s", digits, v, names[i]);
    return t;
}

mt_short_text mt_seconds_text(double s)
{
    mt_short_text t;
    if (!isfinite(s) || s < 0)
        snprintf(t.s, sizeof t.s, "?");
    else if (s >= 5e-5 && s < 0.095)
        snprintf(t.s, sizeof t.s, s < 9.5e-3 ? "%.1f ms" : "%.0f ms", 1e3 * s);
    else if (s < 10)
        snprintf(t.s, sizeof t.s, "%.1f s", s);
    else if (s < 60)
        snprintf(t.s, sizeof t.s, "%.0f s", s);
    else if (s < 3600)
        snprintf(t.s, sizeof t.s, "%d min %02d s", (int)s / 60, (int)s % 60);
    else if (s < 86400)
        snprintf(t.s, sizeof t.s, "%d h %02d min", (int)s / 3600, (int)s / 60 % 60);
    else
        snprintf(t.s, sizeof t.s, "%.0f d %d h", floor(s / 86400), (int)fmod(s / 3600, 24));
    return t;
}

/* A decimal number and the blanks after it; end: the rest.  Negative: no number (strtod would take 0x40, inf and nan). */
static double leading_number(const char *text, const char **end)
{
    char *stop;
    if (!strchr("0123456789.", *text) || !*text || tolower((unsigned char)text[1]) == 'x') return -1;
    double v = strtod(text, &stop);
    if (stop == text) return -1;
    while (*stop == ' ') stop++;
    *end = stop;
    return v;
}

mt_rc mt_bytes_parse(const char *text, uint64_t *out, mt_err *err)
{
    const char *end;
    double v = leading_number(text, &end);
    if (v < 0) goto bad;
    static const char letters[] = "kmgtp";
    const char *letter = *end ? strchr(letters, tolower((unsigned char)*end)) : NULL;
    if (letter && *letter) {
        int power = (int)(letter - letters) + 1;
        end++;
        double base = *end == 'i' || *end == 'I' ? (end++, 1024.0) : 1000.0;
        v *= pow(base, power);
    }
    if (*end == 'b' || *end == 'B') end++;
    if (*end || v >= 9e18) goto bad;
    *out = (uint64_t)llround(v);
    return MT_OK;
bad:
    return mt_fail(err, MT_EINVAL, "\"%s\" is not a size; write 64M, 1.5G or 80Gi (G = 10^9, Gi = 2^30)", text);
}

mt_rc mt_memory_parse(const char *text, uint64_t *out, mt_err *err)
{
    MT_TRY(mt_bytes_parse(text, out, err));
    if (*out && (*out >= 1 << 20 || text[strspn(text, "0123456789.eE+- ")])) return MT_OK;
    return mt_fail(err, MT_EINVAL, "\"%s\" is %s: too little to mean it; write 64G for gigabytes, 64M for megabytes", text,
                   mt_bytes_text(*out).s);
}

mt_rc mt_count_parse(const char *text, uint64_t *out, mt_err *err)
{
    static const struct {
        const char *name;
        double unit;
    } units[] = { { "", 1 }, { "K", 1e3 }, { "M", 1e6 }, { "B", 1e9 }, { "G", 1e9 }, { "T", 1e12 } };
    const char *end;
    double v = leading_number(text, &end);
    for (size_t i = 0; v >= 0 && i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(end, units[i].name) != 0 || !(v * units[i].unit >= 1) || v * units[i].unit >= 9e18) continue;
        *out = (uint64_t)llround(v * units[i].unit);
        return MT_OK;
    }
    return mt_fail(err, MT_EINVAL, "\"%s\" is not a number of parameters; write 350M or 13B", text);
}
