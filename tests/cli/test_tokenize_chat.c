/* `megatrain tokenize --chat` as a user meets it. */
#include "program.h"
#include "tempdir.h"

#define TOKENIZER MT_TESTS_DIR "/golden/samples/tokenizer"

static void with_input(const char *dir, const char *options, const char *input, int status, const char *says)
{
    char path[512], args[1024];
    snprintf(path, sizeof path, "%s/in", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(input, f) >= 0);
    assert_int_equal(fclose(f), 0);
    snprintf(args, sizeof args, "tokenize %s " TOKENIZER " < '%s'", options, path);
    expect_program(args, status, says);
}

static void chat_lines_show_text_ids_and_labels(void **state)
{
    const char *dir = *state, *chat = "--chat --template chatml";
    with_input(dir, chat, "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"\"}]\n", 0,
               "{\"text\": \"<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n<|im_end|>\\n\", \"input_ids\": [3, ");
    with_input(dir, chat, "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"\"}]\n", 0,
               "-100, 4, -100]}\n");
    with_input(dir, chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"add_generation_prompt\":true}\n", 0,
               "<|im_start|>assistant\\n\", \"input_ids\"");
    with_input(dir, chat, "[{\"role\":\"user\",\"content\":\"Hi\"}]\n", 0, "{\"text\": \"<|im_start|>user\\nHi<|im_end|>\\n\", ");
    with_input(dir, "--chat --template deepseekr1",
               "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"user\",\"content\":"
               "\"c\"},{\"role\":\"assistant\",\"content\":\"d\"}]\n",
               0, "}\n{\"text\": "); /* a line a sample */
}

static void mistakes_name_the_line(void **state)
{
    const char *dir = *state;
    with_input(dir, "--chat", "[]\n", 1, "line 1: \"messages\" is empty");
    with_input(dir, "--chat", "[{\"role\":\"user\",\"content\":\"Hi\"}]\n{oops\n", 1, "line 2: ");
    with_input(dir, "--chat", "[{\"role\":\"nobody\",\"content\":\"Hi\"}]\n", 1, "line 1: message 1 has the role \"nobody\"");
    with_input(dir, "--chat --template chatlm", "", 2, "did you mean \"chatml\"?");
    with_input(dir, "--chat --decode", "", 2, "give one of the two");
    with_input(dir, "--chat", "", 0, "a plain Human/Assistant form is used");
}

MT_TEST_MAIN(cmocka_unit_test_setup_teardown(chat_lines_show_text_ids_and_labels, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(mistakes_name_the_line, tempdir_make, tempdir_remove))
