/* check.c - settings against each other.  What is still open is resolved, what the user should know becomes a
 * notice, what cannot work stops here. */
#include "settings/problems.h"
#include "settings/table.h"

#include "base/file.h"
#include "optim/optimizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool check_given(const mt_settings *s, const char *section, const char *key)
{
    return mt__setting_source(s, section, key)->origin != MT_ORIGIN_DEFAULT;
}

/* Fail with the place of a setting in front: "q.yaml:7: model.devices: ...". */
static mt_rc refuse(const mt_settings *s, const char *section, const char *key, mt_err *err, const char *text)
{
    mt_str where = { 0 };
    char name[48];
    snprintf(name, sizeof name, "%s.%s", section, key);
    mt_settings_where(s, name, &where);
    mt_rc rc = mt_fail(err, MT_EINVAL, "%s: %s: %s", where.s ? where.s : "", name, text);
    mt_str_free(&where);
    return rc;
}

/* "--epochs", "--set training.epochs" or "my.yaml:7". */
static mt_flag_text named(const mt_settings *s, const char *section, const char *key)
{
    const mt_setting_source *from = mt__setting_source(s, section, key);
    mt_flag_text t;
    if (from->origin == MT_ORIGIN_FILE)
        snprintf(t.s, sizeof t.s, "%.40s:%d", mt_path_base(from->name), from->line);
    else if (strcmp(from->name, "--set") == 0)
        snprintf(t.s, sizeof t.s, "--set %s.%s", section, key);
    else
        snprintf(t.s, sizeof t.s, "%.47s", from->name);
    return t;
}

static bool is_flag(const mt_settings *s, const char *section, const char *key)
{
    return mt__setting_source(s, section, key)->origin == MT_ORIGIN_FLAG;
}

/* Two settings that were both given, where one is enough.  Two flags contradict each other, and a flag overrides a file: the
 * first setting then gets its default.  *over: the first one counts, over the second. */
static mt_rc check_rivals(mt_settings *s, const char *section, const char *first, const char *second, const char *both,
                          bool *over, mt_err *err)
{
    *over = !is_flag(s, section, second);
    if (*over) return MT_OK;
    const mt_flag_text one = named(s, section, first), other = named(s, section, second);
    if (is_flag(s, section, first))
        return mt_fail(err, MT_EINVAL, "%s and %s both %s; give only one of them", one.s, other.s, both);
    MT_TRY(mt__setting_default(s, mt__setting_find(section, first), err));
    return mt__settings_notice(s, err, "%s counts: %s.%s (%s) is ignored", other.s, section, first, one.s);
}

/* A device and devices that do not name the same GPU. */
static mt_rc check_other_gpu(mt_settings *s, int first, mt_err *err)
{
    const mt_flag_text device = named(s, "model", "device"), devices = named(s, "model", "devices");
    if (is_flag(s, "model", "device"))
        return mt_fail(err, MT_EINVAL,
                       "model.device (%s) and model.devices (%s) name different GPUs; leave the first out, or give the GPUs as "
                       "--devices",
                       device.s, devices.s);
    return mt__settings_notice(s, err, "model.devices names GPU %d; model.device is ignored", first);
}

