/* ring.c - weights on the device: where each slot is, and the copies that fill it.  schedule/sequence_ring.c decides which slot, and
 * when. */
#include "engine/lane_internal.h"

/* Generation: of a streamed expert unit, only the experts that a row has chosen are copied. */
static bool is_chosen_from(const mt_lane *lane, int u)
{
    return mt_sequence_mode(lane->sequence) == MT_MODE_CONTINUE && lane->model->units[u].kind == MT_UNIT_EXPERTS &&
           !mt__place(lane, u)->resident;
}

static bool is_left_out(const mt_lane *lane, int u, const mt_weight *w)
{
    return is_chosen_from(lane, u) && !lane->chosen.experts[lane->model->units[u].first_expert + w->expert];
}

/* One copy per weight, straight from the mapped files. */
static mt_rc copy_mapped(mt_lane *lane, int u, ring_slot *r, mt_err *err)
{
    const mt_layout *l = mt__layout(lane, u);
    const mt_home *home = mt_state_home(lane->state, u);
    for (int k = 0; k < l->n_weights; k++)
        if (!l->weights[k].exact && !is_left_out(lane, u, &l->weights[k]))
            MT_TRY(mt_copy(lane->copy_in, (uint16_t *)r->p + l->weights[k].offset, home->mapped[k], (size_t)l->weights[k].n * 2,
                           MT_COPY_IN, err));
    for (const mt_exact_run *x = l->exact; x < l->exact + MT_EXACT_RUNS; x++)
        if (x->n)
            MT_TRY(mt_copy(lane->copy_in, (uint16_t *)r->p + x->first, home->exact + x->at, (size_t)x->n * 2, MT_COPY_IN, err));
    return MT_OK;
}

static mt_rc ring_join(mt_lane *lane, mt_stream *s, int64_t n, const uint16_t *hi, const int16_t *lo, float *w, mt_err *err)
{
    return n ? lane->ops->join_halves(s, &(mt_join_halves){ .n = n, .hi = hi, .lo = lo, .w = w }, err) : MT_OK;
}

/* Copies numbers [first, first + n) of hi or lo to `to`, for a unit whose home is not its compute form. */
static mt_rc copy_halves(mt_lane *lane, int u, mt_state_kind kind, int64_t first, int64_t n, void *to, mt_err *err)
{
    const mt_home *s = mt_state_home(lane->state, u);
    const void *from = kind == MT_STATE_HI ? (const void *)(s->hi + first) : (const void *)(s->lo + first);
    if (mt_plan_is_gathered(lane->plan, u))
        return mt_peers_gather(lane->peers, lane->index, lane->copy_in, u, kind, first, n, to, err);
    return mt_copy(lane->copy_in, to, from, (size_t)n * 2, MT_COPY_IN, err);
}

/* True if the unit's weights are copied from its home before use. */
static bool is_apart(const mt_lane *lane, int u)
{
    return mt__place(lane, u)->home == MT_HOST || mt_plan_is_sliced(lane->plan, u);
}

/* Joins the exact numbers of unit u, with hi at `hi`, from both halves.  If nothing is updated, they have a separate home. */
static mt_rc queue_exact(mt_lane *lane, int u, ring_slot *r, const uint16_t *hi, bool on_host, mt_err *err)
{
    const mt_home *s = mt_state_home(lane->state, u);
    const mt_layout *l = mt__layout(lane, u);
    if (s->exact) {
        const uint16_t *from = on_host ? r->exact_hi : s->exact;
        if (on_host) MT_TRY(mt_copy(lane->copy_in, r->exact_hi, s->exact, (size_t)l->n_exact * 4, MT_COPY_IN, err));
        return ring_join(lane, lane->copy_in, l->n_exact, from, (const int16_t *)(from + l->n_exact), r->exact, err);
    }
    for (const mt_exact_run *x = l->exact; x < l->exact + MT_EXACT_RUNS; x++) {
        const int16_t *lo = on_host ? r->exact_lo + x->at : s->lo + x->first;
        if (on_host && x->n) MT_TRY(copy_halves(lane, u, MT_STATE_LO, x->first, x->n, r->exact_lo + x->at, err));
        MT_TRY(ring_join(lane, lane->copy_in, x->n, hi + x->first, lo, r->exact + x->at, err));
    }
    return MT_OK;
}

