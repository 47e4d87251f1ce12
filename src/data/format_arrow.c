/* format_arrow.c - Arrow's IPC formats, file and stream.
 *
 * A stream is a row of messages: a schema, then dictionaries and record batches.  A file is the same between two magic words,
 * with a footer that locates each message, so dictionaries can be read first.  A message is a length (after 0xffffffff, except in
 * streams from before 2019), metadata, and a body. */
#include "base/le.h"
#include "data/arrow.h"

#include <string.h>

enum { HEADER_SCHEMA = 1, HEADER_DICTIONARY = 2, HEADER_BATCH = 3 };

typedef struct message {
    mt_flatbuf buf;
    int64_t header_type;
    const uint8_t *body;
    size_t body_n;
} message;

typedef struct arrow_file {
    const mt_record_bytes *src;
    ar_schema schema;
    mt_name_list names;
    ar_dictionary *dictionaries;
    size_t n_dictionaries, cap_dictionaries;
    /* stream */
    size_t at; /* the next message */
    /* file */
    bool has_footer;
    mt_flatbuf footer;
    mt_flat_vector batches;
    size_t next_batch;
    size_t batch_start;
    /* the current batch */
    ar_batch batch;
    int64_t row;
} arrow_file;

static bool is_file(const uint8_t *data, size_t size) { return size >= 6 && memcmp(data, "ARROW1", 6) == 0; }

static mt_rc format_arrow_bad(const arrow_file *f, mt_err *err, const char *what)
{
    return mt_fail(err, MT_EFORMAT, "%s: not a valid Arrow file: %s", f->src->path, what);
}

/* The prefix at `at`: where the metadata starts and how long it is.  Length 0: the end of a stream. */
static bool read_prefix(const mt_record_bytes *src, size_t at, size_t *start, size_t *n)
{
    if (at > src->size || src->size - at < 4) return false;
    *n = mt__le32(src->data + at);
    *start = at + 4;
    if (*n != UINT32_MAX) return true;
    if (src->size - at < 8) return false;
    *n = mt__le32(src->data + at + 4);
    *start = at + 8;
    return true;
}

static mt_flat_table header_of(message *m) { return mt__flat_child(mt__flat_root(&m->buf), 2); }

/* The message at `at`; *next is the byte after it.  *end: no more messages. */
static mt_rc read_message(const arrow_file *f, size_t at, message *m, size_t *next, bool *end, mt_err *err)
{
    size_t start, n;
    *end = at == f->src->size;
    if (*end) return MT_OK;
    if (!read_prefix(f->src, at, &start, &n)) return format_arrow_bad(f, err, "it ends inside a message; is it complete?");
    *end = n == 0;
    if (*end) return MT_OK;
    if (n > f->src->size - start) return format_arrow_bad(f, err, "it ends inside a message; is it complete?");
    *m = (message){ .buf = { .data = f->src->data + start, .size = n } };
    mt_flat_table root = mt__flat_root(&m->buf);
    m->header_type = mt__flat_int(root, 1, 1, 0);
    int64_t body_n = mt__flat_int(root, 3, 8, 0);
    if (m->buf.bad || body_n < 0) return format_arrow_bad(f, err, "a message is damaged");
    if ((uint64_t)body_n > f->src->size - start - n) return format_arrow_bad(f, err, "it ends inside a message; is it complete?");
    m->body = f->src->data + start + n;
    m->body_n = (size_t)body_n;
    *next = start + n + (size_t)body_n;
    return MT_OK;
}

static mt_rc find_dictionary(arrow_file *f, int64_t id, ar_dictionary **out, mt_err *err)
{
    for (size_t i = 0; i < f->n_dictionaries; i++)
        if (f->dictionaries[i].id == id) return *out = &f->dictionaries[i], MT_OK;
    const ar_field *field = mt__ar_dictionary_field(&f->schema.root, id);
    if (!field) return format_arrow_bad(f, err, "a dictionary that no column has");
    MT_TRY(mt_grow(&f->dictionaries, &f->cap_dictionaries, f->n_dictionaries + 1, sizeof *f->dictionaries, err));
    *out = &f->dictionaries[f->n_dictionaries++];
    **out = (ar_dictionary){ .id = id, .field = field };
    return MT_OK;
}

