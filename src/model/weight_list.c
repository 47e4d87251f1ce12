/* weight_list.c - the weights of a unit, from the rows of its family's table (family.h): their names in the files, their shapes, and
 * their places in packed tensors. */
#include "model/model_internal.h"
#include "model/part.h"

#include <stdio.h>
#include <string.h>

/* -- names ----------------------------------------------------------------------------------------- */

/* The name with a number for its mark, if it has that mark. */
static void fill_in(char out[MT_NAME_BYTES], const char *name, const char *mark, int number)
{
    const char *at = strstr(name, mark);
    const size_t before = at ? (size_t)(at - name) : strlen(name); /* shorter than MT_NAME_BYTES, as every name */
    memcpy(out, name, before); /* "%.*s" takes many times longer, and opening a model makes ten thousands of names */
    if (at)
        snprintf(out + before, MT_NAME_BYTES - before, "%d%s", number, at + strlen(mark));
    else
        out[before] = '\0';
}

void mt_weight_name(const mt_unit *unit, const mt_weight *w, char out[MT_NAME_BYTES])
{
    char of_expert[MT_NAME_BYTES];
    fill_in(of_expert, w->name, "%e", unit->first_expert + w->expert);
    fill_in(out, of_expert, "%d", unit->layer);
}

bool mt_weight_leads(const mt_unit *unit, const mt_weight *w) { return mt_weight_first_row(unit, w) == 0; }

static const char *family_prefix(const mt_config *c) { return c->family->prefix ? c->family->prefix : "model."; }

mt_file_names mt_file_names_of(const mt_config *c)
{
    mt_file_names n = { .tied = c->tied, .tensors = c->family->tensors };
    snprintf(n.prefix, sizeof n.prefix, "%s", family_prefix(c));
    return n;
}

/* The row's name as the files have it. */
static void file_name(const mt_config *c, const mt_file_names *names, const mt_tensor_row *row, char out[MT_NAME_BYTES])
{
    const char *prefix = family_prefix(c), *name = row->role == MT_W_HEAD && names->head ? names->head : row->name;
    if (strncmp(name, prefix, strlen(prefix)) == 0)
        snprintf(out, MT_NAME_BYTES, "%s%s", names->prefix, name + strlen(prefix));
    else
        snprintf(out, MT_NAME_BYTES, "%s%s", names->head_prefix, name);
}

bool mt_role_name(const mt_config *c, const mt_file_names *names, mt_role role, char out[MT_NAME_BYTES])
{
    for (const mt_tensor_row *row = names->tensors; row->name; row++)
        if (row->role == role) {
            file_name(c, names, row, out);
            return true;
        }
    out[0] = '\0';
    return false;
}

/* -- rows of the table ----------------------------------------------------------------------------- */

static mt_unit_kind unit_kind_of(mt_role role)
{
    switch (role) {
    case MT_W_EMBED:
    case MT_W_POS: return MT_UNIT_EMBED;
    case MT_W_FINAL_NORM:
    case MT_B_FINAL_NORM:
    case MT_W_HEAD:
    case MT_B_HEAD: return MT_UNIT_HEAD;
    case MT_W_E_GATE:
    case MT_W_E_UP:
    case MT_W_E_DOWN:
    case MT_B_E_GATE:
    case MT_B_E_UP:
    case MT_B_E_DOWN: return MT_UNIT_EXPERTS;
    default: return MT_UNIT_LAYER;
    }
}

/* The parts of a layer that have weights. */
typedef struct layer_parts {
    const mt_part *p[3];
} layer_parts;
static layer_parts parts_of(const mt_layer_spec *s) { return (layer_parts){ { &mt_frame, &s->mixer->part, &s->ffn->part } }; }

/* True if the model has a tensor of this role; s: the spec of its layer, NULL outside of layers. */
static bool has_role(const mt_config *c, const mt_layer_spec *s, mt_role role)
{
    switch (role) {
    case MT_B_HEAD: return c->head_bias;
    case MT_W_POS: return c->learned_positions;
    case MT_W_FINAL_NORM: return !c->norm_bare;
    case MT_B_FINAL_NORM: return c->norm_bias;
    default: break;
    }
    if (!s) return true;
    const layer_parts parts = parts_of(s);
    for (size_t i = 0; i < MT_COUNT(parts.p); i++)
        if (parts.p[i]->has_role(c, s, role)) return true;
    return false;
}

