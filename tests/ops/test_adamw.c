/* AdamW: every implementation gives portable C's bits, and portable C follows torch.optim.AdamW. */
#include "test.h"

#include "base/rng.h"
#include "base/split.h"
#include "optim/adamw.h"

#include <math.h>
#include <stdlib.h>

enum { N_MAX = 8192 };

typedef struct arrays {
    uint16_t hi[N_MAX];
    int16_t lo[N_MAX];
    float m[N_MAX], v[N_MAX], g[N_MAX];
    uint16_t g16[N_MAX];
} arrays;

static const mt_update_step usual = {
    .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .grad_scale = 1, .t = 1
};

/* Floats of every kind: one in four is special. */
static float any_float(uint64_t stream, uint64_t i)
{
    static const float special[] = { 0.0f,   -0.0f,           0x1p-149f,        -0x1p-149f, 0x1.fffffcp-127f, 0x1p-126f,
                                     1.0f,   -1.0f,           1e-20f,           1e18f,      -1e18f,           3e19f,
                                     -1e30f, 0x1.fdfffep127f, -0x1.fdfffep127f, 1e-38f };
    uint64_t r = mt_rng_u64(7, stream, i);
    if (r % 4 == 0) return special[r / 4 % MT_COUNT(special)];
    float scale = r % 4 == 1 ? 1.0f : ldexpf(1.0f, (int)(r / 4 % 120) - 80);
    return mt_rng_normal(8, stream, i) * scale;
}

static void fill(arrays *a, uint64_t seed, bool tame)
{
    for (size_t i = 0; i < N_MAX; i++) {
        float w = tame ? mt_rng_normal(seed, 0, i) * 0.02f : any_float(seed * 8 + 0, i);
        mt_split(mt_split_ok(w) ? w : 1.0f, &a->hi[i], &a->lo[i]);
        a->m[i] = tame ? 0 : any_float(seed * 8 + 1, i);
        a->v[i] = tame ? 0 : fabsf(any_float(seed * 8 + 2, i));
        a->g[i] = tame ? mt_rng_normal(seed, 3, i) * 0.01f : any_float(seed * 8 + 3, i);
        a->g16[i] = mt_f32_to_bf16(a->g[i]);
    }
}

static size_t run(const mt_update_impl *impl, arrays *a, size_t at, size_t n, mt_dtype g_type, const mt_update_coef *coef)
{
    mt_update_args args = {
        .hi = a->hi + at, .lo = a->lo + at, .m = a->m + at, .v = a->v + at, .g_type = g_type, .n = n, .coef = *coef
    };
    args.g = g_type == MT_DTYPE_BF16 ? (const void *)(a->g16 + at) : a->g + at;
    return impl->update(&args);
}

static size_t floats_that_differ(const float *a, const float *b)
{
    size_t n = 0;
    for (size_t i = 0; i < N_MAX; i++) n += mt_f32_bits(a[i]) != mt_f32_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]));
    return n;
}

static void assert_same(const arrays *a, const arrays *b)
{
    assert_memory_equal(a->hi, b->hi, sizeof a->hi);
    assert_memory_equal(a->lo, b->lo, sizeof a->lo);
    assert_int_equal(floats_that_differ(a->m, b->m), 0);
    assert_int_equal(floats_that_differ(a->v, b->v), 0);
}

static const mt_update_impl *portable(void) { return &mt_adamw_impls[mt_adamw_n_impls - 1]; }

/* Calls body with each supported implementation but the portable one, and says which are tested. */
static void each_impl(void (*body)(const mt_update_impl *))
{
    for (size_t k = 0; k + 1 < mt_adamw_n_impls; k++) {
        bool has = mt_adamw_impls[k].supported();
        print_message("%s: %s\n", mt_adamw_impls[k].name, has ? "compared" : "this CPU has it not");
        if (has) body(&mt_adamw_impls[k]);
    }
}

static arrays x, y, start;

static void compare_on_every_kind_of_number(const mt_update_impl *impl)
{
    size_t n_bad = 0;
    for (int tame = 0; tame < 2; tame++) {
        for (int type = 0; type < 2; type++) {
            fill(&x, 11, tame);
            y = x;
            for (int t = 1; t <= 5; t++) {
                mt_update_step s = usual;
                s.t = t;
                s.grad_scale = t % 2 ? 1 : 0.37;
                mt_update_coef c = mt_adamw_coef_of(&s);
                size_t bad_x = run(portable(), &x, 0, N_MAX, type ? MT_DTYPE_F32 : MT_DTYPE_BF16, &c);
                size_t bad_y = run(impl, &y, 0, N_MAX, type ? MT_DTYPE_F32 : MT_DTYPE_BF16, &c);
                assert_int_equal(bad_x, bad_y);
                n_bad += bad_x;
                assert_same(&x, &y);
            }
        }
    }
    assert_true(n_bad > 0); /* the wild data did reach the edges */
}

