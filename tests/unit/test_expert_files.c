/* Mixtures of experts whose files do not fit their config: each case named, with both numbers.  Made by rewriting a good model
 * with one change. */
#include "golden.h"
#include "tempdir.h"

#include "base/file.h"
#include "ckpt/safetensors_write.h"
#include "ckpt/weights.h"

#include <stdio.h>

/* What is changed of a golden model. */
typedef struct change {
    const char *model;
    const char *drop;      /* this tensor is left out */
    const char *rows_of;   /* this one loses its first row, or expert */
    const char *retype;    /* this one is stored as integers */
    const char *add;       /* one number under this name */
    const char *from, *to; /* in config.json, of equal length */
} change;

static bool is(const char *a, const char *b) { return a && strcmp(a, b) == 0; }

static void write_config(const char *dir, const change *c)
{
    mt_err err = { 0 };
    char path[512], *text;
    size_t n;
    snprintf(path, sizeof path, "%s%s/config.json", GOLDEN_DIR, c->model);
    assert_ok(mt_file_read(&text, &n, path, 1 << 20, &err));
    char *at = c->from ? strstr(text, c->from) : NULL;
    assert_true(!c->from || (at && strlen(c->from) == strlen(c->to)));
    if (at) memcpy(at, c->to, strlen(c->to));
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fwrite(text, 1, n, f);
    fclose(f);
    mt_free(text);
}

static void write_weights(const char *dir, const change *c)
{
    mt_err err = { 0 };
    mt_shards *from;
    mt_safetensors_writer *w;
    char path[512];
    const float one = 1.0f;
    snprintf(path, sizeof path, "%s%s", GOLDEN_DIR, c->model);
    assert_ok(mt_shards_open(&from, path, &err));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < mt_shards_count(from); i++) {
            const mt_st_tensor *t = mt_shards_at(from, i);
            int64_t shape[3] = { t->shape[0] - is(c->rows_of, t->name), t->n_dims > 1 ? t->shape[1] : 1,
                                 t->n_dims > 2 ? t->shape[2] : 1 };
            if (is(c->drop, t->name)) continue;
            mt_dtype type = is(c->retype, t->name) ? MT_DTYPE_I32 : t->dtype;
            if (pass == 0) assert_ok(mt_safetensors_writer_add(w, t->name, type, t->n_dims, shape, &err));
            size_t bytes = (size_t)(shape[0] * shape[1] * shape[2]) * mt_dtype_bytes(t->dtype);
            if (pass == 1) assert_ok(mt_safetensors_writer_put(w, t->name, 0, t->data, bytes, &err));
        }
        if (c->add && pass == 0) assert_ok(mt_safetensors_writer_add(w, c->add, MT_DTYPE_F32, 1, (const int64_t[]){ 1 }, &err));
        if (c->add && pass == 1) assert_ok(mt_safetensors_writer_put(w, c->add, 0, &one, sizeof one, &err));
        if (pass == 0) assert_ok(mt_safetensors_writer_start(w, &err));
    }
    assert_ok(mt_safetensors_writer_finish(w, &err));
    mt_safetensors_writer_free(w);
    mt_shards_close(from);
}

static mt_rc check(const char *dir, const mt_model_options *o, mt_err *err)
{
    mt_config *c = NULL;
    mt_shards *s = NULL;
    mt_model *m = NULL;
    char notice[256];
    mt_rc rc = mt_config_open(&c, dir, err);
    if (!rc) rc = mt_shards_open(&s, dir, err);
    if (!rc) rc = mt_weights_model(&m, &c, s, o, notice, err);
    if (!rc) rc = mt_weights_check(m, s, NULL, err);
    mt_model_free(m);
    mt_shards_close(s);
    mt_config_close(c);
    return rc;
}

#define MOE   "model.layers.1.block_sparse_moe."
#define FUSED "model.layers.0.mlp.experts."

