/* src/ckpt/checkpoint.c, export.c, manifest.c, outdir.c: what is written is what is read, whole or not at all. */
#include "workspace.h"

#include "base/fault.h"
#include "base/json.h"
#include "base/log.h"
#include "base/split.h"
#include "ckpt/checkpoint.h"
#include "ckpt/checksum.h"
#include "ckpt/manifest.h"
#include "run/output_dir.h"

#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>

/* -- a model without an engine ---------------------------------------------------------------------- */

typedef struct fake {
    mt_config *config;
    mt_model *model;
    char **state[MT_STATE_KINDS]; /* [kind][unit] */
    mt_export export;
    mt_side_files files;
    mt_state_io io;
    atomic_int *n_done;
    test_path source;
} fake;

static const size_t sizes[MT_STATE_KINDS] = { 2, 2, 4, 4 };

static mt_rc fake_read(void *user, mt_state_range r, void *dst, mt_err *err)
{
    (void)err;
    memcpy(dst, ((fake *)user)->state[r.kind][r.unit] + (size_t)r.first * sizes[r.kind], (size_t)r.n * sizes[r.kind]);
    return MT_OK;
}

static mt_rc fake_write(void *user, mt_state_range r, const void *src, mt_err *err)
{
    (void)err;
    memcpy(((fake *)user)->state[r.kind][r.unit] + (size_t)r.first * sizes[r.kind], src, (size_t)r.n * sizes[r.kind]);
    return MT_OK;
}

static float number(uint64_t seed, int unit, int kind, int64_t i)
{
    float x = mt_rng_normal(seed, (uint64_t)(unit * 8 + kind), (uint64_t)i);
    return kind == MT_STATE_ARRAYS + 1 ? x * x : x;
}

static void fill(fake *f, uint64_t seed)
{
    for (int u = 0; u < f->model->n_units; u++)
        for (int k = 0; k < f->model->units[u].layout->n_weights; k++) {
            const mt_weight *w = &f->model->units[u].layout->weights[k];
            for (int64_t i = w->offset; i < w->offset + w->n; i++) {
                mt_split(number(seed, u, 0, i), (uint16_t *)(void *)f->state[MT_STATE_HI][u] + i,
                         (int16_t *)(void *)f->state[MT_STATE_LO][u] + i);
                for (int kind = MT_STATE_ARRAYS; kind <= MT_STATE_ARRAYS + 1 && !w->frozen; kind++)
                    ((float *)(void *)f->state[kind][u])[i] = number(seed, u, kind, i);
            }
        }
}

static void fake_open(fake *f, const char *root, const char *const *freeze, size_t n_freeze)
{
    mt_err err = { 0 };
    *f = (fake){ .source = workspace_path("%s/model", root) };
    assert_ok(mt_config_open(&f->config, f->source.s, &err));
    assert_ok(mt_side_files_read(&f->files, f->source.s, &err));
    assert_ok(mt_model_create(&f->model, f->config, &(mt_model_options){ .freeze = freeze, .n_freeze = n_freeze }, &err));
    for (int kind = 0; kind < MT_STATE_KINDS; kind++) {
        f->state[kind] = calloc((size_t)f->model->n_units, sizeof *f->state[kind]);
        for (int u = 0; u < f->model->n_units; u++)
            f->state[kind][u] = calloc((size_t)f->model->units[u].layout->n_elems, sizes[kind]);
    }
    f->io = (mt_state_io){ .user = f, .read = fake_read, .write = fake_write };
    f->export = (mt_export){ .model = f->model, .files = &f->files, .dtype = MT_DTYPE_COUNT, .end_of_turn = -1 };
}

static void fake_close(fake *f)
{
    for (int kind = 0; kind < MT_STATE_KINDS; kind++) {
        for (int u = 0; u < f->model->n_units; u++) free(f->state[kind][u]);
        free(f->state[kind]);
    }
    mt_model_free(f->model);
    mt_config_close(f->config);
    mt_side_files_free(&f->files);
}

static bool same_state(const fake *a, const fake *b)
{
    for (int kind = 0; kind < MT_STATE_KINDS; kind++)
        for (int u = 0; u < a->model->n_units; u++)
            if (memcmp(a->state[kind][u], b->state[kind][u], (size_t)a->model->units[u].layout->n_elems * sizes[kind]) != 0)
                return false;
    return true;
}

static const mt_ckpt_file files[] = { { "state.json", "{}", 2 } };

static mt_ckpt_save save_of(const fake *f, const char *root, int64_t step)
{
    return (mt_ckpt_save){ .output_dir = root, .step = step, .model = &f->export, .io = &f->io, .files = files, .n_files = 1 };
}

/* -- claims ---------------------------------------------------------------------------------------- */

