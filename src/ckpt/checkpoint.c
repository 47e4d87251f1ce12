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
    if (digits[0] == '0' && digits[1]) return false; /* mt_ckpt_path() would lead elsewhere */
    *step = strtoll(digits, NULL, 10);
    return true;
}

/* -- writing --------------------------------------------------------------------------------------- */

uint64_t mt_ckpt_bytes(const mt_ckpt_save *s)
{
    const mt_model *m = s->model->model;
    uint64_t resume = 0;
    for (int f = 0; f < mt__ckpt_files(m); f++) resume += mt__ckpt_file_bytes(m, f, s->io->form);
    return mt_export_bytes(s->model) + (s->only_model ? 0 : resume);
}

struct mt_ckpt_writer {
    mt_ckpt_save s;
    char *path, *tmp, *resume; /* checkpoint-STEP, what it is called until it is complete, and resume/ in that */
    mt_outdir dir;             /* rank 0's */
    mt_writers writers;
    mt_exporter *weights;
    int n_files;  /* state files: resume/unit-... */
    int *owners;  /* [n_files] the rank that writes each */
    int *readers; /* [n_units] how many ranks read each */
    bool *mine;   /* [n_units] this rank does */
    mt_manifest list;
    int n_written;
    mt_ckpt_written *written; /* [all files] those of this rank */
};

static mt_rc name_it(mt_ckpt_writer *w, mt_err *err)
{
    w->path = mt_ckpt_path(w->s.output_dir, w->s.step);
    w->tmp = w->path ? mt_outdir_tmp_name(w->path, w->s.mark) : NULL;
    w->resume = w->tmp ? mt_path_join(w->tmp, "resume") : NULL;
    return w->resume ? MT_OK : mt_no_memory(err, "%s", w->s.output_dir);
}

static mt_rc make_dir(mt_ckpt_writer *w, mt_err *err)
{
    if (w->s.rank) return MT_OK;
    MT_TRY(mt_outdir_open_marked(&w->dir, w->path, w->s.mark, err));
    w->dir.before_publish = w->s.before_publish;
    w->dir.user = w->s.user;
    return w->s.only_model ? MT_OK : mt_dir_make(w->resume, err);
}

mt_rc mt_ckpt_writer_open(mt_ckpt_writer **out, const mt_ckpt_save *s, mt_err *err)
{
    *out = NULL;
    mt_ckpt_writer *w = mt_calloc(1, sizeof *w);
    if (!w) return mt_no_memory(err, "%s", s->output_dir);
    w->s = *s;
    w->n_files = s->only_model ? 0 : mt__ckpt_files(s->model->model);
    mt_rc rc = name_it(w, err);
    mt_manifest_init(&w->list, w->tmp);
    if (!rc) rc = make_dir(w, err);
    if (rc && w->path) mt_note(err, "writing %s", w->path);
    if (rc)
        mt_ckpt_writer_close(w);
    else
        *out = w;
    return rc;
}

/* Which ranks read a unit: those that write its state, or some of its weights. */
static mt_rc find_readers(mt_ckpt_writer *w, int unit, int state_owner, bool *reads, mt_err *err)
{
    memset(reads, 0, (size_t)w->writers.n * sizeof *reads);
    MT_TRY(mt_exporter_readers(w->weights, unit, reads, err));
    if (state_owner >= 0) reads[state_owner] = true;
    for (int r = 0; r < w->writers.n; r++) w->readers[unit] += reads[r];
    w->mine[unit] = reads[w->writers.rank];
    return MT_OK;
}

static mt_rc checkpoint_deal(mt_ckpt_writer *w, mt_err *err)
{
    const mt_model *m = w->s.model->model;
    const size_t n_files = (size_t)mt__ckpt_files(m), n_units = (size_t)m->n_units;
    w->owners = mt_calloc(n_files, sizeof *w->owners);
    w->readers = mt_calloc(n_units, sizeof *w->readers);
    w->mine = mt_calloc(n_units, sizeof *w->mine);
    w->written = mt_calloc(n_files + mt_exporter_files(w->weights), sizeof *w->written);
    bool *reads = mt_calloc((size_t)w->writers.n, sizeof *reads);
    mt_rc rc = w->owners && w->readers && w->mine && w->written && reads ? MT_OK : mt_no_memory(err, "dealing files");
    for (int f = 0; !rc && f < (int)n_files; f++) {
        const mt_layer_units units = mt__ckpt_file_units(m, f);
        w->owners[f] = w->s.only_model ? -1 : mt_writers_deal(&w->writers, mt__ckpt_file_bytes(m, f, w->s.io->form));
        for (int u = units.first; !rc && u < units.first + units.n; u++) rc = find_readers(w, u, w->owners[f], reads, err);
    }
    mt_free(reads);
    return rc;
}

