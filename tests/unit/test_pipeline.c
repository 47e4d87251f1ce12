/* Steps from data files: each sample once an epoch, any step at any time, what is held out never trained. */
#include "fake_maker.h"

#include "base/fault.h"
#include "data/lint.h"
#include "data/pipeline.h"
#include "data/prefetch.h"

#include <pthread.h>
#include <unistd.h>

typedef struct setup {
    mt_pipeline_part parts[3];
    mt_pipeline_options o;
} setup;

/* A pipeline over files that are made here: sizes[k] records each, ids 10000 * k on. */
static void make(setup *s, const char *dir, const int64_t *sizes, size_t n)
{
    *s = (setup){ .o = { .n_train = n,
                         .vocab = FAKE_VOCAB,
                         .max_seq_len = 64,
                         .samples_per_step = 7,
                         .shuffle = true,
                         .seed = 5,
                         .val_seed = 6,
                         .max_bad_share = 0.05,
                         .cache_dir = dir,
                         .n_workers = 2 } };
    static const char *const names[] = { "a.jsonl", "b.jsonl", "c.jsonl" };
    for (size_t k = 0; k < n; k++)
        s->parts[k] = (mt_pipeline_part){ .name = names[k],
                                          .path = fake_records(dir, names[k], 300 * (int64_t)k, sizes[k], 40),
                                          .maker = fake_maker(1) };
    s->o.train = s->parts;
}

static void unmake(setup *s)
{
    for (size_t k = 0; k < 3; k++) mt_free((void *)(uintptr_t)s->parts[k].path);
}

static mt_source *open_source(const setup *s)
{
    mt_err err = { 0 };
    mt_pipeline *p;
    assert_ok(mt_pipeline_open(&p, &s->o, &err));
    return mt_pipeline_source(p);
}

static mt_source_info info_of(mt_source *s)
{
    mt_source_info i;
    s->api->info(s, &i);
    return i;
}

/* Add how often each first token (a record's id) is in the batch. */
static void count_ids(const mt_batch *b, int *counts)
{
    for (int64_t d = 0; d < b->n_docs; d++) counts[b->ids[b->doc_start[d]]]++;
}

static void count_epoch(mt_source *s, int64_t epoch, int *counts)
{
    mt_err err = { 0 };
    mt_batch b = { 0 };
    mt_source_info i = info_of(s);
    for (int64_t k = 0; k < i.steps_per_epoch; k++) {
        assert_ok(s->api->step(s, epoch * i.steps_per_epoch + k, &b, &err));
        assert_true(b.n_tokens <= i.max_tokens && b.n_docs <= i.max_docs && b.longest <= i.longest && b.n_docs > 0);
        count_ids(&b, counts);
    }
    mt_batch_free(&b);
}

static void every_sample_comes_once_an_epoch(void **state)
{
    for (int packing = 0; packing < 2; packing++)
        for (int shuffle = 0; shuffle < 2; shuffle++) {
            setup s;
            make(&s, *state, (int64_t[]){ 250, 130 }, 2);
            s.o.packing = packing;
            s.o.shuffle = shuffle;
            mt_source *src = open_source(&s);
            assert_int_equal(info_of(src).n_samples, 380);
            for (int64_t epoch = 0; epoch < 3; epoch++) {
                int counts[FAKE_VOCAB] = { 0 };
                count_epoch(src, epoch, counts);
                for (int i = 0; i < 1000; i++) assert_int_equal(counts[i], i < 250 || (i >= 300 && i < 430));
            }
            mt_source_close(src);
            unmake(&s);
        }
}

static void expect_equal(const mt_batch *a, const mt_batch *b)
{
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_int_equal(a->n_docs, b->n_docs);
    assert_int_equal(a->n_trained, b->n_trained);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n_tokens * sizeof *a->ids);
    assert_memory_equal(a->targets, b->targets, (size_t)a->n_tokens * sizeof *a->targets);
    assert_memory_equal(a->doc_start, b->doc_start, ((size_t)a->n_docs + 1) * sizeof *a->doc_start);
}

