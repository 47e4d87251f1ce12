/* train_open.c - from settings to an engine with its weights.  Every check that can fail comes before a weight is read or
 * downloaded. */
#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/rng.h"
#include "ckpt/model_files.h"
#include "ckpt/outdir.h"
#include "ckpt/weights.h"
#include "device/tuned.h"
#include "optim/clip.h"
#include "run/ranks.h"
#include "run/train_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

/* -- the model ------------------------------------------------------------------------------------- */

static mt_rc check_model_dir(const mt_trainer *t, mt_err *err)
{
    const char *name = mt_settings_model_dir(t->s);
    if (mt_model_files_exist(name)) return MT_OK;
    return mt_fail(err, MT_ENOENT, "model.name: no directory or .gguf file %s", name);
}

static mt_rc fingerprint_model(mt_trainer *t, mt_err *err)
{
    char *text;
    size_t n;
    MT_TRY(mt_model_files_read(&text, &n, mt_settings_model_dir(t->s), "config.json", err));
    t->net.fingerprint = mt_hash(text ? text : "", n, 0);
    mt_free(text);
    return MT_OK;
}

static mt_rc open_weights(mt_trainer *t, mt_err *err)
{
    if (t->s->training.from_scratch) return MT_OK;
    mt_rc rc = mt_shards_open(&t->net.shards, mt_settings_model_dir(t->s), err);
    if (rc == MT_ENOENT) return mt_note(err, "model.name (training.from_scratch: true starts without weights)");
    return rc;
}

void mt_train_config_notices(const mt_config *c)
{
    for (size_t i = 0; i < c->n_assumptions; i++) mt_warn("%s", c->assumptions[i]);
    if (c->dropout_key)
        mt_info("config.json has %s %g; transformers would apply it, but megatrain never applies dropout", c->dropout_key,
                c->dropout);
    if (c->notice) mt_info("%s", c->notice);
}

void mt__train_free_loads(mt_trainer *t)
{
    mt_train_loads *l = &t->net.loads;
    mt_free(l->layer);
    mt_free(l->busiest);
    mt_free(l->idle);
    *l = (mt_train_loads){ 0 };
}

static mt_rc make_loads(mt_trainer *t, mt_err *err)
{
    const mt_model *m = t->net.model;
    const size_t n = (size_t)m->routed.layers;
    mt_train_loads *l = &t->net.loads;
    mt__train_free_loads(t);
    if (!n) return MT_OK;
    l->layer = mt_calloc(n, sizeof *l->layer);
    l->busiest = mt_calloc(n, sizeof *l->busiest);
    l->idle = mt_calloc(n, sizeof *l->idle);
    if (!l->layer || !l->busiest || !l->idle) return mt_no_memory(err, "the loads of experts");
    for (int i = 0; i < m->config->L; i++)
        if (mt_layer_has_experts(m, i)) l->layer[l->n++] = i;
    l->over = m->routed;
    return MT_OK;
}

static mt_rc create_model(mt_trainer *t, mt_err *err)
{
    const mt_training_settings *s = &t->s->training;
    char notice[256];
    MT_TRY(mt_weights_model(&t->net.model, &t->net.config, t->net.shards,
                            &(mt_model_options){ .freeze = s->freeze.items,
                                                 .n_freeze = s->freeze.n,
                                                 .decay_all = s->decay_norms_and_biases,
                                                 .unit_experts = t->net.unit_experts },
                            notice, err));
    if (notice[0]) mt_info("%s", notice);
    MT_TRY(make_loads(t, err));
    t->net.export.model = t->net.model;
    return t->net.model->n_trained ? MT_OK : mt_fail(err, MT_EINVAL, "training.freeze leaves nothing to train");
}

static mt_rc bind_weights(mt_trainer *t, mt_err *err)
{
    size_t unused = 0;
    if (t->net.shards) MT_TRY(mt_weights_check(t->net.model, t->net.shards, &unused, err));
    t->net.export.source = t->net.shards;
    bool head_too = t->net.model->tied && unused == 1; /* a tied head that the source wrote twice */
    if (unused && !head_too)
        mt_info("%zu tensors of %s are not part of the text model: they are not trained, and saved unchanged", unused,
                t->s->model.name);
    return MT_OK;
}

