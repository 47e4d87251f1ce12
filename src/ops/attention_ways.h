/* attention_ways.h - which implementation of attention serves a call, and what it needs.  Functions of the arguments alone, the same in
 * every build: a plan counts with them and the choice can be tested without a GPU. */
#ifndef MT_OPS_ATTENTION_WAYS_H
#define MT_OPS_ATTENTION_WAYS_H

#include "ops/ops.h"

/* cuDNN's kernels are made for a number of documents and a length; documents go through them so many at a time.  Both come in few
 * sizes, so that a run makes all its kernels in its first step. */
enum { MT_CUDNN_SIZES = 96, MT_CUDNN_SMALLEST = 256, MT_CUDNN_MOST_DOCS = 64 };

typedef struct mt_cudnn_size {
    int64_t docs, longest;
} mt_cudnn_size;

/* All sizes of a run, ascending; returns how many.  squares: of the repeatable backward, which needs `heads x longest x longest` a document
 * in the workspace: what does not fit is left out.  The others have one length, the run's longest. */
int mt_cudnn_sizes(const mt_attention *a, bool squares, mt_cudnn_size out[MT_CUDNN_SIZES]);
/* The one for this call; longest 0: none. */
mt_cudnn_size mt_cudnn_size_of(const mt_attention *a, bool squares);
/* The run's longest document, rounded up. */
int64_t mt_cudnn_longest(const mt_attention *a);

/* Offsets of documents that cuDNN reads, one array for each distance from row to row. */
typedef enum mt_cudnn_offset { MT_OFF_Q, MT_OFF_K, MT_OFF_V, MT_OFF_O, MT_OFF_LSE, MT_OFF_D, MT_OFF_DQ, MT_OFF_KV, MT_OFFSETS } mt_cudnn_offset;

/* Where things lie in the scratch of a call that cuDNN serves; bytes from its start. */
typedef struct mt_cudnn_layout {
    mt_cudnn_size size;
    int64_t n_chunks;              /* launches, size.docs documents each */
    int64_t offsets_ld, lengths_ld; /* elements from chunk to chunk (offsets: from array to array) */
    size_t offsets, lengths;       /* int64 [n_chunks][MT_OFFSETS][offsets_ld]; int32 [n_chunks][lengths_ld] */
    size_t delta, acc, dq, dkf, dvf, dk, dv; /* backward; dq: where its rows cannot be written to their place */
    size_t workspace, workspace_bytes;
    size_t bytes;                  /* of all */
} mt_cudnn_layout;

/* Elements from row to row of dq as cuDNN writes it: a->ld_d, or else it lies in the scratch. */
int64_t mt_cudnn_ld_dq(const mt_attention *a, mt_attention_way way);

mt_cudnn_layout mt_cudnn_layout_of(const mt_attention *a, mt_attention_way way, bool backward);

#endif
