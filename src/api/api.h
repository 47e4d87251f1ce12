/* api.h - shared by the files that implement include/megatrain.h.  Only api/ includes it.
 *
 *     config.c   errors, notices, configurations      plan.c    megatrain_plan
 *     train.c    a whole run                          opening.c from a configuration to a model, a device and a question
 *     model.c    a model: open, close, info, save     passes.c  its steps, evaluations, logits and generations
 *     text.c     its tokenizer
 *
 * A public function begins with mt__api_begin, checks its pointers, calls one function, and ends with mt__api_end.  chat.h, prepare.h and
 * question.h are what the commands of cli/ share with it. */
#ifndef MT_API_API_H
#define MT_API_API_H

#include "api/prepare.h"
#include "api/question.h"
#include "base/thread.h"
#include "data/sampler.h"
#include "engine/generate.h"
#include "model/stop_ids.h"

#include <megatrain.h>

/* -- config.c -- */

/* A call of the library: its error, and the caller's locale, which it does not work in (base/thread.h). */
typedef struct mt__api_call {
    mt_err err;
    locale_t own;
} mt__api_call;

mt__api_call mt__api_begin(void);
/* Writes *error (which may be NULL), gives the caller's locale back and returns rc as a public status. */
megatrain_status mt__api_end(mt__api_call *call, megatrain_error *error, mt_rc rc);
/* Refuses a NULL. */
mt_rc mt__api_need(const void *pointer, const char *name, mt_err *err);
/* Fresh settings of a configuration, checked (MT_NEED_...); release with mt_settings_deinit, also after a failure. */
mt_rc mt__api_settings(mt_settings *out, const megatrain_config *config, int needs, mt_err *err);
/* The hub without a screen. */
extern const mt_finder mt__api_finder;

/* -- opening.c -- */

/* A model that a configuration names, and the planner's question about it.  A zeroed one can be closed. */
typedef struct mt_opening {
    mt_settings s;
    mt_config *config;
    mt_shards *shards; /* NULL: from scratch, or only planned */
    mt_model *model;
    mt_devices devices;
    mt_question q; /* a step as the settings have it; q.batch is a number */
} mt_opening;

/* o->s must be filled in. weights: open the files too; without them only config.json describes the model. */
mt_rc mt__opening_open(mt_opening *o, bool weights, mt_err *err);
void mt__opening_close(mt_opening *o);
/* plan: NULL if none fits. */
void mt__opening_describe(const mt_opening *o, const mt_plan *plan, megatrain_plan_info *out);

/* -- model.c -- */

struct megatrain_model {
    mt_opening o;
    int uses;
    mt_plan *plan;
    mt_engine *engine;
    mt_schedule schedule;
    double given_lr; /* negative: the schedule's */
    int64_t n_steps;
    mt_batch batch;
    mt_side_files side_files;
    mt_stop_ids stops;
    /* Opened when text is needed first: */
    mt_tokenizer *tok;
    mt_tok_scratch *scratch;
    mt_sampler *chat;
};

double mt__model_learning_rate(const megatrain_model *m);

/* -- text.c -- */
mt_rc mt__model_tokenizer(megatrain_model *m, mt_err *err);

#endif
