/* Chat templates against transformers: every row of a file jinja/NAME.jsonl is a template, a context, and what jinja2 made of
 * it (make_goldens.py).  Also what jinja2 cannot tell us: places of mistakes, bounds, memory that runs out. */
#include "archives.h"

#include "base/fault.h"
#include "base/value.h"
#include "jinja/jinja.h"

#include <pthread.h>
#include <stdlib.h>

#define GOLDEN(name) (MT_TESTS_DIR "/golden/jinja/" name)

static const struct tm noon = {
    .tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_hour = 13, .tm_min = 5, .tm_sec = 9, .tm_wday = 5, .tm_yday = 207
};

static char *read_text(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    mt_str s = { 0 };
    char block[65536];
    for (size_t got; (got = fread(block, 1, sizeof block, f)) > 0;) mt_str_add(&s, block, got);
    mt_str_putc(&s, '\0');
    fclose(f);
    *n = s.n - 1;
    return s.s;
}

static mt_value read_json(mt_arena *a, const char *path, char **text)
{
    mt_err err = { 0 };
    mt_value v;
    size_t n;
    *text = read_text(path, &n);
    if (!*text) fail_msg("cannot read %s", path);
    assert_ok(mt_value_parse_json(&v, a, *text, n, NULL, path, &err));
    return v;
}

