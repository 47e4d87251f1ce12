/* weights.h - which tensor of a checkpoint fills which weight of a model.
 *
 * The model's layouts are walked and every tensor looked up: missing tensors, wrong shapes and wrong dtypes are one error path.
 * Extra tensors are counted, not refused (rotary tables, vision towers, prediction layers); those inside the layers are named. */
#ifndef MT_CKPT_WEIGHTS_H
#define MT_CKPT_WEIGHTS_H

#include "ckpt/shards.h"
#include "model/walk.h"

/* The tensor that a weight is in; NULL: the files do not have it. */
const mt_st_tensor *mt_weights_find(const mt_shards *shards, const mt_walk *at);

/* Every tensor is there with its shape; *n_unused counts the others, but not a tied head. */
mt_rc mt_weights_check(const mt_model *model, const mt_shards *shards, size_t *n_unused, mt_err *err);

/* Tensors inside the model's layers that nothing computes with, such as a bias that config.json does not mention. */
typedef struct mt_strays {
    size_t n;
    const char *first; /* the shards' own text */
} mt_strays;
mt_rc mt_weights_strays(mt_strays *out, const mt_model *model, const mt_shards *shards, mt_err *err);

/* The names of a model's own tensors in the files; a tied head's is among them. */
typedef struct mt_own_names {
    char (*names)[MT_NAME_BYTES]; /* sorted */
    size_t n;
} mt_own_names;
mt_rc mt_own_names_init(mt_own_names *out, const mt_model *model, mt_err *err);
bool mt_own_names_has(const mt_own_names *own, const char *name);
void mt_own_names_deinit(mt_own_names *own);

/* True if a tensor of the files (an mt_shards) holds bf16 numbers: mt_model_options.is_bf16. */
bool mt_weights_is_bf16(const void *shards, const char *name);
/* True if the weight can keep the form that its tensor has in the files (an mt_shards): mt_model_options.packing. */
bool mt_weights_packing(const void *shards, const mt_unit *unit, const mt_weight *w, mt_packing *out);
/* The rows of its tensor's matrix that such a weight has. */
mt_st_rows mt_weights_rows(const mt_unit *unit, const mt_weight *w);
/* True if every weight is in a mapped file in the device's form: bf16, complete, in order.  Exact weights may have any form. */
bool mt_weights_mapped(const mt_model *model, const mt_shards *shards);

/* How the files name things: under which prefix the text model is, which name the head has, whether it is the embedding.
 * `notice` (if not empty) says what was decided about tying. */
mt_file_names mt_weights_names(const mt_config *config, const mt_shards *shards, char notice[256]);

/* The model that the files hold: with their names, and of the family that its tensors identify if the type is unknown (detect.h);
 * *config is then replaced by that family's reading of it.  shards: NULL where there are none. */
mt_rc mt_weights_model(mt_model **out, mt_config **config, const mt_shards *shards, const mt_model_options *options,
                       char notice[256], mt_err *err);

/* MT_ENUMERIC names the first tensor with a number that is not finite.  Reads all of them: for when something went wrong. */
mt_rc mt_weights_check_finite(const mt_shards *shards, mt_err *err);

#endif