mt_rc mt_train_router_loss(double *out, const mt_settings *s, const mt_model *model, mt_err *err)
{
    double asked = s->training.router_aux_loss;
    *out = 0;
    if (!model->unit_experts) {
        if (asked != 0) mt_warn("training.router_aux_loss has no effect: this model has no experts");
        return MT_OK;
    }
    *out = asked < 0 ? model->config->moe.aux_loss : asked;
    if (*out >= 0) return MT_OK;
    return mt_fail(err, MT_EINVAL,
                   "training.router_aux_loss is \"model\", but config.json of %s has no router_aux_loss_coef of 0 or more; "
                   "give a number, such as 0.001",
                   s->model.name);
}

/* Missing weights are downloaded last: until then only config.json describes the model. */
static bool weights_come_last(const mt_trainer *t) { return t->hooks.weights && !t->s->training.from_scratch; }

static mt_rc open_model(mt_trainer *t, mt_err *err)
{
    t->net.unit_experts = t->hooks.unit_experts;
    MT_TRY(check_model_dir(t, err));
    MT_TRY(mt_model_files_config(&t->net.config, mt_settings_model_dir(t->s), err));
    MT_TRY(mt_config_assume(&t->net.config, t->s->model.family, err));
    MT_TRY(mt_config_check_known(t->net.config, err));
    MT_TRY(fingerprint_model(t, err));
    if (!weights_come_last(t)) MT_TRY(open_weights(t, err));
    mt_train_config_notices(t->net.config);
    MT_TRY(mt_side_files_read(&t->net.side_files, mt_settings_model_dir(t->s), err));
    t->net.export = (mt_export){ .files = &t->net.side_files,
                                 .dtype = t->s->save.dtype,
                                 .max_shard_bytes = (size_t)t->s->save.max_shard_size,
                                 .end_of_turn = -1 };
    MT_TRY(create_model(t, err));
    MT_TRY(mt_train_router_loss(&t->net.router_loss, t->s, t->net.model, err));
    return weights_come_last(t) ? MT_OK : bind_weights(t, err);
}

/* Everything else has been checked.  The files may have other tensor names than config.json suggests, or another head: then the
 * model and its plan are rebuilt. */
static mt_rc fetch_weights(mt_trainer *t, const saved_state *saved, mt_err *err)
{
    char notice[256];
    MT_TRY(mt_ranks_in_turn(t->comm, t->hooks.weights, t->hooks.user, "the weights of the model", err));
    MT_TRY(open_weights(t, err));
    const mt_file_names *was = &t->net.model->names, now = mt_weights_names(t->net.config, t->net.shards, notice);
    bool same = was->tied == now.tied && was->head == now.head && strcmp(was->prefix, now.prefix) == 0 &&
                strcmp(was->head_prefix, now.head_prefix) == 0 && was->tensors == now.tensors &&
                t->s->training.freeze.n == 0; /* frozen weights stored as bf16 need no low halves */
    if (!same) {
        mt_plan_free(t->exec.plan);
        mt_model_free(t->net.model);
        t->exec.plan = NULL;
        t->net.model = NULL;
        MT_TRY(create_model(t, err));
        MT_TRY(mt__train_plan(t, saved, err));
    }
    MT_TRY(bind_weights(t, err));
    return mt__train_disk(t, err); /* the download used disk space, and may have another dtype */
}

/* Expert units decide the tree of the norm and the random rounding of moments that are not fp32.  Without these, all units give
 * the same bits; otherwise the run keeps the units of its checkpoint. */
static mt_rc keep_units(mt_trainer *t, saved_state *saved, mt_err *err)
{
    int64_t *was = &saved->arithmetic.unit_experts, now = t->net.model->unit_experts;
    if (!*was || !now || *was == now) return MT_OK;
    if (!mt_clip_needs_norm(t->s->training.max_grad_norm) && t->s->memory.adam_state == MT_MOMENTS_F32) {
        *was = now;
        return MT_OK;
    }
    mt_info("units have %lld experts, as in the checkpoint: with the %lld of this version the run would continue with other bits",
            (long long)*was, (long long)now);
    t->net.unit_experts = *was;
    mt_model_free(t->net.model);
    t->net.model = NULL;
    mt_rc rc = create_model(t, err);
    if (!rc && !weights_come_last(t)) rc = bind_weights(t, err);
    return rc ? mt_note(err, "resuming from %s", t->resume.from) : MT_OK;
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
    if (t->data.info.longest > t->net.config->max_positions)
        return mt_fail(err, MT_ERANGE, "a sample of %lld tokens; the model has %lld positions: lower dataset.max_seq_len",
                       (long long)t->data.info.longest, (long long)t->net.config->max_positions);
    double steps = s->num_steps ? (double)s->num_steps : ceil(s->epochs * (double)t->data.info.steps_per_epoch);
    if (!(steps >= 1 && steps < 1e15)) return mt_fail(err, MT_ERANGE, "training.epochs %g makes no step", s->epochs);
    t->course.n_steps = (int64_t)steps;
    return MT_OK;
}

