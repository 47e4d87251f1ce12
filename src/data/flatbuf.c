#include "data/flatbuf.h"

#include "base/le.h"

static bool inside(mt_flatbuf *b, size_t at, size_t n)
{
    if (at <= b->size && n <= b->size - at) return true;
    b->bad = true;
    return false;
}

static int64_t flatbuf_load(const mt_flatbuf *b, size_t at, size_t bytes)
{
    const uint8_t *p = b->data + at;
    switch (bytes) {
    case 1: return (int8_t)*p;
    case 2: return (int16_t)mt__le16(p);
    case 4: return (int32_t)mt__le32(p);
    default: return (int64_t)mt__le64(p);
    }
}

/* The place an offset at `at` points to (offsets are unsigned and count from themselves); 0: out of bounds. */
static size_t follow(mt_flatbuf *b, size_t at, size_t need)
{
    if (!inside(b, at, 4)) return 0;
    size_t to = at + (uint32_t)flatbuf_load(b, at, 4);
    return inside(b, to, need) ? to : 0;
}

mt_flat_table mt__flat_root(mt_flatbuf *buf) { return (mt_flat_table){ buf, follow(buf, 0, 4) }; }

/* The offset of the field; 0: absent. */
static size_t flatbuf_find(mt_flat_table t, int field, size_t bytes)
{
    if (!t.at) return 0;
    int64_t vtable = (int64_t)t.at - flatbuf_load(t.buf, t.at, 4);
    if (vtable < 0 || !inside(t.buf, (size_t)vtable, 4)) return t.buf->bad = true, 0;
    size_t vtable_bytes = (uint16_t)flatbuf_load(t.buf, (size_t)vtable, 2), slot = 4 + 2 * (size_t)field;
    if (slot + 2 > vtable_bytes || !inside(t.buf, (size_t)vtable + slot, 2)) return 0;
    size_t offset = (uint16_t)flatbuf_load(t.buf, (size_t)vtable + slot, 2);
    return offset && inside(t.buf, t.at + offset, bytes) ? t.at + offset : 0;
}

int64_t mt__flat_int(mt_flat_table t, int field, size_t bytes, int64_t fallback)
{
    size_t at = flatbuf_find(t, field, bytes);
    return at ? flatbuf_load(t.buf, at, bytes) : fallback;
}

bool mt__flat_bool(mt_flat_table t, int field) { return mt__flat_int(t, field, 1, 0) != 0; }

mt_flat_table mt__flat_child(mt_flat_table t, int field)
{
    size_t at = flatbuf_find(t, field, 4);
    return (mt_flat_table){ t.buf, at ? follow(t.buf, at, 4) : 0 };
}

mt_flat_vector mt__flat_list(mt_flat_table t, int field, size_t item_bytes)
{
    size_t at = flatbuf_find(t, field, 4);
    at = at ? follow(t.buf, at, 4) : 0;
    mt_flat_vector v = { .buf = t.buf, .at = at + 4, .item_bytes = item_bytes };
    if (!at) return v;
    size_t n = (uint32_t)flatbuf_load(t.buf, at, 4), bytes;
    if (mt_mul_size(n, item_bytes, &bytes) && inside(t.buf, at + 4, bytes)) v.n = n;
    return v;
}

const char *mt__flat_string(mt_flat_table t, int field, size_t *n)
{
    mt_flat_vector v = mt__flat_list(t, field, 1);
    *n = v.n;
    return v.at > 4 ? (const char *)v.buf->data + v.at : NULL;
}

mt_flat_table mt__flat_item(mt_flat_vector v, size_t i) { return (mt_flat_table){ v.buf, follow(v.buf, v.at + 4 * i, 4) }; }

int64_t mt__flat_item_int(mt_flat_vector v, size_t i, size_t offset, size_t bytes)
{
    return flatbuf_load(v.buf, v.at + i * v.item_bytes + offset, bytes);
}
