/* weights.h - which tensor of a checkpoint fills which place of a model.
 *
 * The model's layouts are walked and every tensor looked up: missing, misshapen and of a dtype that holds no weights are one
 * error path.  Tensors nobody asks for are counted, not refused (rotary tables, vision towers, prediction layers). */
#ifndef MT_CKPT_WEIGHTS_H
#define MT_CKPT_WEIGHTS_H

#include "ckpt/shards.h"
#include "model/model.h"

/* Every tensor is there with its shape; *n_unused counts the others. */
mt_rc mt_weights_check(const mt_model *model, const mt_shards *shards, size_t *n_unused, mt_err *err);

/* Every weight lies in a mapped file as the device wants it: bf16, whole, in order. */
bool mt_weights_mapped(const mt_model *model, const mt_shards *shards);

/* What the files say: of a model of unknown type, which family's it is (detect.h); under which prefix the text model lies; and about tying:
 * two different tensors are not tied whatever config.json says, and one alone serves both.
 * Changes the config; *notice (if not empty) says what was decided about tying. */
mt_rc mt_weights_settle_tying(mt_config *config, const mt_shards *shards, char notice[256], mt_err *err);

#endif
