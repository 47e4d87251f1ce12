#include "base/glob.h"

#include <fnmatch.h>

bool mt_glob(const char *pattern, const char *name) { return fnmatch(pattern, name, 0) == 0; }

bool mt_glob_any(const char *const *patterns, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (mt_glob(patterns[i], name)) return true;
    return false;
}
