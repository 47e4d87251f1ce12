/* templates.h - built-in chat templates, by the names LLaMA-Factory uses.
 *
 * A name stands for a form or for a family of models.  A form (chatml, alpaca) takes the place of the model's own template, as
 * in LLaMA-Factory.  A family (qwen, llama3) is for models that have no template: where the model's own writes turns in this
 * way, the model's own is used, which also knows tools and thoughts. */
#ifndef MT_DATA_TEMPLATES_H
#define MT_DATA_TEMPLATES_H

#include "tokenizer/tokenizer.h"

typedef struct mt_template {
    const char *name;
    const char *aliases;   /* more names, with a space around each; NULL: none */
    const char *tokens[6]; /* special tokens it writes, besides bos_token and eos_token */
    const char *text;      /* Jinja */
    bool form;             /* it takes the place of the model's own template */
    const char *differs;   /* how its text is not LLaMA-Factory's of that name, as one clause; NULL: it is */
    const char *thought;   /* what opens a thought, for models that think; NULL: they do not */
} mt_template;

/* NULL: no such name. */
const mt_template *mt_template_find(const char *name);
/* All of them, i from 0; NULL past the last. */
const mt_template *mt_template_at(size_t i);
/* What the models of a name are that LLaMA-Factory knows and that stands for no template here; NULL: it is not such a name. */
const char *mt_template_foreign(const char *name);
/* For messages: the known name closest to this one in `near`, or "".  Its digits are the same: others are another family's. */
void mt_template_nearest(const char *name, char near[64]);

/* The first special token of t that the tokenizer does not have; NULL: all are there. */
const char *mt_template_lacks(const mt_template *t, const mt_tokenizer *tok);

/* Make one token each of the marks of the template `name` (NULL, "" and unknown names: none) that the vocabulary has as ordinary
 * tokens: a base model whose chat model has them as special ones (Yi).  Only before the tokenizer is shared. */
mt_rc mt_template_adopt(const char *name, mt_tokenizer *tok, mt_err *err);

/* "Human: ...", "Assistant: ...", ended by eos: needs no special token but that one. */
extern const mt_template mt_template_plain;

#endif
