/* formats.h - what a file format offers to records.c.  Formats are rows of a table (formats.c): adding one is
 * a file with these five functions and a row. */
#ifndef MT_DATA_FORMATS_H
#define MT_DATA_FORMATS_H

#include "data/records.h"

/* The bytes of one open file. */
typedef struct mt_record_bytes {
    const char *path; /* for messages */
    const uint8_t *data;
    size_t size;
    mt_records_options opt;
    mt_arena *keep; /* for what records point to besides the bytes (their keys): outlives the reader, as the bytes do */
} mt_record_bytes;

typedef struct mt_name_list {
    const char **items; /* each one and the array are owned */
    size_t n, cap;
} mt_name_list;

typedef struct mt_format {
    const char *name;
    const char *extensions;                                             /* ".json .jsonl" */
    bool (*recognise)(const uint8_t *data, size_t size);                /* by content; NULL: by extension only */
    mt_rc (*open)(void **out, const mt_record_bytes *src, mt_err *err); /* src outlives the reader */
    mt_rc (*next)(void *reader, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err);
    int64_t (*count)(void *reader); /* NULL: unknown */
    const mt_name_list *(*columns)(const void *reader);
    size_t (*position)(const void *reader); /* bytes before this offset are not needed again; NULL: unknown */
    void (*close)(void *reader);            /* accepts half-built ones */
} mt_format;

extern const mt_format mt__format_json, mt__format_csv, mt__format_text, mt__format_parquet, mt__format_arrow;

/* The format of a file: the option's, else what its content says, else what its name says. */
mt_rc mt__format_find(const mt_format **out, const mt_record_bytes *src, mt_err *err);
/* The format whose extension the name has; NULL: none. */
const mt_format *mt__format_by_extension(const char *path);

/* Records from bytes in memory, for tests and fuzzers; borrowed until close.  `name` is used like a path. */
mt_rc mt__records_open_bytes(mt_records **out, const char *name, const void *data, size_t n, const mt_records_options *opt,
                             mt_err *err);

/* For next(): this record is bad (the reason is in err), but the file continues. */
static inline mt_rc mt__record_bad(mt_record_place *where)
{
    where->state = MT_RECORD_BAD;
    return MT_OK;
}
/* The same, with file and line (or row) put before the reason. */
mt_rc mt__record_bad_here(mt_record_place *where, mt_err *err);
static inline mt_rc mt__record_end(mt_record_place *where)
{
    where->state = MT_RECORD_END;
    return MT_OK;
}

mt_rc mt__name_list_add(mt_name_list *names, const char *s, size_t n, mt_err *err);
void mt__name_list_free(mt_name_list *names);

/* A column is read if no list was given or it is in it. */
bool mt__column_wanted(const mt_records_options *opt, const char *name);

#endif
