/* bench_dense.cu - our own kernel for dense products (ops/dense_tiles.cuh) in other tiles, clusters and walks, beside cuBLASLt's, on
 * a card at its power limit.
 *
 *     bench_dense [seconds per burst] [turns] [word ...]     default: 0.25, 2, every product and variant; a word selects products
 *                                                            ("123b", "dw") or variants ("mix", "256x192"), and lib always runs
 *     bench_dense profile [word ...]                         each three times, for ncu (docs/notebook/kernels.md has the command)
 *     bench_dense beside [word ...]                          the library's rate beside copies from and to host memory
 *     bench_dense share [word ...]                           the library's rate beside a kernel that copies memory on some processors
 *
 * What varies: the tile, the cluster, the height of the panel of tiles that blocks walk through column by column, and how often blocks
 * wait for each other.  "mix" is what ops/dense_hopper.cu launches: clusters of four blocks, and beside them clusters of two on the
 * processors that are left.  Every result is compared with cuBLASLt's. */
#include "ops/dense_tiles.cuh"

#include <cublasLt.h>
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_SMS = 132 };

/* -- from the host --------------------------------------------------------------------------------- */

#define MUST(call)                                                                                                               \
    do {                                                                                                                         \
        int status_ = (int)(call);                                                                                               \
        if (status_) {                                                                                                           \
            fprintf(stderr, "error: bench_dense.cu:%d: status %d\n", __LINE__, status_);                                         \
            exit(1);                                                                                                             \
        }                                                                                                                        \
    } while (0)

typedef struct product {
    const char *name;
    dense_product kind;
    int64_t M, N, K;
} product;

static const product products[] = {
    { "123b gate_up fwd", DENSE_FORWARD, 32768, 57344, 12288 }, { "123b gate_up dx", DENSE_DX, 32768, 12288, 57344 },
    { "123b gate_up dw", DENSE_DW, 57344, 12288, 32768 },       { "123b down fwd", DENSE_FORWARD, 32768, 12288, 28672 },
    { "123b down dx", DENSE_DX, 32768, 28672, 12288 },          { "123b down dw", DENSE_DW, 12288, 28672, 32768 },
    { "7b gate_up fwd", DENSE_FORWARD, 26624, 37888, 3584 },    { "7b gate_up dx", DENSE_DX, 26624, 3584, 37888 },
    { "7b gate_up dw", DENSE_DW, 37888, 3584, 26624 },
};
/* Edges of tiles and of steps, and a few tiles for each block. */
static const product odd[] = {
    { "odd fwd", DENSE_FORWARD, 500, 1032, 1064 }, { "odd dx", DENSE_DX, 904, 520, 328 },
    { "odd dw", DENSE_DW, 1000, 776, 200 },        { "mid fwd", DENSE_FORWARD, 4096, 9216, 2048 },
    { "mid dx", DENSE_DX, 3000, 8192, 1024 },      { "mid dw", DENSE_DW, 8192, 4096, 3000 },
};

static void *A, *B, *D, *expected, *workspace;
static unsigned *met;
static const size_t OPERAND = (size_t)57344 * 32768 * 2, WORKSPACE = (size_t)32 << 20;
static cublasLtHandle_t lt;

/* Rows and columns of memory. */
static void describe_matrix(CUtensorMap *map, const void *base, size_t each, int64_t cols, int64_t rows, int box_rows)
{
    const copied_matrix m = { base, each, cols, rows, cols, 0, box_rows };
    mt_err err = {};
    MUST(mt__describe_matrix(map, &m, &err));
}

/* As many clusters as run at a time, or those beside a launch that has taken the first `taken` units of each round.  Returns how many
 * units these two take. */
