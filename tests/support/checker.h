/* checker.h - a port of the sequencer (schedule/sequence.h) that runs nothing and proves the rules of docs/invariants.md.
 *
 * Order: every queue, and the host's thread, has a vector clock; events and host waits join clocks.  Each piece of memory
 * remembers who wrote it last and who has read it since.  An access that is not ordered after a conflicting one is a failure,
 * whatever the timing of a real device would have been.
 *
 * Content: each piece of memory has a tag that says what is in it (weights of a unit after n updates, sums of a unit after n
 * sweeps, ...).  An action that finds another tag than it needs is a failure.
 *
 * The first failure is kept, with the number of the rule it breaks.  What depends on run time (finished updates, locks, verdicts)
 * is answered at random.  `fault` makes the port, not the sequencer, do something wrong: so each check can be seen to fail. */
#ifndef MT_TEST_CHECKER_H
#define MT_TEST_CHECKER_H

#include "draw.h"

#include "schedule/sequence_internal.h"

enum { HOST = MT_QUEUES, ACTORS, JOBS = 4096 };

typedef struct clocks {
    int at[ACTORS];
} clocks;

/* Kinds of memory, with the rule that a wrong access breaks. */
#define MEMORY_LIST(X)                                                                                                           \
    X(WEIGHTS, "R2")   /* ring slot */                                                                                           \
    X(KEEP_SLOT, "U7") /* keep slot */                                                                                           \
    X(KEPT, "U7")      /* layer: four regions, of v, lo, gradient and hi if it is reused */                                      \
    X(KEPT_HOST, "U7") /* layer */                                                                                               \
    X(SUMS, "U7")      /* sum slot */                                                                                            \
    X(SUMS_HOST, "A2") /* unit, share */                                                                                         \
    X(OUTGOING, "A2")  /* outgoing slot */                                                                                       \
    X(GRADIENT, "A2")  /* unit, on the device */                                                                                 \
    X(PARKED, "A2")    /* unit, on the host */                                                                                   \
    X(SLAB, "U6")      /* slab */                                                                                                \
    X(STAGE, "U3")     /* staging slot: four parts */                                                                            \
    X(PIECE, "U12")    /* piece slot: four parts and the gradient */                                                             \
    X(HOME, "U2")      /* region of a unit (the workers' share, each piece): four parts */                                       \
    X(NORMS, "U4")     /* unit */                                                                                                \
    X(BAD, "U8")       /* weights that became non-finite in pieces */

typedef enum memory_kind {
#define MEMORY_ENUM(name, rule) MEM_##name,
    MEMORY_LIST(MEMORY_ENUM)
#undef MEMORY_ENUM
        MEM_KINDS
} memory_kind;

typedef struct memory {
    int writer, written; /* actor and its time; writer -1: never */
    int read[ACTORS];    /* newest read of each; 0: none since the write */
    int64_t tag;         /* 0: garbage */
} memory;

/* Which wait, record, action or answer goes wrong. */
typedef enum fault_kind {
    NO_FAULT,
    DROP_WAIT,
    DROP_RECORD,
    DROP_ACTION,
    TWICE_ACTION,
    LIE_UPDATED,
    LIE_UNLOCKED,
    LIE_JOBS,
    LIE_JUDGE,
    HASTE,  /* updates do not wait for the norm */
    UNLEND, /* a layer's first unit is given back before its experts have run backward */
    FORGET, /* state is written without notice to the sequencer */
} fault_kind;

typedef struct fault {
    fault_kind kind;
    int what, queue; /* event class or action; queue */
    const char *name;
} fault;

/* Classes of events, for faults. */
enum {
    OF_UNIT = 0,
    OF_LAYER = 100,
    OF_RING = 200,
    OF_KEEP = 300,
    OF_SUM = 400,
    OF_OUT = 500,
    OF_STAGE = 600,
    OF_PIECE = 700,
    OF_SLAB = 800
};

enum { MOST_SWEEPS = 8 };

typedef struct checker {
    const mt_plan *plan;
    const mt_model *model;
    mt_sequence *s;
    dice d;
    fault fault;
    clocks clock[ACTORS];
    clocks *events; /* [events] at[HOST] < 0: never recorded */
    memory *memory;
    int first[MEM_KINDS + 1];
    clocks jobs[JOBS], sums;
    int n_jobs, jobs_done;
    int *job_of;                                   /* [units] its newest host update, counted from 1 */
    int64_t *version;                              /* [units] updates and outside writes */
    int *rounded, *applied, *forwards, *backwards; /* this step; this sweep */
    int *regions;                                  /* [units + 1] the first region of each unit's state */
    int64_t *graded;                               /* [units] the step of its newest gradient */
    int routed;                                    /* the layer whose routes the host knows; -1: none */
    int64_t n_routes;                              /* how often it has learned some */
    int opened, expert;                            /* the layer whose experts are at work, -1: none; the unit that is next */
    bool *locked;
    int64_t step, sweep, n_sweeps, sweeps; /* sweeps: of all steps */
    bool ends[MOST_SWEEPS];                /* several lanes: a part of the step ends with the sweep */
    int64_t summed;                        /* sweeps that are in the sums at hand */
    bool judged, loss_known, go;
    long n_actions;
    mt_action_kind doing; /* the newest */
    char failed[256];
} checker;

static inline mt_rc broken(checker *c, const char *rule, const char *what, int a, int b)
{
    if (!c->failed[0]) snprintf(c->failed, sizeof c->failed, "%s: %s: %s (%d, %d)", rule, mt_action_name(c->doing), what, a, b);
    return MT_EINTERNAL;
}
#define NEED(rule, cond, what, a, b)                                                                                             \
    do {                                                                                                                         \
        if (!(cond)) return broken(c, rule, what, a, b);                                                                         \
    } while (0)

