#include "cli/hub_bar.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "base/units.h"
#include "ckpt/model_files.h"
#include "cli/installed.h"
#include "cli/stop.h"

#include <stdio.h>
#include <string.h>

static const double MB = 1e6;

static void hub_bar_show(void *user, const mt_hub_progress *p)
{
    mt_hub_bar *b = user;
    char note[128];
    if (!b->open) {
        if (p->done_bytes == p->total_bytes || p->total_bytes < 1000000) return; /* nothing to download, or done in a moment */
        mt_progress_start(&b->bar, &b->terminal, "downloading (MB)", (double)p->total_bytes / MB);
        mt_progress_skip(&b->bar, (double)p->done_bytes / MB);
        b->open = true;
        b->start_s = mt_now_s();
        b->start_bytes = p->done_bytes;
    }
    double s = mt_now_s() - b->start_s;
    bool moved = p->done_bytes > b->start_bytes && s > 0.5;
    snprintf(note, sizeof note, "%s%s%s", p->what, moved ? "  " : "",
             moved ? mt_bytes_text((uint64_t)((double)(p->done_bytes - b->start_bytes) / s)).s : "");
    if (moved) snprintf(note + strlen(note), sizeof note - strlen(note), "/s");
    mt_progress_update(&b->bar, (double)p->done_bytes / MB, note);
    if (p->done_bytes == p->total_bytes) mt_hub_bar_finish(b);
}

mt_rc mt_hub_bar_open(mt_hub_bar *b, const mt_hub_options *o, mt_err *err)
{
    mt_hub_options own = o ? *o : (mt_hub_options){ 0 };
    *b = (mt_hub_bar){ .terminal = mt_terminal_of(stderr, MT_COLOR_AUTO) };
    own.progress = hub_bar_show;
    own.user = b;
    own.stop = mt_stop_flag();
    return mt_hub_open(&b->hub, &own, err);
}

void mt_hub_bar_finish(mt_hub_bar *b)
{
    if (b->open) mt_progress_finish(&b->bar);
    b->open = false;
}

void mt_hub_bar_close(mt_hub_bar *b)
{
    mt_hub_bar_finish(b);
    mt_hub_close(b->hub);
    b->hub = NULL;
}

static bool has_file(const char *dir, const char *name)
{
    char *path = mt_path_join(dir, name);
    bool has = path && mt_file_exists(path);
    mt_free(path);
    return has;
}

static bool is_model_dir(const char *dir) { return has_file(dir, "config.json"); }

mt_rc mt_refuse_run(const char *dir, mt_err *err)
{
    if (is_model_dir(dir) || !has_file(dir, "plan.json")) return MT_OK;
    return mt_fail(err, MT_EINVAL, "%s is the directory of a run; name a model in it: final, or a checkpoint-N", dir);
}

/* A file in place of the directory it is in.  One file may be enough to look at a config or to tokenize. */
static mt_rc refuse_file(const char *path, int needs, mt_err *err)
{
    const bool weights = mt_ends_with(path, ".safetensors") || mt_ends_with(path, ".bin");
    if (((needs == MT_HUB_CONFIG || needs == MT_HUB_TOKENIZER) && !weights) || mt_model_files_exist(path)) return MT_OK;
    return mt_fail(err, MT_EINVAL, "%s is a file; give the model's directory, a .gguf file or a name on the hub", path);
}

/* The path if no hub is needed: a local path or an installed model; NULL: neither. */
static const char *find_here(const char *name, char *path, size_t n)
{
    if (mt_dir_exists(name) || mt_file_exists(name)) return name;
    const char *there = mt_installed(path, n, name);
    return there && is_model_dir(there) ? there : NULL;
}

mt_rc mt_hub_bar_model(const char *name, const char *revision, int needs, char **dir, mt_err *err)
{
    mt_hub_bar b;
    char path[1024];
    const char *here = find_here(name, path, sizeof path);
    *dir = NULL;
    if (here) MT_TRY(mt_refuse_run(here, err));
    if (here) MT_TRY(refuse_file(here, needs, err));
    if (here) { /* then the hub's environment variables are not needed either */
        *dir = mt_strdup(here);
        return *dir ? MT_OK : mt_no_memory(err, "a path");
    }
    MT_TRY(mt_hub_bar_open(&b, NULL, err));
    mt_rc rc = mt_hub_model(b.hub, name, revision, needs, dir, err);
    mt_hub_bar_close(&b);
    return rc;
}

static bool hub_bar_is_here(const char *name)
{
    char path[1024];
    return find_here(name, path, sizeof path);
}

mt_rc mt_hub_bar_dataset(const mt_hub_query *q, mt_hub_dataset *out, mt_err *err)
{
    mt_hub_bar b;
    MT_TRY(mt_hub_bar_open(&b, NULL, err));
    mt_rc rc = mt_hub_dataset_open(b.hub, q, out, err);
    mt_hub_bar_close(&b);
    return rc;
}

const mt_finder mt_hub_bar_finder = { .is_here = hub_bar_is_here, .model = mt_hub_bar_model, .dataset = mt_hub_bar_dataset };
