/* attention.cu - causal attention over packed documents: the op, and the plain kernels for fp32 and odd head widths.
 *
 *     S = scale q k' (bent by ALiBi or a soft cap),  P = softmax(S),  o = P v,  lse = log of P's denominators
 *     delta = sum(o * do),  P = exp(S - lse),  dS = P (do v' - delta),  dq = scale dS k,  dk = scale dS' q,  dv = P' do
 *
 * Shapes: q, dq [N, H, Dh]; k, dk [N, K, Dh]; o [N, H, Dv]; v, dv [N, K, Dv]; lse, delta [N, H] fp32.  The plain kernels give a warp one row and
 * head and walk the keys (or queries) it meets, one at a time: no tiles, no atomics, every sum in one order.  bf16 with
 * the usual head widths takes the tensor cores instead (attention_mma.cu).
 *
 * Sinks are a pass over o and lse after forward, whichever kernels made them, and one over lse and delta after backward: those in
 * between need not know of them, and layers without sinks pay nothing.
 *     o = o / (1 + exp(sink - lse)),   lse = log(exp(lse) + exp(sink)),   dsink -= sum over rows of exp(sink - lse) delta */
#include "ops/attention.cuh"

extern "C" {
#include "base/log.h"
#include "ops/attention_ways.h"
}

enum { THREADS = 256, N_WARPS = THREADS / 32, MAX_HEAD = 512 };

/* PLACES: numbers of a head that a lane holds. */
template <typename T, int PLACES>
__device__ __forceinline__ void load_row(float *x, const void *p, int64_t ld, int64_t row, int64_t head, int Dh, int lane)
{
    const T *src = (const T *)p + row * ld + head * Dh;
#pragma unroll
    for (int k = 0; k < PLACES; k++) x[k] = lane + 32 * k < Dh ? to_f32(src[lane + 32 * k]) : 0.0f;
}

template <typename T, int PLACES>
__device__ __forceinline__ void store_row(void *p, int64_t ld, int64_t row, int64_t head, int Dh, int lane, const float *x,
                                          float by)
{
    T *dst = (T *)p + row * ld + head * Dh;
#pragma unroll
    for (int k = 0; k < PLACES; k++)
        if (lane + 32 * k < Dh) dst[lane + 32 * k] = from_f32<T>(x[k] * by);
}

template <int PLACES> __device__ __forceinline__ float dot(const float *x, const float *y)
{
    float sum = 0;
#pragma unroll
    for (int k = 0; k < PLACES; k++) sum += x[k] * y[k];
    return warp_sum(sum);
}

template <int PLACES> __device__ __forceinline__ void axpy(float *y, float by, const float *x)
{
#pragma unroll
    for (int k = 0; k < PLACES; k++) y[k] += by * x[k];
}

/* Row and head of this warp; false: past the end. */
__device__ __forceinline__ bool my_row(int64_t n_rows, int64_t heads, int *row, int *head)
{
    int64_t at = (int64_t)blockIdx.x * N_WARPS + threadIdx.x / 32;
    *row = (int)(at / heads);
    *head = (int)(at % heads);
    return at < n_rows * heads;
}

/* The score, and its derivative by scale q k' through *slope. */
__device__ __forceinline__ float score(const bending &b, float qk, int back, float *slope)
{
    float s = b.scale * qk - b.per_row * (float)back;
    *slope = 1.0f;
    if (b.softcap == 0) return s;
    float th = tanhf(s / b.softcap);
    *slope = 1.0f - th * th;
    return b.softcap * th;
}

template <typename T, int PLACES> __global__ void __launch_bounds__(THREADS) forward_kernel(mt_attention a)
{
    int i, h, lane = threadIdx.x % 32, Dh = (int)a.Dh;
    if (!my_row(a.N, a.H, &i, &h)) return;
    int kv = h / (int)(a.H / a.K);
    bending b = bending_of(a, h);
    float q[PLACES], o[PLACES] = { 0 }, x[PLACES], top = -INFINITY, sum = 0, slope;
    load_row<T, PLACES>(q, a.q, a.ldq, i, h, Dh, lane);
    for (int j = first_key(a, i); j <= i; j++) {
        load_row<T, PLACES>(x, a.k, a.ldk, j, kv, Dh, lane);
        float s = score(b, dot<PLACES>(q, x), i - j, &slope);
        load_row<T, PLACES>(x, a.v, a.ldv, j, kv, value_width(a), lane);
        if (s > top) { /* what was added so far counts less */
            float less = expf(top - s);
            sum *= less;
#pragma unroll
            for (int k = 0; k < PLACES; k++) o[k] *= less;
            top = s;
        }
        float p = expf(s - top);
        sum += p;
        axpy<PLACES>(o, p, x);
    }
    store_row<T, PLACES>(a.o, a.ldo, i, h, value_width(a), lane, o, 1.0f / sum);
    if (lane == 0) a.lse[(int64_t)i * a.H + h] = top + logf(sum);
}