static size_t chars(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

/* Spans are bytes here and characters there. */
static void check_spans(const mt_value *want, const mt_str *out, const mt_jinja_spans *spans, const char *what)
{
    size_t n = want ? want->list.n : 0;
    if (spans->n != n) fail_msg("%s: %zu generation blocks, expected %zu", what, spans->n, n);
    for (size_t i = 0; i < n; i++) {
        const mt_value *pair = want->list.items[i].list.items;
        assert_int_equal(chars(out->s, spans->items[i].begin), pair[0].i);
        assert_int_equal(chars(out->s, spans->items[i].end), pair[1].i);
    }
}

static void check_row(const mt_value *row, const char *text, size_t n, const mt_value *context, const char *what)
{
    static mt_arena scratch;
    mt_err err = { 0 };
    mt_jinja *t = NULL;
    mt_str out = { 0 };
    mt_jinja_spans spans = { 0 };
    mt_jinja_options opt = { .now = &noon, .scratch = &scratch };
    const mt_value *want = mt_value_get(row, "out");
    mt_rc rc = mt_jinja_parse(&t, text, n, "template", &err);
    if (!rc) rc = mt_jinja_render(t, context, &opt, &out, &spans, &err);
    if (rc && want) fail_msg("%s: %.*s\nfailed: %s\nexpected: %.*s", what, (int)n, text, err.msg, (int)want->str.n, want->str.s);
    if (!rc && !want) fail_msg("%s: %.*s\ngave: %s\nexpected a failure", what, (int)n, text, out.s);
    if (want && (out.n != want->str.n || (out.n && memcmp(out.s, want->str.s, out.n) != 0)))
        fail_msg("%s: %.*s\ngave: %s\nexpected: %.*s", what, (int)n, text, out.s, (int)want->str.n, want->str.s);
    if (want) check_spans(mt_value_get(row, "spans"), &out, &spans, what);
    if (rc) assert_true(strncmp(err.msg, "template:", 9) == 0);
    mt_jinja_spans_free(&spans);
    mt_str_free(&out);
    mt_jinja_free(t);
    mt_arena_free(&scratch);
}

static void snippets_render_as_in_jinja2(void **state)
{
    (void)state;
    mt_arena a = { 0 };
    char *context_text;
    mt_value context = read_json(&a, GOLDEN("context.json"), &context_text);
    size_t n, used;
    char *text = read_text(GOLDEN("snippets.jsonl"), &n);
    assert_non_null(text);
    int rows = 0;
    for (size_t at = 0; at + 1 < n; at += used, rows++) {
        mt_err err = { 0 };
        mt_value row;
        assert_ok(mt_value_parse_json(&row, &a, text + at, n - at, &used, "snippets.jsonl", &err));
        const mt_value *t = mt_value_get(&row, "template");
        check_row(&row, t->str.s, t->str.n, &context, "snippet");
    }
    assert_true(rows > 700);
    free(text);
    free(context_text);
    mt_arena_free(&a);
}

/* A context with the special tokens in front, the conversation's own fields, and what the row says. */
static mt_value chat_context(mt_arena *a, const mt_value *specials, const mt_value *conversation, const mt_value *row)
{
    static const char *const absent[] = { "tools", "documents" };
    mt_pair *pairs = mt_arena_calloc(a, specials->map.n + conversation->map.n + 3, sizeof *pairs);
    size_t n = 0;
    for (size_t i = 0; i < specials->map.n; i++) pairs[n++] = specials->map.pairs[i];
    for (size_t i = 0; i < MT_COUNT(absent); i++)
        if (!mt_value_get(conversation, absent[i])) pairs[n++] = (mt_pair){ .key = absent[i], .key_n = strlen(absent[i]) };
    for (size_t i = 0; i < conversation->map.n; i++) pairs[n++] = conversation->map.pairs[i];
    pairs[n++] = (mt_pair){ .key = "add_generation_prompt", .key_n = 21, .value = *mt_value_get(row, "add_generation_prompt") };
    mt_value context = { .type = MT_VALUE_MAP };
    context.map.pairs = pairs;
    context.map.n = n;
    return context;
}

static const char *text_of(mt_arena *a, const mt_value *v) { return mt_arena_strndup(a, v->str.s, v->str.n); }

typedef struct chat_test {
    mt_arena arena;
    mt_value conversations;
    mt_value specials;
    char *conversations_text;
} chat_test;

static void open_chats(chat_test *c)
{
    static const char specials[] =
        "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"pad_token\": \"<pad>\", \"unk_token\": \"<unk>\"}";
    mt_err err = { 0 };
    c->conversations = read_json(&c->arena, GOLDEN("conversations.json"), &c->conversations_text);
    assert_ok(mt_value_parse_json(&c->specials, &c->arena, specials, strlen(specials), NULL, "specials", &err));
}

static void close_chats(chat_test *c)
{
    free(c->conversations_text);
    mt_arena_free(&c->arena);
}

static void chat_templates_render_as_in_transformers(void **state)
{
    (void)state;
    chat_test c = { 0 };
    open_chats(&c);
    size_t n, used;
    char *rows = read_text(GOLDEN("chats.jsonl"), &n);
    assert_non_null(rows);
    for (size_t at = 0; at + 1 < n; at += used) {
        mt_err err = { 0 };
        mt_value row;
        char path[1024], what[256];
        assert_ok(mt_value_parse_json(&row, &c.arena, rows + at, n - at, &used, "chats.jsonl", &err));
        const char *name = text_of(&c.arena, mt_value_get(&row, "template")),
                   *conversation = text_of(&c.arena, mt_value_get(&row, "case"));
        snprintf(path, sizeof path, GOLDEN("templates/%s"), name);
        snprintf(what, sizeof what, "%s, %s", name, conversation);
        size_t text_n;
        char *text = read_text(path, &text_n);
        assert_non_null(text);
        mt_value context = chat_context(&c.arena, &c.specials, mt_value_get(&c.conversations, conversation), &row);
        check_row(&row, text, text_n, &context, what);
        free(text);
    }
    free(rows);
    close_chats(&c);
}

/* The special tokens of a tokenizer_config.json, which writes them as strings or as objects. */
static mt_value config_specials(mt_arena *a, const mt_value *config)
{
    static const char *const names[] = { "bos_token", "eos_token", "pad_token", "unk_token" };
    mt_pair *pairs = mt_arena_calloc(a, MT_COUNT(names), sizeof *pairs);
    mt_value v = { .type = MT_VALUE_MAP };
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        const mt_value *token = mt_value_get(config, names[i]);
        if (token && token->type == MT_VALUE_MAP) token = mt_value_get(token, "content");
        if (token && token->type == MT_VALUE_STR)
            pairs[v.map.n++] = (mt_pair){ .key = names[i], .key_n = strlen(names[i]), .value = *token };
    }
    v.map.pairs = pairs;
    return v;
}

static const mt_value *config_template(const mt_value *config, const mt_value *name)
{
    const mt_value *t = mt_value_get(config, "chat_template");
    if (!t || t->type != MT_VALUE_LIST) return t;
    for (size_t i = 0; i < t->list.n; i++)
        if (mt_value_equal(mt_value_get(&t->list.items[i], "name"), name)) return mt_value_get(&t->list.items[i], "template");
    return NULL;
}

static void archive_row(chat_test *c, const mt_value *row, archives *all)
{
    char path[1024], what[256], *config_text;
    const char *archive = text_of(&c->arena, mt_value_get(row, "archive")),
               *conversation = text_of(&c->arena, mt_value_get(row, "case"));
    const char *dir = archive_find(all, archive);
    if (!dir) return;
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    snprintf(what, sizeof what, "%s, %s", archive, conversation);
    mt_value config = read_json(&c->arena, path, &config_text);
    const mt_value *text = config_template(&config, mt_value_get(row, "name"));
    assert_non_null(text);
    mt_value specials = config_specials(&c->arena, &config);
    mt_value context = chat_context(&c->arena, &specials, mt_value_get(&c->conversations, conversation), row);
    check_row(row, text->str.s, text->str.n, &context, what);
    free(config_text);
}

