#include "plan/measure.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/units.h"
#include "optim/adamw.h"
#include "ops/ops.h"
#include "plan/costs.h"
#include "plan/gpus.h"
#include "plan/rates.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A run of minutes keeps this fraction of the rate that a product reaches alone: the card warms up, and other kernels run in
 * between. */
#define LASTS 0.95
/* A run keeps this fraction of the rate that updates reach alone. */
#define ADAM_LASTS 0.9
/* A rate known from runs of minutes is better than a measurement of a second that agrees with it this closely: the latter varies
 * by 5% with what ran before. */
#define AGREES 0.15
/* Seconds until a CPU's threads have a core each: we saw 80 to 120 ms with every rate at half its value. */
#define CPU_WAKES 0.15

/* Memory of a process besides the plan: what it holds when it plans (a library such as cuBLASLt alone holds 70 MB), pages of the
 * program, its libraries and the data, and what comes after planning: threads, their buffers, the allocator's slack. */
#define MOST_FILES ((int64_t)512 << 20)
#define GROWS      ((size_t)16 << 20)
#define LEAST_OWN  ((size_t)24 << 20) /* of both: `plan` holds a few MB less than the run that it speaks of */

/* Far more than caches hold. */
enum { ROWS = 8192, WIDTH = 4096, COPY_BYTES = 256 << 20, ADAM_PARAMS = 64 << 20, PIECE = 1 << 16 };
#define MEASURING_BYTES                                                                                                          \
    ((size_t)ADAM_PARAMS * 14 + 2 * (size_t)COPY_BYTES) /* bytes of host memory to measure with, beside a GPU */

static double now(void) { return mt_now_s(); }

/* -- the device ------------------------------------------------------------------------------------ */

typedef struct lab {
    mt_device *dev;
    mt_stream *compute, *in, *out;
    mt_event *done[2];
    void *x, *y, *w; /* on the device */
    void *host[2];   /* pinned */
} lab;

static void close_lab(lab *l)
{
    const mt_device_api *api = l->dev->api;
    api->stream_free(l->compute);
    api->stream_free(l->in);
    api->stream_free(l->out);
    for (int i = 0; i < 2; i++) {
        api->event_free(l->done[i]);
        api->host_free(l->dev, l->host[i]);
    }
    api->free(l->dev, l->x);
    api->free(l->dev, l->y);
    api->free(l->dev, l->w);
}

static mt_rc open_lab(lab *l, mt_err *err)
{
    const mt_device_api *api = l->dev->api;
    MT_TRY(api->stream_create(l->dev, &l->compute, "compute", err));
    MT_TRY(api->stream_create(l->dev, &l->in, "copy-in", err));
    MT_TRY(api->stream_create(l->dev, &l->out, "copy-out", err));
    for (int i = 0; i < 2; i++) {
        MT_TRY(api->event_create(l->dev, &l->done[i], err));
        MT_TRY(api->host_alloc(l->dev, &l->host[i], COPY_BYTES, "measuring", err));
    }
    MT_TRY(api->alloc(l->dev, &l->x, COPY_BYTES, "measuring", err));
    MT_TRY(api->alloc(l->dev, &l->y, COPY_BYTES, "measuring", err));
    MT_TRY(api->alloc(l->dev, &l->w, (size_t)WIDTH * WIDTH * 2, "measuring", err));
    /* bf16 numbers of magnitude 1/2 to 2: zeros would multiply faster than a model's weights. */
    uint16_t *numbers = l->host[0];
    for (size_t i = 0; i < COPY_BYTES / 2; i++) numbers[i] = (uint16_t)((mt_rng_u64(1, 2, i) & 0x80ff) | 0x3f00);
    MT_TRY(mt_copy(l->compute, l->x, numbers, COPY_BYTES, MT_COPY_IN, err));
    return mt_copy(l->compute, l->w, numbers, (size_t)WIDTH * WIDTH * 2, MT_COPY_IN, err);
}

static mt_rc settle(mt_stream *s, mt_event *e, mt_err *err)
{
    MT_TRY(mt_record(s, e, err));
    return mt_sync(e, err);
}

