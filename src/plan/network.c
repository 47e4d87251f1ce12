#include "plan/network.h"

static const double FORWARD = 0.25; /* fraction of a bundle, at least: backward recomputes what was not kept */
enum { HALF_BYTES = 2, WHOLE_BYTES = 4 };

mt_network_job mt_network_job_of(const mt_plan *plan, double rate)
{
    return (mt_network_job){ .n_trained = plan->model->n_trained,
                             .machines = mt_plan_machines(plan),
                             .turns = mt_plan_turns(plan),
                             .whole = plan->arithmetic.compute == MT_DTYPE_F32,
                             .rounded = mt_arithmetic_rounds(&plan->arithmetic),
                             .rate = rate };
}

static double larger(double a, double b) { return a > b ? a : b; }

mt_network_cost mt_network_step(double alone_s, const mt_network_job *job)
{
    const double others = job->machines > 1 ? (double)(job->machines - 1) / (double)job->machines : 0,
                 seconds_a_byte = others * (double)job->n_trained / job->rate;
    const int turns = job->turns > 1 ? job->turns : 1;
    const double forward = FORWARD * alone_s / turns;
    mt_network_cost c = { .weights = (job->whole ? WHOLE_BYTES : HALF_BYTES) * seconds_a_byte,
                          .sums = turns * (job->rounded ? HALF_BYTES : WHOLE_BYTES) * seconds_a_byte };
    c.step = larger(forward, c.weights) + larger(alone_s - forward, c.sums);
    c.waits = c.step - alone_s;
    return c;
}

double mt_network_most_gpus(double step_tokens, double rate, double flops) { return step_tokens * rate / flops; }
