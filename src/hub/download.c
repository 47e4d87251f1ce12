/* download.c - several files, several pieces of each, at once.
 *
 * Workers take pieces: of a file that is open while it has any left, else of the next file.  The worker that gets a file's last
 * piece verifies and publishes it while the others continue.  A piece that breaks off is requested again from where it stopped;
 * the first failure that retries do not fix stops all workers, and the received pieces stay for the next run.  The lock guards
 * only the bookkeeping: files are opened and marked, and progress is shown, without it, so a slow disk or a stopped terminal
 * delays no other worker. */
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/units.h"
#include "hub/internal.h"
#include "hub/partial.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

typedef enum file_state { WAITING, OPEN, COMPLETE } file_state;

typedef struct item {
    const mt__file *file;
    file_state state;
    mt__partial part;
    int lock;
    uint64_t next;  /* the next piece that no worker has taken */
    bool said_busy; /* the user knows that another process is at it */
    bool restarted; /* its content was wrong once */
} item;

typedef struct job {
    mt_hub *hub;
    const mt__repo *repo;
    item *items;
    size_t n;
    item **live; /* begun and not COMPLETE, in order: a few, however large n is */
    size_t n_live, n_begun;
    pthread_mutex_t lock; /* of everything below, and of items' state, next and part.done */
    mt_err error;         /* the first one */
    atomic_bool stop;
    bool opening; /* a worker opens a file: one at a time, so that pieces come from as few files as possible */
    uint64_t done_bytes, total_bytes;
    int n_working;           /* threads that have not ended */
    pthread_cond_t ended;    /* a worker has */
    pthread_cond_t may_turn; /* a file was opened, or another process may have finished one */
    double shown_s;          /* of the thread that waits for the workers */
} job;

/* A span of a file that one worker fetches. */
typedef struct span {
    job *j;
    item *it;
    uint64_t piece, n_pieces;
    uint64_t at, end; /* the missing part of it */
    uint64_t body_at; /* where in the file the answer's next byte belongs */
    bool answered;    /* the answer's first byte has come */
} span;

static void add_progress(job *j, uint64_t bytes)
{
    pthread_mutex_lock(&j->lock);
    j->done_bytes += bytes;
    pthread_mutex_unlock(&j->lock);
}

/* Not under the lock: the user's function may take long. */
static void show_progress(job *j, bool force)
{
    const double now = mt_now_s();
    if (!j->hub->o.progress || (!force && now - j->shown_s < 0.1)) return;
    j->shown_s = now;
    pthread_mutex_lock(&j->lock);
    const mt_hub_progress p = { j->repo->name, j->done_bytes, j->total_bytes, j->n };
    pthread_mutex_unlock(&j->lock);
    j->hub->o.progress(j->hub->o.user, &p);
}

static void fail_job(job *j, const mt_err *err)
{
    pthread_mutex_lock(&j->lock);
    if (!j->error.rc) j->error = *err;
    pthread_mutex_unlock(&j->lock);
    atomic_store(&j->stop, true);
}

/* -- handing out pieces (under the lock) ----------------------------------------------------------- */

static uint64_t piece_end(const item *it, uint64_t piece)
{
    uint64_t end = (piece + 1) * it->part.piece_bytes;
    return end < it->file->size ? end : it->file->size;
}

static uint64_t bytes_here(const item *it)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < it->part.n_pieces; i++)
        if (it->part.done[i]) n += piece_end(it, i) - i * it->part.piece_bytes;
    return n;
}

static void close_item(item *it)
{
    if (it->state == OPEN) mt__partial_close(&it->part);
    mt__unlock(it->lock);
    it->lock = -1;
}

/* Without the lock: only this worker knows the item.  *state: WAITING if another process has it. */
static mt_rc open_item(job *j, item *it, file_state *state, mt_err *err)
{
    char *blob = mt__blob_path(j->repo, it->file->hash);
    bool busy = false, alone = true;
    mt_rc rc = blob ? mt__try_lock(j->hub, j->repo, it->file->hash, &it->lock, &alone, err) : mt_no_memory(err, "a path");
    *state = WAITING;
    if (!rc && it->lock < 0) busy = true;
    if (!rc && !busy && mt_file_exists(blob)) {
        *state = COMPLETE;
        add_progress(j, it->file->size);
    } else if (!rc && !busy) {
        rc = mt__partial_open(&it->part, j->repo, it->file, j->hub->o.piece_bytes, alone, &busy, err);
        if (!rc && !busy) {
            *state = OPEN;
            add_progress(j, bytes_here(it));
        }
    }
    if (*state != OPEN) close_item(it);
    if (!rc && busy && !it->said_busy) {
        it->said_busy = true;
        mt_info("another process is downloading %s; waiting for it", it->file->path);
    }
    mt_free(blob);
    return rc;
}

