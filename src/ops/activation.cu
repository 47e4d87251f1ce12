/* activation.cu - y = act(gate) * up.   dgate = dy * up * act'(gate),   dup = dy * act(gate).   Plain: up is 1 and has no place.
 *
 * Shapes: gu, dgu [N, 2F] (gate, up; plain: [N, F]), y, dy [N, F].  Bytes moved: forward 3 N F elements, backward 5 N F (6 with y); plain
 * 2 and 3 (4).
 * A thread reads all inputs of its elements before it writes: dgu may be gu, y may be dy.
 *
 * A dense layer's rows have a thread for every piece and no loop: a kernel that may walk is a third slower backward, for the
 * registers it takes.  Packed rows of experts: their number is on the device, so the grid is sized by the bound or by the GPU,
 * whichever is smaller, and walks.  With weights, backward takes a block per row, which adds up the weight's gradient by one fixed tree. */
#include "ops/ops_cuda.cuh"

enum { THREADS = 256, BLOCKS_PER_SM = 16 };

__device__ __forceinline__ int64_t n_rows(const mt_activation &a) { return a.first ? *a.last - *a.first : a.N; }
__device__ __forceinline__ int64_t pair_of(const mt_activation &a, int64_t i) { return a.order[(a.first ? *a.first : 0) + i]; }

/* The two numbers xIELU is made of. */
typedef struct curve {
    float p, n;
} curve;

__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

template <mt_act ACT> __device__ __forceinline__ curve curve_of(const mt_activation &a)
{
    curve k = { 0.0f, 0.0f };
    if (ACT == MT_ACT_XIELU) k = { softplus(*a.alpha_p), MT_XIELU_BETA + softplus(*a.alpha_n) };
    return k;
}

/* act(x), and its derivative through *slope. */
template <mt_act ACT> __device__ __forceinline__ float activate(const curve &shape, float x, float *slope)
{
    if (ACT == MT_ACT_XIELU) {
        float e = expm1f(fminf(x, MT_XIELU_EPS));
        *slope = x > 0 ? 2.0f * shape.p * x + MT_XIELU_BETA : (x < MT_XIELU_EPS ? e : -1.0f) * shape.n + MT_XIELU_BETA;
        return x > 0 ? shape.p * x * x + MT_XIELU_BETA * x : (e - x) * shape.n + MT_XIELU_BETA * x;
    }
    if (ACT == MT_ACT_SILU) {
        float s = 1.0f / (1.0f + expf(-x));
        *slope = s * (1.0f + x * (1.0f - s));
        return x * s;
    }
    if (ACT == MT_ACT_GELU_TANH) {
        const float k = 0.7978845608f, c = 0.044715f; /* sqrt(2/pi) */
        float th = tanhf(k * (x + c * x * x * x));
        *slope = 0.5f * (1.0f + th) + 0.5f * x * (1.0f - th * th) * k * (1.0f + 3.0f * c * x * x);
        return 0.5f * x * (1.0f + th);
    }
    if (ACT == MT_ACT_RELU || ACT == MT_ACT_RELU2) {
        float y = x > 0 ? x : 0.0f;
        *slope = ACT == MT_ACT_RELU ? (x > 0 ? 1.0f : 0.0f) : 2.0f * y;
        return ACT == MT_ACT_RELU ? y : y * y;
    }
    float cdf = 0.5f * (1.0f + erff(x * 0.7071067812f));
    *slope = cdf + x * 0.3989422804f * expf(-0.5f * x * x);
    return x * cdf;
}

/* The result of a gate and its up: y = act * by, with the derivatives of both. */
typedef struct gated {
    float act, by, act_slope, by_slope;
} gated;

