/* attention_mma.cu - attention.cu's formulas on the tensor cores, tile by tile, for bf16.
 *
 * A team (a warp, or on Hopper four: attention_tiles.cuh) owns rows of the result and keeps their sums in registers; the
 * teams of a block share tiles of the other side, brought in by asynchronous copies one tile ahead.
 *
 *   forward   a block owns queries and walks keys:       S = q k',  o = P v               (running maximum and sum)
 *   dq        a block owns queries and walks keys:       S = q k',  dP = do v',  dq = dS k
 *   dk, dv    a block owns keys, walks query heads and queries:   S' = k q',  dP' = v do',  dv = P' do,  dk = dS' q
 *
 * No two blocks write one place and every sum has one order: results are repeatable.  Tiles ignore documents; a row's visible
 * range masks the rest, and tiles outside every range are never visited (attention.cuh).  Head widths 64, 96, 128 and 256 have
 * kernels, and scores of 192 with values of 128; others are padded with zeros to the next in shared memory.  DH is the width of
 * queries and keys there, DV that of values and outputs.  Bytes moved: each tile of the walked side is read once per block that
 * walks it (from L2, mostly); everything else once. */
#include "ops/attention.cuh"
#include "ops/attention_tiles.cuh"

static const float LOG2E = 1.4426950408889634f;
static const float LN2 = 0.6931471805599453f;

/* 16 rows of a result, the lane's two rows at row0 and row0 + 8. */
template <int DH>
__device__ __forceinline__ void store_rows(bf16 *head, int64_t ld, int row0, int N, int Dh, const float acc[][4], float by0,
                                           float by1, int lane)
{
#pragma unroll
    for (int n = 0; n < DH / 8; n++) {
        int c = n * 8 + lane % 4 * 2;
        if (c >= Dh) continue;
        if (row0 < N) *(uint32_t *)(head + (int64_t)row0 * ld + c) = pack(acc[n][0] * by0, acc[n][1] * by0);
        if (row0 + 8 < N) *(uint32_t *)(head + (int64_t)(row0 + 8) * ld + c) = pack(acc[n][2] * by1, acc[n][3] * by1);
    }
}

/* The maximum or sum over the four lanes that share a row. */
__device__ __forceinline__ float row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float row_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* -- the side that owns queries -------------------------------------------------------------------- */

/* A lane's values of its two query rows, and of its team's rows. */
typedef struct queries {
    int row0, row1;            /* this lane's */
    int from0, from1;          /* first key each sees; INT_MAX past the end */
    int first, last;           /* the team's rows that exist */
    int from_first, from_last; /* first keys of those */
    bool whole;                /* all the team's rows exist */
} queries;

template <int TEAM> __device__ __forceinline__ queries my_queries(const mt_attention &a, int q0, int warp, int lane)
{
    queries q;
    int N = (int)a.N;
    q.first = q0 + warp * 16 / TEAM * TEAM;
    q.whole = q.first + TEAM <= N;
    q.last = min(q.first + TEAM, N) - 1;
    q.row0 = q0 + warp * 16 + lane / 4;
    q.row1 = q.row0 + 8;
    q.from0 = q.row0 < N ? first_key(a, q.row0) : 0x7fffffff;
    q.from1 = q.row1 < N ? first_key(a, q.row1) : 0x7fffffff;
    q.from_first = q.first < N ? first_key(a, q.first) : 0x7fffffff;
    q.from_last = q.first < N ? first_key(a, q.last) : 0x7fffffff;
    return q;
}

/* No row of the team sees any of these keys. */
__device__ __forceinline__ bool sees_none(const queries &q, int key, int n)
{
    return q.first > q.last || key > q.last || key + n <= q.from_first;
}
/* Every row sees all of them. */
__device__ __forceinline__ bool sees_all(const queries &q, int key, int n)
{
    return q.whole && key + n - 1 <= q.first && key >= q.from_last;
}

template <int BN> __device__ __forceinline__ void mask(float s[][4], const queries &q, int key, int lane)
{
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int j = key + n * 8 + lane % 4 * 2 + e;
            if (j > q.row0 || j < q.from0) s[n][e] = -INFINITY;
            if (j > q.row1 || j < q.from1) s[n][2 + e] = -INFINITY;
        }
}

