/* forge.h - builds files part by part, correct or not: Thrift structs and Parquet, FlatBuffers and Arrow, pickles in a zip
 * archive, GGUF, and keys that collide under a hash without a key.  For tests of what strangers' files cost, and for the
 * generators of the fuzz targets. */
#ifndef MT_TEST_FORGE_H
#define MT_TEST_FORGE_H

#include "base/str.h"

#include <stdio.h>
#include <string.h>

static inline void forge_le(mt_str *s, uint64_t x, int n_bytes)
{
    char bytes[8];
    for (int i = 0; i < n_bytes; i++) bytes[i] = (char)(x >> 8 * i & 0xff);
    mt_str_add(s, bytes, (size_t)n_bytes);
}

static inline void forge_zeros(mt_str *s, size_t n)
{
    for (size_t i = 0; i < n; i++) mt_str_putc(s, '\0');
}

static inline void forge_repeat(mt_str *s, const char *what, size_t times)
{
    for (size_t i = 0; i < times; i++) mt_str_puts(s, what);
}

/* -- Thrift's compact protocol: fields are added in the order of their numbers, then the struct ends --- */

typedef struct forge_thrift {
    mt_str s;
    int last;
} forge_thrift;

static inline void forge_varint(mt_str *s, uint64_t x)
{
    for (; x >= 128; x >>= 7) mt_str_putc(s, (char)(x | 128));
    mt_str_putc(s, (char)x);
}

static inline void forge_zigzag(mt_str *s, int64_t x) { forge_varint(s, (uint64_t)x << 1 ^ (uint64_t)(x >> 63)); }

static inline void forge_field(forge_thrift *t, int id, int type)
{
    int step = id - t->last;
    if (step > 0 && step < 16)
        mt_str_putc(&t->s, (char)(step << 4 | type));
    else {
        mt_str_putc(&t->s, (char)type);
        forge_zigzag(&t->s, id);
    }
    t->last = id;
}

static inline void forge_i32(forge_thrift *t, int id, int64_t x) { forge_field(t, id, 5), forge_zigzag(&t->s, x); }
static inline void forge_i64(forge_thrift *t, int id, int64_t x) { forge_field(t, id, 6), forge_zigzag(&t->s, x); }

static inline void forge_binary(forge_thrift *t, int id, const char *bytes, size_t n)
{
    forge_field(t, id, 8);
    forge_varint(&t->s, n);
    mt_str_add(&t->s, bytes, n);
}

/* `inner` ends, becomes field id and is released. */
static inline void forge_struct(forge_thrift *t, int id, forge_thrift *inner)
{
    forge_field(t, id, 12);
    mt_str_add(&t->s, inner->s.s ? inner->s.s : "", inner->s.n);
    mt_str_putc(&t->s, '\0');
    mt_str_free(&inner->s);
    *inner = (forge_thrift){ 0 };
}

static inline void forge_list(forge_thrift *t, int id, int item_type, size_t n)
{
    forge_field(t, id, 9);
    mt_str_putc(&t->s, (char)(n < 15 ? (int)n << 4 | item_type : 0xf0 | item_type));
    if (n >= 15) forge_varint(&t->s, n);
}

/* An item of a list of structs. */
static inline void forge_item(forge_thrift *t, forge_thrift *inner)
{
    mt_str_add(&t->s, inner->s.s ? inner->s.s : "", inner->s.n);
    mt_str_putc(&t->s, '\0');
    mt_str_free(&inner->s);
    *inner = (forge_thrift){ 0 };
}

/* -- Parquet ----------------------------------------------------------------------------------------- */

typedef struct forge_parquet {
    size_t n_columns, n_groups;
    int64_t rows;     /* that each group claims */
    const char *text; /* the one entry of every column's dictionary */
    int codec, encoding;
} forge_parquet;

