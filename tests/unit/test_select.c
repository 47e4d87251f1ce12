/* Which parameters are trained and which decay: patterns, the norms of many families, and misspellings. */
#include "test.h"

#include "model/select.h"

static const char *const names[] = {
    "model.embed_tokens.weight",
    "model.layers.0.input_layernorm.weight",
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.0.self_attn.q_proj.bias",
    "model.layers.0.self_attn.q_norm.weight",
    "model.layers.1.mlp.up_proj.weight",
    "model.layers.11.mlp.up_proj.weight",
    "model.norm.weight",
    "lm_head.weight",
};
enum { N = sizeof names / sizeof *names };

static void patterns_are_the_shells(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool match;
    } cases[] = {
        { "model.embed_tokens.*", "model.embed_tokens.weight", true },
        { "*.norm.weight", "model.norm.weight", true },
        { "*.norm.weight", "model.layers.0.q_norm.weight", false },
        { "model.*.weight", "model.layers.0.mlp.up_proj.weight", true }, /* a star crosses dots */
        { "model.layers.?.*", "model.layers.1.mlp.up_proj.weight", true },
        { "model.layers.?.*", "model.layers.11.mlp.up_proj.weight", false },
        { "model.layers.[0-3].*", "model.layers.3.x", true },
        { "model.layers.[!0-3].*", "model.layers.3.x", false },
        { "model.layers.[!0-3].*", "model.layers.4.x", true },
        { "lm_head", "lm_head.weight", false }, /* the whole name */
        { "*", ".hidden/one", true },
        { "", "x", false },
        { "[", "x", false },
        { "a[", "a[", true }, /* no set: itself */
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        if (mt_select_match(cases[i].pattern, cases[i].name) != cases[i].match)
            fail_msg("\"%s\" on \"%s\"", cases[i].pattern, cases[i].name);
    }
}

static void norms_and_biases_are_told_by_name(void **state)
{
    (void)state;
    static const char *const no_decay[] = {
        "model.norm.weight",
        "norm.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.pre_feedforward_layernorm.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.k_norm.weight",
        "model.final_layernorm.weight",
        "gpt_neox.final_layer_norm.weight",
        "encoder.layer.0.LayerNorm.weight",
        "transformer.h.0.ln_1.weight",
        "transformer.ln_f.weight",
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.mixer.dt_bias",
        "blocks.0.norm1.weight",
        "transformer.blocks.0.norm_1.weight",
        "backbone.norm_f.weight",
    };
    static const char *const decay[] = {
        "model.embed_tokens.weight",
        "lm_head.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.mlp.experts.gate_up_proj",
        "model.layers.0.normalizer_proj.weight",
    };
    for (size_t i = 0; i < MT_COUNT(no_decay); i++)
        if (!mt_select_is_norm_or_bias(no_decay[i])) fail_msg("%s would decay", no_decay[i]);
    for (size_t i = 0; i < MT_COUNT(decay); i++)
        if (mt_select_is_norm_or_bias(decay[i])) fail_msg("%s would not decay", decay[i]);
}

static void everything_is_trained_unless_frozen(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_selected out[N];
    assert_ok(mt_select(out, names, N, &(mt_select_config){ 0 }, &err));
    static const bool decayed[N] = { true, false, true, false, false, true, true, false, true };
    for (size_t i = 0; i < N; i++) assert_true(out[i].trained && out[i].decayed == decayed[i]);

    assert_ok(mt_select(out, names, N, &(mt_select_config){ .decay_all = true }, &err));
    for (size_t i = 0; i < N; i++) assert_true(out[i].trained && out[i].decayed);

    static const char *const freeze[] = { "model.embed_tokens.*", "*.norm.weight", "model.layers.1.*" };
    assert_ok(mt_select(out, names, N, &(mt_select_config){ .freeze = freeze, .n_freeze = 3, .decay_all = true }, &err));
    static const bool trained[N] = { false, true, true, true, true, false, true, false, true };
    for (size_t i = 0; i < N; i++) assert_true(out[i].trained == trained[i] && out[i].decayed == trained[i]);
}

static void a_pattern_that_matches_nothing_is_an_error(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_selected out[N];
    static const char *const freeze[] = { "lm_head.*", "model.layers.1.mlp.upproj.*" };
    assert_int_equal(mt_select(out, names, N, &(mt_select_config){ .freeze = freeze, .n_freeze = 2 }, &err), MT_EINVAL);
    assert_says("\"model.layers.1.mlp.upproj.*\"");
    assert_says("look like \"model.layers.1.mlp.up_proj.weight\"");
}

static void freezing_everything_is_an_error(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_selected out[N];
    static const char *const freeze[] = { "*" };
    assert_int_equal(mt_select(out, names, N, &(mt_select_config){ .freeze = freeze, .n_freeze = 1 }, &err), MT_EINVAL);
    assert_says("nothing is left to train");
    assert_int_equal(mt_select(out, names, 0, &(mt_select_config){ 0 }, &err), MT_EINVAL);
}

MT_TEST_MAIN(cmocka_unit_test(patterns_are_the_shells), cmocka_unit_test(norms_and_biases_are_told_by_name),
             cmocka_unit_test(everything_is_trained_unless_frozen), cmocka_unit_test(a_pattern_that_matches_nothing_is_an_error),
             cmocka_unit_test(freezing_everything_is_an_error))
