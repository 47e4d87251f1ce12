/* data_json.h - the output of `megatrain data` as JSON. */
#ifndef MT_CLI_DATA_JSON_H
#define MT_CLI_DATA_JSON_H

#include "run/feed.h"

/* Appended: counts, datasets, findings, and the first n samples of the first epoch; docs/scripting.md has the keys. */
mt_rc mt_data_json(mt_str *out, const mt_feed *f, const mt_settings *s, int64_t n, mt_err *err);

#endif
