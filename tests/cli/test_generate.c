/* `megatrain generate` as a user meets it, on the demo's model with random weights: what it says is noise, but the same noise
 * alone and in company, resident and streamed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* a separate terminal */
#endif
#include "program.h"
#include "pty.h"
#include "tempdir.h"

#define MODEL  MT_TESTS_DIR "/../data/demo_model"
#define RANDOM "generate " MODEL " --from-scratch --device cpu --max-new-tokens 12 "
#define DRAWN  RANDOM "--temperature 1 --top-p 0.9 --top-k 100 --seed 3 --chat "

/* Everything a run printed, speed included, without what differs from run to run. */
static void output_of(const char *args, char *out, size_t size)
{
    char command[4096];
    snprintf(command, sizeof command, "%s %s 2>/dev/null", MT_BINARY, args);
    assert_int_equal(run_shell(command, out, size), 0);
}

static void a_prompt_gets_the_same_answer_in_any_company(void **state)
{
    (void)state;
    char alone[4096], many[8192];
    output_of(DRAWN "--prompt 'Reverse apple.'", alone, sizeof alone);
    output_of(DRAWN "--prompt 'Write 12 in words.' --prompt 'Reverse apple.' --prompt 'Count the letters in banana, please.'",
              many, sizeof many);
    assert_true(strlen(alone) > 1);
    const char *at = strstr(many, "> Reverse apple.\n");
    assert_non_null(at);
    assert_memory_equal(at + strlen("> Reverse apple.\n"), alone, strlen(alone));
}

static void write_text(const char *file, const char *text)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void memory_and_the_way_prompts_come_in_change_nothing(void **state)
{
    char resident[4096], streamed[4096], piped[4096], file[1024], args[2048];
    output_of(DRAWN "--prompt 'Reverse apple.'", resident, sizeof resident);
    output_of(DRAWN "--prompt 'Reverse apple.' --device-memory 24M", streamed, sizeof streamed);
    assert_string_equal(resident, streamed);
    snprintf(file, sizeof file, "%s/prompts.txt", (const char *)*state);
    static const char *const texts[] = { "\xef\xbb\xbfReverse apple.\r\n\r\n", /* as Windows writes it */
                                         "Reverse apple.\n" };
    for (size_t i = 0; i < MT_COUNT(texts); i++) {
        write_text(file, texts[i]);
        snprintf(args, sizeof args, DRAWN "--prompts %s", file);
        output_of(args, piped, sizeof piped);
        assert_string_equal(resident, piped);
    }
    snprintf(args, sizeof args, DRAWN "< %s", file);
    output_of(args, piped, sizeof piped);
    assert_string_equal(resident, piped);
}

/* A model of the demo's tokenizer and one small layer, after one step. */
static void make_model(const char *dir)
{
    char command[4096], out[4096];
    snprintf(command, sizeof command,
             "cd '%s' && mkdir m && cp " MODEL
             "/tok* m && sed 's/\"hidden_size\": *[0-9]*/\"hidden_size\": 32/; s/\"intermediate_size\": "
             "*[0-9]*/\"intermediate_size\": 64/; s/\"num_hidden_layers\": *[0-9]*/\"num_hidden_layers\": 1/' " MODEL
             "/config.json > m/config.json && printf '{\"query\": \"a\", \"response\": \"b\"}\\n' > d.jsonl && '" MT_BINARY
             "' train --model-name m --from-scratch --dataset-path d.jsonl --cache-dir c --output-dir o --num-steps 1 --device "
             "cpu --max-seq-len 64 "
             "2>&1 && mv o/final/* . && rm -r o c m",
             dir);
    if (run_shell(command, out, sizeof out)) fail_msg("%s", out);
}

/* Weights in a file are mapped and not looked at one by one; what comes of them is. */
static void weights_that_are_no_numbers_are_named_and_not_answered_with(void **state)
{
    char path[1024], args[2048];
    uint64_t head;
    make_model(*state);
    snprintf(args, sizeof args, "generate '%s' --device cpu --max-new-tokens 2 --prompt a", (char *)*state);
    expect_program(args, 0, "new tokens");
    snprintf(path, sizeof path, "%s/model.safetensors", (char *)*state);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fread(&head, sizeof head, 1, f), 1);
    fseek(f, (long)head + 8, SEEK_SET);
    for (int i = 0; i < 4096; i++) fputs("\xff\x7f", f);
    fclose(f);
    expect_program(args, 1, "model.safetensors: tensor \"");
    expect_program(args, 1, "not finite");
}

