/* grouped_linear.cuh - what the kernels of grouped products share: the three products, and which tile of which expert is whose.
 *
 * The number of rows of each expert is on the device.  So a fixed number of blocks walks the tiles: block b takes tiles b, b + blocks,
 * ...; every block finds its tiles by the same table of row tiles, made from the offsets when it starts.  Which block computes a tile
 * changes nothing: a tile is one block's work from beginning to end, and depends on its expert alone. */
#ifndef MT_OPS_GROUPED_LINEAR_CUH
#define MT_OPS_GROUPED_LINEAR_CUH

#include "ops/ops_cuda.cuh"

typedef enum grouped_product {
    FORWARD, /* y  [rows, N] = x [rows, K] w' */
    TO_X,    /* dx [rows, K] = dy [rows, N] w */
    TO_W,    /* dw [N, K]  += dy' [N, rows] x [rows, K] */
} grouped_product;

/* Row tiles that a block works through column by column, so that what it shares with its neighbors stays in the L2 cache. */
enum { PANEL = 16 };

/* A tile of a result: row0 and col0 in the expert's part of it. */
typedef struct grouped_tile {
    int e;           /* expert, from e0 */
    int begin, rows; /* the expert's packed rows, from those of e0 */
    int row0, col0;
} grouped_tile;

/* starts[e] = row tiles of the experts before e, for 0 <= e <= c.  All threads of the block; the first warp counts. */
__device__ __forceinline__ void count_row_tiles(int32_t *starts, const mt_grouped_linear &a, int tile_rows)
{
    const int32_t *offsets = a.offsets + a.e0;
    int c = (int)a.c, per = (c + 31) / 32, from = threadIdx.x * per, to = min(from + per, c);
    if (threadIdx.x < 32) {
        int mine = 0;
        for (int e = from; e < to; e++) mine += (offsets[e + 1] - offsets[e] + tile_rows - 1) / tile_rows;
        int before = mine;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            int other = __shfl_up_sync(0xffffffffu, before, step);
            if (threadIdx.x >= step) before += other;
        }
        if (threadIdx.x == 31) starts[c] = before;
        before -= mine;
        for (int e = from; e < to; e++) {
            starts[e] = before;
            before += (offsets[e + 1] - offsets[e] + tile_rows - 1) / tile_rows;
        }
    }
    __syncthreads();
}

/* The last expert that starts at row tile i or before, and has any. */
__device__ __forceinline__ int expert_of(const int32_t *starts, int c, int i)
{
    int low = 0, high = c;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (starts[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* All tiles of the result; row_tiles and col_tiles of one expert's matrix for TO_W. */
template <grouped_product KIND>
__device__ __forceinline__ int64_t count_tiles(const mt_grouped_linear &a, const int32_t *starts, int row_tiles, int col_tiles)
{
    return KIND == TO_W ? a.c * row_tiles * col_tiles : (int64_t)starts[a.c] * col_tiles;
}

template <grouped_product KIND>
__device__ __forceinline__ grouped_tile find_tile(const mt_grouped_linear &a, const int32_t *starts, int row_tiles, int col_tiles,
                                                  int tile_rows, int tile_cols, int64_t index)
{
    const int32_t *offsets = a.offsets + a.e0;
    grouped_tile t;
    int i;
    if (KIND == TO_W) {
        t.e = (int)(index / (row_tiles * col_tiles));
        i = (int)(index % (row_tiles * col_tiles));
    } else {
        t.e = expert_of(starts, (int)a.c, (int)(index / col_tiles));
        i = (int)(index - (int64_t)starts[t.e] * col_tiles);
        row_tiles = starts[t.e + 1] - starts[t.e];
    }
    int panel = i / (PANEL * col_tiles) * PANEL, height = min(PANEL, row_tiles - panel);
    i -= panel * col_tiles;
    t.row0 = (panel + i % height) * tile_rows;
    t.col0 = i / height * tile_cols;
    t.begin = offsets[t.e] - offsets[0];
    t.rows = offsets[t.e + 1] - offsets[t.e];
    return t;
}

/* The row of x or dy that packed row i has. */
__device__ __forceinline__ int64_t source_row(const mt_grouped_linear &a, bool gather, int i)
{
    return gather ? a.rows[a.offsets[a.e0] + i] : i;
}

/* By tensor cores, for bf16 with N and K multiples of 8 and matrices on 16-byte addresses (grouped_tiles.cu). */
bool mt__grouped_fits_tiles(mt_stream *s, const mt_grouped_linear *a, grouped_product kind);
mt_rc mt__grouped_by_tiles(mt_stream *s, const mt_grouped_linear *a, grouped_product kind, mt_err *err);

#endif
