/* Settings in: defaults, files, flags, and what happens when they meet. */
#include "test.h"

#include "base/fault.h"
#include "settings/settings.h"

#include <math.h>
#include <stdlib.h>

#define ORIGINAL MT_TESTS_DIR "/fixtures/settings/original.yaml"

static mt_settings open_settings(const char *yaml)
{
    mt_settings s;
    mt_err err = { 0 };
    assert_ok(mt_settings_init(&s, &err));
    if (yaml) assert_ok(mt_settings_parse(&s, yaml, strlen(yaml), "c.yaml", &err));
    return s;
}

static bool noticed(const mt_settings *s, const char *text)
{
    for (size_t i = 0; i < s->n_notices; i++)
        if (strstr(s->notices[i], text)) return true;
    return false;
}

/* What a file of the original that says nothing gets: infinity/config/training.py and yaml_loader.py. */
static void defaults_are_the_originals(void **state)
{
    (void)state;
    mt_settings s = open_settings(NULL);
    assert_string_equal(s.model.name, "");
    assert_int_equal(s.model.dtype, MT_DTYPE_BF16);
    assert_int_equal(s.model.device.kind, MT_SET_DEVICE_AUTO);
    assert_int_equal(s.model.devices.n, 0);
    assert_int_equal(s.dataset.name.n, 0);
    assert_string_equal(s.dataset.dataset_dir, "data");
    assert_string_equal(s.dataset.query_field, ""); /* found in the data, where query and response are among what is known */
    assert_string_equal(s.dataset.response_field, "");
    assert_int_equal(s.dataset.max_seq_len, 1024);
    assert_string_equal(s.dataset.system_prompt, "");
    assert_false(s.dataset.train_on_prompt);
    assert_int_equal(s.training.batch_size, 96);
    assert_int_equal(s.training.gradient_accumulation_steps, 1);
    assert_true(s.training.learning_rate == 1e-5);
    assert_true(s.training.weight_decay == 0.01);
    assert_true(s.training.max_grad_norm == 1);
    assert_int_equal(s.training.seed, 42);
    assert_true(s.optimizer.beta1 == 0.9 && s.optimizer.beta2 == 0.999 && s.optimizer.eps == 1e-8);
    assert_int_equal(s.memory.checkpoint_interval, 4);
    assert_int_equal(s.memory.num_grad_slabs, 12);
    assert_int_equal(s.logging.log_interval, 1);
    assert_true(s.logging.enable_timing);
    assert_int_equal(s.training.lr_scheduler, MT_SET_LR_CONSTANT);
    assert_int_equal(s.training.warmup_steps, 0);

    assert_true(s.training.deterministic);
    assert_int_equal(s.training.grad_dtype, MT_DTYPE_BF16);
    assert_int_equal(s.save.dtype, MT_DTYPE_COUNT);
    assert_int_equal(s.save.max_shard_size, 5000000000);
    assert_int_equal(s.dataset.packing, MT_TRI_AUTO);
    assert_true(s.dataset.max_bad_share == 0.05);
    assert_int_equal(s.dataset.template_kwargs.type, MT_VALUE_MAP);
    mt_err err = { 0 };
    assert_ok(mt_settings_check(&s, 0, &err));
    assert_int_equal(s.training.num_steps, 100);
    assert_string_equal(s.save.output_dir, "runs/run");
    assert_int_equal(s.n_notices, 0);
    mt_settings_deinit(&s);
}

static void the_originals_files_are_read_whole(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_settings s = open_settings(NULL);
    assert_ok(mt_settings_read(&s, ORIGINAL, &err));
    assert_ok(mt_settings_check(&s, MT_NEED_MODEL | MT_NEED_DATA, &err));
    assert_string_equal(s.model.name, "Qwen/Qwen2.5-7B-Instruct");
    assert_int_equal(s.model.device.kind, MT_SET_DEVICE_CUDA);
    assert_int_equal(s.model.device.index, 1);
    assert_int_equal(s.model.attn_implementation, MT_SET_ATTENTION_FLASH_2);
    assert_int_equal(s.dataset.name.n, 1);
    assert_string_equal(s.dataset.name.items[0], "alpaca_en_demo");
    assert_string_equal(s.dataset.query_field, "question");
    assert_int_equal(s.dataset.max_seq_len, 2048);
    assert_int_equal(s.dataset.num_workers, 4);
    assert_string_equal(s.dataset.system_prompt, "Answer briefly: yes, no or a number.");
    assert_int_equal(s.training.batch_size, 148);
    assert_int_equal(s.training.num_steps, 1000);
    assert_true(s.training.learning_rate == 2e-5);
    assert_int_equal(s.training.seed, 7);
    assert_int_equal(s.optimizer.type, MT_SET_OPTIMIZER_DEEPSPEED_ADAM);
    assert_true(s.optimizer.beta2 == 0.95 && s.optimizer.eps == 1e-6);
    assert_int_equal(s.memory.checkpoint_interval, 2);
    assert_int_equal(s.logging.log_interval, 10);
    assert_false(s.logging.enable_timing);
    assert_string_equal(s.save.output_dir, "runs/original");
    assert_true(noticed(&s, "no code from a model repository ever runs"));
    assert_true(noticed(&s, "the original counted micro-batches, so 2"));
    assert_int_equal(s.n_notices, 2);
    mt_settings_deinit(&s);
}