static void what_does_not_fit_is_named_with_both_numbers(void **state)
{
    static const struct {
        change c;
        mt_rc rc;
        const char *says[3];
    } cases[] = {
        { { .model = "mixtral" }, MT_OK, { 0 } },
        { { .model = "mixtral", .drop = MOE "experts.3.w2.weight" },
          MT_ENOENT,
          { "\"" MOE "experts.3.w2.weight\" is missing", "5 experts", "4 of this tensor in layer 1" } },
        { { .model = "mixtral", .from = "\"num_local_experts\": 5", .to = "\"num_local_experts\": 6" },
          MT_EFORMAT,
          { "model.layers.0.block_sparse_moe.gate.weight", "[5, 16], expected [6, 16]", "experts=6" } },
        { { .model = "mixtral", .from = "\"num_local_experts\": 5", .to = "\"num_local_experts\": 4" },
          MT_EFORMAT,
          { "experts.4.w2.weight\" is of expert 4", "there are 4 experts", "download both again" } },
        { { .model = "mixtral", .from = "\"num_experts_per_tok\": 2", .to = "\"num_experts_per_tok\": 9" },
          MT_ERANGE,
          { "\"num_experts_per_tok\" is 9", "only 5 experts", "num_local_experts" } },
        { { .model = "mixtral", .rows_of = MOE "gate.weight" },
          MT_EFORMAT,
          { MOE "gate.weight", "[4, 16]", "expected [5, 16]" } },
        { { .model = "mixtral", .retype = MOE "experts.0.w1.weight" },
          MT_EUNSUPPORTED,
          { MOE "experts.0.w1.weight", "stored as I32", "F32, BF16 or F16" } },
        { { .model = "gpt_oss" }, MT_OK, { 0 } },
        { { .model = "gpt_oss", .drop = "model.layers.1.self_attn.sinks" },
          MT_ENOENT,
          { "\"model.layers.1.self_attn.sinks\" is missing", "taken for gpt_oss", "download both again" } },
        { { .model = "gpt_oss", .drop = FUSED "down_proj" },
          MT_ENOENT,
          { "\"" FUSED "down_proj\" is missing", "taken for gpt_oss", "download both again" } },
        { { .model = "gpt_oss", .rows_of = FUSED "gate_up_proj_bias" },
          MT_EFORMAT,
          { FUSED "gate_up_proj_bias", "[4, 12], expected [5, 12]", "experts=5, their width=6" } },
        { { .model = "gpt_oss", .from = "\"intermediate_size\": 6", .to = "\"intermediate_size\": 7" },
          MT_EFORMAT,
          { FUSED "gate_up_proj", "[5, 16, 12], expected [5, 16, 14]", "their width=7" } },
        { { .model = "llama4", .rows_of = "model.layers.2.feed_forward.experts.gate_up_proj" },
          MT_EFORMAT,
          { "model.layers.2.feed_forward.experts.gate_up_proj", "[3, 16, 12], expected [4, 16, 12]", "experts=4" } },
        { { .model = "llama4_vl", .from = "\"interleave_moe_layer_step\": 2", .to = "\"interleave_moe_layer_step\": 1" },
          MT_ENOENT,
          { "language_model.model.layers.0.feed_forward.router.weight", "taken for llama4", "download both again" } },
        { { .model = "mixtral", .add = "model.layers.1.mlp.experts.down_proj" },
          MT_EFORMAT,
          { "mix two layouts", "model.layers.1.mlp.experts.down_proj", MOE "experts.0.w2.weight" } },
        { { .model = "mixtral_fused", .rows_of = FUSED "gate_up_proj" },
          MT_EFORMAT,
          { FUSED "gate_up_proj", "[2, 12, 16], expected [3, 12, 16]", "experts=3" } },
        { { .model = "mixtral_fused", .drop = FUSED "gate_up_proj" },
          MT_ENOENT,
          { "\"" FUSED "gate_up_proj\" is missing", "mixtral", "download both again" } },
        { { .model = "mixtral_fused", .add = "model.layers.0.block_sparse_moe.experts.0.w2.weight" },
          MT_EFORMAT,
          { "mix two layouts", "experts.0.w2.weight", "layer 0" } },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        write_config(*state, &cases[i].c);
        write_weights(*state, &cases[i].c);
        mt_rc rc = check(*state, NULL, &err);
        if (rc != cases[i].rc) fail_msg("case %zu: %d, %s", i, rc, err.msg);
        for (int k = 0; rc && k < 3; k++) assert_says(cases[i].says[k]);
    }
}

