#include "data/source_tokens.h"

#include "base/log.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_SPLIT = 1, STREAM_SHUFFLE = 1 << 20 }; /* streams of random numbers; shuffling takes one an epoch */

typedef struct tokens {
    mt_source base;
    mt_source_tokens_options o;
    mt_batch rows;         /* all of them, as read */
    int32_t *labels;       /* [n_tokens] as mt_batch_add wants them: row i's label is token i */
    int64_t *train, *eval; /* row numbers */
    int64_t n_train, n_eval;
    int64_t *order; /* [n_train] of `epoch` */
    int64_t epoch;  /* -1: none yet */
    mt_source_info info;
} tokens;

static void close_tokens(mt_source *s)
{
    tokens *t = (tokens *)s;
    mt_batch_free(&t->rows);
    mt_free(t->labels);
    mt_free(t->train);
    mt_free(t->eval);
    mt_free(t->order);
    mt_free(t);
}

/* The first n of a seeded permutation, in place. */
static void shuffle(int64_t *items, int64_t n, uint64_t seed, uint64_t stream)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)mt_rng_below(seed, stream, (uint64_t)i, (uint64_t)i + 1), x = items[i];
        items[i] = items[j];
        items[j] = x;
    }
}

static int64_t length_of(const tokens *t, int64_t row)
{
    int64_t n = t->rows.doc_start[row + 1] - t->rows.doc_start[row];
    return t->o.max_seq_len ? mt_min_i64(n, t->o.max_seq_len) : n;
}

static mt_rc add_row(const tokens *t, int64_t row, mt_batch *out, mt_err *err)
{
    int32_t first = t->rows.doc_start[row];
    MT_TRY(mt_batch_add(out, t->rows.ids + first, t->labels + first, length_of(t, row), t->o.vocab, err));
    mt_batch_set_from(out, &t->rows, row);
    return MT_OK;
}

/* -- the source's functions ------------------------------------------------------------------------ */

static void info(mt_source *s, mt_source_info *out) { *out = ((tokens *)s)->info; }

static void order_epoch(tokens *t, int64_t epoch)
{
    if (t->epoch == epoch) return;
    memcpy(t->order, t->train, (size_t)t->n_train * sizeof *t->order);
    if (t->o.shuffle) shuffle(t->order, t->n_train, t->o.seed, STREAM_SHUFFLE + (uint64_t)epoch);
    t->epoch = epoch;
}

static mt_rc source_tokens_step(mt_source *s, int64_t number, mt_batch *out, mt_err *err)
{
    tokens *t = (tokens *)s;
    int64_t first = number % t->info.steps_per_epoch * t->o.samples_per_step,
            end = mt_min_i64(first + t->o.samples_per_step, t->n_train);
    order_epoch(t, number / t->info.steps_per_epoch);
    mt_batch_clear(out);
    mt_batch_ask(out, t->rows.asked);
    for (int64_t i = first; i < end; i++) MT_TRY(add_row(t, t->order[i], out, err));
    return MT_OK;
}

static mt_rc eval(mt_source *s, int64_t index, mt_batch *out, mt_err *err)
{
    const tokens *t = (const tokens *)s;
    int64_t first = index * t->o.samples_per_step, end = mt_min_i64(first + t->o.samples_per_step, t->n_eval);
    mt_batch_clear(out);
    for (int64_t i = first; i < end; i++) MT_TRY(add_row(t, t->eval[i], out, err));
    return MT_OK;
}

static const mt_source_api api = { .info = info, .step = source_tokens_step, .eval = eval, .close = close_tokens };

/* -- opening --------------------------------------------------------------------------------------- */

static mt_rc read_rows(tokens *t, mt_err *err)
{
    mt_batch *r = &t->rows;
    int64_t n_cut = 0;
    MT_TRY(mt_batch_read_json(r, t->o.path, t->o.vocab, err));
    if (t->o.max_samples && t->o.max_samples < r->n_docs) {
        r->n_docs = t->o.max_samples;
        r->n_tokens = r->doc_start[r->n_docs];
    }
    t->labels = mt_calloc((size_t)r->n_tokens, sizeof *t->labels);
    if (!t->labels) return mt_no_memory(err, "the rows of %s", t->o.path);
    for (int64_t d = 0; d < r->n_docs; d++) {
        int32_t first = r->doc_start[d], end = r->doc_start[d + 1];
        t->labels[first] = MT_IGNORE;
        for (int32_t i = first + 1; i < end; i++) t->labels[i] = r->targets[i - 1];
        n_cut += end - first > length_of(t, d);
    }
    if (n_cut)
        mt_info("%s: %lld of %lld rows are longer than max_seq_len and are cut to %lld tokens", t->o.path, (long long)n_cut,
                (long long)r->n_docs, (long long)t->o.max_seq_len);
    return MT_OK;
}

