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

/* -- weights --------------------------------------------------------------------------------------- */

static mt_rc open_text(const char *root, const char *text, mt_source **out, mt_err *err)
{
    test_path path = workspace_path("%s/weighted.json", root);
    workspace_write(root, "weighted.json", text);
    const mt_source_tokens_options o = { .path = path.s,
                                         .vocab = WORKSPACE_VOCAB,
                                         .samples_per_step = 3,
                                         .max_seq_len = 2,
                                         .shuffle = true,
                                         .seed = 3,
                                         .val_size = 1 };
    return mt_source_tokens_open(out, &o, err);
}

/* Row k begins with token k and weighs k / 2. */
static void weights_follow_their_rows(void **state)
{
    mt_err err = { 0 };
    mt_source *s, *other;
    mt_batch b = { 0 };
    assert_ok(open_text(*state, "{\"input_ids\": [[1, 9, 9], [2, 9], [3, 9], [4, 9], [5, 9]], \"weight\": [0.5, 1, 1.5, 2, 2.5]}",
                        &s, &err));
    assert_int_equal(info_of(s).columns, MT_COLUMN_BIT(MT_COLUMN_WEIGHT));
    for (int64_t k = 0; k < 6; k++) {
        double sum = 0;
        assert_ok(s->api->step(s, k, &b, &err));
        for (int64_t d = 0; d < b.n_docs; d++) {
            assert_true(b.columns[MT_COLUMN_WEIGHT][d] == 0.5f * (float)b.ids[b.doc_start[d]]);
            sum += (double)b.columns[MT_COLUMN_WEIGHT][d]; /* one trained row each */
        }
        assert_true(b.n_docs > 0 && mt_batch_weight(&b) == sum);
    }
    assert_ok(open_text(*state, "{\"input_ids\": [[1, 9, 9], [2, 9], [3, 9], [4, 9], [5, 9]], \"weight\": [0.5, 1, 1.5, 2, 3]}",
                        &other, &err));
    assert_true(info_of(s).fingerprint != info_of(other).fingerprint); /* resume must notice */
    mt_source_close(other);
    mt_batch_free(&b);
    mt_source_close(s);
    s = open_rows(*state, (mt_source_tokens_options){ .samples_per_step = 7 });
    assert_ok(s->api->step(s, 0, &b, &err));
    assert_true(info_of(s).columns == 0 && !b.columns[MT_COLUMN_WEIGHT] && mt_batch_weight(&b) == (double)b.n_trained);
    mt_batch_free(&b);
    mt_source_close(s);
}

static void weights_that_make_no_sense_are_refused(void **state)
{
    static const struct {
        const char *weights;
        mt_rc rc;
        const char *says;
    } cases[] = {
        { "[1, -0.5]", MT_ERANGE, "row 1: a weight of -0.5; a finite number of 0 or more expected" },
        { "[1, \"x\"]", MT_EFORMAT, "\"weight\", row 1: a number was expected" },
        { "[1, 1e39]", MT_ERANGE, "row 1: a weight of inf" },
        { "[1]", MT_EFORMAT, "one number for each of the 2 rows" },
        { "3", MT_EFORMAT, "one number for each of the 2 rows" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_source *s = NULL;
        char text[200];
        snprintf(text, sizeof text, "{\"input_ids\": [[1, 2], [3, 4]], \"weight\": %s}", cases[i].weights);
        assert_int_equal(open_text(*state, text, &s, &err), cases[i].rc);
        assert_says(cases[i].says);
    }
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(RUNS(an_epoch_takes_every_row_once), RUNS(a_step_does_not_depend_on_what_was_asked_before),
             RUNS(epochs_and_seeds_order_differently), RUNS(held_out_rows_are_never_trained_on),
             RUNS(rows_are_cut_at_max_seq_len), RUNS(weights_follow_their_rows), RUNS(weights_that_make_no_sense_are_refused))
