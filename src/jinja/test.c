/* test.c - the tests that may follow `is`. */
#include "jinja/filter.h"

#include "jinja/method.h"

#define TEST(name)     static mt_rc name(jrender *r, jval v, const jval *a, bool *out)
#define YES(condition) ((void)r, (void)a, *out = (condition), MT_OK)

TEST(is_defined) { return YES(v.type != JV_UNDEFINED); }
TEST(is_undefined) { return YES(v.type == JV_UNDEFINED); }
TEST(is_none) { return YES(v.type == JV_NONE); }
TEST(is_string) { return YES(v.type == JV_STR); }
TEST(is_number) { return YES(mt__j_is_number(v)); }
TEST(is_integer) { return YES(v.type == JV_INT || mt__j_is_long(v)); }
TEST(is_float) { return YES(v.type == JV_FLOAT && !v.n); }
TEST(is_boolean) { return YES(v.type == JV_BOOL); }
TEST(is_true) { return YES(v.type == JV_BOOL && v.b); }
TEST(is_false) { return YES(v.type == JV_BOOL && !v.b); }
TEST(is_mapping) { return YES(v.type == JV_DICT); }
TEST(is_callable) { return YES(mt__j_callable(v)); }
TEST(is_escaped) { return YES(v.type == JV_STR && v.safe); }

TEST(is_iterable)
{
    jtype t = (jtype)v.type;
    return YES(t == JV_UNDEFINED || t == JV_STR || mt__j_is_seq(v) || t == JV_DICT || t == JV_VIEW || t == JV_RANGE ||
               t == JV_ITER || t == JV_LOOP);
}

/* Anything with a length and an index. */
TEST(is_sequence)
{
    jtype t = (jtype)v.type;
    return YES(t == JV_UNDEFINED || t == JV_STR || mt__j_is_seq(v) || t == JV_DICT || t == JV_RANGE);
}

static mt_rc parity(jrender *r, jval v, bool odd, bool *out)
{
    jval rest;
    MT_TRY(mt__j_binary(r, OP_MOD, v, mt__j_int(2), &rest));
    return mt__j_equal(r, rest, mt__j_int(odd), out);
}

TEST(is_odd) { return (void)a, parity(r, v, true, out); }
TEST(is_even) { return (void)a, parity(r, v, false, out); }

TEST(is_divisible)
{
    jval rest;
    MT_TRY(mt__j_binary(r, OP_MOD, v, a[0], &rest));
    return mt__j_equal(r, rest, mt__j_int(0), out);
}

TEST(is_eq) { return mt__j_compare(r, OP_EQ, v, a[0], out); }
TEST(is_ne) { return mt__j_compare(r, OP_NE, v, a[0], out); }
TEST(is_lt) { return mt__j_compare(r, OP_LT, v, a[0], out); }
TEST(is_le) { return mt__j_compare(r, OP_LE, v, a[0], out); }
TEST(is_gt) { return mt__j_compare(r, OP_GT, v, a[0], out); }
TEST(is_ge) { return mt__j_compare(r, OP_GE, v, a[0], out); }
TEST(is_in) { return mt__j_contains(r, a[0], v, out); }

/* Python's `is`: one object.  Equal small numbers and strings usually are one there, so equality stands in. */
TEST(is_same)
{
    if (v.type != a[0].type) return YES(false);
    if (v.type <= JV_STR) return mt__j_equal(r, v, a[0], out);
    return YES(v.s == a[0].s);
}

static mt_rc cased(jrender *r, jval v, bool upper, bool *out)
{
    jval s, answer;
    MT_TRY(mt__j_str(r, v, &s));
    MT_TRY(upper ? mt__j_str_isupper(r, s, NULL, NULL, &answer) : mt__j_str_islower(r, s, NULL, NULL, &answer));
    *out = answer.b;
    return MT_OK;
}

TEST(is_lower) { return (void)a, cased(r, v, false, out); }
TEST(is_upper) { return (void)a, cased(r, v, true, out); }
TEST(is_filter) { return YES(v.type == JV_STR && mt__j_filter_named(v.s, v.n)); }
TEST(is_test) { return YES(v.type == JV_STR && mt__j_test_named(v.s, v.n)); }

static const jtest_row tests[] = {
    { "defined", is_defined, 0, "" },   { "undefined", is_undefined, 0, "" }, { "none", is_none, 0, "" },
    { "string", is_string, 0, "" },     { "number", is_number, 0, "" },       { "integer", is_integer, 0, "" },
    { "float", is_float, 0, "" },       { "boolean", is_boolean, 0, "" },     { "true", is_true, 0, "" },
    { "false", is_false, 0, "" },       { "mapping", is_mapping, 0, "" },     { "iterable", is_iterable, 0, "" },
    { "sequence", is_sequence, 0, "" }, { "callable", is_callable, 0, "" },   { "escaped", is_escaped, 0, "" },
    { "odd", is_odd, 0, "" },           { "even", is_even, 0, "" },           { "divisibleby", is_divisible, 1, "num" },
    { "eq", is_eq, 1, "other" },        { "==", is_eq, 1, "other" },          { "equalto", is_eq, 1, "other" },
    { "ne", is_ne, 1, "other" },        { "!=", is_ne, 1, "other" },          { "lt", is_lt, 1, "other" },
    { "lessthan", is_lt, 1, "other" },  { "<", is_lt, 1, "other" },           { "le", is_le, 1, "other" },
    { "<=", is_le, 1, "other" },        { "gt", is_gt, 1, "other" },          { "greaterthan", is_gt, 1, "other" },
    { ">", is_gt, 1, "other" },         { "ge", is_ge, 1, "other" },          { ">=", is_ge, 1, "other" },
    { "in", is_in, 1, "seq" },          { "sameas", is_same, 1, "other" },    { "lower", is_lower, 0, "" },
    { "upper", is_upper, 0, "" },       { "filter", is_filter, 0, "" },       { "test", is_test, 0, "" },
};

const jtest_row *mt__j_test_named(const char *name, size_t n)
{
    for (size_t i = 0; i < MT_COUNT(tests); i++)
        if (strlen(tests[i].name) == n && memcmp(tests[i].name, name, n) == 0) return &tests[i];
    return NULL;
}

mt_rc mt__j_apply_test(jrender *r, const jtest_row *t, jval v, const jargs *args, bool *out)
{
    jval bound[1] = { { 0 } };
    if (v.type == JV_STR) MT_TRY(mt__j_touch(r, v.n));
    MT_TRY(mt__j_bind_args(r, t->name, t->params, t->n_args, args, bound));
    return t->fn(r, v, bound, out);
}
