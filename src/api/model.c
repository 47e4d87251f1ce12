/* model.c - a model for a caller's own loop: opened, described, saved and closed. */
#include "api/api.h"
#include "base/file.h"
#include "ckpt/model_files.h"
#include "ckpt/outdir.h"
#include "engine/load.h"

#include <math.h>
#include <stdio.h>

/* -- the plan -------------------------------------------------------------------------------------- */

/* Adds a cache for one sequence; the arithmetic stays, so steps keep their bits. */
static mt_rc plan_cache(megatrain_model *m, mt_err *err)
{
    mt_plan *with;
    mt_job job = m->plan->job;
    job.cache_slots = 1;
    MT_TRY(mt_plan_search(&with, (mt_plan_inputs){ m->o.model, &job, &m->plan->arithmetic, &m->o.q.machine }, err));
    mt_plan_free(m->plan);
    m->plan = with;
    return MT_OK;
}

static mt_rc model_plan(megatrain_model *m, mt_err *err)
{
    const mt_opening *o = &m->o;
    mt_job job = mt_question_job(&o->q, o->q.batch);
    job.train = (m->uses & MEGATRAIN_TRAIN) != 0;
    if (!job.train) job.lanes = 0; /* the first device alone */
    if (job.train) MT_TRY(mt_train_router_loss(&job.router_loss, &o->s, o->model, err));
    if (job.train) job.objective = mt_train_objective(&o->s, 0);
    job.mapped = !job.train && o->shards && o->q.form.compute == MT_DTYPE_BF16 && mt_weights_mapped(o->model, o->shards);
    MT_TRY(mt_plan_auto(&m->plan, (mt_plan_inputs){ o->model, &job, &o->q.form, &o->q.machine }, err));
    return m->uses & MEGATRAIN_GENERATE ? plan_cache(m, err) : MT_OK;
}

/* -- life ------------------------------------------------------------------------------------------ */

static mt_rc check_asked(const megatrain_model *m, mt_err *err)
{
    const mt_settings *s = &m->o.s;
    if (m->uses & ~(MEGATRAIN_TRAIN | MEGATRAIN_GENERATE))
        return mt_fail(err, MT_EINVAL, "uses is %d; add up MEGATRAIN_TRAIN and MEGATRAIN_GENERATE", m->uses);
    if (!s->training.num_steps)
        return mt_fail(err, MT_EINVAL,
                       "training.epochs counts passes over datasets, and there are none here; set training.num_steps, the length "
                       "of the learning rate's schedule");
    return MT_OK;
}

static mt_rc model_load(megatrain_model *m, mt_err *err)
{
    const mt_settings *s = &m->o.s;
    size_t unused;
    if (m->o.shards) MT_TRY(mt_weights_check(m->o.model, m->o.shards, &unused, err));
    MT_TRY(mt_engine_create(&m->engine, m->o.devices.first, m->plan,
                            &(mt_engine_options){ .more = m->o.devices.more,
                                                  .numbers = m->o.devices.numbers,
                                                  .n_workers = (int)s->memory.optimizer_threads },
                            err));
    if (!m->o.shards) return mt_engine_init(m->engine, m->o.model, (uint64_t)s->training.seed, err);
    return mt_engine_load(m->engine, m->o.model, m->o.shards, err);
}

/* Without a usable tokenizer, only the end tokens of the configuration files count; encode reports the problem. */
static mt_rc model_stops(megatrain_model *m, mt_err *err)
{
    mt_err ignored = { 0 };
    if (!(m->uses & MEGATRAIN_GENERATE)) return MT_OK;
    MT_TRY(mt_model_files_stop_ids(&m->stops, mt_settings_model_dir(&m->o.s), err));
    if (!mt__model_tokenizer(m, &ignored)) mt_stop_ids_add(&m->stops, mt_tokenizer_role_id(m->tok, MT_TOK_EOS));
    return MT_OK;
}

/* How it is saved. */
static mt_export export_of(const megatrain_model *m)
{
    const mt_save_settings *s = &m->o.s.save;
    mt_export x = { .model = m->o.model,
                    .files = &m->side_files,
                    .source = m->o.shards,
                    .dtype = s->dtype,
                    .max_shard_bytes = (size_t)s->max_shard_size,
                    .end_of_turn = -1 };
    x.keeps_forms = mt_export_may_keep(&x);
    return x;
}

static mt_rc read_side_files(megatrain_model *m, mt_err *err)
{
    MT_TRY(mt_side_files_read(&m->side_files, mt_settings_model_dir(&m->o.s), err));
    const mt_export x = export_of(m);
    return m->uses & MEGATRAIN_TRAIN ? mt_export_check(&x, err) : MT_OK;
}

static mt_rc model_fill(megatrain_model *m, const megatrain_config *config, mt_err *err)
{
    MT_TRY(mt__api_settings(&m->o.s, config, MT_NEED_MODEL, err));
    MT_TRY(check_asked(m, err));
    MT_TRY(mt__opening_open(&m->o, true, err));
    MT_TRY(mt_train_schedule(&m->schedule, &m->o.s, m->o.s.training.num_steps, err));
    MT_TRY(read_side_files(m, err));
    MT_TRY(model_plan(m, err));
    MT_TRY(model_stops(m, err));
    return model_load(m, err);
}

