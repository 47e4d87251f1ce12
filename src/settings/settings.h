/* settings.h - every setting, the origin of each value, and how values are read and shown.
 *
 * One table (table.c) has a row per setting: its YAML key, flag, type, default, range and help.  The reader
 * of YAML files, the command line, --help, docs/configuration.md, --dry-run and the resume check all walk it.
 * To add a setting, add a field here and a row there.
 *
 *     mt_settings s;
 *     MT_TRY(mt_settings_init(&s, err));                     // defaults
 *     rc = mt_settings_args(&s, &argc, argv, err);           // --config first, then flags and --set
 *     if (!rc) rc = mt_settings_check(&s, MT_NEED_MODEL | MT_NEED_DATA, err);
 *     ... s.training.batch_size ...
 *     mt_settings_deinit(&s);
 *
 * Strings, lists and notices live in the settings' own arena and are never NULL; an empty string or list means
 * "not given".  After mt_settings_check nothing changes.  Not thread-safe while it is being filled. */
#ifndef MT_SETTINGS_SETTINGS_H
#define MT_SETTINGS_SETTINGS_H

#include "base/choices.h"
#include "base/dtype.h"
#include "base/str.h"
#include "base/value.h"
#include "ops/update.h"

/* In place of a number of updates between two events: at the end of each epoch. */
enum { MT_EVERY_EPOCH = -1 };

/* Choices of the settings alone; those that the data code carries out are in base/choices.h. */
typedef enum mt_tri { MT_TRI_AUTO, MT_TRI_FALSE, MT_TRI_TRUE } mt_tri;
typedef enum mt_set_attention {
    MT_SET_ATTENTION_AUTO,
    MT_SET_ATTENTION_FLASH_2,
    MT_SET_ATTENTION_SDPA,
    MT_SET_ATTENTION_EAGER
} mt_set_attention;
typedef enum mt_set_bad_record { MT_SET_BAD_RECORD_SKIP, MT_SET_BAD_RECORD_STOP } mt_set_bad_record;
typedef enum mt_set_optimizer_type {
    MT_SET_OPTIMIZER_ADAMW,
    MT_SET_OPTIMIZER_DEEPSPEED_ADAM, /* the same */
    MT_SET_OPTIMIZER_LION
} mt_set_optimizer_type;
typedef enum mt_set_home { MT_SET_HOME_AUTO, MT_SET_HOME_HOST } mt_set_home;
typedef enum mt_set_objective { MT_SET_OBJECTIVE_CROSS_ENTROPY, MT_SET_OBJECTIVE_DFT, MT_SET_OBJECTIVE_EAFT } mt_set_objective;
typedef enum mt_set_curve { MT_SET_CURVE_LINEAR, MT_SET_CURVE_COSINE, MT_SET_CURVE_1_SQRT } mt_set_curve;

/* transformers' SchedulerType, less those that need more than the step number. */
typedef enum mt_set_lr_scheduler {
    MT_SET_LR_CONSTANT,
    MT_SET_LR_CONSTANT_WITH_WARMUP,
    MT_SET_LR_LINEAR,
    MT_SET_LR_COSINE,
    MT_SET_LR_COSINE_WITH_RESTARTS,
    MT_SET_LR_COSINE_WITH_MIN_LR,
    MT_SET_LR_COSINE_WARMUP_WITH_MIN_LR,
    MT_SET_LR_POLYNOMIAL,
    MT_SET_LR_INVERSE_SQRT,
    MT_SET_LR_WARMUP_STABLE_DECAY,
} mt_set_lr_scheduler;

typedef enum mt_set_device_kind { MT_SET_DEVICE_AUTO, MT_SET_DEVICE_CPU, MT_SET_DEVICE_CUDA } mt_set_device_kind;
typedef struct mt_set_device {
    mt_set_device_kind kind; /* AUTO: the first GPU where there is one, else the CPU */
    int index;               /* of the GPU; 0 otherwise */
} mt_set_device;

