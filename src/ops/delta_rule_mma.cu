/* delta_rule_mma.cu - the gated delta rule in chunks, on tensor cores: bf16 operands, fp32 sums and state.
 *
 * The formulas and the order of work are those of delta_rule.cu.  Heads are padded to D columns of zeros, short chunks to 64 rows
 * of zeros (beta 0, no further decay), so that every product has one size.  Arrays in scratch are bf16: each is an operand of a
 * product.  The state itself stays in registers, in fp32, while a block walks along a document.  Scales that differ by row go to
 * the fp32 side of a product, or to the operand that has to be rounded anyway.
 *
 * Work of a row and value head, D = 128: forward 0.2 MFLOP, backward 0.6.  Bytes of scratch per row and value head: forward 1.6
 * kB written and read, backward 2.5 kB more. */
#include "ops/attention_tiles.cuh"
#include "ops/delta_rule.cuh"

enum { ROWS = MT_DELTA_ROWS, SQUARE = ROWS + 8 }; /* rows of a tile of 64 columns */

template <int D> constexpr int tile_row = D + 8;
template <int D> constexpr int tile = ROWS *tile_row<D>; /* elements */
enum { SQUARE_TILE = ROWS * SQUARE };

/* -- products of a warp ------------------------------------------------------------------------------ */

/* acc [16, N] += a b.  a: rows of [16, K], or stored transposed as [K, 16]; b: [K, N], or stored transposed as [N, K]. */
template <int N, int K, int LDA, int LDB>
__device__ __forceinline__ void times_transposed(float (&acc)[N / 8][4], const bf16 *a, const bf16 *b, int lane)
{
    const bf16 *pa = a_rows<LDA>(a, lane), *pb = b_rows<LDB>(b, lane);
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t ra[4], rb[4];
        ldmatrix(ra, pa + k);
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            ldmatrix(rb, pb + n * LDB + k);
            mma(acc[n / 8], ra, rb[0], rb[1]);
            mma(acc[n / 8 + 1], ra, rb[2], rb[3]);
        }
    }
}

/* One step of 16 of the two below: a in registers. */
template <int N, int LDB>
__device__ __forceinline__ void step_times(float (&acc)[N / 8][4], const uint32_t (&ra)[4], const bf16 *pb)
{
#pragma unroll
    for (int n = 0; n < N; n += 16) {
        uint32_t rb[4];
        ldmatrix_trans(rb, pb + n);
        mma(acc[n / 8], ra, rb[0], rb[1]);
        mma(acc[n / 8 + 1], ra, rb[2], rb[3]);
    }
}

template <int N, int K, int LDA, int LDB>
__device__ __forceinline__ void times(float (&acc)[N / 8][4], const bf16 *a, const bf16 *b, int lane)
{
    const bf16 *pa = a_rows<LDA>(a, lane), *pb = a_rows<LDB>(b, lane);
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t ra[4];
        ldmatrix(ra, pa + k);
        step_times<N, LDB>(acc, ra, pb + k * LDB);
    }
}

template <int N, int K, int LDA, int LDB>
__device__ __forceinline__ void transposed_times(float (&acc)[N / 8][4], const bf16 *a, const bf16 *b, int lane)
{
    const bf16 *pa = b_rows<LDA>(a, lane), *pb = a_rows<LDB>(b, lane);
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t ra[4];
        ldmatrix_trans(ra, pa + k * LDA);
        step_times<N, LDB>(acc, ra, pb + k * LDB);
    }
}

/* -- moving tiles ------------------------------------------------------------------------------------ */

/* `rows` rows of `columns` elements (a multiple of 8) from memory to a tile of ROWS x D; zeros beyond. */
template <int D, int LD, int THREADS>
__device__ __forceinline__ void fetch(bf16 *dst, const bf16 *src, int64_t ld, int rows, int columns)
{
#pragma unroll
    for (int at = threadIdx.x; at < ROWS * (D / 8); at += THREADS) {
        int r = at / (D / 8), c = at % (D / 8) * 8;
        bool wanted = r < rows && c < columns;
        copy16(dst + r * LD + c, wanted ? src + r * ld + c : src, wanted);
    }
}

/* N rows of a state of D x D. */
template <int N, int D, int THREADS> __device__ __forceinline__ void fetch_state(bf16 *dst, const bf16 *src)
{
#pragma unroll
    for (int at = threadIdx.x; at < N * (D / 8); at += THREADS) {
        int r = at / (D / 8), c = at % (D / 8) * 8;
        copy16(dst + r * tile_row<D> + c, src + r * D + c, true);
    }
}

/* BV columns of a tile to a state of D x D. */
template <int D, int BV, int THREADS> __device__ __forceinline__ void store_state(bf16 *dst, const bf16 *src)
{
#pragma unroll
    for (int at = threadIdx.x; at < D * (BV / 8); at += THREADS) {
        int r = at / (BV / 8), c = at % (BV / 8) * 8;
        store<bf16, 8>(dst + r * D + c, load<bf16, 8>(src + r * (BV + 8) + c));
    }
}

/* Results of a warp, 16 rows of N columns, rounded into a tile; `at` is its place for the warp's first row and column. */
template <int N, int LD> __device__ __forceinline__ void put(bf16 *at, const float (&acc)[N / 8][4], int lane)
{
    bf16 *p = at + lane / 4 * LD + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        *(uint32_t *)(p + n * 8) = pack(acc[n][0], acc[n][1]);
        *(uint32_t *)(p + 8 * LD + n * 8) = pack(acc[n][2], acc[n][3]);
    }
}

/* A warp's 16 rows of a tile to memory, 16 bytes at a time: `rows` of them, `columns` wide. */
template <int N, int LD>
__device__ __forceinline__ void take_out(bf16 *dst, int64_t ld, const bf16 *src, int rows, int columns, int lane)
{
    __syncwarp();
#pragma unroll
    for (int at = lane; at < 16 * (N / 8); at += 32) {
        int r = at / (N / 8), c = at % (N / 8) * 8;
        if (r < rows && c < columns) store<bf16, 8>(dst + r * ld + c, load<bf16, 8>(src + r * LD + c));
    }
    __syncwarp();
}

__device__ __forceinline__ float2 pair_at(const bf16 *p)
{
    __nv_bfloat162 v = *(const __nv_bfloat162 *)p;
    return make_float2(__bfloat162float(v.x), __bfloat162float(v.y));
}

/* Sum over the four lanes that share a row of results. */
__device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* gamma and beta of a chunk in shared memory; rows past its end decay no further and add nothing. */
struct gates {
    float gamma[ROWS], beta[ROWS];

    __device__ __forceinline__ void load(const delta_group &g, mt_delta_chunk c, int head)
    {
        int i = threadIdx.x;
        if (i >= ROWS) return;
        gamma[i] = *g.gamma(head, c.row + (i < c.rows ? i : c.rows - 1));
        beta[i] = i < c.rows ? *g.beta(head, c.row + i) : 0.0f;
    }
    __device__ __forceinline__ float last(void) const { return gamma[ROWS - 1]; }
};

