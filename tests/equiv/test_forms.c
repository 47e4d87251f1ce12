/* Frozen weights that keep the form of their file: random placements of a model with such weights train to equal bits, and to those
 * of the same model whose weights are expanded when it is loaded.  For every form. */
#include "draw.h"
#include "packed_model.h"
#include "tempdir.h"

#include "base/hash.h"
#include "ckpt/ckpt_state.h"
#include "ckpt/export.h"

#include <stdlib.h>
#include <sys/stat.h>

/* What is frozen: all projections of some layers, or some projections of all. */
static const char *const freezes[][2] = { { "model.layers.1.*", "model.embed_tokens.weight" },
                                          { "*_proj*", "lm_head.weight" },
                                          { "*.mlp.*", "*.q_proj.weight" } };

static void open_packed(rig *r, const char *dir, packed_kind kind, int freeze)
{
    mt_model_options o = { .freeze = freezes[freeze], .n_freeze = 2 };
    packed_write(dir, kind);
    rig_open_model(r, dir, &o);
}

/* The same model, whose frozen weights are kept as halves. */
static void open_expanded(rig *r, const char *dir, int freeze)
{
    mt_err err = { 0 };
    mt_model_options o = { .freeze = freezes[freeze], .n_freeze = 2 };
    rig_open_model(r, dir, &o);
    const mt_file_names names = r->model->names;
    o.names = &names;
    o.unit_experts = rig_unit_experts(r->config);
    mt_model_free(r->model);
    assert_ok(mt_model_create(&r->model, r->config, &o, &err));
}

static size_t packed_bytes_of(const mt_model *m)
{
    size_t n = 0;
    for (int u = 0; u < m->n_units; u++) n += m->units[u].layout->packed_bytes;
    return n;
}

/* Every weight and its moments, weight by weight: layouts differ. */
static uint64_t hash_weights(const rig *r)
{
    mt_err err = { 0 };
    uint64_t h = 0;
    float part[512];
    for (mt_walk at = mt_walk_model(r->model); mt_walk_next(&at);)
        for (mt_state_kind kind = MT_STATE_HI; kind < (at.w->frozen ? MT_STATE_ARRAYS : MT_STATE_KINDS); kind++)
            for (int64_t i = 0; i < at.w->n; i += (int64_t)MT_COUNT(part)) {
                const mt_state_range r1 = { at.unit, kind, at.w->offset + i, mt_min_i64((int64_t)MT_COUNT(part), at.w->n - i) };
                assert_ok(mt_engine_read(r->engine, r1, part, &err));
                h = mt_hash(part, (size_t)r1.n * (mt_state_is_array(kind) ? 4 : 2), h);
            }
    return h;
}

typedef struct trained {
    double loss[3], norm[3];
    uint64_t weights;
} trained;

static void train(rig *r, trained *out)
{
    const mt_hyper h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1.5 };
    mt_err err = { 0 };
    for (int i = 0; i < 3; i++) {
        mt_step_result s;
        assert_ok(mt_engine_step(r->engine, &r->batch, &h, &s, &err));
        assert_false(s.skipped);
        out->loss[i] = s.loss;
        out->norm[i] = s.grad_norm;
    }
    out->weights = hash_weights(r);
}

static mt_plan *draw_plan(const rig *r, mt_job job, const mt_arithmetic *a, uint64_t seed)
{
    mt_err err = { 0 };
    mt_placement p;
    mt_plan *plan;
    dice d = { seed, 0 };
    assert_ok(mt_placement_init(&p, r->model, &err));
    if (mt_arithmetic_parts(a) > 1) job.lanes = 1 + roll(&d, mt_arithmetic_parts(a));
    draw(&p, r->model, &job, a, &d);
    assert_ok(mt_plan_create(&plan, r->model, &job, a, &p, &err));
    mt_placement_free(&p);
    return plan;
}

static mt_arithmetic arithmetic_of(const rig *r, mt_dtype t, int64_t shares)
{
    return (mt_arithmetic){
        .compute = t, .grad = t, .micro_tokens = r->batch.longest, .mlp_rows = 5, .head_rows = 4, .shares = shares
    };
}

static void compare(rig *r, mt_dtype t, int64_t shares, int draws, uint64_t seed, const char *what, trained *first, bool *known)
{
    const mt_arithmetic a = arithmetic_of(r, t, shares);
    for (int i = 0; i < draws; i++) {
        trained now;
        rig_start_dawdling(r, draw_plan(r, rig_job(r, seed % 2), &a, seed + (uint64_t)i), 1 + i % 3, i % 2 ? 200 : 0);
        train(r, &now);
        rig_stop(r);
        if (!*known) *first = now;
        *known = true;
        if (memcmp(&now, first, sizeof now) != 0)
            fail_msg("%s, %s, placement %d: losses %.9g %.9g %.9g, the first had %.9g %.9g %.9g; weights %s", what,
                     mt_dtype_name(t), i, now.loss[0], now.loss[1], now.loss[2], first->loss[0], first->loss[1], first->loss[2],
                     now.weights == first->weights ? "equal" : "different");
    }
}

