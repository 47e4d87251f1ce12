/* objective_cross_entropy.c - each row's cross-entropy, with label smoothing as transformers has it. */
#include "model/objective.h"

static mt_rc cross_entropy_rows(const mt_objective_rows *b, mt_cross_entropy *a, mt_err *err)
{
    (void)err;
    a->smoothing = b->use->smoothing;
    return MT_OK;
}

const mt_objective mt_objective_cross_entropy = { .rows = cross_entropy_rows };
