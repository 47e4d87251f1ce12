/* Every way a configuration can be wrong, and the message each gives: place, what was expected, what was found. */
#include "settings_text.h"

#include "base/nearest.h"
#include "settings/settings.h"

static void files_are_refused_with_place_and_reason(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        mt_rc rc;
        const char *says;
    } cases[] = {
        /* keys and sections */
        { "training:\n  batchsize: 4", MT_EINVAL, "c.yaml:2: training has no key \"batchsize\"; did you mean batch_size?" },
        { "training:\n  learning_rat: 1", MT_EINVAL, "did you mean learning_rate?" },
        { "training:\n  max_seq_len: 4", MT_EINVAL, "c.yaml:2: training has no key \"max_seq_len\"; it belongs under dataset:" },
        { "training:\n  quux: 4", MT_EINVAL, "c.yaml:2: training has no key \"quux\"; docs/configuration.md lists them all" },
        { "trainig:\n  seed: 4", MT_EINVAL, "c.yaml:1: no section \"trainig\"; did you mean training?" },
        { "batch_size: 4", MT_EINVAL, "c.yaml:1: \"batch_size\" belongs under a section: training:" },
        { "\nfoo: {}", MT_EINVAL,
          "c.yaml:2: no section \"foo\"; sections are model, dataset, training, optimizer, memory, eval, "
          "save, run, logging" },
        { "training: 5", MT_EINVAL,
          "c.yaml:1: training: expected keys and values, such as training: {batch_size: ...}, found \"5\"" },
        { "model: a/b", MT_EINVAL, "c.yaml:1: model: expected keys and values, such as model: {name: ...}, found \"a/b\"" },
        { "[1]", MT_EFORMAT, "expected sections (model:, dataset:, training:, ...), found a list" },
        { "save:\n  resume: true", MT_EINVAL, "c.yaml:2: resume is not for files; give --resume on the command line" },
        { "training: {seed: 1,\n seed: 2}", MT_EFORMAT, "c.yaml:2: \"seed\" is given twice; the first is in line 1" },
        /* types */
        { "training:\n  batch_size: many", MT_EINVAL,
          "c.yaml:2: training.batch_size: expected an integer of at least 1, or auto, found \"many\"" },
        { "training: {batch_size: 1.5}", MT_EINVAL, "expected an integer of at least 1, or auto, found \"1.5\"" },
        { "training: {batch_size: [1]}", MT_EINVAL, "found a list" },
        { "training: {seed: {a: 1}}", MT_EINVAL, "expected an integer of at least 0, found a section" },
        { "training: {learning_rate: fast}", MT_EINVAL, "expected a number from 0 to 1000, found \"fast\"" },
        { "training: {deterministic: maybe}", MT_EINVAL, "expected true or false, found \"maybe\"" },
        { "training: {lr_scheduler: cosin}", MT_EINVAL,
          "expected constant, constant_with_warmup, linear, cosine, cosine_with_restarts, "
          "cosine_with_min_lr, cosine_warmup_with_min_lr, polynomial, inverse_sqrt or warmup_stable_decay" },
        { "dataset: {packing: 3}", MT_EINVAL, "expected auto, false or true, found \"3\"" },
        { "model: {dtype: int8}", MT_EINVAL, "expected float32, bfloat16 or float16, found \"int8\"" },
        { "save: {dtype: half precision}", MT_EINVAL, "expected auto, float32, bfloat16 or float16" },
        { "model: {device: gpu}", MT_EINVAL, "expected auto, cpu, cuda, cuda:N or the number of a GPU, found \"gpu\"" },
        { "model: {device: cuda:x}", MT_EINVAL, "found \"cuda:x\"" },
        { "model: {devices: [a]}", MT_EINVAL, "expected a list of integers, each from 0 to 1023, or all, found a list" },
        { "memory: {device_memory: lots}", MT_EINVAL, "expected a size such as 64M, 1.5G or 80Gi, or auto, found \"lots\"" },
        { "dataset: {template_kwargs: yes}", MT_EINVAL,
          "expected up to 1000 values under keys of up to 100 bytes, found \"yes\"" },
        { "dataset: {name: {a: b}}", MT_EINVAL, "expected text or a list of texts, found a section" },
        { "dataset: {name: [[a]]}", MT_EINVAL, "expected text or a list of texts" },
        { "model: {name: [a]}", MT_EINVAL, "expected text, found a list" },
        { "optimizer: {type: sgd}", MT_EINVAL, "expected adamw, deepspeed_adam or lion, found \"sgd\"" },
        /* ranges */
        { "training: {batch_size: 0}", MT_ERANGE, "expected an integer of at least 1, or auto, found \"0\"" },
        { "training: {batch_size: 2e12}", MT_ERANGE, "of at least 1, or auto, and at most 1000000000000, found \"2e12\"" },
        { "training: {seed: 18446744073709551615}", MT_ERANGE, "of at least 0, and at most 9007199254740991, found" },
        { "dataset: {max_seq_len: 1}", MT_ERANGE, "expected an integer from 2 to 16777216, found \"1\"" },
        { "training: {learning_rate: -1e-5}", MT_ERANGE, "found \"-1e-5\"" },
        { "training: {router_aux_loss: -1}", MT_ERANGE, "expected a number from 0 to 1000, or model" },
        { "training: {max_grad_norm: -.inf}", MT_ERANGE, "expected a number of at least 0" },
        { "training: {learning_rate: .nan}", MT_EINVAL, "found \".nan\"" },
        { "optimizer: {beta1: 1}", MT_ERANGE, "expected a number from 0 to below 1, found \"1\"" },
        { "optimizer: {eps: 0}", MT_ERANGE, "expected a number above 0 and at most 1, found \"0\"" },
        { "eval: {val_size: 1.5}", MT_ERANGE,
          "expected a share below 1 or a whole number of samples (1 is one sample), found \"1.5\"" },
        { "memory: {device_memory: 0}", MT_ERANGE, "expected a size" },
        { "memory: {host_memory: 64}", MT_ERANGE, "expected a size such as 64M, 1.5G or 80Gi, or auto, found \"64\"" },
        { "logging: {dashboard: 70000}", MT_ERANGE, "expected an integer from 1 to 65535, or off, found \"70000\"" },
        { "dataset: {interleave_probs: [0, 1]}", MT_ERANGE, "each above 0 and at most 1" },
        /* settings against each other */
        { "model:\n  devices: [0, all]", MT_EINVAL, "c.yaml:2: model.devices: all stands alone" },
        { "model:\n  device: cpu\n  devices: all", MT_EINVAL,
          "c.yaml:3: model.devices: all means every GPU, and model.device is cpu." },
        { "model: {devices: [0, 1]}\ntraining: {tune_products: true}", MT_EINVAL,
          "training.tune_products: kernels chosen by timing" },
        { "model: {devices: all}\ntraining: {tune_products: true}", MT_EINVAL,
          "training.tune_products: kernels chosen by timing" },
        { "training: {min_lr: 1e-6, min_lr_ratio: 0.1}", MT_EINVAL, "give one of the two" },
        { "training: {min_lr: 1}", MT_EINVAL, "training.min_lr: it is above learning_rate" },
        { "training: {lr_scheduler: cosine_with_min_lr}", MT_EINVAL,
          "training.lr_scheduler: this one needs min_lr or min_lr_ratio" },
        { "eval: {val_size: 10, dataset: x}", MT_EINVAL, "eval.dataset: val_size already holds out" },
        { "dataset: {train_on_prompt: true, mask_history: true}", MT_EINVAL, "choose one" },
        { "dataset: {name: a, interleave_probs: [0.5, 0.5]}", MT_EINVAL, "one probability for each entry" },
        { "dataset: {name: [a, b], interleave_probs: [0.5, 0.1]}", MT_EINVAL, "must add up to 1" },
        { "dataset: {delimiter: \";;\"}", MT_EINVAL, "expected one ASCII character" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_rc rc = settings_try(cases[i].yaml, &err);
        if (rc != cases[i].rc) fail_msg("%s: %s: %s", cases[i].yaml, mt_rc_name(rc), err.msg);
        assert_says(cases[i].says);
        if (rc != MT_OK) assert_says("c.yaml:");
    }
}

