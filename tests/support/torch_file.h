/* torch_file.h - a pytorch_model.bin of the tensors of another checkpoint, as torch.save writes one: a zip archive of stored
 * entries, data.pkl and a storage for each tensor.  What torch.save itself writes is under tests/golden/weights; this is for
 * models in bulk. */
#ifndef MT_TEST_TORCH_FILE_H
#define MT_TEST_TORCH_FILE_H

#include "test.h"

#include "base/outfile.h"
#include "base/str.h"
#include "ckpt/shards.h"

static inline void torch_put(mt_str *s, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) mt_str_putc(s, ((const char *)bytes)[i]);
}

static inline void torch_le(mt_str *s, uint64_t x, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) mt_str_putc(s, (char)(x >> 8 * i & 0xff));
}

/* -- the pickle ------------------------------------------------------------------------------------ */

static inline void torch_text(mt_str *s, const char *text)
{
    mt_str_putc(s, 'X');
    torch_le(s, strlen(text), 4);
    mt_str_puts(s, text);
}

static inline void torch_int(mt_str *s, int64_t x)
{
    mt_str_putc(s, 'J');
    torch_le(s, (uint64_t)x, 4);
}

static inline void torch_storage(mt_str *s, const mt_st_tensor *t, size_t key)
{
    char number[32];
    snprintf(number, sizeof number, "%zu", key);
    const char *type = t->dtype == MT_DTYPE_BF16 ? "BFloat16Storage" : t->dtype == MT_DTYPE_F16 ? "HalfStorage" : "FloatStorage";
    mt_str_putc(s, '(');
    torch_text(s, "storage");
    mt_str_printf(s, "ctorch\n%s\n", type);
    torch_text(s, number);
    torch_text(s, "cpu");
    torch_int(s, (int64_t)t->n);
    mt_str_puts(s, "tQ");
}

static inline void torch_tensor(mt_str *s, const mt_st_tensor *t, size_t key)
{
    torch_text(s, t->name);
    mt_str_puts(s, "ctorch._utils\n_rebuild_tensor_v2\n(");
    torch_storage(s, t, key);
    torch_int(s, 0);
    mt_str_putc(s, '(');
    for (int d = 0; d < t->n_dims; d++) torch_int(s, t->shape[d]);
    mt_str_puts(s, "t(");
    for (int d = 0; d < t->n_dims; d++) {
        int64_t stride = 1;
        for (int k = d + 1; k < t->n_dims; k++) stride *= t->shape[k];
        torch_int(s, stride);
    }
    mt_str_puts(s, "t\x89"
                   "ccollections\nOrderedDict\n)RtR");
}

/* -- the archive ----------------------------------------------------------------------------------- */

typedef struct torch_zip {
    mt_str body, directory;
    int n;
} torch_zip;

static inline void torch_entry(torch_zip *z, const char *name, const void *data, size_t n)
{
    size_t at = z->body.n;
    torch_le(&z->body, 0x04034b50, 4);
    torch_le(&z->body, 0, 8); /* version, flags, method, time */
    torch_le(&z->body, 0, 6); /* date, checksum: not read */
    torch_le(&z->body, n, 4);
    torch_le(&z->body, n, 4);
    torch_le(&z->body, strlen(name), 2);
    torch_le(&z->body, 0, 2);
    mt_str_puts(&z->body, name);
    torch_put(&z->body, data, n);
    torch_le(&z->directory, 0x02014b50, 4);
    torch_le(&z->directory, 0, 8);
    torch_le(&z->directory, 0, 8); /* time, date, checksum */
    torch_le(&z->directory, n, 4);
    torch_le(&z->directory, n, 4);
    torch_le(&z->directory, strlen(name), 2);
    torch_le(&z->directory, 0, 8);
    torch_le(&z->directory, 0, 4);
    torch_le(&z->directory, at, 4);
    mt_str_puts(&z->directory, name);
    z->n++;
}

static inline void torch_file_write(const char *path, const mt_shards *shards)
{
    mt_err err = { 0 };
    torch_zip z = { 0 };
    mt_str list = { 0 };
    mt_str_puts(&list, "\x80\x02}(");
    for (size_t i = 0; i < mt_shards_count(shards); i++) torch_tensor(&list, mt_shards_at(shards, i), i);
    mt_str_puts(&list, "u.");
    torch_entry(&z, "archive/data.pkl", list.s, list.n);
    for (size_t i = 0; i < mt_shards_count(shards); i++) {
        char name[64];
        snprintf(name, sizeof name, "archive/data/%zu", i);
        torch_entry(&z, name, mt_shards_at(shards, i)->data, mt_shards_at(shards, i)->bytes);
    }
    size_t at = z.body.n, bytes = z.directory.n;
    torch_put(&z.body, z.directory.s, z.directory.n);
    torch_le(&z.body, 0x06054b50, 4);
    torch_le(&z.body, 0, 4);
    torch_le(&z.body, (uint64_t)z.n, 2);
    torch_le(&z.body, (uint64_t)z.n, 2);
    torch_le(&z.body, bytes, 4);
    torch_le(&z.body, at, 4);
    torch_le(&z.body, 0, 2);
    assert_true(mt_str_ok(&z.body) && mt_str_ok(&list));
    assert_ok(mt_outfile_save(path, z.body.s, z.body.n, &err));
    mt_str_free(&z.body);
    mt_str_free(&z.directory);
    mt_str_free(&list);
}

#endif