static inline int64_t tag_of(int64_t a, int64_t b) { return a * 1000003 + b + 1; }

/* -- order ----------------------------------------------------------------------------------------- */

static inline void join_clocks(clocks *a, const clocks *b)
{
    for (int i = 0; i < ACTORS; i++)
        if (b->at[i] > a->at[i]) a->at[i] = b->at[i];
}

static inline const char *memory_rule(const checker *c, const memory *m)
{
    static const char *const rules[] = {
#define MEMORY_RULE(name, rule) rule,
        MEMORY_LIST(MEMORY_RULE)
#undef MEMORY_RULE
    };
    int kind = 0;
    while (m - c->memory >= c->first[kind + 1]) kind++;
    return rules[kind];
}

static inline memory *at(checker *c, memory_kind kind, int i) { return &c->memory[c->first[kind] + i]; }

static inline mt_rc reads(checker *c, mt_queue q, memory *m)
{
    NEED(memory_rule(c, m), m->writer < 0 || c->clock[q].at[m->writer] >= m->written, "read before it is written", (int)q,
         m->writer);
    m->read[q] = c->clock[q].at[q];
    return MT_OK;
}

static inline mt_rc writes(checker *c, mt_queue q, memory *m, int64_t tag)
{
    NEED(memory_rule(c, m), m->writer < 0 || c->clock[q].at[m->writer] >= m->written, "written before the last write", (int)q,
         m->writer);
    for (int i = 0; i < ACTORS; i++)
        NEED(memory_rule(c, m), c->clock[q].at[i] >= m->read[i], "overwritten before its last reader", (int)q, i);
    *m = (memory){ .writer = (int)q, .written = c->clock[q].at[q], .tag = tag };
    return MT_OK;
}

/* -- where things are ------------------------------------------------------------------------------ */

static inline const mt_unit_place *place_of(const checker *c, int u) { return &c->plan->place.units[u]; }
static inline bool unit_trains(const checker *c, int u) { return c->model->units[u].layout->n_train > 0; }
static inline int part_index(unsigned part)
{
    return part == MT_PART_HI ? 0 : part == MT_PART_LO ? 1 : part == MT_PART_FIRST ? 2 : 3;
}

/* A part of unit u's staged state. */
static inline memory *staged_at(checker *c, int u, int slot, unsigned part)
{
    const mt_unit_place *p = place_of(c, u);
    if (!p->reuses) return at(c, MEM_STAGE, 4 * slot + part_index(part));
    if (part == MT_PART_FIRST) return at(c, MEM_SUMS, u);
    if (part == MT_PART_OTHERS) return at(c, MEM_KEPT, 4 * p->reused[0]);
    return at(c, MEM_KEPT, 4 * p->reused[1] + (part == MT_PART_LO ? 1 : 3));
}

static inline memory *device_gradient(checker *c, int u)
{
    return place_of(c, u)->reuses ? at(c, MEM_KEPT, 4 * place_of(c, u)->reused[1] + 2) : at(c, MEM_GRADIENT, u);
}

/* Part `part` of a region of unit u's state at home: region 0 is the workers' share, 1 + i piece i. */
static inline int regions_of(const checker *c, int u) { return c->regions[u + 1] - c->regions[u]; }
static inline memory *home_at(checker *c, int u, int region, int part)
{
    return at(c, MEM_HOME, 4 * (c->regions[u] + region) + part);
}
static inline int region_of(const checker *c, const mt_action *a)
{
    return 1 + (int)((a->first - mt_plan_host_share(c->plan, a->unit)) / c->plan->place.piece_elems);
}
enum { PIECE_GRADIENT = 4, PIECE_PARTS };
static inline memory *piece_at(checker *c, int slot, int part) { return at(c, MEM_PIECE, PIECE_PARTS * slot + part); }

static inline memory *resident_at(checker *c, int u) { return at(c, MEM_WEIGHTS, mt_sequence_resident_slot(c->s, u)); }

/* -- contents -------------------------------------------------------------------------------------- */

static inline int64_t state_tag(const checker *c, int u) { return tag_of(u + 1, c->version[u]); }
static inline int64_t old_tag(const checker *c, int u) { return tag_of(u + 1, c->version[u] - 1); }
static inline int64_t grad_tag(const checker *c, int u) { return tag_of(5000 + u, c->step); }
/* Of the newest step that made one: pieces may be updated while the next step runs. */
static inline int64_t last_grad_tag(const checker *c, int u) { return tag_of(5000 + u, c->graded[u]); }
static inline int64_t kept_tag(const checker *c, int layer) { return tag_of(9000 + layer, c->sweeps); }
static inline int64_t sum_tag(int u, int share, int64_t sweeps) { return tag_of(13000 + 2 * u + share, sweeps); }

/* Generation fetches of a streamed unit what its layer's newest routes have chosen; good for nothing else. */
static inline bool is_chosen_from(const checker *c, int u)
{
    return mt_sequence_mode(c->s) == MT_MODE_CONTINUE && c->model->units[u].kind == MT_UNIT_EXPERTS &&
           !c->plan->place.units[u].resident;
}
static inline int64_t chosen_tag(const checker *c, int u) { return tag_of(20000 + u, c->n_routes); }

static inline mt_rc use_weights(checker *c, int u)
{
    memory *m = at(c, MEM_WEIGHTS, mt_sequence_weights(c->s, u));
    bool chosen = is_chosen_from(c, u) && m->tag == chosen_tag(c, u);
    NEED("R1", chosen || m->tag == state_tag(c, u), "old or other weights are computed with", u, mt_sequence_weights(c->s, u));
    return reads(c, MT_Q_COMPUTE, m);
}

