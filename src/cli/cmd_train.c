/* cmd_train.c - megatrain train: reads settings, then runs or rehearses the training, and handles signals. run/train.h is the run
 * itself, train_screen.h its output. */
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "ckpt/model_files.h"
#include "cli/caches.h"
#include "cli/commands.h"
#include "cli/dashboard.h"
#include "cli/data_notices.h"
#include "cli/data_view.h"
#include "cli/flags.h"
#include "cli/hub_bar.h"
#include "cli/installed.h"
#include "cli/stop.h"
#include "cli/train_screen.h"
#include "page/page.h"
#include "run/output_dir.h"
#include "run/ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct app {
    mt_settings s;
    char installed[1024]; /* where its data folder is */
    mt_train_screen screen;
    mt_server *server; /* NULL: no dashboard */
    mt_comm *comm;     /* the machines of the run; NULL: not known yet */
    atomic_bool told;  /* its error */
    int stopped;       /* the signal that ended it before its last step, on this rank or another; 0: none */
    bool launched;     /* comm was asked for */
} app;

/* With several ranks, the first shows and writes everything. */
static bool is_first(const app *a) { return !a->comm || a->comm->rank == 0; }

/* -- signals --------------------------------------------------------------------------------------- */

static int asked_to_stop(void *user)
{
    (void)user;
    return atomic_load(mt_stop_flag()) ? mt_stop_signal() : 0;
}

static bool asked_to_save(void *user)
{
    (void)user;
    return mt_stop_take_save();
}

/* -- the model ------------------------------------------------------------------------------------- */

/* A download checks for signals itself, and resumes where it was stopped. */
static mt_rc fetch_weights(void *user, mt_err *err)
{
    if (mt_stop_signal()) return mt_fail(err, MT_ESTOPPED, "stopped before the model's weights were downloaded");
    return mt_prepare_weights(&((app *)user)->s, &mt_hub_bar_finder, err);
}

typedef struct preparing {
    app *a;
    mt_train_hooks *hooks;
} preparing;

static mt_rc prepare_alone(void *user, mt_err *err)
{
    const preparing *p = user;
    mt_train_hooks *hooks = p->hooks;
    MT_TRY(mt_caches_settle(&p->a->s, err));
    hooks->weights = fetch_weights;
    return mt_prepare_run(&p->a->s, &mt_hub_bar_finder, hooks, err);
}

static mt_rc cmd_train_prepare(app *a, mt_train_hooks *hooks, mt_err *err)
{
    preparing p = { a, hooks };
    return mt_ranks_in_turn(a->comm, prepare_alone, &p, "the files of the model", err);
}

/* -- the run --------------------------------------------------------------------------------------- */

static void on_loading(void *user, size_t done, size_t total) { mt_train_screen_loading(&((app *)user)->screen, done, total); }
static void on_step(void *user, const mt_train_step *s) { mt_train_screen_step(&((app *)user)->screen, s); }
static void on_eval(void *user, const mt_train_eval *e) { mt_train_screen_eval(&((app *)user)->screen, e); }
static void on_saved(void *user, const char *path, double seconds)
{
    mt_train_screen_saved(&((app *)user)->screen, path, seconds);
}
static void on_sample(void *user, int64_t step, const char *prompt, const char *answer)
{
    mt_train_screen_sample(&((app *)user)->screen, step, prompt, answer);
}

static mt_data_hooks data_hooks(app *a)
{
    return (mt_data_hooks){ .installed = mt_installed(a->installed, sizeof a->installed, "data"),
                            .fetch = mt_hub_bar_finder.dataset,
                            .stop = mt_stop_flag(),
                            .read = mt_data_notices };
}

