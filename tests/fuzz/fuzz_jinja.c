/* Chat templates from strangers: any bytes parse or are refused, and what parses renders within its bounds.
 * The bytes are a template; after a NUL byte, if there is one, follows the context as JSON. */
#include "base/value.h"
#include "harness.h"
#include "jinja/jinja.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char default_context[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be\"}, {\"role\": \"user\", \"content\": \"Größe 🎉\"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1, "
    "2.5, true]}}}]}],"
    " \"tools\": [{\"type\": \"function\"}], \"s\": \"text\", \"n\": 7, \"f\": -2.5, \"l\": [3, 1, 2], \"d\": {\"a\": 1, \"b\": "
    "{}}, \"bos_token\": \"<s>\","
    " \"add_generation_prompt\": true}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data, *nul = n ? memchr(text, '\0', n) : NULL;
    size_t text_n = nul ? (size_t)(nul - text) : n;
    mt_arena a = { 0 };
    mt_value context;
    mt_err err = { 0 };
    mt_jinja *t;
    mt_rc rc = nul ? mt_value_parse_json(&context, &a, nul + 1, n - text_n - 1, NULL, "context", &err) : MT_EINVAL;
    if (rc) rc = mt_value_parse_json(&context, &a, default_context, sizeof default_context - 1, NULL, "context", &err);
    if (!rc && mt_jinja_parse(&t, text, text_n, "fuzz", &err) == MT_OK) {
        mt_str out = { 0 };
        mt_jinja_spans spans = { 0 };
        const struct tm now = { .tm_year = 124, .tm_mday = 1 };
        mt_jinja_options opt = { .now = &now, .max_steps = 20000, .max_output_bytes = 1 << 16, .max_memory_bytes = 4 << 20 };
        if (fuzz_production) opt = (mt_jinja_options){ .now = &now };
        mt_jinja_render(t, &context, &opt, &out, &spans, &err);
        mt_jinja_spans_free(&spans);
        mt_str_free(&out);
        mt_jinja_free(t);
    }
    mt_arena_free(&a);
    return 0;
}

/* -- templates by their grammar ----------------------------------------------------------------------- */

static const char *const names[] = { "messages", "tools",      "s",         "n", "f",    "l",  "d",    "bos_token", "m",
                                     "ns.x",     "loop.index", "loop.last", "x", "loop", "ns", "none", "true" };
static const char *const filters[] = {
    "abs",
    "attr('role')",
    "batch(2)",
    "batch(3, 0)",
    "capitalize",
    "center(9)",
    "count",
    "default('z')",
    "dictsort",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format(1)",
    "groupby('role')",
    "indent(2)",
    "int",
    "items",
    "join(', ')",
    "last",
    "length",
    "list",
    "lower",
    "map('upper')",
    "map(attribute='role')",
    "max",
    "min",
    "reject('none')",
    "rejectattr('content')",
    "replace('e', 'EE')",
    "reverse",
    "round(1)",
    "safe",
    "select",
    "selectattr('role', 'equalto', 'user')",
    "slice(2)",
    "sort",
    "sort(attribute='role')",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "tojson(indent=2)",
    "tojson(indent='xx', sort_keys=true)",
    "trim",
    "trim('ab')",
    "truncate(5)",
    "unique",
    "upper",
    "urlencode",
    "wordcount",
    "xmlattr",
};
static const char *const methods[] = {
    "strip()",
    "strip('a b')",
    "lstrip('x')",
    "rstrip()",
    "split()",
    "split('a')",
    "split(' ', 1)",
    "rsplit('e', 2)",
    "splitlines()",
    "startswith('B')",
    "endswith(('a', 'b'))",
    "replace('', '-')",
    "upper()",
    "lower()",
    "title()",
    "swapcase()",
    "find('e')",
    "rfind('e', 1)",
    "count('e')",
    "join(l)",
    "format(1, a=2)",
    "zfill(9)",
    "center(9, '*')",
    "ljust(9)",
    "partition('e')",
    "expandtabs(3)",
    "isalpha()",
    "istitle()",
    "get('a')",
    "keys()",
    "values()",
    "items()",
    "index(1)",
    "copy()",
};
static const char *const tests[] = { "defined",        "none",  "string",       "mapping", "iterable", "odd",
                                     "divisibleby(2)", "in(l)", "sameas(none)", "lower",   "eq(1)",    "sequence" };
