#include "jinja/global.h"

#include <stdio.h>

enum { MAX_RANGE = 100000 }; /* the sandbox's */

static mt_rc call_range(jrender *r, const jargs *args, jval *out)
{
    int64_t v[3] = { 0, 0, 1 };
    if (args->n_kw || args->n_pos < 1 || args->n_pos > 3)
        return mt__j_fail(r, "range expects 1 to 3 arguments, got %zu", args->n_pos);
    for (size_t i = 0; i < args->n_pos; i++) {
        jval a = args->pos[i];
        if (!mt__j_is_integer(a)) return mt__j_fail(r, "'%s' object cannot be interpreted as an integer", mt__j_type_name(a));
        v[args->n_pos == 1 ? 1 : i] = mt__j_as_int(a);
    }
    if (v[2] == 0) return mt__j_fail(r, "range() arg 3 must not be zero");
    jrange *g;
    MT_TRY(mt__j_new(r, sizeof *g, &g));
    *g = (jrange){ .start = v[0], .stop = v[1], .step = v[2] };
    const int64_t from = v[2] > 0 ? v[0] : v[1], to = v[2] > 0 ? v[1] : v[0];
    uint64_t span = to > from ? (uint64_t)to - (uint64_t)from : 0;
    uint64_t step = v[2] > 0 ? (uint64_t)v[2] : 0 - (uint64_t)v[2], n = span / step + (span % step != 0);
    if (n > MAX_RANGE)
        return mt__j_fail_rc(r, MT_ERANGE, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MAX_RANGE);
    g->n = (size_t)n;
    *out = (jval){ .type = JV_RANGE, .range = g };
    return MT_OK;
}

/* A mapping, or a sequence of pairs. */
static mt_rc put_all(jrender *r, jdict *d, jval from)
{
    if (from.type == JV_DICT) {
        for (size_t i = 0; i < from.dict->n; i++)
            MT_TRY(mt__j_dict_put(r, d, from.dict->entries[i].key, from.dict->entries[i].value));
        return MT_OK;
    }
    for (size_t i = 0; i < from.list->n; i++) {
        jval pair;
        MT_TRY(mt__j_collect(r, from.list->items[i], &pair));
        if (pair.list->n != 2)
            return mt__j_fail(r, "dictionary update sequence element #%zu has length %zu; 2 is required", i, pair.list->n);
        MT_TRY(mt__j_dict_put(r, d, pair.list->items[0], pair.list->items[1]));
    }
    return MT_OK;
}

static mt_rc call_dict(jrender *r, const jargs *args, jval *out)
{
    jval from = { 0 };
    jdict *d;
    if (args->n_pos > 1) return mt__j_fail(r, "dict expected at most 1 argument, got %zu", args->n_pos);
    if (args->n_pos) {
        from = args->pos[0];
        if (from.type != JV_DICT) MT_TRY(mt__j_collect(r, from, &from));
    }
    size_t n = 0;
    if (args->n_pos) n = from.type == JV_DICT ? from.dict->n : from.list->n;
    MT_TRY(mt__j_new_dict(r, n + args->n_kw, out, &d));
    if (args->n_pos) MT_TRY(put_all(r, d, from));
    for (size_t i = 0; i < args->n_kw; i++) MT_TRY(mt__j_dict_put(r, d, args->kw_names[i], args->kw[i]));
    return MT_OK;
}

static mt_rc call_namespace(jrender *r, const jargs *args, jval *out)
{
    jval dict;
    jspace *space;
    MT_TRY(call_dict(r, args, &dict));
    MT_TRY(mt__j_new(r, sizeof *space, &space));
    *space = (jspace){ .entries = dict.dict->entries, .n = dict.dict->n, .cap = dict.dict->n };
    for (size_t i = 0; i < space->n; i++) {
        jval key = space->entries[i].key;
        if (key.type != JV_STR) return mt__j_fail(r, "the names in a namespace must be strings, not %s", mt__j_type_name(key));
        if (key.n && key.s[0] == '_')
            return mt__j_fail(r,
                              "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '%.*s'. Please "
                              "rename the attribute.",
                              (int)key.n, key.s);
    }
    *out = (jval){ .type = JV_NAMESPACE, .space = space };
    return MT_OK;
}