static mt_rc multiply(lab *l, int times, double *seconds, mt_err *err)
{
    const mt_linear product = { .t = MT_DTYPE_BF16, .M = ROWS, .N = WIDTH, .K = WIDTH, .x = l->x, .w = l->w, .y = l->y };
    double start = now();
    for (int i = 0; i < times; i++) MT_TRY(mt_ops_of(l->dev)->linear_fwd(l->compute, &product, err));
    MT_TRY(settle(l->compute, l->done[0], err));
    *seconds = (now() - start) / times;
    return MT_OK;
}

/* Repeats until the rate is steady: an idle card takes a moment to wake up, and another to reach its power limit. */
static mt_rc measure_products(lab *l, mt_machine *m, mt_err *err)
{
    double seconds, before;
    MT_TRY(multiply(l, 3, &seconds, err));
    for (int round = 0; round < 8; round++) {
        before = seconds;
        MT_TRY(multiply(l, (int)fmax(3, 0.2 / before), &seconds, err));
        if (round >= 2 && fabs(seconds / before - 1) < 0.01) break;
    }
    m->flops = LASTS * 2.0 * ROWS * WIDTH * WIDTH / seconds * mt_cost_small(m, ROWS, WIDTH, WIDTH);
    m->flops_f32 = 0.065 * m->flops;
    return MT_OK;
}

/* Bytes a second, each way, of copies in and out as asked. */
static mt_rc copy_rate(lab *l, bool in, bool out, double *rate, mt_err *err)
{
    enum { TIMES = 10 };
    double start = now();
    for (int i = 0; i < TIMES; i++) {
        if (in) MT_TRY(mt_copy(l->in, l->x, l->host[0], COPY_BYTES, MT_COPY_IN, err));
        if (out) MT_TRY(mt_copy(l->out, l->host[1], l->y, COPY_BYTES, MT_COPY_OUT, err));
    }
    MT_TRY(settle(l->in, l->done[0], err));
    MT_TRY(settle(l->out, l->done[1], err));
    *rate = (double)COPY_BYTES * TIMES / (now() - start);
    return MT_OK;
}

/* Right after the products, while the card is awake. */
static mt_rc measure_bandwidth(lab *l, mt_machine *m, mt_err *err)
{
    enum { TIMES = 40 };
    double start = now();
    for (int i = 0; i < TIMES; i++) MT_TRY(mt_copy(l->compute, l->y, l->x, COPY_BYTES, MT_COPY_ON_DEVICE, err));
    MT_TRY(settle(l->compute, l->done[0], err));
    m->device_bandwidth = 2.0 * COPY_BYTES * TIMES / (now() - start);
    return MT_OK;
}

static mt_rc measure_device(lab *l, mt_machine *m, mt_err *err)
{
    MT_TRY(open_lab(l, err));
    MT_TRY(measure_products(l, m, err));
    MT_TRY(measure_bandwidth(l, m, err));
    MT_TRY(copy_rate(l, true, true, &m->copy_both, err)); /* warms up */
    MT_TRY(copy_rate(l, true, false, &m->copy_in, err));
    MT_TRY(copy_rate(l, false, true, &m->copy_out, err));
    return copy_rate(l, true, true, &m->copy_both, err);
}

/* -- Adam ------------------------------------------------------------------------------------------ */

static void adam_piece(void *arg, int64_t i) { mt_adamw_piece(arg, i * PIECE, (i + 1) * PIECE); }

/* bf16 of a bell-shaped random number. */
static uint16_t bell(uint64_t r, float scale)
{
    const int64_t sum = (int64_t)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48)) - 2 * 0xffff;
    return mt_f32_to_bf16(scale * (float)sum);
}

/* Weights and gradients like those of a run, in every piece the same.  Zeros would not do: 8-bit moments of a block of zeros take
 * 1.6 times as long, and pages that are only read would all be one. */
static void draw_numbers(char *block, int64_t n)
{
    uint16_t *hi = (uint16_t *)(void *)(block + 8 * n), *g = hi + n;
    for (int64_t i = 0; i < PIECE; i++) {
        hi[i] = bell(mt_rng_u64(1, 2, (uint64_t)i), 1e-6f);
        g[i] = bell(mt_rng_u64(1, 3, (uint64_t)i), 1e-10f);
    }
    for (int64_t i = PIECE; i < n; i += PIECE) {
        memcpy(hi + i, hi, PIECE * sizeof *hi);
        memcpy(g + i, g, PIECE * sizeof *g);
    }
}

