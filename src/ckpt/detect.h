/* detect.h - which family a model of unknown type is, by its tensors. */
#ifndef MT_CKPT_DETECT_H
#define MT_CKPT_DETECT_H

#include "ckpt/shards.h"
#include "model/model.h"

/* For a config whose family is a guess: tries every family, and reads config.json as the first whose tensors these are, each one
 * there in its shape and none left over, and that supports every telling config key.  If there is none, says what the nearest one
 * lacks. */
mt_rc mt_detect_family(mt_config **out, const mt_config *config, const mt_shards *shards, mt_err *err);

#endif
