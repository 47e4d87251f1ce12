/* checkpoint.c - writing checkpoints, keeping the last few, finding the one to resume from.  Their state files are in
 * ckpt_state.c. */
#include "ckpt/checkpoint.h"

#include "base/disk.h"
#include "base/file.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/spread.h"
#include "ckpt/ckpt_state.h"
#include "ckpt/manifest.h"
#include "ckpt/outdir.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PREFIX "checkpoint-"

char *mt_ckpt_path(const char *output_dir, int64_t step)
{
    char name[40];
    snprintf(name, sizeof name, PREFIX "%" PRId64, step);
    return mt_path_join(output_dir, name);
}

bool mt_ckpt_step_of(const char *path, int64_t *step)
{
    const char *name = mt_path_base(path), *digits = name + strlen(PREFIX);
    size_t n = strlen(name);
    if (n <= strlen(PREFIX) || n > strlen(PREFIX) + 18 || strncmp(name, PREFIX, strlen(PREFIX)) != 0) return false;
    if (strspn(digits, "0123456789") != strlen(digits)) return false;
    *step = strtoll(digits, NULL, 10);
    return true;
}

/* -- writing --------------------------------------------------------------------------------------- */

uint64_t mt_ckpt_bytes(const mt_ckpt_save *s)
{
    const mt_model *m = s->model->model;
    uint64_t resume = 4 * (uint64_t)m->n_params + 2 * (uint64_t)mt_dtype_bytes(s->io->moments) * (uint64_t)m->n_trained;
    for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);)
        if (at.w->no_low) resume -= 2 * (uint64_t)at.w->n;
    return mt_export_bytes(s->model) + (s->only_model ? 0 : resume);
}

typedef struct writing {
    const mt_ckpt_save *s;
    mt_exporter *weights;
    const char *resume; /* the directory */
    mt_manifest list;
} writing;

/* Unit by unit: a unit may change again as soon as it is written (C5). */
static mt_rc write_units(const writing *w, mt_layer_units units, mt__ckpt_file *state, mt_err *err)
{
    const mt_ckpt_save *s = w->s;
    for (int i = 0; i < units.n; i++) {
        int u = units.first + (s->backwards ? units.n - 1 - i : i);
        MT_TRY(mt_exporter_unit(w->weights, u, err));
        if (state) MT_TRY(mt__ckpt_file_put(state, u, err));
        if (s->io->done) s->io->done(s->io->user, u);
    }
    return state ? mt__ckpt_file_finish(state, err) : MT_OK;
}

/* A layer, the embedding or the head. */
static mt_rc write_layer(void *arg, int64_t i, mt_err *err)
{
    writing *w = arg;
    const mt_ckpt_save *s = w->s;
    const mt_model *m = s->model->model;
    mt__ckpt_file *state = NULL;
    int file = (int)(s->backwards ? mt__ckpt_files(m) - 1 - i : i);
    char name[64];
    if (!s->only_model) MT_TRY(mt__ckpt_file_create(&state, w->resume, m, file, s->io, err));
    mt_rc rc = write_units(w, mt__ckpt_file_units(m, file), state, err);
    mt__ckpt_file_free(state);
    snprintf(name, sizeof name, "resume/" MT__CKPT_UNIT, file);
    if (rc || s->only_model) return rc;
    return mt_manifest_take(&w->list, name, err);
}

static mt_rc write_files(const mt_ckpt_save *s, const char *resume, mt_err *err)
{
    for (size_t i = 0; i < s->n_files && !s->only_model; i++) {
        char *path = mt_path_join(resume, s->files[i].name);
        mt_rc rc = path ? mt_outfile_save(path, s->files[i].text, s->files[i].n, err) : mt_no_memory(err, "%s", resume);
        mt_free(path);
        if (rc) return rc;
    }
    return MT_OK;
}

static mt_rc checkpoint_fill(const mt_ckpt_save *s, const char *dir, mt_err *err)
{
    char *resume = mt_path_join(dir, "resume");
    writing w = { .s = s, .resume = resume };
    mt_manifest_init(&w.list, dir);
    mt_rc rc = resume ? mt_exporter_open(&w.weights, s->model, s->io, dir, err) : mt_no_memory(err, "%s", dir);
    if (!rc && !s->only_model) rc = mt_dir_make(resume, err);
    if (!rc) rc = mt_spread(s->io->n_readers, mt__ckpt_files(s->model->model), write_layer, &w, err);
    if (!rc) rc = mt_exporter_finish(w.weights, err);
    if (!rc) rc = write_files(s, resume, err);
    if (!rc) rc = mt_manifest_write(&w.list, err); /* C3: last */
    mt_manifest_deinit(&w.list);
    mt_exporter_close(w.weights);
    mt_free(resume);
    return rc;
}

mt_rc mt_ckpt_write(const mt_ckpt_save *s, mt_err *err)
{
    mt_outdir d = { 0 };
    char *path = mt_ckpt_path(s->output_dir, s->step);
    if (!path) return mt_no_memory(err, "%s", s->output_dir);
    mt_rc rc = mt_outdir_open(&d, path, err);
    d.before_publish = s->before_publish;
    d.user = s->user;
    if (!rc) rc = checkpoint_fill(s, d.tmp, err);
    if (!rc) rc = mt_outdir_publish(&d, err);
    mt_outdir_close(&d);
    if (rc) mt_note(err, "writing %s", path);
    mt_free(path);
    return rc;
}

/* -- which there are ------------------------------------------------------------------------------- */

