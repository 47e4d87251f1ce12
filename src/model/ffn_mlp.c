/* ffn_mlp.c - the mlp, gated or plain: gate and up in one product, activation, down projection.
 *
 * It takes a chunk of rows at a time, because gate and up are its widest arrays by far. */
#include "model/part.h"

/* ACT_WORK takes the activation where it is not kept, and in backward its gradient. */
enum { GATE_UP, ACT_WORK, ACT, ARRAYS };
enum { W_GATE_UP, W_DOWN, PRODUCTS };

/* Columns of what the first product makes. */
static int64_t gate_up_width(const mt_config *c, const mt_layer_spec *s) { return c->plain_mlp ? s->F : 2 * s->F; }

/* -- its weights, arrays, work and scratch --------------------------------------------------------- */

static bool mlp_has_role(const mt_config *c, const mt_layer_spec *s, mt_role role)
{
    (void)s;
    switch (role) {
    case MT_W_UP:
    case MT_W_DOWN: return true;
    case MT_W_ALPHA_P:
    case MT_W_ALPHA_N: return c->act == MT_ACT_XIELU;
    case MT_W_GATE: return !c->plain_mlp;
    case MT_B_GATE: return c->mlp_bias && !c->plain_mlp;
    case MT_B_UP:
    case MT_B_DOWN: return c->mlp_bias;
    default: return false;
    }
}

static int mlp_products(const mt_config *c, const mt_layer_spec *s, mt_product *out)
{
    out[W_GATE_UP] = (mt_product){ .rows = MT_EXTENT_CHUNK,
                                   .k = c->D,
                                   .of = { { MT_W_GATE, MT_B_GATE, c->plain_mlp ? 0 : s->F }, { MT_W_UP, MT_B_UP, s->F } } };
    out[W_DOWN] = (mt_product){
        .rows = MT_EXTENT_CHUNK, .k = s->F, .alpha = (float)c->residual_scale, .of = { { MT_W_DOWN, MT_B_DOWN, c->D } }
    };
    return PRODUCTS;
}

static int mlp_arrays(const mt_config *c, const mt_layer_spec *s, mt_dtype t, mt_array *out)
{
    const size_t e = mt_dtype_bytes(t), act = (size_t)s->F * e;
    const mt_array arrays[ARRAYS] = {
        [GATE_UP] = { "gate+up", (size_t)gate_up_width(c, s) * e, MT_KEEP_ALL, MT_EXTENT_SEGMENT, false, 0, 0 },
        [ACT_WORK] = { "act.work", act, MT_KEEPS, MT_EXTENT_CHUNK, true, 0, 0 },
        [ACT] = { "act", act, MT_KEEP_ACT, MT_EXTENT_CHUNK, true, 1 + ACT_WORK, 0 },
    };
    for (int i = 0; i < ARRAYS; i++) out[i] = arrays[i];
    return ARRAYS;
}

static int mlp_work(const mt_config *c, const mt_layer_spec *s, mt_work_item *out)
{
    const double D = (double)c->D, F = (double)s->F, gu = (double)gate_up_width(c, s);
    int n = 0;
    out[n++] =
        (mt_work_item){ .name = "gate+up", .kind = MT_WORK_PRODUCT, .when = MT_IN_FORWARD, .keep = MT_KEEP_ALL, .n = gu, .k = D };
    out[n++] = (mt_work_item){ .name = "down", .kind = MT_WORK_PRODUCT, .when = MT_IN_FORWARD, .keep = MT_KEEPS, .n = D, .k = F };
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEPS, .n = 1.1 * (gu + F) };
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_REDO, .keep = MT_KEEP_ACT, .n = F };
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_BACKWARD, .n = 3 * gu - F };
    return n;
}

static size_t mlp_scratch(const mt_config *c, const mt_layer_spec *s, const mt_scratch_shape *shape)
{
    return mt_activation_scratch(&(mt_activation){ .t = shape->t, .act = c->act, .N = shape->chunk, .F = s->F });
}

/* -- arguments ------------------------------------------------------------------------------------- */

