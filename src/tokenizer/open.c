/* Opening: which file a directory has, its kind, and the files beside it. */
#include "tokenizer/tokenizer_impl.h"

#include "base/file.h"

#include <string.h>

enum { MAX_FILE_BYTES = 1 << 29 }; /* the largest tokenizer.json known is 34 MB */

static mt_rc create(mt_tokenizer **out, mt_err *err)
{
    *out = mt_calloc(1, sizeof **out);
    if (!*out) return mt_no_memory(err, "a tokenizer");
    mt_rc rc = mt_unicode_init(&(*out)->unicode, err);
    if (rc) {
        mt_free(*out);
        *out = NULL;
    }
    return rc;
}

void mt_tokenizer_close(mt_tokenizer *tok)
{
    if (!tok) return;
    mt_unicode_deinit(&tok->unicode);
    mt_normalizer_deinit(&tok->normalizer);
    mt_pretokenizer_deinit(&tok->pretokenizer);
    mt_word_model_deinit(&tok->model);
    mt_added_deinit(&tok->added);
    mt_decoder_deinit(&tok->decoder);
    mt_free(tok->piece_types);
    mt_free(tok->prefix.ids);
    mt_free(tok->suffix.ids);
    for (int i = 0; i < MT_TOK_ROLES; i++) mt_free(tok->role_text[i]);
    for (size_t i = 0; i < tok->n_templates; i++) {
        mt_free((char *)tok->templates[i].name);
        mt_free((char *)tok->templates[i].text);
    }
    mt_free(tok->templates);
    mt_free(tok);
}

static bool looks_like_json(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\n' && s[i] != '\r' && s[i] != '\t') return s[i] == '{';
    return false;
}

/* Distinguished by content: the same name is used for both kinds of tokenizer.model. */
static mt_rc load_bytes(mt_tokenizer *tok, const char *bytes, size_t n, const char *what, mt_err *err)
{
    if (mt__looks_like_tiktoken(bytes, n)) return mt__load_tiktoken(tok, bytes, n, what, err);
    if (looks_like_json(bytes, n)) return mt__load_tokenizer_json(tok, bytes, n, what, err);
    return mt__load_spm(tok, bytes, n, what, err);
}

/* Each added token's content as the normalizer makes it, for those that are looked for in normalized text. */
static mt_rc normalize_added(mt_tokenizer *tok, mt_norm_state *st, mt_arena *arena, mt_value *texts, mt_err *err)
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < tok->added.n; i++) n_bytes += tok->added.tokens[i].n;
    mt_regex_state_begin(st->regex, n_bytes);
    for (size_t i = 0; i < tok->added.n; i++) {
        const mt_added_token *t = &tok->added.tokens[i];
        mt_view text = { .s = t->content, .n = t->n };
        if (t->normalized) MT_TRY(mt_normalizer_apply(&tok->normalizer, &tok->unicode, st, false, &text, err));
        texts[i] = mt_value_str(arena, text.s, text.n);
        if (texts[i].type == MT_VALUE_NULL) return mt_no_memory(err, "added tokens");
    }
    return MT_OK;
}

/* Indexes the added tokens once all are there; normalizes those that are looked for in normalized text. */
static mt_rc finish_added(mt_tokenizer *tok, mt_err *err)
{
    mt_arena arena = { 0 };
    mt_norm_state st = { 0 };
    mt_value *texts = mt_arena_calloc(&arena, tok->added.n + 1, sizeof *texts);
    mt_rc rc = texts ? mt_regex_state_create(&st.regex, err) : mt_no_memory(err, "added tokens");
    if (!rc) rc = normalize_added(tok, &st, &arena, texts, err);
    if (!rc) rc = mt_added_finish(&tok->added, texts, err);
    mt_text_deinit(&st.text[0]);
    mt_text_deinit(&st.text[1]);
    mt_regex_state_free(st.regex);
    mt_arena_free(&arena);
    return rc;
}

