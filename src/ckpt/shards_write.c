#include "ckpt/shards_write.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json_write.h"
#include "base/outfile.h"
#include "ckpt/names.h"
#include "ckpt/safetensors_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct declared {
    const char *name;
    mt_dtype dtype;
    int n_dims;
    int64_t shape[MT_ST_MAX_DIMS];
    size_t bytes;
    size_t shard;
} declared;

struct mt_shards_writer {
    char *dir;
    size_t max_bytes;
    mt_arena arena; /* names */
    declared *tensors;
    size_t n_tensors, cap_tensors;
    mt__names names;               /* name -> index in tensors; made by start() */
    mt_safetensors_writer **files; /* NULL: another process writes it */
    size_t n_files;                /* 0 before start() */
    mt_writers *writers;           /* borrowed until start(); NULL: one process */
    int rank, *owners;             /* [n_files] the rank that writes each */
    mt_outfile index;              /* opened by finish(), when there are several files */
};

size_t mt_shards_deal(size_t *shard_of, const size_t *bytes, size_t n, size_t max_shard_bytes)
{
    size_t shard = 0, used = 0;
    for (size_t i = 0; i < n; i++) {
        bool full = max_shard_bytes && used > 0 && (used > max_shard_bytes || bytes[i] > max_shard_bytes - used);
        if (full) {
            shard++;
            used = 0;
        }
        shard_of[i] = shard;
        used += bytes[i];
    }
    return shard + 1;
}

mt_shard_name mt_shards_file_name(size_t shard, size_t n_shards)
{
    mt_shard_name name = { "model.safetensors" };
    if (n_shards > 1) snprintf(name.s, sizeof name.s, "model-%05zu-of-%05zu.safetensors", shard + 1, n_shards);
    return name;
}

mt_rc mt_shards_writer_create(mt_shards_writer **out, const char *dir, size_t max_shard_bytes, mt_err *err)
{
    *out = NULL;
    if (!mt_dir_exists(dir)) return mt_fail(err, MT_ENOENT, "%s is not a directory to write weights to", dir);
    mt_shards_writer *w = mt_calloc(1, sizeof *w);
    if (w) w->dir = mt_strdup(dir);
    if (!w || !w->dir) {
        mt_free(w);
        return mt_no_memory(err, "writing weights to %s", dir);
    }
    w->max_bytes = max_shard_bytes;
    *out = w;
    return MT_OK;
}

mt_rc mt_shards_writer_add(mt_shards_writer *w, const char *name, mt_dtype dtype, int n_dims, const int64_t *shape, mt_err *err)
{
    declared t = { .dtype = dtype, .n_dims = n_dims };
    size_t n;
    if (w->n_files) return mt_fail(err, MT_EINVAL, "tensor \"%s\" is added after writing to %s began", name, w->dir);
    if (!mt_st_size(dtype, n_dims, shape, &n, &t.bytes))
        return mt_fail(err, MT_ERANGE, "tensor \"%s\" has an impossible shape", name);
    MT_TRY(mt_grow(&w->tensors, &w->cap_tensors, w->n_tensors + 1, sizeof *w->tensors, err));
    t.name = mt_arena_strndup(&w->arena, name, strlen(name));
    if (!t.name) return mt_no_memory(err, "writing weights to %s", w->dir);
    if (n_dims > 0) memcpy(t.shape, shape, (size_t)n_dims * sizeof *shape);
    w->tensors[w->n_tensors++] = t;
    return MT_OK;
}

/* Which tensor goes where, by name and by number. */
static mt_rc deal(mt_shards_writer *w, size_t *n_shards, mt_err *err)
{
    size_t *scratch = mt_calloc(w->n_tensors, 2 * sizeof *scratch);
    if (!scratch || !mt__names_init(&w->names, w->n_tensors)) {
        mt_free(scratch);
        return mt_no_memory(err, "writing weights to %s", w->dir);
    }
    size_t *bytes = scratch, *shard_of = scratch + w->n_tensors;
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < w->n_tensors; i++) {
        bytes[i] = w->tensors[i].bytes;
        if (mt__names_add(&w->names, w->tensors[i].name, i) != i)
            rc = mt_fail(err, MT_EINVAL, "tensor \"%s\" is added twice", w->tensors[i].name);
    }
    *n_shards = mt_shards_deal(shard_of, bytes, w->n_tensors, w->max_bytes);
    for (size_t i = 0; i < w->n_tensors; i++) w->tensors[i].shard = shard_of[i];
    mt_free(scratch);
    return rc;
}

