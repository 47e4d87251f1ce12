/* rope.cu - rotary positions, with the optional per-head RMS norm that comes before them.
 *
 * Per head: x = x * r * w over Dh (if there is a norm), then pairs of the first dr dimensions rotate by the row's angle.
 * Backward rotates the gradient the other way, then takes it through the norm; dwq, dwk += sums over rows and heads.
 * Shapes: qkv, qk, dqkv [N, (H + K) Dh] with rows ld apart; cos, sin [positions, dr/2].  Bytes moved: (H + K) Dh elements
 * read and written a row; backward through a norm reads as many again.
 *
 * Without a norm a thread takes W pairs.  With one a warp takes a head: lane l holds pairs l, l + 32, ... in P places. */
#include "ops/ops_cuda.cuh"

enum { THREADS = 256, N_WARPS = THREADS / 32, MAX_HEAD = 512 };

/* W neighbouring pairs of one head; direction -1 is the inverse rotation. */
template <typename T, int W, mt_rope_style STYLE>
__global__ void rotate_kernel(mt_rope a, const T *in, int64_t ld_in, T *out, int64_t ld_out, float direction, int per_head)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, heads = a.H + a.K;
    if (at >= a.N * heads * per_head) return;
    int64_t i = at / (heads * per_head), h = at / per_head % heads;
    int j = (int)(at % per_head) * W, half = (int)a.dr / 2;
    const float *c = a.cos + (int64_t)a.pos[i] * half + j, *s = a.sin + (int64_t)a.pos[i] * half + j;
    const T *x = in + i * ld_in + h * a.Dh;
    T *y = out + i * ld_out + h * a.Dh;
    int first = STYLE == MT_ROPE_HALF ? j : 2 * j, second = STYLE == MT_ROPE_HALF ? j + half : 2 * j + W;
    vec<T, W> u = load<T, W>(x + first), v = load<T, W>(x + second), u2 = u, v2 = v;
#pragma unroll
    for (int k = 0; k < W; k++) {
        /* HALF: pair k is (u[k], v[k]).  PAIR: u then v hold 2W numbers, pair k is the k-th two of them; W is 1 there. */
        float p = to_f32(u.at[k]), q = to_f32(v.at[k]), cos_k = c[k], sin_k = direction * s[k];
        u2.at[k] = from_f32<T>(p * cos_k - q * sin_k);
        v2.at[k] = from_f32<T>(q * cos_k + p * sin_k);
    }
    store<T, W>(y + first, u2);
    store<T, W>(y + second, v2);
}

/* What does not rotate: dimensions dr.. of every head. */
template <typename T> __global__ void copy_rest_kernel(mt_rope a, int64_t from)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, heads = a.H + a.K, rest = a.Dh - from;
    if (at >= a.N * heads * rest) return;
    int64_t i = at / (heads * rest), h = at / rest % heads, d = from + at % rest;
    ((T *)a.qk)[i * a.ld_qk + h * a.Dh + d] = ((const T *)a.qkv)[i * a.ld_qkv + h * a.Dh + d];
}

/* Places a lane needs: two for each of its pairs, and one for each of the rest.  At most 18. */
static int places(const mt_rope *a)
{
    int64_t half = a->style == MT_ROPE_NONE ? 0 : a->dr / 2;
    return (int)(2 * div_up(half, 32) + div_up(a->Dh - 2 * half, 32));
}

/* The dimension that lane `lane` holds in place k, such that both halves of a pair are in one lane: places 2m and 2m + 1
 * are pair lane + 32 m; what does not rotate follows.  -1: none. */
__device__ __forceinline__ int dim_at(const mt_rope &a, int lane, int k)
{
    int half = a.style == MT_ROPE_NONE ? 0 : (int)a.dr / 2, pairs = (half + 31) / 32;
    if (k < 2 * pairs) {
        int j = lane + 32 * (k / 2);
        if (j >= half) return -1;
        return a.style == MT_ROPE_HALF ? j + (k & 1) * half : 2 * j + (k & 1);
    }
    int d = 2 * half + lane + 32 * (k - 2 * pairs);
    return d < a.Dh ? d : -1;
}

/* The angles of a row, for the pairs a lane holds: read once, used for all its heads. */
template <int P> __device__ __forceinline__ void load_angles(const mt_rope &a, float *c, float *s, int lane, int pos)
{
    int half = a.style == MT_ROPE_NONE ? 0 : (int)a.dr / 2;
#pragma unroll
    for (int m = 0; m < P / 2; m++) {
        int j = lane + 32 * m;
        c[m] = j < half ? a.cos[(int64_t)pos * half + j] : 1.0f;
        s[m] = j < half ? a.sin[(int64_t)pos * half + j] : 0.0f;
    }
}

template <int P>
__device__ __forceinline__ void rotate(const mt_rope &a, float *x, const float *c, const float *s, float direction)
{
    int half = a.style == MT_ROPE_NONE ? 0 : (int)a.dr / 2, pairs = (half + 31) / 32;
#pragma unroll
    for (int m = 0; m < P / 2; m++) {
        if (m >= pairs) continue; /* these places hold what does not rotate */
        float u = x[2 * m], v = x[2 * m + 1], sine = direction * s[m];
        x[2 * m] = u * c[m] - v * sine;
        x[2 * m + 1] = v * c[m] + u * sine;
    }
}