static void experts_of_a_layer_are_frozen_together(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const char *some = "*.experts.2.*", *all = "*.experts.*", *downs = "*.experts.*.w2.weight";
    assert_int_equal(check(GOLDEN_DIR "mixtral", &(mt_model_options){ .freeze = &some, .n_freeze = 1 }, &err), MT_EINVAL);
    assert_says("experts of a layer are trained together");
    assert_says("experts.2.w1.weight");
    assert_ok(check(GOLDEN_DIR "mixtral", &(mt_model_options){ .freeze = &all, .n_freeze = 1 }, &err));
    assert_ok(check(GOLDEN_DIR "mixtral", &(mt_model_options){ .freeze = &downs, .n_freeze = 1 }, &err));
}

/* -- what config.json says ------------------------------------------------------------------------- */

#define SHAPE "\"hidden_size\":8,\"intermediate_size\":6,\"num_hidden_layers\":4,\"num_attention_heads\":2,\"vocab_size\":11"

static mt_rc parse(mt_config **c, const char *keys, mt_err *err)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "{%s," SHAPE "}", keys);
    return mt_config_parse(c, text, (size_t)n, "config.json", err);
}

static void four_spellings_of_the_number_of_experts_are_known(void **state)
{
    (void)state;
    static const char *const names[] = { "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts" };
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        mt_err err = { 0 };
        mt_config *c;
        char keys[256];
        snprintf(keys, sizeof keys, "\"model_type\":\"qwen3_moe\",\"%s\":7,\"num_experts_per_tok\":2,\"moe_intermediate_size\":3",
                 names[i]);
        assert_ok(parse(&c, keys, &err));
        assert_true(c->layers[0].E == 7 && c->layers[0].T == 2 && c->layers[0].I == 3 && c->layers[0].Is == 0);
        mt_config_close(c);
    }
}

static void layers_with_experts_follow_the_familys_rule(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        const char *sparse; /* x: experts */
    } cases[] = {
        { "\"model_type\":\"qwen3_moe\",\"num_experts_per_tok\":2,\"moe_intermediate_size\":3", "xxxx" },
        { "\"model_type\":\"qwen3_moe\",\"num_experts_per_tok\":2,\"moe_intermediate_size\":3,\"decoder_sparse_step\":2",
          ".x.x" },
        { "\"model_type\":\"qwen2_moe\",\"num_experts_per_tok\":2,\"moe_intermediate_size\":3,\"mlp_only_layers\":[0,3]",
          ".xx." },
        { "\"model_type\":\"glm4_moe\",\"num_experts_per_tok\":2,\"moe_intermediate_size\":3", ".xxx" },
        { "\"model_type\":\"dots1\",\"num_experts_per_tok\":2,\"moe_intermediate_size\":3,\"first_k_dense_replace\":3", "...x" },
        { "\"model_type\":\"deepseek\",\"num_experts_per_tok\":2,\"moe_intermediate_size\":3,\"first_k_dense_replace\":1,"
          "\"moe_layer_freq\":2",
          "..x." },
        { "\"model_type\":\"ernie4_5_moe\",\"moe_k\":2,\"moe_intermediate_size\":3,\"moe_layer_interval\":2", ".x.x" },
        { "\"model_type\":\"ernie4_5_moe\",\"moe_k\":2,\"moe_intermediate_size\":3,\"moe_layer_start_index\":0,"
          "\"moe_layer_end_index\":2",
          "xxx." },
        { "\"model_type\":\"hunyuan_v1_moe\",\"moe_topk\":[2,2,2,2]", "xxxx" },
        { "\"model_type\":\"deepseek_v3\",\"num_experts_per_tok\":2,\"moe_intermediate_size\":3,\"n_group\":1,\"topk_group\":1",
          "...x" },
        { "\"model_type\":\"glm4_moe_lite\",\"num_experts_per_tok\":2,\"moe_intermediate_size\":3", ".xxx" },
        { "\"model_type\":\"glm4_moe_lite\",\"num_experts_per_tok\":2,\"moe_intermediate_size\":3,"
          "\"mlp_layer_types\":[\"sparse\",\"dense\",\"sparse\",\"dense\"]",
          "x.x." },
        { "\"model_type\":\"gpt_oss\",\"num_experts_per_tok\":2", "xxxx" },
        { "\"model_type\":\"llama4_text\",\"num_key_value_heads\":1,\"num_experts_per_tok\":1", "xxxx" },
        { "\"model_type\":\"llama4_text\",\"num_key_value_heads\":1,\"num_experts_per_tok\":1,\"interleave_moe_layer_step\":2",
          ".x.x" },
        { "\"model_type\":\"llama4_text\",\"num_key_value_heads\":1,\"num_experts_per_tok\":1,\"moe_layers\":[0,3]", "x..x" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_config *c;
        char keys[512];
        snprintf(keys, sizeof keys, "\"num_experts\":4,%s", cases[i].keys);
        assert_ok(parse(&c, keys, &err));
        for (int l = 0; l < 4; l++)
            if ((c->layers[l].E == 4) != (cases[i].sparse[l] == 'x')) fail_msg("%s: layer %d", cases[i].keys, l);
        mt_config_close(c);
    }
}