static mt_rc check_devices(mt_settings *s, mt_err *err)
{
    mt_model_settings *m = &s->model;
    const mt_ints *d = &m->devices;
    if (!d->n) return MT_OK;
    for (size_t i = 0; i < d->n; i++)
        if (d->items[i] < 0 && d->n > 1) return refuse(s, "model", "devices", err, "all stands alone; list numbers, or all");
    if (d->n > MT_SET_MOST_DEVICES) return refuse(s, "model", "devices", err, "at most 64 devices train together in one machine");
    const bool all = d->items[0] < 0, given = check_given(s, "model", "device");
    const bool cpu = given && m->device.kind == MT_SET_DEVICE_CPU;
    if (cpu && all)
        return refuse(s, "model", "devices", err,
                      "all means every GPU, and model.device is cpu.  Leave one of them out, or list a number for each lane on "
                      "the CPU, such as 0,0");
    if (cpu && is_flag(s, "model", "devices") && !is_flag(s, "model", "device"))
        MT_TRY(mt__settings_notice(s, err, "model.device (%s) is cpu: --devices lists lanes on the CPU; --device auto takes GPUs",
                                   named(s, "model", "device").s));
    if (cpu) return MT_OK; /* lanes on the CPU */
    const int first = all ? 0 : (int)d->items[0];
    const bool named_gpu = given && m->device.kind == MT_SET_DEVICE_CUDA;
    if (named_gpu && !all && m->device.index != first) MT_TRY(check_other_gpu(s, first, err));
    m->device = (mt_set_device){ MT_SET_DEVICE_CUDA, first };
    if ((all || d->n > 1) && s->training.tune_products && s->training.deterministic)
        return refuse(s, "training", "tune_products", err,
                      "kernels chosen by timing may differ between GPUs, and with them the bits.  Leave it out, or set "
                      "training.deterministic: false");
    return MT_OK;
}

/* A batch_size that was given since is the whole step's. */
static void check_batch(mt_settings *s)
{
    if (mt__setting_source(s, "training", "batch_size")->origin != MT_ORIGIN_FILE) s->batch_per_device = false;
}

static mt_rc check_model(mt_settings *s, int needs, mt_err *err)
{
    check_batch(s);
    mt_model_settings *m = &s->model;
    if ((needs & MT_NEED_MODEL) && !*m->name)
        return mt_fail(err, MT_EINVAL,
                       "no model: set model.name in the configuration or give --model-name NAME (a directory or a hub name)");
    MT_TRY(check_devices(s, err));
    if (m->dtype == MT_DTYPE_F16)
        MT_TRY(mt__settings_notice(s, err, "dtype float16 is computed as bfloat16, which needs no loss scaling"));
    if (m->trust_remote_code)
        MT_TRY(mt__settings_notice(s, err,
                                   "trust_remote_code is accepted and has no effect: no code from a model repository ever runs"));
    return MT_OK;
}

static mt_rc check_mix(mt_settings *s, mt_err *err)
{
    const mt_dataset_settings *d = &s->dataset;
    if (!d->interleave_probs.n) return MT_OK;
    if (d->interleave_probs.n != (d->name.n ? d->name.n : d->path.n))
        return refuse(s, "dataset", "interleave_probs", err,
                      "give one probability for each entry of dataset.name, or of dataset.path");
    double sum = 0;
    for (size_t i = 0; i < d->interleave_probs.n; i++) sum += d->interleave_probs.items[i];
    if (fabs(sum - 1) > 1e-3) return refuse(s, "dataset", "interleave_probs", err, "the probabilities must add up to 1");
    if (d->mix_strategy == MT_MIX_CONCAT)
        return mt__settings_notice(s, err, "dataset.interleave_probs has no effect with mix_strategy concat");
    return MT_OK;
}

/* Without HOME, "~/x" has stayed as it was: a folder named "~" is not what was meant. */
static mt_rc check_home(mt_settings *s, mt_err *err)
{
    for (size_t i = 0; i < mt__n_settings; i++) {
        const mt_setting *row = &mt__settings[i];
        const bool is_list = row->type == MT_SETTING_STRS;
        const mt_strs one = { row->path && !is_list ? mt__setting_field(s, row) : NULL, 1 },
                      *paths = is_list ? mt__setting_field(s, row) : &one;
        for (size_t k = 0; row->path && k < paths->n; k++)
            if (strncmp(paths->items[k], "~/", 2) == 0)
                return refuse(s, row->section, row->key, err, "it begins with ~/ and HOME is not set; write the whole path");
    }
    return MT_OK;
}

static mt_rc check_delimiter(mt_settings *s, mt_err *err)
{
    const char *d = s->dataset.delimiter;
    bool character = d[0] > 0 && !d[1] && !strchr("\"\r\n", d[0]);
    if (!*d || character || strcmp(d, "tab") == 0) return MT_OK;
    return refuse(s, "dataset", "delimiter", err, "expected one ASCII character other than a quote, or tab");
}