template <mt_act ACT> __device__ __forceinline__ gated gate_up(const mt_activation &a, const curve &shape, float gate, float up)
{
    gated g = { 0.0f, up, 0.0f, 1.0f };
    if (ACT != MT_ACT_CLAMPED) {
        g.act = activate<ACT>(shape, gate, &g.act_slope);
        return g;
    }
    float x = fminf(gate, a.limit), s = 1.0f / (1.0f + expf(-a.steep * x));
    g.act = x * s;
    g.act_slope = gate > a.limit ? 0.0f : s * (1.0f + a.steep * x * (1.0f - s));
    g.by = fminf(fmaxf(up, -a.limit), a.limit) + 1.0f;
    g.by_slope = up < -a.limit || up > a.limit ? 0.0f : 1.0f;
    return g;
}

/* Not fused into the product that follows it differently forward and backward: the same bits of y in both. */
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }

template <typename T, int W, mt_act ACT, bool PLAIN, bool PACKED> __global__ void forward_kernel(mt_activation a, int64_t per_row)
{
    int64_t n = (PACKED ? n_rows(a) : a.N) * per_row;
    const curve shape = curve_of<ACT>(a);
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += (int64_t)gridDim.x * blockDim.x) {
        int64_t i = at / per_row, f = at % per_row * W;
        const T *gu = (const T *)a.gu + i * (PLAIN ? 1 : 2) * a.F + f;
        vec<T, W> gate = load<T, W>(gu), up = PLAIN ? gate : load<T, W>(gu + a.F), y;
        float w = PACKED && a.weights ? a.weights[pair_of(a, i)] : 1.0f, in = PACKED && a.weigh_input ? w : 1.0f;
        if (PACKED && a.weigh_input) w = 1.0f;
#pragma unroll
        for (int k = 0; k < W; k++) {
            float u = PLAIN ? 1.0f : to_f32(up.at[k]), v = to_f32(gate.at[k]);
            gated g = PACKED ? gate_up<ACT>(a, shape, times(v, in), times(u, in)) : gate_up<ACT>(a, shape, v, u);
            float out = times(g.act, g.by);
            y.at[k] = from_f32<T>(PACKED ? times(out, w) : out);
        }
        store<T, W>((T *)a.y + i * a.F + f, y);
        if (!PACKED) return;
    }
}

/* W elements of row i from column f on, of weight w; returns their share of the weight's gradient. */
template <typename T, int W, mt_act ACT, bool PLAIN, bool WEIGHTED>
__device__ __forceinline__ float backward_piece(const mt_activation &a, const curve &shape, int64_t i, int64_t f, float w)
{
    int64_t from = i * (PLAIN ? 1 : 2) * a.F + f;
    const T *gu = (const T *)a.gu + from;
    T *dgu = (T *)a.dgu + from;
    vec<T, W> gate = load<T, W>(gu), up = PLAIN ? gate : load<T, W>(gu + a.F), dy = load<T, W>((const T *)a.dy + i * a.F + f), y,
              dgate, dup;
    float dw = 0, in = WEIGHTED && a.weigh_input ? w : 1.0f, by = WEIGHTED && a.weigh_input ? 1.0f : w;
#pragma unroll
    for (int k = 0; k < W; k++) {
        float v = to_f32(gate.at[k]), u = PLAIN ? 1.0f : to_f32(up.at[k]), d = to_f32(dy.at[k]);
        gated g = WEIGHTED ? gate_up<ACT>(a, shape, times(v, in), times(u, in)) : gate_up<ACT>(a, shape, v, u);
        float out = times(g.act, g.by);
        if (WEIGHTED) {
            dw += a.weigh_input ? d * (g.by * g.act_slope * v + g.act * g.by_slope * u) : d * out;
            d = times(d, w);
        }
        dgate.at[k] = from_f32<T>(d * g.by * g.act_slope);
        dup.at[k] = from_f32<T>(d * g.act * g.by_slope);
        y.at[k] = from_f32<T>(WEIGHTED ? times(out, by) : out);
    }
    store<T, W>(dgu, dgate);
    if (!PLAIN) store<T, W>(dgu + a.F, dup);
    if (a.y) store<T, W>((T *)a.y + i * a.F + f, y);
    return dw;
}

