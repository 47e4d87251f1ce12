/* comm_cases.h - what every kind of comm must do, as each of its ranks does it: for threads of one process and for processes of
 * an MPI job.  A case returns NULL, or what went wrong: cmocka's own assertions belong to one thread. */
#ifndef MT_TEST_COMM_CASES_H
#define MT_TEST_COMM_CASES_H

#include "base/clock.h"
#include "base/fault.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "test.h"

#include <stdlib.h>
#include <time.h>

enum { CASE_PIECE_BYTES = 4096, CASE_MOST_PARCELS = 64 };

typedef struct comm_case {
    const char *name;
    const char *(*run)(mt_comm *c, mt_err *err);
    const char *says[3]; /* every rank ends with an error that holds all of these; none: it ends well */
} comm_case;

static inline void case_sleep_ms(int ms) { nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000L }, NULL); }

/* -- random parcels -- */

typedef struct ware {
    int from, to, tag;
    size_t bytes;
    unsigned char *data;
    bool posted, done;
} ware;

typedef struct market {
    mt_comm *c;
    ware wares[CASE_MOST_PARCELS];
    int n, n_open;
    uint64_t seed, dice;
    mt_rc rc;
    mt_err *err;
} market;

static inline size_t ware_size(uint64_t seed, int i)
{
    static const size_t sizes[] = { 0, 1, CASE_PIECE_BYTES - 1, CASE_PIECE_BYTES, CASE_PIECE_BYTES + 1, 6 * CASE_PIECE_BYTES };
    uint64_t roll = mt_rng_below(seed, 1, (uint64_t)i, 2 * MT_COUNT(sizes));
    return roll < MT_COUNT(sizes) ? sizes[roll] : mt_rng_below(seed, 2, (uint64_t)i, 40000);
}

static inline unsigned char ware_byte(uint64_t seed, int i, size_t k)
{
    return (unsigned char)mt_rng_u64(seed + 9, (uint64_t)i, k / 64) + (unsigned char)k;
}

/* The same on every rank but for the memory. */
static inline void market_stock(market *m)
{
    m->n = 1 + (int)mt_rng_below(m->seed, 3, 0, CASE_MOST_PARCELS);
    for (int i = 0; i < m->n; i++) {
        ware *w = &m->wares[i];
        w->from = (int)mt_rng_below(m->seed, 4, (uint64_t)i, (uint64_t)m->c->n_ranks);
        w->to = (w->from + 1 + (int)mt_rng_below(m->seed, 5, (uint64_t)i, (uint64_t)m->c->n_ranks - 1)) % m->c->n_ranks;
        w->tag = mt_rng_below(m->seed, 6, (uint64_t)i, 3) ? (int)mt_rng_below(m->seed, 7, (uint64_t)i, 4) : MT_COMM_TAGS - 1;
        w->bytes = ware_size(m->seed, i);
        w->data = calloc(w->bytes + 1, 1);
        for (size_t k = 0; w->from == m->c->rank && k < w->bytes; k++) w->data[k] = ware_byte(m->seed, i, k);
    }
}

static inline bool ware_mine(const market *m, const ware *w) { return w->from == m->c->rank || w->to == m->c->rank; }

/* Its turn comes after those before it with the same way and tag. */
static inline bool ware_may_go(const market *m, int i)
{
    const ware *w = &m->wares[i];
    if (w->posted || !ware_mine(m, w)) return false;
    for (int k = 0; k < i; k++) {
        const ware *o = &m->wares[k];
        if (!o->posted && o->from == w->from && o->to == w->to && o->tag == w->tag) return false;
    }
    return true;
}

static inline void market_post(market *m);
static inline void ware_done(void *self, void *mark)
{
    market *m = self;
    ((ware *)mark)->done = true;
    m->n_open--;
    market_post(m);
}

/* Keep some under way, in an order of this rank's own. */
static inline void market_post(market *m)
{
    while (!m->rc && m->n_open < 12) {
        int may[CASE_MOST_PARCELS], n = 0;
        for (int i = 0; i < m->n; i++)
            if (ware_may_go(m, i)) may[n++] = i;
        if (!n) return;
        ware *w = &m->wares[may[mt_rng_below(m->seed, 100 + (uint64_t)m->c->rank, m->dice++, (uint64_t)n)]];
        const bool sends = w->from == m->c->rank;
        w->posted = true;
        m->n_open++;
        m->rc = m->c->api->post(m->c,
                                &(mt_parcel){ .peer = sends ? w->to : w->from,
                                              .sends = sends,
                                              .tag = w->tag,
                                              .data = w->data,
                                              .bytes = w->bytes,
                                              .what = "a ware",
                                              .done = ware_done,
                                              .self = m,
                                              .mark = w },
                                m->err);
    }
}

static inline const char *market_check(const market *m)
{
    for (int i = 0; i < m->n; i++) {
        const ware *w = &m->wares[i];
        if (ware_mine(m, w) && !w->done) return "a parcel never came";
        for (size_t k = 0; w->to == m->c->rank && k < w->bytes; k++)
            if (w->data[k] != ware_byte(m->seed, i, k)) return "a parcel came with other bytes";
        if (w->data[w->bytes]) return "a parcel was written past its end";
    }
    return NULL;
}