/* The block of a layer's kept activations is written; NULL-like layers (L, or nothing kept) are not. */
static inline mt_rc touch_kept(checker *c, int layer, int64_t need, int64_t tag)
{
    if (layer >= c->model->config->L || c->plan->place.layers[layer].keep == MT_KEEP_NOTHING) return MT_OK;
    int slot = mt_sequence_keep_slot(c->s, layer);
    for (int i = 0; i < (slot < 0 ? 4 : 1); i++) {
        memory *m = slot < 0 ? at(c, MEM_KEPT, 4 * layer + i) : at(c, MEM_KEEP_SLOT, slot);
        NEED("U7", !need || m->tag == need, "kept activations are of something else", layer, slot);
        MT_TRY(writes(c, MT_Q_COMPUTE, m, tag));
    }
    return MT_OK;
}

static inline mt_rc add_to_sum(checker *c, int u, int slot, int share)
{
    memory *m = at(c, MEM_SUMS, slot);
    NEED("A2", m->tag == sum_tag(u, share, c->summed), "added to sums that are not of the sweeps before", u, slot);
    return writes(c, MT_Q_COMPUTE, m, sum_tag(u, share, c->summed + 1));
}

static inline mt_rc add_to_unit(checker *c, int u)
{
    return unit_trains(c, u) ? add_to_sum(c, u, mt_sequence_sum(c->s, u), 0) : MT_OK;
}

/* -- actions --------------------------------------------------------------------------------------- */

/* Visits until unit u is used, from this one on or after it. */
static inline int distance_to(const checker *c, int u, int from)
{
    const mt_sequence *s = c->s;
    for (int d = from; d < (s->wraps ? s->n_visits : s->n_visits - s->visit); d++)
        if (s->visits[(s->visit + d) % s->n_visits] == u) return d;
    return 1 << 20;
}

static inline mt_rc check_fetch(checker *c, const mt_action *a)
{
    memory *slot = at(c, MEM_WEIGHTS, a->slot);
    NEED("R5", distance_to(c, a->unit, 0) < 1 << 20, "fetched, and not used before the step ends", a->unit, 0);
    for (int u = 0; u < c->model->n_units; u++)
        if (slot->tag == state_tag(c, u))
            NEED("R3", distance_to(c, u, 1) > distance_to(c, a->unit, 0), "thrown out for something needed no sooner", u,
                 a->unit);
    for (int i = 0; i < 2 * regions_of(c, a->unit); i++) {
        memory *home = home_at(c, a->unit, i / 2, i % 2);
        NEED("R1", home->tag == state_tag(c, a->unit), "fetched before its newest update is at home", a->unit, i / 2);
        MT_TRY(reads(c, MT_Q_IN, home));
    }
    if (!is_chosen_from(c, a->unit)) return writes(c, MT_Q_IN, slot, state_tag(c, a->unit));
    NEED("E4", c->model->units[a->unit].layer == c->routed, "experts are fetched before they are chosen", a->unit, c->routed);
    return writes(c, MT_Q_IN, slot, chosen_tag(c, a->unit));
}

/* -- experts -- */

static inline mt_rc check_routes(checker *c, const mt_action *a)
{
    NEED("E4", c->opened == a->layer && c->expert == mt_layer_first_unit(c->model, a->layer) + 1,
         "routes of a layer whose router has not run", a->layer, c->opened);
    c->routed = a->layer;
    c->n_routes++;
    join_clocks(&c->clock[HOST], &c->clock[MT_Q_COMPUTE]); /* which waits for them */
    return MT_OK;
}

static inline void open_layer(checker *c, int layer)
{
    c->opened = layer;
    c->expert = mt_layer_first_unit(c->model, layer) + 1;
}

/* All of the layer's experts have run. */
static inline mt_rc close_layer(checker *c, int layer)
{
    const mt_layer_units *u = &c->model->layers[layer];
    NEED("E1", c->opened == layer && c->expert == u->first + u->n, "not all experts have run, or none was asked to", layer,
         c->expert);
    c->opened = c->routed = -1;
    return MT_OK;
}

static inline mt_rc check_experts(checker *c, const mt_action *a)
{
    bool train = mt_sequence_mode(c->s) == MT_MODE_TRAIN, backward = a->kind == MT_DO_EXPERTS_BACKWARD;
    int first = mt_sequence_weights(c->s, mt_layer_first_unit(c->model, a->layer));
    NEED("E1", c->opened == a->layer && c->expert == a->unit, "experts out of order", a->unit, c->expert);
    if (backward) NEED("E2", first >= 0 && c->s->ring[first].users, "the layer's first unit is not in use", a->layer, first);
    c->expert++;
    MT_TRY(use_weights(c, a->unit));
    if (backward) MT_TRY(add_to_unit(c, a->unit));
    return train ? touch_kept(c, a->layer, kept_tag(c, a->layer), kept_tag(c, a->layer)) : MT_OK; /* the routes */
}

static inline mt_rc check_close(checker *c, const mt_action *a)
{
    MT_TRY(close_layer(c, a->layer));
    if (mt_sequence_mode(c->s) != MT_MODE_TRAIN) return MT_OK;
    MT_TRY(touch_kept(c, a->layer, kept_tag(c, a->layer), kept_tag(c, a->layer))); /* xmid */
    return touch_kept(c, a->layer + 1, 0, kept_tag(c, a->layer + 1));
}

static inline mt_rc check_reopen(checker *c, const mt_action *a)
{
    MT_TRY(use_weights(c, a->unit));
    MT_TRY(touch_kept(c, a->layer, kept_tag(c, a->layer), kept_tag(c, a->layer)));
    open_layer(c, a->layer);
    if (c->fault.kind == UNLEND) c->s->ring[mt_sequence_weights(c->s, a->unit)].users--;
    return MT_OK;
}

