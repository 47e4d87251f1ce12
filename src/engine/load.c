#include "engine/load.h"

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/split.h"
#include "engine/internal.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1 << 14, HELD = 8 << 20 }; /* numbers converted at a time; of a mapped file in memory at a time */

typedef struct halves {
    uint16_t hi[PIECE];
    int16_t lo[PIECE];
    float f[PIECE];
} halves;

/* Numbers that no split can hold become NaN: a run on them stops at the first loss, with the warning above it. */
static size_t split_with_nans(halves *h, size_t n)
{
    size_t n_bad = 0;
    for (size_t i = 0; i < n; i++) {
        if (mt_split_ok(h->f[i]))
            mt_split(h->f[i], &h->hi[i], &h->lo[i]);
        else
            h->hi[i] = MT_ADAMW_BAD_HI, h->lo[i] = 0, n_bad++;
    }
    return n_bad;
}

static mt_rc write_piece(mt_engine *e, int unit, const halves *h, int64_t at, size_t n, mt_err *err)
{
    MT_TRY(mt_engine_write(e, unit, MT_STATE_HI, at, (int64_t)n, h->hi, err));
    mt_rc rc = mt_engine_write(e, unit, MT_STATE_LO, at, (int64_t)n, h->lo, err);
    return rc == MT_EINVAL ? MT_OK : rc; /* a plan that only runs bf16 forward keeps no lo */
}

static mt_rc load_tensor(mt_engine *e, int unit, const mt_weight *w, const mt_st_tensor *t, halves *h, mt_err *err)
{
    size_t n_bad = 0;
    for (int64_t first = 0; first < w->n; first += PIECE) {
        size_t n = (size_t)mt_min_i64(PIECE, w->n - first);
        for (int64_t i = 0, run; i < (int64_t)n; i += run) {
            int64_t at = mt_slice_place(w, first + i, &run);
            run = mt_min_i64(run, (int64_t)n - i);
            mt_st_read(t, (size_t)at, (size_t)run, h->f + i);
        }
        n_bad += split_with_nans(h, n);
        MT_TRY(write_piece(e, unit, h, w->offset + first, n, err));
        bool enough = (first / PIECE + 1) % (HELD / PIECE) == 0 || first + PIECE >= w->n;
        if (t->data && enough) mt_map_release(t->data, t->bytes); /* an embedding is gigabytes, which no plan has room for */
    }
    if (n_bad) mt_warn("tensor \"%s\": %zu of %lld numbers are not finite; training on them will not work", t->name, n_bad, (long long)w->n);
    return MT_OK;
}

static mt_rc for_each_weight(const mt_model *m, mt_err *err, mt_rc (*fn)(void *, int, const mt_weight *, const char *, mt_err *), void *arg)
{
    for (int u = 0; u < m->n_units; u++)
        for (int k = 0; k < m->units[u].layout->n_weights; k++) {
            char name[MT_NAME_BYTES];
            mt_weight_name(&m->units[u], &m->units[u].layout->weights[k], name);
            MT_TRY(fn(arg, u, &m->units[u].layout->weights[k], name, err));
        }
    return MT_OK;
}

typedef struct loader {
    mt_engine *e;
    const mt_shards *shards;
    halves *h;
    uint64_t seed;
    double deviation;
    bool one_plus;
} loader;

/* Remember where it lies. */
static mt_rc map_one(mt_engine *e, int unit, const mt_weight *w, const mt_st_tensor *t, mt_err *err)
{
    unit_state *s = &e->units[unit];
    const mt_layout *l = mt__layout(e, unit);
    if (!t->data || t->dtype != MT_DTYPE_BF16 || !mt_slice_is_plain(w)) return mt_fail(err, MT_EINVAL, "tensor \"%s\" is not bf16 as it lies: it cannot be mapped", t->name);
    if (!s->mapped) s->mapped = mt_calloc((size_t)l->n_weights, sizeof *s->mapped);
    if (!s->mapped) return mt_fail(err, MT_ENOMEM, "no host memory for the places of weights");
    s->mapped[w - l->weights] = t->data;
    return MT_OK;
}

static mt_rc load_one(void *arg, int unit, const mt_weight *w, const char *name, mt_err *err)
{
    loader *l = arg;
    if (l->e->plan->job.mapped && mt__place(l->e, unit)->home == MT_HOST) return map_one(l->e, unit, w, mt_shards_find(l->shards, name), err);
    return load_tensor(l->e, unit, w, mt_shards_find(l->shards, name), l->h, err);
}

static float fresh(const loader *l, const mt_weight *w, uint64_t stream, int64_t i)
{
    switch (w->role) {
    case MT_W_NORM1:
    case MT_W_POST1:
    case MT_W_NORM2:
    case MT_W_POST2:
    case MT_W_Q_NORM:
    case MT_W_K_NORM:
    case MT_W_FINAL_NORM: return l->one_plus ? 0.0f : 1.0f;
    default: return w->n_dims > 1 ? (float)l->deviation * mt_rng_normal(l->seed, stream, (uint64_t)i) : 0.0f;
    }
}

static mt_rc init_one(void *arg, int unit, const mt_weight *w, const char *name, mt_err *err)
{
    loader *l = arg;
    uint64_t stream = mt_hash(name, strlen(name), (uint64_t)w->slice.first); /* roles that share a tensor differ */
    for (int64_t first = 0; first < w->n; first += PIECE) {
        size_t n = (size_t)mt_min_i64(PIECE, w->n - first);
        for (size_t i = 0; i < n; i++) l->h->f[i] = fresh(l, w, stream, first + (int64_t)i);
        split_with_nans(l->h, n);
        MT_TRY(write_piece(l->e, unit, l->h, w->offset + first, n, err));
    }
    return MT_OK;
}

static mt_rc run(loader *l, const mt_model *model, mt_rc (*fn)(void *, int, const mt_weight *, const char *, mt_err *), mt_err *err)
{
    l->h = mt_malloc(sizeof *l->h);
    if (!l->h) return mt_fail(err, MT_ENOMEM, "no host memory to convert weights");
    mt_rc rc = for_each_weight(model, err, fn, l);
    mt_free(l->h);
    return rc;
}

mt_rc mt_engine_load(mt_engine *e, const mt_model *model, const mt_shards *shards, mt_err *err)
{
    MT_TRY(mt_weights_check(model, shards, NULL, err));
    return run(&(loader){ .e = e, .shards = shards }, model, load_one, err);
}

mt_rc mt_engine_init(mt_engine *e, const mt_model *model, uint64_t seed, mt_err *err)
{
    return run(&(loader){ .e = e, .seed = seed, .deviation = model->config->init_range, .one_plus = model->config->norm_one_plus }, model, init_one, err);
}