static inline const char *trade(mt_comm *c, uint64_t seed, mt_err *err)
{
    market *m = calloc(1, sizeof *m);
    *m = (market){ .c = c, .seed = seed, .err = err };
    market_stock(m);
    market_post(m);
    while (!m->rc && m->n_open) m->rc = c->api->advance(c, mt_now_ns() + 1000000, err);
    const char *wrong = m->rc ? "failed" : market_check(m);
    for (int i = 0; i < m->n; i++) free(m->wares[i].data);
    free(m);
    return wrong;
}

static inline const char *case_parcels(mt_comm *c, mt_err *err)
{
    const char *draws = getenv("MT_DRAWS"), *wrong = NULL;
    const int n = draws ? atoi(draws) : 20;
    for (int i = 0; !wrong && i < n; i++) wrong = trade(c, 1000 + (uint64_t)i, err);
    return wrong;
}

static inline const char *case_records(mt_comm *c, mt_err *err)
{
    unsigned char mine[300], all[8 * 300];
    for (int i = 0; i < 50; i++) {
        const size_t n = 1 + mt_rng_below(5, 0, (uint64_t)i, sizeof mine);
        memset(mine, c->rank * 16 + i % 16, n);
        if (c->api->tell(c, mine, n, all, "a record", err)) return "failed";
        for (int r = 0; r < c->n_ranks; r++)
            for (size_t k = 0; k < n; k++)
                if (all[(size_t)r * n + k] != r * 16 + i % 16) return "a record has other bytes";
    }
    return NULL;
}

static inline void count_down(void *self, void *mark)
{
    (void)mark;
    --*(int *)self;
}

/* A parcel of n bytes whose contents do not matter. */
static inline mt_rc post_bytes(mt_comm *c, int peer, bool sends, void *data, size_t n, const char *what, int *left, mt_err *err)
{
    if (left) ++*left;
    return c->api->post(c,
                        &(mt_parcel){ .peer = peer,
                                      .sends = sends,
                                      .tag = 3,
                                      .data = data,
                                      .bytes = n,
                                      .what = what,
                                      .done = left ? count_down : NULL,
                                      .self = left },
                        err);
}

/* Records while parcels to and from all are under way. */
static inline const char *case_mixed(mt_comm *c, mt_err *err)
{
    enum { N = 50000 };
    unsigned char *out = calloc(8, N), *in = calloc(8, N);
    int64_t all[8];
    int left = 0;
    mt_rc rc = MT_OK;
    for (int r = 0; r < c->n_ranks && !rc; r++) {
        if (r == c->rank) continue;
        memset(out + r * N, 1 + c->rank * 8 + r, N);
        rc = post_bytes(c, r, true, out + r * N, N, "bytes", &left, err);
        if (!rc) rc = post_bytes(c, r, false, in + r * N, N, "bytes", &left, err);
    }
    const char *wrong = NULL;
    for (int64_t i = 0; i < 10 && !rc; i++) {
        rc = c->api->tell(c, &i, sizeof i, all, "a count", err);
        for (int r = 0; r < c->n_ranks && !rc; r++)
            if (all[r] != i) wrong = "a record of another round";
    }
    while (!rc && left) rc = c->api->advance(c, mt_now_ns() + 1000000, err);
    for (int r = 0; !rc && r < c->n_ranks; r++)
        for (int k = 0; r != c->rank && k < N; k++)
            if (in[r * N + k] != 1 + r * 8 + c->rank) wrong = "a parcel has other bytes";
    free(out);
    free(in);
    return rc ? "failed" : wrong;
}

/* -- failures: every rank ends with the same words -- */

static inline const char *until_it_fails(mt_comm *c, mt_err *err)
{
    const int64_t end = mt_now_ns() + 20 * (int64_t)1000000000;
    while (mt_now_ns() < end) {
        if (c->api->advance(c, mt_now_ns() + 10000000, err)) return "failed";
        case_sleep_ms(1);
    }
    return "nothing failed within 20 s";
}

/* bytes: of the sender and of the receiver. */
static inline const char *unequal(mt_comm *c, size_t sent, size_t expected, mt_err *err)
{
    char *data = calloc(5, CASE_PIECE_BYTES);
    const char *what = "the gradient of layer 12", *ends = NULL;
    if (c->rank == 0 && post_bytes(c, 1, true, data, sent, what, NULL, err)) ends = "failed";
    if (c->rank == 1 && post_bytes(c, 0, false, data, expected, what, NULL, err)) ends = "failed";
    if (!ends) ends = until_it_fails(c, err);
    free(data);
    return ends;
}
static inline const char *case_too_long(mt_comm *c, mt_err *err) { return unequal(c, 200, 100, err); }
static inline const char *case_too_short(mt_comm *c, mt_err *err) { return unequal(c, 100, 200, err); }
/* Their pieces have equal sizes. */
static inline const char *case_a_piece_more(mt_comm *c, mt_err *err)
{
    return unequal(c, 3 * CASE_PIECE_BYTES, 2 * CASE_PIECE_BYTES, err);
}