/* The rows at hand of gate and up, which are there all at once or a chunk at a time. */
static void *gate_up_of(const mt_pass *p, mt_row_range s)
{
    void *gu = mt_pass_array(p, GATE_UP);
    return p->a->whole ? mt_pass_rows(p, gu, s.first, gate_up_width(p->c, p->s)) : gu;
}

/* Likewise the activation, which is chunks of workspace unless all of it is kept. */
static void *act_of(const mt_pass *p, mt_row_range s)
{
    void *act = mt_pass_array(p, ACT);
    return mt_pass_kept(p, ACT) ? mt_pass_rows(p, act, s.first, p->s->F) : act;
}

static mt_activation activation_args(const mt_pass *p, mt_row_range s)
{
    return (mt_activation){ .t = p->r->t,
                            .act = p->c->act,
                            .plain = p->c->plain_mlp,
                            .N = s.n,
                            .F = p->s->F,
                            .gu = gate_up_of(p, s),
                            .y = act_of(p, s),
                            .alpha_p = mt_pass_exact(p, MT_W_ALPHA_P),
                            .alpha_n = mt_pass_exact(p, MT_W_ALPHA_N),
                            .scratch = p->r->scratch };
}

/* -- forward and back ------------------------------------------------------------------------------ */

static mt_rc mlp_forward(const mt_pass *p, mt_row_range s, const void *h, mt_err *err)
{
    const mt_product_io gate_up = { .n = s.n, .x = mt_pass_rows(p, h, s.first, p->c->D), .y = gate_up_of(p, s) };
    return mt_product_forward(p, W_GATE_UP, &gate_up, err);
}

static mt_rc mlp_output(const mt_pass *p, mt_row_range s, void *y, const void *add, mt_err *err)
{
    const mt_activation activation = activation_args(p, s);
    MT_TRY(p->r->ops->activation_fwd(p->r->stream, &activation, err));
    mt_product_io down = { .n = s.n, .x = activation.y, .y = mt_pass_rows(p, y, s.first, p->c->D) };
    if (add) down.add = mt_pass_rows(p, add, s.first, p->c->D);
    return mt_product_forward(p, W_DOWN, &down, err);
}

/* Unless the activation is kept, its gradient takes its place, and it is written again on the way: so down's weights wait. */
static mt_rc mlp_backward(const mt_pass *p, mt_row_range s, const void *h, const void *dy, void *dh, bool dh_add, mt_err *err)
{
    void *dact = mt_pass_array(p, ACT_WORK);
    MT_TRY(mt_product_backward(p, W_DOWN, &(mt_product_io){ .n = s.n, .dy = dy, .dx = dact }, err));
    mt_activation activation = activation_args(p, s);
    activation.dy = dact;
    if (mt_pass_kept(p, ACT)) activation.y = NULL;
    activation.dgu = gate_up_of(p, s);
    activation.dalpha_p = mt_pass_grad(p, MT_W_ALPHA_P);
    activation.dalpha_n = mt_pass_grad(p, MT_W_ALPHA_N);
    MT_TRY(p->r->ops->activation_bwd(p->r->stream, &activation, err));
    MT_TRY(mt_product_backward(p, W_DOWN, &(mt_product_io){ .n = s.n, .x = act_of(p, s), .dy = dy }, err));
    const mt_product_io gate_up = {
        .n = s.n, .x = mt_pass_rows(p, h, s.first, p->c->D), .dy = activation.dgu, .dx = dh, .dx_add = dh_add
    };
    return mt_product_backward(p, W_GATE_UP, &gate_up, err);
}

const mt_ffn mt_ffn_mlp = {
    .part = { .name = "mlp",
              .has_role = mlp_has_role,
              .products = mlp_products,
              .writes = true,
              .arrays = mlp_arrays,
              .work = mlp_work,
              .forward_kernels = 6,
              .backward_kernels = 10,
              .scratch = mlp_scratch },
    .forward = mlp_forward,
    .output = mlp_output,
    .backward = mlp_backward,
};
