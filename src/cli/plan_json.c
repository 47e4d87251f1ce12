/* plan_json.c - a plan as JSON for scripts.  docs/plan-json.md documents it: keys are added, never changed. */
#include "cli/plan_scale.h"

void mt_plan_json_step(mt_json_out *j, const mt_question *q, int64_t accumulation)
{
    mt_json_put_int(j, "batch_size", q->batch);
    mt_json_put_int(j, "gradient_accumulation_steps", accumulation);
    mt_json_put_int(j, "max_seq_len", q->seq_len);
    mt_json_put_str(j, "dtype", mt_dtype_name(q->form.compute));
    mt_json_put_str(j, "grad_dtype", mt_dtype_name(q->form.grad));
    mt_json_put_str(j, "optimizer", mt_optimizer_of(q->form.optimizer)->name);
    mt_json_put_str(j, "adam_state", mt_moments_name(q->form.moments));
    mt_json_put_bool(j, "clipping", q->clip);
}

void mt_plan_json_machine(mt_json_out *j, const mt_question *q, const mt_machine_found *on)
{
    const mt_machine *m = &q->machine;
    /* A CPU's is the host's. */
    size_t device_bytes = m->shared && m->host_bytes < m->device_bytes ? m->host_bytes : m->device_bytes;
    mt_json_map(j, "machine", MT_JSON_FLAT);
    mt_json_put_str(j, "device", on->device);
    mt_json_put_size(j, "device_bytes", device_bytes);
    mt_json_put_size(j, "host_bytes", m->host_bytes);
    mt_json_put_num(j, "product_flops", "%.4g", m->flops);
    mt_json_put_num(j, "attention_flops", "%.4g", m->attention);
    mt_json_put_num(j, "device_bandwidth", "%.4g", m->device_bandwidth);
    mt_json_put_num(j, "copy_in", "%.4g", m->copy_in);
    mt_json_put_num(j, "copy_out", "%.4g", m->copy_out);
    mt_json_put_num(j, "host_bandwidth", "%.4g", m->host_bandwidth);
    if (m->peer > 0) mt_json_put_num(j, "peer", "%.4g", m->peer);
    mt_json_put_num(j, "adam_host", "%.4g", mt_machine_update_rate(m, mt_arithmetic_form(&q->form)));
    mt_json_put_int(j, "cores", on->cores);
    if (on->here) {
        mt_json_put_int(j, "numa_nodes", on->host.numa_nodes);
        mt_json_put_bool(j, "huge_pages", on->host.huge_pages);
        mt_json_put_size(j, "memlock_bytes", on->host.memlock);
    }
    mt_json_end(j);
}

void mt_plan_json_need(mt_json_out *j, const mt_need *need)
{
    mt_json_map(j, "needs", MT_JSON_FLAT);
    mt_json_put_size(j, "device_bytes", need->device);
    mt_json_put_size(j, "host_bytes", need->host);
    mt_json_end(j);
}

/* Counts of each decision; descriptions put them in words. */
static void put_schedule(mt_json_out *j, const mt_plan *p)
{
    static const char *const keeps[MT_KEEPS] = { "nothing",        "input",     "attention", "no_norms_or_activations",
                                                 "no_activations", "everything" };
    const mt_placement *q = &p->place;
    int resident = 0, homes = 0, staged = 0, kept[MT_KEEPS] = { 0 }, on_host = 0;
    for (int u = 0; u < p->model->n_units; u++) {
        resident += q->units[u].resident;
        homes += q->units[u].home == MT_DEVICE;
        staged += q->units[u].site == MT_SITE_STAGED;
    }
    for (int64_t l = 0; l < p->model->config->L; l++) {
        kept[q->layers[l].keep]++;
        on_host += q->layers[l].keep != MT_KEEP_NOTHING && q->layers[l].place == MT_HOST;
    }
    mt_json_map(j, "schedule", MT_JSON_FLAT);
    mt_json_put_int(j, "sweeps", (p->job.step_tokens + q->sweep_tokens - 1) / q->sweep_tokens);
    mt_json_put_int(j, "ring_slots", mt_placement_ring(q, p->model));
    mt_json_put_int(j, "gradient_slabs", q->n_slabs);
    mt_json_put_int(j, "units", p->model->n_units);
    mt_json_put_int(j, "units_stay", resident);
    mt_json_put_int(j, "units_live", homes);
    mt_json_put_int(j, "units_through", staged);
    mt_json_map(j, "layers_keep", MT_JSON_FLAT);
    for (int i = 0; i < MT_KEEPS; i++) mt_json_put_int(j, keeps[i], kept[i]);
    mt_json_end(j);
    mt_json_put_int(j, "layers_keep_on_host", on_host);
    mt_json_end(j);
}

static void put_seconds(mt_json_out *j, const mt_times *t)
{
    mt_json_map(j, "seconds", MT_JSON_FLAT);
    mt_json_put_num(j, "compute", "%.6g", t->compute);
    mt_json_put_num(j, "copy_in", "%.6g", t->copy_in);
    mt_json_put_num(j, "copy_out", "%.6g", t->copy_out);
    if (t->copy_peer > 0) mt_json_put_num(j, "copy_peer", "%.6g", t->copy_peer);
    mt_json_put_num(j, "adam_host", "%.6g", t->adam_host);
    mt_json_put_num(j, "data", "%.6g", t->data);
    mt_json_end(j);
}

