/* cuDNN accepts our graphs for an H200 and compiles them, and asks for the workspace that plans count with.  No GPU is needed:
 * cuDNN gets a description of one, and the driver is a fake (fake_driver.c).  Skipped where cuDNN or its compiler (NVRTC) is not
 * installed. */
#include "test.h"

#include "ops/attention_cudnn.h"

#include "base/mem.h"

#include <dlfcn.h>

enum { SKIPPED = 77 };

static const char h200[] = "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": "
                           "65536, \"multiProcessorCount\": 132,"
                           " \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 3201000, \"l2CacheSize\": 62914560, \"warpSize\": "
                           "32, \"maxSharedMemoryPerBlock\": 49152,"
                           " \"maxSharedMemoryPerBlockOptin\": 232448, \"reservedSharedMemoryPerBlock\": 1024, "
                           "\"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0,"
                           " \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"isTccDriver\": 0, "
                           "\"supportCoopLaunch\": 1,"
                           " \"deviceVer\": 900, \"driverVer\": 13000, \"cudaDeviceId\": 0, \"totalGlobalMem\": 150000000000, "
                           "\"deviceName\": \"NVIDIA H200\"}";

static mt_cudnn_attention *cudnn;

/* Each kind of graph once: to compile one takes half a second. */
static void plans_need_what_was_planned(void **state)
{
    (void)state;
    static const struct {
        int64_t docs, longest, H, K, Dh, window, softcap;
        mt_attention_way way;
        bool backward;
    } cases[] = {
        { 16, 1024, 28, 4, 128, 0, 0, MT_ATTENTION_CUDNN, false },
        { 16, 1024, 28, 4, 128, 0, 0, MT_ATTENTION_CUDNN, true },
        { 33, 2000, 28, 4, 128, 0, 0, MT_ATTENTION_CUDNN_FAST, true },
        { 4, 4096, 32, 8, 128, 500, 0, MT_ATTENTION_CUDNN, false },
        { 200, 300, 12, 12, 128, 0, 0, MT_ATTENTION_CUDNN, true },
        /* In parts: of the keys, of heads and keys, of one head's keys. */
        { 1, 8192, 28, 4, 128, 0, 0, MT_ATTENTION_CUDNN, true },
        { 1, 16384, 28, 4, 128, 0, 0, MT_ATTENTION_CUDNN, true },
        { 1, 65536, 28, 4, 128, 0, 0, MT_ATTENTION_CUDNN, true },
        /* Soft caps: heads as in Gemma 2's 2B and 27B. */
        { 1, 4096, 8, 4, 256, 0, 50, MT_ATTENTION_CUDNN, false },
        { 1, 250, 8, 4, 256, 0, 50, MT_ATTENTION_CUDNN, true },
        { 1, 4096, 8, 4, 256, 0, 50, MT_ATTENTION_CUDNN_FAST, true },
        { 1, 8192, 32, 16, 128, 4096, 50, MT_ATTENTION_CUDNN, false },
        { 1, 250, 32, 16, 128, 0, 50, MT_ATTENTION_CUDNN, true },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        size_t workspace;
        int64_t H = cases[i].H, K = cases[i].K, Dh = cases[i].Dh, ld = (H + 2 * K) * Dh;
        mt_attention a = {
            .t = MT_DTYPE_BF16,
            .N = cases[i].docs * cases[i].longest,
            .H = H,
            .K = K,
            .Dh = Dh,
            .ldq = ld,
            .ldk = ld,
            .ldv = ld,
            .ldo = H * Dh,
            .ld_d = ld,
            .n_docs = cases[i].docs,
            .longest = cases[i].longest,
            .scale = 0.1f,
            .window = cases[i].window,
            .softcap = (float)cases[i].softcap,
            .use = { .ways = 1u << cases[i].way, .cudnn_head = 128, .workspace = (uint64_t)1 << 30, .parts = true, .caps = true }
        };
        /* Refuses more than planned. */
        assert_ok(mt_cudnn_attention_prepare(cudnn, &a, cases[i].backward, cases[i].way, &workspace, &err));
        mt_cudnn_layout l = mt_cudnn_layout_of(&a, cases[i].way, cases[i].backward);
        bool squares = cases[i].backward && cases[i].way == MT_ATTENTION_CUDNN;
        size_t counted = squares ? (size_t)(l.size.docs * l.size.heads * l.size.longest * l.size.keys * 2) : 0;
        assert_int_equal(mt_cudnn_attention_plans(cudnn), i + 1);
        assert_true(counted <= l.workspace_bytes && workspace <= l.workspace_bytes && workspace + (1 << 20) > counted &&
                    workspace < counted + (1 << 20));
    }
}

