/* shards_index.h - model.safetensors.index.json and pytorch_model.bin.index.json: which tensor is in which file.  It is not
 * trusted: files must be in the directory itself. */
#ifndef MT_CKPT_SHARDS_INDEX_H
#define MT_CKPT_SHARDS_INDEX_H

#include "base/json.h"
#include "ckpt/names.h"

typedef struct mt__index {
    const char *name; /* of the file, for messages; inside the path it was opened with */
    const char *tail; /* what its files' names end with */
    const mt_value *document, *weight_map;
    mt__names names; /* tensor -> index in weight_map: there may be 60,000 */
} mt__index;

mt_rc mt__index_open(mt__index *index, const char *path, const char *tail, mt_err *err);
void mt__index_close(mt__index *index); /* accepts a zeroed one */

/* The file a tensor is said to be in; NULL: not listed. */
const char *mt__index_home(const mt__index *index, const char *tensor);
/* The distinct file names, sorted; the array is released with mt_free, the names belong to the index. */
mt_rc mt__index_files(const mt__index *index, const char ***out, size_t *n_out, mt_err *err);
/* All of them are there. */
mt_rc mt__index_check_present(const mt__index *index, const char *dir, const char *const *names, size_t n, mt_err *err);

#endif
