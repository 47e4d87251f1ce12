#include "api/chat.h"

#include <string.h>

static mt_pair pair(const char *key, mt_value value) { return (mt_pair){ .key = key, .key_n = strlen(key), .value = value }; }
static mt_value text_value(const char *s) { return (mt_value){ .type = MT_VALUE_STR, .str = { s ? s : "", s ? strlen(s) : 0 } }; }

mt_rc mt_chat_open(mt_sampler **out, const mt_tokenizer *tok, const char *instead, mt_err *err)
{
    size_t n;
    mt_record_layout layout = mt_record_layout_default(MT_FORMATTING_OPENAI);
    (void)mt_tokenizer_templates(tok, &n);
    if (!n)
        return mt_fail(err, MT_ENOENT,
                       "this model has no chat template (tokenizer_config.json, chat_template.jinja); %s to continue the text "
                       "as it is",
                       instead);
    return mt_sampler_open(out, tok, &layout, &(mt_sampler_config){ 0 }, err);
}

mt_rc mt_chat_encode_turns(const mt_sampler *asker, const char *system_text, const mt_value *turns, const mt_value *tools,
                           mt_tokens *out, mt_err *err)
{
    const mt_pair system[] = { pair("role", text_value("system")), pair("content", text_value(system_text)) };
    const size_t n = turns->list.n, skip = n && mt_value_is(mt_value_get(&turns->list.items[0], "role"), "system") ? 1 : 0;
    mt_value *all = mt_calloc(n + 1, sizeof *all);
    if (!all) return mt_no_memory(err, "a conversation");
    const mt_value *from = turns->list.items;
    mt_value list = *turns;
    if (system_text) {
        all[0] = (mt_value){ .type = MT_VALUE_MAP, .map = { system, 2 } };
        if (n > skip) memcpy(all + 1, from + skip, (n - skip) * sizeof *all);
        list.list.items = all;
        list.list.n = n - skip + 1;
    }
    const mt_pair both[] = { pair("messages", list), pair("tools", tools ? *tools : (mt_value){ .type = MT_VALUE_NULL }) };
    const mt_value record = { .type = MT_VALUE_MAP, .map = { both, 2 } };
    mt_sampler_scratch *scratch = NULL;
    const mt_sample *sample = NULL;
    mt_reason reason = MT_REASON_NONE;
    mt_rc rc = mt_sampler_scratch_create(&scratch, asker, err);
    if (!rc) rc = mt_sampler_prompt(asker, scratch, &record, &sample, &reason, err);
    if (!rc && reason != MT_REASON_NONE) rc = err->rc ? err->rc : mt_fail(err, MT_EINVAL, "%s", mt_reason_text(reason));
    if (!rc) rc = mt_grow(&out->ids, &out->cap_ids, (size_t)sample->n, sizeof *out->ids, err);
    if (!rc && sample->n) memcpy(out->ids, sample->ids, (out->n = (size_t)sample->n) * sizeof *out->ids);
    mt_sampler_scratch_free(scratch);
    mt_free(all);
    return rc;
}

mt_rc mt_chat_encode(const mt_sampler *asker, const char *system_text, const char *text, mt_tokens *out, mt_err *err)
{
    const mt_pair user[] = { pair("role", text_value("user")), pair("content", text_value(text)) };
    const mt_value turn = { .type = MT_VALUE_MAP, .map = { user, 2 } };
    const mt_value turns = { .type = MT_VALUE_LIST, .list = { &turn, 1 } };
    return mt_chat_encode_turns(asker, system_text, &turns, NULL, out, err);
}
