/* cmd_grad.c - megatrain grad: one forward and backward over given tokens, written to a safetensors file.  Use it to compare our
 * gradients with another implementation's: tensor names are Hugging Face's. */
#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"
#include "ckpt/model_files.h"
#include "ckpt/safetensors_write.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/hub_bar.h"
#include "engine/load.h"
#include "plan/measure.h"
#include "plan/search.h"

#include <stdio.h>
#include <string.h>

typedef struct options {
    const char *model, *tokens, *out, *dtype, *device, *assume;
    uint64_t device_memory;
    bool logits;
} options;

typedef struct job {
    mt_config *config;
    mt_shards *shards;
    mt_model *model;
    mt_device *dev;
    mt_plan *plan;
    mt_engine *engine;
    mt_batch batch;
    mt_safetensors_writer *writer;
} job;

static mt_rc open_model(job *j, const options *o, mt_err *err)
{
    char notice[256];
    MT_TRY(mt_refuse_run(o->model, err));
    MT_TRY(mt_model_files_config(&j->config, o->model, err));
    MT_TRY(mt_config_assume(&j->config, o->assume, err));
    MT_TRY(mt_config_check_known(j->config, err));
    MT_TRY(mt_shards_open(&j->shards, o->model, err));
    MT_TRY(mt_weights_model(&j->model, &j->config, j->shards, NULL, notice, err));
    for (size_t i = 0; i < j->config->n_assumptions; i++) mt_warn("%s", j->config->assumptions[i]);
    if (notice[0]) mt_warn("%s", notice);
    MT_TRY(mt_batch_read_json(&j->batch, o->tokens, j->config->V, err));
    if (j->batch.longest > j->config->max_positions)
        return mt_fail(err, MT_ERANGE, "%s: a row of %lld tokens; the model has %lld positions", o->tokens,
                       (long long)j->batch.longest, (long long)j->config->max_positions);
    return MT_OK;
}

/* Tries row chunks from large to small until one fits the allowed memory. */
static mt_rc choose_plan(job *j, mt_dtype t, mt_err *err)
{
    static const struct {
        int64_t micro, mlp, head;
    } sizes[] = { { 4096, 1024, 256 }, { 1, 256, 64 }, { 1, 16, 4 } };
    mt_job asked = { .train = true,
                     .clip = true,
                     .only_gradients = true,
                     .step_tokens = j->batch.n_tokens,
                     .step_docs = j->batch.n_docs,
                     .longest = j->batch.longest,
                     .objective.columns = j->batch.asked };
    mt_rc rc = MT_OK;
    mt_machine machine;
    MT_TRY(mt_machine_here(&machine, j->dev, &(mt_machine_given){ 0 }, true, err));
    for (size_t i = 0; i < MT_COUNT(sizes); i++) {
        mt_arithmetic a = { .compute = t,
                            .grad = MT_DTYPE_F32,
                            .micro_tokens = mt_max_i64(j->batch.longest, mt_min_i64(j->batch.n_tokens, sizes[i].micro)),
                            .mlp_rows = sizes[i].mlp,
                            .head_rows = sizes[i].head,
                            .attention = mt_attention_use_of(j->dev, true, false, machine.device_bytes) };
        rc = mt_plan_search(&j->plan, (mt_plan_inputs){ j->model, &asked, &a, &machine }, err);
        if (rc != MT_ENOMEM) break;
    }
    return rc;
}

static mt_rc open_engine(job *j, const options *o, mt_err *err)
{
    mt_dtype t;
    if (!mt_dtype_from_torch(o->dtype, &t) || (t != MT_DTYPE_F32 && t != MT_DTYPE_BF16))
        return mt_fail(err, MT_EINVAL, "--dtype %s: float32 or bfloat16 expected", o->dtype);
    MT_TRY(mt_device_open(&j->dev, o->device, &(mt_device_options){ .memory_limit = (size_t)o->device_memory }, err));
    MT_TRY(choose_plan(j, t, err));
    MT_TRY(mt_engine_create(&j->engine, j->dev, j->plan, NULL, err));
    return mt_engine_load(j->engine, j->model, j->shards, err);
}

/* -- output ------------------------------------------------------------------------------- */

static void grad_name(const mt_walk *at, char out[MT_NAME_BYTES + 8])
{
    char name[MT_NAME_BYTES];
    mt_weight_name(at->u, at->w, name);
    snprintf(out, MT_NAME_BYTES + 8, "grad.%s", name);
}

static mt_rc cmd_grad_declare(job *j, const options *o, mt_err *err)
{
    MT_TRY(mt_safetensors_writer_create(&j->writer, o->out, err));
    MT_TRY(mt_safetensors_writer_add(j->writer, "loss", MT_DTYPE_F32, 1, (const int64_t[]){ 1 }, err));
    for (mt_walk at = mt_walk_model(j->model); mt_walk_next(&at);) {
        const mt_tensor_slice *s = &at.w->slice;
        char name[MT_NAME_BYTES + 8];
        if (!mt_weight_leads(at.u, at.w)) continue; /* in the tensor of another */
        grad_name(&at, name);
        MT_TRY(mt_safetensors_writer_add(j->writer, name, MT_DTYPE_F32, s->n_dims, s->shape, err));
    }
    for (int64_t d = 0; o->logits && d < j->batch.n_docs; d++) {
        char name[40];
        snprintf(name, sizeof name, "logits.%lld", (long long)d);
        int64_t shape[2] = { j->batch.doc_start[d + 1] - j->batch.doc_start[d], j->config->V };
        MT_TRY(mt_safetensors_writer_add(j->writer, name, MT_DTYPE_F32, 2, shape, err));
    }
    return mt_safetensors_writer_start(j->writer, err);
}

