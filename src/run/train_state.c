/* train_state.c - what a checkpoint stores besides the weights, and whether a run may resume from it. */
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "data/maker.h"
#include "run/train_internal.h"
#include "schedule/deal.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1 };

/* -- the date --------------------------------------------------------------------------------------- */

/* Stored only if samples contain the date: a run resumed tomorrow must not make different samples. */
static void put_date(const mt_trainer *t, mt_json_out *j)
{
    char text[40];
    if (t->data.info.shows_date && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &t->data.now))
        mt_json_put_str(j, "date", text);
}

static mt_rc read_date(const mt_value *doc, struct tm *out, const char *what, mt_err *err)
{
    const char *text;
    struct tm d = { .tm_isdst = -1 };
    MT_TRY(mt_json_str(doc, "date", "", &text, what, err));
    if (!*text) return MT_OK;
    bool read = sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d", &d.tm_year, &d.tm_mon, &d.tm_mday, &d.tm_hour, &d.tm_min, &d.tm_sec) == 6;
    if (!read || d.tm_year < 1970 || d.tm_mon < 1 || d.tm_mon > 12 || d.tm_mday < 1 || d.tm_mday > 31 || d.tm_hour < 0 ||
        d.tm_hour > 23 || d.tm_min < 0 || d.tm_min > 59 || d.tm_sec < 0 || d.tm_sec > 60)
        return mt_fail(err, MT_EFORMAT, "%s: \"%s\" is not a date", what, text);
    d.tm_year -= 1900;
    d.tm_mon -= 1;
    (void)timegm(&d); /* the day of the week and of the year */
    *out = d;
    return MT_OK;
}

/* -- writing --------------------------------------------------------------------------------------- */

void mt__train_put_arithmetic(mt_json_out *j, const mt_arithmetic *a)
{
    mt_json_put_str(j, "compute", mt_dtype_name(a->compute));
    mt_json_put_str(j, "grad", mt_dtype_name(a->grad));
    if (a->optimizer != MT_OPTIMIZER_ADAMW) mt_json_put_str(j, "optimizer", mt_optimizer_of(a->optimizer)->name);
    mt_json_put_str(j, "adam_state", mt_moments_name(a->moments));
    mt_json_put_int(j, "micro_tokens", a->micro_tokens);
    mt_json_put_int(j, "mlp_rows", a->mlp_rows);
    mt_json_put_int(j, "head_rows", a->head_rows);
    if (a->unit_experts) {
        mt_json_put_int(j, "unit_experts", a->unit_experts);
        mt_json_put_int(j, "moe_tokens", a->moe_tokens);
    }
    if (mt_arithmetic_parts(a) == 1) return;
    mt_json_put_int(j, "bundles", mt_arithmetic_bundles(a));
    mt_json_put_int(j, "shares", mt_arithmetic_shares(a));
    mt_json_put_int(j, "deal", MT_DEAL_VERSION);
    if (mt_arithmetic_rounds(a)) mt_json_put_str(j, "reduce", mt_dtype_name(MT_DTYPE_BF16));
}

static void put_arithmetic(mt_json_out *j, const mt_arithmetic *a)
{
    const mt_attention_use *use = &a->attention;
    mt_json_map(j, "arithmetic", MT_JSON_FLAT);
    mt__train_put_arithmetic(j, a);
    mt_json_list(j, "attention", MT_JSON_FLAT);
    mt_json_put_int(j, NULL, use->ways);
    mt_json_put_int(j, NULL, use->cudnn_head);
    mt_json_put_size(j, NULL, use->workspace);
    mt_json_put_int(j, NULL, use->parts);
    mt_json_put_int(j, NULL, use->caps);
    mt_json_end(j);
    mt_json_put_strf(j, "hash", "%016" PRIx64, mt_arithmetic_hash(a));
    mt_json_end(j);
}

