/* config.json in: families, defaults, both rope spellings, and every way it can be wrong. */
#include "extremes.h"
#include "tempdir.h"

#include "model/model.h"
#include "model/part.h"

#include <math.h>
#include <stdlib.h>

static mt_rc open_text(mt_config **out, const char *text, mt_err *err)
{
    void *dir;
    char path[512];
    assert_int_equal(tempdir_make(&dir), 0);
    snprintf(path, sizeof path, "%s/config.json", (const char *)dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    mt_rc rc = mt_config_open(out, dir, err);
    tempdir_remove(&dir);
    return rc;
}

#define SHAPE                                                                                                                    \
    "\"hidden_size\": 64, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"intermediate_size\": 96, \"vocab_size\": 100"
#define MOE     "\"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, "
#define FACTORS "\"short_factor\": [1, 1, 1, 1, 1, 1, 1, 1], \"long_factor\": [1, 1, 1, 1, 1, 1, 1, 1]"

static void class_defaults_fill_what_is_missing(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(open_text(&c, "{\"model_type\": \"mistral\", " SHAPE "}", &err));
    assert_string_equal(c->family->name, "mistral");
    assert_int_equal(c->layers[2].window, 4096); /* the class default when the key is absent */
    assert_int_equal(c->K, 4);
    assert_int_equal(c->Dh, 16);
    assert_true(c->eps == 1e-6 && c->rope.theta == 10000 && !c->tied);
    mt_config_close(c);
    assert_ok(open_text(&c, "{\"model_type\": \"mistral\", \"sliding_window\": null, " SHAPE "}", &err));
    assert_int_equal(c->layers[2].window, 0);
    mt_config_close(c);
    assert_ok(open_text(&c, "{\"model_type\": \"starcoder2\", " SHAPE "}", &err));
    assert_int_equal(c->K, 2);
    mt_config_close(c);
    assert_ok(open_text(&c, "{\"model_type\": \"starcoder2\", \"num_key_value_heads\": null, " SHAPE "}", &err));
    assert_int_equal(c->K, 4); /* null is not absent */
    mt_config_close(c);
    assert_ok(open_text(&c, "{\"model_type\": \"ernie4_5\", \"head_dim\": null, " SHAPE "}", &err));
    assert_int_equal(c->Dh, 16);
    assert_int_equal(c->pad_id, 0);
    mt_config_close(c);
    assert_ok(open_text(&c, "{\"model_type\": \"ernie4_5\", \"pad_token_id\": null, " SHAPE "}", &err));
    assert_int_equal(c->Dh, 128);
    assert_int_equal(c->pad_id, -1);
    mt_config_close(c);
    assert_ok(open_text(&c, "{\"model_type\": \"qwen3\", " SHAPE "}", &err));
    assert_int_equal(c->Dh, 128);
    assert_true(c->qk_norm && !c->qkv_bias);
    mt_config_close(c);
    assert_ok(open_text(
        &c,
        "{\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"sliding_window\": 7, \"max_window_layers\": 1, " SHAPE "}",
        &err));
    assert_true(c->qkv_bias && !c->o_bias);
    assert_int_equal(c->layers[0].window, 0);
    assert_int_equal(c->layers[1].window, 7);
    mt_config_close(c);
    assert_ok(open_text(&c, "{\"model_type\": \"cwm\", " SHAPE "}", &err));
    assert_true(c->rope.type == MT_ROPE_LLAMA3 && c->rope.factor == 16 && c->rope.original_positions == 8192);
    mt_config_close(c);
}

static void a_shared_expert_is_there_without_its_key(void **state)
{
    (void)state;
    static const struct {
        const char *type, *experts;
        int64_t width;
    } cases[] = { { "glm4_moe", "\"n_routed_experts\"", 6 },
                  { "ernie4_5_moe", "\"moe_num_experts\"", 12 },
                  { "qwen2_moe", "\"num_experts\"", 5632 },
                  { "qwen3_next", "\"num_experts\"", 512 } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_config *c;
        char text[512];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", %s: 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, "
                 "\"num_key_value_heads\": 2, " SHAPE "}",
                 cases[i].type, cases[i].experts);
        assert_ok(open_text(&c, text, &err));
        assert_int_equal(c->layers[2].Is, cases[i].width);
        mt_config_close(c);
    }
}

/* Each class of transformers reads one key, and ignores the others'. */
static void an_activation_is_read_where_its_class_reads_it(void **state)
{
    (void)state;
    static const struct {
        const char *type, *says;
        mt_act act;
    } cases[] = {
        { "gemma", "\"hidden_act\": \"gelu\"", MT_ACT_GELU_TANH }, /* always meant the tanh form */
        { "gemma", "\"hidden_act\": \"relu\"", MT_ACT_RELU },
        { "gemma2", "\"hidden_act\": \"relu\"", MT_ACT_GELU_TANH },
        { "gemma2", "\"hidden_activation\": \"gelu\"", MT_ACT_GELU_ERF },
        { "gpt2", "\"hidden_act\": \"relu\"", MT_ACT_GELU_TANH },
        { "gpt2", "\"activation_function\": \"relu\"", MT_ACT_RELU },
        { "falcon", "\"hidden_act\": \"relu\"", MT_ACT_GELU_ERF },
        { "falcon", "\"activation\": \"relu\"", MT_ACT_RELU },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_config *c;
        char text[512];
        snprintf(text, sizeof text, "{\"model_type\": \"%s\", %s, \"max_position_embeddings\": 32, " SHAPE "}", cases[i].type,
                 cases[i].says);
        assert_ok(open_text(&c, text, &err));
        assert_int_equal(c->act, cases[i].act);
        mt_config_close(c);
    }
}

