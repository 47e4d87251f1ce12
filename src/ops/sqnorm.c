/* sqnorm.c - the tree of sqnorm.h, and the choice among the implementations of its lanes. */
#include "ops/sqnorm.h"

#include "base/cpuid.h"
#include "ops/sqnorm_lanes.h"

#include <assert.h>
#include <string.h>

enum { CHUNK = MT_SQNORM_CHUNK, LANES = MT_SQNORM_LANES };

static void lanes_bf16(double *lane, const uint16_t *x) { sqnorm_lanes_bf16(lane, x); }
static void lanes_f32(double *lane, const float *x) { sqnorm_lanes_f32(lane, x); }

static double fold(double *lane)
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

static double chunk_sum(const mt_sqnorm_impl *impl, const void *x, mt_dtype type)
{
    double lane[LANES];
    if (type == MT_DTYPE_BF16)
        impl->lanes_bf16(lane, x);
    else
        impl->lanes_f32(lane, x);
    return fold(lane);
}

void mt_sqnorm_chunks_by(const mt_sqnorm_impl *impl, const mt_sqnorm_args *args, size_t first, size_t n_chunks, double *sums)
{
    assert(args->type == MT_DTYPE_BF16 || args->type == MT_DTYPE_F32);
    assert(first + n_chunks <= mt_sqnorm_n_chunks(args->n));
    size_t bytes = args->type == MT_DTYPE_BF16 ? 2 : 4;
    for (size_t i = 0; i < n_chunks; i++) {
        size_t at = (first + i) * CHUNK;
        const char *x = (const char *)args->x + at * bytes;
        float padded[CHUNK]; /* aligned for both types */
        if (args->n - at < CHUNK) {
            memset(padded, 0, CHUNK * bytes);
            x = memcpy(padded, x, (args->n - at) * bytes);
        }
        sums[i] = chunk_sum(impl, x, args->type);
    }
}

void mt_sqnorm_chunks(const mt_sqnorm_args *args, size_t first, size_t n_chunks, double *sums)
{
    mt_sqnorm_chunks_by(mt_sqnorm_best(), args, first, n_chunks, sums);
}

double mt_sqnorm_add(const double *sums, size_t n_chunks)
{
    double lane[LANES] = { 0 };
    for (size_t i = 0; i < n_chunks; i++) lane[i % LANES] += sums[i];
    return fold(lane);
}

double mt_sqnorm(const mt_sqnorm_args *args)
{
    const mt_sqnorm_impl *impl = mt_sqnorm_best();
    double lane[LANES] = { 0 };
    for (size_t i = 0; i < mt_sqnorm_n_chunks(args->n); i++) {
        double sum;
        mt_sqnorm_chunks_by(impl, args, i, 1, &sum);
        lane[i % LANES] += sum;
    }
    return fold(lane);
}

const mt_sqnorm_impl mt_sqnorm_impls[] = {
#if MT_X86
    { "avx512", mt_cpu_has_avx512, mt__sqnorm_lanes_bf16_avx512, mt__sqnorm_lanes_f32_avx512 },
    { "avx2", mt_cpu_has_avx2, mt__sqnorm_lanes_bf16_avx2, mt__sqnorm_lanes_f32_avx2 },
#endif
    { "portable", mt_cpu_has_c, lanes_bf16, lanes_f32 },
};
const size_t mt_sqnorm_n_impls = sizeof mt_sqnorm_impls / sizeof *mt_sqnorm_impls;

const mt_sqnorm_impl *mt_sqnorm_best(void)
{
    const mt_sqnorm_impl *impl = mt_sqnorm_impls;
    while (!impl->supported()) impl++;
    return impl;
}
