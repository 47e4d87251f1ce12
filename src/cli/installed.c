#include "cli/installed.h"

#include "base/file.h"

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

static bool is_config(const char *word)
{
    const char *dot = strrchr(word, '.');
    return word[0] != '-' && dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

mt_rc mt_installed_configs(mt_arena *paths, int argc, char **argv, mt_err *err)
{
    for (int i = 1; i < argc; i++) {
        char path[1024];
        const char *there = is_config(argv[i]) && !mt_file_exists(argv[i]) ? mt_installed(path, sizeof path, argv[i]) : NULL;
        if (!there || !mt_file_exists(there)) continue;
        char *copy = mt_arena_strndup(paths, there, strlen(there));
        if (!copy) return mt_no_memory(err, "a path");
        argv[i] = copy;
    }
    return MT_OK;
}