/* Scores of keys `key`.. by the lane's queries, bent: in their own unit from here on, no longer in that of q k'. */
template <int BN> __device__ __forceinline__ void bend(float s[][4], const bending &b, const queries &q, int key, int lane)
{
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int j = key + n * 8 + lane % 4 * 2 + e % 2;
            s[n][e] = bent(b, s[n][e], (e < 2 ? q.row0 : q.row1) - j);
        }
}

/* 2^x; 0 instead of subnormal results. */
__device__ __forceinline__ float power2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* One row's half of the running softmax: s becomes exp, its weight is returned for what was summed before. */
template <int BN> __device__ __forceinline__ float soften(float s[][4], int half, float *top, float *sum, float scale_log2)
{
    float most = -INFINITY;
#pragma unroll
    for (int n = 0; n < BN / 8; n++) most = fmaxf(most, fmaxf(s[n][half], s[n][half + 1]));
    most = fmaxf(*top, row_max(most));
    float base = most == -INFINITY ? 0.0f : most * scale_log2, less = power2(*top * scale_log2 - base), part = 0;
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
#pragma unroll
        for (int e = half; e < half + 2; e++) {
            s[n][e] = power2(s[n][e] * scale_log2 - base);
            part += s[n][e];
        }
    *top = most;
    *sum = *sum * less + part; /* this lane's share; the lanes meet at the end */
    return less;
}

/* BENT: scores go through ALiBi or a soft cap (attention.cuh). */
template <int DH, int DV, int BM, int BN, bool BENT> __global__ void __launch_bounds__(BM * 2, 1) forward_kernel(mt_attention a)
{
    enum { THREADS = BM * 2 };
    constexpr int TEAM = team<DH>(), TILE = tile_elements<DH>(BN), VALUES = tile_elements<DV>(BN);
    static_assert(team<DH>() == team<DV>(), "one team for both products");
    extern __shared__ unsigned char shared[];
    bf16 *tq = aligned_shared(shared), *tk = tq + tile_elements<DH>(BM),
         *tv = tk + 2 * TILE; /* keys and values: two tiles each, in turn */
    int h = blockIdx.y, kv = h / (int)(a.H / a.K), N = (int)a.N, Dh = (int)a.Dh, Dv = value_width(a), lane = threadIdx.x % 32,
        warp = threadIdx.x / 32;
    int row0 = warp * 16 / TEAM * TEAM;                   /* of the team, in the block */
    int q0 = ((int)gridDim.x - 1 - (int)blockIdx.x) * BM; /* late rows see most: they go first */
    const bf16 *k_head = (const bf16 *)a.k + (int64_t)kv * Dh, *v_head = (const bf16 *)a.v + (int64_t)kv * Dv;
    int key = first_key(a, q0), key_end = min(q0 + BM, N);
    fetch_tile<BM, DH, THREADS>(tq, (const bf16 *)a.q + (int64_t)h * Dh, a.ldq, q0, N, Dh);
    fetch_tile<BN, DH, THREADS>(tk, k_head, a.ldk, key, N, Dh);
    copies_commit();
    fetch_tile<BN, DV, THREADS>(tv, v_head, a.ldv, key, N, Dv);
    copies_commit();

    queries q = my_queries<TEAM>(a, q0, warp, lane);
    bending b = BENT ? bending_of(a, h) : bending();
    float o[DV / 8][4], top0 = -INFINITY, top1 = -INFINITY, sum0 = 0, sum1 = 0, unit = BENT ? 1.0f : a.scale,
                        scale_log2 = unit * LOG2E;
    clear<DV / 8>(o);
    for (int turn = 0; key < key_end; key += BN, turn ^= 1) {
        int next = turn ^ 1;
        bool sees = !sees_none(q, key, BN);
        float s[BN / 8][4];
        uint32_t p[BN / 16][4];
        copies_arrive<1>(); /* the keys */
        if (key + BN < key_end) fetch_tile<BN, DH, THREADS>(tk + next * TILE, k_head, a.ldk, key + BN, N, Dh);
        copies_commit();
        if (sees) {
            start_times_transposed<BM, BN, DH>(s, tq, row0, tk + turn * TILE, lane);
            finish<DH, 0, BN / 8>(s);
            if (BENT) bend<BN>(s, b, q, key, lane);
            if (!sees_all(q, key, BN)) mask<BN>(s, q, key, lane);
            float less0 = soften<BN>(s, 0, &top0, &sum0, scale_log2), less1 = soften<BN>(s, 2, &top1, &sum1, scale_log2);
            if (__any_sync(0xffffffffu, less0 != 1.0f || less1 != 1.0f)) {
#pragma unroll
                for (int n = 0; n < DV / 8; n++) {
                    o[n][0] *= less0, o[n][1] *= less0;
                    o[n][2] *= less1, o[n][3] *= less1;
                }
            }
            as_operand<BN>(p, s);
        }
        copies_arrive<1>(); /* the values */
        if (key + BN < key_end) fetch_tile<BN, DV, THREADS>(tv + next * VALUES, v_head, a.ldv, key + BN, N, Dv);
        copies_commit();
        if (sees) {
            start_times<BN, DV>(o, p, tv + turn * VALUES, lane);
            finish<DV, 0, DV / 8>(o);
        }
    }
    sum0 = row_sum(sum0);
    sum1 = row_sum(sum1);
    store_rows<DV>((bf16 *)a.o + (int64_t)h * Dv, a.ldo, q.row0, N, Dv, o, 1.0f / sum0, 1.0f / sum1, lane);
    if (lane % 4) return;
    if (q.row0 < N) a.lse[(int64_t)q.row0 * a.H + h] = top0 * unit + log2f(sum0) * LN2;
    if (q.row1 < N) a.lse[(int64_t)q.row1 * a.H + h] = top1 * unit + log2f(sum1) * LN2;
}

