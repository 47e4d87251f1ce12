/* commands.h - one function per command.  Each prints its own errors and returns the exit status: 0 done, 1 failed, 2 misused;
 * train also 130, 140 and 143, stopped by a signal. */
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

/* "error: ..." on stderr; the exit status that fits. */
int mt_cli_failed(const mt_err *err);
/* A document that is whole, and a line's end, on stdout; its string is released. */
mt_rc mt_cli_print_json(mt_json_out *j, mt_err *err);
/* Notices of this level are printed (--quiet, --verbose). */
bool mt_cli_shows(mt_log_level level);

#endif
