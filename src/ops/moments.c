/* moments.c - sizes and names of the forms, and the choice among implementations. */
#include "ops/moments.h"

#include "base/cpuid.h"
#include "ops/moments_lanes.h"

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

static void load_portable(const mt_moments_chunk *c) { moments_load(c); }
static void store_portable(const mt_moments_chunk *c) { moments_store(c); }

const mt_moments_impl mt_moments_impls[] = {
#if MT_X86
    { "avx512", mt_cpu_has_avx512, mt__moments_load_avx512, mt__moments_store_avx512 },
    { "avx2", mt_cpu_has_avx2, mt__moments_load_avx2, mt__moments_store_avx2 },
#endif
    { "portable", mt_cpu_has_c, load_portable, store_portable },
};
const size_t mt_moments_n_impls = sizeof mt_moments_impls / sizeof *mt_moments_impls;

static const mt_moments_impl *best(void)
{
    const mt_moments_impl *impl = mt_moments_impls;
    while (!impl->supported()) impl++;
    return impl;
}

void mt_moments_load(const mt_moments_chunk *c)
{
    assert(c->form != MT_MOMENTS_F32 && c->at % MT_MOMENT_BLOCK == 0 && c->n <= MT_MOMENT_BLOCK);
    best()->load(c);
}

void mt_moments_store(const mt_moments_chunk *c)
{
    assert(c->n == MT_MOMENT_BLOCK || c->at + c->n == c->n_all);
    best()->store(c);
}
