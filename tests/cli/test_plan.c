/* megatrain plan as a user meets it: verdict, tables, what would help, JSON; no GPU and no network. */
#include "program.h"

#define MODEL MT_TESTS_DIR "/golden/models/qwen3"

static void the_verdict_comes_first(void **state)
{
    (void)state;
    char out[16384];
    assert_int_equal(run_program("plan --shape qwen2.5-7b --gpu rtx4090 --ram 128G --num-steps 100", out, sizeof out), 0);
    assert_true(strncmp(out, "FITS: about ", 12) == 0);
    static const char *const parts[] = { "100 steps take", "device memory: ",          "host memory",
                                         "time of a step", "batch_size: recommended ", "    batch_size: " };
    for (size_t i = 0; i < MT_COUNT(parts); i++)
        if (!strstr(out, parts[i])) fail_msg("no \"%s\" in:\n%s", parts[i], out);
    expect_program_all("plan llama-3.1-70b --gpu h100 --ram 256G", 0,
                       (const char *const[]){ "DOES NOT FIT", "of RAM free", NULL });
    if (!strstr(out, "if every\n  sample has 1024 tokens\n"))
        fail_msg("the time is for samples of the full length, and that is not said:\n%s", out);
    expect_program("plan " MODEL " --ram 4G --device cpu --max-seq-len 128", 0, "FITS: about ");
    expect_program("plan " MODEL " --ram 4G --device cpu --max-seq-len 128 --batch-size auto", 0, "FITS: about ");
}

/* As if the window were wide. */
static void unwrap(char *out)
{
    for (char *at = out; (at = strstr(at, "\n  "));) memmove(at + 1, at + 3, strlen(at + 3) + 1), *at = ' ';
}

/* A CPU computes in the memory that holds the state, and pins none of it; for another machine this is unknown. */
static void memory_is_called_what_it_is(void **state)
{
    (void)state;
    char out[16384];
    assert_int_equal(run_program("plan " MODEL " --ram 4G --device cpu --max-seq-len 128", out, sizeof out), 0);
    unwrap(out);
    if (!strstr(out, "memory the CPU computes in: ") || !strstr(out, "; both together ") || !strstr(out, " of 3.7 GiB") ||
        strstr(out, "pinned"))
        fail_msg("%s", out);
    assert_int_equal(run_program("plan --shape gpt2 --gpu h100", out, sizeof out), 0);
    unwrap(out);
    assert_non_null(strstr(out, "(this machine's, because --ram was not given), 16 cores"));
    expect_program("plan --shape gpt2 --gpu h100 --ram 64G --cores 1 --json", 0, "\"cores\": 1},");
    expect_program_all("plan --shape qwen2.5-7b --gpu h200 --ram 1T --gpus 4 --batch-size 256", 0,
                       (const char *const[]){ "the plan: 4 devices; on each ", "GPUs    tokens/s   times   bound by", NULL });
    expect_program("plan --shape gpt2 --gpu h200 --ram 1T --devices 0,1 --batch-size 64 --json", 0,
                   "\"scaling\": {\"gpus\": [{\"gpus\": 1, ");
    expect_program("plan --shape qwen2.5-7b --gpu h200 --ram 1T --gpus 0", 2, "--gpus");
    expect_program_all(
        "plan --shape qwen2.5-7b --gpu h200 --ram 1T --batch-size 512 --machines 4 --network 12.5G", 0,
        (const char *const[]){ "  machines    tokens/s   times   bound by (11.6 GiB/s between machines)\n         1  ",
                               "all of them give the same bits (training.bundles 4)",
                               " tokens a step keep 9 GPUs busy over this network; more would wait\n", NULL });
    expect_program("plan --shape qwen2.5-7b --gpu h200 --ram 1T --batch-size 16 --machines 4 --network 1G", 0,
                   "   the network; a step waits ");
    expect_program("plan --shape gpt2 --gpu h200 --ram 1T --batch-size 64 --machines 4 --json", 0,
                   "\"machines\": [{\"machines\": 1, ");
    expect_program("plan --shape qwen2.5-7b --gpu h200 --ram 1T --gpus 8 --peer 400G --batch-size 64", 0,
                   "8 devices, which add their sums between");
    expect_program("plan --shape qwen2.5-7b --gpu h200 --ram 1T --gpus 8 --peer 20G --batch-size 64", 0,
                   "copies between devices");
    expect_program("plan --shape gpt2 --gpu h200 --ram 1T --gpus 2 --peer 400G --batch-size 64 --json", 0, "\"copy_peer\": ");
    expect_program("plan --shape qwen2.5-7b --gpu h200 --ram 1T --gpus 8 --peer fast", 2, "--peer");
    expect_program("plan --shape qwen2.5-7b --gpu h200 --ram 200G --freeze 'model.layers.*'", 0, "a checkpoint takes 38.5 GiB");
    expect_program("plan " MODEL " --ram 4G --device cpu --max-seq-len 128 --json", 0, "\"numa_nodes\": ");
}

