#include "data/subset.h"

enum { WORDS = 8 }; /* of a block */

static int64_t n_blocks(const mt_subset *s) { return (s->n + 64 * WORDS - 1) / (64 * WORDS); }

mt_rc mt_subset_init(mt_subset *s, int64_t n, mt_err *err)
{
    *s = (mt_subset){ .n = n };
    s->bits = mt_calloc((size_t)n_blocks(s) * WORDS + 1, sizeof *s->bits);
    s->before = mt_calloc((size_t)n_blocks(s) + 1, sizeof *s->before);
    if (s->bits && s->before) return MT_OK;
    mt_subset_deinit(s);
    return mt_no_memory(err, "choosing among %lld samples", (long long)n);
}

void mt_subset_count(mt_subset *s)
{
    int64_t n = 0;
    for (int64_t b = 0; b < n_blocks(s); b++) {
        s->before[b] = n;
        for (int w = 0; w < WORDS; w++) n += __builtin_popcountll(s->bits[b * WORDS + w]);
    }
    s->n_in = s->before[n_blocks(s)] = n;
}

int64_t mt_subset_at(const mt_subset *s, int64_t k)
{
    int64_t low = 0, high = n_blocks(s); /* before[low] <= k < before[high] */
    while (high - low > 1) {
        int64_t mid = low + (high - low) / 2;
        if (s->before[mid] <= k)
            low = mid;
        else
            high = mid;
    }
    k -= s->before[low];
    int64_t w = low * WORDS;
    for (int64_t n; (n = __builtin_popcountll(s->bits[w])) <= k; w++) k -= n;
    uint64_t bits = s->bits[w];
    for (; k > 0; k--) bits &= bits - 1;
    return w * 64 + __builtin_ctzll(bits);
}

void mt_subset_deinit(mt_subset *s)
{
    mt_free(s->bits);
    mt_free(s->before);
    *s = (mt_subset){ 0 };
}
