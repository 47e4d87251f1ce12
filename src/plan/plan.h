/* plan.h - the contract between planner and engine: the engine executes a plan and decides nothing.
 *
 * A plan has two halves.
 *   arithmetic  what is computed, in which order sums meet: dtypes, micro-batches, row chunks.  It decides the
 *               bits of a run; it is hashed, stored with the run, and reused on resume.
 *   placement   where things are and when they move: sweeps, ring, what is kept, homes, residency, update
 *               sites.  It never changes a bit (tests/equiv/test_placement.c).
 * From both follows every large buffer, by name, size and place; the engine allocates exactly those. */
#ifndef MT_PLAN_PLAN_H
#define MT_PLAN_PLAN_H

#include "model/layer.h"
#include "plan/machine.h"

enum {
    MT_BOUNCE_BYTES = 1 << 20,
    MT_STATE_SLOTS = 8
};                            /* state and results on their way between the device and a caller; of
                                     * threads that load or save, so many pieces at once */
enum { MT_MAX_SEGMENT = 64 }; /* layers redone from one kept input */

typedef enum mt_place { MT_HOST, MT_DEVICE } mt_place;

typedef enum mt_site {
    MT_SITE_HOST,   /* workers update it in host memory */
    MT_SITE_DEVICE, /* its state lives on the device */
    MT_SITE_STAGED, /* state lives on the host, is copied in, updated on the device, written back */
} mt_site;

/* Where the sums of several lanes meet. */
typedef enum mt_fold_route {
    MT_FOLD_HOST,  /* in host memory */
    MT_FOLD_PEERS, /* on the devices, in slices (plan/slices.h) */
} mt_fold_route;

typedef struct mt_arithmetic {
    mt_dtype compute;            /* F32 or BF16 */
    mt_dtype grad;               /* finished gradients are rounded to this everywhere */
    mt_moments moments;          /* how Adam's m and v are stored between updates */
    int64_t micro_tokens;        /* a micro-batch takes whole documents up to this many rows */
    int64_t mlp_rows, head_rows; /* rows at a time */
    int64_t moe_tokens;   /* whole micro-batches pass an expert together, up to this many rows; fewer than a micro-batch has: each
                             alone */
    int64_t unit_experts; /* the model's; 0: it has no experts, or (before there is a plan) whatever it has */
    mt_attention_use attention; /* which kernels; its docs and longest follow from the job */
    int64_t bundles, shares;    /* a step's documents are dealt to bundles x shares, which are summed apart (deal.h); 0 is 1 */
    bool reduce_bf16;           /* each of several bundles is rounded to bf16 before it is added, and sent to other machines */
} mt_arithmetic;

static inline int mt_arithmetic_bundles(const mt_arithmetic *a) { return a->bundles > 1 ? (int)a->bundles : 1; }
static inline int mt_arithmetic_shares(const mt_arithmetic *a) { return a->shares > 1 ? (int)a->shares : 1; }
static inline bool mt_arithmetic_rounds(const mt_arithmetic *a) { return a->reduce_bf16 && a->bundles > 1; }
static inline int mt_arithmetic_parts(const mt_arithmetic *a) { return mt_arithmetic_bundles(a) * mt_arithmetic_shares(a); }

typedef struct mt_unit_place {
    bool resident; /* weights stay on the device through the step instead of passing through the ring */
    mt_place home; /* of hi, lo, m, v; on the device implies resident */
    mt_site site;
    bool reuses;       /* staged: m borrows the unit's accumulator, v, lo, the gradient and hi what layers keep, which the last
                      backward frees; else they take a stage slot: one of their own, where they stay from step to step
                      (mt_plan_private_slot), or one that several take in turn */
    int64_t in_pieces; /* site host: the device updates this many of the last trained elements, piece by piece (piece_slots); the
                          workers update the rest.  0: the workers update all of them */
    /* Worked out by the plan (mt_plan_settle). */
    int reused[2];    /* those layers: of v, and of the rest */
    int private_slot; /* the stage slot that is the unit's own; -1: none */
} mt_unit_place;