mt_rc mt__ring_rejoin(mt_lane *lane, int u, const int16_t *lo, mt_err *err)
{
    const mt_layout *l = mt__layout(lane, u);
    const ring_slot *r = &lane->ring[mt_sequence_resident_slot(lane->sequence, u)];
    if (!r->exact) return MT_OK;
    /* Frozen units have not changed. */
    for (const mt_exact_run *x = l->exact; x < l->exact + MT_EXACT_RUNS && x->first < l->n_train; x++)
        MT_TRY(ring_join(lane, lane->compute, x->n, (const uint16_t *)r->p + x->first, lo + x->first, r->exact + x->at, err));
    return MT_OK;
}

/* Makes elements [first, first + n) of a unit in fp32, from both halves if there are two. */
static mt_rc fetch_wide(mt_lane *lane, int u, ring_slot *r, int64_t first, int64_t n, mt_err *err)
{
    const mt_home *s = mt_state_home(lane->state, u);
    const uint16_t *hi = s->hi;
    const int16_t *lo = s->lo;
    const int64_t n_low = mt_max_i64(0, mt_min_i64(n, mt__layout(lane, u)->n_low - first)), end = first + n_low;
    if (is_apart(lane, u)) {
        MT_TRY(copy_halves(lane, u, MT_STATE_HI, first, n, r->halves_hi + first, err));
        if (n_low) MT_TRY(copy_halves(lane, u, MT_STATE_LO, first, n_low, r->halves_lo + first, err));
        hi = r->halves_hi;
        lo = r->halves_lo;
    }
    MT_TRY(ring_join(lane, lane->copy_in, n_low, hi + first, lo + first, (float *)r->p + first, err));
    return ring_join(lane, lane->copy_in, n - n_low, hi + end, NULL, (float *)r->p + end, err);
}

static mt_rc fetch_range(mt_lane *lane, int u, ring_slot *r, int64_t first, int64_t n, mt_err *err)
{
    if (n == 0) return MT_OK; /* all of it is packed */
    if (lane->plan->arithmetic.compute == MT_DTYPE_F32) return fetch_wide(lane, u, r, first, n, err);
    if (!is_apart(lane, u)) return MT_OK; /* it is there */
    return copy_halves(lane, u, MT_STATE_HI, first, n, (uint16_t *)r->p + first, err);
}

/* Copies the weights of chosen experts; neighbors in one copy. */
static mt_rc fetch_chosen(mt_lane *lane, int u, ring_slot *r, mt_err *err)
{
    const mt_layout *l = mt__layout(lane, u);
    int64_t first = 0, end = 0;
    for (int k = 0; k < l->n_weights; k++) {
        const mt_weight *w = &l->weights[k];
        if (is_left_out(lane, u, w) || w->packing.form != MT_FORM_NUMBERS) continue;
        if (w->offset != end) {
            if (end > first) MT_TRY(fetch_range(lane, u, r, first, end - first, err));
            first = w->offset;
        }
        end = w->offset + w->n;
    }
    return end > first ? fetch_range(lane, u, r, first, end - first, err) : MT_OK;
}

static void count_chosen(mt_lane *lane, int u)
{
    const mt_unit *unit = &lane->model->units[u];
    for (int e = 0; e < unit->n_experts; e++) lane->chosen.n_fetched += lane->chosen.experts[unit->first_expert + e];
}

