/* The forms Adam's moments are stored in: every implementation gives plain C's bits, what is stored is read back, rounding is
 * right in the mean, and no small change is lost. */
#include "test.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/split.h"
#include "optim/adamw.h"

#include <math.h>
#include <stdlib.h>

enum { B = MT_MOMENT_BLOCK, N = 5 * B + 77 };

typedef struct stored {
    uint8_t m[2 * N + 64], v[2 * N + 64];
} stored;

static const mt_moments small_forms[] = { MT_MOMENTS_BF16, MT_MOMENTS_8BIT };

static const float special[] = { 0.0f,     -0.0f,    0x1p-149f, -0x1p-140f, 0x1p-126f, 3e38f,
                                 -3.4e38f, INFINITY, -INFINITY, NAN,        1.875f,    0x1.fffffep0f };

/* Numbers of every size and kind; tame: finite, over six decades. */
static float any(uint64_t stream, uint64_t i, bool tame)
{
    uint64_t r = mt_rng_u64(3, stream, i);
    if (!tame && r % 5 == 0) return special[r / 5 % MT_COUNT(special)];
    return mt_rng_normal(4, stream, i) * ldexpf(1.0f, -(int)(r % (tame ? 20 : 150)));
}

static void fill(float *m, float *v, uint64_t seed, size_t n, bool tame)
{
    for (size_t i = 0; i < n; i++) m[i] = any(2 * seed, i, tame), v[i] = fabsf(any(2 * seed + 1, i, tame));
}

/* All n numbers, by one implementation. */
static void walk(void (*each)(const mt_moments_chunk *), mt_moments form, stored *s, size_t n, uint64_t key, float *m, float *v)
{
    for (size_t at = 0; at < n; at += B)
        each(&(mt_moments_chunk){ .form = form,
                                  .m = s->m,
                                  .v = s->v,
                                  .n_all = n,
                                  .at = at,
                                  .n = n - at < B ? n - at : B,
                                  .key = key,
                                  .m32 = m + at,
                                  .v32 = v + at });
}

/* A block in the middle of others, its weights and its gradient. */
typedef struct updated {
    stored s;
    uint16_t hi[B];
    int16_t lo[B];
    float m[B], v[B];
    size_t n_bad;
} updated;

/* Stored as after an update, or any bits. */
static void fill_stored(stored *s, mt_moments form, uint64_t seed)
{
    static float m[N], v[N];
    const uint64_t r = mt_rng_u64(6, 0, seed), kind = r % 4;
    fill(m, v, seed, N, kind != 0);
    /* One that is nearly infinite when it is 1.2515 times as large, or infinite. */
    if (kind == 2) (r / 4 % 2 ? m : v)[2 * B + r / 8 % B] = r >> 63 ? 0x1.98p127f : 0x1.9p127f;
    walk(mt_moments_store, form, s, N, seed, m, v);
    if (kind != 1) return;
    for (size_t i = 0; i < mt_moments_bytes(form, N); i++) {
        const bool exponent = form == MT_MOMENTS_8BIT && i >= mt_moments_exponents_at(N);
        const uint64_t any_bits = mt_rng_u64(7, seed, i), most = exponent ? MT_MOMENT_HIGHEST - MT_MOMENT_LOWEST + 1 : 256;
        s->m[i] = (uint8_t)(any_bits % most);
        s->v[i] = (uint8_t)(any_bits / 256 % most);
    }
}

/* Ordinary numbers, of which one may be another kind: vector code has a short way where none is. */
static void fill_gradient(float g[B], uint64_t seed)
{
    const uint64_t r = mt_rng_u64(8, 0, seed);
    for (size_t i = 0; i < B; i++) g[i] = r % 8 == 0 ? 0 : any(9 + seed, i, r % 8 < 6);
    if (r % 8 == 3) g[r / 8 % B] = special[r / 4096 % MT_COUNT(special)];
    if (r % 8 != 1 && r % 8 != 2) return;
    for (size_t i = 0; i < B; i++) g[i] = 1.0f; /* and one that becomes a number just below those with e = 1, of m or of v */
    g[r / 8 % B] = ldexpf(1.0f - 0x1p-30f * (float)(r >> 38), r % 8 == 1 ? -14 : -15);
}

