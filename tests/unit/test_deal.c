/* schedule/deal.h: documents to shares, and the order in which shares meet. */
#include "rig.h"

#include "base/rng.h"
#include "schedule/deal.h"

#include <math.h>

enum { MOST_DOCS = 400, DRAWS = 400 };

typedef struct dealt {
    rig r;
    mt_deal d;
    int32_t doc_start[MOST_DOCS + 1];
    int64_t n_docs, longest;
} dealt;

static void open_deal(dealt *t, const char *model, int64_t bundles, int64_t shares)
{
    mt_err err = { 0 };
    char dir[512];
    *t = (dealt){ 0 };
    snprintf(dir, sizeof dir, MT_TESTS_DIR "/golden/models/%s", model);
    rig_open_model(&t->r, dir, NULL);
    assert_ok(mt_deal_init(&t->d, t->r.model, &(mt_arithmetic){ .bundles = bundles, .shares = shares }, MOST_DOCS, &err));
}

static void close_deal(dealt *t)
{
    mt_deal_deinit(&t->d);
    rig_close(&t->r);
}

static void deal_random(dealt *t, uint64_t seed)
{
    t->n_docs = 1 + (int64_t)mt_rng_below(seed, 1, 0, MOST_DOCS);
    t->longest = 0;
    const uint64_t most = 1 + mt_rng_below(seed, 2, 0, 4000);
    for (int64_t i = 0; i < t->n_docs; i++) {
        const int64_t rows = 1 + (int64_t)mt_rng_below(seed, 3, (uint64_t)i, most);
        t->doc_start[i + 1] = t->doc_start[i] + (int32_t)rows;
        t->longest = mt_max_i64(t->longest, rows);
    }
    mt_deal_documents(&t->d, t->doc_start, t->n_docs);
}

static int64_t work(const mt_deal *d, int64_t rows) { return d->even_rows ? rows * (d->even_rows + rows) : rows; }

static int64_t rows_of(const dealt *t, int64_t doc) { return t->doc_start[doc + 1] - t->doc_start[doc]; }

static int64_t share_work(const dealt *t, int share)
{
    int64_t sum = 0;
    for (int64_t i = t->d.first[share]; i < t->d.first[share + 1]; i++) sum += work(&t->d, rows_of(t, t->d.order[i]));
    return sum;
}

static void every_document_is_dealt_once_in_order(void **state)
{
    (void)state;
    dealt t;
    open_deal(&t, "qwen3", 3, 5);
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        bool seen[MOST_DOCS] = { 0 };
        deal_random(&t, seed);
        assert_int_equal(t.d.first[0], 0);
        assert_int_equal(t.d.first[15], t.n_docs);
        for (int s = 0; s < 15; s++)
            for (int64_t i = t.d.first[s]; i < t.d.first[s + 1]; i++) {
                assert_false(seen[t.d.order[i]]);
                seen[t.d.order[i]] = true;
                if (i > t.d.first[s]) assert_true(t.d.order[i] > t.d.order[i - 1]);
                assert_int_equal(t.d.starts[i + 1] - t.d.starts[i], rows_of(&t, t.d.order[i]));
            }
        assert_int_equal(t.d.starts[t.n_docs], t.doc_start[t.n_docs]);
    }
    close_deal(&t);
}

/* No share has more than another by more than one document's work. */
static void shares_differ_by_one_document_at_most(void **state)
{
    (void)state;
    static const char *const models[] = { "qwen3", "mixtral", "qwen3_next", "qwen2_window" };
    for (size_t m = 0; m < MT_COUNT(models); m++) {
        dealt t;
        open_deal(&t, models[m], 1, 8);
        for (uint64_t seed = 0; seed < DRAWS; seed++) {
            int64_t least = INT64_MAX, most = 0;
            deal_random(&t, seed);
            for (int s = 0; s < 8; s++) {
                least = mt_min_i64(least, share_work(&t, s));
                most = mt_max_i64(most, share_work(&t, s));
            }
            assert_true(most - least <= work(&t.d, t.longest));
        }
        close_deal(&t);
    }
}

