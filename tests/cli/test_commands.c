/* The small commands as a user meets them: help, spelling, inspect, grad. */
#include "golden.h"
#include "program.h"
#include "tempdir.h"

#include "base/json.h"

#include <sys/stat.h>

#define MODEL MT_TESTS_DIR "/golden/models/qwen3"

static void help_and_misspelt_words_lead_on(void **state)
{
    (void)state;
    expect_program("", 2, "usage: megatrain COMMAND");
    expect_program("--help", 0, "inspect");
    expect_program("--version", 0, "megatrain 0.");
    expect_program("inspct x", 2, "did you mean inspect?");
    expect_program("help", 0, "usage: megatrain COMMAND");
    expect_program("help help", 0, "usage: megatrain COMMAND");
    expect_program("help plan", 0, "usage: megatrain plan");
    expect_program("help train", 0, "usage: megatrain train");
    expect_program("help trian", 2, "did you mean train?");
    expect_program("grad --help", 0, "--device-memory SIZE");
    expect_program("grad " MODEL " --tokns x", 2, "did you mean --tokens?");
    expect_program("grad " MODEL " --out x", 2, "--tokens FILE is needed");
    expect_program("grad " MODEL " --tokens x --out y --tokens z", 2,
                   "grad: --tokens is given twice, as x and as z; give it once");
    expect_program("grad " MODEL " --tokens", 2, "--tokens needs a value");
    expect_program("grad", 2, "MODEL is missing");
    expect_program("inspect a b", 2, "is an extra argument");
    expect_program("generate x --max-new-tokens 99999999999999999999", 2, "out of range");
    expect_program("generate x --seed -9223372036854775808", 2, "out of range");
    expect_program("generate x --top-k 3x", 2, "error: generate: --top-k expects a whole number");
    expect_program("generate x --temperature hot", 2, "error: generate: --temperature expects a number");
    expect_program("report", 2, "RUN is missing");
    expect_program("report /nowhere", 2, "no directory /nowhere");
    expect_program("report " MODEL, 2, "holds no run");
    expect_program("report " MODEL " --serve 0", 2, "--serve 0: a port is 1 to 65535");
    expect_program("report " MODEL " --serve -1", 2, "--serve -1: a port is 1 to 65535");
}

/* stdout on a full disk, or closed: the command fails with a message. */
static void what_could_not_be_printed_is_told(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "--help", "--version", "families", "plan --list-gpus", "plan --help", "inspect " MODEL
    };
    for (size_t i = 0; i < MT_COUNT(commands); i++) {
        char args[512], out[4096];
        snprintf(args, sizeof args, "%s 2>&1 >/dev/full; exit $?; :", commands[i]);
        if (run_program(args, out, sizeof out) != 1 || !strstr(out, "No space left on device"))
            fail_msg("megatrain %s said:\n%s", args, out);
        snprintf(args, sizeof args, "%s 2>&1 >&-; exit $?; :", commands[i]);
        if (run_program(args, out, sizeof out) != 1 || !strstr(out, "Bad file descriptor"))
            fail_msg("megatrain %s said:\n%s", args, out);
    }
    expect_program("plan --list-gpus | head -1 >/dev/null; echo fine", 0, "fine");
    expect_program("inspct 2>&1 >&-; exit $?; :", 2, "did you mean"); /* nothing to print, nothing lost */
}

