#include "tokenizer/unicode.h"

#include <string.h>

enum { MAX_BLOCKS = 1024 }; /* about 300 distinct ones exist */

/* The value of each code point of one block of 256, walking the ranges from *row on. */
static void fill_block(uint16_t out[256], uint32_t first, size_t *row)
{
    for (uint32_t i = 0; i < 256; i++) {
        while (*row + 1 < mt__props_ranges_n && mt__props_ranges[*row + 1].first <= first + i) ++*row;
        out[i] = mt__props_ranges[*row].value;
    }
}

static size_t find_block(const uint16_t *blocks, size_t n, const uint16_t block[256])
{
    for (size_t i = n; i-- > 0;)
        if (!memcmp(blocks + i * 256, block, 256 * sizeof *block)) return i;
    return n;
}

mt_rc mt_unicode_init(mt_unicode *uc, mt_err *err)
{
    uc->props = mt_malloc((size_t)MAX_BLOCKS * 256 * sizeof *uc->props);
    if (!uc->props) return mt_fail(err, MT_ENOMEM, "no host memory for the table of characters");
    size_t n = 0, row = 0;
    for (uint32_t b = 0; b < MT_UC_BLOCKS; b++) {
        uint16_t block[256];
        fill_block(block, b * 256, &row);
        size_t at = find_block(uc->props, n, block);
        if (at == MAX_BLOCKS) {
            mt_unicode_deinit(uc);
            return mt_fail(err, MT_EINTERNAL, "unicode_data.c has more than %d distinct blocks", MAX_BLOCKS);
        }
        if (at == n) memcpy(uc->props + n++ * 256, block, sizeof block);
        uc->block[b] = (uint16_t)at;
    }
    return MT_OK;
}

void mt_unicode_deinit(mt_unicode *uc)
{
    mt_free(uc->props);
    uc->props = NULL;
}

uint16_t mt_unicode_script(uint32_t cp)
{
    size_t lo = 0, hi = mt__script_ranges_n;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (mt__script_ranges[mid].first <= cp) lo = mid;
        else hi = mid;
    }
    return mt__script_ranges[lo].value;
}

uint32_t mt_unicode_lower(uint32_t cp, uint32_t *second)
{
    *second = 0;
    if (cp < 0x80) return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
    if (cp == 0x130) {
        *second = 0x307;
        return 'i';
    }
    size_t lo = 0, hi = mt__lower_runs_n;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (mt__lower_runs[mid].first <= cp) lo = mid;
        else hi = mid;
    }
    const mt__case_run *run = &mt__lower_runs[lo];
    if (cp < run->first || cp > run->last || (cp - run->first) % run->step) return cp;
    return (uint32_t)((int32_t)cp + run->distance);
}
