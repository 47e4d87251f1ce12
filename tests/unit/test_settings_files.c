/* Whole files: all refusals of one come in one message, files of other trainers are recognized by their shape, and numbers that
 * would mean something else are refused. */
#include "settings_text.h"

#include "settings/settings.h"

#include <stdlib.h>
#include <unistd.h>

static void in_order(const mt_err *err, const char *const *texts)
{
    const char *at = err->msg;
    for (; *texts; texts++) {
        const char *found = strstr(at, *texts);
        if (!found) fail_msg("expected \"%s\" after the texts before it in: %s", *texts, err->msg);
        at = found + strlen(*texts);
    }
}
#define IN_ORDER(...) in_order(&err, (const char *const[]){ __VA_ARGS__, NULL })

/* -- all of it ------------------------------------------------------------------------------------- */

static void all_refusals_of_a_file_come_at_once_fatal_ones_first(void **state)
{
    (void)state;
    mt_err err;
    assert_int_equal(
        settings_try("model_name_or_path: a/b\ndataset: d\nlerning_rate: 1\nfinetuning_type: lora\nquantization_bit: 4\n"
                     "cutoff_len: many\nstage: dpo\n",
                     &err),
        MT_EUNSUPPORTED);
    IN_ORDER("c.yaml: 5 things stop it:", "\n  c.yaml:4: finetuning_type is \"lora\"", "\n  c.yaml:5: quantization_bit",
             "\n  c.yaml:7: stage", "\n  c.yaml:3: \"lerning_rate\" is not known", "\n  c.yaml:6: cutoff_len: expected");
    assert_int_equal(settings_try("training:\n  batchsize: 4\n  seed: x\nnonsense: {}\nlogging: 3\n", &err), MT_EINVAL);
    IN_ORDER("c.yaml: 4 things stop it:", "c.yaml:2: training has no key", "c.yaml:3: training.seed", "c.yaml:4: no section",
             "c.yaml:5: logging: expected keys");
    assert_int_equal(settings_try("model: {devices: [0, all]}\ntraining: {min_lr: 1}\n", &err), MT_EINVAL);
    IN_ORDER("c.yaml: 2 things stop it:", "model.devices", "training.min_lr");
    assert_int_equal(settings_try("training: {seed: x}\n", &err), MT_EINVAL); /* a single one has no headline */
    assert_null(strstr(err.msg, "things"));
}

static void more_than_a_message_holds_is_counted(void **state)
{
    (void)state;
    mt_err err;
    char text[8192] = "training:\n";
    for (int i = 0; i < 200; i++) snprintf(text + strlen(text), sizeof text - strlen(text), "  no_such_key_%d: 1\n", i);
    assert_int_equal(settings_try(text, &err), MT_EINVAL);
    assert_says("200 things stop it");
    assert_non_null(strstr(err.msg, " more"));
    assert_true(strlen(err.msg) < MT_ERR_MSG_BYTES - 1);
}

/* -- files of others ------------------------------------------------------------------------------- */

static void files_of_other_trainers_are_recognized_by_their_shape(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *says;
    } cases[] = {
        { "model: a/b\nmodel_class: llm\ntrain_dataset: data/x.yaml\nmicro_batch_size: 1\n", "LLaMA-Factory v1" },
        { "model: a/b\npeft_config: {name: lora}\n", "LLaMA-Factory v1" },
        { "{\"train_batch_size\": 4, \"zero_optimization\": {\"stage\": 3}}", "a DeepSpeed file" },
        { "base_model: a/b\ndatasets:\n  - path: x\n    type: alpaca\nsequence_len: 2048\n", "an axolotl file" },
        { "model_name_or_path: a/b\ndataset_name: x/y\nlearning_rate: 1e-4\n", "a TRL file" },
        { "model_name_or_path: a/b\ndatasets: [{path: x/y}]\nuse_peft: true\n", "a TRL file" },
        { "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: true\n",
          "this is an Accelerate file" },
        { "\"<a>\": \"the first\"\n\"<b>\": \"the second\"\n", "a list of new tokens" },
        { "model_name_or_path: a/b\ntemplate: qwen3\ninfer_backend: vllm\ntrust_remote_code: true\n",
          "write megatrain generate" },
        { "model_name_or_path: a/b\ntemplate: qwen3\nexport_dir: out\nexport_size: 5\n", "write megatrain convert" },
    };
    mt_err err;
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        assert_int_equal(settings_try(cases[i].yaml, &err), MT_EUNSUPPORTED);
        assert_says(cases[i].says);
        assert_says("write ");
        assert_null(strchr(err.msg, '\n')); /* one sentence */
    }
    assert_ok(settings_try("model_name_or_path: a/b\nfinetuning_type: full\nbf16: true\n", &err));
    assert_ok(settings_try("model: {name: a/b}\n", &err));
}

