/* train_open.c - from settings to an engine with its weights.  Every check that can fail comes before a weight is read or
 * downloaded. */
#include "base/file.h"
#include "base/log.h"
#include "device/tuned.h"
#include "run/ranks.h"
#include "run/train_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* -- the directory --------------------------------------------------------------------------------- */

static mt_rc refuse_held(const mt_output_dir *d, mt_err *err)
{
    return mt_fail(err, MT_EINVAL,
                   "%s already holds a run.  --resume continues it, --overwrite removes it and starts over; or choose another "
                   "--output-dir",
                   d->path);
}

mt_rc mt_trainer_check_output(const mt_settings *s, mt_err *err)
{
    mt_output_dir d;
    bool held;
    if (!mt_dir_exists(s->save.output_dir)) return MT_OK;
    MT_TRY(mt_output_dir_open(&d, s->save.output_dir, err));
    mt_rc rc = mt_output_dir_holds_run(&d, &held, err);
    if (!rc && held && !s->save.overwrite && !*s->save.resume) rc = refuse_held(&d, err);
    mt_output_dir_close(&d);
    return rc;
}

/* Clearing would remove a model that the previous run left there. */
static mt_rc check_not_inside(const mt_trainer *t, mt_err *err)
{
    char *model = realpath(mt_settings_model_dir(t->s), NULL), *dir = realpath(t->dir.path, NULL);
    size_t n = dir ? strlen(dir) : 0;
    bool inside = model && dir && strncmp(model, dir, n) == 0 && model[n] == '/';
    free(model);
    free(dir);
    return inside ? mt_fail(err, MT_EINVAL, "the model %s is in %s, which --overwrite would remove; choose another --output-dir",
                            t->s->model.name, t->dir.path)
                  : MT_OK;
}

/* A run that began from a checkpoint elsewhere and was killed before its first own checkpoint has nothing to lose: it starts
 * there again. */
static mt_rc check_nothing_made(const mt_trainer *t, mt_err *err)
{
    mt_ckpt_list there;
    char *final = mt_path_join(t->dir.path, "final");
    if (!final) return mt_no_memory(err, "looking through %s", t->dir.path);
    bool made = mt_dir_exists(final);
    mt_free(final);
    MT_TRY(mt_ckpt_list_open(&there, t->dir.path, err));
    made |= there.n > 0;
    mt_ckpt_list_free(&there);
    return made ? refuse_held(&t->dir, err) : MT_OK;
}

/* Ranks other than the first only read the directory, and write what rank 0 assigns them. */
static mt_rc join_dir(mt_trainer *t, mt_err *err)
{
    MT_TRY(mt_output_dir_join(&t->dir, t->s->save.output_dir, err));
    return t->s->save.overwrite ? MT_OK : mt__train_read_earlier(t, err);
}

/* The first rank has found the checkpoint and verified all of it: once is enough. */
static mt_rc share_resume(mt_trainer *t, mt_err *err)
{
    struct {
        char name[256];
        int32_t any, here;
    } found = { .any = t->resume.from != NULL, .here = t->resume.here };
    if (t->resume.from) snprintf(found.name, sizeof found.name, "%s", mt_path_base(t->resume.from));
    MT_TRY(mt_ranks_take_first(t->comm, &found, sizeof found, "the checkpoint to continue from", err));
    if (t->comm->rank == 0) return MT_OK;
    t->resume.here = found.here;
    if (!found.any) return MT_OK;
    t->resume.from = found.here ? mt_path_join(t->dir.path, found.name) : mt_strdup(t->s->save.resume);
    return t->resume.from ? MT_OK : mt_no_memory(err, "resuming");
}

static mt_rc open_dir(void *user, mt_err *err)
{
    mt_trainer *t = user;
    const mt_save_settings *s = &t->s->save;
    bool held;
    if (t->comm->rank) return join_dir(t, err);
    MT_TRY(mt_output_dir_open(&t->dir, s->output_dir, err));
    MT_TRY(mt_output_dir_holds_run(&t->dir, &held, err));
    if (held && s->overwrite) { /* old files are removed once nothing can fail any more */
        MT_TRY(check_not_inside(t, err));
        return mt_output_dir_will_clear(&t->dir, err);
    }
    if (held && !*s->resume) return refuse_held(&t->dir, err);
    if (!held) MT_TRY(mt_output_dir_check_free(&t->dir, err));
    MT_TRY(mt_output_dir_sweep(&t->dir, err));
    MT_TRY(mt__train_read_earlier(t, err));
    MT_TRY(mt__train_find_resume(t, err));
    return held && t->resume.from && !t->resume.here ? check_nothing_made(t, err) : MT_OK;
}

