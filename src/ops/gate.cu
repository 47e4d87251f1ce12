/* gate.cu - y = x * sigmoid(gate).   dx = dy * sigmoid(gate),   dgate = dy * x * sigmoid(gate) * (1 - sigmoid(gate)).
 *
 * Shapes: all [N, D].  Bytes moved: forward 3 N D elements, backward 5 N D (6 with y).
 * A thread reads all inputs of its elements before it writes: what ops.h lets share memory may. */
#include "ops/ops_cuda.cuh"

enum { THREADS = 256 };

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <typename T, int W> __global__ void forward_kernel(mt_gate a, int64_t per_row)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= a.N * per_row) return;
    int64_t i = at / per_row, d = at % per_row * W;
    vec<T, W> x = load<T, W>((const T *)a.x + i * a.ldx + d), gate = load<T, W>((const T *)a.gate + i * a.ld_gate + d), y;
#pragma unroll
    for (int k = 0; k < W; k++) y.at[k] = from_f32<T>(to_f32(x.at[k]) * sigmoid(to_f32(gate.at[k])));
    store<T, W>((T *)a.y + i * a.ldy + d, y);
}

template <typename T, int W> __global__ void backward_kernel(mt_gate a, int64_t per_row)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= a.N * per_row) return;
    int64_t i = at / per_row, d = at % per_row * W;
    vec<T, W> x = load<T, W>((const T *)a.x + i * a.ldx + d), gate = load<T, W>((const T *)a.gate + i * a.ld_gate + d),
              dy = load<T, W>((const T *)a.dy + i * a.ldy + d), dx, dgate, y;
#pragma unroll
    for (int k = 0; k < W; k++) {
        float s = sigmoid(to_f32(gate.at[k])), in = to_f32(x.at[k]), g = to_f32(dy.at[k]);
        dx.at[k] = from_f32<T>(g * s);
        dgate.at[k] = from_f32<T>(g * in * s * (1.0f - s));
        y.at[k] = from_f32<T>(in * s);
    }
    store<T, W>((T *)a.dx + i * a.ld_dx + d, dx);
    store<T, W>((T *)a.dgate + i * a.ld_dgate + d, dgate);
    if (a.y) store<T, W>((T *)a.y + i * a.ldy + d, y);
}

template <typename T, int W> static void launch(mt_stream *s, const mt_gate *a, bool back)
{
    int64_t per_row = a->D / W;
    unsigned blocks = (unsigned)div_up(a->N * per_row, THREADS);
    void (*kernel)(mt_gate, int64_t) = back ? backward_kernel<T, W> : forward_kernel<T, W>;
    kernel<<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a, per_row);
}

template <typename T> static bool is_whole(const mt_gate *a, bool back)
{
    const int64_t w = wide<T>();
    bool ok = a->D % w == 0 && a->ldx % w == 0 && a->ld_gate % w == 0 && a->ldy % w == 0 && is_aligned(a->x, 16) &&
              is_aligned(a->gate, 16) && is_aligned(a->y, 16);
    return ok && (!back || (a->ld_dx % w == 0 && a->ld_dgate % w == 0 && is_aligned(a->dy, 16) && is_aligned(a->dx, 16) &&
                            is_aligned(a->dgate, 16)));
}

template <typename T> static void by_alignment(mt_stream *s, const mt_gate *a, bool back)
{
    if (is_whole<T>(a, back))
        launch<T, wide<T>()>(s, a, back);
    else
        launch<T, 1>(s, a, back);
}

static mt_rc run(mt_stream *s, const mt_gate *a, bool back, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        by_alignment<bf16>(s, a, back);
    else
        by_alignment<float>(s, a, back);
    return mt__cuda_launched(s, back ? "gate backward" : "gate", err);
}

mt_rc mt__gate_fwd_cuda(mt_stream *s, const mt_gate *a, mt_err *err) { return run(s, a, false, err); }
mt_rc mt__gate_bwd_cuda(mt_stream *s, const mt_gate *a, mt_err *err) { return run(s, a, true, err); }
