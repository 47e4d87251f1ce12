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
template <int N, int LDB> __device__ __forceinline__ void step_times(float (&acc)[N / 8][4], const uint32_t (&ra)[4], const bf16 *pb)
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

/* A whole state, or BV columns of one. */
template <int D, int BV, int THREADS> __device__ __forceinline__ void fetch_state(bf16 *dst, const bf16 *src)
{
#pragma unroll
    for (int at = threadIdx.x; at < D * (BV / 8); at += THREADS) {
        int r = at / (BV / 8), c = at % (BV / 8) * 8;
        copy16(dst + r * (BV + 8) + c, src + r * D + c, true);
    }
}

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
template <int N, int LD> __device__ __forceinline__ void take_out(bf16 *dst, int64_t ld, const bf16 *src, int rows, int columns, int lane)
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
    bf16 q[tile<D>], k[tile<D>], v[tile<D>];
    float t[ROWS][ROWS + 4]; /* A, then T */
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
__device__ __forceinline__ void write_square(bf16 *dst, const float (&acc)[8][4], prepare_shared<D> &s, bool strict, int row0, int rows, int lane)
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
__device__ __forceinline__ void times_inverse(float (&acc)[D / 8][4], const prepare_shared<D> &s, const bf16 *b, bool decayed, int row0, int lane)
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
    int h = blockIdx.y, key = h / g.per_key, head = g.first_head + h, warp = threadIdx.x / 32, lane = threadIdx.x % 32, row0 = warp * 16;
    if (!c.rows) return;
    fetch<D, LD, PREPARE_THREADS>(s.q, (const bf16 *)a.q + c.row * a.ldq + (g.first_key + key) * a.Dk, a.ldq, c.rows, (int)a.Dk);
    fetch<D, LD, PREPARE_THREADS>(s.k, (const bf16 *)a.k + c.row * a.ldk + (g.first_key + key) * a.Dk, a.ldk, c.rows, (int)a.Dk);
    fetch<D, LD, PREPARE_THREADS>(s.v, (const bf16 *)a.v + c.row * a.ldv + head * a.Dv, a.ldv, c.rows, (int)a.Dv);
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
    clear<8>(square);
    times_transposed<ROWS, D, LD, LD>(square, s.k + row0 * LD, s.k, lane);
    write_square<D>(g.rows<bf16>(g.l.a, h, c.row, ROWS), square, s, true, row0, c.rows, lane);
    __syncthreads();
    invert<D>(s, g.rows<bf16>(g.l.t, h, c.row, ROWS), c.rows);
    /* The warp's own rows of q are free now: results leave through them. */
    times_inverse<D>(acc, s, s.k, true, row0, lane);
    put<D, LD>(s.q + row0 * LD, acc, lane);
    take_out<D, LD>(g.rows<bf16>(g.l.w, h, c.row + row0, D), D, s.q + row0 * LD, c.rows - row0, D, lane);
    times_inverse<D>(acc, s, s.v, false, row0, lane);
    put<D, LD>(s.q + row0 * LD, acc, lane);
    take_out<D, LD>(g.rows<bf16>(g.l.v, h, c.row + row0, D), D, s.q + row0 * LD, c.rows - row0, D, lane);
}

/* -- states: a document, value head and BV columns, chunks in order ------------------------------------ */

/* What a block that walks along a document waits for, it waits for once a chunk: all that a chunk needs comes in while the one
 * before it is worked on, and where it is follows from the document alone. */
enum { WALK_THREADS = 128 };

