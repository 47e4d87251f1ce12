/* shards.h - all tensors of a model, in any kind of file.
 *
 * open() takes a directory or a .gguf file.  In a directory it uses the first of these that exists:
 *     model.safetensors;  model.safetensors.index.json and the files it names;  the only *.safetensors file;
 *     pytorch_model.bin;  pytorch_model.bin.index.json and the files it names;  the only *.gguf file
 * All files are mapped, none is read.  FP8 weights and their scales become one tensor.  Its tensors are valid until close().  An
 * index is not trusted: files must be in the directory itself, and every listed tensor must be in the named file.  open() logs a
 * warning for quantized weights. */
#ifndef MT_CKPT_SHARDS_H
#define MT_CKPT_SHARDS_H

#include "ckpt/safetensors.h"

typedef struct mt_shards mt_shards;

mt_rc mt_shards_open(mt_shards **out, const char *path, mt_err *err);
void mt_shards_close(mt_shards *s);

/* All tensors: file after file, in the order of their data (of pickles: of their list). */
size_t mt_shards_count(const mt_shards *s);
const mt_st_tensor *mt_shards_at(const mt_shards *s, size_t i);
/* NULL: no such tensor. */
const mt_st_tensor *mt_shards_find(const mt_shards *s, const char *name);

size_t mt_shards_file_count(const mt_shards *s);
const char *mt_shards_path(const mt_shards *s, size_t i);
/* Bytes of all tensors together, as stored. */
size_t mt_shards_bytes(const mt_shards *s);
/* How many tensors lost precision when their file was made, and the most common way they are stored (or NULL). */
size_t mt_shards_quantised(const mt_shards *s, const char **stored_as);

#endif
