/* gguf_model.c - what a GGUF file's tensors are called in a Hugging Face checkpoint, and how their rows are ordered there.
 *
 * llama.cpp rotates neighbouring pairs of a head's numbers where Hugging Face rotates halves, so for the llama
 * architecture its converter reorders the rows of q and k: of a head with Dh rows, Hugging Face's row  s * Dh/2 + j  (s 0 or 1)
 * becomes row  2 * j + s.  Reading undoes that.  qwen2 and qwen3 are stored in Hugging Face's order. */
#include "ckpt/gguf_impl.h"
#include "ckpt/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    bool rows_reordered; /* q and k */
} archs[] = { { "llama", true }, { "qwen2", false }, { "qwen3", false } };

/* "blk.N.THEIRS.weight" (or .bias) is "model.layers.N.OURS.weight". */
static const struct {
    const char *theirs, *ours;
} layer_names[] = {
    { "attn_norm", "input_layernorm" },
    { "attn_q", "self_attn.q_proj" },
    { "attn_k", "self_attn.k_proj" },
    { "attn_v", "self_attn.v_proj" },
    { "attn_output", "self_attn.o_proj" },
    { "attn_q_norm", "self_attn.q_norm" },
    { "attn_k_norm", "self_attn.k_norm" },
    { "ffn_norm", "post_attention_layernorm" },
    { "ffn_gate", "mlp.gate_proj" },
    { "ffn_up", "mlp.up_proj" },
    { "ffn_down", "mlp.down_proj" },
};

static const struct {
    const char *theirs, *ours;
} end_names[] = {
    { "token_embd.weight", "model.embed_tokens.weight" },
    { "output_norm.weight", "model.norm.weight" },
    { "output.weight", "lm_head.weight" },
};

static const char rope_factors[] = "rope_freqs.weight"; /* no weight: gguf_config.c reads it */

/* -- sizes the metadata states --------------------------------------------------------------------- */

mt_rc mt__gguf_size(const mt_gguf *g, const char *key, int64_t *out, mt_err *err)
{
    const mt__kv *kv = mt__gguf_find_arch(g, key);
    if (mt__kv_int(kv, out) && *out >= 1 && *out <= INT32_MAX) return MT_OK;
    return mt_fail(err, kv ? MT_EUNSUPPORTED : MT_EFORMAT, "%s: %s.%s is %s", g->path, g->arch, key, kv ? "not one positive number" : "missing");
}

mt_rc mt__gguf_heads(const mt_gguf *g, int64_t *H, int64_t *K, int64_t *Dh, mt_err *err)
{
    int64_t D;
    MT_TRY(mt__gguf_size(g, "attention.head_count", H, err));
    MT_TRY(mt__gguf_size(g, "embedding_length", &D, err));
    *K = *H;
    if (mt__gguf_find_arch(g, "attention.head_count_kv")) MT_TRY(mt__gguf_size(g, "attention.head_count_kv", K, err));
    *Dh = D / *H;
    if (mt__gguf_find_arch(g, "attention.key_length")) MT_TRY(mt__gguf_size(g, "attention.key_length", Dh, err));
    if (*Dh < 1 || *H % *K)
        return mt_fail(err, MT_EFORMAT, "%s: %lld heads, %lld key/value heads and a width of %lld do not go together", g->path, (long long)*H, (long long)*K,
                       (long long)D);
    return MT_OK;
}

/* -- reading --------------------------------------------------------------------------------------- */

typedef struct rows {
    mt_st_decoder base;
    const mt__quant *quant;
    const uint8_t *data;
    size_t width;      /* numbers in a row */
    size_t head_width; /* 0: rows are in order */
} rows;

/* Where a row of Hugging Face's lies in the file. */
static size_t row_in_file(const rows *r, size_t row)
{
    if (!r->head_width) return row;
    size_t in_head = row % r->head_width, half = r->head_width / 2;
    return row - in_head + in_head % half * 2 + in_head / half;
}

static void read_rows(const mt_st_decoder *d, size_t first, size_t n, float *out)
{
    const rows *r = (const rows *)d;
    if (!r->head_width) {
        mt__quant_read(r->quant, r->data, first, n, out);
        return;
    }
    while (n) {
        size_t row = first / r->width, column = first % r->width;
        size_t some = r->width - column < n ? r->width - column : n;
        mt__quant_read(r->quant, r->data, row_in_file(r, row) * r->width + column, some, out);
        first += some;
        out += some;
        n -= some;
    }
}

/* -- binding --------------------------------------------------------------------------------------- */

/* A tensor's name taken apart: "blk.7.attn_q.weight". */
typedef struct part {
    int layer;
    const char *ours;
    const char *kind; /* "weight" or "bias" */
    bool q, k;
} part;

static bool split_name(const char *name, part *p)
{
    char *end;
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9') return false;
    long layer = strtol(name + 4, &end, 10);
    const char *dot = *end == '.' ? strchr(end + 1, '.') : NULL;
    if (layer > 100000 || !dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0)) return false;
    for (size_t i = 0; i < MT_COUNT(layer_names); i++) {
        size_t n = strlen(layer_names[i].theirs);
        if ((size_t)(dot - end - 1) != n || memcmp(end + 1, layer_names[i].theirs, n) != 0) continue;
        *p = (part){ .layer = (int)layer, .ours = layer_names[i].ours, .kind = dot + 1 };
        p->q = strcmp(layer_names[i].theirs, "attn_q") == 0;
        p->k = strcmp(layer_names[i].theirs, "attn_k") == 0;
        return true;
    }
    return false;
}