static int by_step(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Nothing in an output directory is opened through a link; --resume DIR/checkpoint-N names a checkpoint elsewhere. */
static bool is_link(const char *dir, const char *name)
{
    struct stat st;
    char *path = mt_path_join(dir, name);
    bool yes = path && lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    if (yes) mt_warn("%s is a link and is passed over; name the directory it leads to (--resume) if you mean it", path);
    mt_free(path);
    return yes;
}

mt_rc mt_ckpt_list_open(mt_ckpt_list *out, const char *output_dir, mt_err *err)
{
    mt_dir_names names;
    *out = (mt_ckpt_list){ 0 };
    MT_TRY(mt_dir_list(&names, output_dir, err));
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < names.n; i++) {
        int64_t step;
        if (!mt_ckpt_step_of(names.items[i], &step) || is_link(output_dir, names.items[i])) continue;
        rc = mt_grow(&out->steps, &out->cap, out->n + 1, sizeof *out->steps, err);
        if (!rc) out->steps[out->n++] = step;
    }
    mt_dir_names_free(&names);
    if (rc)
        mt_ckpt_list_free(out);
    else if (out->n)
        qsort(out->steps, out->n, sizeof *out->steps, by_step);
    return rc;
}

void mt_ckpt_list_free(mt_ckpt_list *l)
{
    mt_free(l->steps);
    *l = (mt_ckpt_list){ 0 };
}

mt_rc mt_ckpt_prune(const char *output_dir, int64_t keep, mt_err *err)
{
    mt_ckpt_list l;
    if (keep <= 0) return MT_OK;
    MT_TRY(mt_ckpt_list_open(&l, output_dir, err));
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i + (size_t)keep < l.n; i++) {
        char *path = mt_ckpt_path(output_dir, l.steps[i]);
        rc = path ? mt_dir_discard(path, err) : mt_no_memory(err, "%s", output_dir);
        mt_free(path);
    }
    mt_ckpt_list_free(&l);
    return rc;
}

/* -- which is whole -------------------------------------------------------------------------------- */

mt_rc mt_ckpt_verify(const char *path, mt_err *err)
{
    MT_TRY(mt_manifest_verify(path, err));
    char *state = mt_path_join(path, "resume/state.json");
    if (!state) return mt_no_memory(err, "%s", path);
    bool resumable = mt_file_exists(state);
    mt_free(state);
    if (resumable) return MT_OK;
    return mt_fail(err, MT_EINVAL, "%s holds a model and nothing to resume from (save.save_only_model was set)", path);
}

/* Move it aside, under a name that is not taken for a checkpoint. */
static mt_rc set_aside(const char *path, const char *why, mt_err *err)
{
    char *to = mt_asprintf("%s.damaged", path);
    if (!to) return mt_no_memory(err, "%s", path);
    mt_warn("%s; it is moved to %s, and the checkpoint before it is tried", why, mt_path_base(to));
    mt_rc rc = mt_dir_remove(to, err);
    if (!rc && mt_disk_rename(path, to)) rc = mt_fail_errno(err, MT_EIO, "renaming %s to %s", path, to);
    mt_free(to);
    return rc;
}

mt_rc mt_ckpt_find_newest(char **out, const char *output_dir, mt_err *err)
{
    mt_ckpt_list l;
    *out = NULL;
    MT_TRY(mt_ckpt_list_open(&l, output_dir, err));
    mt_rc rc = MT_OK;
    for (size_t i = l.n; !rc && !*out && i-- > 0;) {
        mt_err why = { 0 };
        char *path = mt_ckpt_path(output_dir, l.steps[i]);
        mt_rc bad = path ? mt_ckpt_verify(path, &why) : MT_ENOMEM;
        if (bad == MT_OK)
            *out = path, path = NULL;
        else if (bad == MT_ENOMEM)
            rc = mt_no_memory(err, "%s", output_dir);
        else if (bad == MT_EINVAL)
            rc = mt_fail(err, bad, "%s; --overwrite starts over", why.msg);
        else if (bad == MT_EIO) /* rights, limits, a mount that is away: what cannot be read now may be whole */
            rc = mt_fail(err, bad,
                         "%s.\n  Whether %s is whole cannot be seen, and it is left as it is.  Make it readable; or, if its disk "
                         "has failed, move it away, and the one before it is taken",
                         why.msg, path);
        else
            rc = set_aside(path, why.msg, err);
        mt_free(path);
    }
    mt_ckpt_list_free(&l);
    return rc;
}

/* -- reading --------------------------------------------------------------------------------------- */

mt_rc mt_ckpt_read(char **text, size_t *n, const char *path, const char *name, mt_err *err)
{
    enum { MAX_BYTES = 64 << 20 };
    char *file = mt_asprintf("%s/resume/%s", path, name);
    if (!file) return mt_no_memory(err, "%s", path);
    mt_rc rc = mt_file_read(text, n, file, MAX_BYTES, err);
    mt_free(file);
    return rc;
}

typedef struct loading {
    const char *dir;
    const mt_model *model;
    const mt_state_io *io;
} loading;

static mt_rc load_file(void *arg, int64_t file, mt_err *err)
{
    const loading *l = arg;
    return mt__ckpt_load_file(l->dir, l->model, (int)file, l->io, err);
}

mt_rc mt_ckpt_load(const char *path, const mt_model *model, const mt_state_io *io, mt_err *err)
{
    char *dir = mt_path_join(path, "resume");
    if (!dir) return mt_no_memory(err, "%s", path);
    mt_rc rc = mt_spread(io->n_writers, mt__ckpt_files(model), load_file, &(loading){ dir, model, io }, err);
    mt_free(dir);
    return rc ? mt_note(err, "resuming from %s", path) : MT_OK;
}
