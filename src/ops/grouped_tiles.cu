/* grouped_tiles.cu - grouped_linear.cu's three products on the tensor cores, for bf16 with fp32 sums.
 *
 * A block of 8 warps makes a tile of the result at a time, 128 rows high; on Hopper 256 columns wide by wgmma, elsewhere 128 by
 * mma.sync. Operands come in steps of 64 along the summed dimension, each row by cp.async: rows of tokens are gathered here, in
 * the loader, and no permuted copy of them exists.  A few steps are on their way while one is multiplied; the first steps of
 * the next tile are, while the results of this one are stored.
 *
 *               left operand                 right operand             result
 *   forward     x rows, deep                 w rows, deep              y  rows (+ bias), bf16
 *   dx          dy rows, deep                w columns, wide           dx rows, bf16
 *   dw          dy columns, wide             x columns, wide           dw, fp32, added to or written
 *
 * On Hopper two blocks are a pair: they make tiles of neighbouring rows of one expert, and each brings half of the weights of a
 * step into both shared memories by the bulk copy engine (TMA).  What is loaded from L2, which would bound the products, is a
 * third less.  Of an odd last row tile they make neighbouring columns, each with its own weights.  Not for dw, where both
 * operands are rows of tokens.
 *
 * "Deep": the summed dimension runs along memory rows; a tile is 64 elements of each of its rows.  "Wide": memory rows run
 * across it; a tile is 64 memory rows in columns of 64 elements.  Either way shared memory has rows of 128 bytes in which
 * 16-byte pieces swap places by the row's last three bits: wgmma's swizzle, and no bank conflicts for ldmatrix.
 *
 * Every sum runs in ascending order of the summed index within one block: repeatable, and the same however experts are cut into
 * calls. Bytes moved: w once, rows once per tile column (from L2, mostly), results once; dw is read and written in fp32. */
#include "ops/attention_tiles.cuh"
#include "ops/grouped_linear.cuh"

#include <cuda.h>

enum { BM = 128, BK = 64, THREADS = 256, AHEAD = 2 }; /* steps on their way while one is multiplied */
enum { HOPPER_BN = 256, HOPPER_STAGES = 4, OTHER_BN = 128, OTHER_STAGES = 3 };

/* Tiles, what aligning them may take, and the table of row tiles. */
static size_t shared_bytes(bool hopper, int64_t c)
{
    size_t tiles = hopper ? (size_t)HOPPER_STAGES * (BM + HOPPER_BN) : (size_t)OTHER_STAGES * (BM + OTHER_BN);
    return tiles * BK * sizeof(bf16) + (hopper ? 1024 : 128) + (size_t)(c + 1) * sizeof(int32_t);
}

#if HAS_WGMMA
enum { BN = HOPPER_BN, STAGES = HOPPER_STAGES, STRIPS = 1, BLOCKS = 32, ALIGNMENT = 1024 };
#else
enum { BN = OTHER_BN, STAGES = OTHER_STAGES, STRIPS = 2, BLOCKS = 8, ALIGNMENT = 128 };
#endif
/* A warp's results: STRIPS strips of 16 rows, BLOCKS blocks of 8 columns each, in the registers both kinds of product leave
 * them in. */
typedef float results[STRIPS][BLOCKS][4];

/* -- bringing operands in -------------------------------------------------------------------------- */

/* A matrix: row i begins at base + (rows ? rows[i] : i) ld. */
typedef struct matrix {
    const bf16 *base;
    int64_t ld;
    const int32_t *rows; /* or NULL */
    int n_rows, n_cols;
    int e;     /* expert, of weights */
    bool both; /* and for both blocks of a pair */
} matrix;

template <grouped_product KIND> __device__ __forceinline__ matrix left_of(const mt_grouped_linear &a, const grouped_tile &t)
{
    bool is_x = KIND == FORWARD, gather = is_x ? a.gather_x : a.gather_dy;
    int64_t ld = is_x ? a.K : a.N;
    const bf16 *base = (const bf16 *)(is_x ? a.x : a.dy);
    return {
        gather ? base : base + t.begin * ld, ld, gather ? a.rows + a.offsets[a.e0] + t.begin : NULL, t.rows, (int)ld, 0, false
    };
}

