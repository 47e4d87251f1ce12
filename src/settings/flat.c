/* flat.c - LLaMA-Factory's files: one flat map of its names and transformers' argument names, for full fine-tuning.
 *
 * A row says what a key does: it sets one of ours, something replaces it (a line in the banner), or it requests an unsupported
 * feature (refused, unless it is off: false, null, none, 0).  Missing keys have LLaMA-Factory's and transformers' defaults, which
 * are not MegaTrain's: 3 epochs, 5e-5, linear, 8 samples, no weight decay. */
#include "settings/flat.h"

#include "settings/problems.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct flat {
    mt_settings *s;
    const mt_yaml *root;
    const char *name; /* of the file */
} flat;

typedef struct row row;
typedef mt_rc (*row_fn)(flat *f, const row *r, const mt_yaml_item *it, mt_err *err);

struct row {
    const char *key;  /* ending in *: all keys with this beginning, unless an earlier row matches */
    const char *to;   /* "section.key" it sets; NULL: none */
    const char *text; /* what replaces it, or why it is refused and what to do */
    row_fn special;   /* neither */
    bool refused;
};

/* -- helpers --------------------------------------------------------------------------------------- */

static const mt_yaml_item *flat_find(const flat *f, const char *key)
{
    for (const mt_yaml_item *it = f->root->items; it; it = it->next)
        if (strcmp(it->key->text, key) == 0 && !mt_yaml_is_null(it->value)) return it;
    return NULL;
}

static const mt_setting *row_of(const char *to)
{
    char section[32];
    size_t n = strcspn(to, ".");
    snprintf(section, sizeof section, "%.*s", (int)n, to);
    return mt__setting_find(section, to + n + 1);
}

/* A setting from a node; the message begins with the file's own key. */
static mt_rc flat_put(flat *f, const char *to, const mt_yaml_item *it, const mt_yaml *value, mt_err *err)
{
    const mt_setting *setting = row_of(to);
    char *where = mt_asprintf("%s:%d: %s", f->name, value->line, it->key->text);
    if (!where) return mt_no_memory(err, "%s", f->name);
    mt_rc rc = mt__setting_convert(f->s, setting, value, where, err);
    mt_free(where);
    if (!rc) f->s->sources[setting - mt__settings] = (mt_setting_source){ MT_ORIGIN_FILE, f->s->config_path, it->key->line };
    return rc;
}

static mt_rc put_text(flat *f, const char *to, const mt_yaml_item *it, const char *text, mt_err *err)
{
    mt_yaml node = { .kind = MT_YAML_SCALAR, .line = it->value->line, .text = text };
    return flat_put(f, to, it, &node, err);
}

static mt_rc say(flat *f, const mt_yaml_item *it, const char *text, mt_err *err)
{
    return mt__settings_notice(f->s, err, "%s: %s", it->key->text, text);
}

static mt_rc refuse(const flat *f, const mt_yaml_item *it, const char *text, mt_err *err)
{
    char found[96];
    mt_yaml_describe(it->value, found);
    return mt_fail(err, MT_EUNSUPPORTED, "%s:%d: %s is %s: %s", f->name, it->key->line, it->key->text, found, text);
}

static bool is_off(const mt_yaml *v)
{
    bool b;
    double d;
    if (mt_yaml_is_null(v)) return true;
    if (v->kind != MT_YAML_SCALAR) return !v->items;
    return (mt_yaml_bool(v->text, &b) && !b) || (mt_yaml_number(v->text, &d) && d == 0) || strcasecmp(v->text, "none") == 0 ||
           !*v->text;
}

static bool is_on(const mt_yaml_item *it)
{
    bool b = false;
    return it && it->value->kind == MT_YAML_SCALAR && mt_yaml_bool(it->value->text, &b) && b;
}

static bool is_text(const mt_yaml_item *it, const char *text)
{
    return it && it->value->kind == MT_YAML_SCALAR && strcasecmp(it->value->text, text) == 0;
}

/* -- keys with special rules ----------------------------------------------------------------------- */

static mt_rc read_stage(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    (void)r;
    if (is_text(it, "pt") || is_text(it, "sft")) return MT_OK;
    return refuse(f, it, "stages sft and pt are trained here; preference and reward training are not", err);
}

static mt_rc read_do_train(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    (void)r;
    return is_on(it)
               ? MT_OK
               : refuse(f, it, "this file trains nothing; write do_train: true, or use megatrain generate to look at a model",
                        err);
}

