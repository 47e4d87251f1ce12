/* costs.c - the cost of kernels.  The constants are measured (docs/notebook, ops at the shapes of a layer) and scaled by a
 * device's rates. */
#include "plan/costs.h"

#include "base/mem.h"
#include "model/flops.h"

#include <math.h>

double mt_cost_small(const mt_machine *m, double rows, double columns, double depth)
{
    return 1 + fmin(m->small_result / (rows * columns), 0.15) + m->short_sum / depth;
}

/* Seconds of a product whose result is rows x columns and whose sums are `depth` long. */
static double product(const mt_costs *c, double rows, double columns, double depth)
{
    double peak = c->e == 4 ? c->m->flops_f32 : c->m->flops;
    return 2 * rows * columns * depth / peak * mt_cost_small(c->m, rows, columns, depth);
}

/* dx and dw of y = x w', `rows` rows at a time. dw reads and writes its fp32 sums, mostly overlapped with the products of other
 * tiles. */
static double product_backward(const mt_costs *c, double rows, double n, double k)
{
    return product(c, rows, k, n) + product(c, n, k, rows) + 0.3 * 8 * n * k / c->m->device_bandwidth;
}

/* dw alone. */
static double product_weights(const mt_costs *c, double rows, double n, double k)
{
    return product(c, n, k, rows) + 0.3 * 8 * n * k / c->m->device_bandwidth;
}

/* On a CPU the loop over them takes the time, not their bytes. */
static double moved(const mt_costs *c, double numbers) { return numbers * (c->m->shared ? 4 : c->e) / c->m->device_bandwidth; }

/* -- attention ------------------------------------------------------------------------------------- */

/* Rates of the kernels of docs/notebook relative to our own forward over long documents (mt_machine.attention), forward and
 * backward: with heads of 128 in a run of seconds, where the power limit holds them to 0.75 to 0.85 of their rate alone; the
 * fraction that narrower, odd and wider heads reach (narrow ones wait for exponentials, not for power); and how often a row of
 * all heads crosses memory. */
typedef struct kernel {
    double rate, narrow, odd, wide, rows;
} kernel;
static const kernel kernels[MT_ATTENTION_WAYS][2] = {
    [MT_ATTENTION_FLASH] = { { 1.00, 0.65, 0.65, 0.58, 6 }, { 0.78, 0.77, 0.72, 0.43, 10 } },
    [MT_ATTENTION_CUDNN] = { { 1.45, 0.74, 0.84, 1.00, 2 }, { 0.95, 0.70, 0.74, 0.68, 10 } },
    [MT_ATTENTION_CUDNN_FAST] = { { 1.45, 0.74, 0.84, 1.00, 2 }, { 1.30, 0.80, 0.75, 0.67, 20 } },
};
enum { HALF_TILE = 64 }; /* keys computed in vain per row: tiles reach beyond the diagonal and beyond a window */

static double head_share(const kernel *k, int64_t Dh)
{
    if (Dh <= 64) return k->narrow;
    if (Dh < 128) return k->odd;
    return Dh == 128 ? 1 : k->wide;
}

/* The kernel that the engine uses for this attention, at the size of the plan's micro-batches. */
static mt_attention_way way_of(const mt_costs *k, const mt_attention *shape, bool backward)
{
    mt_attention a = *shape;
    if (k->m->shared) return MT_ATTENTION_PLAIN; /* a CPU has no other */
    a.t = k->e == 4 ? MT_DTYPE_F32 : MT_DTYPE_BF16;
    a.N = (int64_t)k->micro_rows;
    a.n_docs = (int64_t)(k->micro_rows / k->document) + 1;
    a.longest = (int64_t)k->document;
    a.use = k->use;
    return mt_attention_choose(&a, backward);
}