template <grouped_product KIND> __device__ __forceinline__ matrix right_of(const mt_grouped_linear &a, const grouped_tile &t)
{
    if (KIND != TO_W) return { (const bf16 *)a.w + (int64_t)t.e * a.N * a.K, a.K, NULL, (int)a.N, (int)a.K, t.e, t.same_cols };
    const bf16 *base = (const bf16 *)a.x;
    return { a.gather_x ? base : base + t.begin * a.K,
             a.K,
             a.gather_x ? a.rows + a.offsets[a.e0] + t.begin : NULL,
             t.rows,
             (int)a.K,
             0,
             false };
}

/* Where element (r, k) of a deep tile is, and (k, r) of a wide one; the last index a multiple of 8. */
__device__ __forceinline__ int deep_at(int r, int k) { return r * BK + (k / 8 ^ r % 8) * 8; }
__device__ __forceinline__ int wide_at(int k, int r) { return r / 64 * BK * 64 + k * 64 + (r % 64 / 8 ^ k % 8) * 8; }

/* Loaders look up the first rows of a tile while the one before it is multiplied (foresee), so that its copies begin at once
 * (begin). */

/* SIZE rows of a matrix, deep: a thread has one piece of every 32nd row. */
template <int SIZE> struct deep_loader {
    enum { N = SIZE / 32 };
    const bf16 *row[N]; /* at this thread's piece; NULL: past the last row */
    const bf16 *base;
    int n_cols;
    int soon[N]; /* rows of the next tile; -1: past the last */

    __device__ __forceinline__ void foresee(const matrix &m, int row0)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            int r = row0 + threadIdx.x / 8 + 32 * i;
            soon[i] = r >= m.n_rows ? -1 : m.rows ? m.rows[r] : r;
        }
    }
    __device__ __forceinline__ void begin(const matrix &m, int)
    {
        base = m.base;
        n_cols = m.n_cols;
#pragma unroll
        for (int i = 0; i < N; i++) row[i] = soon[i] < 0 ? NULL : m.base + soon[i] * m.ld + threadIdx.x % 8 * 8;
    }
    __device__ __forceinline__ void fetch(bf16 *tile, int step, int)
    {
        int k = step * BK, r = threadIdx.x / 8;
        bool inside = k + (int)threadIdx.x % 8 * 8 < n_cols;
#pragma unroll
        for (int i = 0; i < N; i++) {
            bool wanted = inside && row[i];
            copy16(tile + deep_at(r + 32 * i, threadIdx.x % 8 * 8), wanted ? row[i] + k : base, wanted);
        }
    }
};

/* SIZE columns of a matrix, wide: a thread has one piece of every so manieth row.  The rows of the next step are looked up a step
 * ahead, so that no copy waits for its address. */
template <int SIZE> struct wide_loader {
    enum { PIECES = SIZE / 8, PASS = THREADS / PIECES, N = BK / PASS };
    matrix m;
    int col;
    int at[N], soon[N]; /* rows of the next step, and of the next tile's first; -1: past the last */

    static __device__ __forceinline__ void look(int found[N], const matrix &m, int step)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            int k = step * BK + threadIdx.x / PIECES + PASS * i;
            found[i] = k >= m.n_rows ? -1 : m.rows ? m.rows[k] : k;
        }
    }
    __device__ __forceinline__ void foresee(const matrix &next, int) { look(soon, next, 0); }
    __device__ __forceinline__ void begin(const matrix &from, int col0)
    {
        m = from;
        col = col0 + threadIdx.x % PIECES * 8;
#pragma unroll
        for (int i = 0; i < N; i++) at[i] = soon[i];
    }
    __device__ __forceinline__ void fetch(bf16 *tile, int step, int)
    {
        bool inside = col < m.n_cols;
#pragma unroll
        for (int i = 0; i < N; i++) {
            bool wanted = inside && at[i] >= 0;
            copy16(tile + wide_at(threadIdx.x / PIECES + PASS * i, threadIdx.x % PIECES * 8),
                   wanted ? m.base + at[i] * m.ld + col : m.base, wanted);
        }
        look(at, m, step + 1);
    }
};

/* Blocks that share the weights of a step. */
template <grouped_product KIND> __device__ constexpr int pair(void) { return HAS_WGMMA && KIND != TO_W ? 2 : 1; }

#if HAS_WGMMA

__device__ __forceinline__ void barrier_expect(uint64_t *b, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}

