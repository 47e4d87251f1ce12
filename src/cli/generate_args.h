/* generate_args.h - the command line of `megatrain generate`. */
#ifndef MT_CLI_GENERATE_ARGS_H
#define MT_CLI_GENERATE_ARGS_H

#include "base/dtype.h"
#include "engine/sample.h"

enum { MT_PROMPTS_MAX = 64 }; /* given with --prompt */

typedef struct mt_generate_args {
    const char *model; /* a directory */
    const char *prompts[MT_PROMPTS_MAX];
    size_t n_prompts;
    const char *file;   /* of prompts; "-": standard input; NULL: none */
    const char *system; /* NULL: none */
    const char *device;
    uint64_t device_memory; /* 0: what is free */
    int64_t max_new_tokens;
    mt_sampling sampling;
    mt_dtype dtype; /* MT_DTYPE_COUNT: as the weights are stored */
    bool chat, check, from_scratch, help;
} mt_generate_args;

/* Strings are borrowed from argv. */
mt_rc mt_generate_args_parse(mt_generate_args *out, int argc, char **argv, mt_err *err);
const char *mt_generate_usage(void);

#endif