mt_rc mt__train_state_text(const mt_trainer *t, mt_str *s, mt_err *err)
{
    const progress *p = &t->at;
    mt_json_out j = { .to = s };
    mt_json_map(&j, NULL, MT_JSON_LINES);
    mt_json_put_int(&j, "format", FORMAT);
    mt_json_put_str(&j, "version", MT_VERSION);
    mt_json_put_int(&j, "step", p->step);
    mt_json_put_int(&j, "updates", p->updates);
    mt_json_put_num(&j, "epoch", "%.17g", (double)p->step / (double)t->data.info.steps_per_epoch);
    mt_json_put_num(&j, "learning_rate", "%.17g", mt_schedule_lr(&t->course.schedule, p->step));
    mt_json_put_int(&j, "seed", t->s->training.seed);
    mt_json_put_int(&j, "tokens", p->n_tokens);
    mt_json_put_int(&j, "trained_tokens", p->n_trained);
    mt_json_put_int(&j, "skipped_steps", p->n_skipped);
    mt_json_put_int(&j, "bad_in_row", p->bad_in_row);
    mt_json_put_num(&j, "window_loss", "%.17g", p->window_loss);
    mt_json_put_int(&j, "window_steps", p->window_steps);
    mt_json_put_int(&j, "metrics_bytes", t->metrics.bytes);
    if (p->unfinished) mt_json_put_bool(&j, "unfinished", true);
    put_date(t, &j);
    mt_json_put_strf(&j, "data", "%016" PRIx64, t->data.info.fingerprint);
    mt_json_put_strf(&j, "data_code", "%016" PRIx64, mt_sample_code());
    mt_json_put_strf(&j, "model", "%016" PRIx64, t->net.fingerprint);
    put_arithmetic(&j, &t->exec.plan->arithmetic);
    mt_json_end(&j);
    mt_str_putc(s, '\n');
    return mt_json_done(&j, "the state of the run", err);
}

/* -- finding --------------------------------------------------------------------------------------- */

/* True if the checkpoint's directory is our output directory. */
static bool is_ours(const mt_trainer *t, const char *path)
{
    char *above = mt_asprintf("%s/..", path), a[PATH_MAX], b[PATH_MAX];
    bool same = above && realpath(above, a) && realpath(t->dir.path, b) && strcmp(a, b) == 0;
    mt_free(above);
    return same;
}

/* Resuming from an old checkpoint while newer ones exist would leave two histories in one directory. */
static mt_rc refuse_older(const mt_trainer *t, const char *path, mt_err *err)
{
    mt_ckpt_list l;
    int64_t step;
    if (!mt_ckpt_step_of(path, &step)) return MT_OK;
    MT_TRY(mt_ckpt_list_open(&l, t->dir.path, err));
    int64_t newest = l.n ? l.steps[l.n - 1] : step;
    mt_ckpt_list_free(&l);
    if (newest <= step) return MT_OK;
    return mt_fail(err, MT_EINVAL,
                   "%s is not the newest: checkpoint-%" PRId64 " is in %s too.  Move it away first, or give another --output-dir",
                   path, newest, t->dir.path);
}

/* A run's directory and a finished model have no list of their files, and no checkpoint's name. */
static mt_rc verify_named(const char *path, mt_err *err)
{
    int64_t step;
    if (!mt_dir_exists(path)) return mt_fail(err, MT_ENOENT, "--resume %s: no such checkpoint", path);
    mt_rc rc = mt_ckpt_verify(path, err);
    if (rc != MT_ENOENT || mt_ckpt_step_of(path, &step)) return rc;
    return mt_fail(
        err, rc,
        "--resume %s: not a checkpoint; name a checkpoint-N, or give --resume alone to continue the run in --output-dir "
        "from its newest",
        path);
}

static mt_rc take_named(mt_trainer *t, const char *given, mt_err *err)
{
    char *path = mt_strdup(given);
    if (!path) return mt_no_memory(err, "resuming");
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/';) path[--n] = '\0';
    mt_rc rc = verify_named(path, err);
    t->resume.here = !rc && is_ours(t, path);
    if (t->resume.here) rc = refuse_older(t, path, err);
    if (rc)
        mt_free(path);
    else
        t->resume.from = path;
    return rc;
}

