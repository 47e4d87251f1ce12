/* model.h - the part of a tokenizer that turns one word into ids: BPE, Unigram, WordPiece or WordLevel.
 *
 * A model is filled while a tokenizer is opened and read-only afterwards.  mt_word_model_encode appends to the calling
 * thread's mt_pieces; its working memory and a cache of words seen lately are in that thread's mt_word_model_state. */
#ifndef MT_TOKENIZER_MODEL_H
#define MT_TOKENIZER_MODEL_H

#include "base/value.h"
#include "tokenizer/trie.h"
#include "tokenizer/vocab.h"

/* Ids, and for each the bytes of the word that it covers (they are contiguous). */
typedef struct mt_pieces {
    int32_t *ids;
    uint32_t *lens;
    size_t n, cap_ids, cap_lens;
} mt_pieces;

mt_rc mt_pieces_push(mt_pieces *p, int32_t id, size_t len, mt_err *err);
void mt_pieces_deinit(mt_pieces *p);

/* ---- BPE ---- */

typedef struct mt_merge {
    uint64_t pair; /* left id << 32 | right id; MT_MERGE_NONE: empty slot */
    uint32_t rank; /* lower merges first; equal ranks merge from the left */
    int32_t id;    /* of the joined token */
} mt_merge;
#define MT_MERGE_NONE UINT64_MAX

typedef struct mt_symbol {
    int32_t id;   /* a token, or one of the two below; MT_SYMBOL_FROZEN is set on those that never merge */
    uint32_t len; /* bytes of the word it covers */
    int32_t prev, next;
} mt_symbol;
enum {
    MT_SYMBOL_UNKNOWN = -1,
    MT_SYMBOL_MERGED = -2, /* into the one before it */
    MT_SYMBOL_FROZEN = 1 << 30,
};

typedef struct mt_bpe {
    mt_merge *merges; /* open addressing */
    size_t n_merges, n_slots;
    int shift;             /* 64 - log2(n_slots) */
    uint64_t factor;       /* base/hash.h */
    bool raw;              /* words are bytes, not text: byte_ids start the merging */
    int32_t byte_ids[256]; /* raw: token of each byte; else byte_fallback's "<0x..>" tokens; -1: none */
    int32_t *char_ids;     /* [65536] token of each character of the BMP, -1: none; NULL when raw */
    mt_vocab whole;        /* raw with ignore_merges: whole words as bytes; empty: the vocabulary is in bytes */
    char *prefix, *suffix; /* continuing_subword_prefix, end_of_word_suffix; NULL or owned */
    size_t n_prefix, n_suffix;
    int32_t unk_id; /* -1: unknown characters are left out */
    bool fuse_unk, byte_fallback, ignore_merges;
    bool spm;              /* SentencePiece: unknowns are looked at after merging; user-defined pieces are frozen */
    int32_t first_char_id; /* spm: ids from here on are single characters that only exist inside pieces */
    bool cut_at_marker;    /* no token crosses the start of a word marked by U+2581: longer text is cut there */
} mt_bpe;

mt_rc mt_bpe_parse(mt_bpe *bpe, const mt_value *model, const mt_vocab *vocab, bool raw, const char *what, mt_err *err);
/* For vocabularies without merges (tiktoken, SentencePiece): every way to cut a token into two others is a merge of
 * the token's rank. */
mt_rc mt_bpe_from_ranks(mt_bpe *bpe, const mt_vocab *vocab, const uint32_t *rank_of_id, bool raw, mt_err *err);
/* Tables over characters or bytes; call after the merges are in. */
mt_rc mt_bpe_finish(mt_bpe *bpe, const mt_vocab *vocab, mt_err *err);
void mt_bpe_deinit(mt_bpe *bpe);

/* ---- Unigram ---- */