template <typename T, int W, mt_act ACT, bool PLAIN, bool PACKED>
__global__ void backward_kernel(mt_activation a, int64_t per_row)
{
    int64_t n = (PACKED ? n_rows(a) : a.N) * per_row;
    const curve shape = curve_of<ACT>(a);
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += (int64_t)gridDim.x * blockDim.x) {
        backward_piece<T, W, ACT, PLAIN, false>(a, shape, at / per_row, at % per_row * W, 1.0f);
        if (!PACKED) return;
    }
}

/* xIELU: and each block's share of the gradients of p and n. */
template <typename T, int W> __global__ void xielu_backward_kernel(mt_activation a, int64_t per_row)
{
    int64_t n_pieces = a.N * per_row;
    const curve shape = curve_of<MT_ACT_XIELU>(a);
    float p = 0, n = 0;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n_pieces; at += (int64_t)gridDim.x * blockDim.x) {
        vec<T, W> gate = load<T, W>((const T *)a.gu + at * W), dy = load<T, W>((const T *)a.dy + at * W);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float x = to_f32(gate.at[k]), d = to_f32(dy.at[k]);
            p += x > 0 ? d * x * x : 0.0f;
            n += x > 0 ? 0.0f : d * (expm1f(fminf(x, MT_XIELU_EPS)) - x);
        }
        backward_piece<T, W, MT_ACT_XIELU, true, false>(a, shape, at / per_row, at % per_row * W, 1.0f);
    }
    p = block_sum(p);
    n = block_sum(n);
    if (threadIdx.x) return;
    ((float *)a.scratch)[2 * blockIdx.x] = p;
    ((float *)a.scratch)[2 * blockIdx.x + 1] = n;
}

/* dalpha += the sums of at most MT_XIELU_BLOCKS shares, by one tree. */
__global__ void xielu_sum_kernel(mt_activation a, int n_shares)
{
    const float *shares = (const float *)a.scratch;
    int t = (int)threadIdx.x;
    float p = block_sum(t < n_shares ? shares[2 * t] : 0.0f), n = block_sum(t < n_shares ? shares[2 * t + 1] : 0.0f);
    if (t) return;
    if (a.dalpha_p) *a.dalpha_p += p / (1.0f + expf(-*a.alpha_p));
    if (a.dalpha_n) *a.dalpha_n += n / (1.0f + expf(-*a.alpha_n));
}

template <typename T, int W, mt_act ACT, bool PLAIN> __global__ void weighted_backward_kernel(mt_activation a, int64_t per_row)
{
    int64_t n = n_rows(a);
    const curve shape = curve_of<ACT>(a);
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
        int64_t pair = pair_of(a, i);
        float w = a.weights[pair], dw = 0;
        for (int64_t at = threadIdx.x; at < per_row; at += blockDim.x)
            dw += backward_piece<T, W, ACT, PLAIN, true>(a, shape, i, at * W, w);
        dw = block_sum(dw);
        if (a.dweights && threadIdx.x == 0) a.dweights[pair] = dw;
    }
}

template <typename T, int W, mt_act ACT, bool PLAIN> static void launch_dense(mt_stream *s, const mt_activation *a, bool back)
{
    int64_t per_row = a->F / W;
    unsigned blocks = (unsigned)div_up(a->N * per_row, THREADS);
    if (back)
        backward_kernel<T, W, ACT, PLAIN, false><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a, per_row);
    else
        forward_kernel<T, W, ACT, PLAIN, false><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a, per_row);
}

template <typename T, int W, mt_act ACT, bool PLAIN> static void launch_packed(mt_stream *s, const mt_activation *a, bool back)
{
    int64_t per_row = a->F / W, most = (int64_t)mt_cuda_device_of(s)->n_sms * BLOCKS_PER_SM;
    int64_t blocks = mt_min_i64(back && a->weights ? a->N : div_up(a->N * per_row, THREADS), most);
    unsigned threads = back && a->weights && per_row < THREADS ? (unsigned)div_up(per_row, 32) * 32 : THREADS;
    if (back && a->weights)
        weighted_backward_kernel<T, W, ACT, PLAIN><<<(unsigned)blocks, threads, 0, mt_cuda_raw(s)>>>(*a, per_row);
    else if (back)
        backward_kernel<T, W, ACT, PLAIN, true><<<(unsigned)blocks, threads, 0, mt_cuda_raw(s)>>>(*a, per_row);
    else
        forward_kernel<T, W, ACT, PLAIN, true><<<(unsigned)blocks, threads, 0, mt_cuda_raw(s)>>>(*a, per_row);
}

