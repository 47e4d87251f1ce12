/* input.c - deals a step's documents to shares, cuts those into micro-batches, and sends everything to the device in one copy.
 * Per micro-batch: ids, positions, rows ordered by id (for the embedding's gradient), document starts, trained rows, their targets
 * and in training their columns, all counted from the micro-batch's first row. */
#include "engine/lane_internal.h"

#include <string.h>

/* Rows of a micro-batch by (id, row): a radix sort, stable, without allocation. */
static void sort_rows(mt_lane *lane, const int32_t *ids, int32_t *rows, int64_t n)
{
    int32_t *from = lane->input.sort_a, *to = lane->input.sort_b;
    for (int64_t i = 0; i < n; i++) from[i] = (int32_t)i;
    for (int shift = 0; shift < 32 && (lane->model->config->V - 1) >> shift; shift += 8) {
        int64_t count[257] = { 0 };
        for (int64_t i = 0; i < n; i++) count[(ids[from[i]] >> shift & 255) + 1]++;
        for (int b = 0; b < 256; b++) count[b + 1] += count[b];
        for (int64_t i = 0; i < n; i++) to[count[ids[from[i]] >> shift & 255]++] = from[i];
        int32_t *swap = from;
        from = to;
        to = swap;
    }
    memcpy(rows, from, (size_t)n * sizeof *rows);
}

static int32_t *input_take(int32_t **next, int64_t n)
{
    int32_t *here = *next;
    *next += n;
    return here;
}

/* The batch's rows of a document; documents are numbered in the order of the deal. */
static int64_t batch_row(const mt_lane *lane, const mt_batch *b, int64_t doc)
{
    return b->doc_start[lane->input.deal.order[doc]];
}

/* Ids and targets of a micro-batch's rows, document by document.  Returns how many rows are trained. */
static int64_t gather_rows(const mt_lane *lane, const mt_batch *b, const mt_cut *c, const int32_t *starts, int32_t *ids,
                           int32_t *rows)
{
    int64_t n_trained = 0;
    for (int64_t d = 0; d < c->n_docs; d++) {
        const int64_t from = batch_row(lane, b, c->first_doc + d), n = starts[d + 1] - starts[d];
        memcpy(ids + starts[d], b->ids + from, (size_t)n * sizeof *ids);
        for (int64_t r = 0; r < n; r++)
            if (b->targets[from + r] != MT_IGNORE) rows[n_trained++] = starts[d] + (int32_t)r;
    }
    return n_trained;
}

static void gather_targets(const mt_lane *lane, const mt_batch *b, const mt_cut *c, const int32_t *starts, int32_t *targets)
{
    for (int64_t d = 0; d < c->n_docs; d++) {
        const int64_t from = batch_row(lane, b, c->first_doc + d);
        for (int64_t r = 0; r < starts[d + 1] - starts[d]; r++)
            if (b->targets[from + r] != MT_IGNORE) *targets++ = b->targets[from + r];
    }
}

/* A column's number for each trained row. */
static void gather_column(const mt_lane *lane, const mt_batch *b, const mt_cut *c, const int32_t *starts, mt_column column,
                          float *to)
{
    const mt_column_info *info = &mt_columns[column];
    const float *numbers = b->columns[column];
    for (int64_t d = 0; d < c->n_docs; d++) {
        const int64_t doc = lane->input.deal.order[c->first_doc + d], from = b->doc_start[doc];
        for (int64_t r = from; r < from + starts[d + 1] - starts[d]; r++)
            if (b->targets[r] != MT_IGNORE) *to++ = numbers ? numbers[info->per_row ? r : doc] : info->fallback;
    }
}