static void missing_and_foreign_files_are_named(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_settings s;
    assert_ok(mt_settings_init(&s, &err));
    assert_int_equal(mt_settings_read(&s, "no/such.yaml", &err), MT_ENOENT);
    assert_says("no/such.yaml");
    /* LLaMA-Factory's form: cli.resolved has more of it. */
    assert_int_equal(mt_settings_read(&s, MT_FIXTURE("settings/flat.yml"), &err), MT_ENOENT);
    assert_says("/settings/flat.yaml?");
    assert_ok(mt_settings_read(&s, MT_FIXTURE("settings/flat.yaml"), &err));
    assert_true(s.flat);
    assert_string_equal(s.model.name, "Qwen/Qwen2.5-7B-Instruct");
    mt_settings_deinit(&s);
}

static void what_a_command_needs_is_asked_for(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_settings s;
    assert_ok(mt_settings_init(&s, &err));
    assert_int_equal(mt_settings_check(&s, MT_NEED_MODEL, &err), MT_EINVAL);
    assert_says("no model: set model.name");
    assert_says("--model-name NAME");
    assert_int_equal(mt_settings_check(&s, MT_NEED_DATA, &err), MT_EINVAL);
    assert_says("no data: set dataset.name");
    assert_ok(mt_settings_set(&s, "save.resume", "latest", "--resume", &err));
    assert_ok(mt_settings_set(&s, "save.overwrite", "true", "--overwrite", &err));
    assert_int_equal(mt_settings_check(&s, 0, &err), MT_EINVAL);
    assert_says("give only one of them");
    mt_settings_deinit(&s);
}

