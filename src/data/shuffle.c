/* shuffle.c - a Feistel network over a grid.
 *
 * The numbers fill a grid of about sqrt(n) rows and columns.  A round rotates every column by its own amount, then every row;
 * each can be undone, so all rounds together are a bijection of the grid.  A number that lands beyond n goes through again until
 * it is inside (cycle walking); the grid has fewer than `rows` such places, so that is rare. */
#include "data/shuffle.h"

#include "base/rng.h"

enum { ROUNDS = 6 };

/* The smallest r with r * r >= n, at least 1. */
static uint64_t root_up(uint64_t n)
{
    uint64_t below = 0; /* the largest whose square is less than n */
    for (uint64_t bit = UINT64_C(1) << 31; bit; bit >>= 1)
        if ((below | bit) * (below | bit) < n) below |= bit;
    return below + 1;
}

mt_shuffle mt_shuffle_of(int64_t n, uint64_t seed, uint64_t stream)
{
    mt_shuffle s = { .n = (uint64_t)n, .seed = seed, .stream = stream };
    s.rows = root_up(s.n);
    s.columns = s.n ? (s.n + s.rows - 1) / s.rows : 1;
    return s;
}

static uint64_t once(const mt_shuffle *s, uint64_t x)
{
    uint64_t row = x / s->columns, column = x % s->columns, round = 0;
    for (int k = 0; k < ROUNDS; k++) {
        row += mt_rng_below(s->seed, s->stream, round + column, s->rows);
        if (row >= s->rows) row -= s->rows;
        round += s->columns;
        column += mt_rng_below(s->seed, s->stream, round + row, s->columns);
        if (column >= s->columns) column -= s->columns;
        round += s->rows;
    }
    return row * s->columns + column;
}

int64_t mt_shuffle_at(const mt_shuffle *s, int64_t i)
{
    uint64_t x = (uint64_t)i;
    do x = once(s, x);
    while (x >= s->n);
    return (int64_t)x;
}
