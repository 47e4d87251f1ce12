/* safetensors.c - the reader.  Nothing in a file is believed: every number is checked before it is used, and
 * every message names the file and, where there is one, the tensor. */
#include "ckpt/safetensors.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "ckpt/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8 };

typedef struct meta_pair {
    const char *key, *value;
} meta_pair;

struct mt_safetensors {
    mt_map map;           /* empty when the bytes are the caller's */
    const uint8_t *bytes; /* the whole file */
    size_t n_bytes;
    char *path;
    mt_arena arena;        /* names and metadata */
    mt_st_tensor *tensors; /* by data offset */
    size_t n_tensors;
    meta_pair *meta;
    size_t n_meta;
    mt__names names; /* name -> index in tensors */
};

static mt_rc no_memory(const mt_safetensors *st, mt_err *err)
{
    return mt_fail(err, MT_ENOMEM, "%s: no host memory for its list of tensors", st->path);
}

static mt_rc bad_tensor(const mt_safetensors *st, const char *name, const char *problem, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT, "%s: tensor \"%s\": %s; the file is damaged", st->path, name, problem);
}

static mt_rc read_dtype(const mt_safetensors *st, mt_st_tensor *t, const json_t *entry, mt_err *err)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype) return bad_tensor(st, t->name, "it has no \"dtype\"", err);
    if (mt_dtype_from_st(dtype, &t->dtype)) return MT_OK;
    mt_str known = { 0 };
    for (int i = 0; i < MT_DTYPE_COUNT; i++) mt_str_printf(&known, "%s%s", i ? ", " : "", mt_dtype_st_name((mt_dtype)i));
    mt_rc rc =
        mt_fail(err, MT_EUNSUPPORTED, "%s: tensor \"%s\" has dtype \"%.40s\", which this program does not read (it reads %s)",
                st->path, t->name, dtype, mt_str_ok(&known) ? known.s : "F32, BF16, F16 and others");
    mt_str_free(&known);
    return rc;
}

static mt_rc read_shape(const mt_safetensors *st, mt_st_tensor *t, const json_t *entry, mt_err *err)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) return bad_tensor(st, t->name, "it has no \"shape\"", err);
    if (json_array_size(shape) > MT_ST_MAX_DIMS)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: tensor \"%s\" has %zu dimensions, at most %d are read", st->path, t->name,
                       json_array_size(shape), MT_ST_MAX_DIMS);
    t->n_dims = (int)json_array_size(shape);
    for (int i = 0; i < t->n_dims; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return bad_tensor(st, t->name, "its shape holds something that is not a size", err);
        t->shape[i] = json_integer_value(dim);
    }
    if (!mt_st_size(t->dtype, t->n_dims, t->shape, &t->n, &t->bytes))
        return bad_tensor(st, t->name, "its shape is larger than any memory", err);
    return MT_OK;
}

/* data and n_data: everything behind the header. */
static mt_rc read_offsets(const mt_safetensors *st, mt_st_tensor *t, const json_t *entry, const uint8_t *data, size_t n_data,
                          mt_err *err)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *a = json_array_get(offsets, 0), *b = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(a) || !json_is_integer(b))
        return bad_tensor(st, t->name, "\"data_offsets\" is not a pair of integers", err);
    int64_t begin = json_integer_value(a), end = json_integer_value(b);
    if (begin < 0 || end < begin) return bad_tensor(st, t->name, "its data_offsets do not begin before they end", err);
    if ((uint64_t)(end - begin) != t->bytes)
        return mt_fail(
            err, MT_EFORMAT, "%s: tensor \"%s\": data_offsets span %lld bytes, %s of %s needs %zu; the file is damaged", st->path,
            t->name, (long long)(end - begin), mt_st_shape_text(t->n_dims, t->shape).s, mt_dtype_st_name(t->dtype), t->bytes);
    if ((uint64_t)end > n_data)
        return mt_fail(
            err, MT_EFORMAT,
            "%s: tensor \"%s\" ends at byte %lld of the data and the file holds %zu; the download is incomplete, download the "
            "file again",
            st->path, t->name, (long long)end, n_data);
    t->data = data + begin;
    return MT_OK;
}