template <int DH, int DV, int BM, int BN, bool BENT>
__global__ void __launch_bounds__(BM * 2, 1) dq_kernel(mt_attention a, const float *delta)
{
    enum { THREADS = BM * 2 };
    constexpr int TEAM = team<DH>(), TILE = tile_elements<DH>(BN), VALUES = tile_elements<DV>(BN);
    static_assert(team<DH>() == team<DV>(), "one team for both products");
    extern __shared__ unsigned char shared[];
    bf16 *tq = aligned_shared(shared), *td = tq + tile_elements<DH>(BM), *tk = td + tile_elements<DV>(BM), *tv = tk + 2 * TILE;
    int h = blockIdx.y, kv = h / (int)(a.H / a.K), N = (int)a.N, Dh = (int)a.Dh, Dv = value_width(a), lane = threadIdx.x % 32,
        warp = threadIdx.x / 32;
    int row0 = warp * 16 / TEAM * TEAM; /* of the team, in the block */
    int q0 = ((int)gridDim.x - 1 - (int)blockIdx.x) * BM;
    const bf16 *k_head = (const bf16 *)a.k + (int64_t)kv * Dh, *v_head = (const bf16 *)a.v + (int64_t)kv * Dv;
    int key = first_key(a, q0), key_end = min(q0 + BM, N);
    fetch_tile<BM, DH, THREADS>(tq, (const bf16 *)a.q + (int64_t)h * Dh, a.ldq, q0, N, Dh);
    fetch_tile<BM, DV, THREADS>(td, (const bf16 *)a.d_o + (int64_t)h * Dv, a.ldo, q0, N, Dv);
    fetch_tile<BN, DH, THREADS>(tk, k_head, a.ldk, key, N, Dh);
    fetch_tile<BN, DV, THREADS>(tv, v_head, a.ldv, key, N, Dv);
    copies_commit();

    queries q = my_queries<TEAM>(a, q0, warp, lane);
    bending b = BENT ? bending_of(a, h) : bending();
    float scale_log2 = BENT ? LOG2E : a.scale * LOG2E, dq[DH / 8][4];
    float lse0 = q.row0 < N ? a.lse[(int64_t)q.row0 * a.H + h] * LOG2E : 0,
          lse1 = q.row1 < N ? a.lse[(int64_t)q.row1 * a.H + h] * LOG2E : 0;
    float delta0 = q.row0 < N ? delta[(int64_t)q.row0 * a.H + h] : 0, delta1 = q.row1 < N ? delta[(int64_t)q.row1 * a.H + h] : 0;
    clear<DH / 8>(dq);
    for (int turn = 0; key < key_end; key += BN, turn ^= 1) {
        int next = turn ^ 1;
        copies_arrive<0>();
        if (key + BN < key_end) {
            fetch_tile<BN, DH, THREADS>(tk + next * TILE, k_head, a.ldk, key + BN, N, Dh);
            fetch_tile<BN, DV, THREADS>(tv + next * VALUES, v_head, a.ldv, key + BN, N, Dv);
        }
        copies_commit();
        if (sees_none(q, key, BN)) continue;
        float s[BN / 8][4], dp[BN / 8][4];
        uint32_t ds[BN / 16][4];
        start_times_transposed<BM, BN, DH>(s, tq, row0, tk + turn * TILE, lane);
        start_times_transposed<BM, BN, DV>(dp, td, row0, tv + turn * VALUES, lane);
        finish<DH, 1, BN / 8>(s);
        if (BENT) bend<BN>(s, b, q, key, lane);
        if (!sees_all(q, key, BN)) mask<BN>(s, q, key, lane);
#pragma unroll
        for (int n = 0; n < BN / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] = power2(s[n][e] * scale_log2 - (e < 2 ? lse0 : lse1));
        finish<DH, 0, BN / 8>(dp);
#pragma unroll
        for (int n = 0; n < BN / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                dp[n][e] = s[n][e] * (dp[n][e] - (e < 2 ? delta0 : delta1));
                if (BENT) dp[n][e] *= bent_slope(b, s[n][e], e < 2 ? lse0 : lse1);
            }
        as_operand<BN>(ds, dp);
        start_times<BN, DH>(dq, ds, tk + turn * TILE, lane);
        finish<DH, 0, DH / 8>(dq);
    }
    store_rows<DH>((bf16 *)a.dq + (int64_t)h * Dh, a.ld_d, q.row0, N, Dh, dq, a.scale, a.scale, lane);
}

