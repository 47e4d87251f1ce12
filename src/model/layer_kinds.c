/* layer_kinds.c - kinds of layers: the lists of their parts, joined, and how blocks of memory are carved by them. */
#include "base/mem.h"
#include "model/part.h"

#include <string.h>

/* -- kinds ----------------------------------------------------------------------------------------- */

/* Append the arrays of one more part. */
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
    mt_product products[MT_MAX_PRODUCTS];
    mt_work_item work[MT_MAX_WORK];
    int n_arrays = 0, n_work = part->work(c, &k->spec, work);
    const int n_products = part->products ? part->products(c, &k->spec, products) : 0;
    for (int t = 0; t < 2; t++) {
        n_arrays = part->arrays(c, &k->spec, types[t], arrays);
        if (k->n_arrays + n_arrays > MT_MAX_ARRAYS || k->n_products + n_products > MT_MAX_PRODUCTS ||
            k->n_work + n_work > MT_MAX_WORK)
            return mt_fail(
                err, MT_EINTERNAL,
                "the parts of a layer list more than %d arrays, %d products or %d items of work; \"%s\" is one too many",
                MT_MAX_ARRAYS, MT_MAX_PRODUCTS, MT_MAX_WORK, part->name);
        join_arrays(k, t, arrays, k->n_arrays, n_arrays);
    }
    memcpy(k->products + k->n_products, products, (size_t)n_products * sizeof *products);
    memcpy(k->work + k->n_work, work, (size_t)n_work * sizeof *work);
    k->n_arrays += n_arrays;
    k->n_products += n_products;
    k->n_work += n_work;
    k->forward_kernels += part->forward_kernels;
    k->backward_kernels += part->backward_kernels;
    return MT_OK;
}

/* Experts run between two units of a layer: before them xmid and its norm are made, after them their sum is added.  Branches side by
 * side, or a norm of the sum, would need more than that, and no family here has them. */
static mt_rc check_form(const mt_config *c, const mt_layer_spec *s, mt_err *err)
{
    if (!s->ffn->experts || (s->form == MT_BLOCK_SERIAL && s->norms == MT_NORMS_PRE)) return MT_OK;
    return mt_fail(err, MT_EUNSUPPORTED,
                   "layers with experts that have %s are not supported (family %s): expected a norm before each branch, and one "
                   "branch after the other",
                   s->form != MT_BLOCK_SERIAL ? "their branches side by side" : "norms after their branches", c->family->name);
}

static void mark_written(mt_layer_kind *k)
{
    if (!k->spec.mixer->part.writes || !k->spec.ffn->part.writes) return;
    for (int i = 0; i < k->n_products; i++)
        for (int j = 0; j < MT_PRODUCT_WEIGHTS; j++)
            if (k->products[i].of[j].n) k->writes[k->products[i].of[j].w] = true;
}

static mt_rc fill_kind(mt_layer_kind *k, const mt_config *c, const mt_layer_spec *s, mt_err *err)
{
    *k = (mt_layer_kind){ .spec = *s, .mixer_name = s->mixer->part.name, .ffn_name = s->ffn->part.name };
    MT_TRY(add_part(k, c, &mt_frame, err));
    k->first_mixer = k->n_arrays;
    MT_TRY(add_part(k, c, &s->mixer->part, err));
    k->first_ffn = k->n_arrays;
    k->first_ffn_product = k->n_products;
    k->first_ffn_work = k->n_work;
    k->unit_forward_kernels = s->ffn->unit_forward_kernels;
    k->unit_backward_kernels = s->ffn->unit_backward_kernels;
    MT_TRY(check_form(c, s, err));
    MT_TRY(add_part(k, c, &s->ffn->part, err));
    mark_written(k);
    return MT_OK;
}

static bool same_spec(const mt_layer_spec *a, const mt_layer_spec *b)
{
    return a->mixer == b->mixer && a->ffn == b->ffn && a->norms == b->norms && a->form == b->form && a->rope == b->rope &&
           a->input_norm == b->input_norm && a->window == b->window && a->chunk == b->chunk && a->no_qk_norm == b->no_qk_norm &&
           a->no_q_scale == b->no_q_scale && a->H == b->H && a->K == b->K && a->Dh == b->Dh && a->F == b->F && a->E == b->E &&
           a->T == b->T && a->I == b->I && a->Is == b->Is && a->unit_experts == b->unit_experts;
}

int64_t mt_default_unit_experts(const mt_config *c, int layer)
{
    const mt_layer_spec *s = &c->layers[layer];
    const int64_t each = 3 * s->I * c->D;
    int64_t most = 0;
    for (int64_t n = 1; n <= s->E; n++)
        if (s->E % n == 0 && (n == 1 || n * each <= MT_UNIT_PARAMETERS)) most = n;
    return most;
}

/* The layer's spec with the experts of its units. */
static mt_rc settle_spec(mt_layer_spec *out, const mt_config *c, int layer, int64_t unit_experts, mt_err *err)
{
    *out = c->layers[layer];
    if (!out->E) return MT_OK;
    out->unit_experts = unit_experts ? unit_experts : mt_default_unit_experts(c, layer);
    if (out->unit_experts > 0 && out->E % out->unit_experts == 0) return MT_OK;
    return mt_fail(err, MT_EINVAL, "units of %lld experts for layer %d, which has %lld; expected a divisor of that",
                   (long long)out->unit_experts, layer, (long long)out->E);
}

mt_rc mt_layer_kinds(mt_model *m, int64_t unit_experts, mt_err *err)
{
    const mt_config *c = m->config;
    m->kind_of_layer = mt_calloc((size_t)c->L, sizeof *m->kind_of_layer);
    if (!m->kind_of_layer) return mt_no_memory(err, "the table of layers");
    for (int l = 0; l < c->L; l++) {
        mt_layer_spec s;
        int k = 0;
        MT_TRY(settle_spec(&s, c, l, unit_experts, err));
        if (!m->unit_experts) m->unit_experts = s.unit_experts;
        if (s.E) m->routed = (mt_routed){ m->routed.layers + 1, s.E, s.T }; /* the same in all of them (config_experts.c) */
        while (k < m->n_kinds && !same_spec(&m->kinds[k].spec, &s)) k++;
        m->kind_of_layer[l] = k;
        if (k < m->n_kinds) continue;
        mt_layer_kind *grown = mt_realloc(m->kinds, (size_t)(k + 1) * sizeof *grown);
        if (!grown) return mt_no_memory(err, "the table of layers");
        m->kinds = grown;
        MT_TRY(fill_kind(&grown[k], c, &s, err));
        m->n_kinds = k + 1;
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
        int64_t n = chunk ? rows.chunk : rows.micro;
        if (a[i].extent == MT_EXTENT_PASS) n = rows.pass;
        if (a[i].extent == MT_EXTENT_SWEEP) n = rows.sweep;
        carve(out, i, a[i].shared == shared && !a[i].instead && a[i].row_bytes ? a[i].row_bytes * (size_t)n + a[i].fixed : 0);
    }
}

size_t mt_model_pass_bytes(const mt_model *m, mt_dtype t)
{
    size_t most = 0;
    for (int k = 0; k < m->n_kinds; k++) {
        const mt_array *a = mt_kind_arrays(&m->kinds[k], t);
        size_t bytes = 0;
        for (int i = 0; i < m->kinds[k].n_arrays; i++)
            if (a[i].extent == MT_EXTENT_PASS) bytes += a[i].row_bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}
