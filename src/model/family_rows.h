/* family_rows.h - rows of tensor tables, and the runs of rows that families share: a table is a list of these.
 * The order of a layer's rows is the order of its weights in memory; q, k, v and gate, up stay together. */
#ifndef MT_MODEL_FAMILY_ROWS_H
#define MT_MODEL_FAMILY_ROWS_H

#include "model/family.h"

#define MT_ROW(role, name, ...)                                                                                                  \
    {                                                                                                                            \
        role, name, { __VA_ARGS__ }, MT_PACK_NONE, false, false, false                                                           \
    }
#define MT_ROW_EXACT(role, name, ...)                                                                                            \
    {                                                                                                                            \
        role, name, { __VA_ARGS__ }, MT_PACK_NONE, false, true, false                                                            \
    } /* stays fp32 */
#define MT_ROW_PACKED(role, name, pack, ...)                                                                                     \
    {                                                                                                                            \
        role, name, { __VA_ARGS__ }, pack, false, false, false                                                                   \
    }
#define MT_ROW_TURNED(role, name, pack, ...)                                                                                     \
    {                                                                                                                            \
        role, name, { __VA_ARGS__ }, pack, true, false, false                                                                    \
    } /* input first */
#define MT_ROWS_END                                                                                                              \
    {                                                                                                                            \
        0, NULL, { 0 }, MT_PACK_NONE, false, false, false                                                                        \
    }

#define MT_ROW_FIXED(role, name, ...)                                                                                            \
    {                                                                                                                            \
        role, name, { __VA_ARGS__ }, MT_PACK_NONE, false, true, true                                                             \
    } /* stays fp32, and as it is */

#define MT_ROWS_EMBED MT_ROW(MT_W_EMBED, "model.embed_tokens.weight", MT_V, MT_D)

#define MT_ROWS_NORM1(P) MT_ROW(MT_W_NORM1, P "input_layernorm.weight", MT_D), MT_ROW(MT_B_NORM1, P "input_layernorm.bias", MT_D)
#define MT_ROWS_NORM2(P)                                                                                                         \
    MT_ROW(MT_W_NORM2, P "post_attention_layernorm.weight", MT_D), MT_ROW(MT_B_NORM2, P "post_attention_layernorm.bias", MT_D)

#define MT_ROWS_QKV(P)                                                                                                           \
    MT_ROW(MT_W_Q, P "q_proj.weight", MT_H_DH, MT_D), MT_ROW(MT_W_K, P "k_proj.weight", MT_K_DH, MT_D),                          \
        MT_ROW(MT_W_V, P "v_proj.weight", MT_K_DH, MT_D), MT_ROW(MT_B_Q, P "q_proj.bias", MT_H_DH),                              \
        MT_ROW(MT_B_K, P "k_proj.bias", MT_K_DH), MT_ROW(MT_B_V, P "v_proj.bias", MT_K_DH)
/* Three in one tensor; W and B name it. */
#define MT_ROWS_QKV_FUSED(W, B, PACK)                                                                                            \
    MT_ROW_PACKED(MT_W_Q, W, PACK, MT_H_DH, MT_D), MT_ROW_PACKED(MT_W_K, W, PACK, MT_K_DH, MT_D),                                \
        MT_ROW_PACKED(MT_W_V, W, PACK, MT_K_DH, MT_D), MT_ROW_PACKED(MT_B_Q, B, PACK, MT_H_DH),                                  \
        MT_ROW_PACKED(MT_B_K, B, PACK, MT_K_DH), MT_ROW_PACKED(MT_B_V, B, PACK, MT_K_DH)
/* Each query head's rows are followed by those of its output gate. */
#define MT_ROWS_QKV_GATED(P)                                                                                                     \
    MT_ROW_PACKED(MT_W_Q, P "q_proj.weight", MT_PACK_QUERY_HEADS, MT_H_DH, MT_D),                                                \
        MT_ROW(MT_W_K, P "k_proj.weight", MT_K_DH, MT_D), MT_ROW(MT_W_V, P "v_proj.weight", MT_K_DH, MT_D),                      \
        MT_ROW_PACKED(MT_W_O_GATE, P "q_proj.weight", MT_PACK_QUERY_HEADS, MT_H_DH, MT_D),                                       \
        MT_ROW_PACKED(MT_B_Q, P "q_proj.bias", MT_PACK_QUERY_HEADS, MT_H_DH), MT_ROW(MT_B_K, P "k_proj.bias", MT_K_DH),          \
        MT_ROW(MT_B_V, P "v_proj.bias", MT_K_DH), MT_ROW_PACKED(MT_B_O_GATE, P "q_proj.bias", MT_PACK_QUERY_HEADS, MT_H_DH)
