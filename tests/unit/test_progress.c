/* The progress line: what fits at which width, when it is drawn, and how it reads in a log. */
#include "test.h"

#include "cli/progress.h"

#include <stdlib.h>

static double now;
static double test_clock(void) { return now; }

static const mt_progress_view half = {
    .what = "training", .note = "loss 2.31", .done = 320, .total = 640, .elapsed_s = 12, .left_s = 200
};

static void the_line_uses_the_room_there_is(void **state)
{
    (void)state;
    static const struct {
        int columns;
        const char *line;
    } cases[] = {
        { 100, "training  [####################                    ]  320/640  50%  loss 2.31  3 min 20 s left" },
        { 79, "training  [############             ]  320/640  50%  loss 2.31  3 min 20 s left" },
        { 60, "training  [###   ]  320/640  50%  loss 2.31  3 min 20 s left" },
        { 50, "training  320/640  50%  loss 2.31  3 min 20 s left" },
        { 41, "training  320/640  50%  3 min 20 s left" },
        { 20, "320/640  50%" },
        { 5, "320/6" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_str s = { 0 };
        mt_progress_line(&s, &half, cases[i].columns, false, false);
        assert_string_equal(s.s, cases[i].line);
        assert_true(mt_text_columns(s.s) <= cases[i].columns);
        mt_str_free(&s);
    }
}

static void no_width_is_overrun(void **state)
{
    (void)state;
    mt_progress_view v = half;
    for (int columns = 1; columns < 200; columns++)
        for (int done = 0; done <= 640; done += 64)
            for (int utf8 = 0; utf8 < 2; utf8++) {
                mt_str s = { 0 };
                v.done = done;
                v.note = done % 128 ? "" : "a note \xe4\xbd\xa0\xe5\xa5\xbd";
                mt_progress_line(&s, &v, columns, utf8, false);
                assert_true(mt_text_columns(s.s) <= columns);
                mt_str_free(&s);
            }
}

static void bars_have_eighths_and_colour(void **state)
{
    (void)state;
    mt_str s = { 0 };
    mt_progress_view v = { .what = "x", .note = "", .done = 1, .total = 3, .elapsed_s = 3, .left_s = 6 };
    mt_progress_line(&s, &v, 41, true, false);
    assert_string_equal(s.s, "x  ▕████▋         ▏  1/3  33%  6.0 s left");
    mt_str_clear(&s);
    v.done = 3;
    mt_progress_line(&s, &v, 33, false, true);
    assert_string_equal(s.s, "\x1b[1mx\x1b[0m  [\x1b[32m##########\x1b[0m]  3/3  100%  \x1b[36m3.0 s\x1b[0m");
    mt_str_clear(&s);
    v.total = 0;
    v.left_s = -1;
    mt_progress_line(&s, &v, 80, false, false);
    assert_string_equal(s.s, "x  3  3.0 s");
    mt_str_free(&s);
}

/* What a run of updates writes: one per second for `seconds`, out of 100. */
static char *run(bool live, int seconds)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    mt_terminal t = { .out = f, .live = live };
    mt_progress p;
    mt_progress_start(&p, &t, "training", 100);
    p.clock = test_clock;
    now = p.start_s = p.drawn_s = p.marks[0].at_s = p.marks[1].at_s = 1000;
    for (int i = 1; i <= seconds; i++) {
        now += 1;
        mt_progress_update(&p, i, "loss 1");
        if (i == 6) mt_progress_say(&p, "saved");
    }
    mt_progress_finish(&p);
    fclose(f);
    return text;
}

static void logs_get_a_line_every_few_seconds(void **state)
{
    (void)state;
    char *text = run(false, 12);
    assert_string_equal(text,
                        "training 5/100 (5%), 1 min 35 s left: loss 1\nsaved\ntraining 10/100 (10%), 1 min 30 s left: loss 1\n"
                        "training 12/100 (12%), 12 s: loss 1\n"); /* it has ended: no time is left */
    free(text);
    text = run(false, 5); /* the last line is there already */
    assert_string_equal(text, "training 5/100 (5%), 1 min 35 s left: loss 1\n");
    free(text);
}

static void a_share_is_shown_as_a_percentage_alone(void **state)
{
    (void)state;
    mt_str s = { 0 };
    const mt_progress_view v = {
        .what = "tokenizing", .note = "8 records", .done = 0.25, .total = 1, .percent = true, .left_s = 3
    };
    mt_progress_plain(&s, &v);
    assert_string_equal(s.s, "tokenizing 25%, 3.0 s left: 8 records");
    mt_str_free(&s);
    mt_progress_line(&s, &v, 79, false, false);
    assert_non_null(strstr(s.s, "25%"));
    assert_null(strstr(s.s, "/1"));
    mt_str_free(&s);
}

static void terminals_get_one_line_that_is_drawn_over(void **state)
{
    (void)state;
    setenv("COLUMNS", "60", 1);
    char *text = run(true, 7);
    assert_non_null(strstr(text, "\rtraining  ["));
    assert_non_null(strstr(text, "\x1b[K\r\x1b[Ksaved\n\rtraining"));
    size_t lines = 0;
    for (const char *p = text; *p; p++) lines += *p == '\n';
    assert_int_equal(lines, 2);
    assert_int_equal(text[strlen(text) - 1], '\n');
    free(text);
}

