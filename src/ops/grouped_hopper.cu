/* grouped_hopper.cu - grouped_linear.cu's three products by wgmma, for bf16 with fp32 sums.
 *
 * A block makes tiles of 128 x 256.  One of its three warpgroups, the loaders, only brings operands in, 64 deep at a time and up to four
 * steps ahead, across tiles.  The other two multiply 64 rows each and store them.  So while one of them stores, the other multiplies,
 * and the next tile's operands arrive.
 *
 *   full[stage]    its operands have arrived: every loader has signaled, and the copy engine has delivered its bytes
 *   empty[stage]   its products are done: every team has signaled
 *
 * Weights and packed rows come by the copy engine, in boxes of 64 columns; rows of tokens are gathered by the loaders' threads, and no
 * permuted copy of them exists.  Two blocks work as a pair, on tiles one below the other: each brings half of the right operand in, for
 * both.  (A tile's operands come out of the L2 cache, whose rate bounds the products: 6.7 TB/s at 570 TFLOP/s without pairs.)
 *
 * The operands and their layout in shared memory are in grouped_tiles.cuh.  Every sum runs in ascending order of the summed index
 * within one team, as in grouped_tiles.cu.
 *
 * The sums of dw are in memory, and the copy engine adds to them there while the next tile is made: the teams neither read dw nor wait
 * for it. */
#include "ops/grouped_tiles.cuh"
#include "ops/hopper.cuh"

enum { TEAMS = 2, BM = 64 * TEAMS, BN = 256, STAGES = 4, LOADERS = 128, THREADS = LOADERS + 128 * TEAMS };
enum { BLOCKS = BN / 8 }; /* of 8 columns, of a team's results */
enum { PAIR = 2 };        /* blocks that share the right operand */
enum { BOXES = 2 };       /* of two warps: one is filled while the other is read */

/* Where the operands are, for the copy engine; of one that is gathered nothing is known.  sums: dw. */
typedef struct operand_maps {
    CUtensorMap left, right, sums;
} operand_maps;

/* Floats of the memory through which the sums of dw leave. */
__host__ __device__ constexpr size_t box_floats(grouped_product kind)
{
    return kind == TO_W ? (size_t)BM / BOX * BOXES * BOX * BOX : 0;
}

static size_t shared_bytes(int64_t c, grouped_product kind)
{
    return (size_t)STAGES * (BM + BN) * BK * sizeof(bf16) + 1024 + box_floats(kind) * sizeof(float) +
           2 * STAGES * sizeof(uint64_t) + (kind == TO_W ? LOADERS : (size_t)(c + 1)) * sizeof(int32_t);
}

#if HAS_WGMMA

typedef float results[BLOCKS][4];

/* Shared memory of a block. */
typedef struct common {
    bf16 *tiles;
    uint64_t *full, *empty;
    float *boxes;    /* of dw: box_floats */
    int32_t *starts; /* of y and dx: count_row_tiles */
    int32_t *rows;   /* of dw: wide_loader */
    int row_tiles, col_tiles;
    int rank; /* in its pair */
    int64_t first, stride, n_tiles;
} common;

/* Where in the ring of stages a warpgroup is; parity: of how often it went round. */
typedef struct ring {
    int stage, parity;
} ring;

__device__ __forceinline__ void advance(ring *r)
{
    if (++r->stage < STAGES) return;
    r->stage = 0;
    r->parity ^= 1;
}

__device__ __forceinline__ bf16 *left_tile(const common &c, int stage) { return c.tiles + stage * (BM + BN) * BK; }
__device__ __forceinline__ bf16 *right_tile(const common &c, int stage) { return left_tile(c, stage) + BM * BK; }

/* Of dw the gathered operand is the left one, whichever it is: x makes tiles of the transposed matrix. */
__device__ __forceinline__ bool across(const mt_grouped_linear &a) { return a.gather_x; }

/* A pair takes two tiles, one below the other; the second may be past the expert's rows. */
template <grouped_product KIND>
__device__ __forceinline__ grouped_tile tile_of(const mt_grouped_linear &a, const common &c, int64_t at)
{
    grouped_tile t = find_tile<KIND>(a, c.starts, c.row_tiles, c.col_tiles, BM * PAIR, BN, at);
    t.row0 += c.rank * BM;
    return t;
}

