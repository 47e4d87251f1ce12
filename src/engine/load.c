/* load.c - loads weights into an engine.  Several threads read or generate them piece by piece, split them into halves and write
 * them to their homes. */
#include "engine/load.h"

#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/split.h"
#include "base/spread.h"
#include "engine/internal.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 19 };   /* numbers a thread takes at a time; it then releases their pages */
enum { STRETCH = 1 << 18 }; /* numbers it splits and writes at a time: few enough for a core's cache, enough for a fast copy */
enum { MOST_THREADS = 16 }; /* each holds a piece of a file in memory that no plan counts */

/* A weight and its source. */
typedef struct source {
    int unit;
    const mt_weight *w;
    const mt_st_tensor *tensor;         /* in a file; NULL: generated */
    int64_t slab;                       /* first number of its part of the tensor */
    uint64_t stream;                    /* stream of its random numbers */
    int64_t first_piece, n_pieces;      /* index of its first piece, among all of the loader's */
    atomic_int_least64_t n_read, n_bad; /* pieces read so far; numbers that do not fit a split */
} source;

typedef struct loader {
    mt_engine *e;
    const mt_shards *shards; /* NULL: generated */
    void (*numbers)(const struct loader *l, const source *s, int64_t first, int64_t n, float *out);
    uint64_t seed;
    const mt_config *config; /* for generated weights */
    source *sources;
    size_t n_sources;
    int64_t n_pieces;
    int n_threads;
} loader;

/* -- a stretch ------------------------------------------------------------------------------------- */

typedef struct halves {
    uint16_t hi[STRETCH];
    int16_t lo[STRETCH];
} halves;

/* Numbers that do not fit a split become NaN and are counted (refuse_nans).  Branch-free, so that it vectorizes. */
static int64_t split_with_nans(const float *f, uint16_t *hi, int16_t *lo, int64_t n)
{
    int32_t n_bad = 0;
    for (int64_t i = 0; i < n; i++) {
        bool ok = mt_split_ok(f[i]);
        uint16_t h;
        int16_t l;
        mt_split(f[i], &h, &l);
        hi[i] = ok ? h : MT_ADAMW_BAD_HI;
        lo[i] = ok ? l : 0;
        n_bad += !ok;
    }
    return n_bad;
}

static void convert(const loader *l, source *s, int64_t first, int64_t n, halves *h)
{
    float f[1 << 12];
    int64_t n_bad = 0;
    for (int64_t at = 0, some; at < n; at += some) {
        some = mt_min_i64(MT_COUNT(f), n - at);
        l->numbers(l, s, first + at, some, f);
        n_bad += split_with_nans(f, h->hi + at, h->lo + at, some);
    }
    if (n_bad) atomic_fetch_add(&s->n_bad, n_bad);
}

/* r: the range of the high halves. */
static mt_rc write_halves(mt_engine *e, mt_state_range r, const halves *h, mt_err *err)
{
    MT_TRY(mt_engine_write(e, r, h->hi, err));
    r.kind = MT_STATE_LO;
    mt_rc rc = mt_engine_write(e, r, h->lo, err);
    return rc == MT_EINVAL ? MT_OK : rc; /* a plan that only runs bf16 forward keeps no lo */
}

/* -- a piece --------------------------------------------------------------------------------------- */

static int piece_is_in(const void *key, const void *element)
{
    const int64_t i = *(const int64_t *)key;
    const source *s = element;
    return i < s->first_piece ? -1 : i >= s->first_piece + s->n_pieces;
}

/* The weight of piece i, and its numbers [*first, *first + *n). */
static source *find_piece(const loader *l, int64_t i, int64_t *first, int64_t *n)
{
    source *s = bsearch(&i, l->sources, l->n_sources, sizeof *s, piece_is_in);
    *first = (i - s->first_piece) * PIECE;
    *n = mt_min_i64(PIECE, s->w->n - *first);
    return s;
}

/* True if a piece's bytes are contiguous, or nearly: not in a transposed tensor, or in one that a decoder reads. */
static bool lies_in_one_place(const source *s) { return s->tensor->data && !s->w->slice.transposed; }

static const uint8_t *place_of(const source *s, int64_t i)
{
    int64_t run;
    return s->tensor->data + (size_t)(s->slab + mt_weight_place(s->w, i, &run)) * mt_dtype_bytes(s->tensor->dtype);
}

/* The bytes of numbers [first, first + n). */
static size_t span_of(const source *s, int64_t first, int64_t n)
{
    return (size_t)(place_of(s, first + n - 1) - place_of(s, first)) + mt_dtype_bytes(s->tensor->dtype);
}

static void expect_piece(const loader *l, int64_t i)
{
    int64_t first, n;
    const source *s = i < l->n_pieces ? find_piece(l, i, &first, &n) : NULL;
    if (!s || !s->tensor || !lies_in_one_place(s)) return;
    mt_map_expect(s->tensor->map, place_of(s, first), span_of(s, first, n));
}