/* What the units of a group share. */
typedef struct mt_group_place {
    int ring_slots; /* weights of units that are not resident pass through them */
    int sum_slots;  /* gradients are summed in them, unless the sums stay on the device between sweeps */
    int out_slots;  /* finished gradients pass through them on their way to the host */
    /* Worked out by the plan (mt_plan_settle). */
    int members, streamed, hosted; /* units: all, those that are not resident, those updated on the host */
    int in_segment, together;      /* units that one segment uses at once: of the newest, at most; experts come one by one */
    int alias;                     /* the first unit whose home is the host; -1: none */
} mt_group_place;

typedef struct mt_layer_place {
    mt_keep keep;
    mt_place place; /* of what is kept */
} mt_layer_place;

typedef struct mt_placement {
    int64_t sweep_tokens;  /* rows of one sweep; fewer than the step's: several sweeps */
    mt_place accumulators; /* where gradients wait between sweeps */
    int keep_slots;        /* device slots that kept activations pass through on their way to the host */
    int staging_slots;     /* device slots of staged updates */
    int piece_slots;       /* device slots that pieces of units pass through: state in, update, state back */
    int64_t piece_elems;   /* elements of a piece, whole blocks of moments; the last piece of a unit may be shorter */
    int n_slabs;           /* host slabs for gradients when clipping is off */
    mt_fold_route fold;    /* several lanes: where the sums of shares meet */
    bool gather; /* with MT_FOLD_PEERS: of weights whose home is the host each lane keeps a slice on its device, refreshed
                               after each update, and gathers the rest from the others' */
    mt_unit_place *units;   /* [n_units] */
    mt_group_place *groups; /* [n_groups] */
    mt_layer_place *layers; /* [L] */
} mt_placement;

/* What is asked of a run. */
typedef struct mt_job {
    bool train;          /* false: forward only, no state, no gradients */
    bool clip;           /* updates wait for the global norm */
    bool only_gradients; /* with train: backward, and nothing is ever updated: no m, no v */
    int64_t step_tokens; /* rows of a step, at most */
    int64_t step_docs;   /* documents of a step, at most */
    int64_t longest;     /* rows of a document, at most */
    bool mapped;         /* forward only, in bf16: hi of units whose home is the host lies in mapped files and has no buffer */
    int lanes;           /* with train: devices of this machine that compute, a thread each; 0: one */
    int machines;        /* with train: of which each has a slice of the state and some of the bundles (mt_plan_slice); 0: one */
    int machine;         /* which one of them this is */
    int64_t cache_slots; /* sequences whose keys and values are kept for generation, `longest` rows each; 0: none */
    double router_loss;  /* coefficient of the routers' load-balancing loss; 0: none */
    bool alias_layers;   /* all layers of a group that live in host memory share one layer's there, and what they keep there, too:
                            to measure the speed of models larger than it.  Such a run computes nonsense */
} mt_job;

