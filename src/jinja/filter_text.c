/* filter_text.c - filters that make text. */
#include "jinja/filter.h"

#include "jinja/chars.h"
#include "jinja/method.h"

#include <ctype.h>

#define FILTER(name) mt_rc name(jrender *r, jval v, const jval *a, const jargs *args, jval *out)
#define UNUSED_ARGS  (void)a, (void)args

static mt_rc want_int(jrender *r, jval v, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (!mt__j_given(v)) return MT_OK;
    if (!mt__j_is_integer(v)) return mt__j_fail(r, "a whole number was expected, not %s", mt__j_type_name(v));
    *out = mt__j_as_int(v);
    return MT_OK;
}

static mt_rc flag(jrender *r, jval v, bool fallback, bool *out)
{
    *out = fallback;
    return mt__j_given(v) ? mt__j_truth(r, v, out) : MT_OK;
}

/* These take anything and work on its str(). */
FILTER(mt__j_f_upper)
{
    UNUSED_ARGS;
    MT_TRY(mt__j_str(r, v, &v));
    return mt__j_change_case(r, v, true, out);
}
FILTER(mt__j_f_lower)
{
    UNUSED_ARGS;
    MT_TRY(mt__j_str(r, v, &v));
    return mt__j_change_case(r, v, false, out);
}
FILTER(mt__j_f_capitalize)
{
    UNUSED_ARGS;
    MT_TRY(mt__j_str(r, v, &v));
    return mt__j_capitalize(r, v, out);
}
FILTER(mt__j_f_string)
{
    UNUSED_ARGS;
    return mt__j_str(r, v, out);
}
FILTER(mt__j_f_trim)
{
    (void)args;
    MT_TRY(mt__j_str(r, v, &v));
    return mt__j_strip(r, v, a[0], true, true, out);
}

static bool starts_word(uint32_t cp) { return mt__j_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp)); }

FILTER(mt__j_f_title)
{
    UNUSED_ARGS;
    MT_TRY(mt__j_str(r, v, &v));
    size_t mark = mt__j_mark(r);
    bool start = true;
    MT_TRY(mt__j_walk(r, v.n));
    for (size_t i = 0, len, end; i < v.n; i = end) {
        uint32_t cp = mt__j_cp(v.s + i, v.n - i, &len);
        end = i + len;
        if (starts_word(cp)) {
            mt_str_add(r->out, v.s + i, len);
        } else if (start) {
            mt__j_put_case(r->out, cp, CASE_UPPER);
        } else {
            while (end < v.n && !starts_word(mt__j_cp(v.s + end, v.n - end, &len))) end += len;
            mt__j_put_lower(r->out, v.s + i, end - i);
        }
        start = starts_word(cp);
    }
    return mt__j_cut(r, mark, out);
}

FILTER(mt__j_f_replace)
{
    (void)args;
    int64_t count;
    jval from, to;
    MT_TRY(mt__j_str(r, v, &v));
    MT_TRY(mt__j_str(r, a[0], &from));
    MT_TRY(mt__j_str(r, a[1], &to));
    MT_TRY(want_int(r, mt__j_given(a[2]) && a[2].type == JV_NONE ? (jval){ 0 } : a[2], -1, &count));
    v.safe = 0;
    return mt__j_replace(r, v, from, to, count, out);
}

FILTER(mt__j_f_indent)
{
    (void)args;
    int64_t width = 4;
    bool first, blank;
    jval lines, indention, with_newline;
    MT_TRY(flag(r, a[1], false, &first));
    MT_TRY(flag(r, a[2], false, &blank));
    if (v.type != JV_STR) {
        if (v.type == JV_UNDEFINED) return mt__j_use_undefined(r, v);
        return mt__j_fail(r, "indent wants a string, not %s", mt__j_type_name(v));
    }
    if (mt__j_given(a[0]) && a[0].type == JV_STR)
        indention = a[0];
    else {
        MT_TRY(want_int(r, a[0], 4, &width));
        MT_TRY(mt__j_binary(r, OP_MUL, mt__j_literal(" "), mt__j_int(width), &indention));
    }
    MT_TRY(mt__j_binary(r, OP_ADD, v, mt__j_literal("\n"), &with_newline));
    MT_TRY(mt__j_splitlines(r, with_newline, false, &lines));
    size_t mark = mt__j_mark(r);
    for (size_t i = 0; i < lines.list->n; i++) {
        jval line = lines.list->items[i];
        if (i) mt_str_putc(r->out, '\n');
        if (i == 0 ? first : blank || line.n) mt_str_add(r->out, indention.s, indention.n);
        mt_str_add(r->out, line.s, line.n);
        MT_TRY(mt__j_check_out(r));
    }
    MT_TRY(mt__j_cut(r, mark, out));
    out->safe = v.safe;
    return MT_OK;
}

