/* Chat templates made to hang, to overflow the stack or to take all memory, rendered with the bounds that users have on a thread
 * with a stack of 256 KB.  Each ends with an error that names the bound, or with its text. */
#include "test.h"

#include "jinja/jinja.h"

#include <pthread.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { STACK_BYTES = 1 << 20 }; /* instrumented frames are some four times as large */
#else
enum { STACK_BYTES = 256 << 10 };
#endif

typedef struct rendering {
    const char *text;
    mt_jinja_options options;
    mt_rc rc;
    mt_err err;
    mt_str out;
    size_t out_cap; /* what the output took at most */
} rendering;

static void *render(void *arg)
{
    rendering *r = arg;
    mt_jinja *t = NULL;
    r->rc = mt_jinja_parse(&t, r->text, strlen(r->text), "t", &r->err);
    if (!r->rc) r->rc = mt_jinja_render(t, NULL, &r->options, &r->out, NULL, &r->err);
    r->out_cap = r->out.cap;
    mt_jinja_free(t);
    return NULL;
}

static void render_on_small_stack(rendering *r)
{
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attr, render, r), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

#define GROW(start, step)                                                                                                        \
    "{% set ns = namespace(t=" start ") %}{% for i in range(1000) %}{% for j in range(20) %}{% set ns.t = " step                 \
    " %}{% endfor %}{% endfor %}"
#define OFTEN(what)                                                                                                              \
    "{% for i in range(1000) %}{% for j in range(1000) %}{% for k in [1] %}" what "{% endfor %}{% endfor %}{% endfor %}"