struct walk {
    int h, head, col;       /* value head in the group and in all, first column */
    int row, end, slot;     /* the document's first row, its end, its first slot */
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

template <int D, int BV> __device__ __forceinline__ void fetch_chunk(const delta_group &g, states_shared<D, BV> &s, const walk &at, int n)
{
    mt_delta_chunk c = at.chunk(n);
    fetch<D, tile_row<D>, WALK_THREADS>(s.w[n & 1], g.rows<bf16>(g.l.w, at.h, c.row, D), D, c.rows, D);
    fetch<D, tile_row<D>, WALK_THREADS>(s.k[n & 1], g.rows<bf16>(g.l.k, at.h / g.per_key, c.row, D), D, c.rows, D);
    fetch<BV, BV + 8, WALK_THREADS>(s.u[n & 1], g.rows<bf16>(g.l.v, at.h, c.row, D) + at.col, D, c.rows, BV);
    fetch_gamma(s.gamma[n & 1], g, c, at.head);
}

/* A warp's rows of a state: MT blocks of 16, from row `warp` D / 4 on. */
template <int MT, int BV> __device__ __forceinline__ void put_state(bf16 *dst, const float (&state)[MT][BV / 8][4], int warp, int lane)
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

/* What the rows add to the state: U - W S, to memory where U was, and with the decay that is left to the tile `v`. */
template <int D, int BV>
__device__ __forceinline__ void write_added(const delta_group &g, states_shared<D, BV> &s, const float (&acc)[BV / 8][4], const walk &at, int chunk,
                                            int warp, int lane)
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
    bf16 grown[ROWS * (BV + 8)]; /* e^gamma dO */
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
    fetch<BV, BV + 8, WALK_THREADS>(s.d_o[stage], (const bf16 *)g.a.d_o + c.row * g.a.ldo + at.head * g.a.Dv + at.col, g.a.ldo, c.rows,
                                    (int)g.a.Dv - at.col);
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
__device__ __forceinline__ void write_dadded(const delta_group &g, bf16 *negated, const float (&direct)[BV / 8][4], const float (&through)[BV / 8][4],
                                             const float *gamma, const walk &at, mt_delta_chunk c, int warp, int lane)
{
    const float last = gamma[c.rows - 1];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int i = warp * 16 + lane / 4 + half * 8;
        float left = i < c.rows ? __expf(last - gamma[i]) : 0.0f;
        bf16 *dst = g.rows<bf16>(g.l.dv, at.h, c.row + i, D) + at.col + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < BV / 8; n++) {
            float x = direct[n][2 * half] + left * through[n][2 * half], y = direct[n][2 * half + 1] + left * through[n][2 * half + 1];
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

/* -- the rest: a chunk and key head, eight warps: 16 rows and half of the columns each ------------------ */

enum { REST_THREADS = 256 };

template <int D> struct rest_shared {
    bf16 q[tile<D>], k[tile<D>];
    bf16 v[tile<D>], dr[tile<D>], d_o[tile<D>]; /* v: first dV^, then V^ */
    bf16 s[D * tile_row<D>];                    /* S, then dS' */
    bf16 m[SQUARE_TILE], f[SQUARE_TILE];        /* m: first T */
    gates of;
    /* Sums over the columns of a row, a half each: dR . V, K . Y, Q . dO S', K . V^ dS'', E + G, dA o K K' o D. */
    float v_sum[2][ROWS], y_sum[2][ROWS], q_sum[2][ROWS], z_sum[2][ROWS], across[2][ROWS], beta_sum[2][ROWS];
    float down[4][ROWS]; /* of E + G over 16 rows each */
    float dgamma[ROWS], warp_sums[8], two[2][2];
};

/* Where a warp's results are: rows row0 + lane / 4 (+ 8), columns from col0. */
struct spot {
    int warp, lane, row0, half;
    __device__ __forceinline__ int row(int e) const { return row0 + lane / 4 + e * 8; }
    __device__ __forceinline__ int col(int n) const { return n * 8 + lane % 4 * 2; }
    __device__ __forceinline__ void put_sum(float (*sums)[ROWS], int e, float x) const
    {
        x = quad_sum(x);
        if (lane % 4 == 0) sums[half][row(e)] = x;
    }
};

/* dR = T' dV^: to a tile, and as dV = beta dR to memory. */
template <int D> __device__ __forceinline__ void make_dr(const delta_group &g, rest_shared<D> &s, mt_delta_chunk c, int head, const spot &p)
{
    constexpr int LD = tile_row<D>;
    const mt_delta_rule &a = g.a;
    const int col0 = p.half * (D / 2);
    float acc[D / 16][4];
    clear<D / 16>(acc);
    transposed_times<D / 2, ROWS, SQUARE, LD>(acc, s.m + p.row0, s.v + col0, p.lane);
    put<D / 2, LD>(s.dr + p.row0 * LD + col0, acc, p.lane);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int i = p.row(e);
        float beta = s.of.beta[i], sum = 0;
        const bf16 *v = (const bf16 *)a.v + (c.row + i) * a.ldv + head * a.Dv + col0;
        bf16 *dv = (bf16 *)a.dv + (c.row + i) * a.ld_d + head * a.Dv + col0;
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            if (i >= c.rows || col0 + p.col(n) >= a.Dv) continue;
            float x = acc[n][2 * e], y = acc[n][2 * e + 1];
            float2 in = pair_at(v + p.col(n));
            sum += x * in.x + y * in.y;
            *(uint32_t *)(dv + p.col(n)) = pack(beta * x, beta * y);
        }
        p.put_sum(s.v_sum, e, sum);
    }
}

