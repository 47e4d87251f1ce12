/* linear_tiles.c - a kernel's score: how well its tiles fill the processors to the last wave, times the pace of its tile.
 *
 * The paces were fitted to what all choices for the products of three models reached (docs/notebook, "Kernels for the power
 * limit"; the numbers themselves are in the test).  A processor works on two of the tiles marked calm in turn, so that one's end
 * overlaps the other's products, and they use less energy; with long sums there is less to overlap. */
#include "ops/linear_tiles.h"

#include "base/mem.h"

static const struct {
    int id, rows, cols; /* id: not all have names in older headers */
    bool calm;
} tiles[] = {
    { 17, 64, 128, false },   { 18, 128, 64, false },   { 20, 128, 128, true },   { 23, 128, 256, false },
    { 24, 256, 128, false },  { 29, 128, 160, true },   { 31, 192, 128, false },  { 32, 128, 192, false },
    { 165, 112, 128, false }, { 184, 144, 128, false }, { 197, 168, 128, true },  { 201, 176, 128, true },
    { 209, 192, 192, false }, { 247, 320, 64, false },  { 248, 320, 128, false }, { 495, 256, 96, false },
};

static int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Relative to the best tile's, all processors at work. */
static double pace_of(size_t tile, const mt_tiled *p)
{
    int64_t area = (int64_t)tiles[tile].rows * tiles[tile].cols;
    bool square = area == 128 * 128;
    if (tiles[tile].calm && square == p->bias) return 1.0; /* a bias slows the others */
    if (tiles[tile].calm) return square ? 0.99 : 0.96;
    if (area < 112 * 128) return 0.915;
    if (area <= 192 * 128) return 0.96;
    return p->k >= 8192 ? 0.995 : 0.93;
}

/* What is reached of the best pace, from 0 to 1; 0: by a tile that is not known. */
static double score_of(const mt_tiled *p, const mt_tile_choice *c)
{
    int64_t split = c->split > 1 ? c->split : 1;
    for (size_t t = 0; t < MT_COUNT(tiles); t++) {
        if (tiles[t].id != c->tile) continue;
        int64_t n = div_up(p->m, tiles[t].rows) * div_up(p->n, tiles[t].cols) * split, waves = div_up(n, p->n_sms);
        double places = (double)tiles[t].rows * tiles[t].cols * (double)(waves * p->n_sms);
        double sums = split > 1 ? 1000.0 * (double)split / (double)p->k : 0; /* of the parts, through memory */
        return (double)p->m * (double)p->n * (double)split / places * pace_of(t, p) / (1 + sums);
    }
    return 0;
}

int mt_tile_best(const mt_tiled *p, const mt_tile_choice *choices, int n)
{
    const double large = 2e10; /* FLOPs; smaller ones are over before the card is hot */
    int best = 0;
    if (2.0 * (double)p->m * (double)p->n * (double)p->k < large || score_of(p, &choices[0]) == 0) return 0;
    for (int i = 1; i < n; i++)
        if (score_of(p, &choices[i]) > score_of(p, &choices[best])) best = i;
    return best;
}
