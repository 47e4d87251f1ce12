/* The files beside a tokenizer: tokenizer_config.json, special_tokens_map.json, added_tokens.json and chat_template.jinja.
 *
 * With a tokenizer.json these name roles and templates, and at most a few tokens it forgot.  A bare tokenizer.model gets
 * its special tokens and the tokens around a text from them, too. */
#include "tokenizer/json_read.h"
#include "tokenizer/tokenizer_impl.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 26 };

static const char *const role_keys[MT_TOK_ROLES] = { "bos_token", "eos_token", "pad_token", "unk_token" };

/* A JSON file of the directory; *found false if it is not there. */
static mt_rc read_json(const char *dir, const char *name, mt_arena *arena, mt_value *out, bool *found, mt_err *err)
{
    char *path = mt_path_join(dir, name), *text = NULL;
    size_t n;
    if (!path) return mt_no_memory(err, "a path");
    *found = mt_file_exists(path);
    mt_rc rc = *found ? mt_file_read(&text, &n, path, MAX_FILE_BYTES, err) : MT_OK;
    if (text) {
        const char *kept = mt_arena_strndup(arena, text, n); /* values point into it */
        rc = kept ? mt_value_parse_json(out, arena, kept, n, NULL, name, err) : mt_no_memory(err, "%s", name);
    }
    mt_free(text);
    mt_free(path);
    if (!rc && *found && out->type != MT_VALUE_MAP)
        rc = mt_fail(err, MT_EFORMAT, "%s: an object was expected, it is %s", name, mt_value_type_name(out));
    return rc;
}

/* "<s>" or {"content": "<s>", ...}; a role that is known already changes only with `replace`. */
static mt_rc read_roles(mt_tokenizer *tok, const mt_value *config, bool replace, const char *what, mt_err *err)
{
    for (int r = 0; r < MT_TOK_ROLES; r++) {
        const mt_value *v = mt_value_get(config, role_keys[r]);
        if (v && v->type == MT_VALUE_MAP) v = mt_value_get(v, "content");
        if (!v || v->type == MT_VALUE_NULL || (tok->role_text[r] && !replace)) continue;
        if (v->type != MT_VALUE_STR)
            return mt_fail(err, MT_EFORMAT, "%s: \"%s\" should be a string and is %s", what, role_keys[r], mt_value_type_name(v));
        mt_free(tok->role_text[r]);
        tok->role_text[r] = mt_strndup(v->str.s, v->str.n);
        if (!tok->role_text[r]) return mt_no_memory(err, "%s", what);
    }
    return MT_OK;
}

/* As in transformers: special_tokens_map.json, which only older files have, wins over a tokenizer_config.json without
 * "added_tokens_decoder", and a null in it takes a role away.  Beside a newer one it only adds roles (transformers ignores it). */
static mt_rc read_roles_map(mt_tokenizer *tok, const mt_value *config, const mt_value *map, const char *what, mt_err *err)
{
    bool wins = !mt_value_get(config, "added_tokens_decoder");
    for (int r = 0; wins && r < MT_TOK_ROLES; r++) {
        const mt_value *v = mt_value_get(map, role_keys[r]);
        if (!v || v->type != MT_VALUE_NULL) continue;
        mt_free(tok->role_text[r]);
        tok->role_text[r] = NULL;
    }
    return read_roles(tok, map, wins, what, err);
}

/* ---- chat templates ---- */

static mt_rc add_template(mt_tokenizer *tok, const char *name, size_t n_name, const char *text, size_t n, mt_err *err)
{
    MT_TRY(mt_grow(&tok->templates, &tok->cap_templates, tok->n_templates + 1, sizeof *tok->templates, err));
    mt_named_template t = { .name = mt_strndup(name, n_name), .text = mt_strndup(text, n), .n = n };
    tok->templates[tok->n_templates++] = t;
    return t.name && t.text ? MT_OK : mt_no_memory(err, "a chat template");
}

static mt_rc read_templates(mt_tokenizer *tok, const mt_value *config, const char *what, mt_err *err)
{
    const mt_value *v = mt_value_get(config, "chat_template"), *name, *text;
    if (!v || v->type == MT_VALUE_NULL) return MT_OK;
    if (v->type == MT_VALUE_STR) return add_template(tok, "default", 7, v->str.s, v->str.n, err);
    if (v->type != MT_VALUE_LIST)
        return mt_fail(err, MT_EFORMAT, "%s: \"chat_template\" should be a string or a list and is %s", what,
                       mt_value_type_name(v));
    for (size_t i = 0; i < v->list.n; i++) {
        MT_TRY(mt__json_need(&v->list.items[i], "name", MT_VALUE_STR, &name, what, err));
        MT_TRY(mt__json_need(&v->list.items[i], "template", MT_VALUE_STR, &text, what, err));
        MT_TRY(add_template(tok, name->str.s, name->str.n, text->str.s, text->str.n, err));
    }
    return MT_OK;
}

