/* attention_ways.h - which attention kernel a call uses, and what it needs.  Pure functions of the arguments, the same in every
 * build: plans rely on them, and the choice can be tested without a GPU. */
#ifndef MT_OPS_ATTENTION_WAYS_H
#define MT_OPS_ATTENTION_WAYS_H

#include "ops/ops.h"

/* cuDNN's kernels are made for a number of documents and a length; documents go through them in groups of that number.  Both come
 * in few sizes, so that a run makes all its kernels in its first step. */
enum { MT_CUDNN_SIZES = 96, MT_CUDNN_SMALLEST = 256, MT_CUDNN_MOST_DOCS = 64, MT_CUDNN_FEWEST_KEYS = 2048 };
enum { MT_CUDNN_SMALL_WORKSPACE = 1 << 20 }; /* bytes of every launch, beside squares */

/* heads: query heads of a launch.  All of them, or, if a document's squares do not fit at once, one from each of several key
 * heads: then the gradients of keys and values are made for every query head and summed afterwards.  keys: a document's keys of a
 * launch, with all queries that see them.  All of them, or a part: then the gradients of queries are made for every part and
 * summed. */
typedef struct mt_cudnn_size {
    int64_t docs, longest, heads, keys;
} mt_cudnn_size;

/* All sizes of a run, ascending; returns how many.  squares: of the repeatable backward, which needs `heads x longest x longest`
 * a document in the workspace: lengths of which not one head fits are left out.  The others have one length, the run's
 * longest. */
int mt_cudnn_sizes(const mt_attention *a, bool squares, mt_cudnn_size out[MT_CUDNN_SIZES]);
/* All heads and keys of a document in one launch. */
bool mt_cudnn_whole(const mt_attention *a, mt_cudnn_size size);
/* Launches for the keys of a document. */
int64_t mt_cudnn_pieces(mt_cudnn_size size);
/* The one for this call; docs 0: none. */
mt_cudnn_size mt_cudnn_size_of(const mt_attention *a, bool squares);
/* True if cuDNN computes heads of these widths right: values as wide as scores, or DeepSeek's latent attention.  Other pairs were
 * not tried. */
bool mt_cudnn_widths(const mt_attention *a);
/* The run's longest document, rounded up. */
int64_t mt_cudnn_longest(const mt_attention *a);

/* Offsets of documents that cuDNN reads, one array for each distance from row to row. */
typedef enum mt_cudnn_offset {
    MT_OFF_Q,
    MT_OFF_K,
    MT_OFF_V,
    MT_OFF_O,
    MT_OFF_LSE,
    MT_OFF_D,
    MT_OFF_DQ,
    MT_OFF_KV,
    MT_OFFSETS
} mt_cudnn_offset;

/* Offsets in the scratch of a call to cuDNN, in bytes from its start. */
typedef struct mt_cudnn_layout {
    mt_cudnn_size size;
    int64_t n_chunks;               /* launches, of size.docs documents each, or of size.keys of a parcel's */
    bool parcels;                   /* the longest leave room for few at a time, or do not fit whole: documents go by length,
                                    * and size is each parcel's */
    int64_t offsets_ld, lengths_ld; /* elements from chunk to chunk (offsets: from array to array) */
    size_t offsets, lengths;        /* int64 [n_chunks][MT_OFFSETS][offsets_ld]; int32 [n_chunks][queries, keys][lengths_ld] */
    size_t delta, acc, dq, dkf, dvf, dk, dv; /* backward; dq: where its rows cannot be written to their place (parcels:
                                              * [piece][longest, heads, Dh]); dkf, dvf: [N, H, Dh] */
    size_t workspace, workspace_bytes;
    size_t bytes; /* of all */
} mt_cudnn_layout;

/* Documents of about one length, as many as go through together. */
typedef struct mt_cudnn_parcel {
    mt_cudnn_size size;
    int64_t n_docs;
    int32_t row[MT_CUDNN_MOST_DOCS], length[MT_CUDNN_MOST_DOCS];
    int64_t above, upto, next; /* where the walk is: documents of these lengths, from this one on */
} mt_cudnn_parcel;

/* The next parcel of a call (shorter documents first), from one that is all zeros on; false: no more.  Reads a->host_start. */
bool mt_cudnn_parcel_next(const mt_attention *a, mt_cudnn_parcel *p);

/* Elements from row to row of dq as cuDNN writes it: a->ld_d, or that of the scratch. */
int64_t mt_cudnn_ld_dq(const mt_attention *a, mt_attention_way way);

/* Bytes at the start of a call's scratch for the gradient of its sinks; 0: it has none. */
size_t mt_sinks_scratch(const mt_attention *a);

mt_cudnn_layout mt_cudnn_layout_of(const mt_attention *a, mt_attention_way way, bool backward);

#endif
