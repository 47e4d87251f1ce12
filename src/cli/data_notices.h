/* data_notices.h - what a run logs of the data it has read: records it does without, what lint found, and the first sample of a
 * layout that was guessed. */
#ifndef MT_CLI_DATA_NOTICES_H
#define MT_CLI_DATA_NOTICES_H

#include "run/feed.h"

mt_rc mt_data_notices(const mt_feed *f, mt_err *err);

#endif
