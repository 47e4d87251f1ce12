/* Parquet files: bytes, and files made of Thrift structs whose numbers are off here and there. */
#include "forge.h"
#include "fuzz_records.h"
#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_records("fuzz.parquet", data, size, &(mt_records_options){ .format = "parquet" });
    return 0;
}

static const int encodings[] = { 0, 0, 2, 3, 4, 5, 6, 7, 8, 8, 9 };

/* Values as some encoding might have them: a length and runs, or what chance gives. */
static void put_body(fuzz_rng *r, mt_str *out, size_t n_values)
{
    size_t n = fuzz_below(r, 4 * n_values + 8);
    if (fuzz_once_in(r, 2)) forge_le(out, fuzz_odd(r, fuzz_below(r, 16)), 4);
    if (fuzz_once_in(r, 2)) mt_str_putc(out, (char)fuzz_below(r, 34)); /* a bit width */
    if (fuzz_once_in(r, 2)) forge_varint(out, fuzz_odd(r, n_values << 1)), mt_str_putc(out, (char)fuzz_below(r, 3));
    for (size_t i = 0; i < n; i++) mt_str_putc(out, (char)(fuzz_once_in(r, 3) ? fuzz_below(r, 256) : fuzz_below(r, 4)));
}

static void put_page(fuzz_rng *r, mt_str *out, int type, size_t n_values)
{
    mt_str body = { 0 };
    forge_thrift page = { 0 }, inner = { 0 };
    put_body(r, &body, n_values);
    forge_i32(&page, 1, type), forge_i32(&page, 2, (int64_t)fuzz_odd(r, body.n)),
        forge_i32(&page, 3, (int64_t)fuzz_odd(r, body.n));
    forge_i32(&inner, 1, (int64_t)fuzz_odd(r, n_values));
    if (type == 3) {
        forge_i32(&inner, 2, (int64_t)fuzz_odd(r, 0)), forge_i32(&inner, 3, (int64_t)fuzz_odd(r, n_values));
        forge_i32(&inner, 4, FUZZ_PICK(r, encodings));
        forge_i32(&inner, 5, (int64_t)fuzz_odd(r, fuzz_below(r, 4))),
            forge_i32(&inner, 6, (int64_t)fuzz_odd(r, fuzz_below(r, 4)));
    } else {
        forge_i32(&inner, 2, FUZZ_PICK(r, encodings));
        if (type == 0) forge_i32(&inner, 3, 3), forge_i32(&inner, 4, 3);
    }
    forge_struct(&page, type == 2 ? 7 : type == 3 ? 8 : 5, &inner);
    mt_str_add(out, page.s.s, page.s.n);
    mt_str_putc(out, '\0');
    mt_str_add(out, body.n ? body.s : "", body.n);
    mt_str_free(&page.s);
    mt_str_free(&body);
}

typedef struct column {
    char name[8];
    int type, repetition, converted;
} column;

static void put_chunk(fuzz_rng *r, mt_str *out, const column *c, size_t rows, forge_thrift *chunk)
{
    forge_thrift meta = { 0 };
    size_t at = out->n, data_at;
    bool dictionary = fuzz_once_in(r, 2);
    if (dictionary) put_page(r, out, 2, 1 + fuzz_below(r, 4));
    data_at = out->n;
    for (size_t n = 1 + fuzz_below(r, 2); n; n--) put_page(r, out, fuzz_once_in(r, 3) ? 3 : 0, rows);
    forge_i32(&meta, 1, (int64_t)fuzz_odd(r, (uint64_t)c->type));
    forge_list(&meta, 2, 5, 1), forge_zigzag(&meta.s, FUZZ_PICK(r, encodings));
    forge_list(&meta, 3, 8, 1), forge_varint(&meta.s, strlen(c->name)), mt_str_puts(&meta.s, c->name);
    forge_i32(&meta, 4, fuzz_once_in(r, 6) ? (int64_t)fuzz_below(r, 9) : 0);
    forge_i64(&meta, 5, (int64_t)fuzz_odd(r, rows));
    forge_i64(&meta, 6, (int64_t)fuzz_odd(r, out->n - at)), forge_i64(&meta, 7, (int64_t)fuzz_odd(r, out->n - at));
    forge_i64(&meta, 9, (int64_t)fuzz_odd(r, data_at));
    if (dictionary) forge_i64(&meta, 11, (int64_t)fuzz_odd(r, at));
    forge_i64(chunk, 2, (int64_t)at);
    forge_struct(chunk, 3, &meta);
}

void fuzz_generate(fuzz_rng *r, mt_str *out)
{
    column columns[4];
    forge_thrift footer = { 0 }, e = { 0 };
    size_t n = 1 + fuzz_below(r, 4), n_groups = 1 + fuzz_below(r, 2), rows = 1 + fuzz_below(r, 9);
    mt_str groups = { 0 };
    mt_str_puts(out, "PAR1");
    for (size_t i = 0; i < n; i++) {
        columns[i] = (column){ .type = fuzz_once_in(r, 2) ? 6 : (int)fuzz_below(r, 8),
                               .repetition = (int)fuzz_below(r, 3),
                               .converted = (int)fuzz_below(r, 22) };
        snprintf(columns[i].name, sizeof columns[i].name, "c%zu", fuzz_once_in(r, 20) ? 0 : i);
    }
    for (size_t g = 0; g < n_groups; g++) {
        forge_thrift group = { 0 }, chunk = { 0 };
        forge_list(&group, 1, 12, n);
        for (size_t i = 0; i < n; i++) put_chunk(r, out, &columns[i], rows, &chunk), forge_item(&group, &chunk);
        forge_i64(&group, 2, (int64_t)fuzz_odd(r, 100)), forge_i64(&group, 3, (int64_t)fuzz_odd(r, rows));
        mt_str_add(&groups, group.s.s, group.s.n);
        mt_str_putc(&groups, '\0');
        mt_str_free(&group.s);
    }
    forge_i32(&footer, 1, 1);
    forge_list(&footer, 2, 12, n + 1);
    forge_binary(&e, 4, "schema", 6), forge_i32(&e, 5, (int64_t)fuzz_odd(r, n));
    forge_item(&footer, &e);
    for (size_t i = 0; i < n; i++) {
        forge_i32(&e, 1, columns[i].type);
        if (columns[i].type == 7) forge_i32(&e, 2, (int64_t)fuzz_odd(r, 16));
        forge_i32(&e, 3, columns[i].repetition), forge_binary(&e, 4, columns[i].name, strlen(columns[i].name));
        if (fuzz_once_in(r, 8)) forge_i32(&e, 5, (int64_t)fuzz_odd(r, 1));
        if (fuzz_once_in(r, 2)) forge_i32(&e, 6, columns[i].converted);
        forge_item(&footer, &e);
    }
    forge_i64(&footer, 3, (int64_t)fuzz_odd(r, rows * n_groups));
    forge_list(&footer, 4, 12, n_groups);
    mt_str_add(&footer.s, groups.s, groups.n);
    mt_str_putc(&footer.s, '\0');
    mt_str_add(out, footer.s.s, footer.s.n);
    forge_le(out, fuzz_odd(r, footer.s.n), 4);
    mt_str_puts(out, "PAR1");
    mt_str_free(&footer.s);
    mt_str_free(&groups);
    fuzz_damage(r, out, 1);
}
