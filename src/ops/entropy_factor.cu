/* entropy_factor.cu - factors[i] = (H / 3)^alpha, H the entropy of the softmax over a row's 20 largest logits.
 *
 * Shapes: logits [N, V].  Bytes moved: logits once.  A block takes a row.  Each of its warps keeps the largest of what it has seen,
 * one in a lane, in descending order; few logits are larger than the last of them, so few are put in.  The first warp joins the
 * lists.  Which numbers are largest does not depend on the order in which they are seen. */
#include "ops/ops_cuda.cuh"

extern "C" {
#include "ops/row_terms.h"
}

enum { THREADS = 256, N_WARPS = THREADS / 32, LAST = MT_ENTROPY_LOGITS - 1 };

/* The warp's list after it has seen one number of each lane. */
__device__ __forceinline__ float insert(float list, float x)
{
    const int lane = threadIdx.x % 32;
    float last = __shfl_sync(0xffffffffu, list, LAST);
    unsigned larger = __ballot_sync(0xffffffffu, x > last);
    while (larger) {
        const int from = __ffs((int)larger) - 1;
        const float v = __shfl_sync(0xffffffffu, x, from), above = __shfl_up_sync(0xffffffffu, list, 1);
        const int at = __popc(__ballot_sync(0xffffffffu, list >= v));
        if (lane >= at) list = lane == at ? v : above;
        last = __shfl_sync(0xffffffffu, list, LAST);
        larger &= ~(1u << from) & __ballot_sync(0xffffffffu, x > last);
    }
    return list;
}

__global__ void __launch_bounds__(THREADS) entropy_kernel(mt_entropy_factor a)
{
    __shared__ float lists[N_WARPS][32];
    const float *z = a.logits + (int64_t)blockIdx.x * a.V;
    const int V = (int)a.V, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float list = -INFINITY;
    for (int from = warp * 32; from < V; from += THREADS) {
        float x = from + lane < V ? z[from + lane] : -INFINITY;
        if (a.softcap != 0 && from + lane < V) x = a.softcap * tanhf(x / a.softcap);
        list = insert(list, x);
    }
    lists[warp][lane] = list;
    __syncthreads();
    if (warp) return;
    for (int w = 1; w < N_WARPS; w++) list = insert(list, lane <= LAST ? lists[w][lane] : -INFINITY);
    lists[0][lane] = list;
    __syncwarp();
    if (lane == 0) a.factors[blockIdx.x] = mt_entropy_power(lists[0], V < MT_ENTROPY_LOGITS ? V : MT_ENTROPY_LOGITS, a.alpha);
}

mt_rc mt__entropy_factor_cuda(mt_stream *s, const mt_entropy_factor *a, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    if (a->V > 0x7ffffff0) return mt_fail(err, MT_EUNSUPPORTED, "a vocabulary of %lld", (long long)a->V);
    entropy_kernel<<<(unsigned)a->N, THREADS, 0, mt_cuda_raw(s)>>>(*a);
    return mt__cuda_launched(s, "entropy factors", err);
}
