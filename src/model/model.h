/* model.h - a model as a row of units, and the layout of each unit's weights in one flat block.
 *
 *     units    in the order in which forward first needs them: the embedding, each layer's, the head.  Which unit is what
 *              is in a table: a layer may span several.  With tied embeddings the head is the embedding's unit, used twice.
 *     layout   the place of each tensor in a unit's block.  Five regions, in this order: trained with weight
 *              decay, trained without, frozen, frozen without low halves, frozen and packed.  So Adam, the norm and every gradient
 *              work on one run of n_train numbers, and decay is a split point, not a flag per number.
 *     packed   frozen weights that keep the form of their file (ops/forms.h): at home they are bytes, and they become numbers
 *              of the block on the device.
 *     exact    runs at the ends of the first three regions: numbers that reach the device with both halves, as
 *              fp32, also where it computes in bf16 (router biases, decay parameters).
 *     group    units with equal layouts; they share device buffers.
 *
 * Tensors of one product (q, k, v; gate, up) are contiguous, without a gap.
 *
 * Experts: a unit of experts holds n_experts whole experts from first_expert on.  The layout's [n_experts][2I, D] (gate, then up) begins at
 * at[MT_W_E_GATE], its [n_experts][D, I] at at[MT_W_E_DOWN].  Units with equal layouts may hold different experts, so the layout
 * counts experts from the unit's first (mt_weight.expert), and names and places in files ask the unit. */
#ifndef MT_MODEL_MODEL_H
#define MT_MODEL_MODEL_H

#include "base/mem.h"
#include "model/family.h"
#include "model/slice.h"
#include "optim/state.h"
#include "ops/forms.h"

enum { MT_BLOCK_ALIGN = 128, MT_NAME_BYTES = 160 }; /* elements; bytes */

typedef struct mt_weight {
    mt_role role;
    char name[MT_NAME_BYTES]; /* of its tensor in the files; %d is the layer, %e the expert */
    mt_tensor_slice slice;    /* where in that tensor */
    int n_dims;
    int64_t shape[2];
    int64_t n, offset; /* elements, in the unit's block */
    int expert;        /* of an expert: counted from the unit's first; else 0 */
    bool frozen, decay;
    bool fixed;         /* never trained: always frozen */
    bool exact;         /* the device has it in fp32, too */
    bool no_low;        /* frozen and bf16 in the files: its low halves are zero and not stored */
    mt_packing packing; /* frozen, and kept as the files pack it; form MT_FORM_NUMBERS: kept as halves */
    size_t packed_at;   /* where it begins in the unit's packed bytes */
} mt_weight;

/* Numbers [first, first + n) of a unit's block that are exact, and where they begin in its exact numbers. */
typedef struct mt_exact_run {
    int64_t first, n, at;
} mt_exact_run;
enum { MT_EXACT_RUNS = 3 };

typedef struct mt_layout {
    mt_weight *weights;
    int n_weights;
    int64_t n_elems;                   /* of the block, gaps included */
    int64_t n_train, n_decay;          /* [0, n_decay) decays, [n_decay, n_train) does not, the rest is frozen */
    int64_t n_low;                     /* [0, n_low) has low halves, those of [n_low, n_hi) are zero */
    int64_t n_hi;                      /* [0, n_hi) has a home as halves, [n_hi, n_elems) is packed */
    size_t packed_bytes;               /* of all packed weights */
    mt_exact_run exact[MT_EXACT_RUNS]; /* ascending; n is 0 where a region has none */
    int64_t n_exact;                   /* of all of them, gaps included */
    int64_t at[MT_ROLES];              /* offset of each role, -1: not in this unit */
    int64_t exact_at[MT_ROLES];        /* the same in the exact numbers, -1: not exact */
    bool trains[MT_ROLES];
    double trained_part; /* of the elements of its matrices, without those that are never trained; 1 if it has none */
} mt_layout;

/* Numbers [first, first + n) of one kind of a unit's state (optim/state.h), counted from the beginning of its block; packed: bytes.
 * The halves of packed weights are those of the numbers they expand to: they can be read, but not changed. */
typedef struct mt_state_range {
    int unit;
    mt_state_kind kind;
    int64_t first, n;
} mt_state_range;
/* Its piece that begins `at` numbers after its first and has at most `most` numbers. */
static inline mt_state_range mt_state_piece(mt_state_range r, int64_t at, int64_t most)
{
    return (mt_state_range){ r.unit, r.kind, r.first + at, mt_min_i64(most, r.n - at) };
}

/* A layer with experts is a unit of all but the experts, followed by units of experts alone. */
typedef enum mt_unit_kind { MT_UNIT_EMBED, MT_UNIT_LAYER, MT_UNIT_EXPERTS, MT_UNIT_HEAD } mt_unit_kind;

typedef struct mt_unit {
    mt_unit_kind kind;
    int layer;                   /* of a layer; -1: of none */
    int first_expert, n_experts; /* those whose weights it holds */
    int group;
    const mt_layout *layout; /* the group's */
} mt_unit;

/* Facts that only a model's files show: their tensor names, and whether the head is a separate tensor.  ckpt/weights.h finds
 * them. */
