/* cmd_get.c - megatrain get NAME: downloads a model or dataset from the hub into the Hugging Face cache. */
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/hub_bar.h"
#include "cli/stop.h"

#include <stdio.h>

typedef struct wanted {
    const char *name, *revision, *subset, *split;
    bool dataset;
    int64_t connections;
    uint64_t piece_bytes;
} wanted;

static mt_rc get_dataset(mt_hub_bar *bar, const wanted *w, mt_err *err)
{
    mt_hub_dataset d;
    MT_TRY(mt_hub_dataset_open(
        bar->hub,
        &(mt_hub_query){ .name = w->name, .revision = w->revision, .subset = w->subset, .split = w->split, .newest = true }, &d,
        err));
    mt_hub_bar_finish(bar);
    for (size_t i = 0; i < d.n; i++) printf("%s\n", d.files[i]);
    mt_hub_dataset_close(&d);
    return MT_OK;
}

static mt_rc get_model(mt_hub_bar *bar, const wanted *w, mt_err *err)
{
    char *dir;
    if (w->split || w->subset) return mt_fail(err, MT_EINVAL, "get: --split and --subset are for datasets; add --dataset");
    MT_TRY(mt_hub_model(bar->hub, w->name, w->revision, MT_HUB_MODEL | MT_HUB_NEWEST, &dir, err));
    mt_hub_bar_finish(bar);
    printf("%s\n", dir);
    mt_free(dir);
    return MT_OK;
}

int mt_cmd_get(int argc, char **argv)
{
    mt_err err = { 0 };
    wanted w = { 0 };
    bool help;
    const mt_flag flags[] = {
        { "--dataset", MT_FLAG_BOOL, &w.dataset, NULL, "NAME is a dataset; its data files are listed", false },
        { "--revision", MT_FLAG_STR, &w.revision, "REV", "branch, tag or commit (default: the default branch)", false },
        { "--subset", MT_FLAG_STR, &w.subset, "NAME", "configuration of a dataset that has several", false },
        { "--split", MT_FLAG_STR, &w.split, "NAME", "split of a dataset (default train)", false },
        { "--connections", MT_FLAG_INT, &w.connections, "N", "downloads at the same time (default 8)", false },
        { "--piece-size", MT_FLAG_BYTES, &w.piece_bytes, "SIZE",
          "size of the pieces in which large files are downloaded and resumed (default 64Mi)", false },
    };
    const mt_usage usage = {
        "get",
        "NAME [options]",
        "Download a model (config, tokenizer, weights) or a dataset from the Hugging Face hub into the\n"
        "cache that other tools use too, and print its path.  An interrupted download continues\n"
        "where it stopped.  HF_HOME or HF_HUB_CACHE choose the cache, HF_ENDPOINT a mirror, HF_TOKEN\n"
        "gives access to private and gated repositories.",
        "NAME",
        flags,
        MT_COUNT(flags),
        NULL,
    };
    mt_hub_bar bar = { 0 };
    mt_rc rc = mt_flags_parse(&usage, argc, argv, &w.name, &help, &err);
    if (!rc && !help) {
        mt_stop_catch();
        rc = mt_hub_bar_open(&bar, &(mt_hub_options){ .n_connections = (int)w.connections, .piece_bytes = w.piece_bytes }, &err);
        if (!rc) rc = w.dataset ? get_dataset(&bar, &w, &err) : get_model(&bar, &w, &err);
        mt_hub_bar_close(&bar);
    }
    return rc ? mt_cli_failed(&err) : 0;
}