/* Kinds of buffers; index says which one (unit, layer, group, slot). */
#define MT_BUFFER_LIST(X)                                                                                                        \
    X(HI, "master.hi")               /* unit, at its home */                                                                     \
    X(LO, "master.lo")               /* unit */                                                                                  \
    X(EXACT_HOME, "master.exact")    /* unit, where nothing is updated: hi, then lo, of exact numbers */                         \
    X(M, "adam.m")                   /* unit */                                                                                  \
    X(V, "adam.v")                   /* unit */                                                                                  \
    X(PARKED, "grad.parked")         /* unit: host, waits for the norm */                                                        \
    X(SLAB, "grad.slab")             /* slab: host */                                                                            \
    X(RESIDENT, "weights.resident")  /* unit: compute form */                                                                    \
    X(RING, "weights.ring")          /* group, slot */                                                                           \
    X(WEIGHT_SLICE, "weights.slice") /* unit, 0 or 1: hi or lo of the lane's slice of weights whose home is the host */          \
    X(EXACT, "weights.exact")        /* group, slot or unit: exact numbers in fp32, and their halves on the way */               \
    X(HALVES, "weights.halves")      /* group, slot or unit: hi and lo on their way to fp32 */                                   \
    X(ACC, "grad.acc")               /* unit or (group, slot): fp32 */                                                           \
    X(ACC_TIED, "grad.acc_tied")     /* the embedding's share of a tied unit */                                                  \
    X(ACC_HOST, "grad.acc_host")     /* unit: fp32, between sweeps */                                                            \
    X(GRAD, "grad.out")              /* group, slot: rounded, on its way out */                                                  \
    X(LAND, "grad.land")           /* slot: a share's fp32 sum on its way to the step's, of several lanes: in host memory, or \
                                       the lane's slice of every lane's */  \
    X(LAND_TIED, "grad.land_tied") /* the same of the embedding's share of a tied unit */                                        \
    X(TOTAL, "grad.total")         /* unit, sum: fp32, of the shares so far; where the landing slots are */                      \
    X(SLICE, "grad.slice")         /* the lane's finished slice of a gradient on its way to the host */                          \
    X(CHUNKS, "grad.chunks")       /* sums of squares of its chunks, of all of them, and weights that left the finite range */   \
    X(CHUNKS_HOST, "grad.chunks_host") /* of all chunks of a unit */                                                             \
    X(SEND, "exchange.send")           /* slot: host, a bundle's fp32 sum on its way to the machines that own slices of it */    \
    X(RECEIVE, "exchange.receive")     /* slot: host, this machine's slice of the sums of the others */                          \
    X(SLICE_TOTAL, "exchange.sum")     /* unit, sum: host, fp32, this machine's slice of the bundles so far */                   \
    X(UNIT_CHUNKS, "exchange.chunks")  /* unit: host, sums of squares of its chunks */                                           \
    X(GRAD_DEV, "grad.device")         /* unit: rounded, stays */                                                                \
    X(STAGE, "stage")                  /* slot: hi, lo, m, v */                                                                  \
    X(PIECE, "stage.piece")            /* slot: hi, lo, m, v and gradient of a piece */                                          \
    X(KEEP, "keep")                    /* layer: kept activations on the device */                                               \
    X(KEEP_SLOT, "keep.slot")          /* slot */                                                                                \
    X(KEEP_HOST, "keep.host")          /* layer */                                                                               \
    X(X_PASS, "x.pass")                /* two: inputs that are not kept */                                                       \
    X(DX, "dx")                                                                                                                  \
    X(LAYER_WORK, "work.layer") /* set: activations of one layer and micro-batch */                                              \
    X(WORK, "work")             /* what all layers share */                                                                      \
    X(ENDS, "work.ends")        /* of embedding and head */                                                                      \
    X(SCRATCH, "scratch")                                                                                                        \
    X(ROPE, "rope")   /* cos, sin */                                                                                             \
    X(INPUT, "input") /* ids, positions, targets of a step */                                                                    \
    X(INPUT_HOST, "input.host")                                                                                                  \
    X(ROUTER, "router.sums") /* counts and probabilities of each micro-batch's experts, for the load-balancing loss */           \
    X(SUMS, "sums")          /* loss and norms */                                                                                \
    X(SUMS_HOST, "sums.host")                                                                                                    \
    X(CACHE, "cache.kv")            /* layer: keys, then values, of generated sequences */                                       \
    X(LOGITS_HOST, "logits.host")   /* of a row per cache slot */                                                                \
    X(BOUNCE, "bounce")             /* host: what is on its way between the device and a caller */                               \
    X(BOUNCE_STATE, "bounce.state") /* host: the same for threads that load and save */

typedef enum mt_buffer_kind {
#define MT_BUFFER_ENUM(kind, name) MT_BUF_##kind,
    MT_BUFFER_LIST(MT_BUFFER_ENUM)
#undef MT_BUFFER_ENUM
        MT_BUFFER_KINDS
} mt_buffer_kind;

typedef struct mt_buffer {
    mt_buffer_kind kind;
    int i, j; /* unit, layer, group, slot: see the list; -1: none */
    mt_place place;
    size_t bytes;
    char name[40]; /* "weights.ring 1.0" */
} mt_buffer;

/* Seconds of a step: what each part would take alone, and all of it, overlapped. */
typedef struct mt_times {
    double compute, copy_in, copy_out, adam_host, data;
    double copy_peer; /* between devices */
    double step;
    const char *bound; /* by what: the part that takes longest, in words */
} mt_times;

