/* rope.cuh - shared by rope's two files: the op itself with what has no norm (rope.cu), and what has (rope_norm.cu). */
#ifndef MT_OPS_ROPE_CUH
#define MT_OPS_ROPE_CUH

#include "ops/ops_cuda.cuh"

mt_rc mt__rope_norm_fwd(mt_stream *s, const mt_rope *a, mt_err *err);
mt_rc mt__rope_norm_bwd(mt_stream *s, const mt_rope *a, mt_err *err);

#endif
