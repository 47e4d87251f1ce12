/* comm_alone.c - one rank: nothing to send, and its record is all records. */
#include "comm/comm.h"

#include <string.h>

static void alone_close(mt_comm *c) { (void)c; }
static void alone_fail(mt_comm *c, const mt_err *e) { (void)c, (void)e; }

static mt_rc alone_post(mt_comm *c, const mt_parcel *p, mt_err *err)
{
    (void)c;
    return mt_fail(err, MT_EINTERNAL, "%s: no rank %d: this run has only one rank", p->what, p->peer);
}

static mt_rc alone_advance(mt_comm *c, int64_t until_ns, mt_err *err)
{
    (void)c, (void)until_ns, (void)err;
    return MT_OK;
}

static mt_rc alone_tell(mt_comm *c, const void *mine, size_t n, void *all, const char *what, mt_err *err)
{
    (void)c, (void)what, (void)err;
    memcpy(all, mine, n);
    return MT_OK;
}

static const mt_comm_api alone_api = {
    .name = "alone",
    .close = alone_close,
    .post = alone_post,
    .advance = alone_advance,
    .tell = alone_tell,
    .fail = alone_fail,
};

mt_comm *mt_comm_alone(void)
{
    static char here[1][MT_COMM_NAME_BYTES] = { "localhost" };
    static mt_comm alone = { .api = &alone_api, .n_ranks = 1, .n_local = 1, .hosts = here };
    return &alone;
}