typedef struct mt_plan {
    const mt_model *model; /* borrowed; outlives the plan */
    mt_job job;
    mt_arithmetic arithmetic;
    mt_placement place;
    /* Worked out by the plan (mt_plan_settle): */
    int64_t part_tokens;       /* mt_plan_part_tokens */
    int longest_segment;       /* layers between kept inputs, the kept one included */
    bool has_pieces;           /* some unit is updated in pieces */
    bool private_slots;        /* every unit that needs a stage slot has its own */
    int shared_keep[MT_KEEPS]; /* the first layer that keeps so much in host memory; -1: none */
    mt_buffer *buffers;
    size_t n_buffers, cap_buffers;
    size_t device_bytes, host_bytes;
    size_t base_host, base_device; /* what the runtime takes besides, of the machine it was chosen for */
    mt_times times;                /* of a step, by whoever chose the placement; 0: nobody */
    double predicted_seconds;      /* times.step */
    double searched_seconds;       /* the same as the search saw it, which merges equal layers with experts; 0: it does not */
    bool counting;                 /* only sizes are wanted: no list is made */
    size_t scratch;                /* bytes of op scratch, which follow from model, job and arithmetic; 0: not known yet */
} mt_plan;

/* A plan from both halves, which are copied.  Refuses what contradicts itself. */
mt_rc mt_plan_create(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, const mt_placement *p,
                     mt_err *err);
void mt_plan_free(mt_plan *plan);
/* Only the sizes: fills device_bytes, host_bytes and longest_segment of a plan whose other fields the caller has set, placement
 * borrowed.  Allocates nothing. */
mt_rc mt_plan_measure(mt_plan *plan, mt_err *err);

/* A placement with room for the model's units, groups and layers, all zero; release with mt_placement_free. */
mt_rc mt_placement_init(mt_placement *p, const mt_model *model, mt_err *err);
/* As many slots for every group. */
void mt_placement_set_slots(mt_placement *p, const mt_model *model, int ring, int sums, int outs);
/* The most ring slots any group has. */
int mt_placement_ring(const mt_placement *p, const mt_model *model);
void mt_placement_free(mt_placement *p);

/* What the limits ask of this model can be done. */
mt_rc mt_limits_check(const mt_limits *l, const mt_model *model, mt_err *err);
/* The longest segment (layers redone from one kept input) they allow it. */
int mt_limits_longest(const mt_limits *l, const mt_model *model);

/* What a plan is chosen for; all borrowed for the call. */
typedef struct mt_plan_inputs {
    const mt_model *model;
    const mt_job *job;
    const mt_arithmetic *arithmetic; /* of a fresh run: all of it but how many rows are taken at a time */
    const mt_machine *machine;
} mt_plan_inputs;

/* The fastest placement that fits, by the time model of step_time.c.  Says what is short when nothing fits. */
mt_rc mt_plan_search(mt_plan **out, mt_plan_inputs in, mt_err *err);
/* The same with less care, to compare by; or *out = NULL when no placement found is faster than `seconds`. */
mt_rc mt_plan_search_faster(mt_plan **out, mt_plan_inputs in, double seconds, mt_err *err);
/* Whether something fits, in a millisecond or two: then, and only then, the searches find a plan. */
bool mt_plan_fits(mt_plan_inputs in);
/* The least memory a placement works with: of the device; of the host, among those whose device memory fits (SIZE_MAX: there is
 * none). */
typedef struct mt_need {
    size_t device, host;
} mt_need;
mt_rc mt_plan_need(mt_need *out, mt_plan_inputs in, mt_err *err);
/* Rows that pass an expert together in a fresh run whose micro-batches are chosen; 0: each micro-batch alone. */
int64_t mt_plan_moe_tokens(mt_plan_inputs in);
/* Placement and arithmetic of a fresh run. */
mt_rc mt_plan_auto(mt_plan **out, mt_plan_inputs in, mt_err *err);
/* About what a step would take by it, to compare steps of several sizes, the largest first: *hint is 0 for that, and handed
 * on. */
