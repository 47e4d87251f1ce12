/* train.h - a run: plan, engine, weights or a checkpoint, then steps, evaluations, metrics, checkpoints, and the finished model.
 *
 *     open     everything up to the first step; takes the settings as they are after mt_settings_check
 *     info     what the run will be, for a banner
 *     run      to the last step, or until hooks->stop returns true
 *     close    always last
 *
 * Its files in save.output_dir:
 *     config.yaml  plan.json  metrics.jsonl  checkpoint-N/  final/ (the finished model)
 *
 * It prints nothing: events go to the hooks, notices to mt_log.  One thread opens, runs and closes; hooks are called on it. */
#ifndef MT_RUN_TRAIN_H
#define MT_RUN_TRAIN_H

#include "ckpt/export.h"
#include "comm/comm.h"
#include "engine/engine.h"
#include "optim/schedule.h"
#include "plan/search.h"
#include "run/data.h"
#include "run/devices.h"

typedef struct mt_trainer mt_trainer;

/* Load of the experts in a step, for each layer that has experts. */
typedef struct mt_train_loads {
    size_t n;        /* layers; 0: unknown */
    mt_routed over;  /* experts of a layer, those of a row */
    int *layer;      /* its number */
    double *busiest; /* fraction of the rows at its busiest expert; T / E if all are equally busy */
    double *idle;    /* experts without a row */
} mt_train_loads;

/* One update as it is reported: means over the updates since the last report.  Times and speeds leave out steps with nothing to
 * train on; 0: there was no other step. */
typedef struct mt_train_step {
    int64_t step, n_steps; /* step: updates done */
    double epoch, loss, learning_rate, grad_norm;
    double router_loss;                             /* load-balancing loss without its coefficient; NaN: none */
    mt_train_loads loads;                           /* borrowed until the next step */
    bool skipped;                                   /* not finite: nothing was updated */
    bool empty;                                     /* nothing to train on: nothing was updated */
    double seconds;                                 /* a step */
    double tokens_s, trained_s;                     /* tokens per second; there is no padding */
    double flops_s;                                 /* by model/flops.h */
    double wait_update_s, wait_save_s, wait_data_s; /* a step */
    double wait_devices_s;                          /* several devices: seconds the first waited for the others */
    const double *device_seconds;                   /* [n_devices] of this update, borrowed until the next step */
    int n_devices;                                  /* 0: one */
} mt_train_step;

typedef struct mt_train_eval {
    int64_t step;
    double loss, perplexity, accuracy; /* over trained tokens */
    int64_t n_trained;
    double seconds;
} mt_train_eval;

/* Any may be NULL. */
typedef struct mt_train_hooks {
    void *user;
    mt_data_hooks data;
    /* Downloads the model's weights if they are not in its directory yet.  Called once, after everything else has been checked.
     * NULL: they are there. */
    mt_rc (*weights)(void *user, mt_err *err);
    /* Bytes of weights, or of a checkpoint's state, loaded so far; called often, and with done = total at the end. */
    void (*loading)(void *user, size_t done, size_t total);
    void (*step)(void *user, const mt_train_step *step); /* after every update, reported in metrics or not */
    void (*eval)(void *user, const mt_train_eval *eval);
    void (*sample)(void *user, int64_t step, const char *prompt, const char *answer); /* of logging.sample_prompts */
    void (*saved)(void *user, const char *path, double seconds);
    /* Called after every update, and before every batch of an evaluation.  0: the run continues; any other number, such as a
     * signal's, stops it.  From then on the hook must return it again. */
    int (*stop)(void *user);
    /* Called after every update: returns true, once per request, if an extra checkpoint is wanted now. */
    bool (*save)(void *user);
    int64_t unit_experts; /* as in mt_model_options; for tests */
    mt_comm *comm;        /* the other machines of the run; NULL: none.  Must outlive the trainer */
} mt_train_hooks;

typedef struct mt_train_info {
    const mt_config *config;
    const mt_model *model;
    const mt_plan *plan;
    mt_limits limits; /* the arithmetic and limits of the plan */
    mt_source_info data;
    mt_device_info device;
    mt_device_kind device_kind;
    int64_t first_step, n_steps;
    size_t planned_host; /* as in mt_train_compared */
    uint64_t checkpoint_bytes;
    const char *output_dir;
    const char *resumed_from; /* "": from the beginning */
    const mt_comm *comm;      /* of one rank or more */
    double network;           /* bytes per second each way between them, */
    double network_wait;      /* and predicted seconds of a step that wait for the network */
} mt_train_info;

