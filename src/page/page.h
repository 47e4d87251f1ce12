/* page.h - one self-contained HTML page that shows runs: charts, plan, samples, log.  Nothing is loaded from anywhere. */
#ifndef MT_PAGE_PAGE_H
#define MT_PAGE_PAGE_H

#include "base/str.h"

/* Runs of these directories laid over each other.  live: the page asks its server for more, so it holds one run. */
mt_rc mt_page_write(mt_str *out, const char *const *dirs, size_t n_dirs, bool live, mt_err *err);
/* The same as a file, whole or not at all. */
mt_rc mt_page_save(const char *path, const char *const *dirs, size_t n_dirs, mt_err *err);

#endif
