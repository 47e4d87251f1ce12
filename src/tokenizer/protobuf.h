/* protobuf.h - just enough of the wire format to walk a message: (field, value) pairs, every length checked. */
#ifndef MT_TOKENIZER_PROTOBUF_H
#define MT_TOKENIZER_PROTOBUF_H

#include "base/mem.h"

typedef struct mt_pb {
    const uint8_t *p, *end;
    bool bad; /* set when the bytes are not a message */
} mt_pb;

typedef struct mt_pb_field {
    uint32_t number;
    uint8_t wire;         /* 0 varint, 1 fixed64, 2 bytes, 5 fixed32 */
    uint64_t value;       /* wire 0, 1 and 5 */
    const uint8_t *bytes; /* wire 2; points into the message */
    size_t n;
} mt_pb_field;

/* The next field; false at the end or when the message is bad. */
bool mt_pb_next(mt_pb *pb, mt_pb_field *out);

#endif