static void archived_templates_render_as_in_transformers(void **state)
{
    (void)state;
    chat_test c = { 0 };
    archives all;
    archives_open(&all);
    open_chats(&c);
    size_t n, used;
    char *rows = read_text(GOLDEN("archives.jsonl"), &n);
    assert_non_null(rows);
    for (size_t at = 0; at + 1 < n; at += used) {
        mt_err err = { 0 };
        mt_value row;
        assert_ok(mt_value_parse_json(&row, &c.arena, rows + at, n - at, &used, "archives.jsonl", &err));
        archive_row(&c, &row, &all);
    }
    free(rows);
    close_chats(&c);
    if (!archives_close(&all)) skip();
}

static void mistakes_are_named_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "{% if x %}", "t:1:4: 'if' is not closed" },
        { "a\nb {% for x in y %}\n{% endif %}", "t:3:4: an unknown tag, 'endif'" },
        { "{{ }}", "t:1:4: an expression was expected" },
        { "{{ a b }}", "t:1:6: '}}' was expected, not 'b'" },
        { "{{ 'abc }}", "t:1:4: a string that is not closed" },
        { "\n\n  {{ x", "t:3:3: a {{ that is not closed" },
        { "{# x", "t:1:1: a comment" },
        { "{% raw %} {{ x }}", "t:1:1: a {% raw %}" },
        { "{{ (1, 2] }}", "t:1:9: a closing bracket" },
        { "{{ a.1.b. }}", "t:1:11: expected a name or a number" },
        { "日本 {{ ! }}", "t:1:7: a character that has no meaning" },
        { "{% set 1 = 2 %}", "t:1:8: this cannot be assigned to" },
        { "{% set x.y.z = 2 %}", "t:1:11: '%}' was expected, not '.'" },
        { "{{ x|nosuch }}", "t:1:6: no filter named 'nosuch'" },
        { "{{ x is nosuch }}", "t:1:9: no test named 'nosuch'" },
        { "{% break %}", "t:1:4: 'break' outside of a loop" },
        { "{{ f(a=1, 2) }}", "t:1:11: the arguments of a call are out of order" },
        { "{{ f(a=1, a=2) }}", "t:1:11: an argument that is given twice" },
        { "{% macro f(a=1, b) %}{% endmacro %}", "t:1:17: a parameter without a default" },
        { "{% include 'x' %}", "t:1:4: {% include %} is not supported" },
        { "{% extends 'x' %}", "{% extends %} is not supported" },
        { "{% import 'x' as y %}", "{% import %} is not supported" },
        { "{% from 'x' import y %}", "{% from %} is not supported" },
        { "{% block x %}{% endblock %}", "{% block %} is not supported" },
        { "{{ 99999999999999999999 }}", "t:1:4: an integer that does not fit" },
        { "{{ '\\x4' }}", "t:1:5: an escape in a string" },
        { "{{ 1 is odd is even }}", "" },
        { "\xff", "not valid UTF-8" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_jinja *t = NULL;
        mt_rc rc = mt_jinja_parse(&t, cases[i].text, strlen(cases[i].text), "t", &err);
        if (*cases[i].says) {
            assert_int_not_equal(rc, MT_OK);
            assert_null(t);
            assert_says(cases[i].says);
        }
        mt_jinja_free(t);
    }
}

static mt_rc render_text(const char *text, const mt_jinja_options *opt, mt_str *out, mt_err *err)
{
    mt_jinja *t;
    MT_TRY(mt_jinja_parse(&t, text, strlen(text), "t", err));
    mt_rc rc = mt_jinja_render(t, NULL, opt, out, NULL, err);
    mt_jinja_free(t);
    return rc;
}

