/* bench_products.c - every kernel that cuBLASLt offers for the products of a layer, and our own, on a card that has settled at its power
 * limit.
 *
 *     bench_products [seconds per burst] [MODEL ...]        default: 0.3, all of 3b 7b 8b 14b 32b 72b 123b (about four minutes)
 *     bench_products 0.3 chosen [MODEL ...]                 of the library's, only the one that is used where ours is not
 *
 * A line a product: the TFLOP/s of each kernel by its tile and split, in the library's order, then -1/1: our own, where there is one
 * (tests/unit/test_linear_tiles.c has them as a table).  Each kernel runs for 60 ms before its burst, because the clock follows what
 * a kernel draws, and all kernels of a product take two turns. */
#include "base/dtype.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/clock.h"
#include "ops/linear_tiles.h"
#include "ops/matmul.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CHOICES = 8, TURNS = 2, NOISE = 1 << 24 };
static const size_t OPERAND = (size_t)4 << 30, WORKSPACE = (size_t)32 << 20;
static const double WARM = 0.06, GUESS = 650e12; /* seconds; FLOP/s, to count repeats by */

static const struct {
    const char *name;
    int64_t D, qkv, F, rows;
} models[] = { { "3b", 2048, 2560, 11008, 32768 },    { "7b", 3584, 4608, 18944, 26624 },  { "8b", 4096, 6144, 14336, 32768 },
               { "14b", 5120, 7168, 13824, 32768 },   { "32b", 5120, 7168, 27648, 32768 }, { "72b", 8192, 10240, 29568, 32768 },
               { "123b", 12288, 14336, 28672, 32768 } };

/* D [m, n] = op(A) op(B), column by column, as ops/linear.cu describes products. */
typedef struct product {
    int64_t m, n, k;
    bool trans_a, dw; /* dw: op(B) is transposed, and D adds to fp32 sums */
} product;

typedef struct descs {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
} descs;

static cublasLtHandle_t lt;
static void *a, *b, *d, *workspace;
static mt_stream *stream; /* of our own kernel */
static bool chosen_alone; /* of the library's kernels */
static int n_sms;

static void must(int status, const char *what)
{
    if (!status) return;
    fprintf(stderr, "error: %s: status %d\n", what, status);
    exit(1);
}

/* Bell-shaped random numbers: zeros would multiply faster than what a model holds. */
static void fill(void *to, float scale, uint64_t seed)
{
    uint16_t *noise = mt_malloc(NOISE * sizeof *noise);
    must(!noise, "memory for noise");
    for (int64_t i = 0; i < NOISE; i++) {
        uint64_t r = mt_rng_u64(seed, 0, (uint64_t)i);
        int64_t sum = (int64_t)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48)) - 2 * 0xffff;
        noise[i] = mt_f32_to_bf16(scale * (float)sum);
    }
    for (size_t at = 0; at < OPERAND; at += NOISE * sizeof *noise)
        must(cudaMemcpy((char *)to + at, noise, NOISE * sizeof *noise, cudaMemcpyHostToDevice), "noise");
    mt_free(noise);
}

