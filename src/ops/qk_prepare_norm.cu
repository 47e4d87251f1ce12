/* qk_prepare_norm.cu - rope where q and k go through a norm, first or (LAST, norm_last) after the rotation.  With xh = (x - c) r and u = w * the gradient turned back:
 *     forward   y = rotated(w * xh)
 *     backward  dx = r (u - xh mean(u xh) - mean(u)),   dw += sums over rows and heads of xh * the gradient turned back
 * LAST: xh is of x rotated, y = w * xh, u = w * the gradient; dx is turned back in the end.
 * c is 0, or the mean when centered; r is 1 / rms over a head, or over all heads of its kind (whole).
 *
 * Bytes moved: (H + K) Dh elements read and written a row; backward reads as many again.  Three ways:
 *   the usual one  a norm per head, halves rotate: G lanes take a head, each two vectors of it, all in registers
 *   whole          a norm over all heads of a kind, halves rotate: the same lanes, those of a row in one block
 *   any norm       a block takes a row, its warps the heads; statistics meet in shared memory.  Right, and slower. */
#include "ops/qk_prepare.cuh"

enum { THREADS = 256, N_WARPS = THREADS / 32 };

static __host__ __device__ __forceinline__ int half_of(const mt_qk_prepare &a)
{
    return a.style == MT_ROPE_NONE ? 0 : (int)a.dr / 2;
}

/* -- the usual one --------------------------------------------------------------------------------- */

/* Where a lane's two vectors of a head begin: the two sides of W pairs or, past them, neighbors that do not rotate. */
typedef struct places {
    int first, second;
    bool rotates;
} places;

template <int W> __device__ __forceinline__ places places_of(const mt_qk_prepare &a, int lane)
{
    int half = half_of(a), j = lane * W;
    places p = { j, j + half, true };
    if (j >= half) p = { 2 * j, 2 * j + W, false };
    return p;
}

/* A lane's 2 W numbers of a head. */
template <typename T, int W> __device__ __forceinline__ void load_head(float *x, const T *head, const places &p)
{
    vec<T, W> u = load<T, W>(head + p.first), v = load<T, W>(head + p.second);
#pragma unroll
    for (int k = 0; k < W; k++) x[k] = to_f32(u.at[k]), x[W + k] = to_f32(v.at[k]);
}

template <typename T, int W> __device__ __forceinline__ void store_head(T *head, const float *x, const places &p)
{
    vec<T, W> u, v;
#pragma unroll
    for (int k = 0; k < W; k++) u.at[k] = from_f32<T>(x[k]), v.at[k] = from_f32<T>(x[W + k]);
    store<T, W>(head + p.first, u);
    store<T, W>(head + p.second, v);
}

/* The row's angles at this lane's pairs. */
template <int W> __device__ __forceinline__ void load_angles(const mt_qk_prepare &a, float *c, float *s, const places &p, int pos)
{
    int64_t from = (int64_t)pos * half_of(a) + p.first;
#pragma unroll
    for (int k = 0; k < W; k++) {
        c[k] = p.rotates ? a.cos[from + k] : 1.0f;
        s[k] = p.rotates ? a.sin[from + k] : 0.0f;
    }
}

template <int W> __device__ __forceinline__ void rotate(float *x, const float *c, const float *s, float direction)
{
#pragma unroll
    for (int k = 0; k < W; k++) {
        float u = x[k], v = x[W + k], sine = direction * s[k];
        x[k] = u * c[k] - v * sine;
        x[W + k] = v * c[k] + u * sine;
    }
}

template <int G> __device__ __forceinline__ float sum_over(float x)
{
#pragma unroll
    for (int half = G / 2; half; half /= 2) x += __shfl_xor_sync(0xffffffffu, x, half);
    return x;
}

template <int W, int G> __device__ __forceinline__ float rstd_of(const mt_qk_prepare &a, const float *x)
{
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 2 * W; k++) sum += x[k] * x[k];
    return rsqrtf(sum_over<G>(sum) / (float)a.Dh + a.eps);
}

/* HEADS heads of a row by one group of lanes, BATCH loaded at a time. */
enum { HEADS = 8, BATCH = 4 };

