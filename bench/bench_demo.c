/* The demo's training alone: the model of data/demo_model on data/demo_train.json with the engine, then every request of
 * data/demo_test.json, by task.  For choosing its shape and settings, and for looking at where the time goes.
 *
 *     bench_demo MODEL_DIR DATA_DIR [steps] [batch] [lr] [seed] [threads] [FILE.safetensors]
 *
 * An answer counts as right if each of its tokens, the end included, is the likeliest after the ones before it: then
 * greedy generation writes exactly it. */
#include "base/json.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/split.h"
#include "ckpt/safetensors_write.h"
#include "device/blas.h"
#include "engine/load.h"
#include "tokenizer/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TOKENS = 64, MAX_TASKS = 16 };

typedef struct sample {
    int32_t ids[MAX_TOKENS], labels[MAX_TOKENS];
    int64_t n;
    const char *task; /* into the document */
} sample;

typedef struct bench {
    mt_tokenizer *tok;
    mt_tok_scratch *scratch;
    mt_config *config;
    mt_model *model;
    mt_device *dev;
    mt_plan *plan;
    mt_engine *engine;
    mt_batch batch;
    const mt_value *docs[2];
    sample *train, *test;
    size_t n_train, n_test;
} bench;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static mt_rc add_tokens(bench *b, sample *s, const char *text, bool train, mt_err *err)
{
    mt_tokens out = { 0 };
    mt_rc rc = mt_tokenizer_encode(b->tok, b->scratch, text, strlen(text), 0, &out, err);
    if (!rc && s->n + (int64_t)out.n > MAX_TOKENS) rc = mt_fail(err, MT_ERANGE, "a sample of more than %d tokens", MAX_TOKENS);
    for (size_t i = 0; !rc && i < out.n; i++, s->n++) {
        s->ids[s->n] = out.ids[i];
        s->labels[s->n] = train ? out.ids[i] : MT_IGNORE;
    }
    mt_tokens_free(&out);
    return rc;
}

static const char *field(const mt_value *record, const char *key)
{
    const char *s = mt_json_string(mt_value_get(record, key));
    return s ? s : "";
}

static mt_rc read_sample(bench *b, sample *s, const mt_value *record, mt_err *err)
{
    char prompt[512], answer[256];
    const char *input = field(record, "input");
    snprintf(prompt, sizeof prompt, "<|im_start|>user\n%s%s%s<|im_end|>\n<|im_start|>assistant\n", field(record, "instruction"),
             *input ? "\n" : "", input);
    snprintf(answer, sizeof answer, "%s<|im_end|>", field(record, "output"));
    s->task = field(record, "task");
    MT_TRY(add_tokens(b, s, prompt, false, err));
    return add_tokens(b, s, answer, true, err);
}

static mt_rc read_samples(bench *b, const char *dir, const char *file, const mt_value **doc, sample **out, size_t *n, mt_err *err)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    MT_TRY(mt_json_read(doc, path, err));
    *n = mt_value_items(*doc);
    *out = mt_calloc(*n, sizeof **out);
    if (!*out) return mt_fail(err, MT_ENOMEM, "no host memory for the samples");
    for (size_t i = 0; i < *n; i++) MT_TRY(read_sample(b, &(*out)[i], mt_value_at(*doc, i), err));
    return MT_OK;
}

static mt_rc open_all(bench *b, char **argv, int batch, uint64_t seed, int n_threads, mt_err *err)
{
    MT_TRY(mt_tokenizer_open(&b->tok, argv[1], err));
    MT_TRY(mt_tok_scratch_create(&b->scratch, b->tok, err));
    MT_TRY(read_samples(b, argv[2], "demo_train.json", &b->docs[0], &b->train, &b->n_train, err));
    MT_TRY(read_samples(b, argv[2], "demo_test.json", &b->docs[1], &b->test, &b->n_test, err));
    MT_TRY(mt_config_open(&b->config, argv[1], err));
    MT_TRY(mt_model_create(&b->model, b->config, NULL, err));
    mt_job job = { .train = true, .clip = true, .step_tokens = batch * MAX_TOKENS, .step_docs = batch, .longest = MAX_TOKENS };
    mt_arithmetic a = { .compute = MT_DTYPE_F32,
                        .grad = MT_DTYPE_F32,
                        .micro_tokens = job.step_tokens,
                        .mlp_rows = job.step_tokens,
                        .head_rows = job.step_tokens };
    MT_TRY(mt_plan_choose(&b->plan, b->model, &job, &a, 0, err));
    MT_TRY(mt_device_open(&b->dev, "cpu", &(mt_device_options){ .n_threads = n_threads }, err));
    MT_TRY(mt_engine_create(&b->engine, b->dev, b->plan, &(mt_engine_options){ .n_workers = n_threads }, err));
    return mt_engine_init(b->engine, b->model, seed, err);
}

