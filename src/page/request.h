/* request.h - the bytes of one request in, the bytes of its answer out: server.c without its sockets.  Inside src/page only. */
#ifndef MT_PAGE_REQUEST_H
#define MT_PAGE_REQUEST_H

#include "page/run_view.h"

enum {
    MT__MAX_REQUEST = 8192, /* bytes; no browser sends more */
    MT__KEY_BYTES = 16,
    MT__KEY_DIGITS = 2 * MT__KEY_BYTES,
};

typedef struct mt__asked {
    mt_run_at run;
    const char *key; /* MT__KEY_DIGITS characters */
} mt__asked;

/* `request` holds the n bytes received so far (at most MT__MAX_REQUEST), followed by a NUL.  The answer stays empty until the
 * request is complete, or until it is clear that it never will be a valid one. */
void mt__request_answer(const mt__asked *of, const char *request, size_t n, mt_str *answer);

#endif
