/* On a GPU whose cuDNN compiles nothing for our shapes, attention is our own kernels', bit for bit, and one line says why.  cuDNN
 * is a fake. */
#include "test.h"

#include "base/log.h"
#include "op_cases.h"

#include <dlfcn.h>

enum { SKIPPED = 77 };

static mt_device *gpu;
static int n_said;

static void take_note(void *user, mt_log_level level, const char *text)
{
    (void)level;
    if (!strstr(text, "megatrain's own kernels")) return;
    n_said++;
    snprintf(user, 512, "%s", text);
}

static op_run *run_by(uint32_t ways, int c)
{
    mt_err err = { 0 };
    mt_attention_use use = { .ways = ways, .cudnn_head = 256, .workspace = (uint64_t)1 << 30 };
    op_run *r = op_run_create(&op_packed_attention, c, &(op_how){ .t = MT_DTYPE_BF16, .seed = op_seed(), .use = &use });
    assert_ok(op_execute(r, gpu, true, &err));
    return r;
}

static void attention_goes_on_with_our_own_kernels(void **state)
{
    (void)state;
    char said[512] = "";
    const uint32_t flash = 1u << MT_ATTENTION_FLASH, cudnn = 1u << MT_ATTENTION_CUDNN, fast = 1u << MT_ATTENTION_CUDNN_FAST;
    mt_log_set_sink(take_note, said);
    for (int c = 0; c < op_packed_attention.n_cases; c++) {
        op_run *ours = run_by(flash, c), *refused[] = { run_by(flash | cudnn, c), run_by(flash | cudnn | fast, c) };
        for (size_t i = 0; i < MT_COUNT(refused); i++) {
            assert_null(op_check_written(refused[i]));
            for (int k = 0; k < ours->n_bufs; k++)
                if (op_is_result(&ours->bufs[k]))
                    assert_memory_equal(ours->bufs[k].result, refused[i]->bufs[k].result, op_bytes(&ours->bufs[k]));
            op_run_free(refused[i]);
        }
        op_run_free(ours);
    }
    mt_log_set_sink(NULL, NULL);
    assert_int_equal(n_said, 1);
    assert_non_null(strstr(said, "the fake refuses"));
}

int main(void)
{
    mt_err err = { 0 };
    const struct CMUnitTest tests[] = { cmocka_unit_test(attention_goes_on_with_our_own_kernels) };
    if (!dlopen(MT_FAKE_CUDNN, RTLD_NOW | RTLD_GLOBAL)) {
        printf("%s\n", dlerror());
        return 1;
    }
    if (mt_device_open(&gpu, "cuda", NULL, &err)) {
        printf("skipped: %s\n", err.msg);
        return SKIPPED;
    }
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    mt_device_close(gpu);
    return n_failed ? 1 : 0;
}