static void put_uses(mt_json_out *j, const char *key, const mt_plan_use uses[MT_PLAN_USES], mt_place place)
{
    static const char *const keys[MT_PLAN_USES] = {
        [MT_USE_MASTERS] = "masters",    [MT_USE_MOMENTS] = "moments", [MT_USE_GRADIENTS] = "gradients",
        [MT_USE_SUMS] = "gradient_sums", [MT_USE_WEIGHTS] = "weights", [MT_USE_KEPT] = "kept",
        [MT_USE_WORK] = "workspace",     [MT_USE_RUNTIME] = "runtime",
    };
    mt_json_map(j, key, MT_JSON_FLAT);
    for (int i = 0; i < MT_PLAN_USES; i++) mt_json_put_int(j, keys[i], (int64_t)uses[i].bytes[place]);
    mt_json_end(j);
}

static void put_plan(mt_json_out *j, const mt_plan *p, int64_t n_steps)
{
    mt_plan_use uses[MT_PLAN_USES];
    char text[512];
    const mt_times *t = &p->times;
    mt_plan_uses(p, uses);
    mt_plan_describe(p, text, sizeof text);
    mt_json_map(j, "plan", MT_JSON_LINES);
    mt_json_put_str(j, "description", text);
    mt_json_put_num(j, "step_seconds", "%.6g", t->step);
    mt_json_put_num(j, "run_seconds", "%.6g", t->step * (double)n_steps);
    mt_json_put_num(j, "tokens_per_second", "%.6g", (double)p->job.step_tokens / t->step);
    mt_json_put_str(j, "bound", t->bound);
    put_seconds(j, t);
    mt_json_put_int(j, "micro_tokens", p->arithmetic.micro_tokens);
    mt_json_put_int(j, "sweep_tokens", p->place.sweep_tokens);
    mt_json_put_size(j, "device_bytes", p->device_bytes);
    mt_json_put_size(j, "host_bytes", p->host_bytes + p->base_host);
    put_schedule(j, p);
    put_uses(j, "host", uses, MT_HOST);
    put_uses(j, "device", uses, MT_DEVICE);
    mt_json_end(j);
}

static void put_json_updates(mt_json_out *j, const mt_plan_answer *a)
{
    const mt_update_advice *u = &a->updates;
    bool smaller = u->form != a->q.form.moments;
    mt_json_map(j, "updates", MT_JSON_FLAT);
    mt_json_put_num(j, "wait_seconds", "%.6g", u->wait);
    mt_json_put_int(j, "hidden_batch_size", u->batch);
    mt_json_put_num(j, "hidden_tokens_per_second", "%.6g", u->batch ? u->batch_tokens_s : 0);
    mt_json_put_str(j, "smaller_adam_state", smaller ? mt_moments_name(u->form) : "");
    mt_json_put_num(j, "smaller_tokens_per_second", "%.6g", smaller ? u->form_tokens_s : 0);
    mt_json_end(j);
}

static void put_advice(mt_json_out *j, const mt_plan_answer *a)
{
    mt_json_list(j, "notes", MT_JSON_FLAT);
    for (int i = 0; i < a->n_notes; i++) mt_json_put_str(j, NULL, a->notes[i]);
    mt_json_end(j);
    mt_json_map(j, "batch", MT_JSON_FLAT);
    mt_json_put_int(j, "safe", a->batch.safe);
    mt_json_put_int(j, "recommended", a->batch.recommended);
    mt_json_put_int(j, "largest", a->batch.largest);
    mt_json_put_num(j, "tokens_per_second", "%.6g", a->batch.tokens_s);
    mt_json_end(j);
    mt_json_list(j, "remedies", MT_JSON_FLAT);
    for (const mt_remedy *r = a->remedies; r < a->remedies + a->n_remedies; r++) {
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_str(j, "change", r->change);
        mt_json_put_str(j, "cost", r->cost);
        mt_json_put_num(j, "tokens_per_second", "%.6g", r->tokens_s);
        mt_json_put_int(j, "batch_size", r->batch);
        mt_json_end(j);
    }
    mt_json_end(j);
}

void mt_plan_json(mt_json_out *j, const mt_plan_answer *a)
{
    const mt_question *q = &a->q;
    mt_json_map(j, NULL, MT_JSON_LINES);
    mt_json_put_int(j, "version", 1);
    mt_json_put_str(j, "model", a->model);
    mt_json_put_int(j, "parameters", q->model->n_params);
    mt_json_put_bool(j, "trainable_family", !a->untrained);
    mt_json_put_bool(j, "fits", a->plan != NULL);
    mt_plan_json_step(j, q, a->settings->training.gradient_accumulation_steps);
    mt_plan_json_machine(j, q, a->on);
    mt_plan_json_need(j, &a->need);
    if (a->plan) put_plan(j, a->plan, a->n_steps);
    if (a->plan) put_json_updates(j, a);
    mt_plan_scale_json(j, &a->scale);
    mt_json_put_size(j, "checkpoint_bytes", a->writes.checkpoint);
    mt_json_put_size(j, "disk_bytes", a->writes.bytes);
    mt_json_put_size(j, "disk_free_bytes", a->disk_free);
    put_advice(j, a);
    if (a->plan) mt_plan_put_buffers(j, a->plan); /* last, for there are many */
    mt_json_end(j);
}
