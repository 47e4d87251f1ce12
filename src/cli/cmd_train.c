/* cmd_train.c - megatrain train: settings in, a banner, a bar, a curve; signals.  The run itself is engine/train.h. */
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "ckpt/outdir.h"
#include "cli/commands.h"
#include "cli/hub_bar.h"
#include "cli/plot.h"
#include "cli/progress.h"
#include "cli/run_data.h"
#include "engine/output_dir.h"
#include "engine/train.h"
#include "page/page.h"
#include "page/server.h"
#include "plan/flops.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct curve {
    double *x, *y;
    size_t n, cap_x, cap_y;
} curve;

typedef struct app {
    mt_settings s;
    mt_terminal term;     /* of stdout */
    pthread_mutex_t lock; /* of the bar: notices may come from any thread */
    mt_progress bar;
    bool bar_open;
    curve losses;
    struct {
        int64_t step; /* -1: none */
        double loss;
    } eval_first, eval_last;
    mt_server *server;            /* NULL: no dashboard */
    FILE *log;                    /* log.txt of the run, once its directory is ours */
    mt_str early;                 /* what was said before that */
} app;

/* -- signals --------------------------------------------------------------------------------------- */

static volatile sig_atomic_t stop_asked;
static struct timespec asked_at;

/* One request may come as two signals: timeout(1) sends its own to the program and to the group, and runners that pass Ctrl-C on send what the
 * terminal has sent already. */
static bool same_request(void)
{
    const double APART_S = 0.5;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - asked_at.tv_sec) + 1e-9 * (double)(now.tv_nsec - asked_at.tv_nsec) < APART_S;
}

/* The first asks, the second does not wait. */
static void on_signal(int number)
{
    static const char text[] = "\nstopping after this step and saving; once more stops at once\n";
    if (stop_asked && same_request()) return;
    if (stop_asked) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &asked_at);
    stop_asked = 1;
    ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
    (void)n;
}

static void catch_signals(void)
{
    struct sigaction a = { .sa_handler = on_signal, .sa_flags = SA_RESTART | SA_NODEFER };
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    /* A terminal that was closed does not end a run, nor does a reader of what it prints that is gone, such as a tee which the same Ctrl-C
     * ended.  A limit on files (ulimit -f) does, as an error of the write that says so. */
    static const int ignored[] = { SIGHUP, SIGPIPE, SIGXFSZ };
    for (size_t i = 0; i < MT_COUNT(ignored); i++) signal(ignored[i], SIG_IGN);
}

static bool asked_to_stop(void *user)
{
    (void)user;
    return stop_asked;
}

/* -- data ------------------------------------------------------------------------------------------ */

static mt_rc open_source(void *user, mt_source **out, const mt_settings *s, const mt_config *c, const struct tm *now, mt_err *err)
{
    (void)user;
    return mt_run_data_open(out, s, c, now, err);
}

/* -- what is shown --------------------------------------------------------------------------------- */

/* Every line that was said, with its time, for those who look later. */
static void keep_line(app *a, const char *line)
{
    char when[32];
    struct tm now;
    time_t t = time(NULL);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&t, &now));
    if (a->log)
        fprintf(a->log, "%s  %s\n", when, line);
    else
        mt_str_printf(&a->early, "%s  %s\n", when, line);
}

/* A log that cannot be written is no reason to stop a run. */
static void open_log(app *a)
{
    char *path = mt_path_join(a->s.save.output_dir, "log.txt");
    a->log = path ? fopen(path, "ae") : NULL;
    mt_free(path);
    if (!a->log) return;
    setvbuf(a->log, NULL, _IOLBF, 0);
    if (a->early.s) fputs(a->early.s, a->log);
    mt_str_free(&a->early);
}

/* On a terminal no word is cut at its edge; elsewhere a thing is a line, however long. */
static void put_line(app *a, const char *text, int indent)
{
    mt_str s = { 0 };
    if (a->term.live) mt_text_wrap(&s, text, mt_terminal_columns(&a->term), indent);
    if (mt_str_ok(&s) && s.s) text = s.s;
    if (a->bar_open)
        mt_progress_say(&a->bar, text);
    else
        printf("%s\n", text);
    mt_str_free(&s);
}

static void say(app *a, const char *line)
{
    pthread_mutex_lock(&a->lock);
    keep_line(a, line);
    put_line(a, line, 2);
    fflush(stdout);
    pthread_mutex_unlock(&a->lock);
}

