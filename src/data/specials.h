/* specials.h - special tokens that a record's text spells out ("<|im_end|>" typed by a user).
 *
 * The tokenizer turns them into the real thing, which ends turns where no turn ends: worth a warning. */
#ifndef MT_DATA_SPECIALS_H
#define MT_DATA_SPECIALS_H

#include "base/value.h"
#include "tokenizer/tokenizer.h"

typedef struct mt_specials mt_specials;

/* The tokenizer is not needed afterwards.  Spellings of fewer than three bytes are left out. */
mt_rc mt_specials_create(mt_specials **out, const mt_tokenizer *tok, mt_err *err);
/* True if a string anywhere in the value spells one of them. */
bool mt_specials_found(const mt_specials *s, const mt_value *v);
void mt_specials_free(mt_specials *s); /* accepts NULL */

#endif
