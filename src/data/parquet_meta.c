/* parquet_meta.c - Parquet's footer (FileMetaData in parquet.thrift), as far as reading rows needs it. */
#include "base/le.h"
#include "data/parquet.h"
#include "data/thrift.h"

#include <string.h>

static int64_t unit_per_second(int id)
{
    if (id == 1) return 1000;
    return id == 2 ? 1000000 : 1000000000;
}

/* TimeType and TimestampType: { 1: bool isAdjustedToUTC, 2: union unit { 1: millis 2: micros 3: nanos } } */
static void read_time_type(mt_thrift *t, mt_scalar *s)
{
    mt_thrift_field f = { 0 };
    while (mt__thrift_next(t, &f)) {
        if (f.id == 1)
            s->utc = mt__thrift_bool(t, &f);
        else if (f.id == 2 && mt__thrift_enter(t, &f)) {
            mt_thrift_field u = { 0 };
            while (mt__thrift_next(t, &u)) {
                s->per_second = unit_per_second(u.id);
                mt__thrift_skip(t, &u);
            }
        } else
            mt__thrift_skip(t, &f);
    }
}

/* IntType: { 1: byte bitWidth, 2: bool isSigned } */
static void read_int_type(mt_thrift *t, pq_element *e)
{
    mt_thrift_field f = { 0 };
    e->scalar.kind = MT_SCALAR_INT;
    while (mt__thrift_next(t, &f)) {
        if (f.id == 2)
            e->scalar.kind = mt__thrift_bool(t, &f) ? MT_SCALAR_INT : MT_SCALAR_UINT;
        else
            mt__thrift_skip(t, &f);
    }
}

static int small_int(mt_thrift *t, const mt_thrift_field *f)
{
    int64_t v = mt__thrift_int(t, f);
    return v < -1000000 || v > 1000000 ? 1000000 : (int)v; /* scales and enums; nonsense stays nonsense */
}

/* DecimalType: { 1: i32 scale, 2: i32 precision } */
static void read_decimal_type(mt_thrift *t, mt_scalar *s)
{
    mt_thrift_field f = { 0 };
    while (mt__thrift_next(t, &f)) {
        if (f.id == 1)
            s->scale = small_int(t, &f);
        else
            mt__thrift_skip(t, &f);
    }
}

/* The union LogicalType: its one field's id says which. */
static void read_logical_type(mt_thrift *t, pq_element *e)
{
    static const mt_scalar_kind kinds[16] = {
        [1] = MT_SCALAR_BYTES,  [4] = MT_SCALAR_BYTES,     [5] = MT_SCALAR_DECIMAL, [6] = MT_SCALAR_DATE,
        [7] = MT_SCALAR_TIME,   [8] = MT_SCALAR_TIMESTAMP, [10] = MT_SCALAR_INT,    [12] = MT_SCALAR_BYTES,
        [13] = MT_SCALAR_BYTES, [14] = MT_SCALAR_UUID,     [15] = MT_SCALAR_HALF,
    };
    mt_thrift_field f = { 0 };
    while (mt__thrift_next(t, &f)) {
        e->note = PQ_NOTE_SCALAR;
        if (f.id == 2) e->note = PQ_NOTE_MAP;
        if (f.id == 3) e->note = PQ_NOTE_LIST;
        e->scalar.kind = f.id < 16 ? kinds[f.id] : MT_SCALAR_NULL;
        if (e->scalar.kind == MT_SCALAR_NULL && e->note == PQ_NOTE_SCALAR) e->note = PQ_NOTE_NONE;
        if (f.type != MT_THRIFT_STRUCT)
            mt__thrift_skip(t, &f);
        else if (f.id == 5)
            read_decimal_type(t, &e->scalar);
        else if (f.id == 7 || f.id == 8)
            read_time_type(t, &e->scalar);
        else if (f.id == 10)
            read_int_type(t, e);
        else
            mt__thrift_skip(t, &f);
    }
}

