/* Dispatch to the four models, and the cache in front of them.
 *
 * Text repeats its words, so most words are answered from a cache: one cache line per entry, direct-mapped, always
 * overwritten.  It holds words of up to 24 bytes and 7 ids; the rest is computed every time. */
#include "tokenizer/model.h"

#include <string.h>

enum { KEY_BYTES = 24, MAX_IDS = 7, CACHE_BITS = 16 };

typedef struct entry {
    uint64_t key[3]; /* the word, zero-padded */
    int32_t ids[MAX_IDS];
    uint8_t lens[MAX_IDS];
    uint8_t n; /* bytes of the word; 0: empty */
    uint8_t n_ids;
} entry;

struct mt_word_cache {
    entry entries[1 << CACHE_BITS];
};

mt_rc mt_pieces_push(mt_pieces *p, int32_t id, size_t len, mt_err *err)
{
    if (p->n == p->cap_ids) MT_TRY(mt_grow(&p->ids, &p->cap_ids, p->n + 1, sizeof *p->ids, err));
    if (p->n == p->cap_lens) MT_TRY(mt_grow(&p->lens, &p->cap_lens, p->n + 1, sizeof *p->lens, err));
    p->ids[p->n] = id;
    p->lens[p->n++] = (uint32_t)len;
    return MT_OK;
}

void mt_pieces_deinit(mt_pieces *p)
{
    mt_free(p->ids);
    mt_free(p->lens);
    *p = (mt_pieces){ 0 };
}

/* The first n bytes as three words; bytes past the word are masked away where they may be read. */
static void load_key(uint64_t key[3], const char *s, size_t n, size_t readable)
{
    if (readable < KEY_BYTES) {
        memset(key, 0, KEY_BYTES);
        memcpy(key, s, n);
        return;
    }
    memcpy(key, s, KEY_BYTES);
    for (size_t i = 0; i < 3; i++) {
        size_t left = n > 8 * i ? n - 8 * i : 0;
        if (left < 8) key[i] &= left ? UINT64_MAX >> (64 - 8 * left) : 0;
    }
}

static entry *cache_slot(mt_word_cache *cache, const uint64_t key[3], size_t n)
{
    uint64_t h = (key[0] ^ n) * 0x9e3779b97f4a7c15u;
    h = ((h ^ h >> 32) + key[1]) * 0xbf58476d1ce4e5b9u;
    h = ((h ^ h >> 32) + key[2]) * 0x94d049bb133111ebu;
    return &cache->entries[h >> (64 - CACHE_BITS)];
}

/* Remember the pieces from `first` on. */
static void cache_store(entry *e, const uint64_t key[3], size_t n, const mt_pieces *pieces, size_t first)
{
    size_t n_ids = pieces->n - first;
    if (n_ids > MAX_IDS) return;
    memcpy(e->key, key, KEY_BYTES);
    e->n = (uint8_t)n;
    e->n_ids = (uint8_t)n_ids;
    for (size_t i = 0; i < n_ids; i++) {
        e->ids[i] = pieces->ids[first + i];
        e->lens[i] = (uint8_t)pieces->lens[first + i];
    }
}

static mt_rc encode_word(const mt_word_model *m, mt_word_model_state *st, const char *word, size_t n, mt_pieces *out, mt_err *err)
{
    switch (m->kind) {
    case MT_WORD_MODEL_BPE: return mt__bpe_encode(m, st, word, n, out, err);
    case MT_WORD_MODEL_UNIGRAM: return mt__unigram_encode(m, st, word, n, out, err);
    default: return mt__wordpiece_encode(m, word, n, out, err);
    }
}

static mt_rc encode_cached(const mt_word_model *m, mt_word_model_state *st, const char *word, size_t n, size_t readable,
                           mt_pieces *out, mt_err *err)
{
    if (!n) return MT_OK;
    if (n > KEY_BYTES) return encode_word(m, st, word, n, out, err);
    uint64_t key[3];
    load_key(key, word, n, readable);
    entry *e = cache_slot(st->cache, key, n);
    if (e->n == n && e->key[0] == key[0] && e->key[1] == key[1] && e->key[2] == key[2]) {
        for (size_t i = 0; i < e->n_ids; i++) MT_TRY(mt_pieces_push(out, e->ids[i], e->lens[i], err));
        return MT_OK;
    }
    size_t before = out->n;
    MT_TRY(encode_word(m, st, word, n, out, err));
    cache_store(e, key, n, out, before);
    return MT_OK;
}

/* Where the next word marked by U+2581 starts: a marker after anything but a marker. */
static size_t next_marker(const char *s, size_t n, size_t i)
{
    bool after_marker = !memcmp(s + i, "\xe2\x96\x81", n - i < 3 ? n - i : 3);
    for (i += after_marker ? 3 : 1; i < n;) {
        const char *at = memchr(s + i, 0xe2, n - i);
        size_t k = at ? (size_t)(at - s) : n;
        if (k + 3 > n) return n;
        bool marker = !memcmp(s + k, "\xe2\x96\x81", 3);
        if (marker && !(after_marker && k == i)) return k;
        after_marker = marker;
        i = k + 3;
    }
    return n;
}

mt_rc mt_word_model_encode(const mt_word_model *m, mt_word_model_state *st, const char *word, size_t n, size_t readable,
                           mt_pieces *out, mt_err *err)
{
    if (m->kind != MT_WORD_MODEL_BPE || !m->bpe.cut_at_marker) return encode_cached(m, st, word, n, readable, out, err);
    for (size_t i = 0; i < n;) {
        size_t end = next_marker(word, n, i);
        MT_TRY(encode_cached(m, st, word + i, end - i, readable - i, out, err));
        i = end;
    }
    return MT_OK;
}

mt_rc mt_word_model_state_init(mt_word_model_state *st, mt_err *err)
{
    *st = (mt_word_model_state){ .cache = mt_calloc(1, sizeof(mt_word_cache)) };
    return st->cache ? MT_OK : mt_no_memory(err, "a tokenizer's cache");
}

void mt_word_model_state_deinit(mt_word_model_state *st)
{
    mt_free(st->cache);
    mt_free(st->symbols);
    mt_free(st->heap);
    mt_free(st->best);
    mt_free(st->piece);
    *st = (mt_word_model_state){ 0 };
}

void mt_word_model_deinit(mt_word_model *m)
{
    mt_vocab_deinit(&m->vocab);
    mt_trie_deinit(&m->user_defined);
    mt_bpe_deinit(&m->bpe);
    mt_unigram_deinit(&m->unigram);
    mt_free(m->wordpiece.prefix);
    mt_trie_deinit(&m->wordpiece.trie);
}

bool mt__all_bytes_known(const int32_t byte_ids[256], const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (byte_ids[(uint8_t)s[i]] < 0) return false;
    return true;
}

void mt__find_byte_tokens(const mt_vocab *vocab, int32_t byte_ids[256])
{
    static const char hex[] = "0123456789ABCDEF";
    for (int b = 0; b < 256; b++) {
        char name[] = { '<', '0', 'x', hex[b >> 4], hex[b & 15], '>' };
        byte_ids[b] = mt_vocab_id(vocab, name, sizeof name);
    }
}
