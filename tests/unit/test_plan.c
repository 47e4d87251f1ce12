/* What a plan refuses, and sizes that must agree with what the engine carves. */
#include "test.h"

#include "base/mem.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

static void open_model(mt_config **c, mt_model **m, int layers)
{
    mt_err err = { 0 };
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\": \"llama\", \"hidden_size\": 16, \"num_hidden_layers\": %d, \"num_attention_heads\": 2, \"intermediate_size\": 16, "
             "\"vocab_size\": 32}", layers);
    assert_ok(mt_config_parse(c, text, strlen(text), "text", &err));
    assert_ok(mt_model_create(m, *c, NULL, &err));
}

/* With every unit resident the ring sets no bound, and the engine's tables of a segment have one. */
static void a_segment_longer_than_the_engine_can_redo_is_refused(void **state)
{
    (void)state;
    for (int layers = MT_MAX_SEGMENT; layers <= MT_MAX_SEGMENT + 1; layers++) {
        mt_err err = { 0 };
        mt_config *c;
        mt_model *m;
        mt_placement p;
        mt_plan *plan;
        open_model(&c, &m, layers);
        assert_ok(mt_placement_init(&p, m, &err));
        p.sweep_tokens = 8;
        for (int u = 0; u < m->n_units; u++) p.units[u] = (mt_unit_place){ .resident = true, .home = MT_DEVICE, .site = MT_SITE_DEVICE };
        for (int l = 0; l < layers; l++) p.layers[l] = (mt_layer_place){ l ? MT_KEEP_NOTHING : MT_KEEP_INPUT, MT_DEVICE };
        const mt_job job = { .train = true, .clip = true, .step_tokens = 8, .step_docs = 1, .longest = 8 };
        const mt_arithmetic a = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 8, .mlp_rows = 8, .head_rows = 8 };
        mt_rc rc = mt_plan_create(&plan, m, &job, &a, &p, &err);
        assert_int_equal(rc, layers <= MT_MAX_SEGMENT ? MT_OK : MT_ERANGE);
        if (rc) assert_says("redone from one kept input");
        mt_plan_free(plan);
        mt_placement_free(&p);
        mt_model_free(m);
        mt_config_close(c);
    }
}

/* An odd number of rows and heads: the row sums of attention come first and must not push what follows off its alignment. */
static void kept_arrays_have_room_to_be_aligned(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    const char *text = "{\"model_type\": \"llama\", \"hidden_size\": 48, \"num_hidden_layers\": 1, \"num_attention_heads\": 3, \"intermediate_size\": 16, \"vocab_size\": 32}";
    assert_ok(mt_config_parse(&c, text, strlen(text), "text", &err));
    const int64_t rows = 7;
    const size_t widths[] = { 3 * 4, 48 * 2, 3 * 48 * 2, 48 * 2, 48 * 2, 2 * 16 * 2 }; /* lse, x, qkv, attn, xmid, gate and up */
    size_t need = 0;
    for (size_t i = 0; i < MT_COUNT(widths); i++) need = mt_round_up(need, MT_KEEP_ALIGN) + (size_t)rows * widths[i];
    assert_true(mt_keep_bytes(c, MT_DTYPE_BF16, MT_KEEP_ALL, rows) >= need);
    assert_int_equal(mt_keep_bytes(c, MT_DTYPE_BF16, MT_KEEP_NOTHING, rows), 0);
    mt_config_close(c);
}

MT_TEST_MAIN(cmocka_unit_test(a_segment_longer_than_the_engine_can_redo_is_refused), cmocka_unit_test(kept_arrays_have_room_to_be_aligned))
