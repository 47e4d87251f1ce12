#include "data/group.h"

mt_rc mt__group_init(mt__group *g, mt_store *const *stores, size_t n, mt_err *err)
{
    *g = (mt__group){ .stores = stores, .n = n, .sets = mt_calloc(n, sizeof *g->sets) };
    if (!g->sets) return mt_no_memory(err, "%zu datasets", n);
    for (size_t d = 0; d < n; d++) MT_TRY(mt_subset_init(&g->sets[d], mt_store_samples(stores[d]), err));
    return MT_OK;
}

mt_rc mt__group_order(mt__group *g, mt_mix_strategy strategy, const double *probs, bool shuffle, uint64_t seed,
                      const atomic_bool *stop, mt_err *err)
{
    int64_t *sizes = mt_calloc(g->n, sizeof *sizes);
    if (!sizes) return mt_no_memory(err, "%zu datasets", g->n);
    for (size_t d = 0; d < g->n; d++) {
        mt_subset_count(&g->sets[d]);
        sizes[d] = g->sets[d].n_in;
    }
    mt_rc rc = mt_mix_init(&g->mix, strategy, sizes, probs, g->n, seed, stop, err);
    mt_free(sizes);
    g->n_units = g->n_samples = g->mix.n;
    g->shuffle = shuffle;
    g->seed = seed;
    return rc;
}

void mt__group_at(const mt__group *g, int64_t i, size_t *store, int64_t *sample)
{
    int64_t k;
    mt_mix_at(&g->mix, i, store, &k);
    *sample = mt_subset_at(&g->sets[*store], k);
}

static int64_t pack_place(const mt__group *g, int64_t i) { return g->shuffle ? mt_shuffle_at(&g->pack_order, i) : i; }

static int64_t pack_length(const void *ctx, int64_t i)
{
    const mt__group *g = ctx;
    size_t d;
    int64_t sample;
    mt__group_at(g, pack_place(g, i), &d, &sample);
    return mt_store_length(g->stores[d], sample);
}

mt_rc mt__group_pack(mt__group *g, int64_t row_tokens, const atomic_bool *stop, mt_err *err)
{
    g->pack_order = mt_shuffle_of(g->n_samples, g->seed, MT_SHUFFLE_PACK);
    MT_TRY(mt_packing_create(&g->packing, g->n_samples, row_tokens, pack_length, g, stop, err));
    g->n_units = mt_packing_rows(g->packing);
    return MT_OK;
}

void mt__group_deinit(mt__group *g)
{
    for (size_t d = 0; g->sets && d < g->n; d++) mt_subset_deinit(&g->sets[d]);
    mt_free(g->sets);
    mt_mix_deinit(&g->mix);
    mt_packing_free(g->packing);
    *g = (mt__group){ 0 };
}

void mt__group_unit(mt__group *g, int64_t epoch, int64_t u, int64_t *one, const int64_t **places, int64_t *n)
{
    if (g->shuffle) {
        mt_shuffle order = mt_shuffle_of(g->n_units, g->seed, MT_SHUFFLE_EPOCH + (uint64_t)epoch);
        u = mt_shuffle_at(&order, u);
    }
    *one = u;
    *places = one;
    *n = 1;
    if (g->packing) mt_packing_row(g->packing, u, places, n);
}

/* -- measures -------------------------------------------------------------------------------------- */

int64_t mt__group_longest(const mt__group *g)
{
    int64_t longest = 0;
    for (size_t d = 0; d < g->n; d++)
        if (g->sets[d].n_in) longest = mt_max_i64(longest, mt_store_counted(g->stores[d])->longest);
    return longest;
}

static void count_lengths(const mt__group *g, int64_t *counts)
{
    for (size_t d = 0; d < g->n; d++)
        for (int64_t i = 0; i < g->sets[d].n; i++)
            if (mt_subset_has(&g->sets[d], i)) counts[mt_store_length(g->stores[d], i)]++;
}

mt_rc mt__group_most_tokens(const mt__group *g, int64_t per, int64_t *out, mt_err *err)
{
    int64_t longest = mt__group_longest(g), left = mt_min_i64(per, g->n_samples);
    *out = longest * left;
    if (g->mix.strategy == MT_MIX_OVER) return MT_OK; /* a sample may come several times */
    int64_t *counts = mt_calloc((size_t)longest + 1, sizeof *counts);
    if (!counts) return mt_no_memory(err, "measuring the samples");
    count_lengths(g, counts);
    *out = 0;
    for (int64_t n = longest; n > 0 && left > 0; n--) {
        int64_t k = mt_min_i64(counts[n], left);
        *out += k * n;
        left -= k;
    }
    mt_free(counts);
    return MT_OK;
}

int64_t mt__group_tokens(const mt__group *g)
{
    int64_t sum = 0;
    for (size_t d = 0; d < g->n; d++) {
        const mt_subset *set = &g->sets[d];
        if (!set->n_in) continue;
        const int64_t drawn = mt_mix_drawn(&g->mix, d), rounds = drawn / set->n_in, more = drawn % set->n_in;
        for (int64_t i = 0, k = 0; i < set->n; i++)
            if (mt_subset_has(set, i)) sum += mt_store_length(g->stores[d], i) * (rounds + (k++ < more));
    }
    return sum;
}
