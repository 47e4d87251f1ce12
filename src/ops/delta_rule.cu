/* delta_rule.cu - the gated delta rule in chunks of 64 rows: the plain kernels, and what the fast ones share with them.
 *
 * In a chunk, with rows q_i, k_i (normed), v_i, gamma_i the sum of g up to row i, D_ij = exp(gamma_i - gamma_j) for i >= j, and S
 * the state before it:
 *     A = strictly lower (diag(beta) K K' o D),  T = (I + A)^-1,  P = lower (Q K' o D)
 *     W = T diag(beta e^gamma) K,  V^ = T diag(beta) V - W S       what each row adds to the state
 *     O = diag(e^gamma) Q S + P V^,   S' = e^gamma_C S + (diag(e^(gamma_C - gamma)) K)' V^
 * Only exponentials of numbers below 0 are formed.  Backward, from dO and the gradient dS' of the state after the chunk:
 *     dV^ = P' dO + diag(e^(gamma_C - gamma)) K dS',   dR = T' dV^,   dA = -strictly lower (dR V^'),   dP = lower (dO V^')
 *     dS = e^gamma_C dS' + (diag(e^gamma) Q)' dO - W' dV^,    M = dP o D,   F = dA o D,   E = dP o P,   G = dA o A
 *     dQ = diag(e^gamma) dO S' + M K,    dV = diag(beta) dR
 *     dK = diag(e^(gamma_C - gamma)) V^ dS'' + M' Q + diag(beta) F K + F' diag(beta) K - diag(beta e^gamma) Y,  Y = dR S'
 *     dbeta_i = dR_i . V_i - e^gamma_i K_i . Y_i + sum_j F_ij (K K')_ij
 *     dgamma_i = e^gamma_i Q_i . (dO S')_i + sum_j (E + G)_ij - sum_j (E + G)_ji - beta_i e^gamma_i K_i . Y_i,   j other than i,
 *     z_i = e^(gamma_C - gamma_i) K_i . (V^ dS'')_i,   dg_i = e^gamma_C <S, dS'> + the z before i + dgamma from i on
 * (Terms that cancel, E_ii and the z from i on, are left out: where decays are strong they are all that is not small.)
 *
 * Order of work for a group of heads: prepare (a block a chunk and head), states (in order within a document, a block for each
 * document, head and block of columns), output; backward: prepare and states again, gradients of states (in reverse), the rest.
 * All sums have one order.  The kernels here use fp32 throughout and any shape: a block multiplies straight from memory. */
#include "ops/delta_rule.cuh"

enum { ROWS = MT_DELTA_ROWS, THREADS = 256, COLUMNS = 32 };

/* -- the table of chunks ----------------------------------------------------------------------------- */

enum { TABLE_THREADS = 1024 };

/* Sum of x over the threads before this one and, through *total, over all. */
__device__ __forceinline__ int scan_before(int x, int *of_warp, int *total)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = x;
#pragma unroll
    for (int back = 1; back < 32; back *= 2) {
        int other = __shfl_up_sync(0xffffffffu, sum, back);
        if (lane >= back) sum += other;
    }
    __syncthreads(); /* the array may still be read from the last time */
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < TABLE_THREADS / 32; w++) {
        if (w < warp) before += of_warp[w];
        all += of_warp[w];
    }
    *total = all;
    return before + sum - x;
}

__device__ __forceinline__ mt_delta_chunk make_chunk(const delta_group &g, const int *first_chunk, const int *first_slot, int c)
{
    int lo = 0, hi = (int)g.a.n_docs - 1; /* the last document whose chunks start at or before c */
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (first_chunk[mid] <= c)
            lo = mid;
        else
            hi = mid - 1;
    }
    int nth = c - first_chunk[lo], row = g.a.doc_start[lo] + nth * ROWS, end = g.a.doc_start[lo + 1], left = end - row;
    return { row, left < ROWS ? left : ROWS, nth ? first_slot[lo] + nth - 1 : -1, left > ROWS ? first_slot[lo] + nth : -1 };
}

