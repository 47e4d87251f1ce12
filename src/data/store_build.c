/* store_build.c - see store_build.h.
 *
 * Chunk k lives in slot k mod n_slots and passes three gates, all guarded by the watch:
 *     n_read      chunks the reader has filled; workers take the next one below it
 *     done[slot]  k + 1 once a worker has made chunk k's samples
 *     n_written   chunks the caller has written: the reader may fill their slots anew */
#include "data/store_build.h"

#include "base/clock.h"
#include "base/pool.h"
#include "base/thread.h"
#include "base/units.h"
#include "base/watch.h"
#include "data/chunk.h"

#include <pthread.h>
#include <sys/statvfs.h>

typedef struct build {
    const mt_store_job *job;
    double begun_s;
    mt_records *records;
    uint32_t word_bytes;
    mt__chunk *slots;
    int64_t n_slots;
    mt_watch watch;
    int64_t n_read, n_taken, n_written, *done; /* done: [n_slots] */
    bool ended;                                /* no chunk after n_read */
    pthread_t reader, *workers;
    void **scratches; /* [n_workers] */
    int n_workers, n_started;
    bool reading;       /* the reader's thread exists */
    uint64_t next_look; /* check the disk again once the store has this many bytes */
} build;

typedef struct worker {
    build *b;
    int index;
} worker;

/* -- threads --------------------------------------------------------------------------------------- */

/* Wait until the slot of the next chunk is free; false: the work is over. */
static bool slot_free(build *b)
{
    pthread_mutex_lock(&b->watch.lock);
    while (b->n_read - b->n_written >= b->n_slots && !b->watch.closing) pthread_cond_wait(&b->watch.changed, &b->watch.lock);
    bool go_on = !b->watch.closing;
    pthread_mutex_unlock(&b->watch.lock);
    return go_on;
}

static void *read_records(void *arg)
{
    build *b = arg;
    int64_t left = b->job->max_records ? b->job->max_records : -1;
    for (bool last = false; !last && slot_free(b);) {
        mt__chunk *c = &b->slots[b->n_read % b->n_slots]; /* only this thread writes n_read */
        mt__chunk_read(c, b->records, &left, b->job);
        last = c->last;
        pthread_mutex_lock(&b->watch.lock);
        b->n_read++;
        b->ended = last;
        pthread_cond_broadcast(&b->watch.changed);
        pthread_mutex_unlock(&b->watch.lock);
    }
    return NULL;
}

/* The next chunk to make, or -1: there is none left. */
static int64_t take_chunk(build *b)
{
    pthread_mutex_lock(&b->watch.lock);
    while (b->n_taken == b->n_read && !b->ended && !b->watch.closing) pthread_cond_wait(&b->watch.changed, &b->watch.lock);
    int64_t k = b->n_taken < b->n_read && !b->watch.closing ? b->n_taken++ : -1;
    pthread_mutex_unlock(&b->watch.lock);
    return k;
}

static void *make_samples(void *arg)
{
    worker w = *(worker *)arg;
    mt_free(arg);
    for (int64_t k; (k = take_chunk(w.b)) >= 0;) {
        mt__chunk_make(&w.b->slots[k % w.b->n_slots], w.b->job, w.b->scratches[w.index], w.b->word_bytes);
        mt_watch_raise(&w.b->watch, &w.b->done[k % w.b->n_slots], k + 1);
    }
    return NULL;
}

static mt_rc start_threads(build *b, mt_err *err)
{
    for (; b->n_started < b->n_workers; b->n_started++) {
        worker *w = mt_calloc(1, sizeof *w);
        if (!w) return mt_no_memory(err, "a tokenizer thread");
        *w = (worker){ b, b->n_started };
        if (!mt_thread_start(&b->workers[b->n_started], make_samples, w)) {
            mt_free(w);
            return mt_fail(err, MT_ENOMEM, "the system refused tokenizer thread %d of %d; see ulimit -u", b->n_started + 1,
                           b->n_workers);
        }
    }
    if (!mt_thread_start(&b->reader, read_records, b))
        return mt_fail(err, MT_ENOMEM, "the system refused a thread for reading; see ulimit -u");
    b->reading = true;
    return MT_OK;
}

static void stop_threads(build *b)
{
    pthread_mutex_lock(&b->watch.lock);
    b->watch.closing = true;
    pthread_cond_broadcast(&b->watch.changed);
    pthread_mutex_unlock(&b->watch.lock);
    for (int i = 0; i < b->n_started; i++) pthread_join(b->workers[i], NULL);
    if (b->reading) pthread_join(b->reader, NULL);
}

/* -- the caller's part ----------------------------------------------------------------------------- */

