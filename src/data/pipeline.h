/* pipeline.h - a run's steps from data files: samples from the cache, split, mixed, shuffled, packed.
 *
 *     mt_pipeline *p;
 *     mt_source *source;
 *     MT_TRY(mt_pipeline_open(&p, &options, err));                        // tokenizes what no earlier run has
 *     rc = mt_prefetch_open(&source, mt_pipeline_source(p), err);         // prefetch.h: the next step while this one computes
 *     ...
 *     mt_source_close(source);                                            // closes the pipeline too
 *
 * In this order: each dataset's first max_samples records are read; of the good ones a seeded choice of num_samples is kept;
 * val_size of those are held out, whole records by val_seed; the rest is mixed, and each epoch shuffles it.  A step is the next
 * samples_per_step samples of its epoch, or rows with packing; the last step of an epoch takes the rest.  With packing, which
 * samples share a row is drawn once, by seed; an epoch shuffles the rows.  Samples in a row stay separate documents.
 *
 * Everything follows from the data, the options and the step's number; nothing that grows with the data is kept but a bit per
 * sample. */
#ifndef MT_DATA_PIPELINE_H
#define MT_DATA_PIPELINE_H

#include "data/mix.h"
#include "data/source.h"
#include "data/store_build.h"

/* One dataset. */
typedef struct mt_pipeline_part {
    const char *name, *path;
    mt_records_options records;
    mt_sample_maker maker;
    int64_t num_samples; /* keep a seeded choice of this many records; 0: all */
} mt_pipeline_part;

/* All of it is borrowed for the call. */
typedef struct mt_pipeline_options {
    const mt_pipeline_part *train, *eval; /* eval: datasets to evaluate on, instead of val_size */
    size_t n_train, n_eval;
    int64_t vocab;            /* of the model */
    int64_t max_seq_len;      /* tokens of a row when packing; makers keep samples within it */
    int64_t samples_per_step; /* batch_size x gradient_accumulation_steps */
    int64_t max_samples;      /* only the first N records of each dataset; 0: all */
    bool packing, shuffle;
    uint64_t seed, val_seed;
    double val_size;          /* below 1: share of the records held out; from 1: number of records */
    int64_t max_eval_samples; /* evaluate on the first N only; 0: all */
    mt_mix_strategy mix;
    const double *probs;  /* [n_train], or NULL */
    bool stop_on_bad;     /* a bad record is an error */
    double max_bad_share; /* more than this share is one */
    const char *cache_dir;
    uint64_t cache_bytes;        /* of all stores there, at most; 0: any number */
    int n_workers;               /* tokenizer threads; 0: one per core */
    const mt_specials *specials; /* NULL: do not look for special tokens spelled as text */
    mt_store_progress_fn progress;
    void *user;
    const atomic_bool *stop; /* as mt_store_job's */
} mt_pipeline_options;

typedef struct mt_pipeline mt_pipeline;

mt_rc mt_pipeline_open(mt_pipeline **out, const mt_pipeline_options *o, mt_err *err);
/* The pipeline as a source; closing it closes the pipeline.  One thread at a time. */
mt_source *mt_pipeline_source(mt_pipeline *p);

/* ---- looking inside ---- */

size_t mt_pipeline_stores(const mt_pipeline *p); /* training first, then evaluation */
const mt_store *mt_pipeline_store(const mt_pipeline *p, size_t i);
const char *mt_pipeline_name(const mt_pipeline *p, size_t i);

typedef struct mt_pipeline_facts {
    int64_t n_train, n_eval; /* samples */
    int64_t train_tokens;    /* of an epoch */
    int64_t n_rows;          /* of an epoch, when packing; 0 otherwise */
    double efficiency;       /* tokens in a row / max_seq_len, over all rows; 1 without packing: nothing is padded */
    bool built;              /* at least one dataset was tokenized just now */
} mt_pipeline_facts;

void mt_pipeline_facts_of(const mt_pipeline *p, mt_pipeline_facts *out);

/* The i-th sample of the first epoch, packing aside. */
void mt_pipeline_at(const mt_pipeline *p, int64_t i, size_t *store, int64_t *sample);

#endif
