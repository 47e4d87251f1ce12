#include "cli/plan_ask.h"

#include "base/file.h"
#include "base/units.h"
#include "cli/terminal.h"
#include "hub/hub.h"
#include "plan/gpus.h"

#include <stdio.h>
#include <string.h>

typedef struct asking {
    mt_plan_asked *out;
    mt_settings *set;
    uint64_t params; /* of a model of one's own */
    int64_t width, layers;
} asking;

/* -- a question ------------------------------------------------------------------------------------ */

/* Accepts an answer, or explains why not. */
typedef mt_rc (*accept_fn)(asking *a, const char *text, mt_err *err);

enum { LINE = 128 };

/* A line, or `fallback` for an empty one; false: no more input. */
static bool read_line(const char *question, const char *fallback, char out[LINE])
{
    printf("%s%s%s%s ", question, *fallback ? " [" : "", fallback, *fallback ? "]" : "");
    fflush(stdout);
    if (!fgets(out, LINE, stdin)) return false;
    if (!strchr(out, '\n')) /* longer than any answer: drop the rest, so that it does not answer the next question */
        for (int c; (c = getchar()) != '\n' && c != EOF;) {
        }
    out[strcspn(out, "\r\n")] = '\0';
    if (!*out) snprintf(out, LINE, "%s", fallback);
    return true;
}

static void print_refusal(const mt_err *err)
{
    mt_terminal term = mt_terminal_of(stdout, MT_COLOR_AUTO);
    mt_str text = { 0 }, lines = { 0 };
    mt_str_printf(&text, "  %s", err->msg);
    mt_text_wrap(&lines, text.s ? text.s : "", mt_terminal_columns(&term), 2);
    printf("%s\n", mt_str_ok(&lines) && lines.s ? lines.s : err->msg);
    mt_str_free(&text);
    mt_str_free(&lines);
}

/* Repeats until there is a valid answer; false: no more input. */
static bool ask_until_valid(asking *a, const char *question, const char *fallback, accept_fn accept)
{
    char line[LINE];
    while (read_line(question, fallback, line)) {
        mt_err err = { 0 };
        if (!accept(a, line, &err)) return true;
        print_refusal(&err);
    }
    printf("\n");
    return false;
}

/* -- answers --------------------------------------------------------------------------------------- */

static mt_rc accept_question(asking *a, const char *text, mt_err *err)
{
    if (strcmp(text, "1") && strcmp(text, "2")) return mt_fail(err, MT_EINVAL, "1 or 2");
    a->out->what_fits = *text == '1';
    return MT_OK;
}

static mt_rc accept_model(asking *a, const char *text, mt_err *err)
{
    const mt_shape *known;
    bool elsewhere = mt_dir_exists(text) || mt_file_exists(text) || (strchr(text, '/') && mt_hub_is_name(text));
    if (strcmp(text, "custom") && !elsewhere) MT_TRY(mt_shape_find(&known, text, err));
    snprintf(a->out->model, sizeof a->out->model, "%s", text);
    a->out->subject.name = a->out->model;
    return MT_OK;
}

static mt_rc accept_params(asking *a, const char *text, mt_err *err) { return mt_count_parse(text, &a->params, err); }

static mt_rc accept_number(int64_t *out, const char *text, int64_t least, int64_t most, mt_err *err)
{
    uint64_t n;
    if (text[strspn(text, "0123456789")] || mt_count_parse(text, &n, NULL) || n < (uint64_t)least || n > (uint64_t)most)
        return mt_fail(err, MT_EINVAL, "a whole number from %lld to %lld", (long long)least, (long long)most);
    *out = (int64_t)n;
    return MT_OK;
}

static mt_rc accept_width(asking *a, const char *text, mt_err *err) { return accept_number(&a->width, text, 64, 1 << 17, err); }

static mt_rc accept_layers(asking *a, const char *text, mt_err *err) { return accept_number(&a->layers, text, 1, 1024, err); }

