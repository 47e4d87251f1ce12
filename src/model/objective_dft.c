/* objective_dft.c - dynamic fine-tuning: each row's cross-entropy times the probability of its target, which the gradient takes for a
 * constant (arXiv:2508.05629; LLaMA-Factory's use_dft_loss). */
#include "model/objective.h"

static mt_rc dft_rows(const mt_objective_rows *b, mt_cross_entropy *a, mt_err *err)
{
    (void)b, (void)err;
    a->by_probability = true;
    return MT_OK;
}

const mt_objective mt_objective_dft = { .rows = dft_rows };