static void inspect_shows_what_was_found(void **state)
{
    (void)state;
    expect_program("inspect " MODEL "/model.safetensors", 2, "model.safetensors is a file; give the model's directory");
    expect_program("tokenize " MODEL "/model.safetensors < /dev/null", 2, "is a file; give the model's directory");
    expect_program("train --model-name " MODEL "/model.safetensors --dataset-path " MT_TESTS_DIR
                   "/../data/demo_train.json --output-dir /nowhere/run",
                   2, "model.name: " MODEL "/model.safetensors is a file; give the model's directory");
    expect_program("inspect " MODEL, 0, "2 layers, hidden 16, mlp 24, 4 heads of 16 (2 key/value), vocabulary 97");
    expect_program("inspect " MODEL, 0, "GFLOP/s");
    expect_program("inspect --tensors " MODEL, 0, "model.layers.1.self_attn.q_norm.weight");
    expect_program("inspect " MT_TESTS_DIR "/golden/models/llama_sharded", 0, "3 files");
    expect_program("inspect " MT_TESTS_DIR "/golden/models/glm4_moe", 0, "2 tensors of the files are not part of this model");
    expect_program("inspect " MT_TESTS_DIR "/golden/models/glm4_moe", 0,
                   "8 experts on 1 of 2 layers, 3 for each row, 6 wide; a shared one, 6 wide");
    expect_program("inspect " MT_TESTS_DIR "/golden/models/phimoe", 0, "phimoe's router works as in evaluation");
    expect_program("inspect /nowhere", 1, "is neither a directory here nor a name on the hub");
    expect_program("families", 0, "\nqwen3             Qwen3 0.6B"); /* aligned with the longest name */
    expect_program("families", 0, "\ngranitemoeshared  ");
    expect_program("families --help", 0, "\nList the known model families");
}

#define BENCH_MODEL(model) "bench --device cpu --model " model " "
#define BENCH_SIZES        "--ram 1G --seq-len 16 --tokens-per-step 64 "
#define BENCH_STEPS        "--steps 2 --warmup 1 "
#define BENCH              BENCH_MODEL(MODEL) BENCH_SIZES BENCH_STEPS

static void bench_says_how_fast_and_where_the_time_went(void **state)
{
    char args[1024], path[512];
    snprintf(path, sizeof path, "%s/trace.json", (const char *)*state);
    snprintf(args, sizeof args, BENCH "--home host --trace %s", path);
    expect_program(args, 0, "64 tokens a step (60 trained)");
    expect_program(BENCH "--home host --table --json", 0, "\"name\": \"gate+up dw\"");
    expect_program(BENCH "--home host --table --json", 0, "\"name\": \"update on the host\"");
    assert_int_equal(access(path, R_OK), 0);
    expect_program(BENCH, 0, "of the");
    expect_program(BENCH "--lengths lognormal:6 --trained 0.3 --deterministic off", 0, "tokens/s");
    expect_program(BENCH "--lengths lognormal:6k", 2, "such as lognormal:300");
    expect_program(BENCH "--lengths lognormal:inf", 2, "such as lognormal:300");
    expect_program(BENCH "--deterministic maybe", 2, "on or off expected");
    expect_program(BENCH "--micro-tokens -5", 2, "--micro-tokens and --head-rows of at least 0");
    expect_program(BENCH "--head-rows -1", 2, "--micro-tokens and --head-rows of at least 0");
    expect_program(BENCH "--adam-state 8bit", 0, "tokens/s");
    expect_program(BENCH "--adam-state f8", 2, "float32, bf16 or 8bit expected");
    expect_program(BENCH_MODEL(MT_TESTS_DIR "/golden/models/gpt2") BENCH_STEPS "--ram 1G --tokens-per-step 64 --seq-len 64", 2,
                   "the model has 32 positions");
    expect_program(BENCH_MODEL(MODEL) BENCH_STEPS "--ram 64", 2, "--ram: \"64\" is 64 B");
    expect_program("bench --shape qwen2.5-7b --device cpu --ram 1G", 1, "max_grad_norm: 0 is --no-clip");
}

static void what_bench_prints_for_programs_is_json_whatever_the_model_is_called(void **state)
{
    char args[1024], path[512], out[16384];
    mt_err err = { 0 };
    const mt_value *line;
    snprintf(path, sizeof path, "%s/a \"model\"", (const char *)*state);
    assert_int_equal(symlink(MODEL, path), 0);
    snprintf(args, sizeof args, BENCH_MODEL("'%s'") BENCH_SIZES BENCH_STEPS "--json", path);
    assert_int_equal(run_program(args, out, sizeof out), 0);
    assert_ok(mt_json_parse(&line, out, strlen(out), "what bench printed", &err));
    assert_true(mt_value_is_number(mt_value_get(line, "version")));
    assert_string_equal(mt_json_string(mt_value_get(line, "shape")), path);
    assert_int_equal(mt_value_number(mt_value_get(line, "tokens_per_step")), 64);
    mt_json_free(line);
}