/* One column of one group: a dictionary of one entry and a page of indices of width 0. */
static inline void forge_column(mt_str *out, const forge_parquet *p, const char *name, forge_thrift *chunk)
{
    mt_str dictionary = { 0 };
    forge_thrift page = { 0 }, inner = { 0 }, meta = { 0 };
    size_t at = out->n, text_n = strlen(p->text);
    forge_le(&dictionary, text_n, 4);
    mt_str_add(&dictionary, p->text, text_n);
    forge_i32(&page, 1, 2), forge_i32(&page, 2, (int64_t)dictionary.n), forge_i32(&page, 3, (int64_t)dictionary.n);
    forge_i32(&inner, 1, 1), forge_i32(&inner, 2, 0);
    forge_struct(&page, 7, &inner);
    mt_str_add(out, page.s.s, page.s.n), mt_str_putc(out, '\0');
    mt_str_add(out, dictionary.s, dictionary.n);
    mt_str_free(&page.s), mt_str_free(&dictionary);
    page = (forge_thrift){ 0 };
    size_t data_at = out->n;
    forge_i32(&page, 1, 0), forge_i32(&page, 2, 1), forge_i32(&page, 3, 1);
    forge_i64(&inner, 1, p->rows), forge_i32(&inner, 2, p->encoding), forge_i32(&inner, 3, 3), forge_i32(&inner, 4, 3);
    forge_struct(&page, 5, &inner);
    mt_str_add(out, page.s.s, page.s.n), mt_str_putc(out, '\0');
    mt_str_putc(out, '\0');
    mt_str_free(&page.s);
    forge_i32(&meta, 1, 6);
    forge_list(&meta, 2, 5, 2), forge_zigzag(&meta.s, 0), forge_zigzag(&meta.s, p->encoding);
    forge_list(&meta, 3, 8, 1), forge_varint(&meta.s, strlen(name)), mt_str_puts(&meta.s, name);
    forge_i32(&meta, 4, p->codec);
    forge_i64(&meta, 5, p->rows), forge_i64(&meta, 6, (int64_t)(out->n - at)), forge_i64(&meta, 7, (int64_t)(out->n - at));
    forge_i64(&meta, 9, (int64_t)data_at), forge_i64(&meta, 11, (int64_t)at);
    forge_i64(chunk, 2, (int64_t)at);
    forge_struct(chunk, 3, &meta);
}

static inline void forge_schema(forge_thrift *footer, const forge_parquet *p)
{
    forge_thrift e = { 0 };
    char name[32];
    forge_list(footer, 2, 12, p->n_columns + 1);
    forge_binary(&e, 4, "schema", 6), forge_i32(&e, 5, (int64_t)p->n_columns);
    forge_item(footer, &e);
    for (size_t i = 0; i < p->n_columns; i++) {
        snprintf(name, sizeof name, "c%zu", i);
        forge_i32(&e, 1, 6), forge_i32(&e, 3, 0), forge_binary(&e, 4, name, strlen(name)), forge_i32(&e, 6, 0);
        forge_item(footer, &e);
    }
}

static inline void forge_write_parquet(mt_str *out, const forge_parquet *p)
{
    forge_thrift footer = { 0 }, groups = { 0 };
    char name[32];
    mt_str_puts(out, "PAR1");
    for (size_t g = 0; g < p->n_groups; g++) {
        forge_thrift group = { 0 }, chunk = { 0 };
        forge_list(&group, 1, 12, p->n_columns);
        for (size_t i = 0; i < p->n_columns; i++) {
            snprintf(name, sizeof name, "c%zu", i);
            forge_column(out, p, name, &chunk);
            forge_item(&group, &chunk);
        }
        forge_i64(&group, 2, 100), forge_i64(&group, 3, p->rows);
        forge_item(&groups, &group);
    }
    forge_i32(&footer, 1, 1);
    forge_schema(&footer, p);
    forge_i64(&footer, 3, p->rows * (int64_t)p->n_groups);
    forge_list(&footer, 4, 12, p->n_groups);
    mt_str_add(&footer.s, groups.s.s ? groups.s.s : "", groups.s.n);
    mt_str_putc(&footer.s, '\0');
    mt_str_add(out, footer.s.s, footer.s.n);
    forge_le(out, footer.s.n, 4);
    mt_str_puts(out, "PAR1");
    mt_str_free(&footer.s), mt_str_free(&groups.s);
}

/* -- FlatBuffers: a table is written with room for its fields, which are filled in as their values come -- */

/* A table of n_fields slots of 8 bytes each, all present; returns where it is. */
static inline size_t forge_table(mt_str *s, int n_fields)
{
    while ((s->n + 4 + 2 * (size_t)n_fields) % 8 != 4)
        mt_str_putc(s, '\0'); /* align the fields, which start 4 bytes after the table */
    size_t vtable = s->n;
    forge_le(s, 4 + 2 * (uint64_t)n_fields, 2);
    forge_le(s, 4 + 8 * (uint64_t)n_fields, 2);
    for (int i = 0; i < n_fields; i++) forge_le(s, 4 + 8 * (uint64_t)i, 2);
    size_t table = s->n;
    forge_le(s, table - vtable, 4);
    forge_zeros(s, 8 * (size_t)n_fields);
    return table;
}

