/* table.c - every setting, one row each.  The macros fill in what follows from a row's type; special fields of a row are at its
 * end (.flag, .word, ...).  The order is the order of --help and of the reference.  AT also checks, at compile time, that the
 * field has the type the row claims. */
#include "settings/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT(s, k, ctype)                                                                                                          \
    .section = #s, .key = #k, .offset = offsetof(mt_settings, s.k) + 0 * sizeof((ctype *)0 == &((mt_settings *)0)->s.k)

#define ROW(s, k, ctype, t, c, dflt, text)                                                                                       \
    AT(s, k, ctype), .type = MT_SETTING_##t, .cls = MT_CLASS_##c, .fallback = dflt, .help = text

/* clang-format off */
#define STR(s, k, c, dflt, text, ...)          { ROW(s, k, const char *, STR, c, dflt, text), __VA_ARGS__ }
#define BOOL(s, k, c, dflt, text, ...)         { ROW(s, k, bool, BOOL, c, dflt, text), __VA_ARGS__ }
#define INT(s, k, c, dflt, lo, hi, text, ...)  { ROW(s, k, int64_t, INT, c, dflt, text), .min = lo, .max = hi, __VA_ARGS__ }
#define NUM(s, k, c, dflt, lo, hi, text, ...)  { ROW(s, k, double, FLOAT, c, dflt, text), .min = lo, .max = hi, __VA_ARGS__ }
#define BYTES(s, k, c, dflt, text, ...)        { ROW(s, k, uint64_t, BYTES, c, dflt, text), .min = 1, .max = 9e18, __VA_ARGS__ }
#define ENUM(s, k, e, list, c, dflt, text, ...) { ROW(s, k, e, ENUM, c, dflt, text), .choices = list, __VA_ARGS__ }
#define DTYPE(s, k, list, c, dflt, text, ...)  { ROW(s, k, mt_dtype, DTYPE, c, dflt, text), .choices = list, __VA_ARGS__ }
#define STRS(s, k, c, text, ...)               { ROW(s, k, mt_strs, STRS, c, "[]", text), __VA_ARGS__ }
/* clang-format on */

#define EPOCH .word = "epoch", .word_value = MT_EVERY_EPOCH

#define COUNT_MAX MT_SETTING_UNCAPPED /* steps, samples: more than anyone has, and exact in a double */

static const char *const tri[] = { [MT_TRI_AUTO] = "auto", [MT_TRI_FALSE] = "false", [MT_TRI_TRUE] = "true", NULL };
static const char *const attention[] = { [MT_SET_ATTENTION_AUTO] = "auto",
                                         [MT_SET_ATTENTION_FLASH_2] = "flash_attention_2",
                                         [MT_SET_ATTENTION_SDPA] = "sdpa",
                                         [MT_SET_ATTENTION_EAGER] = "eager",
                                         NULL };
static const char *const sample_by[] = {
    [MT_SAMPLE_LINE] = "line", [MT_SAMPLE_PARAGRAPH] = "paragraph", [MT_SAMPLE_DOCUMENT] = "document", NULL
};
static const char *const history[] = { [MT_HISTORY_UNROLL] = "unroll", [MT_HISTORY_LAST] = "last", NULL };
static const char *const mix[] = {
    [MT_MIX_CONCAT] = "concat", [MT_MIX_UNDER] = "interleave_under", [MT_MIX_OVER] = "interleave_over", NULL
};
static const char *const bad_record[] = { [MT_SET_BAD_RECORD_SKIP] = "skip", [MT_SET_BAD_RECORD_STOP] = "stop", NULL };
static const char *const overlong[] = { [MT_OVERLONG_AUTO] = "auto",
                                        [MT_OVERLONG_TRUNCATE] = "truncate",
                                        [MT_OVERLONG_SPLIT] = "split",
                                        [MT_OVERLONG_SKIP] = "skip",
                                        NULL };
static const char *const empty_thought[] = {
    [MT_THOUGHT_AUTO] = "auto", [MT_THOUGHT_NONE] = "none", [MT_THOUGHT_PROMPT] = "prompt", [MT_THOUGHT_TRAINED] = "trained", NULL
};
static const char *const optimizers[] = { [MT_SET_OPTIMIZER_ADAMW] = "adamw",
                                          [MT_SET_OPTIMIZER_DEEPSPEED_ADAM] = "deepspeed_adam",
                                          [MT_SET_OPTIMIZER_LION] = "lion",
                                          NULL };