mt_rc mt_ckpt_writer_start(mt_ckpt_writer *w, mt_err *err)
{
    mt_rc rc = mt_writers_init(&w->writers, w->s.rank, w->s.n_ranks, err);
    if (!rc) rc = mt_exporter_open(&w->weights, w->s.model, w->s.io, w->tmp, &w->writers, err);
    if (!rc) rc = checkpoint_deal(w, err);
    return rc ? mt_note(err, "writing %s", w->path) : MT_OK;
}

int mt_ckpt_writer_readers(const mt_ckpt_writer *w, int unit) { return w->readers[unit]; }

/* Files by number: those of the weights first. */
static int count_files(const mt_ckpt_writer *w) { return (int)mt_exporter_files(w->weights) + w->n_files; }

typedef struct file_name {
    char s[96];
} file_name;

static file_name name_of(const mt_ckpt_writer *w, int file)
{
    const size_t shards = mt_exporter_files(w->weights);
    file_name name;
    if ((size_t)file < shards)
        snprintf(name.s, sizeof name.s, "%s", mt_shards_file_name((size_t)file, shards).s);
    else
        snprintf(name.s, sizeof name.s, "resume/" MT__CKPT_UNIT, (int)((size_t)file - shards));
    return name;
}

/* Unit by unit: a unit may change again as soon as it is written (C5). */
static mt_rc write_units(const mt_ckpt_writer *w, mt_layer_units units, mt__ckpt_file *state, mt_err *err)
{
    const mt_ckpt_save *s = &w->s;
    for (int i = 0; i < units.n; i++) {
        int u = units.first + (s->backwards ? units.n - 1 - i : i);
        if (!w->mine[u]) continue;
        MT_TRY(mt_exporter_unit(w->weights, u, err));
        if (state) MT_TRY(mt__ckpt_file_put(state, u, err));
        if (s->io->done) s->io->done(s->io->user, u);
    }
    return state ? mt__ckpt_file_finish(state, err) : MT_OK;
}