template <typename T, int W, int G, bool LAST> __global__ void __launch_bounds__(THREADS) forward_kernel(mt_qk_prepare a)
{
    int heads = (int)(a.H + a.K), per_row = (heads + HEADS - 1) / HEADS;
    int64_t at = (int64_t)blockIdx.x * (THREADS / G) + threadIdx.x / G, last = a.N * per_row - 1;
    bool mine = at <= last; /* the others work along, since lanes of a warp meet in sums, and store nothing */
    if (!mine) at = last;
    int64_t i = at / per_row;
    int first = (int)(at % per_row) * HEADS;
    places p = places_of<W>(a, threadIdx.x % G);
    float c[W], s[W], w[2 * W], one = a.one_plus ? 1.0f : 0.0f;
    load_angles<W>(a, c, s, p, a.pos[i]);
    for (int h0 = first; h0 < first + HEADS; h0 += BATCH) {
        float x[BATCH][2 * W];
#pragma unroll
        for (int b = 0; b < BATCH; b++) load_head<T, W>(x[b], (const T *)a.qkv + i * a.ld_qkv + min(h0 + b, heads - 1) * a.Dh, p);
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            int h = min(h0 + b, heads - 1);
            const T *weights = (const T *)(h < a.H ? a.wq : a.wk);
            if constexpr (LAST) rotate<W>(x[b], c, s, 1.0f);
            float r = rstd_of<W, G>(a, x[b]);
            if (weights) {
                load_head<T, W>(w, weights, p);
#pragma unroll
                for (int k = 0; k < 2 * W; k++) x[b][k] *= r * (w[k] + one);
            }
            if constexpr (LAST) {
#pragma unroll
                for (int k = 0; k < 2 * W; k++)
                    if (a.bare) x[b][k] *= r;
            } else {
                rotate<W>(x[b], c, s, 1.0f);
            }
            if (mine && h0 + b < heads) store_head<T, W>((T *)a.qk + i * a.ld_qk + h * a.Dh, x[b], p);
        }
    }
}

/* The gradient of one head, back through rotation and norm; if it counts, its share of dw is added to sums. */
template <typename T, int W, int G, bool LAST>
__device__ __forceinline__ void head_backward(const mt_qk_prepare &a, float *dx, float *x, const T *weights, const places &p,
                                              const float *c, const float *s, float *sums, bool counts)
{
    if constexpr (LAST) rotate<W>(x, c, s, 1.0f);
    float r = rstd_of<W, G>(a, x), one = a.one_plus ? 1.0f : 0.0f, dot = 0, w[2 * W];
    if (!LAST || !(weights || a.bare)) rotate<W>(dx, c, s, -1.0f);
    if (!weights && !(LAST && a.bare)) return;
#pragma unroll
    for (int k = 0; k < 2 * W; k++) w[k] = 1.0f - one; /* bare */
    if (weights) load_head<T, W>(w, weights, p);
#pragma unroll
    for (int k = 0; k < 2 * W; k++) {
        float xh = x[k] * r;
        if (counts) sums[k] += dx[k] * xh;
        dx[k] *= w[k] + one;
        dot += dx[k] * xh;
    }
    float mean = sum_over<G>(dot) / (float)a.Dh;
#pragma unroll
    for (int k = 0; k < 2 * W; k++) dx[k] = r * (dx[k] - x[k] * r * mean);
    if constexpr (LAST) rotate<W>(dx, c, s, -1.0f);
}

/* sums of all the block's groups, in order, to dst [Dh]. */
template <int W, int G> __device__ __forceinline__ void join_sums(float *dst, float *sums, const places &p, int Dh)
{
    extern __shared__ float shares[]; /* [N_WARPS][Dh] */
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < 2 * W; k++) {
#pragma unroll
        for (int half = 16; half >= G; half /= 2) sums[k] += __shfl_xor_sync(0xffffffffu, sums[k], half);
        if (lane < G) shares[warp * Dh + (k < W ? p.first + k : p.second + k - W)] = sums[k];
    }
    __syncthreads();
    for (int d = threadIdx.x; d < Dh; d += THREADS) {
        float sum = 0;
        for (int k = 0; k < N_WARPS; k++) sum += shares[k * Dh + d];
        dst[d] = sum;
    }
    __syncthreads();
}

/* A block takes SUM_ROWS rows, first their query heads, then their key heads: the sums of one kind at a time are in registers.  A row's
 * heads are split among as many groups as there are. */
