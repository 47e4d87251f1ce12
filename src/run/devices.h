/* devices.h - the devices that train together: one lane for each number the user names.
 *
 * Kernels, and with them bits, are the same on GPUs of one kind only, so others are refused unless the run need not repeat its
 * bits.  All lanes multiply by the kernels that the first device chooses (device/choices.h). */
#ifndef MT_RUN_DEVICES_H
#define MT_RUN_DEVICES_H

#include "ops/ops.h"

enum { MT_MOST_DEVICES = 64 };

typedef struct mt_devices {
    mt_device *first;
    mt_device *more[MT_MOST_DEVICES]; /* [n - 1] that train together with it */
    int numbers[MT_MOST_DEVICES];     /* [n] as the user counts them */
    int n;                            /* 0: before they are open */
    int per_device;                   /* the most lanes that one device has: 2 in 0,0, or with two ranks that share it */
} mt_devices;

typedef struct mt_devices_wanted {
    const char *word;       /* the first: "auto", "cpu", "cuda:1" */
    const int64_t *numbers; /* [n] of all of them; one that is negative: every GPU there is, from the first on */
    size_t n;               /* 0: the first alone */
    int first;              /* the number of the first where none is listed */
    int local_rank;         /* of several ranks on the machine each takes one device in n_local, */
    int n_local;            /* unless the launcher has given them out already; 0 is 1 */
    bool deterministic;     /* all must be of one kind */
    mt_device_options options;
} mt_devices_wanted;

/* After a failure close() releases what was opened. */
mt_rc mt_devices_open(mt_devices *d, const mt_devices_wanted *w, mt_err *err);
void mt_devices_close(mt_devices *d);
/* The smallest memory limit of all of them, for each lane: lanes on one device share it. */
size_t mt_devices_memory(const mt_devices *d, size_t first);

/* Bytes a second from one lane's device to another's, measured; 0: lanes are on the CPU, or some device does not reach another. */
mt_rc mt_devices_peer_rate(const mt_devices *d, double *rate, mt_err *err);

/* What decides which kernels a device uses. */
typedef struct mt_device_kernels {
    mt_device_info info;
    mt_attention_use attention;
} mt_device_kernels;
/* True if the kernels of the two may give different bits; why, in words. */
bool mt_devices_differ(const mt_device_kernels *a, const mt_device_kernels *b, char *why, size_t n);
/* Whether `other`, called GPU `number`, may train together with the first one. */
mt_rc mt_devices_check_kind(mt_device *first, int first_number, mt_device *other, int number, bool deterministic, mt_err *err);

#endif
