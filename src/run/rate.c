#include "run/rate.h"

#include "base/mem.h"
#include "base/rng.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 12, WARM = 4, RUN = 65521 }; /* RUN random numbers, repeated: a prime, so that no two rows are equal */

typedef struct yardstick {
    mt_device *dev;
    mt_stream *stream;
    mt_event *at[ROUNDS + 1];
    void *host, *x, *w, *y;
    int64_t n; /* all matrices are n x n */
} yardstick;

/* Random numbers, not zeros, which a GPU multiplies faster than real data. */
static mt_rc rate_fill(yardstick *k, mt_dtype t, mt_err *err)
{
    size_t bytes = (size_t)(k->n * k->n) * mt_dtype_bytes(t);
    void *const to[] = { k->x, k->w };
    size_t run = mt_dtype_bytes(t) * RUN;
    for (int64_t i = 0; i < RUN; i++) {
        float r = mt_rng_normal(7, 0, (uint64_t)i);
        if (t == MT_DTYPE_BF16)
            ((uint16_t *)k->host)[i] = mt_f32_to_bf16(r);
        else
            ((float *)k->host)[i] = r;
    }
    for (size_t at = run; at < bytes; at += run) memcpy((char *)k->host + at, k->host, bytes - at < run ? bytes - at : run);
    for (size_t i = 0; i < MT_COUNT(to); i++) MT_TRY(mt_copy(k->stream, to[i], k->host, bytes, MT_COPY_IN, err));
    return MT_OK;
}

static mt_rc set_up(yardstick *k, mt_dtype t, mt_err *err)
{
    const mt_device_api *api = k->dev->api;
    size_t bytes = (size_t)(k->n * k->n) * mt_dtype_bytes(t);
    MT_TRY(api->stream_create(k->dev, &k->stream, "yardstick", err));
    for (int i = 0; i <= ROUNDS; i++) MT_TRY(api->timed_event_create(k->dev, &k->at[i], err));
    MT_TRY(api->host_alloc(k->dev, &k->host, bytes, "a random matrix", err));
    MT_TRY(api->alloc(k->dev, &k->x, bytes, "a matrix", err));
    MT_TRY(api->alloc(k->dev, &k->w, bytes, "a matrix", err));
    MT_TRY(api->alloc(k->dev, &k->y, bytes, "a matrix", err));
    return rate_fill(k, t, err);
}

static void tear_down(yardstick *k)
{
    const mt_device_api *api = k->dev->api;
    api->stream_free(k->stream);
    for (int i = 0; i <= ROUNDS; i++) api->event_free(k->at[i]);
    api->host_free(k->dev, k->host);
    api->free(k->dev, k->x);
    api->free(k->dev, k->w);
    api->free(k->dev, k->y);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static mt_rc rate_measure(yardstick *k, mt_dtype t, double *out, mt_err *err)
{
    double seconds[ROUNDS];
    const mt_linear product = { .t = t, .M = k->n, .N = k->n, .K = k->n, .x = k->x, .w = k->w, .y = k->y };
    for (int i = -WARM; i < ROUNDS; i++) {
        if (i >= 0) MT_TRY(mt_record(k->stream, k->at[i], err));
        MT_TRY(mt_ops_of(k->dev)->linear_fwd(k->stream, &product, err));
    }
    MT_TRY(mt_record(k->stream, k->at[ROUNDS], err));
    MT_TRY(mt_sync(k->at[ROUNDS], err));
    for (int i = 0; i < ROUNDS; i++)
        seconds[i] = 1e-9 * (double)(k->dev->api->event_time(k->at[i + 1]) - k->dev->api->event_time(k->at[i]));
    qsort(seconds, ROUNDS, sizeof seconds[0], by_size);
    *out = 2.0 * (double)k->n * (double)k->n * (double)k->n / seconds[ROUNDS / 2];
    return MT_OK;
}

mt_rc mt_product_rate(mt_device *dev, mt_dtype t, double *out, mt_err *err)
{
    yardstick k = { .dev = dev, .n = dev->api->kind == MT_DEVICE_CPU ? 512 : 8192 };
    mt_rc rc = set_up(&k, t, err);
    if (!rc) rc = rate_measure(&k, t, out, err);
    tear_down(&k);
    return rc;
}
