/* weight_file.h - an open file of tensors, in any format.
 *
 * Each format's own type begins with a mt_weight_file and its row says how to read one, so that shards.c needs only this and a
 * list of rows.  A new format is a new row.  Files are mapped; their tensors are valid until close. */
#ifndef MT_CKPT_WEIGHT_FILE_H
#define MT_CKPT_WEIGHT_FILE_H

#include "ckpt/tensor.h"

typedef struct mt_weight_format mt_weight_format;

typedef struct mt_weight_file {
    const mt_weight_format *format;
    mt_map map;           /* empty when the bytes are the caller's */
    const uint8_t *bytes; /* the whole file */
    size_t n_bytes;
    char *path;
    mt_st_tensor *tensors; /* memory of the format's own */
    size_t n_tensors;
} mt_weight_file;

struct mt_weight_format {
    const char *tail;                              /* of the files' names */
    size_t bytes;                                  /* of the format's own type */
    mt_rc (*read)(mt_weight_file *f, mt_err *err); /* has path and bytes; fills in the rest */
    void (*deinit)(mt_weight_file *f);             /* all but the fields above; accepts what read() left half done */
};

extern const mt_weight_format mt_format_safetensors, mt_format_pickle, mt_format_gguf;

mt_rc mt_weight_file_open(mt_weight_file **out, const mt_weight_format *format, const char *path, mt_err *err);
/* Bytes of the caller, who keeps them until close; the name is for messages. */
mt_rc mt_weight_file_open_memory(mt_weight_file **out, const mt_weight_format *format, const void *bytes, size_t n,
                                 const char *name, mt_err *err);
void mt_weight_file_close(mt_weight_file *f);

#endif
