/* cmd_plan.c - megatrain plan: whether a run fits, how fast it is, which batch size to use; for this machine or a described
 * one. */
#include "base/units.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/installed.h"
#include "cli/plan_ask.h"
#include "cli/plan_fits.h"
#include "cli/plan_scale.h"
#include "model/flops.h"
#include "plan/gpus.h"
#include "plan/host.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    mt_plan_asked asked;
    mt_flag_strs words; /* MODEL */
    bool json, list_gpus, list_shapes;
    int64_t gpus; /* 0: from model.devices */
    int64_t machines;
    uint64_t network; /* 0: a typical one */
} options;

/* -- the answer ------------------------------------------------------------------------------------ */

/* Bytes of masters in a checkpoint: frozen parameters that the files have in bf16 have no low halves, and packed ones are bytes. */
static uint64_t master_bytes(const mt_model *m)
{
    uint64_t bytes = 0;
    for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);) {
        const size_t packed = mt_packing_bytes(&at.w->packing);
        bytes += packed ? packed : (uint64_t)at.w->n * (at.w->no_low ? 2 : 4);
    }
    return bytes;
}

/* Disk space of the run: the model, and in a checkpoint also lo and the optimizer's arrays unless only the model is saved. */
static mt_train_writes writes_of(const mt_model *m, const mt_settings *s)
{
    const mt_save_settings *save = &s->save;
    const mt_dtype dtype = save->dtype == MT_DTYPE_COUNT ? m->config->dtype : save->dtype;
    mt_arithmetic types = { 0 };
    mt_train_types(s, &types);
    const size_t arrays = mt_state_arrays_bytes(mt_arithmetic_form(&types));
    const uint64_t resume = master_bytes(m) + (uint64_t)m->n_trained * arrays;
    mt_train_writes w = { .model = (uint64_t)m->n_params * mt_dtype_bytes(dtype == MT_DTYPE_F64 ? MT_DTYPE_F32 : dtype) };
    w.checkpoint = w.model + (save->save_only_model ? 0 : resume);
    mt_train_count_writes(&w, save, 0, mt_train_saves(save, 0, s->training.num_steps, 0) + !save->save_only_model);
    return w;
}

/* The advice compares batch sizes with a quick estimate; its speed for the recommended size is shown beside the plan's own
 * speed. */
static mt_rc speed_of_recommended(mt_plan_answer *a, const mt_plan *asked, mt_err *err)
{
    const int64_t batch = a->batch.recommended;
    if (!batch) return MT_OK;
    const mt_job job = mt_question_job(&a->q, batch);
    mt_plan *own = NULL;
    if (batch != a->q.batch || !asked)
        MT_TRY(mt_plan_auto(&own, (mt_plan_inputs){ a->q.model, &job, &a->q.form, &a->q.machine }, err));
    a->batch.tokens_s = (double)job.step_tokens / (own ? own : asked)->predicted_seconds;
    mt_plan_free(own);
    return MT_OK;
}

static mt_rc find_answer(mt_plan_answer *a, mt_plan **plan, mt_err *err)
{
    *plan = NULL;
    MT_TRY(mt_advise_batch(&a->batch, &a->q, err));
    a->q.auto_batch = !a->q.batch;
    if (a->q.auto_batch) a->q.batch = mt_advise_auto(&a->batch, a->settings->training.gradient_accumulation_steps);
    const mt_job job = mt_question_job(&a->q, a->q.batch);
    mt_rc rc = mt_plan_auto(plan, (mt_plan_inputs){ a->q.model, &job, &a->q.form, &a->q.machine }, err);
    if (rc && rc != MT_ENOMEM) return rc;
    MT_TRY(mt_advise_need(&a->need, &a->q, err));
    MT_TRY(speed_of_recommended(a, *plan, err));
    a->plan = *plan;
    MT_TRY(mt_plan_scale_find(&a->scale, a, err));
    return rc ? mt_advise_remedies(a->remedies, &a->n_remedies, &a->q, &a->batch, err)
              : mt_advise_updates(&a->updates, &a->q, *plan, err);
}

