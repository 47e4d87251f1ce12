/* reads.c - the state that other machines store, read by the machine that writes files.
 *
 *     a thread that reads    asks the machine that has the range, by one of a few readers, and waits for the answer
 *     the answering thread   takes one request at a time of each machine, reads the range here, and sends it
 *
 * A machine that has written a file notes it to the first one in the same way.  Requests of one machine arrive in order, so what a
 * machine says last (END) comes after all it wanted and noted.  While reads are open a
 * machine always expects the next request of every other one; otherwise it expects none. */
#include "engine/exchange.h"
#include "base/thread.h"

#include <string.h>

enum { OP_READ = 1, OP_DROP, OP_NOTE, OP_END };

static reads *reads_of(const mt_state *s) { return &s->exchange->reads; }

/* -- the answering side ---------------------------------------------------------------------------- */

static void request_came(void *self, void *mark)
{
    mt_state *s = self;
    pthread_mutex_lock(&s->watch->lock);
    s->exchange->done++;
    ((asking *)mark)->here = true;
    pthread_cond_broadcast(&s->watch->changed);
    pthread_mutex_unlock(&s->watch->lock);
}

/* With the lock held, like all that posts. */
static void expect_request(mt_state *s, int peer)
{
    asking *p = &reads_of(s)->peers[peer];
    mt__exchange_post(s, &(mt_parcel){ .peer = peer,
                                       .tag = TAG_REQUEST,
                                       .data = &p->request,
                                       .bytes = sizeof p->request,
                                       .what = "a request for a part of the state",
                                       .done = request_came,
                                       .mark = p });
}

static void answer_sent(void *self, void *mark)
{
    mt_state *s = self;
    pthread_mutex_lock(&s->watch->lock);
    s->exchange->done++;
    *(bool *)mark = false;
    pthread_cond_broadcast(&s->watch->changed);
    pthread_mutex_unlock(&s->watch->lock);
}

static size_t answer_bytes(const mt_state *s, const read_request *r)
{
    return (size_t)r->n * mt_state_number_bytes(s, (mt_state_kind)r->kind);
}

static mt_rc check_request(const mt_state *s, const read_request *r, mt_err *err)
{
    const bool sound = r->unit >= 0 && r->unit < s->model->n_units &&
                       (r->op != OP_READ || (r->kind >= 0 && r->kind < MT_STATE_KINDS && r->reader >= 0 &&
                                             r->reader < MT_READERS && r->n > 0 && r->n <= MT_READS_MOST));
    return sound ? MT_OK : mt_fail(err, MT_EINTERNAL, "another machine requests a part of the state that does not exist");
}

/* Its last answer may still be on its way. */
static mt_rc await_sent(mt_state *s, const bool *sending, mt_err *err)
{
    pthread_mutex_lock(&s->watch->lock);
    while (*sending && !s->watch->failed) pthread_cond_wait(&s->watch->changed, &s->watch->lock);
    pthread_mutex_unlock(&s->watch->lock);
    return mt_watch_check(s->watch, err);
}

static mt_rc answer(mt_state *s, int peer, const read_request *r, mt_err *err)
{
    asking *p = &reads_of(s)->peers[peer];
    char **data = &p->answers[r->reader];
    MT_TRY(await_sent(s, &p->sending[r->reader], err));
    if (!*data) *data = mt_malloc((size_t)MT_READS_MOST * sizeof(float));
    if (!*data) return mt_no_memory(err, "a part of the state for another machine");
    MT_TRY(s->reads.here(s->reads.user, (mt_state_range){ r->unit, (mt_state_kind)r->kind, r->first, r->n }, *data, err));
    pthread_mutex_lock(&s->watch->lock);
    p->sending[r->reader] = true;
    mt__exchange_post(s, &(mt_parcel){ .peer = peer,
                                       .sends = true,
                                       .tag = TAG_ANSWER + r->reader,
                                       .data = *data,
                                       .bytes = answer_bytes(s, r),
                                       .what = "a part of the state",
                                       .done = answer_sent,
                                       .mark = &p->sending[r->reader] });
    pthread_mutex_unlock(&s->watch->lock);
    return MT_OK;
}

static mt_rc handle(mt_state *s, int peer, const read_request *r, mt_err *err)
{
    if (r->op == OP_END) return MT_OK;
    if (r->op == OP_NOTE && s->reads.noted)
        return s->reads.noted(s->reads.user, r->unit, (uint64_t)r->first, (uint64_t)r->n, err);
    MT_TRY(check_request(s, r, err));
    if (r->op == OP_READ) return answer(s, peer, r, err);
    if (s->reads.dropped) s->reads.dropped(s->reads.user, r->unit);
    return MT_OK;
}