static void describe(descs *x, const product *p)
{
    const cublasOperation_t op_a = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = p->dw ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int64_t rows_a = p->trans_a ? p->k : p->m, rows_b = p->dw ? p->n : p->k;
    must(cublasLtMatmulDescCreate(&x->op, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
    must(cublasLtMatmulDescSetAttribute(x->op, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a), "a product");
    must(cublasLtMatmulDescSetAttribute(x->op, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b), "a product");
    must(cublasLtMatrixLayoutCreate(&x->a, CUDA_R_16BF, (uint64_t)rows_a, (uint64_t)(p->trans_a ? p->m : p->k), rows_a), "A");
    must(cublasLtMatrixLayoutCreate(&x->b, CUDA_R_16BF, (uint64_t)rows_b, (uint64_t)(p->dw ? p->k : p->n), rows_b), "B");
    must(cublasLtMatrixLayoutCreate(&x->d, p->dw ? CUDA_R_32F : CUDA_R_16BF, (uint64_t)p->m, (uint64_t)p->n, p->m), "D");
}

static void forget(descs *x)
{
    cublasLtMatrixLayoutDestroy(x->a);
    cublasLtMatrixLayoutDestroy(x->b);
    cublasLtMatrixLayoutDestroy(x->d);
    cublasLtMatmulDescDestroy(x->op);
}

/* With the limits of ops/linear.cu: no atomics, operands at multiples of 16 bytes. */
static int propose(const descs *x, cublasLtMatmulHeuristicResult_t choices[N_CHOICES])
{
    cublasLtMatmulPreference_t pref;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, aligned = 16;
    const cublasLtMatmulPreferenceAttributes_t alignments[] = { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES };
    int n = 0;
    must(cublasLtMatmulPreferenceCreate(&pref), "limits");
    must(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE, sizeof WORKSPACE),
         "limits");
    must(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes),
         "limits");
    for (size_t i = 0; i < MT_COUNT(alignments); i++)
        must(cublasLtMatmulPreferenceSetAttribute(pref, alignments[i], &aligned, sizeof aligned), "limits");
    must(cublasLtMatmulAlgoGetHeuristic(lt, x->op, x->a, x->b, x->d, x->d, pref, N_CHOICES, choices, &n), "choices");
    cublasLtMatmulPreferenceDestroy(pref);
    return n;
}

/* The product for our own kernel. */
static mt_matmul own_product(const product *p)
{
    return (mt_matmul){ .m = p->m,
                        .n = p->n,
                        .k = p->k,
                        .rows_in_k = p->dw,
                        .trans_a = p->trans_a,
                        .trans_b = p->dw,
                        .t = MT_DTYPE_BF16,
                        .td = p->dw ? MT_DTYPE_F32 : MT_DTYPE_BF16,
                        .a = a,
                        .b = b,
                        .c = d,
                        .d = d,
                        .lda = p->trans_a ? p->k : p->m,
                        .ldb = p->dw ? p->n : p->k,
                        .ldc = p->m,
                        .ldd = p->m,
                        .alpha = 1,
                        .beta = p->dw ? 1 : 0 };
}

/* algo NULL: by our own kernel. */
static bool multiply(const product *p, const descs *x, const cublasLtMatmulAlgo_t *algo)
{
    const float one = 1, zero = 0;
    const mt_matmul own = own_product(p);
    mt_err err = { 0 };
    if (!algo) return !mt__dense_by_hopper(stream, &own, workspace, &err);
    return !cublasLtMatmul(lt, x->op, &one, a, x->a, b, x->b, p->dw ? &one : &zero, d, x->d, d, x->d, algo, workspace, WORKSPACE,
                           NULL);
}

/* Seconds of one product, the mean over a burst; INFINITY: it failed. */
static double burst(const product *p, const descs *x, const cublasLtMatmulAlgo_t *algo, double seconds)
{
    const int times = 2 + (int)(seconds * GUESS / (2.0 * (double)p->m * (double)p->n * (double)p->k));
    bool ok = true;
    must(cudaDeviceSynchronize(), "a burst");
    const int64_t from = mt_now_ns();
    for (int i = 0; i < times && ok; i++) ok = multiply(p, x, algo);
    must(cudaDeviceSynchronize(), "a burst");
    return ok ? 1e-9 * (double)(mt_now_ns() - from) / times : INFINITY;
}

static int config_of(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t what)
{
    int value = 0;
    size_t written;
    cublasLtMatmulAlgoConfigGetAttribute(algo, what, &value, sizeof value, &written);
    return value;
}

