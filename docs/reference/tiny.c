/* tiny.c - training a llama in one file, to learn from.
 *
 * This program reads a model directory, takes some steps of AdamW on rows of tokens and prints the losses.  It computes
 * what the engine (src/engine) computes in fp32, bit for bit: tests/equiv/test_tiny.c compares losses, weights and Adam's state.
 * It has none of what makes the engine fast.  Everything is in memory all the time, every activation is kept, and one thing
 * happens after the other.  docs/life-of-a-step.md walks from here to the engine.
 *
 * The arithmetic is in src/ops: each op has a struct of arguments and two functions, forward and backward.  This file decides
 * what is called in which order.  Read it from top to bottom:
 *
 *     configuration  the numbers of config.json
 *     weights        one flat block a unit, fp32 masters stored as two halves
 *     ops            a name for each op as it is used here
 *     micro-batches  some documents, end to end
 *     forward        embedding and layers
 *     backward       the loss, then everything in reverse: gradients of activations flow back, gradients of weights are summed
 *     the update     clip by the norm of all gradients, then AdamW
 *     main           a step is: every micro-batch forward and backward, then one update
 *
 * Letters: N rows (tokens), D model width, H query heads, K key/value heads, Dh head width, F mlp width, V vocabulary, L layers.
 * dx is the gradient of the loss with respect to x.
 *
 *     tiny MODEL TOKENS.json STEPS DOCUMENTS_PER_STEP DOCUMENTS_PER_MICRO_BATCH [STATE] */
#include "base/json.h"
#include "base/split.h"
#include "ckpt/safetensors.h"
#include "data/batch.h"
#include "device/blas.h"
#include "ops/ops_cpu.h"
#include "ops/sqnorm.h"
#include "optim/adamw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off: arguments that belong together stand on one line */

/* What a person sets.  The learning rate is constant: a schedule would change one number a step. */
static const double LEARNING_RATE = 1e-3, BETA1 = 0.9, BETA2 = 0.999, EPSILON = 1e-8, WEIGHT_DECAY = 0.1, MAX_GRAD_NORM = 1.0;

static mt_err err; /* of the call at hand; a reference stops at the first */

static void check(mt_rc rc)
{
    if (!rc) return;
    fprintf(stderr, "tiny: %s\n", err.msg);
    exit(1);
}

static void *allocate(int64_t n, size_t size)
{
    void *p = calloc((size_t)(n ? n : 1), size);
    if (!p) check(mt_fail(&err, MT_ENOMEM, "no memory for %lld x %zu bytes", (long long)n, size));
    return p;
}
static float *floats(int64_t n) { return allocate(n, sizeof(float)); }

/* ---- configuration ------------------------------------------------------------------------------ */

typedef struct config {
    int64_t D, F, L, H, K, Dh, V;
    double eps, rope_theta;
} config;

static int64_t q_width(const config *c) { return c->H * c->Dh; }
static int64_t kv_width(const config *c) { return c->K * c->Dh; }
static int64_t qkv_width(const config *c) { return q_width(c) + 2 * kv_width(c); }

/* A llama without biases, tied embeddings or rope scaling.  src/model/config.c knows everything else. */
static config read_config(const char *dir)
{
    config c;
    const mt_value *doc;
    char path[1024];
    snprintf(path, sizeof path, "%s/config.json", dir);
    check(mt_json_read(&doc, path, &err));
    check(mt_json_i64(doc, "hidden_size", 0, &c.D, path, &err));
    check(mt_json_i64(doc, "intermediate_size", 0, &c.F, path, &err));
    check(mt_json_i64(doc, "num_hidden_layers", 0, &c.L, path, &err));
    check(mt_json_i64(doc, "num_attention_heads", 1, &c.H, path, &err));
    check(mt_json_i64(doc, "num_key_value_heads", c.H, &c.K, path, &err));
    check(mt_json_i64(doc, "vocab_size", 0, &c.V, path, &err));
    check(mt_json_f64(doc, "rms_norm_eps", 1e-6, &c.eps, path, &err));
    check(mt_json_f64(doc, "rope_theta", 10000, &c.rope_theta, path, &err));
    if (c.H < 1 || c.D < 1 || c.D % c.H || c.L < 1)
        check(mt_fail(&err, MT_EINVAL, "%s: these are not the sizes of a llama", path));
    if (!mt_json_missing(mt_value_get(doc, "rope_scaling")))
        check(mt_fail(&err, MT_EUNSUPPORTED, "%s: rope_scaling is not supported here", path));
    c.Dh = c.D / c.H;
    mt_json_free(doc);
    return c;
}