/* Copies weights that their home keeps packed, all in one copy or each that is chosen, and expands them into the slot. */
static mt_rc fetch_packed(mt_lane *lane, int u, ring_slot *r, mt_err *err)
{
    const mt_layout *l = mt__layout(lane, u);
    const mt_dtype t = lane->plan->arithmetic.compute;
    const uint8_t *from = mt_state_home(lane->state, u)->packed;
    uint8_t *to = mt_memory_find(lane->memory, MT_BUF_PACKED, -1, -1);
    const bool whole = !is_chosen_from(lane, u);
    if (!l->packed_bytes) return MT_OK;
    if (whole) MT_TRY(mt_copy(lane->copy_in, to, from, l->packed_bytes, MT_COPY_IN, err));
    for (const mt_weight *w = l->weights; w < l->weights + l->n_weights; w++) {
        const size_t bytes = mt_packing_bytes(&w->packing);
        if (!bytes || is_left_out(lane, u, w)) continue;
        if (!whole) MT_TRY(mt_copy(lane->copy_in, to + w->packed_at, from + w->packed_at, bytes, MT_COPY_IN, err));
        const mt_expand expand = {
            .t = t, .as = w->packing, .packed = to + w->packed_at, .w = (char *)r->p + (size_t)w->offset * mt_dtype_bytes(t)
        };
        MT_TRY(lane->ops->expand(lane->copy_in, &expand, err));
    }
    return MT_OK;
}

mt_rc mt__ring_fetch(mt_lane *lane, int u, int slot, mt_err *err)
{
    ring_slot *r = &lane->ring[slot];
    if (is_chosen_from(lane, u)) count_chosen(lane, u);
    if (mt_state_home(lane->state, u)->mapped)
        MT_TRY(copy_mapped(lane, u, r, err));
    else if (is_chosen_from(lane, u))
        MT_TRY(fetch_chosen(lane, u, r, err));
    else
        MT_TRY(fetch_range(lane, u, r, 0, mt__layout(lane, u)->n_hi, err));
    MT_TRY(fetch_packed(lane, u, r, err));
    return r->exact ? queue_exact(lane, u, r, r->p, is_apart(lane, u), err) : MT_OK;
}

mt_weights mt__ring_weights(const mt_lane *lane, int u)
{
    const ring_slot *r = &lane->ring[mt_sequence_weights(lane->sequence, u)];
    return (mt_weights){ .w = r->p, .exact = r->exact };
}

/* -- life ------------------------------------------------------------------------------------------ */

static void open_slot(ring_slot *r, void *w, void *halves, void *exact, const mt_layout *l)
{
    r->p = w;
    r->halves_hi = halves;
    r->halves_lo = halves ? (int16_t *)halves + l->n_hi : NULL;
    r->exact = exact;
    r->exact_hi = exact ? (uint16_t *)(r->exact + l->n_exact) : NULL;
    r->exact_lo = exact ? (int16_t *)(r->exact_hi + l->n_exact) : NULL;
}

/* Streamed units of a group share the plan's slots for it. */
static void open_group(mt_lane *lane, int group)
{
    void *w;
    int first = mt_sequence_group(lane->sequence, group).ring;
    for (int s = 0; (w = mt_memory_find(lane->memory, MT_BUF_RING, group, s)); s++)
        open_slot(&lane->ring[first + s], w, mt_memory_find(lane->memory, MT_BUF_HALVES, group, s),
                  mt_memory_find(lane->memory, MT_BUF_EXACT, group, s), &lane->model->layouts[group]);
}

static void open_resident(mt_lane *lane, int u)
{
    void *own = mt_memory_find(lane->memory, MT_BUF_RESIDENT, u, -1);
    open_slot(&lane->ring[mt_sequence_resident_slot(lane->sequence, u)], own ? own : mt_state_home(lane->state, u)->hi,
              mt_memory_find(lane->memory, MT_BUF_HALVES, -1, u), mt_memory_find(lane->memory, MT_BUF_EXACT, u, -1),
              mt__layout(lane, u));
}

mt_rc mt__ring_create(mt_lane *lane, mt_err *err)
{
    lane->ring = mt_calloc((size_t)mt_sequence_count(lane->sequence).ring, sizeof *lane->ring);
    if (!lane->ring) return mt_no_memory(err, "the ring");
    for (int g = 0; g < lane->model->n_groups; g++) open_group(lane, g);
    for (int u = 0; u < lane->model->n_units; u++)
        if (mt__place(lane, u)->resident) open_resident(lane, u);
    return MT_OK;
}
