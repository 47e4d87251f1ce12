/* adamw_lanes.h - adamw.h, a register of elements at a time.  Separate multiply and add on purpose: see the contract there. */
#ifndef MT_OPS_ADAMW_LANES_H
#define MT_OPS_ADAMW_LANES_H

#include "ops/adamw.h"

#include "base/split.h"
#include "ops/lanes.h"

#include <assert.h>

typedef struct coef {
    floats beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, inv_sqrt_bc2, eps, decay, grad_scale;
} coef;

static inline coef broadcast(const mt_adamw_coef *c)
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

static inline floats load_grad(const mt_adamw_args *a, size_t i, bool bf16)
{
    if (!bf16) return LOAD((const float *)a->g + i);
    return AS_FLOATS(SHIFT_LEFT(WIDE_U((const uint16_t *)a->g + i), 16));
}

static inline floats load_weight(const mt_adamw_args *a, size_t i)
{
    return AS_FLOATS(INT_ADD(SHIFT_LEFT(WIDE_U(a->hi + i), 16), WIDE_S(a->lo + i)));
}

static inline lanes at_least(ints bits, uint32_t limit) { return AT_LEAST(INT_AND(bits, ALL_INTS(0x7fffffff)), limit); }

/* Returns the lanes whose weight could not be split. */
static inline lanes store_weight(const mt_adamw_args *a, size_t i, floats w)
{
    ints bits = AS_INTS(w);
    lanes bad = at_least(bits, MT_SPLIT_LIMIT);
    bits = SELECT(bad, ALL_INTS(MT_ADAMW_BAD_HI << 16), bits);
    narrow(a->hi + i, SHIFT_RIGHT(INT_ADD(bits, ALL_INTS(0x8000)), 16));
    narrow(a->lo + i, bits);
    return bad;
}

/* Elements [i, i + LANES), whose moments are *m and *v.  Returns the lanes that left the finite range. */
static inline lanes update_lanes(const mt_adamw_args *a, size_t i, const coef *c, bool bf16, floats *m, floats *v)
{
    floats g = MUL(load_grad(a, i, bf16), c->grad_scale);
    *m = ADD(MUL(c->beta1, *m), MUL(c->one_minus_beta1, g));
    *v = ADD(MUL(c->beta2, *v), MUL(c->one_minus_beta2, MUL(g, g)));
    floats denom = ADD(MUL(SQRT(*v), c->inv_sqrt_bc2), c->eps);
    floats w = MUL(load_weight(a, i), c->decay);
    w = SUB(w, MUL(c->step_size, DIV(*m, denom)));
    return EITHER(store_weight(a, i, w), at_least(AS_INTS(*v), 0x7f800000));
}

static inline size_t update_in_memory(const mt_adamw_args *a, size_t i, const coef *c, bool bf16)
{
    floats m = LOAD(a->m + i), v = LOAD(a->v + i);
    lanes bad = update_lanes(a, i, c, bf16, &m, &v);
    STORE(a->m + i, m);
    STORE(a->v + i, v);
    return COUNT(bad);
}

static inline size_t adamw_update(const mt_adamw_args *args)
{
    const mt_adamw_args a = *args;
    const coef c = broadcast(&a.coef);
    size_t i = 0, n_bad = 0;
    assert(a.g_type == MT_DTYPE_BF16 || a.g_type == MT_DTYPE_F32);
    if (a.g_type == MT_DTYPE_BF16) {
        for (; i + LANES <= a.n; i += LANES) n_bad += update_in_memory(&a, i, &c, true);
    } else {
        for (; i + LANES <= a.n; i += LANES) n_bad += update_in_memory(&a, i, &c, false);
    }
    mt_adamw_args rest = mt__adamw_rest(&a, i);
    return n_bad + mt__adamw_portable(&rest);
}

#endif
