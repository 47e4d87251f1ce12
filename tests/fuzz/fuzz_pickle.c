/* Any bytes are a list of tensors whose every number can be read, or an error.  Nothing is ever called. */
#include "ckpt/pickle.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mt_err err = { 0 };
    mt_pickle *p;
    if (mt_pickle_open_memory(&p, data, size, "fuzz.bin", &err)) return err.msg[0] ? 0 : (abort(), 0);
    for (size_t i = 0; i < mt_pickle_count(p); i++) {
        const mt_st_tensor *t = mt_pickle_at(p, i);
        float x[64];
        if (!mt_st_is_float(t)) continue;
        for (size_t at = 0; at < t->n && at < 4096; at += 64) mt_st_read(t, at, t->n - at < 64 ? t->n - at : 64, x);
        if (t->n) mt_st_read(t, t->n - 1, 1, x);
        (void)mt_st_same(t, mt_pickle_at(p, 0));
    }
    mt_pickle_close(p);
    return 0;
}
