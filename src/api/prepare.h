/* prepare.h - from the names in settings to files on disk, for the library and for the commands.
 *
 * Cheap checks come first, so that they fail before anything large is downloaded: config.json, the datasets' entries, the
 * tokenizer.  The trainer then checks the data, the plan and the disk, and requests the weights last. */
#ifndef MT_API_PREPARE_H
#define MT_API_PREPARE_H

#include "run/train.h"

/* Callbacks that find models and datasets by name. */
typedef struct mt_finder {
    /* True for what needs no hub. */
    bool (*is_here)(const char *name);
    /* *dir: the directory of a model, local or from the hub; newly allocated. needs: MT_HUB_... */
    mt_rc (*model)(const char *name, const char *revision, int needs, char **dir, mt_err *err);
    mt_feed_fetch_fn dataset;
} mt_finder;

/* Finds the settings' model and brings the needed files to disk (weights only if it does not start from scratch). */
mt_rc mt_prepare_model(mt_settings *s, const mt_finder *f, int needs, mt_err *err);
/* Prepares everything of a run except the weights. hooks->weights stays set if the trainer has to call it (it should call
 * mt_prepare_weights), and becomes NULL if the weights are there. */
mt_rc mt_prepare_run(mt_settings *s, const mt_finder *f, mt_train_hooks *hooks, mt_err *err);
/* Downloads the weights of a hub model, beside its config.json. */
mt_rc mt_prepare_weights(const mt_settings *s, const mt_finder *f, mt_err *err);

#endif