template <typename T, int W, int G, bool LAST> __global__ void __launch_bounds__(THREADS, 2) backward_kernel(mt_qk_prepare a)
{
    constexpr int GROUPS = THREADS / G, SPLIT = GROUPS > SUM_ROWS ? GROUPS / SUM_ROWS : 1;
    int group = threadIdx.x / G;
    places p = places_of<W>(a, threadIdx.x % G);
    int64_t from = (int64_t)blockIdx.x * SUM_ROWS;
    for (int kind = 0; kind < 2; kind++) {
        int first = kind ? (int)a.H : 0, end = kind ? (int)(a.H + a.K) : (int)a.H;
        const T *weights = (const T *)(kind ? a.wk : a.wq);
        float sums[2 * W] = { 0 };
        for (int row = group / SPLIT; row < SUM_ROWS; row += GROUPS / SPLIT) {
            int64_t i = min(from + row, a.N - 1);
            bool exists = from + row < a.N;
            float c[W], s[W];
            load_angles<W>(a, c, s, p, a.pos[i]);
            /* All lanes of a warp take the same number of turns, since they meet in sums; turns past the end store nothing. */
            for (int h0 = first; h0 < end; h0 += SPLIT) {
                int h = h0 + group % SPLIT;
                bool mine = exists && h < end;
                if (h >= end) h = end - 1;
                T *grad = (T *)a.dqkv + i * a.ld_dqkv + h * a.Dh;
                float x[2 * W], dx[2 * W];
                load_head<T, W>(x, (const T *)a.qkv + i * a.ld_qkv + h * a.Dh, p);
                load_head<T, W>(dx, grad, p);
                head_backward<T, W, G, LAST>(a, dx, x, weights, p, c, s, sums, mine);
                if (mine) store_head<T, W>(grad, dx, p);
            }
        }
        if (a.dwq || a.dwk) join_sums<W, G>((float *)a.scratch + ((int64_t)blockIdx.x * 2 + kind) * a.Dh, sums, p, (int)a.Dh);
    }
}

/* -- whole ----------------------------------------------------------------------------------------- */

enum { MOST_WARPS = 32 };

/* A thread's part of every row: two vectors of a head, and of its weights.  Threads past the last head work along on that, uncounted. */
typedef struct part {
    places p;
    int64_t at; /* of the head in a row, and of its weights among all: query heads, then key heads */
    bool counts, is_key;
} part;

template <int W, int G> __device__ __forceinline__ part part_of(const mt_qk_prepare &a)
{
    int heads = (int)(a.H + a.K), h = min((int)threadIdx.x / G, heads - 1);
    return { places_of<W>(a, threadIdx.x % G), h * a.Dh, (int)threadIdx.x / G < heads, h >= a.H };
}

template <typename T, int W> __device__ __forceinline__ void load_weights(const mt_qk_prepare &a, float *w, const part &m)
{
    float one = a.one_plus ? 1.0f : 0.0f;
    load_head<T, W>(w, m.is_key ? (const T *)a.wk + m.at - a.H * a.Dh : (const T *)a.wq + m.at, m.p);
#pragma unroll
    for (int k = 0; k < 2 * W; k++) w[k] += one;
}

/* The means of N numbers over the heads of this thread's kind.  Calls alternate between two memories (turn), so that one meeting of the
 * block is enough for each. */
template <int N> __device__ __forceinline__ void mean_of_kind(const mt_qk_prepare &a, float (&x)[N], const part &m, int turn)
{
    __shared__ float of_warp[2][2][N][MOST_WARPS];
    int n_warps = (int)blockDim.x / 32;
#pragma unroll
    for (int n = 0; n < N; n++) {
        float q = warp_sum(m.counts && !m.is_key ? x[n] : 0.0f), k = warp_sum(m.counts && m.is_key ? x[n] : 0.0f);
        if (threadIdx.x % 32 == 0) of_warp[turn][0][n][threadIdx.x / 32] = q, of_warp[turn][1][n][threadIdx.x / 32] = k;
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; n++) {
        float sum = 0;
        for (int warp = 0; warp < n_warps; warp++) sum += of_warp[turn][m.is_key][n][warp];
        x[n] = sum / (float)((m.is_key ? a.K : a.H) * a.Dh);
    }
}

