/* The library as make install leaves it: a header for C11 and C++17, an archive, pkg-config, and the examples, which build against
 * them with plain cc and run. */
#include "program.h"
#include "workspace.h"

static char out[1 << 16];

/* sh -c, in the test's folder, with the installed pkg-config file in sight.  cc is the compiler that built the library, whose
 * sanitizers another one may not link. */
static int in_prefix(const char *dir, const char *command)
{
    char script[8192];
    snprintf(script, sizeof script,
             "cd '%s' && export HF_HUB_OFFLINE=1 XDG_CACHE_HOME=\"$PWD/cache\" && "
             "export PKG_CONFIG_PATH=\"$PWD/prefix/" MT_LIBDIR "/pkgconfig:$PKG_CONFIG_PATH\" && cc() { '" MT_CC
             "' \"$@\"; } && { %s; } 2>&1",
             dir, command);
    return run_shell(script, out, sizeof out);
}

static void expect_in_prefix(const char *dir, const char *command)
{
    if (in_prefix(dir, command) != 0) fail_msg("%s\n%s", command, out);
}

static int make_prefix(void **state)
{
    if (workspace_make(state)) return -1;
    expect_in_prefix(*state, "cmake --install '" MT_BUILD_DIR "' --component library --prefix prefix");
    return 0;
}

#define BUILD(name)                                                                                                              \
    "cc -Wall -Wextra -Werror -o " name " prefix/share/doc/megatrain/examples/" name ".c $(pkg-config --cflags --libs "          \
    "megatrain)"

/* -- the header ------------------------------------------------------------------------------------ */

static void the_header_is_c11(void **state)
{
    workspace_write(*state, "use.c",
                    "#include <megatrain.h>\n#include <megatrain.h>\nint main(void) { return !megatrain_version()[0]; }\n");
    expect_in_prefix(
        *state,
        "cc -std=c11 -pedantic-errors -Wall -Wextra -Werror -o use use.c $(pkg-config --cflags --libs megatrain) && ./use");
}

static void the_header_is_cxx17(void **state)
{
    if (in_prefix(*state, "command -v c++") != 0) mt_skip("there is no C++ compiler");
    workspace_write(*state, "use.cpp",
                    "#include <megatrain.h>\n"
                    "int main()\n{\n    megatrain_error error;\n    megatrain_config *config = nullptr;\n"
                    "    megatrain_document d{nullptr, nullptr, 0};\n"
                    "    if (megatrain_config_create(&config, &error)) return 1;\n"
                    "    megatrain_config_free(config);\n    return d.n_tokens != 0;\n}\n");
    expect_in_prefix(*state,
                     "c++ -std=c++17 -pedantic-errors -Wall -Wextra -Werror -c use.cpp $(pkg-config --cflags megatrain) && "
                     "cc -o usepp use.o $(pkg-config --libs megatrain) && ./usepp"); /* its names are C's */
}

/* Other names could meet those of the program that links it. */
static void global_names_have_our_prefixes(void **state)
{
    expect_in_prefix(*state,
                     "nm -g --defined-only prefix/" MT_LIBDIR "/libmegatrain.a | awk 'NF == 3 { print $3 }' | "
                     "grep -Ev '^(mt_|megatrain_|_|DW\\.ref)' | sort -u > names; test ! -s names || { cat names; false; }");
}

/* -- the examples ---------------------------------------------------------------------------------- */

static void finetune_trains_from_a_configuration(void **state)
{
    const char *dir = *state;
    workspace_write(dir, "my.yaml",
                    "model: { name: model, device: cpu, dtype: float32 }\n"
                    "dataset: { path: rows.json, max_seq_len: 32 }\n"
                    "training: { from_scratch: true, batch_size: 8, num_steps: 2, learning_rate: 1e-2 }\n"
                    "eval: { val_size: 4 }\n");
    expect_in_prefix(dir, BUILD("finetune"));
    expect_in_prefix(dir, "./finetune my.yaml training.num_steps=4 save.output_dir=runs/mine");
    assert_non_null(strstr(out, "step 1 of 4: loss "));
    assert_non_null(strstr(out, "step 4 of 4: loss "));
    assert_non_null(strstr(out, "after step 4: loss on held-out data "));
    assert_non_null(strstr(out, "the model is in runs/mine/final\n"));
    expect_in_prefix(dir, "'" MT_BINARY "' inspect runs/mine/final");
    assert_int_equal(in_prefix(dir, "./finetune my.yaml training.num_stepz=4"), 1);
    assert_non_null(strstr(out, "did you mean training.num_steps?"));
    assert_int_equal(in_prefix(dir, "./finetune my.yaml save.output_dir=runs/mine"), 1);
    assert_non_null(strstr(out, "already holds a run"));
}

static double number_after(const char *words)
{
    const char *at = strstr(out, words);
    if (!at) fail_msg("expected \"%s\" in:\n%s", words, out);
    return strtod(at + strlen(words), NULL);
}

static void own_batches_learns_generates_and_saves(void **state)
{
    const char *dir = *state;
    expect_in_prefix(dir, BUILD("own_batches"));
    expect_in_prefix(dir,
                     "./own_batches '" MT_TESTS_DIR "/golden/models/llama_default' learned model.device=cpu model.dtype=float32");
    assert_true(number_after("step 1: loss ") > 4);
    assert_true(number_after("step 40: loss ") < 0.5);
    assert_true(number_after("evaluation: loss ") < 0.5);
    const char *generated = strstr(out, "generated:"), *expected = strstr(out, "expected: ");
    assert_true(generated && expected);
    assert_memory_equal(generated + strlen("generated:"), expected + strlen("expected: "), strlen(" 1 2 3 4"));
    assert_non_null(strstr(out, "saved to learned\n"));
    expect_in_prefix(dir,
                     "'" MT_BINARY
                     "' inspect learned && echo '{\"input_ids\": [[0, 7, 10, 25, 4, 27, 14, 13, 8]]}' > asked.json && '" MT_BINARY
                     "' grad learned --tokens asked.json --out grad.safetensors --device cpu");
    assert_true(number_after("\nloss ") < 0.5); /* the program computes what the library trained */
    assert_int_equal(in_prefix(dir, "./own_batches '" MT_TESTS_DIR "/golden/models/llama_default' learned model.device=cpu"), 1);
    assert_non_null(strstr(out, "exists already"));
    assert_int_equal(in_prefix(dir, "./own_batches nowhere/model learned"), 1);
}

#define IN_PREFIX(test) cmocka_unit_test_setup_teardown(test, make_prefix, workspace_remove)

MT_TEST_MAIN(IN_PREFIX(the_header_is_c11), IN_PREFIX(the_header_is_cxx17), IN_PREFIX(global_names_have_our_prefixes),
             IN_PREFIX(finetune_trains_from_a_configuration), IN_PREFIX(own_batches_learns_generates_and_saves))
