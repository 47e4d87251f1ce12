#include "ckpt/ckpt_state.h"

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "ckpt/safetensors_write.h"
#include "optim/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char packed_tail[] = ".packed";

static const char *tail_of(const mt_state_io *io, mt_state_kind kind)
{
    if (kind == MT_STATE_PACKED) return packed_tail;
    if (mt_state_is_array(kind)) return mt_optimizer_of(io->form.optimizer)->arrays[kind - MT_STATE_ARRAYS].tail;
    return kind == MT_STATE_HI ? ".hi" : ".lo";
}

static mt_dtype dtype_of(const mt_state_io *io, mt_state_kind kind) { return mt_state_read_type(io->form, kind); }

/* Wider formats come first in a file, so writing them in this order writes the file front to back. */
static const mt_state_kind in_file_order[] = { MT_STATE_ARRAYS, MT_STATE_ARRAYS + 1, MT_STATE_HI, MT_STATE_LO, MT_STATE_PACKED };

static bool is_packed(const mt_weight *w) { return w->packing.form != MT_FORM_NUMBERS; }

typedef struct part {
    int unit;
    const mt_weight *w;
    mt_state_kind kind;
    char name[MT_NAME_BYTES + 32];
} part;

typedef mt_rc (*part_fn)(void *arg, const part *p, mt_err *err);

static mt_rc for_each_part(const mt_model *m, const mt_state_io *io, int unit, part_fn fn, void *arg, mt_err *err)
{
    for (size_t i = 0; i < MT_COUNT(in_file_order); i++)
        for (mt_walk at = mt_walk_units(m, (mt_layer_units){ unit, 1 }); mt_walk_next(&at);) {
            part p = { .unit = unit, .w = at.w, .kind = in_file_order[i] };
            char name[MT_NAME_BYTES];
            if (!mt_state_has(io->form, p.kind) || (p.w->frozen && mt_state_is_array(p.kind))) continue;
            if (p.kind == MT_STATE_PACKED && !is_packed(p.w)) continue;
            mt_weight_name(at.u, p.w, name);
            /* Of the weights that share a tensor of the model, all but the first say where they begin. */
            char from[24] = "";
            if (!mt_weight_leads(at.u, p.w)) snprintf(from, sizeof from, "@%lld", (long long)mt_weight_first_row(at.u, p.w));
            snprintf(p.name, sizeof p.name, "%s%s%s", name, from, tail_of(io, p.kind));
            MT_TRY(fn(arg, &p, err));
        }
    return MT_OK;
}

static mt_state_range range_of(const part *p)
{
    if (p->kind == MT_STATE_PACKED)
        return (mt_state_range){ p->unit, p->kind, (int64_t)p->w->packed_at, (int64_t)mt_packing_bytes(&p->w->packing) };
    return (mt_state_range){ p->unit, p->kind, p->w->offset, p->w->n };
}

/* The shape of its tensor: the weight's, or that of bytes. */
typedef struct part_shape {
    int n_dims;
    int64_t shape[2];
} part_shape;
static part_shape shape_of(const part *p)
{
    if (p->kind == MT_STATE_PACKED) return (part_shape){ 1, { range_of(p).n, 1 } };
    return (part_shape){ p->w->n_dims, { p->w->shape[0], p->w->shape[1] } };
}

static char *file_path(const char *dir, int file) { return mt_asprintf("%s/" MT__CKPT_UNIT, dir, file); }

/* -- files ----------------------------------------------------------------------------------------- */

int mt__ckpt_files(const mt_model *m) { return (int)m->config->L + (m->embed == m->head ? 1 : 2); }

mt_layer_units mt__ckpt_file_units(const mt_model *m, int file)
{
    if (file == 0) return (mt_layer_units){ m->embed, 1 };
    return file <= m->config->L ? m->layers[file - 1] : (mt_layer_units){ m->head, 1 };
}

uint64_t mt__ckpt_file_bytes(const mt_model *m, int file, mt_state_form form)
{
    uint64_t bytes = 0;
    for (mt_walk at = mt_walk_units(m, mt__ckpt_file_units(m, file)); mt_walk_next(&at);) {
        if (is_packed(at.w)) {
            bytes += mt_packing_bytes(&at.w->packing);
            continue;
        }
        size_t each = 0;
        for (mt_state_kind k = 0; k < MT_STATE_KINDS; k++) {
            const bool written = mt_state_is_array(k) ? !at.w->frozen : k != MT_STATE_LO || !at.w->no_low;
            each += written ? mt_state_read_bytes(form, k) : 0;
        }
        bytes += (uint64_t)at.w->n * each;
    }
    return bytes;
}

/* -- writing --------------------------------------------------------------------------------------- */

struct mt__ckpt_file {
    mt_safetensors_writer *file;
    const mt_model *model;
    const mt_state_io *io;
    void *piece;
};
typedef mt__ckpt_file writing;

/* Low halves that are always zero are not written, nor are halves of what is packed. */
static bool is_written(const part *p)
{
    if (is_packed(p->w)) return p->kind == MT_STATE_PACKED;
    return p->kind != MT_STATE_LO || !p->w->no_low;
}