/* grad += by(row) a b', and the rows' sums of that times the rows of a tile. */
template <int D>
__device__ __forceinline__ void through_state(rest_shared<D> &s, float (&grad)[D / 16][4], const bf16 *a, const bf16 *other, float (*sums)[ROWS],
                                              const float (&by)[2], const spot &p)
{
    constexpr int LD = tile_row<D>;
    const int col0 = p.half * (D / 2);
    float acc[D / 16][4];
    clear<D / 16>(acc);
    times_transposed<D / 2, D, LD, LD>(acc, a + p.row0 * LD, s.s + col0 * LD, p.lane);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float sum = 0;
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            float2 o = pair_at(other + p.row(e) * LD + col0 + p.col(n));
            float x = acc[n][2 * e] * by[e], y = acc[n][2 * e + 1] * by[e];
            sum += x * o.x + y * o.y;
            grad[n][2 * e] += x;
            grad[n][2 * e + 1] += y;
        }
        p.put_sum(sums, e, sum);
    }
}

__device__ __forceinline__ void no_sums(float (*sums)[ROWS], const spot &p)
{
    p.put_sum(sums, 0, 0.0f);
    p.put_sum(sums, 1, 0.0f);
}

/* <S, dS'>, this thread's share, while dS' takes the place of S. */
template <int D> __device__ __forceinline__ float exchange_state(rest_shared<D> &s, const bf16 *src, bool has_old)
{
    float sum = 0;
#pragma unroll
    for (int at = threadIdx.x; at < D * (D / 8); at += REST_THREADS) {
        int r = at / (D / 8), c = at % (D / 8) * 8;
        bf16 *dst = s.s + r * tile_row<D> + c;
        vec<bf16, 8> x = load<bf16, 8>(src + r * D + c);
        if (has_old) {
            vec<bf16, 8> old = load<bf16, 8>(dst);
#pragma unroll
            for (int e = 0; e < 8; e++) sum += to_f32(x.at[e]) * to_f32(old.at[e]);
        }
        store<bf16, 8>(dst, x);
    }
    return sum;
}

/* dA and dP, a half of their columns: M and beta F to tiles, and the sums of E + G and of dA o K K' o D. */
template <int D> __device__ __forceinline__ void make_squares(const delta_group &g, rest_shared<D> &s, mt_delta_chunk c, int h, const spot &p)
{
    constexpr int LD = tile_row<D>, N = ROWS / 2;
    const int col0 = p.half * N;
    float da[N / 8][4], dp[N / 8][4], down[N / 8][2] = {};
    clear<N / 8>(da);
    clear<N / 8>(dp);
    times_transposed<N, D, LD, LD>(da, s.dr + p.row0 * LD, s.v + col0 * LD, p.lane);
    times_transposed<N, D, LD, LD>(dp, s.d_o + p.row0 * LD, s.v + col0 * LD, p.lane);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int i = p.row(e);
        float gamma = s.of.gamma[i], beta = s.of.beta[i], across = 0, beta_sum = 0;
        const bf16 *A = g.rows<bf16>(g.l.a, h, c.row + i, ROWS) + col0, *P = g.rows<bf16>(g.l.p, h, c.row + i, ROWS) + col0;
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            float2 a = make_float2(0, 0), q = a;
            if (i < c.rows) a = pair_at(A + p.col(n)), q = pair_at(P + p.col(n));
            float m[2], f[2];
#pragma unroll
            for (int x = 0; x < 2; x++) {
                int j = col0 + p.col(n) + x;
                float decay = i >= j ? __expf(gamma - s.of.gamma[j]) : 0.0f, dA = -da[n][2 * e + x], dP = dp[n][2 * e + x];
                float g0 = dA * (x ? a.y : a.x), both = dP * (x ? q.y : q.x) + beta * g0; /* a is 0 unless i > j, q unless i >= j */
                m[x] = dP * decay;
                f[x] = i > j ? beta * dA * decay : 0.0f;
                across += both;
                beta_sum += g0;
                down[n][x] += both;
            }
            *(uint32_t *)(s.m + i * SQUARE + col0 + p.col(n)) = pack(m[0], m[1]);
            *(uint32_t *)(s.f + i * SQUARE + col0 + p.col(n)) = pack(f[0], f[1]);
        }
        p.put_sum(s.across, e, across);
        p.put_sum(s.beta_sum, e, beta_sum);
    }
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int x = 0; x < 2; x++) {
            float sum = down[n][x];
            for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
            if (p.lane < 4) s.down[p.row0 / 16][col0 + p.col(n) + x] = sum;
        }
}

