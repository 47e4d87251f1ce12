/* opening.c - from a configuration to a model, a device and the planner's question. */
#include "api/api.h"
#include "base/log.h"
#include "base/pool.h"
#include "ckpt/model_files.h"
#include "ckpt/weights.h"
#include "hub/hub.h"
#include "plan/measure.h"

#include <stdio.h>

static mt_rc opening_model(mt_opening *o, bool weights, mt_err *err)
{
    const mt_settings *s = &o->s;
    const char *dir = mt_settings_model_dir(s);
    mt_model_options how = mt_plan_model_options(s);
    char notice[256];
    MT_TRY(mt_model_files_need(dir, err));
    MT_TRY(mt_model_files_config(&o->config, dir, err));
    MT_TRY(mt_config_assume(&o->config, s->model.family, err));
    MT_TRY(mt_config_check_known(o->config, err));
    if (weights && !s->training.from_scratch) MT_TRY(mt_shards_open(&o->shards, dir, err));
    how.assume_dtype &= !o->shards; /* the files themselves determine this */
    MT_TRY(mt_weights_model(&o->model, &o->config, o->shards, &how, notice, err));
    if (notice[0]) mt_info("%s", notice);
    if (weights) mt_train_config_notices(o->config);
    return MT_OK;
}

/* The machine within the settings' limits, and the device's kernels. */
static mt_rc opening_question(mt_opening *o, mt_err *err)
{
    const mt_settings *s = &o->s;
    mt_machine machine;
    const mt_machine_given given = { .ram_most = (size_t)s->memory.host_memory,
                                     .cores = (int)mt_min_i64(s->memory.optimizer_threads, mt_cpu_count()) };
    MT_TRY(mt_train_devices(&o->devices, s, mt_comm_alone(), err));
    MT_TRY(mt_machine_here(&machine, o->devices.first, &given, true, err));
    const size_t device_bytes = machine.device_bytes;
    machine.crowd = o->devices.per_device;
    machine.device_bytes = mt_devices_memory(&o->devices, device_bytes);
    o->q = mt_plan_question(o->model, s, &machine);
    if (o->devices.n > 1) mt_question_set_lanes(&o->q, o->devices.n); /* all devices: their number is known now */
    o->q.form.attention = mt_attention_use_of(o->devices.first, s->training.deterministic,
                                              s->model.attn_implementation == MT_SET_ATTENTION_EAGER, device_bytes);
    o->q.seq_len = mt_min_i64(o->q.seq_len, o->config->max_positions);
    return MT_OK;
}

/* Resolves training.batch_size auto to the planner's recommendation; 0: nothing fits. */
static mt_rc opening_batch(mt_opening *o, mt_err *err)
{
    mt_batch_advice advice;
    if (o->q.batch) return MT_OK;
    o->q.batch = 1;
    MT_TRY(mt_advise_batch(&advice, &o->q, err));
    o->q.batch = mt_max_i64(1, mt_advise_auto(&advice, o->q.accumulation));
    return MT_OK;
}

mt_rc mt__opening_open(mt_opening *o, bool weights, mt_err *err)
{
    MT_TRY(mt_plan_check_step(&o->s, err));
    MT_TRY(mt_prepare_model(&o->s, &mt__api_finder, weights ? MT_HUB_MODEL : MT_HUB_CONFIG, err));
    MT_TRY(opening_model(o, weights, err));
    MT_TRY(opening_question(o, err));
    return opening_batch(o, err);
}

void mt__opening_close(mt_opening *o)
{
    mt_devices_close(&o->devices);
    mt_model_free(o->model);
    mt_shards_close(o->shards);
    mt_config_close(o->config);
    mt_settings_deinit(&o->s);
}

void mt__opening_describe(const mt_opening *o, const mt_plan *plan, megatrain_plan_info *out)
{
    mt_device_info device;
    o->devices.first->api->info(o->devices.first, &device);
    *out = (megatrain_plan_info){ .fits = plan != NULL,
                                  .batch_size = o->q.batch,
                                  .max_seq_len = o->q.seq_len,
                                  .host_usable = o->q.machine.host_bytes,
                                  .device_usable = o->q.machine.device_bytes };
    snprintf(out->device, sizeof out->device, "%s", device.name);
    if (!plan) return;
    mt_plan_describe(plan, out->placement, sizeof out->placement);
    const bool cpu = o->devices.first->api->kind == MT_DEVICE_CPU; /* then device memory is host memory */
    out->host_bytes = plan->host_bytes + plan->base_host + (cpu ? plan->device_bytes * (size_t)mt_plan_lanes(plan) : 0);
    out->device_bytes = plan->device_bytes + plan->base_device;
    out->step_seconds = plan->predicted_seconds;
    if (plan->predicted_seconds > 0) out->tokens_per_second = (double)plan->job.step_tokens / plan->predicted_seconds;
}