template <int HALVES, int TEAMS, int COLS, int CM, int CN, dense_product KIND>
static int launch(const product *p, const dense_walk *how, bool mixed, int unit_rows, int taken)
{
    typedef dense_shape<HALVES, TEAMS, COLS, CM, CN, KIND> S;
    static int clusters; /* that run at a time */
    const bool wide_a = KIND == DENSE_DW, wide_b = KIND != DENSE_FORWARD;
    dense_maps maps;
    memset(&maps, 0, sizeof maps);
    describe_matrix(&maps.a, A, sizeof(bf16), wide_a ? p->M : p->K, wide_a ? p->K : p->M, wide_a ? BK / CN : S::BM / CN);
    describe_matrix(&maps.b, B, sizeof(bf16), wide_b ? p->N : p->K, wide_b ? p->K : p->N, wide_b ? BK / CM : S::BN / CM);
    if (KIND == DENSE_DW) describe_matrix(&maps.c, D, sizeof(float), p->N, p->M, BOX);
    cudaLaunchAttribute of_clusters[2] = {};
    of_clusters[0].id = cudaLaunchAttributeClusterDimension;
    of_clusters[0].val.clusterDim = { S::CLUSTER, 1, 1 };
    of_clusters[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    of_clusters[1].val.programmaticStreamSerializationAllowed = 1; /* begins beside the first launch, not after it */
    cudaLaunchConfig_t launched = {};
    launched.blockDim = S::THREADS;
    launched.dynamicSmemBytes = S::BYTES;
    launched.attrs = of_clusters, launched.numAttrs = taken ? 2 : 1;
    auto kernel = dense_kernel<HALVES, TEAMS, COLS, CM, CN, KIND>;
    if (!clusters) {
        MUST(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES));
        launched.gridDim = S::CLUSTER;
        MUST(cudaOccupancyMaxActiveClusters(&clusters, kernel, &launched));
        printf("  (%d x %d in clusters of %d x %d: %d clusters at a time, %d stages)\n", S::BM, S::BN, CM, CN, clusters,
               S::STAGES);
    }
    const int units = CM / unit_rows, all = mixed ? N_SMS / (unit_rows * CN) : clusters * units; /* of a cluster, of a round */
    const int here = taken ? (all - taken) / units : clusters;
    launched.gridDim = here * S::CLUSTER;
    dense_args args = {};
    args.d = (bf16 *)D, args.ldd = p->N;
    args.adds = KIND == DENSE_DW;
    args.M = (int)p->M, args.N = (int)p->N, args.K = (int)p->K;
    args.how = *how, args.met = met;
    args.unit_rows = unit_rows, args.per_round = all, args.blocks = all * unit_rows * CN, args.first = taken;
    if (how->every && !taken) MUST(cudaMemsetAsync(met, 0, sizeof *met));
    MUST(cudaLaunchKernelEx(&launched, kernel, args, (const dense_maps)maps));
    return taken + here * units;
}

template <int HALVES, int TEAMS, int COLS, int CM, int CN, dense_product KIND>
static void launch_one(const product *p, const dense_walk *how)
{
    launch<HALVES, TEAMS, COLS, CM, CN, KIND>(p, how, false, CM, 0);
}

template <int HALVES, int TEAMS, int COLS, int CM, int CN, dense_product KIND>
static void launch_both(const product *p, const dense_walk *how)
{
    int taken = launch<HALVES, TEAMS, COLS, 2 * CM, CN, KIND>(p, how, true, CM, 0);
    MUST((launch<HALVES, TEAMS, COLS, CM, CN, KIND>(p, how, true, CM, taken) != N_SMS / (CM * CN))); /* tiles would be left out */
}

template <int HALVES, int TEAMS, int COLS, int CM, int CN> static void launch_mixed(const product *p, const dense_walk *how)
{
    if (p->kind == DENSE_FORWARD) launch_both<HALVES, TEAMS, COLS, CM, CN, DENSE_FORWARD>(p, how);
    if (p->kind == DENSE_DX) launch_both<HALVES, TEAMS, COLS, CM, CN, DENSE_DX>(p, how);
    if (p->kind == DENSE_DW) launch_both<HALVES, TEAMS, COLS, CM, CN, DENSE_DW>(p, how);
}

template <int HALVES, int TEAMS, int COLS, int CM, int CN> static void launch_any(const product *p, const dense_walk *how)
{
    if (p->kind == DENSE_FORWARD) launch_one<HALVES, TEAMS, COLS, CM, CN, DENSE_FORWARD>(p, how);
    if (p->kind == DENSE_DX) launch_one<HALVES, TEAMS, COLS, CM, CN, DENSE_DX>(p, how);
    if (p->kind == DENSE_DW) launch_one<HALVES, TEAMS, COLS, CM, CN, DENSE_DW>(p, how);
}

