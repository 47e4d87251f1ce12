/* device_cpu.c - the CPU as a device.
 *
 * Streams are threads with queues, so the engine's asynchrony is as real here as on a GPU and can be run under ThreadSanitizer;
 * device memory is ordinary memory with an enforced limit, so streaming a model through 64 MB is an ordinary test.
 *
 * After the first failure a stream continues to take tasks off its queue, but only marks events: waiters are released, nothing
 * computes on broken data, and sync() returns the error.
 *
 * Streams meet in events and nowhere else: each event has its own lock, and looking for a failure takes none.  One lock for all
 * would order the streams, and ThreadSanitizer could not see a missing wait. */
#include "device/device_cpu.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "base/units.h"
#include "device/blas.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { QUEUE_TASKS = 256 };

typedef enum task_kind { TASK_CALL, TASK_RECORD, TASK_WAIT, TASK_QUIT } task_kind;

typedef struct cpu_device {
    mt_device base;
    mt_pool *pool;
    size_t limit;
    int dawdle_us;
    const char *slow_stream; /* borrowed from the caller of open; NULL: all streams dawdle */
    char blas_name[64];
    atomic_bool failed;   /* set after error, under the lock; read without */
    pthread_mutex_t lock; /* guards what follows */
    size_t used, peak;
    mt_err error; /* the first one */
} cpu_device;

typedef struct cpu_event {
    mt_event base;
    cpu_device *dev;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t reached;
    uint64_t recorded; /* records queued so far */
    uint64_t done;     /* records reached */
    int64_t when;      /* timed: nanoseconds of the latest */
    bool timed;
} cpu_event;

typedef struct task {
    task_kind kind;
    mt_cpu_task fn;
    cpu_event *event;
    uint64_t count; /* RECORD: which record this is; WAIT: which to wait for */
    _Alignas(16) unsigned char args[MT_CPU_TASK_BYTES];
} task;

typedef struct cpu_stream {
    mt_stream base;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t not_empty, not_full;
    bool slow;
    size_t head, n;
    task queue[QUEUE_TASKS];
} cpu_stream;

static cpu_device *device_of(const mt_stream *s) { return (cpu_device *)s->dev; }

static void set_failed(cpu_device *d, const mt_err *error)
{
    pthread_mutex_lock(&d->lock);
    if (!d->failed) {
        d->error = *error;
        d->failed = true;
    }
    pthread_mutex_unlock(&d->lock);
}

static mt_rc check_failed(cpu_device *d, mt_err *err)
{
    if (!atomic_load_explicit(&d->failed, memory_order_relaxed)) return MT_OK;
    pthread_mutex_lock(&d->lock);
    if (err) *err = d->error;
    mt_rc rc = d->error.rc;
    pthread_mutex_unlock(&d->lock);
    return rc;
}

/* -- streams --------------------------------------------------------------------------------------- */

static mt_rc device_cpu_push(cpu_stream *s, const task *t, size_t n_args, mt_err *err)
{
    cpu_device *d = device_of(&s->base);
    if (t->kind != TASK_QUIT && mt_fault(MT_FAULT_QUEUE))
        return mt_fail(err, MT_EDEVICE, "the device refused work (injected fault)");
    if (t->kind != TASK_QUIT) MT_TRY(check_failed(d, err));
    pthread_mutex_lock(&s->lock);
    while (s->n == QUEUE_TASKS) pthread_cond_wait(&s->not_full, &s->lock);
    task *slot = &s->queue[(s->head + s->n) % QUEUE_TASKS];
    memcpy(slot, t, offsetof(task, args) + n_args);
    s->n++;
    pthread_cond_signal(&s->not_empty);
    pthread_mutex_unlock(&s->lock);
    return MT_OK;
}

static void reach(cpu_event *e, uint64_t count)
{
    pthread_mutex_lock(&e->lock);
    if (e->done < count) e->done = count;
    if (e->timed) e->when = mt_now_ns();
    pthread_cond_broadcast(&e->reached);
    pthread_mutex_unlock(&e->lock);
}

/* Records are always queued before the waits for them, so even on a failed device this ends: there nothing is computed any
 * more. */
