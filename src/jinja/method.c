/* method.c - the table of methods, and those of lists, dicts, cyclers and joiners. */
#include "jinja/method.h"

static mt_rc seq_index(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)args;
    int64_t n = (int64_t)self.list->n;
    int64_t from = mt__j_given(a[1]) && mt__j_is_integer(a[1]) ? mt__j_as_int(a[1]) : 0;
    int64_t to = mt__j_given(a[2]) && mt__j_is_integer(a[2]) ? mt__j_as_int(a[2]) : n;
    if (from < 0) from = from < -n ? 0 : from + n;
    if (to < 0) to = to < -n ? 0 : to + n;
    for (int64_t i = from; i < to && i < n; i++) {
        bool same;
        MT_TRY(mt__j_equal(r, self.list->items[i], a[0], &same));
        if (same) return *out = mt__j_int(i), MT_OK;
    }
    return mt__j_fail(r, "the value is not in the list");
}

static mt_rc seq_count(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)args;
    int64_t n = 0;
    for (size_t i = 0; i < self.list->n; i++) {
        bool same;
        MT_TRY(mt__j_equal(r, self.list->items[i], a[0], &same));
        n += same;
    }
    *out = mt__j_int(n);
    return MT_OK;
}

static mt_rc copy_self(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)r, (void)a, (void)args;
    *out = self; /* nothing can change it */
    return MT_OK;
}

static mt_rc dict_get(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)args;
    const jval *hit;
    MT_TRY(mt__j_dict_find(r, self.dict, a[0], &hit));
    *out = mt__j_given(a[1]) ? a[1] : JV_NONE_VALUE;
    if (hit) *out = *hit;
    return MT_OK;
}

static mt_rc dict_view(jrender *r, jval self, int kind, jval *out)
{
    jview *v;
    MT_TRY(mt__j_new(r, sizeof *v, &v));
    v->dict = self.dict;
    v->kind = kind;
    *out = (jval){ .type = JV_VIEW, .view = v };
    return MT_OK;
}

static mt_rc dict_keys(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)a, (void)args;
    return dict_view(r, self, VIEW_KEYS, out);
}

static mt_rc dict_values(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)a, (void)args;
    return dict_view(r, self, VIEW_VALUES, out);
}

static mt_rc dict_items(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)a, (void)args;
    return dict_view(r, self, VIEW_ITEMS, out);
}

static mt_rc cycler_next(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)r, (void)a, (void)args;
    jcycler *c = self.cycler;
    *out = c->items->items[c->at];
    c->at = (c->at + 1) % c->items->n;
    return MT_OK;
}

static mt_rc cycler_reset(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)r, (void)a, (void)args;
    self.cycler->at = 0;
    *out = JV_NONE_VALUE;
    return MT_OK;
}

static mt_rc loop_cycle(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)a;
    return mt__j_loop_method(r, self.loop, true, args, out);
}

static mt_rc loop_changed(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)a;
    return mt__j_loop_method(r, self.loop, false, args, out);
}

static mt_rc int_bit_length(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)r, (void)a, (void)args;
    int64_t i = mt__j_as_int(self);
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    *out = mt__j_int(u ? 64 - __builtin_clzll(u) : 0);
    return MT_OK;
}