#define LLAMA4 "\"model_type\":\"llama4_text\",\"num_local_experts\":4,\"num_experts_per_tok\":1,\"num_key_value_heads\":2,"

static void what_cannot_be_computed_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *says;
    } cases[] = {
        { "\"model_type\":\"gpt_oss\",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"swiglu_limit\":0",
          "\"swiglu_limit\" is 0" },
        { "\"model_type\":\"gpt_oss\",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"swiglu_alpha\":1e9",
          "\"swiglu_alpha\" is 1e+09" },
        { "\"model_type\":\"gpt_oss\",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"hidden_act\":\"gelu\"",
          "\"hidden_act\" other than silu" },
        { "\"model_type\":\"gpt_oss\",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"sliding_window\":4,\"layer_types\":"
          "[\"full_attention\",\"linear_attention\",\"full_attention\",\"full_attention\"]",
          "layer 1 is of type \"linear_attention\"" },
        { LLAMA4 "\"attention_chunk_size\":0", "\"attention_chunk_size\" is 0; 1 to" },
        { LLAMA4 "\"floor_scale\":-1", "\"floor_scale\" is -1" },
        { LLAMA4 "\"intermediate_size_mlp\":0", "\"intermediate_size_mlp\" is 0" },
        { LLAMA4 "\"moe_layers\":[1,4]", "\"moe_layers\" should list layers below 4; entry 1" },
        { LLAMA4 "\"moe_layers\":2", "\"moe_layers\" should list the layers with experts" },
        { LLAMA4 "\"interleave_moe_layer_step\":0", "experts on every 0-th layer" },
        { LLAMA4 "\"layer_types\":[\"full_attention\"]", "\"layer_types\" should list all 4 layers" },
        { LLAMA4 "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\"]",
          "layer 1 is of type \"sliding_attention\"; only chunked_attention" },
        { "\"model_type\":\"llama\",\"num_experts\":4", "\"llama\" is a mixture of experts" },
        { "\"model_type\":\"wombat\",\"moe_num_experts\":4", "\"wombat\" is a mixture of experts (\"moe_num_experts\")" },
        { "\"model_type\":\"mixtral\"", "\"num_experts\" is missing" },
        { "\"model_type\":\"mixtral\",\"num_experts\":4", "\"num_experts_per_tok\" is missing" },
        { "\"model_type\":\"mixtral\",\"num_experts\":2000,\"num_experts_per_tok\":1", "is 2000; 1 to 1024" },
        { "\"model_type\":\"olmoe\",\"num_experts\":4,\"num_experts_per_tok\":2,\"clip_qkv\":8.0", "clip_qkv" },
        { "\"model_type\":\"hunyuan_v1_moe\",\"num_experts\":4,\"moe_topk\":[1,2,2,2]", "differs from layer to layer" },
        { "\"model_type\":\"phimoe\",\"num_experts\":4,\"num_experts_per_tok\":3", "this router chooses 2" },
        { "\"model_type\":\"glm4_moe\",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":3,\"n_group\":3",
          "4 experts in 3 groups" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_config *c = NULL;
        if (!parse(&c, cases[i].keys, &err)) fail_msg("%s is accepted", cases[i].keys);
        assert_says(cases[i].says);
    }
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(IN_TEMPDIR(what_does_not_fit_is_named_with_both_numbers), cmocka_unit_test(experts_of_a_layer_are_frozen_together),
             cmocka_unit_test(four_spellings_of_the_number_of_experts_are_known),
             cmocka_unit_test(layers_with_experts_follow_the_familys_rule), cmocka_unit_test(what_cannot_be_computed_is_refused))
