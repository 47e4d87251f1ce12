#include "ckpt/convert.h"

#include "base/disk.h"
#include "base/json.h"
#include "base/log.h"
#include "ckpt/shards.h"
#include "ckpt/shards_write.h"
#include "ckpt/side_files.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PIECE = 1 << 16 };

typedef struct job {
    const mt_convert *c;
    mt_shards *shards;
    mt_shards_writer *writer;
    mt_side_files files;
    mt_convert_result *result;
    float *numbers;   /* [PIECE] */
    uint16_t *halves; /* [PIECE] */
    size_t done, total;
} job;

/* -- weights --------------------------------------------------------------------------------------- */

static mt_dtype target(const mt_convert *c, const mt_st_tensor *t)
{
    if (!mt_st_is_float(t)) return t->dtype;
    if (c->recast) return c->dtype;
    if (t->data) return t->dtype;
    if (t->decoder->stored_as) return MT_DTYPE_BF16;
    return t->dtype == MT_DTYPE_BF16 || t->dtype == MT_DTYPE_F16 ? t->dtype : MT_DTYPE_F32;
}

static mt_rc convert_declare(job *j, mt_err *err)
{
    size_t n, bytes;
    for (size_t i = 0; i < mt_shards_count(j->shards); i++) {
        const mt_st_tensor *t = mt_shards_at(j->shards, i);
        mt_dtype dtype = target(j->c, t);
        MT_TRY(mt_shards_writer_add(j->writer, t->name, dtype, t->n_dims, t->shape, err));
        if (mt_st_size(dtype, t->n_dims, t->shape, &n, &bytes)) j->total += bytes;
    }
    return mt_shards_writer_start(j->writer, err);
}

static void advance(job *j, size_t bytes, const char *tensor)
{
    j->done += bytes;
    if (j->c->progress) j->c->progress(j->c->user, j->done, j->total, tensor);
}

static mt_rc copy_bytes(job *j, const mt_st_tensor *t, mt_err *err)
{
    enum { SOME = 1 << 24 };
    for (size_t at = 0; at < t->bytes; at += SOME) {
        size_t n = t->bytes - at < SOME ? t->bytes - at : SOME;
        MT_TRY(mt_shards_writer_append(j->writer, t->name, t->data + at, n, err));
        advance(j, n, t->name);
    }
    return MT_OK;
}

static size_t count_overflowed(const float *x, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += isfinite(x[i]) && isinf(mt_f16_to_f32(mt_f32_to_f16(x[i])));
    return count;
}

static mt_rc copy_numbers(job *j, const mt_st_tensor *t, mt_dtype to, mt_err *err)
{
    for (size_t at = 0; at < t->n; at += PIECE) {
        size_t n = t->n - at < PIECE ? t->n - at : PIECE;
        const void *piece = j->numbers;
        mt_st_read(t, at, n, j->numbers);
        if (to == MT_DTYPE_F16) j->result->n_overflowed += count_overflowed(j->numbers, n);
        if (to != MT_DTYPE_F32) mt_from_f32(j->halves, to, j->numbers, n), piece = j->halves;
        MT_TRY(mt_shards_writer_append(j->writer, t->name, piece, n * mt_dtype_bytes(to), err));
        advance(j, n * mt_dtype_bytes(to), t->name);
    }
    return MT_OK;
}

static mt_rc write_weights(job *j, mt_err *err)
{
    MT_TRY(mt_shards_writer_create(&j->writer, j->c->out, j->c->max_shard_bytes, err));
    MT_TRY(convert_declare(j, err));
    for (size_t i = 0; i < mt_shards_count(j->shards); i++) {
        const mt_st_tensor *t = mt_shards_at(j->shards, i);
        mt_dtype to = target(j->c, t);
        MT_TRY(t->data && to == t->dtype ? copy_bytes(j, t, err) : copy_numbers(j, t, to, err));
    }
    j->result->n_tensors = mt_shards_count(j->shards);
    j->result->bytes = j->total;
    if (j->result->n_overflowed)
        mt_warn("%zu numbers are too large for float16 and became infinite; use --dtype bfloat16", j->result->n_overflowed);
    return mt_shards_writer_finish(j->writer, err);
}

/* -- the files beside them -------------------------------------------------------------------------- */

