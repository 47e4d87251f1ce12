/* device_cuda.cu - the CUDA device: three kinds of stream, memory by name, pinned host memory, errors that say what to do.
 *
 * Memory: handed out first fit from one arena, so that promised memory is there and no other process can take it.  The arena has
 * the limit's size from open on, if a limit is given, else a plan's, as long as its buffers exist.  Other allocations use
 * cudaMalloc, which takes whole pages of 2 MiB.  Lists of blocks keep the account.
 *
 * Host memory: whole huge pages, spread over the machine's nodes, touched by several threads at once (the kernel zeroes them
 * meanwhile), then pinned in place.  Copies of unpinned memory (the system refused, or it is a mapped file) go through small
 * pinned slots (slots.h): slower, but in the stream's order like any other.  One notice reports a refusal.
 *
 * A CUDA error in queued work shows up in some later call.  The call that sees it stores it in the device (`error`), and every
 * call from then on returns that first one. */
#include "device/device_cuda.cuh"

extern "C" {
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/numa.h"
#include "base/pool.h"
#include "base/units.h"
#include "device/choices.h"
#include "device/slots.h"
#include "device/tuned.h"
}

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Left to the driver, the library's workspaces and kernels' local memory when no limit is given. */
static const size_t RESERVE_BYTES = (size_t)768 << 20;
static const size_t ALIGN_BYTES = MT_DEVICE_ALIGN;
static const size_t HUGE_BYTES = (size_t)2 << 20;

/* One piece of memory handed out; the list is in ascending address order within the arena. */
typedef struct block {
    struct block *next;
    char *p;
    size_t bytes;
    bool pinned; /* host blocks */
} block;

typedef struct cuda_device {
    mt_cuda_device ops; /* first: the ops' view */
    char name[128];
    size_t limit;
    bool limit_given;     /* the arena is the limit, and stays */
    pthread_mutex_t lock; /* guards what follows */
    char *arena;          /* or NULL */
    size_t arena_bytes;
    size_t used, peak;
    block *blocks;     /* of the arena */
    block *own_blocks; /* each its own allocation */
    block *host_blocks;
    block *spare_blocks; /* unused host memory, still pinned */
    bool keep_host_memory;
    bool pin_nothing;   /* as if the system refused; for tests */
    bool told_unpinned; /* that some host block is not pinned */
    bool failed;
    mt_err error;     /* the first one */
    cudaEvent_t zero; /* timed events count from here; made with the first of them */
    int64_t zero_ns;  /* when that was, on CLOCK_MONOTONIC */
} cuda_device;

typedef struct cuda_event {
    mt_event base;
    cuda_device *dev;
    cudaEvent_t raw;
    bool recorded; /* timed ones: ever */
} cuda_event;

extern "C" const mt_device_api mt_device_cuda;

/* -- errors ---------------------------------------------------------------------------------------- */

static void keep_error(cuda_device *d, const mt_err *error)
{
    pthread_mutex_lock(&d->lock);
    if (!d->failed) {
        d->failed = true;
        d->error = *error;
    }
    pthread_mutex_unlock(&d->lock);
}

mt_rc mt__cuda_ready(mt_device *dev, mt_err *err)
{
    cuda_device *d = (cuda_device *)dev;
    pthread_mutex_lock(&d->lock);
    mt_rc rc = d->failed ? d->error.rc : MT_OK;
    if (rc && err) *err = d->error;
    pthread_mutex_unlock(&d->lock);
    if (!rc) cudaSetDevice(d->ops.index); /* the calling thread may be new */
    return rc;
}

static const char *what_to_do(cudaError_t status)
{
    if (status == cudaErrorIllegalAddress || status == cudaErrorLaunchFailure)
        return "; if it happens again, run the same under compute-sanitizer";
    if (status == cudaErrorECCUncorrectable || status == cudaErrorHardwareStackError || status == cudaErrorNvlinkUncorrectable ||
        status == cudaErrorUnknown)
        return "; the hardware or its driver is at fault: the kernel's log has more (dmesg | grep Xid); reset or change the GPU "
               "and resume from the last checkpoint";
    if (status == cudaErrorMemoryAllocation)
        return "; leave the GPU more room: lower --device-memory, or end what else runs there (nvidia-smi)";
    return "";
}

mt_rc mt__cuda_check(mt_device *dev, cudaError_t status, const char *what, mt_err *err)
{
    if (status == cudaSuccess) return MT_OK;
    mt_err error;
    mt_fail(&error, MT_EDEVICE, "%s: the GPU reports \"%s\" (%s)%s", what, cudaGetErrorString(status), cudaGetErrorName(status),
            what_to_do(status));
    cudaGetLastError();
    keep_error((cuda_device *)dev, &error);
    return mt__cuda_ready(dev, err);
}

mt_rc mt__cuda_launched(mt_stream *s, const char *what, mt_err *err)
{
    return mt__cuda_check(s->dev, cudaGetLastError(), what, err);
}