/* A layer, the embedding or the head, as far as it is this rank's. */
static mt_rc write_layer(void *arg, int64_t i, mt_err *err)
{
    mt_ckpt_writer *w = arg;
    const mt_model *m = w->s.model->model;
    mt__ckpt_file *state = NULL;
    const int file = (int)(w->s.backwards ? mt__ckpt_files(m) - 1 - i : i);
    const bool owns = w->owners[file] == w->writers.rank;
    if (owns) MT_TRY(mt__ckpt_file_create(&state, w->resume, m, file, w->s.io, err));
    mt_rc rc = write_units(w, mt__ckpt_file_units(m, file), state, err);
    mt__ckpt_file_free(state);
    if (rc || !owns) return rc;
    return mt_manifest_take(&w->list, name_of(w, (int)mt_exporter_files(w->weights) + file).s, err);
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

static mt_rc take_weights(mt_ckpt_writer *w, mt_err *err)
{
    for (size_t f = 0; f < mt_exporter_files(w->weights); f++)
        if (mt_exporter_writes(w->weights, f)) MT_TRY(mt_manifest_take(&w->list, name_of(w, (int)f).s, err));
    return MT_OK;
}

/* What this rank has written, by number; before anything of others is taken. */
static void list_written(mt_ckpt_writer *w)
{
    for (int f = 0; f < count_files(w); f++) {
        const mt_manifest_entry *e = mt_manifest_find(&w->list, name_of(w, f).s);
        if (e) w->written[w->n_written++] = (mt_ckpt_written){ f, e->bytes, e->sum };
    }
}

mt_rc mt_ckpt_writer_put(mt_ckpt_writer *w, mt_err *err)
{
    mt_rc rc = mt_spread(w->s.io->n_readers, mt__ckpt_files(w->s.model->model), write_layer, w, err);
    if (!rc) rc = mt_exporter_finish(w->weights, err);
    if (!rc) rc = take_weights(w, err);
    if (!rc && w->s.rank == 0) rc = write_files(&w->s, w->resume, err);
    if (!rc && w->s.rank) list_written(w);
    return rc ? mt_note(err, "writing %s", w->path) : MT_OK;
}

bool mt_ckpt_writer_written(const mt_ckpt_writer *w, int i, mt_ckpt_written *out)
{
    if (i >= w->n_written) return false;
    *out = w->written[i];
    return true;
}

mt_rc mt_ckpt_writer_take(mt_ckpt_writer *w, const mt_ckpt_written *file, mt_err *err)
{
    if (file->file < 0 || file->file >= count_files(w))
        return mt_fail(err, MT_EINTERNAL, "another rank has written file %d of %s, which has %d", (int)file->file, w->path,
                       count_files(w));
    return mt_manifest_take_known(&w->list, name_of(w, file->file).s, file->bytes, file->sum, err);
}

/* A checkpoint without one of its files must not get its name. */
static mt_rc check_complete(const mt_ckpt_writer *w, mt_err *err)
{
    for (int f = 0; f < count_files(w); f++)
        if (!mt_manifest_find(&w->list, name_of(w, f).s))
            return mt_fail(err, MT_EINTERNAL, "no rank has written %s", name_of(w, f).s);
    return MT_OK;
}

mt_rc mt_ckpt_writer_publish(mt_ckpt_writer *w, mt_err *err)
{
    mt_rc rc = check_complete(w, err);
    if (!rc) rc = mt_manifest_write(&w->list, err); /* C3: last */
    if (!rc) rc = mt_outdir_publish(&w->dir, err);
    return rc ? mt_note(err, "writing %s", w->path) : MT_OK;
}

void mt_ckpt_writer_close(mt_ckpt_writer *w)
{
    if (!w) return;
    mt_exporter_close(w->weights);
    mt_outdir_close(&w->dir);
    mt_manifest_deinit(&w->list);
    mt_writers_deinit(&w->writers);
    mt_free(w->owners);
    mt_free(w->readers);
    mt_free(w->mine);
    mt_free(w->written);
    mt_free(w->path);
    mt_free(w->tmp);
    mt_free(w->resume);
    mt_free(w);
}

mt_rc mt_ckpt_write(const mt_ckpt_save *s, mt_err *err)
{
    mt_ckpt_writer *w = NULL;
    mt_rc rc = mt_ckpt_writer_open(&w, s, err);
    if (!rc) rc = mt_ckpt_writer_start(w, err);
    if (!rc) rc = mt_ckpt_writer_put(w, err);
    if (!rc) rc = mt_ckpt_writer_publish(w, err);
    mt_ckpt_writer_close(w);
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

static mt_rc has_state(bool *out, const char *path, mt_err *err)
{
    char *state = mt_path_join(path, "resume/state.json");
    if (!state) return mt_no_memory(err, "%s", path);
    *out = mt_file_exists(state);
    mt_free(state);
    return MT_OK;
}

mt_rc mt_ckpt_verify(const char *path, mt_err *err)
{
    bool resumable;
    MT_TRY(mt_manifest_verify(path, err));
    MT_TRY(has_state(&resumable, path, err));
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

/* The newest of the first n holds a model only.  Starting over must not be the advice while an older one can be resumed. */
static mt_rc only_a_model(const mt_ckpt_list *l, size_t n, const char *output_dir, const char *why, mt_err *err)
{
    for (size_t i = n - 1; i-- > 0;) {
        bool resumable = false;
        char *path = mt_ckpt_path(output_dir, l->steps[i]);
        mt_rc rc = path ? has_state(&resumable, path, err) : mt_no_memory(err, "%s", output_dir);
        mt_free(path);
        if (rc) return rc;
        if (resumable) return mt_fail(err, MT_EINVAL, "%s; move it away to resume from checkpoint-%" PRId64, why, l->steps[i]);
    }
    return mt_fail(err, MT_EINVAL, "%s; --overwrite starts over", why);
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
            rc = only_a_model(&l, i + 1, output_dir, why.msg, err);
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
