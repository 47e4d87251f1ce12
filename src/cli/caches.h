/* caches.h - where downloads and tokenized data go on a machine whose home directory cannot be written. */
#ifndef MT_CLI_CACHES_H
#define MT_CLI_CACHES_H

#include "settings/settings.h"

/* If there is no user's cache, or it cannot be written, OUTPUT_DIR/cache is one for this run, and a notice says so.  A cache of
 * models that is there is read all the same.  Call it before anything is fetched. */
mt_rc mt_caches_settle(const mt_settings *s, mt_err *err);

#endif
