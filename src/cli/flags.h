/* flags.h - the options of a small command as a table: parsing, errors and --help come from its rows.
 * (`train` and its kin use the settings table instead.) */
#ifndef MT_CLI_FLAGS_H
#define MT_CLI_FLAGS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mt_flag_type {
    MT_FLAG_BOOL,
    MT_FLAG_STR,
    MT_FLAG_STRS,
    MT_FLAG_INT,
    MT_FLAG_CORES, /* an integer from 1 to 4096 */
    MT_FLAG_FLOAT,
    MT_FLAG_BYTES,
    MT_FLAG_MEMORY, /* a memory limit: mt_memory_parse */
} mt_flag_type;

/* A flag that may be given several times. */
enum { MT_FLAG_STRS_MAX = 64 };
typedef struct mt_flag_strs {
    const char *items[MT_FLAG_STRS_MAX];
    size_t n;
} mt_flag_strs;

typedef struct mt_flag {
    const char *name; /* "--tokens"; "..." (STRS) takes the words after the positional ones */
    mt_flag_type type;
    void *to;          /* bool *, const char **, mt_flag_strs *, int64_t *, double *, uint64_t * */
    const char *value; /* name of the value in --help: "FILE" */
    const char *help;
    bool required;
} mt_flag;

typedef struct mt_usage {
    const char *command;    /* "grad" */
    const char *synopsis;   /* "MODEL --tokens FILE --out FILE" */
    const char *text;       /* a paragraph, lines broken by hand */
    const char *positional; /* names of the positional arguments, "IN OUT"; all are needed; NULL: there are none */
    const mt_flag *flags;
    size_t n_flags;
    void (*more)(void); /* prints what --help-all adds; NULL: nothing */
} mt_usage;

/* Every setting of `train`, for mt_usage.more. */
void mt_print_settings(void);

/* Marks an error as the user's input: MT_EINVAL, with exit status 2.  Lack of memory stays what it is. */
mt_rc mt_misused(mt_rc rc, mt_err *err);

/* Fills the table's targets from argv[1..], and positional[] with the words that usage names. *help is set if --help was given
 * (and printed). */
mt_rc mt_flags_parse(const mt_usage *usage, int argc, char **argv, const char **positional, bool *help, mt_err *err);

#endif