static void print_log(void *user, mt_log_level level, const char *text)
{
    mt_str s = { 0 };
    if (level == MT_LOG_DEBUG) return;
    mt_str_printf(&s, "%s%s", level == MT_LOG_WARN ? "warning: " : "", text);
    say(user, s.s ? s.s : text);
    mt_str_free(&s);
}

static void put_row(app *a, const char *label, const char *text)
{
    mt_str s = { 0 };
    mt_str_printf(&s, "  %-12s %s", label, text);
    if (mt_str_ok(&s)) put_line(a, s.s, 15);
    mt_str_free(&s);
}

static void print_plan(app *a, const mt_train_info *i)
{
    const mt_plan *p = i->plan;
    int64_t resident = 0, on_device = 0;
    char text[320];
    for (int u = 0; u < i->model->n_units; u++) {
        resident += p->place.units[u].resident;
        on_device += p->place.units[u].home == MT_DEVICE;
    }
    snprintf(text, sizeof text,
             "%s, micro-batches of %lld tokens, %s a sweep; %lld of %d units stay on the device, state of %lld lives there",
             mt_dtype_name(p->arithmetic.compute), (long long)p->arithmetic.micro_tokens, mt_plan_many_sweeps(p) ? "some" : "all",
             (long long)resident, i->model->n_units, (long long)on_device);
    put_row(a, "plan", text);
    mt_plan_describe_kept(p, &i->limits, text, sizeof text);
    put_row(a, "kept", text);
    if (i->device_kind == MT_DEVICE_CUDA) {
        mt_attention_use_text(&p->arithmetic.attention, text, sizeof text);
        put_row(a, "attention", text);
    }
    snprintf(text, sizeof text, "%s of buffers on the device, %s on the host", mt_bytes_text(p->device_bytes).s,
             mt_bytes_text(p->host_bytes).s);
    put_row(a, "memory", text);
}

static void print_banner(app *a, const mt_train_info *i)
{
    char text[512];
    const mt_settings *s = &a->s;
    printf("megatrain %s\n", MT_VERSION);
    snprintf(text, sizeof text, "%s (%s, %s parameters, %s trained)", s->model.name, i->config->family->name,
             mt_count_text((uint64_t)i->model->n_params).s, mt_count_text((uint64_t)i->model->n_trained).s);
    put_row(a, "model", text);
    snprintf(text, sizeof text, "%s samples, %lld steps an epoch, at most %s tokens a step%s",
             mt_count_text((uint64_t)i->data.n_samples).s, (long long)i->data.steps_per_epoch,
             mt_count_text((uint64_t)i->data.max_tokens).s, i->data.n_eval_batches ? ", some held out for evaluation" : "");
    put_row(a, "data", text);
    put_row(a, "device", i->device.name);
    print_plan(a, i);
    snprintf(text, sizeof text, "%lld steps, %s, learning rate %g", (long long)i->n_steps,
             mt_settings_choice(s, "training.lr_scheduler"), s->training.learning_rate);
    put_row(a, "run", text);
    snprintf(text, sizeof text, "%s; a checkpoint takes %s%s", i->output_dir, mt_bytes_text(i->checkpoint_bytes).s,
             s->save.save_only_model ? " (weights only: it cannot be resumed)" : "");
    put_row(a, "output", text);
    put_row(a, "FLOPs are", MT_FLOPS_FORMULA);
    if (*i->resumed_from) put_row(a, "resumes", i->resumed_from);
    if (a->server) {
        snprintf(text, sizeof text, "http://127.0.0.1:%d/ (this machine only)", mt_server_port(a->server));
        put_row(a, "dashboard", text);
    }
    for (size_t k = 0; k < s->n_notices; k++) put_row(a, "note", s->notices[k]);
    fflush(stdout);
}

/* Nothing of what is there within a second or two. */
static void on_loading(void *user, size_t done, size_t total)
{
    enum { AT_ONCE_S = 1 };
    const double MB = 1e6;
    app *a = user;
    pthread_mutex_lock(&a->lock);
    if (!a->bar.total) mt_progress_start(&a->bar, &a->term, "loading (MB)", (double)total / MB);
    a->bar_open |= a->bar.clock() - a->bar.start_s > AT_ONCE_S && done < total;
    if (a->bar_open) mt_progress_update(&a->bar, (double)done / MB, "");
    pthread_mutex_unlock(&a->lock);
}

static void end_loading(app *a)
{
    pthread_mutex_lock(&a->lock);
    if (a->bar_open) mt_progress_finish(&a->bar);
    a->bar_open = false;
    pthread_mutex_unlock(&a->lock);
}

