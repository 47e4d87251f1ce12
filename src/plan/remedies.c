/* remedies.c - changes that make a run fit, cheapest first.
 *
 *     limits of the settings -> batch size -> settings that cost little -> smaller moments -> shorter samples -> hardware
 *
 * Each is a changed question that is asked again: it becomes a remedy only if a plan for it fits. */
#include "base/mem.h"
#include "plan/advise.h"

#include <stdio.h>

/* The list of remedies in the making. */
typedef struct changes {
    mt_question q;  /* as asked */
    mt_remedy *out; /* [MT_REMEDIES] borrowed */
    int n;
} changes;

/* Tokens a second of a batch that fits. */
static mt_rc plan_speed(const mt_question *q, int64_t batch, double *tokens_s, mt_err *err)
{
    const mt_job job = mt_question_job(q, batch);
    mt_plan *plan;
    MT_TRY(mt_plan_auto(&plan, (mt_plan_inputs){ q->model, &job, &q->form, &q->machine }, err));
    *tokens_s = (double)job.step_tokens / plan->predicted_seconds;
    mt_plan_free(plan);
    return MT_OK;
}

/* Samples per step after the change. */
static mt_rc batch_of(const mt_question *q, int64_t *out, mt_err *err)
{
    mt_batch_advice b;
    *out = q->batch;
    if (!q->auto_batch) return MT_OK;
    MT_TRY(mt_advise_batch(&b, q, err));
    *out = mt_advise_auto(&b, mt_max_i64(q->accumulation, 1));
    return MT_OK;
}

/* Records a changed question as a remedy if it fits. */
static mt_rc try_change(changes *c, const mt_question *changed, const char *change, const char *cost, mt_err *err)
{
    if (c->n == MT_REMEDIES || !mt_advise_fits(changed, changed->batch)) return MT_OK;
    mt_remedy *r = &c->out[c->n++];
    snprintf(r->change, sizeof r->change, "%s", change);
    snprintf(r->cost, sizeof r->cost, "%s", cost);
    MT_TRY(batch_of(changed, &r->batch, err));
    return plan_speed(changed, r->batch, &r->tokens_s, err);
}

/* Fewer samples per step: the recommended number, in whole batches if gradient accumulation joins several. */
static mt_rc try_batch(changes *c, const mt_batch_advice *b, mt_err *err)
{
    mt_question q = c->q;
    int64_t parts = mt_max_i64(q.accumulation, 1);
    char change[96];
    if (!b || b->recommended >= q.batch || !b->recommended) return MT_OK;
    q.auto_batch = false;
    if (b->recommended < parts) {
        q.batch = b->recommended;
        snprintf(change, sizeof change, "batch_size: 1, gradient_accumulation_steps: %lld", (long long)q.batch);
    } else {
        q.batch = b->recommended / parts * parts;
        snprintf(change, sizeof change, "batch_size: %lld", (long long)(q.batch / parts));
    }
    return try_change(c, &q, change, "fewer samples per step: noisier gradients", err);
}

/* Host bytes per trained parameter, without masters. */
static size_t bytes_each(const mt_question *q)
{
    const size_t array = mt_moments_bytes(q->form.moments, MT_MOMENT_BLOCK) / MT_MOMENT_BLOCK;
    return (size_t)mt_optimizer_of(q->form.optimizer)->n_arrays * array + (q->clip ? mt_dtype_bytes(q->form.grad) : 0);
}

typedef struct cost {
    char s[152];
} cost;

/* Cost of turning clipping off and of smaller moments, for those that were changed; "" for none. */
static cost cost_of_less(const mt_question *was, const mt_question *now)
{
    static const char *const forms[][2] = { [MT_MOMENTS_F32] = { "", "" },
                                            [MT_MOMENTS_BF16] = { "m is rounded to 8 bits of mantissa, stochastically",
                                                                  "m and v are rounded to 8 bits of mantissa, stochastically" },
                                            [MT_MOMENTS_8BIT] = { "m keeps 3 bits of mantissa, rounded stochastically",
                                                                  "m and v keep 3 bits of mantissa, rounded stochastically" } };
    cost c = { "" };
    bool clip = was->clip && !now->clip, moments = now->form.moments != was->form.moments;
    if (clip || moments)
        snprintf(c.s, sizeof c.s, "%s%s%s: saves %zu bytes a parameter",
                 clip ? "no clipping, and a non-finite step stops the run" : "", clip && moments ? "; " : "",
                 moments ? forms[now->form.moments][mt_optimizer_of(now->form.optimizer)->n_arrays - 1] : "",
                 bytes_each(was) - bytes_each(now));
    return c;
}