/* Leaves the kernel that linear.cu takes of these; how many are left. */
static int keep_chosen(const product *p, cublasLtMatmulHeuristicResult_t *choices, int n)
{
    mt_tile_choice tiles[N_CHOICES];
    const mt_tiled tiled = { .m = p->m, .n = p->n, .k = p->k, .dw = p->dw, .n_sms = n_sms };
    if (!chosen_alone || n == 0) return n;
    for (int i = 0; i < n; i++) {
        tiles[i].tile = config_of(&choices[i].algo, CUBLASLT_ALGO_CONFIG_TILE_ID);
        tiles[i].split = config_of(&choices[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    }
    choices[0] = choices[mt_tile_best(&tiled, tiles, n)];
    return 1;
}

static void measure(const char *model, const char *name, product p, double seconds)
{
    cublasLtMatmulHeuristicResult_t choices[N_CHOICES];
    double took[N_CHOICES + 1] = { 0 };
    descs x;
    describe(&x, &p);
    const mt_matmul own = own_product(&p);
    const int n = keep_chosen(&p, choices, propose(&x, choices)), n_all = n + mt__dense_fits(stream, &own);
    if (p.dw) must(cudaMemset(d, 0, OPERAND), "sums");
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < n_all; i++) {
            const cublasLtMatmulAlgo_t *algo = i < n ? &choices[i].algo : NULL;
            burst(&p, &x, algo, WARM);
            took[i] += burst(&p, &x, algo, seconds) / TURNS;
        }
    printf("%s %s: %lld x %lld x %lld", model, name, (long long)p.m, (long long)p.n, (long long)p.k);
    for (int i = 0; i < n_all; i++)
        printf("  %d/%d %.0f", i < n ? config_of(&choices[i].algo, CUBLASLT_ALGO_CONFIG_TILE_ID) : MT_TILE_OWN,
               i < n ? config_of(&choices[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) : 1,
               2e-12 * (double)p.m * (double)p.n * (double)p.k / took[i]);
    printf("\n");
    fflush(stdout);
    forget(&x);
}

/* y [rows, N] = x [rows, K] w', dx, and dw. */
static void measure_linear(const char *model, const char *name, int64_t N, int64_t K, int64_t rows, double seconds)
{
    char line[64];
    snprintf(line, sizeof line, "%s fwd", name);
    measure(model, line, (product){ .m = N, .n = rows, .k = K, .trans_a = true }, seconds);
    snprintf(line, sizeof line, "%s dx", name);
    measure(model, line, (product){ .m = K, .n = rows, .k = N }, seconds);
    snprintf(line, sizeof line, "%s dw", name);
    measure(model, line, (product){ .m = K, .n = N, .k = rows, .dw = true }, seconds);
}

static bool is_wanted(const char *name, int argc, char **argv)
{
    const int first = chosen_alone ? 3 : 2;
    for (int i = first; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return true;
    return argc <= first;
}

int main(int argc, char **argv)
{
    const double seconds = argc > 1 ? atof(argv[1]) : 0.3;
    mt_device *gpu;
    mt_device_info info;
    mt_err err = { 0 };
    chosen_alone = argc > 2 && strcmp(argv[2], "chosen") == 0;
    if (mt_device_open(&gpu, "cuda", NULL, &err) || gpu->api->stream_create(gpu, &stream, "bench", &err)) {
        fprintf(stderr, "error: %s\n", err.msg);
        return 1;
    }
    gpu->api->info(gpu, &info);
    n_sms = info.n_processors;
    must(cublasLtCreate(&lt), "cuBLASLt");
    must(cudaMalloc(&a, OPERAND), "memory for A");
    must(cudaMalloc(&b, OPERAND), "memory for B");
    must(cudaMalloc(&d, OPERAND), "memory for D");
    must(cudaMalloc(&workspace, WORKSPACE), "a workspace");
    fill(a, 5e-7f, 1);
    fill(b, 3e-5f, 2);
    for (size_t i = 0; i < MT_COUNT(models); i++) {
        if (!is_wanted(models[i].name, argc, argv)) continue;
        measure_linear(models[i].name, "gate_up", 2 * models[i].F, models[i].D, models[i].rows, seconds);
        measure_linear(models[i].name, "down", models[i].D, models[i].F, models[i].rows, seconds);
        measure_linear(models[i].name, "qkv", models[i].qkv, models[i].D, models[i].rows, seconds);
        measure_linear(models[i].name, "o", models[i].D, models[i].D, models[i].rows, seconds);
    }
    cudaFree(a);
    cudaFree(b);
    cudaFree(d);
    cudaFree(workspace);
    cublasLtDestroy(lt);
    gpu->api->stream_free(stream);
    mt_device_close(gpu);
    return 0;
}
