/* stop_ids.h - the tokens that end a text, as a model directory names them. */
#ifndef MT_MODEL_STOP_IDS_H
#define MT_MODEL_STOP_IDS_H

#include "base/mem.h"

enum { MT_STOP_IDS_MAX = 16 };

typedef struct mt_stop_ids {
    int32_t ids[MT_STOP_IDS_MAX];
    size_t n;
} mt_stop_ids;

/* eos_token_id of a generation_config.json or config.json, one number or a list.  Adds to out; `what` names the text in
 * messages. */
mt_rc mt_stop_ids_parse(mt_stop_ids *out, const char *text, size_t n, const char *what, mt_err *err);
/* Once each; negative ids (a missing role) and ids beyond the maximum are omitted. */
void mt_stop_ids_add(mt_stop_ids *out, int32_t id);

#endif
