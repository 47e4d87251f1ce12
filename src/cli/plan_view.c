#include "cli/plan_scale.h"

#include "base/units.h"
#include "plan/flops.h"

#include <math.h>
#include <string.h>

/* -- uses of buffers ---------------------------------------------------------------------- */

enum { MASTERS, MOMENTS, GRADIENTS, SUMS, WEIGHTS, KEPT, WORK, RUNTIME };
static const char *const use_names[MT_PLAN_USES] = { "master weights (fp32 in two halves)",
                                                     "Adam's moments",
                                                     "gradients",
                                                     "gradient sums (fp32)",
                                                     "weights for compute",
                                                     "kept activations",
                                                     "workspace and input",
                                                     "runtime (base item)" };

static int use_of(mt_buffer_kind k)
{
    switch (k) {
    case MT_BUF_HI:
    case MT_BUF_LO:
    case MT_BUF_EXACT_HOME: return MASTERS;
    case MT_BUF_M:
    case MT_BUF_V: return MOMENTS;
    case MT_BUF_PARKED:
    case MT_BUF_SLAB:
    case MT_BUF_GRAD:
    case MT_BUF_GRAD_DEV: return GRADIENTS;
    case MT_BUF_ACC:
    case MT_BUF_ACC_TIED:
    case MT_BUF_ACC_HOST:
    case MT_BUF_LAND:
    case MT_BUF_LAND_TIED:
    case MT_BUF_TOTAL:
    case MT_BUF_SLICE:
    case MT_BUF_CHUNKS:
    case MT_BUF_CHUNKS_HOST: return SUMS;
    case MT_BUF_RESIDENT:
    case MT_BUF_RING:
    case MT_BUF_WEIGHT_SLICE:
    case MT_BUF_EXACT:
    case MT_BUF_HALVES: return WEIGHTS;
    case MT_BUF_KEEP:
    case MT_BUF_KEEP_SLOT:
    case MT_BUF_KEEP_HOST: return KEPT;
    default: return WORK;
    }
}

void mt_plan_uses(const mt_plan *p, mt_plan_use out[MT_PLAN_USES])
{
    for (int i = 0; i < MT_PLAN_USES; i++) out[i] = (mt_plan_use){ .name = use_names[i] };
    for (size_t i = 0; i < p->n_buffers; i++) {
        const mt_buffer *b = &p->buffers[i];
        const bool of_lane = b->place == MT_HOST && mt_buffer_of_lane(b->kind, b->place);
        out[use_of(b->kind)].bytes[b->place] += b->bytes * (of_lane ? (size_t)mt_plan_lanes(p) : 1);
    }
    out[RUNTIME].bytes[MT_HOST] = p->base_host;
    out[RUNTIME].bytes[MT_DEVICE] = p->base_device;
}

/* -- text ------------------------------------------------------------------------------------------ */

/* 12,345 */
static mt_short_text grouped(double x)
{
    mt_short_text digits, t = { "" };
    int n = snprintf(digits.s, sizeof digits.s, "%.0f", x), at = 0;
    for (int i = 0; i < n && at < (int)sizeof t.s - 2; i++) {
        if (i && (n - i) % 3 == 0) t.s[at++] = ',';
        t.s[at++] = digits.s[i];
    }
    t.s[at] = '\0';
    return t;
}

static void put_wrapped(mt_str *out, const char *text, int indent, const mt_terminal *term)
{
    mt_text_wrap(out, text, mt_terminal_columns(term), indent);
    mt_str_puts(out, "\n");
}

/* Text so far, wrapped; it is empty afterwards. */
static void put_line(mt_str *out, mt_str *text, int indent, const mt_terminal *term)
{
    put_wrapped(out, mt_str_ok(text) && text->s ? text->s : "", indent, term);
    mt_str_free(text);
}

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

