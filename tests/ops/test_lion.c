/* Lion: every implementation gives portable C's bits, in every form of its momentum, and portable C follows the paper. */
#include "test.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/split.h"
#include "optim/lion.h"

#include <math.h>

enum { N = 4096 + 37 };

typedef struct arrays {
    uint16_t hi[N];
    int16_t lo[N];
    float m[N], g[N];
    uint16_t g16[N];
} arrays;

static const mt_update_step usual = { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.3, .grad_scale = 1, .t = 1 };
static arrays x, y;

/* wild: one number in four is special. */
static float number(uint64_t stream, uint64_t i, bool wild)
{
    static const float special[] = { 0.0f, -0.0f, 0x1p-149f, -0x1p-126f, 1e30f, -1e38f, 0x1.fdfffep127f, 3e-39f };
    const uint64_t r = mt_rng_u64(7, stream, i);
    if (wild && r % 4 == 0) return special[r / 4 % MT_COUNT(special)];
    return mt_rng_normal(8, stream, i) * (wild ? ldexpf(1.0f, (int)(r / 4 % 120) - 80) : 0.02f);
}

static void fill(arrays *a, bool wild)
{
    for (size_t i = 0; i < N; i++) {
        const float w = number(0, i, wild);
        mt_split(mt_split_ok(w) ? w : 1.0f, &a->hi[i], &a->lo[i]);
        a->m[i] = number(1, i, wild);
        a->g[i] = i % 50 == 7 ? 0 : number(2, i, wild);
        if (i % 50 == 7) a->m[i] = 0; /* sign(0) */
        a->g16[i] = mt_f32_to_bf16(a->g[i]);
    }
    if (!wild) return;
    a->g[3] = NAN, a->g[20] = INFINITY, a->m[40] = -INFINITY;
}

static mt_update_args args_of(arrays *a, size_t at, size_t n, mt_dtype g_type, const mt_update_coef *c)
{
    mt_update_args args = { .hi = a->hi + at, .lo = a->lo + at, .m = a->m + at, .g_type = g_type, .n = n, .coef = *c };
    args.g = g_type == MT_DTYPE_BF16 ? (const void *)(a->g16 + at) : a->g + at;
    return args;
}

static size_t run(const mt_update_impl *impl, arrays *a, size_t at, size_t n, mt_dtype g_type)
{
    const mt_update_coef c = mt_lion_coef_of(&usual);
    const mt_update_args args = args_of(a, at, n, g_type, &c);
    return impl->update(&args);
}

static void assert_same(const arrays *a, const arrays *b)
{
    assert_memory_equal(a->hi, b->hi, sizeof a->hi);
    assert_memory_equal(a->lo, b->lo, sizeof a->lo);
    for (size_t i = 0; i < N; i++)
        if (mt_f32_bits(a->m[i]) != mt_f32_bits(b->m[i]) && !(isnan(a->m[i]) && isnan(b->m[i]))) fail_msg("momentum %zu", i);
}

static const mt_update_impl *portable(void) { return &mt_lion_impls[mt_lion_n_impls - 1]; }

static void simd_gives_the_bits_of_portable_c(void **state)
{
    (void)state;
    for (size_t k = 0; k + 1 < mt_lion_n_impls; k++) {
        const mt_update_impl *impl = &mt_lion_impls[k];
        print_message("%s: %s\n", impl->name, impl->supported() ? "compared" : "this CPU does not have it");
        for (int i = 0; i < 8 && impl->supported(); i++) {
            const size_t at = i % 4 ? (size_t)i : 0, n = i % 4 ? 61 + (size_t)i : N;
            const mt_dtype type = i % 2 ? MT_DTYPE_F32 : MT_DTYPE_BF16;
            fill(&x, i < 4);
            y = x;
            for (int t = 0; t < 3; t++) {
                const size_t bad = run(portable(), &x, at, n, type);
                assert_int_equal(run(impl, &y, at, n, type), bad);
                assert_true(t || i >= 4 || bad > 0); /* the wild data did reach the edges */
                assert_same(&x, &y);
            }
        }
    }
}

/* The momentum as it is stored: blocks in one pass, and through fp32 in memory, give equal bits. */
static void blocks_give_the_bits_of_portable_c(void **state)
{
    (void)state;
    static uint8_t a[4 * N], b[4 * N];
    for (mt_moments form = MT_MOMENTS_BF16; form < MT_MOMENTS_FORMS; form++)
        for (size_t k = 0; k < mt_lion_n_impls; k++)
            for (int wild = 0; wild < 2; wild++) {
                const mt_update_impl *impl = &mt_lion_impls[k];
                if (!impl->supported()) continue;
                fill(&x, wild);
                y = x;
                memset(a, 0, sizeof a);
                memset(b, 0, sizeof b);
                mt_update u = { .t = MT_DTYPE_F32, .moments = form, .n = N, .n_decay = 1000 };
                mt_update_step plain = usual;
                u.coef = mt_lion_coef_of(&usual);
                plain.weight_decay = 0;
                u.coef_no_decay = mt_lion_coef_of(&plain);
                for (int t = 0; t < 4; t++) {
                    u.key = (uint64_t)t * 0x9e3779b97f4a7c15u;
                    u.hi = x.hi, u.lo = x.lo, u.g = x.g, u.m = a;
                    const size_t bad = mt_update_numbers(portable(), &u, 0, N);
                    u.hi = y.hi, u.lo = y.lo, u.g = y.g, u.m = b;
                    assert_int_equal(mt_update_numbers(impl, &u, 0, N), bad);
                    assert_same(&x, &y);
                    assert_memory_equal(a, b, mt_moments_bytes(form, N));
                }
            }
}

