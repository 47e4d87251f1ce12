/* pretokenize.h - cutting normalized text into the words a model works on.
 *
 * A list of steps, each turning spans of a text into more spans; two of them (Metaspace, ByteLevel) also
 * rewrite the text.  Built while a tokenizer is opened, read-only afterwards; buffers belong to the calling
 * thread's mt_pretok_state. */
#ifndef MT_TOKENIZER_PRETOKENIZE_H
#define MT_TOKENIZER_PRETOKENIZE_H

#include "base/value.h"
#include "tokenizer/regex.h"
#include "tokenizer/scan.h"
#include "tokenizer/text.h"

typedef enum mt_pretok_kind {
    MT_PRETOK_SPLIT,  /* by a known pattern, a regular expression or a literal */
    MT_PRETOK_SPACES, /* WhitespaceSplit */
    MT_PRETOK_WORDS,  /* Whitespace: \w+|[^\w\s]+ */
    MT_PRETOK_PUNCT,  /* Punctuation, and half of Bert's */
    MT_PRETOK_DIGITS,
    MT_PRETOK_SCRIPTS,
    MT_PRETOK_FIXED, /* FixedLength */
    MT_PRETOK_METASPACE,
    MT_PRETOK_BYTE_LEVEL,
} mt_pretok_kind;

typedef enum mt_split_behavior {
    MT_SPLIT_REMOVED,
    MT_SPLIT_ISOLATED,
    MT_SPLIT_MERGED_PREVIOUS,
    MT_SPLIT_MERGED_NEXT,
    MT_SPLIT_CONTIGUOUS,
} mt_split_behavior;

typedef enum mt_prepend { MT_PREPEND_ALWAYS, MT_PREPEND_FIRST, MT_PREPEND_NEVER } mt_prepend;

typedef struct mt_pretok_step {
    mt_pretok_kind kind;
    mt_split_behavior behavior;
    bool invert;
    mt_scan_fn scan; /* SPLIT: one of these three; also BYTE_LEVEL with its own pattern */
    mt_regex *re;
    char *text; /* owned; METASPACE: the replacement for a space */
    size_t n_text;
    size_t length;      /* FIXED: characters */
    mt_prepend prepend; /* METASPACE */
    bool split;         /* METASPACE */
    bool prefix_space;  /* BYTE_LEVEL */
    bool raw;           /* BYTE_LEVEL: leave bytes as they are, the model's vocabulary was translated instead */
} mt_pretok_step;

typedef struct mt_pretokenizer {
    mt_pretok_step *steps;
    size_t n, cap;
} mt_pretokenizer;

typedef struct mt_word {
    uint32_t start, end;
} mt_word;

typedef struct mt_words {
    mt_word *items;
    size_t n, cap;
} mt_words;

typedef struct mt__mark { /* a piece of a span, matched or between matches */
    uint32_t start, end;
    bool match;
} mt__mark;

typedef struct mt_pretok_state {
    mt_text text[2];
    mt_words spans[2];
    mt__mark *marks;
    size_t n_marks, cap_marks;
    mt_regex_state *regex;
} mt_pretok_state;

/* From the "pre_tokenizer" of a tokenizer.json (NULL or null: no steps). */
mt_rc mt_pretokenizer_parse(mt_pretokenizer *out, const mt_value *v, const char *what, mt_err *err);
mt_rc mt_pretokenizer_push(mt_pretokenizer *pt, mt_pretok_kind kind, mt_pretok_step **out, mt_err *err);
void mt_pretokenizer_deinit(mt_pretokenizer *pt);

/* *text may become a view of the state's buffers; *words are spans of it, never empty, valid until the next call. */
mt_rc mt_pretokenizer_apply(const mt_pretokenizer *pt, const mt_unicode *uc, mt_pretok_state *st, bool tracked, mt_view *text,
                            const mt_words **words, mt_err *err);
void mt_pretok_state_deinit(mt_pretok_state *st);

#endif
