#include "cli/installed.h"

#include "base/file.h"
#include "base/str.h"

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

/* An absolute path names one file and no other. */
static bool may_be_installed(const char *path)
{
    const bool config = mt_ends_with(path, ".yaml") || mt_ends_with(path, ".yml");
    return config && path[0] != '-' && path[0] != '/' && !mt_file_exists(path);
}

mt_rc mt_installed_configs(mt_arena *paths, int argc, char **argv, mt_err *err)
{
    static const char flag[] = "--config=";
    for (int i = 1; i < argc; i++) {
        char path[1024], word[sizeof flag + sizeof path];
        const size_t n_flag = strncmp(argv[i], flag, sizeof flag - 1) == 0 ? sizeof flag - 1 : 0;
        const char *name = argv[i] + n_flag;
        const char *there = may_be_installed(name) ? mt_installed(path, sizeof path, name) : NULL;
        if (!there || !mt_file_exists(there)) continue;
        int n = snprintf(word, sizeof word, "%.*s%s", (int)n_flag, argv[i], there);
        char *copy = mt_arena_strndup(paths, word, (size_t)n);
        if (!copy) return mt_no_memory(err, "a path");
        argv[i] = copy;
    }
    return MT_OK;
}