/* da, db and the chunk's shares of dA_log and ddt_bias, by the first two warps.  states: e^gamma_C <S, dS'>. */
template <int D> __device__ __forceinline__ void write_gates(const delta_group &g, rest_shared<D> &s, mt_delta_chunk c, int head, float states)
{
    const mt_delta_rule &a = g.a;
    int i = threadIdx.x;
    float z = 0, beta = 0;
    if (i < ROWS) {
        float ky = s.y_sum[0][i] + s.y_sum[1][i]; /* has the factor -beta e^gamma */
        float v = s.v_sum[0][i] + s.v_sum[1][i], q = s.q_sum[0][i] + s.q_sum[1][i], down = 0;
        z = s.z_sum[0][i] + s.z_sum[1][i];
        beta = s.of.beta[i];
        for (int n = 0; n < 4; n++) down += s.down[n][i];
        s.dgamma[i] = q - z + (s.across[0][i] + s.across[1][i]) - down + ky;
        float sums = s.beta_sum[0][i] + s.beta_sum[1][i], own = beta > 0 ? ky / beta : 0.0f;
        if (i < c.rows) ((bf16 *)a.db)[(c.row + i) * a.ld_dab + head] = from_f32<bf16>((v + own + sums) * beta * (1.0f - beta));
        z = warp_sum(z);
        if (i % 32 == 0) s.two[0][i / 32] = z;
    }
    __syncthreads();
    float da = 0, log = 0;
    if (i < c.rows) {
        float dg = states + (s.two[0][0] + s.two[0][1]);
        for (int n = ROWS - 1; n >= i; n--) dg += s.dgamma[n];
        float x = to_f32(((const bf16 *)a.a)[(c.row + i) * a.ld_ab + head]) + a.dt_bias[head], e = -expf(a.A_log[head]);
        da = dg * e * delta_softplus_slope(x);
        log = dg * e * delta_softplus(x);
        ((bf16 *)a.da)[(c.row + i) * a.ld_dab + head] = from_f32<bf16>(da);
    }
    __syncthreads(); /* two was read */
    if (i < ROWS) {
        da = warp_sum(da), log = warp_sum(log);
        if (i % 32 == 0) s.two[0][i / 32] = log, s.two[1][i / 32] = da;
    }
    __syncthreads();
    float *sums = g.at<float>(g.l.sums) + (int64_t)blockIdx.x * 2 * a.H + head;
    if (i == 0) sums[0] = s.two[0][0] + s.two[0][1], sums[a.H] = s.two[1][0] + s.two[1][1];
}