template <typename T, int P> __device__ __forceinline__ void load_head(const mt_rope &a, float *x, const T *p, int lane)
{
#pragma unroll
    for (int k = 0; k < P; k++) {
        int d = dim_at(a, lane, k);
        x[k] = d >= 0 ? to_f32(p[d]) : 0.0f;
    }
}

template <typename T, int P> __device__ __forceinline__ void store_head(const mt_rope &a, T *p, const float *x, int lane)
{
#pragma unroll
    for (int k = 0; k < P; k++) {
        int d = dim_at(a, lane, k);
        if (d >= 0) p[d] = from_f32<T>(x[k]);
    }
}

template <int P> __device__ __forceinline__ float head_rstd(const mt_rope &a, const float *x)
{
    float sum = 0;
#pragma unroll
    for (int k = 0; k < P; k++) sum += x[k] * x[k];
    return rsqrtf(warp_sum(sum) / (float)a.Dh + a.eps);
}

/* A warp takes HEADS heads of a row. */
enum { HEADS = 8 };

template <typename T, int P> __global__ void __launch_bounds__(THREADS) norm_forward_kernel(mt_rope a)
{
    int64_t heads = a.H + a.K, per_row = (heads + HEADS - 1) / HEADS, at = (int64_t)blockIdx.x * N_WARPS + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (at >= a.N * per_row) return;
    int64_t i = at / per_row, first = at % per_row * HEADS, end = first + HEADS < heads ? first + HEADS : heads;
    float x[P], c[P / 2], s[P / 2], one = a.one_plus ? 1.0f : 0.0f;
    load_angles<P>(a, c, s, lane, a.pos[i]);
    for (int64_t h = first; h < end; h++) {
        const T *w = (const T *)(h < a.H ? a.wq : a.wk);
        load_head<T, P>(a, x, (const T *)a.qkv + i * a.ld_qkv + h * a.Dh, lane);
        if (w) {
            float r = head_rstd<P>(a, x);
#pragma unroll
            for (int k = 0; k < P; k++) {
                int d = dim_at(a, lane, k);
                if (d >= 0) x[k] *= r * (to_f32(w[d]) + one);
            }
        }
        rotate<P>(a, x, c, s, 1.0f);
        store_head<T, P>(a, (T *)a.qk + i * a.ld_qk + h * a.Dh, x, lane);
    }
}

/* A block takes SUM_ROWS rows; each warp adds its heads' share of dwq and dwk in registers, the block adds its warps in
 * order, and the second stage the blocks. */
template <typename T, int P> __global__ void __launch_bounds__(THREADS) norm_backward_kernel(mt_rope a)
{
    extern __shared__ float shares[]; /* [N_WARPS][2 Dh] */
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, Dh = (int)a.Dh;
    bool sums = a.dwq || a.dwk;
    float one = a.one_plus ? 1.0f : 0.0f, dwq[P] = { 0 }, dwk[P] = { 0 };
    int64_t from = (int64_t)blockIdx.x * SUM_ROWS, to = from + SUM_ROWS < a.N ? from + SUM_ROWS : a.N, heads = a.H + a.K;
    float c[P / 2], s[P / 2];
    for (int64_t at = 0; at < (to - from + N_WARPS - 1) / N_WARPS * heads; at++) { /* the heads of a row, then N_WARPS rows on */
        int64_t i = from + warp + at / heads * N_WARPS, h = at % heads;
        if (i >= to) break;
        if (h == 0) load_angles<P>(a, c, s, lane, a.pos[i]);
        const T *w = (const T *)(h < a.H ? a.wq : a.wk);
        T *grad = (T *)a.dqkv + i * a.ld_dqkv + h * Dh;
        float x[P], dx[P];
        load_head<T, P>(a, dx, grad, lane);
        rotate<P>(a, dx, c, s, -1.0f);
        if (w) {
            load_head<T, P>(a, x, (const T *)a.qkv + i * a.ld_qkv + h * Dh, lane);
            float r = head_rstd<P>(a, x), dot = 0;
#pragma unroll
            for (int k = 0; k < P; k++) {
                int d = dim_at(a, lane, k);
                if (d < 0) continue;
                float xh = x[k] * r;
                if (h < a.H)
                    dwq[k] += dx[k] * xh;
                else
                    dwk[k] += dx[k] * xh;
                dx[k] *= to_f32(w[d]) + one;
                dot += dx[k] * xh;
            }
            float mean = warp_sum(dot) / (float)Dh;
#pragma unroll
            for (int k = 0; k < P; k++) dx[k] = r * (dx[k] - x[k] * r * mean);
        }
        store_head<T, P>(a, grad, dx, lane);
    }
    if (!sums) return;
#pragma unroll
    for (int k = 0; k < P; k++) {
        int d = dim_at(a, lane, k);
        if (d < 0) continue;
        shares[warp * 2 * Dh + d] = dwq[k];
        shares[warp * 2 * Dh + Dh + d] = dwk[k];
    }
    __syncthreads();
    for (int d = threadIdx.x; d < 2 * Dh; d += THREADS) {
        float sum = 0;
        for (int k = 0; k < N_WARPS; k++) sum += shares[k * 2 * Dh + d];
        ((float *)a.scratch)[(int64_t)blockIdx.x * 2 * Dh + d] = sum;
    }
}

