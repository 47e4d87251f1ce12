/* export.c - the weights of a model directory, tensor by tensor, through one bounded buffer. */
#include "ckpt/export.h"

#include "base/split.h"
#include "ckpt/shards_write.h"

#include <stdio.h>
#include <string.h>

/* One tensor to write: where it lies, what it is called. */
typedef struct item {
    int unit;
    const mt_weight *w;
    char name[MT_NAME_BYTES];
    mt_dtype dtype;
} item;

typedef mt_rc (*item_fn)(void *arg, const item *it, mt_err *err);

static const char *head_name(const mt_model *m)
{
    for (const mt_tensor_row *r = m->config->family->tensors; r->name; r++)
        if (r->role == MT_W_HEAD) return r->name;
    return "";
}

static mt_dtype dtype_of(const mt_export *x, const char *name)
{
    const mt_st_tensor *t = x->source ? mt_shards_find(x->source, name) : NULL;
    mt_dtype d = x->dtype != MT_DTYPE_COUNT ? x->dtype : t ? t->dtype : x->model->config->dtype;
    return d == MT_DTYPE_F64 ? MT_DTYPE_F32 : d; /* masters hold no more */
}

/* Every tensor of the directory, in the order of the files. */
static mt_rc for_each(const mt_export *x, item_fn fn, void *arg, mt_err *err)
{
    const mt_model *m = x->model;
    item it;
    for (it.unit = 0; it.unit < m->n_units; it.unit++)
        for (int k = 0; k < m->units[it.unit].layout->n_weights; k++) {
            it.w = &m->units[it.unit].layout->weights[k];
            mt_weight_name(&m->units[it.unit], it.w, it.name);
            it.dtype = dtype_of(x, it.name);
            MT_TRY(fn(arg, &it, err));
            if (it.w->role != MT_W_EMBED || !m->config->tied || !x->source || !mt_shards_find(x->source, head_name(m))) continue;
            snprintf(it.name, sizeof it.name, "%s", head_name(m)); /* tied, and the source wrote it twice: so do we */
            it.dtype = dtype_of(x, it.name);
            MT_TRY(fn(arg, &it, err));
        }
    return MT_OK;
}

static mt_rc count_bytes(void *arg, const item *it, mt_err *err)
{
    (void)err;
    *(uint64_t *)arg += (uint64_t)it->w->n * mt_dtype_bytes(it->dtype);
    return MT_OK;
}

uint64_t mt_export_bytes(const mt_export *x)
{
    uint64_t bytes = 0;
    mt_err err;
    (void)for_each(x, count_bytes, &bytes, &err);
    return bytes;
}

/* -- weights --------------------------------------------------------------------------------------- */

typedef struct piece {
    float f[MT_STATE_PIECE];
    uint16_t hi[MT_STATE_PIECE];
    int16_t lo[MT_STATE_PIECE];
    unsigned char out[MT_STATE_PIECE * 4];
} piece;

typedef struct writing {
    mt_shards_writer *shards;
    const mt_state_io *io;
    piece *p;
} writing;

static mt_rc declare(void *arg, const item *it, mt_err *err)
{
    const writing *w = arg;
    return mt_shards_writer_add(w->shards, it->name, it->dtype, it->w->n_dims, it->w->shape, err);
}

static mt_rc put(void *arg, const item *it, mt_err *err)
{
    const writing *w = arg;
    piece *p = w->p;
    for (int64_t first = 0; first < it->w->n; first += MT_STATE_PIECE) {
        int64_t n = mt_min_i64(MT_STATE_PIECE, it->w->n - first), at = it->w->offset + first;
        MT_TRY(w->io->read(w->io->user, it->unit, MT_STATE_HI, at, n, p->hi, err));
        MT_TRY(w->io->read(w->io->user, it->unit, MT_STATE_LO, at, n, p->lo, err));
        if (mt_split_check(p->hi, p->lo, (size_t)n) < (size_t)n)
            return mt_fail(err, MT_ENUMERIC, "tensor \"%s\" holds numbers that are not finite; nothing is saved", it->name);
        mt_join_array(p->f, p->hi, p->lo, (size_t)n);
        mt_from_f32(p->out, it->dtype, p->f, (size_t)n);
        MT_TRY(mt_shards_writer_append(w->shards, it->name, p->out, (size_t)n * mt_dtype_bytes(it->dtype), err));
    }
    return MT_OK;
}

static mt_rc write_weights(const mt_export *x, writing *w, const char *dir, mt_err *err)
{
    MT_TRY(mt_shards_writer_create(&w->shards, dir, x->max_shard_bytes, err));
    MT_TRY(for_each(x, declare, w, err));
    MT_TRY(mt_shards_writer_start(w->shards, err));
    MT_TRY(for_each(x, put, w, err));
    return mt_shards_writer_finish(w->shards, err);
}

mt_rc mt_export_write(const mt_export *x, const mt_state_io *io, const char *dir, mt_err *err)
{
    writing w = { .io = io, .p = mt_malloc(sizeof *w.p) };
    if (!w.p) return mt_fail(err, MT_ENOMEM, "no host memory to convert weights");
    mt_rc rc = write_weights(x, &w, dir, err);
    mt_shards_writer_free(w.shards);
    mt_free(w.p);
    return rc ? rc : mt__export_files(x, dir, err);
}