FILTER(mt__j_f_center)
{
    (void)args;
    int64_t width;
    MT_TRY(want_int(r, a[0], 80, &width));
    MT_TRY(mt__j_str(r, v, &v));
    return mt__j_pad(r, v, width, (jval){ 0 }, '^', out);
}

FILTER(mt__j_f_truncate)
{
    (void)args;
    int64_t length, leeway, n;
    bool kill;
    jval end = mt__j_given(a[2]) ? a[2] : mt__j_literal("...");
    MT_TRY(want_int(r, a[0], 255, &length));
    MT_TRY(flag(r, a[1], false, &kill));
    MT_TRY(want_int(r, mt__j_given(a[3]) && a[3].type == JV_NONE ? (jval){ 0 } : a[3], 5, &leeway));
    MT_TRY(mt__j_length(r, v, &n));
    if (end.type != JV_STR) return mt__j_fail(r, "truncate wants a string for end");
    int64_t end_n = (int64_t)mt__j_count(end.s, end.n);
    if (length < end_n || leeway < 0) return mt__j_fail(r, "expected length >= %lld", (long long)end_n);
    if (leeway > (int64_t)1 << 40 || length > (int64_t)1 << 40 || n <= length + leeway) return *out = v, MT_OK;
    if (v.type != JV_STR) return mt__j_fail(r, "truncate wants a string, not %s", mt__j_type_name(v));
    jval head = mt__j_text(v.s, mt__j_offset(v.s, v.n, (size_t)(length - end_n)));
    const char *space = kill ? NULL : mt__j_rfind(head.s, head.n, " ", 1);
    if (space) head.n = (uint32_t)(space - head.s);
    head.safe = v.safe;
    return mt__j_join(r, head, end, out);
}

FILTER(mt__j_f_wordcount)
{
    UNUSED_ARGS;
    MT_TRY(mt__j_str(r, v, &v));
    int64_t n = 0;
    bool inside = false;
    MT_TRY(mt__j_walk(r, v.n));
    for (size_t i = 0, len; i < v.n; i += len) {
        bool word = mt__j_is_word(mt__j_cp(v.s + i, v.n - i, &len));
        n += word && !inside;
        inside = word;
    }
    *out = mt__j_int(n);
    return MT_OK;
}

FILTER(mt__j_f_format)
{
    (void)a;
    jval values;
    MT_TRY(mt__j_str(r, v, &v));
    if (args->n_pos && args->n_kw) return mt__j_fail(r, "can't handle positional and keyword arguments at the same time");
    if (args->n_kw) {
        jdict *d;
        MT_TRY(mt__j_new_dict(r, args->n_kw, &values, &d));
        for (size_t i = 0; i < args->n_kw; i++) MT_TRY(mt__j_dict_put(r, d, args->kw_names[i], args->kw[i]));
    } else {
        jval *items;
        MT_TRY(mt__j_new_list(r, JV_TUPLE, args->n_pos, &values, &items));
        if (args->n_pos) memcpy(items, args->pos, args->n_pos * sizeof *items);
    }
    return mt__j_percent(r, v, values, out);
}

FILTER(mt__j_f_safe)
{
    UNUSED_ARGS;
    MT_TRY(mt__j_str(r, v, out));
    out->safe = 1;
    return MT_OK;
}

FILTER(mt__j_f_escape)
{
    UNUSED_ARGS;
    size_t mark = mt__j_mark(r);
    MT_TRY(mt__j_put_escaped(r, v));
    MT_TRY(mt__j_cut(r, mark, out));
    out->safe = 1;
    return MT_OK;
}

FILTER(mt__j_f_forceescape)
{
    MT_TRY(mt__j_str(r, v, &v));
    v.safe = 0;
    return mt__j_f_escape(r, v, a, args, out);
}