/* -- prepare: a chunk and value head, four warps of 16 rows ------------------------------------------- */

enum { PREPARE_THREADS = 128 };

template <int D> struct prepare_shared {
    bf16 q[tile<D>], k[tile<D>]; /* q: then v */
    float t[ROWS][ROWS + 4];     /* A, then T */
    gates of;
};

/* A warp divides its 16 rows of a tile by their lengths. */
template <int D> __device__ __forceinline__ void norm_rows(bf16 *rows, float scale, int lane)
{
#pragma unroll 4
    for (int r = 0; r < 16; r++) {
        float2 x[D / 64];
        float sum = 0;
#pragma unroll
        for (int n = 0; n < D / 64; n++) {
            x[n] = pair_at(rows + r * tile_row<D> + n * 64 + lane * 2);
            sum += x[n].x * x[n].x + x[n].y * x[n].y;
        }
        float by = rsqrtf(warp_sum(sum) + 1e-6f) * scale;
#pragma unroll
        for (int n = 0; n < D / 64; n++)
            *(uint32_t *)(rows + r * tile_row<D> + n * 64 + lane * 2) = pack(x[n].x * by, x[n].y * by);
    }
}

/* Results for a warp's rows from row0 on, times the decay between row and column; zeros where the column comes after the row, or
 * is the row itself and `strict`.  To memory, and times beta to A if there is one. */
template <int D>
__device__ __forceinline__ void write_square(bf16 *dst, const float (&acc)[8][4], prepare_shared<D> &s, bool strict, int row0,
                                             int rows, int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int i = row0 + lane / 4 + half * 8;
        float gamma = s.of.gamma[i], beta = s.of.beta[i];
#pragma unroll
        for (int n = 0; n < 8; n++) {
            int j = n * 8 + lane % 4 * 2;
            float x = i >= j + strict ? acc[n][2 * half] * __expf(gamma - s.of.gamma[j]) : 0.0f,
                  y = i >= j + 1 + strict ? acc[n][2 * half + 1] * __expf(gamma - s.of.gamma[j + 1]) : 0.0f;
            if (i < rows) *(uint32_t *)(dst + (int64_t)i * ROWS + j) = pack(x, y);
            if (strict) s.t[i][j] = beta * x, s.t[i][j + 1] = beta * y;
        }
    }
}

/* T = (I + A)^-1, a column a thread. */
template <int D> __device__ __forceinline__ void invert(prepare_shared<D> &s, bf16 *dst, int rows)
{
    float x[ROWS];
    int j = threadIdx.x;
    if (j < ROWS) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float sum[4] = { i == j ? 1.0f : 0.0f, 0, 0, 0 };
#pragma unroll
            for (int k = 0; k < i; k++) sum[k % 4] -= s.t[i][k] * x[k];
            x[i] = sum[0] + sum[1] + (sum[2] + sum[3]);
        }
    }
    __syncthreads();
    if (j < ROWS) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            s.t[i][j] = x[i];
            if (i < rows) dst[i * ROWS + j] = from_f32<bf16>(x[i]);
        }
    }
    __syncthreads();
}

/* acc [16, D] = T diag(by) b for the warp's rows from row0 on; by: beta, times e^gamma if `decayed`. */
template <int D>
__device__ __forceinline__ void times_inverse(float (&acc)[D / 8][4], const prepare_shared<D> &s, const bf16 *b, bool decayed,
                                              int row0, int lane)
{
    const bf16 *pb = a_rows<tile_row<D>>(b, lane);
    clear<D / 8>(acc);
#pragma unroll
    for (int k = 0; k < ROWS; k += 16) {
        uint32_t ra[4];
#pragma unroll
        for (int n = 0; n < 4; n++) {
            int i = row0 + lane / 4 + n % 2 * 8, j = k + lane % 4 * 2 + n / 2 * 8;
            float x = s.of.beta[j], y = s.of.beta[j + 1];
            if (decayed) x *= __expf(s.of.gamma[j]), y *= __expf(s.of.gamma[j + 1]);
            ra[n] = pack(s.t[i][j] * x, s.t[i][j + 1] * y);
        }
        step_times<D, tile_row<D>>(acc, ra, pb + k * tile_row<D>);
    }
}

template <int D> __global__ void __launch_bounds__(PREPARE_THREADS) prepare_kernel(delta_group g)
{
    extern __shared__ __align__(16) unsigned char memory[];
    prepare_shared<D> &s = *(prepare_shared<D> *)memory;
    constexpr int LD = tile_row<D>;
    const mt_delta_rule &a = g.a;
    mt_delta_chunk c = g.chunk(blockIdx.x);
    int h = blockIdx.y, key = h / g.per_key, head = g.first_head + h, warp = threadIdx.x / 32, lane = threadIdx.x % 32,
        row0 = warp * 16;
    if (!c.rows) return;
    fetch<D, LD, PREPARE_THREADS>(s.q, (const bf16 *)a.q + c.row * a.ldq + (g.first_key + key) * a.Dk, a.ldq, c.rows, (int)a.Dk);
    fetch<D, LD, PREPARE_THREADS>(s.k, (const bf16 *)a.k + c.row * a.ldk + (g.first_key + key) * a.Dk, a.ldk, c.rows, (int)a.Dk);
    copies_commit();
    s.of.load(g, c, head);
    copies_arrive<0>();
    norm_rows<D>(s.q + row0 * LD, rsqrtf((float)a.Dk), lane);
    norm_rows<D>(s.k + row0 * LD, 1.0f, lane);
    if (h % g.per_key == 0) {
        take_out<D, LD>(g.rows<bf16>(g.l.q, key, c.row + row0, D), D, s.q + row0 * LD, c.rows - row0, D, lane);
        take_out<D, LD>(g.rows<bf16>(g.l.k, key, c.row + row0, D), D, s.k + row0 * LD, c.rows - row0, D, lane);
    }
    __syncthreads();
    float square[8][4], acc[D / 8][4];
    clear<8>(square);
    times_transposed<ROWS, D, LD, LD>(square, s.q + row0 * LD, s.k, lane);
    write_square<D>(g.rows<bf16>(g.l.p, h, c.row, ROWS), square, s, false, row0, c.rows, lane);
    __syncthreads();
    fetch<D, LD, PREPARE_THREADS>(s.q, (const bf16 *)a.v + c.row * a.ldv + head * a.Dv, a.ldv, c.rows, (int)a.Dv);
    copies_commit();
    clear<8>(square);
    times_transposed<ROWS, D, LD, LD>(square, s.k + row0 * LD, s.k, lane);
    write_square<D>(g.rows<bf16>(g.l.a, h, c.row, ROWS), square, s, true, row0, c.rows, lane);
    copies_arrive<0>();
    invert<D>(s, g.rows<bf16>(g.l.t, h, c.row, ROWS), c.rows);
    times_inverse<D>(acc, s, s.k, true, row0, lane);
    __syncthreads(); /* k is free: results leave through the warp's rows of it */
    put<D, LD>(s.k + row0 * LD, acc, lane);
    take_out<D, LD>(g.rows<bf16>(g.l.w, h, c.row + row0, D), D, s.k + row0 * LD, c.rows - row0, D, lane);
    times_inverse<D>(acc, s, s.q, false, row0, lane);
    put<D, LD>(s.k + row0 * LD, acc, lane);
    take_out<D, LD>(g.rows<bf16>(g.l.v, h, c.row + row0, D), D, s.k + row0 * LD, c.rows - row0, D, lane);
}