typedef struct mt_strs {
    const char *const *items;
    size_t n;
} mt_strs;
typedef struct mt_ints {
    const int64_t *items;
    size_t n;
} mt_ints;
typedef struct mt_floats {
    const double *items;
    size_t n;
} mt_floats;

typedef struct mt_model_settings {
    const char *name;                     /* a directory or a name on the hub */
    const char *dir;                      /* where its files are, once that is known; NULL: `name` is the directory */
    const char *revision;                 /* branch, tag or commit on the hub; "": the default branch */
    const char *family;                   /* of an unknown model_type: the family it computes as; "": config.json decides */
    mt_dtype dtype;                       /* what the device computes with: BF16, F32, or F16 (computed as BF16) */
    mt_set_device device;                 /* after mt_settings_check the first of `devices`, if there are any */
    mt_ints devices;                      /* GPU numbers; a single -1: all; empty: `device` alone */
    mt_set_attention attn_implementation; /* EAGER: the plain attention, for comparing; all others: the fastest */
    bool trust_remote_code;               /* accepted, no effect: no code from a model repository ever runs */
} mt_model_settings;

typedef struct mt_dataset_settings {
    mt_strs name;                    /* entries of dataset_info.json or names on the hub, joined */
    const char *dataset_dir;         /* where dataset_info.json is */
    mt_strs path;                    /* files, folders or hub names read directly, joined; used when `name` is empty */
    bool allow_outside_files;        /* links and paths that lead out of a dataset's folder are followed */
    const char *split;               /* "": what the registry says, else train */
    const char *subset;              /* "": what the registry says, else the default configuration */
    mt_sample_by sample_by;          /* what of a text file is a document */
    const char *field;               /* JSON: the records are the list under this key; "": the file itself */
    const char *delimiter;           /* CSV: one character or "tab"; "": by the file's name */
    const char *query_field;         /* with `path`: the column that asks; "": both are found in the data */
    const char *response_field;      /* with `path`: the column that answers */
    int64_t max_seq_len;             /* tokens of a sample, or of a packed row */
    int64_t num_workers;             /* tokenizer threads; 0: one per core */
    const char *system_prompt;       /* replaces every record's system turn; "": keep them */
    const char *default_system;      /* fills in where a record has no system turn; "": none */
    bool train_on_prompt;            /* train on every token, not the answers alone */
    bool mask_history;               /* train on the last answer of a conversation only */
    mt_history history;              /* conversations whose earlier turns render differently later on */
    bool merge_turns;                /* join two turns of the same side instead of calling the record bad */
    const char *template;            /* a built-in chat template; "" or auto: the model's own */
    mt_value template_kwargs;        /* a map, handed to the chat template */
    mt_empty_thought empty_thought;  /* what an answer without a thought gets where the template thinks */
    mt_tri packing;                  /* AUTO: on for plain text, off for chat */
    mt_overlong overlong;            /* AUTO: TRUNCATE for chat, SPLIT for plain text */
    double max_cut_share;            /* from this share of cut answers on the run stops before step 0; 1: never */
    bool allow_untrained_end;        /* train also if no sample trains the token that ends an answer */
    bool shuffle;                    /* by seed and epoch */
    mt_mix_strategy mix_strategy;    /* how several datasets become one */
    mt_floats interleave_probs;      /* one per dataset; empty: equal */
    int64_t max_samples;             /* only the first N records of each dataset; 0: all */
    mt_set_bad_record on_bad_record; /* a record that cannot be used: skip and count it, or stop */
    double max_bad_share;            /* more bad records than this share stop the run before step 0 */
    const char *cache_dir;           /* tokenized samples; "": the user's cache directory */
    uint64_t cache_size;             /* bytes of them at most; 0: any number */
} mt_dataset_settings;

enum { MT_SET_MOST_SHARES = 4096, MT_SET_MOST_DEVICES = 64 };