mt_rc mt_plan_quick(double *seconds, mt_plan_inputs in, int64_t *hint, mt_err *err);
/* Of a fresh run's arithmetics the one that needs least, and whether that fits: then, and only then, there is a plan. */
mt_arithmetic mt_plan_smallest(mt_plan_inputs in);
bool mt_plan_auto_fits(mt_plan_inputs in);
/* mt_plan_search for a typical machine with this much device memory (0: no limit). */
mt_rc mt_plan_choose(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, size_t device_bytes,
                     mt_err *err);

/* The placement in a sentence. */
void mt_plan_describe(const mt_plan *plan, char *out, size_t n);
/* What its layers keep, and how that compares with what the limits ask for. */
void mt_plan_describe_kept(const mt_plan *plan, const mt_limits *limits, char *out, size_t n);
/* What attention may use, with the most documents and rows a micro-batch can have. */
mt_attention_use mt_plan_attention(const mt_plan *plan);
/* The arithmetic as one number. */
uint64_t mt_arithmetic_hash(const mt_arithmetic *a);

static inline int mt_plan_lanes(const mt_plan *p) { return p->job.lanes > 1 ? p->job.lanes : 1; }
static inline int mt_plan_machines(const mt_plan *p) { return p->job.machines > 1 ? p->job.machines : 1; }
/* Lanes hand on the sum of each share, and the host adds: there are several lanes, or several machines. */
static inline bool mt_plan_by_shares(const mt_plan *p) { return mt_plan_lanes(p) > 1 || mt_plan_machines(p) > 1; }

/* Who computes what.  Machine m of n takes bundles m, m + n, ... one after the other, so the order in which bundles are summed is
 * the order in which they meet (D2), and a machine needs one sum of them; one beyond the bundles computes nothing, and has slices.  A round is a share of each lane.  On one machine lanes
 * take the step's shares in turn.  On several a round has shares of one bundle, so all machines finish bundles in one order. */
/* Rounds that one bundle takes; of several machines. */
static inline int mt_plan_bundle_rounds(const mt_plan *p)
{
    return (mt_arithmetic_shares(&p->arithmetic) + mt_plan_lanes(p) - 1) / mt_plan_lanes(p);
}
/* Bundles of the machine that has most. */
static inline int mt_plan_turns(const mt_plan *p)
{
    return (mt_arithmetic_bundles(&p->arithmetic) + mt_plan_machines(p) - 1) / mt_plan_machines(p);
}
static inline int mt_plan_rounds(const mt_plan *p)
{
    if (mt_plan_machines(p) > 1) return mt_plan_turns(p) * mt_plan_bundle_rounds(p);
    return (mt_arithmetic_parts(&p->arithmetic) + mt_plan_lanes(p) - 1) / mt_plan_lanes(p);
}
/* The share of a lane in a round; -1: it has none. */
int mt_plan_share(const mt_plan *p, int round, int lane);

/* Elements [first, first + n) of a unit's trained ones, whose low halves, moments and gradient a machine has for all.  Slices are
 * whole chunks of the norm (ops/sqnorm.h) and whole blocks of moments. */
typedef struct mt_stretch {
    int64_t first, n;
} mt_stretch;
mt_stretch mt_plan_slice(const mt_plan *p, int unit, int machine);
static inline mt_stretch mt_plan_own_slice(const mt_plan *p, int unit) { return mt_plan_slice(p, unit, p->job.machine); }
/* Bytes of a number of a bundle's sum, between machines. */
static inline size_t mt_plan_sent_bytes(const mt_plan *p) { return mt_arithmetic_rounds(&p->arithmetic) ? 2 : sizeof(float); }
/* Every machine has all low halves of the unit, because weights on the device are made from them. */
bool mt_plan_low_is_whole(const mt_plan *p, int unit);
/* What this machine stores of a unit's state: up to two runs of elements, one after the other in memory.  Returns how many there
 * are; hi is whole everywhere. */
