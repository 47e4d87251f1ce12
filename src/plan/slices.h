/* slices.h - a unit's trained numbers cut over the lanes of a machine: what each lane folds and updates where sums or state are
 * on the devices.
 *
 * A slice begins and ends with a chunk of the norm (ops/sqnorm.h), which is whole blocks of moments, so neither norm nor update
 * can tell how a unit is cut.  Units of few chunks leave some lanes without a slice. */
#ifndef MT_PLAN_SLICES_H
#define MT_PLAN_SLICES_H

#include "plan/plan.h"

/* n 0: none.  mt_plan_slice (plan.h) cuts a unit over machines likewise. */
mt_stretch mt_plan_lane_slice(const mt_plan *p, int unit, int lane);
/* The most numbers that a lane's slice of n has. */
int64_t mt_plan_most_slice(const mt_plan *p, int64_t n);

#endif