mt_rc mt_tokenizer_adopt(mt_tokenizer *tok, const char *const *texts, size_t n, mt_err *err)
{
    size_t n_before = tok->n_adopted;
    for (size_t i = 0; i < n && texts[i]; i++) {
        size_t n_text = strlen(texts[i]);
        int32_t id = mt_vocab_id(&tok->model.vocab, texts[i], n_text);
        if (id < 0 || mt_added_by_text(&tok->added, texts[i], n_text) || tok->n_adopted == MT_COUNT(tok->adopted)) continue;
        mt_added_token t = { .content = (char *)(uintptr_t)texts[i], .n = n_text, .id = id, .special = true };
        MT_TRY(mt_added_add(&tok->added, t, &tok->model.vocab, err));
        tok->adopted[tok->n_adopted++] = id;
    }
    return tok->n_adopted > n_before ? finish_added(tok, err) : MT_OK;
}

const int32_t *mt_tokenizer_adopted(const mt_tokenizer *tok, size_t *n)
{
    *n = tok->n_adopted;
    return tok->adopted;
}

/* The end of every way of opening: hands the tokenizer out, or closes it and names the file in the error. */
static mt_rc open_finish(mt_tokenizer **out, mt_tokenizer *tok, mt_rc rc, const char *what, mt_err *err)
{
    if (!rc) rc = finish_added(tok, err);
    if (!rc) {
        *out = tok;
        return MT_OK;
    }
    mt_tokenizer_close(tok);
    return mt_note(err, "opening the tokenizer %s", what);
}

mt_rc mt_tokenizer_open_json(mt_tokenizer **out, const char *text, size_t n, const char *what, mt_err *err)
{
    mt_tokenizer *tok;
    *out = NULL;
    MT_TRY(create(&tok, err));
    return open_finish(out, tok, mt__load_tokenizer_json(tok, text, n, what, err), what, err);
}

mt_rc mt_tokenizer_open_texts(mt_tokenizer **out, const char *text, size_t n, const char *config, size_t n_config,
                              const char *what, mt_err *err)
{
    mt_tokenizer *tok;
    *out = NULL;
    MT_TRY(create(&tok, err));
    mt_rc rc = mt__load_tokenizer_json(tok, text, n, what, err);
    if (!rc) rc = mt__read_config_text(tok, config, n_config, what, err);
    return open_finish(out, tok, rc, what, err);
}

mt_rc mt_tokenizer_open_model(mt_tokenizer **out, const char *bytes, size_t n, const char *what, mt_err *err)
{
    mt_tokenizer *tok;
    *out = NULL;
    MT_TRY(create(&tok, err));
    return open_finish(out, tok, load_bytes(tok, bytes, n, what, err), what, err);
}

static mt_rc load_file(mt_tokenizer *tok, const char *path, mt_err *err)
{
    char *bytes;
    size_t n;
    MT_TRY(mt_file_read(&bytes, &n, path, MAX_FILE_BYTES, err));
    mt_rc rc = load_bytes(tok, bytes, n, mt_path_base(path), err);
    mt_free(bytes);
    return rc;
}

mt_rc mt_tokenizer_open_file(mt_tokenizer **out, const char *path, mt_err *err)
{
    mt_tokenizer *tok;
    *out = NULL;
    MT_TRY(create(&tok, err));
    return open_finish(out, tok, load_file(tok, path, err), path, err);
}

/* The first of the names a directory has, with its whole path; NULL path if none. */
static mt_rc find_file(const char *dir, const char *const *names, size_t n, char **path, mt_err *err)
{
    for (size_t i = 0; i < n; i++) {
        *path = mt_path_join(dir, names[i]);
        if (!*path) return mt_no_memory(err, "a path");
        if (mt_file_exists(*path)) return MT_OK;
        mt_free(*path);
        *path = NULL;
    }
    return mt_fail(err, MT_ENOENT, "%s has no tokenizer.json and no tokenizer.model; download the model's tokenizer files too",
                   dir);
}

mt_rc mt_tokenizer_open(mt_tokenizer **out, const char *dir, mt_err *err)
{
    static const char *const names[] = { "tokenizer.json", "tokenizer.model", "qwen.tiktoken", "tokenizer.tiktoken",
                                         "spiece.model" };
    mt_tokenizer *tok;
    char *path = NULL;
    *out = NULL;
    MT_TRY(find_file(dir, names, MT_COUNT(names), &path, err));
    mt_rc rc = create(&tok, err);
    if (rc) {
        mt_free(path);
        return rc;
    }
    tok->bare_model = strcmp(mt_path_base(path), names[0]) != 0;
    rc = load_file(tok, path, err);
    if (!rc) rc = mt__read_config(tok, dir, err);
    mt_free(path);
    return open_finish(out, tok, rc, dir, err);
}
