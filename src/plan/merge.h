/* merge.h - a model with fewer layers whose step takes as long, for searches that time hundreds of placements.
 *
 * Mixtures of experts have up to thousands of units.  Their layers are equal but for a few, so one layer is timed for several:
 * all it computes and copies counts that many times.  Rings and slots hold the same share of a layer as before, so what waits
 * for what is the same.  Only the sizes of buffers do not follow from the merged model. */
#ifndef MT_PLAN_MERGE_H
#define MT_PLAN_MERGE_H

#include "plan/knobs.h"

typedef struct mt_merged {
    mt_model model; /* kinds and layouts are the whole model's */
    mt_config config;
    const mt_model *whole; /* borrowed; outlives this */
    double *stands_for;    /* [L of the merged model] layers of the whole one */
} mt_merged;

/* Merges up to `most` layers into one.  Layers are equal if their kinds and the groups of their units are. */
mt_rc mt_merged_init(mt_merged *out, const mt_model *model, int most, mt_err *err);
void mt_merged_free(mt_merged *m);
/* How many layers to merge so that a placement is timed quickly; 1: it is already. */
int mt_merge_how_many(const mt_model *model);
/* The same placement of the merged model, as nearly as whole layers and units allow. */
candidate mt_merged_candidate(const mt_merged *m, const candidate *c);

#endif
