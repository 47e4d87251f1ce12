/* render_main.c - renders templates for compare_fuzz.py: one JSON object a line in, one out.
 *     {"template": "...", "context": {...}}  ->  {"out": "...", "spans": [[0, 5]]} or {"error": "..."}
 * `render_main N` renders each line N times and prints how long that took instead. */
#include "base/value.h"
#include "jinja/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void report(mt_rc rc, const mt_str *text, const mt_jinja_spans *spans, const mt_err *err)
{
    mt_str line = { 0 };
    mt_str_puts(&line, rc ? "{\"error\": " : "{\"out\": ");
    mt_str_json(&line, rc ? err->msg : text->s ? text->s : "", rc ? strlen(err->msg) : text->n);
    if (!rc) mt_str_puts(&line, ", \"spans\": [");
    for (size_t i = 0; !rc && i < spans->n; i++)
        mt_str_printf(&line, "%s[%zu, %zu]", i ? ", " : "", spans->items[i].begin, spans->items[i].end);
    mt_str_puts(&line, rc ? "}" : "]}");
    puts(line.s);
    fflush(stdout);
    mt_str_free(&line);
}

static void render_line(const char *text, size_t n, long repeat)
{
    mt_arena a = { 0 }, scratch = { 0 };
    mt_err err = { 0 };
    mt_value record;
    mt_jinja *t = NULL;
    mt_str out = { 0 };
    mt_jinja_spans spans = { 0 };
    struct tm now = {
        .tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_hour = 13, .tm_min = 5, .tm_sec = 9, .tm_wday = 5, .tm_yday = 207
    };
    mt_jinja_options opt = { .now = &now, .scratch = &scratch };
    struct timespec from, to;
    mt_rc rc = mt_value_parse_json(&record, &a, text, n, NULL, "input", &err);
    const mt_value *source = rc ? NULL : mt_value_get(&record, "template");
    if (!rc) rc = mt_jinja_parse(&t, source->str.s, source->str.n, "template", &err);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long i = 0; !rc && i < repeat; i++) {
        mt_str_clear(&out);
        spans.n = 0;
        rc = mt_jinja_render(t, mt_value_get(&record, "context"), &opt, &out, &spans, &err);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (repeat == 1)
        report(rc, &out, &spans, &err);
    else
        printf("%.9f\n", (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9);
    mt_jinja_spans_free(&spans);
    mt_str_free(&out);
    mt_jinja_free(t);
    mt_arena_free(&scratch);
    mt_arena_free(&a);
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t cap = 0;
    long repeat = argc > 1 ? atol(argv[1]) : 1;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) render_line(line, (size_t)n, repeat);
    free(line);
    return 0;
}
