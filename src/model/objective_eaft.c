/* objective_eaft.c - entropy-adaptive fine-tuning: each row's cross-entropy times (H / 3)^alpha, H the entropy of its 20 largest
 * logits, which the gradient takes for a constant (LLaMA-Factory's use_eaft_loss). */
#include "model/layer.h"
#include "model/objective.h"

static mt_rc eaft_rows(const mt_objective_rows *b, mt_cross_entropy *a, mt_err *err)
{
    const mt_entropy_factor factor = {
        .N = a->N, .V = a->V, .logits = a->logits, .softcap = a->softcap, .alpha = b->use->alpha, .factors = a->row_loss
    };
    a->factors = a->row_loss; /* a row's factor is read before its loss is written there */
    return b->r->ops->entropy_factor(b->r->stream, &factor, err);
}

const mt_objective mt_objective_eaft = { .rows = eaft_rows };
