/* thrift.h - reading Thrift's compact protocol, which Parquet's metadata is written in.
 *
 * Failure is sticky: after it every read gives zero and every struct ends, so callers check `failed` once. */
#ifndef MT_DATA_THRIFT_H
#define MT_DATA_THRIFT_H

#include "base/mem.h"

typedef enum mt_thrift_type {
    MT_THRIFT_STOP = 0,
    MT_THRIFT_TRUE = 1,
    MT_THRIFT_FALSE = 2,
    MT_THRIFT_BYTE = 3,
    MT_THRIFT_I16 = 4,
    MT_THRIFT_I32 = 5,
    MT_THRIFT_I64 = 6,
    MT_THRIFT_DOUBLE = 7,
    MT_THRIFT_BINARY = 8,
    MT_THRIFT_LIST = 9,
    MT_THRIFT_SET = 10,
    MT_THRIFT_MAP = 11,
    MT_THRIFT_STRUCT = 12,
} mt_thrift_type;

typedef struct mt_thrift {
    const uint8_t *p, *end;
    bool failed;
    int depth;
} mt_thrift;

typedef struct mt_thrift_field {
    int id; /* 0 before the first */
    int type;
} mt_thrift_field;

/* The next field of the struct being read; false at its end.  Start with a zeroed field. */
bool mt__thrift_next(mt_thrift *t, mt_thrift_field *f);
/* The value of the field, if it has the type that the call is for; anything else fails. */
int64_t mt__thrift_int(mt_thrift *t, const mt_thrift_field *f);
bool mt__thrift_bool(mt_thrift *t, const mt_thrift_field *f);
const uint8_t *mt__thrift_binary(mt_thrift *t, const mt_thrift_field *f, size_t *n);
/* How many items follow; each takes at least a byte, so never more than there are bytes. */
size_t mt__thrift_list(mt_thrift *t, const mt_thrift_field *f, int *item_type);
/* True if the field is a struct, whose fields come next. */
bool mt__thrift_enter(mt_thrift *t, const mt_thrift_field *f);
void mt__thrift_skip(mt_thrift *t, const mt_thrift_field *f);

/* An unsigned LEB128 number; false past the end. */
bool mt__varint(const uint8_t **p, const uint8_t *end, uint64_t *out);
static inline int64_t mt__zigzag(uint64_t u) { return (int64_t)(u >> 1) ^ -(int64_t)(u & 1); }

#endif