static const char *const homes[] = { [MT_SET_HOME_AUTO] = "auto", [MT_SET_HOME_HOST] = "host", NULL };
static const char *const adam_states[] = {
    [MT_MOMENTS_F32] = "float32", [MT_MOMENTS_BF16] = "bf16", [MT_MOMENTS_8BIT] = "8bit", NULL
};
static const char *const objectives[] = {
    [MT_SET_OBJECTIVE_CROSS_ENTROPY] = "cross_entropy", [MT_SET_OBJECTIVE_DFT] = "dft", [MT_SET_OBJECTIVE_EAFT] = "eaft", NULL
};
static const char *const curves[] = {
    [MT_SET_CURVE_LINEAR] = "linear", [MT_SET_CURVE_COSINE] = "cosine", [MT_SET_CURVE_1_SQRT] = "1-sqrt", NULL
};
static const char *const schedulers[] = {
    [MT_SET_LR_CONSTANT] = "constant",
    [MT_SET_LR_CONSTANT_WITH_WARMUP] = "constant_with_warmup",
    [MT_SET_LR_LINEAR] = "linear",
    [MT_SET_LR_COSINE] = "cosine",
    [MT_SET_LR_COSINE_WITH_RESTARTS] = "cosine_with_restarts",
    [MT_SET_LR_COSINE_WITH_MIN_LR] = "cosine_with_min_lr",
    [MT_SET_LR_COSINE_WARMUP_WITH_MIN_LR] = "cosine_warmup_with_min_lr",
    [MT_SET_LR_POLYNOMIAL] = "polynomial",
    [MT_SET_LR_INVERSE_SQRT] = "inverse_sqrt",
    [MT_SET_LR_WARMUP_STABLE_DECAY] = "warmup_stable_decay",
    NULL,
};
static const char *const any_dtype[] = {
    [MT_DTYPE_F32] = "float32", [MT_DTYPE_BF16] = "bfloat16", [MT_DTYPE_F16] = "float16", NULL
};
static const char *const grad_dtype[] = { [MT_DTYPE_F32] = "float32", [MT_DTYPE_BF16] = "bfloat16", NULL };

const mt_section mt__sections[] = {
    { "model", "What is trained, and on what." },
    { "dataset", "What it is trained on." },
    { "training", "How long, how fast, and from where." },
    { "optimizer", "The optimizer, on fp32 master weights." },
    { "memory", "Limits the plan keeps to." },
    { "eval", "Loss on data that is not trained on." },
    { "save", "What is written, where and how often." },
    { "run", "Several machines (docs/clusters.md)." },
    { "logging", "What is shown and recorded." },
};
const size_t mt__n_sections = MT_COUNT(mt__sections);