/* The next request of any machine; -1: all have ended, or the run has failed. */
static int next_request(mt_state *s, read_request *out)
{
    exchange *x = s->exchange;
    int found = -1;
    pthread_mutex_lock(&s->watch->lock);
    for (bool over = false; found < 0 && !over && !s->watch->failed;) {
        over = true;
        for (int m = 0; m < x->machines && found < 0; m++) {
            if (x->reads.peers[m].here) found = m;
            over &= x->reads.peers[m].ended;
        }
        if (found < 0 && !over) pthread_cond_wait(&s->watch->changed, &s->watch->lock);
    }
    if (found >= 0) {
        asking *p = &x->reads.peers[found];
        *out = p->request;
        p->here = false;
        p->ended = p->request.op == OP_END; /* all that came before it has been handled: one thread handles everything */
        if (!p->ended) expect_request(s, found);
        if (p->ended) pthread_cond_broadcast(&s->watch->changed);
    }
    pthread_mutex_unlock(&s->watch->lock);
    return found;
}

static void *answer_main(void *arg)
{
    mt_state *s = arg;
    read_request r;
    mt_err err = { 0 };
    for (int peer; (peer = next_request(s, &r)) >= 0;)
        if (handle(s, peer, &r, &err)) mt_watch_fail(s->watch, &err);
    return NULL;
}

/* -- the asking side ------------------------------------------------------------------------------- */

static void reader_moved(void *self, void *mark)
{
    mt_state *s = self;
    pthread_mutex_lock(&s->watch->lock);
    s->exchange->done++;
    --*(int *)mark;
    pthread_cond_broadcast(&s->watch->changed);
    pthread_mutex_unlock(&s->watch->lock);
}

static void post_request(mt_state *s, int peer, read_request *r, int *left)
{
    ++*left;
    mt__exchange_post(s, &(mt_parcel){ .peer = peer,
                                       .sends = true,
                                       .tag = TAG_REQUEST,
                                       .data = r,
                                       .bytes = sizeof *r,
                                       .what = "a request for a part of the state",
                                       .done = reader_moved,
                                       .mark = left });
}

/* With the lock held: a free reader; NULL: the run has failed. */
static reader *take_reader(mt_state *s)
{
    for (;; pthread_cond_wait(&s->watch->changed, &s->watch->lock)) {
        if (s->watch->failed) return NULL;
        for (int i = 0; i < MT_READERS; i++) {
            reader *r = &reads_of(s)->readers[i];
            if (!r->busy) return r->busy = true, r;
        }
    }
}

/* With the lock held. */
static void ask(mt_state *s, reader *r, int machine, mt_state_range range)
{
    const int number = (int)(r - reads_of(s)->readers);
    r->request = (read_request){
        .op = OP_READ, .unit = range.unit, .kind = (int32_t)range.kind, .reader = number, .first = range.first, .n = range.n
    };
    r->left = 1;
    mt__exchange_post(s, &(mt_parcel){ .peer = machine,
                                       .tag = TAG_ANSWER + number,
                                       .data = r->data,
                                       .bytes = answer_bytes(s, &r->request),
                                       .what = "a part of the state",
                                       .done = reader_moved,
                                       .mark = &r->left });
    post_request(s, machine, &r->request, &r->left);
    while (r->left && !s->watch->failed) pthread_cond_wait(&s->watch->changed, &s->watch->lock);
}

static mt_rc read_from(mt_state *s, int machine, mt_state_range range, void *dst, mt_err *err)
{
    pthread_mutex_lock(&s->watch->lock);
    reader *r = take_reader(s);
    if (r && !r->data) r->data = mt_malloc((size_t)MT_READS_MOST * sizeof(float));
    const bool room = !r || r->data;
    if (r && r->data) ask(s, r, machine, range);
    const bool came = r && r->data && !r->left;
    if (came) memcpy(dst, r->data, answer_bytes(s, &r->request));
    if (r && (came || !r->data)) r->busy = false; /* else its memory may still be written to */
    pthread_cond_broadcast(&s->watch->changed);
    pthread_mutex_unlock(&s->watch->lock);
    if (!room) return mt_no_memory(err, "a part of the state from another machine");
    return came ? MT_OK : mt_watch_check(s->watch, err);
}

/* How many of the range's numbers, from its first on, one machine stores; *machine: which. */
static int64_t stored_together(const mt_state *s, mt_state_range r, int *machine)
{
    const int64_t n_train = mt__state_layout(s, r.unit)->n_train;
    const bool whole =
        r.kind == MT_STATE_HI || r.kind == MT_STATE_PACKED || (r.kind == MT_STATE_LO && mt_plan_low_is_whole(s->plan, r.unit));
    *machine = s->plan->job.machine;
    if (whole || r.first >= n_train) return r.n;
    for (int m = 0; m < mt_plan_machines(s->plan); m++) {
        const mt_stretch at = mt_plan_slice(s->plan, r.unit, m);
        if (r.first < at.first || r.first >= at.first + at.n) continue;
        *machine = m;
        return mt_min_i64(r.n, at.first + at.n - r.first);
    }
    return r.n;
}

