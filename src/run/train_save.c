/* train_save.c - checkpoints, written by a separate thread while the run continues, and the finished model.
 *
 * With several machines, each writes some of the files (ckpt/writers.h) and reads from the others what they store
 * (mt_state_read_anywhere); the same code writes the same bytes for any number of machines (N9).  Each machine locks and copies its
 * own state, and unlocks a unit when every machine that writes some of it has read it.  The first machine makes the directory, and
 * renames it when all machines have written and synced their files. */
#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/thread.h"
#include "ckpt/outdir.h"
#include "run/ranks.h"
#include "run/train_internal.h"

#include <string.h>

mt_ckpt_save mt__train_ckpt(const mt_trainer *t)
{
    return (mt_ckpt_save){ .output_dir = t->dir.path,
                           .step = t->at.step,
                           .model = &t->net.export,
                           .io = &t->exec.io,
                           .only_model = t->s->save.save_only_model,
                           .before_publish = mt_output_dir_own_made,
                           .user = (void *)(uintptr_t)&t->dir };
}

/* -- the writing thread ---------------------------------------------------------------------------- */

static mt_rc read_state(void *user, mt_state_range r, void *dst, mt_err *err)
{
    return mt_state_read_anywhere(((saver *)user)->trained, r, dst, err);
}

static mt_rc read_here(void *user, mt_state_range r, void *dst, mt_err *err)
{
    return mt_snapshot_read(((saver *)user)->snapshot, r, dst, err);
}

/* A machine, this one or another, has read the unit for the last time. */
static void drop_here(void *user, int unit)
{
    saver *s = user;
    if (atomic_fetch_sub(&s->readers[unit], 1) == 1) mt_snapshot_drop(s->snapshot, unit);
}

/* Failing to report this to the other machines ends the run. */
static void unit_done(void *user, int unit)
{
    saver *s = user;
    mt_err ignored = { 0 };
    drop_here(s, unit);
    if (!s->alone) (void)mt_state_drop_everywhere(s->trained, unit, &ignored);
}

static mt_rc take_note(void *user, int number, uint64_t bytes, uint64_t sum, mt_err *err)
{
    return mt_ckpt_writer_take(((saver *)user)->writer, &(mt_ckpt_written){ number, bytes, sum }, err);
}

/* Leaves half of the cores to the compute threads. */
static int save_threads(void) { return (int)mt_max_i64(1, mt_min_i64(mt_cpu_count() / 2, MT_STATE_SLOTS)); }

mt_snapshot_options mt__train_aside(const mt_trainer *t, size_t room)
{
    return (mt_snapshot_options){ .room = room,
                                  .n_threads = save_threads(),
                                  .backwards = !t->exec.plan->job.clip, /* then the last units are updated first */
                                  .only_weights = t->s->save.save_only_model,
                                  .form = t->exec.io.form,
                                  .plan = t->comm->n_ranks > 1 ? t->exec.plan : NULL };
}

/* Copies as much of the state as fits, so that the run need not wait for the disk. */
static mt_rc set_aside(saver *s, mt_err *err)
{
    MT_TRY(mt_snapshot_take(&s->snapshot, s->trained, s->model.model, &s->how, err));
    if (mt_snapshot_bytes(s->snapshot) > s->aside) s->aside = mt_snapshot_bytes(s->snapshot);
    return MT_OK;
}

/* The others count on it, so it comes before anyone can be asked for anything. */
static mt_rc deal_files(saver *s, mt_err *err)
{
    MT_TRY(mt_ckpt_writer_start(s->writer, err));
    for (int u = 0; u < s->model.model->n_units; u++) atomic_store(&s->readers[u], mt_ckpt_writer_readers(s->writer, u));
    return MT_OK;
}

/* This machine's files; then the first machine waits for those of all others, and completes the checkpoint. */
static mt_rc write_part(saver *s, mt_err *err)
{
    mt_ckpt_written file;
    MT_TRY(mt_ckpt_writer_put(s->writer, err));
    for (int i = 0; mt_ckpt_writer_written(s->writer, i, &file); i++)
        MT_TRY(mt_state_note_first(s->trained, file.file, file.bytes, file.sum, err));
    if (!s->first) return MT_OK;
    MT_TRY(mt_state_await_closed(s->trained, err));
    return mt_ckpt_writer_publish(s->writer, err);
}

/* The first machine closes last, so when the others return, the checkpoint is complete. */
static mt_rc write_and_answer(saver *s, mt_err *err)
{
    const mt_reads reads = { .here = read_here, .dropped = drop_here, .noted = s->first ? take_note : NULL, .user = s };
    mt_err why = { 0 };
    MT_TRY(mt_state_open_reads(s->trained, &reads, err));
    mt_rc rc = write_part(s, err);
    if (rc && !s->alone) mt_state_fail(s->trained, err);
    mt_rc closed = mt_state_close_reads(s->trained, rc ? &why : err);
    return rc ? rc : closed;
}

