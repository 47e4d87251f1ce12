/* page.h - one self-contained HTML page that shows runs: charts, plan, samples, log.  Nothing is loaded from anywhere. */
#ifndef MT_PAGE_PAGE_H
#define MT_PAGE_PAGE_H

#include "page/run_view.h"

/* Runs of these directories laid over each other.  live: the page asks its server for more, so it holds one run. */
mt_rc mt_page_write(mt_str *out, const mt_run_at *runs, size_t n_runs, bool live, mt_err *err);
/* The same as a file, whole or not at all. */
mt_rc mt_page_save(const char *path, const mt_run_at *runs, size_t n_runs, mt_err *err);

#endif
