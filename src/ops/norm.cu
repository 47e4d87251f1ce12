/* norm.cu - y = w * xh (+ b) (+ add), xh = (x - c) * r, r = 1 / sqrt(mean((x - c)^2) + eps); c is 0, or mean(x) when centered.
 * Backward, with u = w * dy:  dx (+)= r * (u - xh * mean(u * xh) (- mean(u) when centered)),  dw += sum over rows of dy * xh,
 * db += sum over rows of dy.
 *
 * Shapes: x, y, add, dy, dx [N, D], rows of x and dx in wider ones; w, b, dw, db [D]; rstd [N].  Bytes moved: every row once.
 * Forward: a warp, or where it is long a block, has a row; a thread keeps V vectors of W elements of it in registers.  Backward gives a
 * block many rows, so that each thread can add its own columns' share of dw and db in registers, and brings the next rows in while this
 * one's sums meet; the shares are added in order by a second kernel. */
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

/* W weights from column d on; without weights: all 1. */
template <typename T, int W> __device__ __forceinline__ vec<T, W> weights_at(const mt_norm &a, int d)
{
    vec<T, W> w;
    if (a.w) return load<T, W>((const T *)a.w + d);
#pragma unroll
    for (int e = 0; e < W; e++) w.at[e] = from_f32<T>(1.0f);
    return w;
}

/* A thread's share of a block's row: vectors threadIdx.x, threadIdx.x + blockDim.x, ... of W elements.  Past the end: zeros. */
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
__global__ void __launch_bounds__((most_threads<V>())) forward_kernel(mt_norm a)
{
    __shared__ float of_warp[2][1][32];
    int64_t base = (int64_t)blockIdx.x * a.D;
    int D = (int)a.D;
    share<T, W, V> x = load_share<T, W, V>((const T *)a.x + (int64_t)blockIdx.x * a.ldx, D);
    float sum[1] = { 0 }, c = 0, one = a.w && a.one_plus ? 1.0f : 0.0f;
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
        vec<T, W> w = weights_at<T, W>(a, d), b = w, add = w, y;
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

/* -- forward, a warp a row --------------------------------------------------------------------------- */

/* 16 bytes in memory order: separate bf16s would take a register each. */
typedef vec<uint32_t, 4> raw;

template <typename T> __device__ __forceinline__ raw load_raw(const T *p) { return *(const raw *)p; }

template <typename T> __device__ __forceinline__ void unpack(float (&x)[wide<T>()], raw r)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (sizeof(T) == 4) {
            x[i] = __uint_as_float(r.at[i]);
        } else {
            x[2 * i % wide<T>()] = __uint_as_float(r.at[i] << 16);
            x[(2 * i + 1) % wide<T>()] = __uint_as_float(r.at[i] & 0xffff0000u);
        }
    }
}

/* The same bits, hidden from the compiler: it would otherwise keep the floats made from them between uses. */
__device__ __forceinline__ void forget(raw &r) { asm volatile("" : "+r"(r.at[0]), "+r"(r.at[1]), "+r"(r.at[2]), "+r"(r.at[3])); }

enum { WARP_ROWS = 8 };

