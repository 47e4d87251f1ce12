/* safetensors.h - tensors in files, as Hugging Face stores them: read by mapping, written through a
 * temporary name.
 *
 * A file is 8 bytes of little-endian header length, a JSON header, and the data:
 *     {"__metadata__": {"format": "pt"}, "a.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
 *
 * Reading.  open() maps the file and checks the whole header before anything is used: offsets in range, sizes
 * that match shapes, no gap and no overlap (the rules of the reference implementation).  Entries and
 * their data point into the map and live until close().  Tensor data is read only when a caller touches
 * it.  An opened file may be used by several threads.
 *
 *     mt_safetensors *st;
 *     MT_TRY(mt_safetensors_open(&st, "model.safetensors", err));
 *     const mt_st_tensor *t = mt_safetensors_find(st, "model.norm.weight");
 *     if (t) mt_to_f32(dst, t->data, t->dtype, t->n);
 *     mt_safetensors_close(st);
 *
 * A model directory of one or many files is opened with mt_shards_open (shards.h). */
#ifndef MT_CKPT_SAFETENSORS_H
#define MT_CKPT_SAFETENSORS_H

#include "ckpt/tensor.h"

enum { MT_ST_MAX_HEADER_BYTES = 100 * 1000 * 1000 }; /* the reference's limit */

typedef struct mt_safetensors mt_safetensors;

mt_rc mt_safetensors_open(mt_safetensors **out, const char *path, mt_err *err);
/* The same for bytes already in memory, which must outlive it; `name` stands for the path in messages. */
mt_rc mt_safetensors_open_memory(mt_safetensors **out, const void *bytes, size_t n, const char *name, mt_err *err);
void mt_safetensors_close(mt_safetensors *st);

const char *mt_safetensors_path(const mt_safetensors *st);
/* Tensors in the order of their data, 0 <= i < count. */
size_t mt_safetensors_count(const mt_safetensors *st);
const mt_st_tensor *mt_safetensors_at(const mt_safetensors *st, size_t i);
/* NULL: no such tensor. */
const mt_st_tensor *mt_safetensors_find(const mt_safetensors *st, const char *name);

/* __metadata__: text by text, in file order. */
size_t mt_safetensors_meta_count(const mt_safetensors *st);
void mt_safetensors_meta_at(const mt_safetensors *st, size_t i, const char **key, const char **value);
const char *mt_safetensors_meta(const mt_safetensors *st, const char *key); /* NULL: absent */

#endif
