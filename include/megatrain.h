/* megatrain.h - train, evaluate and run Hugging Face decoder models from C.
 *
 * This header is the whole interface.  A program includes it and builds with
 *
 *     cc -o program program.c $(pkg-config --cflags --libs megatrain)
 *
 * There are two ways to train.
 *
 * A whole run.  A configuration names the model, the data and the settings.  megatrain_train() does what `megatrain train`
 * does: it plans, loads, trains, evaluates, writes checkpoints and leaves the finished model in save.output_dir.
 *
 *     megatrain_error error;
 *     megatrain_config *config = NULL;
 *     if (megatrain_config_create(&config, &error) || megatrain_config_read(config, "my.yaml", &error) ||
 *         megatrain_config_set(config, "training.num_steps", "60", &error) || megatrain_train(config, NULL, NULL, &error))
 *         fprintf(stderr, "%s\n", error.message);
 *     megatrain_config_free(config);
 *
 * Your own loop.  megatrain_model_open() opens the model that a configuration names.  Your program brings the tokens and decides
 * what happens when.
 *
 *     megatrain_model *model = NULL;
 *     megatrain_result result;
 *     megatrain_document documents[] = { { tokens, NULL, 17 }, { more_tokens, labels, 23 } };
 *     if (megatrain_model_open(&model, config, MEGATRAIN_TRAIN, &error)) ...
 *     if (megatrain_model_step(model, documents, 2, &result, &error)) ...
 *     if (megatrain_model_save(model, "my-model", &error)) ...
 *     megatrain_model_close(model);
 *
 * Errors.  A function that can fail returns a megatrain_status, which is 0 (MEGATRAIN_OK) on success, and takes a
 * megatrain_error last.  Pass NULL if you do not want the message.  The library never prints, never exits and never asserts on
 * what a caller passes: a NULL or a wrong size is MEGATRAIN_EINVAL or MEGATRAIN_ERANGE.  Where a message names a flag such as
 * --resume, it means the setting that docs/configuration.md lists with that flag (save.resume).  One thing it cannot turn into an
 * error: a data file that another process shortens while it is mapped ends the program with SIGBUS.
 *
 * Ownership.  What create or open hands out belongs to the caller until free or close, which accept NULL.  A function that fails
 * hands out nothing (it sets *out to NULL).  Everything else that is passed is borrowed for the call.
 *
 * Threads.  One thread at a time may use a model or change a configuration.  Different models may be used by different threads
 * at once; each has its own device memory, threads and plan, and none sees the memory that another is about to take, so open them
 * one after the other.  A configuration that no thread changes may be shared.  Callbacks run on the thread that made the call,
 * except for notices.  The library uses OpenBLAS with one thread a call and sets that for the whole process.
 *
 * Locales.  The library writes and reads numbers as in the C locale, whatever setlocale() has chosen.  Its own threads work in the C
 * locale, and so does the caller's thread during a call, callbacks included.
 *
 * Results.  The same configuration, tokens and seed give the same numbers, bit for bit, on the same machine.
 *
 * Names.  All names begin with megatrain_ or MEGATRAIN_.  The implementation uses mt_ and MT_, which a static library cannot
 * hide: a program that links it should not define global names that begin so.
 *
 * The header compiles as C11 and as C++17. */
#ifndef MEGATRAIN_H
#define MEGATRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors and notices ------------------------------------------------------------------------- */

typedef enum megatrain_status {
    MEGATRAIN_OK,           /* success */
    MEGATRAIN_EINVAL,       /* an argument or a setting makes no sense */
    MEGATRAIN_ERANGE,       /* a number is outside what is allowed */
    MEGATRAIN_ENOMEM,       /* not enough memory, on the host or on the device */
    MEGATRAIN_EIO,          /* the operating system refused a file operation */
    MEGATRAIN_ENOENT,       /* a file, tensor or name that must exist does not */
    MEGATRAIN_EFORMAT,      /* a file is not what it claims to be */
    MEGATRAIN_EUNSUPPORTED, /* understood, but not supported */
    MEGATRAIN_EDEVICE,      /* the device failed */
    MEGATRAIN_ENUMERIC,     /* a number that must be finite is not */
    MEGATRAIN_ESTOPPED,     /* stopped on request */
    MEGATRAIN_EBUSY,        /* another process uses it */
    MEGATRAIN_EINTERNAL     /* a bug in the library, noticed in time */
} megatrain_status;

