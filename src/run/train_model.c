/* train_model.c - the model of a run: config.json first, then the files that hold its weights. */
#include "base/log.h"
#include "base/rng.h"
#include "ckpt/model_files.h"
#include "ckpt/weights.h"
#include "optim/clip.h"
#include "run/ranks.h"
#include "run/train_internal.h"

#include <string.h>

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
    t->net.export.keeps_forms = mt_export_may_keep(&t->net.export);
    if (unused)
        mt_info("tensors of %s that are not part of the text model: %zu; they are not trained, and saved unchanged",
                t->s->model.name, unused);
    return MT_OK;
}

mt_objective_use mt_train_objective(const mt_settings *s, uint32_t columns)
{
    static const mt_objective *const objectives[] = { [MT_SET_OBJECTIVE_CROSS_ENTROPY] = &mt_objective_cross_entropy,
                                                      [MT_SET_OBJECTIVE_DFT] = &mt_objective_dft,
                                                      [MT_SET_OBJECTIVE_EAFT] = &mt_objective_eaft };
    return (mt_objective_use){ .of = objectives[s->training.objective],
                               .smoothing = (float)s->training.label_smoothing_factor,
                               .z_loss = (float)s->training.z_loss,
                               .alpha = (float)s->training.eaft_alpha,
                               .columns = columns };
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

bool mt__train_weights_come_last(const mt_trainer *t) { return t->hooks.weights && !t->s->training.from_scratch; }

mt_rc mt__train_open_model(mt_trainer *t, mt_err *err)
{
    t->net.unit_experts = t->hooks.unit_experts;
    MT_TRY(mt_model_files_need(mt_settings_model_dir(t->s), err));
    MT_TRY(mt_model_files_config(&t->net.config, mt_settings_model_dir(t->s), err));
    MT_TRY(mt_config_assume(&t->net.config, t->s->model.family, err));
    MT_TRY(mt_config_check_known(t->net.config, err));
    MT_TRY(fingerprint_model(t, err));
    if (!mt__train_weights_come_last(t)) MT_TRY(open_weights(t, err));
    mt_train_config_notices(t->net.config);
    MT_TRY(mt_side_files_read(&t->net.side_files, mt_settings_model_dir(t->s), err));
    t->net.export = (mt_export){ .files = &t->net.side_files,
                                 .dtype = t->s->save.dtype,
                                 .max_shard_bytes = (size_t)t->s->save.max_shard_size,
                                 .end_of_turn = -1 };
    MT_TRY(mt_export_check(&t->net.export, err));
    MT_TRY(create_model(t, err));
    MT_TRY(mt_train_router_loss(&t->net.router_loss, t->s, t->net.model, err));
    return mt__train_weights_come_last(t) ? MT_OK : bind_weights(t, err);
}

mt_rc mt__train_fetch_weights(mt_trainer *t, const saved_state *saved, mt_err *err)
{
    char notice[256];
    MT_TRY(mt_ranks_in_turn(t->comm, t->hooks.weights, t->hooks.user, "the weights of the model", err));
    MT_TRY(open_weights(t, err));
    const mt_file_names *was = &t->net.model->names, now = mt_weights_names(t->net.config, t->net.shards, notice);
    const bool same_names = was->tied == now.tied && was->head == now.head && strcmp(was->prefix, now.prefix) == 0 &&
                            strcmp(was->head_prefix, now.head_prefix) == 0 && was->tensors == now.tensors;
    if (!same_names || t->s->training.freeze.n) { /* frozen weights stored as bf16 need no low halves */
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

mt_rc mt__train_keep_units(mt_trainer *t, saved_state *saved, mt_err *err)
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
    if (!rc && !mt__train_weights_come_last(t)) rc = bind_weights(t, err);
    return rc ? mt_note(err, "resuming from %s", t->resume.from) : MT_OK;
}