/* W elements a lane at a time. */
template <typename T, int W> __global__ void __launch_bounds__(THREADS) delta_kernel(mt_attention a, float *delta)
{
    int i, h, lane = threadIdx.x % 32, Dv = value_width(a);
    if (!my_row(a.N, a.H, &i, &h)) return;
    const T *o = (const T *)a.o + (int64_t)i * a.ldo + (int64_t)h * Dv,
            *d_o = (const T *)a.d_o + (int64_t)i * a.ldo + (int64_t)h * Dv;
    float sum = 0;
    for (int d = lane * W; d < Dv; d += 32 * W) {
        vec<T, W> x = load<T, W>(o + d), y = load<T, W>(d_o + d);
#pragma unroll
        for (int k = 0; k < W; k++) sum += to_f32(x.at[k]) * to_f32(y.at[k]);
    }
    sum = warp_sum(sum);
    if (lane == 0) delta[(int64_t)i * a.H + h] = sum;
}

template <typename T, int PLACES> __global__ void __launch_bounds__(THREADS) dq_kernel(mt_attention a, const float *delta)
{
    int i, h, lane = threadIdx.x % 32, Dh = (int)a.Dh;
    if (!my_row(a.N, a.H, &i, &h)) return;
    int kv = h / (int)(a.H / a.K);
    bending b = bending_of(a, h);
    float q[PLACES], d_o[PLACES], dq[PLACES] = { 0 }, k[PLACES], v[PLACES], slope, lse = a.lse[(int64_t)i * a.H + h],
                                  d = delta[(int64_t)i * a.H + h];
    load_row<T, PLACES>(q, a.q, a.ldq, i, h, Dh, lane);
    load_row<T, PLACES>(d_o, a.d_o, a.ldo, i, h, value_width(a), lane);
    for (int j = first_key(a, i); j <= i; j++) {
        load_row<T, PLACES>(k, a.k, a.ldk, j, kv, Dh, lane);
        load_row<T, PLACES>(v, a.v, a.ldv, j, kv, value_width(a), lane);
        float p = expf(score(b, dot<PLACES>(q, k), i - j, &slope) - lse);
        axpy<PLACES>(dq, p * (dot<PLACES>(d_o, v) - d) * slope * a.scale, k);
    }
    store_row<T, PLACES>(a.dq, a.ld_d, i, h, Dh, lane, dq, 1.0f);
}

template <typename T, int PLACES> __global__ void __launch_bounds__(THREADS) dkv_kernel(mt_attention a, const float *delta)
{
    int j, kv, lane = threadIdx.x % 32, Dh = (int)a.Dh, group = (int)(a.H / a.K);
    if (!my_row(a.N, a.K, &j, &kv)) return;
    float k[PLACES], v[PLACES], dk[PLACES] = { 0 }, dv[PLACES] = { 0 }, q[PLACES], d_o[PLACES];
    load_row<T, PLACES>(k, a.k, a.ldk, j, kv, Dh, lane);
    load_row<T, PLACES>(v, a.v, a.ldv, j, kv, value_width(a), lane);
    for (int h = kv * group; h < (kv + 1) * group; h++) {
        bending b = bending_of(a, h);
        for (int i = j, end = end_query(a, j); i < end; i++) {
            float slope;
            load_row<T, PLACES>(q, a.q, a.ldq, i, h, Dh, lane);
            load_row<T, PLACES>(d_o, a.d_o, a.ldo, i, h, value_width(a), lane);
            float p = expf(score(b, dot<PLACES>(q, k), i - j, &slope) - a.lse[(int64_t)i * a.H + h]);
            float ds = p * (dot<PLACES>(d_o, v) - delta[(int64_t)i * a.H + h]) * slope * a.scale;
            axpy<PLACES>(dv, p, d_o);
            axpy<PLACES>(dk, ds, q);
        }
    }
    store_row<T, PLACES>(a.dk, a.ld_d, j, kv, Dh, lane, dk, 1.0f);
    store_row<T, PLACES>(a.dv, a.ld_d, j, kv, value_width(a), lane, dv, 1.0f);
}