static const char *const operators[] = { "+",  "-",  "*", "/",  "//",  "%",  "**", "~",
                                         "==", "!=", "<", "<=", "and", "or", "in", "not in" };
static const char *const constants[] = { "1",   "0",  "-1",      "7",          "2.5",        "1e9",
                                         "'a'", "''", "'%s %d'", "'<b>x</b>'", "'\xc3\xa9'", "9223372036854775807",
                                         "[]",  "{}", "()",      "range(5)" };

static void put_expression(fuzz_rng *r, mt_str *s, int depth)
{
    size_t kind = depth > 5 ? fuzz_below(r, 2) : fuzz_below(r, 14);
    switch (kind) {
    case 0: mt_str_puts(s, FUZZ_PICK(r, names)); return;
    case 1: mt_str_puts(s, FUZZ_PICK(r, constants)); return;
    case 2:
    case 3: put_expression(r, s, depth + 1), mt_str_printf(s, "|%s", FUZZ_PICK(r, filters)); return;
    case 4: mt_str_putc(s, '('), put_expression(r, s, depth + 1), mt_str_printf(s, ").%s", FUZZ_PICK(r, methods)); return;
    case 5:
    case 6:
        mt_str_putc(s, '('), put_expression(r, s, depth + 1), mt_str_printf(s, " %s ", FUZZ_PICK(r, operators));
        put_expression(r, s, depth + 1), mt_str_putc(s, ')');
        return;
    case 7: mt_str_putc(s, '('), put_expression(r, s, depth + 1), mt_str_printf(s, ") is %s", FUZZ_PICK(r, tests)); return;
    case 8:
        mt_str_puts(s, fuzz_once_in(r, 2) ? "[" : "(");
        {
            char close = s->s[s->n - 1] == '[' ? ']' : ')';
            for (size_t n = 1 + fuzz_below(r, 3); n; n--) put_expression(r, s, depth + 1), mt_str_puts(s, ", ");
            mt_str_putc(s, close);
        }
        return;
    case 9:
        mt_str_puts(s, "{"), put_expression(r, s, depth + 1), mt_str_puts(s, ": "), put_expression(r, s, depth + 1),
            mt_str_puts(s, "}");
        return;
    case 10:
        put_expression(r, s, depth + 1), mt_str_puts(s, "["), put_expression(r, s, depth + 1),
            mt_str_puts(s, fuzz_once_in(r, 2) ? ":]" : "]");
        return;
    case 11:
        mt_str_putc(s, '('), put_expression(r, s, depth + 1), mt_str_puts(s, " if "), put_expression(r, s, depth + 1),
            mt_str_puts(s, " else "), put_expression(r, s, depth + 1);
        mt_str_putc(s, ')');
        return;
    case 12: mt_str_puts(s, "not "), put_expression(r, s, depth + 1); return;
    default: mt_str_puts(s, "mac("), put_expression(r, s, depth + 1), mt_str_puts(s, ")");
    }
}

