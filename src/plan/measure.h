/* measure.h - measures the machine a run is on: the memory that is free now, and rates that are measured once and cached.
 *
 * Measuring takes about two seconds: a product, copies both ways and at once, device memory, Adam on the host's cores with each
 * form of moments.  The result is kept in $XDG_CACHE_HOME/megatrain (else ~/.cache/megatrain), one small file per device,
 * processor and number of cores; removing it measures again.  A result measured while other processes used the cores, or from a
 * GPU much slower than its kind, is valid for one minute.  A CPU that is the device takes a third of a second.  The measurements
 * decide placements, which change no bit (P1), never the arithmetic (auto.c). */
#ifndef MT_PLAN_MEASURE_H
#define MT_PLAN_MEASURE_H

#include "device/device.h"
#include "plan/host.h"
#include "plan/machine.h"

/* Overrides from flags; 0 or NULL: none. */
typedef struct mt_machine_given {
    const char *gpu; /* a name of plan/gpus.h: a machine that is not here */
    size_t ram, device_memory;
    size_t ram_most; /* upper limit on the memory found, or on `ram` */
    double link;     /* bytes a second */
    int cores;
} mt_machine_given;

/* Cores assumed for a GPU that is not in this machine. */
enum { MT_USUAL_CORES = 16 };

/* dev: the run's device, or NULL if given->gpu names another one. cache: if false, measure again and store nothing. */
mt_rc mt_machine_here(mt_machine *out, mt_device *dev, const mt_machine_given *given, bool cache, mt_err *err);

#endif
