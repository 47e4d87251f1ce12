/* scalar.h - what a single column value means: the logical types that Parquet and Arrow share, as values.
 *
 * Dates, times and timestamps become ISO 8601 text as Python's isoformat() writes it, decimals plain digits,
 * bytes text if they are UTF-8.  Integers past 64 signed bits keep their digits, as in JSON. */
#ifndef MT_DATA_SCALAR_H
#define MT_DATA_SCALAR_H

#include "base/value.h"

typedef enum mt_scalar_kind {
    MT_SCALAR_NULL,
    MT_SCALAR_BOOL,
    MT_SCALAR_INT,
    MT_SCALAR_UINT,
    MT_SCALAR_FLOAT,
    MT_SCALAR_HALF,      /* 16 bits */
    MT_SCALAR_BYTES,     /* text */
    MT_SCALAR_DATE,      /* days since 1970 */
    MT_SCALAR_DATE_MS,   /* milliseconds since 1970, whole days */
    MT_SCALAR_TIME,      /* units since midnight */
    MT_SCALAR_TIMESTAMP, /* units since 1970 */
    MT_SCALAR_DECIMAL,   /* an integer of up to 32 bytes, and a scale */
    MT_SCALAR_INT96,     /* Parquet's old timestamp: nanoseconds of the day, Julian day */
    MT_SCALAR_UUID,
} mt_scalar_kind;

typedef struct mt_scalar {
    mt_scalar_kind kind;
    int64_t per_second; /* times: 1, 1000, 10^6 or 10^9 units */
    bool utc;           /* timestamps: marked with +00:00 */
    int scale;          /* decimals: digits after the point */
    bool big_endian;    /* decimals: order of the bytes (Parquet) */
} mt_scalar;

/* Each sets *out; false: no memory.  *trouble (NULL before) says why a value cannot be represented. */
bool mt__scalar_from_int(mt_value *out, const mt_scalar *t, int64_t v, mt_arena *arena);
bool mt__scalar_from_bytes(mt_value *out, const mt_scalar *t, const uint8_t *p, size_t n, bool borrow, mt_arena *arena,
                           const char **trouble);
static inline mt_value mt__scalar_float(double f) { return (mt_value){ .type = MT_VALUE_FLOAT, .f = f }; }

/* n keys and values, one after the other, as a map; as a list of {"key", "value"} if a key is not a string. */
bool mt__map_from_items(mt_value *out, const mt_value *items, size_t n, mt_arena *arena);

#endif
