/* grouped_linear.cu - a product per expert over its packed rows: every shape and both dtypes, in fp32 on the plain cores; and the choice of
 * the tensor-core kernels (grouped_tiles.cu) where they fit, by shapes and alignment alone.
 *
 *   forward   y  = x w' (+ b)      x rows gathered in the loader if they are tokens
 *   dx        dx = dy w            dy rows likewise
 *   dw        dw (+)= dy' x        the summed dimension is the expert's rows, ascending
 *
 * A block of 256 threads makes 64 x 64 tiles of the result, 4 x 4 per thread, 16 deep.  Each element is one sum in ascending order of
 * the summed index: repeatable, and the same however experts are cut into calls. */
#include "ops/grouped_linear.cuh"

enum { TILE = 64, DEPTH = 16, THREADS = 256, BLOCKS_PER_SM = 3 };

/* Element (i, k) of the left operand of a tile, 0 outside. */
template <typename T, grouped_product KIND>
__device__ __forceinline__ float left_at(const mt_grouped_linear &a, const grouped_tile &t, int i, int k)
{
    if (KIND == TO_W) {
        if (t.row0 + i >= a.N || k >= t.rows) return 0;
        return to_f32(((const T *)a.dy)[source_row(a, a.gather_dy, t.begin + k) * a.N + t.row0 + i]);
    }
    int64_t depth = KIND == FORWARD ? a.K : a.N;
    if (t.row0 + i >= t.rows || k >= depth) return 0;
    bool gather = KIND == FORWARD ? a.gather_x : a.gather_dy;
    return to_f32(((const T *)(KIND == FORWARD ? a.x : a.dy))[source_row(a, gather, t.begin + t.row0 + i) * depth + k]);
}

/* Element (k, j) of the right one. */
template <typename T, grouped_product KIND>
__device__ __forceinline__ float right_at(const mt_grouped_linear &a, const grouped_tile &t, int k, int j)
{
    if (KIND == TO_W) {
        if (t.col0 + j >= a.K || k >= t.rows) return 0;
        return to_f32(((const T *)a.x)[source_row(a, a.gather_x, t.begin + k) * a.K + t.col0 + j]);
    }
    int64_t n = KIND == FORWARD ? t.col0 + j : k, d = KIND == FORWARD ? k : t.col0 + j;
    return n < a.N && d < a.K ? to_f32(((const T *)a.w)[((int64_t)t.e * a.N + n) * a.K + d]) : 0.0f;
}

template <typename T, grouped_product KIND>
__device__ __forceinline__ void store_element(const mt_grouped_linear &a, const grouped_tile &t, int i, int j, float x)
{
    int64_t row = t.row0 + i, col = t.col0 + j;
    if (KIND == TO_W && t.rows == 0 && !a.dw_set) return;
    if (row >= (KIND == TO_W ? a.N : t.rows) || col >= (KIND == FORWARD ? a.N : a.K)) return;
    if (KIND == TO_W) {
        float *dw = a.dw + ((int64_t)t.e * a.N + row) * a.K + col;
        *dw = a.dw_set ? x : *dw + x;
    } else if (KIND == FORWARD) {
        if (a.b) x += to_f32(((const T *)a.b)[(int64_t)t.e * a.N + col]);
        ((T *)a.y)[(t.begin + row) * a.N + col] = from_f32<T>(x);
    } else {
        ((T *)a.dx)[(t.begin + row) * a.K + col] = from_f32<T>(x);
    }
}

/* The tile's operands of depth k0 on into shared memory, [DEPTH][TILE]; neighboring threads read neighboring elements. */
template <typename T, grouped_product KIND>
__device__ __forceinline__ void fetch(float left[DEPTH][TILE + 4], float right[DEPTH][TILE + 4], const mt_grouped_linear &a,
                                      const grouped_tile &t, int k0)
{
#pragma unroll
    for (int at = threadIdx.x; at < TILE * DEPTH; at += THREADS) {
        int deep_k = at % DEPTH, deep_i = at / DEPTH, wide_k = at / TILE, wide_i = at % TILE;
        if (KIND == TO_W)
            left[wide_k][wide_i] = left_at<T, KIND>(a, t, wide_i, k0 + wide_k);
        else
            left[deep_k][deep_i] = left_at<T, KIND>(a, t, deep_i, k0 + deep_k);
        if (KIND == FORWARD)
            right[deep_k][deep_i] = right_at<T, KIND>(a, t, k0 + deep_k, deep_i);
        else
            right[wide_k][wide_i] = right_at<T, KIND>(a, t, k0 + wide_k, wide_i);
    }
}

template <typename T, grouped_product KIND>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) plain_kernel(mt_grouped_linear a)
{
    __shared__ int32_t starts[MT_ROUTE_EXPERTS + 1];
    __shared__ float left[DEPTH][TILE + 4], right[DEPTH][TILE + 4];
    int row_tiles = (int)((a.N + TILE - 1) / TILE), col_tiles = (int)(((KIND == FORWARD ? a.N : a.K) + TILE - 1) / TILE);
    int i0 = threadIdx.x / 16 * 4, j0 = threadIdx.x % 16 * 4;
    count_row_tiles(starts, a, TILE);
    int64_t n_tiles = count_tiles<KIND>(a, starts, row_tiles, col_tiles);
    for (int64_t at = blockIdx.x; at < n_tiles; at += gridDim.x) {
        grouped_tile t = find_tile<KIND>(a, starts, row_tiles, col_tiles, TILE, TILE, at);
        int depth = KIND == TO_W ? t.rows : (int)(KIND == FORWARD ? a.K : a.N);
        float acc[4][4] = {};
        for (int k0 = 0; k0 < depth; k0 += DEPTH) {
            fetch<T, KIND>(left, right, a, t, k0);
            __syncthreads();
#pragma unroll
            for (int k = 0; k < DEPTH; k++)
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++) acc[i][j] = __fmaf_rn(left[k][i0 + i], right[k][j0 + j], acc[i][j]);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) store_element<T, KIND>(a, t, i0 + i, j0 + j, acc[i][j]);
    }
}

