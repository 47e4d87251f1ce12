#include "cli/plan_scale.h"

#include "base/units.h"
#include "plan/network.h"

enum { MOST_DOUBLINGS = 6 };
#define NEARLY 1.05 /* times the compute alone: less waiting than that does not matter */

static mt_rc plan_for(mt_plan **out, const mt_plan_answer *a, int gpus, int64_t batch, mt_err *err)
{
    mt_job job = mt_question_job(&a->q, batch);
    job.lanes = gpus;
    return mt_plan_search(out, (mt_plan_inputs){ a->q.model, &job, &a->plan->arithmetic, &a->q.machine }, err);
}

static mt_rc add_row(mt_plan_scale *s, const mt_plan_answer *a, int gpus, mt_err *err)
{
    mt_scale_row *row = &s->rows[s->n++];
    mt_plan *plan;
    *row = (mt_scale_row){ .gpus = gpus, .bound = "does not fit" };
    mt_rc rc = plan_for(&plan, a, gpus, a->q.batch, err);
    if (rc) return rc == MT_ENOMEM ? MT_OK : rc;
    row->tokens_s = (double)plan->job.step_tokens / plan->predicted_seconds;
    row->bound = plan->times.bound;
    mt_plan_free(plan);
    return MT_OK;
}

/* The smallest batch, by doubling, whose step takes hardly longer than its compute. */
static mt_rc find_compute_bound(mt_plan_scale *s, const mt_plan_answer *a, int gpus, mt_err *err)
{
    int64_t batch = a->q.batch;
    for (int i = 0; i <= MOST_DOUBLINGS && !s->compute_batch; i++, batch *= 2) {
        mt_plan *plan;
        mt_rc rc = plan_for(&plan, a, gpus, batch, err);
        if (rc) return rc == MT_ENOMEM ? MT_OK : rc;
        if (plan->predicted_seconds <= NEARLY * plan->times.compute) s->compute_batch = batch;
        mt_plan_free(plan);
    }
    return MT_OK;
}

/* Each machine takes its part of the step, and a slice of the state. */
static mt_rc plan_machines(mt_plan **out, const mt_plan_answer *a, int machines, mt_err *err)
{
    mt_job job = mt_question_job(&a->q, a->q.batch);
    job.machines = machines;
    return mt_plan_search(out, (mt_plan_inputs){ a->q.model, &job, &a->plan->arithmetic, &a->q.machine }, err);
}

static mt_rc add_machines(mt_plan_scale *s, const mt_plan_answer *a, int machines, mt_err *err)
{
    mt_machines_row *row = &s->machines[s->n_machines++];
    mt_plan *plan;
    *row = (mt_machines_row){ .machines = machines, .bound = "does not fit" };
    mt_rc rc = plan_machines(&plan, a, machines, err);
    if (rc) return rc == MT_ENOMEM ? MT_OK : rc;
    const mt_network_job job = mt_network_job_of(plan, a->network);
    const mt_network_cost c = mt_network_step(plan->predicted_seconds, &job);
    row->waits = c.waits;
    row->tokens_s = (double)plan->job.step_tokens / c.step;
    row->bound = c.waits > 0.05 * c.step ? "the network" : plan->times.bound;
    mt_plan_free(plan);
    return MT_OK;
}

static mt_rc scale_machines(mt_plan_scale *s, const mt_plan_answer *a, mt_err *err)
{
    if (a->q.machines <= 1) return MT_OK;
    for (int n = 1; n < a->q.machines; n *= 2) MT_TRY(add_machines(s, a, n, err));
    if (a->q.machine.flops > 0 && !a->q.machine.shared)
        s->most_gpus = (int)mt_network_most_gpus((double)(a->q.batch * a->q.seq_len), a->network, a->q.machine.flops);
    return add_machines(s, a, a->q.machines, err);
}

static mt_rc scale_gpus(mt_plan_scale *s, const mt_plan_answer *a, mt_err *err)
{
    const int most = mt_plan_lanes(a->plan);
    if (most == 1) return MT_OK;
    for (int n = 1; n < most; n *= 2) MT_TRY(add_row(s, a, n, err));
    MT_TRY(add_row(s, a, most, err));
    return find_compute_bound(s, a, most, err);
}