/* -- sinks ----------------------------------------------------------------------------------------- */

template <typename T> __global__ void __launch_bounds__(THREADS) sink_kernel(mt_attention a)
{
    int i, h, lane = threadIdx.x % 32;
    if (!my_row(a.N, a.H, &i, &h)) return;
    float *at = a.lse + (int64_t)i * a.H + h, lse = *at, sink = a.sinks[h], kept = 1.0f / (1.0f + expf(sink - lse));
    T *o = (T *)a.o + (int64_t)i * a.ldo + (int64_t)h * value_width(a);
    for (int d = lane; d < value_width(a); d += 32) o[d] = from_f32<T>(to_f32(o[d]) * kept);
    __syncwarp(); /* all lanes have read it */
    if (lane == 0) *at = fmaxf(lse, sink) + log1pf(expf(-fabsf(lse - sink)));
}

/* A thread adds up SUM_ROWS rows of a head. */
__global__ void dsink_kernel(mt_attention a, const float *delta, float *partial)
{
    int64_t h = (int64_t)blockIdx.y * blockDim.x + threadIdx.x, first = (int64_t)blockIdx.x * SUM_ROWS;
    if (h >= a.H) return;
    float sink = a.sinks[h], sum = 0;
    for (int64_t i = first; i < first + SUM_ROWS && i < a.N; i++) sum -= expf(sink - a.lse[i * a.H + h]) * delta[i * a.H + h];
    partial[blockIdx.x * a.H + h] = sum;
}

static unsigned blocks_for(int64_t rows, int64_t heads) { return (unsigned)div_up(rows * heads, N_WARPS); }

/* Of scores and values. */
static int widest(const mt_attention *a) { return a->Dh > value_width(*a) ? (int)a->Dh : value_width(*a); }

static mt_rc check(const mt_attention *a, mt_err *err)
{
    if (widest(a) > MAX_HEAD) return mt_fail(err, MT_EUNSUPPORTED, "heads of width %d, at most %d", widest(a), (int)MAX_HEAD);
    if (a->N > 0x7fffff00) return mt_fail(err, MT_EUNSUPPORTED, "attention over %lld rows", (long long)a->N);
    return MT_OK;
}

template <typename T, int PLACES> static void forward_with(mt_stream *s, const mt_attention *a)
{
    forward_kernel<T, PLACES><<<blocks_for(a->N, a->H), THREADS, 0, mt_cuda_raw(s)>>>(*a);
}

template <typename T, int PLACES> static void backward_with(mt_stream *s, const mt_attention *a, const float *delta)
{
    dq_kernel<T, PLACES><<<blocks_for(a->N, a->H), THREADS, 0, mt_cuda_raw(s)>>>(*a, delta);
    dkv_kernel<T, PLACES><<<blocks_for(a->N, a->K), THREADS, 0, mt_cuda_raw(s)>>>(*a, delta);
}

template <typename T> static void forward(mt_stream *s, const mt_attention *a)
{
    if (widest(a) <= 64) return forward_with<T, 2>(s, a);
    if (widest(a) <= 128) return forward_with<T, 4>(s, a);
    if (widest(a) <= 256) return forward_with<T, 8>(s, a);
    forward_with<T, MAX_HEAD / 32>(s, a);
}

template <typename T> static void backward(mt_stream *s, const mt_attention *a, const float *delta)
{
    if (widest(a) <= 64) return backward_with<T, 2>(s, a, delta);
    if (widest(a) <= 128) return backward_with<T, 4>(s, a, delta);
    if (widest(a) <= 256) return backward_with<T, 8>(s, a, delta);
    backward_with<T, MAX_HEAD / 32>(s, a, delta);
}

/* cuDNN has no kernel for this after all (another version, another GPU): the same call without it, for the next suitable
 * kernel. */
static mt_attention without(mt_stream *s, const mt_attention *a, mt_attention_way way, mt_err *err)
{
    mt_cuda_device *d = mt_cuda_device_of(s);
    mt_attention other = *a;
    if (!d->told_attention)
        mt_warn("some attention uses megatrain's own kernels, which are slower: %s", err ? err->msg : "cuDNN refused");
    d->told_attention = true;
    if (err) *err = mt_err{};
    other.use.ways &= ~(1u << way);
    return other;
}

