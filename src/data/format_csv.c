/* format_csv.c - comma-separated values as RFC 4180 has them: a header line, fields in double quotes where they
 * hold delimiters, quotes (doubled) or line ends.
 *
 * Every field is a string: CSV has no types and no null, and an answer of "42" must stay text.  Lines end with
 * LF, CRLF or CR; blank ones are passed over.  Names come out as pandas makes them: "Unnamed: 0" for an
 * empty one, "a.1" for the second "a". */
#include "base/hash.h"
#include "base/utf8.h"
#include "data/formats.h"

#include <string.h>

typedef struct csv_file {
    const mt_record_bytes *src;
    const char *p, *end;
    int64_t line; /* of p, from 1 */
    char delimiter;
    mt_name_list columns;
    mt_pair *header; /* the columns as keys of records; in src->keep */
    mt_pair *fields; /* of the row being read */
    size_t n_fields, cap_fields;
} csv_file;

/* What ended a field. */
typedef enum csv_stop { STOP_DELIMITER, STOP_LINE, STOP_END } csv_stop;

static bool is_line_end(char c) { return c == '\n' || c == '\r'; }

static void pass_line_end(csv_file *f)
{
    if (*f->p == '\r' && f->p + 1 < f->end && f->p[1] == '\n') f->p++;
    f->p++;
    f->line++;
}

static csv_stop stop_at(csv_file *f)
{
    if (f->p >= f->end) return STOP_END;
    if (*f->p == f->delimiter) {
        f->p++;
        return STOP_DELIMITER;
    }
    pass_line_end(f);
    return STOP_LINE;
}

static bool at_field_end(const csv_file *f) { return f->p >= f->end || *f->p == f->delimiter || is_line_end(*f->p); }

/* The closing quote of the field that starts at p; *n_doubled counts the quotes inside.  NULL: there is none. */
static const char *closing_quote(const csv_file *f, const char *p, size_t *n_doubled)
{
    *n_doubled = 0;
    for (; (p = p < f->end ? memchr(p, '"', (size_t)(f->end - p)) : NULL); p += 2) {
        if (p + 1 >= f->end || p[1] != '"') return p;
        ++*n_doubled;
    }
    return NULL;
}

static void count_lines(csv_file *f, const char *from, const char *to)
{
    int64_t n = 0;
    for (const char *p = from; p < to; p++) n += *p == '\n';
    for (const char *p = from; p < to && (p = memchr(p, '\r', (size_t)(to - p))); p++) n += p + 1 >= to || p[1] != '\n';
    f->line += n;
}

/* [p, end) without the second of each two quotes; returns the length. */
static size_t copy_undoubled(char *dst, const char *p, const char *end)
{
    size_t n = 0;
    while (p < end) {
        const char *quote = memchr(p, '"', (size_t)(end - p));
        size_t run = (size_t)((quote ? quote + 1 : end) - p);
        memcpy(dst + n, p, run);
        n += run;
        p += run + (quote != NULL);
    }
    return n;
}

static mt_rc read_quoted(csv_file *f, mt_arena *arena, const char **s, size_t *n, mt_err *err)
{
    const char *start = f->p + 1;
    size_t n_doubled;
    const char *close = closing_quote(f, start, &n_doubled);
    if (!close)
        return mt_fail(err, MT_EFORMAT, "%s, line %lld: a quoted field starts here and never ends", f->src->path,
                       (long long)f->line);
    count_lines(f, start, close);
    f->p = close + 1;
    *s = start;
    *n = (size_t)(close - start);
    if (n_doubled == 0) return MT_OK;
    char *copy = mt_arena_alloc(arena, *n - n_doubled + 1);
    if (!copy) return mt_no_memory(err, "a field of %s", f->src->path);
    *s = copy;
    *n = copy_undoubled(copy, start, close);
    return MT_OK;
}

