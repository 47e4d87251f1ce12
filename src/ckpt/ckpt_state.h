/* ckpt_state.h - the state of one unit in one file: NAME.hi, .lo, .m, .v for every tensor NAME (no moments for frozen ones).  By
 * tensor and not by block, so that a file does not depend on how a unit is laid out.  Only ckpt/ includes it. */
#ifndef MT_CKPT_CKPT_STATE_H
#define MT_CKPT_CKPT_STATE_H

#include "ckpt/state_io.h"

#define MT__CKPT_UNIT "unit-%03d.safetensors" /* its name */

mt_rc mt__ckpt_write_unit(const char *dir, const mt_model *m, int unit, const mt_state_io *io, mt_err *err);
mt_rc mt__ckpt_load_unit(const char *dir, const mt_model *m, int unit, const mt_state_io *io, mt_err *err);

#endif