static bool take_piece(job *j, item *it, span *out)
{
    if (it->state != OPEN) return false;
    while (it->next < it->part.n_pieces && it->part.done[it->next]) it->next++;
    if (it->next >= it->part.n_pieces) return false;
    uint64_t first = it->next * it->part.piece_bytes;
    *out = (span){ .j = j, .it = it, .piece = it->next, .n_pieces = 1, .at = first, .end = piece_end(it, it->next) };
    it->next++;
    return true;
}

/* -- the end of a file ----------------------------------------------------------------------------- */

static mt_rc wrong_content(job *j, item *it, mt_err *err)
{
    if (!it->restarted) {
        mt_warn("%s: what arrived is not what the hub lists; fetching it anew", it->file->path);
        pthread_mutex_lock(&j->lock);
        it->restarted = true;
        j->done_bytes -= it->file->size;
        it->next = it->part.n_pieces; /* no worker takes a piece until it has begun again */
        pthread_mutex_unlock(&j->lock);
        MT_TRY(mt__partial_restart(&it->part, err));
        pthread_mutex_lock(&j->lock);
        it->next = 0;
        pthread_mutex_unlock(&j->lock);
        return MT_OK;
    }
    pthread_mutex_lock(&j->lock);
    it->state = COMPLETE; /* closed for good */
    mt__partial_discard(&it->part);
    close_item(it);
    pthread_mutex_unlock(&j->lock);
    return mt_fail(
        err, MT_EFORMAT,
        "%s/%s does not arrive with the hash that %s lists (%.12s...), twice now.  A proxy or mirror changes it; nothing "
        "was kept",
        j->repo->name, it->file->path, j->hub->at.endpoint, it->file->hash);
}

static mt_rc finish_item(job *j, item *it, mt_err *err)
{
    bool right = false;
    MT_TRY(mt__partial_verify(&it->part, it->file->hash, &right, &j->stop, err));
    if (!right) return wrong_content(j, it, err);
    MT_TRY(mt__partial_publish(&it->part, err));
    pthread_mutex_lock(&j->lock);
    close_item(it);
    it->state = COMPLETE;
    pthread_mutex_unlock(&j->lock);
    return MT_OK;
}

/* -- one piece ------------------------------------------------------------------------------------- */

/* The server sends the whole file instead of a piece: this worker takes all remaining pieces. */
static void take_the_rest(span *s)
{
    pthread_mutex_lock(&s->j->lock);
    item *it = s->it;
    if (it->next == s->piece + s->n_pieces) {
        while (it->next < it->part.n_pieces && !it->part.done[it->next]) it->next++, s->n_pieces++;
        s->end = piece_end(it, s->piece + s->n_pieces - 1);
    }
    pthread_mutex_unlock(&s->j->lock);
}

static mt_rc sink(void *user, int64_t first, const void *data, size_t n, mt_err *err)
{
    span *s = user;
    const uint8_t *p = data;
    if (!s->answered) {
        s->answered = true;
        s->body_at = first < 0 ? 0 : (uint64_t)first;
        if (s->body_at > s->at)
            return mt_fail(err, MT_EFORMAT, "%s: the server answered with another range than requested", s->it->file->path);
        if (first < 0 && s->end < s->it->file->size) take_the_rest(s);
    }
    uint64_t skip = s->at > s->body_at ? s->at - s->body_at : 0; /* received before */
    skip = skip < n ? skip : n;
    s->body_at += skip, p += skip, n -= (size_t)skip;
    size_t use = (size_t)(s->end - s->at < n ? s->end - s->at : n);
    MT_TRY(mt__partial_write(&s->it->part, s->at, p, use, err));
    s->at += use, s->body_at += n;
    add_progress(s->j, use);
    return use < n ? mt_fail(err, MT_ESTOPPED, "that is all that was wanted") : MT_OK;
}

