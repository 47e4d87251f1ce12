/* model_files.h - the files that a model needs beside its weights, from a directory's files or from a GGUF file's metadata.
 *
 * `path` is a model directory or a .gguf file.  Files of a directory come first; missing ones come from a GGUF file in it, or
 * from the named one. */
#ifndef MT_CKPT_MODEL_FILES_H
#define MT_CKPT_MODEL_FILES_H

#include "ckpt/gguf.h"
#include "model/config.h"
#include "model/stop_ids.h"
#include "tokenizer/tokenizer.h"

mt_rc mt_model_files_config(mt_config **out, const char *path, mt_err *err);
mt_rc mt_model_files_tokenizer(mt_tokenizer **out, const char *path, mt_err *err);

/* Adds to out what generation_config.json and config.json say. */
mt_rc mt_model_files_stop_ids(mt_stop_ids *out, const char *path, mt_err *err);

/* The text of one of its files: the directory's own, or config.json, generation_config.json, tokenizer.json or
 * tokenizer_config.json made from a GGUF file's metadata.  *text NULL: there is none; else mt_free it. */
mt_rc mt_model_files_read(char **text, size_t *n, const char *path, const char *name, mt_err *err);
/* Fails if a file of the model directory is a link that leads out of it (mt_path_stays_inside).  A .gguf file is fine. */
mt_rc mt_model_files_check(const char *path, mt_err *err);
/* A directory has a file of that name. */
bool mt_model_files_has(const char *dir, const char *name);
/* A directory or a .gguf file is there. */
bool mt_model_files_exist(const char *path);
/* Fails if none is, in words about model.name. */
mt_rc mt_model_files_need(const char *path, mt_err *err);

/* The .gguf file that `path` is, or that a directory without safetensors has exactly one of; *out NULL: there is none. */
mt_rc mt_model_files_gguf(char **out, const char *path, mt_err *err);

#endif
