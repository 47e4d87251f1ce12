/* cache_attention.cu - new rows into the cache, then softmax(S) v, S = scale q k' (bent as in attention), over each sequence's cached rows.
 *
 * Plain: a block is one new row of a sequence and one query head.  Its warps take every WARPS-th key, lanes every 32nd dimension; each
 * warp keeps a running maximum, sum and weighted sum of values, and the block joins them in order.  Bytes moved: the
 * sequence's keys and values once per query head (grouped heads meet in the cache of the device). */
#include "ops/attention.cuh"

enum { WARPS = 4, PER_LANE = 16 }; /* heads up to 512 wide */

template <typename T> __global__ void append_kernel(mt_cache_attention a)
{
    int64_t d = blockIdx.y, i = a.doc_start[d] + blockIdx.x, width = a.K * a.Dh;
    if (i >= a.doc_start[d + 1]) return;
    int64_t to = ((int64_t)a.cache_row[d] + a.pos[i]) * width;
    for (int64_t j = threadIdx.x; j < width; j += blockDim.x) {
        ((T *)a.cache_k)[to + j] = ((const T *)a.k)[i * a.ldk + j];
        ((T *)a.cache_v)[to + j] = ((const T *)a.v)[i * a.ldv + j];
    }
}

template <typename T> __global__ void attend_kernel(mt_cache_attention a)
{
    extern __shared__ float joined[]; /* [WARPS][Dh + 2]: weighted sum, maximum, sum */
    int64_t d = blockIdx.z, h = blockIdx.y, i = a.doc_start[d] + blockIdx.x;
    if (i >= a.doc_start[d + 1]) return;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, Dh = (int)a.Dh;
    int64_t last = a.pos[i], first = a.window && last >= a.window ? last - a.window + 1 : 0, row = a.K * a.Dh;
    int64_t base = (int64_t)a.cache_row[d] * row + h / (a.H / a.K) * a.Dh;
    const T *q = (const T *)a.q + i * a.ldq + h * a.Dh, *k = (const T *)a.cache_k + base, *v = (const T *)a.cache_v + base;
    bending b = bending_by(1.0f, a.softcap, a.alibi, a.H, (int)h); /* the scale is in qs */
    float qs[PER_LANE], o[PER_LANE] = { 0 }, top = -INFINITY, sum = 0;
#pragma unroll
    for (int n = 0; n < PER_LANE; n++) qs[n] = lane + 32 * n < Dh ? to_f32(q[lane + 32 * n]) * a.scale : 0.0f;
    for (int64_t j = first + warp; j <= last; j += WARPS) {
        float s = 0;
#pragma unroll
        for (int n = 0; n < PER_LANE; n++)
            if (lane + 32 * n < Dh) s += qs[n] * to_f32(k[j * row + lane + 32 * n]);
        s = bent(b, warp_sum(s), (int)(last - j));
        float higher = fmaxf(top, s), old = expf(top - higher), p = expf(s - higher);
#pragma unroll
        for (int n = 0; n < PER_LANE; n++)
            if (lane + 32 * n < Dh) o[n] = o[n] * old + p * to_f32(v[j * row + lane + 32 * n]);
        sum = sum * old + p;
        top = higher;
    }
    float *mine = joined + warp * (Dh + 2);
#pragma unroll
    for (int n = 0; n < PER_LANE; n++)
        if (lane + 32 * n < Dh) mine[lane + 32 * n] = o[n];
    if (lane == 0) mine[Dh] = top, mine[Dh + 1] = sum;
    __syncthreads();
    float highest = -INFINITY, total = 0;
    for (int w = 0; w < WARPS; w++) highest = fmaxf(highest, joined[w * (Dh + 2) + Dh]);
    for (int w = 0; w < WARPS; w++) total += joined[w * (Dh + 2) + Dh + 1] * expf(joined[w * (Dh + 2) + Dh] - highest);
    for (int x = threadIdx.x; x < Dh; x += blockDim.x) {
        float y = 0;
        for (int w = 0; w < WARPS; w++) y += joined[w * (Dh + 2) + x] * expf(joined[w * (Dh + 2) + Dh] - highest);
        ((T *)a.o)[i * a.ldo + h * a.Dh + x] = from_f32<T>(y / total);
    }
}

template <typename T> static void run(mt_stream *s, const mt_cache_attention *a)
{
    dim3 rows((unsigned)a->longest, (unsigned)a->n_docs), heads((unsigned)a->longest, (unsigned)a->H, (unsigned)a->n_docs);
    append_kernel<T><<<rows, 128, 0, mt_cuda_raw(s)>>>(*a);
    attend_kernel<T><<<heads, WARPS * 32, (size_t)(WARPS * (a->Dh + 2)) * sizeof(float), mt_cuda_raw(s)>>>(*a);
}

mt_rc mt__cache_attention_cuda(mt_stream *s, const mt_cache_attention *a, mt_err *err)
{
    if (a->Dh > 32 * PER_LANE) return mt_fail(err, MT_EUNSUPPORTED, "heads of width %d, at most %d", (int)a->Dh, 32 * PER_LANE);
    if (a->n_docs > 65535) return mt_fail(err, MT_EUNSUPPORTED, "%lld sequences in a pass, at most 65535", (long long)a->n_docs);
    if (a->t == MT_DTYPE_BF16)
        run<bf16>(s, a);
    else
        run<float>(s, a);
    return mt__cuda_launched(s, "cached attention", err);
}