static mt_rc call_raise(jrender *r, const jargs *args, jval *out)
{
    (void)out;
    jval message, text;
    MT_TRY(mt__j_bind_args(r, "raise_exception", "message", 1, args, &message));
    MT_TRY(mt__j_str(r, message, &text));
    return mt__j_fail(r, "%.*s", (int)text.n, text.s);
}

/* Python knows three directives that C's strftime must not see: %f, and %z and %Z of a time without a zone. */
static mt_rc put_time(jrender *r, const char *p, size_t n, const struct tm *now)
{
    char directive[16], text[256];
    for (size_t i = 0; i < n; i++) {
        size_t k = 1;
        if (p[i] != '%' || i + 1 == n) {
            mt_str_putc(r->out, p[i]);
            continue;
        }
        while (k < 8 && i + k < n && strchr("_-0^#", p[i + k]) && p[i + k]) k++;
        char c = i + k < n ? p[i + k] : 0;
        if (c == 'f')
            mt_str_puts(r->out, "000000");
        else if (c != 'z' && c != 'Z') {
            snprintf(directive, sizeof directive, "%.*s", (int)(k + (c != 0)), p + i);
            mt_str_add(r->out, text, strftime(text, sizeof text, directive, now));
        }
        i += c ? k : k - 1;
    }
    return mt__j_check_out(r);
}

static mt_rc call_strftime(jrender *r, const jargs *args, jval *out)
{
    jval format;
    MT_TRY(mt__j_bind_args(r, "strftime_now", "format", 1, args, &format));
    if (format.type != JV_STR) return mt__j_fail(r, "strftime() argument 1 must be str, not %s", mt__j_type_name(format));
    struct tm now;
    time_t seconds = time(NULL);
    if (r->now)
        now = *r->now;
    else
        localtime_r(&seconds, &now);
    size_t mark = mt__j_mark(r);
    MT_TRY(mt__j_steps(r, format.n)); /* a call of strftime for every other byte */
    MT_TRY(put_time(r, format.s, format.n, &now));
    return mt__j_cut(r, mark, out);
}

static mt_rc call_cycler(jrender *r, const jargs *args, jval *out)
{
    jcycler *c;
    jval list, *items;
    if (!args->n_pos || args->n_kw) return mt__j_fail(r, "at least one item has to be provided");
    MT_TRY(mt__j_new(r, sizeof *c, &c));
    MT_TRY(mt__j_new_list(r, JV_TUPLE, args->n_pos, &list, &items));
    memcpy(items, args->pos, args->n_pos * sizeof *items);
    *c = (jcycler){ .items = list.list };
    *out = (jval){ .type = JV_CYCLER, .cycler = c };
    return MT_OK;
}

static mt_rc call_joiner(jrender *r, const jargs *args, jval *out)
{
    jjoiner *j;
    jval sep;
    MT_TRY(mt__j_bind_args(r, "joiner", "sep", 0, args, &sep));
    MT_TRY(mt__j_new(r, sizeof *j, &j));
    *j = (jjoiner){ .sep = mt__j_given(sep) ? sep : mt__j_literal(", ") };
    *out = (jval){ .type = JV_JOINER, .joiner = j };
    return MT_OK;
}

static const jfunc functions[] = {
    { "range", call_range },   { "dict", call_dict },     { "namespace", call_namespace },   { "raise_exception", call_raise },
    { "cycler", call_cycler }, { "joiner", call_joiner }, { "strftime_now", call_strftime },
};

jval mt__j_global_named(jval name)
{
    for (size_t i = 0; i < MT_COUNT(functions); i++)
        if (mt__j_is_text(name, functions[i].name)) return (jval){ .type = JV_FUNC, .func = &functions[i] };
    return (jval){ 0 };
}
