/* store_build.h - records in, a store out: one thread reads, N workers make samples, the caller writes them in the order of the
 * records.
 *
 * The file is the same for any number of workers.  Chunks of records wait in a few slots, so memory does not grow with the
 * data. */
#ifndef MT_DATA_STORE_BUILD_H
#define MT_DATA_STORE_BUILD_H

#include "data/maker.h"
#include "data/records.h"
#include "data/specials.h"
#include "data/store.h"

#include <stdatomic.h>

/* How far it is; called from the caller's thread.  An error stops the work (a signal: MT_ESTOPPED). */
typedef struct mt_store_progress {
    const char *what; /* the dataset's name or path */
    double share;     /* of the files read, 0 to 1 */
    int64_t n_records, n_samples, n_tokens;
    double begun_s; /* mt_now_s() when the work began */
} mt_store_progress;
typedef mt_rc (*mt_store_progress_fn)(void *user, const mt_store_progress *p, mt_err *err);

typedef struct mt_store_job {
    const char *what, *path; /* borrowed, as all that follows */
    mt_records_options records;
    mt_sample_maker maker;
    const mt_specials *specials;   /* tokens whose spelling in a record is counted; NULL: none */
    int64_t max_records;           /* only the first N; 0: all */
    int64_t vocab;                 /* ids are below it */
    int n_workers;                 /* 0: one per core */
    bool stop_on_bad;              /* the first bad record is an error */
    mt_store_progress_fn progress; /* may be NULL */
    void *user;
    const atomic_bool *stop; /* once true the work ends with MT_ESTOPPED, and nothing of it is left; may be NULL */
    uint64_t max_bytes;      /* of the store, checked while it is made; 0: as much as the disk has, less a reserve */
} mt_store_job;

static inline bool mt_store_job_stopped(const mt_store_job *job) { return job->stop && atomic_load(job->stop); }

mt_rc mt_store_build(const char *path, uint64_t key, const mt_store_job *job, mt_err *err);

#endif
