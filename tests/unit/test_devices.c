/* Devices that train together: kinds that may not be mixed, the list they are opened from. */
#include "test.h"

#include "run/devices.h"

#include "base/log.h"

/* -- lanes on the CPU that say they are something else -- */

typedef struct named {
    mt_device_api api;
    mt_device *dev;
} named;

static const mt_device_info shown[] = { { .name = "NVIDIA H200", .n_processors = 132 },
                                        { .name = "NVIDIA GeForce RTX 4090", .n_processors = 128 },
                                        { .name = "NVIDIA H200", .n_processors = 100 } };
static void info_h200(mt_device *dev, mt_device_info *out) { (void)dev, *out = shown[0]; }
static void info_4090(mt_device *dev, mt_device_info *out) { (void)dev, *out = shown[1]; }
static void info_slice(mt_device *dev, mt_device_info *out) { (void)dev, *out = shown[2]; }

static void open_named(named *n, void (*info)(mt_device *, mt_device_info *))
{
    mt_err err = { 0 };
    assert_ok(mt_device_open(&n->dev, "cpu", &(mt_device_options){ .n_threads = 1 }, &err));
    n->api = *n->dev->api;
    n->api.info = info;
    n->dev->api = &n->api;
}

static char said[1024];
static void listen(void *user, mt_log_level level, const char *text)
{
    (void)user, (void)level;
    snprintf(said, sizeof said, "%s", text);
}

static mt_rc check(void (*info)(mt_device *, mt_device_info *), bool deterministic, mt_err *err)
{
    named first, other;
    open_named(&first, info_h200);
    open_named(&other, info);
    *said = '\0';
    mt_log_set_sink(listen, NULL);
    mt_rc rc = mt_devices_check_kind(first.dev, 0, other.dev, 3, deterministic, err);
    mt_log_set_sink(NULL, NULL);
    mt_device_close(first.dev);
    mt_device_close(other.dev);
    return rc;
}

static void gpus_of_one_kind_train_together(void **state)
{
    (void)state;
    mt_err err = { 0 };
    assert_ok(check(info_h200, true, &err));
    assert_string_equal(said, "");
}

static void different_kinds_are_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    assert_int_equal(check(info_4090, true, &err), MT_EINVAL);
    assert_says("GPUs 0 and 3 are NVIDIA H200 and NVIDIA GeForce RTX 4090");
    assert_says("training.deterministic: false");
    assert_int_equal(check(info_slice, true, &err), MT_EINVAL);
    assert_says("NVIDIA H200 with 132 and with 100 multiprocessors");
}

static void where_bits_need_not_repeat_they_are_mixed_with_a_warning(void **state)
{
    (void)state;
    mt_err err = { 0 };
    assert_ok(check(info_4090, false, &err));
    assert_non_null(strstr(said, "results may not be repeatable"));
}

/* One whose cuDNN does not start would compute attention by other kernels. */
static void attention_kernels_are_part_of_the_kind(void **state)
{
    (void)state;
    char why[320] = "";
    const mt_device_kernels first = { .info = shown[0], .attention = { .ways = 15, .cudnn_head = 256 } };
    mt_device_kernels other = first;
    assert_false(mt_devices_differ(&first, &other, why, sizeof why));
    other.attention.ways = 3;
    assert_true(mt_devices_differ(&first, &other, why, sizeof why));
    assert_non_null(strstr(why, "NVIDIA H200, but cuDNN does not behave the same"));
    other = first;
    other.attention.cudnn_head = 0;
    assert_true(mt_devices_differ(&first, &other, why, sizeof why));
}

/* -- the list -- */

static void lanes_on_the_cpu_share_its_cores(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_devices d;
    const int64_t numbers[] = { 4, 4, 7 };
    assert_ok(
        mt_devices_open(&d, &(mt_devices_wanted){ .word = "cpu", .numbers = numbers, .n = 3, .deterministic = true }, &err));
    assert_int_equal(d.n, 3);
    assert_int_equal(d.per_device, 2);
    for (int i = 0; i < 3; i++) assert_int_equal(d.numbers[i], numbers[i]);
    assert_non_null(d.more[0]);
    assert_non_null(d.more[1]);
    assert_null(d.more[2]);
    assert_int_equal(mt_devices_memory(&d, 1000), 500);
    mt_devices_close(&d);
    assert_null(d.first);
    assert_ok(mt_devices_open(&d, &(mt_devices_wanted){ .word = "cpu", .first = 2 }, &err));
    assert_int_equal(d.n, 1);
    assert_int_equal(d.per_device, 1);
    assert_int_equal(d.numbers[0], 2);
    mt_devices_close(&d);
    assert_int_equal(mt_devices_open(&d, &(mt_devices_wanted){ .word = "cpu", .numbers = numbers, .n = 65 }, &err), MT_EINVAL);
    mt_devices_close(&d);
}

MT_TEST_MAIN(cmocka_unit_test(gpus_of_one_kind_train_together), cmocka_unit_test(different_kinds_are_refused),
             cmocka_unit_test(where_bits_need_not_repeat_they_are_mixed_with_a_warning),
             cmocka_unit_test(attention_kernels_are_part_of_the_kind), cmocka_unit_test(lanes_on_the_cpu_share_its_cores))