__global__ void __launch_bounds__(TABLE_THREADS) table_kernel(delta_group g)
{
    __shared__ int of_warp[TABLE_THREADS / 32];
    int *first_chunk = g.at<int>(g.l.first_chunk), *first_slot = g.at<int>(g.l.first_slot), chunks = 0, slots = 0, total;
    for (int64_t base = 0; base < g.a.n_docs; base += TABLE_THREADS) {
        int64_t d = base + threadIdx.x;
        int n = d < g.a.n_docs ? (g.a.doc_start[d + 1] - g.a.doc_start[d] + ROWS - 1) / ROWS : 0;
        int chunk = chunks + scan_before(n, of_warp, &total);
        chunks += total;
        int slot = slots + scan_before(n > 1 ? n - 1 : 0, of_warp, &total);
        slots += total;
        if (d < g.a.n_docs) first_chunk[d] = chunk, first_slot[d] = slot;
    }
    if (threadIdx.x == 0) first_chunk[g.a.n_docs] = chunks, first_slot[g.a.n_docs] = slots;
    __syncthreads();
    mt_delta_chunk *table = g.at<mt_delta_chunk>(g.l.chunks);
    int64_t most = g.a.N / ROWS + g.a.n_docs < g.a.N ? g.a.N / ROWS + g.a.n_docs : g.a.N;
    for (int64_t c = threadIdx.x; c < most; c += TABLE_THREADS)
        table[c] = c < chunks ? make_chunk(g, first_chunk, first_slot, (int)c) : mt_delta_chunk{ 0, 0, -1, -1 };
}

/* -- gates: gamma and beta of all heads -------------------------------------------------------------- */

template <typename T> __device__ __forceinline__ float decay_of(const mt_delta_rule &a, int head, int64_t row)
{
    return -expf(a.A_log[head]) * delta_softplus(to_f32(((const T *)a.a)[row * a.ld_ab + head]) + a.dt_bias[head]);
}

__device__ __forceinline__ float scan_warp(float x, int lane)
{
#pragma unroll
    for (int back = 1; back < 32; back *= 2) {
        float other = __shfl_up_sync(0xffffffffu, x, back);
        if (lane >= back) x += other;
    }
    return x;
}

/* A warp has a chunk of a head, a lane rows `lane` and `lane` + 32 of it. */
template <typename T> __global__ void __launch_bounds__(THREADS) gates_kernel(delta_group g)
{
    int lane = threadIdx.x % 32, head = (int)blockIdx.y * (THREADS / 32) + (int)threadIdx.x / 32;
    mt_delta_chunk c = g.chunk(blockIdx.x);
    if (head >= g.a.H) return;
    float sum = 0;
    for (int half = 0; half < ROWS; half += 32) {
        int64_t row = c.row + half + lane;
        bool mine = half + lane < c.rows;
        float gamma = sum + scan_warp(mine ? decay_of<T>(g.a, head, row) : 0.0f, lane);
        sum = __shfl_sync(0xffffffffu, gamma, 31);
        if (!mine) continue;
        *g.gamma(head, row) = gamma;
        *g.beta(head, row) = 1.0f / (1.0f + expf(-to_f32(((const T *)g.a.b)[row * g.a.ld_ab + head])));
    }
}

/* -- plain: q and k divided by their lengths --------------------------------------------------------- */

/* 1 / |x| of a head of a row; the whole warp gets it. */
template <typename T> __device__ __forceinline__ float inverse_length(const T *x, int64_t n, int lane)
{
    float sum = 0;
    for (int64_t i = lane; i < n; i += 32) sum += to_f32(x[i]) * to_f32(x[i]);
    return rsqrtf(warp_sum(sum) + 1e-6f);
}

template <typename T> __global__ void __launch_bounds__(THREADS) norm_kernel(delta_group g)
{
    const mt_delta_rule &a = g.a;
    int64_t at = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32, row = at / g.n_keys;
    int lane = threadIdx.x % 32, key = (int)(at % g.n_keys);
    if (row >= a.N) return;
    const T *q = (const T *)a.q + row * a.ldq + (g.first_key + key) * a.Dk,
            *k = (const T *)a.k + row * a.ldk + (g.first_key + key) * a.Dk;
    float rq = inverse_length(q, a.Dk, lane) * rsqrtf((float)a.Dk), rk = inverse_length(k, a.Dk, lane);
    for (int64_t i = lane; i < a.Dk; i += 32) {
        g.rows<float>(g.l.q, key, row, a.Dk)[i] = to_f32(q[i]) * rq;
        g.rows<float>(g.l.k, key, row, a.Dk)[i] = to_f32(k[i]) * rk;
    }
}

