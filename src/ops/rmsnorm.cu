/* rmsnorm.cu - y = w * xh (+ b) (+ add), xh = (x - c) * r, r = 1 / sqrt(mean((x - c)^2) + eps); c is 0, or mean(x) when centered.
 * Backward, with u = w * dy:  dx (+)= r * (u - xh * mean(u * xh) (- mean(u) when centered)),  dw += sum over rows of dy * xh,
 * db += sum over rows of dy.
 *
 * Shapes: x, y, add, dy, dx [N, D]; w, b, dw, db [D]; rstd [N].  Bytes moved: every row once.
 * One block per row forward: a thread keeps V vectors of W elements of it in registers.  Backward gives a block many rows, so that
 * each thread can add its own columns' share of dw and db in registers, and brings the next row in while this one's sums meet;
 * the shares are added in order by a second kernel. */
#include "ops/ops_cuda.cuh"

/* The sums of N numbers over the block, by one barrier: calls take turns between two halves of `of_warp`. */
template <int N> __device__ __forceinline__ void block_sums(float (&x)[N], float (&of_warp)[2][N][32], int turn)
{
    int n_warps = (int)blockDim.x / 32, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int n = 0; n < N; n++) {
        x[n] = warp_sum(x[n]);
        if (lane == 0) of_warp[turn & 1][n][warp] = x[n];
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; n++) x[n] = warp_sum(lane < n_warps ? of_warp[turn & 1][n][lane] : 0.0f);
}

/* A thread's share of a row: vectors threadIdx.x, threadIdx.x + blockDim.x, ... of W elements.  Past the end: zeros. */
template <typename T, int W, int V> struct share {
    vec<T, W> v[V];
};

template <int W> __device__ __forceinline__ int column(int k) { return ((int)threadIdx.x + k * (int)blockDim.x) * W; }

template <typename T, int W, int V> __device__ __forceinline__ share<T, W, V> load_share(const T *row, int D)
{
    share<T, W, V> s;
#pragma unroll
    for (int k = 0; k < V; k++) {
        if (column<W>(k) < D)
            s.v[k] = load<T, W>(row + column<W>(k));
        else
#pragma unroll
            for (int e = 0; e < W; e++) s.v[k].at[e] = from_f32<T>(0.0f);
    }
    return s;
}

template <int V> constexpr int most_threads() { return V <= 4 ? 512 : 1024; }

template <typename T, int W, int V, bool CENTERED>
__global__ void __launch_bounds__((most_threads<V>())) forward_kernel(mt_rmsnorm a)
{
    __shared__ float of_warp[2][1][32];
    int64_t base = (int64_t)blockIdx.x * a.D;
    int D = (int)a.D;
    share<T, W, V> x = load_share<T, W, V>((const T *)a.x + base, D);
    float sum[1] = { 0 }, c = 0, one = a.one_plus ? 1.0f : 0.0f;
    if (CENTERED) {
#pragma unroll
        for (int k = 0; k < V; k++)
#pragma unroll
            for (int e = 0; e < W; e++) sum[0] += to_f32(x.v[k].at[e]);
        block_sums<1>(sum, of_warp, 1);
        c = sum[0] / (float)D;
        sum[0] = 0;
    }
#pragma unroll
    for (int k = 0; k < V; k++)
#pragma unroll
        for (int e = 0; e < W; e++) {
            float v = to_f32(x.v[k].at[e]) - c;
            if (!CENTERED || column<W>(k) < D) sum[0] += v * v;
        }
    block_sums<1>(sum, of_warp, 0);
    float r = rsqrtf(sum[0] / (float)D + a.eps);
    if (threadIdx.x == 0) a.rstd[blockIdx.x] = r;
#pragma unroll
    for (int k = 0; k < V; k++) {
        int d = column<W>(k);
        if (d >= D) break;
        vec<T, W> w = load<T, W>((const T *)a.w + d), b = w, add = w, y;
        if (a.b) b = load<T, W>((const T *)a.b + d);
        if (a.add) add = load<T, W>((const T *)a.add + base + d);
#pragma unroll
        for (int e = 0; e < W; e++) {
            float f = (to_f32(x.v[k].at[e]) - c) * r * (to_f32(w.at[e]) + one);
            if (a.b) f += to_f32(b.at[e]);
            if (a.add) f += to_f32(add.at[e]);
            y.at[e] = from_f32<T>(f);
        }
        store<T, W>((T *)a.y + base + d, y);
    }
}

