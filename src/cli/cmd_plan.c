/* cmd_plan.c - megatrain plan: will it fit, how fast, which batch size; for this machine or one that is only described. */
#include "base/file.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/hub_bar.h"
#include "cli/plan_ask.h"
#include "cli/plan_view.h"
#include "optim/clip.h"
#include "plan/gpus.h"
#include "plan/measure.h"
#include "plan/shapes.h"
#include "settings/settings.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    const char *shape;
    mt_flag_strs words; /* MODEL */
    mt_machine_asked asked;
    bool json, list_gpus, list_shapes, what_fits;
} options;

/* -- the model ------------------------------------------------------------------------------------- */

typedef struct subject {
    char name[256];
    const char *untrained;
    mt_config *config;
    mt_model *model;
} subject;

static void close_subject(subject *s)
{
    mt_model_free(s->model);
    mt_config_close(s->config);
}

static mt_rc open_shape(subject *s, const char *name, mt_err *err)
{
    const mt_shape *shape;
    MT_TRY(mt_shape_find(&shape, name, err));
    snprintf(s->name, sizeof s->name, "%s", shape->name);
    s->untrained = shape->untrained;
    return mt_shape_model(&s->config, &s->model, shape, err);
}

static mt_rc open_dir(subject *s, const char *dir, const mt_settings *set, mt_err *err)
{
    const mt_training_settings *t = &set->training;
    mt_model_options o = { .freeze = t->freeze.items, .n_freeze = t->freeze.n, .decay_all = t->decay_norms_and_biases };
    MT_TRY(mt_config_open(&s->config, dir, err));
    return mt_model_create(&s->model, s->config, &o, err);
}

/* A model nobody has written down here: its config.json tells, and the hub has that. */
static mt_rc open_hub(subject *s, const char *name, const mt_settings *set, mt_err *err)
{
    char *dir;
    MT_TRY(mt_hub_bar_model(name, set->model.revision, MT_HUB_CONFIG, &dir, err));
    mt_rc rc = open_dir(s, dir, set, err);
    mt_free(dir);
    return rc;
}

/* A directory with a config.json, a published model by name, or any other on the hub. */
static mt_rc open_subject(subject *s, const options *o, const mt_settings *set, mt_err *err)
{
    const char *name = o->shape ? o->shape : o->words.n ? o->words.items[0] : set->model.name;
    if (!*name) return mt_fail(err, MT_EINVAL, "plan: which model?  --shape NAME, a model directory, or --config FILE; megatrain plan --list-shapes has names");
    bool here = !o->shape && mt_dir_exists(name);
    const mt_shape *known;
    bool ask_hub = !o->shape && strchr(name, '/') && mt_hub_is_name(name) && mt_shape_find(&known, name, NULL);
    if (!here && !ask_hub) return open_shape(s, name, err);
    snprintf(s->name, sizeof s->name, "%s", name);
    return here ? open_dir(s, name, set, err) : open_hub(s, name, set, err);
}

/* -- the answer ------------------------------------------------------------------------------------ */

static mt_question question_of(const subject *s, const mt_settings *set, const mt_machine *machine)
{
    static const mt_whether offload[] = { [MT_TRI_AUTO] = MT_MAY, [MT_TRI_TRUE] = MT_MUST, [MT_TRI_FALSE] = MT_MUST_NOT };
    const mt_memory_settings *m = &set->memory;
    mt_question q = { .model = s->model, .machine = *machine, .seq_len = set->dataset.max_seq_len, .clip = mt_clip_needs_norm(set->training.max_grad_norm) };
    q.batch = set->training.batch_size * set->training.gradient_accumulation_steps;
    q.form.compute = set->model.dtype == MT_DTYPE_F32 ? MT_DTYPE_F32 : MT_DTYPE_BF16;
    q.form.grad = set->training.grad_dtype;
    q.form.moments = set->memory.adam_state;
    bool eager = set->model.attn_implementation == MT_SET_ATTENTION_EAGER;
    if (machine->cudnn || eager) /* a GPU, which need not be here */
        q.form.attention = mt_attention_use_typical(set->training.deterministic, eager, machine->device_bytes);
    q.machine.home_host = m->home == MT_SET_HOME_HOST;
    q.machine.limits = (mt_limits){ .interval = (int)m->checkpoint_interval, .exact = m->strict_checkpointing, .n_slabs = (int)m->num_grad_slabs,
                                    .offload = offload[m->offload_inputs] };
    return q;
}