/* Coefficients of an update; of one that leaves the moments as they are; that may make them infinite; that forgets the old ones. */
static mt_update_coef coef_of(uint64_t seed)
{
    static const mt_update_step usual = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .grad_scale = 1, .t = 3 };
    mt_update_coef c = mt_adamw_coef_of(&usual);
    if (seed % 5 == 0) c.beta1 = c.beta2 = 1, c.one_minus_beta1 = c.one_minus_beta2 = 0;
    if (seed % 5 == 1) c.beta1 = c.beta2 = 1.2515f, c.grad_scale = 0;
    if (seed % 5 == 2) c.beta1 = c.beta2 = 0, c.one_minus_beta1 = c.one_minus_beta2 = 1;
    return c;
}

static void update_with(const mt_update_impl *impl, mt_moments form, uint64_t seed, updated *u)
{
    const bool bf16 = seed % 2;
    float g[B];
    uint16_t g16[B];
    *u = (updated){ .n_bad = 0 };
    fill_stored(&u->s, form, seed);
    fill_gradient(g, seed);
    for (size_t i = 0; i < B; i++) {
        g16[i] = mt_f32_to_bf16(g[i]);
        mt_split(mt_rng_normal(10, seed, i), &u->hi[i], &u->lo[i]);
    }
    const mt_moments_chunk c = { .form = form,
                                 .m = u->s.m,
                                 .v = u->s.v,
                                 .n_all = N,
                                 .at = 2 * B,
                                 .n = B,
                                 .key = mt_rng_u64(11, 0, seed),
                                 .m32 = u->m,
                                 .v32 = u->v };
    const mt_update_args a = { .hi = u->hi,
                               .lo = u->lo,
                               .m = u->m,
                               .v = u->v,
                               .g = bf16 ? (const void *)g16 : g,
                               .g_type = bf16 ? MT_DTYPE_BF16 : MT_DTYPE_F32,
                               .n = B,
                               .coef = coef_of(seed) };
    u->n_bad = impl->update_block(&a, &c);
}

static void vector_code_updates_blocks_with_the_bits_of_plain_c(void **state)
{
    (void)state;
    enum { BLOCKS = 6000 };
    static updated x, y;
    for (size_t k = 0; k + 1 < mt_adamw_n_impls; k++) {
        const mt_update_impl *impl = &mt_adamw_impls[k];
        print_message("%s: %s\n", impl->name, impl->supported() ? "compared" : "this CPU has it not");
        for (uint64_t i = 0; impl->supported() && i < BLOCKS; i++) {
            const mt_moments form = small_forms[i / 10 % MT_COUNT(small_forms)];
            update_with(&mt_adamw_impls[mt_adamw_n_impls - 1], form, i, &x);
            update_with(impl, form, i, &y);
            assert_memory_equal(&x.s, &y.s, sizeof x.s);
            assert_memory_equal(x.hi, y.hi, sizeof x.hi);
            assert_memory_equal(x.lo, y.lo, sizeof x.lo);
            assert_int_equal(x.n_bad, y.n_bad);
        }
    }
}

/* Every code of every exponent, under any random bits. */
static void a_code_is_read_and_stored_as_itself(void **state)
{
    (void)state;
    for (uint32_t e = 0; e <= MT_MOMENT_HIGHEST - MT_MOMENT_LOWEST; e++) {
        mt_moment_scale sm = mt_moment_scale_of(e, MT_MOMENT_E_BITS_M), sv = mt_moment_scale_of(e, MT_MOMENT_E_BITS_V);
        for (uint32_t c = 0; c < 256; c++) {
            float m = mt_moment_m_value(c, sm), v = mt_moment_v_value(c, sv);
            static const uint32_t bits[] = { 0, 1, 0x8000, 0xffff };
            for (size_t k = 0; k < MT_COUNT(bits); k++) {
                assert_int_equal(mt_moment_m_code(m, bits[k], sm), c);
                assert_int_equal(mt_moment_v_code(v, bits[k], sv), c);
            }
            assert_int_equal(mt_f32_bits(m) & 0xffff, 0); /* bf16 holds it */
            assert_int_equal(mt_f32_bits(v) & 0xffff, 0);
            if (c && c != 128) assert_true(fabsf(m) < 2 * ldexpf(1, (int)e + MT_MOMENT_LOWEST - 127) && v > 0);
        }
        /* and in order */
        for (uint32_t c = 1; c < 128; c++) assert_true(mt_moment_m_value(c, sm) > mt_moment_m_value(c - 1, sm));
        for (uint32_t c = 1; c < 256; c++) assert_true(mt_moment_v_value(c, sv) > mt_moment_v_value(c - 1, sv));
    }
}

