#include "ckpt/writers.h"

mt_rc mt_writers_init(mt_writers *w, int rank, int n, mt_err *err)
{
    *w = (mt_writers){ .rank = rank, .n = n > 1 ? n : 1 };
    w->bytes = mt_calloc((size_t)w->n, sizeof *w->bytes);
    return w->bytes ? MT_OK : mt_no_memory(err, "dealing files to %d ranks", w->n);
}

int mt_writers_deal(mt_writers *w, uint64_t bytes)
{
    int least = 0;
    for (int r = 1; r < w->n; r++)
        if (w->bytes[r] < w->bytes[least]) least = r;
    w->bytes[least] += bytes;
    return least;
}

void mt_writers_deinit(mt_writers *w)
{
    mt_free(w->bytes);
    *w = (mt_writers){ 0 };
}
