/* pieces.c - updates a piece of a unit in a device slot: state and gradient in, update, state back. schedule/sequence_pieces.c decides
 * which piece, and when.
 *
 * A piece is a separate update of elements [first, first + n) of their unit.  It begins at a block of moments, and its random
 * bits depend on the element's number in the unit, so the result equals that of a whole update. */
#include "engine/lane_internal.h"

/* A run of bytes of a piece's state: its address at home, its address in the slot. */
typedef struct span {
    char *home, *slot;
    size_t bytes;
} span;

typedef struct piece {
    mt_update op;
    span spans[2 * MT_STATE_KINDS];
    int n_spans;
} piece;

/* Adds what the piece has of one kind. */
static void add_kind(piece *p, const mt_lane *lane, const mt_action *a, mt_state_kind kind, char *slot)
{
    char *home = mt_home_at(mt_state_home(lane->state, a->unit), kind);
    const mt_state_form form = mt_arithmetic_form(&lane->plan->arithmetic);
    mt_byte_run from[2], to[2];
    const int n = mt_state_byte_runs(form, kind, mt__layout(lane, a->unit)->n_train, a->first, a->n, from);
    mt_state_byte_runs(form, kind, a->n, 0, a->n, to);
    for (int i = 0; i < n; i++) p->spans[p->n_spans++] = (span){ home + from[i].at, slot + to[i].at, to[i].bytes };
}

/* The update of a piece in its slot, and the copies it needs. */
static piece piece_of(const mt_lane *lane, const mt_action *a)
{
    const mt_state_layout at = mt_plan_lay_out(lane->plan, a->n, MT_PIECE_PARTS);
    char *slot = lane->pieces[a->slot];
    piece p = { .op = mt_state_update_range(lane->state, a->unit, (mt_stretch){ a->first, a->n }) };
    mt_home in_slot = { .hi = (uint16_t *)(void *)(slot + at.at[MT_STATE_HI]),
                        .lo = (int16_t *)(void *)(slot + at.at[MT_STATE_LO]) };
    for (int k = 0; k < mt_state_optimizer(lane->state)->n_arrays; k++) in_slot.array[k] = slot + at.at[MT_STATE_ARRAYS + k];
    mt_home_address(&p.op, &in_slot, slot + at.at[MT_STATE_KINDS]);
    for (int i = 0; i < MT_STATE_KINDS; i++) {
        const mt_state_kind kind = mt_state_copy_order[i];
        add_kind(&p, lane, a, kind, slot + at.at[kind]);
    }
    return p;
}

mt_rc mt__pieces_in(mt_lane *lane, const mt_action *a, mt_err *err)
{
    const piece p = piece_of(lane, a);
    size_t each = mt_dtype_bytes(p.op.t);
    const char *g = mt__grads_host(lane, a->unit, a->to);
    for (const span *s = p.spans; s < p.spans + p.n_spans; s++)
        MT_TRY(mt_copy(lane->piece_in, s->slot, s->home, s->bytes, MT_COPY_IN, err));
    return mt_copy(lane->piece_in, (void *)(uintptr_t)p.op.g, g + (size_t)a->first * each, (size_t)a->n * each, MT_COPY_IN, err);
}

mt_rc mt__pieces_update(mt_lane *lane, const mt_action *a, mt_err *err)
{
    piece p = piece_of(lane, a);
    p.op.guard = lane->pass.updates_early ? &lane->total.norms[a->unit] : NULL;
    p.op.n_bad = lane->total.n_bad;
    return mt_state_optimizer(lane->state)->on_device(lane->ops, lane->piece, &p.op, err);
}

mt_rc mt__pieces_back(mt_lane *lane, const mt_action *a, mt_err *err)
{
    const piece p = piece_of(lane, a);
    for (const span *s = p.spans; s < p.spans + p.n_spans; s++)
        MT_TRY(mt_copy(lane->piece_back, s->home, s->slot, s->bytes, MT_COPY_OUT, err));
    return MT_OK;
}