/* -- plain: products ------------------------------------------------------------------------------- */

/* put(i, j, sum over k in [k0, K) of a(i, k) b(k, j)) for i < M, j < N, by the whole block.  A thread makes four rows and four
 * columns at once. */
template <typename A, typename B, typename PUT>
__device__ __forceinline__ void product(int M, int N, int k0, int K, A a, B b, PUT put)
{
    int tall = (M + 3) / 4, across = (N + 3) / 4;
    for (int tile = threadIdx.x; tile < tall * across; tile += blockDim.x) {
        int i0 = tile / across, j0 = tile % across;
        float sum[4][4] = {};
        for (int k = k0; k < K; k++) {
            float x[4], y[4];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                x[n] = i0 + n * tall < M ? a(i0 + n * tall, k) : 0.0f;
                y[n] = j0 + n * across < N ? b(k, j0 + n * across) : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] += x[i] * y[j];
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (i0 + i * tall < M && j0 + j * across < N) put(i0 + i * tall, j0 + j * across, sum[i][j]);
    }
}

/* A chunk of a head as the plain kernels see it. */
template <typename T> struct plain_chunk {
    int rows, Dk, Dv, head;
    int64_t row;
    float *q, *k, *w, *v, *t, *p, *a; /* of delta_rule.h */
    float *dv, *dr, *dq, *dk, *y, *m, *f;
    const float *before;             /* states, or NULL: zero */
    float *after, *dbefore, *dafter; /* or NULL */
    const float *gamma, *beta;
    float last;        /* gamma of its last row */
    const T *in, *d_o; /* v, dO */
    int64_t ldv, ldo;

    __device__ plain_chunk(const delta_group &g, mt_delta_chunk c, int h)
    {
        const mt_delta_layout &l = g.l;
        int key = h / g.per_key;
        rows = c.rows, row = c.row, Dk = (int)g.a.Dk, Dv = (int)g.a.Dv, head = g.first_head + h;
        q = g.rows<float>(l.q, key, row, Dk), k = g.rows<float>(l.k, key, row, Dk);
        w = g.rows<float>(l.w, h, row, Dk), v = g.rows<float>(l.v, h, row, Dv);
        t = g.rows<float>(l.t, h, row, ROWS), p = g.rows<float>(l.p, h, row, ROWS), a = g.rows<float>(l.a, h, row, ROWS);
        dv = g.rows<float>(l.dv, h, row, Dv), dr = g.rows<float>(l.dr, h, row, Dv);
        dq = g.rows<float>(l.dq, h, row, Dk), dk = g.rows<float>(l.dk, h, row, Dk), y = g.rows<float>(l.y, h, row, Dk);
        m = g.rows<float>(l.m, h, row, ROWS), f = g.rows<float>(l.f, h, row, ROWS);
        before = c.before < 0 ? nullptr : g.state<float>(l.s, h, c.before);
        dbefore = c.before < 0 ? nullptr : g.state<float>(l.ds, h, c.before);
        after = c.after < 0 ? nullptr : g.state<float>(l.s, h, c.after);
        dafter = c.after < 0 ? nullptr : g.state<float>(l.ds, h, c.after);
        gamma = g.gamma(head, row), beta = g.beta(head, row), last = rows ? gamma[rows - 1] : 0.0f;
        ldv = g.a.ldv, ldo = g.a.ldo;
        in = (const T *)g.a.v + row * ldv + head * g.a.Dv, d_o = (const T *)g.a.d_o + row * ldo + head * g.a.Dv;
    }
    __device__ __forceinline__ float decay(int i, int j) const { return expf(gamma[i] - gamma[j]); }
    __device__ __forceinline__ float grown(int i) const { return expf(gamma[i]); }
    __device__ __forceinline__ float left(int i) const { return expf(last - gamma[i]); }
    __device__ __forceinline__ float value(int i, int j) const { return to_f32(in[i * ldv + j]); }
    __device__ __forceinline__ float dout(int i, int j) const { return to_f32(d_o[i * ldo + j]); }
};

