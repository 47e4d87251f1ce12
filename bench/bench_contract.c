/* bench_contract.c - the device contract under load: copy-in, compute and copy-out on three streams at once, a worker that
 * sleeps in sync() until a gradient has landed, and a fetch that waits for that worker's update.
 *
 *     bench_contract [DEVICE] [MiB of a unit] [rows of a product]        default: cuda 256 16384
 *
 * First each of the three alone, then together, then a small training loop whose result is known: after S steps every
 * weight must be 2^S - 1. */
#include "base/rng.h"
#include "base/units.h"
#include "device/device.h"
#include "ops/ops.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_UNITS = 4, N_STEPS = 5, D = 4096, ROUNDS = 8 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(mt_rc rc, const mt_err *err)
{
    if (!rc) return;
    fprintf(stderr, "error: %s\n", err->msg);
    exit(1);
}

typedef struct bench {
    mt_device *dev;
    const mt_ops *ops;
    mt_stream *in, *compute, *out;
    mt_event *done_in, *done_compute, *done_out;
    size_t unit_bytes;
    int64_t rows;
    float *host_w[N_UNITS], *host_g[N_UNITS]; /* pinned */
    void *slot_w[2], *slot_g[2];              /* one unit each */
    void *x, *y, *weight;                     /* of the product that stands for compute */
    mt_err err;
} bench;

#define DO(call) must((call), &b->err)

/* bf16 numbers of magnitude 1/2 to 2: zeros would multiply faster than what a model holds. */
static void randomise(bench *b, void *on_device, size_t bytes)
{
    uint16_t *numbers = (uint16_t *)(void *)b->host_w[0];
    size_t n = b->unit_bytes / 2;
    for (size_t i = 0; i < n; i++) numbers[i] = (uint16_t)((mt_rng_u64(1, 2, i) & 0x80ff) | 0x3f00);
    for (size_t at = 0; at < bytes; at += b->unit_bytes)
        DO(mt_copy(b->compute, (char *)on_device + at, numbers, bytes - at < b->unit_bytes ? bytes - at : b->unit_bytes,
                   MT_COPY_IN, &b->err));
    DO(mt_record(b->compute, b->done_compute, &b->err));
    DO(mt_sync(b->done_compute, &b->err));
}

static void open_all(bench *b, const char *device)
{
    DO(mt_device_open(&b->dev, device, NULL, &b->err));
    const mt_device_api *api = b->dev->api;
    b->ops = mt_ops_of(b->dev);
    DO(api->stream_create(b->dev, &b->in, "copy-in", &b->err));
    DO(api->stream_create(b->dev, &b->compute, "compute", &b->err));
    DO(api->stream_create(b->dev, &b->out, "copy-out", &b->err));
    DO(api->event_create(b->dev, &b->done_in, &b->err));
    DO(api->event_create(b->dev, &b->done_compute, &b->err));
    DO(api->event_create(b->dev, &b->done_out, &b->err));
    double start = now();
    for (int u = 0; u < N_UNITS; u++) {
        DO(api->host_alloc(b->dev, (void **)&b->host_w[u], b->unit_bytes, "weights of a unit", &b->err));
        DO(api->host_alloc(b->dev, (void **)&b->host_g[u], b->unit_bytes, "gradient of a unit", &b->err));
    }
    double seconds = now() - start, gigabytes = 2.0 * N_UNITS * (double)b->unit_bytes / 1e9;
    mt_device_info info;
    api->info(b->dev, &info);
    printf("%s, %s to use; %.1f GB of host memory touched and pinned in %.2f s\n", info.name, mt_bytes_text(info.memory_limit).s,
           gigabytes, seconds);
    for (int k = 0; k < 2; k++) {
        DO(mt_device_alloc(b->dev, &b->slot_w[k], b->unit_bytes, "weight slot", &b->err));
        DO(mt_device_alloc(b->dev, &b->slot_g[k], b->unit_bytes, "gradient slot", &b->err));
    }
    size_t act = (size_t)b->rows * D * 2;
    DO(mt_device_alloc(b->dev, &b->x, act, "x", &b->err));
    DO(mt_device_alloc(b->dev, &b->y, act, "y", &b->err));
    DO(mt_device_alloc(b->dev, &b->weight, (size_t)D * D * 2, "w", &b->err));
    randomise(b, b->x, act);
    randomise(b, b->weight, (size_t)D * D * 2);
}

static void product(bench *b)
{
    mt_linear a = { .t = MT_DTYPE_BF16, .M = b->rows, .N = D, .K = D, .x = b->x, .w = b->weight, .y = b->y };
    DO(b->ops->linear_fwd(b->compute, &a, &b->err));
}

typedef struct rates {
    double in, compute, out; /* seconds until each was done */
} rates;