static inline void forge_set(mt_str *s, size_t table, int field, uint64_t x, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) s->s[table + 4 + 8 * (size_t)field + (size_t)i] = (char)(x >> 8 * i & 0xff);
}

/* The field points to what is written next, or to a place that is known already. */
static inline void forge_point(mt_str *s, size_t table, int field, size_t to)
{
    forge_set(s, table, field, to - (table + 4 + 8 * (size_t)field), 4);
}

static inline size_t forge_vector(mt_str *s, size_t n, size_t item_bytes)
{
    while (s->n % 8 != 4) mt_str_putc(s, '\0');
    size_t at = s->n;
    forge_le(s, n, 4);
    forge_zeros(s, n * item_bytes);
    return at;
}

static inline void forge_vector_point(mt_str *s, size_t vector, size_t i, size_t to)
{
    size_t at = vector + 4 + 4 * i;
    for (int k = 0; k < 4; k++) s->s[at + (size_t)k] = (char)((to - at) >> 8 * k & 0xff);
}

static inline void forge_vector_set(mt_str *s, size_t vector, size_t i, uint64_t x)
{
    for (int k = 0; k < 8; k++) s->s[vector + 4 + 8 * i + (size_t)k] = (char)(x >> 8 * k & 0xff);
}

static inline size_t forge_string(mt_str *s, const char *text, size_t n)
{
    while (s->n % 4) mt_str_putc(s, '\0');
    size_t at = s->n;
    forge_le(s, n, 4);
    mt_str_add(s, text, n);
    mt_str_putc(s, '\0');
    return at;
}

/* -- Arrow's stream format: columns of int32 without nulls ------------------------------------------- */

static inline void forge_message(mt_str *out, mt_str *meta, const mt_str *body)
{
    while (meta->n % 8) mt_str_putc(meta, '\0');
    forge_le(out, UINT32_MAX, 4);
    forge_le(out, meta->n, 4);
    mt_str_add(out, meta->s, meta->n);
    if (body && body->n) mt_str_add(out, body->s, body->n);
    mt_str_free(meta);
}

/* A message whose header is the table that follows; returns the message's table. */
static inline size_t forge_message_root(mt_str *meta, int header_type, uint64_t body_bytes)
{
    forge_le(meta, 8, 4);
    forge_zeros(meta, 4);
    meta->n = 8; /* the root offset is set below */
    size_t root = forge_table(meta, 4);
    for (int i = 0; i < 4; i++) meta->s[i] = (char)(root >> 8 * i & 0xff);
    forge_set(meta, root, 0, 4, 2); /* version V5 */
    forge_set(meta, root, 1, (uint64_t)header_type, 1);
    forge_set(meta, root, 3, body_bytes, 8);
    return root;
}

typedef struct forge_arrow {
    size_t n_columns, n_batches;
    uint64_t rows;
    int type;                /* of Schema.fbs: 2 int32, 1 null, 5 utf8 */
    const char *shared_name; /* all columns point to this one name; NULL: "c0", "c1", ... */
} forge_arrow;

static inline void forge_arrow_schema(mt_str *out, const forge_arrow *a)
{
    mt_str meta = { 0 };
    char name[32];
    size_t root = forge_message_root(&meta, 1, 0), schema = forge_table(&meta, 2);
    forge_point(&meta, root, 2, schema);
    size_t fields = forge_vector(&meta, a->n_columns, 4);
    forge_point(&meta, schema, 1, fields);
    for (size_t i = 0; i < a->n_columns; i++) {
        size_t field = forge_table(&meta, 6), type, none;
        forge_vector_point(&meta, fields, i, field);
        snprintf(name, sizeof name, "c%zu", i);
        if (!a->shared_name) forge_point(&meta, field, 0, forge_string(&meta, name, strlen(name)));
        forge_set(&meta, field, 2, (uint64_t)a->type, 1);
        type = forge_table(&meta, 2);
        forge_set(&meta, type, 0, 32, 4), forge_set(&meta, type, 1, 1, 1);
        forge_point(&meta, field, 3, type);
        none = forge_vector(&meta, 0, 4);
        forge_point(&meta, field, 5, none);
        /* no dictionary: the slot is taken out of the vtable */
        size_t vtable = field - 4 - 12;
        meta.s[vtable + 4 + 8] = meta.s[vtable + 4 + 9] = 0;
    }
    /* Offsets only lead forwards, so a name that all fields share comes after them. */
    size_t shared = a->shared_name ? forge_string(&meta, a->shared_name, strlen(a->shared_name)) : 0;
    for (size_t i = 0; shared && i < a->n_columns; i++) {
        size_t at = fields + 4 + 4 * i, field = at;
        for (int k = 0; k < 4; k++) field += (size_t)(unsigned char)meta.s[at + (size_t)k] << 8 * k;
        forge_point(&meta, field, 0, shared);
    }
    forge_message(out, &meta, NULL);
}

