/* answers.h - generated tokens as text: printed as they come, or compared with the expected answers.
 *
 * Prompts are answered side by side but printed one after the other: the first unfinished one appears as it is generated, the
 * others when their turn comes. */
#ifndef MT_CLI_ANSWERS_H
#define MT_CLI_ANSWERS_H

#include "cli/prompts.h"
#include "engine/generate.h"

#include <stdio.h>

typedef struct mt_answer {
    int32_t *ids;
    size_t n, cap;
    mt_str text;    /* all of it */
    size_t printed; /* bytes */
    bool begun, done;
    bool ended; /* by a stop token, not at the length limit */
} mt_answer;

typedef struct mt_answers {
    const mt_asks *asks;     /* borrowed */
    const mt_tokenizer *tok; /* borrowed */
    FILE *out;               /* NULL: print nothing */
    bool on_terminal;        /* out is a terminal: control characters are escaped */
    mt_answer *items;        /* [asks->n] */
    size_t front;            /* index of the answer being printed */
} mt_answers;

mt_rc mt_answers_init(mt_answers *a, const mt_asks *asks, const mt_tokenizer *tok, FILE *out, mt_err *err);
/* mt_generate_options.on_token; user is the mt_answers. */
mt_rc mt_answers_take(void *answers, const mt_generated *token, mt_err *err);
/* Prints the number of correct answers by task, an example of each, and at most two wrong ones. */
void mt_answers_report(const mt_answers *a, mt_str *out);
/* Writes all of them with their prompts as JSON. */
void mt_answers_json(const mt_answers *a, const mt_generate_stats *stats, mt_str *out);
void mt_answers_deinit(mt_answers *a);

#endif
