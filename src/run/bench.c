#include "run/bench.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/rng.h"
#include "model/flops.h"
#include "model/walk.h"
#include "run/rate.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- tokens ---------------------------------------------------------------------------------------- */

static int64_t draw_length(const mt_bench_options *o, uint64_t i)
{
    if (o->lognormal_mean <= 0) return o->seq_len;
    const double sigma = 0.8; /* chat data: a few long ones, many short ones */
    double mu = log(o->lognormal_mean) - sigma * sigma / 2;
    double n = exp(mu + sigma * (double)mt_rng_normal(o->seed, 2, i));
    if (n < 2) return 2;
    return n > (double)o->seq_len ? o->seq_len : (int64_t)n;
}

static mt_rc draw_batch(mt_batch *b, const mt_bench_options *o, int64_t tokens, int64_t vocab, mt_err *err)
{
    int32_t *ids = mt_calloc((size_t)(2 * o->seq_len), sizeof *ids), *labels = ids + o->seq_len;
    mt_rc rc = ids ? MT_OK : mt_no_memory(err, "a row of tokens");
    mt_batch_clear(b);
    for (uint64_t d = 0; !rc && b->n_tokens < tokens; d++) {
        int64_t n = mt_min_i64(draw_length(o, d), tokens - b->n_tokens);
        for (int64_t i = 0; i < n; i++) {
            ids[i] = (int32_t)mt_rng_below(o->seed + d, 3, (uint64_t)i, (uint64_t)vocab);
            /* the answer is the document's tail */
            labels[i] = (double)i >= (1 - o->trained) * (double)n ? ids[i] : MT_IGNORE;
        }
        rc = mt_batch_add(b, ids, labels, n, vocab, err);
    }
    mt_free(ids);
    return rc;
}

/* -- weights --------------------------------------------------------------------------------------- */

/* Random bf16 numbers of a typical size; the same block is repeated, because a billion normals take minutes. */
static mt_rc fill_weights(mt_engine *e, const mt_plan *plan, double deviation, uint64_t seed, mt_err *err)
{
    enum { RUN = 1 << 20 };
    uint16_t *run = mt_calloc(RUN, sizeof *run), one = mt_f32_to_bf16(1.0f);
    if (!run) return mt_no_memory(err, "random numbers");
    for (int i = 0; i < RUN; i++) run[i] = mt_f32_to_bf16((float)deviation * mt_rng_normal(seed, 4, (uint64_t)i));
    mt_rc rc = MT_OK;
    for (mt_walk at = mt_walk_model(plan->model); !rc && mt_walk_next(&at);) {
        if (mt_plan_alias(plan, at.unit) != at.unit) continue;
        bool norm = at.w->n_dims == 1 && !(at.w->role == MT_B_Q || at.w->role == MT_B_K || at.w->role == MT_B_V);
        const mt_state_range all = { at.unit, MT_STATE_HI, at.w->offset, at.w->n };
        for (int64_t i = 0, most = norm ? 1 : RUN; !rc && i < all.n; i += most)
            rc = mt_engine_write(e, mt_state_piece(all, i, most), norm ? &one : run, err);
    }
    mt_free(run);
    return rc;
}

/* -- the run --------------------------------------------------------------------------------------- */

/* Each share gets its own documents, as far as there are enough. */
static int64_t shares_of(const mt_bench_options *o, const mt_devices *d) { return o->shares ? o->shares : d->n; }