/* The owner of every file, by its bytes. */
static mt_rc deal_files(mt_shards_writer *w, mt_err *err)
{
    uint64_t *bytes = mt_calloc(w->n_files, sizeof *bytes);
    w->owners = mt_calloc(w->n_files, sizeof *w->owners);
    if (!bytes || !w->owners) return mt_free(bytes), mt_no_memory(err, "writing weights to %s", w->dir);
    for (size_t i = 0; i < w->n_tensors; i++) bytes[w->tensors[i].shard] += w->tensors[i].bytes;
    for (size_t f = 0; f < w->n_files && w->writers; f++) w->owners[f] = mt_writers_deal(w->writers, bytes[f]);
    w->rank = w->writers ? w->writers->rank : 0;
    w->writers = NULL;
    mt_free(bytes);
    return MT_OK;
}

static bool writes_file(const mt_shards_writer *w, size_t file) { return w->owners[file] == w->rank; }

static mt_rc create_file(mt_shards_writer *w, size_t shard, mt_err *err)
{
    if (!writes_file(w, shard)) return MT_OK;
    char *path = mt_path_join(w->dir, mt_shards_file_name(shard, w->n_files).s);
    if (!path) return mt_no_memory(err, "writing weights to %s", w->dir);
    mt_rc rc = mt_safetensors_writer_create(&w->files[shard], path, err);
    mt_free(path);
    if (!rc) rc = mt_safetensors_writer_meta(w->files[shard], "format", "pt", err); /* transformers refuses files without */
    return rc;
}

/* A model.safetensors that is there already would be read instead of the shards. */
static mt_rc check_not_shadowed(const mt_shards_writer *w, mt_err *err)
{
    char *single = mt_path_join(w->dir, mt_shards_file_name(0, 1).s);
    if (!single) return mt_no_memory(err, "writing weights to %s", w->dir);
    bool there = w->n_files > 1 && mt_file_exists(single);
    mt_free(single);
    if (!there) return MT_OK;
    return mt_fail(err, MT_EINVAL,
                   "%s already holds a model.safetensors, which would be read instead of the %zu files to be written; "
                   "move it away, or write somewhere else",
                   w->dir, w->n_files);
}

mt_rc mt_shards_writer_start(mt_shards_writer *w, mt_err *err)
{
    size_t n = 0;
    if (w->n_files) return mt_fail(err, MT_EINVAL, "writing to %s is started twice", w->dir);
    MT_TRY(deal(w, &n, err));
    w->files = mt_calloc(n, sizeof *w->files);
    if (!w->files) return mt_no_memory(err, "writing weights to %s", w->dir);
    w->n_files = n;
    MT_TRY(check_not_shadowed(w, err));
    MT_TRY(deal_files(w, err));
    for (size_t f = 0; f < n; f++) MT_TRY(create_file(w, f, err));
    for (size_t i = 0; i < w->n_tensors; i++) {
        const declared *t = &w->tensors[i];
        if (writes_file(w, t->shard))
            MT_TRY(mt_safetensors_writer_add(w->files[t->shard], t->name, t->dtype, t->n_dims, t->shape, err));
    }
    for (size_t f = 0; f < n; f++)
        if (writes_file(w, f)) MT_TRY(mt_safetensors_writer_start(w->files[f], err));
    return MT_OK;
}

void mt_shards_writer_share(mt_shards_writer *w, mt_writers *writers) { w->writers = writers; }

int mt_shards_writer_owner(const mt_shards_writer *w, const char *name)
{
    size_t i;
    return mt__names_find(&w->names, name, &i) ? w->owners[w->tensors[i].shard] : -1;
}

size_t mt_shards_writer_count(const mt_shards_writer *w) { return w->n_files; }
int mt_shards_writer_file_owner(const mt_shards_writer *w, size_t file) { return w->owners[file]; }

static mt_rc file_of(const mt_shards_writer *w, mt_safetensors_writer **out, const char *name, mt_err *err)
{
    size_t i;
    if (!mt__names_find(&w->names, name, &i)) return mt_fail(err, MT_EINVAL, "%s: tensor \"%s\" was never added", w->dir, name);
    *out = w->files[w->tensors[i].shard];
    if (!*out) return mt_fail(err, MT_EINTERNAL, "%s: another rank writes tensor \"%s\"", w->dir, name);
    return MT_OK;
}

