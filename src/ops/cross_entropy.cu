/* cross_entropy.cu - loss = -log softmax(z)[target];   dlogits = (softmax - onehot) * dscale (* 1 - (z / softcap)^2),   z = logits, or
 * softcap tanh(logits / softcap).
 *
 * Shapes: logits, dlogits [N, V].  Bytes moved: logits once, dlogits once.  A row of a large vocabulary does not fit on one
 * processor: a cluster of blocks holds it in registers, each block a piece, and joins (largest, where, sum of exponentials)
 * through their shared memories.  There are as many clusters as the processors hold; each takes row after row, and while it works
 * on one, its pieces of the next arrive in shared memory.  Without clusters, or if rows are too long or misaligned for 16-byte
 * loads, one block takes a row and reads it twice; so it does with the terms of row_terms.h.  Joins have a fixed order.  One thread adds the rows' losses to the step's
 * sum, in row order, in double: to the bit as on the CPU. */
#include "ops/ops_cuda.cuh"

extern "C" {
#include "ops/row_terms.h"
}

#include <cooperative_groups.h>

enum { THREADS = 512, N_WARPS = THREADS / 32 };

typedef struct partial {
    float top, sum; /* largest logit so far; sum of exp(z - top) */
    int best;       /* where it is; the first of equals */
} partial;

#define NOTHING                                                                                                                  \
    {                                                                                                                            \
        -INFINITY, 0.0f, 0x7fffffff                                                                                              \
    } /* joins as if it were not there */

__device__ __forceinline__ partial join(partial a, partial b)
{
    bool b_wins = b.top > a.top || (b.top == a.top && b.best < a.best);
    partial r = b_wins ? b : a;
    float low = b_wins ? a.top : b.top, low_sum = b_wins ? a.sum : b.sum;
    if (low > -INFINITY) r.sum += low_sum * expf(low - r.top);
    return r;
}

/* Every lane gets the same: join(a, b) and join(b, a) have the same bits. */
__device__ __forceinline__ partial warp_join(partial p, int lanes = 32)
{
    for (int half = lanes / 2; half; half /= 2) {
        partial q;
        q.top = __shfl_xor_sync(0xffffffffu, p.top, half);
        q.sum = __shfl_xor_sync(0xffffffffu, p.sum, half);
        q.best = __shfl_xor_sync(0xffffffffu, p.best, half);
        p = join(p, q);
    }
    return p;
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

template <bool CAPPED> __device__ __forceinline__ float capped(float z, float softcap, float to_cap)
{
    return CAPPED ? softcap * tanhf(z * to_cap) : z;
}

template <typename T, int W, bool CAPPED> __global__ void __launch_bounds__(THREADS) row_kernel(mt_cross_entropy a)
{
    __shared__ partial of_warp[N_WARPS];
    __shared__ partial whole;
    const float *z = a.logits + (int64_t)blockIdx.x * a.V;
    int V = (int)a.V, target = a.targets[blockIdx.x];
    float to_cap = CAPPED ? 1.0f / a.softcap : 0.0f;
    partial p = NOTHING;
    for (int j = (int)threadIdx.x * W; j < V; j += THREADS * W) {
        vec<float, W> v = load<float, W>(z + j);
#pragma unroll
        for (int k = 0; k < W; k++) see(&p, capped<CAPPED>(v.at[k], a.softcap, to_cap), j + k);
    }
    p = warp_join(p);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = p;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < N_WARPS; w++) p = join(p, of_warp[w]);
        whole = p;
        a.row_loss[blockIdx.x] = (float)(log((double)p.sum) - (double)(capped<CAPPED>(z[target], a.softcap, to_cap) - p.top));
        a.row_correct[blockIdx.x] = p.best == target;
    }
    __syncthreads();
    if (!a.dlogits) return;
    T *dz = (T *)a.dlogits + (int64_t)blockIdx.x * a.V;
    float top = whole.top, inv = 1.0f / whole.sum;
    for (int j = (int)threadIdx.x * W; j < V; j += THREADS * W) {
        vec<float, W> v = load<float, W>(z + j);
        vec<T, W> d;
#pragma unroll
        for (int k = 0; k < W; k++) {
            float c = capped<CAPPED>(v.at[k], a.softcap, to_cap),
                  f = (expf(c - top) * inv - (j + k == target ? 1.0f : 0.0f)) * a.dscale, th = c * to_cap;
            d.at[k] = from_f32<T>(CAPPED ? f * (1.0f - th * th) : f);
        }
        store<T, W>(dz + j, d);
    }
}