/* -- loaders --------------------------------------------------------------------------------------- */

/* A box of an operand, 64 elements wide, to this block or (TO_BOTH) to the same place in both of a pair. */
template <bool TO_BOTH>
__device__ __forceinline__ void copy_box(bf16 *to, const CUtensorMap *map, uint64_t *full, int col, int row, int e)
{
    if (TO_BOTH)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
                     "l"(map), "r"(col), "r"(row), "r"(e), "r"(shared_address(full)), "h"((uint16_t)3)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
                     "l"(map), "r"(col), "r"(row), "r"(e), "r"(shared_address(full))
                     : "memory");
}

/* base + row * bytes */
__device__ __forceinline__ const bf16 *row_at(const bf16 *base, int row, int bytes)
{
    const bf16 *p;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(p) : "r"(row), "r"(bytes), "l"(base));
    return p;
}

/* SIZE columns of a matrix, wide: each warp has 16 rows of a step, and a thread one piece of every fourth of them, in each column of 64.
 * A lane looks up one gathered row for its whole warp, lane l row l % 16 of the first of two steps or of the second, and leaves it in
 * shared memory once the two steps before are copied: so no copy waits for its address, and a row is looked up once.
 * GATHERS: rows may be gathered. */
template <int SIZE, bool GATHERS> struct wide_loader {
    enum { ROWS = 16, N = ROWS / 4, COLUMNS = SIZE / 64 };
    const bf16 *base; /* at this thread's piece */
    const int32_t *rows;
    int32_t *dealt;     /* of this warp, [2][4][N]: the rows of two steps, those of a thread side by side; -1: past the last */
    int bytes;          /* from row to row */
    int n_rows, n_cols; /* columns from the piece on */
    bool inside;        /* all columns of the tile exist */
    int even, odd;      /* where in a tile this thread's pieces of rows 0, 8 and of rows 4, 12 of its warp are */
    int next;           /* this lane's row of the two steps that are not dealt yet */

    __device__ __forceinline__ int look_from(int step) const
    {
        int lane = threadIdx.x % 32, k = (step + lane / ROWS) * BK + threadIdx.x / 32 * ROWS + lane % ROWS;
        return k < n_rows ? rows[k] : -1;
    }
    /* The rows of the next two steps, and a look at those after them. */
    __device__ __forceinline__ void deal(int step_after)
    {
        int lane = threadIdx.x % 32;
        __syncwarp();
        dealt[lane / ROWS * ROWS + lane % 4 * N + lane % ROWS / 4] = next;
        __syncwarp();
        next = look_from(step_after);
    }
    __device__ __forceinline__ void begin(const common &c, const matrix &m, int col0)
    {
        int warp = threadIdx.x / 32, row = warp * ROWS + threadIdx.x % 32 / 8, piece = threadIdx.x % 8 * 8;
        base = m.base + col0 + piece;
        rows = m.rows;
        dealt = c.rows + warp * 2 * ROWS;
        bytes = (int)m.ld * (int)sizeof(bf16);
        n_rows = m.n_rows, n_cols = m.n_cols - col0 - piece;
        inside = m.n_cols - col0 >= SIZE;
        even = wide_at(row, piece), odd = wide_at(row + 4, piece);
        if (!GATHERS || !rows) return;
        next = look_from(0);
        deal(2);
    }
    /* ALL: every row and column exists. */
    template <bool ALL> __device__ __forceinline__ void copy_row(bf16 *to, int row)
    {
        const bf16 *from = row_at(base, row, bytes);
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            bool wanted = ALL || (row >= 0 && j * 64 < n_cols);
            copy16(to + j * BK * 64, wanted ? from + j * 64 : base, wanted);
        }
    }
    template <bool ALL> __device__ __forceinline__ void copy_rows(bf16 *tile, const int row[N])
    {
#pragma unroll
        for (int i = 0; i < N; i++) copy_row<ALL>(tile + (i % 2 ? odd : even) + i / 2 * 8 * 64, row[i]);
    }
    __device__ __forceinline__ void fetch(bf16 *tile, int step)
    {
        int mine = threadIdx.x % 32 / 8;
        if (!GATHERS || !rows) {
            int row[N];
#pragma unroll
            for (int i = 0; i < N; i++) {
                int k = step * BK + threadIdx.x / 32 * ROWS + 4 * i + mine;
                row[i] = k < n_rows ? k : -1;
            }
            return copy_rows<false>(tile, row);
        }
        int4 four = *(const int4 *)(dealt + step % 2 * ROWS + mine * N);
        int row[N] = { four.x, four.y, four.z, four.w };
        if (inside && (step + 1) * BK <= n_rows)
            copy_rows<true>(tile, row);
        else
            copy_rows<false>(tile, row);
        if (step % 2) deal(step + 3);
    }
};