/* The host side of one micro-batch; micro's pointers are rebased to the device by the caller. */
static void fill_micro(mt_lane *lane, const mt_batch *b, const mt_continued *at, const mt_cut *c, mt_micro *m, int32_t **next)
{
    int32_t *ids = input_take(next, c->n_rows), *pos = input_take(next, c->n_rows), *order = input_take(next, c->n_rows);
    int32_t *starts = input_take(next, c->n_docs + 1), *cache_row = at ? input_take(next, c->n_docs) : NULL,
            *cache_slot = at ? input_take(next, c->n_docs) : NULL, *rows = *next;
    const mt_job *job = &lane->plan->job;
    const int64_t short_rows = mt_rope_short_rows(lane->model->config, at ? mt_job_cache_rows(job) : mt_job_positions(job));
    for (int64_t d = 0; d <= c->n_docs; d++) starts[d] = lane->input.deal.starts[c->first_doc + d] - (int32_t)c->first_row;
    const int64_t n_trained = gather_rows(lane, b, c, starts, ids, rows);
    sort_rows(lane, ids, order, c->n_rows);
    for (int64_t d = 0; d < c->n_docs; d++) {
        bool far = !at && starts[d + 1] - starts[d] > short_rows;
        int32_t first = far ? (int32_t)short_rows : 0;
        if (at) first = at->past[c->first_doc + d];
        for (int32_t r = starts[d]; r < starts[d + 1]; r++) pos[r] = r - starts[d] + first;
    }
    int64_t deepest = 0;
    for (int64_t d = 0; at && d < c->n_docs; d++) {
        cache_slot[d] = at->slot[c->first_doc + d];
        cache_row[d] = cache_slot[d] * (int32_t)mt_job_cache_rows(job);
        deepest = mt_max_i64(deepest, pos[starts[d + 1] - 1] + 1);
    }
    int32_t *targets = rows + n_trained;
    gather_targets(lane, b, c, starts, targets);
    *next = targets + n_trained;
    const float *columns[MT_COLUMNS] = { NULL };
    for (mt_column k = 0; k < MT_COLUMNS && lane->pass.mode == MT_MODE_TRAIN; k++) {
        if (!(job->objective.columns & MT_COLUMN_BIT(k))) continue;
        float *to = (float *)input_take(next, n_trained);
        gather_column(lane, b, c, starts, k, to);
        columns[k] = to;
    }
    *m = (mt_micro){ .n = c->n_rows,
                     .n_docs = c->n_docs,
                     .longest = c->longest,
                     .n_trained = n_trained,
                     .ids = ids,
                     .pos = pos,
                     .rope_row = at ? short_rows : 0,
                     .rows_by_id = order,
                     .doc_start = starts,
                     .host_start = starts,
                     .trained_rows = rows,
                     .targets = targets,
                     .deepest = deepest,
                     .cache_row = cache_row,
                     .cache_slot = cache_slot };
    memcpy(m->columns, columns, sizeof columns);
}

static void rebase(mt_micro *m, const int32_t *host, const int32_t *device)
{
    const int32_t **fields[] = { &m->ids, &m->pos, &m->rows_by_id, &m->doc_start, &m->trained_rows, &m->targets };
    for (size_t i = 0; i < MT_COUNT(fields); i++) *fields[i] = device + (*fields[i] - host);
    for (int c = 0; c < MT_COLUMNS; c++)
        if (m->columns[c]) m->columns[c] = (const float *)device + (m->columns[c] - (const float *)host);
    if (!m->cache_row) return;
    m->cache_row = device + (m->cache_row - host);
    m->cache_slot = device + (m->cache_slot - host);
}

mt_rc mt_lane_check(const mt_lane *lane, const mt_batch *b, mt_err *err)
{
    const mt_job *j = &lane->plan->job;
    int64_t longest = mt_min_i64(j->longest, lane->plan->arithmetic.micro_tokens);
    if (b->n_tokens < 1) return mt_fail(err, MT_EINVAL, "a step without tokens");
    if (b->n_tokens > j->step_tokens || b->n_docs > j->step_docs || b->longest > longest)
        return mt_fail(
            err, MT_ERANGE,
            "a step of %lld tokens in %lld documents (longest %lld); the plan was made for %lld in %lld (longest %lld)",
            (long long)b->n_tokens, (long long)b->n_docs, (long long)b->longest, (long long)j->step_tokens,
            (long long)j->step_docs, (long long)longest);
    return MT_OK;
}

/* Neither micro-batches nor passes cross shares. */
static void cut_share(mt_lane *lane, int share)
{
    lane_input *in = &lane->input;
    const mt_arithmetic *a = &lane->plan->arithmetic;
    const int64_t first = in->deal.first[share], n_docs = mt_deal_docs(&in->deal, share), before = in->n_cuts;
    if (!n_docs) return;
    mt_cut *cuts = in->cuts + before;
    mt_cut_pass *passes = in->passes + in->n_passes;
    const int64_t n = mt_cut_micro(cuts, in->deal.starts + first, n_docs, a->micro_tokens),
                  n_passes = mt_cut_passes(passes, cuts, n, a->moe_tokens);
    for (int64_t i = 0; i < n; i++) {
        cuts[i].first_doc += first;
        in->share[before + i] = share;
    }
    for (int64_t i = 0; i < n_passes; i++) {
        passes[i].first += before;
        passes[i].end += before;
    }
    in->n_cuts += n;
    in->n_passes += n_passes;
}

