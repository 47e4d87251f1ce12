/* adamw_lanes.h - adamw.h, a register of elements at a time.  Separate multiply and add on purpose: see the contract there. */
#ifndef MT_OPTIM_ADAMW_LANES_H
#define MT_OPTIM_ADAMW_LANES_H

#include "optim/adamw.h"
#include "optim/update_lanes.h"

typedef struct coef {
    floats beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, inv_sqrt_bc2, eps, decay, grad_scale;
} coef;

static inline coef broadcast(const mt_update_coef *c)
{
    return (coef){ .beta1 = ALL(c->beta1),
                   .one_minus_beta1 = ALL(c->one_minus_beta1),
                   .beta2 = ALL(c->beta2),
                   .one_minus_beta2 = ALL(c->one_minus_beta2),
                   .step_size = ALL(c->step_size),
                   .inv_sqrt_bc2 = ALL(c->inv_sqrt_bc2),
                   .eps = ALL(c->eps),
                   .decay = ALL(c->decay),
                   .grad_scale = ALL(c->grad_scale) };
}

/* Elements [i, i + LANES), whose moments are *m and *v.  Returns the lanes that left the finite range. */
static inline lanes update_lanes(const mt_update_args *a, size_t i, const coef *c, bool bf16, floats *m, floats *v)
{
    floats g = MUL(load_grad(a, i, bf16), c->grad_scale);
    *m = ADD(MUL(c->beta1, *m), MUL(c->one_minus_beta1, g));
    *v = ADD(MUL(c->beta2, *v), MUL(c->one_minus_beta2, MUL(g, g)));
    floats denom = ADD(MUL(SQRT(*v), c->inv_sqrt_bc2), c->eps);
    floats w = MUL(load_weight(a, i), c->decay);
    w = SUB(w, MUL(c->step_size, DIV(*m, denom)));
    const lanes bad = is_unsplittable(w);
    store_weight(a, i, w, bad);
    return EITHER(bad, is_infinite(*v));
}

static inline size_t update_in_memory(const mt_update_args *a, size_t i, const coef *c, bool bf16)
{
    floats m = LOAD(a->m + i), v = LOAD(a->v + i);
    lanes bad = update_lanes(a, i, c, bf16, &m, &v);
    STORE(a->m + i, m);
    STORE(a->v + i, v);
    return COUNT(bad);
}

static inline size_t adamw_update(const mt_update_args *args)
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
    return n_bad + mt__adamw_portable(&rest);
}

/* -- whole blocks, in 16 and 8 bits ----------------------------------------------------------------------- */

static inline size_t update_bf16_block(const mt_update_args *a, const mt_moments_chunk *c, bool bf16)
{
    uint16_t *to_m = (uint16_t *)c->m + c->at, *to_v = (uint16_t *)c->v + c->at;
    const coef k = broadcast(&a->coef);
    size_t n_bad = 0, n_odd = 0;
    for (int i = 0; i < REGISTERS; i++) {
        const int at = i * LANES;
        floats m = read_bf16(to_m + at), v = read_bf16(to_v + at);
        n_bad += COUNT(update_lanes(a, (size_t)at, &k, bf16, &m, &v));
        const ints r = random_of(c, i);
        n_odd += COUNT(EITHER(AT_LEAST(magnitude_of(m), 0x7f7f0000), AT_LEAST(magnitude_of(v), 0x7f7f0000)));
        STORE(a->m + at, m);
        STORE(a->v + at, v);
        narrow(to_m + at, SHIFT_RIGHT(INT_ADD(AS_INTS(m), INT_AND(r, ALL_INTS(0xffff))), 16));
        narrow(to_v + at, SHIFT_RIGHT(INT_ADD(AS_INTS(v), SHIFT_RIGHT(r, 16)), 16));
    }
    if (n_odd) mt_moments_store(c);
    return n_bad;
}

static inline size_t update_8bit_block(const mt_update_args *a, const mt_moments_chunk *c, bool bf16)
{
    const size_t exponent = mt_moments_exponents_at(c->n_all) + c->at / MT_MOMENT_BLOCK;
    const uint8_t *from_m = (const uint8_t *)c->m + c->at, *from_v = (const uint8_t *)c->v + c->at;
    uint8_t *em = (uint8_t *)c->m + exponent, *ev = (uint8_t *)c->v + exponent;
    const mt_moment_scale sm = mt_moment_scale_of(*em, MT_MOMENT_E_BITS_M), sv = mt_moment_scale_of(*ev, MT_MOMENT_E_BITS_V);
    const coef k = broadcast(&a->coef);
    ints raised_m[REGISTERS], raised_v[REGISTERS], most_m = ALL_INTS(0), most_v = ALL_INTS(0);
    size_t n_bad = 0;
    for (int i = 0; i < REGISTERS; i++) {
        const int at = i * LANES;
        floats m = read_m(from_m + at, sm), v = read_v(from_v + at, sv);
        n_bad += COUNT(update_lanes(a, (size_t)at, &k, bf16, &m, &v));
        const ints r = random_of(c, i);
        STORE(a->m + at, m);
        STORE(a->v + at, v);
        raised_m[i] = INT_ADD(magnitude_of(m), bits_for_m(r));
        raised_v[i] = INT_ADD(magnitude_of(v), bits_for_v(r));
        most_m = INT_MAX_OF(most_m, raised_m[i]);
        most_v = INT_MAX_OF(most_v, raised_v[i]);
    }
    const uint32_t largest_m = largest_of(most_m), largest_v = largest_of(most_v);
    if (largest_m >= 0x7f800000 || largest_v >= 0x7f800000) return mt_moments_store(c), n_bad;
    *em = (uint8_t)mt_moment_exponent(largest_m);
    *ev = (uint8_t)mt_moment_exponent(largest_v);
    const mt_moment_scale to_m = mt_moment_scale_of(*em, MT_MOMENT_E_BITS_M), to_v = mt_moment_scale_of(*ev, MT_MOMENT_E_BITS_V);
    for (int i = 0; i < REGISTERS; i++) {
        store_m(c, i, raised_m[i], to_m);
        store_v(c, i, raised_v[i], to_v);
    }
    return n_bad;
}

static inline size_t update_block(const mt_update_args *a, const mt_moments_chunk *c)
{
    const bool bf16 = a->g_type == MT_DTYPE_BF16;
    if (c->form == MT_MOMENTS_8BIT) return bf16 ? update_8bit_block(a, c, true) : update_8bit_block(a, c, false);
    return bf16 ? update_bf16_block(a, c, true) : update_bf16_block(a, c, false);
}

#endif
