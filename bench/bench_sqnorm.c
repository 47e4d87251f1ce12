/* bench_sqnorm.c - the gradient norm on the host: elements and bytes a second, per implementation and gradient format, one
 * thread.
 *
 *     bench_sqnorm [millions of elements] */
#include "base/mem.h"
#include "base/rng.h"
#include "ops/sqnorm.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure(const mt_sqnorm_impl *impl, const mt_sqnorm_args *args, double *sums)
{
    size_t n_chunks = mt_sqnorm_n_chunks(args->n);
    double best = 1e30;
    for (int pass = 0; pass < 10; pass++) {
        double t = seconds();
        mt_sqnorm_chunks_by(impl, args, 0, n_chunks, sums);
        t = seconds() - t;
        if (t < best) best = t;
    }
    double rate = (double)args->n / best * 1e-9;
    printf("%-9s %-9s %6.2f Gelem/s  %6.1f GB/s  (%.6g)\n", impl->name, mt_dtype_name(args->type), rate,
           rate * (double)mt_dtype_bytes(args->type), mt_sqnorm_add(sums, n_chunks));
}

int main(int argc, char **argv)
{
    size_t n = (size_t)(argc > 1 ? atoi(argv[1]) : 128) * 1000000;
    uint32_t *x = mt_malloc(n * sizeof *x); /* read as fp32, and its first half as bf16 */
    double *sums = mt_malloc(mt_sqnorm_n_chunks(n) * sizeof *sums);
    if (!n || !x || !sums) {
        fprintf(stderr, "no memory for %zu elements\n", n);
        return 1;
    }
    for (size_t i = 0; i < n; i++) x[i] = (uint32_t)mt_rng_u64(1, 0, i) & 0xbfffbfff; /* finite both ways */
    for (size_t k = 0; k < mt_sqnorm_n_impls; k++) {
        if (!mt_sqnorm_impls[k].supported()) continue;
        measure(&mt_sqnorm_impls[k], &(mt_sqnorm_args){ x, MT_DTYPE_BF16, n }, sums);
        measure(&mt_sqnorm_impls[k], &(mt_sqnorm_args){ x, MT_DTYPE_F32, n }, sums);
    }
    mt_free(x);
    mt_free(sums);
    return 0;
}
