#include "cli/plan_ask.h"

#include "base/units.h"
#include "plan/gpus.h"
#include "plan/shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_BATCH = 32 };

/* -- the machine ----------------------------------------------------------------------------------- */

static mt_rc open_device(mt_device **out, const mt_machine_asked *asked, mt_err *err)
{
    char word[32] = "auto";
    if (asked->device.kind == MT_SET_DEVICE_CPU) snprintf(word, sizeof word, "cpu");
    if (asked->device.kind == MT_SET_DEVICE_CUDA) snprintf(word, sizeof word, "cuda:%d", asked->device.index);
    return mt_device_open(out, word, NULL, err);
}

mt_rc mt_plan_machine(mt_machine_found *out, const mt_machine_asked *asked, mt_err *err)
{
    mt_machine_given given = asked->given;
    mt_device *dev = NULL;
    mt_device_info info;
    mt_host host;
    given.ram = (size_t)asked->ram;
    given.device_memory = (size_t)asked->device_memory;
    given.link = (double)asked->link;
    given.cores = (int)asked->cores;
    *out = (mt_machine_found){ 0 };
    if (!given.gpu) MT_TRY(open_device(&dev, asked, err));
    mt_rc rc = mt_machine_here(&out->machine, dev, &given, true, err);
    if (!rc && dev) {
        dev->api->info(dev, &info);
        snprintf(out->device, sizeof out->device, "%s", info.name);
    } else if (!rc)
        snprintf(out->device, sizeof out->device, "%s, %s usable", given.gpu, mt_bytes_text(out->machine.device_bytes).s);
    if (!rc) rc = mt_host_read(&host, "", err);
    if (!rc) snprintf(out->ram_source, sizeof out->ram_source, "%s", given.ram ? "as given" : host.limited_by);
    mt_device_close(dev);
    return rc;
}

/* -- what can I train ------------------------------------------------------------------------------ */

static mt_rc print_fit(const mt_shape *s, const mt_machine *machine, int64_t seq_len, mt_err *err)
{
    mt_config *c;
    mt_model *m;
    MT_TRY(mt_shape_model(&c, &m, s, err));
    mt_question q = { .model = m, .machine = *machine, .form = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16 }, .clip = true, .batch = USUAL_BATCH };
    q.seq_len = seq_len < c->max_positions ? seq_len : c->max_positions;
    mt_question tight = q;
    tight.machine.device_bytes -= machine->device_bytes / 10;
    tight.machine.host_bytes -= machine->host_bytes / 10;
    const mt_job job = mt_question_job(&q, q.batch);
    bool fits = mt_plan_auto_fits(m, &job, &q.form, &q.machine);
    mt_need need;
    mt_rc rc = mt_advise_need(&need, &q, err);
    printf("  %-28s %8s  ", s->name, mt_count_text((uint64_t)m->n_params).s);
    if (fits)
        printf("%s", mt_plan_auto_fits(m, &job, &q.form, &tight.machine) ? "fits" : "tight");
    else if (!rc && need.device > machine->device_bytes)
        printf("needs %s on the GPU", mt_bytes_text(need.device).s);
    else if (!rc)
        printf("needs %s of RAM", mt_bytes_text(need.host).s);
    printf("%s\n", s->untrained ? " (not trained)" : "");
    mt_model_free(m);
    mt_config_close(c);
    return rc;
}

mt_rc mt_plan_what_fits(const mt_machine_asked *asked, int64_t seq_len, mt_err *err)
{
    mt_machine_found found;
    MT_TRY(mt_plan_machine(&found, asked, err));
    printf("%s, %s of host memory (%s);\nsteps of %d samples of %lld tokens, clipping on\n", found.device, mt_bytes_text(found.machine.host_bytes).s, found.ram_source,
           USUAL_BATCH, (long long)seq_len);
    for (size_t i = 0; i < mt_n_shapes; i++) MT_TRY(print_fit(&mt_shapes[i], &found.machine, seq_len, err));
    return MT_OK;
}

/* -- questions ------------------------------------------------------------------------------------- */