/* A key has several spellings, and each class of transformers reads one.  Others are ignored, beside it or alone. */
static void a_foreign_spelling_never_counts(void **state)
{
    (void)state;
#define EXPERTS "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"num_key_value_heads\": 2, "
    static const struct {
        const char *type, *needs, *foreign, *own;
        double eps; /* without the key */
    } cases[] = {
        { "llama", "", "\"layer_norm_eps\": 0.25, \"norm_eps\": 0.5", "rms_norm_eps", 1e-6 },
        { "stablelm", "", "\"norm_eps\": 0.25, \"rope_pct\": 0.5", "layer_norm_eps", 1e-5 },
        { "gpt_neox", "", "\"rms_norm_eps\": 0.25, \"rope_theta\": 55, \"partial_rotary_factor\": 0.5", "layer_norm_eps", 1e-5 },
        { "cohere2", "", "\"rms_norm_eps\": 0.25", "layer_norm_eps", 1e-5 },
        { "cohere", "", "\"layernorm_epsilon\": 0.25", "layer_norm_eps", 1e-5 },
        { "phi", "", "\"rms_norm_eps\": 0.25", "layer_norm_eps", 1e-5 },
        { "jais2", "", "\"rms_norm_eps\": 0.25", "layer_norm_eps", 1e-5 },
        { "falcon", "", "\"layer_norm_eps\": 0.25, \"hidden_act\": \"relu\"", "layer_norm_epsilon", 1e-5 },
        { "gpt2", "", "\"layer_norm_eps\": 0.25, \"rms_norm_eps\": 0.5", "layer_norm_epsilon", 1e-5 },
        { "bloom", "", "\"layer_norm_eps\": 0.25, \"hidden_act\": \"relu\"", "layer_norm_epsilon", 1e-5 },
        { "mpt", "", "\"layer_norm_eps\": 0.25, \"hidden_act\": \"relu\"", "layer_norm_epsilon", 1e-5 },
        { "gptj", "\"rotary_dim\": 8, ", "\"rms_norm_eps\": 0.25", "layer_norm_epsilon", 1e-5 },
        { "gpt_neo", "", "\"rms_norm_eps\": 0.25", "layer_norm_epsilon", 1e-5 },
        { "gpt_bigcode", "", "\"rms_norm_eps\": 0.25", "layer_norm_epsilon", 1e-5 },
        { "nemotron", "", "\"rms_norm_eps\": 0.25", "norm_eps", 1e-5 },
        { "starcoder2", "", "\"rms_norm_eps\": 0.25, \"activation\": \"relu\"", "norm_epsilon", 1e-5 },
        { "chatglm", "", "\"rms_norm_eps\": 0.25", "layernorm_epsilon", 1e-5 },
        { "minimax_m2", EXPERTS, "\"rotary_pct\": 0.5, \"norm_eps\": 0.25", "rms_norm_eps", 1e-6 },
        { "qwen3", "", "\"rotary_emb_base\": 55, \"rope_pct\": 0.5", "rms_norm_eps", 1e-6 },
        { "opt", "", "\"layer_norm_eps\": 0.25, \"initializer_range\": 0.5", NULL, 1e-5 }, /* reads none */
    };
#undef EXPERTS
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        for (int given = 0; given < 2; given++) {
            const char *own = given ? cases[i].own : NULL;
            mt_err err = { 0 };
            mt_config *c[2]; /* first without the foreign keys, then with them */
            for (int foreign = 0; foreign < 2; foreign++) {
                char text[1024];
                snprintf(text, sizeof text, "{\"model_type\": \"%s\", %s%s%s \"%s\": 0.125, " SHAPE "}", cases[i].type,
                         cases[i].needs, foreign ? cases[i].foreign : "", foreign ? "," : "", own ? own : "x");
                assert_ok(open_text(&c[foreign], text, &err));
            }
            if (c[1]->eps != (own ? 0.125 : cases[i].eps)) fail_msg("%s: eps is %g", cases[i].type, c[1]->eps);
            assert_true(c[1]->rope.theta == c[0]->rope.theta && c[1]->rope.dr == c[0]->rope.dr && c[1]->act == c[0]->act);
            assert_true(c[1]->init_range == c[0]->init_range);
            mt_config_close(c[0]);
            mt_config_close(c[1]);
        }
    }
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(open_text(&c,
                        "{\"model_type\": \"hunyuan_v1_moe\", \"num_experts\": 4, \"moe_k\": 1, \"experts_per_token\": 1, "
                        "\"moe_topk\": 3, " SHAPE "}",
                        &err));
    assert_int_equal(c->layers[0].T, 3); /* which no tensor's shape shows */
    mt_config_close(c);
    assert_ok(open_text(&c, "{\"model_type\": \"wombat\", \"norm_epsilon\": 0.25, \"rotary_emb_base\": 55, " SHAPE "}", &err));
    assert_true(c->eps == 0.25 && c->rope.theta == 55); /* an unknown type may read any of them */
    mt_config_close(c);
}

/* mistral, mixtral, phi3 and others have the window on every layer, or none, whatever layer_types says. */
static void layer_types_count_where_their_class_reads_them(void **state)
{
    (void)state;
#define EXPERTS "\"num_local_experts\": 4, \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, "
    static const struct {
        const char *type, *keys;
        bool read;
    } cases[] = {
        { "mistral", "\"num_key_value_heads\": 2, ", false },
        { "mixtral", EXPERTS "\"num_key_value_heads\": 2, ", false },
        { "phi3", "", false },
        { "phimoe", EXPERTS "\"num_key_value_heads\": 2, ", false },
        { "qwen3_moe", EXPERTS "\"use_sliding_window\": true, ", false },
        { "starcoder2", "", false },
        { "ministral3",
          "\"num_key_value_heads\": 2, \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2, "
          "\"llama_4_scaling_beta\": 0.1, \"original_max_position_embeddings\": 64}, ",
          false },
        { "ministral", "\"num_key_value_heads\": 2, ", true },
        { "cwm", "\"num_key_value_heads\": 2, ", true },
        { "qwen2", "\"use_sliding_window\": true, ", true },
        { "gemma2", "", true },
        { "a_new_one", "", true },
    };
#undef EXPERTS
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_config *c;
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", %s \"sliding_window\": 7, \"layer_types\": "
                 "[\"full_attention\", \"sliding_attention\", \"full_attention\"], " SHAPE "}",
                 cases[i].type, cases[i].keys);
        assert_ok(open_text(&c, text, &err));
        for (int64_t l = 0; l < c->L; l++)
            if (c->layers[l].window != (cases[i].read && l != 1 ? 0 : 7)) fail_msg("%s: layer %d", cases[i].type, (int)l);
        const bool told = c->n_assumptions && strstr(c->assumptions[c->n_assumptions - 1], "\"layer_types\"");
        assert_int_equal(told, !cases[i].read);
        mt_config_close(c);
    }
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(open_text(&c,
                        "{\"model_type\": \"mistral\", \"sliding_window\": 7, \"num_key_value_heads\": 2, \"layer_types\": "
                        "[\"sliding_attention\", \"sliding_attention\", \"sliding_attention\"], " SHAPE "}",
                        &err));
    assert_int_equal(c->n_assumptions, 0); /* both say the same */
    mt_config_close(c);
}