static void new_keys_are_read_in_every_kind(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_settings s = open_settings(NULL);
    assert_ok(mt_settings_read(&s, MT_FIXTURE("settings/everything.yaml"), &err));
    assert_ok(mt_settings_check(&s, MT_NEED_MODEL | MT_NEED_DATA, &err));
    assert_int_equal(s.model.device.index, 2);
    assert_string_equal(s.model.revision, "4f1c2a9");
    assert_int_equal(s.dataset.name.n, 2);
    assert_string_equal(s.dataset.name.items[1], "metamath");
    assert_string_equal(s.dataset.template, "chatml");
    assert_false(mt_value_get(&s.dataset.template_kwargs, "enable_thinking")->b);
    assert_int_equal(mt_value_get(&s.dataset.template_kwargs, "levels")->list.n, 3);
    assert_true(mt_value_is(mt_value_get(mt_value_get(&s.dataset.template_kwargs, "nested"), "<<"), "kept"));
    assert_int_equal(s.dataset.packing, MT_TRI_TRUE);
    assert_int_equal(s.dataset.overlong, MT_OVERLONG_SPLIT);
    assert_int_equal(s.dataset.mix_strategy, MT_MIX_UNDER);
    assert_true(s.dataset.interleave_probs.n == 2 && s.dataset.interleave_probs.items[1] == 0.75);
    assert_int_equal(s.dataset.max_samples, 1000);
    assert_string_equal(s.dataset.default_system, "You are kind.\n\"Quotes\" and \\ stay.\n");
    assert_int_equal(s.training.batch_size, 0);
    assert_true(s.training.epochs == 2.5);
    assert_int_equal(s.training.num_steps, 0);
    assert_true(s.training.learning_rate == 1e-5);
    assert_int_equal(s.training.num_decay_steps, 1000);
    assert_string_equal(mt_settings_choice(&s, "training.lr_scheduler"), "warmup_stable_decay");
    assert_string_equal(mt_settings_choice(&s, "save.dtype"), "float32");
    assert_null(mt_settings_choice(&s, "training.seed"));
    assert_true(s.training.timescale < 0 && s.training.min_lr < 0);
    assert_int_equal(s.training.num_stable_steps, -1);
    assert_true(isinf(s.training.max_grad_norm));
    assert_int_equal(s.training.grad_dtype, MT_DTYPE_F32);
    assert_int_equal(s.training.freeze.n, 2);
    assert_false(s.training.deterministic);
    assert_int_equal(s.memory.device_memory, 64000000);
    assert_true(s.memory.host_memory == UINT64_C(80) << 30);
    assert_int_equal(s.memory.adam_state, MT_MOMENTS_8BIT);
    assert_true(s.eval.val_size == 0.05);
    assert_string_equal(s.save.output_dir, "runs/it's here");
    assert_int_equal(s.save.save_steps, 500);
    assert_int_equal(s.save.keep_last, 0);
    assert_int_equal(s.save.dtype, MT_DTYPE_F32);
    assert_int_equal(s.logging.dashboard, 8080);
    assert_string_equal(s.logging.sample_prompts.items[0], "Hello, you");
    assert_int_equal(s.n_notices, 0);
    mt_settings_deinit(&s);
}

static void anchors_and_merges_fill_sections(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_settings s = open_settings(NULL);
    assert_ok(mt_settings_read(&s, MT_FIXTURE("settings/anchors.yaml"), &err));
    assert_true(s.training.learning_rate == 1e-6 && s.training.weight_decay == 0.2);
    assert_int_equal(s.training.seed, 4);
    assert_int_equal(s.training.batch_size, 512);
    mt_settings_deinit(&s);
}