static mt_rc check_dataset(mt_settings *s, int needs, mt_err *err)
{
    const mt_dataset_settings *d = &s->dataset;
    if ((needs & MT_NEED_DATA) && !d->name.n && !d->path.n)
        return mt_fail(err, MT_EINVAL,
                       "no data: set dataset.name (an entry of dataset_info.json) or dataset.path (a file or folder), or give "
                       "--dataset-name "
                       "or --dataset-path");
    bool named_sets = d->name.n;
    if (d->name.n && d->path.n) MT_TRY(check_rivals(s, "dataset", "name", "path", "name the data", &named_sets, err));
    if (named_sets && d->path.n) MT_TRY(mt__settings_notice(s, err, "dataset.path is ignored: dataset.name is set"));
    if (*d->system_prompt && *d->default_system)
        MT_TRY(mt__settings_notice(s, err, "dataset.default_system has no effect: system_prompt replaces every system message"));
    if (d->train_on_prompt && d->mask_history)
        return refuse(s, "dataset", "mask_history", err,
                      "train_on_prompt trains on everything, mask_history on the last answer; choose one");
    return check_mix(s, err);
}

static mt_rc check_length(mt_settings *s, mt_err *err)
{
    mt_training_settings *t = &s->training;
    bool steps_count = t->num_steps;
    if (t->num_steps && t->epochs > 0)
        MT_TRY(check_rivals(s, "training", "num_steps", "epochs", "decide the length of the run", &steps_count, err));
    if (steps_count && t->epochs > 0)
        MT_TRY(
            mt__settings_notice(s, err, "num_steps %" PRId64 " decides the length of the run; epochs is ignored", t->num_steps));
    if (!t->num_steps && t->epochs == 0 && check_given(s, "training", "epochs"))
        return refuse(s, "training", "epochs", err, "0 passes over the data train nothing; give more, or say num_steps");
    if (!t->num_steps && t->epochs == 0) t->num_steps = 100;
    if (t->gradient_accumulation_steps > 1 && !s->flat)
        MT_TRY(mt__settings_notice(s, err,
                                   "num_steps counts optimizer updates; the original counted micro-batches, so %" PRId64
                                   " of its steps are one of these",
                                   t->gradient_accumulation_steps));
    return MT_OK;
}

static mt_rc check_objective(mt_settings *s, mt_err *err)
{
    const mt_training_settings *t = &s->training;
    if (t->label_smoothing_factor > 0 && t->objective != MT_SET_OBJECTIVE_CROSS_ENTROPY)
        MT_TRY(mt__settings_notice(s, err,
                                   "only the objective cross_entropy has label smoothing; label_smoothing_factor is ignored"));
    if (t->objective != MT_SET_OBJECTIVE_EAFT && check_given(s, "training", "eaft_alpha"))
        MT_TRY(mt__settings_notice(s, err, "eaft_alpha matters to the objective eaft only"));
    return MT_OK;
}

static mt_rc check_schedule(mt_settings *s, mt_err *err)
{
    const mt_training_settings *t = &s->training;
    bool steps_count = t->warmup_steps;
    if (t->warmup_steps && t->warmup_ratio > 0)
        MT_TRY(
            check_rivals(s, "training", "warmup_steps", "warmup_ratio", "decide the length of the warm-up", &steps_count, err));
    bool wsd = t->lr_scheduler == MT_SET_LR_WARMUP_STABLE_DECAY, warmup = t->warmup_steps || t->warmup_ratio > 0;
    if (t->min_lr >= 0 && t->min_lr_ratio >= 0)
        return refuse(s, "training", "min_lr_ratio", err, "min_lr says the same in other words; give one of the two");
    if (t->min_lr > t->learning_rate) return refuse(s, "training", "min_lr", err, "it is above learning_rate");
    bool needs_min = t->lr_scheduler == MT_SET_LR_COSINE_WITH_MIN_LR || t->lr_scheduler == MT_SET_LR_COSINE_WARMUP_WITH_MIN_LR;
    if (needs_min && t->min_lr < 0 && t->min_lr_ratio < 0)
        return refuse(s, "training", "lr_scheduler", err, "this one needs min_lr or min_lr_ratio");
    if (steps_count && t->warmup_ratio > 0) MT_TRY(mt__settings_notice(s, err, "warmup_steps is set; warmup_ratio is ignored"));
    if (warmup && t->lr_scheduler == MT_SET_LR_CONSTANT)
        MT_TRY(mt__settings_notice(s, err, "lr_scheduler constant has no warm-up; write constant_with_warmup to have one"));
    if (!wsd && (t->num_stable_steps >= 0 || t->num_decay_steps >= 0))
        MT_TRY(
            mt__settings_notice(s, err, "num_stable_steps and num_decay_steps matter to lr_scheduler warmup_stable_decay only"));
    return MT_OK;
}

