/* plan.h - the contract between planner and engine: the engine executes a plan and decides nothing.
 *
 * A plan has two halves.
 *   arithmetic  what is computed, and in which order sums are added: dtypes, micro-batches, row chunks.  It decides the
 *               bits of a run; it is hashed, stored with the run, and reused on resume.
 *   placement   where things are and when they move: sweeps, ring, what is kept, homes, residency, update
 *               sites.  It never changes a bit (tests/equiv/test_placement.c).
 * From both follows every large buffer, by name, size and place; the engine allocates exactly those. */
#ifndef MT_PLAN_PLAN_H
#define MT_PLAN_PLAN_H

#include "model/layer.h"
#include "plan/machine.h"

struct mt_json_out; /* base/json_write.h */

enum {
    MT_BOUNCE_BYTES = 1 << 20,
    MT_STATE_SLOTS = 8
};                            /* state and results on their way between the device and a caller; threads that load or save use
                               * this many pieces at once */
enum { MT_MAX_SEGMENT = 64 }; /* layers recomputed from one kept input */

typedef enum mt_place { MT_HOST, MT_DEVICE } mt_place;

typedef enum mt_site {
    MT_SITE_HOST,   /* workers update it in host memory */
    MT_SITE_DEVICE, /* its home is the device */
    MT_SITE_STAGED, /* its home is the host: state is copied in, updated on the device, written back */
} mt_site;

/* Where the sums of several lanes are added. */
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
    int64_t moe_tokens;   /* whole micro-batches pass an expert together, up to this many rows; one at a time if it is smaller
                           * than a micro-batch */
    int64_t unit_experts; /* the model's; 0: no experts, or not known before there is a plan */
    mt_attention_use attention; /* attention kernels; docs and longest follow from the job */
    int64_t bundles, shares;    /* a step's documents are dealt to bundles x shares, each summed separately (deal.h); 0 means 1 */
    bool reduce_bf16;           /* round each of several bundles to bf16 before it is added or sent to other machines */
} mt_arithmetic;

static inline int mt_arithmetic_bundles(const mt_arithmetic *a) { return a->bundles > 1 ? (int)a->bundles : 1; }
static inline int mt_arithmetic_shares(const mt_arithmetic *a) { return a->shares > 1 ? (int)a->shares : 1; }
static inline bool mt_arithmetic_rounds(const mt_arithmetic *a) { return a->reduce_bf16 && a->bundles > 1; }
static inline int mt_arithmetic_parts(const mt_arithmetic *a) { return mt_arithmetic_bundles(a) * mt_arithmetic_shares(a); }

typedef struct mt_unit_place {
    bool resident; /* weights stay on the device for the whole step instead of passing through the ring */
    mt_place home; /* home of hi, lo, m, v; a device home implies resident */
    mt_site site;
    bool reuses;       /* staged updates, reused memory: m takes the memory of the unit's sums; v, lo, the gradient and hi take
                        * kept activations that the last backward has freed.  Otherwise the unit uses a staging slot: a private
                        * one, where its state stays from step to step (mt_plan_private_slot), or one that units share in turn */
    int64_t in_pieces; /* with site host: the device updates this many of the last trained elements in pieces (piece_slots), and
                        * the workers update the rest; 0: the workers update all */
    /* Set by mt_plan_settle. */
    int reused[2];    /* the layers whose kept memory is reused: for v, and for the rest */
    int private_slot; /* the unit's private staging slot; -1: none */
} mt_unit_place;

/* What the units of a group share. */
typedef struct mt_group_place {
    int ring_slots; /* weights of units that are not resident pass through them */
    int sum_slots;  /* gradients are summed in them, unless the sums stay on the device between sweeps */
    int out_slots;  /* finished gradients pass through them on their way to the host */
    /* Set by mt_plan_settle. */
    int members, streamed, hosted; /* numbers of units: all, not resident, updated on the host */
    int in_segment, together;      /* most units that one segment uses at once; expert units count one at a time */
    int alias;                     /* the first unit whose home is the host; -1: none */
} mt_group_place;

typedef struct mt_layer_place {
    mt_keep keep;
    mt_place place; /* of what is kept */
} mt_layer_place;

