/* commands.h - one function per command.  Each prints its own errors and returns the exit status: 0 done, 1 failed, 2 invalid
 * arguments; train also 130, 140 and 143 when stopped by a signal. */
#ifndef MT_CLI_COMMANDS_H
#define MT_CLI_COMMANDS_H

#include "base/json_write.h"
#include "base/log.h"

#include <stdbool.h>

int mt_cmd_bench(int argc, char **argv);
int mt_cmd_convert(int argc, char **argv);
int mt_cmd_data(int argc, char **argv);
int mt_cmd_families(int argc, char **argv);
int mt_cmd_generate(int argc, char **argv);
int mt_cmd_get(int argc, char **argv);
int mt_cmd_grad(int argc, char **argv);
int mt_cmd_inspect(int argc, char **argv);
int mt_cmd_plan(int argc, char **argv);
int mt_cmd_report(int argc, char **argv);
int mt_cmd_tokenize(int argc, char **argv);
int mt_cmd_train(int argc, char **argv);

/* Prints "error: ..." on stderr; returns the exit status. */
int mt_cli_failed(const mt_err *err);
/* Prints a finished document and a newline on stdout, and frees its string. */
mt_rc mt_cli_print_json(mt_json_out *j, mt_err *err);
/* The name in commands that are printed to be copied: as the user typed it if that was a path, such as build/megatrain. */
void mt_cli_program_set(const char *typed);
const char *mt_cli_program(void);
/* Sets the level of notices that are printed (--quiet, --verbose). */
bool mt_cli_shows(mt_log_level level);

#endif