/* Waits for the barrier's phase of this parity. */
__device__ __forceinline__ void barrier_wait(uint64_t *b, int parity)
{
    asm volatile("{ .reg .pred yes; again: mbarrier.try_wait.parity.shared::cta.b64 yes, [%0], %1; @!yes bra again; }" ::"r"(
                     shared_address(b)),
                 "r"(parity)
                 : "memory");
    __syncwarp(); /* what follows wants whole warps */
}

/* A box of the tensor at (x, y, z) into this place of both blocks' shared memories; its bytes count for the barriers of both. */
__device__ __forceinline__ void copy_box_to_pair(bf16 *dst, const CUtensorMap *map, int x, int y, int z, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(dst)),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)), "h"((uint16_t)3)
                 : "memory");
}

__device__ __forceinline__ int rank_in_pair(void)
{
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int)rank;
}

/* The same into this block's shared memory alone. */
__device__ __forceinline__ void copy_box(bf16 *dst, const CUtensorMap *map, int x, int y, int z, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(dst)),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
                 : "memory");
}

/* The weights of a step.  For both blocks of a pair: this block brings half of them, and its barrier counts both halves. */
template <grouped_product KIND> struct pair_loader {
    const CUtensorMap *map;
    uint64_t *arrived; /* [STAGES] */
    int e, col0;
    bool both;

    __device__ __forceinline__ void foresee(const matrix &, int) {}
    __device__ __forceinline__ void begin(const matrix &m, int col)
    {
        e = m.e;
        both = m.both;
        col0 = col;
    }
    /* Columns c on of the tile, as many as a box has. */
    __device__ __forceinline__ void copy(bf16 *tile, int step, int c, uint64_t *barrier)
    {
        int x = KIND == FORWARD ? step * BK : col0 + c, y = KIND == FORWARD ? col0 + c : step * BK;
        if (both)
            copy_box_to_pair(tile + c * BK, map, x, y, e, barrier);
        else
            copy_box(tile + c * BK, map, x, y, e, barrier);
    }
    __device__ __forceinline__ void fetch(bf16 *tile, int step, int stage)
    {
        if (threadIdx.x == 0) {
            int from = both ? rank_in_pair() * BN / 2 : 0, to = both ? from + BN / 2 : BN;
            barrier_expect(&arrived[stage], BN * BK * (int)sizeof(bf16));
            for (int c = from; c < to; c += KIND == FORWARD ? BN / 2 : 64) copy(tile, step, c, &arrived[stage]);
        }
        __syncwarp();
    }
};

__device__ __forceinline__ void sync_pair(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The barriers of all stages, before anything is copied. */
__device__ __forceinline__ void init_barriers(uint64_t *arrived)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived[i])) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    sync_pair();
}

#endif

template <grouped_product KIND> struct loaders;
#if HAS_WGMMA
template <> struct loaders<FORWARD> {
    deep_loader<BM> left;
    pair_loader<FORWARD> right;
};
template <> struct loaders<TO_X> {
    deep_loader<BM> left;
    pair_loader<TO_X> right;
};
#else
template <> struct loaders<FORWARD> {
    deep_loader<BM> left;
    deep_loader<BN> right;
};
template <> struct loaders<TO_X> {
    deep_loader<BM> left;
    wide_loader<BN> right;
};
#endif
template <> struct loaders<TO_W> {
    wide_loader<BM> left;
    wide_loader<BN> right;
};

__device__ __forceinline__ bf16 *left_tile(bf16 *tiles, int stage) { return tiles + stage * (BM + BN) * BK; }
__device__ __forceinline__ bf16 *right_tile(bf16 *tiles, int stage) { return left_tile(tiles, stage) + BM * BK; }

/* -- multiplying ----------------------------------------------------------------------------------- */

#if HAS_WGMMA

/* d [64, 256] = (or +=) a [64, 16] b; both in shared memory, deep or wide. */
template <int WIDE_A, int WIDE_B> __device__ __forceinline__ void wgmma_256(float d[][4], uint64_t a, uint64_t b, bool more)
{
    asm volatile("{ .reg .pred more; setp.ne.b32 more, %130, 0;"
                 " wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" REGS_127 "}, %128, %129, more, 1, 1, %131, %132; }"
                 : ACC_32(d, 0)
                 : "l"(a), "l"(b), "r"((int)more), "n"(WIDE_A), "n"(WIDE_B));
}