static const struct {
    const char *name;
    void (*launch)(const product *p, const dense_walk *how);
    dense_walk how;
} variants[] = {
    { "256x192 1x2 free", launch_any<2, 2, 192, 1, 2>, { 10, 0, 0 } },
    { "256x192 1x2 meet 2", launch_any<2, 2, 192, 1, 2>, { 10, 2, 1 } },
    { "256x192 1x2 meet 1", launch_any<2, 2, 192, 1, 2>, { 10, 1, 1 } },
    { "256x192 mix free", launch_mixed<2, 2, 192, 1, 2>, { 10, 0, 0 } },
    { "256x192 mix meet 2", launch_mixed<2, 2, 192, 1, 2>, { 10, 2, 1 } },
    { "256x192 mix meet 1", launch_mixed<2, 2, 192, 1, 2>, { 10, 1, 1 } },
    { "256x192 mix meet 1, slack 2", launch_mixed<2, 2, 192, 1, 2>, { 10, 1, 2 } },
    { "128x256 2x1 free", launch_any<1, 2, 256, 2, 1>, { 10, 0, 0 } },
    { "128x256 mix meet 2", launch_mixed<1, 2, 256, 2, 1>, { 8, 2, 1 } },
    { "256x192 2x2 meet 1", launch_any<2, 2, 192, 2, 2>, { 10, 1, 1 } },
};
enum { N_VARIANTS = sizeof variants / sizeof *variants, N_LIBRARY = 8, N_ALL = N_LIBRARY + N_VARIANTS };

/* -- the library ----------------------------------------------------------------------------------- */

typedef struct library {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulHeuristicResult_t choices[N_LIBRARY];
    int n;
} library;

/* Column by column, as the library thinks: D' = B A', so what it calls A is our B. */
static void describe_product(library *x, const product *p)
{
    const bool deep_b = p->kind == DENSE_FORWARD, wide_a = p->kind == DENSE_DW;
    const cublasOperation_t of_b = deep_b ? CUBLAS_OP_T : CUBLAS_OP_N, of_a = wide_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int64_t ld_b = deep_b ? p->K : p->N, ld_a = wide_a ? p->M : p->K;
    const size_t limit = WORKSPACE;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulPreference_t limits;
    MUST(cublasLtMatmulDescCreate(&x->op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    MUST(cublasLtMatmulDescSetAttribute(x->op, CUBLASLT_MATMUL_DESC_TRANSA, &of_b, sizeof of_b));
    MUST(cublasLtMatmulDescSetAttribute(x->op, CUBLASLT_MATMUL_DESC_TRANSB, &of_a, sizeof of_a));
    MUST(cublasLtMatrixLayoutCreate(&x->a, CUDA_R_16BF, ld_b, deep_b ? p->N : p->K, ld_b));
    MUST(cublasLtMatrixLayoutCreate(&x->b, CUDA_R_16BF, ld_a, wide_a ? p->K : p->M, ld_a));
    MUST(cublasLtMatrixLayoutCreate(&x->d, p->kind == DENSE_DW ? CUDA_R_32F : CUDA_R_16BF, p->N, p->M, p->N));
    MUST(cublasLtMatmulPreferenceCreate(&limits));
    MUST(cublasLtMatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit));
    MUST(cublasLtMatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
    MUST(cublasLtMatmulAlgoGetHeuristic(lt, x->op, x->a, x->b, x->d, x->d, limits, N_LIBRARY, x->choices, &x->n));
    cublasLtMatmulPreferenceDestroy(limits);
}

static void forget_product(library *x)
{
    cublasLtMatrixLayoutDestroy(x->a);
    cublasLtMatrixLayoutDestroy(x->b);
    cublasLtMatrixLayoutDestroy(x->d);
    cublasLtMatmulDescDestroy(x->op);
}

static int tile_of(const library *x, int i)
{
    int tile = 0;
    size_t written;
    cublasLtMatmulAlgoConfigGetAttribute(&x->choices[i].algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &written);
    return tile;
}

static void run_library(const library *x, const product *p, int i, void *d)
{
    const float one = 1, beta = p->kind == DENSE_DW;
    MUST(
        cublasLtMatmul(lt, x->op, &one, B, x->a, A, x->b, &beta, d, x->d, d, x->d, &x->choices[i].algo, workspace, WORKSPACE, 0));
}

/* Those of the library first, then ours. */
static void run_any(const library *x, const product *p, int i)
{
    if (i < N_LIBRARY)
        run_library(x, p, i, D);
    else
        variants[i - N_LIBRARY].launch(p, &variants[i - N_LIBRARY].how);
}

/* -- right results --------------------------------------------------------------------------------- */

__global__ void fill_kernel(bf16 *to, size_t n, float scale, uint64_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint64_t z = i * 0x9e3779b97f4a7c15ull + seed;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        z ^= z >> 31;
        int sum = (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) + (int)(z >> 48) - 2 * 0xffff;
        to[i] = __float2bfloat16_rn(scale * (float)sum / 37837.0f); /* bell-shaped, variance 1 */
    }
}

/* sums: of squares of differences, of squares; a number that is not finite makes them so. */
template <typename T> __global__ void compare_kernel(const T *x, const T *y, size_t n, double *sums)
{
    double apart = 0, whole = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        double a = to_f32(x[i]), b = to_f32(y[i]);
        apart += (a - b) * (a - b);
        whole += b * b;
    }
    atomicAdd(&sums[0], apart);
    atomicAdd(&sums[1], whole);
}