static mt_rc forward_by_way(mt_stream *s, const mt_attention *a, mt_err *err)
{
    mt_attention_way way = mt_attention_choose(a, false);
    if (way == MT_ATTENTION_CUDNN) {
        mt_rc rc = mt__attention_cudnn_fwd(s, a, err);
        if (rc != MT_EUNSUPPORTED) return rc;
        mt_attention other = without(s, a, way, err);
        return forward_by_way(s, &other, err);
    }
    if (way == MT_ATTENTION_FLASH) return mt__attention_mma_fwd(s, a, err);
    if (a->t == MT_DTYPE_BF16)
        forward<bf16>(s, a);
    else
        forward<float>(s, a);
    return mt__cuda_launched(s, "attention", err);
}

mt_rc mt__attention_fwd_cuda(mt_stream *s, const mt_attention *a, mt_err *err)
{
    MT_TRY(check(a, err));
    if (a->N == 0) return MT_OK;
    MT_TRY(forward_by_way(s, a, err));
    if (!a->sinks) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        sink_kernel<bf16><<<blocks_for(a->N, a->H), THREADS, 0, mt_cuda_raw(s)>>>(*a);
    else
        sink_kernel<float><<<blocks_for(a->N, a->H), THREADS, 0, mt_cuda_raw(s)>>>(*a);
    return mt__cuda_launched(s, "attention sinks", err);
}

/* *sums: where in the scratch this way leaves delta. */
static mt_rc backward_by_way(mt_stream *s, const mt_attention *a, const float **sums, mt_err *err)
{
    mt_attention_way way = mt_attention_choose(a, true);
    if (way == MT_ATTENTION_CUDNN || way == MT_ATTENTION_CUDNN_FAST) {
        *sums = (const float *)((const char *)a->scratch + mt_cudnn_layout_of(a, way, true).delta);
        mt_rc rc = mt__attention_cudnn_bwd(s, a, way, err);
        if (rc != MT_EUNSUPPORTED) return rc;
        mt_attention other = without(s, a, way, err);
        return backward_by_way(s, &other, sums, err);
    }
    mt__attention_cudnn_expect(s, a);
    float *delta = (float *)a->scratch;
    *sums = delta;
    bool fours = value_width(*a) % 4 == 0 && a->ldo % 4 == 0 && is_aligned(a->o, 8) &&
                 is_aligned(a->d_o, 8); /* the same for all rows: the address of one must not change bits */
    if (a->t == MT_DTYPE_BF16 && fours)
        delta_kernel<bf16, 4><<<blocks_for(a->N, a->H), THREADS, 0, mt_cuda_raw(s)>>>(*a, delta);
    else if (a->t == MT_DTYPE_BF16)
        delta_kernel<bf16, 1><<<blocks_for(a->N, a->H), THREADS, 0, mt_cuda_raw(s)>>>(*a, delta);
    else
        delta_kernel<float, 1><<<blocks_for(a->N, a->H), THREADS, 0, mt_cuda_raw(s)>>>(*a, delta);
    if (way == MT_ATTENTION_FLASH) return mt__attention_mma_bwd(s, a, delta, err);
    if (a->t == MT_DTYPE_BF16)
        backward<bf16>(s, a, delta);
    else
        backward<float>(s, a, delta);
    return mt__cuda_launched(s, "attention backward", err);
}

mt_rc mt__attention_bwd_cuda(mt_stream *s, const mt_attention *a, mt_err *err)
{
    mt_attention b = *a; /* its scratch comes after that of the sinks */
    float *partial = (float *)a->scratch;
    const float *delta;
    MT_TRY(check(a, err));
    if (a->N == 0) return MT_OK;
    b.scratch = (char *)a->scratch + mt_sinks_scratch(a);
    MT_TRY(backward_by_way(s, &b, &delta, err));
    if (!a->dsinks) return MT_OK;
    dsink_kernel<<<dim3((unsigned)sum_blocks(a->N), (unsigned)div_up(a->H, 64)), 64, 0, mt_cuda_raw(s)>>>(*a, delta, partial);
    MT_TRY(mt__cuda_launched(s, "attention sinks backward", err));
    return mt__sum_rows_cuda(s, a->dsinks, partial, sum_blocks(a->N), a->H, a->H, err);
}