/* Starts the products of a step; `first`: nothing was summed before. */
template <grouped_product KIND>
__device__ __forceinline__ void multiply_step(results acc, const bf16 *left, const bf16 *right, bool first)
{
    constexpr int WIDE_A = KIND == TO_W, WIDE_B = KIND != FORWARD;
    const bf16 *mine = left + threadIdx.x / 128 * 64 * BK; /* rows of 64, or the column of 64 */
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < BK; k += 16)
        wgmma_256<WIDE_A, WIDE_B>(acc[0], describe(mine + (WIDE_A ? k * 64 : k), WIDE_A ? BK * 128 : 16),
                                  describe(right + (WIDE_B ? k * 64 : k), WIDE_B ? BK * 128 : 16), !first || k > 0);
    wgmma_commit();
}

/* All products but the last step's are done; all are, and the results may be read. */
__device__ __forceinline__ void multiplied_but_one(void) { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }
__device__ __forceinline__ void multiplied(results acc) { finish<64, 0, BLOCKS>(acc[0]); }

#else

/* The left operand's 16 rows from row on, the right one's 16 columns from col on, both 16 deep from k on. */
template <bool WIDE> __device__ __forceinline__ void left_operand(uint32_t r[4], const bf16 *tile, int row, int k, int lane)
{
    if (WIDE)
        ldmatrix_trans(r, tile + wide_at(k + lane / 16 * 8 + lane % 8, row + lane / 8 % 2 * 8));
    else
        ldmatrix(r, tile + deep_at(row + lane % 16, k + lane / 16 * 8));
}
template <bool WIDE> __device__ __forceinline__ void right_operand(uint32_t r[4], const bf16 *tile, int col, int k, int lane)
{
    if (WIDE)
        ldmatrix_trans(r, tile + wide_at(k + lane % 16, col + lane / 16 * 8));
    else
        ldmatrix(r, tile + deep_at(col + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
}

template <grouped_product KIND>
__device__ __forceinline__ void multiply_step(results acc, const bf16 *left, const bf16 *right, bool first)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = warp / 2 * 32, col = warp % 2 * 64;
    if (first)
#pragma unroll
        for (int s = 0; s < STRIPS; s++) clear<BLOCKS>(acc[s]);
#pragma unroll
    for (int k = 0; k < BK; k += 16) {
        uint32_t a[STRIPS][4], b[4];
#pragma unroll
        for (int s = 0; s < STRIPS; s++) left_operand<KIND == TO_W>(a[s], left, row + 16 * s, k, lane);
#pragma unroll
        for (int n = 0; n < BLOCKS; n += 2) {
            right_operand<KIND != FORWARD>(b, right, col + n * 8, k, lane);
#pragma unroll
            for (int s = 0; s < STRIPS; s++) {
                mma(acc[s][n], a[s], b[0], b[1]);
                mma(acc[s][n + 1], a[s], b[2], b[3]);
            }
        }
    }
}

__device__ __forceinline__ void multiplied_but_one(void) {}
__device__ __forceinline__ void multiplied(results) {}

#endif

__device__ __forceinline__ void clear_results(results acc)
{
#pragma unroll
    for (int s = 0; s < STRIPS; s++) clear<BLOCKS>(acc[s]);
}

/* -- storing --------------------------------------------------------------------------------------- */

/* Lane q of four has v[j] = piece q of block j; afterwards v[j] = piece j of block q. */
__device__ __forceinline__ void transpose_quad(uint32_t v[4])
{
    bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    uint32_t p = __shfl_xor_sync(0xffffffffu, high ? v[0] : v[2], 2), q = __shfl_xor_sync(0xffffffffu, high ? v[1] : v[3], 2);
    (high ? v[0] : v[2]) = p;
    (high ? v[1] : v[3]) = q;
    p = __shfl_xor_sync(0xffffffffu, odd ? v[0] : v[1], 1), q = __shfl_xor_sync(0xffffffffu, odd ? v[2] : v[3], 1);
    (odd ? v[0] : v[1]) = p;
    (odd ? v[2] : v[3]) = q;
}

/* 16 rows of bf16 results: four blocks of columns at a time change lanes, so that each lane stores 16 bytes. */
__device__ __forceinline__ void store_strip(bf16 *out, int64_t ld, int row, int n_rows, int col, int n_cols, const bf16 *bias,
                                            const float acc[][4])
{
    int lane = threadIdx.x % 32, pair = lane % 4 * 2;
    row += lane / 4;
#pragma unroll
    for (int n = 0; n < BLOCKS; n += 4) {
        uint32_t low[4], high[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int c = col + (n + j) * 8 + pair;
            bool has = bias && c < n_cols;
            float b0 = has ? to_f32(bias[c]) : 0.0f, b1 = has ? to_f32(bias[c + 1]) : 0.0f;
            low[j] = pack(acc[n + j][0] + b0, acc[n + j][1] + b1);
            high[j] = pack(acc[n + j][2] + b0, acc[n + j][3] + b1);
        }
        transpose_quad(low);
        transpose_quad(high);
        int c = col + (n + lane % 4) * 8;
        if (c >= n_cols) continue;
        if (row < n_rows) *(uint4 *)(out + row * ld + c) = make_uint4(low[0], low[1], low[2], low[3]);
        if (row + 8 < n_rows) *(uint4 *)(out + (row + 8) * ld + c) = make_uint4(high[0], high[1], high[2], high[3]);
    }
}

/* 16 rows of a weight gradient.  What is added to is read in batches: loads that wait for each other would take longer than the
 * rest. */
__device__ __forceinline__ void store_sums(const mt_grouped_linear &a, float *dw, int row, int col, const float acc[][4])
{
    enum { BATCH = 4 };
    int lane = threadIdx.x % 32;
    row += lane / 4;
    col += lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < BLOCKS; n += BATCH) {
        float2 was[BATCH][2];
#pragma unroll
        for (int i = 0; i < 2 * BATCH; i++) {
            int r = row + i % 2 * 8, c = col + (n + i / 2) * 8;
            was[i / 2][i % 2] = make_float2(0, 0);
            if (!a.dw_set && r < a.N && c < a.K) was[i / 2][i % 2] = *(const float2 *)(dw + r * a.K + c);
        }
#pragma unroll
        for (int i = 0; i < 2 * BATCH; i++) {
            int r = row + i % 2 * 8, c = col + (n + i / 2) * 8;
            const float *x = acc[n + i / 2] + i % 2 * 2;
            if (r < a.N && c < a.K)
                *(float2 *)(dw + r * a.K + c) = make_float2(was[i / 2][i % 2].x + x[0], was[i / 2][i % 2].y + x[1]);
        }
    }
}