static void put_verdict(mt_str *out, const mt_plan_answer *a, const mt_terminal *term)
{
    const mt_machine *m = &a->q.machine;
    const char *label = "FITS", *needs = a->batch.largest ? "a step of this size needs" : "it needs at least";
    mt_style style = MT_STYLE_GREEN;
    if (!a->plan)
        label = "DOES NOT FIT", style = MT_STYLE_RED;
    else if (*a->refused)
        label = "WOULD FIT", style = MT_STYLE_YELLOW;
    mt_str text = { 0 }, lines = { 0 };
    mt_str_puts(&text, label);
    if (*a->refused) mt_str_printf(&text, ", %s %s", a->plan ? "but" : "and", a->refused);
    mt_str_puts(&text, ": ");
    if (a->plan) {
        double s = a->plan->predicted_seconds;
        mt_str_printf(&text, "about %s tokens/s, %s a step", grouped((double)a->plan->job.step_tokens / s).s,
                      mt_seconds_text(s).s);
        if (a->n_steps)
            mt_str_printf(&text, "; %lld steps take %s if every sample has %lld tokens", (long long)a->n_steps,
                          mt_seconds_text(s * (double)a->n_steps).s, (long long)a->q.seq_len);
    } else if (a->need.device > m->device_bytes)
        mt_str_printf(&text, "%s %s of device memory and may use %s", needs, mt_bytes_text(a->need.device).s,
                      mt_bytes_text(m->device_bytes).s);
    else
        mt_str_printf(&text, "%s %s of host memory and may use %s", needs, mt_bytes_text(a->need.host).s,
                      mt_bytes_text(m->host_bytes).s);
    put_line(&lines, &text, 2, term);
    /* Replaces the same words, which were wrapped without color. */
    mt_style_put(out, label, style, term->color);
    mt_str_puts(out, mt_str_ok(&lines) ? lines.s + strlen(label) : "");
    mt_str_free(&lines);
}

/* Label, number, bar: in a narrow window the bar goes first, then the end of the label. */
static void put_row(mt_str *out, const char *label, double value, double all, const char *text, const mt_terminal *term)
{
    enum { LABEL = 36, NUMBER = 10, BAR = 24, BETWEEN = 2 + 1 + 2 };
    int columns = mt_terminal_columns(term), bar = columns - LABEL - NUMBER - BETWEEN, width = columns - NUMBER - 3;
    bar = (int)mt_clamp_i64(bar, 0, BAR);
    width = (int)mt_clamp_i64(width, 12, LABEL);
    mt_str_puts(out, "  ");
    mt_text_fit(out, label, width);
    mt_str_printf(out, "%*s %*s", (int)mt_max_i64(width - mt_text_columns(label), 0), "", NUMBER, text);
    if (bar) mt_str_puts(out, "  ");
    mt_blocks_put(out, all > 0 ? bar * fmin(value / all, 1) : 0, term->utf8);
    mt_str_puts(out, "\n");
}

static void put_memory(mt_str *out, const mt_plan_answer *a, mt_place place, const mt_terminal *term)
{
    static const char *const titles[2][2] = {
        { [MT_HOST] = "host memory (pinned, except the runtime)", [MT_DEVICE] = "device memory" },
        { [MT_HOST] = "memory of the state and the program", [MT_DEVICE] = "memory the CPU computes in" }
    };
    const mt_plan *p = a->plan;
    const mt_machine *m = &a->q.machine;
    mt_plan_use uses[MT_PLAN_USES];
    mt_str text = { 0 };
    size_t limit = place == MT_HOST ? m->host_bytes : m->device_bytes, all = p->device_bytes + p->host_bytes + p->base_host;
    size_t used = place == MT_HOST ? p->host_bytes + p->base_host : p->device_bytes;
    mt_plan_uses(p, uses);
    mt_str_puts(out, "\n");
    mt_str_printf(&text, "%s: %s", titles[m->shared][place], mt_bytes_text(used).s);
    if (limit < SIZE_MAX / 4 && !(m->shared && place == MT_HOST)) mt_str_printf(&text, " of %s", mt_bytes_text(limit).s);
    if (m->shared && place == MT_HOST)
        mt_str_printf(&text, "; both together %s of %s", mt_bytes_text(all).s, mt_bytes_text(limit).s);
    put_line(out, &text, 2, term);
    for (int i = 0; i < MT_PLAN_USES; i++) {
        if (!uses[i].bytes[place] || (i == RUNTIME && place == MT_DEVICE)) continue;
        put_row(out, uses[i].name, (double)uses[i].bytes[place], (double)used, mt_bytes_text(uses[i].bytes[place]).s, term);
    }
    if (place != MT_DEVICE || !p->base_device) return;
    mt_str_printf(&text, "  plus %s for the driver and its libraries", mt_bytes_text(p->base_device).s);
    put_line(out, &text, 4, term);
}

