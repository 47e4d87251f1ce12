/* embed.cu - y[i] = scale * w[ids[i]] (+ w_pos[pos[i]]);   dw[id] += scale * dy[i] over the rows of that id;   dw_pos[p] += dy of the
 * rows at position p, documents in order.
 *
 * Shapes: ids [N], w and dw [V, D], y and dy [N, D].  Bytes moved: forward 2 N D elements (3 with positions); backward reads N D
 * elements and reads and writes a row of dw per distinct id.
 * Backward needs no atomics: rows_by_id lists the rows of one id side by side, and the warp that stands at the first of them
 * adds them, ascending.  An id with more than ALONE rows is finished by all warps of the block, each its share, and their
 * sums are added in order. */
#include "ops/ops_cuda.cuh"

template <typename T, int W> __global__ void gather_kernel(mt_embed a)
{
    const T *src = (const T *)a.w + (int64_t)a.ids[blockIdx.x] * a.D;
    const T *pos = a.w_pos ? (const T *)a.w_pos + (int64_t)a.pos[blockIdx.x] * a.D : NULL;
    T *dst = (T *)a.y + (int64_t)blockIdx.x * a.D;
    for (int64_t d = (int64_t)threadIdx.x * W; d < a.D; d += (int64_t)blockDim.x * W) {
        vec<T, W> v = load<T, W>(src + d), p = v;
        if (pos) p = load<T, W>(pos + d);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float y = __fmul_rn(to_f32(v.at[k]), a.scale);
            v.at[k] = from_f32<T>(pos ? __fadd_rn(y, to_f32(p.at[k])) : y);
        }
        store<T, W>(dst + d, v);
    }
}

enum { WARPS = 8, ALONE = 64, AHEAD = 4 }; /* AHEAD: rows loaded before the first of them is added */

/* sum += dy of places [first, first + n) of rows_by_id, n at most 32, this lane's columns d.. */
template <typename T, int W>
__device__ __forceinline__ void add_rows(const mt_embed &a, float *sum, int32_t row_of_lane, int n, int64_t d)
{
    for (int k = 0; k < n; k += AHEAD) {
        vec<T, W> v[AHEAD];
#pragma unroll
        for (int m = 0; m < AHEAD; m++) {
            int64_t row = __shfl_sync(0xffffffffu, row_of_lane, k + m < n ? k + m : k);
            if (d < a.D) v[m] = load<T, W>((const T *)a.dy + row * a.D + d);
        }
#pragma unroll
        for (int m = 0; m < AHEAD; m++)
#pragma unroll
            for (int e = 0; e < W; e++)
                if (k + m < n) sum[e] = __fadd_rn(sum[e], __fmul_rn(to_f32(v[m].at[e]), a.scale));
    }
}

/* How many of the 32 places from `at` on are rows of `id`; the lane's row. */
__device__ __forceinline__ int rows_of(const mt_embed &a, int64_t at, int32_t id, int lane, int32_t *row)
{
    *row = at + lane < a.N ? a.rows_by_id[at + lane] : -1;
    unsigned same = __ballot_sync(0xffffffffu, *row >= 0 && a.ids[*row] == id);
    return same == 0xffffffffu ? 32 : __ffs((int)~same) - 1;
}

