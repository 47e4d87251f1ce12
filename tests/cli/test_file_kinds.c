/* What is opened may not be a file: every path that the program reads or writes, and in its place a FIFO without a writer, a
 * directory, a link out of the folder, a link to itself, a device, and a file of a terabyte that is all holes.  Each ends soon,
 * by itself, and where it fails it says so with the name.  MT_KINDS=all tries every pair (`make soak`); else every fifth, in
 * turn. */
#include "process.h"
#include "program.h"
#include "workspace.h"

#include <sys/sysmacros.h>
#include <time.h>

#define DEMO MT_TESTS_DIR "/../data/demo_model"

typedef enum kind { FIFO, DIRECTORY, LINK_OUT, LOOP, DEVICE, SPARSE, KINDS } kind;
static const char *const kind_names[KINDS] = { "a FIFO",           "a directory", "a link out",
                                               "a link to itself", "a device",    "a terabyte of holes" };

/* Which command opens it.  All run in a folder with m (a model with weights), d.jsonl, c.yaml, prompts.txt and out, a run of it.
 */
typedef enum verb { TRAIN, RESUME, OVERWRITE, GENERATE, INSPECT, TOKENIZE, REPORT, CONVERT, COMMANDS } verb;
#define MADE "--device cpu --batch-size 1 --max-seq-len 64 --num-steps 2 --save-steps 1 --cache-dir cache "
static const char *const commands[COMMANDS] = {
    [TRAIN] = "train --config c.yaml --model-name m --dataset-path d.jsonl --output-dir new " MADE,
    [RESUME] = "train --config c.yaml --model-name m --dataset-path d.jsonl --output-dir out --resume --tensorboard " MADE,
    [OVERWRITE] = "train --config c.yaml --model-name m --dataset-path d.jsonl --output-dir out --overwrite " MADE,
    [GENERATE] = "generate m --device cpu --max-new-tokens 1 --prompts prompts.txt",
    [INSPECT] = "inspect m",
    [TOKENIZE] = "tokenize m",
    [REPORT] = "report out",
    [CONVERT] = "convert m converted",
};

static const struct opened {
    const char *path;
    verb by;
} paths[] = {
    { "m/config.json", TRAIN },
    { "m/config.json", INSPECT },
    { "m/generation_config.json", TRAIN },
    { "m/tokenizer.json", TRAIN },
    { "m/tokenizer.json", TOKENIZE },
    { "m/tokenizer_config.json", TRAIN },
    { "m/chat_template.jinja", TRAIN },
    { "m/modeling_x.py", TRAIN },
    { "m/modeling_x.py", CONVERT },
    { "m/model.safetensors", TRAIN },
    { "m/model.safetensors", GENERATE },
    { "m/model.safetensors", INSPECT },
    { "m/model.safetensors.index.json", INSPECT },
    { "m/model.gguf", INSPECT },
    { "m/pytorch_model.bin", INSPECT },
    { "d.jsonl", TRAIN },
    { "c.yaml", TRAIN },
    { "prompts.txt", GENERATE },
    { "cache", TRAIN },
    { "new", TRAIN },
    { "out/plan.json", RESUME },
    { "out/plan.json", REPORT },
    { "out/plan.json.tmp", RESUME },
    { "out/config.yaml", RESUME },
    { "out/config.yaml", REPORT },
    { "out/metrics.jsonl", RESUME },
    { "out/metrics.jsonl", REPORT },
    { "out/log.txt", RESUME },
    { "out/log.txt", REPORT },
    { "out/report.html", RESUME },
    { "out/report.html", REPORT },
    { "out/.lock", RESUME },
    { "out/.files", RESUME },
    { "out/.files", OVERWRITE },
    { "out/tensorboard", RESUME },
    { "out/final", RESUME },
    { "out/final", OVERWRITE },
    { "out/checkpoint-2", RESUME },
    { "out/checkpoint-2/checksums.json", RESUME },
    { "out/checkpoint-2/resume/state.json", RESUME },
    { "out/checkpoint-2/resume/settings.yaml", RESUME },
    { "out/checkpoint-2/resume/unit-000.safetensors", RESUME },
    { "out/checkpoint-2.tmp", RESUME },
};

