/* messages.h - a record of any layout as a conversation: roles, contents, calls and tools as chat templates want them.
 *
 * What comes out follows transformers' conventions: maps with `role` (system, user, assistant, tool) and `content`;
 * an assistant's calls under `tool_calls` with their arguments parsed; tools as a list of {"type": "function", "function":
 * {...}}.  Keys that are null in the record are left out, and calls without text have the content "": many templates print a
 * null as the word None, or refuse it.
 *
 * The conversation is what will be answered and trained on: after an optional system turn the sides alternate, the
 * first is the user's, and the last is an answer.  Several tool turns may follow each other. */
#ifndef MT_DATA_MESSAGES_H
#define MT_DATA_MESSAGES_H

#include "data/layout.h"
#include "data/sampler.h"

typedef enum mt_chat_role { MT_ROLE_SYSTEM, MT_ROLE_USER, MT_ROLE_ASSISTANT, MT_ROLE_TOOL } mt_chat_role;

typedef struct mt_message {
    mt_chat_role role;
    mt_value content;        /* a string; empty where only calls are made */
    mt_value calls;          /* a list, or null */
    mt_value thought;        /* what the record has under reasoning_content, thinking or reasoning, or null */
    const char *thought_key; /* the one of them */
    mt_value id, name;       /* tool_call_id and name of a tool turn, or null */
    bool trained;            /* an answer that is learned */
} mt_message;

typedef struct mt_chat {
    mt_message *items;
    size_t n;
    const mt_value *maps; /* [n], what a template gets for each */
    mt_value tools;       /* a list, or null */
    bool cut_at_end;      /* turns without an answer were cut off */
    bool flattened;       /* tools and calls are written as text */
    size_t n_lost;        /* trained answers whose thought is left out: the template does not show it */
    size_t n_closed;      /* ... or the generation prompt has closed it */
} mt_chat;

typedef struct mt_chat_rules {
    const char *system_prompt;  /* replaces the system turn; "" or NULL: keep it */
    const char *default_system; /* fills in a missing one; "" or NULL: none */
    bool merge_turns;           /* join two turns of one side (with an empty line between) instead of refusing them, but not an
                                 * answer that is trained and one that is not */
    bool mask_history;          /* only the last answer is trained */
    bool calls_as_text;         /* arguments of calls as JSON text: what some templates want */
    bool calls_beside_null;     /* calls without text have the content null: a few templates show calls only then */
    bool as_is;                 /* take the turns as they are, in any order: to look at, not to train on */
    bool drop_thoughts;         /* leave out what answers think */
    bool prompt_closes_thought; /* ... as the generation prompt has closed it, which no variable requests: worth counting */
    bool no_thoughts;           /* the template shows no thought that has its own key */
    const char *thought_tag;    /* such a thought becomes a part of its answer's text, after this tag; NULL: it is left out */
    bool thought_bare;          /* ... and without white space around it */
    bool shows_empty;           /* ... before every answer the template writes an empty one: it gets answers without theirs */
    bool no_system;             /* the template takes no system turn */
    bool merge_system;          /* its text then goes in front of the first question; else only descriptions of tools do */
    bool tools_as_text;         /* the template shows no tools: a record that has some is written in plain turns (tools_text.c) */
    bool calls_as_actions;      /* ... and so is one that has calls, which the template does not show */
} mt_chat_rules;

/* Everything is made in the arena or borrowed from the record.  MT_OK with *reason != NONE: the record is bad and err->msg says
 * why. */
mt_rc mt_chat_read(mt_chat *out, mt_arena *a, const mt_record_layout *layout, const mt_chat_rules *rules, const mt_value *record,
                   mt_reason *reason, mt_err *err);

/* ---- parts of it (message_calls.c, tools_text.c) ---- */

/* What the helpers share.  A bad record is MT_EFORMAT with *reason set. */
typedef struct mt_chat_reader {
    mt_arena *a;
    mt_reason *reason;
    mt_err *err;
    bool calls_as_text;
} mt_chat_reader;

#define mt__chat_bad(r, why, ...) (*(r)->reason = (why), mt_fail((r)->err, MT_EFORMAT, __VA_ARGS__))

/* Calls in any of the usual spellings (JSON text, one map, a list; bare or under "function") to transformers' form. */
mt_rc mt__chat_calls(const mt_chat_reader *r, const mt_value *given, mt_value *out);
/* Tools likewise; null, "" and "[]" are none. */
mt_rc mt__chat_tools(const mt_chat_reader *r, const mt_value *given, mt_value *out);

/* The tools as LLaMA-Factory's default tool format describes them, and calls as it writes them ("Action: ..."), appended. */
void mt__tools_write(mt_str *out, const mt_value *tools);
void mt__calls_write(mt_str *out, const mt_value *calls);
/* A conversation with tools, calls and what tools returned in turns that any template has: calls are text of answers, what a tool
 * returned is what a user says, and the tools' description stands at the end of `system`. */
mt_rc mt__chat_flatten(const mt_chat_reader *r, mt_chat *chat, mt_value *system);

/* A map under construction: room for n pairs, each put once. */
typedef struct mt__map_maker {
    mt_pair *pairs;
    size_t n;
} mt__map_maker;
mt_rc mt__map_start(const mt_chat_reader *r, mt__map_maker *m, size_t room);
void mt__map_put(mt__map_maker *m, const char *key, mt_value v);
static inline mt_value mt__map_of(const mt_pair *pairs, size_t n)
{
    mt_value v = { .type = MT_VALUE_MAP };
    v.map.pairs = pairs;
    v.map.n = n;
    return v;
}
static inline mt_value mt__map_done(const mt__map_maker *m) { return mt__map_of(m->pairs, m->n); }
static inline mt_value mt__text_value(const char *s, size_t n)
{
    mt_value v = { .type = MT_VALUE_STR };
    v.str.s = s;
    v.str.n = n;
    return v;
}

#endif