typedef struct waiting {
    mt_event *event;
    double end;
} waiting;

/* sync() may be called from any thread: one each, so that every stream's end is seen when it happens. */
static void *wait_for(void *arg)
{
    waiting *w = arg;
    mt_err err = { 0 };
    must(mt_sync(w->event, &err), &err);
    w->end = now();
    return NULL;
}

/* ROUNDS units in and out, and n_products products, whichever are asked for; each stream's time. */
static rates together(bench *b, bool in, int n_products, bool out)
{
    double start = now();
    for (int i = 0; i < ROUNDS; i++) {
        if (in) DO(mt_copy(b->in, b->slot_w[i % 2], b->host_w[i % N_UNITS], b->unit_bytes, MT_COPY_IN, &b->err));
        if (out) DO(mt_copy(b->out, b->host_g[i % N_UNITS], b->slot_g[i % 2], b->unit_bytes, MT_COPY_OUT, &b->err));
    }
    DO(mt_record(b->in, b->done_in, &b->err));
    DO(mt_record(b->out, b->done_out, &b->err));
    for (int i = 0; i < n_products; i++) product(b);
    DO(mt_record(b->compute, b->done_compute, &b->err));
    waiting w[3] = { { b->done_in, 0 }, { b->done_compute, 0 }, { b->done_out, 0 } };
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, wait_for, &w[i])) exit(1);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    return (rates){ w[0].end - start, w[1].end - start, w[2].end - start };
}

static void measure_overlap(bench *b)
{
    double moved = (double)ROUNDS * (double)b->unit_bytes, flops = 2.0 * (double)b->rows * D * D;
    together(b, true, 2, true); /* warm */
    rates in = together(b, true, 0, false), out = together(b, false, 0, true), both = together(b, true, 0, true),
          one = together(b, false, 20, false);
    /* Enough products that compute takes about as long as the copies. */
    double copies = both.in > both.out ? both.in : both.out;
    int n = (int)(copies / (one.compute / 20)) + 1;
    rates alone = together(b, false, n, false), all = together(b, true, n, true);
    printf("%-28s %10s %10s %14s\n", "", "in GB/s", "out GB/s", "compute TFLOP/s");
    printf("%-28s %10.1f\n", "copy-in alone", moved / in.in / 1e9);
    printf("%-28s %10s %10.1f\n", "copy-out alone", "", moved / out.out / 1e9);
    printf("%-28s %10.1f %10.1f\n", "copies both ways", moved / both.in / 1e9, moved / both.out / 1e9);
    printf("%-28s %10s %10s %14.0f\n", "products alone", "", "", n * flops / alone.compute / 1e12);
    printf("%-28s %10.1f %10.1f %14.0f\n", "all three at once", moved / all.in / 1e9, moved / all.out / 1e9,
           n * flops / all.compute / 1e12);
    printf("compute alone %.1f ms, beside copies %.1f ms (%+.1f%%); one after the other would be %.1f ms, together %.1f ms\n",
           1e3 * alone.compute, 1e3 * all.compute, 100 * (all.compute / alone.compute - 1), 1e3 * (alone.compute + copies),
           1e3 * (all.compute > all.out ? all.compute : all.out));
}

/* -- the loop: fetch, compute, gradient out, update by a worker, fetch again ------------------------ */

typedef struct loop {
    bench *b;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    mt_event *landed[N_UNITS];
    int queued[N_UNITS], updated[N_UNITS]; /* steps; guarded by lock */
} loop;

static void update(bench *b, int u)
{
    size_t n = b->unit_bytes / sizeof(float);
    for (size_t i = 0; i < n; i++) b->host_w[u][i] += b->host_g[u][i];
}

static void *worker(void *arg)
{
    loop *l = arg;
    bench *b = l->b;
    for (int step = 1; step <= N_STEPS; step++)
        for (int k = N_UNITS - 1; k >= 0; k--) { /* gradients finish last unit first */
            mt_err err = { 0 };
            pthread_mutex_lock(&l->lock);
            while (l->queued[k] < step) pthread_cond_wait(&l->changed, &l->lock);
            pthread_mutex_unlock(&l->lock);
            must(mt_sync(l->landed[k], &err), &err);
            update(b, k);
            pthread_mutex_lock(&l->lock);
            l->updated[k] = step;
            pthread_cond_broadcast(&l->changed);
            pthread_mutex_unlock(&l->lock);
        }
    return NULL;
}