/* -- schedule -------------------------------------------------------------------------------------- */

static double train_open_given(double x) { return x < 0 ? NAN : x; }

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
    c.num_cycles = train_open_given(s->num_cycles);
    c.power = s->power;
    c.timescale = train_open_given(s->timescale);
    c.warmup_lr_rate = train_open_given(s->warmup_lr_rate);
    if (poly) c.lr_end = s->min_lr_ratio >= 0 ? s->min_lr_ratio * s->learning_rate : NAN;
    if (poly && s->min_lr >= 0) c.lr_end = s->min_lr;
    if (!poly && !wsd) c.min_lr_rate = share;
    if (wsd) {
        c.min_lr_ratio = share;
        c.num_stable_steps = train_open_given((double)s->num_stable_steps);
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

/* -- files of the run --------------------------------------------------------------------- */

static void put_plan_arithmetic(mt_json_out *j, const mt_arithmetic *a)
{
    char attention[64];
    mt_attention_use_text(&a->attention, attention, sizeof attention);
    mt_json_map(j, "arithmetic", MT_JSON_FLAT);
    mt__train_put_arithmetic(j, a);
    mt_json_put_str(j, "attention", attention);
    mt_json_put_strf(j, "hash", "%016llx", (unsigned long long)mt_arithmetic_hash(a));
    mt_json_end(j);
}

static void put_plan_buffers(mt_json_out *j, const mt_plan *p)
{
    mt_json_list(j, "buffers", MT_JSON_LINES);
    for (size_t i = 0; i < p->n_buffers; i++) {
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_str(j, "name", p->buffers[i].name);
        mt_json_put_str(j, "place", p->buffers[i].place == MT_HOST ? "host" : "device");
        mt_json_put_size(j, "bytes", p->buffers[i].bytes);
        mt_json_end(j);
    }
    mt_json_end(j);
}

/* Layers whose loads the metrics list. */
static void put_expert_layers(mt_json_out *j, const mt_train_loads *l)
{
    if (!l->n) return;
    mt_json_map(j, "experts", MT_JSON_FLAT);
    mt_json_put_int(j, "of_a_layer", l->over.E);
    mt_json_put_int(j, "of_a_row", l->over.T);
    mt_json_list(j, "layers", MT_JSON_FLAT);
    for (size_t i = 0; i < l->n; i++) mt_json_put_int(j, NULL, l->layer[i]);
    mt_json_end(j);
    mt_json_end(j);
}

static mt_rc plan_text(const mt_trainer *t, mt_str *s, mt_err *err)
{
    const mt_plan *p = t->exec.plan;
    const char *began_from = t->resume.here ? t->resume.began_from : t->resume.from;
    mt_device_info d;
    mt_json_out j = { .to = s };
    t->exec.dev->api->info(t->exec.dev, &d);
    mt_json_map(&j, NULL, MT_JSON_LINES);
    mt_json_put_str(&j, "version", MT_VERSION);
    mt_json_put_str(&j, "device", d.name);
    mt_json_put_str(&j, "metrics_file", t->s->logging.metrics_file);
    if (began_from) mt_json_put_str(&j, "began_from", began_from);
    mt_json_put_int(&j, "n_steps", t->course.n_steps);
    mt_json_put_num(&j, "predicted_seconds", "%.6g", p->predicted_seconds);
    mt_json_put_size(&j, "device_bytes", p->device_bytes);
    mt_json_put_size(&j, "host_bytes", p->host_bytes);
    mt_json_put_size(&j, "base_device_bytes", p->base_device);
    mt_json_put_size(&j, "base_host_bytes", p->base_host);
    mt_json_put_size(&j, "checkpoint_host_bytes", t->saver.planned_room);
    mt_json_put_num(&j, "step_seconds", "%.6g", p->predicted_seconds);
    put_expert_layers(&j, &t->net.loads);
    put_plan_arithmetic(&j, &p->arithmetic);
    if (mt_plan_lanes(p) > 1) mt_json_put_int(&j, "devices", mt_plan_lanes(p));
    mt_json_put_int(&j, "sweep_tokens", p->place.sweep_tokens);
    put_plan_buffers(&j, p);
    mt_json_end(&j);
    mt_str_putc(s, '\n');
    return mt_json_done(&j, "plan.json", err);
}

static mt_rc save_text(mt_trainer *t, const char *name, mt_str *s, mt_err *err)
{
    mt_rc rc = mt_str_ok(s) ? mt_output_dir_save(&t->dir, name, s->s, s->n, err) : mt_no_memory(err, "writing %s", name);
    mt_str_free(s);
    return rc;
}

static mt_rc describe_run(mt_trainer *t, mt_err *err)
{
    mt_str s = { 0 };
    static const char *const to_come[] = { "log.txt", "report.html" }; /* which the program writes */
    for (size_t i = 0; i < MT_COUNT(to_come); i++) MT_TRY(mt_output_dir_own(&t->dir, to_come[i], err));
    mt_rc rc = plan_text(t, &s, err);
    if (rc) return mt_str_free(&s), rc;
    MT_TRY(save_text(t, "plan.json", &s, err)); /* first: it marks the following files as a run's */
    mt_settings_write_yaml(t->s, &s);
    return save_text(t, "config.yaml", &s, err);
}

static mt_rc open_events(mt_trainer *t, mt_err *err)
{
    if (!t->s->logging.tensorboard) return MT_OK;
    char *dir = mt_path_join(t->dir.path, "tensorboard"), *path = NULL, *name = NULL;
    mt_rc rc = dir ? mt_output_dir_own(&t->dir, "tensorboard", err) : mt_no_memory(err, "opening TensorBoard's events");
    if (!rc) rc = mt_events_new_path(&path, dir, err);
    if (!rc && !(name = mt_path_join("tensorboard", mt_path_base(path)))) rc = mt_no_memory(err, "a name");
    if (!rc) rc = mt_output_dir_own(&t->dir, name, err);
    /* An evaluation may come before step 1. */
    if (!rc) rc = mt_events_open(&t->metrics.events, path, t->resume.from ? t->course.first_step : -1, err);
    mt_free(name);
    mt_free(path);
    mt_free(dir);
    return rc;
}

static mt_rc open_metrics(mt_trainer *t, int64_t keep, mt_err *err)
{
    char *path = mt__train_metrics_path(t);
    bool inside = *t->s->logging.metrics_file != '/';
    mt_rc rc = path ? MT_OK : mt_no_memory(err, "opening the metrics file");
    if (!rc && inside) rc = mt_output_dir_own(&t->dir, t->s->logging.metrics_file, err);
    if (!rc) rc = mt_metrics_open(&t->metrics, path, keep, err);
    mt_free(path);
    return rc ? rc : open_events(t, err);
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
    MT_TRY(open_model(t, err));
    MT_TRY(open_devices(t, err));
    MT_TRY(mt__train_could_fit(t, err));
    MT_TRY(mt__train_batch(t, err));
    MT_TRY(look_at_the_clock(t, err));
    if (t->resume.from) {
        MT_TRY(mt__train_read_state(t, &saved, err)); /* before the data, which may take long */
        MT_TRY(keep_units(t, &saved, err));
    }
    MT_TRY(open_data(t, err));
    if (first) MT_TRY(mt__train_samples_open(t, err));
    MT_TRY(mt_train_schedule(&t->course.schedule, t->s, t->course.n_steps, err));
    if (t->resume.from) {
        MT_TRY(mt__train_check_same(t, &saved, err));
        t->at = saved.at;
        t->made.step = t->course.first_step = t->at.step;
        if (t->at.step > t->course.n_steps)
            mt_warn("%s is after step %lld, and the run ends with step %lld: nothing is trained, and its model is the result",
                    t->resume.from, (long long)t->at.step, (long long)t->course.n_steps);
        t->made.checkpoint = mt_strdup(t->resume.from);
    }
    t->exec.io.moments = mt_moments_type(t->s->memory.adam_state);
    MT_TRY(mt__train_plan(t, t->resume.from ? &saved : NULL, err));
    MT_TRY(mt__train_memory_left(t, err));
    MT_TRY(mt__train_compare_ranks(t, err));
    MT_TRY(mt__train_disk(t, err));
    if (weights_come_last(t)) MT_TRY(fetch_weights(t, t->resume.from ? &saved : NULL, err));
    MT_TRY(mt__train_network(t, err));
    MT_TRY(mt__train_load(t, err));
    if (!first) return MT_OK;
    if (t->s->save.overwrite) MT_TRY(mt_output_dir_clear(&t->dir, err));
    MT_TRY(describe_run(t, err));
    return open_metrics(t, saved.metrics_bytes, err);
}
