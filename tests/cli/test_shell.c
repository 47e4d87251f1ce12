/* What the shell and man know of the program: completions and the manual page, both made of what --help says. */
#include "program.h"

#include <sys/stat.h>

#define ROOT MT_TESTS_DIR "/.."

/* What bash offers for these words, the last of which is being typed. */
static void ask_bash(const char *words, int at, char *got, size_t size)
{
    char command[4096];
    snprintf(command, sizeof command,
             "bash -c 'source %s/completions/megatrain.bash; COMP_WORDS=(\"%s\" %s); COMP_CWORD=%d; _megatrain; echo \" "
             "${COMPREPLY[*]} \"'",
             ROOT, MT_BINARY, words, at);
    assert_int_equal(run_shell(command, got, size), 0);
}

static void expect_offer(const char *words, int at, const char *offer)
{
    char got[8192];
    ask_bash(words, at, got, sizeof got);
    if (!strstr(got, offer)) fail_msg("for \"%s\" bash offers \"%s\", not \"%s\"", words, got, offer);
}

static void bash_completes_commands_options_and_files(void **state)
{
    (void)state;
    expect_offer("trai", 1, " train ");
    expect_offer("gen", 1, " generate ");
    expect_offer("train --grad-d", 2, " --grad-dtype ");
    expect_offer("train --determ", 2, " --deterministic ");
    expect_offer("train --no-determ", 2, " --no-deterministic ");
    expect_offer("generate model --temp", 3, " --temperature ");
    expect_offer("convert " ROOT "/READ", 2, "/README.md ");
    expect_offer("inspect m --js", 3, " --json ");
    expect_offer("inspect m --quie", 3, " --quiet ");
}

static void bash_completes_the_values_of_options(void **state)
{
    (void)state;
    expect_offer("train --lr-scheduler cosine_with_m", 3, " cosine_with_min_lr ");
    expect_offer("train --adam-state 8", 3, " 8bit ");
    expect_offer("train --adam-state = 8", 4, " 8bit "); /* --adam-state=8, as bash splits it */
    expect_offer("train --adam-state =", 3, " 8bit ");
    expect_offer("train --deterministic f", 3, " false ");
    expect_offer("train --device c", 3, " cpu cuda ");
    expect_offer("train --assume gemma", 3, " gemma gemma2 gemma3 ");
    expect_offer("plan --gpu h2", 3, " h200 ");
    expect_offer("plan --shape smollm2-1", 3, " smollm2-135m ");
    expect_offer("train --config " ROOT "/READ", 3, "/README.md "); /* no list: files */
}

static void bash_offers_every_flag(void **state)
{
    (void)state;
    static char help[1 << 17], got[1 << 14];
    int n = 0, n_switches = 0;
    assert_int_equal(run_program("train --help-all", help, sizeof help), 0);
    ask_bash("train --", 2, got, sizeof got);
    for (char *line = strtok(help, "\n"); line; line = strtok(NULL, "\n")) {
        char name[64], offer[80];
        bool is_switch = sscanf(line, "  --[no-]%63[a-z0-9-]", name) == 1;
        if (strncmp(line, "  --", 4) != 0 || (!is_switch && sscanf(line, "  --%63[a-z0-9-]", name) != 1)) continue;
        snprintf(offer, sizeof offer, " --%s ", name);
        if (!strstr(got, offer)) fail_msg("--%s is not among what bash offers:%s", name, got);
        n++, n_switches += is_switch;
    }
    assert_true(n > 60 && n_switches > 10);
}