static mt_train_hooks hooks_of(app *a)
{
    if (!is_first(a))
        return (
            mt_train_hooks){ .user = a, .data = data_hooks(a), .stop = asked_to_stop, .save = asked_to_save, .comm = a->comm };
    return (mt_train_hooks){ .user = a,
                             .data = data_hooks(a),
                             .loading = on_loading,
                             .step = on_step,
                             .eval = on_eval,
                             .sample = on_sample,
                             .saved = on_saved,
                             .stop = asked_to_stop,
                             .save = asked_to_save,
                             .comm = a->comm };
}

/* A rank other than the first. */
static mt_rc run_along(app *a, mt_trainer *t, mt_err *err)
{
    mt_train_result result;
    mt_rc rc = mt_trainer_run(t, &result, err);
    a->stopped = rc ? 0 : result.stopped;
    return rc;
}

static mt_rc run(app *a, mt_trainer *t, mt_err *err)
{
    mt_train_info info;
    mt_train_result result;
    mt_trainer_info(t, &info);
    mt_train_screen_banner(&a->screen, &a->s, &info, a->server ? mt_server_url(a->server) : NULL);
    if (mt_verbosity_now() == MT_VERBOSE) mt_train_screen_buffers(info.plan);
    mt_train_screen_start(&a->screen, &info);
    mt_stop_saves(true);
    mt_rc rc = mt_trainer_run(t, &result, err);
    mt_train_screen_finish(&a->screen);
    if (!rc) mt_train_screen_end(&a->screen, &a->s, &result);
    a->stopped = rc ? 0 : result.stopped;
    return rc;
}

/* A metrics file elsewhere was named by the user of this command. */
static mt_run_at run_of(const app *a)
{
    const char *file = a->s.logging.metrics_file;
    return (mt_run_at){ a->s.save.output_dir, *file == '/' ? file : NULL };
}

/* Writes the page as a file, for a run that ended, was stopped, or failed after it had something to show. */
static void save_report(app *a)
{
    mt_err err = { 0 };
    mt_run_at run = run_of(a);
    char *path = mt_path_join(run.dir, "report.html");
    mt_rc rc = path ? mt_page_save(path, &run, 1, &err) : MT_ENOMEM;
    if (rc)
        mt_warn("could not write the report page: %s", err.msg);
    else
        mt_info("report page: %s", path);
    mt_free(path);
}

static mt_rc train(app *a, mt_err *err)
{
    mt_trainer *t = NULL;
    mt_train_hooks hooks = hooks_of(a);
    MT_TRY(cmd_train_prepare(a, &hooks, err));
    mt_run_at shown = run_of(a);
    if (a->s.logging.dashboard && is_first(a)) MT_TRY(mt_server_open(&a->server, &shown, (int)a->s.logging.dashboard, err));
    mt_rc rc = mt_trainer_open(&t, &a->s, &hooks, err);
    mt_train_screen_finish(&a->screen); /* the bar of loading */
    if (!rc && !is_first(a)) {
        rc = run_along(a, t, err);
    } else if (!rc) {
        mt_train_screen_log_to(&a->screen, a->s.save.output_dir);
        if (a->server) mt_dashboard_keep(a->server, a->s.save.output_dir);
        rc = run(a, t, err);
        if (rc) mt_train_screen_keep(&a->screen, err->msg);
        if (mt_trainer_has_dir(t)) save_report(a);
    }
    mt_trainer_close(t);
    mt_server_close(a->server);
    return rc;
}

/* -- --dry-run ------------------------------------------------------------------------------------- */

static bool is_trained(const mt_batch *b, int i) { return i && b->targets[i - 1] != MT_IGNORE; }

static void print_ids(const mt_batch *b, int n)
{
    for (int i = 0; i < n; i++) printf(is_trained(b, i) ? " [%d]" : " %d", b->ids[i]);
    printf("\n");
}

