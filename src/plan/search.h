/* search.h - chooses plans: whether one fits, and the fastest that does.
 *
 * All inputs are borrowed for the call; a plan that is handed out belongs to the caller (mt_plan_free). */
#ifndef MT_PLAN_SEARCH_H
#define MT_PLAN_SEARCH_H

#include "plan/machine.h"
#include "schedule/plan.h"

struct mt_json_out; /* base/json_write.h */

/* What a plan is chosen for; all borrowed for the call. */
typedef struct mt_plan_inputs {
    const mt_model *model;
    const mt_job *job;
    const mt_arithmetic *arithmetic; /* of a fresh run: everything except the numbers of rows */
    const mt_machine *machine;
} mt_plan_inputs;

/* Finds the fastest placement that fits, by the step time model (step_time.c).  If nothing fits, the error names what is
 * short. */
mt_rc mt_plan_search(mt_plan **out, mt_plan_inputs in, mt_err *err);
/* The same with a shorter search, for comparisons; *out = NULL if no placement found is faster than `seconds`. */
mt_rc mt_plan_search_faster(mt_plan **out, mt_plan_inputs in, double seconds, mt_err *err);
/* True if some placement fits, in a millisecond or two.  The searches find a plan if and only if this is true. */
bool mt_plan_fits(mt_plan_inputs in);
/* The least memory of any placement: on the device; on the host, among placements that fit the device (SIZE_MAX: none does). */
typedef struct mt_need {
    size_t device, host;
} mt_need;
mt_rc mt_plan_need(mt_need *out, mt_plan_inputs in, mt_err *err);
/* Rows that pass an expert together in a fresh run, once its micro-batches are chosen; 0: each micro-batch alone. */
int64_t mt_plan_moe_tokens(mt_plan_inputs in);
/* Chooses placement and arithmetic of a fresh run. */
mt_rc mt_plan_auto(mt_plan **out, mt_plan_inputs in, mt_err *err);
/* Approximate seconds of a step, to compare steps of several sizes.  Start with the largest and *hint 0, and pass the hint on. */
mt_rc mt_plan_quick(double *seconds, mt_plan_inputs in, int64_t *hint, mt_err *err);
/* Finds the arithmetic of a fresh run that needs the least memory, and whether it fits: there is a plan if and only if it
 * does. */
mt_arithmetic mt_plan_smallest(mt_plan_inputs in);
bool mt_plan_auto_fits(mt_plan_inputs in);
/* For tests and benchmarks: mt_plan_search for a typical machine with this much device memory (0: no limit). */
mt_rc mt_plan_choose(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, size_t device_bytes,
                     mt_err *err);

/* Sizes that a generation (engine/generate.h) must allow for. */
typedef struct mt_generation {
    mt_dtype compute;
    int64_t n_prompts;
    int64_t longest;     /* most tokens of a prompt and its continuation */
    int64_t prompt;      /* tokens of the longest prompt; 0: not known, taken to be within the model's positions */
    bool mapped;         /* weights are in mapped files as bf16 (mt_weights_mapped): only resident weights need memory */
    int64_t pass_tokens; /* most rows of a pass; 0: chosen automatically */
} mt_generation;
/* Makes a forward-only plan: as many prompts at a time as fit the machine, and resident weights as far as they fit. */
mt_rc mt_plan_generation(mt_plan **out, const mt_model *model, const mt_generation *g, const mt_machine *machine, mt_err *err);

/* -- what a plan takes and must stay within -- */

/* Fails if this model cannot keep within the limits. */
mt_rc mt_limits_check(const mt_limits *l, const mt_model *model, mt_err *err);
/* The longest segment (layers recomputed from one kept input) that the limits allow. */
int mt_limits_longest(const mt_limits *l, const mt_model *model);

/* Host memory of the runtime besides the plan's buffers: the machine's base item, and on a CPU the scratch in which its threads
 * widen bf16. */
size_t mt_plan_base_host(const mt_plan *p, const mt_machine *m);
/* All host memory the plan uses: on a CPU this includes the device's. */
size_t mt_plan_host_total(const mt_plan *p, const mt_machine *m);

/* -- a plan in words -- */

/* Describes the placement in a sentence. */
void mt_plan_describe(const mt_plan *plan, char *out, size_t n);
/* Describes what its layers keep, compared with the limits. */
void mt_plan_describe_kept(const mt_plan *plan, const mt_limits *limits, char *out, size_t n);
/* Writes the list "buffers": name, place and bytes of each. */
void mt_plan_put_buffers(struct mt_json_out *j, const mt_plan *p);

#endif
