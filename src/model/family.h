/* family.h - a model family is data: which config keys set which traits, which tensors fill which role.
 *
 * To add one whose ops exist, copy the nearest family_*.c, change the rows, add a line to mt_families[]. */
#ifndef MT_MODEL_FAMILY_H
#define MT_MODEL_FAMILY_H

#include "base/json.h"
#include "model/config.h"

/* The use of a tensor in its layer.  Biases follow their weights. */
typedef enum mt_role {
    MT_W_EMBED,
    MT_W_POS,
    MT_W_NORM0, /* of a layer whose input is normed before anything else */
    MT_B_NORM0,
    MT_W_NORM1,
    MT_B_NORM1,
    MT_W_Q,
    MT_W_K,
    MT_W_V,
    MT_B_Q,
    MT_B_K,
    MT_B_V,
    MT_W_Q_NORM,
    MT_W_K_NORM,
    MT_W_O,
    MT_B_O,
    MT_W_SINKS,  /* of attention: a score of each head that no row has */
    MT_W_O_GATE, /* of attention's output, where it is gated */
    MT_B_O_GATE,
    MT_W_DELTA_Q, /* of a gated delta net: its projections ... */
    MT_W_DELTA_K,
    MT_W_DELTA_V,
    MT_W_DELTA_Z, /* the gate of its norm */
    MT_W_DELTA_B, /* what beta and the decay are made of */
    MT_W_DELTA_A,
    MT_W_DELTA_CONV, /* ... and the rest */
    MT_W_DELTA_A_LOG,
    MT_B_DELTA_DT,
    MT_W_DELTA_NORM,
    MT_W_DELTA_OUT,
    MT_W_Q_A, /* of latent attention: what queries are expanded from, unless MT_W_Q makes them at once ... */
    MT_B_Q_A,
    MT_W_Q_A_NORM,
    MT_W_Q_B,
    MT_W_KV_A, /* ... what keys and values are, and the rotated part that all key heads share ... */
    MT_W_K_ROPE,
    MT_B_KV_A,
    MT_B_K_ROPE,
    MT_W_KV_A_NORM,
    MT_W_K_B, /* ... and how they are */
    MT_W_V_B,
    MT_W_POST1,
    MT_W_NORM2,
    MT_B_NORM2,
    MT_W_GATE,
    MT_W_UP,
    MT_B_GATE,
    MT_B_UP,
    MT_W_ALPHA_P, /* of xIELU */
    MT_W_ALPHA_N,
    MT_W_DOWN,
    MT_B_DOWN,
    MT_W_POST2,
    MT_W_ROUTER, /* of experts: who gets which row */
    MT_B_ROUTER,
    MT_B_CHOICE, /* added to a router's scores for choosing; never trained */
    MT_W_E_GATE, /* of each expert: in memory gate(0), up(0), gate(1), ..., then down(0), down(1), ... */
    MT_W_E_UP,
    MT_W_E_DOWN,
    MT_B_E_GATE, /* likewise */
    MT_B_E_UP,
    MT_B_E_DOWN,
    MT_W_S_GATE, /* of the expert that every row passes */
    MT_W_S_UP,
    MT_B_S_GATE,
    MT_B_S_UP,
    MT_W_S_DOWN,
    MT_B_S_DOWN,
    MT_W_S_SWITCH, /* how much of it a row takes */
    MT_W_FINAL_NORM,
    MT_B_FINAL_NORM,
    MT_W_HEAD,
    MT_B_HEAD,
    MT_W_EXTRA_MIXER, /* of a mixer or ffn outside this tree, which has no roles here: tests, experiments */
    MT_W_EXTRA_FFN,
    MT_ROLES
} mt_role;

/* A dimension of a shape, by letter. */
typedef enum mt_dim {
    MT_NONE,
    MT_ONE,
    MT_D,
    MT_F,
    MT_V,
    MT_DH,
    MT_H,
    MT_K,
    MT_H_DH,
    MT_K_DH,
    MT_POSITIONS,
    MT_E,       /* experts */
    MT_I,       /* width of an expert */
    MT_IS,      /* of the shared expert */
    MT_DELTA_H, /* of mt_delta_shape: value heads */
    MT_DELTA_DV,
    MT_DELTA_KEYS,     /* K Dk */
    MT_DELTA_VALUES,   /* H Dv */
    MT_DELTA_CHANNELS, /* of its convolution: two of keys, one of values */
    MT_DELTA_WIDTH,
    MT_Q_RANK, /* of mt_latent_shape */
    MT_KV_RANK,
    MT_DR,
    MT_H_DN,
    MT_H_DV,
} mt_dim;