template <typename T, int V, bool CENTERED>
__global__ void __launch_bounds__(32 * WARP_ROWS, V <= 4 ? 4 : 3) warp_forward_kernel(mt_norm a)
{
    const int W = wide<T>();
    int64_t row = (int64_t)blockIdx.x * WARP_ROWS + threadIdx.x / 32, base = row * a.D;
    int D = (int)a.D, first = (int)threadIdx.x % 32 * W;
    if (row >= a.N) return;
    raw x[V];
    float v[W], sum = 0, c = 0, one = a.w && a.one_plus ? 1.0f : 0.0f;
#pragma unroll
    for (int k = 0; k < V; k++)
        x[k] = first + 32 * W * k < D ? load_raw((const T *)a.x + row * a.ldx + first + 32 * W * k) : raw{ { 0, 0, 0, 0 } };
    if (CENTERED) {
#pragma unroll
        for (int k = 0; k < V; k++) {
            unpack<T>(v, x[k]);
#pragma unroll
            for (int e = 0; e < W; e++) sum += v[e];
        }
        c = warp_sum(sum) / (float)D;
        sum = 0;
    }
#pragma unroll
    for (int k = 0; k < V; k++) {
        if (CENTERED) forget(x[k]);
        unpack<T>(v, x[k]);
#pragma unroll
        for (int e = 0; e < W; e++)
            if (!CENTERED || first + 32 * W * k < D) sum += (v[e] - c) * (v[e] - c);
    }
    float r = rsqrtf(warp_sum(sum) / (float)D + a.eps);
    if (first == 0) a.rstd[row] = r;
#pragma unroll
    for (int k = 0; k < V; k++) {
        int d = first + 32 * W * k;
        if (d >= D) break;
        float w[W], more[W];
        vec<T, W> y;
        forget(x[k]);
        unpack<T>(v, x[k]);
        if (a.w) {
            unpack<T>(w, load_raw((const T *)a.w + d));
        } else {
#pragma unroll
            for (int e = 0; e < W; e++) w[e] = 1.0f;
        }
#pragma unroll
        for (int e = 0; e < W; e++) v[e] = (v[e] - c) * r * (w[e] + one);
        if (a.b) unpack<T>(more, load_raw((const T *)a.b + d));
#pragma unroll
        for (int e = 0; e < W; e++)
            if (a.b) v[e] += more[e];
        if (a.add) unpack<T>(more, load_raw((const T *)a.add + base + d));
#pragma unroll
        for (int e = 0; e < W; e++) y.at[e] = from_f32<T>(a.add ? v[e] + more[e] : v[e]);
        store<T, W>((T *)a.y + base + d, y);
    }
}

/* -- backward -------------------------------------------------------------------------------------- */

template <int W, int V> __device__ __forceinline__ void store_sums(float *dst, const float (&sums)[V][W], int D)
{
#pragma unroll
    for (int k = 0; k < V; k++)
#pragma unroll
        for (int e = 0; e < W; e++)
            if (column<W>(k) < D) dst[column<W>(k) + e] = sums[k][e];
}

/* The arrays that backward reads of a row, and the ring they pass through: rows in transit from memory to shared memory, each
 * thread's vectors in its own places, so that no thread waits for another.  STAGES - 1 rows are in transit while one is
 * processed. */
enum { STAGES = 3, MOST_ROWS = 2 * SUM_ROWS };

template <typename T, int W, int V> struct row_share {
    share<T, W, V> x, dy, old;
};

template <typename T, int W, int V> __device__ __forceinline__ T *ring_place(void *ring, int64_t row, int which, int k)
{
    return (T *)ring + (int64_t)((((int)(row % STAGES) * 3 + which) * V + k) * (int)blockDim.x + (int)threadIdx.x) * W;
}

__device__ __forceinline__ void copy_late(void *dst, const void *src)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(dst)), "l"(src));
}

template <typename T, int W, int V> __device__ __forceinline__ void fetch_row(const mt_norm &a, void *ring, int64_t i, int64_t to)
{
    asm volatile("" ::: "memory"); /* no read of the row that was here before moves past this */
    if (i < to) {
#pragma unroll
        for (int k = 0; k < V; k++) {
            int d = column<W>(k);
            if (d >= a.D) break;
            copy_late(ring_place<T, W, V>(ring, i, 0, k), (const T *)a.x + i * a.ldx + d);
            copy_late(ring_place<T, W, V>(ring, i, 1, k), (const T *)a.dy + i * a.D + d);
            if (a.dx_add) copy_late(ring_place<T, W, V>(ring, i, 2, k), (const T *)a.dx + i * a.ld_dx + d);
        }
    }
    asm volatile("cp.async.commit_group;");
}

