#include "base/split.h"

enum { BLOCK = 256 }; /* checked as a whole, so that the loops inside vectorize */

static bool all_ok(const float *x, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= !mt_split_ok(x[i]);
    return !bad;
}

size_t mt_split_array(uint16_t *hi, int16_t *lo, const float *x, size_t n)
{
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t end = n - at < BLOCK ? n : at + BLOCK;
        bool ok = all_ok(x + at, end - at);
        for (size_t i = at; i < end; i++) {
            if (!ok && !mt_split_ok(x[i])) return i;
            mt_split(x[i], &hi[i], &lo[i]);
        }
    }
    return n;
}

void mt_join_array(float *x, const uint16_t *hi, const int16_t *lo, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = mt_join(hi[i], lo[i]);
}

size_t mt_split_check(const uint16_t *hi, const int16_t *lo, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = mt_join(hi[i], lo[i]);
        uint16_t h;
        int16_t l;
        mt_split(x, &h, &l);
        if (!mt_split_ok(x) || h != hi[i]) return i;
    }
    return n;
}
