/* gguf_model.c - what a GGUF file's tensors are called in a Hugging Face checkpoint, and how their rows are ordered there.
 *
 * llama.cpp rotates neighboring pairs of a head's numbers where Hugging Face rotates halves, so for the llama
 * architecture its converter reorders the rows of q and k: of a head with Dh rows, Hugging Face's row  s * Dh/2 + j  (s 0 or 1)
 * becomes row  2 * j + s.  Reading undoes that.  Which architectures it does that to, and what else differs, is in gguf_arch.c. */
#include "ckpt/gguf_impl.h"
#include "ckpt/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    return mt_fail(err, kv ? MT_EUNSUPPORTED : MT_EFORMAT, "%s: %s.%s is %s", g->base.path, g->arch, key,
                   kv ? "not one positive number" : "missing");
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
        return mt_fail(err, MT_EFORMAT, "%s: %lld heads, %lld key/value heads and a width of %lld do not go together",
                       g->base.path, (long long)*H, (long long)*K, (long long)D);
    return MT_OK;
}

/* -- reading --------------------------------------------------------------------------------------- */

typedef struct rows {
    mt_st_decoder base;
    const mt__quant *quant;
    const uint8_t *data;
    size_t width;      /* numbers in a row */
    size_t head_width; /* 0: rows are in order */
    float minus;       /* what was added to every number */
} rows;

/* The file's row for a row of Hugging Face's order. */
static size_t row_in_file(const rows *r, size_t row)
{
    if (!r->head_width) return row;
    size_t in_head = row % r->head_width, half = r->head_width / 2;
    return row - in_head + in_head % half * 2 + in_head / half;
}

/* Rows change places within their head. */
static int spans_of_rows(const mt_st_decoder *d, size_t first, size_t n, mt_st_span *out)
{
    const rows *r = (const rows *)d;
    const mt__quant *q = r->quant;
    size_t end = first + n;
    if (r->head_width) first -= first % (r->head_width * r->width), end = mt_round_up(end, r->head_width * r->width);
    const size_t from = first / q->block_n * q->block_bytes, to = (end + q->block_n - 1) / q->block_n * q->block_bytes;
    *out = (mt_st_span){ NULL, r->data + from, to - from };
    return 1;
}

