/* main.c - megatrain COMMAND ...: the table of commands, and the setup that all of them share. */
#include "base/fault.h"
#include "base/log.h"
#include "base/stack.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/complete.h"
#include "cli/lost_page.h"
#include "cli/terminal.h"
#include "device/blas.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    { "train", mt_cmd_train, "train or fine-tune a model" },
    { "get", mt_cmd_get, "download a model or dataset from the Hugging Face hub into the cache" },
    { "data", mt_cmd_data, "show a run's data: samples, trained tokens, lengths, cut and bad records" },
    { "plan", mt_cmd_plan, "show whether a run fits, its speed and batch size, for this machine or another" },
    { "inspect", mt_cmd_inspect, "show a model directory: family, units, sizes, assumptions" },
    { "convert", mt_cmd_convert, "convert any readable model (pickles, GGUF, FP8, MXFP4) to a Hugging Face directory" },
    { "tokenize", mt_cmd_tokenize, "convert text lines to token ids, and back" },
    { "families", mt_cmd_families, "list the known model families" },
    { "bench", mt_cmd_bench, "measure how fast this machine trains a shape, with random weights and no files" },
    { "report", mt_cmd_report, "show runs as one page of charts: a file, or live while a run continues" },
    { "grad", mt_cmd_grad, "write loss and gradients of given tokens, to compare with another implementation" },
    { "generate", mt_cmd_generate, "continue or answer prompts with a trained model" },
};

static void print_help(FILE *out)
{
    fprintf(out,
            "megatrain %s: train and fine-tune Hugging Face decoder models at full precision on one GPU, or on the CPU.\n\n"
            "usage: megatrain COMMAND [options]       megatrain COMMAND --help, or --help-all for everything\n\n",
            MT_VERSION);
    for (size_t i = 0; i < MT_COUNT(commands); i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\nFirst steps: megatrain plan MODEL, megatrain data FILE.yaml, megatrain train FILE.yaml --dry-run.\n"
                 "Every command takes --quiet (only results, warnings and errors) and --verbose.  Status: 0 done, 1 failed,\n"
                 "2 invalid arguments, 130, 140 or 143 a run stopped by SIGINT, SIGUSR2 or SIGTERM (--resume continues it).\n");
}

static void print_notice(void *user, mt_log_level level, const char *text)
{
    (void)user;
    if (!mt_cli_shows(level)) return;
    fprintf(stderr, "%s%s\n", level == MT_LOG_WARN ? "warning: " : "", text);
}

static int unknown_command(const char *word)
{
    mt_nearest near = { .word = word };
    for (size_t i = 0; i < MT_COUNT(commands); i++) mt_nearest_offer(&near, commands[i].name);
    fprintf(stderr, "error: no command \"%s\"", word);
    fprintf(stderr, near.best[0] ? "; did you mean %s?\n" : "; megatrain --help lists them\n", near.best);
    return 2;
}

/* --quiet and --verbose mean the same to every command.  -1: both were given. */
static int take_verbosity(int argc, char **argv)
{
    int kept = 0;
    bool ours = true, quiet = false, verbose = false;
    for (int i = 0; i < argc; i++) {
        ours = ours && strcmp(argv[i], "--") != 0;
        if (ours && strcmp(argv[i], "--quiet") == 0)
            quiet = true;
        else if (ours && strcmp(argv[i], "--verbose") == 0)
            verbose = true;
        else
            argv[kept++] = argv[i];
    }
    argv[kept] = NULL;
    if (quiet && verbose) return -1;
    if (quiet) mt_verbosity_set(MT_QUIET);
    if (verbose) mt_verbosity_set(MT_VERBOSE);
    return kept;
}

static int run_command(int argc, char **argv)
{
    argc = take_verbosity(argc, argv);
    if (argc < 0) return fprintf(stderr, "error: --quiet prints less and --verbose more; give only one of them\n"), 2;
    for (size_t i = 0; i < MT_COUNT(commands); i++)
        if (strcmp(argv[0], commands[i].name) == 0) return commands[i].run(argc, argv);
    return unknown_command(argv[0]);
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--complete") == 0) return argc == 3 ? mt_complete(argv[2]) : 2;
    if (strcmp(argv[1], "--version") == 0) return printf("megatrain %s\n", MT_VERSION), 0;
    char asked[] = "--help";
    if (strcmp(argv[1], "help") == 0 && argc > 2 && argv[2][0] != '-' && strcmp(argv[2], "help") != 0)
        return run_command(2, (char *[]){ argv[2], asked, NULL });
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "--help-all") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return print_help(stdout), 0;
    return run_command(argc - 1, argv + 1);
}

/* If a standard stream is closed, the next opened file would get its number and receive the output.  So fill it with a stand-in;
 * nothing can be written to stdout's, so that finish() reports it. */
static void hold_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
}

/* A command whose output could not be written has failed. */
static int main_finish(int status)
{
    static const char *const text = "could not write all of the output";
    bool before = ferror(stdout), now = fflush(stdout) != 0;
    if (!before && !now) return status;
    mt_err err = { 0 };
    if (now)
        mt_fail_errno(&err, MT_EIO, "%s", text);
    else
        mt_fail(&err, MT_EIO, "%s", text);
    int failed = mt_cli_failed(&err);
    return status ? status : failed;
}

int main(int argc, char **argv)
{
    hold_streams();
    mt_err err = { 0 };
    if (mt_stack_raise(&err)) return mt_cli_failed(&err);
    mt_blas_reexec(argv);
    mt_fault_from_env();
    mt_lost_page_explain();
    mt_log_set_sink(print_notice, NULL);
    mt_cli_program_set(argv[0]);
    return main_finish(run(argc, argv));
}