/* The operands of y and dx: rows that are gathered or not, and half of the weights. */
template <grouped_product KIND> struct loaders {
    deep_loader<BM, LOADERS> left;
    bool gathered;

    __device__ __forceinline__ void begin(const mt_grouped_linear &a, const common &, const grouped_tile &t)
    {
        gathered = KIND == FORWARD ? a.gather_x : a.gather_dy;
        if (gathered) left.begin(left_of<KIND>(a, t), t.row0);
    }
    /* One thread's part: the copies it requests from the copy engine. */
    __device__ __forceinline__ void ask(const common &c, const operand_maps &maps, const grouped_tile &t, int stage, int step)
    {
        enum { HALF = BN / 2 };
        uint64_t *full = &c.full[stage];
        int first = c.rank * HALF;
        bf16 *to = right_tile(c, stage) + first * BK;
        barrier_expect(full, (gathered ? BN : BM + BN) * BK * (int)sizeof(bf16));
        if (!gathered) copy_box<false>(left_tile(c, stage), &maps.left, full, step * BK, t.begin + t.row0, 0);
        if (KIND == FORWARD) copy_box<true>(to, &maps.right, full, step * BK, t.col0 + first, t.e);
        if (KIND != FORWARD)
            for (int col = 0; col < HALF; col += 64)
                copy_box<true>(to + col * BK, &maps.right, full, t.col0 + first + col, step * BK, t.e);
    }
    __device__ __forceinline__ void fetch(const common &c, const grouped_tile &, int stage, int step)
    {
        if (gathered) left.fetch(left_tile(c, stage), step);
    }
};

/* Those of dw: columns of rows that are gathered or not, and half of the columns of packed rows.  A step that reaches past the expert's
 * rows is fetched by threads, which put zeros after them. */
template <> struct loaders<TO_W> {
    wide_loader<BM, true> left;
    wide_loader<BN, false> right;
    bool gathered;

    __device__ __forceinline__ void begin(const mt_grouped_linear &a, const common &c, const grouped_tile &t)
    {
        matrix x = right_of<TO_W>(a, t), dy = left_of<TO_W>(a, t);
        gathered = a.gather_x || a.gather_dy;
        left.begin(c, across(a) ? x : dy, t.row0);
        right.begin(c, across(a) ? dy : x, t.col0);
    }
    __device__ __forceinline__ void ask(const common &c, const operand_maps &maps, const grouped_tile &t, int stage, int step)
    {
        enum { HALF = BN / 2 };
        uint64_t *full = &c.full[stage];
        bool whole = (step + 1) * BK <= t.rows, ask_left = whole && !gathered;
        int first = c.rank * HALF;
        bf16 *to = right_tile(c, stage) + first * BK;
        barrier_expect(full, ((ask_left ? BM : 0) + (whole ? BN : 0)) * BK * (int)sizeof(bf16));
        for (int col = 0; ask_left && col < BM; col += 64)
            copy_box<false>(left_tile(c, stage) + col * BK, &maps.left, full, t.row0 + col, t.begin + step * BK, 0);
        for (int col = 0; whole && col < HALF; col += 64)
            copy_box<true>(to + col * BK, &maps.right, full, t.col0 + first + col, t.begin + step * BK, 0);
    }
    __device__ __forceinline__ void fetch(const common &c, const grouped_tile &t, int stage, int step)
    {
        bool whole = (step + 1) * BK <= t.rows;
        if (gathered || !whole) left.fetch(left_tile(c, stage), step);
        if (!whole) right.fetch(right_tile(c, stage), step);
    }
};