mt_rc mt_state_read_anywhere(mt_state *s, mt_state_range r, void *dst, mt_err *err)
{
    char *to = dst;
    for (int64_t n; r.n; r.first += n, r.n -= n) {
        int machine;
        n = mt_min_i64(stored_together(s, r, &machine), MT_READS_MOST);
        const mt_state_range part = { r.unit, r.kind, r.first, n };
        MT_TRY(machine == s->plan->job.machine ? s->reads.here(s->reads.user, part, to, err)
                                               : read_from(s, machine, part, to, err));
        to += (size_t)n * mt_state_number_bytes(s, r.kind);
    }
    return MT_OK;
}

/* One word to all others, or to machine `only`. */
static mt_rc say(mt_state *s, read_request word, int only, mt_err *err)
{
    exchange *x = s->exchange;
    if (!x) return MT_OK;
    pthread_mutex_lock(&s->watch->lock);
    while (x->reads.drops_left && !s->watch->failed) pthread_cond_wait(&s->watch->changed, &s->watch->lock);
    for (int k = 1; k < x->machines && !s->watch->failed; k++) {
        const int peer = mt__exchange_peer(x, k);
        if (only >= 0 && peer != only) continue;
        x->reads.drops[peer] = word;
        post_request(s, peer, &x->reads.drops[peer], &x->reads.drops_left);
    }
    pthread_mutex_unlock(&s->watch->lock);
    return mt_watch_check(s->watch, err);
}

mt_rc mt_state_drop_everywhere(mt_state *s, int unit, mt_err *err)
{
    return say(s, (read_request){ .op = OP_DROP, .unit = unit }, -1, err);
}

mt_rc mt_state_note_first(mt_state *s, int number, uint64_t a, uint64_t b, mt_err *err)
{
    return say(s, (read_request){ .op = OP_NOTE, .unit = number, .first = (int64_t)a, .n = (int64_t)b }, 0, err);
}

mt_rc mt_state_await_closed(mt_state *s, mt_err *err)
{
    exchange *x = s->exchange;
    if (!x) return MT_OK;
    pthread_mutex_lock(&s->watch->lock);
    for (int m = 0; m < x->machines; m++)
        while (!x->reads.peers[m].ended && !s->watch->failed) pthread_cond_wait(&s->watch->changed, &s->watch->lock);
    pthread_mutex_unlock(&s->watch->lock);
    return mt_watch_check(s->watch, err);
}

/* -- opening and closing --------------------------------------------------------------------------- */

mt_rc mt_state_open_reads(mt_state *s, const mt_reads *how, mt_err *err)
{
    exchange *x = s->exchange;
    s->reads = *how;
    if (!x) return MT_OK;
    MT_TRY(mt_watch_check(s->watch, err));
    pthread_mutex_lock(&s->watch->lock);
    for (int k = 1; k < x->machines; k++) {
        x->reads.peers[mt__exchange_peer(x, k)].ended = false;
        expect_request(s, mt__exchange_peer(x, k));
    }
    pthread_mutex_unlock(&s->watch->lock);
    x->reads.open = mt_thread_start(&x->reads.thread, answer_main, s);
    if (x->reads.open) return MT_OK;
    mt_fail(err, MT_ENOMEM, "the system refused a thread to answer other machines; see ulimit -u");
    mt_watch_fail(s->watch, err); /* they wait for this one */
    return err->rc;
}

mt_rc mt_state_close_reads(mt_state *s, mt_err *err)
{
    exchange *x = s->exchange;
    if (!x || !x->reads.open) return MT_OK;
    mt_rc rc = say(s, (read_request){ .op = OP_END }, -1, err);
    pthread_join(x->reads.thread, NULL);
    x->reads.open = false;
    return rc ? rc : mt_watch_check(s->watch, err);
}

mt_rc mt__reads_create(mt_state *s, mt_err *err)
{
    exchange *x = s->exchange;
    x->reads.peers = mt_calloc((size_t)x->machines, sizeof *x->reads.peers);
    x->reads.drops = mt_calloc((size_t)x->machines, sizeof *x->reads.drops);
    for (int m = 0; x->reads.peers && m < x->machines; m++) x->reads.peers[m].ended = true;
    return x->reads.peers && x->reads.drops ? MT_OK : mt_no_memory(err, "the state of other machines");
}

void mt__reads_free(mt_state *s)
{
    exchange *x = s->exchange;
    for (int i = 0; i < MT_READERS; i++) mt_free(x->reads.readers[i].data);
    for (int m = 0; x->reads.peers && m < x->machines; m++)
        for (int i = 0; i < MT_READERS; i++) mt_free(x->reads.peers[m].answers[i]);
    mt_free(x->reads.peers);
    mt_free(x->reads.drops);
}
