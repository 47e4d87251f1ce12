/* slots.h - copies between a device and host memory that is not pinned: a mapped file, or memory the system would not pin.
 *
 * Given such memory, CUDA makes its caller wait until the copy is done, and every stream with it.  So it goes in pieces through
 * two slots that are pinned, beside the stream it is queued on: while the device copies one slot, threads of the host fill (or
 * empty) the other, in the order of a separate stream, the mover.  The caller waits for no copy, and on its stream the copy is
 * one among others.
 *
 *     create   when a stream first meets such memory
 *     waited   the stream has waited for others, or written host memory: memory that is copied in next may depend on them
 *     copy     in place of the device's own
 *     free     when the stream's work is done
 *
 * Written over the device's contract, so that the CPU device can test it; the parts that only CUDA has are in mt_slots_how. */
#ifndef MT_DEVICE_SLOTS_H
#define MT_DEVICE_SLOTS_H

#include "device/device.h"

typedef struct mt_slots mt_slots;

typedef struct mt_slots_how {
    mt_rc (*alloc)(mt_device *dev, void **out, size_t bytes, mt_err *err); /* pinned host memory */
    void (*free)(mt_device *dev, void *p);                                 /* accepts NULL */
    /* fn(arg) when the stream gets there; it queues nothing. */
    mt_rc (*call)(mt_stream *s, void (*fn)(void *arg), void *arg, mt_err *err);
} mt_slots_how;

/* bytes: of both slots together. */
mt_rc mt_slots_create(mt_slots **out, mt_device *dev, const mt_slots_how *how, size_t bytes, mt_err *err);
void mt_slots_free(mt_slots *s); /* accepts NULL */

void mt_slots_waited(mt_slots *s); /* accepts NULL */
mt_rc mt_slots_copy(mt_slots *s, mt_stream *on, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err);

#endif
