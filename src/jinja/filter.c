/* filter.c - the table of filters, and how one is applied. */
#include "jinja/filter.h"

#include <ctype.h>
#include <stdlib.h>

static const jfilter_row filters[] = {
    { "abs", mt__j_f_abs, "", 0 },
    { "attr", mt__j_f_attr, "name", 1 },
    { "batch", mt__j_f_batch, "linecount,fill_with", 1 },
    { "capitalize", mt__j_f_capitalize, "", 0 },
    { "center", mt__j_f_center, "width", 0 },
    { "count", mt__j_f_length, "", 0 },
    { "d", mt__j_f_default, "default_value,boolean", 0 },
    { "default", mt__j_f_default, "default_value,boolean", 0 },
    { "dictsort", mt__j_f_dictsort, "case_sensitive,by,reverse", 0 },
    { "e", mt__j_f_escape, "", 0 },
    { "escape", mt__j_f_escape, "", 0 },
    { "filesizeformat", mt__j_f_filesizeformat, "binary", 0 },
    { "first", mt__j_f_first, "", 0 },
    { "float", mt__j_f_float, "default", 0 },
    { "forceescape", mt__j_f_forceescape, "", 0 },
    { "format", mt__j_f_format, NULL, 0 },
    { "groupby", mt__j_f_groupby, "attribute,default,case_sensitive", 1 },
    { "indent", mt__j_f_indent, "width,first,blank", 0 },
    { "int", mt__j_f_int, "default,base", 0 },
    { "items", mt__j_f_items, "", 0 },
    { "join", mt__j_f_join, "d,attribute", 0 },
    { "last", mt__j_f_last, "", 0 },
    { "length", mt__j_f_length, "", 0 },
    { "list", mt__j_f_list, "", 0 },
    { "lower", mt__j_f_lower, "", 0 },
    { "map", mt__j_f_map, NULL, 0 },
    { "max", mt__j_f_max, "case_sensitive,attribute", 0 },
    { "min", mt__j_f_min, "case_sensitive,attribute", 0 },
    { "random", mt__j_f_random, "", 0 },
    { "reject", mt__j_f_reject, NULL, 0 },
    { "rejectattr", mt__j_f_rejectattr, NULL, 0 },
    { "replace", mt__j_f_replace, "old,new,count", 2 },
    { "reverse", mt__j_f_reverse, "", 0 },
    { "round", mt__j_f_round, "precision,method", 0 },
    { "safe", mt__j_f_safe, "", 0 },
    { "select", mt__j_f_select, NULL, 0 },
    { "selectattr", mt__j_f_selectattr, NULL, 0 },
    { "slice", mt__j_f_slice, "slices,fill_with", 1 },
    { "sort", mt__j_f_sort, "reverse,case_sensitive,attribute", 0 },
    { "string", mt__j_f_string, "", 0 },
    { "striptags", mt__j_f_striptags, "", 0 },
    { "sum", mt__j_f_sum, "attribute,start", 0 },
    { "title", mt__j_f_title, "", 0 },
    { "tojson", mt__j_f_tojson, "ensure_ascii,indent,separators,sort_keys", 0 },
    { "trim", mt__j_f_trim, "chars", 0 },
    { "truncate", mt__j_f_truncate, "length,killwords,end,leeway", 0 },
    { "unique", mt__j_f_unique, "case_sensitive,attribute", 0 },
    { "upper", mt__j_f_upper, "", 0 },
    { "urlencode", mt__j_f_urlencode, "", 0 },
    { "wordcount", mt__j_f_wordcount, "", 0 },
    { "xmlattr", mt__j_f_xmlattr, "autospace", 0 },
};

const jfilter_row *mt__j_filter_named(const char *name, size_t n)
{
    for (size_t i = 0; i < MT_COUNT(filters); i++)
        if (strlen(filters[i].name) == n && memcmp(filters[i].name, name, n) == 0) return &filters[i];
    return NULL;
}

mt_rc mt__j_apply_filter(jrender *r, const jfilter_row *f, jval v, const jargs *args, jval *out)
{
    jval bound[4];
    if (v.type == JV_STR) MT_TRY(mt__j_touch(r, v.n));
    if (f->params) MT_TRY(mt__j_bind_args(r, f->name, f->params, f->n_required, args, bound));
    return f->fn(r, v, f->params ? bound : NULL, args, out);
}

/* One step of a path: digits are an index, anything else a key or an attribute. */
static mt_rc follow_part(jrender *r, jval v, const char *s, size_t n, jval *out)
{
    bool digits = n > 0 && n < 10;
    for (size_t i = 0; i < n; i++) digits = digits && isdigit((unsigned char)s[i]);
    if (digits) return mt__j_getitem(r, v, mt__j_int((int64_t)strtoul(s, NULL, 10)), -1, out);
    return mt__j_getitem(r, v, mt__j_text(s, n), -1, out);
}

mt_rc mt__j_follow(jrender *r, jval v, jval path, jval *out)
{
    *out = v;
    if (!mt__j_given(path) || path.type == JV_NONE) return MT_OK;
    if (path.type != JV_STR) return mt__j_getitem(r, v, path, -1, out);
    for (size_t at = 0, end; at <= path.n; at = end + 1) {
        const char *dot = memchr(path.s + at, '.', path.n - at);
        end = dot ? (size_t)(dot - path.s) : path.n;
        MT_TRY(follow_part(r, *out, path.s + at, end - at, out));
    }
    return MT_OK;
}
