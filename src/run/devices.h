/* devices.h - the devices that train together: one lane for each number in the user's list.
 *
 * Kernels, and so bits, are equal only on GPUs of one kind, so mixed kinds are an error unless deterministic is false.  All lanes
 * use the product kernels that the first device chooses (device/choices.h). */
#ifndef MT_RUN_DEVICES_H
#define MT_RUN_DEVICES_H

#include "ops/ops.h"

enum { MT_MOST_DEVICES = 64 };

typedef struct mt_devices {
    mt_device *first;
    mt_device *more[MT_MOST_DEVICES]; /* [n - 1] further devices */
    int numbers[MT_MOST_DEVICES];     /* [n] the user's numbers */
    int n;                            /* 0: before they are open */
    int per_device;                   /* most lanes on one device: 2 for 0,0 or for two ranks that share it */
} mt_devices;

typedef struct mt_devices_wanted {
    const char *word;       /* the first: "auto", "cpu", "cuda:1" */
    const int64_t *numbers; /* [n] numbers of all devices; a negative one means every GPU, from the first on */
    size_t n;               /* 0: only the first */
    int first;              /* the first device's number if there is no list */
    int local_rank;         /* with several ranks on the machine, each takes one device in n_local, */
    int n_local;            /* unless the launcher has already assigned them; 0 means 1 */
    bool deterministic;     /* require one kind */
    mt_device_options options;
} mt_devices_wanted;

/* After a failure close() releases what was opened. */
mt_rc mt_devices_open(mt_devices *d, const mt_devices_wanted *w, mt_err *err);
void mt_devices_close(mt_devices *d);
/* The smallest memory limit of all of them, for each lane: lanes on one device share it. */
size_t mt_devices_memory(const mt_devices *d, size_t first);

/* Measured bytes per second from one lane's device to another's; 0: CPU lanes, or some device cannot reach another. */
mt_rc mt_devices_peer_rate(const mt_devices *d, double *rate, mt_err *err);

/* Properties that decide which kernels a device uses. */
typedef struct mt_device_kernels {
    mt_device_info info;
    mt_attention_use attention;
} mt_device_kernels;
/* True if the kernels of the two may give different bits; why: the reason in words. */
bool mt_devices_differ(const mt_device_kernels *a, const mt_device_kernels *b, char *why, size_t n);
/* Fails if `other`, named GPU `number`, cannot train together with the first. */
mt_rc mt_devices_check_kind(mt_device *first, int first_number, mt_device *other, int number, bool deterministic, mt_err *err);

#endif
