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
typedef struct source source;
struct source {
    int unit;
    const mt_weight *w;
    const mt_st_tensor *tensor;    /* in a file; NULL: generated */
    int64_t slab;                  /* first number of its part of the tensor */
    uint64_t stream;               /* stream of its random numbers */
    uint8_t *packed;               /* where it is kept packed; NULL: as halves */
    mt_st_rows rows;               /* packed: of its tensor */
    int64_t piece;                 /* numbers of a piece: packed, whole rows and tiles */
    int64_t first_piece, n_pieces; /* index of its first piece, among all of the loader's */
    atomic_int_least64_t n_bad;    /* numbers that do not fit a split */
    /* Pieces that are scattered over their slab (the tensor, or an expert's part of it) need all of its bytes, which other
     * weights may need too.  The first of those weights counts for all: */
    source *first;               /* NULL: each piece has its own bytes */
    int64_t n_sharing;           /* pieces that read the slab */
    atomic_int_least64_t n_read; /* pieces read so far */
    atomic_bool fetched;
};

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
    bool only_packed;
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
        hi[i] = ok ? h : MT_UPDATE_BAD_HI;
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
    return mt_state_takes(e->state, r) ? mt_engine_write(e, r, h->lo, err) : MT_OK;
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
    *first = (i - s->first_piece) * s->piece;
    *n = mt_min_i64(s->piece, s->w->n - *first);
    return s;
}

static bool is_scattered(const source *s)
{
    return s->w->slice.transposed || (s->tensor->decoder && s->tensor->decoder->scattered);
}

/* The bytes that numbers [first, first + n) are read from. */
static int spans_of(const source *s, int64_t first, int64_t n, mt_st_span out[MT_ST_SPANS])
{
    int64_t run, from = s->slab, end = s->slab + mt_slice_slab(&s->w->slice);
    if (!s->first) {
        from = s->slab + mt_weight_place(s->w, first, &run);
        end = s->slab + mt_weight_place(s->w, first + n - 1, &run) + 1;
    }
    return mt_st_spans(s->tensor, (size_t)from, (size_t)(end - from), out);
}

/* True once the slab of a scattered weight is in memory; it stays there until its last piece is read. */
static bool is_fetched(const source *s) { return s->first && atomic_load(&s->first->fetched); }

static void expect_piece(const loader *l, int64_t i)
{
    int64_t first, n;
    mt_st_span at[MT_ST_SPANS];
    const source *s = i < l->n_pieces ? find_piece(l, i, &first, &n) : NULL;
    if (!s || !s->tensor || is_fetched(s)) return;
    for (int k = spans_of(s, first, n, at); k-- > 0;) mt_map_expect(at[k].map, at[k].from, at[k].n);
}

static mt_rc fetch_piece(const source *s, int64_t first, int64_t n, mt_err *err)
{
    mt_st_span at[MT_ST_SPANS];
    if (!s->tensor || is_fetched(s)) return MT_OK;
    for (int k = spans_of(s, first, n, at); k-- > 0;)
        if (!mt_map_fetch(at[k].map, at[k].from, at[k].n))
            return mt_fail(err, MT_EIO,
                           "%s: tensor \"%s\" cannot be read: the disk has failed, or the file has become shorter; check the "
                           "disk (dmesg), or download the file again",
                           s->tensor->file, s->tensor->name);
    if (s->first) atomic_store(&s->first->fetched, true);
    return MT_OK;
}

/* Releases pages early, because an embedding can be gigabytes. */
static void let_go(const source *s, int64_t first, int64_t n)
{
    mt_st_span at[MT_ST_SPANS];
    if (s->first && atomic_fetch_add(&s->first->n_read, 1) < s->first->n_sharing - 1) return;
    for (int k = spans_of(s, first, n, at); k-- > 0;) mt_map_release(at[k].map, at[k].from, at[k].n);
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

/* Numbers that would not fit a split are refused, as those that are split. */
static void count_bad(const loader *l, source *s, int64_t first, int64_t n)
{
    float f[1 << 12];
    int64_t n_bad = 0;
    for (int64_t at = 0, some; at < n; at += some) {
        some = mt_min_i64(MT_COUNT(f), n - at);
        l->numbers(l, s, first + at, some, f);
        for (int64_t i = 0; i < some; i++) n_bad += !mt_split_ok(f[i]);
    }
    if (n_bad) atomic_fetch_add(&s->n_bad, n_bad);
}

/* Rows of a packed weight. */
static void pack_piece(const loader *l, source *s, int64_t first, int64_t n)
{
    const int64_t columns = s->w->shape[1];
    s->tensor->decoder->pack(s->tensor->decoder, &s->rows, &s->w->packing, first / columns, n / columns, s->packed);
    count_bad(l, s, first, n);
    mt__engine_wrote(l->e, (size_t)n * 4);
}

static mt_rc load_piece(void *arg, int64_t i, mt_err *err)
{
    loader *l = arg;
    int64_t first, n;
    source *s = find_piece(l, i, &first, &n);
    expect_piece(l, i + l->n_threads); /* roughly when this thread is done */
    MT_TRY(fetch_piece(s, first, n, err));
    if (s->packed) {
        pack_piece(l, s, first, n);
        let_go(s, first, n);
        return MT_OK;
    }
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

/* The weights of a slab are in one unit. */
static void find_sharing(const loader *l, source *s)
{
    if (!s->tensor || !is_scattered(s)) return;
    s->first = s;
    for (source *o = s; o-- > l->sources && o->unit == s->unit;)
        if (o->tensor == s->tensor && o->slab == s->slab) {
            s->first = o->first;
            break;
        }
    s->first->n_sharing += s->n_pieces;
}

static mt_rc add_weight(loader *l, const mt_walk *at, mt_err *err)
{
    const mt_st_tensor *t = l->shards ? mt_weights_find(l->shards, at) : NULL;
    const bool packed = at->w->packing.form != MT_FORM_NUMBERS;
    if (l->only_packed && !packed) return MT_OK;
    if (t && !at->w->exact && l->e->plan->job.mapped && l->e->plan->place.units[at->unit].home == MT_HOST)
        return map_one(l->e, at, t, err);
    source *s = &l->sources[l->n_sources++];
    s->unit = at->unit;
    s->w = at->w;
    s->tensor = t;
    s->slab = mt_weight_slab(at->u, at->w);
    s->stream = stream_of(at);
    s->first_piece = l->n_pieces;
    s->piece = PIECE;
    if (packed) {
        const int64_t tile = at->w->shape[1] * at->w->packing.block_rows;
        MT_TRY(mt__engine_packed(l->e, at->unit, &s->packed, err));
        s->packed += at->w->packed_at;
        s->rows = mt_weights_rows(at->u, at->w);
        s->piece = mt_max_i64(1, PIECE / tile) * tile;
    }
    s->n_pieces = (at->w->n + s->piece - 1) / s->piece;
    l->n_pieces += s->n_pieces;
    find_sharing(l, s);
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

mt_rc mt_engine_load_packed(mt_engine *e, const mt_model *model, const mt_shards *shards, mt_err *err)
{
    return run(&(loader){ .e = e, .shards = shards, .numbers = numbers_of_tensor, .only_packed = true }, model, err);
}

mt_rc mt_engine_init(mt_engine *e, const mt_model *model, uint64_t seed, mt_err *err)
{
    return run(&(loader){ .e = e, .numbers = fresh_numbers, .seed = seed, .config = model->config }, model, err);
}
