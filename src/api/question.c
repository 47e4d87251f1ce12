#include "api/question.h"

#include "optim/clip.h"
#include "run/train.h"

mt_model_options mt_plan_model_options(const mt_settings *set)
{
    const mt_training_settings *t = &set->training;
    return (mt_model_options){ .freeze = t->freeze.items,
                               .n_freeze = t->freeze.n,
                               .decay_all = t->decay_norms_and_biases,
                               .assume_dtype = !t->from_scratch };
}

/* With this many tokens a step, the bytes that all layers keep still fit a size_t. */
#define MOST_STEP_TOKENS ((int64_t)1 << 36)

mt_rc mt_plan_check_step(const mt_settings *set, mt_err *err)
{
    const mt_training_settings *t = &set->training;
    const int64_t batch = mt_max_i64(t->batch_size, 1), parts = t->gradient_accumulation_steps; /* auto: at least one */
    if (batch <= MOST_STEP_TOKENS / set->dataset.max_seq_len / parts) return MT_OK;
    return mt_fail(err, MT_ERANGE,
                   "a step of batch_size x gradient_accumulation_steps x max_seq_len = %.3g tokens is more than any run takes: "
                   "lower one of them",
                   (double)batch * (double)parts * (double)set->dataset.max_seq_len);
}

mt_question mt_plan_question(const mt_model *model, const mt_settings *set, const mt_machine *machine)
{
    mt_question q = { .model = model,
                      .machine = *machine,
                      .seq_len = set->dataset.max_seq_len,
                      .clip = mt_clip_needs_norm(set->training.max_grad_norm) };
    q.accumulation = set->training.gradient_accumulation_steps;
    q.batch = set->training.batch_size * q.accumulation;
    mt_train_types(set, &q.form);
    if (set->model.devices.n > 1) {
        mt_question_set_lanes(&q, (int)set->model.devices.n);
        if (set->batch_per_device) q.batch *= (int64_t)set->model.devices.n;
    }
    bool eager = set->model.attn_implementation == MT_SET_ATTENTION_EAGER;
    if (machine->cudnn || eager) /* a GPU, which need not be here */
        q.form.attention = mt_attention_use_typical(set->training.deterministic, eager, machine->device_bytes);
    q.machine.home_host = set->memory.home == MT_SET_HOME_HOST;
    q.machine.limits = mt_train_limits(set);
    return q;
}