/* -- states: a document, value head and BV columns, chunks in order ------------------------------------ */

/* What a block that walks along a document waits for, it waits for once a chunk: all that a chunk needs comes in while the one
 * before it is worked on, and where it is follows from the document alone. */
enum { WALK_THREADS = 128 };

struct walk {
    int h, head, col;   /* value head in the group and in all, first column */
    int row, end, slot; /* the document's first row, its end, its first slot */
    int n_chunks;

    __device__ __forceinline__ walk(const delta_group &g, int columns)
    {
        int d = blockIdx.x;
        h = blockIdx.y, head = g.first_head + h, col = (int)blockIdx.z * columns;
        row = g.a.doc_start[d], end = g.a.doc_start[d + 1], slot = g.at<const int>(g.l.first_slot)[d];
        n_chunks = (end - row + ROWS - 1) / ROWS;
    }
    __device__ __forceinline__ mt_delta_chunk chunk(int n) const
    {
        int left = end - row - n * ROWS;
        return { row + n * ROWS, left < ROWS ? left : ROWS, n ? slot + n - 1 : -1, left > ROWS ? slot + n : -1 };
    }
};

/* gamma of a chunk's rows, by the first 64 threads; 0 past its end. */
__device__ __forceinline__ void fetch_gamma(float *dst, const delta_group &g, mt_delta_chunk c, int head)
{
    int i = threadIdx.x;
    if (i < ROWS) copy4(dst + i, g.gamma(head, c.row + (i < c.rows ? i : 0)), i < c.rows);
}

template <int D, int BV> struct states_shared {
    bf16 w[2][tile<D>], k[2][tile<D>]; /* this chunk's and the next one's */
    bf16 u[2][ROWS * (BV + 8)];
    bf16 s[D * (BV + 8)], v[ROWS * (BV + 8)];
    float gamma[2][ROWS];
};

template <int D, int BV>
__device__ __forceinline__ void fetch_chunk(const delta_group &g, states_shared<D, BV> &s, const walk &at, int n)
{
    mt_delta_chunk c = at.chunk(n);
    fetch<D, tile_row<D>, WALK_THREADS>(s.w[n & 1], g.rows<bf16>(g.l.w, at.h, c.row, D), D, c.rows, D);
    fetch<D, tile_row<D>, WALK_THREADS>(s.k[n & 1], g.rows<bf16>(g.l.k, at.h / g.per_key, c.row, D), D, c.rows, D);
    fetch<BV, BV + 8, WALK_THREADS>(s.u[n & 1], g.rows<bf16>(g.l.v, at.h, c.row, D) + at.col, D, c.rows, BV);
    fetch_gamma(s.gamma[n & 1], g, c, at.head);
}

/* A warp's rows of a state: MT blocks of 16, from row `warp` D / 4 on. */
template <int MT, int BV>
__device__ __forceinline__ void put_state(bf16 *dst, const float (&state)[MT][BV / 8][4], int warp, int lane)
{
#pragma unroll
    for (int m = 0; m < MT; m++) put<BV, BV + 8>(dst + (warp * MT + m) * 16 * (BV + 8), state[m], lane);
}

template <int MT, int BV> __device__ __forceinline__ void scale_state(float (&state)[MT][BV / 8][4], float by)
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < BV / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) state[m][n][e] *= by;
}

/* The rows' contribution to the state, U - W S: to memory in place of U, and times the remaining decay to the tile `v`. */
template <int D, int BV>
__device__ __forceinline__ void write_added(const delta_group &g, states_shared<D, BV> &s, const float (&acc)[BV / 8][4],
                                            const walk &at, int chunk, int warp, int lane)
{
    mt_delta_chunk c = at.chunk(chunk);
    const float *gamma = s.gamma[chunk & 1], last = gamma[c.rows - 1];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int i = warp * 16 + lane / 4 + half * 8, in_row = i * (BV + 8) + lane % 4 * 2;
        float left = i < c.rows ? __expf(last - gamma[i]) : 0.0f;
        bf16 *dst = g.rows<bf16>(g.l.v, at.h, c.row + i, D) + at.col + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < BV / 8; n++) {
            float2 x = pair_at(s.u[chunk & 1] + in_row + n * 8);
            x.x -= acc[n][2 * half], x.y -= acc[n][2 * half + 1];
            if (i < c.rows) *(uint32_t *)(dst + n * 8) = pack(x.x, x.y);
            *(uint32_t *)(s.v + in_row + n * 8) = pack(x.x * left, x.y * left);
        }
    }
}

template <int D, int BV> __global__ void __launch_bounds__(WALK_THREADS) states_kernel(delta_group g)
{
    extern __shared__ __align__(16) unsigned char memory[];
    states_shared<D, BV> &s = *(states_shared<D, BV> *)memory;
    constexpr int LD = tile_row<D>, LDV = BV + 8, MT = D / 64;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    walk at(g, BV);
    float state[MT][BV / 8][4] = {};
    if (at.n_chunks) fetch_chunk<D, BV>(g, s, at, 0);
    copies_commit();
    for (int n = 0; n < at.n_chunks; n++) {
        mt_delta_chunk c = at.chunk(n);
        float acc[BV / 8][4];
        put_state<MT, BV>(s.s, state, warp, lane);
        copies_arrive<0>();
        if (n + 1 < at.n_chunks) fetch_chunk<D, BV>(g, s, at, n + 1);
        copies_commit();
        clear<BV / 8>(acc);
        if (n) times<BV, D, LD, LDV>(acc, s.w[n & 1] + warp * 16 * LD, s.s, lane);
        write_added<D, BV>(g, s, acc, at, n, warp, lane);
        if (n) store_state<D, BV, WALK_THREADS>(g.state<bf16>(g.l.s, at.h, c.before) + at.col, s.s);
        __syncthreads();
        if (n + 1 == at.n_chunks) break;
        scale_state<MT, BV>(state, __expf(s.gamma[n & 1][ROWS - 1]));
#pragma unroll
        for (int m = 0; m < MT; m++) transposed_times<BV, ROWS, LD, LDV>(state[m], s.k[n & 1] + (warp * MT + m) * 16, s.v, lane);
    }
}

/* -- output: a chunk and value head, four warps of 16 rows -------------------------------------------- */