/* Seconds a row. */
static double attention(const mt_costs *k, const mt_work_item *w, bool backward)
{
    const mt_attention *a = &w->attention;
    double keys = mt_flops_keys((int64_t)k->document, a) / k->document, each = (backward ? 5 : 2) * (w->n + w->k);
    mt_attention_way way = way_of(k, a, backward);
    const kernel *at = &kernels[way][backward];
    /* On a GPU, for kernels without tensor cores. */
    if (way == MT_ATTENTION_PLAIN) return each * keys / (k->m->shared ? k->m->attention : k->m->flops_f32 / 4);
    keys += a->window && (double)a->window < k->document ? 2 * HALF_TILE : HALF_TILE;
    return each * keys / (k->m->attention * at->rate * head_share(at, a->Dh)) +
           moved(k, at->rows * w->k + (double)(a->K * (a->Dh + mt_value_width(a->Dh, a->Dv))));
}

/* -- the delta rule -------------------------------------------------------------------------------- */

/* Seconds a row.  Chunks multiply with the state three times, and with each other's keys and values five times.  Rates are
 * measured (docs/notebook): 0.19 of our own attention's; a CPU goes row by row at its rate.  Backward takes 3.1 times as
 * long. */
static double delta_rule(const mt_costs *k, const mt_work_item *w, bool backward)
{
    double flops = k->m->shared ? 8 * w->n : 6 * w->n + 5 * MT_DELTA_ROWS * w->k;
    double rate = k->m->shared ? k->m->attention : 0.19 * k->m->attention;
    if (!k->m->shared && k->e == 4) rate = k->m->flops_f32 / 4; /* kernels without tensor cores */
    return (backward ? 3.1 : 1) * flops / rate;
}

/* -- a row ----------------------------------------------------------------------------------------- */

static double forward_of(const mt_costs *k, const mt_work_item *w)
{
    switch (w->kind) {
    case MT_WORK_PRODUCT: return product(k, k->micro_rows, w->n, w->k) / k->micro_rows;
    case MT_WORK_ATTENTION: return attention(k, w, false);
    case MT_WORK_DELTA: return delta_rule(k, w, false);
    case MT_WORK_MOVED: return moved(k, w->n);
    }
    return 0;
}

/* The resulting cost of backward. */
static double backward_of(const mt_costs *k, const mt_work_item *w)
{
    switch (w->kind) {
    case MT_WORK_PRODUCT: return product_backward(k, k->micro_rows, w->n, w->k) / k->micro_rows;
    case MT_WORK_ATTENTION: return attention(k, w, true);
    case MT_WORK_DELTA: return delta_rule(k, w, true);
    case MT_WORK_MOVED: break;
    }
    return 0;
}

/* -- experts --------------------------------------------------------------------------------------- */

/* Slowdown of expert products against the full rate, by the kernels of docs/notebook (gate and up of five models, from 1,280 to
 * 8,192 rows an expert): forward, the gradient of rows, whose sums may be short, and that of weights, which reads and writes all
 * of its fp32 sums. */
#define GROUPED_FORWARD  1.08
#define GROUPED_DX       1.10
#define GROUPED_DX_SHORT 250
#define GROUPED_DW       1.19
#define GROUPED_DW_SUMS  1.20

/* Seconds of the product of one expert's rows; a CPU, and fp32, use the same kernels as other products. */
static double grouped(const mt_costs *k, double rows, double n, double depth, bool backward)
{
    const double flops = 2 * rows * n * depth / k->m->flops;
    if (k->m->shared || k->e == 4) return backward ? product_backward(k, rows, n, depth) : product(k, rows, n, depth);
    if (!backward) return GROUPED_FORWARD * flops;
    return (GROUPED_DX + GROUPED_DX_SHORT / n + GROUPED_DW) * flops + GROUPED_DW_SUMS * 8 * n * depth / k->m->device_bandwidth;
}

static double grouped_weights(const mt_costs *k, double rows, double n, double depth)
{
    if (k->m->shared || k->e == 4) return product_weights(k, rows, n, depth);
    return GROUPED_DW * 2 * rows * n * depth / k->m->flops + GROUPED_DW_SUMS * 8 * n * depth / k->m->device_bandwidth;
}