static void both_spellings_of_the_rope_settings_mean_the_same(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *a, *b;
    assert_ok(open_text(
        &a,
        "{\"model_type\": \"llama\", \"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
        "\"low_freq_factor\": 1.0, "
        "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}, \"max_position_embeddings\": 131072, " SHAPE "}",
        &err));
    assert_ok(open_text(
        &b,
        "{\"model_type\": \"llama\", \"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"llama3\", \"factor\": 8.0, "
        "\"low_freq_factor\": 1.0, "
        "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}, \"max_position_embeddings\": 131072, " SHAPE "}",
        &err));
    assert_true(a->rope.type == MT_ROPE_LLAMA3 && a->rope.factor == 8 && a->rope.original_positions == 8192);
    assert_memory_equal(&a->rope, &b->rope, sizeof a->rope);
    mt_config_close(a);
    mt_config_close(b);
}

/* Its largest, so that a run can say what transformers would have done. */
static void part_of_a_head_rotates_where_transformers_rotates_part_of_it(void **state)
{
    (void)state;
    static const char *const types[] = { "phi3", "phi", "stablelm", "nemotron", "glm4", "a_new_one" };
    for (size_t i = 0; i < MT_COUNT(types); i++) {
        mt_err err = { 0 };
        mt_config *c;
        char text[512];
        snprintf(text, sizeof text, "{\"model_type\": \"%s\", \"partial_rotary_factor\": 0.75, \"head_dim\": 16, " SHAPE "}",
                 types[i]);
        assert_ok(open_text(&c, text, &err));
        assert_int_equal(c->rope.dr, 12);
        mt_config_close(c);
    }
}

/* EXAONE 4: what counts is that windows are configured, not that a layer has one. */
static void full_layers_have_no_positions_beside_windows(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        mt_layer_rope rope;
    } cases[] = { { "\"sliding_window\": 5, \"sliding_window_pattern\": 1, ", MT_LAYER_NOPE },
                  { "\"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\"], ", MT_LAYER_NOPE },
                  { "\"sliding_window\": null, ", MT_LAYER_ROPE } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_config *c;
        char text[512];
        snprintf(text, sizeof text, "{\"model_type\": \"exaone4\", %s" SHAPE "}", cases[i].keys);
        assert_ok(open_text(&c, text, &err));
        for (int64_t l = 0; l < c->L; l++) assert_true(c->layers[l].rope == cases[i].rope && !c->layers[l].window);
        mt_config_close(c);
    }
}

static void dropout_is_noticed(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(open_text(&c,
                        "{\"model_type\": \"starcoder2\", \"attention_dropout\": 0.1, \"residual_dropout\": 0.2, "
                        "\"embedding_dropout\": 0.1, " SHAPE "}",
                        &err));
    assert_string_equal(c->dropout_key, "residual_dropout");
    assert_true(c->dropout == 0.2);
    mt_config_close(c);
    assert_ok(
        open_text(&c, "{\"model_type\": \"llama\", \"attention_dropout\": 0.0, \"hidden_dropout\": null, " SHAPE "}", &err));
    assert_null(c->dropout_key);
    mt_config_close(c);
}

static void an_unknown_type_with_a_familiar_shape_is_taken_with_its_assumptions(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(open_text(&c, "{\"model_type\": \"wombat\", \"architectures\": [\"WombatForCausalLM\"], " SHAPE "}", &err));
    assert_string_equal(c->family->name, "llama");
    assert_int_equal(c->n_assumptions, 1);
    assert_non_null(strstr(c->assumptions[0], "wombat"));
    mt_config_close(c);
    assert_ok(open_text(&c, "{\"model_type\": \"custom\", \"architectures\": [\"Qwen3ForCausalLM\"], " SHAPE "}", &err));
    assert_string_equal(c->family->name, "qwen3");
    mt_config_close(c);
}

/* A known type says how to compute the layers; a class of its kin may have more, or less. */
static void another_class_of_a_known_type_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        const char *says; /* NULL: nothing */
    } cases[] = {
        { "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"]", NULL },
        { "\"model_type\": \"llama\"", NULL },
        { "\"model_type\": \"llama\", \"quantization_config\": {\"quant_method\": \"hqq\"}", NULL },
        { "\"model_type\": \"qwen2\", \"architectures\": [\"Qwen2ForProcessRewardModel\"]",
          "the class Qwen2ForProcessRewardModel, not Qwen2ForCausalLM" },
        { "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLMEagle3\"]", "the class LlamaForCausalLMEagle3" },
        { "\"model_type\": \"llava\", \"architectures\": [\"LlavaForConditionalGeneration\"], \"text_config\": "
          "{\"model_type\": \"llama\", " SHAPE "}",
          NULL },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_config *c;
        char text[1024];
        snprintf(text, sizeof text, "{%s, " SHAPE "}", cases[i].keys);
        assert_ok(open_text(&c, text, &err));
        assert_int_equal(c->n_assumptions, cases[i].says ? 1 : 0);
        if (cases[i].says) assert_non_null(strstr(c->assumptions[0], cases[i].says));
        mt_config_close(c);
    }
}

/* Whose text model multiplies logits; transformers' class around it does not. */
static void cohere_inside_a_vision_model_has_a_notice(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(open_text(&c, "{\"model_type\": \"aya_vision\", \"text_config\": {\"model_type\": \"cohere2\", " SHAPE "}}", &err));
    assert_non_null(strstr(c->notice, "logit_scale"));
    assert_true(c->logit_scale == 0.0625);
    mt_config_close(c);
    assert_ok(open_text(&c, "{\"model_type\": \"cohere2\", " SHAPE "}", &err));
    assert_null(c->notice);
    mt_config_close(c);
}