static void put_disk(mt_str *out, const mt_plan_answer *a, const mt_terminal *term)
{
    const mt_train_writes *w = &a->writes;
    mt_str text = { 0 };
    mt_str_puts(out, "\n");
    mt_str_puts(&text, "disk: ");
    if (w->n)
        mt_str_printf(&text, "a checkpoint takes %s, the finished model %s; at most %s at one time",
                      mt_bytes_text(w->checkpoint).s, mt_bytes_text(w->model).s, mt_bytes_text(w->bytes).s);
    else
        mt_str_printf(&text, "the finished model takes %s", mt_bytes_text(w->model).s);
    if (a->disk_free) mt_str_printf(&text, "; %s is free at the output", mt_bytes_text(a->disk_free).s);
    put_line(out, &text, 2, term);
}

static void put_times(mt_str *out, const mt_plan_answer *a, const mt_terminal *term)
{
    const mt_times *t = &a->plan->times;
    const struct {
        const char *name;
        double seconds;
    } parts[] = { { "compute", t->compute },
                  { "copies to the device", t->copy_in },
                  { "copies from the device", t->copy_out },
                  { "copies between devices", t->copy_peer },
                  { "Adam on the host", t->adam_host },
                  { "data (tokens prepared meanwhile)", t->data } };
    mt_str text = { 0 };
    mt_str_puts(out, "\n");
    mt_str_printf(&text, "time of a step: %s, bound by %s%s", mt_seconds_text(t->step).s, t->bound,
                  a->updates.wait > 0 && !strstr(t->bound, "Adam") ? " and by waits for updates" : "");
    put_line(out, &text, 2, term);
    for (size_t i = 0; i < MT_COUNT(parts); i++) {
        if (parts[i].seconds > 0)
            put_row(out, parts[i].name, parts[i].seconds, t->step, mt_seconds_text(parts[i].seconds).s, term);
    }
}

/* How to hide updates that the step waits for. */
static void put_updates(mt_str *out, const mt_plan_answer *a, const mt_terminal *term)
{
    const mt_update_advice *u = &a->updates;
    mt_str text = { 0 };
    if (u->wait <= 0) return;
    mt_str_puts(out, "\n");
    mt_str_printf(&text, "updates are the limit: compute waits %s per step for them", mt_seconds_text(u->wait).s);
    if (u->batch)
        mt_str_printf(&text, "; %s tokens a step hide them (%lld samples, %s tokens/s)",
                      grouped((double)(u->batch * a->q.seq_len)).s, (long long)u->batch, grouped(u->batch_tokens_s).s);
    else if (u->tried)
        mt_str_printf(&text, "; %s tokens a step do not hide them", grouped((double)(u->tried * a->q.seq_len)).s);
    if (u->form != a->q.form.moments)
        mt_str_printf(&text, "; adam_state: %s makes them shorter (%s tokens/s)", mt_moments_name(u->form),
                      grouped(u->form_tokens_s).s);
    put_line(out, &text, 2, term);
}

