/* clip.h - clipping by the global norm, as torch.nn.utils.clip_grad_norm_ does it.
 *
 *     scale = min(1, max_norm / (norm + 1e-6))
 *
 * The gradients are never rewritten: the scale goes into the update (mt_update_step.grad_scale).  max_norm says how much is done:
 *     0 or less     off: the norm is not needed, and units update as their gradients land
 *     positive      the norm is computed and gradients scaled by it
 *     infinite      the norm is computed and watched, nothing is scaled */
#ifndef MT_OPTIM_CLIP_H
#define MT_OPTIM_CLIP_H

#include <stdbool.h>

static inline bool mt_clip_needs_norm(double max_norm) { return max_norm > 0; }

typedef struct mt_clip {
    double norm;  /* before clipping, as reported */
    double scale; /* for the gradients: 1 when they stay as they are */
    bool finite;  /* false: some gradient is NaN or infinite; the step must be skipped, and scale is 0 */
} mt_clip;

/* From the sum of squares over all units (ops/sqnorm.h: each unit's tree, units added in order). */
mt_clip mt_clip_of(double sum_of_squares, double max_norm);

#endif