/* Weights, and m, v and lo unless only the model is saved. */
static size_t checkpoint_bytes(const mt_model *m, const mt_settings *s)
{
    size_t weights = (size_t)m->n_params * (s->save.dtype == MT_DTYPE_F32 ? 4 : 2);
    return s->save.save_only_model ? weights : weights + (size_t)m->n_params * 4 + (size_t)m->n_trained * 2 * mt_dtype_bytes(mt_moments_type(s->memory.adam_state));
}

/* The advice compares batch sizes by a quick look; what it says of the recommended one is shown beside the plan's own speed. */
static mt_rc speed_of_recommended(mt_plan_answer *a, const mt_plan *asked, mt_err *err)
{
    const int64_t batch = a->batch.recommended;
    if (!batch) return MT_OK;
    const mt_job job = mt_question_job(&a->q, batch);
    mt_plan *own = NULL;
    if (batch != a->q.batch || !asked) MT_TRY(mt_plan_auto(&own, a->q.model, &job, &a->q.form, &a->q.machine, err));
    a->batch.tokens_s = (double)job.step_tokens / (own ? own : asked)->predicted_seconds;
    mt_plan_free(own);
    return MT_OK;
}

mt_rc mt_plan_answer_find(mt_plan_answer *a, mt_plan **plan, mt_err *err)
{
    *plan = NULL;
    MT_TRY(mt_advise_batch(&a->batch, &a->q, err));
    if (!a->q.batch) a->q.batch = mt_max_i64(a->batch.recommended, 1); /* batch_size: auto */
    const mt_job job = mt_question_job(&a->q, a->q.batch);
    mt_rc rc = mt_plan_auto(plan, a->q.model, &job, &a->q.form, &a->q.machine, err);
    if (rc && rc != MT_ENOMEM) return rc;
    MT_TRY(mt_advise_need(&a->need, &a->q, err));
    MT_TRY(speed_of_recommended(a, *plan, err));
    a->plan = *plan;
    return rc ? mt_advise_remedies(a->remedies, &a->n_remedies, &a->q, err) : MT_OK;
}

static mt_rc answer(const options *o, const mt_settings *set, mt_err *err)
{
    subject s = { 0 };
    mt_machine_found found;
    mt_plan *plan = NULL;
    mt_str out = { 0 };
    mt_terminal term = mt_terminal_of(stdout, MT_COLOR_AUTO);
    mt_rc rc = open_subject(&s, o, set, err);
    if (!rc) rc = mt_plan_machine(&found, &o->asked, err);
    mt_plan_answer a = { .model = s.name, .untrained = s.untrained, .device = found.device, .ram_source = found.ram_source };
    if (!rc) {
        a.q = question_of(&s, set, &found.machine);
        a.n_steps = set->training.num_steps;
        a.checkpoint_bytes = checkpoint_bytes(s.model, set);
        if (!o->asked.given.gpu) a.disk_free = mt_disk_free(*set->save.output_dir ? set->save.output_dir : "."); /* another machine has another disk */
        rc = mt_plan_answer_find(&a, &plan, err);
    }
    if (!rc) {
        if (o->json)
            mt_plan_json(&out, &a);
        else
            mt_plan_show(&out, &a, &term);
        fputs(out.s ? out.s : "", stdout);
    }
    mt_str_free(&out);
    mt_plan_free(plan);
    close_subject(&s);
    return rc;
}

