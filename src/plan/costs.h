/* costs.h - seconds the device computes for a unit, from shapes and the machine's rates. */
#ifndef MT_PLAN_COSTS_H
#define MT_PLAN_COSTS_H

#include "plan/plan.h"

#define MT_NORM_NUMBERS 2.6 /* read and written by a norm, forward, for each of its rows' numbers: as measured */

typedef struct mt_costs {
    const mt_config *c;
    const mt_machine *m;
    double e;             /* bytes of an activation */
    double head_rows;     /* of logits at a time */
    double micro_rows;    /* of a full micro-batch: small products are slower */
    double document;      /* rows of a usual document */
    double trained;       /* share of rows that reach the head */
    mt_attention_use use;
    struct attention_cost {
        bool known;
        int64_t window;
        double seconds[2]; /* a row, forward and backward */
    } attention[2];        /* without a window, and with the one used last */
    /* Seconds a row, all layers alike but for attention. */
    double attend, mix, gate_up, down; /* products and elementwise kernels of forward's parts */
    double backward;
    double norms, act; /* of backward: what is redone unless even that is kept */
    double head_forward, head_backward;
    double embed_forward, embed_backward;
    double micro_forward, micro_backward; /* seconds a micro-batch and layer, however few its rows */
} mt_costs;

/* How much longer a product takes than at full rate, its result rows x columns and its sums `depth` long. */
double mt_cost_small(const mt_machine *m, double rows, double columns, double depth);
mt_costs mt_costs_of(const mt_plan *p, const mt_machine *m);
/* Seconds of `rows` rows in `micros` micro-batches. */
double mt_cost_forward(mt_costs *c, int layer, double rows, double micros);
double mt_cost_backward(mt_costs *c, int layer, double rows, double micros);
/* Of redoing what `keep` lacks; finish: the next layer's input too. */
double mt_cost_redo(mt_costs *c, int layer, mt_keep keep, bool finish, double rows, double micros);
/* Seconds a trained parameter: rounding and norm of its gradient; its update on the device. */
double mt_cost_finish_grad(const mt_costs *c);
double mt_cost_adam_device(const mt_costs *c);

#endif