/* The part of dw that this tile will add to, brought to L2 while its products are made. */
__device__ __forceinline__ void expect_sums(const mt_grouped_linear &a, const grouped_tile &t)
{
    enum { LINE = 32, PER_ROW = BN / LINE }; /* floats in a line of memory */
    if (a.dw_set || t.rows == 0) return;
    const float *dw = a.dw + (int64_t)t.e * a.N * a.K;
    for (int at = threadIdx.x; at < BM * PER_ROW; at += THREADS) {
        int r = t.row0 + at / PER_ROW, c = t.col0 + at % PER_ROW * LINE;
        if (r < a.N && c < a.K) asm volatile("prefetch.global.L2 [%0];" ::"l"(dw + r * a.K + c));
    }
}

template <grouped_product KIND>
__device__ __forceinline__ void store_tile(const mt_grouped_linear &a, const grouped_tile &t, results acc)
{
    int warp = threadIdx.x / 32, columns = BN / (BLOCKS * 8); /* warps side by side */
    if (KIND == TO_W && t.rows == 0 && !a.dw_set) return;
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
        int row = t.row0 + (warp / columns * STRIPS + s) * 16, col = t.col0 + warp % columns * BLOCKS * 8;
        if (KIND == TO_W)
            store_sums(a, a.dw + (int64_t)t.e * a.N * a.K, row, col, acc[s]);
        else if (KIND == FORWARD)
            store_strip((bf16 *)a.y + t.begin * a.N, a.N, row, t.rows, col, (int)a.N,
                        a.b ? (const bf16 *)a.b + (int64_t)t.e * a.N : NULL, acc[s]);
        else
            store_strip((bf16 *)a.dx + t.begin * a.K, a.K, row, t.rows, col, (int)a.K, NULL, acc[s]);
    }
}

/* -- the kernel ------------------------------------------------------------------------------------ */

template <grouped_product KIND> __device__ __forceinline__ int steps_of(const mt_grouped_linear &a, const grouped_tile &t)
{
    int depth = KIND == TO_W ? t.rows : (int)(KIND == FORWARD ? a.K : a.N);
    return (depth + BK - 1) / BK;
}

