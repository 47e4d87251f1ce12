/* deal.h - a step's documents dealt to shares, and the order in which the shares' sums meet.
 *
 * Arithmetic, not placement: it decides bits.  A step has bundles x shares; each share is summed by itself, micro-batch by
 * micro-batch (A2), then the sums are folded in order:
 *
 *     bundle = (share 0 + share 1) + share 2 ...      step = (bundle 0 + bundle 1) + bundle 2 ...
 *
 * in fp32 (losses in double), the first one taken as it is, shares without documents left out.  Which device computes a share
 * cannot matter.  If the arithmetic says so (reduce_bf16), each of several bundles is rounded to bf16 first, and the step begins
 * with zero.
 *
 * Dealing is a pure function of the documents' lengths, of the model and of bundles x shares.  Change it, and MT_DEAL_VERSION,
 * which the arithmetic's hash includes, must change too. */
#ifndef MT_PLAN_DEAL_H
#define MT_PLAN_DEAL_H

#include "plan/plan.h"

enum { MT_DEAL_VERSION = 1, MT_MOST_SHARES = 4096 };

typedef struct mt_deal {
    int bundles, shares;
    bool rounds;       /* bundles to bf16, before they are added */
    int64_t even_rows; /* a document this long takes as long for attention as for products; 0: attention takes no time */
    int64_t most_docs;
    /* Of the step dealt last, its documents share by share: */
    int64_t n_docs;
    int32_t *order;  /* [n_docs] their numbers in the batch */
    int32_t *starts; /* [n_docs + 1] their first rows */
    int64_t *first;  /* [bundles * shares + 1] the first document of each share */
    uint64_t *keys;  /* scratch: [n_docs], */
    int64_t *work;   /* [bundles * shares], */
    int32_t *taken;  /* [n_docs] */
} mt_deal;

/* Room for steps of most_docs documents. */
mt_rc mt_deal_init(mt_deal *d, const mt_model *model, const mt_arithmetic *a, int64_t most_docs, mt_err *err);
void mt_deal_deinit(mt_deal *d);
/* Longest first, each to the share with the least work so far, the first of several; within a share in the batch's order. */
void mt_deal_documents(mt_deal *d, const int32_t *doc_start, int64_t n_docs);
/* All of them to the first share, as they come: a pass that sums nothing. */
void mt_deal_none(mt_deal *d, const int32_t *doc_start, int64_t n_docs);
/* Rows of a share, at most, of steps of step_tokens rows in documents of `longest`: dealing gives a share a document only while
 * no other has less work. */
int64_t mt_deal_most_rows(const mt_model *model, const mt_arithmetic *a, int64_t step_tokens, int64_t longest);
static inline int mt_deal_shares(const mt_deal *d) { return d->bundles * d->shares; }
static inline int64_t mt_deal_docs(const mt_deal *d, int share) { return d->first[share + 1] - d->first[share]; }
static inline int64_t mt_deal_rows(const mt_deal *d, int share)
{
    return d->starts[d->first[share + 1]] - d->starts[d->first[share]];
}

/* How a share's sum meets the others', where one device computes all of them.  It has mt_plan_acc_count() sums of a gradient: the
 * step's, then a bundle's, then a share's. */
typedef struct mt_fold_order {
    int sum;          /* the one that the share's micro-batches add to */
    int into;         /* at its end that is added to this one; -1: it is that one */
    bool ends_bundle; /* then the bundle's sum (1), rounded if bundles are, is added to the step's (0) */
    bool first_bundle;
} mt_fold_order;
mt_fold_order mt_fold_order_of(const mt_deal *d, int share);

/* Losses of all shares; those without documents are zero. */
mt_loss_sum mt_fold_losses(const mt_loss_sum *of_share, int bundles, int shares);
/* Other numbers, likewise. */
double mt_fold_numbers(const double *of_share, int bundles, int shares);

#endif
