/* flat.c - reads LLaMA-Factory's files: the defaults first, then key by key, as the rows say (flat_rows.c). */
#include "settings/flat_internal.h"
#include "settings/problems.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const mt_yaml_item *mt__flat_find(const flat *f, const char *key)
{
    for (const mt_yaml_item *it = f->root->items; it; it = it->next)
        if (strcmp(it->key->text, key) == 0 && !mt_yaml_is_null(it->value)) return it;
    return NULL;
}

const mt_setting *mt__flat_setting(const char *to)
{
    char section[32];
    size_t n = strcspn(to, ".");
    snprintf(section, sizeof section, "%.*s", (int)n, to);
    return mt__setting_find(section, to + n + 1);
}

mt_rc mt__flat_put(flat *f, const char *to, const mt_yaml_item *it, const mt_yaml *value, mt_err *err)
{
    const mt_setting *setting = mt__flat_setting(to);
    char *where = mt_asprintf("%s:%d: %s", f->name, value->line, it->key->text);
    if (!where) return mt_no_memory(err, "%s", f->name);
    mt_rc rc = mt__setting_convert(f->s, setting, value, where, err);
    mt_free(where);
    if (!rc) f->s->sources[setting - mt__settings] = (mt_setting_source){ MT_ORIGIN_FILE, f->s->config_path, it->key->line };
    return rc;
}

mt_rc mt__flat_put_text(flat *f, const char *to, const mt_yaml_item *it, const char *text, mt_err *err)
{
    mt_yaml node = { .kind = MT_YAML_SCALAR, .line = it->value->line, .text = text };
    return mt__flat_put(f, to, it, &node, err);
}

mt_rc mt__flat_notice(flat *f, const mt_yaml_item *it, const char *text, mt_err *err)
{
    return mt__settings_notice(f->s, err, "%s: %s", it->key->text, text);
}

mt_rc mt__flat_refuse(const flat *f, const mt_yaml_item *it, const char *text, mt_err *err)
{
    char found[96];
    mt_yaml_describe(it->value, found);
    return mt_fail(err, MT_EUNSUPPORTED, "%s:%d: %s is %s: %s", f->name, it->key->line, it->key->text, found, text);
}

const mt_yaml_item *mt__flat_eval_strategy(const flat *f)
{
    const mt_yaml_item *it = mt__flat_find(f, "eval_strategy");
    return it ? it : mt__flat_find(f, "evaluation_strategy"); /* its older name */
}

bool mt__flat_is_off(const mt_yaml *v)
{
    bool b;
    double d;
    if (mt_yaml_is_null(v)) return true;
    if (v->kind != MT_YAML_SCALAR) return !v->items;
    return (mt_yaml_bool(v->text, &b) && !b) || (mt_yaml_number(v->text, &d) && d == 0) || strcasecmp(v->text, "none") == 0 ||
           !*v->text;
}

bool mt__flat_is_on(const mt_yaml_item *it)
{
    bool b = false;
    return it && it->value->kind == MT_YAML_SCALAR && mt_yaml_bool(it->value->text, &b) && b;
}

bool mt__flat_is_text(const mt_yaml_item *it, const char *text)
{
    return it && it->value->kind == MT_YAML_SCALAR && strcasecmp(it->value->text, text) == 0;
}

/* The defaults of LLaMA-Factory (first) and transformers, where they differ from ours. */
static const struct {
    const char *to, *value;
} defaults[] = {
    { "dataset.max_seq_len", "2048" },     { "dataset.packing", "false" },   { "eval.at_start", "false" },
    { "training.batch_size", "8" },        { "training.epochs", "3" },       { "training.learning_rate", "5e-5" },
    { "training.lr_scheduler", "linear" }, { "training.weight_decay", "0" }, { "save.keep_last", "all" },
    { "logging.log_interval", "500" },
};

static mt_rc set_default(mt_settings *s, const char *to, const char *value, mt_err *err)
{
    const mt_setting *setting = mt__flat_setting(to);
    MT_TRY(mt__setting_convert_text(s, setting, value, to, err));
    s->sources[setting - mt__settings] = (mt_setting_source){ MT_ORIGIN_DEFAULT, "LLaMA-Factory's default", 0 };
    return MT_OK;
}