/* T = (I + A)^-1 by columns: a thread has one. */
template <typename T> __device__ __forceinline__ void invert(const plain_chunk<T> &c, float (*inverse)[ROWS + 1])
{
    int j = threadIdx.x;
    if (j < c.rows)
        for (int i = 0; i < c.rows; i++) {
            float sum = 0;
            for (int n = j; n < i; n++) sum += c.a[i * ROWS + n] * inverse[n][j];
            inverse[i][j] = i < j ? 0.0f : i == j ? 1.0f : -c.beta[i] * sum;
            c.t[i * ROWS + j] = inverse[i][j];
        }
    __syncthreads();
}

template <typename T> __global__ void __launch_bounds__(THREADS) prepare_kernel(delta_group g)
{
    __shared__ float inverse[ROWS][ROWS + 1];
    plain_chunk<T> c(g, g.chunk(blockIdx.x), blockIdx.y);
    const int rows = c.rows, Dk = c.Dk, Dv = c.Dv;
    if (!rows) return;
    auto key = [&](int n, int i) { return c.k[i * Dk + n]; };
    product(
        rows, rows, 0, Dk, [&](int i, int n) { return c.k[i * Dk + n]; }, key,
        [&](int i, int j, float x) { c.a[i * ROWS + j] = i > j ? x * c.decay(i, j) : 0.0f; });
    product(
        rows, rows, 0, Dk, [&](int i, int n) { return c.q[i * Dk + n]; }, key,
        [&](int i, int j, float x) { c.p[i * ROWS + j] = i >= j ? x * c.decay(i, j) : 0.0f; });
    __syncthreads();
    invert(c, inverse);
    product(
        rows, Dk, 0, rows, [&](int i, int n) { return inverse[i][n] * c.beta[n] * c.grown(n); },
        [&](int n, int j) { return c.k[n * Dk + j]; }, [&](int i, int j, float x) { c.w[i * Dk + j] = x; });
    product(
        rows, Dv, 0, rows, [&](int i, int n) { return inverse[i][n] * c.beta[n]; }, [&](int n, int j) { return c.value(n, j); },
        [&](int i, int j, float x) { c.v[i * Dv + j] = x; });
}

/* A block has a document, a head and COLUMNS columns of the state, and goes through the chunks in order. */
template <typename T> __global__ void __launch_bounds__(THREADS) states_kernel(delta_group g)
{
    const int col = (int)blockIdx.z * COLUMNS, h = blockIdx.y, Dk = (int)g.a.Dk, Dv = (int)g.a.Dv,
              n_cols = Dv - col < COLUMNS ? Dv - col : COLUMNS;
    const int *first = g.at<const int>(g.l.first_chunk);
    for (int at = first[blockIdx.x]; at < first[blockIdx.x + 1]; at++) {
        plain_chunk<T> c(g, g.chunk(at), h);
        if (c.before)
            product(
                c.rows, n_cols, 0, Dk, [&](int i, int n) { return c.w[i * Dk + n]; },
                [&](int n, int j) { return c.before[n * Dv + col + j]; },
                [&](int i, int j, float x) { c.v[i * Dv + col + j] -= x; });
        __syncthreads();
        if (c.after)
            product(
                Dk, n_cols, 0, c.rows, [&](int i, int n) { return c.k[n * Dk + i] * c.left(n); },
                [&](int n, int j) { return c.v[n * Dv + col + j]; },
                [&](int i, int j, float x) {
                    float old = c.before ? expf(c.last) * c.before[i * Dv + col + j] : 0.0f;
                    c.after[i * Dv + col + j] = old + x;
                });
        __syncthreads();
    }
}

