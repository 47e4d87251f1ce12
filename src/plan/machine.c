#include "plan/plan.h"

#include <stdint.h>

mt_machine mt_machine_typical(void)
{
    return (mt_machine){ .device_bytes = SIZE_MAX, .host_bytes = SIZE_MAX, .flops = 700e12, .copy_in = 50e9, .copy_out = 50e9, .adam_host = 3e9 };
}
