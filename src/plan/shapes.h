/* shapes.h - published models by name, so that anyone can plan for a model they do not have. */
#ifndef MT_PLAN_SHAPES_H
#define MT_PLAN_SHAPES_H

#include "model/config.h"

typedef struct mt_shape {
    const char *name;   /* as the hub names it: last part, lower case, without -instruct */
    const char *config; /* what its config.json says, as far as it matters */
} mt_shape;

extern const mt_shape mt_shapes[];
extern const size_t mt_n_shapes;

/* The config of a shape; an unknown name is answered with the nearest known one. */
mt_rc mt_shape_open(mt_config **out, const char *name, mt_err *err);

#endif