template <int W, int V> __device__ __forceinline__ void store_sums(float *dst, const float (&sums)[V][W], int D)
{
#pragma unroll
    for (int k = 0; k < V; k++)
#pragma unroll
        for (int e = 0; e < W; e++)
            if (column<W>(k) < D) dst[column<W>(k) + e] = sums[k][e];
}

/* What backward reads of a row. */
template <typename T, int W, int V> struct row_share {
    share<T, W, V> x, dy, old;
    float r;
};

template <typename T, int W, int V> __device__ __forceinline__ row_share<T, W, V> load_row(const mt_rmsnorm &a, int64_t i)
{
    row_share<T, W, V> row;
    row.x = load_share<T, W, V>((const T *)a.x + i * a.D, (int)a.D);
    row.dy = load_share<T, W, V>((const T *)a.dy + i * a.D, (int)a.D);
    if (a.dx_add) row.old = load_share<T, W, V>((const T *)a.dx + i * a.D, (int)a.D);
    row.r = a.rstd[i];
    return row;
}

/* Rows a block takes: twice as many where there are enough blocks still. */
static int rows_per_block(int64_t N) { return N > 8192 ? 2 * SUM_ROWS : SUM_ROWS; }

/* DB: there is a bias to train. */
template <typename T, int W, int V, bool CENTERED, bool DB>
__global__ void __launch_bounds__((most_threads<V>())) backward_kernel(mt_rmsnorm a, int n_rows)
{
    __shared__ float of_warp[2][1][32], of_warp2[2][2][32];
    int D = (int)a.D;
    float one = a.one_plus ? 1.0f : 0.0f, dw[V][W] = {}, db[DB ? V : 1][W] = {};
    int64_t from = (int64_t)blockIdx.x * n_rows, to = from + n_rows < a.N ? from + n_rows : a.N;
    /* Loads come back in order, so one that hits the cache waits for those before it: while the next row is on its way nothing else may be
     * asked for, and the weights are held, too.  Where registers are too few for that, neither is. */
    constexpr bool AHEAD = V <= 2;
    share<T, W, V> held;
    row_share<T, W, V> next;
    if (AHEAD) held = load_share<T, W, V>((const T *)a.w, D);
    if (AHEAD) next = load_row<T, W, V>(a, from);
    for (int64_t i = from; i < to; i++) {
        row_share<T, W, V> row = AHEAD ? next : load_row<T, W, V>(a, i);
        const share<T, W, V> &x = row.x, &dy = row.dy, &old = row.old;
        if (AHEAD && i + 1 < to) next = load_row<T, W, V>(a, i + 1);
        float r = row.r, c = 0, sums[2] = { 0, 0 }; /* of u * xh and, centered, of u */
        if (CENTERED) {
            float sum[1] = { 0 };
#pragma unroll
            for (int k = 0; k < V; k++)
#pragma unroll
                for (int e = 0; e < W; e++) sum[0] += to_f32(x.v[k].at[e]);
            block_sums<1>(sum, of_warp, (int)i);
            c = sum[0] / (float)D;
        }
#pragma unroll
        for (int k = 0; k < V; k++) {
            if (column<W>(k) >= D) break;
            vec<T, W> w = AHEAD ? held.v[k] : load<T, W>((const T *)a.w + column<W>(k));
#pragma unroll
            for (int e = 0; e < W; e++) {
                float xh = (to_f32(x.v[k].at[e]) - c) * r, g = to_f32(dy.v[k].at[e]), u = (to_f32(w.at[e]) + one) * g;
                sums[0] += u * xh;
                sums[1] += u;
                dw[k][e] += g * xh;
                if (DB) db[k][e] += g;
            }
        }
        if (CENTERED) {
            block_sums<2>(sums, of_warp2, (int)i);
        } else {
            float sum[1] = { sums[0] };
            block_sums<1>(sum, of_warp, (int)i);
            sums[0] = sum[0];
        }
        float mean = sums[0] / (float)D, mean_u = CENTERED ? sums[1] / (float)D : 0.0f;
#pragma unroll
        for (int k = 0; k < V; k++) {
            int d = column<W>(k);
            if (d >= D) break;
            vec<T, W> w = AHEAD ? held.v[k] : load<T, W>((const T *)a.w + d), out;
#pragma unroll
            for (int e = 0; e < W; e++) {
                float xh = (to_f32(x.v[k].at[e]) - c) * r;
                float f = r * ((to_f32(w.at[e]) + one) * to_f32(dy.v[k].at[e]) - xh * mean - mean_u);
                out.at[e] = from_f32<T>(a.dx_add ? f + to_f32(old.v[k].at[e]) : f);
            }
            store<T, W>((T *)a.dx + i * D + d, out);
        }
    }
    float *shares = (float *)a.scratch;
    if (a.dw) store_sums<W, V>(shares + (int64_t)blockIdx.x * D, dw, D);
    if constexpr (DB) store_sums<W, V>(shares + ((int64_t)gridDim.x + blockIdx.x) * D, db, D);
}

