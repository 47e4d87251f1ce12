/* mixer_delta.c - a gated delta net: q, k, v and the gates in one product, a short convolution with silu over q, k, v, the gated
 * delta rule over each document, a gated norm, output projection.
 *
 * A row of PROJ is [q | k | v | z | b | a]: the convolution reads the first three, the norm's gate is z, beta and the decay are
 * made of b and a.  Whatever order the files have, memory has this one. */
#include "base/mem.h"
#include "model/part.h"

/* PROJ and O are kept; CONV is a pass over memory to recompute.  Y, what the output projection reads, is made again by the gated
 * norm's backward. */
enum { PROJ, CONV, O, Y, DPROJ, DCONV, DO, ARRAYS };
enum { W_PROJ, W_OUT, PRODUCTS };

/* Widths of a row, and where in PROJ its parts begin. */
static int64_t key_width(const mt_config *c) { return c->delta.K * c->delta.Dk; }
static int64_t value_width(const mt_config *c) { return c->delta.H * c->delta.Dv; }
static int64_t conv_width(const mt_config *c) { return 2 * key_width(c) + value_width(c); }
static int64_t b_column(const mt_config *c) { return conv_width(c) + value_width(c); }
static int64_t a_column(const mt_config *c) { return b_column(c) + c->delta.H; }
static int64_t proj_width(const mt_config *c) { return a_column(c) + c->delta.H; }

/* -- its weights, arrays, work and scratch --------------------------------------------------------- */

static bool delta_has_role(const mt_config *c, const mt_layer_spec *s, mt_role role)
{
    (void)c;
    (void)s;
    return role >= MT_W_DELTA_Q && role <= MT_W_DELTA_OUT;
}

static int delta_products(const mt_config *c, const mt_layer_spec *s, mt_product *out)
{
    const int64_t keys = key_width(c), values = value_width(c), H = c->delta.H;
    (void)s;
    out[W_PROJ] = (mt_product){ .k = c->D,
                                .of = { { MT_W_DELTA_Q, MT_ROLES, keys },
                                        { MT_W_DELTA_K, MT_ROLES, keys },
                                        { MT_W_DELTA_V, MT_ROLES, values },
                                        { MT_W_DELTA_Z, MT_ROLES, values },
                                        { MT_W_DELTA_B, MT_ROLES, H },
                                        { MT_W_DELTA_A, MT_ROLES, H } } };
    out[W_OUT] = (mt_product){ .k = values, .alpha = (float)c->residual_scale, .of = { { MT_W_DELTA_OUT, MT_ROLES, c->D } } };
    return PRODUCTS;
}