/* args("--a 1 ...") as a command line, cut at spaces. */
static mt_rc args(mt_settings *s, const char *line, char *rest, mt_err *err)
{
    char copy[1024], *argv[64] = { "megatrain" };
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *p = strtok(copy, " "); p; p = strtok(NULL, " ")) argv[argc++] = p;
    mt_rc rc = mt_settings_args(s, &argc, argv, err);
    rest[0] = '\0';
    for (int i = 1; !rc && i < argc; i++) strcat(strcat(rest, i > 1 ? " " : ""), argv[i]);
    return rc;
}

/* MegaTrain's files for several GPUs list them beside what its other files have. */
static void several_devices_are_read(void **state)
{
    (void)state;
    static const char *const files[] = {
        "model: {name: Qwen/Qwen2.5-7B-Instruct, dtype: bfloat16, devices: [0, 1, 2, 3], attn_implementation: flash_attention_2, "
        "trust_remote_code: true}\n"
        "dataset: {path: dataset/Math/train, max_seq_len: 1024, num_workers: 4, query_field: query, response_field: response}\n"
        "training: {batch_size: 592, gradient_accumulation_steps: 1, num_steps: 1000, learning_rate: 2.0e-5, seed: 42}\n"
        "optimizer: {type: deepspeed_adam, beta1: 0.9, beta2: 0.999, eps: 1.0e-8}\n"
        "memory: {checkpoint_interval: 4, num_grad_slabs: 12}\n",
        "model: {name: Qwen/Qwen3.5-27B, dtype: bfloat16, devices: [0, 1, 2, 3], attn_implementation: flash_attention_2}\n"
        "dataset: {name: alpaca_en_demo, max_seq_len: 1024}\n"
        "training: {batch_size: 128, num_steps: 500, learning_rate: 1.0e-5}\n"
        "memory: {checkpoint_interval: 2, num_grad_slabs: 8}\n",
    };
    for (size_t i = 0; i < MT_COUNT(files); i++) {
        mt_err err = { 0 };
        mt_settings s = open_settings(NULL);
        assert_ok(mt_settings_parse(&s, files[i], strlen(files[i]), "c.yaml", &err));
        assert_ok(mt_settings_check(&s, MT_NEED_MODEL | MT_NEED_DATA, &err));
        assert_int_equal(s.model.devices.n, 4);
        assert_int_equal(s.model.device.kind, MT_SET_DEVICE_CUDA);
        assert_int_equal(s.training.batch_size, i ? 128 : 592); /* the whole step's */
        assert_false(s.batch_per_device);
        assert_int_equal(s.training.shares, 0);
        mt_settings_deinit(&s);
    }
}

/* By flags: a list, all of them, lanes on the CPU; and what a file says is written again as it was. */
static void devices_are_a_list_or_all(void **state)
{
    (void)state;
    mt_err err = { 0 };
    char rest[512];
    mt_str yaml = { 0 };
    mt_settings s = open_settings(NULL);
    assert_ok(args(&s, "train --devices all", rest, &err));
    assert_ok(mt_settings_check(&s, 0, &err));
    assert_int_equal(s.model.devices.n, 1);
    assert_int_equal(s.model.devices.items[0], -1);
    mt_settings_write_yaml(&s, &yaml);
    assert_non_null(strstr(yaml.s, "devices: [all]"));
    mt_settings again = open_settings(NULL);
    assert_ok(mt_settings_parse(&again, yaml.s, yaml.n, "again.yaml", &err));
    assert_int_equal(again.model.devices.items[0], -1);
    mt_settings_deinit(&again);
    mt_str_free(&yaml);
    mt_settings_deinit(&s);

    static const char *const lanes[] = { "train --device cpu --devices 0", "train --device cpu --devices 0,0" };
    for (size_t n = 1; n <= MT_COUNT(lanes); n++) {
        s = open_settings(NULL);
        assert_ok(args(&s, lanes[n - 1], rest, &err));
        assert_ok(mt_settings_check(&s, 0, &err));
        assert_int_equal(s.model.device.kind, MT_SET_DEVICE_CPU);
        assert_int_equal(s.model.devices.n, n);
        mt_settings_deinit(&s);
    }
}

