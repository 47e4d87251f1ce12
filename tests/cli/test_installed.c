/* The program as make install leaves it: it finds its data from any folder, its documents find each other, and make uninstall
 * removes it. */
#include "program.h"
#include "workspace.h"

/* sh -c, in the test's folder; it must succeed. */
static void expect_shell(const char *dir, const char *command)
{
    static char out[1 << 16];
    char script[4096];
    snprintf(script, sizeof script, "cd '%s' && export HF_HUB_OFFLINE=1 XDG_CACHE_HOME=\"$PWD/cache\" && { %s; } 2>&1", dir,
             command);
    if (run_shell(script, out, sizeof out) != 0) fail_msg("%s\n%s", command, out);
}

static void the_installed_demo_runs_from_any_folder(void **state)
{
    expect_shell(*state, "cmake --install '" MT_BUILD_DIR "' --prefix prefix");
    expect_shell(*state, "prefix/bin/megatrain train --config prefix/share/megatrain/configs/demo.yaml --device cpu --num-steps "
                         "1 --set eval.max_samples=1");
    expect_shell(*state, "prefix/bin/megatrain plan --config prefix/share/megatrain/configs/demo.yaml --device cpu --ram 1G");
    expect_shell(*state, "prefix/bin/megatrain data --config prefix/share/megatrain/configs/demo.yaml --show 0");
    expect_shell(*state, "prefix/bin/megatrain plan configs/demo.yaml --device cpu --ram 1G");
    expect_shell(*state, "prefix/bin/megatrain data --config configs/demo.yaml --show 0");
    expect_shell(*state, "prefix/bin/megatrain plan --config=configs/demo.yaml --device cpu --ram 1G");
    /* An absolute path is not looked for among the installed files. */
    expect_shell(*state, "prefix/bin/megatrain plan /configs/demo.yaml 2>&1 | grep 'no file /configs/demo.yaml'");
    expect_shell(*state, "prefix/bin/megatrain train configs/demo.yaml --device cpu --dry-run");
    expect_shell(*state, "mkdir configs && echo 'model: {nmae: x}' > configs/demo.yaml"); /* a file here has priority */
    expect_shell(*state, "! prefix/bin/megatrain train configs/demo.yaml --dry-run");
    expect_shell(*state,
                 "test -s prefix/share/man/man1/megatrain.1 && test -s prefix/share/bash-completion/completions/megatrain");
    expect_shell(*state,
                 "cd prefix/share/doc/megatrain && test -s README.md && test -s docs/plan.md && test -s docs/pictures/demo.svg");
    expect_shell(*state,
                 "touch prefix/share/megatrain/mine && make -s -C '" MT_TESTS_DIR
                 "/..' uninstall PREFIX=\"$PWD/prefix\" && test \"$(find prefix -type f)\" = prefix/share/megatrain/mine");
    expect_shell(*state, "! test -e prefix/share/doc/megatrain && ! test -e prefix/share/megatrain/configs");
    expect_shell(*state, "make -s -C '" MT_TESTS_DIR "/..' uninstall PREFIX=\"$PWD/prefix\" 2>&1 | grep 'set PREFIX'");
}

/* scripts/build-note.sh in a folder with this cache of CMake's, beside a driver and an nvcc of this version. */
static void expect_note(const char *dir, const char *cache, const char *nvcc, const char *says)
{
    char script[1024];
    workspace_write(dir, "CMakeCache.txt", cache);
    snprintf(script, sizeof script, "#!/bin/sh\necho 'Cuda compilation tools, release %s, V%s.89'\n", nvcc, nvcc);
    workspace_write(dir, "nvcc", script);
    snprintf(script, sizeof script,
             "chmod +x nvcc nvidia-smi && PATH=\"$PWD:$PATH\" '" MT_TESTS_DIR "/../scripts/build-note.sh' . > note && "
             "if [ -n '%s' ]; then grep -F '%s' note; else ! test -s note; fi",
             says, says);
    expect_shell(dir, script);
}

static void a_build_without_cuda_says_why(void **state)
{
    workspace_write(*state, "nvidia-smi", "#!/bin/sh\n");
    expect_note(*state, "MT_CUDA:STRING=AUTO\n", "11.8", "the CUDA toolkit 11.8 is older than 12.4");
    expect_note(*state, "MT_CUDA:STRING=AUTO\n", "12.10", "the CUDA toolkit 12.10 has no cuBLAS");
    expect_note(*state, "MT_CUDA:STRING=OFF\n", "11.8", "");
    expect_note(*state, "MT_HAVE_CUDA:INTERNAL=1\n", "12.4", "");
}

MT_TEST_MAIN(cmocka_unit_test_setup_teardown(the_installed_demo_runs_from_any_folder, workspace_make, workspace_remove),
             cmocka_unit_test_setup_teardown(a_build_without_cuda_says_why, workspace_make, workspace_remove))