/* Ready, and no test has armed a fault here. */
static mt_rc may_queue(mt_device *dev, mt_err *err)
{
    if (mt_fault(MT_FAULT_QUEUE)) return mt_fail(err, MT_EDEVICE, "the device refused work (injected fault)");
    return mt__cuda_ready(dev, err);
}

/* -- streams and events ---------------------------------------------------------------------------- */

static mt_rc cuda_stream_create(mt_device *dev, mt_stream **out, const char *name, mt_err *err)
{
    *out = NULL;
    MT_TRY(mt__cuda_ready(dev, err));
    mt_cuda_stream *s = (mt_cuda_stream *)mt_calloc(1, sizeof *s);
    if (!s) return mt_no_memory(err, "the %s stream", name);
    s->base.api = &mt_device_cuda;
    s->base.dev = dev;
    mt_rc rc = mt__cuda_check(dev, cudaStreamCreateWithFlags(&s->raw, cudaStreamNonBlocking), name, err);
    if (rc) {
        mt_free(s);
        return rc;
    }
    *out = &s->base;
    return MT_OK;
}

/* Takes the device's workspace, or one more. */
static mt_rc take_workspace(mt_cuda_device *d, void **out, mt_err *err)
{
    *out = d->workspace;
    d->workspace = NULL;
    if (*out || cudaMalloc(out, MT_DEVICE_WORKSPACE_BYTES) == cudaSuccess) return MT_OK;
    cudaGetLastError();
    *out = NULL;
    return mt_fail(err, MT_ENOMEM,
                   "no device memory for the workspace of products (%s); leave the GPU that much more room (--device-memory)",
                   mt_bytes_text(MT_DEVICE_WORKSPACE_BYTES).s);
}

static void give_workspace(mt_cuda_device *d, void *workspace)
{
    if (workspace && !d->workspace)
        d->workspace = workspace;
    else
        cudaFree(workspace);
}

mt_rc mt__cuda_workspace(mt_stream *stream, void **out, mt_err *err)
{
    mt_cuda_stream *s = (mt_cuda_stream *)stream;
    if (!s->workspace) MT_TRY(take_workspace(mt_cuda_device_of(stream), &s->workspace, err));
    *out = s->workspace;
    return MT_OK;
}

static void cuda_stream_free(mt_stream *stream)
{
    if (!stream) return;
    mt_cuda_stream *s = (mt_cuda_stream *)stream;
    cudaSetDevice(mt_cuda_device_of(stream)->index);
    mt__cuda_check(stream->dev, cudaStreamSynchronize(s->raw), "finishing a stream", NULL);
    mt_slots_free(s->slots);
    cudaStreamDestroy(s->raw);
    give_workspace(mt_cuda_device_of(stream), s->workspace);
    mt_free(s);
}

static mt_rc make_event(mt_device *dev, mt_event **out, unsigned flags, mt_err *err)
{
    *out = NULL;
    MT_TRY(mt__cuda_ready(dev, err));
    cuda_event *e = (cuda_event *)mt_calloc(1, sizeof *e);
    if (!e) return mt_no_memory(err, "an event");
    e->base.api = &mt_device_cuda;
    e->dev = (cuda_device *)dev;
    mt_rc rc = mt__cuda_check(dev, cudaEventCreateWithFlags(&e->raw, flags), "an event", err);
    if (rc) {
        mt_free(e);
        return rc;
    }
    *out = &e->base;
    return MT_OK;
}

static mt_rc cuda_event_create(mt_device *dev, mt_event **out, mt_err *err)
{
    return make_event(dev, out, cudaEventDisableTiming, err);
}

/* The moment the GPU's clock is read against ours: anew for every trace, whose events are made together, since the clocks drift apart and the
 * time between two events comes as a float of milliseconds. */
static mt_rc set_zero(cuda_device *d, mt_err *err)
{
    const int64_t lasts_ns = 5000000000;
    mt_device *dev = &d->ops.base;
    if (d->zero && mt_now_ns() - d->zero_ns < lasts_ns) return MT_OK;
    MT_TRY(mt__cuda_check(dev, cudaDeviceSynchronize(), "tracing", err));
    if (!d->zero) MT_TRY(mt__cuda_check(dev, cudaEventCreateWithFlags(&d->zero, cudaEventDefault), "tracing", err));
    MT_TRY(mt__cuda_check(dev, cudaEventRecord(d->zero, 0), "tracing", err));
    MT_TRY(mt__cuda_check(dev, cudaEventSynchronize(d->zero), "tracing", err));
    d->zero_ns = mt_now_ns();
    return MT_OK;
}

static mt_rc cuda_timed_event_create(mt_device *dev, mt_event **out, mt_err *err)
{
    *out = NULL;
    MT_TRY(mt__cuda_ready(dev, err));
    MT_TRY(set_zero((cuda_device *)dev, err));
    return make_event(dev, out, cudaEventDefault, err);
}

