/* ffn_experts.c - a mixture of experts: a router sends each row to T of E gated mlps, and adds up their results; there may also
 * be a shared expert for every row, added as it is or times a switch.
 *
 *     first unit, a micro-batch at a time     h -> LOGITS -> route -> EXPERTS, WEIGHTS
 *                                             h -> S_GATE_UP -> S_ACT -> y                  (shared expert)
 *     units of experts, a pass at a time      h -> SORT -> GATE_UP -> ACT -> PACKED -> SUM
 *     close, once all units have added        SUM -> y
 *
 * A pass sorts its rows by expert, so that each expert multiplies its rows at once.  Units add to one fp32 sum in ascending order,
 * so how experts are cut into units changes no bit.  Forward's routes are kept, and backward never chooses again.  The order of all
 * sums is in docs/experts.md.
 *
 * A switch is a router of one expert: its sigmoid is the weight of that expert's rows, so the same ops compute it. */
#include "base/mem.h"
#include "model/part.h"

/* Packed rows: a row for each pair of a token and one of the unit's experts, ordered by expert; at most Tc = min(T, experts of a
 * unit) a token. */
enum {
    EXPERTS,   /* [N, T] those of each row */
    WEIGHTS,   /* [N, T] fp32 */
    S_GATE_UP, /* [N, 2Is] of the shared expert */
    SUM,       /* [N, D] fp32: what experts return; in backward, the gradient of what they read */
    DWEIGHTS,  /* [N, T] fp32 */
    SORT,      /* what expert_sort makes */
    GATE_UP,   /* [packed, 2I] */
    ACT,       /* [packed, I] */
    DACT,      /* its gradient */
    PACKED,    /* [packed, D]: what experts return; in backward, gradients of what they read */
    LOGITS,    /* [N, E] fp32 */
    DLOGITS,   /* [N, E] */
    H32,       /* [N, D] the input in fp32, for routers that are fp32 where all else is bf16 */
    SWITCH,    /* the shared expert's switch, a column each */
    S_ACT,     /* [N, Is] */
    S_DACT,    /* its gradient */
    ARRAYS
};

enum { W_ROUTER, W_S_GATE_UP, W_S_SWITCH, W_S_DOWN, W_E_GATE_UP, W_E_DOWN, PRODUCTS };

/* Columns of SWITCH.  Each begins at a multiple of 64 numbers. */
enum { S_LOGIT, S_WEIGHT, S_EXPERT, S_ORDER, S_ROWS, S_PLACE, S_DWEIGHT, S_DLOGIT, S_COLUMNS, S_ROUND = 64 };

/* -- its weights, arrays, work and scratch --------------------------------------------------------- */

static bool experts_has_role(const mt_config *c, const mt_layer_spec *s, mt_role role)
{
    switch (role) {
    case MT_W_ROUTER:
    case MT_W_E_GATE:
    case MT_W_E_UP:
    case MT_W_E_DOWN: return true;
    case MT_B_ROUTER: return c->moe.router_bias;
    case MT_B_CHOICE: return c->moe.choice_bias;
    case MT_B_E_GATE:
    case MT_B_E_UP:
    case MT_B_E_DOWN: return c->moe.biases;
    case MT_W_S_GATE:
    case MT_W_S_UP:
    case MT_W_S_DOWN: return s->Is > 0;
    case MT_B_S_GATE:
    case MT_B_S_UP:
    case MT_B_S_DOWN: return s->Is > 0 && c->mlp_bias;
    case MT_W_S_SWITCH: return s->Is > 0 && c->moe.shared_switch;
    default: return false;
    }
}

