/* attention.cuh - shared by the two ways attention runs on CUDA: which rows see which.
 *
 * Rows are packed, documents one after the other.  Row i sees keys [first_key(i), i]; key j is seen by rows [j, end_query(j)).
 * Both bounds never decrease from row to row, so a tile of rows needs one contiguous range of the others, and tiles can ignore
 * where documents begin. */
#ifndef MT_OPS_ATTENTION_CUH
#define MT_OPS_ATTENTION_CUH

#include "ops/ops_cuda.cuh"

/* Width of a head's values and of its output. */
__host__ __device__ static inline int value_width(const mt_attention &a) { return (int)(a.Dv ? a.Dv : a.Dh); }

/* The document of a row: the last that starts at or before it. */
__device__ __forceinline__ int doc_of(const mt_attention &a, int row)
{
    int from = 0, to = (int)a.n_docs;
    while (to - from > 1) {
        int mid = (from + to) / 2;
        if (a.doc_start[mid] <= row)
            from = mid;
        else
            to = mid;
    }
    return from;
}

__device__ __forceinline__ int first_key(const mt_attention &a, int i)
{
    int start = a.doc_start[doc_of(a, i)];
    int64_t from = a.window ? i - a.window + 1 : start;
    if (a.chunk) start += (int)((i - start) / a.chunk * a.chunk);
    return from > start ? (int)from : start;
}

__device__ __forceinline__ int end_query(const mt_attention &a, int j)
{
    int doc = doc_of(a, j), start = a.doc_start[doc], end = a.doc_start[doc + 1];
    int64_t to = a.window ? j + a.window : end;
    if (a.chunk) end = (int)min((int64_t)end, start + ((j - start) / a.chunk + 1) * a.chunk);
    return to < end ? (int)to : end;
}

/* A score as softmax reads it: ALiBi subtracts a multiple of the distance, then the cap limits it. */
typedef struct bending {
    float scale;           /* of q k' */
    float per_row;         /* ALiBi's slope of this head */
    float softcap, to_cap; /* 0: none; its reciprocal, or 0 */
} bending;

static inline bool is_bent(const mt_attention *a) { return a->softcap != 0 || a->alibi != 0; }

/* mt_alibi_slope on the device. */
__device__ __forceinline__ float alibi_slope(int H, int h)
{
    int n = 1 << (31 - __clz(H));
    return h < n ? exp2f(-8.0f * (float)(h + 1) / (float)n) : exp2f(-4.0f * (float)(2 * (h - n) + 1) / (float)n);
}

__device__ __forceinline__ bending bending_by(float scale, float softcap, float alibi, int64_t H, int h)
{
    bending b = { scale, alibi != 0 ? alibi * alibi_slope((int)H, h) : 0.0f, softcap, softcap != 0 ? 1.0f / softcap : 0.0f };
    return b;
}
__device__ __forceinline__ bending bending_of(const mt_attention &a, int h)
{
    return bending_by(a.scale, a.softcap, a.alibi, a.H, h);
}

/* A few units of 1e-7 away from tanh, and monotone at the ends: scores meet it times the cap. */
__device__ __forceinline__ float quick_tanh(float x) { return 1.0f - __fdividef(2.0f, __expf(2.0f * x) + 1.0f); }

/* The score of a key `back` rows before its query. */
__device__ __forceinline__ float bent(const bending &b, float qk, int back)
{
    float s = b.scale * qk - b.per_row * (float)back;
    return b.softcap != 0 ? b.softcap * quick_tanh(s * b.to_cap) : s;
}

/* d bent / d (scale q k') where P = p: the score follows from P = exp(S - lse), so nothing of it is kept.  If P is 0 so is its
 * gradient, for any finite value of this. */
__device__ __forceinline__ float bent_slope(const bending &b, float p, float lse_log2)
{
    float th = fmaxf((__log2f(p) + lse_log2) * 0.6931471805599453f * b.to_cap, -1.0f);
    return 1.0f - th * th;
}

/* On the tensor cores: bf16 with 16-byte rows.  attention_mma.cu. */
mt_rc mt__attention_mma_fwd(mt_stream *s, const mt_attention *a, mt_err *err);
mt_rc mt__attention_mma_bwd(mt_stream *s, const mt_attention *a, const float *delta, mt_err *err);
/* By cuDNN's fused kernels.  attention_ragged.cu. */
mt_rc mt__attention_cudnn_fwd(mt_stream *s, const mt_attention *a, mt_err *err);
mt_rc mt__attention_cudnn_bwd(mt_stream *s, const mt_attention *a, mt_attention_way way, mt_err *err);
void mt__attention_cudnn_expect(mt_stream *s, const mt_attention *a); /* before a backward by another way */

#endif
