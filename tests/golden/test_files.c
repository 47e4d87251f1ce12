/* The golden files themselves: every case is complete, its parts fit each other, and the comparison that the other
 * golden tests rest on notices what it should. */
#include "golden.h"

#include "base/file.h"
#include "base/json.h"
#include "ckpt/shards.h"

#include <dirent.h>

typedef void (*case_fn)(const char *name);

static void for_each_case(case_fn fn)
{
    int n = 0;
    DIR *d = opendir(GOLDEN_DIR);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        char *path = mt_path_join(GOLDEN_DIR, e->d_name);
        assert_non_null(path);
        if (e->d_name[0] != '.' && e->d_name[0] != '_' && mt_dir_exists(path)) {
            fn(e->d_name);
            n++;
        }
        mt_free(path);
    }
    closedir(d);
    assert_true(n >= 54);
}

static const mt_value *read_json(const char *name, const char *file)
{
    mt_err err = { 0 };
    const mt_value *v;
    char path[1024];
    snprintf(path, sizeof path, "%s%s/%s", GOLDEN_DIR, name, file);
    assert_ok(mt_json_read(&v, path, &err));
    return v;
}

static mt_shards *open_model(const char *name)
{
    mt_err err = { 0 };
    mt_shards *s = NULL;
    char path[1024];
    snprintf(path, sizeof path, "%s%s", GOLDEN_DIR, name);
    assert_ok(mt_shards_open(&s, path, &err));
    return s;
}

static void assert_same_shape(const mt_st_tensor *a, const mt_safetensors *st, const char *prefix)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s", prefix, a->name);
    const mt_st_tensor *b = mt_safetensors_find(st, name);
    if (!b) fail_msg("%s has no %s", mt_safetensors_path(st), name);
    assert_int_equal(b->dtype, MT_DTYPE_F32);
    assert_int_equal(a->n_dims, b->n_dims);
    assert_memory_equal(a->shape, b->shape, sizeof *a->shape * (size_t)a->n_dims);
}

/* Not trained: parts of a multimodal model, a layer that predicts a token further, constants of an activation. */
static bool is_foreign(const mt_st_tensor *t)
{
    static const char *const parts[] = { "vision_tower.", "model.visual.", "mtp.", "vision_model.", "multi_modal_projector." };
    static const char *const inside[] = { ".eh_proj.", ".enorm.", ".act_fn.beta", ".act_fn.eps" };
    for (size_t i = 0; i < MT_COUNT(parts); i++)
        if (strncmp(t->name, parts[i], strlen(parts[i])) == 0) return true;
    for (size_t i = 0; i < MT_COUNT(inside); i++)
        if (strstr(t->name, inside[i])) return true;
    return false;
}

/* Nothing trains the correction bias of a router. */
static bool is_fixed(const mt_st_tensor *t) { return strstr(t->name, "e_score_correction_bias"); }

static void parameters_fit(const char *name)
{
    mt_shards *model = open_model(name);
    mt_safetensors *expected = golden_open(name, "expected.safetensors"), *adamw = golden_open(name, "adamw.safetensors");
    size_t n_files = mt_shards_count(model), n = n_files, n_adamw = mt_safetensors_count(adamw);
    for (size_t i = 0; i < n_files; i++) n -= is_foreign(mt_shards_at(model, i));
    assert_true(n_adamw == n || n_adamw == 3 * n);
    for (size_t i = 0; i < n_files; i++) {
        if (is_foreign(mt_shards_at(model, i))) continue;
        if (!is_fixed(mt_shards_at(model, i))) assert_same_shape(mt_shards_at(model, i), expected, "grad.");
        assert_same_shape(mt_shards_at(model, i), adamw, "w.");
        if (n_adamw == 3 * n) {
            assert_same_shape(mt_shards_at(model, i), adamw, "m.");
            assert_same_shape(mt_shards_at(model, i), adamw, "v.");
        }
    }
    mt_safetensors_close(adamw);
    mt_safetensors_close(expected);
    mt_shards_close(model);
}

static void every_parameter_has_gradient_and_updated_value(void **state)
{
    (void)state;
    for_each_case(parameters_fit);
}