/* ---- weights ------------------------------------------------------------------------------------ */

/* A unit is the embedding, a layer, or the head.  All its weights are in one flat block, matrices first, then norms.  So the norm
 * of its gradient is one sum, its update is one loop, and weight decay (which norms do not get) ends at one index.
 *
 * The master of a weight is an fp32 number in two halves: hi is the number rounded to bf16, lo the rest of its bits
 * (base/split.h).  An engine that computes in bf16 copies hi alone.  Here, in fp32, both halves are joined before a step. */
typedef struct unit {
    int64_t n, n_decay; /* numbers of the block; [0, n_decay) decay */
    uint16_t *hi;
    int16_t *lo;
    float *w;     /* hi and lo joined: what a step computes with */
    float *g;     /* the gradient, summed over micro-batches */
    float *m, *v; /* Adam's moments */
} unit;

/* Where a layer's weights begin in its block.  q, k and v are side by side without a gap, and so are gate and up: one product
 * computes all three, another computes both. */
typedef struct layer_offsets {
    int64_t qkv, o, gate_up, down, norm1, norm2, n_decay, n;
} layer_offsets;
typedef struct head_offsets {
    int64_t head, norm, n_decay, n;
} head_offsets;

/* Every tensor begins at a multiple of 128 numbers; the gaps stay 0. */
static int64_t place(int64_t *at, int64_t n)
{
    const int64_t here = *at;
    *at += (int64_t)mt_round_up((size_t)n, 128);
    return here;
}

static layer_offsets layer_layout(const config *c)
{
    layer_offsets l;
    int64_t at = 0;
    l.qkv = place(&at, qkv_width(c) * c->D);
    l.o = place(&at, c->D * q_width(c));
    l.gate_up = place(&at, 2 * c->F * c->D);
    l.down = place(&at, c->D * c->F);
    l.n_decay = at;
    l.norm1 = place(&at, c->D);
    l.norm2 = place(&at, c->D);
    l.n = at;
    return l;
}

static head_offsets head_layout(const config *c)
{
    head_offsets h;
    int64_t at = 0;
    h.head = place(&at, c->V * c->D);
    h.n_decay = at;
    h.norm = place(&at, c->D);
    h.n = at;
    return h;
}

static unit unit_of(int64_t n, int64_t n_decay)
{
    return (unit){ .n = n, .n_decay = n_decay, .hi = allocate(n, sizeof(uint16_t)), .lo = allocate(n, sizeof(int16_t)),
                   .w = floats(n), .g = floats(n), .m = floats(n), .v = floats(n) };
}

/* One tensor of the file into the unit's halves; returns where the next one beside it begins. */
static int64_t load(unit *u, int64_t at, const mt_safetensors *file, const char *name, int64_t n)
{
    const mt_st_tensor *t = mt_safetensors_find(file, name);
    if (!t || (int64_t)t->n != n)
        check(mt_fail(&err, MT_EFORMAT, "the model has no tensor %s of %lld numbers", name, (long long)n));
    mt_to_f32(u->w + at, t->data, t->dtype, t->n);
    for (int64_t i = at; i < at + n; i++) mt_split(u->w[i], &u->hi[i], &u->lo[i]);
    return at + n;
}