static void bench_times_the_traced_step_where_steps_are_long(void **state)
{
    (void)state;
    expect_program(BENCH_MODEL(MODEL) BENCH_SIZES "--steps 0", 2, "--steps 0: at least 1 expected (or 0 with --table");
    expect_program(BENCH_MODEL(MODEL) BENCH_STEPS "--ram 1G --seq-len 1", 2, "--seq-len 1: at least 2 expected");
    expect_program(BENCH_MODEL(MODEL) BENCH_SIZES "--warmup -1", 2, "--warmup -1: at least 0 expected");
    expect_program(BENCH_MODEL(MODEL) BENCH_SIZES "--steps 999999 --warmup 2", 2, "at most 1000000 in all");
    expect_program(BENCH_MODEL(MODEL) BENCH_SIZES "--steps 0 --warmup 0 --table", 0, "64 tokens a step (60 trained), 0.");
    expect_program(BENCH_MODEL(MODEL) BENCH_SIZES "--steps 0 --warmup 1 --warmup-tokens 20 --table", 0,
                   "64 tokens a step (60 trained), 0.");
    expect_program(BENCH "--warmup-tokens 20", 0, "64 tokens a step (60 trained), 0.");
    expect_program(BENCH "--warmup-tokens 1", 2, "--warmup-tokens of at least 2");
}

static void bench_refuses_flags_that_contradict_each_other(void **state)
{
    (void)state;
    expect_program("bench --shape gpt2 --model " MODEL, 2, "bench: --shape gpt2 and --model " MODEL " both name the model");
    expect_program(BENCH "--and --shape gpt2", 2, "both name the model");
    expect_program("bench --shape gpt2 --device cuda:1 --devices 0,2", 2,
                   "--device cuda:1 and --devices 0,2 name different GPUs");
}

static void bench_freezes_what_it_is_told_to(void **state)
{
    (void)state;
    expect_program(BENCH "--freeze 'model.layers.*,model.embed_tokens.weight'", 0, "tokens/s");
    expect_program(BENCH "--freeze '*'", 2, "nothing is left to train");
    expect_program(BENCH "--freeze 'model.layer.*'", 2, "model.layer.*");
    expect_program("bench --model " MT_TESTS_DIR "/golden/models/deepseek_v3 --freeze '*.weight'", 2, "nothing is left to train");
    expect_program(BENCH "--freeze $(printf '*norm*,%.0s' $(seq 65))", 2, "up to 64 patterns");
}

static void bench_runs_on_several_lanes_and_shows_each(void **state)
{
    (void)state;
    char out[16384];
    mt_err err = { 0 };
    const mt_value *line;
    assert_int_equal(run_program(BENCH "--devices 0,0,0 --shares 4 --json", out, sizeof out), 0);
    assert_ok(mt_json_parse(&line, out, strlen(out), "what bench printed", &err));
    const mt_value *each = mt_value_get(line, "device_seconds");
    assert_int_equal(mt_value_items(each), 3);
    for (int i = 0; i < 3; i++) assert_true(mt_value_number(mt_value_at(each, (size_t)i)) > 0);
    const double several = mt_value_number(mt_value_get(line, "loss"));
    mt_json_free(line);
    assert_int_equal(run_program(BENCH "--shares 4 --json", out, sizeof out), 0);
    assert_ok(mt_json_parse(&line, out, strlen(out), "what bench printed", &err));
    assert_null(mt_value_get(line, "device_seconds"));
    const double one = mt_value_number(mt_value_get(line, "loss"));
    assert_memory_equal(&one, &several, sizeof one);
    mt_json_free(line);
    expect_program(BENCH "--devices 0,0", 0, "on 2 x CPU");
    expect_program(BENCH "--devices 0,0 --shares 2", 0, "a step; the first waited ");
    expect_program(BENCH "--devices 0,0 --shares 1", 2, "2 devices and 1 share; each device needs a share");
    expect_program(BENCH "--devices 0,,0", 2, "such as 0,1");
    expect_program(BENCH "--devices 0,0 --alias-layers", 2, "one device only");
    expect_program(BENCH "--shares -1", 2, "1 to 4096 expected");
}

