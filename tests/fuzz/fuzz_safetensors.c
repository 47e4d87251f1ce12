/* Any bytes at all as a safetensors file: opening either fails, or every tensor can be found and read. */
#include "ckpt/safetensors.h"
#include "forge.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* The reader's promises about one tensor; reading all of it lets a sanitizer see what is out of bounds. */
static unsigned check_tensor(const mt_safetensors *st, size_t i)
{
    const mt_st_tensor *t = mt_safetensors_at(st, i);
    size_t n, bytes;
    unsigned sum = 0;
    if (!mt_st_size(t->dtype, t->n_dims, t->shape, &n, &bytes) || n != t->n || bytes != t->bytes) abort();
    if (mt_safetensors_find(st, t->name) != t) abort();
    if (i > 0 && t[-1].data + t[-1].bytes != t->data) abort();
    for (size_t k = 0; k < t->bytes; k++) sum += t->data[k];
    return sum + (unsigned)mt_st_shape_text(t->n_dims, t->shape).s[0];
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    mt_err err = { 0 };
    mt_safetensors *st = NULL;
    unsigned sum = 0;
    if (mt_safetensors_open_memory(&st, bytes, n, "input", &err)) {
        if (st || !err.rc || !err.msg[0]) abort();
        return 0;
    }
    for (size_t i = 0; i < mt_safetensors_count(st); i++) sum += check_tensor(st, i);
    for (size_t i = 0; i < mt_safetensors_meta_count(st); i++) {
        const char *key, *value;
        mt_safetensors_meta_at(st, i, &key, &value);
        if (!mt_safetensors_meta(st, key)) abort();
        sum += (unsigned)strlen(value);
    }
    mt_safetensors_close(st);
    return sum == 0xffffffff; /* never; keeps the reads */
}

static void put_shape(fuzz_rng *r, mt_str *h, size_t *n)
{
    size_t n_dims = fuzz_once_in(r, 10) ? fuzz_below(r, 10) : fuzz_below(r, 3);
    *n = 1;
    mt_str_puts(h, "[");
    for (size_t i = 0; i < n_dims; i++) {
        uint64_t dim = fuzz_odd(r, fuzz_below(r, 4));
        mt_str_printf(h, "%s%lld", i ? "," : "", (long long)dim);
        *n *= (size_t)dim;
    }
    mt_str_puts(h, "]");
}

/* Entries whose places follow each other, as a writer would make them, in another order or off by something. */
void fuzz_generate(fuzz_rng *r, mt_str *out)
{
    static const struct {
        const char *name;
        size_t bytes;
    } dtypes[] = { { "F32", 4 }, { "BF16", 2 }, { "F16", 2 },     { "F64", 8 }, { "I64", 8 },
                   { "U8", 1 },  { "BOOL", 1 }, { "F8_E4M3", 1 }, { "F4", 1 },  { "", 0 } };
    static const char *const spaces[] = { "", "", "", " ", "\n", "\t " };
    mt_str h = { 0 };
    size_t at = 0, n_entries = fuzz_below(r, 7);
    mt_str_puts(&h, "{");
    if (fuzz_once_in(r, 3)) mt_str_puts(&h, "\"__metadata__\":{\"format\":\"pt\",\"x\":\"\\u0041\"}");
    for (size_t i = 0; i < n_entries; i++) {
        size_t n, type = fuzz_once_in(r, 12) ? fuzz_below(r, MT_COUNT(dtypes)) : fuzz_below(r, 7);
        mt_str_printf(&h, "%s%s\"t%zu\"%s:{\"dtype\":\"%s\",\"shape\":", h.n > 1 ? "," : "", FUZZ_PICK(r, spaces),
                      fuzz_once_in(r, 20) ? 0 : i, FUZZ_PICK(r, spaces), dtypes[type].name);
        put_shape(r, &h, &n);
        size_t bytes = n * dtypes[type].bytes;
        mt_str_printf(&h, ",\"data_offsets\":[%lld,%lld]}", (long long)fuzz_odd(r, at), (long long)fuzz_odd(r, at + bytes));
        at += bytes;
    }
    mt_str_puts(&h, "}");
    if (fuzz_once_in(r, 3)) forge_repeat(&h, " ", fuzz_below(r, 9));
    if (fuzz_once_in(r, 4)) fuzz_damage(r, &h, 1);
    forge_le(out, fuzz_odd(r, h.n), 8);
    mt_str_add(out, h.s, h.n);
    forge_zeros(out, at < 4096 ? at : 64);
    mt_str_free(&h);
}