static void any_step_can_be_rebuilt(void **state)
{
    mt_err err = { 0 };
    for (int packing = 0; packing < 2; packing++) {
        setup s;
        make(&s, *state, (int64_t[]){ 250, 130, 77 }, 3);
        s.o.packing = packing;
        s.o.mix = MT_MIX_OVER;
        s.o.probs = (double[]){ 0.5, 0.2, 0.3 };
        mt_source *in_turn = open_source(&s);
        int64_t n = 2 * info_of(in_turn).steps_per_epoch + 3;
        mt_batch seen = { 0 }, rebuilt = { 0 };
        for (int64_t k = 0; k < n; k++) {
            assert_ok(in_turn->api->step(in_turn, k, &seen, &err));
            if (k % 13 && k + 3 < n) continue;
            mt_source *again = open_source(&s); /* as a resumed run would */
            assert_ok(again->api->step(again, k, &rebuilt, &err));
            expect_equal(&seen, &rebuilt);
            assert_int_equal(info_of(again).fingerprint, info_of(in_turn).fingerprint);
            mt_source_close(again);
        }
        mt_batch_free(&seen);
        mt_batch_free(&rebuilt);
        mt_source_close(in_turn);
        unmake(&s);
    }
}

static void epochs_and_seeds_differ(void **state)
{
    mt_err err = { 0 };
    setup s;
    make(&s, *state, (int64_t[]){ 250 }, 1);
    mt_source *a = open_source(&s);
    s.o.seed++;
    mt_source *b = open_source(&s);
    mt_batch x = { 0 }, y = { 0 }, z = { 0 };
    assert_ok(a->api->step(a, 0, &x, &err));
    assert_ok(a->api->step(a, info_of(a).steps_per_epoch, &y, &err));
    assert_ok(b->api->step(b, 0, &z, &err));
    assert_true(x.n_tokens != y.n_tokens || memcmp(x.ids, y.ids, (size_t)x.n_tokens * 4) != 0);
    assert_true(x.n_tokens != z.n_tokens || memcmp(x.ids, z.ids, (size_t)x.n_tokens * 4) != 0);
    assert_int_equal(info_of(a).steps_per_epoch, 36);
    assert_ok(a->api->step(a, 35, &x, &err));
    assert_int_equal(x.n_docs, 250 - 35 * 7); /* the last of an epoch takes what is left */
    mt_batch_free(&x);
    mt_batch_free(&y);
    mt_batch_free(&z);
    mt_source_close(a);
    mt_source_close(b);
    unmake(&s);
}

static void count_eval(mt_source *s, int *counts)
{
    mt_err err = { 0 };
    mt_batch b = { 0 };
    mt_source_info i = info_of(s);
    for (int64_t k = 0; k < i.n_eval_batches; k++) {
        assert_ok(s->api->eval(s, k, &b, &err));
        assert_true(b.n_tokens <= i.max_tokens && b.n_docs <= i.max_docs);
        count_ids(&b, counts);
    }
    mt_batch_free(&b);
}

static void what_is_held_out_is_never_trained_and_stays_the_same(void **state)
{
    int first[FAKE_VOCAB] = { 0 };
    for (int round = 0; round < 4; round++) {
        setup s;
        make(&s, *state, (int64_t[]){ 250, 130 }, 2);
        s.o.val_size = 0.1;
        s.o.packing = round == 1;
        s.o.seed += (uint64_t)round; /* another order, the same split */
        s.o.samples_per_step += round;
        mt_source *src = open_source(&s);
        int trained[FAKE_VOCAB] = { 0 }, held[FAKE_VOCAB] = { 0 }, n_held = 0;
        count_epoch(src, round, trained);
        count_eval(src, held);
        for (int i = 0; i < 1000; i++) {
            assert_int_equal(trained[i] + held[i], i < 250 || (i >= 300 && i < 430));
            n_held += held[i];
        }
        assert_int_equal(n_held, 38);
        if (round == 0)
            memcpy(first, held, sizeof held);
        else
            assert_memory_equal(first, held, sizeof held);
        mt_source_close(src);
        unmake(&s);
    }
}

