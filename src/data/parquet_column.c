/* parquet_column.c - one column of one row group: its pages in order, each decompressed when its turn comes.
 *
 * At any time a column holds its dictionary, one page and one batch of decoded entries, so memory depends on page sizes, not on
 * the row group's.  Uncompressed pages are read directly from the mapped file. */
#include "base/le.h"
#include "data/parquet.h"
#include "data/thrift.h"

#include <string.h>

typedef struct page_header {
    int64_t type, whole, packed; /* sizes: decompressed, in the file */
    int64_t n_values, encoding, rep_encoding, def_encoding;
    int64_t rep_bytes, def_bytes; /* version 2: the levels, never compressed */
    bool compressed;
} page_header;

enum { DATA_PAGE = 0, DICTIONARY_PAGE = 2, DATA_PAGE_V2 = 3 };

/* Writers give up on a dictionary after a megabyte or so. */
enum { MAX_DICTIONARY_BYTES = 256 << 20 };

static mt_rc parquet_column_bad(const pq_column *c, mt_err *err, const char *message)
{
    mt_rc rc = message == mt__pq_no_memory ? MT_ENOMEM : MT_EFORMAT;
    return mt_fail(err, rc, "%s: column \"%s\": %s", c->src->path, c->leaf->name, message);
}

static void read_data_header(mt_thrift *t, page_header *h)
{
    mt_thrift_field f = { 0 };
    while (mt__thrift_next(t, &f)) {
        switch (f.id) {
        case 1: h->n_values = mt__thrift_int(t, &f); break;
        case 2: h->encoding = mt__thrift_int(t, &f); break;
        case 3: h->def_encoding = mt__thrift_int(t, &f); break;
        case 4: h->rep_encoding = mt__thrift_int(t, &f); break;
        default: mt__thrift_skip(t, &f);
        }
    }
}

static void read_dictionary_header(mt_thrift *t, page_header *h)
{
    mt_thrift_field f = { 0 };
    while (mt__thrift_next(t, &f)) {
        switch (f.id) {
        case 1: h->n_values = mt__thrift_int(t, &f); break;
        case 2: h->encoding = mt__thrift_int(t, &f); break;
        default: mt__thrift_skip(t, &f);
        }
    }
}

static void read_data_header_v2(mt_thrift *t, page_header *h)
{
    mt_thrift_field f = { 0 };
    while (mt__thrift_next(t, &f)) {
        switch (f.id) {
        case 1: h->n_values = mt__thrift_int(t, &f); break;
        case 4: h->encoding = mt__thrift_int(t, &f); break;
        case 5: h->def_bytes = mt__thrift_int(t, &f); break;
        case 6: h->rep_bytes = mt__thrift_int(t, &f); break;
        case 7: h->compressed = mt__thrift_bool(t, &f); break;
        default: mt__thrift_skip(t, &f);
        }
    }
}

static mt_rc read_page_header(pq_column *c, page_header *h, mt_err *err)
{
    mt_thrift t = { .p = c->p, .end = c->end };
    mt_thrift_field f = { 0 };
    *h = (page_header){ .type = -1,
                        .whole = -1,
                        .packed = -1,
                        .n_values = -1,
                        .encoding = -1,
                        .compressed = true,
                        .rep_encoding = PQ_RLE,
                        .def_encoding = PQ_RLE };
    while (mt__thrift_next(&t, &f)) {
        switch (f.id) {
        case 1: h->type = mt__thrift_int(&t, &f); break;
        case 2: h->whole = mt__thrift_int(&t, &f); break;
        case 3: h->packed = mt__thrift_int(&t, &f); break;
        case 5:
            if (mt__thrift_enter(&t, &f)) read_data_header(&t, h);
            break;
        case 7:
            if (mt__thrift_enter(&t, &f)) read_dictionary_header(&t, h);
            break;
        case 8:
            if (mt__thrift_enter(&t, &f)) read_data_header_v2(&t, h);
            break;
        default: mt__thrift_skip(&t, &f);
        }
    }
    if (t.failed) return parquet_column_bad(c, err, "a page header is damaged");
    c->p = t.p;
    if (h->packed < 0 || h->packed > c->end - c->p || h->whole < 0 || h->whole > MT_CODEC_MAX_BYTES)
        return parquet_column_bad(c, err, "a page is larger than its column or than 1 GiB");
    return MT_OK;
}

