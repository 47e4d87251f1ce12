#include "plan/network.h"

static const double FORWARD = 0.25; /* of a step, at least: backward redoes what was not kept */
enum { SUM_BYTES = 4, WEIGHT_BYTES = 2 };

static double larger(double a, double b) { return a > b ? a : b; }

mt_network_cost mt_network_step(double alone_s, int64_t n_trained, int machines, double rate)
{
    const double others = machines > 1 ? (double)(machines - 1) / (double)machines : 0;
    mt_network_cost c = { .weights = WEIGHT_BYTES * others * (double)n_trained / rate,
                          .sums = SUM_BYTES * others * (double)n_trained / rate };
    c.step = larger(FORWARD * alone_s, c.weights) + larger((1 - FORWARD) * alone_s, c.sums);
    c.waits = c.step - alone_s;
    return c;
}

double mt_network_most_gpus(double step_tokens, double rate, double flops) { return step_tokens * rate / flops; }
