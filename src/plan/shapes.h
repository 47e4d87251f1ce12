/* shapes.h - published models by name, so that anyone can plan for a model they do not have. */
#ifndef MT_PLAN_SHAPES_H
#define MT_PLAN_SHAPES_H

#include "model/model.h"

typedef struct mt_shape {
    const char *name;      /* as the hub names it: last part, lower case, without -instruct */
    const char *config;    /* the relevant keys of its config.json */
    const char *untrained; /* its model_type, if the model can be planned but not trained yet: config then describes a dense block
                            * with the same width and work per token, and the layers hold the other parameters too */
    double billions;       /* its number of parameters, in that case */
} mt_shape;

extern const mt_shape mt_shapes[];
extern const size_t mt_n_shapes;

/* For an unknown name, the error suggests the nearest known one. */
mt_rc mt_shape_find(const mt_shape **out, const char *name, mt_err *err);
/* The config of a shape that can be trained. */
mt_rc mt_shape_open(mt_config **out, const char *name, mt_err *err);
/* Opens any shape as a model to plan with; close both. o: what is frozen, or NULL; ignored for a model that cannot be trained. */
mt_rc mt_shape_model(mt_config **config, mt_model **model, const mt_shape *shape, const mt_model_options *o, mt_err *err);

#endif
