/* Of the kernels cuDNN proposes for a graph, the first that compiles and is content with the planned workspace is taken; where
 * none is, attention is not cuDNN's.  cuDNN is a fake that proposes what a test says. */
#include "test.h"

#include "fake_cudnn.h"
#include "ops/attention_cudnn.h"

#include "base/mem.h"

#include <cudnn.h>
#include <dlfcn.h>

enum { SMALL = MT_CUDNN_SMALL_WORKSPACE };

static fake_cudnn_state *fake;
static mt_cudnn_attention *cudnn;

static void propose(const fake_kernel *kernels, int n)
{
    *fake = (fake_cudnn_state){ .n_kernels = n, .n_descs = fake->n_descs };
    memcpy(fake->kernels, kernels, (size_t)n * sizeof *kernels);
}
#define PROPOSE(...) propose((const fake_kernel[]){ __VA_ARGS__ }, (int)MT_COUNT(((const fake_kernel[]){ __VA_ARGS__ })))

static int open_fake(void **state)
{
    (void)state;
    mt_err err = { 0 };
    return mt_cudnn_attention_open(&cudnn, NULL, &err);
}

static int close_fake(void **state)
{
    (void)state;
    mt_cudnn_attention_close(cudnn);
    return fake->n_descs; /* all were given back */
}

static mt_attention call_of(int64_t docs)
{
    const int64_t H = 2, Dh = 64, ld = 3 * H * Dh;
    return (mt_attention){ .t = MT_DTYPE_BF16,
                           .N = 256 * docs,
                           .H = H,
                           .K = H,
                           .Dh = Dh,
                           .ldq = ld,
                           .ldk = ld,
                           .ldv = ld,
                           .ldo = H * Dh,
                           .ld_d = ld,
                           .n_docs = docs,
                           .longest = 256,
                           .scale = 1,
                           .use = { .ways = 1u << MT_ATTENTION_CUDNN, .cudnn_head = 128, .workspace = (uint64_t)1 << 30 } };
}

static mt_rc prepare(bool backward, size_t *workspace, mt_err *err)
{
    mt_attention a = call_of(1);
    return mt_cudnn_attention_prepare(cudnn, &a, backward, MT_ATTENTION_CUDNN, workspace, err);
}

static void one_that_does_not_compile_is_passed_over(void **state)
{
    (void)state;
    mt_err err = { 0 };
    size_t workspace;
    PROPOSE({ .mode = CUDNN_HEUR_MODE_A, .refuses = true }, { .mode = CUDNN_HEUR_MODE_A, .workspace = 12 },
            { .mode = CUDNN_HEUR_MODE_A, .workspace = 13 });
    assert_ok(prepare(false, &workspace, &err));
    assert_int_equal(workspace, 12);
    assert_int_equal(fake->n_tried, 2); /* and the third is not asked */
}

static void one_that_wants_more_than_was_planned_is_passed_over(void **state)
{
    (void)state;
    mt_err err = { 0 };
    size_t workspace;
    const int64_t squares = 2 * 256 * 256 * 2; /* of two heads, in bf16 */
    PROPOSE({ .mode = CUDNN_HEUR_MODE_A, .workspace = SMALL + 1 }, { .mode = CUDNN_HEUR_MODE_A, .workspace = SMALL });
    assert_ok(prepare(false, &workspace, &err));
    assert_int_equal(workspace, SMALL);
    PROPOSE({ .mode = CUDNN_HEUR_MODE_A, .workspace = SMALL + squares + 1 },
            { .mode = CUDNN_HEUR_MODE_A, .workspace = SMALL + squares });
    assert_ok(prepare(true, &workspace, &err));
    assert_int_equal(workspace, SMALL + squares);
    mt_attention a = call_of(1);
    assert_int_equal(mt_cudnn_layout_of(&a, MT_ATTENTION_CUDNN, true).workspace_bytes, workspace); /* what a plan counts */
}

static void the_library_s_last_resorts_are_asked_too(void **state)
{
    (void)state;
    mt_err err = { 0 };
    size_t workspace;
    PROPOSE({ .mode = CUDNN_HEUR_MODE_A, .refuses = true }, { .mode = CUDNN_HEUR_MODE_FALLBACK, .workspace = 14 });
    assert_ok(prepare(false, &workspace, &err));
    assert_int_equal(workspace, 14);
    PROPOSE({ .mode = CUDNN_HEUR_MODE_FALLBACK, .workspace = 15 });
    fake->knows_nothing[CUDNN_HEUR_MODE_A] = true;
    assert_ok(prepare(true, &workspace, &err));
    assert_int_equal(workspace, 15);
}

