/* vocab.h - tokens and their ids, both ways.
 *
 * Filled once while a tokenizer is opened, read-only afterwards.  Token bytes are copied into the
 * vocabulary's own arena.  Ids come from files: a number far beyond the count of tokens is refused, so that
 * no file can make the id table huge. */
#ifndef MT_TOKENIZER_VOCAB_H
#define MT_TOKENIZER_VOCAB_H

#include "base/arena.h"

typedef struct mt_vocab_token {
    const char *s; /* NUL-terminated, may hold NULs; in the arena */
    uint32_t n;
    int32_t id;
} mt_vocab_token;

typedef struct mt_vocab {
    mt_arena arena;
    mt_vocab_token *tokens; /* in the order they were added */
    size_t n, cap;
    uint32_t *slots; /* open addressing: index into tokens + 1, 0 is empty */
    size_t n_slots;  /* a power of two */
    uint32_t *by_id; /* index into tokens + 1 */
    size_t n_ids;    /* largest id + 1 */
    size_t longest;  /* bytes of the longest token */
} mt_vocab;

/* Room for n tokens, so that adding them does not rehash. */
mt_rc mt_vocab_reserve(mt_vocab *v, size_t n, mt_err *err);
/* Add a token; one that is there already is known by the new id from now on, and both ids lead to it. */
mt_rc mt_vocab_add(mt_vocab *v, const char *s, size_t n, int64_t id, mt_err *err);
/* Build the table from ids to tokens; call once, after the last add. */
mt_rc mt_vocab_finish(mt_vocab *v, const char *what, mt_err *err);
void mt_vocab_deinit(mt_vocab *v);

/* The id of a token, -1 if there is none. */
int32_t mt_vocab_id(const mt_vocab *v, const char *s, size_t n);
/* The token of an id, NULL if there is none. */
const mt_vocab_token *mt_vocab_at(const mt_vocab *v, int64_t id);

#endif
