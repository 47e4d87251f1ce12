/* Includes point downward only:
 *     cli > api > run > {engine, plan} > {schedule, settings, ckpt, data, hub} > {model, tokenizer, jinja}
 *     model > optim > ops
 *     ops > {device, comm} > base
 *     cli > page > base
 * Folders of one layer may include only themselves: engine and planner both read a plan (schedule/plan.h) and run its steps through
 * the sequencer, and neither knows the other.  Only .cu files see CUDA headers, those named for cuDNN its own, and comm_mpi.c
 * MPI's.
 *
 * In model, products.c alone calls the ops of products with weights (model/products.h).
 *
 * And a type has one meaning: no two headers define types of the same name, though no file may include both. */
#include "test.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>

static const struct {
    const char *folder;
    int level;
} layers[] = {
    { "base", 0 },   { "comm", 1 }, { "device", 1 }, { "ops", 2 },  { "optim", 3 },    { "model", 4 },    { "tokenizer", 4 },
    { "jinja", 4 },  { "ckpt", 5 }, { "data", 5 },   { "hub", 5 },  { "schedule", 5 }, { "settings", 5 }, { "plan", 6 },
    { "engine", 6 }, { "run", 7 },  { "api", 8 },    { "page", 1 }, { "cli", 9 },
};

static int level_of(const char *folder, size_t n)
{
    for (size_t i = 0; i < MT_COUNT(layers); i++)
        if (strlen(layers[i].folder) == n && memcmp(layers[i].folder, folder, n) == 0) return layers[i].level;
    return -1;
}

/* True if a file of `from` may include a header of `to`. */
static bool may_include(const char *from, const char *to, size_t n)
{
    int a = level_of(from, strlen(from)), b = level_of(to, n);
    bool same = strlen(from) == n && memcmp(from, to, n) == 0;
    return b >= 0 && (same || b < a);
}

static int check_file(const char *folder, const char *name)
{
    char path[1024], line[512];
    int bad = 0, number = 0;
    snprintf(path, sizeof path, MT_TESTS_DIR "/../src/%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        number++;
        const char *inc = strncmp(line, "#include \"", 10) == 0 ? line + 10 : NULL, *slash = inc ? strchr(inc, '/') : NULL;
        if (inc && (!slash || !may_include(folder, inc, (size_t)(slash - inc)))) {
            print_error("src/%s/%s:%d: %s", folder, name, number, line);
            bad++;
        }
        bool is_c = strstr(name, ".c") && !strstr(name, ".cu") && !strstr(name, "cudnn");
        if (is_c && (strstr(line, "<cuda") || strstr(line, "<cublas") || strstr(line, "<cudnn"))) {
            print_error("src/%s/%s:%d sees CUDA headers\n", folder, name, number);
            bad++;
        }
        if (strncmp(line, "#include <mpi", 13) == 0 && strcmp(name, "comm_mpi.c") != 0) {
            print_error("src/%s/%s:%d sees MPI's header\n", folder, name, number);
            bad++;
        }
    }
    fclose(f);
    return bad;
}

/* What `check` finds wrong with all sources; *n_files: how many there are. */
static int check_all(int (*check)(const char *folder, const char *name), int *n_files)
{
    int bad = 0;
    *n_files = 0;
    for (size_t i = 0; i < MT_COUNT(layers); i++) {
        char path[1024];
        snprintf(path, sizeof path, MT_TESTS_DIR "/../src/%s", layers[i].folder);
        DIR *d = opendir(path);
        if (!d) continue;
        for (struct dirent *e; (e = readdir(d));)
            if (strstr(e->d_name, ".c") || strstr(e->d_name, ".h")) {
                if (strstr(e->d_name, ".cmake")) continue;
                bad += check(layers[i].folder, e->d_name);
                ++*n_files;
            }
        closedir(d);
    }
    return bad;
}

static void includes_point_downward(void **state)
{
    (void)state;
    int n_files, bad = check_all(check_file, &n_files);
    assert_true(n_files > 40);
    assert_int_equal(bad, 0);
}

static int n_product_calls;

static int check_products(const char *folder, const char *name)
{
    char path[1024], line[512];
    int bad = 0, number = 0;
    if (strcmp(folder, "model") != 0) return 0;
    snprintf(path, sizeof path, MT_TESTS_DIR "/../src/%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        number++;
        if (!strstr(line, "linear_fwd") && !strstr(line, "linear_bwd")) continue;
        if (strcmp(name, "products.c") == 0) {
            n_product_calls++;
            continue;
        }
        print_error("src/%s/%s:%d calls an op of a product: %s", folder, name, number, line);
        bad++;
    }
    fclose(f);
    return bad;
}

static void one_file_of_the_model_computes_products(void **state)
{
    (void)state;
    int n_files, bad = check_all(check_products, &n_files);
    assert_int_equal(n_product_calls, 4); /* linear and grouped_linear, forward and backward */
    assert_int_equal(bad, 0);
}

static struct {
    char name[48], header[80];
} types[1024];
static size_t n_types;

/* The type that ends a line: "} mt_name;". */
static bool defines_type(const char *line, char name[48])
{
    const char *brace = strrchr(line, '}');
    size_t n = 0;
    if (!brace || strncmp(brace, "} mt_", 5) != 0) return false;
    for (const char *c = brace + 2; (isalnum((unsigned char)*c) || *c == '_') && n < 47; c++) name[n++] = *c;
    name[n] = '\0';
    return brace[2 + n] == ';';
}

static int check_types(const char *folder, const char *name)
{
    char path[1024], line[512], type[48];
    int bad = 0;
    if (!strstr(name, ".h")) return 0;
    snprintf(path, sizeof path, MT_TESTS_DIR "/../src/%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (!defines_type(line, type)) continue;
        for (size_t i = 0; i < n_types; i++)
            if (strcmp(types[i].name, type) == 0) {
                print_error("%s is a type of src/%s/%s and another one of src/%s\n", type, folder, name, types[i].header);
                bad++;
            }
        assert_true(n_types < MT_COUNT(types));
        snprintf(types[n_types].name, sizeof types[0].name, "%s", type);
        snprintf(types[n_types++].header, sizeof types[0].header, "%s/%s", folder, name);
    }
    fclose(f);
    return bad;
}

static void a_type_has_one_meaning(void **state)
{
    (void)state;
    int n_files, bad = check_all(check_types, &n_files);
    assert_true(n_types > 200);
    assert_int_equal(bad, 0);
}

static void the_rule_itself_tells_up_from_down(void **state)
{
    (void)state;
    assert_true(may_include("engine", "schedule", 8));
    assert_true(may_include("plan", "schedule", 8));
    assert_false(may_include("engine", "plan", 4));
    assert_true(may_include("ops", "ops", 3));
    assert_false(may_include("plan", "engine", 6));
    assert_true(may_include("run", "engine", 6));
    assert_false(may_include("engine", "run", 3));
    assert_true(may_include("cli", "api", 3));
    assert_false(may_include("run", "api", 3));
    assert_false(may_include("base", "device", 6));
    assert_false(may_include("data", "ckpt", 4));
    assert_false(may_include("cli", "nowhere", 7));
}

MT_TEST_MAIN(cmocka_unit_test(includes_point_downward), cmocka_unit_test(one_file_of_the_model_computes_products),
             cmocka_unit_test(a_type_has_one_meaning), cmocka_unit_test(the_rule_itself_tells_up_from_down))