/* Relative difference from the library's first choice. */
static double difference(const library *x, const product *p, int i)
{
    const bool dw = p->kind == DENSE_DW;
    const size_t n = (size_t)(p->M * p->N), bytes = n * (dw ? 4 : 2);
    double sums[2], *on_device;
    MUST(cudaMalloc((void **)&on_device, sizeof sums));
    MUST(cudaMemset(on_device, 0, sizeof sums));
    MUST(cudaMemset(D, dw ? 0 : 0xff, bytes));
    MUST(cudaMemset(expected, dw ? 0 : 0xff, bytes));
    for (int times = 0; times < (dw ? 2 : 1); times++) {
        run_library(x, p, 0, expected);
        run_any(x, p, i);
    }
    if (dw)
        compare_kernel<<<1024, 256>>>((const float *)D, (const float *)expected, n, on_device);
    else
        compare_kernel<<<1024, 256>>>((const bf16 *)D, (const bf16 *)expected, n, on_device);
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(sums, on_device, sizeof sums, cudaMemcpyDeviceToHost));
    cudaFree(on_device);
    return sqrt(sums[0] / sums[1]);
}

/* -- what the card reports ------------------------------------------------------------------------- */

/* NVML, if it is there: loaded by name, so that nothing needs it to build. */
static struct {
    void *device;
    int (*clock)(void *, int, unsigned *);
    int (*power)(void *, unsigned *);
    volatile bool on;
    double clocks, watts;
    int n;
} card;

static void *watch_card(void *arg)
{
    for (;; usleep(5000)) {
        unsigned mhz = 0, mw = 0;
        if (!card.on || card.clock(card.device, 1, &mhz) || card.power(card.device, &mw)) continue;
        card.clocks += mhz, card.watts += mw * 1e-3, card.n++;
    }
    return arg;
}

static void open_card(void)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    pthread_t thread;
    if (!nvml) return;
    int (*begin)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*find)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    card.clock = (int (*)(void *, int, unsigned *))dlsym(nvml, "nvmlDeviceGetClockInfo");
    card.power = (int (*)(void *, unsigned *))dlsym(nvml, "nvmlDeviceGetPowerUsage");
    if (!begin || !find || !card.clock || !card.power || begin() || find(0, &card.device)) return;
    pthread_create(&thread, NULL, watch_card, NULL);
}

/* -- measuring ------------------------------------------------------------------------------------- */

typedef struct result {
    double seconds, mhz, watts;
} result;