static mt_rc split(tokens *t, mt_err *err)
{
    int64_t n = t->rows.n_docs, held = (int64_t)(t->o.val_size < 1 ? ceil(t->o.val_size * (double)n) : t->o.val_size), *all;
    if (held >= n)
        return mt_fail(err, MT_ERANGE, "eval.val_size holds out %lld of the %lld rows of %s: nothing is left to train on",
                       (long long)held, (long long)n, t->o.path);
    all = mt_calloc((size_t)n, sizeof *all);
    char *is_held = mt_calloc((size_t)n, 1);
    t->train = mt_calloc((size_t)n, sizeof *t->train);
    t->order = mt_calloc((size_t)n, sizeof *t->order);
    t->eval = mt_calloc((size_t)held + 1, sizeof *t->eval);
    mt_rc rc = all && is_held && t->train && t->order && t->eval ? MT_OK : mt_no_memory(err, "the rows of %s", t->o.path);
    for (int64_t i = 0; !rc && i < n; i++) all[i] = i;
    if (!rc) shuffle(all, n, t->o.val_seed, STREAM_SPLIT);
    for (int64_t i = 0; !rc && i < held; i++) is_held[all[i]] = 1;
    for (int64_t i = 0; !rc && i < n; i++)
        if (is_held[i])
            t->eval[t->n_eval++] = i;
        else
            t->train[t->n_train++] = i;
    if (t->o.max_eval_samples && t->n_eval > t->o.max_eval_samples) t->n_eval = t->o.max_eval_samples;
    mt_free(all);
    mt_free(is_held);
    return rc;
}

static int longer_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

/* No batch of these rows can have more tokens than the longest of them together. */
static mt_rc measure_rows(tokens *t, const int64_t *rows, int64_t n, mt_err *err)
{
    mt_source_info *i = &t->info;
    int64_t *lengths = mt_calloc((size_t)n + 1, sizeof *lengths), docs = mt_min_i64(n, t->o.samples_per_step), sum = 0;
    if (!lengths) return mt_no_memory(err, "the rows of %s", t->o.path);
    for (int64_t k = 0; k < n; k++) lengths[k] = length_of(t, rows[k]);
    qsort(lengths, (size_t)n, sizeof *lengths, longer_first);
    for (int64_t k = 0; k < docs; k++) sum += lengths[k];
    i->longest = mt_max_i64(i->longest, lengths[0]);
    i->max_tokens = mt_max_i64(i->max_tokens, sum);
    i->max_docs = mt_max_i64(i->max_docs, docs);
    mt_free(lengths);
    return MT_OK;
}

static mt_rc source_tokens_measure(tokens *t, mt_err *err)
{
    mt_source_info *i = &t->info;
    const int64_t per = t->o.samples_per_step;
    MT_TRY(measure_rows(t, t->train, t->n_train, err));
    i->train_tokens = i->max_tokens;
    i->train_docs = i->max_docs;
    i->train_longest = i->longest;
    MT_TRY(measure_rows(t, t->eval, t->n_eval, err));
    i->n_samples = t->n_train;
    i->steps_per_epoch = (t->n_train + per - 1) / per;
    i->n_eval_samples = t->n_eval;
    i->n_eval_batches = (t->n_eval + per - 1) / per;
    i->columns = t->rows.asked;
    uint64_t h = mt_hash(t->rows.ids, (size_t)t->rows.n_tokens * sizeof *t->rows.ids, (uint64_t)t->o.max_seq_len);
    h = mt_hash(t->labels, (size_t)t->rows.n_tokens * sizeof *t->labels, h);
    const float *weights = t->rows.columns[MT_COLUMN_WEIGHT];
    if (weights) h = mt_hash(weights, (size_t)t->rows.n_docs * sizeof *weights, h);
    i->fingerprint = mt_hash(t->rows.doc_start, ((size_t)t->rows.n_docs + 1) * sizeof *t->rows.doc_start, h);
    return MT_OK;
}

mt_rc mt_source_tokens_open(mt_source **out, const mt_source_tokens_options *o, mt_err *err)
{
    *out = NULL;
    tokens *t = mt_calloc(1, sizeof *t);
    if (!t) return mt_no_memory(err, "the rows of %s", o->path);
    t->base.api = &api;
    t->o = *o;
    t->epoch = -1;
    mt_rc rc = read_rows(t, err);
    if (!rc) rc = split(t, err);
    if (!rc) rc = source_tokens_measure(t, err);
    if (rc)
        close_tokens(&t->base);
    else
        *out = &t->base;
    return rc;
}
