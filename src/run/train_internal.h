/* train_internal.h - shared by the files of the trainer.  Only run/train*.c includes it.
 *
 *     train.c        the loop            train_open.c    from settings to a run
 *     train_earlier.c plan.json of an earlier start in the directory
 *     train_model.c  the model           train_files.c   plan.json, config.yaml, metrics
 *     train_load.c   an engine and its weights
 *     train_plan.c   the plan kept to    train_samples.c sample answers during the run
 *     train_ranks.c  several machines
 *     train_save.c   checkpoints         train_state.c   what a checkpoint stores, and resuming from it */
#ifndef MT_RUN_TRAIN_INTERNAL_H
#define MT_RUN_TRAIN_INTERNAL_H

#include "base/clock.h"
#include "ckpt/checkpoint.h"
#include "engine/snapshot.h"
#include "model/stop_ids.h"
#include "optim/schedule.h"
#include "run/devices.h"
#include "run/metrics.h"
#include "run/output_dir.h"
#include "run/train.h"

#include <pthread.h>
#include <stdatomic.h>

/* Progress of a run; every checkpoint contains all of it. */
typedef struct progress {
    int64_t step;    /* steps done, skipped ones included: the next is number `step` */
    int64_t updates; /* Adam's t: skipped steps do not count */
    int64_t n_tokens, n_trained;
    int64_t n_skipped, bad_in_row;
    double window_loss; /* sums over the steps since the last line of metrics */
    int64_t window_steps;
    bool unfinished; /* a stop came in the middle of the work after the step (evaluation, answers): that is still to be done */
} progress;

/* What a checkpoint stores besides the weights. */
typedef struct saved_state {
    progress at;
    uint64_t data, model; /* fingerprints */
    uint64_t code;        /* that made the samples (mt_sample_code); 0: unknown, an older checkpoint */
    char version[32];     /* of megatrain, to name it */
    mt_arithmetic arithmetic;
    int64_t metrics_bytes; /* length of the metrics file under its name at that time */
} saved_state;

/* The thread that writes a checkpoint while the run continues: one at a time. */
typedef struct saver {
    pthread_t thread;
    bool running;         /* not joined yet */
    atomic_bool finished; /* joining will not wait */
    mt_state *trained;    /* the engine's */
    mt_snapshot *snapshot;
    bool first, alone;       /* several machines: the first completes the checkpoint; alone: one machine */
    atomic_int *readers;     /* [units] number of machines that have yet to read the unit, this one included */
    size_t planned_room;     /* for it, by the plan */
    mt_snapshot_options how; /* with the room there is now */
    size_t aside;            /* bytes of the largest copy so far */
    mt_export model;
    mt_state_io io;
    mt_ckpt_save ckpt;
    mt_ckpt_writer *writer;
    mt_ckpt_file files[2];
    mt_str state, settings;
    int64_t keep_last;
    double start_s, seconds;
    mt_err error;   /* .rc: how it ended */
    mt_err warning; /* .rc: a failure that does not end the run */
} saver;

/* A prompt that is answered at intervals, and its newest answer. */
typedef struct sample {
    const char *prompt; /* borrowed from the settings */
    mt_tokens tokens, answer;
    mt_str text;
} sample;

typedef struct samples {
    sample *items;
    size_t n; /* 0: none requested, or not enough memory */
    mt_stop_ids stops;
} samples;

/* Times and counts of the steps since the last line of metrics that had something to train on; not stored in checkpoints. */
typedef struct window {
    int64_t n_steps, n_tokens, n_trained;
    double flops, seconds, wait_update_s, wait_save_s, wait_data_s, wait_devices_s;
} window;

/* The model, the source of its weights, and how it is written. */
typedef struct network {
    mt_config *config;
    mt_shards *shards; /* NULL: from scratch */
    mt_model *model;
    uint64_t fingerprint;
    int64_t unit_experts; /* experts per unit; 0: follows from the model */
    mt_train_loads loads; /* of the last step */
    double router_loss;   /* coefficient of the load-balancing loss; 0: none */
    mt_side_files side_files;
    mt_export export;
} network;

/* What it is trained on. */
typedef struct training_data {
    mt_source *source;
    mt_source_info info;
    struct tm now; /* date of the run's first start, which its templates show, also after a resume */
    mt_batch batch;
} training_data;

/* What computes. */
typedef struct executor {
    mt_devices devices;
    mt_device *dev; /* the first of them */
    mt_plan *plan;
    bool forced; /* known not to fit */
    mt_engine *engine;
    mt_state_io io;
} executor;

