/* home.h - where a unit's state is between steps. */
#ifndef MT_ENGINE_HOME_H
#define MT_ENGINE_HOME_H

#include <stdint.h>

/* Where a unit's state is between steps. */
typedef struct mt_home {
    uint16_t *hi;        /* NULL if mapped */
    int16_t *lo;         /* n_low numbers; with several machines this one's part (mt_plan_runs) */
    void *m, *v;         /* the same elements, in the arithmetic's form of moments */
    uint16_t *exact;     /* if nothing is updated: halves of the exact numbers, hi then lo; NULL: none, or lo has them */
    const void **mapped; /* [layout's weights] where each is in a mapped file; NULL: hi is in memory */
} mt_home;

#endif
