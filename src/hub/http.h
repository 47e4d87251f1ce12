/* http.h - one request at a time over libcurl, with the redirects followed here: the token goes only to the hub's own host, and
 * never from https to http.
 *
 *     mt_http *h;
 *     MT_TRY(mt_http_open(&h, endpoint, token, err));        // one per thread
 *     rc = mt_http_get(h, &(mt_http_request){ .url = url }, &response, err);
 *     if (!rc && response.status == 200) use(response.body.s, response.body.n);
 *     mt_http_response_free(&response);
 *     mt_http_close(h);
 *
 * mt_http_get fails if the answer is incomplete (MT_EIO, `response.cut`), if the sink refuses, or on request; a 404 is an answer.
 * mt_http_get_patiently retries if that may help. */
#ifndef MT_HUB_HTTP_H
#define MT_HUB_HTTP_H

#include "base/str.h"

#include <stdatomic.h>

typedef struct mt_http mt_http;

/* Receives the body of a success as it comes.  `first` is the start of a requested part (206); negative: the answer is the whole
 * file (200).  A failure ends the request. */
typedef mt_rc (*mt_http_sink)(void *user, int64_t first, const void *data, size_t n, mt_err *err);

typedef struct mt_http_request {
    const char *url;
    uint64_t first, end; /* bytes [first, end) only; end 0: everything */
    mt_http_sink sink;   /* NULL: the body is kept in the response, up to 64 MiB */
    void *user;
    const atomic_bool *stop; /* ends the request with MT_ESTOPPED; may be NULL */
} mt_http_request;

typedef struct mt_http_response {
    long status;
    mt_str body;             /* without a sink, or of an error answer (its first bytes) */
    char error_code[64];     /* X-Error-Code: GatedRepo, RepoNotFound, RevisionNotFound, EntryNotFound */
    char error_message[512]; /* X-Error-Message */
    char *next;              /* Link: <...>; rel="next" */
    double retry_after_s;    /* Retry-After, or of RateLimit; negative: not said */
    bool cut;                /* the connection failed: worth another try */
    bool unreachable;        /* it never came about: no network, no such host */
} mt_http_response;

mt_rc mt_http_open(mt_http **out, const char *endpoint, const char *token, mt_err *err);
void mt_http_close(mt_http *h); /* accepts NULL */

mt_rc mt_http_get(mt_http *h, const mt_http_request *q, mt_http_response *r, mt_err *err);
/* The same with several tries.  Without a sink only: what a sink has swallowed cannot be taken back. */
mt_rc mt_http_get_patiently(mt_http *h, const mt_http_request *q, double pause_s, mt_http_response *r, mt_err *err);
void mt_http_response_free(mt_http_response *r);

/* True if another try may help.  Then it has slept as long as the server requested, or pause_s doubled with each try, with a
 * notice. */
bool mt_http_try_again(const mt_http_response *r, mt_rc rc, int n_tries, double pause_s, const atomic_bool *stop);

#endif