enum { OUTPUT_THREADS = 128 };

template <int D> struct output_shared {
    bf16 q[tile<D>], v[tile<D>], s[D * tile_row<D>], p[SQUARE_TILE];
};

template <int D> __global__ void __launch_bounds__(OUTPUT_THREADS) output_kernel(delta_group g)
{
    extern __shared__ __align__(16) unsigned char memory[];
    output_shared<D> &s = *(output_shared<D> *)memory;
    constexpr int LD = tile_row<D>;
    const mt_delta_rule &a = g.a;
    mt_delta_chunk c = g.chunk(blockIdx.x);
    int h = blockIdx.y, head = g.first_head + h, row0 = (int)threadIdx.x / 32 * 16, lane = threadIdx.x % 32;
    if (!c.rows) return;
    if (c.before >= 0) {
        fetch<D, LD, OUTPUT_THREADS>(s.q, g.rows<bf16>(g.l.q, h / g.per_key, c.row, D), D, c.rows, D);
        fetch_state<D, D, OUTPUT_THREADS>(s.s, g.state<bf16>(g.l.s, h, c.before));
    }
    fetch<D, LD, OUTPUT_THREADS>(s.v, g.rows<bf16>(g.l.v, h, c.row, D), D, c.rows, D);
    fetch<ROWS, SQUARE, OUTPUT_THREADS>(s.p, g.rows<bf16>(g.l.p, h, c.row, ROWS), ROWS, c.rows, ROWS);
    copies_commit();
    copies_arrive<0>();
    float acc[D / 8][4];
    clear<D / 8>(acc);
    if (c.before >= 0) {
        times<D, D, LD, LD>(acc, s.q + row0 * LD, s.s, lane);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int i = row0 + lane / 4 + half * 8;
            float grown = i < c.rows ? __expf(*g.gamma(head, c.row + i)) : 0.0f;
#pragma unroll
            for (int n = 0; n < D / 8; n++) acc[n][2 * half] *= grown, acc[n][2 * half + 1] *= grown;
        }
    }
    times<D, ROWS, SQUARE, LD>(acc, s.p + row0 * SQUARE, s.v, lane);
    put<D, LD>(s.q + row0 * LD, acc, lane);
    take_out<D, LD>((bf16 *)a.o + (c.row + row0) * a.ldo + head * a.Dv, a.ldo, s.q + row0 * LD, c.rows - row0, (int)a.Dv, lane);
}

/* -- gradients of states: like states, chunks in reverse ----------------------------------------------- */

/* STAGES: 2 brings in the next chunk's tiles while it works on this one's. */
template <int D, int BV, int STAGES> struct dstates_shared {
    bf16 q[STAGES][tile<D>], k[STAGES][tile<D>], w[STAGES][tile<D>], p[STAGES][SQUARE_TILE];
    bf16 d_o[STAGES][ROWS * (BV + 8)];
    bf16 grown[ROWS * (BV + 8)];                /* e^gamma dO */
    bf16 ds[D * (BV + 8)], dv[ROWS * (BV + 8)]; /* dv: with the other sign */
    float gamma[STAGES][ROWS];
};

template <int D, int BV, int STAGES>
__device__ __forceinline__ void fetch_chunk_back(const delta_group &g, dstates_shared<D, BV, STAGES> &s, const walk &at, int n)
{
    constexpr int LD = tile_row<D>;
    mt_delta_chunk c = at.chunk(n);
    int stage = n % STAGES, key = at.h / g.per_key;
    fetch<D, LD, WALK_THREADS>(s.q[stage], g.rows<bf16>(g.l.q, key, c.row, D), D, c.rows, D);
    fetch<D, LD, WALK_THREADS>(s.k[stage], g.rows<bf16>(g.l.k, key, c.row, D), D, c.rows, D);
    fetch<D, LD, WALK_THREADS>(s.w[stage], g.rows<bf16>(g.l.w, at.h, c.row, D), D, c.rows, D);
    fetch<ROWS, SQUARE, WALK_THREADS>(s.p[stage], g.rows<bf16>(g.l.p, at.h, c.row, ROWS), ROWS, c.rows, ROWS);
    fetch<BV, BV + 8, WALK_THREADS>(s.d_o[stage], (const bf16 *)g.a.d_o + c.row * g.a.ldo + at.head * g.a.Dv + at.col, g.a.ldo,
                                    c.rows, (int)g.a.Dv - at.col);
    fetch_gamma(s.gamma[stage], g, c, at.head);
}

/* e^gamma dO of a chunk. */
template <int BV> __device__ __forceinline__ void grow(bf16 *dst, const bf16 *src, const float *gamma)
{
#pragma unroll
    for (int at = threadIdx.x; at < ROWS * (BV / 2); at += WALK_THREADS) {
        int i = at / (BV / 2), j = at % (BV / 2) * 2;
        float by = __expf(gamma[i]);
        float2 x = pair_at(src + i * (BV + 8) + j);
        *(uint32_t *)(dst + i * (BV + 8) + j) = pack(x.x * by, x.y * by);
    }
}

/* dV^ = P' dO + left K dS', to memory and, negated, to a tile. */
template <int D, int BV>
__device__ __forceinline__ void write_dadded(const delta_group &g, bf16 *negated, const float (&direct)[BV / 8][4],
                                             const float (&through)[BV / 8][4], const float *gamma, const walk &at,
                                             mt_delta_chunk c, int warp, int lane)
{
    const float last = gamma[c.rows - 1];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int i = warp * 16 + lane / 4 + half * 8;
        float left = i < c.rows ? __expf(last - gamma[i]) : 0.0f;
        bf16 *dst = g.rows<bf16>(g.l.dv, at.h, c.row + i, D) + at.col + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < BV / 8; n++) {
            float x = direct[n][2 * half] + left * through[n][2 * half],
                  y = direct[n][2 * half + 1] + left * through[n][2 * half + 1];
            if (i < c.rows) *(uint32_t *)(dst + n * 8) = pack(x, y);
            *(uint32_t *)(negated + i * (BV + 8) + n * 8 + lane % 4 * 2) = pack(-x, -y);
        }
    }
}