typedef struct mt_file_names {
    char prefix[96];              /* stands for the family's prefix */
    char head_prefix[96];         /* before names without that */
    const char *head;             /* the head's tensor, where the files use the family's other name; NULL: the usual one */
    const mt_tensor_row *tensors; /* the family's table that fits */
    bool tied;                    /* the embedding is the head */
} mt_file_names;
/* As config.json and the family say. */
mt_file_names mt_file_names_of(const mt_config *c);
/* The units of a layer: [first, first + n). */
typedef struct mt_layer_units {
    int first, n;
} mt_layer_units;

typedef struct mt_model_options {
    const char *const *freeze; /* shell patterns over tensor names */
    size_t n_freeze;
    bool decay_all;             /* norms and biases decay too */
    bool forward_only;          /* all of it is frozen: nothing is trained */
    const mt_file_names *names; /* NULL: as config.json and the family say */
    /* True if a tensor of the files holds bf16 numbers; NULL: nothing is known of it, or it is as config.json says. */
    bool (*is_bf16)(const void *files, const char *name);
    /* True if a frozen weight's tensor is packed in a way that the weight can keep; NULL: none is. */
    bool (*packing)(const void *files, const struct mt_unit *unit, const mt_weight *w, mt_packing *out);
    const void *files;
    bool assume_dtype;    /* there are no files: tensors have config.json's dtype */
    int64_t unit_experts; /* experts of a unit; a divisor of every layer's; 0: mt_default_unit_experts() */
} mt_model_options;

/* Experts of a unit unless a caller says otherwise: the largest divisor of E with at most MT_UNIT_PARAMETERS parameters, at least
 * 1.  Units decide bits (the norm's tree, blocks of 8-bit moments), so this depends on the model alone.  0: it has no experts. */
enum { MT_UNIT_PARAMETERS = 256 << 20 };
int64_t mt_default_unit_experts(const mt_config *c, int layer);

typedef struct mt_layer_kind mt_layer_kind; /* layer.h */

/* How many layers have experts, how many those have, and how many of them a row takes. */
typedef struct mt_routed {
    int64_t layers, E, T;
} mt_routed;

typedef struct mt_model {
    const mt_config *config; /* borrowed; outlives the model */
    mt_file_names names;
    bool tied;
    mt_layer_kind *kinds; /* of layers whose specs are equal */
    int n_kinds;
    int *kind_of_layer; /* [L] */
    mt_unit *units;
    int n_units;
    int embed, head;        /* units; the same one when tied */
    mt_layer_units *layers; /* [L] */
    int64_t unit_experts;   /* of the first layer that has experts; 0: none has */
    mt_routed routed;
    mt_layout *layouts; /* one per group */
    int n_groups;
    int first_backward; /* the first unit that needs the backward of what follows it; n_units: none */
    int64_t n_params, n_trained;
} mt_model;

mt_rc mt_model_create(mt_model **out, const mt_config *config, const mt_model_options *options, mt_err *err);
void mt_model_free(mt_model *m);

/* True if the weight is the first of its tensor: others that share it are written with it. */
bool mt_weight_leads(const mt_unit *unit, const mt_weight *w);

/* "unit 3 (layer 2)"-like words for messages, and a tensor's name in the checkpoint. */
void mt_unit_name(const mt_model *m, int unit, char out[MT_NAME_BYTES]);
void mt_weight_name(const mt_unit *unit, const mt_weight *w, char out[MT_NAME_BYTES]);

/* The name of a role's tensor as the files have it, prefix and all; %d is the layer, %e the expert.  False: the family has no such
 * role. */
bool mt_role_name(const mt_config *c, const mt_file_names *names, mt_role role, char out[MT_NAME_BYTES]);

/* All of a kind that the unit has. */
static inline mt_state_range mt_unit_state(const mt_model *m, int unit, mt_state_kind kind)
{
    const mt_layout *l = m->units[unit].layout;
    if (kind == MT_STATE_PACKED) return (mt_state_range){ unit, kind, 0, (int64_t)l->packed_bytes };
    return (mt_state_range){ unit, kind, 0, mt_state_is_array(kind) ? l->n_train : l->n_elems };
}

/* The unit a layer begins with: it holds the norms and the mixer. */
static inline int mt_layer_first_unit(const mt_model *m, int layer) { return m->layers[layer].first; }
/* Its units of experts are those after it; this many. */
static inline int mt_layer_expert_units(const mt_model *m, int layer) { return m->layers[layer].n - 1; }
/* True if both ends of the model are this unit. */
static inline bool mt_unit_is_tied(const mt_model *m, int unit) { return m->embed == m->head && unit == m->embed; }
/* True if some of its gradients come from the backward of what follows.  Both ends may be one unit: the head's part of it has its
 * gradients before any layer. */
static inline bool mt_unit_needs_backward(const mt_unit *u)
{
    const mt_layout *l = u->layout;
    return u->kind == MT_UNIT_EMBED ? l->trains[MT_W_EMBED] || l->trains[MT_W_POS] : l->n_train > 0;
}
/* The lowest layer whose backward is needed; L: none. */
int mt_model_lowest_layer(const mt_model *m);
/* True if something reads the gradient of the head's input: a layer, the embedding or the final norm. */
bool mt_model_needs_head_dx(const mt_model *m);

#endif
