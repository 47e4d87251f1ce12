/* added.h - tokens that are found in text before anything else happens to it: "<|im_end|>" and its kind.
 *
 * Those with normalized = false are looked for in the text as given, the others in normalized text.  Found means: the
 * leftmost, then the longest; never overlapping. */
#ifndef MT_TOKENIZER_ADDED_H
#define MT_TOKENIZER_ADDED_H

#include "base/value.h"
#include "tokenizer/trie.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"

typedef struct mt_added_token {
    char *content; /* owned */
    size_t n;
    char *shown; /* what it decodes to: the content, normalized if it is looked for so; owned */
    size_t n_shown;
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
} mt_added_token;

typedef struct mt_added {
    mt_added_token *tokens;
    size_t n, cap;
    mt_vocab names; /* content to index */
    struct mt_added_id {
        int32_t id;
        uint32_t index;
    } * by_id;                 /* [n], sorted by id */
    mt_trie plain, normalized; /* values are indices into tokens */
    int32_t max_id;
} mt_added;

/* A stretch of text: plain, or an added token. */
typedef struct mt_segment {
    size_t start, end;
    int32_t token; /* index into tokens, -1: plain text */
} mt_segment;

typedef struct mt_segments {
    mt_segment *items;
    size_t n, cap;
} mt_segments;

/* Add a token (content is copied).  It keeps the id the model's vocabulary has for it, or gets `id`, or with id < 0
 * the next free one.  A token added twice keeps the later flags. */
mt_rc mt_added_add(mt_added *a, mt_added_token token, const mt_vocab *model, mt_err *err);
/* "added_tokens" of a tokenizer.json. */
mt_rc mt_added_parse(mt_added *a, const mt_value *list, const mt_vocab *model, const char *what, mt_err *err);
/* Build the tries, again after more were added; normalized_text[i] is token i's content normalized (used for those with normalized = true). */
mt_rc mt_added_finish(mt_added *a, const mt_value *normalized_text, mt_err *err);
void mt_added_deinit(mt_added *a);

const mt_added_token *mt_added_by_id(const mt_added *a, int32_t id);
const mt_added_token *mt_added_by_text(const mt_added *a, const char *s, size_t n);

/* Cut s into segments; which = &a->plain or &a->normalized. */
mt_rc mt_added_find(const mt_added *a, const mt_trie *which, const mt_unicode *uc, const char *s, size_t n, mt_segments *out,
                    mt_err *err);

#endif