/* Fewer documents than shares: the first shares have one each. */
static void later_shares_are_the_empty_ones(void **state)
{
    (void)state;
    dealt t;
    open_deal(&t, "qwen3", 2, 4);
    const int32_t doc_start[] = { 0, 5, 7, 20 };
    mt_deal_documents(&t.d, doc_start, 3);
    for (int s = 0; s < 8; s++) assert_int_equal(mt_deal_docs(&t.d, s), s < 3);
    assert_int_equal(t.d.order[0], 2); /* the longest */
    assert_int_equal(mt_deal_rows(&t.d, 0), 13);
    close_deal(&t);
}

/* The same lengths are dealt alike for ever: checkpoints depend on it.  If this fails, MT_DEAL_VERSION must change. */
static void version_1_deals_as_it_always_did(void **state)
{
    (void)state;
    static const int32_t lengths[] = { 7, 3, 9, 9, 1, 4, 4, 12, 2, 6 };
    static const int want[] = { 1, 1, 1, 2, 0, 0, 2, 0, 0, 2 };
    int32_t doc_start[11] = { 0 };
    dealt t;
    open_deal(&t, "qwen3", 1, 3);
    assert_int_equal(MT_DEAL_VERSION, 1);
    assert_int_equal(t.d.even_rows, 78);
    for (int i = 0; i < 10; i++) doc_start[i + 1] = doc_start[i] + lengths[i];
    mt_deal_documents(&t.d, doc_start, 10);
    for (int s = 0; s < 3; s++)
        for (int64_t i = t.d.first[s]; i < t.d.first[s + 1]; i++) assert_int_equal(want[t.d.order[i]], s);
    close_deal(&t);
}

static void one_share_takes_documents_as_they_come(void **state)
{
    (void)state;
    dealt t;
    open_deal(&t, "qwen3", 0, 1);
    for (uint64_t seed = 0; seed < 20; seed++) {
        deal_random(&t, seed);
        for (int64_t i = 0; i < t.n_docs; i++) assert_int_equal(t.d.order[i], i);
        assert_memory_equal(t.d.starts, t.doc_start, (size_t)(t.n_docs + 1) * sizeof *t.d.starts);
    }
    close_deal(&t);
}

/* -- folding ---------------------------------------------------------------------------------------- */

/* What the order says, done with one number a share, and the definition. */
static void the_order_of_folds_is_the_definition(void **state)
{
    (void)state;
    static const int shapes[][2] = { { 1, 1 }, { 1, 4 }, { 4, 1 }, { 2, 2 }, { 3, 4 } };
    for (size_t k = 0; k < MT_COUNT(shapes); k++)
        for (uint64_t seed = 0; seed < 100; seed++) {
            const int bundles = shapes[k][0], shares = shapes[k][1], n = bundles * shares;
            dealt t;
            float part[16], sums[3] = { -0.0f, 0, 0 }, step = 0;
            bool any = false;
            if (seed == 0 || k) open_deal(&t, "qwen3", bundles, shares);
            /* Any of them may be empty: more than dealing does. */
            for (int s = 0; s < n; s++) {
                part[s] = mt_rng_normal(seed, 5, (uint64_t)s) * ldexpf(1, (int)mt_rng_below(seed, 6, (uint64_t)s, 30));
                t.d.first[s + 1] = t.d.first[s] + (int64_t)mt_rng_below(seed, 7, (uint64_t)s, 2);
            }
            for (int b = 0; b < bundles; b++) {
                float bundle = 0;
                bool in_bundle = false;
                for (int s = b * shares; s < (b + 1) * shares; s++) {
                    if (!mt_deal_docs(&t.d, s)) continue;
                    bundle = in_bundle ? bundle + part[s] : part[s];
                    in_bundle = true;
                }
                if (in_bundle) step = any ? step + bundle : bundle;
                any |= in_bundle;
            }
            for (int s = 0; s < n; s++) {
                if (!mt_deal_docs(&t.d, s)) continue;
                const mt_fold_order f = mt_fold_order_of(&t.d, s);
                assert_in_range(f.sum, 0, (bundles > 1) + (shares > 1));
                sums[f.sum] = part[s];
                if (f.into >= 0) sums[f.into] += sums[f.sum];
                if (f.ends_bundle) sums[0] += sums[1];
                assert_int_equal(f.first_bundle, t.d.first[s / shares * shares] == 0);
            }
            if (any) assert_memory_equal(&step, &sums[0], sizeof step);
            t.d.rounds = bundles > 1; /* then every bundle is summed apart, and ends */
            for (int s = 0; s < n && t.d.rounds; s++) {
                if (!mt_deal_docs(&t.d, s)) continue;
                const mt_fold_order f = mt_fold_order_of(&t.d, s);
                const int64_t *first = t.d.first, bundle = s / shares;
                const bool begins = first[s] == first[bundle * shares], ends = first[s + 1] == first[(bundle + 1) * shares];
                assert_int_equal(f.ends_bundle, ends);
                assert_int_equal(f.sum, begins ? 1 : 2);
                assert_int_equal(f.into, begins ? -1 : 1);
            }
            t.d.rounds = false;
            if (k || seed == 99) close_deal(&t);
        }
}

