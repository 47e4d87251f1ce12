/* advise.h - what to answer someone who asks before running: does it fit, which batch size, and if not, what would help. */
#ifndef MT_PLAN_ADVISE_H
#define MT_PLAN_ADVISE_H

#include "plan/plan.h"

/* A run as it is asked about. */
typedef struct mt_question {
    const mt_model *model;
    mt_machine machine;
    size_t device_there, host_there; /* the machine's, where settings allow the run less of it; 0: they do not */
    mt_arithmetic form;              /* all of the arithmetic but the numbers of rows */
    bool clip;
    int64_t seq_len;      /* rows of a sample, at most */
    int64_t batch;        /* samples of a step */
    bool auto_batch;      /* that is the least: where more fit it has as many as are recommended */
    int lanes;            /* devices that train together; 0: one */
    int machines, rank;   /* with as many on each of several machines, of which this one has a rank; 0: one */
    int64_t accumulation; /* batches it is gathered from, for advice in terms of the settings; 0: one */
} mt_question;

/* Devices that train together; a share for each, unless the question says how many shares there are. */
void mt_question_set_lanes(mt_question *q, int lanes);
mt_job mt_question_job(const mt_question *q, int64_t batch);

/* Samples of a step; 0: none. */
typedef struct mt_batch_advice {
    int64_t safe;        /* the most with a fifth of the device's memory to spare, and of what the state would leave of the
                          * host's if all of it lived there */
    int64_t recommended; /* of 8 and more, or of all that fit, the fewest that come within 3% of the most tokens a second */
    int64_t largest;     /* the most that fit at all, up to MT_MOST_TOKENS a step; to two percent */
    double tokens_s;     /* of the recommended number, about */
} mt_batch_advice;

#define MT_MOST_TOKENS ((int64_t)1 << 24)

/* The largest of them alone: in some milliseconds. */
int64_t mt_advise_largest(const mt_question *q);
/* Samples of a step where batch_size is auto: the recommended number, in whole batches of `accumulation`. */
int64_t mt_advise_auto(const mt_batch_advice *a, int64_t accumulation);
mt_rc mt_advise_batch(mt_batch_advice *out, const mt_question *q, mt_err *err);

/* A change that makes a run fit which does not. */
typedef struct mt_remedy {
    char change[160]; /* "max_grad_norm: 0", or what to buy */
    char cost[192];   /* what it costs, in words: of every change that is named */
    double tokens_s;  /* with it */
    int64_t batch;    /* and with so many samples a step */
} mt_remedy;

enum { MT_REMEDIES = 8 };

/* The cheapest first; none: nothing here helps.  With any of them the question has a plan.  batch: what was advised for it, or
 * NULL. */
mt_rc mt_advise_remedies(mt_remedy out[MT_REMEDIES], int *n, const mt_question *q, const mt_batch_advice *batch, mt_err *err);
/* What would hide updates that a step waits for. */
typedef struct mt_update_advice {
    double wait;     /* seconds by which the step would be shorter if updates on the host took no time; 0: hardly any */
    int64_t batch;   /* samples of a step in which they are hidden; 0: none was found */
    int64_t tried;   /* the most samples that were looked at; 0: more than the question's do not fit */
    mt_moments form; /* of Adam's moments, a smaller one with which the step is faster; the question's: none is */
    double batch_tokens_s, form_tokens_s; /* with either */
} mt_update_advice;

/* plan: the question's. */
mt_rc mt_advise_updates(mt_update_advice *out, const mt_question *q, const mt_plan *plan, mt_err *err);
/* The least memory the run as asked about needs. */
mt_rc mt_advise_need(mt_need *out, const mt_question *q, mt_err *err);

#endif