static void what_is_written_is_what_is_read(void **state)
{
    fake a, b;
    mt_err err = { 0 };
    const char *const freeze[] = { "model.layers.1.*" };
    fake_open(&a, *state, freeze, 1);
    fake_open(&b, *state, freeze, 1);
    fill(&a, 1);
    mt_ckpt_save s = save_of(&a, *state, 7);
    assert_ok(mt_ckpt_write(&s, &err));
    test_path path = workspace_path("%s/checkpoint-7", (char *)*state);
    assert_ok(mt_ckpt_verify(path.s, &err));
    assert_false(same_state(&a, &b));
    assert_ok(mt_ckpt_load(path.s, b.model, &b.io, &err));
    assert_true(same_state(&a, &b));
    fake_close(&a);
    fake_close(&b);
}

/* Files of the model may be called anything; the list of a checkpoint's files must not take them for damage. */
static void odd_names_of_a_models_files_are_no_damage(void **state)
{
    fake a;
    mt_err err = { 0 };
    fake_open(&a, *state, NULL, 0);
    fill(&a, 3);
    workspace_write(*state, "model/a..py", "pass");
    workspace_write(*state, "model/...py", "pass");
    workspace_write(*state, "model/mod\xe8le.py", "pass"); /* Latin-1 */
    mt_side_files_free(&a.files);
    assert_ok(mt_side_files_read(&a.files, a.source.s, &err));
    mt_ckpt_save s = save_of(&a, *state, 7);
    assert_ok(mt_ckpt_write(&s, &err));
    test_path path = workspace_path("%s/checkpoint-7", (char *)*state);
    assert_true(mt_file_exists(workspace_path("%s/a..py", path.s).s));
    assert_ok(mt_ckpt_verify(path.s, &err));
    fake_close(&a);
}

/* Masters one below, at and above the middle between two bf16 numbers: the file rounds to even, and the run continues exactly. */
static void bf16_files_hold_the_master_rounded_to_even(void **state)
{
    fake a, b;
    mt_err err = { 0 };
    const uint32_t bits[] = { 0x3f800000, 0x3f807fff, 0x3f808000, 0x3f808001, 0x3f817fff,
                              0x3f818000, 0x3f818001, 0xbf808000, 0xbf818000 };
    fake_open(&a, *state, NULL, 0);
    fake_open(&b, *state, NULL, 0);
    fill(&a, 2);
    for (size_t i = 0; i < MT_COUNT(bits); i++)
        mt_split(mt_f32_from_bits(bits[i]), (uint16_t *)(void *)a.state[MT_STATE_HI][0] + i,
                 (int16_t *)(void *)a.state[MT_STATE_LO][0] + i);
    mt_ckpt_save s = save_of(&a, *state, 1);
    assert_ok(mt_ckpt_write(&s, &err));
    mt_safetensors *st;
    assert_ok(mt_safetensors_open(&st, workspace_path("%s/checkpoint-1/model.safetensors", (char *)*state).s, &err));
    const mt_st_tensor *t = mt_safetensors_find(st, "model.embed_tokens.weight");
    assert_non_null(t);
    assert_int_equal(t->dtype, MT_DTYPE_BF16);
    for (size_t i = 0; i < MT_COUNT(bits); i++) {
        uint16_t got;
        memcpy(&got, t->data + 2 * i, 2);
        assert_int_equal(got, mt_f32_to_bf16(mt_f32_from_bits(bits[i])));
    }
    mt_safetensors_close(st);
    assert_ok(mt_ckpt_load(workspace_path("%s/checkpoint-1", (char *)*state).s, b.model, &b.io, &err));
    assert_true(same_state(&a, &b));
    fake_close(&a);
    fake_close(&b);
}

/* Each file operation fails once: the write fails, nothing of it is left, and the checkpoint before it is whole. */
static void fail_every_file_operation(void **state, int n_threads)
{
    fake a;
    mt_err err = { 0 };
    long n = 0;
    fake_open(&a, *state, NULL, 0);
    fill(&a, 3);
    a.io.n_readers = n_threads;
    mt_ckpt_save s = save_of(&a, *state, 1);
    assert_ok(mt_ckpt_write(&s, &err));
    s.step = 2;
    for (;; n++) {
        mt_fault_arm(MT_FAULT_FILE, n);
        mt_rc rc = mt_ckpt_write(&s, &err);
        if (!mt_fault_disarm()) break;
        mt_ckpt_list l;
        mt_err other = { 0 };
        assert_ok(mt_ckpt_verify(workspace_path("%s/checkpoint-1", (char *)*state).s, &other));
        assert_ok(mt_ckpt_list_open(&l, *state, &other));
        if (rc) assert_non_null(strstr(err.msg, "checkpoint-2"));
        if (l.n == 2)
            assert_ok(
                mt_ckpt_verify(workspace_path("%s/checkpoint-2", (char *)*state).s, &other)); /* renamed, then the sync failed */
        mt_ckpt_list_free(&l);
        assert_ok(mt_dir_remove(workspace_path("%s/checkpoint-2", (char *)*state).s, &other));
        assert_ok(mt_output_dir_sweep(&(mt_output_dir){ .path = *state }, &other));
    }
    assert_true(n > 60);
    fake_close(&a);
}

