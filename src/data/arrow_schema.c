/* arrow_schema.c - Schema.fbs to a tree of fields. */
#include "base/utf8.h"
#include "data/arrow.h"

#include <string.h>

enum { MAX_DEPTH = 48, MAX_FIELDS = 10000 };

/* The members of the union Type. */
enum {
    TYPE_NULL = 1,
    TYPE_INT,
    TYPE_FLOAT,
    TYPE_BINARY,
    TYPE_UTF8,
    TYPE_BOOL,
    TYPE_DECIMAL,
    TYPE_DATE,
    TYPE_TIME,
    TYPE_TIMESTAMP,
    TYPE_INTERVAL,
    TYPE_LIST,
    TYPE_STRUCT,
    TYPE_UNION,
    TYPE_FIXED_BINARY,
    TYPE_FIXED_LIST,
    TYPE_MAP,
    TYPE_DURATION,
    TYPE_LARGE_BINARY,
    TYPE_LARGE_UTF8,
    TYPE_LARGE_LIST,
    TYPE_RUN_END,
    TYPE_BINARY_VIEW,
    TYPE_UTF8_VIEW,
    TYPE_LIST_VIEW,
    TYPE_LARGE_LIST_VIEW,
};

typedef struct builder {
    const mt_record_bytes *src;
    ar_schema *schema;
    int depth;
    size_t name_bytes;
    mt_err *err;
} builder;

static mt_rc arrow_schema_bad(const builder *b, const ar_field *f, const char *message)
{
    return mt_fail(b->err, MT_EFORMAT, "%s: Arrow schema: column \"%s\": %s", b->src->path, f->name ? f->name : "", message);
}

static mt_rc unsupported(const builder *b, const ar_field *f, const char *what)
{
    return mt_fail(b->err, MT_EUNSUPPORTED, "%s: column \"%s\" is of type %s, which is not supported; write the file without it",
                   b->src->path, f->name, what);
}

static int64_t per_second(int64_t unit)
{
    static const int64_t of_unit[] = { 1, 1000, 1000000, 1000000000 };
    return of_unit[unit >= 0 && unit < 3 ? unit : 3];
}

static mt_rc int_type(const builder *b, ar_field *f, int64_t bits, bool is_signed)
{
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64) return arrow_schema_bad(b, f, "an integer of odd width");
    f->kind = AR_INT;
    f->width = (size_t)bits / 8;
    f->is_unsigned = !is_signed;
    f->scalar.kind = is_signed ? MT_SCALAR_INT : MT_SCALAR_UINT;
    return MT_OK;
}

static mt_rc float_type(const builder *b, ar_field *f, int64_t precision)
{
    if (precision < 0 || precision > 2) return arrow_schema_bad(b, f, "a float of unknown precision");
    f->kind = precision ? AR_FLOAT : AR_INT; /* half floats are read as 16 bits and converted */
    f->width = (size_t)2 << precision;
    f->scalar.kind = precision ? MT_SCALAR_FLOAT : MT_SCALAR_HALF;
    return MT_OK;
}

static mt_rc decimal_type(const builder *b, ar_field *f, mt_flat_table type)
{
    int64_t bits = mt__flat_int(type, 2, 4, 128), scale = mt__flat_int(type, 1, 4, 0);
    if (bits != 32 && bits != 64 && bits != 128 && bits != 256) return arrow_schema_bad(b, f, "a decimal of odd width");
    if (scale < -76 || scale > 76) return arrow_schema_bad(b, f, "a decimal with an absurd scale");
    f->kind = AR_FIXED;
    f->width = (size_t)bits / 8;
    f->scalar = (mt_scalar){ .kind = MT_SCALAR_DECIMAL, .scale = (int)scale };
    return MT_OK;
}