/* -- the command ----------------------------------------------------------------------------------- */

static void list_gpus(void)
{
    for (size_t i = 0; i < mt_n_gpus; i++)
        if (i == 0 || strcmp(mt_gpus[i].name, mt_gpus[i - 1].name) != 0) /* a card may have several names in drivers */
            printf("%-14s %6.1f GiB  %5.0f TFLOP/s  %5.0f GB/s  link %3.0f GB/s\n", mt_gpus[i].name, mt_gpus[i].gib, mt_gpus[i].tflops, mt_gpus[i].gb_s, mt_gpus[i].link);
}

static void list_shapes(void)
{
    for (size_t i = 0; i < mt_n_shapes; i++) printf("%s%s\n", mt_shapes[i].name, mt_shapes[i].untrained ? "  (planned, not trained yet)" : "");
}

static mt_rc command(options *o, mt_settings *set, int argc, char **argv, mt_err *err)
{
    bool help;
    const mt_flag flags[] = {
        { "...", MT_FLAG_STRS, &o->words, "MODEL", "a model directory, or a published model's name", false },
        { "--shape", MT_FLAG_STR, &o->shape, "NAME", "a published model, such as qwen2.5-7b", false },
        { "--gpu", MT_FLAG_STR, &o->asked.given.gpu, "NAME", "a GPU that is not here: h100, rtx4090", false },
        { "--gpu-memory", MT_FLAG_BYTES, &o->asked.device_memory, "SIZE", "of the GPU, to plan with: 80G", false },
        { "--ram", MT_FLAG_BYTES, &o->asked.ram, "SIZE", "host memory to plan with (what is free): 1.5T", false },
        { "--link", MT_FLAG_BYTES, &o->asked.link, "SIZE", "bytes a second between host and GPU: 55G", false },
        { "--cores", MT_FLAG_INT, &o->asked.cores, "N", "of the host", false },
        { "--what-fits", MT_FLAG_BOOL, &o->what_fits, NULL, "every known model: fits, tight, or what it needs", false },
        { "--list-gpus", MT_FLAG_BOOL, &o->list_gpus, NULL, "the known GPUs", false },
        { "--list-shapes", MT_FLAG_BOOL, &o->list_shapes, NULL, "the known models", false },
        { "--json", MT_FLAG_BOOL, &o->json, NULL, "for scripts; docs/plan.md describes it", false },
    };
    const mt_usage usage = { "plan", "[MODEL | --shape NAME | --config FILE] [options]",
                             "Will it fit, how fast, which batch size: before anything is loaded, for this machine or\n"
                             "one described by flags.  Every setting of `train` may be given too (--max-seq-len 4096,\n"
                             "--max-grad-norm 0).  Alone on a terminal it asks.",
                             NULL, flags, MT_COUNT(flags) };
    bool alone = argc == 1;
    MT_TRY(mt_settings_args(set, &argc, argv, err));
    MT_TRY(mt_flags_parse(&usage, argc, argv, NULL, &help, err));
    if (help) return MT_OK;
    if (o->list_gpus) return list_gpus(), MT_OK;
    if (o->list_shapes) return list_shapes(), MT_OK;
    if (o->what_fits) return mt_plan_what_fits(&o->asked, set->dataset.max_seq_len, err);
    if (alone && isatty(STDIN_FILENO)) return mt_plan_ask(err);
    o->asked.device = set->model.device;
    return answer(o, set, err);
}

int mt_cmd_plan(int argc, char **argv)
{
    mt_err err = { 0 };
    options o = { 0 };
    mt_settings set;
    if (mt_settings_init(&set, &err)) return mt_cli_failed(&err);
    mt_rc rc = command(&o, &set, argc, argv, &err);
    mt_settings_deinit(&set);
    return rc ? mt_cli_failed(&err) : 0;
}