static mt_rc ckpt_state_declare(void *arg, const part *p, mt_err *err)
{
    const writing *w = arg;
    const part_shape s = shape_of(p);
    if (!is_written(p)) return MT_OK;
    return mt_safetensors_writer_add(w->file, p->name, dtype_of(w->io, p->kind), s.n_dims, s.shape, err);
}

static bool all_finite(mt_dtype t, const void *piece, int64_t n)
{
    if (t == MT_DTYPE_I16 || t == MT_DTYPE_U8) return true;
    for (int64_t i = 0; i < n; i++) {
        float x = t == MT_DTYPE_BF16 ? mt_bf16_to_f32(((const uint16_t *)piece)[i]) : ((const float *)piece)[i];
        if (!isfinite(x)) return false;
    }
    return true;
}

static mt_rc ckpt_state_put(void *arg, const part *p, mt_err *err)
{
    const writing *w = arg;
    mt_dtype t = dtype_of(w->io, p->kind);
    if (!is_written(p)) return MT_OK;
    for (int64_t at = 0; at < range_of(p).n; at += MT_STATE_PIECE) {
        mt_state_range r = mt_state_piece(range_of(p), at, MT_STATE_PIECE);
        MT_TRY(w->io->read(w->io->user, r, w->piece, err));
        if (!all_finite(t, w->piece, r.n)) /* C6 */
            return mt_fail(err, MT_ENUMERIC, "\"%s\" holds numbers that are not finite; nothing is saved", p->name);
        MT_TRY(mt_safetensors_writer_append(w->file, p->name, w->piece, (size_t)r.n * mt_dtype_bytes(t), err));
    }
    return MT_OK;
}

static mt_rc start_file(writing *w, const char *path, mt_layer_units units, mt_err *err)
{
    MT_TRY(mt_safetensors_writer_create(&w->file, path, err));
    for (int u = units.first; u < units.first + units.n; u++)
        MT_TRY(for_each_part(w->model, w->io, u, ckpt_state_declare, w, err));
    return mt_safetensors_writer_start(w->file, err);
}

mt_rc mt__ckpt_file_create(mt__ckpt_file **out, const char *dir, const mt_model *m, int file, const mt_state_io *io, mt_err *err)
{
    char *path = file_path(dir, file);
    writing *w = mt_calloc(1, sizeof *w);
    *out = NULL;
    if (w) *w = (writing){ .model = m, .io = io, .piece = mt_malloc(MT_STATE_PIECE * sizeof(float)) };
    mt_rc rc = MT_OK;
    if (!path || !w || !w->piece)
        rc = mt_no_memory(err, "writing the state");
    else
        rc = start_file(w, path, mt__ckpt_file_units(m, file), err);
    mt_free(path);
    if (rc)
        mt__ckpt_file_free(w);
    else
        *out = w;
    return rc;
}

mt_rc mt__ckpt_file_put(mt__ckpt_file *f, int unit, mt_err *err)
{
    return for_each_part(f->model, f->io, unit, ckpt_state_put, f, err);
}
mt_rc mt__ckpt_file_finish(mt__ckpt_file *f, mt_err *err) { return mt_safetensors_writer_finish(f->file, err); }

void mt__ckpt_file_free(mt__ckpt_file *f)
{
    if (!f) return;
    mt_safetensors_writer_free(f->file);
    mt_free(f->piece);
    mt_free(f);
}

mt_rc mt__ckpt_write_file(const char *dir, const mt_model *m, int file, const mt_state_io *io, mt_err *err)
{
    const mt_layer_units units = mt__ckpt_file_units(m, file);
    mt__ckpt_file *f;
    MT_TRY(mt__ckpt_file_create(&f, dir, m, file, io, err));
    mt_rc rc = MT_OK;
    for (int u = units.first; !rc && u < units.first + units.n; u++) rc = mt__ckpt_file_put(f, u, err);
    if (!rc) rc = mt__ckpt_file_finish(f, err);
    mt__ckpt_file_free(f);
    return rc;
}

/* -- reading --------------------------------------------------------------------------------------- */

typedef struct loading {
    const mt_safetensors *file;
    const mt_state_io *io;
    size_t n_found;
} loading;

static mt_rc check_shape(const mt_st_tensor *t, const part *p, mt_dtype expected, mt_err *err)
{
    const part_shape s = shape_of(p);
    bool fits = t->n_dims == s.n_dims;
    for (int d = 0; fits && d < s.n_dims; d++) fits = t->shape[d] == s.shape[d];
    if (fits && t->dtype == expected) return MT_OK;
    if (fits && mt_state_is_array(p->kind))
        return mt_fail(
            err, MT_EINVAL,
            "\"%s\" is stored as %s and this run keeps the optimizer's state as %s: set memory.adam_state back to what it was",
            p->name, mt_dtype_name(t->dtype), mt_dtype_name(expected));
    return mt_fail(err, MT_EINVAL, "\"%s\" is %s %s there and %s %s in this model: the checkpoint is of another model", p->name,
                   mt_dtype_name(t->dtype), mt_st_shape_text(t->n_dims, t->shape).s, mt_dtype_name(expected),
                   mt_st_shape_text(s.n_dims, s.shape).s);
}

