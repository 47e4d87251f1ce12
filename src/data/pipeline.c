#include "data/pipeline.h"

#include "base/log.h"
#include "base/rng.h"
#include "base/units.h"
#include "data/cache.h"
#include "data/cache_trim.h"
#include "data/group.h"
#include "data/report.h"

#include <math.h>
#include <string.h>
#include <time.h>

struct mt_pipeline {
    mt_source base;
    mt_store **stores; /* [n_train + n_eval] */
    char **names;
    size_t n_train, n_stores;
    mt__group train, eval;
    int64_t vocab, per, row_tokens; /* row_tokens: when packing */
    int32_t *ids, *labels;          /* [longest] of the sample being added */
    mt_source_info info;
    bool built;
};

/* -- the source's functions ------------------------------------------------------------------------ */

static mt_pipeline *of(mt_source *s) { return (mt_pipeline *)s; }

static void info(mt_source *s, mt_source_info *out) { *out = of(s)->info; }

static mt_rc add_place(mt_pipeline *p, const mt__group *g, int64_t place, mt_batch *out, mt_err *err)
{
    size_t d;
    int64_t sample;
    mt__group_at(g, place, &d, &sample);
    MT_TRY(mt_store_read(g->stores[d], sample, p->ids, p->labels, err));
    return mt_batch_add(out, p->ids, p->labels, mt_store_length(g->stores[d], sample), p->vocab, err);
}

/* Units [first, first + per) of an epoch, as many as there are. */
static mt_rc pipeline_fill(mt_pipeline *p, mt__group *g, int64_t epoch, int64_t first, mt_batch *out, mt_err *err)
{
    int64_t end = mt_min_i64(first + p->per, g->n_units), one, n;
    const int64_t *places;
    mt_batch_clear(out);
    for (int64_t u = first; u < end; u++) {
        mt__group_unit(g, epoch, u, &one, &places, &n);
        for (int64_t i = 0; i < n; i++) {
            /* a packed row speaks of places in the packing's order */
            int64_t place = g->packing && g->shuffle ? mt_shuffle_at(&g->pack_order, places[i]) : places[i];
            MT_TRY(add_place(p, g, place, out, err));
        }
    }
    return MT_OK;
}

static mt_rc pipeline_step(mt_source *s, int64_t number, mt_batch *out, mt_err *err)
{
    mt_pipeline *p = of(s);
    int64_t epoch = number / p->info.steps_per_epoch, in_epoch = number % p->info.steps_per_epoch;
    mt_rc rc = pipeline_fill(p, &p->train, epoch, in_epoch * p->per, out, err);
    return rc ? mt_note(err, "step %lld", (long long)number) : MT_OK;
}

static mt_rc eval(mt_source *s, int64_t index, mt_batch *out, mt_err *err)
{
    mt_pipeline *p = of(s);
    mt_rc rc = pipeline_fill(p, &p->eval, 0, index * p->per, out, err);
    return rc ? mt_note(err, "evaluation batch %lld", (long long)index) : MT_OK;
}

static void close_pipeline(mt_source *s)
{
    mt_pipeline *p = of(s);
    mt__group_deinit(&p->train);
    mt__group_deinit(&p->eval);
    for (size_t i = 0; p->stores && i < p->n_stores; i++) mt_store_close(p->stores[i]);
    for (size_t i = 0; p->names && i < p->n_stores; i++) mt_free(p->names[i]);
    mt_free(p->stores);
    mt_free(p->names);
    mt_free(p->ids);
    mt_free(p->labels);
    mt_free(p);
}

static const mt_source_api api = { .info = info, .step = pipeline_step, .eval = eval, .close = close_pipeline };

/* -- opening --------------------------------------------------------------------------------------- */

static mt_rc open_store(mt_pipeline *p, size_t i, const mt_pipeline_part *part, const mt_pipeline_options *o, mt_err *err)
{
    bool built;
    mt_store_job job = { .what = part->name,
                         .path = part->path,
                         .records = part->records,
                         .maker = part->maker,
                         .specials = o->specials,
                         .max_records = o->max_samples,
                         .vocab = o->vocab,
                         .n_workers = o->n_workers,
                         .stop_on_bad = o->stop_on_bad,
                         .progress = o->progress,
                         .user = o->user,
                         .stop = o->stop,
                         .max_bytes = o->cache_bytes };
    p->names[i] = mt_strdup(part->name);
    if (!p->names[i]) return mt_no_memory(err, "the data pipeline");
    mt_rc rc = mt_cache_open(&p->stores[i], o->cache_dir, &job, &built, err);
    if (rc) return mt_note(err, "dataset %s", part->name);
    p->built |= built;
    return mt_report_check(p->stores[i], part->name, o->stop_on_bad, o->max_bad_share, err);
}