/* An update of the numbers in the block, whose moments begin anew. */
static mt_adamw adam_over(char *block, int64_t n, mt_moments form)
{
    memset(block, 0, (size_t)n * 8);
    mt_adamw w = { .t = MT_DTYPE_BF16,
                   .moments = form,
                   .n = n,
                   .n_decay = n,
                   .key = 1,
                   .m = block,
                   .v = block + 4 * n,
                   .hi = (uint16_t *)(void *)(block + 8 * n) };
    w.g = w.hi + n;
    w.lo = (int16_t *)(void *)(w.hi + 2 * n);
    w.coef = w.coef_no_decay =
        mt_adamw_coef_of(&(mt_update_step){ .lr = 1e-5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .grad_scale = 1, .t = 1 });
    return w;
}

/* Parameters a second of n, the best of a few times. */
static double adam_rate(mt_pool *pool, char *block, int64_t n, mt_moments form)
{
    mt_adamw w = adam_over(block, n, form);
    double best = INFINITY;
    for (int i = 0; i < 4; i++) { /* the first run faults the pages in */
        double start = now();
        mt_pool_for(pool, n / PIECE, adam_piece, &w);
        best = fmin(best, now() - start);
    }
    return (double)n / best;
}

/* Bytes per second of host memory when Adam and copies both ways use it at once, as in a step. */
static mt_rc shared_rate(lab *l, const mt_machine *m, mt_pool *pool, char *block, int64_t n, double *rate, mt_err *err)
{
    enum { TIMES = 3, COPIES = 24 };
    mt_adamw w = adam_over(block, n, MT_MOMENTS_F32);
    double start = now();
    for (int i = 0; i < COPIES; i++) {
        MT_TRY(mt_copy(l->in, l->x, l->host[0], COPY_BYTES, MT_COPY_IN, err));
        MT_TRY(mt_copy(l->out, l->host[1], l->y, COPY_BYTES, MT_COPY_OUT, err));
    }
    for (int i = 0; i < TIMES; i++) mt_pool_for(pool, n / PIECE, adam_piece, &w);
    double end = now();
    MT_TRY(settle(l->in, l->done[0], err));
    MT_TRY(settle(l->out, l->done[1], err));
    double copied = 2.0 * COPY_BYTES * COPIES - 2 * m->copy_both * (now() - end); /* the rest ran at full speed */
    *rate =
        (TIMES * mt_machine_update_bytes((mt_state_form){ MT_OPTIMIZER_ADAMW, MT_MOMENTS_F32 }) * (double)n + fmax(copied, 0)) /
        (end - start);
    return MT_OK;
}

/* l: the GPU's, whose copies share the memory; NULL: there are none. */
static mt_rc measure_adam(mt_machine *m, lab *l, int cores, int64_t n, mt_err *err)
{
    char *block = mt_calloc((size_t)n, 14);
    mt_pool *pool = NULL;
    mt_rc rc = block ? mt_pool_create(&pool, cores, err) : mt_no_memory(err, "measuring Adam");
    if (!rc) draw_numbers(block, n);
    for (mt_moments form = 0; !rc && form < MT_MOMENTS_FORMS; form++)
        m->adam_host[form] = ADAM_LASTS * adam_rate(pool, block, n, form);
    if (!rc && l) rc = shared_rate(l, m, pool, block, n, &m->host_bandwidth, err);
    mt_pool_free(pool);
    mt_free(block);
    return rc;
}

/* -- a CPU that is the device ---------------------------------------------------------------------- */

enum { CPU_ROWS = 512, CPU_WIDTH = 512, CPU_TIMES = 8, CPU_HEADS = 4 };

typedef struct cpu_lab {
    mt_device *dev;
    mt_stream *stream;
    mt_event *done;
    char *x, *w, *y; /* room for CPU_ROWS x CPU_WIDTH floats each */
    float *sums;     /* [CPU_ROWS * CPU_HEADS] */
} cpu_lab;

typedef mt_rc (*experiment)(cpu_lab *l, mt_dtype t, mt_err *err);

static mt_rc cpu_product(cpu_lab *l, mt_dtype t, mt_err *err)
{
    return mt_ops_of(l->dev)->linear_fwd(
        l->stream, &(mt_linear){ .t = t, .M = CPU_ROWS, .N = CPU_WIDTH, .K = CPU_WIDTH, .x = l->x, .w = l->w, .y = l->y }, err);
}

