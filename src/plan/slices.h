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

/* Where the state of a unit lives on the devices, every lane has its slice of it.  Numbers that are not trained follow at
 * mt_plan_slice_rest(), and of those every lane has all. */
static inline bool mt_plan_is_sliced(const mt_plan *p, int unit)
{
    return mt_plan_lanes(p) > 1 && p->place.units[unit].home == MT_DEVICE;
}
static inline int64_t mt_plan_slice_rest(const mt_plan *p, int unit)
{
    return mt_plan_most_slice(p, p->model->units[unit].layout->n_train);
}
/* Lanes have slices of the unit's weights, and the state lives in host memory; of which kinds. */
static inline bool mt_plan_is_mirrored(const mt_plan *p, int unit)
{
    return mt_plan_lanes(p) > 1 && p->place.gather && p->place.units[unit].home == MT_HOST &&
           p->model->units[unit].layout->n_train > 0;
}
bool mt_plan_mirrors(const mt_plan *p, int unit, mt_state_kind kind);
/* A lane's weights come from the slices of all lanes. */
static inline bool mt_plan_is_gathered(const mt_plan *p, int unit)
{
    return mt_plan_is_sliced(p, unit) || mt_plan_is_mirrored(p, unit);
}
/* Numbers of each kind in a lane's memory. */
int64_t mt_plan_slice_elems(const mt_plan *p, int unit, mt_state_kind kind);

#endif