/* config.json comes last, by itself. */
static mt_rc write_side_files(const job *j, mt_err *err)
{
    static const char *const tokenizers[] = { "tokenizer.json", "tokenizer.model", "qwen.tiktoken", "tokenizer.tiktoken",
                                              "spiece.model" };
    for (size_t i = 0; i < j->files.n; i++)
        if (strcmp(j->files.items[i].name, "config.json") != 0) MT_TRY(mt_side_file_save(&j->files.items[i], j->c->out, err));
    for (size_t i = 0; i < MT_COUNT(tokenizers); i++)
        if (mt_side_files_find(&j->files, tokenizers[i])) j->result->tokenizer = true;
    return MT_OK;
}

static mt_rc read_config(const job *j, const mt_value **out, mt_err *err)
{
    const mt_side_file *f = mt_side_files_find(&j->files, "config.json");
    if (!f) return mt_fail(err, MT_ENOENT, "%s has no config.json; download it too", j->c->in);
    MT_TRY(mt_json_parse(out, f->text, f->n, "config.json", err));
    if (mt_value_has(*out, MT_VALUE_MAP)) return MT_OK;
    return mt_fail(err, MT_EFORMAT, "%s: config.json is not an object", j->c->in);
}

/* As it was, unless it would say something else about the weights than is true now. */
static mt_rc write_config(const job *j, const mt_value *config, mt_err *err)
{
    const char *as, *key = mt_value_get(config, "dtype") ? "dtype" : "torch_dtype";
    bool quantized = mt_shards_quantised(j->shards, &as) > 0;
    if (!quantized && !j->c->recast) return mt_side_file_save(mt_side_files_find(&j->files, "config.json"), j->c->out, err);
    mt_value dtype = mt_json_text(mt_dtype_name(j->c->recast ? j->c->dtype : MT_DTYPE_BF16));
    if (quantized) MT_TRY(mt_json_set(config, config, "quantization_config", NULL, err));
    MT_TRY(mt_json_set(config, config, key, &dtype, err));
    mt_str text = { 0 };
    char name[] = "config.json";
    mt_value_write_indented(&text, config);
    mt_rc rc = mt_str_ok(&text) ? mt_side_file_save(&(mt_side_file){ name, text.s, text.n }, j->c->out, err)
                                : mt_no_memory(err, "writing config.json");
    mt_str_free(&text);
    return rc;
}

/* -- the whole ------------------------------------------------------------------------------------- */

static mt_rc make_out(const char *out, mt_err *err)
{
    if (mt_disk_mkdir(out, 0777) == 0) return mt_disk_sync_parent(out, err);
    if (errno != EEXIST) return mt_fail_errno(err, MT_EIO, "making %s", out);
    DIR *d = opendir(out);
    if (!d) return mt_fail(err, MT_EINVAL, "%s exists and is not a directory; name a new one", out);
    bool empty = true;
    for (const struct dirent *e; empty && (e = readdir(d));) empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    closedir(d);
    return empty ? MT_OK : mt_fail(err, MT_EINVAL, "%s is not empty, and nothing is overwritten; name a new directory", out);
}

static mt_rc convert_run(job *j, mt_err *err)
{
    const mt_value *config = NULL;
    MT_TRY(mt_shards_open(&j->shards, j->c->in, err));
    MT_TRY(mt_side_files_read(&j->files, j->c->in, err));
    mt_rc rc = read_config(j, &config, err);
    if (!rc) rc = make_out(j->c->out, err);
    if (!rc) rc = write_weights(j, err);
    if (!rc) rc = write_side_files(j, err);
    if (!rc) rc = write_config(j, config, err);
    mt_json_free(config);
    return rc;
}

mt_rc mt_convert_run(const mt_convert *c, mt_convert_result *result, mt_err *err)
{
    job j = {
        .c = c, .result = result, .numbers = mt_calloc(PIECE, sizeof *j.numbers), .halves = mt_calloc(PIECE, sizeof *j.halves)
    };
    *result = (mt_convert_result){ 0 };
    mt_rc rc = j.numbers && j.halves ? convert_run(&j, err) : mt_no_memory(err, "converting numbers");
    mt_side_files_free(&j.files);
    mt_shards_writer_free(j.writer);
    mt_shards_close(j.shards);
    mt_free(j.numbers);
    mt_free(j.halves);
    return rc;
}
