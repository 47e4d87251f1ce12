/* installed.h - files that `make install` puts beside the program: share/megatrain/ next to its bin/. */
#ifndef MT_CLI_INSTALLED_H
#define MT_CLI_INSTALLED_H

#include "base/arena.h"

#include <stddef.h>

/* The path of `what` there, whether or not it exists; NULL: the program's own path is unknown. */
const char *mt_installed(char *out, size_t n, const char *what);

/* Replaces each configuration file among argv[1..], alone or after --config=, that is not here by the installed one of that name
 * (configs/demo.yaml), if there is one.  Paths are allocated in the arena. */
mt_rc mt_installed_configs(mt_arena *paths, int argc, char **argv, mt_err *err);

#endif