/* The cache has grown: remove unused stores. */
static mt_rc trim_cache(const mt_pipeline_options *o, mt_err *err)
{
    char *dir;
    MT_TRY(mt_cache_dir(&dir, o->cache_dir, err));
    mt_trimmed t = mt_cache_trim(dir, o->cache_bytes, (int64_t)time(NULL));
    if (t.n_files)
        mt_info("%d tokenized dataset%s (%s) that no run used lately left %s (dataset.cache_size)", t.n_files,
                t.n_files == 1 ? "" : "s", mt_bytes_text(t.bytes).s, dir);
    mt_free(dir);
    return MT_OK;
}

static mt_rc open_stores(mt_pipeline *p, const mt_pipeline_options *o, mt_err *err)
{
    p->n_train = o->n_train;
    p->n_stores = o->n_train + o->n_eval;
    p->stores = mt_calloc(p->n_stores, sizeof *p->stores);
    p->names = mt_calloc(p->n_stores, sizeof *p->names);
    if (!p->stores || !p->names) return mt_no_memory(err, "the data pipeline");
    for (size_t i = 0; i < p->n_stores; i++)
        MT_TRY(open_store(p, i, i < o->n_train ? &o->train[i] : &o->eval[i - o->n_train], o, err));
    return p->built ? trim_cache(o, err) : MT_OK;
}

static int64_t n_usable(const mt_store *s) { return mt_store_counted(s)->by_reason[MT_REASON_NONE]; }

/* Records that a dataset contributes. */
static int64_t n_chosen(const mt_store *s, const mt_pipeline_part *part)
{
    const int64_t n = n_usable(s);
    return part->num_samples ? mt_min_i64(n, part->num_samples) : n;
}

static mt_rc count_held(const mt_pipeline *p, const mt_pipeline_options *o, int64_t *n_records, int64_t *n_held, mt_err *err)
{
    *n_records = *n_held = 0;
    for (size_t d = 0; d < p->n_train; d++) *n_records += n_chosen(p->stores[d], &o->train[d]);
    if (*n_records == 0) return mt_fail(err, MT_EINVAL, "%s: no sample to train on", p->names[0]);
    if (o->n_eval || o->val_size <= 0) return MT_OK;
    double held = o->val_size < 1 ? ceil(o->val_size * (double)*n_records) : o->val_size;
    if (held >= (double)*n_records)
        return mt_fail(err, MT_ERANGE, "eval.val_size %g holds out %.0f of %lld records: nothing is left to train on",
                       o->val_size, held, (long long)*n_records);
    *n_held = (int64_t)held;
    return MT_OK;
}

/* Whole records to one side or the other: what one conversation was unrolled into stays together. */
static void divide(mt_pipeline *p, const mt_pipeline_options *o, int64_t n_records, int64_t n_held)
{
    mt_shuffle split = mt_shuffle_of(n_records, o->val_seed, MT_SHUFFLE_SPLIT);
    int64_t number = 0; /* of the chosen record, over all datasets */
    for (size_t d = 0; d < p->n_train; d++) {
        const mt_store *s = p->stores[d];
        int64_t n = n_usable(s), n_keep = n_chosen(s, &o->train[d]), record = -1;
        mt_shuffle choice = mt_shuffle_of(n, o->seed, MT_SHUFFLE_CHOICE + ((uint64_t)d << 32));
        bool keep = false, held = false;
        for (int64_t i = 0; i < mt_store_samples(s); i++) {
            if (mt_store_first_of_record(s, i)) {
                record++;
                keep = n_keep == n || mt_shuffle_at(&choice, record) < n_keep;
                held = keep && n_held && mt_shuffle_at(&split, number) < n_held;
                number += keep;
            }
            if (keep) mt_subset_add(held ? &p->eval.sets[d] : &p->train.sets[d], i);
        }
    }
}

static void take_all(mt__group *g)
{
    for (size_t d = 0; d < g->n; d++)
        for (int64_t i = 0; i < g->sets[d].n; i++) mt_subset_add(&g->sets[d], i);
}

static mt_rc choose(mt_pipeline *p, const mt_pipeline_options *o, mt_err *err)
{
    int64_t n_records, n_held;
    bool own_eval = o->n_eval > 0;
    MT_TRY(count_held(p, o, &n_records, &n_held, err));
    for (size_t d = 0; d < p->n_train; d++)
        if (o->train[d].num_samples > n_chosen(p->stores[d], &o->train[d]))
            mt_warn("dataset %s: num_samples requests %lld records and there are %lld; all are used, none twice (mix_strategy "
                    "interleave_over repeats small datasets)",
                    p->names[d], (long long)o->train[d].num_samples, (long long)n_chosen(p->stores[d], &o->train[d]));
    MT_TRY(mt__group_init(&p->train, p->stores, p->n_train, err));
    MT_TRY(mt__group_init(&p->eval, p->stores + (own_eval ? p->n_train : 0), own_eval ? o->n_eval : p->n_train, err));
    divide(p, o, n_records, n_held);
    if (own_eval) take_all(&p->eval);
    MT_TRY(mt__group_order(&p->train, o->mix, o->probs, o->shuffle, o->seed, o->stop, err));
    MT_TRY(mt__group_order(&p->eval, MT_MIX_CONCAT, NULL, false, o->seed, o->stop, err));
    if (o->max_eval_samples && p->eval.n_samples > o->max_eval_samples) p->eval.n_units = p->eval.n_samples = o->max_eval_samples;
    if (!o->packing) return MT_OK;
    p->row_tokens = mt_max_i64(o->max_seq_len, mt_max_i64(mt__group_longest(&p->train), mt__group_longest(&p->eval)));
    MT_TRY(mt__group_pack(&p->train, p->row_tokens, o->stop, err));
    return mt__group_pack(&p->eval, p->row_tokens, o->stop, err);
}

