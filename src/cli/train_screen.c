#include "cli/train_screen.h"

#include "base/disk.h"
#include "base/file.h"
#include "base/units.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/plan_view.h"
#include "cli/plot.h"
#include "model/flops.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void mt_train_screen_init(mt_train_screen *s)
{
    *s = (mt_train_screen){ .eval_first = { .step = -1 }, .eval_last = { .step = -1 } };
    pthread_mutex_init(&s->lock, NULL);
}

void mt_train_screen_deinit(mt_train_screen *s)
{
    pthread_mutex_destroy(&s->lock);
    mt_free(s->losses.x);
    mt_free(s->losses.y);
    mt_str_free(&s->early);
    if (s->log) fclose(s->log);
}

/* -- lines ----------------------------------------------------------------------------------------- */

/* Every printed line with its time, for later reading.  Text after a line break is indented, so that it cannot imitate a line
 * with its own time. */
static void keep_line(mt_train_screen *screen, const char *line)
{
    char when[32];
    struct tm now;
    mt_str s = { 0 };
    time_t t = time(NULL);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&t, &now));
    mt_str_printf(&s, "%s  ", when);
    for (const char *p = line; *p; p++) mt_str_puts(&s, *p == '\n' ? "\n                     " : (char[]){ *p, '\0' });
    mt_str_putc(&s, '\n');
    if (mt_str_ok(&s) && screen->log)
        fputs(s.s, screen->log);
    else if (mt_str_ok(&s))
        mt_str_puts(&screen->early, s.s);
    mt_str_free(&s);
}

void mt_train_screen_keep(mt_train_screen *screen, const char *line)
{
    pthread_mutex_lock(&screen->lock);
    keep_line(screen, line);
    pthread_mutex_unlock(&screen->lock);
}

void mt_train_screen_log_to(mt_train_screen *screen, const char *dir)
{
    char *path = mt_path_join(dir, "log.txt");
    int fd = -1;
    mt_err why = { 0 };
    mt_rc rc = path ? mt_disk_open(&fd, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, &why) : MT_ENOMEM;
    FILE *log = rc ? NULL : fdopen(fd, "a");
    mt_free(path);
    if (!log) {
        if (rc) mt_warn("could not open log.txt: %s", why.msg);
        if (fd >= 0) close(fd);
        return;
    }
    setvbuf(log, NULL, _IOLBF, 0);
    pthread_mutex_lock(&screen->lock);
    if (screen->early.s) fputs(screen->early.s, log);
    mt_str_free(&screen->early);
    screen->log = log;
    pthread_mutex_unlock(&screen->lock);
}

/* On a terminal, lines are wrapped at words; elsewhere each item is one line of any length. */
static void put_line(mt_train_screen *screen, const char *text, int indent)
{
    mt_str s = { 0 };
    if (screen->term.live) mt_text_wrap(&s, text, mt_terminal_columns(&screen->term), indent);
    if (mt_str_ok(&s) && s.s) text = s.s;
    if (screen->bar_open)
        mt_progress_say(&screen->bar, text);
    else
        printf("%s\n", text);
    mt_str_free(&s);
}

static void say(mt_train_screen *screen, const char *line, bool shown)
{
    pthread_mutex_lock(&screen->lock);
    keep_line(screen, line);
    if (shown) put_line(screen, line, 2);
    fflush(stdout);
    pthread_mutex_unlock(&screen->lock);
}

void mt_train_screen_say(mt_train_screen *screen, const char *line) { say(screen, line, mt_cli_shows(MT_LOG_INFO)); }

void mt_train_screen_notice(void *user, mt_log_level level, const char *text)
{
    mt_str s = { 0 };
    if (level == MT_LOG_DEBUG && !mt_cli_shows(level)) return;
    mt_str_printf(&s, "%s%s", level == MT_LOG_WARN ? "warning: " : "", text);
    say(user, s.s ? s.s : text, mt_cli_shows(level));
    mt_str_free(&s);
}

static void put_row(mt_train_screen *screen, const char *label, const char *text)
{
    mt_str s = { 0 };
    mt_str_printf(&s, "  %-12s %s", label, text);
    if (mt_str_ok(&s)) put_line(screen, s.s, 15);
    mt_str_free(&s);
}

/* -- before the first step ------------------------------------------------------------------------- */