static void load_layer(unit *u, const layer_offsets *l, const config *c, const mt_safetensors *file, int64_t layer)
{
    char name[128];
#define NAME(of) (snprintf(name, sizeof name, "model.layers.%lld." of ".weight", (long long)layer), name)
    int64_t at = load(u, l->qkv, file, NAME("self_attn.q_proj"), q_width(c) * c->D);
    at = load(u, at, file, NAME("self_attn.k_proj"), kv_width(c) * c->D);
    load(u, at, file, NAME("self_attn.v_proj"), kv_width(c) * c->D);
    load(u, l->o, file, NAME("self_attn.o_proj"), c->D * q_width(c));
    at = load(u, l->gate_up, file, NAME("mlp.gate_proj"), c->F * c->D);
    load(u, at, file, NAME("mlp.up_proj"), c->F * c->D);
    load(u, l->down, file, NAME("mlp.down_proj"), c->D * c->F);
    load(u, l->norm1, file, NAME("input_layernorm"), c->D);
    load(u, l->norm2, file, NAME("post_attention_layernorm"), c->D);
#undef NAME
}

/* ---- the model and what it keeps between forward and backward ------------------------------------ */

/* What backward needs of a layer: everything forward made.  The engine keeps less and makes the rest again. */
typedef struct activations {
    float *x;          /* [N, D] the layer's input */
    float *h1, *rstd1; /* [N, D], [N] its norm */
    float *qkv;        /* [N, (H + 2K) Dh] with q and k rotated */
    float *attn, *lse; /* [N, H Dh], [N, H] */
    float *xmid;       /* [N, D] input plus attention */
    float *h2, *rstd2; /* [N, D], [N] its norm */
    float *gate_up;    /* [N, 2F] */
    float *act;        /* [N, F] */
} activations;

typedef struct model {
    config c;
    layer_offsets l;
    head_offsets h;
    unit embed, head, *layers;                       /* [L] */
    float *cos, *sin;                                /* [positions, Dh / 2] */
    activations *acts;                               /* [L] */
    float *x_out;                                    /* [N, D] of the last layer */
    float *dx, *dh, *dqkv, *dattn, *dgate_up, *dact; /* gradients on their way back, shared by all layers */
    float *picked, *picked_h, *picked_dh, *picked_rstd, *logits, *dlogits, *row_loss; /* of the head */
    int32_t *row_correct;
    void *scratch;
    size_t scratch_bytes;
    mt_pool *pool;
} model;

static activations activations_of(const config *c, int64_t N)
{
    return (activations){ .x = floats(N * c->D), .h1 = floats(N * c->D), .rstd1 = floats(N), .qkv = floats(N * qkv_width(c)),
                          .attn = floats(N * q_width(c)), .lse = floats(N * c->H), .xmid = floats(N * c->D),
                          .h2 = floats(N * c->D), .rstd2 = floats(N), .gate_up = floats(N * 2 * c->F),
                          .act = floats(N * c->F) };
}

/* Rotary positions: pair (j, j + Dh/2) of a head turns by position x theta^(-2j/Dh).  Angles are fp32, as in transformers. */
static void fill_rope(model *m, int64_t positions)
{
    const int64_t half = m->c.Dh / 2;
    m->cos = floats(positions * half);
    m->sin = floats(positions * half);
    for (int64_t j = 0; j < half; j++) {
        const float frequency = (float)pow(m->c.rope_theta, -2.0 * (double)j / (double)m->c.Dh);
        for (int64_t p = 0; p < positions; p++) {
            const float angle = (float)p * frequency;
            m->cos[p * half + j] = (float)cos((double)angle);
            m->sin[p * half + j] = (float)sin((double)angle);
        }
    }
}

static void open_weights(model *m, const char *dir)
{
    const config *c = &m->c;
    char path[1024];
    mt_safetensors *file;
    m->l = layer_layout(c);
    m->h = head_layout(c);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    check(mt_safetensors_open(&file, path, &err));
    const int64_t n_embed = (int64_t)mt_round_up((size_t)(c->V * c->D), 128);
    m->embed = unit_of(n_embed, n_embed);
    load(&m->embed, 0, file, "model.embed_tokens.weight", c->V * c->D);
    m->layers = allocate(c->L, sizeof *m->layers);
    for (int64_t i = 0; i < c->L; i++) {
        m->layers[i] = unit_of(m->l.n, m->l.n_decay);
        load_layer(&m->layers[i], &m->l, c, file, i);
    }
    m->head = unit_of(m->h.n, m->h.n_decay);
    load(&m->head, m->h.head, file, "lm_head.weight", c->V * c->D);
    load(&m->head, m->h.norm, file, "model.norm.weight", c->D);
    mt_safetensors_close(file);
}

