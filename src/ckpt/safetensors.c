/* safetensors.c - the reader.  Nothing in a file is believed: every number is checked before it is used, and
 * every message names the file and, where there is one, the tensor.  The header is read entry by entry, so memory stays within a
 * few times its size. */
#include "ckpt/safetensors.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/str.h"
#include "base/units.h"
#include "base/value.h"
#include "ckpt/names.h"
#include "ckpt/weight_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, MAX_TENSOR_VALUES = 1000, MAX_META_VALUES = 100000 };

typedef struct meta_pair {
    const char *key, *value;
} meta_pair;

struct mt_safetensors {
    mt_weight_file base; /* tensors by data offset */
    size_t cap_tensors;
    mt_arena arena; /* names and metadata */
    meta_pair *meta;
    size_t n_meta;
    bool has_meta;
    mt__names names; /* name -> index in tensors */
};

static mt_rc bad_tensor(const mt_safetensors *st, const char *name, const char *problem, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT, "%s: tensor \"%s\": %s; the file is damaged", st->base.path, name, problem);
}

static mt_rc read_dtype(const mt_safetensors *st, mt_st_tensor *t, const mt_value *entry, mt_err *err)
{
    const mt_value *v = mt_value_get(entry, "dtype");
    if (!v || v->type != MT_VALUE_STR) return bad_tensor(st, t->name, "it has no \"dtype\"", err);
    char dtype[48];
    snprintf(dtype, sizeof dtype, "%.*s", (int)(v->str.n < 40 ? v->str.n : 40), v->str.s);
    if (mt_dtype_from_st(dtype, &t->dtype)) return MT_OK;
    mt_str known = { 0 };
    for (int i = 0; i < MT_DTYPE_COUNT; i++) mt_str_printf(&known, "%s%s", i ? ", " : "", mt_dtype_st_name((mt_dtype)i));
    mt_rc rc =
        mt_fail(err, MT_EUNSUPPORTED, "%s: tensor \"%s\" has dtype \"%.40s\", which this program does not read (it reads %s)",
                st->base.path, t->name, dtype, mt_str_ok(&known) ? known.s : "F32, BF16, F16 and others");
    mt_str_free(&known);
    return rc;
}

static mt_rc read_shape(const mt_safetensors *st, mt_st_tensor *t, const mt_value *entry, mt_err *err)
{
    const mt_value *shape = mt_value_get(entry, "shape");
    if (!shape || shape->type != MT_VALUE_LIST) return bad_tensor(st, t->name, "it has no \"shape\"", err);
    if (shape->list.n > MT_ST_MAX_DIMS)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: tensor \"%s\" has %zu dimensions, at most %d are read", st->base.path, t->name,
                       shape->list.n, MT_ST_MAX_DIMS);
    t->n_dims = (int)shape->list.n;
    for (int i = 0; i < t->n_dims; i++) {
        const mt_value *dim = &shape->list.items[i];
        if (dim->type != MT_VALUE_INT || dim->i < 0)
            return bad_tensor(st, t->name, "its shape holds something that is not a size", err);
        t->shape[i] = dim->i;
    }
    if (!mt_st_size(t->dtype, t->n_dims, t->shape, &t->n, &t->bytes))
        return bad_tensor(st, t->name, "its shape is larger than any memory", err);
    return MT_OK;
}

/* data and n_data: everything after the header. */
static mt_rc read_offsets(const mt_safetensors *st, mt_st_tensor *t, const mt_value *entry, const uint8_t *data, size_t n_data,
                          mt_err *err)
{
    const mt_value *pair = mt_value_get(entry, "data_offsets");
    if (!pair || pair->type != MT_VALUE_LIST || pair->list.n != 2 || pair->list.items[0].type != MT_VALUE_INT ||
        pair->list.items[1].type != MT_VALUE_INT)
        return bad_tensor(st, t->name, "\"data_offsets\" is not a pair of integers", err);
    int64_t begin = pair->list.items[0].i, end = pair->list.items[1].i;
    if (begin < 0 || end < begin) return bad_tensor(st, t->name, "its data_offsets do not begin before they end", err);
    if ((uint64_t)(end - begin) != t->bytes)
        return mt_fail(err, MT_EFORMAT,
                       "%s: tensor \"%s\": data_offsets span %lld bytes, %s of %s needs %zu; the file is damaged", st->base.path,
                       t->name, (long long)(end - begin), mt_st_shape_text(t->n_dims, t->shape).s, mt_dtype_st_name(t->dtype),
                       t->bytes);
    if ((uint64_t)end > n_data)
        return mt_fail(
            err, MT_EFORMAT,
            "%s: tensor \"%s\" ends at byte %lld of the data and the file holds %zu; the download is incomplete, download the "
            "file again",
            st->base.path, t->name, (long long)end, n_data);
    t->data = data + begin;
    return MT_OK;
}

