/* qk_prepare.cu - rotary positions: the op, and its kernels where no norm comes before them (qk_prepare_norm.cu has those).
 *
 * Per head, pairs of the first dr dimensions rotate by the row's angle; backward rotates the gradient the other way.
 * Shapes: qkv, qk, dqkv [N, (H + K) Dh] with rows ld apart; cos, sin [positions, dr/2].  Bytes moved: (H + K) Dh elements
 * read and written a row.  A thread takes W pairs. */
#include "ops/qk_prepare.cuh"

enum { THREADS = 256, MAX_HEAD = 512 };

/* The factor of head h of a row at this position, after its rotation. */
__device__ __forceinline__ float query_scale(const mt_qk_prepare &a, int64_t h, int pos)
{
    return h < a.H ? 1.0f + a.q_beta * logf((float)(1 + (pos + a.q_shift) / a.q_period)) : 1.0f;
}

/* W neighboring pairs of one head; direction -1 is the inverse rotation. */
template <typename T, int W, mt_rope_style STYLE, bool SCALED>
__global__ void rotate_kernel(mt_qk_prepare a, const T *in, int64_t ld_in, T *out, int64_t ld_out, float direction, int per_head)
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
    float scale = SCALED ? query_scale(a, h, a.pos[i]) : 1.0f;
#pragma unroll
    for (int k = 0; k < W; k++) {
        /* HALF: pair k is (u[k], v[k]).  PAIR: u then v hold 2W numbers, pair k is the k-th two of them; W is 1 there. */
        float p = to_f32(u.at[k]), q = to_f32(v.at[k]), cos_k = c[k], sin_k = direction * s[k];
        if (SCALED) cos_k *= scale, sin_k *= scale;
        u2.at[k] = from_f32<T>(p * cos_k - q * sin_k);
        v2.at[k] = from_f32<T>(q * cos_k + p * sin_k);
    }
    store<T, W>(y + first, u2);
    store<T, W>(y + second, v2);
}

/* Dimensions that do not rotate: those from `from` on of every head. */
template <typename T>
__global__ void rest_kernel(mt_qk_prepare a, const T *in, int64_t ld_in, T *out, int64_t ld_out, int64_t from)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, heads = a.H + a.K, rest = a.Dh - from;
    if (at >= a.N * heads * rest) return;
    int64_t i = at / (heads * rest), h = at / rest % heads, d = h * a.Dh + from + at % rest;
    T x = in[i * ld_in + d];
    out[i * ld_out + d] = a.q_beta != 0 ? from_f32<T>(to_f32(x) * query_scale(a, h, a.pos[i])) : x;
}

template <typename T, int W, mt_rope_style STYLE>
static void rotate_all(mt_stream *s, const mt_qk_prepare *a, const void *in, int64_t ld_in, void *out, int64_t ld_out,
                       float direction)
{
    int per_head = (int)(a->dr / 2 / W);
    unsigned blocks = (unsigned)div_up(a->N * (a->H + a->K) * per_head, THREADS);
    if (a->q_beta != 0)
        rotate_kernel<T, W, STYLE, true>
            <<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a, (const T *)in, ld_in, (T *)out, ld_out, direction, per_head);
    else
        rotate_kernel<T, W, STYLE, false>
            <<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a, (const T *)in, ld_in, (T *)out, ld_out, direction, per_head);
}

template <typename T>
static void rotate_by(mt_stream *s, const mt_qk_prepare *a, const void *in, int64_t ld_in, void *out, int64_t ld_out,
                      float direction)
{
    int64_t w = wide<T>(), heads = a->N * (a->H + a->K), rotated = a->style == MT_ROPE_NONE ? 0 : a->dr;
    bool whole =
        a->dr / 2 % w == 0 && a->Dh % w == 0 && ld_in % w == 0 && ld_out % w == 0 && is_aligned(in, 16) && is_aligned(out, 16);
    if (a->style == MT_ROPE_PAIR)
        rotate_all<T, 1, MT_ROPE_PAIR>(s, a, in, ld_in, out, ld_out, direction);
    else if (a->style == MT_ROPE_HALF && whole)
        rotate_all<T, wide<T>(), MT_ROPE_HALF>(s, a, in, ld_in, out, ld_out, direction);
    else if (a->style == MT_ROPE_HALF)
        rotate_all<T, 1, MT_ROPE_HALF>(s, a, in, ld_in, out, ld_out, direction);
    if (rotated < a->Dh && (out != in || a->q_beta != 0))
        rest_kernel<T><<<(unsigned)div_up(heads * (a->Dh - rotated), THREADS), THREADS, 0, mt_cuda_raw(s)>>>(
            *a, (const T *)in, ld_in, (T *)out, ld_out, rotated);
}

static mt_rc check(const mt_qk_prepare *a, mt_err *err)
{
    if (a->Dh > MAX_HEAD) return mt_fail(err, MT_EUNSUPPORTED, "heads of width %d, at most %d", (int)a->Dh, (int)MAX_HEAD);
    if (a->q_beta != 0 && (a->wq || a->wk || a->bare || a->norm_last))
        return mt_fail(err, MT_EUNSUPPORTED, "query heads that are scaled by position and have a norm are not supported");
    return MT_OK;
}

mt_rc mt__qk_prepare_fwd_cuda(mt_stream *s, const mt_qk_prepare *a, mt_err *err)
{
    MT_TRY(check(a, err));
    if (a->N == 0) return MT_OK;
    if (a->wq || a->wk || a->bare) return mt__qk_prepare_norm_fwd(s, a, err);
    if (a->t == MT_DTYPE_BF16)
        rotate_by<bf16>(s, a, a->qkv, a->ld_qkv, a->qk, a->ld_qk, 1.0f);
    else
        rotate_by<float>(s, a, a->qkv, a->ld_qkv, a->qk, a->ld_qk, 1.0f);
    return mt__cuda_launched(s, "rope", err);
}

mt_rc mt__qk_prepare_bwd_cuda(mt_stream *s, const mt_qk_prepare *a, mt_err *err)
{
    MT_TRY(check(a, err));
    if (a->N == 0) return MT_OK;
    if (a->wq || a->wk || a->bare) return mt__qk_prepare_norm_bwd(s, a, err);
    if (a->t == MT_DTYPE_BF16)
        rotate_by<bf16>(s, a, a->dqkv, a->ld_dqkv, a->dqkv, a->ld_dqkv, -1.0f);
    else
        rotate_by<float>(s, a, a->dqkv, a->ld_dqkv, a->dqkv, a->ld_dqkv, -1.0f);
    return mt__cuda_launched(s, "rope backward", err);
}
