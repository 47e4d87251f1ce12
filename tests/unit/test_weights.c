/* A checkpoint that does not fit its config: every case named, with what to do.  Made by rewriting a good model with one
 * change. */
#include "rig.h"
#include "workspace.h"

#include "base/log.h"
#include "ckpt/safetensors_write.h"
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>

#define SOURCE MT_TESTS_DIR "/golden/models/llama_default"
#define TIED   MT_TESTS_DIR "/golden/models/llama_tied"
#define VICTIM "model.layers.1.mlp.up_proj.weight"

typedef enum change { NONE, DROP, RESHAPE, RETYPE, PUT_NAN, ADD_EXTRA, ADD_TABLE, ADD_BIAS, DROP_HEAD } change;

static void copy_config(const char *dir)
{
    mt_err err = { 0 };
    char *text, path[512];
    size_t n;
    assert_ok(mt_file_read(&text, &n, SOURCE "/config.json", 1 << 20, &err));
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fwrite(text, 1, n, f);
    fclose(f);
    mt_free(text);
}

/* What a change adds, or NULL. */
static const char *added(change c)
{
    static const char *const names[] = { [ADD_EXTRA] = "model.vision.patch.weight",
                                         [ADD_TABLE] = "model.layers.0.self_attn.rotary_emb.inv_freq",
                                         [ADD_BIAS] = "model.layers.0.self_attn.o_proj.bias",
                                         [DROP_HEAD] = NULL };
    return names[c];
}

static bool is_dropped(const char *name, change c)
{
    return (c == DROP && !strcmp(name, VICTIM)) || (c == DROP_HEAD && !strcmp(name, "lm_head.weight"));
}

static void declare(mt_safetensors_writer *w, const mt_st_tensor *t, change c)
{
    mt_err err = { 0 };
    int64_t shape[2] = { t->shape[0], t->n_dims > 1 ? t->shape[1] : 1 };
    bool victim = strcmp(t->name, VICTIM) == 0;
    if (victim && c == RESHAPE) shape[0] *= 2, shape[1] /= 2;
    assert_ok(mt_safetensors_writer_add(w, t->name, victim && c == RETYPE ? MT_DTYPE_I32 : t->dtype, t->n_dims, shape, &err));
}

/* The source model with one change, in dir. */
static void write_model(const char *dir, change c)
{
    mt_err err = { 0 };
    mt_shards *from;
    mt_safetensors_writer *w;
    char path[512];
    const float one = 1.0f;
    copy_config(dir);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_ok(mt_shards_open(&from, SOURCE, &err));
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    for (size_t i = 0; i < mt_shards_count(from); i++)
        if (!is_dropped(mt_shards_at(from, i)->name, c)) declare(w, mt_shards_at(from, i), c);
    if (added(c)) assert_ok(mt_safetensors_writer_add(w, added(c), MT_DTYPE_F32, 1, (const int64_t[]){ 1 }, &err));
    assert_ok(mt_safetensors_writer_start(w, &err));
    for (size_t i = 0; i < mt_shards_count(from); i++) {
        const mt_st_tensor *t = mt_shards_at(from, i);
        if (is_dropped(t->name, c)) continue;
        float *copy = mt_malloc(t->bytes);
        memcpy(copy, t->data, t->bytes);
        if (c == PUT_NAN && strcmp(t->name, VICTIM) == 0) copy[3] = NAN, copy[4] = INFINITY;
        assert_ok(mt_safetensors_writer_put(w, t->name, 0, copy, t->bytes, &err));
        mt_free(copy);
    }
    if (added(c)) assert_ok(mt_safetensors_writer_put(w, added(c), 0, &one, sizeof one, &err));
    assert_ok(mt_safetensors_writer_finish(w, &err));
    mt_safetensors_writer_free(w);
    mt_shards_close(from);
}

static mt_rc check_model(const char *dir, size_t *unused, mt_err *err)
{
    mt_config *c = NULL;
    mt_shards *s = NULL;
    mt_model *m = NULL;
    char notice[256];
    mt_rc rc = mt_config_open(&c, dir, err);
    if (!rc) rc = mt_shards_open(&s, dir, err);
    if (!rc) rc = mt_weights_model(&m, &c, s, NULL, notice, err);
    if (!rc) rc = mt_weights_check(m, s, unused, err);
    mt_model_free(m);
    mt_shards_close(s);
    mt_config_close(c);
    return rc;
}