/* Predicted and measured values; 0: unknown. */
typedef struct mt_train_compared {
    double planned_tokens_s, tokens_s; /* without the first step */
    size_t planned_host, host;         /* bytes at the peak; host is the process's largest resident size */
    size_t aside;                      /* part of host: most bytes of a checkpoint copy */
    size_t planned_device, device;
} mt_train_compared;

typedef struct mt_train_result {
    int64_t step;
    int stopped;            /* before the last step: what hooks->stop returned, of the first rank that stopped it; 0: it ended */
    double loss;            /* of the last step */
    int64_t n_skipped;      /* steps with a non-finite loss or norm, or with nothing to train on */
    const char *checkpoint; /* the newest; "": none */
    const char *model_dir;  /* the finished model; "": not finished */
    mt_train_compared compared;
} mt_train_result;

/* The settings' limits on a placement, and their dtypes: the same for a run and for a plan. */
mt_limits mt_train_limits(const mt_settings *s);
void mt_train_types(const mt_settings *s, mt_arithmetic *out); /* dtypes, form of moments, and shares if they were given */

/* -- what settings mean, for a run and for steps that a caller takes itself (api/) -- */

/* Opens the devices that model.device and model.devices name.  After a failure, mt_devices_close releases what was opened. */
mt_rc mt_train_devices(mt_devices *out, const mt_settings *s, const mt_comm *comm, mt_err *err);
mt_rc mt_train_schedule(mt_schedule *out, const mt_settings *s, int64_t n_steps, mt_err *err);
mt_hyper mt_train_hyper(const mt_settings *s, double lr);
/* What the settings train for, on data with these columns. */
mt_objective_use mt_train_objective(const mt_settings *s, uint32_t columns);
/* The coefficient of the load-balancing loss: the user's, or config.json's if the user says so; 0: none. */
mt_rc mt_train_router_loss(double *out, const mt_settings *s, const mt_model *model, mt_err *err);
/* Logs assumptions about config.json, and its keys that have no effect. */
void mt_train_config_notices(const mt_config *c);
/* Writes the model directory from an engine's masters into the existing dir, with several threads.  With several machines all
 * must call it; each writes some of the files, and it returns when all of them have. */
mt_rc mt_train_write_model(mt_engine *e, const mt_export *x, const char *dir, mt_err *err);

/* Most bytes that a run adds to its directory at one time. */
typedef struct mt_train_writes {
    uint64_t checkpoint, model; /* of one: the caller's */
    uint64_t bytes;
    int64_t n; /* checkpoints among them */
} mt_train_writes;
/* there: checkpoints already in the directory; to_come: checkpoints that will be written, including the last one. */
void mt_train_count_writes(mt_train_writes *w, const mt_save_settings *s, int64_t there, int64_t to_come);
/* Number of checkpoints of a run after `done` of its steps and before the last one. */
int64_t mt_train_saves(const mt_save_settings *s, int64_t done, int64_t n_steps, int64_t steps_per_epoch);

/* Fails if open would refuse the output directory as it is now.  Cheap: call it before a model is downloaded. */
mt_rc mt_trainer_check_output(const mt_settings *s, mt_err *err);
mt_rc mt_trainer_open(mt_trainer **out, const mt_settings *s, const mt_train_hooks *hooks, mt_err *err);
void mt_trainer_info(const mt_trainer *t, mt_train_info *out);
mt_rc mt_trainer_run(mt_trainer *t, mt_train_result *out, mt_err *err);
/* False once its output directory was moved, removed or replaced: then nothing may be written under its name any more. */
bool mt_trainer_has_dir(const mt_trainer *t);
void mt_trainer_close(mt_trainer *t); /* accepts NULL and half-built ones */

/* Makes one step and one checkpoint, written and verified; hooks->stop ends it before either (MT_ESTOPPED).  The caller removes
 * the directory, which should be a separate one.  *save_s: seconds of the writing. */
mt_rc mt_trainer_rehearse(mt_trainer *t, mt_train_step *step, double *save_s, mt_err *err);
/* The batch of a step, for inspection; cleared and filled. */
mt_rc mt_trainer_batch(mt_trainer *t, int64_t step, mt_batch *out, mt_err *err);
mt_engine *mt_trainer_engine(mt_trainer *t); /* for inspection: checksums, logits */

#endif