static void what_is_not_a_text_decoder_is_never_taken_for_llama(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    static const struct {
        const char *keys, *says;
    } cases[] = {
        { "\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"]", "not a text decoder" },
        { "\"model_type\": \"bert\", \"type_vocab_size\": 2", "not a text decoder" },
        { "\"model_type\": \"t5\", \"is_encoder_decoder\": true", "encoder-decoder" },
        { "\"model_type\": \"umt5\", \"feed_forward_proj\": \"gated-gelu\"", "not a text decoder" },
        { "\"model_type\": \"wombat_vl\", \"vision_config\": {\"depth\": 3}", "multimodal" },
        { "\"model_type\": \"wombat\", \"architectures\": [\"WombatForConditionalGeneration\"]", "multimodal" },
        { "\"model_type\": \"wombat_llama\", \"architectures\": [\"WombatForCausalLM\"], \"mm_vision_tower\": \"x\"",
          "multimodal" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        char text[1024];
        snprintf(text, sizeof text, "{%s, " SHAPE "}", cases[i].keys);
        assert_int_equal(open_text(&c, text, &err), MT_EUNSUPPORTED);
        assert_says(cases[i].says);
    }
}

static void a_guess_is_refused_until_the_user_says_so(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(open_text(&c, "{\"model_type\": \"wombat\", \"architectures\": [\"WombatForCausalLM\"], " SHAPE "}", &err));
    assert_int_equal(mt_config_check_known(c, &err), MT_EUNSUPPORTED);
    assert_says("model.family: llama (--assume llama)");
    assert_ok(mt_config_assume(&c, "", &err));
    assert_int_equal(mt_config_check_known(c, &err), MT_EUNSUPPORTED);
    assert_int_equal(mt_config_assume(&c, "wombat", &err), MT_EINVAL);
    assert_ok(mt_config_assume(&c, "qwen3", &err));
    assert_ok(mt_config_check_known(c, &err));
    assert_string_equal(c->family->name, "qwen3");
    assert_string_equal(c->decided_by, "model.family");
    assert_int_equal(mt_config_assume(&c, "llama", &err), MT_EINVAL); /* that is settled */
    mt_config_close(c);
}

static void names_are_fit_to_be_shown(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(
        open_text(&c, "{\"model_type\": \"wom\\u001b[2Jbat\", \"architectures\": [\"W\\u0007ForCausalLM\"], " SHAPE "}", &err));
    assert_string_equal(c->model_type, "wom?[2Jbat");
    assert_string_equal(c->architecture, "W?ForCausalLM");
    assert_non_null(strstr(c->assumptions[0], "wom?[2Jbat"));
    mt_config_close(c);
}

static void numbers_that_only_python_reads_do_no_harm_where_nobody_reads_them(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(open_text(&c,
                        "{\"model_type\": \"llama\", \"time_step_limit\": [0.0, Infinity], \"x\": NaN, "
                        "\"max_position_embeddings\": 128, \"model_max_length\": 1000000000000000019884624838656, " SHAPE "}",
                        &err));
    assert_int_equal(c->D, 64);
    mt_config_close(c);
}

/* Every fourth layer has attention unless the config says which; keys of three positions mean nothing to text. */
static void hybrids_say_which_layers_are_delta_nets(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *layers; /* a: attention */
    } cases[] = {
        { "\"num_hidden_layers\": 9", "dddadddad" },
        { "\"num_hidden_layers\": 5, \"full_attention_interval\": 2", "dadad" },
        { "\"num_hidden_layers\": 2, \"layer_types\": [\"full_attention\", \"linear_attention\"]", "ad" },
        { "\"num_hidden_layers\": 1, \"rope_parameters\": {\"rope_type\": \"default\", \"mrope_section\": [11, 11, 10], "
          "\"mrope_interleaved\": true, \"rope_theta\": 1e7}",
          "d" },
        { "\"num_hidden_layers\": 1, \"rope_theta\": 1e7, \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [11, 11, "
          "10]}",
          "d" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_config *c;
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"qwen3_5\", \"vision_config\": {}, \"tie_word_embeddings\": true, \"text_config\": "
                 "{\"model_type\": "
                 "\"qwen3_5_text\", %s}}",
                 cases[i].keys);
        assert_ok(open_text(&c, text, &err));
        assert_int_equal(c->L, strlen(cases[i].layers));
        for (int64_t l = 0; l < c->L; l++)
            assert_ptr_equal(c->layers[l].mixer, cases[i].layers[l] == 'd' ? &mt_mixer_delta : &mt_mixer_attention);
        assert_true(c->tied && c->o_gate && c->norm_one_plus && c->delta.H == 32 && c->delta.K == 16 && c->delta.width == 4);
        assert_int_equal(c->rope.dr, 64); /* a quarter of 256 */
        assert_int_equal(c->rope.type, MT_ROPE_DEFAULT);
        assert_int_equal(c->n_assumptions, 0);
        mt_config_close(c);
    }
}

/* One product makes all of a delta net's projections, and what must stay exact is in fp32 runs. */
static void a_delta_nets_projections_lie_side_by_side(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    assert_ok(open_text(&c, "{\"model_type\": \"qwen3_5_text\", " SHAPE "}", &err));
    assert_ok(mt_model_create(&m, c, NULL, &err));
    const mt_layout *l = m->units[1].layout;
    const int64_t D = c->D, keys = 16 * 128, values = 32 * 128;
    assert_int_equal(l->at[MT_W_DELTA_K], l->at[MT_W_DELTA_Q] + keys * D);
    assert_int_equal(l->at[MT_W_DELTA_V], l->at[MT_W_DELTA_K] + keys * D);
    assert_int_equal(l->at[MT_W_DELTA_Z], l->at[MT_W_DELTA_V] + values * D);
    assert_int_equal(l->at[MT_W_DELTA_B], l->at[MT_W_DELTA_Z] + values * D);
    assert_int_equal(l->at[MT_W_DELTA_A], l->at[MT_W_DELTA_B] + 32 * D);
    assert_true(l->exact_at[MT_W_DELTA_A_LOG] >= 0 && l->exact_at[MT_B_DELTA_DT] >= 0 && l->exact_at[MT_W_DELTA_NORM] < 0);
    assert_true(l->at[MT_W_DELTA_A_LOG] < l->n_decay && l->at[MT_B_DELTA_DT] >= l->n_decay); /* as Trainer decays them */
    mt_model_free(m);
    mt_config_close(c);
}

static void latent_attention_has_its_own_widths(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(open_text(&c, "{\"model_type\": \"deepseek_v3\", \"head_dim\": 64, \"qk_head_dim\": 192, " MOE SHAPE "}", &err));
    assert_int_equal(c->Dh, 192); /* head_dim is what transformers calls the rotated width */
    assert_int_equal(c->rope.dr, 64);
    assert_int_equal(c->latent.dv, 128);
    assert_int_equal(c->latent.q_rank, 1536); /* the class's own where the key is absent ... */
    assert_ptr_equal(c->layers[0].mixer, &mt_mixer_latent);
    assert_true(fabs(c->attention_scale - 1 / sqrt(192)) < 1e-12);
    assert_true(c->moe.n_group == 8 && c->moe.topk_group == 4 && c->moe.scale == 2.5 && c->moe.norm_topk);
    mt_config_close(c);
    assert_ok(open_text(&c, "{\"model_type\": \"deepseek_v2\", \"q_lora_rank\": null, \"n_group\": 4, " MOE SHAPE "}", &err));
    assert_int_equal(c->latent.q_rank, 0); /* ... and none where it is null */
    assert_int_equal(c->moe.n_group, 1);   /* without topk_method they do not count */
    assert_int_equal(c->layers[0].Is, 12);
    mt_config_close(c);
}