template <int D, int BV, int STAGES> __global__ void __launch_bounds__(WALK_THREADS) dstates_kernel(delta_group g)
{
    extern __shared__ __align__(16) unsigned char memory[];
    dstates_shared<D, BV, STAGES> &s = *(dstates_shared<D, BV, STAGES> *)memory;
    constexpr int LD = tile_row<D>, LDV = BV + 8, MT = D / 64;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    walk at(g, BV);
    float ds[MT][BV / 8][4] = {};
    if (at.n_chunks) fetch_chunk_back<D, BV, STAGES>(g, s, at, at.n_chunks - 1);
    copies_commit();
    for (int n = at.n_chunks - 1; n >= 0; n--) {
        mt_delta_chunk c = at.chunk(n);
        float direct[BV / 8][4], through[BV / 8][4];
        int stage = n % STAGES;
        put_state<MT, BV>(s.ds, ds, warp, lane);
        copies_arrive<0>();
        if (STAGES == 2 && n) fetch_chunk_back<D, BV, STAGES>(g, s, at, n - 1);
        copies_commit();
        grow<BV>(s.grown, s.d_o[stage], s.gamma[stage]);
        clear<BV / 8>(direct);
        clear<BV / 8>(through);
        transposed_times<BV, ROWS, SQUARE, LDV>(direct, s.p[stage] + warp * 16, s.d_o[stage], lane);
        if (c.after >= 0) times<BV, D, LD, LDV>(through, s.k[stage] + warp * 16 * LD, s.ds, lane);
        write_dadded<D, BV>(g, s.dv, direct, through, s.gamma[stage], at, c, warp, lane);
        if (c.after >= 0) store_state<D, BV, WALK_THREADS>(g.state<bf16>(g.l.ds, at.h, c.after) + at.col, s.ds);
        __syncthreads();
        if (n == 0) break;
        scale_state<MT, BV>(ds, __expf(s.gamma[stage][c.rows - 1]));
#pragma unroll
        for (int m = 0; m < MT; m++) {
            transposed_times<BV, ROWS, LD, LDV>(ds[m], s.q[stage] + (warp * MT + m) * 16, s.grown, lane);
            transposed_times<BV, ROWS, LD, LDV>(ds[m], s.w[stage] + (warp * MT + m) * 16, s.dv, lane);
        }
        if (STAGES == 1) {
            __syncthreads(); /* the tiles are free */
            fetch_chunk_back<D, BV, STAGES>(g, s, at, n - 1);
            copies_commit();
        }
    }
}

/* -- the rest: a chunk and key head, eight warps of 16 rows and half of the columns each ----------------- */

enum { REST_THREADS = 256 };

/* A warp has 32 of every 64 columns.  On Hopper two blocks fit a multiprocessor: while one waits, the other works.  SMALL fits
 * GPUs with 99 KiB of shared memory: it brings in a state 64 rows at a time. */
template <int D, bool SMALL> struct rest_shared {
    bf16 v[tile<D>];                        /* dV^, then V^ */
    bf16 dr[tile<D>], d_o[tile<D>];         /* then k and q */
    bf16 s[(SMALL ? 64 : D) * tile_row<D>]; /* S, then dS' */
    bf16 m[SQUARE_TILE], f[SQUARE_TILE];    /* m: first T */
    gates of;
    /* Sums over the columns of a row, a half each: dR . V, K . Y, Q . dO S', K . V^ dS'', E + G, dA o K K' o D. */
    float v_sum[2][ROWS], y_sum[2][ROWS], q_sum[2][ROWS], z_sum[2][ROWS], across[2][ROWS], beta_sum[2][ROWS];
    float down[4][ROWS]; /* of E + G over 16 rows each, as across without the diagonal */
    float warp_sums[REST_THREADS / 32], two[2][2];
};

/* The work of a block, and the places of a warp's results: rows row(0) and row(1), columns col(pass, n) and the next. */
struct spot {
    mt_delta_chunk c;
    int h, head; /* value head, in the group and in all */
    int key;     /* key head in the group */
    int warp, lane, row0, half;

    __device__ __forceinline__ int row(int e) const { return row0 + lane / 4 + e * 8; }
    __device__ __forceinline__ int first(int pass) const { return pass * 64 + half * 32; }
    __device__ __forceinline__ int col(int pass, int n) const { return first(pass) + n * 8 + lane % 4 * 2; }
    __device__ __forceinline__ void put_sum(float (*sums)[ROWS], int e, float x) const
    {
        x = quad_sum(x);
        if (lane % 4 == 0) sums[half][row(e)] = x;
    }
};

/* dR = T' dV^: to a tile, and as dV = beta dR to memory. */
template <int D, bool SMALL>
__device__ __forceinline__ void make_dr(const delta_group &g, rest_shared<D, SMALL> &s, const spot &p)
{
    constexpr int LD = tile_row<D>;
    const mt_delta_rule &a = g.a;
    float sum[2] = {};
#pragma unroll
    for (int pass = 0; pass < D / 64; pass++) {
        float acc[4][4];
        clear<4>(acc);
        transposed_times<32, ROWS, SQUARE, LD>(acc, s.m + p.row0, s.v + p.first(pass), p.lane);
        put<32, LD>(s.dr + p.row0 * LD + p.first(pass), acc, p.lane);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int i = p.row(e);
            float beta = s.of.beta[i];
            const bf16 *v = (const bf16 *)a.v + (p.c.row + i) * a.ldv + p.head * a.Dv;
            bf16 *dv = (bf16 *)a.dv + (p.c.row + i) * a.ld_d + p.head * a.Dv;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                int j = p.col(pass, n);
                if (i >= p.c.rows || j >= a.Dv) continue;
                float2 in = pair_at(v + j);
                sum[e] += acc[n][2 * e] * in.x + acc[n][2 * e + 1] * in.y;
                *(uint32_t *)(dv + j) = pack(beta * acc[n][2 * e], beta * acc[n][2 * e + 1]);
            }
        }
    }
    p.put_sum(s.v_sum, 0, sum[0]);
    p.put_sum(s.v_sum, 1, sum[1]);
}

/* One pass of grad += diag(by) a S', and of the rows' sums of that times the rows of `other`, q or k. */
template <int D, bool SMALL>
__device__ __forceinline__ void through_state(rest_shared<D, SMALL> &s, float (&grad)[4][4], const bf16 *a, const bf16 *other,
                                              const float (&by)[2], float (&sum)[2], int pass, const spot &p)
{
    constexpr int LD = tile_row<D>;
    float acc[4][4];
    clear<4>(acc);
    times_transposed<32, D, LD, LD>(acc, a + p.row0 * LD, s.s + (SMALL ? p.half * 32 : p.first(pass)) * LD, p.lane);
#pragma unroll
    for (int e = 0; e < 2; e++)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float x = acc[n][2 * e] * by[e], y = acc[n][2 * e + 1] * by[e];
            grad[n][2 * e] += x;
            grad[n][2 * e + 1] += y;
            if (p.row(e) >= p.c.rows) continue;
            float2 o = pair_at(other + p.row(e) * D + p.col(pass, n));
            sum[e] += x * o.x + y * o.y;
        }
}

/* Rows of a state for a pass, or all of them. */
template <int D, bool SMALL>
__device__ __forceinline__ void fetch_rows_of_state(rest_shared<D, SMALL> &s, const bf16 *src, int pass)
{
    fetch_state<SMALL ? 64 : D, D, REST_THREADS>(s.s, src + (SMALL ? pass * 64 * D : 0));
}

