/* format_json.c - records from JSON in the shapes people use, streamed from the mapped text.
 *
 *   lines    one document a line (JSON Lines); a bad line spoils one record
 *   stream   documents one after the other, pretty-printed or not
 *   array    one list of records, alone in the file or under a key of an object (the `field` option)
 *
 * Distinguished by content: '[' is an array; else lines, if the first or second line is a whole document; else a
 * stream.  In the last two a malformed record is skipped up to the next line that begins as records do in
 * this file; where no such line can be found the file is broken. */
#include "data/formats.h"

#include <string.h>

/* A record with more values is not a training sample, but probably a whole file that needs `field`. */
enum { MAX_VALUES = 1 << 24 };

typedef enum json_shape { SHAPE_LINES, SHAPE_STREAM, SHAPE_ARRAY } json_shape;

/* Everything that says where we are, so that a look ahead can be undone. */
typedef struct json_cursor {
    const char *p;
    int64_t line;    /* of p, from 1 */
    bool need_comma; /* array: an item was read */
    bool done;
} json_cursor;

typedef struct json_file {
    const mt_record_bytes *src;
    json_shape shape;
    const char *end;
    json_cursor at;
    mt_value_reader parser;
    mt_name_list columns;
    size_t read_again; /* bytes that were read as part of a bad record and again afterwards */
} json_file;

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && is_space(*p)) p++;
    return p;
}

static const char *skip_bom(const char *p, const char *end)
{
    return end - p >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? p + 3 : p;
}

static const char *line_end(const char *p, const char *end)
{
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    return nl ? nl : end;
}

static bool recognise(const uint8_t *data, size_t size)
{
    const char *end = (const char *)data + size;
    const char *p = skip_space(skip_bom((const char *)data, end), end);
    return p < end && (*p == '{' || *p == '[');
}

/* Move on, counting the lines that are passed. */
static void advance(json_file *f, const char *to)
{
    int64_t n = 0;
    for (const char *p = f->at.p; p < to; p++) n += *p == '\n';
    f->at.line += n;
    f->at.p = to;
}

static void pass_space(json_file *f) { advance(f, skip_space(f->at.p, f->end)); }

static mt_rc parse_here(json_file *f, mt_arena *arena, mt_value *out, size_t n, size_t *used, mt_err *err)
{
    f->parser.first_line = f->at.line;
    f->parser.whole = (const char *)f->src->data;
    return mt_value_reader_parse(&f->parser, out, arena, f->at.p, n, used, f->src->path, err);
}

static mt_rc check_map(const mt_value *v, mt_record_place *where, mt_err *err)
{
    if (v->type == MT_VALUE_MAP) return MT_OK;
    mt_fail(err, MT_EFORMAT, "a record must be an object, found %s", mt_value_type_name(v));
    return mt__record_bad_here(where, err);
}

static mt_rc next_line(json_file *f, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err)
{
    const char *start, *eol;
    for (;; f->at.p = eol + (eol < f->end), f->at.line++) {
        if (f->at.p >= f->end) return mt__record_end(where);
        eol = line_end(f->at.p, f->end);
        start = skip_space(f->at.p, eol);
        if (start < eol) break;
    }
    where->line = f->at.line;
    mt_rc rc = parse_here(f, arena, out, (size_t)(eol - f->at.p), NULL, err);
    f->at.p = eol + (eol < f->end);
    f->at.line++;
    if (rc == MT_EFORMAT) return mt__record_bad(where);
    if (rc) return rc;
    return check_map(out, where, err);
}

/* The next line that starts as this record's line does: the same indentation, then '{'.  False: none, or the
 * record does not start its line. */
static bool resync(json_file *f)
{
    const char *text = (const char *)f->src->data, *start = f->at.p;
    while (start > text && (start[-1] == ' ' || start[-1] == '\t')) start--;
    size_t indent = (size_t)(f->at.p - start);
    if (start > text && start[-1] != '\n' && start != skip_bom(text, f->end)) return false;
    for (const char *p = line_end(f->at.p, f->end); p < f->end; p = line_end(p, f->end)) {
        p++;
        if ((size_t)(f->end - p) > indent && memcmp(p, start, indent) == 0 && p[indent] == '{') {
            advance(f, p + indent);
            return true;
        }
    }
    return false;
}

/* The reader takes the records after a truncated one for its parts, up to 512 levels of them, and then reads each again.  A few
 * truncated records are an accident.  A file of nothing else would be read hundreds of times, so it is refused.  `passed`: bytes
 * that the bad record took. */
