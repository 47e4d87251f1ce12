#include "ckpt/detect.h"

#include "ckpt/weights.h"

#include <string.h>

typedef struct nearest {
    const mt_family *family;
    size_t n_found; /* tensors it shares with the files */
    mt_err why;     /* what does not fit */
} nearest;

static size_t count_found(const mt_model *m, const mt_shards *shards)
{
    size_t n = 0;
    for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);) n += mt_weights_find(shards, &at) != NULL;
    return n;
}

/* Does the family's model use all these tensors?  *tried: the config taken for that family's. */
static mt_rc detect_fits(const mt_config *c, const mt_family *family, const mt_shards *shards, mt_config **tried, size_t *n_found,
                         mt_err *err)
{
    char notice[256];
    mt_model *m = NULL;
    MT_TRY(mt_config_as(tried, c, family, err));
    const mt_file_names names = mt_weights_names(*tried, shards, notice);
    MT_TRY(mt_model_create(&m, *tried, &(mt_model_options){ .names = &names }, err));
    *n_found = count_found(m, shards);
    mt_rc rc = mt_weights_check(m, shards, NULL, err);
    mt_model_free(m);
    return rc;
}

static mt_rc none_fits(const mt_config *c, const nearest *n, mt_err *err)
{
    if (!n->family)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "model_type \"%s\" is not known, and its tensors have no known family's names; see megatrain families",
                       c->model_type);
    return mt_fail(err, n->why.rc, "model_type \"%s\" is not known, and no known family has its tensors.  Nearest is %s: %s",
                   c->model_type, n->family->name, n->why.msg);
}

mt_rc mt_detect_family(mt_config **out, const mt_config *c, const mt_shards *shards, mt_err *err)
{
    nearest near = { 0 };
    *out = NULL;
    for (const mt_family *const *f = mt_families; *f; f++) {
        mt_err why = { 0 };
        mt_config *tried = NULL;
        size_t n_found = 0;
        mt_rc rc = detect_fits(c, *f, shards, &tried, &n_found, &why);
        if (!rc) return *out = tried, MT_OK;
        mt_config_close(tried);
        if (rc == MT_ENOMEM) return mt_fail(err, rc, "%s", why.msg);
        if (n_found > near.n_found) near = (nearest){ *f, n_found, why };
    }
    return none_fits(c, &near, err);
}
