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

static void load_8bit(const mt_moments_chunk *c)
{
    const uint8_t *m = c->m, *v = c->v;
    size_t exponent = mt_moments_exponents_at(c->n_all) + c->at / MT_MOMENT_BLOCK;
    mt_moment_scale sm = mt_moment_scale_of(m[exponent], MT_MOMENT_E_BITS_M),
                    sv = mt_moment_scale_of(v[exponent], MT_MOMENT_E_BITS_V);
    const uint8_t *restrict from_m = m + c->at, *restrict from_v = v + c->at;
    float *restrict to_m = c->m32, *restrict to_v = c->v32;
    for (size_t i = 0; i < c->n; i++) to_m[i] = mt_moment_m_value(from_m[i], sm);
    for (size_t i = 0; i < c->n; i++) to_v[i] = mt_moment_v_value(from_v[i], sv);
}

static void store_bf16(const mt_moments_chunk *c)
{
    uint16_t *restrict m = (uint16_t *)c->m + c->at, *restrict v = (uint16_t *)c->v + c->at;
    const float *restrict from_m = c->m32, *restrict from_v = c->v32;
    uint64_t key = c->key;
    uint32_t first = (uint32_t)c->at, n = (uint32_t)c->n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = mt_moment_bits(key, first + i);
        m[i] = mt_moment_to_bf16(from_m[i], r & 0xffff);
        v[i] = mt_moment_to_bf16(from_v[i], r >> 16);
    }
}

static void store_8bit(const mt_moments_chunk *c)
{
    size_t exponent = mt_moments_exponents_at(c->n_all) + c->at / MT_MOMENT_BLOCK;
    uint32_t first = (uint32_t)c->at, n = (uint32_t)c->n, largest_m = 0, largest_v = 0, random[MT_MOMENT_BLOCK];
    const float *restrict from_m = c->m32, *restrict from_v = c->v32;
    uint64_t key = c->key;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = random[i] = mt_moment_bits(key, first + i);
        uint32_t m = mt_moment_raised(from_m[i], r & 0xffff), v = mt_moment_raised(from_v[i], r >> 16);
        largest_m = m > largest_m ? m : largest_m;
        largest_v = v > largest_v ? v : largest_v;
    }
    uint32_t em = mt_moment_exponent(largest_m), ev = mt_moment_exponent(largest_v);
    mt_moment_scale sm = mt_moment_scale_of(em, MT_MOMENT_E_BITS_M), sv = mt_moment_scale_of(ev, MT_MOMENT_E_BITS_V);
    uint8_t *restrict m = (uint8_t *)c->m + c->at, *restrict v = (uint8_t *)c->v + c->at;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = random[i];
        m[i] = (uint8_t)mt_moment_m_code(from_m[i], r & 0xffff, sm);
        v[i] = (uint8_t)mt_moment_v_code(from_v[i], r >> 16, sv);
    }
    ((uint8_t *)c->m)[exponent] = (uint8_t)em;
    ((uint8_t *)c->v)[exponent] = (uint8_t)ev;
}

void mt_moments_load(const mt_moments_chunk *c)
{
    assert(c->form != MT_MOMENTS_F32 && c->at % MT_MOMENT_BLOCK == 0 && c->n <= MT_MOMENT_BLOCK);
    if (c->form == MT_MOMENTS_8BIT) {
        load_8bit(c);
        return;
    }
    load_bf16(c->m32, (const uint16_t *)c->m + c->at, c->n);
    load_bf16(c->v32, (const uint16_t *)c->v + c->at, c->n);
}

void mt_moments_store(const mt_moments_chunk *c)
{
    assert(c->n == MT_MOMENT_BLOCK || c->at + c->n == c->n_all);
    if (c->form == MT_MOMENTS_8BIT)
        store_8bit(c);
    else
        store_bf16(c);
}
