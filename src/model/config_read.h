/* config_read.h - what the readers of config.json share.  Only model/config*.c includes it. */
#ifndef MT_MODEL_CONFIG_READ_H
#define MT_MODEL_CONFIG_READ_H

#include "model/family.h"

typedef struct mt__config_reader {
    const mt_value *doc; /* the part about text */
    const mt_value *top; /* the whole file; the same unless it is of a multimodal model */
    const char *path;
    const mt_family *as; /* the family is given, not looked for */
    bool as_told;        /* by the user */
    bool guessed;        /* neither given nor identified by type or architecture */
    mt_config *c;
    mt_err *err;
} mt__config_reader;

/* Several spellings of a key, the usual one first. */
#define MT__NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })
/* The first of them that is there; NULL: none. */
const char *mt__config_spelling(const mt_value *doc, const char *const *names);
/* The one that the family's class reads, of its own_keys or else the usual one; NULL: it is not there.  Others are ignored, as
 * transformers ignores them, unless the type is unknown. */
const char *mt__config_own_spelling(const mt__config_reader *r, const char *const *names);
/* The number there. */
mt_rc mt__config_own_number(const mt__config_reader *r, const char *const *names, double fallback, double *out);
/* Records what is assumed, so that it is shown. */
mt_rc mt__config_assume(mt__config_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* -- config_layers.c -- */
mt_rc mt__config_read_windows(mt__config_reader *r);
mt_rc mt__config_read_rope(mt__config_reader *r); /* needs the windows */

/* -- config_latent.c -- */
/* Refuses latent attention, or a sparse indexer before it, that no family here computes; f: as far as it is known. */
mt_rc mt__config_refuse_latent(mt__config_reader *r, const mt_family *f);
mt_rc mt__config_read_latent(mt__config_reader *r); /* needs H and K; sets Dh */
/* yarn's share in the scores' scale. */
void mt__config_latent_scale(mt_config *c); /* needs the rope settings */

/* -- config_experts.c -- */
/* The key that says how many experts there are; NULL: none does. */
const char *mt__config_experts_key(const mt_value *doc);
mt_rc mt__config_read_experts(mt__config_reader *r); /* into the layers' E, T, I, Is */

#endif
