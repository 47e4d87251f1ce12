/* derived.h - everything that follows from a plan, computed on request: who computes which share, who stores which slice, where the
 * parts of a slot begin, and how many bytes things take.  All of it is pure; plan.h includes this. */
#ifndef MT_SCHEDULE_DERIVED_H
#define MT_SCHEDULE_DERIVED_H

#include "schedule/plan.h"

/* -- shares, over lanes and machines -- */

static inline int mt_plan_lanes(const mt_plan *p) { return p->job.lanes > 1 ? p->job.lanes : 1; }
static inline int mt_plan_machines(const mt_plan *p) { return p->job.machines > 1 ? p->job.machines : 1; }
/* True if lanes pass the sum of each share to the host, which adds them: with several lanes or several machines. */
static inline bool mt_plan_by_shares(const mt_plan *p) { return mt_plan_lanes(p) > 1 || mt_plan_machines(p) > 1; }

/* Machine m of n takes bundles m, m + n, ... one after the other.  So bundles are finished in
 * the order in which they are added (D2), and a machine needs only one sum of them.  A machine beyond the number of bundles
 * computes nothing but still stores slices.  In a round each lane computes one share.  On one machine, lanes take the step's
 * shares in turn.  With several machines, a round has shares of one bundle only, so all machines finish bundles in the same
 * order. */

/* Rounds per bundle, with several machines. */
static inline int mt_plan_bundle_rounds(const mt_plan *p)
{
    return (mt_arithmetic_shares(&p->arithmetic) + mt_plan_lanes(p) - 1) / mt_plan_lanes(p);
}
/* The most bundles of any machine. */
static inline int mt_plan_turns(const mt_plan *p)
{
    return (mt_arithmetic_bundles(&p->arithmetic) + mt_plan_machines(p) - 1) / mt_plan_machines(p);
}
static inline int mt_plan_rounds(const mt_plan *p)
{
    if (mt_plan_machines(p) > 1) return mt_plan_turns(p) * mt_plan_bundle_rounds(p);
    return (mt_arithmetic_parts(&p->arithmetic) + mt_plan_lanes(p) - 1) / mt_plan_lanes(p);
}
/* The share that a lane computes in a round; -1: none. */
int mt_plan_share(const mt_plan *p, int round, int lane);

/* -- slices of the state, over machines (slices.h cuts over lanes) -- */

/* Trained elements [first, first + n) of a unit.  One machine stores their low halves, moments and gradient for all machines.
 * Slices are whole chunks of the norm (ops/sqnorm.h) and whole blocks of moments. */
typedef struct mt_stretch {
    int64_t first, n;
} mt_stretch;
mt_stretch mt_plan_slice(const mt_plan *p, int unit, int machine);
static inline mt_stretch mt_plan_own_slice(const mt_plan *p, int unit) { return mt_plan_slice(p, unit, p->job.machine); }
/* Bytes per number of a bundle's sum on its way between machines. */
static inline size_t mt_plan_sent_bytes(const mt_plan *p) { return mt_arithmetic_rounds(&p->arithmetic) ? 2 : sizeof(float); }
/* True if every machine stores all low halves of the unit, because the device's weights are made from them. */
bool mt_plan_low_is_whole(const mt_plan *p, int unit);
/* The part of a unit's state that this machine stores: up to two runs of elements, consecutive in memory.  Returns their number.
 * Every machine stores all of hi, and all packed weights. */
int mt_plan_runs(const mt_plan *p, int unit, mt_state_kind kind, mt_stretch out[2]);
/* True if they include any element of a range. */
bool mt_plan_stores(const mt_plan *p, mt_state_range r);
/* Their number of elements. */
int64_t mt_plan_stored(const mt_plan *p, int unit, mt_state_kind kind);

/* -- gradient sums -- */

/* Most rows that a lane adds to one sum: the step's, or with several lanes a share's. */
int64_t mt_plan_part_tokens(const mt_plan *p);
static inline bool mt_plan_many_sweeps(const mt_plan *p)
{
    return p->place.sweep_tokens < (mt_plan_by_shares(p) ? p->part_tokens : p->job.step_tokens);
}
/* Number of a unit's sums in host memory (MT_BUF_TOTAL); twice as many for a tied unit. */
int mt_plan_total_count(const mt_plan *p);
/* True for a buffer that each lane has separately. */
bool mt_buffer_of_lane(mt_buffer_kind kind, mt_place place);
/* Landing slots of a lane: layers and experts take turns in the first two, so that one is filled while the other is read; the
 * embedding and the head, which may be much larger, have the last. */
enum { MT_LAND_TURNS = 2, MT_LAND_ENDS = MT_LAND_TURNS, MT_LAND_SLOTS };
/* Number of sums of a gradient on a single device: the step's; with several bundles also a bundle's; with several shares also a
 * share's (deal.h). */
static inline int mt_plan_acc_count(const mt_plan *p)
{
    if (mt_plan_by_shares(p)) return 1; /* the host adds */
    return 1 + (mt_arithmetic_bundles(&p->arithmetic) > 1) + (mt_arithmetic_shares(&p->arithmetic) > 1);
}
/* Distance from one such sum of n numbers to the next, and bytes of all of them. */
int64_t mt_plan_acc_stride(int64_t n);
size_t mt_plan_acc_bytes(const mt_plan *p, int64_t n);
/* True if the first micro-batch of a sum writes this weight's gradient; the others are cleared and added to.  Sums that shares fold
 * into each other begin at zero. */
bool mt_plan_writes_sum(const mt_plan *p, int unit, const mt_weight *w);
/* Numbers of a unit's sums that are cleared; tied: of the lookup's sums of a tied embedding. */
int64_t mt_plan_cleared(const mt_plan *p, int unit, bool tied);