/* A part of an update, as pieces and slices are, gives the bits of the whole. */
static void parts_give_the_bits_of_the_whole(void **state)
{
    (void)state;
    enum { FIRST = 3 * MT_MOMENT_BLOCK };
    static uint16_t whole[N], parts[N];
    fill(&x, false);
    y = x;
    mt_update u = { .t = MT_DTYPE_BF16, .moments = MT_MOMENTS_BF16, .n = N, .n_decay = 1000, .key = 12345 };
    u.coef = u.coef_no_decay = mt_lion_coef_of(&usual);
    u.coef_no_decay.decay = 1;
    u.hi = x.hi, u.lo = x.lo, u.g = x.g16, u.m = whole;
    mt_lion_piece(&u, 0, N);
    u.hi = y.hi, u.lo = y.lo, u.g = y.g16, u.m = parts;
    mt_lion_piece(&u, 0, FIRST);
    mt_update rest = mt_update_part(&u, FIRST, N - FIRST);
    rest.hi = y.hi + FIRST, rest.lo = y.lo + FIRST, rest.g = y.g16 + FIRST, rest.m = parts + FIRST;
    mt_lion_piece(&rest, 0, N - FIRST);
    assert_same(&x, &y);
    assert_memory_equal(whole, parts, sizeof whole);
}

/* Algorithm 2 of arXiv 2302.06675, in double.  Where u rounds to another sign than in double, the step goes the other way: those few
 * numbers are left out. */
static void ten_steps_follow_the_paper(void **state)
{
    (void)state;
    static double w[N], m[N];
    static bool close[N];
    size_t n_close = 0;
    fill(&x, false);
    for (size_t i = 0; i < N; i++) w[i] = mt_join(x.hi[i], x.lo[i]), m[i] = x.m[i], close[i] = false;
    for (int t = 1; t <= 10; t++) {
        for (size_t i = 0; i < N; i++) x.g[i] = i % 50 == 7 ? 0 : mt_rng_normal(16, (uint64_t)t, i) * 0.01f;
        assert_int_equal(run(mt_update_best(mt_lion_impls), &x, 0, N, MT_DTYPE_F32), 0);
        for (size_t i = 0; i < N; i++) {
            const double u = usual.beta1 * m[i] + (1 - usual.beta1) * x.g[i];
            close[i] |= u != 0 && fabs(u) < 1e-8;
            w[i] -= usual.lr * usual.weight_decay * w[i];
            w[i] -= usual.lr * (u > 0 ? 1 : u < 0 ? -1 : 0);
            m[i] = usual.beta2 * m[i] + (1 - usual.beta2) * x.g[i];
        }
    }
    for (size_t i = 0; i < N; i++) {
        n_close += close[i];
        assert_true(fabs(x.m[i] - m[i]) <= 20 * 0x1p-24 * 0.1);
        assert_true(close[i] || fabs(mt_join(x.hi[i], x.lo[i]) - w[i]) <= 2e-6 * (fabs(w[i]) + 1e-3));
    }
    assert_true(n_close < 20);
}

static void numbers_that_leave_the_finite_range_are_counted(void **state)
{
    (void)state;
    for (size_t k = 0; k < mt_lion_n_impls; k++) {
        if (!mt_lion_impls[k].supported()) continue;
        fill(&x, false);
        x.g[3] = NAN;
        x.g[20] = INFINITY;
        x.m[21] = -INFINITY;
        x.hi[41] = 0x7f7f, x.lo[41] = 0x7fff; /* large, and stays */
        assert_int_equal(run(&mt_lion_impls[k], &x, 0, 64, MT_DTYPE_F32), 3);
        static const size_t broken[] = { 3, 20, 21 };
        for (size_t i = 0; i < MT_COUNT(broken); i++) {
            assert_int_equal(x.hi[broken[i]], MT_UPDATE_BAD_HI);
            assert_int_equal(x.lo[broken[i]], 0);
        }
        assert_true(isfinite(mt_join(x.hi[41], x.lo[41])));
    }
}

MT_TEST_MAIN(cmocka_unit_test(simd_gives_the_bits_of_portable_c), cmocka_unit_test(blocks_give_the_bits_of_portable_c),
             cmocka_unit_test(parts_give_the_bits_of_the_whole), cmocka_unit_test(ten_steps_follow_the_paper),
             cmocka_unit_test(numbers_that_leave_the_finite_range_are_counted))
