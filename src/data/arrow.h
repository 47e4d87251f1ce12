/* arrow.h - the parts of the Arrow IPC reader and what they hand to each other.
 *
 *   arrow_schema.c   the schema message: a tree of fields
 *   arrow_batch.c    a record batch (or the values of a dictionary): arrays over checked buffers
 *   arrow_value.c    one value of an array
 *   format_arrow.c   messages of a file or a stream, dictionaries, records
 *
 * Sizes of buffers are checked when a batch is loaded, offsets inside them when a value is read: loading costs
 * nothing per row.  Uncompressed buffers stay where they are in the file. */
#ifndef MT_DATA_ARROW_H
#define MT_DATA_ARROW_H

#include "data/codec.h"
#include "data/flatbuf.h"
#include "data/formats.h"
#include "data/scalar.h"

typedef enum ar_kind {
    AR_NULL,
    AR_BOOL,
    AR_INT,   /* `width` bytes; `scalar` says what they mean */
    AR_FLOAT, /* 4 or 8 bytes */
    AR_BYTES, /* offsets of 4 or 8 bytes into data */
    AR_FIXED, /* `width` bytes each */
    AR_VIEW,  /* 16-byte views, short ones inline */
    AR_LIST,  /* offsets of 4 or 8 bytes into the child */
    AR_LIST_VIEW,
    AR_FIXED_LIST,
    AR_STRUCT,
    AR_MAP, /* a list of structs of key and value */
} ar_kind;

typedef struct ar_field ar_field;
struct ar_field {
    const char *name; /* in src->keep */
    size_t name_n;
    ar_kind kind;
    size_t width;     /* bytes of a value or of an offset */
    bool is_unsigned; /* AR_INT */
    mt_scalar scalar;
    int64_t list_size; /* AR_FIXED_LIST */
    ar_field *children;
    size_t n_children;
    bool encoded; /* values are indices into dictionary `dictionary` */
    int64_t dictionary;
    size_t index_width;
    bool index_unsigned;
    bool wanted; /* top level */
};

typedef struct ar_schema {
    ar_field root; /* a struct */
    size_t n_fields;
} ar_schema;

mt_rc mt__ar_schema_read(ar_schema *out, mt_flat_table schema, const mt_record_bytes *src, mt_err *err);
/* The field whose values dictionary `id` holds; NULL: none. */
const ar_field *mt__ar_dictionary_field(const ar_field *root, int64_t id);

/* ---- batches ---- */

typedef struct ar_bytes {
    const uint8_t *p;
    size_t n;
    bool in_file; /* outlives the batch */
} ar_bytes;

typedef struct ar_array ar_array;
struct ar_array {
    const ar_field *field;
    bool indices; /* the buffers hold indices, not values */
    int64_t length;
    const uint8_t *validity; /* a bit per value; NULL: all valid */
    ar_bytes main, data;     /* offsets, views, indices or values; bytes of strings or sizes of list views */
    ar_bytes *variadic;      /* views: buffers of the long strings */
    size_t n_variadic;
    ar_array *children;
};

typedef struct ar_batch {
    mt_arena arena; /* owns arrays and decompressed buffers */
    ar_array root;
} ar_batch;

/* `batch` is a RecordBatch; with `values` it holds one column, the values of a dictionary. */
mt_rc mt__ar_batch_load(ar_batch *out, mt_flat_table batch, const ar_field *field, bool values, const uint8_t *body,
                        size_t body_n, const mt_record_bytes *src, mt_err *err);

/* ---- values ---- */

typedef struct ar_dictionary {
    int64_t id;
    const ar_field *field;
    ar_batch *chunks; /* the first, and deltas */
    size_t n_chunks, cap_chunks;
} ar_dictionary;

typedef struct ar_row {
    const mt_record_bytes *src;
    const ar_dictionary *dictionaries;
    size_t n_dictionaries;
    mt_arena *arena;
    size_t n_values, n_bytes;
    int depth;
    const char *trouble, *trouble_column; /* a value that spoils the record, not the file */
    mt_err *err;
} ar_row;

mt_rc mt__ar_value(ar_row *r, const ar_array *a, int64_t i, mt_value *out);

#endif
