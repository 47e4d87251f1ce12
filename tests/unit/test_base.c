/* The small things everything stands on: errors, sizes, numbers, strings, faults, the pool. */
#define _GNU_SOURCE
#include "test.h"

#include "base/dtype.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/numa.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/spread.h"
#include "base/str.h"
#include "base/units.h"
#include "base/utf8.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void notes_prepend_context_and_keep_the_code(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_fail(&err, MT_EFORMAT, "header is %d bytes", 7);
    assert_int_equal(mt_note(&err, "opening %s", "x.safetensors"), MT_EFORMAT);
    assert_string_equal(err.msg, "opening x.safetensors: header is 7 bytes");
    assert_string_equal(mt_rc_name(MT_EFORMAT), "MT_EFORMAT");
}

static void a_note_on_a_full_message_keeps_its_head(void **state)
{
    (void)state;
    mt_err err = { 0 };
    char big[MT_ERR_MSG_BYTES + 10];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    mt_fail(&err, MT_EIO, "%s", big);
    mt_note(&err, "reading");
    assert_memory_equal(err.msg, "reading: xxx", 12);
    assert_true(strlen(err.msg) < sizeof err.msg);
}

static void keep_text(void *user, mt_log_level level, const char *text)
{
    (void)level;
    snprintf(user, 64, "%s", text);
}

static void what_a_terminal_obeys_never_reaches_it(void **state)
{
    (void)state;
    mt_err err = { 0 };
    static const char evil[] = "a\x1b]0;owned\a\r\x7f\xc2\x9b"
                               "2J\tb\n\xc3\xa9\xc2\xa0"; /* of a tensor's name, say */
    static const char tame[] = "a?]0;owned?\?\???2J\tb\n\xc3\xa9\xc2\xa0";
    char said[64], expected[128];
    mt_fail(&err, MT_EFORMAT, "%s", evil);
    assert_string_equal(err.msg, tame);
    mt_note(&err, "%s", evil);
    snprintf(expected, sizeof expected, "%s: %s", tame, tame);
    assert_string_equal(err.msg, expected);
    errno = ENOENT;
    mt_fail_errno(&err, MT_EIO, "%s", evil);
    assert_memory_equal(err.msg, tame, sizeof tame - 1);
    mt_log_set_sink(keep_text, said);
    mt_warn("%s", evil);
    mt_log_set_sink(NULL, NULL);
    assert_string_equal(said, tame);
}

static void a_message_is_valid_utf8_wherever_it_cuts_a_text(void **state)
{
    (void)state;
    mt_err err = { 0 };
    static const char text[] = "a\xc3\xa9\xed\x95\x9c\xf0\x9f\x98\x80"; /* of 1, 2, 3 and 4 bytes */
    for (int n = 0; n < (int)sizeof text; n++) {
        mt_fail(&err, MT_EFORMAT, "answer: %.*s...", n, text);
        assert_true(mt_utf8_valid(err.msg, strlen(err.msg), NULL));
        assert_int_equal(strlen(err.msg), strlen("answer: ...") + (size_t)n);
    }
    mt_fail(&err, MT_EFORMAT, "%.*s...", 5, text);
    assert_string_equal(err.msg, "a\xc3\xa9?\?...");
    mt_fail(&err, MT_EFORMAT, "%s", "\xff\xc3z\xe2\x82");
    assert_string_equal(err.msg, "?\?z?\?");
}

static void sizes_refuse_to_overflow(void **state)
{
    (void)state;
    size_t n;
    assert_false(mt_mul_size(SIZE_MAX / 2, 3, &n));
    assert_false(mt_add_size(SIZE_MAX, 1, &n));
    assert_true(mt_mul_size(6, 7, &n) && n == 42);
    assert_null(mt_calloc(SIZE_MAX / 2, 3));
}

