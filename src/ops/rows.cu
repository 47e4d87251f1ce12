/* rows.cu - y[i] = x[index[i]];   dx = 0, then dx[index[i]] = dy[i].
 *
 * Shapes: x, dx [N, D]; y, dy [n_picked, D].  Bytes moved: 2 n_picked D elements, backward N D more for the zeros. */
#include "ops/ops_cuda.cuh"

/* Row blockIdx.x of the picked ones, n_words words of type WORD. */
template <typename WORD> __global__ void pick_kernel(WORD *y, const WORD *x, const int32_t *index, int64_t n_words)
{
    const WORD *src = x + (int64_t)index[blockIdx.x] * n_words;
    WORD *dst = y + (int64_t)blockIdx.x * n_words;
    for (int64_t d = threadIdx.x; d < n_words; d += blockDim.x) dst[d] = src[d];
}

template <typename WORD> __global__ void put_kernel(WORD *dx, const WORD *dy, const int32_t *index, int64_t n_words)
{
    const WORD *src = dy + (int64_t)blockIdx.x * n_words;
    WORD *dst = dx + (int64_t)index[blockIdx.x] * n_words;
    for (int64_t d = threadIdx.x; d < n_words; d += blockDim.x) dst[d] = src[d];
}

template <typename WORD> static void move(mt_stream *s, const mt_rows *a, size_t row_bytes, bool back)
{
    int64_t n_words = (int64_t)(row_bytes / sizeof(WORD));
    if (back)
        put_kernel<WORD>
            <<<(unsigned)a->n_picked, 128, 0, mt_cuda_raw(s)>>>((WORD *)a->dx, (const WORD *)a->dy, a->index, n_words);
    else
        pick_kernel<WORD><<<(unsigned)a->n_picked, 128, 0, mt_cuda_raw(s)>>>((WORD *)a->y, (const WORD *)a->x, a->index, n_words);
}

static mt_rc run(mt_stream *s, const mt_rows *a, bool back, mt_err *err)
{
    if (a->n_picked == 0) return MT_OK;
    size_t row_bytes = (size_t)a->D * (a->t == MT_DTYPE_BF16 ? 2 : 4);
    const void *from = back ? a->dy : a->x, *to = back ? a->dx : a->y;
    if (row_bytes % 16 == 0 && is_aligned(from, 16) && is_aligned(to, 16))
        move<uint4>(s, a, row_bytes, back);
    else
        move<uint16_t>(s, a, row_bytes, back);
    return mt__cuda_launched(s, back ? "rows backward" : "rows", err);
}

mt_rc mt__rows_fwd_cuda(mt_stream *s, const mt_rows *a, mt_err *err) { return run(s, a, false, err); }

mt_rc mt__rows_bwd_cuda(mt_stream *s, const mt_rows *a, mt_err *err)
{
    size_t bytes = (size_t)(a->N * a->D) * (a->t == MT_DTYPE_BF16 ? 2 : 4);
    MT_TRY(mt__cuda_check(s->dev, cudaMemsetAsync(a->dx, 0, bytes, mt_cuda_raw(s)), "rows backward", err));
    return run(s, a, true, err);
}