/* One answer.  *again: try once more. */
static mt_rc download_ask(span *s, mt_http *http, const char *url, int n_tries, bool *again, mt_err *err)
{
    mt_http_response r;
    job *j = s->j;
    bool whole = s->at == 0 && s->end == s->it->file->size;
    mt_http_request q = { .url = url, .sink = sink, .user = s, .stop = &j->stop };
    if (!whole) q.first = s->at, q.end = s->end;
    s->answered = false;
    mt_rc rc = mt_http_get(http, &q, &r, err);
    if (s->at == s->end) rc = MT_OK; /* even if more came after it */
    bool refused = !rc && r.status != 200 && r.status != 206;
    if (!rc && !refused && s->at < s->end) { /* ended in good order, and too early */
        r.cut = true;
        rc = mt_fail(err, MT_EIO, "%s: the connection ended after %llu of %llu bytes", url, (unsigned long long)s->at,
                     (unsigned long long)s->end);
    }
    *again = s->at < s->end && mt_http_try_again(&r, rc, n_tries, j->hub->o.pause_s, &j->stop);
    if (*again)
        rc = MT_OK;
    else if (refused)
        rc = mt__repo_refused(j->hub, j->repo, s->it->file->path, &r, err);
    else if (rc && r.cut)
        rc = mt_fail(err, MT_EIO,
                     "%s/%s: the connection to the hub fails again and again (after %llu bytes of %llu).  What has arrived is "
                     "kept: the same command continues there",
                     j->repo->name, s->it->file->path, (unsigned long long)s->at, (unsigned long long)s->it->file->size);
    mt_http_response_free(&r);
    return rc;
}

static mt_rc download_fetch(span *s, mt_http *http, mt_err *err)
{
    char *url = mt__repo_file_url(s->j->hub, s->j->repo, s->it->file->path);
    if (!url) return mt_no_memory(err, "an address");
    mt_rc rc = MT_OK;
    bool again = true;
    for (int n_tries = 1; !rc && again && s->at < s->end; n_tries++) {
        uint64_t was = s->at;
        rc = download_ask(s, http, url, n_tries, &again, err);
        if (s->at > was) n_tries = 0; /* it moves: patience starts anew */
    }
    mt_free(url);
    return rc;
}

/* Mark what a span has brought; *last: nothing is missing any more. */
static mt_rc mark(span *s, bool *last, mt_err *err)
{
    mt__partial *p = &s->it->part;
    for (uint64_t i = 0; i < s->n_pieces; i++) MT_TRY(mt__partial_mark(p, s->piece + i, err));
    pthread_mutex_lock(&s->j->lock);
    for (uint64_t i = 0; i < s->n_pieces; i++) p->done[s->piece + i] = 1;
    p->n_done += s->n_pieces;
    *last = p->n_done == p->n_pieces;
    pthread_mutex_unlock(&s->j->lock);
    return MT_OK;
}

/* -- workers --------------------------------------------------------------------------------------- */

typedef enum turn { TURN_PIECE, TURN_FINISH, TURN_WAIT, TURN_END } turn;

static void drop_complete(job *j)
{
    size_t n = 0;
    for (size_t i = 0; i < j->n_live; i++)
        if (j->live[i]->state != COMPLETE) j->live[n++] = j->live[i];
    j->n_live = n;
}

/* Under the lock, and lets go of it: meanwhile `opening` keeps the other workers from changing j->live. */
static mt_rc open_next(job *j, item *it, mt_err *err)
{
    file_state state;
    j->opening = true;
    pthread_mutex_unlock(&j->lock);
    mt_rc rc = open_item(j, it, &state, err);
    pthread_mutex_lock(&j->lock);
    j->opening = false;
    it->state = state;
    pthread_cond_broadcast(&j->may_turn);
    return rc;
}