static void *saver_main(void *arg)
{
    saver *s = arg;
    mt_rc rc = set_aside(s, &s->error);
    if (!rc) rc = deal_files(s, &s->error);
    if (rc && !s->alone) mt_state_fail(s->trained, &s->error); /* the others wait for this one */
    if (!rc) rc = write_and_answer(s, &s->error);
    mt_ckpt_writer_close(s->writer);
    s->writer = NULL;
    mt_snapshot_free(s->snapshot);
    s->snapshot = NULL;
    mt_state_unlock_all(s->trained); /* in every case, the run can continue */
    /* C4: only now may an older one be removed.  If it stays, that costs disk space, not the run. */
    if (!rc && s->first && !mt_output_dir_check(s->ckpt.user, &s->warning) &&
        !mt_ckpt_prune(s->ckpt.output_dir, s->keep_last, &s->warning))
        s->warning = (mt_err){ 0 };
    if (!rc) s->error = (mt_err){ 0 }; /* an error of an optional attempt */
    s->seconds = mt_now_s() - s->start_s;
    atomic_store(&s->finished, true);
    return NULL;
}

/* Gives the thread everything it needs, so that it never touches the trainer. */
static mt_rc train_save_prepare(mt_trainer *t, bool goes_on, mt_err *err)
{
    saver *s = &t->saver;
    MT_TRY(mt_metrics_sync(&t->metrics, err)); /* C7: synced before a checkpoint relies on it */
    MT_TRY(mt__train_state_text(t, &s->state, err));
    mt_settings_write_yaml(t->s, &s->settings);
    if (!mt_str_ok(&s->settings)) return mt_no_memory(err, "the settings of the run");
    s->files[0] = (mt_ckpt_file){ "state.json", s->state.s, s->state.n };
    s->files[1] = (mt_ckpt_file){ "settings.yaml", s->settings.s, s->settings.n };
    s->trained = mt_engine_state(t->exec.engine);
    s->alone = t->comm->n_ranks == 1;
    s->first = t->comm->rank == 0;
    s->readers = mt_calloc((size_t)t->net.model->n_units, sizeof *s->readers);
    if (!s->readers) return mt_no_memory(err, "writing a checkpoint");
    s->model = t->net.export;
    s->model.quiet = true; /* the finished model reports it, once */
    s->how = mt__train_aside(t, goes_on ? mt__train_spare_memory(t) : 0);
    s->io =
        (mt_state_io){ .user = s, .form = t->exec.io.form, .read = read_state, .done = unit_done, .n_readers = save_threads() };
    s->ckpt = mt__train_ckpt(t);
    s->ckpt.model = &s->model;
    s->ckpt.io = &s->io;
    s->ckpt.files = s->files;
    s->ckpt.n_files = MT_COUNT(s->files);
    s->ckpt.backwards = s->how.backwards;
    s->ckpt.rank = t->comm->rank;
    s->ckpt.n_ranks = t->comm->n_ranks;
    s->keep_last = t->s->save.keep_last;
    s->start_s = mt_now_s();
    s->error = s->warning = (mt_err){ 0 };
    return MT_OK;
}

static void forget(saver *s)
{
    mt_ckpt_writer_close(s->writer);
    s->writer = NULL;
    mt_free(s->readers);
    s->readers = NULL;
    mt_str_free(&s->state);
    mt_str_free(&s->settings);
    s->running = false;
}

/* All ranks write into the directory that the first one makes, under a name that is new each time (outdir.h).  They get here when
 * their last checkpoint is written, which may take one of them longer than the others. */
static mt_rc share_mark(mt_trainer *t, uint64_t *mark, mt_err *err)
{
    if (t->comm->n_ranks == 1) return MT_OK;
    uint64_t *all = mt_calloc((size_t)t->comm->n_ranks, sizeof *all);
    mt_rc rc = all ? mt__train_tell(t, mark, sizeof *mark, all, "the directory of a checkpoint", err)
                   : mt_no_memory(err, "writing a checkpoint");
    if (!rc) *mark = all[0];
    mt_free(all);
    return rc;
}

static mt_rc open_writer(mt_trainer *t, mt_err *err)
{
    saver *s = &t->saver;
    if (s->alone) return mt_ckpt_writer_open(&s->writer, &s->ckpt, err);
    mt__train_be_patient(t, true);
    s->ckpt.mark = mt_ranks_token();
    if (s->first) MT_TRY(mt_ckpt_writer_open(&s->writer, &s->ckpt, err));
    MT_TRY(share_mark(t, &s->ckpt.mark, err));
    return s->first ? MT_OK : mt_ckpt_writer_open(&s->writer, &s->ckpt, err);
}