#define MT_ROWS_QK_NORM(P) MT_ROW(MT_W_Q_NORM, P "q_norm.weight", MT_DH), MT_ROW(MT_W_K_NORM, P "k_norm.weight", MT_DH)
#define MT_ROWS_O(P)       MT_ROW(MT_W_O, P ".weight", MT_D, MT_H_DH), MT_ROW(MT_B_O, P ".bias", MT_D)

/* Latent attention.  What one product makes of a row stands together: queries or what they are expanded from, what keys and
 * values are expanded from, the rotated part of all keys.  A head's rows of kv_b_proj are those of its keys, then of its
 * values. */
#define MT_ROWS_LATENT(P)                                                                                                        \
    MT_ROW(MT_W_Q, P "q_proj.weight", MT_H_DH, MT_D), MT_ROW(MT_W_Q_A, P "q_a_proj.weight", MT_Q_RANK, MT_D),                    \
        MT_ROW_PACKED(MT_W_KV_A, P "kv_a_proj_with_mqa.weight", MT_PACK_ROWS, MT_KV_RANK, MT_D),                                 \
        MT_ROW_PACKED(MT_W_K_ROPE, P "kv_a_proj_with_mqa.weight", MT_PACK_ROWS, MT_DR, MT_D),                                    \
        MT_ROW(MT_B_Q_A, P "q_a_proj.bias", MT_Q_RANK),                                                                          \
        MT_ROW_PACKED(MT_B_KV_A, P "kv_a_proj_with_mqa.bias", MT_PACK_ROWS, MT_KV_RANK),                                         \
        MT_ROW_PACKED(MT_B_K_ROPE, P "kv_a_proj_with_mqa.bias", MT_PACK_ROWS, MT_DR),                                            \
        MT_ROW(MT_W_Q_A_NORM, P "q_a_layernorm.weight", MT_Q_RANK),                                                              \
        MT_ROW(MT_W_KV_A_NORM, P "kv_a_layernorm.weight", MT_KV_RANK),                                                           \
        MT_ROW(MT_W_Q_B, P "q_b_proj.weight", MT_H_DH, MT_Q_RANK),                                                               \
        MT_ROW_PACKED(MT_W_K_B, P "kv_b_proj.weight", MT_PACK_QUERY_HEADS, MT_H_DN, MT_KV_RANK),                                 \
        MT_ROW_PACKED(MT_W_V_B, P "kv_b_proj.weight", MT_PACK_QUERY_HEADS, MT_H_DV, MT_KV_RANK),                                 \
        MT_ROW(MT_W_O, P "o_proj.weight", MT_D, MT_H_DV), MT_ROW(MT_B_O, P "o_proj.bias", MT_D)

/* Weights of a gated delta net besides its projections. */
#define MT_ROWS_DELTA(P)                                                                                                         \
    MT_ROW_PACKED(MT_W_DELTA_CONV, P "conv1d.weight", MT_PACK_CHANNELS, MT_DELTA_CHANNELS, MT_DELTA_WIDTH),                      \
        MT_ROW_EXACT(MT_W_DELTA_A_LOG, P "A_log", MT_DELTA_H), MT_ROW_EXACT(MT_B_DELTA_DT, P "dt_bias", MT_DELTA_H),             \
        MT_ROW(MT_W_DELTA_NORM, P "norm.weight", MT_DELTA_DV),                                                                   \
        MT_ROW(MT_W_DELTA_OUT, P "out_proj.weight", MT_D, MT_DELTA_VALUES)

#define MT_ROWS_GATE_UP(P)                                                                                                       \
    MT_ROW(MT_W_GATE, P "gate_proj.weight", MT_F, MT_D), MT_ROW(MT_W_UP, P "up_proj.weight", MT_F, MT_D),                        \
        MT_ROW(MT_B_GATE, P "gate_proj.bias", MT_F), MT_ROW(MT_B_UP, P "up_proj.bias", MT_F)
