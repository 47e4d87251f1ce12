/* filter.h - filters and tests: one row each in a table. */
#ifndef MT_JINJA_FILTER_H
#define MT_JINJA_FILTER_H

#include "jinja/render.h"

/* a: the arguments in the order of `params` (MISSING where not given), or NULL where params is. */
typedef mt_rc jfilter_fn(jrender *r, jval v, const jval *a, const jargs *args, jval *out);
typedef mt_rc jtest_fn(jrender *r, jval v, const jval *a, bool *out);

typedef struct jfilter_row {
    const char *name;
    jfilter_fn *fn;
    const char *params; /* "width,first,blank"; NULL: any */
    uint8_t n_required;
} jfilter_row;

typedef struct jtest_row {
    const char *name;
    jtest_fn *fn;
    uint8_t n_args;
    const char *params;
} jtest_row;

const jfilter_row *mt__j_filter_named(const char *name, size_t n);
const jtest_row *mt__j_test_named(const char *name, size_t n);
mt_rc mt__j_apply_filter(jrender *r, const jfilter_row *f, jval v, const jargs *args, jval *out);
mt_rc mt__j_apply_test(jrender *r, const jtest_row *t, jval v, const jargs *args, bool *out);

/* A path of attributes ("function.name", 0, "a.b"): what attribute= arguments name. */
mt_rc mt__j_follow(jrender *r, jval v, jval path, jval *out);

/* filter_text.c */
jfilter_fn mt__j_f_upper, mt__j_f_lower, mt__j_f_capitalize, mt__j_f_title, mt__j_f_trim, mt__j_f_replace, mt__j_f_indent,
    mt__j_f_center, mt__j_f_truncate, mt__j_f_wordcount, mt__j_f_format, mt__j_f_string, mt__j_f_safe, mt__j_f_escape,
    mt__j_f_forceescape, mt__j_f_striptags, mt__j_f_urlencode, mt__j_f_tojson, mt__j_f_join, mt__j_f_xmlattr;
/* filter_list.c */
jfilter_fn mt__j_f_first, mt__j_f_last, mt__j_f_list, mt__j_f_length, mt__j_f_reverse, mt__j_f_unique, mt__j_f_batch,
    mt__j_f_slice, mt__j_f_items, mt__j_f_dictsort, mt__j_f_sort, mt__j_f_min, mt__j_f_max, mt__j_f_sum, mt__j_f_groupby;
/* filter_each.c */
jfilter_fn mt__j_f_map, mt__j_f_select, mt__j_f_reject, mt__j_f_selectattr, mt__j_f_rejectattr;
/* filter_value.c */
jfilter_fn mt__j_f_default, mt__j_f_int, mt__j_f_float, mt__j_f_abs, mt__j_f_round, mt__j_f_attr, mt__j_f_filesizeformat,
    mt__j_f_random;

#endif
