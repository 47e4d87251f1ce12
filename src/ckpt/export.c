/* export.c - the weights of a model directory, tensor by tensor, through one bounded buffer. */
#include "ckpt/export.h"

#include "base/split.h"
#include "base/spread.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A slab of a tensor to write (mostly all of it): its weight, or the first of several, and the name of the tensor. */
typedef struct item {
    int unit;
    const mt_unit *u;
    const mt_weight *w;
    char name[MT_NAME_BYTES];
    mt_dtype dtype;
} item;

typedef mt_rc (*item_fn)(void *arg, const item *it, mt_err *err);

mt_dtype mt__export_unsaid_dtype(const mt_export *x)
{
    const mt_dtype d = x->model->config->dtype;
    if (d == MT_DTYPE_F64) return MT_DTYPE_F32;                        /* masters hold no more */
    return d == MT_DTYPE_F32 || d == MT_DTYPE_F16 ? d : MT_DTYPE_BF16; /* FP8 and integers need scales */
}

static mt_dtype dtype_of(const mt_export *x, const char *name)
{
    const mt_st_tensor *t = x->source ? mt_shards_find(x->source, name) : NULL;
    if (t && t->decoder && t->decoder->stored_as) t = NULL; /* nothing is quantized again */
    mt_dtype d = t ? t->dtype : mt__export_unsaid_dtype(x);
    if (x->dtype != MT_DTYPE_COUNT) d = x->dtype;
    return d == MT_DTYPE_F64 ? MT_DTYPE_F32 : d;
}

static const mt_st_tensor *quantized(const mt_export *x, const char *name)
{
    const mt_st_tensor *t = x->source ? mt_shards_find(x->source, name) : NULL;
    return t && t->decoder && t->decoder->stored_as ? t : NULL;
}

bool mt_export_may_keep(const mt_export *x)
{
    bool any = false;
    char name[MT_NAME_BYTES];
    if (!x->source || !x->model || x->dtype != MT_DTYPE_COUNT) return false;
    for (size_t i = 0; i < mt_shards_count(x->source); i++) {
        const mt_st_tensor *t = mt_shards_at(x->source, i);
        if (t->decoder && t->decoder->stored_as && !t->decoder->n_parts) return false;
    }
    for (mt_walk at = mt_walk_model(x->model); mt_walk_next(&at);) {
        mt_weight_name(at.u, at.w, name);
        const mt_st_tensor *t = quantized(x, name);
        if (t && !at.w->frozen) return false;
        any |= t != NULL;
    }
    return any;
}

bool mt__export_keeps(const mt_export *x, const char *name) { return x->keeps_forms && quantized(x, name); }

/* Every tensor that a unit makes. */
static mt_rc for_each_of(const mt_export *x, int unit, item_fn fn, void *arg, mt_err *err)
{
    const mt_model *m = x->model;
    char head[MT_NAME_BYTES];
    mt_role_name(m->config, &m->names, MT_W_HEAD, head);
    for (mt_walk at = mt_walk_units(m, (mt_layer_units){ unit, 1 }); mt_walk_next(&at);) {
        item it = { .unit = unit, .u = at.u, .w = at.w };
        if (it.w->slice.first) continue; /* written with the first of its slab */
        mt_weight_name(it.u, it.w, it.name);
        if (mt__export_keeps(x, it.name)) continue;
        it.dtype = dtype_of(x, it.name);
        MT_TRY(fn(arg, &it, err));
        if (it.w->role != MT_W_EMBED || !m->tied || !x->source || !mt_shards_find(x->source, head)) continue;
        snprintf(it.name, sizeof it.name, "%s", head); /* tied, and the source wrote it twice: so do we */
        it.dtype = dtype_of(x, it.name);
        MT_TRY(fn(arg, &it, err));
    }
    return MT_OK;
}

static mt_rc for_each(const mt_export *x, item_fn fn, void *arg, mt_err *err)
{
    for (int u = 0; u < x->model->n_units; u++) MT_TRY(for_each_of(x, u, fn, arg, err));
    return MT_OK;
}

static mt_rc count_bytes(void *arg, const item *it, mt_err *err)
{
    (void)err;
    *(uint64_t *)arg += (uint64_t)mt_slice_slab(&it->w->slice) * mt_dtype_bytes(it->dtype);
    return MT_OK;
}

uint64_t mt_export_bytes(const mt_export *x)
{
    uint64_t bytes = 0;
    mt_err err;
    const mt_st_tensor **rest;
    size_t n_rest;
    (void)for_each(x, count_bytes, &bytes, &err);
    if (!mt__export_rest(x, &rest, &n_rest, &err))
        for (size_t i = 0; i < n_rest; i++) bytes += (uint64_t)rest[i]->n * mt_dtype_bytes(mt__export_rest_dtype(x, rest[i]));
    mt_free(rest);
    return bytes;
}

