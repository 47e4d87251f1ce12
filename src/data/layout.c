#include "data/layout.h"

#include "base/rng.h"

#include <string.h>

mt_record_layout mt_record_layout_default(mt_formatting formatting)
{
    mt_record_layout l = { .formatting = formatting,
                           .system = "system",
                           .text = "text",
                           .role_tag = "from",
                           .content_tag = "value",
                           .user_tag = "human",
                           .assistant_tag = "gpt",
                           .observation_tag = "observation",
                           .function_tag = "function_call",
                           .system_tag = "system" };
    if (formatting == MT_FORMATTING_ALPACA) {
        l.prompt = "instruction";
        l.query = "input";
        l.response = "output";
    } else if (formatting == MT_FORMATTING_SHAREGPT) {
        l.messages = "conversations";
    } else {
        l.messages = "messages";
        l.messages_too = "conversations";
        l.tools = "tools";
        l.role_tag = "role";
        l.content_tag = "content";
        l.user_tag = "user";
        l.assistant_tag = "assistant";
        l.observation_tag = "tool";
    }
    return l;
}

mt_record_layout mt_record_layout_direct(const char *query_field, const char *response_field)
{
    mt_record_layout l = mt_record_layout_default(MT_FORMATTING_ALPACA);
    l.direct = true;
    l.prompt = query_field;
    l.query = NULL;
    l.response = response_field;
    return l;
}

static bool layout_has(const mt_value *record, const char *column) { return column && mt_value_get(record, column); }

bool mt_record_layout_is_text(const mt_record_layout *l, const mt_value *record)
{
    if (l->text_only) return true;
    bool alpaca = l->formatting == MT_FORMATTING_ALPACA;
    return layout_has(record, l->text) && !layout_has(record, alpaca ? l->prompt : l->messages) &&
           !layout_has(record, alpaca ? l->response : l->messages_too);
}

uint64_t mt_record_layout_hash(const mt_record_layout *l, uint64_t seed)
{
    const char *const names[] = { l->prompt,        l->query,           l->response,     l->history,
                                  l->messages,      l->messages_too,    l->system,       l->tools,
                                  l->text,          l->role_tag,        l->content_tag,  l->user_tag,
                                  l->assistant_tag, l->observation_tag, l->function_tag, l->system_tag,
                                  l->ids,           l->labels };
    uint64_t h = mt_hash(&l->formatting, sizeof l->formatting, seed);
    h = mt_hash(&l->text_only, sizeof l->text_only, h);
    h = mt_hash(&l->named, sizeof l->named, h);
    h = mt_hash(&l->usual_roles, sizeof l->usual_roles, h);
    for (size_t i = 0; i < MT_COUNT(names); i++) h = names[i] ? mt_hash(names[i], strlen(names[i]), h + 1) : h * 31 + 7;
    return h;
}