typedef struct megatrain_error {
    megatrain_status status;
    char message[2048]; /* what happened, to what, what was expected, what to do next; "" on success */
} megatrain_error;

/* The library's version, "0.1.0". */
const char *megatrain_version(void);
/* "MEGATRAIN_ENOMEM" for MEGATRAIN_ENOMEM. */
const char *megatrain_status_name(megatrain_status status);

typedef enum megatrain_level { MEGATRAIN_DEBUG, MEGATRAIN_INFO, MEGATRAIN_WARNING } megatrain_level;

/* Receive what the library has to say besides errors, such as a file whose records had to be skipped.  There is one receiver for
 * the whole process; NULL removes it, and then notices are dropped.  It is called from any thread, one call at a time, and must
 * not call the library itself.  Set it before other threads use the library. */
void megatrain_set_notices(void (*receive)(void *user, megatrain_level level, const char *text), void *user);

/* ---- configurations ----------------------------------------------------------------------------- */

/* What `megatrain train` reads from a YAML file and from flags.  docs/configuration.md lists every setting.  Settings that are
 * often needed:
 *
 *     model.name                      a model directory, a .gguf file, or a name on the Hugging Face hub
 *     model.device                    auto (a GPU if there is one), cpu, cuda, cuda:1
 *     model.dtype                     what the device computes in: bfloat16 or float32
 *     dataset.path, dataset.name      the data of a whole run
 *     dataset.max_seq_len             tokens of a document, at most
 *     training.batch_size             documents of a step, at most; auto: as many as the plan recommends
 *     training.num_steps              updates of a whole run, and the length of the learning rate's schedule
 *     training.learning_rate, training.lr_scheduler, training.weight_decay, training.max_grad_norm, training.seed
 *     training.from_scratch           true: random weights from config.json alone
 *     memory.device_memory, memory.host_memory    use no more than this: 8G, 64M
 *     save.output_dir                 where a whole run writes */
typedef struct megatrain_config megatrain_config;

/* A configuration with every setting at its default. */
megatrain_status megatrain_config_create(megatrain_config **out, megatrain_error *error);
/* Read a YAML file (megatrain's own, MegaTrain's or LLaMA-Factory's) over what is there.  If it is refused, nothing changes, and
 * the message lists everything that is wrong with it. */
megatrain_status megatrain_config_read(megatrain_config *config, const char *path, megatrain_error *error);
/* Set one value by its key ("training.batch_size"), written as in YAML ("8").  Of two values for a key, the later one counts. */
megatrain_status megatrain_config_set(megatrain_config *config, const char *key, const char *value, megatrain_error *error);
void megatrain_config_free(megatrain_config *config);

/* ---- planning ----------------------------------------------------------------------------------- */

/* What training would take on this machine. */
typedef struct megatrain_plan_info {
    bool fits;                              /* false: `why` lists what is missing; there is no plan to describe */
    char why[2048];                         /* "" if it fits */
    char device[128];                       /* what computes */
    char placement[512];                    /* where weights and state are, in a sentence */
    int64_t batch_size;                     /* documents of a step: batch_size times gradient_accumulation_steps */
    int64_t max_seq_len;                    /* tokens of a document, at most */
    uint64_t host_bytes, device_bytes;      /* memory that the plan needs, of the host and of each device */
    uint64_t host_usable, device_usable;    /* memory that it may use */
    double step_seconds, tokens_per_second; /* predicted, for full steps; 0: not predicted */
} megatrain_plan_info;

/* Plan without loading a weight: only config.json is needed, and fetched if the model is on the hub.  A model that does not fit is
 * an answer (out->fits is false), not an error. */
megatrain_status megatrain_plan(const megatrain_config *config, megatrain_plan_info *out, megatrain_error *error);

/* ---- a whole run -------------------------------------------------------------------------------- */

/* One update. */
typedef struct megatrain_progress {
    int64_t step, n_steps; /* updates done, updates in all */
    double epoch;
    double loss, learning_rate, grad_norm; /* loss: the mean since the last line of metrics */
    double seconds, tokens_per_second;     /* of a step with trained tokens, likewise a mean; 0: there was none */
    bool skipped;                          /* loss or gradient was not finite: nothing was updated */
} megatrain_progress;

