/* plan_internal.h - what the files that make a plan share.  Only plan.c, check.c, settle.c, sizes.c and buffers.c include it.
 *
 *     check    refuses halves that contradict each other, and settles the plan (mt_plan_settle)
 *     list     counts the bytes of every buffer, and lists the buffers unless only sizes are wanted */
#ifndef MT_SCHEDULE_PLAN_INTERNAL_H
#define MT_SCHEDULE_PLAN_INTERNAL_H

#include "schedule/plan.h"

mt_rc mt__plan_check(mt_plan *p, mt_err *err);
mt_rc mt__plan_list_buffers(mt_plan *p, mt_err *err);

/* True if, regardless of other units, this one has sums to reuse, and layers may keep enough. */
bool mt__plan_may_reuse(const mt_plan *p, int unit);

/* True if hi is updated in its resident slot. */
static inline bool plan_updates_in_place(const mt_plan *p, int unit)
{
    return p->place.units[unit].resident && p->arithmetic.compute == MT_DTYPE_BF16;
}
/* True if the unit's staged updates use a staging slot, private or shared. */
static inline bool plan_needs_stage_slot(const mt_plan *p, int unit)
{
    const mt_unit_place *at = &p->place.units[unit];
    return at->site == MT_SITE_STAGED && !at->reuses && p->model->units[unit].layout->n_train > 0;
}
/* True if units take turns in the slots of gradient sums (sum_slots), because sums do not stay on the device between sweeps. */
static inline bool plan_sums_pass_through(const mt_plan *p)
{
    return !mt_plan_many_sweeps(p) || p->place.accumulators == MT_HOST;
}
static inline bool plan_folds_by_peers(const mt_plan *p) { return mt_plan_lanes(p) > 1 && p->place.fold == MT_FOLD_PEERS; }

#endif