typedef struct mt_training_settings {
    mt_set_objective objective;
    double label_smoothing_factor, z_loss, eaft_alpha; /* numbers of objectives (model/objective.h) */

    int64_t batch_size;                  /* samples (rows, when packing) of one pass; 0: auto, ask the plan */
    int64_t gradient_accumulation_steps; /* a step is batch_size times this */
    int64_t num_steps;                   /* optimizer updates; 0 after mt_settings_check: `epochs` decides */
    double epochs;                       /* passes over the data; 0: num_steps decides */
    double learning_rate;                /* the peak, reached after warm-up */
    mt_set_lr_scheduler lr_scheduler;    /* how the learning rate moves from step to step */
    int64_t warmup_steps;                /* wins over warmup_ratio */
    double warmup_ratio;                 /* share of all steps */
    double min_lr;               /* where the schedule ends; negative, here and below: not given, transformers' default holds */
    double min_lr_ratio;         /* the same as a share of learning_rate (its min_lr_rate and min_lr_ratio) */
    double warmup_lr_rate;       /* cosine_warmup_with_min_lr: where the warm-up starts */
    double num_cycles;           /* cosine: waves, or restarts */
    double power;                /* polynomial */
    double timescale;            /* inverse_sqrt */
    int64_t num_stable_steps;    /* warmup_stable_decay; negative: what the other two leave */
    int64_t num_decay_steps;     /* warmup_stable_decay; negative: a tenth of all steps */
    mt_set_curve warmup_type;    /* warmup_stable_decay */
    mt_set_curve decay_type;     /* warmup_stable_decay */
    double weight_decay;         /* decoupled: w -= lr * weight_decay * w */
    bool decay_norms_and_biases; /* weight decay on norms and biases too, as the original did */
    double max_grad_norm;        /* 0: no clipping; infinity: measure the norm, clip nothing */
    mt_dtype reduce_dtype;       /* bundles are rounded to it before they are added: BF16 or F32 */
    mt_dtype grad_dtype;         /* finished gradients are rounded to it: BF16 or F32 */
    double router_aux_loss;      /* coefficient of the routers' load-balancing loss; 0: none; negative: config.json's */
    int64_t max_bad_steps;       /* this many non-finite steps in a row stop the run */
    mt_strs freeze;              /* shell patterns of tensor names that are not trained */
    bool from_scratch;           /* random weights from config.json alone */
    bool deterministic;          /* the same seed gives the same bits */
    bool tune_products;          /* kernels of products are chosen by timing them, once a machine */
    int64_t shares;              /* parts of a step that are summed apart; 0: auto */
    int64_t bundles;             /* sums of that many shares meet first, on one machine; 0: auto */
    int64_t seed;                /* of shuffling, splitting and random weights */
} mt_training_settings;

typedef struct mt_optimizer_settings {
    mt_set_optimizer_type type; /* as written; mt_settings_optimizer says which one it is */
    double beta1, beta2;        /* AdamW: decay of the first and second moment, [0, 1) */
    double eps;                 /* AdamW: added to the root of the second moment, above 0 */
} mt_optimizer_settings;

typedef struct mt_memory_settings {
    int64_t checkpoint_interval; /* layers between kept inputs, at most; the plan keeps more when it fits */
    int64_t num_grad_slabs;      /* pinned buffers for gradients on their way out, at most */
    bool strict_checkpointing;   /* hold checkpoint_interval exactly */
    uint64_t device_memory;      /* bytes of device memory to use at most; 0: all that is free */
    uint64_t host_memory;        /* bytes of host memory to use at most; 0: all that is free */
    mt_set_home home;            /* where master weights and the optimizer's state may live */
    mt_moments adam_state;       /* how the optimizer's arrays are stored */
    mt_tri offload_inputs;       /* kept layer inputs in host memory */
    int64_t optimizer_threads;   /* updates on the host; 0: measured */
    bool force;                  /* flag only: start although the plan says that it does not fit */
} mt_memory_settings;

