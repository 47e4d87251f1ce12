/* update_lanes.h - what the updates of all optimizers share where they take a register of numbers at a time: gradients, weights, and
 * arrays in the smaller forms of ops/moments.h.
 *
 * A whole block is read, updated and stored in one pass, because its random bits are computed while division and square root are
 * waited for.  A block with numbers that are not finite, or as good as infinite, is stored by plain C. */
#ifndef MT_OPTIM_UPDATE_LANES_H
#define MT_OPTIM_UPDATE_LANES_H

#include "optim/optimizer.h"

#include "base/split.h"
#include "ops/lanes.h"

#include <assert.h>

static inline floats load_grad(const mt_update_args *a, size_t i, bool bf16)
{
    if (!bf16) return LOAD((const float *)a->g + i);
    return AS_FLOATS(SHIFT_LEFT(WIDE_U((const uint16_t *)a->g + i), 16));
}

static inline floats load_weight(const mt_update_args *a, size_t i)
{
    return AS_FLOATS(INT_ADD(SHIFT_LEFT(WIDE_U(a->hi + i), 16), WIDE_S(a->lo + i)));
}

static inline lanes at_least(ints bits, uint32_t limit) { return AT_LEAST(INT_AND(bits, ALL_INTS(0x7fffffff)), limit); }

/* Returns the lanes whose weight could not be split. */
static inline lanes store_weight(const mt_update_args *a, size_t i, floats w)
{
    ints bits = AS_INTS(w);
    lanes bad = at_least(bits, MT_SPLIT_LIMIT);
    bits = SELECT(bad, ALL_INTS(MT_UPDATE_BAD_HI << 16), bits);
    narrow(a->hi + i, SHIFT_RIGHT(INT_ADD(bits, ALL_INTS(0x8000)), 16));
    narrow(a->lo + i, bits);
    return bad;
}

/* -- arrays in 16 and 8 bits ---------------------------------------------------------------------------- */

enum { REGISTERS = MT_MOMENT_BLOCK / LANES };

static inline ints magnitude_of(floats x) { return INT_AND(AS_INTS(x), ALL_INTS(0x7fffffff)); }

/* mt_moment_bits of the numbers whose i + key these are. */
static inline ints random_bits(ints x, ints key_high)
{
    x = INT_ADD(INT_MUL(INT_XOR(x, SHIFT_RIGHT(x, 16)), ALL_INTS(0x7feb352d)), key_high);
    x = INT_MUL(INT_XOR(x, SHIFT_RIGHT(x, 15)), ALL_INTS(0x846ca68b));
    return INT_XOR(x, SHIFT_RIGHT(x, 16));
}

/* The random bits of register i of a block. */
static inline ints random_of(const mt_moments_chunk *c, int i)
{
    const uint32_t first = (uint32_t)c->at + (uint32_t)c->key + (uint32_t)(i * LANES);
    return random_bits(INT_ADD(COUNTED, ALL_INTS(first)), ALL_INTS(c->key >> 32));
}

static inline floats read_bf16(const uint16_t *from) { return AS_FLOATS(SHIFT_LEFT(WIDE_U(from), 16)); }

/* Bits of the value of codes without a sign.  Few are below 8. */
static inline ints value_bits(ints code, mt_moment_scale s)
{
    const lanes low = BELOW(code, ALL_INTS(8));
    ints bits = SHIFT_LEFT(INT_ADD(code, ALL_INTS(s.offset)), 20);
    if (ANY(low)) bits = SELECT(low, AS_INTS(MUL(TO_FLOATS(code), ALL(s.step))), bits);
    return bits;
}

static inline floats read_m(const uint8_t *from, mt_moment_scale s)
{
    const ints code = WIDE_BYTES(from), sign = INT_AND(SHIFT_LEFT(code, 24), ALL_INTS(0x80000000));
    return AS_FLOATS(INT_OR(value_bits(INT_AND(code, ALL_INTS(127)), s), sign));
}

static inline floats read_v(const uint8_t *from, mt_moment_scale s) { return AS_FLOATS(value_bits(WIDE_BYTES(from), s)); }

/* The random bits of m and of v, at the place where mt_moment_raised adds them. */
static inline ints bits_for_m(ints r) { return SHIFT_RIGHT(SHIFT_LEFT(r, 16), 12); }
static inline ints bits_for_v(ints r) { return INT_AND(SHIFT_RIGHT(r, 12), ALL_INTS(0xffff0)); }

/* mt_moment_code, where no code can be beyond the top one, in a register with numbers that stay below `normal` when they are
 * raised, which is rare.  (A number that is raised to `normal` gets code 8 either way.)  keep: only 0 itself is stored as 0. */
static inline ints code_of(ints raised, floats x, ints r, mt_moment_scale s, bool keep)
{
    const ints magnitude = magnitude_of(x), code = INT_SUB(SHIFT_RIGHT(raised, 20), ALL_INTS(s.offset));
    const lanes low = BELOW(magnitude, ALL_INTS(s.normal));
    const floats number = AS_FLOATS(SELECT(low, magnitude, ALL_INTS(0)));
    const floats up = MUL(TO_FLOATS(SHIFT_RIGHT(r, 4)), ALL(0x1p-16f));
    const ints all = SELECT(low, TO_INTS(ADD(MUL(number, ALL(s.per_step)), up)), code);
    return keep ? INT_MAX_OF(all, INT_MIN_OF(magnitude, ALL_INTS(1))) : all;
}

static inline bool has_low(ints raised, mt_moment_scale s) { return ANY(BELOW(raised, ALL_INTS(s.normal))); }

#endif
