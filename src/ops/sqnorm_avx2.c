/* sqnorm_avx2.c - the lanes of sqnorm.h, compiled for this instruction set. */
#include "ops/sqnorm_lanes.h"

void mt__sqnorm_lanes_bf16_avx2(double *lane, const uint16_t *x) { sqnorm_lanes_bf16(lane, x); }
void mt__sqnorm_lanes_f32_avx2(double *lane, const float *x) { sqnorm_lanes_f32(lane, x); }
