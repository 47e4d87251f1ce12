/* grouped_tiles.cu - grouped_linear.cu's three products on the tensor cores, for bf16 with fp32 sums.
 *
 * A block of 8 warps makes a tile of the result at a time, 128 rows high; on Hopper 256 columns wide by wgmma, elsewhere 128 by mma.sync.
 * Operands come in steps of 64 along the summed dimension, each row by cp.async: rows of tokens are gathered here, in the loader, and
 * no permuted copy of them exists.  A few steps are on their way while one is multiplied; the first steps of the next tile are, while
 * the results of this one are stored.
 *
 *               left operand                 right operand             result
 *   forward     x rows, deep                 w rows, deep              y  rows (+ bias), bf16
 *   dx          dy rows, deep                w columns, wide           dx rows, bf16
 *   dw          dy columns, wide             x columns, wide           dw, fp32, added to or written
 *
 * "Deep": the summed dimension runs along memory rows; a tile is 64 elements of each of its rows.  "Wide": memory rows run across it; a
 * tile is 64 memory rows in columns of 64 elements.  Either way shared memory has rows of 128 bytes in which 16-byte pieces swap places
 * by the row's last three bits: wgmma's swizzle, and no bank conflicts for ldmatrix.
 *
 * Every sum runs in ascending order of the summed index within one block: repeatable, and the same however experts are cut into calls.
 * Bytes moved: w once, rows once per tile column (from L2, mostly), results once; dw is read and written in fp32. */
#include "ops/attention_tiles.cuh"
#include "ops/grouped_linear.cuh"

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
/* A warp's results: STRIPS strips of 16 rows, BLOCKS blocks of 8 columns each, in the registers both kinds of product leave them in. */
typedef float results[STRIPS][BLOCKS][4];

/* -- bringing operands in -------------------------------------------------------------------------- */

/* A matrix: row i begins at base + (rows ? rows[i] : i) ld. */
typedef struct matrix {
    const bf16 *base;
    int64_t ld;
    const int32_t *rows; /* or NULL */
    int n_rows, n_cols;
} matrix;

template <grouped_product KIND> __device__ __forceinline__ matrix left_of(const mt_grouped_linear &a, const grouped_tile &t)
{
    bool is_x = KIND == FORWARD, gather = is_x ? a.gather_x : a.gather_dy;
    int64_t ld = is_x ? a.K : a.N;
    const bf16 *base = (const bf16 *)(is_x ? a.x : a.dy);
    return { gather ? base : base + t.begin * ld, ld, gather ? a.rows + a.offsets[a.e0] + t.begin : NULL, t.rows, (int)ld };
}

template <grouped_product KIND> __device__ __forceinline__ matrix right_of(const mt_grouped_linear &a, const grouped_tile &t)
{
    if (KIND != TO_W) return { (const bf16 *)a.w + (int64_t)t.e * a.N * a.K, a.K, NULL, (int)a.N, (int)a.K };
    const bf16 *base = (const bf16 *)a.x;
    return { a.gather_x ? base : base + t.begin * a.K, a.K, a.gather_x ? a.rows + a.offsets[a.e0] + t.begin : NULL, t.rows,
             (int)a.K };
}

/* Where element (r, k) of a deep tile is, and (k, r) of a wide one; the last index a multiple of 8. */
__device__ __forceinline__ int deep_at(int r, int k) { return r * BK + (k / 8 ^ r % 8) * 8; }
__device__ __forceinline__ int wide_at(int k, int r) { return r / 64 * BK * 64 + k * 64 + (r % 64 / 8 ^ k % 8) * 8; }

/* SIZE rows of a matrix, deep: a thread has one piece of every 32nd row. */
template <int SIZE> struct deep_loader {
    enum { N = SIZE / 32 };
    const bf16 *row[N]; /* at this thread's piece; NULL: past the last row */
    const bf16 *base;
    int n_cols;

    __device__ __forceinline__ void begin(const matrix &m, int row0)
    {
        base = m.base;
        n_cols = m.n_cols;
#pragma unroll
        for (int i = 0; i < N; i++) {
            int r = row0 + threadIdx.x / 8 + 32 * i;
            row[i] = NULL;
            if (r < m.n_rows) row[i] = m.base + (m.rows ? m.rows[r] : r) * m.ld + threadIdx.x % 8 * 8;
        }
    }
    __device__ __forceinline__ void fetch(bf16 *tile, int step)
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
    int at[N]; /* rows of the next step; -1: past the last */

    __device__ __forceinline__ void look(int step)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            int k = step * BK + threadIdx.x / PIECES + PASS * i;
            at[i] = k >= m.n_rows ? -1 : m.rows ? m.rows[k] : k;
        }
    }
    __device__ __forceinline__ void begin(const matrix &from, int col0)
    {
        m = from;
        col = col0 + threadIdx.x % PIECES * 8;
        look(0);
    }
    __device__ __forceinline__ void fetch(bf16 *tile, int step)
    {
        bool inside = col < m.n_cols;
#pragma unroll
        for (int i = 0; i < N; i++) {
            bool wanted = inside && at[i] >= 0;
            copy16(tile + wide_at(threadIdx.x / PIECES + PASS * i, threadIdx.x % PIECES * 8),
                   wanted ? m.base + at[i] * m.ld + col : m.base, wanted);
        }
        look(step + 1);
    }
};