mt_rc mt__train_save(mt_trainer *t, bool goes_on, mt_err *err)
{
    saver *s = &t->saver;
    MT_TRY(mt__train_saved(t, true, err));
    MT_TRY(mt_output_dir_check(&t->dir, err));
    mt_rc rc = train_save_prepare(t, goes_on, err);
    if (!rc) rc = open_writer(t, err);
    if (!rc) rc = mt_engine_lock(t->exec.engine, err);
    atomic_store(&s->finished, false);
    if (!rc && !mt_thread_start(&s->thread, saver_main, s)) {
        mt_state_unlock_all(mt_engine_state(t->exec.engine));
        rc = mt_fail(err, MT_ENOMEM, "the system refused a thread to write the checkpoint; see ulimit -u");
    }
    if (rc) return forget(s), rc;
    s->running = true;
    mt__train_be_patient(t, true);
    t->made.step = t->at.step;
    return MT_OK;
}

mt_rc mt__train_saved(mt_trainer *t, bool wait, mt_err *err)
{
    saver *s = &t->saver;
    if (!s->running || (!wait && !atomic_load(&s->finished))) return MT_OK;
    pthread_join(s->thread, NULL);
    forget(s);
    if (s->warning.rc) mt_warn("an old checkpoint could not be removed: %s", s->warning.msg);
    if (s->error.rc) {
        *err = s->error;
        return err->rc;
    }
    mt_free(t->made.checkpoint);
    t->made.checkpoint = mt_ckpt_path(t->dir.path, s->ckpt.step);
    if (!t->made.checkpoint) return mt_no_memory(err, "a name");
    if (t->hooks.saved) t->hooks.saved(t->hooks.user, t->made.checkpoint, s->seconds);
    return MT_OK;
}

/* -- the finished model ---------------------------------------------------------------------------- */

static mt_rc read_locked(void *user, mt_state_range r, void *dst, mt_err *err) { return mt_state_read_locked(user, r, dst, err); }
static mt_rc read_anywhere(void *user, mt_state_range r, void *dst, mt_err *err)
{
    return mt_state_read_anywhere(user, r, dst, err);
}

/* Uses several threads, because nothing else runs at the end. */
static mt_rc write_locked(mt_state *state, const mt_export *x, const char *dir, mt_err *err)
{
    const mt_state_io io = { .user = state, .read = read_anywhere, .n_readers = save_threads() };
    mt_err why = { 0 };
    MT_TRY(mt_state_open_reads(state, &(mt_reads){ .here = read_locked, .user = state }, err));
    mt_rc rc = mt_export_write_part(x, &io, dir, mt_state_machine(state), mt_state_machines(state), err);
    if (rc && mt_state_machines(state) > 1) mt_state_fail(state, err);
    mt_rc closed = mt_state_close_reads(state, rc ? &why : err);
    return rc ? rc : closed;
}

mt_rc mt_train_write_model(mt_engine *e, const mt_export *x, const char *dir, mt_err *err)
{
    mt_state *state = mt_engine_state(e);
    MT_TRY(mt_engine_settle(e, err));
    MT_TRY(mt_engine_lock(e, err));
    mt_rc rc = write_locked(state, x, dir, err);
    mt_state_unlock_all(state);
    return rc;
}

mt_rc mt__train_export(mt_trainer *t, mt_err *err)
{
    mt_outdir d = { 0 };
    MT_TRY(mt_output_dir_check(&t->dir, err));
    char *path = mt_path_join(t->dir.path, "final"), *tmp = NULL;
    if (!path) return mt_no_memory(err, "a name");
    const bool first = t->comm->rank == 0;
    uint64_t mark = t->comm->n_ranks > 1 ? mt_ranks_token() : 0;
    mt_rc rc = mt_engine_settle(t->exec.engine, err);
    if (!rc && first) rc = mt_outdir_open_marked(&d, path, mark, err);
    if (!rc) rc = share_mark(t, &mark, err);
    d.before_publish = mt_output_dir_own_made;
    d.user = &t->dir;
    if (!rc) rc = (tmp = mt_outdir_tmp_name(path, mark)) ? MT_OK : mt_no_memory(err, "a name");
    if (!rc) rc = mt_train_write_model(t->exec.engine, &t->net.export, tmp, err); /* returns when all ranks have written */
    if (!rc && first) rc = mt_outdir_publish(&d, err);
    mt_outdir_close(&d);
    mt_free(tmp);
    if (rc) {
        mt_note(err, "writing the finished model to %s", path);
        mt_free(path);
        return rc;
    }
    mt_free(t->made.model_dir);
    t->made.model_dir = path;
    return MT_OK;
}

mt_rc mt__train_note_last(const mt_trainer *t, mt_err *err)
{
    char msg[MT_ERR_MSG_BYTES];
    mt_rc rc = err->rc;
    if (!mt_comm_speaks(t->comm) || mt_output_dir_check(&t->dir, &(mt_err){ 0 })) return rc; /* the latter says where it is */
    memcpy(msg, err->msg, sizeof msg);
    if (t->made.checkpoint)
        return mt_fail(err, rc, "%s.\n  The last complete checkpoint is %s; --resume continues from it", msg, t->made.checkpoint);
    return mt_fail(err, rc, "%s.\n  There is no checkpoint yet", msg);
}
