/* megatrain data as a user meets it: samples with what is trained marked, the summary, what is found. */
#define _GNU_SOURCE
#include "program.h"
#include "pty.h"
#include "template_model.h"

#include "base/str.h"

#define FIXTURES MT_TESTS_DIR "/golden/samples/fixtures"

/* Run `data` on one dataset, its cache in the test's own directory. */
static void expect_data(const char *dir, const char *args, int status, const char *says)
{
    char line[2048];
    snprintf(line, sizeof line,
             "data --set model.name=" TOKENIZER " --set dataset.dataset_dir=" FIXTURES " --set dataset.cache_dir=%s %s", dir,
             args);
    expect_program(line, status, says);
}

static void samples_are_shown_with_the_trained_part_marked(void **state)
{
    expect_data(*state, "--dataset-name alpaca --show 10", 0, "Human: Why is the sky blue?\n\nAssistant:\n[[");
    expect_data(*state, "--dataset-name alpaca --show 10", 0, "reaches us from everywhere.</s>]]");
    expect_data(*state, "--dataset-name alpaca --show 10 --ids", 0,
                "ids 62 356 294 48 243 684 319 315 621 424 53 221 221 55 466 48 221 [243] [769]");
    expect_data(*state, "--dataset-name alpaca --show 1 --color true", 0, "\x1b[");
    expect_data(*state, "--dataset-name alpaca", 0, "10 records, 10 samples, 472 tokens, 46.4% trained");
    expect_data(*state, "--dataset-name alpaca", 0, "samples by tokens\n17 to 24 ");
}

static void the_summary_names_what_is_cut_packed_and_not_read(void **state)
{
    expect_data(*state, "--dataset-name ultrachat_200k --max-seq-len 64 --packing", 1, "samples cut to max_seq_len: 7\n");
    expect_data(*state, "--dataset-name ultrachat_200k --max-seq-len 64 --packing", 1, "rows of 64 tokens, ");
    expect_data(*state, "--dataset-name ultrachat_200k --max-seq-len 64", 1, "not read     columns prompt, prompt_id");
    expect_data(*state, "--dataset-name ultrachat_200k --max-seq-len 64", 1,
                "(60%) are cut at max_seq_len 64; max_seq_len 128 would keep 95%");
    expect_data(*state, "--dataset-name alpaca,metamathqa --val-size 0.1", 0, "18 to train on, 2 to evaluate on");
}

/* Who asks for cut samples, or allows them, gets them. */
static void cut_samples_that_were_asked_for_do_not_stop(void **state)
{
    expect_data(*state, "--dataset-name ultrachat_200k --max-seq-len 64", 1,
                "overlong: skip leaves such samples out; overlong: truncate");
    expect_data(*state, "--dataset-name ultrachat_200k --max-seq-len 64 --overlong truncate", 0,
                "(60%) are cut at max_seq_len 64");
    expect_data(*state, "--dataset-name ultrachat_200k --max-seq-len 64 --max-cut-share 1", 0, "(60%) are cut at max_seq_len 64");
    expect_data(*state, "--dataset-name ultrachat_200k --max-seq-len 64 --overlong skip", 0, "skipped");
}

static void a_thought_that_is_never_closed_is_found(void **state)
{
    static char out[16384];
    char args[1024];
    template_model_write(*state,
                         "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
                         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}");
    tempdir_write(*state, "qa.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}\n{\"question\": \"c\", \"answer\": \"d\"}\n");
    snprintf(args, sizeof args, "data --model-name %s --cache-dir %s --dataset-path %s/qa.jsonl", (const char *)*state,
             (const char *)*state, (const char *)*state);
    expect_program(args, 0, "assistant\n<think>\n[[\n</think>\n\n");
    assert_int_equal(run_program(args, out, sizeof out), 0);
    assert_null(strstr(out, "never close"));
    snprintf(args, sizeof args, "data --model-name %s --cache-dir %s --dataset-path %s/qa.jsonl --empty-thought none",
             (const char *)*state, (const char *)*state, (const char *)*state);
    expect_program(args, 0, "2 of 2 answers never close the thought");
}

