/* cross_entropy.cu - loss = -log softmax(logits)[target];   dlogits = (softmax - onehot) * dscale (* 1 - (z / softcap)^2).
 *
 * Shapes: logits, dlogits [N, V].  Bytes moved: logits once from memory and once more (a row of a large vocabulary does
 * not fit on chip), dlogits once.
 * One block per row keeps (largest, where, sum of exponentials) per thread and joins them in a fixed order.  The rows'
 * losses are added to the step's sum by one thread, in row order, in double: what the CPU does, to the bit. */
#include "ops/ops_cuda.cuh"

enum { THREADS = 512, N_WARPS = THREADS / 32 };

typedef struct partial {
    float top, sum; /* largest logit so far; sum of exp(z - top) */
    int best;       /* where it is; the first of equals */
} partial;

__device__ __forceinline__ partial join(partial a, partial b)
{
    bool b_wins = b.top > a.top || (b.top == a.top && b.best < a.best);
    partial r = b_wins ? b : a;
    float low = b_wins ? a.top : b.top, low_sum = b_wins ? a.sum : b.sum;
    if (low > -INFINITY) r.sum += low_sum * expf(low - r.top);
    return r;
}

__device__ __forceinline__ partial warp_join(partial p)
{
#pragma unroll
    for (int half = 16; half; half /= 2) {
        partial q;
        q.top = __shfl_down_sync(0xffffffffu, p.top, half);
        q.sum = __shfl_down_sync(0xffffffffu, p.sum, half);
        q.best = __shfl_down_sync(0xffffffffu, p.best, half);
        p = join(p, q);
    }
    return p; /* in lane 0 */
}

__device__ __forceinline__ void see(partial *p, float z, int at)
{
    if (z > p->top) {
        p->sum = p->sum * expf(p->top - z) + 1.0f;
        p->top = z;
        p->best = at;
    } else {
        p->sum += expf(z - p->top);
    }
}

template <typename T, int W> __global__ void __launch_bounds__(THREADS) row_kernel(mt_cross_entropy a)
{
    __shared__ partial of_warp[N_WARPS];
    __shared__ partial whole;
    const float *z = a.logits + (int64_t)blockIdx.x * a.V;
    int V = (int)a.V, target = a.targets[blockIdx.x];
    partial p = { -INFINITY, 0.0f, 0x7fffffff };
    for (int j = (int)threadIdx.x * W; j < V; j += THREADS * W) {
        vec<float, W> v = load<float, W>(z + j);
#pragma unroll
        for (int k = 0; k < W; k++) see(&p, v.at[k], j + k);
    }
    p = warp_join(p);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = p;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < N_WARPS; w++) p = join(p, of_warp[w]);
        whole = p;
        a.row_loss[blockIdx.x] = (float)(log((double)p.sum) - (double)(z[target] - p.top));
        a.row_correct[blockIdx.x] = p.best == target;
    }
    __syncthreads();
    if (!a.dlogits) return;
    T *dz = (T *)a.dlogits + (int64_t)blockIdx.x * a.V;
    float top = whole.top, inv = 1.0f / whole.sum, to_cap = a.softcap != 0 ? 1.0f / a.softcap : 0.0f;
    for (int j = (int)threadIdx.x * W; j < V; j += THREADS * W) {
        vec<float, W> v = load<float, W>(z + j);
        vec<T, W> d;
#pragma unroll
        for (int k = 0; k < W; k++) {
            float f = (expf(v.at[k] - top) * inv - (j + k == target ? 1.0f : 0.0f)) * a.dscale, th = v.at[k] * to_cap;
            d.at[k] = from_f32<T>(f * (1.0f - th * th)); /* without a cap, times 1 */
        }
        store<T, W>(dz + j, d);
    }
}

__global__ void add_rows_kernel(mt_loss_sum *sum, const float *row_loss, const int32_t *row_correct, int64_t N)
{
    __shared__ float loss[1024];
    __shared__ int correct[1024];
    mt_loss_sum total;
    if (threadIdx.x == 0) total = *sum;
    for (int64_t from = 0; from < N; from += 1024) {
        int n = (int)(N - from < 1024 ? N - from : 1024);
        __syncthreads();
        if ((int)threadIdx.x < n) {
            loss[threadIdx.x] = row_loss[from + threadIdx.x];
            correct[threadIdx.x] = row_correct[from + threadIdx.x];
        }
        __syncthreads();
        if (threadIdx.x) continue;
        for (int i = 0; i < n; i++) {
            total.loss += (double)loss[i];
            total.correct += correct[i];
        }
    }
    if (threadIdx.x == 0) *sum = total;
}

template <typename T> static void rows(mt_stream *s, const mt_cross_entropy *a)
{
    bool whole = a->V % 4 == 0 && is_aligned(a->logits, 16) && is_aligned(a->dlogits, 4 * sizeof(T));
    if (whole)
        row_kernel<T, 4><<<(unsigned)a->N, THREADS, 0, mt_cuda_raw(s)>>>(*a);
    else
        row_kernel<T, 1><<<(unsigned)a->N, THREADS, 0, mt_cuda_raw(s)>>>(*a);
}

mt_rc mt__cross_entropy_cuda(mt_stream *s, const mt_cross_entropy *a, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    if (a->V > 0x7ffffff0) return mt_fail(err, MT_EUNSUPPORTED, "a vocabulary of %lld", (long long)a->V);
    if (a->t == MT_DTYPE_BF16)
        rows<bf16>(s, a);
    else
        rows<float>(s, a);
    MT_TRY(mt__cuda_launched(s, "cross entropy", err));
    add_rows_kernel<<<1, 1024, 0, mt_cuda_raw(s)>>>(a->sum, a->row_loss, a->row_correct, a->N);
    return mt__cuda_launched(s, "the sum of losses", err);
}
