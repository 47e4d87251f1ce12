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

static size_t split_bf16(uint16_t *hi, int16_t *lo, const uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((x[i] & 0x7f80) == 0x7f80) return i;
        hi[i] = x[i];
        lo[i] = 0;
    }
    return n;
}

size_t mt_split_from(uint16_t *hi, int16_t *lo, const void *x, mt_dtype type, size_t n)
{
    if (type == MT_DTYPE_BF16) return split_bf16(hi, lo, x, n);
    if (type == MT_DTYPE_F32) return mt_split_array(hi, lo, x, n);
    float block[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = n - at < BLOCK ? n - at : BLOCK;
        mt_to_f32(block, (const char *)x + at * mt_dtype_bytes(type), type, len);
        size_t done = mt_split_array(hi + at, lo + at, block, len);
        if (done < len) return at + done;
    }
    return n;
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
