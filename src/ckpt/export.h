/* export.h - a model directory that transformers and vLLM open, from the masters of a run.
 *
 * Weights keep the source's names and dtypes (or all take one dtype), rounded to nearest even from the fp32 master; a tied head
 * is written only if the source had it, and tensors that are not part of the model are copied: saving an untrained model
 * reproduces every tensor byte for byte.  config.json is the source's, changed only where it would no longer be true.  The
 * tokenizer's files come along as they are.  Everything goes through outfile.h, so each file is complete or absent; a directory
 * that must be complete is written inside an mt_outdir. */
#ifndef MT_CKPT_EXPORT_H
#define MT_CKPT_EXPORT_H

#include "ckpt/shards.h"
#include "ckpt/shards_write.h"
#include "ckpt/side_files.h"
#include "ckpt/state_io.h"
#include "tokenizer/tokenizer.h"

typedef struct mt_export {
    const mt_model *model;         /* all borrowed */
    const mt_side_files *files;    /* config.json, the tokenizer's and others, as the source has them */
    const mt_shards *source;       /* names and dtypes; NULL: made from scratch, mt__export_unsaid_dtype holds */
    mt_dtype dtype;                /* of every tensor; MT_DTYPE_COUNT: as the source has them */
    bool keeps_forms;              /* quantized tensors of the source stay as they are: mt_export_may_keep holds */
    size_t max_shard_bytes;        /* 0: one file */
    int32_t end_of_turn;           /* the token that was trained to end an answer; -1: not known */
    bool quiet;                    /* say nothing of what had to be added */
    const char *end_of_turn_text;  /* its text, for tokenizer_config.json; NULL: leave that file as it is */
    const mt_tokenizer *tokenizer; /* its adopted tokens go into tokenizer_config.json; NULL: there are none */
    const char *chat_template;     /* what conversations were written with instead of the source's template; NULL: with that */
} mt_export;

/* True if every quantized tensor of the model is frozen, as a whole, and can be copied from the source: then what was saved is in
 * the source's form, config.json's quantization_config included.  Otherwise all of them are saved as numbers. */
bool mt_export_may_keep(const mt_export *x);

/* Refuses files that are not the JSON objects that saving changes: to be called before hours of training, not after. */
mt_rc mt_export_check(const mt_export *x, mt_err *err);

/* The whole directory, which exists; of several processes (rank of n) the files that are this one's.  The directory is whole when all
 * of them have returned. */
mt_rc mt_export_write(const mt_export *x, const mt_state_io *io, const char *dir, mt_err *err);
mt_rc mt_export_write_part(const mt_export *x, const mt_state_io *io, const char *dir, int rank, int n, mt_err *err);

/* The same unit by unit, in any order and from any thread, each once.  writers: deals the files to several processes, and is borrowed
 * for the call; NULL: there is one. */
typedef struct mt_exporter mt_exporter;
mt_rc mt_exporter_open(mt_exporter **out, const mt_export *x, const mt_state_io *io, const char *dir, mt_writers *writers,
                       mt_err *err);
/* reads[r] becomes true for every rank r that reads the unit. */
mt_rc mt_exporter_readers(const mt_exporter *w, int unit, bool *reads, mt_err *err);
/* How many files of weights there are, and whether this process writes one. */
size_t mt_exporter_files(const mt_exporter *w);
bool mt_exporter_writes(const mt_exporter *w, size_t file);
mt_rc mt_exporter_unit(mt_exporter *w, int unit, mt_err *err);
mt_rc mt_exporter_finish(mt_exporter *w, mt_err *err);
void mt_exporter_close(mt_exporter *w); /* always last; accepts NULL */

/* Bytes of its weights. */
uint64_t mt_export_bytes(const mt_export *x);

/* The dtype of weights whose own the source does not say, or that were quantized: config.json's, if weights can be saved in it. */
mt_dtype mt__export_unsaid_dtype(const mt_export *x);

/* True if the tensor of this name is copied in its parts. */
bool mt__export_keeps(const mt_export *x, const char *name);

/* -- export_rest.c -- */

/* Tensors of the source that are not part of the model, and the parts of those that keep their form: an array to free, of pointers
 * into the source. */
mt_rc mt__export_rest(const mt_export *x, const mt_st_tensor ***out, size_t *n, mt_err *err);
/* What one is written as, and the writing. */
mt_dtype mt__export_rest_dtype(const mt_export *x, const mt_st_tensor *t);
mt_rc mt__export_rest_put(const mt_export *x, mt_shards_writer *w, const mt_st_tensor *t, mt_err *err);

/* -- export_config.c -- */

/* The files beside the weights; config.json with dtype, tying and eos ids made true.  What
 * had to be added is said with mt_info, unless x->quiet. */
mt_rc mt__export_files(const mt_export *x, const char *dir, mt_err *err);

#endif
