/* Configuration files in MegaTrain's and in LLaMA-Factory's form resolve to committed tables (tests/golden/settings), and what
 * LLaMA-Factory's form asks for that is not done here is refused with the reason. */
#include "process.h"
#include "workspace.h"

#include "settings/settings.h"

#define DIR_NAME MT_TESTS_DIR "/golden/settings"

/* The line `*at` points to, without its end; moves on. */
static char *take_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (end) *end = '\0';
    *at = end ? end + 1 : line + strlen(line);
    return line;
}

static bool ends_with(const char *line, const char *tail)
{
    size_t n = strlen(line), k = strlen(tail);
    return n >= k && strcmp(line + n - k, tail) == 0;
}

/* Every line of the table is in the output, in order; what the output has besides is a setting younger than the table, at its
 * default, or a whole section of such, with the blank line after it. */
static void compare(const char *name, char *table, char *output)
{
    char *out = output;
    for (char *t = table; *t;) {
        const char *want = take_line(&t), *got = take_line(&out);
        for (bool younger = false; *out && strcmp(want, got) != 0; got = take_line(&out)) {
            if (!(younger && !*got) && (!ends_with(got, "  default") || (*want && strncmp(want, got, strcspn(want, " ")) == 0)))
                break;
            younger = true;
        }
        if (strcmp(want, got) != 0) fail_msg("%s:\nexpected %s\nfound    %s", name, want, got);
    }
}

static void files_resolve_to_the_committed_tables(void **state)
{
    (void)state;
    static program p;
    static const char *const names[] = { "mega_minimal", "mega_full", "mega_epochs", "lf_minimal",
                                         "lf_full_sft",  "lf_pt",     "lf_odds" };
    setenv("HF_HUB_OFFLINE", "1", 1); /* it ends where the model would be looked for */
    setenv("HF_HOME", "/nonexistent", 1);
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        mt_err err = { 0 };
        char *table;
        test_path yaml = workspace_path("%s.yaml", names[i]);
        assert_ok(mt_file_read(&table, NULL, workspace_path("%s/%s.txt", DIR_NAME, names[i]).s, 1 << 20, &err));
        program_init(&p, DIR_NAME);
        program_arg(&p, "train");
        program_arg(&p, "--dry-run");
        program_arg(&p, "--verbose");
        program_arg(&p, "--config");
        program_arg(&p, yaml.s);
        assert_int_equal(program_run(&p), 1);
        assert_printed(&p, "HF_HUB_OFFLINE forbids the network");
        compare(names[i], table, p.text);
        mt_free(table);
    }
}

/* The smallest file that says what to compute with, and one more line. */
static mt_rc read_with(const char *line, mt_settings *s, mt_err *err)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "model_name_or_path: a/b\ndataset: d\nfinetuning_type: full\n%s\n%s", line,
                     strstr(line, "bf16") ? "" : "bf16: true\n");
    assert_int_equal(mt_settings_init(s, err), MT_OK);
    return mt_settings_parse(s, text, (size_t)n, "f.yaml", err);
}

static void what_is_not_done_here_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        mt_rc rc;
        const char *says, *says_too;
    } cases[] = {
        { "stage: dpo", MT_EUNSUPPORTED, "f.yaml:4: stage is \"dpo\"", "preference" },
        { "do_train: false", MT_EUNSUPPORTED, "do_train", "trains nothing" },
        { "quantization_bit: 4", MT_EUNSUPPORTED, "quantization_bit", "full precision" },
        { "adapter_name_or_path: x", MT_EUNSUPPORTED, "adapter", "merge it" },
        { "optim: adafactor", MT_EUNSUPPORTED, "optim is \"adafactor\"", "adamw_torch" },
        { "use_galore: true", MT_EUNSUPPORTED, "use_galore", "leave it out" },
        { "save_strategy: best", MT_EUNSUPPORTED, "save_strategy", "expected no, steps or epoch" },
        { "eval_strategy: often", MT_EUNSUPPORTED, "eval_strategy", "expected no, steps or epoch" },
        { "save_steps: 0.1", MT_EUNSUPPORTED, "save_steps is \"0.1\"", "a number of steps" },
        { "logging_steps: 0.1", MT_EUNSUPPORTED, "logging_steps", "a number of steps" },
        { "neftune_noise_alpha: 5", MT_EUNSUPPORTED, "neftune_noise_alpha", "leave it out" },
        { "use_asft_loss: true", MT_EUNSUPPORTED, "use_asft_loss", "second model" },
        { "rope_scaling: linear", MT_EUNSUPPORTED, "rope_scaling", "config.json" },
        { "learning_rat: 1e-5", MT_EINVAL, "f.yaml:4: \"learning_rat\" is not known", "did you mean learning_rate?" },
        { "zzqqxx_9: 1", MT_EINVAL, "\"zzqqxx_9\" is not supported", "--set" },
        { "learning_rate: fast", MT_EINVAL, "f.yaml:4: learning_rate", "fast" },
        { "lr_scheduler_kwargs: {nothing: 1}", MT_EINVAL, "lr_scheduler_kwargs has \"nothing\"", "f.yaml:4" },
        { "flash_attn: fa9", MT_EUNSUPPORTED, "flash_attn", "fa2" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_settings s;
        assert_int_equal(read_with(cases[i].line, &s, &err), cases[i].rc);
        assert_says(cases[i].says);
        assert_says(cases[i].says_too);
        mt_settings_deinit(&s);
    }
}

