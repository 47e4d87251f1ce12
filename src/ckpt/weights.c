#include "ckpt/weights.h"

#include "base/mem.h"
#include "base/str.h"
#include "ckpt/detect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool holds_weights(mt_dtype t)
{
    return t == MT_DTYPE_F32 || t == MT_DTYPE_BF16 || t == MT_DTYPE_F16 || t == MT_DTYPE_F64;
}

const mt_st_tensor *mt_weights_find(const mt_shards *shards, const mt_walk *at)
{
    char name[MT_NAME_BYTES];
    mt_weight_name(at->u, at->w, name);
    return mt_shards_find(shards, name);
}

/* -- experts --------------------------------------------------------------------------------------- */

/* The name of an expert's tensor of this role as `names` has it; false: the table has no such role. */
static bool expert_tensor(const mt_config *c, const mt_file_names *names, mt_role role, int layer, int expert,
                          char out[MT_NAME_BYTES])
{
    mt_weight w = { .expert = expert };
    if (!mt_role_name(c, names, role, w.name)) return false;
    mt_weight_name(&(mt_unit){ .layer = layer }, &w, out);
    return true;
}

static bool has_expert(const mt_model *m, const mt_shards *shards, mt_role role, int layer, int expert)
{
    char name[MT_NAME_BYTES];
    return expert_tensor(m->config, &m->names, role, layer, expert, name) && mt_shards_find(shards, name);
}

/* Fails because an expert's tensor is missing; the message counts those that the files have. */
static mt_rc missing_expert(const mt_model *m, int layer, mt_role role, const char *name, const mt_shards *shards, mt_err *err)
{
    const int E = (int)m->config->layers[layer].E;
    int found = 0;
    for (int e = 0; e < E; e++) found += has_expert(m, shards, role, layer, e);
    return mt_fail(err, MT_ENOENT,
                   "tensor \"%s\" is missing: config.json says %d experts, and the files have %d of this tensor in layer %d.\n"
                   "  If config.json and the weights are of different revisions, download both again",
                   name, E, found, layer);
}

/* Experts that the model would leave out: one more than it has, or all of them once more in the other layout. */
static mt_rc check_experts(const mt_model *m, int layer, const mt_shards *shards, mt_err *err)
{
    const mt_config *c = m->config;
    const int E = (int)c->layers[layer].E;
    const mt_tensor_row *tables[] = { c->family->tensors, c->family->other_tensors };
    mt_file_names other = m->names;
    char own[MT_NAME_BYTES], name[MT_NAME_BYTES];
    if (!E || !expert_tensor(c, &m->names, MT_W_E_DOWN, layer, 0, own)) return MT_OK;
    expert_tensor(c, &m->names, MT_W_E_DOWN, layer, E, name);
    if (strcmp(own, name) != 0 && mt_shards_find(shards, name))
        return mt_fail(err, MT_EFORMAT,
                       "tensor \"%s\" is of expert %d, counted from 0, but config.json says that there are %d experts.\n"
                       "  config.json and the weights look like different revisions; download both again",
                       name, E, E);
    other.tensors = m->names.tensors == tables[0] ? tables[1] : tables[0];
    if (!other.tensors || !expert_tensor(c, &other, MT_W_E_DOWN, layer, 0, name) || !mt_shards_find(shards, name)) return MT_OK;
    return mt_fail(err, MT_EFORMAT,
                   "the files mix two layouts of experts: tensor \"%s\" of layer %d beside names such as \"%s\".\n"
                   "  Keep the files of one of them",
                   name, layer, own);
}

