/* ring.c - weights on the device, one unit at a time.
 *
 * A unit's weights sit in a slot: its own if it is resident, else one of its group's few.  A slot's content is named by
 * (unit, version); a unit whose version has moved on must be fetched again, unless it was updated in place.
 *
 *     fetch    waits for the unit's update (host) or its event (device), then queues the copy behind the slot's last reader
 *     acquire  the compute stream waits for that copy
 *     release  marks where the last reader ends
 *
 * Which slot is overwritten: the one whose unit is needed last (R3).  Rules R1..R5: docs/invariants.md. */
#include "engine/internal.h"

#include <assert.h>
#include <limits.h>

static ring_slot *slot_holding(mt_engine *e, int u)
{
    unit_state *s = &e->units[u];
    ring_slot *r = s->slot < 0 ? NULL : &e->ring[s->slot];
    return r && r->unit == u && r->version == s->version ? r : NULL;
}

/* Visits in which weights may be fetched: none across the end of a step (R5). */
static int horizon_of(const mt_engine *e) { return e->last_sweep ? e->n_visits - e->visit : e->n_visits; }

/* Visits until unit u is used again; INT_MAX: not before the step ends. */
static int next_use(mt_engine *e, int u)
{
    const unit_state *s = &e->units[u];
    int next = INT_MAX;
    for (int i = s->first_use; i < s->first_use + s->n_uses; i++) {
        int distance = e->uses[i] - e->visit;
        if (distance <= 0) distance += e->n_visits;
        if (distance < next) next = distance;
    }
    e->looks += s->n_uses;
    return next < horizon_of(e) ? next : INT_MAX;
}

/* Where in the order of visits each unit comes. */
static void list_uses(mt_engine *e)
{
    int at = 0;
    for (int u = 0; u < e->model->n_units; u++) e->units[u].n_uses = 0;
    for (int i = 0; i < e->n_visits; i++) e->units[e->visits[i]].n_uses++;
    for (int u = 0; u < e->model->n_units; u++) {
        e->units[u].first_use = at;
        at += e->units[u].n_uses;
        e->units[u].n_uses = 0;
    }
    for (int i = 0; i < e->n_visits; i++) {
        unit_state *s = &e->units[e->visits[i]];
        e->uses[s->first_use + s->n_uses++] = i;
    }
}

void mt__ring_begin(mt_engine *e)
{
    e->visit = e->ahead = 0;
    list_uses(e);
}

void mt__ring_next(mt_engine *e)
{
    e->visit = (e->visit + 1) % e->n_visits;
    if (e->ahead > 0) e->ahead--;
}

void mt__ring_forget(mt_engine *e, int u)
{
    ring_slot *r = e->units[u].slot < 0 ? NULL : &e->ring[e->units[u].slot];
    if (r && r->unit == u) r->unit = -1;
}

/* A slot unit u may overwrite for a use `distance` visits ahead; NULL: every one is lent or needed sooner. */
static ring_slot *choose_victim(mt_engine *e, int u, int distance)
{
    unit_state *s = &e->units[u];
    ring_slot *best = NULL;
    int best_use = distance; /* R3: never throw out what is needed no later than what comes in */
    for (int i = s->first_slot; i < s->first_slot + s->n_slots; i++) {
        ring_slot *r = &e->ring[i];
        e->looks++;
        if (r->lent) continue;
        bool stale = r->unit < 0 || e->units[r->unit].version != r->version;
        int use = stale ? INT_MAX : next_use(e, r->unit);
        if (stale || use > best_use) {
            best = r;
            best_use = use;
            if (stale) break;
        }
    }
    return best;
}

/* R1: a unit is fetched only after its newest update; true when that has happened (host) or is ordered by events.  Events order
 * it behind its write-back, which the saver may hold up: who must not wait does not begin it (R6). */
static mt_rc wait_for_update(mt_engine *e, int u, bool block, bool *is_ready, mt_err *err)
{
    unit_state *s = &e->units[u];
    bool updated = mt__place(e, u)->site != MT_SITE_HOST || mt_watch_reached(&e->watch, &s->updated, s->version);
    *is_ready = updated && (block || mt__updates_may_return(e, u));
    if (updated || !block) return MT_OK;
    int64_t start = mt_now_ns();
    MT_TRY(mt_watch_reach(&e->watch, &s->updated, s->version, err));
    int64_t end = mt_now_ns();
    e->wait_update_ns += end - start;
    mt_trace_host(e->trace, "engine", "wait for an update on the host", start, end);
    *is_ready = true;
    return MT_OK;
}

/* One copy a weight, from the files where they lie. */
static mt_rc copy_mapped(mt_engine *e, int u, ring_slot *r, mt_err *err)
{
    const mt_layout *l = mt__layout(e, u);
    for (int k = 0; k < l->n_weights; k++)
        if (!l->weights[k].exact)
            MT_TRY(mt_copy(e->copy_in, (uint16_t *)r->s.p + l->weights[k].offset, e->units[u].mapped[k],
                           (size_t)l->weights[k].n * 2, MT_COPY_IN, err));
    for (const mt_exact_run *x = l->exact; x < l->exact + MT_EXACT_RUNS; x++)
        if (x->n)
            MT_TRY(mt_copy(e->copy_in, (uint16_t *)r->s.p + x->first, e->units[u].exact_home + x->at, (size_t)x->n * 2,
                           MT_COPY_IN, err));
    return MT_OK;
}

