/* Curves and bars, compared with pictures. */
#include "test.h"

#include "cli/plot.h"
#include "cli/terminal.h"

#include <math.h>
#include <stdlib.h>

static void curve(mt_str *out, const double *y, size_t n, int width, int height, bool utf8)
{
    double *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (double)i + 1;
    mt_plot_curve(
        out, &(mt_curve){
                 .x = x, .y = y, .n = n, .x_label = "step", .y_label = "loss", .width = width, .height = height, .utf8 = utf8 });
    free(x);
}

static void a_falling_curve_looks_like_one(void **state)
{
    (void)state;
    double y[16];
    for (int i = 0; i < 16; i++) y[i] = 4 - 0.2 * i;
    mt_str s = { 0 };
    curve(&s, y, 16, 25, 4, false);
    assert_string_equal(s.s, "         loss\n"
                             "      4 |''..\n"
                             "      3 |    ''..\n"
                             "        |        ''..\n"
                             "      1 |            ''..\n"
                             "        +----------------\n"
                             "         1    step     16\n");
    mt_str_free(&s);
}

static void braille_has_eight_dots_to_a_character(void **state)
{
    (void)state;
    double y[32];
    for (int i = 0; i < 32; i++) y[i] = 31 - i;
    mt_str s = { 0 };
    curve(&s, y, 32, 25, 4, true);
    assert_string_equal(s.s, "         loss\n"
                             "     31 ┤⠉⠒⠤⣀\n"
                             "   20.7 ┤    ⠉⠒⠤⣀\n"
                             "        │        ⠉⠒⠤⣀\n"
                             "      0 ┤            ⠉⠒⠤⣀\n"
                             "        └────────────────\n"
                             "         1    step     32\n");
    mt_str_free(&s);
}

static void odd_data_draws_without_harm(void **state)
{
    (void)state;
    static const double cases[][4] = {
        { NAN, NAN, NAN, NAN },  { 1, 1, 1, 1 },          { 0, 0, 0, 0 },
        { NAN, 2, INFINITY, 3 }, { -1e308, 1e308, 0, 5 }, { 1e-320, 2e-320, 0, 0 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++)
        for (int utf8 = 0; utf8 < 2; utf8++)
            for (int size = -1; size < 60; size += 20) {
                mt_str s = { 0 };
                curve(&s, cases[i], 4, size, size / 2, utf8);
                assert_true(mt_str_ok(&s) && s.n > 0);
                if (i == 0) assert_string_equal(s.s, "loss: nothing to draw\n");
                mt_str_free(&s);
            }
    mt_str s = { 0 };
    curve(&s, cases[1], 1, 40, 5, true);
    assert_non_null(strstr(s.s, "step"));
    mt_str_free(&s);
}

static void lines_keep_to_the_width(void **state)
{
    (void)state;
    double y[1000];
    for (int i = 0; i < 1000; i++) y[i] = 3 * exp(-i / 200.0) + 0.3 * sin(i * 0.9);
    for (int width = 24; width < 130; width += 7) {
        mt_str s = { 0 };
        curve(&s, y, 1000, width, 10, true);
        int lines = 0;
        for (char *line = strtok(s.s, "\n"); line; line = strtok(NULL, "\n"), lines++)
            assert_true(mt_text_columns(line) <= width);
        assert_int_equal(lines, 13);
        mt_str_free(&s);
    }
}

/* Every number finds room beside its row, and no row is moved. */
static void labels_keep_to_their_column(void **state)
{
    (void)state;
    static const double lows[] = { 0.000894, -0.000894, 1.23e-5, -1.23e-5, 123456, -123456, -1.23e100, 9.87e-300, 0.05 };
    for (size_t i = 0; i < MT_COUNT(lows); i++) {
        mt_str s = { 0 };
        curve(&s, (double[]){ 6.22, lows[i], 6.22, lows[i] }, 4, 40, 5, false);
        char *line = strtok(s.s, "\n");
        for (line = strtok(NULL, "\n"); line[8] != '+'; line = strtok(NULL, "\n"))
            if (line[7] != ' ' || line[8] != '|' || mt_text_columns(line) > 40) fail_msg("%g: \"%s\"", lows[i], line);
        mt_str_free(&s);
    }
    mt_str s = { 0 };
    curve(&s, (double[]){ 6.22, 0.000894 }, 2, 40, 5, false);
    assert_non_null(strstr(s.s, "\n0.00089 |"));
    mt_str_free(&s);
}

static void bars_share_one_scale(void **state)
{
    (void)state;
    const mt_bar bars[] = { { "0-128", "12", 12 }, { "128-256", "120", 120 }, { "256+", "1", 0.01 }, { "none", "", 0 } };
    mt_str s = { 0 };
    mt_plot_bars(&s, bars, 4, 33, false);
    assert_string_equal(s.s, "  0-128 ## 12\n128-256 ##################### 120\n   256+ # 1\n   none \n");
    mt_str_clear(&s);
    mt_plot_bars(&s, bars, 3, 33, true);
    assert_string_equal(s.s, "  0-128 ██ 12\n128-256 █████████████████████ 120\n   256+ ▏ 1\n");
    mt_str_clear(&s);
    mt_plot_bars(&s, (mt_bar[]){ { "a", "x", NAN }, { "b", "y", -1 } }, 2, 0, false);
    assert_string_equal(s.s, "a  x\nb  y\n");
    mt_str_free(&s);
}

MT_TEST_MAIN(cmocka_unit_test(a_falling_curve_looks_like_one), cmocka_unit_test(braille_has_eight_dots_to_a_character),
             cmocka_unit_test(odd_data_draws_without_harm), cmocka_unit_test(lines_keep_to_the_width),
             cmocka_unit_test(labels_keep_to_their_column), cmocka_unit_test(bars_share_one_scale))
