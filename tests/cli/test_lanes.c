/* megatrain train on several devices, as a user meets it: lanes on the CPU. */
#include "process.h"
#include "workspace.h"

static program p;

static void set_up(const char *root, const char *flag, const char *value)
{
    static const char *const args[] = { "train",     "--model-name", "model", "--from-scratch", "--dataset-path",
                                        "rows.json", "--output-dir", "out",   "--overwrite",    "--num-steps",
                                        "3",         "--batch-size", "8",     "--device",       "cpu" };
    program_words(&p, root, args, MT_COUNT(args));
    program_arg(&p, flag);
    program_arg(&p, value);
}

static void run_with(const char *root, const char *flag, const char *value)
{
    set_up(root, flag, value);
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
}

static char *metrics_of(const char *root)
{
    mt_err err = { 0 };
    char *text;
    assert_ok(mt_file_read(&text, NULL, workspace_path("%s/out/metrics.jsonl", root).s, 1 << 20, &err));
    return text;
}

static void each_device_is_in_the_terminal_and_the_metrics(void **state)
{
    run_with(*state, "--devices", "0,0");
    assert_printed(&p, "2 x CPU");
    assert_printed(&p, "  devices ");
    assert_printed(&p, "devices in step 3: ");
    assert_printed(&p, "; the first waits ");
    char *text = metrics_of(*state);
    const char *key = "\"device_seconds\": [", *list = strstr(text, key);
    assert_non_null(list);
    char *end;
    assert_true(strtod(list + strlen(key), &end) > 0);
    assert_true(*end == ',' && strtod(end + 1, &end) > 0 && *end == ']');
    assert_non_null(strstr(text, "\"wait_devices_seconds\": "));
    mt_free(text);
}

static void one_device_is_not_mentioned(void **state)
{
    run_with(*state, "--shares", "2");
    assert_null(strstr(p.text, "devices in step"));
    char *text = metrics_of(*state);
    assert_null(strstr(text, "device_seconds"));
    mt_free(text);
}

/* A single device adds all shares itself, and needs memory for that.  Two may have less each. */
static void two_devices_start_with_less_memory_each(void **state)
{
    set_up(*state, "--shares", "2");
    program_arg(&p, "--device-memory=150Ki");
    assert_int_not_equal(program_run(&p), 0);
    assert_printed(&p, "of device memory and may use 150.0 KiB");
    set_up(*state, "--devices", "0,1");
    program_arg(&p, "--device-memory=150Ki");
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
}

#define IN_WORKSPACE(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(IN_WORKSPACE(each_device_is_in_the_terminal_and_the_metrics), IN_WORKSPACE(one_device_is_not_mentioned),
             IN_WORKSPACE(two_devices_start_with_less_memory_each))