/* o = e^gamma q S + P V^: one sum over the columns of [q, P]. */
template <typename T> __global__ void __launch_bounds__(THREADS) output_kernel(delta_group g)
{
    plain_chunk<T> c(g, g.chunk(blockIdx.x), blockIdx.y);
    const int Dk = c.Dk, Dv = c.Dv;
    T *o = (T *)g.a.o + c.row * g.a.ldo + (int64_t)c.head * Dv;
    product(
        c.rows, Dv, c.before ? 0 : Dk, Dk + c.rows,
        [&](int i, int n) { return n < Dk ? c.grown(i) * c.q[i * Dk + n] : c.p[i * ROWS + n - Dk]; },
        [&](int n, int j) { return n < Dk ? c.before[n * Dv + j] : c.v[(n - Dk) * Dv + j]; },
        [&](int i, int j, float x) { o[i * g.a.ldo + j] = from_f32<T>(x); });
}

/* dV^ and the states' gradients, chunks in reverse. */
template <typename T> __global__ void __launch_bounds__(THREADS) dstates_kernel(delta_group g)
{
    const int col = (int)blockIdx.z * COLUMNS, h = blockIdx.y, Dk = (int)g.a.Dk, Dv = (int)g.a.Dv,
              n_cols = Dv - col < COLUMNS ? Dv - col : COLUMNS;
    const int *first = g.at<const int>(g.l.first_chunk);
    for (int at = first[blockIdx.x + 1] - 1; at >= first[blockIdx.x]; at--) {
        plain_chunk<T> c(g, g.chunk(at), h);
        const int rows = c.rows;
        product(
            rows, n_cols, 0, rows + (c.dafter ? Dk : 0),
            [&](int i, int n) { return n < rows ? c.p[n * ROWS + i] : c.left(i) * c.k[i * Dk + n - rows]; },
            [&](int n, int j) { return n < rows ? c.dout(n, col + j) : c.dafter[(n - rows) * Dv + col + j]; },
            [&](int i, int j, float x) { c.dv[i * Dv + col + j] = x; });
        __syncthreads();
        if (c.dbefore)
            product(
                Dk, n_cols, 0, 2 * rows,
                [&](int i, int n) { return n < rows ? c.q[n * Dk + i] * c.grown(n) : -c.w[(n - rows) * Dk + i]; },
                [&](int n, int j) { return n < rows ? c.dout(n, col + j) : c.dv[(n - rows) * Dv + col + j]; },
                [&](int i, int j, float x) {
                    float old = c.dafter ? expf(c.last) * c.dafter[i * Dv + col + j] : 0.0f;
                    c.dbefore[i * Dv + col + j] = old + x;
                });
        __syncthreads();
    }
}

/* Sums over columns for a row of a chunk. */
struct row_sums {
    float q[ROWS], z[ROWS], y[ROWS], v[ROWS]; /* q . dq, k . dk, k . y, dr . v */
    float across[ROWS], down[ROWS];           /* of E + G, but for the diagonal */
    float dbeta[ROWS];                        /* of dA o K K' o D */
    float dgamma[ROWS];
};

template <typename T> __device__ __forceinline__ void sum_rows(const plain_chunk<T> &c, row_sums &s)
{
    int lane = threadIdx.x % 32;
    for (int i = threadIdx.x / 32; i < c.rows; i += THREADS / 32) {
        float q = 0, z = 0, y = 0, v = 0, across = 0, down = 0, dbeta = 0;
        for (int n = lane; n < c.Dk; n += 32) {
            q += c.q[i * c.Dk + n] * c.dq[i * c.Dk + n];
            z += c.k[i * c.Dk + n] * c.dk[i * c.Dk + n];
            y += c.k[i * c.Dk + n] * c.y[i * c.Dk + n];
        }
        for (int n = lane; n < c.Dv; n += 32) v += c.dr[i * c.Dv + n] * c.value(i, n);
        for (int n = lane; n < c.rows; n += 32) {
            if (n == i) continue; /* the same in both, and 0 in a */
            across += c.p[i * ROWS + n] + c.beta[i] * c.a[i * ROWS + n];
            down += c.p[n * ROWS + i] + c.beta[n] * c.a[n * ROWS + i];
            dbeta += c.a[i * ROWS + n];
        }
        s.q[i] = warp_sum(q), s.z[i] = warp_sum(z), s.y[i] = warp_sum(y), s.v[i] = warp_sum(v);
        s.across[i] = warp_sum(across), s.down[i] = warp_sum(down), s.dbeta[i] = warp_sum(dbeta);
    }
}

