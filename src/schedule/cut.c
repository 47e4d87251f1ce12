#include "base/mem.h"
#include "schedule/plan.h"

/* The end of the longest micro-batch that starts with document `first`. */
static int64_t longest_micro(const int32_t *doc_start, int64_t n_docs, int64_t first, int64_t micro_tokens)
{
    int64_t end = first + 1;
    while (end < n_docs && doc_start[end + 1] - doc_start[first] <= micro_tokens) end++;
    return end;
}

/* The fewest micro-batches that hold documents [first, n_docs). */
static int64_t count_micros(const int32_t *doc_start, int64_t n_docs, int64_t first, int64_t micro_tokens)
{
    int64_t n = 0;
    for (; first < n_docs; n++) first = longest_micro(doc_start, n_docs, first, micro_tokens);
    return n;
}

/* The end of the micro-batch that starts with `first`, when `left` micro-batches hold the rest. */
static int64_t equal_micro(const int32_t *doc_start, int64_t n_docs, int64_t first, int64_t left, int64_t micro_tokens)
{
    int64_t most = longest_micro(doc_start, n_docs, first, micro_tokens), end = first + 1;
    int64_t share = (doc_start[n_docs] - doc_start[first]) / left;
    /* One more document while that comes nearer to an equal share, or the rest would need another micro-batch. */
    while (end < most && (2 * share > (int64_t)doc_start[end + 1] + doc_start[end] - 2 * (int64_t)doc_start[first] ||
                          count_micros(doc_start, n_docs, end, micro_tokens) > left - 1))
        end++;
    return end;
}

int64_t mt_cut_micro(mt_cut *cuts, const int32_t *doc_start, int64_t n_docs, int64_t micro_tokens)
{
    int64_t n = count_micros(doc_start, n_docs, 0, micro_tokens);
    for (int64_t i = 0, first = 0; i < n; i++) {
        int64_t end = equal_micro(doc_start, n_docs, first, n - i, micro_tokens);
        cuts[i] = (mt_cut){
            .first_doc = first, .n_docs = end - first, .first_row = doc_start[first], .n_rows = doc_start[end] - doc_start[first]
        };
        for (; first < end; first++) cuts[i].longest = mt_max_i64(cuts[i].longest, doc_start[first + 1] - doc_start[first]);
    }
    return n;
}

/* The end of the longest sweep that starts with `first`. */
static int64_t longest_sweep(const mt_cut_pass *passes, int64_t n_passes, int64_t first, int64_t sweep_tokens)
{
    int64_t rows = passes[first].n_rows, end = first + 1;
    while (end < n_passes && rows + passes[end].n_rows <= sweep_tokens) rows += passes[end++].n_rows;
    return end;
}

/* The fewest sweeps that take passes [first, n_passes). */
static int64_t count_sweeps(const mt_cut_pass *passes, int64_t n_passes, int64_t first, int64_t sweep_tokens)
{
    int64_t n = 0;
    for (; first < n_passes; n++) first = longest_sweep(passes, n_passes, first, sweep_tokens);
    return n;
}

int64_t mt_cut_sweep(const mt_cut_pass *passes, int64_t n_passes, int64_t first, int64_t sweep_tokens)
{
    const mt_cut_pass *last = &passes[n_passes - 1];
    int64_t most = longest_sweep(passes, n_passes, first, sweep_tokens), n = count_sweeps(passes, n_passes, first, sweep_tokens);
    int64_t share = (last->first_row + last->n_rows - passes[first].first_row) / n, rows = passes[first].n_rows, end = first + 1;
    /* One more pass while that comes nearer to an equal share, or the rest would need another sweep. */
    while (end < most && (2 * (share - rows) > passes[end].n_rows || count_sweeps(passes, n_passes, end, sweep_tokens) > n - 1))
        rows += passes[end++].n_rows;
    return end;
}

/* Each micro-batch alone, then joined as passes are joined to sweeps. */
int64_t mt_cut_passes(mt_cut_pass *passes, const mt_cut *cuts, int64_t n_cuts, int64_t moe_tokens)
{
    int64_t n = 0;
    for (int64_t i = 0; i < n_cuts; i++) passes[i] = (mt_cut_pass){ i, i + 1, cuts[i].first_row, cuts[i].n_rows };
    if (moe_tokens <= 0) return n_cuts;
    for (int64_t first = 0, end; first < n_cuts; first = end) { /* n <= first, so entries are read before they are overwritten */
        end = mt_cut_sweep(passes, n_cuts, first, moe_tokens);
        int64_t rows = passes[end - 1].first_row + passes[end - 1].n_rows - passes[first].first_row;
        passes[n++] = (mt_cut_pass){ first, end, passes[first].first_row, rows };
    }
    return n;
}

int64_t mt_pass_rows_at_most(const mt_arithmetic *a) { return mt_max_i64(a->moe_tokens, a->micro_tokens); }
