/* Byte-pair encoding of one word: start from characters (or bytes) and merge the pair of lowest rank, leftmost first,
 * until no pair is left.  Short words scan for the best pair; long ones keep candidates in a heap. */
#include "tokenizer/model.h"

#include "tokenizer/text.h"

#include <string.h>

enum { SCAN_LIMIT = 40 }; /* above this many symbols the heap wins */

static inline const mt_merge *find_merge(const mt_bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t mask = b->n_slots - 1, at = (size_t)(pair * b->factor >> b->shift);
    for (;; at = (at + 1) & mask) {
        const mt_merge *m = &b->merges[at];
        if (m->pair == pair) return m;
        if (m->pair == MT_MERGE_NONE) return NULL;
    }
}

/* ---- symbols a word starts from ---- */

typedef struct start {
    const mt_word_model *m;
    mt_word_model_state *st;
    size_t n;    /* symbols so far */
    int32_t unk; /* pending unknown token, -1: none */
    size_t unk_len;
} start;

static mt_rc add_symbol(start *w, int32_t id, size_t len, mt_err *err)
{
    if (w->n == w->st->cap_symbols) MT_TRY(mt_grow(&w->st->symbols, &w->st->cap_symbols, w->n + 1, sizeof *w->st->symbols, err));
    w->st->symbols[w->n++] = (mt_symbol){ .id = id, .len = (uint32_t)len };
    return MT_OK;
}

static mt_rc flush_unknown(start *w, mt_err *err)
{
    if (w->unk < 0) return MT_OK;
    int32_t id = w->unk;
    w->unk = -1;
    return add_symbol(w, id, w->unk_len, err);
}

static mt_rc add_unknown(start *w, size_t len, mt_err *err)
{
    const mt_bpe *b = &w->m->bpe;
    if (b->unk_id < 0) return MT_OK;
    if (w->unk >= 0 && b->fuse_unk) {
        w->unk_len += len;
        return MT_OK;
    }
    MT_TRY(flush_unknown(w, err));
    w->unk = b->unk_id;
    w->unk_len = len;
    return MT_OK;
}

/* A character with the affixes some vocabularies want. */
typedef struct spelled {
    const char *s;
    size_t n, n_prefix, n_char;
} spelled;

static spelled spell(start *w, const char *s, size_t n, bool first, bool last)
{
    const mt_bpe *b = &w->m->bpe;
    spelled p = { .s = s, .n = n, .n_prefix = first ? 0 : b->n_prefix, .n_char = n };
    size_t n_suffix = last ? b->n_suffix : 0;
    if (!p.n_prefix && !n_suffix) return p;
    char *to = w->st->piece; /* start_chars made room */
    if (p.n_prefix) memcpy(to, b->prefix, p.n_prefix);
    memcpy(to + p.n_prefix, s, n);
    if (n_suffix) memcpy(to + p.n_prefix + n, b->suffix, n_suffix);
    p.s = to;
    p.n = p.n_prefix + n + n_suffix;
    return p;
}

static int32_t char_token(const start *w, spelled p)
{
    uint32_t cp;
    if (p.n != p.n_char) return mt_vocab_id(&w->m->vocab, p.s, p.n);
    mt_cp_at(p.s, p.n, 0, &cp);
    return cp < 0x10000 ? w->m->bpe.char_ids[cp] : mt_vocab_id(&w->m->vocab, p.s, p.n);
}

static mt_rc add_char(start *w, spelled p, mt_err *err)
{
    const mt_bpe *b = &w->m->bpe;
    int32_t id = char_token(w, p);
    if (id >= 0) {
        MT_TRY(flush_unknown(w, err));
        return add_symbol(w, id, p.n_char, err);
    }
    if (b->spm) return add_symbol(w, MT_SYMBOL_UNKNOWN, p.n_char, err);
    /* The reference does not flush a pending unknown before bytes, and falls back for affixes too; so do we. */
    if (!b->byte_fallback || !mt__all_bytes_known(b->byte_ids, p.s, p.n)) return add_unknown(w, p.n_char, err);
    for (size_t i = 0; i < p.n; i++) {
        bool inside = i >= p.n_prefix && i < p.n_prefix + p.n_char;
        MT_TRY(add_symbol(w, b->byte_ids[(uint8_t)p.s[i]], inside, err));
    }
    return MT_OK;
}

