/* Which device `auto` takes, with GPUs that only answer: one is full, another is too old. */
#include "test.h"

#define mt_device_cuda pretended
#define mt_device_open open_by_word
#include "device/device.c"

static mt_device gpu;
static const mt_rc *answers; /* of each GPU */
static int n_gpus, taken;

static mt_rc pretend_to_open(mt_device **out, const mt_device_options *o, mt_err *err)
{
    if (o->index >= n_gpus) return mt_fail(err, n_gpus ? MT_EINVAL : MT_ENOENT, "this machine has %d GPUs", n_gpus);
    if (answers[o->index]) return mt_fail(err, answers[o->index], "GPU %d will not do", o->index);
    taken = o->index;
    *out = &gpu;
    return MT_OK;
}

const mt_device_api pretended = { .kind = MT_DEVICE_CUDA, .open = pretend_to_open };

/* -1: the CPU */
static int choice(const char *word, int n, const mt_rc *rc)
{
    mt_err err = { 0 };
    mt_device *dev = NULL;
    answers = rc;
    n_gpus = n;
    taken = -1;
    assert_ok(open_by_word(&dev, word, NULL, &err));
    assert_non_null(dev);
    if (dev != &gpu) mt_device_close(dev);
    return taken;
}

static void the_first_gpu_that_will_do_is_taken(void **state)
{
    (void)state;
    assert_int_equal(choice("auto", 2, (mt_rc[]){ MT_OK, MT_OK }), 0);
    assert_int_equal(choice("auto", 2, (mt_rc[]){ MT_EUNSUPPORTED, MT_OK }), 1);
    assert_int_equal(choice("auto", 3, (mt_rc[]){ MT_ENOMEM, MT_EDEVICE, MT_OK }), 2);
    assert_int_equal(choice("auto", 2, (mt_rc[]){ MT_ENOMEM, MT_ENOMEM }), -1);
    assert_int_equal(choice("auto", 1, (mt_rc[]){ MT_EDEVICE }), -1);
    assert_int_equal(choice("auto", 0, NULL), -1);
    assert_int_equal(choice("cpu", 1, (mt_rc[]){ MT_OK }), -1);
    assert_int_equal(choice("cuda:1", 2, (mt_rc[]){ MT_OK, MT_OK }), 1);
}

static void a_gpu_that_is_named_is_not_replaced(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_device *dev = NULL;
    answers = (mt_rc[]){ MT_ENOMEM, MT_OK };
    n_gpus = 2;
    assert_int_equal(open_by_word(&dev, "cuda", NULL, &err), MT_ENOMEM);
    assert_int_equal(open_by_word(&dev, "cuda:7", NULL, &err), MT_EINVAL);
    assert_null(dev);
}

MT_TEST_MAIN(cmocka_unit_test(the_first_gpu_that_will_do_is_taken), cmocka_unit_test(a_gpu_that_is_named_is_not_replaced))