/* -- weights --------------------------------------------------------------------------------------- */

typedef struct piece {
    float f[MT_STATE_PIECE];
    uint16_t hi[MT_STATE_PIECE];
    int16_t lo[MT_STATE_PIECE];
    unsigned char out[MT_STATE_PIECE * 4];
} piece;

struct mt_exporter {
    mt_export x;
    mt_shards_writer *shards;
    const mt_state_io *io; /* borrowed */
    char *dir;
    pthread_mutex_t whole;     /* held by who has a whole tensor in memory: it can be large, and no plan has room for several */
    int rank;                  /* of several processes */
    const mt_st_tensor **rest; /* of the source, no part of the model */
    size_t n_rest;
};

static mt_rc export_declare(void *arg, const item *it, mt_err *err)
{
    const mt_exporter *w = arg;
    if (!mt_weight_leads(it->u, it->w)) return MT_OK; /* the tensor begins with another */
    return mt_shards_writer_add(w->shards, it->name, it->dtype, it->w->slice.n_dims, it->w->slice.shape, err);
}

/* One unit's tensors, on any thread. */
typedef struct unit_writing {
    mt_exporter *w;
    piece *p;
} unit_writing;

/* Numbers [first, first + n) of a weight in the item's dtype, into the piece's out. */
static mt_rc convert(const unit_writing *u, const item *it, const mt_weight *weight, int64_t first, int64_t n, mt_err *err)
{
    const mt_state_io *io = u->w->io;
    piece *p = u->p;
    mt_state_range r = { it->unit, MT_STATE_HI, weight->offset + first, n };
    MT_TRY(io->read(io->user, r, p->hi, err));
    r.kind = MT_STATE_LO;
    MT_TRY(io->read(io->user, r, p->lo, err));
    if (mt_split_check(p->hi, p->lo, (size_t)n) < (size_t)n) /* C6 */
        return mt_fail(err, MT_ENUMERIC, "tensor \"%s\" holds numbers that are not finite; nothing is saved", it->name);
    mt_join_array(p->f, p->hi, p->lo, (size_t)n);
    mt_from_f32(p->out, it->dtype, p->f, (size_t)n);
    return MT_OK;
}

/* Where the item begins in its tensor, in bytes. */
static size_t begin_of(const item *it) { return (size_t)mt_weight_slab(it->u, it->w) * mt_dtype_bytes(it->dtype); }

static mt_rc put_plain(const unit_writing *u, const item *it, mt_err *err)
{
    const size_t size = mt_dtype_bytes(it->dtype), begin = begin_of(it);
    for (int64_t first = 0; first < it->w->n; first += MT_STATE_PIECE) {
        int64_t n = mt_min_i64(MT_STATE_PIECE, it->w->n - first);
        MT_TRY(convert(u, it, it->w, first, n, err));
        MT_TRY(mt_shards_writer_put(u->w->shards, it->name, begin + (size_t)first * size, u->p->out, (size_t)n * size, err));
    }
    return MT_OK;
}

static mt_rc scatter(const unit_writing *u, const item *it, const mt_weight *weight, void *slab, mt_err *err)
{
    for (int64_t first = 0; first < weight->n; first += MT_STATE_PIECE) {
        int64_t n = mt_min_i64(MT_STATE_PIECE, weight->n - first);
        MT_TRY(convert(u, it, weight, first, n, err));
        mt_weight_scatter(weight, slab, mt_dtype_bytes(it->dtype), first, n, u->p->out);
    }
    return MT_OK;
}

/* A slab that holds several weights, or one turned: put together in memory, then written. */
static mt_rc put_fused(const unit_writing *u, const item *it, mt_err *err)
{
    const mt_layout *l = it->u->layout;
    size_t bytes = (size_t)mt_slice_slab(&it->w->slice) * mt_dtype_bytes(it->dtype);
    void *slab = mt_malloc(bytes);
    if (!slab) return mt_no_memory(err, "tensor \"%s\"", it->name);
    mt_rc rc = MT_OK;
    for (int k = (int)(it->w - l->weights); !rc && k < l->n_weights; k = mt_slab_next(l, k))
        rc = scatter(u, it, &l->weights[k], slab, err);
    if (!rc) rc = mt_shards_writer_put(u->w->shards, it->name, begin_of(it), slab, bytes, err);
    mt_free(slab);
    return rc;
}

static mt_rc export_put(void *arg, const item *it, mt_err *err)
{
    const unit_writing *u = arg;
    if (mt_shards_writer_owner(u->w->shards, it->name) != u->w->rank) return MT_OK;
    if (mt_weight_is_plain(it->w)) return put_plain(u, it, err);
    pthread_mutex_lock(&u->w->whole);
    mt_rc rc = put_fused(u, it, err);
    pthread_mutex_unlock(&u->w->whole);
    return rc;
}