static void expanded_in_the_ring_is_expanded_at_load(void **state)
{
    const char *env = getenv("MT_DRAWS");
    const int draws = env ? atoi(env) : 6;
    for (int kind = 0; kind < PACKED_KINDS; kind++)
        for (int i = 0; i < 4; i++) {
            const mt_dtype t = i % 2 ? MT_DTYPE_F32 : MT_DTYPE_BF16;
            const int freeze = (kind + i) % (int)MT_COUNT(freezes), shares = i < 2 ? 1 : i; /* several lanes, too */
            trained first;
            bool known = false;
            rig packed, expanded;
            open_packed(&packed, *state, (packed_kind)kind, freeze);
            if (kind != PACKED_MXFP4 || freeze != 2) assert_true(packed_bytes_of(packed.model) > 0);
            open_expanded(&expanded, *state, freeze);
            assert_int_equal(packed_bytes_of(expanded.model), 0);
            const uint64_t seed = (uint64_t)(100 * kind + 1000 * i + i % 2);
            compare(&expanded, t, shares, 2, seed + 50, packed_name((packed_kind)kind), &first, &known);
            compare(&packed, t, shares, draws, seed, packed_name((packed_kind)kind), &first, &known);
            rig_close(&packed);
            rig_close(&expanded);
        }
}

/* -- plans ----------------------------------------------------------------------------------------- */

/* Host memory with all state there. */
static size_t host_bytes(const rig *r, mt_dtype t)
{
    mt_err err = { 0 };
    mt_placement p;
    mt_plan *plan;
    const mt_arithmetic a = arithmetic_of(r, t, 1);
    const mt_job job = rig_job(r, true);
    assert_ok(mt_placement_init(&p, r->model, &err));
    p.sweep_tokens = job.step_tokens;
    mt_placement_set_slots(&p, r->model, 1, 1, 1);
    for (int l = 0; l < r->config->L; l++) p.layers[l] = (mt_layer_place){ MT_KEEP_INPUT, MT_DEVICE };
    assert_ok(mt_plan_create(&plan, r->model, &job, &a, &p, &err));
    const size_t bytes = plan->host_bytes;
    mt_plan_free(plan);
    mt_placement_free(&p);
    return bytes;
}

/* The file's bytes take the place of 2 or 4 a number. */
static void plans_count_the_bytes_of_the_form(void **state)
{
    for (int kind = 0; kind < PACKED_KINDS; kind++) {
        rig packed, expanded;
        size_t saved = 0;
        open_packed(&packed, *state, (packed_kind)kind, 1);
        open_expanded(&expanded, *state, 1);
        for (mt_walk at = mt_walk_model(packed.model); mt_walk_next(&at);)
            if (at.w->packing.form != MT_FORM_NUMBERS) saved += 4 * (size_t)at.w->n;
        saved -= packed_bytes_of(packed.model);
        for (int f32 = 0; f32 < 2; f32++) {
            const mt_dtype t = f32 ? MT_DTYPE_F32 : MT_DTYPE_BF16;
            const size_t less = host_bytes(&expanded, t) - host_bytes(&packed, t), slack = 1 << 15; /* buffers are rounded up */
            if (less + slack < saved || less > saved + slack)
                fail_msg("%s: %zu bytes less, %zu expected", packed_name((packed_kind)kind), less, saved);
        }
        rig_close(&packed);
        rig_close(&expanded);
    }
}

/* -- checkpoints ----------------------------------------------------------------------------------- */

static mt_rc read_state(void *engine, mt_state_range r, void *dst, mt_err *err) { return mt_engine_read(engine, r, dst, err); }
static mt_rc write_state(void *engine, mt_state_range r, const void *src, mt_err *err)
{
    return mt_engine_write(engine, r, src, err);
}

static mt_state_io io_of(rig *r) { return (mt_state_io){ .user = r->engine, .read = read_state, .write = write_state }; }

static void start(rig *r, uint64_t seed)
{
    const mt_arithmetic a = arithmetic_of(r, MT_DTYPE_BF16, 1);
    rig_start(r, draw_plan(r, rig_job(r, true), &a, seed), 2);
}

static void save(rig *r, const char *dir)
{
    mt_err err = { 0 };
    const mt_state_io io = io_of(r);
    for (int f = 0; f < mt__ckpt_files(r->model); f++) assert_ok(mt__ckpt_write_file(dir, r->model, f, &io, &err));
}

