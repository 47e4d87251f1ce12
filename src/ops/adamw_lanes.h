/* adamw_lanes.h - adamw.h, a register of elements at a time.  Separate multiply and add on purpose: see the contract there.
 * adamw_avx2.c and adamw_avx512.c include it after they have named their registers and what they do with them:
 *
 *     LANES, floats, ints            elements of a register, and the two kinds of it
 *     ALL(x), ALL_INTS(x)            a register full of x
 *     ADD SUB MUL DIV SQRT           of floats; INT_ADD, INT_AND, SHIFT_UP, SHIFT_DOWN of ints
 *     LOAD, STORE                    floats in memory; WIDE_U, WIDE_S: 16-bit ones, widened; narrow(): the low halves, stored
 *     AS_INTS, AS_FLOATS             the same bits
 *     lanes, AT_LEAST(x, limit)      one bit or mask a lane: x, without a sign bit, is limit or more
 *     SELECT(lanes, a, b), EITHER    a where a lane is set, else b; set in one of two
 *     COUNT(lanes)                   how many are set */
#include "ops/adamw.h"

#include "base/split.h"

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
    return AS_FLOATS(SHIFT_UP(WIDE_U((const uint16_t *)a->g + i)));
}

static inline floats load_weight(const mt_adamw_args *a, size_t i)
{
    return AS_FLOATS(INT_ADD(SHIFT_UP(WIDE_U(a->hi + i)), WIDE_S(a->lo + i)));
}

static inline lanes at_least(ints bits, uint32_t limit) { return AT_LEAST(INT_AND(bits, ALL_INTS(0x7fffffff)), limit); }

/* Returns the lanes whose weight could not be split. */
static inline lanes store_weight(const mt_adamw_args *a, size_t i, floats w)
{
    ints bits = AS_INTS(w);
    lanes bad = at_least(bits, MT_SPLIT_LIMIT);
    bits = SELECT(bad, ALL_INTS(MT_ADAMW_BAD_HI << 16), bits);
    narrow(a->hi + i, SHIFT_DOWN(INT_ADD(bits, ALL_INTS(0x8000))));
    narrow(a->lo + i, bits);
    return bad;
}

static inline size_t update_lanes(const mt_adamw_args *a, size_t i, const coef *c, bool bf16)
{
    floats g = MUL(load_grad(a, i, bf16), c->grad_scale);
    floats m = ADD(MUL(c->beta1, LOAD(a->m + i)), MUL(c->one_minus_beta1, g));
    floats v = ADD(MUL(c->beta2, LOAD(a->v + i)), MUL(c->one_minus_beta2, MUL(g, g)));
    floats denom = ADD(MUL(SQRT(v), c->inv_sqrt_bc2), c->eps);
    floats w = MUL(load_weight(a, i), c->decay);
    w = SUB(w, MUL(c->step_size, DIV(m, denom)));

    STORE(a->m + i, m);
    STORE(a->v + i, v);
    return COUNT(EITHER(store_weight(a, i, w), at_least(AS_INTS(v), 0x7f800000)));
}

static inline size_t adamw_update(const mt_adamw_args *args)
{
    const mt_adamw_args a = *args;
    const coef c = broadcast(&a.coef);
    size_t i = 0, n_bad = 0;
    assert(a.g_type == MT_DTYPE_BF16 || a.g_type == MT_DTYPE_F32);
    if (a.g_type == MT_DTYPE_BF16) {
        for (; i + LANES <= a.n; i += LANES) n_bad += update_lanes(&a, i, &c, true);
    } else {
        for (; i + LANES <= a.n; i += LANES) n_bad += update_lanes(&a, i, &c, false);
    }
    mt_adamw_args rest = mt__adamw_rest(&a, i);
    return n_bad + mt__adamw_portable(&rest);
}