/* What zsh is given to choose from: the command of its script, run by another shell. */
static void zsh_is_offered_both_ways_of_a_switch(void **state)
{
    (void)state;
    static char offered[1 << 16];
    char command[2048];
    int found = 0;
    snprintf(
        command, sizeof command,
        "bash -c 'program=\"%s\"; command=train; eval \"$(sed -n \"s/.*(f)\\\"\\$(\\(.*command --help-all.*\\))\\\"})/\\1/p\" "
        "%s/completions/_megatrain)\"'",
        MT_BINARY, ROOT);
    assert_int_equal(run_shell(command, offered, sizeof offered), 0);
    for (char *line = strtok(offered, "\n"); line; line = strtok(NULL, "\n")) {
        found += strncmp(line, "--deterministic:", 16) == 0;
        found += strcmp(line, "--no-deterministic:the opposite of --deterministic") == 0;
        found += strncmp(line, "--learning-rate:", 16) == 0;
    }
    assert_int_equal(found, 3);
}

static void the_manual_has_every_command(void **state)
{
    (void)state;
    char command[2048], line[4096], help[8192];
    static char manual[1 << 20];
    snprintf(command, sizeof command, "%s/scripts/manual.sh '%s'", ROOT, MT_BINARY);
    assert_int_equal(run_shell(command, manual, sizeof manual), 0);
    assert_int_equal(run_program("--help", help, sizeof help), 0);
    int n = 0;
    for (char *at = strtok(help, "\n"); at; at = strtok(NULL, "\n")) {
        char name[32];
        if (strncmp(at, "  ", 2) != 0 || sscanf(at, "%31s", name) != 1) continue;
        snprintf(line, sizeof line, ".SS %s\n", name);
        if (!strstr(manual, line)) fail_msg("the manual page has no %s", name);
        n++;
    }
    assert_true(n >= 10);
    assert_non_null(strstr(manual, "\\-\\-learning\\-rate"));
    assert_non_null(strstr(manual, "\\-\\-max\\-bad\\-steps")); /* every setting, not the usual ones alone */
    assert_non_null(strstr(manual, ".SH ENVIRONMENT\n"));
    assert_non_null(strstr(manual, "HF_HUB_CACHE"));
    assert_non_null(strstr(manual, ".SH EXAMPLES\n"));
    assert_non_null(strstr(manual, "130, 140, 143"));
}

/* What make would do, in order; nothing is done. */
static void expect_made(const char *args, const char *first, const char *then)
{
    static char said[1 << 16];
    char command[2048];
    snprintf(command, sizeof command, "make -n -C '%s' JOBS=1 %s 2>&1", ROOT, args);
    assert_int_equal(run_shell(command, said, sizeof said), 0);
    const char *at = strstr(said, first);
    if (!at || !strstr(at, then)) fail_msg("make %s does not \"%s\" and then \"%s\":\n%s", args, first, then, said);
}

/* On a fresh clone nothing but the program has been built by then. */
static void make_install_makes_the_manual_first(void **state)
{
    (void)state;
    expect_made("install PREFIX=/nowhere", "cmake --build --preset release -j 1 --target manual",
                "cmake --install build --prefix /nowhere");
}

/* Another preset has another folder. */
static void make_runs_what_it_has_built(void **state)
{
    (void)state;
    expect_made("demo", "cmake --build --preset release", "scripts/demo.sh build/megatrain");
    expect_made("demo BUILD=elsewhere", "cmake --build --preset release", "scripts/demo.sh build/megatrain");
    expect_made("demo PRESET=cuda", "cmake --build --preset cuda", "scripts/demo.sh build-cuda/megatrain");
    expect_made("soak PRESET=cuda", "cmake --build --preset cuda", "BUILD=build-cuda scripts/soak.sh");
}

static void a_demo_that_fails_says_why(void **state)
{
    (void)state;
    char out[4096];
    assert_true(run_shell("'" ROOT "/scripts/demo.sh' /nowhere/megatrain 2>&1", out, sizeof out) != 0);
    assert_non_null(strstr(out, "/nowhere/megatrain: No such file or directory"));
}