static mt_rc misshapen(const mt_walk *at, const mt_st_tensor *t, const mt_tensor_slice *s, mt_err *err)
{
    const mt_config *c = at->m->config;
    const int layer = at->u->layer;
    const mt_layer_spec *l = layer >= 0 && c->layers[layer].E ? &c->layers[layer] : NULL;
    char experts[96] = "";
    if (l) snprintf(experts, sizeof experts, ", experts=%lld, their width=%lld", (long long)l->E, (long long)l->I);
    return mt_fail(err, MT_EFORMAT,
                   "%s: tensor \"%s\" is %s, expected %s\n"
                   "  (config.json: hidden_size=%lld, intermediate_size=%lld, heads=%lld, kv heads=%lld, head_dim=%lld, "
                   "vocab_size=%lld%s).\n"
                   "  config.json and the weights look like different revisions; download both again",
                   t->file, t->name, mt_st_shape_text(t->n_dims, t->shape).s, mt_st_shape_text(s->n_dims, s->shape).s,
                   (long long)c->D, (long long)c->F, (long long)c->H, (long long)c->K, (long long)c->Dh, (long long)c->V,
                   experts);
}

static bool fits(const mt_st_tensor *t, const mt_tensor_slice *s)
{
    bool same = t->n_dims == s->n_dims;
    for (int d = 0; same && d < s->n_dims; d++) same = (int64_t)t->shape[d] == s->shape[d];
    return same;
}

static mt_rc check_one(const mt_walk *at, const mt_shards *shards, mt_err *err)
{
    const mt_config *c = at->m->config;
    const mt_weight *w = at->w;
    char name[MT_NAME_BYTES];
    mt_weight_name(at->u, w, name);
    const mt_st_tensor *t = mt_shards_find(shards, name);
    if (!t && (w->role == MT_W_E_GATE || w->role == MT_W_E_UP || w->role == MT_W_E_DOWN) && w->slice.n_dims == 2)
        return missing_expert(at->m, at->u->layer, w->role, name, shards, err);
    if (!t)
        return mt_fail(err, MT_ENOENT,
                       "tensor \"%s\" is missing (the model was taken for %s: %lld layers, model_type \"%s\").\n"
                       "  If config.json and the weights are of different revisions, download both again",
                       name, c->family->name, (long long)c->L, c->model_type);
    const mt_tensor_slice *s = &w->slice;
    if (!fits(t, s)) return misshapen(at, t, s, err);
    if (!holds_weights(t->dtype))
        return mt_fail(err, MT_EUNSUPPORTED, "%s: tensor \"%s\" is stored as %s; weights in F32, BF16 or F16 are supported",
                       t->file, name, mt_dtype_st_name(t->dtype));
    return MT_OK;
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

mt_rc mt_own_names_init(mt_own_names *out, const mt_model *m, mt_err *err)
{
    size_t most = mt_walk_count(mt_walk_model(m)) + 1;
    *out = (mt_own_names){ .names = mt_calloc(most, sizeof *out->names) };
    if (!out->names) return mt_no_memory(err, "%zu tensor names", most);
    for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);) mt_weight_name(at.u, at.w, out->names[out->n++]);
    if (m->tied) mt_role_name(m->config, &m->names, MT_W_HEAD, out->names[out->n++]);
    qsort(out->names, out->n, sizeof *out->names, by_text);
    return MT_OK;
}

bool mt_own_names_has(const mt_own_names *own, const char *name)
{
    return bsearch(name, own->names, own->n, sizeof *own->names, by_text);
}

void mt_own_names_deinit(mt_own_names *own) { mt_free(own->names); }

/* xIELU's constants are in the files, too; others than the usual ones would not be computed. */
static bool is_xielu_constant(const mt_model *m, const char *name)
{
    return m->config->act == MT_ACT_XIELU && (mt_ends_with(name, ".act_fn.beta") || mt_ends_with(name, ".act_fn.eps"));
}

/* Nothing to compute with: tables that can be made again, scales of quantized tensors, and a tied head that was written twice. */
static bool is_harmless(const mt_model *m, const char *name)
{
    static const char *const ends[] = { ".inv_freq",  ".attn.bias", ".attention.bias", ".masked_bias",
                                        "_scale_inv", "_scale",     "_scales" };
    for (size_t i = 0; i < MT_COUNT(ends); i++)
        if (mt_ends_with(name, ends[i])) return true;
    return strstr(name, "rotary") || (m->tied && strcmp(name, "lm_head.weight") == 0) || is_xielu_constant(m, name);
}

