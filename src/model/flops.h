/* flops.h - the one formula by which work is counted, everywhere:
 *
 *     6 x (weights that multiply a token) x tokens  +  12 x heads x head width x (pairs of rows that see each other, over all layers)
 *
 * Weights that multiply: all matrices but the input embedding, which is looked up; a tied one counts once, as the head.  Pairs: causal,
 * inside documents, inside windows.  Forward and backward; what is recomputed to save memory does not count. */
#ifndef MT_MODEL_FLOPS_H
#define MT_MODEL_FLOPS_H

#include "model/model.h"

#define MT_FLOPS_FORMULA "6 x weights that multiply x tokens + attention (12 x heads x head width x visible pairs)"

/* Weights that multiply each token. */
int64_t mt_flops_weights(const mt_model *m);
/* Operations of one training step over documents [doc_start[i], doc_start[i + 1]). */
double mt_flops_step(const mt_model *m, const int32_t *doc_start, int64_t n_docs);

#endif
