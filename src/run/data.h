/* data.h - the source that a run's settings name: datasets through the whole pipeline, or a file of rows already tokenized. */
#ifndef MT_RUN_DATA_H
#define MT_RUN_DATA_H

#include "model/config.h"
#include "run/feed.h"

/* How whoever starts a run takes part in opening its data. */
typedef struct mt_data_hooks {
    const char *installed;   /* the installed data folder; NULL: none */
    mt_feed_fetch_fn fetch;  /* brings datasets of the hub; NULL: they must be here */
    const atomic_bool *stop; /* NULL: nobody stops it */
    /* Datasets are read, and not yet used: to show what was found in them.  Not called for rows.  May be NULL. */
    mt_rc (*read)(const mt_feed *f, mt_err *err);
} mt_data_hooks;

/* Refuses what can be refused before anything is fetched or tokenized: see mt_feed_check. */
mt_rc mt_data_check(const mt_settings *s, const mt_data_hooks *hooks, mt_err *err);
/* training.batch_size is a number.  now: the date that templates may show; borrowed, outlives the source, like the settings. */
mt_rc mt_data_open(mt_source **out, const mt_settings *s, const mt_config *c, const struct tm *now, const mt_data_hooks *hooks,
                   mt_err *err);

#endif
