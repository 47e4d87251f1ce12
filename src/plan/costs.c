/* costs.c - what kernels cost.  The constants are measured (docs/benchmarks.md, ops at the shapes of a layer); a device's rates
 * scale them. */
#include "plan/costs.h"

#include "base/mem.h"
#include "plan/flops.h"

#include <math.h>

/* Kernels a layer queues for a micro-batch, forward and backward. */
enum { FORWARD_KERNELS = 14, BACKWARD_KERNELS = 30 };

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

/* dx and dw of y = x w', rows at a time.  dw reads and writes its fp32 sums, most of it behind the products of other tiles. */
static double product_backward(const mt_costs *c, double rows, double n, double k)
{
    return product(c, rows, k, n) + product(c, n, k, rows) + 0.3 * 8 * n * k / c->m->device_bandwidth;
}

/* On a CPU the loop over them takes the time, not their bytes. */
static double moved(const mt_costs *c, double numbers) { return numbers * (c->m->shared ? 4 : c->e) / c->m->device_bandwidth; }

/* -- attention ------------------------------------------------------------------------------------- */

/* How the kernels of docs/benchmarks.md compare with our own forward over long documents (mt_machine.attention), forward and
 * backward: rates with heads of 128 in a run of seconds, where power holds them to 0.75 to 0.85 of what they reach alone; the
 * share of it that narrower, odd and wider heads reach (narrow ones wait for exponentials, not for power); and how often a row of
 * all heads crosses memory. */
typedef struct kernel {
    double rate, narrow, odd, wide, rows;
} kernel;
static const kernel kernels[MT_ATTENTION_WAYS][2] = {
    [MT_ATTENTION_FLASH] = { { 1.00, 0.65, 0.65, 0.58, 6 }, { 0.78, 0.77, 0.72, 0.43, 10 } },
    [MT_ATTENTION_CUDNN] = { { 1.45, 0.74, 0.84, 1.00, 2 }, { 0.95, 0.70, 0.74, 0.68, 10 } },
    [MT_ATTENTION_CUDNN_FAST] = { { 1.45, 0.74, 0.84, 1.00, 2 }, { 1.30, 0.80, 0.75, 0.67, 20 } },
};
enum { HALF_TILE = 64 }; /* keys a row sees in vain: what tiles reach beyond the diagonal, and beyond a window */

static double head_share(const kernel *k, int64_t Dh)
{
    return Dh <= 64 ? k->narrow : Dh < 128 ? k->odd : Dh == 128 ? 1 : k->wide;
}

/* The kernel that will serve a layer with this window. */
static mt_attention_way way_of(const mt_costs *k, int64_t window, bool backward)
{
    const mt_config *c = k->c;
    int64_t D = c->H * c->Dh, ld = (c->H + 2 * c->K) * c->Dh, rows = (int64_t)k->document;
    if (k->m->shared) return MT_ATTENTION_PLAIN; /* a CPU has no other */
    return mt_attention_choose(&(mt_attention){ .t = k->e == 4 ? MT_DTYPE_F32 : MT_DTYPE_BF16, .N = (int64_t)k->micro_rows,
                                                .H = c->H, .K = c->K, .Dh = c->Dh, .ldq = ld, .ldk = ld, .ldv = ld, .ldo = D,
                                                .ld_d = ld, .n_docs = (int64_t)(k->micro_rows / k->document) + 1, .longest = rows,
                                                .scale = 1, .window = window, .softcap = (float)c->attention_softcap,
                                                .alibi = (float)c->alibi, .use = k->use }, backward);
}

/* Seconds a row of attention in a layer with this window. */
static double attention(const mt_costs *k, int64_t window, bool backward)
{
    const mt_config *c = k->c;
    double width = (double)(c->H * c->Dh), keys = mt_flops_keys((int64_t)k->document, window) / k->document,
           each = (backward ? 10 : 4) * width;
    mt_attention_way way = way_of(k, window, backward);
    const kernel *at = &kernels[way][backward];
    /* On a GPU, of kernels without tensor cores. */
    if (way == MT_ATTENTION_PLAIN) return each * keys / (k->m->shared ? k->m->attention : k->m->flops_f32 / 4);
    keys += window && (double)window < k->document ? 2 * HALF_TILE : HALF_TILE;
    return each * keys / (k->m->attention * at->rate * head_share(at, c->Dh)) +
           moved(k, at->rows * width + 2 * (double)(c->K * c->Dh));
}

/* Layers differ in their windows at most, of which models have one or two. */
static double attention_of(mt_costs *k, int layer, bool backward)
{
    int64_t window = k->c->window[layer];
    struct attention_cost *at = &k->attention[window != 0];
    if (!at->known || at->window != window)
        *at = (struct attention_cost){ true, window, { attention(k, window, false), attention(k, window, true) } };
    return at->seconds[backward];
}