static mt_rc read_tensor(mt_safetensors *st, const char *name, const json_t *entry, const uint8_t *data, size_t n_data,
                         mt_err *err)
{
    mt_st_tensor *t = &st->tensors[st->n_tensors];
    *t = (mt_st_tensor){ .file = mt_path_base(st->path), .map = &st->map };
    t->name = mt_arena_strndup(&st->arena, name, strlen(name));
    if (!t->name) return no_memory(st, err);
    if (!json_is_object(entry)) return bad_tensor(st, name, "its entry is not an object", err);
    MT_TRY(read_dtype(st, t, entry, err));
    MT_TRY(read_shape(st, t, entry, err));
    MT_TRY(read_offsets(st, t, entry, data, n_data, err));
    st->n_tensors++;
    return MT_OK;
}

static mt_rc read_meta(mt_safetensors *st, json_t *meta, mt_err *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(meta))
        return mt_fail(err, MT_EFORMAT, "%s: __metadata__ is not an object; the file is damaged", st->path);
    st->meta = mt_arena_calloc(&st->arena, json_object_size(meta), sizeof *st->meta);
    if (!st->meta) return no_memory(st, err);
    json_object_foreach(meta, key, value)
    {
        if (!json_is_string(value)) return mt_fail(err, MT_EFORMAT, "%s: __metadata__ \"%.100s\" is not a string", st->path, key);
        meta_pair *m = &st->meta[st->n_meta++];
        m->key = mt_arena_strndup(&st->arena, key, strlen(key));
        m->value = mt_arena_strndup(&st->arena, json_string_value(value), json_string_length(value));
        if (!m->key || !m->value) return no_memory(st, err);
    }
    return MT_OK;
}

static int by_offset(const void *pa, const void *pb)
{
    const mt_st_tensor *a = pa, *b = pb;
    if (a->data != b->data) return a->data < b->data ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1; /* empty ones lie before what begins there */
    return strcmp(a->name, b->name);
}

/* The tensors, sorted, must cover the data exactly: two that share bytes, or bytes nobody owns, mean that header
 * and data do not belong together. */
static mt_rc check_cover(const mt_safetensors *st, const uint8_t *data, size_t n_data, mt_err *err)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < st->n_tensors; i++) {
        const mt_st_tensor *t = &st->tensors[i];
        if (t->data < at)
            return mt_fail(err, MT_EFORMAT, "%s: tensors \"%s\" and \"%s\" overlap; the file is damaged", st->path, t[-1].name,
                           t->name);
        if (t->data > at) return bad_tensor(st, t->name, "there is a gap before its data", err);
        at += t->bytes;
    }
    size_t used = (size_t)(at - data);
    if (used != n_data)
        return mt_fail(err, MT_EFORMAT, "%s: %zu bytes follow the last tensor; the file is damaged, download it again", st->path,
                       n_data - used);
    return MT_OK;
}

/* The header's JSON as an object without repeated keys. */
static mt_rc parse_header(const mt_safetensors *st, json_t **out, size_t n_header, mt_err *err)
{
    json_error_t je;
    *out = json_loadb((const char *)st->bytes + LENGTH_BYTES, n_header, JSON_REJECT_DUPLICATES, &je);
    if (json_is_object(*out)) return MT_OK;
    if (*out) return mt_fail(err, MT_EFORMAT, "%s: the header is not a JSON object; this is not a safetensors file", st->path);
    switch (json_error_code(&je)) {
    case json_error_out_of_memory: return no_memory(st, err);
    case json_error_duplicate_key: return mt_fail(err, MT_EFORMAT, "%s: the header names something twice: %s", st->path, je.text);
    default:
        return mt_fail(err, MT_EFORMAT,
                       "%s: the header is not valid JSON (%s at byte %d); not a safetensors file, or a damaged one", st->path,
                       je.text, je.position + LENGTH_BYTES);
    }
}