/* da, db and the chunk's shares of dA_log and ddt_bias. */
template <typename T>
__device__ __forceinline__ void write_gates(const delta_group &g, const plain_chunk<T> &c, row_sums &s, float states)
{
    int i = threadIdx.x;
    float *sums = g.at<float>(g.l.sums) + (int64_t)blockIdx.x * 2 * g.a.H + c.head;
    if (i < c.rows) {
        float ky = c.grown(i) * s.y[i], beta = c.beta[i];
        s.dgamma[i] = s.q[i] + s.across[i] - s.down[i] - beta * ky;
        float dbeta = s.v[i] - ky + s.dbeta[i];
        ((T *)g.a.db)[(c.row + i) * g.a.ld_dab + c.head] = from_f32<T>(dbeta * beta * (1.0f - beta));
    }
    __syncthreads();
    if (i != 0) return;
    float onward = 0, z_before = 0, sum_a = 0, sum_log = 0;
    for (int n = 0; n < c.rows; n++) {
        float z = s.z[n];
        s.z[n] = z_before;
        z_before += z;
    }
    for (int n = c.rows - 1; n >= 0; n--) {
        float x = to_f32(((const T *)g.a.a)[(c.row + n) * g.a.ld_ab + c.head]) + g.a.dt_bias[c.head],
              e = -expf(g.a.A_log[c.head]);
        onward += s.dgamma[n];
        float dg = states + s.z[n] + onward, da = dg * e * delta_softplus_slope(x);
        ((T *)g.a.da)[(c.row + n) * g.a.ld_dab + c.head] = from_f32<T>(da);
        sum_a += da;
        sum_log += dg * e * delta_softplus(x);
    }
    sums[0] = sum_log;
    sums[g.a.H] = sum_a;
}

template <typename T> __global__ void __launch_bounds__(THREADS) gradients_kernel(delta_group g)
{
    __shared__ row_sums s;
    plain_chunk<T> c(g, g.chunk(blockIdx.x), blockIdx.y);
    const int rows = c.rows, Dk = c.Dk, Dv = c.Dv;
    if (!rows) {
        float *sums = g.at<float>(g.l.sums) + (int64_t)blockIdx.x * 2 * g.a.H + c.head;
        if (threadIdx.x == 0) sums[0] = sums[g.a.H] = 0;
        return;
    }
    T *dv = (T *)g.a.dv + c.row * g.a.ld_d + (int64_t)c.head * Dv;
    product(
        rows, Dv, 0, rows, [&](int i, int n) { return c.t[n * ROWS + i]; }, [&](int n, int j) { return c.dv[n * Dv + j]; },
        [&](int i, int j, float x) {
            c.dr[i * Dv + j] = x;
            dv[i * g.a.ld_d + j] = from_f32<T>(c.beta[i] * x);
        });
    __syncthreads();
    auto added = [&](int n, int j) { return c.v[j * Dv + n]; };
    product(
        rows, rows, 0, Dv, [&](int i, int n) { return c.dr[i * Dv + n]; }, added,
        [&](int i, int j, float x) {
            c.f[i * ROWS + j] = i > j ? -x * c.decay(i, j) : 0.0f;
            c.a[i * ROWS + j] *= -x; /* zero unless i > j */
        });
    product(
        rows, rows, 0, Dv, [&](int i, int n) { return c.dout(i, n); }, added,
        [&](int i, int j, float x) {
            c.m[i * ROWS + j] = i >= j ? x * c.decay(i, j) : 0.0f;
            c.p[i * ROWS + j] *= x; /* zero unless i >= j */
        });
    product(
        rows, Dk, 0, c.before ? Dv : 0, [&](int i, int n) { return c.dr[i * Dv + n]; },
        [&](int n, int j) { return c.before[j * Dv + n]; }, [&](int i, int j, float x) { c.y[i * Dk + j] = x; });
    product(
        rows, Dk, 0, c.before ? Dv : 0, [&](int i, int n) { return c.dout(i, n); },
        [&](int n, int j) { return c.before[j * Dv + n]; }, [&](int i, int j, float x) { c.dq[i * Dk + j] = c.grown(i) * x; });
    product(
        rows, Dk, 0, c.dafter ? Dv : 0, [&](int i, int n) { return c.v[i * Dv + n]; },
        [&](int n, int j) { return c.dafter[j * Dv + n]; }, [&](int i, int j, float x) { c.dk[i * Dk + j] = c.left(i) * x; });
    float states = 0;
    for (int n = threadIdx.x; c.before && c.dafter && n < Dk * Dv; n += THREADS) states += c.before[n] * c.dafter[n];
    states = block_sum(states) * expf(c.last);
    __syncthreads();
    sum_rows(c, s);
    __syncthreads();
    write_gates(g, c, s, states);
    product(
        rows, Dk, 0, rows, [&](int i, int n) { return c.m[i * ROWS + n]; }, [&](int n, int j) { return c.k[n * Dk + j]; },
        [&](int i, int j, float x) { c.dq[i * Dk + j] += x; });
    product(
        rows, Dk, 0, 3 * rows,
        [&](int i, int n) {
            if (n < rows) return c.m[n * ROWS + i];
            if (n < 2 * rows) return c.beta[i] * c.f[i * ROWS + n - rows];
            return c.beta[n - 2 * rows] * c.f[(n - 2 * rows) * ROWS + i];
        },
        [&](int n, int j) { return n < rows ? c.q[n * Dk + j] : c.k[(n < 2 * rows ? n - rows : n - 2 * rows) * Dk + j]; },
        [&](int i, int j, float x) { c.dk[i * Dk + j] += x - c.beta[i] * c.grown(i) * c.y[i * Dk + j]; });
}