static mt_rc join(mt_engine *e, mt_stream *s, int64_t n, const uint16_t *hi, const int16_t *lo, float *w, mt_err *err)
{
    return n ? e->ops->join_halves(s, &(mt_join_halves){ .n = n, .hi = hi, .lo = lo, .w = w }, err) : MT_OK;
}

/* Exact numbers of unit u, whose hi lies at `hi`, from both halves.  Where nothing is updated they have a home of their own. */
static mt_rc queue_exact(mt_engine *e, int u, ring_slot *r, const uint16_t *hi, bool on_host, mt_err *err)
{
    const unit_state *s = &e->units[u];
    const mt_layout *l = mt__layout(e, u);
    if (s->exact_home) {
        const uint16_t *from = on_host ? r->exact_hi : s->exact_home;
        if (on_host) MT_TRY(mt_copy(e->copy_in, r->exact_hi, s->exact_home, (size_t)l->n_exact * 4, MT_COPY_IN, err));
        return join(e, e->copy_in, l->n_exact, from, (const int16_t *)(from + l->n_exact), r->exact, err);
    }
    for (const mt_exact_run *x = l->exact; x < l->exact + MT_EXACT_RUNS; x++) {
        const int16_t *lo = on_host ? r->exact_lo + x->at : s->lo + x->first;
        if (on_host && x->n)
            MT_TRY(mt_copy(e->copy_in, r->exact_lo + x->at, s->lo + x->first, (size_t)x->n * 2, MT_COPY_IN, err));
        MT_TRY(join(e, e->copy_in, x->n, hi + x->first, lo, r->exact + x->at, err));
    }
    return MT_OK;
}

/* The frozen have not changed. */
mt_rc mt__ring_rejoin(mt_engine *e, int u, const int16_t *lo, mt_err *err)
{
    const mt_layout *l = mt__layout(e, u);
    const ring_slot *r = mt__ring_in_place(e, u);
    if (!r || !r->exact || r != slot_holding(e, u)) return MT_OK;
    for (const mt_exact_run *x = l->exact; x < l->exact + MT_EXACT_RUNS && x->first < l->n_train; x++)
        MT_TRY(join(e, e->compute, x->n, (const uint16_t *)r->s.p + x->first, lo + x->first, r->exact + x->at, err));
    return MT_OK;
}

static mt_rc queue_copies(mt_engine *e, int u, ring_slot *r, mt_err *err)
{
    unit_state *s = &e->units[u];
    size_t n = (size_t)mt__layout(e, u)->n_elems, n_low = (size_t)mt__layout(e, u)->n_low;
    bool on_host = mt__place(e, u)->home == MT_HOST;
    const uint16_t *hi = s->hi;
    const int16_t *lo = s->lo;
    MT_TRY(mt__updates_return(e, u, err));
    MT_TRY(mt_wait(e->copy_in, r->s.free, err)); /* R2 */
    MT_TRY(mt_wait(e->copy_in, on_host ? s->written : s->device_updated, err));
    if (on_host) MT_TRY(mt_wait(e->copy_in, s->kept_free, err)); /* weights are in the first half of a write-back */
    if (!mt__is_f32(e)) {
        if (s->mapped)
            MT_TRY(copy_mapped(e, u, r, err));
        else if (on_host)
            MT_TRY(mt_copy(e->copy_in, r->s.p, hi, n * 2, MT_COPY_IN, err));
        if (r->exact) MT_TRY(queue_exact(e, u, r, r->s.p, on_host, err));
    } else {
        if (on_host) {
            MT_TRY(mt_copy(e->copy_in, r->halves_hi, hi, n * 2, MT_COPY_IN, err));
            if (n_low) MT_TRY(mt_copy(e->copy_in, r->halves_lo, lo, n_low * 2, MT_COPY_IN, err));
            hi = r->halves_hi;
            lo = r->halves_lo;
        }
        MT_TRY(join(e, e->copy_in, (int64_t)n_low, hi, lo, r->s.p, err));
        MT_TRY(join(e, e->copy_in, (int64_t)(n - n_low), hi + n_low, NULL, (float *)r->s.p + n_low, err));
    }
    return mt_record(e->copy_in, r->s.ready, err);
}

/* Put unit u, to be used `distance` visits ahead, on its way; *started is false if that must wait. */
static mt_rc fetch(mt_engine *e, int u, int distance, bool block, bool *started, mt_err *err)
{
    e->looks++;
    *started = slot_holding(e, u) != NULL;
    if (*started) return MT_OK;
    ring_slot *r = choose_victim(e, u, distance);
    bool is_ready = false;
    if (r) MT_TRY(wait_for_update(e, u, block, &is_ready, err));
    if (!is_ready) return MT_OK;
    r->unit = u;
    r->version = e->units[u].version;
    e->units[u].slot = (int)(r - e->ring);
    *started = true;
    return queue_copies(e, u, r, err);
}

