/* dense_tiles.cuh - a dense product by wgmma, in tiles and clusters of several sizes: D [M, N] = A B' (+ bias) (+ C), fp32 sums of bf16.
 *
 *               A [M, K]                B [N, K]              D
 *   forward     x rows, deep            w rows, deep          y  rows (+ bias) (+ C), bf16
 *   dx          dy rows, deep           w columns, wide       dx rows (+ C), bf16
 *   dw          dy columns, wide        x columns, wide       dw, fp32, added to or written
 *
 * ("Deep" and "wide": grouped_tiles.cuh.)  A block makes a tile of BM x BN.  One thread asks the copy engine for operands, 64 deep at
 * a time, up to STAGES ahead and across tiles; two or three teams multiply.  Blocks of a cluster share operands by multicast.  C
 * comes through the same stages as operands, after the last of them: a stage for each team's rows.
 *
 *   full[stage]    what it was asked for has arrived
 *   empty[stage]   every team that reads this block's part of it, in this block and its cluster, is done
 *
 * On a card at its power limit energy decides the speed, and reading operands costs the most energy that can be saved.  So tiles are
 * large, blocks walk through the tiles panel by panel, and all blocks meet every few steps: then most of them read the same columns at
 * the same time, from the L2 cache.  Results never depend on a meeting: a block waits only for a short time.
 *
 * One team computes each sum, in ascending order of the summed index.  So tile and cluster sizes do not change its bits. */
#ifndef MT_OPS_DENSE_TILES_CUH
#define MT_OPS_DENSE_TILES_CUH

#include "ops/grouped_tiles.cuh"
#include "ops/hopper.cuh"

typedef enum dense_product { DENSE_FORWARD, DENSE_DX, DENSE_DW } dense_product;

/* How blocks walk. */
typedef struct dense_walk {
    int panel; /* rows of units that are walked column by column; even */
    int every; /* 0, or: all blocks meet every N steps of 64 summed numbers */
    int slack; /* meetings that a block may be ahead of the mean of all */
} dense_walk;

/* A unit is the smallest piece of the walk: unit_rows x CN tiles.  A cluster takes one unit at a time, or two. */
typedef struct dense_args {
    bf16 *d;
    int64_t ldd;
    const bf16 *bias; /* or NULL */
    bool adds;        /* C; of dw: to what is there */
    int M, N, K;
    dense_walk how;
    unsigned *met; /* sum of all blocks' meetings, and 2^20 for each block that has left; zero before the launch */
    int unit_rows;
    int per_round; /* units that all blocks make at a time */
    int blocks;    /* that take part in meetings */
    int first;     /* unit of this launch's first block */
} dense_args;

typedef struct dense_maps {
    CUtensorMap a, b, c; /* c: C; of dw: D */
} dense_maps;

/* BM = 64 HALVES TEAMS rows: each of TEAMS warpgroups has HALVES times 64.  Clusters of CM x CN blocks. */
template <int HALVES, int TEAMS, int COLS, int CM, int CN, dense_product KIND> struct dense_shape {
    enum {
        BM = 64 * HALVES * TEAMS,
        BN = COLS,
        STAGE = (BM + BN) * BK,
        TEAM_ROWS = 64 * HALVES,
        BOX_FLOATS = KIND == DENSE_DW ? TEAMS * 4 * BOX * BOX : 0, /* two pairs of warps a team, two boxes a pair */
        ROOM = 232448 - 1024 - BOX_FLOATS * 4 - 256,
        STAGES = ROOM / (STAGE * 2) > 6 ? 6 : ROOM / (STAGE * 2),
        BYTES = STAGES * STAGE * 2 + BOX_FLOATS * 4 + 2 * STAGES * 8 + 1024,
        THREADS = 128 * (TEAMS + 1),
        CLUSTER = CM * CN
    };
    static_assert(STAGES >= 3, "too few stages to hide the copies");
    static_assert(TEAM_ROWS * BN <= STAGE, "a team's rows of C fill a stage at most");
};

#if HAS_WGMMA

/* -- copies and products --------------------------------------------------------------------------- */

/* A box of a matrix to this block, or (MANY) to the same place in all blocks of the mask. */
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

/* C comes without multicast, so this block's mates get nothing from it in such a stage.  It sends them a token instead: TOKEN bytes that
 * their barriers expect.  Without it, a mate could report the stage free twice within one phase of this block's barrier. */
