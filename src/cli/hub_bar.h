/* hub_bar.h - the hub for commands: resolves names, and shows downloads as one bar with speed and time left.
 *
 *     char *dir;
 *     MT_TRY(mt_hub_bar_model("Qwen/Qwen3-8B", "", MT_HUB_MODEL, &dir, err));       // all there is to it, for a model
 *
 *     mt_hub_bar bar;
 *     MT_TRY(mt_hub_bar_open(&bar, NULL, err));
 *     ... bar.hub ...
 *     mt_hub_bar_close(&bar);
 *
 * The bar goes to stderr, separate from a command's output. */
#ifndef MT_CLI_HUB_BAR_H
#define MT_CLI_HUB_BAR_H

#include "api/prepare.h"
#include "cli/progress.h"
#include "hub/hub.h"

typedef struct mt_hub_bar {
    mt_hub *hub;
    mt_terminal terminal;
    mt_progress bar;
    bool open;
    double start_s;
    uint64_t start_bytes; /* bytes that were already there */
} mt_hub_bar;

mt_rc mt_hub_bar_open(mt_hub_bar *b, const mt_hub_options *o, mt_err *err); /* o may be NULL; progress is the bar's */
/* Ends the bar of a download, if there is one. */
void mt_hub_bar_finish(mt_hub_bar *b);
void mt_hub_bar_close(mt_hub_bar *b); /* accepts a zeroed one */

/* Fails if `dir` is the directory of a run, given in place of a model in it. */
mt_rc mt_refuse_run(const char *dir, mt_err *err);
/* The directory of a model given by path (local or installed) or by name; newly allocated. */
mt_rc mt_hub_bar_model(const char *name, const char *revision, int needs, char **dir, mt_err *err);
/* A dataset of the hub (mt_feed_fetch_fn). */
mt_rc mt_hub_bar_dataset(const mt_hub_query *q, mt_hub_dataset *out, mt_err *err);
/* Both for api/prepare.h, which finds what a run's settings name. */
extern const mt_finder mt_hub_bar_finder;

#endif
