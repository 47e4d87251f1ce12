#include "data/thrift.h"

enum { MAX_DEPTH = 64 };

static void fail(mt_thrift *t)
{
    t->failed = true;
    t->p = t->end;
}

bool mt__varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && *p < end; shift += 7) {
        uint8_t b = *(*p)++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return *out = v, true;
    }
    return false;
}

static uint64_t varint(mt_thrift *t)
{
    uint64_t v = 0;
    if (!mt__varint(&t->p, t->end, &v)) fail(t);
    return t->failed ? 0 : v;
}

static int byte(mt_thrift *t)
{
    if (t->p < t->end) return *t->p++;
    fail(t);
    return 0;
}

bool mt__thrift_next(mt_thrift *t, mt_thrift_field *f)
{
    int head = byte(t);
    f->type = head & 15;
    if (f->type == MT_THRIFT_STOP || t->failed) return false;
    int64_t id = head >> 4 ? f->id + (head >> 4) : mt__zigzag(varint(t));
    if (f->type > MT_THRIFT_STRUCT || id < 0 || id > INT16_MAX) fail(t);
    f->id = (int)id;
    return !t->failed;
}

int64_t mt__thrift_int(mt_thrift *t, const mt_thrift_field *f)
{
    if (f->type == MT_THRIFT_BYTE) return (int8_t)byte(t);
    if (f->type >= MT_THRIFT_I16 && f->type <= MT_THRIFT_I64) return mt__zigzag(varint(t));
    fail(t);
    return 0;
}

bool mt__thrift_bool(mt_thrift *t, const mt_thrift_field *f)
{
    if (f->type != MT_THRIFT_TRUE && f->type != MT_THRIFT_FALSE) fail(t);
    return f->type == MT_THRIFT_TRUE;
}

const uint8_t *mt__thrift_binary(mt_thrift *t, const mt_thrift_field *f, size_t *n)
{
    uint64_t len = f->type == MT_THRIFT_BINARY ? varint(t) : UINT64_MAX;
    if (len > (uint64_t)(t->end - t->p)) {
        fail(t);
        len = 0;
    }
    const uint8_t *s = t->p;
    t->p += len;
    *n = (size_t)len;
    return s;
}

size_t mt__thrift_list(mt_thrift *t, const mt_thrift_field *f, int *item_type)
{
    if (f->type != MT_THRIFT_LIST && f->type != MT_THRIFT_SET) fail(t);
    int head = byte(t);
    uint64_t n = head >> 4 == 15 ? varint(t) : (uint64_t)(head >> 4);
    *item_type = head & 15;
    if (n > (uint64_t)(t->end - t->p)) fail(t);
    return t->failed ? 0 : (size_t)n;
}

bool mt__thrift_enter(mt_thrift *t, const mt_thrift_field *f)
{
    if (f->type == MT_THRIFT_STRUCT) return true;
    fail(t);
    return false;
}

/* Inside lists a boolean is a separate byte; as a field it is in the header. */
static void skip_item(mt_thrift *t, int type)
{
    if (type == MT_THRIFT_TRUE || type == MT_THRIFT_FALSE)
        (void)byte(t);
    else
        mt__thrift_skip(t, &(mt_thrift_field){ .type = type });
}

static void skip_list(mt_thrift *t, const mt_thrift_field *f)
{
    int type;
    size_t n = mt__thrift_list(t, f, &type);
    for (size_t i = 0; i < n && !t->failed; i++) skip_item(t, type);
}

static void skip_map(mt_thrift *t)
{
    uint64_t n = varint(t);
    int types = n ? byte(t) : 0;
    for (uint64_t i = 0; i < n && !t->failed; i++) {
        skip_item(t, types >> 4);
        skip_item(t, types & 15);
    }
}

static void skip_struct(mt_thrift *t)
{
    mt_thrift_field f = { 0 };
    while (mt__thrift_next(t, &f)) mt__thrift_skip(t, &f);
}

void mt__thrift_skip(mt_thrift *t, const mt_thrift_field *f)
{
    size_t n;
    if (++t->depth > MAX_DEPTH) fail(t);
    switch (t->failed ? MT_THRIFT_TRUE : f->type) {
    case MT_THRIFT_TRUE:
    case MT_THRIFT_FALSE: break;
    case MT_THRIFT_BYTE: (void)byte(t); break;
    case MT_THRIFT_I16:
    case MT_THRIFT_I32:
    case MT_THRIFT_I64: (void)varint(t); break;
    case MT_THRIFT_DOUBLE:
        if (t->end - t->p < 8)
            fail(t);
        else
            t->p += 8;
        break;
    case MT_THRIFT_BINARY: (void)mt__thrift_binary(t, f, &n); break;
    case MT_THRIFT_LIST:
    case MT_THRIFT_SET: skip_list(t, f); break;
    case MT_THRIFT_MAP: skip_map(t); break;
    case MT_THRIFT_STRUCT: skip_struct(t); break;
    default: fail(t);
    }
    t->depth--;
}