static void compare_on_every_tail_and_misalignment(const mt_update_impl *impl)
{
    mt_update_coef c = mt_adamw_coef_of(&usual);
    fill(&start, 12, true);
    for (size_t n = 0; n <= 67; n++) {
        for (size_t at = 0; at < 5; at++) {
            for (int type = 0; type < 2; type++) {
                x = y = start;
                run(portable(), &x, at, n, type ? MT_DTYPE_F32 : MT_DTYPE_BF16, &c);
                run(impl, &y, at, n, type ? MT_DTYPE_F32 : MT_DTYPE_BF16, &c);
                assert_same(&x, &y); /* all of the arrays: nothing outside [at, at + n) is written either */
                assert_memory_equal(y.hi + at + n, start.hi + at + n, 2 * (N_MAX - at - n));
            }
        }
    }
}

static void simd_gives_the_bits_of_portable_c(void **state)
{
    (void)state;
    each_impl(compare_on_every_kind_of_number);
}

static void tails_and_misaligned_arrays_too(void **state)
{
    (void)state;
    each_impl(compare_on_every_tail_and_misalignment);
}

static void any_cut_gives_the_same_bits(void **state)
{
    (void)state;
    mt_update_coef c = mt_adamw_coef_of(&usual);
    fill(&x, 13, true);
    y = x;
    run(mt_update_best(mt_adamw_impls), &x, 0, N_MAX, MT_DTYPE_BF16, &c);
    for (size_t at = 0, k = 0; at < N_MAX; k++) {
        size_t n = 1 + mt_rng_below(14, 0, k, 100);
        if (n > N_MAX - at) n = N_MAX - at;
        run(mt_update_best(mt_adamw_impls), &y, at, n, MT_DTYPE_BF16, &c);
        at += n;
    }
    assert_same(&x, &y);
}

/* torch.optim.AdamW's single-tensor step, in double.  Each of our steps rounds about ten times in fp32 (2^-24 each); the bounds
 * below are those errors added up over ten steps with a factor of about two to spare. */
static void ten_steps_follow_torch(void **state)
{
    (void)state;
    static double w[N_MAX], m[N_MAX], v[N_MAX], moved[N_MAX], m_sum[N_MAX];
    fill(&x, 15, true);
    for (size_t i = 0; i < N_MAX; i++) {
        w[i] = mt_join(x.hi[i], x.lo[i]);
        m[i] = v[i] = moved[i] = m_sum[i] = 0;
    }
    for (int t = 1; t <= 10; t++) {
        mt_update_step s = usual;
        s.t = t;
        s.grad_scale = t % 3 ? 1 : 0.25;
        mt_update_coef c = mt_adamw_coef_of(&s);
        for (size_t i = 0; i < N_MAX; i++) x.g[i] = mt_rng_normal(16, (uint64_t)t, i) * 0.01f;
        for (size_t i = 0; i < N_MAX; i++) {
            double g = x.g[i] * s.grad_scale, bc1 = 1 - pow(s.beta1, t), bc2 = 1 - pow(s.beta2, t);
            w[i] -= s.lr * s.weight_decay * w[i];
            m[i] += (g - m[i]) * (1 - s.beta1);
            m_sum[i] = m_sum[i] * s.beta1 + fabs(g) * (1 - s.beta1);
            v[i] = v[i] * s.beta2 + (1 - s.beta2) * g * g;
            w[i] -= s.lr / bc1 * m[i] / (sqrt(v[i]) / sqrt(bc2) + s.eps);
            moved[i] += s.lr / bc1 * m_sum[i] / (sqrt(v[i]) / sqrt(bc2) + s.eps);
        }
        assert_int_equal(run(mt_update_best(mt_adamw_impls), &x, 0, N_MAX, MT_DTYPE_F32, &c), 0);
    }
    const double u = 0x1p-24;
    size_t wrong = 0;
    for (size_t i = 0; i < N_MAX; i++) {
        double ours = mt_join(x.hi[i], x.lo[i]), largest = fabs(w[i]) + moved[i];
        /* Not "further than": NaN is not nearer. */
        wrong += !(fabs(x.m[i] - m[i]) <= 20 * u * m_sum[i]);
        wrong += !(fabs(x.v[i] - v[i]) <= 20 * u * v[i]);
        wrong += !(fabs(ours - w[i]) <= 20 * u * largest + 20 * u * moved[i]);
        wrong += !(fabs(ours - w[i]) <= 1e-3 * moved[i]); /* and it did move */
    }
    assert_int_equal(wrong, 0);
}

