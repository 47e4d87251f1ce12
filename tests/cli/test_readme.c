/* Every command of the README, as it stands there: the blocks marked sh run in a folder that has what a fresh clone has after
 * `make`, and a small model under the name of the one that would come from the hub.  Two things are shortened on the way: `make`
 * only says what it would do (the demo and the tests have their own runs), and training takes two steps on the CPU. */
#include "process.h"
#include "program.h"
#include "tempdir.h"
#include "workspace.h"

#define ROOT MT_TESTS_DIR "/.."

static const char MAKE[] = "#!/bin/sh\nexec /usr/bin/env PATH=\"$OLD_PATH\" make -n -C '" ROOT "' \"$@\"\n";
static const char PROGRAM[] = "#!/bin/sh\n"
                              "case \"$1 $*\" in\n"
                              "*--dry-run*) exec '" MT_BINARY "' \"$@\" --device cpu ;;\n"
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
    workspace_write(dir, "program", PROGRAM);
    snprintf(script, sizeof script,
             "cd '%s' && chmod +x make program && mkdir -p bin build HuggingFaceTB Qwen && mv make bin/ && mv program "
             "build/megatrain && "
             "ln -s '%s/configs' '%s/data' '%s/README.md' . && "
             "build/megatrain train --config configs/demo.yaml --output-dir model --set eval.at_start=false 2>&1 && "
             "mv model/final HuggingFaceTB/SmolLM2-135M-Instruct && cp -r HuggingFaceTB/SmolLM2-135M-Instruct "
             "Qwen/Qwen2.5-0.5B-Instruct",
             dir, ROOT, ROOT, ROOT);
    if (run_shell(script, out, sizeof out) != 0) fail_msg("the folder could not be laid out: %s", out);
}

/* One block, from its first command to its last; each must succeed. */
static void run_block(const char *dir, const char *block, int number)
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
    if (status != 0) fail_msg("block %d of the README ended with %d:\n%s\n-- it printed:\n%s", number, status >> 8, block, out);
}

static void every_command_works(void **state)
{
    mt_err err = { 0 };
    char *readme;
    int n = 0;
    lay_out(*state);
    assert_ok(mt_file_read(&readme, NULL, ROOT "/README.md", 1 << 20, &err));
    for (char *at = readme; (at = strstr(at, "\n```sh\n"));) {
        char *from = at + strlen("\n```sh\n"), *to = strstr(from, "\n```\n");
        assert_non_null(to);
        to[1] = '\0';
        run_block(*state, from, ++n);
        at = to + 2;
    }
    assert_true(n >= 6);
    mt_free(readme);
    assert_ok(mt_dir_remove(*state, &err));
    assert_int_equal(mkdir(*state, 0700), 0); /* the fixture removes it */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(every_command_works, tempdir_make, tempdir_remove) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