/* How a tensor of the file holds several roles.  Rows of the table that share a name share the tensor, in the table's order. */
typedef enum mt_pack {
    MT_PACK_NONE,        /* one role, one tensor */
    MT_PACK_ROWS,        /* all rows of the first, then all of the second, ... */
    MT_PACK_HEADS,       /* per key/value head: its query heads, the key head, the value head */
    MT_PACK_APART,       /* the other way round: a tensor of Dh numbers for every head; %h in the name is the head */
    MT_PACK_QUERY_HEADS, /* per query head: its rows of each role */
    MT_PACK_DELTA_HEADS, /* per key head of a gated delta net: its rows of each role */
    MT_PACK_CHANNELS,    /* one role, one tensor, with a dimension of 1 between its two: a depthwise convolution */
    MT_PACK_EXPERT,      /* a tensor for every expert; %e in the name is the expert */
    MT_PACK_EXPERTS, /* one tensor for all experts, expert after expert; in each, rows that share the name as in MT_PACK_ROWS */
    MT_PACK_EXPERTS_IN_TURN, /* the same, but a row of each in turn */
} mt_pack;

typedef struct mt_tensor_row {
    mt_role role;
    const char *name; /* in the checkpoint; %d is the layer */
    mt_dim shape[2];  /* of the role, output first, in any file layout */
    mt_pack pack;
    bool transposed; /* the file has it input first */
    bool exact;      /* few numbers that the device needs in fp32 even where it computes in bf16 (model.h, exact runs) */
    bool fixed;      /* never trained */
} mt_tensor_row;

/* How a family decides whether there is a bias. */
/* Absent: no; absent: yes. */
typedef enum mt_bias_rule { MT_BIAS_NEVER, MT_BIAS_ALWAYS, MT_BIAS_BY_KEY, MT_BIAS_UNLESS_KEY } mt_bias_rule;

/* Which layers have a sliding window. */
typedef enum mt_window_rule {
    MT_WINDOW_NEVER,
    MT_WINDOW_ALL,     /* sliding_window, if not null, on every layer (mistral) */
    MT_WINDOW_USED,    /* only with use_sliding_window, on every layer (qwen3_moe) */
    MT_WINDOW_LATE,    /* only with use_sliding_window, on layers from max_window_layers on (qwen2, qwen3) */
    MT_WINDOW_EARLY,   /* the same on every second layer before max_window_layers (qwen2_moe) */
    MT_WINDOW_FROM,    /* sliding_window, if not null, on layers from max_window_layers on (dots1) */
    MT_WINDOW_PATTERN, /* on all but every n-th layer (gemma, cohere2) */
} mt_window_rule;

/* A family's own keys: what its `read` gets. */
typedef struct mt_keys {
    const mt_value *doc;
    bool wrapped;     /* doc is the text part of a multimodal model's file */
    const char *path; /* for messages */
    mt_err *err;
} mt_keys;

/* Which layers have experts. */
typedef enum mt_sparse_rule {
    MT_SPARSE_ALL,
    MT_SPARSE_STEP,  /* every decoder_sparse_step-th, but for mlp_only_layers */
    MT_SPARSE_AFTER, /* from first_k_dense_replace on */
    MT_SPARSE_RANGE, /* every moe_layer_interval-th of moe_layer_start_index to moe_layer_end_index */
    MT_SPARSE_TYPES, /* those that mlp_layer_types calls sparse; without that key as AFTER */
    MT_SPARSE_LIST,  /* those of moe_layers, or else every interleave_moe_layer_step-th */
} mt_sparse_rule;

/* The width of the expert that every row passes. */
typedef enum mt_shared_rule {
    MT_SHARED_NONE,
    MT_SHARED_WIDTH, /* by a key: shared_expert_intermediate_size, shared_intermediate_size */
    MT_SHARED_COUNT, /* an expert's width times n_shared_experts, moe_num_shared_experts */
    MT_SHARED_MLP,   /* intermediate_size times num_shared_expert */
} mt_shared_rule;

/* The embedding's row of this id gets no gradient. */
#define MT_PAD(id) ((id) + 1)

/* How a family's experts are configured: keys of config.json and their defaults. */
typedef struct mt_expert_rules {
    mt_route_kind router;
    bool norm, norm_key; /* weights are divided by their sum; with norm_key, norm_topk_prob decides, and `norm` is its default */
    double norm_eps, norm_floor;
    bool scaled;  /* routed_scaling_factor counts, and n_group, topk_group */
    double scale; /* those where they are absent; 0: 1 */
    int64_t n_group, topk_group;
    bool choice_bias;
    bool router_bias, biases; /* of the router; of the experts */
    bool weigh_input;         /* a weight is one of what its expert reads */
    bool mlp_width;           /* an expert's width is intermediate_size, not moe_intermediate_size */
    mt_sparse_rule layers;
    int64_t first_dense; /* AFTER: first_k_dense_replace where it is absent */
    bool layer_freq;     /* AFTER: moe_layer_freq counts */
    mt_shared_rule shared;
    int64_t default_shared; /* what the key of WIDTH or COUNT says where it is absent */
    bool shared_switch;
} mt_expert_rules;

