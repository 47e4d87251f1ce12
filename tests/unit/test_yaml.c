/* The YAML tree: what it keeps, what it resolves, and what it refuses with which words. */
#include "test.h"

#include "base/fault.h"
#include "base/str.h"
#include "base/yaml.h"

static mt_rc parse(const mt_yaml **out, mt_arena *a, const char *text, mt_err *err)
{
    return mt_yaml_parse(out, a, text, strlen(text), "c.yaml", err);
}

/* The tree as one line: scalars quoted as they were, lists in [], maps in {}. */
static void show(mt_str *s, const mt_yaml *node)
{
    if (node->kind == MT_YAML_SCALAR) {
        mt_str_printf(s, node->quoted ? "'%s'" : "%s", node->text);
        return;
    }
    mt_str_putc(s, node->kind == MT_YAML_MAP ? '{' : '[');
    for (const mt_yaml_item *it = node->items; it; it = it->next) {
        if (it->key) mt_str_printf(s, "%s=", it->key->text);
        show(s, it->value);
        if (it->next) mt_str_putc(s, ' ');
    }
    mt_str_putc(s, node->kind == MT_YAML_MAP ? '}' : ']');
}

static void documents_become_trees(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "a: 1\nb: [x, 'y', {c: d}]", "{a=1 b=[x 'y' {c=d}]}" },
        { "a: |\n  two\n  lines\n", "{a='two\nlines\n'}" },
        { "a: !!str 5", "{a='5'}" },
        { "a: &k [1, 2]\nb: *k", "{a=[1 2] b=[1 2]}" },
        { "base: &b {x: 1, y: 2}\nuse: {<<: *b, y: 3}", "{base={x=1 y=2} use={y=3 x=1}}" },
        { "a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b], z: 0}", "{a={x=1} b={x=2 y=2} c={z=0 x=1 y=2}}" },
        { "'<<': kept", "{<<=kept}" },
        { "\xef\xbb\xbf"
          "a: b\nc: d",
          "{a=b c=d}" },
        { "--- {a: }\n", "{a=}" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_arena a = { 0 };
        mt_err err = { 0 };
        mt_str s = { 0 };
        const mt_yaml *root;
        assert_ok(parse(&root, &a, cases[i].in, &err));
        show(&s, root);
        assert_string_equal(s.s, cases[i].out);
        mt_str_free(&s);
        mt_arena_free(&a);
    }
}

static void nothing_is_nothing(void **state)
{
    (void)state;
    static const char *const cases[] = { "", "# only a comment\n", "---\n", "null", "~" };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_arena a = { 0 };
        mt_err err = { 0 };
        const mt_yaml *root;
        assert_ok(parse(&root, &a, cases[i], &err));
        assert_null(root);
        mt_arena_free(&a);
    }
}

static void lines_are_remembered(void **state)
{
    (void)state;
    mt_arena a = { 0 };
    mt_err err = { 0 };
    const mt_yaml *root;
    assert_ok(parse(&root, &a, "# one\na:\n\n  b: 1\n", &err));
    assert_int_equal(root->items->key->line, 2);
    assert_int_equal(root->items->value->items->value->line, 4);
    mt_arena_free(&a);
}