static mt_rc load(rig *r, const char *dir, mt_err *err)
{
    const mt_state_io io = io_of(r);
    mt_rc rc = MT_OK;
    for (int f = 0; !rc && f < mt__ckpt_files(r->model); f++) rc = mt__ckpt_load_file(dir, r->model, f, &io, err);
    return rc;
}

static int64_t file_bytes(const char *dir, const mt_model *m)
{
    int64_t sum = 0;
    for (int f = 0; f < mt__ckpt_files(m); f++) {
        char *path = mt_asprintf("%s/" MT__CKPT_UNIT, dir, f);
        struct stat s;
        assert_int_equal(stat(path, &s), 0);
        sum += s.st_size;
        mt_free(path);
    }
    return sum;
}

/* From packed to packed the bytes are stored, once; from a checkpoint that has halves of them, those are compared. */
static void checkpoints_keep_packed_weights(void **state)
{
    const int all = 1; /* projections */
    void *dir;         /* for checkpoints: their files are not among the model's */
    assert_int_equal(tempdir_make(&dir), 0);
    for (int kind = 0; kind < PACKED_KINDS; kind++) {
        mt_err err = { 0 };
        trained now;
        int64_t bytes[2];
        rig packed, expanded, again;
        open_packed(&packed, *state, (packed_kind)kind, all);
        open_expanded(&expanded, *state, all);
        rig_open_model(&again, *state, &(mt_model_options){ .freeze = freezes[all], .n_freeze = 2 });
        start(&packed, 1);
        start(&expanded, 2);
        train(&packed, &now);
        train(&expanded, &now);
        save(&packed, dir);
        bytes[0] = file_bytes(dir, packed.model);
        start(&again, 3);
        assert_ok(load(&again, dir, &err));
        assert_true(hash_weights(&again) == now.weights);
        rig_stop(&again);
        save(&expanded, dir);
        bytes[1] = file_bytes(dir, packed.model);
        start(&again, 4);
        assert_ok(load(&again, dir, &err)); /* as an older version wrote it */
        assert_true(hash_weights(&again) == now.weights);
        assert_true(bytes[1] - bytes[0] > (int64_t)packed_bytes_of(packed.model) / 2);
        rig_close(&packed);
        rig_close(&expanded);
        rig_close(&again);
    }
    assert_int_equal(tempdir_remove(&dir), 0);
}

static void other_weights_are_not_taken_for_packed_ones(void **state)
{
    mt_err err = { 0 };
    trained now;
    rig trained_ones, packed, thawed;
    void *dir; /* for checkpoints: their files are not among the model's */
    assert_int_equal(tempdir_make(&dir), 0);
    packed_write(*state, PACKED_NF4);
    rig_open_model(&trained_ones, *state, NULL);
    start(&trained_ones, 1);
    train(&trained_ones, &now);
    save(&trained_ones, dir);
    rig_open_model(&packed, *state, &(mt_model_options){ .freeze = freezes[1], .n_freeze = 2 });
    start(&packed, 2);
    assert_int_equal(load(&packed, dir, &err), MT_EFORMAT);
    assert_says("frozen now and quantized in the model's files have other values here");
    rig_stop(&packed);
    start(&packed, 3);
    save(&packed, dir);
    rig_open_model(&thawed, *state, NULL);
    start(&thawed, 4);
    err = (mt_err){ 0 };
    assert_int_equal(load(&thawed, dir, &err), MT_EINVAL);
    assert_says("the weight was frozen then, as the model's files pack it");
    rig_close(&trained_ones);
    rig_close(&packed);
    rig_close(&thawed);
    assert_int_equal(tempdir_remove(&dir), 0);
}

/* -- exports --------------------------------------------------------------------------------------- */

static bool export_to(rig *r, const char *from, const char *to)
{
    mt_err err = { 0 };
    mt_side_files files;
    const mt_state_io io = io_of(r);
    mt_shards *written;
    assert_ok(mt_side_files_read(&files, from, &err));
    mt_export x = { .model = r->model, .files = &files, .source = r->shards, .dtype = MT_DTYPE_COUNT, .end_of_turn = -1 };
    x.keeps_forms = mt_export_may_keep(&x);
    assert_ok(mt_export_write(&x, &io, to, &err));
    assert_ok(mt_shards_open(&written, to, &err)); /* config.json tells how int4 is to be read */
    assert_int_equal(mt_shards_count(written), mt_shards_count(r->shards));
    assert_int_equal(mt_shards_quantised(written, &(const char *){ NULL }) > 0, x.keeps_forms);
    mt_shards_close(written);
    mt_side_files_free(&files);
    return x.keeps_forms;
}