static void failures_while_rendering_have_a_place_and_leave_the_output_alone(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        mt_rc rc;
    } cases[] = {
        { "ab\n {{ x.y }}", "t:2:7: 'x' is undefined", MT_EINVAL },
        { "{{ {}.a.b }}", "t:1:9: 'dict object' has no attribute 'a'", MT_EINVAL },
        { "{{ raise_exception('Only user & assistant: \"%s\"!') }}", "Only user & assistant: \"%s\"!", MT_EINVAL },
        { "{{ [].append(1) }}", "access to attribute 'append' of 'list' object is unsafe.", MT_EINVAL },
        { "{{ 1 + 'a' }}", "t:1:6: unsupported operand type(s) for +: 'int' and 'str'", MT_EINVAL },
        { "{{ [1]|random }}", "the random filter is refused", MT_EUNSUPPORTED },
        { "{% if true %}{{ 1|nosuch }}{% endif %}", "t:1:19: no filter named 'nosuch'", MT_EINVAL },
        { "{{ 9223372036854775807 + 1 }}", "does not fit 64 bits", MT_ERANGE },
        { "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested deeper", MT_ERANGE },
        { "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "nested deeper", MT_ERANGE },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_str out = { 0 };
        mt_str_puts(&out, "kept");
        assert_int_equal(render_text(cases[i].text, NULL, &out, &err), cases[i].rc);
        assert_says(cases[i].says);
        assert_string_equal(out.s, "kept");
        mt_str_free(&out);
    }
}

/* Integers that no arithmetic on them may leave: what Python makes of them (and UBSan of us). */
static void the_smallest_integers_are_widths_and_counts_like_others(void **state)
{
    (void)state;
    static const char *const calls[] = { "'ab'.center(X)",
                                         "'ab'.ljust(X)",
                                         "'ab'.rjust(X)",
                                         "'ab'.zfill(X)",
                                         "'ab'|center(X)",
                                         "'cb'.replace('c', 'a', X)",
                                         "'-7'.zfill(X)|replace('-7', 'ab', X)" };
    static const char *const smallest[] = { "-9223372036854775807 - 1", "-9223372036854775807" };
    for (size_t i = 0; i < MT_COUNT(calls); i++)
        for (size_t k = 0; k < MT_COUNT(smallest); k++) {
            mt_str text = { 0 }, out = { 0 };
            mt_err err = { 0 };
            mt_str_puts(&text, "{{ ");
            for (const char *c = calls[i]; *c; c++) *c == 'X' ? mt_str_puts(&text, smallest[k]) : mt_str_putc(&text, *c);
            mt_str_puts(&text, " }}");
            assert_ok(render_text(text.s, NULL, &out, &err));
            assert_string_equal(out.s, "ab");
            mt_str_free(&text);
            mt_str_free(&out);
        }
}

static void strangers_templates_cannot_run_away(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "too many steps" },
        { "{{ 'x' * 999999999 }}", "MiB of memory" },
        { "{% for a in range(99999) %}{{ 'xxxxxxxxxxxxxxxx' * 1000 }}{% endfor %}", "longer than" },
        { "{% set ns = namespace(l=[1]) %}{% for a in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "memory" },
        { "{{ 'a'.center(999999999) }}", "memory" },
        { "{% set s = 'a' * 800000 %}{{ s.rfind('b' ~ s[400000:]) }}", "too many steps" },
        { "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{% if s|length %}{% endif %}{% endfor %}", "too many steps" },
        { "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}", "too many steps" },
        { "{% set ns = namespace(s='ab') %}{% for a in range(99) %}{% set ns.s = ns.s.replace('', ns.s) %}{% endfor %}", "" },
    };
    mt_jinja_options opt = { .max_steps = 1000000, .max_output_bytes = 1 << 20, .max_memory_bytes = 16 << 20 };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_str out = { 0 };
        assert_int_equal(render_text(cases[i].text, &opt, &out, &err), MT_ERANGE);
        assert_says(cases[i].says);
        mt_str_free(&out);
    }
    mt_str deep = { 0 };
    mt_err err = { 0 };
    mt_jinja *t;
    mt_str_puts(&deep, "{{ ");
    for (int i = 0; i < 400; i++) mt_str_puts(&deep, "[");
    for (int i = 0; i < 400; i++) mt_str_puts(&deep, "]");
    mt_str_puts(&deep, " }}");
    assert_int_equal(mt_jinja_parse(&t, deep.s, deep.n, "t", &err), MT_EFORMAT);
    assert_says("nested deeper");
    mt_str_clear(&deep);
    mt_str_puts(&deep, "{{ 1");
    for (int i = 0; i < 5000; i++) mt_str_puts(&deep, "+1");
    mt_str_puts(&deep, " }}");
    assert_int_equal(mt_jinja_parse(&t, deep.s, deep.n, "t", &err), MT_EFORMAT);
    mt_str_free(&deep);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char text[] =
        "{% macro f(a, b=[1]) %}{{ a }}{{ b|join(',') }}{% endmacro %}{% for i in range(3) %}{{ f(i) ~ loop.length }}{% endfor %}"
        "{% set x %}{{ {'a': [1, 2]}|tojson(indent=2) }}{% endset %}{{ x|upper }}{% generation %}y{% endgeneration %}";
    for (int n = 0;; n++) {
        mt_err err = { 0 };
        mt_str out = { 0 };
        mt_jinja *t = NULL;
        mt_jinja_spans spans = { 0 };
        mt_fault_arm(MT_FAULT_ALLOC, n);
        mt_rc rc = mt_jinja_parse(&t, text, sizeof text - 1, "t", &err);
        if (!rc) rc = mt_jinja_render(t, NULL, NULL, &out, &spans, &err);
        bool hit = mt_fault_disarm();
        mt_jinja_free(t);
        mt_str_free(&out);
        mt_jinja_spans_free(&spans);
        if (!hit) {
            assert_int_equal(rc, MT_OK);
            break;
        }
        assert_int_equal(rc, MT_ENOMEM);
    }
}

