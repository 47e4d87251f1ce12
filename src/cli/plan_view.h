/* plan_view.h - an answer about a plan: as text for people (plan_view.c), as JSON for scripts (plan_json.c), and its memory by use
 * (plan_uses.c).  The caller fills in a mt_plan_answer and owns what it points to. */
#ifndef MT_CLI_PLAN_VIEW_H
#define MT_CLI_PLAN_VIEW_H

#include "base/json_write.h"
#include "cli/plan_question.h"
#include "cli/terminal.h"
#include "run/train.h"

/* Everything that was found out about a run. */
enum { MT_PLAN_NOTES = 8 };

/* The same step on several GPUs. */
enum { MT_SCALE_ROWS = 16 };
typedef struct mt_scale_row {
    int gpus;
    double tokens_s; /* 0: does not fit */
    const char *bound;
} mt_scale_row;
/* And on several machines. */
typedef struct mt_machines_row {
    int machines;
    double tokens_s; /* 0: does not fit */
    double waits;    /* seconds of a step for the network */
    const char *bound;
} mt_machines_row;
typedef struct mt_plan_scale {
    mt_scale_row rows[MT_SCALE_ROWS];
    int n;                 /* 0: for one GPU */
    int64_t compute_batch; /* samples per step from which all of them are bound by compute; 0: none found */
    mt_machines_row machines[MT_SCALE_ROWS];
    int n_machines; /* 0: for one machine */
    int most_gpus;  /* GPUs beyond which a step of this size waits for the network; 0: not a GPU */
} mt_plan_scale;

typedef struct mt_plan_answer {
    const char *model;           /* as requested */
    const char *untrained;       /* its family, if `train` does not support it yet; NULL: it does */
    const mt_machine_found *on;  /* that machine: borrowed */
    const mt_settings *settings; /* the question's: borrowed */
    mt_question q;
    double network;      /* bytes a second each way between machines */
    const mt_plan *plan; /* NULL: nothing fits */
    mt_need need;
    mt_batch_advice batch;
    mt_update_advice updates; /* of the plan */
    mt_plan_scale scale;
    mt_remedy remedies[MT_REMEDIES];
    int n_remedies;
    int64_t n_steps; /* of the run; 0: not given */
    mt_train_writes writes;
    size_t disk_free;  /* 0: not known */
    bool disk_short;   /* that is why it is refused */
    char refused[128]; /* why `train` would refuse it although it fits: "megatrain does not train X models yet"; "": accepted */
    char notes[MT_PLAN_NOTES][320]; /* further notices before a run, a sentence each */
    int n_notes;
} mt_plan_answer;

/* "a step of 32 samples of up to 1024 tokens, bfloat16, clipping on, Adam's moments in float32". */
void mt_plan_step_text(mt_str *out, const mt_question *q);
/* Keys of the JSON that other answers have too. */
void mt_plan_json_step(mt_json_out *j, const mt_question *q, int64_t accumulation);
void mt_plan_json_machine(mt_json_out *j, const mt_question *q, const mt_machine_found *on);
void mt_plan_json_need(mt_json_out *j, const mt_need *need);

void mt_plan_show(mt_str *out, const mt_plan_answer *a, const mt_terminal *term);
void mt_plan_json(mt_json_out *j, const mt_plan_answer *a);

/* Buffers of the same use, for tables: "Adam's moments". */
typedef enum mt_use {
    MT_USE_MASTERS,
    MT_USE_MOMENTS,
    MT_USE_GRADIENTS,
    MT_USE_SUMS,
    MT_USE_WEIGHTS,
    MT_USE_KEPT,
    MT_USE_WORK,
    MT_USE_RUNTIME, /* not a buffer: the machine's base item */
    MT_PLAN_USES
} mt_use;
typedef struct mt_plan_use {
    const char *name;
    size_t bytes[2]; /* by mt_place */
} mt_plan_use;
void mt_plan_uses(const mt_plan *p, mt_plan_use out[MT_PLAN_USES]);

#endif