mt_rc mt_shards_writer_put(mt_shards_writer *w, const char *name, size_t offset, const void *data, size_t n, mt_err *err)
{
    mt_safetensors_writer *file = NULL;
    MT_TRY(file_of(w, &file, name, err));
    return mt_safetensors_writer_put(file, name, offset, data, n, err);
}

mt_rc mt_shards_writer_append(mt_shards_writer *w, const char *name, const void *data, size_t n, mt_err *err)
{
    mt_safetensors_writer *file = NULL;
    MT_TRY(file_of(w, &file, name, err));
    return mt_safetensors_writer_append(file, name, data, n, err);
}

static int by_name(const void *a, const void *b) { return strcmp(((const declared *)a)->name, ((const declared *)b)->name); }

/* As transformers writes it: sorted, two spaces a level. */
static mt_rc put_index(const mt_shards_writer *w, const declared *sorted, mt_str *s, mt_err *err)
{
    mt_json_out j = { .to = s };
    size_t total = 0;
    for (size_t i = 0; i < w->n_tensors; i++) total += sorted[i].bytes;
    mt_json_map(&j, NULL, MT_JSON_LINES);
    mt_json_map(&j, "metadata", MT_JSON_LINES);
    mt_json_put_size(&j, "total_size", total);
    mt_json_end(&j);
    mt_json_map(&j, "weight_map", MT_JSON_LINES);
    for (size_t i = 0; i < w->n_tensors; i++)
        mt_json_put_str(&j, sorted[i].name, mt_shards_file_name(sorted[i].shard, w->n_files).s);
    mt_json_end(&j);
    mt_json_end(&j);
    mt_str_putc(s, '\n');
    return mt_json_done(&j, w->dir, err);
}

/* Written and sealed; publishing it is what makes the shards a model. */
static mt_rc write_index(mt_shards_writer *w, mt_err *err)
{
    mt_str s = { 0 };
    char *path = mt_path_join(w->dir, "model.safetensors.index.json");
    declared *sorted = mt_calloc(w->n_tensors, sizeof *sorted);
    mt_rc rc = path && sorted ? MT_OK : mt_no_memory(err, "writing weights to %s", w->dir);
    if (!rc) {
        memcpy(sorted, w->tensors, w->n_tensors * sizeof *sorted);
        qsort(sorted, w->n_tensors, sizeof *sorted, by_name);
        rc = put_index(w, sorted, &s, err);
    }
    if (!rc) rc = mt_outfile_open(&w->index, path, s.n, err);
    if (!rc) rc = mt_outfile_write(&w->index, 0, s.s, s.n, err);
    if (!rc) rc = mt_outfile_seal(&w->index, err);
    mt_str_free(&s);
    mt_free(sorted);
    mt_free(path);
    return rc;
}

mt_rc mt_shards_writer_finish(mt_shards_writer *w, mt_err *err)
{
    if (w->n_files == 0) return mt_fail(err, MT_EINVAL, "writing to %s was never started", w->dir);
    const bool index = w->n_files > 1 && w->rank == 0;
    for (size_t f = 0; f < w->n_files; f++)
        if (writes_file(w, f)) MT_TRY(mt__safetensors_writer_seal(w->files[f], err));
    if (index) MT_TRY(write_index(w, err));
    mt_rc rc = MT_OK;
    for (size_t f = 0; !rc && f < w->n_files; f++)
        if (writes_file(w, f)) rc = mt__safetensors_writer_publish(w->files[f], err);
    if (!rc && index) rc = mt_outfile_publish(&w->index, err);
    if (rc && w->n_files > 1) { /* half of a model is worse than none */
        mt_outfile_withdraw(&w->index);
        for (size_t f = 0; f < w->n_files; f++)
            if (writes_file(w, f)) mt__safetensors_writer_withdraw(w->files[f]);
    }
    return rc;
}

void mt_shards_writer_free(mt_shards_writer *w)
{
    if (!w) return;
    for (size_t f = 0; f < w->n_files; f++) mt_safetensors_writer_free(w->files[f]);
    mt_outfile_close(&w->index);
    mt__names_deinit(&w->names);
    mt_arena_free(&w->arena);
    mt_free(w->files);
    mt_free(w->owners);
    mt_free(w->tensors);
    mt_free(w->dir);
    mt_free(w);
}
