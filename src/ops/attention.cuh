/* attention.cuh - shared by the two ways attention runs on CUDA: which rows see which.
 *
 * Rows lie packed, documents one after the other.  Row i sees keys [first_key(i), i]; key j is seen by rows
 * [j, end_query(j)).  Both bounds never decrease from row to row, so a tile of rows needs one contiguous range of the
 * others, and tiles can ignore where documents begin. */
#ifndef MT_OPS_ATTENTION_CUH
#define MT_OPS_ATTENTION_CUH

#include "ops/ops_cuda.cuh"

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
    return from > start ? (int)from : start;
}

__device__ __forceinline__ int end_query(const mt_attention &a, int j)
{
    int end = a.doc_start[doc_of(a, j) + 1];
    int64_t to = a.window ? j + a.window : end;
    return to < end ? (int)to : end;
}

/* On the tensor cores: bf16 with 16-byte rows.  attention_mma.cu. */
mt_rc mt__attention_mma_fwd(mt_stream *s, const mt_attention *a, mt_err *err);
mt_rc mt__attention_mma_bwd(mt_stream *s, const mt_attention *a, const float *delta, mt_err *err);
/* By cuDNN's fused kernels.  attention_ragged.cu. */
mt_rc mt__attention_cudnn_fwd(mt_stream *s, const mt_attention *a, mt_err *err);
mt_rc mt__attention_cudnn_bwd(mt_stream *s, const mt_attention *a, mt_attention_way way, mt_err *err);

#endif
