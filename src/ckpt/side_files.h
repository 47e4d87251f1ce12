/* side_files.h - the files beside a model's weights: config.json, the tokenizer's files, chat templates, the model's own code.
 *
 * A run takes them at its start and writes them with every checkpoint, so that a directory which is moved, changed or removed meanwhile
 * does not change what is saved. */
#ifndef MT_CKPT_SIDE_FILES_H
#define MT_CKPT_SIDE_FILES_H

#include "base/mem.h"

typedef struct mt_side_file {
    char *name, *text; /* any n bytes, and a 0 */
    size_t n;
} mt_side_file;

typedef struct mt_side_files {
    mt_side_file *items;
    size_t n, cap;
} mt_side_files;

/* All that are there, of a model directory or made of the .gguf file it is. */
mt_rc mt_side_files_read(mt_side_files *out, const char *source, mt_err *err);
void mt_side_files_free(mt_side_files *f); /* accepts zeros */

/* NULL: there is none of that name. */
const mt_side_file *mt_side_files_find(const mt_side_files *f, const char *name);

/* Writes it into `dir`, in its folder there. */
mt_rc mt_side_file_save(const mt_side_file *f, const char *dir, mt_err *err);

#endif