struct mt_family {
    const char *name;              /* as users know it */
    const char *model_types[8];    /* values of "model_type", NULL-ended */
    const char *architectures[8];  /* values in "architectures" */
    const char *covers;            /* published models, for the list */
    const char *telling[7];        /* config keys of this family, or of few: with one of them, other families do not match */
    mt_bias_rule qkv_bias, o_bias; /* by attention_bias, or the key below */
    mt_bias_rule mlp_bias;         /* by mlp_bias, or the key below */
    const char *bias_key;          /* one key for all three */
    bool qk_norm, qk_norm_whole;
    bool qk_norm_last; /* head norms come after the rotation */
    bool embed_norm;   /* the embedding's rows go through a norm, in the first layer */
    bool layer_norm, norm_bias, norm_one_plus;
    bool norm_bare; /* norms have no weights */
    mt_norms norms;
    mt_block_form form;
    bool plain_mlp, head_bias, learned_positions;
    mt_act default_act;
    const char *own_keys[5]; /* of keys with several spellings, those that its class reads; of the others, the usual one */
    mt_window_rule window;
    const char *typed_windows; /* ALL, USED: the model_type whose class reads layer_types; the others' ignore it */
    int64_t default_window;    /* when the key is absent; 0: none */
    int64_t window_pattern;    /* PATTERN: n when sliding_window_pattern is absent */
    int64_t default_head_dim;  /* when the key is absent; 0: D / H */
    struct {
        int64_t D, F, L, H, K, V, positions;
    } shape;                    /* when keys of it are absent, as in the text_config of multimodal models; 0: they are
                                       * needed */
    int64_t default_mlp_factor; /* F / D when the key is absent; 0: the key is needed */
    double default_eps, default_theta;
    int64_t default_pad;    /* MT_PAD of pad_token_id when the key is absent; 0: none */
    bool local_rope;        /* sliding layers have their own rotary settings, unscaled by default */
    double local_theta;     /* theirs, when the key is absent; 0: rope_theta */
    int64_t nope_interval;  /* every n-th layer has no rotary positions, or what no_rope_layers says; 0: neither key
                                       * is read */
    bool query_scale;       /* rope settings have llama_4_scaling_beta: queries are scaled by position */
    double default_partial; /* share of a head that rotates where partial_rotary_factor is absent; 0: all */
    bool partial;           /* that key counts though it has no default; without both, it is refused */
    bool default_tied;
    mt_rope_style rope;
    const char *prefix;                 /* what the names below begin with, and files may replace; NULL: "model." */
    const char *other_head;             /* another name some files have for the head; or NULL */
    const mt_tensor_row *tensors;       /* ended by a row without a name */
    const mt_tensor_row *other_tensors; /* the same model with other tensor names, identified by the experts' names; or NULL */
    const mt_expert_rules *experts;     /* NULL: no layer has any */
    mt_latent_shape latent;             /* where keys of it are absent; kv_rank 0: its attention is not latent */
    mt_rc (*read)(mt_config *c, const mt_keys *k); /* reads further keys and traits, after all others; or NULL */
};

extern const mt_family *const mt_families[]; /* NULL-ended */
extern const mt_family mt_family_llama, mt_family_mistral, mt_family_qwen2, mt_family_qwen3, mt_family_phi3, mt_family_gemma,
    mt_family_gemma2, mt_family_gemma3, mt_family_glm, mt_family_glm4, mt_family_chatglm, mt_family_internlm2, mt_family_baichuan,
    mt_family_olmo2, mt_family_olmo3, mt_family_granite, mt_family_smollm3, mt_family_exaone4, mt_family_ernie4_5,
    mt_family_seed_oss, mt_family_arcee, mt_family_nemotron, mt_family_cohere, mt_family_cohere2, mt_family_starcoder2,
    mt_family_stablelm, mt_family_phi, mt_family_gpt_neox, mt_family_falcon, mt_family_gpt2, mt_family_opt, mt_family_helium,
    mt_family_jais2, mt_family_cwm, mt_family_vaultgemma, mt_family_ministral3, mt_family_olmo, mt_family_hunyuan,
    mt_family_nanochat, mt_family_apertus, mt_family_bloom, mt_family_gptj, mt_family_gpt_neo, mt_family_gpt_bigcode,
    mt_family_mpt, mt_family_biogpt, mt_family_hyperclovax, mt_family_mixtral, mt_family_qwen3_moe, mt_family_qwen2_moe,
    mt_family_olmoe, mt_family_deepseek, mt_family_glm4_moe, mt_family_dots1, mt_family_granitemoe, mt_family_granitemoeshared,
    mt_family_ernie4_5_moe, mt_family_hunyuan_v1_moe, mt_family_minimax_m2, mt_family_phimoe, mt_family_qwen3_5,
    mt_family_qwen3_5_moe, mt_family_qwen3_next, mt_family_deepseek_v2, mt_family_deepseek_v3, mt_family_glm4_moe_lite,
    mt_family_gpt_oss, mt_family_llama4;

/* The usual names, which most families share. */
extern const mt_tensor_row mt_tensors_standard[];

/* No rotary positions on any layer. */
void mt_config_no_rope(mt_config *c);

const mt_family *mt_family_by_model_type(const char *model_type);
const mt_family *mt_family_by_architecture(const char *architecture);

#endif
