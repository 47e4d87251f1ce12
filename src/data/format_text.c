/* format_text.c - plain text: a record {"text": ...} per line, per paragraph or per file, cut as Hugging Face's `text` loader
 * cuts it (blank lines are records when cutting by line, and otherwise separate paragraphs).  Line ends are LF or CRLF and not
 * part of a line; inside paragraphs and documents they stay as they are. */
#include "base/utf8.h"
#include "data/formats.h"

#include <string.h>

typedef struct text_file {
    const mt_record_bytes *src;
    const char *p, *end;
    int64_t line;
    bool done; /* document: it was handed out */
    mt_name_list columns;
} text_file;

typedef struct piece {
    const char *s;
    size_t n;
} piece;

static const char *find_line_end(const text_file *f, const char *p)
{
    const char *nl = memchr(p, '\n', (size_t)(f->end - p));
    return nl ? nl : f->end;
}

static bool next_line(text_file *f, piece *out)
{
    if (f->p >= f->end) return false;
    const char *eol = find_line_end(f, f->p);
    *out = (piece){ f->p, (size_t)(eol - f->p) };
    if (out->n && out->s[out->n - 1] == '\r') out->n--;
    f->p = eol + (eol < f->end);
    f->line++;
    return true;
}

/* A paragraph ends at an empty line; more empty lines are passed over. */
static bool next_paragraph(text_file *f, piece *out, int64_t *line)
{
    piece one = { 0 };
    while (next_line(f, &one) && one.n == 0) continue;
    if (one.n == 0) return false;
    *line = f->line - 1;
    *out = one;
    while (next_line(f, &one) && one.n) out->n = (size_t)(one.s + one.n - out->s);
    return true;
}

static bool next_document(text_file *f, piece *out)
{
    *out = (piece){ f->p, (size_t)(f->end - f->p) };
    f->p = f->end;
    return !f->done && (f->done = true);
}

static bool next_piece(text_file *f, piece *out, int64_t *line)
{
    *line = f->line;
    switch (f->src->opt.sample_by) {
    case MT_SAMPLE_PARAGRAPH: return next_paragraph(f, out, line);
    case MT_SAMPLE_DOCUMENT: return next_document(f, out);
    case MT_SAMPLE_LINE: break;
    }
    return next_line(f, out);
}

static mt_rc format_text_next(void *reader, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err)
{
    text_file *f = reader;
    piece text;
    if (!next_piece(f, &text, &where->line)) return mt__record_end(where);
    size_t bad_at;
    if (!mt_utf8_valid(text.s, text.n, &bad_at)) {
        mt_fail(err, MT_EFORMAT, "not valid UTF-8 at byte %zu of the text", bad_at + 1);
        return mt__record_bad_here(where, err);
    }
    mt_pair *pair = mt_arena_calloc(arena, 1, sizeof *pair);
    if (!pair) return mt_no_memory(err, "a record of %s", f->src->path);
    *pair = (mt_pair){ .key = "text", .key_n = 4, .value = { .type = MT_VALUE_STR } };
    pair->value.str.s = text.s;
    pair->value.str.n = text.n;
    *out = (mt_value){ .type = MT_VALUE_MAP };
    out->map.pairs = pair;
    out->map.n = 1;
    return MT_OK;
}

static void close_text(void *reader)
{
    text_file *f = reader;
    if (!f) return;
    mt__name_list_free(&f->columns);
    mt_free(f);
}

static mt_rc open_text(void **out, const mt_record_bytes *src, mt_err *err)
{
    *out = NULL;
    text_file *f = mt_calloc(1, sizeof *f);
    if (!f) return mt_no_memory(err, "reading %s", src->path);
    *f = (text_file){ .src = src, .p = (const char *)src->data, .line = 1 };
    f->end = f->p + src->size;
    if (src->size >= 3 && memcmp(f->p, "\xef\xbb\xbf", 3) == 0) f->p += 3;
    mt_rc rc = mt__name_list_add(&f->columns, "text", 4, err);
    if (rc) {
        close_text(f);
        return rc;
    }
    *out = f;
    return MT_OK;
}

static const mt_name_list *columns(const void *reader) { return &((const text_file *)reader)->columns; }

static size_t format_text_position(const void *reader)
{
    const text_file *f = reader;
    return f->src->opt.sample_by == MT_SAMPLE_DOCUMENT ? 0 : (size_t)(f->p - (const char *)f->src->data);
}

const mt_format mt__format_text = {
    .name = "text",
    .extensions = ".txt .text .md",
    .open = open_text,
    .next = format_text_next,
    .columns = columns,
    .position = format_text_position,
    .close = close_text,
};