static constexpr int TOKEN = 16;
template <int CM, int CN> __device__ __forceinline__ void tell_mates(uint64_t *full, int ci, int cj)
{
#pragma unroll
    for (int rank = 0; rank < CM * CN; rank++)
        if ((rank / CN == ci) != (rank % CN == cj))
            asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;"
                         " mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [there], %2; }" ::"r"(shared_address(full)),
                         "r"(rank), "r"(TOKEN)
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
    static_assert(COLS == 128 || COLS == 192 || COLS == 256, "no product of this width");
    if constexpr (COLS == 128) MMA("128", REGS_63, ACC_16(d, 0), "%64", "%65", "%66", "%67", "%68");
    if constexpr (COLS == 192) MMA("192", REGS_95, ACC_24(d, 0), "%96", "%97", "%98", "%99", "%100");
    if constexpr (COLS == 256) MMA("256", REGS_127, ACC_32(d, 0), "%128", "%129", "%130", "%131", "%132");
}

/* -- the walk -------------------------------------------------------------------------------------- */

/* Units as a grid that blocks walk through panel by panel, per_round at a time.  A cluster of two units takes neighbors of one column, so
 * the number of rows is even, and the height of a panel must be. */
typedef struct grid_walk {
    int rows, cols, n, panel;
} grid_walk;

template <typename S, int CN> __device__ __forceinline__ grid_walk walk_of(const dense_args &a)
{
    int high = S::BM * a.unit_rows, rows = (a.M + high - 1) / high, cols = (a.N + S::BN * CN - 1) / (S::BN * CN);
    rows += rows % 2;
    return { rows, cols, rows * cols, a.how.panel };
}

__device__ __forceinline__ void unit_at(const grid_walk &w, int t, int *row, int *col)
{
    int p = t / (w.panel * w.cols), in = t - p * w.panel * w.cols, high = min(w.panel, w.rows - p * w.panel);
    *row = p * w.panel + in % high;
    *col = in / high;
}

/* What a block knows of the others' progress. */
typedef struct meeting {
    int times, seen; /* meetings of this block; of all blocks, when last read */
    bool late;       /* the others did not come to the last one in time: this block does not wait until they have caught up */
} meeting;

__device__ __forceinline__ int read_met(const unsigned *met)
{
    unsigned seen;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(met));
    return (int)seen;
}

/* Counts this block, then waits until the mean of all blocks is at most `slack` meetings short of it, for about 50 us at most. */
__device__ __forceinline__ void meet(meeting *m, const dense_args &a)
{
    int all = a.blocks * (++m->times - a.how.slack);
    atomicAdd(a.met, 1);
    for (int i = 0; i < 64 && m->seen < all && !m->late; i++) m->seen = read_met(a.met);
    m->late = m->seen < all;
    m->seen = read_met(a.met); /* for the next meeting: its answer arrives in the meantime */
}

/* This block has no more tiles, but others have: it counts so much that none of them waits any longer. */
__device__ __forceinline__ void leave_meetings(const dense_args &a)
{
    if (a.how.every) atomicAdd(a.met, 1u << 20);
}

/* -- results --------------------------------------------------------------------------------------- */

__device__ __forceinline__ void send_sums(const CUtensorMap *map, const float *box, int row, int col, bool adds)
{
    if (adds)
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                     "r"(col), "r"(row), "r"(shared_address(box))
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(col),
                     "r"(row), "r"(shared_address(box))
                     : "memory");
}

/* Sums of dw.  Each pair of warps has 32 rows and two boxes, which its warps send in turns: when a warp's turn comes, it waits until
 * the copy engine has read the box that it sent before, whose memory is this one's. */
template <int BLOCKS>
__device__ __forceinline__ void store_sums(const float acc[][4], const CUtensorMap *map, float *boxes, int row, int col,
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
        if (row < a.M && col + n * BOX < a.N) send_sums(map, box, row, col + n * BOX, a.adds);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
}

/* A warp's rows: 16 of every 64 of its team.  c: the first of them in a stage that holds the team's rows of C, or NULL. */
template <int HALVES, typename S>
__device__ __forceinline__ void store_rows(const dense_args &a, const float acc[][S::BN / 8][4], int row, int col, const bf16 *c)
{
#pragma unroll
    for (int h = 0; h < HALVES; h++)
        store_strip<S::BN / 8, S::TEAM_ROWS>(a.d, a.ldd, row + h * 64, a.M, col, a.N, a.bias, acc[h], c ? c + h * 64 * 64 : NULL);
}

/* -- a block --------------------------------------------------------------------------------------- */