/* One evaluation on the held-out data. */
typedef struct megatrain_evaluation {
    int64_t step;
    double loss, perplexity, accuracy; /* over trained tokens */
    int64_t n_trained;
} megatrain_evaluation;

/* Callbacks of a run; any may be NULL.  They are called on the thread that called megatrain_train(). */
typedef struct megatrain_hooks {
    void *user; /* handed to each of them */
    void (*loading)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void (*step)(void *user, const megatrain_progress *progress);          /* after every update */
    void (*evaluated)(void *user, const megatrain_evaluation *evaluation); /* after every evaluation */
    void (*saved)(void *user, const char *checkpoint_dir);                 /* after every checkpoint */
    /* Asked after every update; true ends the run with a checkpoint, from which save.resume: latest continues. */
    bool (*stop)(void *user);
} megatrain_hooks;

typedef struct megatrain_outcome {
    int64_t step;          /* updates done */
    int64_t n_skipped;     /* of them: not finite, or nothing to train on */
    bool stopped;          /* hooks->stop ended the run before its last step */
    double loss;           /* of the last step */
    char checkpoint[4096]; /* the newest checkpoint; "": there is none.  No path that can be opened is longer */
    char model_dir[4096];  /* the finished model; "": the run was stopped */
} megatrain_outcome;

/* Train from a configuration to its last step, or until hooks->stop() returns true.  hooks and out may be NULL.  A directory
 * that holds a run already is refused unless save.resume is "latest" or save.overwrite is "true".  Unlike the program it serves no
 * dashboard and writes neither log.txt nor report.html. */
megatrain_status megatrain_train(const megatrain_config *config, const megatrain_hooks *hooks, megatrain_outcome *out,
                                 megatrain_error *error);

/* ---- a model of your own loop ------------------------------------------------------------------- */

typedef struct megatrain_model megatrain_model;

/* What a model is opened for; add them up.  Evaluation and logits need neither. */
enum {
    MEGATRAIN_TRAIN = 1,   /* keep masters, gradients and the optimizer's state: step and save */
    MEGATRAIN_GENERATE = 2 /* keep memory for the keys and values of one sequence */
};

/* Open the model that config names (model.name), plan for this machine and load the weights.  The plan has room for documents of
 * up to dataset.max_seq_len tokens, and for up to training.batch_size times training.gradient_accumulation_steps of them a step.
 * Datasets and save.output_dir are not used.
 *
 * After a failure of the device, of memory or of numbers in any later call the model can only be closed: every call returns that
 * first error again.  A call that was refused for its arguments (MEGATRAIN_EINVAL, MEGATRAIN_ERANGE) changes nothing, and the next
 * may succeed. */
megatrain_status megatrain_model_open(megatrain_model **out, const megatrain_config *config, int uses, megatrain_error *error);
void megatrain_model_close(megatrain_model *model);

typedef struct megatrain_info {
    char family[64];                     /* "llama" */
    int64_t n_parameters, n_trained;     /* n_trained: those that are not frozen */
    int64_t n_layers, width, vocabulary; /* tokens are 0 to vocabulary - 1 */
    int64_t max_positions;               /* that the model was made for */
    int64_t n_steps;                     /* megatrain_model_step calls that succeeded */
    double learning_rate;                /* of the next step */
    megatrain_plan_info plan;            /* plan.batch_size and plan.max_seq_len bound what a step takes */
} megatrain_info;

megatrain_status megatrain_model_info(const megatrain_model *model, megatrain_info *out, megatrain_error *error);

/* A label that is not trained. */
enum { MEGATRAIN_IGNORE = -100 };

/* Tokens that belong together.  Documents never see each other, and need no padding. */
typedef struct megatrain_document {
    const int32_t *tokens; /* [n_tokens] */
    /* [n_tokens] as Hugging Face has them: label i is what position i - 1 should predict, usually tokens[i], or MEGATRAIN_IGNORE.
     * The shift happens here.  NULL: every token is trained. */
    const int32_t *labels;
    size_t n_tokens; /* at least 1 */
} megatrain_document;

