/* costs.h - seconds the device computes for a unit, from shapes and the machine's rates. */
#ifndef MT_PLAN_COSTS_H
#define MT_PLAN_COSTS_H

#include "plan/plan.h"

typedef struct mt_costs {
    const mt_config *c;
    const mt_machine *m;
    double e;             /* bytes of an activation */
    double head_rows;     /* of logits at a time */
    double micro_rows;    /* of a full micro-batch: small products are slower */
    double document;      /* rows of a usual document */
    double trained;       /* share of rows that reach the head */
    /* Seconds a row, all layers alike but for attention. */
    double attend, mix, gate_up, down; /* products and elementwise kernels of forward's parts */
    double backward;
    double head_forward, head_backward;
    double embed_forward, embed_backward;
    double first_forward, first_backward; /* attention of the first layer */
    double micro_forward, micro_backward; /* seconds a micro-batch and layer, however few its rows */
} mt_costs;

mt_costs mt_costs_of(const mt_plan *p, const mt_machine *m);
/* Seconds of `rows` rows in `micros` micro-batches. */
double mt_cost_forward(const mt_costs *c, int layer, double rows, double micros);
double mt_cost_backward(const mt_costs *c, int layer, double rows, double micros);
/* Of redoing what `keep` lacks; finish: the next layer's input too. */
double mt_cost_redo(const mt_costs *c, int layer, mt_keep keep, bool finish, double rows, double micros);
/* Seconds a trained parameter: rounding and norm of its gradient; its update on the device. */
double mt_cost_finish_grad(const mt_costs *c);
double mt_cost_adam_device(const mt_costs *c);

#endif