static void what_does_not_fit_is_named(void **state)
{
    static const struct {
        change c;
        mt_rc rc;
        const char *says[3];
    } cases[] = {
        { DROP, MT_ENOENT, { "\"" VICTIM "\" is missing", "download both again", "llama" } },
        { RESHAPE, MT_EFORMAT, { VICTIM, "[96, 16], expected [48, 32]", "intermediate_size=48" } },
        { RETYPE, MT_EUNSUPPORTED, { VICTIM, "stored as I32", "F32, BF16 or F16" } },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        write_model(*state, cases[i].c);
        assert_int_equal(check_model(*state, NULL, &err), cases[i].rc);
        for (int k = 0; k < 3; k++) assert_says(cases[i].says[k]);
    }
}

static void tensors_nobody_asks_for_are_counted(void **state)
{
    mt_err err = { 0 };
    size_t unused;
    write_model(*state, ADD_EXTRA);
    assert_ok(check_model(*state, &unused, &err));
    assert_int_equal(unused, 1);
}

/* A tied model and one tensor more, which has the embedding's numbers. */
static size_t unused_beside_tied(const char *dir, const char *name)
{
    mt_err err = { 0 };
    mt_shards *from;
    mt_safetensors_writer *w;
    size_t unused;
    assert_ok(mt_shards_open(&from, TIED, &err));
    assert_ok(mt_safetensors_writer_create(&w, workspace_path("%s/model.safetensors", dir).s, &err));
    const size_t n = mt_shards_count(from);
    const mt_st_tensor *embed = mt_shards_find(from, "model.embed_tokens.weight");
    for (size_t i = 0; i <= n; i++) {
        const mt_st_tensor *t = i < n ? mt_shards_at(from, i) : embed;
        assert_ok(mt_safetensors_writer_add(w, i < n ? t->name : name, t->dtype, t->n_dims, t->shape, &err));
    }
    assert_ok(mt_safetensors_writer_start(w, &err));
    for (size_t i = 0; i <= n; i++) {
        const mt_st_tensor *t = i < n ? mt_shards_at(from, i) : embed;
        assert_ok(mt_safetensors_writer_put(w, i < n ? t->name : name, 0, t->data, t->bytes, &err));
    }
    assert_ok(mt_safetensors_writer_finish(w, &err));
    mt_safetensors_writer_free(w);
    mt_shards_close(from);
    workspace_copy(TIED "/config.json", workspace_path("%s/config.json", dir).s);
    assert_ok(check_model(dir, &unused, &err));
    return unused;
}

static void a_tied_head_is_known_by_its_name(void **state)
{
    assert_int_equal(unused_beside_tied(*state, "lm_head.weight"), 0);
    assert_int_equal(unused_beside_tied(*state, "score.weight"), 1);
}

/* An unknown type, and a tensor more than its family would use. */
static void an_unknown_type_with_something_left_over_is_refused(void **state)
{
    mt_err err = { 0 };
    mt_config *c;
    mt_shards *s;
    char *text, path[512], notice[256];
    assert_ok(mt_file_read(&text, NULL, MT_TESTS_DIR "/golden/models/llama_default/config.json", 1 << 20, &err));
    for (char *p; (p = strstr(text, "llama"));) memcpy(p, "frobn", 5);
    for (char *p; (p = strstr(text, "Llama"));) memcpy(p, "Frobn", 5);
    write_model(*state, ADD_BIAS);
    snprintf(path, sizeof path, "%s/config.json", (const char *)*state);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    mt_free(text);
    assert_ok(mt_config_open(&c, path, &err));
    assert_int_equal(c->n_assumptions, 1);
    assert_ok(mt_shards_open(&s, *state, &err));
    mt_model *m;
    assert_int_equal(mt_weights_model(&m, &c, s, NULL, notice, &err), MT_EUNSUPPORTED);
    assert_says("o_proj.bias");
    assert_says("frobn");
    assert_says("Nearest is llama");
    mt_shards_close(s);
    mt_config_close(c);
}