static void what_was_stored_is_stored_again_as_it_is(void **state)
{
    (void)state;
    static float m[N], v[N];
    for (size_t f = 0; f < MT_COUNT(small_forms); f++)
        for (uint64_t seed = 0; seed < 50; seed++) {
            stored x = { .m = { 0 } }, y = x;
            fill(m, v, 100 + seed, N, true);
            walk(mt_moments_store, small_forms[f], &x, N, seed, m, v);
            walk(mt_moments_load, small_forms[f], &x, N, 0, m, v);
            walk(mt_moments_store, small_forms[f], &y, N, seed + 1, m, v); /* other random bits: nothing is left to round */
            assert_memory_equal(&x, &y, sizeof x);
        }
}

/* 20,000 roundings of a number: their mean is it, within five deviations of a mean of such steps; and none is a whole step
 * off. */
static void rounding_is_right_in_the_mean(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    for (size_t f = 0; f < MT_COUNT(small_forms); f++)
        for (int down = 0; down < 30; down++) {
            float m[B] = { 1.3f }, v[B] = { 1.3f }, m0 = -ldexpf(1.2345f, -down), v0 = ldexpf(1.4567f, -down);
            double sum_m = 0, sum_v = 0, step_m = 0, step_v = 0;
            for (uint64_t k = 0; k < DRAWS; k++) {
                stored s;
                m[0] = v[0] = 1.3f, m[1] = m0, v[1] = v0;
                walk(mt_moments_store, small_forms[f], &s, 2, mt_rng_u64(9, 9, k), m, v);
                walk(mt_moments_load, small_forms[f], &s, 2, 0, m, v);
                sum_m += m[1] - m0, sum_v += v[1] - v0;
                step_m = fmax(step_m, fabs(m[1] - m0)), step_v = fmax(step_v, fabs(v[1] - v0));
            }
            double of_m = small_forms[f] == MT_MOMENTS_BF16 ? fabs(m0) / 128 : fmax(fabs(m0) / 8, 0x1p-17);
            double of_v = small_forms[f] == MT_MOMENTS_BF16 ? v0 / 128 : v0 / 8;
            assert_true(step_m < of_m && step_v < of_v);
            assert_true(fabs(sum_m) / DRAWS < 5 * 0.5 * of_m / sqrt(DRAWS) + 1e-4 * of_m);
            assert_true(fabs(sum_v) / DRAWS < 5 * 0.5 * of_v / sqrt(DRAWS) + 1e-4 * of_v);
        }
}

static void the_random_bits_are_even_and_unlike_their_neighbours(void **state)
{
    (void)state;
    enum { COUNT = 1 << 16 };
    size_t ones[32] = { 0 }, same[32] = { 0 }, same_step[32] = { 0 };
    uint64_t key = mt_rng_u64(1, 2, 3), next = mt_rng_u64(1, 2, 4);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t r = mt_moment_bits(key, i), beside = ~(r ^ mt_moment_bits(key, i + 1)), later = ~(r ^ mt_moment_bits(next, i));
        for (int b = 0; b < 32; b++) ones[b] += r >> b & 1, same[b] += beside >> b & 1, same_step[b] += later >> b & 1;
    }
    for (int b = 0; b < 32; b++) { /* five deviations of 128 */
        assert_true(labs((long)ones[b] - COUNT / 2) < 640);
        assert_true(labs((long)same[b] - COUNT / 2) < 640);
        assert_true(labs((long)same_step[b] - COUNT / 2) < 640);
    }
}

static void a_v_that_is_not_zero_stays_so(void **state)
{
    (void)state;
    float m[B] = { 1 }, v[B] = { 1 };
    for (int i = 1; i < B; i++) m[i] = 0, v[i] = ldexpf(1, -i / 2);
    v[B - 1] = 0;
    for (uint64_t key = 0; key < 100; key++) {
        stored s;
        float x[B], y[B];
        walk(mt_moments_store, MT_MOMENTS_8BIT, &s, B, key * 999, m, v);
        walk(mt_moments_load, MT_MOMENTS_8BIT, &s, B, 0, x, y);
        for (int i = 0; i < B - 1; i++) assert_true(y[i] > 0);
        assert_true(y[B - 1] == 0 && x[B - 1] == 0);
    }
}

/* -- through the update ---------------------------------------------------------------------------- */

typedef struct params {
    uint16_t hi[N];
    int16_t lo[N];
    float g[N];
    stored s;
    float m32[N], v32[N]; /* the stored moments, or the fp32 ones themselves */
} params;

static params x, y;