/* Those of dS'; and this thread's share of <S, dS'> in them. */
template <int D, bool SMALL>
__device__ __forceinline__ float take_dstate(rest_shared<D, SMALL> &s, const bf16 *ds, const bf16 *before, int pass)
{
    constexpr int N = SMALL ? 64 : D;
    float sum = 0;
#pragma unroll 4
    for (int at = threadIdx.x; at < N * (D / 8); at += REST_THREADS) {
        int r = at / (D / 8), c = at % (D / 8) * 8, from = (SMALL ? pass * 64 + r : r) * D + c;
        vec<bf16, 8> x = load<bf16, 8>(ds + from);
        store<bf16, 8>(s.s + r * tile_row<D> + c, x);
        if (!before) continue;
        vec<bf16, 8> old = load<bf16, 8>(before + from);
#pragma unroll
        for (int e = 0; e < 8; e++) sum += to_f32(x.at[e]) * to_f32(old.at[e]);
    }
    return sum;
}

/* dA and dP, a half of their columns: M and beta F to tiles, and the sums of E + G and of dA o K K' o D. */
template <int D, bool SMALL>
__device__ __forceinline__ void make_squares(const delta_group &g, rest_shared<D, SMALL> &s, const spot &p)
{
    constexpr int LD = tile_row<D>;
    const int col0 = p.half * 32;
    float da[4][4], dp[4][4], down[4][2] = {};
    clear<4>(da);
    clear<4>(dp);
    times_transposed<32, D, LD, LD>(da, s.dr + p.row0 * LD, s.v + col0 * LD, p.lane);
    times_transposed<32, D, LD, LD>(dp, s.d_o + p.row0 * LD, s.v + col0 * LD, p.lane);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int i = p.row(e);
        float gamma = s.of.gamma[i], beta = s.of.beta[i], across = 0, beta_sum = 0;
        const bf16 *A = g.rows<bf16>(g.l.a, p.h, p.c.row + i, ROWS), *P = g.rows<bf16>(g.l.p, p.h, p.c.row + i, ROWS);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            int j0 = p.col(0, n);
            float2 a = make_float2(0, 0), q = a;
            if (i < p.c.rows) a = pair_at(A + j0), q = pair_at(P + j0); /* a is 0 unless i > j, q unless i >= j */
            float m[2], f[2];
#pragma unroll
            for (int x = 0; x < 2; x++) {
                int j = j0 + x;
                float decay = i >= j ? __expf(gamma - s.of.gamma[j]) : 0.0f, dA = -da[n][2 * e + x], dP = dp[n][2 * e + x];
                float g0 = dA * (x ? a.y : a.x), both = i == j ? 0.0f : dP * (x ? q.y : q.x) + beta * g0;
                m[x] = dP * decay;
                f[x] = i > j ? beta * dA * decay : 0.0f;
                across += both;
                beta_sum += g0;
                down[n][x] += both;
            }
            *(uint32_t *)(s.m + i * SQUARE + j0) = pack(m[0], m[1]);
            *(uint32_t *)(s.f + i * SQUARE + j0) = pack(f[0], f[1]);
        }
        p.put_sum(s.across, e, across);
        p.put_sum(s.beta_sum, e, beta_sum);
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int x = 0; x < 2; x++) {
            float sum = down[n][x];
#pragma unroll
            for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
            if (p.lane < 4) s.down[p.row0 / 16][p.col(0, n) + x] = sum;
        }
}

/* da, db and the chunk's shares of dA_log and ddt_bias, by the first two warps.  states: e^gamma_C <S, dS'>. */
template <int D, bool SMALL>
__device__ __forceinline__ void write_gates(const delta_group &g, rest_shared<D, SMALL> &s, const spot &p, float states)
{
    const mt_delta_rule &a = g.a;
    int i = threadIdx.x;
    float onward = 0, z_before = 0; /* dgamma of this row and those after it in its half, z of those before it there */
    if (i < ROWS) {
        float ky = s.y_sum[0][i] + s.y_sum[1][i]; /* has the factor -beta e^gamma */
        float v = s.v_sum[0][i] + s.v_sum[1][i], q = s.q_sum[0][i] + s.q_sum[1][i], z = s.z_sum[0][i] + s.z_sum[1][i];
        float down = s.down[0][i] + s.down[1][i] + (s.down[2][i] + s.down[3][i]), beta = s.of.beta[i];
        float dgamma = q + (s.across[0][i] + s.across[1][i]) - down + ky;
        float dbeta = v + (beta > 0 ? ky / beta : 0.0f) + (s.beta_sum[0][i] + s.beta_sum[1][i]);
        if (i < p.c.rows) ((bf16 *)a.db)[(p.c.row + i) * a.ld_dab + p.head] = from_f32<bf16>(dbeta * beta * (1.0f - beta));
        onward = dgamma;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            float after = __shfl_down_sync(0xffffffffu, onward, step), before = __shfl_up_sync(0xffffffffu, z, step);
            if (i % 32 + step < 32) onward += after;
            if (i % 32 >= step) z += before;
        }
        z_before = __shfl_up_sync(0xffffffffu, z, 1);
        if (i % 32 == 0) z_before = 0, s.two[1][i / 32] = onward;
        if (i % 32 == 31) s.two[0][i / 32] = z;
    }
    __syncthreads();
    float da = 0, log = 0;
    if (i < p.c.rows) {
        float dg = states + (z_before + onward) + (i < 32 ? s.two[1][1] : s.two[0][0]);
        float x = to_f32(((const bf16 *)a.a)[(p.c.row + i) * a.ld_ab + p.head]) + a.dt_bias[p.head], e = -expf(a.A_log[p.head]);
        da = dg * e * delta_softplus_slope(x);
        log = dg * e * delta_softplus(x);
        ((bf16 *)a.da)[(p.c.row + i) * a.ld_dab + p.head] = from_f32<bf16>(da);
    }
    __syncthreads(); /* two was read */
    if (i < ROWS) {
        da = warp_sum(da), log = warp_sum(log);
        if (i % 32 == 0) s.two[0][i / 32] = log, s.two[1][i / 32] = da;
    }
    __syncthreads();
    float *sums = g.at<float>(g.l.sums) + (int64_t)blockIdx.x * 2 * a.H + p.head;
    if (i == 0) sums[0] = s.two[0][0] + s.two[0][1], sums[a.H] = s.two[1][0] + s.two[1][1];
}

/* Gradient of x from that of y = scale x / |x|; leaves through a tile that is free. */
template <int D, bool SMALL>
__device__ __forceinline__ void write_denormed(const mt_delta_rule &a, rest_shared<D, SMALL> &s, float (&grad)[D / 64][4][4],
                                               bf16 *dx, const bf16 *x, int64_t ldx, float scale, bf16 *free, const spot &p)
{
    constexpr int LD = tile_row<D>;
    float length[2] = {}, along[2] = {};
    __syncthreads(); /* the arrays of sums and the tile are free */
#pragma unroll
    for (int pass = 0; pass < D / 64; pass++)
#pragma unroll
        for (int e = 0; e < 2; e++)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                if (p.row(e) >= p.c.rows || p.col(pass, n) >= a.Dk) continue;
                float2 in = pair_at(x + p.row(e) * ldx + p.col(pass, n));
                length[e] += in.x * in.x + in.y * in.y;
                along[e] += in.x * grad[pass][n][2 * e] + in.y * grad[pass][n][2 * e + 1];
            }
