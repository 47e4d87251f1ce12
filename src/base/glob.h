/* glob.h - shell patterns over names: * any run (dots included), ? one character, [a-z] and [!a-z] sets. */
#ifndef MT_BASE_GLOB_H
#define MT_BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

bool mt_glob(const char *pattern, const char *name);
bool mt_glob_any(const char *const *patterns, size_t n, const char *name);

#endif
