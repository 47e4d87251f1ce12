/* program.h - the built program run as a user runs it: exit status, and what it printed. */
#ifndef MT_TEST_PROGRAM_H
#define MT_TEST_PROGRAM_H

#include "test.h"

#include <stdlib.h>
#include <sys/wait.h>

/* sh -c COMMAND: its status; what it prints lands in out, as much as there is room for. */
static inline int run_shell(const char *command, char *out, size_t n)
{
    FILE *p = popen(command, "r");
    assert_non_null(p);
    size_t got = fread(out, 1, n - 1, p);
    out[got] = '\0';
    while (fgetc(p) != EOF) {
    }
    int status = pclose(p);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* sh -c "megatrain ARGS"; output (both streams) lands in out. */
static inline int run_program(const char *args, char *out, size_t n)
{
    char command[4096];
    snprintf(command, sizeof command, "'%s' %s 2>&1", MT_BINARY, args);
    return run_shell(command, out, n);
}

/* Run once; check the status and that the output mentions each of `says`, which end with NULL. */
static inline void expect_program_all(const char *args, int status, const char *const *says)
{
    char out[16384];
    int got = run_program(args, out, sizeof out);
    for (; *says; says++)
        if (got != status || !strstr(out, *says))
            fail_msg("megatrain %s: status %d (expected %d), expected \"%s\" in:\n%s", args, got, status, *says, out);
}

/* The same for one text. */
static inline void expect_program(const char *args, int status, const char *says)
{
    expect_program_all(args, status, (const char *const[]){ says, NULL });
}

#endif