/* The table of GPT-2's positions has 8 rows. */
static void a_prompt_past_the_learned_positions_is_refused(void **state)
{
    char text[2048], out[4096];
    snprintf(text, sizeof text, "%s/config.json", (char *)*state);
    write_text(text, "{\"model_type\": \"gpt2\", \"vocab_size\": 448, \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2, "
                     "\"n_positions\": 8}");
    snprintf(text, sizeof text, "cp " MODEL "/tok* '%s'", (char *)*state);
    assert_int_equal(run_shell(text, out, sizeof out), 0);
    snprintf(text, sizeof text, "generate '%s' --from-scratch --device cpu --prompt 12345678", (char *)*state);
    expect_program(text, 0, "8 prompt tokens in ");
    expect_program(text, 0, "1 new token\n");
    snprintf(text, sizeof text, "generate '%s' --from-scratch --device cpu --prompt 123456789", (char *)*state);
    expect_program(text, 2, "a prompt has 9 tokens and the model 8 positions; shorten the prompt");
}

/* 64 layers of 26 billion parameters: 7 terabytes in float32. */
static void a_model_too_large_for_this_machine_is_refused(void **state)
{
    char text[2048], out[4096];
    snprintf(text, sizeof text, "%s/config.json", (char *)*state);
    write_text(text, "{\"model_type\": \"qwen3\", \"hidden_size\": 65536, \"intermediate_size\": 65536, "
                     "\"num_hidden_layers\": 64, \"num_attention_heads\": 512, \"num_key_value_heads\": 512, "
                     "\"head_dim\": 128, \"vocab_size\": 448}");
    snprintf(text, sizeof text, "cp " MODEL "/tok* '%s'", (char *)*state);
    assert_int_equal(run_shell(text, out, sizeof out), 0);
    snprintf(text, sizeof text, "generate '%s' --from-scratch --device cpu --prompt 1", (char *)*state);
    expect_program_all(
        text, 1,
        (const char *const[]){ "needs at least 7", "of host memory", "use a smaller model, or compute in bfloat16", NULL });
}

static void a_run_in_place_of_its_model_is_named(void **state)
{
    static const char *const commands[] = { "generate RUN --device cpu --prompt a", "plan RUN --gpu H200", "convert RUN out",
                                            "bench --device cpu --model RUN",
                                            "grad RUN --device cpu --tokens " MT_TESTS_DIR "/CMakeLists.txt --out out" };
    char file[1024], args[2048];
    snprintf(file, sizeof file, "%s/plan.json", (char *)*state);
    write_text(file, "{}");
    for (size_t i = 0; i < MT_COUNT(commands); i++) {
        const char *at = strstr(commands[i], "RUN");
        snprintf(args, sizeof args, "%.*s'%s'%s", (int)(at - commands[i]), commands[i], (char *)*state, at + 3);
        expect_program(args, 2, "is the directory of a run; name a model in it: final");
    }
}

/* What a terminal obeys is shown as question marks there; a file gets every byte. */
static void control_characters_are_tamed_on_a_terminal_alone(void **state)
{
    char file[1024], args[2048], out[8192];
    snprintf(file, sizeof file, "%s/prompts.txt", (char *)*state);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs("one \x1b]0;title\x07\ntwo \xc2\x9b"
          "31m\n",
          f);
    fclose(f);
    const char *const words[] = { MT_BINARY,   "generate", MODEL, "--from-scratch", "--device", "cpu", "--max-new-tokens", "2",
                                  "--prompts", file,       NULL };
    assert_int_equal(pty_run(words, 80, (const char *const[]){ NULL }, out, sizeof out), 0);
    if (!strstr(out, "> one ?]0;title?") || !strstr(out, "> two ??31m")) fail_msg("%s", out);
    assert_null(strchr(out, '\x07'));
    snprintf(args, sizeof args, "'%s' " RANDOM "--prompts '%s'", MT_BINARY, file);
    assert_int_equal(run_shell(args, out, sizeof out), 0);
    assert_non_null(strstr(out, "> one \x1b]0;title\x07"));
    snprintf(file, sizeof file, "%s/asked.json", (char *)*state);
    write_text(file, "[{\"prompt\": \"one \\u001b]0;title\\u0007\", \"response\": \"\\u009b31m\"}]");
    const char *const checked[] = { MT_BINARY,          "generate", MODEL,     "--from-scratch", "--device", "cpu",
                                    "--max-new-tokens", "2",        "--check", "--prompts",      file,       NULL };
    assert_int_equal(pty_run(checked, 80, (const char *const[]){ NULL }, out, sizeof out), 0);
    if (!strstr(out, "  one ?]0;title?  ->") || !strstr(out, "expected  ??31m")) fail_msg("%s", out);
}

