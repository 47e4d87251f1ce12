/* shards_write.h - the weights of a model directory, in files of a bounded size, with their index: what
 * mt_shards_open and transformers read.
 *
 * The calls are those of safetensors_write.h.  Tensors are dealt to files in the order of declaration: a file is full when the
 * next tensor would take it past max_shard_bytes; a larger one gets its own file.  A single file is called model.safetensors and
 * needs no index.  finish() seals every file before it publishes the first, and the index comes last: until then the directory
 * holds no model.
 *
 * Several processes may write one directory: each creates only the files that are dealt to it, and rank 0 writes the index.  The
 * directory holds a model when all of them have finished. */
#ifndef MT_CKPT_SHARDS_WRITE_H
#define MT_CKPT_SHARDS_WRITE_H

#include "ckpt/safetensors.h"
#include "ckpt/writers.h"

typedef struct mt_shards_writer mt_shards_writer;

/* dir exists.  0 bytes: no limit, one file. */
mt_rc mt_shards_writer_create(mt_shards_writer **out, const char *dir, size_t max_shard_bytes, mt_err *err);
mt_rc mt_shards_writer_add(mt_shards_writer *w, const char *name, mt_dtype dtype, int n_dims, const int64_t *shape, mt_err *err);
/* Before start(), which deals the files; NULL: one process writes all of them.  Borrowed until start() returns. */
void mt_shards_writer_share(mt_shards_writer *w, mt_writers *writers);
mt_rc mt_shards_writer_start(mt_shards_writer *w, mt_err *err);
/* After start(): the rank that writes a tensor; -1: it was never added. */
int mt_shards_writer_owner(const mt_shards_writer *w, const char *name);
/* After start(): how many files there are, and the rank that writes each. */
size_t mt_shards_writer_count(const mt_shards_writer *w);
int mt_shards_writer_file_owner(const mt_shards_writer *w, size_t file);
/* Of a tensor that this process writes. */
mt_rc mt_shards_writer_put(mt_shards_writer *w, const char *name, size_t offset, const void *data, size_t n, mt_err *err);
mt_rc mt_shards_writer_append(mt_shards_writer *w, const char *name, const void *data, size_t n, mt_err *err);
mt_rc mt_shards_writer_finish(mt_shards_writer *w, mt_err *err);
void mt_shards_writer_free(mt_shards_writer *w);

/* The dealing itself: shard_of[i] for n tensors of bytes[i]; returns how many files there are (at least 1). */
size_t mt_shards_deal(size_t *shard_of, const size_t *bytes, size_t n, size_t max_shard_bytes);

/* "model-00002-of-00005.safetensors" for (1, 5); "model.safetensors" for (0, 1). */
typedef struct mt_shard_name {
    char s[64];
} mt_shard_name;
mt_shard_name mt_shards_file_name(size_t shard, size_t n_shards);

#endif