/* The annotations before there were logical types. */
static void read_converted_type(int c, pq_element *e)
{
    if (e->note != PQ_NOTE_NONE) return; /* a logical type says more */
    e->note = PQ_NOTE_SCALAR;
    if (c == 0 || c == 4 || c == 19 || c == 20)
        e->scalar.kind = MT_SCALAR_BYTES;
    else if (c == 1 || c == 2)
        e->note = PQ_NOTE_MAP;
    else if (c == 3)
        e->note = PQ_NOTE_LIST;
    else if (c == 5)
        e->scalar.kind = MT_SCALAR_DECIMAL;
    else if (c == 6)
        e->scalar.kind = MT_SCALAR_DATE;
    else if (c == 7 || c == 8)
        e->scalar = (mt_scalar){ .kind = MT_SCALAR_TIME, .per_second = c == 7 ? 1000 : 1000000 };
    else if (c == 9 || c == 10)
        e->scalar = (mt_scalar){ .kind = MT_SCALAR_TIMESTAMP, .per_second = c == 9 ? 1000 : 1000000, .utc = true };
    else if (c >= 11 && c <= 18)
        e->scalar.kind = c <= 14 ? MT_SCALAR_UINT : MT_SCALAR_INT;
    else
        e->note = PQ_NOTE_NONE;
}

static void read_element(mt_thrift *t, pq_footer *m, pq_element *e)
{
    mt_thrift_field f = { 0 };
    int converted = -1, scale = 0;
    size_t n;
    *e = (pq_element){ .type = -1, .name = "" };
    while (mt__thrift_next(t, &f)) {
        switch (f.id) {
        case 1: e->type = small_int(t, &f); break;
        case 2: e->type_length = mt__thrift_int(t, &f); break;
        case 3: e->repetition = small_int(t, &f); break;
        case 4: {
            const uint8_t *s = mt__thrift_binary(t, &f, &n);
            e->name = mt_arena_strndup(&m->arena, (const char *)s, n);
            if (!e->name) m->no_memory = true, e->name = "";
            break;
        }
        case 5: e->n_children = mt__thrift_int(t, &f); break;
        case 6: converted = small_int(t, &f); break;
        case 7: scale = small_int(t, &f); break;
        case 10:
            if (mt__thrift_enter(t, &f)) read_logical_type(t, e);
            break;
        default: mt__thrift_skip(t, &f);
        }
    }
    read_converted_type(converted, e);
    if (e->scalar.kind == MT_SCALAR_DECIMAL && scale) e->scalar.scale = scale;
}

typedef struct chunk_facts {
    int64_t n_values, n_bytes, data_at, dict_at;
    int type, codec;
    bool elsewhere, encrypted, has_meta;
} chunk_facts;

static void read_column_meta(mt_thrift *t, chunk_facts *c)
{
    mt_thrift_field f = { 0 };
    c->has_meta = true;
    while (mt__thrift_next(t, &f)) {
        switch (f.id) {
        case 1: c->type = small_int(t, &f); break;
        case 4: c->codec = small_int(t, &f); break;
        case 5: c->n_values = mt__thrift_int(t, &f); break;
        case 7: c->n_bytes = mt__thrift_int(t, &f); break;
        case 9: c->data_at = mt__thrift_int(t, &f); break;
        case 11: c->dict_at = mt__thrift_int(t, &f); break;
        default: mt__thrift_skip(t, &f);
        }
    }
}

static void read_chunk_facts(mt_thrift *t, chunk_facts *c)
{
    mt_thrift_field f = { 0 };
    *c = (chunk_facts){ 0 };
    while (mt__thrift_next(t, &f)) {
        if (f.id == 3 && mt__thrift_enter(t, &f)) {
            read_column_meta(t, c);
            continue;
        }
        if (f.id == 1) {
            size_t n;
            (void)mt__thrift_binary(t, &f, &n);
            c->elsewhere = n > 0;
            continue;
        }
        if (f.id == 8 || f.id == 9) c->encrypted = true;
        mt__thrift_skip(t, &f);
    }
}

static mt_rc check_chunk(pq_chunk *out, const chunk_facts *c, const mt_record_bytes *src, mt_err *err)
{
    if (c->encrypted) return mt_fail(err, MT_EUNSUPPORTED, "%s: encrypted columns are not read", src->path);
    if (c->elsewhere)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: its columns are in other files, which is not supported", src->path);
    int64_t start = c->dict_at > 0 && c->dict_at < c->data_at ? c->dict_at : c->data_at;
    if (!c->has_meta || start < 0 || c->n_bytes < 0 || c->n_values < 0 || (uint64_t)start > src->size ||
        (uint64_t)c->n_bytes > src->size - (uint64_t)start)
        return mt_fail(err, MT_EFORMAT, "%s: a column claims %lld bytes at byte %lld; the file has %zu", src->path,
                       (long long)c->n_bytes, (long long)start, src->size);
    *out = (pq_chunk){
        .start = (uint64_t)start, .n_bytes = (uint64_t)c->n_bytes, .n_values = c->n_values, .type = c->type, .codec = c->codec
    };
    return MT_OK;
}

