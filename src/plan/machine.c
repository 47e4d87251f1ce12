#include "plan/machine.h"

#include <stdint.h>

mt_machine mt_machine_typical(void)
{
    /* An H200 beside 16 cores (docs/benchmarks.md).  Products alone reach 740 to 830 TFLOP/s, in a run of minutes 700. */
    return (mt_machine){ .device_bytes = SIZE_MAX,
                         .host_bytes = SIZE_MAX,
                         .flops = 700e12,
                         .flops_f32 = 45e12,
                         .attention = 380e12,
                         .device_bandwidth = 4.0e12,
                         .launch = 3e-6,
                         .sync = 1e-3,
                         .copy_in = 55e9,
                         .copy_out = 55e9,
                         .copy_both = 50e9,
                         .copy_toll = 0.05,
                         .host_bandwidth = 145e9,
                         .adam_host = 4.8e9 };
}

mt_machine mt_machine_cpu(double flops, int n_threads)
{
    return (mt_machine){ .device_bytes = SIZE_MAX,
                         .host_bytes = SIZE_MAX,
                         .flops = flops,
                         .flops_f32 = flops,
                         .attention = flops / 8, /* plain loops */
                         .device_bandwidth = 2e9 * n_threads,
                         .launch = 20e-6,
                         .sync = 100e-6,
                         .copy_in = 8e9,
                         .copy_out = 8e9,
                         .copy_both = 6e9,
                         .copy_toll = 0.1,
                         .host_bandwidth = 40e9,
                         .adam_host = 0.8e9 * n_threads };
}