static double flops_of(const product *p) { return 2.0 * (double)p->M * (double)p->N * (double)p->K; }

static result burst(const library *x, const product *p, int i, double seconds)
{
    const int times = 1 + (int)(seconds * 680e12 / flops_of(p));
    cudaEvent_t from, to;
    float ms;
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    MUST(cudaEventRecord(from));
    card.clocks = card.watts = card.n = 0;
    card.on = card.device != NULL;
    for (int k = 0; k < times; k++) run_any(x, p, i);
    MUST(cudaEventRecord(to));
    MUST(cudaEventSynchronize(to));
    card.on = false;
    MUST(cudaEventElapsedTime(&ms, from, to));
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return { 1e-3 * ms / times, card.n ? card.clocks / card.n : 0, card.n ? card.watts / card.n : 0 };
}

static bool is_named(const char *name, int n, char **words)
{
    for (int i = 0; i < n; i++)
        if (strstr(name, words[i])) return true;
    return false;
}

/* Words that name products select products, others variants. */
static bool wants_product(const char *name, int n, char **words)
{
    bool any = false;
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof products / sizeof *products; k++) any = any || strstr(products[k].name, words[i]);
    return !any || is_named(name, n, words);
}

static bool wants_variant(const char *name, int n, char **words)
{
    bool any = false;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < N_VARIANTS; k++) any = any || strstr(variants[k].name, words[i]);
    return !any || is_named(name, n, words);
}

/* The library's kernels with the two largest tiles, 256x128 and 192x192, and ours. */
static bool is_measured(const library *x, int i, int n, char **words)
{
    if (i >= N_LIBRARY) return wants_variant(variants[i - N_LIBRARY].name, n, words);
    return i < x->n && (tile_of(x, i) == 24 || tile_of(x, i) == 209);
}

static void name_of(const library *x, int i, char *out, size_t size)
{
    if (i < N_LIBRARY)
        snprintf(out, size, "lib %s", tile_of(x, i) == 24 ? "256x128" : "192x192");
    else
        snprintf(out, size, "%s", variants[i - N_LIBRARY].name);
}

static void measure(const product *p, double seconds, int turns, int n, char **words)
{
    const double warm = 0.15;
    result sum[N_ALL] = {};
    library x;
    describe_product(&x, p);
    for (int turn = 0; turn < turns; turn++)
        for (int k = 0; k < N_ALL; k++) {
            const int i = (k + turn * 3) % N_ALL;
            if (!is_measured(&x, i, n, words)) continue;
            burst(&x, p, i, warm);
            result r = burst(&x, p, i, seconds);
            sum[i].seconds += r.seconds / turns, sum[i].mhz += r.mhz / turns, sum[i].watts += r.watts / turns;
        }
    printf("%s: %lld x %lld x %lld\n", p->name, (long long)p->M, (long long)p->N, (long long)p->K);
    for (int i = 0; i < N_ALL; i++) {
        char name[40];
        if (!is_measured(&x, i, n, words)) continue;
        const double rate = flops_of(p) / sum[i].seconds, most = N_SMS * 4096.0 * 1e6 * sum[i].mhz;
        name_of(&x, i, name, sizeof name);
        printf("    %-30s %6.1f TFLOP/s  %5.0f MHz  %4.0f W  %5.1f%% of what that clock allows", name, 1e-12 * rate, sum[i].mhz,
               sum[i].watts, most > 0 ? 100 * rate / most : 0);
        if (i >= N_LIBRARY) printf("  off by %.1e", difference(&x, p, i));
        printf("\n");
    }
    fflush(stdout);
    forget_product(&x);
}

/* Copies between host memory and the GPU for about this many seconds, one after the other in each direction. */
static void start_copies(cudaStream_t to_host, cudaStream_t from_host, void *host, bool out, bool in, double seconds)
{
    const size_t bytes = (size_t)256 << 20;
    for (int i = 0; i < 1 + (int)(seconds * 55e9 / (double)bytes); i++) {
        if (out) MUST(cudaMemcpyAsync(host, expected, bytes, cudaMemcpyDeviceToHost, to_host));
        if (in) MUST(cudaMemcpyAsync((char *)expected + bytes, (char *)host + bytes, bytes, cudaMemcpyHostToDevice, from_host));
    }
}