static mt_rc read_tensor(mt_safetensors *st, const mt_value *name, const mt_value *entry, const uint8_t *data, size_t n_data,
                         mt_err *err)
{
    if (mt_grow(&st->base.tensors, &st->cap_tensors, st->base.n_tensors + 1, sizeof *st->base.tensors, NULL))
        return mt_no_memory(err, "the list of tensors of %s", st->base.path);
    mt_st_tensor *t = &st->base.tensors[st->base.n_tensors];
    *t = (mt_st_tensor){ .file = mt_path_base(st->base.path), .map = &st->base.map };
    t->name = mt_arena_strndup(&st->arena, name->str.s, name->str.n);
    if (!t->name) return mt_no_memory(err, "the list of tensors of %s", st->base.path);
    if (entry->type != MT_VALUE_MAP) return bad_tensor(st, t->name, "its entry is not an object", err);
    MT_TRY(read_dtype(st, t, entry, err));
    MT_TRY(read_shape(st, t, entry, err));
    MT_TRY(read_offsets(st, t, entry, data, n_data, err));
    st->base.n_tensors++;
    return MT_OK;
}

static mt_rc read_meta(mt_safetensors *st, const mt_value *meta, mt_err *err)
{
    if (st->has_meta) return mt_fail(err, MT_EFORMAT, "%s: the header names something twice: __metadata__", st->base.path);
    if (meta->type != MT_VALUE_MAP)
        return mt_fail(err, MT_EFORMAT, "%s: __metadata__ is not an object; the file is damaged", st->base.path);
    st->has_meta = true;
    st->meta = mt_arena_calloc(&st->arena, meta->map.n, sizeof *st->meta);
    if (!st->meta) return mt_no_memory(err, "the list of tensors of %s", st->base.path);
    for (size_t i = 0; i < meta->map.n; i++) {
        const mt_pair *p = &meta->map.pairs[i];
        meta_pair *m = &st->meta[st->n_meta++];
        m->key = mt_arena_strndup(&st->arena, p->key, p->key_n);
        if (!m->key) return mt_no_memory(err, "the list of tensors of %s", st->base.path);
        if (p->value.type != MT_VALUE_STR)
            return mt_fail(err, MT_EFORMAT, "%s: __metadata__ \"%.100s\" is not a string", st->base.path, m->key);
        m->value = mt_arena_strndup(&st->arena, p->value.str.s, p->value.str.n);
        if (!m->value) return mt_no_memory(err, "the list of tensors of %s", st->base.path);
    }
    return MT_OK;
}

static int by_offset(const void *pa, const void *pb)
{
    const mt_st_tensor *a = pa, *b = pb;
    if (a->data != b->data) return a->data < b->data ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1; /* empty tensors come before others at the same offset */
    return strcmp(a->name, b->name);
}

/* The tensors, sorted, must cover the data exactly: shared or unused bytes mean that header and data do not belong together. */
static mt_rc check_cover(const mt_safetensors *st, const uint8_t *data, size_t n_data, mt_err *err)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < st->base.n_tensors; i++) {
        const mt_st_tensor *t = &st->base.tensors[i];
        if (t->data < at)
            return mt_fail(err, MT_EFORMAT, "%s: tensors \"%s\" and \"%s\" overlap; the file is damaged", st->base.path,
                           t[-1].name, t->name);
        if (t->data > at) return bad_tensor(st, t->name, "there is a gap before its data", err);
        at += t->bytes;
    }
    size_t used = (size_t)(at - data);
    if (used != n_data)
        return mt_fail(err, MT_EFORMAT, "%s: %zu bytes follow the last tensor; the file is damaged, download it again",
                       st->base.path, n_data - used);
    return MT_OK;
}