static int64_t cuda_event_time(mt_event *event)
{
    cuda_event *e = (cuda_event *)event;
    float ms = 0;
    if (!e->recorded || cudaEventElapsedTime(&ms, e->dev->zero, e->raw) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return e->dev->zero_ns + (int64_t)(1e6 * (double)ms);
}

static int64_t cuda_event_span(mt_event *from, mt_event *to)
{
    const cuda_event *a = (const cuda_event *)from, *b = (const cuda_event *)to;
    float ms = 0;
    if (!a->recorded || !b->recorded || cudaEventElapsedTime(&ms, a->raw, b->raw) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return (int64_t)(1e6 * (double)ms);
}

static void cuda_event_free(mt_event *event)
{
    if (!event) return;
    cuda_event *e = (cuda_event *)event;
    cudaSetDevice(e->dev->ops.index);
    cudaEventDestroy(e->raw);
    mt_free(e);
}

static mt_rc cuda_record(mt_stream *s, mt_event *e, mt_err *err)
{
    MT_TRY(may_queue(s->dev, err));
    ((cuda_event *)e)->recorded = true;
    return mt__cuda_check(s->dev, cudaEventRecord(((cuda_event *)e)->raw, mt_cuda_raw(s)), "recording an event", err);
}

static mt_rc cuda_wait(mt_stream *s, mt_event *e, mt_err *err)
{
    MT_TRY(may_queue(s->dev, err));
    mt_slots_waited(((mt_cuda_stream *)s)->slots);
    return mt__cuda_check(s->dev, cudaStreamWaitEvent(mt_cuda_raw(s), ((cuda_event *)e)->raw, 0), "waiting for an event", err);
}

/* Poll for events that are nearly there (a sleep takes longer than requested), then sleep: cudaEventSynchronize would keep a core
 * busy. */
static cudaError_t wait_until_reached(cudaEvent_t event)
{
    enum { LOOKS = 32 };
    const struct timespec nap = { 0, 20000 };
    cudaError_t status;
    for (int i = 0; (status = cudaEventQuery(event)) == cudaErrorNotReady; i++) {
        cudaGetLastError(); /* not an error */
        if (i >= LOOKS) nanosleep(&nap, NULL);
    }
    return status;
}

static mt_rc cuda_sync(mt_event *event, mt_err *err)
{
    cuda_event *e = (cuda_event *)event;
    mt_device *dev = &e->dev->ops.base;
    MT_TRY(mt__cuda_ready(dev, err));
    MT_TRY(mt__cuda_check(dev, wait_until_reached(e->raw), "work on the GPU", err));
    return mt__cuda_ready(dev, err);
}

/* -- copies ---------------------------------------------------------------------------------------- */

/* True if the device can copy it while the host continues: pinned memory, but not mapped files or memory that the system refused
 * to pin.  *as_seen: its address for kernels; NULL: none. */
static bool is_pinned(const void *p, void **as_seen)
{
    struct cudaPointerAttributes found;
    *as_seen = NULL;
    if (cudaPointerGetAttributes(&found, p) == cudaSuccess) {
        *as_seen = found.devicePointer;
        return found.type != cudaMemoryTypeUnregistered;
    }
    cudaGetLastError();
    return false;
}

__global__ void copy_kernel(unsigned char *dst, const unsigned char *src, size_t n_wide, size_t bytes)
{
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x, step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = first; i < n_wide; i += step) ((uint4 *)dst)[i] = ((const uint4 *)src)[i];
    for (size_t i = n_wide * sizeof(uint4) + first; i < bytes; i += step) dst[i] = src[i];
}

/* Both are memory as kernels see it. */
static mt_rc copy_by_kernel(mt_stream *s, void *dst, const void *src, size_t bytes, mt_err *err)
{
    enum { THREADS = 256, MOST_BLOCKS = 32 }; /* 128 KiB under way at once keep the link busy */
    bool wide = ((uintptr_t)dst | (uintptr_t)src) % sizeof(uint4) == 0;
    size_t n_wide = wide ? bytes / sizeof(uint4) : 0, n = wide ? n_wide + 1 : bytes, blocks = (n + THREADS - 1) / THREADS;
    copy_kernel<<<(unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), THREADS, 0, mt_cuda_raw(s)>>>(
        (unsigned char *)dst, (const unsigned char *)src, n_wide, bytes);
    return mt__cuda_launched(s, "a small copy", err);
}

static mt_rc refuse_copy(mt_stream *s, size_t bytes, mt_err *err)
{
    mt_err error;
    mt_fail(&error, MT_EDEVICE, "a copy of %s failed (injected fault)", mt_bytes_text(bytes).s);
    keep_error((cuda_device *)s->dev, &error);
    return mt__cuda_ready(s->dev, err);
}

static mt_rc queue_copy(mt_stream *s, void *dst, const void *src, size_t bytes, mt_copy_dir dir, bool small, mt_err *err)
{
    static const enum cudaMemcpyKind kinds[] = { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
    void *seen = NULL; /* the host's side of it */
    if (bytes == 0) return MT_OK;
    MT_TRY(may_queue(s->dev, err));
    if (mt_fault(MT_FAULT_COPY)) return refuse_copy(s, bytes, err);
    if (dir != MT_COPY_ON_DEVICE && !is_pinned(dir == MT_COPY_IN ? src : dst, &seen))
        return mt__cuda_copy_by_slots(s, dst, src, bytes, dir, err);
    if (dir == MT_COPY_OUT) mt_slots_waited(((mt_cuda_stream *)s)->slots);
    if (small && seen) return copy_by_kernel(s, dir == MT_COPY_OUT ? seen : dst, dir == MT_COPY_IN ? seen : src, bytes, err);
    return mt__cuda_check(s->dev, cudaMemcpyAsync(dst, src, bytes, kinds[dir], mt_cuda_raw(s)), "a copy", err);
}

static mt_rc cuda_copy(mt_stream *s, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    return queue_copy(s, dst, src, bytes, dir, false, err);
}

static mt_rc cuda_copy_small(mt_stream *s, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    return queue_copy(s, dst, src, bytes, dir, true, err);
}

/* Two lanes on one GPU share its memory. */
static mt_rc cuda_copy_peer(mt_stream *s, void *dst, mt_device *to, const void *src, mt_device *from, size_t bytes, mt_err *err)
{
    const int here = ((mt_cuda_device *)from)->index, there = ((mt_cuda_device *)to)->index;
    if (here == there) return queue_copy(s, dst, src, bytes, MT_COPY_ON_DEVICE, false, err);
    if (bytes == 0) return MT_OK;
    MT_TRY(may_queue(s->dev, err));
    if (mt_fault(MT_FAULT_COPY)) return refuse_copy(s, bytes, err);
    return mt__cuda_check(s->dev, cudaMemcpyPeerAsync(dst, there, src, here, bytes, mt_cuda_raw(s)), "a copy between GPUs", err);
}

/* Both ways are opened once; without, the driver copies through host memory. */
static bool open_way(int from, int to)
{
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess || !can || cudaSetDevice(from) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
    cudaGetLastError();
    return status == cudaSuccess || status == cudaErrorPeerAccessAlreadyEnabled;
}

static bool cuda_reaches(mt_device *dev, mt_device *other)
{
    if (dev->api != other->api) return false;
    const int here = ((mt_cuda_device *)dev)->index, there = ((mt_cuda_device *)other)->index;
    if (here == there) return true;
    const bool yes = open_way(here, there) && open_way(there, here);
    cudaSetDevice(here);
    return yes;
}

static mt_rc cuda_fill(mt_stream *s, void *dst, int byte, size_t bytes, mt_err *err)
{
    if (bytes == 0) return MT_OK;
    MT_TRY(may_queue(s->dev, err));
    return mt__cuda_check(s->dev, cudaMemsetAsync(dst, byte, bytes, mt_cuda_raw(s)), "a fill", err);
}

/* -- device memory --------------------------------------------------------------------------------- */

/* The first gap of the arena that holds `bytes`: the link after which the new block goes, and its address. */
static block **first_gap(cuda_device *d, size_t bytes, char **at)
{
    char *from = d->arena;
    block **link = &d->blocks;
    for (; *link; link = &(*link)->next) {
        if ((size_t)((*link)->p - from) >= bytes) break;
        from = (*link)->p + (*link)->bytes;
    }
    if (!*link && (size_t)(d->arena + d->arena_bytes - from) < bytes) return NULL;
    *at = from;
    return link;
}

/* Under the lock. */
static mt_rc take(cuda_device *d, size_t bytes, block *b)
{
    b->bytes = bytes;
    if (bytes > d->limit || d->used > d->limit - bytes) return MT_ENOMEM;
    block **link = d->arena ? first_gap(d, bytes, &b->p) : NULL;
    if (!link) {
        if (d->limit_given || cudaMalloc((void **)&b->p, bytes) != cudaSuccess) {
            cudaGetLastError();
            return MT_ENOMEM;
        }
        link = &d->own_blocks;
    }
    b->next = *link;
    *link = b;
    d->used += bytes;
    if (d->used > d->peak) d->peak = d->used;
    return MT_OK;
}

static mt_rc cuda_alloc(mt_device *dev, void **out, size_t bytes, const char *name, mt_err *err)
{
    cuda_device *d = (cuda_device *)dev;
    *out = NULL;
    MT_TRY(mt__cuda_ready(dev, err));
    block *b = (block *)mt_calloc(1, sizeof *b);
    if (!b) return mt_no_memory(err, "the bookkeeping of %s", name);
    pthread_mutex_lock(&d->lock);
    size_t used = d->used;
    mt_rc rc = mt_fault(MT_FAULT_DEVICE) ? MT_ENOMEM : take(d, mt_round_up(bytes ? bytes : 1, ALIGN_BYTES), b);
    pthread_mutex_unlock(&d->lock);
    if (rc) {
        mt_free(b);
        bool promised = !d->limit_given && used <= d->limit && bytes <= d->limit - used; /* it was free when this run began */
        return mt_fail(err, MT_ENOMEM, "no device memory for %s (%s): %s of %s are in use%s", name, mt_bytes_text(bytes).s,
                       mt_bytes_text(used).s, mt_bytes_text(d->limit).s,
                       promised ? ", and something else has taken the rest; end it (nvidia-smi shows it) or lower --device-memory"
                                : "");
    }
    *out = b->p;
    return MT_OK;
}

static block *unlink_block(block **link, const void *p)
{
    while (*link && (*link)->p != p) link = &(*link)->next;
    block *b = *link;
    if (b) *link = b->next;
    return b;
}

/* Under the lock, no block in it. */
static void drop_arena(cuda_device *d)
{
    cudaFree(d->arena);
    d->arena = NULL;
    d->arena_bytes = 0;
}

static void cuda_free(mt_device *dev, void *p)
{
    if (!p) return;
    cuda_device *d = (cuda_device *)dev;
    cudaSetDevice(d->ops.index);
    pthread_mutex_lock(&d->lock);
    block *b = unlink_block(&d->blocks, p), *own = b ? NULL : unlink_block(&d->own_blocks, p);
    if (b || own) d->used -= (b ? b : own)->bytes;
    if (own) cudaFree(p);
    if (b && !d->blocks && !d->limit_given) drop_arena(d);
    pthread_mutex_unlock(&d->lock);
    mt_free(b);
    mt_free(own);
}

/* A second plan beside one that lives gets no arena: its buffers are their own. */
static mt_rc cuda_reserve(mt_device *dev, size_t bytes, mt_err *err)
{
    cuda_device *d = (cuda_device *)dev;
    MT_TRY(mt__cuda_ready(dev, err));
    pthread_mutex_lock(&d->lock);
    if (!d->limit_given && !d->blocks && bytes && d->used <= d->limit && bytes <= d->limit - d->used) {
        drop_arena(d);
        if (cudaMalloc((void **)&d->arena, bytes) == cudaSuccess)
            d->arena_bytes = bytes;
        else
            d->arena = NULL;
        cudaGetLastError();
    }
    pthread_mutex_unlock(&d->lock);
    return MT_OK;
}

/* -- host memory ----------------------------------------------------------------------------------- */

typedef struct touching {
    volatile char *p;
    size_t bytes;
} touching;

static const size_t TOUCH_BYTES = (size_t)64 << 20; /* a thread takes at a time */
enum { TOUCH_THREADS = 16 }; /* of a buffer; several may be made at once, and they touch as fast as the system zeroes */

static void touch_piece(void *arg, int64_t i)
{
    const touching *t = (const touching *)arg;
    size_t from = (size_t)i * TOUCH_BYTES, to = from + TOUCH_BYTES < t->bytes ? from + TOUCH_BYTES : t->bytes;
    for (size_t at = from; at < to; at += 4096) t->p[at] = 0;
}

static void clear_piece(void *arg, int64_t i)
{
    const touching *t = (const touching *)arg;
    size_t from = (size_t)i * TOUCH_BYTES, to = from + TOUCH_BYTES < t->bytes ? from + TOUCH_BYTES : t->bytes;
    memset((char *)t->p + from, 0, to - from);
}

/* Page faults are where the time of a large allocation goes, and they run in parallel. */
static mt_rc in_pieces(mt_pool_fn fn, char *p, size_t bytes, mt_err *err)
{
    touching t = { p, bytes };
    int64_t pieces = (int64_t)((bytes + TOUCH_BYTES - 1) / TOUCH_BYTES);
    mt_pool *pool;
    MT_TRY(mt_pool_create(&pool, (int)mt_min_i64(mt_min_i64(mt_cpu_count(), TOUCH_THREADS), pieces), err));
    mt_pool_for(pool, pieces, fn, &t);
    mt_pool_free(pool);
    return MT_OK;
}

static void release_host(block *b)
{
    if (b->pinned) cudaHostUnregister(b->p);
    munmap(b->p, b->bytes);
    mt_free(b);
}

static void release_all(block *b)
{
    while (b) {
        block *next = b->next;
        release_host(b);
        b = next;
    }
}

static void pin(cuda_device *d, block *b, const char *name)
{
    cudaError_t status = d->pin_nothing ? cudaErrorNotPermitted : cudaHostRegister(b->p, b->bytes, cudaHostRegisterPortable);
    b->pinned = status == cudaSuccess;
    if (b->pinned) return;
    cudaGetLastError();
    pthread_mutex_lock(&d->lock);
    bool first = !d->told_unpinned;
    d->told_unpinned = true;
    pthread_mutex_unlock(&d->lock);
    if (first)
        mt_warn("the system would not pin host memory for %s (%s): %s.  Copies go through small pinned buffers, slower; raise "
                "the limit on "
                "locked memory (ulimit -l)",
                name, mt_bytes_text(b->bytes).s, cudaGetErrorString(status));
}

/* The smallest spare block that holds `bytes` and is not twice as large; NULL: none. */
static block *take_spare(cuda_device *d, size_t bytes)
{
    block **best = NULL;
    pthread_mutex_lock(&d->lock);
    for (block **link = &d->spare_blocks; *link; link = &(*link)->next)
        if ((*link)->bytes >= bytes && (*link)->bytes / 2 <= bytes && (!best || (*link)->bytes < (*best)->bytes)) best = link;
    block *b = best ? *best : NULL;
    if (b) *best = b->next;
    pthread_mutex_unlock(&d->lock);
    return b;
}

/* Spare blocks make room when the machine has too little left for a new one. */
static bool has_spare(cuda_device *d)
{
    pthread_mutex_lock(&d->lock);
    bool yes = d->spare_blocks != NULL;
    pthread_mutex_unlock(&d->lock);
    return yes;
}

static void make_room(cuda_device *d, size_t bytes)
{
    const size_t margin = (size_t)2 << 30;
    while (has_spare(d) && (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) < bytes + margin) {
        pthread_mutex_lock(&d->lock);
        block *b = d->spare_blocks;
        if (b) d->spare_blocks = b->next;
        pthread_mutex_unlock(&d->lock);
        if (b) release_host(b);
    }
}

static mt_rc new_host_block(cuda_device *d, size_t bytes, const char *name, block **out, mt_err *err)
{
    block *b = (block *)mt_calloc(1, sizeof *b);
    if (!b) return mt_no_memory(err, "the bookkeeping of %s", name);
    b->bytes = bytes;
    b->p = (char *)mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->p == MAP_FAILED) {
        mt_free(b);
        mt_memory_refused(bytes);
        return mt_no_memory(err, "%s", name);
    }
    madvise(b->p, b->bytes, MADV_HUGEPAGE); /* a wish: without it the same, slower */
    mt_numa_spread(b->p, b->bytes);         /* state is larger than a node's share, and Adam wants the bandwidth of all */
    mt_rc rc = in_pieces(touch_piece, b->p, b->bytes, err);
    if (rc) {
        release_host(b);
        return rc;
    }
    pin(d, b, name);
    *out = b;
    return MT_OK;
}

static mt_rc cuda_host_alloc(mt_device *dev, void **out, size_t bytes, const char *name, mt_err *err)
{
    cuda_device *d = (cuda_device *)dev;
    *out = NULL;
    MT_TRY(mt__cuda_ready(dev, err));
    bytes = mt_round_up(bytes ? bytes : 1, bytes >= HUGE_BYTES ? HUGE_BYTES : 4096);
    block *b = take_spare(d, bytes);
    mt_rc rc = b ? in_pieces(clear_piece, b->p, b->bytes, err) : MT_OK;
    if (rc) {
        release_host(b);
        return rc;
    }
    if (!b) {
        make_room(d, bytes);
        MT_TRY(new_host_block(d, bytes, name, &b, err));
    }
    pthread_mutex_lock(&d->lock);
    b->next = d->host_blocks;
    d->host_blocks = b;
    pthread_mutex_unlock(&d->lock);
    *out = b->p;
    return MT_OK;
}

static void cuda_host_free(mt_device *dev, void *p)
{
    if (!p) return;
    cuda_device *d = (cuda_device *)dev;
    pthread_mutex_lock(&d->lock);
    block *b = unlink_block(&d->host_blocks, p);
    bool keep = b && d->keep_host_memory;
    if (keep) {
        b->next = d->spare_blocks;
        d->spare_blocks = b;
    }
    pthread_mutex_unlock(&d->lock);
    cudaSetDevice(d->ops.index);
    if (b && !keep) release_host(b);
}

/* -- the device ------------------------------------------------------------------------------------ */

__global__ void probe_kernel(void) {}

/* MT_ENOENT: there is none to use; anything else: there may be one, and something is wrong with it. */
static mt_rc explain_no_device(cudaError_t status, mt_err *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int driver = 0, runtime = 0;
    cudaGetLastError();
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (status == cudaErrorInsufficientDriver && driver > 0)
        return mt_fail(err, MT_EUNSUPPORTED, "the NVIDIA driver knows CUDA %d.%d and this program needs %d.%d; update the driver",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (driver == 0) return mt_fail(err, MT_ENOENT, "no NVIDIA driver is installed here; install one, or use --device cpu");
    if (visible && (!*visible || *visible == '-'))
        return mt_fail(err, MT_ENOENT, "CUDA_VISIBLE_DEVICES is \"%s\", which hides every GPU; unset it, or use --device cpu",
                       visible);
    bool none = status == cudaSuccess || status == cudaErrorNoDevice;
    if (none && visible)
        return mt_fail(
            err, MT_EDEVICE,
            "CUDA_VISIBLE_DEVICES is \"%s\", which names no GPU of this machine; nvidia-smi lists them; correct or unset it",
            visible);
    return mt_fail(err, none ? MT_ENOENT : MT_EDEVICE,
                   "no NVIDIA GPU can be used here (%s); nvidia-smi shows what the driver sees; --device cpu runs without one",
                   status == cudaSuccess ? "none found" : cudaGetErrorString(status));
}

/* Not "none": `auto` would silently continue on the CPU, and the user would wait. */
static mt_rc explain_full(int index, mt_err *err)
{
    cudaGetLastError();
    return mt_fail(err, MT_ENOMEM,
                   "cuda:%d has no memory left to start in; end what else runs there (nvidia-smi shows it), or use --device cpu",
                   index);
}

/* A stream takes 1,021 pieces of work by default, of any size, and the call that queues one more waits for the first, which
 * delays the work for all other streams.  The driver reads this when it starts, so only the first device sets it. */
static void lengthen_queues(void) { setenv("CUDA_SCALE_LAUNCH_QUEUES", "4x", 0); }

static mt_rc check_device(cuda_device *d, mt_err *err)
{
    lengthen_queues();
    int count = 0;
    struct cudaDeviceProp prop;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) return explain_no_device(status, err);
    if (d->ops.index >= count)
        return mt_fail(err, MT_EINVAL, "--device cuda:%d: this machine has %d GPU%s, counted from 0", d->ops.index, count,
                       count == 1 ? "" : "s");
    status = cudaSetDevice(d->ops.index);
    if (status == cudaSuccess) status = cudaGetDeviceProperties(&prop, d->ops.index);
    if (status == cudaErrorMemoryAllocation) return explain_full(d->ops.index, err);
    if (status != cudaSuccess) return explain_no_device(status, err);
    snprintf(d->name, sizeof d->name, "%.127s", prop.name);
    d->ops.n_sms = prop.multiProcessorCount;
    d->ops.shared_bytes = prop.sharedMemPerBlockOptin;
    if (prop.major < 8)
        return mt_fail(err, MT_EUNSUPPORTED, "%s has compute capability %d.%d; bf16 needs 8.0 (A100, RTX 30) or newer", prop.name,
                       prop.major, prop.minor);
    probe_kernel<<<1, 1>>>();
    status = cudaGetLastError();
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorUnsupportedPtxVersion)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "this program has no code for %s (compute capability %d.%d); build it with -DMT_CUDA_ARCH=%d%d, or all",
                       prop.name, prop.major, prop.minor, prop.major, prop.minor);
    if (status == cudaErrorMemoryAllocation) return explain_full(d->ops.index, err);
    if (status != cudaSuccess) return mt_fail(err, MT_EDEVICE, "%s does not run: %s", prop.name, cudaGetErrorString(status));
    /* What the GPU has and the code uses: code for older ones runs, too, and lacks these kernels. */
    struct cudaFuncAttributes code;
    MT_TRY(mt__cuda_check(&d->ops.base, cudaFuncGetAttributes(&code, probe_kernel), "looking at the kernels", err));
    d->ops.hopper = prop.major == 9 && code.ptxVersion >= 90;
    for (size_t i = 0; i < MT_COUNT(d->ops.fours); i++) d->ops.fours[i] = -1;
    d->ops.clusters = prop.major >= 9 && code.ptxVersion >= 90;
    if (code.ptxVersion < 90 && prop.major >= 9)
        mt_warn("this program was built for older GPUs than %s; a build with -DMT_CUDA_ARCH=%d%d, or all, is faster here",
                prop.name, prop.major, prop.minor);
    return MT_OK;
}

