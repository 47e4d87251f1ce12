/* snapshot.h - copies locked state, so that the run continues while the state is written.
 *
 * Between lock and unlock the next updates wait (engine/locks.c), and a disk is slow.  A copy in memory is much faster, mostly
 * faster than the step that runs meanwhile.  So the saver copies as much as fits, starting with the units that are updated first,
 * and unlocks each at once.  Then it writes: copied units from here, the rest, still locked, from their homes.  Each copy is
 * released as soon as it is written.
 *
 *     take      (saver's thread, after mt_engine_lock)   copies and unlocks
 *     read      a unit's state, from wherever it is
 *     drop      the unit is written: releases its copy, and unlocks it if it was still locked */
#ifndef MT_ENGINE_SNAPSHOT_H
#define MT_ENGINE_SNAPSHOT_H

#include "engine/state.h"

typedef struct mt_snapshot mt_snapshot;

typedef struct mt_snapshot_options {
    size_t room;         /* most bytes of all copies together; 0: copy nothing */
    int n_threads;       /* threads that copy */
    bool backwards;      /* the last units are updated first */
    bool only_weights;   /* the optimizer's arrays will not be read */
    mt_state_form form;  /* of the state */
    const mt_plan *plan; /* with several machines: this one's plan, which defines what is stored here; NULL: everything */
} mt_snapshot_options;

/* state and model are borrowed until free.  It is not an error if memory for copies or threads is not available: less is copied
 * then. */
mt_rc mt_snapshot_take(mt_snapshot **out, mt_state *state, const mt_model *model, const mt_snapshot_options *o, mt_err *err);
mt_rc mt_snapshot_read(const mt_snapshot *s, mt_state_range r, void *dst, mt_err *err);
void mt_snapshot_drop(mt_snapshot *s, int unit);
/* Bytes of a model's state that will be copied: whole units only, so at most the limit. */
size_t mt_snapshot_would_take(const mt_model *model, const mt_snapshot_options *o);
/* Bytes that were copied. */
size_t mt_snapshot_bytes(const mt_snapshot *s);
/* Drops what is left; accepts NULL. */
void mt_snapshot_free(mt_snapshot *s);

#endif