static void wait_until_reached(cpu_event *e, uint64_t count)
{
    pthread_mutex_lock(&e->lock);
    while (e->done < count) pthread_cond_wait(&e->reached, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

/* Before one piece of work in four, or all of a slow stream's. */
static void dawdle(const cpu_device *d, const cpu_stream *s, uint64_t *dice)
{
    if (s->slow) nanosleep(&(struct timespec){ .tv_nsec = (long)d->dawdle_us * 1000 }, NULL);
    if (d->slow_stream) return;
    uint64_t roll = mt_rng_u64(d->dawdle_us, (uint64_t)(uintptr_t)dice, (*dice)++);
    if (roll % 4 == 0) nanosleep(&(struct timespec){ .tv_nsec = (long)(roll / 4 % (uint64_t)d->dawdle_us) * 1000 }, NULL);
}

static void run_task(cpu_device *d, const task *t)
{
    mt_err err = { 0 };
    switch (t->kind) {
    case TASK_CALL:
        if (!check_failed(d, NULL) && t->fn(d->pool, t->args, &err)) set_failed(d, &err);
        break;
    case TASK_RECORD: reach(t->event, t->count); break;
    case TASK_WAIT: wait_until_reached(t->event, t->count); break;
    case TASK_QUIT: break;
    }
}

static void *stream_main(void *arg)
{
    cpu_stream *s = arg;
    cpu_device *d = device_of(&s->base);
    task t;
    uint64_t dice = 0;
    do {
        pthread_mutex_lock(&s->lock);
        while (s->n == 0) pthread_cond_wait(&s->not_empty, &s->lock);
        t = s->queue[s->head];
        pthread_mutex_unlock(&s->lock);
        if (d->dawdle_us && t.kind == TASK_CALL) dawdle(d, s, &dice);
        run_task(d, &t);
        pthread_mutex_lock(&s->lock);
        s->head = (s->head + 1) % QUEUE_TASKS;
        s->n--;
        pthread_cond_signal(&s->not_full);
        pthread_mutex_unlock(&s->lock);
    } while (t.kind != TASK_QUIT);
    return NULL;
}

static mt_rc cpu_stream_create(mt_device *dev, mt_stream **out, const char *name, mt_err *err)
{
    *out = NULL;
    cpu_stream *s = mt_calloc(1, sizeof *s);
    if (!s) return mt_no_memory(err, "the %s stream", name);
    s->base = (mt_stream){ .api = &mt_device_cpu, .dev = dev };
    const char *slow = ((cpu_device *)dev)->slow_stream;
    s->slow = slow && strcmp(slow, name) == 0;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->not_empty, NULL);
    pthread_cond_init(&s->not_full, NULL);
    if (!mt_thread_start(&s->thread, stream_main, s)) {
        pthread_cond_destroy(&s->not_empty);
        pthread_cond_destroy(&s->not_full);
        pthread_mutex_destroy(&s->lock);
        mt_free(s);
        return mt_fail(err, MT_ENOMEM, "the system refused a thread for the %s stream; see ulimit -u", name);
    }
    *out = &s->base;
    return MT_OK;
}

static void cpu_stream_free(mt_stream *stream)
{
    if (!stream) return;
    cpu_stream *s = (cpu_stream *)stream;
    device_cpu_push(s, &(task){ .kind = TASK_QUIT }, 0, NULL);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->not_empty);
    pthread_cond_destroy(&s->not_full);
    pthread_mutex_destroy(&s->lock);
    mt_free(s);
}

mt_rc mt_cpu_enqueue(mt_stream *s, mt_cpu_task fn, const void *args, size_t n_bytes, mt_err *err)
{
    if (n_bytes > MT_CPU_TASK_BYTES) return mt_fail(err, MT_EINTERNAL, "op arguments of %zu bytes", n_bytes);
    task t;
    t.kind = TASK_CALL;
    t.fn = fn;
    t.event = NULL;
    t.count = 0;
    memcpy(t.args, args, n_bytes);
    return device_cpu_push((cpu_stream *)s, &t, n_bytes, err);
}

/* -- events ---------------------------------------------------------------------------------------- */

static mt_rc cpu_event_create(mt_device *dev, mt_event **out, mt_err *err)
{
    *out = NULL;
    cpu_event *e = mt_calloc(1, sizeof *e);
    if (!e) return mt_no_memory(err, "an event");
    e->base.api = &mt_device_cpu;
    e->dev = (cpu_device *)dev;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->reached, NULL);
    *out = &e->base;
    return MT_OK;
}

static void cpu_event_free(mt_event *event)
{
    if (!event) return;
    cpu_event *e = (cpu_event *)event;
    pthread_cond_destroy(&e->reached);
    pthread_mutex_destroy(&e->lock);
    mt_free(e);
}

static mt_rc cpu_timed_event_create(mt_device *dev, mt_event **out, mt_err *err)
{
    MT_TRY(cpu_event_create(dev, out, err));
    ((cpu_event *)*out)->timed = true;
    return MT_OK;
}

static int64_t cpu_event_time(mt_event *event)
{
    cpu_event *e = (cpu_event *)event;
    pthread_mutex_lock(&e->lock);
    int64_t when = e->when;
    pthread_mutex_unlock(&e->lock);
    return when;
}

