/* Packing whole samples into rows. */
#include "test.h"

#include "base/rng.h"
#include "data/packing.h"

#include <stdlib.h>

/* Lengths by a few shapes that data has: even, mostly short, a few sizes, nearly full rows. */
typedef struct lengths {
    int64_t row;
    int shape;
} lengths;

static int64_t length_of(const void *ctx, int64_t i)
{
    const lengths *l = ctx;
    double u = mt_rng_uniform(9, (uint64_t)l->shape, (uint64_t)i), row = (double)l->row;
    double x = l->shape == 0   ? u * row
               : l->shape == 1 ? u * u * u * row
               : l->shape == 2 ? row * (0.2 + 0.2 * (int)(u * 3))
                               : row * (0.6 + 0.4 * u);
    int64_t n = (int64_t)x;
    return n < 1 ? 1 : n > l->row ? l->row : n;
}

/* First fit, in the order of the samples, over all of them. */
static int64_t first_fit(const lengths *l, int64_t n)
{
    int64_t *room = mt_calloc((size_t)n, sizeof *room), n_rows = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t length = length_of(l, i), r = 0;
        while (r < n_rows && room[r] < length) r++;
        if (r == n_rows) room[n_rows++] = l->row;
        room[r] -= length;
    }
    mt_free(room);
    return n_rows;
}

/* Every sample in one row, whole, in order; no row too long. */
static int64_t check(const lengths *l, int64_t n)
{
    mt_err err = { 0 };
    mt_packing *p;
    assert_ok(mt_packing_create(&p, n, l->row, length_of, l, NULL, &err));
    char *seen = mt_calloc((size_t)n + 1, 1);
    int64_t n_rows = mt_packing_rows(p), n_seen = 0, most = 0;
    for (int64_t r = 0; r < n_rows; r++) {
        const int64_t *items;
        int64_t k, sum = 0;
        mt_packing_row(p, r, &items, &k);
        assert_true(k > 0);
        for (int64_t i = 0; i < k; i++) {
            assert_true(items[i] >= 0 && items[i] < n && !seen[items[i]]);
            assert_true(i == 0 || items[i] > items[i - 1]);
            seen[items[i]] = 1;
            sum += length_of(l, items[i]);
        }
        assert_true(sum <= l->row);
        n_seen += k;
        if (k > most) most = k;
    }
    assert_int_equal(n_seen, n);
    assert_int_equal(mt_packing_most(p), most);
    mt_free(seen);
    mt_packing_free(p);
    return n_rows;
}

static void every_sample_is_in_one_row_whole(void **state)
{
    (void)state;
    static const int64_t rows[] = { 1, 2, 63, 64, 65, 1024, 4032, 4095, 4096, 4097, 20000 };
    for (size_t k = 0; k < MT_COUNT(rows); k++)
        for (int shape = 0; shape < 4; shape++) check(&(lengths){ rows[k], shape }, 3001);
    check(&(lengths){ 100, 0 }, 1);
    assert_int_equal(check(&(lengths){ 100, 0 }, 0), 0);
}

/* Within a window never more; over many, where first fit sees everything at once, at most half a percent. */
static void as_few_rows_as_first_fit_needs(void **state)
{
    (void)state;
    for (int shape = 0; shape < 4; shape++)
        for (int64_t row = 64; row <= 4096; row *= 8)
            for (int64_t n = 4096; n <= 20000; n += 20000 - 4096) {
                lengths l = { row, shape };
                int64_t ours = check(&l, n), theirs = first_fit(&l, n);
                if ((double)ours > (double)theirs * (n > 4096 ? 1.005 : 1))
                    fail_msg("rows of %lld, shape %d: %lld rows, first fit takes %lld", (long long)row, shape, (long long)ours,
                             (long long)theirs);
            }
}

static void any_row_is_the_same_in_any_order(void **state)
{
    (void)state;
    mt_err err = { 0 };
    lengths l = { 512, 1 };
    mt_packing *a, *b;
    enum { N = 1300000 }; /* some windows are forgotten */
    assert_ok(mt_packing_create(&a, N, l.row, length_of, &l, NULL, &err));
    assert_ok(mt_packing_create(&b, N, l.row, length_of, &l, NULL, &err));
    assert_int_equal(mt_packing_rows(a), mt_packing_rows(b));
    for (int i = 0; i < 60; i++) {
        int64_t r = (int64_t)mt_rng_below(1, 1, (uint64_t)i, (uint64_t)mt_packing_rows(a)), n, m;
        const int64_t *x, *y;
        mt_packing_row(a, r, &x, &n);
        for (int k = 0; k < 3; k++) { /* somewhere else first */
            mt_packing_row(b, (int64_t)mt_rng_below(2, 1, (uint64_t)(i * 3 + k), (uint64_t)mt_packing_rows(b)), &y, &m);
        }
        mt_packing_row(b, r, &y, &m);
        assert_int_equal(n, m);
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
    }
    mt_packing_free(a);
    mt_packing_free(b);
}

/* The rows that runs of earlier versions have trained on: a resumed run gets the same ones. */
static void rows_are_those_of_earlier_versions(void **state)
{
    (void)state;
    static const struct {
        lengths l;
        int64_t n;
        uint64_t hash;
    } cases[] = { { { 512, 0 }, 9000, UINT64_C(0x4e1d53604e873274) },
                  { { 2048, 1 }, 200000, UINT64_C(0x72aa59177c8b51cb) },
                  { { 4096, 2 }, 70000, UINT64_C(0x0fcd43a58e5153b6) },
                  { { 100, 3 }, 4097, UINT64_C(0x9ce7ce52eb3ef0d1) } };
    for (size_t c = 0; c < MT_COUNT(cases); c++) {
        mt_err err = { 0 };
        mt_packing *p;
        uint64_t h = 0;
        assert_ok(mt_packing_create(&p, cases[c].n, cases[c].l.row, length_of, &cases[c].l, NULL, &err));
        for (int64_t r = 0; r < mt_packing_rows(p); r++) {
            const int64_t *items;
            int64_t k;
            mt_packing_row(p, r, &items, &k);
            h = mt_hash(items, (size_t)k * sizeof *items, h + 1);
        }
        if (h != cases[c].hash) fail_msg("case %zu: 0x%016llx", c, (unsigned long long)h);
        mt_packing_free(p);
    }
}

static void packing_can_be_stopped(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_packing *p;
    const atomic_bool stop = true;
    assert_int_equal(mt_packing_create(&p, 9000, 512, length_of, &(lengths){ 512, 0 }, &stop, &err), MT_ESTOPPED);
    assert_null(p);
}

static int64_t too_long(const void *ctx, int64_t i) { return ctx ? i : 101; }

static void a_sample_longer_than_a_row_is_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_packing *p;
    assert_int_equal(mt_packing_create(&p, 10, 100, too_long, NULL, NULL, &err), MT_EINTERNAL);
    assert_says("101 tokens does not fit a row of 100");
    assert_null(p);
}

MT_TEST_MAIN(cmocka_unit_test(every_sample_is_in_one_row_whole), cmocka_unit_test(as_few_rows_as_first_fit_needs),
             cmocka_unit_test(any_row_is_the_same_in_any_order), cmocka_unit_test(rows_are_those_of_earlier_versions),
             cmocka_unit_test(packing_can_be_stopped), cmocka_unit_test(a_sample_longer_than_a_row_is_refused))
