#include "ckpt/safetensors_write.h"

#include "base/arena.h"
#include "base/json_write.h"
#include "base/outfile.h"
#include "base/utf8.h"
#include "ckpt/names.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, HEADER_ALIGNMENT = 8 };

typedef struct entry {
    const char *name;
    mt_dtype dtype;
    int n_dims;
    int64_t shape[MT_ST_MAX_DIMS];
    size_t order; /* of declaration */
    size_t bytes;
    size_t offset;           /* in the data; set by start() */
    atomic_size_t n_written; /* bytes put so far */
} entry;

struct mt_safetensors_writer {
    char *path;
    mt_arena arena; /* names */
    entry *entries; /* in the order of declaration; after start(), in the order of the file */
    size_t n_entries, cap_entries;
    mt_str meta;          /* of the file: a map of texts, closed by start(); empty: there are none */
    mt_json_out metadata; /* writes it */
    mt__names names;      /* name -> index in entries; made by start() */
    size_t header_bytes;  /* with its length: where the data begins */
    mt_outfile file;
    bool started;
};

mt_rc mt_safetensors_writer_create(mt_safetensors_writer **out, const char *path, mt_err *err)
{
    *out = NULL;
    mt_safetensors_writer *w = mt_calloc(1, sizeof *w);
    if (w) w->path = mt_strdup(path);
    if (!w || !w->path) {
        mt_free(w);
        return mt_no_memory(err, "writing %s", path);
    }
    *out = w;
    return MT_OK;
}

mt_rc mt_safetensors_writer_meta(mt_safetensors_writer *w, const char *key, const char *value, mt_err *err)
{
    if (w->started) return mt_fail(err, MT_EINVAL, "%s: metadata \"%s\" comes after the header was written", w->path, key);
    w->metadata.to = &w->meta;
    if (!w->meta.n) mt_json_map(&w->metadata, NULL, MT_JSON_TIGHT);
    mt_json_put_str(&w->metadata, key, value);
    return mt_str_ok(&w->meta) ? MT_OK : mt_no_memory(err, "writing %s", w->path);
}

mt_rc mt_safetensors_writer_add(mt_safetensors_writer *w, const char *name, mt_dtype dtype, int n_dims, const int64_t *shape,
                                mt_err *err)
{
    entry e = { .dtype = dtype, .n_dims = n_dims, .order = w->n_entries };
    size_t n;
    if (w->started) return mt_fail(err, MT_EINVAL, "%s: tensor \"%s\" is added after the header was written", w->path, name);
    if (!mt_utf8_valid(name, strlen(name), NULL) || strcmp(name, "__metadata__") == 0)
        return mt_fail(err, MT_EINVAL, "%s: \"%s\" cannot be the name of a tensor", w->path, name);
    if (!mt_st_size(dtype, n_dims, shape, &n, &e.bytes))
        return mt_fail(err, MT_ERANGE, "%s: tensor \"%s\" has an impossible shape", w->path, name);
    MT_TRY(mt_grow(&w->entries, &w->cap_entries, w->n_entries + 1, sizeof *w->entries, err));
    e.name = mt_arena_strndup(&w->arena, name, strlen(name));
    if (!e.name) return mt_no_memory(err, "writing %s", w->path);
    if (n_dims > 0) memcpy(e.shape, shape, (size_t)n_dims * sizeof *shape);
    w->entries[w->n_entries++] = e;
    return MT_OK;
}