static mt_safetensors *open_weights(const char *dir)
{
    mt_err err = { 0 };
    mt_safetensors *f;
    char path[1200];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_ok(mt_safetensors_open(&f, path, &err));
    return f;
}

/* How many tensors of the first file are in the second with the same bytes. */
static size_t count_equal(const char *from, const char *to)
{
    size_t n = 0;
    mt_safetensors *a = open_weights(from), *b = open_weights(to);
    assert_int_equal(mt_safetensors_count(a), mt_safetensors_count(b));
    for (size_t i = 0; i < mt_safetensors_count(a); i++) {
        const mt_st_tensor *x = mt_safetensors_at(a, i), *y = mt_safetensors_find(b, x->name);
        if (!y) fail_msg("%s was not saved", x->name);
        n += x->dtype == y->dtype && x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0;
    }
    mt_safetensors_close(a);
    mt_safetensors_close(b);
    return n;
}

/* Trained: the norms, and what the patterns leave.  All else has the file's bytes. */
static void an_export_gives_back_the_bytes_of_the_file(void **state)
{
    for (int kind = 0; kind < PACKED_KINDS; kind++) {
        void *to;
        trained ignored;
        rig r;
        open_packed(&r, *state, (packed_kind)kind, 1);
        assert_int_equal(tempdir_make(&to), 0);
        start(&r, 1);
        train(&r, &ignored);
        assert_int_equal(export_to(&r, *state, to), kind != PACKED_GGUF); /* in safetensors there is no such form */
        if (kind != PACKED_GGUF) {
            size_t n_trained = 0;
            for (mt_walk at = mt_walk_model(r.model); mt_walk_next(&at);)
                n_trained += !at.w->frozen && mt_weight_leads(at.u, at.w);
            mt_safetensors *source = open_weights(*state);
            const size_t all = mt_safetensors_count(source), equal = count_equal(*state, to);
            mt_safetensors_close(source);
            if (equal < all - n_trained)
                fail_msg("%s: %zu of %zu are equal, %zu trained", packed_name((packed_kind)kind), equal, all, n_trained);
        }
        assert_int_equal(tempdir_remove(&to), 0);
        rig_close(&r);
    }
}

/* Then config.json could not say which are quantized. */
static void an_export_with_trained_ones_among_them_has_numbers(void **state)
{
    void *to;
    rig r;
    open_packed(&r, *state, PACKED_NF4, 2);
    assert_int_equal(tempdir_make(&to), 0);
    start(&r, 1);
    assert_false(export_to(&r, *state, to));
    assert_int_equal(tempdir_remove(&to), 0);
    rig_close(&r);
}

/* -- damage ---------------------------------------------------------------------------------------- */

/* A scale that is not a number names its tensor. */
static void packed_weights_that_are_not_finite_are_refused(void **state)
{
    mt_err err = { 0 };
    rig r;
    packed_write(*state, PACKED_FP8);
    char path[1200];
    snprintf(path, sizeof path, "%s/model.safetensors", (const char *)*state);
    mt_safetensors *file;
    assert_ok(mt_safetensors_open(&file, path, &err));
    const mt_st_tensor *t = mt_safetensors_find(file, "model.layers.1.mlp.up_proj.weight_scale_inv");
    const long at = (long)(t->data - t->map->data);
    mt_safetensors_close(file);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(&(float){ NAN }, sizeof(float), 1, f), 1);
    assert_int_equal(fclose(f), 0);
    rig_open_model(&r, *state, &(mt_model_options){ .freeze = freezes[1], .n_freeze = 2 });
    const mt_arithmetic a = arithmetic_of(&r, MT_DTYPE_BF16, 1);
    r.plan = draw_plan(&r, rig_job(&r, true), &a, 1);
    assert_ok(mt_device_open(&r.dev, rig_device(), NULL, &err));
    assert_ok(mt_engine_create(&r.engine, r.dev, r.plan, &(mt_engine_options){ .n_workers = 2 }, &err));
    assert_int_equal(mt_engine_load(r.engine, r.model, r.shards, &err), MT_ENUMERIC);
    assert_says("tensor \"model.layers.1.mlp.up_proj.weight\"");
    rig_close(&r);
}

#define with_dir(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
RIG_TEST_MAIN(with_dir(expanded_in_the_ring_is_expanded_at_load), with_dir(plans_count_the_bytes_of_the_form),
              with_dir(checkpoints_keep_packed_weights), with_dir(an_export_gives_back_the_bytes_of_the_file),
              with_dir(an_export_with_trained_ones_among_them_has_numbers), with_dir(other_weights_are_not_taken_for_packed_ones),
              with_dir(packed_weights_that_are_not_finite_are_refused))
