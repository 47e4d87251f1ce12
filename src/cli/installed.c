#include "cli/installed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *mt_installed(char *out, size_t n, const char *what)
{
    ssize_t got = readlink("/proc/self/exe", out, n - 1);
    if (got <= 0) return NULL;
    out[got] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(out, '/');
        if (!slash) return NULL;
        *slash = '\0';
    }
    size_t used = strlen(out);
    int more = snprintf(out + used, n - used, "/share/megatrain/%s", what);
    return (size_t)more < n - used ? out : NULL;
}