static void flags_that_contradict_each_other_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "plan --list-gpus --list-shapes", "plan: --list-gpus and --list-shapes both print a list; give only one of them" },
        { "plan --shape gpt2 --model-name m", "--shape and --model-name both name the model" },
        { "plan " MODEL " --model-name m", " and --model-name both name the model" },
        { "plan --shape gpt2 --gpu h100 --devices all", "--gpu and --devices all both name GPUs" },
        { "plan --shape gpt2 --device cpu --gpus 2", "--gpus and --device cpu both describe the device" },
        { "plan --shape gpt2 --gpu h100 --gpus 4 --devices 0,1", "--gpus and --devices both give a number of GPUs" },
        { "plan --what-fits --gpu h100 --gpus 2", "--what-fits and --gpus both compare plans" },
        { "plan --what-fits --gpu h100 --machines 2", "--what-fits and --machines both compare plans" },
        { "plan --what-fits --gpu h100 --freeze 'model.layers.*'", "names differ between the models" },
        { "plan --shape gpt2 --quiet --verbose", "--quiet prints less and --verbose more; give only one of them" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) expect_program(cases[i][0], 2, cases[i][1]);
    expect_program("plan --shape gpt2 --gpu h100 --ram 64G --gpus 2 --devices 0,1 --batch-size 8", 0, "2 devices");
}

/* What train would not start does not begin as if it did. */
static void what_train_refuses_is_in_the_headline(void **state)
{
    (void)state;
    static const struct {
        const char *args, *begins;
    } cases[] = {
        { "plan jamba-v0.1 --gpu h200 --ram 1.5T --max-grad-norm 0",
          "WOULD FIT, but megatrain does not train jamba models yet: about " },
        { "plan jamba-v0.1 --gpu h200 --ram 256G", "DOES NOT FIT, and megatrain does not train jamba models yet: " },
        { "plan --config " MT_TESTS_DIR "/../configs/mixtral_8x7b.yaml --shape jamba-v0.1 --gpu h200 --ram 1.5T",
          "WOULD FIT, but megatrain does not train jamba models yet: about " },
        { "plan --shape gpt2 --gpu h100 --ram 64G --max-seq-len 4096 --batch-size 2",
          "WOULD FIT, but train refuses samples of more than 1024 tokens: about " },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        char out[16384];
        assert_int_equal(run_program(cases[i].args, out, sizeof out), 0);
        unwrap(out);
        if (strncmp(out, cases[i].begins, strlen(cases[i].begins)) != 0)
            fail_msg("%s does not begin with \"%s\":\n%s", cases[i].args, cases[i].begins, out);
        assert_null(strstr(out, "training:")); /* nothing to paste */
    }
    char out[16384];
    assert_int_equal(run_program("plan --shape qwen2.5-7b --gpu h200 --ram 200G --max-seq-len 2000000", out, sizeof out), 0);
    char *shorter = strstr(out, "max_seq_len: ");
    assert_non_null(shorter);
    assert_in_range(atoll(shorter + strlen("max_seq_len: ")), 128, 32768); /* no remedy that train refuses as well */
}

/* Columns of the longest line; characters beyond ASCII take one. */
static int widest_line(const char *text)
{
    int widest = 0, column = 0;
    for (; *text; text++) {
        column = *text == '\n' ? 0 : column + ((*text & 0xc0) != 0x80);
        if (column > widest) widest = column;
    }
    return widest;
}