typedef struct mt_placement {
    int64_t sweep_tokens;  /* rows of a sweep; a longer step takes several sweeps */
    mt_place accumulators; /* where gradients wait between sweeps */
    int keep_slots;        /* device slots that kept activations pass through on their way to the host */
    int staging_slots;     /* device slots of staged updates */
    int piece_slots;       /* device slots that pieces of units pass through: state in, update, state back */
    int64_t piece_elems;   /* elements of a piece, whole blocks of moments; the last piece of a unit may be shorter */
    int n_slabs;           /* host slabs for gradients when clipping is off */
    mt_fold_route fold;    /* several lanes: where the sums of shares are added */
    bool gather; /* with MT_FOLD_PEERS: each lane keeps a slice of the host-homed weights on its device, refreshed after each
                  * update, and gathers the rest from the other lanes */
    mt_unit_place *units;   /* [n_units] */
    mt_group_place *groups; /* [n_groups] */
    mt_layer_place *layers; /* [L] */
} mt_placement;

/* What a run has to do. */
typedef struct mt_job {
    bool train;          /* false: forward only, no state, no gradients */
    bool clip;           /* updates wait for the global norm */
    bool only_gradients; /* with train: compute gradients but never update: no m, no v */
    int64_t step_tokens; /* most rows of a step */
    int64_t step_docs;   /* most documents of a step */
    int64_t longest;     /* most rows of a document */
    bool mapped;         /* forward only, in bf16: hi of host-homed units is in mapped files and has no buffer */
    int lanes;           /* with train: devices of this machine, one thread each; 0: one */
    int machines; /* with train: machines, each with a slice of the state and some of the bundles (mt_plan_slice); 0: one */
    int machine;  /* the number of this machine */
    int64_t cache_slots; /* sequences whose keys and values are kept for generation, `longest` rows each; 0: none */
    double router_loss;  /* coefficient of the routers' load-balancing loss; 0: none */
    bool alias_layers;   /* all host-homed layers of a group share one layer's state in host memory, and its kept activations too:
                          * to measure the speed of models that do not fit in host memory.  Such a run computes nonsense */
} mt_job;

/* Kinds of buffers; the index identifies one (unit, layer, group, slot). */
#define MT_BUFFER_LIST(X)                                                                                                        \
    X(HI, "master.hi")               /* unit, at its home */                                                                     \
    X(LO, "master.lo")               /* unit */                                                                                  \
    X(EXACT_HOME, "master.exact")    /* unit, if nothing is updated: hi, then lo, of exact numbers */                            \
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
    X(ACC_TIED, "grad.acc_tied")     /* the lookup's sums of a tied unit */                                                      \
    X(ACC_HOST, "grad.acc_host")     /* unit: fp32, between sweeps */                                                            \
    X(GRAD, "grad.out")              /* group, slot: rounded, on its way out */                                                  \
    X(LAND, "grad.land")           /* slot: a share's fp32 sum on its way to the step's, of several lanes: in host memory, or \
                                       the lane's slice of every lane's */  \
    X(LAND_TIED, "grad.land_tied") /* the same for the lookup's sums of a tied unit */                                           \
    X(TOTAL, "grad.total")         /* unit, sum: fp32, the shares so far; on the same side as the landing slots */               \
    X(SLICE, "grad.slice")         /* the lane's finished slice of a gradient on its way to the host */                          \
    X(CHUNKS, "grad.chunks")       /* sums of squares: of its chunks, and in total; number of weights that became non-finite */  \
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
    X(X_PASS, "x.pass")                /* two: layer inputs that are not kept */                                                 \
    X(DX, "dx")                                                                                                                  \
    X(LAYER_WORK, "work.layer") /* set: activations of one layer and micro-batch */                                              \
    X(WORK, "work")             /* shared by all layers */                                                                       \
    X(ENDS, "work.ends")        /* for embedding and head */                                                                     \
    X(SCRATCH, "scratch")                                                                                                        \
    X(ROPE, "rope")   /* cos, sin */                                                                                             \
    X(INPUT, "input") /* ids, positions, targets of a step */                                                                    \
    X(INPUT_HOST, "input.host")                                                                                                  \
    X(ROUTER, "router.sums") /* counts and probabilities of each micro-batch's experts, for the load-balancing loss */           \
    X(SUMS, "sums")          /* loss and norms */                                                                                \
    X(SUMS_HOST, "sums.host")                                                                                                    \
    X(CACHE, "cache.kv")            /* layer: keys, then values, of generated sequences */                                       \
    X(LOGITS_HOST, "logits.host")   /* of a row per cache slot */                                                                \
    X(BOUNCE, "bounce")             /* host: data on its way between the device and a caller */                                  \
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

/* Seconds of a step: each part alone, and the whole step with overlap. */
typedef struct mt_times {
    double compute, copy_in, copy_out, adam_host, data;
    double copy_peer; /* between devices */
    double step;
    const char *bound; /* what bounds the step: the longest part, in words */
} mt_times;

