/* sequence_pieces.c - updates of pieces of units on the device.
 *
 * The workers update the first elements of a unit, the device the rest (mt_plan_host_share): piece by piece, through a few slots
 * that are used in turn.
 *
 *     PIECE_IN     state and gradient into a slot, once the write-back of the piece before it is done and the gradient has landed
 *     PIECE        the update in the slot
 *     PIECE_BACK   state to its home; after the unit's last piece its gate opens (U11)
 *
 * Each action has its own queue: pieces run beside the forward pass, and only the fetch of their own unit waits for them.  They
 * are issued in the order of forward, a limited number ahead of it, because a device accepts only a limited amount of queued work
 * before it makes the engine's thread wait.  A piece of a locked unit is issued as late as possible (H1, R6). */
#include "schedule/sequence_internal.h"

/* -- one piece ------------------------------------------------------------------------------------- */

static int next_piece_slot(mt_sequence *s)
{
    int slot = s->piece_turn;
    s->piece_turn = s->piece_turn + 1 == s->n_pieces ? 0 : s->piece_turn + 1;
    return slot;
}

static int newest_slot(const mt_sequence *s) { return (s->piece_turn + s->n_pieces - 1) % s->n_pieces; }

/* The slot that was filled first of those that are filled ahead. */
static int oldest_ahead(const mt_sequence *s) { return (s->piece_turn + s->n_pieces - s->pieces_ahead) % s->n_pieces; }

static mt_action piece_action(const mt_sequence *s, mt_action_kind kind, int u, int piece, int slot)
{
    return (mt_action){ .kind = kind,
                        .unit = u,
                        .slot = slot,
                        .to = -1,
                        .first = mt_plan_piece_first(s->plan, u, piece),
                        .n = mt_plan_piece_elems(s->plan, u, piece) };
}

static mt_rc piece_in(mt_sequence *s, int u, int piece, int slot, int slab, mt_err *err)
{
    mt_action a = piece_action(s, MT_DO_PIECE_IN, u, piece, slot);
    a.to = slab;
    MT_TRY(seq_wait(s, MT_Q_PIECE_IN, piece_event(s, slot, STAGE_FREE), err)); /* U12 */
    /* U2: the gradient was computed with weights that were fetched after the write-back of the update before. */
    MT_TRY(seq_wait(s, MT_Q_PIECE_IN, unit_event(u, LANDED), err));
    MT_TRY(seq_issue(s, &a, err));
    return seq_record(s, MT_Q_PIECE_IN, piece_event(s, slot, STAGE_READY), err);
}

static mt_rc piece_update(mt_sequence *s, int u, int piece, int slot, mt_err *err)
{
    mt_action update = piece_action(s, MT_DO_PIECE_UPDATE, u, piece, slot);
    mt_action back = piece_action(s, MT_DO_PIECE_BACK, u, piece, slot);
    MT_TRY(seq_wait(s, MT_Q_PIECE, piece_event(s, slot, STAGE_READY), err));
    MT_TRY(seq_issue(s, &update, err));
    MT_TRY(seq_record(s, MT_Q_PIECE, piece_event(s, slot, STAGE_DONE), err));
    MT_TRY(seq_wait(s, MT_Q_PIECE_BACK, piece_event(s, slot, STAGE_DONE), err));
    MT_TRY(seq_issue(s, &back, err));
    return seq_record(s, MT_Q_PIECE_BACK, piece_event(s, slot, STAGE_FREE), err);
}

/* -- one unit -------------------------------------------------------------------------------------- */

static mt_rc issue_pieces(mt_sequence *s, int u, int slab, mt_err *err)
{
    int n = mt_plan_pieces(s->plan, u);
    if (!n) return MT_OK;
    MT_TRY(s->port->await_unlock(s->self, u, err)); /* H1 */
    for (int i = 0; i < n; i++) {
        bool filled = s->pieces_ahead > 0;
        int slot = filled ? oldest_ahead(s) : next_piece_slot(s);
        if (filled)
            s->pieces_ahead--;
        else
            MT_TRY(piece_in(s, u, i, slot, slab, err));
        MT_TRY(piece_update(s, u, i, slot, err));
    }
    return seq_record(s, MT_Q_PIECE_BACK, unit_event(u, WRITTEN), err);
}