/* -- biases ---------------------------------------------------------------------------------------- */

enum { BIAS_WARPS = 16 };

/* The weight of packed row i. */
__device__ __forceinline__ float weight_of(const mt_grouped_linear &a, int i) { return a.weights[a.order[a.offsets[a.e0] + i]]; }

/* 32 columns of an expert: its warps take every 16th row, ascending, and their sums are added in order. */
template <typename T> __global__ void bias_kernel(mt_grouped_linear a)
{
    __shared__ float of_warp[BIAS_WARPS][33];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int begin = a.offsets[a.e0 + blockIdx.y] - a.offsets[a.e0], end = a.offsets[a.e0 + blockIdx.y + 1] - a.offsets[a.e0];
    int64_t j = (int64_t)blockIdx.x * 32 + lane;
    float x = 0;
    if (j < a.N)
        for (int i = begin + warp; i < end; i += BIAS_WARPS) {
            float d = to_f32(((const T *)a.dy)[source_row(a, a.gather_dy, i) * a.N + j]);
            x += a.weights ? d * weight_of(a, i) : d;
        }
    of_warp[warp][lane] = x;
    __syncthreads();
    if (warp || j >= a.N) return;
    for (int w = 1; w < BIAS_WARPS; w++) x += of_warp[w][lane];
    float *db = a.db + blockIdx.y * a.N + j;
    *db = a.dw_set ? x : *db + x;
}

/* dweights += dy . b of the row's expert.  Blocks of an expert take its rows in turn; a warp takes a row. */
template <typename T> __global__ void bias_weights_kernel(mt_grouped_linear a)
{
    int lane = threadIdx.x % 32, warp = blockIdx.x * BIAS_WARPS + threadIdx.x / 32, warps = gridDim.x * BIAS_WARPS;
    int begin = a.offsets[a.e0 + blockIdx.y] - a.offsets[a.e0], end = a.offsets[a.e0 + blockIdx.y + 1] - a.offsets[a.e0];
    const T *b = (const T *)a.b + blockIdx.y * a.N;
    for (int i = begin + warp; i < end; i += warps) {
        const T *dy = (const T *)a.dy + source_row(a, a.gather_dy, i) * a.N;
        float sum = 0;
        for (int64_t j = lane; j < a.N; j += 32) sum += to_f32(dy[j]) * to_f32(b[j]);
        sum = warp_sum(sum);
        if (lane == 0) a.dweights[a.order[a.offsets[a.e0] + i]] += sum;
    }
}

template <typename T> static void launch_bias(mt_stream *s, const mt_grouped_linear *a)
{
    dim3 columns((unsigned)div_up(a->N, 32), (unsigned)a->c), rows(BIAS_WARPS, (unsigned)a->c);
    if (a->db) bias_kernel<T><<<columns, BIAS_WARPS * 32, 0, mt_cuda_raw(s)>>>(*a);
    if (a->dweights) bias_weights_kernel<T><<<rows, BIAS_WARPS * 32, 0, mt_cuda_raw(s)>>>(*a);
}

/* -- the op ---------------------------------------------------------------------------------------- */

template <typename T> static void launch_plain(mt_stream *s, const mt_grouped_linear *a, grouped_product kind)
{
    unsigned blocks = (unsigned)(mt_cuda_device_of(s)->n_sms * BLOCKS_PER_SM);
    if (kind == FORWARD)
        plain_kernel<T, FORWARD><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a);
    else if (kind == TO_X)
        plain_kernel<T, TO_X><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a);
    else
        plain_kernel<T, TO_W><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a);
}

static mt_rc multiply(mt_stream *s, const mt_grouped_linear *a, grouped_product kind, mt_err *err)
{
    static const char *const names[] = { "product of experts", "product of experts, dx", "product of experts, dw" };
    if (a->c > MT_ROUTE_EXPERTS)
        return mt_fail(err, MT_EINTERNAL, "grouped_linear: %lld experts, expected at most %d", (long long)a->c, MT_ROUTE_EXPERTS);
    if (mt__grouped_fits_tiles(s, a, kind)) return mt__grouped_by_tiles(s, a, kind, err);
    if (a->t == MT_DTYPE_BF16)
        launch_plain<bf16>(s, a, kind);
    else
        launch_plain<float>(s, a, kind);
    return mt__cuda_launched(s, names[kind], err);
}

mt_rc mt__grouped_linear_fwd_cuda(mt_stream *s, const mt_grouped_linear *a, mt_err *err) { return multiply(s, a, FORWARD, err); }

mt_rc mt__grouped_linear_bwd_cuda(mt_stream *s, const mt_grouped_linear *a, mt_err *err)
{
    if (a->dw) MT_TRY(multiply(s, a, TO_W, err));
    if (a->db || a->dweights) {
        if (a->t == MT_DTYPE_BF16)
            launch_bias<bf16>(s, a);
        else
            launch_bias<float>(s, a);
        MT_TRY(mt__cuda_launched(s, "biases of experts", err));
    }
    return a->dx ? multiply(s, a, TO_X, err) : MT_OK;
}