static int by_place(const void *pa, const void *pb)
{
    const entry *a = pa, *b = pb;
    size_t wide_a = mt_dtype_bytes(a->dtype), wide_b = mt_dtype_bytes(b->dtype);
    if (wide_a != wide_b) return wide_a > wide_b ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

/* Order and offsets; *data_bytes is the sum. */
static mt_rc lay_out(mt_safetensors_writer *w, size_t *data_bytes, mt_err *err)
{
    size_t at = 0;
    if (w->n_entries) qsort(w->entries, w->n_entries, sizeof *w->entries, by_place);
    if (!mt__names_init(&w->names, w->n_entries)) return mt_no_memory(err, "writing %s", w->path);
    for (size_t i = 0; i < w->n_entries; i++) {
        entry *e = &w->entries[i];
        if (mt__names_add(&w->names, e->name, i) != i)
            return mt_fail(err, MT_EINVAL, "%s: tensor \"%s\" is added twice", w->path, e->name);
        e->offset = at;
        if (!mt_add_size(at, e->bytes, &at) || at > INT64_MAX / 2)
            return mt_fail(err, MT_ERANGE, "%s would be larger than any file", w->path);
    }
    *data_bytes = at;
    return MT_OK;
}

static void put_header(const mt_safetensors_writer *w, mt_json_out *j)
{
    mt_json_map(j, NULL, MT_JSON_TIGHT);
    if (w->meta.n) mt_json_put_raw(j, "__metadata__", w->meta.s);
    for (size_t i = 0; i < w->n_entries; i++) {
        const entry *e = &w->entries[i];
        mt_json_map(j, e->name, MT_JSON_TIGHT);
        mt_json_put_str(j, "dtype", mt_dtype_st_name(e->dtype));
        mt_json_list(j, "shape", MT_JSON_TIGHT);
        for (int k = 0; k < e->n_dims; k++) mt_json_put_int(j, NULL, e->shape[k]);
        mt_json_end(j);
        mt_json_list(j, "data_offsets", MT_JSON_TIGHT);
        mt_json_put_size(j, NULL, e->offset);
        mt_json_put_size(j, NULL, e->offset + e->bytes);
        mt_json_end(j);
        mt_json_end(j);
    }
    mt_json_end(j);
}

/* The length comes first and is known last: eight bytes are kept for it. */
static mt_rc build_header(const mt_safetensors_writer *w, mt_str *h, mt_err *err)
{
    mt_json_out j = { .to = h };
    mt_str_add(h, "\0\0\0\0\0\0\0", LENGTH_BYTES);
    put_header(w, &j);
    while (mt_str_ok(h) && h->n % HEADER_ALIGNMENT) mt_str_putc(h, ' ');
    MT_TRY(mt_json_done(&j, w->path, err));
    uint64_t n = h->n - LENGTH_BYTES;
    if (n > MT_ST_MAX_HEADER_BYTES)
        return mt_fail(err, MT_ERANGE, "%s: names and metadata take %llu bytes, and no reader accepts more than %d", w->path,
                       (unsigned long long)n, MT_ST_MAX_HEADER_BYTES);
    for (int i = 0; i < LENGTH_BYTES; i++) h->s[i] = (char)(n >> 8 * i & 0xff);
    return MT_OK;
}

mt_rc mt_safetensors_writer_start(mt_safetensors_writer *w, mt_err *err)
{
    size_t data_bytes = 0;
    mt_str h = { 0 };
    if (w->started) return mt_fail(err, MT_EINVAL, "%s is started twice", w->path);
    w->started = true;
    if (w->meta.n) mt_json_end(&w->metadata);
    mt_rc rc = lay_out(w, &data_bytes, err);
    if (!rc) rc = build_header(w, &h, err);
    if (!rc) rc = mt_outfile_open(&w->file, w->path, h.n + data_bytes, err);
    if (!rc) rc = mt_outfile_write(&w->file, 0, h.s, h.n, err);
    w->header_bytes = h.n;
    mt_str_free(&h);
    return rc;
}

static mt_rc safetensors_write_find(mt_safetensors_writer *w, entry **out, const char *name, mt_err *err)
{
    size_t i;
    if (!w->file.opened || w->file.sealed) return mt_fail(err, MT_EINVAL, "%s is not open for tensors", w->path);
    if (!mt__names_find(&w->names, name, &i)) return mt_fail(err, MT_EINVAL, "%s: tensor \"%s\" was never added", w->path, name);
    *out = &w->entries[i];
    return MT_OK;
}

static mt_rc safetensors_write_put(mt_safetensors_writer *w, entry *e, size_t offset, const void *data, size_t n, mt_err *err)
{
    if (offset > e->bytes || n > e->bytes - offset)
        return mt_fail(err, MT_EINVAL, "%s: tensor \"%s\" has %zu bytes, and %zu are put at %zu", w->path, e->name, e->bytes, n,
                       offset);
    MT_TRY(mt_outfile_write(&w->file, w->header_bytes + e->offset + offset, data, n, err));
    atomic_fetch_add(&e->n_written, n);
    return MT_OK;
}

mt_rc mt_safetensors_writer_put(mt_safetensors_writer *w, const char *name, size_t offset, const void *data, size_t n,
                                mt_err *err)
{
    entry *e = NULL;
    MT_TRY(safetensors_write_find(w, &e, name, err));
    return safetensors_write_put(w, e, offset, data, n, err);
}

mt_rc mt_safetensors_writer_append(mt_safetensors_writer *w, const char *name, const void *data, size_t n, mt_err *err)
{
    entry *e = NULL;
    MT_TRY(safetensors_write_find(w, &e, name, err));
    return safetensors_write_put(w, e, atomic_load(&e->n_written), data, n, err);
}

mt_rc mt__safetensors_writer_seal(mt_safetensors_writer *w, mt_err *err)
{
    if (!w->file.opened || w->file.sealed) return mt_fail(err, MT_EINVAL, "%s is not open: there is nothing to finish", w->path);
    for (size_t i = 0; i < w->n_entries; i++) {
        const entry *e = &w->entries[i];
        size_t n = atomic_load(&e->n_written);
        if (n != e->bytes)
            return mt_fail(err, MT_EINVAL, "%s: %zu of the %zu bytes of tensor \"%s\" were written", w->path, n, e->bytes,
                           e->name);
    }
    return mt_outfile_seal(&w->file, err);
}

mt_rc mt__safetensors_writer_publish(mt_safetensors_writer *w, mt_err *err) { return mt_outfile_publish(&w->file, err); }
void mt__safetensors_writer_withdraw(mt_safetensors_writer *w) { mt_outfile_withdraw(&w->file); }

mt_rc mt_safetensors_writer_finish(mt_safetensors_writer *w, mt_err *err)
{
    MT_TRY(mt__safetensors_writer_seal(w, err));
    return mt__safetensors_writer_publish(w, err);
}

void mt_safetensors_writer_free(mt_safetensors_writer *w)
{
    if (!w) return;
    mt_outfile_close(&w->file);
    mt__names_deinit(&w->names);
    mt_arena_free(&w->arena);
    mt_str_free(&w->meta);
    mt_free(w->entries);
    mt_free(w->path);
    mt_free(w);
}
