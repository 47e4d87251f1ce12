/* cut.h - cuts a step's documents into micro-batches, passes of experts and sweeps.
 *
 * The cuts of micro-batches and passes are arithmetic, those of sweeps placement.  plan.h includes this. */
#ifndef MT_SCHEDULE_CUT_H
#define MT_SCHEDULE_CUT_H

#include "schedule/plan.h"

typedef struct mt_cut {
    int64_t first_doc, n_docs, first_row, n_rows, longest;
} mt_cut;

/* Micro-batches [first, end) that pass experts together. */
typedef struct mt_cut_pass {
    int64_t first, end, first_row, n_rows;
} mt_cut_pass;

/* Cuts documents, in order, into micro-batches of at most micro_tokens rows (a longer document is alone): as few as possible, as
 * equal as possible.  Returns their number; cuts must have room for n_docs. */
int64_t mt_cut_micro(mt_cut *cuts, const int32_t *doc_start, int64_t n_docs, int64_t micro_tokens);
/* Joins micro-batches, in order, into passes of at most moe_tokens rows (a larger one is alone) by the same rule.  Returns their
 * number; passes must have room for n_cuts. */
int64_t mt_cut_passes(mt_cut_pass *passes, const mt_cut *cuts, int64_t n_cuts, int64_t moe_tokens);
/* The end of the sweep that starts with pass `first`: as few sweeps as possible, as equal as possible, because a short last sweep
 * would not hide staged updates. */
int64_t mt_cut_sweep(const mt_cut_pass *passes, int64_t n_passes, int64_t first, int64_t sweep_tokens);
/* Rows of the largest possible pass. */
int64_t mt_pass_rows_at_most(const mt_arithmetic *a);

#endif