/* A finished run without a checkpoint to resume from must not be repeated by mistake. */
static mt_rc refuse_finished(const mt_trainer *t, mt_err *err)
{
    mt_ckpt_list there;
    char *path = mt_path_join(t->dir.path, "final");
    if (!path) return mt_no_memory(err, "resuming");
    bool finished = mt_dir_exists(path);
    mt_free(path);
    MT_TRY(mt_ckpt_list_open(&there, t->dir.path, err));
    finished &= there.n == 0;
    mt_ckpt_list_free(&there);
    return finished ? mt_fail(err, MT_EINVAL,
                              "%s holds a finished model and nothing to resume from (save.save_only_model was set, or its "
                              "checkpoints were removed); --overwrite starts over",
                              t->dir.path)
                    : MT_OK;
}

mt_rc mt__train_find_resume(mt_trainer *t, mt_err *err)
{
    const char *asked = t->s->save.resume;
    if (!*asked) return MT_OK;
    if (strcmp(asked, "latest") != 0) return take_named(t, asked, err);
    MT_TRY(refuse_finished(t, err));
    MT_TRY(mt_ckpt_find_newest(&t->resume.from, t->dir.path, err));
    t->resume.here = true;
    if (t->resume.from) return MT_OK;
    if (t->resume.began_from)
        return mt_fail(err, MT_EINVAL,
                       "the run in %s began from %s and has no complete checkpoint yet; --resume %s starts there again",
                       t->dir.path, t->resume.began_from, t->resume.began_from);
    mt_info("%s has no complete checkpoint yet: the run starts from the beginning", t->dir.path);
    return MT_OK;
}

/* A kill may have come between saving and this; leftover files cost disk space, not the run. */
void mt__train_prune(const mt_trainer *t)
{
    mt_err why = { 0 };
    if (t->comm->rank || !t->resume.from || strcmp(t->s->save.resume, "latest") != 0) return;
    if (mt_ckpt_prune(t->dir.path, t->s->save.keep_last, &why)) mt_warn("an old checkpoint could not be removed: %s", why.msg);
}

/* -- reading --------------------------------------------------------------------------------------- */

static mt_rc read_dtype(const mt_value *doc, const char *key, mt_dtype *out, const char *what, mt_err *err)
{
    const char *text;
    MT_TRY(mt_json_str(doc, key, "", &text, what, err));
    if (!mt_dtype_from_torch(text, out)) return mt_fail(err, MT_EFORMAT, "%s: \"%s\" is not a dtype", what, text);
    return MT_OK;
}

/* Absent: AdamW. */
static mt_rc read_optimizer(const mt_value *doc, mt_optimizer_kind *out, const char *what, mt_err *err)
{
    const char *text;
    MT_TRY(mt_json_str(doc, "optimizer", mt_optimizer_of(MT_OPTIMIZER_ADAMW)->name, &text, what, err));
    if (!mt_optimizer_from_name(text, out))
        return mt_fail(err, MT_EUNSUPPORTED, "%s: this program has no optimizer \"%s\"", what, text);
    return MT_OK;
}

static mt_rc read_moments(const mt_value *doc, mt_moments *out, const char *what, mt_err *err)
{
    const char *text;
    MT_TRY(mt_json_str(doc, "adam_state", "", &text, what, err));
    if (!mt_moments_from_name(text, out))
        return mt_fail(err, MT_EFORMAT, "%s: \"%s\" is not a form of the optimizer's state (float32, bf16 or 8bit)", what, text);
    return MT_OK;
}

