/* walk.h - every weight of a model, or of some of its units, once: unit by unit, each in the order of its layout.
 *
 *     for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);)
 *         total += at.w->n;
 */
#ifndef MT_MODEL_WALK_H
#define MT_MODEL_WALK_H

#include "model/model.h"

typedef struct mt_walk {
    int unit; /* its number */
    const mt_unit *u;
    const mt_weight *w; /* of that unit; valid after a call of next() that returned true */
    const mt_model *m;
    int k, end; /* the next weight of the unit; the unit after the last */
} mt_walk;

static inline mt_walk mt_walk_units(const mt_model *m, mt_layer_units units)
{
    return (mt_walk){ .unit = units.first, .m = m, .end = units.first + units.n };
}

static inline mt_walk mt_walk_model(const mt_model *m) { return mt_walk_units(m, (mt_layer_units){ 0, m->n_units }); }

static inline bool mt_walk_next(mt_walk *at)
{
    for (; at->unit < at->end; at->unit++, at->k = 0) {
        at->u = &at->m->units[at->unit];
        if (at->k == at->u->layout->n_weights) continue;
        at->w = &at->u->layout->weights[at->k++];
        return true;
    }
    return false;
}

/* Weights that are still to come. */
static inline size_t mt_walk_count(mt_walk at)
{
    size_t n = 0;
    while (mt_walk_next(&at)) n++;
    return n;
}

#endif
