/* costs.c - what kernels cost.  The constants are measured (docs/benchmarks.md, ops at the shapes of a layer); a device's rates scale
 * them. */
#include "plan/costs.h"

#include "base/mem.h"
#include "plan/flops.h"

#include <math.h>

/* Kernels a layer queues for a micro-batch, forward and backward. */
enum { FORWARD_KERNELS = 14, BACKWARD_KERNELS = 30 };

/* A product [rows, k] x [k, n]: how full it keeps the device.  Narrow ones waste tiles and wait for their ends. */
static double product(const mt_costs *c, double n, double k)
{
    double peak = c->e == 4 ? c->m->flops_f32 : c->m->flops;
    return 2 * n * k / peak * (1 + 64 / n + 64 / k + 256 / c->micro_rows);
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

static double attention_forward(const mt_costs *k, int layer) { return attention(k, layer, 4, 1.0, 800); }
static double attention_backward(const mt_costs *k, int layer) { return attention(k, layer, 10, 0.86, 650); }

/* -- a row ----------------------------------------------------------------------------------------- */

static void cost_layer(mt_costs *k)
{
    const mt_config *c = k->c;
    double D = (double)c->D, F = (double)c->F, gu = (double)mt_config_gu(c), o = (double)(c->H * c->Dh), qk = (double)((c->H + c->K) * c->Dh);
    double qkv = qk + (double)(c->K * c->Dh), posts = mt_config_post_norms(c) ? 3 * D : 0;
    double head_norms = c->qk_norm ? 2 * qk : 0;
    k->attend = product(k, qkv, D) + moved(k, 2 * D + 2 * qk + head_norms);
    k->mix = product(k, D, o) + moved(k, posts);
    k->gate_up = product(k, gu, D) + moved(k, 2 * D);
    k->down = product(k, D, F) + moved(k, gu + F + posts);
    double products = product(k, qkv, D) + product(k, D, o) + product(k, gu, D) + product(k, D, F);
    /* Both norms again and back, the activation again and back, rotations, biases and the sums of o * do. */
    double numbers = 4 * D + 14 * D + gu + F + 3 * gu + 2 * qk + qkv + 2 * o + 3 * posts + 3 * head_norms;
    k->backward = 2.12 * products + moved(k, numbers); /* dx and dw run at 0.9 and 0.97 of forward's rate, sums in fp32 */
}

static void cost_ends(mt_costs *k)
{
    const mt_config *c = k->c;
    double D = (double)c->D, V = (double)c->V, f32 = 4 / k->e;
    k->head_forward = k->trained * (product(k, V, D) + moved(k, 2 * V * f32 + 4 * D));
    /* Each chunk reads and writes the head's fp32 sums, which hides in part behind the product. */
    double sums = 0.7 * 8 * V * D / k->m->device_bandwidth / k->head_rows;
    k->head_backward = k->trained * sums + k->trained * (2.12 * product(k, V, D) + moved(k, V * (f32 + 2) + 12 * D)) + moved(k, 2 * D);
    k->embed_forward = moved(k, 2 * D);
    k->embed_backward = moved(k, 12 * D);
}

mt_costs mt_costs_of(const mt_plan *p, const mt_machine *m)
{
    const mt_job *j = &p->job;
    mt_costs k = { .c = p->model->config, .m = m, .e = (double)mt_dtype_bytes(p->arithmetic.compute), .trained = 1 };
    k.micro_rows = (double)(p->arithmetic.micro_tokens < j->step_tokens ? p->arithmetic.micro_tokens : j->step_tokens);
    k.head_rows = (double)mt_min_i64(p->arithmetic.head_rows, p->arithmetic.micro_tokens);
    k.document = fmax(1, fmin((double)j->longest, ceil((double)j->step_tokens / (double)j->step_docs)));
    k.micro_forward = FORWARD_KERNELS * m->launch;
    k.micro_backward = BACKWARD_KERNELS * m->launch;
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