mt_optimizer_kind mt_settings_optimizer(const mt_settings *s)
{
    return s->optimizer.type == MT_SET_OPTIMIZER_LION ? MT_OPTIMIZER_LION : MT_OPTIMIZER_ADAMW;
}

static mt_rc check_optimizer(mt_settings *s, mt_err *err)
{
    const mt_optimizer *o = mt_optimizer_of(mt_settings_optimizer(s));
    if (!mt_settings_given(s, "optimizer.beta2")) s->optimizer.beta2 = o->beta2;
    if (!o->uses_eps && mt_settings_given(s, "optimizer.eps"))
        return mt__settings_notice(s, err, "optimizer.eps has no effect: %s does not use it", o->title);
    return MT_OK;
}

static mt_rc check_eval(mt_settings *s, mt_err *err)
{
    const mt_eval_settings *e = &s->eval;
    if (e->val_size > 0 && e->dataset.n)
        return refuse(s, "eval", "dataset", err, "val_size already holds out part of the training data; give one of the two");
    if (e->eval_steps && !(e->val_size > 0) && !e->dataset.n)
        MT_TRY(mt__settings_notice(s, err, "eval_steps has no effect: neither eval.val_size nor eval.dataset is set"));
    return MT_OK;
}

/* runs/<name of the configuration file, or of the model>. */
static mt_rc default_output_dir(mt_settings *s, mt_err *err)
{
    if (*s->save.output_dir) return MT_OK;
    const char *from = *s->config_path ? s->config_path : s->model.name, *base = mt_path_base(from);
    size_t n = strlen(base);
    const char *dot = *s->config_path ? strrchr(base, '.') : NULL;
    if (dot && dot > base) n = (size_t)(dot - base);
    bool usable = n && strcmp(base, ".") != 0 && strcmp(base, "..") != 0;
    char *name = mt_asprintf("runs/%.*s", usable ? (int)n : 3, usable ? base : "run");
    char *kept = name ? mt_arena_strndup(&s->arena, name, strlen(name)) : NULL;
    mt_free(name);
    if (!kept) return mt_no_memory(err, "the name of the output directory");
    s->save.output_dir = kept;
    return MT_OK;
}

static mt_rc check_resume(mt_settings *s, mt_err *err)
{
    if (!*s->save.resume || !s->save.overwrite) return MT_OK;
    return mt_fail(err, MT_EINVAL, "--resume continues a run and --overwrite starts over; give only one of them");
}

mt_rc mt_settings_check(mt_settings *s, int needs, mt_err *err)
{
    mt_rc (*const checks[])(mt_settings *, mt_err *) = { check_home,      check_delimiter, check_length, check_schedule,
                                                         check_optimizer, check_objective, check_eval,   check_resume };
    mt__problems p = { 0 };
    mt_err one = { 0 };
    mt_rc rc = mt__problems_add(&p, check_model(s, needs, &one), &one, err);
    if (!rc) rc = mt__problems_add(&p, check_dataset(s, needs, &one), &one, err);
    for (size_t i = 0; i < MT_COUNT(checks) && !rc; i++) rc = mt__problems_add(&p, checks[i](s, &one), &one, err);
    if (rc) return mt__problems_drop(&p), rc;
    MT_TRY(mt__problems_end(&p, *s->config_path ? s->config_path : "the settings", err));
    return default_output_dir(s, err);
}
