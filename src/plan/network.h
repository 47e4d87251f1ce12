/* network.h - what the network between machines costs a step.
 *
 * Each machine sends the others' slices of its gradient sum and receives its own slice of theirs while backward runs, and sends its
 * new weights to all while the next forward runs.  With N trained parameters on H machines that is 4 (H - 1) / H x N bytes out of and
 * into each machine, then 2 (H - 1) / H x N.  What the compute of the same time does not hide, the step waits for:
 *
 *     step = max(forward, weights / rate) + max(backward, sums / rate)
 *
 * where forward is at least a quarter of a step's compute.  The number of parameters cancels: only tokens a GPU hide a network. */
#ifndef MT_PLAN_NETWORK_H
#define MT_PLAN_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mt_network_cost {
    double weights, sums; /* seconds on the wire */
    double step;          /* seconds, overlapped */
    double waits;         /* of them for the network alone */
} mt_network_cost;

/* What travels. */
typedef struct mt_network_job {
    int64_t n_trained;
    int machines;
    bool whole;   /* weights travel as fp32, where the device computes with that: 4 bytes instead of 2 */
    bool rounded; /* sums travel as bf16 (training.reduce_dtype): 2 bytes instead of 4 */
    double rate;  /* bytes a second each way of a machine */
} mt_network_job;

/* alone_s: a machine's part of the step without a network. */
mt_network_cost mt_network_step(double alone_s, const mt_network_job *job);
/* GPUs beyond which a step of this many tokens waits for weights, however many a machine has; flops: of one. */
double mt_network_most_gpus(double step_tokens, double rate, double flops);

#endif