static void update(params *p, mt_moments form, int64_t t, double beta2, const int64_t *cuts)
{
    mt_update_step step = { .lr = 1e-3, .beta1 = 0.9, .beta2 = beta2, .eps = 1e-8, .weight_decay = 0.1, .grad_scale = 1, .t = t };
    bool f32 = form == MT_MOMENTS_F32;
    mt_adamw a = { .t = MT_DTYPE_F32,
                   .moments = form,
                   .n = N,
                   .n_decay = 300,
                   .hi = p->hi,
                   .lo = p->lo,
                   .g = p->g,
                   .key = mt_rng_u64(11, 0, (uint64_t)t),
                   .m = f32 ? (void *)p->m32 : p->s.m,
                   .v = f32 ? (void *)p->v32 : p->s.v,
                   .coef = mt_adamw_coef_of(&step) };
    step.weight_decay = 0;
    a.coef_no_decay = mt_adamw_coef_of(&step);
    for (int64_t from = 0, to; from < N; from = to) {
        to = cuts ? mt_min_i64(from + *cuts++ * B, N) : N;
        assert_int_equal(mt_adamw_piece(&a, from, to), 0);
    }
    if (!f32) walk(mt_moments_load, form, &p->s, N, 0, p->m32, p->v32);
}

/* 1500 steps with gradients around 1, then 1500 around a tenth: v must grow, and then fall by the hundredth part each of many
 * steps. */
static void small_changes_are_not_lost(void **state)
{
    (void)state;
    for (size_t f = 0; f < MT_COUNT(small_forms); f++) {
        memset(&x, 0, sizeof x), memset(&y, 0, sizeof y);
        for (int64_t t = 1; t <= 3000; t++) {
            for (size_t i = 0; i < N; i++) x.g[i] = y.g[i] = mt_rng_normal(12, (uint64_t)t, i) * (t <= 1500 ? 1.0f : 0.1f);
            update(&x, MT_MOMENTS_F32, t, 0.999, NULL);
            update(&y, small_forms[f], t, 0.999, NULL);
            if (t % 1500) continue;
            double v = 0, v_small = 0, off = 0;
            for (size_t i = 0; i < N; i++) v += x.v32[i], v_small += y.v32[i], off += pow(sqrt(y.v32[i] / x.v32[i]) - 1, 2);
            print_message("%s, step %d: mean of v %.4f of fp32's, sqrt(v) %.1f%% away\n", mt_moments_name(small_forms[f]), (int)t,
                          v_small / v, 100 * sqrt(off / N));
            assert_true(fabs(v_small / v - 1) < 0.03);
            assert_true(sqrt(off / N) < (small_forms[f] == MT_MOMENTS_BF16 ? 0.06 : 0.3));
        }
    }
}

static void any_cut_at_blocks_gives_the_same_bits(void **state)
{
    (void)state;
    static const int64_t cuts[] = { 1, 2, 1, 9 };
    for (size_t f = 0; f < MT_COUNT(small_forms); f++) {
        memset(&x, 0, sizeof x);
        for (size_t i = 0; i < N; i++) x.g[i] = any(77, i, true);
        y = x;
        for (int64_t t = 1; t <= 3; t++) update(&x, small_forms[f], t, 0.99, NULL), update(&y, small_forms[f], t, 0.99, cuts);
        assert_memory_equal(&x, &y, sizeof x);
    }
}

static void sizes_are_what_the_plan_counts_on(void **state)
{
    (void)state;
    for (size_t n = 0; n < 3000; n++) {
        assert_int_equal(mt_moments_bytes(MT_MOMENTS_F32, n), 4 * n);
        assert_int_equal(mt_moments_bytes(MT_MOMENTS_BF16, n), 2 * n);
        assert_true(mt_moments_bytes(MT_MOMENTS_8BIT, n) <= n + 15 + (n + B - 1) / B);
    }
    assert_int_equal(mt_moments_bytes(MT_MOMENTS_8BIT, 1 << 20), (1 << 20) + (1 << 12));
}

MT_TEST_MAIN(cmocka_unit_test(vector_code_updates_blocks_with_the_bits_of_plain_c),
             cmocka_unit_test(a_code_is_read_and_stored_as_itself), cmocka_unit_test(what_was_stored_is_stored_again_as_it_is),
             cmocka_unit_test(rounding_is_right_in_the_mean),
             cmocka_unit_test(the_random_bits_are_even_and_unlike_their_neighbours),
             cmocka_unit_test(a_v_that_is_not_zero_stays_so), cmocka_unit_test(small_changes_are_not_lost),
             cmocka_unit_test(any_cut_at_blocks_gives_the_same_bits), cmocka_unit_test(sizes_are_what_the_plan_counts_on))
