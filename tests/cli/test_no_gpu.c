/* A GPU that is not there, hidden, or with a driver that is too old: the message says which, and what to do.  Drivers are played
 * by tests/support/fake_cuda.c, so this needs no GPU; a build without CUDA says that it is one. */
#include "program.h"
#include "tempdir.h"

#define MODEL MT_TESTS_DIR "/golden/models/qwen3"
#define GRAD  "grad " MODEL " --tokens " MODEL "/tokens.json --out '%s/gradients.safetensors' --device "

/* Run `megatrain args` (a format for the test's directory) with these variables set, expect the words. */
static void expect_with(void **state, const char *variables, const char *format, int status, const char *says)
{
    char args[2048], command[4096], out[16384];
    snprintf(args, sizeof args, format, (const char *)*state);
    snprintf(command, sizeof command, "LD_LIBRARY_PATH='%s':$LD_LIBRARY_PATH %s '%s' %s 2>&1", MT_FAKE_CUDA_DIR, variables,
             MT_BINARY, args);
    int ended = run_shell(command, out, sizeof out);
    if (ended != status || !strstr(out, says))
        fail_msg("%s megatrain %s: status %d (expected %d), expected \"%s\" in:\n%s", variables, args, ended, status, says, out);
}

static void an_old_driver_is_told_to_be_updated(void **state)
{
    expect_with(state, "FAKE_CUDA=old", GRAD "cuda", 1, "driver knows CUDA 11.4 and this program needs");
    expect_with(state, "FAKE_CUDA=old", GRAD "cuda", 1, "update the driver");
}

static void a_driver_without_a_gpu_is_told_apart_from_a_hidden_one(void **state)
{
    expect_with(state, "FAKE_CUDA=empty", GRAD "cuda", 1, "nvidia-smi shows what the driver sees");
    expect_with(state, "FAKE_CUDA=empty CUDA_VISIBLE_DEVICES=", GRAD "cuda", 1,
                "CUDA_VISIBLE_DEVICES is \"\", which hides every GPU; unset it");
    expect_with(state, "FAKE_CUDA=empty CUDA_VISIBLE_DEVICES=-1", GRAD "cuda", 1, "CUDA_VISIBLE_DEVICES is \"-1\"");
    expect_with(state, "FAKE_CUDA=empty CUDA_VISIBLE_DEVICES=7", GRAD "cuda", 1,
                "CUDA_VISIBLE_DEVICES is \"7\", which names no GPU of this machine");
}

/* Without a word the CPU is used; aloud, if there may be a GPU that one would rather use. */
static void auto_goes_on_without_one(void **state)
{
    expect_with(state, "FAKE_CUDA=empty", GRAD "auto", 0, "gradient norm");
    expect_with(state, "FAKE_CUDA=old", GRAD "auto", 0, "gradient norm");
    expect_with(state, "FAKE_CUDA=old", GRAD "auto", 0, "the GPU is left alone: the NVIDIA driver knows CUDA 11.4");
    expect_with(state, "FAKE_CUDA=empty CUDA_VISIBLE_DEVICES=7", GRAD "auto", 0,
                "the GPU is left alone: CUDA_VISIBLE_DEVICES is \"7\"");
    expect_with(state, "FAKE_CUDA=broken", GRAD "auto", 0,
                "the GPU is left alone: no NVIDIA GPU can be used here (system not yet initialized)");
}

static void without_cuda_the_build_says_so(void **state)
{
    expect_with(state, "", GRAD "cuda", 1, "built without CUDA");
    expect_with(state, "", GRAD "auto", 0, "gradient norm");
}

static void odd_words_are_refused(void **state)
{
    expect_with(state, "", GRAD "cuda:x", MT_HAVE_CUDA ? 2 : 1, MT_HAVE_CUDA ? "expected cuda:N" : "built without CUDA");
    expect_with(state, "", GRAD "gpu", 2, "expected auto, cpu, cuda or cuda:N");
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)

int main(void)
{
    const struct CMUnitTest with[] = { RUNS(an_old_driver_is_told_to_be_updated),
                                       RUNS(a_driver_without_a_gpu_is_told_apart_from_a_hidden_one),
                                       RUNS(auto_goes_on_without_one), RUNS(odd_words_are_refused) };
    const struct CMUnitTest without[] = { RUNS(without_cuda_the_build_says_so), RUNS(odd_words_are_refused) };
    return MT_HAVE_CUDA ? cmocka_run_group_tests(with, NULL, NULL) : cmocka_run_group_tests(without, NULL, NULL);
}