static mt_rc pass_bad_record(json_file *f, const char *from, size_t passed, bool *all, mt_err *err)
{
    enum { FREE_BYTES = 1 << 20, TIMES = 8 };
    *all = !resync(f);
    size_t moved = (size_t)(f->at.p - from), position = (size_t)(from - (const char *)f->src->data);
    f->read_again += !*all && passed > moved ? passed - moved : 0;
    if (f->read_again <= FREE_BYTES + TIMES * position) return MT_OK;
    return mt_fail(err, MT_ERANGE,
                   "%s, line %lld: too many records that are not valid JSON; is the file complete, one record after the other?",
                   f->src->path, (long long)f->at.line);
}

static mt_rc next_in_stream(json_file *f, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err)
{
    pass_space(f);
    if (f->at.p >= f->end) return mt__record_end(where);
    where->line = f->at.line;
    where->shares_line = true;
    size_t used;
    mt_rc rc = parse_here(f, arena, out, (size_t)(f->end - f->at.p), &used, err);
    if (rc == MT_EFORMAT) {
        bool last;
        MT_TRY(pass_bad_record(f, f->at.p, used, &last, err));
        if (last) advance(f, f->end); /* the last record is cut off: it is bad, and the end */
        return mt__record_bad(where);
    }
    if (rc) return rc;
    advance(f, f->at.p + used);
    return check_map(out, where, err);
}

static mt_rc broken(const json_file *f, const char *message, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT, "%s: not valid JSON at line %lld: %s", f->src->path, (long long)f->at.line, message);
}

/* After an item or the opening bracket: true in *more if another item follows, at.p on it. */
static mt_rc array_goes_on(json_file *f, bool *more, mt_err *err)
{
    pass_space(f);
    *more = false;
    if (f->at.p >= f->end) return broken(f, "the list does not end; is the file complete?", err);
    if (*f->at.p == ']') {
        f->at.done = true;
        advance(f, f->at.p + 1);
        pass_space(f);
        if (f->at.p < f->end && !f->src->opt.field) return broken(f, "something follows the end of the list", err);
        return MT_OK;
    }
    if (f->at.need_comma) {
        if (*f->at.p != ',') return broken(f, "expected ',' or ']' after a record", err);
        advance(f, f->at.p + 1);
        pass_space(f);
    }
    *more = true;
    return MT_OK;
}

static mt_rc next_in_array(json_file *f, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err)
{
    bool more = false;
    if (!f->at.done) MT_TRY(array_goes_on(f, &more, err));
    if (!more) return mt__record_end(where);
    where->line = f->at.line;
    where->shares_line = true;
    size_t used;
    mt_rc rc = parse_here(f, arena, out, (size_t)(f->end - f->at.p), &used, err);
    if (rc == MT_EFORMAT) {
        bool last;
        MT_TRY(pass_bad_record(f, f->at.p, used, &last, err));
        f->at.need_comma = false;
        if (!last) return mt__record_bad(where);
    }
    if (rc) return rc;
    advance(f, f->at.p + used);
    f->at.need_comma = true;
    return check_map(out, where, err);
}

static mt_rc format_json_next(void *reader, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err)
{
    json_file *f = reader;
    switch (f->shape) {
    case SHAPE_LINES: return next_line(f, arena, out, where, err);
    case SHAPE_STREAM: return next_in_stream(f, arena, out, where, err);
    case SHAPE_ARRAY: return next_in_array(f, arena, out, where, err);
    }
    return MT_OK;
}

/* *yes: the first or the second line that is not blank holds one whole document. */
static mt_rc looks_like_lines(json_file *f, mt_arena *scratch, bool *yes, mt_err *err)
{
    const char *p = f->at.p;
    *yes = false;
    for (int tries = 0; tries < 2 && p < f->end;) {
        const char *eol = line_end(p, f->end);
        mt_value v;
        if (skip_space(p, eol) < eol) {
            mt_rc rc = mt_value_reader_parse(&f->parser, &v, scratch, p, (size_t)(eol - p), NULL, f->src->path, err);
            if (rc == MT_ENOMEM) return rc;
            *yes = rc == MT_OK;
            if (*yes) break;
            tries++;
        }
        p = eol + (eol < f->end);
    }
    return MT_OK;
}