static void yarn_scales_the_scores_of_latent_attention(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(open_text(&c,
                        "{\"model_type\": \"deepseek_v2\", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, "
                        "\"original_max_position_embeddings\": 4096, \"mscale\": 0.707, \"mscale_all_dim\": 0.707}, " MOE SHAPE
                        "}",
                        &err));
    assert_true(fabs(c->attention_scale * sqrt(192) - 1.58964) < 1e-4); /* DeepSeek-V2-Lite's */
    assert_true(fabs(c->rope.attention_factor - 1) < 1e-12);
    mt_config_close(c);
}

static void kimi_k2_is_deepseek_v3_by_another_name(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(open_text(
        &c, "{\"model_type\": \"kimi_k2\", \"rope_theta\": 50000.0, \"n_group\": 1, \"topk_group\": 1, " MOE SHAPE "}", &err));
    assert_string_equal(c->family->name, "deepseek_v3");
    assert_string_equal(c->model_type, "kimi_k2");
    assert_int_equal(c->n_assumptions, 0);
    mt_config_close(c);
}

#define EXPERTS "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, "

static void gpt_oss_takes_what_its_class_says_where_keys_are_absent(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(open_text(&c, "{\"model_type\": \"gpt_oss\", " EXPERTS SHAPE "}", &err));
    assert_true(c->sinks && c->qkv_bias && c->o_bias && c->moe.biases && c->moe.router_bias);
    assert_true(c->act == MT_ACT_CLAMPED && c->act_limit == 7 && c->act_steep == 1.702);
    assert_true(c->rope.type == MT_ROPE_YARN && c->rope.factor == 32 && !c->rope.truncate && c->rope.theta == 150000);
    assert_true(fabs(c->rope.attention_factor - 1.3465735902799727) < 1e-15);
    for (int64_t i = 0; i < c->L; i++) assert_int_equal(c->layers[i].window, i % 2 ? 0 : 128);
    assert_int_equal(c->layers[0].I, c->F);
    mt_config_close(c);
}

/* Published files have the number 4 where transformers now has true. */
static void llama4_scales_queries_where_nothing_rotates(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        double beta;
    } cases[] = { { "", 0.1 },
                  { "\"attn_temperature_tuning\": 4, \"attn_scale\": 0.25, ", 0.25 },
                  { "\"attn_temperature_tuning\": 0, ", 0 },
                  { "\"attn_temperature_tuning\": false, ", 0 } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_config *c;
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"llama4\", \"text_config\": {\"num_key_value_heads\": 2, \"no_rope_layers\": [], "
                 "\"no_rope_layer_interval\": 2, %s" EXPERTS SHAPE "}}",
                 cases[i].keys);
        assert_ok(open_text(&c, text, &err));
        assert_string_equal(c->family->name, "llama4");
        assert_true(c->rope.q_beta == cases[i].beta && c->moe.weigh_input && c->qk_norm_bare && c->qk_norm_last);
        for (int64_t l = 0; l < c->L; l++) {
            const mt_layer_spec *s = &c->layers[l];
            const bool turns = l % 2 == 0;
            assert_true((s->rope == MT_LAYER_ROPE) == turns && s->no_q_scale == turns && s->no_qk_norm != turns);
            assert_int_equal(s->chunk, turns ? 8192 : 0);
            assert_int_equal(s->F, 16384);
        }
        mt_config_close(c);
    }
}