static mt_rc rename_tensor(mt_gguf *g, const mt__gguf_raw *raw, const char **out, part *p, mt_err *err)
{
    char name[128];
    *p = (part){ 0 };
    for (size_t i = 0; i < MT_COUNT(end_names); i++)
        if (strcmp(raw->name, end_names[i].theirs) == 0) return *out = end_names[i].ours, MT_OK;
    if (!split_name(raw->name, p))
        return mt_fail(err, MT_EUNSUPPORTED,
                       "%s: tensor \"%.200s\" has no place in a %s model as this program knows it; convert the original model instead of its GGUF file", g->path,
                       raw->name, g->arch);
    snprintf(name, sizeof name, "model.layers.%d.%s.%s", p->layer, p->ours, p->kind);
    *out = mt_arena_strndup(&g->arena, name, strlen(name));
    return *out ? MT_OK : mt_fail(err, MT_ENOMEM, "%s: no host memory for its tensors", g->path);
}

/* The width of heads whose rows must be put back in order; 0: none. */
static mt_rc head_width(const mt_gguf *g, const mt__gguf_raw *raw, const part *p, size_t *out, mt_err *err)
{
    int64_t H, K, Dh;
    *out = 0;
    if (!p->q && !p->k) return MT_OK;
    MT_TRY(mt__gguf_heads(g, &H, &K, &Dh, err));
    if (Dh % 2 || raw->shape[0] != (p->q ? H : K) * Dh)
        return mt_fail(err, MT_EFORMAT, "%s: tensor \"%.200s\" has %lld rows, %lld heads of %lld were expected", g->path, raw->name, (long long)raw->shape[0],
                       (long long)(p->q ? H : K), (long long)Dh);
    *out = (size_t)Dh;
    return MT_OK;
}

static mt_rc bind_one(mt_gguf *g, const mt__gguf_raw *raw, bool reordered, mt_err *err)
{
    mt_st_tensor *t = &g->tensors[g->n_tensors];
    part p;
    size_t width = 0;
    *t = (mt_st_tensor){ .file = mt_path_base(g->path), .dtype = raw->quant->dtype, .n_dims = raw->n_dims, .n = raw->n, .bytes = raw->bytes };
    memcpy(t->shape, raw->shape, sizeof t->shape);
    MT_TRY(rename_tensor(g, raw, &t->name, &p, err));
    if (reordered) MT_TRY(head_width(g, raw, &p, &width, err));
    g->n_tensors++;
    if (!width && !raw->quant->decode) {
        t->data = raw->data;
        return MT_OK;
    }
    rows *r = mt_arena_alloc(&g->arena, sizeof *r);
    if (!r) return mt_fail(err, MT_ENOMEM, "%s: no host memory for its tensors", g->path);
    *r = (rows){ .base = { read_rows, raw->quant->decode ? raw->quant->name : NULL }, .quant = raw->quant, .data = raw->data, .head_width = width };
    r->width = raw->n_dims > 1 ? raw->n / (size_t)(raw->shape[0] ? raw->shape[0] : 1) : 1;
    t->decoder = &r->base;
    return MT_OK;
}

static mt_rc check_twice(const mt_gguf *g, mt_err *err)
{
    mt__names names;
    mt_rc rc = MT_OK;
    if (!mt__names_init(&names, g->n_tensors)) return mt_fail(err, MT_ENOMEM, "%s: no host memory for its tensors", g->path);
    for (size_t i = 0; i < g->n_tensors && !rc; i++)
        if (mt__names_add(&names, g->tensors[i].name, i) != i) rc = mt_fail(err, MT_EFORMAT, "%s: tensor \"%.200s\" is there twice", g->path, g->tensors[i].name);
    mt__names_deinit(&names);
    return rc;
}

static mt_rc find_arch(const mt_gguf *g, bool *reordered, mt_err *err)
{
    int64_t n;
    if (mt__kv_int(mt__gguf_find(g, "split.count"), &n) && n > 1)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: one of %lld files that only make a model together; merge them first (llama-gguf-split --merge)", g->path, (long long)n);
    if (mt__kv_int(mt__gguf_find_arch(g, "expert_count"), &n) && n > 0)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: a mixture of %lld experts; those are not read from GGUF files", g->path, (long long)n);
    for (size_t i = 0; i < MT_COUNT(archs); i++)
        if (strcmp(g->arch, archs[i].name) == 0) return *reordered = archs[i].rows_reordered, MT_OK;
    return mt_fail(err, MT_EUNSUPPORTED, "%s: architecture \"%s\"; of GGUF files llama (Mistral's too), qwen2 and qwen3 are read.  Use the original model", g->path, g->arch);
}

mt_rc mt__gguf_bind(mt_gguf *g, mt_err *err)
{
    bool reordered = false;
    MT_TRY(find_arch(g, &reordered, err));
    g->tensors = mt_arena_calloc(&g->arena, g->n_raws, sizeof *g->tensors);
    if (!g->tensors) return mt_fail(err, MT_ENOMEM, "%s: no host memory for its tensors", g->path);
    for (size_t i = 0; i < g->n_raws; i++)
        if (strcmp(g->raws[i].name, rope_factors) != 0) MT_TRY(bind_one(g, &g->raws[i], reordered, err));
    return check_twice(g, err);
}