mt_rc mt_plan_scale_find(mt_plan_scale *s, const mt_plan_answer *a, mt_err *err)
{
    *s = (mt_plan_scale){ 0 };
    if (!a->plan) return MT_OK;
    MT_TRY(scale_gpus(s, a, err));
    return scale_machines(s, a, err);
}

static void show_machines(mt_str *out, const mt_plan_scale *s, const mt_plan_answer *a)
{
    if (!s->n_machines) return;
    mt_str_printf(out, "\n  machines    tokens/s   times   bound by (%s/s between machines)\n",
                  mt_bytes_text((uint64_t)a->network).s);
    for (const mt_machines_row *r = s->machines; r < s->machines + s->n_machines; r++) {
        mt_str_printf(out, "  %8d  %10.0f", r->machines, r->tokens_s);
        if (s->machines[0].tokens_s > 0)
            mt_str_printf(out, "  %6.2f", r->tokens_s / s->machines[0].tokens_s);
        else
            mt_str_puts(out, "       -");
        mt_str_printf(out, "   %s", r->bound);
        if (r->waits > 0) mt_str_printf(out, "; a step waits %s for the network", mt_seconds_text(r->waits).s);
        mt_str_puts(out, "\n");
    }
    if (s->most_gpus)
        mt_str_printf(out, "  %lld tokens a step keep %d GPUs busy over this network; more would wait\n",
                      (long long)(a->q.batch * a->q.seq_len), s->most_gpus > 0 ? s->most_gpus : 1);
    mt_str_printf(out,
                  "  all of them give the same bits (training.bundles %d);\n  calculated, not measured on several machines\n",
                  s->machines[s->n_machines - 1].machines);
}

static void show_gpus(mt_str *out, const mt_plan_scale *s, const mt_question *q)
{
    if (!s->n) return;
    mt_str_puts(out, "\n  GPUs    tokens/s   times   bound by\n");
    for (int i = 0; i < s->n; i++) {
        const mt_scale_row *r = &s->rows[i];
        if (r->tokens_s > 0 && s->rows[0].tokens_s > 0)
            mt_str_printf(out, "  %4d  %10.0f  %6.2f   %s\n", r->gpus, r->tokens_s, r->tokens_s / s->rows[0].tokens_s, r->bound);
        else
            mt_str_printf(out, "  %4d  %10.0f       -   %s\n", r->gpus, r->tokens_s, r->bound);
    }
    const int gpus = s->rows[s->n - 1].gpus;
    if (s->compute_batch)
        mt_str_printf(out, "  %d GPUs are bound by compute from %lld samples of up to %lld tokens a step on\n", gpus,
                      (long long)s->compute_batch, (long long)q->seq_len);
    mt_str_printf(out, "  all of them give the same bits (training.shares %d);\n  calculated, not measured on several GPUs\n",
                  mt_arithmetic_shares(&q->form));
}

void mt_plan_scale_show(mt_str *out, const mt_plan_answer *a)
{
    show_gpus(out, &a->scale, &a->q);
    show_machines(out, &a->scale, a);
}

static void json_machines(mt_json_out *j, const mt_plan_scale *s)
{
    mt_json_list(j, "machines", MT_JSON_FLAT);
    for (const mt_machines_row *r = s->machines; r < s->machines + s->n_machines; r++) {
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_int(j, "machines", r->machines);
        mt_json_put_num(j, "tokens_per_second", "%.6g", r->tokens_s);
        mt_json_put_num(j, "network_wait_seconds", "%.6g", r->waits);
        mt_json_put_str(j, "bound", r->bound);
        mt_json_end(j);
    }
    mt_json_end(j);
    mt_json_put_int(j, "most_gpus", s->most_gpus);
}

void mt_plan_scale_json(mt_json_out *j, const mt_plan_scale *s)
{
    if (!s->n && !s->n_machines) return;
    mt_json_map(j, "scaling", MT_JSON_FLAT);
    mt_json_list(j, "gpus", MT_JSON_FLAT);
    for (const mt_scale_row *r = s->rows; r < s->rows + s->n; r++) {
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_int(j, "gpus", r->gpus);
        mt_json_put_num(j, "tokens_per_second", "%.6g", r->tokens_s);
        mt_json_put_str(j, "bound", r->bound);
        mt_json_end(j);
    }
    mt_json_end(j);
    mt_json_put_int(j, "compute_batch_size", s->compute_batch);
    if (s->n_machines) json_machines(j, s);
    mt_json_end(j);
}
