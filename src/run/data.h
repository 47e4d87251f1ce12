/* data.h - opens the source that a run's settings name: datasets through the whole pipeline, or a file of tokenized rows. */
#ifndef MT_RUN_DATA_H
#define MT_RUN_DATA_H

#include "model/config.h"
#include "run/feed.h"

/* Callbacks of the program that starts a run, for opening its data. */
typedef struct mt_data_hooks {
    const char *installed;   /* the installed data folder; NULL: none */
    mt_feed_fetch_fn fetch;  /* downloads datasets from the hub; NULL: they must be local */
    const atomic_bool *stop; /* NULL: cannot be stopped */
    /* Called when datasets have been read, before they are used: to show what was found.  Not called for rows.  May be NULL. */
    mt_rc (*read)(const mt_feed *f, mt_err *err);
} mt_data_hooks;

/* Checks everything that can be checked before anything is downloaded or tokenized: see mt_feed_check. */
mt_rc mt_data_check(const mt_settings *s, const mt_data_hooks *hooks, mt_err *err);
/* training.batch_size must be a number here. now: the date that templates may show.  The date and the settings are borrowed and
 * must outlive the source. */
mt_rc mt_data_open(mt_source **out, const mt_settings *s, const mt_config *c, const struct tm *now, const mt_data_hooks *hooks,
                   mt_err *err);

#endif
