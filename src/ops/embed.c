/* embed.c - look tokens up in the embedding table.
 * Backward is a scatter-add.  Threads split the columns, so each sum runs over the rows in ascending order. */
#include "ops/ops_cpu.h"

enum { COLUMNS = 64 };

size_t mt_embed_scratch(const mt_embed *a)
{
    (void)a;
    return 0;
}

static void copy_row(void *arg, int64_t i)
{
    const mt_embed *a = arg;
    const void *src = mt_at(a->w, a->t, a->ids[i] * a->D);
    void *dst = mt_at_mut(a->y, a->t, i * a->D);
    for (int64_t d = 0; d < a->D; d++) {
        float y = mt_get(src, a->t, d) * a->scale;
        if (a->w_pos) y += mt_get(a->w_pos, a->t, a->pos[i] * a->D + d);
        mt_put(dst, a->t, d, y);
    }
}

mt_rc mt__embed_fwd_run(mt_pool *pool, const mt_embed *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, a->N, copy_row, (void *)a);
    return MT_OK;
}

static void scatter_columns(void *arg, int64_t block)
{
    const mt_embed *a = arg;
    int64_t from = block * COLUMNS, to = from + COLUMNS < a->D ? from + COLUMNS : a->D;
    for (int64_t i = 0; a->dw && i < a->N; i++) {
        if (a->ids[i] == a->pad_id) continue;
        float *dw = a->dw + a->ids[i] * a->D;
        for (int64_t d = from; d < to; d++) dw[d] += mt_get(a->dy, a->t, i * a->D + d) * a->scale;
    }
    for (int64_t doc = 0; a->dw_pos && doc < a->n_docs; doc++)
        for (int64_t i = a->doc_start[doc]; i < a->doc_start[doc + 1]; i++) {
            float *dw = a->dw_pos + (i - a->doc_start[doc]) * a->D;
            for (int64_t d = from; d < to; d++) dw[d] += mt_get(a->dy, a->t, i * a->D + d);
        }
}

mt_rc mt__embed_bwd_run(mt_pool *pool, const mt_embed *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, (a->D + COLUMNS - 1) / COLUMNS, scatter_columns, (void *)a);
    return MT_OK;
}