static void the_time_left_follows_the_recent_speed(void **state)
{
    (void)state;
    mt_terminal t = { .out = stderr };
    mt_progress p;
    mt_progress_start(&p, &t, "x", 1000);
    p.clock = test_clock;
    now = p.start_s = p.drawn_s = p.marks[0].at_s = p.marks[1].at_s = 0;
    mt_progress_skip(&p, 500);
    assert_true(mt_progress_left(&p) < 0);
    p.drawn_s = 1e9; /* nothing is drawn here */
    now = 10;
    mt_progress_update(&p, 510, NULL);
    assert_true(mt_progress_left(&p) == 490);
    for (int i = 1; i <= 100; i++) now += 1, mt_progress_update(&p, 510 + 2 * i, "");
    assert_true(mt_progress_left(&p) > 140 && mt_progress_left(&p) < 150); /* 290 to go at 2 a second */
}

static void text_is_measured_and_cut_by_columns(void **state)
{
    (void)state;
    assert_int_equal(mt_text_columns("abc"), 3);
    assert_int_equal(mt_text_columns("\xe4\xbd\xa0\xe5\xa5\xbd"), 4);
    assert_int_equal(mt_text_columns("e\xcc\x81"), 1);
    assert_int_equal(mt_text_columns("\xff\xff"), 2);
    static const struct {
        const char *in;
        int columns;
        const char *out;
    } cases[] = {
        { "hello world", 11, "hello world" },
        { "hello world", 10, "hello w..." },
        { "hello", 4, "hell" },
        { "\xe4\xbd\xa0\xe5\xa5\xbd", 3, "\xe4\xbd\xa0" },
        { "abc", 0, "" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_str s = { 0 };
        mt_str_puts(&s, "");
        mt_text_fit(&s, cases[i].in, cases[i].columns);
        assert_string_equal(s.s, cases[i].out);
        mt_str_free(&s);
    }
}

static void long_lines_break_between_words(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        int columns, indent;
        const char *out;
    } cases[] = {
        { "", 10, 2, "" },
        { "short", 10, 2, "short" },
        { "one two three", 13, 2, "one two three" },
        { "one two three", 12, 2, "one two\n  three" },
        { "  label  text and more of it", 16, 9, "  label  text\n         and\n         more of\n         it" },
        { "one\ntwo three four\n  five", 9, 2, "one\ntwo three\n  four\n  five" }, /* with explicit line ends */
        { "a incomprehensibilities b", 10, 1, "a\n incomprehensibilities\n b" },
        { "\xe4\xbd\xa0\xe5\xa5\xbd \xe4\xbd\xa0", 6, 0, "\xe4\xbd\xa0\xe5\xa5\xbd\n\xe4\xbd\xa0" }, /* wide ones count twice */
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_str s = { 0 };
        mt_text_wrap(&s, cases[i].in, cases[i].columns, cases[i].indent);
        assert_string_equal(s.s ? s.s : "", cases[i].out);
        mt_str_free(&s);
    }
}

static void the_environment_decides_encoding_and_colour(void **state)
{
    (void)state;
    unsetenv("LC_ALL");
    unsetenv("LC_CTYPE");
    setenv("LANG", "de_DE.UTF-8", 1);
    assert_true(mt_terminal_of(stdout, MT_COLOR_AUTO).utf8);
    setenv("LC_ALL", "C", 1);
    assert_false(mt_terminal_of(stdout, MT_COLOR_AUTO).utf8);
    setenv("LC_ALL", "C.utf8", 1);
    assert_true(mt_terminal_of(stdout, MT_COLOR_AUTO).utf8);
    FILE *f = tmpfile();
    assert_false(mt_terminal_of(f, MT_COLOR_AUTO).live);
    assert_false(mt_terminal_of(f, MT_COLOR_AUTO).color);
    assert_true(mt_terminal_of(f, MT_COLOR_ALWAYS).color);
    setenv("COLUMNS", "123", 1);
    mt_terminal t = mt_terminal_of(f, MT_COLOR_NEVER);
    assert_int_equal(mt_terminal_columns(&t), 123);
    setenv("COLUMNS", "-5", 1);
    assert_int_equal(mt_terminal_columns(&t), 80);
    fclose(f);
}

MT_TEST_MAIN(cmocka_unit_test(the_line_uses_the_room_there_is), cmocka_unit_test(no_width_is_overrun),
             cmocka_unit_test(bars_have_eighths_and_colour), cmocka_unit_test(logs_get_a_line_every_few_seconds),
             cmocka_unit_test(a_share_is_shown_as_a_percentage_alone),
             cmocka_unit_test(terminals_get_one_line_that_is_drawn_over),
             cmocka_unit_test(the_time_left_follows_the_recent_speed), cmocka_unit_test(text_is_measured_and_cut_by_columns),
             cmocka_unit_test(long_lines_break_between_words), cmocka_unit_test(the_environment_decides_encoding_and_colour))