/* LLaMA-Factory's batch is of each device; one that a flag gives is not. */
static void a_batch_per_device_is_known_as_such(void **state)
{
    (void)state;
    static const char file[] = "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: d\n"
                               "per_device_train_batch_size: 3\n";
    for (int flag = 0; flag < 2; flag++) {
        mt_err err = { 0 };
        char rest[512];
        mt_settings s = open_settings(NULL);
        assert_ok(mt_settings_parse(&s, file, strlen(file), "lf.yaml", &err));
        if (flag) assert_ok(args(&s, "train --batch-size 3", rest, &err));
        assert_ok(mt_settings_check(&s, 0, &err));
        assert_int_equal(s.training.batch_size, 3);
        assert_int_equal(s.batch_per_device, !flag);
        mt_settings_deinit(&s);
    }
}

static void flags_win_over_the_file(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_settings s = open_settings(NULL);
    mt_str from = { 0 };
    char rest[512];
    assert_ok(args(&s,
                   "train --batch-size 64 --config " ORIGINAL " --num-steps=500 --max-seq-len 128 "
                   "--model-name my/model --dataset-name a,b --devices 3 --set training.learning_rate=3e-4 "
                   "--device-memory 64M --no-deterministic --save_dtype bf16 --dry-run --freeze a.*,b MODEL -- --batch-size 1",
                   rest, &err));
    assert_string_equal(rest, "train --dry-run MODEL -- --batch-size 1");
    assert_ok(mt_settings_check(&s, MT_NEED_MODEL | MT_NEED_DATA, &err));
    assert_int_equal(s.training.batch_size, 64);
    assert_int_equal(s.training.num_steps, 500);
    assert_int_equal(s.dataset.max_seq_len, 128);
    assert_string_equal(s.model.name, "my/model");
    assert_int_equal(s.dataset.name.n, 2);
    assert_int_equal(s.model.device.index, 3);
    assert_true(s.training.learning_rate == 3e-4);
    assert_int_equal(s.memory.device_memory, 64000000);
    assert_false(s.training.deterministic);
    assert_int_equal(s.save.dtype, MT_DTYPE_BF16);
    assert_int_equal(s.training.freeze.n, 2);
    assert_int_equal(s.dataset.num_workers, 4);
    assert_true(noticed(&s, "model.devices names GPU 3; model.device is ignored"));

    mt_settings_where(&s, "training.batch_size", &from);
    mt_str_putc(&from, ' ');
    mt_settings_where(&s, "training.learning_rate", &from);
    mt_str_putc(&from, ' ');
    mt_settings_where(&s, "training.epochs", &from);
    mt_str_putc(&from, ' ');
    mt_settings_where(&s, "dataset.num_workers", &from);
    assert_string_equal(from.s, "--batch-size --set default " ORIGINAL ":16");
    mt_str_free(&from);
    mt_settings_deinit(&s);
}

/* A list grows; of two other values none is dropped without a word. */
static void a_flag_given_twice_is_a_list_or_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *args, *says;
    } cases[] = {
        { "--batch-size 4 --batch-size 8", "training.batch_size is given twice, as 4 (--batch-size) and as 8 (--batch-size)" },
        { "--batch-size 4 --set training.batch_size=8", "as 4 (--batch-size) and as 8 (--set); give it once" },
        { "--set training.batch_size=8 --batch-size=4", "as 8 (--set) and as 4 (--batch-size)" },
        { "--shuffle --no-shuffle", "dataset.shuffle is given twice, as true (--shuffle) and as false (--no-shuffle)" },
        { "--model-name a --model-name b", "model.name is given twice" },
        { "--packing --packing false", "dataset.packing is given twice" },
        { "--template-kwargs {a:1} --template-kwargs {b:1}", "dataset.template_kwargs is given twice" },
        { "--dashboard 9000 --dashboard off", "logging.dashboard is given twice" },
        { "--batch-size 4 --batch-size 4 --shuffle --shuffle", NULL },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        char rest[512];
        mt_settings s = open_settings(NULL);
        assert_int_equal(args(&s, cases[i].args, rest, &err), cases[i].says ? MT_EINVAL : MT_OK);
        if (cases[i].says) assert_says(cases[i].says);
        mt_settings_deinit(&s);
    }
    mt_err err = { 0 };
    char rest[512];
    mt_settings s = open_settings("dataset: {path: [x.jsonl]}\ntraining: {batch_size: 2}");
    assert_ok(
        args(&s,
             "--dataset-path a.jsonl --batch-size 3 --dataset-path=b.jsonl,c.jsonl --set dataset.path=[d.jsonl] "
             "--eval-dataset e --eval-dataset f --interleave-probs 0.5 --interleave-probs 0.25,0.25 --devices 0 --devices 1",
             rest, &err));
    static const char *const paths[] = { "a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl" };
    assert_int_equal(s.dataset.path.n, MT_COUNT(paths)); /* the file's is replaced, as any value of it */
    for (size_t i = 0; i < MT_COUNT(paths); i++) assert_string_equal(s.dataset.path.items[i], paths[i]);
    assert_int_equal(s.eval.dataset.n, 2);
    assert_int_equal(s.dataset.interleave_probs.n, 3);
    assert_true(s.dataset.interleave_probs.items[2] == 0.25);
    assert_int_equal(s.model.devices.n, 2);
    assert_int_equal(s.model.devices.items[1], 1);
    assert_int_equal(s.training.batch_size, 3);
    mt_settings_deinit(&s);
}

