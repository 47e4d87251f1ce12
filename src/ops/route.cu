/* route.cu - a warp per row: lane l has experts l, l + 32, ...  Everything in fp32 registers; sums over a row by one fixed tree.
 *
 * Shapes: logits, dlogits [N, E]; experts, weights, dweights [N, T].  Bytes moved: forward 4 N E + 8 N T, backward 8 N E + 8 N T.
 * PER is the number of experts of a lane, a power of two, so that they stay in registers. */
#include "ops/ops_cuda.cuh"

#include <math_constants.h>

enum { WARPS = 8 };

/* Bit i of a mask is expert lane + 32 i. */
#define EACH_EXPERT(i, e) _Pragma("unroll") for (int i = 0, e = threadIdx.x % 32; i < PER; i++, e += 32)

__device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int half = 16; half; half /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, half));
    return x;
}

/* Numbers as unsigned integers of the same order; a NaN is as small as -infinity.  0 is below all of them. */
__device__ __forceinline__ uint32_t ordered(float x)
{
    if (x != x) x = -CUDART_INF_F;
    uint32_t bits = __float_as_uint(x + 0.0f); /* no negative zero */
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The eligible expert with the largest value, the lowest of equal ones; E or more: none is eligible. */
template <int PER> __device__ __forceinline__ int largest(const float value[PER], uint32_t eligible)
{
    uint32_t top = 0;
    EACH_EXPERT(i, e)
    if (eligible >> i & 1) top = max(top, ordered(value[i]));
    top = __reduce_max_sync(0xffffffffu, top);
    uint32_t first = 0x7fffffff;
    EACH_EXPERT(i, e)
    if ((eligible >> i & 1) && ordered(value[i]) == top) first = min(first, (uint32_t)e);
    return (int)__reduce_min_sync(0xffffffffu, first);
}

/* This lane's bit of expert e, or none. */
__device__ __forceinline__ uint32_t bit_of(int e) { return e % 32 == threadIdx.x % 32 ? 1u << e / 32 : 0; }

template <int PER> __device__ __forceinline__ uint32_t choose(const float value[PER], uint32_t eligible, int T)
{
    uint32_t chosen = 0;
    for (int k = 0; k < T; k++) {
        uint32_t bit = bit_of(largest<PER>(value, eligible));
        chosen |= bit;
        eligible &= ~bit;
    }
    return chosen;
}

/* The value of expert e, for every lane. */
template <int PER> __device__ __forceinline__ float value_at(const float value[PER], int e)
{
    float mine = 0;
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (i == e / 32) mine = value[i];
    return __shfl_sync(0xffffffffu, mine, e % 32);
}

/* Experts of group g, of this lane. */
template <int PER> __device__ __forceinline__ uint32_t members(int g, int per_group)
{
    uint32_t mask = 0;
    EACH_EXPERT(i, e)
    if (e >= g * per_group && e < (g + 1) * per_group) mask |= 1u << i;
    return mask;
}

/* Eligible are the experts of the best groups.  Groups have scores as experts have values: group g in lane g % 32. */
template <int PER> __device__ uint32_t best_groups(const mt_route &a, const float value[PER])
{
    int per_group = (int)(a.E / a.n_group);
    float score[PER];
    uint32_t free_groups = 0, eligible = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) score[i] = 0;
    for (int g = 0; g < a.n_group; g++) {
        uint32_t mine = members<PER>(g, per_group);
        int first = largest<PER>(value, mine);
        float sum = value_at<PER>(value, first);
        if (a.kind == MT_ROUTE_SIGMOID && per_group > 1) sum += value_at<PER>(value, largest<PER>(value, mine & ~bit_of(first)));
        free_groups |= bit_of(g);
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (bit_of(g) == 1u << i) score[i] = sum;
    }
    for (int k = 0; k < a.topk_group; k++) {
        int g = largest<PER>(score, free_groups);
        free_groups &= ~bit_of(g);
        eligible |= members<PER>(g, per_group);
    }
    return eligible;
}

/* p = softmax of the logits of the experts in the mask; 0 elsewhere. */
template <int PER> __device__ __forceinline__ void softmax(float p[PER], const float logits[PER], uint32_t in)
{
    float top = -CUDART_INF_F, sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (in >> i & 1) top = fmaxf(top, logits[i]);
    top = warp_max(top);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        p[i] = in >> i & 1 ? expf(logits[i] - top) : 0.0f;
        sum += p[i];
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < PER; i++) p[i] /= sum;
}

