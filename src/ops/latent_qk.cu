/* latent_qk.cu - queries and keys of latent attention: the rope part of every query head rotates in place, key heads are
 * assembled from their own part and the shared rotated part.  Backward splits them again.
 *
 * Shapes: q, k, dq, dk [N, H, dn + dr]; nope, d_nope [N, H, dn]; rope, d_rope [N, dr]; cos, sin [positions, dr/2].
 * A block has a row.  Bytes moved: forward 2 H (dn + 2 dr) elements a row, backward the same. */
#include "ops/ops_cuda.cuh"

enum { THREADS = 256 };

/* The two numbers of pair j, and where they are. */
typedef struct pair {
    float u, v;
} pair;
typedef struct places {
    int u, v;
} places;

template <mt_rope_style STYLE> __device__ __forceinline__ places pair_of(int j, int half)
{
    return STYLE == MT_ROPE_PAIR ? places{ 2 * j, 2 * j + 1 } : places{ j, j + half };
}

/* direction -1 is the inverse rotation. */
template <mt_rope_style STYLE>
__device__ __forceinline__ pair rotated(pair p, const float *cos_row, const float *sin_row, int j, float direction)
{
    if (STYLE == MT_ROPE_NONE) return p;
    float c = cos_row[j], s = direction * sin_row[j];
    return pair{ p.u * c - p.v * s, p.v * c + p.u * s };
}

/* The rope parts of all heads of a row, to others that are `apart` elements from each other. */
template <typename T, mt_rope_style STYLE>
__device__ __forceinline__ void rotate_heads(const mt_latent_qk &a, const T *from, T *to, int64_t apart, const float *cos_row,
                                             const float *sin_row, float direction)
{
    int half = (int)a.dr / 2, heads = (int)a.H;
    for (int at = threadIdx.x; at < heads * half; at += THREADS) {
        const T *x = from + (int64_t)(at / half) * (a.dn + a.dr);
        T *y = to + (int64_t)(at / half) * apart;
        places w = pair_of<STYLE>(at % half, half);
        pair p = rotated<STYLE>(pair{ to_f32(x[w.u]), to_f32(x[w.v]) }, cos_row, sin_row, at % half, direction);
        y[w.u] = from_f32<T>(p.u);
        y[w.v] = from_f32<T>(p.v);
    }
}

/* The nope parts of all heads of a row, from heads `wide_from` apart to heads `wide_to` apart; W elements at a time. */
template <typename T, int W>
__device__ __forceinline__ void copy_nope(const mt_latent_qk &a, T *to, int64_t wide_to, const T *from, int64_t wide_from)
{
    int per_head = (int)a.dn / W, n = (int)a.H * per_head;
    for (int at = threadIdx.x; at < n; at += THREADS) {
        int64_t h = at / per_head, d = (int64_t)(at % per_head) * W;
        store<T, W>(to + h * wide_to + d, load<T, W>(from + h * wide_from + d));
    }
}

template <typename T, int W, mt_rope_style STYLE> __global__ void __launch_bounds__(THREADS) forward_kernel(mt_latent_qk a)
{
    int64_t i = blockIdx.x, wide = a.dn + a.dr;
    int half = (int)a.dr / 2, heads = (int)a.H;
    const float *cos_row = a.cos + (int64_t)a.pos[i] * half, *sin_row = a.sin + (int64_t)a.pos[i] * half;
    const T *rope = (const T *)a.rope + i * a.ld_rope;
    T *k = (T *)a.k + i * a.ldk, *q = (T *)a.q + i * a.ldq + a.dn;
    if (a.q_to)
        rotate_heads<T, STYLE>(a, q, (T *)a.q_to + i * a.ld_q_to, a.q_apart, cos_row, sin_row, 1.0f);
    else if (a.q)
        rotate_heads<T, STYLE>(a, q, q, wide, cos_row, sin_row, 1.0f);
    if (!a.k) return;
    copy_nope<T, W>(a, k, wide, (const T *)a.nope + i * a.ld_nope, a.dn);
    for (int at = threadIdx.x; at < heads * half; at += THREADS) {
        places w = pair_of<STYLE>(at % half, half);
        pair p = rotated<STYLE>(pair{ to_f32(rope[w.u]), to_f32(rope[w.v]) }, cos_row, sin_row, at % half, 1.0f);
        T *x = k + (int64_t)(at / half) * wide + a.dn;
        x[w.u] = from_f32<T>(p.u);
        x[w.v] = from_f32<T>(p.v);
    }
}