static int delta_arrays(const mt_config *c, const mt_layer_spec *s, mt_dtype t, mt_array *out)
{
    (void)s;
    const size_t e = mt_dtype_bytes(t), proj = (size_t)proj_width(c) * e, conv = (size_t)conv_width(c) * e,
                 o = (size_t)value_width(c) * e;
    const mt_array arrays[ARRAYS] = {
        [PROJ] = { "qkvz", proj, MT_KEEP_MIXER, MT_EXTENT_MICRO, false, 0, 0 },
        [CONV] = { "conv", conv, MT_KEEPS, MT_EXTENT_MICRO, false, 0, 0 },
        [O] = { "delta", o, MT_KEEP_MIXER, MT_EXTENT_MICRO, false, 0, 0 },
        [Y] = { "gated", o, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [DPROJ] = { "dqkvz", proj, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [DCONV] = { "dconv", conv, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [DO] = { "ddelta", o, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
    };
    for (int i = 0; i < ARRAYS; i++) out[i] = arrays[i];
    return ARRAYS;
}

/* Numbers moved for each of a row's, as measured (docs/notebook): the convolution 3.7 forward and 7.5 backward, the gated
 * norm 6.3 and 13. */
static int delta_work(const mt_config *c, const mt_layer_spec *s, mt_work_item *out)
{
    (void)s;
    const mt_delta_shape *d = &c->delta;
    const double D = (double)c->D, v = (double)value_width(c), conv = 3.7 * (double)conv_width(c), norm = 6.3 * v;
    const mt_work_item items[] = {
        { .name = "qkvz",
          .kind = MT_WORK_PRODUCT,
          .when = MT_IN_FORWARD,
          .keep = MT_KEEP_MIXER,
          .n = (double)proj_width(c),
          .k = D },
        /* MT_KEEPS: no level keeps its result.  That backward recomputes it is in the last item. */
        { .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEPS, .n = conv },
        { .name = "delta rule",
          .kind = MT_WORK_DELTA,
          .when = MT_IN_FORWARD,
          .keep = MT_KEEP_MIXER,
          .n = (double)(d->H * d->Dk * d->Dv),
          .k = (double)(d->H * (d->Dk + d->Dv)) },
        { .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEP_ALL, .n = norm },
        { .name = "out", .kind = MT_WORK_PRODUCT, .when = MT_IN_FORWARD, .keep = MT_KEEP_ALL, .n = D, .k = v },
        { .kind = MT_WORK_MOVED, .when = MT_IN_BACKWARD, .n = 3 * conv + 2 * norm },
    };
    for (size_t i = 0; i < MT_COUNT(items); i++) out[i] = items[i];
    return (int)MT_COUNT(items);
}

/* The rule's arguments without rows, documents and memory. */
static mt_delta_rule rule_shape(const mt_config *c, mt_dtype t)
{
    const mt_delta_shape *d = &c->delta;
    return (mt_delta_rule){ .t = t,
                            .H = d->H,
                            .K = d->K,
                            .Dk = d->Dk,
                            .Dv = d->Dv,
                            .ldq = conv_width(c),
                            .ldk = conv_width(c),
                            .ldv = conv_width(c),
                            .ldo = value_width(c),
                            .ld_ab = proj_width(c),
                            .ld_d = conv_width(c),
                            .ld_dab = proj_width(c) };
}

static mt_conv conv_shape(const mt_config *c, mt_dtype t)
{
    return (mt_conv){
        .t = t, .C = conv_width(c), .width = c->delta.width, .ldx = proj_width(c), .ldy = conv_width(c), .ld_dx = proj_width(c)
    };
}

static size_t delta_scratch(const mt_config *c, const mt_layer_spec *s, const mt_scratch_shape *shape)
{
    float *some = (float *)1; /* present; never read */
    const mt_dtype t = shape->t;
    mt_delta_rule rule = rule_shape(c, t);
    mt_conv conv = conv_shape(c, t);
    (void)s;
    rule.N = conv.N = shape->rows;
    rule.n_docs = conv.n_docs = shape->docs;
    rule.dA_log = rule.ddt_bias = conv.dw = some;
    const size_t needs[] = {
        mt_conv_scratch(&conv),
        mt_delta_rule_scratch(&rule),
        mt_gated_norm_scratch(&(mt_gated_norm){ .t = t, .N = shape->rows, .H = c->delta.H, .D = c->delta.Dv, .dw = some }),
    };
    size_t most = 0;
    for (size_t i = 0; i < MT_COUNT(needs); i++)
        if (needs[i] > most) most = needs[i];
    return most;
}

/* -- generation: states, then the convolution's last inputs ---------------------------------------- */

static size_t state_bytes(const mt_config *c) { return (size_t)(c->delta.H * c->delta.Dk * c->delta.Dv) * sizeof(float); }

static size_t inputs_bytes(const mt_config *c, mt_dtype t)
{
    return (size_t)((c->delta.width - 1) * conv_width(c)) * mt_dtype_bytes(t);
}

/* The inputs of all sequences begin at a multiple of MT_ARRAY_ALIGN: a sequence's share has room for that. */
static mt_cache_bytes delta_cache_bytes(const mt_config *c, const mt_layer_spec *s, mt_dtype t)
{
    (void)s;
    return (mt_cache_bytes){ .sequence = state_bytes(c) + inputs_bytes(c, t) + MT_ARRAY_ALIGN };
}

static void *cached_inputs(const mt_pass *p)
{
    return (char *)p->a->cache + mt_round_up((size_t)p->a->cache_slots * state_bytes(p->c), MT_ARRAY_ALIGN);
}

static size_t delta_cache_scratch(const mt_config *c, const mt_layer_spec *s, mt_dtype t, int64_t rows, int64_t docs,
                                  int64_t deepest)
{
    mt_cache_delta rule = { .d = rule_shape(c, t) };
    mt_cache_conv conv = { .c = conv_shape(c, t) };
    (void)s;
    (void)deepest;
    rule.d.N = conv.c.N = rows;
    rule.d.n_docs = conv.c.n_docs = docs;
    const size_t a = mt_cache_delta_scratch(&rule), b = mt_cache_conv_scratch(&conv);
    return a > b ? a : b;
}

/* -- arguments ------------------------------------------------------------------------------------- */

static mt_conv conv_args(const mt_pass *p)
{
    mt_conv a = conv_shape(p->c, p->r->t);
    a.N = p->mb->n;
    a.n_docs = p->mb->n_docs;
    a.doc_start = p->mb->doc_start;
    a.x = mt_pass_array(p, PROJ);
    a.w = mt_pass_weight(p, MT_W_DELTA_CONV);
    a.y = mt_pass_array(p, CONV);
    a.scratch = p->r->scratch;
    return a;
}

static mt_delta_rule rule_args(const mt_pass *p)
{
    const mt_config *c = p->c;
    void *qkv = mt_pass_array(p, CONV), *proj = mt_pass_array(p, PROJ);
    mt_delta_rule a = rule_shape(c, p->r->t);
    a.N = p->mb->n;
    a.n_docs = p->mb->n_docs;
    a.doc_start = p->mb->doc_start;
    a.q = qkv;
    a.k = mt_pass_rows(p, qkv, 1, key_width(c));
    a.v = mt_pass_rows(p, qkv, 2, key_width(c));
    a.b = mt_pass_rows(p, proj, 1, b_column(c));
    a.a = mt_pass_rows(p, proj, 1, a_column(c));
    a.A_log = mt_pass_exact(p, MT_W_DELTA_A_LOG);
    a.dt_bias = mt_pass_exact(p, MT_B_DELTA_DT);
    a.o = mt_pass_array(p, O);
    a.scratch = p->r->scratch;
    a.scratch_bytes = p->r->scratch_bytes;
    return a;
}

static mt_gated_norm norm_args(const mt_pass *p)
{
    const mt_config *c = p->c;
    const int64_t v = value_width(c);
    return (mt_gated_norm){ .t = p->r->t,
                            .N = p->mb->n,
                            .H = c->delta.H,
                            .D = c->delta.Dv,
                            .ldx = v,
                            .ld_gate = proj_width(c),
                            .ldy = v,
                            .ld_dx = v,
                            .ld_dgate = proj_width(c),
                            .eps = (float)c->eps,
                            .x = mt_pass_array(p, O),
                            .gate = mt_pass_rows(p, mt_pass_array(p, PROJ), 1, conv_width(c)),
                            .w = mt_pass_weight(p, MT_W_DELTA_NORM),
                            .y = mt_pass_array(p, Y),
                            .scratch = p->r->scratch };
}

/* -- forward and back ------------------------------------------------------------------------------ */

static mt_rc convolve(const mt_pass *p, mt_err *err)
{
    mt_conv conv = conv_args(p);
    return p->r->ops->conv_fwd(p->r->stream, &conv, err);
}

/* Rows that continue sequences: the state and the last inputs of each come from the cache and go there. */
static mt_rc continue_sequences(const mt_pass *p, mt_err *err)
{
    const int32_t *pos = p->mb->pos, *slot = p->mb->cache_slot;
    mt_cache_conv conv = { .c = conv_args(p), .pos = pos, .slot = slot, .state = cached_inputs(p) };
    mt_cache_delta rule = { .d = rule_args(p), .pos = pos, .slot = slot, .state = p->a->cache };
    MT_TRY(p->r->ops->cache_conv(p->r->stream, &conv, err));
    return p->r->ops->cache_delta(p->r->stream, &rule, err);
}

static mt_rc delta_forward(const mt_pass *p, const void *h, mt_err *err)
{
    MT_TRY(mt_product_forward(p, W_PROJ, &(mt_product_io){ .n = p->mb->n, .x = h, .y = mt_pass_array(p, PROJ) }, err));
    if (p->mb->cache_row) return continue_sequences(p, err);
    MT_TRY(convolve(p, err));
    mt_delta_rule rule = rule_args(p);
    return p->r->ops->delta_rule_fwd(p->r->stream, &rule, err);
}

static mt_rc delta_output(const mt_pass *p, void *y, const void *add, mt_err *err)
{
    const mt_gated_norm norm = norm_args(p);
    MT_TRY(p->r->ops->gated_norm_fwd(p->r->stream, &norm, err));
    return mt_product_forward(p, W_OUT, &(mt_product_io){ .n = p->mb->n, .x = norm.y, .y = y, .add = add }, err);
}

/* Y is written again on the way, so the output projection's own gradient waits for it. */
static mt_rc delta_backward_output(const mt_pass *p, const void *dy, mt_err *err)
{
    const int64_t n = p->mb->n;
    void *d = mt_pass_array(p, DO);
    MT_TRY(mt_product_backward(p, W_OUT, &(mt_product_io){ .n = n, .dy = dy, .dx = d }, err));
    mt_gated_norm norm = norm_args(p);
    norm.dy = norm.dx = d;
    norm.dgate = mt_pass_rows(p, mt_pass_array(p, DPROJ), 1, conv_width(p->c));
    norm.dw = mt_pass_grad(p, MT_W_DELTA_NORM);
    MT_TRY(p->r->ops->gated_norm_bwd(p->r->stream, &norm, err));
    return mt_product_backward(p, W_OUT, &(mt_product_io){ .n = n, .x = norm.y, .dy = dy }, err);
}

static mt_rc delta_backward(const mt_pass *p, const void *h, void *dh, bool dh_add, mt_err *err)
{
    const mt_config *c = p->c;
    void *dproj = mt_pass_array(p, DPROJ), *dqkv = mt_pass_array(p, DCONV);
    mt_delta_rule rule = rule_args(p);
    rule.d_o = mt_pass_array(p, DO);
    rule.dq = dqkv;
    rule.dk = mt_pass_rows(p, dqkv, 1, key_width(c));
    rule.dv = mt_pass_rows(p, dqkv, 2, key_width(c));
    rule.db = mt_pass_rows(p, dproj, 1, b_column(c));
    rule.da = mt_pass_rows(p, dproj, 1, a_column(c));
    rule.dA_log = mt_pass_grad(p, MT_W_DELTA_A_LOG);
    rule.ddt_bias = mt_pass_grad(p, MT_B_DELTA_DT);
    MT_TRY(p->r->ops->delta_rule_bwd(p->r->stream, &rule, err));
    mt_conv conv = conv_args(p);
    conv.dy = dqkv;
    conv.dx = dproj;
    conv.dw = mt_pass_grad(p, MT_W_DELTA_CONV);
    MT_TRY(p->r->ops->conv_bwd(p->r->stream, &conv, err));
    const mt_product_io proj = { .n = p->mb->n, .x = h, .dy = dproj, .dx = dh, .dx_add = dh_add };
    return mt_product_backward(p, W_PROJ, &proj, err);
}

const mt_mixer mt_mixer_delta = {
    .part = { .name = "delta net",
              .has_role = delta_has_role,
              .products = delta_products,
              .arrays = delta_arrays,
              .work = delta_work,
              .forward_kernels = 8,
              .backward_kernels = 20,
              .scratch = delta_scratch },
    .cache_bytes = delta_cache_bytes,
    .cache_scratch = delta_cache_scratch,
    .forward = delta_forward,
    .output = delta_output,
    .restore = convolve,
    .backward_output = delta_backward_output,
    .backward = delta_backward,
};
