/* deal.h - deals a step's documents to shares, and fixes the order in which the shares' sums are added.
 *
 * This is arithmetic, not placement: it decides bits.  A step has bundles x shares; each share is summed by itself, micro-batch
 * by micro-batch (A2), then the sums are folded in order:
 *
 *     bundle = (share 0 + share 1) + share 2 ...      step = (bundle 0 + bundle 1) + bundle 2 ...
 *
 * in fp32 (losses in double), starting from the first one as it is, and leaving out shares without documents.  The device that
 * computes a share therefore makes no difference.  With reduce_bf16, each of several bundles is first rounded to bf16, and the
 * step's sum starts at zero.
 *
 * Dealing is a pure function of the documents' lengths, the model and bundles x shares.  A change to it must also change
 * MT_DEAL_VERSION, which the arithmetic's hash includes. */
#ifndef MT_SCHEDULE_DEAL_H
#define MT_SCHEDULE_DEAL_H

#include "schedule/plan.h"

enum { MT_DEAL_VERSION = 1, MT_MOST_SHARES = 4096 };

typedef struct mt_deal {
    int bundles, shares;
    bool rounds;       /* round bundles to bf16 before adding them */
    int64_t even_rows; /* document length at which attention takes as long as the products; 0: attention takes no time */
    int64_t most_docs;
    /* Documents of the step dealt last, share by share: */
    int64_t n_docs;
    int32_t *order;  /* [n_docs] their numbers in the batch */
    int32_t *starts; /* [n_docs + 1] their first rows */
    int64_t *first;  /* [bundles * shares + 1] the first document of each share */
    uint64_t *keys;  /* scratch: [n_docs], */
    int64_t *work;   /* [bundles * shares], */
    int32_t *taken;  /* [n_docs] */
} mt_deal;

/* Allocates for steps of up to most_docs documents. */
mt_rc mt_deal_init(mt_deal *d, const mt_model *model, const mt_arithmetic *a, int64_t most_docs, mt_err *err);
void mt_deal_deinit(mt_deal *d);
/* Deals the longest document first, each to the share with the least work so far (the first of equals).  Within a share,
 * documents keep the batch's order. */
void mt_deal_documents(mt_deal *d, const int32_t *doc_start, int64_t n_docs);
/* Deals all of them to the first share in order: for a pass that sums nothing. */
void mt_deal_none(mt_deal *d, const int32_t *doc_start, int64_t n_docs);
/* Most rows a share can get in a step of step_tokens rows with documents up to `longest`: dealing gives a share another document
 * only while no share has less work. */
int64_t mt_deal_most_rows(const mt_model *model, const mt_arithmetic *a, int64_t step_tokens, int64_t longest);
static inline int mt_deal_shares(const mt_deal *d) { return d->bundles * d->shares; }
static inline int64_t mt_deal_docs(const mt_deal *d, int share) { return d->first[share + 1] - d->first[share]; }
static inline int64_t mt_deal_rows(const mt_deal *d, int share)
{
    return d->starts[d->first[share + 1]] - d->starts[d->first[share]];
}

/* How one device adds up the shares it computes.  It has mt_plan_acc_count() sums of a gradient: the step's, a bundle's, a
 * share's. */
typedef struct mt_fold_order {
    int sum;          /* the share's micro-batches add to this sum */
    int into;         /* at the share's end, `into` is added to this sum; -1: they are the same */
    bool ends_bundle; /* then the bundle's sum (1), rounded if bundles are, is added to the step's (0) */
    bool first_bundle;
} mt_fold_order;
mt_fold_order mt_fold_order_of(const mt_deal *d, int share);

/* Adds the losses of all shares; the loss of a share without documents is zero. */
mt_loss_sum mt_fold_losses(const mt_loss_sum *of_share, int bundles, int shares);
/* Adds other numbers in the same order. */
double mt_fold_numbers(const double *of_share, int bundles, int shares);

#endif