/* The gate: a unit's weights may leave only after its last update. */
static void wait_updated(loop *l, int u, int step)
{
    pthread_mutex_lock(&l->lock);
    while (l->updated[u] < step) pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

/* The unit's "gradient" is w + 1, by an op of the device. */
static void one_unit(loop *l, int u, int step, mt_event *fetched[2], mt_event *used[2], mt_event *made[2], void *ones)
{
    bench *b = l->b;
    int slot = u % 2;
    wait_updated(l, u, step - 1);
    DO(mt_wait(b->in, used[slot], &b->err));
    DO(mt_copy(b->in, b->slot_w[slot], b->host_w[u], b->unit_bytes, MT_COPY_IN, &b->err));
    DO(mt_record(b->in, fetched[slot], &b->err));
    DO(mt_wait(b->compute, fetched[slot], &b->err));
    DO(mt_wait(b->compute, l->landed[(u + 2) % N_UNITS], &b->err)); /* this gradient slot's last copy-out */
    product(b);
    mt_round_grad g = { .t = MT_DTYPE_F32,
                        .n = (int64_t)(b->unit_bytes / sizeof(float)),
                        .acc = b->slot_w[slot],
                        .acc2 = ones,
                        .g = b->slot_g[slot] };
    DO(b->ops->round_grad(b->compute, &g, &b->err));
    DO(mt_record(b->compute, used[slot], &b->err));
    DO(mt_record(b->compute, made[slot], &b->err));
    DO(mt_wait(b->out, made[slot], &b->err));
    DO(mt_copy(b->out, b->host_g[u], b->slot_g[slot], b->unit_bytes, MT_COPY_OUT, &b->err));
    DO(mt_record(b->out, l->landed[u], &b->err));
    pthread_mutex_lock(&l->lock);
    l->queued[u] = step;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* w becomes w + (w + 1) a step: from 0 that is 2^S - 1, exact in fp32. */
static int check_loop(bench *b)
{
    float want = (float)((1 << N_STEPS) - 1);
    for (int u = 0; u < N_UNITS; u++)
        for (size_t i = 0; i < b->unit_bytes / sizeof(float); i++)
            if (b->host_w[u][i] != want) {
                printf("WRONG: unit %d, weight %zu is %g, expected %g\n", u, i, (double)b->host_w[u][i], (double)want);
                return 1;
            }
    printf("loop of %d steps: every weight of %d units is %g, as it must be\n", N_STEPS, N_UNITS, (double)want);
    return 0;
}

static int run_loop(bench *b)
{
    const mt_device_api *api = b->dev->api;
    loop l = { .b = b };
    pthread_mutex_init(&l.lock, NULL);
    pthread_cond_init(&l.changed, NULL);
    mt_event *fetched[2], *used[2], *made[2];
    void *ones;
    for (int k = 0; k < 2; k++) {
        DO(api->event_create(b->dev, &fetched[k], &b->err));
        DO(api->event_create(b->dev, &used[k], &b->err));
        DO(api->event_create(b->dev, &made[k], &b->err));
    }
    for (int u = 0; u < N_UNITS; u++) {
        DO(api->event_create(b->dev, &l.landed[u], &b->err));
        memset(b->host_w[u], 0, b->unit_bytes);
        for (size_t i = 0; i < b->unit_bytes / sizeof(float); i++) b->host_g[u][i] = 1.0f;
    }
    DO(mt_device_alloc(b->dev, &ones, b->unit_bytes, "ones", &b->err));
    DO(mt_copy(b->compute, ones, b->host_g[0], b->unit_bytes, MT_COPY_IN, &b->err));
    pthread_t thread;
    double start = now();
    if (pthread_create(&thread, NULL, worker, &l)) return 1;
    for (int step = 1; step <= N_STEPS; step++)
        for (int u = N_UNITS - 1; u >= 0; u--) one_unit(&l, u, step, fetched, used, made, ones);
    pthread_join(thread, NULL);
    printf("loop: %.1f ms a step\n", 1e3 * (now() - start) / N_STEPS);
    for (int k = 0; k < 2; k++) {
        api->event_free(fetched[k]);
        api->event_free(used[k]);
        api->event_free(made[k]);
    }
    for (int u = 0; u < N_UNITS; u++) api->event_free(l.landed[u]);
    return check_loop(b);
}

int main(int argc, char **argv)
{
    bench all = { 0 }, *b = &all;
    b->unit_bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 256) << 20;
    b->rows = argc > 3 ? atoi(argv[3]) : 16384;
    open_all(b, argc > 1 ? argv[1] : "cuda");
    measure_overlap(b);
    int wrong = run_loop(b);
    b->dev->api->stream_free(b->in);
    b->dev->api->stream_free(b->compute);
    b->dev->api->stream_free(b->out);
    b->dev->api->event_free(b->done_in);
    b->dev->api->event_free(b->done_compute);
    b->dev->api->event_free(b->done_out);
    mt_device_close(b->dev);
    return wrong;
}