static inline void forge_arrow_batch(mt_str *out, const forge_arrow *a)
{
    mt_str meta = { 0 }, body = { 0 };
    size_t n_buffers = a->type == 1 ? 0 : a->type == 2 ? 2 : 3, bytes = (size_t)mt_round_up(4 * a->rows, 8);
    size_t body_bytes = a->type == 2 ? a->n_columns * bytes : 0;
    size_t root = forge_message_root(&meta, 3, body_bytes), batch = forge_table(&meta, 3);
    forge_point(&meta, root, 2, batch);
    forge_set(&meta, batch, 0, a->rows, 8);
    size_t nodes = forge_vector(&meta, a->n_columns, 16);
    forge_point(&meta, batch, 1, nodes);
    for (size_t i = 0; i < a->n_columns; i++) {
        forge_vector_set(&meta, nodes, 2 * i, a->rows);
        forge_vector_set(&meta, nodes, 2 * i + 1, a->type == 1 ? a->rows : 0);
    }
    size_t buffers = forge_vector(&meta, n_buffers * a->n_columns, 16);
    forge_point(&meta, batch, 2, buffers);
    for (size_t i = 0; a->type == 2 && i < a->n_columns; i++) {
        forge_vector_set(&meta, buffers, 2 * (2 * i), i * bytes), forge_vector_set(&meta, buffers, 2 * (2 * i) + 1, 0);
        forge_vector_set(&meta, buffers, 2 * (2 * i + 1), i * bytes),
            forge_vector_set(&meta, buffers, 2 * (2 * i + 1) + 1, 4 * a->rows);
    }
    forge_zeros(&body, body_bytes);
    forge_message(out, &meta, &body);
    mt_str_free(&body);
}

static inline void forge_write_arrow(mt_str *out, const forge_arrow *a)
{
    forge_arrow_schema(out, a);
    for (size_t i = 0; i < a->n_batches; i++) forge_arrow_batch(out, a);
    forge_le(out, UINT32_MAX, 4);
    forge_le(out, 0, 4);
}

/* -- pickles, and the archive torch.save puts them in ----------------------------------------------- */

static inline void forge_pk_text(mt_str *s, const char *text)
{
    mt_str_putc(s, 'X');
    forge_le(s, strlen(text), 4);
    mt_str_puts(s, text);
}

static inline void forge_pk_int(mt_str *s, int64_t x)
{
    mt_str_puts(s, "\x8a\x08");
    forge_le(s, (uint64_t)x, 8);
}

/* _rebuild_tensor_v2 of a view of storage `key`, which has n floats. */
static inline void forge_pk_tensor(mt_str *s, const char *key, int64_t n, int n_dims, const int64_t *shape, const int64_t *stride)
{
    mt_str_puts(s, "ctorch._utils\n_rebuild_tensor_v2\n((");
    forge_pk_text(s, "storage");
    mt_str_puts(s, "ctorch\nFloatStorage\n");
    forge_pk_text(s, key), forge_pk_text(s, "cpu"), forge_pk_int(s, n);
    mt_str_puts(s, "tQ");
    forge_pk_int(s, 0);
    mt_str_putc(s, '(');
    for (int i = 0; i < n_dims; i++) forge_pk_int(s, shape[i]);
    mt_str_puts(s, "t(");
    for (int i = 0; i < n_dims; i++) forge_pk_int(s, stride[i]);
    mt_str_puts(s, "t\x89"
                   "ccollections\nOrderedDict\n)RtR");
}

typedef struct forge_zip {
    mt_str *out, directory;
    size_t start, n;
} forge_zip;