static void every_file_operation_that_fails_leaves_the_one_before_whole(void **state) { fail_every_file_operation(state, 1); }
static void so_it_is_with_several_threads(void **state) { fail_every_file_operation(state, 4); }

static void count_done(void *user, int unit)
{
    (void)unit;
    atomic_fetch_add(((fake *)user)->n_done, 1);
}

static void however_many_threads_write_or_read_it_is_the_same(void **state)
{
    fake a, b;
    mt_err err = { 0 };
    atomic_int n_done = 0;
    fake_open(&a, *state, NULL, 0);
    fill(&a, 5);
    a.n_done = &n_done;
    a.io.done = count_done;
    for (int64_t i = 1; i <= 3; i++) {
        mt_ckpt_save s = save_of(&a, *state, i);
        a.io.n_readers = (int[]){ 1, 4, 64 }[i - 1];
        s.backwards = i == 3;
        assert_ok(mt_ckpt_write(&s, &err));
        assert_null(workspace_difference(workspace_path("%s/checkpoint-1", (char *)*state).s,
                                         workspace_path("%s/checkpoint-%d", (char *)*state, (int)i).s));
    }
    assert_int_equal(n_done, 3 * a.model->n_units);
    fake_open(&b, *state, NULL, 0);
    b.io.n_writers = 4;
    assert_ok(mt_ckpt_load(workspace_path("%s/checkpoint-2", (char *)*state).s, b.model, &b.io, &err));
    assert_true(same_state(&a, &b));
    fake_close(&b);
    fake_close(&a);
}

/* -- several processes ------------------------------------------------------------------------------- */

enum { MOST_RANKS = 5 };

typedef struct team {
    int n;
    mt_ckpt_writer *ranks[MOST_RANKS];
    int n_files[MOST_RANKS]; /* files that each has written; unknown for the first */
} team;

/* Rank 0 first, as it makes the directory; each rank only if all before it did well. */
static mt_rc team_put(team *t, const mt_ckpt_save *s, mt_err *err)
{
    for (int r = 0; r < t->n; r++) {
        mt_ckpt_save own = *s;
        own.rank = r;
        own.n_ranks = t->n;
        own.mark = 0x1234;
        MT_TRY(mt_ckpt_writer_open(&t->ranks[r], &own, err));
    }
    for (int r = 0; r < t->n; r++) MT_TRY(mt_ckpt_writer_start(t->ranks[r], err));
    for (int r = t->n - 1; r >= 0; r--) MT_TRY(mt_ckpt_writer_put(t->ranks[r], err));
    return MT_OK;
}

/* What all ranks but `silent` have written reaches the first. */
static mt_rc team_take(team *t, int silent, mt_err *err)
{
    for (int r = 1; r < t->n; r++)
        for (mt_ckpt_written f; r != silent && mt_ckpt_writer_written(t->ranks[r], t->n_files[r], &f); t->n_files[r]++)
            MT_TRY(mt_ckpt_writer_take(t->ranks[0], &f, err));
    return MT_OK;
}

static void team_close(team *t)
{
    for (int r = 0; r < t->n; r++) mt_ckpt_writer_close(t->ranks[r]);
}

/* Weights in several files, or in one; with resume/, or without. */
static void check_team(const char *root, const fake *f, bool only_model)
{
    mt_err err = { 0 };
    mt_ckpt_save s = save_of(f, root, 1);
    s.only_model = only_model;
    assert_ok(mt_ckpt_write(&s, &err));
    for (s.step = 2; s.step <= MOST_RANKS; s.step++) {
        team t = { .n = (int)s.step };
        int readers = 0;
        atomic_store(f->n_done, 0);
        assert_ok(team_put(&t, &s, &err));
        for (int u = 0; u < f->model->n_units; u++) {
            readers += mt_ckpt_writer_readers(t.ranks[0], u);
            for (int r = 0; r < t.n; r++)
                assert_int_equal(mt_ckpt_writer_readers(t.ranks[r], u), mt_ckpt_writer_readers(t.ranks[0], u));
        }
        assert_int_equal(atomic_load(f->n_done), readers);
        assert_ok(team_take(&t, -1, &err));
        assert_false(mt_dir_exists(workspace_path("%s/checkpoint-%d", root, t.n).s));
        assert_ok(mt_ckpt_writer_publish(t.ranks[0], &err));
        for (int r = 1; r < t.n && !only_model; r++) assert_true(t.n_files[r] > 0);
        team_close(&t);
        char *difference = workspace_difference(workspace_path("%s/checkpoint-1", root).s,
                                                workspace_path("%s/checkpoint-%d", root, (int)s.step).s);
        if (difference) fail_msg("%d ranks: %s", (int)s.step, difference);
    }
}

