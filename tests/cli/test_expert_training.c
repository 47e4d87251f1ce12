/* A small mixture of experts learns the demo's task as well as a dense model of its width does: each token meets as many weights
 * of its mlps in both. */
#include "process.h"
#include "workspace.h"

#define DATA MT_TESTS_DIR "/../data"

static program p;

#define CONFIG(TYPE, ARCHITECTURE, MORE)                                                                                         \
    "{\"model_type\":\"" TYPE "\",\"architectures\":[\"" ARCHITECTURE                                                            \
    "\"],\"hidden_size\":96,\"intermediate_size\":192,\"num_hidden_layers\":2,\"head_dim\":32,\"num_attention_heads\":3,"        \
    "\"num_key_value_heads\":1,\"vocab_size\":448,\"max_position_embeddings\":512,\"rope_theta\":10000.0,"                       \
    "\"initializer_range\":0.04,\"tie_word_embeddings\":true,\"eos_token_id\":2,\"pad_token_id\":0" MORE "}"

/* The demo's tokenizer beside another config.json. */
static void write_model(const char *root, const char *name, const char *config)
{
    static const char *const files[] = { "tokenizer.json", "tokenizer_config.json" };
    assert_int_equal(mkdir(workspace_path("%s/%s", root, name).s, 0777), 0);
    workspace_write(root, workspace_path("%s/config.json", name).s, config);
    for (size_t i = 0; i < MT_COUNT(files); i++)
        workspace_copy(workspace_path(DATA "/demo_model/%s", files[i]).s, workspace_path("%s/%s/%s", root, name, files[i]).s);
}

/* The loss on data that was held out, before and after. */
typedef struct learned {
    double before, after;
} learned;

static learned train(const char *root, const char *model)
{
    const char *steps = test_tries(0, 32) ? "200" : "10"; /* under a sanitizer a few will do */
    const char *const args[] = { "train",
                                 "--config",
                                 DATA "/../configs/demo.yaml",
                                 "--model-name",
                                 model,
                                 "--dataset-dir",
                                 DATA,
                                 "--output-dir",
                                 "out",
                                 "--overwrite",
                                 "--num-steps",
                                 steps,
                                 "--device",
                                 "cpu",
                                 "--set",
                                 "eval.at_start=true" };
    learned l = { 0 };
    program_init(&p, root);
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(&p, args[i]);
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
    const char *line = strstr(p.text, "evaluation loss ");
    if (!line || sscanf(line, "evaluation loss %lf at step 0, %lf at step", &l.before, &l.after) != 2)
        fail_msg("no losses in: %s", p.text);
    return l;
}

static void experts_learn_the_demo_as_a_dense_model_does(void **state)
{
    write_model(*state, "dense", CONFIG("qwen3", "Qwen3ForCausalLM", ""));
    write_model(*state, "experts",
                CONFIG("qwen3_moe", "Qwen3MoeForCausalLM",
                       ",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":96,\"norm_topk_prob\":true"));
    learned dense = train(*state, "dense"), experts = train(*state, "experts");
    print_message("dense %.3f to %.3f, experts %.3f to %.3f\n", dense.before, dense.after, experts.before, experts.after);
    if (test_tries(0, 32)) assert_true(experts.after < 0.3 * experts.before && experts.after < 1.1 * dense.after);
    assert_true(experts.after < experts.before && dense.after < dense.before);
}

MT_TEST_MAIN(cmocka_unit_test_setup_teardown(experts_learn_the_demo_as_a_dense_model_does, workspace_make, workspace_remove))
