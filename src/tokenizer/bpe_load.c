/* Filling a BPE model: from a tokenizer.json, or from a vocabulary whose ranks imply the merges. */
#include "base/hash.h"
#include "base/log.h"
#include "tokenizer/bytes.h"
#include "tokenizer/json_read.h"
#include "tokenizer/model.h"
#include "tokenizer/text.h"

#include <string.h>

enum { MAX_MERGES = 1 << 25, MAX_SPLIT_BYTES = 512, BMP = 0x10000 };
#define MARKER "\xe2\x96\x81"

static mt_merge *slot_of(mt_bpe *b, uint64_t pair)
{
    size_t mask = b->n_slots - 1, at = (size_t)(pair * b->factor >> b->shift);
    while (b->merges[at].pair != MT_MERGE_NONE && b->merges[at].pair != pair) at = (at + 1) & mask;
    return &b->merges[at];
}

static mt_rc resize(mt_bpe *b, int log2_slots, mt_err *err)
{
    mt_bpe bigger = { .n_slots = (size_t)1 << log2_slots, .shift = 64 - log2_slots, .factor = mt_hash_factor() };
    bigger.merges = mt_malloc(bigger.n_slots * sizeof *bigger.merges);
    if (!bigger.merges) return mt_no_memory(err, "%zu merges", b->n_merges);
    memset(bigger.merges, 0xff, bigger.n_slots * sizeof *bigger.merges);
    for (size_t i = 0; i < b->n_slots; i++)
        if (b->merges[i].pair != MT_MERGE_NONE) *slot_of(&bigger, b->merges[i].pair) = b->merges[i];
    mt_free(b->merges);
    b->merges = bigger.merges;
    b->n_slots = bigger.n_slots;
    b->shift = bigger.shift;
    b->factor = bigger.factor;
    return MT_OK;
}

static mt_rc add_merge(mt_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id, mt_err *err)
{
    if (b->n_merges >= MAX_MERGES) return mt_fail(err, MT_ERANGE, "more than %d merges", MAX_MERGES);
    if (!b->n_slots)
        MT_TRY(resize(b, 6, err));
    else if (2 * (b->n_merges + 1) > b->n_slots)
        MT_TRY(resize(b, 64 - b->shift + 1, err));
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    mt_merge *m = slot_of(b, pair);
    if (m->pair == MT_MERGE_NONE) b->n_merges++;
    *m = (mt_merge){ pair, rank, id };
    return MT_OK;
}

/* ---- tables ---- */

static void fill_raw_bytes(mt_bpe *b, const mt_vocab *vocab)
{
    for (int byte = 0; byte < 256; byte++) {
        char utf8[4];
        int n = mt_utf8_encode(mt_byte_to_cp((uint8_t)byte), utf8);
        b->byte_ids[byte] = mt_vocab_id(vocab, utf8, (size_t)n);
    }
}

static mt_rc fill_chars(mt_bpe *b, const mt_vocab *vocab, mt_err *err)
{
    b->char_ids = mt_malloc(BMP * sizeof *b->char_ids);
    if (!b->char_ids) return mt_no_memory(err, "a table of characters");
    memset(b->char_ids, 0xff, BMP * sizeof *b->char_ids);
    for (size_t i = 0; i < vocab->n; i++) {
        const mt_vocab_token *t = &vocab->tokens[i];
        uint32_t cp;
        if ((size_t)mt_utf8_decode(t->s, t->n, &cp) == t->n && t->n && cp < BMP) b->char_ids[cp] = t->id;
    }
    return MT_OK;
}

/* With ignore_merges a word that is a token is that token; words are bytes here, so are the keys. */
static mt_rc fill_whole_words(mt_bpe *b, const mt_vocab *vocab, mt_err *err)
{
    MT_TRY(mt_vocab_reserve(&b->whole, vocab->n, err));
    char *bytes = NULL;
    size_t cap = 0;
    mt_rc rc = MT_OK;
    for (size_t i = 0; i < vocab->n && !rc; i++) {
        const mt_vocab_token *t = &vocab->tokens[i];
        rc = mt_grow(&bytes, &cap, t->n + 1, 1, err);
        int64_t n = rc ? -1 : mt_bytes_from_alphabet(t->s, t->n, bytes);
        if (n > 0) rc = mt_vocab_add(&b->whole, bytes, (size_t)n, t->id, err);
    }
    mt_free(bytes);
    return rc;
}

