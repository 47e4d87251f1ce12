/* cache_attention.cu - new rows into the cache, then softmax(S) v, S = scale q k' (bent as in attention), over each sequence's cached rows.
 *
 * Plain: a block is one new row of a sequence and one query head.  Its warps take every WARPS-th key, lanes every 32nd dimension; each
 * warp keeps a running maximum, sum and weighted sum of values, and the block joins them in order.  Bytes moved: the
 * sequence's keys and values once per query head (grouped heads meet in the cache of the device). */
#include "ops/attention.cuh"

enum {
    WARPS = 4,
    USUAL = 16,
    MOST = 18
}; /* numbers of a head that a lane holds: of 512, and of a latent of 512 with a rope part of 64 */

template <typename T> __global__ void append_kernel(mt_cache_attention a)
{
    int64_t d = blockIdx.y, i = a.doc_start[d] + blockIdx.x, keys = a.K * a.Dh, values = a.K * a.Dv;
    if (i >= a.doc_start[d + 1]) return;
    int64_t to = (int64_t)a.cache_row[d] + a.pos[i];
    for (int64_t j = threadIdx.x; j < keys; j += blockDim.x) ((T *)a.cache_k)[to * keys + j] = ((const T *)a.k)[i * a.ldk + j];
    for (int64_t j = threadIdx.x; a.cache_v && j < values; j += blockDim.x)
        ((T *)a.cache_v)[to * values + j] = ((const T *)a.v)[i * a.ldv + j];
}

template <typename T, int PER_LANE> __global__ void attend_kernel(mt_cache_attention a)
{
    extern __shared__ float joined[]; /* [WARPS][Dv + 2]: weighted sum, maximum, sum */
    int64_t d = blockIdx.z, h = blockIdx.y, i = a.doc_start[d] + blockIdx.x;
    if (i >= a.doc_start[d + 1]) return;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, Dh = (int)a.Dh, Dv = (int)a.Dv;
    int64_t last = a.pos[i], first = a.window && last >= a.window ? last - a.window + 1 : 0;
    if (a.chunk) first = max(first, last / a.chunk * a.chunk);
    int64_t head = (int64_t)a.cache_row[d] * a.K + h / (a.H / a.K), k_row = a.K * a.Dh, v_row = a.cache_v ? a.K * a.Dv : k_row;
    const T *q = (const T *)a.q + i * a.ldq + h * a.Dh, *k = (const T *)a.cache_k + head * a.Dh,
            *v = a.cache_v ? (const T *)a.cache_v + head * a.Dv : k;
    bending b = bending_by(1.0f, a.softcap, a.alibi, a.H, (int)h); /* the scale is in qs */
    float qs[PER_LANE], o[PER_LANE] = { 0 }, top = -INFINITY, sum = 0;
#pragma unroll
    for (int n = 0; n < PER_LANE; n++) qs[n] = lane + 32 * n < Dh ? to_f32(q[lane + 32 * n]) * a.scale : 0.0f;
    for (int64_t j = first + warp; j <= last; j += WARPS) {
        float s = 0;
#pragma unroll
        for (int n = 0; n < PER_LANE; n++)
            if (lane + 32 * n < Dh) s += qs[n] * to_f32(k[j * k_row + lane + 32 * n]);
        s = bent(b, warp_sum(s), (int)(last - j));
        float higher = fmaxf(top, s), old = expf(top - higher), p = expf(s - higher);
#pragma unroll
        for (int n = 0; n < PER_LANE; n++)
            if (lane + 32 * n < Dv) o[n] = o[n] * old + p * to_f32(v[j * v_row + lane + 32 * n]);
        sum = sum * old + p;
        top = higher;
    }
    float *mine = joined + warp * (Dv + 2);
#pragma unroll
    for (int n = 0; n < PER_LANE; n++)
        if (lane + 32 * n < Dv) mine[lane + 32 * n] = o[n];
    if (lane == 0) mine[Dv] = top, mine[Dv + 1] = sum;
    __syncthreads();
    float highest = a.sinks ? a.sinks[h] : -INFINITY, total = 0;
    for (int w = 0; w < WARPS; w++) highest = fmaxf(highest, joined[w * (Dv + 2) + Dv]);
    if (a.sinks) total = expf(a.sinks[h] - highest);
    for (int w = 0; w < WARPS; w++) total += joined[w * (Dv + 2) + Dv + 1] * expf(joined[w * (Dv + 2) + Dv] - highest);
    for (int x = threadIdx.x; x < Dv; x += blockDim.x) {
        float y = 0;
        for (int w = 0; w < WARPS; w++) y += joined[w * (Dv + 2) + x] * expf(joined[w * (Dv + 2) + Dv] - highest);
        ((T *)a.o)[i * a.ldo + h * a.Dv + x] = from_f32<T>(y / total);
    }
}

template <typename T> static void run(mt_stream *s, const mt_cache_attention *a)
{
    dim3 rows((unsigned)a->longest, (unsigned)a->n_docs), heads((unsigned)a->longest, (unsigned)a->H, (unsigned)a->n_docs);
    append_kernel<T><<<rows, 128, 0, mt_cuda_raw(s)>>>(*a);
    void (*kernel)(mt_cache_attention) =
        a->Dh <= 32 * USUAL && a->Dv <= 32 * USUAL ? attend_kernel<T, USUAL> : attend_kernel<T, MOST>;
    kernel<<<heads, WARPS * 32, (size_t)(WARPS * (a->Dv + 2)) * sizeof(float), mt_cuda_raw(s)>>>(*a);
}

mt_rc mt__cache_attention_cuda(mt_stream *s, const mt_cache_attention *a, mt_err *err)
{
    mt_cache_attention b = *a;
    if (!b.Dv) b.Dv = b.Dh;
    const int widest = (int)(b.Dh > b.Dv ? b.Dh : b.Dv);
    if (widest > 32 * MOST) return mt_fail(err, MT_EUNSUPPORTED, "heads of width %d, at most %d", widest, 32 * MOST);
    if (a->n_docs > 65535) return mt_fail(err, MT_EUNSUPPORTED, "%lld sequences in a pass, at most 65535", (long long)a->n_docs);
    if (a->t == MT_DTYPE_BF16)
        run<bf16>(s, &b);
    else
        run<float>(s, &b);
    return mt__cuda_launched(s, "cached attention", err);
}
