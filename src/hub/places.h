/* places.h - which hub, which cache, whose token: what the environment says, by the names huggingface_hub gave these variables.
 *
 *     HF_ENDPOINT                                        the hub or a mirror; https://huggingface.co
 *     HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub
 *     HF_DATASETS_CACHE, else HF_HOME/datasets           where the datasets library keeps its Arrow files
 *     HF_TOKEN, HUGGING_FACE_HUB_TOKEN, else the file HF_TOKEN_PATH, else HF_HOME/token
 *                                                        (HF_HUB_DISABLE_IMPLICIT_TOKEN: none)
 *     HF_HUB_OFFLINE, else TRANSFORMERS_OFFLINE; HF_DATASETS_OFFLINE for datasets
 *
 * In paths, "~/", $NAME and ${NAME} are expanded. */
#ifndef MT_HUB_PLACES_H
#define MT_HUB_PLACES_H

#include "base/mem.h"

typedef struct mt_hub_places {
    char *endpoint; /* without a slash at its end */
    char *cache;
    char *datasets_cache;
    char *token;                            /* NULL: none */
    const char *offline, *datasets_offline; /* the variable that forbids the network; NULL: it may be used */
} mt_hub_places;

mt_rc mt_hub_places_init(mt_hub_places *p, mt_err *err);
void mt_hub_places_deinit(mt_hub_places *p); /* accepts a zeroed one */

#endif