/* The settings file of a run with this plan: the given settings that the plan depends on, and always its two sizes. */
static bool decides_the_plan(const mt_settings *s, const char *key)
{
    static const char *const always[] = { "dataset.max_seq_len", "training.batch_size" };
    static const char *const where_given[] = {
        "model.dtype",         "model.device",     "model.attn_implementation", "training.gradient_accumulation_steps",
        "training.grad_dtype", "training.freeze",  "training.deterministic",    "training.max_grad_norm",
        "training.shares",     "training.bundles", "training.reduce_dtype"
    };
    for (size_t i = 0; i < MT_COUNT(always); i++)
        if (strcmp(key, always[i]) == 0) return true;
    bool named = strncmp(key, "memory.", 7) == 0;
    for (size_t i = 0; i < MT_COUNT(where_given); i++) named |= strcmp(key, where_given[i]) == 0;
    return named && mt_settings_given(s, key);
}

/* Device numbers of this machine mean nothing on another one. */
static bool decides_the_plan_elsewhere(const mt_settings *s, const char *key)
{
    return strcmp(key, "model.device") != 0 && decides_the_plan(s, key);
}

/* batch_size for this many samples per step; 0: gradient_accumulation_steps alone is larger. */
static int64_t of_step(const mt_plan_answer *a, int64_t samples)
{
    return samples / a->settings->training.gradient_accumulation_steps;
}

static void put_batch_sizes(mt_str *text, const mt_plan_answer *a, int64_t recommended)
{
    const mt_batch_advice *b = &a->batch;
    const int64_t parts = a->settings->training.gradient_accumulation_steps;
    mt_str_puts(text, "batch_size");
    if (parts > 1) mt_str_printf(text, " (%lld of them make a step)", (long long)parts);
    if (!of_step(a, b->largest)) {
        mt_str_printf(text, ": none fits; a step may have %lld sample%s", (long long)b->largest, plural(b->largest));
        return;
    }
    const int64_t safe = of_step(a, b->safe);
    mt_str_printf(text, ": recommended %lld (%s tokens/s), largest %s%lld", (long long)recommended, grouped(b->tokens_s).s,
                  b->largest * a->q.seq_len >= MT_MOST_TOKENS - a->q.seq_len ? "over " : "", (long long)of_step(a, b->largest));
    if (safe) mt_str_printf(text, "; up to %lld leave a fifth of the memory beside the state free", (long long)safe);
}

static void put_batch(mt_str *out, const mt_plan_answer *a, const mt_terminal *term)
{
    const int64_t recommended = mt_max_i64(of_step(a, a->batch.recommended), 1);
    mt_settings run = *a->settings; /* its strings stay the settings' */
    mt_str text = { 0 };
    if (!a->batch.recommended) return;
    mt_str_puts(out, "\n");
    put_batch_sizes(&text, a, recommended);
    put_line(out, &text, 2, term);
    /* Shows nothing to paste if train would refuse it, whatever its output directory. */
    if (!of_step(a, a->batch.largest) || (*a->refused && !a->disk_short)) return;
    run.training.batch_size = recommended; /* auto chooses the same */
    mt_str_puts(out, "\n");
    put_wrapped(out, "for FILE.yaml (docs/plan.md explains the words above):", 0, term);
    mt_settings_write_some(&run, a->on->here ? decides_the_plan : decides_the_plan_elsewhere, 2, out);
}

static void put_remedies(mt_str *out, const mt_plan_answer *a, const mt_terminal *term)
{
    mt_str_puts(out, "\n");
    put_wrapped(out, a->n_remedies ? "changes that make it fit, cheapest first:" : "no setting makes it fit; use a smaller model",
                2, term);
    for (int i = 0; i < a->n_remedies; i++) {
        const mt_remedy *r = &a->remedies[i];
        char text[320];
        int n = snprintf(text, sizeof text, "    %s", r->cost);
        n += snprintf(text + n, sizeof text - (size_t)n, "; %s tokens/s", grouped(r->tokens_s).s);
        if (a->q.auto_batch)
            snprintf(text + n, sizeof text - (size_t)n, " in steps of %lld sample%s", (long long)r->batch, plural(r->batch));
        mt_str change = { 0 };
        mt_str_printf(&change, "  %s", r->change);
        put_line(out, &change, 4, term);
        put_wrapped(out, text, 6, term);
    }
}