/* Where config.json names a method, tensors with other names or shapes mean that method, not mixed revisions. */
static void tensors_that_are_quantized_are_called_so(void **state)
{
    mt_err err = { 0 };
    mt_config *c;
    mt_shards *s;
    mt_model *m;
    char notice[256];
    mt_str text = { 0 };
    char *original;
    assert_ok(mt_file_read(&original, NULL, MT_TESTS_DIR "/golden/models/llama_default/config.json", 1 << 20, &err));
    mt_str_printf(&text, "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\"}, %s", strchr(original, '{') + 1);
    mt_free(original);
    write_model(*state, DROP);
    assert_ok(mt_config_parse(&c, text.s, text.n, "config.json", &err));
    assert_ok(mt_shards_open(&s, *state, &err));
    assert_ok(mt_weights_model(&m, &c, s, NULL, notice, &err));
    assert_int_equal(mt_weights_check(m, s, NULL, &err), MT_EUNSUPPORTED);
    assert_says("\"quant_method\" is \"compressed-tensors\"");
    assert_says(" is missing");
    mt_model_free(m);
    mt_shards_close(s);
    mt_config_close(c);
    mt_str_free(&text);
}

/* A reward model's head, and whatever else a class of a known type adds: left as it is, with a warning about the class. */
static void another_class_of_a_known_type_may_leave_something_over(void **state)
{
    mt_err err = { 0 };
    mt_config *c;
    mt_shards *s;
    mt_model *m;
    char *text, path[512], notice[256];
    assert_ok(mt_file_read(&text, NULL, MT_TESTS_DIR "/golden/models/llama_default/config.json", 1 << 20, &err));
    memcpy(strstr(text, "ForCausalLM"), "ForGradesLM", 11);
    write_model(*state, ADD_EXTRA);
    snprintf(path, sizeof path, "%s/config.json", (const char *)*state);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    mt_free(text);
    assert_ok(mt_config_open(&c, path, &err));
    assert_int_equal(c->n_assumptions, 1);
    assert_non_null(strstr(c->assumptions[0], "LlamaForGradesLM"));
    assert_ok(mt_shards_open(&s, *state, &err));
    assert_ok(mt_weights_model(&m, &c, s, NULL, notice, &err));
    assert_ok(mt_weights_check(m, s, NULL, &err));
    mt_model_free(m);
    mt_shards_close(s);
    mt_config_close(c);
}

static void a_model_without_a_head_tensor_is_tied(void **state)
{
    mt_err err = { 0 };
    mt_config *c;
    mt_shards *s;
    char notice[256];
    write_model(*state, DROP_HEAD);
    assert_ok(mt_config_open(&c, *state, &err));
    assert_ok(mt_shards_open(&s, *state, &err));
    assert_true(mt_weights_names(c, s, notice).tied);
    assert_non_null(strstr(notice, "no head tensor"));
    mt_shards_close(s);
    mt_config_close(c);
    /* and the other way: tied by config, two different tensors on disk */
    write_model(*state, NONE);
    assert_ok(mt_config_open(&c, *state, &err));
    assert_ok(mt_shards_open(&s, *state, &err));
    c->tied = true;
    assert_false(mt_weights_names(c, s, notice).tied);
    assert_non_null(strstr(notice, "trained apart"));
    mt_shards_close(s);
    mt_config_close(c);
}

/* An engine for the model in dir, whose weights are not loaded yet. */
static void open_engine(rig *r, const char *dir)
{
    mt_err err = { 0 };
    char notice[256];
    *r = (rig){ 0 };
    assert_ok(mt_config_open(&r->config, dir, &err));
    assert_ok(mt_shards_open(&r->shards, dir, &err));
    assert_ok(mt_weights_model(&r->model, &r->config, r->shards, NULL, notice, &err));
    mt_job job = { .train = true, .clip = true, .step_tokens = 8, .step_docs = 1, .longest = 8 };
    mt_arithmetic a = { .compute = MT_DTYPE_F32, .grad = MT_DTYPE_F32, .micro_tokens = 8, .mlp_rows = 8, .head_rows = 8 };
    assert_ok(mt_plan_choose(&r->plan, r->model, &job, &a, 0, &err));
    assert_ok(
        mt_device_open(&r->dev, "cpu", &(mt_device_options){ .memory_limit = r->plan->device_bytes, .n_threads = 1 }, &err));
    assert_ok(mt_engine_create(&r->engine, r->dev, r->plan, &(mt_engine_options){ .n_workers = 1 }, &err));
}

