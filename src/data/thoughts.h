/* thoughts.h - what a model thinks before it answers, as it stands in prompts and answers: <think> ... </think>. */
#ifndef MT_DATA_THOUGHTS_H
#define MT_DATA_THOUGHTS_H

#include "data/slice.h"

/* The answer without the opening of a thought that the prompt has opened already (or opened and closed, empty). */
mt_slice mt__undouble(mt_slice prompt, mt_slice answer);
/* What is left of an answer behind its thought. */
mt_slice mt__without_thought(mt_slice answer);
/* Past a thought with nothing in it, and the white space behind. */
mt_slice mt__skip_empty_thought(mt_slice t);

#endif