/* The five characters escape() writes as entities come back.  Others are refused rather than left as they are. */
static mt_rc put_unescaped(jrender *r, const char *s, size_t n, size_t *used)
{
    static const struct {
        const char *entity, *text;
    } known[] = {
        { "&amp;", "&" }, { "&lt;", "<" }, { "&gt;", ">" }, { "&#34;", "\"" }, { "&quot;", "\"" }, { "&#39;", "'" },
    };
    for (size_t k = 0; k < MT_COUNT(known); k++) {
        *used = strlen(known[k].entity);
        if (n < *used || memcmp(s, known[k].entity, *used) != 0) continue;
        mt_str_puts(r->out, known[k].text);
        return MT_OK;
    }
    bool named = n > 2 && isalpha((unsigned char)s[1]) && isalnum((unsigned char)s[2]);
    if (named || (n > 1 && s[1] == '#')) return mt__j_fail(r, "striptags: an entity that is not supported");
    mt_str_putc(r->out, '&');
    *used = 1;
    return MT_OK;
}

static mt_rc drop_tags(jrender *r, jval v, jval *out)
{
    size_t mark = mt__j_mark(r);
    MT_TRY(mt__j_walk(r, v.n));
    bool closes[2] = { true, true }; /* a tag, a comment may still be closed; after one search failed, none follows */
    for (size_t i = 0; i < v.n;) {
        const char *end = NULL;
        bool comment = v.n - i >= 4 && memcmp(v.s + i, "<!--", 4) == 0;
        if (v.s[i] == '<' && closes[comment]) {
            end = comment ? mt__j_find(v.s + i + 4, v.n - i - 4, "-->", 3) : memchr(v.s + i, '>', v.n - i);
            closes[comment] = end != NULL;
        }
        if (end)
            i = (size_t)(end - v.s) + (comment ? 3 : 1);
        else
            mt_str_putc(r->out, v.s[i++]);
    }
    return mt__j_cut(r, mark, out);
}

FILTER(mt__j_f_striptags)
{
    UNUSED_ARGS;
    jval plain;
    MT_TRY(mt__j_str(r, v, &v));
    MT_TRY(drop_tags(r, v, &plain));
    MT_TRY(mt__j_walk(r, plain.n));
    size_t mark = mt__j_mark(r);
    for (size_t i = mt__j_space_prefix(plain.s, plain.n), len; i < plain.n; i += len) {
        len = mt__j_space_prefix(plain.s + i, plain.n - i);
        if (len && i + len < plain.n) mt_str_putc(r->out, ' ');
        if (len) continue;
        len = 1;
        if (plain.s[i] == '&')
            MT_TRY(put_unescaped(r, plain.s + i, plain.n - i, &len));
        else
            mt_str_putc(r->out, plain.s[i]);
    }
    return mt__j_cut(r, mark, out);
}

/* Without printf, which takes many times longer: a filter may quote a megabyte. */
static void put_hex(jrender *r, unsigned char c)
{
    static const char digits[] = "0123456789ABCDEF";
    const char quoted[] = { '%', digits[c >> 4], digits[c & 15] };
    mt_str_add(r->out, quoted, sizeof quoted);
}