static void flags_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *argv[5];
        const char *says;
    } cases[] = {
        { { "train", "--batch-size", "x" }, "--batch-size: expected an integer of at least 1, or auto, found \"x\"" },
        { { "train", "--batch-size" }, "--batch-size needs a value" },
        { { "train", "--model-name", "--batch-size", "4" }, "--model-name needs a value, found --batch-size" },
        { { "train", "--batch_size=0" }, "--batch_size: expected" },
        { { "train", "--set", "training.bach_size=4" },
          "--set: no setting \"training.bach_size\"; did you mean training.batch_size?" },
        { { "train", "--set", "zzz=4" }, "write section.key, such as training.batch_size" },
        { { "train", "--set", "training.seed" }, "--set training.seed: write --set section.key=value" },
        { { "train", "--set", "training.seed=x" }, "--set training.seed: expected an integer of at least 0, found \"x\"" },
        { { "train", "--config" }, "--config needs a value" },
        { { "train", "--config=a", "--config=b" }, "a second configuration file, b besides a" },
        { { "train", "--config", "no/such.yaml" }, "no/such.yaml" },
        { { "train", "--model-name=\xff" }, "--model-name: the value is not valid UTF-8" },
        { { "train", "--freeze", "[a" }, "--freeze:2:1: did not find expected ',' or ']'" },
        { { "train", "--deterministic=perhaps" }, "--deterministic: expected true or false, found \"perhaps\"" },
        { { "train", "--seed", "" }, "--seed: expected an integer of at least 0, found \"\"" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_settings s;
        char *argv[7] = { "megatrain" };
        int argc = 1;
        for (int j = 0; j < 5 && cases[i].argv[j]; j++) argv[argc++] = (char *)cases[i].argv[j];
        assert_ok(mt_settings_init(&s, &err));
        assert_int_not_equal(mt_settings_args(&s, &argc, argv, &err), MT_OK);
        assert_says(cases[i].says);
        mt_settings_deinit(&s);
    }
}

static void aliases_cannot_unfold_without_end(void **state)
{
    (void)state;
    static const struct {
        int levels;
        mt_rc rc;
        const char *says;
    } cases[] = { { 3, MT_ERANGE, "expected up to 1000 values under keys of up to 100 bytes, found a section" },
                  { 13, MT_EFORMAT, "more than 10000 values in one file" } };
    for (size_t k = 0; k < MT_COUNT(cases); k++) {
        mt_err err = { 0 };
        mt_str s = { 0 };
        mt_str_puts(&s, "x-0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n");
        for (int i = 1; i <= cases[k].levels; i++)
            mt_str_printf(&s, "x-%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1, i - 1, i - 1, i - 1,
                          i - 1);
        mt_str_printf(&s, "dataset: {template_kwargs: {bomb: *a%d}}\n", cases[k].levels);
        assert_int_equal(settings_try(s.s, &err), cases[k].rc);
        assert_says(cases[k].says);
        mt_str_free(&s);
    }
}

static void distances_count_edits(void **state)
{
    (void)state;
    assert_int_equal(mt_edit_distance("batch-size", "batch_size"), 0);
    assert_int_equal(mt_edit_distance("", "abc"), 3);
    assert_int_equal(mt_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(mt_edit_distance("lern", "learn"), 1);
    assert_int_equal(mt_edit_distance("sede", "seed"), 1);
    char x[200];
    memset(x, 'x', sizeof x);
    x[199] = '\0';
    assert_int_equal(mt_edit_distance(x, "x"), 62);
}

MT_TEST_MAIN(cmocka_unit_test(files_are_refused_with_place_and_reason), cmocka_unit_test(missing_and_foreign_files_are_named),
             cmocka_unit_test(what_a_command_needs_is_asked_for), cmocka_unit_test(flags_are_refused_by_name),
             cmocka_unit_test(aliases_cannot_unfold_without_end), cmocka_unit_test(distances_count_edits))