#define MT_ROWS_GATE_UP_FUSED(W)                                                                                                 \
    MT_ROW_PACKED(MT_W_GATE, W, MT_PACK_ROWS, MT_F, MT_D), MT_ROW_PACKED(MT_W_UP, W, MT_PACK_ROWS, MT_F, MT_D)
#define MT_ROWS_UP(P)   MT_ROW(MT_W_UP, P ".weight", MT_F, MT_D), MT_ROW(MT_B_UP, P ".bias", MT_F)
#define MT_ROWS_DOWN(P) MT_ROW(MT_W_DOWN, P ".weight", MT_D, MT_F), MT_ROW(MT_B_DOWN, P ".bias", MT_D)

#define MT_ROWS_FINAL_NORM(P) MT_ROW(MT_W_FINAL_NORM, P ".weight", MT_D), MT_ROW(MT_B_FINAL_NORM, P ".bias", MT_D)
#define MT_ROWS_HEAD(P)       MT_ROW(MT_W_HEAD, P ".weight", MT_V, MT_D), MT_ROW(MT_B_HEAD, P ".bias", MT_V)

/* A llama-shaped model without its mlp: all that comes before, all that follows. */
#define MT_ROWS_LLAMA_MIXER(P)                                                                                                   \
    MT_ROWS_EMBED, MT_ROWS_NORM1(P), MT_ROWS_QKV(P "self_attn."), MT_ROWS_QK_NORM(P "self_attn."),                               \
        MT_ROWS_O(P "self_attn.o_proj"), MT_ROWS_NORM2(P)
#define MT_ROWS_MLP(P)    MT_ROWS_GATE_UP(P "mlp."), MT_ROWS_DOWN(P "mlp.down_proj")
#define MT_ROWS_LLAMA_END MT_ROWS_FINAL_NORM("model.norm"), MT_ROWS_HEAD("lm_head"), MT_ROWS_END

/* Experts: a tensor each, or one for all.  The order is that of memory (model.h): gate and up are neighbors. */
#define MT_ROWS_EXPERTS(P, GATE, UP, DOWN)                                                                                       \
    MT_ROW_PACKED(MT_W_E_GATE, P GATE ".weight", MT_PACK_EXPERT, MT_I, MT_D),                                                    \
        MT_ROW_PACKED(MT_W_E_UP, P UP ".weight", MT_PACK_EXPERT, MT_I, MT_D),                                                    \
        MT_ROW_PACKED(MT_W_E_DOWN, P DOWN ".weight", MT_PACK_EXPERT, MT_D, MT_I)
#define MT_ROWS_EXPERTS_FUSED(GATE_UP, DOWN)                                                                                     \
    MT_ROW_PACKED(MT_W_E_GATE, GATE_UP, MT_PACK_EXPERTS, MT_I, MT_D),                                                            \
        MT_ROW_PACKED(MT_W_E_UP, GATE_UP, MT_PACK_EXPERTS, MT_I, MT_D),                                                          \
        MT_ROW_PACKED(MT_W_E_DOWN, DOWN, MT_PACK_EXPERTS, MT_D, MT_I)
#define MT_ROWS_EXPERTS_USUAL(P)       MT_ROWS_EXPERTS(P "mlp.experts.%e.", "gate_proj", "up_proj", "down_proj")
#define MT_ROWS_EXPERTS_FUSED_USUAL(P) MT_ROWS_EXPERTS_FUSED(P "mlp.experts.gate_up_proj", P "mlp.experts.down_proj")
#define MT_ROWS_SHARED(P)                                                                                                        \
    MT_ROW(MT_W_S_GATE, P "gate_proj.weight", MT_IS, MT_D), MT_ROW(MT_W_S_UP, P "up_proj.weight", MT_IS, MT_D),                  \
        MT_ROW(MT_B_S_GATE, P "gate_proj.bias", MT_IS), MT_ROW(MT_B_S_UP, P "up_proj.bias", MT_IS),                              \
        MT_ROW(MT_W_S_DOWN, P "down_proj.weight", MT_D, MT_IS), MT_ROW(MT_B_S_DOWN, P "down_proj.bias", MT_D)

#endif
