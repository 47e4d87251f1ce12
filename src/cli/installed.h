/* installed.h - files that `make install` puts beside the program: share/megatrain/ next to its bin/. */
#ifndef MT_CLI_INSTALLED_H
#define MT_CLI_INSTALLED_H

#include <stddef.h>

/* The path of `what` there, whether or not it exists; NULL: the program's own path is unknown. */
const char *mt_installed(char *out, size_t n, const char *what);

#endif
