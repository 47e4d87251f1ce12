/* plan.h - the contract between planner and engine: the engine executes a plan and decides nothing.
 *
 * A plan has two halves.
 *   arithmetic  what is computed, and in which order sums are added: dtypes, micro-batches, row chunks.  It decides the
 *               bits of a run; it is hashed, stored with the run, and reused on resume.
 *   placement   where things are and when they move: sweeps, ring, what is kept, homes, residency, update
 *               sites.  It never changes a bit (tests/equiv/test_placement.c).
 * From both follows every large buffer, by name, size and place; the engine allocates exactly those.
 *
 *     plan/search.h chooses both halves
 *     create      makes a plan from given halves, which are copied; measure only counts its bytes
 *     derived.h   what follows from a plan: shares, slices, layouts of slots, sizes
 *     cut.h       documents into micro-batches and sweeps
 *     free
 *
 * A plan owns its copies and its list of buffers, and borrows the model.  Nothing changes it once it is made. */
#ifndef MT_SCHEDULE_PLAN_H
#define MT_SCHEDULE_PLAN_H

#include "model/layer.h"
#include "optim/optimizer.h"

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
    MT_FOLD_PEERS, /* on the devices, in slices (schedule/slices.h) */
} mt_fold_route;

typedef struct mt_arithmetic {
    mt_dtype compute; /* F32 or BF16 */
    mt_dtype grad;    /* finished gradients are rounded to this everywhere */
    mt_optimizer_kind optimizer;
    mt_moments moments;          /* how the optimizer's arrays are stored between updates */
    int64_t micro_tokens;        /* a micro-batch takes whole documents up to this many rows */
    int64_t mlp_rows, head_rows; /* rows at a time */
    int64_t moe_tokens;   /* whole micro-batches pass an expert together, up to this many rows; one at a time if it is smaller
                           * than a micro-batch */
    int64_t unit_experts; /* the model's; 0: no experts, or not known before there is a plan */
    mt_attention_use attention; /* attention kernels; docs and longest follow from the job */
    int64_t bundles, shares;    /* a step's documents are dealt to bundles x shares, each summed separately (deal.h); 0 means 1 */
    bool reduce_bf16;           /* round each of several bundles to bf16 before it is added or sent to other machines */
} mt_arithmetic;

static inline mt_state_form mt_arithmetic_form(const mt_arithmetic *a) { return (mt_state_form){ a->optimizer, a->moments }; }
static inline int mt_arithmetic_bundles(const mt_arithmetic *a) { return a->bundles > 1 ? (int)a->bundles : 1; }
static inline int mt_arithmetic_shares(const mt_arithmetic *a) { return a->shares > 1 ? (int)a->shares : 1; }
static inline bool mt_arithmetic_rounds(const mt_arithmetic *a) { return a->reduce_bf16 && a->bundles > 1; }
static inline int mt_arithmetic_parts(const mt_arithmetic *a) { return mt_arithmetic_bundles(a) * mt_arithmetic_shares(a); }