static mt_rc take_memory(cuda_device *d, size_t limit, mt_err *err)
{
    size_t available = 0, total = 0;
    MT_TRY(mt__cuda_check(&d->ops.base, cudaMemGetInfo(&available, &total), "asking for free memory", err));
    if (!limit && available <= RESERVE_BYTES) return explain_full(d->ops.index, err);
    if (!limit) {
        d->limit = available - RESERVE_BYTES;
        return MT_OK;
    }
    d->limit_given = true;
    d->limit = d->arena_bytes = limit / ALIGN_BYTES * ALIGN_BYTES;
    if (cudaMalloc((void **)&d->arena, d->limit) == cudaSuccess) return MT_OK;
    cudaGetLastError();
    d->arena = NULL;
    return mt_fail(err, MT_ENOMEM,
                   "%s has %s of %s free and this run may use %s; end what else runs there (nvidia-smi) or lower --device-memory",
                   d->name, mt_bytes_text(available).s, mt_bytes_text(total).s, mt_bytes_text(limit).s);
}

static void free_blocks(block *b, bool own)
{
    while (b) {
        block *next = b->next;
        if (own) cudaFree(b->p);
        mt_free(b);
        b = next;
    }
}

static void cuda_close(mt_device *dev)
{
    if (!dev) return;
    cuda_device *d = (cuda_device *)dev;
    cudaSetDevice(d->ops.index);
    cudaDeviceSynchronize();
    if (d->ops.cudnn) d->ops.cudnn_close(d->ops.cudnn);
    if (d->zero) cudaEventDestroy(d->zero);
    if (d->ops.lt) cublasLtDestroy(d->ops.lt);
    mt_choices_release(d->ops.choices);
    cudaFree(d->ops.timing);
    mt_tuned_close(d->ops.tuned);
    cudaFree(d->ops.workspace);
    free_blocks(d->blocks, false);
    free_blocks(d->own_blocks, true);
    cudaFree(d->arena);
    release_all(d->host_blocks);
    release_all(d->spare_blocks);
    cudaGetLastError();
    pthread_mutex_destroy(&d->lock);
    mt_free(d);
}