/* The sum of x over the experts in the mask. */
template <int PER> __device__ __forceinline__ float sum_over(const float x[PER], uint32_t in)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (in >> i & 1) sum += x[i];
    return warp_sum(sum);
}

/* The scores that weights are computed from; not for MIXER. */
template <int PER>
__device__ __forceinline__ void scores_of(const mt_route &a, const float logits[PER], uint32_t all, uint32_t chosen,
                                          float score[PER])
{
    if (a.kind == MT_ROUTE_SOFTMAX || a.kind == MT_ROUTE_CHOSEN) {
        softmax<PER>(score, logits, a.kind == MT_ROUTE_SOFTMAX ? all : chosen);
        return;
    }
#pragma unroll
    for (int i = 0; i < PER; i++) score[i] = 1.0f / (1.0f + expf(-logits[i]));
}

template <int PER>
__device__ __forceinline__ float divisor_of(const mt_route &a, const float score[PER], uint32_t chosen, bool *is_free)
{
    float sum = sum_over<PER>(score, chosen) + a.norm_eps;
    *is_free = sum >= a.norm_floor;
    return *is_free ? sum : a.norm_floor;
}

template <int PER>
__device__ __forceinline__ uint32_t mixer_set(const mt_route &a, const float logits[PER], uint32_t left, int first)
{
    float top = value_at<PER>(logits, first);
    uint32_t in = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        float ratio = (top - logits[i]) / fmaxf(fabsf(logits[i]), top);
        if ((left >> i & 1) && !(ratio > 2 * a.jitter)) in |= 1u << i;
    }
    return in;
}

template <int PER> __device__ __forceinline__ uint32_t load_row(const mt_route &a, int64_t n, float logits[PER])
{
    uint32_t all = 0;
    EACH_EXPERT(i, e)
    {
        bool is_one = e < a.E;
        logits[i] = is_one ? a.logits[n * a.E + e] : -CUDART_INF_F;
        if (is_one) all |= 1u << i;
    }
    return all;
}

__device__ __forceinline__ float scale_of(const mt_route &a) { return a.scale != 0 ? a.scale : 1.0f; }

/* The experts of a row; w: the weights of all. */
template <int PER>
__device__ __forceinline__ uint32_t pick(const mt_route &a, const float logits[PER], uint32_t all, float w[PER])
{
    bool by_score = a.kind == MT_ROUTE_SIGMOID || (a.kind == MT_ROUTE_SOFTMAX && a.bias), is_free;
    float value[PER];
    if (by_score) scores_of<PER>(a, logits, all, all, value);
    EACH_EXPERT(i, e)
    {
        if (!by_score) value[i] = logits[i];
        if (by_score && a.bias && e < a.E) value[i] += a.bias[e];
    }
    uint32_t eligible = a.n_group > 1 ? best_groups<PER>(a, value) : all, chosen = choose<PER>(value, eligible, (int)a.T);
    scores_of<PER>(a, logits, all, chosen, w);
    float divisor = a.norm ? divisor_of<PER>(a, w, chosen, &is_free) : 1.0f, by = scale_of(a);
#pragma unroll
    for (int i = 0; i < PER; i++) w[i] = w[i] / divisor * by;
    return chosen;
}

template <int PER> __device__ __forceinline__ uint32_t mix(const mt_route &a, const float logits[PER], uint32_t all, float w[PER])
{
    uint32_t left = all, chosen = 0;
    float p[PER];
    for (int k = 0; k < a.T; k++) {
        int first = largest<PER>(logits, left);
        softmax<PER>(p, logits, mixer_set<PER>(a, logits, left, first));
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (bit_of(first) == 1u << i) w[i] = p[i] * scale_of(a);
        chosen |= bit_of(first);
        left &= ~bit_of(first);
    }
    return chosen;
}