/* The same with the terms of row_terms.h. */
template <typename T, int W, bool CAPPED> __global__ void __launch_bounds__(THREADS) terms_kernel(mt_cross_entropy a)
{
    __shared__ partial of_warp[N_WARPS];
    __shared__ float top, inv;
    __shared__ mt_row_terms terms;
    const float *z = a.logits + (int64_t)blockIdx.x * a.V;
    const int V = (int)a.V, target = a.targets[blockIdx.x];
    const float to_cap = CAPPED ? 1.0f / a.softcap : 0.0f;
    partial p = NOTHING;
    float sum = 0;
    for (int j = (int)threadIdx.x * W; j < V; j += THREADS * W) {
        vec<float, W> v = load<float, W>(z + j);
#pragma unroll
        for (int k = 0; k < W; k++) {
            const float c = capped<CAPPED>(v.at[k], a.softcap, to_cap);
            see(&p, c, j + k);
            sum += c;
        }
    }
    p = warp_join(p);
    sum = block_sum(sum);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = p;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < N_WARPS; w++) p = join(p, of_warp[w]);
        top = p.top, inv = 1.0f / p.sum;
        const double at_target = (double)capped<CAPPED>(z[target], a.softcap, to_cap);
        terms = mt_row_terms_of(&a, blockIdx.x, (double)p.top, log((double)p.sum), at_target, (double)sum / V);
        a.row_loss[blockIdx.x] = terms.loss;
        a.row_correct[blockIdx.x] = p.best == target;
    }
    __syncthreads();
    if (!a.dlogits) return;
    T *dz = (T *)a.dlogits + (int64_t)blockIdx.x * a.V;
    for (int j = (int)threadIdx.x * W; j < V; j += THREADS * W) {
        vec<float, W> v = load<float, W>(z + j);
        vec<T, W> d;
#pragma unroll
        for (int k = 0; k < W; k++) {
            const float c = capped<CAPPED>(v.at[k], a.softcap, to_cap), th = c * to_cap,
                        f = terms.of_p * (expf(c - top) * inv) - terms.of_all - (j + k == target ? terms.of_target : 0.0f);
            d.at[k] = from_f32<T>(CAPPED ? f * (1.0f - th * th) : f);
        }
        store<T, W>(dz + j, d);
    }
}

/* -- a row in a cluster ---------------------------------------------------------------------------- */

/* HELD: vectors of a row that a thread holds.  8 blocks of 512 threads hold 163,840 logits with 10 and 262,144 with 16. */
enum { MOST_BLOCKS = 8, FEW_HELD = 10, MANY_HELD = 16 };

static int64_t block_holds(int held) { return (int64_t)THREADS * held * 4; }

template <int HELD> struct piece {
    vec<float, 4> z[HELD];
    int from, to; /* vectors of the row that are this block's; this thread has from + threadIdx.x, + THREADS, ... */
};

__device__ __forceinline__ uint32_t shared_at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* The next row's piece, requested by one thread: `bytes`, a multiple of 16, counted by `arrived`. */
__device__ __forceinline__ void fetch_piece(void *to, const void *from, uint32_t bytes, uint64_t *arrived)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(arrived)), "r"(bytes) : "memory");
    if (bytes)
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_at(to)),
            "l"(from), "r"(bytes), "r"(shared_at(arrived))
            : "memory");
}

