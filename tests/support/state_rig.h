/* state_rig.h - the state of a small model over a fake device, without an engine. */
#ifndef MT_TEST_STATE_RIG_H
#define MT_TEST_STATE_RIG_H

#include "fake_device.h"
#include "rig.h"

#include "engine/state.h"

typedef struct state_rig {
    rig r;
    fake_device dev;
    mt_memory memory;
    mt_watch watch;
    mt_state *state;
} state_rig;

/* Every unit has this home and site; all weights are resident. */
static inline void state_rig_open(state_rig *s, mt_place home, mt_site site, mt_moments moments)
{
    mt_err err = { 0 };
    mt_placement p;
    rig_open_model(&s->r, MT_TESTS_DIR "/golden/models/llama_default", NULL);
    mt_job job = rig_job(&s->r, true);
    mt_arithmetic a = rig_arithmetic(&s->r, MT_DTYPE_BF16);
    a.moments = moments;
    assert_ok(mt_placement_init(&p, s->r.model, &err));
    p.sweep_tokens = job.step_tokens;
    p.accumulators = MT_DEVICE;
    p.staging_slots = s->r.model->n_units;
    mt_placement_set_slots(&p, s->r.model, 1, 1, 1);
    for (int u = 0; u < s->r.model->n_units; u++) p.units[u] = (mt_unit_place){ .resident = true, .home = home, .site = site };
    for (int l = 0; l < s->r.config->L; l++) p.layers[l] = (mt_layer_place){ .keep = MT_KEEP_INPUT, .place = MT_DEVICE };
    assert_ok(mt_plan_create(&s->r.plan, s->r.model, &job, &a, &p, &err));
    mt_placement_free(&p);
    fake_open(&s->dev);
    mt_watch_init(&s->watch);
    assert_ok(mt_memory_init(&s->memory, &s->dev.base, s->r.plan, NULL, &err));
    assert_ok(mt_state_create(&s->state, &s->dev.base, s->r.plan, &s->memory, &s->watch, 2, &err));
}

static inline void state_rig_close(state_rig *s)
{
    mt_state_stop(s->state);
    mt_state_free(s->state);
    mt_memory_deinit(&s->memory);
    mt_watch_deinit(&s->watch);
    fake_close(&s->dev);
    rig_close(&s->r);
}

#endif
