/* prefetch.h - a source that prepares the next step in a separate thread while this one computes.
 *
 * One step is prepared ahead, no more.  A step that was not expected (after a resume) is made at once, by the caller.  An error
 * while preparing step k is returned when step k is requested. */
#ifndef MT_DATA_PREFETCH_H
#define MT_DATA_PREFETCH_H

#include "data/source.h"

/* Takes `inner` over: it is closed with the source, and left to the caller if this fails. */
mt_rc mt_prefetch_open(mt_source **out, mt_source *inner, mt_err *err);

#endif