static void records_are_held_out_whole(void **state)
{
    mt_err err = { 0 };
    mt_str text = { 0 };
    for (int i = 0; i < 200; i++) mt_str_printf(&text, "{\"id\": %d, \"parts\": %d}\n", i, 1 + i % 4);
    setup s;
    make(&s, *state, (int64_t[]){ 1 }, 1);
    mt_free(fake_file(*state, "a.jsonl", text.s));
    mt_str_free(&text);
    s.o.val_size = 40;
    mt_source *src = open_source(&s);
    int trained[FAKE_VOCAB] = { 0 }, held[FAKE_VOCAB] = { 0 }, n_held = 0;
    count_epoch(src, 0, trained);
    count_eval(src, held);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(trained[i] + held[i], 1 + i % 4);
        assert_true(!trained[i] || !held[i]);
        n_held += held[i] > 0;
    }
    assert_int_equal(n_held, 40);
    mt_source_close(src);
    s.o.val_size = 200;
    mt_pipeline *p;
    assert_int_equal(mt_pipeline_open(&p, &s.o, &err), MT_ERANGE);
    assert_says("nothing is left to train on");
    unmake(&s);
}

static void datasets_to_evaluate_on_are_kept_apart(void **state)
{
    setup s;
    make(&s, *state, (int64_t[]){ 100, 50 }, 2);
    s.o.n_train = 1;
    s.o.eval = &s.parts[1];
    s.o.n_eval = 1;
    s.o.val_size = 0.5; /* an eval dataset wins */
    s.o.max_eval_samples = 30;
    mt_source *src = open_source(&s);
    int trained[FAKE_VOCAB] = { 0 }, held[FAKE_VOCAB] = { 0 };
    count_epoch(src, 0, trained);
    count_eval(src, held);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(trained[i], i < 100);
        assert_int_equal(held[i], i >= 300 && i < 330);
    }
    mt_source_close(src);
    unmake(&s);
}

/* A run may resume with something else to evaluate on, or nothing: what is trained is the same. */
static void the_fingerprint_is_of_what_is_trained_on(void **state)
{
    setup s;
    make(&s, *state, (int64_t[]){ 100, 40, 50 }, 3);
    s.o.n_train = 1;
    uint64_t with[3];
    for (size_t k = 0; k < 3; k++) {
        s.o.eval = k ? &s.parts[k] : NULL;
        s.o.n_eval = k > 0;
        mt_source *src = open_source(&s);
        with[k] = info_of(src).fingerprint;
        mt_source_close(src);
    }
    assert_true(with[0] == with[1] && with[1] == with[2]);
    s.o.train = &s.parts[1];
    mt_source *src = open_source(&s);
    assert_true(info_of(src).fingerprint != with[0]);
    mt_source_close(src);
    unmake(&s);
}

/* num_samples is in no setting, so a resumed run could not find out otherwise that other records are chosen. */
static void the_fingerprint_shows_which_records_num_samples_chooses(void **state)
{
    static const int64_t asked[] = { 0, 50, 60, 100, 200 };
    uint64_t found[MT_COUNT(asked)];
    setup s;
    make(&s, *state, (int64_t[]){ 100 }, 1);
    for (size_t i = 0; i < MT_COUNT(asked); i++) {
        s.parts[0].num_samples = asked[i];
        mt_source *src = open_source(&s);
        found[i] = info_of(src).fingerprint;
        mt_source_close(src);
    }
    assert_true(found[1] != found[0] && found[2] != found[0] && found[2] != found[1]);
    assert_true(found[3] == found[0] && found[4] == found[0]); /* all of them */
    unmake(&s);
}