static inline mt_rc check_compute(checker *c, const mt_action *a)
{
    bool train = mt_sequence_mode(c->s) == MT_MODE_TRAIN,
         experts = a->kind == MT_DO_FORWARD && mt_layer_has_experts(c->model, a->layer);
    NEED("E1", c->opened < 0, "a layer's experts are still at work", c->opened, a->unit);
    MT_TRY(use_weights(c, a->unit));
    if (experts) open_layer(c, a->layer);
    if (a->kind == MT_DO_HEAD) return train ? add_to_unit(c, a->unit) : MT_OK;
    int next = a->kind == MT_DO_EMBED ? 0 : a->layer + 1;
    if (a->kind == MT_DO_FORWARD) NEED("P4", ++c->forwards[a->layer] == 1, "forward twice in a sweep", a->layer, 0);
    if (!train) return MT_OK;
    if (a->kind == MT_DO_FORWARD) MT_TRY(touch_kept(c, a->layer, kept_tag(c, a->layer), kept_tag(c, a->layer)));
    return touch_kept(c, next, 0, experts ? 0 : kept_tag(c, next)); /* their sum is missing */
}

static inline mt_rc check_backward(checker *c, const mt_action *a)
{
    if (mt_layer_has_experts(c->model, a->layer)) MT_TRY(close_layer(c, a->layer));
    NEED("E1", c->opened < 0, "a layer's experts are still at work", c->opened, a->layer);
    NEED("P4", a->layer >= 0 && a->end > a->layer, "a segment without layers", a->layer, a->end);
    for (int l = a->layer; l < a->end; l++) {
        NEED("P4", ++c->backwards[l] == 1, "redone twice in a sweep", l, 0);
        MT_TRY(use_weights(c, mt_layer_first_unit(c->model, l)));
        MT_TRY(add_to_unit(c, mt_layer_first_unit(c->model, l)));
    }
    return touch_kept(c, a->layer, kept_tag(c, a->layer), 0);
}

static inline mt_rc check_keep(checker *c, const mt_action *a)
{
    bool out = a->kind == MT_DO_KEEP_OUT;
    memory *slot = at(c, MEM_KEEP_SLOT, a->slot), *host = at(c, MEM_KEPT_HOST, a->layer), *from = out ? slot : host;
    NEED("U7", from->tag == kept_tag(c, a->layer), "other activations are copied", a->layer, a->slot);
    MT_TRY(reads(c, out ? MT_Q_OUT : MT_Q_IN, from));
    return writes(c, out ? MT_Q_OUT : MT_Q_IN, out ? host : slot, kept_tag(c, a->layer));
}

static inline mt_rc check_sum_copy(checker *c, const mt_action *a)
{
    bool out = a->kind == MT_DO_SUM_OUT;
    memory *slot = at(c, MEM_SUMS, a->slot), *host = at(c, MEM_SUMS_HOST, 2 * a->unit + a->share), *from = out ? slot : host;
    int64_t tag = sum_tag(a->unit, a->share, c->summed + (out ? 1 : 0));
    NEED("A2", from->tag == tag, "sums of other sweeps are copied", a->unit, a->share);
    MT_TRY(reads(c, out ? MT_Q_OUT : MT_Q_IN, from));
    return writes(c, out ? MT_Q_OUT : MT_Q_IN, out ? host : slot, tag);
}

/* With the last part of the step the host has the unit's gradient. */
static inline mt_rc check_part_out(checker *c, const mt_action *a)
{
    memory *sum = at(c, MEM_SUMS, a->slot);
    NEED("A2", c->ends[c->sweep], "sums leave before their part is over", a->unit, a->share);
    NEED("A2", sum->tag == sum_tag(a->unit, a->share, c->summed + 1), "other sums leave", a->unit, a->share);
    MT_TRY(reads(c, MT_Q_OUT, sum));
    if (a->share) return MT_OK;
    c->rounded[a->unit]++;
    c->graded[a->unit] = c->step;
    return c->sweep + 1 < c->n_sweeps ? MT_OK : writes(c, MT_Q_OUT, at(c, MEM_PARKED, a->unit), tag_of(5000 + a->unit, c->step));
}

static inline mt_rc check_round(checker *c, const mt_action *a)
{
    int u = a->unit;
    NEED("A2", c->sweep + 1 == c->n_sweeps && ++c->rounded[u] == 1, "rounded twice, or before the last sweep", u, 0);
    c->graded[u] = c->step;
    for (int share = 0; share < (mt_unit_is_tied(c->model, u) ? 2 : 1); share++) {
        memory *sum = at(c, MEM_SUMS, share ? mt_sequence_tied_slot(c->s) : a->slot);
        NEED("A2", sum->tag == sum_tag(u, share, c->n_sweeps), "sums of fewer sweeps are rounded", u, share);
        MT_TRY(reads(c, MT_Q_COMPUTE, sum));
    }
    return writes(c, MT_Q_COMPUTE, a->to < 0 ? device_gradient(c, u) : at(c, MEM_OUTGOING, a->to), grad_tag(c, u));
}

static inline mt_rc check_norm(checker *c, const mt_action *a)
{
    memory *g = a->to < 0 ? device_gradient(c, a->unit) : at(c, MEM_OUTGOING, a->to);
    NEED("A2", g->tag == grad_tag(c, a->unit), "another gradient is measured", a->unit, 0);
    MT_TRY(reads(c, MT_Q_COMPUTE, g));
    return writes(c, MT_Q_COMPUTE, at(c, MEM_NORMS, a->unit), grad_tag(c, a->unit));
}

