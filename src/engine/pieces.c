/* pieces.c - updates a piece of a unit in a device slot: state and gradient in, Adam, state back. schedule/sequence_pieces.c decides
 * which piece, and when.
 *
 * A piece is a separate update of elements [first, first + n) of their unit.  It begins at a block of moments, and its random
 * bits depend on the element's number in the unit, so the result equals that of a whole update. */
#include "engine/lane_internal.h"

/* One array of a piece: its address at home, its address in the slot, its bytes. */
typedef struct span {
    char *home, *slot;
    size_t bytes;
} span;
enum { SPANS = 6 }; /* hi, lo, m and v; the last two may have exponents beside their codes */

typedef struct piece {
    mt_adamw op;
    span spans[SPANS];
    int n_spans;
} piece;

static void add_span(piece *p, void *home, size_t home_at, void *slot, size_t slot_at, size_t bytes)
{
    if (bytes) p->spans[p->n_spans++] = (span){ (char *)home + home_at, (char *)slot + slot_at, bytes };
}

/* A moment of the unit; in 8 bits it has two arrays: codes, and an exponent for each block. */
static void add_moment(piece *p, void *home, void *slot, int64_t first, int64_t n_unit)
{
    size_t n = (size_t)p->op.n, from = (size_t)first;
    size_t each = p->op.moments == MT_MOMENTS_8BIT ? 1 : mt_dtype_bytes(mt_moments_type(p->op.moments));
    add_span(p, home, from * each, slot, 0, n * each);
    if (p->op.moments == MT_MOMENTS_8BIT)
        add_span(p, home, mt_moments_exponents_at((size_t)n_unit) + from / MT_MOMENT_BLOCK, slot, mt_moments_exponents_at(n),
                 mt_moments_blocks(n));
}

/* The update of a piece in its slot, and the copies it needs. */
static piece piece_of(const mt_lane *lane, const mt_action *a)
{
    const mt_home *s = mt_state_home(lane->state, a->unit);
    mt_piece_layout at = mt_plan_piece(lane->plan, a->n);
    char *slot = lane->pieces[a->slot];
    piece p = { .op = mt_state_update_range(lane->state, a->unit, (mt_stretch){ a->first, a->n }) };
    int64_t n_unit = mt__layout(lane, a->unit)->n_train;
    size_t first = (size_t)a->first, n = (size_t)a->n;
    p.op.m = slot, p.op.v = slot + at.v, p.op.g = slot + at.g;
    p.op.hi = (uint16_t *)(void *)(slot + at.hi), p.op.lo = (int16_t *)(void *)(slot + at.lo);
    add_moment(&p, s->v, p.op.v, a->first, n_unit);
    add_span(&p, s->lo, first * 2, p.op.lo, 0, n * 2);
    add_moment(&p, s->m, p.op.m, a->first, n_unit);
    add_span(&p, s->hi, first * 2, p.op.hi, 0, n * 2);
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
    return lane->ops->adamw(lane->piece, &p.op, err);
}

mt_rc mt__pieces_back(mt_lane *lane, const mt_action *a, mt_err *err)
{
    const piece p = piece_of(lane, a);
    for (const span *s = p.spans; s < p.spans + p.n_spans; s++)
        MT_TRY(mt_copy(lane->piece_back, s->home, s->slot, s->bytes, MT_COPY_OUT, err));
    return MT_OK;
}