/* A model whose type is not known is taken for a familiar block only if that block uses all it has: a tensor left over (a bias, a
 * second norm) is something the block would not compute. */
static mt_rc check_nothing_is_left(const mt_model *m, const mt_shards *shards, mt_err *err)
{
    mt_own_names own;
    mt_rc rc = mt_own_names_init(&own, m, err);
    for (size_t i = 0; !rc && i < mt_shards_count(shards); i++) {
        const char *name = mt_shards_at(shards, i)->name;
        if (!is_harmless(m, name) && !mt_own_names_has(&own, name))
            rc = mt_fail(
                err, MT_EUNSUPPORTED,
                "model_type \"%s\" is not known, and taken for a %s model it would leave tensor \"%s\" unused; this model "
                "is not supported",
                m->config->model_type, m->config->family->name, name);
    }
    mt_own_names_deinit(&own);
    return rc;
}

/* The beginning of the names of layers' tensors: "model.layers." */
static size_t layer_prefix(const mt_model *m, char name[MT_NAME_BYTES])
{
    for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);) {
        char number[16];
        if (at.u->layer < 0) continue;
        mt_weight_name(at.u, at.w, name);
        snprintf(number, sizeof number, ".%d.", at.u->layer);
        const char *found = strstr(name, number);
        return found ? (size_t)(found - name) + 1 : 0;
    }
    return 0;
}

mt_rc mt_weights_strays(mt_strays *out, const mt_model *m, const mt_shards *shards, mt_err *err)
{
    char prefix[MT_NAME_BYTES];
    const size_t n = layer_prefix(m, prefix);
    mt_own_names own;
    *out = (mt_strays){ 0 };
    MT_TRY(mt_own_names_init(&own, m, err));
    for (size_t i = 0; n && i < mt_shards_count(shards); i++) {
        const char *name = mt_shards_at(shards, i)->name;
        const bool inside = strncmp(name, prefix, n) == 0 && strtoll(name + n, NULL, 10) < m->config->L;
        if (!inside || is_harmless(m, name) || mt_own_names_has(&own, name)) continue;
        if (!out->n++) out->first = name;
    }
    mt_own_names_deinit(&own);
    return MT_OK;
}

static mt_rc check_xielu(const mt_model *m, const mt_shards *shards, mt_err *err)
{
    for (size_t i = 0; m->config->act == MT_ACT_XIELU && i < mt_shards_count(shards); i++) {
        const mt_st_tensor *t = mt_shards_at(shards, i);
        float x, usual = mt_ends_with(t->name, ".beta") ? MT_XIELU_BETA : MT_XIELU_EPS;
        if (!is_xielu_constant(m, t->name) || !mt_st_is_float(t) || t->n != 1) continue;
        mt_st_read(t, 0, 1, &x);
        if (fabsf(x - usual) > 0.01f * fabsf(usual))
            return mt_fail(err, MT_EUNSUPPORTED, "%s: tensor \"%s\" is %g; only %g is supported", t->file, t->name, (double)x,
                           (double)usual);
    }
    return MT_OK;
}

static bool has_head(const mt_model *m, const mt_shards *shards)
{
    char name[MT_NAME_BYTES];
    return mt_role_name(m->config, &m->names, MT_W_HEAD, name) && mt_shards_find(shards, name);
}

/* A tensor that is missing or has another shape, of a model whose config.json says that it is quantized. */
static mt_rc blame_quantization(const mt_model *m, mt_rc rc, mt_err *err)
{
    if (!*m->config->quantized || (rc != MT_ENOENT && rc != MT_EFORMAT)) return rc;
    char first[256];
    size_t n = strcspn(err->msg, "\n(");
    while (n && err->msg[n - 1] == ' ') n--;
    snprintf(first, sizeof first, "%.*s", (int)n, err->msg);
    return mt_fail(err, MT_EUNSUPPORTED,
                   "%s: the weights are quantized (config.json: \"quant_method\" is \"%s\").\n"
                   "  docs/families.md lists the methods that are read; for another, take the model that this one was made from",
                   first, m->config->quantized);
}

