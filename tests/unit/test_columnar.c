/* Parquet and Arrow files whose metadata is wrong.  Real files are in golden/test_formats.c. */
#include "forge.h"
#include "test.h"

#include "base/str.h"
#include "data/arrow.h"
#include "data/parquet.h"
#include "data/records.h"

/* ---- a writer for the few parts of Thrift's compact protocol that a footer needs ---- */

enum { I32 = 5, I64 = 6, BINARY = 8, LIST = 9, STRUCT = 12 };

static void put_int(mt_str *to, int64_t n)
{
    uint64_t zigzag = (uint64_t)n << 1;
    for (; zigzag > 127; zigzag >>= 7) mt_str_putc(to, (char)(zigzag | 128));
    mt_str_putc(to, (char)zigzag);
}

static void put_field(mt_str *to, int id, int type)
{
    mt_str_putc(to, (char)type);
    put_int(to, id);
}

static void put_number(mt_str *to, int id, int type, int64_t n)
{
    put_field(to, id, type);
    put_int(to, n);
}

static void put_name(mt_str *to, int id, const char *name)
{
    put_field(to, id, BINARY);
    mt_str_putc(to, (char)strlen(name));
    mt_str_add(to, name, strlen(name));
}

static void put_structs(mt_str *to, int id, int n)
{
    put_field(to, id, LIST);
    mt_str_putc(to, (char)(n << 4 | STRUCT));
}

static void end_struct(mt_str *to) { mt_str_putc(to, 0); }

/* ---- a file of one column with one number ---- */

static void put_page(mt_str *to, int32_t value)
{
    put_number(to, 1, I32, 0);            /* a data page */
    put_number(to, 2, I32, sizeof value); /* bytes, and compressed ones */
    put_number(to, 3, I32, sizeof value);
    put_field(to, 5, STRUCT);
    put_number(to, 1, I32, 1); /* values */
    put_number(to, 2, I32, PQ_PLAIN);
    put_number(to, 3, I32, PQ_RLE);
    put_number(to, 4, I32, PQ_RLE);
    end_struct(to);
    end_struct(to);
    forge_le(to, (uint32_t)value, 4);
}

static void put_chunk(mt_str *to, size_t at, size_t n_bytes)
{
    put_field(to, 3, STRUCT);
    put_number(to, 1, I32, PQ_INT32);
    put_number(to, 4, I32, 0); /* not compressed */
    put_number(to, 5, I64, 1); /* values */
    put_number(to, 7, I64, (int64_t)n_bytes);
    put_number(to, 9, I64, (int64_t)at);
    end_struct(to);
    end_struct(to);
}

static void put_schema(mt_str *to)
{
    put_structs(to, 2, 2);
    put_name(to, 4, "root");
    put_number(to, 5, I32, 1);
    end_struct(to);
    put_number(to, 1, I32, PQ_INT32);
    put_number(to, 3, I32, PQ_REQUIRED);
    put_name(to, 4, "n");
    end_struct(to);
}

/* The row group lists its columns twice, the second time n_again of them. */
static void write_parquet(mt_str *to, int n_again)
{
    mt_str_add(to, "PAR1", 4);
    put_page(to, 42);
    size_t footer = to->n, n_page = footer - 4;
    put_number(to, 1, I32, 1); /* version */
    put_schema(to);
    put_number(to, 3, I64, 1);
    put_structs(to, 4, 1);
    put_structs(to, 1, 1);
    put_chunk(to, 4, n_page);
    put_structs(to, 1, n_again);
    for (int i = 0; i < n_again; i++) put_chunk(to, 0, 0);
    put_number(to, 3, I64, 1);
    end_struct(to);
    end_struct(to);
    forge_le(to, to->n - footer, 4);
    mt_str_add(to, "PAR1", 4);
    assert_true(mt_str_ok(to));
}

