/* Pickles that are refused, by name, and damaged ones: a message and never a crash. */
#include "test.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/str.h"
#include "ckpt/pickle.h"

#include <stdlib.h>

#define DIR MT_TESTS_DIR "/golden/weights/"

static void fails_with(const char *name, mt_rc rc, const char *says)
{
    mt_err err = { 0 };
    mt_pickle *p = NULL;
    char path[1024];
    snprintf(path, sizeof path, DIR "refused/%s", name);
    mt_rc got = mt_pickle_open(&p, path, &err);
    if (got != rc) fail_msg("%s: %s instead of %s: %s", name, mt_rc_name(got), mt_rc_name(rc), err.msg);
    assert_says(says);
    assert_says(name);
    assert_null(p);
}

static void code_is_refused_by_name(void **state)
{
    (void)state;
    fails_with("system_zip.bin", MT_EUNSUPPORTED, "refused: calls posix.system");
    fails_with("system_legacy.bin", MT_EUNSUPPORTED, "refused: calls posix.system");
    fails_with("system_plain.bin", MT_EUNSUPPORTED, "refused: calls posix.system");
    fails_with("os_system.bin", MT_EUNSUPPORTED, "refused: calls os.system");
    fails_with("eval_protocol4.bin", MT_EUNSUPPORTED, "refused: calls builtins.eval");
    fails_with("newobj.bin", MT_EUNSUPPORTED, "refused: the pickle uses NEWOBJ");
    fails_with("inst.bin", MT_EFORMAT, "opcode 0x53");
    fails_with("calls_storage.bin", MT_EUNSUPPORTED, "refused: calls torch.FloatStorage");
}

static void archives_that_lie_are_told_apart(void **state)
{
    (void)state;
    fails_with("no_tensors.bin", MT_EFORMAT, "no tensors with names");
    fails_with("big_endian.bin", MT_EUNSUPPORTED, "big-endian");
    fails_with("compressed.bin", MT_EUNSUPPORTED, "compressed or encrypted");
    fails_with("past_the_end.bin", MT_EFORMAT, "tensor \"w\": it reaches past the end of its storage");
    fails_with("strides_past.bin", MT_EFORMAT, "tensor \"w\": it reaches past the end of its storage");
    fails_with("short_storage.bin", MT_EFORMAT, "storage \"0\" has 60 bytes, too few for its 16 numbers");
    fails_with("no_storage.bin", MT_EFORMAT, "storage \"0\" is not in the archive");
}

static void bytes_fail_with(const char *bytes, size_t n, mt_rc rc, const char *says)
{
    mt_err err = { 0 };
    mt_pickle *p = NULL;
    assert_int_equal(mt_pickle_open_memory(&p, bytes, n, "x.bin", &err), rc);
    assert_says(says);
}

static void what_is_no_pickle_is_named(void **state)
{
    (void)state;
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
    char tar[512] = { 0 };
    memcpy(tar + 257, "ustar", 5);
    bytes_fail_with("", 0, MT_EFORMAT, "not a file that torch.save writes");
    bytes_fail_with("hello", 5, MT_EFORMAT, "not a file that torch.save writes");
    bytes_fail_with(lfs, sizeof lfs - 1, MT_EFORMAT, "Git LFS pointer");
    bytes_fail_with(tar, sizeof tar, MT_EUNSUPPORTED, "tar archive");
    bytes_fail_with("PK\3\4", 4, MT_EFORMAT, "no end record");
    bytes_fail_with("\x80\x02}.", 4, MT_EFORMAT, "not a file that torch.save writes");
    bytes_fail_with("\x80\x07N.", 4, MT_EUNSUPPORTED, "pickle protocol 7");
}