static mt_rc cpu_norm(cpu_lab *l, mt_dtype t, mt_err *err)
{
    return mt_ops_of(l->dev)->norm_fwd(
        l->stream,
        &(mt_norm){ .t = t, .N = CPU_ROWS, .D = CPU_WIDTH, .eps = 1, .y = l->y, .rstd = l->sums, .x = l->x, .w = l->w }, err);
}

static mt_rc cpu_attention(cpu_lab *l, mt_dtype t, mt_err *err)
{
    static const int32_t starts[] = { 0, CPU_ROWS };
    return mt_ops_of(l->dev)->attention_fwd(l->stream,
                                            &(mt_attention){ .t = t,
                                                             .N = CPU_ROWS,
                                                             .H = CPU_HEADS,
                                                             .K = CPU_HEADS,
                                                             .Dh = 64,
                                                             .ldq = CPU_WIDTH,
                                                             .ldk = CPU_WIDTH,
                                                             .ldv = CPU_WIDTH,
                                                             .ldo = CPU_WIDTH,
                                                             .n_docs = 1,
                                                             .longest = CPU_ROWS,
                                                             .doc_start = starts,
                                                             .scale = 1,
                                                             .q = l->x,
                                                             .k = l->x,
                                                             .v = l->w,
                                                             .o = l->y,
                                                             .lse = l->sums },
                                            err);
}

/* Runs products until the system has spread threads that just woke up over the cores. */
static mt_rc wake_up(cpu_lab *l, mt_err *err)
{
    for (double start = now(); now() - start < CPU_WAKES;) {
        MT_TRY(cpu_product(l, MT_DTYPE_BF16, err));
        MT_TRY(settle(l->stream, l->done, err));
    }
    return MT_OK;
}

/* The best of a few runs: cores that other processes use for a moment are not a reason to plan for slow ones. */
static mt_rc seconds_of(cpu_lab *l, experiment run, mt_dtype t, double *best, mt_err *err)
{
    *best = INFINITY;
    for (int i = 0; i < CPU_TIMES; i++) {
        double start = now();
        MT_TRY(run(l, t, err));
        MT_TRY(settle(l->stream, l->done, err));
        *best = fmin(*best, now() - start);
    }
    return MT_OK;
}

static mt_rc measure_cpu_ops(cpu_lab *l, mt_machine *m, mt_err *err)
{
    double seconds, products = 2.0 * CPU_ROWS * CPU_WIDTH * CPU_WIDTH;
    MT_TRY(l->dev->api->stream_create(l->dev, &l->stream, "measuring", err));
    MT_TRY(l->dev->api->event_create(l->dev, &l->done, err));
    MT_TRY(wake_up(l, err));
    MT_TRY(seconds_of(l, cpu_product, MT_DTYPE_BF16, &seconds, err));
    m->flops = products / seconds;
    MT_TRY(seconds_of(l, cpu_product, MT_DTYPE_F32, &seconds, err));
    m->flops_f32 = products / seconds;
    MT_TRY(seconds_of(l, cpu_attention, MT_DTYPE_F32, &seconds, err));
    m->attention = 4.0 * CPU_HEADS * 64 * CPU_ROWS * (CPU_ROWS + 1) / 2 / seconds;
    MT_TRY(seconds_of(l, cpu_norm, MT_DTYPE_F32, &seconds, err));
    m->device_bandwidth = MT_NORM_NUMBERS * 4.0 * CPU_ROWS * CPU_WIDTH / seconds;
    return MT_OK;
}

static mt_rc measure_cpu(mt_machine *m, mt_device *dev, int threads, mt_err *err)
{
    size_t one = (size_t)CPU_ROWS * CPU_WIDTH * sizeof(float);
    cpu_lab l = { .dev = dev, .x = mt_calloc(3, one + CPU_ROWS * CPU_HEADS * sizeof(float)) };
    if (!l.x) return mt_no_memory(err, "measuring this machine");
    l.w = l.x + one;
    l.y = l.w + one;
    l.sums = (float *)(void *)(l.y + one);
    mt_rc rc = measure_cpu_ops(&l, m, err);
    if (l.stream) dev->api->stream_free(l.stream);
    if (l.done) dev->api->event_free(l.done);
    mt_free(l.x);
    return rc ? rc : measure_adam(m, NULL, threads, 1 << 20, err);
}

/* -- a GPU ----------------------------------------------------------------------------------------- */