static void what_is_off_may_be_said(void **state)
{
    (void)state;
    static const char *const lines[] = { "quantization_bit: null",      "use_galore: false", "label_smoothing_factor: 0",
                                         "neftune_noise_alpha:",        "max_steps: -1",     "report_to: none",
                                         "overwrite_output_dir: false", "deepspeed: null" };
    for (size_t i = 0; i < MT_COUNT(lines); i++) {
        mt_err err = { 0 };
        mt_settings s;
        assert_ok(read_with(lines[i], &s, &err));
        assert_int_equal(s.n_notices, 0);
        mt_settings_deinit(&s);
    }
}

static void strategies_and_switches_set_what_they_mean(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_settings s;
    assert_ok(read_with("save_strategy: epoch\nsave_steps: 40\neval_strategy: epoch\neval_steps: 7\nval_size: 4\n"
                        "logging_strategy: epoch\nlogging_steps: 3",
                        &s, &err));
    assert_int_equal(s.save.save_steps, MT_EVERY_EPOCH);
    assert_int_equal(s.eval.eval_steps, MT_EVERY_EPOCH);
    assert_int_equal(s.logging.log_interval, MT_EVERY_EPOCH);
    mt_settings_deinit(&s);
    assert_ok(read_with("save_strategy: no\neval_strategy: steps\nlogging_strategy: steps\nlogging_steps: 3", &s, &err));
    assert_int_equal(s.save.save_steps, 0);
    assert_int_equal(s.eval.eval_steps, 3);
    assert_int_equal(s.logging.log_interval, 3);
    mt_settings_deinit(&s);
    assert_ok(read_with("disable_shuffling: true\ntrain_from_scratch: true\nuse_cpu: true", &s, &err));
    assert_false(s.dataset.shuffle);
    assert_true(s.training.from_scratch);
    assert_int_equal(s.model.device.kind, MT_SET_DEVICE_CPU);
    mt_settings_deinit(&s);
}

static void no_to_bfloat16_is_yes_to_float32(void **state)
{
    (void)state;
    static const struct {
        const char *lines;
        mt_dtype dtype;
    } cases[] = {
        { "bf16: true", MT_DTYPE_BF16 },
        { "bf16: false", MT_DTYPE_F32 },
        { "bf16: null", MT_DTYPE_BF16 },
        { "bf16: false\nfp16: true", MT_DTYPE_F16 },
        { "fp16: true\nbf16: false", MT_DTYPE_F16 },
        { "bf16: false\npure_bf16: true", MT_DTYPE_BF16 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_settings s;
        assert_ok(read_with(cases[i].lines, &s, &err));
        if (s.model.dtype != cases[i].dtype) fail_msg("%s: %s", cases[i].lines, mt_dtype_name(s.model.dtype));
        assert_int_equal(s.training.grad_dtype, cases[i].dtype == MT_DTYPE_F32 ? MT_DTYPE_F32 : MT_DTYPE_BF16);
        mt_settings_deinit(&s);
    }
}

static void what_is_replaced_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } cases[] = {
        { "deepspeed: ds_z3.json", "deepspeed: not needed: one process keeps weights" },
        { "ddp_timeout: 180000000", "ddp_timeout: not needed: one process" },
        { "flash_attn: fa2", "flash_attn: attention is" },
        { "overwrite_output_dir: true", "--overwrite" },
        { "resume_from_checkpoint: true", "--resume" },
        { "resume_from_checkpoint: saves/x/checkpoint-500", "--resume" },
        { "pure_bf16: true", "the master weights are fp32" },
        { "hf_hub_token: hf_x", "set HF_TOKEN instead" },
        { "packing: true", "packed samples do not see each other" },
        { "lora_rank: 8", "has no effect with finetuning_type full" },
        { "report_to: wandb", "metrics.jsonl" },
        { "lora_plus_something_new: 8", "has no effect with finetuning_type full" },
        { "dataloader_drop_last: true", "nothing is dropped" },
        { "dataloader_prefetch_factor: 2", "prepared ahead" },
        { "quantization_method: bnb", "has no effect without quantization_bit" },
        { "galore_rank: 128", "has no effect without use_galore" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_settings s;
        assert_ok(read_with(cases[i].line, &s, &err));
        assert_int_equal(s.n_notices, 1);
        if (!strstr(s.notices[0], cases[i].says)) fail_msg("%s: %s", cases[i].line, s.notices[0]);
        mt_settings_deinit(&s);
    }
}

static void lora_is_refused_said_or_not(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "model_name_or_path: a/b\ndataset: d\n", "which means lora to LLaMA-Factory" },
        { "model_name_or_path: a/b\nfinetuning_type: lora\n",
          "f.yaml:2: finetuning_type is \"lora\": adapters are not trained here" },
        { "model_name_or_path: a/b\nfinetuning_type: freeze\n", "--freeze" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_settings s;
        assert_ok(mt_settings_init(&s, &err));
        assert_int_equal(mt_settings_parse(&s, cases[i].text, strlen(cases[i].text), "f.yaml", &err), MT_EUNSUPPORTED);
        assert_says(cases[i].says);
        assert_says("finetuning_type: full");
        mt_settings_deinit(&s);
    }
}

MT_TEST_MAIN(cmocka_unit_test(files_resolve_to_the_committed_tables), cmocka_unit_test(what_is_not_done_here_is_refused),
             cmocka_unit_test(what_is_off_may_be_said), cmocka_unit_test(strategies_and_switches_set_what_they_mean),
             cmocka_unit_test(no_to_bfloat16_is_yes_to_float32), cmocka_unit_test(what_is_replaced_is_told),
             cmocka_unit_test(lora_is_refused_said_or_not))