static inline mt_rc check_gradient_out(checker *c, const mt_action *a)
{
    memory *from = at(c, MEM_OUTGOING, a->slot);
    NEED("A2", from->tag == grad_tag(c, a->unit), "another gradient is sent", a->unit, a->slot);
    MT_TRY(reads(c, MT_Q_OUT, from));
    MT_TRY(reads(c, MT_Q_OUT, at(c, MEM_NORMS, a->unit)));
    return writes(c, MT_Q_OUT, a->to < 0 ? at(c, MEM_PARKED, a->unit) : at(c, MEM_SLAB, a->to), grad_tag(c, a->unit));
}

/* Once a step, from this step's gradient, when that is known to be good, and not while the weights are in use. */
static inline mt_rc check_update(checker *c, int u, mt_queue q, memory *g)
{
    NEED("A2", g->tag == grad_tag(c, u), "updated from another gradient", u, 0);
    NEED("A2", ++c->applied[u] == 1, "updated twice", u, 0);
    NEED("U4", !c->plan->job.clip || (c->judged && c->go), "updated before loss and norm are known to be finite", u, 0);
    /* The head's gradient is there with the loss: its norm alone guards it. */
    NEED("U5", c->plan->job.clip || c->loss_known, "updated before the loss is known to be finite", u, 0);
    NEED("R4", c->s->units[u].slot < 0 || c->s->ring[c->s->units[u].slot].unit != u || !c->s->ring[c->s->units[u].slot].users,
         "updated while its weights are in use", u, 0);
    return reads(c, q, g);
}

static inline mt_rc check_update_home(checker *c, const mt_action *a)
{
    bool on_host = a->kind == MT_DO_UPDATE_HOST;
    mt_queue q = on_host ? MT_Q_ADAM : MT_Q_COMPUTE;
    int u = a->unit;
    memory *parked = a->to < 0 ? at(c, MEM_PARKED, u) : at(c, MEM_SLAB, a->to);
    NEED("H1", on_host || !c->locked[u], "a locked unit is updated", u, 0); /* on the host, the worker waits */
    MT_TRY(check_update(c, u, q, on_host ? parked : device_gradient(c, u)));
    for (int i = 0; i < 4 * regions_of(c, u); i++)
        NEED("U2", home_at(c, u, i / 4, i % 4)->tag == state_tag(c, u), "old state is updated", u, i / 4);
    if (a->in_place) NEED("U3", resident_at(c, u)->tag == state_tag(c, u), "old weights are updated in place", u, 0);
    c->version[u]++;
    for (int part = 0; part < 4; part++) MT_TRY(writes(c, q, home_at(c, u, 0, part), state_tag(c, u)));
    if (a->in_place) MT_TRY(writes(c, q, resident_at(c, u), state_tag(c, u)));
    if (!on_host || c->n_jobs == JOBS) return MT_OK;
    c->jobs[c->n_jobs++] = c->clock[MT_Q_ADAM];
    c->job_of[u] = c->n_jobs;
    return MT_OK;
}

static inline mt_rc check_stage(checker *c, const mt_action *a)
{
    for (unsigned part = MT_PART_HI; part <= MT_PART_OTHERS; part <<= 1) {
        if (!(a->parts & part)) continue;
        memory *home = home_at(c, a->unit, 0, part_index(part));
        NEED("U2", home->tag == state_tag(c, a->unit), "staged before its newest update is at home", a->unit, part_index(part));
        MT_TRY(reads(c, MT_Q_IN, home));
        MT_TRY(writes(c, MT_Q_IN, staged_at(c, a->unit, a->slot, part), state_tag(c, a->unit)));
    }
    return MT_OK;
}

static inline memory *new_state(checker *c, const mt_action *a, unsigned part)
{
    return part == MT_PART_HI && a->in_place ? resident_at(c, a->unit) : staged_at(c, a->unit, a->slot, part);
}

static inline mt_rc check_update_staged(checker *c, const mt_action *a)
{
    MT_TRY(check_update(c, a->unit, MT_Q_COMPUTE, device_gradient(c, a->unit)));
    for (unsigned part = MT_PART_HI; part <= MT_PART_OTHERS; part <<= 1)
        NEED(a->in_place ? "U10" : "U2", new_state(c, a, part)->tag == state_tag(c, a->unit), "old state is updated", a->unit,
             part_index(part));
    c->version[a->unit]++;
    for (unsigned part = MT_PART_HI; part <= MT_PART_OTHERS; part <<= 1)
        MT_TRY(writes(c, MT_Q_COMPUTE, new_state(c, a, part), state_tag(c, a->unit)));
    return MT_OK;
}

static inline mt_rc check_write_back(checker *c, const mt_action *a)
{
    NEED("H1", !c->locked[a->unit], "the home of a locked unit is overwritten", a->unit, 0);
    for (unsigned part = MT_PART_HI; part <= MT_PART_OTHERS; part <<= 1) {
        memory *from = new_state(c, a, part);
        if (!(a->parts & part)) continue;
        NEED("U7", from->tag == state_tag(c, a->unit), "something else is written back", a->unit, part_index(part));
        MT_TRY(reads(c, MT_Q_BACK, from));
        MT_TRY(writes(c, MT_Q_BACK, home_at(c, a->unit, 0, part_index(part)), state_tag(c, a->unit)));
    }
    return MT_OK;
}

/* What a piece's slot has is what was at home; whether it should have been is seen when it is updated. */
static inline mt_rc check_piece_in(checker *c, const mt_action *a)
{
    memory *g = a->to < 0 ? at(c, MEM_PARKED, a->unit) : at(c, MEM_SLAB, a->to);
    NEED("A2", g->tag == last_grad_tag(c, a->unit), "a piece of another gradient is staged", a->unit, 0);
    MT_TRY(reads(c, MT_Q_PIECE_IN, g));
    MT_TRY(writes(c, MT_Q_PIECE_IN, piece_at(c, a->slot, PIECE_GRADIENT), g->tag));
    for (int part = 0; part < 4; part++) {
        memory *home = home_at(c, a->unit, region_of(c, a), part);
        MT_TRY(reads(c, MT_Q_PIECE_IN, home));
        MT_TRY(writes(c, MT_Q_PIECE_IN, piece_at(c, a->slot, part), home->tag));
    }
    return MT_OK;
}

