/* ckpt_state.h - the state of a layer, of the embedding or of the head in one file: NAME.hi, .lo and the optimizer's arrays (AdamW: .m,
 * .v) for every tensor NAME, no arrays for frozen ones.  By tensor and not by block, so that a file does not depend on how units are laid out, nor on how
 * many units a layer with experts is cut into.  Only ckpt/ includes it. */
#ifndef MT_CKPT_CKPT_STATE_H
#define MT_CKPT_CKPT_STATE_H

#include "ckpt/state_io.h"

#define MT__CKPT_UNIT "unit-%03d.safetensors" /* its name, by its number */

int mt__ckpt_files(const mt_model *m);
mt_layer_units mt__ckpt_file_units(const mt_model *m, int file);
/* Bytes of its numbers; form: as mt_state_io's. */
uint64_t mt__ckpt_file_bytes(const mt_model *m, int file, mt_state_form form);

/* Writing: every unit of the file, in any order. */
typedef struct mt__ckpt_file mt__ckpt_file;
mt_rc mt__ckpt_file_create(mt__ckpt_file **out, const char *dir, const mt_model *m, int file, const mt_state_io *io, mt_err *err);
mt_rc mt__ckpt_file_put(mt__ckpt_file *f, int unit, mt_err *err);
mt_rc mt__ckpt_file_finish(mt__ckpt_file *f, mt_err *err);
void mt__ckpt_file_free(mt__ckpt_file *f); /* accepts NULL */
/* All of that. */
mt_rc mt__ckpt_write_file(const char *dir, const mt_model *m, int file, const mt_state_io *io, mt_err *err);

mt_rc mt__ckpt_load_file(const char *dir, const mt_model *m, int file, const mt_state_io *io, mt_err *err);

#endif