static void bad_configs_are_refused_in_words(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        mt_rc rc;
    } cases[] = {
        { "{", "not valid JSON at line 1", MT_EFORMAT },
        { "[]", "a JSON object was expected", MT_EFORMAT },
        { "{}", "\"hidden_size\" is missing", MT_EFORMAT },
        { "{\"model_type\": \"mamba\", \"hidden_size\": 64, \"num_hidden_layers\": 3}",
          "model_type \"mamba\" is not known here (see megatrain families), and without \"num_attention_heads\"",
          MT_EUNSUPPORTED },
        { "{\"model_type\": \"llama\", \"hidden_size\": 64}", "\"num_hidden_layers\" is missing", MT_EFORMAT },
        { "{\"model_type\": \"t5\", \"is_encoder_decoder\": true, " SHAPE "}", "encoder-decoder", MT_EUNSUPPORTED },
        { "{\"model_type\": \"wombat\", \"num_local_experts\": 8, " SHAPE "}", "mixture of experts", MT_EUNSUPPORTED },
        { "{\"model_type\": \"deepseek_v3\", \"kv_lora_rank\": 0, " MOE SHAPE "}", "\"kv_lora_rank\" is 0; 1 to", MT_ERANGE },
        { "{\"model_type\": \"deepseek_v3\", \"q_lora_rank\": -1, " MOE SHAPE "}", "\"q_lora_rank\" is -1", MT_ERANGE },
        { "{\"model_type\": \"deepseek_v3\", \"qk_rope_head_dim\": 7, " MOE SHAPE "}", "\"qk_rope_head_dim\" is 7, which is odd",
          MT_EUNSUPPORTED },
        { "{\"model_type\": \"deepseek_v3\", \"qk_nope_head_dim\": 500, " MOE SHAPE "}", "are 564 together", MT_ERANGE },
        { "{\"model_type\": \"deepseek_v3\", \"partial_rotary_factor\": 0.5, " MOE SHAPE "}",
          "all columns of \"qk_rope_head_dim\"", MT_EUNSUPPORTED },
        { "{\"model_type\": \"gemma3_text\", \"head_dim\": 16, \"rope_parameters\": {\"full_attention\": {\"rope_type\": "
          "\"longrope\", "
          "\"original_max_position_embeddings\": 64, " FACTORS "}, \"sliding_attention\": {\"rope_type\": \"longrope\", "
          "\"original_max_position_embeddings\": 32, " FACTORS "}}, \"num_key_value_heads\": 2, " SHAPE "}",
          "of 64 on layers with full attention and 32", MT_EUNSUPPORTED },
        { "{\"model_type\": \"deepseek_v3\", \"v_head_dim\": 1000, " MOE SHAPE "}", "\"v_head_dim\" is 1000", MT_ERANGE },
        { "{\"model_type\": \"deepseek_v3\", \"num_key_value_heads\": 2, " MOE SHAPE "}", "both should be equal",
          MT_EUNSUPPORTED },
        { "{\"model_type\": \"deepseek_v3\", \"scoring_func\": \"softmax\", " MOE SHAPE "}",
          "\"scoring_func\" is \"softmax\"; only \"sigmoid\"", MT_EUNSUPPORTED },
        { "{\"model_type\": \"deepseek_v3\", \"topk_method\": \"greedy\", " MOE SHAPE "}",
          "\"topk_method\" is \"greedy\"; only \"noaux_tc\"", MT_EUNSUPPORTED },
        { "{\"model_type\": \"deepseek_v3\", \"moe_layer_freq\": 2, " MOE SHAPE "}", "\"moe_layer_freq\" is 2", MT_EUNSUPPORTED },
        { "{\"model_type\": \"deepseek_v2\", \"topk_method\": \"noaux_tc\", " MOE SHAPE "}",
          "greedy and group_limited_greedy are supported", MT_EUNSUPPORTED },
        { "{\"model_type\": \"glm4_moe_lite\", \"mlp_layer_types\": [\"dense\", \"sparse\"], " MOE SHAPE "}", "all 3 layers",
          MT_EFORMAT },
        { "{\"model_type\": \"glm4_moe_lite\", \"mlp_layer_types\": [\"dense\", \"sparse\", \"mixed\"], " MOE SHAPE "}",
          "the entry of layer 2", MT_EFORMAT },
        { "{\"model_type\": \"deepseek_v32\", \"kv_lora_rank\": 512, " MOE SHAPE "}",
          "\"deepseek_v32\" chooses what each row attends to by a sparse indexer", MT_EUNSUPPORTED },
        { "{\"model_type\": \"deepseek_v3\", \"index_topk\": 2048, " MOE SHAPE "}", "sparse indexer (\"index_topk\")",
          MT_EUNSUPPORTED },
        { "{\"model_type\": \"glm_moe_dsa\", \"kv_lora_rank\": 512, " MOE SHAPE "}", "sparse indexer", MT_EUNSUPPORTED },
        { "{\"model_type\": \"minicpm3\", \"kv_lora_rank\": 512, " MOE SHAPE "}", "\"minicpm3\" uses latent attention",
          MT_EUNSUPPORTED },
        { "{\"model_type\": \"qwen3_moe\", \"kv_lora_rank\": 512, " MOE SHAPE "}", "\"qwen3_moe\" uses latent attention",
          MT_EUNSUPPORTED },
        { "{\"model_type\": \"llama\", \"num_key_value_heads\": 3, " SHAPE "}", "not a multiple", MT_EFORMAT },
        { "{\"model_type\": \"llama\", \"head_dim\": 15, " SHAPE "}", "odd", MT_EUNSUPPORTED },
        { "{\"model_type\": \"llama\", \"head_dim\": 16777216, " SHAPE "}", "4 heads of 16777216", MT_ERANGE },
        { "{\"model_type\": \"llama\", \"hidden_act\": \"relu6\", " SHAPE "}", "relu6", MT_EUNSUPPORTED },
        { "{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"spiral\"}, " SHAPE "}", "spiral", MT_EUNSUPPORTED },
        { "{\"model_type\": \"llama\", \"architectures\": [\"LlamaBidirectionalModel\"], " SHAPE "}",
          "\"LlamaBidirectionalModel\": this model's tokens attend to later ones", MT_EUNSUPPORTED },
        { "{\"model_type\": \"llama\", \"architectures\": [\"LlamaEncoderModel\"], " SHAPE "}", "attend to later ones",
          MT_EUNSUPPORTED },
        { "{\"model_type\": \"llama\", \"quantization_config\": {\"quant_method\": \"bitnet\", \"linear_class\": "
          "\"autobitlinear\"}, " SHAPE "}",
          "\"quantization_config\" is bitnet's", MT_EUNSUPPORTED },
        { "{\"model_type\": \"gemma3\", \"quantization_config\": {\"quant_method\": \"fp_quant\"}, \"text_config\": {" SHAPE "}}",
          "is fp_quant's", MT_EUNSUPPORTED },
        { "{\"model_type\": \"llama\", \"hidden_act\": \"xielu\", " SHAPE "}", "xielu", MT_EUNSUPPORTED },
        { "{\"model_type\": \"ministral3\", " SHAPE "}", "llama_4_scaling_beta", MT_EFORMAT },
        { "{\"model_type\": \"ministral3\", \"rope_parameters\": {\"rope_type\": \"yarn\", \"llama_4_scaling_beta\": 0.1}, " SHAPE
          "}",
          "original_max_position_embeddings", MT_EFORMAT },
        { "{\"model_type\": \"olmo\", \"clip_qkv\": -8, " SHAPE "}", "clip_qkv", MT_ERANGE },
        { "{\"model_type\": \"hunyuan_v1_dense\", \"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": -1}, " SHAPE "}", "alpha",
          MT_ERANGE },
        { "{\"model_type\": \"gptj\", \"rotary_dim\": 17, " SHAPE "}", "rotary_dim", MT_ERANGE },
        { "{\"model_type\": \"gpt_neo\", \"attention_types\": [[[\"global\", \"local\"], 1]], " SHAPE "}", "all 3 layers",
          MT_EFORMAT },
        { "{\"model_type\": \"gpt_neo\", \"attention_types\": [[[\"global\"], 99]], " SHAPE "}", "attention_types", MT_EFORMAT },
        { "{\"model_type\": \"gpt_bigcode\", \"add_cross_attention\": true, " SHAPE "}", "add_cross_attention", MT_EUNSUPPORTED },
        { "{\"model_type\": \"mpt\", \"attn_config\": {\"alibi\": false}, " SHAPE "}", "\"alibi\"", MT_EUNSUPPORTED },
        { "{\"model_type\": \"mpt\", \"attn_config\": {\"qk_ln\": true}, " SHAPE "}", "\"qk_ln\"", MT_EUNSUPPORTED },
        { "{\"model_type\": \"bloom\", \"apply_residual_connection_post_layernorm\": true, " SHAPE "}", "post_layernorm",
          MT_EUNSUPPORTED },
        { "{\"model_type\": \"hyperclovax\", \"residual_multiplier\": 0.5, " SHAPE "}", "residual_multiplier", MT_EUNSUPPORTED },
        { "{\"model_type\": \"llama\", \"partial_rotary_factor\": 0.5, " SHAPE "}", "a llama model rotates whole heads",
          MT_EUNSUPPORTED },
        { "{\"model_type\": \"qwen2\", \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2, "
          "\"partial_rotary_factor\": "
          "0.5}, " SHAPE "}",
          "\"partial_rotary_factor\" is 0.5", MT_EUNSUPPORTED },
        { "{\"model_type\": \"mystery\", \"rope_local_base_freq\": 50, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": "
          "2, "
          "\"partial_rotary_factor\": 0.5}, \"sliding_window\": 5, " SHAPE "}",
          "on layers with full attention and", MT_EUNSUPPORTED },
        { "{\"model_type\": \"gemma3_text\", \"use_bidirectional_attention\": true, " SHAPE "}", "attend to later ones",
          MT_EUNSUPPORTED },
        { "{\"model_type\": \"llama\", \"is_causal\": false, " SHAPE "}",
          "\"is_causal\": this model's tokens attend to later ones", MT_EUNSUPPORTED },
        { "{\"model_type\": \"gpt2\", \"is_causal\": null, " SHAPE "}", "\"is_causal\"", MT_EUNSUPPORTED },
        { "{\"model_type\": \"gemma3\", \"text_config\": {\"is_causal\": false, " SHAPE "}}", "\"is_causal\"", MT_EUNSUPPORTED },
        { "{\"model_type\": \"llama\", \"rope_scaling\": 3, " SHAPE "}", "should be an object", MT_EFORMAT },
        { "{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": -1}, " SHAPE "}", "makes no sense",
          MT_ERANGE },
        { "{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"longrope\", " FACTORS
          "}, \"original_max_position_embeddings\": 1, " SHAPE "}",
          "makes no sense", MT_ERANGE },
        { "{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"longrope\", " FACTORS
          "}, \"original_max_position_embeddings\": 0, " SHAPE "}",
          "makes no sense", MT_ERANGE },
        { "{\"model_type\": \"llama\", \"rope_theta\": 0, " SHAPE "}", "rope_theta", MT_ERANGE },
        { "{\"model_type\": \"llama\", \"rms_norm_eps\": \"x\", " SHAPE "}", "should be a number and is a string", MT_EFORMAT },
        { "{\"model_type\": \"llama\", \"rms_norm_eps\": NaN, " SHAPE "}", "should be a number and is NaN", MT_EFORMAT },
        { "{\"model_type\": \"llama\", \"rope_theta\": 1e400, " SHAPE "}", "should be a number and is Infinity", MT_EFORMAT },
        { "{\"model_type\": \"llama\", \"max_position_embeddings\": 1000000000000000019884624838656, " SHAPE "}",
          "should be an integer and is a number", MT_EFORMAT },
        { "{\"model_type\": \"llama\", \"tie_word_embeddings\": 1, " SHAPE "}", "should be true or false", MT_EFORMAT },
        { "{\"model_type\": \"llama\", \"torch_dtype\": \"int3\", " SHAPE "}", "int3", MT_EFORMAT },
        { "{\"model_type\": \"phi3\", \"partial_rotary_factor\": 0.01, " SHAPE "}", "partial_rotary_factor", MT_ERANGE },
        { "{\"model_type\": \"llama\", \"partial_rotary_factor\": 1e96, " SHAPE "}", "not a share of head_dim", MT_ERANGE },
        { "{\"model_type\": \"llama\", \"partial_rotary_factor\": -1e96, " SHAPE "}", "not a share of head_dim", MT_ERANGE },
        { "{\"model_type\": \"ministral3\", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2, "
          "\"llama_4_scaling_beta\": 0.1, \"original_max_position_embeddings\": 1e96}, " SHAPE "}",
          "makes no sense", MT_ERANGE },
        { "{\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"layer_types\": [\"full_attention\"], " SHAPE "}",
          "all 3 layers", MT_EFORMAT },
        { "{\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"sliding_window\": 7, \"max_window_layers\": -9, " SHAPE
          "}",
          "max_window_layers", MT_ERANGE },
        { "{\"model_type\": \"mistral\", \"layer_types\": [\"full_attention\", \"mamba2\", \"x\"], " SHAPE "}", "mamba2",
          MT_EUNSUPPORTED },
        { "{\"model_type\": \"qwen3_5\", \"linear_num_value_heads\": 24, " SHAPE "}", "not a multiple of linear_num_key_heads=16",
          MT_EFORMAT },
        { "{\"model_type\": \"qwen3_5\", \"linear_conv_kernel_dim\": 9, " SHAPE "}", "linear_conv_kernel_dim", MT_ERANGE },
        { "{\"model_type\": \"qwen3_5\", \"linear_key_head_dim\": 0, " SHAPE "}", "linear_key_head_dim", MT_ERANGE },
        { "{\"model_type\": \"qwen3_5\", \"hidden_act\": \"gelu\", " SHAPE "}", "other than silu", MT_EUNSUPPORTED },
        { "{\"model_type\": \"qwen3_5\", \"layer_types\": [\"full_attention\", \"mamba2\", \"x\"], " SHAPE "}", "mamba2",
          MT_EUNSUPPORTED },
        { "{\"model_type\": \"qwen3_5\", \"layer_types\": [\"full_attention\"], " SHAPE "}", "all 3 layers", MT_EFORMAT },
        { "{\"model_type\": \"llama\", \"hidden_size\": 1e9, \"num_hidden_layers\": 1, \"num_attention_heads\": 1, "
          "\"intermediate_size\": 1, \"vocab_size\": 1}",
          "hidden_size", MT_ERANGE },
        { "{\"model_type\": \"llama\", \"hidden_size\": -4, \"num_hidden_layers\": 1, \"num_attention_heads\": 1, "
          "\"intermediate_size\": 1, \"vocab_size\": 1}",
          "hidden_size", MT_ERANGE },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_config *c;
        mt_rc rc = open_text(&c, cases[i].text, &err);
        if (rc != cases[i].rc) fail_msg("case %zu gave %s: %s", i, mt_rc_name(rc), err.msg);
        assert_null(c);
        assert_says(cases[i].says);
        assert_says("config.json");
    }
    mt_err err = { 0 };
    mt_config *c;
    void *dir;
    char path[512];
    assert_int_equal(tempdir_make(&dir), 0);
    snprintf(path, sizeof path, "%s/adapter_config.json", (const char *)dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{}", f);
    fclose(f);
    assert_int_equal(mt_config_open(&c, dir, &err), MT_EUNSUPPORTED);
    assert_says("only an adapter");
    tempdir_remove(&dir);
    assert_int_equal(mt_config_open(&c, "/nowhere", &err), MT_ENOENT);
    assert_says("a model is a directory with config.json");
}

