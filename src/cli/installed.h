/* installed.h - what `make install` puts beside the program: share/megatrain/ next to the bin/ it runs from. */
#ifndef MT_CLI_INSTALLED_H
#define MT_CLI_INSTALLED_H

#include <stddef.h>

/* The path of `what` there, whether or not there is such a file; NULL: nobody knows where the program is. */
const char *mt_installed(char *out, size_t n, const char *what);

#endif
