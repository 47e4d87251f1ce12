/* safetensors_write.h - one safetensors file, written through a temporary name (outfile.h).
 *
 *     create    nothing on disk yet
 *     add       declare every tensor; meta() adds to __metadata__
 *     start     lay the file out, reserve its bytes, write the header
 *     put       bytes of a tensor, in pieces of any size: at an offset, or append() after earlier bytes
 *     finish    every byte must have been written; sync and rename
 *     free      always last; before a successful finish() it removes the file
 *
 * Data is in the order of declaration, except that wider formats come first, so that all of it is aligned (the rule of the
 * reference implementation).  After start(), several threads may put() different tensors. */
#ifndef MT_CKPT_SAFETENSORS_WRITE_H
#define MT_CKPT_SAFETENSORS_WRITE_H

#include "ckpt/safetensors.h"

typedef struct mt_safetensors_writer mt_safetensors_writer;

mt_rc mt_safetensors_writer_create(mt_safetensors_writer **out, const char *path, mt_err *err);
mt_rc mt_safetensors_writer_meta(mt_safetensors_writer *w, const char *key, const char *value, mt_err *err);
/* The name is copied. */
mt_rc mt_safetensors_writer_add(mt_safetensors_writer *w, const char *name, mt_dtype dtype, int n_dims, const int64_t *shape,
                                mt_err *err);
mt_rc mt_safetensors_writer_start(mt_safetensors_writer *w, mt_err *err);
/* `offset` counts bytes from the start of the tensor.  No byte may be put twice. */
mt_rc mt_safetensors_writer_put(mt_safetensors_writer *w, const char *name, size_t offset, const void *data, size_t n,
                                mt_err *err);
mt_rc mt_safetensors_writer_append(mt_safetensors_writer *w, const char *name, const void *data, size_t n, mt_err *err);
mt_rc mt_safetensors_writer_finish(mt_safetensors_writer *w, mt_err *err);
void mt_safetensors_writer_free(mt_safetensors_writer *w);

/* The two halves of finish(), for several files that belong together: seal all, then publish all. */
mt_rc mt__safetensors_writer_seal(mt_safetensors_writer *w, mt_err *err);
mt_rc mt__safetensors_writer_publish(mt_safetensors_writer *w, mt_err *err);
void mt__safetensors_writer_withdraw(mt_safetensors_writer *w);

#endif
