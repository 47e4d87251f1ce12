/* choose.c - a simple chooser of placements: try from the least movement to the least memory, take the first that fits. */
#include "base/mem.h"
#include "base/units.h"
#include "plan/plan.h"

/* One rung of the ladder. */
typedef struct rung {
    bool home_device; /* everything lives on the device */
    bool resident;    /* weights stay through the step */
    mt_keep keep;
    mt_place kept;
    int interval;     /* layers per kept input */
    bool small_sweep; /* sweeps of one micro-batch, gradients accumulated on the host */
} rung;

static const rung ladder[] = {
    { true, true, MT_KEEP_ALL, MT_DEVICE, 1, false },
    { true, true, MT_KEEP_ATTENTION, MT_DEVICE, 1, false },
    { true, true, MT_KEEP_INPUT, MT_DEVICE, 1, false },
    { false, true, MT_KEEP_ALL, MT_DEVICE, 1, false },
    { false, true, MT_KEEP_INPUT, MT_DEVICE, 1, false },
    { false, false, MT_KEEP_ALL, MT_DEVICE, 1, false },
    { false, false, MT_KEEP_ATTENTION, MT_DEVICE, 1, false },
    { false, false, MT_KEEP_INPUT, MT_DEVICE, 1, false },
    { false, false, MT_KEEP_INPUT, MT_HOST, 1, false },
    { false, false, MT_KEEP_INPUT, MT_HOST, 1, true },
};

static void fill(mt_placement *p, const mt_model *m, const mt_job *j, const mt_arithmetic *a, const rung *r)
{
    p->sweep_tokens = mt_max_i64(r->small_sweep ? a->micro_tokens : j->step_tokens, a->micro_tokens);
    p->ring_slots = r->interval + 1;
    p->accumulators = MT_HOST;
    p->keep_slots = r->kept == MT_HOST ? 2 : 0;
    p->grad_slots = r->home_device ? 0 : r->small_sweep ? 1 : 2;
    p->n_slabs = j->clip || r->home_device ? 0 : 2;
    for (int u = 0; u < m->n_units; u++)
        p->units[u] = (mt_unit_place){ .resident = r->resident, .home = r->home_device ? MT_DEVICE : MT_HOST,
                                       .site = r->home_device ? MT_SITE_DEVICE : MT_SITE_HOST };
    for (int l = 0; l < m->config->L; l++) p->layers[l] = (mt_layer_place){ l % r->interval ? MT_KEEP_NOTHING : r->keep, r->kept };
    if (r->small_sweep) p->ring_slots = r->interval;
}

mt_rc mt_plan_choose(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, size_t device_bytes, mt_err *err)
{
    size_t least = SIZE_MAX;
    *out = NULL;
    for (size_t i = 0; i < MT_COUNT(ladder); i++) {
        mt_placement p;
        mt_plan *plan;
        MT_TRY(mt_placement_init(&p, model, err));
        fill(&p, model, job, a, &ladder[i]);
        mt_rc rc = mt_plan_create(&plan, model, job, a, &p, err);
        mt_placement_free(&p);
        if (rc) return rc;
        if (device_bytes == 0 || plan->device_bytes <= device_bytes) return *out = plan, MT_OK;
        if (plan->device_bytes < least) least = plan->device_bytes;
        mt_plan_free(plan);
    }
    return mt_fail(err, MT_ENOMEM,
                   "this run needs at least %s of device memory and may use %s; the largest parts grow with the micro-batch (%lld rows): "
                   "lower max_seq_len, or allow more with --device-memory",
                   mt_bytes_text(least).s, mt_bytes_text(device_bytes).s, (long long)a->micro_tokens);
}
