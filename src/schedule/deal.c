#include "schedule/deal.h"

#include "base/mem.h"
#include "model/flops.h"

#include <stdlib.h>

/* -- work ------------------------------------------------------------------------------------------ */

enum { MOST_EVEN_ROWS = 1 << 30 };

/* Multiplications of a row's products, and of a row with each earlier key; with a window, those count as a row's. */
static int64_t even_rows_of(const mt_model *m)
{
    double row = (double)mt_flops_weights(m), pair = 0;
    for (int l = 0; l < m->config->L; l++) {
        const mt_layer_kind *k = mt_layer_kind_of(m, l);
        for (int i = 0; i < k->n_work; i++) {
            const mt_work_item *w = &k->work[i];
            if (w->kind != MT_WORK_ATTENTION) continue;
            if (w->attention.window)
                row += (w->n + w->k) * (double)w->attention.window;
            else
                pair += (w->n + w->k) / 2;
        }
    }
    return pair > 0 ? mt_max_i64(1, mt_min_i64((int64_t)(row / pair), MOST_EVEN_ROWS)) : 0;
}

/* Integers, so that rounding decides nothing.  A step has less than 2^31 rows, so no sum of this overflows. */
static int64_t work_of(const mt_deal *d, int64_t rows) { return d->even_rows ? rows * (d->even_rows + rows) : rows; }

/* -- dealing --------------------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int least_work(const mt_deal *d)
{
    int best = 0;
    for (int s = 1; s < mt_deal_shares(d); s++)
        if (d->work[s] < d->work[best]) best = s;
    return best;
}

/* Each document's share is known (taken): list the documents share by share, in the batch's order. */
static void list_shares(mt_deal *d, const int32_t *doc_start, int64_t n_docs)
{
    const int n = mt_deal_shares(d);
    for (int s = 0; s <= n; s++) d->first[s] = 0;
    for (int64_t i = 0; i < n_docs; i++) d->first[d->taken[i] + 1]++;
    for (int s = 0; s < n; s++) d->first[s + 1] += d->first[s];
    for (int s = 0; s < n; s++) d->work[s] = d->first[s]; /* from here on: the position of its next document */
    for (int64_t i = 0; i < n_docs; i++) d->order[d->work[d->taken[i]]++] = (int32_t)i;
    d->n_docs = n_docs;
    d->starts[0] = 0;
    for (int64_t i = 0; i < n_docs; i++) d->starts[i + 1] = d->starts[i] + doc_start[d->order[i] + 1] - doc_start[d->order[i]];
}

void mt_deal_documents(mt_deal *d, const int32_t *doc_start, int64_t n_docs)
{
    if (mt_deal_shares(d) == 1) {
        mt_deal_none(d, doc_start, n_docs);
        return;
    }
    for (int64_t i = 0; i < n_docs; i++)
        d->keys[i] = (uint64_t)(UINT32_MAX - (uint32_t)(doc_start[i + 1] - doc_start[i])) << 32 | (uint64_t)i;
    qsort(d->keys, (size_t)n_docs, sizeof *d->keys, compare_keys);
    for (int s = 0; s < mt_deal_shares(d); s++) d->work[s] = 0;
    for (int64_t k = 0; k < n_docs; k++) {
        const int32_t i = (int32_t)(d->keys[k] & UINT32_MAX);
        d->taken[i] = least_work(d);
        d->work[d->taken[i]] += work_of(d, doc_start[i + 1] - doc_start[i]);
    }
    list_shares(d, doc_start, n_docs);
}

void mt_deal_none(mt_deal *d, const int32_t *doc_start, int64_t n_docs)
{
    for (int64_t i = 0; i < n_docs; i++) d->taken[i] = 0;
    list_shares(d, doc_start, n_docs);
}

int64_t mt_deal_most_rows(const mt_model *model, const mt_arithmetic *a, int64_t step_tokens, int64_t longest)
{
    const double even = (double)even_rows_of(model), row = even > 0 ? (even + (double)longest) / even : 1;
    const double rows = ((double)step_tokens / mt_arithmetic_parts(a) + (double)longest) * row;
    return mt_min_i64(step_tokens, (int64_t)rows + 1);
}

/* -- folding --------------------------------------------------------------------------------------- */

mt_fold_order mt_fold_order_of(const mt_deal *d, int share)
{
    const int bundle = share / d->shares;
    const int64_t begin = d->first[bundle * d->shares], end = d->first[(bundle + 1) * d->shares];
    const int of_bundle = begin == 0 && !d->rounds ? 0 : 1, own = (d->bundles > 1) + (d->shares > 1);
    const bool first = d->first[share] == begin;
    return (mt_fold_order){ .sum = first ? of_bundle : own,
                            .into = first ? -1 : of_bundle,
                            .ends_bundle = of_bundle == 1 && d->first[share + 1] == end,
                            .first_bundle = begin == 0 };
}

double mt_fold_numbers(const double *of_share, int bundles, int shares)
{
    double step = 0;
    for (int b = 0; b < bundles; b++) {
        double bundle = of_share[b * shares];
        for (int s = 1; s < shares; s++) bundle += of_share[b * shares + s];
        step = b ? step + bundle : bundle;
    }
    return step;
}

mt_loss_sum mt_fold_losses(const mt_loss_sum *of_share, int bundles, int shares)
{
    mt_loss_sum step = { 0 };
    for (int b = 0; b < bundles; b++) {
        mt_loss_sum bundle = of_share[b * shares];
        for (int s = 1; s < shares; s++) {
            bundle.loss += of_share[b * shares + s].loss;
            bundle.correct += of_share[b * shares + s].correct;
        }
        step.loss = b ? step.loss + bundle.loss : bundle.loss;
        step.correct += bundle.correct;
    }
    return step;
}

/* -- life ------------------------------------------------------------------------------------------ */

mt_rc mt_deal_init(mt_deal *d, const mt_model *model, const mt_arithmetic *a, int64_t most_docs, mt_err *err)
{
    *d = (mt_deal){ .bundles = mt_arithmetic_bundles(a),
                    .shares = mt_arithmetic_shares(a),
                    .rounds = mt_arithmetic_rounds(a),
                    .even_rows = even_rows_of(model),
                    .most_docs = most_docs };
    const size_t docs = (size_t)most_docs, n = (size_t)mt_deal_shares(d);
    d->order = mt_calloc(docs, sizeof *d->order);
    d->starts = mt_calloc(docs + 1, sizeof *d->starts);
    d->first = mt_calloc(n + 1, sizeof *d->first);
    d->keys = mt_calloc(docs, sizeof *d->keys);
    d->work = mt_calloc(n, sizeof *d->work);
    d->taken = mt_calloc(docs, sizeof *d->taken);
    if (d->order && d->starts && d->first && d->keys && d->work && d->taken) return MT_OK;
    mt_deal_deinit(d);
    return mt_no_memory(err, "dealing a step's documents");
}

void mt_deal_deinit(mt_deal *d)
{
    mt_free(d->order);
    mt_free(d->starts);
    mt_free(d->first);
    mt_free(d->keys);
    mt_free(d->work);
    mt_free(d->taken);
    *d = (mt_deal){ 0 };
}