static void the_coefficients_are_the_formula(void **state)
{
    (void)state;
    mt_update_step s = { .lr = 2e-5, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.01, .grad_scale = 0.5, .t = 1 };
    mt_update_coef c = mt_adamw_coef_of(&s);
    assert_true(c.one_minus_beta1 == (float)(1 - 0.9) && c.one_minus_beta2 == (float)(1 - 0.95));
    assert_true(c.decay == (float)(1 - 2e-5 * 0.01) && c.grad_scale == 0.5f);
    assert_true(c.step_size == (float)(2e-5 / (1 - 0.9)));
    assert_true(c.inv_sqrt_bc2 == (float)(1 / sqrt(1 - 0.95)));
    for (s.t = 2; s.t < 3000; s.t = s.t * 3 / 2 + 1) {
        c = mt_adamw_coef_of(&s);
        assert_true(fabs(c.step_size / (2e-5 / (1 - pow(0.9, (double)s.t))) - 1) < 0x1p-23);
        assert_true(fabs(c.inv_sqrt_bc2 * sqrt(1 - pow(0.95, (double)s.t)) - 1) < 0x1p-23);
    }
    s.t = INT64_MAX; /* the corrections fade */
    c = mt_adamw_coef_of(&s);
    assert_true(c.step_size == 2e-5f && c.inv_sqrt_bc2 == 1);
}

static void nothing_comes_from_nothing(void **state)
{
    (void)state;
    mt_update_coef c = mt_adamw_coef_of(&usual);
    for (size_t k = 0; k < mt_adamw_n_impls; k++) {
        if (!mt_adamw_impls[k].supported()) continue;
        memset(&x, 0, sizeof x);
        memset(&y, 0, sizeof y);
        assert_int_equal(run(&mt_adamw_impls[k], &x, 0, 1000, MT_DTYPE_BF16, &c), 0);
        assert_memory_equal(&x, &y, sizeof x);
    }
}

static void without_gradients_decay_only_shrinks(void **state)
{
    (void)state;
    mt_update_coef c = mt_adamw_coef_of(&usual);
    fill(&start, 17, true);
    memset(start.g16, 0, sizeof start.g16);
    for (size_t k = 0; k < mt_adamw_n_impls; k++) {
        if (!mt_adamw_impls[k].supported()) continue;
        x = start;
        assert_int_equal(run(&mt_adamw_impls[k], &x, 0, N_MAX, MT_DTYPE_BF16, &c), 0);
        for (size_t i = 0; i < N_MAX; i++) {
            float before = mt_join(start.hi[i], start.lo[i]), after = mt_join(x.hi[i], x.lo[i]);
            assert_true(after == before * c.decay);
            assert_true(fabsf(after) < fabsf(before));
        }
    }
}

static void small_updates_are_not_lost_to_bf16(void **state)
{
    (void)state;
    mt_update_step s = usual;
    s.lr = 1e-6;
    s.weight_decay = 0;
    memset(&x, 0, sizeof x);
    mt_split(1.0f, &x.hi[0], &x.lo[0]);
    x.g[0] = 1;
    for (s.t = 1; s.t <= 100; s.t++) {
        mt_update_coef c = mt_adamw_coef_of(&s);
        run(mt_update_best(mt_adamw_impls), &x, 0, 1, MT_DTYPE_F32, &c);
    }
    assert_int_equal(x.hi[0], 0x3f80); /* bf16 still says 1 */
    assert_true(fabsf(mt_join(x.hi[0], x.lo[0]) - (1 - 1e-4f)) < 1e-5f);
}

static void values_that_leave_the_finite_range_are_counted(void **state)
{
    (void)state;
    mt_update_step s = usual;
    s.weight_decay = 0;
    mt_update_coef c = mt_adamw_coef_of(&s);
    for (size_t k = 0; k < mt_adamw_n_impls; k++) {
        if (!mt_adamw_impls[k].supported()) continue;
        fill(&x, 18, true);
        x.g[3] = NAN;
        x.g[20] = INFINITY;
        x.g[21] = -INFINITY;
        x.g[40] = 3e19f; /* finite, its square is not: w could stay, v could not */
        x.hi[41] = 0x7f7f, x.lo[41] = 0x7fff, x.m[41] = -3e38f, x.v[41] = 0, x.g[41] = 0; /* overflows */
        assert_int_equal(run(&mt_adamw_impls[k], &x, 0, 64, MT_DTYPE_F32, &c), 5);
        static const size_t broken[] = { 3, 20, 21, 41 };
        for (size_t i = 0; i < MT_COUNT(broken); i++) {
            assert_int_equal(x.hi[broken[i]], 0x7fc0);
            assert_int_equal(x.lo[broken[i]], 0);
        }
        assert_true(isinf(x.v[40]) && isfinite(mt_join(x.hi[40], x.lo[40])));
        assert_true(isfinite(mt_join(x.hi[4], x.lo[4])) && x.m[4] != 0);
    }
}

MT_TEST_MAIN(cmocka_unit_test(simd_gives_the_bits_of_portable_c), cmocka_unit_test(tails_and_misaligned_arrays_too),
             cmocka_unit_test(any_cut_gives_the_same_bits), cmocka_unit_test(ten_steps_follow_torch),
             cmocka_unit_test(the_coefficients_are_the_formula), cmocka_unit_test(nothing_comes_from_nothing),
             cmocka_unit_test(without_gradients_decay_only_shrinks), cmocka_unit_test(small_updates_are_not_lost_to_bf16),
             cmocka_unit_test(values_that_leave_the_finite_range_are_counted))