static void of_two_lists_of_columns_the_first_counts(void **state)
{
    (void)state;
    for (int n_again = 0; n_again < 4; n_again++) {
        mt_err err = { 0 };
        mt_str file = { 0 };
        mt_records *r = NULL;
        mt_arena a = { 0 };
        mt_value v;
        mt_record_place where;
        write_parquet(&file, n_again);
        assert_ok(mt__records_open_bytes(&r, "x.parquet", file.s, file.n, NULL, &err));
        assert_ok(mt_records_next(r, &a, &v, &where, &err));
        assert_int_equal(v.type, MT_VALUE_MAP);
        assert_string_equal(v.map.pairs[0].key, "n");
        assert_int_equal(v.map.pairs[0].value.type, MT_VALUE_INT);
        assert_int_equal(v.map.pairs[0].value.i, 42);
        mt_arena_free(&a);
        mt_records_close(r);
        mt_str_free(&file);
    }
}

/* ---- schemas that want more memory than their files are worth ---- */

static mt_rc build_parquet_schema(pq_element *elements, size_t n, size_t *n_bytes, mt_err *err)
{
    pq_footer footer = { .elements = elements, .n_elements = n };
    pq_schema schema;
    mt_arena arena = { 0 };
    mt_rc rc = mt__pq_schema_build(&schema, &footer, &(mt_record_bytes){ .path = "x.parquet" }, &arena, err);
    *n_bytes = arena.total_bytes;
    mt_free(schema.leaves);
    mt_arena_free(&arena);
    return rc;
}

/* Each group claims all elements after it, or the root does; the last element is a column. */
static void parquet_groups_share_the_elements(void **state)
{
    (void)state;
    enum { N = 40001 };
    pq_element *elements = mt_calloc(N, sizeof *elements);
    mt_err err = { 0 };
    size_t n_bytes;
    assert_non_null(elements);
    for (size_t i = 0; i < N; i++) elements[i] = (pq_element){ .name = "", .type = -1, .n_children = (int64_t)(N - 1 - i) };
    assert_int_equal(build_parquet_schema(elements, N, &n_bytes, &err), MT_EFORMAT);
    assert_says("x.parquet: Parquet schema: more than 40000 elements");
    assert_true(n_bytes == 0);

    for (size_t i = 0; i < N - 1; i++) elements[i].n_children = (int64_t)(N - 2 - i);
    assert_int_equal(build_parquet_schema(elements, N - 1, &n_bytes, &err), MT_EFORMAT);
    assert_says("a group without its fields");
    assert_true(n_bytes < 4 * N * sizeof(pq_node));

    for (size_t i = 0; i < 8; i++) elements[i].n_children = 1; /* one inside the other: nothing wrong with that */
    elements[8].type = PQ_INT32;
    assert_ok(build_parquet_schema(elements, 9, &n_bytes, &err));
    mt_free(elements);
}

/* Schema.fbs with n fields that are not there: vtable, table, vector. */
static void arrow_fields_are_counted_before_there_is_room_for_them(void **state)
{
    (void)state;
    enum { N = 10001 };
    static const uint16_t table[] = { 12, 0, 8, 8, 0, 4, 8, 0, 4, 0 }; /* root, vtable, and where vtable and vector are */
    mt_err err = { 0 };
    mt_arena arena = { 0 };
    ar_schema schema;
    mt_str bytes = { 0 };
    for (size_t i = 0; i < MT_COUNT(table); i++) forge_le(&bytes, table[i], 2);
    forge_le(&bytes, N, 4);
    forge_zeros(&bytes, N * 4);
    mt_flatbuf buf = { .data = (const uint8_t *)bytes.s, .size = bytes.n };
    mt_record_bytes src = { .path = "x.arrow", .keep = &arena };
    assert_int_equal(mt__ar_schema_read(&schema, mt__flat_root(&buf), &src, &err), MT_EFORMAT);
    assert_says("x.arrow: Arrow schema: column \"\": too many columns");
    assert_true(arena.total_bytes == 0);
    mt_str_free(&bytes);
}

MT_TEST_MAIN(cmocka_unit_test(of_two_lists_of_columns_the_first_counts), cmocka_unit_test(parquet_groups_share_the_elements),
             cmocka_unit_test(arrow_fields_are_counted_before_there_is_room_for_them))
