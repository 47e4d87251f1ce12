/* prompts.h - the prompts of a generation: their sources, and their token ids. */
#ifndef MT_CLI_PROMPTS_H
#define MT_CLI_PROMPTS_H

#include "base/value.h"
#include "tokenizer/tokenizer.h"

typedef struct mt_ask {
    const char *text;      /* what is asked, or in a conversation what is asked last; never NULL */
    const mt_value *turns; /* the conversation before the answer, as chat templates take it; NULL: text is all of it */
    const mt_value *tools; /* a list, or NULL */
    const char *expected;  /* the record's answer; NULL: none */
    const char *task;      /* the kind of task; NULL: not given */
    int32_t *ids;
    size_t n_ids;
    uint64_t stream; /* stream of random numbers: from the ids, and the number of earlier prompts with the same ids */
} mt_ask;

typedef struct mt_asks {
    mt_ask *items;
    size_t n, cap;
    mt_arena arena; /* owns every string and id */
} mt_asks;

/* Zero-initialize first.  Each call adds prompts. */
mt_rc mt_asks_add(mt_asks *a, const char *text, mt_err *err);
/* A data file or folder of any format that is trained on: records with a question, and with an answer if one is expected, or
 * conversations, whose last answer is expected.  JSON files may hold texts, too; any other file has a prompt on each line, as
 * has "-", standard input. */
mt_rc mt_asks_read(mt_asks *a, const char *path, mt_err *err);
/* All of standard input as one prompt. */
mt_rc mt_asks_read_stdin(mt_asks *a, mt_err *err);

typedef struct mt_asks_encoding {
    const mt_tokenizer *tok;
    bool chat;          /* through the tokenizer's chat template */
    const char *system; /* NULL: none */
} mt_asks_encoding;

/* Fills in ids and streams. */
mt_rc mt_asks_encode(mt_asks *a, const mt_asks_encoding *how, mt_err *err);
void mt_asks_free(mt_asks *a);

#endif