/* Every thread that shares tiles is here: of the block, or of the pair. */
template <grouped_product KIND> __device__ __forceinline__ void meet(void)
{
#if HAS_WGMMA
    if constexpr (pair<KIND>() == 2) {
        sync_pair();
        return;
    }
#endif
    __syncthreads();
}

/* Step `step` of a tile on its way into the stage of turn `turn`; a group of copies, even where there is no such step. */
template <grouped_product KIND>
__device__ __forceinline__ void fetch_step(loaders<KIND> &in, bf16 *tiles, int step, int steps, int turn)
{
    if (step < steps) {
        in.left.fetch(left_tile(tiles, turn % STAGES), step, turn % STAGES);
        in.right.fetch(right_tile(tiles, turn % STAGES), step, turn % STAGES);
    }
    copies_commit();
}

template <grouped_product KIND>
__device__ __forceinline__ void foresee_tile(loaders<KIND> &in, const mt_grouped_linear &a, const grouped_tile &t)
{
    in.left.foresee(left_of<KIND>(a, t), t.row0);
    in.right.foresee(right_of<KIND>(a, t), t.col0);
    if (KIND == TO_W) expect_sums(a, t);
}

template <grouped_product KIND>
__device__ __forceinline__ void begin_tile(loaders<KIND> &in, const mt_grouped_linear &a, const grouped_tile &t, bf16 *tiles,
                                           int turn)
{
    int steps = steps_of<KIND>(a, t);
    in.left.begin(left_of<KIND>(a, t), t.row0);
    in.right.begin(right_of<KIND>(a, t), t.col0);
#pragma unroll
    for (int step = 0; step < AHEAD; step++) fetch_step<KIND>(in, tiles, step, steps, turn + step);
}

/* The operands of turn `turn` are there, for every thread and the tensor cores; and all are done with the stage that is filled
 * next. */
template <grouped_product KIND> __device__ __forceinline__ void step_arrives(loaders<KIND> &in, int turn)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
#if HAS_WGMMA
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if constexpr (pair<KIND>() == 2) barrier_wait(&in.right.arrived[turn % STAGES], turn / STAGES & 1);
#endif
    meet<KIND>();
}

template <grouped_product KIND> __device__ __forceinline__ grouped_cut cut_of(const mt_grouped_linear &a)
{
    int rank = 0;
#if HAS_WGMMA
    if (pair<KIND>() == 2) rank = rank_in_pair();
#endif
    return { BM, BN, (int)(((KIND == FORWARD ? a.N : a.K) + BN - 1) / BN), pair<KIND>(), rank };
}

template <grouped_product KIND>
__global__ void __launch_bounds__(THREADS, 1) tiles_kernel(mt_grouped_linear a, const __grid_constant__ CUtensorMap weights)
{
    extern __shared__ unsigned char memory[];
    bf16 *tiles = (bf16 *)(memory + (ALIGNMENT - shared_address(memory) % ALIGNMENT) % ALIGNMENT);
    int32_t *starts = (int32_t *)(tiles + STAGES * (BM + BN) * BK);
    grouped_cut cut = cut_of<KIND>(a);
    if (KIND != TO_W) count_tiles(starts, a, cut);
    int n_tiles = all_tiles<KIND>(a, starts, cut), at = blockIdx.x / pair<KIND>(), turn = 0; /* steps so far, of all tiles */
    if (at >= n_tiles) return;
    grouped_tile t = find_tile<KIND>(a, starts, cut, at), next = t;
    loaders<KIND> in;
#if HAS_WGMMA
    __shared__ uint64_t arrived[STAGES];
    if constexpr (pair<KIND>() == 2) {
        in.right.map = &weights;
        in.right.arrived = arrived;
        init_barriers(arrived);
    }
#endif
    foresee_tile<KIND>(in, a, t);
    begin_tile<KIND>(in, a, t, tiles, turn);
    for (; at < n_tiles; t = next) {
        results acc;
        int steps = steps_of<KIND>(a, t);
        at += gridDim.x / pair<KIND>();
        if (steps == 0) clear_results(acc); /* an expert without rows: its sums are zero */
        for (int step = 0; step < steps || step == 0; step++) {
            if (step < steps) {
                step_arrives<KIND>(in, turn);
                /* wgmma only begins here, and copies must not delay it; mma.sync ends here, and copies should not wait for it */
                if (!HAS_WGMMA) fetch_step<KIND>(in, tiles, step + AHEAD, steps, turn + AHEAD);
                multiply_step<KIND>(acc, left_tile(tiles, turn % STAGES), right_tile(tiles, turn % STAGES), step == 0);
                if (HAS_WGMMA) fetch_step<KIND>(in, tiles, step + AHEAD, steps, turn + AHEAD);
                turn++;
            }
            if (step == 0 && at < n_tiles) {
                next = find_tile<KIND>(a, starts, cut, at);
                foresee_tile<KIND>(in, a, next);
            }
            multiplied_but_one();
        }
        multiplied(acc);
        if (at < n_tiles) {
            meet<KIND>();
            begin_tile<KIND>(in, a, next, tiles, turn);
        }
        store_tile<KIND>(a, t, acc);
    }
}

