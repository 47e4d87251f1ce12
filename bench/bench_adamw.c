/* bench_adamw.c - AdamW on the host: parameters and bytes a second, per implementation and number of threads; then every optimizer,
 * with state in each of its forms.
 *
 *     bench_adamw [millions of parameters] [seconds per line] [threads: only that many, pinned unless MT_PIN=0]
 *     bench_adamw MILLIONS SECONDS copies [DEVICE]      beside copies to and from a device (cuda), by a quarter to all of the cores
 *
 * The arrays are far larger than the caches, and each pass touches all of them, so this measures memory as training meets it. */
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/split.h"
#include "device/device.h"
#include "optim/adamw.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIECE = 1 << 16, BYTES_PER_PARAM = 26, COPY_BYTES = 64 << 20 };

typedef struct job {
    const mt_update_impl *impl; /* of AdamW, in fp32; NULL: the fastest of the optimizer in `form` */
    mt_state_form form;
    mt_update_args args;
} job;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fill_piece(void *arg, int64_t piece)
{
    mt_update_args *a = arg;
    size_t at = (size_t)piece * PIECE;
    for (size_t i = at; i < at + PIECE; i++) {
        uint64_t r = mt_rng_u64(1, 0, i);
        mt_split((float)((int64_t)(r & 0xffff) - 0x8000) * 1e-6f, &a->hi[i], &a->lo[i]);
        a->m[i] = a->v[i] = 0;
        ((uint16_t *)(uintptr_t)a->g)[i] = mt_f32_to_bf16((float)((int64_t)(r >> 48) - 0x8000) * 1e-7f);
    }
}

static void update_piece(void *arg, int64_t piece)
{
    const job *j = arg;
    if (!j->impl) {
        const mt_update_args *all = &j->args;
        const mt_optimizer *o = mt_optimizer_of(j->form.optimizer);
        o->on_host(&(mt_update){ .t = all->g_type,
                                 .moments = j->form.moments,
                                 .n = (int64_t)all->n,
                                 .n_decay = (int64_t)all->n,
                                 .hi = all->hi,
                                 .lo = all->lo,
                                 .m = all->m,
                                 .v = o->n_arrays > 1 ? all->v : NULL,
                                 .g = all->g,
                                 .key = 1,
                                 .coef = all->coef },
                   piece * PIECE, (piece + 1) * PIECE);
        return;
    }
    mt_update_args a = mt__update_rest(&j->args, (size_t)piece * PIECE);
    a.n = PIECE;
    j->impl->update(&a);
}

static void must(mt_rc rc, const mt_err *err)
{
    if (!rc) return;
    fprintf(stderr, "error: %s\n", err->msg);
    exit(1);
}

static double bytes_per_param(mt_state_form form)
{
    const int arrays = mt_optimizer_of(form.optimizer)->n_arrays;
    return BYTES_PER_PARAM - 16 + 2 * arrays * (double)mt_moments_bytes(form.moments, PIECE) / PIECE;
}

static void measure(const job *j, int n_threads, double at_least_s, bool pin)
{
    mt_err err = { 0 };
    mt_pool *pool;
    must(mt_pool_create(&pool, n_threads, &err), &err);
    int bound = pin ? mt_pool_pin(pool) : 0;
    double best = 1e30, begin = seconds();
    for (int pass = 0; pass < 3 || seconds() - begin < at_least_s; pass++) {
        double t = seconds();
        mt_pool_for(pool, (int64_t)(j->args.n / PIECE), update_piece, (void *)(uintptr_t)j);
        t = seconds() - t;
        if (pass > 0 && t < best) best = t;
    }
    mt_pool_free(pool);
    double rate = (double)j->args.n / best * 1e-9;
    printf("%-5s %-9s %2d threads%s  %6.3f Gparam/s  %6.1f GB/s\n", mt_optimizer_of(j->form.optimizer)->name,
           j->impl ? j->impl->name : mt_moments_name(j->form.moments), n_threads, bound ? ", pinned" : "", rate,
           rate * bytes_per_param(j->form));
    fflush(stdout);
}

/* -- beside copies --------------------------------------------------------------------------------- */

/* One direction of the link, copied over and over by a thread until `stop`. */
typedef struct copier {
    mt_copy_dir dir;
    mt_stream *stream;
    mt_event *done;
    void *host, *device;
    atomic_bool *stop;
    int64_t copies;
    pthread_t thread;
} copier;

static void *copy_on(void *arg)
{
    copier *c = arg;
    mt_err err = { 0 };
    const bool in = c->dir == MT_COPY_IN;
    for (c->copies = 0; !atomic_load(c->stop); c->copies++) {
        must(mt_copy(c->stream, in ? c->device : c->host, in ? c->host : c->device, COPY_BYTES, c->dir, &err), &err);
        must(mt_record(c->stream, c->done, &err), &err);
        must(mt_sync(c->done, &err), &err);
    }
    return NULL;
}