static mt_rc header_length(const mt_safetensors *st, size_t *out, mt_err *err)
{
    static const char lfs[] = "version https://git-lfs";
    uint64_t n = 0;
    if (st->base.n_bytes >= sizeof lfs - 1 && memcmp(st->base.bytes, lfs, sizeof lfs - 1) == 0)
        return mt_fail(err, MT_EFORMAT, "%s is a Git LFS pointer, not the file itself; run \"git lfs pull\" in its folder",
                       st->base.path);
    if (st->base.n_bytes < LENGTH_BYTES)
        return mt_fail(err, MT_EFORMAT, "%s: %zu bytes are not a safetensors file; download it again", st->base.path,
                       st->base.n_bytes);
    for (int i = 0; i < LENGTH_BYTES; i++) n |= (uint64_t)st->base.bytes[i] << 8 * i;
    if (n > MT_ST_MAX_HEADER_BYTES)
        return mt_fail(err, MT_EFORMAT, "%s: the header claims %s, at most %s is allowed; this is not a safetensors file",
                       st->base.path, mt_bytes_text(n).s, mt_bytes_text(MT_ST_MAX_HEADER_BYTES).s);
    if (n > st->base.n_bytes - LENGTH_BYTES)
        return mt_fail(
            err, MT_EFORMAT,
            "%s: the header claims %llu bytes and the file has %zu; the download is incomplete, download the file again",
            st->base.path, (unsigned long long)n, st->base.n_bytes);
    *out = (size_t)n;
    return MT_OK;
}

/* -- the header: a JSON object, an entry at a time -------------------------------------------------- */

typedef struct header {
    const char *text;
    size_t n, at;
    mt_value_reader reader;
    mt_arena arena; /* of one entry */
} header;

static mt_rc bad_header(const mt_safetensors *st, const header *h, const char *problem, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT, "%s: the header is not valid JSON (%s at byte %zu); not a safetensors file, or a damaged one",
                   st->base.path, problem, h->at + LENGTH_BYTES);
}

static void skip_space(header *h)
{
    while (h->at < h->n && memchr(" \t\r\n", h->text[h->at], 4)) h->at++;
}

static bool safetensors_take(header *h, char c)
{
    skip_space(h);
    if (h->at == h->n || h->text[h->at] != c) return false;
    h->at++;
    return true;
}

static mt_rc take_value(const mt_safetensors *st, header *h, mt_value *out, mt_err *err)
{
    size_t used;
    mt_err why = { 0 };
    mt_rc rc = mt_value_reader_parse(&h->reader, out, &h->arena, h->text + h->at, h->n - h->at, &used, "it", &why);
    if (rc == MT_ENOMEM) return mt_no_memory(err, "the list of tensors of %s", st->base.path);
    if (rc) return bad_header(st, h, why.msg, err);
    h->at += used;
    return MT_OK;
}

static mt_rc read_entry(mt_safetensors *st, header *h, const uint8_t *data, size_t n_data, mt_err *err)
{
    mt_value name, entry;
    mt_arena_reset(&h->arena);
    MT_TRY(take_value(st, h, &name, err));
    if (name.type != MT_VALUE_STR || memchr(name.str.s, '\0', name.str.n)) return bad_header(st, h, "a name was expected", err);
    if (!safetensors_take(h, ':')) return bad_header(st, h, "':' was expected", err);
    bool meta = mt_value_is(&name, "__metadata__");
    h->reader.max_values = meta ? MAX_META_VALUES : MAX_TENSOR_VALUES;
    MT_TRY(take_value(st, h, &entry, err));
    return meta ? read_meta(st, &entry, err) : read_tensor(st, &name, &entry, data, n_data, err);
}

