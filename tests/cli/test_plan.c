/* megatrain plan as a user meets it: verdict, tables, what would help, JSON; no GPU and no network. */
#include "program.h"

#define MODEL MT_TESTS_DIR "/golden/models/qwen3"

static void the_verdict_comes_first(void **state)
{
    (void)state;
    char out[16384];
    assert_int_equal(run_program("plan --shape qwen2.5-7b --gpu rtx4090 --ram 128G --num-steps 100", out, sizeof out), 0);
    assert_true(strncmp(out, "FITS: about ", 12) == 0);
    static const char *const parts[] = { "100 steps take", "device memory: ", "host memory", "time of a step", "batch_size: safe", "    batch_size: " };
    for (size_t i = 0; i < MT_COUNT(parts); i++)
        if (!strstr(out, parts[i])) fail_msg("no \"%s\" in:\n%s", parts[i], out);
    expect_program("plan llama-3.1-70b --gpu h100 --ram 256G", 0, "DOES NOT FIT");
    expect_program("plan llama-3.1-70b --gpu h100 --ram 256G", 0, "of RAM free");
    expect_program("plan gpt-oss-120b --gpu h200 --ram 1.5T --max-grad-norm 0", 0, "FITS");
    expect_program("plan gpt-oss-120b --gpu h200 --ram 1.5T", 0, "does not train gpt_oss models yet");
    expect_program("plan " MODEL " --ram 4G --device cpu", 0, "FITS");
    expect_program("plan " MODEL " --ram 4G --device cpu --batch-size auto", 0, "FITS");
}

/* Columns of the longest line; characters beyond ASCII take one. */
static int widest_line(const char *text)
{
    int widest = 0, column = 0;
    for (; *text; text++) {
        column = *text == '\n' ? 0 : column + ((*text & 0xc0) != 0x80);
        if (column > widest) widest = column;
    }
    return widest;
}

static void every_line_fits_eighty_columns(void **state)
{
    (void)state;
    static const char *const questions[] = { "plan --shape qwen2.5-7b --gpu rtx4090 --ram 128G", "plan --shape llama-3.1-70b --ram 256G --gpu h100",
                                             "plan --shape qwen2.5-32b --ram 300G --gpu h100 --home host", "plan --what-fits --gpu rtx4090 --ram 128G",
                                             "plan gpt-oss-120b --gpu h200 --ram 1.5T --max-grad-norm 0" };
    for (size_t i = 0; i < MT_COUNT(questions); i++) {
        char out[32768];
        assert_int_equal(run_program(questions[i], out, sizeof out), 0);
        if (widest_line(out) > 80) fail_msg("%s prints a line of %d columns:\n%s", questions[i], widest_line(out), out);
    }
    /* Where settings alone are not enough, what they and more memory would do comes before what memory alone would. */
    expect_program(questions[1], 0, "adam_state: 8bit, 4");
}

static void json_has_what_it_says_it_has(void **state)
{
    (void)state;
    char out[16384];
    assert_int_equal(run_program("plan --shape qwen2.5-7b --gpu h200 --ram 115G --link 50G --cores 32 --gpu-memory 100G --json", out, sizeof out), 0);
    static const char *const keys[] = { "\"version\": 1", "\"fits\": true", "\"parameters\": 7615616512", "\"machine\": {", "\"needs\": {", "\"plan\": {", "\"step_seconds\": ",
                                        "\"tokens_per_second\": ", "\"bound\": ", "\"micro_tokens\": ", "\"host\": {\"masters\": ", "\"device\": {\"masters\": ",
                                        "\"batch\": {\"safe\": ", "\"remedies\": []", "\"device_bytes\": 100000000000", "\"copy_in\": 5e+10" };
    for (size_t i = 0; i < MT_COUNT(keys); i++)
        if (!strstr(out, keys[i])) fail_msg("no %s in:\n%s", keys[i], out);
}

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    if (!at) fail_msg("no %s in:\n%s", key, text);
    return strtod(at + strlen(key), NULL);
}

/* Asked for the batch size that is recommended, a plan says one speed, not two. */
static void the_recommended_batch_has_one_speed(void **state)
{
    (void)state;
    char out[16384];
    assert_int_equal(run_program("plan --shape qwen2.5-7b --gpu h200 --ram 115G --home host --batch-size auto --json", out, sizeof out), 0);
    const char *batch = strstr(out, "\"batch\": {");
    assert_non_null(batch);
    double planned = number_after(out, "\"tokens_per_second\": "), advised = number_after(batch, "\"tokens_per_second\": ");
    assert_true(planned > 0 && planned / advised < 1.0001 && planned / advised > 0.9999);
}

static void unknown_names_lead_on(void **state)
{
    (void)state;
    expect_program("plan --shape qwen2.5-8b --gpu h100", 1, "the nearest is");
    expect_program("plan --shape qwen2.5-7b --gpu h10", 1, "did you mean h100");
    expect_program("plan --json", 2, "which model?");
    expect_program("plan --list-gpus", 0, "rtx5090");
    expect_program("plan --list-shapes", 0, "llama-3.1-405b");
    expect_program("plan --what-fits --gpu rtx3090 --ram 64G", 0, "needs");
    expect_program("bench --shape qwen3-30b-a3b --device cpu", 2, "can plan but not train yet");
}

MT_TEST_MAIN(cmocka_unit_test(the_verdict_comes_first), cmocka_unit_test(every_line_fits_eighty_columns), cmocka_unit_test(json_has_what_it_says_it_has),
             cmocka_unit_test(the_recommended_batch_has_one_speed), cmocka_unit_test(unknown_names_lead_on))
