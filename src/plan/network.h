/* network.h - the cost of the network between machines.
 *
 * Each machine sends the others' slices of its gradient sum and receives its own slice of theirs while backward runs, and sends
 * its new weights to all while the next forward runs.  With N trained parameters on H machines that is 4 (H - 1) / H x N bytes
 * out of and into each machine, then 2 (H - 1) / H x N.  A machine that computes several bundles, one after the other, sends a sum
 * for each of them; it sends the weights once, while the forward of the first bundle runs.  The step waits for whatever its compute
 * does not hide:
 *
 *     step = max(forward of the first bundle, weights / rate) + max(the rest, sums / rate)
 *
 * where forward is at least a quarter of a bundle's compute.  The number of parameters cancels: only more tokens per GPU hide a
 * slow network. */
#ifndef MT_PLAN_NETWORK_H
#define MT_PLAN_NETWORK_H

#include "plan/search.h"

typedef struct mt_network_cost {
    double weights, sums; /* seconds on the wire */
    double step;          /* seconds, overlapped */
    double waits;         /* of these, seconds spent waiting for the network */
} mt_network_cost;

/* What crosses the network. */
typedef struct mt_network_job {
    int64_t n_trained;
    int machines;
    int turns;    /* bundles per machine, at most; 0: one */
    bool whole;   /* send weights as fp32, if the device computes in fp32: 4 bytes instead of 2 */
    bool rounded; /* send sums as bf16 (training.reduce_dtype): 2 bytes instead of 4 */
    double rate;  /* bytes per second each way, per machine */
} mt_network_job;

/* What crosses the network in a step of the plan. */
mt_network_job mt_network_job_of(const mt_plan *plan, double rate);
/* alone_s: seconds of a machine's part of the step without the network. */
mt_network_cost mt_network_step(double alone_s, const mt_network_job *job);
/* Number of GPUs beyond which a step of this many tokens waits for weights, whatever the number per machine; flops: of one
 * GPU. */
double mt_network_most_gpus(double step_tokens, double rate, double flops);

#endif
