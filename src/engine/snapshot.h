/* snapshot.h - locked state copied aside, so that the run continues while it is written.
 *
 * Between lock and unlock the next updates wait (engine/locks.c), and a disk is slow.  Copying in memory takes a fraction of
 * that, mostly less than the step that computes meanwhile; so the saver copies what there is room for, the units that are updated
 * first before the others, and unlocks each at once.  Then it writes: copied units from here, the rest, still locked, from their
 * homes.  Each unit's copy goes back to the system as soon as it is written.
 *
 *     take      (saver's thread, after mt_engine_lock)   copies and unlocks
 *     read      a unit's state, from wherever it is
 *     drop      the unit is written: its copy is released, and it is unlocked if it was not */
#ifndef MT_ENGINE_SNAPSHOT_H
#define MT_ENGINE_SNAPSHOT_H

#include "engine/state.h"

typedef struct mt_snapshot mt_snapshot;

typedef struct mt_snapshot_options {
    size_t room;         /* bytes the copies may take in all; 0: nothing is copied */
    int n_threads;       /* that copy */
    bool backwards;      /* the last units are updated first */
    bool only_weights;   /* nobody will read m and v */
    mt_dtype moments;    /* as the state gives them */
    const mt_plan *plan; /* of several machines: this one's, which says what is stored here; NULL: all of the model's state */
} mt_snapshot_options;

/* state and model are borrowed until free.  Memory for copies or threads that cannot be had are no failure: less is copied. */
mt_rc mt_snapshot_take(mt_snapshot **out, mt_state *state, const mt_model *model, const mt_snapshot_options *o, mt_err *err);
mt_rc mt_snapshot_read(const mt_snapshot *s, mt_state_range r, void *dst, mt_err *err);
void mt_snapshot_drop(mt_snapshot *s, int unit);
/* Bytes that will be copied of a model's state: of whole units, so less than the room there is. */
size_t mt_snapshot_would_take(const mt_model *model, const mt_snapshot_options *o);
/* Bytes that were copied. */
size_t mt_snapshot_bytes(const mt_snapshot *s);
/* Drops what is left; accepts NULL. */
void mt_snapshot_free(mt_snapshot *s);

#endif