/* How far the run goes. */
typedef struct course {
    mt_schedule schedule;
    int64_t n_steps, first_step;
} course;

typedef struct timing {
    double clock;   /* start of the current step: the end of the previous one (metrics and saving count), or of an evaluation */
    int64_t steps;  /* steps with something to train on */
    double seconds; /* seconds of those after the first, which includes one-time setup */
    int64_t tokens; /* number of tokens in them */
    bool memory_warned;
    double memory_looked; /* when */
} timing;

/* The checkpoint the run resumes from.  NULL: none; for the last two also: no earlier start in the directory names it. */
typedef struct resume_point {
    char *from;
    bool here; /* the checkpoint is in our own directory */
    char *metrics_file, *began_from;
} resume_point;

/* Requests that all ranks of the run agree on; with one rank, its own. */
typedef struct rank_wishes {
    int stop; /* what hooks->stop returned */
    bool save;
    uint64_t result;     /* of the last step */
    void *all;           /* memory for one record per rank */
    double network;      /* measured bytes per second each way between machines */
    double network_wait; /* predicted seconds of a step for the network */
} rank_wishes;

/* Results so far. */
typedef struct outcome {
    double loss;                  /* of the newest step */
    double first_loss;            /* of the first step since this start that had one; 0: none yet */
    int64_t first_at;             /* that step */
    bool diverged;                /* a loss was far above it, and the warning was given */
    int64_t step;                 /* step of the newest checkpoint, which may still be being written; -1: none */
    char *checkpoint, *model_dir; /* NULL: none */
} outcome;

struct mt_trainer {
    const mt_settings *s; /* borrowed; must outlive the trainer.  Or &settled, if an "auto" was resolved */
    mt_settings settled;
    mt_train_hooks hooks;
    mt_comm *comm; /* never NULL */
    rank_wishes ranks;
    mt_output_dir dir;
    network net;
    training_data data;
    executor exec;
    course course;
    progress at;
    window window;
    timing timing;
    mt_metrics metrics;
    samples samples;
    saver saver;
    resume_point resume;
    outcome made;
};

/* -- train_open.c -- */
mt_rc mt__train_open(mt_trainer *t, mt_err *err);

/* -- train_model.c -- */
mt_rc mt__train_open_model(mt_trainer *t, mt_err *err);
/* True if missing weights are downloaded last: until then only config.json describes the model. */
bool mt__train_weights_come_last(const mt_trainer *t);
/* Downloads them, once everything else has been checked.  The files may have other tensor names than config.json suggests, or
 * another head: then the model and its plan are rebuilt. saved: NULL for a fresh run. */
mt_rc mt__train_fetch_weights(mt_trainer *t, const saved_state *saved, mt_err *err);
/* Expert units decide the tree of the norm and the random rounding of moments that are not fp32.  Without these, all units give
 * the same bits; otherwise the run keeps the units of its checkpoint. */
mt_rc mt__train_keep_units(mt_trainer *t, saved_state *saved, mt_err *err);
void mt__train_free_loads(mt_trainer *t);

/* -- train_files.c -- */
/* Writes plan.json and config.yaml. */
mt_rc mt__train_describe(mt_trainer *t, mt_err *err);
/* Opens the metrics file, of which the first `keep` bytes stay, and TensorBoard's events. */
mt_rc mt__train_open_metrics(mt_trainer *t, int64_t keep, mt_err *err);

/* -- train_earlier.c -- */
mt_rc mt__train_read_earlier(mt_trainer *t, mt_err *err);
void mt__train_forget_earlier(mt_trainer *t);
char *mt__train_metrics_path(const mt_trainer *t);
/* True if it is below the output directory, where its folder is made. */
bool mt__train_metrics_inside(const mt_trainer *t);
/* A file outside the directory may belong to another run: it is neither emptied nor cut. */
mt_rc mt__train_check_metrics(const mt_trainer *t, mt_err *err);

/* -- train_load.c -- */
mt_rc mt__train_load(mt_trainer *t, mt_err *err);