static void num_samples_is_a_seeded_choice_and_max_samples_the_first(void **state)
{
    setup s;
    make(&s, *state, (int64_t[]){ 250, 130 }, 2);
    s.o.max_samples = 120;
    s.parts[0].num_samples = 50;
    int first[FAKE_VOCAB] = { 0 }, second[FAKE_VOCAB] = { 0 }, n = 0, same = 0;
    mt_source *src = open_source(&s);
    count_epoch(src, 0, first);
    mt_source_close(src);
    s.o.seed++;
    src = open_source(&s);
    count_epoch(src, 0, second);
    mt_source_close(src);
    for (int i = 0; i < 1000; i++) {
        if (i < 250) n += first[i], same += first[i] && second[i];
        if (i >= 120 && i < 300) assert_int_equal(first[i], 0);
        if (i >= 300) assert_int_equal(first[i], i < 420);
    }
    assert_int_equal(n, 50);
    assert_true(same < 40);
    unmake(&s);
}

static void interleaving_wraps_the_smaller_set(void **state)
{
    setup s;
    make(&s, *state, (int64_t[]){ 100, 40 }, 2);
    s.o.mix = MT_MIX_OVER;
    mt_source *src = open_source(&s);
    int counts[FAKE_VOCAB] = { 0 }, n_small = 0;
    assert_int_equal(info_of(src).n_samples, 200);
    count_epoch(src, 0, counts);
    for (int i = 0; i < 100; i++) assert_int_equal(counts[i], 1);
    for (int i = 300; i < 340; i++) n_small += counts[i];
    assert_int_equal(n_small, 100);
    mt_source_close(src);
    unmake(&s);
}

static void packed_rows_hold_whole_documents(void **state)
{
    mt_err err = { 0 };
    setup s;
    make(&s, *state, (int64_t[]){ 290 }, 1);
    s.o.packing = true;
    mt_pipeline *p;
    assert_ok(mt_pipeline_open(&p, &s.o, &err));
    mt_source *src = mt_pipeline_source(p);
    mt_pipeline_facts f;
    mt_pipeline_facts_of(p, &f);
    assert_int_equal(f.n_train, 290);
    assert_true(f.efficiency > 0.95 && f.efficiency <= 1);
    assert_int_equal(info_of(src).steps_per_epoch, (f.n_rows + 6) / 7);
    mt_batch b = { 0 };
    assert_ok(src->api->step(src, 0, &b, &err));
    assert_true(b.n_docs > 7 && b.n_tokens <= 7 * 64);
    for (int64_t d = 0; d < b.n_docs; d++) {
        int32_t from = b.doc_start[d], to = b.doc_start[d + 1], id = b.ids[from];
        for (int32_t k = from; k < to; k++) assert_int_equal(b.ids[k], fake_token(id, 0, k - from));
        assert_int_equal(b.targets[to - 1], MT_IGNORE);
    }
    mt_batch_free(&b);
    mt_source_close(src);
    unmake(&s);
}

/* -- ahead of time --------------------------------------------------------------------------------- */

static void prefetched_steps_are_the_same(void **state)
{
    mt_err err = { 0 };
    setup s;
    make(&s, *state, (int64_t[]){ 250 }, 1);
    s.o.val_size = 20;
    mt_source *plain = open_source(&s), *ahead;
    assert_ok(mt_prefetch_open(&ahead, open_source(&s), &err));
    assert_int_equal(info_of(ahead).fingerprint, info_of(plain).fingerprint);
    mt_batch a = { 0 }, b = { 0 };
    static const int64_t jumps[] = { 0, 1, 2, 3, 17, 18, 5, 5, 6, 100, 101, 102, 0 };
    for (size_t i = 0; i < MT_COUNT(jumps); i++) {
        assert_ok(plain->api->step(plain, jumps[i], &a, &err));
        assert_ok(ahead->api->step(ahead, jumps[i], &b, &err));
        expect_equal(&a, &b);
        if (i % 3) continue;
        assert_ok(plain->api->eval(plain, 1, &a, &err));
        assert_ok(ahead->api->eval(ahead, 1, &b, &err));
        expect_equal(&a, &b);
    }
    mt_batch_free(&a);
    mt_batch_free(&b);
    mt_source_close(plain);
    mt_source_close(ahead);
    unmake(&s);
}