const mt_setting mt__settings[] = {
    STR(model, name, PLACE, "", "A model directory, or a name on the Hugging Face hub such as Qwen/Qwen2.5-7B-Instruct.",
        .path = true, .flag = "model-name", .meta = "NAME", .shown_default = "none; required", .common = true),
    STR(model, revision, PLACE, "", "Branch, tag or commit on the hub.", .meta = "REV", .shown_default = "the default branch"),
    STR(model, family, MODEL, "",
        "For an unknown model_type: the family that computes the same, such as llama. Without it such a model is refused.",
        .flag = "assume", .meta = "FAMILY", .shown_default = "as config.json says"),
    DTYPE(model, dtype, any_dtype, ARITHMETIC, "bfloat16",
          "Compute dtype of the device. Master weights are always fp32; float16 is computed as bfloat16."),
    { ROW(model, device, mt_set_device, DEVICE, FREE, "auto",
          "auto (the first GPU, else the CPU), cpu, cuda, cuda:1, or the number of a GPU."),
      .meta = "DEVICE", .common = true },
    { ROW(model, devices, mt_ints, INTS, FREE, "[]",
          "Numbers of the GPUs that train together, or all. Any number up to training.shares gives the same bits. With device "
          "cpu: this many lanes on the CPU, for tests."),
      .min = 0, .max = 1023, .meta = "N,...", .word = "all", .word_value = -1 },
    ENUM(model, attn_implementation, mt_set_attention, attention, ARITHMETIC, "auto",
         "eager forces the plain attention kernel, for comparison; every other choice uses the fastest."),
    BOOL(model, trust_remote_code, FREE, "false", "Accepted without effect: code from a model repository never runs."),

    STRS(dataset, name, DATA,
         "Entries of dataset_info.json or datasets on the hub; mix_strategy mixes several. Takes precedence over path.",
         .split = true, .flag = "dataset-name", .meta = "NAME,...", .common = true),
    STR(dataset, dataset_dir, PLACE, "data",
        "The folder of dataset_info.json, searched in the current directory, beside the configuration, then in the installed "
        "data.",
        .path = true, .meta = "DIR"),
    STRS(dataset, path, PLACE,
         "Data files, folders or patterns to read directly; the layout of their records is detected. mix_strategy mixes several.",
         .path = true, .split = true, .flag = "dataset-path", .meta = "PATH,...", .common = true),
    BOOL(dataset, allow_outside_files, PLACE, "false",
         "Read what leads out of a dataset's folder, by links in it or by the paths in its dataset_info.json. Without it that is "
         "refused, because the folder may be a stranger's."),
    STR(dataset, split, DATA, "", "Split of a hub dataset, such as train, train[:1000] or train[5%:].", .meta = "SPLIT",
        .shown_default = "as registered, else train"),
    STR(dataset, subset, DATA, "", "Configuration of a dataset that has several: a folder of it, or a word of its file names.",
        .meta = "NAME", .shown_default = "as registered"),
    ENUM(dataset, sample_by, mt_sample_by, sample_by, DATA, "line",
         "Text files: each line, each paragraph (an empty line ends one) or the whole file is a document."),
    STR(dataset, field, DATA, "", "JSON files that are one object: the key of the list of records in it.", .meta = "KEY",
        .shown_default = "none"),
    STR(dataset, delimiter, DATA, "", "CSV files: the character between fields, or tab.", .meta = "CHARACTER",
        .shown_default = "a comma; in .tsv files a tab"),
    STR(dataset, query_field, DATA, "", "With path, or an unregistered hub dataset: the column with the question.",
        .meta = "COLUMN", .shown_default = "found in the data; query if response_field is set", .old_default = "query"),
    STR(dataset, response_field, DATA, "", "The column with the answer.", .meta = "COLUMN",
        .shown_default = "found in the data; response if query_field is set", .old_default = "response"),
    INT(dataset, max_seq_len, DATA, "1024", 2, 16777216, "Tokens of a sample, or of a row when packing.", .common = true),
    INT(dataset, num_workers, FREE, "auto", 0, 4096, "Tokenizer threads; auto or 0 is one per core.", .word = "auto"),
    STR(dataset, system_prompt, DATA, "", "Replaces the system message of every record.", .meta = "TEXT"),
    STR(dataset, default_system, DATA, "", "System message for records that have none.", .meta = "TEXT"),
    BOOL(dataset, train_on_prompt, DATA, "false", "Train on every token instead of only the answers."),
    BOOL(dataset, mask_history, DATA, "false", "Train only on the last answer of a conversation."),
    ENUM(dataset, history, mt_history, history, DATA, "unroll",
         "For templates that render earlier turns differently later: make one sample per turn (unroll), or use only the last "
         "turn."),
    BOOL(dataset, merge_turns, DATA, "false", "Join two turns of the same side instead of counting the record as bad."),
    STR(dataset, template, DATA, "",
        "A chat template by name (chatml, llama3, ...). auto, or the name of the model's family: the model's own.",
        .meta = "NAME", .shown_default = "the model's own", .common = true),
    { ROW(dataset, template_kwargs, mt_value, MAP, DATA, "{}",
          "Variables for the chat template, such as {enable_thinking: false}."),
      .meta = "{K: V}" },
    ENUM(dataset, empty_thought, mt_empty_thought, empty_thought, DATA, "auto",
         "For answers without a thought in a template with thoughts: add an empty thought that is trained, one that is part of "
         "the prompt, or none. auto: follows enable_thinking (true: trained, false: prompt); without that, a thought that the "
         "prompt opens is closed, and that is trained."),
    ENUM(dataset, packing, mt_tri, tri, DATA, "auto",
         "Pack whole samples into rows of max_seq_len; batch_size then counts rows. auto: on for plain text, off for chat.",
         .bare = "true", .common = true),
    ENUM(dataset, overlong, mt_overlong, overlong, DATA, "auto",
         "Samples beyond max_seq_len. auto: truncate for chat, split for plain text, and stop if too many answers are cut "
         "(max_cut_share)."),
    NUM(dataset, max_cut_share, FREE, "0.2", 0, 1,
        "Stop before the first step if at least this fraction of the answers is cut at max_seq_len. 1, or overlong: truncate: "
        "never stop."),
    BOOL(dataset, allow_untrained_end, FREE, "false",
         "Train also if no sample trains the token that ends an answer. The model would not learn to stop, so this is an error "
         "otherwise."),
    BOOL(dataset, shuffle, DATA, "true", "Shuffle by seed and epoch."),
    ENUM(dataset, mix_strategy, mt_mix_strategy, mix, DATA, "concat",
         "Several datasets: one after the other, or interleaved until the first (under) or the last (over) is used up."),
    { ROW(dataset, interleave_probs, mt_floats, FLOATS, DATA, "[]", "Probability of each dataset when interleaving."), .max = 1,
      .above_min = true, .meta = "P,...", .shown_default = "equal" },
    INT(dataset, max_samples, DATA, "all", 1, COUNT_MAX, "Use only the first N records of each dataset.", .word = "all"),
    ENUM(dataset, on_bad_record, mt_set_bad_record, bad_record, DATA, "skip",
         "Skip and count a record that cannot be used, or stop."),
    NUM(dataset, max_bad_share, FREE, "0.05", 0, 1, "Stop before the first step if a larger fraction of the records is bad."),
    STR(dataset, cache_dir, FREE, "", "Folder in which tokenized samples are stored for the next run.", .path = true,
        .meta = "DIR", .shown_default = "the user's cache directory"),
    BYTES(dataset, cache_size, FREE, "100G",
          "Size limit of that folder. Removes the samples unused for the longest time first, and all that are unused for 30 "
          "days, never those in use.",
          .word = "unlimited"),

    INT(training, batch_size, DATA, "96", 1, COUNT_MAX,
        "Samples per step, multiplied by gradient_accumulation_steps. More samples need little more memory, because the plan "
        "cuts micro-batches and sweeps. auto: the recommendation of megatrain plan, the smallest (at least 8) that is nearly the "
        "fastest.",
        .word = "auto", .common = true),
    INT(training, gradient_accumulation_steps, DATA, "1", 1, 1e6,
        "Multiplies batch_size, so that existing files keep their meaning."),
    INT(training, num_steps, FREE, "auto", 1, COUNT_MAX, "Optimizer updates. auto: as epochs says, or 100 without it.",
        .word = "auto", .common = true),
    NUM(training, epochs, FREE, "0", 0, 1e6, "Passes over the data.", .shown_default = "not set", .common = true),
    NUM(training, learning_rate, FREE, "1e-5", 0, 1000, "The peak learning rate.", .common = true),
    ENUM(training, lr_scheduler, mt_set_lr_scheduler, schedulers, FREE, "constant",
         "Learning rate schedule, by its name in transformers.", .common = true),
    INT(training, warmup_steps, FREE, "0", 0, COUNT_MAX, "Steps of linear warm-up. Takes precedence over warmup_ratio."),
    NUM(training, warmup_ratio, FREE, "0", 0, 1, "Warm-up as a fraction of all steps.", .common = true),
    NUM(training, min_lr, FREE, "auto", 0, 1000,
        "Final learning rate of the schedule (cosine_with_min_lr, cosine_warmup_with_min_lr, polynomial, warmup_stable_decay). "
        "auto: 1e-7 for polynomial, else 0.",
        .word = "auto", .word_value = -1),
    NUM(training, min_lr_ratio, FREE, "none", 0, 1, "The same as a fraction of learning_rate; give only one of them.",
        .word = "none", .word_value = -1),
    NUM(training, warmup_lr_rate, FREE, "auto", 0, 1,
        "cosine_warmup_with_min_lr: the start of the warm-up, as a fraction of learning_rate. auto: the value of its first step.",
        .word = "auto", .word_value = -1),
    NUM(training, num_cycles, FREE, "auto", 0, 1e6, "Cosine waves (auto: 0.5), or the number of restarts (auto: 1).",
        .word = "auto", .word_value = -1),
    NUM(training, power, FREE, "1", 0, 100, "Exponent of the polynomial schedule."),
    NUM(training, timescale, FREE, "auto", 0, COUNT_MAX,
        "inverse_sqrt: its time scale in steps. auto: the warm-up, or 10000 without one.", .above_min = true, .word = "auto",
        .word_value = -1),
    INT(training, num_stable_steps, FREE, "auto", 0, COUNT_MAX,
        "warmup_stable_decay: steps at the peak. auto: the remaining steps.", .word = "auto", .word_value = -1),
    INT(training, num_decay_steps, FREE, "auto", 0, COUNT_MAX, "warmup_stable_decay: steps of decay. auto: a tenth of all steps.",
        .word = "auto", .word_value = -1),
    ENUM(training, warmup_type, mt_set_curve, curves, FREE, "linear", "warmup_stable_decay: the form of the warm-up."),
    ENUM(training, decay_type, mt_set_curve, curves, FREE, "cosine", "warmup_stable_decay: the form of the decay."),
    NUM(training, weight_decay, ARITHMETIC, "0.01", 0, 1000, "Decoupled weight decay, on matrices and embeddings."),
    BOOL(training, decay_norms_and_biases, ARITHMETIC, "false", "Apply weight decay to norms and biases too."),
    NUM(training, max_grad_norm, ARITHMETIC, "1.0", 0, INFINITY,
        "Clip the gradient's global norm. 0: no clipping, which saves two bytes per parameter; .inf: only measure it.",
        .common = true),
    DTYPE(training, reduce_dtype, grad_dtype, ARITHMETIC, "float32",
          "dtype to which each of several bundles (training.bundles) is rounded before they are added: bfloat16 halves the "
          "gradients that machines send."),
    DTYPE(training, grad_dtype, grad_dtype, ARITHMETIC, "bfloat16", "dtype of finished gradients, before norm and update."),
    NUM(training, router_aux_loss, ARITHMETIC, "0", 0, 1000,
        "Models with experts: coefficient of the load-balancing loss (docs/experts.md). 0: none; model: router_aux_loss_coef of "
        "config.json.",
        .word = "model", .word_value = -1),
    ENUM(
        training, objective, mt_set_objective, objectives, ARITHMETIC, "cross_entropy",
        "Loss of a token (docs/objectives.md). dft: cross-entropy times the probability of the token; eaft: times (H / 3) to the "
        "power eaft_alpha, with the entropy H of the 20 largest logits. Gradients take both factors for constants."),
    NUM(training, label_smoothing_factor, ARITHMETIC, "0", 0, 1,
        "Part of each target that is spread evenly over the vocabulary, for the objective cross_entropy."),
    NUM(training, z_loss, ARITHMETIC, "0", 0, 1000,
        "Coefficient of the square of log sum exp of each row's logits, which is added to its loss."),
    NUM(training, eaft_alpha, ARITHMETIC, "1", 0, 1000, "Exponent of the objective eaft."),
    INT(training, max_bad_steps, FREE, "5", 1, 1e6, "Stop the run after this many non-finite steps in a row."),
    STRS(training, freeze, ARITHMETIC,
         "Tensors that are not trained: shell patterns (*, ?, [a-c]) over their names in the checkpoint. "
         "Quantized ones keep the form of their file.",
         .split = true, .meta = "PATTERN,..."),
    BOOL(training, from_scratch, MODEL, "false", "Start from random weights; only config.json is read.", .common = true),
    BOOL(training, deterministic, ARITHMETIC, "true", "true: the same seed gives the same bits; false: use the fastest kernels."),
    BOOL(training, tune_products, ARITHMETIC, "false",
         "On a GPU: time the kernels for each shape of product once, and store the fastest for this machine. Gains nothing on an "
         "H200."),
    INT(training, shares, FREE, "auto", 1, MT_SET_MOST_SHARES,
        "Parts of a step that are summed separately and then added in order: up to this many GPUs give the same bits. auto: one "
        "per GPU, or the resumed run's number. Another number gives different bits.",
        .word = "auto"),
    INT(training, bundles, FREE, "auto", 1, MT_SET_MOST_SHARES,
        "Several machines: a step has bundles times shares parts, and up to this many machines give the same bits. auto: one per "
        "machine, or the resumed run's number. Another number gives different bits.",
        .word = "auto"),
    INT(training, seed, DATA, "42", 0, 9007199254740991.0, "Seed of shuffling, splitting and random weights."),

    ENUM(optimizer, type, mt_set_optimizer_type, optimizers, FREE, "adamw",
         "adamw and deepspeed_adam are the same AdamW. lion: half of its state; a learning rate 3 to 10 times smaller and a "
         "weight_decay as much larger are usual. A resumed run keeps its optimizer.",
         .flag = "optimizer"),
    NUM(optimizer, beta1, ARITHMETIC, "0.9", 0, 1, "Decay of the first moment. lion: weight of the momentum in the update.",
        .below_max = true),
    NUM(optimizer, beta2, ARITHMETIC, "0.999", 0, 1, "Decay of the second moment. lion: decay of the momentum, 0.99 if not set.",
        .below_max = true),
    NUM(optimizer, eps, ARITHMETIC, "1e-8", 0, 1, "Added to the root of the second moment. lion: not used.", .above_min = true),

    INT(memory, checkpoint_interval, FREE, "4", 1, 4096, "Most layers between kept inputs; the plan keeps more if it fits."),
    INT(memory, num_grad_slabs, FREE, "12", 1, 4096, "Most buffers for gradients on their way to host memory."),
    BOOL(memory, strict_checkpointing, FREE, "false", "Use checkpoint_interval exactly."),
    BYTES(memory, device_memory, FREE, "auto", "Most device memory to use. auto: all free memory.", .word = "auto",
          .memory = true),
    BYTES(memory, host_memory, FREE, "auto", "Most host memory to use. auto: all free memory.", .word = "auto", .memory = true),
    ENUM(memory, home, mt_set_home, homes, FREE, "auto",
         "Home of master weights and the optimizer's state: chosen by the plan, or host memory for all of them."),
    ENUM(memory, adam_state, mt_moments, adam_states, STATE, "float32",
         "Form of Adam's two moments: 8, 4 or about 2 bytes per parameter, and of Lion's one, half as many; the smaller two are "
         "rounded stochastically "
         "(docs/memory.md).",
         .common = true),
    ENUM(memory, offload_inputs, mt_tri, tri, FREE, "auto", "Keep layer inputs in host memory. auto: if device memory is short.",
         .bare = "true"),
    INT(memory, optimizer_threads, FREE, "auto", 1, 4096, "Threads that update on the host. auto: chosen by measurement.",
        .word = "auto"),
    BOOL(memory, force, FREE, "false", "Start even if the plan does not fit.", .flag_only = true),

    { ROW(eval, val_size, double, SHARE, DATA, "0", "Samples held out from the data: a fraction below 1, or a number."),
      .max = COUNT_MAX, .meta = "SIZE", .common = true },
    INT(eval, val_seed, DATA, "auto", 0, 9007199254740991.0, "Seed of that split. auto: training.seed.", .word = "auto",
        .word_value = -1),
    STRS(eval, dataset, FREE, "Datasets to evaluate on, instead of val_size: like dataset.name, or data files by path.",
         .split = true, .path = true, .flag = "eval-dataset", .meta = "NAME,..."),
    INT(eval, eval_steps, FREE, "0", 0, COUNT_MAX,
        "Updates between evaluations; 0: only at the start and the end; epoch: at the end of each epoch.", EPOCH, .common = true),
    BOOL(eval, at_start, FREE, "true", "Evaluate before the first step.", .flag = "eval-at-start"),
    INT(eval, max_samples, FREE, "all", 1, COUNT_MAX, "Evaluate only on the first N records.", .word = "all",
        .flag = "eval-max-samples"),

    STR(save, output_dir, FREE, "", "The run's directory. It is never overwritten without --overwrite.", .path = true,
        .meta = "DIR", .shown_default = "runs/<config name>", .common = true),
    INT(save, save_steps, FREE, "500", 0, COUNT_MAX,
        "Updates between checkpoints; 0: only at the end and on a signal; epoch: at the end of each epoch.", EPOCH,
        .common = true),
    INT(save, keep_last, FREE, "2", 1, COUNT_MAX, "Number of checkpoints to keep.", .word = "all"),
    BOOL(save, save_only_model, FREE, "false",
         "Save checkpoints without resume state (12 bytes less per parameter), and none at the end."),
    DTYPE(save, dtype, any_dtype, FREE, "auto", "dtype of the saved weights. auto: the source's.", .word = "auto",
          .word_value = MT_DTYPE_COUNT, .flag = "save-dtype"),
    BYTES(save, max_shard_size, FREE, "5G", "Approximate size of one safetensors file."),
    STR(save, resume, FREE, "", "Continue from the newest complete checkpoint, or from this one.", .flag_only = true,
        .path = true, .bare = "latest", .meta = "DIR", .shown_default = "no", .common = true),
    BOOL(save, overwrite, FREE, "false", "Remove the run in the output directory and start over.", .flag_only = true,
         .common = true),

    NUM(run, comm_timeout, FREE, "300", 0, 1e6,
        "Seconds of silence after which another machine counts as lost. A machine that is this late with a step ends the run "
        "too.",
        .above_min = true),

    INT(logging, log_interval, FREE, "1", 1, COUNT_MAX, "Updates between lines of metrics; epoch: one at the end of each epoch.",
        EPOCH),
    BOOL(logging, enable_timing, FREE, "true", "Record where each step's time went."),
    STR(logging, metrics_file, FREE, "metrics.jsonl", "JSON lines, inside output_dir unless absolute.", .path = true,
        .meta = "FILE"),
    ENUM(logging, color, mt_tri, tri, FREE, "auto", "Color in the terminal. auto: unless NO_COLOR is set.", .bare = "true"),
    BOOL(logging, tensorboard, FREE, "false", "Also write TensorBoard event files."),
    INT(logging, dashboard, FREE, "off", 1, 65535,
        "Serve a live page of the run on this port of the loopback interface. true, or the flag without a number: 8088, or the "
        "next free port.",
        .word = "off", .bare = "8088", .meta = "PORT", .common = true),
    STRS(logging, sample_prompts, FREE,
         "Prompts that the model answers during the run, with up to 128 tokens each; the answers go to the log and the metrics.",
         .meta = "TEXT|[...]"),
    INT(logging, sample_steps, FREE, "0", 0, COUNT_MAX,
        "Updates between those answers; 0: only at the end; epoch: at the end of each epoch.", EPOCH),
};
const size_t mt__n_settings = MT_COUNT(mt__settings);
_Static_assert(MT_COUNT(mt__settings) <= MT_SETTINGS_MAX, "raise MT_SETTINGS_MAX");

const mt_setting *mt__setting_find(const char *section, const char *key)
{
    for (size_t i = 0; i < mt__n_settings; i++)
        if (strcmp(mt__settings[i].section, section) == 0 && strcmp(mt__settings[i].key, key) == 0) return &mt__settings[i];
    return NULL;
}

static char dash(char c) { return c == '_' ? '-' : c; }

const mt_setting *mt__setting_by_flag(const char *name, size_t n)
{
    for (size_t i = 0; i < mt__n_settings; i++) {
        const mt_setting *row = &mt__settings[i];
        const char *flag = row->flag ? row->flag : row->key;
        size_t j = 0;
        while (j < n && flag[j] && dash(flag[j]) == dash(name[j])) j++;
        if (j == n && !flag[j]) return row;
    }
    return NULL;
}

mt_flag_text mt__setting_flag(const mt_setting *row)
{
    mt_flag_text t;
    snprintf(t.s, sizeof t.s, "--%s", row->flag ? row->flag : row->key);
    for (char *p = t.s; *p; p++) *p = dash(*p);
    return t;
}

mt_flag_text mt__setting_key(const mt_setting *row)
{
    mt_flag_text t;
    snprintf(t.s, sizeof t.s, "%s.%s", row->section, row->key);
    return t;
}