static void keep_warning(void *user, mt_log_level level, const char *text)
{
    if (level == MT_LOG_WARN) mt_str_puts(user, text);
}

/* A bias that config.json does not mention is part of what was saved; rotary tables are not. */
static void tensors_inside_the_layers_that_nothing_uses_are_named(void **state)
{
    static const struct {
        change c;
        const char *says;
    } cases[] = { { ADD_BIAS, "a llama model with this config.json has none (such tensors in all: 1)" },
                  { ADD_TABLE, NULL },
                  { ADD_EXTRA, NULL } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_str said = { 0 };
        rig r;
        write_model(*state, cases[i].c);
        open_engine(&r, *state);
        mt_log_set_sink(keep_warning, &said);
        assert_ok(mt_engine_load(r.engine, r.model, r.shards, &err));
        mt_log_set_sink(NULL, NULL);
        rig_close(&r);
        assert_true(cases[i].says ? said.n && strstr(said.s, cases[i].says) && strstr(said.s, added(cases[i].c)) : !said.n);
        mt_str_free(&said);
    }
}

static void numbers_that_are_not_finite_are_refused_by_name(void **state)
{
    mt_err err = { 0 };
    rig r;
    write_model(*state, PUT_NAN);
    open_engine(&r, *state);
    assert_int_equal(mt_engine_load(r.engine, r.model, r.shards, &err), MT_ENUMERIC);
    assert_says(VICTIM);
    assert_says("2 of");
    assert_says("model.safetensors");
    assert_int_equal(mt_weights_check_finite(r.shards, &err), MT_ENUMERIC);
    assert_says(VICTIM);
    rig_close(&r);
}

static void fresh_weights_depend_on_seed_and_name_alone(void **state)
{
    (void)state;
    mt_err err = { 0 };
    uint64_t sums[3];
    for (int i = 0; i < 3; i++) {
        rig r;
        mt_plan *plan;
        rig_open_model(&r, SOURCE, NULL);
        mt_job job = rig_job(&r, true);
        mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_F32);
        assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
        rig_start(&r, plan, 1);
        assert_ok(mt_engine_init(r.engine, r.model, i == 2 ? 8 : 7, &err));
        assert_ok(mt_engine_checksum(r.engine, &sums[i], &err));
        mt_step_result s;
        assert_ok(mt_engine_evaluate(r.engine, &r.batch, &s, &err));
        assert_true(fabs(s.loss - log((double)r.config->V)) < 0.1); /* it knows nothing yet */
        rig_close(&r);
    }
    assert_true(sums[0] == sums[1] && sums[0] != sums[2]);
}

/* The root mean square of a freshly made weight of layer 0 (or the embedding), and the largest number of row `row` of it. */
static double fresh_size(rig *r, mt_role role, int64_t row, double *largest)
{
    mt_err err = { 0 };
    double squares = 0;
    *largest = 0;
    for (int u = 0; u < r->model->n_units; u++)
        for (int k = 0; k < r->model->units[u].layout->n_weights; k++) {
            const mt_weight *w = &r->model->units[u].layout->weights[k];
            if (w->role != role) continue;
            uint16_t *hi = calloc((size_t)w->n, sizeof *hi);
            assert_ok(mt_engine_read(r->engine, (mt_state_range){ u, MT_STATE_HI, w->offset, w->n }, hi, &err));
            for (int64_t i = 0; i < w->n; i++) {
                double x = mt_bf16_to_f32(hi[i]);
                squares += x * x;
                if (i / r->config->D == row) *largest = fmax(*largest, fabs(x));
            }
            free(hi);
            return sqrt(squares / (double)w->n);
        }
    fail_msg("no such weight");
    return 0;
}

static void fresh_start(rig *r, const char *dir)
{
    mt_err err = { 0 };
    mt_plan *plan;
    rig_open_model(r, dir, NULL);
    mt_job job = rig_job(r, true);
    mt_arithmetic a = rig_arithmetic(r, MT_DTYPE_F32);
    assert_ok(mt_plan_choose(&plan, r->model, &job, &a, 0, &err));
    rig_start(r, plan, 1);
    assert_ok(mt_engine_init(r->engine, r->model, 7, &err));
}