typedef struct mt_unit_place {
    bool resident; /* weights stay on the device for the whole step instead of passing through the ring */
    mt_place home; /* home of the state; a device home implies resident */
    mt_site site;
    bool reuses;       /* staged updates, reused memory: the optimizer's first array takes the memory of the unit's sums; the rest
                        * and the gradient take kept activations that the last backward has freed.  Otherwise the unit uses a staging slot: a private
                        * one, where its state stays from step to step (mt_plan_private_slot), or one that units share in turn */
    int64_t in_pieces; /* with site host: the device updates this many of the last trained elements in pieces (piece_slots), and
                        * the workers update the rest; 0: the workers update all */
    /* Set by mt_plan_settle. */
    int reused[2];    /* the layers whose kept memory is reused (mt_plan_lent_parts) */
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
    mt_objective_use objective; /* of training; all zero: cross-entropy */

    bool train;          /* false: forward only, no state, no gradients */
    bool clip;           /* updates wait for the global norm */
    bool only_gradients; /* with train: compute gradients but never update: no arrays of the optimizer */
    int64_t step_tokens; /* most rows of a step */
    int64_t step_docs;   /* most documents of a step */
    int64_t longest;     /* most rows of a document */
    bool mapped;         /* forward only, in bf16: hi of host-homed units is in mapped files and has no buffer */
    int lanes;           /* with train: devices of this machine, one thread each; 0: one */
    int machines; /* with train: machines, each with a slice of the state and some of the bundles (mt_plan_slice); 0: one */
    int machine;  /* the number of this machine */
    int64_t cache_slots; /* sequences whose keys and values are kept for generation; 0: none */
    int64_t cache_rows;  /* rows of each of them, prompt and answer; 0: `longest` */
    int64_t prompt;      /* rows of the longest prompt, for rotations that depend on it (mt_rope_tables); 0: not known */
    double router_loss;  /* coefficient of the routers' load-balancing loss; 0: none */
    bool alias_layers;   /* all host-homed layers of a group share one layer's state in host memory, and its kept activations too:
                          * to measure the speed of models that do not fit in host memory.  Such a run computes nonsense */
} mt_job;

static inline int64_t mt_job_cache_rows(const mt_job *j) { return j->cache_rows ? j->cache_rows : j->longest; }
/* Positions of the longest document or sequence. */
static inline int64_t mt_job_positions(const mt_job *j) { return j->cache_rows > j->longest ? j->cache_rows : j->longest; }

/* Kinds of buffers; the index identifies one (unit, layer, group, slot). */
#define MT_BUFFER_LIST(X)                                                                                                        \
    X(HI, "master.hi")               /* unit, at its home */                                                                     \
    X(LO, "master.lo")               /* unit */                                                                                  \
    X(PACKED_HOME, "master.packed")  /* unit: host, frozen weights as their files pack them */                                   \
    X(EXACT_HOME, "master.exact")    /* unit, if nothing is updated: hi, then lo, of exact numbers */                            \
    X(ARRAY, "optimizer.array")      /* unit, array of the optimizer */                                                          \
    X(PARKED, "grad.parked")         /* unit: host, waits for the norm */                                                        \
    X(SLAB, "grad.slab")             /* slab: host */                                                                            \
    X(RESIDENT, "weights.resident")  /* unit: compute form */                                                                    \
    X(RING, "weights.ring")          /* group, slot */                                                                           \
    X(WEIGHT_SLICE, "weights.slice") /* unit, 0 or 1: hi or lo of the lane's slice of weights whose home is the host */          \
    X(PACKED, "weights.packed")      /* packed weights of a unit on their way to numbers */                                      \
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
    X(STAGE, "stage")                  /* slot: state */                                                                         \
    X(PIECE, "stage.piece")            /* slot: state and gradient of a piece */                                                 \
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

/* Fills in everything that follows from where units and layers are placed, in linear time.  False: there are too few lenders.  A
 * layer's lender is the layer itself or a later one, whose backward ends sooner and whose forward comes later: the further away,
 * the more time copies have.  So the last unit that reuses memory takes the last layer, and so on downward.  The embedding, whose
 * backward is the last, takes layers that are left over. */
bool mt_plan_settle(mt_plan *p);

/* Allocates a placement for the model's units, groups and layers, all zero; release it with mt_placement_free. */
mt_rc mt_placement_init(mt_placement *p, const mt_model *model, mt_err *err);
/* Sets the same numbers of slots for every group. */
void mt_placement_set_slots(mt_placement *p, const mt_model *model, int ring, int sums, int outs);
/* The most ring slots any group has. */
int mt_placement_ring(const mt_placement *p, const mt_model *model);
void mt_placement_free(mt_placement *p);

/* Hashes the arithmetic to one number. */
uint64_t mt_arithmetic_hash(const mt_arithmetic *a);

/* The rest of the contract. */
#include "schedule/cut.h"
#include "schedule/derived.h"

#endif