static void switches_take_a_value_only_when_it_is_one(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_settings s = open_settings(NULL);
    char rest[512];
    assert_ok(args(&s,
                   "--packing MODEL --shuffle false --from-scratch --dashboard MODEL2 --resume --color=false --tensorboard=yes",
                   rest, &err));
    assert_string_equal(rest, "MODEL MODEL2");
    assert_int_equal(s.dataset.packing, MT_TRI_TRUE);
    assert_false(s.dataset.shuffle);
    assert_true(s.training.from_scratch);
    assert_int_equal(s.logging.dashboard, 8088);
    assert_string_equal(s.save.resume, "latest");
    assert_int_equal(s.logging.color, MT_TRI_FALSE);
    assert_true(s.logging.tensorboard);
    assert_ok(args(&s,
                   "--dashboard 9000 --no-packing --resume runs/a/checkpoint-5 --template-kwargs {\"a\":\"x\",\"b\":[1]} --set "
                   "dataset.name=[p,q] --set training.seed=null",
                   rest, &err));
    assert_int_equal(s.logging.dashboard, 9000);
    assert_ok(args(&s, "--dashboard off", rest, &err));
    assert_int_equal(s.logging.dashboard, 0);
    assert_ok(mt_settings_set(&s, "logging.dashboard", "yes", "--set", &err));
    assert_int_equal(s.logging.dashboard, 8088);
    assert_int_equal(s.dataset.packing, MT_TRI_FALSE);
    assert_string_equal(s.save.resume, "runs/a/checkpoint-5");
    assert_true(mt_value_is(mt_value_get(&s.dataset.template_kwargs, "a"), "x"));
    assert_int_equal(s.dataset.name.n, 2);
    assert_int_equal(s.training.seed, 42);
    assert_ok(args(&s, "--resume " ORIGINAL, rest, &err)); /* the file of the run, not a checkpoint */
    assert_string_equal(s.save.resume, "latest");
    assert_string_equal(s.model.name, "Qwen/Qwen2.5-7B-Instruct");
    mt_settings_deinit(&s);
}

static void paths_may_begin_in_the_home_directory(void **state)
{
    (void)state;
    mt_err err = { 0 };
    char rest[512];
    assert_int_equal(setenv("HOME", "/home/ada", 1), 0);
    mt_settings s = open_settings("model: {name: ~/models/a}\nsave: {output_dir: ~/runs/a}\ndataset: {system_prompt: ~/x}");
    assert_string_equal(s.model.name, "/home/ada/models/a");
    assert_string_equal(s.save.output_dir, "/home/ada/runs/a");
    assert_string_equal(s.dataset.system_prompt, "~/x"); /* a text */
    assert_ok(args(&s, "--output-dir=~/b --dataset-path=~/c.jsonl --cache-dir ~c --metrics-file a/~/d", rest, &err));
    assert_string_equal(s.save.output_dir, "/home/ada/b");
    assert_string_equal(s.dataset.path.items[0], "/home/ada/c.jsonl");
    assert_string_equal(s.dataset.cache_dir, "~c");
    assert_string_equal(s.logging.metrics_file, "a/~/d");
    mt_settings_deinit(&s);
    assert_int_equal(unsetenv("HOME"), 0);
    assert_ok(mt_settings_init(&s, &err));
    assert_ok(args(&s, "--output-dir=~/b", rest, &err));
    assert_int_equal(mt_settings_check(&s, 0, &err), MT_EINVAL);
    assert_says("save.output_dir: it begins with ~/ and HOME is not set");
    mt_settings_deinit(&s);
}

