/* load.h - where an engine's weights come from: a checkpoint, or nothing. */
#ifndef MT_ENGINE_LOAD_H
#define MT_ENGINE_LOAD_H

#include "ckpt/weights.h"
#include "engine/engine.h"

/* Every tensor of the model from mapped files.  Where the plan says so (job.mapped) they are not copied but read there, each time
 * they are needed: then mt_weights_mapped must hold, and the files outlive the engine.  A value that is not finite, or too large
 * for bf16, becomes NaN and is warned about. */
mt_rc mt_engine_load(mt_engine *e, const mt_model *model, const mt_shards *shards, mt_err *err);

/* Fresh weights: normal with the config's deviation, norms 1, biases 0.  A tensor's numbers depend on the seed and its name
 * alone. */
mt_rc mt_engine_init(mt_engine *e, const mt_model *model, uint64_t seed, mt_err *err);

#endif
