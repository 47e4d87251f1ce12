/* server.h - the page of one run on loopback, for as long as it is open.
 *
 * One thread of its own, which reads the run's files when asked and shares nothing with the run.  It answers GET of the page
 * ("/") and of its data ("/data?from=N") and nothing else, only to this machine (and to names of this machine, so that no web
 * page elsewhere can reach it through a name of its own).  Slow, silent and malformed clients are dropped; they never hold up
 * others. */
#ifndef MT_PAGE_SERVER_H
#define MT_PAGE_SERVER_H

#include "base/err.h"

enum { MT_SERVER_PORT = 8088 }; /* where people look first: when it is taken, the next free one serves as well */

typedef struct mt_server mt_server;

/* The directory need not hold a run yet. */
mt_rc mt_server_open(mt_server **out, const char *dir, int port, mt_err *err);
int mt_server_port(const mt_server *s);
void mt_server_close(mt_server *s); /* accepts NULL */

#endif
