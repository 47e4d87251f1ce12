/* cmd_report.c - megatrain report RUN [RUN...]: shows runs as one page of charts. */
#include "base/file.h"
#include "cli/commands.h"
#include "cli/dashboard.h"
#include "cli/flags.h"
#include "page/page.h"

#include <signal.h>
#include <stdio.h>

enum { MAX_RUNS = 6 }; /* distinguishable colors */

#define NO_PORT INT64_MIN /* --serve was not given; not a number that a user can type */

static mt_rc cmd_report_check(const mt_run_at *runs, size_t n, mt_err *err)
{
    if (n > MAX_RUNS) return mt_fail(err, MT_EINVAL, "report: %zu runs; at most %d can be shown together", n, MAX_RUNS);
    for (size_t i = 0; i < n; i++) MT_TRY(mt_run_view_check(&runs[i], err));
    return MT_OK;
}

static mt_rc save(const mt_run_at *runs, size_t n, const char *out, mt_err *err)
{
    char *path = out ? mt_strdup(out) : mt_path_join(n == 1 ? runs[0].dir : ".", "report.html");
    if (!path) return mt_no_memory(err, "a name");
    mt_rc rc = mt_page_save(path, runs, n, err);
    if (!rc) printf("%s\n", path);
    mt_free(path);
    return rc;
}

/* Until Ctrl-C. */
static mt_rc serve(const mt_run_at *run, int port, mt_err *err)
{
    sigset_t end;
    int number;
    mt_server *server;
    sigemptyset(&end);
    sigaddset(&end, SIGINT);
    sigaddset(&end, SIGTERM);
    sigprocmask(SIG_BLOCK, &end, NULL);
    MT_TRY(mt_server_open(&server, run, port, err));
    mt_dashboard_keep(server, run->dir);
    printf("%s (this machine only); Ctrl-C ends it\n", mt_server_url(server));
    fflush(stdout);
    sigwait(&end, &number);
    mt_server_close(server);
    return MT_OK;
}

static mt_rc report(const mt_run_at *runs, size_t n, const char *out, int64_t port, mt_err *err)
{
    bool serves = port != NO_PORT;
    if (serves && (port < 1 || port > 65535))
        return mt_fail(err, MT_EINVAL, "report: --serve %lld: a port is 1 to 65535", (long long)port);
    MT_TRY(cmd_report_check(runs, n, err));
    if (!serves) return save(runs, n, out, err);
    if (n > 1)
        return mt_fail(err, MT_EINVAL,
                       "report: --serve shows one run; several go into a file: megatrain report RUN RUN --out FILE");
    return serve(&runs[0], (int)port, err);
}

int mt_cmd_report(int argc, char **argv)
{
    mt_err err = { 0 };
    const char *out = NULL, *metrics = NULL, *dir;
    mt_run_at runs[1 + MT_FLAG_STRS_MAX] = { 0 };
    int64_t port = NO_PORT;
    bool help;
    mt_flag_strs more = { 0 };
    const mt_flag flags[] = {
        { "...", MT_FLAG_STRS, &more, NULL, "further runs, laid over the first", false },
        { "--out", MT_FLAG_STR, &out, "FILE",
          "output file (default: report.html in the run's directory; the current one for several)", false },
        { "--metrics", MT_FLAG_STR, &metrics, "FILE", "the first run's metrics, if they are not in its directory", false },
        { "--serve", MT_FLAG_INT, &port, "PORT", "serve it live on this port of this machine instead of writing a file", false },
    };
    const mt_usage usage = {
        "report",
        "RUN [RUN...] [options]",
        "Show runs as one self-contained page: loss, learning rate, speed, memory, where the time went,\n"
        "plan and measurement side by side, samples and the log.  RUN is a run's output directory;\n"
        "several are shown in the same charts.",
        "RUN",
        flags,
        MT_COUNT(flags),
        NULL,
    };
    mt_rc rc = mt_flags_parse(&usage, argc, argv, &dir, &help, &err);
    if (!rc && !help) {
        runs[0] = (mt_run_at){ dir, metrics };
        for (size_t i = 0; i < more.n; i++) runs[1 + i].dir = more.items[i];
        rc = report(runs, 1 + more.n, out, port, &err);
    }
    return rc ? mt_cli_failed(&err) : 0;
}