static void read_plain(csv_file *f, const char **s, size_t *n)
{
    *s = f->p;
    while (!at_field_end(f)) f->p++;
    *n = (size_t)(f->p - *s);
}

/* One line into f->fields (values only).  *trouble: why this line is bad, in a file that is fine. */
static mt_rc read_row(csv_file *f, mt_arena *arena, const char **trouble, mt_err *err)
{
    f->n_fields = 0;
    *trouble = NULL;
    csv_stop stop;
    do {
        mt_pair field = { .value = { .type = MT_VALUE_STR } };
        if (f->p < f->end && *f->p == '"')
            MT_TRY(read_quoted(f, arena, &field.value.str.s, &field.value.str.n, err));
        else
            read_plain(f, &field.value.str.s, &field.value.str.n);
        if (!at_field_end(f)) {
            *trouble = "text follows the closing quote of a field (a quote inside must be doubled)";
            while (!at_field_end(f)) f->p++;
        }
        if (!mt_utf8_valid(field.value.str.s, field.value.str.n, NULL)) *trouble = "not valid UTF-8";
        MT_TRY(mt_grow(&f->fields, &f->cap_fields, f->n_fields + 1, sizeof *f->fields, err));
        f->fields[f->n_fields++] = field;
        stop = stop_at(f);
    } while (stop == STOP_DELIMITER);
    return MT_OK;
}

static void pass_blank_lines(csv_file *f)
{
    while (f->p < f->end && is_line_end(*f->p)) pass_line_end(f);
}

static mt_rc format_csv_next(void *reader, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err)
{
    csv_file *f = reader;
    const char *trouble;
    pass_blank_lines(f);
    if (f->p >= f->end) return mt__record_end(where);
    where->line = f->line;
    MT_TRY(read_row(f, arena, &trouble, err));
    if (trouble || f->n_fields != f->columns.n) {
        if (trouble)
            mt_fail(err, MT_EFORMAT, "%s", trouble);
        else
            mt_fail(err, MT_EFORMAT, "%zu field%s, the header has %zu", f->n_fields, f->n_fields == 1 ? "" : "s", f->columns.n);
        return mt__record_bad_here(where, err);
    }
    mt_pair *pairs = mt_arena_calloc(arena, f->n_fields, sizeof *pairs);
    if (!pairs) return mt_no_memory(err, "a record of %s", f->src->path);
    for (size_t i = 0; i < f->n_fields; i++) {
        pairs[i] = f->header[i];
        pairs[i].value = f->fields[i].value;
    }
    *out = (mt_value){ .type = MT_VALUE_MAP };
    out->map.pairs = pairs;
    out->map.n = f->n_fields;
    return MT_OK;
}

/* A header is a few names, never this many. */
enum { MAX_COLUMNS = 4096, SLOTS = 2 * MAX_COLUMNS };

/* The names so far. */
typedef struct header_names {
    uint16_t slots[SLOTS];    /* 1 + the index of each, by hash */
    int n_again[MAX_COLUMNS]; /* the last number tried for a repeated name, so that the next one does not start at 1 */
} header_names;

/* Where the name is, or belongs. */
static uint16_t *slot_of(header_names *h, const mt_name_list *names, const char *s)
{
    size_t at = mt_hash_keyed(s, strlen(s)) % SLOTS;
    while (h->slots[at] && strcmp(names->items[h->slots[at] - 1], s) != 0) at = (at + 1) % SLOTS;
    return &h->slots[at];
}

/* The second "a" becomes "a.1". */
static mt_rc add_column(csv_file *f, const char *s, size_t n, header_names *h, mt_err *err)
{
    char *base = n ? mt_strndup(s, n) : mt_asprintf("Unnamed: %zu", f->columns.n);
    char *name = base ? mt_strdup(base) : NULL;
    size_t first = base ? *slot_of(h, &f->columns, base) : 0;
    while (name && *slot_of(h, &f->columns, name)) {
        mt_free(name);
        name = mt_asprintf("%s.%d", base, ++h->n_again[first - 1]);
    }
    uint16_t *slot = name ? slot_of(h, &f->columns, name) : NULL;
    mt_rc rc = name ? mt__name_list_add(&f->columns, name, strlen(name), err) : mt_no_memory(err, "a name");
    if (!rc) *slot = (uint16_t)f->columns.n;
    mt_free(base);
    mt_free(name);
    return rc;
}