/* -- the data -------------------------------------------------------------------------------------- */

static mt_rc look_at_the_clock(mt_trainer *t, mt_err *err)
{
    time_t seconds = time(NULL);
    if (!localtime_r(&seconds, &t->data.now)) return mt_fail(err, MT_EINTERNAL, "the local time is not known");
    const char *zone = t->data.now.tm_zone; /* of this process */
    mt_rc rc = mt_ranks_take_first(t->comm, &t->data.now, sizeof t->data.now, "the date", err);
    t->data.now.tm_zone = zone;
    return rc;
}

static mt_rc open_source(void *user, mt_err *err)
{
    mt_trainer *t = user;
    return mt_data_open(&t->data.source, t->s, t->net.config, &t->data.now, &t->hooks.data, err);
}

static mt_rc open_data(mt_trainer *t, mt_err *err)
{
    const mt_training_settings *s = &t->s->training;
    MT_TRY(mt_ranks_in_turn(t->comm, open_source, t, "the data, tokenized", err));
    t->data.source->api->info(t->data.source, &t->data.info);
    t->net.export.end_of_turn = t->data.info.end_of_turn_text ? t->data.info.end_of_turn : -1;
    t->net.export.end_of_turn_text = t->data.info.end_of_turn_text;
    t->net.export.chat_template = t->data.info.chat_template;
    t->net.export.tokenizer = t->data.info.tokenizer;
    if (t->data.info.longest > t->net.config->max_positions)
        return mt_fail(err, MT_ERANGE, "a sample of %lld tokens; the model has %lld positions: lower dataset.max_seq_len",
                       (long long)t->data.info.longest, (long long)t->net.config->max_positions);
    double steps = s->num_steps ? (double)s->num_steps : ceil(s->epochs * (double)t->data.info.steps_per_epoch);
    if (!(steps >= 1 && steps < 1e15)) return mt_fail(err, MT_ERANGE, "training.epochs %g makes no step", s->epochs);
    t->course.n_steps = (int64_t)steps;
    return MT_OK;
}

/* -- schedule -------------------------------------------------------------------------------------- */

static double given_or_nan(double x) { return x < 0 ? NAN : x; }

mt_rc mt_train_schedule(mt_schedule *out, const mt_settings *settings, int64_t n_steps, mt_err *err)
{
    const mt_training_settings *s = &settings->training;
    bool wsd = s->lr_scheduler == MT_SET_LR_WARMUP_STABLE_DECAY, poly = s->lr_scheduler == MT_SET_LR_POLYNOMIAL;
    mt_schedule_config c = mt_schedule_defaults();
    double share = s->min_lr >= 0 && s->learning_rate > 0 ? s->min_lr / s->learning_rate : NAN;
    if (s->min_lr_ratio >= 0) share = s->min_lr_ratio;
    c.name = mt_settings_choice(settings, "training.lr_scheduler");
    c.lr = s->learning_rate;
    c.n_steps = n_steps;
    c.warmup_steps = (double)s->warmup_steps;
    c.warmup_ratio = s->warmup_ratio;
    c.num_cycles = given_or_nan(s->num_cycles);
    c.power = s->power;
    c.timescale = given_or_nan(s->timescale);
    c.warmup_lr_rate = given_or_nan(s->warmup_lr_rate);
    if (poly) c.lr_end = s->min_lr_ratio >= 0 ? s->min_lr_ratio * s->learning_rate : NAN;
    if (poly && s->min_lr >= 0) c.lr_end = s->min_lr;
    if (!poly && !wsd) c.min_lr_rate = share;
    if (wsd) {
        c.min_lr_ratio = share;
        c.num_stable_steps = given_or_nan((double)s->num_stable_steps);
        c.num_decay_steps = s->num_decay_steps >= 0 ? (double)s->num_decay_steps : ceil((double)n_steps / 10);
        c.warmup_type = mt_settings_choice(settings, "training.warmup_type");
        c.decay_type = mt_settings_choice(settings, "training.decay_type");
    }
    return mt_schedule_init(out, &c, err);
}

/* -- the device ------------------------------------------------------------------------------------ */