static void bytes_are_written_and_read_as_people_do(void **state)
{
    (void)state;
    mt_err err = { 0 };
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        { "64M", 64000000 }, { "1.5T", 1500000000000 }, { "80Gi", 80ull << 30 },
        { "123", 123 },      { "64 MB", 64000000 },     { "2MiB", 2 << 20 },
    };
    for (size_t i = 0; i < MT_COUNT(good); i++) {
        uint64_t n;
        assert_ok(mt_bytes_parse(good[i].text, &n, &err));
        assert_int_equal(n, good[i].bytes);
    }
    static const char *const bad[] = { "", "x", "12Q", "-3G", "1e30", "nan", "inf", "0x40G", "+1G" };
    for (size_t i = 0; i < MT_COUNT(bad); i++) {
        uint64_t n;
        assert_int_equal(mt_bytes_parse(bad[i], &n, &err), MT_EINVAL);
        assert_says("is not a size");
    }
    assert_string_equal(mt_bytes_text(512).s, "512 B");
    assert_string_equal(mt_bytes_text(15ull << 30).s, "15.0 GiB");
    assert_string_equal(mt_bytes_text((1ull << 30) - 1).s, "1.0 GiB");
    assert_string_equal(mt_count_text(7615616512).s, "7.62B");
    assert_string_equal(mt_seconds_text(200).s, "3 min 20 s");
    assert_string_equal(mt_seconds_text(0).s, "0.0 s");
    assert_string_equal(mt_seconds_text(2.2e-3).s, "2.2 ms"); /* a step of a small model */
    assert_string_equal(mt_seconds_text(0.0449).s, "45 ms");
    assert_string_equal(mt_seconds_text(0.1).s, "0.1 s");
}

static void memory_is_not_given_in_bytes_by_mistake(void **state)
{
    (void)state;
    mt_err err = { 0 };
    uint64_t n;
    static const char *const bad[] = { "0", "64", "64 ", "1.5", "1e3", "0G", "1048575" };
    for (size_t i = 0; i < MT_COUNT(bad); i++) {
        assert_int_equal(mt_memory_parse(bad[i], &n, &err), MT_EINVAL);
        assert_says("write 64G for gigabytes");
    }
    static const char *const good[] = { "4K", "64B", "1048576", "1.5T" };
    for (size_t i = 0; i < MT_COUNT(good); i++) assert_ok(mt_memory_parse(good[i], &n, &err));
    assert_int_equal(mt_memory_parse("much", &n, &err), MT_EINVAL);
    assert_says("is not a size");
}

static void counts_are_read_as_they_are_written(void **state)
{
    (void)state;
    mt_err err = { 0 };
    static const struct {
        const char *text;
        uint64_t count;
    } good[] = {
        { "13B", 13000000000 },     { "13G", 13000000000 }, { "350m", 350000000 },
        { "1.5 T", 1500000000000 }, { "8000000", 8000000 }, { "12.5K", 12500 },
    };
    uint64_t n;
    for (size_t i = 0; i < MT_COUNT(good); i++) {
        assert_ok(mt_count_parse(good[i].text, &n, &err));
        assert_int_equal(n, good[i].count);
    }
    static const char *const bad[] = { "", "lots", "0", "-1B", "13Bx", "13 billion", "0x10", "1e30B" };
    for (size_t i = 0; i < MT_COUNT(bad); i++) assert_int_equal(mt_count_parse(bad[i], &n, &err), MT_EINVAL);
}

static void every_half_float_survives_the_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = mt_f16_to_f32((uint16_t)h), b = mt_bf16_to_f32((uint16_t)h);
        if (isnan(f))
            assert_true(isnan(mt_f16_to_f32(mt_f32_to_f16(f))));
        else
            assert_int_equal(mt_f32_to_f16(f), h);
        if (isnan(b))
            assert_true(isnan(mt_bf16_to_f32(mt_f32_to_bf16(b))));
        else
            assert_int_equal(mt_f32_to_bf16(b), h);
    }
    assert_int_equal(mt_f32_to_bf16(mt_f32_from_bits(0x3f808000)), 0x3f80); /* tie to even, down */
    assert_int_equal(mt_f32_to_bf16(mt_f32_from_bits(0x3f818000)), 0x3f82); /* tie to even, up */
    assert_int_equal(mt_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(mt_f32_to_f16(65519.996f), 0x7bff);
    float e4m3[4];
    const uint8_t codes[4] = { 0x7e, 0x08, 0x01, 0xb8 };
    mt_to_f32(e4m3, codes, MT_DTYPE_F8_E4M3, 4);
    assert_true(e4m3[0] == 448 && e4m3[1] == 0x1p-6f && e4m3[2] == 0x1p-9f && e4m3[3] == -1);
}