static void drop_chunks(ar_dictionary *d)
{
    for (size_t i = 0; i < d->n_chunks; i++) mt_arena_free(&d->chunks[i].arena);
    d->n_chunks = 0;
}

/* DictionaryBatch: { id: long, data: RecordBatch, isDelta: bool } */
static mt_rc load_dictionary(arrow_file *f, message *m, mt_err *err)
{
    mt_flat_table header = header_of(m);
    ar_dictionary *d = NULL;
    MT_TRY(find_dictionary(f, mt__flat_int(header, 0, 8, 0), &d, err));
    if (!mt__flat_bool(header, 2)) drop_chunks(d);
    MT_TRY(mt_grow(&d->chunks, &d->cap_chunks, d->n_chunks + 1, sizeof *d->chunks, err));
    ar_batch *chunk = &d->chunks[d->n_chunks++];
    *chunk = (ar_batch){ 0 };
    return mt__ar_batch_load(chunk, mt__flat_child(header, 1), d->field, true, m->body, m->body_n, f->src, err);
}

static mt_rc load_batch(arrow_file *f, message *m, mt_err *err)
{
    f->row = 0;
    f->batch.root.length = 0; /* in case loading fails half way */
    return mt__ar_batch_load(&f->batch, header_of(m), &f->schema.root, false, m->body, m->body_n, f->src, err);
}

/* A block of the footer: { offset: long, metaDataLength: int, bodyLength: long } */
static mt_rc read_block(const arrow_file *f, mt_flat_vector blocks, size_t i, int64_t type, message *m, mt_err *err)
{
    int64_t at = mt__flat_item_int(blocks, i, 0, 8);
    size_t next;
    bool end;
    if (at < 0 || (uint64_t)at >= f->src->size) return format_arrow_bad(f, err, "its footer points outside of it");
    MT_TRY(read_message(f, (size_t)at, m, &next, &end, err));
    if (end || m->header_type != type) return format_arrow_bad(f, err, "its footer points to something else");
    return MT_OK;
}

static mt_rc next_file_batch(arrow_file *f, bool *end, mt_err *err)
{
    message m;
    *end = f->next_batch >= f->batches.n;
    if (*end) return MT_OK;
    f->batch_start = (size_t)mt__flat_item_int(f->batches, f->next_batch, 0, 8);
    MT_TRY(read_block(f, f->batches, f->next_batch++, HEADER_BATCH, &m, err));
    return load_batch(f, &m, err);
}

static mt_rc next_stream_batch(arrow_file *f, bool *end, mt_err *err)
{
    for (;;) {
        message m;
        size_t at = f->at;
        MT_TRY(read_message(f, at, &m, &f->at, end, err));
        if (*end) return MT_OK;
        f->batch_start = at;
        if (m.header_type == HEADER_BATCH) return load_batch(f, &m, err);
        if (m.header_type != HEADER_DICTIONARY)
            return format_arrow_bad(f, err, "a message that is neither a dictionary nor a batch");
        MT_TRY(load_dictionary(f, &m, err));
    }
}

static mt_rc next(void *reader, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err)
{
    arrow_file *f = reader;
    while (f->row >= f->batch.root.length) {
        bool end;
        MT_TRY(f->has_footer ? next_file_batch(f, &end, err) : next_stream_batch(f, &end, err));
        if (end) return mt__record_end(where);
    }
    ar_row r = {
        .src = f->src, .dictionaries = f->dictionaries, .n_dictionaries = f->n_dictionaries, .arena = arena, .err = err
    };
    MT_TRY(mt__ar_value(&r, &f->batch.root, f->row++, out));
    if (!r.trouble) return MT_OK;
    mt_fail(err, MT_EFORMAT, "column \"%s\": %s", r.trouble_column, r.trouble);
    return mt__record_bad_here(where, err);
}

