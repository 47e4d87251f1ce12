/* records.h - records from data files of any format, one at a time.
 *
 * A path is a file, a folder, a glob ("data/train-*.parquet") or a folder that Hugging Face's save_to_disk
 * wrote.  Files are read in name order, as if they were one.  Every record is a map (value.h).
 *
 *     mt_records *r;
 *     MT_TRY(mt_records_open(&r, path, NULL, err));
 *     for (;;) {
 *         mt_arena_reset(&arena);
 *         if ((rc = mt_records_next(r, &arena, &record, &where, err))) break;         // the file is broken
 *         if (where.state == MT_RECORD_END) break;
 *         if (where.state == MT_RECORD_BAD) { count(where, err->msg); continue; }      // only this one is
 *         use(&record);
 *     }
 *     mt_records_close(r);
 *
 * Bad or broken: a line that is not JSON, a string that is not UTF-8 or a CSV row with too many fields spoils one record.  next()
 * then returns MT_OK with state MT_RECORD_BAD and the reason in err, and continues after it.  If the rest cannot be trusted (a
 * truncated file, a page that does not decompress, no memory), next() returns the error instead, and so do all later calls.
 *
 * A record lives in the arena and in the mapped file (of very many files: in the arena alone): it is valid until the
 * arena is reset or the reader is closed, whichever is first.  Memory does not grow with the size of the files: text
 * formats are read from the mapping, Parquet holds one page per column, Arrow one batch.  A reader belongs to one
 * thread. */
#ifndef MT_DATA_RECORDS_H
#define MT_DATA_RECORDS_H

#include "base/choices.h"
#include "base/value.h"

typedef struct mt_records mt_records;

/* Zero-initialized means: find out, and the defaults of Hugging Face's datasets. */
typedef struct mt_records_options {
    const char *format; /* NULL: by content and extension; or json, csv, tsv, text, parquet, arrow */
    const char *field;  /* JSON: the records are the list under this key of the document */
    const char *split;  /* folders: files of this split only (NULL: "train" where splits are named); all: a part (split_spec.h) */
    const char *subset; /* folders: the folder in it of this name, else files whose names carry it (NULL: all) */
    const char *const *files;   /* these files and no others (NULL-terminated); the path is a name then */
    const char *const *columns; /* Parquet, Arrow: read only these (NULL-terminated); others ignore it */
    char delimiter;             /* CSV: 0 means ',' or, for .tsv files, a tab */
    bool outside;               /* folders and globs: what links lead out of the folder to is read, too; else refused */
    mt_sample_by sample_by;     /* text: a record is a line, a paragraph (blank lines between) or a file */
} mt_records_options;

typedef enum mt_record_state { MT_RECORD_OK, MT_RECORD_BAD, MT_RECORD_END } mt_record_state;

typedef struct mt_record_place {
    mt_record_state state;
    const char *file; /* valid until the reader is closed */
    int64_t line;     /* where the record starts, from 1; 0 in formats without lines */
    int64_t row;      /* number of the record in its file, bad ones counted, from 1 */
    bool shares_line; /* other records may start on the same line, so only the number identifies it */
} mt_record_place;

/* "data.csv, line 7", "data.json, line 1, record 7" or, in formats without lines, "data.parquet, row 7". */
void mt_record_place_text(char *out, size_t n, const mt_record_place *p);

/* Options are copied; the strings in them are borrowed until close. */
mt_rc mt_records_open(mt_records **out, const char *path, const mt_records_options *opt, mt_err *err);
mt_rc mt_records_next(mt_records *r, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err);
void mt_records_close(mt_records *r);

/* Start again at the first record.  Records read so far are no longer valid. */
mt_rc mt_records_rewind(mt_records *r, mt_err *err);

/* Rows in all files, even if only a part is read, if the files contain the number (Parquet, Arrow), else -1.  Opens each file
 * once. */
mt_rc mt_records_count(mt_records *r, int64_t *out, mt_err *err);

/* How far it is, 0 to 1: files read, and bytes (or rows) of the current one.  For showing, not for deciding. */
double mt_records_share(const mt_records *r);

/* Names of the columns of the current file: from its schema or header, or its first record for JSON. */
size_t mt_records_columns(const mt_records *r, const char *const **names);

/* The files that are read, in order. */
size_t mt_records_files(const mt_records *r, const char *const **paths);
/* The current file's format: "json", "parquet", ... */
const char *mt_records_format(const mt_records *r);

#endif
