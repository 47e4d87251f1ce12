/* parquet.h - the parts of the Parquet reader and what they hand to each other.
 *
 *   parquet_meta.c     the footer: schema elements, row groups, the place of each column's bytes
 *   parquet_schema.c   schema elements to a tree of values: structs, lists, maps, leaves
 *   parquet_runs.c     the run-length/bit-packed hybrid (levels, dictionary indices) and delta-packed integers
 *   parquet_values.c   one page's values in any encoding
 *   parquet_column.c   one column chunk: pages, decompression, levels and values in small batches
 *   format_parquet.c   records from columns, by repetition and definition levels
 *
 * Bytes are untrusted.  Decoders that see only bytes return a complaint (a string, NULL if fine); callers that know file and
 * column turn it into an error.  One complaint is not about the bytes: mt__pq_no_memory. */
#ifndef MT_DATA_PARQUET_H
#define MT_DATA_PARQUET_H

#include "data/codec.h"
#include "data/formats.h"
#include "data/scalar.h"

typedef enum pq_type {
    PQ_BOOLEAN,
    PQ_INT32,
    PQ_INT64,
    PQ_INT96,
    PQ_FLOAT,
    PQ_DOUBLE,
    PQ_BYTE_ARRAY,
    PQ_FIXED,
    PQ_TYPES,
} pq_type;

typedef enum pq_encoding {
    PQ_PLAIN = 0,
    PQ_PLAIN_DICTIONARY = 2,
    PQ_RLE = 3,
    PQ_BIT_PACKED = 4,
    PQ_DELTA_BINARY_PACKED = 5,
    PQ_DELTA_LENGTH_BYTE_ARRAY = 6,
    PQ_DELTA_BYTE_ARRAY = 7,
    PQ_RLE_DICTIONARY = 8,
    PQ_BYTE_STREAM_SPLIT = 9,
} pq_encoding;

typedef enum pq_repetition { PQ_REQUIRED, PQ_OPTIONAL, PQ_REPEATED } pq_repetition;

extern const char mt__pq_no_memory[];

/* ---- footer ---- */

/* What an element is besides its physical type; the old converted types are mapped to these as well. */
typedef enum pq_note { PQ_NOTE_NONE, PQ_NOTE_LIST, PQ_NOTE_MAP, PQ_NOTE_SCALAR } pq_note;

typedef struct pq_element {
    const char *name; /* in the footer's arena */
    int type;         /* pq_type; -1: a group */
    int64_t type_length;
    int repetition;
    int64_t n_children;
    pq_note note;
    mt_scalar scalar; /* note is PQ_NOTE_SCALAR: what the value means */
} pq_element;

typedef struct pq_chunk {
    uint64_t start, n_bytes; /* in the file, checked */
    int64_t n_values;        /* entries, nulls included */
    int type, codec;         /* as in the file */
} pq_chunk;

typedef struct pq_group {
    int64_t n_rows;
    pq_chunk *chunks; /* one per leaf, in schema order */
    size_t n_chunks;
} pq_group;

typedef struct pq_footer {
    mt_arena arena; /* owns everything below */
    pq_element *elements;
    size_t n_elements;
    pq_group *groups;
    size_t n_groups;
    int64_t n_rows;
    bool no_memory; /* while reading it */
} pq_footer;

mt_rc mt__pq_footer_read(pq_footer *out, const mt_record_bytes *src, mt_err *err);

/* ---- schema ---- */

typedef enum pq_node_kind { PQ_LEAF, PQ_STRUCT, PQ_LIST, PQ_MAP } pq_node_kind;

typedef struct pq_node pq_node;
struct pq_node {
    pq_node_kind kind;
    const char *name;
    size_t name_n;
    bool wanted;       /* top level: the column is read */
    int def_present;   /* definition level from which the value is not null */
    int def_item;      /* lists and maps: level from which there is an item */
    int rep_item;      /* lists and maps: repetition level of the second item on */
    pq_node *children; /* struct: fields; list: the item; map: key and value */
    size_t n_children;
    size_t first_leaf, n_leaves;
    /* leaves */
    pq_type type;
    size_t width; /* PQ_FIXED: bytes of a value */
    mt_scalar scalar;
    int max_def, max_rep;
};

typedef struct pq_schema {
    pq_node root;           /* a struct that is always there */
    const pq_node **leaves; /* in the order of column chunks */
    size_t n_leaves;
} pq_schema;