/* Gradient of x from that of y = scale x / |x|: the sum of the value heads' shares, in order. */
template <typename T>
__device__ __forceinline__ void denorm(const delta_group &g, T *dx, const T *x, size_t share, int key, int64_t row, float scale,
                                       int lane)
{
    int64_t Dk = g.a.Dk;
    float r = inverse_length(x, Dk, lane), along = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = lane; i < Dk; i += 32) {
            float dy = 0, y = to_f32(x[i]) * r;
            for (int h = key * g.per_key; h < (key + 1) * g.per_key; h++) dy += g.rows<float>(share, h, row, Dk)[i];
            if (pass == 0)
                along += y * dy;
            else
                dx[i] = from_f32<T>(r * scale * (dy - y * along));
        }
        if (pass == 0) along = warp_sum(along);
    }
}

template <typename T> __global__ void __launch_bounds__(THREADS) denorm_kernel(delta_group g)
{
    const mt_delta_rule &a = g.a;
    int64_t at = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32, row = at / g.n_keys;
    int lane = threadIdx.x % 32, key = (int)(at % g.n_keys);
    if (row >= a.N) return;
    int64_t head = (g.first_key + key) * a.Dk;
    denorm<T>(g, (T *)a.dq + row * a.ld_d + head, (const T *)a.q + row * a.ldq + head, g.l.dq, key, row, rsqrtf((float)a.Dk),
              lane);
    denorm<T>(g, (T *)a.dk + row * a.ld_d + head, (const T *)a.k + row * a.ldk + head, g.l.dk, key, row, 1.0f, lane);
}

/* -- launching ------------------------------------------------------------------------------------- */

template <typename T> static void plain_states(mt_stream *s, const delta_group *g)
{
    cudaStream_t raw = mt_cuda_raw(s);
    dim3 chunks((unsigned)mt__delta_chunks(&g->a), (unsigned)g->n_heads),
        docs((unsigned)g->a.n_docs, (unsigned)g->n_heads, (unsigned)div_up(g->a.Dv, COLUMNS));
    norm_kernel<T><<<(unsigned)div_up(g->a.N * g->n_keys, THREADS / 32), THREADS, 0, raw>>>(*g);
    prepare_kernel<T><<<chunks, THREADS, 0, raw>>>(*g);
    states_kernel<T><<<docs, THREADS, 0, raw>>>(*g);
}

