/* include/megatrain.h: what it does, and that no call of it can crash. */
#include "workspace.h"

#include "base/fault.h"

#include <locale.h>
#include <megatrain.h>
#include <pthread.h>

#define LLAMA      MT_TESTS_DIR "/golden/models/llama_default"
#define LLAMA_BF16 MT_TESTS_DIR "/golden/models/llama_bf16"
#define DEMO       MT_TESTS_DIR "/../data/demo_model"

static megatrain_error error;

#define assert_status(call, expected)                                                                                            \
    do {                                                                                                                         \
        megatrain_status got_ = (call);                                                                                          \
        if (got_ != (expected)) fail_msg("%s: %s: %s", #call, megatrain_status_name(got_), error.message);                       \
        assert_int_equal(error.status, got_);                                                                                    \
        assert_int_equal(error.message[0] == '\0', got_ == MEGATRAIN_OK);                                                        \
    } while (0)
#define assert_done(call)    assert_status(call, MEGATRAIN_OK)
#define assert_message(text) assert_non_null(strstr(error.message, text))

/* -- what the tests train -------------------------------------------------------------------------- */

/* Pairs of keys and values, up to a NULL. */
static megatrain_config *config_of(const char *model, const char *const *pairs)
{
    megatrain_config *c = NULL;
    assert_done(megatrain_config_create(&c, &error));
    assert_done(megatrain_config_set(c, "model.name", model, &error));
    assert_done(megatrain_config_set(c, "model.device", "cpu", &error));
    assert_done(megatrain_config_set(c, "model.dtype", "float32", &error));
    assert_done(megatrain_config_set(c, "dataset.max_seq_len", "16", &error));
    assert_done(megatrain_config_set(c, "training.batch_size", "4", &error));
    assert_done(megatrain_config_set(c, "training.learning_rate", "1e-2", &error));
    for (; pairs && *pairs; pairs += 2) assert_done(megatrain_config_set(c, pairs[0], pairs[1], &error));
    return c;
}
#define CONFIG(model, ...) config_of(model, (const char *const[]){ __VA_ARGS__ __VA_OPT__(, ) NULL })

static megatrain_model *model_of(const char *dir, int uses)
{
    megatrain_model *m = NULL;
    megatrain_config *c = config_of(dir, NULL);
    assert_done(megatrain_model_open(&m, c, uses, &error));
    megatrain_config_free(c);
    return m;
}

enum { N_DOCS = 3, DOC_TOKENS = 12 };
typedef struct documents {
    int32_t tokens[N_DOCS][DOC_TOKENS], labels[DOC_TOKENS];
    megatrain_document items[N_DOCS];
} documents;

static void documents_fill(documents *d, int seed)
{
    for (int k = 0; k < N_DOCS; k++) {
        for (int i = 0; i < DOC_TOKENS; i++) d->tokens[k][i] = (seed + 7 * k + 5 * i) % 61;
        d->items[k] = (megatrain_document){ d->tokens[k], NULL, DOC_TOKENS };
    }
    for (int i = 0; i < DOC_TOKENS; i++) d->labels[i] = i < 6 ? MEGATRAIN_IGNORE : d->tokens[0][i];
    d->items[0].labels = d->labels;
}

static uint64_t checksum_of(megatrain_model *m)
{
    uint64_t sum = 0;
    assert_done(megatrain_model_checksum(m, &sum, &error));
    return sum;
}

/* -- configurations -------------------------------------------------------------------------------- */

static void a_wrong_setting_is_refused_by_name(void **state)
{
    (void)state;
    megatrain_config *c = CONFIG(LLAMA);
    assert_status(megatrain_config_set(c, "training.batchsize", "8", &error), MEGATRAIN_EINVAL);
    assert_message("did you mean training.batch_size?");
    assert_status(megatrain_config_set(c, "training.batch_size", "many", &error), MEGATRAIN_EINVAL);
    assert_message("training.batch_size");
    assert_status(megatrain_config_read(c, "/nowhere/my.yaml", &error), MEGATRAIN_ENOENT);
    assert_message("/nowhere/my.yaml");
    megatrain_config_free(c);
}

static void a_refused_file_changes_nothing(void **state)
{
    const char *dir = *state;
    megatrain_plan_info plan;
    workspace_write(dir, "bad.yaml", "training: { batch_size: 2, learnin_rate: 3 }\nmodle: {}\n");
    workspace_write(dir, "good.yaml", "training: { batch_size: 3 }\n");
    megatrain_config *c = CONFIG(LLAMA);
    assert_status(megatrain_config_read(c, workspace_path("%s/bad.yaml", dir).s, &error), MEGATRAIN_EINVAL);
    assert_message("learnin_rate");
    assert_message("modle");
    assert_done(megatrain_plan(c, &plan, &error));
    assert_int_equal(plan.batch_size, 4);
    assert_done(megatrain_config_read(c, workspace_path("%s/good.yaml", dir).s, &error));
    assert_done(megatrain_plan(c, &plan, &error));
    assert_int_equal(plan.batch_size, 3);
    assert_done(megatrain_config_set(c, "training.batch_size", "2", &error)); /* the later one counts */
    assert_done(megatrain_plan(c, &plan, &error));
    assert_int_equal(plan.batch_size, 2);
    megatrain_config_free(c);
}

/* -- planning -------------------------------------------------------------------------------------- */

static void a_plan_tells_what_training_takes(void **state)
{
    (void)state;
    megatrain_plan_info plan;
    megatrain_config *c = CONFIG(LLAMA);
    assert_done(megatrain_plan(c, &plan, &error));
    assert_true(plan.fits && !plan.why[0] && plan.device[0] && plan.placement[0]);
    assert_true(plan.host_bytes > 0 && plan.host_usable > plan.host_bytes && plan.tokens_per_second > 0);
    assert_int_equal(plan.max_seq_len, 16);
    assert_done(megatrain_config_set(c, "dataset.max_seq_len", "1000", &error));
    assert_done(megatrain_plan(c, &plan, &error));
    assert_int_equal(plan.max_seq_len, 64); /* the model has no more positions */
    megatrain_config_free(c);
}

static void a_plan_that_does_not_fit_is_an_answer(void **state)
{
    (void)state;
    megatrain_plan_info plan;
    megatrain_model *m;
    megatrain_config *c = CONFIG(LLAMA, "memory.host_memory", "1M");
    assert_done(megatrain_plan(c, &plan, &error));
    assert_false(plan.fits);
    assert_non_null(strstr(plan.why, "memory"));
    assert_status(megatrain_model_open(&m, c, MEGATRAIN_TRAIN, &error), MEGATRAIN_ENOMEM); /* opening it is none */
    assert_null(m);
    megatrain_config_free(c);
}

/* -- steps ----------------------------------------------------------------------------------------- */

static void the_loss_falls_and_evaluation_changes_nothing(void **state)
{
    (void)state;
    documents d;
    megatrain_result first, last, evaluated;
    megatrain_info info;
    megatrain_model *m = model_of(LLAMA, MEGATRAIN_TRAIN);
    documents_fill(&d, 3);
    assert_done(megatrain_model_evaluate(m, d.items, N_DOCS, &evaluated, &error));
    assert_done(megatrain_model_step(m, d.items, N_DOCS, &first, &error));
    assert_true(evaluated.loss == first.loss && evaluated.n_trained == first.n_trained);
    assert_int_equal(first.n_tokens, N_DOCS * DOC_TOKENS);
    assert_int_equal(first.n_trained, 6 + 2 * (DOC_TOKENS - 1)); /* of the first document the labels say what is trained */
    for (int i = 0; i < 20; i++) assert_done(megatrain_model_step(m, d.items, N_DOCS, &last, &error));
    assert_true(last.loss < first.loss / 4 && last.grad_norm > 0 && last.learning_rate == 1e-2);
    uint64_t before = checksum_of(m);
    assert_done(megatrain_model_evaluate(m, d.items, N_DOCS, &evaluated, &error));
    assert_true(evaluated.n_correct > evaluated.n_trained / 2 && evaluated.grad_norm == 0);
    assert_true(checksum_of(m) == before);
    assert_done(megatrain_model_info(m, &info, &error));
    assert_string_equal(info.family, "llama");
    assert_int_equal(info.n_steps, 21);
    assert_int_equal(info.vocabulary, 97);
    assert_int_equal(info.plan.batch_size, 4);
    megatrain_model_close(m);
}

static void the_learning_rate_follows_the_schedule_or_the_caller(void **state)
{
    (void)state;
    documents d;
    megatrain_result r;
    megatrain_info info;
    megatrain_model *m = NULL;
    megatrain_config *c = CONFIG(LLAMA, "training.lr_scheduler", "linear", "training.num_steps", "4");
    assert_done(megatrain_model_open(&m, c, MEGATRAIN_TRAIN, &error));
    documents_fill(&d, 1);
    for (int i = 0; i < 2; i++) {
        assert_done(megatrain_model_step(m, d.items, N_DOCS, &r, &error));
        assert_true(r.learning_rate == 1e-2 * (4 - i) / 4);
    }
    assert_done(megatrain_model_set_learning_rate(m, 0, &error));
    uint64_t before = checksum_of(m), after;
    assert_done(megatrain_model_step(m, d.items, N_DOCS, &r, &error));
    assert_true(r.learning_rate == 0);
    after = checksum_of(m);
    assert_true(before != after); /* of a step of 0 only the moments change */
    assert_done(megatrain_model_set_learning_rate(m, -1, &error));
    assert_done(megatrain_model_info(m, &info, &error));
    assert_true(info.learning_rate == 1e-2 / 4);
    megatrain_model_close(m);
    megatrain_config_free(c);
}

/* A run's first steps on rows, and the same rows as documents. */
static void own_steps_give_the_bits_of_a_run(void **state)
{
    const char *dir = *state;
    char *difference;
    enum { STEPS = 3, BATCH = 4, TOKENS = 10 };
    int32_t tokens[STEPS * BATCH][TOKENS];
    mt_str rows = { 0 };
    for (int r = 0; r < STEPS * BATCH; r++) {
        mt_str_puts(&rows, r ? ", [" : "{\"input_ids\": [[");
        for (int i = 0; i < TOKENS; i++) {
            tokens[r][i] = (17 * r + 3 * i) % 61;
            mt_str_printf(&rows, "%s%d", i ? ", " : "", tokens[r][i]);
        }
        mt_str_puts(&rows, "]");
    }
    mt_str_puts(&rows, "]}");
    workspace_write(dir, "own.json", rows.s);
    mt_str_free(&rows);
    megatrain_config *c = CONFIG(LLAMA, "training.num_steps", "3", "training.lr_scheduler", "cosine");
    assert_done(megatrain_config_set(c, "dataset.path", workspace_path("%s/own.json", dir).s, &error));
    assert_done(megatrain_config_set(c, "dataset.shuffle", "false", &error));
    assert_done(megatrain_config_set(c, "save.output_dir", workspace_path("%s/run", dir).s, &error));
    assert_done(megatrain_train(c, NULL, NULL, &error));
    megatrain_model *m = NULL;
    assert_done(megatrain_model_open(&m, c, MEGATRAIN_TRAIN, &error));
    for (int s = 0; s < STEPS; s++) {
        megatrain_document d[BATCH];
        for (int k = 0; k < BATCH; k++) d[k] = (megatrain_document){ tokens[s * BATCH + k], NULL, TOKENS };
        assert_done(megatrain_model_step(m, d, BATCH, NULL, &error));
    }
    assert_done(megatrain_model_save(m, workspace_path("%s/own", dir).s, &error));
    difference = workspace_difference(workspace_path("%s/run/final", dir).s, workspace_path("%s/own", dir).s);
    if (difference) fail_msg("%s", difference);
    megatrain_model_close(m);
    megatrain_config_free(c);
}

/* Two lanes on the CPU, which stands for two GPUs; two shares are summed in the same order either way. */
static void own_steps_on_several_devices_give_the_bits_of_one(void **state)
{
    (void)state;
    uint64_t sums[2];
    documents d;
    for (int i = 0; i < 2; i++) {
        megatrain_model *m = NULL;
        megatrain_config *c = CONFIG(LLAMA, "training.shares", "2");
        if (i) assert_done(megatrain_config_set(c, "model.devices", "0,0", &error));
        assert_done(megatrain_model_open(&m, c, MEGATRAIN_TRAIN | MEGATRAIN_GENERATE, &error));
        megatrain_config_free(c);
        for (int s = 0; s < 3; s++) {
            documents_fill(&d, s);
            assert_done(megatrain_model_step(m, d.items, N_DOCS, NULL, &error));
        }
        int32_t out[4];
        size_t n;
        assert_done(megatrain_model_generate(m, d.tokens[0], 4, NULL, out, 4, &n, &error));
        sums[i] = checksum_of(m);
        megatrain_model_close(m);
    }
    assert_true(sums[0] == sums[1]);
}

static void a_saved_model_computes_the_same(void **state)
{
    const char *dir = *state;
    documents d;
    megatrain_result before, after;
    const test_path out = workspace_path("%s/saved", dir);
    megatrain_model *m = model_of(LLAMA, MEGATRAIN_TRAIN), *again;
    documents_fill(&d, 5);
    for (int i = 0; i < 3; i++) assert_done(megatrain_model_step(m, d.items, N_DOCS, NULL, &error));
    assert_done(megatrain_model_evaluate(m, d.items, N_DOCS, &before, &error));
    assert_done(megatrain_model_save(m, out.s, &error));
    assert_status(megatrain_model_save(m, out.s, &error), MEGATRAIN_EINVAL);
    assert_message("exists already");
    assert_status(megatrain_model_save(m, "", &error), MEGATRAIN_EINVAL);
    assert_message("the path is empty");
    assert_done(megatrain_model_save(m, workspace_path("%s/slash/", dir).s, &error));
    assert_true(mt_file_exists(workspace_path("%s/slash/config.json", dir).s));
    assert_done(megatrain_model_step(m, d.items, N_DOCS, NULL, &error)); /* it continues after saving */
    again = model_of(out.s, 0);
    assert_done(megatrain_model_evaluate(again, d.items, N_DOCS, &after, &error));
    assert_true(before.loss == after.loss);
    assert_status(megatrain_model_save(again, workspace_path("%s/other", dir).s, &error), MEGATRAIN_EINVAL);
    assert_message("MEGATRAIN_TRAIN");
    megatrain_model_close(again);
    megatrain_model_close(m);
}

static void a_model_that_could_not_be_saved_is_not_trained(void **state)
{
    const char *dir = *state;
    const test_path out = workspace_path("%s/saved", dir);
    megatrain_model *m = model_of(LLAMA, MEGATRAIN_TRAIN), *again = NULL;
    assert_done(megatrain_model_save(m, out.s, &error));
    megatrain_model_close(m);
    workspace_write(dir, "saved/tokenizer_config.json", "{");
    megatrain_config *c = config_of(out.s, NULL);
    assert_status(megatrain_model_open(&again, c, MEGATRAIN_TRAIN, &error), MEGATRAIN_EFORMAT);
    assert_message("tokenizer_config.json");
    assert_done(megatrain_model_open(&again, c, 0, &error));
    megatrain_model_close(again);
    megatrain_config_free(c);
}

/* -- passes that only look ------------------------------------------------------------------------- */

/* With weights in files as bf16, read where they are mapped, too. */
static void a_model_that_is_not_trained_evaluates_and_generates(void **state)
{
    (void)state;
    static const char *const dirs[] = { LLAMA, LLAMA_BF16 };
    documents d;
    documents_fill(&d, 2);
    for (int i = 0; i < 2; i++) {
        static float logits[DOC_TOKENS * 97], same[DOC_TOKENS * 97];
        int32_t from_trained[8], from_other[8];
        size_t n, k;
        megatrain_result x, y;
        megatrain_model *m, *other;
        megatrain_config *c = CONFIG(dirs[i], "model.dtype", i ? "bfloat16" : "float32");
        assert_done(megatrain_model_open(&m, c, MEGATRAIN_TRAIN | MEGATRAIN_GENERATE, &error));
        assert_done(megatrain_model_open(&other, c, MEGATRAIN_GENERATE, &error));
        megatrain_config_free(c);
        assert_done(megatrain_model_evaluate(m, d.items, N_DOCS, &x, &error));
        assert_done(megatrain_model_evaluate(other, d.items, N_DOCS, &y, &error));
        assert_true(x.loss == y.loss && x.n_correct == y.n_correct);
        assert_done(megatrain_model_logits(m, d.tokens[1], DOC_TOKENS, logits, DOC_TOKENS * 97, &error));
        assert_done(megatrain_model_logits(other, d.tokens[1], DOC_TOKENS, same, DOC_TOKENS * 97, &error));
        assert_memory_equal(logits, same, sizeof same);
        assert_done(megatrain_model_generate(m, d.tokens[1], 5, NULL, from_trained, 8, &n, &error));
        assert_done(megatrain_model_generate(other, d.tokens[1], 5, NULL, from_other, 8, &k, &error));
        assert_true(n == k && n > 0);
        assert_memory_equal(from_trained, from_other, n * sizeof *from_other);
        assert_status(megatrain_model_step(other, d.items, N_DOCS, NULL, &error), MEGATRAIN_EINVAL);
        assert_message("MEGATRAIN_TRAIN");
        megatrain_model_close(other);
        megatrain_model_close(m);
    }
}

static void a_continuation_ends_where_the_sequence_is_full(void **state)
{
    (void)state;
    int32_t prompt[10] = { 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 }, tokens[64], drawn[64];
    size_t n, k;
    const megatrain_sampling warm = { .temperature = 1.5, .top_k = 40, .seed = 1 };
    megatrain_model *m = model_of(LLAMA, MEGATRAIN_GENERATE);
    assert_done(megatrain_model_generate(m, prompt, 10, NULL, tokens, 64, &n, &error));
    assert_true(n >= 1 && n <= 7); /* 16 tokens in all, and one more that needs no room */
    assert_done(megatrain_model_generate(m, prompt, 10, &warm, tokens, 64, &n, &error));
    assert_done(megatrain_model_generate(m, prompt, 10, &warm, drawn, 64, &k, &error));
    assert_true(n == k && memcmp(tokens, drawn, n * sizeof *tokens) == 0);
    megatrain_model_close(m);
}

static void text_becomes_tokens_and_text_again(void **state)
{
    (void)state;
    int32_t tokens[64];
    char text[64];
    size_t n, again, bytes;
    megatrain_model *m = NULL;
    megatrain_config *c = CONFIG(DEMO, "training.from_scratch", "true");
    assert_done(megatrain_model_open(&m, c, 0, &error));
    assert_status(megatrain_model_encode(m, "Add 3 and 4.", NULL, 0, &n, &error), MEGATRAIN_ERANGE);
    assert_true(n > 0 && n < 64);
    assert_done(megatrain_model_encode(m, "Add 3 and 4.", tokens, 64, &again, &error));
    assert_int_equal(again, n);
    assert_done(megatrain_model_decode(m, tokens, n, text, sizeof text, &bytes, &error));
    assert_string_equal(text, "Add 3 and 4.");
    assert_int_equal(bytes, strlen(text));
    assert_status(megatrain_model_decode(m, tokens, n, text, bytes, &bytes, &error), MEGATRAIN_ERANGE);
    static const int32_t bad[][2] = { { 1, -5 }, { 1, 9999999 } };
    for (size_t i = 0; i < MT_COUNT(bad); i++) {
        assert_status(megatrain_model_decode(m, bad[i], 2, text, sizeof text, &bytes, &error), MEGATRAIN_ERANGE);
        assert_message(i ? "tokens[1] is 9999999; the model has tokens 0 to 447"
                         : "tokens[1] is -5; the model has tokens 0 to 447");
    }
    assert_done(megatrain_model_encode_chat(m, NULL, "Add 3 and 4.", tokens, 64, &again, &error));
    assert_true(again > n); /* the template is around it */
    megatrain_model_close(m);
    megatrain_config_free(c);
}

static void a_model_without_a_tokenizer_says_so(void **state)
{
    (void)state;
    int32_t tokens[8];
    size_t n;
    megatrain_model *m = model_of(LLAMA, 0);
    assert_status(megatrain_model_encode(m, "text", tokens, 8, &n, &error), MEGATRAIN_ENOENT);
    assert_message("tokenizer");
    megatrain_model_close(m);
}

/* -- a whole run ----------------------------------------------------------------------------------- */

typedef struct watched {
    int64_t steps, stop_after, evaluations, saves, loads;
} watched;

static void watch_loading(void *user, uint64_t done, uint64_t total) { ((watched *)user)->loads |= done == total; }
static void watch_step(void *user, const megatrain_progress *p) { ((watched *)user)->steps = p->step; }
static void watch_evaluation(void *user, const megatrain_evaluation *e) { ((watched *)user)->evaluations += e->n_trained > 0; }
static void watch_save(void *user, const char *dir) { ((watched *)user)->saves += strstr(dir, "checkpoint-") != NULL; }
static bool watch_stop(void *user)
{
    const watched *w = user;
    return w->stop_after && w->steps >= w->stop_after;
}

static megatrain_config *run_config(const char *dir, const char *out)
{
    megatrain_config *c = CONFIG(workspace_path("%s/model", dir).s, "training.from_scratch", "true", "training.num_steps", "6",
                                 "eval.val_size", "4");
    assert_done(megatrain_config_set(c, "dataset.path", workspace_path("%s/rows.json", dir).s, &error));
    assert_done(megatrain_config_set(c, "save.output_dir", workspace_path("%s/%s", dir, out).s, &error));
    return c;
}

static void a_stopped_run_continues_to_the_same_bits(void **state)
{
    const char *dir = *state;
    watched w = { .stop_after = 3 };
    const megatrain_hooks hooks = { &w, watch_loading, watch_step, watch_evaluation, watch_save, watch_stop };
    megatrain_outcome whole, part;
    megatrain_config *c = run_config(dir, "whole");
    assert_done(megatrain_train(c, NULL, &whole, &error));
    assert_true(whole.step == 6 && !whole.stopped && strstr(whole.model_dir, "/whole/final"));
    assert_status(megatrain_train(c, NULL, NULL, &error), MEGATRAIN_EINVAL);
    assert_message("already holds a run");
    megatrain_config_free(c);

    c = run_config(dir, "part");
    assert_done(megatrain_train(c, &hooks, &part, &error));
    assert_true(part.stopped && part.step == 3 && !part.model_dir[0] && strstr(part.checkpoint, "checkpoint-3"));
    assert_int_equal(w.loads, 1);
    assert_int_equal(w.evaluations, 1); /* before the first step */
    assert_int_equal(w.saves, 1);
    w.stop_after = 0;
    assert_done(megatrain_config_set(c, "save.resume", "latest", &error));
    assert_done(megatrain_train(c, &hooks, &part, &error));
    assert_true(!part.stopped && part.loss == whole.loss && w.steps == 6);
    char *difference = workspace_difference(whole.model_dir, part.model_dir);
    if (difference) fail_msg("%s", difference);
    megatrain_config_free(c);
}

/* Five folders of 240 letters: all of a path comes back. */
static void long_paths_are_not_cut(void **state)
{
    megatrain_outcome out;
    test_path below = { "" };
    for (int i = 0; i < 5; i++) snprintf(below.s + 241 * i, sizeof below.s - (size_t)(241 * i), "%0240d/", i);
    megatrain_config *c = run_config(*state, workspace_path("%srun", below.s).s);
    assert_done(megatrain_train(c, NULL, &out, &error));
    assert_string_equal(out.checkpoint, workspace_path("%s/%srun/checkpoint-6", (char *)*state, below.s).s);
    assert_string_equal(out.model_dir, workspace_path("%s/%srun/final", (char *)*state, below.s).s);
    megatrain_config_free(c);
}

/* A locale that writes 0.5 as "0,5": one of this machine, or one that is made in dir.  False: there is neither. */
static bool choose_comma_locale(const char *dir)
{
    char command[256], text[8];
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) {
        snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' > /dev/null 2>&1", dir);
        if (system(command) < 0) return false;
        setenv("LOCPATH", dir, 1);
        if (!setlocale(LC_ALL, "de_DE.UTF-8")) return false;
    }
    snprintf(text, sizeof text, "%.1f", 0.5);
    return strcmp(text, "0,5") == 0;
}

