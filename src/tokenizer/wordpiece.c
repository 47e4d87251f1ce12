/* WordPiece: the longest token a word starts with, then the longest (with a prefix) the rest starts with, and so on;
 * a word that cannot be cut that way is unknown as a whole.  WordLevel: words are tokens or unknown. */
#include "tokenizer/json_read.h"
#include "tokenizer/model.h"
#include "tokenizer/text.h"

static mt_rc put_unknown(const mt_word_model *m, size_t n, mt_pieces *out, mt_err *err)
{
    if (m->wordpiece.unk_id >= 0) return mt_pieces_push(out, m->wordpiece.unk_id, n, err);
    return mt_fail(err, MT_EFORMAT, "the text has a word that is not in the vocabulary, which has no unknown token");
}

static size_t count_chars(const char *s, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += ((unsigned char)s[i] & 0xc0) != 0x80;
    return chars;
}

/* The longest token s starts with, after the prefix where it is not the first; 0 if none. */
static size_t longest_piece(const mt_word_model *m, const char *s, size_t n, bool first, int32_t *id)
{
    const mt_wordpiece *w = &m->wordpiece;
    if (!first && !w->has_inner) return 0;
    size_t best = 0;
    uint32_t at = first ? 0 : w->inner;
    for (size_t i = 0; i < n; i++) {
        at = mt_trie_step(&w->trie, at, (uint8_t)s[i]);
        if (!at) break;
        if (w->trie.nodes[at].value < 0) continue;
        best = i + 1;
        *id = m->vocab.tokens[w->trie.nodes[at].value].id;
    }
    return best;
}

mt_rc mt__wordpiece_encode(const mt_word_model *m, const char *s, size_t n, mt_pieces *out, mt_err *err)
{
    int32_t id;
    if (m->kind == MT_WORD_MODEL_WORDLEVEL) {
        id = mt_vocab_id(&m->vocab, s, n);
        return id >= 0 ? mt_pieces_push(out, id, n, err) : put_unknown(m, n, out, err);
    }
    if (count_chars(s, n) > m->wordpiece.max_chars) return put_unknown(m, n, out, err);
    size_t before = out->n;
    for (size_t i = 0; i < n;) {
        size_t len = longest_piece(m, s + i, n - i, i == 0, &id);
        if (!len) {
            out->n = before;
            return put_unknown(m, n, out, err);
        }
        MT_TRY(mt_pieces_push(out, id, len, err));
        i += len;
    }
    return MT_OK;
}

/* The vocabulary as a trie, and the node that the prefix leads to. */
static mt_rc build_trie(mt_wordpiece *w, const mt_vocab *vocab, const char *what, mt_err *err)
{
    size_t n = 0;
    mt_trie_key *keys = mt_calloc(vocab->n, sizeof *keys);
    if (!keys) return mt_no_memory(err, "%zu tokens of %s", vocab->n, what);
    for (size_t i = 0; i < vocab->n; i++)
        if (vocab->tokens[i].n) keys[n++] = (mt_trie_key){ vocab->tokens[i].s, vocab->tokens[i].n, (int32_t)i };
    mt_rc rc = mt_trie_build(&w->trie, keys, n, err);
    mt_free(keys);
    w->has_inner = !rc;
    for (size_t i = 0; i < w->n_prefix && w->has_inner; i++) {
        w->inner = mt_trie_step(&w->trie, w->inner, (uint8_t)w->prefix[i]);
        w->has_inner = w->inner != 0;
    }
    return rc;
}

mt_rc mt_wordpiece_parse(mt_wordpiece *w, const mt_value *model, const mt_vocab *vocab, bool whole_words, const char *what,
                         mt_err *err)
{
    const mt_value *unk, *prefix;
    int64_t max_chars;
    MT_TRY(mt__json_need(model, "unk_token", MT_VALUE_STR, &unk, what, err));
    w->unk_id = mt_vocab_id(vocab, unk->str.s, unk->str.n);
    if (whole_words) return MT_OK;
    MT_TRY(mt__json_int(model, "max_input_chars_per_word", 100, &max_chars, what, err));
    if (max_chars < 0 || max_chars > 1000)
        return mt_fail(err, MT_ERANGE, "%s: \"max_input_chars_per_word\" is %lld, 0 to 1000 was expected", what,
                       (long long)max_chars);
    MT_TRY(mt__json_maybe(model, "continuing_subword_prefix", MT_VALUE_STR, &prefix, what, err));
    w->prefix = mt_strndup(prefix ? prefix->str.s : "##", prefix ? prefix->str.n : 2);
    w->n_prefix = prefix ? prefix->str.n : 2;
    w->max_chars = (size_t)max_chars;
    if (!w->prefix) return mt_no_memory(err, "%s", what);
    return build_trie(w, vocab, what, err);
}
