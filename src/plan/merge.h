/* merge.h - builds a model with fewer layers whose step takes equally long, for searches that time hundreds of placements.
 *
 * Mixtures of experts have up to thousands of units.  Nearly all of their layers are equal, so one layer is timed for several:
 * its compute and copies count that many times.  Rings and slots hold the same fraction of a layer as before, so the same tasks
 * wait for each other.  Only the sizes of buffers do not follow from the merged model. */
#ifndef MT_PLAN_MERGE_H
#define MT_PLAN_MERGE_H

#include "plan/knobs.h"

typedef struct mt_merged {
    mt_model model; /* kinds and layouts are the whole model's */
    mt_config config;
    const mt_model *whole; /* borrowed; outlives this */
    double *stands_for;    /* [L of the merged model] layers of the whole one */
} mt_merged;

/* Merges up to `most` layers into one.  Two layers are equal if their kinds and the groups of their units are equal. */
mt_rc mt_merged_init(mt_merged *out, const mt_model *model, int most, mt_err *err);
void mt_merged_free(mt_merged *m);
/* Number of layers to merge so that timing a placement is quick; 1: it already is. */
int mt_merge_how_many(const mt_model *model);
/* The nearest placement of the merged model, in whole layers and units. */
candidate mt_merged_candidate(const mt_merged *m, const candidate *c);

#endif