/* Gradient of x from that of y = scale x / |x|; leaves through a tile that is free. */
template <int D>
__device__ __forceinline__ void write_denormed(const mt_delta_rule &a, rest_shared<D> &s, float (&grad)[D / 16][4], bf16 *dx, const bf16 *x, int64_t ldx,
                                               float scale, bf16 *free, int rows, const spot &p)
{
    constexpr int LD = tile_row<D>;
    const int col0 = p.half * (D / 2);
    __syncthreads(); /* the arrays of sums and the tile are free */
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float length = 0, along = 0;
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            if (p.row(e) >= rows || col0 + p.col(n) >= a.Dk) continue;
            float2 in = pair_at(x + p.row(e) * ldx + col0 + p.col(n));
            length += in.x * in.x + in.y * in.y;
            along += in.x * grad[n][2 * e] + in.y * grad[n][2 * e + 1];
        }
        p.put_sum(s.v_sum, e, length);
        p.put_sum(s.y_sum, e, along);
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int i = p.row(e);
        float r = rsqrtf(s.v_sum[0][i] + s.v_sum[1][i] + 1e-6f), along = (s.y_sum[0][i] + s.y_sum[1][i]) * r * r;
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            float2 in = make_float2(0, 0);
            if (i < rows && col0 + p.col(n) < a.Dk) in = pair_at(x + i * ldx + col0 + p.col(n));
            grad[n][2 * e] = scale * r * (grad[n][2 * e] - in.x * along);
            grad[n][2 * e + 1] = scale * r * (grad[n][2 * e + 1] - in.y * along);
        }
    }
    put<D / 2, LD>(free + p.row0 * LD + col0, grad, p.lane);
    take_out<D / 2, LD>(dx + p.row0 * a.ld_d + col0, a.ld_d, free + p.row0 * LD + col0, rows - p.row0, (int)a.Dk - col0, p.lane);
}

/* One value head's share of dQ and dK, and its own gradients. */
template <int D>
__device__ __forceinline__ void rest_of_head(const delta_group &g, rest_shared<D> &s, mt_delta_chunk c, int h, float (&dq)[D / 16][4],
                                             float (&dk)[D / 16][4], const spot &p)
{
    constexpr int LD = tile_row<D>;
    const mt_delta_rule &a = g.a;
    const int head = g.first_head + h, col0 = p.half * (D / 2);
    fetch<D, LD, REST_THREADS>(s.v, g.rows<bf16>(g.l.dv, h, c.row, D), D, c.rows, D);
    fetch<D, LD, REST_THREADS>(s.d_o, (const bf16 *)a.d_o + c.row * a.ldo + head * a.Dv, a.ldo, c.rows, (int)a.Dv);
    fetch<ROWS, SQUARE, REST_THREADS>(s.m, g.rows<bf16>(g.l.t, h, c.row, ROWS), ROWS, c.rows, ROWS);
    if (c.before >= 0) fetch_state<D, D, REST_THREADS>(s.s, g.state<bf16>(g.l.s, h, c.before));
    copies_commit();
    s.of.load(g, c, head);
    copies_arrive<0>();
    float states = 0, last = s.of.last(), by[2];
    make_dr<D>(g, s, c, head, p);
    __syncthreads();
    fetch<D, LD, REST_THREADS>(s.v, g.rows<bf16>(g.l.v, h, c.row, D), D, c.rows, D);
    copies_commit();
    if (c.before >= 0) {
        for (int e = 0; e < 2; e++) by[e] = -s.of.beta[p.row(e)] * __expf(s.of.gamma[p.row(e)]);
        through_state<D>(s, dk, s.dr, s.k, s.y_sum, by, p);
        for (int e = 0; e < 2; e++) by[e] = __expf(s.of.gamma[p.row(e)]);
        through_state<D>(s, dq, s.d_o, s.q, s.q_sum, by, p);
    } else {
        no_sums(s.y_sum, p);
        no_sums(s.q_sum, p);
    }
    copies_arrive<0>();
    if (c.after >= 0) states = exchange_state<D>(s, g.state<bf16>(g.l.ds, h, c.after), c.before >= 0);
    make_squares<D>(g, s, c, h, p);
    states = warp_sum(states);
    if (p.lane == 0) s.warp_sums[p.warp] = states;
    __syncthreads();
    if (c.after >= 0) {
        for (int e = 0; e < 2; e++) by[e] = __expf(last - s.of.gamma[p.row(e)]);
        through_state<D>(s, dk, s.v, s.k, s.z_sum, by, p);
    } else {
        no_sums(s.z_sum, p);
    }
    times<D / 2, ROWS, SQUARE, LD>(dq, s.m + p.row0 * SQUARE, s.k + col0, p.lane);
    transposed_times<D / 2, ROWS, SQUARE, LD>(dk, s.m + p.row0, s.q + col0, p.lane);
    times<D / 2, ROWS, SQUARE, LD>(dk, s.f + p.row0 * SQUARE, s.k + col0, p.lane);
    transposed_times<D / 2, ROWS, SQUARE, LD>(dk, s.f + p.row0, s.k + col0, p.lane);
    __syncthreads();
    states = 0;
    for (int w = 0; w < REST_THREADS / 32; w++) states += s.warp_sums[w];
    write_gates<D>(g, s, c, head, states * __expf(last));
    __syncthreads();
}

