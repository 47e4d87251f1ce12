/* sqnorm_lanes.h - the lanes of one whole chunk, in plain C that compilers turn into vector code.  sqnorm.c, sqnorm_avx2.c and
 * sqnorm_avx512.c compile it for their instruction set; the bits cannot differ, only the speed.
 *
 * Elements are read in memory order, and the lanes' sums kept in memory (2 KiB, first-level cache).  Keeping sums in registers
 * means reading with strides of 256 elements, and memory answers that at half the speed.  (So no `restrict` here: with it GCC
 * swaps the loops and does just that.) */
#ifndef MT_OPS_SQNORM_LANES_H
#define MT_OPS_SQNORM_LANES_H

#include "ops/sqnorm.h"

#include <string.h>

static inline void sqnorm_lanes_bf16(double *lane, const uint16_t *x)
{
    memset(lane, 0, MT_SQNORM_LANES * sizeof *lane);
    for (int k = 0; k < MT_SQNORM_CHUNK; k += MT_SQNORM_LANES) {
        for (int l = 0; l < MT_SQNORM_LANES; l++) {
            double v = mt_bf16_to_f32(x[k + l]);
            lane[l] += v * v;
        }
    }
}

static inline void sqnorm_lanes_f32(double *lane, const float *x)
{
    memset(lane, 0, MT_SQNORM_LANES * sizeof *lane);
    for (int k = 0; k < MT_SQNORM_CHUNK; k += MT_SQNORM_LANES) {
        for (int l = 0; l < MT_SQNORM_LANES; l++) {
            double v = x[k + l];
            lane[l] += v * v;
        }
    }
}

#endif