/* A source whose step 3 fails. */
static mt_rc failing_step(mt_source *s, int64_t step, mt_batch *out, mt_err *err)
{
    (void)s;
    mt_batch_clear(out);
    if (step == 3) return mt_fail(err, MT_EIO, "step 3 cannot be read");
    return mt_batch_add(out, (int32_t[]){ (int32_t)step, 1 }, NULL, 2, 100, err);
}
static void failing_info(mt_source *s, mt_source_info *out)
{
    (void)s, *out = (mt_source_info){ .max_tokens = 2, .max_docs = 1 };
}
static void failing_close(mt_source *s) { (void)s; }

static void an_error_comes_with_its_own_step(void **state)
{
    (void)state;
    mt_err err = { 0 };
    static const mt_source_api api = { .info = failing_info, .step = failing_step, .close = failing_close };
    mt_source inner = { &api }, *ahead;
    mt_batch b = { 0 };
    assert_ok(mt_prefetch_open(&ahead, &inner, &err));
    for (int64_t k = 0; k < 3; k++) {
        assert_ok(ahead->api->step(ahead, k, &b, &err));
        assert_int_equal(b.ids[0], k);
    }
    assert_int_equal(ahead->api->step(ahead, 3, &b, &err), MT_EIO);
    assert_says("step 3 cannot be read");
    assert_ok(ahead->api->step(ahead, 4, &b, &err));
    assert_int_equal(b.ids[0], 4);
    mt_source_close(ahead);
    mt_batch_free(&b);
    mt_fault_arm(MT_FAULT_THREAD, 0);
    assert_int_equal(mt_prefetch_open(&ahead, &inner, &err), MT_ENOMEM);
    mt_fault_disarm();
}

/* -- trouble --------------------------------------------------------------------------------------- */

static void too_many_bad_records_stop_before_the_first_step(void **state)
{
    mt_err err = { 0 };
    setup s;
    make(&s, *state, (int64_t[]){ 1 }, 1);
    mt_free(fake_file(*state, "a.jsonl", "{\"id\": 1}\n{\"id\": 2, \"bad\": 5}\n{\"id\": 3}\n"));
    mt_pipeline *p;
    for (int round = 0; round < 2; round++) { /* from the cache too */
        assert_int_equal(mt_pipeline_open(&p, &s.o, &err), MT_EFORMAT);
        assert_says("dataset a.jsonl: 1 of 3 records is bad (33.3%): unknown role (1)");
        assert_says("a.jsonl, line 2: record 2 is bad on purpose");
    }
    s.o.max_bad_share = 0.5;
    s.o.stop_on_bad = true;
    assert_int_equal(mt_pipeline_open(&p, &s.o, &err), MT_EFORMAT);
    assert_says("on_bad_record: skip");
    s.o.stop_on_bad = false;
    assert_ok(mt_pipeline_open(&p, &s.o, &err));
    mt_source_close(mt_pipeline_source(p));
    unmake(&s);
}

static void running_out_of_memory_is_a_clean_error(void **state)
{
    mt_err err = { 0 };
    setup s;
    make(&s, *state, (int64_t[]){ 20, 30 }, 2);
    s.o.packing = true;
    s.o.val_size = 0.2;
    s.o.n_workers = 1;
    mt_source_close(open_source(&s)); /* the cache is there */
    for (int n = 0;; n++) {
        mt_pipeline *p = NULL;
        mt_fault_arm(MT_FAULT_ALLOC, n);
        mt_rc rc = mt_pipeline_open(&p, &s.o, &err);
        bool delivered = mt_fault_disarm();
        if (!rc) mt_source_close(mt_pipeline_source(p));
        if (!delivered) break;
        assert_true(rc == MT_OK || rc == MT_ENOMEM); /* OK: a store that could not be mapped was made anew */
    }
    unmake(&s);
}

