#include "settings/foreign.h"

#include "base/mem.h"

#include <string.h>

enum { MAX_KEYS = 12 };

typedef struct shape {
    const char *needs;             /* the key that every such file has */
    bool scalar;                   /* and its value is text, not a section */
    const char *any_of[MAX_KEYS];  /* one of these as well */
    const char *none_of[MAX_KEYS]; /* none of these */
    const char *text;
} shape;

static const shape shapes[] = {
    { .needs = "model",
      .scalar = true,
      .any_of = { "model_class", "train_dataset", "eval_dataset", "dist_config", "peft_config", "kernel_config", "quant_config",
                  "init_config" },
      .text =
          "this is a file of LLaMA-Factory v1, which is not read here; write model_name_or_path for model, dataset (a name in "
          "dataset_info.json) for train_dataset, per_device_train_batch_size for micro_batch_size, and stage: sft with "
          "finetuning_type: full (docs/llama-factory.md)" },
    { .needs = "base_model",
      .any_of = { "datasets", "sequence_len", "micro_batch_size", "adapter", "val_set_size", "pretraining_dataset", "rl",
                  "num_epochs" },
      .text =
          "this is an axolotl file, which is not read here; write model.name for base_model, dataset.name or dataset.path for "
          "datasets, dataset.max_seq_len for sequence_len, training.batch_size for micro_batch_size, training.epochs for "
          "num_epochs and eval.val_size for val_set_size (docs/configuration.md)" },
    { .needs = "model_name_or_path",
      .any_of = { "dataset_name", "dataset_config", "dataset_text_field", "dataset_train_split", "dataset_mixer", "datasets",
                  "use_peft", "max_length", "max_seq_length", "assistant_only_loss", "completion_only_loss" },
      .none_of = { "stage", "finetuning_type", "dataset", "template", "cutoff_len" },
      .text =
          "this is a TRL file, which is not read here; write model.name for model_name_or_path, dataset.name for dataset_name, "
          "dataset.max_seq_len for max_length, training.batch_size for per_device_train_batch_size and training.epochs for "
          "num_train_epochs (docs/configuration.md)" },
    { .needs = "model_name_or_path",
      .any_of = { "export_dir" },
      .none_of = { "stage", "dataset", "output_dir", "adapter_name_or_path" },
      .text =
          "this is a LLaMA-Factory file that exports a model, which is not read here; write megatrain convert IN OUT with its "
          "model_name_or_path and export_dir" },
    { .needs = "model_name_or_path",
      .any_of = { "infer_backend", "infer_dtype", "vllm_maxlen", "vllm_enforce_eager", "vllm_gpu_util" },
      .none_of = { "stage", "dataset", "output_dir", "adapter_name_or_path" },
      .text = "this is a LLaMA-Factory file for inference, which is not read here; write megatrain generate MODEL with its "
              "model_name_or_path" },
    { .needs = "distributed_type",
      .any_of = { "compute_environment", "num_processes", "num_machines", "machine_rank", "fsdp_config", "deepspeed_config" },
      .text = "this is an Accelerate file, which is not read here: one process trains, on the GPUs of --devices; write megatrain "
              "train with the file of the training itself (docs/several-gpus.md)" },
    { .needs = "zero_optimization",
      .any_of = { "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "bf16", "fp16",
                  "optimizer", "scheduler", "gradient_clipping", "steps_per_print", "wall_clock_breakdown" },
      .text =
          "this is a DeepSpeed file, which is not read here: the planner finds where state and weights are best stored; write "
          "training.batch_size for train_batch_size and training.max_grad_norm for gradient_clipping (docs/migrating.md)" },
};

static const mt_yaml_item *foreign_find(const mt_yaml *root, const char *key)
{
    for (const mt_yaml_item *it = root->items; it; it = it->next)
        if (strcmp(it->key->text, key) == 0) return it;
    return NULL;
}

static bool has_any(const mt_yaml *root, const char *const *keys)
{
    for (size_t i = 0; i < MAX_KEYS && keys[i]; i++)
        if (foreign_find(root, keys[i])) return true;
    return false;
}

static bool is_of(const mt_yaml *root, const shape *s)
{
    const mt_yaml_item *first = foreign_find(root, s->needs);
    if (!first || (s->scalar && first->value->kind != MT_YAML_SCALAR)) return false;
    return has_any(root, s->any_of) && !has_any(root, s->none_of);
}

/* "<token>": "what it is for", nothing else. */
static bool is_tokens(const mt_yaml *root)
{
    for (const mt_yaml_item *it = root->items; it; it = it->next)
        if (*it->key->text != '<' || it->value->kind != MT_YAML_SCALAR) return false;
    return root->items != NULL;
}

mt_rc mt__foreign_check(const mt_yaml *root, const char *name, mt_err *err)
{
    if (is_tokens(root))
        return mt_fail(
            err, MT_EUNSUPPORTED,
            "%s: this is a list of new tokens for LLaMA-Factory (new_special_tokens_config), which is not read here: the "
            "vocabulary does not grow; write megatrain train with the file of the training itself",
            name);
    for (size_t i = 0; i < MT_COUNT(shapes); i++)
        if (is_of(root, &shapes[i]))
            return mt_fail(err, MT_EUNSUPPORTED, "%s:%d: %s", name, foreign_find(root, shapes[i].needs)->key->line,
                           shapes[i].text);
    return MT_OK;
}