/* One that caps scores is another kernel; the cap itself is an argument. */
static void caps_have_plans_of_their_own(void **state)
{
    (void)state;
    mt_err err = { 0 };
    static const float caps[] = { 0, 50, 30, 0 };
    int before = mt_cudnn_attention_plans(cudnn), made[MT_COUNT(caps)];
    for (size_t i = 0; i < MT_COUNT(caps); i++) {
        size_t workspace;
        mt_attention a = { .t = MT_DTYPE_BF16,
                           .N = 128,
                           .H = 2,
                           .K = 1,
                           .Dh = 32,
                           .ldq = 64,
                           .ldk = 32,
                           .ldv = 32,
                           .ldo = 64,
                           .ld_d = 64,
                           .n_docs = 1,
                           .longest = 128,
                           .scale = 0.1f,
                           .softcap = caps[i],
                           .use = { .ways = 1u << MT_ATTENTION_CUDNN, .caps = true } };
        assert_ok(mt_cudnn_attention_prepare(cudnn, &a, false, MT_ATTENTION_CUDNN, &workspace, &err));
        made[i] = mt_cudnn_attention_plans(cudnn) - before;
    }
    assert_true(made[0] == 1 && made[1] == 2 && made[2] == 2 && made[3] == 2);
}

/* Scores of 192, values of 128, strides as in rows of latent attention; long documents in parts. */
static void latent_attention_has_plans(void **state)
{
    (void)state;
    static const struct {
        int64_t longest;
        mt_attention_way way;
        bool backward;
    } cases[] = { { 1024, MT_ATTENTION_CUDNN, false },
                  { 1024, MT_ATTENTION_CUDNN, true },
                  { 4096, MT_ATTENTION_CUDNN_FAST, true },
                  { 16384, MT_ATTENTION_CUDNN, true } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        size_t workspace;
        mt_attention a = {
            .t = MT_DTYPE_BF16,
            .N = cases[i].longest,
            .H = 16,
            .K = 16,
            .Dh = 192,
            .Dv = 128,
            .ldq = 3648,
            .ldk = 3072,
            .ldv = 4096,
            .ldo = 2048,
            .ld_d = 10816,
            .n_docs = 1,
            .longest = cases[i].longest,
            .scale = 0.1f,
            .use = { .ways = 1u << cases[i].way, .cudnn_head = 256, .workspace = (uint64_t)1 << 30, .parts = true, .caps = true }
        };
        assert_ok(mt_cudnn_attention_prepare(cudnn, &a, cases[i].backward, cases[i].way, &workspace, &err));
        assert_true(workspace <= mt_cudnn_layout_of(&a, cases[i].way, cases[i].backward).workspace_bytes);
    }
}

static void a_shape_it_cannot_do_is_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    size_t workspace;
    mt_attention a = { .t = MT_DTYPE_BF16,
                       .N = 128,
                       .H = 1,
                       .K = 1,
                       .Dh = 512,
                       .ldq = 512,
                       .ldk = 512,
                       .ldv = 512,
                       .ldo = 512,
                       .ld_d = 512,
                       .n_docs = 1,
                       .longest = 128,
                       .scale = 1 };
    assert_int_equal(mt_cudnn_attention_prepare(cudnn, &a, true, MT_ATTENTION_CUDNN_FAST, &workspace, &err), MT_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "cuDNN"));
}

int main(void)
{
    mt_err err = { 0 };
    const struct CMUnitTest tests[] = { cmocka_unit_test(plans_need_what_was_planned),
                                        cmocka_unit_test(caps_have_plans_of_their_own),
                                        cmocka_unit_test(latent_attention_has_plans),
                                        cmocka_unit_test(a_shape_it_cannot_do_is_refused) };
    if (!dlopen(MT_FAKE_DRIVER, RTLD_NOW | RTLD_GLOBAL)) {
        printf("%s\n", dlerror());
        return 1;
    }
    if (mt_cudnn_attention_open(&cudnn, h200, &err) || !dlopen("libnvrtc.so.13", RTLD_NOW)) {
        printf("skipped: %s\n", *err.msg ? err.msg : "no NVRTC");
        return SKIPPED;
    }
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    mt_cudnn_attention_close(cudnn);
    return n_failed ? 1 : 0;
}
