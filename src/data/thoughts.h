/* thoughts.h - what a model thinks before it answers, as it stands in prompts and answers: <think> ... </think>. */
#ifndef MT_DATA_THOUGHTS_H
#define MT_DATA_THOUGHTS_H

#include "data/slice.h"

/* The answer without the opening of a thought that the prompt has opened already (or opened and closed, empty). */
mt_slice mt__undouble(mt_slice prompt, mt_slice answer);
/* The rest of an answer, after its thought. */
mt_slice mt__without_thought(mt_slice answer);
/* Skip an empty thought and the white space after it. */
mt_slice mt__skip_empty_thought(mt_slice t);

/* The same for what a template shows after the prompt, which may have opened that thought. */
mt_slice mt__skip_shown_thought(mt_slice prompt, mt_slice t);
/* True if the answer opens (closes) a thought anywhere. */
bool mt__opens_thought(mt_slice answer);
bool mt__closes_thought(mt_slice answer);
/* The prompt without the opening of a thought at its end. */
mt_slice mt__without_opening(mt_slice prompt);
/* The tag that opens a thought at the end of the text, perhaps with white space after it; NULL: none does. */
const char *mt__thought_open_at_end(mt_slice prompt);
/* True if the prompt ends in such a tag and nothing after it (DeepSeek-V3.1): the model puts no white space around thoughts. */
bool mt__thought_open_is_bare(mt_slice prompt);
/* A thought between `tag` and its counterpart, then the rest of the answer; `bare`: without white space around it. */
void mt__write_thought(mt_str *out, const char *tag, bool bare, mt_slice thought, mt_slice rest);
/* Complete an empty thought after the prompt, into out: the rest of one that the prompt opens; nothing if it ends in an empty
 * one already; else a whole one of the kind that `tag` opens (NULL: none). */
void mt__write_empty_thought(mt_str *out, mt_slice prompt, const char *tag);
/* The tag of an empty thought at the end of t; NULL: there is none. */
const char *mt__empty_thought_at_end(mt_slice t);

/* True if a thought is closed at the end of t, perhaps with white space after it. */
bool mt__closes_thought_at_end(mt_slice t);

#endif