/* -- train_plan.c -- */
/* Fails if the model is too large for any data, before the data is downloaded or tokenized. */
mt_rc mt__train_could_fit(const mt_trainer *t, mt_err *err);
/* Resolves batch_size auto: to the resumed run's number, or to the plan's recommendation. */
mt_rc mt__train_batch(mt_trainer *t, mt_err *err);
mt_rc mt__train_plan(mt_trainer *t, const saved_state *saved, mt_err *err);
/* Fails if the disk cannot hold the checkpoints of the whole run. */
mt_rc mt__train_disk(mt_trainer *t, mt_err *err);
/* Warns if host memory has shrunk since the plan was made, or is nearly used up. */
mt_rc mt__train_memory_left(const mt_trainer *t, mt_err *err);
void mt__train_watch_memory(mt_trainer *t);
/* All host memory that the run is predicted to use, with the copy of a checkpoint. */
size_t mt__train_planned_host(const mt_trainer *t);
/* Bytes of host memory for the copy of a checkpoint: as planned, and at most half of what is free now. */
size_t mt__train_spare_memory(const mt_trainer *t);
/* Options for copying a checkpoint in this much memory. */
mt_snapshot_options mt__train_aside(const mt_trainer *t, size_t room);
void mt__train_compare(const mt_trainer *t, mt_train_compared *out);

/* -- train_ranks.c -- */
mt_rc mt__train_open_ranks(mt_trainer *t, mt_err *err);
/* Once there is a plan: checks that all ranks are about to do the same. */
mt_rc mt__train_compare_ranks(mt_trainer *t, mt_err *err);
/* Measures the network, and adds it to the plan's prediction. */
mt_rc mt__train_network(mt_trainer *t, mt_err *err);
/* Exchanges a record with every rank. */
mt_rc mt__train_tell(mt_trainer *t, const void *mine, size_t n, void *all, const char *what, mt_err *err);
/* patient: the next work may take one rank any time; otherwise no longer than a step, or than the timeout. */
void mt__train_be_patient(mt_trainer *t, bool patient);
/* Before a step: checks that all ranks make the same step with the same data. */
mt_rc mt__train_same_step(mt_trainer *t, mt_err *err);
void mt__train_note_result(mt_trainer *t, const mt_step_result *r);
/* After a step, and between batches of an evaluation: sets t->ranks.stop and .save if any rank wants a stop or a checkpoint. */
mt_rc mt__train_ask(mt_trainer *t, mt_err *err);

/* -- train_samples.c -- */
mt_rc mt__train_samples_open(mt_trainer *t, mt_err *err); /* needs the data */
mt_rc mt__train_samples_plan(mt_trainer *t, const mt_machine *machine, mt_err *err);
mt_rc mt__train_sample(mt_trainer *t, mt_err *err);
void mt__train_samples_close(mt_trainer *t);

/* -- train_state.c -- */
mt_rc mt__train_state_text(const mt_trainer *t, mt_str *out, mt_err *err);
/* Writes everything that decides bits, as pairs of the open map. */
void mt__train_put_arithmetic(mt_json_out *j, const mt_arithmetic *a);
/* The settings of the checkpoint that the run continues from; released with mt_settings_deinit. */
mt_rc mt__train_saved_settings(const mt_trainer *t, mt_settings *out, mt_err *err);
/* Reads such a text. *now changes only if it contains a date. */
mt_rc mt__train_state_parse(const char *text, size_t n, saved_state *out, struct tm *now, mt_err *err);
/* Finds the checkpoint to resume from, if the settings ask for one: t->resume.from. */
mt_rc mt__train_find_resume(mt_trainer *t, mt_err *err);
/* Removes what save.keep_last does not keep, once settings, model, data and plan were checked. */
void mt__train_prune(const mt_trainer *t);
/* Reads what it stores, including t->data.now.  Fails if the settings make this another run; logs other differences. */
mt_rc mt__train_read_state(mt_trainer *t, saved_state *out, mt_err *err);
/* Once data and model are open: fails unless they are the ones it was made with. */
mt_rc mt__train_check_same(const mt_trainer *t, const saved_state *s, mt_err *err);

/* -- train_save.c -- */
mt_ckpt_save mt__train_ckpt(const mt_trainer *t);
/* Starts a checkpoint of the current state; waits for the previous one. goes_on: steps follow, so the state is copied first. */
mt_rc mt__train_save(mt_trainer *t, bool goes_on, mt_err *err);
/* Checks whether it has been written, waiting if requested; fails if it failed. */
mt_rc mt__train_saved(mt_trainer *t, bool wait, mt_err *err);
mt_rc mt__train_export(mt_trainer *t, mt_err *err);
/* Appends ".../checkpoint-20 is the last complete checkpoint" to the error that ended the run. */
mt_rc mt__train_note_last(const mt_trainer *t, mt_err *err);

#endif
