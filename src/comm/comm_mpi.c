/* comm_mpi.c - ranks of an MPI job.  The only file that sees mpi.h.
 *
 * It uses two communicators: data for messages, control for signs of life, failures and farewells.  One thread at a time calls
 * MPI (MPI_THREAD_SERIALIZED), under our lock: the caller's thread in start and poll, and the guard.
 *
 * The guard is a thread that sends a beat to every rank now and then, with the rank it waits for, and receives theirs: so ranks
 * hear from each other while their callers compute.  When this rank fails it sends the text to all, and only then do calls return
 * the failure.  From then on MPI is not called any more, because the memory of messages in flight may be gone.  If the process
 * has not ended some seconds after a failure, the guard kills it, and with it the job. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/wire.h"

#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CONTROL_TAG = 1, SEND_MS = 300, FORCE_MS = 5000, FAREWELL_MS = 8000 };
enum { BEAT, FAILURE, FAREWELL };

typedef struct beat {
    int kind, waits_for;
    int rc; /* of a failure */
} beat;
typedef struct control {
    beat is;
    char text[MT_ERR_MSG_BYTES]; /* text of a failure; sent only with one */
} control;

typedef struct mpi_wire {
    mt_wire base;
    mt_comm_options how;
    MPI_Comm data, control;
    pthread_mutex_t mpi; /* held around every call of MPI */

    MPI_Request *requests; /* under way */
    mt_wire_message *messages;
    size_t n, cap, cap_messages;
    int indices[MT_WIRE_LANDED];
    MPI_Status statuses[MT_WIRE_LANDED];

    pthread_t guard;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool failing, failed, closing;
    mt_err error;

    /* The guard's. */
    control in, out;
    beat *beats; /* [ranks] */
    MPI_Request hears, *sends;
} mpi_wire;

static void nap_ms(int ms) { nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL); }

static mt_rc mpi_error(mt_err *err, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    return mt_fail(err, MT_EIO, "MPI: %s: %.*s", what, n, text);
}

/* -- messages -------------------------------------------------------------------------------------- */

static mt_rc mpi_start(mt_wire *base, const mt_wire_message *m, mt_err *err)
{
    mpi_wire *w = (mpi_wire *)base;
    MT_TRY(mt_grow(&w->requests, &w->cap, w->n + 1, sizeof *w->requests, err));
    MT_TRY(mt_grow(&w->messages, &w->cap_messages, w->n + 1, sizeof *w->messages, err));
    pthread_mutex_lock(&w->mpi);
    int code = m->sends ? MPI_Isend(m->data, (int)m->bytes, MPI_BYTE, m->peer, m->tag, w->data, &w->requests[w->n])
                        : MPI_Irecv(m->data, (int)m->bytes, MPI_BYTE, m->peer, m->tag, w->data, &w->requests[w->n]);
    pthread_mutex_unlock(&w->mpi);
    if (code != MPI_SUCCESS) return mpi_error(err, code, m->sends ? "MPI_Isend" : "MPI_Irecv");
    w->messages[w->n++] = *m;
    return MT_OK;
}

/* The result of a message; with the MPI lock held. */
static mt_rc mpi_land(mpi_wire *w, int index, const MPI_Status *status, int code, mt_landed *out, mt_err *err)
{
    const mt_wire_message *m = &w->messages[index];
    int error = code == MPI_ERR_IN_STATUS ? status->MPI_ERROR : MPI_SUCCESS, class = MPI_SUCCESS, got = (int)m->bytes;
    if (error != MPI_SUCCESS) MPI_Error_class(error, &class);
    if (!m->sends && error == MPI_SUCCESS) MPI_Get_count(status, MPI_BYTE, &got);
    *out = (mt_landed){ m->mark, class == MPI_ERR_TRUNCATE ? SIZE_MAX : (size_t)got };
    return error == MPI_SUCCESS || class == MPI_ERR_TRUNCATE ? MT_OK : mpi_error(err, error, m->sends ? "sending" : "receiving");
}