static mt_rc read_chunks(mt_thrift *t, const mt_thrift_field *f, pq_footer *m, pq_group *g, const mt_record_bytes *src,
                         mt_err *err)
{
    int type;
    size_t n = mt__thrift_list(t, f, &type);
    g->chunks = mt_arena_calloc(&m->arena, n, sizeof *g->chunks);
    if (!g->chunks) return mt_no_memory(err, "the description of %s", src->path);
    for (; g->n_chunks < n && type == MT_THRIFT_STRUCT && !t->failed; g->n_chunks++) {
        chunk_facts facts;
        read_chunk_facts(t, &facts);
        if (t->failed) break;
        MT_TRY(check_chunk(&g->chunks[g->n_chunks], &facts, src, err));
    }
    return MT_OK;
}

static mt_rc read_groups(mt_thrift *t, const mt_thrift_field *f, pq_footer *m, const mt_record_bytes *src, mt_err *err)
{
    int type;
    size_t n = mt__thrift_list(t, f, &type);
    m->groups = mt_arena_calloc(&m->arena, n, sizeof *m->groups);
    if (!m->groups) return mt_no_memory(err, "the description of %s", src->path);
    for (; m->n_groups < n && type == MT_THRIFT_STRUCT && !t->failed; m->n_groups++) {
        pq_group *g = &m->groups[m->n_groups];
        mt_thrift_field in = { 0 };
        while (mt__thrift_next(t, &in)) {
            if (in.id == 1 && !g->chunks) /* a second list is not looked at */
                MT_TRY(read_chunks(t, &in, m, g, src, err));
            else if (in.id == 3)
                g->n_rows = mt__thrift_int(t, &in);
            else
                mt__thrift_skip(t, &in);
        }
        if (g->n_rows < 0 || __builtin_add_overflow(m->n_rows, g->n_rows, &m->n_rows))
            return mt_fail(err, MT_EFORMAT, "%s: a row group of %lld rows", src->path, (long long)g->n_rows);
    }
    return MT_OK;
}

static mt_rc read_elements(mt_thrift *t, const mt_thrift_field *f, pq_footer *m, const mt_record_bytes *src, mt_err *err)
{
    int type;
    size_t n = mt__thrift_list(t, f, &type);
    m->elements = mt_arena_calloc(&m->arena, n, sizeof *m->elements);
    if (!m->elements) return mt_no_memory(err, "the description of %s", src->path);
    for (; m->n_elements < n && type == MT_THRIFT_STRUCT && !t->failed; m->n_elements++)
        read_element(t, m, &m->elements[m->n_elements]);
    return m->no_memory ? mt_no_memory(err, "the description of %s", src->path) : MT_OK;
}

static mt_rc read_footer(mt_thrift *t, pq_footer *m, const mt_record_bytes *src, mt_err *err)
{
    mt_thrift_field f = { 0 };
    while (mt__thrift_next(t, &f)) {
        if (f.id == 2 && !m->elements)
            MT_TRY(read_elements(t, &f, m, src, err));
        else if (f.id == 4 && !m->groups)
            MT_TRY(read_groups(t, &f, m, src, err));
        else if (f.id == 8)
            return mt_fail(err, MT_EUNSUPPORTED, "%s is encrypted Parquet, which is not read; write it without encryption",
                           src->path);
        else
            mt__thrift_skip(t, &f);
    }
    if (t->failed) return mt_fail(err, MT_EFORMAT, "%s: the Parquet footer is damaged", src->path);
    return MT_OK;
}

mt_rc mt__pq_footer_read(pq_footer *out, const mt_record_bytes *src, mt_err *err)
{
    *out = (pq_footer){ 0 };
    if (src->size < 12 || memcmp(src->data + src->size - 4, "PAR1", 4) != 0)
        return mt_fail(err, MT_EFORMAT, "%s starts as a Parquet file and does not end as one; is it complete?", src->path);
    uint32_t n = mt__le32(src->data + src->size - 8);
    if (n > src->size - 12)
        return mt_fail(err, MT_EFORMAT, "%s: the Parquet footer is said to have %u bytes, the file has %zu", src->path, n,
                       src->size);
    const uint8_t *end = src->data + src->size - 8;
    mt_thrift t = { .p = end - n, .end = end };
    mt_rc rc = read_footer(&t, out, src, err);
    if (rc) mt_arena_free(&out->arena);
    return rc;
}