/* [ways, cudnn_head, workspace, parts, caps] */
static mt_rc read_attention(const mt_value *j, mt_attention_use *use, const char *what, mt_err *err)
{
    static const int64_t most[] = { UINT32_MAX, INT32_MAX, INT64_MAX, 1, 1 };
    int64_t n[MT_COUNT(most)];
    for (size_t i = 0; i < MT_COUNT(most); i++) {
        const mt_value *v = mt_value_at(j, i);
        n[i] = mt_value_int(v);
        if (!v || !mt_value_has(v, MT_VALUE_INT) || n[i] < 0 || n[i] > most[i])
            return mt_fail(err, MT_EFORMAT, "%s: number %zu of \"attention\" is not one from 0 to %" PRId64, what, i + 1,
                           most[i]);
    }
    *use = (mt_attention_use){
        .ways = (uint32_t)n[0], .cudnn_head = (int32_t)n[1], .workspace = (uint64_t)n[2], .parts = n[3] != 0, .caps = n[4] != 0
    };
    return MT_OK;
}

/* Absent: a step is one share. */
static mt_rc read_shares(const mt_value *j, mt_arithmetic *a, const char *what, mt_err *err)
{
    int64_t version;
    const char *reduce;
    MT_TRY(mt_json_str(j, "reduce", "", &reduce, what, err));
    a->reduce_bf16 = strcmp(reduce, mt_dtype_name(MT_DTYPE_BF16)) == 0;
    MT_TRY(mt_json_i64(j, "bundles", 1, &a->bundles, what, err));
    MT_TRY(mt_json_i64(j, "shares", 1, &a->shares, what, err));
    MT_TRY(mt_json_i64(j, "deal", MT_DEAL_VERSION, &version, what, err));
    if (a->bundles < 1 || a->shares < 1 || a->bundles > MT_MOST_SHARES || a->shares > MT_MOST_SHARES ||
        a->bundles * a->shares > MT_MOST_SHARES)
        return mt_fail(err, MT_EFORMAT, "%s: %" PRId64 " x %" PRId64 " shares; expected 1 to %d in all", what, a->bundles,
                       a->shares, MT_MOST_SHARES);
    if (version != MT_DEAL_VERSION)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "%s: documents were dealt to shares by version %" PRId64
                       ", and this program knows version %d.  Resume with "
                       "the version of megatrain that wrote it",
                       what, version, MT_DEAL_VERSION);
    return MT_OK;
}

static mt_rc read_arithmetic(const mt_value *doc, mt_arithmetic *a, const char *what, mt_err *err)
{
    const mt_value *j = mt_value_get(doc, "arithmetic");
    if (!mt_value_has(j, MT_VALUE_MAP)) return mt_fail(err, MT_EFORMAT, "%s: \"arithmetic\" is missing", what);
    MT_TRY(read_dtype(j, "compute", &a->compute, what, err));
    MT_TRY(read_dtype(j, "grad", &a->grad, what, err));
    MT_TRY(read_optimizer(j, &a->optimizer, what, err));
    MT_TRY(read_moments(j, &a->moments, what, err));
    MT_TRY(mt_json_i64(j, "micro_tokens", 0, &a->micro_tokens, what, err));
    MT_TRY(mt_json_i64(j, "mlp_rows", 0, &a->mlp_rows, what, err));
    MT_TRY(mt_json_i64(j, "head_rows", 0, &a->head_rows, what, err));
    MT_TRY(mt_json_i64(j, "unit_experts", 0, &a->unit_experts, what, err));
    MT_TRY(mt_json_i64(j, "moe_tokens", 0, &a->moe_tokens, what, err));
    MT_TRY(read_shares(j, a, what, err));
    MT_TRY(read_attention(mt_value_get(j, "attention"), &a->attention, what, err));
    const int64_t MOST = INT64_C(1) << 40;
    if (a->micro_tokens < 1 || a->mlp_rows < 1 || a->head_rows < 1 || a->micro_tokens > MOST || a->mlp_rows > MOST ||
        a->head_rows > MOST || a->unit_experts < 0 || a->unit_experts > MOST || a->moe_tokens < 0 || a->moe_tokens > MOST)
        return mt_fail(err, MT_EFORMAT, "%s: \"arithmetic\" is not one", what);
    return MT_OK;
}

