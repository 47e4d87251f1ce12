/* train_save.c - checkpoints while the run goes on, and the finished model. */
#include "base/file.h"
#include "base/log.h"
#include "ckpt/outdir.h"
#include "engine/train_internal.h"

mt_ckpt_save mt__train_ckpt(const mt_trainer *t)
{
    return (mt_ckpt_save){ .output_dir = t->dir.path, .step = t->at.step, .model = &t->export, .io = &t->io, .only_model = t->s->save.save_only_model };
}

/* The metrics' lines so far are safe before a checkpoint counts on them (C7). */
static mt_rc write_checkpoint(mt_trainer *t, mt_str *state, mt_str *settings, mt_err *err)
{
    MT_TRY(mt_metrics_sync(&t->metrics, err));
    MT_TRY(mt__train_state_text(t, state, err));
    mt_settings_write_yaml(t->s, settings);
    if (!mt_str_ok(settings)) return mt_fail(err, MT_ENOMEM, "no host memory for the settings of the run");
    const mt_ckpt_file files[] = { { "state.json", state->s, state->n }, { "settings.yaml", settings->s, settings->n } };
    mt_ckpt_save c = mt__train_ckpt(t);
    c.files = files;
    c.n_files = MT_COUNT(files);
    MT_TRY(mt_engine_settle(t->engine, err));
    return mt_ckpt_write(&c, err);
}

static mt_rc remember(mt_trainer *t, mt_err *err)
{
    mt_free(t->checkpoint);
    t->checkpoint = mt_ckpt_path(t->dir.path, t->at.step);
    t->saved_step = t->at.step;
    return t->checkpoint ? MT_OK : mt_fail(err, MT_ENOMEM, "no host memory for a name");
}

mt_rc mt__train_save(mt_trainer *t, mt_err *err)
{
    mt_str state = { 0 }, settings = { 0 };
    mt_err ignored = { 0 };
    double start = mt__seconds();
    mt_rc rc = write_checkpoint(t, &state, &settings, err);
    mt_str_free(&state);
    mt_str_free(&settings);
    MT_TRY(rc);
    MT_TRY(remember(t, err));
    /* C4: only now is an older one not needed any more.  That it stays costs room, not the run. */
    if (mt_ckpt_prune(t->dir.path, t->s->save.keep_last, &ignored)) mt_warn("an old checkpoint could not be removed: %s", ignored.msg);
    if (t->hooks.saved) t->hooks.saved(t->hooks.user, t->checkpoint, mt__seconds() - start);
    return MT_OK;
}

mt_rc mt__train_export(mt_trainer *t, mt_err *err)
{
    mt_outdir d = { 0 };
    char *path = mt_path_join(t->dir.path, "final");
    if (!path) return mt_fail(err, MT_ENOMEM, "no host memory for a name");
    mt_rc rc = mt_engine_settle(t->engine, err);
    if (!rc) rc = mt_outdir_open(&d, path, err);
    if (!rc) rc = mt_export_write(&t->export, &t->io, d.tmp, err);
    if (!rc) rc = mt_outdir_publish(&d, err);
    mt_outdir_close(&d);
    if (rc) {
        mt_note(err, "writing the finished model to %s", path);
        mt_free(path);
        return rc;
    }
    mt_free(t->model_dir);
    t->model_dir = path;
    return MT_OK;
}

mt_rc mt__train_note_last(const mt_trainer *t, mt_err *err)
{
    char msg[MT_ERR_MSG_BYTES];
    mt_rc rc = err->rc;
    __builtin_memcpy(msg, err->msg, sizeof msg);
    if (t->checkpoint) return mt_fail(err, rc, "%s.\n  The last complete checkpoint is %s; --resume goes on from it", msg, t->checkpoint);
    return mt_fail(err, rc, "%s.\n  There is no checkpoint yet", msg);
}