template <typename T> static void plain(mt_stream *s, const delta_group *g, bool back)
{
    cudaStream_t raw = mt_cuda_raw(s);
    dim3 chunks((unsigned)mt__delta_chunks(&g->a), (unsigned)g->n_heads),
        docs((unsigned)g->a.n_docs, (unsigned)g->n_heads, (unsigned)div_up(g->a.Dv, COLUMNS));
    plain_states<T>(s, g);
    if (!back) {
        output_kernel<T><<<chunks, THREADS, 0, raw>>>(*g);
        return;
    }
    dstates_kernel<T><<<docs, THREADS, 0, raw>>>(*g);
    gradients_kernel<T><<<chunks, THREADS, 0, raw>>>(*g);
    denorm_kernel<T><<<(unsigned)div_up(g->a.N * g->n_keys, THREADS / 32), THREADS, 0, raw>>>(*g);
}

static void run_group(mt_stream *s, const delta_group *g, bool back)
{
    if (g->l.fast && back)
        mt__delta_mma_backward(s, g);
    else if (g->l.fast)
        mt__delta_mma_forward(s, g);
    else if (g->a.t == MT_DTYPE_BF16)
        plain<bf16>(s, g, back);
    else
        plain<float>(s, g, back);
}

static bool is_aligned_for(const mt_delta_rule *a, bool back)
{
    bool ok = is_aligned(a->q, 16) && is_aligned(a->k, 16) && is_aligned(a->v, 16) && is_aligned(a->scratch, 16) &&
              a->ldq % 8 == 0 && a->ldk % 8 == 0 && a->ldv % 8 == 0 && a->ldo % 8 == 0;
    if (!back) return ok && is_aligned(a->o, 16);
    return ok && is_aligned(a->d_o, 16) && is_aligned(a->dq, 16) && is_aligned(a->dk, 16) && is_aligned(a->dv, 16) &&
           a->ld_d % 8 == 0;
}

static mt_rc run(mt_stream *s, const mt_delta_rule *a, bool back, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    bool fast = mt__delta_is_fast(a) && is_aligned_for(a, back);
    delta_group g = { *a, mt__delta_layout(a, fast) };
    g.per_key = (int)(a->H / a->K);
    if (fast && !mt__delta_mma_fits(s, &g)) g.l = mt__delta_layout(a, false);
    cudaStream_t raw = mt_cuda_raw(s);
    dim3 chunks((unsigned)mt__delta_chunks(a), (unsigned)div_up(a->H, THREADS / 32));
    table_kernel<<<1, TABLE_THREADS, 0, raw>>>(g);
    if (a->t == MT_DTYPE_BF16)
        gates_kernel<bf16><<<chunks, THREADS, 0, raw>>>(g);
    else
        gates_kernel<float><<<chunks, THREADS, 0, raw>>>(g);
    for (g.first_key = 0; g.first_key < a->K; g.first_key += (int)g.l.keys) {
        g.n_keys = (int)(a->K - g.first_key < g.l.keys ? a->K - g.first_key : g.l.keys);
        g.first_head = g.first_key * g.per_key;
        g.n_heads = g.n_keys * g.per_key;
        run_group(s, &g, back);
    }
    MT_TRY(mt__cuda_launched(s, back ? "delta rule backward" : "delta rule", err));
    if (!back) return MT_OK;
    const float *sums = (const float *)((const char *)a->scratch + g.l.sums);
    if (a->dA_log) MT_TRY(mt__sum_rows_cuda(s, a->dA_log, sums, mt__delta_chunks(a), a->H, 2 * a->H, err));
    if (a->ddt_bias) MT_TRY(mt__sum_rows_cuda(s, a->ddt_bias, sums + a->H, mt__delta_chunks(a), a->H, 2 * a->H, err));
    return MT_OK;
}

mt_rc mt__delta_rule_fwd_cuda(mt_stream *s, const mt_delta_rule *a, mt_err *err) { return run(s, a, false, err); }
mt_rc mt__delta_rule_bwd_cuda(mt_stream *s, const mt_delta_rule *a, mt_err *err) { return run(s, a, true, err); }
