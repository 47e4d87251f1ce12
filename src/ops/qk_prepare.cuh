/* qk_prepare.cuh - shared by rope's two files: the op itself with what has no norm (qk_prepare.cu), and what has (qk_prepare_norm.cu). */
#ifndef MT_OPS_ROPE_CUH
#define MT_OPS_ROPE_CUH

#include "ops/ops_cuda.cuh"

mt_rc mt__qk_prepare_norm_fwd(mt_stream *s, const mt_qk_prepare *a, mt_err *err);
mt_rc mt__qk_prepare_norm_bwd(mt_stream *s, const mt_qk_prepare *a, mt_err *err);

#endif
