#include "cli/answers.h"

#include "base/json_write.h"
#include "base/utf8.h"

#include <string.h>
#include <unistd.h>

enum { WRONG_SHOWN = 2 };

mt_rc mt_answers_init(mt_answers *a, const mt_asks *asks, const mt_tokenizer *tok, FILE *out, mt_err *err)
{
    *a = (mt_answers){ .asks = asks,
                       .tok = tok,
                       .out = out,
                       .on_terminal = out && isatty(fileno(out)),
                       .items = mt_calloc(asks->n, sizeof *a->items) };
    return a->items || !asks->n ? MT_OK : mt_no_memory(err, "the answers");
}

void mt_answers_deinit(mt_answers *a)
{
    for (size_t i = 0; a->items && i < a->asks->n; i++) {
        mt_free(a->items[i].ids);
        mt_str_free(&a->items[i].text);
    }
    mt_free(a->items);
    *a = (mt_answers){ 0 };
}

/* -- printing -------------------------------------------------------------------------------------- */

/* A character whose last bytes are missing decodes as U+FFFD: hold it back. */
static size_t settled(const mt_answer *s)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t n = s->text.n;
    while (!s->done && n >= 3 && memcmp(s->text.s + n - 3, replacement, 3) == 0) n -= 3;
    return n;
}

/* A model may have learned to write terminal control sequences; a file gets every byte. */
static void put_text(const mt_answers *a, const char *text, size_t n)
{
    char *tamed = a->on_terminal ? mt_strndup(text, n) : NULL;
    if (tamed) mt_utf8_tame(tamed);
    if (tamed || !a->on_terminal) fwrite(tamed ? tamed : text, 1, n, a->out);
    mt_free(tamed);
}

/* Heading that shows the prompt of an answer, if there are several. */
static void print_header(const mt_answers *a, size_t i)
{
    if (a->asks->n < 2) return;
    fputs(i ? "\n> " : "> ", a->out);
    put_text(a, a->asks->items[i].text, strlen(a->asks->items[i].text));
    fputc('\n', a->out);
}

static mt_rc print_new(mt_answers *a, mt_err *err)
{
    for (; a->out && a->front < a->asks->n; a->front++) {
        mt_answer *s = &a->items[a->front];
        size_t n = settled(s);
        if (!s->begun) print_header(a, a->front);
        s->begun = true;
        if (n > s->printed) {
            put_text(a, s->text.s + s->printed, n - s->printed);
            s->printed = n;
        }
        if (!s->done) break;
        fputc('\n', a->out);
    }
    if (a->out && (fflush(a->out) || ferror(a->out))) return mt_fail_errno(err, MT_EIO, "writing the answer");
    return MT_OK;
}

mt_rc mt_answers_take(void *answers, const mt_generated *t, mt_err *err)
{
    mt_answers *a = answers;
    mt_answer *s = &a->items[t->prompt];
    MT_TRY(mt_grow(&s->ids, &s->cap, s->n + 1, sizeof *s->ids, err));
    if (!t->stop) s->ids[s->n++] = t->id;
    s->done = t->last;
    s->ended = t->stop;
    bool shown = a->out && t->prompt == a->front;
    if (s->done || shown) { /* whole again each time: a token's text may depend on the ones before it */
        mt_str_clear(&s->text);
        MT_TRY(mt_tokenizer_decode(a->tok, s->ids, s->n, true, &s->text, err));
    }
    return shown || s->done ? print_new(a, err) : MT_OK;
}

/* -- comparing ------------------------------------------------------------------------------------- */

/* Without white space at either end. */
static void trim(const char **s, size_t *n)
{
    static const char blanks[] = " \t\r\n";
    while (*n && memchr(blanks, **s, 4)) (*s)++, (*n)--;
    while (*n && memchr(blanks, (*s)[*n - 1], 4)) (*n)--;
}

static bool is_right(const mt_answers *a, size_t i)
{
    const char *got = a->items[i].text.n ? a->items[i].text.s : "", *expected = a->asks->items[i].expected;
    size_t n_got = a->items[i].text.n, n_expected = expected ? strlen(expected) : 0;
    if (!expected) return false;
    trim(&got, &n_got);
    trim(&expected, &n_expected);
    return n_got == n_expected && memcmp(got, expected, n_got) == 0;
}