template <typename T, int W, int G, bool LAST, int MOST>
__global__ void __launch_bounds__(MOST) whole_forward_kernel(mt_qk_prepare a)
{
    int64_t i = blockIdx.x;
    part m = part_of<W, G>(a);
    float x[2 * W], w[2 * W], c[W], s[W], square[1] = { 0 };
    load_head<T, W>(x, (const T *)a.qkv + i * a.ld_qkv + m.at, m.p);
    load_angles<W>(a, c, s, m.p, a.pos[i]);
    load_weights<T, W>(a, w, m);
    if (LAST) rotate<W>(x, c, s, 1.0f);
#pragma unroll
    for (int k = 0; k < 2 * W; k++) square[0] += x[k] * x[k];
    mean_of_kind(a, square, m, 0);
    float r = rsqrtf(square[0] + a.eps);
#pragma unroll
    for (int k = 0; k < 2 * W; k++) x[k] *= r * w[k];
    if (!LAST) rotate<W>(x, c, s, 1.0f);
    if (m.counts) store_head<T, W>((T *)a.qk + i * a.ld_qk + m.at, x, m.p);
}

/* A block takes SUM_ROWS rows, one after the other; a thread sums the gradients of its own weights. */
template <typename T, int W, int G, bool LAST, int MOST>
__global__ void __launch_bounds__(MOST) whole_backward_kernel(mt_qk_prepare a)
{
    int64_t from = (int64_t)blockIdx.x * SUM_ROWS, to = min(from + SUM_ROWS, a.N);
    part m = part_of<W, G>(a);
    float sums[2 * W] = { 0 };
    for (int64_t i = from; i < to; i++) {
        float x[2 * W], dx[2 * W], w[2 * W], c[W], s[W], mean[2] = { 0, 0 };
        T *grad = (T *)a.dqkv + i * a.ld_dqkv + m.at;
        load_head<T, W>(x, (const T *)a.qkv + i * a.ld_qkv + m.at, m.p);
        load_head<T, W>(dx, grad, m.p);
        load_angles<W>(a, c, s, m.p, a.pos[i]);
        load_weights<T, W>(a, w, m);
        rotate<W>(LAST ? x : dx, c, s, LAST ? 1.0f : -1.0f);
#pragma unroll
        for (int k = 0; k < 2 * W; k++) {
            mean[0] += x[k] * x[k];
            mean[1] += dx[k] * w[k] * x[k];
        }
        mean_of_kind(a, mean, m, (int)(i % 2));
        float r = rsqrtf(mean[0] + a.eps), back = r * r * mean[1];
#pragma unroll
        for (int k = 0; k < 2 * W; k++) {
            sums[k] += dx[k] * x[k] * r;
            dx[k] = r * (dx[k] * w[k] - x[k] * back);
        }
        if (LAST) rotate<W>(dx, c, s, -1.0f);
        if (m.counts) store_head<T, W>(grad, dx, m.p);
    }
    if (m.counts && (a.dwq || a.dwk))
        store_head<float, W>((float *)a.scratch + blockIdx.x * (a.H + a.K) * a.Dh + m.at, sums, m.p);
}

/* -- any norm -------------------------------------------------------------------------------------- */

/* Dimensions that rotate together: a pair, or one dimension past the pairs (d1 < 0). */
typedef struct place {
    int d0, d1;
    float c, s;
} place;

__device__ __forceinline__ place place_at(const mt_qk_prepare &a, int at, int pos)
{
    int half = half_of(a);
    place p = { half + at, -1, 1.0f, 0.0f };
    if (at >= half) return p;
    p.d0 = a.style == MT_ROPE_HALF ? at : 2 * at;
    p.d1 = a.style == MT_ROPE_HALF ? at + half : 2 * at + 1;
    p.c = a.cos[(int64_t)pos * half + at];
    p.s = a.sin[(int64_t)pos * half + at];
    return p;
}

/* One number for each head: what all lanes of its warp add up to, put where the block can see it. */
__device__ __forceinline__ void put_sum(float *of_head, int h, float x)
{
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) of_head[h] = x;
}

