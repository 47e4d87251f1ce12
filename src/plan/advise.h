/* advise.h - answers before a run: whether it fits, which batch size to use, and what would help if it does not fit.
 *
 * The caller fills in a question, which borrows the model; answers are plain values.  All of it is planning: nothing is allocated
 * on a device. */
#ifndef MT_PLAN_ADVISE_H
#define MT_PLAN_ADVISE_H

#include "plan/search.h"

/* The run in question. */
typedef struct mt_question {
    const mt_model *model;
    mt_machine machine;
    size_t device_there, host_there; /* the machine's memory, if the settings allow the run less of it; 0: no limit is set */
    mt_arithmetic form;              /* the arithmetic except the numbers of rows */
    bool clip;
    int64_t seq_len;      /* most rows of a sample */
    int64_t batch;        /* samples of a step */
    bool auto_batch;      /* `batch` is a minimum: if more fit, the step has the recommended number */
    int lanes;            /* devices that train together; 0: one */
    int machines, rank;   /* machines with that many devices each, one rank per machine; 0: one */
    int64_t accumulation; /* batches that gradient accumulation joins into a step, for advice in terms of the settings; 0: one */
} mt_question;

/* Sets the number of devices.  Each gets one share, unless the question sets the number of shares. */
void mt_question_set_lanes(mt_question *q, int lanes);
mt_job mt_question_job(const mt_question *q, int64_t batch);

/* Samples of a step; 0: none. */
typedef struct mt_batch_advice {
    int64_t safe;        /* the most that leave a fifth of device memory free, and a fifth of the host memory that is left when
                          * all state has its home there */
    int64_t recommended; /* the fewest within 3% of the best tokens/s; at least 8 if 8 fit */
    int64_t largest;     /* the most that fit, up to MT_MOST_TOKENS a step, to within 2% */
    double tokens_s;     /* approximate speed with the recommended number */
} mt_batch_advice;

#define MT_MOST_TOKENS ((int64_t)1 << 24)

/* True if a step of this many samples fits. */
bool mt_advise_fits(const mt_question *q, int64_t batch);
/* Only the largest batch.  Takes a few milliseconds. */
int64_t mt_advise_largest(const mt_question *q);
/* Samples per step for batch_size auto: the recommended number, rounded to whole batches of `accumulation`. */
int64_t mt_advise_auto(const mt_batch_advice *a, int64_t accumulation);
mt_rc mt_advise_batch(mt_batch_advice *out, const mt_question *q, mt_err *err);

/* A change that makes the run fit. */
typedef struct mt_remedy {
    char change[160]; /* "max_grad_norm: 0", or hardware to add */
    char cost[192];   /* the cost of each named change, in words */
    double tokens_s;  /* with it */
    int64_t batch;    /* with this many samples per step */
} mt_remedy;

enum { MT_REMEDIES = 8 };

/* Lists remedies, cheapest first; none if nothing helps.  Each one alone makes the run fit. batch: the advice for the question,
 * or NULL. */
mt_rc mt_advise_remedies(mt_remedy out[MT_REMEDIES], int *n, const mt_question *q, const mt_batch_advice *batch, mt_err *err);
/* How to hide updates that the step waits for. */
typedef struct mt_update_advice {
    double wait;     /* seconds the step would save if host updates took no time; 0: next to nothing */
    int64_t batch;   /* samples per step that hide them; 0: no such number was found */
    int64_t tried;   /* the most samples tried; 0: no more than the question's fit */
    mt_moments form; /* a smaller form of Adam's moments that makes the step faster; the question's own if none does */
    double batch_tokens_s, form_tokens_s; /* with either */
} mt_update_advice;

/* plan: the question's. */
mt_rc mt_advise_updates(mt_update_advice *out, const mt_question *q, const mt_plan *plan, mt_err *err);
/* The least memory the run needs. */
mt_rc mt_advise_need(mt_need *out, const mt_question *q, mt_err *err);

#endif