__device__ __forceinline__ void wait_for_piece(uint64_t *arrived, uint32_t turn)
{
    asm volatile("{ .reg .pred yes; again: mbarrier.try_wait.parity.shared::cta.b64 yes, [%0], %1; @!yes bra again; }" ::"r"(
                     shared_at(arrived)),
                 "r"(turn & 1)
                 : "memory");
}

template <int HELD, bool CAPPED>
__device__ __forceinline__ void take_piece(piece<HELD> &p, const vec<float, 4> *shared, float softcap)
{
    int n = p.to - p.from; /* left from this thread on */
    float to_cap = CAPPED ? 1.0f / softcap : 0.0f;
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        bool there = k * THREADS < n;
        if (there) p.z[k] = shared[(int)threadIdx.x + k * THREADS];
#pragma unroll
        for (int e = 0; e < 4; e++) p.z[k].at[e] = there ? capped<CAPPED>(p.z[k].at[e], softcap, to_cap) : -INFINITY;
    }
}

/* exp(x) for x <= 0 by the processor's own 2^x: exp(0) is 1, relative errors are 2e-7 and 6e-8 times -x more, and results below
 * 1e-38 are 0. */
__device__ __forceinline__ float quick_exp(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
}

/* Where the first of the thread's vectors has `top`. */
template <int HELD> __device__ __forceinline__ int find(const piece<HELD> &p, float top)
{
    int at = 0x7fffffff;
#pragma unroll
    for (int k = HELD - 1; k >= 0; k--)
#pragma unroll
        for (int e = 3; e >= 0; e--)
            if (p.z[k].at[e] == top) at = 4 * (p.from + k * THREADS) + e;
    return at;
}

/* The sum over the logits that this warp holds.  KEEP: the logits stay; else exp(z - top) takes their place. */
template <int HELD, bool KEEP> __device__ __forceinline__ partial sum_piece(piece<HELD> &p)
{
    partial w = NOTHING;
    float most[4] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY }, sum[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int k = 0; k < HELD; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) most[e] = fmaxf(most[e], p.z[k].at[e]);
    float own = fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]));
    w.top = own;
#pragma unroll
    for (int half = 16; half; half /= 2) w.top = fmaxf(w.top, __shfl_xor_sync(0xffffffffu, w.top, half));
    int best = own == w.top ? find(p, own) : w.best;
    float top = w.top > -INFINITY ? w.top : 0.0f; /* nothing here: exp(-inf - 0) is 0 */
#pragma unroll
    for (int k = 0; k < HELD; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float f = quick_exp(p.z[k].at[e] - top);
            sum[e] += f;
            if (!KEEP) p.z[k].at[e] = f;
        }
    w.sum = warp_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    w.best = __reduce_min_sync(0xffffffffu, best);
    return w;
}

/* The whole row of what its warps hold: within the block, then every block's to every block.  Rows take turns between two places. */
__device__ __forceinline__ partial join_cluster(partial p, int rank, int n_blocks, int turn)
{
#if __CUDA_ARCH__ >= 900
    namespace cg = cooperative_groups;
    cg::cluster_group cluster = cg::this_cluster();
    __shared__ partial of_warp[N_WARPS], of_block[2][MOST_BLOCKS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) of_warp[warp] = p;
    __syncthreads();
    if (warp == 0) {
        p = warp_join(of_warp[lane % N_WARPS], N_WARPS);
        if (lane < n_blocks) *cluster.map_shared_rank(&of_block[turn & 1][rank], lane) = p;
    }
    cluster.sync();
    p = warp_join(of_block[turn & 1][lane % n_blocks], n_blocks);
#endif
    return p;
}

