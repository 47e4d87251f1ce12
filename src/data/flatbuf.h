/* flatbuf.h - reading FlatBuffers without generated code, every offset checked.
 *
 * A table is a place in a buffer.  Absent fields give the default (or an absent table), as the format wants.
 * An offset that leads out of the buffer sets `bad` in the buffer and reads as absent: check it at the end. */
#ifndef MT_DATA_FLATBUF_H
#define MT_DATA_FLATBUF_H

#include "base/mem.h"

typedef struct mt_flatbuf {
    const uint8_t *data;
    size_t size;
    bool bad;
} mt_flatbuf;

typedef struct mt_flat_table {
    mt_flatbuf *buf;
    size_t at; /* 0: absent */
} mt_flat_table;

typedef struct mt_flat_vector {
    mt_flatbuf *buf;
    size_t at, n, item_bytes; /* at: the first item */
} mt_flat_vector;

mt_flat_table mt__flat_root(mt_flatbuf *buf);
/* Fields are numbered from 0 in the order of the schema; unions count twice (type, value). */
int64_t mt__flat_int(mt_flat_table t, int field, size_t bytes, int64_t fallback); /* bytes 1, 2, 4 or 8, signed */
bool mt__flat_bool(mt_flat_table t, int field);
mt_flat_table mt__flat_child(mt_flat_table t, int field);
/* Not terminated; NULL: absent. */
const char *mt__flat_string(mt_flat_table t, int field, size_t *n);
mt_flat_vector mt__flat_list(mt_flat_table t, int field, size_t item_bytes);
/* Items of a vector of tables (item_bytes 4), or an integer inside a vector of structs. */
mt_flat_table mt__flat_item(mt_flat_vector v, size_t i);
int64_t mt__flat_item_int(mt_flat_vector v, size_t i, size_t offset, size_t bytes);

#endif