static void laid_out_or_refused(const mt_str *text)
{
    mt_err err = { 0 };
    mt_config *c = NULL;
    mt_model *m = NULL;
    mt_rc rc = mt_config_parse(&c, text->s, text->n, "config.json", &err);
    if (!rc && c->L <= 8) rc = mt_model_create(&m, c, NULL, &err);
    if (!rc != !err.msg[0] || strstr(err.msg, "(null)")) fail_msg("%s: \"%s\" of %s", mt_rc_name(rc), err.msg, text->s);
    mt_model_free(m);
    mt_config_close(c);
}

/* Any key of any family at any extreme; MT_DRAWS golden models with all of them (113 are all). */
static void extreme_values_are_refused_or_read(void **state)
{
    (void)state;
    enum { STEP = 47 }; /* shares no factor with the number of models, so that draws differ */
    const char *draws = getenv("MT_DRAWS");
    mt_err err = { 0 };
    mt_str text = { 0 };
    extremes e;
    assert_ok(extremes_open(&e, MT_TESTS_DIR "/golden/models", &err));
    assert_true(e.n_docs > 100 && e.n_docs % STEP && e.n_keys > 150 && e.n_keys < EXTREMES_KEYS);
    for (int d = 0; d < (draws ? atoi(draws) : 16); d++) {
        const mt_value *doc = e.docs[(size_t)d * STEP % e.n_docs], *maps[EXTREMES_MAPS];
        const size_t n_maps = extremes_maps(doc, maps, 0);
        for (size_t i = 0; i < n_maps * e.n_keys * MT_COUNT(extreme_values); i++) {
            const size_t key = i / n_maps;
            mt_str_clear(&text);
            extremes_write(&text, doc, maps[i % n_maps], e.keys[key % e.n_keys], extreme_values[key / e.n_keys]);
            laid_out_or_refused(&text);
        }
    }
    mt_str_free(&text);
    extremes_close(&e);
}

