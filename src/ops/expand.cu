/* expand.cu - packed weights (forms.h) to numbers: w[r, c] = number (r, c) of the packed matrix.
 *
 * A thread expands 8 columns at a time: it reads their codes in one access and writes them in one or two, so that a warp's
 * writes are contiguous.  Bytes moved: the packed matrix, and 2 or 4 an element.  Matrices whose width or address does not allow
 * that go number by number. */
#include "ops/ops_cuda.cuh"

enum { THREADS = 256, W = 8 };

__constant__ float nf4_codes[16] = { MT_NF4_CODES };

__device__ __forceinline__ uint32_t nibble_of(uint32_t word, int i) { return word >> 4 * i & 15u; }

/* The scale of the block of (row, column), for forms with fp32 scales. */
template <mt_form FORM> __device__ __forceinline__ float scale_of(const mt_packed *p, int64_t row, int64_t column)
{
    const int64_t block = row / p->as.block_rows * p->blocks + (uint32_t)column / (uint32_t)p->as.block;
    return FORM == MT_FORM_NF4_NESTED ? mt_form_nested_scale(p, block) : ((const float *)p->scales)[block];
}

/* Columns [column, column + W) of a row.  FP8: of one block.  codes: NF4's, in shared memory, where 16 words are in 16 banks. */
template <mt_form FORM>
__device__ __forceinline__ void read_wide(float out[W], const mt_packed *p, const float *codes, int64_t row, int64_t column)
{
    const uint8_t *line = p->codes + (size_t)row * p->row_bytes;
    if (FORM == MT_FORM_F8_E4M3 || FORM == MT_FORM_F8_E5M2) {
        const vec<uint8_t, W> q = load<uint8_t, W>(line + column);
        const float s = scale_of<FORM>(p, row, column);
#pragma unroll
        for (int i = 0; i < W; i++)
            out[i] = MT_FORM_MUL(FORM == MT_FORM_F8_E4M3 ? mt_form_e4m3(q.at[i]) : mt_form_e5m2(q.at[i]), s);
    } else if (FORM == MT_FORM_MXFP4) {
        const uint32_t q = *(const uint32_t *)(line + column / 2);
        const float s = mt_form_e8m0(((const uint8_t *)p->scales)[row * p->blocks + column / 32]);
#pragma unroll
        for (int i = 0; i < W; i++) out[i] = MT_FORM_MUL(mt_form_e2m1(nibble_of(q, i)), s);
    } else if (FORM == MT_FORM_NF4 || FORM == MT_FORM_NF4_NESTED) {
        const uint32_t q = *(const uint32_t *)(line + column / 2);
        const float s = scale_of<FORM>(p, row, column);
#pragma unroll
        for (int i = 0; i < W; i++) out[i] = MT_FORM_MUL(codes[nibble_of(q, i ^ 1)], s);
    } else if (FORM == MT_FORM_INT4) {
        const uint32_t q = *(const uint32_t *)(line + column / 2);
        int64_t block = row * p->blocks + mt_form_block_of(p, column);
        float s = mt_form_f16(((const uint16_t *)p->scales)[block]);
        int zero = ((const uint8_t *)p->more)[block];
#pragma unroll
        for (int i = 0; i < W; i++) {
            if (p->as.ordered && i) {
                block = row * p->blocks + mt_form_block_of(p, column + i);
                s = mt_form_f16(((const uint16_t *)p->scales)[block]);
                zero = ((const uint8_t *)p->more)[block];
            }
            out[i] = MT_FORM_MUL((float)((int)nibble_of(q, i) - zero), s);
        }
    } else if (FORM == MT_FORM_Q8_0) {
        const uint16_t *b = (const uint16_t *)(line + (size_t)(column / 32) * MT_Q8_0_BYTES); /* blocks are of even size */
        const float d = mt_form_f16(b[0]);
#pragma unroll
        for (int i = 0; i < W; i++) {
            const uint32_t two = b[1 + column % 32 / 2 + i / 2];
            out[i] = MT_FORM_MUL(d, (float)(int8_t)(i % 2 ? two >> 8 : two));
        }
    } else {
        const uint8_t *b = line + (size_t)(column / 256) * MT_Q4_K_BYTES;
        const int k = (int)(column % 256 / 32);
        const vec<uint8_t, W> q = load<uint8_t, W>(b + 16 + 32 * (k / 2) + column % 32);
        float s, m;
        mt_form_q4_k_scale(b, k, &s, &m);
#pragma unroll
        for (int i = 0; i < W; i++) out[i] = MT_FORM_ADD(MT_FORM_MUL(s, (float)(q.at[i] >> 4 * (k % 2) & 15)), -m);
    }
}

