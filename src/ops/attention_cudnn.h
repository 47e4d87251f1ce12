/* attention_cudnn.h - attention by cuDNN's fused kernels: one graph each for forward and backward, made once per shape and size.
 *
 * Documents are packed: cuDNN gets the start (ragged offsets) and length of each, so one plan works for every packing up to its
 * size.  A state belongs to a device and one thread at a time. */
#ifndef MT_OPS_ATTENTION_CUDNN_H
#define MT_OPS_ATTENTION_CUDNN_H

#include "ops/attention_ways.h"

typedef struct mt_cudnn_attention mt_cudnn_attention;

/* MT_EUNSUPPORTED: no library here that can. */
mt_rc mt_cudnn_attention_open(mt_cudnn_attention **out, const char *device, mt_err *err); /* device: as in mt_cudnn_open */
void mt_cudnn_attention_close(mt_cudnn_attention *c);                                     /* accepts NULL */
int32_t mt_cudnn_attention_head(const mt_cudnn_attention *c); /* widest heads whose gradients it computes right; 0: none */

/* One launch of a backward: which documents (or keys), which heads.  heads: from this query head on, which reads this key
 * head. */
typedef struct mt_cudnn_launch {
    int64_t chunk, head, kv;
} mt_cudnn_launch;

/* MT_EUNSUPPORTED: cuDNN has no kernel for such a call that needs no more than this workspace; another kernel must be used, and
 * work queued before does no harm.  stream: a cudaStream_t.  The offsets and lengths in the scratch (mt_cudnn_layout) are filled
 * in by the caller.  The caller also sums the parts that a backward leaves there. */
mt_rc mt_cudnn_attention_fwd(mt_cudnn_attention *c, void *stream, const mt_attention *a, mt_err *err);
mt_rc mt_cudnn_attention_bwd(mt_cudnn_attention *c, void *stream, const mt_attention *a, mt_attention_way way,
                             const mt_cudnn_layout *l, mt_cudnn_launch at, mt_err *err);

/* Makes the plans of this shape and says what the largest needs of workspace. */
mt_rc mt_cudnn_attention_prepare(mt_cudnn_attention *c, const mt_attention *a, bool backward, mt_attention_way way,
                                 size_t *workspace, mt_err *err);

/* This backward does not use cuDNN, but later ones of this shape may: make their plans now. */
void mt_cudnn_attention_expect(mt_cudnn_attention *c, const mt_attention *a);
int mt_cudnn_attention_plans(const mt_cudnn_attention *c); /* how many there are, with those that could not be made */

/* Elements from row to row of what each array of offsets is for. */
void mt_cudnn_offset_lds(const mt_attention *a, mt_attention_way way, const mt_cudnn_layout *l, int64_t ld[MT_OFFSETS]);

#endif