template <grouped_product KIND>
__device__ __forceinline__ void load_tiles(const mt_grouped_linear &a, const operand_maps &maps, const common &c)
{
    ring r = { 0, 0 };
    for (int64_t at = c.first; at < c.n_tiles; at += c.stride) {
        grouped_tile t = tile_of<KIND>(a, c, at);
        loaders<KIND> in;
        in.begin(a, c, t);
        int steps = steps_of<KIND>(a, t);
        for (int step = 0; step < steps; step++) {
            barrier_wait(&c.empty[r.stage], r.parity ^ 1);
            if (threadIdx.x == 0) in.ask(c, maps, t, r.stage, step);
            in.fetch(c, t, r.stage, step);
            barrier_arrive_copied(&c.full[r.stage]);
            advance(&r);
        }
    }
}

/* -- teams ----------------------------------------------------------------------------------------- */

/* d [64, 256] = (or +=) a [64, 16] b; both in shared memory, deep or wide. */
template <int WIDE_A, int WIDE_B> __device__ __forceinline__ void wgmma_256(float d[][4], uint64_t a, uint64_t b, bool more)
{
    asm volatile("{ .reg .pred more; setp.ne.b32 more, %130, 0;"
                 " wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" REGS_127 "}, %128, %129, more, 1, 1, %131, %132; }"
                 : ACC_32(d, 0)
                 : "l"(a), "l"(b), "r"((int)more), "n"(WIDE_A), "n"(WIDE_B));
}

/* Starts the products of a step; `first`: nothing was summed before. */
template <grouped_product KIND>
__device__ __forceinline__ void multiply_step(results acc, const bf16 *left, const bf16 *right, bool first)
{
    constexpr int WIDE_A = KIND == TO_W, WIDE_B = KIND != FORWARD;
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < BK; k += 16)
        wgmma_256<WIDE_A, WIDE_B>(acc, describe(left + (WIDE_A ? k * 64 : k), WIDE_A ? BK * 128 : 16),
                                  describe(right + (WIDE_B ? k * 64 : k), WIDE_B ? BK * 128 : 16), !first || k > 0);
    wgmma_commit();
}

/* This team no longer needs the stage: signal every block that fills it. */
__device__ __forceinline__ void give_back(const common &c, int stage)
{
    int rank = threadIdx.x % 128 / 32;
    if (threadIdx.x % 32 == 0 && rank < PAIR) barrier_arrive_at(&c.empty[stage], rank);
}

/* The results of a tile but for the wait for its last step.  fenced: what threads copied must be there for the tensor cores too. */
template <grouped_product KIND>
__device__ __forceinline__ void multiply_tile(results acc, const common &c, ring *r, int steps, int team, bool fenced)
{
    for (int step = 0; step < steps; step++) {
        barrier_wait(&c.full[r->stage], r->parity);
        if (fenced) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        /* rows of 64, or the column of 64 */
        multiply_step<KIND>(acc, left_tile(c, r->stage) + team * 64 * BK, right_tile(c, r->stage), step == 0);
        if (step > 0) {
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            give_back(c, (r->stage + STAGES - 1) % STAGES);
        }
        advance(r);
    }
}

template <grouped_product KIND>
__device__ __forceinline__ void finish_tile(results acc, const common &c, const ring &r, int steps)
{
    finish<64, 0, BLOCKS>(acc);
    if (steps > 0) give_back(c, (r.stage + STAGES - 1) % STAGES);
    if (steps == 0) clear<BLOCKS>(acc); /* an expert without rows: its sums are zero */
}

/* The same of a tile that is transposed in dw. */
__device__ __forceinline__ void pack_box_across(float *box, const float acc[][4], int chunk)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = n * 8 + lane % 4 * 2 + i % 2, col = threadIdx.x % 64 / 32 * 16 + i / 2 * 8 + lane / 4;
            box[row * BOX + (col / 4 ^ row % 8) * 4 + col % 4] = as_added(acc[chunk * 4 + n][i]);
        }
}

/* A box to dw; what is past its rows and columns is left out. */
__device__ __forceinline__ void send_box(const mt_grouped_linear &a, const operand_maps &maps, const float *box, int col, int row,
                                         int e)
{
    if (row >= a.N || col >= a.K) return;
    if (a.dw_set)
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&maps.sums),
                     "r"(col), "r"(row), "r"(e), "r"(shared_address(box))
                     : "memory");
    else
        asm volatile(
            "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&maps.sums),
            "r"(col), "r"(row), "r"(e), "r"(shared_address(box))
            : "memory");
}

