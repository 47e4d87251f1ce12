/* input.c - a step's tokens cut into micro-batches and sent to the device in one copy.
 * Per micro-batch: ids, positions, rows ordered by id (for the embedding's gradient), document starts, trained rows and their
 * targets, all counted from the micro-batch's first row. */
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

/* The host side of one micro-batch; micro's pointers are rebased to the device by the caller. */
static void fill_micro(mt_lane *lane, const mt_batch *b, const mt_continued *at, const mt_cut *c, mt_micro *m, int32_t **next)
{
    int32_t *ids = input_take(next, c->n_rows), *pos = input_take(next, c->n_rows), *order = input_take(next, c->n_rows);
    int32_t *starts = input_take(next, c->n_docs + 1), *cache_row = at ? input_take(next, c->n_docs) : NULL,
            *cache_slot = at ? input_take(next, c->n_docs) : NULL, *rows = *next;
    int64_t n_trained = 0, short_rows = mt_rope_short_rows(&lane->model->config->rope, lane->plan->job.longest);
    memcpy(ids, b->ids + c->first_row, (size_t)c->n_rows * sizeof *ids);
    sort_rows(lane, ids, order, c->n_rows);
    for (int64_t d = 0; d <= c->n_docs; d++) starts[d] = b->doc_start[c->first_doc + d] - (int32_t)c->first_row;
    for (int64_t d = 0; d < c->n_docs; d++) {
        bool far = !at && starts[d + 1] - starts[d] > short_rows;
        int32_t first = at ? at->past[c->first_doc + d] : far ? (int32_t)short_rows : 0;
        for (int32_t r = starts[d]; r < starts[d + 1]; r++) pos[r] = r - starts[d] + first;
    }
    int64_t deepest = 0;
    for (int64_t d = 0; at && d < c->n_docs; d++) {
        cache_slot[d] = at->slot[c->first_doc + d];
        cache_row[d] = cache_slot[d] * (int32_t)lane->plan->job.longest;
        deepest = mt_max_i64(deepest, pos[starts[d + 1] - 1] + 1);
    }
    for (int64_t r = 0; r < c->n_rows; r++)
        if (b->targets[c->first_row + r] != MT_IGNORE) rows[n_trained++] = (int32_t)r;
    int32_t *targets = rows + n_trained;
    for (int64_t i = 0; i < n_trained; i++) targets[i] = b->targets[c->first_row + rows[i]];
    *next = targets + n_trained;
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
}

static void rebase(mt_micro *m, const int32_t *host, const int32_t *device)
{
    const int32_t **fields[] = { &m->ids, &m->pos, &m->rows_by_id, &m->doc_start, &m->trained_rows, &m->targets };
    for (size_t i = 0; i < MT_COUNT(fields); i++) *fields[i] = device + (*fields[i] - host);
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

mt_rc mt__input_load(mt_lane *lane, mt_err *err)
{
    const mt_batch *b = lane->pass.batch;
    lane_input *in = &lane->input;
    int32_t *host = mt_memory_find(lane->memory, MT_BUF_INPUT_HOST, -1, -1),
            *device = mt_memory_find(lane->memory, MT_BUF_INPUT, -1, -1);
    int32_t *next = host;
    MT_TRY(mt_sync(in->read, err)); /* the copy of the step before, long done */
    in->n_cuts = mt_cut_micro(in->cuts, b->doc_start, b->n_docs, lane->plan->arithmetic.micro_tokens);
    in->n_passes = mt_cut_passes(in->passes, in->cuts, in->n_cuts, lane->plan->arithmetic.moe_tokens);
    for (int64_t i = 0; i < in->n_cuts; i++) {
        fill_micro(lane, b, lane->pass.at, &in->cuts[i], &in->micros[i], &next);
        rebase(&in->micros[i], host, device);
    }
    MT_TRY(mt_copy_small(lane->compute, device, host, (size_t)(next - host) * sizeof *host, MT_COPY_IN, err));
    return mt_record(lane->compute, in->read, err);
}

/* -- life ------------------------------------------------------------------------------------------ */

mt_rc mt__input_create(mt_lane *lane, mt_err *err)
{
    lane_input *in = &lane->input;
    size_t docs = (size_t)lane->plan->job.step_docs, rows = (size_t)lane->plan->arithmetic.micro_tokens;
    in->cuts = mt_calloc(docs, sizeof *in->cuts);
    in->micros = mt_calloc(docs, sizeof *in->micros);
    in->passes = mt_calloc(docs, sizeof *in->passes);
    in->sort_a = mt_calloc(rows, sizeof *in->sort_a);
    in->sort_b = mt_calloc(rows, sizeof *in->sort_b);
    if (!in->cuts || !in->micros || !in->passes || !in->sort_a || !in->sort_b) return mt_no_memory(err, "a step's tables");
    return mt_event_create(lane->dev, &in->read, "input", err);
}

void mt__input_free(mt_lane *lane)
{
    lane->dev->api->event_free(lane->input.read);
    mt_free(lane->input.cuts);
    mt_free(lane->input.micros);
    mt_free(lane->input.passes);
    mt_free(lane->input.sort_a);
    mt_free(lane->input.sort_b);
}
