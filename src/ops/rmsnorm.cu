/* rmsnorm.cu - y = w * x * r (+ add), r = 1 / sqrt(mean(x^2) + eps).
 * Backward, with u = w * dy and xh = x * r:  dx (+)= r * (u - xh * mean(u * xh)),  dw += sum over rows of dy * xh.
 *
 * Shapes: x, y, add, dy, dx [N, D]; w, dw [D]; rstd [N].  Bytes moved: forward reads x (and add) once from memory, once
 * more from cache, and writes y; backward the same with x, dy and dx.
 * One block per row forward.  Backward gives a block SUM_ROWS rows, so that it can add their share of dw in shared
 * memory, each thread its own columns; the shares are added in order by a second kernel. */
#include "ops/ops_cuda.cuh"

enum { THREADS = 256, MAX_SHARED = 48 << 10 };

template <typename T, int W> __global__ void forward_kernel(mt_rmsnorm a)
{
    int64_t base = (int64_t)blockIdx.x * a.D;
    const T *x = (const T *)a.x + base, *w = (const T *)a.w, *add = a.add ? (const T *)a.add + base : NULL;
    T *y = (T *)a.y + base;
    float sum = 0, one = a.one_plus ? 1.0f : 0.0f;
    for (int64_t d = (int64_t)threadIdx.x * W; d < a.D; d += (int64_t)blockDim.x * W) {
        vec<T, W> v = load<T, W>(x + d);
#pragma unroll
        for (int k = 0; k < W; k++) sum += to_f32(v.at[k]) * to_f32(v.at[k]);
    }
    float r = rsqrtf(block_sum(sum) / (float)a.D + a.eps);
    if (threadIdx.x == 0) a.rstd[blockIdx.x] = r;
    for (int64_t d = (int64_t)threadIdx.x * W; d < a.D; d += (int64_t)blockDim.x * W) {
        vec<T, W> v = load<T, W>(x + d), vw = load<T, W>(w + d), va = add ? load<T, W>(add + d) : v, out;
#pragma unroll
        for (int k = 0; k < W; k++) {
            float f = to_f32(v.at[k]) * r * (to_f32(vw.at[k]) + one);
            out.at[k] = from_f32<T>(add ? f + to_f32(va.at[k]) : f);
        }
        store<T, W>(y + d, out);
    }
}

/* in_shared: the block's sums fit in shared memory; else they grow in scratch itself. */
template <typename T, int W> __global__ void backward_kernel(mt_rmsnorm a, bool in_shared)
{
    extern __shared__ float shared_dw[];
    float *share = a.dw ? (float *)a.scratch + (int64_t)blockIdx.x * a.D : NULL, *dw = in_shared ? shared_dw : share;
    const T *w = (const T *)a.w;
    float one = a.one_plus ? 1.0f : 0.0f;
    int64_t from = (int64_t)blockIdx.x * SUM_ROWS, to = from + SUM_ROWS < a.N ? from + SUM_ROWS : a.N;
    for (int64_t i = from; i < to; i++) {
        const T *x = (const T *)a.x + i * a.D, *dy = (const T *)a.dy + i * a.D;
        T *dx = (T *)a.dx + i * a.D;
        float r = a.rstd[i], dot = 0;
        for (int64_t d = (int64_t)threadIdx.x * W; d < a.D; d += (int64_t)blockDim.x * W) {
            vec<T, W> vx = load<T, W>(x + d), vy = load<T, W>(dy + d), vw = load<T, W>(w + d);
#pragma unroll
            for (int k = 0; k < W; k++) {
                float xh = to_f32(vx.at[k]) * r, g = to_f32(vy.at[k]);
                dot += (to_f32(vw.at[k]) + one) * g * xh;
                if (share) dw[d + k] = (i == from ? 0.0f : dw[d + k]) + g * xh; /* this thread's columns */
            }
        }
        float mean = block_sum(dot) / (float)a.D;
        for (int64_t d = (int64_t)threadIdx.x * W; d < a.D; d += (int64_t)blockDim.x * W) {
            vec<T, W> vx = load<T, W>(x + d), vy = load<T, W>(dy + d), vw = load<T, W>(w + d), old, out;
            if (a.dx_add) old = load<T, W>(dx + d);
#pragma unroll
            for (int k = 0; k < W; k++) {
                float xh = to_f32(vx.at[k]) * r, f = r * ((to_f32(vw.at[k]) + one) * to_f32(vy.at[k]) - xh * mean);
                out.at[k] = from_f32<T>(a.dx_add ? f + to_f32(old.at[k]) : f);
            }
            store<T, W>(dx + d, out);
        }
    }
    if (share && in_shared)
        for (int64_t d = (int64_t)threadIdx.x * W; d < a.D; d += (int64_t)blockDim.x * W)
            for (int k = 0; k < W; k++) share[d + k] = shared_dw[d + k];
}

static int threads_for(int64_t D, int width) { return (int)mt_min_i64(THREADS, mt_round_up((size_t)div_up(D, width), 32)); }

template <typename T, int W> static void forward(mt_stream *s, const mt_rmsnorm *a)
{
    forward_kernel<T, W><<<(unsigned)a->N, threads_for(a->D, W), 0, mt_cuda_raw(s)>>>(*a);
}

template <typename T, int W> static void backward(mt_stream *s, const mt_rmsnorm *a)
{
    size_t bytes = (size_t)a->D * sizeof(float);
    bool in_shared = a->dw && bytes <= MAX_SHARED;
    backward_kernel<T, W>
        <<<(unsigned)sum_blocks(a->N), threads_for(a->D, W), in_shared ? bytes : 0, mt_cuda_raw(s)>>>(*a, in_shared);
}

template <typename T> static bool whole(const mt_rmsnorm *a, const void *p1, const void *p2)
{
    return a->D % wide<T>() == 0 && is_aligned(a->x, 16) && is_aligned(a->w, 16) && is_aligned(p1, 16) && is_aligned(p2, 16);
}

mt_rc mt__rmsnorm_fwd_cuda(mt_stream *s, const mt_rmsnorm *a, mt_err *err)
{
    if (a->N == 0) return MT_OK; /* the head of a micro-batch that trains no row */
    if (a->t == MT_DTYPE_BF16)
        whole<bf16>(a, a->y, a->add) ? forward<bf16, 8>(s, a) : forward<bf16, 1>(s, a);
    else
        whole<float>(a, a->y, a->add) ? forward<float, 4>(s, a) : forward<float, 1>(s, a);
    return mt__cuda_launched(s, "rmsnorm", err);
}

mt_rc mt__rmsnorm_bwd_cuda(mt_stream *s, const mt_rmsnorm *a, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        whole<bf16>(a, a->dx, a->dy) ? backward<bf16, 8>(s, a) : backward<bf16, 1>(s, a);
    else
        whole<float>(a, a->dx, a->dy) ? backward<float, 4>(s, a) : backward<float, 1>(s, a);
    MT_TRY(mt__cuda_launched(s, "rmsnorm backward", err));
    return a->dw ? mt__sum_rows_cuda(s, a->dw, (const float *)a->scratch, sum_blocks(a->N), a->D, a->D, err) : MT_OK;
}