template <grouped_product KIND> struct loaders;
template <> struct loaders<FORWARD> {
    deep_loader<BM> left;
    deep_loader<BN> right;
};
template <> struct loaders<TO_X> {
    deep_loader<BM> left;
    wide_loader<BN> right;
};
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

/* 16 rows of a weight gradient.  What is added to is read in batches: loads that wait for each other would take longer than the rest. */
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

/* The first steps of a tile on their way, from `stage` on; a group of copies for each, even where there is none. */
template <grouped_product KIND>
__device__ __forceinline__ void begin_tile(loaders<KIND> &in, const mt_grouped_linear &a, const grouped_tile &t, bf16 *tiles,
                                           int stage)
{
    int steps = steps_of<KIND>(a, t);
    in.left.begin(left_of<KIND>(a, t), t.row0);
    in.right.begin(right_of<KIND>(a, t), t.col0);
    if (KIND == TO_W) expect_sums(a, t);
#pragma unroll
    for (int step = 0; step < AHEAD; step++) {
        if (step < steps) {
            in.left.fetch(left_tile(tiles, (stage + step) % STAGES), step);
            in.right.fetch(right_tile(tiles, (stage + step) % STAGES), step);
        }
        copies_commit();
    }
}

template <grouped_product KIND> __global__ void __launch_bounds__(THREADS, 1) tiles_kernel(mt_grouped_linear a)
{
    extern __shared__ unsigned char memory[];
    bf16 *tiles = (bf16 *)(memory + (ALIGNMENT - shared_address(memory) % ALIGNMENT) % ALIGNMENT);
    int32_t *starts = (int32_t *)(tiles + STAGES * (BM + BN) * BK);
    int row_tiles = (int)((a.N + BM - 1) / BM), col_tiles = (int)(((KIND == FORWARD ? a.N : a.K) + BN - 1) / BN), stage = 0;
    if (KIND != TO_W) count_row_tiles(starts, a, BM);
    int64_t n_tiles = count_tiles<KIND>(a, starts, row_tiles, col_tiles), at = blockIdx.x;
    if (at >= n_tiles) return;
    grouped_tile t = find_tile<KIND>(a, starts, row_tiles, col_tiles, BM, BN, at);
    loaders<KIND> in;
    begin_tile<KIND>(in, a, t, tiles, stage);
    for (;;) {
        results acc;
        int steps = steps_of<KIND>(a, t);
        for (int step = 0; step < steps; step++) {
            copies_arrive<AHEAD - 1>(); /* and every warp is done with the stage that is filled next */
            if (step + AHEAD < steps) {
                in.left.fetch(left_tile(tiles, (stage + AHEAD) % STAGES), step + AHEAD);
                in.right.fetch(right_tile(tiles, (stage + AHEAD) % STAGES), step + AHEAD);
            }
            copies_commit();
            multiply_step<KIND>(acc, left_tile(tiles, stage), right_tile(tiles, stage), step == 0);
            multiplied_but_one();
            stage = (stage + 1) % STAGES;
        }
        multiplied(acc);
        if (steps == 0) /* an expert without rows: its sums are zero */
#pragma unroll
            for (int s = 0; s < STRIPS; s++) clear<BLOCKS>(acc[s]);
        grouped_tile done = t;
        at += gridDim.x;
        if (at < n_tiles) {
            t = find_tile<KIND>(a, starts, row_tiles, col_tiles, BM, BN, at);
            __syncthreads();
            begin_tile<KIND>(in, a, t, tiles, stage);
        }
        store_tile<KIND>(a, done, acc);
        if (at >= n_tiles) return;
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

template <grouped_product KIND> static mt_rc launch(mt_stream *s, const mt_grouped_linear *a, mt_err *err)
{
    const mt_cuda_device *d = mt_cuda_device_of(s);
    size_t shared = shared_bytes(d->hopper, a->c);
    MT_TRY(mt__cuda_check(s->dev,
                          cudaFuncSetAttribute(tiles_kernel<KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                          "shared memory for products of experts", err));
    tiles_kernel<KIND><<<(unsigned)d->n_sms, THREADS, shared, mt_cuda_raw(s)>>>(*a);
    return mt__cuda_launched(s, "a product of experts", err);
}

mt_rc mt__grouped_by_tiles(mt_stream *s, const mt_grouped_linear *a, grouped_product kind, mt_err *err)
{
    if (kind == FORWARD) return launch<FORWARD>(s, a, err);
    return kind == TO_X ? launch<TO_X>(s, a, err) : launch<TO_W>(s, a, err);
}
