/* A GPU that is too small for the run, or whose memory another process has: the message says which and what to do, `auto` says
 * that it continues without, and when the other is gone the same command works. */
#define _GNU_SOURCE
#include "program.h"
#include "tempdir.h"

#include "device/device.h"

enum { SKIPPED = 77, MIB = 1 << 20 };

#define MODEL MT_TESTS_DIR "/golden/models/qwen3"
#define GRAD  "grad " MODEL " --tokens " MODEL "/tokens.json --out '%s/gradients.safetensors' "

static void expect(void **state, const char *options, int status, const char *says)
{
    char args[2048];
    snprintf(args, sizeof args, GRAD "%s", (const char *)*state, options);
    expect_program(args, status, says);
}

/* -- another process ----------------------------------------------------------------------------------- */

typedef struct holder {
    pid_t pid;
    int keep; /* closed: it ends */
} holder;

/* As a child: take the GPU's memory but for `leave` MiB, say so with a byte, and wait to be let go. */
static int hold(int leave)
{
    mt_err err = { 0 };
    mt_device *dev = NULL, *more = NULL;
    mt_device_info info;
    void *p;
    char byte = 1;
    if (mt_device_open(&dev, "cuda", NULL, &err)) return 1;
    dev->api->info(dev, &info);
    size_t left = (size_t)leave * MIB;
    if (mt_device_alloc(dev, &p, info.memory_limit - left, "all", &err)) return 2;
    /* What a device leaves alone, too; the last of them finds nothing. */
    while (!leave && !mt_device_open(&more, "cuda", &(mt_device_options){ .memory_limit = 16 * MIB }, &err)) {
    }
    if (write(STDOUT_FILENO, &byte, 1) != 1) return 3;
    return read(STDIN_FILENO, &byte, 1) == 0 ? 0 : 4;
}

static holder start_holder(const char *leave)
{
    int in[2], out[2];
    char byte;
    assert_int_equal(pipe(in) | pipe(out), 0);
    holder h = { fork(), in[1] };
    assert_true(h.pid >= 0);
    if (h.pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        execl("/proc/self/exe", "test", "hold", leave, (char *)NULL);
        _exit(100);
    }
    close(in[0]), close(out[1]);
    assert_int_equal(read(out[0], &byte, 1), 1);
    close(out[0]);
    return h;
}

static void end_holder(holder h)
{
    int status;
    close(h.keep);
    assert_int_equal(waitpid(h.pid, &status, 0), h.pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* -- claims ------------------------------------------------------------------------------------------ */

static void a_small_limit_is_refused_before_anything_is_taken(void **state)
{
    expect(state, "--device cuda --device-memory 20K", 1, "device memory");
    expect(state, "--device cuda --device-memory 4000G", 1, "lower --device-memory");
}

static void memory_that_others_have_is_named(void **state)
{
    holder h = start_holder("2000");
    expect(state, "--device cuda --device-memory 8G", 1, "end what else runs there (nvidia-smi) or lower --device-memory");
    expect(state, "--device cuda --device-memory 100M", 0, "gradient norm");
    end_holder(h);
    expect(state, "--device cuda --device-memory 8G", 0, "gradient norm");
}

static void a_full_gpu_is_told_apart_from_none(void **state)
{
    holder h = start_holder("0");
    expect(state, "--device cuda", 1, "nvidia-smi");
    expect(state, "--device auto", 0, "the GPU is left alone");
    end_holder(h);
    expect(state, "--device cuda", 0, "gradient norm");
}

static void hidden_gpus_are_explained(void **state)
{
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    expect(state, "--device cuda", 1, "CUDA_VISIBLE_DEVICES is \"\", which hides every GPU; unset it");
    expect(state, "--device auto", 0, "gradient norm");
    unsetenv("CUDA_VISIBLE_DEVICES");
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { RUNS(a_small_limit_is_refused_before_anything_is_taken),
                                        RUNS(memory_that_others_have_is_named), RUNS(a_full_gpu_is_told_apart_from_none),
                                        RUNS(hidden_gpus_are_explained) };
    if (argc > 2 && strcmp(argv[1], "hold") == 0) return hold(atoi(argv[2]));
    char out[4096];
    if (run_program("grad " MODEL " --tokens " MODEL "/tokens.json --out /dev/null --device cuda:999", out, sizeof out) &&
        !strstr(out, "counted from 0")) {
        printf("skipped: %s\n", out);
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