static mt_rc measure_gpu(mt_machine *m, mt_device *dev, int cores, mt_err *err)
{
    lab l = { .dev = dev };
    double attention = m->attention / m->flops; /* what is known of its kind */
    mt_rc rc = measure_device(&l, m, err);
    m->attention = attention * m->flops;
    if (!rc) rc = measure_adam(m, &l, cores, ADAM_PARAMS, err);
    close_lab(&l);
    return rc;
}

/* -- remembered ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    size_t at;
} kept[] = {
    { "flops", offsetof(mt_machine, flops) },
    { "flops_f32", offsetof(mt_machine, flops_f32) },
    { "attention", offsetof(mt_machine, attention) },
    { "device_bandwidth", offsetof(mt_machine, device_bandwidth) },
    { "copy_in", offsetof(mt_machine, copy_in) },
    { "copy_out", offsetof(mt_machine, copy_out) },
    { "copy_both", offsetof(mt_machine, copy_both) },
    { "host_bandwidth", offsetof(mt_machine, host_bandwidth) },
    { "adam_f32", offsetof(mt_machine, adam_host[MT_MOMENTS_F32]) },
    { "adam_bf16", offsetof(mt_machine, adam_host[MT_MOMENTS_BF16]) },
    { "adam_8bit", offsetof(mt_machine, adam_host[MT_MOMENTS_8BIT]) },
};

/* The file this machine is remembered in; NULL: nowhere. */
static char *cache_path(const char *device, const mt_host *h, int cores)
{
    char key[320];
    snprintf(key, sizeof key, "10|%s|%s|%d", device, h->cpu, cores); /* 10: how it is measured, and with which kernels */
    return mt_rates_path("machine", key);
}

static void list_kept(mt_machine *m, mt_kept_rate rates[MT_COUNT(kept)])
{
    for (size_t i = 0; i < MT_COUNT(kept); i++)
        rates[i] = (mt_kept_rate){ kept[i].name, (double *)(void *)((char *)m + kept[i].at) };
}

static bool recall(mt_machine *m, const char *path)
{
    mt_kept_rate rates[MT_COUNT(kept)];
    list_kept(m, rates);
    return mt_rates_recall(path, rates, MT_COUNT(rates));
}

static void remember(mt_machine *m, const char *path, bool calm)
{
    mt_kept_rate rates[MT_COUNT(kept)];
    list_kept(m, rates);
    mt_rates_remember(path, rates, MT_COUNT(rates), calm);
}

/* -- all of it ------------------------------------------------------------------------------------- */

/* True if it is as fast as others of its kind. */
static bool is_usual(const mt_machine *m, const mt_gpu *known)
{
    if (!known || mt_gpu_reaches(known, m->flops)) return true;
    mt_warn("this GPU multiplies at %.0f TFLOP/s, others of its kind at %.0f: something else runs on it (nvidia-smi), or it is "
            "throttled.  It will be measured again after a minute",
            1e-12 * m->flops, known->tflops);
    return false;
}

static bool crowded_since(const mt_cores_used *before, int threads)
{
    const mt_cores_used now = mt_cores_look("");
    bool crowded = mt_cores_crowded(before, &now, threads);
    if (crowded) mt_debug("other processes use this machine's cores: its measured rates are valid for one minute only");
    return crowded;
}

/* A run may have less memory than measuring needs (--device-memory).  Rates affect only speed, so their absence must not stop
 * it. */
static mt_rc rates_of_kind(mt_machine *m, const mt_machine *kind, mt_err *err)
{
    mt_info("too little memory to measure this GPU (%s): planning with the rates of its kind", err->msg);
    *m = *kind;
    *err = (mt_err){ 0 };
    return MT_OK;
}

static bool agree(double measured, double known) { return fabs(measured / known - 1) < AGREES; }

/* room: host memory that a run may use.  Measuring takes at most half of it for a moment, so that the system does not kill the
 * process. */
static mt_rc measure_within(mt_machine *m, mt_device *dev, int cores, size_t room, mt_err *err)
{
    if (room / 2 < MEASURING_BYTES)
        return mt_fail(err, MT_ENOMEM, "%s of host memory for a moment, of %s", mt_bytes_text(MEASURING_BYTES).s,
                       mt_bytes_text(room).s);
    return measure_gpu(m, dev, cores, err);
}