static void set_device(mt_question *q, size_t bytes)
{
    q->machine.device_bytes = bytes;
    q->form.attention.workspace = mt_attention_workspace(&q->form.attention, bytes);
}

/* Without the settings' memory limits: on the host, on the device, or both. */
static mt_question lifted(const mt_question *asked, bool host, bool device)
{
    mt_question q = *asked;
    if (host) q.machine.host_bytes = q.host_there;
    if (device) set_device(&q, q.device_there);
    return q;
}

static const char *limits_text(bool host, bool device)
{
    if (host && device) return "host_memory: auto, device_memory: auto";
    if (host) return "host_memory: auto";
    return device ? "device_memory: auto" : "";
}

static mt_rc try_limits(changes *c, mt_err *err)
{
    const bool host = c->q.host_there, device = c->q.device_there;
    const int before = c->n;
    for (int i = 1; i <= 3 && c->n == before; i++) { /* one of the two, then both if one is not enough */
        bool with_host = i & 1, with_device = i & 2;
        if (with_host > host || with_device > device) continue;
        mt_question q = lifted(&c->q, with_host, with_device);
        MT_TRY(try_change(c, &q, limits_text(with_host, with_device), "the run may use all free memory; no other cost", err));
    }
    return MT_OK;
}

static mt_rc try_settings(changes *c, mt_err *err)
{
    mt_question q = c->q;
    if (q.form.grad == MT_DTYPE_F32) {
        q.form.grad = MT_DTYPE_BF16;
        MT_TRY(try_change(c, &q, "grad_dtype: bfloat16",
                          "finished gradients are rounded to 8 bits of mantissa, which is the default", err));
        q = c->q;
    }
    if (q.machine.home_host) {
        q.machine.home_host = false;
        MT_TRY(try_change(c, &q, "home: auto", "part of the state has its home on the GPU; no other cost", err));
        q = c->q;
    }
    if (q.machine.limits.exact || q.machine.limits.offload == MT_MUST_NOT) {
        q.machine.limits.exact = false;
        q.machine.limits.offload = MT_MAY;
        MT_TRY(try_change(c, &q, "strict_checkpointing: false, offload_inputs: auto",
                          "the plan chooses what to keep; no other cost", err));
        q = c->q;
    }
    if (q.clip) {
        q.clip = false;
        MT_TRY(try_change(c, &q, "max_grad_norm: 0", cost_of_less(&c->q, &q).s, err));
    }
    return MT_OK;
}

/* Adam's moments in a smaller form; also without clipping, if nothing else was found. */
static mt_rc try_moments(changes *c, mt_err *err)
{
    char change[96];
    for (mt_moments form = c->q.form.moments + 1; form < MT_MOMENTS_FORMS; form++) {
        mt_question q = c->q;
        q.form.moments = form;
        snprintf(change, sizeof change, "adam_state: %s", mt_moments_name(form));
        MT_TRY(try_change(c, &q, change, cost_of_less(&c->q, &q).s, err));
        q.clip = false;
        snprintf(change, sizeof change, "max_grad_norm: 0, adam_state: %s", mt_moments_name(form));
        if (c->q.clip && !c->n) MT_TRY(try_change(c, &q, change, cost_of_less(&c->q, &q).s, err));
    }
    return MT_OK;
}

/* The same number of shorter samples, shortened until they fit. */
static mt_rc try_shorter(changes *c, mt_err *err)
{
    mt_question q = c->q;
    char change[96];
    for (q.seq_len /= 2; q.seq_len >= 128; q.seq_len /= 2) {
        if (q.seq_len > q.model->config->max_positions || !mt_advise_fits(&q, q.batch)) continue; /* train refuses longer ones */
        snprintf(change, sizeof change, "max_seq_len: %lld", (long long)q.seq_len);
        return try_change(c, &q, change, "longer samples are cut", err);
    }
    return MT_OK;
}