/* What to do next.  Files that another process has are waited for, and the file that another worker opens. */
static turn next_turn(job *j, span *s, item **to_finish, mt_err *err, mt_rc *rc)
{
    bool waits = false;
    if (!j->opening) drop_complete(j);
    for (size_t i = 0; i < j->n_live; i++)
        if (take_piece(j, j->live[i], s)) return TURN_PIECE;
    if (j->opening) return TURN_WAIT;
    for (size_t i = 0; i < j->n_live || j->n_begun < j->n; i++) {
        if (i == j->n_live) j->live[j->n_live++] = &j->items[j->n_begun++];
        item *it = j->live[i];
        if (it->state != WAITING) continue;
        if ((*rc = open_next(j, it, err))) return TURN_END;
        waits = waits || it->state == WAITING;
        if (it->state == COMPLETE && i + 1 == j->n_live)
            j->n_live--, i--; /* the cache has it, as it may have most of a large set */
        if (it->state != OPEN) continue;
        if (it->part.n_done == it->part.n_pieces) return *to_finish = it, TURN_FINISH; /* empty, or whole from an earlier run */
        if (take_piece(j, it, s)) return TURN_PIECE;
    }
    return waits ? TURN_WAIT : TURN_END;
}

/* Until the condition is signaled, at most a tenth of a second. */
static void wait_a_moment(job *j, pthread_cond_t *until)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 100000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    pthread_cond_timedwait(until, &j->lock, &t);
}

static mt_rc one_turn(job *j, mt_http *http, bool *end, mt_err *err)
{
    span s;
    item *it = NULL;
    mt_rc rc = MT_OK;
    pthread_mutex_lock(&j->lock);
    turn t = next_turn(j, &s, &it, err, &rc);
    if (t == TURN_WAIT) wait_a_moment(j, &j->may_turn);
    pthread_mutex_unlock(&j->lock);
    *end = t == TURN_END;
    if (t == TURN_PIECE) {
        bool last = false;
        it = s.it;
        rc = download_fetch(&s, http, err);
        if (!rc) rc = mark(&s, &last, err);
        if (!rc && last) t = TURN_FINISH;
    }
    if (!rc && t == TURN_FINISH) rc = finish_item(j, it, err);
    return rc;
}

