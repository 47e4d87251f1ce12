/* embed.cu - y[i] = scale * w[ids[i]];   dw[id] += scale * dy[i] over the rows of that id, ascending: the CPU's bits.
 *
 * Shapes: ids [N], w and dw [V, D], y and dy [N, D].  Bytes moved: forward 2 N D elements; backward reads N D elements
 * and reads and writes a row of dw per distinct id.
 * Backward needs no atomics: rows_by_id lists the rows of one id side by side, and the block that stands at the first
 * of them adds them all. */
#include "ops/ops_cuda.cuh"

template <typename T, int W> __global__ void gather_kernel(T *y, const T *w, const int32_t *ids, int64_t D, float scale)
{
    const T *src = w + (int64_t)ids[blockIdx.x] * D;
    T *dst = y + (int64_t)blockIdx.x * D;
    for (int64_t d = (int64_t)threadIdx.x * W; d < D; d += (int64_t)blockDim.x * W) {
        vec<T, W> v = load<T, W>(src + d);
        for (int k = 0; k < W; k++) v.at[k] = from_f32<T>(to_f32(v.at[k]) * scale);
        store<T, W>(dst + d, v);
    }
}

enum { AHEAD = 8 }; /* rows loaded before the first of them is added */

template <typename T> __global__ void scatter_kernel(mt_embed a)
{
    int64_t first = blockIdx.x, d = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    int32_t id = a.ids[a.rows_by_id[first]];
    if (id == a.pad_id || d >= a.D || (first > 0 && a.ids[a.rows_by_id[first - 1]] == id)) return;
    const T *dy = (const T *)a.dy;
    float sum = a.dw[(int64_t)id * a.D + d], next[AHEAD];
    for (bool more = true; more; first += AHEAD) {
        int n = 0;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int64_t row = first + k < a.N ? a.rows_by_id[first + k] : -1;
            more = more && row >= 0 && a.ids[row] == id;
            n += more;
            next[k] = more ? to_f32(dy[row * a.D + d]) : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (k < n) sum = __fadd_rn(sum, __fmul_rn(next[k], a.scale));
    }
    a.dw[(int64_t)id * a.D + d] = sum;
}

template <typename T> static void gather(mt_stream *s, const mt_embed *a)
{
    bool whole = a->D % wide<T>() == 0 && is_aligned(a->w, 16) && is_aligned(a->y, 16);
    int threads = a->D >= 1024 ? 256 : 64;
    if (whole)
        gather_kernel<T, wide<T>()>
            <<<(unsigned)a->N, threads, 0, mt_cuda_raw(s)>>>((T *)a->y, (const T *)a->w, a->ids, a->D, a->scale);
    else
        gather_kernel<T, 1><<<(unsigned)a->N, threads, 0, mt_cuda_raw(s)>>>((T *)a->y, (const T *)a->w, a->ids, a->D, a->scale);
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
    dim3 grid((unsigned)a->N, (unsigned)div_up(a->D, 128));
    if (a->t == MT_DTYPE_BF16)
        scatter_kernel<bf16><<<grid, 128, 0, mt_cuda_raw(s)>>>(*a);
    else
        scatter_kernel<float><<<grid, 128, 0, mt_cuda_raw(s)>>>(*a);
    return mt__cuda_launched(s, "embed backward", err);
}