/* The mean of a sum per head over the heads that are normed together with head h. */
__device__ __forceinline__ float mean_of(const mt_qk_prepare &a, const float *of_head, int h)
{
    if (!a.whole) return of_head[h] / (float)a.Dh;
    int first = h < a.H ? 0 : (int)a.H, n = (int)(h < a.H ? a.H : a.K);
    float sum = 0;
    for (int k = first; k < first + n; k++) sum += of_head[k];
    return sum / ((float)n * (float)a.Dh);
}

template <typename T> struct row_of {
    const T *x;  /* q heads, then k heads */
    T *grad;     /* the same, their gradients; backward */
    float *sums; /* [4][heads] in shared memory: x, (x - c)^2, u xh, u */
    int heads, pos;
};

__device__ __forceinline__ bool is_normed(const mt_qk_prepare &a, int h)
{
    return a.bare || (h < a.H ? a.wq != NULL : a.wk != NULL);
}

template <typename T> __device__ __forceinline__ float weight_of(const mt_qk_prepare &a, int h, int d)
{
    const T *w = (const T *)(h < a.H ? a.wq : a.wk);
    int64_t own = a.whole || a.own_weights ? (h < a.H ? h : h - a.H) * a.Dh : 0;
    return w ? to_f32(w[own + d]) + (a.one_plus ? 1.0f : 0.0f) : 1.0f;
}

typedef struct stats {
    float c, r;
} stats;

template <typename T> __device__ __forceinline__ stats stats_of(const mt_qk_prepare &a, const row_of<T> &row, int h)
{
    stats n = { 0.0f, 1.0f };
    if (!is_normed(a, h)) return n;
    if (a.centered) n.c = mean_of(a, row.sums, h);
    n.r = rsqrtf(mean_of(a, row.sums + row.heads, h) + a.eps);
    return n;
}

/* The norm's input at a place of head h. */
template <typename T, bool LAST>
__device__ __forceinline__ void input_at(const row_of<T> &row, const place &p, int64_t head, float *x0, float *x1)
{
    float u = to_f32(row.x[head + p.d0]), v = p.d1 >= 0 ? to_f32(row.x[head + p.d1]) : 0.0f;
    *x0 = LAST ? u * p.c - v * p.s : u;
    *x1 = LAST ? v * p.c + u * p.s : v;
}

/* The sums of x - c, or of its squares, over each head; the warps take heads in turn. */
template <typename T, bool LAST, bool SQUARES>
__device__ __forceinline__ void measure_heads(const mt_qk_prepare &a, const row_of<T> &row, float *sums)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, Dh = (int)a.Dh, n_places = Dh - half_of(a);
    for (int h = warp; h < row.heads; h += N_WARPS) {
        float sum = 0, c = SQUARES && a.centered ? mean_of(a, row.sums, h) : 0.0f, x0, x1;
        if constexpr (LAST) {
            for (int at = lane; at < n_places; at += 32) {
                place p = place_at(a, at, row.pos);
                input_at<T, true>(row, p, h * Dh, &x0, &x1);
                x0 -= c;
                x1 = p.d1 >= 0 ? x1 - c : 0.0f;
                sum += SQUARES ? x0 * x0 + x1 * x1 : x0 + x1;
            }
        } else {
            for (int d = lane; d < Dh; d += 32) {
                x0 = to_f32(row.x[h * Dh + d]) - c;
                sum += SQUARES ? x0 * x0 : x0;
            }
        }
        put_sum(sums, h, sum);
    }
    __syncthreads();
}

/* Both statistics of every head of a row. */
template <typename T, bool LAST> __device__ __forceinline__ void measure(const mt_qk_prepare &a, const row_of<T> &row)
{
    if (a.centered) measure_heads<T, LAST, false>(a, row, row.sums);
    measure_heads<T, LAST, true>(a, row, row.sums + row.heads);
}

/* xh at a place of head h. */
template <typename T, bool LAST>
__device__ __forceinline__ void normed_at(const mt_qk_prepare &a, const row_of<T> &row, stats n, const place &p, int h, float *x0,
                                          float *x1)
{
    input_at<T, LAST>(row, p, h * a.Dh, x0, x1);
    *x0 = (*x0 - n.c) * n.r;
    *x1 = p.d1 >= 0 ? (*x1 - n.c) * n.r : 0.0f;
}