/* max_steps: -1 means that epochs decide. */
static mt_rc read_max_steps(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    double d;
    if (it->value->kind == MT_YAML_SCALAR && mt_yaml_number(it->value->text, &d) && d <= 0) return MT_OK;
    if (!flat_find(f, "num_train_epochs")) MT_TRY(mt__setting_default(f->s, row_of("training.epochs"), err));
    return flat_put(f, r->to, it, it->value, err);
}

/* Of each device: how many there are, the run knows. */
static mt_rc read_batch(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    MT_TRY(flat_put(f, r->to, it, it->value, err));
    f->s->batch_per_device = true;
    return MT_OK;
}

/* Below 1 it is a share of all steps. */
static mt_rc read_warmup(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    double d;
    bool share = it->value->kind == MT_YAML_SCALAR && mt_yaml_number(it->value->text, &d) && d > 0 && d < 1;
    return flat_put(f, share ? "training.warmup_ratio" : r->to, it, it->value, err);
}

static mt_rc read_scheduler_kwargs(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    static const struct {
        const char *key, *to;
    } keys[] = {
        { "min_lr", "training.min_lr" },
        { "min_lr_rate", "training.min_lr_ratio" },
        { "min_lr_ratio", "training.min_lr_ratio" },
        { "lr_end", "training.min_lr" },
        { "num_cycles", "training.num_cycles" },
        { "power", "training.power" },
        { "timescale", "training.timescale" },
        { "num_decay_steps", "training.num_decay_steps" },
        { "num_stable_steps", "training.num_stable_steps" },
        { "warmup_type", "training.warmup_type" },
        { "decay_type", "training.decay_type" },
        { "warmup_lr_rate", "training.warmup_lr_rate" },
    };
    (void)r;
    if (it->value->kind != MT_YAML_MAP) return refuse(f, it, "a map was expected, such as {min_lr: 1e-6}", err);
    for (const mt_yaml_item *k = it->value->items; k; k = k->next) {
        const char *to = NULL;
        for (size_t i = 0; i < MT_COUNT(keys); i++)
            if (strcmp(keys[i].key, k->key->text) == 0) to = keys[i].to;
        if (!to)
            return mt_fail(err, MT_EINVAL, "%s:%d: lr_scheduler_kwargs has \"%.60s\", which no schedule here reads", f->name,
                           k->key->line, k->key->text);
        if (!mt_yaml_is_null(k->value)) MT_TRY(flat_put(f, to, k, k->value, err));
    }
    return MT_OK;
}

static mt_rc read_optim(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    (void)r;
    const char *name = it->value->kind == MT_YAML_SCALAR ? it->value->text : "";
    bool paged = strncmp(name, "paged_", 6) == 0, adamw = strncmp(paged ? name + 6 : name, "adamw", 5) == 0;
    if (!adamw) return refuse(f, it, "AdamW is the only optimizer here; write optim: adamw_torch", err);
    if (strstr(name, "8bit") || strstr(name, "4bit") || strstr(name, "32bit") || paged)
        return say(f, it, "AdamW with fp32 state, which lives in host memory", err);
    return MT_OK;
}

static mt_rc read_flash_attn(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    static const struct {
        const char *word, *ours;
    } words[] = { { "auto", "auto" },
                  { "disabled", "eager" },
                  { "sdpa", "sdpa" },
                  { "fa2", "flash_attention_2" },
                  { "fa3", "flash_attention_2" } };
    for (size_t i = 0; i < MT_COUNT(words); i++) {
        if (!is_text(it, words[i].word)) continue;
        MT_TRY(put_text(f, r->to, it, words[i].ours, err));
        return strcmp(words[i].ours, "auto") == 0 ? MT_OK : say(f, it, r->text, err);
    }
    return refuse(f, it, "auto, disabled, sdpa, fa2 and fa3 are known", err);
}

/* A switch that, when it is on, gives one of ours the value in `text`. */
static mt_rc read_switch(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    if (!is_on(it)) return MT_OK;
    MT_TRY(put_text(f, r->to, it, r->text, err));
    return strcmp(it->key->text, "pure_bf16") == 0 ? say(f, it, "the master weights are fp32 all the same", err) : MT_OK;
}