/* Not an error of the run: the caller uses another kernel, and cuDNN is not asked again and again. */
static void where_none_serves_it_says_so_and_is_not_asked_again(void **state)
{
    (void)state;
    mt_err err = { 0 };
    size_t workspace;
    PROPOSE({ .mode = CUDNN_HEUR_MODE_A, .workspace = SMALL + 1 }, { .mode = CUDNN_HEUR_MODE_FALLBACK, .refuses = true });
    assert_int_equal(prepare(false, &workspace, &err), MT_EUNSUPPORTED);
    assert_says("1048577 bytes of workspace, but 1048576 were planned"); /* the best proposal's reason */
    int tried = fake->n_tried;
    assert_int_equal(prepare(false, &workspace, &err), MT_EUNSUPPORTED);
    assert_int_equal(fake->n_tried, tried);
    fake->knows_nothing[CUDNN_HEUR_MODE_A] = fake->knows_nothing[CUDNN_HEUR_MODE_FALLBACK] = true;
    assert_int_equal(prepare(true, &workspace, &err), MT_EUNSUPPORTED);
    mt_attention a = call_of(4);
    PROPOSE({ .mode = CUDNN_HEUR_MODE_A });
    /* Other sizes are another question. */
    assert_ok(mt_cudnn_attention_prepare(cudnn, &a, false, MT_ATTENTION_CUDNN, &workspace, &err));
}

/* What is free differs from lane to lane, and the next proposal would give other bits. */
static void missing_memory_is_an_error_and_chooses_no_other_kernel(void **state)
{
    (void)state;
    mt_err err = { 0 };
    size_t workspace;
    PROPOSE({ .mode = CUDNN_HEUR_MODE_A, .refuses = true }, { .mode = CUDNN_HEUR_MODE_A, .lacks_memory = true },
            { .mode = CUDNN_HEUR_MODE_A, .workspace = 12 }, { .mode = CUDNN_HEUR_MODE_FALLBACK, .workspace = 13 });
    for (int i = 0; i < 2; i++) {
        assert_int_equal(prepare(false, &workspace, &err), MT_ENOMEM);
        assert_says("leave the GPU and the host more memory");
        assert_int_equal(fake->n_tried, 2);
    }
}

/* Whatever way the first backward of a shape goes, nothing is compiled for later ones, be their documents short or long. */
static void later_calls_compile_nothing(void **state)
{
    (void)state;
    mt_err err = { 0 };
    size_t workspace;
    PROPOSE({ .mode = CUDNN_HEUR_MODE_A });
    const int64_t H = 4, K = 2, Dh = 64, ld = (H + 2 * K) * Dh;
    const mt_attention_way both[] = { MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN_FAST };
    for (int first = 0; first < 3; first++) {
        mt_attention a = { .t = MT_DTYPE_BF16,
                           .N = 4096,
                           .H = H,
                           .K = K,
                           .Dh = Dh,
                           .ldq = ld + 64 * first,
                           .ldk = ld,
                           .ldv = ld,
                           .ldo = H * Dh,
                           .ld_d = ld,
                           .n_docs = 2,
                           .longest = 1024,
                           .scale = 0.1f,
                           .use = { .ways = 1u << MT_ATTENTION_CUDNN | 1u << MT_ATTENTION_CUDNN_FAST | 1u << MT_ATTENTION_FLASH,
                                    .cudnn_head = 256,
                                    .workspace = (uint64_t)1 << 30,
                                    .docs = 2,
                                    .longest = 1024 } };
        mt_attention brief = a;
        brief.longest = 300;
        assert_int_equal(mt_attention_choose(&a, true), MT_ATTENTION_CUDNN_FAST);
        assert_int_equal(mt_attention_choose(&brief, true), MT_ATTENTION_CUDNN);
        int before = mt_cudnn_attention_plans(cudnn);
        if (first == 2)
            mt_cudnn_attention_expect(cudnn, &a);
        else
            assert_ok(mt_cudnn_attention_prepare(cudnn, first ? &a : &brief, true, both[first], &workspace, &err));
        int made = mt_cudnn_attention_plans(cudnn);
        assert_true(made > before);
        for (brief.longest = 1; brief.longest <= 1024; brief.longest += 93)
            for (brief.n_docs = 1; brief.n_docs <= 2; brief.n_docs++)
                assert_ok(mt_cudnn_attention_prepare(cudnn, &brief, true, mt_attention_choose(&brief, true), &workspace, &err));
        mt_cudnn_attention_expect(cudnn, &a);
        assert_int_equal(mt_cudnn_attention_plans(cudnn), made);
    }
}

int main(void)
{
    void *library = dlopen(MT_FAKE_CUDNN, RTLD_NOW | RTLD_GLOBAL); /* by its soname the one that is found from here on */
    fake = library ? dlsym(library, "fake_cudnn") : NULL;
    if (!fake) {
        printf("%s\n", dlerror());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_that_does_not_compile_is_passed_over, open_fake, close_fake),
        cmocka_unit_test_setup_teardown(one_that_wants_more_than_was_planned_is_passed_over, open_fake, close_fake),
        cmocka_unit_test_setup_teardown(the_library_s_last_resorts_are_asked_too, open_fake, close_fake),
        cmocka_unit_test_setup_teardown(where_none_serves_it_says_so_and_is_not_asked_again, open_fake, close_fake),
        cmocka_unit_test_setup_teardown(missing_memory_is_an_error_and_chooses_no_other_kernel, open_fake, close_fake),
        cmocka_unit_test_setup_teardown(later_calls_compile_nothing, open_fake, close_fake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