static void add_point(curve *c, double x, double y)
{
    mt_err ignored;
    if (mt_grow(&c->x, &c->cap_x, c->n + 1, sizeof *c->x, &ignored) ||
        mt_grow(&c->y, &c->cap_y, c->n + 1, sizeof *c->y, &ignored))
        return;
    c->x[c->n] = x;
    c->y[c->n++] = y;
}

static void on_step(void *user, const mt_train_step *s)
{
    app *a = user;
    char note[256];
    const char *skipped = s->skipped ? "  (skipped: not finite)" : s->empty ? "  (skipped: nothing to train on)" : "";
    if (a->term.live) /* the bar wants room */
        snprintf(note, sizeof note, "loss %.4f  %s tokens/s%s", s->loss, mt_count_text((uint64_t)s->tokens_s).s, skipped);
    else
        snprintf(note, sizeof note, "loss %.4f  norm %.3g  lr %.3g  %s tokens/s%s", s->loss, s->grad_norm, s->learning_rate,
                 mt_count_text((uint64_t)s->tokens_s).s, skipped);
    pthread_mutex_lock(&a->lock);
    mt_progress_update(&a->bar, (double)s->step, note);
    pthread_mutex_unlock(&a->lock);
    if (!s->empty) add_point(&a->losses, (double)s->step, s->loss);
}

static void on_eval(void *user, const mt_train_eval *e)
{
    app *a = user;
    char line[256];
    snprintf(line, sizeof line, "evaluation at step %lld: loss %.4f, perplexity %.4g, %.1f%% of %s right",
             (long long)e->step, e->loss, e->perplexity, 100 * e->accuracy, mt_count_text((uint64_t)e->n_trained).s);
    if (a->eval_first.step < 0) a->eval_first.step = e->step, a->eval_first.loss = e->loss;
    a->eval_last.step = e->step, a->eval_last.loss = e->loss;
    say(a, line);
}

/* A line each, however many the answer has. */
static void on_sample(void *user, int64_t step, const char *prompt, const char *answer)
{
    mt_str s = { 0 };
    mt_str_printf(&s, "sample at step %lld: %s -> %s", (long long)step, prompt, answer);
    for (size_t i = 0; i < s.n; i++)
        if (s.s[i] == '\n' || s.s[i] == '\r') s.s[i] = ' ';
    if (mt_str_ok(&s)) say(user, s.s);
    mt_str_free(&s);
}

static void on_saved(void *user, const char *path, double seconds)
{
    char line[512];
    snprintf(line, sizeof line, "saved %s (%s)", path, mt_seconds_text(seconds).s);
    say(user, line);
}

static void draw_curve(const app *a)
{
    mt_str s = { 0 };
    int columns = mt_terminal_columns(&a->term);
    if (a->losses.n < 2) return;
    mt_plot_curve(&s, &(mt_curve){ .x = a->losses.x,
                                   .y = a->losses.y,
                                   .n = a->losses.n,
                                   .x_label = "step",
                                   .y_label = "loss",
                                   .width = columns < 100 ? columns : 100,
                                   .height = 12,
                                   .utf8 = a->term.utf8 });
    if (mt_str_ok(&s) && s.s) fputs(s.s, stdout);
    mt_str_free(&s);
}

/* -- the run --------------------------------------------------------------------------------------- */

/* What was planned, and what came of it. */
static void print_compared(app *a, const mt_train_compared *c)
{
    mt_str s = { 0 };
    if (c->planned_tokens_s > 0 && c->tokens_s > 0)
        mt_str_printf(&s, "%s tokens/s (the plan said %s), ", mt_count_text((uint64_t)c->tokens_s).s,
                      mt_count_text((uint64_t)c->planned_tokens_s).s);
    mt_str_printf(&s, "at most %s of host memory (the plan said %s", mt_bytes_text(c->host).s, mt_bytes_text(c->planned_host).s);
    if (c->aside) mt_str_printf(&s, "; up to %s for a checkpoint until it was written", mt_bytes_text(c->aside).s);
    mt_str_printf(&s, ") and %s on the device (%s)", mt_bytes_text(c->device).s, mt_bytes_text(c->planned_device).s);
    if (mt_str_ok(&s)) put_line(a, s.s, 0);
    mt_str_free(&s);
}

/* The first evaluation beside the last; there may be one alone, or none. */
static void print_evaluations(const app *a)
{
    if (a->eval_last.step < 0) return;
    printf("evaluation loss ");
    if (a->eval_first.step < a->eval_last.step) printf("%.4f at step %lld, ", a->eval_first.loss, (long long)a->eval_first.step);
    printf("%.4f at step %lld\n", a->eval_last.loss, (long long)a->eval_last.step);
}

