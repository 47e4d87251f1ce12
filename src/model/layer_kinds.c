/* layer_kinds.c - kinds of layers: the lists of their parts, joined, and how blocks of memory are carved by them. */
#include "base/mem.h"
#include "model/part.h"

#include <string.h>

/* -- kinds ----------------------------------------------------------------------------------------- */

/* The arrays of one more part behind those that are there. */
static void join_arrays(mt_layer_kind *k, int t, const mt_array *own, int first, int n)
{
    for (int i = 0; i < n; i++) {
        k->arrays[t][first + i] = own[i];
        if (own[i].instead) k->arrays[t][first + i].instead = own[i].instead + first;
    }
}

static mt_rc add_part(mt_layer_kind *k, const mt_config *c, const mt_part *part, mt_err *err)
{
    static const mt_dtype types[2] = { MT_DTYPE_F32, MT_DTYPE_BF16 };
    mt_array arrays[MT_MAX_ARRAYS];
    mt_work_item work[MT_MAX_WORK];
    int n_arrays = 0, n_work = part->work(c, &k->spec, work);
    for (int t = 0; t < 2; t++) {
        n_arrays = part->arrays(c, &k->spec, types[t], arrays);
        if (k->n_arrays + n_arrays > MT_MAX_ARRAYS || k->n_work + n_work > MT_MAX_WORK)
            return mt_fail(err, MT_EINTERNAL,
                           "the parts of a layer list more than %d arrays or %d items of work; \"%s\" is one too many",
                           MT_MAX_ARRAYS, MT_MAX_WORK, part->name);
        join_arrays(k, t, arrays, k->n_arrays, n_arrays);
    }
    memcpy(k->work + k->n_work, work, (size_t)n_work * sizeof *work);
    k->n_arrays += n_arrays;
    k->n_work += n_work;
    k->forward_kernels += part->forward_kernels;
    k->backward_kernels += part->backward_kernels;
    return MT_OK;
}

static mt_rc fill_kind(mt_layer_kind *k, const mt_config *c, const mt_layer_spec *s, mt_err *err)
{
    *k = (mt_layer_kind){ .spec = *s, .mixer_name = s->mixer->part.name, .ffn_name = s->ffn->part.name };
    MT_TRY(add_part(k, c, &mt_frame, err));
    k->first_mixer = k->n_arrays;
    MT_TRY(add_part(k, c, &s->mixer->part, err));
    k->first_ffn = k->n_arrays;
    return add_part(k, c, &s->ffn->part, err);
}

static bool same_spec(const mt_layer_spec *a, const mt_layer_spec *b)
{
    return a->mixer == b->mixer && a->ffn == b->ffn && a->norms == b->norms && a->form == b->form && a->rope == b->rope &&
           a->input_norm == b->input_norm && a->window == b->window && a->H == b->H && a->K == b->K && a->Dh == b->Dh &&
           a->F == b->F && a->E == b->E && a->T == b->T && a->I == b->I && a->Is == b->Is;
}

mt_rc mt_layer_kinds(mt_layer_kind **out, int *n_out, int **kind_of_layer, const mt_config *c, mt_err *err)
{
    int n = 0;
    *out = NULL;
    *n_out = 0;
    *kind_of_layer = mt_calloc((size_t)c->L, sizeof **kind_of_layer);
    if (!*kind_of_layer) return mt_no_memory(err, "the table of layers");
    for (int l = 0; l < c->L; l++) {
        int k = 0;
        while (k < n && !same_spec(&(*out)[k].spec, &c->layers[l])) k++;
        (*kind_of_layer)[l] = k;
        if (k < n) continue;
        mt_layer_kind *grown = mt_realloc(*out, (size_t)(n + 1) * sizeof *grown);
        if (!grown) return mt_no_memory(err, "the table of layers");
        *out = grown;
        MT_TRY(fill_kind(&grown[n], c, &c->layers[l], err));
        *n_out = ++n;
    }
    return MT_OK;
}

/* -- carving --------------------------------------------------------------------------------------- */

static void carve(mt_carving *out, int i, size_t bytes)
{
    out->at[i] = bytes ? out->bytes : SIZE_MAX;
    out->bytes += mt_round_up(bytes, MT_ARRAY_ALIGN);
}

void mt_carve_kept(mt_carving *out, const mt_layer_kind *k, mt_dtype t, mt_keep keep, int64_t rows)
{
    const mt_array *a = mt_kind_arrays(k, t);
    out->bytes = 0;
    for (int i = 0; i < k->n_arrays; i++) carve(out, i, keep >= a[i].keep ? a[i].row_bytes * (size_t)rows : 0);
}

size_t mt_kept_bytes(const mt_layer_kind *k, mt_dtype t, mt_keep keep, int64_t rows)
{
    mt_carving c;
    mt_carve_kept(&c, k, t, keep, rows);
    return c.bytes;
}

size_t mt_kept_row_bytes(const mt_layer_kind *k, mt_dtype t, mt_keep keep)
{
    const mt_array *a = mt_kind_arrays(k, t);
    size_t bytes = 0;
    for (int i = 0; i < k->n_arrays; i++)
        if (keep >= a[i].keep) bytes += a[i].row_bytes;
    return bytes;
}

void mt_carve_work(mt_carving *out, const mt_layer_kind *k, mt_dtype t, bool shared, mt_work_rows rows)
{
    const mt_array *a = mt_kind_arrays(k, t);
    out->bytes = 0;
    for (int i = 0; i < k->n_arrays; i++) {
        bool chunk = a[i].extent == MT_EXTENT_CHUNK || (a[i].extent == MT_EXTENT_SEGMENT && !rows.segments);
        size_t n = (size_t)(chunk ? rows.chunk : rows.micro);
        carve(out, i, a[i].shared == shared && !a[i].instead && a[i].row_bytes ? a[i].row_bytes * n + a[i].fixed : 0);
    }
}