static mt_rc moment_type(const builder *b, ar_field *f, int64_t which, mt_flat_table type)
{
    size_t zone_n = 0;
    f->kind = AR_INT;
    f->width = 8;
    if (which == TYPE_DATE) {
        bool days = mt__flat_int(type, 0, 2, 1) == 0;
        f->width = days ? 4 : 8;
        f->scalar.kind = days ? MT_SCALAR_DATE : MT_SCALAR_DATE_MS;
    } else if (which == TYPE_TIME) {
        int64_t bits = mt__flat_int(type, 1, 4, 32);
        if (bits != 32 && bits != 64) return arrow_schema_bad(b, f, "a time of odd width");
        f->width = (size_t)bits / 8;
        f->scalar = (mt_scalar){ .kind = MT_SCALAR_TIME, .per_second = per_second(mt__flat_int(type, 0, 2, 1)) };
    } else if (which == TYPE_TIMESTAMP) {
        (void)mt__flat_string(type, 1, &zone_n);
        f->scalar =
            (mt_scalar){ .kind = MT_SCALAR_TIMESTAMP, .per_second = per_second(mt__flat_int(type, 0, 2, 0)), .utc = zone_n > 0 };
    } else
        f->scalar.kind = MT_SCALAR_INT; /* a duration: its number */
    return MT_OK;
}

static mt_rc fixed_type(const builder *b, ar_field *f, mt_flat_table type)
{
    int64_t width = mt__flat_int(type, 0, 4, 0);
    if (width < 0 || width > 1 << 24) return arrow_schema_bad(b, f, "a fixed size that makes no sense");
    f->kind = AR_FIXED;
    f->width = (size_t)width;
    f->scalar.kind = MT_SCALAR_BYTES;
    return MT_OK;
}

static mt_rc nested(const builder *b, ar_field *f, ar_kind kind, size_t offset_width)
{
    f->kind = kind;
    f->width = offset_width;
    if (kind != AR_STRUCT && f->n_children != 1) return arrow_schema_bad(b, f, "a list without its item");
    bool pairs =
        kind != AR_MAP || (f->children[0].kind == AR_STRUCT && f->children[0].n_children == 2 && !f->children[0].encoded);
    return pairs ? MT_OK : arrow_schema_bad(b, f, "a map without key and value");
}

static mt_rc bytes(ar_field *f, ar_kind kind, size_t offset_width)
{
    f->kind = kind;
    f->width = offset_width;
    f->scalar.kind = MT_SCALAR_BYTES;
    return MT_OK;
}

static mt_rc read_type(const builder *b, ar_field *f, int64_t which, mt_flat_table type)
{
    switch (which) {
    case TYPE_NULL: f->kind = AR_NULL; return MT_OK;
    case TYPE_BOOL: f->kind = AR_BOOL; return MT_OK;
    case TYPE_INT: return int_type(b, f, mt__flat_int(type, 0, 4, 0), mt__flat_bool(type, 1));
    case TYPE_FLOAT: return float_type(b, f, mt__flat_int(type, 0, 2, 0));
    case TYPE_BINARY:
    case TYPE_UTF8: return bytes(f, AR_BYTES, 4);
    case TYPE_LARGE_BINARY:
    case TYPE_LARGE_UTF8: return bytes(f, AR_BYTES, 8);
    case TYPE_BINARY_VIEW:
    case TYPE_UTF8_VIEW: return bytes(f, AR_VIEW, 16);
    case TYPE_DECIMAL: return decimal_type(b, f, type);
    case TYPE_DATE:
    case TYPE_TIME:
    case TYPE_TIMESTAMP:
    case TYPE_DURATION: return moment_type(b, f, which, type);
    case TYPE_FIXED_BINARY: return fixed_type(b, f, type);
    case TYPE_LIST: return nested(b, f, AR_LIST, 4);
    case TYPE_LARGE_LIST: return nested(b, f, AR_LIST, 8);
    case TYPE_LIST_VIEW: return nested(b, f, AR_LIST_VIEW, 4);
    case TYPE_LARGE_LIST_VIEW: return nested(b, f, AR_LIST_VIEW, 8);
    case TYPE_STRUCT: return nested(b, f, AR_STRUCT, 0);
    case TYPE_MAP: return nested(b, f, AR_MAP, 4);
    case TYPE_FIXED_LIST:
        f->list_size = mt__flat_int(type, 0, 4, 0);
        return f->list_size < 0 ? arrow_schema_bad(b, f, "a list of negative size") : nested(b, f, AR_FIXED_LIST, 0);
    case TYPE_INTERVAL: return unsupported(b, f, "interval");
    case TYPE_UNION: return unsupported(b, f, "union");
    case TYPE_RUN_END: return unsupported(b, f, "run-end-encoded");
    default: return unsupported(b, f, "unknown to this program");
    }
}

