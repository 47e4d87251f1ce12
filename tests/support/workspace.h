/* workspace.h - a small run for tests: a directory with a model that is made from scratch, rows of tokens, and a place for
 * output.
 *
 *     cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)      *state is the directory
 *         DIR/model/config.json    DIR/rows.json    DIR/<output directories> */
#ifndef MT_TEST_WORKSPACE_H
#define MT_TEST_WORKSPACE_H

#include "tempdir.h"

#include "base/rng.h"
#include "base/str.h"
#include "ckpt/outdir.h"

#include <sys/stat.h>

enum { WORKSPACE_VOCAB = 61, WORKSPACE_LAYERS = 6 };

/* A path by value: workspace_path("%s/out", dir).s */
typedef struct test_path {
    char s[2048];
} test_path;

static inline test_path workspace_path(const char *fmt, ...)
{
    test_path p;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(p.s, sizeof p.s, fmt, args);
    va_end(args);
    assert_true(n > 0 && (size_t)n < sizeof p.s);
    return p;
}

/* An empty directory ROOT/NAME, whatever an earlier case has left there. */
static inline test_path workspace_case(const char *root, const char *name)
{
    mt_err err = { 0 };
    test_path dir = workspace_path("%s/%s", root, name);
    assert_ok(mt_dir_remove(dir.s, &err));
    assert_int_equal(mkdir(dir.s, 0777), 0);
    return dir;
}

static inline void workspace_write(const char *dir, const char *name, const char *text)
{
    FILE *f = fopen(workspace_path("%s/%s", dir, name).s, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static inline void workspace_copy(const char *from, const char *to)
{
    mt_err err = { 0 };
    mt_map map;
    assert_ok(mt_map_open(&map, from, &err));
    assert_ok(mt_outfile_save(to, map.data, map.size, &err));
    mt_map_close(&map);
}

static inline void workspace_write_config(const char *dir, const char *name, int layers)
{
    char text[1024];
    snprintf(
        text, sizeof text,
        "{\n  \"architectures\": [\"Qwen3ForCausalLM\"],\n  \"model_type\": \"qwen3\",\n  \"hidden_act\": \"silu\",\n  "
        "\"hidden_size\": 32,\n"
        "  \"intermediate_size\": 64,\n  \"num_hidden_layers\": %d,\n  \"num_attention_heads\": 4,\n  \"num_key_value_heads\": "
        "2,\n  \"head_dim\": 8,\n"
        "  \"vocab_size\": %d,\n  \"max_position_embeddings\": 128,\n  \"rms_norm_eps\": 1e-06,\n  \"rope_theta\": 10000.0,\n"
        "  \"tie_word_embeddings\": false,\n  \"torch_dtype\": \"bfloat16\",\n  \"eos_token_id\": 2\n}\n",
        layers, WORKSPACE_VOCAB);
    workspace_write(dir, name, text);
}

/* Rows with something to learn: each token follows from the one before. */
static inline void workspace_write_rows(const char *dir, const char *name, int n, uint64_t seed)
{
    mt_str s = { 0 };
    mt_str_puts(&s, "{\"input_ids\": [");
    for (int i = 0; i < n; i++) {
        int len = 6 + (int)mt_rng_below(seed, 1, (uint64_t)i, 12), x = 3 + (int)((11 * seed + (uint64_t)i) % 50);
        mt_str_puts(&s, i ? ", [" : "[");
        for (int k = 0; k < len; k++, x = (x * 5 + 7) % WORKSPACE_VOCAB) mt_str_printf(&s, "%s%d", k ? ", " : "", x);
        mt_str_puts(&s, "]");
    }
    mt_str_puts(&s, "]}");
    workspace_write(dir, name, s.s);
    mt_str_free(&s);
}

static inline int workspace_make(void **state)
{
    if (tempdir_make(state)) return -1;
    if (mkdir(workspace_path("%s/model", (char *)*state).s, 0777)) return -1;
    workspace_write_config(*state, "model/config.json", WORKSPACE_LAYERS);
    workspace_write_rows(*state, "rows.json", 40, 7);
    return 0;
}

static inline int workspace_remove(void **state)
{
    mt_err err = { 0 };
    mt_rc rc = mt_dir_remove(*state, &err);
    mt_free(*state);
    return rc ? -1 : 0;
}

/* -- comparing ------------------------------------------------------------------------------------- */

static inline bool workspace_same_file(const char *a, const char *b)
{
    mt_err err = { 0 };
    mt_map x, y;
    if (mt_map_open(&x, a, &err)) return false;
    if (mt_map_open(&y, b, &err)) {
        mt_map_close(&x);
        return false;
    }
    bool same = x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
    mt_map_close(&x);
    mt_map_close(&y);
    return same;
}

/* Files that tell when and where things happened: the lock, the log, the plan (of the memory that was free then), the page that
 * shows them, and the list of files, which has the order in which they came. */
static inline bool workspace_tells_time(const char *name)
{
    static const char *const names[] = { ".lock", ".files", "log.txt", "plan.json", "report.html" };
    for (size_t i = 0; i < MT_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* The first difference of two directories, newly allocated, or NULL: none.  What tells the time has to be there, no more. */
static inline char *workspace_difference(const char *a, const char *b)
{
    mt_err err = { 0 };
    mt_dir_names x, y;
    char *what = NULL;
    assert_ok(mt_dir_list(&x, a, &err));
    assert_ok(mt_dir_list(&y, b, &err));
    if (x.n != y.n) what = mt_asprintf("%s has %zu entries, %s has %zu", a, x.n, b, y.n);
    for (size_t i = 0; !what && i < x.n; i++) {
        test_path p = workspace_path("%s/%s", a, x.items[i]), q = workspace_path("%s/%s", b, x.items[i]);
        if (workspace_tells_time(x.items[i])) continue;
        if (mt_dir_exists(p.s))
            what = mt_dir_exists(q.s) ? workspace_difference(p.s, q.s) : mt_asprintf("%s is not there", q.s);
        else if (!workspace_same_file(p.s, q.s))
            what = mt_asprintf("%s and %s differ", p.s, q.s);
    }
    mt_dir_names_free(&x);
    mt_dir_names_free(&y);
    return what;
}

#endif
