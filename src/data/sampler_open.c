/* sampler_open.c - everything about a sampler that is decided once: template, variables, end of turn, fingerprint. */
#include "data/sampler_impl.h"

#include "base/log.h"
#include "base/rng.h"
#include "data/templates.h"

#include <string.h>

/* ---- settings ---- */

static mt_rc copy_text(mt_sampler *s, const char **p, mt_err *err)
{
    if (!*p) *p = "";
    *p = mt_arena_strndup(&s->arena, *p, strlen(*p));
    return *p ? MT_OK : mt_no_memory(err, "a sampler");
}

static mt_rc copy_config(mt_sampler *s, const mt_sampler_config *config, mt_err *err)
{
    s->config = *config;
    MT_TRY(copy_text(s, &s->config.system_prompt, err));
    MT_TRY(copy_text(s, &s->config.default_system, err));
    MT_TRY(copy_text(s, &s->config.template, err));
    MT_TRY(copy_text(s, &s->config.template_text, err));
    time_t t = time(NULL);
    if (config->now)
        s->now = *config->now;
    else if (!localtime_r(&t, &s->now))
        return mt_fail(err, MT_EINTERNAL, "the local time is not known");
    s->config.now = &s->now;
    s->config.template_kwargs = NULL; /* copied into variables */
    s->rules = (mt_chat_rules){ .system_prompt = s->config.system_prompt,
                                .default_system = s->config.default_system,
                                .merge_turns = config->merge_turns,
                                .mask_history = config->mask_history,
                                .as_is = config->as_is };
    return MT_OK;
}

/* ---- the template's variables ---- */

/* transformers puts the special tokens first and lets template_kwargs replace them. */
static void put_variable(mt_sampler *s, const char *key, size_t n, mt_value v)
{
    for (size_t i = 0; i < s->n_variables; i++)
        if (s->variables[i].key_n == n && !memcmp(s->variables[i].key, key, n)) {
            s->variables[i].value = v;
            return;
        }
    s->variables[s->n_variables++] = (mt_pair){ .key = key, .key_n = n, .value = v };
}

static bool is_taken(const char *key, size_t n)
{
    static const char *const ours[] = { "messages", "tools", "documents", "add_generation_prompt" };
    for (size_t i = 0; i < MT_COUNT(ours); i++)
        if (strlen(ours[i]) == n && !memcmp(ours[i], key, n)) return true;
    return false;
}

static mt_rc put_kwargs(mt_sampler *s, const mt_value *kwargs, mt_err *err)
{
    mt_str json = { 0 };
    mt_value copy;
    mt_value_write_json(&json, kwargs);
    char *text = mt_str_ok(&json) ? mt_arena_strndup(&s->arena, json.s, json.n) : NULL;
    mt_rc rc =
        text ? mt_value_parse_json(&copy, &s->arena, text, json.n, NULL, "template_kwargs", err) : mt_no_memory(err, "a sampler");
    mt_str_free(&json);
    MT_TRY(rc);
    for (size_t i = 0; i < copy.map.n; i++) {
        const mt_pair *p = &copy.map.pairs[i];
        if (is_taken(p->key, p->key_n))
            return mt_fail(err, MT_EINVAL, "template_kwargs: \"%.*s\" comes from the data and cannot be set", (int)p->key_n,
                           p->key);
        put_variable(s, p->key, p->key_n, p->value);
    }
    return MT_OK;
}

