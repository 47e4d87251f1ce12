/* Unigram: of all ways to cut a word into tokens, the one whose scores add up highest (Viterbi over bytes). */
#include "tokenizer/model.h"

#include "tokenizer/json_read.h"
#include "tokenizer/text.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double unknown_penalty = 10.0; /* what an unknown character costs below the worst token */

/* SentencePiece adds in single precision, and ties and near-ties depend on it. */
static double add_scores(const mt_unigram *u, double a, double b) { return u->spm ? (double)(float)(a + b) : a + b; }

static void offer(mt__best *to, double score, size_t from, int32_t id)
{
    if (to->start >= 0 && !(score > to->score)) return;
    *to = (mt__best){ .score = score, .start = (int32_t)from, .id = id };
}

/* All tokens that start at `from`; true if one of them is the single character there. */
static bool extend(const mt_unigram *u, mt__best *best, const char *s, size_t n, size_t from, size_t char_len)
{
    bool single = false;
    uint32_t at = 0;
    for (size_t i = from; i < n; i++) {
        at = mt_trie_step(&u->trie, at, (uint8_t)s[i]);
        if (!at) break;
        int32_t id = u->trie.nodes[at].value;
        if (id < 0) continue;
        offer(&best[i + 1], add_scores(u, u->scores[id], best[from].score), from, id);
        if (i + 1 - from == char_len) single = true;
    }
    return single;
}

static mt_rc find_best(const mt_unigram *u, mt__best *best, const char *s, size_t n, mt_err *err)
{
    for (size_t i = 0; i <= n; i++) best[i] = (mt__best){ .start = -1 };
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = mt_cp_at(s, n, i, &cp);
        if (!extend(u, best, s, n, i, len)) {
            if (u->unk_id < 0)
                return mt_fail(err, MT_EFORMAT,
                               "the text has a character that is not in the vocabulary, which has no unknown token");
            offer(&best[i + len], add_scores(u, u->unk_score, best[i].score), i, u->unk_id);
        }
        i += len;
    }
    return MT_OK;
}

/* A run of unknown characters: a token that is spelled like it, bytes, or the unknown token. */
static mt_rc put_unknown(const mt_word_model *m, const char *s, size_t n, mt_pieces *out, mt_err *err)
{
    const mt_unigram *u = &m->unigram;
    int32_t id = mt_vocab_id(&m->vocab, s, n);
    if (id >= 0 && !u->spm) return mt_pieces_push(out, id, n, err);
    if (!u->byte_fallback || !mt__all_bytes_known(u->byte_ids, s, n)) return mt_pieces_push(out, u->unk_id, n, err);
    for (size_t i = 0; i < n; i++) MT_TRY(mt_pieces_push(out, u->byte_ids[(uint8_t)s[i]], 1, err));
    return MT_OK;
}

mt_rc mt__unigram_encode(const mt_word_model *m, mt_word_model_state *st, const char *s, size_t n, mt_pieces *out, mt_err *err)
{
    const mt_unigram *u = &m->unigram;
    MT_TRY(mt_grow(&st->best, &st->cap_best, n + 1, sizeof *st->best, err));
    mt__best *best = st->best;
    MT_TRY(find_best(u, best, s, n, err));
    /* Walk back from the end, turning each `start` into a link forward. */
    int32_t end = (int32_t)n, next = -1, id = -1;
    while (end > 0) {
        int32_t from = best[end].start, from_id = best[end].id;
        best[end].start = next;
        best[end].id = id;
        next = end;
        id = from_id;
        end = from;
    }
    best[0].start = next;
    best[0].id = id;
    for (int32_t at = 0; at < (int32_t)n;) {
        int32_t to = best[at].start, token = best[at].id;
        if (token != u->unk_id) {
            MT_TRY(mt_pieces_push(out, token, (size_t)(to - at), err));
        } else {
            while (to < (int32_t)n && best[to].id == u->unk_id) to = best[to].start;
            MT_TRY(put_unknown(m, s + at, (size_t)(to - at), out, err));
        }
        at = to;
    }
    return MT_OK;
}

/* The reference reads decimal numbers the quick way: all digits as one integer, made a double, divided by a power of ten.
 * That is off by one unit in the last place now and then, and where two ways to cut a word tie, such a unit decides.  The
 * file was written with the fewest digits that name the number, so they can be had back from the exact value. */