static void hostile_templates_end_with_the_bound_they_meet(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        bool few_steps; /* a tenth of the usual bound: long strings are slow under sanitizers */
    } cases[] = {
        /* depth: hashing, generators, comparing, showing, JSON, calls */
        { GROW("()", "(ns.t,)") "{{ {ns.t: 1}|length }}", "nested deeper", false },
        { GROW("()", "(ns.t,)") "{{ [ns.t]|unique|list|length }}", "nested deeper", false },
        { GROW("()", "(ns.t,)") "{{ {1: 2}[ns.t] }}", "nested deeper", false },
        { GROW("()", "(ns.t,)") "{{ ns.t == (ns.t,) }}", "nested deeper", false },
        { GROW("()", "(ns.t,)") "{{ ns.t < (ns.t,) }}", "nested deeper", false },
        { GROW("()", "(ns.t,)") "{{ ns.t }}", "nested deeper", false },
        { GROW("[]", "[ns.t]") "{{ ns.t|tojson }}", "nested deeper", false },
        { GROW("[1, 2]", "ns.t|map('abs')") "{{ ns.t|list }}", "nested deeper", false },
        { GROW("[1, 2]", "ns.t|select") "{{ ns.t|sum }}", "nested deeper", false },
        { GROW("[1, 2]", "ns.t|map('abs')") "{% for x in ns.t %}{% endfor %}", "nested deeper", false },
        { "{% macro f(x) %}{{ [x]|map('string')|map('upper')|join(f(x)) }}{% endmacro %}{{ f(1) }}", "nested deeper", false },
        { "{% for x in [1] recursive %}{{ loop([1])|upper }}{% endfor %}", "nested deeper", false },
        /* work on values that are shared: 2^60 parts */
        { "{% set ns = namespace(t=(1,)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}{{ {ns.t: 1}|length "
          "}}",
          "too many steps", false },
        { "{% set ns = namespace(t=(1,)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}{{ ns.t == (ns.t[0], "
          "ns.t[1]) }}",
          "too many steps", false },
        /* work on bytes */
        { "{{ ('\xc3\xa9' * 400000).strip('\xc3\xaa' * 400000 + '\xc3\xa9')|length }}", "too many steps", true },
        { "{% set s = 'a' * 6000000 %}" OFTEN("{% set x %}{{ s }}{% break %}{% endset %}"), "too many steps", true },
        { "{% set s = 'a' * 6000000 %}" OFTEN("{% set x = s.isalpha() %}"), "too many steps", true },
        { "{% set s = '\xc3\xa9' * 3000000 %}" OFTEN("{% set x = s|wordcount %}"), "too many steps", true },
        { "{% set s = 'a' * 6000000 %}" OFTEN("{% if s is lower %}{% endif %}"), "too many steps", true },
        { "{% set s = 'a' * 6000000 %}{% set t = 'a' * 6000000 %}" OFTEN("{% if s == t %}{% endif %}"), "too many steps", true },
        { "{% set s = 'a' * 6000000 %}" OFTEN("{% if 'b' in s %}{% endif %}"), "too many steps", true },
        { "{% set s = 'a' * 6000000 %}{% set d = {s: 1} %}" OFTEN("{% if d[s ~ ''] %}{% endif %}"), "too many steps", true },
        { "{% set s = 'a' * 6000000 %}" OFTEN("{% if s.startswith(('b', s)) %}{% endif %}"), "too many steps", true },
        { "{% set s = '%Z' * 1000000 %}" OFTEN("{% set x = strftime_now(s) %}"), "too many steps", true },
        { "{% set s = '%%' * 1000000 %}" OFTEN("{% set x = s % () %}"), "too many steps", true },
        { "{% set s = 'a' * 6000000 %}" OFTEN(
              "{% generation %}{% generation %}{% set x %}{{ s }}{% break %}{% endset %}{% endgeneration %}{% endgeneration %}"),
          "", true },
        /* memory, while it is being taken */
        { "{% set ns = namespace(t=[1]) %}{% for i in range(700) %}{% set ns.t = [ns.t] %}{% endfor %}{{ ns.t|tojson(indent='x' "
          "* 30000000)|length }}",
          "longer than", false },
        { "{% set ns = namespace(t=1) %}{% for i in range(700) %}{% set ns.t = {'a': ns.t} %}{% endfor %}{{ "
          "ns.t|tojson(separators=('x' * 30000000, 'y' * 30000000))|length }}",
          "longer than", false },
        { "{{ ('&' * 30000000)|urlencode|length }}", "longer than", false },
        { "{{ ('a\n' * 1000000)|indent('x' * 1000000)|length }}", "longer than", false },
        { "{{ '{0}{0}{0}{0}'.format('x' * 60000000)|length }}", "longer than", false },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rendering r = { .text = cases[i].text };
        if (cases[i].few_steps) r.options.max_steps = 2000000;
        render_on_small_stack(&r);
        if (r.rc == MT_OK || !strstr(r.err.msg, cases[i].says))
            fail_msg("%s\n  ended with %d: %s", cases[i].text, r.rc, r.err.msg);
        /* 64 MiB, half as much again by which it grows, and what one last value may be */
        assert_true(r.out_cap <= (size_t)100 << 20);
        mt_str_free(&r.out);
    }
}