static mt_rc set_defaults(flat *f, mt_err *err)
{
    for (size_t i = 0; i < MT_COUNT(defaults); i++) MT_TRY(set_default(f->s, defaults[i].to, defaults[i].value, err));
    if (mt__flat_is_text(mt__flat_find(f, "stage"), "pt"))
        MT_TRY(set_default(f->s, "dataset.packing", "true", err)); /* documents are always packed */
    if (!mt__flat_find(f, "enable_thinking")) /* it is on by default, and then an answer without a thought learns an empty one */
        MT_TRY(set_default(f->s, "dataset.empty_thought", "trained", err));
    if (mt__flat_is_text(mt__flat_eval_strategy(f), "steps")) { /* as often as logging */
        const mt_yaml_item *logging = mt__flat_find(f, "logging_steps");
        MT_TRY(set_default(f->s, "eval.eval_steps",
                           logging && logging->value->kind == MT_YAML_SCALAR ? logging->value->text : "500", err));
    }
    return MT_OK;
}

static mt_rc check_finetuning(const flat *f, mt_err *err)
{
    const mt_yaml_item *it = mt__flat_find(f, "finetuning_type");
    if (!it)
        return mt_fail(
            err, MT_EUNSUPPORTED,
            "%s: no finetuning_type, which means lora to LLaMA-Factory, and LoRA is not trained here: write finetuning_type: "
            "full to train all weights",
            f->name);
    if (mt__flat_is_text(it, "full")) return MT_OK;
    if (mt__flat_is_text(it, "freeze"))
        return mt__flat_refuse(
            f, it, "write finetuning_type: full and name what stays as it is with --freeze PATTERN (training.freeze)", err);
    return mt__flat_refuse(
        f, it,
        "adapters are not trained here; write finetuning_type: full to train all weights (megatrain plan shows what that needs)",
        err);
}

static mt_rc notice_dtype(flat *f, mt_err *err)
{
    if (mt__flat_find(f, "bf16") || mt__flat_find(f, "fp16") || mt__flat_find(f, "pure_bf16")) return MT_OK;
    return mt__settings_notice(
        f->s, err,
        "without bf16 or fp16 LLaMA-Factory computes in float32; here bfloat16 is the default, and bf16: false asks "
        "for float32");
}

static mt_rc refuse_unknown(const flat *f, const mt_yaml *key, mt_err *err)
{
    mt_nearest search = { .word = key->text };
    for (size_t i = 0; i < mt__flat_n_rows; i++)
        if (!strchr(mt__flat_rows[i].key, '*')) mt_nearest_offer(&search, mt__flat_rows[i].key);
    if (*search.best)
        return mt_fail(err, MT_EINVAL, "%s:%d: \"%.60s\" is not known; did you mean %s?", f->name, key->line, key->text,
                       search.best);
    return mt_fail(err, MT_EINVAL,
                   "%s:%d: \"%.60s\" is not supported: leave it out, or look for what does the same in docs/configuration.md and "
                   "give it with "
                   "--set",
                   f->name, key->line, key->text);
}

static bool is_key_of(const flat_row *r, const char *key)
{
    size_t n = strcspn(r->key, "*");
    return r->key[n] ? strncmp(r->key, key, n) == 0 : strcmp(r->key, key) == 0;
}

static mt_rc read_item(flat *f, const mt_yaml_item *it, mt_err *err)
{
    for (size_t i = 0; i < mt__flat_n_rows; i++) {
        const flat_row *r = &mt__flat_rows[i];
        if (!is_key_of(r, it->key->text)) continue;
        if (mt_yaml_is_null(it->value)) return MT_OK;
        if (r->special) return r->special(f, r, it, err);
        if (r->to) return mt__flat_put(f, r->to, it, it->value, err);
        if (!r->text || mt__flat_is_off(it->value)) return MT_OK;
        return r->refused ? mt__flat_refuse(f, it, r->text, err) : mt__flat_notice(f, it, r->text, err);
    }
    return refuse_unknown(f, it->key, err);
}

bool mt__flat_is(const mt_yaml *root)
{
    flat f = { .root = root };
    return root->kind == MT_YAML_MAP && (mt__flat_find(&f, "model_name_or_path") || mt__flat_find(&f, "finetuning_type"));
}

mt_rc mt__flat_read(mt_settings *s, const mt_yaml *root, const char *name, mt_err *err)
{
    flat f = { .s = s, .root = root, .name = name };
    mt__problems p = { 0 };
    mt_err one = { 0 };
    s->flat = true;
    MT_TRY(set_defaults(&f, err));
    mt_rc rc = mt__problems_add(&p, check_finetuning(&f, &one), &one, err);
    for (const mt_yaml_item *it = root->items; it && !rc; it = it->next)
        rc = mt__problems_add(&p, read_item(&f, it, &one), &one, err);
    if (!rc) rc = notice_dtype(&f, err);
    if (rc) return mt__problems_drop(&p), rc;
    return mt__problems_end(&p, name, err);
}