static mt_rc open_tuned(cuda_device *d, const char *dir, mt_err *err)
{
    char who[192];
    snprintf(who, sizeof who, "megatrain products 3, %s, cuBLASLt %zu", d->name, cublasLtGetVersion());
    MT_TRY(mt_tuned_open(&d->ops.tuned, dir, who, err));
    if (cudaMalloc(&d->ops.timing, MT_CUDA_TIMING_BYTES) != cudaSuccess) {
        cudaGetLastError();
        d->ops.timing = NULL;
        return mt_fail(err, MT_ENOMEM,
                       "no device memory to time products in (%s); leave the GPU that much more room (--device-memory), or set "
                       "training.tune_products: false",
                       mt_bytes_text(MT_CUDA_TIMING_BYTES).s);
    }
    mt_info("products: %d kernels chosen earlier, by timing; those of other shapes are timed when they are met",
            mt_tuned_count(d->ops.tuned));
    return MT_OK;
}

/* Lanes on one kind of GPU multiply by the same kernels. */
static mt_rc open_choices(cuda_device *d, mt_device *like, mt_err *err)
{
    cuda_device *first = (cuda_device *)like;
    const bool shares = first && strcmp(first->name, d->name) == 0 && first->ops.n_sms == d->ops.n_sms;
    d->ops.first = shares ? &first->ops : &d->ops;
    if (!shares) return mt_choices_create(&d->ops.choices, err);
    d->ops.choices = mt_choices_share(first->ops.choices);
    return MT_OK;
}