mt_rc mt__seq_pieces_now(mt_sequence *s, int u, int slab, mt_err *err)
{
    if (!mt_plan_pieces(s->plan, u)) return MT_OK;
    MT_TRY(issue_pieces(s, u, slab, err));
    return seq_record(s, MT_Q_PIECE_IN, slab_event(s, slab), err);
}

/* -- all of them ----------------------------------------------------------------------------------- */

bool mt__seq_pieces_issued(const mt_sequence *s, int u) { return u < s->pieces_done || !seq_place(s, u)->in_pieces; }

static mt_rc issue_next(mt_sequence *s, mt_err *err)
{
    int u = s->pieces_done++;
    s->pieces_early += mt_plan_pieces(s->plan, u);
    return issue_pieces(s, u, -1, err);
}

mt_rc mt__seq_pieces_until(mt_sequence *s, int u, mt_err *err)
{
    while (s->pieces_done <= u) MT_TRY(issue_next(s, err));
    return MT_OK;
}

/* Issues enough pieces to keep the queues busy, stopping at a locked unit. */
static mt_rc issue_some(mt_sequence *s, mt_err *err)
{
    while (s->pieces_done < s->model->n_units && s->pieces_early < s->most_early) {
        int u = s->pieces_done;
        if (seq_place(s, u)->in_pieces && s->port->locked(s->self, u)) return MT_OK;
        MT_TRY(issue_next(s, err));
    }
    return MT_OK;
}

mt_rc mt__seq_pieces_leave(mt_sequence *s, int u, mt_err *err)
{
    if (s->pieces_done == s->model->n_units) return MT_OK;
    s->pieces_early -= mt_plan_pieces(s->plan, u);
    return issue_some(s, err);
}

mt_rc mt__seq_pieces_due(mt_sequence *s, mt_err *err)
{
    if (!s->n_pieces) return MT_OK;
    s->pieces_done = 0;
    s->pieces_early = 0;
    return issue_some(s, err);
}

mt_rc mt__seq_pieces_stage_ahead(mt_sequence *s, mt_err *err)
{
    for (int u = 0; u < s->model->n_units && s->pieces_ahead < s->n_pieces; u++)
        for (int i = 0; i < mt_plan_pieces(s->plan, u) && s->pieces_ahead < s->n_pieces; i++) {
            MT_TRY(piece_in(s, u, i, next_piece_slot(s), -1, err));
            s->pieces_ahead++;
        }
    return MT_OK;
}

/* The slots are free after the copies that filled them, and those that fill them again are on the same queue.  The gradients they
 * were filled from are overwritten only after them. */
mt_rc mt__seq_pieces_drop(mt_sequence *s, mt_err *err)
{
    if (!s->pieces_ahead) return MT_OK;
    s->pieces_ahead = 0;
    return seq_wait(s, MT_Q_OUT, piece_event(s, newest_slot(s), STAGE_READY), err);
}

mt_rc mt__seq_pieces_counted(mt_sequence *s, mt_err *err)
{
    return s->n_pieces ? seq_wait(s, MT_Q_COMPUTE, piece_event(s, newest_slot(s), STAGE_DONE), err) : MT_OK;
}

void mt__seq_pieces_open(mt_sequence *s)
{
    s->n_pieces = s->plan->has_pieces ? s->plan->place.piece_slots : 0;
    s->piece_turn = s->pieces_ahead = 0;
    s->pieces_done = s->model->n_units;
    s->pieces_early = 0;
    s->most_early = MT_PIECES_EARLY;
}
