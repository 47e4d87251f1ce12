/* bench_dense.cu - dense products by wgmma kernels of our own beside cuBLASLt's, on a card at its power limit.
 *
 *     bench_dense [seconds per burst] [turns] [word ...]     default: 0.25, 2, every product and variant; a word selects products
 *                                                            ("123b", "dw") or variants ("sync", "256x192"), and lib always runs
 *     bench_dense profile [word ...]                         each three times, for ncu (docs/notebook/kernels.md has the command)
 *     bench_dense apart [word ...]                           how far apart in time blocks begin the same tile of their walk
 *     bench_dense beside [word ...]                          the library's rate beside copies from and to host memory
 *     bench_dense share [word ...]                           the library's rate beside a kernel that copies memory on some processors
 *
 * D [M, N] = A B', where A has M rows and B has N, stored with the summed dimension along memory rows ("deep") or across them
 * ("wide"): forward (deep, deep) and dx (deep, wide) write bf16, dw (wide, wide) adds to fp32 sums.
 *
 * A block makes a tile of BM x BN.  One warp of its first warpgroup asks the copy engine for operands, 64 deep at a time, up to
 * STAGES ahead; two or three warpgroups multiply.  Blocks of a cluster share operands by multicast.
 *
 *   full[stage]    its operands have arrived
 *   empty[stage]   every warpgroup that reads this block's part of it, in this block and its cluster, is done
 *
 * What varies: the tile, the cluster, the height of the panel of tiles that blocks walk through column by column (what stays in the L2
 * cache), and how often blocks wait for each other (so that they read the same columns at the same time).  132 processors hold only
 * 30 clusters of four blocks; "mix" gives the other 12 processors to a second launch in clusters of two, which runs beside the
 * first one and takes its share of every round of the walk.  Every result is compared with cuBLASLt's. */
#include "ops/grouped_tiles.cuh"
#include "ops/hopper.cuh"

#include <cublasLt.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_SMS = 132, TRACED = 1024 };

typedef enum product_kind { PRODUCT_FWD, PRODUCT_DX, PRODUCT_DW } product_kind;

/* Which operands are read: all; those of a corner that the L2 cache holds; or those of the first steps alone, again and again.  The
 * last two make wrong results, and show what reading costs. */
typedef enum reads { READS_ALL, READS_NEAR, READS_ONCE } reads;

/* How a variant walks. */
typedef struct walk {
    int panel; /* rows of units that are walked column by column */
    int every; /* 0, or: all blocks meet every N steps of 64 summed numbers */
    int slack; /* meetings that a block may be ahead of the last one */
    reads from;
} walk;

enum { NEAR = 1920, NEAR_STEPS = 32 }; /* rows and columns, and steps, of the corner */

typedef struct dense_args {
    void *d;
    int M, N, K;
    walk how;
    unsigned *met;   /* meetings that blocks have come to, all added; zero before the launch */
    uint64_t *trace; /* or NULL: when each block began each of its tiles, [N_SMS, TRACED] */
    int unit_rows;   /* tiles of a unit, one above the other */
    int per_wave;    /* units that all blocks make at a time */
    int blocks;      /* that take part in meetings */
    int first;       /* unit of this launch's first block */
} dense_args;

typedef struct dense_maps {
    CUtensorMap a, b, sums; /* sums: D of dw */
} dense_maps;

/* BM = 64 HALVES TEAMS rows: each of TEAMS warpgroups has HALVES times 64.  Clusters of CM x CN blocks. */
template <int HALVES, int TEAMS, int COLS, int CM, int CN, product_kind KIND> struct tile_shape {
    enum {
        BM = 64 * HALVES * TEAMS,
        BN = COLS,
        STAGE = (BM + BN) * BK,
        BOX_FLOATS = KIND == PRODUCT_DW ? TEAMS * 4 * BOX * BOX : 0, /* two pairs of warps a team, two boxes a pair */
        ROOM = 232448 - 1024 - BOX_FLOATS * 4 - 256,
        STAGES = ROOM / (STAGE * 2) > 6 ? 6 : ROOM / (STAGE * 2),
        BYTES = STAGES * STAGE * 2 + BOX_FLOATS * 4 + 2 * STAGES * 8 + 1024,
        THREADS = 128 * (TEAMS + 1),
        CLUSTER = CM * CN
    };
    static_assert(STAGES >= 3, "too few stages to hide the copies");
};