/* Saying no to bfloat16, and not yes to something else, is asking for float32, of gradients too. */
static mt_rc read_bf16(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    bool other = is_on(flat_find(f, "fp16")) || is_on(flat_find(f, "pure_bf16"));
    if (!is_off(it->value) || other) return read_switch(f, r, it, err);
    MT_TRY(put_text(f, "training.grad_dtype", it, "float32", err));
    return put_text(f, r->to, it, "float32", err);
}

static mt_rc say_dtype(flat *f, mt_err *err)
{
    if (flat_find(f, "bf16") || flat_find(f, "fp16") || flat_find(f, "pure_bf16")) return MT_OK;
    return mt__settings_notice(
        f->s, err,
        "without bf16 or fp16 LLaMA-Factory computes in float32; here bfloat16 is the default, and bf16: false asks "
        "for float32");
}

static mt_rc read_thinking(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    mt_yaml key = *it->key;
    mt_yaml_item item = { .key = &key, .value = it->value };
    mt_yaml map = { .kind = MT_YAML_MAP, .line = it->value->line, .items = &item };
    return flat_put(f, r->to, it, &map, err);
}

static mt_rc read_report_to(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    const mt_yaml_item one = { .key = it->key, .value = it->value };
    bool board = false, other = false;
    for (const mt_yaml_item *k = it->value->kind == MT_YAML_LIST ? it->value->items : &one; k; k = k->next) {
        bool is_board = is_text(k, "tensorboard") || is_text(k, "all");
        board = board || is_board;
        other = other || (!is_board && !is_off(k->value));
    }
    if (board) MT_TRY(put_text(f, r->to, it, "true", err));
    return other ? say(f, it, r->text, err) : MT_OK;
}

/* no, steps or epoch; `to` is the number of steps between.  best is not an interval: `text` says what to do. */
static mt_rc read_strategy(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    bool b;
    bool no = is_text(it, "no") ||
              (it->value->kind == MT_YAML_SCALAR && mt_yaml_bool(it->value->text, &b) && !b); /* YAML reads no as false */
    if (no) return put_text(f, r->to, it, "0", err);
    if (is_text(it, "epoch")) return put_text(f, r->to, it, "epoch", err);
    return is_text(it, "steps") ? MT_OK : refuse(f, it, r->text, err);
}

/* Below 1 transformers takes it for a share of the run, whose length is not known here yet. */
static mt_rc put_steps(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    double d;
    if (it->value->kind == MT_YAML_SCALAR && mt_yaml_number(it->value->text, &d) && d > 0 && d < 1)
        return refuse(f, it, "a share of the run is not read here; write a number of steps, or the strategy epoch", err);
    return flat_put(f, r->to, it, it->value, err);
}

/* Has a say only with a strategy of steps. */
static mt_rc read_eval_steps(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    const mt_yaml_item *strategy =
        flat_find(f, "eval_strategy") ? flat_find(f, "eval_strategy") : flat_find(f, "evaluation_strategy");
    if (is_text(strategy, "steps")) return put_steps(f, r, it, err);
    return say(f, it, "has no effect without eval_strategy: steps", err);
}

static mt_rc read_save_steps(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    const mt_yaml_item *strategy = flat_find(f, "save_strategy");
    return strategy && !is_text(strategy, "steps") ? MT_OK : put_steps(f, r, it, err);
}

static mt_rc read_logging_steps(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    return is_text(flat_find(f, "logging_strategy"), "epoch") ? MT_OK : put_steps(f, r, it, err);
}

/* There is always a metrics file, so `no` has nothing to turn off. */
static mt_rc read_logging_strategy(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    if (is_text(it, "epoch")) return put_text(f, r->to, it, "epoch", err);
    return is_text(it, "steps") ? MT_OK : say(f, it, r->text, err);
}

static mt_rc read_packing(flat *f, const row *r, const mt_yaml_item *it, mt_err *err)
{
    if (!is_on(it)) return strcmp(it->key->text, "packing") == 0 ? flat_put(f, r->to, it, it->value, err) : MT_OK;
    MT_TRY(put_text(f, r->to, it, "true", err));
    return is_on(flat_find(f, "neat_packing"))
               ? MT_OK
               : say(f, it, "packed samples do not see each other here (LLaMA-Factory's neat_packing)", err);
}

/* -- the table ------------------------------------------------------------------------------------- */

/* clang-format off */
#define SET(k, to_)             { .key = k, .to = to_ }
#define ASK(k, to_, fn, text_)  { .key = k, .to = to_, .special = fn, .text = text_ }
#define LINE(k, text_)          { .key = k, .text = text_ }
#define NOT(k, text_)           { .key = k, .text = text_, .refused = true }

