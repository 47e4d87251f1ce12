/* comm.c - parcels and records over a wire.
 *
 * A parcel travels as a header with its size and then as pieces, all under its tag: a wire delivers those of one tag in order.
 * The receiver compares the header with what it expects before it makes room for a piece, so an error about two ranks that
 * disagree contains both numbers.  Only a few pieces of a parcel are in flight at a time, and a parcel starts when all pieces of
 * the previous one with the same tag have started.  A record is n - 1 parcels to all others and n - 1 from them.
 *
 * Time counts only while the caller is in a call: a parcel is not late because no thread called advance(). */
#include "comm/comm.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "comm/wire.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PIECES_UNDER_WAY = 4, RECORD_TAG = MT_COMM_TAGS };
static const int64_t SHORTEST_NAP_NS = 20000, LONGEST_NAP_NS = 200000, ATTENDED_GAP_NS = 1000000000, JUDGE_EVERY_NS = 20000000;
static const int64_t TURN_GRACE_NS = 40000000; /* a header may wait in a full queue of other data */

typedef struct shipment {
    mt_parcel p;
    uint64_t header; /* its size according to the sender */
    bool header_started, header_done;
    bool open; /* pieces may start; on the receiving side, once the sizes agree */
    size_t pieces, started, done;
    int64_t since_ns;  /* on the attention clock: when posted or last moved, or last held back for others */
    int64_t opened_ns; /* on the attention clock: when its header came */
    struct shipment
        *before; /* the parcel before it with the same peer, direction and tag, if not all of its pieces have started */
    struct shipment *next;
} shipment;

typedef struct parcels {
    mt_comm base;
    mt_comm_api api; /* with the wire's name */
    mt_wire *wire;
    double timeout_s;
    size_t piece_bytes;
    shipment *first, *last; /* under way, in the order of posting */
    shipment *spare;
    int64_t attended_ns, looked_ns; /* the attention clock, and when it was last set */
    int64_t judged_ns;
    bool withdrawn;
} parcels;

/* A message belongs to a shipment: its header if this bit is set in the mark, else a piece. */
static void *header_mark(shipment *s) { return (char *)s + 1; }
static bool is_header(const void *mark) { return (uintptr_t)mark & 1; }
static shipment *shipment_of(void *mark) { return (shipment *)(void *)((char *)mark - is_header(mark)); }

/* -- failure --------------------------------------------------------------------------------------- */

static void nap(int64_t ns) { nanosleep(&(struct timespec){ .tv_nsec = (long)ns }, NULL); }

/* The sticky failure.  The first time it is seen, the wire releases all memory. */
static mt_rc comm_check(parcels *c, mt_err *err)
{
    mt_rc rc = c->wire->api->failed(c->wire, err);
    if (!rc || c->withdrawn) return rc;
    c->wire->api->withdraw(c->wire);
    c->withdrawn = true;
    return rc;
}

/* Makes our error the error of all ranks.  Returns the first one, which may be another rank's. */
static mt_rc comm_broken(parcels *c, mt_err *err)
{
    c->wire->api->fail(c->wire, err);
    for (int i = 0; i < 2000; i++) {
        if (comm_check(c, err)) break;
        nap(1000000);
    }
    return err->rc;
}

static void comm_fail(mt_comm *base, const mt_err *e) { ((parcels *)base)->wire->api->fail(((parcels *)base)->wire, e); }

/* A rank that hears no other is cut off and must not report; with two ranks this cannot be decided. */
bool mt__wire_speaks(const mt_wire *w, double timeout_s)
{
    const int64_t failed_ns = atomic_load(&w->failed_ns), now = failed_ns ? failed_ns : mt_now_ns();
    int heard = 0;
    for (int r = 0; r < w->n_ranks; r++) {
        const bool silent = (double)(now - atomic_load(&w->peers[r].heard_ns)) * 1e-9 > timeout_s;
        if (r == w->rank || silent) continue;
        if (r < w->rank) return false;
        heard++;
    }
    return w->rank == 0 || heard > 0 || w->n_ranks == 2;
}