static void *work(void *arg)
{
    job *j = arg;
    mt_err err = { 0 };
    mt_http *http = NULL;
    mt_rc rc = mt_http_open(&http, j->hub->at.endpoint, j->hub->at.token, &err);
    for (bool end = false; !rc && !end && !atomic_load(&j->stop);) rc = one_turn(j, http, &end, &err);
    if (rc) fail_job(j, &err);
    mt_http_close(http);
    pthread_mutex_lock(&j->lock);
    j->n_working--;
    pthread_cond_signal(&j->ended);
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

static bool asked_to_stop(const job *j) { return j->hub->o.stop && atomic_load(j->hub->o.stop); }

/* Until all threads have ended.  A request to stop comes from a signal, which wakes nothing: it is looked for. */
static void wait_for_workers(job *j)
{
    bool told = false;
    pthread_mutex_lock(&j->lock);
    while (j->n_working > 0) {
        wait_a_moment(j, &j->ended);
        pthread_mutex_unlock(&j->lock);
        show_progress(j, false);
        pthread_mutex_lock(&j->lock);
        if (told || !asked_to_stop(j)) continue;
        told = true;
        if (!j->error.rc)
            mt_fail(&j->error, MT_ESTOPPED, "the download of %s was stopped; the same command continues where it stopped",
                    j->repo->name);
        atomic_store(&j->stop, true);
    }
    pthread_mutex_unlock(&j->lock);
}

static mt_rc download_run(job *j, mt_err *err)
{
    pthread_t threads[64];
    int n = 0, wanted = j->hub->o.n_connections < 64 ? j->hub->o.n_connections : 64;
    pthread_mutex_lock(&j->lock); /* a thread that ends at once waits to say so */
    for (; n < wanted; n++)
        if (!mt_thread_start(&threads[n], work, j)) break;
    j->n_working = n;
    pthread_mutex_unlock(&j->lock);
    if (n == 0) work(j); /* the system has no thread for us: one piece after the other, then */
    wait_for_workers(j);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    if (!j->error.rc) return MT_OK;
    *err = j->error;
    return err->rc;
}

/* -- before and after ------------------------------------------------------------------------------ */

/* Bytes that a file still needs: none if its blob is there, less what the disk holds already of an interrupted download. */
static size_t room_needed(const job *j, const mt__file *f)
{
    struct stat st;
    char *blob = mt__blob_path(j->repo, f->hash), *part = blob ? mt_asprintf("%s.parts.incomplete", blob) : NULL;
    size_t need = !part || mt_file_exists(blob) ? 0 : (size_t)f->size;
    size_t has = need && stat(part, &st) == 0 ? (size_t)st.st_blocks * 512 : 0;
    mt_free(part);
    mt_free(blob);
    return need > has ? need - has : 0;
}

static mt_rc check_room(const job *j, mt_err *err)
{
    struct statvfs v;
    size_t need = 0;
    for (size_t i = 0; i < j->n; i++)
        if (!mt_add_size(need, room_needed(j, j->items[i].file), &need)) need = SIZE_MAX; /* sizes are the hub's claims */
    if (statvfs(j->repo->folder, &v)) return MT_OK;                                       /* it will show */
    uint64_t free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    if (need <= free_bytes) return MT_OK;
    return mt_fail(err, MT_EIO,
                   "%s needs %s and %s has %s free: free some space, or set HF_HUB_CACHE to a folder on a larger disk",
                   j->repo->name, mt_bytes_text(need).s, j->hub->at.cache, mt_bytes_text(free_bytes).s);
}

static int by_hash(const void *pa, const void *pb)
{
    const mt__file *a = *(mt__file *const *)pa, *b = *(mt__file *const *)pb;
    int c = strcmp(a->hash, b->hash);
    return c ? c : (a > b) - (a < b); /* of equal ones the first in the list */
}

/* The wanted files by content; first[i]: files->items[i] is wanted, and the first of its content. */
static mt_rc find_first(const mt__files *files, bool *first, mt_err *err)
{
    size_t n = 0;
    const mt__file **sorted = mt_calloc(files->n + 1, sizeof *sorted);
    if (!sorted) return mt_no_memory(err, "a download");
    for (size_t i = 0; i < files->n; i++)
        if (files->items[i].wanted) sorted[n++] = &files->items[i];
    qsort(sorted, n, sizeof *sorted, by_hash);
    for (size_t i = 0; i < n; i++) first[sorted[i] - files->items] = !i || strcmp(sorted[i]->hash, sorted[i - 1]->hash) != 0;
    mt_free(sorted);
    return MT_OK;
}

static mt_rc list_items(job *j, const mt__files *files, mt_err *err)
{
    bool *first = mt_calloc(files->n + 1, sizeof *first);
    j->items = mt_calloc(files->n + 1, sizeof *j->items);
    j->live = mt_calloc(files->n + 1, sizeof *j->live);
    mt_rc rc = first && j->items && j->live ? find_first(files, first, err) : mt_no_memory(err, "a download");
    for (size_t i = 0; !rc && i < files->n; i++) {
        if (!first[i]) continue;
        j->items[j->n++] = (item){ .file = &files->items[i], .lock = -1, .part = { .fd = -1 } };
        j->total_bytes += files->items[i].size;
    }
    mt_free(first);
    return rc;
}

static mt_rc download_prepare(job *j, const mt__files *files, mt_err *err)
{
    char *blobs = mt_path_join(j->repo->folder, "blobs");
    mt_rc rc = blobs ? mt__make_dirs(blobs, err) : mt_no_memory(err, "a path");
    mt_free(blobs);
    MT_TRY(rc);
    MT_TRY(list_items(j, files, err));
    return check_room(j, err);
}

/* Links are about to be made to these: an unfinished file must not pass for a complete one. */
static mt_rc check_complete(const job *j, mt_err *err)
{
    for (size_t i = 0; i < j->n; i++)
        if (j->items[i].state != COMPLETE)
            return mt_fail(err, MT_EINTERNAL, "%s/%s was left unfinished; the same command continues there", j->repo->name,
                           j->items[i].file->path);
    return MT_OK;
}

mt_rc mt__download(mt_hub *hub, const mt__repo *repo, const mt__files *files, mt_err *err)
{
    job j = { .hub = hub,
              .repo = repo,
              .lock = PTHREAD_MUTEX_INITIALIZER,
              .ended = PTHREAD_COND_INITIALIZER,
              .may_turn = PTHREAD_COND_INITIALIZER };
    mt_rc rc = download_prepare(&j, files, err);
    if (!rc) rc = download_run(&j, err);
    if (!rc) rc = check_complete(&j, err);
    if (!rc) show_progress(&j, true);
    for (size_t i = 0; i < j.n; i++) close_item(&j.items[i]);
    mt_free(j.items);
    mt_free(j.live);
    return rc;
}
