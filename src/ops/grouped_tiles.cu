/* grouped_tiles.cu - grouped_linear.cu's three products on the tensor cores, by mma.sync, for bf16 with fp32 sums.  On Hopper they are
 * grouped_hopper.cu's.
 *
 * A block of 8 warps makes a tile of 128 x 128 at a time.  Operands come in steps of 64 along the summed dimension, each row by cp.async:
 * rows of tokens are gathered here, in the loader, and no permuted copy of them exists.  Two steps are on their way while one is
 * multiplied; the first steps of the next tile are, while the results of this one are stored.
 *
 * Every sum runs in ascending order of the summed index within one block: repeatable, and the same however experts are cut into calls.
 * Bytes moved: w once, rows once per tile column (from L2, mostly), results once; dw is read and written in fp32. */
#include "ops/grouped_tiles.cuh"

enum { BM = 128, BN = 128, THREADS = 256, STAGES = 3, AHEAD = 2 }; /* steps on their way while one is multiplied */
enum { STRIPS = 2, BLOCKS = 8, ALIGNMENT = 128 };

/* Tiles, what aligning them may take, and the table of row tiles. */
static size_t shared_bytes(int64_t c)
{
    return (size_t)STAGES * (BM + BN) * BK * sizeof(bf16) + ALIGNMENT + (size_t)(c + 1) * sizeof(int32_t);
}

/* A warp's results: STRIPS strips of 16 rows, BLOCKS blocks of 8 columns each, in the registers both kinds of product leave them in. */
typedef float results[STRIPS][BLOCKS][4];

/* -- bringing operands in -------------------------------------------------------------------------- */

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
    deep_loader<BM, THREADS> left;
    deep_loader<BN, THREADS> right;
};
template <> struct loaders<TO_X> {
    deep_loader<BM, THREADS> left;
    wide_loader<BN> right;
};
template <> struct loaders<TO_W> {
    wide_loader<BM> left;
    wide_loader<BN> right;
};

__device__ __forceinline__ bf16 *left_tile(bf16 *tiles, int stage) { return tiles + stage * (BM + BN) * BK; }
__device__ __forceinline__ bf16 *right_tile(bf16 *tiles, int stage) { return left_tile(tiles, stage) + BM * BK; }

/* -- multiplying ----------------------------------------------------------------------------------- */

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

/* -- storing --------------------------------------------------------------------------------------- */

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
            store_strip<BLOCKS>((bf16 *)a.y + t.begin * a.N, a.N, row, t.rows, col, (int)a.N,
                                a.b ? (const bf16 *)a.b + (int64_t)t.e * a.N : NULL, acc[s]);
        else
            store_strip<BLOCKS>((bf16 *)a.dx + t.begin * a.K, a.K, row, t.rows, col, (int)a.K, NULL, acc[s]);
    }
}

/* -- the kernel ------------------------------------------------------------------------------------ */

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
            stage = (stage + 1) % STAGES;
        }
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
    const void *to = kind == FORWARD ? a->y : a->dx;
    if (kind == TO_W) to = a->dw;
    return a->t == MT_DTYPE_BF16 && a->N % 8 == 0 && a->K % 8 == 0 && is_aligned(left, 16) && is_aligned(right, 16) &&
           is_aligned(to, 16) && shared_bytes(a->c) <= d->shared_bytes;
}

template <grouped_product KIND> static mt_rc launch(mt_stream *s, const mt_grouped_linear *a, mt_err *err)
{
    const mt_cuda_device *d = mt_cuda_device_of(s);
    size_t shared = shared_bytes(a->c);
    MT_TRY(mt__cuda_check(s->dev,
                          cudaFuncSetAttribute(tiles_kernel<KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                          "shared memory for products of experts", err));
    tiles_kernel<KIND><<<(unsigned)d->n_sms, THREADS, shared, mt_cuda_raw(s)>>>(*a);
    return mt__cuda_launched(s, "a product of experts", err);
}

mt_rc mt__grouped_by_tiles(mt_stream *s, const mt_grouped_linear *a, grouped_product kind, mt_err *err)
{
    if (mt__grouped_fits_hopper(s, a)) return mt__grouped_by_hopper(s, a, kind, err);
    if (kind == FORWARD) return launch<FORWARD>(s, a, err);
    return kind == TO_X ? launch<TO_X>(s, a, err) : launch<TO_W>(s, a, err);
}