/* Where in the ring of stages a warpgroup is; parity: of how often it went round. */
template <int STAGES> struct stage_ring {
    int stage, parity;
    __device__ __forceinline__ void advance(void)
    {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

/* What all threads of a block know. */
template <typename S> struct dense_block {
    bf16 *tiles;
    float *boxes;
    uint64_t *full, *empty;
    int ci, cj; /* its row and column in its cluster */
    grid_walk walk;
    int steps, first;
};

/* One thread: asks for everything that the block's tiles need. */
template <int HALVES, int TEAMS, int COLS, int CM, int CN, dense_product KIND>
__device__ __forceinline__ void ask_for_tiles(const dense_args &a, const dense_maps &maps,
                                              const dense_block<dense_shape<HALVES, TEAMS, COLS, CM, CN, KIND>> &b)
{
    typedef dense_shape<HALVES, TEAMS, COLS, CM, CN, KIND> S;
    constexpr int WIDE_A = KIND == DENSE_DW, WIDE_B = KIND != DENSE_FORWARD;
    const int more = KIND != DENSE_DW && a.adds ? TEAMS : 0; /* steps that bring C */
    uint16_t row_mates = (uint16_t)(((1 << CN) - 1) << (b.ci * CN)), col_mates = 0;
    stage_ring<S::STAGES> at = { 0, 0 };
    meeting m = { 0, 0, false };
    int until = a.how.every; /* steps before the next meeting */
#pragma unroll
    for (int i = 0; i < CM; i++) col_mates |= (uint16_t)(1 << (i * CN + b.cj));
    for (int t = b.first; t - t % a.per_round < b.walk.n; t += a.per_round) {
        if (t >= b.walk.n) return leave_meetings(a);
        int row, col;
        unit_at(b.walk, t, &row, &col);
        row = (row * a.unit_rows + b.ci) * S::BM, col = (col * CN + b.cj) * S::BN;
        for (int step = 0; step < b.steps + more; step++, at.advance()) {
            if (a.how.every && --until < 0) {
                meet(&m, a);
                until = a.how.every - 1;
            }
            bf16 *left = b.tiles + at.stage * S::STAGE, *right = left + S::BM * BK;
            uint64_t *full = &b.full[at.stage];
            barrier_wait(&b.empty[at.stage], at.parity ^ 1);
            if (KIND != DENSE_DW && step >= b.steps) {
                barrier_expect(full, S::TEAM_ROWS * S::BN * 2 + TOKEN * (CM + CN - 2));
                tell_mates<CM, CN>(full, b.ci, b.cj);
#pragma unroll
                for (int n = 0; n < S::BN; n += 64)
                    copy_box<false>(left + n * S::TEAM_ROWS, &maps.c, full, col + n, row + (step - b.steps) * S::TEAM_ROWS, 0);
                continue;
            }
            const int depth = step * BK;
            barrier_expect(full, S::STAGE * 2);
            if (WIDE_A) {
                const int from = b.cj * (BK / CN);
#pragma unroll
                for (int n = 0; n < S::BM; n += 64)
                    copy_box<(CN > 1)>(left + n * BK + from * 64, &maps.a, full, row + n, depth + from, row_mates);
            } else {
                const int from = b.cj * (S::BM / CN);
                copy_box<(CN > 1)>(left + from * BK, &maps.a, full, depth, row + from, row_mates);
            }
            if (WIDE_B) {
                const int from = b.ci * (BK / CM);
#pragma unroll
                for (int n = 0; n < S::BN; n += 64)
                    copy_box<(CM > 1)>(right + n * BK + from * 64, &maps.b, full, col + n, depth + from, col_mates);
            } else {
                const int from = b.ci * (S::BN / CM);
                copy_box<(CM > 1)>(right + from * BK, &maps.b, full, depth, col + from, col_mates);
            }
        }
    }
}

/* One team: its rows of the block's tiles. */
template <int HALVES, int TEAMS, int COLS, int CM, int CN, dense_product KIND>
__device__ __forceinline__ void make_tiles(const dense_args &a, const dense_maps &maps,
                                           const dense_block<dense_shape<HALVES, TEAMS, COLS, CM, CN, KIND>> &b)
{
    typedef dense_shape<HALVES, TEAMS, COLS, CM, CN, KIND> S;
    constexpr int WIDE_A = KIND == DENSE_DW, WIDE_B = KIND != DENSE_FORWARD;
    const int team = threadIdx.x / 128 - 1, warp = threadIdx.x % 128 / 32;
    /* The block that this thread tells when a stage is free: those of its row, then the others of its column. */
    const int whom = warp + 4 * (threadIdx.x % 32), other = whom - CN < b.ci ? whom - CN : whom - CN + 1;
    const int dest = whom < CN ? b.ci * CN + whom : other * CN + b.cj;
    const bool tells = whom < CM + CN - 1;
    stage_ring<S::STAGES> at = { 0, 0 };
    for (int t = b.first; t < b.walk.n; t += a.per_round) {
        int row, col;
        unit_at(b.walk, t, &row, &col);
        row = (row * a.unit_rows + b.ci) * S::BM, col = (col * CN + b.cj) * S::BN;
        float acc[HALVES][S::BN / 8][4];
        int before = 0;
        for (int step = 0; step < b.steps; step++, at.advance()) {
            const bf16 *left = b.tiles + at.stage * S::STAGE + team * S::TEAM_ROWS * BK,
                       *right = b.tiles + at.stage * S::STAGE + S::BM * BK;
            barrier_wait(&b.full[at.stage], at.parity);
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
                if (tells) barrier_arrive_at(&b.empty[before], dest);
            }
            before = at.stage;
        }
#pragma unroll
        for (int h = 0; h < HALVES; h++) finish<64, 0, S::BN / 8>(acc[h]);
        if (tells) barrier_arrive_at(&b.empty[before], dest);
        if constexpr (KIND == DENSE_DW) {
#pragma unroll
            for (int h = 0; h < HALVES; h++)
                store_sums<S::BN / 8>(acc[h], &maps.c, b.boxes, row + (team * HALVES + h) * 64, col, a);
        } else if (!a.adds) {
            store_rows<HALVES, S>(a, acc, row + team * S::TEAM_ROWS + warp * 16, col, NULL);
        } else {
            for (int of = 0; of < TEAMS; of++, at.advance()) { /* the team whose rows of C the stage holds */
                barrier_wait(&b.full[at.stage], at.parity);
                if (of == team) {
                    store_rows<HALVES, S>(a, acc, row + team * S::TEAM_ROWS + warp * 16, col,
                                          b.tiles + at.stage * S::STAGE + warp * 16 * 64);
                    asm volatile("bar.sync %0, 128;" ::"r"(1 + team) : "memory"); /* all of the team have read C */
                }
                if (tells) barrier_arrive_at(&b.empty[at.stage], dest);
            }
        }
    }
    if (KIND == DENSE_DW) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#endif

/* -- the kernel ------------------------------------------------------------------------------------ */

template <int HALVES, int TEAMS, int COLS, int CM, int CN, dense_product KIND>
__global__ void __launch_bounds__(128 * (TEAMS + 1), 1) dense_kernel(dense_args a, const __grid_constant__ dense_maps maps)
{
#if HAS_WGMMA
    typedef dense_shape<HALVES, TEAMS, COLS, CM, CN, KIND> S;
    extern __shared__ unsigned char memory[];
    dense_block<S> b;
    b.tiles = aligned_shared(memory);
    b.boxes = (float *)(b.tiles + S::STAGES * S::STAGE);
    b.full = (uint64_t *)(b.boxes + S::BOX_FLOATS);
    b.empty = b.full + S::STAGES;
    b.ci = blockIdx.x % S::CLUSTER / CN, b.cj = blockIdx.x % CN;
    b.walk = walk_of<S, CN>(a);
    b.steps = (a.K + BK - 1) / BK;
    b.first = a.first + blockIdx.x / S::CLUSTER * (CM / a.unit_rows);
    asm volatile("griddepcontrol.launch_dependents;"); /* a second launch may begin beside this one */
    if (threadIdx.x < S::STAGES) {
        barrier_begin(&b.full[threadIdx.x], 1);
        barrier_begin(&b.empty[threadIdx.x], TEAMS * (CM + CN - 1));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
    cluster_sync();
    if (threadIdx.x < 128) {
        if (TEAMS == 3)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        else
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) ask_for_tiles<HALVES, TEAMS, COLS, CM, CN, KIND>(a, maps, b);
        __syncwarp();
    } else {
        if (TEAMS == 3)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
        else
            asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        make_tiles<HALVES, TEAMS, COLS, CM, CN, KIND>(a, maps, b);
    }
    asm volatile("griddepcontrol.wait;" ::: "memory"); /* what follows this launch also follows the first one */
    cluster_sync();                                    /* no block exits while others write its memory or signal its barriers */
#endif
}

#endif