static mt_rc read_hex(const mt_value *doc, const char *key, uint64_t *out, const char *what, mt_err *err)
{
    const char *text;
    MT_TRY(mt_json_str(doc, key, "", &text, what, err));
    *out = strtoull(text, NULL, 16);
    return MT_OK;
}

static mt_rc read_document(const mt_value *doc, saved_state *s, struct tm *now, const char *what, mt_err *err)
{
    progress *p = &s->at;
    const struct {
        const char *key;
        int64_t *to;
    } counts[] = {
        { "step", &p->step },
        { "updates", &p->updates },
        { "tokens", &p->n_tokens },
        { "trained_tokens", &p->n_trained },
        { "skipped_steps", &p->n_skipped },
        { "bad_in_row", &p->bad_in_row },
        { "window_steps", &p->window_steps },
        { "metrics_bytes", &s->metrics_bytes },
    };
    const int64_t MOST = INT64_C(1) << 56; /* the run continues these sums */
    int64_t format;
    MT_TRY(mt_json_i64(doc, "format", 0, &format, what, err));
    if (format != FORMAT)
        return mt_fail(err, MT_EUNSUPPORTED, "%s is of format %" PRId64 ", this program reads %d", what, format, FORMAT);
    for (size_t i = 0; i < MT_COUNT(counts); i++) {
        MT_TRY(mt_json_i64(doc, counts[i].key, -1, counts[i].to, what, err));
        if (*counts[i].to < 0) return mt_fail(err, MT_EFORMAT, "%s: \"%s\" is missing or negative", what, counts[i].key);
        if (*counts[i].to > MOST)
            return mt_fail(err, MT_EFORMAT, "%s: \"%s\" is %" PRId64 ", more than any run counts to", what, counts[i].key,
                           *counts[i].to);
    }
    MT_TRY(mt_json_f64(doc, "window_loss", 0, &p->window_loss, what, err));
    MT_TRY(read_hex(doc, "data", &s->data, what, err));
    MT_TRY(read_hex(doc, "data_code", &s->code, what, err));
    MT_TRY(read_hex(doc, "model", &s->model, what, err));
    const char *version;
    MT_TRY(mt_json_str(doc, "version", "", &version, what, err));
    snprintf(s->version, sizeof s->version, "%s", version);
    MT_TRY(read_date(doc, now, what, err));
    p->unfinished = mt_value_is_true(mt_value_get(doc, "unfinished"));
    return read_arithmetic(doc, &s->arithmetic, what, err);
}

mt_rc mt__train_state_parse(const char *text, size_t n, saved_state *out, struct tm *now, mt_err *err)
{
    const mt_value *doc = NULL;
    mt_rc rc = mt_json_parse(&doc, text, n, "state.json", err);
    if (!rc) rc = read_document(doc, out, now, "state.json", err);
    mt_json_free(doc);
    return rc;
}

static mt_rc read_file(mt_trainer *t, saved_state *out, mt_err *err)
{
    char *text = NULL;
    size_t n;
    MT_TRY(mt_ckpt_read(&text, &n, t->resume.from, "state.json", err));
    mt_rc rc = mt__train_state_parse(text, n, out, &t->data.now, err);
    mt_free(text);
    return rc;
}

/* -- may it resume? --------------------------------------------------------------------------------- */

static mt_rc train_state_judge(const mt_setting_changes *c, mt_err *err)
{
    static const char *const refused[] = { [MT_CLASS_STATE] = "the optimizer's state is stored in another form",
                                           [MT_CLASS_DATA] = "another order of the data",
                                           [MT_CLASS_MODEL] = "another model" };
    for (size_t i = 0; i < c->n; i++) {
        const mt_setting_change *x = &c->items[i];
        if (refused[x->cls])
            return mt_fail(err, MT_EINVAL,
                           "%s was %s and is %s now, which makes it a different run (%s); set it back, or start over in another "
                           "--output-dir",
                           x->key, x->was, x->now, refused[x->cls]);
    }
    for (size_t i = 0; i < c->n; i++) {
        const mt_setting_change *x = &c->items[i];
        if (x->cls == MT_CLASS_ARITHMETIC)
            mt_warn("%s was %s and is %s now: the run continues, but its results will not be bit-identical", x->key, x->was,
                    x->now);
        else if (x->cls == MT_CLASS_PLACE)
            mt_warn("%s was %s and is %s now: the run continues if the contents there are the same", x->key, x->was, x->now);
        else
            mt_info("%s was %s and is %s now", x->key, x->was, x->now);
    }
    return MT_OK;
}