typedef struct mt_eval_settings {
    double val_size;     /* below 1: share of the data held out; from 1: number of samples; 0: none */
    int64_t val_seed;    /* of the split; negative: training.seed */
    mt_strs dataset;     /* entries like dataset.name, or files, instead of val_size */
    int64_t eval_steps;  /* updates between evaluations, or MT_EVERY_EPOCH; 0: only at the start and the end */
    bool at_start;       /* evaluate before the first step */
    int64_t max_samples; /* evaluate on the first N only; 0: all */
} mt_eval_settings;

typedef struct mt_save_settings {
    const char *output_dir;  /* after mt_settings_check: never empty */
    int64_t save_steps;      /* updates between checkpoints, or MT_EVERY_EPOCH; 0: only at the end and on a signal */
    int64_t keep_last;       /* checkpoints kept; 0: all */
    bool save_only_model;    /* checkpoints without the resume files */
    mt_dtype dtype;          /* of the saved weights; MT_DTYPE_COUNT: as the source has them */
    uint64_t max_shard_size; /* bytes of one safetensors file, about */
    const char *resume;      /* flag only: "" no, "latest", or a checkpoint directory */
    bool overwrite;          /* flag only: start anew in a directory that holds a run */
} mt_save_settings;

typedef struct mt_logging_settings {
    int64_t log_interval;     /* updates between metrics lines, or MT_EVERY_EPOCH */
    bool enable_timing;       /* where each step's time went */
    const char *metrics_file; /* JSON lines; relative to output_dir */
    mt_tri color;             /* AUTO: on a terminal, unless NO_COLOR is set */
    bool tensorboard;         /* also write event files into output_dir */
    int64_t dashboard;        /* port of the live page on loopback; 0: off */
    mt_strs sample_prompts;   /* prompts answered during the run, to look at */
    int64_t sample_steps;     /* updates between samples; 0: only at the end */
} mt_logging_settings;

typedef struct mt_run_settings {
    double comm_timeout; /* seconds of silence after which another machine counts as lost */
} mt_run_settings;

/* What a changed setting means to a run that is resumed. */
typedef enum mt_setting_class {
    MT_CLASS_FREE,       /* may change: speed, places, length of the run, learning rate, output */
    MT_CLASS_ARITHMETIC, /* may change, and the bits will */
    MT_CLASS_PLACE,      /* may change, if the contents are the same */
    MT_CLASS_STATE,      /* another form of what a checkpoint stores: refused */
    MT_CLASS_DATA,       /* another data order: refused */
    MT_CLASS_MODEL,      /* another model: refused */
} mt_setting_class;

typedef enum mt_origin { MT_ORIGIN_DEFAULT, MT_ORIGIN_FILE, MT_ORIGIN_FLAG } mt_origin;

typedef struct mt_setting_source {
    mt_origin origin;
    const char *name; /* the file, or the flag as typed ("--batch-size"); for a default "", or whose it is */
    int line;         /* in the file */
} mt_setting_source;

enum { MT_SETTINGS_MAX = 128, MT_NOTICES_MAX = 64 };

typedef struct mt_settings {
    mt_model_settings model;
    mt_dataset_settings dataset;
    mt_training_settings training;
    mt_optimizer_settings optimizer;
    mt_memory_settings memory;
    mt_eval_settings eval;
    mt_save_settings save;
    mt_logging_settings logging;
    mt_run_settings run;

    const char *config_path;                    /* the file that was read; "": none */
    bool flat;                                  /* it was one as LLaMA-Factory has them */
    bool batch_per_device;                      /* training.batch_size is of each device (per_device_train_batch_size) */
    mt_setting_source sources[MT_SETTINGS_MAX]; /* by table row; see mt_settings_where */
    const char *notices[MT_NOTICES_MAX];        /* for the banner: one sentence each */
    size_t n_notices;
    mt_arena arena; /* owns every string and list above */
} mt_settings;

/* Defaults.  On failure there is nothing to deinit. */
mt_rc mt_settings_init(mt_settings *s, mt_err *err);
void mt_settings_deinit(mt_settings *s); /* accepts a zeroed one */

