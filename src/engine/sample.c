#include "engine/sample.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

mt_rc mt_sampling_check(const mt_sampling *s, mt_err *err)
{
    if (!(s->temperature >= 0 && isfinite(s->temperature)))
        return mt_fail(err, MT_ERANGE, "a temperature of %g; it must be 0 (the likeliest token) or more", s->temperature);
    if (!(s->top_p >= 0 && s->top_p <= 1)) return mt_fail(err, MT_ERANGE, "top_p of %g; it must be between 0 and 1", s->top_p);
    if (s->top_k < 0) return mt_fail(err, MT_ERANGE, "top_k of %lld; it must be 0 (no limit) or more", (long long)s->top_k);
    return MT_OK;
}

static int32_t likeliest(const float *logits, int64_t V)
{
    int64_t best = 0;
    for (int64_t i = 1; i < V; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* Likelier first, then the lower id: a total order, so the result does not depend on the sorting. */
static bool before(const mt_candidate *a, const mt_candidate *b) { return a->p != b->p ? a->p > b->p : a->id < b->id; }

static int compare(const void *x, const void *y)
{
    const mt_candidate *a = x, *b = y;
    return before(a, b) ? -1 : before(b, a);
}

/* heap[0] is the last in order of heap[0..n); sinks a new root into place. */
static void sink(mt_candidate *heap, int64_t n, int64_t at)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(&heap[child], &heap[child + 1])) child++;
        if (!before(&heap[at], &heap[child])) return;
        mt_candidate swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* Moves the first k of n in order to the front, unsorted. */
static void select_first(mt_candidate *c, int64_t n, int64_t k)
{
    for (int64_t i = k / 2 - 1; i >= 0; i--) sink(c, k, i);
    for (int64_t i = k; i < n; i++)
        if (before(&c[i], &c[0])) {
            c[0] = c[i];
            sink(c, k, 0);
        }
}

static double sum_of(const mt_candidate *c, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)c[i].p;
    return sum;
}

/* Drops tokens so unlikely that all n of them together could not affect top_p: this makes sorting cheap. */
static int64_t drop_unlikely(mt_candidate *c, int64_t n, double least)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if ((double)c[i].p >= least) c[kept++] = c[i];
    return kept;
}

int64_t mt_sample_candidates(const mt_sampling *s, const float *logits, int64_t V, mt_candidate *c)
{
    float top = logits[likeliest(logits, V)];
    int64_t n = V;
    bool by_p = s->top_p > 0 && s->top_p < 1;
    for (int64_t i = 0; i < V; i++) c[i] = (mt_candidate){ (float)exp((double)(logits[i] - top) / s->temperature), (int32_t)i };
    if (s->top_k > 0 && s->top_k < V) {
        n = s->top_k;
        select_first(c, V, n);
    }
    double sum = by_p ? sum_of(c, n) : 0;
    if (by_p) n = drop_unlikely(c, n, (1 - s->top_p) * sum / (double)n);
    if (by_p || s->top_k > 0) qsort(c, (size_t)n, sizeof *c, compare);
    if (!by_p) return n;
    double reached = 0;
    for (int64_t i = 0; i < n; i++)
        if ((reached += (double)c[i].p) >= s->top_p * sum) return i + 1;
    return n;
}

int32_t mt_sample_token(const mt_sampling *s, const float *logits, int64_t V, uint64_t stream, uint64_t i, mt_candidate *space)
{
    if (s->temperature == 0) return likeliest(logits, V);
    int64_t n = mt_sample_candidates(s, logits, V, space);
    double left = mt_rng_uniform(s->seed, stream, i) * sum_of(space, n);
    for (int64_t j = 0; j < n; j++)
        if ((left -= (double)space[j].p) < 0) return space[j].id;
    return space[0].id; /* because of rounding, or logits that are NaN */
}