/* dlogits of a block's piece of row i; mine: what the warp holds of it. */
template <typename T, int HELD, bool CAPPED>
__device__ __forceinline__ void write_piece(const mt_cross_entropy &a, int64_t i, const piece<HELD> &p, partial mine, partial row,
                                            int target)
{
    T *dz = (T *)a.dlogits + i * a.V;
    float inv = 1.0f / row.sum, to_cap = CAPPED ? 1.0f / a.softcap : 0.0f;
    float scale =
        mine.top > -INFINITY ? expf(mine.top - row.top) * inv * a.dscale : 0.0f; /* for values relative to the warp's top */
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        int at = p.from + k * THREADS;
        if (at >= p.to) break;
        bool has_target = at == target / 4;
        vec<T, 4> d;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float v = p.z[k].at[e], f = CAPPED ? quick_exp(v - row.top) * inv * a.dscale : v * scale, th = v * to_cap;
            if (has_target && e == target % 4) f -= a.dscale;
            d.at[e] = from_f32<T>(CAPPED ? f * (1.0f - th * th) : f);
        }
        store<T, 4>(dz + 4 * at, d);
    }
}

/* each: vectors of a block's piece. */
template <typename T, int HELD, bool CAPPED>
__global__ void __launch_bounds__(THREADS, HELD == FEW_HELD ? 2 : 1) cluster_kernel(mt_cross_entropy a, int each)
{
#if __CUDA_ARCH__ >= 900
    namespace cg = cooperative_groups;
    cg::cluster_group cluster = cg::this_cluster();
    extern __shared__ __align__(128) unsigned char next[];
    __shared__ uint64_t arrived;
    int n_blocks = (int)cluster.num_blocks(), rank = (int)cluster.block_rank(), V = (int)a.V, from = min(V / 4, rank * each),
        to = min(V / 4, from + each), turn = 0;
    int64_t i = blockIdx.x / (unsigned)n_blocks, step = gridDim.x / (unsigned)n_blocks;
    uint32_t bytes = (uint32_t)(to - from) * 16;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_at(&arrived)));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        fetch_piece(next, a.logits + i * V + 4 * (int64_t)from, bytes, &arrived);
    }
    cluster.sync(); /* and all blocks have started: their memory can be written */
    for (; i < a.N; i += step, turn++) {
        const float *z = a.logits + i * V;
        int target = a.targets[i];
        bool first = rank == 0 && threadIdx.x == 0;
        float at_target = first ? capped<CAPPED>(z[target], a.softcap, CAPPED ? 1.0f / a.softcap : 0.0f)
                                : 0.0f; /* before any block writes: dlogits may be logits */
        piece<HELD> p;
        p.from = from + (int)threadIdx.x;
        p.to = to;
        wait_for_piece(&arrived, (uint32_t)turn);
        take_piece<HELD, CAPPED>(p, (const vec<float, 4> *)next, a.softcap);
        __syncthreads(); /* all have theirs: the next may come */
        if (threadIdx.x == 0 && i + step < a.N) fetch_piece(next, z + step * V + 4 * (int64_t)from, bytes, &arrived);
        partial mine = sum_piece<HELD, CAPPED>(p), row = join_cluster(mine, rank, n_blocks, turn);
        if (first) {
            a.row_loss[i] = (float)(log((double)row.sum) - (double)(at_target - row.top));
            a.row_correct[i] = row.best == target;
        }
        if (a.dlogits) write_piece<T, HELD, CAPPED>(a, i, p, mine, row, target);
    }
#else
    __trap(); /* a device whose code has none of this never says `clusters` */
#endif
}