static void dtype_names_are_understood(void **state)
{
    (void)state;
    mt_dtype t;
    assert_true(mt_dtype_from_st("BF16", &t) && t == MT_DTYPE_BF16);
    assert_true(mt_dtype_from_torch("torch.float16", &t) && t == MT_DTYPE_F16);
    assert_true(mt_dtype_from_torch("bf16", &t) && t == MT_DTYPE_BF16);
    assert_false(mt_dtype_from_st("Q4_0", &t));
}

static void utf8_is_strict(void **state)
{
    (void)state;
    static const char *const bad[] = { "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xff", "a\x80" };
    for (size_t i = 0; i < MT_COUNT(bad); i++) assert_false(mt_utf8_valid(bad[i], strlen(bad[i]), NULL));
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        char s[4];
        uint32_t back = 0;
        int n = mt_utf8_encode(cp, s);
        if (cp >= 0xd800 && cp <= 0xdfff)
            assert_int_equal(n, 0);
        else
            assert_true(n && mt_utf8_decode(s, (size_t)n, &back) == n && back == cp);
    }
}

static void json_strings_escape_what_json_must(void **state)
{
    (void)state;
    mt_str b = { 0 };
    mt_str_json(&b, "a\"\\\n\x01\xc3\xa9\xff", 8);
    assert_string_equal(b.s, "\"a\\\"\\\\\\n\\u0001\xc3\xa9\xef\xbf\xbd\"");
    mt_str_free(&b);
}

static void json_errors_say_where_and_what(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_value *doc;
    assert_int_equal(mt_json_parse(&doc, "{\"a\": }", 7, "config.json", &err), MT_EFORMAT);
    assert_says("config.json: not valid JSON at line 1");
    static const char text[] = "{\"a\": \"x\", \"b\": null, \"c\": 4.0}";
    assert_ok(mt_json_parse(&doc, text, sizeof text - 1, "config.json", &err));
    int64_t v;
    assert_int_equal(mt_json_i64(doc, "a", 0, &v, "config.json", &err), MT_EFORMAT);
    assert_says("\"a\" should be an integer and is a string");
    assert_ok(mt_json_i64(doc, "b", 9, &v, "config.json", &err));
    assert_int_equal(v, 9);
    assert_ok(mt_json_i64(doc, "c", 9, &v, "config.json", &err));
    assert_int_equal(v, 4);
    mt_json_free(doc);
}

