/* layout.h - where a dataset's records keep questions and answers: columns, tags, formatting.
 *
 * The names are LLaMA-Factory's.  A column that is NULL is not read.  Strings are borrowed from the layout's maker (a registry, a
 * caller), who keeps them valid. */
#ifndef MT_DATA_LAYOUT_H
#define MT_DATA_LAYOUT_H

#include "base/value.h"

typedef enum mt_formatting { MT_FORMATTING_ALPACA, MT_FORMATTING_SHAREGPT, MT_FORMATTING_OPENAI, MT_FORMATTINGS } mt_formatting;

typedef struct mt_record_layout {
    mt_formatting formatting;
    bool direct; /* a path of the user's own: messages speak of query_field and response_field */
    bool named;  /* the user named the columns to read: others may hold anything */

    /* columns: alpaca */
    const char *prompt, *query, *response, *history;
    /* columns: sharegpt, openai */
    const char *messages;
    const char *messages_too; /* the column that is read where `messages` is absent */
    /* columns: all */
    const char *system, *tools;
    const char *text;         /* plain text: read where neither prompt nor messages are there */
    bool text_only;           /* every record is plain text: set it for .txt files, too */
    const char *ids, *labels; /* records that are tokens already; a record without labels trains every token */

    /* keys and roles of a message */
    const char *role_tag, *content_tag;
    const char *user_tag, *assistant_tag, *observation_tag, *function_tag, *system_tag;
    bool usual_roles; /* found in the data: the user, the assistant and tools may have any of their usual names */
} mt_record_layout;

/* These names, the usual one first; NULL-terminated. */
extern const char *const mt_user_names[], *const mt_assistant_names[], *const mt_tool_names[];

/* What LLaMA-Factory reads when dataset_info.json names no columns and no tags. */
mt_record_layout mt_record_layout_default(mt_formatting formatting);
/* MegaTrain's own: one column asks, one answers. */
mt_record_layout mt_record_layout_direct(const char *query_field, const char *response_field);

/* Room for a layout in words: a column of the user's data may be named there. */
enum { MT_LAYOUT_WORDS = 256 };
/* Columns whose name says that they hold what is not trained on yet. */
typedef struct mt_untrained_column {
    const char *name, *why;
    bool media; /* pictures and sound, for which a text may have a mark such as <image> */
} mt_untrained_column;
extern const mt_untrained_column mt_untrained_columns[];
extern const size_t mt_n_untrained_columns;
/* MT_EUNSUPPORTED: this record holds what is not trained on yet, in a column that would be ignored: pictures or sound, a worse
 * answer, a label that the answer is not wanted.  Call it for every record.  (layout_detect.c) */
mt_rc mt_record_layout_check(const mt_record_layout *layout, const mt_value *record, mt_err *err);

/* How a record of the user's own is laid out, from its columns, and that in words.  MT_EUNSUPPORTED: what it holds is not
 * trained on; MT_EFORMAT: no layout that is known.  (layout_detect.c) */
mt_rc mt_record_layout_detect(mt_record_layout *out, char words[MT_LAYOUT_WORDS], const mt_value *record, mt_err *err);

/* True if this record is a document for pre-training and not a conversation. */
bool mt_record_layout_is_text(const mt_record_layout *layout, const mt_value *record);

/* One number for everything above. */
uint64_t mt_record_layout_hash(const mt_record_layout *layout, uint64_t seed);

#endif
