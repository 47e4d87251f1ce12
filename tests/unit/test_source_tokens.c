/* src/data/source_tokens.c: steps are a pure function of the seed and their number. */
#include "workspace.h"

#include "data/source_tokens.h"

static mt_source *open_rows(const char *root, mt_source_tokens_options o)
{
    mt_err err = { 0 };
    mt_source *s = NULL;
    test_path path = workspace_path("%s/rows.json", root);
    o.path = path.s;
    o.vocab = WORKSPACE_VOCAB;
    assert_ok(mt_source_tokens_open(&s, &o, &err));
    return s;
}

static mt_source_info info_of(mt_source *s)
{
    mt_source_info i;
    s->api->info(s, &i);
    return i;
}

/* A row as one number, to tell rows apart. */
static uint64_t row_id(const mt_batch *b, int64_t d)
{
    return mt_hash(b->ids + b->doc_start[d], (size_t)(b->doc_start[d + 1] - b->doc_start[d]) * sizeof *b->ids, 0);
}

static int compare(const void *a, const void *b) { return memcmp(a, b, sizeof(uint64_t)); }

/* All rows of an epoch, sorted. */
static size_t rows_of_epoch(mt_source *s, int64_t epoch, uint64_t out[64])
{
    mt_err err = { 0 };
    mt_batch b = { 0 };
    mt_source_info i = info_of(s);
    size_t n = 0;
    for (int64_t k = 0; k < i.steps_per_epoch; k++) {
        assert_ok(s->api->step(s, epoch * i.steps_per_epoch + k, &b, &err));
        assert_true(b.n_tokens <= i.max_tokens && b.n_docs <= i.max_docs && b.longest <= i.longest);
        for (int64_t d = 0; d < b.n_docs; d++) out[n++] = row_id(&b, d);
    }
    mt_batch_free(&b);
    qsort(out, n, sizeof *out, compare);
    return n;
}

static void an_epoch_takes_every_row_once(void **state)
{
    uint64_t first[64], second[64];
    mt_source *s = open_rows(*state, (mt_source_tokens_options){ .samples_per_step = 7, .shuffle = true, .seed = 3 });
    assert_int_equal(info_of(s).steps_per_epoch, 6); /* 40 rows: the last step has 5 */
    assert_int_equal(rows_of_epoch(s, 0, first), 40);
    assert_int_equal(rows_of_epoch(s, 4, second), 40);
    assert_memory_equal(first, second, 40 * sizeof *first);
    for (int i = 1; i < 40; i++) assert_true(first[i] != first[i - 1]);
    mt_source_close(s);
}

static void a_step_does_not_depend_on_what_was_asked_before(void **state)
{
    mt_err err = { 0 };
    mt_batch a = { 0 }, b = { 0 };
    mt_source_tokens_options o = { .samples_per_step = 7, .shuffle = true, .seed = 3, .val_seed = 3, .val_size = 0.25 };
    mt_source *x = open_rows(*state, o), *y = open_rows(*state, o);
    for (int64_t k = 0; k < 12; k++) assert_ok(x->api->step(x, k, &a, &err));
    assert_ok(x->api->eval(x, 0, &a, &err));
    assert_ok(x->api->step(x, 13, &a, &err));
    assert_ok(y->api->step(y, 13, &b, &err));
    assert_int_equal(a.n_tokens, b.n_tokens);
    assert_memory_equal(a.ids, b.ids, (size_t)a.n_tokens * sizeof *a.ids);
    assert_memory_equal(a.targets, b.targets, (size_t)a.n_tokens * sizeof *a.targets);
    assert_true(info_of(x).fingerprint == info_of(y).fingerprint);
    mt_batch_free(&a);
    mt_batch_free(&b);
    mt_source_close(x);
    mt_source_close(y);
}

static void epochs_and_seeds_order_differently(void **state)
{
    mt_err err = { 0 };
    mt_batch b = { 0 };
    uint64_t id[3];
    mt_source *s = open_rows(*state, (mt_source_tokens_options){ .samples_per_step = 40, .shuffle = true, .seed = 3 });
    mt_source *other = open_rows(*state, (mt_source_tokens_options){ .samples_per_step = 40, .shuffle = true, .seed = 4 });
    for (int64_t k = 0; k < 2; k++) {
        assert_ok(s->api->step(s, k, &b, &err));
        id[k] = mt_hash(b.ids, (size_t)b.n_tokens * sizeof *b.ids, 0);
    }
    assert_ok(other->api->step(other, 0, &b, &err));
    id[2] = mt_hash(b.ids, (size_t)b.n_tokens * sizeof *b.ids, 0);
    assert_true(id[0] != id[1] && id[0] != id[2]);
    mt_batch_free(&b);
    mt_source_close(s);
    mt_source_close(other);
}

static void held_out_rows_are_never_trained_on(void **state)
{
    mt_err err = { 0 };
    mt_batch b = { 0 };
    uint64_t trained[64];
    mt_source *s = open_rows(
        *state, (mt_source_tokens_options){ .samples_per_step = 4, .shuffle = true, .seed = 3, .val_seed = 9, .val_size = 10 });
    mt_source_info i = info_of(s);
    assert_int_equal(i.n_samples, 30);
    assert_int_equal(i.n_eval_batches, 3);
    size_t n = rows_of_epoch(s, 0, trained);
    for (int64_t k = 0; k < i.n_eval_batches; k++) {
        assert_ok(s->api->eval(s, k, &b, &err));
        for (int64_t d = 0; d < b.n_docs; d++) {
            uint64_t id = row_id(&b, d);
            assert_null(bsearch(&id, trained, n, sizeof id, compare));
        }
    }
    mt_batch_free(&b);
    mt_source_close(s);
}

static void rows_are_cut_at_max_seq_len(void **state)
{
    mt_source *s = open_rows(*state, (mt_source_tokens_options){ .samples_per_step = 8, .max_seq_len = 9 });
    assert_int_equal(info_of(s).longest, 9);
    mt_source_close(s);
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(RUNS(an_epoch_takes_every_row_once), RUNS(a_step_does_not_depend_on_what_was_asked_before),
             RUNS(epochs_and_seeds_order_differently), RUNS(held_out_rows_are_never_trained_on),
             RUNS(rows_are_cut_at_max_seq_len))