/* A data file of a few bytes can claim any number of rows: the bound holds while the store is made, not only when it is there. */
static mt_rc check_size(build *b, const mt__store_writer *w, mt_err *err)
{
    enum { STEP = 64 << 20 };
    const uint64_t RESERVE = UINT64_C(1) << 30,
                   SHARE = 20; /* left free for others on the disk: 1 GiB, or a 20th of a small one */
    struct statvfs v;
    uint64_t bytes = w->words.at + w->words.n + w->index.at + w->index.n;
    if (b->job->max_bytes && bytes > b->job->max_bytes)
        return mt_fail(
            err, MT_ERANGE,
            "tokenized, it takes more than dataset.cache_size (%s) allows: raise that (or set unlimited), or use fewer "
            "records (dataset.max_samples)",
            mt_bytes_text(b->job->max_bytes).s);
    if (bytes < b->next_look) return MT_OK;
    b->next_look = bytes + STEP;
    if (fstatvfs(w->words.file.fd, &v)) return MT_OK; /* a file system that does not say */
    uint64_t left = (uint64_t)v.f_bavail * v.f_frsize, whole = (uint64_t)v.f_blocks * v.f_frsize / SHARE;
    if (left >= (whole < RESERVE ? whole : RESERVE)) return MT_OK;
    return mt_fail(err, MT_EIO,
                   "tokenized, it takes %s so far, and the disk has only %s left: free some space, set dataset.cache_dir to a "
                   "folder on a larger disk, or use fewer records (dataset.max_samples)",
                   mt_bytes_text(bytes).s, mt_bytes_text(left).s);
}

static mt_rc write_chunk(build *b, const mt__chunk *c, mt__store_writer *w, mt_err *err)
{
    const mt_store_job *job = b->job;
    if (c->error.rc) return mt_fail(err, c->error.rc, "%s", c->error.msg);
    if (job->stop_on_bad && c->n_bad_shown)
        return mt_fail(err, MT_EFORMAT, "%s (on_bad_record: skip counts such records and continues)", c->bad[0]);
    MT_TRY(mt__chunk_write(c, w, err));
    MT_TRY(check_size(b, w, err));
    const mt_store_counts *n = &w->header.counts;
    if (!job->progress) return MT_OK;
    return job->progress(
        job->user, &(mt_store_progress){ job->what, c->last ? 1 : c->share, n->n_records, n->n_samples, n->n_tokens, b->begun_s },
        err);
}

static mt_rc write_chunks(build *b, mt__store_writer *w, mt_err *err)
{
    bool last = false;
    for (int64_t k = 0; !last; k++) {
        const mt__chunk *c = &b->slots[k % b->n_slots];
        MT_TRY(mt_watch_reach(&b->watch, &b->done[k % b->n_slots], k + 1, err));
        last = c->last;
        MT_TRY(write_chunk(b, c, w, err));
        mt_watch_raise(&b->watch, &b->n_written, k + 1);
    }
    return MT_OK;
}

static mt_rc store_build_prepare(build *b, mt_err *err)
{
    b->n_workers = b->job->n_workers > 0 ? b->job->n_workers : mt_cpu_count();
    b->n_slots = 3 * (int64_t)b->n_workers + 1;
    b->slots = mt_calloc((size_t)b->n_slots, sizeof *b->slots);
    b->done = mt_calloc((size_t)b->n_slots, sizeof *b->done);
    b->workers = mt_calloc((size_t)b->n_workers, sizeof *b->workers);
    b->scratches = mt_calloc((size_t)b->n_workers, sizeof *b->scratches);
    if (!b->slots || !b->done || !b->workers || !b->scratches)
        return mt_no_memory(err, "tokenizing with %d threads", b->n_workers);
    const mt_sample_maker *maker = &b->job->maker;
    for (int i = 0; i < b->n_workers; i++) {
        MT_TRY(maker->scratch_create(maker->ctx, &b->scratches[i], err));
        if (maker->heed) maker->heed(b->scratches[i], b->job->stop);
    }
    return mt_records_open(&b->records, b->job->path, &b->job->records, err);
}

static void dispose(build *b)
{
    for (int i = 0; b->scratches && i < b->n_workers; i++) b->job->maker.scratch_free(b->scratches[i]);
    for (int64_t i = 0; b->slots && i < b->n_slots; i++) mt__chunk_free(&b->slots[i]);
    mt_records_close(b->records);
    mt_free(b->slots);
    mt_free(b->done);
    mt_free(b->workers);
    mt_free(b->scratches);
    mt_watch_deinit(&b->watch);
}

mt_rc mt_store_build(const char *path, uint64_t key, const mt_store_job *job, mt_err *err)
{
    build b = { .job = job, .begun_s = mt_now_s(), .word_bytes = job->vocab <= 1 << 15 ? 2 : 4 };
    mt__store_writer w = { 0 };
    mt_watch_init(&b.watch);
    mt_rc rc = store_build_prepare(&b, err);
    if (!rc) rc = mt__store_create(&w, path, key, b.word_bytes, err);
    if (!rc) rc = start_threads(&b, err);
    if (!rc) rc = write_chunks(&b, &w, err);
    stop_threads(&b);
    if (!rc) rc = mt__store_publish(&w, err);
    mt__store_abandon(&w);
    dispose(&b);
    return rc;
}
