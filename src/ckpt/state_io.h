/* state_io.h - how a unit's state is reached by those who write or read files of them: wherever their home is, in
 * pieces.  The engine implements it (run/train_state.c); tests may too. */
#ifndef MT_CKPT_STATE_IO_H
#define MT_CKPT_STATE_IO_H

#include "base/mem.h"
#include "model/walk.h"

typedef struct mt_state_io {
    void *user;
    mt_state_form form;
    /* Numbers of a unit's state: uint16 hi, int16 lo, the optimizer's arrays as mt_state_read_type says. */
    mt_rc (*read)(void *user, mt_state_range r, void *dst, mt_err *err);
    mt_rc (*write)(void *user, mt_state_range r, const void *src, mt_err *err);
    /* False: nothing of the range is stored here, and it need not be written.  NULL: all is. */
    bool (*wants)(void *user, mt_state_range r);
    /* The unit has been read for the last time.  May be NULL. */
    void (*done)(void *user, int unit);
    /* Threads that may read (and finish), or write, at the same time, one unit each; 0: one. */
    int n_readers, n_writers;
} mt_state_io;

enum { MT_STATE_PIECE = 1 << 17 }; /* elements moved at a time */

#endif
