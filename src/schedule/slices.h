/* slices.h - cuts a unit's trained numbers over the lanes of a machine: each lane adds and updates its slice when sums or state
 * are on the devices.
 *
 * A slice begins and ends with a chunk of the norm (ops/sqnorm.h), which is whole blocks of moments, so the cut changes neither
 * norm nor update.  Units of few chunks leave some lanes without a slice. */
#ifndef MT_SCHEDULE_SLICES_H
#define MT_SCHEDULE_SLICES_H

#include "schedule/plan.h"

/* n == 0: no slice. mt_plan_slice (derived.h) cuts a unit over machines in the same way. */
mt_stretch mt_plan_lane_slice(const mt_plan *p, int unit, int lane);
/* The most numbers in a lane's slice of n. */
int64_t mt_plan_most_slice(const mt_plan *p, int64_t n);

/* If a unit's home is the devices, every lane has its slice of the state.  Numbers that are not trained follow at
 * mt_plan_slice_rest(); every lane has all of those. */
static inline bool mt_plan_is_sliced(const mt_plan *p, int unit)
{
    return mt_plan_lanes(p) > 1 && p->place.units[unit].home == MT_DEVICE;
}
static inline int64_t mt_plan_slice_rest(const mt_plan *p, int unit)
{
    return mt_plan_most_slice(p, p->model->units[unit].layout->n_train);
}
/* True if lanes have slices of the unit's weights while the home of its state is the host; for each kind. */
static inline bool mt_plan_is_mirrored(const mt_plan *p, int unit)
{
    return mt_plan_lanes(p) > 1 && p->place.gather && p->place.units[unit].home == MT_HOST &&
           p->model->units[unit].layout->n_train > 0;
}
bool mt_plan_mirrors(const mt_plan *p, int unit, mt_state_kind kind);
/* True if a lane gathers the unit's weights from the slices of all lanes. */
static inline bool mt_plan_is_gathered(const mt_plan *p, int unit)
{
    return mt_plan_is_sliced(p, unit) || mt_plan_is_mirrored(p, unit);
}
/* Count of each kind of number in a lane's memory. */
int64_t mt_plan_slice_elems(const mt_plan *p, int unit, mt_state_kind kind);

#endif