/* A template in its own file takes the place of the config's. */
static mt_rc read_template_file(mt_tokenizer *tok, const char *dir, const char *file, const char *name, mt_err *err)
{
    char *path = mt_path_join(dir, file), *text = NULL;
    size_t n, bad;
    if (!path) return mt_no_memory(err, "a path");
    mt_rc rc = mt_file_exists(path) ? mt_file_read(&text, &n, path, MAX_FILE_BYTES, err) : MT_OK;
    mt_free(path);
    if (!text) return rc;
    for (size_t i = 0; i < tok->n_templates; i++) {
        if (strcmp(tok->templates[i].name, name)) continue;
        mt_free((char *)tok->templates[i].name);
        mt_free((char *)tok->templates[i].text);
        tok->templates[i] = tok->templates[--tok->n_templates];
        break;
    }
    if (!mt_utf8_valid(text, n, &bad))
        rc = mt_fail(err, MT_EFORMAT, "%s is not valid UTF-8 at byte %zu", file, bad);
    else
        rc = add_template(tok, name, strlen(name), text, n, err);
    mt_free(text);
    return rc;
}

/* ---- added tokens ---- */

/* Tokens that are there keep their flags.  id < 0: the vocabulary's, or the next free one. */
static mt_rc add_token(mt_tokenizer *tok, const mt_value *flags, const char *s, size_t n, int64_t id, const char *what,
                       mt_err *err)
{
    mt_added_token t = { .content = (char *)s, .n = n, .id = (int32_t)id, .special = true };
    if (id > INT32_MAX - 1) return mt_fail(err, MT_ERANGE, "%s: an added token has id %lld", what, (long long)id);
    if (mt_added_by_text(&tok->added, s, n)) return MT_OK;
    if (flags) {
        MT_TRY(mt__json_bool(flags, "special", false, &t.special, what, err));
        MT_TRY(mt__json_bool(flags, "lstrip", false, &t.lstrip, what, err));
        MT_TRY(mt__json_bool(flags, "rstrip", false, &t.rstrip, what, err));
        MT_TRY(mt__json_bool(flags, "single_word", false, &t.single_word, what, err));
        MT_TRY(mt__json_bool(flags, "normalized", false, &t.normalized, what, err));
    }
    if (tok->bare_model) t.normalized = false; /* its own code looks for them in the text as given */
    return mt_added_add(&tok->added, t, &tok->model.vocab, err);
}

/* "added_tokens_decoder": {"151643": {"content": "<|endoftext|>", ...}, ...} */
static mt_rc read_added_decoder(mt_tokenizer *tok, const mt_value *config, const char *what, mt_err *err)
{
    const mt_value *map, *content;
    MT_TRY(mt__json_maybe(config, "added_tokens_decoder", MT_VALUE_MAP, &map, what, err));
    for (size_t i = 0; map && i < map->map.n; i++) {
        const mt_pair *p = &map->map.pairs[i];
        char digits[16] = { 0 }, *end;
        memcpy(digits, p->key, p->key_n < 15 ? p->key_n : 15);
        long long id = strtoll(digits, &end, 10);
        if (end == digits || *end || id < 0)
            return mt_fail(err, MT_EFORMAT, "%s: key \"%s\" of \"added_tokens_decoder\" is not an id", what, digits);
        MT_TRY(mt__json_need(&p->value, "content", MT_VALUE_STR, &content, what, err));
        MT_TRY(add_token(tok, &p->value, content->str.s, content->str.n, tok->bare_model ? id : -1, what, err));
    }
    return MT_OK;
}

/* added_tokens.json: {"<|extra|>": 151650, ...} */
static mt_rc read_added_file(mt_tokenizer *tok, const char *dir, mt_arena *arena, mt_err *err)
{
    static const char what[] = "added_tokens.json";
    mt_value map;
    bool found;
    MT_TRY(read_json(dir, what, arena, &map, &found, err));
    for (size_t i = 0; found && i < map.map.n; i++) {
        const mt_pair *p = &map.map.pairs[i];
        if (p->value.type != MT_VALUE_INT)
            return mt_fail(err, MT_EFORMAT, "%s: the id of \"%.*s\" is not an integer", what,
                           (int)mt_min_i64((int64_t)p->key_n, 60), p->key);
        MT_TRY(add_token(tok, NULL, p->key, p->key_n, p->value.i, what, err));
    }
    return MT_OK;
}

/* bos, eos, pad and unk are found in text where the vocabulary has them. */
static mt_rc add_roles(mt_tokenizer *tok, mt_err *err)
{
    for (int r = 0; r < MT_TOK_ROLES; r++) {
        const char *text = tok->role_text[r];
        int32_t id = text ? mt_vocab_id(&tok->model.vocab, text, strlen(text)) : -1;
        if (id < 0) continue;
        MT_TRY(add_token(tok, NULL, text, strlen(text), id, role_keys[r], err));
    }
    return MT_OK;
}