/* Rows of one expert: each multiplies its own rows of a pass, about T / E of all. */
static double expert_rows(const mt_costs *k, const mt_work_item *w) { return fmax(1, k->pass_rows * w->T / w->E); }

/* Seconds a row, in the T experts it passes. */
static double expert_product(const mt_costs *k, const mt_work_item *w, bool backward)
{
    const double rows = expert_rows(k, w), n = w->n / w->T;
    return w->T * grouped(k, rows, n, w->k, backward) / rows;
}

static void cost_experts(const mt_costs *k, const mt_work_item *w, mt_kind_cost *out)
{
    const bool is_product = w->kind == MT_WORK_PRODUCT;
    const double forward = is_product ? expert_product(k, w, false) : moved(k, w->n);
    out->experts[w->when != MT_IN_FORWARD] += forward;
    if (!is_product || w->when != MT_IN_FORWARD) return;
    out->experts[1] += expert_product(k, w, true);
    out->expert_weights += w->T * grouped_weights(k, expert_rows(k, w), w->n / w->T, w->k) / expert_rows(k, w);
}

/* A sum of fp32 read, and the residual; a norm. */
static void cost_around_experts(const mt_costs *k, const mt_layer_kind *kind, mt_kind_cost *out)
{
    if (!kind->spec.E) return;
    out->close = moved(k, (2 + 4 / k->e) * (double)k->c->D);
    out->reopen = moved(k, MT_NORM_NUMBERS * (double)k->c->D);
    out->unit[0] = kind->unit_forward_kernels * k->m->launch;
    out->unit[1] = kind->unit_backward_kernels * k->m->launch;
}

/* A layer with experts always keeps the result of its mixer's last product. */
static bool always_kept(const mt_layer_kind *kind, int i)
{
    const mt_work_item *w = &kind->work[i];
    return kind->spec.E && i < kind->first_ffn_work && w->kind == MT_WORK_PRODUCT && w->keep == MT_KEEP_ALL;
}

static void cost_kind(const mt_costs *k, const mt_layer_kind *kind, mt_kind_cost *out)
{
    *out = (mt_kind_cost){ .micro_forward = kind->forward_kernels * k->m->launch,
                           .micro_backward = kind->backward_kernels * k->m->launch };
    cost_around_experts(k, kind, out);
    for (int i = 0; i < kind->n_work; i++) {
        const mt_work_item *w = &kind->work[i];
        if (w->T) {
            cost_experts(k, w, out);
            continue;
        }
        const double seconds = forward_of(k, w);
        if (w->when == MT_IN_FORWARD) {
            out->forward += seconds;
            out->backward += backward_of(k, w);
            if (w->kind == MT_WORK_PRODUCT) out->weights += product_weights(k, k->micro_rows, w->n, w->k) / k->micro_rows;
        }
        if (w->when == MT_IN_BACKWARD) {
            out->backward += seconds;
            continue;
        }
        for (mt_keep keep = 0; keep < MT_KEEPS && !always_kept(kind, i); keep++)
            for (int finish = 0; finish < 2; finish++)
                if (w->keep == MT_KEEPS ? finish : keep < w->keep) out->redo[keep][finish] += seconds;
    }
}

static void cost_ends(mt_costs *k)
{
    const mt_config *c = k->c;
    double rows = k->head_rows, D = (double)c->D, V = (double)c->V, f32 = 4 / k->e;
    k->head_forward = k->trained * (product(k, rows, V, D) / rows + moved(k, 0.7 * V * f32 + 5 * D));
    const bool trains = k->model->units[k->model->head].layout->trains[k->model->tied ? MT_W_EMBED : MT_W_HEAD];
    const double not_made = (trains ? 0 : product_weights(k, rows, V, D)) +
                            (mt_model_needs_head_dx(k->model) ? 0 : product(k, rows, D, V)); /* of its two gradients */
    k->head_backward =
        k->trained * ((product_backward(k, rows, V, D) - not_made) / rows + moved(k, 1.1 * V * f32 + 14 * D)) + moved(k, 2 * D);
    k->embed_forward = moved(k, 2 * D);
    k->embed_backward = moved(k, 12 * D);
}