mt_rc mt__ring_acquire(mt_engine *e, int u, mt_weights *w, mt_err *err)
{
    bool started;
    MT_TRY(fetch(e, u, 0, true, &started, err));
    ring_slot *r = slot_holding(e, u);
    if (!r) return mt_fail(err, MT_EINTERNAL, "no ring slot for unit %d: all are lent", u);
    MT_TRY(mt_wait(e->compute, r->s.ready, err));
    r->lent++;
    *w = (mt_weights){ .w = r->s.p, .exact = r->exact };
    return MT_OK;
}

mt_rc mt__ring_release(mt_engine *e, int u, mt_err *err)
{
    ring_slot *r = slot_holding(e, u);
    assert(r && r->lent > 0); /* R4: lent weights are not updated */
    r->lent--;
    e->visited = r->s.free;
    return mt_record(e->compute, r->s.free, err);
}

/* What has been started for the visits ahead stays: only what is needed later is thrown out for what comes in (R3).  So this goes
 * on where it stopped. */
mt_rc mt__ring_prefetch(mt_engine *e, mt_err *err)
{
    for (int d = e->ahead + 1; d < horizon_of(e); d++) {
        bool started;
        MT_TRY(fetch(e, e->visits[(e->visit + d) % e->n_visits], d, false, &started, err));
        if (!started) break; /* in order: what comes later would take what this one is waiting for */
        e->ahead = d;
    }
    return MT_OK;
}

ring_slot *mt__ring_in_place(mt_engine *e, int u)
{
    return mt__place(e, u)->resident && !mt__is_f32(e) ? &e->ring[e->units[u].first_slot] : NULL;
}

/* -- life ------------------------------------------------------------------------------------------ */

static mt_rc open_slot(mt_engine *e, ring_slot *r, void *w, void *halves, void *exact, const mt_layout *l, mt_err *err)
{
    r->unit = -1;
    r->s.p = w;
    r->halves_hi = halves;
    r->halves_lo = halves ? (int16_t *)halves + l->n_elems : NULL;
    r->exact = exact;
    r->exact_hi = exact ? (uint16_t *)(r->exact + l->n_exact) : NULL;
    r->exact_lo = exact ? (int16_t *)(r->exact_hi + l->n_exact) : NULL;
    return mt__slot_events(e, &r->s, "weights", "weights read", err);
}

/* Its streamed units share the slots that the plan has for the group. */
static mt_rc open_group(mt_engine *e, int group, int *first, mt_err *err)
{
    void *w;
    *first = e->n_ring;
    for (int s = 0; (w = mt__buffer(e, MT_BUF_RING, group, s)); s++)
        MT_TRY(open_slot(e, &e->ring[e->n_ring++], w, mt__buffer(e, MT_BUF_HALVES, group, s),
                         mt__buffer(e, MT_BUF_EXACT, group, s), &e->model->layouts[group], err));
    return MT_OK;
}

static mt_rc open_streamed(mt_engine *e, int *first, mt_err *err)
{
    for (int g = 0; g < e->model->n_groups; g++) MT_TRY(open_group(e, g, &first[g], err));
    first[e->model->n_groups] = e->n_ring;
    for (int u = 0; u < e->model->n_units; u++) {
        int group = e->model->units[u].group;
        if (mt__place(e, u)->resident) continue;
        e->units[u].first_slot = first[group];
        e->units[u].n_slots = first[group + 1] - first[group];
    }
    return MT_OK;
}

static mt_rc open_resident(mt_engine *e, int u, mt_err *err)
{
    void *own = mt__buffer(e, MT_BUF_RESIDENT, u, -1);
    e->units[u].first_slot = e->n_ring;
    e->units[u].n_slots = 1;
    return open_slot(e, &e->ring[e->n_ring++], own ? own : e->units[u].hi, mt__buffer(e, MT_BUF_HALVES, -1, u),
                     mt__buffer(e, MT_BUF_EXACT, u, -1), mt__layout(e, u), err);
}

mt_rc mt__ring_create(mt_engine *e, mt_err *err)
{
    int *first = mt_calloc((size_t)e->model->n_groups + 1, sizeof *first);
    e->ring = mt_calloc((size_t)e->model->n_units, sizeof *e->ring); /* a group has no more slots than units */
    mt_rc rc = e->ring && first ? open_streamed(e, first, err) : mt_fail(err, MT_ENOMEM, "no host memory for the ring");
    mt_free(first);
    for (int u = 0; u < e->model->n_units; u++) {
        e->units[u].slot = -1;
        if (!rc && mt__place(e, u)->resident) rc = open_resident(e, u, err);
    }
    return rc;
}

void mt__ring_free(mt_engine *e)
{
    for (int i = 0; i < e->n_ring; i++) mt__slot_free(e, &e->ring[i].s);
    mt_free(e->ring);
}
