/* grouped_tiles.cuh - what the tensor-core kernels of grouped products share: operands and their places in shared memory, results.
 *
 *               left operand                 right operand             result
 *   forward     x rows, deep                 w rows, deep              y  rows (+ bias), bf16
 *   dx          dy rows, deep                w columns, wide           dx rows, bf16
 *   dw          dy columns, wide             x columns, wide           dw, fp32, added to or written
 *
 * "Deep": the summed dimension runs along memory rows; a tile is 64 elements of each of its rows.  "Wide": memory rows run across it; a
 * tile is 64 memory rows in columns of 64 elements.  Either way shared memory has rows of 128 bytes in which 16-byte pieces swap places
 * by the row's last three bits: wgmma's swizzle, and no bank conflicts for ldmatrix. */
#ifndef MT_OPS_GROUPED_TILES_CUH
#define MT_OPS_GROUPED_TILES_CUH

#include "ops/attention_tiles.cuh"
#include "ops/grouped_linear.cuh"

enum { BK = 64 }; /* of the summed dimension, in a step */

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

/* SIZE rows of a matrix, deep: LOADERS threads have one piece each of every so manieth row. */
template <int SIZE, int LOADERS> struct deep_loader {
    enum { PASS = LOADERS / 8, N = SIZE / PASS };
    const bf16 *row[N]; /* at this thread's piece; NULL: past the last row */
    const bf16 *base;
    int n_cols;

    __device__ __forceinline__ void begin(const matrix &m, int row0)
    {
        base = m.base;
        n_cols = m.n_cols;
#pragma unroll
        for (int i = 0; i < N; i++) {
            int r = row0 + threadIdx.x / 8 + PASS * i;
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
            copy16(tile + deep_at(r + PASS * i, threadIdx.x % 8 * 8), wanted ? row[i] + k : base, wanted);
        }
    }
};

template <grouped_product KIND> __device__ __forceinline__ int steps_of(const mt_grouped_linear &a, const grouped_tile &t)
{
    int depth = KIND == TO_W ? t.rows : (int)(KIND == FORWARD ? a.K : a.N);
    return (depth + BK - 1) / BK;
}

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

/* Two neighbors of what is added to row r of a strip, in its block n of 8 columns.  c: the strip's first row in shared memory, where the
 * copy engine has written a tile of C_ROWS rows in columns of 64, swizzled; NULL: nothing is added. */
template <int C_ROWS> __device__ __forceinline__ float2 added(const bf16 *c, int r, int n)
{
    if (!c) return { 0.0f, 0.0f };
    return __bfloat1622float2(
        *(const __nv_bfloat162 *)(c + n / 8 * C_ROWS * 64 + r * 64 + (n % 8 ^ r % 8) * 8 + threadIdx.x % 4 * 2));
}

/* 16 rows of bf16 results, N blocks of 8 columns: four blocks of columns at a time change lanes, so that each lane stores 16 bytes.
 * C_ROWS above 0: adds c (NULL: nothing). */
template <int N, int C_ROWS = 0>
__device__ __forceinline__ void store_strip(bf16 *out, int64_t ld, int row, int n_rows, int col, int n_cols, const bf16 *bias,
                                            const float acc[][4], const bf16 *c = NULL)
{
    int lane = threadIdx.x % 32, pair = lane % 4 * 2;
    row += lane / 4;
#pragma unroll
    for (int n = 0; n < N; n += 4) {
        uint32_t low[4], high[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int at = col + (n + j) * 8 + pair;
            bool has = bias && at < n_cols;
            float b0 = has ? to_f32(bias[at]) : 0.0f, b1 = has ? to_f32(bias[at + 1]) : 0.0f;
            if constexpr (C_ROWS == 0) {
                low[j] = pack(acc[n + j][0] + b0, acc[n + j][1] + b1);
                high[j] = pack(acc[n + j][2] + b0, acc[n + j][3] + b1);
            } else {
                float2 c0 = added<C_ROWS>(c, lane / 4, n + j), c1 = added<C_ROWS>(c, lane / 4 + 8, n + j);
                low[j] = pack(acc[n + j][0] + b0 + c0.x, acc[n + j][1] + b1 + c0.y);
                high[j] = pack(acc[n + j][2] + b0 + c1.x, acc[n + j][3] + b1 + c1.y);
            }
        }
        transpose_quad(low);
        transpose_quad(high);
        int at = col + (n + lane % 4) * 8;
        if (at >= n_cols) continue;
        if (row < n_rows) *(uint4 *)(out + row * ld + at) = make_uint4(low[0], low[1], low[2], low[3]);
        if (row + 8 < n_rows) *(uint4 *)(out + (row + 8) * ld + at) = make_uint4(high[0], high[1], high[2], high[3]);
    }
}

/* By wgmma, where the GPU has it (grouped_hopper.cu). */
bool mt__grouped_fits_hopper(mt_stream *s, const mt_grouped_linear *a);
mt_rc mt__grouped_by_hopper(mt_stream *s, const mt_grouped_linear *a, grouped_product kind, mt_err *err);

#endif