/* A YAML file, or its text; `name` stands for the file in messages and sources. */
mt_rc mt_settings_read(mt_settings *s, const char *path, mt_err *err);
mt_rc mt_settings_parse(mt_settings *s, const char *text, size_t n, const char *name, mt_err *err);

/* One value by key ("training.batch_size"); `flag` is its source and names it in messages. */
mt_rc mt_settings_set(mt_settings *s, const char *key, const char *value, const char *flag, mt_err *err);

/* Take what belongs to the settings out of argv (--config FILE or a FILE.yaml alone, --set section.key=value, and every
 * setting's own flag, as --flag VALUE or --flag=VALUE); the rest moves up and *argc shrinks.  argv[0] and everything from `--`
 * on stay; argv must end in NULL, as main's does.  The file is read first, wherever it stands.  A setting may be given once; a
 * list any number of times, each of which adds to it. */
mt_rc mt_settings_args(mt_settings *s, int *argc, char **argv, mt_err *err);
/* For an unknown flag: the closest known one ("--batch-size") in out, or "". */
void mt_settings_nearest_flag(const char *typed, char out[48]);

/* The model's directory: mt_settings_place_model's, else model.name. */
const char *mt_settings_model_dir(const mt_settings *s);
/* A model that is given by name has been found: copied. */
mt_rc mt_settings_place_model(mt_settings *s, const char *dir, mt_err *err);

enum { MT_NEED_MODEL = 1, MT_NEED_DATA = 2 };
/* Checks settings against each other, resolves open ones, collects notices.  Call once, last. */
mt_rc mt_settings_check(mt_settings *s, int needs, mt_err *err);
/* The optimizer that optimizer.type names. */
mt_optimizer_kind mt_settings_optimizer(const mt_settings *s);

/* Every setting but the flag-only ones, or those alone that are not at megatrain's default: key, value and source in aligned
 * columns. */
void mt_settings_print(const mt_settings *s, bool all, mt_str *out);
/* The same as a YAML file that reads back equal. */
void mt_settings_write_yaml(const mt_settings *s, mt_str *out);
/* Those that are wanted, without blank lines, each line moved in by `indent`. */
void mt_settings_write_some(const mt_settings *s, bool (*wanted)(const mt_settings *, const char *key), int indent, mt_str *out);
mt_origin mt_settings_origin(const mt_settings *s, const char *key);
/* True if a file or a flag set it; false: the default. */
bool mt_settings_given(const mt_settings *s, const char *key);
/* Where a setting came from: "qwen.yaml:12", "--batch-size" or "default". */
void mt_settings_where(const mt_settings *s, const char *key, mt_str *out);

/* A number that does not come from a file or a flag: MT_ERANGE if the setting does not allow it. */
mt_rc mt_settings_check_number(const char *section, const char *key, double value, mt_err *err);

/* The word of a setting that is a choice ("cosine" for "training.lr_scheduler"); NULL for any other key. */
const char *mt_settings_choice(const mt_settings *s, const char *key);

/* --help: the flags by section, at most 80 columns wide; those that most runs use, or all. */
void mt_settings_help(mt_str *out, bool all);
/* The words that a flag ("--lr-scheduler") may be followed by, a line each; nothing if they cannot be listed. */
void mt_settings_values(mt_str *out, const char *flag);
/* docs/configuration.md. */
void mt_settings_reference(mt_str *out);

typedef struct mt_setting_change {
    const char *key; /* "training.seed" */
    mt_setting_class cls;
    const char *was, *now; /* as YAML would write them */
} mt_setting_change;

typedef struct mt_setting_changes {
    mt_setting_change items[MT_SETTINGS_MAX];
    size_t n;
    mt_arena arena; /* owns the strings */
} mt_setting_changes;

/* What differs between a stored run's settings and today's. */
mt_rc mt_settings_diff(mt_setting_changes *out, const mt_settings *was, const mt_settings *now, mt_err *err);
void mt_setting_changes_free(mt_setting_changes *changes);
const char *mt_setting_class_name(mt_setting_class cls); /* "free", "arithmetic", "place", "state", "data", "model" */

#endif