template <typename T, int W> __global__ void __launch_bounds__(WARPS * 32) scatter_kernel(mt_embed a)
{
    __shared__ float shares[WARPS][32][W];
    __shared__ int32_t long_ids[WARPS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t first = (int64_t)blockIdx.x * WARPS, at = first + warp, d = ((int64_t)blockIdx.y * 32 + lane) * W;
    int32_t row, id = at < a.N ? a.ids[a.rows_by_id[at]] : a.pad_id;
    bool starts = at < a.N && id != a.pad_id && (at == 0 || a.ids[a.rows_by_id[at - 1]] != id);
    int n = 0, more = 0;
    if (starts) {
        float sum[W], *dw = a.dw + (int64_t)id * a.D + d;
        vec<float, W> old;
        if (d < a.D) old = load<float, W>(dw);
#pragma unroll
        for (int e = 0; e < W; e++) sum[e] = old.at[e];
        for (int done = 0; done < ALONE; done += 32) {
            n = rows_of(a, at + done, id, lane, &row);
            add_rows<T, W>(a, sum, row, n, d);
            if (n < 32) break;
        }
#pragma unroll
        for (int e = 0; e < W; e++) old.at[e] = sum[e];
        if (d < a.D) store<float, W>(dw, old);
        more = n == 32 && rows_of(a, at + ALONE, id, lane, &row) > 0;
    }
    if (lane == 0) long_ids[warp] = more ? id : -1;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        int32_t long_id = long_ids[w];
        if (long_id < 0) continue;
        float sum[W] = { 0 };
        for (int64_t from = first + w + ALONE + 32 * warp;; from += 32 * WARPS) {
            n = rows_of(a, from, long_id, lane, &row);
            add_rows<T, W>(a, sum, row, n, d);
            if (n < 32) break;
        }
#pragma unroll
        for (int e = 0; e < W; e++) shares[warp][lane][e] = sum[e];
        __syncthreads();
        for (int e = 0; warp == 0 && d < a.D && e < W; e++) {
            for (int k = 1; k < WARPS; k++) sum[e] += shares[k][lane][e];
            a.dw[(int64_t)long_id * a.D + d + e] += sum[e];
        }
        __syncthreads();
    }
}

/* One position, some columns; most positions are in no document. */
template <typename T> __global__ void positions_kernel(mt_embed a)
{
    int64_t p = blockIdx.x, d = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (d >= a.D) return;
    float *dw = a.dw_pos + p * a.D + d, sum = 0;
    bool any = false;
    for (int64_t doc = 0; doc < a.n_docs; doc++) {
        int64_t i = a.doc_start[doc] + p;
        if (i >= a.doc_start[doc + 1]) continue;
        if (!any) sum = *dw;
        any = true;
        sum += to_f32(((const T *)a.dy)[i * a.D + d]);
    }
    if (any) *dw = sum;
}

template <typename T> static void gather(mt_stream *s, const mt_embed *a)
{
    bool whole = a->D % wide<T>() == 0 && is_aligned(a->w, 16) && is_aligned(a->y, 16) && is_aligned(a->w_pos, 16);
    int threads = a->D >= 1024 ? 256 : 64;
    if (whole)
        gather_kernel<T, wide<T>()><<<(unsigned)a->N, threads, 0, mt_cuda_raw(s)>>>(*a);
    else
        gather_kernel<T, 1><<<(unsigned)a->N, threads, 0, mt_cuda_raw(s)>>>(*a);
}

template <typename T> static void scatter(mt_stream *s, const mt_embed *a)
{
    bool whole = a->D % wide<T>() == 0 && is_aligned(a->dy, 16) && is_aligned(a->dw, wide<T>() * sizeof(float));
    dim3 grid((unsigned)div_up(a->N, WARPS), (unsigned)div_up(a->D, 32 * (whole ? wide<T>() : 1)));
    if (a->dw && whole)
        scatter_kernel<T, wide<T>()><<<grid, WARPS * 32, 0, mt_cuda_raw(s)>>>(*a);
    else if (a->dw)
        scatter_kernel<T, 1><<<grid, WARPS * 32, 0, mt_cuda_raw(s)>>>(*a);
    if (a->dw_pos) positions_kernel<T><<<dim3((unsigned)a->N, (unsigned)div_up(a->D, 256)), 256, 0, mt_cuda_raw(s)>>>(*a);
}

mt_rc mt__embed_fwd_cuda(mt_stream *s, const mt_embed *a, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        gather<bf16>(s, a);
    else
        gather<float>(s, a);
    return mt__cuda_launched(s, "embed", err);
}

mt_rc mt__embed_bwd_cuda(mt_stream *s, const mt_embed *a, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        scatter<bf16>(s, a);
    else
        scatter<float>(s, a);
    return mt__cuda_launched(s, "embed backward", err);
}