static void every_line_fits_eighty_columns(void **state)
{
    (void)state;
    static const char *const questions[] = { "plan --shape qwen2.5-7b --gpu rtx4090 --ram 128G",
                                             "plan --shape llama-3.1-70b --ram 256G --gpu h100",
                                             "plan --shape qwen2.5-32b --ram 300G --gpu h100 --home host" };
    for (size_t i = 0; i < MT_COUNT(questions); i++) {
        char out[32768];
        assert_int_equal(run_program(questions[i], out, sizeof out), 0);
        if (widest_line(out) > 80) fail_msg("%s prints a line of %d columns:\n%s", questions[i], widest_line(out), out);
        /* Where settings alone are not enough, what they and more memory would do comes before what memory alone would. */
        if (i == 1 && !strstr(out, "adam_state: 8bit, 4")) fail_msg("no 8-bit moments in:\n%s", out);
    }
}

static void json_has_what_it_says_it_has(void **state)
{
    (void)state;
    char out[16384];
    assert_int_equal(run_program("plan --shape qwen2.5-7b --gpu h200 --ram 115G --link 50G --cores 32 --gpu-memory 100G --json",
                                 out, sizeof out),
                     0);
    static const char *const keys[] = { "\"version\": 1",
                                        "\"fits\": true",
                                        "\"parameters\": 7615616512",
                                        "\"machine\": {",
                                        "\"needs\": {",
                                        "\"plan\": {",
                                        "\"step_seconds\": ",
                                        "\"tokens_per_second\": ",
                                        "\"bound\": ",
                                        "\"micro_tokens\": ",
                                        "\"data\": 0.0",
                                        "\"run_seconds\": 0,",
                                        "\"ring_slots\": ",
                                        "{\"name\": \"master.hi 0\", \"place\": \"device\", \"bytes\": 1089994752}",
                                        "\"host\": {\"masters\": ",
                                        "\"device\": {\"masters\": ",
                                        "\"batch\": {\"safe\": ",
                                        "\"remedies\": []",
                                        "\"device_bytes\": 99245025280",
                                        "\"copy_in\": 5e+10",
                                        "\"notes\": []" }; /* of 100 GB the driver takes 720 MiB */
    for (size_t i = 0; i < MT_COUNT(keys); i++)
        if (!strstr(out, keys[i])) fail_msg("no %s in:\n%s", keys[i], out);
}

/* Every key is in docs/plan-json.md. */
static void expect_written_down(const char *question, const char *out)
{
    char docs[32768], key[64];
    int n, keys = 0;
    FILE *f = fopen(MT_TESTS_DIR "/../docs/plan-json.md", "r");
    assert_non_null(f);
    docs[fread(docs, 1, sizeof docs - 1, f)] = '\0';
    fclose(f);
    assert_true(out[0] == '{' && strcmp(out + strlen(out) - 2, "}\n") == 0);
    for (const char *at = out; (at = strchr(at, '"')); at++) {
        if (sscanf(at, "\"%48[a-z0-9_]\":%n", key, &n) != 1 || at[strlen(key) + 2] != ':') continue;
        char written[80];
        snprintf(written, sizeof written, "`%s`", key);
        if (!strstr(docs, written)) fail_msg("megatrain %s prints \"%s\", which docs/plan-json.md does not have", question, key);
        keys++;
    }
    assert_true(keys > 20);
}

static void json_has_nothing_that_is_not_written_down(void **state)
{
    (void)state;
    static const char *const questions[] = { "plan --shape qwen2.5-0.5b --gpu h100 --ram 64G --json",
                                             "plan --shape qwen2.5-7b --gpu rtx4090 --ram 60G --json",
                                             "plan " MODEL " --ram 4G --device cpu --max-seq-len 128 --json",
                                             "plan --list-gpus --json", "plan --list-shapes --json" };
    for (size_t i = 0; i < MT_COUNT(questions); i++) {
        char out[65536];
        assert_int_equal(run_program(questions[i], out, sizeof out), 0);
        expect_written_down(questions[i], out);
    }
}

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    if (!at) fail_msg("no %s in:\n%s", key, text);
    return strtod(at + strlen(key), NULL);
}

/* A CPU's memory is the host's. */
static void json_of_a_cpu_has_no_endless_memory(void **state)
{
    (void)state;
    expect_program("plan " MODEL " --device cpu --ram 4G --json", 0, "\"device_bytes\": 4000000000, \"host_bytes\": 4000000000");
}

