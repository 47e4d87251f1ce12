/* lost_page.c - see lost_page.h.  Everything except the last function runs in a signal handler: only system calls and the
 * stack. */
#include "cli/lost_page.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LINE = 4096 + 128 };

static void say(const char *text)
{
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n;
}

/* Reads the hexadecimal number at *p and moves *p past it. */
static uintptr_t take_hex(const char **p)
{
    static const char digits[] = "0123456789abcdef";
    uintptr_t n = 0;
    for (const char *d; **p && (d = strchr(digits, **p)); ++*p) n = n << 4 | (uintptr_t)(d - digits);
    return n;
}

/* A line of /proc/self/maps, "from-to flags offset device inode   /path": the path, if it contains `at`. */
static const char *path_around(const char *line, uintptr_t at)
{
    uintptr_t from = take_hex(&line), to = *line == '-' ? (line++, take_hex(&line)) : 0;
    return from <= at && at < to ? strchr(line, '/') : NULL;
}

static bool read_line(int fd, char line[MAX_LINE])
{
    size_t n = 0;
    char c = 0;
    while (c != '\n' && read(fd, &c, 1) == 1)
        if (c != '\n' && n + 1 < MAX_LINE) line[n++] = c;
    line[n] = '\0';
    return n > 0;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    char line[MAX_LINE];
    const char *path = NULL;
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (!path && maps >= 0 && read_line(maps, line)) path = path_around(line, (uintptr_t)info->si_addr);
    if (!path || info->si_code <= 0) { /* not a file's page, or sent by another process */
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    say("\nerror: ");
    say(path);
    say(" cannot be read: the disk has failed, or the file has become shorter while it was in use; run again when nothing writes "
        "to it\n");
    _exit(1);
}

void mt_lost_page_explain(void)
{
    struct sigaction a = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };
    sigemptyset(&a.sa_mask);
    sigaction(SIGBUS, &a, NULL);
}