/* What the largest batch of a group can hold. */
static mt_rc measure_group(mt_pipeline *p, const mt__group *g, mt_err *err)
{
    int64_t units = mt_min_i64(p->per, g->n_units), tokens = units * p->row_tokens, docs = units;
    if (g->packing)
        docs = units * mt_packing_most(g->packing);
    else
        MT_TRY(mt__group_most_tokens(g, p->per, &tokens, err));
    p->info.max_tokens = mt_max_i64(p->info.max_tokens, tokens);
    p->info.max_docs = mt_max_i64(p->info.max_docs, docs);
    p->info.longest = mt_max_i64(p->info.longest, mt__group_longest(g));
    return MT_OK;
}

/* Of the trained samples.  A registry's num_samples counts where it leaves records out: no setting and no file shows it. */
static uint64_t fingerprint(const mt_pipeline *p, const mt_pipeline_options *o)
{
    uint64_t h = mt_hash(&p->row_tokens, sizeof p->row_tokens, p->n_train);
    for (size_t d = 0; d < p->n_train; d++) {
        uint64_t content = mt_store_content(p->stores[d]);
        int64_t n = n_chosen(p->stores[d], &o->train[d]);
        h = mt_hash(&content, sizeof content, h);
        if (n < n_usable(p->stores[d])) h = mt_hash(&n, sizeof n, h);
    }
    return h;
}

static mt_rc pipeline_measure(mt_pipeline *p, const mt_pipeline_options *o, mt_err *err)
{
    mt_source_info *i = &p->info;
    MT_TRY(measure_group(p, &p->train, err));
    i->train_tokens = i->max_tokens;
    i->train_docs = i->max_docs;
    i->train_longest = i->longest;
    if (p->eval.n_samples) MT_TRY(measure_group(p, &p->eval, err));
    i->n_samples = p->train.n_samples;
    i->steps_per_epoch = (p->train.n_units + p->per - 1) / p->per;
    i->n_eval_samples = p->eval.n_samples;
    i->n_eval_batches = (p->eval.n_units + p->per - 1) / p->per;
    i->fingerprint = fingerprint(p, o);
    p->ids = mt_calloc((size_t)i->longest + 1, sizeof *p->ids);
    p->labels = mt_calloc((size_t)i->longest + 1, sizeof *p->labels);
    return p->ids && p->labels ? MT_OK : mt_no_memory(err, "the data pipeline");
}

mt_rc mt_pipeline_open(mt_pipeline **out, const mt_pipeline_options *o, mt_err *err)
{
    *out = NULL;
    mt_pipeline *p = mt_calloc(1, sizeof *p);
    if (!p) return mt_no_memory(err, "the data pipeline");
    p->base.api = &api;
    p->vocab = o->vocab;
    p->per = o->samples_per_step;
    mt_rc rc = o->n_train && o->samples_per_step > 0
                   ? MT_OK
                   : mt_fail(err, MT_EINVAL, "a run needs a dataset and at least one sample a step");
    if (!rc) rc = open_stores(p, o, err);
    if (!rc) rc = choose(p, o, err);
    if (!rc) rc = pipeline_measure(p, o, err);
    if (rc)
        close_pipeline(&p->base);
    else
        *out = p;
    return rc;
}

mt_source *mt_pipeline_source(mt_pipeline *p) { return &p->base; }

/* -- looking inside -------------------------------------------------------------------------------- */

size_t mt_pipeline_stores(const mt_pipeline *p) { return p->n_stores; }
const mt_store *mt_pipeline_store(const mt_pipeline *p, size_t i) { return p->stores[i]; }
const char *mt_pipeline_name(const mt_pipeline *p, size_t i) { return p->names[i]; }

void mt_pipeline_facts_of(const mt_pipeline *p, mt_pipeline_facts *out)
{
    *out = (mt_pipeline_facts){ .n_train = p->train.n_samples,
                                .n_eval = p->eval.n_samples,
                                .train_tokens = mt__group_tokens(&p->train),
                                .efficiency = 1,
                                .built = p->built };
    if (!p->row_tokens) return;
    out->n_rows = p->train.n_units;
    out->efficiency = (double)out->train_tokens / ((double)out->n_rows * (double)p->row_tokens);
}

void mt_pipeline_at(const mt_pipeline *p, int64_t i, size_t *store, int64_t *sample)
{
    if (p->train.shuffle) {
        mt_shuffle order = mt_shuffle_of(p->train.n_samples, p->train.seed, MT_SHUFFLE_EPOCH);
        i = mt_shuffle_at(&order, i);
    }
    mt__group_at(&p->train, i, store, sample);
}
