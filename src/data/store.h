/* store.h - tokenized samples in a file that is mapped: token ids, which of them are trained, and what there is to say about
 * them.
 *
 *     mt_store *s;
 *     MT_TRY(mt_store_map(&s, path, key, err));   // MT_EFORMAT, MT_ENOENT: build it (store_build.h), or leave it to cache.h
 *     for (int64_t i = 0; i < mt_store_samples(s); i++) MT_TRY(mt_store_read(s, i, ids, labels, err));
 *     mt_store_close(s);
 *
 * The file holds, little-endian,
 *     header      sizes, counts, the first bad records, checksums; 8 KiB
 *     words       one per token, 2 bytes (vocabularies up to 32768) or 4; the top bit is set where the token is trained
 *     index       where each sample starts, in words, and where the last ends: 8 bytes each; the top bit is set on a record's
 *                 first sample
 *     lengths     samples by length before they were cut, in buckets of MT_STORE_BUCKET tokens
 * A store is immutable and shared by threads.  Only pages that are read take memory. */
#ifndef MT_DATA_STORE_H
#define MT_DATA_STORE_H

#include "data/sampler.h"

enum { MT_STORE_SHOWN = 3, MT_STORE_TEXT = 1024, MT_STORE_BUCKET = 64 };

/* What was found on the way, of one dataset. */
typedef struct mt_store_counts {
    int64_t n_records;             /* read, bad ones counted */
    int64_t by_reason[MT_REASONS]; /* [MT_REASON_NONE]: records that gave samples */
    int64_t n_empty;               /* fine, and gave no sample (an empty line of text) */
    int64_t n_samples, n_tokens;
    int64_t n_trained;   /* tokens that are predicted: the first of a sample never is */
    int64_t n_untrained; /* samples with nothing to train */
    int64_t longest;     /* tokens of the longest sample */
    int64_t n_spelled;   /* records whose text spells special tokens */
    mt_oddities odd;
} mt_store_counts;

typedef struct mt_store mt_store;

/* `key` is what the file must have been made for.  Sizes, header and index are checked; the words too, up to 256 MiB of
 * them; those of a larger one are checked where they are first read. */
mt_rc mt_store_map(mt_store **out, const char *path, uint64_t key, mt_err *err);
void mt_store_close(mt_store *s); /* accepts NULL */
/* An open file that closes with the store (cache_trim.h); -1: none. */
void mt_store_hold(mt_store *s, int fd);

const mt_store_counts *mt_store_counted(const mt_store *s);
/* False for reasons that make a record bad; too long is not bad. */
bool mt_store_fine(int reason);
/* Records that are bad. */
int64_t mt_store_bad(const mt_store_counts *c);
/* The first bad records, at most MT_STORE_SHOWN: file, line or row, and the reason.  NULL past the last. */
const char *mt_store_bad_text(const mt_store *s, int k);
/* Equal samples give an equal number, wherever the data was. */
uint64_t mt_store_content(const mt_store *s);

int64_t mt_store_samples(const mt_store *s);
int64_t mt_store_length(const mt_store *s, int64_t i);
bool mt_store_first_of_record(const mt_store *s, int64_t i);
/* Sample i: both arrays have room for its length; labels as mt_batch_add wants them.  MT_EFORMAT: the file is damaged there. */
mt_rc mt_store_read(const mt_store *s, int64_t i, int32_t *ids, int32_t *labels, mt_err *err);

/* The smallest max_seq_len, rounded up to a bucket, that would leave `share` of the samples uncut; 0: not known, since too many
 * were left out for their length. */
int64_t mt_store_keeps(const mt_store *s, double share);

#endif