/* -- the question ---------------------------------------------------------------------------------- */

static void settings_of_memory_hold_for_a_plan_too(void **state)
{
    (void)state;
    expect_program("plan --shape qwen2.5-0.5b --gpu rtx4090 --ram 64G --home host --host-memory 5G", 0, "DOES NOT FIT");
    expect_program("plan --shape qwen2.5-0.5b --gpu rtx4090 --ram 64G --host-memory 5G", 0,
                   "4.7 GiB of host\n  memory (memory.host_memory)");
    expect_program("plan --shape qwen2.5-0.5b --gpu rtx4090 --ram 3G --host-memory 5G", 0,
                   "2.8 GiB of host\n  memory (as given)");
    expect_program("plan --shape qwen2.5-7b --gpu rtx4090 --ram 128G --host-memory 60G", 0,
                   "cheapest first:\n  host_memory: auto\n");
    expect_program("plan --shape qwen2.5-7b --gpu h100 --ram 128G --device-memory 5G", 0,
                   "cheapest first:\n  device_memory: auto\n");
    /* What may be used is not there. */
    expect_program("plan --shape llama-3.1-405b --device cpu --host-memory 900T", 0, "DOES NOT FIT");
    expect_program("plan --shape qwen2.5-0.5b --gpu rtx4090 --ram 64G --device-memory 3G", 0, "rtx4090, 2.8 GiB usable");
    /* What is frozen has no state. */
    expect_program("plan --shape qwen2.5-7b --gpu rtx4090 --ram 48G --batch-size 4 --freeze 'model.layers.*'", 0, "FITS");
    /* threads decide how fast Adam is: as many as cores do */
    char threads[16384], cores[16384];
    assert_int_equal(
        run_program("plan --shape qwen2.5-0.5b --gpu rtx4090 --ram 64G --optimizer-threads 2 --json", threads, sizeof threads),
        0);
    assert_int_equal(run_program("plan --shape qwen2.5-0.5b --gpu rtx4090 --ram 64G --cores 2 --json", cores, sizeof cores), 0);
    assert_string_equal(threads, cores);
}

static void numbers_without_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *args, *says;
    } cases[] = {
        { "--cores -4", "at least 1" },
        { "--cores 0", "at least 1" },
        { "--cores 4294967297", "at most 4096" },
        { "--ram 0", "write 64G" },
        { "--ram 64", "write 64G" },
        { "--ram 0x40G", "is not a size" },
        { "--gpu-memory 0", "write 64G" },
        { "--link 55", "write 64G" },
        { "--host-memory 64", "expected a size" },
        { "qwen2.5-7b", "is an extra argument" },
        { "--what-fits", "remove --shape" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        char args[256];
        snprintf(args, sizeof args, "plan --shape gpt2 --gpu h100 %s", cases[i].args);
        expect_program(args, 2, cases[i].says);
    }
    static const char *const endless[] = { "--batch-size 1000000000000 --max-seq-len 16777216",
                                           "--batch-size 1000000000000 --gradient-accumulation-steps 1000000",
                                           /* A negative number of rows, once. */
                                           "--batch-size auto --gradient-accumulation-steps 1000000 --max-seq-len 16777216" };
    for (size_t i = 0; i < MT_COUNT(endless); i++) {
        char args[256];
        snprintf(args, sizeof args, "plan --shape gpt2 --gpu h100 --ram 64G %s", endless[i]);
        expect_program(args, 2, "is more than any run takes");
    }
    expect_program("plan --what-fits --gpu h100 --ram 64G --batch-size 1000000000000", 2, "is more than any run takes");
    expect_program("plan gpt2 gpt2-xl", 2, "\"gpt2-xl\" is an extra argument");
    expect_program("plan --shape gpt2 --gpu h100 --ram 64G --gpu-memory 500M", 2, "the driver and its libraries take 720.0 MiB");
    expect_program("plan --shape gpt2 --device cpu --gpu-memory 24G --ram 64G", 2, "name one with --gpu NAME");
    expect_program("plan --shape gpt2 --gpu rtx4090 --gpu-memory 24Gi --ram 64G", 0, "rtx4090, 23.3 GiB usable");
}

