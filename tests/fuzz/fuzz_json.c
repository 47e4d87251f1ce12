/* JSON records in any shape, with and without a field to look for; and what is written reads back. */
#include "fuzz_records.h"

static void round_trip(const uint8_t *data, size_t size)
{
    mt_arena a = { 0 };
    mt_value v, again;
    mt_str s = { 0 }, t = { 0 };
    if (!mt_value_parse_json(&v, &a, (const char *)data, size, NULL, "x", NULL)) {
        mt_value_write_json(&s, &v);
        if (mt_value_parse_json(&again, &a, s.s, s.n, NULL, "x", NULL)) abort();
        mt_value_write_json(&t, &again);
        if (s.n != t.n || memcmp(s.s, t.s, s.n) != 0) abort();
    }
    mt_str_free(&s);
    mt_str_free(&t);
    mt_arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_records("fuzz.json", data, size, &(mt_records_options){ .format = "json" });
    fuzz_records("fuzz.json", data, size, &(mt_records_options){ .format = "json", .field = "data" });
    round_trip(data, size);
    return 0;
}