static mt_findings lint_as(const setup *s, mt_lint_input in)
{
    mt_err err = { 0 };
    mt_pipeline *p;
    mt_findings f = { 0 };
    assert_ok(mt_pipeline_open(&p, &s->o, &err));
    in.name = "a.jsonl";
    in.store = mt_pipeline_store(p, 0);
    in.max_seq_len = s->o.max_seq_len;
    assert_ok(mt_lint_positions(&f, in.max_seq_len, in.max_positions, &err));
    assert_ok(mt_lint(&f, &in, &err));
    mt_source_close(mt_pipeline_source(p));
    return f;
}

static mt_findings lint(const setup *s, int64_t max_positions, int32_t end_id)
{
    return lint_as(s, (mt_lint_input){ .max_positions = max_positions, .end_id = end_id, .max_cut_share = 0.2 });
}

static void lint_finds_what_is_probably_wrong(void **state)
{
    mt_err err = { 0 };
    setup s;
    make(&s, *state, (int64_t[]){ 100 }, 1);
    mt_findings f = lint(&s, 64, fake_token(3, 0, 1));
    assert_int_equal(f.n, 0);
    assert_ok(mt_lint_verdict(&f, &err));
    mt_findings_free(&f);

    f = lint(&s, 32, -1);
    assert_int_equal(mt_lint_verdict(&f, &err), MT_ERANGE);
    assert_says("max_seq_len is 64 and the model knows 32 positions");
    mt_findings_free(&f);

    mt_str text = { 0 };
    for (int i = 0; i < 100; i++) /* 3 cut, 1 that trains nothing */
        mt_str_printf(&text, "{\"id\": 5, \"n\": 2, \"uncut\": %d%s}\n", i < 3 ? 300 : 0, i == 50 ? ", \"untrained\": 1" : "");
    mt_free(fake_file(*state, "a.jsonl", text.s));
    f = lint(&s, 0, (fake_token(5, 0, 1) + 1) % FAKE_VOCAB);
    assert_int_equal(f.n, 3);
    assert_non_null(strstr(f.items[0].text, "1 of 100 samples (1%) train nothing"));
    assert_non_null(strstr(f.items[1].text, "3 of 100 answers (3%) are cut at max_seq_len 64"));
    assert_int_equal(mt_lint_verdict(&f, &err), MT_ERANGE);
    assert_says("which ends an answer, is never trained: the model would not learn to stop; megatrain data --show");
    mt_findings_free(&f);
    f = lint_as(&s, (mt_lint_input){
                        .end_id = (fake_token(5, 0, 1) + 1) % FAKE_VOCAB, .max_cut_share = 0.2, .lets_end_untrained = true });
    assert_int_equal(f.n, 3);
    assert_ok(mt_lint_verdict(&f, &err));
    mt_findings_free(&f);

    mt_str_clear(&text);
    for (int i = 0; i < 100; i++) mt_str_printf(&text, "{\"id\": 5, \"n\": 2, \"uncut\": %d}\n", i < 20 ? 100 * (i + 1) : 0);
    mt_free(fake_file(*state, "a.jsonl", text.s));
    f = lint(&s, 0, -1);
    assert_int_equal(mt_lint_verdict(&f, &err), MT_ERANGE);
    assert_says("20 of 100 answers (20%) are cut at max_seq_len 64; max_seq_len 1536 would keep 95% of the samples whole");
    assert_says("; overlong: skip leaves such samples out; overlong: truncate trains on the rest of them");
    mt_findings_free(&f);
    mt_str_free(&text);
    unmake(&s);
}