#if HAS_WGMMA

/* -- copies and products --------------------------------------------------------------------------- */

/* A box of an operand to this block, or (MANY) to the same place in all blocks of the mask. */
template <bool MANY>
__device__ __forceinline__ void copy_box(bf16 *to, const CUtensorMap *map, uint64_t *full, int col, int row, uint16_t mask)
{
    if (MANY)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                     "l"(map), "r"(col), "r"(row), "r"(shared_address(full)), "h"(mask)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                     "l"(map), "r"(col), "r"(row), "r"(shared_address(full))
                     : "memory");
}

#define MMA(n, regs, acc, p0, p1, p2, p3, p4)                                                                                    \
    asm volatile("{ .reg .pred more; setp.ne.b32 more, " p2 ", 0;"                                                               \
                 " wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {" regs "}, " p0 ", " p1 ", more, 1, 1, " p3 ", " p4  \
                 "; }"                                                                                                           \
                 : acc                                                                                                           \
                 : "l"(a), "l"(b), "r"((int)more), "n"(WIDE_A), "n"(WIDE_B))

template <int COLS, int WIDE_A, int WIDE_B>
__device__ __forceinline__ void multiply(float d[][4], uint64_t a, uint64_t b, bool more)
{
    if constexpr (COLS == 128) MMA("128", REGS_63, ACC_16(d, 0), "%64", "%65", "%66", "%67", "%68");
    if constexpr (COLS == 192) MMA("192", REGS_95, ACC_24(d, 0), "%96", "%97", "%98", "%99", "%100");
    if constexpr (COLS == 256) MMA("256", REGS_127, ACC_32(d, 0), "%128", "%129", "%130", "%131", "%132");
}

/* -- the walk -------------------------------------------------------------------------------------- */

/* Units of unit_rows x CN tiles, as a grid that blocks walk through panel by panel, per_wave at a time.  A cluster of two units takes
 * neighbors of one column, so the number of rows is even, and its panels must be. */
typedef struct grid_walk {
    int rows, cols, n, panel;
} grid_walk;

template <typename S, int CN> __device__ __forceinline__ grid_walk walk_of(const dense_args &a)
{
    int high = S::BM * a.unit_rows, rows = (a.M + high - 1) / high, cols = (a.N + S::BN * CN - 1) / (S::BN * CN);
    rows += rows % 2;
    return { rows, cols, rows * cols, a.how.panel };
}

__device__ __forceinline__ void tile_at(const grid_walk &w, int t, int *row, int *col)
{
    int p = t / (w.panel * w.cols), in = t - p * w.panel * w.cols, high = min(w.panel, w.rows - p * w.panel);
    *row = p * w.panel + in % high;
    *col = in / high;
}

/* What a block knows of the others' progress. */
typedef struct meeting {
    int times, seen; /* meetings of this block; of all blocks, when last read */
    bool waits;      /* false once the others took too long: results never depend on a meeting */
} meeting;

__device__ __forceinline__ int read_met(const unsigned *met)
{
    unsigned seen;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(met));
    return (int)seen;
}

/* Counts this block, then waits until all blocks are at most `slack` meetings short of it, for about 50 us at most. */
__device__ __forceinline__ void meet(meeting *m, unsigned *met, int blocks, int slack)
{
    int all = blocks * (++m->times - slack);
    atomicAdd(met, 1);
    if (!m->waits) return;
    for (int i = 0; i < 64 && m->seen < all; i++) m->seen = read_met(met);
    m->waits = m->seen >= all;
    m->seen = read_met(met); /* for the next meeting: its answer arrives in the meantime */
}

/* -- results --------------------------------------------------------------------------------------- */

