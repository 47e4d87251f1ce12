/* shards.h - the weights of a model directory: one safetensors file, or several with an index.
 *
 * open() takes, in this order: model.safetensors; model.safetensors.index.json and the files it names; the only
 * *.safetensors file there is.  All files are mapped, none is read.  What it hands out lives until close().
 * An index is no more trusted than a header: files must lie in the directory itself, and every tensor it
 * lists must be in the file it says. */
#ifndef MT_CKPT_SHARDS_H
#define MT_CKPT_SHARDS_H

#include "ckpt/safetensors.h"

typedef struct mt_shards mt_shards;

mt_rc mt_shards_open(mt_shards **out, const char *dir, mt_err *err);
void mt_shards_close(mt_shards *s);

/* All tensors: file after file, in the order of their data. */
size_t mt_shards_count(const mt_shards *s);
const mt_st_tensor *mt_shards_at(const mt_shards *s, size_t i);
/* NULL: no such tensor. */
const mt_st_tensor *mt_shards_find(const mt_shards *s, const char *name);

size_t mt_shards_file_count(const mt_shards *s);
const mt_safetensors *mt_shards_file(const mt_shards *s, size_t i);
/* Bytes of all tensors together. */
size_t mt_shards_bytes(const mt_shards *s);

#endif
