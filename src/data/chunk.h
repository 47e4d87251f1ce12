/* chunk.h - a few dozen records on their way through store_build.c: as read, then as samples. */
#ifndef MT_DATA_CHUNK_H
#define MT_DATA_CHUNK_H

#include "data/store_build.h"
#include "data/store_file.h"

enum { MT__CHUNK_RECORDS = 64, MT__CHUNK_BYTES = 1 << 18 };

typedef struct mt__record {
    mt_value value;
    mt_record_place where;
    char *bad; /* in the arena: why the reader could not read it; NULL: it could */
} mt__record;

typedef struct mt__chunk_sample {
    int64_t n, n_uncut;
    bool first; /* of its record */
} mt__chunk_sample;

typedef struct mt__chunk {
    /* from the reader */
    mt_arena arena;
    mt__record records[MT__CHUNK_RECORDS];
    size_t n_records;
    bool last;
    double share; /* of the files, read so far */
    /* from a worker */
    uint32_t *words; /* as wide as the file has them */
    size_t n_words, cap_words;
    mt__chunk_sample *samples;
    size_t n_samples, cap_samples;
    mt_store_counts counts; /* n_records, by_reason, n_empty, n_trained, n_untrained, n_spelled, odd */
    char bad[MT_STORE_SHOWN][MT_STORE_TEXT];
    int n_bad_shown;
    mt_err error; /* rc != 0: what stopped the work; the writer returns the first in the order of the records */
} mt__chunk;

/* Take records until the chunk is full or the files end; *left counts down, if it is not negative.  Errors are kept in the chunk.
 */
void mt__chunk_read(mt__chunk *c, mt_records *records, int64_t *left, const mt_store_job *job);
/* Make the samples. */
void mt__chunk_make(mt__chunk *c, const mt_store_job *job, void *scratch, uint32_t word_bytes);
/* Add them to the file. */
mt_rc mt__chunk_write(const mt__chunk *c, mt__store_writer *w, mt_err *err);
void mt__chunk_free(mt__chunk *c);

#endif
