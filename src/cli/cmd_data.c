/* cmd_data.c - megatrain data: shows what a run would be trained on, sample by sample and as a whole. */
#include "base/units.h"
#include "ckpt/model_files.h"
#include "cli/caches.h"
#include "cli/commands.h"
#include "cli/data_json.h"
#include "cli/data_view.h"
#include "cli/flags.h"
#include "cli/hub_bar.h"
#include "cli/installed.h"
#include "cli/progress.h"
#include "cli/stop.h"
#include "run/feed.h"
#include "settings/settings.h"

#include <stdio.h>

typedef struct options {
    int64_t show;
    bool ids, json, help;
} options;

static mt_rc cmd_data_parse(mt_settings *s, options *o, int argc, char **argv, mt_err *err)
{
    const mt_flag flags[] = { { "--show", MT_FLAG_INT, &o->show, "N", "print N samples with trained tokens marked (default 1)",
                                false },
                              { "--ids", MT_FLAG_BOOL, &o->ids, NULL, "also print their token ids", false },
                              { "--json", MT_FLAG_BOOL, &o->json, NULL, "print JSON for scripts (docs/scripting.md)", false } };
    const mt_usage usage = {
        "data",
        "FILE.yaml [options]",
        "Show what a run would be trained on: samples with the trained tokens colored (in [[brackets]] without color), and\n"
        "a summary: lengths, cut samples, bad records, unread columns.  Every setting of train is accepted too.\n"
        "Exits with 1 if training would stop at a finding.",
        NULL,
        flags,
        MT_COUNT(flags),
        mt_print_settings
    };
    MT_TRY(mt_installed_configs(&s->arena, argc, argv, err));
    MT_TRY(mt_misused(mt_settings_args(s, &argc, argv, err), err));
    MT_TRY(mt_flags_parse(&usage, argc, argv, NULL, &o->help, err));
    if (o->show < 0) return mt_fail(err, MT_EINVAL, "data: --show expects how many samples, not %lld", (long long)o->show);
    return o->help ? MT_OK : mt_misused(mt_settings_check(s, MT_NEED_MODEL | MT_NEED_DATA, err), err);
}

/* The model's vocabulary and positions, if there is a config.json; the tokenizer alone is enough. */
static void ask_model(const mt_settings *s, mt_feed_options *o)
{
    mt_config *config;
    if (mt_model_files_config(&config, mt_settings_model_dir(s), NULL)) return;
    o->vocab = config->V;
    o->max_positions = config->max_positions;
    mt_config_close(config);
}

/* A bar for each dataset that has to be tokenized. */
typedef struct bars {
    mt_progress bar;
    const mt_terminal *terminal;
    const char *of; /* the dataset */
    char what[128];
} bars;

static mt_rc on_progress(void *user, const mt_store_progress *p, mt_err *err)
{
    bars *b = user;
    mt_progress *bar = &b->bar;
    char note[160];
    (void)err;
    if (b->of != p->what) {
        b->of = p->what;
        snprintf(b->what, sizeof b->what, "tokenizing %s", p->what);
        mt_progress_start(bar, b->terminal, b->what, 1);
        bar->percent = true;
        mt_progress_begun(bar, p->begun_s);
    }
    snprintf(note, sizeof note, "%s record%s, %s tokens", mt_count_text((uint64_t)p->n_records).s, p->n_records == 1 ? "" : "s",
             mt_count_text((uint64_t)p->n_tokens).s);
    mt_progress_update(bar, p->share, note);
    if (p->share >= 1) mt_progress_finish(bar);
    return MT_OK;
}

/* The rows after the samples, broken into lines that a terminal has room for; a pipe gets one line per row. */
static mt_rc put_summary(mt_str *out, const mt_feed *f, const mt_settings *s, const mt_terminal *t, mt_err *err)
{
    enum { ROW_INDENT = 13 };
    mt_str rows = { 0 };
    int columns = mt_terminal_columns(t);
    mt_rc rc = mt_data_view_summary(&rows, f, s, columns, t->utf8, err);
    if (!rc) mt_data_view_findings(&rows, mt_feed_findings(f), t->color);
    if (!rc && !mt_str_ok(&rows)) rc = mt_no_memory(err, "the output");
    if (!rc && t->live)
        mt_text_wrap(out, rows.s, columns, ROW_INDENT);
    else if (!rc)
        mt_str_add(out, rows.s, rows.n);
    mt_str_free(&rows);
    return rc;
}

static mt_rc show(const mt_feed *f, const mt_settings *s, const options *o, const mt_terminal *t, mt_err *err)
{
    mt_str out = { 0 };
    mt_rc rc = o->json ? mt_data_json(&out, f, s, o->show, err) : mt_data_view_samples(&out, f, o->show, o->ids, t->color, err);
    if (!rc && !o->json) rc = put_summary(&out, f, s, t, err);
    if (!rc && !mt_str_ok(&out)) rc = mt_no_memory(err, "the output");
    if (!rc && fwrite(out.s, 1, out.n, stdout) != out.n) rc = mt_fail_errno(err, MT_EIO, "writing the output");
    mt_str_free(&out);
    return rc;
}

int mt_cmd_data(int argc, char **argv)
{
    mt_err err = { 0 };
    mt_settings s;
    options o = { .show = 1 };
    mt_feed *f = NULL;
    mt_stop_catch();
    if (mt_settings_init(&s, &err)) return mt_cli_failed(&err);
    mt_rc rc = cmd_data_parse(&s, &o, argc, argv, &err);
    if (!rc && !o.help) {
        mt_color color = MT_COLOR_AUTO;
        if (s.logging.color == MT_TRI_TRUE) color = MT_COLOR_ALWAYS;
        if (s.logging.color == MT_TRI_FALSE) color = MT_COLOR_NEVER;
        mt_terminal out = mt_terminal_of(stdout, color), notes = mt_terminal_of(stderr, color);
        bars progress = { .terminal = &notes };
        char installed[1024];
        mt_feed_options fo = { .installed = mt_installed(installed, sizeof installed, "data"),
                               .lenient = true,
                               .fetch = mt_hub_bar_dataset,
                               .progress = on_progress,
                               .user = &progress,
                               .stop = mt_stop_flag() };
        rc = mt_caches_settle(&s, &err);
        if (!rc) rc = mt_prepare_model(&s, &mt_hub_bar_finder, MT_HUB_CONFIG | MT_HUB_TOKENIZER, &err);
        if (!rc) ask_model(&s, &fo);
        if (!rc) rc = mt_feed_open(&f, &s, &fo, &err);
        if (!rc) rc = show(f, &s, &o, &out, &err);
        if (!rc) rc = mt_data_view_verdict(f, &s, &err);
    }
    mt_feed_close(f);
    mt_settings_deinit(&s);
    return rc ? mt_cli_failed(&err) : 0;
}