static mt_rc start_chars(start *w, const char *s, size_t n, mt_err *err)
{
    MT_TRY(mt_grow(&w->st->piece, &w->st->cap_piece, w->m->bpe.n_prefix + w->m->bpe.n_suffix + 4, 1, err));
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int32_t piece;
        size_t len = w->m->has_user_defined ? mt_trie_longest(&w->m->user_defined, s + i, n - i, &piece) : 0;
        if (len)
            MT_TRY(add_symbol(w, piece | MT_SYMBOL_FROZEN, len, err));
        else {
            len = mt_cp_at(s, n, i, &cp);
            MT_TRY(add_char(w, spell(w, s + i, len, i == 0, i + len == n), err));
        }
        i += len;
    }
    return flush_unknown(w, err);
}

static mt_rc start_bytes(start *w, const char *s, size_t n, mt_err *err)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = w->m->bpe.byte_ids[(uint8_t)s[i]];
        if (id >= 0) {
            MT_TRY(flush_unknown(w, err));
            MT_TRY(add_symbol(w, id, 1, err));
        } else {
            MT_TRY(add_unknown(w, 1, err));
        }
    }
    return flush_unknown(w, err);
}

/* ---- merging ---- */

/* Merge in place; rank[i] belongs to the pair (i, i+1).  Returns how many symbols are left. */
static size_t merge_short(const mt_bpe *b, mt_symbol *s, size_t n)
{
    uint32_t rank[SCAN_LIMIT];
    int32_t joined[SCAN_LIMIT];
    for (size_t i = 0; i + 1 < n; i++) {
        const mt_merge *m = find_merge(b, s[i].id, s[i + 1].id);
        rank[i] = m ? m->rank : UINT32_MAX;
        joined[i] = m ? m->id : 0;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == UINT32_MAX) break;
        s[best].id = joined[best];
        s[best].len += s[best + 1].len;
        memmove(s + best + 1, s + best + 2, (n - best - 2) * sizeof *s);
        memmove(rank + best + 1, rank + best + 2, (n - best - 2) * sizeof *rank);
        memmove(joined + best + 1, joined + best + 2, (n - best - 2) * sizeof *joined);
        n--;
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const mt_merge *m = find_merge(b, s[i].id, s[i + 1].id);
            rank[i] = m ? m->rank : UINT32_MAX;
            joined[i] = m ? m->id : 0;
        }
    }
    return n;
}

static bool before(const mt__candidate *a, const mt__candidate *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static mt_rc heap_push(mt_word_model_state *st, mt__candidate c, mt_err *err)
{
    if (st->n_heap == st->cap_heap) MT_TRY(mt_grow(&st->heap, &st->cap_heap, st->n_heap + 1, sizeof *st->heap, err));
    size_t i = st->n_heap++;
    for (; i && before(&c, &st->heap[(i - 1) / 2]); i = (i - 1) / 2) st->heap[i] = st->heap[(i - 1) / 2];
    st->heap[i] = c;
    return MT_OK;
}

static mt__candidate heap_pop(mt_word_model_state *st)
{
    mt__candidate top = st->heap[0], last = st->heap[--st->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= st->n_heap) break;
        if (child + 1 < st->n_heap && before(&st->heap[child + 1], &st->heap[child])) child++;
        if (!before(&st->heap[child], &last)) break;
        st->heap[i] = st->heap[child];
        i = child;
    }
    st->heap[i] = last;
    return top;
}

static mt_rc offer(const mt_bpe *b, mt_word_model_state *st, int32_t left, mt_err *err)
{
    if (left < 0 || st->symbols[left].next < 0) return MT_OK;
    const mt_merge *m = find_merge(b, st->symbols[left].id, st->symbols[st->symbols[left].next].id);
    return m ? heap_push(st, (mt__candidate){ m->rank, left, m->id }, err) : MT_OK;
}