/* The folder that every case begins with. */
static void make_start(const char *root)
{
    char command[8192], out[8192];
    snprintf(command, sizeof command,
             "cd '%s' && mkdir start && cd start && mkdir s && cp " DEMO
             "/tok* s && sed 's/\"hidden_size\": *[0-9]*/\"hidden_size\": 32/; "
             "s/\"intermediate_size\": *[0-9]*/\"intermediate_size\": 64/; s/\"num_hidden_layers\": "
             "*[0-9]*/\"num_hidden_layers\": 1/' " DEMO "/config.json > s/config.json && printf '{\"query\": \"a\", "
             "\"response\": \"b\"}\\n' > d.jsonl && echo 'hello' > prompts.txt && "
             "echo 'training: {learning_rate: 1e-3}' > c.yaml && '" MT_BINARY
             "' train --config c.yaml --model-name s --from-scratch --dataset-path d.jsonl --output-dir o " MADE
             "2>&1 && mv o/final m && "
             "rm -r o s && '" MT_BINARY "' %s 2>&1 && mv new out",
             root, commands[TRAIN]);
    if (run_shell(command, out, sizeof out)) fail_msg("%s", out);
}

static bool put_kind(const char *path, kind k)
{
    mt_err err = { 0 };
    assert_ok(mt_dir_remove(path, &err));
    if (k == FIFO) return mkfifo(path, 0666) == 0;
    if (k == DIRECTORY) return mkdir(path, 0777) == 0;
    if (k == LINK_OUT) return symlink("/etc/hostname", path) == 0;
    if (k == LOOP) return symlink(mt_path_base(path), path) == 0;
    if (k == DEVICE) return mknod(path, S_IFCHR | 0666, makedev(1, 5)) == 0; /* /dev/zero: has no end; only root may */
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    bool ok = fd >= 0 && ftruncate(fd, (off_t)1 << 40) == 0;
    if (fd >= 0) close(fd);
    return ok;
}

/* Its status; 124: it did not end within a time that is long for it. */
static int run_case(const char *root, const char *args, char *out, size_t n)
{
    char command[4096];
    snprintf(command, sizeof command, "cd '%s/case' && timeout -k 1 -s KILL 60 '" MT_BINARY "' %s 2>&1 < /dev/null", root, args);
    return run_shell(command, out, n);
}

static void try_one(const char *root, const struct opened *o, kind k, mt_str *failed)
{
    char out[16384], command[4096];
    mt_err err = { 0 };
    assert_ok(mt_dir_remove(workspace_path("%s/case", root).s, &err));
    snprintf(command, sizeof command, "cp -r '%s/start' '%s/case'", root, root);
    assert_int_equal(run_shell(command, out, sizeof out), 0);
    if (!put_kind(workspace_path("%s/case/%s", root, o->path).s, k)) return;
    int status = run_case(root, commands[o->by], out, sizeof out);
    const char *wrong = status > 2                                      ? "it did not end by itself"
                        : status && !strstr(out, "error: ")             ? "no message"
                        : status && !strstr(out, mt_path_base(o->path)) ? "the message does not name it"
                                                                        : NULL;
    if (wrong) mt_str_printf(failed, "%s as %s: %s: %s (%d): %s\n", o->path, kind_names[k], commands[o->by], wrong, status, out);
}

static void whatever_is_opened_it_ends_soon_and_says_why(void **state)
{
    const char *root = *state, *env = getenv("MT_KINDS");
    size_t stride = env && strcmp(env, "all") == 0 ? 1 : 5, n = 0;
    mt_str failed = { 0 };
    make_start(root);
    for (size_t i = 0; i < MT_COUNT(paths); i++)
        for (int k = 0; k < KINDS; k++)
            if ((i * KINDS + (size_t)k) % stride == 0) try_one(root, &paths[i], (kind)k, &failed), n++;
    printf("%zu pairs of a path and a kind\n", n);
    if (failed.n) fail_msg("%s", failed.s);
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)
MT_TEST_MAIN(RUNS(whatever_is_opened_it_ends_soon_and_says_why))