/* One key of the outer object: stop on the list we look for, pass anything else. */
static mt_rc pass_key(json_file *f, mt_arena *scratch, bool *found, mt_err *err)
{
    mt_value key, skipped;
    size_t used;
    pass_space(f);
    if (f->at.p >= f->end || *f->at.p != '"') return broken(f, "a key in double quotes was expected", err);
    MT_TRY(parse_here(f, scratch, &key, (size_t)(f->end - f->at.p), &used, err));
    advance(f, f->at.p + used);
    if (f->at.p >= f->end || *f->at.p != ':') return broken(f, "expected ':' after a key", err);
    advance(f, f->at.p + 1);
    pass_space(f);
    *found = mt_value_is(&key, f->src->opt.field);
    if (*found) return MT_OK;
    MT_TRY(parse_here(f, scratch, &skipped, (size_t)(f->end - f->at.p), &used, err));
    advance(f, f->at.p + used);
    mt_arena_reset(scratch);
    return MT_OK;
}

static mt_rc enter_field(json_file *f, mt_arena *scratch, mt_err *err)
{
    bool found = false;
    if (f->at.p >= f->end || *f->at.p != '{')
        return broken(f, "an object was expected, to look for the list that dataset.field names; leave dataset.field out", err);
    do {
        advance(f, f->at.p + 1);
        MT_TRY(pass_key(f, scratch, &found, err));
    } while (!found && f->at.p < f->end && *f->at.p == ',');
    if (!found) return mt_fail(err, MT_ENOENT, "%s has no field \"%s\"; check dataset.field", f->src->path, f->src->opt.field);
    if (f->at.p >= f->end || *f->at.p != '[')
        return mt_fail(err, MT_EFORMAT, "%s: the field \"%s\" is not a list; check dataset.field", f->src->path,
                       f->src->opt.field);
    return MT_OK;
}

static mt_rc find_shape(json_file *f, mt_arena *scratch, mt_err *err)
{
    f->at.p = skip_bom((const char *)f->src->data, f->end);
    f->at.line = 1;
    pass_space(f);
    if (f->src->opt.field) MT_TRY(enter_field(f, scratch, err));
    if (f->at.p < f->end && *f->at.p == '[') {
        f->shape = SHAPE_ARRAY;
        advance(f, f->at.p + 1);
        return MT_OK;
    }
    bool lines;
    MT_TRY(looks_like_lines(f, scratch, &lines, err));
    f->shape = lines ? SHAPE_LINES : SHAPE_STREAM;
    return MT_OK;
}

/* Columns are the first record's keys; if that one is bad, none are known. */
static mt_rc peek_columns(json_file *f, mt_arena *scratch, mt_err *err)
{
    json_cursor start = f->at;
    mt_value v = { 0 };
    mt_record_place where = { 0 };
    mt_rc rc = format_json_next(f, scratch, &v, &where, NULL);
    f->at = start;
    if (rc == MT_ENOMEM) return mt_no_memory(err, "the first record of %s", f->src->path);
    if (rc || where.state != MT_RECORD_OK) return MT_OK;
    for (size_t i = 0; i < v.map.n; i++) MT_TRY(mt__name_list_add(&f->columns, v.map.pairs[i].key, v.map.pairs[i].key_n, err));
    return MT_OK;
}

static void close_json(void *reader)
{
    json_file *f = reader;
    if (!f) return;
    mt_value_reader_free(&f->parser);
    mt__name_list_free(&f->columns);
    mt_free(f);
}

static mt_rc open_json(void **out, const mt_record_bytes *src, mt_err *err)
{
    *out = NULL;
    json_file *f = mt_calloc(1, sizeof *f);
    if (!f) return mt_no_memory(err, "reading %s", src->path);
    f->src = src;
    f->parser.max_values = MAX_VALUES;
    f->end = (const char *)src->data + src->size;
    mt_arena scratch = { 0 };
    mt_rc rc = find_shape(f, &scratch, err);
    if (!rc) rc = peek_columns(f, &scratch, err);
    mt_arena_free(&scratch);
    if (rc) {
        close_json(f);
        return rc;
    }
    *out = f;
    return MT_OK;
}

static const mt_name_list *columns(const void *reader) { return &((const json_file *)reader)->columns; }

static size_t position(const void *reader)
{
    const json_file *f = reader;
    return (size_t)(f->at.p - (const char *)f->src->data);
}

const mt_format mt__format_json = {
    .name = "json",
    .extensions = ".json .jsonl .ndjson .jsonlines",
    .recognise = recognise,
    .open = open_json,
    .next = format_json_next,
    .columns = columns,
    .position = position,
    .close = close_json,
};
