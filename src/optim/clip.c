#include "optim/clip.h"

#include <math.h>

mt_clip mt_clip_of(double sum_of_squares, double max_norm)
{
    mt_clip c = { .norm = sqrt(sum_of_squares), .scale = 1 };
    c.finite = isfinite(c.norm);
    if (!c.finite)
        c.scale = 0;
    else if (mt_clip_needs_norm(max_norm))
        c.scale = fmin(1, max_norm / (c.norm + 1e-6));
    return c;
}