mt_rc mt_train_devices(mt_devices *out, const mt_settings *s, const mt_comm *comm, mt_err *err)
{
    const mt_set_device *d = &s->model.device;
    if (comm->n_local > 1)
        mt_info("%d ranks share the memory and the cores of a machine; one rank a machine, with --devices all, is faster",
                comm->n_local);
    char word[32] = "auto";
    if (d->kind == MT_SET_DEVICE_CPU) snprintf(word, sizeof word, "cpu");
    if (d->kind == MT_SET_DEVICE_CUDA) snprintf(word, sizeof word, "cuda:%d", d->index);
    char *tune = s->training.tune_products ? mt_tuned_folder() : NULL;
    const mt_devices_wanted w = { .word = word,
                                  .numbers = s->model.devices.items,
                                  .n = s->model.devices.n,
                                  .first = d->index,
                                  .local_rank = comm->local_rank,
                                  .n_local = comm->n_local,
                                  .deterministic = s->training.deterministic,
                                  .options = { .memory_limit = (size_t)s->memory.device_memory, .tune = tune } };
    mt_rc rc = mt_devices_open(out, &w, err);
    mt_free(tune);
    return rc;
}

static mt_rc open_devices(mt_trainer *t, mt_err *err)
{
    mt_rc rc = mt_train_devices(&t->exec.devices, t->s, t->comm, err);
    t->exec.dev = t->exec.devices.first;
    return rc;
}

/* -- the run -------------------------------------------------------------------------------------- */

/* Takes over the progress of the checkpoint to continue from. */
static void start_from(mt_trainer *t, const saved_state *saved)
{
    t->at = saved->at;
    t->made.step = t->course.first_step = t->at.step;
    t->made.checkpoint = mt_strdup(t->resume.from);
    if (t->at.step > t->course.n_steps)
        mt_warn("%s is after step %lld, and the run ends with step %lld: nothing is trained, and its model is the result",
                t->resume.from, (long long)t->at.step, (long long)t->course.n_steps);
}

mt_rc mt__train_open(mt_trainer *t, mt_err *err)
{
    saved_state saved = { 0 };
    const bool first = t->comm->rank == 0; /* with several ranks, the one that writes the files besides checkpoints */
    t->made.step = -1;
    MT_TRY(mt__train_open_ranks(t, err));
    MT_TRY(mt_ranks_compare_settings(t->comm, MT_VERSION, t->s, err));
    mt__train_be_patient(t, true);
    MT_TRY(mt_ranks_in_turn(t->comm, open_dir, t, "the output directory", err));
    MT_TRY(mt_ranks_share_dir(t->comm, t->dir.path, err));
    MT_TRY(share_resume(t, err));
    if (first) MT_TRY(mt__train_check_metrics(t, err));
    MT_TRY(mt__train_open_model(t, err));
    MT_TRY(open_devices(t, err));
    MT_TRY(mt__train_could_fit(t, err));
    MT_TRY(mt__train_batch(t, err));
    MT_TRY(look_at_the_clock(t, err));
    if (t->resume.from) {
        MT_TRY(mt__train_read_state(t, &saved, err)); /* before the data, which may take long */
        MT_TRY(mt__train_keep_units(t, &saved, err));
    }
    MT_TRY(open_data(t, err));
    if (first) MT_TRY(mt__train_samples_open(t, err));
    MT_TRY(mt_train_schedule(&t->course.schedule, t->s, t->course.n_steps, err));
    if (t->resume.from) {
        MT_TRY(mt__train_check_same(t, &saved, err));
        start_from(t, &saved);
    }
    mt_arithmetic types = { 0 };
    mt_train_types(t->s, &types);
    t->exec.io.form = mt_arithmetic_form(&types);
    MT_TRY(mt__train_plan(t, t->resume.from ? &saved : NULL, err));
    MT_TRY(mt__train_memory_left(t, err));
    MT_TRY(mt__train_compare_ranks(t, err));
    mt__train_prune(t); /* before the disk is looked at: it frees space */
    MT_TRY(mt__train_disk(t, err));
    if (mt__train_weights_come_last(t)) MT_TRY(mt__train_fetch_weights(t, t->resume.from ? &saved : NULL, err));
    MT_TRY(mt__train_network(t, err));
    MT_TRY(mt__train_load(t, err));
    if (!first) return MT_OK;
    if (t->s->save.overwrite) MT_TRY(mt_output_dir_clear(&t->dir, err));
    MT_TRY(mt__train_describe(t, err));
    return mt__train_open_metrics(t, saved.metrics_bytes, err);
}