/* The norm's weights there. */
template <typename T>
__device__ __forceinline__ void weights_at(const mt_qk_prepare &a, const place &p, int h, float *w0, float *w1)
{
    *w0 = weight_of<T>(a, h, p.d0);
    *w1 = p.d1 >= 0 ? weight_of<T>(a, h, p.d1) : 0.0f;
}

template <typename T, bool LAST> __global__ void __launch_bounds__(THREADS) any_forward_kernel(mt_qk_prepare a)
{
    extern __shared__ float shares[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, Dh = (int)a.Dh, n_places = Dh - half_of(a);
    int64_t i = blockIdx.x;
    row_of<T> row = { (const T *)a.qkv + i * a.ld_qkv, NULL, shares, (int)(a.H + a.K), a.pos[i] };
    T *out = (T *)a.qk + i * a.ld_qk;
    measure<T, LAST>(a, row);
    for (int h = warp; h < row.heads; h += N_WARPS) {
        stats n = stats_of<T>(a, row, h);
        for (int at = lane; at < n_places; at += 32) {
            place p = place_at(a, at, row.pos);
            float u, v, w0, w1;
            normed_at<T, LAST>(a, row, n, p, h, &u, &v);
            weights_at<T>(a, p, h, &w0, &w1);
            u *= w0;
            v *= w1;
            out[h * Dh + p.d0] = from_f32<T>(LAST ? u : u * p.c - v * p.s);
            if (p.d1 >= 0) out[h * Dh + p.d1] = from_f32<T>(LAST ? v : v * p.c + u * p.s);
        }
    }
}

/* A pair of gradients turned back. */
__device__ __forceinline__ void turn_back(const place &p, float u, float v, float *g0, float *g1)
{
    *g0 = u * p.c + v * p.s;
    *g1 = v * p.c - u * p.s;
}

/* The gradient of what the norm wrote at a place of head h. */
template <typename T, bool LAST>
__device__ __forceinline__ void gradient_at(const row_of<T> &row, const place &p, int64_t head, float *g0, float *g1)
{
    float u = to_f32(row.grad[head + p.d0]), v = p.d1 >= 0 ? to_f32(row.grad[head + p.d1]) : 0.0f;
    if (LAST)
        *g0 = u, *g1 = v;
    else
        turn_back(p, u, v, g0, g1);
}

/* Sums of u * xh and of u for every head. */
template <typename T, bool LAST> __device__ __forceinline__ void measure_gradient(const mt_qk_prepare &a, const row_of<T> &row)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, Dh = (int)a.Dh, n_places = Dh - half_of(a);
    for (int h = warp; h < row.heads; h += N_WARPS) {
        stats n = stats_of<T>(a, row, h);
        float dot = 0, sum = 0, g0, g1, x0, x1, w0, w1;
        for (int at = lane; at < n_places; at += 32) {
            place p = place_at(a, at, row.pos);
            gradient_at<T, LAST>(row, p, h * Dh, &g0, &g1);
            normed_at<T, LAST>(a, row, n, p, h, &x0, &x1);
            weights_at<T>(a, p, h, &w0, &w1);
            float u0 = g0 * w0, u1 = g1 * w1;
            dot += u0 * x0 + u1 * x1;
            sum += u0 + u1;
        }
        put_sum(row.sums + 2 * row.heads, h, dot);
        put_sum(row.sums + 3 * row.heads, h, sum);
    }
    __syncthreads();
}

/* sums [weights] += this row's share of dwq, then of dwk.  A thread has its own weights; those that heads share meet in it, head by head. */
template <typename T, bool LAST>
__device__ __forceinline__ void add_weights(const mt_qk_prepare &a, const row_of<T> &row, float *sums, bool first)
{
    bool each = a.whole || a.own_weights;
    int Dh = (int)a.Dh, n_places = Dh - half_of(a), owners = each ? row.heads : 2;
    for (int at = threadIdx.x; at < owners * n_places; at += THREADS) {
        int owner = at / n_places, h = each ? owner : owner * (int)a.H, end = each ? h + 1 : owner ? row.heads : (int)a.H;
        place p = place_at(a, at % n_places, row.pos);
        float s0 = 0, s1 = 0, g0, g1, x0, x1, *to = sums + owner * Dh;
        for (; h < end; h++) {
            stats n = stats_of<T>(a, row, h);
            gradient_at<T, LAST>(row, p, h * Dh, &g0, &g1);
            normed_at<T, LAST>(a, row, n, p, h, &x0, &x1);
            s0 += g0 * x0;
            s1 += g1 * x1;
        }
        to[p.d0] = (first ? 0.0f : to[p.d0]) + s0;
        if (p.d1 >= 0) to[p.d1] = (first ? 0.0f : to[p.d1]) + s1;
    }
    __syncthreads(); /* gradients are read here and overwritten next */
}