/* Sweeps of the passes from `first` on. */
static void cut_sweeps(mt_lane *lane, int64_t first)
{
    lane_input *in = &lane->input;
    while (first < in->n_passes) {
        first = mt_cut_sweep(in->passes, in->n_passes, first, lane->plan->place.sweep_tokens);
        in->sweep_end[in->n_sweeps] = first;
        in->ends_part[in->n_sweeps++] = first == in->n_passes;
    }
}

/* Only passes that sum are dealt.  With several lanes or machines a sweep does not cross shares, because each share's sums leave
 * separately. */
static void cut_batch(mt_lane *lane)
{
    lane_input *in = &lane->input;
    const mt_batch *b = lane->pass.batch;
    const bool sums = lane->pass.mode == MT_MODE_TRAIN || lane->pass.mode == MT_MODE_EVALUATE;
    const bool by_shares = sums && mt_plan_by_shares(lane->plan);
    const int rounds = by_shares ? mt_plan_rounds(lane->plan) : mt_deal_shares(&in->deal);
    (sums ? mt_deal_documents : mt_deal_none)(&in->deal, b->doc_start, b->n_docs);
    in->n_cuts = in->n_passes = in->n_sweeps = 0;
    for (int round = 0; round < rounds; round++) {
        const int64_t before = in->n_passes;
        const int share = by_shares ? mt_plan_share(lane->plan, round, lane->index) : round;
        if (share >= 0) cut_share(lane, share);
        if (by_shares) cut_sweeps(lane, before);
    }
    if (!by_shares) cut_sweeps(lane, 0);
}

mt_rc mt__input_load(mt_lane *lane, mt_err *err)
{
    const mt_batch *b = lane->pass.batch;
    lane_input *in = &lane->input;
    int32_t *host = mt_memory_find(lane->memory, MT_BUF_INPUT_HOST, -1, -1),
            *device = mt_memory_find(lane->memory, MT_BUF_INPUT, -1, -1);
    int32_t *next = host;
    MT_TRY(mt_sync(in->read, err)); /* the copy of the previous step, long done */
    cut_batch(lane);
    for (int64_t i = 0; i < in->n_cuts; i++) {
        fill_micro(lane, b, lane->pass.at, &in->cuts[i], &in->micros[i], &next);
        rebase(&in->micros[i], host, device);
    }
    if (next == host) return MT_OK; /* this lane has no share of this step */
    MT_TRY(mt_copy_small(lane->compute, device, host, (size_t)(next - host) * sizeof *host, MT_COPY_IN, err));
    return mt_record(lane->compute, in->read, err);
}

/* -- life ------------------------------------------------------------------------------------------ */

mt_rc mt__input_create(mt_lane *lane, mt_err *err)
{
    lane_input *in = &lane->input;
    size_t docs = (size_t)lane->plan->job.step_docs, rows = (size_t)lane->plan->arithmetic.micro_tokens;
    MT_TRY(mt_deal_init(&in->deal, lane->model, &lane->plan->arithmetic, lane->plan->job.step_docs, err));
    in->cuts = mt_calloc(docs, sizeof *in->cuts);
    in->share = mt_calloc(docs, sizeof *in->share);
    in->sweep_end = mt_calloc(docs, sizeof *in->sweep_end);
    in->ends_part = mt_calloc(docs, sizeof *in->ends_part);
    in->micros = mt_calloc(docs, sizeof *in->micros);
    in->passes = mt_calloc(docs, sizeof *in->passes);
    in->sort_a = mt_calloc(rows, sizeof *in->sort_a);
    in->sort_b = mt_calloc(rows, sizeof *in->sort_b);
    if (!in->cuts || !in->share || !in->sweep_end || !in->ends_part || !in->micros || !in->passes || !in->sort_a || !in->sort_b)
        return mt_no_memory(err, "a step's tables");
    return mt_event_create(lane->dev, &in->read, "input", err);
}

void mt__input_free(mt_lane *lane)
{
    lane->dev->api->event_free(lane->input.read);
    mt_deal_deinit(&lane->input.deal);
    mt_free(lane->input.cuts);
    mt_free(lane->input.share);
    mt_free(lane->input.sweep_end);
    mt_free(lane->input.ends_part);
    mt_free(lane->input.micros);
    mt_free(lane->input.passes);
    mt_free(lane->input.sort_a);
    mt_free(lane->input.sort_b);
}
