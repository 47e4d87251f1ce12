#include "tokenizer/added.h"

#include "tokenizer/json_read.h"
#include "tokenizer/text.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ADDED = 1 << 20, MAX_ADDED_BYTES = 1 << 10 }; /* a search compares up to this many bytes at each place of a text */

/* The reference's rule: after the model's vocabulary, or after the last added token if that is further. */
static int32_t next_id(const mt_added *a, const mt_vocab *model)
{
    int32_t size = (int32_t)model->n;
    return a->n && (a->max_id >= size || !size) ? a->max_id + 1 : size;
}

mt_rc mt_added_add(mt_added *a, mt_added_token token, const mt_vocab *model, mt_err *err)
{
    if (!token.n) return MT_OK;
    if (a->n >= MAX_ADDED) return mt_fail(err, MT_ERANGE, "more than %d added tokens", MAX_ADDED);
    if (token.n > MAX_ADDED_BYTES)
        return mt_fail(err, MT_ERANGE, "an added token of %zu bytes, at most %d are accepted", token.n, MAX_ADDED_BYTES);
    int32_t known = mt_vocab_id(model, token.content, token.n), same = mt_vocab_id(&a->names, token.content, token.n);
    if (same >= 0) {
        mt_added_token *old = &a->tokens[same];
        token.special |= old->special;
        token.content = old->content;
        token.id = old->id;
        *old = token;
        return MT_OK;
    }
    if (known >= 0) token.id = known;
    if (token.id < 0) token.id = next_id(a, model);
    MT_TRY(mt_grow(&a->tokens, &a->cap, a->n + 1, sizeof *a->tokens, err));
    MT_TRY(mt_vocab_add(&a->names, token.content, token.n, (int64_t)a->n, err));
    token.content = mt_strndup(token.content, token.n);
    if (!token.content) return mt_no_memory(err, "an added token");
    if (!a->n || token.id > a->max_id) a->max_id = token.id;
    a->tokens[a->n++] = token;
    return MT_OK;
}

static mt_rc parse_one(mt_added *a, const mt_value *v, const mt_vocab *model, const char *what, mt_err *err)
{
    const mt_value *content;
    mt_added_token t = { .id = -1 };
    MT_TRY(mt__json_need(v, "content", MT_VALUE_STR, &content, what, err));
    MT_TRY(mt__json_bool(v, "special", false, &t.special, what, err));
    MT_TRY(mt__json_bool(v, "lstrip", false, &t.lstrip, what, err));
    MT_TRY(mt__json_bool(v, "rstrip", false, &t.rstrip, what, err));
    MT_TRY(mt__json_bool(v, "single_word", false, &t.single_word, what, err));
    MT_TRY(mt__json_bool(v, "normalized", !t.special, &t.normalized, what, err));
    t.content = (char *)content->str.s; /* copied by mt_added_add */
    t.n = content->str.n;
    return mt_added_add(a, t, model, err);
}

mt_rc mt_added_parse(mt_added *a, const mt_value *list, const mt_vocab *model, const char *what, mt_err *err)
{
    for (size_t i = 0; list && i < list->list.n; i++)
        if (parse_one(a, &list->list.items[i], model, what, err)) return mt_note(err, "added token %zu", i);
    return MT_OK;
}

static mt_rc keep_shown(mt_added *a, const mt_value *texts, mt_err *err)
{
    for (size_t i = 0; i < a->n; i++) {
        mt_added_token *t = &a->tokens[i];
        t->n_shown = t->normalized ? texts[i].str.n : t->n;
        t->shown = mt_strndup(t->normalized ? texts[i].str.s : t->content, t->n_shown);
        if (!t->shown) return mt_no_memory(err, "%zu added tokens", a->n);
    }
    return MT_OK;
}

static mt_rc build_trie(const mt_added *a, mt_trie *trie, bool normalized, const mt_value *texts, mt_err *err)
{
    mt_trie_key *keys = mt_calloc(a->n, sizeof *keys);
    if (!keys) return mt_no_memory(err, "%zu added tokens", a->n);
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) {
        const mt_added_token *t = &a->tokens[i];
        if (t->normalized != normalized) continue;
        const char *s = normalized ? texts[i].str.s : t->content;
        size_t len = normalized ? texts[i].str.n : t->n;
        if (len) keys[n++] = (mt_trie_key){ s, len, (int32_t)i };
    }
    mt_rc rc = mt_trie_build(trie, keys, n, err);
    mt_free(keys);
    return rc;
}

