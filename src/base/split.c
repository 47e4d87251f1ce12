#include "base/split.h"

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
