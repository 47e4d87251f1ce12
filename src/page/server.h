/* server.h - the page of one run on loopback, for as long as it is open.
 *
 * A separate thread reads the run's files on request and shares nothing with the run.  It answers GET of the page ("/KEY/") and
 * of its data ("/KEY/data?from=N") and nothing else, only to this machine (and to names of this machine, so that no other web
 * page can reach it through its own name).  KEY is 128 random bits: other users of the machine can reach the port, but not the
 * page.  Slow, silent and malformed clients are dropped; they never hold up others. */
#ifndef MT_PAGE_SERVER_H
#define MT_PAGE_SERVER_H

#include "page/run_view.h"

enum { MT_SERVER_PORT = 8088 }; /* if it is taken, the next free one is used */

typedef struct mt_server mt_server;

#define MT_SERVER_FOLDER ".dashboard" /* in the run's directory, mode 0700 */
#define MT_SERVER_FILE   ".dashboard/url"

/* The directory need not hold a run yet.  A key that an earlier server of this run has kept there is used again. */
mt_rc mt_server_open(mt_server **out, const mt_run_at *run, int port, mt_err *err);
int mt_server_port(const mt_server *s);
/* "http://127.0.0.1:8088/KEY/" */
const char *mt_server_url(const mt_server *s);
/* Keep the address in MT_SERVER_FILE of the run's directory, for the run's owner, who alone may read that folder. */
mt_rc mt_server_keep(const mt_server *s, mt_err *err);
void mt_server_close(mt_server *s); /* accepts NULL */

#endif
