/* config.h - the contents of config.json, resolved: every number that the layers need.
 *
 * Missing keys take the family's defaults, aliases and both spellings of the rope settings are accepted, and every assumption is
 * recorded (assumptions), so that inspect can show it. */
#ifndef MT_MODEL_CONFIG_H
#define MT_MODEL_CONFIG_H

#include "base/dtype.h"
#include "base/err.h"
#include "ops/ops.h"

typedef struct mt_family mt_family;

typedef enum mt_rope_type {
    MT_ROPE_DEFAULT,
    MT_ROPE_LINEAR,
    MT_ROPE_DYNAMIC,
    MT_ROPE_LLAMA3,
    MT_ROPE_YARN,
    MT_ROPE_LONG
} mt_rope_type;

enum { MT_MAX_PAIRS = 256 }; /* rotated pairs of a head */

typedef struct mt_rope_spec {
    mt_rope_type type;
    mt_rope_style style;
    int64_t dr; /* rotated dimensions of a head */
    double theta;
    double factor;                /* 1: none */
    double original_positions;    /* L0 of llama3, yarn and longrope; dynamic: max_positions */
    double low_freq, high_freq;   /* llama3 */
    double beta_fast, beta_slow;  /* yarn */
    bool truncate;                /* yarn: whole dimensions only */
    double mscale_all;            /* "mscale_all_dim"; 0: none */
    double attention_factor;      /* on cos and sin; already resolved, 1 unless yarn or longrope */
    double long_attention_factor; /* likewise, of documents that turn by the long list of longrope */
    double short_factor[MT_MAX_PAIRS], long_factor[MT_MAX_PAIRS]; /* longrope */
    bool backwards;                                               /* by the angles' negatives */
    double q_beta;                                                /* queries are scaled by position (ops.h); 0: not */
    int64_t q_period, q_shift;                                    /* as there */
} mt_rope_spec;

/* The places of a layer's norms. */
typedef enum mt_norms {
    MT_NORMS_PRE,      /* before attention and before the mlp */
    MT_NORMS_SANDWICH, /* and after each, before it is added */
    MT_NORMS_POST,     /* only after */
} mt_norms;

/* How attention and mlp follow each other. */
typedef enum mt_block_form {
    MT_BLOCK_SERIAL,   /* the mlp reads what attention added to */
    MT_BLOCK_PARALLEL, /* both read the layer's input, each through its own norm */
    MT_BLOCK_ONE_NORM, /* both read the same norm of it */
} mt_block_form;

typedef enum mt_layer_rope { MT_LAYER_NOPE, MT_LAYER_ROPE, MT_LAYER_ROPE_LOCAL } mt_layer_rope;

/* The properties in which layers may differ: the parts they are made of (part.h), and what those read besides the model-wide numbers. */
typedef struct mt_mixer mt_mixer;
typedef struct mt_ffn mt_ffn;
typedef struct mt_layer_spec {
    const mt_mixer *mixer;
    const mt_ffn *ffn;
    mt_norms norms;
    mt_block_form form;
    mt_layer_rope rope;
    bool input_norm;      /* the input, residual included, is what a norm makes of it */
    int64_t window;       /* rows a row may see, itself included; 0: all */
    int64_t chunk;        /* rows that a document is cut into, each of which sees its own alone; 0: it is not cut */
    bool no_qk_norm;      /* no norm of query and key heads in this layer */
    bool no_q_scale;      /* queries are not scaled by position here */
    int64_t H, K, Dh, F;  /* see ops.h */
    int64_t E, T, I, Is;  /* experts, those of a row, the width of one; of the shared one, 0: none.  E is 0 in dense layers */
    int64_t unit_experts; /* of a unit; settled by the model, in its kinds of layers */
} mt_layer_spec;

/* Properties that all layers with experts share. */
typedef struct mt_moe {
    mt_route_kind router;
    bool norm_topk; /* weights are divided by their sum */
    double norm_eps, norm_floor;
    double scale;                /* on the weights */
    double jitter;               /* MT_ROUTE_MIXER */
    int64_t n_group, topk_group; /* 0 or 1: no groups */
    bool choice_bias;            /* added to the scores for choosing */
    bool router_bias, biases;    /* of the router; of the experts */
    bool weigh_input;            /* a weight is one of what its expert reads, not of what it returns */
    bool exact_router;           /* the router always computes in fp32 */
    double aux_loss;             /* the file's coefficient of the load-balancing loss; negative: it has none */
    bool shared_switch;          /* a row takes sigmoid(switch) of the shared expert */
} mt_moe;
/* A gated delta net (ops.h, delta_rule): value heads, key heads, their widths, and the rows its convolution sees. */
typedef struct mt_delta_shape {
    int64_t H, K, Dk, Dv, width;
} mt_delta_shape;

/* Latent attention: ranks of what queries, and keys and values, are expanded from (q_rank 0: queries are projected at once), and
 * the widths of a head's two parts, unrotated and rotated, and of its values. */
typedef struct mt_latent_shape {
    int64_t q_rank, kv_rank, dn, dr, dv;
} mt_latent_shape;