/* As `data` shows it; rows of tokens may have no tokenizer. */
static mt_rc print_text(const app *a, const mt_batch *b, int n, mt_err *err)
{
    mt_tokenizer *tok = NULL;
    mt_str text = { 0 };
    if (mt_model_files_tokenizer(&tok, mt_settings_model_dir(&a->s), &(mt_err){ 0 })) return print_ids(b, n), MT_OK;
    int32_t *labels = mt_calloc((size_t)n, sizeof *labels);
    mt_rc rc = labels ? MT_OK : mt_no_memory(err, "a sample");
    for (int i = 0; !rc && i < n; i++) labels[i] = is_trained(b, i) ? b->ids[i] : MT_IGNORE;
    if (!rc) rc = mt_data_view_sample(&text, tok, b->ids, labels, n, a->screen.term.color, err);
    if (!rc && !mt_str_ok(&text)) rc = mt_no_memory(err, "a sample");
    if (!rc) printf("%s\n", text.s ? text.s : "");
    mt_free(labels);
    mt_str_free(&text);
    mt_tokenizer_close(tok);
    return rc;
}

/* The first sample of the first step, trained parts marked. */
static mt_rc print_sample(const app *a, mt_trainer *t, mt_err *err)
{
    mt_batch b = { 0 };
    mt_rc rc = mt_trainer_batch(t, 0, &b, err);
    if (!rc) {
        int n = b.doc_start[1];
        printf("\nfirst sample, %d tokens (trained parts %s):\n", n, a->screen.term.color ? "in green" : "in brackets");
        rc = print_text(a, &b, n, err);
        if (!rc && mt_verbosity_now() == MT_VERBOSE) print_ids(&b, n);
        printf("\n");
    }
    mt_batch_free(&b);
    return rc;
}

static mt_rc rehearse(app *a, mt_trainer *t, mt_err *err)
{
    mt_train_info info;
    mt_train_step step;
    double save_s;
    mt_trainer_info(t, &info);
    mt_train_screen_banner(&a->screen, &a->s, &info, NULL);
    mt_train_screen_plan(info.plan);
    if (mt_verbosity_now() == MT_VERBOSE) mt_train_screen_buffers(info.plan);
    MT_TRY(print_sample(a, t, err));
    MT_TRY(mt_trainer_rehearse(t, &step, &save_s, err));
    printf("one step: loss %.4f, gradient norm %.4g, %s, %s tokens/s\n", step.loss, step.grad_norm,
           mt_seconds_text(step.seconds).s, mt_count_text((uint64_t)step.tokens_s).s);
    printf("one checkpoint: written and verified in %s, and removed\n", mt_seconds_text(save_s).s);
    return MT_OK;
}

static void print_settings(app *a)
{
    mt_str s = { 0 };
    bool all = mt_verbosity_now() == MT_VERBOSE;
    mt_settings_print(&a->s, all, &s);
    if (!all) printf("settings that are not defaults (--verbose shows all):\n");
    if (mt_str_ok(&s) && s.s) fputs(s.s, stdout);
    mt_str_free(&s);
    printf("\n");
    for (size_t i = 0; i < a->s.n_notices; i++) printf("note: %s\n", a->s.notices[i]);
    a->screen.notes = a->s.n_notices;
    fflush(stdout);
}

#define DRY_TAIL ".dry-run"

static int dir_length(const char *dir)
{
    int n = (int)strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--; /* runs/a/ too is rehearsed beside it, not inside */
    return n;
}

/* A dry run of the name without the tail would remove the run. */
static mt_rc check_name(const char *dir, mt_err *err)
{
    const int n = dir_length(dir), tail = (int)strlen(DRY_TAIL);
    if (n <= tail || strncmp(dir + n - tail, DRY_TAIL, (size_t)tail) != 0) return MT_OK;
    return mt_fail(err, MT_EINVAL,
                   "--output-dir %s: names that end in " DRY_TAIL " are those of dry runs, which remove them; choose another",
                   dir);
}