static mt_rc plan_for(mt_plan **out, const mt_devices *d, const mt_model *m, const mt_machine *machine, const mt_bench_options *o,
                      const mt_batch *largest, mt_err *err)
{
    mt_job job = { .train = true,
                   .clip = o->clip,
                   .step_tokens = largest->n_tokens,
                   .step_docs = largest->n_docs,
                   .longest = largest->longest,
                   .lanes = d->n,
                   .alias_layers = o->alias_layers };
    mt_arithmetic a = { .compute = o->compute,
                        .grad = o->compute,
                        .optimizer = o->optimizer,
                        .moments = o->moments,
                        .head_rows = o->head_rows ? o->head_rows : 1024,
                        .shares = shares_of(o, d),
                        .attention = mt_attention_use_of(d->first, o->deterministic, false,
                                                         machine->device_bytes * (size_t)d->per_device) };
    if (d->n > 1 && o->alias_layers)
        return mt_fail(err, MT_EINVAL, "layers that share memory (--alias-layers) run on one device only");
    if (d->n > a.shares)
        return mt_fail(err, MT_EINVAL, "%d devices and %lld share%s; each device needs a share", d->n, (long long)a.shares,
                       a.shares == 1 ? "" : "s");
    if (!o->micro_tokens && !o->head_rows) return mt_plan_auto(out, (mt_plan_inputs){ m, &job, &a, machine }, err);
    a.micro_tokens = mt_max_i64(largest->longest, mt_min_i64(o->micro_tokens ? o->micro_tokens : 16384, largest->n_tokens));
    a.mlp_rows = a.micro_tokens;
    a.moe_tokens = mt_plan_moe_tokens((mt_plan_inputs){ m, &job, &a, machine });
    return mt_plan_search(out, (mt_plan_inputs){ m, &job, &a, machine }, err);
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static mt_rc one_step(mt_engine *e, const mt_bench_options *o, const mt_batch *batch, mt_step_result *r, mt_err *err)
{
    /* Layers that share memory overwrite each other's updates at any time, so weights must not change. */
    const mt_hyper h = {
        .lr = o->alias_layers ? 0 : 1e-5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .max_grad_norm = 1.0
    };
    MT_TRY(mt_engine_step(e, batch, &h, r, err));
    return isfinite(r->loss)
               ? MT_OK
               : mt_fail(err, MT_ENUMERIC, "the loss of random weights is not finite; this is a bug, please report it");
}

/* The batches of the steps.  Warm-up steps may be smaller: the clock starts at the norm of a warm-up step, however long it
 * took. */
typedef struct batches {
    mt_batch timed, smaller;
    const mt_batch *warmup; /* one of the two */
} batches;

static mt_rc draw_batches(batches *b, const mt_bench_options *o, int64_t vocab, mt_err *err)
{
    bool smaller = o->warmup_tokens > 0 && o->warmup_tokens < o->tokens_per_step;
    b->warmup = smaller ? &b->smaller : &b->timed;
    MT_TRY(draw_batch(&b->timed, o, o->tokens_per_step, vocab, err));
    return smaller ? draw_batch(&b->smaller, o, o->warmup_tokens, vocab, err) : MT_OK;
}

static void add_waits(mt_bench_result *out, const mt_step_result *r, int steps)
{
    out->wait_update_seconds += 1e-9 * (double)r->wait_update_ns / steps;
    out->wait_lanes_seconds += 1e-9 * (double)r->wait_lanes_ns / steps;
    for (int i = 0; r->lane_seconds && i < out->n_lanes; i++) out->lanes[i].seconds += r->lane_seconds[i] / steps;
}

/* A step returns when its norm is known, so its time runs from norm to norm. */
static mt_rc time_steps(mt_engine *e, const mt_bench_options *o, const batches *b, int64_t *ns, mt_bench_result *out, mt_err *err)
{
    int64_t before = mt_now_ns();
    for (int i = 0; i < o->warmup + o->steps; i++) {
        mt_step_result r;
        bool timed = i >= o->warmup;
        MT_TRY(one_step(e, o, timed ? &b->timed : b->warmup, &r, err));
        int64_t now = mt_now_ns();
        if (timed) ns[i - o->warmup] = now - before;
        if (timed && i - o->warmup < MT_BENCH_EACH) out->each[i - o->warmup] = 1e-9 * (double)(now - before);
        if (timed) add_waits(out, &r, o->steps);
        out->loss = r.loss;
        before = now;
    }
    return MT_OK;
}

static mt_rc run_steps(mt_engine *e, const mt_bench_options *o, const batches *b, mt_bench_result *out, mt_err *err)
{
    int64_t *ns = mt_calloc((size_t)o->steps + 1, sizeof *ns), all = 0;
    if (!ns) return mt_no_memory(err, "step times");
    mt_rc rc = time_steps(e, o, b, ns, out, err);
    qsort(ns, (size_t)o->steps, sizeof *ns, by_size);
    for (int i = 0; i < o->steps; i++) all += ns[i];
    if (o->steps) {
        out->seconds = 1e-9 * (double)all / o->steps;
        out->median = 1e-9 * (double)ns[o->steps / 2];
        out->slowest = 1e-9 * (double)ns[o->steps - 1];
    }
    mt_free(ns);
    return rc ? rc : mt_engine_settle(e, err);
}

/* Two more steps under a trace, which covers the time between their norms. */
static mt_rc trace_steps(mt_engine *e, mt_device *dev, const mt_model *m, const mt_bench_options *o, const batches *b,
                         mt_bench_result *out, mt_err *err)
{
    enum { SPANS = 1 << 16 };
    mt_trace *trace;
    mt_step_result r;
    MT_TRY(mt_trace_create(&trace, dev, SPANS, err));
    mt_engine_trace(e, trace);
    mt_rc rc = one_step(e, o, o->steps ? &b->timed : b->warmup, &r, err);
    if (!rc) rc = one_step(e, o, &b->timed, &r, err);
    if (!rc) rc = mt_engine_settle(e, err);
    mt_engine_trace(e, NULL);
    if (!rc) rc = mt_trace_collect(trace, err);
    if (!rc) mt_spent_of(&out->spent, trace, m);
    if (!rc && o->trace) rc = mt_trace_write(trace, o->trace, err);
    mt_trace_free(trace);
    if (rc || o->steps) return rc;
    out->seconds = out->median = out->slowest = out->spent.seconds;
    add_waits(out, &r, 1);
    out->loss = r.loss;
    return MT_OK;
}

/* -- the process's memory --------------------------------------------------------------------------- */

static void forget_peak(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (write(fd, "5", 1) != 1) { /* then the peak includes the whole process */
    }
    close(fd);
}

static size_t resident_peak(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %llu", &kib) == 1) break;
    if (f) fclose(f);
    return (size_t)kib << 10;
}

/* A table of learned positions ends; computed positions continue. */
static mt_rc check_positions(const mt_config *c, int64_t seq_len, mt_err *err)
{
    if (!c->learned_positions || seq_len <= c->max_positions) return MT_OK;
    return mt_fail(err, MT_EINVAL, "--seq-len %lld: the model has %lld positions; give at most that", (long long)seq_len,
                   (long long)c->max_positions);
}

mt_rc mt_bench_run(const mt_devices *devices, const mt_model *m, const mt_machine *machine, const mt_bench_options *o,
                   mt_bench_result *out, mt_err *err)
{
    batches b = { 0 };
    mt_plan *plan = NULL;
    mt_engine *e = NULL;
    mt_device *dev = devices->first;
    const mt_engine_options more = { .more = devices->more, .numbers = devices->numbers };
    MT_TRY(check_positions(m->config, o->seq_len, err));
    *out = (mt_bench_result){ .product_rate = o->product_rate, .n_lanes = devices->n > 1 ? devices->n : 0 };
    for (int i = 0; i < out->n_lanes; i++) out->lanes[i].number = devices->numbers[i];
    forget_peak();
    mt_rc rc = out->product_rate > 0 ? MT_OK : mt_product_rate(dev, o->compute, &out->product_rate, err);
    if (!rc) rc = draw_batches(&b, o, m->config->V, err);
    if (!rc) rc = plan_for(&plan, devices, m, machine, o, &b.timed, err);
    if (!rc) rc = mt_engine_create(&e, dev, plan, &more, err);
    if (!rc) rc = fill_weights(e, plan, 0.02, o->seed, err);
    if (!rc) rc = run_steps(e, o, &b, out, err);
    if (!rc && (o->table || o->trace)) rc = trace_steps(e, dev, m, o, &b, out, err);
    out->tokens = (double)b.timed.n_tokens;
    out->trained = (double)b.timed.n_trained;
    if (b.timed.n_docs) out->flops = mt_flops_step(m, b.timed.doc_start, b.timed.n_docs, b.timed.n_trained);
    if (plan) {
        out->device_bytes = plan->device_bytes;
        out->host_bytes = plan->host_bytes;
        out->predicted_seconds = plan->predicted_seconds;
        mt_plan_describe(plan, out->placement, sizeof out->placement);
    }
    out->host_peak = resident_peak();
    dev->api->info(dev, &out->device);
    mt_engine_free(e);
    mt_plan_free(plan);
    mt_batch_free(&b.timed);
    mt_batch_free(&b.smaller);
    return rc;
}
