/* Tool calls and tool definitions as transformers' templates want them. */
#include "data/messages.h"

#include "base/rng.h"

#include <string.h>

mt_rc mt__map_start(const mt_chat_reader *r, mt__map_maker *m, size_t room)
{
    *m = (mt__map_maker){ .pairs = mt_arena_calloc(r->a, room, sizeof *m->pairs) };
    return m->pairs ? MT_OK : mt_no_memory(r->err, "a record");
}

void mt__map_put(mt__map_maker *m, const char *key, mt_value v)
{
    m->pairs[m->n++] = (mt_pair){ .key = key, .key_n = strlen(key), .value = v };
}

static bool is_blank(const mt_value *v)
{
    if (v->type != MT_VALUE_STR) return false;
    for (size_t i = 0; i < v->str.n; i++)
        if (!strchr(" \t\r\n", v->str.s[i])) return false;
    return true;
}

/* JSON text becomes what it says; anything else stays. */
static mt_rc parse_if_text(const mt_chat_reader *r, const char *what, mt_value *v)
{
    if (v->type != MT_VALUE_STR) return MT_OK;
    mt_err why = { 0 };
    mt_value parsed;
    mt_rc rc = mt_value_parse_json(&parsed, r->a, v->str.s, v->str.n, NULL, what, &why);
    if (rc == MT_ENOMEM) return mt_fail(r->err, rc, "%s", why.msg);
    if (rc) return mt__chat_bad(r, MT_REASON_BAD_CALL, "%s", why.msg);
    *v = parsed;
    return MT_OK;
}

/* Nine letters and digits, which is what the templates that show ids insist on; the same call gets the same id. */
static mt_rc make_id(const mt_chat_reader *r, const mt_value *function, size_t i, mt_value *out)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    mt_str s = { 0 };
    mt_value_write_json(&s, function);
    if (!mt_str_ok(&s)) return mt_no_memory(r->err, "a record");
    uint64_t h = mt_hash(s.s, s.n, i);
    mt_str_free(&s);
    char id[9];
    for (size_t k = 0; k < sizeof id; k++, h /= 62) id[k] = digits[h % 62];
    *out = mt_value_str(r->a, id, sizeof id);
    return out->type == MT_VALUE_STR ? MT_OK : mt_no_memory(r->err, "a record");
}

/* JSON text of arguments: the record's own where it has one. */
static mt_rc as_text(const mt_chat_reader *r, const mt_value *given, mt_value *args)
{
    if (given && given->type == MT_VALUE_STR && !is_blank(given)) {
        *args = *given;
        return MT_OK;
    }
    mt_str s = { 0 };
    mt_value_write_json(&s, args);
    *args = mt_value_str(r->a, s.n ? s.s : "", s.n);
    bool ok = mt_str_ok(&s) && args->type == MT_VALUE_STR;
    mt_str_free(&s);
    return ok ? MT_OK : mt_no_memory(r->err, "a record");
}

static mt_rc one_call(const mt_chat_reader *r, const mt_value *given, size_t i, mt_value *out)
{
    const mt_value *function = given->type == MT_VALUE_MAP ? mt_value_get(given, "function") : NULL;
    if (!function || function->type != MT_VALUE_MAP) function = given;
    const mt_value *name = mt_value_get(function, "name"), *arguments = mt_value_get(function, "arguments"),
                   *id = mt_value_get(given, "id");
    if (!name || name->type != MT_VALUE_STR || !name->str.n)
        return mt__chat_bad(r, MT_REASON_BAD_CALL, "a tool call has no \"name\"");
    if (!arguments) arguments = mt_value_get(function, "parameters");
    mt_value args = { .type = MT_VALUE_MAP };
    if (arguments && arguments->type != MT_VALUE_NULL && !is_blank(arguments)) args = *arguments;
    MT_TRY(parse_if_text(r, "arguments of a tool call", &args));
    if (args.type != MT_VALUE_MAP)
        return mt__chat_bad(r, MT_REASON_BAD_CALL, "the arguments of a call of \"%.*s\" should be an object and are %s",
                            (int)name->str.n, name->str.s, mt_value_type_name(&args));
    mt__map_maker f, call;
    mt_value call_id;
    MT_TRY(mt__map_start(r, &f, 2));
    MT_TRY(mt__map_start(r, &call, 3));
    mt__map_put(&f, "name", *name);
    mt__map_put(&f, "arguments", args);
    if (r->calls_as_text) MT_TRY(as_text(r, arguments, &f.pairs[1].value));
    mt_value f_value = mt__map_done(&f);
    if (id && id->type == MT_VALUE_STR && id->str.n)
        call_id = *id;
    else
        MT_TRY(make_id(r, &f_value, i, &call_id));
    mt__map_put(&call, "type", mt__text_value("function", 8));
    mt__map_put(&call, "id", call_id);
    mt__map_put(&call, "function", f_value);
    *out = mt__map_done(&call);
    return MT_OK;
}

