/* tools_text.c - tools and calls as plain text, for templates that know neither: LLaMA-Factory's default tool format.
 *
 * LLaMA-Factory trains this format wherever a template has no tool format, so its data and models mean the same here. */
#include "data/messages.h"

#include <string.h>

static const mt_value *text_of(const mt_value *map, const char *key)
{
    const mt_value *v = mt_value_get(map, key);
    return v && v->type == MT_VALUE_STR && v->str.n ? v : NULL;
}

/* A text as it is, anything else as JSON; absent: nothing. */
static void tools_text_put(mt_str *out, const mt_value *v)
{
    if (v && v->type == MT_VALUE_STR)
        mt_str_add(out, v->str.s, v->str.n);
    else if (v && v->type != MT_VALUE_NULL)
        mt_value_write_json(out, v);
}

static bool is_required(const mt_value *parameters, const mt_pair *p)
{
    const mt_value *list = mt_value_get(parameters, "required");
    for (size_t i = 0; list && list->type == MT_VALUE_LIST && i < list->list.n; i++) {
        const mt_value *name = &list->list.items[i];
        if (name->type == MT_VALUE_STR && name->str.n == p->key_n && !memcmp(name->str.s, p->key, p->key_n)) return true;
    }
    return false;
}

static void put_choices(mt_str *out, const mt_value *list)
{
    if (!list || list->type != MT_VALUE_LIST || !list->list.n) return;
    mt_str_puts(out, ", should be one of [");
    for (size_t i = 0; i < list->list.n; i++) {
        if (i) mt_str_puts(out, ", ");
        tools_text_put(out, &list->list.items[i]);
    }
    mt_str_puts(out, "]");
}

/* "  - city (string, required): its name, should be one of [a, b]" */
static void put_parameter(mt_str *out, const mt_value *parameters, const mt_pair *p)
{
    const mt_value *items = mt_value_get(&p->value, "items");
    mt_str_printf(out, "  - %.*s (", (int)p->key_n, p->key);
    tools_text_put(out, mt_value_get(&p->value, "type"));
    mt_str_printf(out, "%s): ", is_required(parameters, p) ? ", required" : "");
    tools_text_put(out, text_of(&p->value, "description"));
    put_choices(out, mt_value_get(&p->value, "enum"));
    if (items && items->type == MT_VALUE_MAP && items->map.n) {
        mt_str_puts(out, ", where each item should be ");
        tools_text_put(out, mt_value_get(items, "type"));
    }
    mt_str_putc(out, '\n');
}

static const mt_value *function_of(const mt_value *tool)
{
    const mt_value *f = mt_value_get(tool, "function");
    return f && f->type == MT_VALUE_MAP ? f : tool;
}

static void put_tool(mt_str *out, const mt_value *f)
{
    const mt_value *parameters = mt_value_get(f, "parameters"), *all = mt_value_get(parameters, "properties");
    mt_str_puts(out, "> Tool Name: ");
    tools_text_put(out, text_of(f, "name"));
    mt_str_puts(out, "\nTool Description: ");
    tools_text_put(out, text_of(f, "description"));
    mt_str_puts(out, "\nTool Args:\n");
    for (size_t i = 0; all && all->type == MT_VALUE_MAP && i < all->map.n; i++)
        put_parameter(out, parameters, &all->map.pairs[i]);
    mt_str_putc(out, '\n');
}

void mt__tools_write(mt_str *out, const mt_value *tools)
{
    mt_str_puts(out, "You have access to the following tools:\n");
    for (size_t i = 0; i < tools->list.n; i++) put_tool(out, function_of(&tools->list.items[i]));
    mt_str_puts(out, "Use the following format if using a tool:\n```\nAction: tool name (one of [");
    for (size_t i = 0; i < tools->list.n; i++) {
        if (i) mt_str_puts(out, ", ");
        tools_text_put(out, text_of(function_of(&tools->list.items[i]), "name"));
    }
    mt_str_puts(out, "])\nAction Input: the input to the tool, in a JSON format representing the kwargs "
                     "(e.g. ```{\"input\": \"hello world\", \"num_beams\": 5}```)\n```\n");
}

void mt__calls_write(mt_str *out, const mt_value *calls)
{
    for (size_t i = 0; i < calls->list.n; i++) {
        const mt_value *f = function_of(&calls->list.items[i]);
        mt_str_puts(out, i ? "\nAction: " : "Action: ");
        tools_text_put(out, text_of(f, "name"));
        mt_str_puts(out, "\nAction Input: ");
        tools_text_put(out, mt_value_get(f, "arguments"));
    }
}

/* ---- the conversation ---- */

static mt_rc tools_text_keep(const mt_chat_reader *r, mt_str *text, mt_value *out)
{
    *out = mt_value_str(r->a, text->n ? text->s : "", text->n);
    bool ok = mt_str_ok(text) && out->type == MT_VALUE_STR;
    mt_str_free(text);
    return ok ? MT_OK : mt_no_memory(r->err, "a record");
}

/* What was said, then the calls. */
static mt_rc flatten_calls(const mt_chat_reader *r, mt_message *m)
{
    mt_str text = { 0 };
    tools_text_put(&text, &m->content);
    if (text.n && text.s[text.n - 1] != '\n') mt_str_putc(&text, '\n');
    mt__calls_write(&text, &m->calls);
    m->calls = (mt_value){ .type = MT_VALUE_NULL };
    return tools_text_keep(r, &text, &m->content);
}

/* What several tools returned at once is one turn. */
static mt_rc append_result(const mt_chat_reader *r, mt_message *to, const mt_message *m)
{
    mt_str text = { 0 };
    tools_text_put(&text, &to->content);
    mt_str_putc(&text, '\n');
    tools_text_put(&text, &m->content);
    return tools_text_keep(r, &text, &to->content);
}

mt_rc mt__chat_flatten(const mt_chat_reader *r, mt_chat *chat, mt_value *system)
{
    size_t n = 0;
    bool after_tool = false;
    for (size_t i = 0; i < chat->n; i++) {
        mt_message *m = &chat->items[i];
        bool tool = m->role == MT_ROLE_TOOL;
        if (m->calls.type == MT_VALUE_LIST) MT_TRY(flatten_calls(r, m));
        if (tool) *m = (mt_message){ .role = MT_ROLE_USER, .content = m->content };
        if (tool && after_tool)
            MT_TRY(append_result(r, &chat->items[n - 1], m));
        else
            chat->items[n++] = *m;
        after_tool = tool;
    }
    chat->n = n;
    chat->flattened = true;
    if (chat->tools.type != MT_VALUE_LIST) return MT_OK;
    mt_str text = { 0 };
    tools_text_put(&text, system);
    mt__tools_write(&text, &chat->tools);
    chat->tools = (mt_value){ .type = MT_VALUE_NULL };
    return tools_text_keep(r, &text, system);
}
