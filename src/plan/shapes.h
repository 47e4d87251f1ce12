/* shapes.h - published models by name, so that anyone can plan for a model they do not have. */
#ifndef MT_PLAN_SHAPES_H
#define MT_PLAN_SHAPES_H

#include "model/model.h"

typedef struct mt_shape {
    const char *name;      /* as the hub names it: last part, lower case, without -instruct */
    const char *config;    /* what its config.json says, as far as it matters */
    const char *untrained; /* its model_type, where that can be planned but not trained yet: config is then a dense block of the
                              width and the work a token meets, and the layers hold the other parameters too */
    double billions;       /* of parameters, of those */
} mt_shape;

extern const mt_shape mt_shapes[];
extern const size_t mt_n_shapes;

/* An unknown name is answered with the nearest known one. */
mt_rc mt_shape_find(const mt_shape **out, const char *name, mt_err *err);
/* The config of a shape that can be trained. */
mt_rc mt_shape_open(mt_config **out, const char *name, mt_err *err);
/* Any shape as a model to plan with; close both.  o: what is frozen, or NULL; it does not apply to what is not trained. */
mt_rc mt_shape_model(mt_config **config, mt_model **model, const mt_shape *shape, const mt_model_options *o, mt_err *err);

#endif