static mt_rc push_token(mt_tokenizer *tok, mt_id_list *list, const char *text, mt_err *err)
{
    int32_t id = text ? mt_tokenizer_token_id(tok, text, strlen(text)) : -1;
    return id < 0 ? MT_OK : mt__id_list_push(list, id, err);
}

/* The tokens the model's own Python code would put around a text. */
static mt_rc set_around(mt_tokenizer *tok, const mt_value *config, mt_err *err)
{
    const mt_value *class = mt_value_get(config, "tokenizer_class");
    if (class && (mt_value_is(class, "ChatGLM4Tokenizer") || mt_value_is(class, "ChatGLMTokenizer"))) {
        MT_TRY(push_token(tok, &tok->prefix, "[gMASK]", err));
        return push_token(tok, &tok->prefix, "<sop>", err);
    }
    if (tok->add_bos) MT_TRY(push_token(tok, &tok->prefix, tok->role_text[MT_TOK_BOS], err));
    if (tok->add_eos) MT_TRY(push_token(tok, &tok->suffix, tok->role_text[MT_TOK_EOS], err));
    return MT_OK;
}

static mt_rc complete_model(mt_tokenizer *tok, const mt_value *config, const char *dir, mt_arena *arena, mt_err *err)
{
    const mt_value *class = mt_value_get(config, "tokenizer_class");
    if (tok->bare_model && class && mt_value_is(class, "QWenTokenizer")) MT_TRY(mt__make_qwen1(tok, err));
    MT_TRY(read_added_decoder(tok, config, "tokenizer_config.json", err));
    if (tok->bare_model) MT_TRY(read_added_file(tok, dir, arena, err));
    MT_TRY(add_roles(tok, err));
    return tok->bare_model ? set_around(tok, config, err) : MT_OK;
}

/* Keys of tokenizer_config.json that need no other file. */
static mt_rc apply_config(mt_tokenizer *tok, const mt_value *config, const char *what, mt_err *err)
{
    MT_TRY(read_roles(tok, config, true, what, err));
    MT_TRY(mt__json_bool(config, "add_bos_token", tok->add_bos, &tok->add_bos, what, err));
    MT_TRY(mt__json_bool(config, "add_eos_token", tok->add_eos, &tok->add_eos, what, err));
    const mt_value *length = mt_value_get(config, "model_max_length");
    if (length && length->type == MT_VALUE_INT && length->i > 0 && length->i < (int64_t)1e15) tok->max_length = length->i;
    return read_templates(tok, config, what, err);
}

/* config.json names the model_type; whether the file is good is its reader's business. */
static mt_rc read_prefix_space(mt_tokenizer *tok, const char *dir, const mt_value *config, const char *what, mt_arena *arena,
                               mt_err *err)
{
    mt_value model;
    bool found;
    mt_err ignored = { 0 };
    mt_rc rc = read_json(dir, "config.json", arena, &model, &found, &ignored);
    if (rc == MT_ENOMEM) return mt_no_memory(err, "config.json");
    return mt__set_prefix_space(tok, config, found && !rc ? mt_value_get(&model, "model_type") : NULL, what, err);
}

static mt_rc read_all(mt_tokenizer *tok, const char *dir, mt_arena *arena, mt_err *err)
{
    static const char what[] = "tokenizer_config.json";
    mt_value config = { .type = MT_VALUE_MAP }, map;
    bool found;
    MT_TRY(read_json(dir, what, arena, &config, &found, err));
    if (!found) config = (mt_value){ .type = MT_VALUE_MAP };
    MT_TRY(apply_config(tok, &config, what, err));
    if (!tok->bare_model) MT_TRY(read_prefix_space(tok, dir, &config, what, arena, err));
    MT_TRY(read_json(dir, "special_tokens_map.json", arena, &map, &found, err));
    if (found) MT_TRY(read_roles_map(tok, &config, &map, "special_tokens_map.json", err));
    MT_TRY(read_template_file(tok, dir, "chat_template.jinja", "default", err));
    MT_TRY(read_template_file(tok, dir, "additional_chat_templates/tool_use.jinja", "tool_use", err));
    return complete_model(tok, &config, dir, arena, err);
}

mt_rc mt__read_config_text(mt_tokenizer *tok, const char *text, size_t n, const char *what, mt_err *err)
{
    mt_arena arena = { 0 };
    mt_value config;
    mt_rc rc = mt_value_parse_json(&config, &arena, text, n, NULL, what, err);
    if (!rc && config.type != MT_VALUE_MAP)
        rc = mt_fail(err, MT_EFORMAT, "%s: an object was expected, it is %s", what, mt_value_type_name(&config));
    if (!rc) rc = apply_config(tok, &config, what, err);
    if (!rc) rc = complete_model(tok, &config, NULL, &arena, err);
    mt_arena_free(&arena);
    return rc;
}

mt_rc mt__read_config(mt_tokenizer *tok, const char *dir, mt_err *err)
{
    mt_arena arena = { 0 };
    mt_rc rc = read_all(tok, dir, &arena, err);
    mt_arena_free(&arena);
    return rc;
}