static mt_rc put_quoted_url(jrender *r, jval v, bool in_query)
{
    MT_TRY(mt__j_str(r, v, &v));
    MT_TRY(mt__j_walk(r, v.n));
    for (uint32_t i = 0; i < v.n; i++) {
        unsigned char c = (unsigned char)v.s[i];
        bool plain =
            (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || strchr("_.-~", c) || (c == '/' && !in_query);
        if (plain && c)
            mt_str_putc(r->out, (char)c);
        else if (c == ' ' && in_query)
            mt_str_putc(r->out, '+');
        else
            put_hex(r, c);
    }
    return mt__j_check_out(r);
}

FILTER(mt__j_f_urlencode)
{
    UNUSED_ARGS;
    size_t mark = mt__j_mark(r);
    if (v.type != JV_DICT && !mt__j_is_seq(v)) {
        MT_TRY(put_quoted_url(r, v, false));
        return mt__j_cut(r, mark, out);
    }
    size_t n = v.type == JV_DICT ? v.dict->n : v.list->n;
    for (size_t i = 0; i < n; i++) {
        jval pair = v.type == JV_DICT ? (jval){ 0 } : v.list->items[i];
        if (v.type != JV_DICT && (!mt__j_is_seq(pair) || pair.list->n != 2)) return mt__j_fail(r, "urlencode wants pairs");
        if (i) mt_str_putc(r->out, '&');
        MT_TRY(put_quoted_url(r, v.type == JV_DICT ? v.dict->entries[i].key : pair.list->items[0], true));
        mt_str_putc(r->out, '=');
        MT_TRY(put_quoted_url(r, v.type == JV_DICT ? v.dict->entries[i].value : pair.list->items[1], true));
    }
    return mt__j_cut(r, mark, out);
}

FILTER(mt__j_f_xmlattr)
{
    (void)args;
    bool space, any = false;
    MT_TRY(flag(r, a[0], true, &space));
    if (v.type != JV_DICT) return mt__j_fail(r, "xmlattr wants a mapping, not %s", mt__j_type_name(v));
    size_t mark = mt__j_mark(r);
    for (size_t i = 0; i < v.dict->n; i++) {
        const jentry *e = &v.dict->entries[i];
        if (e->value.type == JV_NONE || e->value.type == JV_UNDEFINED) continue;
        if (e->key.type != JV_STR) return mt__j_fail(r, "xmlattr wants names that are strings");
        MT_TRY(mt__j_walk(r, e->key.n));
        for (uint32_t k = 0; k < e->key.n; k++)
            if (e->key.s[k] && strchr(" \t\n\r\f\v/>=", e->key.s[k])) return mt__j_fail(r, "Invalid character in attribute name");
        if (any || space) mt_str_putc(r->out, ' ');
        any = true;
        MT_TRY(mt__j_put_escaped(r, e->key));
        mt_str_puts(r->out, "=\"");
        MT_TRY(mt__j_put_escaped(r, e->value));
        mt_str_putc(r->out, '"');
    }
    return mt__j_cut(r, mark, out);
}

FILTER(mt__j_f_join)
{
    (void)args;
    jval sep = mt__j_text("", 0), items;
    if (mt__j_given(a[0])) MT_TRY(mt__j_str(r, a[0], &sep));
    sep.safe = 0;
    if (!mt__j_given(a[1]) || a[1].type == JV_NONE) return mt__j_join_values(r, sep, v, false, out);
    MT_TRY(mt__j_collect(r, v, &items));
    jval picked, *to;
    MT_TRY(mt__j_new_list(r, JV_LIST, items.list->n, &picked, &to));
    for (size_t i = 0; i < items.list->n; i++) MT_TRY(mt__j_follow(r, items.list->items[i], a[1], &to[i]));
    return mt__j_join_values(r, sep, picked, false, out);
}

/* indent=2 or indent="\t", separators=(",", ":") */
static mt_rc json_layout(jrender *r, const jval *a, jjson *how)
{
    how->pretty = mt__j_given(a[1]) && a[1].type != JV_NONE;
    how->item_sep = mt__j_literal(how->pretty ? "," : ", ");
    how->key_sep = mt__j_literal(": ");
    if (how->pretty && a[1].type == JV_STR)
        how->indent = a[1];
    else if (how->pretty) {
        if (!mt__j_is_integer(a[1]))
            return mt__j_fail(r, "tojson: indent must be a number or a string, not %s", mt__j_type_name(a[1]));
        MT_TRY(mt__j_binary(r, OP_MUL, mt__j_literal(" "), a[1], &how->indent));
    }
    if (!mt__j_given(a[2]) || a[2].type == JV_NONE) return MT_OK;
    jval pair;
    MT_TRY(mt__j_collect(r, a[2], &pair));
    if (pair.list->n != 2 || pair.list->items[0].type != JV_STR || pair.list->items[1].type != JV_STR)
        return mt__j_fail(r, "tojson: separators must be two strings");
    how->item_sep = pair.list->items[0];
    how->key_sep = pair.list->items[1];
    return MT_OK;
}

FILTER(mt__j_f_tojson)
{
    (void)args;
    jjson how = { 0 };
    MT_TRY(flag(r, a[0], false, &how.ensure_ascii));
    MT_TRY(flag(r, a[3], false, &how.sort_keys));
    MT_TRY(json_layout(r, a, &how));
    size_t mark = mt__j_mark(r);
    MT_TRY(mt__j_put_json(r, v, &how));
    return mt__j_cut(r, mark, out);
}