static int experts_products(const mt_config *c, const mt_layer_spec *s, mt_product *out)
{
    const int64_t D = c->D, I = s->I, Is = s->Is;
    out[W_ROUTER] = (mt_product){
        .k = D, .f32 = true, .exact = true, .of = { { MT_W_ROUTER, c->moe.router_bias ? MT_B_ROUTER : MT_ROLES, s->E } }
    };
    out[W_S_GATE_UP] = (mt_product){ .k = D, .of = { { MT_W_S_GATE, MT_B_S_GATE, Is }, { MT_W_S_UP, MT_B_S_UP, Is } } };
    out[W_S_SWITCH] =
        (mt_product){ .k = D, .f32 = true, .of = { { MT_W_S_SWITCH, MT_ROLES, experts_has_role(c, s, MT_W_S_SWITCH) } } };
    out[W_S_DOWN] =
        (mt_product){ .k = Is, .alpha = (float)c->residual_scale, .of = { { MT_W_S_DOWN, MT_B_S_DOWN, Is > 0 ? D : 0 } } };
    out[W_E_GATE_UP] =
        (mt_product){ .rows = MT_EXTENT_PASS, .k = D, .of = { { MT_W_E_GATE, MT_B_E_GATE, I }, { MT_W_E_UP, MT_B_E_UP, I } } };
    out[W_E_DOWN] = (mt_product){ .rows = MT_EXTENT_PASS, .k = I, .of = { { MT_W_E_DOWN, MT_B_E_DOWN, D } } };
    return PRODUCTS;
}

static size_t offsets_bytes(const mt_layer_spec *s) { return mt_round_up((size_t)(s->E + 1) * sizeof(int32_t), MT_ARRAY_ALIGN); }

