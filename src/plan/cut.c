#include "plan/plan.h"

int64_t mt_cut_micro(mt_cut *cuts, const int32_t *doc_start, int64_t n_docs, int64_t micro_tokens)
{
    int64_t n = 0;
    for (int64_t d = 0; d < n_docs; d++) {
        int64_t len = doc_start[d + 1] - doc_start[d];
        if (n == 0 || cuts[n - 1].n_rows + len > micro_tokens) cuts[n++] = (mt_cut){ .first_doc = d, .first_row = doc_start[d] };
        mt_cut *c = &cuts[n - 1];
        c->n_docs++;
        c->n_rows += len;
        if (len > c->longest) c->longest = len;
    }
    return n;
}

int64_t mt_cut_sweep(const mt_cut *cuts, int64_t n_cuts, int64_t first, int64_t sweep_tokens)
{
    int64_t rows = cuts[first].n_rows, end = first + 1;
    while (end < n_cuts && rows + cuts[end].n_rows <= sweep_tokens) rows += cuts[end++].n_rows;
    return end;
}