typedef struct mt_plan {
    const mt_model *model; /* borrowed; outlives the plan */
    mt_job job;
    mt_arithmetic arithmetic;
    mt_placement place;
    int64_t part_tokens; /* mt_plan_part_tokens; set by create and measure */
    /* Set by mt_plan_settle: */
    int longest_segment;       /* layers per kept input, including the one that keeps it */
    bool has_pieces;           /* some unit is updated in pieces */
    bool private_slots;        /* every unit that needs a staging slot has a private one */
    int shared_keep[MT_KEEPS]; /* the first layer that keeps this much in host memory; -1: none */
    mt_buffer *buffers;
    size_t n_buffers, cap_buffers;
    size_t device_bytes, host_bytes;
    size_t base_host, base_device; /* the runtime's own memory on the machine it was chosen for */
    mt_times times;                /* predicted times of a step, if the placement was chosen; 0: not predicted */
    double predicted_seconds;      /* times.step */
    double searched_seconds;       /* as predicted by the search with merged expert layers; 0: nothing was merged */
    bool counting;                 /* count sizes only: no list of buffers is made */
    size_t scratch;                /* bytes of op scratch, which depend on model, job and arithmetic only; 0: not computed yet */
} mt_plan;

/* Makes a plan from both halves, which are copied.  Fails if they contradict each other. */
mt_rc mt_plan_create(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, const mt_placement *p,
                     mt_err *err);
void mt_plan_free(mt_plan *plan);
/* Computes sizes only: fills device_bytes, host_bytes and longest_segment of a plan whose other fields the caller has set;
 * borrows the placement.  Allocates nothing. */
mt_rc mt_plan_measure(mt_plan *plan, mt_err *err);

/* Allocates a placement for the model's units, groups and layers, all zero; release it with mt_placement_free. */
mt_rc mt_placement_init(mt_placement *p, const mt_model *model, mt_err *err);
/* Sets the same numbers of slots for every group. */
void mt_placement_set_slots(mt_placement *p, const mt_model *model, int ring, int sums, int outs);
/* The most ring slots any group has. */
int mt_placement_ring(const mt_placement *p, const mt_model *model);
void mt_placement_free(mt_placement *p);

/* Fails if this model cannot keep within the limits. */
mt_rc mt_limits_check(const mt_limits *l, const mt_model *model, mt_err *err);
/* The longest segment (layers recomputed from one kept input) that the limits allow. */
int mt_limits_longest(const mt_limits *l, const mt_model *model);

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
/* mt_plan_search for a typical machine with this much device memory (0: no limit). */
mt_rc mt_plan_choose(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, size_t device_bytes,
                     mt_err *err);

/* Describes the placement in a sentence. */
void mt_plan_describe(const mt_plan *plan, char *out, size_t n);
/* Describes what its layers keep, compared with the limits. */
void mt_plan_describe_kept(const mt_plan *plan, const mt_limits *limits, char *out, size_t n);
/* Writes the list "buffers": name, place and bytes of each. */
void mt_plan_put_buffers(struct mt_json_out *j, const mt_plan *p);
/* The attention options, with the most documents and rows that a micro-batch can have. */
mt_attention_use mt_plan_attention(const mt_plan *plan);
/* Hashes the arithmetic to one number. */
uint64_t mt_arithmetic_hash(const mt_arithmetic *a);

static inline int mt_plan_lanes(const mt_plan *p) { return p->job.lanes > 1 ? p->job.lanes : 1; }
static inline int mt_plan_machines(const mt_plan *p) { return p->job.machines > 1 ? p->job.machines : 1; }
/* True if lanes pass the sum of each share to the host, which adds them: with several lanes or several machines. */
static inline bool mt_plan_by_shares(const mt_plan *p) { return mt_plan_lanes(p) > 1 || mt_plan_machines(p) > 1; }

/* Which lane computes which share.  Machine m of n takes bundles m, m + n, ... one after the other.  So bundles are finished in
 * the order in which they are added (D2), and a machine needs only one sum of them.  A machine beyond the number of bundles
 * computes nothing but still stores slices.  In a round each lane computes one share.  On one machine, lanes take the step's
 * shares in turn.  With several machines, a round has shares of one bundle only, so all machines finish bundles in the same
 * order. */
