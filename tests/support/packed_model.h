/* packed_model.h - a small llama whose projections are packed in one of the forms of ops/forms.h, written as the packages do that
 * make such files.  Codes and scales are random. */
#ifndef MT_TEST_PACKED_MODEL_H
#define MT_TEST_PACKED_MODEL_H

#include "forge.h"
#include "mxfp4_file.h"

#include "model/walk.h"
#include "ops/forms.h"

#define PACKED_CONFIG                                                                                                            \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 256, \"intermediate_size\": 128, "  \
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \"vocab_size\": 20, "   \
    "\"rms_norm_eps\": 1e-5, \"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false"

typedef enum packed_kind {
    PACKED_FP8,
    PACKED_MXFP4,
    PACKED_NF4,
    PACKED_NF4_NESTED,
    PACKED_GPTQ,
    PACKED_AWQ,
    PACKED_GGUF,
    PACKED_KINDS
} packed_kind;

/* Bytes of a tensor: random ones, or numbers of the usual sizes. */
static inline unsigned char *packed_bytes(const char *name, mt_dtype t, size_t n)
{
    const uint64_t stream = mt_hash(name, strlen(name), 11);
    unsigned char *b = mt_malloc(n * mt_dtype_bytes(t) + 1);
    assert_non_null(b);
    for (size_t i = 0; i < n; i++) {
        const bool scale = strstr(name, "scale") || strstr(name, "absmax");
        const float x = scale ? 0.004f + 0.0001f * (float)mt_rng_below(3, stream, i, 100) : 0.05f * mt_rng_normal(4, stream, i);
        switch (t) {
        case MT_DTYPE_F32:
        case MT_DTYPE_F16:
        case MT_DTYPE_BF16: mt_from_f32(b + i * mt_dtype_bytes(t), t, &x, 1); break;
        case MT_DTYPE_F8_E4M3:
            b[i] = (unsigned char)(mt_rng_below(5, stream, i, 96) + 128 * mt_rng_below(6, stream, i, 2));
            break;
        default:
            for (size_t k = 0; k < mt_dtype_bytes(t); k++)
                b[i * mt_dtype_bytes(t) + k] = (unsigned char)mt_rng_below(5, stream, i * 8 + k, 256);
        }
    }
    return b;
}

/* Declares a tensor in the first pass, appends it in the second. */
static inline void packed_put(mt_safetensors_writer *w, int pass, const char *name, const char *tail, mt_dtype t, int n_dims,
                              const int64_t *shape, const void *bytes)
{
    mt_err err = { 0 };
    char full[2 * MT_NAME_BYTES];
    size_t n = 1;
    snprintf(full, sizeof full, "%s%s", name, tail);
    for (int i = 0; i < n_dims; i++) n *= (size_t)shape[i];
    if (!pass) {
        assert_ok(mt_safetensors_writer_add(w, full, t, n_dims, shape, &err));
        return;
    }
    unsigned char *made = bytes ? NULL : packed_bytes(full, t, n);
    assert_ok(mt_safetensors_writer_append(w, full, bytes ? bytes : made, n * mt_dtype_bytes(t), &err));
    mt_free(made);
}

static inline void packed_put_nf4(mt_safetensors_writer *w, int pass, const char *name, int64_t rows, int64_t columns,
                                  bool nested)
{
    static const float codes[16] = { MT_NF4_CODES };
    const int64_t blocks = rows * columns / 64;
    char state[256];
    snprintf(state, sizeof state, "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", \"shape\": [%d, %d]%s}",
             (int)rows, (int)columns, nested ? ", \"nested_blocksize\": 256, \"nested_offset\": 0.0075" : "");
    packed_put(w, pass, name, "", MT_DTYPE_U8, 2, (const int64_t[]){ rows * columns / 2, 1 }, NULL);
    packed_put(w, pass, name, ".quant_map", MT_DTYPE_F32, 1, (const int64_t[]){ 16 }, codes);
    packed_put(w, pass, name, ".quant_state.bitsandbytes__nf4", MT_DTYPE_U8, 1, (const int64_t[]){ (int64_t)strlen(state) },
               state);
    packed_put(w, pass, name, ".absmax", nested ? MT_DTYPE_U8 : MT_DTYPE_F32, 1, &blocks, NULL);
    if (!nested) return;
    packed_put(w, pass, name, ".nested_absmax", MT_DTYPE_F32, 1, (const int64_t[]){ (blocks + 255) / 256 }, NULL);
    packed_put(w, pass, name, ".nested_quant_map", MT_DTYPE_F32, 1, (const int64_t[]){ 256 }, NULL);
}

