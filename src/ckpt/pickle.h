/* pickle.h - tensors in files that torch.save wrote: pytorch_model.bin and the like, in the zip form and the older one.
 *
 * Reading such a file with Python runs any code in it.  Here nothing runs: unpickle.h interprets the few operations that describe
 * tensors and refuses the rest by name.  open() maps the file, reads that description and checks every tensor against the bytes
 * there are.  Tensors that share numbers (tied weights) point at the same bytes; those that are transposed or cut out of a larger
 * one have no data pointer and are read through their strides. */
#ifndef MT_CKPT_PICKLE_H
#define MT_CKPT_PICKLE_H

#include "ckpt/tensor.h"

typedef struct mt_pickle mt_pickle;

mt_rc mt_pickle_open(mt_pickle **out, const char *path, mt_err *err);
/* The same for bytes already in memory, which must outlive it; `name` stands for the path in messages. */
mt_rc mt_pickle_open_memory(mt_pickle **out, const void *bytes, size_t n, const char *name, mt_err *err);
void mt_pickle_close(mt_pickle *p);

/* Tensors in the order the file lists them, 0 <= i < count. */
size_t mt_pickle_count(const mt_pickle *p);
const mt_st_tensor *mt_pickle_at(const mt_pickle *p, size_t i);

#endif