/* Text in one line. */
static void put_line(mt_str *out, const char *s)
{
    for (; s && *s; s++) mt_str_putc(out, *s == '\n' ? ' ' : *s);
}

static const char *task_of(const mt_answers *a, size_t i) { return a->asks->items[i].task ? a->asks->items[i].task : "all"; }

static void put_example(mt_str *out, const mt_answers *a, size_t i)
{
    mt_str_puts(out, "  ");
    put_line(out, a->asks->items[i].text);
    mt_str_puts(out, "  ->  ");
    put_line(out, a->items[i].text.n ? a->items[i].text.s : "(nothing)");
    mt_str_putc(out, '\n');
}

/* The tasks in the order they appear, each with the first answer that is right. */
static void put_tasks(mt_str *out, const mt_answers *a)
{
    for (size_t i = 0; i < a->asks->n; i++) {
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++) seen = strcmp(task_of(a, i), task_of(a, j)) == 0;
        if (seen) continue;
        size_t n = 0, right = 0, example = SIZE_MAX;
        for (size_t j = i; j < a->asks->n; j++) {
            if (strcmp(task_of(a, i), task_of(a, j)) != 0) continue;
            n++;
            if (!is_right(a, j)) continue;
            if (!right++) example = j;
        }
        mt_str_printf(out, "%-12s %4zu of %4zu right\n", task_of(a, i), right, n);
        if (example != SIZE_MAX) put_example(out, a, example);
    }
}

void mt_answers_report(const mt_answers *a, mt_str *out)
{
    size_t right = 0, shown = 0;
    put_tasks(out, a);
    for (size_t i = 0; i < a->asks->n; i++) right += is_right(a, i);
    for (size_t i = 0; i < a->asks->n && shown < WRONG_SHOWN; i++) {
        if (is_right(a, i)) continue;
        if (!shown++) mt_str_puts(out, "wrong, for example\n");
        put_example(out, a, i);
        mt_str_puts(out, "      expected  ");
        put_line(out, a->asks->items[i].expected);
        mt_str_putc(out, '\n');
    }
    mt_str_printf(out, "right: %zu of %zu, %.1f%%\n", right, a->asks->n,
                  a->asks->n ? 100.0 * (double)right / (double)a->asks->n : 0.0);
}

/* -- for scripts ----------------------------------------------------------------------------------- */

static void put_answer(mt_json_out *j, const mt_answers *a, size_t i)
{
    const mt_ask *ask = &a->asks->items[i];
    const mt_answer *answer = &a->items[i];
    mt_json_map(j, NULL, MT_JSON_FLAT);
    mt_json_put_size(j, "tokens", answer->n);
    mt_json_put_bool(j, "ended", answer->ended);
    mt_json_put_str(j, "prompt", ask->text);
    mt_json_put_bytes(j, "answer", answer->text.s ? answer->text.s : "", answer->text.n);
    if (ask->expected) {
        mt_json_put_str(j, "expected", ask->expected);
        mt_json_put_bool(j, "right", is_right(a, i));
    }
    if (ask->task) mt_json_put_str(j, "task", ask->task);
    mt_json_end(j);
}

void mt_answers_json(const mt_answers *a, const mt_generate_stats *stats, mt_str *out)
{
    double s = 1e-9 * (double)stats->decode_ns;
    mt_json_out j = { .to = out };
    mt_json_map(&j, NULL, MT_JSON_LINES);
    mt_json_put_int(&j, "version", 1);
    mt_json_put_int(&j, "prompt_tokens", stats->n_prompt_tokens);
    mt_json_put_int(&j, "new_tokens", stats->n_new_tokens);
    mt_json_put_num(&j, "tokens_per_second", "%.6g", s > 0 ? (double)stats->n_decoded / s : 0);
    mt_json_list(&j, "answers", MT_JSON_LINES);
    for (size_t i = 0; i < a->asks->n; i++) put_answer(&j, a, i);
    mt_json_end(&j);
    mt_json_end(&j);
    mt_str_putc(out, '\n');
}
