/* delta_rule.h - the scratch of a GPU's delta rule: which arrays, where, and how many heads at a time.
 *
 * A GPU cuts each document into chunks of MT_DELTA_ROWS rows, the last one short, and works on a group of value heads at a time,
 * so that scratch does not grow with all heads.  Arrays of a group are [head of the group][row or slot][...].  A state is stored
 * only between two chunks of a document.  There are at most N / MT_DELTA_ROWS of those, however short the documents are. */
#ifndef MT_OPS_DELTA_RULE_H
#define MT_OPS_DELTA_RULE_H

#include "ops/ops.h"

/* One chunk.  On the device as int32_t[4]. */
typedef struct mt_delta_chunk {
    int32_t row, rows;
    int32_t before; /* slot of the state before it; -1: zero, a document starts here */
    int32_t after;  /* slot of the state after it; -1: nothing reads it, a document ends here */
} mt_delta_chunk;

/* Offsets of the arrays in bytes, each a multiple of 256.  e: the compute dtype of the kernels (fast: bf16, plain: fp32). */
typedef struct mt_delta_layout {
    bool fast;              /* tensor cores; widths padded to `wide` */
    int64_t wide_k, wide_v; /* columns of arrays that are Dk, Dv wide */
    int64_t keys, heads;    /* key heads and value heads of a group, except perhaps the last */
    int64_t n_slots;
    size_t first_chunk; /* [n_docs + 1] int32 */
    size_t first_slot;  /* [n_docs + 1] int32 */
    size_t chunks;      /* [chunks] mt_delta_chunk */
    size_t gamma, beta; /* [H][N] fp32: decay since the chunk's start (a logarithm), beta */
    size_t sums;        /* [chunks][2][H] fp32: shares of dA_log, ddt_bias */
    size_t q, k;        /* [keys][N][wide_k] e, normed */
    size_t w;           /* [heads][N][wide_k] e: T diag(beta e^gamma) K */
    size_t v;           /* [heads][N][wide_v] e: T diag(beta) V, then what each row adds to the state */
    size_t t, p, a;     /* [heads][N][64] e: T; Q K' decayed, lower; K K' decayed, strictly lower */
    size_t s, ds;       /* [heads][slots][wide_k][wide_v] e: states and their gradients */
    size_t dv;          /* [heads][N][wide_v] e: gradient of v */
    size_t dr;          /* plain only, fp32: [heads][N][wide_v] T' dv */
    size_t dq, dk, y;   /* plain only, fp32: [heads][N][wide_k] */
    size_t m, f;        /* plain only, fp32: [heads][N][64] */
    size_t bytes;
} mt_delta_layout;

/* Chunks a call may have at most. */
static inline int64_t mt__delta_chunks(const mt_delta_rule *a)
{
    int64_t most = a->N / MT_DELTA_ROWS + a->n_docs;
    return most < a->N ? most : a->N;
}

/* True if tensor cores can do these shapes. */
bool mt__delta_is_fast(const mt_delta_rule *a);
mt_delta_layout mt__delta_layout(const mt_delta_rule *a, bool fast);

#endif