static void bench_runs_several_in_one_process(void **state)
{
    (void)state;
    char out[16384];
    assert_int_equal(run_program(BENCH "--json --and --tokens-per-step 32 --and --home host --alias-layers", out, sizeof out), 0);
    const char *first = strstr(out, "\"tokens_per_step\": 64"),
               *second = strstr(out, "\"alias_layers\": false, \"tokens_per_step\": 32"),
               *third = strstr(out, "\"alias_layers\": true, \"tokens_per_step\": 32");
    assert_true(first && second > first && third > second);
    /* words and names are looked at before the first run */
    assert_int_equal(run_program(BENCH "--and --tokens-per-step 1", out, sizeof out), 2);
    assert_true(strstr(out, "--tokens-per-step 1: at least one document expected (--seq-len 16)") && !strstr(out, "tokens/s"));
    assert_int_equal(run_program(BENCH "--and --model /nowhere", out, sizeof out), 1);
    assert_true(strstr(out, "/nowhere") && !strstr(out, "tokens/s"));
    assert_int_equal(
        run_program("bench --shape smollm2-135m,nope --device cpu --seq-len 16 --tokens-per-step 16 --steps 1 --warmup 0", out,
                    sizeof out),
        2);
    assert_true(strstr(out, "no shape \"nope\"") && !strstr(out, "tokens/s"));
    expect_program(BENCH "--device-memory 200M --and --device-memory 300M", 2, "give the largest first");
    expect_program(BENCH "--home host --alias-layers", 0, "measures speed only");
    /* one that cannot run keeps none of the others, and shows in the status */
    assert_int_equal(
        run_program(BENCH "--json --and --device-memory 4K --ram 4K --and --device-memory 1G --ram 1G --tokens-per-step 32", out,
                    sizeof out),
        1);
    first = strstr(out, "error: "), second = strstr(out, "\"tokens_per_step\": 32");
    assert_true(first && second && strstr(out, "\"tokens_per_step\": 64"));
    /* micro-batches that were looked at and did not fit are not an error of a run that fits */
    assert_int_equal(run_program(BENCH_MODEL(MODEL) "--ram 1G --seq-len 16 --steps 2 --json --tokens-per-step 4096 "
                                                    "--device-memory 1650K --warmup 0 --and --tokens-per-step 32",
                                 out, sizeof out),
                     0);
    assert_true(strstr(out, "\"tokens_per_step\": 4096") && strstr(out, "\"tokens_per_step\": 32") && !strstr(out, "error"));
}

/* The qwen2 golden under an unknown type: config keys tell nothing, its tensors do. */
static void inspect_says_how_it_told_the_family(void **state)
{
    const char *dir = *state;
    char args[1200], command[1200];
    expect_program("inspect " MODEL, 0, "family       qwen3, from model_type (model_type \"qwen3\", Qwen3ForCausalLM)");
    snprintf(command, sizeof command,
             "cd " MT_TESTS_DIR "/golden/models/qwen2 && cp model.safetensors '%s' && sed 's/qwen2/wombat/; "
             "s/Qwen2For/WombatFor/' config.json > '%s/config.json'",
             dir, dir);
    assert_int_equal(system(command), 0);
    snprintf(args, sizeof args, "inspect %s", dir);
    expect_program(args, 0, "family       qwen2, from tensor names (model_type \"wombat\", WombatForCausalLM)");
    expect_program(args, 0,
                   "assumed      model_type \"wombat\" is unknown; its tensors have the names and shapes of a qwen2 model's");
    snprintf(args, sizeof args, "inspect %s/config.json", dir);
    expect_program(args, 0, "family       llama, from nothing better");
}