static void check_counts_what_is_right(void **state)
{
    char file[1024], args[2048];
    snprintf(file, sizeof file, "%s/asked.json", (const char *)*state);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs("[{\"instruction\": \"Reverse this word.\", \"input\": \"owl\", \"output\": \"lwo\", \"task\": \"reverse\"},\n"
          " {\"instruction\": \"Write 3 in words.\", \"output\": \"three\", \"task\": \"words\"}]\n",
          f);
    fclose(f);
    snprintf(args, sizeof args, RANDOM "--chat --check --prompts %s", file);
    expect_program(args, 0, "reverse         0 of    1 right");
    expect_program(args, 0, "expected  lwo");
    expect_program(args, 0, "right: 0 of 2, 0.0%");
    snprintf(file, sizeof file, "%s/chat.jsonl", (const char *)*state); /* the records of the README */
    f = fopen(file, "w");
    assert_non_null(f);
    fputs("{\"messages\": [{\"role\": \"user\", \"content\": \"Who are you?\"}, {\"role\": \"assistant\", \"content\": "
          "\"Rex.\"}]}\n",
          f);
    fclose(f);
    snprintf(args, sizeof args, RANDOM "--chat --check --prompts %s", file);
    expect_program(args, 0, "expected  Rex.");
    expect_program(args, 0, "right: 0 of 1, 0.0%");
    snprintf(args, sizeof args, RANDOM "--check --prompt hello");
    expect_program(args, 2, "prompt 1 has none");
}

static void mistakes_are_named(void **state)
{
    (void)state;
    expect_program("generate --prompt x", 2, "MODEL is missing");
    expect_program("generate /nowhere --prompt x", 1, "is neither a directory");
    expect_program("generate " MODEL " --prompt x", 1, "safetensors");
    expect_program(RANDOM "< /dev/null", 2, "no prompt");
    expect_program("generate " MODEL "/config.json --prompt x", 2, "config.json is a file; give the model's directory");
    expect_program(RANDOM "--prompt x --temperature warm", 2, "expects a number");
    expect_program(RANDOM "--prompt x --temperature -1", 2, "temperature");
    expect_program(RANDOM "--prompt x --top-p 2", 2, "between 0 and 1");
    expect_program(RANDOM "--prompt x --dtype int8x", 2, "bfloat16 or float32");
    expect_program(RANDOM "--prompt x --dtype float64", 2, "bfloat16 or float32");
    expect_program(RANDOM "--prompt x --system y", 2, "--chat");
    expect_program(RANDOM "--prompt x --top-k 5", 0, "--top-p and --top-k have no effect without --temperature");
    expect_program(RANDOM "--prompt x --device-memory 1K", 1, "device memory");
}

/* Programs whose table of commands lacks it have nothing to test. */
static bool has_generate(void)
{
    char help[8192];
    output_of("--help", help, sizeof help);
    return strstr(help, "generate") != NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(weights_that_are_no_numbers_are_named_and_not_answered_with, tempdir_make,
                                        tempdir_remove),
        cmocka_unit_test_setup_teardown(a_prompt_past_the_learned_positions_is_refused, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(a_model_too_large_for_this_machine_is_refused, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(a_run_in_place_of_its_model_is_named, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(control_characters_are_tamed_on_a_terminal_alone, tempdir_make, tempdir_remove),
        cmocka_unit_test(a_prompt_gets_the_same_answer_in_any_company),
        cmocka_unit_test_setup_teardown(memory_and_the_way_prompts_come_in_change_nothing, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(check_counts_what_is_right, tempdir_make, tempdir_remove),
        cmocka_unit_test(mistakes_are_named),
    };
    return has_generate() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
