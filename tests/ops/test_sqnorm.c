/* The sum of squares: the bits of its definition, whatever computes it and on however many threads. */
#include "test.h"

#include "base/dtype.h"
#include "base/pool.h"
#include "base/rng.h"
#include "ops/sqnorm.h"

#include <math.h>

enum { N = 5 * 4096 + 1234, N_CHUNKS = 6 };

static float x32[N + 8];
static uint16_t x16[N + 8];

static void fill(void)
{
    for (size_t i = 0; i < N + 8; i++) {
        /* Exponents apart, so that a different order would show in the last bits. */
        x32[i] = mt_rng_normal(1, 0, i) * ldexpf(1.0f, (int)mt_rng_below(1, 1, i, 20) - 10);
        x16[i] = mt_f32_to_bf16(x32[i]);
    }
}

/* sqnorm.h's text, letter by letter. */
static double literal_sum(const float *x, size_t n)
{
    double total[256] = { 0 };
    for (size_t chunk = 0; chunk * 4096 < n; chunk++) {
        double lane[256];
        for (size_t l = 0; l < 256; l++) {
            lane[l] = 0;
            for (size_t k = 0; k < 16; k++) {
                size_t i = chunk * 4096 + k * 256 + l;
                double v = i < n ? x[i] : 0.0;
                lane[l] += v * v;
            }
        }
        for (size_t half = 128; half >= 1; half /= 2)
            for (size_t l = 0; l < half; l++) lane[l] += lane[l + half];
        total[chunk % 256] += lane[0];
    }
    for (size_t half = 128; half >= 1; half /= 2)
        for (size_t l = 0; l < half; l++) total[l] += total[l + half];
    return total[0];
}

static double literal(const mt_sqnorm_args *a)
{
    static float wide[N];
    mt_to_f32(wide, a->x, a->type, a->n);
    return literal_sum(wide, a->n);
}

static double by(const mt_sqnorm_impl *impl, const mt_sqnorm_args *a)
{
    double sums[N_CHUNKS];
    mt_sqnorm_chunks_by(impl, a, 0, mt_sqnorm_n_chunks(a->n), sums);
    return mt_sqnorm_add(sums, mt_sqnorm_n_chunks(a->n));
}

static void assert_same_bits(double a, double b)
{
    if (memcmp(&a, &b, sizeof a)) fail_msg("%a is not %a", a, b);
}

static void every_implementation_gives_the_definitions_bits(void **state)
{
    (void)state;
    static const size_t lengths[] = { 0, 1, 2, 255, 256, 257, 4095, 4096, 4097, 8192, 12345, N };
    fill();
    for (size_t k = 0; k < mt_sqnorm_n_impls; k++) {
        bool has = mt_sqnorm_impls[k].supported();
        print_message("%s: %s\n", mt_sqnorm_impls[k].name, has ? "compared" : "this CPU has it not");
        if (!has) continue;
        for (size_t i = 0; i < MT_COUNT(lengths); i++) {
            for (size_t at = 0; at < 8; at += 3) { /* misaligned too */
                mt_sqnorm_args wide = { x32 + at, MT_DTYPE_F32, lengths[i] }, narrow = { x16 + at, MT_DTYPE_BF16, lengths[i] };
                assert_same_bits(by(&mt_sqnorm_impls[k], &wide), literal(&wide));
                assert_same_bits(by(&mt_sqnorm_impls[k], &narrow), literal(&narrow));
                assert_same_bits(mt_sqnorm(&wide), literal(&wide));
                assert_same_bits(mt_sqnorm(&narrow), literal(&narrow));
            }
        }
    }
}

/* Lanes of chunk sums that hold more than one. */
static void many_chunks_follow_the_tree_too(void **state)
{
    (void)state;
    enum { MANY = 700 };
    double sums[MANY], lane[256] = { 0 };
    for (size_t i = 0; i < MANY; i++) sums[i] = ldexp(fabs((double)mt_rng_normal(2, 0, i)), (int)mt_rng_below(2, 1, i, 40) - 20);
    for (size_t l = 0; l < 256; l++)
        for (size_t i = l; i < MANY; i += 256) lane[l] += sums[i];
    for (size_t half = 128; half >= 1; half /= 2)
        for (size_t l = 0; l < half; l++) lane[l] += lane[l + half];
    assert_same_bits(mt_sqnorm_add(sums, MANY), lane[0]);
}

static void extremes_do_not_overflow_or_vanish(void **state)
{
    (void)state;
    static const float edge[] = { 0x1.fffffep127f, -0x1.fffffep127f, 0x1p-149f, 0x1p-126f };
    for (size_t e = 0; e < MT_COUNT(edge); e++) {
        for (size_t i = 0; i < N; i++) x32[i] = edge[e];
        mt_sqnorm_args a = { x32, MT_DTYPE_F32, N };
        double sum = mt_sqnorm(&a), want = (double)N * edge[e] * edge[e];
        assert_true(isfinite(sum) && fabs(sum / want - 1) < 1e-12);
        assert_same_bits(sum, literal(&a));
    }
}

static void non_finite_elements_show(void **state)
{
    (void)state;
    for (size_t k = 0; k < mt_sqnorm_n_impls; k++) {
        if (!mt_sqnorm_impls[k].supported()) continue;
        for (size_t at = 0; at < N; at += 1999) {
            fill();
            mt_sqnorm_args wide = { x32, MT_DTYPE_F32, N }, narrow = { x16, MT_DTYPE_BF16, N };
            x32[at] = -INFINITY;
            x16[at] = 0xff80;
            assert_true(by(&mt_sqnorm_impls[k], &wide) == INFINITY);
            assert_true(by(&mt_sqnorm_impls[k], &narrow) == INFINITY);
            x32[(at + 777) % N] = NAN;
            x16[(at + 777) % N] = 0x7fc0;
            assert_true(isnan(by(&mt_sqnorm_impls[k], &wide)));
            assert_true(isnan(by(&mt_sqnorm_impls[k], &narrow)));
        }
    }
}

typedef struct job {
    mt_sqnorm_args args;
    size_t per_piece;
    double sums[N_CHUNKS];
} job;

static void one_piece(void *arg, int64_t i)
{
    job *j = arg;
    size_t first = (size_t)i * j->per_piece, left = N_CHUNKS - first;
    mt_sqnorm_chunks(&j->args, first, left < j->per_piece ? left : j->per_piece, j->sums + first);
}

static void the_number_of_threads_does_not_matter(void **state)
{
    (void)state;
    mt_err err = { 0 };
    fill();
    job j = { .args = { x16, MT_DTYPE_BF16, N } };
    double want = literal(&j.args);
    for (int threads = 1; threads <= 4; threads++) {
        mt_pool *pool;
        assert_ok(mt_pool_create(&pool, threads, &err));
        for (j.per_piece = 1; j.per_piece <= N_CHUNKS; j.per_piece++) {
            memset(j.sums, 0xff, sizeof j.sums);
            mt_pool_for(pool, (int64_t)((N_CHUNKS + j.per_piece - 1) / j.per_piece), one_piece, &j);
            assert_same_bits(mt_sqnorm_add(j.sums, N_CHUNKS), want);
        }
        mt_pool_free(pool);
    }
}

MT_TEST_MAIN(cmocka_unit_test(every_implementation_gives_the_definitions_bits), cmocka_unit_test(many_chunks_follow_the_tree_too),
             cmocka_unit_test(extremes_do_not_overflow_or_vanish), cmocka_unit_test(non_finite_elements_show),
             cmocka_unit_test(the_number_of_threads_does_not_matter))
