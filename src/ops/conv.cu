/* conv.cu - causal depthwise convolution with silu, by documents: s[t] = sum over i < width of w[width - 1 - i] x[t - i],
 * y = silu(s).  Backward: ds = dy silu'(s), dx[t] = sum over i of w[width - 1 - i] ds[t + i], dw[width - 1 - i] += ds[t] x[t -
 * i]; x and ds of other documents count as zeros.
 *
 * Shapes: x, y, dy, dx [N, C]; w, dw [C, width].  Bytes moved: forward 2 N C elements, backward 3 N C.
 * A thread has V adjacent channels of a block of rows and walks down, the last `width` inputs in registers.  Backward also keeps
 * the gradients of the last `width` rows, which the rows after them still add to.  Its shares of dw, one for each block of rows,
 * are added in order by a second kernel. */
#include "ops/ops_cuda.cuh"

enum { THREADS = 128, ROWS = 64, BATCH = 4 }; /* BATCH: rows that are on their way at once */

template <typename T, int V> struct channels {
    float at[V];
};

template <typename T, int V> __device__ __forceinline__ channels<T, V> read(const void *p, int64_t at)
{
    channels<T, V> c;
    vec<T, V> v = load<T, V>((const T *)p + at);
#pragma unroll
    for (int e = 0; e < V; e++) c.at[e] = to_f32(v.at[e]);
    return c;
}

template <typename T, int V> __device__ __forceinline__ void write(void *p, int64_t at, const float (&x)[V])
{
    vec<T, V> v;
#pragma unroll
    for (int e = 0; e < V; e++) v.at[e] = from_f32<T>(x[e]);
    store<T, V>((T *)p + at, v);
}

/* BATCH rows as they are in memory; zeros from row `end` on. */
template <typename T, int V> struct rows {
    vec<T, V> v[BATCH];

    __device__ __forceinline__ void load(const void *p, int64_t ld, int64_t first, int64_t end, int64_t c)
    {
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            v[n] = {};
            if (first + n < end) v[n] = ::load<T, V>((const T *)p + (first + n) * ld + c);
        }
    }
    __device__ __forceinline__ channels<T, V> at(int n) const
    {
        channels<T, V> c;
#pragma unroll
        for (int e = 0; e < V; e++) c.at[e] = to_f32(v[n].at[e]);
        return c;
    }
};

/* The document of a row, and where it starts and ends. */
struct place {
    int64_t doc, start, end;
};

__device__ __forceinline__ place find(const int32_t *doc_start, int64_t n_docs, int64_t row)
{
    int64_t lo = 0, hi = n_docs - 1; /* the last document that starts at or before the row */
    while (lo < hi) {
        int64_t mid = (lo + hi + 1) / 2;
        if (doc_start[mid] <= row)
            lo = mid;
        else
            hi = mid - 1;
    }
    return { lo, doc_start[lo], doc_start[lo + 1] };
}

__device__ __forceinline__ void next_row(const int32_t *doc_start, place &p, int64_t row)
{
    while (row >= p.end) {
        p.doc++;
        p.start = p.end;
        p.end = doc_start[p.doc + 1];
    }
}

/* x[i]: input i rows before the current one.  w[i]: its weight. */
template <typename T, int V, int W> struct window {
    float x[W][V], w[W][V];

    __device__ __forceinline__ void open(const mt_conv &a, int64_t c)
    {
#pragma unroll
        for (int i = 0; i < W; i++)
#pragma unroll
            for (int e = 0; e < V; e++) {
                w[i][e] = to_f32(((const T *)a.w)[(c + e) * W + W - 1 - i]);
                x[i][e] = 0;
            }
    }
    __device__ __forceinline__ void push(const channels<T, V> &in)
    {
#pragma unroll
        for (int i = W - 1; i > 0; i--)
#pragma unroll
            for (int e = 0; e < V; e++) x[i][e] = x[i - 1][e];
#pragma unroll
        for (int e = 0; e < V; e++) x[0][e] = in.at[e];
    }
    /* Inputs from `rows` rows back on are another document's. */
    __device__ __forceinline__ void forget(int64_t rows)
    {
#pragma unroll
        for (int i = 1; i < W; i++)
#pragma unroll
            for (int e = 0; e < V; e++)
                if (i >= rows) x[i][e] = 0;
    }
    __device__ __forceinline__ float sum(int e) const
    {
        float s = 0;
#pragma unroll
        for (int i = W - 1; i >= 0; i--) s += w[i][e] * x[i][e];
        return s;
    }
};