/* d_rope: a thread adds up a pair over all heads, in their order. */
template <typename T, int W, mt_rope_style STYLE> __global__ void __launch_bounds__(THREADS) backward_kernel(mt_latent_qk a)
{
    int64_t i = blockIdx.x, wide = a.dn + a.dr, row = i * a.ld_d;
    int half = (int)a.dr / 2;
    const float *cos_row = a.cos + (int64_t)a.pos[i] * half, *sin_row = a.sin + (int64_t)a.pos[i] * half;
    const T *dk = (const T *)a.dk + row;
    T *d_rope = (T *)a.d_rope + row;
    T *dq = (T *)a.dq + row + a.dn;
    rotate_heads<T, STYLE>(a, dq, dq, wide, cos_row, sin_row, -1.0f);
    copy_nope<T, W>(a, (T *)a.d_nope + row, a.dn, dk, wide);
    for (int j = threadIdx.x; j < half; j += THREADS) {
        places w = pair_of<STYLE>(j, half);
        pair sum = { 0, 0 };
        for (int h = 0; h < (int)a.H; h++) {
            const T *x = dk + h * wide + a.dn;
            sum.u += to_f32(x[w.u]);
            sum.v += to_f32(x[w.v]);
        }
        sum = rotated<STYLE>(sum, cos_row, sin_row, j, -1.0f);
        d_rope[w.u] = from_f32<T>(sum.u);
        d_rope[w.v] = from_f32<T>(sum.v);
    }
}

template <typename T, int W, mt_rope_style STYLE> static void launch(mt_stream *s, const mt_latent_qk *a, bool back)
{
    void (*kernel)(mt_latent_qk) = back ? backward_kernel<T, W, STYLE> : forward_kernel<T, W, STYLE>;
    kernel<<<(unsigned)a->N, THREADS, 0, mt_cuda_raw(s)>>>(*a);
}

template <typename T, int W> static void by_style(mt_stream *s, const mt_latent_qk *a, bool back)
{
    if (a->style == MT_ROPE_PAIR)
        launch<T, W, MT_ROPE_PAIR>(s, a, back);
    else if (a->style == MT_ROPE_HALF)
        launch<T, W, MT_ROPE_HALF>(s, a, back);
    else
        launch<T, W, MT_ROPE_NONE>(s, a, back);
}

template <typename T> static void by_alignment(mt_stream *s, const mt_latent_qk *a, bool back)
{
    const int64_t w = wide<T>();
    const bool heads = a->dn % w == 0 && a->dr % w == 0,
               rows = back ? a->ld_d % w == 0 && is_aligned(a->dk, 16) && is_aligned(a->d_nope, 16)
                           : a->ldk % w == 0 && a->ld_nope % w == 0 && is_aligned(a->k, 16) && is_aligned(a->nope, 16);
    if (heads && rows)
        by_style<T, wide<T>()>(s, a, back);
    else
        by_style<T, 1>(s, a, back);
}

static mt_rc run(mt_stream *s, const mt_latent_qk *a, bool back, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        by_alignment<bf16>(s, a, back);
    else
        by_alignment<float>(s, a, back);
    return mt__cuda_launched(s, back ? "latent queries and keys backward" : "latent queries and keys", err);
}

mt_rc mt__latent_qk_fwd_cuda(mt_stream *s, const mt_latent_qk *a, mt_err *err) { return run(s, a, false, err); }
mt_rc mt__latent_qk_bwd_cuda(mt_stream *s, const mt_latent_qk *a, mt_err *err) { return run(s, a, true, err); }
