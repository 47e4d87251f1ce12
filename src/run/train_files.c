/* train_files.c - the files that a run begins with: plan.json, config.yaml, metrics and TensorBoard's events. */
#include "base/file.h"
#include "base/outfile.h"
#include "run/train_internal.h"

#include <string.h>

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
    put_expert_layers(&j, &t->net.loads);
    put_plan_arithmetic(&j, &p->arithmetic);
    if (mt_plan_lanes(p) > 1) mt_json_put_int(&j, "devices", mt_plan_lanes(p));
    mt_json_put_int(&j, "sweep_tokens", p->place.sweep_tokens);
    mt_plan_put_buffers(&j, p);
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

mt_rc mt__train_describe(mt_trainer *t, mt_err *err)
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

/* logs/all.jsonl: the folder logs in the output directory. */
static mt_rc make_folder(const mt_trainer *t, char *path, mt_err *err)
{
    char *slash = mt__train_metrics_inside(t) ? strrchr(path, '/') : NULL;
    if (!slash) return MT_OK;
    *slash = '\0';
    mt_rc rc = mt_dir_make(path, err);
    *slash = '/';
    return rc;
}

mt_rc mt__train_open_metrics(mt_trainer *t, int64_t keep, mt_err *err)
{
    char *path = mt__train_metrics_path(t);
    bool inside = *t->s->logging.metrics_file != '/';
    mt_rc rc = path ? make_folder(t, path, err) : mt_no_memory(err, "opening the metrics file");
    if (!rc && inside) rc = mt_output_dir_own(&t->dir, t->s->logging.metrics_file, err);
    if (!rc) rc = mt_metrics_open(&t->metrics, path, keep, err);
    mt_free(path);
    return rc ? rc : open_events(t, err);
}