/* Does everything that a run does, once, beside the real output directory and without touching it. */
static mt_rc dry_run(app *a, mt_err *err)
{
    mt_trainer *t = NULL;
    mt_train_hooks hooks = { .user = a, .data = data_hooks(a), .stop = asked_to_stop };
    print_settings(a);
    MT_TRY(mt_output_dir_check_place(a->s.save.output_dir, err)); /* as the run itself does */
    MT_TRY(cmd_train_prepare(a, &hooks, err));
    char *dir = mt_asprintf("%.*s" DRY_TAIL, dir_length(a->s.save.output_dir), a->s.save.output_dir);
    if (!dir) return mt_no_memory(err, "a name");
    a->s.save.output_dir = dir;
    a->s.save.resume = "";
    a->s.save.overwrite = true;
    a->s.logging.metrics_file = "metrics.jsonl"; /* wherever the real one is */
    mt_rc rc = mt_output_dir_only_runs(dir, err);
    if (!rc) rc = mt_trainer_open(&t, &a->s, &hooks, err);
    if (!rc) rc = rehearse(a, t, err);
    mt_trainer_close(t);
    if (!rc)
        rc = mt_output_dir_remove(dir, err);
    else /* also what an opening that failed or was stopped has made; a directory that another rehearsal uses stays */
        (void)mt_output_dir_remove(dir, &(mt_err){ 0 });
    mt_free(dir);
    return rc;
}

/* -- the command ----------------------------------------------------------------------------------- */

static void print_help(bool all)
{
    mt_str s = { 0 };
    mt_settings_help(&s, all);
    printf("usage: megatrain train FILE.yaml [options]\n\n"
           "Train or fine-tune a model.  --resume continues a run, --dry-run rehearses one and makes one step.\n\n"
           "  --dry-run                 Print the settings that are not defaults, the plan and\n"
           "                            the first sample, take one step, write and remove\n"
           "                            one checkpoint, end. --verbose: all settings and\n"
           "                            buffers.\n"
           "  --quiet, --verbose        Only results, warnings and errors; or more details.\n"
           "  --help-all                Every setting.\n\n%s",
           s.s ? s.s : "");
    mt_str_free(&s);
}

/* Arguments that are not settings. */
typedef struct rest {
    bool dry, help, help_all;
} rest;

/* Accepts --dry-run and --help, and refuses everything else. */
static mt_rc read_rest(int argc, char **argv, rest *out, mt_err *err)
{
    for (int i = 1; i < argc; i++) {
        char near[48];
        if (strcmp(argv[i], "--dry-run") == 0) {
            out->dry = true;
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            out->help = true;
        } else if (strcmp(argv[i], "--help-all") == 0) {
            out->help = out->help_all = true;
        } else if (argv[i][0] != '-') {
            return mt_fail(err, MT_EINVAL,
                           "train: \"%s\" is not a .yaml or .yml file; write megatrain train FILE.yaml, or give the model as "
                           "--model-name and the data as --dataset-path (several files with a comma between them)",
                           argv[i]);
        } else {
            mt_settings_nearest_flag(argv[i], near);
            return *near
                       ? mt_fail(err, MT_EINVAL, "train: %s is not known; did you mean %s?", argv[i], near)
                       : mt_fail(err, MT_EINVAL, "train: %s is not known; megatrain train --help-all lists every flag", argv[i]);
        }
    }
    return MT_OK;
}

static mt_rc read_args(app *a, int argc, char **argv, rest *out, mt_err *err)
{
    if (argc == 1)
        return mt_fail(
            err, MT_EINVAL,
            "train: give a configuration file (megatrain train FILE.yaml; configs/ has ready ones), or a model and data "
            "(megatrain train --model-name NAME --dataset-path FILE); megatrain train --help-all lists every setting");
    MT_TRY(mt_installed_configs(&a->s.arena, argc, argv, err));
    MT_TRY(mt_settings_args(&a->s, &argc, argv, err));
    MT_TRY(read_rest(argc, argv, out, err));
    return out->help ? MT_OK : mt_settings_check(&a->s, MT_NEED_MODEL | MT_NEED_DATA, err);
}

/* -- several machines ------------------------------------------------------------------------------ */