/* The tensor of the checkpoint that the weight fills, or that it is the first part of. */
static mt_rc put_tensor(job *j, const mt_walk *at, const float *g, mt_err *err)
{
    const mt_layout *l = at->u->layout;
    size_t n = (size_t)mt_slice_slab(&at->w->slice);
    char name[MT_NAME_BYTES + 8];
    float *tensor = mt_calloc(n, sizeof *tensor);
    if (!tensor) return mt_no_memory(err, "a tensor's gradient");
    grad_name(at, name);
    for (int k = (int)(at->w - l->weights); k < l->n_weights; k = mt_slab_next(l, k))
        mt_weight_scatter(&l->weights[k], tensor, sizeof *tensor, 0, l->weights[k].n, g + l->weights[k].offset);
    mt_rc rc = mt_safetensors_writer_put(j->writer, name, (size_t)mt_weight_slab(at->u, at->w) * sizeof *tensor, tensor,
                                         n * sizeof *tensor, err);
    mt_free(tensor);
    return rc;
}

static mt_rc put_unit(job *j, int u, mt_err *err)
{
    float *g = mt_calloc((size_t)j->model->units[u].layout->n_elems, sizeof *g);
    if (!g) return mt_no_memory(err, "a unit's gradient");
    mt_rc rc = mt_engine_read_grad(j->engine, u, g, err);
    for (mt_walk at = mt_walk_units(j->model, (mt_layer_units){ u, 1 }); !rc && mt_walk_next(&at);)
        if (!at.w->slice.first) rc = put_tensor(j, &at, g, err);
    mt_free(g);
    return rc;
}

static mt_rc put_logits(job *j, mt_err *err)
{
    size_t V = (size_t)j->config->V;
    float *all = mt_calloc((size_t)j->batch.n_tokens * V, sizeof *all);
    if (!all) return mt_no_memory(err, "the logits");
    mt_rc rc = mt_engine_logits(j->engine, &j->batch, all, err);
    for (int64_t d = 0; !rc && d < j->batch.n_docs; d++) {
        char name[40];
        size_t from = (size_t)j->batch.doc_start[d], rows = (size_t)j->batch.doc_start[d + 1] - from;
        snprintf(name, sizeof name, "logits.%lld", (long long)d);
        rc = mt_safetensors_writer_put(j->writer, name, 0, all + from * V, rows * V * sizeof *all, err);
    }
    mt_free(all);
    return rc;
}

static mt_rc cmd_grad_run(job *j, const options *o, mt_err *err)
{
    mt_step_result r;
    MT_TRY(open_model(j, o, err));
    MT_TRY(open_engine(j, o, err));
    MT_TRY(mt_engine_gradients(j->engine, &j->batch, &r, err));
    MT_TRY(cmd_grad_declare(j, o, err));
    float loss = (float)r.loss;
    MT_TRY(mt_safetensors_writer_put(j->writer, "loss", 0, &loss, sizeof loss, err));
    for (int u = 0; u < j->model->n_units; u++) MT_TRY(put_unit(j, u, err));
    if (o->logits) MT_TRY(put_logits(j, err));
    MT_TRY(mt_safetensors_writer_finish(j->writer, err));
    printf("loss %.6f over %lld of %lld tokens, gradient norm %.6f, written to %s\n", r.loss, (long long)r.n_trained,
           (long long)r.n_tokens, r.grad_norm, o->out);
    return MT_OK;
}

static void close_job(job *j)
{
    mt_safetensors_writer_free(j->writer);
    mt_engine_free(j->engine);
    mt_device_close(j->dev);
    mt_plan_free(j->plan);
    mt_batch_free(&j->batch);
    mt_model_free(j->model);
    mt_shards_close(j->shards);
    mt_config_close(j->config);
}

int mt_cmd_grad(int argc, char **argv)
{
    mt_err err = { 0 };
    job j = { 0 };
    options o = { .dtype = "float32", .device = "auto" };
    bool help;
    const mt_flag flags[] = {
        { "--tokens", MT_FLAG_STR, &o.tokens, "FILE",
          "JSON {\"input_ids\": [[...], ...], \"labels\": [[...], ...], \"weight\": [...]}", true },
        { "--out", MT_FLAG_STR, &o.out, "FILE", "where to write (safetensors)", true },
        { "--logits", MT_FLAG_BOOL, &o.logits, NULL, "also write logits.<row>", false },
        { "--dtype", MT_FLAG_STR, &o.dtype, "TYPE", "float32 (default) or bfloat16", false },
        { "--device", MT_FLAG_STR, &o.device, "WORD", "auto (default), cpu, cuda, cuda:N", false },
        { "--device-memory", MT_FLAG_MEMORY, &o.device_memory, "SIZE", "use at most this much: 64M, 8G", false },
        { "--assume", MT_FLAG_STR, &o.assume, "FAMILY", "the family of an unknown model_type, such as llama", false },
    };
    const mt_usage usage = {
        "grad",
        "MODEL --tokens FILE --out FILE [options]",
        "Run one forward and backward over rows of tokens (any lengths, packed without padding)\n"
        "and write loss, grad.<tensor> for every parameter and, if asked, logits.<row>.\n"
        "Labels are optional, -100 is ignored, and the shift is Hugging Face's.  With weights, one for\n"
        "each row, the loss is the weighted mean over trained tokens.",
        "MODEL",
        flags,
        MT_COUNT(flags),
        NULL,
    };
    mt_rc rc = mt_flags_parse(&usage, argc, argv, &o.model, &help, &err);
    if (!rc && !help) rc = cmd_grad_run(&j, &o, &err);
    close_job(&j);
    return rc ? mt_cli_failed(&err) : 0;
}