static void a_config_json_stands_for_its_folder(void **state)
{
    (void)state;
    expect_program("plan " MODEL "/config.json --ram 4G --device cpu --max-seq-len 128", 0, "FITS");
    expect_program("plan " MODEL "/model.safetensors --ram 4G --device cpu", 2, "is a file; a model directory");
}

/* What train takes can be planned. */
static void a_gguf_file_is_a_model_too(void **state)
{
    (void)state;
    expect_program("plan " MT_TESTS_DIR "/golden/weights/gguf_qwen3/model.gguf --ram 4G --device cpu --max-seq-len 64", 0,
                   "FITS");
    expect_program("plan --model-name " MT_TESTS_DIR "/golden/weights/gguf_qwen3 --ram 4G --device cpu --max-seq-len 64", 0,
                   "FITS");
}

static void what_train_would_refuse_or_assume_is_said(void **state)
{
    (void)state;
    char args[1200], command[1200], folder[] = "/tmp/mt-plan-XXXXXX";
    expect_program("plan --shape gpt2 --gpu h100 --ram 64G --max-seq-len 4096 --batch-size 2", 0,
                   "note: the model has 1024 positions");
    expect_program("plan --shape gpt2 --gpu h100 --ram 64G --max-seq-len 4096 --batch-size 2 --json", 0,
                   "\"notes\": [\"the model has 1024 positions");
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "sed 's/\"model_type\": *\"[a-z0-9]*\"/\"model_type\": \"foobar\"/; s/Qwen3For/FoobarFor/' " MODEL
             "/config.json > %s/config.json",
             folder);
    assert_int_equal(system(command), 0);
    snprintf(args, sizeof args, "plan %s --ram 4G --device cpu", folder);
    expect_program(args, 0, "note: model_type \"foobar\" is unknown");
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* -- the answer ------------------------------------------------------------------------------------ */

/* As many bytes as train asks for: weights in the dtype of the model, lo and both moments. */
static void what_is_written_is_counted_as_train_counts_it(void **state)
{
    (void)state;
    static const struct {
        const char *args, *says;
    } cases[] = {
        { "", "\"checkpoint_bytes\": 43823104,\n  \"disk_bytes\": 54778880," }, /* 16 bytes of each of 2,738,944 parameters; then
                                                                                 the model's 4 */
        { "--save-dtype bfloat16", "\"checkpoint_bytes\": 38345216,\n  \"disk_bytes\": 43823104," },
        { "--adam-state 8bit", "\"checkpoint_bytes\": 32867328," },
        { "--save-only-model", "\"checkpoint_bytes\": 10955776,\n  \"disk_bytes\": 10955776," },
        { "--num-steps 9 --save-steps 2 --keep-last 1",
          "\"disk_bytes\": 87646208," }, /* a new one is there before the old one goes */
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        char args[256];
        snprintf(args, sizeof args, "plan " MT_TESTS_DIR "/../data/demo_model --device cpu --ram 4G --max-seq-len 64 --json %s",
                 cases[i].args);
        expect_program(args, 0, cases[i].says);
    }
#define ENDLESS                                                                                                                  \
    "plan " MT_TESTS_DIR                                                                                                         \
    "/../data/demo_model --device cpu --ram 4G --max-seq-len 64 --num-steps 1000000000 --save-steps 1 --keep-last all"
    expect_program(ENDLESS, 0, "WOULD FIT, but the run writes ");
    expect_program(ENDLESS, 0, "  training:\n"); /* which another disk may hold */
    expect_program(ENDLESS " --json", 0, "train refuses to start; use another --output-dir");
    expect_program(ENDLESS " --gpu h100", 0, "FITS: about "); /* that machine's disk is unknown */
}