int mt_plan_runs(const mt_plan *p, int unit, mt_state_kind kind, mt_stretch out[2]);
/* True if any of a range is among them. */
bool mt_plan_stores(const mt_plan *p, mt_state_range r);
/* Elements of them. */
int64_t mt_plan_stored(const mt_plan *p, int unit, mt_state_kind kind);
/* Rows that a lane sums before it hands a sum on, at most: of the step, or, beside other lanes, of a share. */
int64_t mt_plan_part_tokens(const mt_plan *p);
static inline bool mt_plan_many_sweeps(const mt_plan *p)
{
    return p->place.sweep_tokens < (mt_plan_by_shares(p) ? p->part_tokens : p->job.step_tokens);
}
/* Sums of a unit that wait in host memory (MT_BUF_TOTAL); of a tied one, twice as many. */
int mt_plan_total_count(const mt_plan *p);
/* A buffer of which every lane has its own. */
bool mt_buffer_of_lane(mt_buffer_kind kind, mt_place place);
/* Landing slots of a lane: layers and experts take turns in the first two, so that one is filled while the other is read; the
 * embedding and the head, which may be much larger, have the last. */
enum { MT_LAND_TURNS = 2, MT_LAND_ENDS = MT_LAND_TURNS, MT_LAND_SLOTS };
/* A gradient's sums on the only device: the step's, with several bundles a bundle's, with several shares a share's (deal.h). */
static inline int mt_plan_acc_count(const mt_plan *p)
{
    if (mt_plan_by_shares(p)) return 1; /* the host adds */
    return 1 + (mt_arithmetic_bundles(&p->arithmetic) > 1) + (mt_arithmetic_shares(&p->arithmetic) > 1);
}
/* Numbers from one such sum of n to the next, and bytes of all of them. */
int64_t mt_plan_acc_stride(int64_t n);
size_t mt_plan_acc_bytes(const mt_plan *p, int64_t n);
/* Unit u's staged state and gradient in its lenders' memory: where each begins, and bytes of each lender.  A layer's has one
 * lender (its v comes first there), the embedding's, which is larger than what a layer keeps, two. */
typedef struct mt_reuse_layout {
    size_t v, lo, g, hi, bytes[2];
} mt_reuse_layout;
mt_reuse_layout mt_plan_reuse(const mt_plan *p, int unit);
/* Fill in what follows from the places of units and layers; linear in their number.  False: there are too few lenders.  A layer's
 * lender is itself or a later one, whose backward is over sooner and whose forward comes later: the further away, the more time
 * copies have.  So the last unit that borrows takes the last layer, and so on down; the embedding, whose backward is the last,
 * takes what is left of the others. */
bool mt_plan_settle(mt_plan *p);
/* The unit in whose host memory unit u's state lies: its own, except where layers share it. */
int mt_plan_alias(const mt_plan *p, int unit);
/* The layer in whose host memory a layer's kept activations lie, if they do. */
int mt_plan_alias_kept(const mt_plan *p, int layer);
/* Who can borrow, asked of units in ascending order; all zero before the first. */
typedef struct mt_reuse_search {
    int next;       /* layers before it are taken, or lend too little */
    size_t refused; /* no layer from `next` on lends this much; 0: not known */
} mt_reuse_search;
/* True if unit u's staged state can borrow beside those that were granted before it, which takes its share of *l.  Its
 * accumulator must be its own, and what layers keep on the device large enough. */
bool mt_plan_grant_reuse(const mt_plan *p, mt_reuse_search *l, int unit);
/* First layer of the segment that holds `layer`: the nearest kept input at or before it. */
int mt_plan_segment_start(const mt_plan *p, int layer);

/* The stage slot that is unit u's own: there is one for each that needs one.  What lies there stays until the next update, which
 * reads it instead of the host's; it is written back each time all the same.  -1: it needs none, or they are too few. */
static inline int mt_plan_private_slot(const mt_plan *p, int unit) { return p->place.units[unit].private_slot; }
/* Where unit u's state lies in a stage slot, behind its m; hi has no place there where it is updated in place. */
typedef struct mt_staging_layout {
    size_t v, hi, lo, bytes;
} mt_staging_layout;
mt_staging_layout mt_plan_staging(const mt_plan *p, int unit);

/* A unit that is updated in pieces: the workers update [0, mt_plan_host_share), piece i starts at mt_plan_piece_first.  Every one
 * begins with a block of moments, so neither the cut nor the size of pieces changes a bit. */
