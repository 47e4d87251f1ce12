/* config_latent.c - latent attention: its ranks and widths, what it does to the scores' scale, and models that have more of it
 * than is computed here. */
#include "model/config_read.h"

#include <math.h>
#include <string.h>

typedef mt__config_reader reader;

enum { MAX_RANK = 1 << 20, MAX_WIDTH = 512 };

mt_rc mt__config_refuse_latent(mt__config_reader *r, const mt_family *f)
{
    const char *index = mt__config_spelling(r->doc, MT__NAMES("index_topk", "index_n_heads", "index_head_dim"));
    const char *type = r->c->model_type;
    if (index || strcmp(type, "deepseek_v32") == 0 || strcmp(type, "glm_moe_dsa") == 0)
        return mt_fail(
            r->err, MT_EUNSUPPORTED,
            "%s: \"%s\" chooses what each row attends to by a sparse indexer%s%s%s, which is not supported; deepseek_v3 "
            "models (V3, R1, V3.1) attend to all rows and are",
            r->path, type, index ? " (\"" : "", index ? index : "", index ? "\")" : "");
    if (mt_json_missing(mt_value_get(r->doc, "kv_lora_rank")) || (f && f->latent.kv_rank)) return MT_OK;
    return mt_fail(r->err, MT_EUNSUPPORTED,
                   "%s: \"%s\" uses latent attention (\"kv_lora_rank\") in a way that is not known; deepseek_v2, deepseek_v3, "
                   "kimi_k2 and glm4_moe_lite are supported",
                   r->path, type);
}

static mt_rc read_size(reader *r, const char *key, int64_t fallback, int64_t most, int64_t *out)
{
    return mt_json_i64_in(r->doc, key, fallback, 1, most, out, r->path, r->err);
}

/* null: queries are not expanded from anything. */
static mt_rc read_query_rank(reader *r, int64_t fallback, int64_t *out)
{
    const mt_value *v = mt_value_get(r->doc, "q_lora_rank");
    if (v && mt_json_missing(v)) return *out = 0, MT_OK;
    return read_size(r, "q_lora_rank", fallback, MAX_RANK, out);
}

/* Saved configs have the rotated width as head_dim: that key is not read. */
mt_rc mt__config_read_latent(mt__config_reader *r)
{
    mt_config *c = r->c;
    mt_latent_shape *l = &c->latent;
    const mt_latent_shape *own = &c->family->latent;
    MT_TRY(read_query_rank(r, own->q_rank, &l->q_rank));
    MT_TRY(read_size(r, "kv_lora_rank", own->kv_rank, MAX_RANK, &l->kv_rank));
    MT_TRY(read_size(r, "qk_nope_head_dim", own->dn, MAX_WIDTH, &l->dn));
    MT_TRY(read_size(r, "qk_rope_head_dim", own->dr, MAX_WIDTH, &l->dr));
    MT_TRY(read_size(r, "v_head_dim", own->dv, MAX_WIDTH, &l->dv));
    c->Dh = l->dn + l->dr;
    if (l->dr % 2)
        return mt_fail(r->err, MT_EUNSUPPORTED, "%s: \"qk_rope_head_dim\" is %lld, which is odd; rotary positions need pairs",
                       r->path, (long long)l->dr);
    if (c->Dh > MAX_WIDTH)
        return mt_fail(r->err, MT_ERANGE,
                       "%s: \"qk_nope_head_dim\" and \"qk_rope_head_dim\" are %lld together; at most %d expected", r->path,
                       (long long)c->Dh, MAX_WIDTH);
    if (c->K == c->H) return MT_OK;
    return mt_fail(
        r->err, MT_EUNSUPPORTED,
        "%s: \"num_key_value_heads\" is %lld and \"num_attention_heads\" %lld; heads of latent attention have keys and "
        "separate values, so both should be equal",
        r->path, (long long)c->K, (long long)c->H);
}

void mt__config_latent_scale(mt_config *c)
{
    const mt_rope_spec *rope = &c->rope;
    if (!c->latent.kv_rank || rope->type == MT_ROPE_DEFAULT || rope->mscale_all == 0 || rope->factor <= 1) return;
    const double m = 0.1 * rope->mscale_all * log(rope->factor) + 1.0;
    c->attention_scale *= m * m;
}