static void losses_fold_by_bundles(void **state)
{
    (void)state;
    const mt_loss_sum l[] = { { 1e16, 1 }, { 1, 2 }, { 1, 4 }, { 1, 8 } };
    mt_loss_sum one = mt_fold_losses(l, 1, 4), two = mt_fold_losses(l, 2, 2);
    assert_true(one.loss == ((1e16 + 1) + 1) + 1 && two.loss == (1e16 + 1) + (1.0 + 1));
    assert_true(one.loss != two.loss); /* the orders are distinguishable */
    assert_int_equal(one.correct, 15);
    assert_int_equal(two.correct, 15);
    one = mt_fold_losses(l, 1, 1);
    assert_true(one.loss == 1e16);
}

/* Ranges in any cut and order give the bits of the whole. */
static void ranges_fold_like_the_whole(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float part[N], to[N], whole[N];
    for (uint64_t seed = 0; seed < 20; seed++) {
        for (int i = 0; i < N; i++) {
            part[i] = mt_rng_normal(seed, 1, (uint64_t)i);
            to[i] = whole[i] = mt_rng_normal(seed, 2, (uint64_t)i) * 1e4f;
        }
        to[7] = whole[7] = part[7] = -0.0f;
        to[8] = whole[8] = INFINITY;
        const mt_fold all = { .n = N, .to = whole, .part = part }, cut = { .n = N, .to = to, .part = part };
        mt_fold_range(&all, 0, N);
        for (int64_t at = N, n; at > 0; at -= n) { /* from the end */
            n = mt_min_i64(1 + (int64_t)mt_rng_below(seed, 3, (uint64_t)at, 600), at);
            mt_fold_range(&cut, at - n, at);
        }
        assert_memory_equal(to, whole, sizeof to);
        assert_true(signbit(to[7]));
    }
}

/* Today's hashes stay: 1 x 1 is not mentioned in them. */
static void one_share_hashes_as_before(void **state)
{
    (void)state;
    mt_arithmetic a = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_F32, .micro_tokens = 4096, .mlp_rows = 512, .head_rows = 64 };
    const uint64_t plain = mt_arithmetic_hash(&a);
    a.bundles = a.shares = 1;
    assert_true(mt_arithmetic_hash(&a) == plain);
    a.shares = 2;
    const uint64_t two = mt_arithmetic_hash(&a);
    a.shares = 1, a.bundles = 2;
    assert_true(two != plain && mt_arithmetic_hash(&a) != plain && mt_arithmetic_hash(&a) != two);
}

RIG_TEST_MAIN(cmocka_unit_test(every_document_is_dealt_once_in_order), cmocka_unit_test(shares_differ_by_one_document_at_most),
              cmocka_unit_test(later_shares_are_the_empty_ones), cmocka_unit_test(version_1_deals_as_it_always_did),
              cmocka_unit_test(one_share_takes_documents_as_they_come), cmocka_unit_test(the_order_of_folds_is_the_definition),
              cmocka_unit_test(losses_fold_by_bundles), cmocka_unit_test(ranges_fold_like_the_whole),
              cmocka_unit_test(one_share_hashes_as_before))