static mt_rc make_variables(mt_sampler *s, const mt_value *kwargs, mt_err *err)
{
    static const char *const names[MT_TOK_ROLES] = { "bos_token", "eos_token", "pad_token", "unk_token" };
    if (kwargs && kwargs->type != MT_VALUE_MAP && kwargs->type != MT_VALUE_NULL)
        return mt_fail(err, MT_EINVAL, "template_kwargs should be a map and is %s", mt_value_type_name(kwargs));
    size_t n_kwargs = kwargs && kwargs->type == MT_VALUE_MAP ? kwargs->map.n : 0;
    s->variables = mt_arena_calloc(&s->arena, MT_TOK_ROLES + n_kwargs, sizeof *s->variables);
    if (!s->variables) return mt_no_memory(err, "a sampler");
    for (int r = 0; r < MT_TOK_ROLES; r++) {
        const char *text = mt_tokenizer_role_text(s->tok, (mt_tok_role)r);
        if (text) put_variable(s, names[r], strlen(names[r]), mt__text_value(text, strlen(text)));
    }
    return n_kwargs ? put_kwargs(s, kwargs, err) : MT_OK;
}

/* ---- the template ---- */

static mt_rc use_text(mt_sampler *s, const char *name, const char *text, size_t n, mt_err *err)
{
    s->template_name = name;
    s->template_text = mt_arena_strndup(&s->arena, text, n);
    if (!s->template_text) return mt_no_memory(err, "a sampler");
    return mt_jinja_parse(&s->chat, text, n, "chat_template", err);
}

/* Documents and tokens need no chat template. */
static bool has_turns(const mt_record_layout *l) { return !l->text_only && !l->ids; }

static mt_rc use_plain(mt_sampler *s, mt_err *err)
{
    if (mt_tokenizer_role_id(s->tok, MT_TOK_EOS) < 0 && has_turns(&s->layout))
        return mt_fail(err, MT_EINVAL,
                       "the model has no chat template and its tokenizer names no eos token: answers could not be ended.  Name "
                       "one in tokenizer_config.json");
    return use_text(s, mt_template_plain.name, mt_template_plain.text, strlen(mt_template_plain.text), err);
}

/* The model's own template: the one called "default", and "tool_use" beside it. */
static mt_rc use_own(mt_sampler *s, bool *found, mt_err *err)
{
    size_t n;
    const mt_named_template *all = mt_tokenizer_templates(s->tok, &n), *tools = NULL, *chat = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(all[i].name, "default")) chat = &all[i];
        if (!strcmp(all[i].name, "tool_use")) tools = &all[i];
    }
    if (!chat && n == 1) chat = all;
    *found = chat;
    if (!chat) return MT_OK;
    if (tools && tools != chat) {
        s->tool_use_text = mt_arena_strndup(&s->arena, tools->text, tools->n);
        if (!s->tool_use_text) return mt_no_memory(err, "a sampler");
        MT_TRY(mt_jinja_parse(&s->tool_use, tools->text, tools->n, "chat_template (tool_use)", err));
    }
    s->own_template = true;
    return use_text(s, "the model's own", chat->text, chat->n, err);
}

/* A template that does not fit is never replaced by another: the model would be saved with one that the user did not choose. */
static mt_rc does_not_fit(const mt_sampler *s, const char *lacks, mt_err *err)
{
    size_t n;
    mt_tokenizer_templates(s->tok, &n);
    return mt_fail(
        err, MT_EINVAL,
        "the chat template \"%s\" does not fit this tokenizer: it needs %s, which the vocabulary does not have (it is not "
        "grown).  %s",
        s->config.template, lacks,
        n ? "Leave dataset.template out, or write auto, to use the model's own"
          : "The model has no template; alpaca, vicuna and default need no special tokens");
}

static mt_rc find_named(mt_sampler *s, const mt_template **out, mt_err *err)
{
    char near[64];
    const char *name = s->config.template;
    *out = mt_template_find(name);
    if (*out) return MT_OK;
    const char *foreign = mt_template_foreign(name);
    if (foreign)
        return mt_fail(err, MT_EINVAL,
                       "the chat template \"%s\" is LLaMA-Factory's for %s.  Without dataset.template the model's own is used",
                       name, foreign);
    mt_template_nearest(name, near);
    return mt_fail(err, MT_EINVAL, "no chat template \"%s\"%s%s%s  Without dataset.template the model's own is used", name,
                   *near ? "; did you mean \"" : ".", near, *near ? "\"?" : "");
}