static int64_t cpu_event_span(mt_event *from, mt_event *to)
{
    int64_t start = cpu_event_time(from), end = cpu_event_time(to);
    return start && end ? end - start : 0;
}

static uint64_t latest_record(cpu_event *e)
{
    pthread_mutex_lock(&e->lock);
    uint64_t count = e->recorded;
    pthread_mutex_unlock(&e->lock);
    return count;
}

/* Counted once it is queued, so that no thread waits for a record that failed. */
static mt_rc cpu_record(mt_stream *s, mt_event *event, mt_err *err)
{
    cpu_event *e = (cpu_event *)event;
    uint64_t count = latest_record(e) + 1;
    MT_TRY(device_cpu_push((cpu_stream *)s, &(task){ .kind = TASK_RECORD, .event = e, .count = count }, 0, err));
    pthread_mutex_lock(&e->lock);
    e->recorded = count;
    pthread_mutex_unlock(&e->lock);
    return MT_OK;
}

static mt_rc cpu_wait(mt_stream *s, mt_event *event, mt_err *err)
{
    cpu_event *e = (cpu_event *)event;
    return device_cpu_push((cpu_stream *)s, &(task){ .kind = TASK_WAIT, .event = e, .count = latest_record(e) }, 0, err);
}

static mt_rc cpu_sync(mt_event *event, mt_err *err)
{
    cpu_event *e = (cpu_event *)event;
    wait_until_reached(e, latest_record(e));
    return check_failed(e->dev, err);
}

/* -- copies ---------------------------------------------------------------------------------------- */

typedef struct copy_args {
    void *dst;
    const void *src; /* NULL: fill */
    size_t bytes;
    int byte;
} copy_args;

static mt_rc run_copy(mt_pool *pool, const void *args, mt_err *err)
{
    (void)pool;
    const copy_args *c = args;
    if (mt_fault(MT_FAULT_COPY))
        return mt_fail(err, MT_EDEVICE, "a copy of %s failed (injected fault)", mt_bytes_text(c->bytes).s);
    if (c->src)
        memcpy(c->dst, c->src, c->bytes);
    else
        memset(c->dst, c->byte, c->bytes);
    return MT_OK;
}

static mt_rc cpu_copy(mt_stream *s, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    (void)dir;
    if (bytes == 0) return MT_OK;
    return mt_cpu_enqueue(s, run_copy, &(copy_args){ dst, src, bytes, 0 }, sizeof(copy_args), err);
}

static mt_rc cpu_copy_peer(mt_stream *s, void *dst, mt_device *to, const void *src, mt_device *from, size_t bytes, mt_err *err)
{
    (void)to, (void)from;
    return cpu_copy(s, dst, src, bytes, MT_COPY_ON_DEVICE, err);
}

static bool cpu_reaches(mt_device *dev, mt_device *other) { return dev->api == other->api; }

static mt_rc cpu_fill(mt_stream *s, void *dst, int byte, size_t bytes, mt_err *err)
{
    if (bytes == 0) return MT_OK;
    return mt_cpu_enqueue(s, run_copy, &(copy_args){ dst, NULL, bytes, byte }, sizeof(copy_args), err);
}

/* -- memory ---------------------------------------------------------------------------------------- */

enum { HEADER_BYTES = 64 }; /* before each block: its size; keeps 64-byte alignment */

/* Every buffer is its own, so that tools which look for stray accesses see them. */
static mt_rc cpu_reserve(mt_device *dev, size_t bytes, mt_err *err)
{
    (void)dev, (void)bytes, (void)err;
    return MT_OK;
}

static mt_rc cpu_alloc(mt_device *dev, void **out, size_t bytes, const char *name, mt_err *err)
{
    cpu_device *d = (cpu_device *)dev;
    *out = NULL;
    size_t whole = mt_round_up(bytes ? bytes : 1, 64);
    pthread_mutex_lock(&d->lock);
    bool fits = whole <= d->limit && d->used <= d->limit - whole && !mt_fault(MT_FAULT_DEVICE);
    size_t used = d->used;
    if (fits) d->used += whole;
    if (d->used > d->peak) d->peak = d->used;
    pthread_mutex_unlock(&d->lock);
    if (!fits)
        return mt_fail(err, MT_ENOMEM, "no device memory for %s (%s): %s of %s are in use", name, mt_bytes_text(bytes).s,
                       mt_bytes_text(used).s, mt_bytes_text(d->limit).s);
    unsigned char *p = aligned_alloc(64, HEADER_BYTES + whole);
    if (!p) {
        pthread_mutex_lock(&d->lock);
        d->used -= whole;
        pthread_mutex_unlock(&d->lock);
        mt_memory_refused(bytes);
        return mt_no_memory(err, "%s", name);
    }
    memcpy(p, &whole, sizeof whole);
    *out = p + HEADER_BYTES;
    return MT_OK;
}