/* True if the checkpoint has another part of the weight. */
static bool has_other(const loading *l, const part *p, mt_state_kind kind)
{
    char name[sizeof p->name];
    size_t stem = strlen(p->name) - strlen(tail_of(l->io, p->kind));
    snprintf(name, sizeof name, "%.*s%s", (int)stem, p->name, tail_of(l->io, kind));
    return mt_safetensors_find(l->file, name);
}

/* Only then may its low halves have been left out. */
static bool was_frozen(const loading *l, const part *p) { return !has_other(l, p, MT_STATE_ARRAYS); }

/* The weight was frozen and bf16 when the checkpoint was written. */
static mt_rc load_zeros(const loading *l, const part *p, mt_err *err)
{
    static const int16_t zeros[1 << 12];
    for (int64_t at = 0; at < p->w->n && !p->w->no_low; at += MT_COUNT(zeros))
        MT_TRY(l->io->write(l->io->user, mt_state_piece(range_of(p), at, MT_COUNT(zeros)), zeros, err));
    return MT_OK;
}

static mt_rc ckpt_state_load(void *arg, const part *p, mt_err *err)
{
    loading *l = arg;
    const mt_st_tensor *t = mt_safetensors_find(l->file, p->name);
    /* Packed weights are there as bytes; in a checkpoint that has halves of them, those are compared. */
    if (!t && is_packed(p->w) && has_other(l, p, p->kind == MT_STATE_PACKED ? MT_STATE_HI : MT_STATE_PACKED)) return MT_OK;
    if (!t && has_other(l, p, MT_STATE_PACKED))
        return mt_fail(err, MT_EINVAL,
                       "\"%s\" is not in it: the weight was frozen then, as the model's files pack it; freeze it as the run did",
                       p->name);
    if (!t && mt_state_is_array(p->kind)) {
        mt_info("\"%s\" is not in the checkpoint (frozen then?); it starts at 0", p->name);
        return MT_OK;
    }
    if (!t && p->kind == MT_STATE_LO && was_frozen(l, p)) return load_zeros(l, p, err);
    if (!t) return mt_fail(err, MT_EINVAL, "\"%s\" is not in it: the checkpoint is of another model", p->name);
    MT_TRY(check_shape(t, p, dtype_of(l->io, p->kind), err));
    l->n_found++;
    size_t size = mt_dtype_bytes(t->dtype);
    for (int64_t at = 0; at < range_of(p).n; at += MT_STATE_PIECE) {
        mt_state_range r = mt_state_piece(range_of(p), at, MT_STATE_PIECE);
        const uint8_t *from = t->data + (size_t)at * size;
        if (l->io->wants && !l->io->wants(l->io->user, r)) continue;
        if (!mt_map_fetch(t->map, from, (size_t)r.n * size))
            return mt_fail(err, MT_EIO, "\"%s\" cannot be read: the disk has failed, or the file has become shorter", p->name);
        MT_TRY(l->io->write(l->io->user, r, from, err));
        mt_map_release(t->map, from, (size_t)r.n * size); /* a unit is gigabytes, which no plan has room for */
    }
    return MT_OK;
}

static bool is_master(const char *name) { return mt_ends_with(name, ".hi") || mt_ends_with(name, packed_tail); }

/* Tensors that were not requested: moments of tensors that are frozen now are fine, anything else belongs to another model. */
static mt_rc check_rest(const mt_safetensors *file, size_t n_found, const mt_model *m, mt_layer_units units, mt_err *err)
{
    size_t masters = 0, expected = mt_walk_count(mt_walk_units(m, units));
    for (size_t i = 0; i < mt_safetensors_count(file); i++) masters += is_master(mt_safetensors_at(file, i)->name);
    if (masters == expected) return MT_OK;
    return mt_fail(err, MT_EINVAL,
                   "it has %zu tensors where this model has %zu (%zu parts fit): the checkpoint is of another model", masters,
                   expected, n_found);
}

mt_rc mt__ckpt_load_file(const char *dir, const mt_model *m, int file, const mt_state_io *io, mt_err *err)
{
    const mt_layer_units units = mt__ckpt_file_units(m, file);
    mt_safetensors *from = NULL;
    char *path = file_path(dir, file);
    mt_rc rc = path ? mt_safetensors_open(&from, path, err) : mt_no_memory(err, "reading the state");
    loading l = { .file = from, .io = io };
    for (int u = units.first; !rc && u < units.first + units.n; u++) rc = for_each_part(m, io, u, ckpt_state_load, &l, err);
    if (!rc) rc = check_rest(from, l.n_found, m, units, err);
    if (rc && from) mt_note(err, "%s", path);
    mt_safetensors_close(from);
    mt_free(path);
    return rc;
}
