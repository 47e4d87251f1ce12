#include "cli/plan_fits.h"

#include "base/units.h"
#include "cli/commands.h"
#include "cli/plan_view.h"

#include <stdio.h>
#include <string.h>

enum { USUAL_BATCH = 32 };

typedef enum verdict { FITS, TIGHT, NO } verdict;
static const char *const verdicts[] = { [FITS] = "fits", [TIGHT] = "tight", [NO] = "no" };

typedef struct fit {
    const mt_shape *shape;
    int64_t n_params, seq_len;
    verdict verdict;
    mt_need need;
} fit;

/* Samples per step: as given; auto takes what fits, at least one. */
static int64_t step_samples(const mt_settings *set)
{
    const mt_training_settings *t = &set->training;
    if (!mt_settings_given(set, "training.batch_size")) return USUAL_BATCH * t->gradient_accumulation_steps;
    return t->batch_size ? t->batch_size * t->gradient_accumulation_steps : 1;
}

static mt_rc plan_fits_judge(fit *f, const mt_model *model, const mt_settings *set, const mt_machine *machine, mt_err *err)
{
    mt_question q = mt_plan_question(model, set, machine);
    q.batch = step_samples(set);
    f->seq_len = q.seq_len = mt_min_i64(q.seq_len, model->config->max_positions);
    f->n_params = model->n_params;
    mt_machine tight = q.machine;
    tight.device_bytes -= machine->device_bytes / 10;
    tight.host_bytes -= machine->host_bytes / 10;
    const mt_job job = mt_question_job(&q, q.batch);
    bool fits = mt_plan_auto_fits((mt_plan_inputs){ model, &job, &q.form, &q.machine });
    f->verdict = NO;
    if (fits) f->verdict = mt_plan_auto_fits((mt_plan_inputs){ model, &job, &q.form, &tight }) ? FITS : TIGHT;
    return mt_advise_need(&f->need, &q, err);
}

static mt_rc fit_of(fit *f, const mt_shape *shape, const mt_settings *set, const mt_machine *machine, mt_err *err)
{
    mt_config *c;
    mt_model *m;
    *f = (fit){ .shape = shape };
    const mt_model_options o = mt_plan_model_options(set);
    MT_TRY(mt_shape_model(&c, &m, shape, &o, err));
    mt_rc rc = plan_fits_judge(f, m, set, machine, err);
    mt_model_free(m);
    mt_config_close(c);
    return rc;
}

/* -- text ------------------------------------------------------------------------------------------ */

static void print_heading(const mt_machine_found *found, const mt_question *q)
{
    mt_terminal term = mt_terminal_of(stdout, MT_COLOR_AUTO);
    mt_str text = { 0 }, out = { 0 };
    mt_str_printf(&text, "%s, %s of host memory (%s); ", found->device, mt_bytes_text(found->machine.host_bytes).s,
                  found->ram_source);
    mt_plan_step_text(&text, q);
    mt_text_wrap(&out, text.s ? text.s : "", mt_terminal_columns(&term), 2);
    printf("%s\n", mt_str_ok(&out) && out.s ? out.s : "");
    mt_str_free(&text);
    mt_str_free(&out);
}

static void print_fit(const fit *f, const mt_settings *set, const mt_machine *machine)
{
    printf("  %-28s %8s  ", f->shape->name, mt_count_text((uint64_t)f->n_params).s);
    if (f->verdict != NO)
        printf("%s", verdicts[f->verdict]);
    else if (f->need.device > machine->device_bytes)
        printf("needs %s on the GPU", mt_bytes_text(f->need.device).s);
    else
        printf("needs %s of RAM", mt_bytes_text(f->need.host).s);
    if (f->seq_len < set->dataset.max_seq_len) printf(" at %lld tokens", (long long)f->seq_len); /* all it has positions for */
    printf("%s\n", f->shape->untrained ? " (not trained)" : "");
}

/* -- JSON ------------------------------------------------------------------------------------------ */

static void put_fit(mt_json_out *j, const fit *f)
{
    mt_json_map(j, NULL, MT_JSON_FLAT);
    mt_json_put_str(j, "model", f->shape->name);
    mt_json_put_int(j, "parameters", f->n_params);
    mt_json_put_bool(j, "trainable_family", !f->shape->untrained);
    mt_json_put_str(j, "verdict", verdicts[f->verdict]);
    mt_json_put_int(j, "max_seq_len", f->seq_len);
    mt_plan_json_need(j, &f->need);
    mt_json_end(j);
}

static void put_heading(mt_json_out *j, const mt_machine_found *found, const mt_settings *set, const mt_question *q)
{
    mt_json_map(j, NULL, MT_JSON_LINES);
    mt_json_put_int(j, "version", 1);
    mt_plan_json_step(j, q, set->training.gradient_accumulation_steps);
    mt_plan_json_machine(j, q, found);
    mt_json_list(j, "models", MT_JSON_LINES);
}

mt_rc mt_plan_what_fits(const mt_machine_asked *asked, const mt_settings *set, bool json, mt_err *err)
{
    mt_machine_found found;
    mt_str out = { 0 };
    mt_json_out j = { .to = &out };
    fit f;
    if (set->training.freeze.n)
        return mt_fail(
            err, MT_EINVAL,
            "plan: training.freeze names tensors, whose names differ between the models that --what-fits lists; leave it out, or "
            "plan one model");
    MT_TRY(mt_plan_machine(&found, asked, set, err));
    mt_question q = mt_plan_question(NULL, set, &found.machine);
    q.batch = step_samples(set);
    if (json)
        put_heading(&j, &found, set, &q);
    else
        print_heading(&found, &q);
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < mt_n_shapes; i++) {
        rc = fit_of(&f, &mt_shapes[i], set, &found.machine, err);
        if (!rc && json) put_fit(&j, &f);
        if (!rc && !json) print_fit(&f, set, &found.machine);
    }
    if (rc || !json) return mt_str_free(&out), rc;
    mt_json_end(&j);
    mt_json_end(&j);
    return mt_cli_print_json(&j, err);
}