/* One device, or the number that train together. */
static void put_device(mt_train_screen *screen, const mt_train_info *i)
{
    const int lanes = mt_plan_lanes(i->plan), shares = mt_arithmetic_parts(&i->plan->arithmetic);
    char text[320];
    if (lanes > 1)
        snprintf(text, sizeof text, "%d x %s; %d shares per step", lanes, i->device.name, shares);
    else if (shares > 1)
        snprintf(text, sizeof text, "%s; %d shares per step", i->device.name, shares);
    else
        snprintf(text, sizeof text, "%s", i->device.name);
    put_row(screen, "device", text);
}

/* Number and hosts of the machines, and the network between them. */
static void put_machines(mt_train_screen *screen, const mt_train_info *i)
{
    mt_str s = { 0 };
    const mt_comm *c = i->comm;
    if (c->n_ranks == 1) return;
    mt_str_printf(&s, "%d:", c->n_ranks);
    for (int r = 0; r < c->n_ranks && r < 8; r++) mt_str_printf(&s, "%s %s", r ? "," : "", c->hosts[r]);
    mt_str_printf(&s, "%s; %s/s between them", c->n_ranks > 8 ? ", ..." : "", mt_bytes_text((uint64_t)i->network).s);
    if (i->network_wait > 0) mt_str_printf(&s, "; a step waits %s for it", mt_seconds_text(i->network_wait).s);
    if (mt_str_ok(&s)) put_row(screen, "machines", s.s);
    mt_str_free(&s);
}

/* What a reader of --verbose wants to know of the plan. */
static void put_details(mt_train_screen *screen, const mt_train_info *i)
{
    char text[512];
    mt_plan_describe(i->plan, text, sizeof text);
    put_row(screen, "placement", text);
    mt_plan_describe_kept(i->plan, &i->limits, text, sizeof text);
    put_row(screen, "kept", text);
    if (i->device_kind == MT_DEVICE_CUDA) {
        mt_attention_use_text(&i->plan->arithmetic.attention, text, sizeof text);
        put_row(screen, "attention", text);
    }
    put_row(screen, "FLOPs are", MT_FLOPS_FORMULA);
}

static void put_plan(mt_train_screen *screen, const mt_train_info *i)
{
    const mt_plan *p = i->plan;
    mt_str s = { 0 };
    int resident = 0;
    for (int u = 0; u < i->model->n_units; u++) resident += p->place.units[u].resident;
    mt_str_printf(&s, "%s; ", mt_dtype_name(p->arithmetic.compute));
    if (i->device_kind == MT_DEVICE_CPU)
        mt_str_printf(&s, "%s of memory", mt_bytes_text(i->planned_host).s);
    else if (resident == i->model->n_units)
        mt_str_puts(&s, "all weights stay on the device");
    else
        mt_str_printf(&s, "%d of %d units stream through the device", i->model->n_units - resident, i->model->n_units);
    if (i->device_kind != MT_DEVICE_CPU)
        mt_str_printf(&s, "; %s on it, %s on the host", mt_bytes_text(p->device_bytes).s, mt_bytes_text(i->planned_host).s);
    if (mt_str_ok(&s)) put_row(screen, "plan", s.s);
    mt_str_free(&s);
    if (mt_verbosity_now() == MT_VERBOSE) put_details(screen, i);
}

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

/* At most ten lines without --verbose, notes aside (tests/cli/test_train.c). */
void mt_train_screen_banner(mt_train_screen *screen, const mt_settings *s, const mt_train_info *i, const char *url)
{
    char text[512];
    screen->cpu = i->device_kind == MT_DEVICE_CPU;
    screen->resumed = *i->resumed_from;
    if (mt_verbosity_now() == MT_QUIET) return;
    printf("megatrain %s\n", MT_VERSION);
    snprintf(text, sizeof text, "%s (%s, %s parameters, %s trained)", s->model.name, i->config->family->name,
             mt_count_text((uint64_t)i->model->n_params).s,
             i->model->n_trained == i->model->n_params ? "all" : mt_count_text((uint64_t)i->model->n_trained).s);
    put_row(screen, "model", text);
    int n = snprintf(text, sizeof text, "%s sample%s, %lld step%s per epoch, up to %s tokens per step",
                     mt_count_text((uint64_t)i->data.n_samples).s, plural(i->data.n_samples), (long long)i->data.steps_per_epoch,
                     plural(i->data.steps_per_epoch), mt_count_text((uint64_t)i->data.max_tokens).s);
    if (i->data.n_eval_samples)
        snprintf(text + n, sizeof text - (size_t)n, "; %s sample%s to evaluate on",
                 mt_count_text((uint64_t)i->data.n_eval_samples).s, plural(i->data.n_eval_samples));
    put_row(screen, "data", text);
    put_device(screen, i);
    put_machines(screen, i);
    put_plan(screen, i);
    snprintf(text, sizeof text, "%lld step%s, %s schedule, learning rate %g", (long long)i->n_steps, plural(i->n_steps),
             mt_settings_choice(s, "training.lr_scheduler"), s->training.learning_rate);
    put_row(screen, "run", text);
    snprintf(text, sizeof text, "%s; a checkpoint takes %s%s", i->output_dir, mt_bytes_text(i->checkpoint_bytes).s,
             s->save.save_only_model ? " (only weights: no --resume)" : "");
    put_row(screen, "output", text);
    if (*i->resumed_from) put_row(screen, "resumes", i->resumed_from);
    if (url) {
        snprintf(text, sizeof text, "%s (this machine only)", url);
        put_row(screen, "dashboard", text);
    }
    for (size_t k = screen->notes; k < s->n_notices; k++) put_row(screen, "note", s->notices[k]);
    fflush(stdout);
}