#pragma unroll
    for (int e = 0; e < 2; e++) p.put_sum(s.v_sum, e, length[e]), p.put_sum(s.y_sum, e, along[e]);
    __syncthreads();
#pragma unroll
    for (int pass = 0; pass < D / 64; pass++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int i = p.row(e);
            float r = rsqrtf(s.v_sum[0][i] + s.v_sum[1][i] + 1e-6f), by = (s.y_sum[0][i] + s.y_sum[1][i]) * r * r;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float2 in = make_float2(0, 0);
                if (i < p.c.rows && p.col(pass, n) < a.Dk) in = pair_at(x + i * ldx + p.col(pass, n));
                grad[pass][n][2 * e] = scale * r * (grad[pass][n][2 * e] - in.x * by);
                grad[pass][n][2 * e + 1] = scale * r * (grad[pass][n][2 * e + 1] - in.y * by);
            }
        }
        bf16 *rows = free + p.row0 * LD + p.first(pass);
        put<32, LD>(rows, grad[pass], p.lane);
        take_out<32, LD>(dx + p.row0 * a.ld_d + p.first(pass), a.ld_d, rows, p.c.rows - p.row0, (int)a.Dk - p.first(pass),
                         p.lane);
    }
}

template <int D, bool SMALL>
__device__ __forceinline__ void fetch_keys(const delta_group &g, rest_shared<D, SMALL> &s, const spot &p)
{
    fetch<D, tile_row<D>, REST_THREADS>(s.d_o, g.rows<bf16>(g.l.q, p.key, p.c.row, D), D, p.c.rows, D);
    fetch<D, tile_row<D>, REST_THREADS>(s.dr, g.rows<bf16>(g.l.k, p.key, p.c.row, D), D, p.c.rows, D);
}

/* The contribution of the state before the chunk: S is in its tile, or the first rows of it. */
template <int D, bool SMALL>
__device__ __forceinline__ void through_before(const delta_group &g, rest_shared<D, SMALL> &s, float (&dq)[D / 64][4][4],
                                               float (&dk)[D / 64][4][4], const spot &p)
{
    const bf16 *q = g.rows<bf16>(g.l.q, p.key, p.c.row, D), *k = g.rows<bf16>(g.l.k, p.key, p.c.row, D);
    float grown[2], left[2], y[2] = {}, o[2] = {};
#pragma unroll
    for (int e = 0; e < 2; e++) {
        grown[e] = __expf(s.of.gamma[p.row(e)]);
        left[e] = -s.of.beta[p.row(e)] * grown[e];
    }
#pragma unroll
    for (int pass = 0; pass < D / 64 && p.c.before >= 0; pass++) {
        if (SMALL && pass) {
            __syncthreads();
            fetch_rows_of_state<D, SMALL>(s, g.state<bf16>(g.l.s, p.h, p.c.before), pass);
            copies_commit();
            copies_arrive<0>();
        }
        through_state<D, SMALL>(s, dk[pass], s.dr, k, left, y, pass, p);
        through_state<D, SMALL>(s, dq[pass], s.d_o, q, grown, o, pass, p);
    }
#pragma unroll
    for (int e = 0; e < 2; e++) p.put_sum(s.y_sum, e, y[e]), p.put_sum(s.q_sum, e, o[e]);
}

/* The same for the state after it: dS' is in the tile.  states grows by the rest of <S, dS'>. */
template <int D, bool SMALL>
__device__ __forceinline__ void through_after(const delta_group &g, rest_shared<D, SMALL> &s, float (&dk)[D / 64][4][4],
                                              const bf16 *before, float &states, const spot &p)
{
    const bf16 *k = g.rows<bf16>(g.l.k, p.key, p.c.row, D);
    float left[2], z[2] = {};
#pragma unroll
    for (int e = 0; e < 2; e++) left[e] = __expf(s.of.last() - s.of.gamma[p.row(e)]);
#pragma unroll
    for (int pass = 0; pass < D / 64 && p.c.after >= 0; pass++) {
        if (SMALL && pass) {
            __syncthreads();
            states += take_dstate<D, SMALL>(s, g.state<bf16>(g.l.ds, p.h, p.c.after), before, pass);
            __syncthreads();
        }
        through_state<D, SMALL>(s, dk[pass], s.v, k, left, z, pass, p);
    }
#pragma unroll
    for (int e = 0; e < 2; e++) p.put_sum(s.z_sum, e, z[e]);
}

/* One value head's share of dQ and dK, and its own gradients. */
template <int D, bool SMALL>
__device__ __forceinline__ void rest_of_head(const delta_group &g, rest_shared<D, SMALL> &s, float (&dq)[D / 64][4][4],
                                             float (&dk)[D / 64][4][4], const spot &p)
{
    constexpr int LD = tile_row<D>;
    const mt_delta_rule &a = g.a;
    const mt_delta_chunk c = p.c;
    const bf16 *before = c.before >= 0 ? g.state<bf16>(g.l.s, p.h, c.before) : nullptr;
    fetch<D, LD, REST_THREADS>(s.v, g.rows<bf16>(g.l.dv, p.h, c.row, D), D, c.rows, D);
    fetch<D, LD, REST_THREADS>(s.d_o, (const bf16 *)a.d_o + c.row * a.ldo + p.head * a.Dv, a.ldo, c.rows, (int)a.Dv);
    fetch<ROWS, SQUARE, REST_THREADS>(s.m, g.rows<bf16>(g.l.t, p.h, c.row, ROWS), ROWS, c.rows, ROWS);
    if (before) fetch_rows_of_state<D, SMALL>(s, before, 0);
    copies_commit();
    s.of.load(g, c, p.head);
    copies_arrive<0>();
    make_dr<D, SMALL>(g, s, p);
    __syncthreads();
    fetch<D, LD, REST_THREADS>(s.v, g.rows<bf16>(g.l.v, p.h, c.row, D), D, c.rows, D);
    copies_commit();
    through_before<D, SMALL>(g, s, dq, dk, p);
    copies_arrive<0>();
    float states = 0;
    if (c.after >= 0) states = take_dstate<D, SMALL>(s, g.state<bf16>(g.l.ds, p.h, c.after), before, 0);
    make_squares<D, SMALL>(g, s, p);
    __syncthreads();
    fetch_keys<D, SMALL>(g, s, p); /* dR and dO are done with */
    copies_commit();
    through_after<D, SMALL>(g, s, dk, before, states, p);
    states = warp_sum(states);
    if (p.lane == 0) s.warp_sums[p.warp] = states;
    copies_arrive<0>();
#pragma unroll
    for (int pass = 0; pass < D / 64; pass++) {
        const bf16 *q = s.d_o + p.first(pass), *k = s.dr + p.first(pass);
        times<32, ROWS, SQUARE, LD>(dq[pass], s.m + p.row0 * SQUARE, k, p.lane);
        transposed_times<32, ROWS, SQUARE, LD>(dk[pass], s.m + p.row0, q, p.lane);
        times<32, ROWS, SQUARE, LD>(dk[pass], s.f + p.row0 * SQUARE, k, p.lane);
        transposed_times<32, ROWS, SQUARE, LD>(dk[pass], s.f + p.row0, k, p.lane);
    }
    states = 0;
    for (int w = 0; w < REST_THREADS / 32; w++) states += s.warp_sums[w];
    write_gates<D, SMALL>(g, s, p, states * __expf(s.of.last()));
    __syncthreads();
}

