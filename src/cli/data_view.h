/* data_view.h - data in words and bars: samples as text, the summary, what lint found.  Everything is appended to a string. */
#ifndef MT_CLI_DATA_VIEW_H
#define MT_CLI_DATA_VIEW_H

#include "run/feed.h"

/* The first n samples of the first epoch.  Trained tokens are green, or in [[brackets]] without color. */
mt_rc mt_data_view_samples(mt_str *out, const mt_feed *f, int64_t n, bool ids, bool color, mt_err *err);
mt_rc mt_data_view_summary(mt_str *out, const mt_feed *f, const mt_settings *s, int columns, bool utf8, mt_err *err);
void mt_data_view_findings(mt_str *out, const mt_findings *f, bool color);
/* The skipped records of a dataset: counts by reason and the first three bad ones; nothing if there are none. */
void mt_data_view_left_out(mt_str *out, const char *name, const mt_store *s);
/* Problems that would stop training: too many bad records, or lint findings. */
mt_rc mt_data_view_verdict(const mt_feed *f, const mt_settings *s, mt_err *err);

/* One sample: `ids` and `labels` have n entries. */
mt_rc mt_data_view_sample(mt_str *out, const mt_tokenizer *tok, const int32_t *ids, const int32_t *labels, int64_t n, bool color,
                          mt_err *err);

#endif