/* The inputs before row `from`: from its own document, or else from the sequence's state. */
template <typename T, int V, int W>
__device__ __forceinline__ void look_back(const mt_cache_conv &a, window<T, V, W> &win, const place &p, int64_t from, int64_t c)
{
    int64_t past = a.state ? a.pos[p.start] : 0;
#pragma unroll
    for (int i = W - 1; i > 0; i--) {
        int64_t row = from - i, before = p.start - row;
        if (row >= p.start)
            win.push(read<T, V>(a.c.x, row * a.c.ldx + c));
        else if (before <= past)
            win.push(read<T, V>(a.state, ((int64_t)a.slot[p.doc] * (W - 1) + W - 1 - before) * a.c.C + c));
        else
            win.push(channels<T, V>{});
    }
}

template <typename T, int V, int W> __global__ void __launch_bounds__(THREADS) forward_kernel(mt_cache_conv a)
{
    int64_t c = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V, from = (int64_t)blockIdx.y * ROWS,
            to = from + ROWS < a.c.N ? from + ROWS : a.c.N;
    if (c >= a.c.C) return;
    place p = find(a.c.doc_start, a.c.n_docs, from);
    next_row(a.c.doc_start, p, from);
    window<T, V, W> win;
    win.open(a.c, c);
    look_back<T, V, W>(a, win, p, from, c);
    for (int64_t first = from; first < to; first += BATCH) {
        rows<T, V> x;
        x.load(a.c.x, a.c.ldx, first, to, c);
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            int64_t t = first + n;
            float y[V];
            if (t >= to) break;
            if (t >= p.end) {
                next_row(a.c.doc_start, p, t);
                look_back<T, V, W>(a, win, p, t, c);
            }
            win.push(x.at(n));
#pragma unroll
            for (int e = 0; e < V; e++) {
                float s = win.sum(e);
                y[e] = s / (1.0f + expf(-s));
            }
            write<T, V>(a.c.y, t * a.c.ldy + c, y);
        }
    }
}

template <typename T, int V, int W> __global__ void __launch_bounds__(THREADS) backward_kernel(mt_conv a)
{
    int64_t c = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V, from = (int64_t)blockIdx.y * ROWS,
            to = from + ROWS < a.N ? from + ROWS : a.N;
    if (c >= a.C) return;
    place p = find(a.doc_start, a.n_docs, from);
    next_row(a.doc_start, p, from);
    window<T, V, W> win;
    win.open(a, c);
    mt_cache_conv plain = { .c = a, .pos = nullptr, .slot = nullptr, .state = nullptr };
    look_back<T, V, W>(plain, win, p, from, c);
    float dx[W][V] = {}, dw[W][V] = {}; /* dx[i]: of the row i rows back, so far */
    for (int64_t first = from; first < to + W - 1; first += BATCH) {
        rows<T, V> x, dy;
        x.load(a.x, a.ldx, first, a.N, c);
        dy.load(a.dy, a.ldy, first, a.N, c);
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            int64_t t = first + n;
            float ds[V] = {};
            if (t >= to + W - 1) break;
            if (t < a.N) {
                next_row(a.doc_start, p, t);
                win.push(x.at(n));
                win.forget(t - p.start + 1);
#pragma unroll
                for (int e = 0; e < V; e++) {
                    float s = win.sum(e), sig = 1.0f / (1.0f + expf(-s));
                    ds[e] = dy.at(n).at[e] * sig * (1.0f + s * (1.0f - sig));
                }
            }
            int64_t so_far = t - p.start + 1; /* rows of this document */
#pragma unroll
            for (int i = W - 1; i > 0; i--)
#pragma unroll
                for (int e = 0; e < V; e++) dx[i][e] = i < so_far ? dx[i - 1][e] + win.w[i][e] * ds[e] : dx[i - 1][e];
#pragma unroll
            for (int e = 0; e < V; e++) dx[0][e] = win.w[0][e] * ds[e];
            if (t < to)
#pragma unroll
                for (int i = 0; i < W; i++)
#pragma unroll
                    for (int e = 0; e < V; e++) dw[i][e] += ds[e] * win.x[i][e];
            if (t - (W - 1) >= from) write<T, V>(a.dx, (t - (W - 1)) * a.ld_dx + c, dx[W - 1]);
        }
    }
    if (!a.dw) return;
    float *share = (float *)a.scratch + ((int64_t)blockIdx.y * a.C + c) * W;
#pragma unroll
    for (int e = 0; e < V; e++)
#pragma unroll
        for (int i = 0; i < W; i++) share[e * W + W - 1 - i] = dw[i][e];
}