static void however_many_ranks_write_it_is_the_same(void **state)
{
    fake a;
    mt_err err = { 0 };
    atomic_int n_done = 0;
    const char *const freeze[] = { "model.layers.1.*" };
    fake_open(&a, *state, freeze, 1);
    fill(&a, 6);
    a.n_done = &n_done;
    a.io.done = count_done;
    for (int i = 0; i < 4; i++) {
        const test_path dir = workspace_path("%s/%d", (char *)*state, i);
        assert_ok(mt_dir_make(dir.s, &err));
        a.export.max_shard_bytes = i & 1 ? 30000 : 0;
        a.io.n_readers = i & 1 ? 4 : 1;
        check_team(dir.s, &a, i & 2);
    }
    fake_close(&a);
}

static void a_rank_that_has_not_written_leaves_no_checkpoint(void **state)
{
    fake a;
    fake_open(&a, *state, NULL, 0);
    fill(&a, 7);
    const mt_ckpt_save s = save_of(&a, *state, 1);
    for (int silent = 1; silent < 3; silent++) {
        mt_err err = { 0 };
        team t = { .n = 3 };
        assert_ok(team_put(&t, &s, &err));
        assert_ok(team_take(&t, silent, &err));
        assert_int_equal(mt_ckpt_writer_publish(t.ranks[0], &err), MT_EINTERNAL);
        assert_says("no rank has written resume/unit-");
        assert_int_equal(mt_ckpt_writer_take(t.ranks[0], &(mt_ckpt_written){ .file = 1000 }, &err), MT_EINTERNAL);
        team_close(&t);
        assert_int_equal(tempdir_count(*state, ".tmp"), 0);
        assert_false(mt_dir_exists(workspace_path("%s/checkpoint-1", (char *)*state).s));
    }
    fake_close(&a);
}

/* Whatever fails, on whichever rank, nothing has the checkpoint's name, or all of it is there. */
static void a_file_that_fails_on_any_rank_leaves_the_one_before_whole(void **state)
{
    fake a;
    mt_err err = { 0 };
    long n = 0;
    fake_open(&a, *state, NULL, 0);
    fill(&a, 8);
    a.export.max_shard_bytes = 30000;
    mt_ckpt_save s = save_of(&a, *state, 1);
    const test_path before = workspace_path("%s/checkpoint-1", (char *)*state),
                    path = workspace_path("%s/checkpoint-2", (char *)*state);
    assert_ok(mt_ckpt_write(&s, &err));
    s.step = 2;
    for (bool failed = true; failed; n++) {
        team t = { .n = 3 };
        mt_err why = { 0 };
        mt_fault_arm(MT_FAULT_FILE, n);
        mt_rc rc = team_put(&t, &s, &err);
        if (!rc) rc = team_take(&t, -1, &err);
        if (!rc) rc = mt_ckpt_writer_publish(t.ranks[0], &err);
        failed = mt_fault_disarm();
        team_close(&t);
        assert_ok(mt_ckpt_verify(before.s, &why));
        if (mt_dir_exists(path.s))
            assert_ok(mt_ckpt_verify(path.s, &why)); /* renamed, then the sync failed */
        else
            assert_true(rc);
        assert_ok(mt_dir_remove(path.s, &why));
        assert_ok(mt_output_dir_sweep(&(mt_output_dir){ .path = *state }, &why));
        assert_int_equal(tempdir_count(*state, ".tmp"), 0);
    }
    assert_true(n > 60);
    fake_close(&a);
}

/* A rank of an earlier run that is cut off from the others has another mark. */
static void an_earlier_attempt_cannot_reach_the_files_of_this_one(void **state)
{
    fake a;
    mt_err err = { 0 };
    mt_ckpt_writer *late, *now;
    fake_open(&a, *state, NULL, 0);
    fill(&a, 9);
    mt_ckpt_save s = save_of(&a, *state, 1);
    s.rank = 1, s.n_ranks = 2, s.mark = 0xfedcba9876543210;
    assert_ok(mt_ckpt_writer_open(&late, &s, &err));
    assert_ok(mt_dir_make(workspace_path("%s/checkpoint-1.fedcba9876543210.tmp/resume", (char *)*state).s, &err));
    assert_ok(mt_ckpt_writer_start(late, &err));
    s.rank = 0, s.n_ranks = 1, s.mark = 7;
    assert_ok(mt_output_dir_sweep(&(mt_output_dir){ .path = *state }, &err)); /* the new run removes what the old one left */
    assert_ok(mt_ckpt_writer_open(&now, &s, &err));
    assert_ok(mt_ckpt_writer_start(now, &err));
    assert_int_equal(mt_ckpt_writer_put(late, &err), MT_EIO);
    assert_ok(mt_ckpt_writer_put(now, &err));
    assert_ok(mt_ckpt_writer_publish(now, &err));
    mt_ckpt_writer_close(late);
    mt_ckpt_writer_close(now);
    assert_ok(mt_ckpt_verify(workspace_path("%s/checkpoint-1", (char *)*state).s, &err));
    assert_int_equal(tempdir_count(*state, ".tmp"), 0);
    fake_close(&a);
}