static void layouts_put_decayed_first_and_frozen_last(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    const char *freeze[] = { "*.k_proj.weight", "model.layers.1.*" };
    assert_ok(open_text(&c, "{\"model_type\": \"llama\", " SHAPE "}", &err));
    assert_ok(mt_model_create(&m, c, &(mt_model_options){ .freeze = freeze, .n_freeze = 2 }, &err));
    assert_int_equal(m->n_units, 5);
    assert_int_equal(m->units[1].group, m->units[3].group);
    assert_true(m->units[1].group != m->units[2].group);
    const mt_layout *l = m->units[1].layout;
    assert_true(l->at[MT_W_K] >= l->n_train && l->at[MT_W_NORM1] >= l->n_decay && l->at[MT_W_NORM1] < l->n_train &&
                l->at[MT_W_Q] < l->n_decay);
    assert_int_equal(m->units[2].layout->n_train, 0);
    assert_int_equal(l->at[MT_W_UP], l->at[MT_W_GATE] + 96 * 64); /* side by side */
    mt_model_free(m);
    const char *wrong[] = { "model.layer.*" };
    assert_int_equal(mt_model_create(&m, c, &(mt_model_options){ .freeze = wrong, .n_freeze = 1 }, &err), MT_EINVAL);
    assert_says("model.layer.*");
    const char *all[] = { "*" };
    assert_int_equal(mt_model_create(&m, c, &(mt_model_options){ .freeze = all, .n_freeze = 1 }, &err), MT_EINVAL);
    assert_says("nothing is left to train");
    mt_config_close(c);
}

static void heads_with_tensors_of_their_own_lie_side_by_side(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    assert_ok(open_text(&c, "{\"model_type\": \"stablelm\", \"qk_layernorm\": true, " SHAPE "}", &err));
    const char *all_of_q[] = { "*.q_layernorm.*" }, *one[] = { "*.q_layernorm.norms.1.*" };
    assert_ok(mt_model_create(&m, c, &(mt_model_options){ .freeze = all_of_q, .n_freeze = 1 }, &err));
    const mt_layout *l = m->units[1].layout;
    assert_true(l->at[MT_W_Q_NORM] >= l->n_train && l->at[MT_W_K_NORM] < l->n_train);
    int64_t head = 0;
    for (int k = 0; k < l->n_weights; k++)
        if (l->weights[k].role == MT_W_Q_NORM) assert_int_equal(l->weights[k].offset, l->at[MT_W_Q_NORM] + head++ * c->Dh);
    assert_int_equal(head, c->H);
    mt_model_free(m);
    assert_int_equal(mt_model_create(&m, c, &(mt_model_options){ .freeze = one, .n_freeze = 1 }, &err), MT_EINVAL);
    assert_says("match all of them or none");
    mt_config_close(c);
}

MT_TEST_MAIN(cmocka_unit_test(latent_attention_has_its_own_widths), cmocka_unit_test(yarn_scales_the_scores_of_latent_attention),
             cmocka_unit_test(kimi_k2_is_deepseek_v3_by_another_name),
             cmocka_unit_test(heads_with_tensors_of_their_own_lie_side_by_side),
             cmocka_unit_test(class_defaults_fill_what_is_missing), cmocka_unit_test(a_shared_expert_is_there_without_its_key),
             cmocka_unit_test(an_activation_is_read_where_its_class_reads_it), cmocka_unit_test(a_foreign_spelling_never_counts),
             cmocka_unit_test(layer_types_count_where_their_class_reads_them),
             cmocka_unit_test(both_spellings_of_the_rope_settings_mean_the_same),
             cmocka_unit_test(part_of_a_head_rotates_where_transformers_rotates_part_of_it),
             cmocka_unit_test(full_layers_have_no_positions_beside_windows), cmocka_unit_test(dropout_is_noticed),
             cmocka_unit_test(an_unknown_type_with_a_familiar_shape_is_taken_with_its_assumptions),
             cmocka_unit_test(another_class_of_a_known_type_is_told), cmocka_unit_test(cohere_inside_a_vision_model_has_a_notice),
             cmocka_unit_test(what_is_not_a_text_decoder_is_never_taken_for_llama),
             cmocka_unit_test(a_guess_is_refused_until_the_user_says_so), cmocka_unit_test(names_are_fit_to_be_shown),
             cmocka_unit_test(numbers_that_only_python_reads_do_no_harm_where_nobody_reads_them),
             cmocka_unit_test(hybrids_say_which_layers_are_delta_nets),
             cmocka_unit_test(gpt_oss_takes_what_its_class_says_where_keys_are_absent),
             cmocka_unit_test(llama4_scales_queries_where_nothing_rotates),
             cmocka_unit_test(a_delta_nets_projections_lie_side_by_side), cmocka_unit_test(bad_configs_are_refused_in_words),
             cmocka_unit_test(extreme_values_are_refused_or_read), cmocka_unit_test(layouts_put_decayed_first_and_frozen_last))
