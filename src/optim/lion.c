/* lion.c - the expression of lion.h in plain C, the choice among its implementations, its row and its op on the CPU. */
#include "optim/lion.h"

#include "base/cpuid.h"
#include "base/mem.h"
#include "base/split.h"
#include "ops/ops_cpu.h"

#include <assert.h>

mt_update_coef mt_lion_coef_of(const mt_update_step *s)
{
    return (mt_update_coef){
        .beta1 = (float)s->beta1,
        .one_minus_beta1 = (float)(1 - s->beta1),
        .beta2 = (float)s->beta2,
        .one_minus_beta2 = (float)(1 - s->beta2),
        .step_size = (float)s->lr,
        .decay = (float)(1 - s->lr * s->weight_decay),
        .grad_scale = (float)s->grad_scale,
    };
}

/* step_size * sign(u), by its bits; of a NaN one of both signs: its m is a NaN, too. */
static inline float signed_step(float step_size, float u)
{
    const uint32_t bits = mt_f32_bits(u), step = mt_f32_bits(step_size) | (bits & 0x80000000);
    return mt_f32_from_bits(bits & 0x7fffffff ? step : 0);
}

static inline size_t update_one(const mt_update_args *a, size_t i, float grad)
{
    const mt_update_coef *c = &a->coef;
    float g = grad * c->grad_scale;
    float u = c->beta1 * a->m[i] + c->one_minus_beta1 * g;
    float m = c->beta2 * a->m[i] + c->one_minus_beta2 * g;
    float w = mt_join(a->hi[i], a->lo[i]);
    w = w * c->decay - signed_step(c->step_size, u);

    uint16_t hi;
    int16_t lo;
    bool ok = mt_split_ok(w) && (mt_f32_bits(m) & 0x7fffffff) < 0x7f800000;
    mt_split(w, &hi, &lo);
    a->hi[i] = ok ? hi : MT_UPDATE_BAD_HI;
    a->lo[i] = ok ? lo : 0;
    a->m[i] = m;
    return !ok;
}

size_t mt__lion_portable(const mt_update_args *args)
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
    size_t n_bad = mt__lion_portable(args);
    mt_moments_store(block);
    return n_bad;
}

const mt_update_impl mt_lion_impls[] = {
#if MT_X86
    { "avx512", mt_cpu_has_avx512, mt__lion_avx512, mt__lion_block_avx512 },
    { "avx2", mt_cpu_has_avx2, mt__lion_avx2, mt__lion_block_avx2 },
#endif
    { "portable", mt_cpu_has_c, mt__lion_portable, block_portable },
};
const size_t mt_lion_n_impls = MT_COUNT(mt_lion_impls);

size_t mt_lion_piece(const mt_update *u, int64_t from, int64_t to)
{
    return mt_update_numbers(mt_update_best(mt_lion_impls), u, from, to);
}

/* -- the row and its op ------------------------------------------------------------------------------ */

static mt_rc on_device(const mt_ops *ops, mt_stream *s, const mt_update *u, mt_err *err) { return ops->lion(s, u, err); }

const mt_optimizer mt_optimizer_lion = { .name = "lion",
                                         .title = "Lion",
                                         .arrays_title = "Lion's momentum",
                                         .host_title = "Lion on the host",
                                         .n_arrays = 1,
                                         .arrays = { { ".m", false } },
                                         .granularity = MT_BY_ELEMENT,
                                         .device_bytes = 18,
                                         .coef = mt_lion_coef_of,
                                         .beta2 = 0.99,
                                         .on_host = mt_lion_piece,
                                         .on_device = on_device };

size_t mt_lion_scratch(const mt_lion *a)
{
    (void)a;
    return 0;
}

mt_rc mt__lion_run(mt_pool *pool, const mt_lion *a, mt_err *err)
{
    (void)err;
    mt_update_over_pool(pool, &mt_optimizer_lion, a);
    return MT_OK;
}