/* The library's two kernels, with copies beside them, out, in and both ways. */
static void measure_beside(const product *p)
{
    const double warm = 0.15, seconds = 0.5;
    static const char *const names[] = { "alone", "out", "in", "both" };
    cudaStream_t to_host, from_host;
    void *host;
    library x;
    MUST(cudaMallocHost(&host, (size_t)512 << 20));
    memset(host, 1, (size_t)512 << 20);
    MUST(cudaStreamCreateWithFlags(&to_host, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&from_host, cudaStreamNonBlocking));
    describe_product(&x, p);
    printf("%s, beside copies:\n", p->name);
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < N_LIBRARY; i++) {
            if (!is_measured(&x, i, 0, NULL)) continue;
            printf("    lib %s", tile_of(&x, i) == 24 ? "256x128" : "192x192");
            for (int k = 0; k < 4; k++) {
                start_copies(to_host, from_host, host, k & 1, k & 2, (warm + seconds) * 1.1);
                burst(&x, p, i, warm);
                const result r = burst(&x, p, i, seconds);
                const double ended = cudaStreamQuery(k == 1 ? to_host : from_host) == cudaSuccess;
                printf("  %s %.1f TFLOP/s %.0f MHz %.0f W%s", names[k], 1e-12 * flops_of(p) / r.seconds, r.mhz, r.watts,
                       k && ended ? " (copies ended before)" : "");
                MUST(cudaDeviceSynchronize());
            }
            printf("\n");
        }
    fflush(stdout);
    cudaFreeHost(host);
    cudaStreamDestroy(to_host);
    cudaStreamDestroy(from_host);
    forget_product(&x);
}

enum { COPIED = 4, COPY_THREADS = 1024 }; /* 16 bytes at a time that a thread has on their way; threads of a block */

/* Copies one half of a buffer to the other, again and again, until *end is set.  Counts pieces of 64 KiB. */
__global__ void __launch_bounds__(COPY_THREADS)
    copy_kernel(const uint4 *from, uint4 *to, size_t n, const volatile int *end, unsigned long long *pieces)
{
    const size_t piece = COPIED * COPY_THREADS, all = n / piece;
    unsigned long long done = 0;
    for (size_t i = blockIdx.x; __syncthreads_or(!*end); i += gridDim.x, done++) {
        const size_t at = i % all * piece + threadIdx.x;
        uint4 x[COPIED];
        for (int k = 0; k < COPIED; k++) x[k] = __ldcs(from + at + k * COPY_THREADS);
        for (int k = 0; k < COPIED; k++) __stcs(to + at + k * COPY_THREADS, x[k]);
    }
    if (threadIdx.x == 0) atomicAdd(pieces, done);
}

/* The library's kernels while another copies memory on some of the processors: what both do in a second, and which part of the
 * copies' own time is hidden. */