/* The workers' share has its new version first: with clipping, once the norm is known (U4). */
static inline mt_rc check_piece_update(checker *c, const mt_action *a)
{
    int u = a->unit;
    NEED("A2", piece_at(c, a->slot, PIECE_GRADIENT)->tag == last_grad_tag(c, u), "a piece is updated from another gradient", u,
         a->slot);
    MT_TRY(reads(c, MT_Q_PIECE, piece_at(c, a->slot, PIECE_GRADIENT)));
    MT_TRY(reads(c, MT_Q_PIECE, at(c, MEM_NORMS, u)));
    MT_TRY(writes(c, MT_Q_PIECE, at(c, MEM_BAD, 0), 1));
    for (int part = 0; part < 4; part++) {
        NEED("U11", piece_at(c, a->slot, part)->tag == old_tag(c, u), "a piece is updated twice, too early, or is another", u,
             region_of(c, a));
        MT_TRY(writes(c, MT_Q_PIECE, piece_at(c, a->slot, part), state_tag(c, u)));
    }
    return MT_OK;
}

static inline mt_rc check_piece_back(checker *c, const mt_action *a)
{
    int u = a->unit;
    NEED("H1", !c->locked[u], "a piece of a locked unit is overwritten", u, 0);
    for (int part = 0; part < 4; part++) {
        memory *from = piece_at(c, a->slot, part);
        NEED("U11", from->tag == state_tag(c, u), "something else is written back, or a piece that was not updated", u,
             region_of(c, a));
        MT_TRY(reads(c, MT_Q_PIECE_BACK, from));
        MT_TRY(writes(c, MT_Q_PIECE_BACK, home_at(c, u, region_of(c, a), part), state_tag(c, u)));
    }
    return MT_OK;
}

static inline mt_rc check_read_sums(checker *c)
{
    for (int u = 0; u < c->model->n_units; u++) MT_TRY(reads(c, MT_Q_COMPUTE, at(c, MEM_NORMS, u)));
    MT_TRY(reads(c, MT_Q_COMPUTE, at(c, MEM_BAD, 0)));
    c->sums = c->clock[MT_Q_COMPUTE];
    return MT_OK;
}

static inline void begin_sweep(checker *c, int64_t sweep)
{
    const bool parts = mt_plan_lanes(c->plan) > 1;
    c->summed = sweep == 0 || (parts && c->ends[sweep - 1]) ? 0 : c->summed + 1;
    c->sweep = sweep;
    c->sweeps++;
    c->opened = -1;
    c->loss_known = false;
    for (int l = 0; l < c->model->config->L; l++) c->forwards[l] = c->backwards[l] = 0;
    if (c->fault.kind == HASTE) c->s->at_once = true;
}

static inline mt_rc check_action(checker *c, const mt_action *a)
{
    mt_queue q = mt_action_queue[a->kind];
    join_clocks(&c->clock[q], &c->clock[HOST]); /* issued after what the host has waited for */
    c->clock[q].at[q]++;
    c->n_actions++;
    c->doing = a->kind;
    switch (a->kind) {
    case MT_DO_SWEEP: return begin_sweep(c, a->sweep), MT_OK;
    case MT_DO_FETCH: return check_fetch(c, a);
    case MT_DO_EMBED:
    case MT_DO_FORWARD:
    case MT_DO_HEAD: return check_compute(c, a);
    case MT_DO_ROUTES: return check_routes(c, a);
    case MT_DO_EXPERTS:
    case MT_DO_EXPERTS_BACKWARD: return check_experts(c, a);
    case MT_DO_CLOSE: return check_close(c, a);
    case MT_DO_REOPEN: return check_reopen(c, a);
    case MT_DO_BACKWARD: return check_backward(c, a);
    case MT_DO_EMBED_BACKWARD: return add_to_sum(c, a->unit, a->slot, mt_unit_is_tied(c->model, a->unit));
    case MT_DO_KEEP_OUT:
    case MT_DO_KEEP_IN: return check_keep(c, a);
    case MT_DO_SUM_CLEAR: return writes(c, q, at(c, MEM_SUMS, a->slot), sum_tag(a->unit, a->share, 0));
    case MT_DO_SUM_IN:
    case MT_DO_SUM_OUT: return check_sum_copy(c, a);
    case MT_DO_PART_OUT: return check_part_out(c, a);
    case MT_DO_ROUND: return check_round(c, a);
    case MT_DO_NORM: return check_norm(c, a);
    case MT_DO_GRADIENT_OUT: return check_gradient_out(c, a);
    case MT_DO_STAGE: return check_stage(c, a);
    case MT_DO_UPDATE_HOST:
    case MT_DO_UPDATE_DEVICE: return check_update_home(c, a);
    case MT_DO_UPDATE_STAGED: return check_update_staged(c, a);
    case MT_DO_WRITE_BACK: return check_write_back(c, a);
    case MT_DO_PIECE_IN: return check_piece_in(c, a);
    case MT_DO_PIECE_UPDATE: return check_piece_update(c, a);
    case MT_DO_PIECE_BACK: return check_piece_back(c, a);
    case MT_DO_READ_SUMS: return check_read_sums(c);
    case MT_DO_COUNT: break;
    }
    return MT_OK;
}

/* -- the port -------------------------------------------------------------------------------------- */