static mt_rc read_field(builder *b, ar_field *f, mt_flat_table t);

static mt_rc read_fields(builder *b, ar_field *f, mt_flat_vector list)
{
    /* Counted before there is memory for them: an offset of four bytes becomes a field of a hundred. */
    if (list.n > MAX_FIELDS - b->schema->n_fields) return arrow_schema_bad(b, f, "too many columns");
    b->schema->n_fields += list.n;
    f->n_children = list.n;
    f->children = mt_arena_calloc(b->src->keep, list.n, sizeof *f->children);
    if (!f->children) return mt_no_memory(b->err, "the schema of %s", b->src->path);
    for (size_t i = 0; i < list.n; i++) MT_TRY(read_field(b, &f->children[i], mt__flat_item(list, i)));
    return MT_OK;
}

/* DictionaryEncoding: { id: long, indexType: Int, ... }; without indexType it is a signed 32-bit one. */
static mt_rc read_encoding(const builder *b, ar_field *f, mt_flat_table encoding)
{
    if (!encoding.at) return MT_OK;
    mt_flat_table index = mt__flat_child(encoding, 1);
    int64_t bits = index.at ? mt__flat_int(index, 0, 4, 0) : 32;
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64) return arrow_schema_bad(b, f, "dictionary indices of odd width");
    f->encoded = true;
    f->dictionary = mt__flat_int(encoding, 0, 8, 0);
    f->index_width = (size_t)bits / 8;
    f->index_unsigned = index.at && !mt__flat_bool(index, 1);
    return MT_OK;
}

static mt_rc read_field(builder *b, ar_field *f, mt_flat_table t)
{
    size_t n;
    const char *name = mt__flat_string(t, 0, &n);
    if (++b->depth > MAX_DEPTH) return arrow_schema_bad(b, f, "nested too deep");
    if (name && !mt_utf8_valid(name, n, NULL)) return arrow_schema_bad(b, f, "a name that is not UTF-8");
    /* Many fields of a flat buffer can point to one name, and each copies it. */
    b->name_bytes += name ? n : 0;
    if (b->name_bytes > t.buf->size) return arrow_schema_bad(b, f, "columns have longer names than the schema");
    f->name = mt_arena_strndup(b->src->keep, name ? name : "", name ? n : 0);
    f->name_n = name ? n : 0;
    if (!f->name) return mt_no_memory(b->err, "the schema of %s", b->src->path);
    MT_TRY(read_fields(b, f, mt__flat_list(t, 5, 4)));
    MT_TRY(read_encoding(b, f, mt__flat_child(t, 4)));
    MT_TRY(read_type(b, f, mt__flat_int(t, 2, 1, 0), mt__flat_child(t, 3)));
    b->depth--;
    return MT_OK;
}

mt_rc mt__ar_schema_read(ar_schema *out, mt_flat_table schema, const mt_record_bytes *src, mt_err *err)
{
    *out = (ar_schema){ .root = { .kind = AR_STRUCT, .name = "" } };
    builder b = { .src = src, .schema = out, .err = err };
    if (!schema.at) return arrow_schema_bad(&b, &out->root, "it is missing");
    if (mt__flat_int(schema, 0, 2, 0) != 0)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: big-endian Arrow data is not supported", src->path);
    MT_TRY(read_fields(&b, &out->root, mt__flat_list(schema, 1, 4)));
    if (schema.buf->bad) return arrow_schema_bad(&b, &out->root, "damaged");
    for (size_t i = 0; i < out->root.n_children; i++)
        out->root.children[i].wanted = mt__column_wanted(&src->opt, out->root.children[i].name);
    return MT_OK;
}

const ar_field *mt__ar_dictionary_field(const ar_field *f, int64_t id)
{
    if (f->encoded && f->dictionary == id) return f;
    for (size_t i = 0; i < f->n_children; i++) {
        const ar_field *hit = mt__ar_dictionary_field(&f->children[i], id);
        if (hit) return hit;
    }
    return NULL;
}