#define ONE_GPU   "one process, nothing to set up: weights and Adam's state live in host memory and stream through it"
#define NO_IMAGES "models that see or hear are not trained here; it has no effect"
#define NO_LORA   "has no effect with finetuning_type full"
#define WITHOUT(k) "has no effect without " k
#define NO_CACHE  "tokenized data is cached by its content and made anew when that changes"
#define NO_PREFERENCES "is about preference training; it has no effect with stage sft or pt"
#define GENERATING "is about generating; it has no effect"
#define NO_CHOICE "the last state is what a run ends with; look at metrics.jsonl and take the checkpoint you want"
#define THE_PLAN  "the plan decides which activations are kept"

static const row rows[] = {
    SET("model_name_or_path", "model.name"),
    SET("model_revision", "model.revision"),
    SET("trust_remote_code", "model.trust_remote_code"),
    ASK("flash_attn", "model.attn_implementation", read_flash_attn, "attention is our own or cuDNN's, the fastest that fits"),
    ASK("bf16", "model.dtype", read_bf16, "bfloat16"),
    ASK("fp16", "model.dtype", read_switch, "float16"),
    ASK("pure_bf16", "model.dtype", read_switch, "bfloat16"),
    SET("train_from_scratch", "training.from_scratch"),
    ASK("use_cpu", "model.device", read_switch, "cpu"),
    ASK("stage", NULL, read_stage, NULL),
    ASK("do_train", NULL, read_do_train, NULL),
    LINE("do_eval", "evaluation runs at the end wherever val_size or eval_dataset is set"),
    { .key = "finetuning_type" }, /* looked at first */

    SET("dataset", "dataset.name"),
    SET("dataset_dir", "dataset.dataset_dir"),
    SET("eval_dataset", "eval.dataset"),
    SET("template", "dataset.template"),
    SET("default_system", "dataset.default_system"),
    SET("cutoff_len", "dataset.max_seq_len"),
    SET("max_samples", "dataset.max_samples"),
    SET("train_on_prompt", "dataset.train_on_prompt"),
    SET("mask_history", "dataset.mask_history"),
    SET("mix_strategy", "dataset.mix_strategy"),
    SET("interleave_probs", "dataset.interleave_probs"),
    SET("preprocessing_num_workers", "dataset.num_workers"),
    SET("val_size", "eval.val_size"),
    ASK("disable_shuffling", "dataset.shuffle", read_switch, "false"),
    ASK("packing", "dataset.packing", read_packing, NULL),
    ASK("neat_packing", "dataset.packing", read_packing, NULL),
    ASK("enable_thinking", "dataset.template_kwargs", read_thinking, NULL),

    SET("output_dir", "save.output_dir"),
    ASK("per_device_train_batch_size", "training.batch_size", read_batch, NULL),
    SET("gradient_accumulation_steps", "training.gradient_accumulation_steps"),
    SET("learning_rate", "training.learning_rate"),
    SET("num_train_epochs", "training.epochs"),
    ASK("max_steps", "training.num_steps", read_max_steps, NULL),
    SET("lr_scheduler_type", "training.lr_scheduler"),
    ASK("lr_scheduler_kwargs", NULL, read_scheduler_kwargs, NULL),
    SET("warmup_ratio", "training.warmup_ratio"),
    ASK("warmup_steps", "training.warmup_steps", read_warmup, NULL),
    SET("weight_decay", "training.weight_decay"),
    SET("max_grad_norm", "training.max_grad_norm"),
    SET("moe_aux_loss_coef", "training.router_aux_loss"),
    SET("seed", "training.seed"),
    ASK("optim", NULL, read_optim, NULL),
    SET("adam_beta1", "optimizer.beta1"),
    SET("adam_beta2", "optimizer.beta2"),
    SET("adam_epsilon", "optimizer.eps"),
    ASK("logging_steps", "logging.log_interval", read_logging_steps, NULL),
    ASK("logging_strategy", "logging.log_interval", read_logging_strategy, "metrics.jsonl is always written, a line every logging_steps"),
    ASK("report_to", "logging.tensorboard", read_report_to, "metrics go to metrics.jsonl in output_dir; tensorboard is the other choice"),
    ASK("save_strategy", "save.save_steps", read_strategy, "no, steps and epoch are known (a checkpoint is written at the end either way)"),
    ASK("save_steps", "save.save_steps", read_save_steps, NULL),
    SET("save_total_limit", "save.keep_last"),
    SET("save_only_model", "save.save_only_model"),
    ASK("eval_strategy", "eval.eval_steps", read_strategy, "no, steps and epoch are known"),
    ASK("evaluation_strategy", "eval.eval_steps", read_strategy, "no, steps and epoch are known"),
    ASK("eval_steps", "eval.eval_steps", read_eval_steps, NULL),
    SET("eval_on_start", "eval.at_start"),
    LINE("overwrite_output_dir", "a file never removes a run: use --overwrite to replace one"),
    LINE("resume_from_checkpoint", "use --resume to continue a run"),

    LINE("deepspeed", ONE_GPU),
    LINE("fsdp", ONE_GPU),
    LINE("local_rank", ONE_GPU),
    LINE("device_map", ONE_GPU),
    LINE("low_cpu_mem_usage", ONE_GPU),
    LINE("gradient_checkpointing", THE_PLAN),
    LINE("gradient_checkpointing_kwargs", THE_PLAN),
    LINE("disable_gradient_checkpointing", THE_PLAN),
    LINE("use_reentrant_gc", THE_PLAN),
    LINE("enable_liger_kernel", "kernels are our own"),
    LINE("use_unsloth", "kernels are our own"),
    LINE("use_unsloth_gc", THE_PLAN),
    LINE("torch_compile", "there is nothing to compile"),
    LINE("use_liger_kernel", "kernels are our own"),
    LINE("use_v1_kernels", "kernels are our own"),
    LINE("tf32", "products are bf16 or fp32 as dtype says"),
    LINE("upcast_layernorm", "norms are computed in fp32"),
    LINE("upcast_lmhead_output", "the loss is computed in fp32"),
    LINE("use_fast_tokenizer", "the tokenizer is our own, equal to the fast one"),
    LINE("use_cache", GENERATING),
    LINE("use_kv_cache", GENERATING),
    LINE("infer_backend", GENERATING),
    LINE("infer_dtype", GENERATING),
    LINE("eval_num_beams", GENERATING),
    LINE("generation_*", GENERATING),
    LINE("offload_folder", ONE_GPU),
    LINE("cache_dir", "HF_HOME or HF_HUB_CACHE set where downloaded models are stored"),
    LINE("hf_hub_token", "set HF_TOKEN instead: a token does not belong into a file"),
    LINE("ms_hub_token", "models come from the Hugging Face hub or a mirror of it (HF_ENDPOINT)"),
    LINE("om_hub_token", "models come from the Hugging Face hub or a mirror of it (HF_ENDPOINT)"),
    LINE("overwrite_cache", NO_CACHE),
    LINE("tokenized_path", NO_CACHE),
    LINE("preprocessing_batch_size", NO_CACHE),
    LINE("streaming", "data is read from the disk as it is used; nothing to set"),
    LINE("buffer_size", "every epoch is shuffled whole"),
    LINE("data_shared_file_system", ONE_GPU),
    LINE("dataloader_num_workers", "steps are prepared ahead by threads; preprocessing_num_workers is how many tokenize"),
    LINE("dataloader_pin_memory", "steps are prepared ahead in pinned memory"),
    LINE("dataloader_drop_last", "nothing is dropped: the last step of an epoch may be smaller"),
    LINE("dataloader_*", "steps are prepared ahead by threads"),
    LINE("data_seed", "seed is for the data, too"),
    LINE("group_by_length", "no padding is computed, so nothing is gained by it"),
    LINE("remove_unused_columns", "columns that are not named are not read"),
    LINE("ignore_pad_token_for_loss", "no padding is computed"),
    LINE("per_device_eval_batch_size", "evaluation takes batches of the training's size"),
    LINE("prediction_loss_only", "evaluation reports loss, perplexity and accuracy"),
    LINE("eval_accumulation_steps", "evaluation keeps no logits"),
    LINE("compute_accuracy", "evaluation always reports the accuracy"),
    LINE("include_num_input_tokens_seen", "metrics.jsonl counts tokens"),
    LINE("include_effective_tokens_per_second", "metrics.jsonl has tokens per second, padding never counted"),
    LINE("include_tokens_per_second", "metrics.jsonl has tokens per second"),
    LINE("plot_loss", "the curve is drawn at the end, and metrics.jsonl has its numbers"),
    LINE("logging_dir", "logs are in output_dir"),
    LINE("logging_first_step", "see logging_steps"),
    LINE("run_name", "a run is called by its output_dir"),
    LINE("save_safetensors", "weights are always saved as safetensors"),
    LINE("disable_tqdm", "the bar is drawn on a terminal only"),
    LINE("log_level", "has no effect"),
    LINE("log_level_replica", ONE_GPU),
    LINE("log_on_each_node", ONE_GPU),
    LINE("save_on_each_node", ONE_GPU),
    LINE("accelerator_config", ONE_GPU),
    LINE("parallelism_config", ONE_GPU),
    LINE("logging_nan_inf_filter", "a step that is not finite is skipped and reported"),
    LINE("torch_empty_cache_steps", "memory is planned, and allocated once"),
    LINE("bf16_full_eval", "evaluation computes as training does"),
    LINE("fp16_full_eval", "evaluation computes as training does"),
    LINE("label_names", "the data decides what is trained (docs/training-samples.md)"),
    LINE("length_column_name", "no padding is computed, so nothing is gained by it"),
    LINE("project", "a run is called by its output_dir"),
    LINE("trackio_*", "metrics go to metrics.jsonl in output_dir"),
    LINE("debug", "has no effect"),
    LINE("full_determinism", "the same seed gives the same bits anyway"),
    LINE("average_tokens_across_devices", "the loss is the mean over all trained tokens of a step anyway"),
    LINE("auto_find_batch_size", "the plan cuts a step into what fits; the batch stays as it is"),
    LINE("ignore_data_skip", "a resumed run continues with the next sample"),
    LINE("skip_memory_metrics", "metrics.jsonl has the memory's peaks"),
    LINE("hub_*", "nothing is uploaded"),
    LINE("push_to_hub_token", "nothing is uploaded"),
    LINE("ray_*", ONE_GPU),
    LINE("resources_per_worker", ONE_GPU),
    LINE("placement_strategy", ONE_GPU),
    LINE("print_param_status", "megatrain inspect lists tensors"),
    LINE("lora_*", NO_LORA),
    LINE("oft_*", NO_LORA),
    LINE("pissa_*", NO_LORA),
    LINE("create_new_adapter", NO_LORA),
    LINE("module_dropout", NO_LORA),
    LINE("use_oft", NO_LORA),
    LINE("use_dora", NO_LORA),
    LINE("use_rslora", NO_LORA),
    LINE("additional_target", NO_LORA),
    LINE("freeze_trainable_layers", NO_LORA),
    LINE("freeze_trainable_modules", NO_LORA),
    LINE("freeze_extra_modules", NO_LORA),
    LINE("freeze_vision_tower", NO_IMAGES),
    LINE("freeze_multi_modal_projector", NO_IMAGES),
    LINE("freeze_language_model", NO_IMAGES),
    LINE("media_dir", NO_IMAGES),
    LINE("image_*", NO_IMAGES),
    LINE("video_*", NO_IMAGES),
    LINE("audio_*", NO_IMAGES),
    LINE("use_audio_in_video", NO_IMAGES),
    LINE("crop_to_patches", NO_IMAGES),
    LINE("pref_*", NO_PREFERENCES),
    LINE("dpo_*", NO_PREFERENCES),
    LINE("kto_*", NO_PREFERENCES),
    LINE("ppo_*", NO_PREFERENCES),
    LINE("simpo_gamma", NO_PREFERENCES),
    LINE("ref_model_*", NO_PREFERENCES),
    LINE("reward_model_*", NO_PREFERENCES),
    LINE("export_*", "a finished run is a model directory; megatrain convert makes others of it"),

    NOT("adapter_name_or_path", "adapters are not read: merge it into the model first and give that"),
    NOT("quantization_bit", "full precision is the point here; leave it out"),
    NOT("rope_scaling", "write rope_scaling into the model's config.json"),
    NOT("shift_attn", "attention is exact here; leave it out"),
    NOT("mixture_of_depths", "the model is trained as its config.json says; leave it out"),
    NOT("resize_vocab", "the vocabulary stays as the model has it: resize it with transformers first"),
    NOT("add_tokens", "the vocabulary stays as the model has it: add tokens with transformers first"),
    NOT("add_special_tokens", "the vocabulary stays as the model has it: add tokens with transformers first"),
    NOT("new_special_tokens", "the vocabulary stays as the model has it: add tokens with transformers first"),
    NOT("neftune_noise_alpha", "noise on embeddings is not done here; leave it out"),
    NOT("label_smoothing_factor", "the loss is plain cross-entropy; leave it out"),
    NOT("use_galore", "gradients are not projected: AdamW's state fits in host memory; leave it out"),
    NOT("use_apollo", "gradients are not projected: AdamW's state fits in host memory; leave it out"),
    NOT("use_badam", "all weights are trained in every step; leave it out"),
    NOT("use_adam_mini", "AdamW is the only optimizer here; leave it out"),
    NOT("use_muon", "AdamW is the only optimizer here; leave it out"),
    NOT("use_llama_pro", "all layers are trained; leave it out"),
    NOT("use_asft_loss", "the loss is plain cross-entropy; leave it out"),
    NOT("use_dft_loss", "the loss is plain cross-entropy; leave it out"),
    NOT("use_mca", "kernels are our own; leave it out"),
    NOT("use_swanlab", "metrics go to metrics.jsonl, and to TensorBoard with report_to: tensorboard"),
    NOT("use_eaft_loss", "the loss is plain cross-entropy; leave it out"),
    NOT("loraplus_lr_ratio", "one learning rate for all weights; leave it out"),
    NOT("efficient_eos", "every answer's end is trained already; leave it out"),
    NOT("tool_format", "the chat template renders tools, or the default tool format where it has none; leave it out"),
    NOT("eval_on_each_dataset", "evaluation sets are one; leave it out"),
    NOT("load_best_model_at_end", NO_CHOICE),
    NOT("metric_for_best_model", NO_CHOICE),
    LINE("greater_is_better", NO_CHOICE),
    NOT("early_stopping_steps", "a run goes to its end; stop it with Ctrl-C, which saves"),
    NOT("eval_delay", "evaluation begins with the run; leave it out"),
    NOT("split_special_tokens", "special tokens are read as such; leave it out"),
    NOT("new_special_tokens_config", "the vocabulary stays as the model has it: add tokens with transformers first"),
    NOT("optim_args", "set adam_beta1, adam_beta2 and adam_epsilon as separate keys"),
    NOT("predict_with_generate", "megatrain generate --prompts FILE answers prompts with a trained model"),
    NOT("do_predict", "megatrain generate --prompts FILE answers prompts with a trained model"),
    NOT("push_to_hub", "nothing is uploaded; use the hub's own tools on output_dir/final"),
    NOT("ref_model", "preference training is not done here; leave it out"),
    NOT("reward_model", "preference training is not done here; leave it out"),
    NOT("fp8", "training computes in bfloat16 or float32; leave it out"),
    NOT("sequence_parallel_size", "one GPU holds whole sequences here; leave it out"),

    /* What belongs to a switch above has no say while that is off. */
    LINE("galore_*", WITHOUT("use_galore")),
    LINE("apollo_*", WITHOUT("use_apollo")),
    LINE("badam_*", WITHOUT("use_badam")),
    LINE("swanlab_*", WITHOUT("use_swanlab")),
    LINE("fp8_*", WITHOUT("fp8")),
    LINE("quantization_*", WITHOUT("quantization_bit")),
    LINE("double_quantization", WITHOUT("quantization_bit")),
    LINE("torch_compile_*", "there is nothing to compile"),
    LINE("liger_kernel_config", "kernels are our own"),
    LINE("fsdp_*", ONE_GPU),
    LINE("ddp_*", ONE_GPU),
};
/* clang-format on */