static inline int event_class(const mt_sequence *s, int event)
{
    if (event < s->layer_events) return OF_UNIT + event % UNIT_EVENTS;
    if (event < s->ring_events) return OF_LAYER + (event - s->layer_events) % LAYER_EVENTS;
    if (event < s->keep_events) return OF_RING + (event - s->ring_events) % SLOT_EVENTS;
    if (event < s->sum_events) return OF_KEEP + (event - s->keep_events) % SLOT_EVENTS;
    if (event < s->out_events) return OF_SUM + (event - s->sum_events) % SLOT_EVENTS;
    if (event < s->stage_events) return OF_OUT + (event - s->out_events) % SLOT_EVENTS;
    if (event < s->piece_events) return OF_STAGE + (event - s->stage_events) % STAGE_EVENTS;
    return event < s->slab_events ? OF_PIECE + (event - s->piece_events) % STAGE_EVENTS : OF_SLAB;
}

static inline bool is_fault(const checker *c, fault_kind kind, int what, int queue)
{
    return c->fault.kind == kind && c->fault.what == what && c->fault.queue == queue;
}

static inline mt_rc checker_issue(void *self, const mt_action *a, mt_err *err)
{
    checker *c = self;
    (void)err;
    if (is_fault(c, DROP_ACTION, a->kind, 0) && roll(&c->d, 4) == 0) return MT_OK;
    if (is_fault(c, TWICE_ACTION, a->kind, 0) && roll(&c->d, 4) == 0) MT_TRY(check_action(c, a));
    return check_action(c, a);
}

static inline mt_rc checker_record(void *self, mt_queue q, int event, mt_err *err)
{
    checker *c = self;
    (void)err;
    if (is_fault(c, DROP_RECORD, event_class(c->s, event), (int)q)) return MT_OK;
    join_clocks(&c->clock[q], &c->clock[HOST]);
    c->events[event] = c->clock[q];
    return MT_OK;
}

static inline mt_rc checker_wait(void *self, mt_queue q, int event, mt_err *err)
{
    checker *c = self;
    (void)err;
    if (is_fault(c, DROP_WAIT, event_class(c->s, event), (int)q)) return MT_OK;
    join_clocks(&c->clock[q], &c->events[event]); /* all zero where it was never recorded */
    return MT_OK;
}

/* Host updates finish in order (U1), now or later. */
static inline void finish_jobs(checker *c, int jobs)
{
    if (jobs > c->jobs_done) c->jobs_done = jobs;
    if (jobs > 0) join_clocks(&c->clock[HOST], &c->jobs[jobs - 1]);
}

static inline bool checker_updated(void *self, int u, int64_t version)
{
    checker *c = self;
    (void)version;
    if (c->fault.kind == LIE_UPDATED) return true;
    while (c->jobs_done < c->n_jobs && roll(&c->d, 2)) c->jobs_done++;
    if (c->job_of[u] > c->jobs_done) return false;
    finish_jobs(c, c->job_of[u]);
    return true;
}

static inline mt_rc checker_await_update(void *self, int u, int64_t version, mt_err *err)
{
    checker *c = self;
    (void)version, (void)err;
    NEED("R6", c->s->visits[c->s->visit] == u, "a prefetch waits for an update", u, 0);
    finish_jobs(c, c->job_of[u]);
    return MT_OK;
}

static inline bool checker_locked(void *self, int u)
{
    checker *c = self;
    if (c->locked[u] && roll(&c->d, 3) == 0) c->locked[u] = false;
    return c->locked[u];
}

static inline mt_rc checker_await_unlock(void *self, int u, mt_err *err)
{
    checker *c = self;
    (void)err;
    bool lie = c->fault.kind == LIE_UNLOCKED && (!c->fault.what || place_of(c, u)->in_pieces);
    if (!lie) c->locked[u] = false;
    return MT_OK;
}

static inline mt_rc checker_await_jobs(void *self, int64_t jobs, mt_err *err)
{
    checker *c = self;
    (void)err;
    if (c->fault.kind != LIE_JOBS) finish_jobs(c, (int)jobs);
    return MT_OK;
}

/* The host has all parts, and without clipping it has applied them. */
static inline mt_rc fold_parts(checker *c)
{
    join_clocks(&c->clock[HOST], &c->clock[MT_Q_OUT]);
    for (int u = 0; u < c->model->n_units && !c->plan->job.clip && c->s->mode == MT_MODE_TRAIN; u++) {
        if (!unit_trains(c, u)) continue;
        const mt_action update = { .kind = MT_DO_UPDATE_HOST, .unit = u, .to = -1 };
        join_clocks(&c->clock[MT_Q_ADAM], &c->clock[HOST]);
        c->clock[MT_Q_ADAM].at[MT_Q_ADAM]++;
        MT_TRY(check_update_home(c, &update));
    }
    return MT_OK;
}

static inline mt_rc checker_judge(void *self, bool all, bool *go, mt_err *err)
{
    checker *c = self;
    (void)err;
    join_clocks(&c->clock[HOST], &c->sums);
    c->loss_known = true;
    c->judged = all;
    *go = c->go = roll(&c->d, 4) > 0;
    if (c->fault.kind == LIE_JUDGE) c->go = !*go;
    return all && mt_plan_lanes(c->plan) > 1 ? fold_parts(c) : MT_OK;
}

static const mt_port checker_port = { .issue = checker_issue,
                                      .record = checker_record,
                                      .wait = checker_wait,
                                      .updated = checker_updated,
                                      .await_update = checker_await_update,
                                      .locked = checker_locked,
                                      .await_unlock = checker_await_unlock,
                                      .await_jobs = checker_await_jobs,
                                      .judge = checker_judge };

/* -- runs ------------------------------------------------------------------------------------------ */