/* These took time in proportion to the square of their length. */
static void long_texts_are_worked_on_in_one_pass(void **state)
{
    (void)state;
    static const struct {
        const char *text, *out;
    } cases[] = {
        { "{{ ('<' * 2000000)|striptags|length }}", "2000000" },
        { "{{ ('<!--' * 500000)|striptags|length }}", "2000000" },
        { "{{ ('<b>' * 500000 ~ '<')|striptags }}", "<" },
        { "{{ ('a' * 2000000).strip('b' * 2000000 + 'a')|length }}", "0" },
        { "{{ 'xxabcxx'.strip('x\xc3\xa9') }} {{ '\xc3\xa9y\xc3\xa9'.lstrip('x\xc3\xa9') }} {{ 'ab'.rstrip('') }}",
          "abc y\xc3\xa9 ab" },
        { "{{ ('a' * 1000000).find('a' * 500000 ~ 'b') }}", "-1" },
        { "{{ ('ab' * 9 ~ 'c').find('ab' * 5 ~ 'c') }} {{ 'abcdefghij-abcdefghi'.count('abcdefghi') }}", "8 2" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rendering r = { .text = cases[i].text };
        render_on_small_stack(&r);
        if (r.rc) fail_msg("%s: %s", cases[i].text, r.err.msg);
        assert_string_equal(r.out.s, cases[i].out);
        mt_str_free(&r.out);
    }
}

/* Steps grow with the context: ten filters, methods and searches each pass over 20 MB. */
static void a_long_record_may_take_long(void **state)
{
    (void)state;
    static const char text[] = "{% set ns = namespace(t=s) %}{% for i in range(10) %}{% set ns.t = ns.t|trim|string %}{% if "
                               "ns.t.startswith('b') or 'needle' in ns.t %}x{% endif %}"
                               "{% endfor %}{{ ns.t|length }}";
    size_t n = 20 << 20;
    mt_err err = { 0 };
    mt_arena a = { 0 };
    char *s = mt_malloc(n);
    assert_non_null(s);
    memset(s, 'a', n);
    mt_pair pair = { .key = "s", .key_n = 1, .value = { .type = MT_VALUE_STR } };
    pair.value.str.s = s, pair.value.str.n = n;
    mt_value context = { .type = MT_VALUE_MAP };
    context.map.pairs = &pair, context.map.n = 1;
    mt_jinja *t;
    mt_str out = { 0 };
    assert_ok(mt_jinja_parse(&t, text, sizeof text - 1, "t", &err));
    assert_ok(mt_jinja_render(t, &context, &(mt_jinja_options){ .max_steps = 1000000 }, &out, NULL, &err));
    assert_string_equal(out.s, "20971520");
    mt_jinja_free(t);
    mt_str_free(&out);
    mt_arena_free(&a);
    mt_free(s);
}

/* The parser has its own bounds.  Trees within them are walked on a small stack, too. */
static void deep_templates_are_refused_or_fit_the_stack(void **state)
{
    (void)state;
    static const struct {
        const char *open, *middle, *close;
        int times;
    } cases[] = {
        { "{{ [", "1", "]", 140 },
        { "", "{{ 1", "+1", 990 },
        { "", "{{ x", ".a", 990 },
        { "", "{{ x", "|upper", 990 },
        { "{% if x %}", "1", "{% endif %}", 140 },
        { "{% for x in y %}", "1", "{% endfor %}", 140 },
        { "{% macro f(a, b, c, d) %}", "1", "{% endmacro %}", 140 },
        { "{% set x %}", "1", "{% endset %}", 140 },
        { "{{ -(", "1", ")", 70 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_str text = { 0 };
        for (int k = 0; k < cases[i].times; k++)
            mt_str_puts(&text, k && cases[i].open[0] == '{' && cases[i].open[1] == '{' ? cases[i].open + 3 : cases[i].open);
        mt_str_puts(&text, cases[i].middle);
        for (int k = 0; k < cases[i].times; k++) mt_str_puts(&text, cases[i].close);
        if (strstr(text.s, "{{")) mt_str_puts(&text, " }}");
        rendering r = { .text = text.s };
        render_on_small_stack(&r);
        if (r.rc && !*r.err.msg) fail_msg("%.60s...: %d without a message", text.s, r.rc);
        mt_str_free(&r.out);
        mt_str_free(&text);
    }
}

static void slices_of_ranges_stay_within_64_bits(void **state)
{
    (void)state;
    rendering r = { .text = "{{ range(-9223372036854775807, 9223372036854775807, 4611686018427387904)[::5]|list }}" };
    render_on_small_stack(&r);
    assert_int_equal(r.rc, MT_ERANGE);
    assert_non_null(strstr(r.err.msg, "does not fit 64 bits"));
    rendering fine = { .text = "{{ range(10)[2:8:3]|list }}{{ range(10)[::-4]|list }}" };
    render_on_small_stack(&fine);
    assert_string_equal(fine.out.s, "[2, 5][9, 5, 1]");
    mt_str_free(&fine.out);
}

MT_TEST_MAIN(cmocka_unit_test(hostile_templates_end_with_the_bound_they_meet),
             cmocka_unit_test(long_texts_are_worked_on_in_one_pass), cmocka_unit_test(a_long_record_may_take_long),
             cmocka_unit_test(deep_templates_are_refused_or_fit_the_stack),
             cmocka_unit_test(slices_of_ranges_stay_within_64_bits))
