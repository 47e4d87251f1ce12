/* docs/reference/tiny.c, one file that trains a llama over the plain ops, gives the engine's bits: losses, norms, weights and
 * Adam's state, however the engine places and streams what it computes. */
#include "program.h"
#include "rig.h"
#include "tempdir.h"

#include "plan/search.h"

#define MODEL MT_TESTS_DIR "/golden/models/llama_default"

enum { STEPS = 4 };

/* What tiny.c has as constants. */
static const mt_hyper hyper = {
    .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1.0
};

typedef struct trained {
    double losses[STEPS], norms[STEPS];
    char *state; /* of all units: hi, lo, m, v */
    size_t n;
} trained;

/* Rows of a file, `per_step` of them a step, cut into micro-batches of `per_micro` documents. */
typedef struct task {
    const char *tokens;
    int per_step, per_micro;
} task;

/* -- by the reference ------------------------------------------------------------------------------ */

static trained train_tiny(const task *t, const char *dir)
{
    mt_err err = { 0 };
    char command[4096], out[4096], state[1024];
    trained r = { 0 };
    snprintf(state, sizeof state, "%s/state", dir);
    snprintf(command, sizeof command, "'%s' '%s' '%s' %d %d %d '%s' 2>&1", MT_TINY, MODEL, t->tokens, STEPS, t->per_step,
             t->per_micro, state);
    if (run_shell(command, out, sizeof out) != 0) fail_msg("%s\n%s", command, out);
    char *at = out;
    for (int s = 0; s < STEPS; s++) {
        assert_int_equal(strtol(at, &at, 10), s + 1);
        r.losses[s] = strtod(at, &at);
        r.norms[s] = strtod(at, &at);
    }
    assert_ok(mt_file_read(&r.state, &r.n, state, 1 << 24, &err));
    return r;
}

/* -- by the engine --------------------------------------------------------------------------------- */

/* A range of the rig's documents as a separate batch. */
static void batch_of(mt_batch *out, const mt_batch *from, int64_t first, int64_t n)
{
    const int32_t begin = from->doc_start[first], end = from->doc_start[first + n];
    mt_batch_clear(out);
    mt_err err = { 0 };
    for (int64_t d = first; d < first + n; d++)
        assert_ok(mt_batch_add(out, from->ids + from->doc_start[d], NULL, from->doc_start[d + 1] - from->doc_start[d], INT32_MAX,
                               &err));
    memcpy(out->targets, from->targets + begin, (size_t)(end - begin) * sizeof *out->targets); /* as they were masked */
    out->n_trained = 0;
    for (int64_t i = 0; i < out->n_tokens; i++) out->n_trained += out->targets[i] != MT_IGNORE;
}

/* Rows of the largest micro-batch of `per_micro` documents; the engine's setting for the same cut. */
static int64_t micro_tokens(const mt_batch *b, const task *t)
{
    int64_t most = 0;
    for (int64_t d = 0; d < b->n_docs; d += t->per_step)
        for (int64_t k = d; k < d + t->per_step; k += t->per_micro)
            most = mt_max_i64(most, b->doc_start[mt_min_i64(k + t->per_micro, d + t->per_step)] - b->doc_start[k]);
    return most;
}

static void read_state(rig *r, trained *out)
{
    mt_err err = { 0 };
    static const size_t bytes[MT_STATE_KINDS] = { 2, 2, 4, 4 };
    for (int u = 0; u < r->model->n_units; u++) out->n += 12 * (size_t)r->model->units[u].layout->n_elems;
    char *at = out->state = mt_malloc(out->n);
    assert_non_null(at);
    for (int u = 0; u < r->model->n_units; u++)
        for (mt_state_kind k = 0; k < MT_STATE_KINDS; k++) {
            const mt_state_range all = mt_unit_state(r->model, u, k);
            assert_int_equal(all.n, r->model->units[u].layout->n_elems); /* all of it is trained */
            assert_ok(mt_engine_read(r->engine, all, at, &err));
            at += (size_t)all.n * bytes[k];
        }
}

