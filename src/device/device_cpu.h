/* device_cpu.h - what the CPU's ops need from the CPU device: a way to queue themselves, and its threads. */
#ifndef MT_DEVICE_DEVICE_CPU_H
#define MT_DEVICE_DEVICE_CPU_H

#include "base/pool.h"
#include "device/device.h"

enum { MT_CPU_TASK_BYTES = 320 }; /* room for an op's arguments inside the queue */

/* Runs on the stream's thread.  The pool splits loops over the device's compute threads. */
typedef mt_rc (*mt_cpu_task)(mt_pool *pool, const void *args, mt_err *err);

/* Queue fn with a copy of its arguments.  Waits while the queue is full. */
mt_rc mt_cpu_enqueue(mt_stream *s, mt_cpu_task fn, const void *args, size_t n_bytes, mt_err *err);

/* Scratch of the calling thread, grown on demand, kept until the thread ends; NULL: no memory.
 * Only the CPU's bf16 paths use it: on a GPU scratch is the plan's. */
void *mt_cpu_thread_scratch(size_t bytes);

#endif
