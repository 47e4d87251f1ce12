#include "ckpt/shards_index.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

mt_rc mt__index_open(mt__index *index, const char *path, const char *tail, mt_err *err)
{
    *index = (mt__index){ .name = mt_path_base(path), .tail = tail };
    MT_TRY(mt_json_read(&index->document, path, err));
    index->weight_map = mt_value_get(index->document, "weight_map");
    size_t n = mt_value_pairs(index->weight_map);
    if (!n) return mt_fail(err, MT_EFORMAT, "%s: \"weight_map\" should be an object of tensor names and files", index->name);
    if (!mt__names_init(&index->names, n)) return mt_no_memory(err, "reading %s", index->name);
    for (size_t i = 0; i < n; i++) mt__names_add(&index->names, index->weight_map->map.pairs[i].key, i);
    return MT_OK;
}

void mt__index_close(mt__index *index)
{
    mt__names_deinit(&index->names);
    mt_json_free(index->document);
    *index = (mt__index){ 0 };
}

const char *mt__index_home(const mt__index *index, const char *tensor)
{
    size_t i;
    return mt__names_find(&index->names, tensor, &i) ? mt_json_string(&index->weight_map->map.pairs[i].value) : NULL;
}

/* A name in the index must be a plain file name: anything else could reach outside the directory. */
static bool plain_file_name(const char *name, const char *tail)
{
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return false;
    for (const char *c = name; *c; c++)
        if (*c == '/' || *c == '\\' || (unsigned char)*c < 0x20) return false;
    return mt_ends_with(name, tail);
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

mt_rc mt__index_files(const mt__index *index, const char ***out, size_t *n_out, mt_err *err)
{
    size_t n = 0, kept = 0;
    const char **names = mt_calloc(mt_value_pairs(index->weight_map), sizeof *names);
    if (!names) return mt_no_memory(err, "reading %s", index->name);
    for (size_t i = 0; i < mt_value_pairs(index->weight_map); i++) {
        const char *tensor = index->weight_map->map.pairs[i].key, *name = mt_json_string(&index->weight_map->map.pairs[i].value);
        if (!name || !plain_file_name(name, index->tail)) {
            mt_free(names);
            return mt_fail(err, MT_EFORMAT,
                           "%s: tensor \"%.200s\" is said to be in \"%.200s\", which is not the name of a %s file in this "
                           "directory",
                           index->name, tensor, name ? name : "(no string)", index->tail);
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

mt_rc mt__index_check_present(const mt__index *index, const char *dir, const char *const *names, size_t n, mt_err *err)
{
    const char *missing = NULL;
    size_t n_missing = 0;
    for (size_t i = 0; i < n; i++) {
        char *path = mt_path_join(dir, names[i]);
        if (!path) return mt_no_memory(err, "looking for %s", names[i]);
        if (!mt_file_exists(path) && n_missing++ == 0) missing = names[i];
        mt_free(path);
    }
    if (!missing) return MT_OK;
    return mt_fail(err, MT_ENOENT, "%s is missing (%zu of the %zu files named in %s are there); download the model again",
                   missing, n - n_missing, n, index->name);
}