static mt_rc float_is_integer(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
{
    (void)r, (void)a, (void)args;
    *out = mt__j_bool(self.f - self.f == 0 && self.f == __builtin_floor(self.f));
    return MT_OK;
}

/* Rows of one name stand together. */
const jmethod_row mt__j_methods[] = {
    { "strip", JV_STR, mt__j_str_strip, "!chars", 0 },
    { "lstrip", JV_STR, mt__j_str_lstrip, "!chars", 0 },
    { "rstrip", JV_STR, mt__j_str_rstrip, "!chars", 0 },
    { "split", JV_STR, mt__j_str_split, "sep,maxsplit", 0 },
    { "rsplit", JV_STR, mt__j_str_rsplit, "sep,maxsplit", 0 },
    { "splitlines", JV_STR, mt__j_str_splitlines, "keepends", 0 },
    { "startswith", JV_STR, mt__j_str_startswith, "!prefix,start,end", 1 },
    { "endswith", JV_STR, mt__j_str_endswith, "!suffix,start,end", 1 },
    { "replace", JV_STR, mt__j_str_replace, "!old,new,count", 2 },
    { "upper", JV_STR, mt__j_str_upper, "!", 0 },
    { "lower", JV_STR, mt__j_str_lower, "!", 0 },
    { "title", JV_STR, mt__j_str_title, "!", 0 },
    { "capitalize", JV_STR, mt__j_str_capitalize, "!", 0 },
    { "swapcase", JV_STR, mt__j_str_swapcase, "!", 0 },
    { "find", JV_STR, mt__j_str_find, "!sub,start,end", 1 },
    { "rfind", JV_STR, mt__j_str_rfind, "!sub,start,end", 1 },
    { "index", JV_STR, mt__j_str_index, "!sub,start,end", 1 },
    { "index", JV_LIST, seq_index, "!value,start,stop", 1 },
    { "index", JV_TUPLE, seq_index, "!value,start,stop", 1 },
    { "rindex", JV_STR, mt__j_str_rindex, "!sub,start,end", 1 },
    { "count", JV_STR, mt__j_str_count, "!sub,start,end", 1 },
    { "count", JV_LIST, seq_count, "!value", 1 },
    { "count", JV_TUPLE, seq_count, "!value", 1 },
    { "join", JV_STR, mt__j_str_join, "!iterable", 1 },
    { "format", JV_STR, mt__j_str_format_method, NULL, 0 },
    { "format_map", JV_STR, mt__j_str_format_map, "!mapping", 1 },
    { "removeprefix", JV_STR, mt__j_str_removeprefix, "!prefix", 1 },
    { "removesuffix", JV_STR, mt__j_str_removesuffix, "!suffix", 1 },
    { "zfill", JV_STR, mt__j_str_zfill, "!width", 1 },
    { "center", JV_STR, mt__j_str_center, "!width,fillchar", 1 },
    { "ljust", JV_STR, mt__j_str_ljust, "!width,fillchar", 1 },
    { "rjust", JV_STR, mt__j_str_rjust, "!width,fillchar", 1 },
    { "partition", JV_STR, mt__j_str_partition, "!sep", 1 },
    { "rpartition", JV_STR, mt__j_str_rpartition, "!sep", 1 },
    { "expandtabs", JV_STR, mt__j_str_expandtabs, "tabsize", 0 },
    { "isdigit", JV_STR, mt__j_str_isdigit, "!", 0 },
    { "isdecimal", JV_STR, mt__j_str_isdecimal, "!", 0 },
    { "isnumeric", JV_STR, mt__j_str_isnumeric, "!", 0 },
    { "isalpha", JV_STR, mt__j_str_isalpha, "!", 0 },
    { "isalnum", JV_STR, mt__j_str_isalnum, "!", 0 },
    { "isspace", JV_STR, mt__j_str_isspace, "!", 0 },
    { "isupper", JV_STR, mt__j_str_isupper, "!", 0 },
    { "islower", JV_STR, mt__j_str_islower, "!", 0 },
    { "istitle", JV_STR, mt__j_str_istitle, "!", 0 },
    { "isascii", JV_STR, mt__j_str_isascii, "!", 0 },
    { "isidentifier", JV_STR, mt__j_str_isidentifier, "!", 0 },
    { "isprintable", JV_STR, mt__j_str_isprintable, "!", 0 },
    { "get", JV_DICT, dict_get, "!key,default", 1 },
    { "keys", JV_DICT, dict_keys, "!", 0 },
    { "values", JV_DICT, dict_values, "!", 0 },
    { "items", JV_DICT, dict_items, "!", 0 },
    { "copy", JV_DICT, copy_self, "!", 0 },
    { "copy", JV_LIST, copy_self, "!", 0 },
    { "update", JV_DICT, NULL, NULL, 0 },
    { "clear", JV_DICT, NULL, NULL, 0 },
    { "clear", JV_LIST, NULL, NULL, 0 },
    { "pop", JV_DICT, NULL, NULL, 0 },
    { "pop", JV_LIST, NULL, NULL, 0 },
    { "popitem", JV_DICT, NULL, NULL, 0 },
    { "setdefault", JV_DICT, NULL, NULL, 0 },
    { "append", JV_LIST, NULL, NULL, 0 },
    { "extend", JV_LIST, NULL, NULL, 0 },
    { "insert", JV_LIST, NULL, NULL, 0 },
    { "remove", JV_LIST, NULL, NULL, 0 },
    { "reverse", JV_LIST, NULL, NULL, 0 },
    { "sort", JV_LIST, NULL, NULL, 0 },
    { "next", JV_CYCLER, cycler_next, "!", 0 },
    { "reset", JV_CYCLER, cycler_reset, "!", 0 },
    { "cycle", JV_LOOP, loop_cycle, NULL, 0 },
    { "changed", JV_LOOP, loop_changed, NULL, 0 },
    { "bit_length", JV_INT, int_bit_length, "!", 0 },
    { "bit_length", JV_BOOL, int_bit_length, "!", 0 },
    { "is_integer", JV_FLOAT, float_is_integer, "!", 0 },
    { 0 },
};

int mt__j_method_id(jval name)
{
    for (int i = 0; mt__j_methods[i].name; i++) {
        const char *s = mt__j_methods[i].name;
        if (name.n && s[0] == name.s[0] && mt__j_same_text(name, s, strlen(s))) return i + 1;
    }
    return 0;
}

int mt__j_method_row(int id, jval self)
{
    const char *name = mt__j_methods[id - 1].name;
    for (int i = id - 1; mt__j_methods[i].name && strcmp(mt__j_methods[i].name, name) == 0; i++)
        if (mt__j_methods[i].type == self.type) return i;
    return -1;
}
