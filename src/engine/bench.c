#include "engine/bench.h"

#include "base/dtype.h"
#include "base/rng.h"
#include "plan/flops.h"

#include <math.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- tokens ---------------------------------------------------------------------------------------- */

static int64_t draw_length(const mt_bench_options *o, uint64_t i)
{
    if (o->lognormal_mean <= 0) return o->seq_len;
    const double sigma = 0.8; /* chat data: a few long ones, many short ones */
    double mu = log(o->lognormal_mean) - sigma * sigma / 2;
    double n = exp(mu + sigma * (double)mt_rng_normal(o->seed, 2, i));
    return n < 2 ? 2 : n > (double)o->seq_len ? o->seq_len : (int64_t)n;
}

static mt_rc draw_batch(mt_batch *b, const mt_bench_options *o, int64_t vocab, uint64_t step, mt_err *err)
{
    int32_t *ids = mt_calloc((size_t)(2 * o->seq_len), sizeof *ids), *labels = ids + o->seq_len;
    mt_rc rc = ids ? MT_OK : mt_fail(err, MT_ENOMEM, "no host memory for a row of tokens");
    mt_batch_clear(b);
    for (uint64_t d = 0; !rc && b->n_tokens < o->tokens_per_step; d++) {
        uint64_t key = step << 32 | d;
        int64_t n = mt_min_i64(draw_length(o, key), o->tokens_per_step - b->n_tokens);
        for (int64_t i = 0; i < n; i++) {
            ids[i] = (int32_t)mt_rng_below(o->seed + key, 3, (uint64_t)i, (uint64_t)vocab);
            /* the answer is the document's tail */
            labels[i] = (double)i >= (1 - o->trained) * (double)n ? ids[i] : MT_IGNORE;
        }
        rc = mt_batch_add(b, ids, labels, n, vocab, err);
    }
    mt_free(ids);
    return rc;
}

/* -- weights --------------------------------------------------------------------------------------- */

/* Random bf16 numbers of a usual size; the same run of them again and again, because a billion normals take minutes. */
static mt_rc fill_weights(mt_engine *e, const mt_model *m, double deviation, uint64_t seed, mt_err *err)
{
    enum { RUN = 1 << 20 };
    uint16_t *run = mt_calloc(RUN, sizeof *run), one = mt_f32_to_bf16(1.0f);
    if (!run) return mt_fail(err, MT_ENOMEM, "no host memory for random numbers");
    for (int i = 0; i < RUN; i++) run[i] = mt_f32_to_bf16((float)deviation * mt_rng_normal(seed, 4, (uint64_t)i));
    mt_rc rc = MT_OK;
    for (int u = 0; !rc && u < m->n_units; u++)
        for (int k = 0; !rc && k < m->units[u].layout->n_weights; k++) {
            const mt_weight *w = &m->units[u].layout->weights[k];
            bool norm = w->n_dims == 1 && !(w->role == MT_B_Q || w->role == MT_B_K || w->role == MT_B_V);
            for (int64_t at = 0; !rc && at < w->n; at += norm ? 1 : RUN)
                rc = mt_engine_write(e, u, MT_STATE_HI, w->offset + at, norm ? 1 : mt_min_i64(RUN, w->n - at), norm ? &one : run, err);
        }
    mt_free(run);
    return rc;
}

/* -- the run --------------------------------------------------------------------------------------- */

static mt_rc plan_for(mt_plan **out, const mt_model *m, const mt_machine *machine, const mt_bench_options *o, const mt_batch *largest, mt_err *err)
{
    mt_job job = { .train = true, .clip = o->clip, .step_tokens = largest->n_tokens, .step_docs = largest->n_docs, .longest = largest->longest };
    mt_arithmetic a = { .compute = o->compute, .grad = o->compute, .mlp_rows = 16384, .head_rows = 1024 };
    if (!o->micro_tokens) return mt_plan_auto(out, m, &job, &a, machine, err);
    a.micro_tokens = mt_max_i64(largest->longest, mt_min_i64(o->micro_tokens, largest->n_tokens));
    return mt_plan_search(out, m, &job, &a, machine, err);
}

static mt_rc run_steps(mt_engine *e, const mt_model *m, const mt_bench_options *o, mt_batch *batch, mt_bench_result *out, mt_err *err)
{
    const mt_hyper h = { .lr = 1e-5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .max_grad_norm = 1.0 };
    double start = 0;
    for (int i = 0; i < o->warmup + o->steps; i++) {
        mt_step_result r;
        if (i == o->warmup) start = now();
        MT_TRY(mt_engine_step(e, batch, &h, &r, err));
        if (!isfinite(r.loss)) return mt_fail(err, MT_ENUMERIC, "the loss of random weights is not finite: a bug, please report it");
        if (i >= o->warmup) out->wait_update_seconds += 1e-9 * (double)r.wait_update_ns / o->steps;
        out->loss = r.loss;
    }
    out->seconds = (now() - start) / o->steps;
    out->tokens = (double)batch->n_tokens;
    out->trained = (double)batch->n_trained;
    out->flops = mt_flops_step(m->config, batch->doc_start, batch->n_docs);
    return mt_engine_settle(e, err);
}

mt_rc mt_bench_run(mt_device *dev, const mt_model *m, const mt_machine *machine, const mt_bench_options *o, mt_bench_result *out, mt_err *err)
{
    mt_batch batch = { 0 };
    mt_plan *plan = NULL;
    mt_engine *e = NULL;
    *out = (mt_bench_result){ 0 };
    mt_rc rc = draw_batch(&batch, o, m->config->V, 0, err);
    if (!rc) rc = plan_for(&plan, m, machine, o, &batch, err);
    if (!rc) rc = mt_engine_create(&e, dev, plan, NULL, err);
    if (!rc) rc = fill_weights(e, m, 0.02, o->seed, err);
    if (!rc) rc = run_steps(e, m, o, &batch, out, err);
    if (plan) {
        out->device_bytes = plan->device_bytes;
        out->host_bytes = plan->host_bytes;
        out->predicted_seconds = plan->predicted_seconds;
        mt_plan_describe(plan, out->placement, sizeof out->placement);
    }
    dev->api->info(dev, &out->device);
    mt_engine_free(e);
    mt_plan_free(plan);
    mt_batch_free(&batch);
    return rc;
}
