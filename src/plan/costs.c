/* costs.c - what kernels cost.  The constants are measured (docs/benchmarks.md, ops at the shapes of a layer); a device's rates scale
 * them. */
#include "plan/costs.h"

#include "base/mem.h"
#include "plan/flops.h"

#include <math.h>

/* Kernels a layer queues for a micro-batch, forward and backward. */
enum { FORWARD_KERNELS = 14, BACKWARD_KERNELS = 30 };

/* Seconds of a product whose result is rows x columns and whose sums are `depth` long.  A small result leaves part of the device idle in its
 * last wave, a short sum has hardly begun when it ends. */
static double product(const mt_costs *c, double rows, double columns, double depth)
{
    double peak = c->e == 4 ? c->m->flops_f32 : c->m->flops;
    return 2 * rows * columns * depth / peak * (1 + fmin(2.2e6 / (rows * columns), 0.15) + 150 / depth);
}

/* dx and dw of y = x w', rows at a time.  dw reads and writes its fp32 sums, most of it behind the products of other tiles. */
static double product_backward(const mt_costs *c, double rows, double n, double k)
{
    return product(c, rows, k, n) + product(c, n, k, rows) + 0.3 * 8 * n * k / c->m->device_bandwidth;
}

static double moved(const mt_costs *c, double numbers) { return numbers * c->e / c->m->device_bandwidth; }

/* -- attention ------------------------------------------------------------------------------------- */

/* Heads of other widths than 128 use the tensor cores less well. */
static double head_share(int64_t Dh) { return Dh <= 64 ? 0.65 : Dh < 128 ? 0.77 : Dh <= 128 ? 1.0 : 0.55; }

/* Seconds a row of layer's attention; ramp: rows at which half the rate is reached. */
static double attention(const mt_costs *k, int layer, double flops_per_key, double rate_share, double ramp)
{
    const mt_config *c = k->c;
    double n = k->document, w = (double)c->window[layer];
    double reach = w > 0 && w < n ? w : n, keys = mt_flops_keys((int64_t)n, c->window[layer]) / n;
    double rate = k->m->attention * rate_share * head_share(c->Dh) * reach / (reach + ramp);
    if (k->e == 4) rate = fmin(rate, k->m->flops_f32 / 4);
    return flops_per_key * (double)(c->H * c->Dh) * keys / rate;
}

/* Most layers are like the first, and plans are timed by the thousand. */
static double attention_forward(const mt_costs *k, int layer)
{
    return k->first_forward > 0 && k->c->window[layer] == k->c->window[0] ? k->first_forward : attention(k, layer, 4, 1.0, 1250);
}

static double attention_backward(const mt_costs *k, int layer)
{
    return k->first_backward > 0 && k->c->window[layer] == k->c->window[0] ? k->first_backward : attention(k, layer, 10, 0.86, 1200);
}

/* -- a row ----------------------------------------------------------------------------------------- */

/* Elementwise counts are numbers read and written a row, as measured: a norm forward 2.6 times its width, backward 10. */
static void cost_layer(mt_costs *k)
{
    const mt_config *c = k->c;
    double R = k->micro_rows, D = (double)c->D, F = (double)c->F, gu = (double)mt_config_gu(c), o = (double)(c->H * c->Dh), qk = (double)((c->H + c->K) * c->Dh);
    double qkv = qk + (double)(c->K * c->Dh), posts = mt_config_post_norms(c) ? 3 * D : 0;
    double head_norms = c->qk_norm ? 3 * qk : 0;
    k->attend = product(k, R, qkv, D) / R + moved(k, 2.6 * D + 2 * qk + head_norms);
    k->mix = product(k, R, D, o) / R + moved(k, posts);
    k->gate_up = product(k, R, gu, D) / R + moved(k, 2.6 * D);
    k->down = product(k, R, D, F) / R + moved(k, 1.1 * (gu + F) + posts);
    double products = product_backward(k, R, qkv, D) + product_backward(k, R, D, o) + product_backward(k, R, gu, D) + product_backward(k, R, D, F);
    /* Both norms again and back, the activation back, rotations, biases and the sums of o * do. */
    double numbers = 5.2 * D + 20 * D + 3 * gu + 2 * qk + qkv + 2 * o + 3 * posts + 4 * head_norms;
    k->backward = products / R + moved(k, numbers);
}

static void cost_ends(mt_costs *k)
{
    const mt_config *c = k->c;
    double rows = k->head_rows, D = (double)c->D, V = (double)c->V, f32 = 4 / k->e;
    k->head_forward = k->trained * (product(k, rows, V, D) / rows + moved(k, V * f32 + 5 * D));
    k->head_backward = k->trained * (product_backward(k, rows, V, D) / rows + moved(k, 1.6 * V * f32 + 14 * D)) + moved(k, 2 * D);
    k->embed_forward = moved(k, 2 * D);
    k->embed_backward = moved(k, 12 * D);
}

mt_costs mt_costs_of(const mt_plan *p, const mt_machine *m)
{
    const mt_job *j = &p->job;
    mt_costs k = { .c = p->model->config, .m = m, .e = (double)mt_dtype_bytes(p->arithmetic.compute), .trained = 1 };
    k.micro_rows = (double)(p->arithmetic.micro_tokens < j->step_tokens ? p->arithmetic.micro_tokens : j->step_tokens);
    k.head_rows = fmin((double)p->arithmetic.head_rows, k.micro_rows);
    k.document = fmax(1, fmin((double)j->longest, ceil((double)j->step_tokens / (double)j->step_docs)));
    k.micro_forward = FORWARD_KERNELS * m->launch;
    k.micro_backward = BACKWARD_KERNELS * m->launch;
    k.first_forward = attention_forward(&k, 0);
    k.first_backward = attention_backward(&k, 0);
    cost_layer(&k);
    cost_ends(&k);
    return k;
}

/* -- of many rows ---------------------------------------------------------------------------------- */

double mt_cost_forward(const mt_costs *k, int layer, double rows, double micros)
{
    return rows * (k->attend + attention_forward(k, layer) + k->mix + k->gate_up + k->down) + micros * k->micro_forward;
}

double mt_cost_backward(const mt_costs *k, int layer, double rows, double micros)
{
    return rows * (k->backward + attention_backward(k, layer)) + micros * k->micro_backward;
}

double mt_cost_redo(const mt_costs *k, int layer, mt_keep keep, bool finish, double rows, double micros)
{
    double row = finish ? k->down : 0;
    if (keep < MT_KEEP_ALL) row += k->mix + k->gate_up;
    if (keep < MT_KEEP_ATTENTION) row += k->attend + attention_forward(k, layer);
    return row > 0 ? rows * row + micros * k->micro_forward : 0;
}

/* Cleared, rounded, squared: bytes as measured, 12 of memory's and as long again in the norm's last stage. */
double mt_cost_finish_grad(const mt_costs *k) { return 18 / k->m->device_bandwidth; }
double mt_cost_adam_device(const mt_costs *k) { return 26 / k->m->device_bandwidth; }