static void grad_writes_what_hugging_face_would(void **state)
{
    static const struct {
        const char *model, *memory;
    } runs[] = {
        { "qwen3", "" }, { "qwen3", "--device-memory 250K" }, { "mixtral", "" }, { "mixtral_fused", "" }, { "qwen2_moe", "" }
    };
    for (size_t m = 0; m < MT_COUNT(runs); m++) {
        char args[2048], path[512];
        mt_err err = { 0 };
        mt_safetensors *ours, *expected = golden_open(runs[m].model, "expected.safetensors");
        snprintf(path, sizeof path, "%s/out.safetensors", (const char *)*state);
        snprintf(args, sizeof args, "grad %s%s --tokens %s%s/tokens.json --out %s --logits --device cpu %s", GOLDEN_DIR,
                 runs[m].model, GOLDEN_DIR, runs[m].model, path, runs[m].memory);
        expect_program(args, 0, "gradient norm");
        assert_ok(mt_safetensors_open(&ours, path, &err));
        assert_int_equal(mt_safetensors_count(ours), mt_safetensors_count(expected));
        for (size_t i = 0; i < mt_safetensors_count(ours); i++) {
            const mt_st_tensor *t = mt_safetensors_at(ours, i);
            float *f = mt_malloc(t->n * sizeof *f);
            mt_to_f32(f, t->data, t->dtype, t->n);
            assert_true(golden_near(expected, t->name, f, t->n, GOLDEN_GRAD));
            mt_free(f);
        }
        mt_safetensors_close(ours);
        mt_safetensors_close(expected);
    }
}

static void grad_refuses_what_it_cannot_do_and_writes_nothing(void **state)
{
    char args[2048], tokens[512];
    snprintf(tokens, sizeof tokens, "%s/tokens.json", (const char *)*state);
    static const struct {
        const char *text, *says;
        int status;
    } bad[] = {
        { "{\"input_ids\": [[1, 2, 97]]}", "token id 97 at position 2", 1 },
        { "{\"input_ids\": [[1, 2], [3]], \"labels\": [[1, 2]]}", "one row for each of the 2", 1 },
        { "{\"input_ids\": [[1, 2]], \"labels\": [[1]]}", "as long as its ids", 1 },
        { "{\"input_ids\": [[1, \"a\"]]}", "position 1: an integer was expected", 1 },
        { "{\"input_ids\": []}", "at least one row", 1 },
        { "nonsense", "not valid JSON", 1 },
    };
    for (size_t i = 0; i < MT_COUNT(bad); i++) {
        FILE *f = fopen(tokens, "w");
        assert_non_null(f);
        fputs(bad[i].text, f);
        fclose(f);
        snprintf(args, sizeof args, "grad " MODEL " --tokens %s --out %s/out.safetensors --device cpu", tokens,
                 (const char *)*state);
        expect_program(args, bad[i].status, bad[i].says);
    }
    snprintf(args, sizeof args,
             "grad " MODEL " --tokens " MODEL "/tokens.json --out %s/out.safetensors --device cpu --device-memory 20K",
             (const char *)*state);
    expect_program(args, 1, "of device memory and may use 19.5 KiB");
    snprintf(args, sizeof args, "grad " MODEL " --tokens " MODEL "/tokens.json --out %s/out.safetensors --dtype int8",
             (const char *)*state);
    expect_program(args, 2, "float32 or bfloat16");
    assert_int_equal(tempdir_count(*state, ".safetensors"), 0);
    snprintf(tokens, sizeof tokens, "%s/pipe", (const char *)*state); /* something other than a file is not replaced by one */
    assert_int_equal(mkfifo(tokens, 0600), 0);
    snprintf(args, sizeof args, "grad " MODEL " --tokens " MODEL "/tokens.json --device cpu --out %s", tokens);
    expect_program(args, 2, "is not a regular file");
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(cmocka_unit_test(help_and_misspelt_words_lead_on), cmocka_unit_test(what_could_not_be_printed_is_told),
             cmocka_unit_test(inspect_shows_what_was_found), IN_TEMPDIR(inspect_says_how_it_told_the_family),
             IN_TEMPDIR(bench_says_how_fast_and_where_the_time_went),
             IN_TEMPDIR(what_bench_prints_for_programs_is_json_whatever_the_model_is_called),
             cmocka_unit_test(bench_times_the_traced_step_where_steps_are_long),
             cmocka_unit_test(bench_freezes_what_it_is_told_to), cmocka_unit_test(bench_refuses_flags_that_contradict_each_other),
             cmocka_unit_test(bench_runs_several_in_one_process), cmocka_unit_test(bench_runs_on_several_lanes_and_shows_each),
             IN_TEMPDIR(grad_writes_what_hugging_face_would), IN_TEMPDIR(grad_refuses_what_it_cannot_do_and_writes_nothing))
