/* measure.h - the machine a run is on: room that is really free, rates measured once and remembered.
 *
 * Measuring takes about two seconds: a product, copies both ways and at once, device memory, Adam on the host's cores with each
 * form of moments.  The result is kept in $XDG_CACHE_HOME/megatrain (else ~/.cache/megatrain), one small file per device,
 * processor and number of cores; removing it measures again.  What was measured while others used the cores, or of a GPU much
 * slower than its kind, holds for a minute.  A CPU that is the device takes a third of a second.  What is measured decides
 * placements, which change no bit (P1), and never the arithmetic (auto.c). */
#ifndef MT_PLAN_MEASURE_H
#define MT_PLAN_MEASURE_H

#include "device/device.h"
#include "plan/host.h"
#include "plan/machine.h"

/* What flags say instead; 0 or NULL: nothing. */
typedef struct mt_machine_given {
    const char *gpu; /* a name of plan/gpus.h: a machine that is not here */
    size_t ram, device_memory;
    size_t ram_most; /* of what there is, or of `ram`, no more than this */
    double link;     /* bytes a second */
    int cores;
} mt_machine_given;

/* Cores that are taken for granted beside a GPU that is not here. */
enum { MT_USUAL_CORES = 16 };

/* dev: the device a run would be on, or NULL when given->gpu names another.  cache: false measures anew and keeps nothing. */
mt_rc mt_machine_here(mt_machine *out, mt_device *dev, const mt_machine_given *given, bool cache, mt_err *err);

#endif