template <typename T, int W, mt_rope_style STYLE>
static void rotate_all(mt_stream *s, const mt_rope *a, const void *in, int64_t ld_in, void *out, int64_t ld_out, float direction)
{
    int per_head = (int)(a->dr / 2 / W);
    unsigned blocks = (unsigned)div_up(a->N * (a->H + a->K) * per_head, THREADS);
    rotate_kernel<T, W, STYLE>
        <<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a, (const T *)in, ld_in, (T *)out, ld_out, direction, per_head);
}

template <typename T>
static void rotate_by(mt_stream *s, const mt_rope *a, const void *in, int64_t ld_in, void *out, int64_t ld_out, float direction)
{
    int64_t w = wide<T>();
    bool whole =
        a->dr / 2 % w == 0 && a->Dh % w == 0 && ld_in % w == 0 && ld_out % w == 0 && is_aligned(in, 16) && is_aligned(out, 16);
    if (a->style == MT_ROPE_PAIR)
        rotate_all<T, 1, MT_ROPE_PAIR>(s, a, in, ld_in, out, ld_out, direction);
    else if (a->style == MT_ROPE_HALF && whole)
        rotate_all<T, wide<T>(), MT_ROPE_HALF>(s, a, in, ld_in, out, ld_out, direction);
    else if (a->style == MT_ROPE_HALF)
        rotate_all<T, 1, MT_ROPE_HALF>(s, a, in, ld_in, out, ld_out, direction);
}

template <typename T> static void forward(mt_stream *s, const mt_rope *a)
{
    int64_t heads = a->N * (a->H + a->K), rotated = a->style == MT_ROPE_NONE ? 0 : a->dr;
    if (a->wq || a->wk) {
        unsigned blocks = (unsigned)div_up(a->N * div_up(a->H + a->K, HEADS), N_WARPS);
        if (places(a) <= 4)
            norm_forward_kernel<T, 4><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a);
        else
            norm_forward_kernel<T, 18><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a);
        return;
    }
    rotate_by<T>(s, a, a->qkv, a->ld_qkv, a->qk, a->ld_qk, 1.0f);
    if (rotated < a->Dh && a->qk != a->qkv)
        copy_rest_kernel<T><<<(unsigned)div_up(heads * (a->Dh - rotated), THREADS), THREADS, 0, mt_cuda_raw(s)>>>(*a, rotated);
}

template <typename T> static void backward(mt_stream *s, const mt_rope *a)
{
    size_t bytes = a->dwq || a->dwk ? (size_t)(N_WARPS * 2 * a->Dh) * sizeof(float) : 0;
    if ((a->wq || a->wk) && places(a) <= 4)
        norm_backward_kernel<T, 4><<<(unsigned)sum_blocks(a->N), THREADS, bytes, mt_cuda_raw(s)>>>(*a);
    else if (a->wq || a->wk)
        norm_backward_kernel<T, 18><<<(unsigned)sum_blocks(a->N), THREADS, bytes, mt_cuda_raw(s)>>>(*a);
    else
        rotate_by<T>(s, a, a->dqkv, a->ld_dqkv, a->dqkv, a->ld_dqkv, -1.0f);
}

static mt_rc check(const mt_rope *a, mt_err *err)
{
    return a->Dh > MAX_HEAD ? mt_fail(err, MT_EUNSUPPORTED, "heads of width %d, at most %d", (int)a->Dh, (int)MAX_HEAD) : MT_OK;
}

mt_rc mt__rope_fwd_cuda(mt_stream *s, const mt_rope *a, mt_err *err)
{
    MT_TRY(check(a, err));
    if (a->N == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        forward<bf16>(s, a);
    else
        forward<float>(s, a);
    return mt__cuda_launched(s, "rope", err);
}

mt_rc mt__rope_bwd_cuda(mt_stream *s, const mt_rope *a, mt_err *err)
{
    MT_TRY(check(a, err));
    if (a->N == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        backward<bf16>(s, a);
    else
        backward<float>(s, a);
    MT_TRY(mt__cuda_launched(s, "rope backward", err));
    const float *shares = (const float *)a->scratch;
    if (a->dwq) MT_TRY(mt__sum_rows_cuda(s, a->dwq, shares, sum_blocks(a->N), a->Dh, 2 * a->Dh, err));
    if (a->dwk) MT_TRY(mt__sum_rows_cuda(s, a->dwk, shares + a->Dh, sum_blocks(a->N), a->Dh, 2 * a->Dh, err));
    return MT_OK;
}
