/* caches.h - chooses the folder of downloads and tokenized data if the home directory cannot be written. */
#ifndef MT_CLI_CACHES_H
#define MT_CLI_CACHES_H

#include "settings/settings.h"

/* If there is no user cache, or it cannot be written, this run uses OUTPUT_DIR/cache and prints a notice.  An existing cache of
 * models is still read.  Call it before anything is fetched. */
mt_rc mt_caches_settle(const mt_settings *s, mt_err *err);

#endif