template <typename T, int W, int V> static void launch(mt_stream *s, const mt_rmsnorm *a, bool back)
{
    unsigned threads = (unsigned)mt_round_up((size_t)div_up(a->D, W * V), 32);
    void (*forward)(mt_rmsnorm) = a->centered ? forward_kernel<T, W, V, true> : forward_kernel<T, W, V, false>;
    void (*backward)(mt_rmsnorm, int) = a->centered ? (a->db ? backward_kernel<T, W, V, true, true> : backward_kernel<T, W, V, true, false>)
                                               : (a->db ? backward_kernel<T, W, V, false, true> : backward_kernel<T, W, V, false, false>);
    if (back)
        backward<<<(unsigned)div_up(a->N, rows_per_block(a->N)), threads, 0, mt_cuda_raw(s)>>>(*a, rows_per_block(a->N));
    else
        forward<<<(unsigned)a->N, threads, 0, mt_cuda_raw(s)>>>(*a);
}

static bool is_aligned_for(const mt_rmsnorm *a, bool back)
{
    bool ok = is_aligned(a->x, 16) && is_aligned(a->w, 16);
    return ok && (back ? is_aligned(a->dx, 16) && is_aligned(a->dy, 16)
                       : is_aligned(a->y, 16) && is_aligned(a->add, 16) && is_aligned(a->b, 16));
}

enum { MAX_WIDTH = 32 * 1024 };

template <typename T> static void by_width(mt_stream *s, const mt_rmsnorm *a, bool back)
{
    int64_t vectors = a->D / wide<T>();
    if (a->D % wide<T>() || !is_aligned_for(a, back) || vectors > 4 * 512)
        launch<T, 1, 32>(s, a, back);
    else if (vectors <= 256)
        launch<T, wide<T>(), 1>(s, a, back);
    else if (vectors <= 2 * 512)
        launch<T, wide<T>(), 2>(s, a, back);
    else
        launch<T, wide<T>(), 4>(s, a, back);
}

static mt_rc run(mt_stream *s, const mt_rmsnorm *a, bool back, mt_err *err)
{
    if (a->D > MAX_WIDTH) return mt_fail(err, MT_EUNSUPPORTED, "norms over %lld numbers, at most %d", (long long)a->D, (int)MAX_WIDTH);
    if (a->t == MT_DTYPE_BF16)
        by_width<bf16>(s, a, back);
    else
        by_width<float>(s, a, back);
    return mt__cuda_launched(s, back ? "rmsnorm backward" : "rmsnorm", err);
}

mt_rc mt__rmsnorm_fwd_cuda(mt_stream *s, const mt_rmsnorm *a, mt_err *err)
{
    return a->N == 0 ? MT_OK : run(s, a, false, err); /* 0: the head of a micro-batch that trains no row */
}

mt_rc mt__rmsnorm_bwd_cuda(mt_stream *s, const mt_rmsnorm *a, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    MT_TRY(run(s, a, true, err));
    const float *shares = (const float *)a->scratch;
    int64_t blocks = div_up(a->N, rows_per_block(a->N));
    if (a->dw) MT_TRY(mt__sum_rows_cuda(s, a->dw, shares, blocks, a->D, a->D, err));
    return a->db ? mt__sum_rows_cuda(s, a->db, shares + blocks * a->D, blocks, a->D, a->D, err) : MT_OK;
}