static mt_rc read_entries(mt_safetensors *st, header *h, const uint8_t *data, size_t n_data, mt_err *err)
{
    if (!safetensors_take(h, '{')) {
        mt_value other;
        MT_TRY(take_value(st, h, &other, err));
        return mt_fail(err, MT_EFORMAT, "%s: the header is not a JSON object; this is not a safetensors file", st->base.path);
    }
    bool empty = safetensors_take(h, '}');
    if (!empty) {
        do MT_TRY(read_entry(st, h, data, n_data, err));
        while (safetensors_take(h, ','));
        if (!safetensors_take(h, '}')) return bad_header(st, h, "',' or '}' was expected", err);
    }
    skip_space(h); /* white space may follow, and nothing else */
    return h->at == h->n ? MT_OK : bad_header(st, h, "something follows its end", err);
}

/* Names are unique, and the tensors cover the data. */
static mt_rc check_entries(mt_safetensors *st, const uint8_t *data, size_t n_data, mt_err *err)
{
    if (!mt__names_init(&st->names, st->base.n_tensors)) return mt_no_memory(err, "the list of tensors of %s", st->base.path);
    if (st->base.n_tensors) qsort(st->base.tensors, st->base.n_tensors, sizeof *st->base.tensors, by_offset);
    for (size_t i = 0; i < st->base.n_tensors; i++)
        if (mt__names_add(&st->names, st->base.tensors[i].name, i) != i)
            return mt_fail(err, MT_EFORMAT, "%s: the header names something twice: %.200s", st->base.path,
                           st->base.tensors[i].name);
    return check_cover(st, data, n_data, err);
}

static mt_rc read_file(mt_weight_file *f, mt_err *err)
{
    mt_safetensors *st = (mt_safetensors *)f;
    size_t n_header = 0;
    MT_TRY(header_length(st, &n_header, err));
    const uint8_t *data = st->base.bytes + LENGTH_BYTES + n_header;
    size_t n_data = st->base.n_bytes - LENGTH_BYTES - n_header;
    header h = { .text = (const char *)st->base.bytes + LENGTH_BYTES, .n = n_header, .reader.unique_keys = true };
    mt_rc rc = read_entries(st, &h, data, n_data, err);
    mt_value_reader_free(&h.reader);
    mt_arena_free(&h.arena);
    return rc ? rc : check_entries(st, data, n_data, err);
}

static void safetensors_deinit(mt_weight_file *f)
{
    mt_safetensors *st = (mt_safetensors *)f;
    mt__names_deinit(&st->names);
    mt_arena_free(&st->arena);
    mt_free(f->tensors);
}

const mt_weight_format mt_format_safetensors = { ".safetensors", sizeof(mt_safetensors), read_file, safetensors_deinit };

mt_rc mt_safetensors_open(mt_safetensors **out, const char *path, mt_err *err)
{
    mt_weight_file *f;
    mt_rc rc = mt_weight_file_open(&f, &mt_format_safetensors, path, err);
    *out = (mt_safetensors *)f;
    return rc;
}

mt_rc mt_safetensors_open_memory(mt_safetensors **out, const void *bytes, size_t n, const char *name, mt_err *err)
{
    mt_weight_file *f;
    mt_rc rc = mt_weight_file_open_memory(&f, &mt_format_safetensors, bytes, n, name, err);
    *out = (mt_safetensors *)f;
    return rc;
}

void mt_safetensors_close(mt_safetensors *st) { mt_weight_file_close((mt_weight_file *)st); }

const char *mt_safetensors_path(const mt_safetensors *st) { return st->base.path; }
size_t mt_safetensors_count(const mt_safetensors *st) { return st->base.n_tensors; }
const mt_st_tensor *mt_safetensors_at(const mt_safetensors *st, size_t i) { return &st->base.tensors[i]; }

const mt_st_tensor *mt_safetensors_find(const mt_safetensors *st, const char *name)
{
    size_t i;
    return mt__names_find(&st->names, name, &i) ? &st->base.tensors[i] : NULL;
}

size_t mt_safetensors_meta_count(const mt_safetensors *st) { return st->n_meta; }

void mt_safetensors_meta_at(const mt_safetensors *st, size_t i, const char **key, const char **value)
{
    *key = st->meta[i].key;
    *value = st->meta[i].value;
}

const char *mt_safetensors_meta(const mt_safetensors *st, const char *key)
{
    for (size_t i = 0; i < st->n_meta; i++)
        if (strcmp(st->meta[i].key, key) == 0) return st->meta[i].value;
    return NULL;
}