/* A llama with that many parameters: its MLPs get what the rest leaves. */
static mt_rc make_own(asking *a, mt_err *err)
{
    enum { VOCABULARY = 32000, HEAD = 64 };
    const double D = (double)a->width, L = (double)a->layers, rest = (double)a->params - 2 * VOCABULARY * D - 4 * D * D * L;
    const int64_t mlp = (int64_t)(rest / (3 * D * L)) / HEAD * HEAD;
    if (mlp < HEAD)
        return mt_fail(err, MT_ERANGE,
                       "%s parameters are too few for %lld layers of %lld: embedding, head and attention alone have %s",
                       mt_count_text(a->params).s, (long long)a->layers, (long long)a->width,
                       mt_count_text((uint64_t)((double)a->params - rest)).s);
    snprintf(a->out->config, sizeof a->out->config,
             "{\"model_type\":\"llama\",\"hidden_size\":%lld,\"intermediate_size\":%lld,\"num_hidden_layers\":%lld,\"num_"
             "attention_heads\":%lld,\"head_dim\":%d,\"vocab_size\":%d,"
             "\"max_position_embeddings\":1048576,\"dtype\":\"bfloat16\"}",
             (long long)a->width, (long long)mlp, (long long)a->layers, (long long)(a->width / HEAD), HEAD, VOCABULARY);
    a->out->own = (mt_shape){ .name = "a model of your own", .config = a->out->config };
    a->out->subject = (mt_subject_asked){ .own = &a->out->own };
    return MT_OK;
}

static mt_rc accept_gpu(asking *a, const char *text, mt_err *err)
{
    const mt_gpu *known;
    if (strcmp(text, "here") == 0) return MT_OK;
    MT_TRY(mt_gpu_find(&known, text, err));
    snprintf(a->out->gpu, sizeof a->out->gpu, "%s", text);
    a->out->machine.gpu = a->out->gpu;
    return MT_OK;
}

static mt_rc accept_ram(asking *a, const char *text, mt_err *err)
{
    return strcmp(text, "here") == 0 ? MT_OK : mt_memory_parse(text, &a->out->machine.ram, err);
}

static mt_rc accept_context(asking *a, const char *text, mt_err *err)
{
    return mt_settings_set(a->set, "dataset.max_seq_len", text, "tokens of context", err);
}

/* -- in order -------------------------------------------------------------------------------------- */

static bool ask_own_model(asking *a)
{
    while (ask_until_valid(a, "parameters, such as 13B:", "", accept_params) &&
           ask_until_valid(a, "hidden size:", "4096", accept_width) && ask_until_valid(a, "layers:", "32", accept_layers)) {
        mt_err err = { 0 };
        if (!make_own(a, &err)) return true;
        print_refusal(&err); /* all three again: any of them may be the wrong one */
    }
    return false;
}

static bool ask_batch(asking *a)
{
    if (!ask_until_valid(a, "model (a published name, or custom):", "qwen2.5-7b", accept_model)) return false;
    if (strcmp(a->out->model, "custom") == 0 && !ask_own_model(a)) return false;
    return ask_until_valid(a, "GPU (a name such as h100, or here):", "here", accept_gpu) &&
           ask_until_valid(a, "host memory (such as 256G, or here):", "here", accept_ram) &&
           ask_until_valid(a, "tokens of context:", "2048", accept_context);
}

mt_rc mt_plan_ask(mt_plan_asked *out, mt_settings *set, bool *ended, mt_err *err)
{
    asking a = { .out = out, .set = set };
    printf("1  what can I train on this machine?\n2  which batch size for this model?\n");
    *ended = !ask_until_valid(&a, "which question:", "1", accept_question) || (!out->what_fits && !ask_batch(&a));
    if (*ended || out->what_fits) return MT_OK;
    printf("\n");
    return mt_settings_set(set, "training.batch_size", "auto", "plan", err);
}