/* True if this unit holds tensors of this role.  A tied embedding holds the head's, too, but for the head itself. */
static bool unit_holds(const mt_model *m, const mt_unit *u, mt_role role)
{
    mt_unit_kind kind = unit_kind_of(role);
    if (m->tied && role == MT_W_HEAD) return false;
    return u->kind == kind || (m->tied && u->kind == MT_UNIT_EMBED && kind == MT_UNIT_HEAD);
}

/* s: the spec of the layer; NULL outside of layers, which have none of the dimensions that layers may differ in. */
static int64_t dim_of(const mt_config *c, const mt_layer_spec *s, mt_dim d)
{
    switch (d) {
    case MT_D: return c->D;
    case MT_F: return s->F;
    case MT_V: return c->V;
    case MT_DH: return s->Dh;
    case MT_H: return s->H;
    case MT_K: return s->K;
    case MT_H_DH: return s->H * s->Dh;
    case MT_K_DH: return s->K * s->Dh;
    case MT_POSITIONS: return c->position_rows;
    case MT_DELTA_H: return c->delta.H;
    case MT_DELTA_DV: return c->delta.Dv;
    case MT_DELTA_KEYS: return c->delta.K * c->delta.Dk;
    case MT_DELTA_VALUES: return c->delta.H * c->delta.Dv;
    case MT_DELTA_CHANNELS: return 2 * c->delta.K * c->delta.Dk + c->delta.H * c->delta.Dv;
    case MT_DELTA_WIDTH: return c->delta.width;
    case MT_Q_RANK: return c->latent.q_rank;
    case MT_KV_RANK: return c->latent.kv_rank;
    case MT_DR: return c->latent.dr;
    case MT_H_DN: return s->H * c->latent.dn;
    case MT_H_DV: return s->H * c->latent.dv;
    case MT_E: return s->E;
    case MT_I: return s->I;
    case MT_IS: return s->Is;
    case MT_ONE:
    case MT_NONE: break;
    }
    return 1;
}

/* Groups of rows that a packed tensor has, each with rows of every role in it. */
static int64_t n_groups_of(const mt_config *c, const mt_layer_spec *s, mt_pack pack)
{
    switch (pack) {
    case MT_PACK_HEADS: return s->K;
    case MT_PACK_QUERY_HEADS: return s->H;
    case MT_PACK_DELTA_HEADS: return c->delta.K;
    case MT_PACK_EXPERTS_IN_TURN: return s->I;
    default: return 1;
    }
}

static bool row_packs_experts(const mt_tensor_row *row)
{
    return row->pack == MT_PACK_EXPERTS || row->pack == MT_PACK_EXPERTS_IN_TURN;
}

static bool row_of_experts(const mt_tensor_row *row) { return row->pack == MT_PACK_EXPERT || row_packs_experts(row); }

/* The offset of a table row in its tensor: after the earlier rows with the same name that exist. */
static mt_tensor_slice slice_of(const mt_model *m, const mt_layer_spec *spec, const mt_tensor_row *row)
{
    const mt_config *c = m->config;
    int64_t rows = dim_of(c, spec, row->shape[0]), columns = dim_of(c, spec, row->shape[1]), before = 0, all = 0;
    int64_t groups = n_groups_of(c, spec, row->pack);
    for (const mt_tensor_row *r = m->names.tensors; r->name; r++) {
        if (strcmp(r->name, row->name) != 0 || !has_role(c, spec, r->role)) continue;
        if (r < row) before += dim_of(c, spec, r->shape[0]);
        all += dim_of(c, spec, r->shape[0]);
    }
    mt_tensor_slice s = { .n_dims = row->shape[1] ? 2 : 1,
                          .shape = { all, columns, 1 },
                          .slab = { all, columns },
                          .run = rows / groups,
                          .stride = all / groups,
                          .first = before / groups,
                          .transposed = row->transposed,
                          .experts = row_packs_experts(row) };
    if (row->transposed) {
        s.shape[0] = s.slab[0] = columns;
        s.shape[1] = s.slab[1] = all;
    }
    if (s.experts || row->pack == MT_PACK_CHANNELS) {
        s.n_dims = row->shape[1] ? 3 : 2;
        s.shape[0] = s.experts ? spec->E : s.slab[0];
        s.shape[1] = s.experts ? s.slab[0] : 1;
        s.shape[2] = s.slab[1];
    }
    return s;
}