static mt_rc fetch_piece(const source *s, int64_t first, int64_t n, mt_err *err)
{
    if (!s->tensor || !lies_in_one_place(s) || mt_map_fetch(s->tensor->map, place_of(s, first), span_of(s, first, n)))
        return MT_OK;
    return mt_fail(err, MT_EIO,
                   "%s: tensor \"%s\" cannot be read: the disk has failed, or the file has become shorter; check the disk "
                   "(dmesg), or download the file again",
                   s->tensor->file, s->tensor->name);
}

/* Releases pages early, because an embedding can be gigabytes.  Weights scattered over their tensor (or their expert's part) or
 * file are released with the last piece. */
static void let_go(source *s, int64_t first, int64_t n)
{
    const mt_st_tensor *t = s->tensor;
    bool last = atomic_fetch_add(&s->n_read, 1) == s->n_pieces - 1;
    if (lies_in_one_place(s))
        mt_map_release(t->map, place_of(s, first), span_of(s, first, n));
    else if (last && t->data)
        mt_map_release(t->map, t->data + (size_t)s->slab * mt_dtype_bytes(t->dtype),
                       (size_t)mt_slice_slab(&s->w->slice) * mt_dtype_bytes(t->dtype));
    else if (last)
        mt_map_release(t->map, t->map->data, t->map->size);
}

static mt_rc move_piece(const loader *l, source *s, int64_t first, int64_t n, halves *h, mt_err *err)
{
    for (int64_t at = 0, some; at < n; at += some) {
        some = mt_min_i64(STRETCH, n - at);
        convert(l, s, first + at, some, h);
        MT_TRY(write_halves(l->e, (mt_state_range){ s->unit, MT_STATE_HI, s->w->offset + first + at, some }, h, err));
    }
    return MT_OK;
}

static mt_rc load_piece(void *arg, int64_t i, mt_err *err)
{
    loader *l = arg;
    int64_t first, n;
    source *s = find_piece(l, i, &first, &n);
    expect_piece(l, i + l->n_threads); /* roughly when this thread is done */
    MT_TRY(fetch_piece(s, first, n, err));
    halves *h = mt_malloc(sizeof *h); /* more than a small stack holds */
    mt_rc rc = h ? move_piece(l, s, first, n, h, err) : mt_no_memory(err, "loading weights");
    mt_free(h);
    if (!rc && s->tensor) let_go(s, first, n);
    return rc;
}

/* -- from files ------------------------------------------------------------------------------------ */

static void numbers_of_tensor(const loader *l, const source *s, int64_t first, int64_t n, float *out)
{
    (void)l;
    const mt_tensor_slice *slice = &s->w->slice;
    for (int64_t i = 0, run; i < n; i += run) {
        int64_t at = s->slab + mt_weight_place(s->w, first + i, &run);
        if (slice->transposed) run = s->w->shape[1] - (first + i) % s->w->shape[1]; /* to the end of the row */
        run = mt_min_i64(run, n - i);
        if (slice->transposed)
            mt_st_read_every(s->tensor, (size_t)at, (size_t)slice->slab[1], (size_t)run, out + i);
        else
            mt_st_read(s->tensor, (size_t)at, (size_t)run, out + i);
    }
}

/* Remembers the weight's address in the file. */
static mt_rc map_one(mt_engine *e, const mt_walk *at, const mt_st_tensor *t, mt_err *err)
{
    if (!t->data || t->dtype != MT_DTYPE_BF16 || !mt_weight_is_plain(at->w))
        return mt_fail(err, MT_EINVAL, "tensor \"%s\" is not stored as plain bf16, so it cannot be mapped", t->name);
    const size_t slab = (size_t)mt_weight_slab(at->u, at->w) * mt_dtype_bytes(t->dtype);
    return mt_state_map(e->state, at->unit, (int)(at->w - at->u->layout->weights), t->data + slab, err);
}

/* -- generated weights ---------------------------------------------------------------------------------- */