/* Much that is not JSON is in files, because Python writes it. */
static void json_that_python_reads_is_read(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_value *doc;
    static const char *const alone[] = { "[Infinity]", "[1000000000000000019884624838656]", "[1e400]", "[\"\\ud800\"]", "NaN" };
    for (size_t i = 0; i < MT_COUNT(alone); i++) {
        assert_ok(mt_json_parse(&doc, alone[i], strlen(alone[i]), "config.json", &err));
        mt_json_free(doc);
    }
    static const char text[] = "{\"a\": 1e400, \"b\": 1000000000000000019884624838656, \"c\": [null, true, -Infinity, NaN],"
                               " \"d\": \"\\ud800\", \"e\": 7, \"f\": {\"Infinity\": \"x \\\"NaN\"}, \"a\": Infinity}";
    assert_ok(mt_json_parse(&doc, text, sizeof text - 1, "config.json", &err));
    int64_t i;
    double f;
    const char *s;
    assert_int_equal(mt_json_f64(doc, "a", 0, &f, "config.json", &err), MT_EFORMAT);
    assert_string_equal(err.msg, "config.json: \"a\" should be a number and is Infinity");
    assert_int_equal(mt_json_i64(doc, "b", 0, &i, "config.json", &err), MT_EFORMAT);
    assert_says("\"b\" should be an integer and is a number");
    assert_ok(mt_json_f64(doc, "b", 0, &f, "config.json", &err));
    assert_true(f == 1e30);
    assert_ok(mt_json_str(doc, "d", "", &s, "config.json", &err));
    assert_string_equal(s, "\xef\xbf\xbd");
    assert_ok(mt_json_i64(doc, "e", 0, &i, "config.json", &err));
    assert_int_equal(i, 7);
    mt_str written = { 0 };
    mt_value_write_json(&written, doc);
    assert_string_equal(written.s, "{\"a\": Infinity, \"b\": 1000000000000000019884624838656, \"c\": [null, true, -Infinity, "
                                   "NaN], \"d\": \"\xef\xbf\xbd\", \"e\": 7, "
                                   "\"f\": {\"Infinity\": \"x \\\"NaN\"}}");
    mt_str_free(&written);
    mt_json_free(doc);
    static const char broken[] = "{\"a\": Infinity, }"; /* what is wrong is not Infinity */
    assert_int_equal(mt_json_parse(&doc, broken, sizeof broken - 1, "config.json", &err), MT_EFORMAT);
    assert_says("config.json: not valid JSON at line 1, column 17: a key in double quotes was expected");
    assert_null(doc);
}

static void a_document_can_be_changed_and_written_again(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_value *doc;
    static const char text[] = "{\"a\": 1, \"b\": {\"c\": \"x\\ny\", \"d\": []}, \"e\": 1e-06}";
    assert_ok(mt_json_parse(&doc, text, sizeof text - 1, "config.json", &err));
    const mt_value new = mt_json_text("new");
    assert_ok(mt_json_set(doc, doc, "a", NULL, &err));
    assert_ok(mt_json_set(doc, mt_value_get(doc, "b"), "c", &new, &err));
    assert_ok(mt_json_set(doc, doc, "f", &new, &err));
    assert_ok(mt_json_set(doc, doc, "nowhere", NULL, &err));
    mt_str s = { 0 };
    mt_value_write_indented(&s, doc); /* as Python's indent=2 */
    assert_string_equal(s.s, "{\n  \"b\": {\n    \"c\": \"new\",\n    \"d\": []\n  },\n  \"e\": 1e-06,\n  \"f\": \"new\"\n}");
    mt_str_free(&s);
    mt_json_free(doc);
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_map map;
    assert_int_equal(mt_map_open(&map, "/nowhere/at/all", &err), MT_ENOENT);
    assert_says("/nowhere/at/all");
}

static void a_string_out_of_memory_fails_once_and_cleanly(void **state)
{
    (void)state;
    mt_err err = { 0 };
    for (int n = 0;; n++) {
        mt_str b = { 0 };
        char *out = NULL;
        mt_fault_arm(MT_FAULT_ALLOC, n);
        for (int i = 0; i < 100; i++) mt_str_printf(&b, "%d,", i);
        mt_rc rc = mt_str_done(&b, &out, &err);
        if (!mt_fault_disarm()) {
            assert_int_equal(rc, MT_OK);
            mt_free(out);
            assert_true(n > 2);
            break;
        }
        assert_int_equal(rc, MT_ENOMEM);
        assert_null(out);
    }
}

static void lack_of_memory_names_the_thing_and_the_bytes(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_fault_arm(MT_FAULT_ALLOC, 0);
    assert_null(mt_calloc(3, 1024));
    assert_true(mt_fault_disarm());
    assert_int_equal(mt_no_memory(&err, "the vocabulary of %s", "x.json"), MT_ENOMEM);
    assert_string_equal(err.msg, "no host memory for the vocabulary of x.json (3.0 KiB)");
    mt_no_memory(&err, "a text past its bound"); /* the bytes before are spoken for */
    assert_string_equal(err.msg, "no host memory for a text past its bound");
    assert_null(mt_calloc(SIZE_MAX, 2));
    mt_no_memory(&err, "all of it");
    assert_non_null(strstr(err.msg, "PiB)"));
}

