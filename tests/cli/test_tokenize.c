/* `megatrain tokenize`: lines in, JSON out, and back. */
#include "test.h"

#include "base/file.h"
#include "cli/cmd_tokenize.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL MT_TESTS_DIR "/golden/tokenizer/files/tiktoken.model"

typedef struct result {
    int status;
    char *out, *errors;
} result;

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static char *take_file(const char *path)
{
    mt_err err = { 0 };
    char *text;
    assert_ok(mt_file_read(&text, NULL, path, 1 << 20, &err));
    unlink(path);
    return text;
}

/* The command in a separate process, its streams in files. */
static result run(const char *input, int argc, char **argv)
{
    char dir[] = "/tmp/mt-tokenize-XXXXXX", in[64], out[64], errors[64];
    assert_non_null(mkdtemp(dir));
    snprintf(in, sizeof in, "%s/in", dir);
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(errors, sizeof errors, "%s/errors", dir);
    put_file(in, input);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = freopen(in, "r", stdin) && freopen(out, "w", stdout) && freopen(errors, "w", stderr);
        int status = ok ? mt_cmd_tokenize(argc, argv) : 99;
        fflush(NULL);
        _exit(status);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    result r = { .status = WEXITSTATUS(status), .out = take_file(out), .errors = take_file(errors) };
    unlink(in);
    rmdir(dir);
    return r;
}

static void release(result *r)
{
    mt_free(r->out);
    mt_free(r->errors);
}

static void lines_become_ids_and_ids_become_lines(void **state)
{
    (void)state;
    result ids = run("the theory\n\nab\tc \xe4\xbd\xa0\n", 2, (char *[]){ "tokenize", MODEL });
    assert_int_equal(ids.status, 0);
    assert_string_equal(ids.errors, "");
    assert_non_null(strstr(ids.out, "]\n[]\n["));
    result text = run(ids.out, 3, (char *[]){ "tokenize", MODEL, "--decode" });
    assert_int_equal(text.status, 0);
    assert_string_equal(text.out, "\"the theory\"\n\"\"\n\"ab\\tc \xe4\xbd\xa0\"\n");
    release(&ids);
    release(&text);
}

static void special_tokens_can_be_left_out(void **state)
{
    (void)state;
    char *model = MT_TESTS_DIR "/golden/tokenizer/files/spm_bpe.model";
    result with = run("the\n", 2, (char *[]){ "tokenize", model }),
           without = run("the\n", 3, (char *[]){ "tokenize", "--no-special", model });
    assert_int_equal(with.status, 0);
    assert_string_equal(with.out, without.out); /* a bare file has nothing around its text */
    release(&with);
    release(&without);
}

static void mistakes_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *input;
        int argc;
        char *argv[4];
        int status;
        const char *says;
    } cases[] = {
        { "", 1, { "tokenize" }, 2, "DIR is missing" },
        { "", 3, { "tokenize", "--what", MODEL }, 2, "no option --what" },
        { "", 2, { "tokenize", "/nowhere" }, 1, "/nowhere" },
        { "ok\n\xff\n", 2, { "tokenize", MODEL }, 1, "line 2: the text is not valid UTF-8 at byte 0" },
        { "[1]\n{}\n", 3, { "tokenize", MODEL, "--decode" }, 1, "line 2: a JSON array of ids was expected" },
        { "[1, -4]\n", 3, { "tokenize", MODEL, "--decode" }, 1, "entry 1 of the array is not an id" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        result r = run(cases[i].input, cases[i].argc, (char **)cases[i].argv);
        assert_int_equal(r.status, cases[i].status);
        if (!strstr(r.errors, cases[i].says)) fail_msg("expected \"%s\" in: %s", cases[i].says, r.errors);
        release(&r);
    }
}

MT_TEST_MAIN(cmocka_unit_test(lines_become_ids_and_ids_become_lines), cmocka_unit_test(special_tokens_can_be_left_out),
             cmocka_unit_test(mistakes_are_explained))