static inline void packed_put_int4(mt_safetensors_writer *w, int pass, const char *name, int64_t rows, int64_t columns, bool awq)
{
    char stem[MT_NAME_BYTES];
    int32_t order[256];
    snprintf(stem, sizeof stem, "%.*s", (int)mt_min_i64(MT_NAME_BYTES - 1, (int64_t)(strlen(name) - strlen(".weight"))), name);
    packed_put(w, pass, stem, ".qweight", MT_DTYPE_I32, 2,
               awq ? (const int64_t[]){ columns, rows / 8 } : (const int64_t[]){ columns / 8, rows }, NULL);
    packed_put(w, pass, stem, ".qzeros", MT_DTYPE_I32, 2, (const int64_t[]){ columns / 32, rows / 8 }, NULL);
    packed_put(w, pass, stem, ".scales", MT_DTYPE_F16, 2, (const int64_t[]){ columns / 32, rows }, NULL);
    if (awq) return;
    const bool turned = strstr(name, "up_proj") || strstr(name, "gate_proj"); /* one input, one order */
    for (int64_t c = 0; c < columns; c++) order[c] = (int32_t)(turned ? c % (columns / 32) : c / 32);
    packed_put(w, pass, stem, ".g_idx", MT_DTYPE_I32, 1, &columns, order);
}

static inline bool packed_is(const mt_weight *w) { return w->n_dims == 2 && strstr(w->name, "_proj"); }

static inline void packed_put_weight(mt_safetensors_writer *w, int pass, packed_kind kind, const char *name,
                                     const mt_weight *weight)
{
    const mt_tensor_slice *s = &weight->slice;
    const int64_t rows = s->shape[0], columns = s->shape[1];
    if (!packed_is(weight)) {
        packed_put(w, pass, name, "", MT_DTYPE_BF16, s->n_dims, s->shape, NULL);
        return;
    }
    switch (kind) {
    case PACKED_FP8:
        packed_put(w, pass, name, "", MT_DTYPE_F8_E4M3, 2, s->shape, NULL);
        packed_put(w, pass, name, "_scale_inv", MT_DTYPE_F32, 2, (const int64_t[]){ (rows + 127) / 128, (columns + 127) / 128 },
                   NULL);
        break;
    case PACKED_NF4:
    case PACKED_NF4_NESTED: packed_put_nf4(w, pass, name, rows, columns, kind == PACKED_NF4_NESTED); break;
    default: packed_put_int4(w, pass, name, rows, columns, kind == PACKED_AWQ);
    }
}

/* -- GGUF ------------------------------------------------------------------------------------------ */

static inline void gguf_text(mt_str *b, const char *s)
{
    forge_le(b, strlen(s), 8);
    mt_str_puts(b, s);
}

/* Q4_K where rows are wide enough, Q8_0 elsewhere, F32 for what is not a projection. */
static inline uint32_t packed_gguf_type(const mt_weight *w)
{
    if (!packed_is(w)) return 0;
    return w->shape[1] % 256 ? 8 : 12;
}

static inline size_t packed_gguf_bytes(const mt_weight *w)
{
    const uint32_t type = packed_gguf_type(w);
    return type == 0 ? (size_t)w->n * 4 : (size_t)w->n / (type == 8 ? 32 : 256) * (type == 8 ? MT_Q8_0_BYTES : MT_Q4_K_BYTES);
}

static inline void packed_gguf_name(const mt_unit *u, const mt_weight *w, char out[MT_NAME_BYTES])
{
    static const char *const names[][2] = { { "embed_tokens", "token_embd" },
                                            { "lm_head", "output" },
                                            { "q_proj", "attn_q" },
                                            { "k_proj", "attn_k" },
                                            { "v_proj", "attn_v" },
                                            { "o_proj", "attn_output" },
                                            { "gate_proj", "ffn_gate" },
                                            { "up_proj", "ffn_up" },
                                            { "down_proj", "ffn_down" },
                                            { "input_layernorm", "attn_norm" },
                                            { "post_attention_layernorm", "ffn_norm" },
                                            { "model.norm", "output_norm" } };
    for (size_t i = 0; i < MT_COUNT(names); i++)
        if (strstr(w->name, names[i][0])) {
            if (u->layer >= 0)
                snprintf(out, MT_NAME_BYTES, "blk.%d.%s.weight", u->layer, names[i][1]);
            else
                snprintf(out, MT_NAME_BYTES, "%s.weight", names[i][1]);
            return;
        }
    fail_msg("no name for %s", w->name);
}

static inline void packed_gguf_data(mt_str *b, const char *name, const mt_weight *w)
{
    const uint32_t type = packed_gguf_type(w);
    const size_t n = packed_gguf_bytes(w), each = type == 8 ? MT_Q8_0_BYTES : MT_Q4_K_BYTES;
    unsigned char *bytes = type ? packed_bytes(name, MT_DTYPE_U8, n) : packed_bytes(name, MT_DTYPE_F32, n / 4);
    for (size_t at = 0; type && at < n; at += each)
        for (int k = 0; k < (type == 8 ? 1 : 2); k++) /* d, dmin */
            memcpy(bytes + at + 2 * k, &(uint16_t){ mt_f32_to_f16(type == 8 ? 0.0006f : 0.0002f) }, 2);
    mt_str_add(b, (const char *)bytes, n);
    forge_zeros(b, (32 - n % 32) % 32);
    mt_free(bytes);
}

