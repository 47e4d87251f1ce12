/* Every command of the README and of docs/first-steps.md, as it is printed there: the blocks marked sh run in a folder that has
 * what a fresh clone has after `make`, and a small model under the name of the one that would come from the hub.  Three things
 * are shortened: `git clone` makes an empty folder, `make` only prints what it would do (the demo and the tests have their own
 * runs), and training takes two steps on the CPU, but all ten with the user's own chat.jsonl. */
#include "process.h"
#include "program.h"
#include "tempdir.h"
#include "workspace.h"

#define ROOT MT_TESTS_DIR "/.."

static const char MAKE[] = "#!/bin/sh\nexec /usr/bin/env PATH=\"$OLD_PATH\" make -n -C '" ROOT "' \"$@\"\n";
static const char GIT[] = "#!/bin/sh\nexec mkdir -p \"$3\"\n"; /* clone ADDRESS FOLDER */
static const char PROGRAM[] = "#!/bin/sh\n"
                              "case \"$1 $*\" in\n"
                              "*--dry-run*|train*chat.jsonl*) exec '" MT_BINARY "' \"$@\" --device cpu ;;\n"
                              "train\\ *) exec '" MT_BINARY "' \"$@\" --device cpu --num-steps 2 --batch-size 2 ;;\n"
                              "bench\\ *) exec '" MT_BINARY "' \"$@\" --device cpu ;;\n"
                              "*) exec '" MT_BINARY "' \"$@\" ;;\n"
                              "esac\n";

/* As after git clone and make, and a cache in which the models of the examples are. */
static void lay_out(const char *dir)
{
    static char out[1 << 16];
    char script[4096];
    workspace_write(dir, "make", MAKE);
    workspace_write(dir, "git", GIT);
    workspace_write(dir, "program", PROGRAM);
    snprintf(script, sizeof script,
             "cd '%s' && chmod +x make git program && mkdir -p bin build HuggingFaceTB Qwen && mv make git bin/ && mv program "
             "build/megatrain && "
             "ln -s '%s/configs' '%s/data' '%s/README.md' . && "
             "build/megatrain train --config configs/demo.yaml --output-dir model --set eval.at_start=false 2>&1 && "
             "mv model/final HuggingFaceTB/SmolLM2-135M-Instruct && cp -r HuggingFaceTB/SmolLM2-135M-Instruct "
             "Qwen/Qwen2.5-0.5B-Instruct",
             dir, ROOT, ROOT, ROOT);
    if (run_shell(script, out, sizeof out) != 0) fail_msg("the folder could not be laid out: %s", out);
}

/* One block, from its first command to its last; each must succeed.  What they printed. */
static const char *run_block(const char *dir, const char *page, const char *block, int number)
{
    static char out[1 << 16];
    char path[1024], script[4096];
    workspace_write(dir, "block.sh", block);
    snprintf(path, sizeof path, "%s/block.sh", dir);
    snprintf(script, sizeof script,
             "cd '%s' && OLD_PATH=\"$PATH\" PATH=\"$PWD/bin:$PATH\" HF_HUB_OFFLINE=1 HF_HOME=\"$PWD/hf\" "
             "XDG_CACHE_HOME=\"$PWD/cache\" bash -e block.sh < /dev/null 2>&1",
             dir);
    int status = run_shell(script, out, sizeof out);
    if (status != 0) fail_msg("block %d of %s ended with %d:\n%s\n-- it printed:\n%s", number, page, status >> 8, block, out);
    return out;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

/* A file of the user's own, a small model, ten steps, an answer: four commands. */
static void check_own_data(const char *dir, const char *block, const char *printed)
{
    static const char *const says[] = {
        "chat.jsonl: conversations in \"messages\", with \"role\" (user, assistant) and \"content\"",
        "4 records, 4 samples",
        "a sample, with trained parts in [[brackets]]:",
        "[[",
        "evaluation loss ",
        "done: 10 steps; the model is in runs/rex/final"
    };
    char path[1024];
    assert_int_equal(count(block, "\nbuild/megatrain ") + (strncmp(block, "cat > chat.jsonl", 16) == 0), 4);
    for (size_t i = 0; i < MT_COUNT(says); i++)
        if (!strstr(printed, says[i])) fail_msg("the user's own data: \"%s\" was not printed:\n%s", says[i], printed);
    snprintf(path, sizeof path, "%s/runs/rex/final/config.json", dir);
    assert_true(mt_file_exists(path));
    assert_true(strlen(strstr(printed, "report.html")) > strlen("report.html\n")); /* and then it answered */
}

/* The README's entry of dataset_info.json describes the same file. */
static void check_registry_entry(const char *dir, const char *readme)
{
    static char out[1 << 16];
    char script[4096];
    const char *from = strstr(readme, "\n```json\n"), *to = from ? strstr(from + 9, "\n```\n") : NULL;
    assert_non_null(to);
    snprintf(script, sizeof script, "%.*s\n", (int)(to - from - 9), from + 9);
    workspace_write(dir, "dataset_info.json", script);
    snprintf(script, sizeof script,
             "cd '%s' && HF_HUB_OFFLINE=1 XDG_CACHE_HOME=\"$PWD/cache\" build/megatrain data --model-name "
             "HuggingFaceTB/SmolLM2-135M-Instruct --dataset-dir . --dataset-name rex --max-seq-len 256 2>&1",
             dir);
    if (run_shell(script, out, sizeof out) != 0 || !strstr(out, "rex: 4 records, 4 samples"))
        fail_msg("the registry entry: %s", out);
}

/* Runs the blocks of a page; *n_own counts those about the user's own data.  How many there are. */
static int run_page(const char *dir, const char *page, int *n_own)
{
    mt_err err = { 0 };
    char path[1024], *text;
    int n = 0;
    snprintf(path, sizeof path, ROOT "/%s", page);
    assert_ok(mt_file_read(&text, NULL, path, 1 << 20, &err));
    for (char *at = text; (at = strstr(at, "\n```sh\n"));) {
        char *from = at + strlen("\n```sh\n"), *to = strstr(from, "\n```\n");
        assert_non_null(to);
        to[1] = '\0';
        const char *printed = run_block(dir, page, from, ++n);
        if (strstr(from, "chat.jsonl")) {
            check_own_data(dir, from, printed);
            check_registry_entry(dir, to + 2);
            ++*n_own;
        }
        at = to + 2;
    }
    mt_free(text);
    return n;
}

static void every_command_works(void **state)
{
    mt_err err = { 0 };
    int n_own = 0;
    lay_out(*state);
    assert_true(run_page(*state, "README.md", &n_own) >= 4);
    assert_true(run_page(*state, "docs/first-steps.md", &n_own) >= 6);
    assert_int_equal(n_own, 1);
    assert_ok(mt_dir_remove(*state, &err));
    assert_int_equal(mkdir(*state, 0700), 0); /* the fixture removes it */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(every_command_works, tempdir_make, tempdir_remove) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
