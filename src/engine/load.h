/* load.h - fills an engine's weights: from a checkpoint, or with fresh random values. */
#ifndef MT_ENGINE_LOAD_H
#define MT_ENGINE_LOAD_H

#include "ckpt/weights.h"
#include "engine/engine.h"

/* Loads every tensor of the model from mapped files.  With job.mapped the engine reads them in place each time, without a copy:
 * then mt_weights_mapped must hold, and the files must outlive the engine.  A value that is not finite, or too large for bf16,
 * becomes NaN and causes a warning. */
mt_rc mt_engine_load(mt_engine *e, const mt_model *model, const mt_shards *shards, mt_err *err);

/* Only the weights that are kept packed: before a checkpoint is loaded, which may have halves of them. */
mt_rc mt_engine_load_packed(mt_engine *e, const mt_model *model, const mt_shards *shards, mt_err *err);

/* Fresh weights: normal with the config's deviation, norms 1, biases 0.  A tensor's numbers depend only on the seed and its
 * name. */
mt_rc mt_engine_init(mt_engine *e, const mt_model *model, uint64_t seed, mt_err *err);

#endif