/* -- the side that owns keys ----------------------------------------------------------------------- */

/* As `queries`, the other way round: key j is seen by rows [j, end(j)). */
typedef struct keys {
    int row0, row1, end0, end1; /* end 0: past the last row */
    int first, last, end_first, end_last;
    bool whole;
} keys;

template <int TEAM> __device__ __forceinline__ keys my_keys(const mt_attention &a, int k0, int warp, int lane)
{
    keys k;
    int N = (int)a.N;
    k.first = k0 + warp * 16 / TEAM * TEAM;
    k.whole = k.first + TEAM <= N;
    k.last = min(k.first + TEAM, N) - 1;
    k.row0 = k0 + warp * 16 + lane / 4;
    k.row1 = k.row0 + 8;
    k.end0 = k.row0 < N ? end_query(a, k.row0) : 0;
    k.end1 = k.row1 < N ? end_query(a, k.row1) : 0;
    k.end_first = k.first < N ? end_query(a, k.first) : 0;
    k.end_last = k.first < N ? end_query(a, k.last) : 0;
    return k;
}

__device__ __forceinline__ bool seen_by_none(const keys &k, int query, int n)
{
    return k.first > k.last || query + n <= k.first || query >= k.end_last;
}
__device__ __forceinline__ bool seen_by_all(const keys &k, int query, int n)
{
    return k.whole && query >= k.last && query + n <= k.end_first;
}

template <int BQ> __device__ __forceinline__ void bend_queries(float s[][4], const bending &b, const keys &k, int query, int lane)
{
#pragma unroll
    for (int n = 0; n < BQ / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = query + n * 8 + lane % 4 * 2 + e % 2;
            s[n][e] = bent(b, s[n][e], i - (e < 2 ? k.row0 : k.row1));
        }
}

template <int BQ> __device__ __forceinline__ void mask_queries(float s[][4], const keys &k, int query, int lane)
{
#pragma unroll
    for (int n = 0; n < BQ / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int i = query + n * 8 + lane % 4 * 2 + e;
            if (i < k.row0 || i >= k.end0) s[n][e] = -INFINITY;
            if (i < k.row1 || i >= k.end1) s[n][2 + e] = -INFINITY;
        }
}

