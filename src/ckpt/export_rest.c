/* export_rest.c - tensors of the source that are not part of the model: a vision tower, rotary tables, layers that predict
 * several tokens.  They are copied, so that a saved model has all the tensors it came with. */
#include "ckpt/export.h"
#include "ckpt/weights.h"

/* Tensors of the files that this one is copied as; 0: it is written as numbers. */
static int kept_parts(const mt_export *x, const mt_st_tensor *t)
{
    return mt__export_keeps(x, t->name) ? t->decoder->n_parts : 0;
}

mt_rc mt__export_rest(const mt_export *x, const mt_st_tensor ***out, size_t *n, mt_err *err)
{
    mt_own_names own;
    size_t all = x->source ? mt_shards_count(x->source) : 0, most = all;
    *out = NULL;
    *n = 0;
    if (!all) return MT_OK;
    MT_TRY(mt_own_names_init(&own, x->model, err));
    for (size_t i = 0; i < all; i++) most += kept_parts(x, mt_shards_at(x->source, i));
    *out = mt_calloc(most, sizeof(mt_st_tensor *));
    for (size_t i = 0; *out && i < all; i++) {
        const mt_st_tensor *t = mt_shards_at(x->source, i);
        const int parts = kept_parts(x, t);
        for (int k = 0; k < parts; k++) (*out)[(*n)++] = t->decoder->parts[k];
        if (!parts && !mt_own_names_has(&own, t->name)) (*out)[(*n)++] = t;
    }
    mt_own_names_deinit(&own);
    return *out ? MT_OK : mt_no_memory(err, "%zu tensors", all);
}

mt_dtype mt__export_rest_dtype(const mt_export *x, const mt_st_tensor *t)
{
    if (!mt_st_is_float(t)) return t->dtype;
    if (x->dtype != MT_DTYPE_COUNT) return x->dtype;
    if (t->data) return t->dtype;
    if (t->decoder->stored_as) return mt__export_unsaid_dtype(x); /* nothing is quantized again */
    return t->dtype == MT_DTYPE_BF16 || t->dtype == MT_DTYPE_F16 ? t->dtype : MT_DTYPE_F32;
}

static mt_rc put_numbers(mt_shards_writer *w, const mt_st_tensor *t, mt_dtype to, mt_err *err)
{
    enum { PIECE = 1 << 12 };
    float numbers[PIECE];
    unsigned char bytes[PIECE * 4];
    for (size_t at = 0; at < t->n; at += PIECE) {
        size_t n = t->n - at < PIECE ? t->n - at : PIECE;
        mt_st_read(t, at, n, numbers);
        mt_from_f32(bytes, to, numbers, n);
        MT_TRY(mt_shards_writer_append(w, t->name, bytes, n * mt_dtype_bytes(to), err));
    }
    return MT_OK;
}

mt_rc mt__export_rest_put(const mt_export *x, mt_shards_writer *w, const mt_st_tensor *t, mt_err *err)
{
    mt_dtype to = mt__export_rest_dtype(x, t);
    return t->data && to == t->dtype ? mt_shards_writer_append(w, t->name, t->data, t->bytes, err) : put_numbers(w, t, to, err);
}