/* `each` for every item of a list, or for the one value that stands for a list of one. */
static mt_rc map_list(const mt_chat_reader *r, const mt_value *v,
                      mt_rc (*each)(const mt_chat_reader *, const mt_value *, size_t, mt_value *), mt_value *out)
{
    const mt_value *from = v->type == MT_VALUE_LIST ? v->list.items : v;
    size_t n = v->type == MT_VALUE_LIST ? v->list.n : 1;
    mt_value *items = mt_arena_calloc(r->a, n, sizeof *items);
    if (!items) return mt_no_memory(r->err, "a record");
    for (size_t i = 0; i < n; i++) MT_TRY(each(r, &from[i], i, &items[i]));
    *out = (mt_value){ .type = MT_VALUE_LIST };
    out->list.items = items;
    out->list.n = n;
    return MT_OK;
}

mt_rc mt__chat_calls(const mt_chat_reader *r, const mt_value *given, mt_value *out)
{
    mt_value v = *given;
    *out = (mt_value){ .type = MT_VALUE_NULL };
    MT_TRY(parse_if_text(r, "tool call", &v));
    if (v.type == MT_VALUE_NULL || (v.type == MT_VALUE_LIST && !v.list.n)) return MT_OK;
    if (v.type != MT_VALUE_MAP && v.type != MT_VALUE_LIST)
        return mt__chat_bad(r, MT_REASON_BAD_CALL, "a tool call should be an object or a list of them and is %s",
                            mt_value_type_name(&v));
    return map_list(r, &v, one_call, out);
}

static mt_rc one_tool(const mt_chat_reader *r, const mt_value *given, size_t i, mt_value *out)
{
    mt_value v = *given; /* a list of JSON texts is seen, too */
    MT_TRY(parse_if_text(r, "tools", &v));
    if (v.type != MT_VALUE_MAP)
        return mt__chat_bad(r, MT_REASON_BAD_CALL, "tool %zu should be an object and is %s", i + 1, mt_value_type_name(&v));
    if (mt_value_get(&v, "function")) {
        *out = v;
        return MT_OK;
    }
    const mt_value *name = mt_value_get(&v, "name");
    if (!name || name->type != MT_VALUE_STR) return mt__chat_bad(r, MT_REASON_BAD_CALL, "tool %zu has no \"name\"", i + 1);
    mt__map_maker m;
    MT_TRY(mt__map_start(r, &m, 2));
    mt__map_put(&m, "type", mt__text_value("function", 8));
    mt__map_put(&m, "function", v);
    *out = mt__map_done(&m);
    return MT_OK;
}

mt_rc mt__chat_tools(const mt_chat_reader *r, const mt_value *given, mt_value *out)
{
    mt_value v = *given;
    *out = (mt_value){ .type = MT_VALUE_NULL };
    if (v.type == MT_VALUE_NULL || is_blank(&v)) return MT_OK;
    MT_TRY(parse_if_text(r, "tools", &v));
    if (v.type == MT_VALUE_NULL || (v.type == MT_VALUE_LIST && !v.list.n)) return MT_OK;
    if (v.type != MT_VALUE_MAP && v.type != MT_VALUE_LIST)
        return mt__chat_bad(r, MT_REASON_BAD_CALL, "tools should be a list and are %s", mt_value_type_name(&v));
    return map_list(r, &v, one_tool, out);
}
