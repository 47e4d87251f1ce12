/* sampler_impl.h - shared by sampler.c, chat_mask.c and chat_end.c only. */
#ifndef MT_DATA_SAMPLER_IMPL_H
#define MT_DATA_SAMPLER_IMPL_H

#include "data/messages.h"
#include "data/sampler.h"
#include "jinja/jinja.h"

struct mt_sampler {
    const mt_tokenizer *tok; /* borrowed */
    mt_record_layout layout; /* its strings are borrowed */
    mt_sampler_config config;
    mt_chat_rules rules;
    mt_jinja *chat;     /* the template */
    mt_jinja *tool_use; /* the one for records with tools, where the model has two; else NULL */
    const char *template_name;
    bool own_template;               /* the model's */
    const struct mt_template *named; /* what dataset.template names, though the model's own may be used; NULL: it names none */
    char *template_text, *tool_use_text; /* the latter NULL where there is one */
    const char *end;                     /* how an answer ends: white space and the end-of-turn token; "": nothing does */
    size_t n_end;
    bool ended_by_next; /* it is the next turn's header that ends an answer */
    const char *header; /* what opens an answer where the template knows no generation prompt; "": nothing, or it does */
    size_t n_header;
    const char *calls_end; /* what must follow calls that the template leaves open; "": it ends them as it ends answers */
    size_t n_calls_end;
    const char *thought; /* what gives an answer without a thought an empty one; "": nothing does */
    size_t n_thought;
    bool thought_in_prompt; /* it belongs to the prompt and is not learned */
    bool opens_thought;     /* the generation prompt opens a thought */
    mt_pair *variables;     /* for the template: special tokens and template_kwargs */
    size_t n_variables;
    struct tm now;
    mt_str notice, remark;
    uint64_t fingerprint;
    mt_arena arena; /* owns the strings above */
};

typedef struct mt__span {
    size_t begin, end; /* bytes of the text, or tokens */
} mt__span;

struct mt_sampler_scratch {
    mt_arena arena;  /* the conversation */
    mt_arena render; /* jinja's */
    mt_str full, prompt, turn, text;
    mt_jinja_spans blocks; /* {% generation %} blocks of the last rendering */
    mt__span *spans;       /* the trained parts of `full` or `text` */
    size_t n_spans, cap_spans;
    mt_tok_scratch *tok;
    mt_tokens tokens, part;
    mt_tokens kept;   /* of the last sample of a conversation, uncut: the next answer may continue it */
    mt_pair *context; /* room for a template's variables */

    /* the samples so far */
    int32_t *ids, *labels;
    size_t n_ids, cap_ids, cap_labels;
    mt_str texts;
    struct mt__sample_place {
        size_t ids, n, text, n_text, n_uncut;
    } * places;
    size_t n_places, cap_places;
    mt_sample *samples;
    size_t cap_samples;
};

/* The first n messages, with or without the generation prompt, into out (emptied first); blocks of the rendering into w->blocks.
 * A refusal by the template is MT_EFORMAT with *reason set. */
mt_rc mt__chat_render(const mt_sampler *s, mt_sampler_scratch *w, const mt_chat *chat, size_t n, bool generation_prompt,
                      mt_str *out, mt_reason *reason, mt_err *err);

/* Samples of a conversation, by mt__sample_add. */
mt_rc mt__chat_mask(const mt_sampler *s, mt_sampler_scratch *w, const mt_chat *chat, mt_reason *reason, mt_oddities *odd,
                    mt_err *err);

/* w->tokens, made from `text` and trained where token_spans say: cut to length as `overlong` says (AUTO: truncated) and kept.
 * *fits false: nothing of it can be trained. */
mt_rc mt__sample_add(const mt_sampler *s, mt_sampler_scratch *w, const mt_str *text, const mt__span *token_spans, size_t n_spans,
                     mt_overlong overlong, bool *fits, mt_oddities *odd, mt_err *err);

/* chat_end.c: find out how answers end (s->end). */
mt_rc mt__chat_find_end(mt_sampler *s, mt_sampler_scratch *w, mt_err *err);
/* ... the form in which it shows calls (s->rules.calls_as_text, calls_beside_null) ... */
mt_rc mt__chat_find_call_form(mt_sampler *s, mt_sampler_scratch *w, mt_err *err);
/* ... how it opens one, where it does not do so for a generation prompt (s->header) ... */
mt_rc mt__chat_find_header(mt_sampler *s, mt_sampler_scratch *w, mt_err *err);
/* ... how calls end where the template does not end them (s->calls_end) ... */
mt_rc mt__chat_find_calls_end(mt_sampler *s, mt_sampler_scratch *w, mt_err *err);
/* ... which parts of a record it has no place for (s->rules.no_system, tools_as_text, calls_as_actions,
 * no_thoughts) ... */
mt_rc mt__chat_find_places(mt_sampler *s, mt_sampler_scratch *w, mt_err *err);
/* ... and what becomes of answers without a thought (s->thought). */
mt_rc mt__chat_find_thought(mt_sampler *s, mt_sampler_scratch *w, mt_err *err);
/* True if an answer must be given an empty thought. */
bool mt__chat_owes_thought(const mt_sampler *s, const mt_message *m);
/* True if `other`, a template, writes turns as s->chat does: the text between two questions is the same but for white space. */
mt_rc mt__chat_same_form(const mt_sampler *s, mt_sampler_scratch *w, const char *other, bool *same, mt_err *err);
/* The end of the end-of-turn token that follows text[at..] after white space; 0: none follows. */
mt_rc mt__chat_end_after(const mt_sampler *s, mt_sampler_scratch *w, const mt_str *text, size_t at, size_t *out, mt_err *err);

#endif