/* The page's bytes, decompressed into *buffer if they have to be. */
static mt_rc parquet_column_unpack(pq_column *c, const uint8_t *in, size_t n, bool compressed, size_t whole, uint8_t **buffer,
                                   size_t *cap, const uint8_t **out, mt_err *err)
{
    if (!compressed || c->codec == MT_CODEC_NONE) {
        if (n != whole) return parquet_column_bad(c, err, "an uncompressed page with two sizes");
        *out = in;
        return MT_OK;
    }
    if (whole == 0) return *out = in, MT_OK;
    if (!mt__codec_can_unpack(c->codec, n, whole))
        return parquet_column_bad(c, err, "a page that would unpack to more than its bytes can hold");
    if (mt_grow(buffer, cap, whole, 1, NULL)) return mt_no_memory(err, "a page of %s", c->src->path);
    if (mt__decompress(c->codec, in, n, *buffer, whole, err))
        return mt_note(err, "%s: column \"%s\"", c->src->path, c->leaf->name);
    *out = *buffer;
    return MT_OK;
}

static mt_rc load_dictionary(pq_column *c, const page_header *h, const uint8_t *in, mt_err *err)
{
    const uint8_t *p;
    if (c->leaf->type == PQ_BOOLEAN) return parquet_column_bad(c, err, "a dictionary of booleans");
    if (h->encoding != PQ_PLAIN && h->encoding != PQ_PLAIN_DICTIONARY)
        return parquet_column_bad(c, err, "a dictionary that is not plain");
    if (h->whole > MAX_DICTIONARY_BYTES) return parquet_column_bad(c, err, "a dictionary of more than 256 MiB");
    MT_TRY(parquet_column_unpack(c, in, (size_t)h->packed, true, (size_t)h->whole, &c->dict_page, &c->cap_dict_page, &p, err));
    int64_t least = c->leaf->type == PQ_FIXED ? (int64_t)c->leaf->width : 4;
    if (h->n_values < 0 || h->n_values > h->whole / least)
        return parquet_column_bad(c, err, "a dictionary of more values than it has bytes for");
    c->n_dict = 0;
    MT_TRY(mt_grow(&c->dict, &c->cap_dict, (size_t)h->n_values, sizeof *c->dict, err));
    pq_values v = { 0 };
    const char *trouble = mt__pq_values_start(&v, c->leaf, PQ_PLAIN, p, p + h->whole, NULL, 0);
    if (!trouble) trouble = mt__pq_values_read(&v, c->dict, (size_t)h->n_values);
    if (trouble) return parquet_column_bad(c, err, trouble);
    c->n_dict = (size_t)h->n_values;
    return MT_OK;
}

static int bit_width(int max)
{
    int w = 0;
    while (max >> w) w++;
    return w;
}

/* Version 1: levels come before the values, each after its length in four bytes. */
static const char *take_levels(pq_runs *runs, const uint8_t **p, const uint8_t *end, int max, int64_t encoding)
{
    mt__pq_runs_init(runs, *p, *p, 0);
    if (max == 0) return NULL;
    if (encoding != PQ_RLE) return "levels in the old bit-packed form, which is not supported";
    if (end - *p < 4) return "levels are cut off";
    uint32_t n = mt__le32(*p);
    if (n > (uint64_t)(end - *p - 4)) return "levels are cut off";
    mt__pq_runs_init(runs, *p + 4, *p + 4 + n, bit_width(max));
    *p += 4 + (size_t)n;
    return NULL;
}

static mt_rc start_values(pq_column *c, const page_header *h, const uint8_t *p, const uint8_t *end, mt_err *err)
{
    if (h->n_values < 0 || h->n_values > c->chunk_left)
        return parquet_column_bad(c, err, "a page of more entries than its column has");
    const char *trouble = mt__pq_values_start(&c->values, c->leaf, h->encoding > 100 || h->encoding < 0 ? 100 : (int)h->encoding,
                                              p, end, c->dict, c->n_dict);
    if (trouble) return parquet_column_bad(c, err, trouble);
    c->page_left = h->n_values;
    c->chunk_left -= h->n_values;
    return MT_OK;
}

static mt_rc load_data(pq_column *c, const page_header *h, const uint8_t *in, mt_err *err)
{
    const uint8_t *p;
    MT_TRY(parquet_column_unpack(c, in, (size_t)h->packed, true, (size_t)h->whole, &c->page, &c->cap_page, &p, err));
    const uint8_t *end = p + h->whole;
    const char *trouble = take_levels(&c->reps, &p, end, c->leaf->max_rep, h->rep_encoding);
    if (!trouble) trouble = take_levels(&c->defs, &p, end, c->leaf->max_def, h->def_encoding);
    if (trouble) return parquet_column_bad(c, err, trouble);
    return start_values(c, h, p, end, err);
}