void mt_train_screen_plan(const mt_plan *p)
{
    mt_plan_use uses[MT_PLAN_USES];
    size_t all[2] = { 0 };
    mt_plan_uses(p, uses);
    printf("\nthe plan's memory %39s %12s\n", "host", "device");
    for (size_t i = 0; i < MT_PLAN_USES; i++) {
        const size_t *bytes = uses[i].bytes;
        all[MT_HOST] += bytes[MT_HOST], all[MT_DEVICE] += bytes[MT_DEVICE];
        if (bytes[MT_HOST] || bytes[MT_DEVICE])
            printf("  %-42s %12s %12s\n", uses[i].name, mt_bytes_text(bytes[MT_HOST]).s, mt_bytes_text(bytes[MT_DEVICE]).s);
    }
    printf("  %-42s %12s %12s\n", "total", mt_bytes_text(all[MT_HOST]).s, mt_bytes_text(all[MT_DEVICE]).s);
    if (p->predicted_seconds > 0)
        printf("  predicted: %s tokens per step in %s\n", mt_count_text((uint64_t)p->job.step_tokens).s,
               mt_seconds_text(p->predicted_seconds).s);
}

void mt_train_screen_buffers(const mt_plan *p)
{
    printf("\nthe plan's memory:\n");
    for (size_t i = 0; i < p->n_buffers; i++)
        printf("  %-28s %-7s %12s\n", p->buffers[i].name, p->buffers[i].place == MT_HOST ? "host" : "device",
               mt_bytes_text(p->buffers[i].bytes).s);
}

/* Shows nothing for loads that take only a second or two. */
void mt_train_screen_loading(mt_train_screen *screen, size_t done, size_t total)
{
    enum { AT_ONCE_S = 1 };
    const double MB = 1e6;
    pthread_mutex_lock(&screen->lock);
    if (!screen->bar.total) mt_progress_start(&screen->bar, &screen->term, "loading (MB)", (double)total / MB);
    screen->bar_open |= screen->bar.clock() - screen->bar.start_s > AT_ONCE_S && done < total;
    if (screen->bar_open) mt_progress_update(&screen->bar, (double)done / MB, "");
    pthread_mutex_unlock(&screen->lock);
}

/* -- while it runs --------------------------------------------------------------------------------- */

void mt_train_screen_start(mt_train_screen *screen, const mt_train_info *info)
{
    pthread_mutex_lock(&screen->lock);
    int64_t total = mt_max_i64(info->n_steps, info->first_step); /* a resumed run may be past its end */
    mt_progress_start(&screen->bar, &screen->term, "training", (double)total);
    mt_progress_skip(&screen->bar, (double)info->first_step);
    screen->bar_open = true;
    pthread_mutex_unlock(&screen->lock);
}

void mt_train_screen_finish(mt_train_screen *screen)
{
    pthread_mutex_lock(&screen->lock);
    if (screen->bar_open) mt_progress_finish(&screen->bar);
    screen->bar_open = false;
    pthread_mutex_unlock(&screen->lock);
}

static void add_point(mt_train_screen *screen, double step, double loss)
{
    mt_err ignored;
    size_t n = screen->losses.n;
    if (mt_grow(&screen->losses.x, &screen->losses.cap_x, n + 1, sizeof *screen->losses.x, &ignored)) return;
    if (mt_grow(&screen->losses.y, &screen->losses.cap_y, n + 1, sizeof *screen->losses.y, &ignored)) return;
    screen->losses.x[n] = step;
    screen->losses.y[n] = loss;
    screen->losses.n++;
}