void mt_costs_fill(mt_costs *k, const mt_plan *p, const mt_machine *m)
{
    const mt_job *j = &p->job;
    *k = (mt_costs){ .model = p->model,
                     .c = p->model->config,
                     .m = m,
                     .e = (double)mt_dtype_bytes(p->arithmetic.compute),
                     .use = mt_plan_attention(p),
                     .trained = 1,
                     .kinds = k->kinds };
    const int64_t share = mt_max_i64(1, j->step_tokens / mt_arithmetic_parts(&p->arithmetic)); /* rows of one */
    k->micro_rows = (double)mt_min_i64(p->arithmetic.micro_tokens, share);
    k->pass_rows = fmin((double)mt_pass_rows_at_most(&p->arithmetic), (double)share);
    k->head_rows = fmin((double)p->arithmetic.head_rows, k->micro_rows);
    k->document = fmax(1, fmin((double)j->longest, ceil((double)j->step_tokens / (double)j->step_docs)));
    for (int i = 0; i < p->model->n_kinds; i++) cost_kind(k, &p->model->kinds[i], &k->kinds[i]);
    cost_ends(k);
}

/* -- of many rows ---------------------------------------------------------------------------------- */

static const mt_kind_cost *cost_of(const mt_costs *k, int layer) { return &k->kinds[k->model->kind_of_layer[layer]]; }

double mt_cost_forward(const mt_costs *k, int layer, double rows, double micros)
{
    const mt_kind_cost *c = cost_of(k, layer);
    return rows * c->forward + micros * c->micro_forward;
}

double mt_cost_backward(const mt_costs *k, int layer, double rows, double micros)
{
    const mt_kind_cost *c = cost_of(k, layer);
    const double frozen = 1 - k->model->units[mt_layer_first_unit(k->model, layer)].layout->trained_part;
    return rows * (c->backward - frozen * c->weights) + micros * c->micro_backward;
}

double mt_cost_redo(const mt_costs *k, int layer, mt_keep keep, bool finish, double rows, double micros)
{
    const mt_kind_cost *c = cost_of(k, layer);
    bool parts = keep < MT_KEEP_ALL || finish; /* more than norms and activations is recomputed */
    return rows * c->redo[keep][finish] + (parts ? micros * c->micro_forward : 0);
}

double mt_cost_experts(const mt_costs *k, int unit, bool backward, double rows, double passes)
{
    const mt_unit *u = &k->model->units[unit];
    const mt_kind_cost *c = cost_of(k, u->layer);
    double share = (double)u->n_experts / (double)mt_layer_kind_of(k->model, u->layer)->spec.E;
    const double frozen = backward ? 1 - u->layout->trained_part : 0;
    return rows * share * (c->experts[backward] - frozen * c->expert_weights) + passes * c->unit[backward];
}

double mt_cost_close(const mt_costs *k, int layer, double rows) { return rows * cost_of(k, layer)->close; }
double mt_cost_reopen(const mt_costs *k, int layer, double rows) { return rows * cost_of(k, layer)->reopen; }

double mt_cost_clear(const mt_costs *k) { return 4 / k->m->device_bandwidth; }
/* Round and square: measured as 8 bytes of memory traffic, and the norm's last stage as long as 6. */
double mt_cost_finish_grad(const mt_costs *k) { return 14 / k->m->device_bandwidth; }
double mt_cost_fold(const mt_costs *k) { return 16 / k->m->device_bandwidth; }
double mt_cost_update_device(const mt_costs *k, mt_optimizer_kind optimizer)
{
    return mt_optimizer_of(optimizer)->device_bytes / k->m->device_bandwidth;
}
