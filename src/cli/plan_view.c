/* plan_view.c - a plan as text for people: the verdict first, then memory, disk and time, then advice. */
#include "base/units.h"
#include "cli/plan_scale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    if (!a->plan) {
        label = "DOES NOT FIT";
        style = MT_STYLE_RED;
    } else if (*a->refused) {
        label = "WOULD FIT";
        style = MT_STYLE_YELLOW;
    }
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
    } else if (a->need.device > m->device_bytes) {
        mt_str_printf(&text, "%s %s of device memory and may use %s", needs, mt_bytes_text(a->need.device).s,
                      mt_bytes_text(m->device_bytes).s);
    } else {
        mt_str_printf(&text, "%s %s of host memory and may use %s", needs, mt_bytes_text(a->need.host).s,
                      mt_bytes_text(m->host_bytes).s);
    }
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
        if (!uses[i].bytes[place] || (i == MT_USE_RUNTIME && place == MT_DEVICE)) continue;
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
    const mt_optimizer *optimizer = mt_optimizer_of(a->plan->arithmetic.optimizer);
    const struct {
        const char *name;
        double seconds;
    } parts[] = { { "compute", t->compute },
                  { "copies to the device", t->copy_in },
                  { "copies from the device", t->copy_out },
                  { "copies between devices", t->copy_peer },
                  { optimizer->host_title, t->adam_host },
                  { "data (tokens prepared meanwhile)", t->data } };
    mt_str text = { 0 };
    mt_str_puts(out, "\n");
    mt_str_printf(&text, "time of a step: %s, bound by %s%s", mt_seconds_text(t->step).s, t->bound,
                  a->updates.wait > 0 && strcmp(t->bound, optimizer->host_title) != 0 ? " and by waits for updates" : "");
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

/* True for the settings to print for a run with this plan: its two sizes, and given settings that the plan depends on. */
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
    mt_str_printf(out, "a step of %lld sample%s of up to %lld tokens, %s, clipping %s, %s in %s%s", (long long)q->batch,
                  plural(q->batch), (long long)q->seq_len, mt_dtype_name(q->form.compute), q->clip ? "on" : "off",
                  mt_optimizer_of(q->form.optimizer)->arrays_title, mt_moments_name(q->form.moments),
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