static void note_locale(void *user, const megatrain_progress *p) { snprintf(user, 8, "%.1f", 0.5 + 0 * p->epoch); }

static void a_locale_with_commas_changes_nothing(void **state)
{
    const char *dir = *state;
    char in_call[8] = "", after[8] = "";
    megatrain_outcome plain, comma;
    megatrain_config *c = run_config(dir, "plain");
    assert_done(megatrain_train(c, NULL, &plain, &error));
    megatrain_config_free(c);
    if (!choose_comma_locale(dir)) mt_skip("this machine has no locale with a decimal comma, and no localedef to make one");
    const megatrain_hooks hooks = { .user = in_call, .step = note_locale };
    c = run_config(dir, "comma");
    assert_done(megatrain_train(c, &hooks, &comma, &error));
    snprintf(after, sizeof after, "%.1f", 0.5);
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    assert_string_equal(in_call, "0.5");
    assert_string_equal(after, "0,5");
    assert_true(comma.loss == plain.loss);
    char *difference = workspace_difference(plain.model_dir, comma.model_dir);
    if (difference) fail_msg("%s", difference);
    megatrain_config_free(c);
}

/* -- bad calls ------------------------------------------------------------------------------------- */

static void every_null_is_an_error(void **state)
{
    (void)state;
    documents d;
    int32_t tokens[4] = { 1, 2, 3, 4 };
    float logits[4];
    size_t n;
    uint64_t sum;
    char text[8];
    megatrain_config *c = CONFIG(LLAMA);
    megatrain_model *m = model_of(LLAMA, MEGATRAIN_TRAIN | MEGATRAIN_GENERATE), *none = (megatrain_model *)&d;
    megatrain_plan_info plan;
    megatrain_info info;
    megatrain_result r;
    documents_fill(&d, 1);
    const megatrain_document hollow = { NULL, NULL, 3 };
    assert_status(megatrain_config_create(NULL, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_config_read(NULL, "x", &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_config_read(c, NULL, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_config_set(NULL, "a", "b", &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_config_set(c, NULL, "b", &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_config_set(c, "a", NULL, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_plan(NULL, &plan, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_plan(c, NULL, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_train(NULL, NULL, NULL, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_open(NULL, c, 0, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_open(&none, NULL, 0, &error), MEGATRAIN_EINVAL);
    assert_null(none);
    assert_status(megatrain_model_info(NULL, &info, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_info(m, NULL, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_step(NULL, d.items, 1, &r, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_step(m, NULL, 1, &r, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_step(m, &hollow, 1, &r, &error), MEGATRAIN_EINVAL);
    assert_message("document 1 of 1: tokens is NULL");
    assert_status(megatrain_model_evaluate(m, d.items, 1, NULL, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_evaluate(NULL, d.items, 1, &r, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_logits(m, tokens, 4, NULL, 4, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_logits(NULL, tokens, 4, logits, 4, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_set_learning_rate(NULL, 1, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_generate(NULL, tokens, 4, NULL, tokens, 4, &n, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_generate(m, NULL, 4, NULL, tokens, 4, &n, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_generate(m, tokens, 4, NULL, NULL, 4, &n, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_generate(m, tokens, 4, NULL, tokens, 4, NULL, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_save(NULL, "x", &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_save(m, NULL, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_checksum(NULL, &sum, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_checksum(m, NULL, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_encode(NULL, "x", tokens, 4, &n, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_encode(m, NULL, tokens, 4, &n, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_encode(m, "x", tokens, 4, NULL, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_encode_chat(m, NULL, NULL, tokens, 4, &n, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_encode_chat(NULL, NULL, "x", tokens, 4, &n, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_decode(NULL, tokens, 4, text, 8, &n, &error), MEGATRAIN_EINVAL);
    assert_status(megatrain_model_decode(m, NULL, 4, text, 8, &n, &error), MEGATRAIN_EINVAL);
    assert_int_equal(megatrain_model_step(NULL, NULL, 0, NULL, NULL), MEGATRAIN_EINVAL); /* without the message */
    assert_string_equal(megatrain_status_name((megatrain_status)999), "an unknown status");
    assert_string_equal(megatrain_status_name(MEGATRAIN_ENOMEM), "MEGATRAIN_ENOMEM");
    megatrain_model_close(NULL);
    megatrain_config_free(NULL);
    megatrain_model_close(m);
    megatrain_config_free(c);
}

/* Each is refused, and the model continues as if it had not been made. */
static void wrong_sizes_and_tokens_change_nothing(void **state)
{
    (void)state;
    documents d;
    megatrain_result r;
    float logits[97];
    int32_t tokens[20] = { 96, 97 }, below[2] = { 0, -1 }, out[4];
    const int32_t label[2] = { 1, 97 };
    size_t n;
    megatrain_model *m = model_of(LLAMA, MEGATRAIN_TRAIN | MEGATRAIN_GENERATE), *fresh = model_of(LLAMA, MEGATRAIN_TRAIN);
    const megatrain_document beyond = { tokens, NULL, 2 }, negative = { below, NULL, 2 }, none = { tokens, NULL, 0 },
                             longer = { tokens, NULL, 17 }, endless = { tokens, NULL, SIZE_MAX }, labeled = { tokens, label, 1 };
    megatrain_document five[5];
    documents_fill(&d, 4);
    for (int i = 0; i < 5; i++) five[i] = d.items[0];
    assert_status(megatrain_model_step(m, &beyond, 1, &r, &error), MEGATRAIN_ERANGE);
    assert_message("97");
    assert_status(megatrain_model_step(m, &negative, 1, &r, &error), MEGATRAIN_ERANGE);
    assert_status(megatrain_model_step(m, &none, 1, &r, &error), MEGATRAIN_ERANGE);
    assert_status(megatrain_model_step(m, &longer, 1, &r, &error), MEGATRAIN_ERANGE);
    assert_message("dataset.max_seq_len");
    assert_status(megatrain_model_step(m, &endless, 1, &r, &error), MEGATRAIN_ERANGE);
    assert_done(megatrain_model_evaluate(m, &labeled, 1, &r, &error)); /* label 97 is beyond its one token */
    assert_true(r.empty && r.loss != r.loss);
    assert_status(megatrain_model_step(m, d.items, 0, &r, &error), MEGATRAIN_ERANGE);
    assert_status(megatrain_model_step(m, five, 5, &r, &error), MEGATRAIN_ERANGE);
    assert_message("training.batch_size");
    assert_status(megatrain_model_step(m, five, SIZE_MAX, &r, &error), MEGATRAIN_ERANGE);
    assert_status(megatrain_model_logits(m, d.tokens[0], 2, logits, 97, &error), MEGATRAIN_ERANGE);
    static const double rates[] = { 0.0 / 0.0, 1 / 0.0, -1 / 0.0, 1e300, 1000.1 };
    for (size_t i = 0; i < MT_COUNT(rates); i++) {
        assert_status(megatrain_model_set_learning_rate(m, rates[i], &error), MEGATRAIN_ERANGE);
        assert_message("training.learning_rate: expected a number from 0 to 1000, found ");
    }
    assert_status(megatrain_model_generate(m, tokens, 2, NULL, out, 4, &n, &error), MEGATRAIN_ERANGE);
    assert_int_equal(n, 0);
    assert_status(megatrain_model_generate(m, d.tokens[0], 0, NULL, out, 4, &n, &error), MEGATRAIN_ERANGE);
    assert_status(megatrain_model_generate(m, tokens, 17, NULL, out, 4, &n, &error), MEGATRAIN_ERANGE);
    assert_status(megatrain_model_generate(m, d.tokens[0], 3, NULL, out, 0, &n, &error), MEGATRAIN_ERANGE);
    assert_int_not_equal(
        megatrain_model_generate(m, d.tokens[0], 3, &(megatrain_sampling){ .temperature = -1 }, out, 4, &n, &error),
        MEGATRAIN_OK);
    const megatrain_document lone = { d.tokens[0], NULL, 1 };
    assert_done(megatrain_model_step(m, &lone, 1, &r, &error)); /* nothing to train on */
    assert_true(r.empty);
    assert_done(megatrain_model_step(m, d.items, N_DOCS, &r, &error));
    assert_done(megatrain_model_step(fresh, d.items, N_DOCS, &r, &error));
    assert_true(checksum_of(m) == checksum_of(fresh));
    megatrain_model_close(fresh);
    megatrain_model_close(m);
}

static void what_cannot_be_opened_says_why(void **state)
{
    const char *dir = *state;
    megatrain_model *m = NULL;
    static const struct {
        const char *key, *value;
        megatrain_status status;
        const char *says;
    } cases[] = {
        { "model.name", "/nowhere/at-all", MEGATRAIN_ENOENT, "/nowhere/at-all" },
        { "training.freeze", "*", MEGATRAIN_EINVAL, "nothing is left to train" },
        { "training.epochs", "2", MEGATRAIN_EINVAL, "training.num_steps" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        megatrain_config *c = CONFIG(LLAMA, cases[i].key, cases[i].value);
        megatrain_status got = megatrain_model_open(&m, c, MEGATRAIN_TRAIN, &error);
        if (got != cases[i].status || !strstr(error.message, cases[i].says))
            fail_msg("%s: %s: %s", cases[i].key, megatrain_status_name(got), error.message);
        assert_null(m);
        megatrain_config_free(c);
    }
    megatrain_config *c = CONFIG(workspace_path("%s/model", dir).s); /* config.json without weights */
    assert_status(megatrain_model_open(&m, c, MEGATRAIN_TRAIN, &error), MEGATRAIN_ENOENT);
    assert_status(megatrain_model_open(&m, c, 64, &error), MEGATRAIN_EINVAL);
    assert_message("uses is 64");
    megatrain_config_free(c);
}

static void after_a_failure_every_call_returns_it(void **state)
{
    const char *dir = *state;
    documents d;
    megatrain_result r;
    megatrain_error first;
    int32_t out[4];
    size_t n;
    uint64_t sum;
    float logits[97];
    megatrain_model *m = model_of(LLAMA, MEGATRAIN_TRAIN | MEGATRAIN_GENERATE);
    documents_fill(&d, 4);
    mt_fault_arm(MT_FAULT_QUEUE, 20);
    megatrain_status status = megatrain_model_step(m, d.items, N_DOCS, &r, &first);
    assert_true(mt_fault_disarm());
    assert_true(status != MEGATRAIN_OK && first.message[0]);
    assert_status(megatrain_model_step(m, d.items, N_DOCS, &r, &error), status);
    assert_string_equal(error.message, first.message);
    assert_status(megatrain_model_evaluate(m, d.items, N_DOCS, &r, &error), status);
    assert_status(megatrain_model_logits(m, d.tokens[0], 1, logits, 97, &error), status);
    assert_status(megatrain_model_generate(m, d.tokens[0], 3, NULL, out, 4, &n, &error), status);
    assert_status(megatrain_model_save(m, workspace_path("%s/failed", dir).s, &error), status);
    assert_status(megatrain_model_checksum(m, &sum, &error), status);
    megatrain_model_close(m);
}

static megatrain_status live(const char *out)
{
    documents d;
    int32_t tokens[4];
    size_t n;
    megatrain_config *c = NULL;
    megatrain_model *m = NULL;
    static const char *const pairs[][2] = { { "model.name", LLAMA },
                                            { "model.device", "cpu" },
                                            { "model.dtype", "float32" },
                                            { "dataset.max_seq_len", "16" },
                                            { "training.batch_size", "4" } };
    documents_fill(&d, 4);
    megatrain_status status = megatrain_config_create(&c, &error);
    for (size_t i = 0; !status && i < MT_COUNT(pairs); i++) status = megatrain_config_set(c, pairs[i][0], pairs[i][1], &error);
    if (!status) status = megatrain_model_open(&m, c, MEGATRAIN_TRAIN | MEGATRAIN_GENERATE, &error);
    if (!status) status = megatrain_model_step(m, d.items, N_DOCS, NULL, &error);
    if (!status) status = megatrain_model_generate(m, d.tokens[0], 4, NULL, tokens, 4, &n, &error);
    if (!status) status = megatrain_model_save(m, out, &error);
    megatrain_model_close(m);
    megatrain_config_free(c);
    return status;
}

/* Of the many allocations of an opening every few are tried, from the first on. */
static void whatever_fails_is_an_error_and_leaks_nothing(void **state)
{
    const char *dir = *state;
    static const struct {
        mt_fault_kind kind;
        int stride;
    } kinds[] = {
        { MT_FAULT_ALLOC, 7 }, { MT_FAULT_DEVICE, 1 }, { MT_FAULT_COPY, 1 }, { MT_FAULT_QUEUE, 5 }, { MT_FAULT_THREAD, 1 }
    };
    for (size_t k = 0; k < MT_COUNT(kinds); k++)
        for (long n = 0;; n += kinds[k].stride) {
            mt_err err = { 0 };
            const test_path out = workspace_path("%s/lived", dir);
            mt_fault_arm(kinds[k].kind, n);
            megatrain_status status = live(out.s);
            bool delivered = mt_fault_disarm();
            assert_ok(mt_dir_remove(out.s, &err));
            if (!delivered) {
                assert_int_equal(status, MEGATRAIN_OK);
                break;
            }
            if (status && !error.message[0]) fail_msg("kind %zu, call %ld: no message", k, n);
        }
}

/* -- several at once ------------------------------------------------------------------------------- */

typedef struct lone_model {
    megatrain_model *m;
    int seed;
    megatrain_status status;
} lone_model;

static void *step_alone(void *arg)
{
    lone_model *l = arg;
    documents d;
    for (int i = 0; i < 8 && !l->status; i++) {
        documents_fill(&d, l->seed + i);
        l->status = megatrain_model_step(l->m, d.items, N_DOCS, NULL, NULL);
    }
    return NULL;
}

static void models_in_two_threads_do_not_see_each_other(void **state)
{
    (void)state;
    lone_model both[2] = { { .seed = 1 }, { .seed = 30 } };
    pthread_t threads[2];
    uint64_t expected[2];
    for (int i = 0; i < 2; i++) {
        both[i].m = model_of(LLAMA, MEGATRAIN_TRAIN);
        step_alone(&both[i]);
        expected[i] = checksum_of(both[i].m);
        megatrain_model_close(both[i].m);
    }
    assert_true(expected[0] != expected[1]);
    for (int i = 0; i < 2; i++) both[i].m = model_of(LLAMA, MEGATRAIN_TRAIN);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, step_alone, &both[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(both[i].status, MEGATRAIN_OK);
        assert_true(checksum_of(both[i].m) == expected[i]);
        megatrain_model_close(both[i].m);
    }
}

static void keep_notice(void *user, megatrain_level level, const char *text)
{
    if (level >= MEGATRAIN_INFO) snprintf(user, 256, "%s", text);
}

static void notices_reach_their_receiver(void **state)
{
    (void)state;
    char kept[256] = "";
    megatrain_plan_info plan;
    megatrain_config *c = CONFIG(LLAMA, "model.trust_remote_code", "true");
    megatrain_set_notices(keep_notice, kept);
    assert_done(megatrain_plan(c, &plan, &error));
    megatrain_set_notices(NULL, NULL);
    assert_non_null(strstr(kept, "trust_remote_code"));
    kept[0] = '\0';
    assert_done(megatrain_plan(c, &plan, &error));
    assert_string_equal(kept, "");
    megatrain_config_free(c);
}

#define IN_WORKSPACE(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(cmocka_unit_test(a_wrong_setting_is_refused_by_name), IN_WORKSPACE(a_refused_file_changes_nothing),
             cmocka_unit_test(a_plan_tells_what_training_takes), cmocka_unit_test(a_plan_that_does_not_fit_is_an_answer),
             cmocka_unit_test(the_loss_falls_and_evaluation_changes_nothing),
             cmocka_unit_test(the_learning_rate_follows_the_schedule_or_the_caller),
             IN_WORKSPACE(own_steps_give_the_bits_of_a_run), cmocka_unit_test(own_steps_on_several_devices_give_the_bits_of_one),
             IN_WORKSPACE(a_saved_model_computes_the_same), IN_WORKSPACE(a_model_that_could_not_be_saved_is_not_trained),
             cmocka_unit_test(a_model_that_is_not_trained_evaluates_and_generates),
             cmocka_unit_test(a_continuation_ends_where_the_sequence_is_full),
             cmocka_unit_test(text_becomes_tokens_and_text_again), cmocka_unit_test(a_model_without_a_tokenizer_says_so),
             IN_WORKSPACE(a_stopped_run_continues_to_the_same_bits), IN_WORKSPACE(long_paths_are_not_cut),
             IN_WORKSPACE(a_locale_with_commas_changes_nothing), cmocka_unit_test(every_null_is_an_error),
             cmocka_unit_test(wrong_sizes_and_tokens_change_nothing), IN_WORKSPACE(what_cannot_be_opened_says_why),
             IN_WORKSPACE(after_a_failure_every_call_returns_it), IN_WORKSPACE(whatever_fails_is_an_error_and_leaks_nothing),
             cmocka_unit_test(models_in_two_threads_do_not_see_each_other), cmocka_unit_test(notices_reach_their_receiver))