template <typename T, bool LAST>
__global__ void __launch_bounds__(THREADS) any_backward_kernel(mt_qk_prepare a, int64_t n_weights)
{
    extern __shared__ float shares[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, Dh = (int)a.Dh, n_places = Dh - half_of(a);
    int64_t from = (int64_t)blockIdx.x * SUM_ROWS, to = from + SUM_ROWS < a.N ? from + SUM_ROWS : a.N;
    for (int64_t i = from; i < to; i++) {
        row_of<T> row = { (const T *)a.qkv + i * a.ld_qkv, (T *)a.dqkv + i * a.ld_dqkv, shares, (int)(a.H + a.K), a.pos[i] };
        measure<T, LAST>(a, row);
        measure_gradient<T, LAST>(a, row);
        if (a.dwq || a.dwk) add_weights<T, LAST>(a, row, (float *)a.scratch + blockIdx.x * n_weights, i == from);
        for (int h = warp; h < row.heads; h += N_WARPS) {
            bool through = is_normed(a, h);
            stats n = stats_of<T>(a, row, h);
            float dot = through ? mean_of(a, row.sums + 2 * row.heads, h) : 0.0f;
            float sum = through && a.centered ? mean_of(a, row.sums + 3 * row.heads, h) : 0.0f, g0, g1, x0, x1, w0, w1;
            for (int at = lane; at < n_places; at += 32) {
                place p = place_at(a, at, row.pos);
                gradient_at<T, LAST>(row, p, h * Dh, &g0, &g1);
                normed_at<T, LAST>(a, row, n, p, h, &x0, &x1);
                weights_at<T>(a, p, h, &w0, &w1);
                float dx0 = n.r * (g0 * w0 - x0 * dot - sum), dx1 = n.r * (g1 * w1 - x1 * dot - sum);
                if (p.d1 < 0) dx1 = 0.0f;
                if (LAST) turn_back(p, dx0, dx1, &dx0, &dx1);
                row.grad[h * Dh + p.d0] = from_f32<T>(dx0);
                if (p.d1 >= 0) row.grad[h * Dh + p.d1] = from_f32<T>(dx1);
            }
        }
        __syncthreads(); /* the statistics are read until here */
    }
}

/* -- launchers ------------------------------------------------------------------------------------- */

/* Vectors fit: halves and head begin and end with whole ones, in place and in memory. */
template <typename T> static bool vectors_fit(const mt_qk_prepare *a, bool back)
{
    int w = wide<T>();
    bool fits = (a->style == MT_ROPE_HALF || a->style == MT_ROPE_NONE) && half_of(*a) % w == 0 &&
                (a->Dh == 64 || a->Dh == 128 || a->Dh == 256) && a->ld_qkv % w == 0 && is_aligned(a->qkv, 16);
    bool ends = back ? a->ld_dqkv % w == 0 && is_aligned(a->dqkv, 16) : a->ld_qk % w == 0 && is_aligned(a->qk, 16);
    return fits && ends && is_aligned(a->wq, 16) && is_aligned(a->wk, 16);
}

static bool has_usual_norm(const mt_qk_prepare *a)
{
    return !a->whole && !a->centered && !a->own_weights && (a->norm_last || !a->bare);
}

/* Threads that a row of whole norms takes. */
template <typename T> static unsigned whole_threads(const mt_qk_prepare *a)
{
    return (unsigned)div_up((a->H + a->K) * (a->Dh / 2 / wide<T>()), 32) * 32;
}
template <typename T> static bool has_whole_norms(const mt_qk_prepare *a)
{
    return a->whole && !a->centered && a->wq && a->wk && whole_threads<T>(a) <= 32 * MOST_WARPS;
}

template <typename T, int G, bool LAST, int MOST> static void whole(mt_stream *s, const mt_qk_prepare *a, bool back)
{
    unsigned threads = whole_threads<T>(a);
    if (back)
        whole_backward_kernel<T, wide<T>(), G, LAST, MOST><<<(unsigned)sum_blocks(a->N), threads, 0, mt_cuda_raw(s)>>>(*a);
    else
        whole_forward_kernel<T, wide<T>(), G, LAST, MOST><<<(unsigned)a->N, threads, 0, mt_cuda_raw(s)>>>(*a);
}

template <typename T, int G, bool LAST> static void usual(mt_stream *s, const mt_qk_prepare *a, bool back)
{
    int64_t groups = a->N * div_up(a->H + a->K, HEADS);
    size_t bytes = (size_t)(N_WARPS * a->Dh) * sizeof(float);
    if (back)
        backward_kernel<T, wide<T>(), G, LAST><<<(unsigned)sum_blocks(a->N), THREADS, bytes, mt_cuda_raw(s)>>>(*a);
    else
        forward_kernel<T, wide<T>(), G, LAST><<<(unsigned)div_up(groups, THREADS / G), THREADS, 0, mt_cuda_raw(s)>>>(*a);
}

/* With heads of 2 G vectors. */
template <typename T, int G, bool LAST> static void by_vectors(mt_stream *s, const mt_qk_prepare *a, bool back)
{
    enum { FEW = 512 }; /* threads that may have many registers */
    if (!a->whole)
        usual<T, G, LAST>(s, a, back);
    else if (whole_threads<T>(a) <= FEW)
        whole<T, G, LAST, FEW>(s, a, back);
    else
        whole<T, G, LAST, 32 * MOST_WARPS>(s, a, back);
}

template <typename T, bool LAST> static void run(mt_stream *s, const mt_qk_prepare *a, bool back)
{
    bool fits = vectors_fit<T>(a, back) && (has_usual_norm(a) || has_whole_norms<T>(a));
    int64_t heads = a->H + a->K, n_weights = (a->whole || a->own_weights ? heads : 2) * a->Dh;
    size_t bytes = (size_t)(4 * heads) * sizeof(float);
    if (fits && a->Dh == 64)
        by_vectors<T, 64 / 2 / wide<T>(), LAST>(s, a, back);
    else if (fits && a->Dh == 128)
        by_vectors<T, 128 / 2 / wide<T>(), LAST>(s, a, back);
    else if (fits)
        by_vectors<T, 256 / 2 / wide<T>(), LAST>(s, a, back);
    else if (back)
        any_backward_kernel<T, LAST><<<(unsigned)sum_blocks(a->N), THREADS, bytes, mt_cuda_raw(s)>>>(*a, n_weights);
    else
        any_forward_kernel<T, LAST><<<(unsigned)a->N, THREADS, bytes, mt_cuda_raw(s)>>>(*a);
}

template <typename T> static void run_in_order(mt_stream *s, const mt_qk_prepare *a, bool back)
{
    if (a->norm_last)
        run<T, true>(s, a, back);
    else
        run<T, false>(s, a, back);
}

mt_rc mt__qk_prepare_norm_fwd(mt_stream *s, const mt_qk_prepare *a, mt_err *err)
{
    if (a->t == MT_DTYPE_BF16)
        run_in_order<bf16>(s, a, false);
    else
        run_in_order<float>(s, a, false);
    return mt__cuda_launched(s, "rope with norms", err);
}

mt_rc mt__qk_prepare_norm_bwd(mt_stream *s, const mt_qk_prepare *a, mt_err *err)
{
    bool each = a->whole || a->own_weights;
    int64_t n_q = (each ? a->H : 1) * a->Dh, n_k = (each ? a->K : 1) * a->Dh, blocks = sum_blocks(a->N);
    const float *shares = (const float *)a->scratch;
    if (a->t == MT_DTYPE_BF16)
        run_in_order<bf16>(s, a, true);
    else
        run_in_order<float>(s, a, true);
    MT_TRY(mt__cuda_launched(s, "rope with norms, backward", err));
    if (a->dwq) MT_TRY(mt__sum_rows_cuda(s, a->dwq, shares, blocks, n_q, n_q + n_k, err));
    return a->dwk ? mt__sum_rows_cuda(s, a->dwk, shares + n_q, blocks, n_k, n_q + n_k, err) : MT_OK;
}
