/* adamw.c - the expression of adamw.h in plain C, the choice among its implementations, its row and its op on the CPU. */
#include "optim/adamw.h"

#include "base/cpuid.h"
#include "base/mem.h"
#include "base/split.h"
#include "ops/ops_cpu.h"

#include <assert.h>
#include <float.h>
#include <math.h>

/* x87 would compute in 80 bits. */
_Static_assert(FLT_EVAL_METHOD == 0, "float expressions must be rounded to float at every operation");

/* By squaring: pow() may differ in its last bit from one C library to the next. */
static double power(double x, int64_t n)
{
    double y = 1;
    for (; n > 0; n >>= 1, x *= x)
        if (n & 1) y *= x;
    return y;
}

mt_update_coef mt_adamw_coef_of(const mt_update_step *s)
{
    assert(s->t >= 1);
    return (mt_update_coef){
        .beta1 = (float)s->beta1,
        .one_minus_beta1 = (float)(1 - s->beta1),
        .beta2 = (float)s->beta2,
        .one_minus_beta2 = (float)(1 - s->beta2),
        .step_size = (float)(s->lr / (1 - power(s->beta1, s->t))),
        .inv_sqrt_bc2 = (float)(1 / sqrt(1 - power(s->beta2, s->t))),
        .eps = (float)s->eps,
        .decay = (float)(1 - s->lr * s->weight_decay),
        .grad_scale = (float)s->grad_scale,
    };
}

static inline size_t update_one(const mt_update_args *a, size_t i, float grad)
{
    const mt_update_coef *c = &a->coef;
    float g = grad * c->grad_scale;
    float m = c->beta1 * a->m[i] + c->one_minus_beta1 * g;
    float v = c->beta2 * a->v[i] + c->one_minus_beta2 * (g * g);
    float denom = sqrtf(v) * c->inv_sqrt_bc2 + c->eps;
    float w = mt_join(a->hi[i], a->lo[i]);
    w = w * c->decay - c->step_size * (m / denom);

    uint16_t hi;
    int16_t lo;
    bool ok = mt_split_ok(w);
    mt_split(w, &hi, &lo);
    a->hi[i] = ok ? hi : MT_UPDATE_BAD_HI;
    a->lo[i] = ok ? lo : 0;
    a->m[i] = m;
    a->v[i] = v;
    return !ok || (mt_f32_bits(v) & 0x7fffffff) >= 0x7f800000;
}

size_t mt__adamw_portable(const mt_update_args *args)
{
    const mt_update_args a = *args; /* a copy, so that the stores cannot be suspected of changing it */
    size_t n_bad = 0;
    if (a.g_type == MT_DTYPE_BF16) {
        const uint16_t *g = a.g;
        for (size_t i = 0; i < a.n; i++) n_bad += update_one(&a, i, mt_bf16_to_f32(g[i]));
    } else {
        assert(a.g_type == MT_DTYPE_F32);
        const float *g = a.g;
        for (size_t i = 0; i < a.n; i++) n_bad += update_one(&a, i, g[i]);
    }
    return n_bad;
}

static size_t block_portable(const mt_update_args *args, const mt_moments_chunk *block)
{
    mt_moments_load(block);
    size_t n_bad = mt__adamw_portable(args);
    mt_moments_store(block);
    return n_bad;
}

const mt_update_impl mt_adamw_impls[] = {
#if MT_X86
    { "avx512", mt_cpu_has_avx512, mt__adamw_avx512, mt__adamw_block_avx512 },
    { "avx2", mt_cpu_has_avx2, mt__adamw_avx2, mt__adamw_block_avx2 },
#endif
    { "portable", mt_cpu_has_c, mt__adamw_portable, block_portable },
};
const size_t mt_adamw_n_impls = MT_COUNT(mt_adamw_impls);

size_t mt_adamw_update(const mt_update_args *args) { return mt_update_best(mt_adamw_impls)->update(args); }

size_t mt_adamw_piece(const mt_update *u, int64_t from, int64_t to)
{
    return mt_update_numbers(mt_update_best(mt_adamw_impls), u, from, to);
}

/* -- the row and its op ------------------------------------------------------------------------------ */

static mt_rc on_device(const mt_ops *ops, mt_stream *s, const mt_update *u, mt_err *err) { return ops->adamw(s, u, err); }

const mt_optimizer mt_optimizer_adamw = { .name = "adamw",
                                          .title = "AdamW",
                                          .arrays_title = "Adam's moments",
                                          .host_title = "Adam on the host",
                                          .n_arrays = 2,
                                          .arrays = { { ".m", false }, { ".v", true } },
                                          .granularity = MT_BY_ELEMENT,
                                          .device_bytes = 26,
                                          .coef = mt_adamw_coef_of,
                                          .beta2 = 0.999,
                                          .uses_eps = true,
                                          .on_host = mt_adamw_piece,
                                          .on_device = on_device };

size_t mt_adamw_scratch(const mt_adamw *a)
{
    (void)a;
    return 0;
}

mt_rc mt__adamw_run(mt_pool *pool, const mt_adamw *a, mt_err *err)
{
    (void)err;
    mt_update_over_pool(pool, &mt_optimizer_adamw, a);
    return MT_OK;
}