static void forget_finished(mpi_wire *w)
{
    size_t kept = 0;
    for (size_t i = 0; i < w->n; i++) {
        if (w->requests[i] == MPI_REQUEST_NULL) continue;
        w->requests[kept] = w->requests[i];
        w->messages[kept++] = w->messages[i];
    }
    w->n = kept;
}

static mt_rc mpi_poll(mt_wire *base, mt_landed out[MT_WIRE_LANDED], int *n, mt_err *err)
{
    mpi_wire *w = (mpi_wire *)base;
    mt_rc rc = MT_OK;
    if (!w->n) return MT_OK;
    pthread_mutex_lock(&w->mpi);
    /* Passes MPI only as many requests at a time as the arrays hold. */
    for (size_t at = 0; !rc && at < w->n && *n == 0; at += MT_WIRE_LANDED) {
        const int some = (int)mt_min_i64(MT_WIRE_LANDED, (int64_t)(w->n - at));
        int done = 0, code = MPI_Testsome(some, w->requests + at, &done, w->indices, w->statuses);
        if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) rc = mpi_error(err, code, "MPI_Testsome");
        if (rc || done == MPI_UNDEFINED) continue;
        for (int i = 0; !rc && i < done; i++) rc = mpi_land(w, (int)at + w->indices[i], &w->statuses[i], code, &out[(*n)++], err);
    }
    pthread_mutex_unlock(&w->mpi);
    if (*n) forget_finished(w);
    return rc;
}

/* -- the guard ------------------------------------------------------------------------------------- */

static void guard_hear(mpi_wire *w)
{
    MPI_Irecv(&w->in, sizeof w->in, MPI_BYTE, MPI_ANY_SOURCE, CONTROL_TAG, w->control, &w->hears);
}