static mt_rc rates_of_gpu(mt_machine *m, mt_device *dev, const mt_gpu *known, const char *path, int cores, size_t room,
                          mt_err *err)
{
    *m = known ? mt_machine_of_gpu(known, cores) : mt_machine_typical();
    if (!known) mt_machine_set_cores(m, cores, m->host_bandwidth);
    m->cudnn = known && m->cudnn; /* for an unknown card, the slower kernels are the safe guess */
    if (recall(m, path)) return MT_OK;
    mt_info("measuring this machine once (about two seconds)");
    const mt_machine kind = *m;
    const mt_cores_used before = mt_cores_look("");
    mt_rc rc = measure_within(m, dev, cores, room, err);
    if (rc == MT_ENOMEM) return rates_of_kind(m, &kind, err);
    if (rc) return rc;
    if (known && known->held && agree(m->flops, kind.flops))
        m->flops = kind.flops, m->flops_f32 = kind.flops_f32, m->attention = kind.attention;
    if (known && known->held && agree(m->device_bandwidth, kind.device_bandwidth)) m->device_bandwidth = kind.device_bandwidth;
    bool calm = is_usual(m, known);
    remember(m, path, calm && !crowded_since(&before, cores));
    return MT_OK;
}

static mt_rc rates_of_cpu(mt_machine *m, mt_device *dev, const mt_host *h, const char *path, int threads, mt_err *err)
{
    *m = mt_machine_cpu(40e9 * threads, threads);
    m->base_host = mt_min_i64((int64_t)h->files, MOST_FILES);
    if (recall(m, path)) return MT_OK;
    const mt_cores_used before = mt_cores_look("");
    MT_TRY(measure_cpu(m, dev, threads, err));
    remember(m, path, !crowded_since(&before, threads));
    return MT_OK;
}

static mt_rc rates_here(mt_machine *m, mt_device *dev, const mt_host *h, int cores, size_t room, bool cache, mt_err *err)
{
    mt_device_info d;
    dev->api->info(dev, &d);
    bool cpu = dev->api->kind == MT_DEVICE_CPU;
    char *path = cache ? cache_path(d.name, h, cpu ? d.n_threads : cores) : NULL;
    mt_rc rc = cpu ? rates_of_cpu(m, dev, h, path, d.n_threads, err)
                   : rates_of_gpu(m, dev, mt_gpu_of_driver(d.name), path, cores, room, err);
    mt_free(path);
    return rc;
}

/* mt_host_usable adds what the process holds to what is free, so every plan must count that, too. */
static void count_own(mt_machine *m, const mt_device *dev, const mt_host *h)
{
    const size_t own = h->own + GROWS > LEAST_OWN ? h->own + GROWS : LEAST_OWN;
    if (dev->api->kind == MT_DEVICE_CPU)
        m->base_host += own;
    else if (m->base_host < own) /* a GPU's includes them */
        m->base_host = own;
}

mt_rc mt_machine_here(mt_machine *out, mt_device *dev, const mt_machine_given *given, bool cache, mt_err *err)
{
    const mt_gpu *gpu = NULL;
    mt_device_info d = { 0 };
    mt_host h;
    if (given->gpu) MT_TRY(mt_gpu_find(&gpu, given->gpu, err));
    MT_TRY(mt_host_read(&h, "", err));
    size_t room = given->ram ? given->ram : mt_host_usable(&h);
    if (given->ram_most && given->ram_most < room) room = given->ram_most;
    /* A GPU that is not here does not work with these cores. */
    int cores = gpu ? MT_USUAL_CORES : h.cores;
    if (given->cores) cores = given->cores;
    if (gpu)
        *out = mt_machine_of_gpu(gpu, cores);
    else {
        int measured = (int)mt_min_i64(cores, h.cores); /* more threads than cores measure nothing */
        MT_TRY(rates_here(out, dev, &h, measured, room < mt_host_usable(&h) ? room : mt_host_usable(&h), cache, err));
        count_own(out, dev, &h);
        dev->api->info(dev, &d);
        out->device_bytes = d.memory_limit;
        if (dev->api->kind == MT_DEVICE_CPU) measured = d.n_threads;
        if (given->cores) mt_machine_scale_cores(out, measured, cores);
    }
    if (given->device_memory) out->device_bytes = given->device_memory;
    if (given->link > 0) out->copy_in = out->copy_out = given->link, out->copy_both = 0.91 * given->link;
    out->host_bytes = room;
    return MT_OK;
}