/* In their order, each to the rank that has least: no two ranks differ by more than one file. */
static void files_are_dealt_by_their_bytes(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++) {
        mt_err err = { 0 };
        mt_writers w;
        uint64_t largest = 0, bytes[9] = { 0 };
        assert_ok(mt_writers_init(&w, 0, n, &err));
        for (uint64_t i = 0; i < 200; i++) {
            const uint64_t size = 1 + mt_rng_below(3, (uint64_t)n, i, i % 10 ? 1000 : 20000);
            const int rank = mt_writers_deal(&w, size);
            assert_in_range(rank, 0, n - 1);
            bytes[rank] += size;
            if (size > largest) largest = size;
        }
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++) assert_true(bytes[a] <= bytes[b] + largest);
        mt_writers_deinit(&w);
        assert_ok(mt_writers_init(&w, 0, n, &err));
        for (int i = 0; i < 30; i++) assert_int_equal(mt_writers_deal(&w, 5), i % n); /* equal ones in turn */
        mt_writers_deinit(&w);
    }
}

static void numbers_that_are_not_finite_are_never_saved(void **state)
{
    fake a;
    mt_err err = { 0 };
    fake_open(&a, *state, NULL, 0);
    mt_ckpt_save s = save_of(&a, *state, 3);
    for (int kind = 0; kind < MT_STATE_KINDS; kind++) {
        if (kind == MT_STATE_LO) continue;
        fill(&a, 4);
        if (kind == MT_STATE_HI)
            ((uint16_t *)(void *)a.state[kind][2])[5] = 0x7fc0;
        else
            ((float *)(void *)a.state[kind][2])[5] = INFINITY;
        assert_int_equal(mt_ckpt_write(&s, &err), MT_ENUMERIC);
        assert_says("not finite");
        assert_false(mt_dir_exists(workspace_path("%s/checkpoint-3", (char *)*state).s));
        assert_false(mt_dir_exists(workspace_path("%s/checkpoint-3.tmp", (char *)*state).s));
        fill(&a, 4);
        ((float *)(void *)a.state[MT_STATE_ARRAYS][2])[5] = 0;
        ((float *)(void *)a.state[MT_STATE_ARRAYS + 1][2])[5] = 0;
    }
    fake_close(&a);
}

static void count_warnings(void *user, mt_log_level level, const char *text)
{
    (void)text;
    if (level == MT_LOG_WARN) ++*(int *)user;
}

static void the_newest_whole_one_is_found_and_old_ones_go(void **state)
{
    fake a;
    mt_err err = { 0 };
    char *newest = NULL;
    int warnings = 0;
    fake_open(&a, *state, NULL, 0);
    fill(&a, 5);
    for (int64_t step = 8; step <= 11; step++) { /* 10 is newer than 9, whatever their names sort like */
        mt_ckpt_save s = save_of(&a, *state, step);
        assert_ok(mt_ckpt_write(&s, &err));
        assert_ok(mt_ckpt_prune(*state, 3, &err));
    }
    mt_ckpt_list l;
    assert_ok(mt_ckpt_list_open(&l, *state, &err));
    assert_int_equal(l.n, 3);
    assert_int_equal(l.steps[0], 9);
    mt_ckpt_list_free(&l);
    assert_int_equal(truncate(workspace_path("%s/checkpoint-11/resume/unit-000.safetensors", (char *)*state).s, 100), 0);
    assert_int_equal(unlink(workspace_path("%s/checkpoint-10/" MT_MANIFEST_NAME, (char *)*state).s), 0);
    mt_log_set_sink(count_warnings, &warnings);
    assert_ok(mt_ckpt_find_newest(&newest, *state, &err));
    mt_log_set_sink(NULL, NULL);
    assert_non_null(newest);
    assert_non_null(strstr(newest, "checkpoint-9"));
    assert_int_equal(warnings, 2);
    mt_free(newest);
    fake_close(&a);
}

/* No run names a directory like that, so it is not a run's, and does not stand in the way of one. */
static void a_name_with_leading_zeros_is_not_a_checkpoint(void **state)
{
    fake a;
    mt_err err = { 0 };
    char *newest = NULL;
    fake_open(&a, *state, NULL, 0);
    fill(&a, 5);
    mt_ckpt_save s = save_of(&a, *state, 8);
    assert_ok(mt_ckpt_write(&s, &err));
    assert_int_equal(mkdir(workspace_path("%s/checkpoint-0012", (char *)*state).s, 0777), 0);
    assert_ok(mt_ckpt_find_newest(&newest, *state, &err));
    assert_non_null(newest);
    assert_string_equal(mt_path_base(newest), "checkpoint-8");
    assert_ok(mt_ckpt_prune(*state, 1, &err));
    assert_true(mt_dir_exists(newest));
    mt_free(newest);
    int64_t step = -1;
    assert_true(mt_ckpt_step_of("checkpoint-0", &step) && step == 0);
    fake_close(&a);
}