static inline void packed_write_gguf(const char *dir, const mt_model *m)
{
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = { { "embedding_length", 256 },      { "block_count", 3 },
                 { "feed_forward_length", 128 },   { "attention.head_count", 4 },
                 { "attention.head_count_kv", 2 }, { "attention.key_length", 16 },
                 { "attention.value_length", 16 } };
    mt_err err = { 0 };
    mt_str b = { 0 }, data = { 0 };
    char name[MT_NAME_BYTES], path[1200];
    mt_str_puts(&b, "GGUF");
    forge_le(&b, 3, 4);
    forge_le(&b, mt_walk_count(mt_walk_model(m)), 8);
    forge_le(&b, MT_COUNT(keys) + 1, 8);
    gguf_text(&b, "general.architecture");
    forge_le(&b, 8, 4);
    gguf_text(&b, "llama");
    for (size_t i = 0; i < MT_COUNT(keys); i++) {
        char key[64];
        snprintf(key, sizeof key, "llama.%s", keys[i].key);
        gguf_text(&b, key);
        forge_le(&b, 4, 4);
        forge_le(&b, keys[i].value, 4);
    }
    for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);) {
        packed_gguf_name(at.u, at.w, name);
        gguf_text(&b, name);
        forge_le(&b, (uint64_t)at.w->n_dims, 4);
        if (at.w->n_dims > 1) forge_le(&b, (uint64_t)at.w->shape[1], 8);
        forge_le(&b, (uint64_t)at.w->shape[0], 8);
        forge_le(&b, packed_gguf_type(at.w), 4);
        forge_le(&b, data.n, 8);
        packed_gguf_data(&data, name, at.w);
    }
    forge_zeros(&b, (32 - b.n % 32) % 32);
    mt_str_add(&b, data.s, data.n);
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    assert_true(mt_str_ok(&b));
    assert_ok(mt_outfile_save(path, b.s, b.n, &err));
    mt_str_free(&data);
    mt_str_free(&b);
}

/* -- all of them ----------------------------------------------------------------------------------- */

static inline const char *packed_name(packed_kind kind)
{
    static const char *const names[PACKED_KINDS] = { "FP8", "MXFP4", "NF4", "NF4, nested", "GPTQ", "AWQ", "GGUF" };
    return names[kind];
}

static inline void packed_write_safetensors(const char *dir, packed_kind kind, const mt_model *m)
{
    mt_err err = { 0 };
    char path[1200], name[MT_NAME_BYTES];
    mt_safetensors_writer *w;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    for (int pass = 0; pass < 2; pass++) {
        for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);) {
            mt_weight_name(at.u, at.w, name);
            packed_put_weight(w, pass, kind, name, at.w);
        }
        if (!pass) assert_ok(mt_safetensors_writer_start(w, &err));
    }
    assert_ok(mt_safetensors_writer_finish(w, &err));
    mt_safetensors_writer_free(w);
}

/* config.json, tokens.json and the weights into a directory that exists.  MXFP4: a GPT-OSS, whose experts are packed. */
static inline void packed_write(const char *dir, packed_kind kind)
{
    static const char *const quantization[PACKED_KINDS] = {
        [PACKED_GPTQ] = ", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32}",
        [PACKED_AWQ] = ", \"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32}",
        [PACKED_NF4] = ", \"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true}",
    };
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    char text[1024];
    static const char *const files[] = { "model.safetensors", "model.gguf" }; /* of another kind */
    for (size_t i = 0; i < MT_COUNT(files); i++) {
        snprintf(text, sizeof text, "%s/%s", dir, files[i]);
        remove(text);
    }
    if (kind == PACKED_MXFP4) {
        mxfp4_write(dir, true);
        return;
    }
    snprintf(text, sizeof text, PACKED_CONFIG "%s}", quantization[kind] ? quantization[kind] : "");
    mxfp4_save(dir, "config.json", text);
    mxfp4_save(dir, "tokens.json", "{\"input_ids\": [[1, 2, 3, 4, 5, 6, 7], [8, 9, 10], [11, 12, 3, 4, 5]]}");
    assert_ok(mt_config_open(&c, dir, &err));
    assert_ok(mt_model_create(&m, c, NULL, &err));
    if (kind == PACKED_GGUF)
        packed_write_gguf(dir, m);
    else
        packed_write_safetensors(dir, kind, m);
    mt_model_free(m);
    mt_config_close(c);
}

#endif
