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

static inline ints magnitude_of(floats x) { return INT_AND(AS_INTS(x), ALL_INTS(0x7fffffff)); }

static inline lanes is_infinite(floats x) { return AT_LEAST(magnitude_of(x), 0x7f800000); } /* or no number */
static inline lanes is_unsplittable(floats w) { return AT_LEAST(magnitude_of(w), MT_SPLIT_LIMIT); }

static inline void store_weight(const mt_update_args *a, size_t i, floats w, lanes bad)
{
    const ints bits = SELECT(bad, ALL_INTS(MT_UPDATE_BAD_HI << 16), AS_INTS(w));
    narrow(a->hi + i, SHIFT_RIGHT(INT_ADD(bits, ALL_INTS(0x8000)), 16));
    narrow(a->lo + i, bits);
}

/* -- arrays in 16 and 8 bits ---------------------------------------------------------------------------- */

enum { REGISTERS = MT_MOMENT_BLOCK / LANES };

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

/* Store the codes of register i of a block, from its numbers in fp32 and their raised magnitudes. */
static inline void store_m(const mt_moments_chunk *c, int i, ints raised, mt_moment_scale s)
{
    const floats m = LOAD(c->m32 + i * LANES);
    ints code = INT_SUB(SHIFT_RIGHT(raised, 20), ALL_INTS(s.offset));
    if (has_low(raised, s)) code = code_of(raised, m, bits_for_m(random_of(c, i)), s, false);
    code = INT_OR(code, INT_AND(SHIFT_RIGHT(AS_INTS(m), 24), ALL_INTS(0x80)));
    narrow_to_bytes((uint8_t *)c->m + c->at + i * LANES, code);
}

static inline void store_v(const mt_moments_chunk *c, int i, ints raised, mt_moment_scale s)
{
    ints code = INT_SUB(SHIFT_RIGHT(raised, 20), ALL_INTS(s.offset));
    if (has_low(raised, s)) code = code_of(raised, LOAD(c->v32 + i * LANES), bits_for_v(random_of(c, i)), s, true);
    narrow_to_bytes((uint8_t *)c->v + c->at + i * LANES, code);
}

#endif