static void rows_fit(const char *name)
{
    mt_safetensors *expected = golden_open(name, "expected.safetensors");
    const mt_value *tokens = read_json(name, "tokens.json"), *config = read_json(name, "config.json");
    const mt_value *rows = mt_value_get(tokens, "input_ids"), *labels = mt_value_get(tokens, "labels");
    const mt_value *text = mt_value_get(config, "text_config"), *said = mt_value_get(text ? text : config, "vocab_size");
    int64_t n_vocab = mt_value_int(said ? said : mt_value_get(config, "padded_vocab_size"));
    assert_true(mt_value_items(rows) >= 2);
    assert_true(!labels || mt_value_items(labels) == mt_value_items(rows));
    for (size_t i = 0; i < mt_value_items(rows); i++) {
        char logits[32];
        snprintf(logits, sizeof logits, "logits.%zu", i);
        const mt_st_tensor *t = mt_safetensors_find(expected, logits);
        assert_non_null(t);
        size_t n = mt_value_items(mt_value_at(rows, i));
        assert_true(t->n_dims == 2 && (size_t)t->shape[0] == n && t->shape[1] == n_vocab);
        assert_true(!labels || mt_value_items(mt_value_at(labels, i)) == n);
    }
    mt_json_free(config);
    mt_json_free(tokens);
    mt_safetensors_close(expected);
}

static void every_row_has_its_logits(void **state)
{
    (void)state;
    for_each_case(rows_fit);
}

/* log p(target) from one row of logits. */
static double log_p(const float *z, size_t n, int64_t target)
{
    double max = z[0], sum = 0;
    for (size_t i = 1; i < n; i++) max = fmax(max, (double)z[i]);
    for (size_t i = 0; i < n; i++) sum += exp((double)z[i] - max);
    return (double)z[target] - max - log(sum);
}

static void loss_fits(const char *name)
{
    mt_safetensors *expected = golden_open(name, "expected.safetensors");
    const mt_value *tokens = read_json(name, "tokens.json"), *steps = read_json(name, "steps.json");
    const mt_value *labels = mt_value_get(tokens, "labels");
    if (!labels) labels = mt_value_get(tokens, "input_ids");
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < mt_value_items(labels); i++) {
        char logits[32];
        snprintf(logits, sizeof logits, "logits.%zu", i);
        const mt_st_tensor *t = mt_safetensors_find(expected, logits);
        size_t n_vocab = (size_t)t->shape[1];
        float *z = mt_malloc(t->bytes);
        assert_non_null(z);
        mt_to_f32(z, t->data, t->dtype, t->n);
        for (size_t k = 1; k < mt_value_items(mt_value_at(labels, i)); k++) {
            int64_t target = mt_value_int(mt_value_at(mt_value_at(labels, i), k));
            if (target == -100) continue;
            sum -= log_p(z + (k - 1) * n_vocab, n_vocab, target);
            count++;
        }
        mt_free(z);
    }
    float loss = (float)(sum / (double)count);
    float first = (float)mt_value_number(mt_value_at(mt_value_get(steps, "losses"), 0));
    assert_true(golden_near(expected, "loss", &loss, 1, GOLDEN_LOSS));
    assert_true(golden_near(expected, "loss", &first, 1, GOLDEN_LOSS));
    mt_json_free(steps);
    mt_json_free(tokens);
    mt_safetensors_close(expected);
}

static void the_loss_is_the_mean_over_trained_targets_of_all_rows(void **state)
{
    (void)state;
    for_each_case(loss_fits);
}

static void steps_clip_sometimes(const char *name)
{
    const mt_value *steps = read_json(name, "steps.json");
    const mt_value *norms = mt_value_get(steps, "grad_norms"), *clipped = mt_value_get(steps, "clipped");
    double max_norm = mt_value_number(mt_value_get(steps, "max_norm"));
    int n_clipped = 0;
    assert_int_equal(mt_value_items(norms), 10);
    for (size_t i = 0; i < 10; i++) {
        bool clips = mt_value_number(mt_value_at(norms, i)) > max_norm;
        assert_int_equal(clips, mt_value_is_true(mt_value_at(clipped, i)));
        n_clipped += clips;
    }
    assert_true(n_clipped >= 3 && n_clipped < 10);
    mt_json_free(steps);
}

static void some_steps_clip_and_some_do_not(void **state)
{
    (void)state;
    for_each_case(steps_clip_sometimes);
}

static void the_comparison_notices_small_and_odd_differences(void **state)
{
    (void)state;
    const float b[4] = { 1, -2, 3, 4 }, zero[4] = { 0 }, off[4] = { 1, -2, 3, 4.01f }, bad[4] = { 1, -2, 3, NAN };
    assert_true(golden_distance(b, b, 4) == 0);
    assert_true(fabs(golden_distance(off, b, 4) - 0.01 / sqrt(30)) < 1e-6);
    assert_true(golden_distance(b, zero, 4) > 1);
    assert_false(golden_distance(bad, b, 4) <= 1);
}

MT_TEST_MAIN(cmocka_unit_test(every_parameter_has_gradient_and_updated_value), cmocka_unit_test(every_row_has_its_logits),
             cmocka_unit_test(the_loss_is_the_mean_over_trained_targets_of_all_rows),
             cmocka_unit_test(some_steps_clip_and_some_do_not),
             cmocka_unit_test(the_comparison_notices_small_and_odd_differences))
