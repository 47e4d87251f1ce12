/* linear_tiles.h - which of the kernels that the product library offers, and our own, is the fastest on a hot Hopper.
 *
 * Large products there run at the card's power limit, and then the library's first choice, the fastest on a cool card, is not the
 * fastest.  A function of the product and of each kernel's tile: the same on every run, and tested without a GPU. */
#ifndef MT_OPS_LINEAR_TILES_H
#define MT_OPS_LINEAR_TILES_H

#include <stdbool.h>
#include <stdint.h>

/* D [m, n], column by column, of sums of length k. */
typedef struct mt_tiled {
    int64_t m, n, k;
    bool bias;
    bool dw; /* a weight gradient, added to fp32 sums */
    int n_sms;
} mt_tiled;

enum { MT_TILE_OWN = -1 }; /* our own kernel (dense_hopper.cu); a pair of its blocks makes 384 x 256 of D */

typedef struct mt_tile_choice {
    int tile;      /* as cublasLt.h numbers them, or ours */
    int64_t split; /* parts that a sum is cut into */
} mt_tile_choice;

/* The index of the fastest.  Small products get 0, the library's own choice.  If that is a tile that is not known, it counts as the
 * best known tile among the library's: only our own kernel may be faster. */
int mt_tile_best(const mt_tiled *p, const mt_tile_choice *choices, int n);

#endif