/* What LLaMA-Factory (first) and transformers mean by saying nothing, where it is not what we would. */
static const struct {
    const char *to, *value;
} defaults[] = {
    { "dataset.max_seq_len", "2048" },     { "dataset.packing", "false" },   { "eval.at_start", "false" },
    { "training.batch_size", "8" },        { "training.epochs", "3" },       { "training.learning_rate", "5e-5" },
    { "training.lr_scheduler", "linear" }, { "training.weight_decay", "0" }, { "save.keep_last", "all" },
    { "logging.log_interval", "500" },
};

static mt_rc set_default(mt_settings *s, const char *to, const char *value, mt_err *err)
{
    const mt_setting *setting = row_of(to);
    MT_TRY(mt__setting_convert_text(s, setting, value, to, err));
    s->sources[setting - mt__settings] = (mt_setting_source){ MT_ORIGIN_DEFAULT, "LLaMA-Factory's default", 0 };
    return MT_OK;
}

static mt_rc set_defaults(flat *f, mt_err *err)
{
    const mt_yaml_item *strategy =
        flat_find(f, "eval_strategy") ? flat_find(f, "eval_strategy") : flat_find(f, "evaluation_strategy");
    for (size_t i = 0; i < MT_COUNT(defaults); i++) MT_TRY(set_default(f->s, defaults[i].to, defaults[i].value, err));
    if (is_text(flat_find(f, "stage"), "pt"))
        MT_TRY(set_default(f->s, "dataset.packing", "true", err)); /* documents are always packed */
    if (!flat_find(f, "enable_thinking")) /* it is on by default, and then an answer without a thought learns an empty one */
        MT_TRY(set_default(f->s, "dataset.empty_thought", "trained", err));
    if (is_text(strategy, "steps")) { /* as often as logging */
        const mt_yaml_item *logging = flat_find(f, "logging_steps");
        MT_TRY(set_default(f->s, "eval.eval_steps",
                           logging && logging->value->kind == MT_YAML_SCALAR ? logging->value->text : "500", err));
    }
    return MT_OK;
}