/* N: rows of a micro-batch, at most. */
static void open_buffers(model *m, int64_t N)
{
    const config *c = &m->c;
    m->acts = allocate(c->L, sizeof *m->acts);
    for (int64_t i = 0; i < c->L; i++) m->acts[i] = activations_of(c, N);
    float **rows_of_D[] = { &m->x_out, &m->dx, &m->dh, &m->picked, &m->picked_h, &m->picked_dh };
    for (size_t i = 0; i < MT_COUNT(rows_of_D); i++) *rows_of_D[i] = floats(N * c->D);
    m->dqkv = floats(N * qkv_width(c));
    m->dattn = floats(N * q_width(c));
    m->dgate_up = floats(N * 2 * c->F);
    m->dact = floats(N * c->F);
    m->picked_rstd = floats(N);
    m->logits = floats(N * c->V);
    m->dlogits = floats(N * c->V);
    m->row_loss = floats(N);
    m->row_correct = allocate(N, sizeof *m->row_correct);
}

/* ---- ops ---------------------------------------------------------------------------------------- */

/* Each op says how much scratch its shapes need. */
static void *scratch(model *m, size_t bytes)
{
    if (bytes <= m->scratch_bytes) return m->scratch;
    free(m->scratch);
    m->scratch_bytes = bytes;
    return m->scratch = allocate((int64_t)bytes, 1);
}

/* y = x w' (+ add): x [rows, n_in], w [n_out, n_in], as checkpoints have it. */
static void linear(model *m, float *y, const float *x, const float *w, const float *add, int64_t rows, int64_t n_out,
                   int64_t n_in)
{
    mt_linear a = { .t = MT_DTYPE_F32, .M = rows, .N = n_out, .K = n_in, .x = x, .w = w, .y = y, .add = add };
    a.scratch = scratch(m, mt_linear_scratch(&a));
    check(mt__linear_fwd_run(m->pool, &a, &err));
}

/* dx = dy w;   dw += dy' x. */
static void linear_backward(model *m, float *dx, float *dw, const float *dy, const float *x, const float *w, int64_t rows,
                            int64_t n_out, int64_t n_in)
{
    mt_linear a = { .t = MT_DTYPE_F32, .M = rows, .N = n_out, .K = n_in, .x = x, .w = w, .dy = dy, .dx = dx, .dw = dw };
    a.scratch = scratch(m, mt_linear_scratch(&a));
    check(mt__linear_bwd_run(m->pool, &a, &err));
}

/* y = w x / rms(x), row by row.  rstd, 1 / rms, is kept for backward. */
static mt_norm norm_args(model *m, const float *x, const float *w, float *rstd, int64_t rows)
{
    return (mt_norm){ .t = MT_DTYPE_F32, .N = rows, .D = m->c.D, .eps = (float)m->c.eps, .x = x, .w = w, .rstd = rstd };
}

static void norm(model *m, float *y, float *rstd, const float *x, const float *w, int64_t rows)
{
    mt_norm a = norm_args(m, x, w, rstd, rows);
    a.y = y;
    check(mt__norm_fwd_run(m->pool, &a, &err));
}

/* add: the residual stream carries a gradient past the norm already, so the norm's is added to it. */
static void norm_backward(model *m, float *dx, bool add, float *dw, const float *dy, const float *x, const float *w, float *rstd,
                          int64_t rows)
{
    mt_norm a = norm_args(m, x, w, rstd, rows);
    a.dy = dy;
    a.dx = dx;
    a.dx_add = add;
    a.dw = dw;
    a.scratch = scratch(m, mt_norm_scratch(&a));
    check(mt__norm_bwd_run(m->pool, &a, &err));
}

