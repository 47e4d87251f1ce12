/* feed.h - builds a run's data from its settings: tokenizer, datasets, samplers, and the pipeline over them.
 *
 *     mt_feed *f;
 *     mt_source *source;
 *     MT_TRY(mt_feed_open(&f, &settings, &(mt_feed_options){ .vocab = c->V, .max_positions = c->max_positions }, err));
 *     show(mt_feed_findings(f));                                       // what lint has to say
 *     rc = mt_feed_source(f, &source, err);                            // refuses what lint would stop; prepares steps ahead
 *     if (rc) mt_feed_close(f);
 *     ...
 *     mt_source_close(source);                                         // and the feed, which it is
 *
 * Opening tokenizes everything that is not yet in the cache, which can take a long time. */
#ifndef MT_RUN_FEED_H
#define MT_RUN_FEED_H

#include "data/lint.h"
#include "data/pipeline.h"
#include "data/registry.h"
#include "hub/hub.h"
#include "settings/settings.h"

#include <time.h>

typedef struct mt_feed mt_feed;

typedef mt_rc (*mt_feed_fetch_fn)(const mt_hub_query *q, mt_hub_dataset *out, mt_err *err);

typedef struct mt_feed_options {
    int64_t vocab;                 /* of the model; 0: the tokenizer's */
    int64_t max_positions;         /* of the model; 0: not known */
    const char *installed;         /* the installed data folder; NULL: none */
    bool lenient;                  /* never stop at bad records: for looking at data, not for training */
    const struct tm *now;          /* the date that templates may show; NULL: today.  Borrowed; must outlive the feed */
    mt_feed_fetch_fn fetch;        /* downloads datasets from the hub; NULL: they must be local */
    mt_store_progress_fn progress; /* may be NULL */
    void *user;
    const atomic_bool *stop; /* as mt_store_job's */
} mt_feed_options;

/* Checks the datasets without downloading or reading them: unregistered names, kinds that cannot be trained on, missing files. */
mt_rc mt_feed_check(const mt_settings *s, const mt_feed_options *o, mt_err *err);
/* The settings are borrowed and must outlive the feed. */
mt_rc mt_feed_open(mt_feed **out, const mt_settings *s, const mt_feed_options *o, mt_err *err);
/* Call it once: the feed becomes a source and is closed as one.  After a failure the caller must still close the feed. */
mt_rc mt_feed_source(mt_feed *f, mt_source **out, mt_err *err);
void mt_feed_close(mt_feed *f); /* accepts NULL */

const mt_findings *mt_feed_findings(const mt_feed *f);
const mt_tokenizer *mt_feed_tokenizer(const mt_feed *f);
/* The first dataset's. */
const mt_sampler *mt_feed_sampler(const mt_feed *f);
/* The template to save with the model, if its conversations used another one than its own; NULL: nothing to save. */
const char *mt_feed_new_template(const mt_feed *f);
/* The token that ends an answer; -1: there is none. */
int32_t mt_feed_end_id(const mt_feed *f);
/* The layout that was found in the records of dataset i, in words; "" if it was known. */
const char *mt_feed_found(const mt_feed *f, size_t i);
bool mt_feed_packs(const mt_feed *f);
/* Until mt_feed_source has been called. */
const mt_pipeline *mt_feed_pipeline(const mt_feed *f);
/* Appends the columns of dataset i that are not read, separated by ", ": those of its first thousand records. */
mt_rc mt_feed_unmapped(const mt_feed *f, size_t i, mt_str *out, mt_err *err);

#endif