/* Two warps have 32 rows of the tile, and memory for two boxes.  They send boxes in turns: when a warp's turn comes, it waits until the
 * copy engine has read the box that it sent before, whose memory is this one's. */
template <bool ACROSS>
__device__ __forceinline__ void reduce_sums(results acc, const mt_grouped_linear &a, const operand_maps &maps,
                                            const grouped_tile &t, int team, const common &c)
{
    int pair = team * 2 + threadIdx.x % 128 / 64, turn = threadIdx.x % 32 ? -1 : (int)threadIdx.x % 64 / 32;
    int down = t.row0 + pair * BOX, along = t.col0;
#pragma unroll
    for (int n = 0; n < BN / BOX; n++, along += BOX) {
        float *box = c.boxes + (pair * BOXES + n % BOXES) * BOX * BOX;
        if (turn == n % 2) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        warps_meet(pair);
        if (ACROSS)
            pack_box_across(box, acc, n);
        else
            pack_box(box, acc, n);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        warps_meet(pair);
        if (turn != n % 2) continue;
        send_box(a, maps, box, ACROSS ? down : along, ACROSS ? along : down, t.e);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
}

template <grouped_product KIND>
__device__ __forceinline__ void make_tiles(const mt_grouped_linear &a, const operand_maps &maps, const common &c)
{
    int team = threadIdx.x / 128 - 1;
    bool fenced = KIND == TO_W || (KIND == FORWARD ? a.gather_x : a.gather_dy);
    ring r = { 0, 0 };
    for (int64_t at = c.first; at < c.n_tiles; at += c.stride) {
        grouped_tile t = tile_of<KIND>(a, c, at);
        int steps = steps_of<KIND>(a, t), row = t.row0 + team * 64 + threadIdx.x % 128 / 32 * 16;
        if (KIND == TO_W && steps == 0 && !a.dw_set) continue; /* nothing is added */
        results acc;
        multiply_tile<KIND>(acc, c, &r, steps, team, fenced);
        finish_tile<KIND>(acc, c, r, steps);
        if (KIND == TO_W) {
            if (across(a))
                reduce_sums<true>(acc, a, maps, t, team, c);
            else
                reduce_sums<false>(acc, a, maps, t, team, c);
            continue;
        }
        if (KIND == FORWARD)
            store_strip<BLOCKS>((bf16 *)a.y + t.begin * a.N, a.N, row, t.rows, t.col0, (int)a.N,
                                a.b ? (const bf16 *)a.b + (int64_t)t.e * a.N : NULL, acc);
        else
            store_strip<BLOCKS>((bf16 *)a.dx + t.begin * a.K, a.K, row, t.rows, t.col0, (int)a.K, NULL, acc);
    }
    if (KIND == TO_W) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#endif

/* -- the kernel ------------------------------------------------------------------------------------ */

template <grouped_product KIND>
__global__ void __launch_bounds__(THREADS, 1) hopper_kernel(mt_grouped_linear a, const __grid_constant__ operand_maps maps)
{
#if HAS_WGMMA
    extern __shared__ unsigned char memory[];
    common c;
    c.tiles = aligned_shared(memory);
    c.boxes = (float *)(c.tiles + STAGES * (BM + BN) * BK);
    c.full = (uint64_t *)(c.boxes + box_floats(KIND));
    c.empty = c.full + STAGES;
    c.starts = c.rows = (int32_t *)(c.empty + STAGES);            /* no kernel has both */
    bool wide_n = KIND == FORWARD || (KIND == TO_W && across(a)); /* whose columns are N's */
    c.row_tiles = (int)(((wide_n ? a.K : a.N) + BM * PAIR - 1) / (BM * PAIR));
    c.col_tiles = (int)(((wide_n ? a.N : a.K) + BN - 1) / BN);
    c.rank = blockIdx.x % PAIR;
    c.first = blockIdx.x / PAIR;
    c.stride = gridDim.x / PAIR;
    if (threadIdx.x < STAGES) {
        barrier_begin(&c.full[threadIdx.x], LOADERS + 1);
        barrier_begin(&c.empty[threadIdx.x], TEAMS * PAIR);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if (KIND != TO_W) count_row_tiles(c.starts, a, BM * PAIR);
    cluster_sync();
    c.n_tiles = count_tiles<KIND>(a, c.starts, c.row_tiles, c.col_tiles);
    if (threadIdx.x < LOADERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
        load_tiles<KIND>(a, maps, c);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
        make_tiles<KIND>(a, maps, c);
    }
    cluster_sync(); /* no block exits while others write its memory or signal its barriers */
#endif
}

/* -- from the host --------------------------------------------------------------------------------- */

bool mt__grouped_fits_hopper(mt_stream *s, const mt_grouped_linear *a)
{
    const mt_cuda_device *d = mt_cuda_device_of(s);
    return d->hopper && shared_bytes(a->c, FORWARD) <= d->shared_bytes && shared_bytes(a->c, TO_W) <= d->shared_bytes &&
           d->n_sms >= PAIR && !(a->gather_x && a->gather_dy);
}

static mt_rc describe_operand(CUtensorMap *map, const void *base, int64_t cols, int64_t rows, int64_t c, int box_rows,
                              mt_err *err)
{
    const copied_matrix m = { base, sizeof(bf16), cols, rows, cols, c, box_rows };
    return mt__describe_matrix(map, &m, err);
}

/* Weights of all experts, and packed rows that are not tokens. */
static mt_rc describe_operands(operand_maps *m, const mt_grouped_linear *a, grouped_product kind, mt_err *err)
{
    bool gather_left = kind == FORWARD ? a->gather_x : a->gather_dy;
    if (kind == TO_W && a->gather_x) return describe_operand(&m->right, a->dy, a->N, a->M, 1, BK, err);
    if (!gather_left && kind == FORWARD) MT_TRY(describe_operand(&m->left, a->x, a->K, a->M, 1, BM, err));
    if (!gather_left && kind != FORWARD)
        MT_TRY(describe_operand(&m->left, a->dy, a->N, a->M, 1, kind == TO_X ? (int)BM : (int)BK, err));
    if (kind == TO_W) return describe_operand(&m->right, a->x, a->K, a->M, 1, BK, err);
    return describe_operand(&m->right, a->w, a->K, a->N, a->c, kind == FORWARD ? (int)BN / 2 : (int)BK, err);
}

template <grouped_product KIND> static mt_rc launch(mt_stream *s, const mt_grouped_linear *a, mt_err *err)
{
    const mt_cuda_device *d = mt_cuda_device_of(s);
    size_t shared = shared_bytes(a->c, KIND);
    operand_maps maps;
    MT_TRY(describe_operands(&maps, a, KIND, err));
    const copied_matrix sums = { a->dw, sizeof(float), a->K, a->N, a->K, a->c, BOX };
    if (KIND == TO_W) MT_TRY(mt__describe_matrix(&maps.sums, &sums, err));
    MT_TRY(mt__cuda_check(s->dev,
                          cudaFuncSetAttribute(hopper_kernel<KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                          "shared memory for products of experts", err));
    cudaLaunchAttribute pairs = {};
    pairs.id = cudaLaunchAttributeClusterDimension;
    pairs.val.clusterDim = { PAIR, 1, 1 };
    cudaLaunchConfig_t how = {};
    how.gridDim = (unsigned)(d->n_sms / PAIR * PAIR);
    how.blockDim = THREADS;
    how.dynamicSmemBytes = shared;
    how.stream = mt_cuda_raw(s);
    how.attrs = &pairs;
    how.numAttrs = 1;
    MT_TRY(mt__cuda_check(s->dev, cudaLaunchKernelEx(&how, hopper_kernel<KIND>, *a, (const operand_maps)maps),
                          "a product of experts", err));
    return mt__cuda_launched(s, "a product of experts", err);
}

mt_rc mt__grouped_by_hopper(mt_stream *s, const mt_grouped_linear *a, grouped_product kind, mt_err *err)
{
    if (kind == FORWARD) return launch<FORWARD>(s, a, err);
    return kind == TO_X ? launch<TO_X>(s, a, err) : launch<TO_W>(s, a, err);
}