static void unknown_flags_stay_and_the_nearest_is_known(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_settings s = open_settings(NULL);
    char rest[512], near[48];
    assert_ok(args(&s, "--batchsize 3", rest, &err));
    assert_string_equal(rest, "--batchsize 3");
    mt_settings_nearest_flag("--batchsize", near);
    assert_string_equal(near, "--batch-size");
    mt_settings_nearest_flag("--qqqqqqqqqqqq", near);
    assert_string_equal(near, "");
    mt_settings_deinit(&s);
}

static void notices_tell_what_is_different(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *says;
    } cases[] = {
        { "model: {dtype: float16}", "dtype float16 is computed as bfloat16" },
        { "training: {num_steps: 5, epochs: 2}", "num_steps 5 decides the length of the run; epochs is ignored" },
        { "training: {gradient_accumulation_steps: 4}", "so 4 of its steps are one of these" },
        { "training: {warmup_steps: 5}", "write constant_with_warmup" },
        { "training: {warmup_steps: 5, warmup_ratio: 0.1, lr_scheduler: linear}", "warmup_ratio is ignored" },
        { "training: {num_decay_steps: 5}", "matter to lr_scheduler warmup_stable_decay only" },
        { "eval: {eval_steps: 5}", "eval_steps has no effect" },
        { "dataset: {name: a, path: b}", "dataset.path is ignored: dataset.name is set" },
        { "dataset: {system_prompt: a, default_system: b}", "default_system has no effect" },
        { "dataset: {name: [a, b], interleave_probs: [0.5, 0.5]}", "has no effect with mix_strategy concat" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_settings s = open_settings(cases[i].yaml);
        assert_ok(mt_settings_check(&s, 0, &err));
        if (!noticed(&s, cases[i].says)) fail_msg("no notice says: %s", cases[i].says);
        assert_int_equal(s.n_notices, 1);
        mt_settings_deinit(&s);
    }
}

static void flags_that_contradict_each_other_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *flags, *says;
    } cases[] = {
        { "--num-steps 5 --epochs 2", "--num-steps and --epochs both decide the length of the run; give only one of them" },
        { "--num_steps=5 --set training.epochs=2", "--num_steps and --set training.epochs both decide" },
        { "--warmup-steps 5 --warmup-ratio 0.1 --lr-scheduler linear", "--warmup-steps and --warmup-ratio both decide" },
        { "--dataset-name a --dataset-path b", "--dataset-name and --dataset-path both name the data" },
        { "--device cuda:1 --devices 0,2", "model.device (--device) and model.devices (--devices) name different GPUs" },
        { "--device cpu --devices all", "all means every GPU, and model.device is cpu" },
        { "--resume --overwrite", "give only one of them" },
        { "--min-lr 1e-6 --min-lr-ratio 0.1", "give one of the two" },
        { "--val-size 0.1 --eval-dataset a", "give one of the two" },
        { "--train-on-prompt --mask-history", "choose one" },
    };
    char rest[512];
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_settings s = open_settings(NULL);
        assert_ok(args(&s, cases[i].flags, rest, &err));
        assert_int_equal(mt_settings_check(&s, 0, &err), MT_EINVAL);
        assert_says(cases[i].says);
        mt_settings_deinit(&s);
    }
    mt_err err = { 0 };
    mt_settings s = open_settings("model: {devices: [0, 1]}");
    assert_ok(args(&s, "--device cuda:1", rest, &err));
    assert_int_equal(mt_settings_check(&s, 0, &err), MT_EINVAL);
    assert_says("model.device (--device) and model.devices (c.yaml:1) name different GPUs");
    mt_settings_deinit(&s);
}

static void a_flag_counts_over_the_file(void **state)
{
    (void)state;
    char rest[512];
    mt_err err = { 0 };
    mt_settings s = open_settings("training: {num_steps: 7, warmup_steps: 5, lr_scheduler: linear}\n"
                                  "dataset: {name: a}\nmodel: {device: cpu}");
    assert_ok(args(&s, "--epochs 2 --warmup-ratio 0.1 --dataset-path b.jsonl --devices 0,0", rest, &err));
    assert_ok(mt_settings_check(&s, 0, &err));
    assert_int_equal(s.training.num_steps, 0);
    assert_true(s.training.epochs == 2);
    assert_int_equal(s.training.warmup_steps, 0);
    assert_int_equal(s.dataset.name.n, 0);
    assert_string_equal(s.dataset.path.items[0], "b.jsonl");
    assert_int_equal(s.model.device.kind, MT_SET_DEVICE_CPU);
    assert_true(noticed(&s, "--epochs counts: training.num_steps (c.yaml:1) is ignored"));
    assert_true(noticed(&s, "--warmup-ratio counts: training.warmup_steps (c.yaml:1) is ignored"));
    assert_true(noticed(&s, "--dataset-path counts: dataset.name (c.yaml:2) is ignored"));
    assert_true(noticed(&s, "model.device (c.yaml:3) is cpu: --devices lists lanes on the CPU"));
    assert_int_equal(s.n_notices, 4);
    mt_settings_deinit(&s);
}

