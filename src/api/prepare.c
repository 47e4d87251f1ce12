#include "api/prepare.h"

#include "base/file.h"
#include "ckpt/model_files.h"
#include "hub/hub.h"

#include <string.h>

mt_rc mt_prepare_model(mt_settings *s, const mt_finder *f, int needs, mt_err *err)
{
    char *dir;
    if (s->training.from_scratch) needs &= ~MT_HUB_WEIGHTS;
    mt_rc rc = f->model(s->model.name, s->model.revision, needs, &dir, err);
    if (rc) return mt_note(err, "model.name");
    rc = mt_settings_place_model(s, dir, err);
    mt_free(dir);
    return rc;
}

mt_rc mt_prepare_weights(const mt_settings *s, const mt_finder *f, mt_err *err)
{
    char *dir = NULL;
    const char *placed = mt_settings_model_dir(s);
    /* The snapshot's own commit: the branch may have changed since config.json was downloaded. */
    mt_rc rc = f->model(s->model.name, mt_path_base(placed), MT_HUB_MODEL, &dir, err);
    if (!rc && strcmp(dir, placed) != 0)
        rc = mt_fail(err, MT_EINTERNAL, "the weights of %s came to %s and were expected in %s", s->model.name, dir, placed);
    mt_free(dir);
    return rc ? mt_note(err, "model.name") : MT_OK;
}

static mt_rc check_config(const mt_settings *s, mt_err *err)
{
    mt_config *config = NULL;
    mt_rc rc = mt_model_files_config(&config, mt_settings_model_dir(s), err);
    if (!rc) rc = mt_config_assume(&config, s->model.family, err);
    if (!rc) rc = mt_config_check_known(config, err);
    mt_config_close(config);
    return rc;
}

mt_rc mt_prepare_run(mt_settings *s, const mt_finder *f, mt_train_hooks *hooks, mt_err *err)
{
    MT_TRY(mt_prepare_model(s, f, MT_HUB_CONFIG, err));
    bool whole = f->is_here(s->model.name); /* a GGUF repository is fetched whole too: its file is its config.json */
    if (!whole && !mt_model_files_has(mt_settings_model_dir(s), "config.json")) {
        whole = true;
        MT_TRY(mt_prepare_model(s, f, MT_HUB_MODEL, err));
    }
    if (mt_model_files_exist(mt_settings_model_dir(s))) MT_TRY(check_config(s, err));
    MT_TRY(mt_data_check(s, &hooks->data, err));
    if (!whole) return mt_prepare_model(s, f, MT_HUB_CONFIG | MT_HUB_TOKENIZER, err);
    hooks->weights = NULL;
    return MT_OK;
}
