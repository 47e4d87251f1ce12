/* report.h - texts about a dataset: bad records by reason, the first of them, oddities. */
#ifndef MT_DATA_REPORT_H
#define MT_DATA_REPORT_H

#include "base/str.h"
#include "data/store.h"

/* "8 two turns of one side in a row, 4 unknown role"; nothing if there are none. */
void mt_report_reasons(mt_str *out, const mt_store_counts *c);

/* Fails if a dataset is unusable: no samples, or too many bad records.  The message has the counts and the first three.
 */
mt_rc mt_report_check(const mt_store *s, const char *name, bool stop_on_bad, double max_bad_share, mt_err *err);

#endif