static mt_rc load_data_v2(pq_column *c, const page_header *h, const uint8_t *in, mt_err *err)
{
    if (h->rep_bytes < 0 || h->def_bytes < 0 || h->rep_bytes > h->packed || h->def_bytes > h->packed - h->rep_bytes ||
        h->rep_bytes + h->def_bytes > h->whole)
        return parquet_column_bad(c, err, "levels reach past their page");
    const uint8_t *p = in + h->rep_bytes, *values;
    mt__pq_runs_init(&c->reps, in, p, bit_width(c->leaf->max_rep));
    mt__pq_runs_init(&c->defs, p, p + h->def_bytes, bit_width(c->leaf->max_def));
    p += h->def_bytes;
    size_t levels = (size_t)(h->rep_bytes + h->def_bytes), whole = (size_t)h->whole - levels;
    MT_TRY(parquet_column_unpack(c, p, (size_t)h->packed - levels, h->compressed, whole, &c->page, &c->cap_page, &values, err));
    return start_values(c, h, values, values + whole, err);
}

static mt_rc next_page(pq_column *c, mt_err *err)
{
    page_header h;
    if (c->p >= c->end) return parquet_column_bad(c, err, "fewer values than its description says");
    MT_TRY(read_page_header(c, &h, err));
    const uint8_t *in = c->p;
    c->p += h.packed;
    if (h.type == DICTIONARY_PAGE) return load_dictionary(c, &h, in, err);
    if (h.type == DATA_PAGE) return load_data(c, &h, in, err);
    if (h.type == DATA_PAGE_V2) return load_data_v2(c, &h, in, err);
    return MT_OK; /* an index page: nothing for us */
}

/* Levels of the next n entries; how many of them have a value. */
static const char *read_levels(pq_column *c, size_t n, size_t *n_cells)
{
    uint32_t levels[PQ_BATCH];
    const char *trouble = mt__pq_runs_read(&c->reps, levels, n);
    if (trouble) return trouble;
    for (size_t i = 0; i < n; i++) {
        if (levels[i] > (uint32_t)c->leaf->max_rep) return "a repetition level that cannot be";
        c->rep[i] = (uint8_t)levels[i];
    }
    trouble = mt__pq_runs_read(&c->defs, levels, n);
    if (trouble) return trouble;
    *n_cells = 0;
    for (size_t i = 0; i < n; i++) {
        if (levels[i] > (uint32_t)c->leaf->max_def) return "a definition level that cannot be";
        c->def[i] = (uint8_t)levels[i];
        *n_cells += levels[i] == (uint32_t)c->leaf->max_def;
    }
    return NULL;
}

mt_rc mt__pq_column_fill(pq_column *c, bool *more, mt_err *err)
{
    *more = true;
    if (c->at < c->n) return MT_OK;
    while (c->page_left == 0) {
        *more = c->chunk_left > 0;
        if (!*more) return MT_OK;
        MT_TRY(next_page(c, err));
    }
    size_t n = c->page_left < PQ_BATCH ? (size_t)c->page_left : PQ_BATCH, n_cells;
    const char *trouble = read_levels(c, n, &n_cells);
    if (!trouble) trouble = mt__pq_values_read(&c->values, c->cells, n_cells);
    if (trouble) return parquet_column_bad(c, err, trouble);
    c->page_left -= (int64_t)n;
    c->n = n;
    c->at = c->at_cell = 0;
    *more = true;
    return MT_OK;
}

static mt_rc find_codec(pq_column *c, int codec, mt_err *err)
{
    static const mt_codec codecs[] = { MT_CODEC_NONE,   MT_CODEC_SNAPPY,     MT_CODEC_GZIP, MT_CODEC_NONE /* LZO */,
                                       MT_CODEC_BROTLI, MT_CODEC_LZ4_HADOOP, MT_CODEC_ZSTD, MT_CODEC_LZ4_RAW };
    if (codec == 3)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: column \"%s\" is compressed with LZO, which is not supported", c->src->path,
                       c->leaf->name);
    if (codec < 0 || codec >= (int)MT_COUNT(codecs)) return parquet_column_bad(c, err, "an unknown compression");
    c->codec = codecs[codec];
    return MT_OK;
}

mt_rc mt__pq_column_start(pq_column *c, const mt_record_bytes *src, const pq_node *leaf, const pq_chunk *chunk, mt_err *err)
{
    c->src = src;
    c->leaf = leaf;
    c->p = src->data + chunk->start;
    c->end = c->p + chunk->n_bytes;
    c->chunk_left = chunk->n_values;
    c->page_left = 0;
    c->n = c->at = c->at_cell = c->n_dict = 0;
    if (chunk->type != (int)leaf->type) return parquet_column_bad(c, err, "schema and row group disagree about its type");
    return find_codec(c, chunk->codec, err);
}

void mt__pq_column_free(pq_column *c)
{
    mt__pq_values_free(&c->values);
    mt_free(c->page);
    mt_free(c->dict_page);
    mt_free(c->dict);
}