static void read_rows(const mt_st_decoder *d, size_t first, size_t n, float *out)
{
    const rows *r = (const rows *)d;
    if (!r->head_width) {
        mt__quant_read(r->quant, r->data, first, n, out);
        for (size_t i = 0; r->minus != 0 && i < n; i++) out[i] -= r->minus;
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

static bool packing_of(const mt_st_decoder *d, const mt_st_rows *of, mt_packing *out)
{
    const rows *r = (const rows *)d;
    const bool q8 = strcmp(r->quant->name, "Q8_0") == 0;
    *out = (mt_packing){ q8 ? MT_FORM_Q8_0 : MT_FORM_Q4_K, of->n, (int64_t)r->width, (int64_t)r->quant->block_n, 1, false };
    return (q8 || strcmp(r->quant->name, "Q4_K") == 0) && mt_packing_is_possible(out);
}

static void pack(const mt_st_decoder *d, const mt_st_rows *of, const mt_packing *p, int64_t from, int64_t n, uint8_t *to)
{
    const rows *r = (const rows *)d;
    const size_t bytes = mt_packing_places(p).row_bytes;
    for (int64_t i = from; i < from + n; i++)
        memcpy(to + (size_t)i * bytes, r->data + row_in_file(r, (size_t)mt_st_row(of, i)) * bytes, bytes);
}

/* -- binding --------------------------------------------------------------------------------------- */

/* A tensor's name taken apart: "blk.7.attn_q.weight". */
typedef struct part {
    int layer;
    const char *ours;
    const char *kind; /* "weight" or "bias" */
    bool q, k;
} part;

static bool split_name(const mt__gguf_name *names, const char *name, part *p)
{
    char *end;
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9') return false;
    long layer = strtol(name + 4, &end, 10);
    const char *dot = *end == '.' ? strchr(end + 1, '.') : NULL;
    if (layer > 100000 || !dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0)) return false;
    for (; names->theirs; names++) {
        size_t n = strlen(names->theirs);
        if ((size_t)(dot - end - 1) != n || memcmp(end + 1, names->theirs, n) != 0) continue;
        *p = (part){ .layer = (int)layer, .ours = names->ours, .kind = dot + 1 };
        p->q = strcmp(names->theirs, "attn_q") == 0;
        p->k = strcmp(names->theirs, "attn_k") == 0;
        return true;
    }
    return false;
}

static mt_rc rename_tensor(mt_gguf *g, const mt__gguf_raw *raw, const mt__gguf_arch *arch, const char **out, part *p, mt_err *err)
{
    char name[128];
    *p = (part){ 0 };
    for (size_t i = 0; i < MT_COUNT(end_names); i++)
        if (strcmp(raw->name, end_names[i].theirs) == 0) return *out = end_names[i].ours, MT_OK;
    if (!split_name(arch->names, raw->name, p))
        return mt_fail(err, MT_EUNSUPPORTED,
                       "%s: tensor \"%.200s\" has no place in a %s model as this program knows it; convert the original model "
                       "instead of its GGUF file",
                       g->base.path, raw->name, g->arch);
    snprintf(name, sizeof name, "model.layers.%d.%s.%s", p->layer, p->ours, p->kind);
    *out = mt_arena_strndup(&g->arena, name, strlen(name));
    return *out ? MT_OK : mt_no_memory(err, "the tensors of %s", g->base.path);
}

/* Facts that all tensors of a file share, looked up once. */
typedef struct binding {
    const mt__gguf_arch *arch;
    int64_t H, K, Dh; /* heads; H 0: not looked up yet */
} binding;

/* The width of heads whose rows must be put back in order; 0: none. */
static mt_rc head_width(const mt_gguf *g, binding *b, const mt__gguf_raw *raw, const part *p, size_t *out, mt_err *err)
{
    *out = 0;
    if (!p->q && !p->k) return MT_OK;
    if (!b->H) MT_TRY(mt__gguf_heads(g, &b->H, &b->K, &b->Dh, err));
    int64_t heads = p->q ? b->H : b->K;
    if (b->Dh % 2 || raw->shape[0] != heads * b->Dh)
        return mt_fail(err, MT_EFORMAT, "%s: tensor \"%.200s\" has %lld rows, %lld heads of %lld were expected", g->base.path,
                       raw->name, (long long)raw->shape[0], (long long)heads, (long long)b->Dh);
    *out = (size_t)b->Dh;
    return MT_OK;
}

static bool is_norm(const char *name) { return mt_ends_with(name, "norm.weight"); }

static mt_rc bind_one(mt_gguf *g, binding *b, const mt__gguf_raw *raw, mt_err *err)
{
    mt_st_tensor *t = &g->base.tensors[g->base.n_tensors];
    part p;
    size_t width = 0;
    bool plus_one = b->arch->norms_plus_one && is_norm(raw->name);
    *t = (mt_st_tensor){ .file = mt_path_base(g->base.path),
                         .dtype = raw->quant->dtype,
                         .n_dims = raw->n_dims,
                         .n = raw->n,
                         .bytes = raw->bytes,
                         .map = &g->base.map };
    memcpy(t->shape, raw->shape, sizeof t->shape);
    MT_TRY(rename_tensor(g, raw, b->arch, &t->name, &p, err));
    if (b->arch->rows_reordered) MT_TRY(head_width(g, b, raw, &p, &width, err));
    g->base.n_tensors++;
    if (!width && !plus_one && !raw->quant->decode) {
        t->data = raw->data;
        return MT_OK;
    }
    rows *r = mt_arena_alloc(&g->arena, sizeof *r);
    if (!r) return mt_no_memory(err, "the tensors of %s", g->base.path);
    *r = (rows){ .base = { .read = read_rows,
                           .spans = spans_of_rows,
                           .stored_as = raw->quant->decode ? raw->quant->name : NULL,
                           .packing = raw->quant->decode ? packing_of : NULL,
                           .pack = pack },
                 .quant = raw->quant,
                 .data = raw->data,
                 .head_width = width,
                 .minus = plus_one ? 1.0f : 0.0f };
    r->width = raw->n_dims > 1 ? raw->n / (size_t)(raw->shape[0] ? raw->shape[0] : 1) : 1;
    t->decoder = &r->base;
    return MT_OK;
}

static mt_rc check_twice(const mt_gguf *g, mt_err *err)
{
    mt__names names;
    mt_rc rc = MT_OK;
    if (!mt__names_init(&names, g->base.n_tensors)) return mt_no_memory(err, "the tensors of %s", g->base.path);
    for (size_t i = 0; i < g->base.n_tensors && !rc; i++)
        if (mt__names_add(&names, g->base.tensors[i].name, i) != i)
            rc = mt_fail(err, MT_EFORMAT, "%s: tensor \"%.200s\" is there twice", g->base.path, g->base.tensors[i].name);
    mt__names_deinit(&names);
    return rc;
}

static mt_rc find_arch(const mt_gguf *g, const mt__gguf_arch **out, mt_err *err)
{
    int64_t n;
    if (mt__kv_int(mt__gguf_find(g, "split.count"), &n) && n > 1)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "%s: one of %lld files that only make a model together; merge them first (llama-gguf-split --merge)",
                       g->base.path, (long long)n);
    if (mt__kv_int(mt__gguf_find_arch(g, "expert_count"), &n) && n > 0)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: a mixture of %lld experts; those are not read from GGUF files", g->base.path,
                       (long long)n);
    if ((*out = mt__gguf_arch_of(g))) return MT_OK;
    return mt_fail(err, MT_EUNSUPPORTED,
                   "%s: architecture \"%s\"; of GGUF files llama (Mistral's too), qwen2, qwen3, gemma, gemma2, gemma3, phi3, "
                   "granite, smollm3 and olmo2 are "
                   "read.  Use the original model",
                   g->base.path, g->arch);
}

mt_rc mt__gguf_bind(mt_gguf *g, mt_err *err)
{
    binding b = { 0 };
    MT_TRY(find_arch(g, &b.arch, err));
    g->base.tensors = mt_arena_calloc(&g->arena, g->n_raws, sizeof *g->base.tensors);
    if (!g->base.tensors) return mt_no_memory(err, "the tensors of %s", g->base.path);
    for (size_t i = 0; i < g->n_raws; i++)
        if (strcmp(g->raws[i].name, rope_factors) != 0) MT_TRY(bind_one(g, &b, &g->raws[i], err));
    return check_twice(g, err);
}