/* -- parcels --------------------------------------------------------------------------------------- */

static bool same_line(const mt_parcel *a, const mt_parcel *b)
{
    return a->peer == b->peer && a->tag == b->tag && a->sends == b->sends;
}

static bool all_started(const shipment *s) { return s->open && s->started == s->pieces; }

static void attend(parcels *c)
{
    const int64_t now = mt_now_ns();
    c->attended_ns += mt_min_i64(now - c->looked_ns, ATTENDED_GAP_NS);
    c->looked_ns = now;
}

static mt_rc enlist(parcels *c, const mt_parcel *p, mt_err *err)
{
    shipment *s = c->spare ? c->spare : mt_calloc(1, sizeof *s);
    if (!s) return mt_no_memory(err, "a parcel");
    if (c->spare) c->spare = s->next;
    attend(c);
    *s = (shipment){
        .p = *p, .header = p->bytes, .pieces = (p->bytes + c->piece_bytes - 1) / c->piece_bytes, .since_ns = c->attended_ns
    };
    for (shipment *o = c->first; o; o = o->next)
        if (same_line(&o->p, p) && !all_started(o)) s->before = o;
    if (c->last)
        c->last->next = s;
    else
        c->first = s;
    c->last = s;
    return MT_OK;
}

static mt_rc start_message(parcels *c, shipment *s, void *data, size_t bytes, void *mark, mt_err *err)
{
    mt_wire_message m = { .peer = s->p.peer, .tag = s->p.tag, .sends = s->p.sends, .data = data, .bytes = bytes, .mark = mark };
    mt_rc rc = mt_fault(MT_FAULT_PARCEL) ? mt_fail(err, MT_EIO, "the network failed on purpose") : MT_OK;
    if (!rc) rc = c->wire->api->start(c->wire, &m, err);
    return rc ? mt_note(err, s->p.sends ? "sending %s to rank %d (%s)" : "receiving %s from rank %d (%s)", s->p.what, s->p.peer,
                        c->base.hosts[s->p.peer])
              : MT_OK;
}

static mt_rc start_pieces(parcels *c, shipment *s, mt_err *err)
{
    while (s->open && s->started < s->pieces && s->started - s->done < PIECES_UNDER_WAY) {
        const size_t at = s->started * c->piece_bytes, left = s->p.bytes - at;
        MT_TRY(start_message(c, s, (char *)s->p.data + at, left < c->piece_bytes ? left : c->piece_bytes, s, err));
        s->started++;
    }
    if (!all_started(s)) return MT_OK;
    for (shipment *o = s->next; o; o = o->next)
        if (o->before == s) o->before = NULL;
    return MT_OK;
}

static bool receives_in_turn(const shipment *s) { return s->p.in_turn && !s->p.sends; }

/* Receives in turn, as start_all() goes through the list. */
typedef struct turns {
    double under_way;  /* bytes */
    bool not_here_yet; /* the sender of an earlier one has not begun */
} turns;

/* Bytes of receives in turn that have started. */
static turns count_turns(const parcels *c)
{
    turns t = { 0 };
    for (const shipment *s = c->first; s; s = s->next)
        if (receives_in_turn(s) && s->started) t.under_way += (double)s->p.bytes;
    return t;
}

/* True if a parcel may start.  All ranks post their receives in a rotated order, so while all keep to it, each one hears from another
 * sender.  An earlier receive whose sender has not begun gets a moment to do so; it holds up the others no longer than that. */
static bool has_turn(const parcels *c, shipment *s, turns *t)
{
    if (!receives_in_turn(s) || s->started) return true;
    if (!s->open) {
        t->not_here_yet = true;
        return false;
    }
    const bool fits = t->under_way + (double)s->p.bytes <= c->base.window_bytes;
    const bool grace = t->not_here_yet && c->attended_ns - s->opened_ns < TURN_GRACE_NS;
    if (!fits && (t->under_way > 0 || grace)) {
        s->since_ns = c->attended_ns; /* its sender is not late */
        return false;
    }
    t->under_way += (double)s->p.bytes;
    return true;
}

