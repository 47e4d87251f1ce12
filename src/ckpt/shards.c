#include "ckpt/shards.h"

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "ckpt/names.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

struct mt_shards {
    mt_safetensors **files;
    size_t n_files, cap_files;
    const mt_st_tensor **tensors; /* borrowed from files */
    size_t n_tensors;
    size_t bytes;
    mt__names names; /* name -> index in tensors */
};

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

static mt_rc add_file(mt_shards *s, const char *dir, const char *name, mt_err *err)
{
    MT_TRY(mt_grow(&s->files, &s->cap_files, s->n_files + 1, sizeof *s->files, err));
    char *path = mt_path_join(dir, name);
    if (!path) return mt_fail(err, MT_ENOMEM, "no host memory to open %s", name);
    mt_rc rc = mt_safetensors_open(&s->files[s->n_files], path, err);
    if (!rc) s->n_files++;
    mt_free(path);
    return rc;
}

/* Collect the tensors of all files.  weight_map (or NULL) decides between files that hold the same name. */
static mt_rc collect(mt_shards *s, const json_t *weight_map, mt_err *err)
{
    size_t n = 0;
    for (size_t f = 0; f < s->n_files; f++) n += mt_safetensors_count(s->files[f]);
    s->tensors = mt_calloc(n, sizeof *s->tensors);
    if (!s->tensors || !mt__names_init(&s->names, n))
        return mt_fail(err, MT_ENOMEM, "no host memory for a list of %zu tensors", n);
    for (size_t f = 0; f < s->n_files; f++) {
        for (size_t i = 0; i < mt_safetensors_count(s->files[f]); i++) {
            const mt_st_tensor *t = mt_safetensors_at(s->files[f], i);
            const char *home = json_string_value(json_object_get(weight_map, t->name));
            if (home && strcmp(home, t->file) != 0) continue;
            size_t first = mt__names_add(&s->names, t->name, s->n_tensors);
            if (first != s->n_tensors)
                return mt_fail(err, MT_EFORMAT, "tensor \"%s\" is in %s and in %s, and %s does not say which one counts", t->name,
                               s->tensors[first]->file, t->file, index_name);
            s->tensors[s->n_tensors++] = t;
            s->bytes += t->bytes;
        }
    }
    return MT_OK;
}

/* A name in the index must be a plain file name: anything else could reach outside the directory. */
static bool plain_file_name(const char *name)
{
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return false;
    for (const char *c = name; *c; c++)
        if (*c == '/' || *c == '\\' || (unsigned char)*c < 0x20) return false;
    return ends_with(name, ".safetensors");
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The distinct file names of a weight_map, sorted; they point into it. */
static mt_rc file_names(const char ***out, size_t *n_out, json_t *weight_map, mt_err *err)
{
    const char *tensor;
    json_t *file;
    size_t n = 0, kept = 0;
    const char **names = mt_calloc(json_object_size(weight_map), sizeof *names);
    if (!names) return mt_fail(err, MT_ENOMEM, "%s: no host memory to read it", index_name);
    json_object_foreach(weight_map, tensor, file)
    {
        const char *name = json_string_value(file);
        if (!name || !plain_file_name(name)) {
            mt_free(names);
            return mt_fail(err, MT_EFORMAT,
                           "%s: tensor \"%.200s\" is said to be in \"%.200s\", which is not the name of a .safetensors file in "
                           "this directory",
                           index_name, tensor, name ? name : "(no string)");
        }
        names[n++] = name;
    }
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(names[i], names[kept - 1]) != 0) names[kept++] = names[i];
    *out = names;
    *n_out = kept;
    return MT_OK;
}

static mt_rc check_present(const char *dir, const char *const *names, size_t n, mt_err *err)
{
    const char *missing = NULL;
    size_t n_missing = 0;
    for (size_t i = 0; i < n; i++) {
        char *path = mt_path_join(dir, names[i]);
        if (!path) return mt_fail(err, MT_ENOMEM, "no host memory to look for %s", names[i]);
        if (!mt_file_exists(path) && n_missing++ == 0) missing = names[i];
        mt_free(path);
    }
    if (!missing) return MT_OK;
    return mt_fail(err, MT_ENOENT, "%s is missing (%zu of the %zu files named in %s are there); download the model again",
                   missing, n - n_missing, n, index_name);
}

static mt_rc check_listed(const mt_shards *s, json_t *weight_map, mt_err *err)
{
    const char *name;
    json_t *file;
    size_t i;
    json_object_foreach(weight_map, name, file)
    {
        if (!mt__names_find(&s->names, name, &i))
            return mt_fail(err, MT_EFORMAT,
                           "tensor \"%.200s\" is listed in %s and is not in %.200s; the files look like different revisions, "
                           "download the model again",
                           name, index_name, json_string_value(file));
    }
    return MT_OK;
}

static mt_rc open_weight_map(mt_shards *s, const char *dir, json_t *weight_map, mt_err *err)
{
    const char **names = NULL;
    size_t n = 0;
    if (!json_is_object(weight_map) || json_object_size(weight_map) == 0)
        return mt_fail(err, MT_EFORMAT, "%s: \"weight_map\" should be an object of tensor names and files", index_name);
    MT_TRY(file_names(&names, &n, weight_map, err));
    mt_rc rc = check_present(dir, names, n, err);
    for (size_t i = 0; !rc && i < n; i++) rc = add_file(s, dir, names[i], err);
    if (!rc) rc = collect(s, weight_map, err);
    if (!rc) rc = check_listed(s, weight_map, err);
    mt_free(names);
    return rc;
}

