/* pty.h - the program on its own terminal, answered line by line.  Define _GNU_SOURCE before the first include. */
#ifndef MT_TEST_PTY_H
#define MT_TEST_PTY_H

#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { PTY_SECONDS = 60 };

/* Why there is no pseudo-terminal to be had, as in a container without /dev/pts; NULL: there is one. */
static inline const char *pty_missing(const char *ptmx)
{
    const char *why = NULL, *name = NULL;
    int master = open(ptmx, O_RDWR | O_NOCTTY), other = -1;
    if (master < 0) return "no pseudo-terminal (/dev/ptmx)";
    if (grantpt(master) == 0 && unlockpt(master) == 0) name = ptsname(master);
    if (name) other = open(name, O_RDWR | O_NOCTTY);
    if (other < 0) why = "no pseudo-terminal (/dev/pts is not mounted)";
    if (other >= 0) close(other);
    close(master);
    return why;
}

static inline pid_t pty_start(int *master, int columns, const char *const *args)
{
    *master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(*master >= 0 && grantpt(*master) == 0 && unlockpt(*master) == 0);
    struct winsize size = { .ws_row = 40, .ws_col = (unsigned short)columns };
    const char *name = ptsname(*master);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    setsid();
    int fd = open(name, O_RDWR);
    struct termios plain;
    tcgetattr(fd, &plain);
    plain.c_lflag &= ~(tcflag_t)ECHO; /* typed text is not output */
    plain.c_oflag &= ~(tcflag_t)OPOST;
    tcsetattr(fd, TCSANOW, &plain);
    ioctl(fd, TIOCSWINSZ, &size);
    for (int i = 0; i < 3; i++) dup2(fd, i);
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    close(*master);
    execv(MT_BINARY, (char *const *)(uintptr_t)args);
    _exit(127);
}

/* Everything it prints until it ends; each time it waits after a blank for input, the next of `answers` (NULL: the end of input).
 * Returns the exit status; a program that neither ends nor asks is killed, and the test fails. */
static inline int pty_run(const char *const *args, int columns, const char *const *answers, char *out, size_t n)
{
    int master, status;
    size_t got = 0;
    const char *missing = pty_missing("/dev/ptmx");
    if (missing) mt_skip(missing);
    pid_t pid = pty_start(&master, columns, args);
    for (;;) {
        struct pollfd p = { .fd = master, .events = POLLIN };
        bool waits = got && out[got - 1] == ' '; /* a question ends so; a little later nothing has followed */
        int ready = poll(&p, 1, waits ? 50 : 1000 * PTY_SECONDS);
        if (ready == 0 && waits) {
            const char *text = *answers ? *answers++ : "\4";
            assert_int_equal(write(master, text, strlen(text)), strlen(text));
            out[got++] = '\n';
            continue;
        }
        ssize_t k = ready > 0 && got + 1 < n ? read(master, out + got, n - 1 - got) : 0;
        if (k <= 0) break; /* it has ended, or will not */
        got += (size_t)k;
    }
    out[got] = '\0';
    close(master);
    for (int i = 0; waitpid(pid, &status, WNOHANG) == 0; i++) {
        if (i == 500) kill(pid, SIGKILL);
        usleep(10000);
    }
    if (!WIFEXITED(status)) fail_msg("it did not end; it said:\n%s", out);
    return WEXITSTATUS(status);
}

#endif
