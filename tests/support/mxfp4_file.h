/* mxfp4_file.h - a small GPT-OSS checkpoint, written twice: its experts in MXFP4, as they are published, or in bf16, as they are
 * trained.  Both hold the same numbers. */
#ifndef MT_TEST_MXFP4_FILE_H
#define MT_TEST_MXFP4_FILE_H

#include "test.h"

#include "base/hash.h"
#include "base/outfile.h"
#include "base/rng.h"
#include "ckpt/safetensors_write.h"
#include "model/model.h"

#include <math.h>
#include <string.h>

/* Widths are multiples of 32.  No matrix is square, so a transposed one fails its shape check. */
#define MXFP4_CONFIG                                                                                                             \
    "{\"architectures\": [\"GptOssForCausalLM\"], \"model_type\": \"gpt_oss\", \"hidden_size\": 64, \"intermediate_size\": 96, " \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 8, \"vocab_size\": 20, "    \
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false"

static inline void mxfp4_save(const char *dir, const char *name, const char *text)
{
    mt_err err = { 0 };
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(mt_outfile_save(path, text, strlen(text), &err));
}

typedef struct mxfp4_matrix {
    uint64_t stream;
    int64_t E, C, R; /* experts, inputs, outputs */
} mxfp4_matrix;

static inline unsigned mxfp4_code(const mxfp4_matrix *m, int64_t e, int64_t r, int64_t c)
{
    return (unsigned)mt_rng_below(5, m->stream, (uint64_t)((e * m->R + r) * m->C + c), 16);
}

static inline unsigned mxfp4_scale(const mxfp4_matrix *m, int64_t e, int64_t r, int64_t block)
{
    return 110 + (unsigned)mt_rng_below(6, m->stream, (uint64_t)((e * m->R + r) * (m->C / 32) + block), 25);
}

/* A sign, two bits of exponent, one of mantissa: by their meaning, not by a table. */
static inline double mxfp4_number(unsigned code, unsigned scale)
{
    unsigned exponent = code >> 1 & 3, mantissa = code & 1;
    double x = exponent ? ldexp(1 + 0.5 * mantissa, (int)exponent - 1) : 0.5 * mantissa;
    return (code & 8 ? -1 : 1) * ldexp(x, (int)scale - 127);
}

static inline void mxfp4_put_packed(mt_safetensors_writer *w, const char *name, const mxfp4_matrix *m)
{
    mt_err err = { 0 };
    char blocks[MT_NAME_BYTES + 8], scales[MT_NAME_BYTES + 8];
    snprintf(blocks, sizeof blocks, "%s_blocks", name);
    snprintf(scales, sizeof scales, "%s_scales", name);
    for (int64_t e = 0; e < m->E; e++)
        for (int64_t r = 0; r < m->R; r++)
            for (int64_t b = 0; b < m->C / 32; b++) {
                uint8_t byte[16], scale = (uint8_t)mxfp4_scale(m, e, r, b);
                for (int64_t i = 0; i < 16; i++)
                    byte[i] = (uint8_t)(mxfp4_code(m, e, r, b * 32 + 2 * i) | mxfp4_code(m, e, r, b * 32 + 2 * i + 1) << 4);
                assert_ok(mt_safetensors_writer_append(w, blocks, byte, sizeof byte, &err));
                assert_ok(mt_safetensors_writer_append(w, scales, &scale, 1, &err));
            }
}

static inline void mxfp4_put_plain(mt_safetensors_writer *w, const char *name, const mxfp4_matrix *m)
{
    mt_err err = { 0 };
    for (int64_t e = 0; e < m->E; e++)
        for (int64_t c = 0; c < m->C; c++)
            for (int64_t r = 0; r < m->R; r++) {
                float f = (float)mxfp4_number(mxfp4_code(m, e, r, c), mxfp4_scale(m, e, r, c / 32));
                uint16_t b = mt_f32_to_bf16(f);
                assert_true(mt_bf16_to_f32(b) == f);
                assert_ok(mt_safetensors_writer_append(w, name, &b, sizeof b, &err));
            }
}

static inline bool mxfp4_is_matrix(const mt_weight *w) { return w->role == MT_W_E_GATE || w->role == MT_W_E_DOWN; }

static inline void mxfp4_declare(mt_safetensors_writer *w, const char *name, const mt_weight *weight, bool packed)
{
    mt_err err = { 0 };
    const mt_tensor_slice *s = &weight->slice;
    const int64_t blocks[4] = { s->shape[0], s->shape[2], s->shape[1] / 32, 16 };
    char other[MT_NAME_BYTES + 8];
    if (!packed || !mxfp4_is_matrix(weight)) {
        assert_ok(mt_safetensors_writer_add(w, name, MT_DTYPE_BF16, s->n_dims, s->shape, &err));
        return;
    }
    snprintf(other, sizeof other, "%s_blocks", name);
    assert_ok(mt_safetensors_writer_add(w, other, MT_DTYPE_U8, 4, blocks, &err));
    snprintf(other, sizeof other, "%s_scales", name);
    assert_ok(mt_safetensors_writer_add(w, other, MT_DTYPE_U8, 3, blocks, &err));
}

static inline void mxfp4_put(mt_safetensors_writer *w, const char *name, const mt_weight *weight, bool packed)
{
    mt_err err = { 0 };
    const mt_tensor_slice *s = &weight->slice;
    const mxfp4_matrix m = { mt_hash(name, strlen(name), 3), s->shape[0], s->shape[1], s->shape[2] };
    if (mxfp4_is_matrix(weight)) {
        (packed ? mxfp4_put_packed : mxfp4_put_plain)(w, name, &m);
        return;
    }
    for (int64_t i = 0; i < mt_slice_elems(s); i++) {
        uint16_t b = mt_f32_to_bf16(0.25f * mt_rng_normal(7, m.stream, (uint64_t)i));
        assert_ok(mt_safetensors_writer_append(w, name, &b, sizeof b, &err));
    }
}

/* config.json, tokens.json and model.safetensors into a directory that exists. */
static inline void mxfp4_write(const char *dir, bool packed)
{
    mt_err err = { 0 };
    char path[1200], name[MT_NAME_BYTES];
    mt_config *c;
    mt_model *m;
    mt_safetensors_writer *w;
    mxfp4_save(dir, "config.json",
               packed ? MXFP4_CONFIG ", \"quantization_config\": {\"quant_method\": \"mxfp4\"}}" : MXFP4_CONFIG "}");
    mxfp4_save(dir, "tokens.json", "{\"input_ids\": [[1, 2, 3, 4, 5, 6, 7], [8, 9, 10]]}");
    assert_ok(mt_config_open(&c, dir, &err));
    assert_ok(mt_model_create(&m, c, NULL, &err));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    for (int pass = 0; pass < 2; pass++) {
        for (int u = 0; u < m->n_units; u++)
            for (int k = 0; k < m->units[u].layout->n_weights; k++) {
                const mt_weight *weight = &m->units[u].layout->weights[k];
                if (!mt_weight_leads(&m->units[u], weight)) continue;
                mt_weight_name(&m->units[u], weight, name);
                (pass ? mxfp4_put : mxfp4_declare)(w, name, weight, packed);
            }
        if (!pass) assert_ok(mt_safetensors_writer_start(w, &err));
    }
    assert_ok(mt_safetensors_writer_finish(w, &err));
    mt_safetensors_writer_free(w);
    mt_model_free(m);
    mt_config_close(c);
}

#endif