static mt_rc header_length(const mt_safetensors *st, size_t *out, mt_err *err)
{
    static const char lfs[] = "version https://git-lfs";
    uint64_t n = 0;
    if (st->n_bytes >= sizeof lfs - 1 && memcmp(st->bytes, lfs, sizeof lfs - 1) == 0)
        return mt_fail(err, MT_EFORMAT, "%s is a Git LFS pointer, not the file itself; run \"git lfs pull\" in its folder",
                       st->path);
    if (st->n_bytes < LENGTH_BYTES)
        return mt_fail(err, MT_EFORMAT, "%s: %zu bytes are no safetensors file; download it again", st->path, st->n_bytes);
    for (int i = 0; i < LENGTH_BYTES; i++) n |= (uint64_t)st->bytes[i] << 8 * i;
    if (n > MT_ST_MAX_HEADER_BYTES)
        return mt_fail(err, MT_EFORMAT, "%s: the header claims %s, at most %s is allowed; this is not a safetensors file",
                       st->path, mt_bytes_text(n).s, mt_bytes_text(MT_ST_MAX_HEADER_BYTES).s);
    if (n > st->n_bytes - LENGTH_BYTES)
        return mt_fail(
            err, MT_EFORMAT,
            "%s: the header claims %llu bytes and the file has %zu; the download is incomplete, download the file again",
            st->path, (unsigned long long)n, st->n_bytes);
    *out = (size_t)n;
    return MT_OK;
}

static mt_rc read_entries(mt_safetensors *st, json_t *header, const uint8_t *data, size_t n_data, mt_err *err)
{
    const char *name;
    json_t *entry;
    st->tensors = mt_calloc(json_object_size(header), sizeof *st->tensors);
    if (!st->tensors) return no_memory(st, err);
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            MT_TRY(read_meta(st, entry, err));
        else
            MT_TRY(read_tensor(st, name, entry, data, n_data, err));
    }
    qsort(st->tensors, st->n_tensors, sizeof *st->tensors, by_offset);
    MT_TRY(check_cover(st, data, n_data, err));
    if (!mt__names_init(&st->names, st->n_tensors)) return no_memory(st, err);
    for (size_t i = 0; i < st->n_tensors; i++) mt__names_add(&st->names, st->tensors[i].name, i);
    return MT_OK;
}

/* st holds path and bytes; fill in the rest. */
static mt_rc read_header(mt_safetensors *st, mt_err *err)
{
    size_t n_header = 0;
    json_t *header = NULL;
    MT_TRY(header_length(st, &n_header, err));
    mt_rc rc = parse_header(st, &header, n_header, err);
    size_t at = LENGTH_BYTES + n_header;
    if (!rc) rc = read_entries(st, header, st->bytes + at, st->n_bytes - at, err);
    json_decref(header);
    return rc;
}

static mt_rc create(mt_safetensors **out, const char *path, mt_err *err)
{
    mt_safetensors *st = mt_calloc(1, sizeof *st);
    if (st) st->path = mt_strdup(path);
    if (st && st->path) {
        *out = st;
        return MT_OK;
    }
    mt_free(st);
    *out = NULL;
    return mt_fail(err, MT_ENOMEM, "%s: no host memory to open it", path);
}

mt_rc mt_safetensors_open(mt_safetensors **out, const char *path, mt_err *err)
{
    mt_safetensors *st;
    *out = NULL;
    MT_TRY(create(&st, path, err));
    mt_rc rc = mt_map_open(&st->map, path, err);
    if (!rc) {
        st->bytes = st->map.data;
        st->n_bytes = st->map.size;
        rc = read_header(st, err);
    }
    if (rc) {
        mt_safetensors_close(st);
        return rc;
    }
    *out = st;
    return MT_OK;
}

mt_rc mt_safetensors_open_memory(mt_safetensors **out, const void *bytes, size_t n, const char *name, mt_err *err)
{
    mt_safetensors *st;
    *out = NULL;
    MT_TRY(create(&st, name, err));
    st->bytes = bytes;
    st->n_bytes = n;
    mt_rc rc = read_header(st, err);
    if (rc) {
        mt_safetensors_close(st);
        return rc;
    }
    *out = st;
    return MT_OK;
}

void mt_safetensors_close(mt_safetensors *st)
{
    if (!st) return;
    mt_map_close(&st->map);
    mt__names_deinit(&st->names);
    mt_arena_free(&st->arena);
    mt_free(st->tensors);
    mt_free(st->path);
    mt_free(st);
}

const char *mt_safetensors_path(const mt_safetensors *st) { return st->path; }
size_t mt_safetensors_count(const mt_safetensors *st) { return st->n_tensors; }
const mt_st_tensor *mt_safetensors_at(const mt_safetensors *st, size_t i) { return &st->tensors[i]; }

const mt_st_tensor *mt_safetensors_find(const mt_safetensors *st, const char *name)
{
    size_t i;
    return mt__names_find(&st->names, name, &i) ? &st->tensors[i] : NULL;
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