/* ---- micro-batches ------------------------------------------------------------------------------ */

/* Documents of different lengths, end to end without padding: row i is one token.  Attention looks at doc_start so that no row
 * sees another document; everything else treats rows alike. */
typedef struct micro {
    int64_t n, n_docs, longest, n_trained;
    const int32_t *ids;    /* [n] */
    int32_t *pos;          /* [n] in their documents */
    int32_t *doc_start;    /* [n_docs + 1] */
    int32_t *trained_rows; /* [n_trained] rows that have a target */
    int32_t *targets;      /* [n_trained] the token that comes next */
} micro;

static micro micro_of(const mt_batch *b, int64_t first_doc, int64_t n_docs)
{
    const int32_t *starts = b->doc_start + first_doc, from = starts[0];
    micro mb = { .n = starts[n_docs] - from, .n_docs = n_docs, .ids = b->ids + from };
    mb.pos = allocate(mb.n, sizeof *mb.pos);
    mb.trained_rows = allocate(mb.n, sizeof *mb.trained_rows);
    mb.targets = allocate(mb.n, sizeof *mb.targets);
    mb.doc_start = allocate(n_docs + 1, sizeof *mb.doc_start);
    for (int64_t d = 0; d < n_docs; d++) {
        mb.longest = mt_max_i64(mb.longest, starts[d + 1] - starts[d]);
        mb.doc_start[d + 1] = starts[d + 1] - from;
        for (int32_t r = mb.doc_start[d]; r < mb.doc_start[d + 1]; r++) {
            mb.pos[r] = r - mb.doc_start[d];
            if (b->targets[from + r] == MT_IGNORE) continue;
            mb.trained_rows[mb.n_trained] = r;
            mb.targets[mb.n_trained++] = b->targets[from + r];
        }
    }
    return mb;
}

static void micro_free(micro *mb)
{
    free(mb->pos);
    free(mb->doc_start);
    free(mb->trained_rows);
    free(mb->targets);
}

/* ---- forward ------------------------------------------------------------------------------------ */

/* q, k and v are columns of one array, so rows are qkv_width apart. */
static mt_attention attention_args(model *m, const micro *mb, const activations *a)
{
    const config *c = &m->c;
    const int64_t ld = qkv_width(c);
    mt_attention x = { .t = MT_DTYPE_F32, .N = mb->n, .H = c->H, .K = c->K, .Dh = c->Dh, .ldq = ld, .ldk = ld, .ldv = ld,
                       .ldo = q_width(c), .ld_d = ld, .n_docs = mb->n_docs, .longest = mb->longest,
                       .doc_start = mb->doc_start, .host_start = mb->doc_start, .scale = (float)(1.0 / sqrt((double)c->Dh)),
                       .q = a->qkv, .k = a->qkv + q_width(c), .v = a->qkv + q_width(c) + kv_width(c), .o = a->attn,
                       .lse = a->lse };
    x.scratch = scratch(m, mt_attention_scratch(&x));
    return x;
}

static mt_qk_prepare rotation_args(model *m, const micro *mb, const activations *a)
{
    const config *c = &m->c;
    const int64_t ld = qkv_width(c);
    return (mt_qk_prepare){ .t = MT_DTYPE_F32, .style = MT_ROPE_HALF, .N = mb->n, .H = c->H, .K = c->K, .Dh = c->Dh,
                            .dr = c->Dh, .ld_qkv = ld, .ld_qk = ld, .ld_dqkv = ld, .pos = mb->pos, .cos = m->cos,
                            .sin = m->sin, .qkv = a->qkv,
                            .qk = a->qkv }; /* in place: a rotation's backward needs only the angle */
}

static mt_activation silu_args(const model *m, const micro *mb, const activations *a)
{
    return (mt_activation){ .t = MT_DTYPE_F32, .act = MT_ACT_SILU, .N = mb->n, .F = m->c.F, .gu = a->gate_up };
}