template <int PER> __global__ void forward_kernel(mt_route a)
{
    int64_t n = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    float logits[PER], w[PER];
    if (n >= a.N) return;
    uint32_t all = load_row<PER>(a, n, logits);
    uint32_t chosen = a.kind == MT_ROUTE_MIXER ? mix<PER>(a, logits, all, w) : pick<PER>(a, logits, all, w);
    uint32_t lower = (1u << threadIdx.x % 32) - 1;
    int64_t at = n * a.T;
    EACH_EXPERT(i, e)
    {
        uint32_t takers = __ballot_sync(0xffffffffu, chosen >> i & 1);
        if (chosen >> i & 1) {
            int64_t k = at + __popc(takers & lower);
            a.experts[k] = e;
            a.weights[k] = w[i];
        }
        at += __popc(takers);
    }
}

/* -- the auxiliary loss ---------------------------------------------------------------------------- */

/* A block's rows: counts by integer additions, whose order does not show; probabilities summed in the order of rows in each warp,
 * then in the order of warps. */
template <int PER> __global__ void aux_kernel(mt_route a)
{
    __shared__ float probs[WARPS][32 * PER];
    int warp = threadIdx.x / 32;
    float logits[PER], p[PER], sum[PER];
    int counts[PER];
#pragma unroll
    for (int i = 0; i < PER; i++) sum[i] = 0, counts[i] = 0;
    for (int r = warp; r < SUM_ROWS; r += WARPS) {
        int64_t n = (int64_t)blockIdx.x * SUM_ROWS + r;
        if (n >= a.N) break;
        uint32_t all = load_row<PER>(a, n, logits), chosen = choose<PER>(logits, all, (int)a.T);
        softmax<PER>(p, logits, all);
#pragma unroll
        for (int i = 0; i < PER; i++) {
            sum[i] += p[i];
            counts[i] += chosen >> i & 1;
        }
    }
    EACH_EXPERT(i, e)
    {
        probs[warp][e] = sum[i];
        if (e < a.E && counts[i]) atomicAdd(&a.aux_counts[e], counts[i]);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < a.E; e += blockDim.x) {
        float x = 0;
        for (int w = 0; w < WARPS; w++) x += probs[w][e];
        ((float *)a.scratch)[(int64_t)blockIdx.x * a.E + e] = x;
    }
}

/* -- gradients ------------------------------------------------------------------------------------- */

template <int PER>
__device__ __forceinline__ void mix_back(const mt_route &a, const float logits[PER], uint32_t all, uint32_t chosen,
                                         const float dw[PER], float dl[PER])
{
    uint32_t left = all;
    float p[PER];
#pragma unroll
    for (int i = 0; i < PER; i++) dl[i] = 0;
    for (int k = 0; k < a.T; k++) {
        int e = largest<PER>(logits, chosen);
        softmax<PER>(p, logits, mixer_set<PER>(a, logits, left, e));
        float d = value_at<PER>(dw, e) * value_at<PER>(p, e) * scale_of(a);
#pragma unroll
        for (int i = 0; i < PER; i++) dl[i] += d * ((bit_of(e) == 1u << i ? 1.0f : 0.0f) - p[i]);
        chosen &= ~bit_of(e);
        left &= ~bit_of(e);
    }
}

template <int PER>
__device__ __forceinline__ void logits_back(const mt_route &a, const float logits[PER], uint32_t all, uint32_t chosen,
                                            const float dw[PER], float dl[PER])
{
    float score[PER], ds[PER];
    bool is_free = false, by_softmax = a.kind == MT_ROUTE_SOFTMAX || a.kind == MT_ROUTE_CHOSEN;
    scores_of<PER>(a, logits, all, chosen, score);
    float n = a.norm ? divisor_of<PER>(a, score, chosen, &is_free) : 1.0f, mean = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) ds[i] = dw[i] * score[i] / n;
    if (is_free) mean = sum_over<PER>(ds, chosen);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        ds[i] = chosen >> i & 1 ? scale_of(a) / n * (dw[i] - mean) : 0.0f;
        dl[i] = ds[i] * score[i];
    }
    mean = sum_over<PER>(dl, chosen);
#pragma unroll
    for (int i = 0; i < PER; i++) dl[i] = score[i] * (by_softmax ? ds[i] - mean : ds[i] * (1.0f - score[i]));
}