/* MT_OK and *done false: no cluster fits. */
template <typename T> static mt_rc by_clusters(mt_stream *s, const mt_cross_entropy *a, bool *done, mt_err *err)
{
    bool few = a->V <= MOST_BLOCKS * block_holds(FEW_HELD), capped = a->softcap != 0;
    void (*const kernels[2][2])(mt_cross_entropy, int) = {
        { cluster_kernel<T, MANY_HELD, false>, cluster_kernel<T, MANY_HELD, true> },
        { cluster_kernel<T, FEW_HELD, false>, cluster_kernel<T, FEW_HELD, true> },
    };
    void (*kernel)(mt_cross_entropy, int) = kernels[few][capped];
    unsigned blocks = 1;
    while (blocks * block_holds(few ? FEW_HELD : MANY_HELD) < a->V) blocks *= 2;
    int each = (int)div_up(div_up(a->V / 4, blocks), 8) * 8, clusters = 0; /* whole lines of memory */
    cudaLaunchAttribute cluster = { .id = cudaLaunchAttributeClusterDimension };
    cluster.val.clusterDim.x = blocks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t how = { .gridDim = dim3(blocks),
                               .blockDim = dim3(THREADS),
                               .dynamicSmemBytes = (size_t)each * 16,
                               .stream = mt_cuda_raw(s),
                               .attrs = &cluster,
                               .numAttrs = 1 };
    *done = false;
    if (cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, each * 16) != cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&clusters, kernel, &how) != cudaSuccess || clusters == 0) {
        cudaGetLastError();
        return MT_OK;
    }
    *done = true;
    how.gridDim.x = (unsigned)mt_min_i64(a->N, clusters) * blocks;
    return mt__cuda_check(s->dev, cudaLaunchKernelEx(&how, kernel, *a, each), "cross entropy", err);
}

/* -- the op ---------------------------------------------------------------------------------------- */

__global__ void add_rows_kernel(mt_loss_sum *sum, const float *row_loss, const int32_t *row_correct, int64_t N)
{
    __shared__ double loss[1024];
    __shared__ int64_t correct;
    double total = sum->loss;
    if (threadIdx.x == 0) correct = sum->correct;
    for (int64_t from = 0; from < N; from += 1024) {
        int n = (int)(N - from < 1024 ? N - from : 1024), t = (int)threadIdx.x;
        __syncthreads();
        if (t < n) loss[t] = (double)row_loss[from + t];
        int n_correct = __syncthreads_count(t < n && row_correct[from + t]);
        if (t) continue;
        correct += n_correct;
#pragma unroll 16
        for (int i = 0; i < n; i++) total += loss[i];
    }
    if (threadIdx.x == 0) *sum = (mt_loss_sum){ total, correct };
}

template <typename T> static mt_rc rows(mt_stream *s, const mt_cross_entropy *a, mt_err *err)
{
    bool whole = a->V % 4 == 0 && is_aligned(a->logits, 16) && is_aligned(a->dlogits, 4 * sizeof(T));
    bool done = false;
    const bool plain = mt_row_is_plain(a);
    if (plain && whole && mt_cuda_device_of(s)->clusters && a->V <= MOST_BLOCKS * block_holds(MANY_HELD))
        MT_TRY(by_clusters<T>(s, a, &done, err));
    if (done) return MT_OK;
    void (*const kernels[2][2][2])(mt_cross_entropy) = {
        { { terms_kernel<T, 1, false>, terms_kernel<T, 1, true> }, { terms_kernel<T, 4, false>, terms_kernel<T, 4, true> } },
        { { row_kernel<T, 1, false>, row_kernel<T, 1, true> }, { row_kernel<T, 4, false>, row_kernel<T, 4, true> } },
    };
    kernels[plain][whole][a->softcap != 0]<<<(unsigned)a->N, THREADS, 0, mt_cuda_raw(s)>>>(*a);
    return mt__cuda_launched(s, "cross entropy", err);
}

mt_rc mt__cross_entropy_cuda(mt_stream *s, const mt_cross_entropy *a, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    if (a->V > 0x7ffffff0) return mt_fail(err, MT_EUNSUPPORTED, "a vocabulary of %lld", (long long)a->V);
    MT_TRY(a->t == MT_DTYPE_BF16 ? rows<bf16>(s, a, err) : rows<float>(s, a, err));
    add_rows_kernel<<<1, 1024, 0, mt_cuda_raw(s)>>>(a->sum, a->row_loss, a->row_correct, a->N);
    return mt__cuda_launched(s, "the sum of losses", err);
}
