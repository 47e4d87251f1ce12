/* moments.c - sizes and names of the forms; reading and storing them in plain C. */
#include "ops/moments.h"

#include <assert.h>

static const struct {
    const char *name;
    mt_dtype type;
} forms[MT_MOMENTS_FORMS] = { [MT_MOMENTS_F32] = { "float32", MT_DTYPE_F32 },
                              [MT_MOMENTS_BF16] = { "bf16", MT_DTYPE_BF16 },
                              [MT_MOMENTS_8BIT] = { "8bit", MT_DTYPE_BF16 } };

const char *mt_moments_name(mt_moments form) { return forms[form].name; }
mt_dtype mt_moments_type(mt_moments form) { return forms[form].type; }

bool mt_moments_from_name(const char *name, mt_moments *out)
{
    for (int f = 0; f < MT_MOMENTS_FORMS; f++)
        if (strcmp(forms[f].name, name) == 0) return *out = (mt_moments)f, true;
    return false;
}

size_t mt_moments_bytes(mt_moments form, size_t n)
{
    if (form == MT_MOMENTS_8BIT) return mt_moments_exponents_at(n) + mt_moments_blocks(n);
    return n * mt_dtype_bytes(forms[form].type);
}

/* -- in plain C ------------------------------------------------------------------------------------- */

static void load_bf16(float *restrict to, const uint16_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = mt_bf16_to_f32(from[i]);
}

static size_t exponent_of(const mt_moments_chunk *c) { return mt_moments_exponents_at(c->n_all) + c->at / MT_MOMENT_BLOCK; }

static void load_8bit(const mt_moments_chunk *c)
{
    const uint8_t *restrict from_m = (const uint8_t *)c->m + c->at, *restrict from_v = (const uint8_t *)c->v + c->at;
    float *restrict to_m = c->m32, *restrict to_v = c->v32;
    const mt_moment_scale sm = mt_moment_scale_of(((const uint8_t *)c->m)[exponent_of(c)], MT_MOMENT_E_BITS_M);
    for (size_t i = 0; i < c->n; i++) to_m[i] = mt_moment_m_value(from_m[i], sm);
    if (!c->v) return;
    const mt_moment_scale sv = mt_moment_scale_of(((const uint8_t *)c->v)[exponent_of(c)], MT_MOMENT_E_BITS_V);
    for (size_t i = 0; i < c->n; i++) to_v[i] = mt_moment_v_value(from_v[i], sv);
}

static void store_bf16(const mt_moments_chunk *c)
{
    uint16_t *restrict m = (uint16_t *)c->m + c->at, *restrict v = (uint16_t *)c->v + c->at;
    const float *restrict from_m = c->m32, *restrict from_v = c->v32;
    uint64_t key = c->key;
    uint32_t first = (uint32_t)c->at, n = (uint32_t)c->n;
    for (uint32_t i = 0; !c->v && i < n; i++) m[i] = mt_moment_to_bf16(from_m[i], mt_moment_bits(key, first + i) & 0xffff);
    for (uint32_t i = 0; c->v && i < n; i++) {
        uint32_t r = mt_moment_bits(key, first + i);
        m[i] = mt_moment_to_bf16(from_m[i], r & 0xffff);
        v[i] = mt_moment_to_bf16(from_v[i], r >> 16);
    }
}

/* One array; its random bits are those of each number from `shift` on. */
static inline void store_codes(const mt_moments_chunk *c, uint8_t *array, const float *restrict from,
                               const uint32_t *restrict random, int shift, int e_bits,
                               uint32_t (*code)(float, uint32_t, mt_moment_scale))
{
    uint32_t n = (uint32_t)c->n, largest = 0;
    uint8_t *restrict to = array + c->at;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t raised = mt_moment_raised(from[i], random[i] >> shift & 0xffff);
        largest = raised > largest ? raised : largest;
    }
    const uint32_t e = mt_moment_exponent(largest);
    const mt_moment_scale scale = mt_moment_scale_of(e, e_bits);
    for (uint32_t i = 0; i < n; i++) to[i] = (uint8_t)code(from[i], random[i] >> shift & 0xffff, scale);
    array[exponent_of(c)] = (uint8_t)e;
}

static void store_8bit(const mt_moments_chunk *c)
{
    uint32_t first = (uint32_t)c->at, n = (uint32_t)c->n, random[MT_MOMENT_BLOCK];
    for (uint32_t i = 0; i < n; i++) random[i] = mt_moment_bits(c->key, first + i);
    store_codes(c, c->m, c->m32, random, 0, MT_MOMENT_E_BITS_M, mt_moment_m_code);
    if (c->v) store_codes(c, c->v, c->v32, random, 16, MT_MOMENT_E_BITS_V, mt_moment_v_code);
}

void mt_moments_load(const mt_moments_chunk *c)
{
    assert(c->form != MT_MOMENTS_F32 && c->at % MT_MOMENT_BLOCK == 0 && c->n <= MT_MOMENT_BLOCK);
    if (c->form == MT_MOMENTS_8BIT) {
        load_8bit(c);
        return;
    }
    load_bf16(c->m32, (const uint16_t *)c->m + c->at, c->n);
    if (c->v) load_bf16(c->v32, (const uint16_t *)c->v + c->at, c->n);
}

void mt_moments_store(const mt_moments_chunk *c)
{
    assert(c->n == MT_MOMENT_BLOCK || c->at + c->n == c->n_all);
    if (c->form == MT_MOMENTS_8BIT)
        store_8bit(c);
    else
        store_bf16(c);
}
