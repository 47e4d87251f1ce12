/* export_config.c - the files beside the weights.  Numbers are kept as they were written: documents are changed value by value
 * and printed with the shortest form of each float, as Python does. */
#include "base/file.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/value.h"
#include "ckpt/export.h"

#include <stdio.h>
#include <string.h>

typedef struct document {
    const char *text; /* borrowed; values point into it */
    size_t n;
    mt_arena arena;
    mt_value root;
    bool changed;
} document;

/* -- documents ------------------------------------------------------------------------------------- */

static void close_document(document *d)
{
    mt_arena_free(&d->arena);
    *d = (document){ 0 };
}

static mt_rc open_document(document *d, const mt_side_file *f, mt_err *err)
{
    *d = (document){ .text = f->text, .n = f->n };
    mt_rc rc = mt_value_parse_json(&d->root, &d->arena, f->text, f->n, NULL, f->name, err);
    if (!rc && d->root.type != MT_VALUE_MAP) rc = mt_fail(err, MT_EFORMAT, "%s: an object was expected", f->name);
    if (rc) close_document(d);
    return rc;
}

/* Set key, in its place or at the end. */
static mt_rc set(document *d, const char *key, mt_value value, mt_err *err)
{
    size_t n = d->root.map.n, at = 0, k = strlen(key);
    const mt_pair *old = d->root.map.pairs;
    while (at < n && !(old[at].key_n == k && memcmp(old[at].key, key, k) == 0)) at++;
    mt_pair *pairs = mt_arena_calloc(&d->arena, n + 1, sizeof *pairs);
    if (!pairs) return mt_no_memory(err, "%s", key);
    if (n) memcpy(pairs, old, n * sizeof *pairs);
    pairs[at] = (mt_pair){ key, k, value };
    d->root.map.pairs = pairs;
    d->root.map.n = at == n ? n + 1 : n;
    d->changed = true;
    return MT_OK;
}

/* Untouched documents are copied byte for byte. */
static mt_rc save_document(const document *d, const char *path, mt_err *err)
{
    if (!d->changed) return mt_outfile_save(path, d->text, d->n, err);
    mt_str s = { 0 };
    mt_value_write_indented(&s, &d->root);
    mt_str_putc(&s, '\n');
    mt_rc rc = mt_str_ok(&s) ? mt_outfile_save(path, s.s, s.n, err) : mt_no_memory(err, "%s", path);
    mt_str_free(&s);
    return rc;
}

/* -- what must be true ----------------------------------------------------------------------------- */

static bool is_id(const mt_value *v, int32_t id) { return v->type == MT_VALUE_INT && v->i == id; }

static bool has_id(const mt_value *v, int32_t id)
{
    if (!v) return false;
    if (v->type != MT_VALUE_LIST) return is_id(v, id);
    for (size_t i = 0; i < v->list.n; i++)
        if (is_id(&v->list.items[i], id)) return true;
    return false;
}

/* The trained end of an answer must stop generation. */
static mt_rc add_eos(const mt_export *x, document *d, const char *file, mt_err *err)
{
    int32_t id = x->end_of_turn;
    const mt_value *old = mt_value_get(&d->root, "eos_token_id");
    if (id < 0 || has_id(old, id)) return MT_OK;
    size_t n = mt_value_items(old);
    if (old && old->type != MT_VALUE_NULL && old->type != MT_VALUE_LIST) n = 1;
    mt_value *ids = mt_arena_calloc(&d->arena, n + 1, sizeof *ids);
    if (!ids) return mt_no_memory(err, "%s", file);
    for (size_t i = 0; i < n; i++) ids[i] = old->type == MT_VALUE_LIST ? old->list.items[i] : *old;
    ids[n] = (mt_value){ .type = MT_VALUE_INT, .i = id };
    if (!x->quiet) mt_info("%s: token %d, which was trained to end an answer, is added to the eos ids", file, id);
    return set(d, "eos_token_id", n ? (mt_value){ .type = MT_VALUE_LIST, .list = { ids, n + 1 } } : ids[0], err);
}

/* Take a key out of the document, if it is there. */
static mt_rc drop(document *d, const char *key, mt_err *err)
{
    size_t n = 0;
    if (!mt_value_get(&d->root, key)) return MT_OK;
    mt_pair *pairs = mt_arena_calloc(&d->arena, d->root.map.n, sizeof *pairs);
    if (!pairs) return mt_no_memory(err, "%s", key);
    for (size_t i = 0; i < d->root.map.n; i++) {
        const mt_pair *p = &d->root.map.pairs[i];
        if (p->key_n != strlen(key) || memcmp(p->key, key, p->key_n) != 0) pairs[n++] = *p;
    }
    d->root.map.pairs = pairs;
    d->root.map.n = n;
    d->changed = true;
    return MT_OK;
}