static int by_id(const void *x, const void *y)
{
    const struct mt_added_id *a = x, *b = y;
    if (a->id != b->id) return a->id < b->id ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static void forget_index(mt_added *a)
{
    mt_free(a->by_id);
    a->by_id = NULL;
    mt_trie_deinit(&a->plain);
    mt_trie_deinit(&a->normalized);
    for (size_t i = 0; i < a->n; i++) {
        mt_free(a->tokens[i].shown);
        a->tokens[i].shown = NULL;
    }
}

mt_rc mt_added_finish(mt_added *a, const mt_value *normalized_text, mt_err *err)
{
    forget_index(a);
    a->by_id = mt_calloc(a->n, sizeof *a->by_id);
    if (!a->by_id) return mt_no_memory(err, "%zu added tokens", a->n);
    for (size_t i = 0; i < a->n; i++) a->by_id[i] = (struct mt_added_id){ a->tokens[i].id, (uint32_t)i };
    qsort(a->by_id, a->n, sizeof *a->by_id, by_id);
    MT_TRY(keep_shown(a, normalized_text, err));
    MT_TRY(build_trie(a, &a->plain, false, NULL, err));
    return build_trie(a, &a->normalized, true, normalized_text, err);
}

void mt_added_deinit(mt_added *a)
{
    forget_index(a);
    for (size_t i = 0; i < a->n; i++) mt_free(a->tokens[i].content);
    mt_free(a->tokens);
    mt_vocab_deinit(&a->names);
    *a = (mt_added){ 0 };
}

const mt_added_token *mt_added_by_id(const mt_added *a, int32_t id)
{
    size_t lo = 0, hi = a->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (a->by_id[mid].id == id) return &a->tokens[a->by_id[mid].index];
        if (a->by_id[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const mt_added_token *mt_added_by_text(const mt_added *a, const char *s, size_t n)
{
    int32_t i = mt_vocab_id(&a->names, s, n);
    return i < 0 ? NULL : &a->tokens[i];
}

/* ---- finding them ---- */

static uint16_t props_before(const mt_unicode *uc, const char *s, size_t i, size_t *start)
{
    uint32_t cp;
    *start = i - 1;
    while (*start && ((unsigned char)s[*start] & 0xc0) == 0x80) --*start;
    mt_cp_at(s, i, *start, &cp);
    return mt_unicode_props(uc, cp);
}

static uint16_t props_at(const mt_unicode *uc, const char *s, size_t n, size_t i, size_t *len)
{
    uint32_t cp;
    *len = mt_cp_at(s, n, i, &cp);
    return mt_unicode_props(uc, cp);
}

static bool stands_alone(const mt_unicode *uc, const char *s, size_t n, size_t start, size_t end)
{
    size_t ignored;
    if (start && props_before(uc, s, start, &ignored) & MT_UC_WORD) return false;
    return end == n || !(props_at(uc, s, n, end, &ignored) & MT_UC_WORD);
}

static size_t skip_spaces_back(const mt_unicode *uc, const char *s, size_t i, size_t stop)
{
    size_t before;
    while (i > stop && props_before(uc, s, i, &before) & MT_UC_WHITE) i = before;
    return i > stop ? i : stop;
}

static size_t skip_spaces(const mt_unicode *uc, const char *s, size_t n, size_t i)
{
    size_t len;
    while (i < n && props_at(uc, s, n, i, &len) & MT_UC_WHITE) i += len;
    return i;
}

static mt_rc added_push(mt_segments *out, size_t start, size_t end, int32_t token, mt_err *err)
{
    MT_TRY(mt_grow(&out->items, &out->cap, out->n + 1, sizeof *out->items, err));
    out->items[out->n++] = (mt_segment){ start, end, token };
    return MT_OK;
}

mt_rc mt_added_find(const mt_added *a, const mt_trie *which, const mt_unicode *uc, const char *s, size_t n, mt_segments *out,
                    mt_err *err)
{
    size_t done = 0; /* text up to here is in a segment */
    out->n = 0;
    for (size_t i = 0; which->n > 1 && i < n;) {
        int32_t token = -1;
        size_t len = which->root[(uint8_t)s[i]] ? mt_trie_longest(which, s + i, n - i, &token) : 0;
        if (!len) {
            i++;
            continue;
        }
        const mt_added_token *t = &a->tokens[token];
        size_t start = i, end = i + len;
        i = end; /* a match that is turned down is passed over all the same */
        if (t->single_word && !stands_alone(uc, s, n, start, end)) continue;
        if (t->lstrip) start = skip_spaces_back(uc, s, start, done);
        if (t->rstrip) end = skip_spaces(uc, s, n, end > done ? end : done); /* there are only spaces up to `done` */
        if (done < start) MT_TRY(added_push(out, done, start, -1, err));
        if (start < end) MT_TRY(added_push(out, start, end, token, err)); /* else the one before has stripped it all */
        if (done < end) done = end;
    }
    return done < n ? added_push(out, done, n, -1, err) : MT_OK;
}