static void cpu_free(mt_device *dev, void *p)
{
    if (!p) return;
    cpu_device *d = (cpu_device *)dev;
    unsigned char *block = (unsigned char *)p - HEADER_BYTES;
    size_t whole;
    memcpy(&whole, block, sizeof whole);
    pthread_mutex_lock(&d->lock);
    d->used -= whole;
    pthread_mutex_unlock(&d->lock);
    free(block);
}

static mt_rc cpu_host_alloc(mt_device *dev, void **out, size_t bytes, const char *name, mt_err *err)
{
    (void)dev;
    size_t whole = mt_round_up(bytes ? bytes : 1, 64);
    *out = mt_fault(MT_FAULT_ALLOC) ? NULL : aligned_alloc(64, whole);
    if (!*out) {
        mt_memory_refused(bytes);
        return mt_no_memory(err, "%s", name);
    }
    memset(*out, 0, whole);
    return MT_OK;
}

static void cpu_host_free(mt_device *dev, void *p)
{
    (void)dev;
    free(p);
}

/* -- scratch of a thread --------------------------------------------------------------------------- */

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
typedef struct scratch {
    size_t bytes;
    _Alignas(64) unsigned char data[];
} scratch;
static void make_scratch_key(void) { pthread_key_create(&scratch_key, free); }

void *mt_cpu_thread_scratch(size_t bytes)
{
    pthread_once(&scratch_once, make_scratch_key);
    scratch *s = pthread_getspecific(scratch_key);
    if (!s || s->bytes < bytes) {
        free(s);
        pthread_setspecific(scratch_key, NULL);
        if (mt_fault(MT_FAULT_ALLOC)) return NULL;
        s = aligned_alloc(64, mt_round_up(sizeof *s + bytes, 64));
        if (!s) return NULL;
        s->bytes = bytes;
        pthread_setspecific(scratch_key, s);
    }
    return s->data;
}

/* -- the device ------------------------------------------------------------------------------------ */

static void cpu_close(mt_device *dev)
{
    if (!dev) return;
    cpu_device *d = (cpu_device *)dev;
    mt_pool_free(d->pool);
    pthread_mutex_destroy(&d->lock);
    mt_free(d);
}

static mt_rc cpu_open(mt_device **out, const mt_device_options *o, mt_err *err)
{
    *out = NULL;
    cpu_device *d = mt_calloc(1, sizeof *d);
    if (!d) return mt_no_memory(err, "the CPU device");
    d->base.api = &mt_device_cpu;
    d->limit = o && o->memory_limit ? o->memory_limit : SIZE_MAX / 2;
    d->dawdle_us = o ? o->dawdle_us : 0;
    d->slow_stream = o ? o->slow_stream : NULL;
    pthread_mutex_init(&d->lock, NULL);
    mt_blas_single_thread();
    mt_blas_name(d->blas_name, sizeof d->blas_name);
    int n_threads = o && o->n_threads > 0 ? o->n_threads : mt_cpu_count();
    mt_rc rc = mt_blas_reserve(n_threads + 1, err); /* the pool's, and the stream's own */
    if (!rc) rc = mt_pool_create(&d->pool, n_threads, err);
    if (rc) {
        cpu_close(&d->base);
        return rc;
    }
    *out = &d->base;
    return MT_OK;
}

static void cpu_info(mt_device *dev, mt_device_info *out)
{
    cpu_device *d = (cpu_device *)dev;
    int n = mt_pool_threads(d->pool);
    pthread_mutex_lock(&d->lock);
    *out = (mt_device_info){ .memory_limit = d->limit, .memory_used = d->used, .memory_peak = d->peak, .n_threads = n };
    pthread_mutex_unlock(&d->lock);
    snprintf(out->name, sizeof out->name, "CPU, %d thread%s, %s", n, n == 1 ? "" : "s", d->blas_name);
}

const mt_device_api mt_device_cpu = {
    .kind = MT_DEVICE_CPU,
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .reserve = cpu_reserve,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .host_alloc = cpu_host_alloc,
    .host_free = cpu_host_free,
    .stream_create = cpu_stream_create,
    .stream_free = cpu_stream_free,
    .event_create = cpu_event_create,
    .event_free = cpu_event_free,
    .timed_event_create = cpu_timed_event_create,
    .event_time = cpu_event_time,
    .event_span = cpu_event_span,
    .record = cpu_record,
    .wait = cpu_wait,
    .sync = cpu_sync,
    .copy = cpu_copy,
    .copy_small = cpu_copy,
    .fill = cpu_fill,
    .copy_peer = cpu_copy_peer,
    .reaches = cpu_reaches,
};