static void other_kinds_of_training_of_the_original_stop(void **state)
{
    (void)state;
    mt_err err;
    assert_int_equal(settings_try("model: {name: a/b}\nvlm: {freeze_projector: true}\n", &err), MT_EUNSUPPORTED);
    assert_says("c.yaml:2: vlm: models that see images are not trained here");
    assert_int_equal(settings_try("dataset: {max_prompt_len: 256}\ngrpo: {clip_range: 0.2}\n", &err), MT_EUNSUPPORTED);
    IN_ORDER("c.yaml:2: grpo: GRPO, reinforcement learning, is not trained here", "c.yaml:1: dataset has no key");
}

/* -- numbers --------------------------------------------------------------------------------------- */

static void numbers_that_would_mean_something_else_are_refused(void **state)
{
    (void)state;
    mt_err err;
    assert_int_equal(settings_try("training:\n  epochs: 0\n", &err), MT_EINVAL);
    assert_says("c.yaml:2: training.epochs: 0 passes over the data train nothing");
    assert_int_equal(settings_try("model_name_or_path: a/b\nfinetuning_type: full\nbf16: true\nnum_train_epochs: 0\n", &err),
                     MT_EINVAL);
    assert_ok(settings_try("training: {epochs: 0, num_steps: 5}\n", &err));
    assert_ok(settings_try("training: {batch_size: 5}\n", &err));
    assert_int_equal(settings_try("eval: {val_size: 1.0}\n", &err), MT_ERANGE);
    assert_says("a whole number of samples (1 is one sample), found \"1.0\"");
    assert_int_equal(settings_try("eval: {val_size: 1e0}\n", &err), MT_ERANGE);
    assert_ok(settings_try("eval: {val_size: 1}\n", &err));
    assert_ok(settings_try("eval: {val_size: 0.99}\n", &err));
}

/* -- as an argument -------------------------------------------------------------------------------- */

static mt_rc take(mt_settings *s, int *argc, char **argv, mt_err *err)
{
    *err = (mt_err){ 0 };
    assert_int_equal(mt_settings_init(s, err), MT_OK);
    for (*argc = 0; argv[*argc]; ++*argc) {
    }
    return mt_settings_args(s, argc, argv, err);
}

static void a_file_needs_no_flag(void **state)
{
    (void)state;
    mt_settings s;
    mt_err err;
    int argc;
    char path[] = "/tmp/mt-file-XXXXXX.yaml";
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0 && write(fd, "training: {seed: 7}\n", 20) == 20);
    close(fd);
    assert_ok(take(&s, &argc, (char *[]){ "plan", "--seed", "9", path, "word", NULL }, &err));
    assert_int_equal(s.training.seed, 9); /* flags win, wherever they stand */
    assert_int_equal(argc, 2);
    mt_settings_deinit(&s);
    assert_ok(take(&s, &argc, (char *[]){ "train", path, "--dry-run", NULL }, &err));
    assert_int_equal(s.training.seed, 7);
    assert_string_equal(s.config_path, path);
    assert_int_equal(argc, 2);
    mt_settings_deinit(&s);
    assert_ok(take(&s, &argc, (char *[]){ "train", "--model-name", "a.yaml", NULL }, &err)); /* a flag's value is not the file */
    assert_string_equal(s.model.name, "a.yaml");
    mt_settings_deinit(&s);
    assert_int_equal(take(&s, &argc, (char *[]){ "train", path, "--config", "b.yaml", NULL }, &err), MT_EINVAL);
    assert_says("a second configuration file, b.yaml");
    mt_settings_deinit(&s);
    assert_int_equal(take(&s, &argc, (char *[]){ "train", "no-such.yml", NULL }, &err), MT_ENOENT);
    mt_settings_deinit(&s);
    unlink(path);
}

MT_TEST_MAIN(cmocka_unit_test(all_refusals_of_a_file_come_at_once_fatal_ones_first),
             cmocka_unit_test(more_than_a_message_holds_is_counted),
             cmocka_unit_test(files_of_other_trainers_are_recognized_by_their_shape),
             cmocka_unit_test(other_kinds_of_training_of_the_original_stop),
             cmocka_unit_test(numbers_that_would_mean_something_else_are_refused), cmocka_unit_test(a_file_needs_no_flag))
