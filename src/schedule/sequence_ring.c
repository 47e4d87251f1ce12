/* sequence_ring.c - decides which weights are in which slot, and when they are fetched.
 *
 * A unit's weights are in a slot: its own if it is resident, otherwise one of its group's.  A slot's content is identified by
 * (unit, version); a unit with a newer version must be fetched again, unless it was updated in place.
 *
 *     fetch    waits for the unit's update (host) or its event (device), then issues the copy, after the slot's last reader
 *     acquire  compute waits for that copy
 *     release  marks where the last reader ends
 *
 * Generation fetches only experts that rows have chosen, once their layer's routes are known, so such a slot is valid for one
 * visit (E4).
 *
 * A fetch overwrites the slot whose unit is needed last (R3).  Rules R1 to R6: docs/invariants.md. */
#include "schedule/sequence_internal.h"

#include <assert.h>
#include <limits.h>

static seq_ring_slot *slot_holding(mt_sequence *s, int u)
{
    const seq_unit *at = &s->units[u];
    seq_ring_slot *r = at->slot < 0 ? NULL : &s->ring[at->slot];
    return r && r->unit == u && r->version == at->version ? r : NULL;
}

/* Visits whose weights may be fetched: none beyond the end of a step (R5). */
static int horizon_of(const mt_sequence *s) { return s->wraps ? s->n_visits : s->n_visits - s->visit; }

/* Visits until unit u is used again; INT_MAX: not before the step ends. */
static int next_use(mt_sequence *s, int u)
{
    int next = s->units[u].next;
    s->looks++;
    if (next < 0) return INT_MAX;
    int distance = next > s->visit ? next - s->visit : next - s->visit + s->n_visits;
    return distance < horizon_of(s) ? distance : INT_MAX;
}

/* For each visit, the next visit of the same unit; the last is followed by the first. */
static void list_uses(mt_sequence *s)
{
    for (int u = 0; u < s->model->n_units; u++) s->units[u].next = -1;
    for (int i = s->n_visits - 1; i >= 0; i--) {
        seq_unit *u = &s->units[s->visits[i]];
        s->following[i] = u->next;
        u->next = i;
    }
    for (int i = 0; i < s->n_visits; i++)
        if (s->following[i] < 0) s->following[i] = s->units[s->visits[i]].next;
}

static void go_to(mt_sequence *s, int visit)
{
    s->visit = visit;
    s->units[s->visits[visit]].next = s->following[visit];
}

void mt__seq_ring_begin(mt_sequence *s)
{
    list_uses(s);
    go_to(s, 0);
    s->ahead = 0;
}

void mt__seq_ring_next(mt_sequence *s)
{
    go_to(s, s->visit + 1 == s->n_visits ? 0 : s->visit + 1);
    if (s->ahead > 0) s->ahead--;
}

/* True if only chosen experts of the unit are fetched. */
static bool is_chosen_from(const mt_sequence *s, int u)
{
    return s->mode == MT_MODE_CONTINUE && s->model->units[u].kind == MT_UNIT_EXPERTS && !seq_place(s, u)->resident;
}

void mt__seq_ring_routed(mt_sequence *s, int layer)
{
    s->routed = layer;
    s->ahead = 0; /* its experts were passed over */
}

/* A slot that unit u may overwrite for a use `distance` visits ahead; NULL: every slot is in use or needed sooner. */
static seq_ring_slot *choose_victim(mt_sequence *s, int u, int distance)
{
    const seq_unit *at = &s->units[u];
    seq_ring_slot *best = NULL;
    int best_use = distance; /* R3: never overwrite weights that are needed as soon as, or before, the new ones */
    for (int i = at->first_slot; i < at->first_slot + at->n_slots; i++) {
        seq_ring_slot *r = &s->ring[i];
        s->looks++;
        if (r->users) continue;
        if (r->unit < 0 || s->units[r->unit].version != r->version) return r;
        int use = next_use(s, r->unit);
        if (use > best_use) {
            best = r;
            best_use = use;
        }
    }
    return best;
}

/* R1: a unit is fetched only after its newest update; true when that has happened (host) or is ordered by events.  Events order
 * it after its write-back, which a snapshot lock may hold up: a prefetch does not wait for either (R6). */
static mt_rc wait_for_update(mt_sequence *s, int u, bool block, bool *is_ready, mt_err *err)
{
    int64_t version = s->units[u].version;
    if (block) MT_TRY(mt__seq_pieces_until(s, u, err));
    bool updated = !seq_by_updater(s, u) || s->port->updated(s->self, u, version);
    *is_ready = block || (updated && mt__seq_pieces_issued(s, u) && mt__seq_updates_may_return(s, u));
    return updated || !block ? MT_OK : s->port->await_update(s->self, u, version, err);
}