/* A candidate is stale when its symbols have merged otherwise: the pair at its place no longer gives its id. */
static bool still_holds(const mt_bpe *b, const mt_symbol *s, mt__candidate c)
{
    if (s[c.at].id == MT_SYMBOL_MERGED || s[c.at].next < 0) return false;
    const mt_merge *m = find_merge(b, s[c.at].id, s[s[c.at].next].id);
    return m && m->id == c.id && m->rank == c.rank;
}

static mt_rc merge_long(const mt_bpe *b, mt_word_model_state *st, size_t n, mt_err *err)
{
    mt_symbol *s = st->symbols;
    for (size_t i = 0; i < n; i++) {
        s[i].prev = (int32_t)i - 1;
        s[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    st->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++) MT_TRY(offer(b, st, (int32_t)i, err));
    while (st->n_heap) {
        mt__candidate c = heap_pop(st);
        if (!still_holds(b, s, c)) continue;
        mt_symbol *left = &s[c.at], *right = &s[left->next];
        left->id = c.id;
        left->len += right->len;
        left->next = right->next;
        right->id = MT_SYMBOL_MERGED;
        if (left->next >= 0) s[left->next].prev = c.at;
        MT_TRY(offer(b, st, left->prev, err));
        MT_TRY(offer(b, st, c.at, err));
    }
    return MT_OK;
}

/* ---- the result ---- */

/* SentencePiece decides about unknown characters last: bytes, or one unknown token for a run of them. */
static mt_rc put_spm(const mt_word_model *m, const char *s, mt_symbol symbol, bool *after_unk, mt_pieces *out, mt_err *err)
{
    const mt_bpe *b = &m->bpe;
    int32_t id = symbol.id < 0 ? symbol.id : symbol.id & ~MT_SYMBOL_FROZEN;
    bool unknown = id < 0 || id >= b->first_char_id;
    bool fuse = unknown && *after_unk;
    *after_unk = false;
    if (!unknown) return mt_pieces_push(out, id, symbol.len, err);
    if (b->byte_fallback && mt__all_bytes_known(b->byte_ids, s, symbol.len)) {
        for (size_t i = 0; i < symbol.len; i++) MT_TRY(mt_pieces_push(out, b->byte_ids[(uint8_t)s[i]], 1, err));
        return MT_OK;
    }
    *after_unk = true;
    if (!fuse) return mt_pieces_push(out, b->unk_id, symbol.len, err);
    out->lens[out->n - 1] += symbol.len;
    return MT_OK;
}

static mt_rc put_symbols(const mt_word_model *m, const mt_symbol *s, size_t n, const char *word, mt_pieces *out, mt_err *err)
{
    bool after_unk = false;
    for (size_t i = 0; i < n; i++) {
        if (s[i].id == MT_SYMBOL_MERGED) continue;
        if (m->bpe.spm)
            MT_TRY(put_spm(m, word, s[i], &after_unk, out, err));
        else
            MT_TRY(mt_pieces_push(out, s[i].id, s[i].len, err));
        word += s[i].len;
    }
    return MT_OK;
}

mt_rc mt__bpe_encode(const mt_word_model *m, mt_word_model_state *st, const char *word, size_t n, mt_pieces *out, mt_err *err)
{
    const mt_bpe *b = &m->bpe;
    if (b->ignore_merges) {
        int32_t id = mt_vocab_id(b->whole.n ? &b->whole : &m->vocab, word, n);
        if (id >= 0) return mt_pieces_push(out, id, n, err);
    }
    start w = { .m = m, .st = st, .unk = -1 };
    MT_TRY(b->raw ? start_bytes(&w, word, n, err) : start_chars(&w, word, n, err));
    if (w.n <= SCAN_LIMIT)
        w.n = merge_short(b, st->symbols, w.n);
    else
        MT_TRY(merge_long(b, st, w.n, err));
    return put_symbols(m, st->symbols, w.n, word, out, err);
}
