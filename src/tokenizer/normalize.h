/* normalize.h - the first thing that happens to text: a list of rewriting steps.
 *
 * Nested sequences of the file become one flat list.  Built while a tokenizer is opened, read-only afterwards;
 * the buffers steps write to belong to the calling thread's mt_norm_state. */
#ifndef MT_TOKENIZER_NORMALIZE_H
#define MT_TOKENIZER_NORMALIZE_H

#include "base/value.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

typedef enum mt_norm_kind {
    MT_NORM_NFC,
    MT_NORM_NFD,
    MT_NORM_NFKC,
    MT_NORM_NFKD,
    MT_NORM_LOWERCASE,
    MT_NORM_REPLACE,
    MT_NORM_PREPEND,
    MT_NORM_APPEND,
    MT_NORM_STRIP,
    MT_NORM_STRIP_ACCENTS,
    MT_NORM_NMT,
    MT_NORM_PRECOMPILED,
    MT_NORM_BERT_CLEAN,
    MT_NORM_BERT_CJK,
    MT_NORM_BERT_ACCENTS,
    MT_NORM_BYTE_LEVEL,
    MT_NORM_SPM, /* all of SentencePiece's normalizer: charsmap, white space, dummy prefix (spm.c makes it) */
} mt_norm_kind;

typedef struct mt_norm_step {
    mt_norm_kind kind;
    char *pattern, *content; /* REPLACE: what (NULL: use re) and by what; PREPEND and APPEND: content; owned */
    size_t n_pattern, n_content;
    mt_regex *re;
    bool left, right; /* STRIP: which ends */
    mt_charsmap charsmap;
    bool dummy_prefix, remove_extra, escape; /* SPM */
    const struct mt_trie *user_defined;      /* SPM: pieces the charsmap must leave alone; borrowed from the tokenizer */
} mt_norm_step;

typedef struct mt_normalizer {
    mt_norm_step *steps;
    size_t n, cap;
} mt_normalizer;

typedef struct mt_norm_state {
    mt_text text[2]; /* steps write to them in turn */
    mt_regex_state *regex;
} mt_norm_state;

/* From the "normalizer" of a tokenizer.json (NULL or null: no steps). */
mt_rc mt_normalizer_parse(mt_normalizer *out, const mt_value *v, const char *what, mt_err *err);
/* Room for one more step, zeroed. */
mt_rc mt_normalizer_push(mt_normalizer *nz, mt_norm_kind kind, mt_norm_step **out, mt_err *err);
void mt_normalizer_deinit(mt_normalizer *nz);

/* *text becomes the normalized text: itself if nothing changed, or a view of the state's buffers. */
mt_rc mt_normalizer_apply(const mt_normalizer *nz, const mt_unicode *uc, mt_norm_state *st, bool tracked, mt_view *text,
                          mt_err *err);

/* The steps that need more than a few lines: normal forms (normal_forms.c) and SentencePiece's (spm_normalize.c).
 * Each returns false when `in` is already as it should be and nothing was written. */
bool mt__normal_form(mt_norm_kind form, const mt_unicode *uc, const mt_view *in, mt_text *out);
bool mt__spm_normalize(const mt_norm_step *step, const mt_view *in, mt_text *out);

#endif