static inline int64_t mt_plan_host_share(const mt_plan *p, int unit)
{
    return p->model->units[unit].layout->n_train - p->place.units[unit].in_pieces;
}
static inline int mt_plan_pieces(const mt_plan *p, int unit)
{
    int64_t n = p->place.units[unit].in_pieces, each = p->place.piece_elems;
    return n ? (int)((n + each - 1) / each) : 0;
}
static inline int64_t mt_plan_piece_first(const mt_plan *p, int unit, int piece)
{
    return mt_plan_host_share(p, unit) + piece * p->place.piece_elems;
}
static inline int64_t mt_plan_piece_elems(const mt_plan *p, int unit, int piece)
{
    int64_t left = p->model->units[unit].layout->n_train - mt_plan_piece_first(p, unit, piece);
    return left < p->place.piece_elems ? left : p->place.piece_elems;
}
/* Where the parts of a piece of n elements are in its slot, after its m. */
typedef struct mt_piece_layout {
    size_t v, hi, lo, g, bytes;
} mt_piece_layout;
mt_piece_layout mt_plan_piece(const mt_plan *p, int64_t n);

/* Host memory the runtime takes besides the plan's buffers: the machine's base item, and on a CPU what its threads widen bf16
 * in. */
size_t mt_plan_base_host(const mt_plan *p, const mt_machine *m);
/* All host memory it takes there: on a CPU the device's is the host's too. */
size_t mt_plan_host_total(const mt_plan *p, const mt_machine *m);
/* Bytes of Adam's two moments a trained parameter, in whole numbers; of one moment of n, exactly: mt_moments_bytes. */
size_t mt_plan_moment_bytes(const mt_plan *p);

/* True if the load-balancing loss is part of the step; rows of its table: the most micro-batches a step can have. */
static inline bool mt_plan_balances(const mt_plan *p)
{
    return p->job.train && p->job.router_loss > 0 && p->model->unit_experts > 0;
}
int64_t mt_plan_most_micros(const mt_plan *p);
/* Numbers that say how many rows each expert took: [L, E]; 0: nothing is trained, or there are no experts. */
int64_t mt_plan_loads(const mt_plan *p);
/* Bytes of what a step sums up: loss, norms, loads (engine/lane.h). */
size_t mt_plan_sums_bytes(const mt_plan *p);
/* Bytes of one piece on its way: MT_BOUNCE_BYTES, or less if every unit is smaller. */
size_t mt_plan_bounce_bytes(const mt_plan *p);

/* Rows of the workspace layers compute in. */
mt_work_rows mt_plan_work_rows(const mt_plan *p);
/* Bytes that a layer keeps of a sweep. */
size_t mt_plan_kept_bytes(const mt_plan *p, int layer, mt_keep keep);

/* -- micro-batches -- */

typedef struct mt_cut {
    int64_t first_doc, n_docs, first_row, n_rows, longest;
} mt_cut;

/* Micro-batches [first, end) that pass experts together. */
typedef struct mt_cut_pass {
    int64_t first, end, first_row, n_rows;
} mt_cut_pass;

/* Documents in order into micro-batches of at most micro_tokens rows (a longer document is alone): as few as can be, of sizes as
 * equal as can be.  Returns their number; cuts has room for n_docs. */
int64_t mt_cut_micro(mt_cut *cuts, const int32_t *doc_start, int64_t n_docs, int64_t micro_tokens);
/* Micro-batches in order into passes of at most moe_tokens rows (a larger one is alone), likewise.  Returns their number; passes
 * has room for n_cuts. */
int64_t mt_cut_passes(mt_cut_pass *passes, const mt_cut *cuts, int64_t n_cuts, int64_t moe_tokens);
/* The end of the sweep that starts with pass `first`: as few sweeps as can be, of sizes as equal as can be, because a short last
 * one would leave staged updates nothing to hide behind. */
int64_t mt_cut_sweep(const mt_cut_pass *passes, int64_t n_passes, int64_t first, int64_t sweep_tokens);
/* The rows of the largest pass that there may be. */
int64_t mt_pass_rows_at_most(const mt_arithmetic *a);

#endif