static mt_rc open_index(mt_shards *s, const char *dir, const char *path, mt_err *err)
{
    json_t *index;
    MT_TRY(mt_json_read(&index, path, err));
    mt_rc rc = open_weight_map(s, dir, json_object_get(index, "weight_map"), err);
    json_decref(index);
    return rc;
}

/* What else lies in the directory, to open the one candidate or to say what was found instead. */
typedef struct listing {
    char *weights; /* the first *.safetensors by name */
    size_t n_weights;
    char *pickled; /* a pytorch_model.bin or the like */
    char *gguf;
} listing;

static void keep_first(char **kept, const char *name, bool *no_memory)
{
    if (*kept && strcmp(*kept, name) <= 0) return;
    mt_free(*kept);
    *kept = mt_strdup(name);
    if (!*kept) *no_memory = true;
}

static mt_rc list_dir(listing *l, const char *dir, mt_err *err)
{
    bool no_memory = false;
    DIR *d = opendir(dir);
    if (!d) return mt_fail_errno(err, errno == ENOENT || errno == ENOTDIR ? MT_ENOENT : MT_EIO, "opening the directory");
    for (const struct dirent *e; (e = readdir(d)) && !no_memory;) {
        const char *name = e->d_name;
        if (name[0] == '.') continue;
        if (ends_with(name, ".safetensors")) {
            l->n_weights++;
            keep_first(&l->weights, name, &no_memory);
        } else if (ends_with(name, ".gguf"))
            keep_first(&l->gguf, name, &no_memory);
        else if (ends_with(name, ".bin") || ends_with(name, ".pt") || ends_with(name, ".pth") ||
                 ends_with(name, ".bin.index.json"))
            keep_first(&l->pickled, name, &no_memory);
    }
    closedir(d);
    return no_memory ? mt_fail(err, MT_ENOMEM, "no host memory to list the directory") : MT_OK;
}

static mt_rc nothing_to_open(const listing *l, mt_err *err)
{
    if (l->gguf)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "the weights are in %s, and GGUF files are not read; download the original model, or convert them to "
                       "safetensors",
                       l->gguf);
    if (l->pickled)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "the weights are in %s, a pickle, which can run code and is not read; convert them to safetensors "
                       "(transformers: from_pretrained, then save_pretrained), or download a revision that has them",
                       l->pickled);
    return mt_fail(err, MT_ENOENT, "no weights here: neither %s nor %s; download the model again", single_name, index_name);
}

static mt_rc open_listed(mt_shards *s, const char *dir, const listing *l, mt_err *err)
{
    if (l->n_weights == 0) return nothing_to_open(l, err);
    if (l->n_weights > 1)
        return mt_fail(err, MT_ENOENT,
                       "%zu .safetensors files (%s, ...) and no %s that says which tensors they hold; download the index",
                       l->n_weights, l->weights, index_name);
    if (strncmp(l->weights, "adapter_", 8) == 0)
        return mt_fail(err, MT_EUNSUPPORTED, "%s is an adapter, not a model; merge it into its base model first", l->weights);
    MT_TRY(add_file(s, dir, l->weights, err));
    return collect(s, NULL, err);
}

static mt_rc open_other(mt_shards *s, const char *dir, mt_err *err)
{
    listing l = { 0 };
    mt_rc rc = list_dir(&l, dir, err);
    if (!rc) rc = open_listed(s, dir, &l, err);
    mt_free(l.weights);
    mt_free(l.pickled);
    mt_free(l.gguf);
    return rc;
}

static mt_rc open_dir(mt_shards *s, const char *dir, mt_err *err)
{
    char *single = mt_path_join(dir, single_name), *index = mt_path_join(dir, index_name);
    mt_rc rc = MT_OK;
    if (!single || !index)
        rc = mt_fail(err, MT_ENOMEM, "no host memory to look for weights");
    else if (mt_file_exists(single)) {
        rc = add_file(s, dir, single_name, err);
        if (!rc) rc = collect(s, NULL, err);
    } else if (mt_file_exists(index))
        rc = open_index(s, dir, index, err);
    else
        rc = open_other(s, dir, err);
    mt_free(single);
    mt_free(index);
    return rc;
}

mt_rc mt_shards_open(mt_shards **out, const char *dir, mt_err *err)
{
    *out = NULL;
    mt_shards *s = mt_calloc(1, sizeof *s);
    if (!s) return mt_fail(err, MT_ENOMEM, "no host memory to open %s", dir);
    mt_rc rc = open_dir(s, dir, err);
    if (rc) {
        mt_shards_close(s);
        mt_note(err, "loading weights from %s", dir);
        return rc;
    }
    *out = s;
    return MT_OK;
}

void mt_shards_close(mt_shards *s)
{
    if (!s) return;
    for (size_t f = 0; f < s->n_files; f++) mt_safetensors_close(s->files[f]);
    mt__names_deinit(&s->names);
    mt_free(s->tensors);
    mt_free(s->files);
    mt_free(s);
}

size_t mt_shards_count(const mt_shards *s) { return s->n_tensors; }
const mt_st_tensor *mt_shards_at(const mt_shards *s, size_t i) { return s->tensors[i]; }

const mt_st_tensor *mt_shards_find(const mt_shards *s, const char *name)
{
    size_t i;
    return mt__names_find(&s->names, name, &i) ? s->tensors[i] : NULL;
}

size_t mt_shards_file_count(const mt_shards *s) { return s->n_files; }
const mt_safetensors *mt_shards_file(const mt_shards *s, size_t i) { return s->files[i]; }
size_t mt_shards_bytes(const mt_shards *s) { return s->bytes; }
