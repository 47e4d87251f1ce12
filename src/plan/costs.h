/* costs.h - seconds the device computes for a unit, from shapes and the machine's rates. */
#ifndef MT_PLAN_COSTS_H
#define MT_PLAN_COSTS_H

#include "plan/plan.h"

/* Seconds a row of one kind of layer, from the work its parts list. */
typedef struct mt_kind_cost {
    double forward, backward;
    double redo[MT_KEEPS][2];             /* by what is kept; and whether the next layer's input is wanted too */
    double micro_forward, micro_backward; /* seconds a micro-batch, however few its rows */
    double experts[2], unit[2];           /* of experts, forward and backward: a row in all of them; a pass in a unit */
    double close, reopen;                 /* their sum to the output; what they read, again */
} mt_kind_cost;

typedef struct mt_costs {
    const mt_model *model;
    const mt_config *c;
    const mt_machine *m;
    double e;          /* bytes of an activation */
    double head_rows;  /* of logits at a time */
    double micro_rows; /* of a full micro-batch: small products are slower */
    double pass_rows;  /* of a full pass through experts */
    double document;   /* rows of a usual document */
    double trained;    /* share of rows that reach the head */
    mt_attention_use use;
    mt_kind_cost *kinds;                /* [model's]; the caller's */
    double head_forward, head_backward; /* seconds a row */
    double embed_forward, embed_backward;
} mt_costs;

/* How much longer a product takes than at full rate, its result rows x columns and its sums `depth` long. */
double mt_cost_small(const mt_machine *m, double rows, double columns, double depth);
/* All but `kinds`, which has room for the model's. */
void mt_costs_fill(mt_costs *k, const mt_plan *p, const mt_machine *m);
/* Seconds of `rows` rows in `micros` micro-batches. */
double mt_cost_forward(const mt_costs *c, int layer, double rows, double micros);
double mt_cost_backward(const mt_costs *c, int layer, double rows, double micros);
/* Of redoing what `keep` lacks; finish: the next layer's input too. */
double mt_cost_redo(const mt_costs *c, int layer, mt_keep keep, bool finish, double rows, double micros);
/* Of one of a layer's units of experts, rows in `passes` passes; and, for all of the layer's rows, of what comes after the
 * experts in forward and before them in backward. */
double mt_cost_experts(const mt_costs *c, int unit, bool backward, double rows, double passes);
double mt_cost_close(const mt_costs *c, int layer, double rows);
double mt_cost_reopen(const mt_costs *c, int layer, double rows);
/* Seconds a trained parameter: rounding and norm of its gradient; adding a share's sum to the step's; its update on the
 * device. */
double mt_cost_finish_grad(const mt_costs *c);
double mt_cost_fold(const mt_costs *c);
double mt_cost_adam_device(const mt_costs *c);

#endif
