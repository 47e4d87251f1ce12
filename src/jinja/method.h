/* method.h - methods of strings, lists, dicts and the like: one row each in a table. */
#ifndef MT_JINJA_METHOD_H
#define MT_JINJA_METHOD_H

#include "jinja/render.h"

/* a: the arguments in the order of `params` (MISSING where not given), or NULL where params is. */
typedef mt_rc jmethod_fn(jrender *r, jval self, const jval *a, const jargs *args, jval *out);

typedef struct jmethod_row {
    const char *name;
    uint8_t type;       /* the jtype it belongs to */
    jmethod_fn *fn;     /* NULL: changes its object, which the sandbox refuses */
    const char *params; /* "sep,maxsplit"; '!' in front: by position only; NULL: any */
    uint8_t n_required;
} jmethod_row;

extern const jmethod_row mt__j_methods[];

int mt__j_method_id(jval name);          /* 1 + the first row of this name, 0 if there is none */
int mt__j_method_row(int id, jval self); /* the row of that name for this type of value, -1 if there is none */

/* method_str.c, method_split.c */
jmethod_fn mt__j_str_strip, mt__j_str_lstrip, mt__j_str_rstrip, mt__j_str_split, mt__j_str_rsplit, mt__j_str_splitlines,
    mt__j_str_startswith, mt__j_str_endswith, mt__j_str_replace, mt__j_str_upper, mt__j_str_lower, mt__j_str_title,
    mt__j_str_capitalize, mt__j_str_swapcase, mt__j_str_find, mt__j_str_rfind, mt__j_str_index, mt__j_str_rindex, mt__j_str_count,
    mt__j_str_join, mt__j_str_format_method, mt__j_str_format_map, mt__j_str_removeprefix, mt__j_str_removesuffix,
    mt__j_str_zfill, mt__j_str_center, mt__j_str_ljust, mt__j_str_rjust, mt__j_str_partition, mt__j_str_rpartition,
    mt__j_str_expandtabs, mt__j_str_isdigit, mt__j_str_isdecimal, mt__j_str_isnumeric, mt__j_str_isalpha, mt__j_str_isalnum,
    mt__j_str_isspace, mt__j_str_isupper, mt__j_str_islower, mt__j_str_istitle, mt__j_str_isascii, mt__j_str_isidentifier,
    mt__j_str_isprintable;

/* Arguments: TypeError unless it is a string; an integer, or the fallback where none (or None) was given. */
mt_rc mt__j_want_str(jrender *r, jval v, const char *what);
mt_rc mt__j_want_int(jrender *r, jval v, int64_t fallback, int64_t *out);
jval mt__j_part(jval s, size_t from, size_t to); /* bytes [from, to) of a string */

/* Shared with filters of the same name. */
mt_rc mt__j_search(jrender *r, size_t n, size_t m, bool backwards); /* count the work of a search */
mt_rc mt__j_strip(jrender *r, jval s, jval chars, bool left, bool right, jval *out);
mt_rc mt__j_replace(jrender *r, jval s, jval from, jval to, int64_t count, jval *out);
mt_rc mt__j_splitlines(jrender *r, jval s, bool keep_ends, jval *out);
mt_rc mt__j_pad(jrender *r, jval s, int64_t width, jval fill, char align, jval *out);
mt_rc mt__j_capitalize(jrender *r, jval s, jval *out);
mt_rc mt__j_change_case(jrender *r, jval s, bool upper, jval *out);
mt_rc mt__j_join_values(jrender *r, jval sep, jval values, bool strict, jval *out); /* strict: TypeError unless all are strings */

#endif