static void malformed_documents_are_refused_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *in, *says;
    } cases[] = {
        { "a:\n\tb: 1", "c.yaml:2:1: found character that cannot start any token" },
        { "a:\n\tb: 1", "indent with spaces" },
        { "a: [1, 2", "c.yaml:2:1: did not find expected ',' or ']', while parsing a flow sequence that starts in line 1" },
        { "a: 1\nb: 2\na: 3", "c.yaml:3: \"a\" is given twice; the first is in line 1" },
        { "a: 1\n---\nb: 2", "c.yaml:2: a second document starts here" },
        { "a: *nowhere", "*nowhere refers to an anchor that is not complete" },
        { "a: &a [*a]", "*a refers to an anchor that is not complete" },
        { "a: &a 1\nb: {<<: *a}", "c.yaml:2: << takes a section" },
        { "? [a]\n: b", "a key must be a word" },
        { "a: !!python/object:os.system x", "the tag tag:yaml.org,2002:python/object:os.system has no meaning here" },
        { "a: \"x\\0y\"", "a NUL byte" },
        { "a: \xff", "byte 3 is not valid UTF-8" },
        { "a: \x01", "control characters are not allowed" },
        { "[[[[[[[[[[[[[[[[[[[[[[", "nested deeper than 16 levels" },
        { "a: 'x", "while scanning a quoted scalar that starts in line 1" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_arena a = { 0 };
        mt_err err = { 0 };
        const mt_yaml *root;
        mt_rc rc = parse(&root, &a, cases[i].in, &err);
        assert_true(rc == MT_EFORMAT || rc == MT_EUNSUPPORTED);
        assert_null(root);
        assert_says(cases[i].says);
        assert_says("c.yaml");
        mt_arena_free(&a);
    }
}

static void size_is_bounded(void **state)
{
    (void)state;
    mt_arena a = { 0 };
    mt_err err = { 0 };
    mt_str s = { 0 };
    const mt_yaml *root;
    mt_str_puts(&s, "[");
    for (int i = 0; i < MT_YAML_MAX_NODES; i++) mt_str_puts(&s, "1,");
    mt_str_puts(&s, "]");
    assert_int_equal(parse(&root, &a, s.s, &err), MT_EFORMAT);
    assert_says("more than 10000 values");
    while (s.n <= MT_YAML_MAX_BYTES) mt_str_puts(&s, "                                        ");
    assert_int_equal(parse(&root, &a, s.s, &err), MT_EFORMAT);
    assert_says("a configuration has at most 262144");
    mt_str_free(&s);
    mt_arena_free(&a);
}

static void numbers_are_what_people_mean(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        double out;
    } good[] = { { "1e-5", 1e-5 }, { "1E5", 1e5 }, { "-0.5", -0.5 }, { "+3", 3 }, { ".5", 0.5 }, { "1_000", 1000 }, { "5.", 5 } };
    static const char *const bad[] = { "",    "-",   ".",   "e5",  "1e", "0x10",  "nan", ".nan",
                                       "inf", "1 2", "1,5", "1__", "_1", "1e999", "--1" };
    double v;
    for (size_t i = 0; i < MT_COUNT(good); i++) {
        assert_true(mt_yaml_number(good[i].in, &v));
        assert_true(v == good[i].out);
    }
    for (size_t i = 0; i < MT_COUNT(bad); i++)
        if (mt_yaml_number(bad[i], &v)) fail_msg("\"%s\" is no number", bad[i]);
    assert_true(mt_yaml_number("-.inf", &v) && v < -1e308);
    bool b;
    assert_true(mt_yaml_bool("Yes", &b) && b);
    assert_true(mt_yaml_bool("OFF", &b) && !b);
    assert_false(mt_yaml_bool("y", &b));
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *text = "a: &k {x: [1, 2, 3], y: 'text'}\nb: {<<: *k, z: 1}\n";
    for (int n = 0;; n++) {
        mt_arena a = { 0 };
        mt_err err = { 0 };
        const mt_yaml *root;
        mt_fault_arm(MT_FAULT_ALLOC, n);
        mt_rc rc = parse(&root, &a, text, &err);
        bool hit = mt_fault_disarm();
        mt_arena_free(&a);
        if (!hit) {
            assert_int_equal(rc, MT_OK);
            break;
        }
        assert_int_equal(rc, MT_ENOMEM);
    }
}

MT_TEST_MAIN(cmocka_unit_test(documents_become_trees), cmocka_unit_test(nothing_is_nothing),
             cmocka_unit_test(lines_are_remembered), cmocka_unit_test(malformed_documents_are_refused_with_their_place),
             cmocka_unit_test(size_is_bounded), cmocka_unit_test(numbers_are_what_people_mean),
             cmocka_unit_test(every_allocation_may_fail))
