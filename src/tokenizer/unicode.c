#include "tokenizer/unicode.h"

enum { MAX_BLOCKS = 1024, VALUES = 1 << 16 }; /* about 400 blocks are needed */

/* Add a block of the table for code points first .. first + 255; `row` is the range that contains `first`. */
static void fill_block(mt_unicode *uc, size_t block, uint32_t first, size_t row)
{
    for (uint32_t i = 0; i < 256; i++) {
        while (row + 1 < mt__props_ranges_n && mt__props_ranges[row + 1].first <= first + i) row++;
        uc->props[block * 256 + i] = mt__props_ranges[row].value;
    }
}

/* Blocks inside one range (most of them) are shared by all ranges of that value. */
mt_rc mt_unicode_init(mt_unicode *uc, mt_err *err)
{
    size_t n = 0, row = 0;
    uint16_t *shared = mt_calloc(VALUES, sizeof *shared); /* value to block + 1 */
    uc->props = mt_malloc((size_t)MAX_BLOCKS * 256 * sizeof *uc->props);
    mt_rc rc = shared && uc->props ? MT_OK : mt_no_memory(err, "the table of characters");
    for (uint32_t b = 0; b < MT_UC_BLOCKS && !rc; b++) {
        while (row + 1 < mt__props_ranges_n && mt__props_ranges[row + 1].first <= b * 256) row++;
        bool whole = row + 1 == mt__props_ranges_n || mt__props_ranges[row + 1].first >= b * 256 + 256;
        uint16_t *known = &shared[mt__props_ranges[row].value];
        if (n == MAX_BLOCKS)
            rc = mt_fail(err, MT_EINTERNAL, "unicode_data.c needs more than %d blocks", MAX_BLOCKS);
        else if (!whole || !*known)
            fill_block(uc, n++, b * 256, row);
        uc->block[b] = (uint16_t)(whole && *known ? *known - 1u : n - 1);
        if (whole) *known = (uint16_t)(uc->block[b] + 1u);
    }
    mt_free(shared);
    if (rc) mt_unicode_deinit(uc);
    return rc;
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
        if (mt__script_ranges[mid].first <= cp)
            lo = mid;
        else
            hi = mid;
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
        if (mt__lower_runs[mid].first <= cp)
            lo = mid;
        else
            hi = mid;
    }
    const mt__case_run *run = &mt__lower_runs[lo];
    if (cp < run->first || cp > run->last || (cp - run->first) % run->step) return cp;
    return (uint32_t)((int32_t)cp + run->distance);
}