/* Cutting on purpose, or a larger share that is allowed, is a warning; no advice goes beyond what the model can read. */
static void cut_answers_stop_only_who_did_not_ask_for_it(void **state)
{
    static const struct {
        mt_lint_input in;
        mt_rc rc;
        const char *says, *never;
    } cases[] = {
        { { .max_cut_share = 0.2 }, MT_ERANGE, "; max_seq_len 1536 would keep 95%", "the model reads" },
        { { .max_cut_share = 0.2, .max_positions = 1536 }, MT_ERANGE, "; max_seq_len 1536 would keep 95%", "the model reads" },
        { { .max_cut_share = 0.2, .max_positions = 512 },
          MT_ERANGE,
          "; the model reads up to max_seq_len 512; overlong: skip",
          "1536" },
        { { .max_cut_share = 0.2, .max_positions = 64 }, MT_ERANGE, "at max_seq_len 64; overlong: skip", "1536" },
        { { .max_cut_share = 0.2, .truncates = true }, MT_OK, "; overlong: skip leaves such samples out", "max_cut_share" },
        { { .max_cut_share = 0.3 }, MT_OK, "; overlong: skip leaves such samples out", "max_cut_share" },
        { { .max_cut_share = 0.1 }, MT_ERANGE, "max_cut_share allows a larger share", "raise" },
        { { .max_cut_share = 0.1, .flat = true },
          MT_ERANGE,
          "; cutoff_len 1536 would keep 95% of the samples whole; --overlong skip leaves such samples out; --overlong truncate",
          "overlong:" },
        { { .max_cut_share = 1 }, MT_OK, "(20%) are cut at max_seq_len 64", "max_cut_share" },
    };
    setup s;
    mt_str text = { 0 };
    make(&s, *state, (int64_t[]){ 100 }, 1);
    for (int i = 0; i < 100; i++) mt_str_printf(&text, "{\"id\": 5, \"n\": 2, \"uncut\": %d}\n", i < 20 ? 100 * (i + 1) : 0);
    mt_free(fake_file(*state, "a.jsonl", text.s));
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_lint_input in = cases[i].in;
        in.end_id = -1;
        mt_findings f = lint_as(&s, in);
        assert_int_equal(mt_lint_verdict(&f, &err), cases[i].rc);
        assert_int_equal(f.n, 1);
        if (!strstr(f.items[0].text, cases[i].says) || strstr(f.items[0].text, cases[i].never))
            fail_msg("case %zu: %s", i, f.items[0].text);
        mt_findings_free(&f);
    }
    mt_str_free(&text);
    unmake(&s);
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(IN_TEMPDIR(every_sample_comes_once_an_epoch), IN_TEMPDIR(any_step_can_be_rebuilt),
             IN_TEMPDIR(epochs_and_seeds_differ), IN_TEMPDIR(what_is_held_out_is_never_trained_and_stays_the_same),
             IN_TEMPDIR(records_are_held_out_whole), IN_TEMPDIR(datasets_to_evaluate_on_are_kept_apart),
             IN_TEMPDIR(the_fingerprint_is_of_what_is_trained_on),
             IN_TEMPDIR(the_fingerprint_shows_which_records_num_samples_chooses),
             IN_TEMPDIR(num_samples_is_a_seeded_choice_and_max_samples_the_first), IN_TEMPDIR(interleaving_wraps_the_smaller_set),
             IN_TEMPDIR(packed_rows_hold_whole_documents), IN_TEMPDIR(prefetched_steps_are_the_same),
             cmocka_unit_test(an_error_comes_with_its_own_step), IN_TEMPDIR(too_many_bad_records_stop_before_the_first_step),
             IN_TEMPDIR(running_out_of_memory_is_a_clean_error), IN_TEMPDIR(lint_finds_what_is_probably_wrong),
             IN_TEMPDIR(cut_answers_stop_only_who_did_not_ask_for_it))
