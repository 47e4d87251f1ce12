/* flops.h - the one formula for FLOPs, used everywhere:
 *
 *     6 x (weights multiplied per token: no input embedding, no norms) x tokens + 12 x H x Dh x (keys seen, summed over rows and
 *     layers)
 *
 * and for each layer with a gated delta net 18 x (numbers of its state: value heads x key width x value width) x tokens; That is
 * two operations per multiplication, once in forward and twice in backward.  Attention counts the keys that a row sees; the head
 * counts only trained tokens, because no other row reaches it. */
#ifndef MT_MODEL_FLOPS_H
#define MT_MODEL_FLOPS_H

#include "model/model.h"

#define MT_FLOPS_FORMULA "6 x multiplied weights x tokens (the head: trained ones) + 12 x heads x head width x keys seen"

/* Weights multiplied per token. */
int64_t mt_flops_weights(const mt_model *m);
/* Keys that the rows of a document of length n see, given the attention's window and chunks. */
double mt_flops_keys(int64_t n, const mt_attention *a);
/* FLOPs of a training step over documents of these lengths with n trained tokens. */
double mt_flops_step(const mt_model *m, const int32_t *doc_start, int64_t n_docs, int64_t n_trained);

#endif
