/* plan_question.h - turns flags and settings into the planner's input: the model, the machine, the question (api/question.h).
 * `plan`, its table of models and its questions on a terminal all use it. */
#ifndef MT_CLI_PLAN_QUESTION_H
#define MT_CLI_PLAN_QUESTION_H

#include "api/question.h"
#include "plan/host.h"
#include "plan/shapes.h"

/* -- the model ------------------------------------------------------------------------------------- */

typedef struct mt_subject_asked {
    const char *shape;   /* a published model's name; NULL: use the next */
    const char *name;    /* a directory, a config.json, a .gguf file, a published model or one of the hub; NULL: model.name */
    const mt_shape *own; /* or a described shape; NULL: none */
} mt_subject_asked;

typedef struct mt_subject {
    char name[256];
    bool published;        /* a row of the table, which has only the relevant keys */
    const char *untrained; /* its family, if `train` does not support it yet; NULL: it does */
    mt_config *config;
    mt_model *model;
} mt_subject;

mt_rc mt_subject_open(mt_subject *s, const mt_subject_asked *asked, const mt_settings *set, mt_err *err);
void mt_subject_close(mt_subject *s); /* accepts a zeroed one */

/* -- the machine ----------------------------------------------------------------------------------- */

/* Flags that describe it; 0 or NULL: not given. */
typedef struct mt_machine_asked {
    const char *gpu; /* a name of plan/gpus.h: a machine that is not here */
    uint64_t gpu_memory, ram, link;
    uint64_t peer; /* bytes a second between GPUs */
    int64_t cores;
} mt_machine_asked;

typedef struct mt_machine_found {
    mt_machine machine;
    size_t device_there, host_there; /* memory limit of the settings; 0: none */
    char device[160], ram_source[96];
    int cores;          /* of the host */
    bool cores_assumed; /* a described machine without --cores */
    bool here;          /* the real machine: then the next is known */
    mt_host host;
} mt_machine_found;

/* The described machine, within the settings' memory limits. */
mt_rc mt_plan_machine(mt_machine_found *out, const mt_machine_asked *asked, const mt_settings *set, mt_err *err);

#endif
