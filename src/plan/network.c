#include "plan/network.h"

static const double FORWARD = 0.25; /* fraction of a step, at least: backward recomputes what was not kept */
enum { HALF_BYTES = 2, WHOLE_BYTES = 4 };

static double larger(double a, double b) { return a > b ? a : b; }

mt_network_cost mt_network_step(double alone_s, const mt_network_job *job)
{
    const double others = job->machines > 1 ? (double)(job->machines - 1) / (double)job->machines : 0,
                 seconds_a_byte = others * (double)job->n_trained / job->rate;
    mt_network_cost c = { .weights = (job->whole ? WHOLE_BYTES : HALF_BYTES) * seconds_a_byte,
                          .sums = (job->rounded ? HALF_BYTES : WHOLE_BYTES) * seconds_a_byte };
    c.step = larger(FORWARD * alone_s, c.weights) + larger((1 - FORWARD) * alone_s, c.sums);
    c.waits = c.step - alone_s;
    return c;
}

double mt_network_most_gpus(double step_tokens, double rate, double flops) { return step_tokens * rate / flops; }