/* Rights, open files, a mount that is away: it may be whole, and stays what it is called. */
static void a_checkpoint_that_cannot_be_read_is_not_called_damaged(void **state)
{
    fake a;
    mt_err err = { 0 };
    char *newest = NULL;
    long n = 0;
    fake_open(&a, *state, NULL, 0);
    fill(&a, 5);
    mt_ckpt_save s = save_of(&a, *state, 1);
    assert_ok(mt_ckpt_write(&s, &err));
    for (;; n++) {
        mt_fault_arm(MT_FAULT_FILE, n);
        mt_rc rc = mt_ckpt_find_newest(&newest, *state, &err);
        if (!mt_fault_disarm()) break;
        assert_int_equal(rc, MT_EIO);
        assert_null(newest);
        assert_true(mt_dir_exists(workspace_path("%s/checkpoint-1", (char *)*state).s));
    }
    assert_true(n > 10);
    assert_non_null(newest);
    mt_free(newest);
    fake_close(&a);
}

/* What was pruned may stay; what was half-made may not: its name is needed again. */
static void an_old_one_that_cannot_be_removed_is_said_and_stays(void **state)
{
    static const char *const names[] = { "checkpoint-1.old.tmp", "checkpoint-1.tmp" };
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        mt_err err = { 0 };
        int warnings = 0;
        test_path dir = workspace_path("%s/%s", (char *)*state, names[i]);
        assert_int_equal(mkdir(dir.s, 0777), 0);
        mt_log_set_sink(count_warnings, &warnings);
        mt_fault_arm(MT_FAULT_FILE, 3); /* past looking into the directory, twice, and into this one */
        assert_int_equal(mt_output_dir_sweep(&(mt_output_dir){ .path = *state }, &err), i == 0 ? MT_OK : MT_EIO);
        assert_true(mt_fault_disarm());
        mt_log_set_sink(NULL, NULL);
        assert_int_equal(warnings, i == 0);
        assert_true(mt_dir_exists(dir.s));
        assert_ok(mt_output_dir_sweep(&(mt_output_dir){ .path = *state }, &err));
        assert_false(mt_dir_exists(dir.s));
    }
}

static void another_models_checkpoint_is_refused_by_name(void **state)
{
    fake a, b;
    mt_err err = { 0 };
    fake_open(&a, *state, NULL, 0);
    fill(&a, 6);
    mt_ckpt_save s = save_of(&a, *state, 1);
    assert_ok(mt_ckpt_write(&s, &err));
    workspace_write_config(*state, "model/config.json", WORKSPACE_LAYERS + 1);
    fake_open(&b, *state, NULL, 0);
    assert_int_equal(mt_ckpt_load(workspace_path("%s/checkpoint-1", (char *)*state).s, b.model, &b.io, &err), MT_EINVAL);
    assert_says("another model");
    fake_close(&a);
    fake_close(&b);
}

static void a_changed_bit_changes_the_checksum(void **state)
{
    (void)state;
    unsigned char bytes[200];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 37);
    uint64_t whole = mt_checksum(bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_true(mt_checksum(bytes, sizeof bytes) != whole);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t n = 0; n < sizeof bytes; n++) assert_true(mt_checksum(bytes, n) != whole);
    assert_true(mt_checksum(bytes, sizeof bytes) == whole);
}

/* -- exported directories -------------------------------------------------------------------------- */

/* With the files now beside the model. */
static void export_to(fake *f, const char *dir)
{
    mt_err err = { 0 };
    mt_side_files_free(&f->files);
    assert_ok(mt_side_files_read(&f->files, f->source.s, &err));
    assert_ok(mt_dir_make(dir, &err));
    assert_ok(mt_export_write(&f->export, &f->io, dir, &err));
}

static const mt_value *read_json(const char *dir, const char *name)
{
    mt_err err = { 0 };
    const mt_value *doc = NULL;
    assert_ok(mt_json_read(&doc, workspace_path("%s/%s", dir, name).s, &err));
    return doc;
}

static void a_config_that_is_still_true_is_copied_byte_for_byte(void **state)
{
    fake a;
    mt_err err = { 0 };
    test_path out = workspace_path("%s/export", (char *)*state);
    fake_open(&a, *state, NULL, 0);
    fill(&a, 7);
    workspace_write(*state, "model/tokenizer.json", "{\"version\": \"1.0\"}");
    workspace_write(*state, "model/secret.txt", "not a model's file");
    assert_ok(mt_dir_make(workspace_path("%s/additional_chat_templates", a.source.s).s, &err));
    workspace_write(*state, "model/additional_chat_templates/tool_use.jinja", "{{ tools }}");
    workspace_write(*state, "model/additional_chat_templates/rag.jinja", "{{ documents }}");
    export_to(&a, out.s);
    assert_true(workspace_same_file(workspace_path("%s/config.json", a.source.s).s, workspace_path("%s/config.json", out.s).s));
    assert_true(
        workspace_same_file(workspace_path("%s/tokenizer.json", a.source.s).s, workspace_path("%s/tokenizer.json", out.s).s));
    assert_false(mt_file_exists(workspace_path("%s/secret.txt", out.s).s));
    assert_true(workspace_same_file(workspace_path("%s/additional_chat_templates/tool_use.jinja", a.source.s).s,
                                    workspace_path("%s/additional_chat_templates/tool_use.jinja", out.s).s));
    assert_true(workspace_same_file(workspace_path("%s/additional_chat_templates/rag.jinja", a.source.s).s,
                                    workspace_path("%s/additional_chat_templates/rag.jinja", out.s).s));
    fake_close(&a);
}

