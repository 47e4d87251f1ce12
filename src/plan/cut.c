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

/* The end of the longest sweep that starts with `first`. */
static int64_t longest_sweep(const mt_cut *cuts, int64_t n_cuts, int64_t first, int64_t sweep_tokens)
{
    int64_t rows = cuts[first].n_rows, end = first + 1;
    while (end < n_cuts && rows + cuts[end].n_rows <= sweep_tokens) rows += cuts[end++].n_rows;
    return end;
}

/* The fewest sweeps that take micro-batches [first, n_cuts). */
static int64_t count_sweeps(const mt_cut *cuts, int64_t n_cuts, int64_t first, int64_t sweep_tokens)
{
    int64_t n = 0;
    for (; first < n_cuts; n++) first = longest_sweep(cuts, n_cuts, first, sweep_tokens);
    return n;
}

int64_t mt_cut_sweep(const mt_cut *cuts, int64_t n_cuts, int64_t first, int64_t sweep_tokens)
{
    const mt_cut *last = &cuts[n_cuts - 1];
    int64_t most = longest_sweep(cuts, n_cuts, first, sweep_tokens), n = count_sweeps(cuts, n_cuts, first, sweep_tokens);
    int64_t share = (last->first_row + last->n_rows - cuts[first].first_row) / n, rows = cuts[first].n_rows, end = first + 1;
    /* One more micro-batch while that comes nearer to an equal share, or the rest would need another sweep. */
    while (end < most && (2 * (share - rows) > cuts[end].n_rows || count_sweeps(cuts, n_cuts, end, sweep_tokens) > n - 1)) rows += cuts[end++].n_rows;
    return end;
}