static void set_failed(mpi_wire *w, const mt_err *e)
{
    pthread_mutex_lock(&w->lock);
    if (!w->failed) {
        w->failed = w->failing = true;
        w->error = *e;
        atomic_store(&w->base.failed_ns, mt_now_ns());
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* A control message has come. */
static void take_control(mpi_wire *w, int from)
{
    mt_wire_peer *p = &w->base.peers[from];
    atomic_store(&p->heard_ns, mt_now_ns());
    atomic_store(&p->waits_for, w->in.is.waits_for);
    if (w->in.is.kind == FAREWELL) atomic_store(&p->ended, true);
    if (w->in.is.kind != FAILURE) return;
    mt_err e = { .rc = (mt_rc)w->in.is.rc };
    memcpy(e.msg, w->in.text, sizeof e.msg);
    e.msg[sizeof e.msg - 1] = '\0';
    set_failed(w, &e);
}

static bool has_failed(mpi_wire *w)
{
    pthread_mutex_lock(&w->lock);
    bool yes = w->failed;
    pthread_mutex_unlock(&w->lock);
    return yes;
}

/* It is about to be. */
static bool is_failing(mpi_wire *w)
{
    pthread_mutex_lock(&w->lock);
    bool yes = w->failing;
    pthread_mutex_unlock(&w->lock);
    return yes;
}

/* Receives everything that has arrived; with the MPI lock held. */
static void drain_control(mpi_wire *w)
{
    for (;;) {
        MPI_Status status;
        int there = 0;
        if (MPI_Test(&w->hears, &there, &status) != MPI_SUCCESS || !there) return;
        take_control(w, status.MPI_SOURCE);
        if (has_failed(w)) return;
        guard_hear(w);
    }
}

/* Sends a beat to every rank whose previous beat has left; with the MPI lock held. */
static void send_beats(mpi_wire *w)
{
    const int waits_for = atomic_load(&w->base.peers[w->base.rank].waits_for);
    for (int r = 0; r < w->base.n_ranks; r++) {
        int left = 1;
        if (r == w->base.rank) continue;
        if (MPI_Test(&w->sends[r], &left, MPI_STATUS_IGNORE) != MPI_SUCCESS || !left) continue;
        w->beats[r] = (beat){ .kind = BEAT, .waits_for = waits_for };
        MPI_Isend(&w->beats[r], sizeof *w->beats, MPI_BYTE, r, CONTROL_TAG, w->control, &w->sends[r]);
    }
}

/* Sends the failure to all ranks, and waits a moment for it to leave; with the MPI lock held.  A message that cannot leave is for
 * a rank that is silent anyway. */
static void send_last(mpi_wire *w, const control *c, size_t bytes)
{
    w->out = *c;
    for (int r = 0; r < w->base.n_ranks; r++) {
        if (w->sends[r] != MPI_REQUEST_NULL) MPI_Request_free(&w->sends[r]);
        if (r != w->base.rank) MPI_Isend(&w->out, (int)bytes, MPI_BYTE, r, CONTROL_TAG, w->control, &w->sends[r]);
    }
    for (int i = 0, left = 0; i < SEND_MS && !left; i++) {
        MPI_Testall(w->base.n_ranks, w->sends, &left, MPI_STATUSES_IGNORE);
        if (!left) nap_ms(1);
    }
}

static bool lock_within(pthread_mutex_t *m, int ms)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += ms % 1000 * 1000000L;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return pthread_mutex_timedlock(m, &t) == 0;
}

static void send_failure(mpi_wire *w, const mt_err *e)
{
    control c = { .is = { .kind = FAILURE, .waits_for = -1, .rc = e->rc } };
    if (!lock_within(&w->mpi, SEND_MS)) return; /* MPI itself hangs */
    memcpy(c.text, e->msg, sizeof c.text);
    send_last(w, &c, sizeof c);
    pthread_mutex_unlock(&w->mpi);
}

/* The process does not end by itself: one of its threads is stuck. */
static void end_by_force(mpi_wire *w, const mt_err *e)
{
    if (w->how.last && mt__wire_speaks(&w->base, mt__comm_timeout(&w->how))) w->how.last(w->how.self, e);
    if (lock_within(&w->mpi, SEND_MS)) MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

static int beat_ms(const mpi_wire *w) { return (int)mt_clamp_i64((int64_t)(mt__comm_timeout(&w->how) * 100), 20, 1000); }

/* One round; the state's lock is not held. */
static void guard_round(mpi_wire *w, bool failing, bool failed, const mt_err *e, int64_t *beat_ns)
{
    if (failed) {
        const int64_t ms = mt__wire_speaks(&w->base, mt__comm_timeout(&w->how)) ? FORCE_MS : FAREWELL_MS + FORCE_MS;
        if (mt_now_ns() - atomic_load(&w->base.failed_ns) > ms * 1000000) end_by_force(w, e);
    } else if (failing) {
        send_failure(w, e);
        set_failed(w, e);
    } else if (lock_within(&w->mpi, SEND_MS)) {
        drain_control(w);
        if (mt_now_ns() >= *beat_ns && !has_failed(w)) {
            send_beats(w);
            *beat_ns = mt_now_ns() + beat_ms(w) * (int64_t)1000000;
        }
        pthread_mutex_unlock(&w->mpi);
    }
}

static void *guard_main(void *arg)
{
    mpi_wire *w = arg;
    int64_t beat_ns = 0;
    for (bool closing = false; !closing;) {
        pthread_mutex_lock(&w->lock);
        if (!w->failing || w->failed) {
            struct timespec t;
            clock_gettime(CLOCK_REALTIME, &t);
            t.tv_nsec += 10000000;
            if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
            pthread_cond_timedwait(&w->changed, &w->lock, &t);
        }
        const bool failing = w->failing, failed = w->failed;
        const mt_err e = w->error;
        closing = w->closing;
        pthread_mutex_unlock(&w->lock);
        if (!closing) guard_round(w, failing, failed, &e, &beat_ns);
    }
    return NULL;
}

/* -- failure and end ------------------------------------------------------------------------------- */

static void mpi_fail(mt_wire *base, const mt_err *e)
{
    mpi_wire *w = (mpi_wire *)base;
    pthread_mutex_lock(&w->lock);
    if (!w->failing) {
        w->failing = true;
        w->error = *e;
        mt_note(&w->error, "rank %d (%s)", base->rank, base->hosts[base->rank]);
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static mt_rc mpi_failed(mt_wire *base, mt_err *err)
{
    mpi_wire *w = (mpi_wire *)base;
    pthread_mutex_lock(&w->lock);
    mt_rc rc = w->failed ? w->error.rc : MT_OK;
    if (rc && err) *err = w->error;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

/* MPI is not called again, so nothing moves. */
static void mpi_withdraw(mt_wire *base) { ((mpi_wire *)base)->n = 0; }

/* True if no rank has more to do; a silent rank counts as done. */
static bool all_have_ended(const mpi_wire *w)
{
    const int64_t silent_ns = (int64_t)(1e9 * mt__comm_timeout(&w->how));
    for (int r = 0; r < w->base.n_ranks; r++) {
        const mt_wire_peer *p = &w->base.peers[r];
        if (r == w->base.rank || atomic_load(&p->ended)) continue;
        if (mt_now_ns() - atomic_load(&p->heard_ns) < silent_ns) return false;
    }
    return true;
}

/* Exchanges farewells, so that no rank waits in MPI_Finalize for one that has more to do or has failed.  False: a failure
 * came. */
static bool part(mpi_wire *w)
{
    while (is_failing(w) && !has_failed(w)) nap_ms(1); /* the guard reports that instead */
    pthread_mutex_lock(&w->mpi);
    if (!has_failed(w)) send_last(w, &(control){ .is = { .kind = FAREWELL, .waits_for = -1 } }, sizeof(beat));
    pthread_mutex_unlock(&w->mpi);
    while (!all_have_ended(w) && !has_failed(w)) nap_ms(1);
    return !has_failed(w);
}

static void stop_guard(mpi_wire *w)
{
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->guard, NULL);
}

static void finalize(mpi_wire *w)
{
    MPI_Waitall(w->base.n_ranks, w->sends, MPI_STATUSES_IGNORE);
    MPI_Cancel(&w->hears);
    MPI_Wait(&w->hears, MPI_STATUS_IGNORE);
    MPI_Comm_free(&w->data);
    MPI_Comm_free(&w->control);
    MPI_Finalize();
}

static void mpi_free(mpi_wire *w)
{
    pthread_mutex_destroy(&w->mpi);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    mt_free(w->requests);
    mt_free(w->messages);
    mt_free(w->beats);
    mt_free(w->sends);
    mt_free(w->base.peers);
    mt_free(w->base.hosts);
    mt_free(w);
}

/* After a failure the launcher kills all other processes as soon as one has ended.  So the reporting rank ends first, by force if
 * needed, and the others wait to be killed. */
static void mpi_close(mt_wire *base, bool speaks)
{
    mpi_wire *w = (mpi_wire *)base;
    if (!part(w)) {
        if (!speaks) nap_ms(FAREWELL_MS);
        return; /* the guard still watches the process, so this memory is not freed */
    }
    stop_guard(w);
    finalize(w);
    mpi_free(w);
}

/* -- opening --------------------------------------------------------------------------------------- */

static const mt_wire_api mpi_api = {
    .name = "mpi",
    .start = mpi_start,
    .poll = mpi_poll,
    .fail = mpi_fail,
    .failed = mpi_failed,
    .withdraw = mpi_withdraw,
    .close = mpi_close,
};

static mt_rc check_tags(mt_err *err)
{
    int *most = NULL, there = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&most, &there);
    return there && *most < MT_COMM_TAGS
               ? mt_fail(err, MT_EUNSUPPORTED, "this MPI has %d tags, and %d are needed: use Open MPI or MPICH", *most,
                         MT_COMM_TAGS + 1)
               : MT_OK;
}

static mt_rc start_mpi(mt_err *err)
{
    int level = MPI_THREAD_SINGLE, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS) return mpi_error(err, code, "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (level < MPI_THREAD_SERIALIZED)
        return mt_fail(err, MT_EUNSUPPORTED, "this MPI was built without threads (MPI_THREAD_SERIALIZED): use one that has them");
    return check_tags(err);
}

static mt_rc name_hosts(mpi_wire *w, mt_err *err)
{
    char mine[MT_COMM_NAME_BYTES] = "";
    MPI_Comm here;
    gethostname(mine, sizeof mine - 1);
    int code = MPI_Allgather(mine, sizeof mine, MPI_BYTE, w->base.hosts, sizeof mine, MPI_BYTE, w->control);
    if (code == MPI_SUCCESS) code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    if (code != MPI_SUCCESS) return mpi_error(err, code, "exchanging host names");
    MPI_Comm_rank(here, &w->base.local_rank);
    MPI_Comm_size(here, &w->base.n_local);
    MPI_Comm_free(&here);
    return MT_OK;
}

/* Launchers bind a process to a core or two.  A process that is alone on its machine can use all of them. */
static void use_all_cores(const mpi_wire *w)
{
    cpu_set_t all;
    if (w->base.n_local > 1) return;
    CPU_ZERO(&all);
    for (int i = 0; i < CPU_SETSIZE; i++) CPU_SET(i, &all);
    (void)sched_setaffinity(0, sizeof all, &all); /* the kernel ignores cores that do not exist or are not allowed */
}

static mt_rc make_room(mpi_wire *w, mt_err *err)
{
    const size_t n = (size_t)w->base.n_ranks;
    w->base.hosts = mt_calloc(n, sizeof *w->base.hosts);
    w->base.peers = mt_calloc(n, sizeof *w->base.peers);
    w->beats = mt_calloc(n, sizeof *w->beats);
    w->sends = mt_calloc(n, sizeof *w->sends);
    if (!w->base.hosts || !w->base.peers || !w->beats || !w->sends) return mt_no_memory(err, "%zu ranks", n);
    for (size_t r = 0; r < n; r++) {
        atomic_store(&w->base.peers[r].heard_ns, mt_now_ns());
        atomic_store(&w->base.peers[r].waits_for, -1);
        w->sends[r] = MPI_REQUEST_NULL;
    }
    return MT_OK;
}

static mt_rc open_wire(mpi_wire *w, mt_err *err)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &w->base.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->base.n_ranks);
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &w->data);
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &w->control);
    if (code != MPI_SUCCESS) return mpi_error(err, code, "MPI_Comm_dup");
    MPI_Comm_set_errhandler(w->data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(w->control, MPI_ERRORS_RETURN);
    MT_TRY(make_room(w, err));
    MT_TRY(name_hosts(w, err));
    use_all_cores(w);
    guard_hear(w);
    if (!mt_thread_start(&w->guard, guard_main, w)) return mt_fail(err, MT_EIO, "no thread for MPI");
    return MT_OK;
}

mt_rc mt__wire_mpi(mt_wire **out, const mt_comm_options *o, mt_err *err)
{
    *out = NULL;
    mpi_wire *w = mt_calloc(1, sizeof *w);
    if (!w) return mt_no_memory(err, "MPI");
    w->base.api = &mpi_api;
    if (o) w->how = *o;
    pthread_mutex_init(&w->mpi, NULL);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    mt_rc rc = start_mpi(err);
    if (!rc) rc = open_wire(w, err);
    if (rc) return mpi_free(w), rc;
    *out = &w->base;
    return MT_OK;
}
