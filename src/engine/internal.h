/* internal.h - an engine is one state and one lane.  Only engine/ includes it. */
#ifndef MT_ENGINE_INTERNAL_H
#define MT_ENGINE_INTERNAL_H

#include "engine/engine.h"
#include "engine/lane.h"

struct mt_engine {
    mt_device *dev;
    const mt_model *model;
    const mt_plan *plan; /* borrowed; outlives the engine */
    mt_memory memory;
    mt_watch watch;
    mt_state *state;
    mt_lane *lane;
    mt_trace *trace;                         /* borrowed; NULL: nobody looks */
    bool in_flight;                          /* work was queued since the last settle */
    pthread_mutex_t write_lock;              /* of threads that write state */
    void (*wrote)(void *user, size_t bytes); /* NULL: nobody wants to know */
    void *wrote_user;
};

/* -- step.c -- */
/* One pass forward over cached sequences; mt_lane_logits then has those of the rows that have a target. */
mt_rc mt__engine_continue(mt_engine *e, const mt_batch *b, const mt_continued *at, mt_err *err);

#endif