static mt_value text_value(const char *s) { return (mt_value){ .type = MT_VALUE_STR, .str = { s, strlen(s) } }; }

static mt_rc fix_config(const mt_export *x, document *d, mt_err *err)
{
    const mt_value *tied = mt_value_get(&d->root, "tie_word_embeddings");
    bool says = tied && tied->type == MT_VALUE_BOOL ? tied->b : x->model->config->family->default_tied;
    if (says != x->model->tied)
        MT_TRY(set(d, "tie_word_embeddings", (mt_value){ .type = MT_VALUE_BOOL, .b = x->model->tied }, err));
    const char *stored_as;
    const bool quantized = x->source && !x->keeps_forms && mt_shards_quantised(x->source, &stored_as);
    const mt_dtype unsaid = mt__export_unsaid_dtype(x), dtype = x->dtype != MT_DTYPE_COUNT ? x->dtype : unsaid;
    const bool untrue = (!x->source || quantized) && unsaid == MT_DTYPE_BF16 && x->model->config->dtype != unsaid;
    if (x->dtype != MT_DTYPE_COUNT || untrue) {
        const char *key = mt_value_get(&d->root, "torch_dtype") && !mt_value_get(&d->root, "dtype") ? "torch_dtype" : "dtype";
        MT_TRY(set(d, key, text_value(mt_dtype_name(dtype)), err));
    }
    if (quantized && mt_value_get(&d->root, "quantization_config")) {
        if (!x->quiet)
            mt_info("config.json: quantization_config is left out, since weights that were %s are saved as %s", stored_as,
                    mt_dtype_name(dtype));
        MT_TRY(drop(d, "quantization_config", err));
    }
    return add_eos(x, d, "config.json", err);
}

static mt_rc fix_eos_token(const mt_export *x, document *d, const char *file, mt_err *err)
{
    const mt_value *eos = mt_value_get(&d->root, "eos_token");
    const mt_value *content = eos && eos->type == MT_VALUE_MAP ? mt_value_get(eos, "content") : eos;
    if (!x->end_of_turn_text || x->end_of_turn < 0 || (content && mt_value_is(content, x->end_of_turn_text))) return MT_OK;
    if (!x->quiet) mt_info("%s: eos_token becomes %s, which was trained to end an answer", file, x->end_of_turn_text);
    return set(d, "eos_token", text_value(x->end_of_turn_text), err);
}

/* The model must be asked as it was trained to answer, by those who read no .jinja too. */
static mt_rc fix_template(const mt_export *x, document *d, mt_err *err)
{
    const mt_value *old = mt_value_get(&d->root, "chat_template");
    if (!x->chat_template || (old && mt_value_is(old, x->chat_template))) return MT_OK;
    return set(d, "chat_template", text_value(x->chat_template), err);
}

/* Tokens that training made special: others must not cut them to pieces. */
static mt_rc add_adopted(const mt_export *x, document *d, mt_err *err)
{
    static const char *const flags[] = { "lstrip", "normalized", "rstrip", "single_word", "special" };
    static const char key[] = "added_tokens_decoder";
    enum { FLAGS = MT_COUNT(flags) };
    size_t n = 0, n_text;
    const int32_t *ids = x->tokenizer ? mt_tokenizer_adopted(x->tokenizer, &n) : NULL;
    const mt_value *old = mt_value_get(&d->root, key);
    size_t n_old = old && old->type == MT_VALUE_MAP ? old->map.n : 0;
    if (!n) return MT_OK;
    mt_pair *all = mt_arena_calloc(&d->arena, n_old + n, sizeof *all),
            *one = mt_arena_calloc(&d->arena, n * (FLAGS + 1), sizeof *one);
    char *digits = mt_arena_calloc(&d->arena, n, 16);
    if (!all || !one || !digits) return mt_no_memory(err, "%s", key);
    if (n_old) memcpy(all, old->map.pairs, n_old * sizeof *all);
    for (size_t i = 0; i < n; i++, one += FLAGS + 1, digits += 16) {
        int n_digits = snprintf(digits, 16, "%d", ids[i]);
        const char *text = mt_tokenizer_token(x->tokenizer, ids[i], &n_text);
        one[0] = (mt_pair){ "content", 7, { .type = MT_VALUE_STR, .str = { text, n_text } } };
        for (size_t k = 0; k < FLAGS; k++)
            one[k + 1] = (mt_pair){ flags[k], strlen(flags[k]), { .type = MT_VALUE_BOOL, .b = k + 1 == FLAGS } };
        all[n_old + i] = (mt_pair){ digits, (size_t)n_digits, { .type = MT_VALUE_MAP, .map = { one, FLAGS + 1 } } };
    }
    return set(d, key, (mt_value){ .type = MT_VALUE_MAP, .map = { all, n_old + n } }, err);
}

