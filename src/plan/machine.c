#include "plan/machine.h"

#include <math.h>
#include <stdint.h>

mt_machine mt_machine_typical(void)
{
    /* An H200 beside 16 cores (docs/notebook).  Products reach 740 to 830 TFLOP/s alone and 706 in a run of minutes. */
    return (mt_machine){ .device_bytes = SIZE_MAX,
                         .host_bytes = SIZE_MAX,
                         .base_host = (size_t)590 << 20,
                         .base_device = (size_t)720 << 20,
                         .host_page = (size_t)2 << 20,
                         .flops = 706e12,
                         .flops_f32 = 45e12,
                         .small_result = 2.2e6,
                         .short_sum = 60,
                         .attention = 380e12,
                         .cudnn = true,
                         .device_bandwidth = 4.0e12,
                         .launch = 3e-6,
                         .sync = 1e-3,
                         .copy_in = 55e9,
                         .copy_out = 55e9,
                         .copy_both = 50e9,
                         .copy_toll = 0.05,
                         .host_bandwidth = 165e9,
                         .adam_host = { 5.4e9, 7.7e9, 6.8e9 } };
}

/* A core of a recent server with this many FLOP/s.  Elementwise loops are plain C for every type. */
mt_machine mt_machine_cpu(double flops, int n_threads)
{
    return (mt_machine){ .device_bytes = SIZE_MAX,
                         .host_bytes = SIZE_MAX,
                         .shared = true,
                         .base_host = (size_t)180 << 20,
                         .threads = n_threads,
                         .flops = flops,
                         .flops_f32 = flops,
                         .attention = flops / 8,
                         .device_bandwidth = 4e9 * n_threads,
                         .launch = 5e-6,
                         .sync = 100e-6,
                         .copy_in = 8e9,
                         .copy_out = 8e9,
                         .copy_both = 6e9,
                         .copy_toll = 0.1,
                         .host_bandwidth = 40e9,
                         .adam_host = { 0.8e9 * n_threads, 0.6e9 * n_threads, 0.4e9 * n_threads } };
}

static mt_state_form adamw(mt_moments moments) { return (mt_state_form){ MT_OPTIMIZER_ADAMW, moments }; }

/* The share of the memory's rate that Adam reaches alone. */
static const double ADAM_OF_MEMORY = 0.86;

/* Measured: 16 cores update 5.4 G parameters a second and move 165 GB/s.  Smaller moments move fewer bytes and need more work per
 * core: in bf16 6.4 G, in 8 bits 4.3 G, before one core got 1.21 and 1.58 times as fast (docs/notebook/host.md). */
void mt_machine_set_cores(mt_machine *m, int cores, double most)
{
    static const double core[MT_MOMENTS_FORMS] = { 0.9e9, 0.48e9, 0.42e9 };
    m->host_bandwidth = fmin(9.1e9 * cores + 20e9, most);
    for (int form = 0; form < MT_MOMENTS_FORMS; form++)
        m->adam_host[form] =
            fmin(core[form] * cores, ADAM_OF_MEMORY * m->host_bandwidth / mt_machine_update_bytes(adamw((mt_moments)form)));
}

void mt_machine_scale_cores(mt_machine *m, int from, int to)
{
    for (int form = 0; form < MT_MOMENTS_FORMS; form++) {
        const double measured = m->adam_host[form],
                     most = ADAM_OF_MEMORY * m->host_bandwidth / mt_machine_update_bytes(adamw((mt_moments)form));
        m->adam_host[form] = fmin(measured * to / from, fmax(measured, most));
    }
}

double mt_machine_update_bytes(mt_state_form form)
{
    static const double array[MT_MOMENTS_FORMS] = { 8, 4, 2 };
    return 10 + array[form.moments] * mt_optimizer_of(form.optimizer)->n_arrays;
}

double mt_machine_update_rate(const mt_machine *m, mt_state_form form)
{
    return m->adam_host[form.moments] * mt_machine_update_bytes(adamw(form.moments)) / mt_machine_update_bytes(form);
}