typedef struct {
    atomic_long sum;
} total;
static void add_index(void *arg, int64_t i) { atomic_fetch_add(&((total *)arg)->sum, i); }

static void the_pool_visits_every_index_once(void **state)
{
    (void)state;
    mt_err err = { 0 };
    for (int threads = 1; threads <= 4; threads++) {
        mt_pool *pool;
        assert_ok(mt_pool_create(&pool, threads, &err));
        for (int round = 0; round < 200; round++) {
            total t = { 0 };
            mt_pool_for(pool, round, add_index, &t);
            assert_int_equal(t.sum, (long)round * (round - 1) / 2);
        }
        mt_pool_free(pool);
    }
}

static mt_rc fail_at_seven_and_nine(void *arg, int64_t i, mt_err *err)
{
    atomic_fetch_add(&((total *)arg)->sum, 1);
    return i == 7 || i == 9 ? mt_fail(err, MT_EIO, "part %d", (int)i) : MT_OK;
}

static void a_spread_loop_ends_at_its_first_failure(void **state)
{
    (void)state;
    for (int threads = 0; threads <= 4; threads++) {
        mt_err err = { 0 };
        total t = { 0 };
        assert_ok(mt_spread(threads, 7, fail_at_seven_and_nine, &t, &err));
        assert_int_equal(t.sum, 7);
        if (threads == 4) mt_fault_arm(MT_FAULT_THREAD, 1); /* no threads, no haste */
        assert_int_equal(mt_spread(threads, 100000, fail_at_seven_and_nine, &t, &err), MT_EIO);
        if (threads == 4) assert_true(mt_fault_disarm());
        assert_true(t.sum < 7 + 100000);
        assert_says("part 7");
    }
}

/* Which cores each of two threads may run on; both wait for the other, so that none takes both turns. */
typedef struct {
    pthread_barrier_t both;
    cpu_set_t seen[2];
    int bound;
} cores;

static void note_cores(void *arg, int64_t i)
{
    cores *c = arg;
    sched_getaffinity(0, sizeof c->seen[i], &c->seen[i]);
    pthread_barrier_wait(&c->both);
}

/* On a separate thread, because the caller is pinned. */
static void *pin_and_look(void *arg)
{
    mt_err err = { 0 };
    mt_pool *pool;
    cores *c = arg;
    if (mt_pool_create(&pool, 2, &err)) return NULL;
    c->bound = mt_pool_pin(pool);
    mt_pool_for(pool, 2, note_cores, c);
    mt_pool_free(pool);
    return NULL;
}

static void pinned_threads_have_a_core_each(void **state)
{
    (void)state;
    pthread_t t;
    cpu_set_t usable, own;
    cores c = { .bound = -1 };
    if (mt_cpu_count() < 2) skip();
    sched_getaffinity(0, sizeof usable, &usable);
    pthread_barrier_init(&c.both, NULL, 2);
    assert_int_equal(pthread_create(&t, NULL, pin_and_look, &c), 0);
    pthread_join(t, NULL);
    pthread_barrier_destroy(&c.both);
    assert_int_equal(c.bound, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(CPU_COUNT(&c.seen[i]), 1);
        CPU_AND(&own, &c.seen[i], &usable);
        assert_int_equal(CPU_COUNT(&own), 1); /* none but those the process may use */
    }
    assert_false(CPU_EQUAL(&c.seen[0], &c.seen[1]));
}

static void pinning_can_be_turned_off_and_needs_cores(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_pool *pool;
    cpu_set_t before, after;
    sched_getaffinity(0, sizeof before, &before);
    assert_ok(mt_pool_create(&pool, mt_cpu_count() + 1, &err));
    assert_int_equal(mt_pool_pin(pool), 0);
    mt_pool_free(pool);
    assert_ok(mt_pool_create(&pool, 1, &err));
    setenv("MT_PIN", "0", 1);
    assert_int_equal(mt_pool_pin(pool), 0);
    unsetenv("MT_PIN");
    mt_pool_free(pool);
    sched_getaffinity(0, sizeof after, &after);
    assert_true(CPU_EQUAL(&before, &after));
}

