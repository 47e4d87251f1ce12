/* megatrain plan alone on a terminal: it asks, and asks again where an answer is none. */
#define _GNU_SOURCE
#include "pty.h"

static const char *const plan[] = { MT_BINARY, "plan", NULL };
static char out[1 << 16];

static void expect(const char *text)
{
    if (!strstr(out, text)) fail_msg("no \"%s\" in:\n%s", text, out);
}

static void a_model_of_ones_own_is_planned(void **state)
{
    (void)state;
    const char *const answers[] = { "2\n", "custom\n", "13B\n", "5120\n", "40\n", "h100\n", "256G\n", "2048\n", NULL };
    assert_int_equal(pty_run(plan, 80, answers, out, sizeof out), 0);
    expect("FITS: about ");
    expect("a model of your own (13.0B parameters) on h100");
    expect("of up to 2048 tokens");
}

/* 13 bytes, or a hundred million in the default's 32 layers of 4096, made a layer of negative size, and a search without end. */
static void parameters_that_cannot_be_are_asked_for_again(void **state)
{
    (void)state;
    const char *const answers[] = { "2\n",   "custom\n", "lots\n", "0\n",       "100M\n", "\n",    "\n", "1.1B\n",
                                    "2e3\n", "2048\n",   "22\n",   "rtx4090\n", "64G\n",  "512\n", NULL };
    assert_int_equal(pty_run(plan, 80, answers, out, sizeof out), 0);
    expect("\"lots\" is not a number of parameters");
    expect("100M parameters are too few for 32 layers of 4096");
    expect("a whole number from 64 to");
    expect("a model of your own (1.10B parameters) on rtx4090");
}

static void every_answer_is_looked_at_when_it_is_given(void **state)
{
    (void)state;
    static char longest[400];
    memset(longest, 'x', sizeof longest - 2);
    longest[sizeof longest - 2] = '\n';
    const char *const answers[] = { "7\n",  "two\n", "2\n",  longest, "gpt2\n", "h1000\n", "h100\n",
                                    "64\n", "64G\n", "2k\n", "-5\n",  "256\n",  NULL };
    assert_int_equal(pty_run(plan, 80, answers, out, sizeof out), 0);
    expect("  1 or 2");
    expect("the nearest is");
    expect("did you mean h100?");
    expect("write 64G for gigabytes");
    expect("found \"2k\"");
    expect("gpt2 (124M parameters) on h100");
    expect("of up to 256 tokens");
}

static void the_end_of_input_ends_it(void **state)
{
    (void)state;
    const char *const answers[] = { "2\n", "\n", NULL };
    assert_int_equal(pty_run(plan, 80, answers, out, sizeof out), 0);
    assert_null(strstr(out, "FITS"));
}

static int widest(const char *text)
{
    int most = 0, column = 0;
    for (; *text; text++) {
        column = *text == '\n' ? 0 : column + ((*text & 0xc0) != 0x80);
        if (column > most) most = column;
    }
    return most;
}

/* Tables lose their bars first, then the ends of their labels. */
static void a_narrow_window_is_kept_to(void **state)
{
    (void)state;
    static const char *const fits[] = { MT_BINARY, "plan", "--shape",     "qwen2.5-0.5b", "--gpu", "h100",
                                        "--ram",   "64G",  "--num-steps", "1000",         NULL };
    static const char *const not [] = { MT_BINARY, "plan",         "--shape", "qwen2.5-7b", "--gpu", "rtx4090", "--ram",
                                        "60G",     "--batch-size", "1",       "--home",     "host",  NULL };
    const char *const none[] = { NULL };
    assert_int_equal(pty_run(fits, 40, none, out, sizeof out), 0);
    expect("device memory");
    if (widest(out) > 40) fail_msg("a line of %d columns in:\n%s", widest(out), out);
    assert_int_equal(pty_run(not, 40, none, out, sizeof out), 0);
    expect("DOES NOT FIT");
    if (widest(out) > 40) fail_msg("a line of %d columns in:\n%s", widest(out), out);
}

/* Then the cases above say so and are skipped. */
static void without_a_pseudo_terminal_there_is_a_word_for_it(void **state)
{
    (void)state;
    assert_string_equal(pty_missing("/nowhere/ptmx"), "no pseudo-terminal (/dev/ptmx)");
    assert_string_equal(pty_missing("/dev/null"), "no pseudo-terminal (/dev/pts is not mounted)");
}

MT_TEST_MAIN(cmocka_unit_test(without_a_pseudo_terminal_there_is_a_word_for_it), cmocka_unit_test(a_model_of_ones_own_is_planned),
             cmocka_unit_test(parameters_that_cannot_be_are_asked_for_again),
             cmocka_unit_test(every_answer_is_looked_at_when_it_is_given), cmocka_unit_test(the_end_of_input_ends_it),
             cmocka_unit_test(a_narrow_window_is_kept_to))