static void print_end(app *a, const mt_train_result *r)
{
    print_compared(a, &r->compared);
    if (r->stopped) {
        if (r->step)
            printf("stopped after step %lld; saved %s\n", (long long)r->step, r->checkpoint);
        else
            printf("stopped before the first step; nothing is there to be saved\n");
        printf(a->s.save.save_only_model ? "it holds the model alone (save_only_model), so the run cannot go on from it\n"
                                         : "to go on: the same command with --resume\n");
        return;
    }
    draw_curve(a);
    if (r->n_skipped) printf("%lld steps were skipped: not finite, or nothing to train on\n", (long long)r->n_skipped);
    print_evaluations(a);
    printf("done: %lld steps; the model is in %s\n", (long long)r->step, r->model_dir);
}

static mt_rc run(app *a, mt_trainer *t, mt_err *err)
{
    mt_train_info info;
    mt_train_result result;
    mt_trainer_info(t, &info);
    print_banner(a, &info);
    mt_progress_start(&a->bar, &a->term, "training", (double)info.n_steps);
    mt_progress_skip(&a->bar, (double)info.first_step);
    a->bar_open = true;
    mt_rc rc = mt_trainer_run(t, &result, err);
    mt_progress_finish(&a->bar);
    a->bar_open = false;
    if (!rc) print_end(a, &result);
    return rc;
}

/* The page as a file: of a run that ended, was stopped, or failed after it had something to show. */
static void save_report(app *a)
{
    mt_err err = { 0 };
    const char *dirs[] = { a->s.save.output_dir };
    char *path = mt_path_join(dirs[0], "report.html");
    mt_rc rc = path ? mt_page_save(path, dirs, 1, &err) : MT_ENOMEM;
    if (rc)
        mt_warn("no report of the run: %s", err.msg);
    else
        printf("what happened, as a page: %s\n", path);
    mt_free(path);
}

static mt_train_hooks hooks_of(app *a)
{
    return (mt_train_hooks){
        .user = a, .open_source = open_source, .loading = on_loading, .step = on_step, .eval = on_eval, .sample = on_sample, .saved = on_saved, .stop = asked_to_stop
    };
}

static mt_rc train(app *a, mt_err *err)
{
    mt_trainer *t = NULL;
    mt_train_hooks hooks = hooks_of(a);
    if (a->s.logging.dashboard) MT_TRY(mt_server_open(&a->server, a->s.save.output_dir, (int)a->s.logging.dashboard, err));
    mt_rc rc = mt_trainer_open(&t, &a->s, &hooks, err);
    end_loading(a);
    if (!rc) {
        open_log(a);
        rc = run(a, t, err);
        if (rc) keep_line(a, err->msg);
        save_report(a);
    }
    mt_trainer_close(t);
    mt_server_close(a->server);
    return rc;
}

/* -- --dry-run ------------------------------------------------------------------------------------- */

/* The first sample of the first step; tokens that are trained on are marked. */
static mt_rc print_sample(mt_trainer *t, mt_err *err)
{
    mt_batch b = { 0 };
    mt_rc rc = mt_trainer_batch(t, 0, &b, err);
    if (!rc) {
        printf("\nfirst sample, %d tokens (those that are trained on in brackets):\n ", b.doc_start[1]);
        for (int i = 0; i < b.doc_start[1]; i++) printf(i && b.targets[i - 1] != MT_IGNORE ? " [%d]" : " %d", b.ids[i]);
        printf("\n\n");
    }
    mt_batch_free(&b);
    return rc;
}

static void print_buffers(const mt_plan *p)
{
    printf("\nthe plan's memory:\n");
    for (size_t i = 0; i < p->n_buffers; i++)
        printf("  %-28s %-7s %12s\n", p->buffers[i].name, p->buffers[i].place == MT_HOST ? "host" : "device",
               mt_bytes_text(p->buffers[i].bytes).s);
}

static mt_rc rehearse(app *a, mt_trainer *t, mt_err *err)
{
    mt_train_info info;
    mt_train_step step;
    double save_s;
    mt_trainer_info(t, &info);
    print_banner(a, &info);
    print_buffers(info.plan);
    MT_TRY(print_sample(t, err));
    MT_TRY(mt_trainer_rehearse(t, &step, &save_s, err));
    printf("one step: loss %.4f, gradient norm %.4g, %s, %s tokens/s\n", step.loss, step.grad_norm,
           mt_seconds_text(step.seconds).s, mt_count_text((uint64_t)step.tokens_s).s);
    printf("one checkpoint: written and verified in %s, and removed\n", mt_seconds_text(save_s).s);
    return MT_OK;
}