/* Linear warm-up over a tenth, then a cosine to nothing. */
static double lr_at(int step, int n_steps, double peak)
{
    int warm = n_steps / 20;
    if (step < warm) return peak * (step + 1) / warm;
    return peak * 0.5 * (1 + cos(3.14159265358979 * (step - warm) / (n_steps - warm)));
}

static mt_rc train(bench *b, int n_steps, int batch, double peak, uint64_t seed, mt_err *err)
{
    double start = now_s(), loss = 0;
    int64_t n_tokens = 0;
    for (int step = 0; step < n_steps; step++) {
        mt_step_result r;
        mt_hyper h = {
            .lr = lr_at(step, n_steps, peak), .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-8, .weight_decay = 0.01, .max_grad_norm = 1.0
        };
        mt_batch_clear(&b->batch);
        for (int i = 0; i < batch; i++) {
            size_t at = ((size_t)step * (size_t)batch + (size_t)i + seed * 977) % b->n_train;
            MT_TRY(mt_batch_add(&b->batch, b->train[at].ids, b->train[at].labels, b->train[at].n, b->config->V, err));
        }
        MT_TRY(mt_engine_step(b->engine, &b->batch, &h, &r, err));
        loss += r.loss;
        n_tokens += r.n_tokens;
        if ((step + 1) % 40 == 0) {
            printf("step %4d  loss %.4f  norm %.2f  %.1f s\n", step + 1, loss / 40, r.grad_norm, now_s() - start);
            fflush(stdout);
            loss = 0;
        }
    }
    MT_TRY(mt_engine_settle(b->engine, err));
    double took = now_s() - start;
    printf("%lld parameters, %d steps, %.1f s, %.1f ms a step, %.0f tokens/s\n", (long long)b->model->n_params, n_steps, took,
           1e3 * took / n_steps, (double)n_tokens / took);
    return MT_OK;
}

/* The question, the answer, and the likeliest token after each token of the answer. */
static mt_rc show_wrong(bench *b, const sample *s, mt_err *err)
{
    int64_t V = b->config->V, first = 0;
    int32_t said[MAX_TOKENS];
    mt_str text = { 0 };
    float *logits = mt_calloc((size_t)(s->n * V), sizeof *logits);
    if (!logits) return mt_fail(err, MT_ENOMEM, "no host memory for logits");
    while (s->labels[first] == MT_IGNORE) first++;
    mt_rc rc = mt_engine_logits(b->engine, &b->batch, logits, err);
    for (int64_t i = first; !rc && i < s->n; i++) {
        const float *z = logits + (i - 1) * V;
        said[i] = 0;
        for (int32_t v = 1; v < V; v++)
            if (z[v] > z[said[i]]) said[i] = v;
    }
    if (!rc) rc = mt_tokenizer_decode(b->tok, s->ids, (size_t)s->n, true, &text, err);
    mt_str_puts(&text, "  |  ");
    if (!rc) rc = mt_tokenizer_decode(b->tok, said + first, (size_t)(s->n - first), false, &text, err);
    for (size_t i = 0; i < text.n; i++)
        if (text.s[i] == '\n') text.s[i] = ' ';
    if (!rc) printf("    %s\n", text.s);
    mt_str_free(&text);
    mt_free(logits);
    return rc;
}

static mt_rc ask(bench *b, mt_err *err)
{
    struct {
        const char *name;
        int n, right;
    } tasks[MAX_TASKS] = { 0 };
    int n_tasks = 0, right = 0;
    for (size_t i = 0; i < b->n_test; i++) {
        const sample *s = &b->test[i];
        mt_step_result r;
        mt_batch_clear(&b->batch);
        MT_TRY(mt_batch_add(&b->batch, s->ids, s->labels, s->n, b->config->V, err));
        MT_TRY(mt_engine_evaluate(b->engine, &b->batch, &r, err));
        int t = 0;
        while (t < n_tasks && strcmp(tasks[t].name, s->task) != 0) t++;
        if (t == n_tasks && n_tasks < MAX_TASKS) tasks[n_tasks++].name = s->task;
        tasks[t].n++;
        tasks[t].right += r.n_correct == r.n_trained;
        right += r.n_correct == r.n_trained;
        if (r.n_correct != r.n_trained && tasks[t].n - tasks[t].right <= 4) MT_TRY(show_wrong(b, s, err));
    }
    for (int t = 0; t < n_tasks; t++) printf("%-10s %3d of %3d\n", tasks[t].name, tasks[t].right, tasks[t].n);
    printf("%-10s %3d of %3d, %.1f%%\n", "all", right, (int)b->n_test, 100.0 * right / (double)b->n_test);
    return MT_OK;
}