static void add_note(mt_plan_answer *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_note(mt_plan_answer *a, const char *fmt, ...)
{
    va_list args;
    if (a->n_notes == MT_PLAN_NOTES) return;
    va_start(args, fmt);
    vsnprintf(a->notes[a->n_notes++], sizeof a->notes[0], fmt, args);
    va_end(args);
}

/* Notices and errors of `train` that a plan does not show. */
static void add_notes(mt_plan_answer *a, const mt_subject *s)
{
    if (s->untrained) {
        snprintf(a->refused, sizeof a->refused, "megatrain does not train %s models yet", s->untrained);
        add_note(a, "%s; sizes and work a token are planned as a dense block's", a->refused);
        return;
    }
    if (a->q.seq_len > s->config->max_positions) {
        snprintf(a->refused, sizeof a->refused, "train refuses samples of more than %lld tokens",
                 (long long)s->config->max_positions);
        add_note(a, "the model has %lld positions, and train refuses longer samples: lower max_seq_len",
                 (long long)s->config->max_positions);
    }
    if (a->disk_free && a->disk_free < a->writes.bytes && !*a->refused) {
        snprintf(a->refused, sizeof a->refused, "the run writes %s, and %s is free at the output directory",
                 mt_bytes_text(a->writes.bytes).s, mt_bytes_text(a->disk_free).s);
        add_note(a,
                 "%s: train refuses to start; use another --output-dir; a larger save_steps, a smaller keep_last "
                 "or save_only_model write less",
                 a->refused);
        a->disk_short = true;
    }
    for (size_t i = 0; !s->published && i < s->config->n_assumptions; i++) add_note(a, "%s", s->config->assumptions[i]);
}

/* As --what-fits counts it: with a tenth less memory it would not fit. */
static void add_tight(mt_plan_answer *a)
{
    const size_t have = a->q.machine.host_bytes, need = a->need.host;
    if (a->plan && need != SIZE_MAX && (double)need > 0.9 * (double)have)
        add_note(a, "tight: it needs at least %s of %s of host memory; close other programs", mt_bytes_text(need).s,
                 mt_bytes_text(have).s);
}

static mt_rc show_answer(mt_plan_answer *a, bool json, mt_err *err)
{
    mt_plan *plan = NULL;
    mt_str out = { 0 };
    mt_json_out j = { .to = &out };
    mt_terminal term = mt_terminal_of(stdout, MT_COLOR_AUTO);
    mt_rc rc = find_answer(a, &plan, err);
    if (!rc) add_tight(a);
    if (!rc && json) {
        mt_plan_json(&j, a);
        rc = mt_cli_print_json(&j, err);
    } else if (!rc) {
        mt_plan_show(&out, a, &term);
        fputs(out.s ? out.s : "", stdout);
    }
    mt_str_free(&out);
    mt_plan_free(plan);
    return rc;
}

static const double USUAL_NETWORK = 12.5e9; /* 100 Gbit/s */

static mt_rc answer(const options *o, const mt_settings *set, mt_err *err)
{
    const mt_plan_asked *asked = &o->asked;
    mt_subject s;
    mt_machine_found found;
    mt_rc rc = mt_subject_open(&s, &asked->subject, set, err);
    if (!rc) rc = mt_plan_machine(&found, &asked->machine, set, err);
    if (!rc) {
        mt_plan_answer a = { .model = s.name, .untrained = s.untrained, .on = &found, .settings = set };
        a.q = mt_plan_question(s.model, set, &found.machine);
        if (o->gpus) mt_question_set_lanes(&a.q, (int)o->gpus);
        if (o->machines > 1) a.q.machines = (int)o->machines;
        if (o->machines > 1 && !a.q.form.bundles) a.q.form.bundles = o->machines;
        a.network = o->network ? (double)o->network : USUAL_NETWORK;
        a.q.device_there = found.device_there;
        a.q.host_there = found.host_there;
        a.n_steps = set->training.num_steps;
        a.writes = writes_of(s.model, set);
        /* A described machine has another disk, and removing an old run frees some space. */
        bool here = found.here && !set->save.overwrite && !*set->save.resume;
        if (here) a.disk_free = mt_disk_free(*set->save.output_dir ? set->save.output_dir : ".");
        add_notes(&a, &s);
        rc = show_answer(&a, o->json, err);
    }
    mt_subject_close(&s);
    return rc;
}

/* -- the command ----------------------------------------------------------------------------------- */

/* Drivers may have several names for a card. */
static bool is_new(size_t i) { return i == 0 || strcmp(mt_gpus[i].name, mt_gpus[i - 1].name) != 0; }

static void put_gpu(mt_json_out *j, const mt_gpu *g)
{
    mt_json_map(j, NULL, MT_JSON_FLAT);
    mt_json_put_str(j, "gpu", g->name);
    mt_json_put_num(j, "device_bytes", "%.0f", g->gib * 1073741824.0);
    mt_json_put_num(j, "product_flops", "%.4g", g->tflops * 1e12);
    mt_json_put_num(j, "attention_flops", "%.4g", g->attention * 1e12);
    mt_json_put_num(j, "device_bandwidth", "%.4g", g->gb_s * 1e9);
    mt_json_put_num(j, "link", "%.4g", g->link * 1e9);
    mt_json_end(j);
}

/* {"version": 1, "KEY": [ */
static void open_listing(mt_json_out *j, const char *key)
{
    mt_json_map(j, NULL, MT_JSON_LINES);
    mt_json_put_int(j, "version", 1);
    mt_json_list(j, key, MT_JSON_LINES);
}

static mt_rc print_listing(mt_json_out *j, mt_err *err)
{
    mt_json_end(j);
    mt_json_end(j);
    return mt_cli_print_json(j, err);
}

static mt_rc list_gpus(bool json, mt_err *err)
{
    mt_str out = { 0 };
    mt_json_out j = { .to = &out };
    open_listing(&j, "gpus");
    for (size_t i = 0; i < mt_n_gpus; i++) {
        const mt_gpu *g = &mt_gpus[i];
        if (!is_new(i)) continue;
        if (json)
            put_gpu(&j, g);
        else
            printf("%-14s %6.1f GiB  %5.0f TFLOP/s  %5.0f GB/s  link %3.0f GB/s\n", g->name, g->gib, g->tflops, g->gb_s, g->link);
    }
    if (json) return print_listing(&j, err);
    mt_str_free(&out);
    return MT_OK;
}

/* A shape's parameters: total, and active per token. */
static mt_rc count_shape(const mt_shape *s, int64_t *all, int64_t *active, mt_err *err)
{
    mt_config *c;
    mt_model *m;
    MT_TRY(mt_shape_model(&c, &m, s, NULL, err));
    *all = m->n_params;
    *active = mt_flops_weights(m);
    mt_model_free(m);
    mt_config_close(c);
    return MT_OK;
}

static void put_shape(mt_json_out *j, const mt_shape *s, int64_t all, int64_t active)
{
    mt_json_map(j, NULL, MT_JSON_FLAT);
    mt_json_put_str(j, "model", s->name);
    mt_json_put_bool(j, "trainable_family", !s->untrained);
    mt_json_put_int(j, "parameters", all);
    mt_json_put_int(j, "active_parameters", active);
    mt_json_end(j);
}

static mt_rc list_shapes(bool json, mt_err *err)
{
    mt_str out = { 0 };
    mt_json_out j = { .to = &out };
    mt_rc rc = MT_OK;
    open_listing(&j, "models");
    for (size_t i = 0; !rc && i < mt_n_shapes; i++) {
        const mt_shape *s = &mt_shapes[i];
        int64_t all = 0, active = 0;
        rc = count_shape(s, &all, &active, err);
        if (json)
            put_shape(&j, s, all, active);
        else if (s->untrained)
            printf("%-34s %10.3f B  (planned, not trained yet)\n", s->name, 1e-9 * (double)all);
        else
            printf("%-34s %10.3f B, %8.3f B active\n", s->name, 1e-9 * (double)all, 1e-9 * (double)active);
    }
    if (!rc && json) return print_listing(&j, err);
    mt_str_free(&out);
    return rc;
}

/* One model, named once. */
static mt_rc take_words(options *o, mt_err *err)
{
    mt_plan_asked *asked = &o->asked;
    size_t most = asked->subject.shape || asked->what_fits ? 0 : 1;
    if (o->words.n > most)
        return mt_fail(err, MT_EINVAL, "plan: \"%s\" is an extra argument; see megatrain plan --help", o->words.items[most]);
    if (asked->what_fits && asked->subject.shape)
        return mt_fail(err, MT_EINVAL, "plan: --what-fits lists every known model; remove --shape");
    return MT_OK;
}

static bool is_flag(const mt_settings *set, const char *key) { return mt_settings_origin(set, key) == MT_ORIGIN_FLAG; }

/* --gpu overrides --device: a command line of train is planned for another machine by adding it. */
static mt_rc check_flags(const options *o, const mt_settings *set, mt_err *err)
{
    const mt_subject_asked *model = &o->asked.subject;
    const mt_machine_asked *machine = &o->asked.machine;
    const mt_ints *devices = &set->model.devices;
    const bool named = is_flag(set, "model.name"), listed = is_flag(set, "model.devices");
    const bool cpu = is_flag(set, "model.device") && set->model.device.kind == MT_SET_DEVICE_CPU;
    const bool all = listed && devices->n && devices->items[0] < 0;
    const struct {
        bool given;
        const char *one, *other, *both;
    } clashes[] = {
        { o->list_gpus && o->list_shapes, "--list-gpus", "--list-shapes", "print a list" },
        { model->shape && named, "--shape", "--model-name", "name the model" },
        { model->name && named, model->name, "--model-name", "name the model" },
        { machine->gpu && all, "--gpu", "--devices all", "name GPUs, of two machines (--gpus N is their number)" },
        { o->gpus && cpu && !machine->gpu, "--gpus", "--device cpu", "describe the device" },
        { o->gpus && listed && (all || (int64_t)devices->n != o->gpus), "--gpus", "--devices", "give a number of GPUs" },
        { o->asked.what_fits && o->gpus > 1, "--what-fits", "--gpus", "compare plans" },
        { o->asked.what_fits && o->machines > 1, "--what-fits", "--machines", "compare plans" },
    };
    for (size_t i = 0; i < MT_COUNT(clashes); i++)
        if (clashes[i].given)
            return mt_fail(err, MT_EINVAL, "plan: %s and %s both %s; give only one of them", clashes[i].one, clashes[i].other,
                           clashes[i].both);
    return MT_OK;
}

static mt_rc command(options *o, mt_settings *set, int argc, char **argv, mt_err *err)
{
    bool help;
    const mt_flag flags[] = {
        { "...", MT_FLAG_STRS, &o->words, "MODEL", "a model directory, a .gguf file, or a published model's name", false },
        { "--shape", MT_FLAG_STR, &o->asked.subject.shape, "NAME", "a published model, such as qwen2.5-7b", false },
        { "--gpu", MT_FLAG_STR, &o->asked.machine.gpu, "NAME", "a GPU that is not here: h100, rtx4090", false },
        { "--gpus", MT_FLAG_CORES, &o->gpus, "N", "GPUs of that kind in the machine; compares 1, 2, 4 ... of them", false },
        { "--machines", MT_FLAG_CORES, &o->machines, "N", "machines of that kind; compares 1, 2, 4 ... of them", false },
        { "--network", MT_FLAG_MEMORY, &o->network, "SIZE", "bytes per second each way between machines: 50G (default 12.5G)",
          false },
        { "--gpu-memory", MT_FLAG_MEMORY, &o->asked.machine.gpu_memory, "SIZE",
          "the GPU's total memory, including the driver's share: 80Gi", false },
        { "--ram", MT_FLAG_MEMORY, &o->asked.machine.ram, "SIZE", "host memory to plan with (default: free memory): 1.5T",
          false },
        { "--link", MT_FLAG_MEMORY, &o->asked.machine.link, "SIZE", "bytes per second between host and GPU: 55G", false },
        { "--peer", MT_FLAG_BYTES, &o->asked.machine.peer, "SIZE",
          "with --gpus: bytes per second between GPUs, such as 400G (0: through host memory)", false },
        { "--cores", MT_FLAG_CORES, &o->asked.machine.cores, "N", "cores of the host", false },
        { "--what-fits", MT_FLAG_BOOL, &o->asked.what_fits, NULL, "list every known model: fits, tight, or what it needs",
          false },
        { "--list-gpus", MT_FLAG_BOOL, &o->list_gpus, NULL, "list the known GPUs", false },
        { "--list-shapes", MT_FLAG_BOOL, &o->list_shapes, NULL, "list the known models", false },
        { "--json", MT_FLAG_BOOL, &o->json, NULL, "print JSON for scripts (docs/plan-json.md)", false },
    };
    const mt_usage usage = { "plan",
                             "[MODEL | FILE.yaml | --shape NAME] [options]",
                             "Show whether a run fits, how fast it is and which batch size to use, without loading\n"
                             "anything, for this machine or one described by flags.  Every setting of `train` may be given\n"
                             "too (--max-seq-len 4096, --max-grad-norm 0).  Without arguments on a terminal, it asks.",
                             NULL,
                             flags,
                             MT_COUNT(flags),
                             mt_print_settings };
    bool alone = argc == 1, ended = false;
    MT_TRY(mt_installed_configs(&set->arena, argc, argv, err));
    MT_TRY(mt_misused(mt_settings_args(set, &argc, argv, err), err));
    MT_TRY(mt_flags_parse(&usage, argc, argv, NULL, &help, err));
    if (help) return MT_OK;
    if (o->words.n) o->asked.subject.name = o->words.items[0];
    MT_TRY(check_flags(o, set, err));
    if (o->list_gpus) return list_gpus(o->json, err);
    if (o->list_shapes) return list_shapes(o->json, err);
    MT_TRY(take_words(o, err));
    if (alone && isatty(STDIN_FILENO)) MT_TRY(mt_plan_ask(&o->asked, set, &ended, err));
    if (ended) return MT_OK;
    MT_TRY(mt_misused(mt_plan_check_step(set, err), err));
    return o->asked.what_fits ? mt_plan_what_fits(&o->asked.machine, set, o->json, err) : answer(o, set, err);
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