static double as_the_reference_reads(double exact)
{
    char text[32], digits[32];
    int precision = 1;
    do snprintf(text, sizeof text, "%.*e", precision - 1, exact);
    while (strtod(text, NULL) != exact && ++precision <= 17);
    size_t n = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    digits[n] = '\0';
    int exponent = (*p ? (int)strtol(p + 1, NULL, 10) : 0) - ((int)n - 1);
    if (exponent >= 0 || exponent < -22) return exact; /* whole numbers are read exactly; nothing real is that small */
    double scale = 1;                                  /* powers of ten up to 10^22 are exact */
    for (int i = 0; i < -exponent; i++) scale *= 10;
    double value = (double)strtoull(digits, NULL, 10) / scale;
    return exact < 0 ? -value : value;
}

/* The search walks up to the longest token at each place of a text, so a token of any length would make it slow. */
mt_rc mt__unigram_check_length(size_t n, const char *what, mt_err *err)
{
    enum { MAX_PIECE_BYTES = 1 << 10 };
    if (n <= MAX_PIECE_BYTES) return MT_OK;
    return mt_fail(err, MT_ERANGE, "%s: a token of %zu bytes; a Unigram model's have at most %d", what, n, MAX_PIECE_BYTES);
}

static mt_rc read_entry(mt_unigram *u, mt_vocab *vocab, mt_trie_key *keys, size_t i, const mt_value *v, const char *what,
                        mt_err *err)
{
    if (v->type != MT_VALUE_LIST || v->list.n != 2 || v->list.items[0].type != MT_VALUE_STR ||
        (v->list.items[1].type != MT_VALUE_FLOAT && v->list.items[1].type != MT_VALUE_INT))
        return mt_fail(err, MT_EFORMAT, "%s: \"vocab\" entry %zu is not [\"token\", score]", what, i);
    const mt_value *token = &v->list.items[0], *score = &v->list.items[1];
    u->scores[i] = score->type == MT_VALUE_INT ? (double)score->i : as_the_reference_reads(score->f);
    if (!isfinite(u->scores[i]))
        return mt_fail(err, MT_EFORMAT, "%s: the score of \"vocab\" entry %zu is not a finite number", what, i);
    if (u->scores[i] < u->unk_score) u->unk_score = u->scores[i];
    MT_TRY(mt__unigram_check_length(token->str.n, what, err));
    keys[i] = (mt_trie_key){ token->str.s, token->str.n, (int32_t)i };
    return mt_vocab_add(vocab, token->str.s, token->str.n, (int64_t)i, err);
}

static mt_rc read_entries(mt_unigram *u, mt_vocab *vocab, const mt_value *list, const char *what, mt_err *err)
{
    size_t n = list->list.n, n_keys = 0;
    mt_trie_key *keys = mt_calloc(n, sizeof *keys);
    u->scores = mt_calloc(n, sizeof *u->scores);
    u->n_scores = n;
    u->unk_score = DBL_MAX;
    mt_rc rc = keys && u->scores ? MT_OK : mt_no_memory(err, "%zu tokens of %s", n, what);
    if (!rc) rc = mt_vocab_reserve(vocab, n, err);
    for (size_t i = 0; i < n && !rc; i++) rc = read_entry(u, vocab, keys, i, &list->list.items[i], what, err);
    for (size_t i = 0; i < n && !rc; i++)
        if (keys[i].n) keys[n_keys++] = keys[i];
    if (!rc) rc = mt_trie_build(&u->trie, keys, n_keys, err);
    mt_free(keys);
    u->unk_score -= unknown_penalty;
    return rc;
}

mt_rc mt_unigram_parse(mt_unigram *u, const mt_value *model, mt_vocab *vocab, const char *what, mt_err *err)
{
    const mt_value *list;
    int64_t unk;
    MT_TRY(mt__json_need(model, "vocab", MT_VALUE_LIST, &list, what, err));
    MT_TRY(read_entries(u, vocab, list, what, err));
    MT_TRY(mt__json_int(model, "unk_id", -1, &unk, what, err));
    if (unk < -1 || unk >= (int64_t)list->list.n)
        return mt_fail(err, MT_ERANGE, "%s: \"unk_id\" is %lld, the vocabulary has %zu tokens", what, (long long)unk,
                       list->list.n);
    u->unk_id = (int32_t)unk;
    MT_TRY(mt__json_bool(model, "byte_fallback", false, &u->byte_fallback, what, err));
    mt__find_byte_tokens(vocab, u->byte_ids);
    return MT_OK;
}

void mt_unigram_deinit(mt_unigram *u)
{
    mt_free(u->scores);
    mt_trie_deinit(&u->trie);
    *u = (mt_unigram){ 0 };
}