static mt_rc fix_tokenizer(const mt_export *x, document *d, mt_err *err)
{
    MT_TRY(add_adopted(x, d, err));
    MT_TRY(fix_eos_token(x, d, "tokenizer_config.json", err));
    return fix_template(x, d, err);
}

/* transformers believes this file rather than a tokenizer_config.json without "added_tokens_decoder". */
static mt_rc fix_tokens_map(const mt_export *x, document *d, mt_err *err)
{
    return mt_value_get(&d->root, "eos_token") ? fix_eos_token(x, d, "special_tokens_map.json", err) : MT_OK;
}

static mt_rc fix(const mt_export *x, document *d, const char *name, mt_err *err)
{
    if (strcmp(name, "config.json") == 0) return fix_config(x, d, err);
    if (strcmp(name, "generation_config.json") == 0) return add_eos(x, d, name, err);
    if (strcmp(name, "tokenizer_config.json") == 0) return fix_tokenizer(x, d, err);
    if (strcmp(name, "special_tokens_map.json") == 0) return fix_tokens_map(x, d, err);
    return MT_OK;
}

static bool is_fixed(const mt_export *x, const char *name)
{
    if (strcmp(name, "special_tokens_map.json") == 0) return x->end_of_turn_text != NULL; /* nothing else in it changes */
    return strcmp(name, "config.json") == 0 || strcmp(name, "generation_config.json") == 0 ||
           strcmp(name, "tokenizer_config.json") == 0;
}

/* -- files ----------------------------------------------------------------------------------------- */

/* Mistral's tokenizer in tekken.json has its template in its code. */
static bool is_template(const char *name)
{
    return strcmp(name, "tekken.json") == 0 || strcmp(name, "chat_template.jinja") == 0 ||
           strcmp(name, "chat_template.json") == 0 || strncmp(name, "additional_chat_templates/", 26) == 0;
}

mt_rc mt_export_check(const mt_export *x, mt_err *err)
{
    for (size_t i = 0; i < x->files->n; i++) {
        document d;
        if (!is_fixed(x, x->files->items[i].name)) continue;
        if (open_document(&d, &x->files->items[i], err))
            return err->rc == MT_ENOMEM ? MT_ENOMEM
                                        : mt_note(err, "the model cannot be saved with this file, so correct it or remove it");
        close_document(&d);
    }
    return MT_OK;
}

static mt_rc save_fixed(const mt_export *x, const mt_side_file *f, const char *to, mt_err *err)
{
    document d;
    MT_TRY(open_document(&d, f, err));
    mt_rc rc = fix(x, &d, f->name, err);
    if (!rc) rc = save_document(&d, to, err);
    close_document(&d);
    return rc;
}

static mt_rc write_file(const mt_export *x, const mt_side_file *f, const char *dir, mt_err *err)
{
    if (!is_fixed(x, f->name)) return mt_side_file_save(f, dir, err);
    char *to = mt_path_join(dir, f->name);
    mt_rc rc = to ? save_fixed(x, f, to, err) : mt_no_memory(err, "%s", dir);
    mt_free(to);
    return rc;
}

/* In its own file and in tokenizer_config.json, which is created if necessary. */
static mt_rc write_template(const mt_export *x, const char *dir, mt_err *err)
{
    char name[] = "tokenizer_config.json", nothing[] = "{}";
    if (!mt_side_files_find(x->files, name)) MT_TRY(write_file(x, &(mt_side_file){ name, nothing, strlen(nothing) }, dir, err));
    char *path = mt_path_join(dir, "chat_template.jinja");
    if (!path) return mt_no_memory(err, "%s", dir);
    if (!x->quiet) mt_info("chat_template.jinja: the template that answers were trained with");
    mt_rc rc = mt_outfile_save(path, x->chat_template, strlen(x->chat_template), err);
    mt_free(path);
    return rc;
}

mt_rc mt__export_files(const mt_export *x, const char *dir, mt_err *err)
{
    for (size_t i = 0; i < x->files->n; i++) {
        const mt_side_file *f = &x->files->items[i];
        if (x->chat_template && is_template(f->name)) continue; /* the source's; ours is written by itself */
        MT_TRY(write_file(x, f, dir, err));
    }
    return x->chat_template ? write_template(x, dir, err) : MT_OK;
}