/* -- reading --------------------------------------------------------------------------------------- */

static mt_rc check_finetuning(const flat *f, mt_err *err)
{
    const mt_yaml_item *it = flat_find(f, "finetuning_type");
    if (!it)
        return mt_fail(
            err, MT_EUNSUPPORTED,
            "%s: no finetuning_type, which means lora to LLaMA-Factory, and LoRA is not trained here: write finetuning_type: "
            "full to train all weights",
            f->name);
    if (is_text(it, "full")) return MT_OK;
    if (is_text(it, "freeze"))
        return refuse(f, it, "write finetuning_type: full and name what stays as it is with --freeze PATTERN (training.freeze)",
                      err);
    return refuse(
        f, it,
        "adapters are not trained here; write finetuning_type: full to train all weights (megatrain plan shows what that needs)",
        err);
}

static mt_rc unknown(const flat *f, const mt_yaml *key, mt_err *err)
{
    mt_nearest search = { .word = key->text };
    for (size_t i = 0; i < MT_COUNT(rows); i++)
        if (!strchr(rows[i].key, '*')) mt_nearest_offer(&search, rows[i].key);
    if (*search.best)
        return mt_fail(err, MT_EINVAL, "%s:%d: \"%.60s\" is not known; did you mean %s?", f->name, key->line, key->text,
                       search.best);
    return mt_fail(err, MT_EINVAL,
                   "%s:%d: \"%.60s\" is not supported: leave it out, or look for what does the same in docs/configuration.md and "
                   "give it with "
                   "--set",
                   f->name, key->line, key->text);
}

