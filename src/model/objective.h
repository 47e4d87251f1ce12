/* objective.h - what a model is trained for: the loss of its logits, as a part beside mixer and ffn, one file each.
 *
 * The head takes its trained rows in blocks.  For each it makes the logits, lets the objective complete the arguments of the
 * cross_entropy op, and runs that op: one pass over the logits makes the loss of each row and its gradient.  ops/row_terms.h has
 * the formula, whose terms an objective sets: label smoothing and z-loss are numbers, factors and weights are arrays of a number
 * per row.  A factor that needs more than p(target) takes an op, which rows() queues.  Nothing waits for the device: results of
 * one op are arguments of the next.
 *
 * Evaluation is plain cross-entropy whatever a model is trained for, so that its perplexity means the same everywhere.
 *
 * Two passes.  Losses of groups of documents (pairs, answers to one prompt) need sums over whole documents before they know the
 * weight of a row.  For these an objective gets two more members, and the head another pass:
 *     sums      bits of the sums that a first pass adds up per document: log-probabilities of its targets, trained rows
 *     groups    queues the op that makes the weight of each document from those sums and from columns, and with it the metrics
 * The first pass runs logits and cross_entropy without dlogits over a sweep, whose groups are whole; the second is the one above,
 * with mt_cross_entropy.weights from groups(). */
#ifndef MT_MODEL_OBJECTIVE_H
#define MT_MODEL_OBJECTIVE_H

#include "base/columns.h"
#include "ops/ops.h"

struct mt_run;

typedef struct mt_objective mt_objective;

/* An objective and its numbers.  All zero: plain cross-entropy. */
typedef struct mt_objective_use {
    const mt_objective *of; /* NULL: cross-entropy, without smoothing */
    float z_loss;           /* times (log sum exp of the logits)^2, in every objective */
    float smoothing;        /* of cross_entropy: part of each target that is spread over the vocabulary */
    float alpha;            /* of eaft */
    uint32_t columns;       /* MT_COLUMN_BIT of those that batches may have */
} mt_objective_use;

/* A block of trained rows whose logits are queued. */
typedef struct mt_objective_rows {
    const struct mt_run *r;
    const mt_objective_use *use;
    const float *columns[MT_COLUMNS]; /* [a->N]; NULL: the batch has none */
} mt_objective_rows;

struct mt_objective {
    /* Completes *a, the arguments for these rows, and queues what it needs before. */
    mt_rc (*rows)(const mt_objective_rows *b, mt_cross_entropy *a, mt_err *err);
};

extern const mt_objective mt_objective_cross_entropy, mt_objective_dft, mt_objective_eaft;

#endif