static void the_output_directory_is_named_for_the_run(void **state)
{
    (void)state;
    static const struct {
        const char *config, *model, *dir;
    } cases[] = {
        { "configs/qwen_7b.yaml", "m", "runs/qwen_7b" }, { "a.b.yml", "m", "runs/a.b" }, { ".hidden", "m", "runs/.hidden" },
        { NULL, "Qwen/Qwen2.5-7B", "runs/Qwen2.5-7B" },  { NULL, "..", "runs/run" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_settings s = open_settings(NULL);
        if (cases[i].config) assert_ok(mt_settings_parse(&s, "", 0, cases[i].config, &err));
        assert_ok(mt_settings_set(&s, "model.name", cases[i].model, "--model-name", &err));
        assert_ok(mt_settings_check(&s, 0, &err));
        assert_string_equal(s.save.output_dir, cases[i].dir);
        mt_settings_deinit(&s);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int n = 0;; n++) {
        mt_settings s = { 0 };
        mt_err err = { 0 };
        mt_fault_arm(MT_FAULT_ALLOC, n);
        mt_rc rc = mt_settings_init(&s, &err);
        if (!rc) rc = mt_settings_read(&s, MT_FIXTURE("settings/everything.yaml"), &err);
        if (!rc) rc = mt_settings_set(&s, "dataset.name", "[a, b]", "--set", &err);
        if (!rc) rc = mt_settings_check(&s, MT_NEED_MODEL | MT_NEED_DATA, &err);
        bool hit = mt_fault_disarm();
        mt_settings_deinit(&s);
        if (!hit) {
            assert_int_equal(rc, MT_OK);
            break;
        }
        assert_int_equal(rc, MT_ENOMEM);
    }
}

/* Each optimizer has its own defaults; transformers gives Adam's to all. */
static void an_optimizer_is_a_choice(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mt_optimizer_kind kind;
        double beta2;
        const char *notice;
    } files[] = {
        { "model: {name: m}", MT_OPTIMIZER_ADAMW, 0.999, NULL },
        { "model: {name: m}\noptimizer: {type: deepspeed_adam}", MT_OPTIMIZER_ADAMW, 0.999, NULL },
        { "model: {name: m}\noptimizer: {type: lion}", MT_OPTIMIZER_LION, 0.99, NULL },
        { "model: {name: m}\noptimizer: {type: lion, beta2: 0.98}", MT_OPTIMIZER_LION, 0.98, NULL },
        { "model: {name: m}\noptimizer: {type: lion, eps: 1e-6}", MT_OPTIMIZER_LION, 0.99, "optimizer.eps has no effect" },
        { "model_name_or_path: m\nstage: sft\nfinetuning_type: full\noptim: lion_32bit", MT_OPTIMIZER_LION, 0.999, NULL },
        { "model_name_or_path: m\nstage: sft\nfinetuning_type: full\noptim: paged_lion_8bit\nadam_beta2: 0.95", MT_OPTIMIZER_LION,
          0.95, "Lion with fp32 state" },
        { "model_name_or_path: m\nstage: sft\nfinetuning_type: full\noptim: adamw_8bit", MT_OPTIMIZER_ADAMW, 0.999,
          "AdamW with fp32 state" },
    };
    for (size_t i = 0; i < MT_COUNT(files); i++) {
        mt_err err = { 0 };
        mt_settings s = open_settings(NULL);
        assert_ok(mt_settings_parse(&s, files[i].text, strlen(files[i].text), "c.yaml", &err));
        assert_ok(mt_settings_check(&s, MT_NEED_MODEL, &err));
        assert_int_equal(mt_settings_optimizer(&s), files[i].kind);
        assert_true(s.optimizer.beta2 == files[i].beta2);
        assert_true(files[i].notice ? noticed(&s, files[i].notice) : !noticed(&s, "optim"));
        mt_settings_deinit(&s);
    }
}