static mt_rc start(mt_exporter *w, mt_writers *writers, mt_err *err)
{
    if (!w->dir) return mt_no_memory(err, "writing weights");
    MT_TRY(mt_shards_writer_create(&w->shards, w->dir, w->x.max_shard_bytes, err));
    mt_shards_writer_share(w->shards, writers);
    MT_TRY(for_each(&w->x, export_declare, w, err));
    MT_TRY(mt__export_rest(&w->x, &w->rest, &w->n_rest, err));
    for (size_t i = 0; i < w->n_rest; i++)
        MT_TRY(mt_shards_writer_add(w->shards, w->rest[i]->name, mt__export_rest_dtype(&w->x, w->rest[i]), w->rest[i]->n_dims,
                                    w->rest[i]->shape, err));
    return mt_shards_writer_start(w->shards, err);
}

mt_rc mt_exporter_open(mt_exporter **out, const mt_export *x, const mt_state_io *io, const char *dir, mt_writers *writers,
                       mt_err *err)
{
    *out = NULL;
    mt_exporter *w = mt_calloc(1, sizeof *w);
    if (!w) return mt_no_memory(err, "writing weights to %s", dir);
    *w = (mt_exporter){ .x = *x, .io = io, .dir = mt_strdup(dir), .rank = writers ? writers->rank : 0 };
    pthread_mutex_init(&w->whole, NULL);
    mt_rc rc = start(w, writers, err);
    if (rc)
        mt_exporter_close(w);
    else
        *out = w;
    return rc;
}

typedef struct unit_readers {
    const mt_exporter *w;
    bool *reads;
} unit_readers;

static mt_rc add_reader(void *arg, const item *it, mt_err *err)
{
    const unit_readers *u = arg;
    const int rank = mt_shards_writer_owner(u->w->shards, it->name);
    if (rank < 0) return mt_fail(err, MT_EINTERNAL, "tensor \"%s\" is in no file", it->name);
    u->reads[rank] = true;
    return MT_OK;
}

mt_rc mt_exporter_readers(const mt_exporter *w, int unit, bool *reads, mt_err *err)
{
    return for_each_of(&w->x, unit, add_reader, &(unit_readers){ w, reads }, err);
}

size_t mt_exporter_files(const mt_exporter *w) { return mt_shards_writer_count(w->shards); }
bool mt_exporter_writes(const mt_exporter *w, size_t file) { return mt_shards_writer_file_owner(w->shards, file) == w->rank; }

mt_rc mt_exporter_unit(mt_exporter *w, int unit, mt_err *err)
{
    unit_writing u = { .w = w, .p = mt_malloc(sizeof *u.p) };
    mt_rc rc = u.p ? for_each_of(&w->x, unit, export_put, &u, err) : mt_no_memory(err, "converting weights");
    mt_free(u.p);
    return rc;
}

mt_rc mt_exporter_finish(mt_exporter *w, mt_err *err)
{
    for (size_t i = 0; i < w->n_rest; i++)
        if (mt_shards_writer_owner(w->shards, w->rest[i]->name) == w->rank)
            MT_TRY(mt__export_rest_put(&w->x, w->shards, w->rest[i], err));
    MT_TRY(mt_shards_writer_finish(w->shards, err));
    return w->rank == 0 ? mt__export_files(&w->x, w->dir, err) : MT_OK;
}

void mt_exporter_close(mt_exporter *w)
{
    if (!w) return;
    mt_shards_writer_free(w->shards);
    pthread_mutex_destroy(&w->whole);
    mt_free(w->dir);
    mt_free(w->rest);
    mt_free(w);
}

static mt_rc write_unit(void *exporter, int64_t unit, mt_err *err) { return mt_exporter_unit(exporter, (int)unit, err); }

mt_rc mt_export_write_part(const mt_export *x, const mt_state_io *io, const char *dir, int rank, int n, mt_err *err)
{
    mt_exporter *w = NULL;
    mt_writers writers;
    mt_rc rc = mt_writers_init(&writers, rank, n, err);
    if (!rc) rc = mt_exporter_open(&w, x, io, dir, &writers, err);
    if (!rc) rc = mt_spread(io->n_readers, x->model->n_units, write_unit, w, err);
    if (!rc) rc = mt_exporter_finish(w, err);
    mt_exporter_close(w);
    mt_writers_deinit(&writers);
    return rc;
}

mt_rc mt_export_write(const mt_export *x, const mt_state_io *io, const char *dir, mt_err *err)
{
    return mt_export_write_part(x, io, dir, 0, 1, err);
}