#define GIB ((size_t)1 << 30)

/* Whole gibibytes, and a little more than needed: a run does not use all memory that is free. */
static size_t enough(size_t bytes) { return (bytes + bytes / 50 + GIB - 1) / GIB * GIB; }

/* A machine that it fits, no smaller than the present one; false: there is none. */
static mt_rc enlarge(mt_question *q, bool *found, mt_err *err)
{
    mt_need need;
    MT_TRY(mt_advise_need(&need, q, err));
    if (need.device > q->machine.device_bytes) { /* the driver's share is part of a card's memory */
        set_device(q, enough(need.device + q->machine.base_device) - q->machine.base_device);
        MT_TRY(mt_advise_need(&need, q, err));
    }
    *found = need.host < SIZE_MAX;
    if (*found && need.host > q->machine.host_bytes) q->machine.host_bytes = enough(need.host);
    return MT_OK;
}

/* That machine instead of the present one, with `settings` changed ("" for none). */
static mt_rc try_machine(changes *c, const mt_question *q, const mt_machine *there, const char *settings, mt_err *err)
{
    char change[sizeof c->out->change], price[sizeof c->out->cost], gpu[40] = "", ram[40] = "";
    const cost less = cost_of_less(&c->q, q);
    bool card = q->machine.device_bytes > there->device_bytes, more = q->machine.host_bytes > there->host_bytes;
    if (card)
        snprintf(gpu, sizeof gpu, "a GPU with %zu GiB%s", (q->machine.device_bytes + q->machine.base_device) / GIB,
                 more ? " and " : " free");
    if (more) snprintf(ram, sizeof ram, "%zu GiB of RAM free", q->machine.host_bytes / GIB);
    /* Adds nothing if the settings' limits were the only obstacle. */
    const char *buy = card ? "another card" : "";
    if (more) buy = "more memory, or another machine";
    snprintf(change, sizeof change, "%s%s%s%s", settings, *settings && *buy ? ", " : "", gpu, ram);
    snprintf(price, sizeof price, "%s%s%s", buy, *buy && *less.s ? "; " : "", less.s);
    return try_change(c, q, change, price, err);
}

/* What to buy for the question as it is.  Before that, if no setting alone is enough but settings reduce the need, what to buy
 * together with the smallest ones.  In both cases the memory limits of the settings are lifted first. */
static mt_rc try_memories(changes *c, mt_err *err)
{
    const bool host = c->q.host_there, device = c->q.device_there;
    const mt_question there = lifted(&c->q, host, device);
    mt_question plain = there, least = there;
    const char *limits = limits_text(host, device);
    bool found;
    char settings[96];
    if ((host || device) && mt_advise_fits(&there, there.batch)) return MT_OK; /* already listed */
    least.clip = false;
    least.form.moments = MT_MOMENTS_8BIT;
    MT_TRY(enlarge(&plain, &found, err));
    if (!found) return MT_OK;
    MT_TRY(enlarge(&least, &found, err));
    const bool less =
        least.machine.device_bytes < plain.machine.device_bytes || least.machine.host_bytes < plain.machine.host_bytes;
    const bool unclip = c->q.clip, shrink = c->q.form.moments != MT_MOMENTS_8BIT;
    snprintf(settings, sizeof settings, "%s%s%s%s%s", limits, *limits && less ? ", " : "", unclip ? "max_grad_norm: 0" : "",
             unclip && shrink ? ", " : "", shrink ? "adam_state: 8bit" : "");
    if (!c->n && found && less) MT_TRY(try_machine(c, &least, &there.machine, settings, err));
    return try_machine(c, &plain, &there.machine, limits, err);
}

mt_rc mt_advise_remedies(mt_remedy out[MT_REMEDIES], int *n, const mt_question *q, const mt_batch_advice *batch, mt_err *err)
{
    changes c = { .q = *q, .out = out };
    MT_TRY(try_limits(&c, err));
    MT_TRY(try_batch(&c, batch, err));
    MT_TRY(try_settings(&c, err));
    MT_TRY(try_moments(&c, err));
    MT_TRY(try_shorter(&c, err));
    MT_TRY(try_memories(&c, err));
    *n = c.n;
    return MT_OK;
}
