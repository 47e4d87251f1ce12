/* moments_lanes.h - the update of a whole block of moments.h, a register of numbers at a time: read, updated (adamw_lanes.h) and
 * stored in one pass, because the random bits are computed while division and square root are waited for.  A block with numbers
 * that are not finite, or as good as infinite, is stored by plain C. */
#ifndef MT_OPS_MOMENTS_LANES_H
#define MT_OPS_MOMENTS_LANES_H

#include "ops/adamw_lanes.h"

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

/* -- bf16 ------------------------------------------------------------------------------------------ */

static inline floats read_bf16(const uint16_t *from) { return AS_FLOATS(SHIFT_LEFT(WIDE_U(from), 16)); }

static inline size_t update_bf16_block(const mt_adamw_args *a, const mt_moments_chunk *c, bool bf16)
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

/* -- 8 bits ---------------------------------------------------------------------------------------- */

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

/* Stores the codes of a block from its numbers in fp32 and their raised magnitudes. */
static inline void store_codes(const mt_moments_chunk *c, const ints *raised_m, const ints *raised_v, mt_moment_scale sm,
                               mt_moment_scale sv)
{
    uint8_t *to_m = (uint8_t *)c->m + c->at, *to_v = (uint8_t *)c->v + c->at;
    for (int i = 0; i < REGISTERS; i++) {
        const floats m = LOAD(c->m32 + i * LANES), v = LOAD(c->v32 + i * LANES);
        ints code_m = INT_SUB(SHIFT_RIGHT(raised_m[i], 20), ALL_INTS(sm.offset)),
             code_v = INT_SUB(SHIFT_RIGHT(raised_v[i], 20), ALL_INTS(sv.offset));
        if (has_low(raised_m[i], sm)) code_m = code_of(raised_m[i], m, bits_for_m(random_of(c, i)), sm, false);
        if (has_low(raised_v[i], sv)) code_v = code_of(raised_v[i], v, bits_for_v(random_of(c, i)), sv, true);
        narrow_to_bytes(to_m + i * LANES, INT_OR(code_m, INT_AND(SHIFT_RIGHT(AS_INTS(m), 24), ALL_INTS(0x80))));
        narrow_to_bytes(to_v + i * LANES, code_v);
    }
}

static inline size_t update_8bit_block(const mt_adamw_args *a, const mt_moments_chunk *c, bool bf16)
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
    store_codes(c, raised_m, raised_v, mt_moment_scale_of(*em, MT_MOMENT_E_BITS_M), mt_moment_scale_of(*ev, MT_MOMENT_E_BITS_V));
    return n_bad;
}

/* -- both ------------------------------------------------------------------------------------------ */

static inline size_t update_block(const mt_adamw_args *a, const mt_moments_chunk *c)
{
    const bool bf16 = a->g_type == MT_DTYPE_BF16;
    if (c->form == MT_MOMENTS_8BIT) return bf16 ? update_8bit_block(a, c, true) : update_8bit_block(a, c, false);
    return bf16 ? update_bf16_block(a, c, true) : update_bf16_block(a, c, false);
}

#endif