/* transformers: initializer_range / sqrt(2 n_layer) for c_proj; the padding's row is zero. */
static void fresh_weights_are_as_large_as_transformers_makes_them(void **state)
{
    (void)state;
    rig r;
    double largest;
    fresh_start(&r, MT_TESTS_DIR "/golden/models/gpt2"); /* two layers */
    assert_true(fabs(fresh_size(&r, MT_W_UP, 0, &largest) / 0.02 - 1) < 0.15);
    assert_true(fabs(fresh_size(&r, MT_W_O, 0, &largest) / 0.01 - 1) < 0.15);
    assert_true(fabs(fresh_size(&r, MT_W_DOWN, 0, &largest) / 0.01 - 1) < 0.15);
    rig_close(&r);
    fresh_start(&r, SOURCE);
    assert_true(fabs(fresh_size(&r, MT_W_DOWN, 0, &largest) / 0.02 - 1) < 0.15);
    fresh_size(&r, MT_W_EMBED, 2, &largest);
    assert_true(largest > 0);
    r.config->pad_id = 2;
    mt_err err = { 0 };
    assert_ok(mt_engine_init(r.engine, r.model, 7, &err));
    fresh_size(&r, MT_W_EMBED, 2, &largest);
    assert_true(largest == 0);
    fresh_size(&r, MT_W_EMBED, 3, &largest);
    assert_true(largest > 0);
    rig_close(&r);
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
/* Apertus' files hold the constants of its activation; ours are fixed, so others must not pass unnoticed. */
static void other_constants_of_xielu_are_refused(void **state)
{
    mt_err err = { 0 };
    const char *dir = *state, *source = MT_TESTS_DIR "/golden/models/apertus";
    char from[512], path[512], notice[256], *bytes;
    size_t n;
    uint64_t header;
    const mt_value *doc;
    const float other = 0.75f;
    snprintf(from, sizeof from, "%s/model.safetensors", source);
    assert_ok(mt_file_read(&bytes, &n, from, 1 << 20, &err));
    memcpy(&header, bytes, sizeof header);
    assert_ok(mt_json_parse(&doc, bytes + 8, header, "header", &err));
    const mt_value *beta = mt_value_get(doc, "model.layers.1.mlp.act_fn.beta");
    size_t at = 8 + header + (size_t)mt_value_int(mt_value_at(mt_value_get(beta, "data_offsets"), 0));
    memcpy(bytes + at, &other, sizeof other);
    mt_json_free(doc);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(bytes, 1, n, f);
    fclose(f);
    mt_free(bytes);
    mt_config *config;
    mt_shards *shards;
    mt_model *model;
    assert_ok(mt_config_open(&config, source, &err));
    assert_ok(mt_shards_open(&shards, dir, &err));
    assert_ok(mt_weights_model(&model, &config, shards, NULL, notice, &err));
    assert_int_equal(mt_weights_check(model, shards, NULL, &err), MT_EUNSUPPORTED);
    assert_says("model.layers.1.mlp.act_fn.beta");
    assert_says("0.75");
    mt_model_free(model);
    mt_shards_close(shards);
    mt_config_close(config);
}

MT_TEST_MAIN(IN_TEMPDIR(what_does_not_fit_is_named), IN_TEMPDIR(tensors_nobody_asks_for_are_counted),
             IN_TEMPDIR(a_tied_head_is_known_by_its_name), IN_TEMPDIR(tensors_inside_the_layers_that_nothing_uses_are_named),
             IN_TEMPDIR(an_unknown_type_with_something_left_over_is_refused),
             IN_TEMPDIR(tensors_that_are_quantized_are_called_so),
             IN_TEMPDIR(another_class_of_a_known_type_may_leave_something_over),
             IN_TEMPDIR(a_model_without_a_head_tensor_is_tied), IN_TEMPDIR(numbers_that_are_not_finite_are_refused_by_name),
             IN_TEMPDIR(other_constants_of_xielu_are_refused), cmocka_unit_test(fresh_weights_depend_on_seed_and_name_alone),
             cmocka_unit_test(fresh_weights_are_as_large_as_transformers_makes_them))
