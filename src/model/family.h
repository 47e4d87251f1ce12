/* family.h - a model family is data: which config keys set which traits, which tensors fill which role.
 *
 * To add one whose ops exist, copy the nearest family_*.c, change the rows, add a line to mt_families[]. */
#ifndef MT_MODEL_FAMILY_H
#define MT_MODEL_FAMILY_H

#include "model/config.h"

/* What a tensor is for.  Biases follow their weights. */
typedef enum mt_role {
    MT_W_EMBED,
    MT_W_NORM1,
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
    MT_W_NORM2,
    MT_W_GATE,
    MT_W_UP,
    MT_B_GATE,
    MT_B_UP,
    MT_W_DOWN,
    MT_B_DOWN,
    MT_W_FINAL_NORM,
    MT_W_HEAD,
    MT_ROLES
} mt_role;

/* A dimension of a shape, by letter. */
typedef enum mt_dim { MT_NONE, MT_D, MT_F, MT_V, MT_DH, MT_H_DH, MT_K_DH } mt_dim;

typedef struct mt_tensor_row {
    mt_role role;
    const char *name; /* in the checkpoint; %d is the layer */
    mt_dim shape[2];
} mt_tensor_row;

/* Where a bias comes from. */
typedef enum mt_bias_rule { MT_BIAS_NEVER, MT_BIAS_ALWAYS, MT_BIAS_BY_KEY } mt_bias_rule;

/* Which layers have a sliding window. */
typedef enum mt_window_rule {
    MT_WINDOW_NEVER,
    MT_WINDOW_ALL,  /* sliding_window, if not null, on every layer (mistral) */
    MT_WINDOW_LATE, /* only with use_sliding_window, on layers from max_window_layers on (qwen2, qwen3) */
} mt_window_rule;

struct mt_family {
    const char *name;                 /* as users know it */
    const char *model_types[8];       /* values of "model_type", NULL-ended */
    const char *architectures[8];     /* values in "architectures" */
    const char *covers;               /* published models, for the list */
    mt_bias_rule qkv_bias, o_bias;    /* BY_KEY: attention_bias */
    mt_bias_rule mlp_bias;            /* BY_KEY: mlp_bias */
    bool qk_norm;
    mt_window_rule window;
    int64_t default_window;           /* when the key is absent; 0: none */
    int64_t default_head_dim;         /* when the key is absent; 0: D / H */
    double default_eps, default_theta;
    bool default_tied;
    mt_rope_style rope;
    const mt_tensor_row *tensors;     /* ended by a row without a name */
};

extern const mt_family *const mt_families[]; /* NULL-ended */
extern const mt_family mt_family_llama, mt_family_mistral, mt_family_qwen2, mt_family_qwen3;

/* The usual names, which most families share. */
extern const mt_tensor_row mt_tensors_standard[];

const mt_family *mt_family_by_model_type(const char *model_type);
const mt_family *mt_family_by_architecture(const char *architecture);

#endif