/* Nodes live in `arena`, which must outlive all records (their keys point there). */
mt_rc mt__pq_schema_build(pq_schema *out, const pq_footer *footer, const mt_record_bytes *src, mt_arena *arena, mt_err *err);

/* ---- runs and deltas ---- */

typedef struct pq_runs {
    const uint8_t *p, *end;
    int width;     /* bits of a value, up to 32 */
    uint64_t left; /* values left in the current run */
    bool packed;   /* bit-packed: values at `bits`, from bit `at` on; else all are `value` */
    const uint8_t *bits;
    uint64_t at;
    uint32_t value;
} pq_runs;

void mt__pq_runs_init(pq_runs *r, const uint8_t *p, const uint8_t *end, int width);
/* Complaint if there are fewer than n. */
const char *mt__pq_runs_read(pq_runs *r, uint32_t *out, size_t n);

typedef struct pq_delta {
    const uint8_t *p, *end;
    uint64_t n_mini, per_mini; /* miniblocks in a block, values in a miniblock */
    uint64_t left;             /* values not yet read */
    bool first;                /* the first value, which stands in the header, is next */
    uint64_t value;            /* the one before (or the first) */
    uint64_t min_delta;
    const uint8_t *widths; /* of the current block's miniblocks */
    uint64_t mini;         /* the next of them */
    const uint8_t *bits;   /* the current miniblock */
    uint64_t at, mini_left;
    int width;
} pq_delta;

const char *mt__pq_delta_init(pq_delta *d, const uint8_t *p, const uint8_t *end);
const char *mt__pq_delta_read(pq_delta *d, int64_t *out, size_t n);
/* The byte after the last of its values; complaint if the blocks are truncated. */
const char *mt__pq_delta_end(const pq_delta *d, const uint8_t **out);

/* ---- values ---- */

typedef union pq_cell {
    int64_t i; /* booleans, integers */
    double f;
    struct {
        const uint8_t *p;
        size_t n;
    } bytes; /* byte arrays, fixed ones, INT96 */
} pq_cell;

enum { PQ_BATCH = 512 };

typedef struct pq_values {
    const pq_node *leaf;
    pq_encoding encoding;
    const uint8_t *p, *end;
    uint64_t bit;        /* plain booleans */
    pq_runs runs;        /* dictionary indices, RLE booleans */
    const pq_cell *dict; /* borrowed */
    size_t n_dict;
    pq_delta ints, prefixes; /* deltas: values or lengths; and lengths shared with the value before */
    size_t stride, index;    /* byte stream split */
    mt_arena joined;         /* delta byte arrays and split streams: bytes of the batch's values */
    mt_str previous;
} pq_values;

/* Start on a page's values; keeps its memory from page to page. */
const char *mt__pq_values_start(pq_values *v, const pq_node *leaf, int encoding, const uint8_t *p, const uint8_t *end,
                                const pq_cell *dict, size_t n_dict);
/* The next n (up to PQ_BATCH).  Bytes stay valid until the next call. */
const char *mt__pq_values_read(pq_values *v, pq_cell *out, size_t n);
void mt__pq_values_free(pq_values *v);

/* ---- columns ---- */

typedef struct pq_column {
    const mt_record_bytes *src;
    const pq_node *leaf;
    const uint8_t *p, *end; /* the rest of the chunk */
    int64_t chunk_left;     /* entries not yet in a page */
    mt_codec codec;
    int64_t page_left; /* entries of the page not yet in a batch */
    pq_runs reps, defs;
    pq_values values;
    uint8_t *page, *dict_page; /* decompressed */
    size_t cap_page, cap_dict_page;
    pq_cell *dict;
    size_t n_dict, cap_dict;
    size_t n, at;   /* entries of the batch, the current one */
    size_t at_cell; /* cells used: entries that are not null */
    uint8_t rep[PQ_BATCH], def[PQ_BATCH];
    pq_cell cells[PQ_BATCH];
} pq_column;

mt_rc mt__pq_column_start(pq_column *c, const mt_record_bytes *src, const pq_node *leaf, const pq_chunk *chunk, mt_err *err);
/* Make the current entry available; *more is false at the end of the chunk. */
mt_rc mt__pq_column_fill(pq_column *c, bool *more, mt_err *err);
void mt__pq_column_free(pq_column *c);

#endif
