/* problems.h - all refusals of a file in one message.
 *
 *     mt__problems p = { 0 };
 *     MT_TRY(mt__problems_add(&p, read_item(..., &one), &one, err));     // continues, unless memory is short
 *     return mt__problems_end(&p, "c.yaml", err);                        // one message for all of them
 *
 * Requests that are not supported (MT_EUNSUPPORTED) come first: fixing the rest does not help while they stand. */
#ifndef MT_SETTINGS_PROBLEMS_H
#define MT_SETTINGS_PROBLEMS_H

#include "base/str.h"

typedef struct mt__problems {
    mt_str fatal, others; /* lines */
    size_t n_fatal, n_others;
    mt_rc rc; /* of the first, fatal ones first */
} mt__problems;

/* How one thing went; MT_ENOMEM comes back at once. */
mt_rc mt__problems_add(mt__problems *p, mt_rc rc, const mt_err *one, mt_err *err);
/* MT_OK if there were none.  Leaves nothing to free; so does mt__problems_drop. */
mt_rc mt__problems_end(mt__problems *p, const char *file, mt_err *err);
void mt__problems_drop(mt__problems *p);

#endif