static void templates_say_what_they_read(void **state)
{
    (void)state;
    static const char text[] =
        "{% for m in messages %}{{ m.tools }}{% generation %}{% endgeneration %}{% endfor %}{% if enable_thinking %}{% endif %}";
    mt_err err = { 0 };
    mt_jinja *t;
    assert_ok(mt_jinja_parse(&t, text, sizeof text - 1, "t", &err));
    assert_true(mt_jinja_has_generation(t));
    assert_true(mt_jinja_reads(t, "messages"));
    assert_true(mt_jinja_reads(t, "enable_thinking"));
    assert_false(mt_jinja_reads(t, "tools"));
    assert_false(mt_jinja_reads(t, "m"));
    mt_jinja_free(t);
}

typedef struct worker {
    const mt_jinja *t;
    mt_value context;
    mt_str first;
    bool same;
} worker;

static void *render_often(void *arg)
{
    worker *w = arg;
    mt_arena scratch = { 0 };
    mt_jinja_options opt = { .now = &noon, .scratch = &scratch };
    mt_str out = { 0 };
    mt_err err = { 0 };
    w->same = true;
    for (int i = 0; i < 200; i++) {
        mt_str_clear(&out);
        w->same = w->same && mt_jinja_render(w->t, &w->context, &opt, &out, NULL, &err) == MT_OK && out.n == w->first.n &&
                  memcmp(out.s, w->first.s, out.n) == 0;
    }
    mt_str_free(&out);
    mt_arena_free(&scratch);
    return NULL;
}

static void threads_share_a_template(void **state)
{
    (void)state;
    chat_test c = { 0 };
    open_chats(&c);
    mt_err err = { 0 };
    size_t n;
    char *text = read_text(GOLDEN("templates/everything.jinja"), &n);
    mt_jinja *t;
    mt_value row = { .type = MT_VALUE_MAP };
    row.map.pairs = &(mt_pair){ .key = "add_generation_prompt", .key_n = 21, .value = { .type = MT_VALUE_BOOL, .b = true } };
    row.map.n = 1;
    worker w[4] = { 0 };
    pthread_t threads[MT_COUNT(w)];
    assert_ok(mt_jinja_parse(&t, text, n, "t", &err));
    for (size_t i = 0; i < MT_COUNT(w); i++) {
        w[i].t = t;
        w[i].context = chat_context(&c.arena, &c.specials, mt_value_get(&c.conversations, i % 2 ? "tools" : "many turns"), &row);
        assert_ok(mt_jinja_render(t, &w[i].context, &(mt_jinja_options){ .now = &noon }, &w[i].first, NULL, &err));
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &w[i]), 0);
    }
    for (size_t i = 0; i < MT_COUNT(w); i++) {
        pthread_join(threads[i], NULL);
        assert_true(w[i].same);
        mt_str_free(&w[i].first);
    }
    mt_jinja_free(t);
    free(text);
    close_chats(&c);
}

MT_TEST_MAIN(cmocka_unit_test(snippets_render_as_in_jinja2), cmocka_unit_test(chat_templates_render_as_in_transformers),
             cmocka_unit_test(archived_templates_render_as_in_transformers),
             cmocka_unit_test(mistakes_are_named_with_their_place),
             cmocka_unit_test(failures_while_rendering_have_a_place_and_leave_the_output_alone),
             cmocka_unit_test(the_smallest_integers_are_widths_and_counts_like_others),
             cmocka_unit_test(strangers_templates_cannot_run_away), cmocka_unit_test(every_allocation_may_fail),
             cmocka_unit_test(templates_say_what_they_read), cmocka_unit_test(threads_share_a_template))
