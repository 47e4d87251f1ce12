/* process.h - the program as a process, run by a test: started in a directory, killed or waited for, its words kept. */
#ifndef MT_TEST_PROCESS_H
#define MT_TEST_PROCESS_H

#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROGRAM_MAX_ARGS = 64, PROGRAM_MAX_TEXT = 1 << 16 };

typedef struct program {
    const char *dir;   /* it runs here */
    const char *fault; /* MT_FAULT, or NULL */
    const char *args[PROGRAM_MAX_ARGS];
    int n_args;
    pid_t pid;
    int out;                     /* both its streams */
    int status;                  /* exit status, or -signal */
    size_t n_text;               /* bytes it has said so far */
    char text[PROGRAM_MAX_TEXT]; /* what it said, or the end of that */
} program;

/* A setting may be given once: an option that is there already leaves, with its value. */
static inline void program_drop(program *p, const char *option)
{
    option += strncmp(option, "--no-", 5) == 0 ? 5 : 2;
    const size_t n = strcspn(option, "=");
    int first = p->n_args;
    while (first > 1 && strcmp(p->args[first - 1], ":") != 0) first--; /* mpirun's: another program's words follow */
    for (int i = first; i < p->n_args; i++) {
        if (strncmp(p->args[i], "--", 2) != 0) continue;
        const char *word = p->args[i] + (strncmp(p->args[i], "--no-", 5) == 0 ? 5 : 2);
        if (strncmp(word, option, n) != 0 || (word[n] && word[n] != '=')) continue;
        const int width = !word[n] && i + 1 < p->n_args && strncmp(p->args[i + 1], "--", 2) != 0 ? 2 : 1;
        memmove(&p->args[i], &p->args[i + width], (size_t)(p->n_args - i - width + 1) * sizeof *p->args);
        p->n_args -= width;
        return;
    }
}

static inline void program_arg(program *p, const char *arg)
{
    const bool repeats = strcmp(arg, "--set") == 0 || strcmp(arg, "--prompt") == 0;
    if (strncmp(arg, "--", 2) == 0 && arg[2] && !repeats) program_drop(p, arg);
    assert_true(p->n_args + 1 < PROGRAM_MAX_ARGS);
    p->args[p->n_args++] = arg;
    p->args[p->n_args] = NULL;
}

static inline void program_init(program *p, const char *dir)
{
    p->dir = dir;
    p->fault = NULL;
    p->n_args = 0;
    p->text[0] = '\0';
    const char *elsewhere = getenv("MT_PROGRAM"); /* another build of it, or tests that were copied to another machine */
    program_arg(p, elsewhere ? elsewhere : MT_BINARY);
}

/* Its words, all at once: PROGRAM_WORDS(&p, dir, "train", "my.yaml"). */
static inline void program_words(program *p, const char *dir, const char *const *words, size_t n)
{
    program_init(p, dir);
    for (size_t i = 0; i < n; i++) program_arg(p, words[i]);
}
#define PROGRAM_WORDS(p, dir, ...)                                                                                               \
    program_words(p, dir, (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

static inline void program_start(program *p)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        close(ends[0]);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        if (p->fault) setenv("MT_FAULT", p->fault, 1);
        if (chdir(p->dir) == 0) execv(p->args[0], (char *const *)(uintptr_t)p->args);
        _exit(127);
    }
    close(ends[1]);
    p->out = ends[0];
    p->n_text = 0;
    p->text[0] = '\0';
}

/* Read what it says; false: it has ended.  If there is no room left, the older half goes: how a run ended is at the end. */
static inline bool program_read(program *p)
{
    if (p->n_text == PROGRAM_MAX_TEXT - 1) {
        const size_t half = PROGRAM_MAX_TEXT / 2;
        p->n_text -= half;
        memmove(p->text, p->text + half, p->n_text + 1);
    }
    ssize_t got = read(p->out, p->text + p->n_text, PROGRAM_MAX_TEXT - 1 - p->n_text);
    if (got <= 0) return false;
    p->n_text += (size_t)got;
    p->text[p->n_text] = '\0';
    return true;
}

/* Until it has said so, or has ended. */
static inline void program_await(program *p, const char *words)
{
    while (!strstr(p->text, words) && program_read(p)) {
    }
}

static inline int program_wait(program *p)
{
    while (program_read(p)) {
    }
    close(p->out);
    int status = 0;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    p->status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    return p->status;
}

static inline int program_run(program *p)
{
    program_start(p);
    return program_wait(p);
}

/* It said so. */
#define assert_printed(p, words)                                                                                                 \
    do {                                                                                                                         \
        if (!strstr((p)->text, words)) fail_msg("expected \"%s\" in: %s", words, (p)->text);                                     \
    } while (0)

#endif