/* x_out = xmid + mlp(norm2(xmid)),   xmid = x + attention(norm1(x)).  Residuals are added in the products that end a branch. */
static void layer_forward(model *m, const micro *mb, int64_t layer, float *x_out)
{
    const config *c = &m->c;
    const float *w = m->layers[layer].w;
    activations *a = &m->acts[layer];
    norm(m, a->h1, a->rstd1, a->x, w + m->l.norm1, mb->n);
    linear(m, a->qkv, a->h1, w + m->l.qkv, NULL, mb->n, qkv_width(c), c->D);
    const mt_qk_prepare rotation = rotation_args(m, mb, a);
    check(mt__qk_prepare_fwd_run(m->pool, &rotation, &err));
    const mt_attention attention = attention_args(m, mb, a);
    check(mt__attention_fwd_run(m->pool, &attention, &err));
    linear(m, a->xmid, a->attn, w + m->l.o, a->x, mb->n, c->D, q_width(c));

    norm(m, a->h2, a->rstd2, a->xmid, w + m->l.norm2, mb->n);
    linear(m, a->gate_up, a->h2, w + m->l.gate_up, NULL, mb->n, 2 * c->F, c->D);
    mt_activation silu = silu_args(m, mb, a);
    silu.y = a->act;
    check(mt__activation_fwd_run(m->pool, &silu, &err)); /* act = silu(gate) * up */
    linear(m, x_out, a->act, w + m->l.down, a->xmid, mb->n, c->D, c->F);
}

static mt_embed embed_args(const model *m, const micro *mb)
{
    return (mt_embed){ .t = MT_DTYPE_F32, .N = mb->n, .D = m->c.D, .V = m->c.V, .ids = mb->ids, .scale = 1, .pad_id = -1 };
}

static void forward(model *m, const micro *mb)
{
    mt_embed embed = embed_args(m, mb);
    embed.w = m->embed.w;
    embed.y = m->acts[0].x;
    check(mt__embed_fwd_run(m->pool, &embed, &err));
    for (int64_t i = 0; i < m->c.L; i++) layer_forward(m, mb, i, i + 1 < m->c.L ? m->acts[i + 1].x : m->x_out);
}

/* ---- backward ----------------------------------------------------------------------------------- */

/* The head, forward and backward at once: logits are the largest array of all, and nothing else needs them.  Only rows that have
 * a target are computed.  dscale makes the loss a mean over all trained tokens of the step, not of this micro-batch: so how a
 * step is cut into micro-batches changes nothing but the rounding. */
static void head_loss(model *m, const micro *mb, float dscale, mt_loss_sum *sum)
{
    const config *c = &m->c;
    const float *w = m->head.w;
    const int64_t n = mb->n_trained;
    mt_rows rows = { .t = MT_DTYPE_F32, .N = mb->n, .n_picked = n, .D = c->D, .index = mb->trained_rows };
    rows.x = m->x_out;
    rows.y = m->picked;
    check(mt__rows_fwd_run(m->pool, &rows, &err));
    norm(m, m->picked_h, m->picked_rstd, m->picked, w + m->h.norm, n);
    linear(m, m->logits, m->picked_h, w + m->h.head, NULL, n, c->V, c->D);
    check(mt__cross_entropy_run(m->pool,
                                &(mt_cross_entropy){ .t = MT_DTYPE_F32, .N = n, .V = c->V, .logits = m->logits,
                                                     .targets = mb->targets, .dlogits = m->dlogits, .dscale = dscale,
                                                     .row_loss = m->row_loss, .row_correct = m->row_correct, .sum = sum },
                                &err));
    linear_backward(m, m->picked_dh, m->head.g + m->h.head, m->dlogits, m->picked_h, w + m->h.head, n, c->V, c->D);
    norm_backward(m, m->picked_h, false, m->head.g + m->h.norm, m->picked_dh, m->picked, w + m->h.norm, m->picked_rstd, n);
    rows.dy = m->picked_h; /* picked_h was read for the last time above; it holds a gradient now */
    rows.dx = m->dx;       /* rows without a target get 0 */
    check(mt__rows_bwd_run(m->pool, &rows, &err));
}