typedef struct mt_unigram {
    double *scores; /* [n_scores] by id */
    size_t n_scores;
    mt_trie trie;
    double unk_score;
    int32_t unk_id; /* -1: none */
    bool byte_fallback;
    int32_t byte_ids[256];
    bool spm; /* scores add up in single precision, as SentencePiece does it */
} mt_unigram;

mt_rc mt_unigram_parse(mt_unigram *u, const mt_value *model, mt_vocab *vocab, const char *what, mt_err *err);
void mt_unigram_deinit(mt_unigram *u);
/* MT_ERANGE for a token that is too long. */
mt_rc mt__unigram_check_length(size_t n, const char *what, mt_err *err);

/* ---- WordPiece and WordLevel ---- */

typedef struct mt_wordpiece {
    char *prefix; /* before every piece but the first; NULL: WordLevel, only whole words */
    size_t n_prefix, max_chars;
    int32_t unk_id;
    mt_trie trie;   /* of all tokens; values are places in the vocabulary */
    uint32_t inner; /* the node that the prefix leads to, where pieces after the first begin */
    bool has_inner;
} mt_wordpiece;

mt_rc mt_wordpiece_parse(mt_wordpiece *w, const mt_value *model, const mt_vocab *vocab, bool whole_words, const char *what,
                         mt_err *err);

/* ---- any of them ---- */

typedef enum mt_word_model_kind {
    MT_WORD_MODEL_BPE,
    MT_WORD_MODEL_UNIGRAM,
    MT_WORD_MODEL_WORDPIECE,
    MT_WORD_MODEL_WORDLEVEL
} mt_word_model_kind;

typedef struct mt_word_model {
    mt_word_model_kind kind;
    mt_vocab vocab;
    mt_trie user_defined; /* spm: pieces matched whole wherever they stand */
    bool has_user_defined;
    mt_bpe bpe;
    mt_unigram unigram;
    mt_wordpiece wordpiece;
} mt_word_model;

typedef struct mt__best { /* Unigram: the best way to reach a byte of the word */
    double score;
    int32_t start, id;
} mt__best;

typedef struct mt__candidate { /* BPE: a merge that may happen */
    uint32_t rank;
    int32_t at, id;
} mt__candidate;

typedef struct mt_word_cache mt_word_cache;

typedef struct mt_word_model_state {
    mt_word_cache *cache;
    mt_symbol *symbols;
    size_t cap_symbols;
    mt__candidate *heap;
    size_t n_heap, cap_heap;
    mt__best *best;
    size_t cap_best;
    char *piece; /* a piece of a word with its prefix or suffix */
    size_t cap_piece;
} mt_word_model_state;

mt_rc mt_word_model_state_init(mt_word_model_state *st, mt_err *err);
void mt_word_model_state_deinit(mt_word_model_state *st);

/* Append the ids of one word; `readable` bytes follow word's start in memory (at least n), so that short words can
 * be loaded without a loop. */
mt_rc mt_word_model_encode(const mt_word_model *m, mt_word_model_state *st, const char *word, size_t n, size_t readable,
                           mt_pieces *out, mt_err *err);
void mt_word_model_deinit(mt_word_model *m);

/* The models that mt_word_model_encode uses. */
mt_rc mt__bpe_encode(const mt_word_model *m, mt_word_model_state *st, const char *word, size_t n, mt_pieces *out, mt_err *err);
mt_rc mt__unigram_encode(const mt_word_model *m, mt_word_model_state *st, const char *word, size_t n, mt_pieces *out,
                         mt_err *err);
mt_rc mt__wordpiece_encode(const mt_word_model *m, const char *word, size_t n, mt_pieces *out, mt_err *err);
/* SentencePiece's and byte_fallback's way out for unknown text: a token a byte if all exist. */
bool mt__all_bytes_known(const int32_t byte_ids[256], const char *s, size_t n);
/* The tokens "<0x00>" .. "<0xFF>" of a vocabulary, -1 where missing. */
void mt__find_byte_tokens(const mt_vocab *vocab, int32_t byte_ids[256]);

#endif