/* Which policy memory at p has; -1: the system does not say. */
static int policy_at(void *p)
{
    int policy = -1;
    return syscall(SYS_get_mempolicy, &policy, NULL, 0, p, MPOL_F_ADDR) ? -1 : policy;
}

static void memory_is_spread_over_nodes(void **state)
{
    (void)state;
    size_t bytes = (size_t)1 << 20;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    uint64_t nodes = mt_numa_nodes("");
    assert_true(mt_numa_nodes("/nowhere") == 1 && nodes != 0);
    mt_numa_spread(p, bytes);
    if (policy_at(p) >= 0) assert_int_equal(policy_at(p), nodes & (nodes - 1) ? MPOL_INTERLEAVE : MPOL_DEFAULT);
    if (mt_numa_interleave(p, bytes, nodes) && policy_at(p) >= 0) assert_int_equal(policy_at(p), MPOL_INTERLEAVE);
    memset(p, 1, bytes); /* it can be used */
    munmap(p, bytes);
}

static void a_refused_thread_leaves_nothing_behind(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_pool *pool;
    mt_fault_arm(MT_FAULT_THREAD, 1);
    assert_int_equal(mt_pool_create(&pool, 4, &err), MT_ENOMEM);
    assert_true(mt_fault_disarm());
    assert_null(pool);
}

static void random_numbers_depend_on_all_three_keys(void **state)
{
    (void)state;
    assert_true(mt_rng_u64(1, 2, 3) != mt_rng_u64(2, 2, 3));
    assert_true(mt_rng_u64(1, 2, 3) != mt_rng_u64(1, 3, 3));
    assert_true(mt_rng_u64(1, 2, 3) != mt_rng_u64(1, 2, 4));
    double sum = 0, sq = 0;
    for (int i = 0; i < 100000; i++) {
        double x = mt_rng_normal(7, 1, (uint64_t)i);
        sum += x, sq += x * x;
    }
    assert_true(fabs(sum / 1e5) < 0.02 && fabs(sq / 1e5 - 1) < 0.02);
}

MT_TEST_MAIN(cmocka_unit_test(notes_prepend_context_and_keep_the_code), cmocka_unit_test(a_note_on_a_full_message_keeps_its_head),
             cmocka_unit_test(what_a_terminal_obeys_never_reaches_it),
             cmocka_unit_test(a_message_is_valid_utf8_wherever_it_cuts_a_text), cmocka_unit_test(sizes_refuse_to_overflow),
             cmocka_unit_test(bytes_are_written_and_read_as_people_do), cmocka_unit_test(memory_is_not_given_in_bytes_by_mistake),
             cmocka_unit_test(counts_are_read_as_they_are_written), cmocka_unit_test(every_half_float_survives_the_round_trip),
             cmocka_unit_test(dtype_names_are_understood), cmocka_unit_test(utf8_is_strict),
             cmocka_unit_test(json_strings_escape_what_json_must), cmocka_unit_test(json_errors_say_where_and_what),
             cmocka_unit_test(json_that_python_reads_is_read), cmocka_unit_test(a_document_can_be_changed_and_written_again),
             cmocka_unit_test(a_missing_file_is_named), cmocka_unit_test(a_string_out_of_memory_fails_once_and_cleanly),
             cmocka_unit_test(lack_of_memory_names_the_thing_and_the_bytes), cmocka_unit_test(the_pool_visits_every_index_once),
             cmocka_unit_test(a_spread_loop_ends_at_its_first_failure), cmocka_unit_test(pinned_threads_have_a_core_each),
             cmocka_unit_test(pinning_can_be_turned_off_and_needs_cores), cmocka_unit_test(memory_is_spread_over_nodes),
             cmocka_unit_test(a_refused_thread_leaves_nothing_behind), cmocka_unit_test(random_numbers_depend_on_all_three_keys))
