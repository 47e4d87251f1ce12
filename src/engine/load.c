#include "engine/load.h"

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/split.h"
#include "engine/internal.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1 << 14, PIECES = 64 }; /* numbers a thread converts at a time; pieces that are written together */
enum { HELD = 8 * PIECE * PIECES };     /* numbers of a mapped file that stay in memory at a time: an embedding is gigabytes, which no plan has room for */

typedef struct halves {
    uint16_t hi[PIECE * PIECES];
    int16_t lo[PIECE * PIECES];
} halves;

typedef struct loader {
    mt_engine *e;
    const mt_shards *shards;
    mt_pool *pool;
    halves *h;
    uint64_t seed;
    double deviation;
    bool one_plus;
} loader;

/* A weight on its way into the engine: where its numbers come from, and the run of them that is converted now. */
typedef struct source {
    const loader *l;
    const mt_weight *w;
    void (*numbers)(const struct source *s, int64_t first, int64_t n, float *out);
    const mt_st_tensor *tensor; /* of a file */
    uint64_t stream;            /* of random numbers */
    int64_t first, n;
    atomic_size_t n_bad;
} source;

/* Numbers that no split can hold become NaN: a run on them stops at the first loss, with the warning above it. */
static size_t split_with_nans(const float *f, uint16_t *hi, int16_t *lo, int64_t n)
{
    size_t n_bad = 0;
    for (int64_t i = 0; i < n; i++) {
        if (mt_split_ok(f[i]))
            mt_split(f[i], &hi[i], &lo[i]);
        else
            hi[i] = MT_ADAMW_BAD_HI, lo[i] = 0, n_bad++;
    }
    return n_bad;
}

static void convert_piece(void *arg, int64_t i)
{
    source *s = arg;
    float f[PIECE];
    int64_t at = i * PIECE, n = mt_min_i64(PIECE, s->n - at);
    s->numbers(s, s->first + at, n, f);
    size_t n_bad = split_with_nans(f, s->l->h->hi + at, s->l->h->lo + at, n);
    if (n_bad) atomic_fetch_add(&s->n_bad, n_bad);
}

static mt_rc write_halves(mt_engine *e, int unit, const halves *h, int64_t at, int64_t n, mt_err *err)
{
    MT_TRY(mt_engine_write(e, unit, MT_STATE_HI, at, n, h->hi, err));
    mt_rc rc = mt_engine_write(e, unit, MT_STATE_LO, at, n, h->lo, err);
    return rc == MT_EINVAL ? MT_OK : rc; /* a plan that only runs bf16 forward keeps no lo */
}

/* All of a weight: converted by all threads, written in order. */
static mt_rc fill_weight(source *s, int unit, mt_err *err)
{
    for (s->first = 0; s->first < s->w->n; s->first += s->n) {
        s->n = mt_min_i64(PIECE * PIECES, s->w->n - s->first);
        mt_pool_for(s->l->pool, (s->n + PIECE - 1) / PIECE, convert_piece, s);
        MT_TRY(write_halves(s->l->e, unit, s->l->h, s->w->offset + s->first, s->n, err));
        if (s->tensor && s->tensor->data && ((s->first + s->n) % HELD == 0 || s->first + s->n == s->w->n)) mt_map_release(s->tensor->data, s->tensor->bytes);
    }
    return MT_OK;
}

/* -- from files ------------------------------------------------------------------------------------ */

static void numbers_of_tensor(const source *s, int64_t first, int64_t n, float *out)
{
    for (int64_t i = 0, run; i < n; i += run) {
        int64_t at = mt_slice_place(s->w, first + i, &run);
        run = mt_min_i64(run, n - i);
        mt_st_read(s->tensor, (size_t)at, (size_t)run, out + i);
    }
}

static mt_rc load_tensor(const loader *l, int unit, const mt_weight *w, const mt_st_tensor *t, mt_err *err)
{
    source s = { .l = l, .w = w, .numbers = numbers_of_tensor, .tensor = t };
    MT_TRY(fill_weight(&s, unit, err));
    if (s.n_bad) mt_warn("tensor \"%s\": %zu of %lld numbers are not finite; training on them will not work", t->name, (size_t)s.n_bad, (long long)w->n);
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
    return load_tensor(l, unit, w, mt_shards_find(l->shards, name), err);
}

/* -- from nothing ---------------------------------------------------------------------------------- */

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

static void fresh_numbers(const source *s, int64_t first, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = fresh(s->l, s->w, s->stream, first + i);
}

static mt_rc init_one(void *arg, int unit, const mt_weight *w, const char *name, mt_err *err)
{
    uint64_t stream = mt_hash(name, strlen(name), (uint64_t)w->slice.first); /* roles that share a tensor differ */
    return fill_weight(&(source){ .l = arg, .w = w, .numbers = fresh_numbers, .stream = stream }, unit, err);
}

static mt_rc run(loader *l, const mt_model *model, mt_rc (*fn)(void *, int, const mt_weight *, const char *, mt_err *), mt_err *err)
{
    l->h = mt_malloc(sizeof *l->h);
    if (!l->h) return mt_fail(err, MT_ENOMEM, "no host memory to convert weights");
    mt_rc rc = mt_pool_create(&l->pool, mt_cpu_count(), err);
    if (!rc) rc = for_each_weight(model, err, fn, l);
    mt_pool_free(l->pool);
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
