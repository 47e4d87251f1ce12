/* repr.c - str() and repr(), as printing a value needs them. */
#include "jinja/render.h"

#include "jinja/chars.h"

#include <math.h>

/* The shortest digits that read back, in Python's choice of form. */
void mt__j_put_float(mt_str *out, double f)
{
    if (isnan(f)) return mt_str_puts(out, "nan");
    if (isinf(f)) return mt_str_puts(out, f < 0 ? "-inf" : "inf");
    mt_value_write_float(out, f);
}

void mt__j_put_digits(jrender *r, jval v) { mt_str_puts(r->out, r->digits[v.n - 1]); }

/* Single quotes unless the text holds those and no double ones. */
static void put_quoted(mt_str *out, const char *s, size_t n)
{
    char quote = memchr(s, '\'', n) && !memchr(s, '"', n) ? '"' : '\'';
    mt_str_putc(out, quote);
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp = mt__j_cp(s + i, n - i, &len);
        if (cp == (uint32_t)quote || cp == '\\')
            mt_str_add(out, (const char[]){ '\\', (char)cp }, 2);
        else if (cp == '\n')
            mt_str_puts(out, "\\n");
        else if (cp == '\r')
            mt_str_puts(out, "\\r");
        else if (cp == '\t')
            mt_str_puts(out, "\\t");
        else if (mt__j_is_printable(cp))
            mt_str_add(out, s + i, len);
        else if (cp < 0x100)
            mt__j_put_escape(out, 'x', cp, 2);
        else
            mt__j_put_escape(out, cp < 0x10000 ? 'u' : 'U', cp, cp < 0x10000 ? 4 : 8);
    }
    mt_str_putc(out, quote);
}

static mt_rc put_items(jrender *r, const jval *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i) mt_str_puts(r->out, ", ");
        MT_TRY(mt__j_put_repr(r, items[i]));
    }
    return MT_OK;
}

static mt_rc put_seq(jrender *r, jval v)
{
    bool is_list = v.type == JV_LIST;
    mt_str_putc(r->out, is_list ? '[' : '(');
    MT_TRY(put_items(r, v.list->items, v.list->n));
    if (!is_list && v.list->n == 1) mt_str_putc(r->out, ',');
    mt_str_putc(r->out, is_list ? ']' : ')');
    return MT_OK;
}

static mt_rc put_entries(jrender *r, const jentry *entries, size_t n)
{
    mt_str_putc(r->out, '{');
    for (size_t i = 0; i < n; i++) {
        if (i) mt_str_puts(r->out, ", ");
        MT_TRY(mt__j_put_repr(r, entries[i].key));
        mt_str_puts(r->out, ": ");
        MT_TRY(mt__j_put_repr(r, entries[i].value));
    }
    mt_str_putc(r->out, '}');
    return MT_OK;
}

static mt_rc put_view(jrender *r, const jview *view)
{
    mt_str_printf(r->out, "%s([", mt__j_view_name(view));
    for (size_t i = 0; i < view->dict->n; i++) {
        const jentry *e = &view->dict->entries[i];
        if (i) mt_str_puts(r->out, ", ");
        if (view->kind == VIEW_ITEMS) mt_str_putc(r->out, '(');
        if (view->kind != VIEW_VALUES) MT_TRY(mt__j_put_repr(r, e->key));
        if (view->kind == VIEW_ITEMS) mt_str_puts(r->out, ", ");
        if (view->kind != VIEW_KEYS) MT_TRY(mt__j_put_repr(r, e->value));
        if (view->kind == VIEW_ITEMS) mt_str_putc(r->out, ')');
    }
    mt_str_puts(r->out, "])");
    return MT_OK;
}

static void put_range(mt_str *out, const jrange *g)
{
    mt_str_printf(out, "range(%lld, %lld", (long long)g->start, (long long)g->stop);
    if (g->step != 1) mt_str_printf(out, ", %lld", (long long)g->step);
    mt_str_putc(out, ')');
}

static mt_rc put_nested(jrender *r, jval v)
{
    switch (v.type) {
    case JV_LIST:
    case JV_TUPLE: return put_seq(r, v);
    case JV_DICT: return put_entries(r, v.dict->entries, v.dict->n);
    case JV_VIEW: return put_view(r, v.view);
    case JV_NAMESPACE:
        mt_str_puts(r->out, "<Namespace ");
        MT_TRY(put_entries(r, v.space->entries, v.space->n));
        mt_str_putc(r->out, '>');
        return MT_OK;
    case JV_LOOP: return mt__j_put_loop(r, v.loop);
    default: return MT_OK;
    }
}

mt_rc mt__j_put_repr(jrender *r, jval v)
{
    switch (v.type) {
    case JV_MISSING:
    case JV_UNDEFINED: mt_str_puts(r->out, "Undefined"); break;
    case JV_NONE: mt_str_puts(r->out, "None"); break;
    case JV_BOOL: mt_str_puts(r->out, v.b ? "True" : "False"); break;
    case JV_INT: mt_str_printf(r->out, "%lld", (long long)v.i); break;
    case JV_FLOAT:
        if (mt__j_is_long(v))
            mt__j_put_digits(r, v);
        else
            mt__j_put_float(r->out, v.f);
        break;
    case JV_STR:
        if (v.safe) mt_str_puts(r->out, "Markup(");
        MT_TRY(mt__j_walk(r, v.n));
        put_quoted(r->out, v.s, v.n);
        if (v.safe) mt_str_putc(r->out, ')');
        break;
    case JV_RANGE: put_range(r->out, v.range); break;
    case JV_MACRO: mt_str_printf(r->out, "<Macro '%.*s'>", (int)v.macro->node->name.n, v.macro->node->name.s); break;
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_VIEW:
    case JV_NAMESPACE:
    case JV_LOOP:
        MT_TRY(mt__j_deeper(r));
        MT_TRY(put_nested(r, v));
        r->depth--;
        break;
    default: mt_str_printf(r->out, "<%s object>", mt__j_type_name(v)); /* Python shows an address, which no template can expect */
    }
    MT_TRY(mt__j_steps(r, 1));
    return mt__j_check_out(r);
}

mt_rc mt__j_put_str(jrender *r, jval v)
{
    if (v.type == JV_STR) {
        mt_str_add(r->out, v.s, v.n);
        return mt__j_check_out(r);
    }
    return v.type == JV_UNDEFINED || v.type == JV_MISSING ? MT_OK : mt__j_put_repr(r, v);
}

mt_rc mt__j_str(jrender *r, jval v, jval *out)
{
    if (v.type == JV_STR) return *out = v, MT_OK;
    size_t mark = mt__j_mark(r);
    MT_TRY(mt__j_put_str(r, v));
    return mt__j_cut(r, mark, out);
}

mt_rc mt__j_put_escaped(jrender *r, jval v)
{
    jval s;
    MT_TRY(mt__j_str(r, v, &s));
    if (s.safe) return mt__j_put_str(r, s);
    MT_TRY(mt__j_walk(r, s.n));
    for (uint32_t i = 0; i < s.n; i++) {
        switch (s.s[i]) {
        case '&': mt_str_puts(r->out, "&amp;"); break;
        case '<': mt_str_puts(r->out, "&lt;"); break;
        case '>': mt_str_puts(r->out, "&gt;"); break;
        case '"': mt_str_puts(r->out, "&#34;"); break;
        case '\'': mt_str_puts(r->out, "&#39;"); break;
        default: mt_str_putc(r->out, s.s[i]);
        }
    }
    return mt__j_check_out(r);
}