/* The trained weights, for asking the model through `megatrain generate`. */
static mt_rc put_unit(bench *b, mt_safetensors_writer *w, int u, mt_err *err)
{
    const mt_state_range hi_of = mt_unit_state(b->model, u, MT_STATE_HI), lo_of = mt_unit_state(b->model, u, MT_STATE_LO);
    size_t n = (size_t)hi_of.n;
    uint16_t *hi = mt_calloc(n, sizeof *hi);
    int16_t *lo = mt_calloc(n, sizeof *lo);
    float *x = mt_calloc(n, sizeof *x);
    mt_rc rc = hi && lo && x ? MT_OK : mt_fail(err, MT_ENOMEM, "no host memory for a unit's weights");
    if (!rc) rc = mt_engine_read(b->engine, hi_of, hi, err);
    if (!rc) rc = mt_engine_read(b->engine, lo_of, lo, err);
    if (!rc) mt_join_array(x, hi, lo, n);
    for (mt_walk at = mt_walk_units(b->model, (mt_layer_units){ u, 1 }); !rc && mt_walk_next(&at);) {
        char name[MT_NAME_BYTES];
        mt_weight_name(at.u, at.w, name);
        rc = mt_safetensors_writer_put(w, name, 0, x + at.w->offset, (size_t)at.w->n * sizeof *x, err);
    }
    mt_free(hi);
    mt_free(lo);
    mt_free(x);
    return rc;
}

static mt_rc put_weights(bench *b, mt_safetensors_writer *w, mt_err *err)
{
    for (mt_walk at = mt_walk_model(b->model); mt_walk_next(&at);) {
        char name[MT_NAME_BYTES];
        mt_weight_name(at.u, at.w, name);
        MT_TRY(mt_safetensors_writer_add(w, name, MT_DTYPE_F32, at.w->n_dims, at.w->shape, err));
    }
    MT_TRY(mt_safetensors_writer_start(w, err));
    for (int u = 0; u < b->model->n_units; u++) MT_TRY(put_unit(b, w, u, err));
    return mt_safetensors_writer_finish(w, err);
}

static mt_rc save(bench *b, const char *path, mt_err *err)
{
    mt_safetensors_writer *w = NULL;
    MT_TRY(mt_safetensors_writer_create(&w, path, err));
    mt_rc rc = put_weights(b, w, err);
    mt_safetensors_writer_free(w);
    return rc;
}

static void close_all(bench *b)
{
    mt_engine_free(b->engine);
    mt_device_close(b->dev);
    mt_plan_free(b->plan);
    mt_model_free(b->model);
    mt_config_close(b->config);
    mt_batch_free(&b->batch);
    mt_free(b->train);
    mt_free(b->test);
    mt_json_free(b->docs[0]);
    mt_json_free(b->docs[1]);
    mt_tok_scratch_free(b->scratch);
    mt_tokenizer_close(b->tok);
}

int main(int argc, char **argv)
{
    mt_blas_reexec(argv);
    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL_DIR DATA_DIR [steps] [batch] [lr] [seed] [threads] [FILE.safetensors]\n", argv[0]);
        return 2;
    }
    mt_err err = { 0 };
    bench b = { 0 };
    int n_steps = argc > 3 ? atoi(argv[3]) : 640;
    int batch = argc > 4 ? atoi(argv[4]) : 32;
    double lr = argc > 5 ? atof(argv[5]) : 2e-3;
    uint64_t seed = argc > 6 ? strtoull(argv[6], NULL, 10) : 1;
    mt_rc rc = open_all(&b, argv, batch, seed, argc > 7 ? atoi(argv[7]) : 0, &err);
    if (!rc) rc = train(&b, n_steps, batch, lr, seed, &err);
    if (!rc && argc > 8) rc = save(&b, argv[8], &err);
    if (!rc) rc = ask(&b, &err);
    if (rc) fprintf(stderr, "error: %s\n", err.msg);
    close_all(&b);
    return rc ? 1 : 0;
}