static inline const char *case_unequal_records(mt_comm *c, mt_err *err)
{
    char mine[64] = "", all[8 * 64];
    return c->api->tell(c, mine, c->rank == 1 ? 32 : 64, all, "a record", err) ? until_it_fails(c, err) : "accepted";
}

/* One rank has an error, the others wait for records; it reaches all of them. */
static inline const char *case_failure(mt_comm *c, mt_err *err)
{
    int64_t mine = mt_now_ns(), all[8];
    if (c->api->tell(c, &mine, sizeof mine, all, "the beginning", err)) return "the beginning failed";
    if (c->rank == c->n_ranks - 1) {
        case_sleep_ms(100);
        (void)mt_fail(err, MT_ENOENT, "/data/x.json: there is no such file");
        (c->api->fail)(c, err);
        (c->api->fail)(c, &(mt_err){ .rc = MT_EIO, .msg = "a second one" });
        return until_it_fails(c, err);
    }
    mt_rc rc = c->rank % 2 ? c->api->tell(c, &mine, sizeof mine, all, "a record", err) : MT_OK;
    if (c->rank % 2 && !rc) return "a record came";
    if (!rc) (void)until_it_fails(c, err);
    if (err->rc != MT_ENOENT) return "the code is another one";
    mt_err again = { 0 };
    return c->api->tell(c, &mine, sizeof mine, all, "a record", &again) && strcmp(again.msg, err->msg) == 0 ? "failed"
                                                                                                            : "not sticky";
}

static inline const char *waits(mt_comm *c, int from, mt_err *err)
{
    static _Thread_local char data[100];
    return post_bytes(c, from, false, data, sizeof data, "the gradient of layer 12", NULL, err) ? "failed"
                                                                                                : until_it_fails(c, err);
}

/* Rank 1 is there and sends nothing. */
static inline const char *case_late(mt_comm *c, mt_err *err)
{
    c->patience_s = 0.5;
    return c->rank == 0 ? waits(c, 1, err) : until_it_fails(c, err);
}

/* Rank 0 waits for 1, that waits for 2: it is 2 that is late. */
static inline const char *case_late_in_turn(mt_comm *c, mt_err *err)
{
    c->patience_s = c->rank == 0 ? 1.0 : 100;
    if (c->rank > 1) return until_it_fails(c, err);
    return waits(c, c->rank + 1, err);
}

/* Rank 1 waits for nothing and says farewell. */
static inline const char *case_ended(mt_comm *c, mt_err *err)
{
    if (c->rank == 1) return NULL;
    return c->rank == 0 ? waits(c, 1, err) : until_it_fails(c, err);
}

/* A message of rank 1 fails, or of a rank that is a thread beside it. */
static inline const char *case_fault(mt_comm *c, mt_err *err)
{
    int64_t mine = 0, all[8];
    if (c->rank == 1) mt_fault_arm(MT_FAULT_PARCEL, 3);
    for (int i = 0; i < 100; i++)
        if (c->api->tell(c, &mine, sizeof mine, all, "a record", err)) return "failed";
    return "nothing failed";
}

static const comm_case comm_cases[] = {
    { "parcels", case_parcels, { NULL } },
    { "records", case_records, { NULL } },
    { "mixed", case_mixed, { NULL } },
    { "too_long", case_too_long, { "rank 1 (", "sent 200 bytes as the gradient of layer 12, but this rank expects 100" } },
    { "too_short", case_too_short, { "rank 1 (", "sent 100 bytes as the gradient of layer 12, but this rank expects 200" } },
    { "a_piece_more", case_a_piece_more, { "rank 1 (", "sent 12288 bytes", "but this rank expects 8192" } },
    { "unequal_records", case_unequal_records, { "sent", "bytes as a record", "do not agree" } },
    { "failure", case_failure, { "/data/x.json: there is no such file" } },
    { "late", case_late, { "rank 0 (", "s for the gradient of layer 12 from rank 1 (", ", which is alive but late" } },
    { "late_in_turn", case_late_in_turn, { "s for the gradient of layer 12 from rank 1 (", "), which waits for rank 2 (" } },
    { "ended", case_ended, { "rank 0 (", "s for the gradient of layer 12 from rank 1 (", "), which has ended" } },
    { "fault", case_fault, { "a record", "the network failed on purpose" } },
};

/* What is wrong with how a rank ended, or NULL. */
static inline const char *case_verdict(const comm_case *k, const char *ended, const mt_err *err)
{
    if (!k->says[0]) return ended;
    if (!ended) return strcmp(k->name, "ended") == 0 ? NULL : "it ended well";
    if (strcmp(ended, "failed") != 0) return ended;
    for (size_t i = 0; i < MT_COUNT(k->says); i++)
        if (k->says[i] && !strstr(err->msg, k->says[i])) return "it failed with other words";
    return NULL;
}

#endif
