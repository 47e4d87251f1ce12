/* model_internal.h - what the files that build a model share.  Only model.c, weight_list.c and layout.c include it. */
#ifndef MT_MODEL_MODEL_INTERNAL_H
#define MT_MODEL_MODEL_INTERNAL_H

#include "model/layer.h"

/* The spec of a unit's layer, and its kind; NULL: the unit is not of a layer. */
static inline const mt_layer_spec *unit_spec(const mt_config *c, const mt_unit *u)
{
    return u->layer < 0 ? NULL : &c->layers[u->layer];
}

static inline const mt_layer_kind *unit_layer_kind(const mt_model *m, const mt_unit *u)
{
    return u->layer < 0 ? NULL : mt_layer_kind_of(m, u->layer);
}

/* Lists the unit's weights, without their places.  The caller owns out->weights, also if this fails. */
mt_rc mt__weights_list(mt_layout *out, const mt_model *m, const mt_unit *u, mt_err *err);
/* True if b must follow a without a gap: they are one role, or one product computes both. */
bool mt__roles_side_by_side(const mt_layer_kind *k, mt_role a, mt_role b);

/* Places listed weights that are marked as frozen, decayed and without low halves; fills in the rest of the layout. */
void mt__layout_place(mt_layout *l, const mt_layer_kind *k);
/* True if units with these layouts can share device buffers. */
bool mt__layout_equal(const mt_layout *a, const mt_layout *b);

#endif