static void measure_share(const product *p)
{
    static const int blocks[] = { 264, 0, 4, 8, 16, 24, 32, 48 };
    const size_t half = (size_t)1 << 30;
    const double warm = 0.15, seconds = 0.35;
    cudaStream_t first;
    int least, greatest;
    volatile int *end;
    unsigned long long *pieces, done;
    library x;
    MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    MUST(cudaStreamCreateWithPriority(&first, cudaStreamNonBlocking, greatest));
    MUST(cudaMallocHost((void **)&end, sizeof *end));
    MUST(cudaMalloc((void **)&pieces, sizeof *pieces));
    describe_product(&x, p);
    printf("%s, beside a kernel that copies memory:\n", p->name);
    for (int i = 0; i < N_LIBRARY; i++) {
        double alone = 0, most = 0;
        if (!is_measured(&x, i, 0, NULL)) continue;
        for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++) {
            cudaEvent_t from, to;
            float ms;
            MUST(cudaEventCreate(&from));
            MUST(cudaEventCreate(&to));
            *end = 0;
            MUST(cudaMemset(pieces, 0, sizeof *pieces));
            MUST(cudaEventRecord(from, first));
            if (blocks[k])
                copy_kernel<<<blocks[k], COPY_THREADS, 0, first>>>((const uint4 *)expected, (uint4 *)((char *)expected + half),
                                                                   half / 16, end, pieces);
            MUST(cudaEventRecord(to, first));
            result r = {};
            if (k) {
                burst(&x, p, i, warm);
                r = burst(&x, p, i, seconds);
            } else
                usleep(200000);
            *end = 1;
            MUST(cudaDeviceSynchronize());
            MUST(cudaEventElapsedTime(&ms, from, to));
            MUST(cudaMemcpy(&done, pieces, sizeof done, cudaMemcpyDeviceToHost));
            const double bytes = 2.0 * 65536 * (double)done / (1e-3 * ms), rate = k ? flops_of(p) / r.seconds : 0;
            if (k == 0) most = bytes;
            if (k == 1) alone = rate;
            printf("    %s %3d blocks: %6.1f TFLOP/s %5.0f MHz %4.0f W, %5.2f TB/s", tile_of(&x, i) == 24 ? "256x128" : "192x192",
                   blocks[k], 1e-12 * rate, r.mhz, r.watts, blocks[k] ? 1e-12 * bytes : 0);
            if (k > 1) printf(", hides %.0f%% of copying", 100 * (rate / alone + bytes / most - 1) / (bytes / most));
            printf("\n");
            cudaEventDestroy(from);
            cudaEventDestroy(to);
        }
    }
    fflush(stdout);
    cudaFree(pieces);
    cudaFreeHost((void *)end);
    cudaStreamDestroy(first);
    forget_product(&x);
}

static void profile(const product *p, int n, char **words)
{
    library x;
    describe_product(&x, p);
    for (int i = 0; i < N_ALL; i++)
        for (int k = 0; k < 3 && is_measured(&x, i, n, words); k++) run_any(&x, p, i);
    MUST(cudaDeviceSynchronize());
    forget_product(&x);
}

static void check_odd(void)
{
    alarm(60); /* a kernel that waits for itself */
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
        library x;
        double worst = 0;
        describe_product(&x, &odd[k]);
        for (int i = N_LIBRARY; i < N_ALL; i++) {
            double apart = difference(&x, &odd[k], i);
            if (!(apart < 1e-3)) printf("%s: %s IS WRONG: off by %g\n", odd[k].name, variants[i - N_LIBRARY].name, apart);
            worst = apart > worst ? apart : worst;
        }
        printf("%s: off by %.1e at most\n", odd[k].name, worst);
        forget_product(&x);
    }
    fflush(stdout);
    alarm(0);
}

int main(int argc, char **argv)
{
    const bool once = argc > 1 && strcmp(argv[1], "profile") == 0;
    const bool beside = argc > 1 && strcmp(argv[1], "beside") == 0;
    const bool share = argc > 1 && strcmp(argv[1], "share") == 0;
    const int skip = once || beside || share ? 2 : argc < 3 ? argc : 3, n = argc - skip;
    char **words = argv + skip;
    MUST(cublasLtCreate(&lt));
    MUST(cudaMalloc(&A, OPERAND));
    MUST(cudaMalloc(&B, OPERAND));
    MUST(cudaMalloc(&D, OPERAND));
    MUST(cudaMalloc(&expected, OPERAND));
    MUST(cudaMalloc(&workspace, WORKSPACE));
    MUST(cudaMalloc((void **)&met, sizeof *met));
    fill_kernel<<<4096, 256>>>((bf16 *)A, OPERAND / 2, 1.0f, 1);
    fill_kernel<<<4096, 256>>>((bf16 *)B, OPERAND / 2, 0.02f, 77);
    if (!once) open_card();
    if (!once && !beside && !share) check_odd();
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        if (!wants_product(products[i].name, n, words)) continue;
        if (beside)
            measure_beside(&products[i]);
        else if (share)
            measure_share(&products[i]);
        else if (once)
            profile(&products[i], n, words);
        else
            measure(&products[i], argc > 1 ? atof(argv[1]) : 0.25, argc > 2 ? atoi(argv[2]) : 2, n, words);
    }
    return 0;
}
