/* home.h - where a unit's state is between steps. */
#ifndef MT_ENGINE_HOME_H
#define MT_ENGINE_HOME_H

#include "optim/optimizer.h"

typedef struct mt_home {
    uint16_t *hi;                /* NULL if mapped */
    int16_t *lo;                 /* n_low numbers; with several machines this one's part (mt_plan_runs) */
    void *array[MT_MOST_ARRAYS]; /* the optimizer's (NULL: it has none), for the trained elements, in the arithmetic's form */
    uint16_t *exact;             /* if nothing is updated: halves of the exact numbers, hi then lo; NULL: none, or lo has them */
    uint8_t *packed;             /* packed weights, in host memory wherever the rest is; NULL: none */
    const void **mapped;         /* [layout's weights] where each is in a mapped file; NULL: hi is in memory */
} mt_home;

/* The address of one kind; NULL: it is not there. */
static inline void *mt_home_at(const mt_home *h, mt_state_kind kind)
{
    if (mt_state_is_array(kind)) return h->array[kind - MT_STATE_ARRAYS];
    return kind == MT_STATE_HI ? (void *)h->hi : (void *)h->lo;
}

/* Where the update finds state and gradient. */
static inline void mt_home_address(mt_update *u, const mt_home *h, const void *g)
{
    u->hi = h->hi;
    u->lo = h->lo;
    for (int k = 0; k < MT_MOST_ARRAYS; k++) u->array[k] = h->array[k];
    u->g = g;
}

#endif