static bool is_key_of(const row *r, const char *key)
{
    size_t n = strcspn(r->key, "*");
    return r->key[n] ? strncmp(r->key, key, n) == 0 : strcmp(r->key, key) == 0;
}

static mt_rc read_item(flat *f, const mt_yaml_item *it, mt_err *err)
{
    for (size_t i = 0; i < MT_COUNT(rows); i++) {
        const row *r = &rows[i];
        if (!is_key_of(r, it->key->text)) continue;
        if (mt_yaml_is_null(it->value)) return MT_OK;
        if (r->special) return r->special(f, r, it, err);
        if (r->to) return flat_put(f, r->to, it, it->value, err);
        if (r->refused) return is_off(it->value) ? MT_OK : refuse(f, it, r->text, err);
        return r->text && !is_off(it->value) ? say(f, it, r->text, err) : MT_OK;
    }
    return unknown(f, it->key, err);
}

bool mt__flat_is(const mt_yaml *root)
{
    flat f = { .root = root };
    return root->kind == MT_YAML_MAP && (flat_find(&f, "model_name_or_path") || flat_find(&f, "finetuning_type"));
}

mt_rc mt__flat_read(mt_settings *s, const mt_yaml *root, const char *name, mt_err *err)
{
    flat f = { .s = s, .root = root, .name = name };
    mt__problems p = { 0 };
    mt_err one = { 0 };
    s->flat = true;
    MT_TRY(set_defaults(&f, err));
    mt_rc rc = mt__problems_add(&p, check_finetuning(&f, &one), &one, err);
    for (const mt_yaml_item *it = root->items; it && !rc; it = it->next)
        rc = mt__problems_add(&p, read_item(&f, it, &one), &one, err);
    if (!rc) rc = say_dtype(&f, err);
    if (rc) return mt__problems_drop(&p), rc;
    return mt__problems_end(&p, name, err);
}