mt_rc mt__train_saved_settings(const mt_trainer *t, mt_settings *out, mt_err *err)
{
    char *text = NULL;
    size_t n;
    MT_TRY(mt_ckpt_read(&text, &n, t->resume.from, "settings.yaml", err));
    mt_rc rc = mt_settings_init(out, err);
    if (!rc) {
        rc = mt_settings_parse(out, text, n, "settings.yaml", err);
        if (rc) mt_settings_deinit(out);
    }
    mt_free(text);
    return rc;
}

static mt_rc compare_settings(const mt_trainer *t, bool *same_metrics, mt_err *err)
{
    mt_settings was;
    mt_setting_changes changes = { 0 };
    MT_TRY(mt__train_saved_settings(t, &was, err));
    mt_rc rc = mt_settings_diff(&changes, &was, t->s, err);
    if (!rc) rc = train_state_judge(&changes, err);
    *same_metrics = !rc && strcmp(was.logging.metrics_file, t->s->logging.metrics_file) == 0;
    mt_setting_changes_free(&changes);
    mt_settings_deinit(&was);
    return rc;
}

mt_rc mt__train_read_state(mt_trainer *t, saved_state *out, mt_err *err)
{
    bool same_metrics;
    mt_rc rc = compare_settings(t, &same_metrics, err);
    if (!rc) rc = read_file(t, out, err);
    if (rc) return mt_note(err, "resuming from %s", t->resume.from);
    if (!t->resume.here || !same_metrics) out->metrics_bytes = 0; /* its lines are in another file */
    return MT_OK;
}

mt_rc mt__train_check_same(const mt_trainer *t, const saved_state *s, mt_err *err)
{
    if (s->model != t->net.fingerprint)
        return mt_fail(
            err, MT_EINVAL,
            "resuming from %s: config.json of %s differs from the one the checkpoint was made with: it is another model",
            t->resume.from, t->s->model.name);
    const mt_optimizer *was = mt_optimizer_of(s->arithmetic.optimizer), *now = mt_optimizer_of(mt_settings_optimizer(t->s));
    if (was != now)
        return mt_fail(
            err, MT_EINVAL,
            "resuming from %s: the run trained with %s, whose state %s does not have: set optimizer.type back to %s, or "
            "start over in another --output-dir (with --model-name %s to begin from its weights)",
            t->resume.from, was->title, now->title, was->name, t->resume.from);
    bool same_code = !s->code || s->code == mt_sample_code();
    if (s->data != t->data.info.fingerprint && same_code)
        return mt_fail(err, MT_EINVAL,
                       "resuming from %s: the data has changed since the checkpoint was made (its fingerprint was %016" PRIx64
                       " and is %016" PRIx64 " now).  Bring the same data back, or start over in another --output-dir",
                       t->resume.from, s->data, t->data.info.fingerprint);
    if (s->data != t->data.info.fingerprint)
        return mt_fail(err, MT_EINVAL,
                       "resuming from %s: the samples are not those of the checkpoint (their fingerprint was %016" PRIx64
                       " and is %016" PRIx64 " now).  Either the data has changed, or the code that makes samples of it: a build "
                       "of megatrain %s with other code wrote the checkpoint.  Resume with that build and the same data, or "
                       "start over in another --output-dir (with --model-name %s to begin from its weights)",
                       t->resume.from, s->data, t->data.info.fingerprint, s->version, t->resume.from);
    if (!same_code)
        mt_info("another build of megatrain %s wrote the checkpoint, with other code for data; its samples are the same",
                s->version);
    return MT_OK;
}