__device__ __forceinline__ void put(float *w, float x) { *w = x; }
__device__ __forceinline__ void put(uint16_t *w, float x) { *w = mt_form_bf16(x); }

__device__ __forceinline__ void put_wide(float *w, const float x[W])
{
#pragma unroll
    for (int i = 0; i < W; i += 4) *(float4 *)(w + i) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
}
__device__ __forceinline__ void put_wide(uint16_t *w, const float x[W])
{
    vec<uint16_t, W> v;
#pragma unroll
    for (int i = 0; i < W; i++) v.at[i] = mt_form_bf16(x[i]);
    store<uint16_t, W>(w, v);
}

/* n: groups of W columns. */
template <mt_form FORM, typename T> __global__ void wide_kernel(T *w, mt_packed p, int64_t n, uint32_t per_row)
{
    __shared__ float codes[16];
    if (threadIdx.x < 16) codes[threadIdx.x] = nf4_codes[threadIdx.x];
    __syncthreads();
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const int64_t row = n <= UINT32_MAX ? (int64_t)((uint32_t)i / per_row) : i / per_row;
        float x[W];
        read_wide<FORM>(x, &p, codes, row, (i - row * per_row) * W);
        put_wide(w + i * W, x);
    }
}

/* Any form, any width: also where w is at an odd address. */
template <mt_form FORM, typename T> __global__ void narrow_kernel(T *w, mt_packed p, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x, C = p.as.columns;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const int64_t row = i / C, column = i % C;
        if (FORM == MT_FORM_F8_E4M3 || FORM == MT_FORM_F8_E5M2) {
            const uint8_t q = p.codes[(size_t)row * p.row_bytes + column];
            put(w + i, MT_FORM_MUL(FORM == MT_FORM_F8_E4M3 ? mt_form_e4m3(q) : mt_form_e5m2(q), scale_of<FORM>(&p, row, column)));
            continue;
        }
        float x[W]; /* the other forms' rows are whole groups */
        read_wide<FORM>(x, &p, nf4_codes, row, column / W * W);
#pragma unroll
        for (int k = 0; k < W; k++)
            if (k == column % W) put(w + i, x[k]);
    }
}

template <mt_form FORM, typename T> static void expand_as(mt_stream *s, const mt_expand *a)
{
    const mt_packed p = mt_packed_at(&a->as, a->packed);
    const int64_t n = a->as.rows * a->as.columns;
    const bool is_f8 = FORM == MT_FORM_F8_E4M3 || FORM == MT_FORM_F8_E5M2;
    const bool whole = a->as.columns % W == 0 && (!is_f8 || a->as.block % W == 0 || a->as.block == a->as.columns);
    const unsigned most = 132 * 16;
    if (whole && is_aligned(a->w, 16))
        wide_kernel<FORM, T><<<(unsigned)mt_min_i64(div_up(n / W, THREADS), most), THREADS, 0, mt_cuda_raw(s)>>>(
            (T *)a->w, p, n / W, (uint32_t)(a->as.columns / W));
    else
        narrow_kernel<FORM, T><<<(unsigned)mt_min_i64(div_up(n, THREADS), most), THREADS, 0, mt_cuda_raw(s)>>>((T *)a->w, p, n);
}

template <mt_form FORM> static void expand(mt_stream *s, const mt_expand *a)
{
    if (a->t == MT_DTYPE_F32)
        expand_as<FORM, float>(s, a);
    else
        expand_as<FORM, uint16_t>(s, a);
}

mt_rc mt__expand_cuda(mt_stream *s, const mt_expand *a, mt_err *err)
{
    switch (a->as.form) {
    case MT_FORM_F8_E4M3: expand<MT_FORM_F8_E4M3>(s, a); break;
    case MT_FORM_F8_E5M2: expand<MT_FORM_F8_E5M2>(s, a); break;
    case MT_FORM_MXFP4: expand<MT_FORM_MXFP4>(s, a); break;
    case MT_FORM_NF4: expand<MT_FORM_NF4>(s, a); break;
    case MT_FORM_NF4_NESTED: expand<MT_FORM_NF4_NESTED>(s, a); break;
    case MT_FORM_INT4: expand<MT_FORM_INT4>(s, a); break;
    case MT_FORM_Q8_0: expand<MT_FORM_Q8_0>(s, a); break;
    case MT_FORM_Q4_K: expand<MT_FORM_Q4_K>(s, a); break;
    default: return MT_OK;
    }
    return mt__cuda_launched(s, "expand", err);
}