/* On entry dx is the gradient of x_out, on return that of x.  In between it is that of xmid: the residual stream passes it on
 * unchanged, and each branch adds its share. */
static void layer_backward(model *m, const micro *mb, int64_t layer)
{
    const config *c = &m->c;
    const float *w = m->layers[layer].w;
    float *g = m->layers[layer].g;
    activations *a = &m->acts[layer];
    linear_backward(m, m->dact, g + m->l.down, m->dx, a->act, w + m->l.down, mb->n, c->D, c->F);
    mt_activation silu = silu_args(m, mb, a);
    silu.dy = m->dact;
    silu.dgu = m->dgate_up;
    check(mt__activation_bwd_run(m->pool, &silu, &err));
    linear_backward(m, m->dh, g + m->l.gate_up, m->dgate_up, a->h2, w + m->l.gate_up, mb->n, 2 * c->F, c->D);
    norm_backward(m, m->dx, true, g + m->l.norm2, m->dh, a->xmid, w + m->l.norm2, a->rstd2, mb->n);

    linear_backward(m, m->dattn, g + m->l.o, m->dx, a->attn, w + m->l.o, mb->n, c->D, q_width(c));
    mt_attention attention = attention_args(m, mb, a); /* probabilities are made again from q, k and lse */
    attention.d_o = m->dattn;
    attention.dq = m->dqkv;
    attention.dk = m->dqkv + q_width(c);
    attention.dv = m->dqkv + q_width(c) + kv_width(c);
    check(mt__attention_bwd_run(m->pool, &attention, &err));
    mt_qk_prepare rotation = rotation_args(m, mb, a);
    rotation.dqkv = m->dqkv;
    check(mt__qk_prepare_bwd_run(m->pool, &rotation, &err)); /* turned back */
    linear_backward(m, m->dh, g + m->l.qkv, m->dqkv, a->h1, w + m->l.qkv, mb->n, qkv_width(c), c->D);
    norm_backward(m, m->dx, true, g + m->l.norm1, m->dh, a->x, w + m->l.norm1, a->rstd1, mb->n);
}

static void backward(model *m, const micro *mb)
{
    for (int64_t i = m->c.L - 1; i >= 0; i--) layer_backward(m, mb, i);
    mt_embed embed = embed_args(m, mb);
    embed.dw = m->embed.g; /* each row's gradient is added to its token's */
    embed.dy = m->dx;
    check(mt__embed_bwd_run(m->pool, &embed, &err));
}

/* ---- the update --------------------------------------------------------------------------------- */

/* Units in the order of forward: 0 is the embedding, L + 1 the head. */
static unit *unit_at(model *m, int64_t i)
{
    if (i == 0) return &m->embed;
    return i <= m->c.L ? &m->layers[i - 1] : &m->head;
}

/* The norm of all gradients as one vector: squares in double, each unit by a fixed tree (ops/sqnorm.h), units in order. */
static double gradient_norm(model *m)
{
    double squares = 0;
    for (int64_t i = 0; i < m->c.L + 2; i++)
        squares += mt_sqnorm(&(mt_sqnorm_args){ unit_at(m, i)->g, MT_DTYPE_F32, (size_t)unit_at(m, i)->n });
    return sqrt(squares);
}

/* Numbers [from, to) of a unit. */
static void adamw(unit *u, int64_t from, int64_t to, const mt_update_step *step)
{
    const size_t n_bad = mt_adamw_update(&(mt_update_args){ .hi = u->hi + from, .lo = u->lo + from, .m = u->m + from,
                                                           .v = u->v + from, .g = u->g + from, .g_type = MT_DTYPE_F32,
                                                           .n = (size_t)(to - from), .coef = mt_adamw_coef_of(step) });
    if (n_bad) check(mt_fail(&err, MT_ENUMERIC, "%zu weights left the finite range", n_bad));
}

