/* linear_tiles.c - a kernel's score: how well its tiles fill the processors to the last wave, times the pace of its tile.
 *
 * The paces were fitted to what the choices for the products of seven models reach in bursts that are long enough for the card to
 * settle at its power limit (docs/notebook, "Kernels for the power limit"; the numbers themselves are in the test).  A processor
 * works on two of the tiles marked calm in turn, so that one's end overlaps the other's products.  Larger tiles read each operand
 * less often, which costs less energy: with long sums, whose end hardly counts, they win. */
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

/* A large tile, relative to the best one with long sums.  The end of a tile takes as long as 64 more numbers of its sums.  The
 * square tile reads least, which counts for weight gradients, and more where all sides are those of a model as wide as 123B. */
static double pace_of_large(size_t tile, const mt_tiled *p)
{
    const double k = (double)p->k, ends = k / (k + 64);
    const bool square = tiles[tile].rows == tiles[tile].cols, vast = p->m >= 12288 && p->n >= 12288 && p->k >= 12288;
    if (square && vast) return p->dw ? 1.015 * ends : ends;
    if (tiles[tile].rows == 256 || (square && p->dw)) return ends;
    return 0.99 * ends;
}

/* Relative to the best tile's, all processors at work. */
static double pace_of(size_t tile, const mt_tiled *p)
{
    const int64_t area = (int64_t)tiles[tile].rows * tiles[tile].cols;
    const double reads = (double)(p->k < 24000 ? p->k : 24000) / 600000, often = (1 - reads) * (p->dw ? 0.985 : 1);
    double pace;
    if (tiles[tile].calm)
        pace = often;
    else if (area < 112 * 128)
        pace = 0.915 * often;
    else if (area <= 192 * 128)
        pace = 0.96;
    else
        pace = pace_of_large(tile, p);
    return p->bias && area != 128 * 128 ? 0.96 * pace : pace; /* a bias slows all others */
}

/* A tile's share of the places in the waves that it takes. */
static double filled(const mt_tiled *p, int64_t rows, int64_t cols, int64_t split, int places)
{
    int64_t n = div_up(p->m, rows) * div_up(p->n, cols) * split, waves = div_up(n, places);
    return (double)p->m * (double)p->n * (double)split / ((double)rows * (double)cols * (double)(waves * places));
}

/* Our own kernel reads the least of all.  But it multiplies nothing while it stores a tile's sums, so it is fast for long sums, and slow
 * with a bias.  In steps of narrow models it gained nothing.  Its clusters have two rows of tiles each, so that an odd number of rows
 * costs one more. */
static double score_of_own(const mt_tiled *p)
{
    const double k = (double)p->k, rows = (double)div_up(p->n, 256), even = (double)div_up(p->n, 512) * 2;
    if (p->m < 5120 || p->n < 5120) return 0;
    return (p->bias ? 1.0 : 1.08) * filled(p, 384, 256, 1, p->n_sms / 4 * 2) * rows / even * k / (k + 600);
}

/* What is reached of the best pace, about 1 at most; 0: by a tile that is not known. */
static double score_of(const mt_tiled *p, const mt_tile_choice *c)
{
    int64_t split = c->split > 1 ? c->split : 1;
    if (c->tile == MT_TILE_OWN) return score_of_own(p);
    for (size_t t = 0; t < MT_COUNT(tiles); t++) {
        if (tiles[t].id != c->tile) continue;
        double sums = split > 1 ? 1000.0 * (double)split / (double)p->k : 0; /* of the parts, through memory */
        return filled(p, tiles[t].rows, tiles[t].cols, split, p->n_sms) * pace_of(t, p) / (1 + sums);
    }
    return 0;
}

int mt_tile_best(const mt_tiled *p, const mt_tile_choice *choices, int n)
{
    const double large = 2e10; /* FLOPs; smaller ones are over before the card is hot */
    const bool known = score_of(p, &choices[0]) > 0;
    double best_score = 0, own_score = 0;
    int best = 0, own = -1;
    if (2.0 * (double)p->m * (double)p->n * (double)p->k < large) return 0;
    for (int i = 0; i < n; i++) {
        const double score = score_of(p, &choices[i]);
        if (choices[i].tile == MT_TILE_OWN) {
            own = i;
            own_score = score;
        } else if (score > best_score) {
            best_score = score;
            if (known) best = i;
        }
    }
    return best_score > 0 && own_score > best_score ? own : best;
}