static void a_template_of_the_run_takes_the_place_of_the_models(void **state)
{
    fake a;
    mt_err err = { 0 };
    char *text;
    size_t n;
    test_path out = workspace_path("%s/export", (char *)*state);
    fake_open(&a, *state, NULL, 0);
    fill(&a, 8);
    workspace_write(*state, "model/tokenizer_config.json", "{\"eos_token\": \"</s>\", \"chat_template\": \"old\"}");
    workspace_write(*state, "model/chat_template.json", "{\"chat_template\": \"old\"}");
    workspace_write(*state, "model/chat_template.jinja", "old");
    workspace_write(*state, "model/tekken.json", "{}");
    a.export.chat_template = "{{ \"new\" }}\n";
    export_to(&a, out.s);
    assert_false(mt_file_exists(workspace_path("%s/tekken.json", out.s).s));
    assert_ok(mt_file_read(&text, &n, workspace_path("%s/chat_template.jinja", out.s).s, 1000, &err));
    assert_string_equal(text, "{{ \"new\" }}\n");
    const mt_value *tokenizer = read_json(out.s, "tokenizer_config.json");
    assert_string_equal(mt_json_string(mt_value_get(tokenizer, "chat_template")), "{{ \"new\" }}\n");
    assert_false(mt_file_exists(workspace_path("%s/chat_template.json", out.s).s));
    mt_json_free(tokenizer);
    mt_free(text);
    fake_close(&a);
}

static void the_trained_end_of_turn_is_among_the_eos_ids(void **state)
{
    fake a;
    test_path out = workspace_path("%s/export", (char *)*state);
    fake_open(&a, *state, NULL, 0);
    fill(&a, 8);
    workspace_write(*state, "model/generation_config.json", "{\"temperature\": 0.6, \"eos_token_id\": [2, 5]}");
    workspace_write(*state, "model/tokenizer_config.json", "{\"eos_token\": \"</s>\", \"model_max_length\": 1e30}");
    workspace_write(*state, "model/special_tokens_map.json", "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}}");
    a.export.end_of_turn = 9;
    a.export.end_of_turn_text = "<|end|>";
    export_to(&a, out.s);
    const mt_value *config = read_json(out.s, "config.json"), *generation = read_json(out.s, "generation_config.json"),
                   *tokenizer = read_json(out.s, "tokenizer_config.json"), *map = read_json(out.s, "special_tokens_map.json");
    assert_int_equal(mt_value_items(mt_value_get(config, "eos_token_id")), 2);
    assert_int_equal(mt_value_int(mt_value_at(mt_value_get(generation, "eos_token_id"), 2)), 9);
    assert_true(mt_value_number(mt_value_get(generation, "temperature")) == 0.6);
    assert_string_equal(mt_json_string(mt_value_get(tokenizer, "eos_token")), "<|end|>");
    assert_string_equal(mt_json_string(mt_value_get(map, "eos_token")), "<|end|>"); /* transformers may prefer this one */
    assert_string_equal(mt_json_string(mt_value_get(map, "bos_token")), "<s>");
    mt_json_free(map);
    assert_true(mt_value_number(mt_value_get(config, "rms_norm_eps")) == 1e-6);
    mt_json_free(config);
    mt_json_free(generation);
    mt_json_free(tokenizer);
    fake_close(&a);
}

/* A base model's vocabulary has the marks of turns as ordinary tokens: saved as they are, they would be cut to pieces. */
static void tokens_that_became_special_are_saved_so(void **state)
{
    fake a;
    mt_err err = { 0 };
    mt_tokenizer *tok;
    static const char json[] =
        "{\"added_tokens\": [], \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {\"a\": 0, \"<|end|>\": 7}}}";
    static const char *const marks[] = { "<|end|>", "<|none|>", "a" };
    test_path out = workspace_path("%s/export", (char *)*state);
    fake_open(&a, *state, NULL, 0);
    fill(&a, 8);
    workspace_write(*state, "model/tokenizer_config.json", "{\"added_tokens_decoder\": {\"1\": {\"content\": \"<s>\"}}}");
    assert_ok(mt_tokenizer_open_json(&tok, json, sizeof json - 1, "tokenizer.json", &err));
    assert_ok(mt_tokenizer_adopt(tok, marks, 2, &err));
    a.export.tokenizer = tok;
    export_to(&a, out.s);
    const mt_value *tokenizer = read_json(out.s, "tokenizer_config.json"), *all = mt_value_get(tokenizer, "added_tokens_decoder"),
                   *end = mt_value_get(all, "7");
    assert_int_equal(mt_value_pairs(all), 2);
    assert_string_equal(mt_json_string(mt_value_get(end, "content")), "<|end|>");
    assert_true(mt_value_get(end, "special")->b && !mt_value_get(end, "normalized")->b);
    mt_json_free(tokenizer);
    mt_tokenizer_close(tok);
    fake_close(&a);
}

