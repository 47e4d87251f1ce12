/* run_view.h - a run's directory as one JSON object of texts for the page.
 *
 *     {"name": "demo", "from": 0, "bytes": 51234, "metrics": "{...}\n{...}\n", "plan": "...", "config": "...", "log": "..."}
 *
 * The files are read as they are at that moment, while the run continues or long after; a missing file is "".  Texts are not
 * parsed, so a damaged line harms only itself.  Long runs are thinned to a few thousand lines. */
#ifndef MT_PAGE_RUN_VIEW_H
#define MT_PAGE_RUN_VIEW_H

#include "base/json_write.h"

enum { MT_VIEW_LINES = 4000 }; /* about as many lines of metrics are shown; evaluations and samples are always among them */

/* A run that is shown.  Nothing outside its directory is read, and nothing through a link, except a metrics file that the caller
 * names: the name in plan.json is not trusted. */
typedef struct mt_run_at {
    const char *dir;
    const char *metrics; /* NULL: metrics.jsonl, or what plan.json names, inside the directory */
} mt_run_at;

/* Fails unless it holds a run: names the next step. */
mt_rc mt_run_view_check(const mt_run_at *run, mt_err *err);
/* The object as a value of a document, or as a whole document.  Metrics from byte `from` on; all of them when the file has become
 * shorter than that, as a resumed run's may. */
mt_rc mt_run_view_put(mt_json_out *j, const mt_run_at *run, int64_t from, mt_err *err);
mt_rc mt_run_view_write(mt_str *out, const mt_run_at *run, int64_t from, mt_err *err);

#endif
