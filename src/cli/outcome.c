/* outcome.c - how a command ends, and its notices. */
#include "cli/commands.h"
#include "cli/stop.h"
#include "cli/terminal.h"

#include <stdio.h>
#include <string.h>

int mt_cli_failed(const mt_err *err)
{
    mt_terminal t = mt_terminal_of(stderr, MT_COLOR_AUTO);
    mt_str label = { 0 }, text = { 0 };
    mt_style_put(&label, "error:", MT_STYLE_RED, t.color);
    /* As if the label were not there. */
    if (t.live) mt_text_wrap(&text, err->msg, mt_terminal_columns(&t) - (int)sizeof "error:", 2);
    fprintf(stderr, "%s %s\n", label.s ? label.s : "error:", mt_str_ok(&text) && text.s ? text.s : err->msg);
    mt_str_free(&label);
    mt_str_free(&text);
    if (err->rc == MT_ESTOPPED && mt_stop_signal()) return mt_stop_status();
    return err->rc == MT_EINVAL ? 2 : 1;
}

static const char *program = "megatrain";

void mt_cli_program_set(const char *typed)
{
    if (typed && strchr(typed, '/')) program = typed;
}

const char *mt_cli_program(void) { return program; }

bool mt_cli_shows(mt_log_level level)
{
    static const mt_log_level least[] = { [MT_QUIET] = MT_LOG_WARN, [MT_USUAL] = MT_LOG_INFO, [MT_VERBOSE] = MT_LOG_DEBUG };
    return level >= least[mt_verbosity_now()];
}

mt_rc mt_cli_print_json(mt_json_out *j, mt_err *err)
{
    mt_rc rc = mt_json_done(j, "the output", err);
    if (!rc) puts(j->to->s); /* a failed write is reported when the program ends */
    mt_str_free(j->to);
    return rc;
}