static void drop_own(mt_sampler *s)
{
    mt_jinja_free(s->chat);
    mt_jinja_free(s->tool_use);
    s->chat = s->tool_use = NULL;
    s->tool_use_text = NULL;
    s->own_template = false;
}

/* True if the model's own template has every special token of the family, or writes turns in its way. */
static mt_rc is_of_family(const mt_sampler *s, mt_sampler_scratch *w, const mt_template *t, bool *out, mt_err *err)
{
    size_t i = 0;
    while (i < MT_COUNT(t->tokens) && t->tokens[i] && strstr(s->template_text, t->tokens[i])) i++;
    *out = i && (i == MT_COUNT(t->tokens) || !t->tokens[i]);
    return *out ? MT_OK : mt__chat_same_form(s, w, t->text, out, err);
}

/* The model's own template, if it is of the named family.  One that cannot be read is not. */
static mt_rc use_own_of_family(mt_sampler *s, mt_sampler_scratch *w, bool *own, mt_err *err)
{
    mt_rc rc = use_own(s, own, err);
    if (!rc && *own) rc = is_of_family(s, w, s->named, own, err);
    *own = *own && !rc;
    if (!*own) drop_own(s);
    return rc == MT_ENOMEM ? rc : MT_OK;
}

/* A family's name means the model's own template where that is one of the family; all else is the built-in one. */
static mt_rc use_named(mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    bool own = false;
    MT_TRY(find_named(s, &s->named, err));
    if (!s->named->form) MT_TRY(use_own_of_family(s, w, &own, err));
    if (own && !s->config.as_is)
        mt_str_printf(&s->remark, "dataset.template %s: the model's own template is of that family and is used",
                      s->config.template);
    if (own) return MT_OK;
    const char *lacks = mt_template_lacks(s->named, s->tok);
    if (lacks) return does_not_fit(s, lacks, err);
    if (s->named->differs && !s->config.as_is)
        mt_str_printf(
            &s->remark,
            "dataset.template %s: %s, unlike in LLaMA-Factory; for another text write it into chat_template.jinja in the "
            "model's folder and leave dataset.template out",
            s->config.template, s->named->differs);
    return use_text(s, s->config.template, s->named->text, strlen(s->named->text), err);
}

static mt_rc choose_template(mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    bool found;
    if (*s->config.template && strcmp(s->config.template, "auto") != 0) return use_named(s, w, err);
    if (*s->config.template_text)
        return use_text(s, "the given one", s->config.template_text, strlen(s->config.template_text), err);
    MT_TRY(use_own(s, &found, err));
    if (found) return MT_OK;
    mt_str_puts(&s->notice,
                "the model has no chat template: a plain Human/Assistant form is used (dataset.template chooses another)");
    return use_plain(s, err);
}

/* ---- the fingerprint ---- */

static uint64_t hash_text(const char *text, uint64_t h) { return mt_hash(text, strlen(text), h + 0x9e3779b9); }

/* The vocabulary and how a text that has everything in it is cut: two tokenizers that agree on both are the same one. */
static mt_rc hash_tokenizer(const mt_sampler *s, mt_sampler_scratch *w, uint64_t *h, mt_err *err)
{
    static const char text[] = "The quick  brown\tfox's 12345 jumps\n\n  over <|im_end|> caf\xc3\xa9, \xe4\xbd\xa0\xe5\xa5\xbd "
                               "\xf0\x9f\x98\x80 HELLO_world() { return x+=1; }";
    size_t n = mt_tokenizer_vocab_size(s->tok), n_token;
    for (size_t i = 0; i < n; i++) {
        const char *token = mt_tokenizer_token(s->tok, (int32_t)i, &n_token);
        if (token) *h = mt_hash(token, n_token, *h + i);
    }
    w->part.n = 0;
    MT_TRY(mt_tokenizer_encode(s->tok, w->tok, text, sizeof text - 1, MT_ENCODE_SPECIAL, &w->part, err));
    *h = mt_hash(w->part.ids, w->part.n * sizeof *w->part.ids, *h);
    return MT_OK;
}