/* Queries, their output gradients, lse and delta of one tile, all of one head. */
template <int DH, int DV, int BQ, int THREADS>
__device__ __forceinline__ void fetch_queries(const mt_attention &a, const float *delta, int h, int query, bf16 *tq, bf16 *td,
                                              float *numbers)
{
    int N = (int)a.N, Dh = (int)a.Dh, Dv = value_width(a);
    fetch_tile<BQ, DH, THREADS>(tq, (const bf16 *)a.q + (int64_t)h * Dh, a.ldq, query, N, Dh);
    fetch_tile<BQ, DV, THREADS>(td, (const bf16 *)a.d_o + (int64_t)h * Dv, a.ldo, query, N, Dv);
    if ((int)threadIdx.x >= 2 * BQ) return;
    int i = query + (int)threadIdx.x % BQ;
    const float *from = (int)threadIdx.x < BQ ? a.lse : delta;
    copy4(numbers + threadIdx.x, i < N ? from + (int64_t)i * a.H + h : from, i < N);
}

/* DK, DVALUES: which of the two gradients this launch makes.  Both at once, where registers hold both sums. */
template <int DH, int DV, int BM, int BQ, bool DK, bool DVALUES, bool BENT>
__global__ void __launch_bounds__(BM * 2, 1) dkv_kernel(mt_attention a, const float *delta)
{
    enum { THREADS = BM * 2 };
    constexpr int TEAM = team<DH>(), TILE = tile_elements<DH>(BQ), VALUES = tile_elements<DV>(BQ);
    static_assert(team<DH>() == team<DV>(), "one team for both products");
    extern __shared__ unsigned char shared[];
    bf16 *tk = aligned_shared(shared), *tv = tk + tile_elements<DH>(BM), *tq = tv + tile_elements<DV>(BM), *td = tq + 2 * TILE;
    float *numbers = (float *)(td + 2 * VALUES); /* [2][lse, delta][BQ] */
    int kv = blockIdx.y, group = (int)(a.H / a.K), N = (int)a.N, Dh = (int)a.Dh, Dv = value_width(a), lane = threadIdx.x % 32,
        warp = threadIdx.x / 32;
    int row0 = warp * 16 / TEAM * TEAM; /* of the team, in the block */
    int k0 = (int)blockIdx.x * BM, end = end_query(a, min(k0 + BM, N) - 1), n_tiles = (end - k0 + BQ - 1) / BQ,
        n_steps = n_tiles * group;
    fetch_tile<BM, DH, THREADS>(tk, (const bf16 *)a.k + (int64_t)kv * Dh, a.ldk, k0, N, Dh);
    fetch_tile<BM, DV, THREADS>(tv, (const bf16 *)a.v + (int64_t)kv * Dv, a.ldv, k0, N, Dv);
    fetch_queries<DH, DV, BQ, THREADS>(a, delta, kv * group, k0, tq, td, numbers);
    copies_commit();

    keys k = my_keys<TEAM>(a, k0, warp, lane);
    float dk[DK ? DH / 8 : 1][4], dv[DVALUES ? DV / 8 : 1][4], scale_log2 = BENT ? LOG2E : a.scale * LOG2E;
    clear<DK ? DH / 8 : 1>(dk);
    clear<DVALUES ? DV / 8 : 1>(dv);
    for (int step = 0; step < n_steps; step++) {
        int turn = step & 1, query = k0 + step % n_tiles * BQ;
        copies_arrive<0>();
        if (step + 1 < n_steps)
            fetch_queries<DH, DV, BQ, THREADS>(a, delta, kv * group + (step + 1) / n_tiles, k0 + (step + 1) % n_tiles * BQ,
                                               tq + (turn ^ 1) * TILE, td + (turn ^ 1) * VALUES, numbers + (turn ^ 1) * 2 * BQ);
        copies_commit();
        if (seen_by_none(k, query, BQ)) continue;
        const float *lse = numbers + turn * 2 * BQ, *del = lse + BQ;
        float p[BQ / 8][4], dp[BQ / 8][4];
        uint32_t left[BQ / 16][4], left2[BQ / 16][4];
        start_times_transposed<BM, BQ, DH>(p, tk, row0, tq + turn * TILE, lane);
        if (DK) start_times_transposed<BM, BQ, DV>(dp, tv, row0, td + turn * VALUES, lane);
        finish<DH, DK, BQ / 8>(p);
        bending b = BENT ? bending_of(a, kv * group + step / n_tiles) : bending();
        if (BENT) bend_queries<BQ>(p, b, k, query, lane);
        if (!seen_by_all(k, query, BQ)) mask_queries<BQ>(p, k, query, lane);
#pragma unroll
        for (int n = 0; n < BQ / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) p[n][e] = power2(p[n][e] * scale_log2 - lse[n * 8 + lane % 4 * 2 + e % 2] * LOG2E);
        if (DVALUES) {
            as_operand<BQ>(left, p);
            start_times<BQ, DV>(dv, left, td + turn * VALUES, lane);
        }
        if (DK) {
            finish<DH, DVALUES, BQ / 8>(dp);
#pragma unroll
            for (int n = 0; n < BQ / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int i = n * 8 + lane % 4 * 2 + e % 2;
                    dp[n][e] = p[n][e] * (dp[n][e] - del[i]);
                    if (BENT) dp[n][e] *= bent_slope(b, p[n][e], lse[i] * LOG2E);
                }
            as_operand<BQ>(left2, dp);
            start_times<BQ, DH>(dk, left2, tq + turn * TILE, lane);
        }
        if (DVALUES) finish<DV, 0, DV / 8>(dv);
        if (DK) finish<DH, 0, DH / 8>(dk);
    }
    if (DK) store_rows<DH>((bf16 *)a.dk + (int64_t)kv * Dh, a.ld_d, k.row0, N, Dh, dk, a.scale, a.scale, lane);
    if (DVALUES) store_rows<DV>((bf16 *)a.dv + (int64_t)kv * Dv, a.ld_d, k.row0, N, Dv, dv, 1.0f, 1.0f, lane);
}