/* Clipping scales the gradients inside Adam, so that nothing is written twice.  t: 1 for the first update. */
static void update(model *m, double norm_of_all, int64_t t)
{
    const double scale = fmin(1, MAX_GRAD_NORM / (norm_of_all + 1e-6));
    const mt_update_step decaying = { LEARNING_RATE, BETA1, BETA2, EPSILON, WEIGHT_DECAY, scale, t };
    mt_update_step plain = decaying;
    plain.weight_decay = 0;
    for (int64_t i = 0; i < m->c.L + 2; i++) {
        unit *u = unit_at(m, i);
        adamw(u, 0, u->n_decay, &decaying);
        adamw(u, u->n_decay, u->n, &plain);
        mt_join_array(u->w, u->hi, u->lo, (size_t)u->n);
        memset(u->g, 0, (size_t)u->n * sizeof *u->g);
    }
}

/* ---- main --------------------------------------------------------------------------------------- */

/* Documents [first, end) of the file are one step: their gradients are summed micro-batch by micro-batch, then used once. */
static void take_step(model *m, const mt_batch *b, int64_t first, int64_t end, int64_t docs_per_micro, int64_t t)
{
    mt_loss_sum sum = { 0 };
    int64_t n_trained = 0;
    for (int64_t i = b->doc_start[first]; i < b->doc_start[end]; i++) n_trained += b->targets[i] != MT_IGNORE;
    if (!n_trained) return; /* there is no mean over nothing */
    for (int64_t d = first; d < end; d += docs_per_micro) {
        micro mb = micro_of(b, d, mt_min_i64(docs_per_micro, end - d));
        forward(m, &mb);
        head_loss(m, &mb, (float)(1.0 / (double)n_trained), &sum);
        backward(m, &mb);
        micro_free(&mb);
    }
    const double norm_of_all = gradient_norm(m), loss = sum.loss / (double)n_trained; /* not finite: the engine would skip it */
    printf("%lld %a %a\n", (long long)t, loss, norm_of_all); /* %a: every bit */
    update(m, norm_of_all, t);
}

/* hi, lo, m and v of every unit, for comparing. */
static void write_state(model *m, const char *path)
{
    FILE *f = fopen(path, "wb");
    bool ok = f != NULL;
    for (int64_t i = 0; ok && i < m->c.L + 2; i++) {
        const unit *u = unit_at(m, i);
        const size_t n = (size_t)u->n;
        ok = fwrite(u->hi, 2, n, f) == n && fwrite(u->lo, 2, n, f) == n && fwrite(u->m, 4, n, f) == n &&
             fwrite(u->v, 4, n, f) == n;
    }
    if (f) ok &= fclose(f) == 0;
    if (!ok) check(mt_fail(&err, MT_EIO, "cannot write %s", path));
}

int main(int argc, char **argv)
{
    if (argc < 6) return fprintf(stderr, "usage: tiny MODEL TOKENS.json STEPS DOCS_PER_STEP DOCS_PER_MICRO [STATE]\n"), 2;
    const int64_t steps = atoll(argv[3]), per_step = atoll(argv[4]), per_micro = atoll(argv[5]);
    static model m; /* the system takes the memory of both back */
    static mt_batch b;
    m.c = read_config(argv[1]);
    check(mt_batch_read_json(&b, argv[2], m.c.V, &err)); /* labels are shifted here: a row's target is the next row's label */
    if (per_step < 1 || per_micro < 1 || b.n_docs % per_step)
        check(mt_fail(&err, MT_EINVAL, "%lld documents are not steps of %lld", (long long)b.n_docs, (long long)per_step));
    open_weights(&m, argv[1]);
    open_buffers(&m, b.n_tokens);
    fill_rope(&m, b.longest);
    mt_blas_single_thread(); /* the ops cut products into pieces of a fixed size, so that the number of threads changes no bit */
    check(mt_pool_create(&m.pool, 1, &err));
    for (int64_t s = 0; s < steps; s++) {
        const int64_t first = s * per_step % b.n_docs;
        take_step(&m, &b, first, first + per_step, per_micro, s + 1);
    }
    if (argc > 6) write_state(&m, argv[6]);
    return 0;
}