typedef struct mt_config {
    const mt_family *family;
    const char *decided_by; /* how the family was identified: "model_type", "architectures", "config keys", "tensor names" or
                             * "model.family" (by the user) */
    bool type_known;        /* it was "model_type" */
    const void *document;   /* config.json itself, while the family is a guess that tensor names may correct; else NULL */
    char model_type[64], architecture[96];
    char quantized[32];           /* "quant_method" of "quantization_config"; "" without one */
    int64_t D, F, L, H, K, Dh, V; /* see ops.h; V as config.json has it */
    int64_t max_positions;
    double eps;
    double attention_scale;
    double init_range;  /* deviation of freshly made weights */
    double init_branch; /* times this for what a branch ends in */
    mt_act act;
    double act_limit, act_steep; /* MT_ACT_CLAMPED */
    bool tied;                   /* as config.json says; the files decide (mt_file_names) */
    bool qkv_bias, o_bias, mlp_bias, head_bias;
    bool sinks;             /* attention has them */
    bool o_gate;            /* attention's output is multiplied by the sigmoid of a gate, which is projected with the queries */
    mt_delta_shape delta;   /* of the layers with mt_mixer_delta */
    mt_latent_shape latent; /* of those with mt_mixer_latent; Dh is dn + dr there */
    bool qk_norm, qk_norm_whole;     /* whole: over all heads together */
    bool qk_layer_norm, qk_norm_own; /* those are LayerNorms; every head has its own weights */
    bool qk_norm_last, qk_norm_bare; /* after the rotation; without weights */
    bool layer_norm, norm_bias;      /* LayerNorm for RMS norm; with a bias */
    bool norm_bare;                  /* norms of rows have no weights */
    bool norm_one_plus;              /* the stored weight is w - 1, head norms included */
    mt_norms norms;
    mt_block_form form;
    bool plain_mlp; /* no gate: up, activation, down */
    bool learned_positions;
    int64_t position_rows, position_offset; /* rows of the learned table; the one of position 0 */
    double alibi;                           /* factor on ALiBi's slopes; 0: none */
    double embed_scale;
    bool embed_scale_rounds;                 /* to the compute dtype, as a tensor of it would */
    double residual_scale, logit_scale;      /* on what a branch adds, on the logits */
    bool norm_head;                          /* the head's rows are normalized */
    double attention_softcap, logit_softcap; /* 0: none */
    double clip_qkv;                         /* bound of queries, keys and values, before they rotate; 0: none */
    int32_t pad_id;                          /* -1: none */
    mt_dtype dtype;                          /* what the checkpoint says it is stored in */
    const char *dropout_key; /* the key of the largest dropout that transformers would train with, which nothing here does;
                              * NULL: none */
    double dropout;
    const char *notice;            /* what else is computed otherwise than transformers trains it; NULL: nothing */
    mt_rope_spec rope, rope_local; /* dr of both is the same; 0: no layer has rotary positions */
    bool has_rope_local;
    mt_moe moe;            /* of layers that have experts */
    mt_layer_spec *layers; /* [L] */
    char **assumptions;
    size_t n_assumptions;
} mt_config;

/* From a model directory's config.json (or a path to the file). */
mt_rc mt_config_open(mt_config **out, const char *dir_or_file, mt_err *err);
/* From its text; `what` names it in messages. */
mt_rc mt_config_parse(mt_config **out, const char *text, size_t n, const char *what, mt_err *err);
/* The same as a given family's, which need not be in mt_families[]. */
mt_rc mt_config_parse_as(mt_config **out, const char *text, size_t n, const char *what, const mt_family *family, mt_err *err);
/* The same config.json taken for another family's; of a config whose family is a guess. */
mt_rc mt_config_as(mt_config **out, const mt_config *c, const mt_family *family, mt_err *err);
/* The user says which family a model of an unknown type is: *c is read again as that.  NULL or "": nothing was said. */
mt_rc mt_config_assume(mt_config **c, const char *family, mt_err *err);
/* Refuses a family that is only a guess: its results may be silently wrong. */
mt_rc mt_config_check_known(const mt_config *c, mt_err *err);
void mt_config_close(mt_config *c);

/* Longrope has two lists of factors: a document of more than original_positions rows turns by the long one, others by the short
 * one, as with transformers when it is alone in its batch.  (There the longest row of a batch decides for all of it.)  If either
 * rotation of a model is a longrope and the longest document of a run is that long, both tables begin with this many rows of the
 * short list; 0: they have one part. */
int64_t mt_rope_short_rows(const mt_config *c, int64_t longest);
/* cos and sin, [short_rows + longest, dr/2] each, scaled; rotations without two lists are the same in both parts.
 * prompt: rows of the longest prompt that will be continued, 0 if there is none.  Past the model's positions, "dynamic" turns a
 * prompt by frequencies for its length, and each later row by those for the length up to it, as transformers does with a cache. */
void mt_rope_tables(const mt_rope_spec *rope, int64_t short_rows, int64_t longest, int64_t prompt, float *cos_out,
                    float *sin_out);

#endif