mt_rc mt_weights_check(const mt_model *m, const mt_shards *shards, size_t *n_unused, mt_err *err)
{
    size_t used = 0;
    MT_TRY(check_xielu(m, shards, err));
    for (int l = 0; l < m->config->L; l++) MT_TRY(check_experts(m, l, shards, err));
    for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);) {
        const mt_rc rc = check_one(&at, shards, err);
        if (rc) return blame_quantization(m, rc, err);
        used += mt_weight_leads(at.u, at.w); /* of the weights that share a tensor, one counts */
    }
    if (m->tied && has_head(m, shards)) used++; /* written twice: the embedding has the same numbers (find_tying) */
    size_t unused = mt_shards_count(shards) - used;
    if (n_unused) *n_unused = unused;
    return unused && !m->config->type_known ? check_nothing_is_left(m, shards, err) : MT_OK;
}

bool mt_weights_is_bf16(const void *shards, const char *name)
{
    const mt_st_tensor *t = mt_shards_find(shards, name);
    return t && t->dtype == MT_DTYPE_BF16 && (!t->decoder || t->decoder->stored_as);
}

mt_st_rows mt_weights_rows(const mt_unit *unit, const mt_weight *w)
{
    return (mt_st_rows){ w->shape[0], mt_weight_first_row(unit, w), w->slice.run, w->slice.stride };
}

bool mt_weights_packing(const void *shards, const mt_unit *unit, const mt_weight *w, mt_packing *out)
{
    char name[MT_NAME_BYTES];
    mt_weight_name(unit, w, name);
    const mt_st_tensor *t = mt_shards_find(shards, name);
    if (!t || !t->decoder || !t->decoder->packing || !fits(t, &w->slice)) return false;
    if (t->decoder->packs_columns != w->slice.transposed) return false;
    const mt_st_rows rows = mt_weights_rows(unit, w);
    return t->decoder->packing(t->decoder, &rows, out) && out->columns == w->shape[1];
}

bool mt_weights_mapped(const mt_model *m, const mt_shards *shards)
{
    for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);) {
        if (at.w->exact) continue; /* both halves of these are in memory */
        const mt_st_tensor *t = mt_weights_find(shards, &at);
        if (!t || !t->data || t->dtype != MT_DTYPE_BF16 || !mt_weight_is_plain(at.w)) return false;
    }
    return true;
}

/* -- what the files say ---------------------------------------------------------------------------- */

/* The tensor of a role whose name has no layer in it. */
static const mt_st_tensor *find_role(const mt_config *c, const mt_file_names *names, const mt_shards *shards, mt_role role)
{
    char name[MT_NAME_BYTES];
    return mt_role_name(c, names, role, name) ? mt_shards_find(shards, name) : NULL;
}

/* Multimodal checkpoints keep the text model under a prefix, and some are saved without any: the embedding's name shows which. */
static void find_prefix(mt_file_names *n, const mt_config *c, const mt_shards *shards)
{
    const mt_file_names usual = mt_file_names_of(c);
    const char *own = usual.prefix;
    const struct {
        const char *before, *own, *after, *head;
    } forms[] = { { "", own, "", "" },
                  { "language_model.", own, "", "language_model." },
                  { "", own, "language_model.", "" },
                  { "", "", "", "" } };
    for (size_t i = 0; i < MT_COUNT(forms); i++) {
        snprintf(n->prefix, sizeof n->prefix, "%s%s%s", forms[i].before, forms[i].own, forms[i].after);
        snprintf(n->head_prefix, sizeof n->head_prefix, "%s", forms[i].head);
        if (find_role(c, n, shards, MT_W_EMBED)) return;
    }
    *n = usual; /* no prefix fits: messages use the usual names */
}

