/* config.h - what config.json says, resolved: every number the block needs, no key left to look up.
 *
 * Missing keys take the family's defaults, aliases and both spellings of the rope settings are accepted, and
 * whatever had to be assumed is written down (assumptions), so that inspect can show it. */
#ifndef MT_MODEL_CONFIG_H
#define MT_MODEL_CONFIG_H

#include "base/dtype.h"
#include "base/err.h"
#include "ops/ops.h"

typedef struct mt_family mt_family;

typedef enum mt_rope_type { MT_ROPE_DEFAULT, MT_ROPE_LINEAR, MT_ROPE_DYNAMIC, MT_ROPE_LLAMA3, MT_ROPE_YARN } mt_rope_type;

typedef struct mt_rope_spec {
    mt_rope_type type;
    mt_rope_style style;
    int64_t dr;              /* rotated dimensions of a head */
    double theta;
    double factor;           /* 1: none */
    double original_positions; /* L0 of llama3 and yarn */
    double low_freq, high_freq;      /* llama3 */
    double beta_fast, beta_slow;     /* yarn */
    bool truncate;                   /* yarn: whole dimensions only */
    double attention_factor;         /* on cos and sin; already resolved, 1 unless yarn */
} mt_rope_spec;

typedef struct mt_config {
    const mt_family *family;
    char model_type[64], architecture[96];
    int64_t D, F, L, H, K, Dh, V; /* see ops.h; V as config.json has it */
    int64_t max_positions;
    double eps;
    double attention_scale;
    double init_range; /* deviation of freshly made weights */
    mt_act act;
    bool tied;
    bool qkv_bias, o_bias, mlp_bias, qk_norm;
    int32_t pad_id; /* -1: none */
    mt_dtype dtype; /* what the checkpoint says it is stored in */
    mt_rope_spec rope;
    int64_t *window; /* [L] rows a row may see, itself included; 0: all */
    char **assumptions;
    size_t n_assumptions;
} mt_config;

/* From a model directory's config.json (or a path to the file). */
mt_rc mt_config_open(mt_config **out, const char *dir_or_file, mt_err *err);
/* From its text; `what` names it in messages. */
mt_rc mt_config_parse(mt_config **out, const char *text, size_t n, const char *what, mt_err *err);
void mt_config_close(mt_config *c);

/* cos and sin, [n_positions, dr/2] each, scaled. */
void mt_rope_tables(const mt_rope_spec *rope, int64_t n_positions, float *cos_out, float *sin_out);

#endif