static size_t largest_of(const double *x, size_t n)
{
    size_t at = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[at]) at = i;
    return at;
}

/* The worst layers: with a collapsed router, a few experts get all rows. */
static void describe_experts(mt_train_screen *screen, const mt_train_step *s)
{
    const mt_train_loads *l = &s->loads;
    if (!l->n) return;
    const size_t busy = largest_of(l->busiest, l->n), idle = largest_of(l->idle, l->n);
    int at = snprintf(screen->experts, sizeof screen->experts,
                      "experts in step %lld: the busiest got %.1f%% of the rows (layer %d; %.1f%% if all were equally busy), ",
                      (long long)s->step, 100 * l->busiest[busy], l->layer[busy], 100 * (double)l->over.T / (double)l->over.E);
    if (l->idle[idle] > 0)
        snprintf(screen->experts + at, sizeof screen->experts - (size_t)at, "%.0f of %lld idle in layer %d", l->idle[idle],
                 (long long)l->over.E, l->layer[idle]);
    else
        snprintf(screen->experts + at, sizeof screen->experts - (size_t)at, "none idle");
}

/* As many as fit. */
static void describe_devices(mt_train_screen *screen, const mt_train_step *s)
{
    const size_t room = sizeof screen->devices;
    if (!s->n_devices) return;
    size_t at = (size_t)snprintf(screen->devices, room, "devices in step %lld:", (long long)s->step);
    for (int i = 0; i < s->n_devices && at + 24 < room; i++)
        at += (size_t)snprintf(screen->devices + at, room - at, "%s %s", i ? "," : "", mt_seconds_text(s->device_seconds[i]).s);
    snprintf(screen->devices + at, room - at, "; the first waits %s per step for the others",
             mt_seconds_text(s->wait_devices_s).s);
}

/* From the fastest to the slowest; "" for one device. */
static void name_range(char *out, size_t n, const mt_train_step *s)
{
    double least = INFINITY, most = 0;
    *out = '\0';
    for (int i = 0; i < s->n_devices; i++) {
        least = fmin(least, s->device_seconds[i]);
        most = fmax(most, s->device_seconds[i]);
    }
    if (s->n_devices) snprintf(out, n, "  devices %s to %s", mt_seconds_text(least).s, mt_seconds_text(most).s);
}

void mt_train_screen_step(mt_train_screen *screen, const mt_train_step *s)
{
    char note[320], router[32] = "", busiest[32] = "", devices[80];
    name_range(devices, sizeof devices, s);
    describe_devices(screen, s);
    if (!isnan(s->router_loss)) snprintf(router, sizeof router, "  aux %.4g", s->router_loss);
    if (s->loads.n)
        snprintf(busiest, sizeof busiest, "  busiest expert %.0f%%",
                 100 * s->loads.busiest[largest_of(s->loads.busiest, s->loads.n)]);
    describe_experts(screen, s);
    const char *skipped = "";
    if (s->empty) skipped = "  (skipped: nothing to train on)";
    if (s->skipped) skipped = "  (skipped: not finite)";
    if (screen->term.live) /* leave space for the bar */
        snprintf(note, sizeof note, "loss %.4f%s  %s tokens/s%s", s->loss, router, mt_count_text((uint64_t)s->tokens_s).s,
                 skipped);
    else
        snprintf(note, sizeof note, "loss %.4f%s  norm %.3g  lr %.3g%s%s  %s tokens/s%s", s->loss, router, s->grad_norm,
                 s->learning_rate, busiest, devices, mt_count_text((uint64_t)s->tokens_s).s, skipped);
    pthread_mutex_lock(&screen->lock);
    mt_progress_update(&screen->bar, (double)s->step, note);
    pthread_mutex_unlock(&screen->lock);
    if (!s->empty) add_point(screen, (double)s->step, s->loss);
}

void mt_train_screen_eval(mt_train_screen *screen, const mt_train_eval *e)
{
    char line[256];
    snprintf(line, sizeof line, "evaluation at step %lld: loss %.4f, perplexity %.4g, %.1f%% of %s tokens right",
             (long long)e->step, e->loss, e->perplexity, 100 * e->accuracy, mt_count_text((uint64_t)e->n_trained).s);
    if (screen->eval_first.step < 0) screen->eval_first.step = e->step, screen->eval_first.loss = e->loss;
    screen->eval_last.step = e->step, screen->eval_last.loss = e->loss;
    mt_train_screen_say(screen, line);
}

