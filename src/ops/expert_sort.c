/* expert_sort.c - pairs by expert: count, add up, place, each in the order of the pairs. */
#include "ops/ops_cpu.h"

#include <string.h>

/* A GPU counts by blocks of pairs: a count per block and expert, and one more per expert. */
size_t mt_expert_sort_scratch(const mt_expert_sort *a)
{
    int64_t blocks = (a->N * a->T + MT_SORT_PAIRS - 1) / MT_SORT_PAIRS;
    return (size_t)((blocks + 1) * a->E) * sizeof(int32_t);
}

mt_rc mt__expert_sort_run(mt_pool *pool, const mt_expert_sort *a, mt_err *err)
{
    (void)pool, (void)err;
    int32_t *next = a->scratch;
    memset(a->offsets, 0, (size_t)(a->E + 1) * sizeof *a->offsets);
    for (int64_t p = 0; p < a->N * a->T; p++) a->offsets[a->experts[p] + 1]++;
    for (int64_t e = 0; e < a->E; e++) {
        if (a->loads) a->loads[e] += a->offsets[e + 1];
        next[e] = a->offsets[e];
        a->offsets[e + 1] += a->offsets[e];
    }
    for (int64_t p = 0; p < a->N * a->T; p++) {
        int32_t to = next[a->experts[p]]++;
        a->order[to] = (int32_t)p;
        a->rows[to] = (int32_t)(p / a->T);
        a->place[p] = to;
    }
    return MT_OK;
}