static char *text_of(const char *dir, const char *name)
{
    mt_err err = { 0 };
    char *text;
    size_t n;
    assert_ok(mt_file_read(&text, &n, workspace_path("%s/%s", dir, name).s, 1 << 20, &err));
    return text;
}

/* Into a file of its own and into tokenizer_config.json, which is made where there is none. */
static void the_template_that_was_trained_with_is_saved(void **state)
{
    static const char template[] = "{{ 'Q: ' ~ messages[0]['content'] }}";
    const char *root = *state;
    for (int i = 0; i < 3; i++) {
        fake a;
        fake_open(&a, root, NULL, 0);
        fill(&a, 1);
        if (i == 1)
            workspace_write(root, "model/tokenizer_config.json", "{\"model_max_length\": 512, \"chat_template\": \"old\"}");
        if (i == 2) workspace_write(root, "model/chat_template.jinja", "old");
        a.export.chat_template = template;
        test_path dir = workspace_path("%s/out%d", root, i);
        export_to(&a, dir.s);
        char *config = text_of(dir.s, "tokenizer_config.json"), *jinja = text_of(dir.s, "chat_template.jinja");
        assert_non_null(strstr(config, "\"chat_template\": \"{{ 'Q: ' ~ messages[0]['content'] }}\""));
        assert_null(strstr(config, "old"));
        if (i == 1) assert_non_null(strstr(config, "\"model_max_length\": 512"));
        assert_string_equal(jinja, template);
        mt_free(config);
        mt_free(jinja);
        fake_close(&a);
    }
}

static void one_dtype_for_all_is_written_in_the_config_too(void **state)
{
    fake a;
    mt_err err = { 0 };
    mt_shards *shards;
    test_path out = workspace_path("%s/export", (char *)*state);
    fake_open(&a, *state, NULL, 0);
    fill(&a, 9);
    a.export.dtype = MT_DTYPE_F32;
    a.export.max_shard_bytes = 40000;
    export_to(&a, out.s);
    const mt_value *config = read_json(out.s, "config.json");
    assert_string_equal(mt_json_string(mt_value_get(config, "torch_dtype")), "float32");
    mt_json_free(config);
    assert_ok(mt_shards_open(&shards, out.s, &err));
    assert_true(mt_shards_file_count(shards) > 3);
    assert_int_equal(mt_shards_bytes(shards), mt_export_bytes(&a.export));
    const mt_st_tensor *t = mt_shards_find(shards, "model.embed_tokens.weight");
    float x = number(9, 0, 0, 3), got; /* the embedding is at the start of its unit */
    memcpy(&got, t->data + 12, 4);
    assert_true(x == got);
    mt_shards_close(shards);
    fake_close(&a);
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(RUNS(what_is_written_is_what_is_read), RUNS(odd_names_of_a_models_files_are_no_damage),
             RUNS(bf16_files_hold_the_master_rounded_to_even), RUNS(every_file_operation_that_fails_leaves_the_one_before_whole),
             RUNS(so_it_is_with_several_threads), RUNS(however_many_threads_write_or_read_it_is_the_same),
             RUNS(however_many_ranks_write_it_is_the_same), RUNS(a_rank_that_has_not_written_leaves_no_checkpoint),
             RUNS(a_file_that_fails_on_any_rank_leaves_the_one_before_whole),
             RUNS(an_earlier_attempt_cannot_reach_the_files_of_this_one), cmocka_unit_test(files_are_dealt_by_their_bytes),
             RUNS(numbers_that_are_not_finite_are_never_saved), RUNS(a_checkpoint_that_cannot_be_read_is_not_called_damaged),
             RUNS(an_old_one_that_cannot_be_removed_is_said_and_stays), RUNS(the_newest_whole_one_is_found_and_old_ones_go),
             RUNS(a_name_with_leading_zeros_is_not_a_checkpoint), RUNS(another_models_checkpoint_is_refused_by_name),
             cmocka_unit_test(a_changed_bit_changes_the_checksum), RUNS(a_config_that_is_still_true_is_copied_byte_for_byte),
             RUNS(a_template_of_the_run_takes_the_place_of_the_models), RUNS(the_template_that_was_trained_with_is_saved),
             RUNS(the_trained_end_of_turn_is_among_the_eos_ids), RUNS(tokens_that_became_special_are_saved_so),
             RUNS(one_dtype_for_all_is_written_in_the_config_too))
