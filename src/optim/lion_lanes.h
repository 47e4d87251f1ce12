/* lion_lanes.h - lion.h, a register of elements at a time. */
#ifndef MT_OPTIM_LION_LANES_H
#define MT_OPTIM_LION_LANES_H

#include "optim/lion.h"
#include "optim/update_lanes.h"

typedef struct coef {
    floats beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, decay, grad_scale;
} coef;

static inline coef broadcast(const mt_update_coef *c)
{
    return (coef){ .beta1 = ALL(c->beta1),
                   .one_minus_beta1 = ALL(c->one_minus_beta1),
                   .beta2 = ALL(c->beta2),
                   .one_minus_beta2 = ALL(c->one_minus_beta2),
                   .step_size = ALL(c->step_size),
                   .decay = ALL(c->decay),
                   .grad_scale = ALL(c->grad_scale) };
}

/* step_size * sign(u). */
static inline floats signed_step(floats step_size, floats u)
{
    const ints sign = INT_AND(AS_INTS(u), ALL_INTS(0x80000000));
    const lanes zero = BELOW(magnitude_of(u), ALL_INTS(1));
    return AS_FLOATS(SELECT(zero, ALL_INTS(0), INT_OR(AS_INTS(step_size), sign)));
}

/* Elements [i, i + LANES), whose momentum is *m.  Returns the lanes that left the finite range. */
static inline lanes update_lanes(const mt_update_args *a, size_t i, const coef *c, bool bf16, floats *m)
{
    const floats g = MUL(load_grad(a, i, bf16), c->grad_scale);
    const floats u = ADD(MUL(c->beta1, *m), MUL(c->one_minus_beta1, g));
    *m = ADD(MUL(c->beta2, *m), MUL(c->one_minus_beta2, g));
    const floats w = SUB(MUL(load_weight(a, i), c->decay), signed_step(c->step_size, u));
    const lanes bad = EITHER(is_unsplittable(w), is_infinite(*m));
    store_weight(a, i, w, bad);
    return bad;
}

static inline size_t update_in_memory(const mt_update_args *a, size_t i, const coef *c, bool bf16)
{
    floats m = LOAD(a->m + i);
    const lanes bad = update_lanes(a, i, c, bf16, &m);
    STORE(a->m + i, m);
    return COUNT(bad);
}

static inline size_t lion_update(const mt_update_args *args)
{
    const mt_update_args a = *args;
    const coef c = broadcast(&a.coef);
    size_t i = 0, n_bad = 0;
    assert(a.g_type == MT_DTYPE_BF16 || a.g_type == MT_DTYPE_F32);
    if (a.g_type == MT_DTYPE_BF16) {
        for (; i + LANES <= a.n; i += LANES) n_bad += update_in_memory(&a, i, &c, true);
    } else {
        for (; i + LANES <= a.n; i += LANES) n_bad += update_in_memory(&a, i, &c, false);
    }
    mt_update_args rest = mt__update_rest(&a, i);
    return n_bad + mt__lion_portable(&rest);
}

/* -- whole blocks, in 16 and 8 bits ----------------------------------------------------------------------- */

static inline size_t update_bf16_block(const mt_update_args *a, const mt_moments_chunk *c, bool bf16)
{
    uint16_t *to_m = (uint16_t *)c->m + c->at;
    const coef k = broadcast(&a->coef);
    size_t n_bad = 0, n_odd = 0;
    for (int i = 0; i < REGISTERS; i++) {
        const int at = i * LANES;
        floats m = read_bf16(to_m + at);
        n_bad += COUNT(update_lanes(a, (size_t)at, &k, bf16, &m));
        n_odd += COUNT(AT_LEAST(magnitude_of(m), 0x7f7f0000));
        STORE(a->m + at, m);
        narrow(to_m + at, SHIFT_RIGHT(INT_ADD(AS_INTS(m), INT_AND(random_of(c, i), ALL_INTS(0xffff))), 16));
    }
    if (n_odd) mt_moments_store(c);
    return n_bad;
}

static inline size_t update_8bit_block(const mt_update_args *a, const mt_moments_chunk *c, bool bf16)
{
    uint8_t *code = (uint8_t *)c->m + c->at,
            *exponent = (uint8_t *)c->m + mt_moments_exponents_at(c->n_all) + c->at / MT_MOMENT_BLOCK;
    mt_moment_scale scale = mt_moment_scale_of(*exponent, MT_MOMENT_E_BITS_M);
    const coef k = broadcast(&a->coef);
    ints raised[REGISTERS], most = ALL_INTS(0);
    size_t n_bad = 0;
    for (int i = 0; i < REGISTERS; i++) {
        const int at = i * LANES;
        floats m = read_m(code + at, scale);
        n_bad += COUNT(update_lanes(a, (size_t)at, &k, bf16, &m));
        STORE(a->m + at, m);
        raised[i] = INT_ADD(magnitude_of(m), bits_for_m(random_of(c, i)));
        most = INT_MAX_OF(most, raised[i]);
    }
    const uint32_t largest = largest_of(most);
    if (largest >= 0x7f800000) return mt_moments_store(c), n_bad;
    *exponent = (uint8_t)mt_moment_exponent(largest);
    scale = mt_moment_scale_of(*exponent, MT_MOMENT_E_BITS_M);
    for (int i = 0; i < REGISTERS; i++) store_m(c, i, raised[i], scale);
    return n_bad;
}

static inline size_t update_block(const mt_update_args *a, const mt_moments_chunk *c)
{
    const bool bf16 = a->g_type == MT_DTYPE_BF16;
    if (c->form == MT_MOMENTS_8BIT) return bf16 ? update_8bit_block(a, c, true) : update_8bit_block(a, c, false);
    return bf16 ? update_bf16_block(a, c, true) : update_bf16_block(a, c, false);
}

#endif