template <int D> __global__ void __launch_bounds__(REST_THREADS) rest_kernel(delta_group g)
{
    extern __shared__ __align__(16) unsigned char memory[];
    rest_shared<D> &s = *(rest_shared<D> *)memory;
    constexpr int LD = tile_row<D>;
    const mt_delta_rule &a = g.a;
    mt_delta_chunk c = g.chunk(blockIdx.x);
    int key = blockIdx.y, warp = threadIdx.x / 32;
    spot p = { warp, (int)threadIdx.x % 32, warp % 4 * 16, warp / 4 };
    float *sums = g.at<float>(g.l.sums) + (int64_t)blockIdx.x * 2 * a.H + g.first_head + key * g.per_key;
    if (!c.rows) {
        if ((int)threadIdx.x < g.per_key) sums[threadIdx.x] = sums[a.H + threadIdx.x] = 0;
        return;
    }
    fetch<D, LD, REST_THREADS>(s.q, g.rows<bf16>(g.l.q, key, c.row, D), D, c.rows, D);
    fetch<D, LD, REST_THREADS>(s.k, g.rows<bf16>(g.l.k, key, c.row, D), D, c.rows, D);
    float dq[D / 16][4], dk[D / 16][4];
    clear<D / 16>(dq);
    clear<D / 16>(dk);
    for (int h = key * g.per_key; h < (key + 1) * g.per_key; h++) rest_of_head<D>(g, s, c, h, dq, dk, p);
    int64_t head = (g.first_key + key) * a.Dk;
    write_denormed<D>(a, s, dq, (bf16 *)a.dq + c.row * a.ld_d + head, (const bf16 *)a.q + c.row * a.ldq + head, a.ldq, rsqrtf((float)a.Dk), s.v,
                      c.rows, p);
    write_denormed<D>(a, s, dk, (bf16 *)a.dk + c.row * a.ld_d + head, (const bf16 *)a.k + c.row * a.ldk + head, a.ldk, 1.0f, s.dr, c.rows, p);
}

/* -- launching ------------------------------------------------------------------------------------- */

template <typename KERNEL> static void allow_shared(KERNEL kernel, size_t bytes)
{
    cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

/* Columns of the state a block takes: few where that many blocks do not fill the GPU.  Columns do not depend on each other, so this
 * changes no bit. */
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

template <int D> static dim3 chunk_grid(const delta_group *g, int heads) { return dim3((unsigned)mt__delta_chunks(&g->a), (unsigned)heads); }

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

template <int D> static void backward(mt_stream *s, const delta_group *g)
{
    const size_t bytes = sizeof(rest_shared<D>);
    all_states<D>(s, g);
    if (!is_narrow(s, g))
        dstates<D, 32, 1>(s, g);
    else if (sizeof(dstates_shared<D, 16, 2>) <= mt_cuda_device_of(s)->shared_bytes)
        dstates<D, 16, 2>(s, g);
    else
        dstates<D, 16, 1>(s, g);
    allow_shared(rest_kernel<D>, bytes);
    rest_kernel<D><<<chunk_grid<D>(g, g->n_keys), REST_THREADS, bytes, mt_cuda_raw(s)>>>(*g);
}

bool mt__delta_mma_fits(mt_stream *s, const delta_group *g)
{
    size_t most = g->l.wide_k == 64 ? sizeof(rest_shared<64>) : sizeof(rest_shared<128>);
    return most <= mt_cuda_device_of(s)->shared_bytes;
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
