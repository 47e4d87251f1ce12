#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mt_text mt_bytes_text(uint64_t bytes)
{
    static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    mt_text t;
    double v = (double)bytes;
    int i = 0;
    while (v >= 1023.95 && i < 5) v /= 1024, i++;
    snprintf(t.s, sizeof t.s, i ? "%.1f %s" : "%.0f %s", v, names[i]);
    return t;
}

mt_text mt_count_text(uint64_t n)
{
    static const char *const names[] = { "", "K", "M", "B", "T" };
    mt_text t;
    double v = (double)n;
    int i = 0;
    while (v >= 999.5 && i < 4) v /= 1000, i++;
    snprintf(t.s, sizeof t.s, i == 0 ? "%.0f%s" : v < 9.995 ? "%.2f%s" : v < 99.95 ? "%.1f%s" : "%.0f%s", v, names[i]);
    return t;
}

mt_text mt_seconds_text(double s)
{
    mt_text t;
    if (!isfinite(s) || s < 0)
        snprintf(t.s, sizeof t.s, "?");
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

mt_rc mt_bytes_parse(const char *text, uint64_t *out, mt_err *err)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || !(v >= 0)) goto bad;
    while (*end == ' ') end++;
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
