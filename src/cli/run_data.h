/* run_data.h - the source a run's settings name: datasets through the whole pipeline, or a file of rows already tokenized. */
#ifndef MT_CLI_RUN_DATA_H
#define MT_CLI_RUN_DATA_H

#include "data/source.h"
#include "model/config.h"
#include "settings/settings.h"

#include <time.h>

/* Refuses what can be refused before anything is fetched or tokenized: see mt_feed_check. */
mt_rc mt_run_data_check(const mt_settings *s, mt_err *err);
/* now: the date that templates may show; borrowed, outlives the source. */
mt_rc mt_run_data_open(mt_source **out, const mt_settings *s, const mt_config *c, const struct tm *now, mt_err *err);

#endif