static void the_routers_loss_is_a_number_or_the_models(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        double value;
    } cases[] = {
        { "training: {seed: 1}", 0 },
        { "training: {router_aux_loss: 0.02}", 0.02 },
        { "training: {router_aux_loss: model}", -1 },
        { "model_name_or_path: m\nfinetuning_type: full\nmoe_aux_loss_coef: 0.001", 0.001 }, /* LLaMA-Factory's */
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_settings s;
        assert_ok(mt_settings_init(&s, &err));
        assert_ok(mt_settings_parse(&s, cases[i].yaml, strlen(cases[i].yaml), "c.yaml", &err));
        assert_true(s.training.router_aux_loss == cases[i].value);
        mt_settings_deinit(&s);
    }
}

static void objectives_are_read_from_both_kinds_of_file(void **state)
{
    (void)state;
#define FLAT "model_name_or_path: m\nfinetuning_type: full\n"
    static const struct {
        const char *yaml;
        mt_set_objective objective;
        double smoothing, z_loss, alpha;
    } cases[] = {
        { "training: {seed: 1}", MT_SET_OBJECTIVE_CROSS_ENTROPY, 0, 0, 1 },
        { "training: {label_smoothing_factor: 0.1, z_loss: 1e-4}", MT_SET_OBJECTIVE_CROSS_ENTROPY, 0.1, 1e-4, 1 },
        { "training: {objective: dft}", MT_SET_OBJECTIVE_DFT, 0, 0, 1 },
        { "training: {objective: eaft, eaft_alpha: 0.5}", MT_SET_OBJECTIVE_EAFT, 0, 0, 0.5 },
        { FLAT "label_smoothing_factor: 0.2", MT_SET_OBJECTIVE_CROSS_ENTROPY, 0.2, 0, 1 },
        { FLAT "use_dft_loss: true", MT_SET_OBJECTIVE_DFT, 0, 0, 1 },
        { FLAT "use_dft_loss: false\nuse_eaft_loss: true\neaft_alpha: 2", MT_SET_OBJECTIVE_EAFT, 0, 0, 2 },
        { FLAT "use_dft_loss: true\nuse_eaft_loss: true", MT_SET_OBJECTIVE_DFT, 0, 0, 1 },
        { FLAT "use_eaft_loss: true\nuse_dft_loss: true", MT_SET_OBJECTIVE_DFT, 0, 0, 1 },
        { FLAT "use_eaft_loss: false\nuse_dft_loss: false", MT_SET_OBJECTIVE_CROSS_ENTROPY, 0, 0, 1 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_settings s;
        assert_ok(mt_settings_init(&s, &err));
        assert_ok(mt_settings_parse(&s, cases[i].yaml, strlen(cases[i].yaml), "c.yaml", &err));
        assert_int_equal(s.training.objective, cases[i].objective);
        assert_true(s.training.label_smoothing_factor == cases[i].smoothing && s.training.z_loss == cases[i].z_loss);
        assert_true(s.training.eaft_alpha == cases[i].alpha);
        mt_settings_deinit(&s);
    }
}

MT_TEST_MAIN(cmocka_unit_test(objectives_are_read_from_both_kinds_of_file), cmocka_unit_test(defaults_are_the_originals),
             cmocka_unit_test(the_originals_files_are_read_whole), cmocka_unit_test(new_keys_are_read_in_every_kind),
             cmocka_unit_test(anchors_and_merges_fill_sections), cmocka_unit_test(several_devices_are_read),
             cmocka_unit_test(devices_are_a_list_or_all), cmocka_unit_test(a_batch_per_device_is_known_as_such),
             cmocka_unit_test(flags_win_over_the_file), cmocka_unit_test(a_flag_given_twice_is_a_list_or_an_error),
             cmocka_unit_test(switches_take_a_value_only_when_it_is_one), cmocka_unit_test(paths_may_begin_in_the_home_directory),
             cmocka_unit_test(unknown_flags_stay_and_the_nearest_is_known), cmocka_unit_test(notices_tell_what_is_different),
             cmocka_unit_test(flags_that_contradict_each_other_are_refused), cmocka_unit_test(a_flag_counts_over_the_file),
             cmocka_unit_test(the_output_directory_is_named_for_the_run), cmocka_unit_test(an_optimizer_is_a_choice),
             cmocka_unit_test(the_routers_loss_is_a_number_or_the_models), cmocka_unit_test(every_allocation_may_fail))