/* Rounds per bundle, with several machines. */
static inline int mt_plan_bundle_rounds(const mt_plan *p)
{
    return (mt_arithmetic_shares(&p->arithmetic) + mt_plan_lanes(p) - 1) / mt_plan_lanes(p);
}
/* The most bundles of any machine. */
static inline int mt_plan_turns(const mt_plan *p)
{
    return (mt_arithmetic_bundles(&p->arithmetic) + mt_plan_machines(p) - 1) / mt_plan_machines(p);
}
static inline int mt_plan_rounds(const mt_plan *p)
{
    if (mt_plan_machines(p) > 1) return mt_plan_turns(p) * mt_plan_bundle_rounds(p);
    return (mt_arithmetic_parts(&p->arithmetic) + mt_plan_lanes(p) - 1) / mt_plan_lanes(p);
}
/* The share that a lane computes in a round; -1: none. */
int mt_plan_share(const mt_plan *p, int round, int lane);

/* Trained elements [first, first + n) of a unit.  One machine stores their low halves, moments and gradient for all machines.
 * Slices are whole chunks of the norm (ops/sqnorm.h) and whole blocks of moments. */
typedef struct mt_stretch {
    int64_t first, n;
} mt_stretch;
mt_stretch mt_plan_slice(const mt_plan *p, int unit, int machine);
static inline mt_stretch mt_plan_own_slice(const mt_plan *p, int unit) { return mt_plan_slice(p, unit, p->job.machine); }
/* Bytes per number of a bundle's sum on its way between machines. */
static inline size_t mt_plan_sent_bytes(const mt_plan *p) { return mt_arithmetic_rounds(&p->arithmetic) ? 2 : sizeof(float); }
/* True if every machine stores all low halves of the unit, because the device's weights are made from them. */
bool mt_plan_low_is_whole(const mt_plan *p, int unit);
/* The part of a unit's state that this machine stores: up to two runs of elements, consecutive in memory.  Returns their number.
 * Every machine stores all of hi. */
int mt_plan_runs(const mt_plan *p, int unit, mt_state_kind kind, mt_stretch out[2]);
/* True if they include any element of a range. */
bool mt_plan_stores(const mt_plan *p, mt_state_range r);
/* Their number of elements. */
int64_t mt_plan_stored(const mt_plan *p, int unit, mt_state_kind kind);
/* Most rows that a lane adds to one sum: the step's, or with several lanes a share's. */
int64_t mt_plan_part_tokens(const mt_plan *p);
static inline bool mt_plan_many_sweeps(const mt_plan *p)
{
    return p->place.sweep_tokens < (mt_plan_by_shares(p) ? p->part_tokens : p->job.step_tokens);
}
/* Number of a unit's sums in host memory (MT_BUF_TOTAL); twice as many for a tied unit. */
int mt_plan_total_count(const mt_plan *p);
/* True for a buffer that each lane has separately. */
bool mt_buffer_of_lane(mt_buffer_kind kind, mt_place place);
/* Landing slots of a lane: layers and experts take turns in the first two, so that one is filled while the other is read; the
 * embedding and the head, which may be much larger, have the last. */
enum { MT_LAND_TURNS = 2, MT_LAND_ENDS = MT_LAND_TURNS, MT_LAND_SLOTS };
/* Number of sums of a gradient on a single device: the step's; with several bundles also a bundle's; with several shares also a
 * share's (deal.h). */
static inline int mt_plan_acc_count(const mt_plan *p)
{
    if (mt_plan_by_shares(p)) return 1; /* the host adds */
    return 1 + (mt_arithmetic_bundles(&p->arithmetic) > 1) + (mt_arithmetic_shares(&p->arithmetic) > 1);
}
/* Distance from one such sum of n numbers to the next, and bytes of all of them. */
int64_t mt_plan_acc_stride(int64_t n);
size_t mt_plan_acc_bytes(const mt_plan *p, int64_t n);
/* Where unit u's staged state and gradient begin in reused memory, and bytes used of each lender (a layer whose kept memory is
 * reused).  A layer's unit has one lender, and its v comes first there.  The embedding's state is larger than what a layer keeps,
 * so it has two. */
typedef struct mt_reuse_layout {
    size_t v, lo, g, hi, bytes[2];
} mt_reuse_layout;
mt_reuse_layout mt_plan_reuse(const mt_plan *p, int unit);
/* Fills in everything that follows from where units and layers are placed, in linear time.  False: there are too few lenders.  A
 * layer's lender is the layer itself or a later one, whose backward ends sooner and whose forward comes later: the further away,
 * the more time copies have.  So the last unit that reuses memory takes the last layer, and so on downward.  The embedding, whose
 * backward is the last, takes layers that are left over. */
