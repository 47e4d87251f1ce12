/* four_bits.h - weights that quantization packages store as 4-bit codes, with their scales in other tensors: bitsandbytes' NF4,
 * with and without nested scales, and the int4 groups of GPTQ and AWQ.  ops/forms.h says what a code means.
 *
 *     bitsandbytes  X.weight [n/2, 1], two codes a byte, the first in the high bits;  X.weight.absmax: a scale per block, fp32 or a
 *                   byte (nested);  X.weight.quant_map;  X.weight.quant_state.bitsandbytes__nf4: a JSON document of bytes;
 *                   nested: X.weight.nested_absmax, X.weight.nested_quant_map
 *     GPTQ          X.qweight I32 [in/8, out], inputs 8k to 8k + 7 in a word, the first in the low bits;  X.qzeros I32 [groups, out/8]
 *                   (zero points less one, unless checkpoint_format is "gptq_v2");  X.scales [groups, out];  X.g_idx I32 [in]: the
 *                   group of each input
 *     AWQ           X.qweight I32 [in, out/8], nibble i of a word is output 8k + (0, 2, 4, 6, 1, 3, 5, 7)[i];  X.qzeros the same
 *                   way;  X.scales
 *
 * Each becomes one tensor X.weight [out, in] of fp32 numbers, which reads its codes in the mapped files. */
#ifndef MT_CKPT_FOUR_BITS_H
#define MT_CKPT_FOUR_BITS_H

#include "base/arena.h"
#include "ckpt/tensor.h"

/* The other tensors of a quantized weight: returns the one whose name is the weight's with `tail`, and takes it off the list of
 * tensors; NULL: there is none. */
typedef struct mt__siblings {
    const mt_st_tensor *(*take)(void *user, const char *tail);
    void *user;
} mt__siblings;

/* What config.json says about the int4 tensors of a model. */
typedef struct mt__int4_how {
    bool awq;            /* otherwise GPTQ */
    bool zeros_are_true; /* not less one */
    int64_t group;       /* inputs that share a scale; -1: all */
} mt__int4_how;
mt_rc mt__int4_read_how(mt__int4_how *out, const char *config_path, mt_err *err);

/* *out becomes the weight; it keeps w's name (NF4) or takes the given one (int4).  Decoders live in the arena; name and all tensors
 * must outlive them.  state: the tail of the name of the weight's quant_state. */
mt_rc mt__nf4_join(mt_st_tensor *out, mt_arena *arena, const mt_st_tensor *w, const char *state, const mt__siblings *others,
                   mt_err *err);
mt_rc mt__int4_join(mt_st_tensor *out, mt_arena *arena, const char *name, const mt_st_tensor *w, const mt__int4_how *how,
                    const mt__siblings *others, mt_err *err);

#endif