/* Weights of the row in a unit. */
static int64_t n_weights_of(const mt_config *c, const mt_layer_spec *s, const mt_unit *u, const mt_tensor_row *row)
{
    if (row_of_experts(row)) return u->n_experts;
    return row->pack == MT_PACK_APART ? dim_of(c, s, row->shape[0]) / s->Dh : 1;
}

static bool unit_has_row(const mt_model *m, const mt_layer_spec *s, const mt_unit *u, const mt_tensor_row *row)
{
    return unit_holds(m, u, row->role) && has_role(m->config, s, row->role);
}

static mt_weight whole_weight(const mt_model *m, const mt_layer_spec *s, const mt_tensor_row *row)
{
    const mt_config *c = m->config;
    mt_weight w = {
        .role = row->role, .n_dims = row->shape[1] ? 2 : 1, .slice = slice_of(m, s, row), .exact = row->exact, .fixed = row->fixed
    };
    file_name(c, &m->names, row, w.name);
    w.shape[0] = dim_of(c, s, row->shape[0]);
    w.shape[1] = dim_of(c, s, row->shape[1]);
    w.n = w.shape[0] * w.shape[1]; /* dimensions are at most 2^24 */
    return w;
}

/* The share of one head in a role whose heads have separate tensors. */
static mt_weight head_weight(const mt_model *m, const mt_layer_spec *s, const mt_tensor_row *row, int64_t head)
{
    mt_weight w = { .role = row->role, .n_dims = 1, .shape = { s->Dh, 1 }, .n = s->Dh, .exact = row->exact };
    char name[MT_NAME_BYTES];
    w.slice = (mt_tensor_slice){ .n_dims = 1, .shape = { s->Dh, 1, 1 }, .slab = { s->Dh, 1 }, .run = s->Dh, .stride = s->Dh };
    file_name(m->config, &m->names, row, name);
    fill_in(w.name, name, "%h", (int)head);
    return w;
}

static mt_weight weight_of(const mt_model *m, const mt_layer_spec *s, const mt_tensor_row *row, int64_t i)
{
    if (row->pack == MT_PACK_APART) return head_weight(m, s, row, i);
    mt_weight w = whole_weight(m, s, row);
    if (row_of_experts(row)) w.expert = (int)i;
    return w;
}

bool mt__roles_side_by_side(const mt_layer_kind *k, mt_role a, mt_role b)
{
    if (a == b) return true;
    for (int i = 0; k && i < k->n_products; i++)
        if (mt_product_joins(&k->products[i], a, b)) return true;
    return false;
}

/* The end of the rows that are listed together with this one, number by number: an expert's gate and up stay side by side. */
static const mt_tensor_row *end_of_run(const mt_layer_kind *k, const mt_tensor_row *row)
{
    const mt_tensor_row *end = row + 1;
    while (row_of_experts(row) && end->name && row_of_experts(end) && mt__roles_side_by_side(k, end[-1].role, end->role)) end++;
    return end;
}

mt_rc mt__weights_list(mt_layout *out, const mt_model *m, const mt_unit *u, mt_err *err)
{
    const mt_config *c = m->config;
    const mt_layer_spec *s = unit_spec(c, u);
    int64_t n = 1;
    for (const mt_tensor_row *row = m->names.tensors; row->name; row++)
        if (unit_has_row(m, s, u, row)) n += n_weights_of(c, s, u, row);
    out->weights = mt_calloc((size_t)n, sizeof *out->weights);
    if (!out->weights) return mt_no_memory(err, "the model's layout");
    for (const mt_tensor_row *row = m->names.tensors, *end; row->name; row = end) {
        end = end_of_run(unit_layer_kind(m, u), row);
        for (int64_t i = 0; unit_has_row(m, s, u, row) && i < n_weights_of(c, s, u, row); i++)
            for (const mt_tensor_row *r = row; r < end; r++) out->weights[out->n_weights++] = weight_of(m, s, r, i);
    }
    return MT_OK;
}
