/* prepare.h - from the names in settings to files on disk, for the library and for the commands.
 *
 * Cheap checks come first, so that they fail before anything large is fetched: config.json, the datasets' entries, the tokenizer.
 * The trainer then checks the data, the plan and the disk, and requests the weights last. */
#ifndef MT_API_PREPARE_H
#define MT_API_PREPARE_H

#include "run/train.h"

/* How models and datasets that are named are found. */
typedef struct mt_finder {
    /* True for what needs no hub. */
    bool (*is_here)(const char *name);
    /* *dir: the directory of a model that is here or on the hub; newly allocated.  needs: MT_HUB_... */
    mt_rc (*model)(const char *name, const char *revision, int needs, char **dir, mt_err *err);
    mt_feed_fetch_fn dataset;
} mt_finder;

/* The settings' model is found; what of it is needed (weights only unless it starts from scratch) is on disk. */
mt_rc mt_prepare_model(mt_settings *s, const mt_finder *f, int needs, mt_err *err);
/* Everything of a run but the weights.  hooks->weights stays where the trainer has to call it (it should call
 * mt_prepare_weights), and becomes NULL where they are here. */
mt_rc mt_prepare_run(mt_settings *s, const mt_finder *f, mt_train_hooks *hooks, mt_err *err);
/* The weights of a model of the hub, beside the config.json that is there. */
mt_rc mt_prepare_weights(const mt_settings *s, const mt_finder *f, mt_err *err);

#endif
