/* regex.h - Oniguruma with our errors.  A compiled expression is immutable and shared by threads; each
 * thread brings its own mt_regex_state.  Expressions come from files and may backtrack without end: the attempts of
 * all searches in one text are counted, and too many for its length are an error. */
#ifndef MT_TOKENIZER_REGEX_H
#define MT_TOKENIZER_REGEX_H

#include "base/mem.h"

typedef struct mt_regex mt_regex;
typedef struct mt_regex_state mt_regex_state;

mt_rc mt_regex_create(mt_regex **out, const char *pattern, size_t n, mt_err *err);
void mt_regex_free(mt_regex *re);

mt_rc mt_regex_state_create(mt_regex_state **out, mt_err *err);
void mt_regex_state_free(mt_regex_state *st);
/* The searches that follow are for one text of n bytes (in any pieces). */
void mt_regex_state_begin(mt_regex_state *st, size_t n);

/* The first match at or after `from`: *found, and its bytes [*start, *end). */
mt_rc mt_regex_find(const mt_regex *re, mt_regex_state *st, const char *s, size_t n, size_t from, bool *found, size_t *start,
                    size_t *end, mt_err *err);

/* Before the first expression is compiled (regex_classes.c); any number of times. */
mt_rc mt__regex_pin_classes(mt_err *err);

#endif