static mt_rc make_fingerprint(mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    const mt_sampler_config *c = &s->config;
    uint64_t h = mt_record_layout_hash(&s->layout, 1);
    const int64_t numbers[] = { c->max_seq_len,      c->train_on_prompt,   c->mask_history, c->merge_turns,
                                (int64_t)c->history, (int64_t)c->overlong, c->as_is };
    h = mt_hash(numbers, sizeof numbers, h);
    h = hash_text(c->system_prompt, h);
    h = hash_text(c->default_system, h);
    h = hash_text(s->template_text, h);
    if (s->tool_use_text) h = hash_text(s->tool_use_text, h);
    h = hash_text(s->end, h);
    h = hash_text(s->calls_end, h);
    if (s->n_header) h = hash_text(s->header, h);
    if (s->n_thought) h = hash_text(s->thought, h + s->thought_in_prompt);
    if (c->merge_turns) h = hash_text("answers merged if both are trained or neither is", h);
    if (s->rules.drop_thoughts) h = hash_text("without thoughts", h);
    if (s->rules.no_system && s->rules.merge_system) h = hash_text("system in the question", h);
    mt_value variables = mt__map_of(s->variables, s->n_variables);
    mt_str json = { 0 };
    mt_value_write_json(&json, &variables);
    if (mt_sampler_shows_date(s)) mt_str_printf(&json, "%d-%d-%d", s->now.tm_year, s->now.tm_mon, s->now.tm_mday);
    bool ok = mt_str_ok(&json);
    if (ok) h = mt_hash(json.s, json.n, h);
    mt_str_free(&json);
    if (!ok) return mt_no_memory(err, "a sampler");
    MT_TRY(hash_tokenizer(s, w, &h, err));
    s->fingerprint = h;
    return MT_OK;
}

static mt_rc open_all(mt_sampler *s, const mt_sampler_config *config, mt_err *err)
{
    mt_sampler_scratch *w = NULL;
    MT_TRY(copy_config(s, config, err));
    MT_TRY(make_variables(s, config->template_kwargs, err));
    MT_TRY(mt_sampler_scratch_create(&w, s, err));
    mt_rc rc = choose_template(s, w, err);
    if (!rc) rc = mt__chat_find_end(s, w, err);
    if (!rc) rc = mt__chat_find_header(s, w, err);
    if (!rc) rc = mt__chat_find_call_form(s, w, err);
    if (!rc) rc = mt__chat_find_calls_end(s, w, err);
    if (!rc) rc = mt__chat_find_places(s, w, err);
    if (!rc) rc = mt__chat_find_thought(s, w, err);
    if (!rc) rc = make_fingerprint(s, w, err);
    if (!rc && (!mt_str_ok(&s->notice) || !mt_str_ok(&s->remark))) rc = mt_no_memory(err, "a sampler");
    mt_sampler_scratch_free(w);
    return rc;
}

mt_rc mt_sampler_open(mt_sampler **out, const mt_tokenizer *tok, const mt_record_layout *layout, const mt_sampler_config *config,
                      mt_err *err)
{
    *out = NULL;
    mt_sampler *s = mt_calloc(1, sizeof *s);
    if (!s) return mt_no_memory(err, "a sampler");
    s->tok = tok;
    s->layout = *layout;
    s->end = s->header = s->calls_end = s->thought = "";
    mt_rc rc = open_all(s, config, err);
    if (rc) {
        mt_sampler_close(s);
        return rc;
    }
    if (!has_turns(&s->layout)) mt_str_clear(&s->notice);
    if (s->notice.n) mt_warn("%s", s->notice.s);
    *out = s;
    return MT_OK;
}