template <int PER>
__device__ __forceinline__ void aux_back(const mt_route &a, const float logits[PER], uint32_t all, float dl[PER])
{
    float p[PER], count[PER], part[PER];
    softmax<PER>(p, logits, all);
    EACH_EXPERT(i, e)
    {
        count[i] = e < a.E ? (float)a.aux_counts[e] : 0.0f;
        part[i] = count[i] * p[i];
    }
    float mean = sum_over<PER>(part, all);
#pragma unroll
    for (int i = 0; i < PER; i++) dl[i] += a.aux_scale * p[i] * (count[i] - mean);
}

template <int PER, typename T> __global__ void backward_kernel(mt_route a)
{
    int64_t n = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    float logits[PER], dw[PER], dl[PER];
    uint32_t chosen = 0;
    if (n >= a.N) return;
    uint32_t all = load_row<PER>(a, n, logits);
#pragma unroll
    for (int i = 0; i < PER; i++) dw[i] = 0;
    for (int64_t k = n * a.T; k < (n + 1) * a.T; k++) {
        uint32_t bit = bit_of(a.experts[k]);
        float d = a.dweights[k];
        chosen |= bit;
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (bit == 1u << i) dw[i] = d;
    }
    if (a.kind == MT_ROUTE_MIXER)
        mix_back<PER>(a, logits, all, chosen, dw, dl);
    else
        logits_back<PER>(a, logits, all, chosen, dw, dl);
    if (a.aux_counts) aux_back<PER>(a, logits, all, dl);
    EACH_EXPERT(i, e)
    if (e < a.E) ((T *)a.dlogits)[n * a.E + e] = from_f32<T>(dl[i]);
}

/* -- the ops --------------------------------------------------------------------------------------- */

template <int PER> static void launch(mt_stream *s, const mt_route *a, bool back)
{
    unsigned blocks = (unsigned)div_up(a->N, WARPS);
    if (back && a->t == MT_DTYPE_BF16)
        backward_kernel<PER, bf16><<<blocks, WARPS * 32, 0, mt_cuda_raw(s)>>>(*a);
    else if (back)
        backward_kernel<PER, float><<<blocks, WARPS * 32, 0, mt_cuda_raw(s)>>>(*a);
    else
        forward_kernel<PER><<<blocks, WARPS * 32, 0, mt_cuda_raw(s)>>>(*a);
    if (!back && a->aux_counts) aux_kernel<PER><<<(unsigned)sum_blocks(a->N), WARPS * 32, 0, mt_cuda_raw(s)>>>(*a);
}

static mt_rc run(mt_stream *s, const mt_route *a, bool back, mt_err *err)
{
    MT_TRY(mt_route_check(a, err));
    if (a->N == 0) return MT_OK;
    if (a->E <= 32)
        launch<1>(s, a, back);
    else if (a->E <= 64)
        launch<2>(s, a, back);
    else if (a->E <= 128)
        launch<4>(s, a, back);
    else if (a->E <= 256)
        launch<8>(s, a, back);
    else if (a->E <= 512)
        launch<16>(s, a, back);
    else
        launch<32>(s, a, back);
    return mt__cuda_launched(s, back ? "route backward" : "route", err);
}

mt_rc mt__route_fwd_cuda(mt_stream *s, const mt_route *a, mt_err *err)
{
    MT_TRY(run(s, a, false, err));
    if (!a->aux_counts || a->N == 0) return MT_OK;
    return mt__sum_rows_cuda(s, a->aux_probs, (const float *)a->scratch, sum_blocks(a->N), a->E, a->E, err);
}

mt_rc mt__route_bwd_cuda(mt_stream *s, const mt_route *a, mt_err *err) { return run(s, a, true, err); }

/* One thread: a few hundred products, once a step. */
__global__ void router_loss_kernel(mt_router_loss a)
{
    double sum = 0;
    for (int64_t e = 0; e < a.E; e++) sum = __dadd_rn(sum, __dmul_rn((double)a.counts[e], (double)a.probs[e]));
    *a.sum = __dadd_rn(*a.sum, __dmul_rn(a.scale, sum));
}

mt_rc mt__router_loss_cuda(mt_stream *s, const mt_router_loss *a, mt_err *err)
{
    router_loss_kernel<<<1, 1, 0, mt_cuda_raw(s)>>>(*a);
    return mt__cuda_launched(s, "router loss", err);
}