/* Runs once, on whichever thread comes first. */
static int tell_failure(app *a, const mt_err *err) { return atomic_exchange(&a->told, true) ? 1 : mt_cli_failed(err); }

static void last_words(void *user, const mt_err *e) { (void)tell_failure(user, e); }

static mt_rc open_ranks(app *a, mt_err *err)
{
    const mt_comm_options o = { .timeout_s = a->s.run.comm_timeout, .last = last_words, .self = a };
    a->launched = true;
    MT_TRY(mt_comm_launched(&a->comm, &o, err));
    if (is_first(a)) return MT_OK;
    mt_log_set_sink(NULL, NULL);
    mt_stop_quietly();
    return MT_OK;
}

/* The same on every rank, whichever the launcher reports.  A rank that got no signal itself does not know which one it was. */
static int failed_status(const mt_err *err)
{
    if (err->rc == MT_ESTOPPED) return mt_stop_signal() ? mt_stop_status() : 128 + SIGTERM;
    return err->rc == MT_EINVAL ? 2 : 1;
}

/* Every rank ends with the first failure of any rank; one of them prints it. */
static int end_failed(app *a, mt_err *err)
{
    if (!a->launched) (void)open_ranks(a, &(mt_err){ 0 }); /* also a rank that cannot read its settings: the others wait for it */
    if (!a->comm && mt_comm_launched_rank() > 0) {         /* MPI itself: all have failed in the same way, and when one ends, */
        sleep(1);                                          /* the launcher ends all */
        return failed_status(err);
    }
    if (!a->comm || a->comm->n_ranks == 1) return tell_failure(a, err);
    a->comm->api->fail(a->comm, err);
    if (strncmp(err->msg, "rank ", 5) != 0) mt_note(err, "rank %d (%s)", a->comm->rank, a->comm->hosts[a->comm->rank]);
    if (mt_comm_speaks(a->comm)) (void)tell_failure(a, err);
    fflush(NULL);
    return failed_status(err);
}

static mt_rc command(app *a, int argc, char **argv, mt_err *err)
{
    rest asked = { 0 };
    MT_TRY(mt_misused(read_args(a, argc, argv, &asked, err), err));
    if (asked.help) return print_help(asked.help_all), MT_OK;
    static const mt_color colors[] = {
        [MT_TRI_AUTO] = MT_COLOR_AUTO, [MT_TRI_TRUE] = MT_COLOR_ALWAYS, [MT_TRI_FALSE] = MT_COLOR_NEVER
    };
    a->screen.term = mt_terminal_of(stdout, colors[a->s.logging.color]);
    MT_TRY(open_ranks(a, err));
    if (asked.dry && a->comm->n_ranks > 1)
        return mt_fail(err, MT_EINVAL, "--dry-run rehearses on one machine: start it without mpirun or srun");
    if (asked.dry) {
        mt_stop_catch();
        return dry_run(a, err);
    }
    MT_TRY(check_name(a->s.save.output_dir, err));
    if (mt_verbosity_now() == MT_VERBOSE && is_first(a)) print_settings(a);
    if (is_first(a)) MT_TRY(mt_trainer_check_output(&a->s, err)); /* before a model is downloaded */
    mt_stop_catch();
    return train(a, err);
}

int mt_cmd_train(int argc, char **argv)
{
    mt_err err = { 0 };
    app a = { 0 };
    if (mt_settings_init(&a.s, &err)) return mt_cli_failed(&err);
    mt_train_screen_init(&a.screen);
    mt_log_set_sink(mt_train_screen_notice, &a.screen);
    mt_rc rc = command(&a, argc, argv, &err);
    mt_log_set_sink(NULL, NULL);
    mt_train_screen_deinit(&a.screen);
    mt_settings_deinit(&a.s);
    int status = rc ? end_failed(&a, &err) : 0;
    if (a.stopped) status = 128 + a.stopped;
    mt_comm_close(a.comm);
    return status;
}