/* Samples of a step are batch_size times accumulation, in and out; what the plan hangs on is in what is to be pasted. */
static void the_settings_to_paste_make_the_same_run(void **state)
{
    (void)state;
    char out[16384];
    assert_int_equal(run_program("plan --shape qwen2.5-0.5b --gpu h100 --ram 64G --batch-size 16 --gradient-accumulation-steps 4 "
                                 "--home host --grad-dtype float32 --checkpoint-interval 4 "
                                 "--deterministic false --learning-rate 1e-4",
                                 out, sizeof out),
                     0);
    static const char *const parts[] = { "a step of 64 samples",
                                         "batch_size (4 of them make a step): recommended ",
                                         "  dataset:\n    max_seq_len: 1024\n",
                                         "    gradient_accumulation_steps: 4\n",
                                         "    grad_dtype: float32\n",
                                         "    deterministic: false\n",
                                         "  memory:\n    checkpoint_interval: 4\n    home: host\n" };
    for (size_t i = 0; i < MT_COUNT(parts); i++)
        if (!strstr(out, parts[i])) fail_msg("no \"%s\" in:\n%s", parts[i], out);
    assert_null(strstr(out, "learning_rate"));
    double recommended = number_after(strstr(out, "(4 of them"), "recommended "),
           pasted = number_after(strstr(out, "\n  training:"), "batch_size: ");
    assert_true(recommended == pasted && pasted <= 64);
    assert_int_equal(run_program("plan " MODEL " --device cpu --ram 4G --max-seq-len 128", out, sizeof out), 0);
    assert_non_null(strstr(out, "\n    device: cpu\n"));
    assert_int_equal(run_program("plan " MODEL " --device cpu --gpu h100 --ram 4G --max-seq-len 128", out, sizeof out), 0);
    assert_null(strstr(out, "device: cpu")); /* it is the GPU's plan */
}

static void auto_takes_what_train_would_take(void **state)
{
    (void)state;
    char out[16384];
    assert_int_equal(
        run_program("plan --shape qwen2.5-7b --gpu h100 --ram 256G --max-seq-len 32768 --batch-size auto", out, sizeof out), 0);
    if (!strstr(out, "a step of 8 samples") || !strstr(out, "recommended 8 (") || !strstr(out, "    batch_size: 8\n"))
        fail_msg("no step of 8 samples in:\n%s", out);
    /* and asked for something else, that is what is recommended */
    assert_int_equal(
        run_program("plan --shape qwen2.5-7b --gpu h100 --ram 256G --max-seq-len 32768 --batch-size 2", out, sizeof out), 0);
    if (!strstr(out, "a step of 2 samples") || !strstr(out, "recommended 8 (") || !strstr(out, "    batch_size: 8\n"))
        fail_msg("auto takes 8, recommended are not:\n%s", out);
}

static void what_fits_minds_the_settings(void **state)
{
    (void)state;
    char plain[32768], small[32768], json[65536];
    assert_int_equal(run_program("plan --what-fits --gpu h100 --ram 256G", plain, sizeof plain), 0);
    if (widest_line(plain) > 80) fail_msg("a line of %d columns:\n%s", widest_line(plain), plain);
    assert_int_equal(run_program("plan --what-fits --gpu h100 --ram 256G --max-grad-norm 0 --adam-state 8bit --batch-size 2 "
                                 "--max-seq-len 2048 --home host",
                                 small, sizeof small),
                     0);
    assert_true(strstr(plain, "a step of 32 samples") && strstr(plain, "of up to 1024 tokens, bfloat16, clipping on"));
    assert_true(strstr(small, "a step of 2 samples") && strstr(small, "of up to 2048 tokens, bfloat16, clipping off"));
    assert_non_null(strstr(plain, "qwen2.5-32b                     32.8B  needs "));
    assert_non_null(strstr(small, "qwen2.5-32b                     32.8B  fits\n"));
    assert_non_null(strstr(small, "fits at 1024 tokens\n")); /* gpt2 has no more */
    assert_int_equal(run_program("plan --what-fits --gpu h100 --ram 256G --json", json, sizeof json), 0);
    expect_written_down("plan --what-fits", json);
    assert_true(
        json[0] == '{' && strstr(json, "\"models\": [") &&
        strstr(json,
               "{\"model\": \"qwen2.5-7b\", \"parameters\": 7615616512, \"trainable_family\": true, \"verdict\": \"fits\""));
    /* What it says of a model is what a plan of that model says. */
    assert_int_equal(run_program("plan --shape qwen2.5-32b --gpu h100 --ram 256G --batch-size 32 --json", small, sizeof small),
                     0);
    const char *row = strstr(json, "\"model\": \"qwen2.5-32b\"");
    assert_non_null(row);
    assert_true(number_after(row, "\"host_bytes\": ") == number_after(strstr(small, "\"needs\""), "\"host_bytes\": "));
}