static mt_rc issue_fetch(mt_sequence *s, int u, int slot, mt_err *err)
{
    bool on_host = seq_place(s, u)->home == MT_HOST;
    MT_TRY(mt__seq_updates_return(s, u, err));
    MT_TRY(seq_wait(s, MT_Q_IN, ring_event(s, slot, FREE), err)); /* R2 */
    MT_TRY(seq_wait(s, MT_Q_IN, unit_event(u, on_host ? WRITTEN : DEVICE_UPDATED), err));
    if (on_host)
        MT_TRY(seq_wait(s, MT_Q_IN, unit_event(u, KEPT_WRITTEN), err)); /* weights are in the first half of a write-back */
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_FETCH, .unit = u, .slot = slot }, err));
    return seq_record(s, MT_Q_IN, ring_event(s, slot, READY), err);
}

/* Starts the fetch of unit u for a use `distance` visits ahead; *started is false if it must wait. */
static mt_rc sequence_ring_fetch(mt_sequence *s, int u, int distance, bool block, bool *started, mt_err *err)
{
    s->looks++;
    *started = slot_holding(s, u) != NULL;
    if (*started) return MT_OK;
    seq_ring_slot *r = choose_victim(s, u, distance);
    bool is_ready = false;
    if (r) MT_TRY(wait_for_update(s, u, block, &is_ready, err));
    if (!is_ready) return MT_OK;
    r->unit = u;
    r->version = s->units[u].version;
    r->in_part = is_chosen_from(s, u);
    s->units[u].slot = (int)(r - s->ring);
    *started = true;
    return issue_fetch(s, u, s->units[u].slot, err);
}

mt_rc mt__seq_ring_acquire(mt_sequence *s, int u, mt_err *err)
{
    bool started;
    assert(s->visits[s->visit] == u);
    MT_TRY(sequence_ring_fetch(s, u, 0, true, &started, err));
    seq_ring_slot *r = slot_holding(s, u);
    if (!r) return mt_fail(err, MT_EINTERNAL, "no ring slot for unit %d: all are in use", u);
    r->users++;
    return seq_wait(s, MT_Q_COMPUTE, ring_event(s, s->units[u].slot, READY), err);
}

mt_rc mt__seq_ring_release(mt_sequence *s, int u, mt_err *err)
{
    seq_ring_slot *r = slot_holding(s, u);
    assert(r && r->users > 0); /* R4: weights in use are not updated */
    r->users--;
    if (r->in_part) r->unit = -1; /* E4 */
    s->visited = ring_event(s, s->units[u].slot, FREE);
    return seq_record(s, MT_Q_COMPUTE, s->visited, err);
}

/* A fetch started for a coming visit stays valid, because only weights needed later are overwritten (R3).  So this continues
 * where it stopped. */
mt_rc mt__seq_ring_prefetch(mt_sequence *s, mt_err *err)
{
    int horizon = horizon_of(s);
    for (int d = s->ahead + 1; d < horizon; d++) {
        bool started = true;
        int at = s->visit + d, u = s->visits[at < s->n_visits ? at : at - s->n_visits];
        bool known = !is_chosen_from(s, u) || (s->model->units[u].layer == s->routed && at < s->n_visits);
        if (known) MT_TRY(sequence_ring_fetch(s, u, d, false, &started, err));
        if (!started) break; /* in order: a later visit would take the slot that this one waits for */
        s->ahead = d;
    }
    return MT_OK;
}

int mt__seq_ring_in_place(const mt_sequence *s, int u)
{
    const seq_unit *at = &s->units[u];
    if (!seq_place(s, u)->resident || !s->bf16 || mt_plan_is_sliced(s->plan, u)) return -1;
    const seq_ring_slot *r = &s->ring[at->first_slot];
    return r->unit == u && r->version == at->version ? at->first_slot : -1;
}

void mt__seq_ring_updated(mt_sequence *s, int u)
{
    int in_place = mt__seq_ring_in_place(s, u);
    s->units[u].version++;
    if (in_place >= 0) s->ring[in_place].version++; /* still the newest */
}

void mt__seq_ring_open(mt_sequence *s)
{
    s->n_ring = 0;
    for (int g = 0; g < s->model->n_groups; g++) {
        const mt_group_place *at = &s->plan->place.groups[g];
        s->groups[g].first_ring = s->n_ring;
        s->groups[g].n_ring = mt_min_int(at->streamed, at->ring_slots);
        s->n_ring += s->groups[g].n_ring;
    }
    for (int u = 0; u < s->model->n_units; u++) {
        const seq_group *g = &s->groups[s->model->units[u].group];
        bool resident = seq_place(s, u)->resident;
        s->units[u].slot = -1;
        s->units[u].first_slot = resident ? s->n_ring++ : g->first_ring;
        s->units[u].n_slots = resident ? 1 : g->n_ring;
    }
    for (int i = 0; i < s->n_ring; i++) s->ring[i] = (seq_ring_slot){ .unit = -1 };
}