static mt_rc start_all(parcels *c, mt_err *err)
{
    turns t = count_turns(c);
    for (shipment *s = c->first; s; s = s->next) {
        if (s->before) continue;
        if (!s->header_started) {
            MT_TRY(start_message(c, s, &s->header, sizeof s->header, header_mark(s), err));
            s->header_started = true;
            s->open = s->p.sends;
        }
        if (has_turn(c, s, &t)) MT_TRY(start_pieces(c, s, err));
    }
    return MT_OK;
}

static mt_rc wrong_size(const parcels *c, const shipment *s, mt_err *err)
{
    return mt_fail(err, MT_EINTERNAL, "rank %d (%s) sent %llu bytes as %s, but this rank expects %llu: the ranks do not agree",
                   s->p.peer, c->base.hosts[s->p.peer], (unsigned long long)s->header, s->p.what, (unsigned long long)s->p.bytes);
}

static mt_rc land(parcels *c, const mt_landed *l, mt_err *err)
{
    shipment *s = shipment_of(l->mark);
    s->since_ns = c->attended_ns;
    if (is_header(l->mark)) {
        s->open = s->header_done = true;
        s->opened_ns = c->attended_ns;
        return l->got != sizeof s->header || s->header != s->p.bytes ? wrong_size(c, s, err) : MT_OK;
    }
    s->done++;
    return MT_OK;
}

/* Removes finished parcels from the list and calls done(), which may post. */
static bool deliver(parcels *c)
{
    bool any = false;
    for (shipment *s = c->first, *prev = NULL; s;) {
        if (!s->header_done || s->done < s->pieces) {
            prev = s;
            s = s->next;
            continue;
        }
        shipment *after = s->next;
        for (shipment *o = after; o; o = o->next)
            if (o->before == s) o->before = NULL;
        if (prev)
            prev->next = after;
        else
            c->first = after;
        if (c->last == s) c->last = prev;
        const mt_parcel p = s->p;
        s->next = c->spare;
        c->spare = s;
        if (p.done) p.done(p.self, p.mark);
        any = true;
        s = after ? after : (prev ? prev->next : c->first); /* done() may have appended more */
    }
    return any;
}

/* -- late ranks ----------------------------------------------------------------------------------- */

static double waited_s(const parcels *c, const shipment *s) { return 1e-9 * (double)(c->attended_ns - s->since_ns); }

static double silent_s(const parcels *c, int rank)
{
    return 1e-9 * (double)(mt_now_ns() - atomic_load(&c->wire->peers[rank].heard_ns));
}

/* The parcel that has waited longest: for any rank (-1), or for this one. */
static const shipment *oldest(const parcels *c, int peer)
{
    const shipment *found = NULL;
    for (const shipment *s = c->first; s; s = s->next) {
        if (peer >= 0 && s->p.peer != peer) continue;
        if (!found || s->since_ns < found->since_ns) found = s;
    }
    return found;
}

static mt_rc waited_for(const parcels *c, const shipment *s, double seconds, mt_err *err)
{
    const char *host = c->base.hosts[s->p.peer];
    if (s->p.sends)
        return mt_fail(err, MT_EBUSY, "waited %.3g s for rank %d (%s) to take %s", seconds, s->p.peer, host, s->p.what);
    return mt_fail(err, MT_EBUSY, "waited %.3g s for %s from rank %d (%s)", seconds, s->p.what, s->p.peer, host);
}

static mt_rc append(mt_err *err, const char *text)
{
    const size_t n = strlen(err->msg);
    snprintf(err->msg + n, sizeof err->msg - n, "%s", text);
    return err->rc;
}

