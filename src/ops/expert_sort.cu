/* expert_sort.cu - a stable counting sort of pairs by expert.
 *
 *   count   a block of MT_SORT_PAIRS pairs counts its experts           before[e][block] = its pairs of expert e
 *   scan    a block per expert adds up the blocks before each           before[e][block] = pairs of e in earlier blocks; total[e]
 *   offsets one block adds up the experts                               offsets
 *   place   a warp walks its block's pairs 32 at a time, in order       order, rows, place
 *
 * No atomics: within 32 pairs, those of one expert find their rank among each other by comparing.
 * Bytes moved: 20 bytes per pair, and 8 per expert and block. */
#include "ops/ops_cuda.cuh"

enum { SCAN_THREADS = 256 };

/* Walks the pairs of a block: their expert, how many of the same expert the block has before, and how often it is among the 32.
 * seen[e] counts; one warp. */
struct walk {
    int32_t *seen; /* [E] shared */
    int64_t to;

    template <typename FN> __device__ void run(const int32_t *experts, int64_t from, FN fn)
    {
        int lane = threadIdx.x;
        for (int64_t p = from + lane; p - lane < to; p += 32) {
            bool is_one = p < to;
            uint32_t present = __ballot_sync(0xffffffffu, is_one);
            if (is_one) {
                int e = experts[p];
                uint32_t same = __match_any_sync(present, e);
                int rank = __popc(same & ((1u << lane) - 1)), base = seen[e];
                fn(p, e, base + rank);
                __syncwarp(present);
                if (rank == 0) seen[e] = base + __popc(same);
            }
            __syncwarp();
        }
    }
};

__device__ __forceinline__ walk begin_walk(const mt_expert_sort &a, int32_t *seen)
{
    for (int e = threadIdx.x; e < a.E; e += 32) seen[e] = 0;
    __syncwarp();
    int64_t to = ((int64_t)blockIdx.x + 1) * MT_SORT_PAIRS, n = a.N * a.T;
    return { seen, to < n ? to : n };
}

__global__ void count_kernel(mt_expert_sort a, int64_t n_blocks)
{
    extern __shared__ int32_t seen[];
    walk w = begin_walk(a, seen);
    w.run(a.experts, (int64_t)blockIdx.x * MT_SORT_PAIRS, [](int64_t, int, int) {});
    for (int e = threadIdx.x; e < a.E; e += 32) ((int32_t *)a.scratch)[e * n_blocks + blockIdx.x] = seen[e];
}

/* The sum of x over the threads before this one; *total: over all.  Integers: any order is the same. */
__device__ int scan_block(int x, int *total)
{
    __shared__ int of_warp[SCAN_THREADS / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = x;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        int before = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += before;
    }
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    int earlier = 0, all = 0;
    for (int w = 0; w < SCAN_THREADS / 32; w++) {
        if (w < warp) earlier += of_warp[w];
        all += of_warp[w];
    }
    __syncthreads();
    *total = all;
    return earlier + sum - x;
}

/* values[i] becomes the sum of those before it, for n values; returns the sum of all. */
__device__ int scan_values(int32_t *values, int64_t n)
{
    int base = 0, total;
    for (int64_t from = 0; from < n; from += SCAN_THREADS) {
        int64_t i = from + threadIdx.x;
        int x = i < n ? values[i] : 0, before = scan_block(x, &total);
        if (i < n) values[i] = base + before;
        base += total;
    }
    return base;
}

__global__ void scan_kernel(mt_expert_sort a, int64_t n_blocks)
{
    int32_t *before = (int32_t *)a.scratch + blockIdx.x * n_blocks;
    int total = scan_values(before, n_blocks);
    if (threadIdx.x != 0) return;
    a.offsets[blockIdx.x] = total;
    if (a.loads) a.loads[blockIdx.x] += total; /* one block an expert */
}

__global__ void offsets_kernel(mt_expert_sort a)
{
    int total = scan_values(a.offsets, a.E);
    if (threadIdx.x == 0) a.offsets[a.E] = total;
}

__global__ void place_kernel(mt_expert_sort a, int64_t n_blocks)
{
    extern __shared__ int32_t seen[];
    const int32_t *before = (const int32_t *)a.scratch + blockIdx.x;
    walk w = begin_walk(a, seen);
    w.run(a.experts, (int64_t)blockIdx.x * MT_SORT_PAIRS, [&](int64_t p, int e, int rank) {
        int to = a.offsets[e] + before[e * n_blocks] + rank;
        a.order[to] = (int32_t)p;
        a.rows[to] = (int32_t)(p / a.T);
        a.place[p] = to;
    });
}

mt_rc mt__expert_sort_cuda(mt_stream *s, const mt_expert_sort *a, mt_err *err)
{
    int64_t n_blocks = div_up(a->N * a->T, MT_SORT_PAIRS);
    size_t shared = (size_t)a->E * sizeof(int32_t);
    if (n_blocks == 0)
        return mt__cuda_check(s->dev, cudaMemsetAsync(a->offsets, 0, (size_t)(a->E + 1) * sizeof(int32_t), mt_cuda_raw(s)),
                              "expert sort", err);
    count_kernel<<<(unsigned)n_blocks, 32, shared, mt_cuda_raw(s)>>>(*a, n_blocks);
    scan_kernel<<<(unsigned)a->E, SCAN_THREADS, 0, mt_cuda_raw(s)>>>(*a, n_blocks);
    offsets_kernel<<<1, SCAN_THREADS, 0, mt_cuda_raw(s)>>>(*a);
    place_kernel<<<(unsigned)n_blocks, 32, shared, mt_cuda_raw(s)>>>(*a, n_blocks);
    return mt__cuda_launched(s, "expert sort", err);
}