static void print_settings(const app *a)
{
    mt_str s = { 0 };
    mt_settings_print(&a->s, &s);
    if (mt_str_ok(&s) && s.s) fputs(s.s, stdout);
    mt_str_free(&s);
    printf("\n");
    for (size_t i = 0; i < a->s.n_notices; i++) printf("note: %s\n", a->s.notices[i]);
    fflush(stdout);
}

/* Everything a run does, once, beside the real output directory and without touching it. */
static mt_rc dry_run(app *a, mt_err *err)
{
    mt_trainer *t = NULL;
    mt_train_hooks hooks = { .user = a, .open_source = open_source };
    print_settings(a);
    MT_TRY(mt_hub_bar_place(&a->s, MT_HUB_MODEL, err));
    char *dir = mt_asprintf("%s.dry-run", a->s.save.output_dir);
    if (!dir) return mt_fail(err, MT_ENOMEM, "no memory for a name");
    a->s.save.output_dir = dir;
    a->s.save.resume = "";
    a->s.save.overwrite = true;
    a->s.logging.metrics_file = "metrics.jsonl"; /* wherever the real one is */
    mt_rc rc = mt_output_dir_only_runs(dir, err);
    if (!rc) rc = mt_trainer_open(&t, &a->s, &hooks, err);
    bool ours = t != NULL;
    if (!rc) rc = rehearse(a, t, err);
    mt_trainer_close(t);
    if (ours && !rc)
        rc = mt_dir_remove(dir, err);
    else if (ours)
        (void)mt_dir_remove(dir, &(mt_err){ 0 });
    mt_free(dir);
    return rc;
}

/* -- the command ----------------------------------------------------------------------------------- */

static void print_help(void)
{
    mt_str s = { 0 };
    mt_settings_help(&s);
    printf("usage: megatrain train --config FILE [options]\n\n"
           "Train or fine-tune a model.  --resume goes on with a run, --dry-run shows what would happen and takes one step.\n\n"
           "  --dry-run             print settings, plan and the first sample, take one step, write and\n"
           "                        remove one checkpoint, end\n%s",
           s.s ? s.s : "");
    mt_str_free(&s);
}

/* What the settings left over: --dry-run, --help, or something nobody knows. */
static mt_rc read_rest(int argc, char **argv, bool *dry, bool *help, mt_err *err)
{
    for (int i = 1; i < argc; i++) {
        char near[48];
        if (strcmp(argv[i], "--dry-run") == 0) {
            *dry = true;
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *help = true;
        } else {
            mt_settings_nearest_flag(argv[i], near);
            return *near ? mt_fail(err, MT_EINVAL, "train: %s is not known; did you mean %s?", argv[i], near)
                         : mt_fail(err, MT_EINVAL, "train: %s is not known; megatrain train --help lists what is", argv[i]);
        }
    }
    return MT_OK;
}

static mt_rc command(app *a, int argc, char **argv, mt_err *err)
{
    bool dry = false, help = false;
    MT_TRY(mt_settings_args(&a->s, &argc, argv, err));
    MT_TRY(read_rest(argc, argv, &dry, &help, err));
    if (help) return print_help(), MT_OK;
    MT_TRY(mt_settings_check(&a->s, MT_NEED_MODEL | MT_NEED_DATA, err));
    mt_tri color = a->s.logging.color;
    a->term = mt_terminal_of(stdout, color == MT_TRI_AUTO   ? MT_COLOR_AUTO
                                     : color == MT_TRI_TRUE ? MT_COLOR_ALWAYS
                                                            : MT_COLOR_NEVER);
    if (dry) return dry_run(a, err);
    MT_TRY(mt_trainer_check_output(&a->s, err)); /* before a model comes over the network */
    MT_TRY(mt_hub_bar_place(&a->s, MT_HUB_MODEL, err));
    catch_signals();
    return train(a, err);
}

int mt_cmd_train(int argc, char **argv)
{
    mt_err err = { 0 };
    app a = { .eval_first = { .step = -1 }, .eval_last = { .step = -1 }, .lock = PTHREAD_MUTEX_INITIALIZER };
    if (mt_settings_init(&a.s, &err)) return mt_cli_failed(&err);
    mt_log_set_sink(print_log, &a);
    mt_rc rc = command(&a, argc, argv, &err);
    mt_log_set_sink(NULL, NULL);
    mt_settings_deinit(&a.s);
    mt_free(a.losses.x);
    mt_free(a.losses.y);
    mt_str_free(&a.early);
    if (a.log) fclose(a.log);
    return rc ? mt_cli_failed(&err) : 0;
}