/* True if every other rank is silent: then this machine is the one that is cut off, unless there are only two. */
static bool hears_nobody(const parcels *c)
{
    for (int r = 0; r < c->base.n_ranks; r++)
        if (r != c->base.rank && silent_s(c, r) <= c->timeout_s) return false;
    return c->base.n_ranks > 2;
}

static mt_rc silent(const parcels *c, int rank, mt_err *err)
{
    const shipment *s = oldest(c, rank);
    if (hears_nobody(c))
        return mt_fail(err, MT_EBUSY, "has heard from no other rank for %.3g s: the network of this machine is down",
                       c->timeout_s);
    if (s)
        waited_for(c, s, silent_s(c, rank), err);
    else
        (void)mt_fail(err, MT_EBUSY, "waited %.3g s for rank %d (%s)", silent_s(c, rank), rank, c->base.hosts[rank]);
    return append(err, ", which is silent: its process, its machine or its network is down");
}

/* The rank at the end of the chain of waits. */
static int culprit(const parcels *c, int rank)
{
    for (int i = 0; i < c->base.n_ranks; i++) {
        int next = atomic_load(&c->wire->peers[rank].waits_for);
        if (next < 0 || next == c->base.rank) break;
        rank = next;
    }
    return rank;
}

static mt_rc late(const parcels *c, const shipment *s, mt_err *err)
{
    char text[MT_COMM_NAME_BYTES + 64];
    const int guilty = culprit(c, s->p.peer);
    waited_for(c, s, waited_s(c, s), err);
    if (guilty == s->p.peer) return append(err, ", which is alive but late");
    snprintf(text, sizeof text, ", which waits for rank %d (%s)", guilty, c->base.hosts[guilty]);
    return append(err, text);
}

static mt_rc judge(parcels *c, mt_err *err)
{
    const int64_t now = mt_now_ns();
    const shipment *s = oldest(c, -1);
    if (now - c->judged_ns < JUDGE_EVERY_NS || !s) return MT_OK;
    c->judged_ns = now;
    atomic_store(&c->wire->peers[c->base.rank].waits_for, waited_s(c, s) > 0.1 ? s->p.peer : -1);
    for (int r = 0; r < c->base.n_ranks; r++) {
        const bool ended = atomic_load(&c->wire->peers[r].ended);
        const shipment *from = oldest(c, r);
        if (r == c->base.rank) continue;
        if (!ended && silent_s(c, r) > c->timeout_s) return silent(c, r, err);
        if (ended && from && waited_s(c, from) > 1) /* messages it sent earlier may still be in flight */
            return waited_for(c, from, waited_s(c, from), err), append(err, ", which has ended");
    }
    const double patience_s = c->base.patience_s;
    if (patience_s <= 0 || waited_s(c, s) <= patience_s) return MT_OK;
    return silent_s(c, culprit(c, s->p.peer)) > c->timeout_s / 2 ? MT_OK : late(c, s, err); /* it may be about to become silent */
}

/* -- the contract ---------------------------------------------------------------------------------- */

static mt_rc comm_post(mt_comm *base, const mt_parcel *p, mt_err *err)
{
    parcels *c = (parcels *)base;
    MT_TRY(comm_check(c, err));
    if (p->peer < 0 || p->peer >= base->n_ranks || p->peer == base->rank || p->tag < 0 || p->tag >= MT_COMM_TAGS)
        return mt_fail(err, MT_EINTERNAL, "%s: no parcel goes from rank %d to rank %d of %d with tag %d", p->what, base->rank,
                       p->peer, base->n_ranks, p->tag);
    return enlist(c, p, err);
}

/* Starts and completes messages; *moved: whether there were any. */
static mt_rc move_on(parcels *c, bool *moved, mt_err *err)
{
    mt_landed landed[MT_WIRE_LANDED];
    int n = 0;
    MT_TRY(start_all(c, err));
    MT_TRY(c->wire->api->poll(c->wire, landed, &n, err));
    for (int i = 0; i < n; i++) MT_TRY(land(c, &landed[i], err));
    *moved = n > 0;
    return MT_OK;
}