/* -- launchers ------------------------------------------------------------------------------------- */

/* A block's shared memory beyond 48 KiB must be requested. */
static mt_rc allow(mt_stream *s, const void *kernel, size_t bytes, mt_err *err)
{
    if (bytes > mt_cuda_device_of(s)->shared_bytes)
        return mt_fail(err, MT_EUNSUPPORTED, "attention needs %zu bytes of shared memory a block and this GPU has %zu", bytes,
                       mt_cuda_device_of(s)->shared_bytes);
    return mt__cuda_check(s->dev, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                          "attention", err);
}

template <int DH, int BM, int BN, int DV = DH> static mt_rc forward(mt_stream *s, const mt_attention *a, mt_err *err)
{
    size_t bytes = shared_for(BM + 2 * BN, DH) + shared_for(2 * BN, DV) + SHARED_ALIGN;
    dim3 grid((unsigned)div_up(a->N, BM), (unsigned)a->H);
    void (*kernel)(mt_attention) = is_bent(a) ? forward_kernel<DH, DV, BM, BN, true> : forward_kernel<DH, DV, BM, BN, false>;
    MT_TRY(allow(s, (const void *)kernel, bytes, err));
    kernel<<<grid, BM * 2, bytes, mt_cuda_raw(s)>>>(*a);
    return mt__cuda_launched(s, "attention", err);
}

template <int DH, int BM, int BN, int DV = DH>
static mt_rc backward_dq(mt_stream *s, const mt_attention *a, const float *delta, mt_err *err)
{
    size_t bytes = shared_for(BM + 2 * BN, DH) + shared_for(BM + 2 * BN, DV) + SHARED_ALIGN;
    dim3 grid((unsigned)div_up(a->N, BM), (unsigned)a->H);
    void (*kernel)(mt_attention, const float *) = is_bent(a) ? dq_kernel<DH, DV, BM, BN, true> : dq_kernel<DH, DV, BM, BN, false>;
    MT_TRY(allow(s, (const void *)kernel, bytes, err));
    kernel<<<grid, BM * 2, bytes, mt_cuda_raw(s)>>>(*a, delta);
    return mt__cuda_launched(s, "attention backward", err);
}

template <int DH, int BM, int BQ, bool DK, bool DVALUES, int DV = DH>
static mt_rc backward_dkv(mt_stream *s, const mt_attention *a, const float *delta, mt_err *err)
{
    size_t bytes = shared_for(BM + 2 * BQ, DH) + shared_for(BM + 2 * BQ, DV) + 4 * BQ * sizeof(float) + SHARED_ALIGN;
    dim3 grid((unsigned)div_up(a->N, BM), (unsigned)a->K);
    void (*kernel)(mt_attention, const float *) =
        is_bent(a) ? dkv_kernel<DH, DV, BM, BQ, DK, DVALUES, true> : dkv_kernel<DH, DV, BM, BQ, DK, DVALUES, false>;
    MT_TRY(allow(s, (const void *)kernel, bytes, err));
    kernel<<<grid, BM * 2, bytes, mt_cuda_raw(s)>>>(*a, delta);
    return mt__cuda_launched(s, "attention backward", err);
}