static void a_thought_that_the_template_does_not_show_is_found(void **state)
{
    static char out[16384];
    char args[1024];
    tempdir_write(*state, "thoughts.jsonl",
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\", "
                  "\"thinking\": \"hm\"}]}\n");
    snprintf(args, sizeof args, "data --model-name %s --cache-dir %s --dataset-path %s/thoughts.jsonl", (const char *)*state,
             (const char *)*state, (const char *)*state);
    template_model_write(*state,
                         "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
                         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
    expect_program(args, 0, "the chat template shows no thoughts: those of 1 answers");
    template_model_write(*state,
                         "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.reasoning_content %}{{ '<think>' + "
                         "m.reasoning_content + '</think>' }}{% endif %}{{ m.content + '<|im_end|>\\n' }}{% endfor %}"
                         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
    expect_program(args, 0, "[[<think>hm</think>b<|im_end|>]]");
    assert_int_equal(run_program(args, out, sizeof out), 0);
    assert_null(strstr(out, "shows no thoughts"));
}

static void a_template_that_does_not_fit_stops_before_anything_is_tokenized(void **state)
{
    char args[1024];
    expect_data(*state, "--dataset-name alpaca --template granite3", 2,
                "does not fit this tokenizer: it needs <|start_of_role|>");
    expect_data(*state, "--dataset-name alpaca --template auto", 0, "template     default");
    tempdir_write(*state, "text.txt", "A text needs no template.\n");
    snprintf(args, sizeof args, "--dataset-path %s/text.txt --template granite3", (const char *)*state);
    expect_data(*state, args, 0, "plain text in \"text\"");
}

/* One step of train on a file of `dir`. */
static void expect_train(const char *dir, const char *file, const char *says)
{
    char args[2048];
    snprintf(args, sizeof args,
             "train --model-name " MT_TESTS_DIR
             "/../data/demo_model --from-scratch --dataset-path %s/%s --cache-dir %s --num-steps 1 "
             "--batch-size 2 --max-seq-len 512 --output-dir %s/out --device cpu 2>&1; rm -rf %s/out",
             dir, file, dir, dir, dir);
    expect_program(args, 0, says);
}

/* A file without a registry entry: its layout is printed, by train with the first sample. */
static void the_layout_of_a_file_is_found_and_said(void **state)
{
    const char *dir = *state;
    char args[1024];
    tempdir_write(dir, "own.jsonl",
                  "{\"conversations\": [{\"from\": \"human\", \"value\": \"Who is it?\"}, {\"from\": \"gpt\", \"value\": \"It is "
                  "Rex.\"}]}\n"
                  "{\"conversations\": [{\"from\": \"human\", \"value\": \"Who is it?\"}, {\"from\": \"gpt\", \"value\": \"It is "
                  "Rex.\"}]}\n");
    snprintf(args, sizeof args, "--dataset-path %s/own.jsonl", dir);
    expect_data(dir, args, 0, "dataset own.jsonl: conversations in \"conversations\", with \"from\" (human, gpt) and \"value\"");
    expect_data(dir, args, 0, "laid out as conversations in \"conversations\"");
    expect_train(dir, "own.jsonl", "a sample, with trained parts in [[brackets]]:\n");
    expect_train(dir, "own.jsonl", "<|im_start|>assistant\n[[It is Rex.<|im_end|>]]");
    tempdir_write(dir, "other.jsonl", "{\"frage\": \"a\", \"antwort\": \"b\"}\n");
    snprintf(args, sizeof args, "--dataset-path %s/other.jsonl", dir);
    expect_data(dir, args, 1, "is not clear from their columns (frage, antwort)");
    snprintf(args, sizeof args, "--dataset-path %s/other.jsonl --query-field frage --response-field antwort", dir);
    expect_data(dir, args, 0, "1 record, 1 sample, ");
    tempdir_write(dir, "rows.jsonl",
                  "{\"input_ids\": [5, 6, 2], \"labels\": [-100, 6, 2]}\n{\"input_ids\": [5, 7, 2], \"labels\": [-100, 7, 2]}\n");
    expect_train(dir, "rows.jsonl", "tokens in \"input_ids\", those that \"labels\" has are trained");
    tempdir_write(dir, "endless.jsonl", "{\"input_ids\": [40, 41, 42]}\n"); /* the tokens come from another program */
    snprintf(args, sizeof args, "--dataset-path %s/endless.jsonl", dir);
    expect_data(dir, args, 0, "token 2, which ends an answer, is never trained");
}

static void a_long_sample_is_shown_without_its_middle(void **state)
{
    mt_str words = { 0 };
    for (int i = 0; i < 80; i++) mt_str_printf(&words, "What is the date of the day after this?%s", i % 40 == 39 ? "\n" : " ");
    tempdir_write(*state, "long.txt", words.s);
    mt_str_free(&words);
    expect_train(*state, "long.txt", "plain text in \"text\", all of it trained");
    expect_train(*state, "long.txt", "the date of the day after this? What is the date");
    expect_train(*state, "long.txt", "\n[...]\n");
}

static void bad_records_are_listed_and_counted(void **state)
{
    char args[1024];
    tempdir_write(*state, "qa.jsonl",
                  "{\"query\": \"a\", \"response\": \"b\", \"extra\": 1}\n{\"query\": \"a\"}\nnonsense\n{\"query\": "
                  "\"a\\u001b[2J\", \"response\": \"b</s>\"}\n");
    snprintf(args, sizeof args, "--dataset-path %s/qa.jsonl --show 2", (const char *)*state);
    expect_data(*state, args, 1, "skipped      2 records: malformed record (1), a column is missing (1)");
    expect_data(*state, args, 1, "qa.jsonl, line 2: ");
    expect_data(*state, args, 1, "not read     columns extra");
    expect_data(*state, args, 1, "2 of 4 records are bad (50%)");
    expect_data(*state, args, 1, "More than max_bad_share (5%)");
    expect_data(*state, args, 1, "a\\x1b[2J"); /* nothing that a terminal would obey */
    expect_data(*state, args, 1, "1 of 4 records spell special tokens in their text");
    snprintf(args, sizeof args, "--dataset-path %s/qa.jsonl --max-bad-share 1 --json", (const char *)*state);
    expect_data(*state, args, 0, "\"left_out\": 2, \"reasons\": {\"malformed record\": 1, \"a column is missing\": 1}");
    expect_data(*state, args, 0, "qa.jsonl, line 2: no column");
}

static void a_run_says_what_it_leaves_out_and_saves_its_template(void **state)
{
    const char *dir = *state;
    char args[2048];
    mt_str text = { 0 };
    for (int i = 0; i < 40; i++) mt_str_printf(&text, "{\"query\": \"%d?\", \"response\": \"%d\"}\n", i, i);
    mt_str_puts(&text, "{\"query\": \"odd\"}\n");
    tempdir_write(dir, "qa.jsonl", text.s);
    mt_str_free(&text);
    snprintf(args, sizeof args,
             "train --model-name " MT_TESTS_DIR
             "/../data/demo_model --from-scratch --dataset-path %s/qa.jsonl --cache-dir %s --num-steps 1 "
             "--batch-size 2 --max-seq-len 256 --output-dir %s/out --device cpu --template vicuna 2>&1; cat "
             "%s/out/final/chat_template.jinja; rm -rf %s/out",
             dir, dir, dir, dir, dir);
    expect_program(args, 0, "warning: dataset qa.jsonl: 1 of 41 records are skipped: a column is missing (1)\n  ");
    expect_program(args, 0, "qa.jsonl, line 41: no column \"response\"");
    expect_program(args, 0, "' ASSISTANT:' }}");
}

static void plain_text_is_packed(void **state)
{
    char args[1024];
    tempdir_write(*state, "text.txt", "The first line of a text.\n\nThe second one, after an empty line.\nAnd a third.\n");
    snprintf(args, sizeof args, "--dataset-path %s/text.txt --max-seq-len 64 --show 1", (const char *)*state);
    expect_data(*state, args, 0, "4 records, 3 samples");
    expect_data(*state, args, 0, "records without a sample (empty lines): 1");
    expect_data(*state, args, 0, "packing      1 row of 64 tokens");
}

static void misuse_is_explained(void **state)
{
    expect_program("data --help", 0, "--show N");
    expect_data(*state, "--dataset-name alpca", 1, "alpaca");
    expect_data(*state, "--dataset-name alpaca --shw 3", 2, "did you mean --show?");
    expect_data(*state, "--dataset-name alpaca --show -1", 2, "--show expects how many samples");
    expect_program("data --set model.name=" TOKENIZER, 2, "dataset");
    expect_data(*state,
                "--dataset-name alpaca,metamathqa --set dataset.mix_strategy=interleave_under --set "
                "dataset.interleave_probs=[0.2,0.3,0.5]",
                2, "interleave_probs");
}

/* The rows after the sample; a pipe gets them unbroken. */
static void rows_fit_a_narrow_terminal(void **state)
{
    static char out[1 << 16];
    char cache[600];
    snprintf(cache, sizeof cache, "dataset.cache_dir=%s", (const char *)*state);
    const char *const args[] = { MT_BINARY,        "data",   "--model-name", TOKENIZER, "--dataset-dir", FIXTURES, "--set", cache,
                                 "--dataset-name", "alpaca", "--show",       "0",       "--quiet",       NULL };
    const char *const answers[] = { NULL };
    assert_int_equal(pty_run(args, 40, answers, out, sizeof out), 0);
    if (!strstr(out, "dataset      alpaca: 10 records, 10\n             samples, 472 tokens, 46.4%\n             trained\n"))
        fail_msg("not broken at 40 columns:\n%s", out);
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(IN_TEMPDIR(samples_are_shown_with_the_trained_part_marked),
             IN_TEMPDIR(the_summary_names_what_is_cut_packed_and_not_read),
             IN_TEMPDIR(cut_samples_that_were_asked_for_do_not_stop), IN_TEMPDIR(a_thought_that_is_never_closed_is_found),
             IN_TEMPDIR(a_thought_that_the_template_does_not_show_is_found),
             IN_TEMPDIR(a_template_that_does_not_fit_stops_before_anything_is_tokenized),
             IN_TEMPDIR(the_layout_of_a_file_is_found_and_said), IN_TEMPDIR(a_long_sample_is_shown_without_its_middle),
             IN_TEMPDIR(bad_records_are_listed_and_counted), IN_TEMPDIR(a_run_says_what_it_leaves_out_and_saves_its_template),
             IN_TEMPDIR(plain_text_is_packed), IN_TEMPDIR(rows_fit_a_narrow_terminal), IN_TEMPDIR(misuse_is_explained))
