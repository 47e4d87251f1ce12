/* Any bytes at all as a safetensors file: opening either fails, or every tensor can be found and read. */
#include "ckpt/safetensors.h"

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