void mt_plan_step_text(mt_str *out, const mt_question *q)
{
    mt_str_printf(out, "a step of %lld sample%s of up to %lld tokens, %s, clipping %s, Adam's moments in %s%s",
                  (long long)q->batch, plural(q->batch), (long long)q->seq_len, mt_dtype_name(q->form.compute),
                  q->clip ? "on" : "off", mt_moments_name(q->form.moments),
                  q->machine.home_host ? ", home of all state in host memory" : "");
}

static void put_question(mt_str *out, const mt_plan_answer *a, const mt_terminal *term)
{
    const mt_question *q = &a->q;
    mt_str text = { 0 };
    mt_str_printf(&text, "%s (%s parameters) on %s; %s of host memory (%s), %d core%s%s", a->model,
                  mt_count_text((uint64_t)q->model->n_params).s, a->on->device, mt_bytes_text(q->machine.host_bytes).s,
                  a->on->ram_source, a->on->cores, plural(a->on->cores), a->on->cores_assumed ? " (assumed; see --cores)" : "");
    put_line(out, &text, 2, term);
    mt_plan_step_text(&text, q);
    put_line(out, &text, 2, term);
    for (int i = 0; i < a->n_notes; i++) {
        mt_str_printf(&text, "note: %s", a->notes[i]);
        put_line(out, &text, 2, term);
    }
}

void mt_plan_show(mt_str *out, const mt_plan_answer *a, const mt_terminal *term)
{
    char text[640];
    put_verdict(out, a, term);
    put_question(out, a, term);
    if (!a->plan) {
        put_remedies(out, a, term);
        put_batch(out, a, term);
        return;
    }
    int n = snprintf(text, sizeof text, "the plan: ");
    mt_plan_describe(a->plan, text + n, sizeof text - (size_t)n);
    mt_str_puts(out, "\n");
    put_wrapped(out, text, 2, term);
    put_memory(out, a, MT_DEVICE, term);
    put_memory(out, a, MT_HOST, term);
    put_disk(out, a, term);
    put_times(out, a, term);
    put_updates(out, a, term);
    mt_plan_scale_show(out, a);
    put_batch(out, a, term);
}

/* -- JSON (documented in docs/plan.md: keys are added, never changed) ------------------------------- */

void mt_plan_json_step(mt_json_out *j, const mt_question *q, int64_t accumulation)
{
    mt_json_put_int(j, "batch_size", q->batch);
    mt_json_put_int(j, "gradient_accumulation_steps", accumulation);
    mt_json_put_int(j, "max_seq_len", q->seq_len);
    mt_json_put_str(j, "dtype", mt_dtype_name(q->form.compute));
    mt_json_put_str(j, "grad_dtype", mt_dtype_name(q->form.grad));
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
    mt_json_put_num(j, "adam_host", "%.4g", m->adam_host[q->form.moments]);
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

static void put_buffers(mt_json_out *j, const mt_plan *p)
{
    mt_json_list(j, "buffers", MT_JSON_LINES);
    for (const mt_buffer *b = p->buffers; b < p->buffers + p->n_buffers; b++) {
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_str(j, "name", b->name);
        mt_json_put_str(j, "place", b->place == MT_HOST ? "host" : "device");
        mt_json_put_size(j, "bytes", b->bytes);
        mt_json_end(j);
    }
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
    static const char *const keys[MT_PLAN_USES] = { "masters", "moments", "gradients", "gradient_sums",
                                                    "weights", "kept",    "workspace", "runtime" };
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
    if (a->plan) put_buffers(j, a->plan); /* last, for there are many */
    mt_json_end(j);
}