typedef struct megatrain_result {
    double loss;      /* mean over trained tokens; NaN if there are none */
    double grad_norm; /* before clipping; 0 for an evaluation */
    double learning_rate;
    int64_t n_tokens, n_trained;
    int64_t n_correct; /* trained tokens that were the likeliest */
    bool skipped;      /* loss or gradient was not finite: nothing was updated */
    bool empty;        /* no token to train on: nothing was computed */
} megatrain_result;

/* One update from these documents: forward, backward, clip, update.  All documents of a step count as one batch, however the plan
 * cuts them into micro-batches.  out may be NULL.  Needs MEGATRAIN_TRAIN. */
megatrain_status megatrain_model_step(megatrain_model *model, const megatrain_document *documents, size_t n_documents,
                                      megatrain_result *out, megatrain_error *error);
/* Use this learning rate from the next step on, instead of training.learning_rate and training.lr_scheduler.  It has the bounds of
 * training.learning_rate; a negative one returns to the settings.  Past training.num_steps a schedule follows its formula: a cosine rises again. */
megatrain_status megatrain_model_set_learning_rate(megatrain_model *model, double learning_rate, megatrain_error *error);
/* Loss and accuracy; changes nothing. */
megatrain_status megatrain_model_evaluate(megatrain_model *model, const megatrain_document *documents, size_t n_documents,
                                          megatrain_result *out, megatrain_error *error);
/* The logits of every position of one document: logits[i * vocabulary + token].  room: floats that `logits` has space for, at
 * least n_tokens * vocabulary. */
megatrain_status megatrain_model_logits(megatrain_model *model, const int32_t *tokens, size_t n_tokens, float *logits,
                                        size_t room, megatrain_error *error);

/* How the next token is picked; zeros take the likeliest. */
typedef struct megatrain_sampling {
    double temperature; /* 0: the likeliest token */
    double top_p;       /* 0 or 1: no limit; else draw from the fewest tokens whose probabilities reach it */
    int64_t top_k;      /* 0: no limit; else draw from this many */
    uint64_t seed;
} megatrain_sampling;

/* Continue a prompt by up to `room` tokens.  *n_out is the number written to `tokens`.  The text ends earlier at one of the
 * model's end tokens (not written), or where prompt and continuation reach dataset.max_seq_len.  sampling may be NULL.  Needs
 * MEGATRAIN_GENERATE. */
megatrain_status megatrain_model_generate(megatrain_model *model, const int32_t *prompt, size_t n_prompt,
                                          const megatrain_sampling *sampling, int32_t *tokens, size_t room, size_t *n_out,
                                          megatrain_error *error);

/* Write a model directory that transformers, vLLM and megatrain open: weights with the source's names and dtypes (or save.dtype),
 * config.json, the tokenizer's files.  The directory must not exist; it appears whole, or not at all.  Optimizer state is not
 * saved: megatrain_train() writes checkpoints that a run can continue from.  Needs MEGATRAIN_TRAIN. */
megatrain_status megatrain_model_save(megatrain_model *model, const char *dir, megatrain_error *error);
/* One number for masters and the optimizer's state: equal states have equal numbers. */
megatrain_status megatrain_model_checksum(megatrain_model *model, uint64_t *out, megatrain_error *error);

/* ---- text --------------------------------------------------------------------------------------- */

/* The tokens of a text, as the model's own tokenizer makes them, with the tokens it puts around a text (bos).  text is UTF-8 and
 * ends with a 0 byte.  *n_out is the number of tokens, also where it is more than `room` and the call returns MEGATRAIN_ERANGE:
 * call with room 0 to ask. */
megatrain_status megatrain_model_encode(megatrain_model *model, const char *text, int32_t *tokens, size_t room, size_t *n_out,
                                        megatrain_error *error);
/* The same for a question to a chat model: the model's chat template with a system message (NULL: none) and what the user
 * says, up to where the answer begins. */
megatrain_status megatrain_model_encode_chat(megatrain_model *model, const char *system_text, const char *user_text,
                                             int32_t *tokens, size_t room, size_t *n_out, megatrain_error *error);
/* The text of tokens, special ones left out; a number that is not a token of the model is an error.  *n_out is its length in bytes without the final 0 byte; `room` counts that byte. */
megatrain_status megatrain_model_decode(megatrain_model *model, const int32_t *tokens, size_t n_tokens, char *text, size_t room,
                                        size_t *n_out, megatrain_error *error);

#ifdef __cplusplus
}
#endif

#endif
