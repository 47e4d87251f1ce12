/* bound.cu - x between -limit and limit, in place; backward: dx = 0 where |x| is the limit.
 *
 * Shapes: x, dx [N, D].  Bytes moved: forward 2 N D elements, backward 3 N D. */
#include "ops/ops_cuda.cuh"

enum { THREADS = 256 };

template <typename T, int W> __global__ void forward_kernel(mt_bound a, int64_t per_row)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= a.N * per_row) return;
    T *here = (T *)a.x + at / per_row * a.ldx + at % per_row * W;
    vec<T, W> x = load<T, W>(here);
#pragma unroll
    for (int k = 0; k < W; k++) {
        float f = to_f32(x.at[k]);
        if (fabsf(f) > a.limit) x.at[k] = from_f32<T>(copysignf(a.limit, f));
    }
    store<T, W>(here, x);
}

template <typename T, int W> __global__ void backward_kernel(mt_bound a, int64_t per_row)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= a.N * per_row) return;
    int64_t i = at / per_row, d = at % per_row * W;
    T *grad = (T *)a.dx + i * a.ld_dx + d;
    vec<T, W> x = load<T, W>((const T *)a.x + i * a.ldx + d), dx = load<T, W>(grad);
    float limit = to_f32(from_f32<T>(a.limit)); /* as x holds it */
#pragma unroll
    for (int k = 0; k < W; k++)
        if (fabsf(to_f32(x.at[k])) >= limit) dx.at[k] = from_f32<T>(0.0f);
    store<T, W>(grad, dx);
}

template <typename T, int W> static void launch(mt_stream *s, const mt_bound *a, bool back)
{
    int64_t per_row = a->D / W;
    void (*kernel)(mt_bound, int64_t) = back ? backward_kernel<T, W> : forward_kernel<T, W>;
    kernel<<<(unsigned)div_up(a->N * per_row, THREADS), THREADS, 0, mt_cuda_raw(s)>>>(*a, per_row);
}

template <typename T> static void by_alignment(mt_stream *s, const mt_bound *a, bool back)
{
    const int64_t w = wide<T>();
    bool whole =
        a->D % w == 0 && a->ldx % w == 0 && is_aligned(a->x, 16) && (!back || (a->ld_dx % w == 0 && is_aligned(a->dx, 16)));
    if (whole)
        launch<T, wide<T>()>(s, a, back);
    else
        launch<T, 1>(s, a, back);
}

static mt_rc run(mt_stream *s, const mt_bound *a, bool back, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        by_alignment<bf16>(s, a, back);
    else
        by_alignment<float>(s, a, back);
    return mt__cuda_launched(s, back ? "bound backward" : "bound", err);
}

mt_rc mt__bound_fwd_cuda(mt_stream *s, const mt_bound *a, mt_err *err) { return run(s, a, false, err); }
mt_rc mt__bound_bwd_cuda(mt_stream *s, const mt_bound *a, mt_err *err) { return run(s, a, true, err); }