static bool starts_with_marker(const mt_vocab_token *t) { return t->n >= 3 && !memcmp(t->s, MARKER, 3); }
static bool ends_with_marker(const mt_vocab_token *t) { return t->n >= 3 && !memcmp(t->s + t->n - 3, MARKER, 3); }

/* May text be cut before every U+2581 that follows another character?  Only if no merge joins across such a place,
 * nor anything else looks at more than one side of it. */
static bool may_cut_at_marker(const mt_bpe *b, const mt_vocab *vocab)
{
    if (b->raw || b->n_prefix || b->n_suffix || b->ignore_merges || mt_vocab_id(vocab, MARKER, 3) < 0) return false;
    for (size_t i = 0; i < b->n_slots; i++) {
        if (b->merges[i].pair == MT_MERGE_NONE) continue;
        const mt_vocab_token *left = mt_vocab_at(vocab, (int64_t)(b->merges[i].pair >> 32));
        const mt_vocab_token *right = mt_vocab_at(vocab, (int64_t)(b->merges[i].pair & UINT32_MAX));
        if (left && mt_byte_from_hex(left->s, left->n) >= 0) return false;
        if (right && mt_byte_from_hex(right->s, right->n) >= 0) return false;
        if (right && starts_with_marker(right) && !(left && ends_with_marker(left))) return false;
    }
    return true;
}

mt_rc mt_bpe_finish(mt_bpe *b, const mt_vocab *vocab, mt_err *err)
{
    if (!b->n_slots) MT_TRY(resize(b, 6, err));
    if (!b->raw) MT_TRY(fill_chars(b, vocab, err));
    b->cut_at_marker = may_cut_at_marker(b, vocab);
    return MT_OK;
}

void mt_bpe_deinit(mt_bpe *b)
{
    mt_free(b->merges);
    mt_free(b->char_ids);
    mt_vocab_deinit(&b->whole);
    mt_free(b->prefix);
    mt_free(b->suffix);
    *b = (mt_bpe){ 0 };
}

/* ---- tokenizer.json ---- */

typedef struct merge_text {
    const char *left, *right;
    size_t n_left, n_right;
} merge_text;

/* "a b", or ["a", "b"] where tokens hold spaces. */
static bool read_merge(const mt_value *v, merge_text *m)
{
    if (v->type == MT_VALUE_LIST) {
        if (v->list.n != 2 || v->list.items[0].type != MT_VALUE_STR || v->list.items[1].type != MT_VALUE_STR) return false;
        *m = (merge_text){ v->list.items[0].str.s, v->list.items[1].str.s, v->list.items[0].str.n, v->list.items[1].str.n };
        return true;
    }
    if (v->type != MT_VALUE_STR) return false;
    const char *space = memchr(v->str.s, ' ', v->str.n);
    if (!space) return false;
    size_t n_left = (size_t)(space - v->str.s);
    *m = (merge_text){ v->str.s, space + 1, n_left, v->str.n - n_left - 1 };
    return !memchr(m->right, ' ', m->n_right);
}

static mt_rc add_merge_text(mt_bpe *b, const mt_vocab *vocab, merge_text m, size_t rank, mt_str *joined, const char *what,
                            mt_err *err)
{
    int32_t left = mt_vocab_id(vocab, m.left, m.n_left), right = mt_vocab_id(vocab, m.right, m.n_right);
    mt_str_clear(joined);
    mt_str_add(joined, m.left, m.n_left);
    if (m.n_right >= b->n_prefix) mt_str_add(joined, m.right + b->n_prefix, m.n_right - b->n_prefix);
    if (!mt_str_ok(joined)) return mt_no_memory(err, "%s", what);
    int32_t id = joined->n ? mt_vocab_id(vocab, joined->s, joined->n) : -1;
    if (left < 0 || right < 0 || id < 0)
        return mt_fail(err, MT_EFORMAT, "%s: merge %zu (\"%.*s\" and \"%.*s\") names a token that is not in the vocabulary", what,
                       rank, (int)mt_min_i64((int64_t)m.n_left, 60), m.left, (int)mt_min_i64((int64_t)m.n_right, 60), m.right);
    return add_merge(b, left, right, (uint32_t)rank, id, err);
}