static mt_rc model_open(megatrain_model **out, const megatrain_config *config, int uses, mt_err *err)
{
    MT_TRY(mt__api_need(out, "out", err));
    *out = NULL;
    megatrain_model *m = mt_calloc(1, sizeof *m);
    if (!m) return mt_no_memory(err, "the model");
    m->uses = uses;
    m->given_lr = -1;
    mt_rc rc = model_fill(m, config, err);
    if (rc)
        megatrain_model_close(m);
    else
        *out = m;
    return rc;
}

megatrain_status megatrain_model_open(megatrain_model **out, const megatrain_config *config, int uses, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    return mt__api_end(&call, error, model_open(out, config, uses, &call.err));
}

void megatrain_model_close(megatrain_model *m)
{
    if (!m) return;
    mt_engine_free(m->engine);
    mt_plan_free(m->plan);
    mt_batch_free(&m->batch);
    mt_side_files_free(&m->side_files);
    mt_sampler_close(m->chat);
    mt_tok_scratch_free(m->scratch);
    mt_tokenizer_close(m->tok);
    mt__opening_close(&m->o);
    mt_free(m);
}

/* -- looking at it --------------------------------------------------------------------------------- */

double mt__model_learning_rate(const megatrain_model *m)
{
    return m->given_lr >= 0 ? m->given_lr : mt_schedule_lr(&m->schedule, m->n_steps);
}

static mt_rc model_info(const megatrain_model *m, megatrain_info *out, mt_err *err)
{
    MT_TRY(mt__api_need(m, "model", err));
    MT_TRY(mt__api_need(out, "out", err));
    const mt_config *c = m->o.config;
    *out = (megatrain_info){ .n_parameters = m->o.model->n_params,
                             .n_trained = m->o.model->n_trained,
                             .n_layers = c->L,
                             .width = c->D,
                             .vocabulary = c->V,
                             .max_positions = c->max_positions,
                             .n_steps = m->n_steps,
                             .learning_rate = mt__model_learning_rate(m) };
    snprintf(out->family, sizeof out->family, "%s", c->family->name);
    mt__opening_describe(&m->o, m->plan, &out->plan);
    return MT_OK;
}

megatrain_status megatrain_model_info(const megatrain_model *model, megatrain_info *out, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    return mt__api_end(&call, error, model_info(model, out, &call.err));
}

static mt_rc model_checksum(megatrain_model *m, uint64_t *out, mt_err *err)
{
    MT_TRY(mt__api_need(m, "model", err));
    MT_TRY(mt__api_need(out, "out", err));
    if (!(m->uses & MEGATRAIN_TRAIN))
        return mt_fail(err, MT_EINVAL, "the model was opened without MEGATRAIN_TRAIN: it has no state");
    return mt_engine_checksum(m->engine, out, err);
}

megatrain_status megatrain_model_checksum(megatrain_model *model, uint64_t *out, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    return mt__api_end(&call, error, model_checksum(model, out, &call.err));
}

static mt_rc set_learning_rate(megatrain_model *m, double lr, mt_err *err)
{
    MT_TRY(mt__api_need(m, "model", err));
    if (!(lr < 0 && isfinite(lr))) MT_TRY(mt_settings_check_number("training", "learning_rate", lr, err));
    m->given_lr = lr;
    return MT_OK;
}

megatrain_status megatrain_model_set_learning_rate(megatrain_model *model, double learning_rate, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    return mt__api_end(&call, error, set_learning_rate(model, learning_rate, &call.err));
}

/* -- saving ---------------------------------------------------------------------------------------- */

static mt_rc write_dir(megatrain_model *m, const char *dir, mt_err *err)
{
    const mt_export x = export_of(m);
    mt_outdir d = { 0 };
    mt_rc rc = mt_outdir_open(&d, dir, err);
    if (!rc) rc = mt_train_write_model(m->engine, &x, d.tmp, err);
    if (!rc) rc = mt_outdir_publish(&d, err);
    mt_outdir_close(&d);
    return rc;
}

static mt_rc model_save(megatrain_model *m, const char *dir, mt_err *err)
{
    MT_TRY(mt__api_need(m, "model", err));
    MT_TRY(mt__api_need(dir, "dir", err));
    if (!(m->uses & MEGATRAIN_TRAIN))
        return mt_fail(err, MT_EINVAL, "the model was opened without MEGATRAIN_TRAIN, so it is still what %s holds: copy that",
                       mt_settings_model_dir(&m->o.s));
    if (!*dir) return mt_fail(err, MT_EINVAL, "cannot save to \"\": the path is empty; name a directory that does not exist");
    if (mt_dir_exists(dir) || mt_file_exists(dir))
        return mt_fail(err, MT_EINVAL, "cannot save to \"%s\": it exists already; name a directory that does not", dir);
    MT_TRY(mt_engine_settle(m->engine, err));
    mt_rc rc = write_dir(m, dir, err);
    return rc ? mt_note(err, "writing the model to %s", dir) : MT_OK;
}

megatrain_status megatrain_model_save(megatrain_model *model, const char *dir, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    return mt__api_end(&call, error, model_save(model, dir, &call.err));
}