static mt_rc cuda_open(mt_device **out, const mt_device_options *o, mt_err *err)
{
    *out = NULL;
    cuda_device *d = (cuda_device *)mt_calloc(1, sizeof *d);
    if (!d) return mt_no_memory(err, "the CUDA device");
    d->ops.base.api = &mt_device_cuda;
    d->ops.index = o ? o->index : 0;
    d->pin_nothing = o && o->pin_nothing;
    d->keep_host_memory = o && o->keep_host_memory;
    pthread_mutex_init(&d->lock, NULL);
    mt_rc rc = check_device(d, err);
    if (rc) {
        pthread_mutex_destroy(&d->lock);
        mt_free(d);
        return rc;
    }
    rc = open_choices(d, o ? o->like : NULL, err);
    if (!rc && o && o->tune) rc = open_tuned(d, o->tune, err); /* first: it takes memory that is free now */
    if (!rc) rc = take_memory(d, o ? o->memory_limit : 0, err);
    if (!rc) rc = take_workspace(&d->ops, &d->ops.workspace, err);
    if (!rc && cublasLtCreate(&d->ops.lt) != CUBLAS_STATUS_SUCCESS)
        rc = mt_fail(err, MT_EDEVICE, "cuBLAS would not start on %s; does its version fit the driver?", d->name);
    if (rc) {
        cuda_close(&d->ops.base);
        return rc;
    }
    *out = &d->ops.base;
    return MT_OK;
}