static mt_rc make_keys(csv_file *f, mt_err *err)
{
    f->header = mt_arena_calloc(f->src->keep, f->columns.n, sizeof *f->header);
    for (size_t i = 0; f->header && i < f->columns.n; i++) {
        size_t n = strlen(f->columns.items[i]);
        f->header[i] = (mt_pair){ .key = mt_arena_strndup(f->src->keep, f->columns.items[i], n), .key_n = n };
        if (!f->header[i].key) f->header = NULL;
    }
    return f->header ? MT_OK : mt_no_memory(err, "the column names of %s", f->src->path);
}

static mt_rc read_header(csv_file *f, mt_err *err)
{
    if (f->end - f->p >= 3 && memcmp(f->p, "\xef\xbb\xbf", 3) == 0) f->p += 3;
    pass_blank_lines(f);
    if (f->p >= f->end) return MT_OK;
    mt_arena scratch = { 0 };
    const char *trouble;
    header_names *names = mt_calloc(1, sizeof *names);
    if (!names) return mt_no_memory(err, "the column names of %s", f->src->path);
    mt_rc rc = read_row(f, &scratch, &trouble, err);
    if (!rc && trouble) rc = mt_fail(err, MT_EFORMAT, "%s, header: %s", f->src->path, trouble);
    if (!rc && f->n_fields > MAX_COLUMNS)
        rc = mt_fail(err, MT_EFORMAT, "%s: the header has %zu columns, at most %d are read", f->src->path, f->n_fields,
                     MAX_COLUMNS);
    for (size_t i = 0; !rc && i < f->n_fields; i++)
        rc = add_column(f, f->fields[i].value.str.s, f->fields[i].value.str.n, names, err);
    mt_arena_free(&scratch);
    mt_free(names);
    return rc ? rc : make_keys(f, err);
}

static void close_csv(void *reader)
{
    csv_file *f = reader;
    if (!f) return;
    mt__name_list_free(&f->columns);
    mt_free(f->fields);
    mt_free(f);
}

static char choose_delimiter(const mt_record_bytes *src)
{
    if (src->opt.delimiter) return src->opt.delimiter;
    if (src->opt.format) return strcmp(src->opt.format, "tsv") == 0 ? '\t' : ',';
    size_t n = strlen(src->path);
    return n >= 4 && (strcmp(src->path + n - 4, ".tsv") == 0 || strcmp(src->path + n - 4, ".TSV") == 0) ? '\t' : ',';
}

static mt_rc open_csv(void **out, const mt_record_bytes *src, mt_err *err)
{
    *out = NULL;
    csv_file *f = mt_calloc(1, sizeof *f);
    if (!f) return mt_no_memory(err, "reading %s", src->path);
    *f = (csv_file){ .src = src, .p = (const char *)src->data, .line = 1, .delimiter = choose_delimiter(src) };
    f->end = f->p + src->size;
    mt_rc rc = read_header(f, err);
    if (rc) {
        close_csv(f);
        return rc;
    }
    *out = f;
    return MT_OK;
}

static const mt_name_list *columns(const void *reader) { return &((const csv_file *)reader)->columns; }

static size_t format_csv_position(const void *reader)
{
    const csv_file *f = reader;
    return (size_t)(f->p - (const char *)f->src->data);
}

const mt_format mt__format_csv = {
    .name = "csv",
    .extensions = ".csv .tsv",
    .open = open_csv,
    .next = format_csv_next,
    .columns = columns,
    .position = format_csv_position,
    .close = close_csv,
};
