/* regex.h - the regular expressions of tokenizers: Oniguruma's syntax and results, in work that is counted.
 *
 * Expressions come from files and may backtrack without end.  The matcher counts its steps, and each text may take a number of
 * them that grows with its length: past it a search fails with MT_ERANGE, the same on every machine.  Once *stop is true a search
 * fails with MT_ESTOPPED within milliseconds.
 *
 * regex_parse.c reads a pattern into a tree, regex_program.c turns that into instructions, regex.c runs them, regex_sets.c knows
 * the sets of characters.  test_regex.c compares all of it with Oniguruma.  Not supported, and refused with a message: what the
 * tokenizers that we know never use, such as references to groups, calls, conditions, absent groups and callouts.  Ignoring case,
 * a character equals single characters only (not sharp s and "ss"), and a group with an interval such as
 * {2,} may match nothing once and something the next time.
 *
 * A compiled expression is immutable and shared by threads; each thread brings its own mt_regex_state. */
#ifndef MT_TOKENIZER_REGEX_H
#define MT_TOKENIZER_REGEX_H

#include "base/mem.h"

#include <stdatomic.h>

typedef struct mt_regex mt_regex;
typedef struct mt_regex_state mt_regex_state;

mt_rc mt_regex_create(mt_regex **out, const char *pattern, size_t n, mt_err *err);
void mt_regex_free(mt_regex *re);

mt_rc mt_regex_state_create(mt_regex_state **out, mt_err *err);
void mt_regex_state_free(mt_regex_state *st);
/* stop: borrowed, may be NULL. */
void mt_regex_state_heed(mt_regex_state *st, const atomic_bool *stop);
/* The searches that follow are for one text of n bytes (in any pieces). */
void mt_regex_state_begin(mt_regex_state *st, size_t n);

/* The first match at or after `from`: *found, and its bytes [*start, *end).  s is valid UTF-8. */
mt_rc mt_regex_find(const mt_regex *re, mt_regex_state *st, const char *s, size_t n, size_t from, bool *found, size_t *start,
                    size_t *end, mt_err *err);

#endif