/* least: with as little device memory as works, so that weights and activations stream. */
static trained train_engine(const task *t, bool least)
{
    mt_err err = { 0 };
    rig r;
    trained out = { 0 };
    mt_batch step = { 0 };
    mt_plan *plan;
    rig_open_model(&r, MODEL, NULL);
    mt_batch_free(&r.batch);
    assert_ok(mt_batch_read_json(&r.batch, t->tokens, r.config->V, &err));
    mt_job job = rig_job(&r, true);
    mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_F32);
    job.step_docs = t->per_step;
    a.micro_tokens = micro_tokens(&r.batch, t);
    mt_machine machine = mt_machine_typical();
    mt_need need;
    assert_ok(mt_plan_need(&need, (mt_plan_inputs){ r.model, &job, &a, &machine }, &err));
    assert_ok(mt_plan_choose(&plan, r.model, &job, &a, least ? need.device : 0, &err));
    int n_streamed = 0;
    for (int u = 0; u < r.model->n_units; u++) n_streamed += !plan->place.units[u].resident;
    assert_int_equal(n_streamed > 0, least);
    rig_start_on(&r, "cpu", plan, 2);
    for (int s = 0; s < STEPS; s++) {
        mt_step_result result;
        batch_of(&step, &r.batch, s * t->per_step % r.batch.n_docs, t->per_step);
        assert_ok(mt_engine_step(r.engine, &step, &hyper, &result, &err));
        out.losses[s] = result.loss;
        out.norms[s] = result.grad_norm;
    }
    read_state(&r, &out);
    mt_batch_free(&step);
    rig_close(&r);
    return out;
}

/* -- compared -------------------------------------------------------------------------------------- */

static bool same_bits(const trained *a, const trained *b)
{
    return memcmp(a->losses, b->losses, sizeof a->losses) == 0 && memcmp(a->norms, b->norms, sizeof a->norms) == 0 &&
           a->n == b->n && memcmp(a->state, b->state, a->n) == 0;
}

static void expect_same(const task *t, const char *dir)
{
    trained tiny = train_tiny(t, dir), engine = train_engine(t, false), streamed = train_engine(t, true);
    for (int s = 0; s < STEPS; s++)
        if (tiny.losses[s] != engine.losses[s] || tiny.norms[s] != engine.norms[s])
            fail_msg("step %d: loss %a and norm %a, the engine has %a and %a", s + 1, tiny.losses[s], tiny.norms[s],
                     engine.losses[s], engine.norms[s]);
    assert_true(same_bits(&tiny, &engine));
    assert_true(same_bits(&tiny, &streamed));
    assert_true(tiny.losses[STEPS - 1] < tiny.losses[0]);
    mt_free(tiny.state);
    mt_free(engine.state);
    mt_free(streamed.state);
}

static void one_micro_batch_has_the_bits_of_the_engine(void **state)
{
    expect_same(&(task){ MODEL "/tokens.json", 3, 3 }, *state);
}

static void several_micro_batches_have_the_bits_of_the_engine(void **state)
{
    expect_same(&(task){ MODEL "/tokens.json", 3, 2 }, *state);
    expect_same(&(task){ MODEL "/tokens.json", 3, 1 }, *state);
}

/* Other rows in every other step, and enough of them that the sums over rows have several blocks. */
static void changing_batches_have_the_bits_of_the_engine(void **state)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/rows.json", (const char *)*state);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"input_ids\": [", f);
    for (int d = 0; d < 8; d++) {
        fputs(d ? ", [" : "[", f);
        for (int i = 0; i < 40; i++) fprintf(f, "%s%d", i ? ", " : "", (7 * d + 11 * i + i * i) % 97);
        fputs("]", f);
    }
    fputs("]}\n", f);
    assert_int_equal(fclose(f), 0);
    expect_same(&(task){ path, 4, 4 }, *state);
    expect_same(&(task){ path, 4, 2 }, *state);
}

/* So the comparison can fail: another order of additions shows. */
static void another_cut_has_other_bits(void **state)
{
    trained whole = train_tiny(&(task){ MODEL "/tokens.json", 3, 3 }, *state),
            cut = train_engine(&(task){ MODEL "/tokens.json", 3, 1 }, false);
    assert_false(same_bits(&whole, &cut));
    assert_int_equal(whole.n, cut.n);
    mt_free(whole.state);
    mt_free(cut.state);
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)

MT_TEST_MAIN(IN_TEMPDIR(one_micro_batch_has_the_bits_of_the_engine),
             IN_TEMPDIR(several_micro_batches_have_the_bits_of_the_engine),
             IN_TEMPDIR(changing_batches_have_the_bits_of_the_engine), IN_TEMPDIR(another_cut_has_other_bits))
