#include "tokenizer/protobuf.h"

static uint64_t varint(mt_pb *pb)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (pb->p == pb->end) break;
        uint8_t byte = *pb->p++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return v;
    }
    pb->bad = true;
    return 0;
}

static uint64_t fixed(mt_pb *pb, int bytes)
{
    uint64_t v = 0;
    if (pb->end - pb->p < bytes) {
        pb->bad = true;
        return 0;
    }
    for (int i = 0; i < bytes; i++) v |= (uint64_t)pb->p[i] << (8 * i);
    pb->p += bytes;
    return v;
}

bool mt_pb_next(mt_pb *pb, mt_pb_field *out)
{
    if (pb->bad || pb->p == pb->end) return false;
    uint64_t key = varint(pb);
    *out = (mt_pb_field){ .number = (uint32_t)(key >> 3), .wire = (uint8_t)(key & 7) };
    switch (out->wire) {
    case 0: out->value = varint(pb); break;
    case 1: out->value = fixed(pb, 8); break;
    case 5: out->value = fixed(pb, 4); break;
    case 2:
        out->value = varint(pb);
        if (out->value > (uint64_t)(pb->end - pb->p)) pb->bad = true;
        if (pb->bad) break;
        out->bytes = pb->p;
        out->n = (size_t)out->value;
        pb->p += out->n;
        break;
    default: pb->bad = true;
    }
    return !pb->bad && out->number;
}