/* -- staged updates: in reused memory, or in a staging slot -- */

/* The arrays of `parts` (optim/state.h) for n numbers, in one stretch of memory. */
mt_state_layout mt_plan_lay_out(const mt_plan *p, int64_t n, unsigned parts);
/* Unit u's arrays that pass through a staging slot: all, without hi if it is updated in place. */
unsigned mt_plan_staged_parts(const mt_plan *p, int unit);
/* Unit u's staged arrays, and its gradient, that reuse the memory of lender 0 or 1 (a layer whose kept memory is reused).  The
 * first array of the optimizer takes the place of the unit's sums.  A layer's unit has one lender, number 1.  The embedding's state
 * is larger than what a layer keeps, so it has two: the optimizer's other arrays are in the first. */
unsigned mt_plan_lent_parts(const mt_plan *p, int unit, int lender);
/* Where they are in its memory. */
mt_state_layout mt_plan_lent(const mt_plan *p, int unit, int lender);
/* Grants reused memory to units in ascending order; all zero before the first. */
typedef struct mt_reuse_search {
    int next;       /* layers before this one are taken or too small */
    size_t refused; /* no layer from `next` on has this much; 0: not known */
} mt_reuse_search;
/* True if unit u's staged state can reuse memory besides the units granted before it; it then takes its share of *l.  The unit's
 * sums must have their own memory, and layers must keep enough on the device. */
bool mt_plan_grant_reuse(const mt_plan *p, mt_reuse_search *l, int unit);

/* Unit u's private staging slot.  The state stays there until the next update, which reads it instead of the host's copy; it is
 * still written back each time. -1: the unit needs no slot, or there are too few for each unit to have one. */
static inline int mt_plan_private_slot(const mt_plan *p, int unit) { return p->place.units[unit].private_slot; }

/* -- updates in pieces -- */

/* A unit that is updated in pieces: the workers update [0, mt_plan_host_share), and piece i starts at mt_plan_piece_first.  Each
 * piece begins at a block of moments, so neither the cut nor the size of the pieces changes a bit. */
static inline int64_t mt_plan_host_share(const mt_plan *p, int unit)
{
    return p->model->units[unit].layout->n_train - p->place.units[unit].in_pieces;
}
static inline int mt_plan_pieces(const mt_plan *p, int unit)
{
    int64_t n = p->place.units[unit].in_pieces, each = p->place.piece_elems;
    return n ? (int)((n + each - 1) / each) : 0;
}
static inline int64_t mt_plan_piece_first(const mt_plan *p, int unit, int piece)
{
    return mt_plan_host_share(p, unit) + piece * p->place.piece_elems;
}
static inline int64_t mt_plan_piece_elems(const mt_plan *p, int unit, int piece)
{
    int64_t left = p->model->units[unit].layout->n_train - mt_plan_piece_first(p, unit, piece);
    return left < p->place.piece_elems ? left : p->place.piece_elems;
}
/* What a piece has in its slot: everything. */
enum { MT_PIECE_PARTS = MT_PART_FIRST | MT_PART_OTHERS | MT_PART_LO | MT_PART_HI | MT_PART_GRADIENT };

/* -- layers -- */

/* First layer of the segment that holds `layer`: the nearest kept input at or before it. */
int mt_plan_segment_start(const mt_plan *p, int layer);
/* The lowest layer that needs a backward; L: none does.  Layers below it may keep nothing.  0 for a job that does not train. */
static inline int mt_plan_lowest_layer(const mt_plan *p) { return p->job.train ? mt_model_lowest_layer(p->model) : 0; }
/* The layer with which backward ends: the start of that layer's segment, or L. */
int mt_plan_backward_end(const mt_plan *p);
/* The unit whose host memory stores unit u's state: u itself, unless layers share memory (alias). */
int mt_plan_alias(const mt_plan *p, int unit);
/* The layer whose host memory stores a layer's kept activations, if they go there. */
int mt_plan_alias_kept(const mt_plan *p, int layer);

/* -- sizes -- */

/* Bytes of n numbers of an array, as it is stored. */
size_t mt_plan_array_bytes(const mt_plan *p, mt_state_kind kind, size_t n);
/* Bytes of `parts` per number, rounded down for each array. */
size_t mt_plan_number_bytes(const mt_plan *p, unsigned parts);

/* True if the load-balancing loss is part of the step; rows of its table: the most micro-batches a step can have. */
static inline bool mt_plan_balances(const mt_plan *p)
{
    return p->job.train && p->job.router_loss > 0 && p->model->unit_experts > 0;
}
int64_t mt_plan_most_micros(const mt_plan *p);
/* Numbers in the table of rows per expert, [L, E]; 0: nothing is trained, or there are no experts. */
int64_t mt_plan_loads(const mt_plan *p);
/* Bytes of a step's sums: loss, norms, loads (engine/lane.h). */
size_t mt_plan_sums_bytes(const mt_plan *p);
/* Bytes of one piece on its way: MT_BOUNCE_BYTES, or less if every unit is smaller. */
size_t mt_plan_bounce_bytes(const mt_plan *p);

/* Rows of the layers' workspace. */
mt_work_rows mt_plan_work_rows(const mt_plan *p);
/* Bytes that a layer keeps for a sweep. */
size_t mt_plan_kept_bytes(const mt_plan *p, int layer, mt_keep keep);
/* The attention options, with the most documents and rows that a micro-batch can have. */
mt_attention_use mt_plan_attention(const mt_plan *plan);

#endif