/* Passes of updates while both copiers run: the mean over all of them. */
static void measure_beside(const job *j, copier both[2], int n_threads, double at_least_s)
{
    mt_err err = { 0 };
    mt_pool *pool;
    atomic_bool stop = false;
    int passes = 0;
    must(mt_pool_create(&pool, n_threads, &err), &err);
    mt_pool_for(pool, (int64_t)(j->args.n / PIECE), update_piece, (void *)(uintptr_t)j); /* moments that are not zeros */
    double begin = seconds();
    for (int i = 0; i < 2; i++) {
        both[i].stop = &stop;
        if (pthread_create(&both[i].thread, NULL, copy_on, &both[i])) exit(1);
    }
    for (; passes < 3 || seconds() - begin < at_least_s; passes++)
        mt_pool_for(pool, (int64_t)(j->args.n / PIECE), update_piece, (void *)(uintptr_t)j);
    double took = seconds() - begin;
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) pthread_join(both[i].thread, NULL);
    double copied = seconds() - begin, rate = passes * (double)j->args.n / took * 1e-9;
    double in = (double)both[0].copies * COPY_BYTES / copied * 1e-9, out = (double)both[1].copies * COPY_BYTES / copied * 1e-9;
    printf("%-9s %2d threads  %6.3f Gparam/s  %6.1f GB/s, in %.1f, out %.1f, together %.1f GB/s\n",
           mt_moments_name(j->form.moments), n_threads, rate, rate * bytes_per_param(j->form), in, out,
           rate * bytes_per_param(j->form) + in + out);
    fflush(stdout);
    mt_pool_free(pool);
}

static void beside_copies(job *j, const char *device, double at_least_s)
{
    mt_device *dev;
    mt_err err = { 0 };
    copier both[2] = { { .dir = MT_COPY_IN }, { .dir = MT_COPY_OUT } };
    must(mt_device_open(&dev, device, NULL, &err), &err);
    for (int i = 0; i < 2; i++) {
        must(dev->api->stream_create(dev, &both[i].stream, "copies", &err), &err);
        must(dev->api->event_create(dev, &both[i].done, &err), &err);
        must(dev->api->host_alloc(dev, &both[i].host, COPY_BYTES, "copies", &err), &err);
        must(mt_device_alloc(dev, &both[i].device, COPY_BYTES, "copies", &err), &err);
    }
    j->impl = NULL;
    for (j->form.moments = 0; j->form.moments < MT_MOMENTS_FORMS; j->form.moments++) {
        memset(j->args.m, 0, 4 * j->args.n);
        memset(j->args.v, 0, 4 * j->args.n);
        for (int quarters = 1, before = 0; quarters <= 4; quarters++) {
            int threads = mt_cpu_count() * quarters / 4;
            if (threads > before) measure_beside(j, both, threads, at_least_s);
            before = threads;
        }
    }
    for (int i = 0; i < 2; i++) {
        dev->api->free(dev, both[i].device);
        dev->api->host_free(dev, both[i].host);
        dev->api->event_free(both[i].done);
        dev->api->stream_free(both[i].stream);
    }
    mt_device_close(dev);
}

int main(int argc, char **argv)
{
    size_t n = (size_t)(argc > 1 ? atoi(argv[1]) : 64) * 1000000 / PIECE * PIECE;
    double at_least_s = argc > 2 ? atof(argv[2]) : 2;
    mt_update_step step = {
        .lr = 1e-5, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .grad_scale = 0.9, .t = 100
    };
    job j = { .args = { .n = n, .g_type = MT_DTYPE_BF16, .coef = mt_adamw_coef_of(&step) } };
    j.args.hi = mt_malloc(2 * n);
    j.args.lo = mt_malloc(2 * n);
    j.args.m = mt_malloc(4 * n);
    j.args.v = mt_malloc(4 * n);
    j.args.g = mt_malloc(2 * n);
    if (!n || !j.args.hi || !j.args.lo || !j.args.m || !j.args.v || !j.args.g) {
        fprintf(stderr, "no memory for %zu parameters\n", n);
        return 1;
    }
    for (size_t i = 0; i < n / PIECE; i++) fill_piece(&j.args, (int64_t)i);
    printf("%zu parameters, bf16 gradients, %d bytes a parameter\n", n, BYTES_PER_PARAM);
    if (argc > 3 && strcmp(argv[3], "copies") == 0) {
        beside_copies(&j, argc > 4 ? argv[4] : "cuda", at_least_s);
        return 0;
    }
    if (argc > 3) { /* one measurement: threads once bound stay bound */
        for (size_t k = 0; !j.impl && k < mt_adamw_n_impls; k++)
            if (mt_adamw_impls[k].supported()) j.impl = &mt_adamw_impls[k];
        measure(&j, atoi(argv[3]), at_least_s, true);
        return 0;
    }
    for (size_t k = 0; k < mt_adamw_n_impls; k++) {
        j.impl = &mt_adamw_impls[k];
        if (!j.impl->supported()) continue;
        for (int t = 1; t <= mt_cpu_count(); t++) measure(&j, t, at_least_s, false);
    }
    j.impl = NULL;
    for (int i = 0; i < MT_OPTIMIZERS * MT_MOMENTS_FORMS; i++) {
        j.form = (mt_state_form){ (mt_optimizer_kind)(i / MT_MOMENTS_FORMS), (mt_moments)(i % MT_MOMENTS_FORMS) };
        j.args.coef = mt_optimizer_of(j.form.optimizer)->coef(&step);
        memset(j.args.m, 0, 4 * n);
        memset(j.args.v, 0, 4 * n);
        for (int t = 1; t <= mt_cpu_count(); t++) measure(&j, t, at_least_s, false);
    }
    mt_free(j.args.hi);
    mt_free(j.args.lo);
    mt_free(j.args.m);
    mt_free(j.args.v);
    mt_free((void *)(uintptr_t)j.args.g);
    return 0;
}