/* Each pair of warps has 32 rows and two boxes, which its warps send in turns. */
template <int BLOCKS>
__device__ __forceinline__ void add_sums(const float acc[][4], const CUtensorMap *sums, float *boxes, int row, int col,
                                         const dense_args &a)
{
    int pair = (threadIdx.x / 64) - 2, turn = threadIdx.x % 32 ? -1 : (int)threadIdx.x % 64 / 32;
    row += threadIdx.x % 128 / 64 * BOX;
#pragma unroll
    for (int n = 0; n < BLOCKS / 4; n++) {
        float *box = boxes + (pair * 2 + n % 2) * BOX * BOX;
        if (turn == n % 2) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        warps_meet(pair);
        pack_box(box, acc, n);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        warps_meet(pair);
        if (turn != n % 2) continue;
        if (row < a.M && col + n * BOX < a.N)
            asm volatile(
                "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(sums),
                "r"(col + n * BOX), "r"(row), "r"(shared_address(box))
                : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
}

#endif

/* -- the kernel ------------------------------------------------------------------------------------ */

template <int HALVES, int TEAMS, int COLS, int CM, int CN, product_kind KIND>
__global__ void __launch_bounds__(128 * (TEAMS + 1), 1) dense_kernel(dense_args a, const __grid_constant__ dense_maps maps)
{
#if HAS_WGMMA
    typedef tile_shape<HALVES, TEAMS, COLS, CM, CN, KIND> S;
    constexpr int WIDE_A = KIND == PRODUCT_DW, WIDE_B = KIND != PRODUCT_FWD;
    extern __shared__ unsigned char memory[];
    bf16 *tiles = aligned_shared(memory);
    float *boxes = (float *)(tiles + S::STAGES * S::STAGE);
    uint64_t *full = (uint64_t *)(boxes + S::BOX_FLOATS), *empty = full + S::STAGES;
    const int rank = blockIdx.x % S::CLUSTER, ci = rank / CN, cj = rank % CN; /* this block's row and column in its cluster */
    const grid_walk w = walk_of<S, CN>(a);
    const int steps = (a.K + BK - 1) / BK, first = a.first + blockIdx.x / S::CLUSTER * (CM / a.unit_rows), stride = a.per_wave;
    int stage = 0, parity = 0;
    if (threadIdx.x == 0) asm volatile("griddepcontrol.launch_dependents;");
    if (threadIdx.x < S::STAGES) {
        barrier_begin(&full[threadIdx.x], 1);
        barrier_begin(&empty[threadIdx.x], TEAMS * (CM + CN - 1));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
    cluster_sync();
    if (threadIdx.x < 128) {
        if (TEAMS == 3)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        else
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            uint16_t row_mates = (uint16_t)(((1 << CN) - 1) << (ci * CN)), col_mates = 0;
#pragma unroll
            for (int i = 0; i < CM; i++) col_mates |= (uint16_t)(1 << (i * CN + cj));
            meeting m = { 0, 0, true };
            int until = a.how.every; /* steps before the next meeting */
            for (int t = first, i = 0; t - t % stride < w.n; t += stride, i++) {
                if (a.trace) asm volatile("mov.u64 %0, %globaltimer;" : "=l"(a.trace[blockIdx.x * TRACED + i % TRACED]));
                if (t >= w.n) { /* no tile in the last round: counts as having come to every meeting */
                    if (a.how.every) atomicAdd(a.met, 1u << 20);
                    break;
                }
                int row, col;
                tile_at(w, t, &row, &col);
                row = (row * a.unit_rows + ci) * S::BM, col = (col * CN + cj) * S::BN;
                if (a.how.from == READS_NEAR) row %= NEAR, col %= NEAR;
                for (int step = 0; step < steps; step++) {
                    if (a.how.every && --until < 0) {
                        meet(&m, a.met, a.blocks, a.how.slack);
                        until = a.how.every - 1;
                    }
                    bf16 *left = tiles + stage * S::STAGE, *right = left + S::BM * BK;
                    barrier_wait(&empty[stage], parity ^ 1);
                    if (a.how.from == READS_ONCE && (i > 0 || step >= S::STAGES)) {
                        barrier_arrive(&full[stage]);
                        if (++stage == S::STAGES) stage = 0, parity ^= 1;
                        continue;
                    }
                    const int depth = (a.how.from == READS_NEAR ? step % NEAR_STEPS : step) * BK;
                    barrier_expect(&full[stage], S::STAGE * 2);
                    if (WIDE_A) {
                        const int from = cj * (BK / CN);
#pragma unroll
                        for (int m = 0; m < S::BM; m += 64)
                            copy_box<(CN > 1)>(left + m * BK + from * 64, &maps.a, &full[stage], row + m, depth + from, row_mates);
                    } else {
                        const int from = cj * (S::BM / CN);
                        copy_box<(CN > 1)>(left + from * BK, &maps.a, &full[stage], depth, row + from, row_mates);
                    }
                    if (WIDE_B) {
                        const int from = ci * (BK / CM);
#pragma unroll
                        for (int n = 0; n < S::BN; n += 64)
                            copy_box<(CM > 1)>(right + n * BK + from * 64, &maps.b, &full[stage], col + n, depth + from,
                                               col_mates);
                    } else {
                        const int from = ci * (S::BN / CM);
                        copy_box<(CM > 1)>(right + from * BK, &maps.b, &full[stage], depth, col + from, col_mates);
                    }
                    if (++stage == S::STAGES) stage = 0, parity ^= 1;
                }
            }
        }
        __syncwarp();
    } else {
        if (TEAMS == 3)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
        else
            asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int team = threadIdx.x / 128 - 1, warp = threadIdx.x % 128 / 32;
        /* Whom a warp tells that a stage is free: the blocks of the row, then those of the column but for this one. */
        const int whom = warp + 4 * (threadIdx.x % 32), other = whom - CN < ci ? whom - CN : whom - CN + 1;
        const int dest = whom < CN ? ci * CN + whom : other * CN + cj;
        const bool tells = whom < CM + CN - 1;
        for (int t = first; t < w.n; t += stride) {
            int row, col;
            tile_at(w, t, &row, &col);
            row = (row * a.unit_rows + ci) * S::BM, col = (col * CN + cj) * S::BN;
            float acc[HALVES][S::BN / 8][4];
            int before = 0;
            for (int step = 0; step < steps; step++) {
                const bf16 *left = tiles + stage * S::STAGE + team * HALVES * 64 * BK,
                           *right = tiles + stage * S::STAGE + S::BM * BK;
                barrier_wait(&full[stage], parity);
                wgmma_begin();
#pragma unroll
                for (int k = 0; k < BK; k += 16)
#pragma unroll
                    for (int h = 0; h < HALVES; h++)
                        multiply<S::BN, WIDE_A, WIDE_B>(
                            acc[h], describe(left + h * 64 * BK + (WIDE_A ? k * 64 : k), WIDE_A ? BK * 128 : 16),
                            describe(right + (WIDE_B ? k * 64 : k), WIDE_B ? BK * 128 : 16), step > 0 || k > 0);
                wgmma_commit();
                if (step > 0) {
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    if (tells) barrier_arrive_at(&empty[before], dest);
                }
                before = stage;
                if (++stage == S::STAGES) stage = 0, parity ^= 1;
            }
#pragma unroll
            for (int h = 0; h < HALVES; h++) finish<64, 0, S::BN / 8>(acc[h]);
            if (tells) barrier_arrive_at(&empty[before], dest);
#pragma unroll
            for (int h = 0; h < HALVES; h++) {
                int top = row + (team * HALVES + h) * 64;
                if (KIND == PRODUCT_DW)
                    add_sums<S::BN / 8>(acc[h], &maps.sums, boxes, top, col, a);
                else
                    store_strip<S::BN / 8>((bf16 *)a.d, a.N, top + warp * 16, a.M, col, a.N, NULL, acc[h]);
            }
        }
        if (KIND == PRODUCT_DW) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    asm volatile("griddepcontrol.wait;" ::: "memory");
    cluster_sync(); /* no block exits while others write its memory or signal its barriers */
#endif
}

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
    product_kind kind;
    int64_t M, N, K;
} product;

static const product products[] = {
    { "123b gate_up fwd", PRODUCT_FWD, 32768, 57344, 12288 }, { "123b gate_up dx", PRODUCT_DX, 32768, 12288, 57344 },
    { "123b gate_up dw", PRODUCT_DW, 57344, 12288, 32768 },   { "123b down fwd", PRODUCT_FWD, 32768, 12288, 28672 },
    { "123b down dx", PRODUCT_DX, 32768, 28672, 12288 },      { "123b down dw", PRODUCT_DW, 12288, 28672, 32768 },
    { "7b gate_up fwd", PRODUCT_FWD, 26624, 37888, 3584 },    { "7b gate_up dx", PRODUCT_DX, 26624, 3584, 37888 },
    { "7b gate_up dw", PRODUCT_DW, 37888, 3584, 26624 },
};
/* Edges of tiles and of steps, and a few tiles for each block. */
static const product odd[] = {
    { "odd fwd", PRODUCT_FWD, 500, 1032, 1064 }, { "odd dx", PRODUCT_DX, 904, 520, 328 },
    { "odd dw", PRODUCT_DW, 1000, 776, 200 },    { "mid fwd", PRODUCT_FWD, 4096, 9216, 2048 },
    { "mid dx", PRODUCT_DX, 3000, 8192, 1024 },  { "mid dw", PRODUCT_DW, 8192, 4096, 3000 },
};

static void *A, *B, *D, *expected, *workspace;
static unsigned *met;
static uint64_t *trace;
static const size_t OPERAND = (size_t)57344 * 32768 * 2, WORKSPACE = (size_t)32 << 20;
static cublasLtHandle_t lt;
static PFN_cuTensorMapEncodeTiled_v12000 encode;

/* Rows and columns of memory, in boxes of 128 bytes of a row. */
static void describe_matrix(CUtensorMap *map, void *base, int64_t cols, int64_t rows, int box_rows, bool fp32)
{
    cuuint64_t size[] = { (cuuint64_t)cols, (cuuint64_t)rows }, bytes[] = { (cuuint64_t)cols * (fp32 ? 4 : 2) };
    cuuint32_t box[] = { fp32 ? 32u : 64u, (cuuint32_t)box_rows }, every[] = { 1, 1 };
    MUST(encode(map, fp32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, base, size, bytes, box, every,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

/* As many clusters as run at a time, or those beside a launch that has taken the first `taken` units of each round.  Returns how many
 * units these two take. */
template <int HALVES, int TEAMS, int COLS, int CM, int CN, product_kind KIND>
static int launch(const product *p, const walk *how, bool mixed, int unit_rows, int taken)
{
    typedef tile_shape<HALVES, TEAMS, COLS, CM, CN, KIND> S;
    static int clusters; /* that run at a time */
    const bool wide_a = KIND == PRODUCT_DW, wide_b = KIND != PRODUCT_FWD;
    dense_maps maps;
    memset(&maps, 0, sizeof maps);
    describe_matrix(&maps.a, A, wide_a ? p->M : p->K, wide_a ? p->K : p->M, wide_a ? BK / CN : S::BM / CN, false);
    describe_matrix(&maps.b, B, wide_b ? p->N : p->K, wide_b ? p->K : p->N, wide_b ? BK / CM : S::BN / CM, false);
    if (KIND == PRODUCT_DW) describe_matrix(&maps.sums, D, p->N, p->M, BOX, true);
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
        MUST(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
        launched.gridDim = S::CLUSTER;
        MUST(cudaOccupancyMaxActiveClusters(&clusters, kernel, &launched));
        printf("  (%d x %d in clusters of %d x %d: %d clusters at a time, %d stages)\n", S::BM, S::BN, CM, CN, clusters,
               S::STAGES);
    }
    const int units = CM / unit_rows, all = mixed ? N_SMS / (unit_rows * CN) : clusters * units; /* of a cluster, of a round */
    const int here = taken ? (all - taken) / units : clusters;
    launched.gridDim = here * S::CLUSTER;
    dense_args args = { D, (int)p->M, (int)p->N, (int)p->K, *how, met, trace, unit_rows, all, all * unit_rows * CN, taken };
    if (how->every && !taken) MUST(cudaMemsetAsync(met, 0, sizeof *met));
    MUST(cudaLaunchKernelEx(&launched, kernel, args, (const dense_maps)maps));
    return taken + here * units;
}

template <int HALVES, int TEAMS, int COLS, int CM, int CN, product_kind KIND>
static void launch_one(const product *p, const walk *how)
{
    launch<HALVES, TEAMS, COLS, CM, CN, KIND>(p, how, false, CM, 0);
}

template <int HALVES, int TEAMS, int COLS, int CM, int CN, product_kind KIND>
static void launch_both(const product *p, const walk *how)
{
    int taken = launch<HALVES, TEAMS, COLS, 2 * CM, CN, KIND>(p, how, true, CM, 0);
    MUST((launch<HALVES, TEAMS, COLS, CM, CN, KIND>(p, how, true, CM, taken) != N_SMS / (CM * CN))); /* tiles would be left out */
}

template <int HALVES, int TEAMS, int COLS, int CM, int CN> static void launch_mixed(const product *p, const walk *how)
{
    if (p->kind == PRODUCT_FWD) launch_both<HALVES, TEAMS, COLS, CM, CN, PRODUCT_FWD>(p, how);
    if (p->kind == PRODUCT_DX) launch_both<HALVES, TEAMS, COLS, CM, CN, PRODUCT_DX>(p, how);
    if (p->kind == PRODUCT_DW) launch_both<HALVES, TEAMS, COLS, CM, CN, PRODUCT_DW>(p, how);
}

template <int HALVES, int TEAMS, int COLS, int CM, int CN> static void launch_any(const product *p, const walk *how)
{
    if (p->kind == PRODUCT_FWD) launch_one<HALVES, TEAMS, COLS, CM, CN, PRODUCT_FWD>(p, how);
    if (p->kind == PRODUCT_DX) launch_one<HALVES, TEAMS, COLS, CM, CN, PRODUCT_DX>(p, how);
    if (p->kind == PRODUCT_DW) launch_one<HALVES, TEAMS, COLS, CM, CN, PRODUCT_DW>(p, how);
}

static const struct {
    const char *name;
    void (*launch)(const product *p, const walk *how);
    walk how;
} variants[] = {
    { "256x192 1x2 free", launch_any<2, 2, 192, 1, 2>, { 10, 0, 0, READS_ALL } },
    { "256x192 1x2 near", launch_any<2, 2, 192, 1, 2>, { 10, 0, 0, READS_NEAR } },
    { "256x192 1x2 once", launch_any<2, 2, 192, 1, 2>, { 10, 0, 0, READS_ONCE } },
    { "256x192 1x2 meet 2", launch_any<2, 2, 192, 1, 2>, { 10, 2, 1, READS_ALL } },
    { "256x192 1x2 meet 1", launch_any<2, 2, 192, 1, 2>, { 10, 1, 1, READS_ALL } },
    { "256x192 mix free", launch_mixed<2, 2, 192, 1, 2>, { 10, 0, 0, READS_ALL } },
    { "256x192 mix meet 2", launch_mixed<2, 2, 192, 1, 2>, { 10, 2, 1, READS_ALL } },
    { "256x192 mix meet 1", launch_mixed<2, 2, 192, 1, 2>, { 10, 1, 1, READS_ALL } },
    { "256x192 mix meet 1, slack 2", launch_mixed<2, 2, 192, 1, 2>, { 10, 1, 2, READS_ALL } },
    { "128x256 2x1 free", launch_any<1, 2, 256, 2, 1>, { 10, 0, 0, READS_ALL } },
    { "128x256 mix meet 2", launch_mixed<1, 2, 256, 2, 1>, { 8, 2, 1, READS_ALL } },
    { "256x192 2x2 meet 1", launch_any<2, 2, 192, 2, 2>, { 10, 1, 1, READS_ALL } },
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
    const bool deep_b = p->kind == PRODUCT_FWD, wide_a = p->kind == PRODUCT_DW;
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
    MUST(cublasLtMatrixLayoutCreate(&x->d, p->kind == PRODUCT_DW ? CUDA_R_32F : CUDA_R_16BF, p->N, p->M, p->N));
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
    const float one = 1, beta = p->kind == PRODUCT_DW;
    MUST(
        cublasLtMatmul(lt, x->op, &one, B, x->a, A, x->b, &beta, d, x->d, d, x->d, &x->choices[i].algo, workspace, WORKSPACE, 0));
}

/* A variant of ours that reads all of its operands. */
static bool is_right(int i) { return i >= N_LIBRARY && variants[i - N_LIBRARY].how.from == READS_ALL; }

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
    const bool dw = p->kind == PRODUCT_DW;
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
        if (is_right(i)) printf("  off by %.1e", difference(&x, p, i));
        printf("\n");
    }
    fflush(stdout);
    forget_product(&x);
}

/* Copies between host memory and the GPU for about so many seconds, one after the other in each direction. */
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

/* Copies one half of a buffer to the other, again and again, until told to end.  Counts pieces of 64 KiB. */
__global__ void __launch_bounds__(COPY_THREADS) copy_kernel(const uint4 *from, uint4 *to, size_t n, const volatile int *end,
                                                            unsigned long long *pieces)
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

/* How far apart in time the first and the last block begin a round of their walk, after two runs that warm up. */
static void tell_apart(const product *p, int n, char **words)
{
    static uint64_t began[N_SMS][TRACED];
    library x;
    describe_product(&x, p);
    MUST(cudaMalloc((void **)&trace, sizeof began));
    for (int i = N_LIBRARY; i < N_ALL; i++) {
        if (!is_measured(&x, i, n, words)) continue;
        for (int k = 0; k < 3; k++) {
            MUST(cudaMemset(trace, 0, sizeof began));
            run_any(&x, p, i);
        }
        MUST(cudaMemcpy(began, trace, sizeof began, cudaMemcpyDeviceToHost));
        printf("%s, us in rounds 0, 1, 3, 7, 15 and every 16th:", variants[i - N_LIBRARY].name);
        for (int t = 0; t < TRACED; t = t < 15 ? t * 2 + 1 : t + 16) {
            uint64_t low = UINT64_MAX, high = 0;
            for (int b = 0; b < N_SMS; b++) {
                uint64_t at = began[b][t];
                if (at) low = at < low ? at : low, high = at > high ? at : high;
            }
            if (high) printf(" %.0f", 1e-3 * (double)(high - low));
        }
        printf("\n");
    }
    cudaFree(trace);
    trace = NULL;
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
            if (!is_right(i)) continue;
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
    const bool apart = argc > 1 && strcmp(argv[1], "apart") == 0, once = apart || (argc > 1 && strcmp(argv[1], "profile") == 0);
    const bool beside = argc > 1 && strcmp(argv[1], "beside") == 0;
    const bool share = argc > 1 && strcmp(argv[1], "share") == 0;
    const int skip = once || beside || share ? 2 : argc < 3 ? argc : 3, n = argc - skip;
    char **words = argv + skip;
    cudaDriverEntryPointQueryResult found;
    MUST(cublasLtCreate(&lt));
    MUST(cudaMalloc(&A, OPERAND));
    MUST(cudaMalloc(&B, OPERAND));
    MUST(cudaMalloc(&D, OPERAND));
    MUST(cudaMalloc(&expected, OPERAND));
    MUST(cudaMalloc(&workspace, WORKSPACE));
    MUST(cudaMalloc((void **)&met, sizeof *met));
    MUST(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault, &found));
    fill_kernel<<<4096, 256>>>((bf16 *)A, OPERAND / 2, 1.0f, 1);
    fill_kernel<<<4096, 256>>>((bf16 *)B, OPERAND / 2, 0.02f, 77);
    if (!once) open_card();
    if (!once && !beside && !share) check_odd();
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        if (!wants_product(products[i].name, n, words)) continue;
        if (apart)
            tell_apart(&products[i], n, words);
        else if (beside)
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
