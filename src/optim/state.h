/* state.h - the state of a unit: its masters as two halves (base/split.h) over the whole block, and the arrays of its optimizer over
 * the trained part, such as Adam's two moments.
 *
 * Staging slots, reused memory, pieces and snapshots hold some of these arrays in one stretch of memory, which mt_state_lay_out
 * divides.  Homes and the slices of lanes have one buffer for each array.  Checkpoints store one tensor for each. */
#ifndef MT_OPTIM_STATE_H
#define MT_OPTIM_STATE_H

#include "ops/update.h"

/* Array k of the optimizer is of kind MT_STATE_ARRAYS + k. */
typedef enum mt_state_kind {
    MT_STATE_HI,
    MT_STATE_LO,
    MT_STATE_ARRAYS,
    MT_STATE_KINDS = MT_STATE_ARRAYS + MT_MOST_ARRAYS,
    MT_STATE_PACKED = MT_STATE_KINDS + 1 /* bytes of frozen weights as their files pack them: no update, slot or copy has them */
} mt_state_kind;

static inline bool mt_state_is_array(mt_state_kind kind) { return kind >= MT_STATE_ARRAYS && kind < MT_STATE_KINDS; }

/* What decides the kinds and bytes of a state: which arrays there are, and how they are stored. */
typedef struct mt_state_form {
    mt_optimizer_kind optimizer;
    mt_moments moments;
} mt_state_form;
/* True if the optimizer has this kind. */
bool mt_state_has(mt_state_form form, mt_state_kind kind);

/* All kinds in the order in which they are copied to and from slots: what an update needs last comes last. */
extern const mt_state_kind mt_state_copy_order[MT_STATE_KINDS];

/* Sets of kinds: bit 1 << kind.  Where the gradient travels with the state, it counts as one more kind. */
enum {
    MT_PART_HI = 1 << MT_STATE_HI,
    MT_PART_LO = 1 << MT_STATE_LO,
    MT_PART_FIRST = 1 << MT_STATE_ARRAYS, /* the first array of the optimizer */
    MT_PART_OTHERS = (1 << MT_STATE_KINDS) - (MT_PART_FIRST << 1),
    MT_PART_GRADIENT = 1 << MT_STATE_KINDS,
    MT_STATE_PARTS = MT_STATE_KINDS + 1
};

/* Bytes of n numbers of a kind, as they are stored; and of one number as callers read and write it.  0: the optimizer has no such
 * array. */
size_t mt_state_stored_bytes(mt_state_form form, mt_state_kind kind, size_t n);
size_t mt_state_read_bytes(mt_state_form form, mt_state_kind kind);
/* Of one number of all arrays together. */
size_t mt_state_arrays_bytes(mt_state_form form);
/* The type in which they read and write it. */
mt_dtype mt_state_read_type(mt_state_form form, mt_state_kind kind);

/* Arrays of a unit's state in one stretch of memory, each at a multiple of MT_STATE_ALIGN: the optimizer's, the low halves, the
 * gradient, the high halves. */
enum { MT_STATE_ALIGN = 256 };
typedef struct mt_state_layout {
    size_t at[MT_STATE_PARTS]; /* where each begins */
    size_t bytes;              /* of all */
} mt_state_layout;
/* bytes: of each array; 0: it is not there. */
mt_state_layout mt_state_lay_out(const size_t bytes[MT_STATE_PARTS]);

/* The bytes of numbers [first, first + n) of an array that stores n_all: one run, or two in 8 bits, the codes and then the exponents
 * of their blocks.  first begins a block.  Returns the number of runs, 0 if the optimizer has no such array. */
typedef struct mt_byte_run {
    size_t at, bytes;
} mt_byte_run;
int mt_state_byte_runs(mt_state_form form, mt_state_kind kind, int64_t n_all, int64_t first, int64_t n, mt_byte_run out[2]);

#endif