static mt_rc parse_merges(mt_bpe *b, const mt_value *model, const mt_vocab *vocab, const char *what, mt_err *err)
{
    const mt_value *list;
    MT_TRY(mt__json_need(model, "merges", MT_VALUE_LIST, &list, what, err));
    int log2_slots = 6;
    while ((size_t)1 << log2_slots < 2 * list->list.n && log2_slots < 27) log2_slots++;
    MT_TRY(resize(b, log2_slots, err));
    mt_str joined = { 0 };
    mt_rc rc = MT_OK;
    for (size_t i = 0; i < list->list.n && !rc; i++) {
        merge_text m;
        rc = read_merge(&list->list.items[i], &m)
                 ? add_merge_text(b, vocab, m, i, &joined, what, err)
                 : mt_fail(err, MT_EFORMAT, "%s: merge %zu is neither \"a b\" nor [\"a\", \"b\"]", what, i);
    }
    mt_str_free(&joined);
    return rc;
}

static mt_rc parse_unk(mt_bpe *b, const mt_value *model, const mt_vocab *vocab, const char *what, mt_err *err)
{
    const mt_value *unk;
    MT_TRY(mt__json_maybe(model, "unk_token", MT_VALUE_STR, &unk, what, err));
    b->unk_id = unk ? mt_vocab_id(vocab, unk->str.s, unk->str.n) : -1;
    if (unk && b->unk_id < 0) mt_warn("%s: \"unk_token\" is not in the vocabulary; unknown characters are left out", what);
    return MT_OK;
}

mt_rc mt_bpe_parse(mt_bpe *b, const mt_value *model, const mt_vocab *vocab, bool raw, const char *what, mt_err *err)
{
    const mt_value *dropout = mt_value_get(model, "dropout");
    if (dropout && dropout->type == MT_VALUE_FLOAT && dropout->f > 0)
        mt_warn("%s: BPE dropout %.3g is ignored: text is always cut the same way here", what, dropout->f);
    MT_TRY(mt__json_text(model, "continuing_subword_prefix", &b->prefix, &b->n_prefix, what, err));
    MT_TRY(mt__json_text(model, "end_of_word_suffix", &b->suffix, &b->n_suffix, what, err));
    MT_TRY(mt__json_bool(model, "fuse_unk", false, &b->fuse_unk, what, err));
    MT_TRY(mt__json_bool(model, "byte_fallback", false, &b->byte_fallback, what, err));
    MT_TRY(mt__json_bool(model, "ignore_merges", false, &b->ignore_merges, what, err));
    MT_TRY(parse_unk(b, model, vocab, what, err));
    MT_TRY(parse_merges(b, model, vocab, what, err));
    b->raw = raw && !b->n_prefix && !b->n_suffix && !b->byte_fallback;
    if (b->raw)
        fill_raw_bytes(b, vocab);
    else
        mt__find_byte_tokens(vocab, b->byte_ids);
    if (b->raw && b->ignore_merges) MT_TRY(fill_whole_words(b, vocab, err));
    return mt_bpe_finish(b, vocab, err);
}

/* ---- vocabularies without merges ---- */

static mt_rc split_token(mt_bpe *b, const mt_vocab *vocab, const mt_vocab_token *t, uint32_t rank, bool bytes, mt_err *err)
{
    if (t->n > MAX_SPLIT_BYTES) return MT_OK; /* runs of white space; nothing real is longer */
    for (uint32_t k = 1; k < t->n; k++) {
        if (!bytes && ((unsigned char)t->s[k] & 0xc0) == 0x80) continue;
        int32_t left = mt_vocab_id(vocab, t->s, k), right = left < 0 ? -1 : mt_vocab_id(vocab, t->s + k, t->n - k);
        if (right >= 0) MT_TRY(add_merge(b, left, right, rank, t->id, err));
    }
    return MT_OK;
}

mt_rc mt_bpe_from_ranks(mt_bpe *b, const mt_vocab *vocab, const uint32_t *rank_of_id, bool raw, mt_err *err)
{
    for (size_t i = 0; i < vocab->n; i++) {
        const mt_vocab_token *t = &vocab->tokens[i];
        if (rank_of_id[t->id] != UINT32_MAX) MT_TRY(split_token(b, vocab, t, rank_of_id[t->id], raw, err));
    }
    return MT_OK;
}