bool mt_plan_settle(mt_plan *p);
/* The unit whose host memory stores unit u's state: u itself, unless layers share memory (alias). */
int mt_plan_alias(const mt_plan *p, int unit);
/* The layer whose host memory stores a layer's kept activations, if they go there. */
int mt_plan_alias_kept(const mt_plan *p, int layer);
/* Grants reused memory to units in ascending order; all zero before the first. */
typedef struct mt_reuse_search {
    int next;       /* layers before this one are taken or too small */
    size_t refused; /* no layer from `next` on has this much; 0: not known */
} mt_reuse_search;
/* True if unit u's staged state can reuse memory besides the units granted before it; it then takes its share of *l.  The unit's
 * sums must have their own memory, and layers must keep enough on the device. */
bool mt_plan_grant_reuse(const mt_plan *p, mt_reuse_search *l, int unit);
/* First layer of the segment that holds `layer`: the nearest kept input at or before it. */
int mt_plan_segment_start(const mt_plan *p, int layer);

/* Unit u's private staging slot.  The state stays there until the next update, which reads it instead of the host's copy; it is
 * still written back each time. -1: the unit needs no slot, or there are too few for each unit to have one. */
static inline int mt_plan_private_slot(const mt_plan *p, int unit) { return p->place.units[unit].private_slot; }
/* Offsets of unit u's state in a staging slot, after its m; hi is not there if it is updated in place. */
typedef struct mt_staging_layout {
    size_t v, hi, lo, bytes;
} mt_staging_layout;
mt_staging_layout mt_plan_staging(const mt_plan *p, int unit);

/* A unit that is updated in pieces: the workers update [0, mt_plan_host_share), and piece i starts at mt_plan_piece_first.  Each
 * piece begins at a block of moments, so neither the cut nor the size of the pieces changes a bit. */
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

/* Host memory of the runtime besides the plan's buffers: the machine's base item, and on a CPU the scratch in which its threads
 * widen bf16. */
size_t mt_plan_base_host(const mt_plan *p, const mt_machine *m);
/* All host memory the plan uses: on a CPU this includes the device's. */
size_t mt_plan_host_total(const mt_plan *p, const mt_machine *m);
/* Bytes of Adam's two moments per trained parameter, rounded; mt_moments_bytes has the exact bytes of one moment of n numbers. */
size_t mt_plan_moment_bytes(const mt_plan *p);

/* True if the load-balancing loss is part of the step; rows of its table: the most micro-batches a step can have. */
static inline bool mt_plan_balances(const mt_plan *p)
{
    return p->job.train && p->job.router_loss > 0 && p->model->unit_experts > 0;
}
int64_t mt_plan_most_micros(const mt_plan *p);
/* Numbers in the table of rows per expert, [L, E]; 0: nothing is trained, or there are no experts. */
int64_t mt_plan_loads(const mt_plan *p);
/* Bytes of a step's sums: loss, norms, loads (engine/lane.h). */
size_t mt_plan_sums_bytes(const mt_plan *p);
/* Bytes of one piece on its way: MT_BOUNCE_BYTES, or less if every unit is smaller. */
size_t mt_plan_bounce_bytes(const mt_plan *p);

/* Rows of the layers' workspace. */
mt_work_rows mt_plan_work_rows(const mt_plan *p);
/* Bytes that a layer keeps for a sweep. */
size_t mt_plan_kept_bytes(const mt_plan *p, int layer, mt_keep keep);

/* -- micro-batches -- */

typedef struct mt_cut {
    int64_t first_doc, n_docs, first_row, n_rows, longest;
} mt_cut;

/* Micro-batches [first, end) that pass experts together. */
typedef struct mt_cut_pass {
    int64_t first, end, first_row, n_rows;
} mt_cut_pass;

/* Cuts documents, in order, into micro-batches of at most micro_tokens rows (a longer document is alone): as few as possible, as
 * equal as possible.  Returns their number; cuts must have room for n_docs. */
int64_t mt_cut_micro(mt_cut *cuts, const int32_t *doc_start, int64_t n_docs, int64_t micro_tokens);
/* Joins micro-batches, in order, into passes of at most moe_tokens rows (a larger one is alone) by the same rule.  Returns their
 * number; passes must have room for n_cuts. */
int64_t mt_cut_passes(mt_cut_pass *passes, const mt_cut *cuts, int64_t n_cuts, int64_t moe_tokens);
/* The end of the sweep that starts with pass `first`: as few sweeps as possible, as equal as possible, because a short last sweep
 * would not hide staged updates. */
int64_t mt_cut_sweep(const mt_cut_pass *passes, int64_t n_passes, int64_t first, int64_t sweep_tokens);
/* Rows of the largest possible pass. */
int64_t mt_pass_rows_at_most(const mt_arithmetic *a);

#endif