/* -- a row ----------------------------------------------------------------------------------------- */

/* Elementwise counts are numbers read and written a row, as measured: a norm forward 2.6 times its width, backward 6. */
static void cost_layer(mt_costs *k)
{
    const mt_config *c = k->c;
    double R = k->micro_rows, D = (double)c->D, F = (double)c->F, gu = (double)mt_config_gu(c), o = (double)(c->H * c->Dh),
           qk = (double)((c->H + c->K) * c->Dh);
    double qkv = qk + (double)(c->K * c->Dh), posts = mt_config_post_norms(c) ? 3 * D : 0;
    double head_norms = c->qk_norm ? 3 * qk : 0;
    k->attend = product(k, R, qkv, D) / R + moved(k, MT_NORM_NUMBERS * D + 2 * qk + head_norms);
    k->mix = product(k, R, D, o) / R + moved(k, posts);
    k->gate_up = product(k, R, gu, D) / R + moved(k, MT_NORM_NUMBERS * D);
    k->down = product(k, R, D, F) / R + moved(k, 1.1 * (gu + F) + posts);
    double products = product_backward(k, R, qkv, D) + product_backward(k, R, D, o) + product_backward(k, R, gu, D) +
                      product_backward(k, R, D, F);
    /* Both norms back, the activation back, rotations, biases and the sums of o * do. */
    double numbers = 12 * D + 3 * gu - F + 2 * qk + qkv + 2 * o + 3 * posts + 4 * head_norms;
    k->backward = products / R + moved(k, numbers);
    k->norms = moved(k, 2 * MT_NORM_NUMBERS * D);
    k->act = moved(k, F);
}

static void cost_ends(mt_costs *k)
{
    const mt_config *c = k->c;
    double rows = k->head_rows, D = (double)c->D, V = (double)c->V, f32 = 4 / k->e;
    k->head_forward = k->trained * (product(k, rows, V, D) / rows + moved(k, 0.7 * V * f32 + 5 * D));
    k->head_backward = k->trained * (product_backward(k, rows, V, D) / rows + moved(k, 1.1 * V * f32 + 14 * D)) + moved(k, 2 * D);
    k->embed_forward = moved(k, 2 * D);
    k->embed_backward = moved(k, 12 * D);
}

mt_costs mt_costs_of(const mt_plan *p, const mt_machine *m)
{
    const mt_job *j = &p->job;
    mt_costs k = { .c = p->model->config, .m = m, .e = (double)mt_dtype_bytes(p->arithmetic.compute), .use = mt_plan_attention(p),
                   .trained = 1 };
    k.micro_rows = (double)(p->arithmetic.micro_tokens < j->step_tokens ? p->arithmetic.micro_tokens : j->step_tokens);
    k.head_rows = fmin((double)p->arithmetic.head_rows, k.micro_rows);
    k.document = fmax(1, fmin((double)j->longest, ceil((double)j->step_tokens / (double)j->step_docs)));
    k.micro_forward = FORWARD_KERNELS * m->launch;
    k.micro_backward = BACKWARD_KERNELS * m->launch;
    cost_layer(&k);
    cost_ends(&k);
    return k;
}

/* -- of many rows ---------------------------------------------------------------------------------- */

double mt_cost_forward(mt_costs *k, int layer, double rows, double micros)
{
    return rows * (k->attend + attention_of(k, layer, false) + k->mix + k->gate_up + k->down) + micros * k->micro_forward;
}

double mt_cost_backward(mt_costs *k, int layer, double rows, double micros)
{
    return rows * (k->backward + attention_of(k, layer, true)) + micros * k->micro_backward;
}

double mt_cost_redo(mt_costs *k, int layer, mt_keep keep, bool finish, double rows, double micros)
{
    double row = finish ? k->down : 0, cheap = (keep < MT_KEEP_NORMS ? k->norms : 0) + (keep < MT_KEEP_ACT ? k->act : 0);
    if (keep < MT_KEEP_ALL) row += k->mix + k->gate_up;
    if (keep < MT_KEEP_ATTENTION) row += k->attend + attention_of(k, layer, false);
    return rows * (cheap + row) + (row > 0 ? micros * k->micro_forward : 0);
}

/* Cleared, rounded, squared: bytes as measured, 12 of memory's and as long again in the norm's last stage. */
double mt_cost_finish_grad(const mt_costs *k) { return 18 / k->m->device_bandwidth; }
double mt_cost_adam_device(const mt_costs *k) { return 26 / k->m->device_bandwidth; }