/* Loops that make something larger or deeper in each turn: what bounds are for. */
static void put_growth(fuzz_rng *r, mt_str *s)
{
    static const char *const steps[] = {
        "(ns.x,)",       "[ns.x]",      "(ns.x, ns.x)",    "{'a': ns.x}", "ns.x|map('abs')",         "ns.x|select",
        "ns.x ~ ns.x",   "ns.x|string", "ns.x|list + [1]", "ns.x|tojson", "ns.x|replace('a', 'aa')", "ns.x|upper",
        "ns.x|batch(2)", "ns.x|indent", "ns.x|items|list"
    };
    static const char *const starts[] = { "1", "'a'", "[1]", "(1,)", "{}", "'a' * 1000", "range(9)" };
    mt_str_printf(s, "{%% set ns = namespace(x=%s) %%}{%% for i in range(%zu) %%}", FUZZ_PICK(r, starts),
                  (size_t)fuzz_odd(r, 1 + fuzz_below(r, 60)) % 100000);
    bool twice = fuzz_once_in(r, 3);
    if (twice) mt_str_puts(s, "{% for j in range(1000) %}");
    mt_str_printf(s, "{%% set ns.x = %s %%}", FUZZ_PICK(r, steps));
    if (twice) mt_str_puts(s, "{% endfor %}");
    mt_str_puts(s, "{% endfor %}{{ ");
    mt_str_puts(s, fuzz_once_in(r, 2) ? "{ns.x: 1}" : "ns.x");
    mt_str_printf(s, "|%s }}", FUZZ_PICK(r, filters));
}

static void put_statements(fuzz_rng *r, mt_str *s, int depth)
{
    for (size_t n = 1 + fuzz_below(r, 3); n; n--) {
        size_t kind = depth > 3 ? fuzz_below(r, 2) : fuzz_below(r, 12);
        switch (kind) {
        case 0: mt_str_puts(s, fuzz_once_in(r, 2) ? "text\n" : " {# note #} "); break;
        case 1:
        case 2: mt_str_puts(s, "{{ "), put_expression(r, s, 0), mt_str_puts(s, fuzz_once_in(r, 3) ? " -}}" : " }}"); break;
        case 3:
            mt_str_puts(s, "{% for m in "), put_expression(r, s, 3);
            if (fuzz_once_in(r, 3)) mt_str_puts(s, " if m");
            mt_str_puts(s, fuzz_once_in(r, 8) ? " recursive %}" : " %}");
            put_statements(r, s, depth + 1);
            if (fuzz_once_in(r, 4)) mt_str_puts(s, fuzz_once_in(r, 2) ? "{% break %}" : "{{ loop(l) }}");
            mt_str_puts(s, fuzz_once_in(r, 4) ? "{% else %}none{% endfor %}" : "{% endfor %}");
            break;
        case 4:
            mt_str_puts(s, "{%- if "), put_expression(r, s, 3), mt_str_puts(s, " %}"), put_statements(r, s, depth + 1),
                mt_str_puts(s, "{% else %}"), put_statements(r, s, depth + 1), mt_str_puts(s, "{% endif %}");
            break;
        case 5: mt_str_puts(s, "{% set x = "), put_expression(r, s, 2), mt_str_puts(s, " %}"); break;
        case 6:
            mt_str_printf(s, "{%% set x|%s %%}", FUZZ_PICK(r, filters)), put_statements(r, s, depth + 1),
                mt_str_puts(s, "{% endset %}");
            break;
        case 7:
            mt_str_puts(s, "{% macro mac(a, b=1) %}"), put_statements(r, s, depth + 1),
                mt_str_puts(s, "{{ a }}{{ caller() if caller else b }}{% endmacro %}");
            break;
        case 8: mt_str_puts(s, "{% call mac(1) %}"), put_statements(r, s, depth + 1), mt_str_puts(s, "{% endcall %}"); break;
        case 9:
            mt_str_printf(s, "{%% filter %s %%}", FUZZ_PICK(r, filters)), put_statements(r, s, depth + 1),
                mt_str_puts(s, "{% endfilter %}");
            break;
        case 10:
            mt_str_puts(s, "{% generation %}"), put_statements(r, s, depth + 1), mt_str_puts(s, "{% endgeneration %}");
            break;
        default: put_growth(r, s);
        }
    }
}

void fuzz_generate(fuzz_rng *r, mt_str *out)
{
    put_statements(r, out, 0);
    if (fuzz_once_in(r, 8)) fuzz_damage(r, out, 1);
}