/* A line, or `fallback` for an empty one; false: no more input. */
static bool ask(const char *question, const char *fallback, char *out, size_t n)
{
    printf("%s%s%s%s ", question, *fallback ? " [" : "", fallback, *fallback ? "]" : "");
    fflush(stdout);
    if (!fgets(out, (int)n, stdin)) return false;
    out[strcspn(out, "\r\n")] = '\0';
    if (!*out) snprintf(out, n, "%s", fallback);
    return true;
}

/* A model that is in no table: its parameters are spread over its layers. */
static mt_rc custom_shape(mt_shape *s, char *config, size_t n, mt_err *err)
{
    char params[32], width[32], layers[32];
    uint64_t count;
    if (!ask("parameters, such as 13B:", "", params, sizeof params) || !ask("hidden size:", "4096", width, sizeof width) || !ask("layers:", "32", layers, sizeof layers))
        return mt_fail(err, MT_EINVAL, "no answer");
    MT_TRY(mt_bytes_parse(params, &count, err)); /* G is what people call B */
    int64_t D = atoll(width), L = atoll(layers);
    if (D < 64 || L < 1) return mt_fail(err, MT_ERANGE, "a hidden size of %s and %s layers?", width, layers);
    snprintf(config, n, "{\"model_type\":\"llama\",\"hidden_size\":%lld,\"intermediate_size\":%lld,\"num_hidden_layers\":%lld,\"num_attention_heads\":%lld,\"vocab_size\":32000,"
                        "\"max_position_embeddings\":1048576,\"dtype\":\"bfloat16\"}", (long long)D, (long long)(D * 8 / 3 / 64 * 64), (long long)L, (long long)(D / 64));
    *s = (mt_shape){ .name = "a model of your own", .config = config, .untrained = "custom", .billions = (double)count / 1e9 };
    return MT_OK;
}

static mt_rc ask_batch(mt_err *err)
{
    char model[128], gpu[64], ram[32], context[32], config[512];
    mt_machine_asked asked = { 0 };
    mt_machine_found found;
    mt_shape custom;
    const mt_shape *shape = &custom;
    if (!ask("model (a published name, or custom):", "qwen2.5-7b", model, sizeof model)) return MT_OK;
    if (strcmp(model, "custom") == 0) {
        MT_TRY(custom_shape(&custom, config, sizeof config, err));
    } else
        MT_TRY(mt_shape_find(&shape, model, err));
    if (!ask("GPU (a name such as h100, or here):", "here", gpu, sizeof gpu) || !ask("host memory (such as 256G, or here):", "here", ram, sizeof ram) ||
        !ask("tokens of context:", "2048", context, sizeof context))
        return MT_OK;
    if (strcmp(gpu, "here")) asked.given.gpu = gpu;
    if (strcmp(ram, "here")) MT_TRY(mt_bytes_parse(ram, &asked.ram, err));
    MT_TRY(mt_plan_machine(&found, &asked, err));
    mt_config *c;
    mt_model *m;
    MT_TRY(mt_shape_model(&c, &m, shape, err));
    mt_plan_answer a = { .model = shape->name, .untrained = shape == &custom ? NULL : shape->untrained, .device = found.device, .ram_source = found.ram_source };
    a.q = (mt_question){ .model = m, .machine = found.machine, .form = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16 }, .clip = true, .seq_len = atoll(context) };
    mt_plan *plan = NULL;
    mt_str out = { 0 };
    mt_rc rc = a.q.seq_len < 1 ? mt_fail(err, MT_ERANGE, "%s tokens of context?", context) : mt_plan_answer_find(&a, &plan, err);
    mt_terminal term = mt_terminal_of(stdout, MT_COLOR_AUTO);
    if (!rc) mt_plan_show(&out, &a, &term);
    printf("\n%s", out.s ? out.s : "");
    mt_str_free(&out);
    mt_plan_free(plan);
    mt_model_free(m);
    mt_config_close(c);
    return rc;
}

mt_rc mt_plan_ask(mt_err *err)
{
    char choice[16];
    printf("1  what can I train on this machine?\n2  which batch size for this model?\n");
    if (!ask("which question:", "1", choice, sizeof choice)) return MT_OK;
    return strcmp(choice, "2") == 0 ? ask_batch(err) : mt_plan_what_fits(&(mt_machine_asked){ 0 }, 1024, err);
}