/* Widths of scores and values that have kernels; others use those of the next wider one. */
static bool is_latent(const mt_attention *a) { return a->Dh > 128 && a->Dh <= 192 && value_width(*a) <= 128; }
static int widest(const mt_attention *a) { return a->Dh > value_width(*a) ? (int)a->Dh : value_width(*a); }

/* Tile sizes: what registers and shared memory hold, and what was fastest (docs/notebook).  Hopper's are for its
 * warpgroups, 64 rows a team; heads of 96 it computes faster as 128 on those than as 96 without. */
mt_rc mt__attention_mma_fwd(mt_stream *s, const mt_attention *a, mt_err *err)
{
    bool roomy = mt_cuda_device_of(s)->shared_bytes >= 160 << 10, hopper = mt_cuda_device_of(s)->hopper;
    int Dh = widest(a);
    if (is_latent(a)) return roomy ? forward<192, 128, 64, 128>(s, a, err) : forward<192, 64, 32, 128>(s, a, err);
    if (Dh <= 64) return forward<64, 128, 64>(s, a, err);
    if (Dh <= 128 && hopper) return forward<128, 192, 128>(s, a, err);
    if (Dh <= 96) return forward<96, 128, 64>(s, a, err);
    if (Dh <= 128) return roomy ? forward<128, 128, 64>(s, a, err) : forward<128, 64, 64>(s, a, err);
    return hopper ? forward<256, 64, 64>(s, a, err) : forward<256, 32, 32>(s, a, err);
}

static mt_rc backward_hopper(mt_stream *s, const mt_attention *a, const float *delta, mt_err *err)
{
    int Dh = widest(a);
    if (is_latent(a)) {
        MT_TRY((backward_dq<192, 128, 64, 128>(s, a, delta, err)));
        return backward_dkv<192, 128, 32, true, true, 128>(s, a, delta, err);
    }
    if (Dh <= 64) {
        MT_TRY((backward_dq<64, 128, 64>(s, a, delta, err)));
        return backward_dkv<64, 128, 64, true, true>(s, a, delta, err);
    }
    if (Dh <= 128) {
        MT_TRY((backward_dq<128, 192, 64>(s, a, delta, err)));
        return backward_dkv<128, 128, 64, true, true>(s, a, delta, err);
    }
    MT_TRY((backward_dq<256, 64, 32>(s, a, delta, err)));
    MT_TRY((backward_dkv<256, 64, 32, false, true>(s, a, delta, err)));
    return backward_dkv<256, 64, 32, true, false>(s, a, delta, err);
}

mt_rc mt__attention_mma_bwd(mt_stream *s, const mt_attention *a, const float *delta, mt_err *err)
{
    int Dh = widest(a);
    if (mt_cuda_device_of(s)->hopper) return backward_hopper(s, a, delta, err);
    if (is_latent(a)) {
        MT_TRY((backward_dq<192, 64, 32, 128>(s, a, delta, err)));
        return backward_dkv<192, 64, 16, true, true, 128>(s, a, delta, err);
    }
    if (Dh <= 64) {
        MT_TRY((backward_dq<64, 64, 64>(s, a, delta, err)));
        return backward_dkv<64, 64, 64, true, true>(s, a, delta, err);
    }
    if (Dh <= 96) {
        MT_TRY((backward_dq<96, 64, 64>(s, a, delta, err)));
        return backward_dkv<96, 64, 32, true, true>(s, a, delta, err);
    }
    if (Dh <= 128) {
        MT_TRY((backward_dq<128, 64, 32>(s, a, delta, err)));
        return backward_dkv<128, 64, 32, true, true>(s, a, delta, err);
    }
    MT_TRY((backward_dq<256, 32, 16>(s, a, delta, err)));
    MT_TRY((backward_dkv<256, 32, 16, false, true>(s, a, delta, err)));
    return backward_dkv<256, 32, 16, true, false>(s, a, delta, err);
}