static inline void forge_entry(forge_zip *z, const char *name, const char *data, size_t n)
{
    size_t at = z->out->n - z->start;
    forge_le(z->out, 0x04034b50, 4);
    forge_zeros(z->out, 14);
    forge_le(z->out, n, 4), forge_le(z->out, n, 4), forge_le(z->out, strlen(name), 2), forge_le(z->out, 0, 2);
    mt_str_puts(z->out, name);
    mt_str_add(z->out, data, n);
    forge_le(&z->directory, 0x02014b50, 4);
    forge_zeros(&z->directory, 16);
    forge_le(&z->directory, n, 4), forge_le(&z->directory, n, 4), forge_le(&z->directory, strlen(name), 2);
    forge_zeros(&z->directory, 12);
    forge_le(&z->directory, at, 4);
    mt_str_puts(&z->directory, name);
    z->n++;
}

static inline void forge_zip_end(forge_zip *z)
{
    size_t at = z->out->n - z->start, bytes = z->directory.n;
    mt_str_add(z->out, z->directory.s ? z->directory.s : "", z->directory.n);
    forge_le(z->out, 0x06054b50, 4), forge_le(z->out, 0, 4);
    forge_le(z->out, z->n, 2), forge_le(z->out, z->n, 2), forge_le(z->out, bytes, 4), forge_le(z->out, at, 4),
        forge_le(z->out, 0, 2);
    mt_str_free(&z->directory);
}

/* -- GGUF ------------------------------------------------------------------------------------------- */

static inline void forge_gg_text(mt_str *s, const char *text, size_t n)
{
    forge_le(s, n, 8);
    mt_str_add(s, text, n);
}

static inline void forge_gg_key(mt_str *s, const char *key, int type)
{
    forge_gg_text(s, key, strlen(key));
    forge_le(s, (uint64_t)type, 4);
}

static inline void forge_gg_u32(mt_str *s, const char *key, uint64_t x) { forge_gg_key(s, key, 4), forge_le(s, x, 4); }

static inline void forge_gg_str(mt_str *s, const char *key, const char *text)
{
    forge_gg_key(s, key, 8);
    forge_gg_text(s, text, strlen(text));
}

static inline void forge_gg_array(mt_str *s, const char *key, int item_type, size_t n)
{
    forge_gg_key(s, key, 9);
    forge_le(s, (uint64_t)item_type, 4);
    forge_le(s, n, 8);
}

static inline void forge_gg_tensor(mt_str *s, const char *name, size_t rows, size_t columns)
{
    forge_gg_text(s, name, strlen(name));
    forge_le(s, 2, 4), forge_le(s, columns, 8), forge_le(s, rows, 8), forge_le(s, 0, 4), forge_le(s, 0, 8); /* F32 at offset 0 */
}

static inline void forge_gg_file(mt_str *out, const mt_str *kvs, size_t n_kvs, const mt_str *tensors, size_t n_tensors,
                                 size_t n_data)
{
    size_t start = out->n;
    mt_str_puts(out, "GGUF");
    forge_le(out, 3, 4), forge_le(out, n_tensors, 8), forge_le(out, n_kvs, 8);
    mt_str_add(out, kvs->s ? kvs->s : "", kvs->n);
    mt_str_add(out, tensors->s ? tensors->s : "", tensors->n);
    while ((out->n - start) % 32) mt_str_putc(out, '\0');
    forge_zeros(out, n_data);
}

/* -- keys that collide under mt_hash(key, 16, 0), which has no key and can be run backwards ---------- */

static inline uint64_t forge_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The next of them: printable, 16 bytes and a NUL.  *turn starts at 0. */
static inline void forge_colliding_key(uint64_t *turn, char key[17])
{
    const uint64_t golden = 0x9e3779b97f4a7c15u, h0 = forge_mix(16 * golden);
    for (;;) {
        uint64_t r = ++*turn * 0x9e3779b1u, w1 = 0, w2;
        for (int i = 0; i < 8; i++) w1 |= (uint64_t)(unsigned char)"abcdefghijklmnopqrstuvwxyzABCDEF"[r >> 5 * i & 31] << 8 * i;
        w2 = (forge_mix(h0 ^ w1) + golden) ^ 0x1234567890abcdefu;
        memcpy(key, &w1, 8);
        memcpy(key + 8, &w2, 8);
        key[16] = '\0';
        bool printable = true;
        for (int i = 8; i < 16; i++) printable = printable && key[i] > ' ' && key[i] < 0x7f && key[i] != '"' && key[i] != '\\';
        if (printable) return;
    }
}

#endif