static void what_was_skipped_is_counted_by_reason(void **state)
{
    (void)state;
    char out[1024];
    assert_int_equal(run_shell("printf 'x\\nskipped: no cat\\nskipped: no dog\\n  skipped: indented\\nskipped: no dog\\n' > "
                               "/tmp/mt-skipped.log && " ROOT
                               "/scripts/skipped.sh /tmp/mt-skipped.log; rm -f /tmp/mt-skipped.log",
                               out, sizeof out),
                     0);
    const char *dog = strstr(out, "2 no dog"), *cat = strstr(out, "1 no cat");
    if (!strstr(out, "3 cases were skipped") || !dog || !cat || dog > cat) fail_msg("%s", out);
    assert_int_equal(run_shell(ROOT "/scripts/skipped.sh /dev/null", out, sizeof out), 0);
    assert_non_null(strstr(out, "no case was skipped"));
}

/* scripts/test.sh with a cmake and a ctest that fail where the test says so. */
static int run_stages(const char *no_build, const char *no_pass, char *out, size_t size)
{
    static const char *const fakes[2][2] = {
        { "cmake", "case \"$*\" in *--build*\"$NO_BUILD\"*) echo FAILED: x.o; echo 'x.c:1: error: no'; exit 1;; esac\n" },
        { "ctest", "case \"$*\" in *\"$NO_PASS\"*) printf 'The following tests did not run:\\n\\t 17 - unit.gpu (Skipped)\\n"
                   "The following tests FAILED:\\n\\t 81 - unit.store (Failed)\\n'; exit 8;; "
                   "esac\necho all passed \"$MT_FAULT_STRIDE\"\n" },
    };
    char dir[] = "/tmp/mt-stages-XXXXXX", command[1024], path[64];
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, fakes[i][0]);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "#!/bin/sh\n%s", fakes[i][1]);
        fclose(f);
        assert_int_equal(chmod(path, 0700), 0);
    }
    snprintf(command, sizeof command,
             "unset MT_FAULT_STRIDE; NO_BUILD=%s NO_PASS=%s BUILD=/nowhere/build PATH=%s:$PATH " ROOT
             "/scripts/test.sh 2>&1; s=$?; rm -r %s; exit $s",
             no_build, no_pass, dir, dir);
    return run_shell(command, out, size);
}

static void make_test_runs_every_stage_and_sums_them_up(void **state)
{
    (void)state;
    char out[8192];
    if (run_stages("nothing", "nothing", out, sizeof out) != 0) fail_msg("%s", out);
    assert_non_null(strstr(out, "all passed 19"));
    assert_non_null(strstr(out, "all passed 61"));
    assert_null(strstr(out, "FAILED"));
    if (run_stages("build-asan", "/nowhere/build", out, sizeof out) != 1) fail_msg("%s", out);
    const char *summary = strstr(out, "-- make test,");
    assert_non_null(summary);
    assert_non_null(strstr(out, "x.c:1: error: no"));
    const char *release = strstr(summary, "release"), *asan = strstr(summary, "asan"), *tsan = strstr(summary, "tsan");
    if (!release || !asan || !tsan) fail_msg("%s", out);
    if (!strstr(release, "FAILED: unit.store\n") || strstr(release, "FAILED: unit.store\n") > asan) fail_msg("%s", out);
    if (!strstr(asan, "FAILED: it does not build\n") || strstr(asan, "FAILED") > tsan) fail_msg("%s", out);
    if (!strstr(tsan, "passed\n")) fail_msg("%s", out);
    assert_int_equal(run_stages("nothing", "build-tsan", out, sizeof out), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bash_completes_commands_options_and_files),
        cmocka_unit_test(bash_completes_the_values_of_options),
        cmocka_unit_test(bash_offers_every_flag),
        cmocka_unit_test(zsh_is_offered_both_ways_of_a_switch),
        cmocka_unit_test(the_manual_has_every_command),
        cmocka_unit_test(make_install_makes_the_manual_first),
        cmocka_unit_test(make_runs_what_it_has_built),
        cmocka_unit_test(a_demo_that_fails_says_why),
        cmocka_unit_test(what_was_skipped_is_counted_by_reason),
        cmocka_unit_test(make_test_runs_every_stage_and_sums_them_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