static int experts_arrays(const mt_config *c, const mt_layer_spec *s, mt_dtype t, mt_array *out)
{
    const size_t e = mt_dtype_bytes(t), T = (size_t)s->T, E = (size_t)s->E, D = (size_t)c->D, Is = (size_t)s->Is, four = 4;
    const size_t Tc = (size_t)mt_min_i64(s->T, s->unit_experts), packed = Tc * (size_t)s->I,
                 wide = c->moe.exact_router && t == MT_DTYPE_BF16 ? D * four : 0;
    const size_t sw = experts_has_role(c, s, MT_W_S_SWITCH) ? S_COLUMNS * four : 0,
                 sw_fixed = S_COLUMNS * S_ROUND * four + MT_ARRAY_ALIGN;
    const mt_array arrays[ARRAYS] = {
        [EXPERTS] = { "routes", T * four, MT_KEEP_INPUT, MT_EXTENT_SWEEP, true, 0, 0 },
        [WEIGHTS] = { "routes.weights", T * four, MT_KEEP_INPUT, MT_EXTENT_SWEEP, true, 0, 0 },
        [S_GATE_UP] = { "shared.gate+up", 2 * Is * e, MT_KEEP_ALL, MT_EXTENT_MICRO, false, 0, 0 },
        [SUM] = { "experts.sum", D * four, MT_KEEPS, MT_EXTENT_SWEEP, true, 0, 0 },
        [DWEIGHTS] = { "routes.d", T * four, MT_KEEPS, MT_EXTENT_SWEEP, true, 0, 0 },
        [SORT] = { "sort", 3 * T * four, MT_KEEPS, MT_EXTENT_PASS, true, 0, offsets_bytes(s) },
        [GATE_UP] = { "experts.gate+up", 2 * packed * e, MT_KEEPS, MT_EXTENT_PASS, true, 0, 0 },
        [ACT] = { "experts.act", packed * e, MT_KEEPS, MT_EXTENT_PASS, true, 0, 0 },
        [DACT] = { "experts.dact", packed * e, MT_KEEPS, MT_EXTENT_PASS, true, 0, 0 },
        [PACKED] = { "experts.rows", Tc * D * e, MT_KEEPS, MT_EXTENT_PASS, true, 0, 0 },
        [LOGITS] = { "router", E * four, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [DLOGITS] = { "router.d", E * four, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [H32] = { "router.x", wide, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [SWITCH] = { "switch", sw, MT_KEEPS, MT_EXTENT_MICRO, true, 0, sw_fixed },
        [S_ACT] = { "shared.act", Is * e, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [S_DACT] = { "shared.dact", Is * e, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
    };
    for (int i = 0; i < ARRAYS; i++) out[i] = arrays[i];
    return ARRAYS;
}

static mt_work_item product_item(const char *name, mt_keep keep, double n, double k)
{
    return (mt_work_item){ .name = name, .kind = MT_WORK_PRODUCT, .when = MT_IN_FORWARD, .keep = keep, .n = n, .k = k };
}

static int experts_work(const mt_config *c, const mt_layer_spec *s, mt_work_item *out)
{
    const double D = (double)c->D, T = (double)s->T, I = (double)s->I, Is = (double)s->Is, E = (double)s->E;
    int n = 0;
    out[n++] = product_item("router", MT_KEEPS, E, D);
    if (Is > 0) {
        out[n++] = product_item("shared gate+up", MT_KEEP_ALL, 2 * Is + c->moe.shared_switch, D);
        out[n++] = product_item("shared down", MT_KEEPS, D, Is);
        out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEPS, .n = 3.3 * Is };
        out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_BACKWARD, .n = 5 * Is };
    }
    const int first = n;
    out[n++] = product_item("experts gate+up", MT_KEEPS, T * 2 * I, D);
    out[n++] = product_item("experts down", MT_KEEPS, T * D, I);
    /* Backward first computes gate and up again. */
    out[n++] = (mt_work_item){ .kind = MT_WORK_PRODUCT, .when = MT_IN_REDO, .keep = MT_KEEPS, .n = T * 2 * I, .k = D };
    /* Activations; expert rows gathered once and written once, and the sum. */
    out[n++] =
        (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEPS, .n = 3.3 * T * I + (2 * T + 4) * D };
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_BACKWARD, .n = 5 * T * I + (3 * T + 4) * D };
    for (int i = first; i < n; i++) {
        out[i].T = T;
        out[i].E = E;
    }
    return n;
}

static size_t experts_scratch(const mt_config *c, const mt_layer_spec *s, const mt_scratch_shape *shape)
{
    (void)c;
    int32_t *counts = shape->router_loss ? (int32_t *)1 : NULL;
    const int64_t n = shape->rows, E = s->E, T = s->T, packed = shape->pass * mt_min_i64(T, s->unit_experts);
    const size_t needs[] = {
        mt_expert_sort_scratch(&(mt_expert_sort){ .N = shape->pass, .T = T, .E = E }),
        mt_expert_sort_scratch(&(mt_expert_sort){ .N = n, .T = 1, .E = 1 }),
        mt_route_scratch(&(mt_route){ .N = n, .E = E, .T = T, .aux_counts = counts }),
        mt_activation_scratch(&(mt_activation){ .t = shape->t, .N = packed, .F = s->I }),
        mt_activation_scratch(&(mt_activation){ .t = shape->t, .N = n, .F = s->Is }),
    };
    size_t most = 0;
    for (size_t i = 0; i < MT_COUNT(needs); i++)
        if (needs[i] > most) most = needs[i];
    return most;
}

/* -- routing --------------------------------------------------------------------------------------- */

static int32_t *experts_of(const mt_pass *p) { return mt_pass_array(p, EXPERTS); }
static float *weights_of(const mt_pass *p) { return mt_pass_array(p, WEIGHTS); }

static int32_t *offsets_of(const mt_pass *p) { return mt_pass_array(p, SORT); }
static int32_t *order_of(const mt_pass *p) { return (int32_t *)((char *)offsets_of(p) + offsets_bytes(p->s)); }
static int32_t *rows_of(const mt_pass *p) { return order_of(p) + p->mb->n * p->s->T; }
static int32_t *place_of(const mt_pass *p) { return rows_of(p) + p->mb->n * p->s->T; }

/* The rows that the router multiplies: in fp32 where it computes in fp32 while all else is bf16. */
static const void *router_input(const mt_pass *p, const void *h)
{
    return mt_product_is_exact(p, W_ROUTER) ? mt_pass_array(p, H32) : h;
}

static mt_rc router_logits(const mt_pass *p, const void *h, mt_err *err)
{
    const mt_join_halves widen = { .n = p->mb->n * p->c->D, .hi = h, .w = mt_pass_array(p, H32) };
    if (mt_product_is_exact(p, W_ROUTER)) /* bf16 numbers are the high halves of fp32 ones */
        MT_TRY(p->r->ops->join_halves(p->r->stream, &widen, err));
    const mt_product_io logits = { .n = p->mb->n, .x = router_input(p, h), .y = mt_pass_array(p, LOGITS) };
    return mt_product_forward(p, W_ROUTER, &logits, err);
}

/* The config's residual scale is a factor of every routing weight. */
static mt_route route_args(const mt_pass *p)
{
    const mt_moe *m = &p->c->moe;
    return (mt_route){ .t = mt_product_is_exact(p, W_ROUTER) ? MT_DTYPE_F32 : p->r->t,
                       .kind = m->router,
                       .N = p->mb->n,
                       .E = p->s->E,
                       .T = p->s->T,
                       .n_group = m->n_group,
                       .topk_group = m->topk_group,
                       .norm = m->norm_topk,
                       .norm_eps = (float)m->norm_eps,
                       .norm_floor = (float)m->norm_floor,
                       .scale = (float)(m->scale * p->c->residual_scale),
                       .jitter = (float)m->jitter,
                       .logits = mt_pass_array(p, LOGITS),
                       .bias = mt_pass_exact(p, MT_B_CHOICE),
                       .experts = experts_of(p),
                       .weights = weights_of(p),
                       .aux_counts = p->a->router.counts,
                       .aux_probs = p->a->router.probs,
                       .aux_scale = p->a->router.scale,
                       .scratch = p->r->scratch };
}

/* The pass's rows by expert.  loads: rows per expert are added to it (mt_expert_sort); NULL: not counted. */
static mt_expert_sort sort_args(const mt_pass *p, int32_t *loads)
{
    return (mt_expert_sort){ .N = p->mb->n,
                             .T = p->s->T,
                             .E = p->s->E,
                             .experts = experts_of(p),
                             .offsets = offsets_of(p),
                             .order = order_of(p),
                             .rows = rows_of(p),
                             .place = place_of(p),
                             .loads = loads,
                             .scratch = p->r->scratch };
}

/* -- the shared expert ----------------------------------------------------------------------------- */

static bool has_switch(const mt_pass *p) { return p->l->at[MT_W_S_SWITCH] >= 0; }

static void *switch_at(const mt_pass *p, int column)
{
    return (int32_t *)mt_pass_array(p, SWITCH) + column * (int64_t)mt_round_up((size_t)p->mb->n, S_ROUND);
}

static mt_route switch_route(const mt_pass *p)
{
    return (mt_route){ .t = p->r->t,
                       .kind = MT_ROUTE_LOGIT_SIGMOID,
                       .N = p->mb->n,
                       .E = 1,
                       .T = 1,
                       .logits = switch_at(p, S_LOGIT),
                       .experts = switch_at(p, S_EXPERT),
                       .weights = switch_at(p, S_WEIGHT),
                       .dweights = switch_at(p, S_DWEIGHT),
                       .dlogits = switch_at(p, S_DLOGIT),
                       .scratch = p->r->scratch };
}

static mt_rc switch_forward(const mt_pass *p, const void *h, mt_err *err)
{
    if (!has_switch(p)) return MT_OK;
    MT_TRY(mt_product_forward(p, W_S_SWITCH, &(mt_product_io){ .n = p->mb->n, .x = h, .y = switch_at(p, S_LOGIT) }, err));
    const mt_route r = switch_route(p);
    MT_TRY(p->r->ops->route_fwd(p->r->stream, &r, err));
    const mt_expert_sort s = { .N = p->mb->n,
                               .T = 1,
                               .E = 1,
                               .experts = r.experts,
                               .offsets = switch_at(p, S_COLUMNS),
                               .order = switch_at(p, S_ORDER),
                               .rows = switch_at(p, S_ROWS),
                               .place = switch_at(p, S_PLACE),
                               .scratch = p->r->scratch };
    return p->r->ops->expert_sort(p->r->stream, &s, err);
}

static mt_activation shared_activation(const mt_pass *p)
{
    mt_activation a = { .t = p->r->t,
                        .act = p->c->act,
                        .N = p->mb->n,
                        .F = p->s->Is,
                        .gu = mt_pass_array(p, S_GATE_UP),
                        .y = mt_pass_array(p, S_ACT) };
    if (!has_switch(p)) return a;
    a.first = switch_at(p, S_COLUMNS);
    a.last = a.first + 1;
    a.order = switch_at(p, S_ORDER);
    a.weights = switch_at(p, S_WEIGHT);
    return a;
}

static mt_rc shared_output(const mt_pass *p, void *y, const void *add, mt_err *err)
{
    const mt_activation activation = shared_activation(p);
    MT_TRY(p->r->ops->activation_fwd(p->r->stream, &activation, err));
    return mt_product_forward(p, W_S_DOWN, &(mt_product_io){ .n = p->mb->n, .x = activation.y, .y = y, .add = add }, err);
}

/* From dy to the gradients of gate and up, which take their place, and of the switch. */
static mt_rc shared_backward(const mt_pass *p, const void *dy, mt_err *err)
{
    const int64_t n = p->mb->n;
    void *dact = mt_pass_array(p, S_DACT);
    MT_TRY(mt_product_backward(p, W_S_DOWN, &(mt_product_io){ .n = n, .dy = dy, .dx = dact }, err));
    mt_activation activation = shared_activation(p);
    activation.dy = dact;
    activation.dgu = mt_pass_array(p, S_GATE_UP);
    if (has_switch(p)) activation.dweights = switch_at(p, S_DWEIGHT);
    MT_TRY(p->r->ops->activation_bwd(p->r->stream, &activation, err));
    return mt_product_backward(p, W_S_DOWN, &(mt_product_io){ .n = n, .x = activation.y, .dy = dy }, err);
}

/* dh += what comes through the shared expert's first products and its switch. */
static mt_rc shared_input_backward(const mt_pass *p, const void *h, void *dh, mt_err *err)
{
    mt_product_io to_h = { .n = p->mb->n, .x = h, .dx = dh, .dx_add = true };
    to_h.dy = mt_pass_array(p, S_GATE_UP);
    MT_TRY(mt_product_backward(p, W_S_GATE_UP, &to_h, err));
    if (!has_switch(p)) return MT_OK;
    const mt_route r = switch_route(p);
    MT_TRY(p->r->ops->route_bwd(p->r->stream, &r, err));
    to_h.dy = r.dlogits;
    return mt_product_backward(p, W_S_SWITCH, &to_h, err);
}

/* -- the experts of a unit ------------------------------------------------------------------------- */

/* The most packed rows that the unit's experts can have. */
static int64_t packed_rows(const mt_pass *p) { return p->mb->n * mt_min_i64(p->s->T, p->n_experts); }

/* Routing weights scale what experts read (weigh_input), or else what they return (combine). */
static mt_activation expert_activation(const mt_pass *p)
{
    return (mt_activation){ .t = p->r->t,
                            .act = p->c->act,
                            .limit = (float)p->c->act_limit,
                            .steep = (float)p->c->act_steep,
                            .weigh_input = p->c->moe.weigh_input,
                            .weights = p->c->moe.weigh_input ? weights_of(p) : NULL,
                            .N = packed_rows(p),
                            .F = p->s->I,
                            .gu = mt_pass_array(p, GATE_UP),
                            .y = mt_pass_array(p, ACT),
                            .first = offsets_of(p) + p->first_expert,
                            .last = offsets_of(p) + p->first_expert + p->n_experts,
                            .order = order_of(p) };
}

/* The unit's share of the sum. */
static mt_combine combine_args(const mt_pass *p)
{
    return (mt_combine){ .t = p->r->t,
                         .N = p->mb->n,
                         .D = p->c->D,
                         .T = p->s->T,
                         .e0 = p->first_expert,
                         .c = p->n_experts,
                         .start = p->first_expert == 0,
                         .experts = experts_of(p),
                         .place = place_of(p),
                         .offsets = offsets_of(p),
                         .y = mt_pass_array(p, PACKED),
                         .sum = mt_pass_array(p, SUM) };
}

static mt_rc experts_gate_up(const mt_pass *p, const mt_expert_sort *sorted, const void *h, mt_err *err)
{
    const mt_product_io gate_up = {
        .n = packed_rows(p), .sorted = sorted, .gather_x = true, .x = h, .y = mt_pass_array(p, GATE_UP)
    };
    return mt_product_forward(p, W_E_GATE_UP, &gate_up, err);
}

static mt_rc experts_unit_forward(const mt_pass *p, const void *h, mt_err *err)
{
    const mt_expert_sort sort = sort_args(p, p->first_expert == 0 ? p->a->router.loads : NULL); /* each unit sorts; one counts */
    MT_TRY(p->r->ops->expert_sort(p->r->stream, &sort, err));
    MT_TRY(experts_gate_up(p, &sort, h, err));
    const mt_activation activation = expert_activation(p);
    MT_TRY(p->r->ops->activation_fwd(p->r->stream, &activation, err));
    const mt_product_io down = { .n = packed_rows(p), .sorted = &sort, .x = activation.y, .y = mt_pass_array(p, PACKED) };
    MT_TRY(mt_product_forward(p, W_E_DOWN, &down, err));
    mt_combine sum = combine_args(p);
    sum.weights = p->c->moe.weigh_input ? NULL : weights_of(p);
    return p->r->ops->combine(p->r->stream, &sum, err);
}

/* y = the sum that all units have added to (+ add), rounded. */
static mt_rc experts_close(const mt_pass *p, void *y, const void *add, mt_err *err)
{
    mt_combine a = combine_args(p);
    a.start = false; /* no more experts */
    a.e0 = a.c = 0;
    a.out = y;
    a.add = add;
    return p->r->ops->combine(p->r->stream, &a, err);
}

/* From dy to DWEIGHTS and, in SUM, the gradient of what the experts read.  The gradient of act(gate) up comes first without
 * the routing weights: its inner product with act(gate) up is that of the weight, and no expert's result is needed again. */
static mt_rc experts_unit_backward(const mt_pass *p, const void *h, const void *dy, mt_err *err)
{
    const mt_ops *ops = p->r->ops;
    const mt_expert_sort sort = sort_args(p, NULL);
    MT_TRY(ops->expert_sort(p->r->stream, &sort, err));
    MT_TRY(experts_gate_up(p, &sort, h, err));
    mt_product_io down = { .n = packed_rows(p), .sorted = &sort, .gather_dy = true, .dy = dy, .dx = mt_pass_array(p, DACT) };
    MT_TRY(mt_product_backward(p, W_E_DOWN, &down, err));
    mt_activation activation = expert_activation(p);
    activation.dy = down.dx;
    activation.dgu = mt_pass_array(p, GATE_UP);
    activation.weights = weights_of(p);
    activation.dweights = mt_pass_array(p, DWEIGHTS);
    MT_TRY(ops->activation_bwd(p->r->stream, &activation, err));
    down.x = activation.y;
    down.dx = NULL;
    down.weights = activation.weights;
    down.dweights = activation.dweights;
    MT_TRY(mt_product_backward(p, W_E_DOWN, &down, err));
    const mt_product_io gate_up = {
        .n = packed_rows(p), .sorted = &sort, .gather_x = true, .x = h, .dy = activation.dgu, .dx = mt_pass_array(p, PACKED)
    };
    MT_TRY(mt_product_backward(p, W_E_GATE_UP, &gate_up, err));
    const mt_combine sum = combine_args(p);
    return ops->combine(p->r->stream, &sum, err);
}

/* -- forward and back ------------------------------------------------------------------------------ */

static mt_rc experts_forward(const mt_pass *p, mt_row_range s, const void *h, mt_err *err)
{
    (void)s;
    MT_TRY(router_logits(p, h, err));
    const mt_route route = route_args(p);
    if (!p->again) MT_TRY(p->r->ops->route_fwd(p->r->stream, &route, err)); /* backward finds it kept */
    if (!p->s->Is) return MT_OK;
    MT_TRY(switch_forward(p, h, err));
    return mt_product_forward(p, W_S_GATE_UP, &(mt_product_io){ .n = p->mb->n, .x = h, .y = mt_pass_array(p, S_GATE_UP) }, err);
}

static bool experts_adds(const mt_layer_spec *s) { return s->Is > 0; }

static mt_rc experts_output(const mt_pass *p, mt_row_range s, void *y, const void *add, mt_err *err)
{
    (void)s;
    return shared_output(p, y, add, err);
}

/* dh = or += what comes through the experts and their router.  An fp32 router adds to the fp32 sum before it is rounded. */
static mt_rc experts_input_backward(const mt_pass *p, const void *h, void *dh, bool dh_add, mt_err *err)
{
    const bool exact = mt_product_is_exact(p, W_ROUTER);
    mt_route route = route_args(p);
    route.dweights = mt_pass_array(p, DWEIGHTS);
    route.dlogits = mt_pass_array(p, DLOGITS);
    const mt_product_io router = {
        .n = p->mb->n, .x = router_input(p, h), .dy = route.dlogits, .dx = exact ? mt_pass_array(p, SUM) : dh, .dx_add = true
    };
    if (!exact) MT_TRY(experts_close(p, dh, dh_add ? dh : NULL, err));
    MT_TRY(p->r->ops->route_bwd(p->r->stream, &route, err));
    MT_TRY(mt_product_backward(p, W_ROUTER, &router, err));
    return exact ? experts_close(p, dh, dh_add ? dh : NULL, err) : MT_OK;
}

/* Runs after the backward of all units of experts. */
static mt_rc experts_backward(const mt_pass *p, mt_row_range s, const void *h, const void *dy, void *dh, bool dh_add, mt_err *err)
{
    (void)s;
    if (p->a->whole) { /* else forward has just been recomputed */
        MT_TRY(router_logits(p, h, err));
        MT_TRY(switch_forward(p, h, err));
    }
    if (p->s->Is) MT_TRY(shared_backward(p, dy, err));
    MT_TRY(experts_input_backward(p, h, dh, dh_add, err));
    return p->s->Is ? shared_input_backward(p, h, dh, err) : MT_OK;
}

const mt_ffn mt_ffn_experts = {
    .part = { .name = "experts",
              .has_role = experts_has_role,
              .products = experts_products,
              .arrays = experts_arrays,
              .work = experts_work,
              .forward_kernels = 8,
              .backward_kernels = 12,
              .scratch = experts_scratch },
    .whole = true,
    .forward = experts_forward,
    .output = experts_output,
    .backward = experts_backward,
    .adds = experts_adds,
    .routes = EXPERTS,
    .experts = experts_unit_forward,
    .close = experts_close,
    .experts_backward = experts_unit_backward,
    .unit_forward_kernels = 5,
    .unit_backward_kernels = 8,
};