/* Some families have two names for the head. */
static void find_head(mt_file_names *n, const mt_config *c, const mt_shards *shards)
{
    if (!c->family->other_head || find_role(c, n, shards, MT_W_HEAD)) return;
    n->head = c->family->other_head;
    if (!find_role(c, n, shards, MT_W_HEAD)) n->head = NULL;
}

/* Two different tensors are never tied, whatever config.json says, and a single one is used for both. */
static void find_tying(mt_file_names *n, const mt_config *c, const mt_shards *shards, char notice[256])
{
    const mt_st_tensor *embed = find_role(c, n, shards, MT_W_EMBED), *head = find_role(c, n, shards, MT_W_HEAD);
    notice[0] = '\0';
    if (n->tied && embed && head && !mt_st_same(embed, head)) {
        n->tied = false;
        snprintf(notice, 256,
                 "config.json ties head and embedding, but the files hold two different tensors; they are trained apart");
    } else if (!n->tied && embed && !head) {
        n->tied = true;
        snprintf(notice, 256, "there is no head tensor; the embedding is also the head (tied)");
    }
}

/* True if the files have an expert, of the first layer with experts, under the name of this table. */
static bool has_experts_of(const mt_config *c, const mt_file_names *n, const mt_shards *shards)
{
    char name[MT_NAME_BYTES];
    int layer = 0;
    while (layer < c->L && !c->layers[layer].E) layer++;
    return expert_tensor(c, n, MT_W_E_DOWN, layer, 0, name) && mt_shards_find(shards, name);
}

/* Experts have a tensor each or share one; the files decide. */
static void find_experts(mt_file_names *n, const mt_config *c, const mt_shards *shards)
{
    if (!c->family->other_tensors || has_experts_of(c, n, shards)) return;
    n->tensors = c->family->other_tensors;
    if (!has_experts_of(c, n, shards)) n->tensors = c->family->tensors;
}

mt_file_names mt_weights_names(const mt_config *c, const mt_shards *shards, char notice[256])
{
    mt_file_names n = mt_file_names_of(c);
    find_prefix(&n, c, shards);
    find_head(&n, c, shards);
    find_experts(&n, c, shards);
    find_tying(&n, c, shards, notice);
    return n;
}

mt_rc mt_weights_model(mt_model **out, mt_config **config, const mt_shards *shards, const mt_model_options *options,
                       char notice[256], mt_err *err)
{
    mt_model_options o = options ? *options : (mt_model_options){ 0 };
    *out = NULL;
    notice[0] = '\0';
    if (!shards) return mt_model_create(out, *config, &o, err);
    if ((*config)->document) {
        mt_config *found;
        MT_TRY(mt_detect_family(&found, *config, shards, err));
        mt_config_close(*config);
        *config = found;
    }
    const mt_file_names names = mt_weights_names(*config, shards, notice);
    o.names = &names;
    o.is_bf16 = mt_weights_is_bf16;
    o.packing = mt_weights_packing;
    o.files = shards;
    return mt_model_create(out, *config, &o, err);
}

static mt_rc check_finite(const mt_st_tensor *t, mt_err *err)
{
    enum { PIECE = 4096 };
    float f[PIECE];
    for (size_t at = 0; mt_st_is_float(t) && at < t->n; at += PIECE) {
        size_t n = t->n - at < PIECE ? t->n - at : PIECE;
        mt_st_read(t, at, n, f);
        for (size_t i = 0; i < n; i++)
            if (!isfinite(f[i]))
                return mt_fail(
                    err, MT_ENUMERIC,
                    "%s: tensor \"%s\" holds numbers that are not finite (the first is number %zu of %zu): the weights are "
                    "damaged, or come from a failed training run; download them again, or use an earlier checkpoint",
                    t->file, t->name, at + i, t->n);
    }
    return MT_OK;
}

mt_rc mt_weights_check_finite(const mt_shards *shards, mt_err *err)
{
    for (size_t i = 0; i < mt_shards_count(shards); i++) MT_TRY(check_finite(mt_shards_at(shards, i), err));
    return MT_OK;
}