/* The first three parts of the older format. */
static const char legacy_head[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.";

/* A machine of its own for one pickle inside the older format. */
static void legacy_fails_with(const char *list, size_t n, const char *says)
{
    char bytes[512];
    memcpy(bytes, legacy_head, sizeof legacy_head - 1);
    memcpy(bytes + sizeof legacy_head - 1, list, n);
    bytes_fail_with(bytes, sizeof legacy_head - 1 + n, MT_EFORMAT, says);
}

#define LEGACY(list, says) legacy_fails_with(list, sizeof(list) - 1, says)

static void nonsense_on_the_stack_is_refused(void **state)
{
    (void)state;
    LEGACY("\x80\x02.", "does not end in one value");
    LEGACY("\x80\x02NN.", "does not end in one value");
    LEGACY("\x80\x02(.", "does not end in one value");
    LEGACY("\x80\x02t.", "there is no mark");
    LEGACY("\x80\x02N\x85\x86.", "a tuple lacks items");
    LEGACY("\x80\x02h\x00.", "never remembered");
    LEGACY("\x80\x02Nr\xff\xff\xff\x7f.", "something impossible is remembered");
    LEGACY("\x80\x02q\x00.", "something impossible is remembered");
    LEGACY("\x80\x02}K\x01s.", "the stack is too short");
    LEGACY("\x80\x02NK\x01K\x02s.", "added to something that holds none");
    LEGACY("\x80\x02}(K\x01u.", "a key has no value");
    LEGACY("\x80\x02X\xff\xff\xff\xff"
           "ab.",
           "a string reaches past the end");
    LEGACY("\x80\x02N)R.", "something that is not a function is called");
    LEGACY("\x80\x02NQ.", "a storage is described in an unknown way");
    LEGACY("\x80\x02NNb.", "state is set on something");
    LEGACY("\x80\x02K\x01K\x02\x93.", "a function has no name");
    LEGACY("\x80\x02"
           "0.",
           "the stack is empty");
    LEGACY("\x80\x02}", "it breaks off");
    LEGACY("\x80\x02}.\x80\x02}.", "list of storages is missing");
    LEGACY("\x80\x02}.\x80\x02]X\x01\x00\x00\x00"
           "0a.",
           "numbers that no tensor names");
}

static void put_text(mt_str *to, const char *text)
{
    mt_str_printf(to, "X%c", (int)strlen(text));
    mt_str_add(to, "\0\0\0", 3);
    mt_str_printf(to, "%s", text);
}

static void put_number(mt_str *to, int n)
{
    mt_str_putc(to, 'K');
    mt_str_putc(to, (char)n);
}

/* The older format with one tensor, "w", of n numbers of a type of its own in a storage of n_storage numbers, n_bytes bytes. */
static void write_view(mt_str *to, const char *storage, int n_storage, size_t n_bytes, const char *type, int n)
{
    mt_str_add(to, legacy_head, sizeof legacy_head - 1);
    mt_str_printf(to, "\x80\x02}");
    put_text(to, "w");
    mt_str_printf(to, "ctorch._utils\n_rebuild_tensor_v3\n((");
    put_text(to, "storage");
    mt_str_printf(to, "ctorch\n%s\n", storage);
    put_text(to, "0");
    put_text(to, "cpu");
    put_number(to, n_storage);
    mt_str_printf(to, "tQ");
    put_number(to, 0); /* offset, shape, stride, requires_grad, hooks */
    put_number(to, n);
    mt_str_printf(to, "\x85K\x01\x85\x89}ctorch\n%s\ntRs.\x80\x02]", type);
    put_text(to, "0");
    mt_str_printf(to, "a.%c", n_storage);
    for (size_t i = 0; i < 7 + n_bytes; i++) mt_str_putc(to, 0);
    assert_true(mt_str_ok(to));
}

static void room_is_counted_in_the_bytes_of_the_storage(void **state)
{
    (void)state;
    static const struct {
        const char *storage;
        int n_storage;
        size_t n_bytes;
        const char *type;
        int n_fit;
    } cases[] = { { "ByteStorage", 16, 16, "float64", 2 },
                  { "ByteStorage", 17, 17, "float32", 4 },
                  { "DoubleStorage", 2, 16, "bfloat16", 8 },
                  { "HalfStorage", 8, 16, "float16", 8 },
                  { "UntypedStorage", 17, 17, "float32", 4 } };
    for (size_t i = 0; i < MT_COUNT(cases); i++)
        for (int more = 0; more < 3; more++) {
            mt_err err = { 0 };
            mt_pickle *p = NULL;
            mt_str bytes = { 0 };
            int n = more < 2 ? cases[i].n_fit + more : 8 * cases[i].n_fit;
            write_view(&bytes, cases[i].storage, cases[i].n_storage, cases[i].n_bytes, cases[i].type, n);
            mt_rc rc = mt_pickle_open_memory(&p, bytes.s, bytes.n, "x.bin", &err);
            if (more) {
                assert_int_equal(rc, MT_EFORMAT);
                assert_says("tensor \"w\": it reaches past the end of its storage");
            } else {
                assert_ok(rc);
                float x = 1;
                mt_st_read(mt_pickle_at(p, 0), n - 1, 1, &x);
                assert_true(x == 0);
            }
            mt_pickle_close(p);
            mt_str_free(&bytes);
        }
}

/* Every prefix, and every byte changed in a few ways: an error or a list of tensors whose numbers can be read. */
static void try_bytes(const char *bytes, size_t n)
{
    mt_err err = { 0 };
    mt_pickle *p;
    char *exact = malloc(n ? n : 1); /* so that a sanitizer sees a read past the end */
    memcpy(exact, bytes, n);
    if (mt_pickle_open_memory(&p, exact, n, "x.bin", &err) == MT_OK) {
        for (size_t i = 0; i < mt_pickle_count(p); i++) {
            const mt_st_tensor *t = mt_pickle_at(p, i);
            float x;
            if (t->n && mt_st_is_float(t)) mt_st_read(t, 0, 1, &x), mt_st_read(t, t->n - 1, 1, &x);
        }
        mt_pickle_close(p);
    } else
        assert_true(err.msg[0]);
    free(exact);
}

static void damage_never_crashes(void **state)
{
    (void)state;
    static const char *const files[] = { DIR "pickle_sharded/pytorch_model-00001-of-00002.bin",
                                         DIR "pickle_wrapped/pytorch_model.bin", DIR "pickle_legacy/pytorch_model.bin" };
    mt_err err = { 0 };
    for (size_t f = 0; f < MT_COUNT(files); f++) {
        char *bytes;
        size_t n;
        assert_ok(mt_file_read(&bytes, &n, files[f], 1 << 20, &err));
        for (size_t i = 0; i < n; i++) try_bytes(bytes, i);
        for (size_t i = 0; i < n; i++) {
            static const unsigned char changes[] = { 0x01, 0x80, 0xff };
            for (size_t k = 0; k < MT_COUNT(changes); k++) {
                bytes[i] = (char)(bytes[i] ^ changes[k]);
                try_bytes(bytes, n);
                bytes[i] = (char)(bytes[i] ^ changes[k]);
            }
        }
        mt_free(bytes);
    }
}

static void every_allocation_and_file_call_may_fail(void **state)
{
    (void)state;
    static const struct {
        mt_fault_kind kind;
        mt_rc rc;
    } kinds[] = { { MT_FAULT_ALLOC, MT_ENOMEM }, { MT_FAULT_FILE, MT_EIO } };
    for (size_t k = 0; k < MT_COUNT(kinds); k++) {
        for (long n = 0;; n++) {
            mt_err err = { 0 };
            mt_pickle *p = NULL;
            mt_fault_arm(kinds[k].kind, n);
            mt_rc rc = mt_pickle_open(&p, DIR "pickle_zip/pytorch_model.bin", &err);
            bool hit = mt_fault_disarm();
            mt_pickle_close(p);
            if (!hit) break;
            assert_int_equal(rc, kinds[k].rc);
        }
    }
}

MT_TEST_MAIN(cmocka_unit_test(code_is_refused_by_name), cmocka_unit_test(archives_that_lie_are_told_apart),
             cmocka_unit_test(what_is_no_pickle_is_named), cmocka_unit_test(nonsense_on_the_stack_is_refused),
             cmocka_unit_test(room_is_counted_in_the_bytes_of_the_storage), cmocka_unit_test(damage_never_crashes),
             cmocka_unit_test(every_allocation_and_file_call_may_fail))
