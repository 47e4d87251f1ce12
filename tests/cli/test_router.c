/* megatrain train and the routers of a model with experts: how busy experts are, and the load-balancing loss. */
#include "process.h"
#include "workspace.h"

static program p;

#define EXPERTS(MORE)                                                                                                            \
    "{\"model_type\":\"qwen3_moe\",\"architectures\":[\"Qwen3MoeForCausalLM\"],\"hidden_size\":16,\"intermediate_size\":24,"     \
    "\"num_hidden_layers\":2,\"head_dim\":8,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"vocab_size\":61,"              \
    "\"max_position_embeddings\":128,\"num_experts\":6,\"num_experts_per_tok\":2,\"moe_intermediate_size\":8,"                   \
    "\"mlp_only_layers\":[0],\"eos_token_id\":2" MORE "}"

static void set_up(const char *root, const char *router_aux_loss)
{
    static const char *const args[] = { "train",     "--model-name", "model", "--from-scratch", "--dataset-path",
                                        "rows.json", "--output-dir", "out",   "--overwrite",    "--num-steps",
                                        "3",         "--batch-size", "8",     "--device",       "cpu" };
    program_init(&p, root);
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(&p, args[i]);
    if (!router_aux_loss) return;
    program_arg(&p, "--router-aux-loss");
    program_arg(&p, router_aux_loss);
}

static void run_ok(void)
{
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
}

/* What the run recorded, to be freed by the caller. */
static char *metrics_of(const char *root)
{
    mt_err err = { 0 };
    char *text;
    assert_ok(mt_file_read(&text, NULL, workspace_path("%s/out/metrics.jsonl", root).s, 1 << 20, &err));
    return text;
}

/* The number after "key": in the last line that has it. */
static double last_number(const char *text, const char *key)
{
    const char *at = NULL;
    for (const char *next = text; (next = strstr(next, key)); next++) at = next;
    if (!at) fail_msg("no %s in: %s", key, text);
    return strtod(at + strlen(key), NULL);
}

static void its_value_is_in_the_terminal_and_the_metrics(void **state)
{
    workspace_write(*state, "model/config.json", EXPERTS(""));
    set_up(*state, "0.02");
    run_ok();
    assert_printed(&p, "  aux ");
    char *text = metrics_of(*state);
    double aux = last_number(text, "\"router_aux_loss\": ");
    assert_true(aux > 1.5 && aux <= 6); /* 2 of 6 experts a row: 2 if all are equally busy */
    mt_free(text);
}

/* Layer 0 has no experts, so there is one number each: the busiest of six experts has a third of the rows or more, of two a row. */
static void how_busy_experts_are_is_in_the_terminal_and_the_metrics(void **state)
{
    workspace_write(*state, "model/config.json", EXPERTS(""));
    set_up(*state, NULL);
    run_ok();
    assert_printed(&p, "  busiest expert ");
    assert_printed(&p, "experts in step 3: the busiest got ");
    assert_printed(&p, "(layer 1; 33.3% if all were equally busy), ");
    char *text = metrics_of(*state);
    double share = last_number(text, "\"busiest_expert\": ["), idle = last_number(text, "\"idle_experts\": [");
    assert_true(share >= 1.0 / 3 - 1e-9 && share <= 1);
    assert_true(idle >= 0 && idle <= 4);
    mt_free(text);
}

static void it_is_off_by_default(void **state)
{
    workspace_write(*state, "model/config.json", EXPERTS(",\"router_aux_loss_coef\":0.5,\"output_router_logits\":true"));
    set_up(*state, NULL);
    run_ok();
    char *text = metrics_of(*state);
    assert_null(strstr(text, "aux"));
    assert_null(strstr(p.text, "  aux "));
    mt_free(text);
}

/* The same numbers as with the file's coefficient on the command line, and others than without. */
static void model_takes_the_files_coefficient(void **state)
{
    char *texts[3];
    const char *const said[] = { "model", "0.5", "0" };
    workspace_write(*state, "model/config.json", EXPERTS(",\"router_aux_loss_coef\":0.5"));
    for (int i = 0; i < 3; i++) {
        set_up(*state, said[i]);
        run_ok();
        texts[i] = metrics_of(*state);
    }
    assert_true(last_number(texts[0], "\"grad_norm\": ") == last_number(texts[1], "\"grad_norm\": "));
    assert_true(last_number(texts[0], "\"grad_norm\": ") != last_number(texts[2], "\"grad_norm\": "));
    for (int i = 0; i < 3; i++) mt_free(texts[i]);
}

static void a_file_without_one_is_refused(void **state)
{
    workspace_write(*state, "model/config.json", EXPERTS(""));
    set_up(*state, "model");
    assert_true(program_run(&p) > 0);
    assert_printed(&p, "router_aux_loss_coef");
    assert_printed(&p, "such as 0.001");
}

static void a_dense_model_says_that_it_has_no_effect(void **state)
{
    set_up(*state, "0.02");
    run_ok();
    assert_printed(&p, "router_aux_loss has no effect");
}

#define IN_WORKSPACE(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(IN_WORKSPACE(how_busy_experts_are_is_in_the_terminal_and_the_metrics),
             IN_WORKSPACE(its_value_is_in_the_terminal_and_the_metrics), IN_WORKSPACE(it_is_off_by_default),
             IN_WORKSPACE(model_takes_the_files_coefficient), IN_WORKSPACE(a_file_without_one_is_refused),
             IN_WORKSPACE(a_dense_model_says_that_it_has_no_effect))
