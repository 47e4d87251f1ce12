#include "plan/measure.h"

#include "base/file.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/str.h"
#include "ops/adamw.h"
#include "ops/ops.h"
#include "plan/costs.h"
#include "plan/gpus.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Of the rate a product reaches alone, a run of minutes keeps this much: the card warms up, and other kernels run between. */
#define LASTS 0.87
/* Of a core, about.  Not measured: a plan that hangs on how busy the cores are just now would be another one each time. */
#define CPU_FLOPS 40e9
/* Host memory gives a little more than Adam alone takes from it. */
#define BESIDE_ADAM 1.15

enum { USUAL_CORES = 16 };
enum { ROWS = 8192, WIDTH = 4096, COPY_BYTES = 256 << 20, ADAM_PARAMS = 32 << 20, PIECE = 1 << 16 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- the device ------------------------------------------------------------------------------------ */

typedef struct lab {
    mt_device *dev;
    mt_stream *compute, *in, *out;
    mt_event *done[2];
    void *x, *y, *w;    /* on the device */
    void *host[2];      /* pinned */
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
    /* bf16 numbers of magnitude 1/2 to 2: zeros would multiply faster than what a model holds. */
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

static mt_rc measure_products(lab *l, mt_machine *m, mt_err *err)
{
    double seconds;
    MT_TRY(multiply(l, 3, &seconds, err));
    MT_TRY(multiply(l, (int)fmax(3, 0.4 / seconds), &seconds, err));
    /* With what a product of this shape takes longer. */
    m->flops = LASTS * 2.0 * ROWS * WIDTH * WIDTH / seconds * (1 + MT_SMALL_RESULT / ((double)ROWS * WIDTH) + MT_SHORT_SUM / WIDTH);
    m->flops_f32 = 0.065 * m->flops;
    return MT_OK;
}

/* Bytes a second, each way, of copies in and out as asked. */
static mt_rc copy_rate(lab *l, bool in, bool out, double *rate, mt_err *err)
{
    enum { TIMES = 6 };
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

static mt_rc measure_device(lab *l, mt_machine *m, mt_err *err)
{
    enum { TIMES = 40 };
    MT_TRY(open_lab(l, err));
    MT_TRY(measure_products(l, m, err));
    MT_TRY(copy_rate(l, true, true, &m->copy_both, err)); /* warms up */
    MT_TRY(copy_rate(l, true, false, &m->copy_in, err));
    MT_TRY(copy_rate(l, false, true, &m->copy_out, err));
    MT_TRY(copy_rate(l, true, true, &m->copy_both, err));
    MT_TRY(settle(l->compute, l->done[0], err));
    double start = now();
    for (int i = 0; i < TIMES; i++) MT_TRY(mt_copy(l->compute, l->y, l->x, COPY_BYTES, MT_COPY_ON_DEVICE, err));
    MT_TRY(settle(l->compute, l->done[0], err));
    m->device_bandwidth = 2.0 * COPY_BYTES * TIMES / (now() - start);
    return MT_OK;
}

/* -- Adam ------------------------------------------------------------------------------------------ */

typedef struct adam_work {
    uint16_t *hi, *g;
    int16_t *lo;
    float *m, *v;
    mt_adamw_coef coef;
} adam_work;

static void adam_piece(void *arg, int64_t i)
{
    const adam_work *w = arg;
    int64_t at = i * PIECE;
    mt_adamw_update(&(mt_adamw_args){ w->hi + at, w->lo + at, w->m + at, w->v + at, w->g + at, MT_DTYPE_BF16, PIECE, w->coef });
}

static mt_rc measure_adam(mt_machine *m, int cores, mt_err *err)
{
    size_t n = ADAM_PARAMS;
    char *block = mt_calloc(n, 14);
    mt_pool *pool = NULL;
    mt_rc rc = block ? mt_pool_create(&pool, cores, err) : mt_fail(err, MT_ENOMEM, "no host memory to measure Adam");
    adam_work w = { .m = (float *)(void *)block };
    w.v = w.m + n;
    w.hi = (uint16_t *)(void *)(w.v + n);
    w.g = w.hi + n;
    w.lo = (int16_t *)(void *)(w.g + n);
    w.coef = mt_adamw_coef_of(&(mt_adamw_step){ .lr = 1e-5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .grad_scale = 1, .t = 1 });
    double best = INFINITY;
    for (int i = 0; !rc && i < 6; i++) {
        double start = now();
        mt_pool_for(pool, ADAM_PARAMS / PIECE, adam_piece, &w);
        best = fmin(best, now() - start);
    }
    if (!rc) m->adam_host = (double)n / best;
    if (!rc) m->host_bandwidth = fmax(BESIDE_ADAM * 26 * m->adam_host, 1.2 * 2 * m->copy_both);
    mt_pool_free(pool);
    mt_free(block);
    return rc;
}

static mt_rc measure(mt_machine *m, mt_device *dev, int cores, mt_err *err)
{
    lab l = { .dev = dev };
    double attention = m->attention / m->flops; /* what is known of its kind */
    mt_rc rc = measure_device(&l, m, err);
    close_lab(&l);
    m->attention = attention * m->flops;
    return rc ? rc : measure_adam(m, cores, err);
}

/* -- remembered ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    size_t at;
} kept[] = {
    { "flops", offsetof(mt_machine, flops) },         { "flops_f32", offsetof(mt_machine, flops_f32) },
    { "attention", offsetof(mt_machine, attention) }, { "device_bandwidth", offsetof(mt_machine, device_bandwidth) },
    { "copy_in", offsetof(mt_machine, copy_in) },     { "copy_out", offsetof(mt_machine, copy_out) },
    { "copy_both", offsetof(mt_machine, copy_both) }, { "host_bandwidth", offsetof(mt_machine, host_bandwidth) },
    { "adam_host", offsetof(mt_machine, adam_host) },
};

static double *field(mt_machine *m, size_t i) { return (double *)(void *)((char *)m + kept[i].at); }

/* The file this machine is remembered in; NULL: nowhere. */
static char *cache_path(const char *device, const mt_host *h, int cores)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *dir = xdg && *xdg ? mt_asprintf("%s/megatrain", xdg) : home && *home ? mt_asprintf("%s/.cache/megatrain", home) : NULL, key[320];
    if (!dir) return NULL;
    snprintf(key, sizeof key, "1|%s|%s|%d", device, h->cpu, cores); /* 1: how it is measured */
    char *path = mt_asprintf("%s/machine-%016llx", dir, (unsigned long long)mt_hash(key, strlen(key), 0));
    mkdir(dir, 0777);
    mt_free(dir);
    return path;
}

static bool recall(mt_machine *m, const char *path)
{
    mt_err ignored = { 0 };
    char *text = NULL;
    if (!path || !mt_file_exists(path) || mt_file_read(&text, NULL, path, 1 << 16, &ignored)) return false;
    mt_machine found = *m;
    bool all = true;
    for (size_t i = 0; i < MT_COUNT(kept); i++) {
        char *at = strstr(text, kept[i].name);
        double x = at ? strtod(at + strlen(kept[i].name), NULL) : 0;
        all &= x > 0 && isfinite(x);
        *field(&found, i) = x;
    }
    if (all) *m = found;
    mt_free(text);
    return all;
}

/* A machine that is not remembered is measured again: nothing is lost when this fails. */
static void remember(mt_machine *m, const char *path)
{
    mt_err ignored = { 0 };
    mt_str s = { 0 };
    for (size_t i = 0; i < MT_COUNT(kept); i++) mt_str_printf(&s, "%s %.6g\n", kept[i].name, *field(m, i));
    if (path && mt_str_ok(&s) && mt_outfile_save(path, s.s, s.n, &ignored)) mt_debug("%s", ignored.msg);
    mt_str_free(&s);
}

/* -- all of it ------------------------------------------------------------------------------------- */

static mt_rc rates_here(mt_machine *m, mt_device *dev, const mt_host *h, int cores, bool cache, mt_err *err)
{
    mt_device_info d;
    dev->api->info(dev, &d);
    if (dev->api->kind == MT_DEVICE_CPU) {
        *m = mt_machine_cpu(CPU_FLOPS * d.n_threads, d.n_threads);
        return MT_OK;
    }
    const mt_gpu *known = mt_gpu_of_driver(d.name);
    char *path = cache ? cache_path(d.name, h, cores) : NULL;
    *m = known ? mt_machine_of_gpu(known, cores) : mt_machine_typical();
    mt_rc rc = MT_OK;
    if (!recall(m, path)) {
        mt_info("measuring this machine once (about two seconds)");
        rc = measure(m, dev, cores, err);
        if (!rc) remember(m, path);
    }
    mt_free(path);
    return rc;
}

mt_rc mt_machine_here(mt_machine *out, mt_device *dev, const mt_machine_given *given, bool cache, mt_err *err)
{
    const mt_gpu *gpu = NULL;
    mt_device_info d = { 0 };
    mt_host h;
    if (given->gpu) MT_TRY(mt_gpu_find(&gpu, given->gpu, err));
    MT_TRY(mt_host_read(&h, "", err));
    int cores = given->cores ? given->cores : gpu ? USUAL_CORES : h.cores; /* a GPU that is not here is not beside these cores */
    if (gpu)
        *out = mt_machine_of_gpu(gpu, cores);
    else {
        MT_TRY(rates_here(out, dev, &h, cores, cache, err));
        dev->api->info(dev, &d);
        out->device_bytes = d.memory_limit;
    }
    if (given->cores && !gpu) mt_machine_set_cores(out, cores, out->host_bandwidth);
    if (given->device_memory) out->device_bytes = given->device_memory;
    if (given->link > 0) out->copy_in = out->copy_out = given->link, out->copy_both = 0.91 * given->link;
    out->host_bytes = given->ram ? given->ram : mt_host_usable(&h);
    return MT_OK;
}