static mt_rc load_footer(arrow_file *f, mt_err *err)
{
    const mt_record_bytes *src = f->src;
    f->has_footer = true;
    if (src->size < 18 || memcmp(src->data + src->size - 6, "ARROW1", 6) != 0)
        return format_arrow_bad(f, err, "its end is missing; is it complete?");
    size_t n = mt__le32(src->data + src->size - 10);
    if (n > src->size - 18) return format_arrow_bad(f, err, "its footer is larger than the file");
    f->footer = (mt_flatbuf){ .data = src->data + src->size - 10 - n, .size = n };
    mt_flat_table root = mt__flat_root(&f->footer);
    MT_TRY(mt__ar_schema_read(&f->schema, mt__flat_child(root, 1), src, err));
    mt_flat_vector dictionaries = mt__flat_list(root, 2, 24);
    f->batches = mt__flat_list(root, 3, 24);
    if (f->footer.bad) return format_arrow_bad(f, err, "its footer is damaged");
    for (size_t i = 0; i < dictionaries.n; i++) {
        message m;
        MT_TRY(read_block(f, dictionaries, i, HEADER_DICTIONARY, &m, err));
        MT_TRY(load_dictionary(f, &m, err));
    }
    return MT_OK;
}

static mt_rc load_stream_schema(arrow_file *f, mt_err *err)
{
    message m;
    bool end;
    MT_TRY(read_message(f, 0, &m, &f->at, &end, err));
    if (end) return format_arrow_bad(f, err, "it is empty");
    if (m.header_type != HEADER_SCHEMA) return format_arrow_bad(f, err, "it does not start with a schema");
    return mt__ar_schema_read(&f->schema, header_of(&m), f->src, err);
}

static mt_rc format_arrow_load(arrow_file *f, mt_err *err)
{
    MT_TRY(is_file(f->src->data, f->src->size) ? load_footer(f, err) : load_stream_schema(f, err));
    for (size_t i = 0; i < f->schema.root.n_children; i++)
        MT_TRY(mt__name_list_add(&f->names, f->schema.root.children[i].name, f->schema.root.children[i].name_n, err));
    return MT_OK;
}

static void close_arrow(void *reader)
{
    arrow_file *f = reader;
    if (!f) return;
    for (size_t i = 0; i < f->n_dictionaries; i++) {
        drop_chunks(&f->dictionaries[i]);
        mt_free(f->dictionaries[i].chunks);
    }
    mt_free(f->dictionaries);
    mt_arena_free(&f->batch.arena);
    mt__name_list_free(&f->names);
    mt_free(f);
}

static mt_rc open_arrow(void **out, const mt_record_bytes *src, mt_err *err)
{
    *out = NULL;
    arrow_file *f = mt_calloc(1, sizeof *f);
    if (!f) return mt_no_memory(err, "reading %s", src->path);
    f->src = src;
    mt_rc rc = format_arrow_load(f, err);
    if (rc) {
        close_arrow(f);
        return rc;
    }
    *out = f;
    return MT_OK;
}

/* Files start with their magic, streams with a continuation mark and a plausible schema length. */
static bool recognise(const uint8_t *data, size_t size)
{
    return is_file(data, size) || (size >= 8 && mt__le32(data) == UINT32_MAX && mt__le32(data + 4) <= size - 8);
}

static int64_t batch_rows(message *m) { return m->header_type == HEADER_BATCH ? mt__flat_int(header_of(m), 0, 8, 0) : 0; }

/* From the messages' descriptions alone; -1 where they cannot be read. */
static int64_t format_arrow_count(void *reader)
{
    arrow_file *f = reader;
    message m;
    int64_t total = 0;
    bool end = false;
    for (size_t i = 0; f->has_footer && i < f->batches.n; i++) {
        if (read_block(f, f->batches, i, HEADER_BATCH, &m, NULL) || __builtin_add_overflow(total, batch_rows(&m), &total))
            return -1;
    }
    for (size_t at = f->at; !f->has_footer && !end;) {
        if (read_message(f, at, &m, &at, &end, NULL)) return -1;
        if (!end && __builtin_add_overflow(total, batch_rows(&m), &total)) return -1;
    }
    return total;
}

static const mt_name_list *format_arrow_columns(const void *reader) { return &((const arrow_file *)reader)->names; }
static size_t format_arrow_position(const void *reader) { return ((const arrow_file *)reader)->batch_start; }

const mt_format mt__format_arrow = {
    .name = "arrow",
    .extensions = ".arrow .feather .ipc",
    .recognise = recognise,
    .open = open_arrow,
    .next = next,
    .count = format_arrow_count,
    .columns = format_arrow_columns,
    .position = format_arrow_position,
    .close = close_arrow,
};