template <typename T, int W, mt_act ACT, bool PLAIN> static void launch_by_form(mt_stream *s, const mt_activation *a, bool back)
{
    if (a->first || a->weights)
        launch_packed<T, W, ACT, PLAIN>(s, a, back);
    else
        launch_dense<T, W, ACT, PLAIN>(s, a, back);
}

template <typename T, int W, mt_act ACT> static void launch(mt_stream *s, const mt_activation *a, bool back)
{
    if (a->plain)
        launch_by_form<T, W, ACT, true>(s, a, back);
    else
        launch_by_form<T, W, ACT, false>(s, a, back);
}

template <typename T, int W> static void launch_xielu(mt_stream *s, const mt_activation *a, bool back)
{
    int64_t per_row = a->F / W, blocks = div_up(a->N * per_row, THREADS);
    if (!back) {
        launch_dense<T, W, MT_ACT_XIELU, true>(s, a, false);
        return;
    }
    blocks = mt_min_i64(blocks, MT_XIELU_BLOCKS);
    xielu_backward_kernel<T, W><<<(unsigned)blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a, per_row);
    xielu_sum_kernel<<<1, MT_XIELU_BLOCKS, 0, mt_cuda_raw(s)>>>(*a, (int)blocks);
}

template <typename T, int W> static void by_act(mt_stream *s, const mt_activation *a, bool back)
{
    switch (a->act) {
    case MT_ACT_SILU: launch<T, W, MT_ACT_SILU>(s, a, back); break;
    case MT_ACT_GELU_TANH: launch<T, W, MT_ACT_GELU_TANH>(s, a, back); break;
    case MT_ACT_GELU_ERF: launch<T, W, MT_ACT_GELU_ERF>(s, a, back); break;
    case MT_ACT_RELU: launch<T, W, MT_ACT_RELU>(s, a, back); break;
    case MT_ACT_RELU2: launch<T, W, MT_ACT_RELU2>(s, a, back); break;
    case MT_ACT_XIELU: launch_xielu<T, W>(s, a, back); break;
    case MT_ACT_CLAMPED: launch_by_form<T, W, MT_ACT_CLAMPED, false>(s, a, back); break;
    }
}

template <typename T> static void by_width(mt_stream *s, const mt_activation *a, bool back)
{
    bool whole = a->F % wide<T>() == 0 && is_aligned(a->gu, 16) && is_aligned(a->y, 16) &&
                 (!back || (is_aligned(a->dgu, 16) && is_aligned(a->dy, 16)));
    if (whole)
        by_act<T, wide<T>()>(s, a, back);
    else
        by_act<T, 1>(s, a, back);
}

static mt_rc run(mt_stream *s, const mt_activation *a, bool back, mt_err *err)
{
    if (a->act == MT_ACT_XIELU && (!a->plain || a->first || a->weights))
        return mt_fail(err, MT_EUNSUPPORTED, "xIELU with a gate or experts is not supported");
    if (a->plain && (a->act == MT_ACT_CLAMPED || a->weigh_input))
        return mt_fail(err, MT_EUNSUPPORTED, "a clamped activation and weights of its input need a gate");
    if (a->N == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        by_width<bf16>(s, a, back);
    else
        by_width<float>(s, a, back);
    return mt__cuda_launched(s, back ? "activation backward" : "activation", err);
}

mt_rc mt__activation_fwd_cuda(mt_stream *s, const mt_activation *a, mt_err *err) { return run(s, a, false, err); }
mt_rc mt__activation_bwd_cuda(mt_stream *s, const mt_activation *a, mt_err *err) { return run(s, a, true, err); }
