/* draw.h - random placements of one arithmetic: everything a plan may choose, within what fits together. */
#ifndef MT_TEST_DRAW_H
#define MT_TEST_DRAW_H

#include "rig.h"

#include "base/rng.h"

typedef struct dice {
    uint64_t seed, i;
} dice;

static inline int roll(dice *d, int n) { return (int)mt_rng_below(d->seed, 77, d->i++, (uint64_t)n); }

static inline void draw_layers(mt_placement *p, const mt_model *m, dice *d, int *longest)
{
    int run = 0;
    bool intervals = roll(d, 2);
    const int below = mt_model_lowest_layer(m) && roll(d, 2) ? mt_model_lowest_layer(m) : 0; /* which keep anything, or nothing */
    for (int l = 0; l < m->config->L; l++) {
        bool alone = l == below || l == 0 || mt_layer_has_experts(m, l) || mt_layer_has_experts(m, l - 1);
        int lowest = l >= below && (alone || !intervals) ? MT_KEEP_INPUT : MT_KEEP_NOTHING;
        p->layers[l].keep = (mt_keep)(lowest + roll(d, MT_KEEPS - lowest));
        if (l < below && roll(d, 2)) p->layers[l].keep = MT_KEEP_NOTHING;
        p->layers[l].place = roll(d, 2) ? MT_DEVICE : MT_HOST;
        if (l < below) continue;
        run = p->layers[l].keep == MT_KEEP_NOTHING ? run + 1 : 1;
        if (run > *longest) *longest = run;
    }
}

/* Of each group its own, at least as many as a segment may need. */
static inline void draw_groups(mt_placement *p, const mt_model *m, dice *d, int longest)
{
    for (int g = 0; g < m->n_groups; g++) {
        p->groups[g].ring_slots = longest + roll(d, 3);
        p->groups[g].sum_slots = longest + roll(d, 3);
        p->groups[g].out_slots = 1 + roll(d, 3);
    }
}

/* Host updates of a unit, some of them partly in pieces: none, all, or what is after some block of moments. */
static inline int64_t draw_pieces(int64_t n_train, dice *d)
{
    int64_t blocks = n_train / MT_MOMENT_BLOCK;
    switch (roll(d, 3)) {
    case 0: return 0;
    case 1: return n_train;
    default: return blocks ? n_train - MT_MOMENT_BLOCK * (1 + roll(d, (int)blocks)) : 0;
    }
}

/* A few pieces of the largest unit; or about a hundred of the model, which are more than are issued at a time. */
static inline void draw_piece_slots(mt_placement *p, const mt_model *m, dice *d)
{
    int64_t largest = 1, all = 1;
    for (int u = 0; u < m->n_units; u++) {
        largest = mt_max_i64(largest, m->units[u].layout->n_train);
        all += m->units[u].layout->n_train;
    }
    int64_t elems = roll(d, 4) ? largest / (1 + roll(d, 5)) : all / 100;
    p->piece_elems = (int64_t)mt_round_up((size_t)elems + 1, MT_MOMENT_BLOCK);
    p->piece_slots = 1 + roll(d, 4);
}

static inline void draw(mt_placement *p, const mt_model *m, const mt_job *j, const mt_arithmetic *a, dice *d)
{
    int longest = 1;
    draw_layers(p, m, d, &longest);
    const int64_t least = mt_max_i64(a->micro_tokens, mt_min_i64(a->moe_tokens, j->step_tokens));
    p->sweep_tokens =
        roll(d, 2) ? mt_max_i64(j->step_tokens, a->micro_tokens) : least + roll(d, (int)(j->step_tokens - least) + 1);
    p->accumulators = roll(d, 2) ? MT_DEVICE : MT_HOST;
    draw_groups(p, m, d, longest);
    p->keep_slots = 2 + roll(d, 2);
    p->staging_slots = roll(d, 2) ? 1 + roll(d, 3) : m->n_units; /* shared, or one for each */
    p->n_slabs = 1 + roll(d, 3);
    mt_reuse_search lending = { 0 };
    for (int u = 0; u < m->n_units; u++) {
        mt_unit_place *at = &p->units[u];
        at->home = roll(d, 3) ? MT_HOST : MT_DEVICE;
        at->resident = at->home == MT_DEVICE || roll(d, 3) == 0;
        at->site = at->home == MT_DEVICE ? MT_SITE_DEVICE : roll(d, 2) ? MT_SITE_HOST : MT_SITE_STAGED;
        const mt_plan trial = { .model = m, .job = *j, .arithmetic = *a, .place = *p };
        mt_reuse_search with = lending;
        at->reuses =
            at->site == MT_SITE_STAGED && m->units[u].layout->n_train && mt_plan_grant_reuse(&trial, &with, u) && roll(d, 3);
        if (at->reuses) lending = with;
    }
    draw_piece_slots(p, m, d);
    bool pieces = roll(d, 3) > 0;
    for (int u = 0; u < m->n_units; u++) {
        bool may = pieces && p->units[u].site == MT_SITE_HOST && j->train && !j->only_gradients;
        p->units[u].in_pieces = may ? draw_pieces(m->units[u].layout->n_train, d) : 0;
    }
    if (j->lanes > 1) p->fold = roll(d, 2) && j->machines <= 1 && !mt_arithmetic_rounds(a) ? MT_FOLD_PEERS : MT_FOLD_HOST;
    p->gather = j->lanes > 1 && p->fold == MT_FOLD_PEERS && !j->only_gradients && roll(d, 2);
    for (int u = 0; u < m->n_units && (j->lanes > 1 || j->machines > 1); u++) { /* in host memory, or in slices on the devices */
        const bool sliced = p->fold == MT_FOLD_PEERS && !j->only_gradients && roll(d, 2);
        p->units[u] = (mt_unit_place){ .resident = p->units[u].resident,
                                       .home = sliced ? MT_DEVICE : MT_HOST,
                                       .site = sliced ? MT_SITE_DEVICE : MT_SITE_HOST };
    }
}

#endif
