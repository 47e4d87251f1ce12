/* costs.h - compute time of a unit on the device, from shapes and the machine's rates. */
#ifndef MT_PLAN_COSTS_H
#define MT_PLAN_COSTS_H

#include "plan/search.h"

/* Seconds per row for one kind of layer, from the work that its parts list. */
typedef struct mt_kind_cost {
    double forward, backward;
    double redo[MT_KEEPS][2];             /* by what is kept; [1]: the next layer's input is recomputed too */
    double micro_forward, micro_backward; /* fixed seconds per micro-batch */
    double experts[2], unit[2];     /* experts, forward and backward: per row through all of them; per pass through a unit */
    double weights, expert_weights; /* of backward and experts[1], the gradients of weights */
    double close, reopen;           /* adding their sum to the output; recomputing their input */
} mt_kind_cost;

typedef struct mt_costs {
    const mt_model *model;
    const mt_config *c;
    const mt_machine *m;
    double e;          /* bytes of an activation */
    double head_rows;  /* of logits at a time */
    double micro_rows; /* rows of a full micro-batch: small products are slower */
    double pass_rows;  /* rows of a full pass through experts */
    double document;   /* rows of a typical document */
    double trained;    /* share of rows that reach the head */
    mt_attention_use use;
    mt_kind_cost *kinds;                /* [model's]; the caller's */
    double head_forward, head_backward; /* seconds a row */
    double embed_forward, embed_backward;
} mt_costs;

/* Slowdown of a product against the full rate: the result is rows x columns, each sum has `depth` terms. */
double mt_cost_small(const mt_machine *m, double rows, double columns, double depth);
/* Fills everything except `kinds`, which must have room for the model's kinds. */
void mt_costs_fill(mt_costs *k, const mt_plan *p, const mt_machine *m);
/* Seconds of `rows` rows in `micros` micro-batches. */
double mt_cost_forward(const mt_costs *c, int layer, double rows, double micros);
double mt_cost_backward(const mt_costs *c, int layer, double rows, double micros);
/* Seconds to recompute what `keep` lacks; finish: the next layer's input too. */
double mt_cost_redo(const mt_costs *c, int layer, mt_keep keep, bool finish, double rows, double micros);
/* Seconds for one of a layer's expert units, rows in `passes` passes; and, for all rows of the layer, for the work after the
 * experts in forward and before them in backward. */
double mt_cost_experts(const mt_costs *c, int unit, bool backward, double rows, double passes);
double mt_cost_close(const mt_costs *c, int layer, double rows);
double mt_cost_reopen(const mt_costs *c, int layer, double rows);
/* Seconds per trained parameter: clear its sum; round its gradient and take the norm; add a share's sum to the step's; update it on the
 * device. */
double mt_cost_clear(const mt_costs *c);
double mt_cost_finish_grad(const mt_costs *c);
double mt_cost_fold(const mt_costs *c);
double mt_cost_update_device(const mt_costs *c, mt_optimizer_kind optimizer);

#endif