/* As transformers' _init_weights: norms at their neutral value, biases and the padding's row zero, everything else random. */
static float fresh(const loader *l, const mt_weight *w, uint64_t stream, int64_t i)
{
    const mt_config *c = l->config;
    double deviation = c->init_range;
    switch (w->role) {
    case MT_W_NORM0:
    case MT_W_NORM1:
    case MT_W_POST1:
    case MT_W_NORM2:
    case MT_W_POST2:
    case MT_W_Q_NORM:
    case MT_W_K_NORM:
    case MT_W_FINAL_NORM: return c->norm_one_plus ? 0.0f : 1.0f;
    case MT_W_DELTA_NORM:
    case MT_W_Q_A_NORM:
    case MT_W_KV_A_NORM:
    case MT_B_DELTA_DT: return 1.0f;
    case MT_W_DELTA_A_LOG: return (float)log(0.01 + 15.99 * mt_rng_uniform(l->seed, stream, (uint64_t)i)); /* never -infinity */
    case MT_W_ALPHA_P: return (float)log(expm1(0.8));
    case MT_W_ALPHA_N: return (float)log(expm1(0.8 - (double)MT_XIELU_BETA));
    case MT_W_EMBED:
        if (i / c->D == c->pad_id) return 0.0f;
        break;
    case MT_W_O:
    case MT_W_DELTA_OUT:
    case MT_W_DOWN:
    case MT_W_E_DOWN:
    case MT_W_S_DOWN: deviation *= c->init_branch; break;
    case MT_W_SINKS: return (float)deviation * mt_rng_normal(l->seed, stream, (uint64_t)i);
    default: break;
    }
    return w->n_dims > 1 ? (float)deviation * mt_rng_normal(l->seed, stream, (uint64_t)i) : 0.0f;
}

/* Stream of a weight's random numbers: different for roles that share a tensor. */
static uint64_t stream_of(const mt_walk *at)
{
    char name[MT_NAME_BYTES];
    mt_weight_name(at->u, at->w, name);
    return mt_hash(name, strlen(name), (uint64_t)mt_weight_first_row(at->u, at->w));
}

static void fresh_numbers(const loader *l, const source *s, int64_t first, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = fresh(l, s->w, s->stream, first + i);
}

/* -- all of them ----------------------------------------------------------------------------------- */

static mt_rc add_weight(loader *l, const mt_walk *at, mt_err *err)
{
    const mt_st_tensor *t = l->shards ? mt_weights_find(l->shards, at) : NULL;
    if (t && !at->w->exact && l->e->plan->job.mapped && l->e->plan->place.units[at->unit].home == MT_HOST)
        return map_one(l->e, at, t, err);
    source *s = &l->sources[l->n_sources++];
    s->unit = at->unit;
    s->w = at->w;
    s->tensor = t;
    s->slab = mt_weight_slab(at->u, at->w);
    s->stream = stream_of(at);
    s->first_piece = l->n_pieces;
    s->n_pieces = (at->w->n + PIECE - 1) / PIECE;
    l->n_pieces += s->n_pieces;
    return MT_OK;
}

static mt_rc list_weights(loader *l, const mt_model *m, mt_err *err)
{
    size_t n = mt_walk_count(mt_walk_model(m));
    l->sources = mt_calloc(n, sizeof *l->sources);
    if (!l->sources) return mt_no_memory(err, "a list of %zu weights", n);
    for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);) MT_TRY(add_weight(l, &at, err));
    return MT_OK;
}

/* Such weights are useless: every loss and every logit would be NaN. */
static mt_rc refuse_nans(const loader *l, mt_err *err)
{
    for (const source *s = l->sources; s < l->sources + l->n_sources; s++)
        if (s->n_bad && s->tensor)
            return mt_fail(err, MT_ENUMERIC,
                           "%s: tensor \"%s\": %lld of %lld numbers are not finite (NaN, infinite or too large): the weights are "
                           "damaged, or come from a failed training run; download them again, or use an earlier checkpoint",
                           s->tensor->file, s->tensor->name, (long long)s->n_bad, (long long)s->w->n);
    return MT_OK;
}

static mt_rc run(loader *l, const mt_model *model, mt_err *err)
{
    mt_rc rc = list_weights(l, model, err);
    l->n_threads = (int)mt_min_i64(mt_cpu_count(), MOST_THREADS);
    if (!rc) rc = mt_spread(l->n_threads, l->n_pieces, load_piece, l, err);
    if (!rc) rc = refuse_nans(l, err);
    mt_free(l->sources);
    return rc;
}

/* transformers warns of these, too: the model that was saved computed something that this one does not. */
static mt_rc name_strays(const mt_model *model, const mt_shards *shards, mt_err *err)
{
    mt_strays strays;
    MT_TRY(mt_weights_strays(&strays, model, shards, err));
    if (strays.n)
        mt_warn("nothing computes with tensor \"%s\": a %s model with this config.json has none (such tensors in all: %zu).\n"
                "  Does config.json belong to these weights?",
                strays.first, model->config->family->name, strays.n);
    return MT_OK;
}

mt_rc mt_engine_load(mt_engine *e, const mt_model *model, const mt_shards *shards, mt_err *err)
{
    size_t n_unused;
    MT_TRY(mt_weights_check(model, shards, &n_unused, err));
    if (n_unused) MT_TRY(name_strays(model, shards, err));
    return run(&(loader){ .e = e, .shards = shards, .numbers = numbers_of_tensor }, model, err);
}

mt_rc mt_engine_init(mt_engine *e, const mt_model *model, uint64_t seed, mt_err *err)
{
    return run(&(loader){ .e = e, .numbers = fresh_numbers, .seed = seed, .config = model->config }, model, err);
}