/* Asked for the batch size that is recommended, a plan says one speed, not two. */
static void the_recommended_batch_has_one_speed(void **state)
{
    (void)state;
    char out[16384];
    assert_int_equal(
        run_program("plan --shape qwen2.5-7b --gpu h200 --ram 115G --home host --batch-size auto --json", out, sizeof out), 0);
    const char *batch = strstr(out, "\"batch\": {");
    assert_non_null(batch);
    double planned = number_after(out, "\"tokens_per_second\": "), advised = number_after(batch, "\"tokens_per_second\": ");
    assert_true(planned > 0 && planned / advised < 1.0001 && planned / advised > 0.9999);
}

/* Where compute waits for updates, more tokens a step are the first thing that helps, and smaller moments the next. */
static void updates_that_are_waited_for_name_tokens_first(void **state)
{
    (void)state;
    static const struct {
        const char *args, *hides, *bound;
    } cases[] = { { "plan gpt-oss-20b --gpu h200 --ram 1.5T --max-grad-norm 0", " tokens a step hide them (",
                    " and by waits for updates\n" },
                  { "plan --shape qwen2.5-0.5b --gpu h200 --ram 1T --gpus 8 --peer 0 --batch-size 64",
                    " tokens a step do not hide them; ", "bound by Adam on the host\n" } };
    char out[16384];
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        assert_int_equal(run_program(cases[i].args, out, sizeof out), 0);
        if (widest_line(out) > 80) fail_msg("a line of %d columns:\n%s", widest_line(out), out);
        if (!strstr(out, cases[i].bound)) fail_msg("no \"%s\" in:\n%s", cases[i].bound, out);
        unwrap(out);
        const char *limit = strstr(out, "updates are the limit: compute waits "), *tokens = strstr(out, cases[i].hides),
                   *moments = strstr(out, " makes them shorter (");
        if (!limit || !tokens || !moments || limit > tokens || tokens > moments) fail_msg("%s", out);
    }
    assert_int_equal(run_program("plan --shape qwen2.5-0.5b --gpu h200 --ram 115G", out, sizeof out), 0);
    assert_null(strstr(out, "waits for updates")); /* all of its state is on the GPU */
}

static void unknown_names_lead_on(void **state)
{
    (void)state;
    expect_program("plan --shape qwen2.5-8b --gpu h100", 2, "the nearest is");
    expect_program("plan --shape qwen2.5-7b --gpu h10", 2, "did you mean h100");
    expect_program("plan --json", 2, "which model?");
    expect_program("plan --list-gpus", 0, "rtx5090");
    expect_program("plan --list-shapes", 0, "llama-3.1-405b");
    expect_program("plan --list-shapes", 0, "qwen3-30b-a3b                          30.532 B,    3.042 B active");
    expect_program("bench --shape jamba-v0.1 --device cpu", 2, "can plan but not train yet");
}

MT_TEST_MAIN(cmocka_unit_test(the_verdict_comes_first), cmocka_unit_test(what_is_written_is_counted_as_train_counts_it),
             cmocka_unit_test(memory_is_called_what_it_is), cmocka_unit_test(flags_that_contradict_each_other_are_refused),
             cmocka_unit_test(what_train_refuses_is_in_the_headline), cmocka_unit_test(every_line_fits_eighty_columns),
             cmocka_unit_test(json_has_what_it_says_it_has), cmocka_unit_test(json_has_nothing_that_is_not_written_down),
             cmocka_unit_test(json_of_a_cpu_has_no_endless_memory), cmocka_unit_test(the_recommended_batch_has_one_speed),
             cmocka_unit_test(unknown_names_lead_on), cmocka_unit_test(updates_that_are_waited_for_name_tokens_first),
             cmocka_unit_test(settings_of_memory_hold_for_a_plan_too), cmocka_unit_test(numbers_without_sense_are_refused),
             cmocka_unit_test(a_config_json_stands_for_its_folder), cmocka_unit_test(a_gguf_file_is_a_model_too),
             cmocka_unit_test(what_train_would_refuse_or_assume_is_said),
             cmocka_unit_test(the_settings_to_paste_make_the_same_run), cmocka_unit_test(auto_takes_what_train_would_take),
             cmocka_unit_test(what_fits_minds_the_settings))