/* Every gradient has reached its update exactly once, or none has. */
static inline mt_rc check_step(checker *c, mt_mode mode)
{
    int parts = 1;
    for (int64_t i = 0; i + 1 < c->n_sweeps && mt_plan_lanes(c->plan) > 1; i++) parts += c->ends[i];
    for (int u = 0; u < c->model->n_units; u++) {
        bool gradient = mode == MT_MODE_TRAIN && unit_trains(c, u), update = gradient && (c->go || !c->plan->job.clip);
        NEED("A2", c->rounded[u] == gradient * parts, "its gradient was not finished once", u, c->rounded[u]);
        NEED("A2", c->applied[u] == update, "its gradient did not reach one update", u, c->applied[u]);
    }
    return MT_OK;
}

static inline mt_rc checker_run(checker *c, mt_mode mode, int64_t n_sweeps)
{
    mt_err err = { 0 };
    c->step++;
    c->n_sweeps = n_sweeps;
    c->judged = c->go = false;
    for (int u = 0; u < c->model->n_units; u++) c->rounded[u] = c->applied[u] = 0;
    const bool parts = mt_plan_lanes(c->plan) > 1 && mode == MT_MODE_TRAIN;
    for (int64_t i = 0; i < n_sweeps && parts; i++)
        c->ends[i] = i + 1 == n_sweeps || !mt_plan_many_sweeps(c->plan) || roll(&c->d, 2);
    mt_sequence_parts(c->s, parts ? c->ends : NULL);
    mt_rc rc = mt_sequence_run(c->s, mode, n_sweeps, &err);
    if (rc && !c->failed[0]) snprintf(c->failed, sizeof c->failed, "the sequencer: %.200s", err.msg);
    return rc ? rc : check_step(c, mode);
}

/* A snapshot begins: every unit is locked. */
static inline mt_rc checker_lock(checker *c)
{
    mt_err err = { 0 };
    MT_TRY(mt_sequence_write_back(c->s, &err));
    for (int u = 0; u < c->model->n_units; u++) c->locked[u] = true;
    return MT_OK;
}

/* The host waits for everything, and writes some units' state. */
static inline mt_rc checker_write(checker *c)
{
    mt_err err = { 0 };
    MT_TRY(mt_sequence_write_back(c->s, &err));
    for (int q = 0; q < MT_QUEUES; q++) join_clocks(&c->clock[HOST], &c->clock[q]);
    c->jobs_done = c->n_jobs;
    for (int u = 0; u < c->model->n_units; u++) {
        if (roll(&c->d, 2)) continue;
        for (int i = 0; i < 4 * regions_of(c, u); i++) {
            memory *home = home_at(c, u, i / 4, i % 4);
            NEED("U2", home->tag == state_tag(c, u), "the newest state is not at home", u, i / 4);
            home->tag = tag_of(u + 1, c->version[u] + 1);
        }
        c->version[u]++;
        if (c->fault.kind != FORGET) mt_sequence_forget(c->s, u);
    }
    return MT_OK;
}

static inline void checker_open(checker *c, const mt_plan *plan, uint64_t seed, fault f)
{
    mt_err err = { 0 };
    const mt_model *m = plan->model;
    size_t n = (size_t)m->n_units, L = (size_t)m->config->L;
    *c = (checker){ .plan = plan, .model = m, .d = { seed, 0 }, .fault = f };
    assert_ok(mt_sequence_create(&c->s, m, &err));
    mt_sequence_open(c->s, plan, &checker_port, c);
    mt_sequence_slots slots = mt_sequence_count(c->s);
    c->regions = mt_calloc(n + 1, sizeof *c->regions);
    for (int u = 0; u < (int)n; u++) c->regions[u + 1] = c->regions[u] + 1 + mt_plan_pieces(plan, u);
    int n_regions = c->regions[n];
    const int sizes[MEM_KINDS] = { slots.ring,
                                   slots.keeps,
                                   4 * (int)L,
                                   (int)L,
                                   slots.sums,
                                   2 * (int)n,
                                   slots.outs,
                                   (int)n,
                                   (int)n,
                                   plan->place.n_slabs,
                                   4 * slots.stages,
                                   PIECE_PARTS * slots.pieces,
                                   4 * n_regions,
                                   (int)n,
                                   1 };
    for (int i = 0; i < MEM_KINDS; i++) c->first[i + 1] = c->first[i] + sizes[i];
    c->memory = mt_calloc((size_t)c->first[MEM_KINDS], sizeof *c->memory);
    for (int i = 0; i < c->first[MEM_KINDS]; i++) c->memory[i].writer = -1;
    c->events = mt_calloc((size_t)mt_sequence_events(c->s), sizeof *c->events);
    c->job_of = mt_calloc(n, sizeof *c->job_of);
    c->version = mt_calloc(n, sizeof *c->version);
    c->rounded = mt_calloc(n, sizeof *c->rounded);
    c->applied = mt_calloc(n, sizeof *c->applied);
    c->forwards = mt_calloc(L, sizeof *c->forwards);
    c->backwards = mt_calloc(L, sizeof *c->backwards);
    c->locked = mt_calloc(n, sizeof *c->locked);
    c->graded = mt_calloc(n, sizeof *c->graded);
    for (int u = 0; u < (int)n; u++)
        for (int i = 0; i < 4 * regions_of(c, u); i++) home_at(c, u, i / 4, i % 4)->tag = tag_of(u + 1, 0);
}

static inline void checker_close(checker *c)
{
    mt_sequence_free(c->s);
    mt_free(c->memory), mt_free(c->events), mt_free(c->job_of), mt_free(c->version), mt_free(c->rounded);
    mt_free(c->applied), mt_free(c->forwards), mt_free(c->backwards), mt_free(c->locked);
    mt_free(c->regions), mt_free(c->graded);
}

#endif