static mt_rc comm_advance(mt_comm *base, int64_t until_ns, mt_err *err)
{
    parcels *c = (parcels *)base;
    int64_t nap_ns = SHORTEST_NAP_NS;
    for (bool moved = false;; nap_ns = moved ? SHORTEST_NAP_NS : mt_min_i64(2 * nap_ns, LONGEST_NAP_NS)) {
        MT_TRY(comm_check(c, err));
        attend(c);
        mt_rc rc = move_on(c, &moved, err);
        if (!rc && (deliver(c) || !c->first)) break;
        if (!rc && !moved) rc = judge(c, err);
        if (rc) return comm_broken(c, err);
        if (mt_now_ns() >= until_ns) return MT_OK;
        if (!moved) nap(nap_ns);
    }
    atomic_store(&c->wire->peers[base->rank].waits_for, -1);
    return MT_OK;
}

static void heard_record(void *self, void *mark)
{
    (void)mark;
    --*(int *)self;
}

static mt_rc comm_tell(mt_comm *base, const void *mine, size_t n, void *all, const char *what, mt_err *err)
{
    parcels *c = (parcels *)base;
    int left = 0;
    MT_TRY(comm_check(c, err));
    memcpy((char *)all + (size_t)base->rank * n, mine, n);
    for (int k = 1; k < base->n_ranks; k++) {
        const int to = (base->rank + k) % base->n_ranks, from = (base->rank + base->n_ranks - k) % base->n_ranks;
        mt_parcel p = { .tag = RECORD_TAG, .bytes = n, .what = what, .done = heard_record, .self = &left };
        mt_rc rc;
        p.peer = from, p.data = (char *)all + (size_t)from * n;
        if (!(rc = enlist(c, &p, err))) left++;
        p.peer = to, p.sends = true, p.data = (char *)all + (size_t)base->rank * n;
        if (!rc && !(rc = enlist(c, &p, err))) left++;
        if (rc) return comm_broken(c, err); /* parcels already posted refer to this call's memory */
    }
    while (left > 0) MT_TRY(comm_advance(base, mt_now_ns() + ATTENDED_GAP_NS, err));
    return MT_OK;
}

static void free_shipments(shipment *s)
{
    for (shipment *next; s; s = next) {
        next = s->next;
        mt_free(s);
    }
}

static void comm_close(mt_comm *base)
{
    parcels *c = (parcels *)base;
    if (!comm_check(c, NULL) && c->first) c->wire->api->withdraw(c->wire);
    c->wire->api->close(c->wire, mt_comm_speaks(base));
    free_shipments(c->first);
    free_shipments(c->spare);
    mt_free(c);
}

bool mt_comm_speaks(const mt_comm *c)
{
    if (c->n_ranks == 1) return true;
    return mt__wire_speaks(((const parcels *)c)->wire, ((const parcels *)c)->timeout_s);
}

mt_rc mt__comm_over(mt_comm **out, mt_wire *w, const mt_comm_options *o, mt_err *err)
{
    parcels *c = mt_calloc(1, sizeof *c);
    if (!c) return w->api->close(w, true), mt_no_memory(err, "the other machines");
    c->wire = w;
    c->timeout_s = mt__comm_timeout(o);
    c->piece_bytes = o && o->piece_bytes ? o->piece_bytes : MT_COMM_PIECE_BYTES;
    c->looked_ns = mt_now_ns();
    c->api = (mt_comm_api){ w->api->name, comm_close, comm_post, comm_advance, comm_tell, comm_fail };
    c->base = (mt_comm){ .api = &c->api,
                         .rank = w->rank,
                         .n_ranks = w->n_ranks,
                         .local_rank = w->local_rank,
                         .n_local = w->n_local,
                         .hosts = w->hosts,
                         .patience_s = c->timeout_s };
    *out = &c->base;
    return MT_OK;
}