/* The last inputs of each sequence become its state.  A thread has a channel, so it may replace what it has read. */
template <typename T> __global__ void keep_kernel(mt_cache_conv a)
{
    int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x, d = blockIdx.y, n = a.c.width - 1;
    int64_t start = a.c.doc_start[d], end = a.c.doc_start[d + 1];
    if (c >= a.c.C || start == end) return;
    T *state = (T *)a.state + (int64_t)a.slot[d] * n * a.c.C + c;
    int64_t have = a.pos[start] + end - start;
    for (int64_t i = 0; i < n; i++) { /* ascending: what row i becomes is never above it */
        int64_t back = n - i, row = end - back;
        if (back > have) continue;
        state[i * a.c.C] = row >= start ? ((const T *)a.c.x)[row * a.c.ldx + c] : state[(n - (start - row)) * a.c.C];
    }
}

template <typename T, int V, int W> static void launch(mt_stream *s, const mt_cache_conv *a, bool back)
{
    dim3 grid((unsigned)div_up(a->c.C, (int64_t)THREADS * V), (unsigned)div_up(a->c.N, ROWS));
    if (back)
        backward_kernel<T, V, W><<<grid, THREADS, 0, mt_cuda_raw(s)>>>(a->c);
    else
        forward_kernel<T, V, W><<<grid, THREADS, 0, mt_cuda_raw(s)>>>(*a);
}

template <typename T, int V> static void by_width(mt_stream *s, const mt_cache_conv *a, bool back)
{
    switch (a->c.width) {
    case 2: launch<T, V, 2>(s, a, back); break;
    case 3: launch<T, V, 3>(s, a, back); break;
    case 4: launch<T, V, 4>(s, a, back); break;
    case 5: launch<T, V, 5>(s, a, back); break;
    case 6: launch<T, V, 6>(s, a, back); break;
    case 7: launch<T, V, 7>(s, a, back); break;
    case 8: launch<T, V, 8>(s, a, back); break;
    }
}

/* Channels a thread takes at once where everything is aligned. */
enum { WIDE = 4 };

template <typename T> static bool is_whole(const mt_cache_conv *a, bool back)
{
    const mt_conv *c = &a->c;
    const size_t bytes = WIDE * sizeof(T);
    bool ok = c->C % WIDE == 0 && c->ldx % WIDE == 0 && c->ldy % WIDE == 0 && is_aligned(c->x, bytes);
    if (back) return ok && c->ld_dx % WIDE == 0 && is_aligned(c->dy, bytes) && is_aligned(c->dx, bytes);
    return ok && is_aligned(c->y, bytes) && is_aligned(a->state, bytes);
}

template <typename T> static void run_typed(mt_stream *s, const mt_cache_conv *a, bool back)
{
    if (is_whole<T>(a, back))
        by_width<T, WIDE>(s, a, back);
    else
        by_width<T, 1>(s, a, back);
}

static mt_rc run(mt_stream *s, const mt_cache_conv *a, bool back, mt_err *err)
{
    if (a->c.width < MT_CONV_LEAST || a->c.width > MT_CONV_MOST)
        return mt_fail(err, MT_EINTERNAL, "a convolution of width %lld: 2 to 8 are supported", (long long)a->c.width);
    if (a->c.N == 0) return MT_OK;
    if (a->c.t == MT_DTYPE_BF16)
        run_typed<bf16>(s, a, back);
    else
        run_typed<float>(s, a, back);
    return mt__cuda_launched(s, back ? "conv backward" : "conv", err);
}

mt_rc mt__conv_fwd_cuda(mt_stream *s, const mt_conv *a, mt_err *err)
{
    mt_cache_conv plain = { .c = *a, .pos = NULL, .slot = NULL, .state = NULL };
    return run(s, &plain, false, err);
}

mt_rc mt__conv_bwd_cuda(mt_stream *s, const mt_conv *a, mt_err *err)
{
    mt_cache_conv plain = { .c = *a, .pos = NULL, .slot = NULL, .state = NULL };
    MT_TRY(run(s, &plain, true, err));
    if (!a->dw || a->N == 0) return MT_OK;
    return mt__sum_rows_cuda(s, a->dw, (const float *)a->scratch, div_up(a->N, ROWS), a->C * a->width, a->C * a->width, err);
}

mt_rc mt__cache_conv_cuda(mt_stream *s, const mt_cache_conv *a, mt_err *err)
{
    MT_TRY(run(s, a, false, err));
    if (a->c.N == 0) return MT_OK;
    dim3 grid((unsigned)div_up(a->c.C, THREADS), (unsigned)a->c.n_docs);
    if (a->c.t == MT_DTYPE_BF16)
        keep_kernel<bf16><<<grid, THREADS, 0, mt_cuda_raw(s)>>>(*a);
    else
        keep_kernel<float><<<grid, THREADS, 0, mt_cuda_raw(s)>>>(*a);
    return mt__cuda_launched(s, "the state of conv", err);
}