/* One line each, however many lines the answer has, and nothing that a terminal obeys.  The metrics have every byte. */
void mt_train_screen_sample(mt_train_screen *screen, int64_t step, const char *prompt, const char *answer)
{
    mt_str s = { 0 };
    mt_str_printf(&s, "sample at step %lld: %s -> %s", (long long)step, prompt, answer);
    for (size_t i = 0; i < s.n; i++)
        if (s.s[i] == '\n' || s.s[i] == '\r') s.s[i] = ' ';
    if (mt_str_ok(&s)) {
        mt_utf8_tame(s.s);
        mt_train_screen_say(screen, s.s);
    }
    mt_str_free(&s);
}

void mt_train_screen_saved(mt_train_screen *screen, const char *path, double seconds)
{
    char line[512];
    snprintf(line, sizeof line, "saved %s (%s)", path, mt_seconds_text(seconds).s);
    mt_train_screen_say(screen, line);
}

/* -- afterwards ------------------------------------------------------------------------------------ */

static void draw_curve(const mt_train_screen *screen)
{
    mt_str s = { 0 };
    int columns = mt_terminal_columns(&screen->term);
    if (screen->losses.n < 2) return;
    mt_plot_curve(&s, &(mt_curve){ .x = screen->losses.x,
                                   .y = screen->losses.y,
                                   .n = screen->losses.n,
                                   .x_label = "step",
                                   .y_label = screen->resumed ? "loss since the resume" : "loss",
                                   .width = columns < 100 ? columns : 100,
                                   .height = 12,
                                   .utf8 = screen->term.utf8 });
    if (mt_str_ok(&s) && s.s) fputs(s.s, stdout);
    mt_str_free(&s);
}

/* Planned and measured values. */
static void print_compared(mt_train_screen *screen, const mt_train_compared *c)
{
    const bool cpu = screen->cpu;
    mt_str s = { 0 };
    if (c->planned_tokens_s > 0 && c->tokens_s > 0)
        mt_str_printf(&s, "%s tokens/s (predicted %s), ", mt_count_text((uint64_t)c->tokens_s).s,
                      mt_count_text((uint64_t)c->planned_tokens_s).s);
    mt_str_printf(&s, "at most %s of %smemory (predicted %s", mt_bytes_text(c->host).s, cpu ? "" : "host ",
                  mt_bytes_text(c->planned_host).s);
    if (c->aside) mt_str_printf(&s, "; up to %s for the copy of a checkpoint", mt_bytes_text(c->aside).s);
    mt_str_puts(&s, ")");
    if (!cpu) mt_str_printf(&s, " and %s on the device (%s)", mt_bytes_text(c->device).s, mt_bytes_text(c->planned_device).s);
    if (mt_str_ok(&s)) put_line(screen, s.s, 0);
    mt_str_free(&s);
}

/* The first evaluation beside the last; there may be only one, or none. */
static void print_evaluations(const mt_train_screen *screen)
{
    if (screen->eval_last.step < 0) return;
    printf("evaluation loss ");
    if (screen->eval_first.step < screen->eval_last.step)
        printf("%.4f at step %lld, ", screen->eval_first.loss, (long long)screen->eval_first.step);
    printf("%.4f at step %lld\n", screen->eval_last.loss, (long long)screen->eval_last.step);
}

void mt_train_screen_end(mt_train_screen *screen, const mt_settings *settings, const mt_train_result *r)
{
    bool quiet = mt_verbosity_now() == MT_QUIET;
    if (!quiet) print_compared(screen, &r->compared);
    if (!quiet && *screen->experts) put_line(screen, screen->experts, 0);
    if (!quiet && *screen->devices) put_line(screen, screen->devices, 0);
    if (r->stopped) {
        if (r->step)
            printf("stopped after step %lld; saved %s\n", (long long)r->step, r->checkpoint);
        else
            printf("stopped before the first step; there is nothing to save\n");
        printf(settings->save.save_only_model ? "it contains only the model (save_only_model), so the run cannot resume from it\n"
                                              : "to continue: the same command with --resume\n");
        return;
    }
    if (!quiet) draw_curve(screen);
    if (r->n_skipped)
        printf("%lld step%s skipped: non-finite loss or gradient, or nothing to train on\n", (long long)r->n_skipped,
               r->n_skipped == 1 ? " was" : "s were");
    print_evaluations(screen);
    printf("done: %lld step%s; the model is in %s\n", (long long)r->step, plural(r->step), r->model_dir);
    if (!quiet)
        printf("to try it: %s generate %s --chat --prompt \"...\" (plain text: without --chat)\n", mt_cli_program(),
               r->model_dir);
}
