/* data_notices.h - what a run logs about its data: skipped records, lint findings, and the first sample of a detected layout. */
#ifndef MT_CLI_DATA_NOTICES_H
#define MT_CLI_DATA_NOTICES_H

#include "run/feed.h"

mt_rc mt_data_notices(const mt_feed *f, mt_err *err);

#endif