__device__ __forceinline__ void await_row(void) { asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory"); }

/* One of a row's arrays, out of the ring. */
template <typename T, int W, int V> __device__ __forceinline__ share<T, W, V> take_share(void *ring, int64_t i, int which, int D)
{
    share<T, W, V> s = {}; /* past the end: zeros */
#pragma unroll
    for (int k = 0; k < V; k++) {
        if (column<W>(k) >= D) break;
        s.v[k] = load<T, W>(ring_place<T, W, V>(ring, i, which, k));
    }
    return s;
}

/* Without a ring: straight from memory. */
template <typename T, int W, int V> __device__ __forceinline__ row_share<T, W, V> load_row(const mt_norm &a, int64_t i)
{
    row_share<T, W, V> row;
    row.x = load_share<T, W, V>((const T *)a.x + i * a.ldx, (int)a.D);
    row.dy = load_share<T, W, V>((const T *)a.dy + i * a.D, (int)a.D);
    if (a.dx_add) row.old = load_share<T, W, V>((const T *)a.dx + i * a.ld_dx, (int)a.D);
    return row;
}

/* Rows a block takes: twice as many where there are enough blocks still, to fill the processors with rows on their way. */
static int rows_per_block(const mt_norm *a) { return a->N > 8192 && a->D >= 2048 ? 2 * SUM_ROWS : SUM_ROWS; }

/* RING: rows pass through the ring, which takes vectors of 16 bytes.  DB: there is a bias to train. */
template <typename T, int W, int V, bool RING, bool CENTERED, bool DB>
__global__ void __launch_bounds__((most_threads<V>())) backward_kernel(mt_norm a, int n_rows)
{
    __shared__ float of_warp[2][1][32], of_warp2[2][2][32];
    int D = (int)a.D;
    float one = a.w && a.one_plus ? 1.0f : 0.0f, dw[V][W] = {}, db[DB ? V : 1][W] = {};
    int64_t from = (int64_t)blockIdx.x * n_rows, to = from + n_rows < a.N ? from + n_rows : a.N;
    constexpr bool AGAIN = RING && V > 2; /* too much for registers: each use reads the ring, where the row stays for its turn */
    extern __shared__ __align__(16) unsigned char ring[];
    __shared__ float rstd[MOST_ROWS];
    share<T, W, V> held;
    if ((int)threadIdx.x < to - from) rstd[threadIdx.x] = a.rstd[from + threadIdx.x];
    for (int k = (int)blockDim.x + (int)threadIdx.x; k < to - from; k += (int)blockDim.x) rstd[k] = a.rstd[from + k];
    if constexpr (RING) {
#pragma unroll
        for (int k = 0; k < V; k++)
            if (column<W>(k) < D) held.v[k] = weights_at<T, W>(a, column<W>(k));
        for (int k = 0; k < STAGES - 1; k++) fetch_row<T, W, V>(a, ring, from + k, to);
    }
    __syncthreads();
    for (int64_t i = from; i < to; i++) {
        row_share<T, W, V> row; /* not used if each use reads the ring */
        if constexpr (RING) {
            fetch_row<T, W, V>(a, ring, i + STAGES - 1, to);
            await_row();
            if constexpr (!AGAIN)
                row = { take_share<T, W, V>(ring, i, 0, D), take_share<T, W, V>(ring, i, 1, D),
                        take_share<T, W, V>(ring, i, 2, D) };
        } else {
            row = load_row<T, W, V>(a, i);
        }
        auto at = [&](const share<T, W, V> &taken, int which, int k) {
            if constexpr (AGAIN)
                return load<T, W>(ring_place<T, W, V>(ring, i, which, k));
            else
                return taken.v[k];
        };
        float r = rstd[i - from], c = 0, sums[2] = { 0, 0 }; /* of u * xh and, centered, of u */
        if (CENTERED) {
            float sum[1] = { 0 };
#pragma unroll
            for (int k = 0; k < V; k++) {
                if (column<W>(k) >= D) break;
                vec<T, W> x = at(row.x, 0, k);
#pragma unroll
                for (int e = 0; e < W; e++) sum[0] += to_f32(x.at[e]);
            }
            block_sums<1>(sum, of_warp, (int)i);
            c = sum[0] / (float)D;
        }
#pragma unroll
        for (int k = 0; k < V; k++) {
            if (column<W>(k) >= D) break;
            vec<T, W> w = RING ? held.v[k] : weights_at<T, W>(a, column<W>(k)), x = at(row.x, 0, k), dy = at(row.dy, 1, k);
#pragma unroll
            for (int e = 0; e < W; e++) {
                float xh = (to_f32(x.at[e]) - c) * r, g = to_f32(dy.at[e]), u = (to_f32(w.at[e]) + one) * g;
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
            vec<T, W> w = RING ? held.v[k] : weights_at<T, W>(a, d), x = at(row.x, 0, k), dy = at(row.dy, 1, k), old = {}, out;
            if (a.dx_add) old = at(row.old, 2, k);
#pragma unroll
            for (int e = 0; e < W; e++) {
                float xh = (to_f32(x.at[e]) - c) * r;
                float f = r * ((to_f32(w.at[e]) + one) * to_f32(dy.at[e]) - xh * mean - mean_u);
                out.at[e] = from_f32<T>(a.dx_add ? f + to_f32(old.at[e]) : f);
            }
            store<T, W>((T *)a.dx + i * a.ld_dx + d, out);
        }
    }
    float *shares = (float *)a.scratch;
    if (a.dw) store_sums<W, V>(shares + (int64_t)blockIdx.x * D, dw, D);
    if constexpr (DB) store_sums<W, V>(shares + ((int64_t)gridDim.x + blockIdx.x) * D, db, D);
}

static unsigned threads_for(int64_t D, int per_thread) { return (unsigned)mt_round_up((size_t)div_up(D, per_thread), 32); }

/* Shared memory of a block's ring. */
static size_t ring_bytes(int64_t D, int W, int V) { return (size_t)(STAGES * 3 * V) * threads_for(D, W * V) * 16; }

template <typename T, int W, int V> static void forward(mt_stream *s, const mt_norm *a)
{
    void (*kernel)(mt_norm) = a->centered ? forward_kernel<T, W, V, true> : forward_kernel<T, W, V, false>;
    kernel<<<(unsigned)a->N, threads_for(a->D, W * V), 0, mt_cuda_raw(s)>>>(*a);
}

template <typename T, int V> static void warp_forward(mt_stream *s, const mt_norm *a)
{
    void (*kernel)(mt_norm) = a->centered ? warp_forward_kernel<T, V, true> : warp_forward_kernel<T, V, false>;
    kernel<<<(unsigned)div_up(a->N, WARP_ROWS), 32 * WARP_ROWS, 0, mt_cuda_raw(s)>>>(*a);
}

template <typename T, int W, int V, bool RING> static void backward(mt_stream *s, const mt_norm *a)
{
    static_assert(!RING || W * sizeof(T) == 16, "the ring takes vectors of 16 bytes");
    void (*const kernels[2][2])(mt_norm, int) = {
        { backward_kernel<T, W, V, RING, false, false>, backward_kernel<T, W, V, RING, false, true> },
        { backward_kernel<T, W, V, RING, true, false>, backward_kernel<T, W, V, RING, true, true> },
    };
    void (*kernel)(mt_norm, int) = kernels[a->centered][a->db != NULL];
    size_t bytes = RING ? ring_bytes(a->D, W, V) : 0;
    if (bytes > 48 << 10) cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    kernel<<<(unsigned)div_up(a->N, rows_per_block(a)), threads_for(a->D, W * V), bytes, mt_cuda_raw(s)>>>(*a, rows_per_block(a));
}

static bool is_aligned_for(const mt_norm *a, bool back)
{
    bool ok = is_aligned(a->x, 16) && is_aligned(a->w, 16);
    return ok && (back ? is_aligned(a->dx, 16) && is_aligned(a->dy, 16)
                       : is_aligned(a->y, 16) && is_aligned(a->add, 16) && is_aligned(a->b, 16));
}

enum { MAX_WIDTH = 32 * 1024 };

template <typename T> static bool is_whole(const mt_norm *a, bool back)
{
    const bool rows = a->D % wide<T>() == 0 && a->ldx % wide<T>() == 0 && (!back || a->ld_dx % wide<T>() == 0);
    return rows && is_aligned_for(a, back) && a->D / wide<T>() <= 4 * 512;
}

template <typename T> static void forward_by_width(mt_stream *s, const mt_norm *a)
{
    int64_t vectors = a->D / wide<T>();
    if (!is_whole<T>(a, false))
        forward<T, 1, 32>(s, a);
    else if (vectors <= 4 * 32)
        warp_forward<T, 4>(s, a);
    else if (vectors <= 8 * 32)
        warp_forward<T, 8>(s, a);
    else if (vectors <= 2 * 512)
        forward<T, wide<T>(), 2>(s, a);
    else
        forward<T, wide<T>(), 4>(s, a);
}

template <typename T> static void backward_by_width(mt_stream *s, const mt_norm *a)
{
    const int W = wide<T>();
    int64_t vectors = a->D / W;
    size_t shared = mt_cuda_device_of(s)->shared_bytes - 2048; /* less what a block has besides the ring */
    if (!is_whole<T>(a, true))
        backward<T, 1, 32, false>(s, a);
    else if (vectors <= 256)
        backward<T, W, 1, true>(s, a);
    else if (vectors <= 2 * 512 && ring_bytes(a->D, W, 2) <= shared)
        backward<T, W, 2, true>(s, a);
    else if (ring_bytes(a->D, W, 4) <= shared)
        backward<T, W, 4, true>(s, a);
    else
        backward<T, W, 4, false>(s, a);
}

template <typename T> static void by_width(mt_stream *s, const mt_norm *a, bool back)
{
    if (back)
        backward_by_width<T>(s, a);
    else
        forward_by_width<T>(s, a);
}

static mt_rc run(mt_stream *s, const mt_norm *a, bool back, mt_err *err)
{
    if (a->D > MAX_WIDTH)
        return mt_fail(err, MT_EUNSUPPORTED, "norms over %lld numbers, at most %d", (long long)a->D, (int)MAX_WIDTH);
    mt_norm b = *a;
    if (!b.ldx) b.ldx = b.D;
    if (!b.ld_dx) b.ld_dx = b.D;
    if (b.t == MT_DTYPE_BF16)
        by_width<bf16>(s, &b, back);
    else
        by_width<float>(s, &b, back);
    return mt__cuda_launched(s, back ? "norm backward" : "norm", err);
}

mt_rc mt__norm_fwd_cuda(mt_stream *s, const mt_norm *a, mt_err *err)
{
    return a->N == 0 ? MT_OK : run(s, a, false, err); /* 0: the head of a micro-batch that trains no row */
}

mt_rc mt__norm_bwd_cuda(mt_stream *s, const mt_norm *a, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    MT_TRY(run(s, a, true, err));
    const float *shares = (const float *)a->scratch;
    int64_t blocks = div_up(a->N, rows_per_block(a));
    if (a->dw) MT_TRY(mt__sum_rows_cuda(s, a->dw, shares, blocks, a->D, a->D, err));
    return a->db ? mt__sum_rows_cuda(s, a->db, shares + blocks * a->D, blocks, a->D, a->D, err) : MT_OK;
}