static void cuda_info(mt_device *dev, mt_device_info *out)
{
    cuda_device *d = (cuda_device *)dev;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&d->lock);
    out->memory_limit = d->limit;
    out->memory_used = d->used;
    out->memory_peak = d->peak;
    pthread_mutex_unlock(&d->lock);
    out->n_choices = mt_choices_made(d->ops.choices);
    out->n_own = d->ops.n_own;
    out->n_processors = d->ops.n_sms;
    snprintf(out->name, sizeof out->name, "%s", d->name);
}

/* In the order of mt_device_api, as C++ wants it. */
extern "C" const mt_device_api mt_device_cuda = {
    .kind = MT_DEVICE_CUDA,
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .reserve = cuda_reserve,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .stream_create = cuda_stream_create,
    .stream_free = cuda_stream_free,
    .event_create = cuda_event_create,
    .event_free = cuda_event_free,
    .timed_event_create = cuda_timed_event_create,
    .event_time = cuda_event_time,
    .event_span = cuda_event_span,
    .record = cuda_record,
    .wait = cuda_wait,
    .sync = cuda_sync,
    .copy = cuda_copy,
    .copy_small = cuda_copy_small,
    .fill = cuda_fill,
    .copy_peer = cuda_copy_peer,
    .reaches = cuda_reaches,
    .host_pool = MT_HOST_POOL_BYTES,
};
