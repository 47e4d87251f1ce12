/* peers.h - work of several lanes between their devices: lane l adds up slice l of every unit's gradient (schedule/slices.h).  If a
 * unit's home is the devices, lane l also stores and updates slice l of its state.
 *
 *     send   on a lane's thread, at the end of a share: each slice of the unit's fp32 sum goes to the lane that adds it, into
 *            a landing slot with space for one slice per lane
 *     fold   on the updater's thread, when every lane has queued its part: each lane adds the slices in the order of shares
 *            (D2); after the last round it rounds its slice, squares its chunks (A3) and sends both to the host
 *
 * The same ops on the same numbers in the same order as through host memory (fold.c), so the same bits.
 *
 * A stream waits only for events that are recorded (D8): a lane sends into a slot after the state's gate shows that the fold that
 * read it is queued, and the updater folds after the gates of all parts.  So each waits only for lanes that are further back.
 *
 *     create   after the lanes' memory; opens a stream on every device
 *     stop     after the updater and before the lanes: drains its streams
 *     free     after the lanes, whose queues hold its events */
#ifndef MT_ENGINE_PEERS_H
#define MT_ENGINE_PEERS_H

#include "engine/home.h"
#include "engine/memory.h"
#include "ops/ops.h"
#include "schedule/deal.h"

typedef struct mt_peers mt_peers;

/* One lane; all borrowed. */
typedef struct mt_peer {
    mt_device *dev;
    const mt_memory *memory;
    const char *name; /* name of its device in messages */
} mt_peer;

/* lanes: [plan's lanes], in order. */
mt_rc mt_peers_create(mt_peers **out, const mt_plan *plan, const mt_peer *lanes, mt_err *err);
void mt_peers_stop(mt_peers *p); /* accepts NULL, like free */
void mt_peers_free(mt_peers *p);

/* -- state in slices -- */

/* Lane k's slice of a unit's state, followed by the unit's untrained numbers (mt_plan_slice_rest); its device; and the event
 * after which its newest update is done. */
mt_home mt_peers_home(const mt_peers *p, int lane, int unit);
mt_device *mt_peers_device(const mt_peers *p, int lane);
mt_event *mt_peers_updated(const mt_peers *p, int lane, int unit);
void *mt_peers_gradient(const mt_peers *p, int lane, int unit); /* its finished slice, or NULL */
/* On the updater's thread, after an update in host memory: refreshes every lane's slice of the weights. */
mt_rc mt_peers_refresh(mt_peers *p, int unit, const mt_home *host, mt_err *err);
/* On the updater's thread: queue the update of every lane's slice from its slice of the gradient. */
mt_rc mt_peers_update(mt_peers *p, int unit, const mt_optimizer *optimizer, const mt_update *whole, mt_err *err);
/* Copies numbers [first, first + n) of the unit's hi or lo into dst, memory of lane `lane`, on its stream s, after the newest
 * updates.  The updater's gate must show that those are queued. */
mt_rc mt_peers_gather(mt_peers *p, int lane, mt_stream *s, int unit, mt_state_kind kind, int64_t first, int64_t n, uint16_t *dst,
                      mt_err *err);
/* Waits for everything queued, then checks that its updates were finite.  Nothing may be queued meanwhile. */
mt_rc mt_peers_settle(mt_peers *p, mt_err *err);

/* -- sums -- */

/* Unit `unit`'s sum of a share, or the lookup's of a tied embedding, into landing slot `slot` of every lane, on stream s of lane
 * `lane`.  The state's gates show that the slot's old contents have been added. */
mt_rc mt_peers_send(mt_peers *p, int lane, mt_stream *s, int unit, bool tied, int slot, const float *sum, mt_err *err);

/* The parts of one unit and round. */
typedef struct mt_peer_fold {
    int unit, slot;
    bool tied;
    int n_parts;
    const int *share;        /* [n_parts] ascending; share s belongs to lane s mod n */
    mt_event *const *landed; /* [n_parts] recorded: its slices have landed */
    const mt_deal *deal;
    bool last;      /* round: the gradient is finished */
    void *gradient; /* host memory for the finished gradient; NULL: it stays in slices */
} mt_peer_fold;
/* Queues a fold on all lanes.  For a finished gradient, waits for it and sets *chunks to its chunks' sums of squares, valid until
 * the next fold. */
mt_rc mt_peers_fold(mt_peers *p, const mt_peer_fold *f, const double **chunks, mt_err *err);

#endif