template <int D, bool SMALL> __global__ void __launch_bounds__(REST_THREADS, 2) rest_kernel(delta_group g)
{
    extern __shared__ __align__(16) unsigned char memory[];
    rest_shared<D, SMALL> &s = *(rest_shared<D, SMALL> *)memory;
    const mt_delta_rule &a = g.a;
    int key = blockIdx.y, warp = threadIdx.x / 32;
    spot p = { .c = g.chunk(blockIdx.x),
               .h = 0,
               .head = 0,
               .key = key,
               .warp = warp,
               .lane = (int)threadIdx.x % 32,
               .row0 = warp % 4 * 16,
               .half = warp / 4 };
    if (!p.c.rows) {
        float *sums = g.at<float>(g.l.sums) + (int64_t)blockIdx.x * 2 * a.H + g.first_head + key * g.per_key;
        for (int h = threadIdx.x; h < g.per_key; h += REST_THREADS) sums[h] = sums[a.H + h] = 0;
        return;
    }
    float dq[D / 64][4][4] = {}, dk[D / 64][4][4] = {};
    for (p.h = key * g.per_key; p.h < (key + 1) * g.per_key; p.h++) {
        p.head = g.first_head + p.h;
        rest_of_head<D, SMALL>(g, s, dq, dk, p);
    }
    int64_t head = (g.first_key + key) * a.Dk;
    write_denormed<D, SMALL>(a, s, dq, (bf16 *)a.dq + p.c.row * a.ld_d + head, (const bf16 *)a.q + p.c.row * a.ldq + head, a.ldq,
                             rsqrtf((float)a.Dk), s.v, p);
    write_denormed<D, SMALL>(a, s, dk, (bf16 *)a.dk + p.c.row * a.ld_d + head, (const bf16 *)a.k + p.c.row * a.ldk + head, a.ldk,
                             1.0f, s.dr, p);
}

/* -- launching ------------------------------------------------------------------------------------- */

template <typename KERNEL> static void allow_shared(KERNEL kernel, size_t bytes)
{
    cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

/* Columns of the state a block takes: few where that many blocks do not fill the GPU.  Columns do not depend on each other, so
 * this changes no bit. */
static bool is_narrow(mt_stream *s, const delta_group *g)
{
    return g->a.n_docs * g->n_heads * (g->l.wide_v / 32) < 2 * mt_cuda_device_of(s)->n_sms;
}

template <int D, int BV> static void states(mt_stream *s, const delta_group *g)
{
    dim3 grid((unsigned)g->a.n_docs, (unsigned)g->n_heads, D / BV);
    const size_t bytes = sizeof(states_shared<D, BV>);
    allow_shared(states_kernel<D, BV>, bytes);
    states_kernel<D, BV><<<grid, WALK_THREADS, bytes, mt_cuda_raw(s)>>>(*g);
}

template <int D, int BV, int STAGES> static void dstates(mt_stream *s, const delta_group *g)
{
    dim3 grid((unsigned)g->a.n_docs, (unsigned)g->n_heads, D / BV);
    const size_t bytes = sizeof(dstates_shared<D, BV, STAGES>);
    allow_shared(dstates_kernel<D, BV, STAGES>, bytes);
    dstates_kernel<D, BV, STAGES><<<grid, WALK_THREADS, bytes, mt_cuda_raw(s)>>>(*g);
}

template <int D> static dim3 chunk_grid(const delta_group *g, int heads)
{
    return dim3((unsigned)mt__delta_chunks(&g->a), (unsigned)heads);
}

template <int D> static void all_states(mt_stream *s, const delta_group *g)
{
    const size_t bytes = sizeof(prepare_shared<D>);
    allow_shared(prepare_kernel<D>, bytes);
    prepare_kernel<D><<<chunk_grid<D>(g, g->n_heads), PREPARE_THREADS, bytes, mt_cuda_raw(s)>>>(*g);
    if (is_narrow(s, g))
        states<D, 16>(s, g);
    else
        states<D, 32>(s, g);
}

template <int D> static void forward(mt_stream *s, const delta_group *g)
{
    const size_t bytes = sizeof(output_shared<D>);
    all_states<D>(s, g);
    allow_shared(output_kernel<D>, bytes);
    output_kernel<D><<<chunk_grid<D>(g, g->n_heads), OUTPUT_THREADS, bytes, mt_cuda_raw(s)>>>(*g);
}

template <int D, bool SMALL> static void rest(mt_stream *s, const delta_group *g)
{
    const size_t bytes = sizeof(rest_shared<D, SMALL>);
    allow_shared(rest_kernel<D, SMALL>, bytes);
    rest_kernel<D, SMALL><<<chunk_grid<D>(g, g->n_keys), REST_THREADS, bytes, mt_cuda_raw(s)>>>(*g);
}

template <int D> static void backward(mt_stream *s, const delta_group *g)
{
    all_states<D>(s, g);
    if (!is_narrow(s, g))
        dstates<D, 32, 1>(s, g);
    else if (sizeof(dstates_shared<D, 16, 2>) <= mt_cuda_device_of(s)->shared_bytes)
        dstates<D, 16, 2>(s, g);
    else
        dstates<D, 16, 1>(s, g);
    if (sizeof(rest_shared<D, false>) <= mt_cuda_device_of(s)->shared_bytes)
        rest<D, false>(s, g);
    else
        rest<D, true>(s, g);
}

bool mt__delta_mma_fits(mt_stream *s, const delta_group *g)
{
    (void)g;
    return sizeof(rest_shared<128, true>) <= mt_cuda_device_of(s)->shared_bytes &&
           sizeof(states_shared<128, 32>) <= mt_cuda_device_of(s)->shared_bytes;
}

void mt__delta_mma_forward(mt_stream *s, const delta_group *g)
{
    if (g->l.wide_k == 64)
        forward<64>(s, g);
    else
        forward<128>(s, g);
}

void mt__delta_mma_backward(mt_stream *s, const delta_group *g)
{
    if (g->l.wide_k == 64)
        backward<64>(s, g);
    else
        backward<128>(s, g);
}