/* -- from the host --------------------------------------------------------------------------------- */

bool mt__grouped_fits_tiles(mt_stream *s, const mt_grouped_linear *a, grouped_product kind)
{
    const mt_cuda_device *d = mt_cuda_device_of(s);
    const void *left = kind == FORWARD ? a->x : a->dy, *right = kind == TO_W ? a->x : a->w;
    const void *to = kind == FORWARD ? a->y : kind == TO_X ? a->dx : (const void *)a->dw;
    return a->t == MT_DTYPE_BF16 && a->N % 8 == 0 && a->K % 8 == 0 && is_aligned(left, 16) && is_aligned(right, 16) &&
           is_aligned(to, 16) && shared_bytes(d->hopper, a->c) <= d->shared_bytes;
}

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                              const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function that describes a tensor to the copy engine; NULL: it has none. */
static encode_fn find_encode(void)
{
    void *fn = NULL;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000, cudaEnableDefault, &found);
#else
    cudaError_t status = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &fn, cudaEnableDefault, &found);
#endif
    return status == cudaSuccess && found == cudaDriverEntryPointSuccess ? (encode_fn)fn : NULL;
}

/* The weights [c, N, K] in boxes of 64 along K: for forward of half a tile's rows, for dx of a step's. */
static mt_rc describe_weights(CUtensorMap *map, const mt_grouped_linear *a, grouped_product kind, mt_err *err)
{
    encode_fn encode = find_encode();
    cuuint64_t size[3] = { (cuuint64_t)a->K, (cuuint64_t)a->N, (cuuint64_t)a->c };
    cuuint64_t stride[2] = { (cuuint64_t)a->K * sizeof(bf16), (cuuint64_t)(a->N * a->K) * sizeof(bf16) };
    cuuint32_t box[3] = { 64, (cuuint32_t)(kind == FORWARD ? HOPPER_BN / 2 : BK), 1 }, one[3] = { 1, 1, 1 };
    if (!encode)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "products of experts need cuTensorMapEncodeTiled, which this driver lacks; update the driver");
    CUresult status =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)a->w, size, stride, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status == CUDA_SUCCESS) return MT_OK;
    return mt_fail(err, MT_EINTERNAL, "cannot describe weights of %lld experts, %lld x %lld, to the copy engine: status %d",
                   (long long)a->c, (long long)a->N, (long long)a->K, (int)status);
}

template <grouped_product KIND> static mt_rc launch(mt_stream *s, const mt_grouped_linear *a, mt_err *err)
{
    const mt_cuda_device *d = mt_cuda_device_of(s);
    bool pairs = d->hopper && KIND != TO_W;
    size_t shared = shared_bytes(d->hopper, a->c);
    CUtensorMap map = {};
    if (pairs) MT_TRY(describe_weights(&map, a, KIND, err));
    MT_TRY(mt__cuda_check(s->dev,
                          cudaFuncSetAttribute(tiles_kernel<KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                          "shared memory for products of experts", err));
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 2;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = dim3((unsigned)(pairs ? d->n_sms / 2 * 2 : d->n_sms));
    how.blockDim = dim3(THREADS);
    how.dynamicSmemBytes = shared;
    how.stream = mt_cuda_raw(s);
    how.attrs = &cluster;
    how.numAttrs = pairs ? 1 : 0;
    return mt__cuda_check(s->dev, cudaLaunchKernelEx(&how, tiles_kernel<KIND>, *a, map), "a product of experts", err);
}

mt_rc mt__grouped_by_tiles(mt_stream *s, const mt_grouped_linear *a, grouped_product kind, mt_err *err)
{
    if (kind == FORWARD) return launch<FORWARD>(s, a, err);
    return kind == TO_X ? launch<TO_X>(s, a, err) : launch<TO_W>(s, a, err);
}
