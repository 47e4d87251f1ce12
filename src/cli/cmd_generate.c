/* cmd_generate.c - a model's answers, to look at what it learned. */
#include "cli/cmd_generate.h"

#include "base/file.h"
#include "base/units.h"
#include "cli/answers.h"
#include "cli/generate_args.h"
#include "engine/load.h"
#include "model/stop_ids.h"

#include <stdio.h>
#include <unistd.h>

typedef struct session {
    const mt_generate_args *args;
    mt_tokenizer *tok;
    mt_asks asks;
    mt_config *config;
    mt_shards *shards;
    mt_model *model;
    mt_device *dev;
    mt_plan *plan;
    mt_engine *engine;
    mt_stop_ids stops;
    mt_answers answers;
    mt_prompt *prompts;
} session;

static void notice(const char *text)
{
    if (*text) fprintf(stderr, "note: %s\n", text);
}

static mt_rc read_prompts(session *s, mt_err *err)
{
    const mt_generate_args *a = s->args;
    for (size_t i = 0; i < a->n_prompts; i++) MT_TRY(mt_asks_add(&s->asks, a->prompts[i], err));
    if (a->file) MT_TRY(mt_asks_read(&s->asks, a->file, err));
    if (!a->n_prompts && !a->file && !isatty(STDIN_FILENO)) MT_TRY(mt_asks_read_stdin(&s->asks, err));
    if (!s->asks.n) return mt_fail(err, MT_EINVAL, "no prompt; give --prompt \"...\", --prompts FILE, or some text on standard input");
    for (size_t i = 0; a->check && i < s->asks.n; i++)
        if (!s->asks.items[i].expected) return mt_fail(err, MT_EINVAL, "--check compares with records' outputs, and prompt %zu has none", i + 1);
    return mt_asks_encode(&s->asks, &(mt_asks_encoding){ s->tok, a->chat, a->system }, err);
}

static mt_rc open_model(session *s, mt_err *err)
{
    char text[256] = "";
    const char *dir = s->args->model;
    MT_TRY(mt_config_open(&s->config, dir, err));
    if (!s->args->from_scratch) {
        MT_TRY(mt_shards_open(&s->shards, dir, err));
        MT_TRY(mt_weights_settle_tying(s->config, s->shards, text, err));
        notice(text);
    }
    MT_TRY(mt_model_create(&s->model, s->config, NULL, err));
    MT_TRY(mt_stop_ids_read(&s->stops, dir, err));
    mt_stop_ids_add(&s->stops, mt_tokenizer_role_id(s->tok, MT_TOK_EOS));
    return MT_OK;
}

/* Prompt and answer of the longest sequence. */
static int64_t longest(const session *s)
{
    int64_t n = 0, room = s->config->max_positions;
    for (size_t i = 0; i < s->asks.n; i++) n = mt_max_i64(n, (int64_t)s->asks.items[i].n_ids);
    if (room > n && n + s->args->max_new_tokens > room) notice("answers end where the model's positions do");
    return room > n ? mt_min_i64(n + s->args->max_new_tokens, room) : n + s->args->max_new_tokens;
}

static mt_dtype compute_dtype(const session *s)
{
    if (s->args->dtype != MT_DTYPE_COUNT) return s->args->dtype;
    return s->config->dtype == MT_DTYPE_F32 ? MT_DTYPE_F32 : MT_DTYPE_BF16;
}

static mt_rc open_engine(session *s, mt_err *err)
{
    mt_device_info info;
    int64_t rows = longest(s);
    MT_TRY(mt_device_open(&s->dev, s->args->device, &(mt_device_options){ .memory_limit = (size_t)s->args->device_memory }, err));
    s->dev->api->info(s->dev, &info);
    mt_generate_job job = { .compute = compute_dtype(s), .n_prompts = (int64_t)s->asks.n, .longest = rows };
    MT_TRY(mt_generate_plan(&s->plan, s->model, &job, info.memory_limit, err));
    MT_TRY(mt_engine_create(&s->engine, s->dev, s->plan, &(mt_engine_options){ .n_workers = 1 }, err));
    if (s->args->from_scratch) return mt_engine_init(s->engine, s->model, s->args->sampling.seed, err);
    return mt_engine_load(s->engine, s->model, s->shards, err);
}

static void print_speed(const mt_generate_stats *st)
{
    double prompt_s = 1e-9 * (double)st->prompt_ns, decode_s = 1e-9 * (double)st->decode_ns;
    fprintf(stderr, "%lld prompt tokens in %s; %lld new tokens", (long long)st->n_prompt_tokens, mt_seconds_text(prompt_s).s, (long long)st->n_new_tokens);
    if (decode_s > 0) fprintf(stderr, ", %.1f a second", (double)st->n_decoded / decode_s);
    fputc('\n', stderr);
}

static mt_rc answer(session *s, mt_err *err)
{
    mt_generate_stats stats;
    s->prompts = mt_calloc(s->asks.n, sizeof *s->prompts);
    if (!s->prompts) return mt_fail(err, MT_ENOMEM, "no host memory for the prompts");
    for (size_t i = 0; i < s->asks.n; i++) s->prompts[i] = (mt_prompt){ s->asks.items[i].ids, (int64_t)s->asks.items[i].n_ids, s->asks.items[i].stream };
    MT_TRY(mt_answers_init(&s->answers, &s->asks, s->tok, s->args->check ? NULL : stdout, err));
    mt_generate_options o = { .sampling = s->args->sampling, .max_new_tokens = s->args->max_new_tokens, .stop_ids = s->stops.ids, .n_stop_ids = s->stops.n,
                              .on_token = mt_answers_take, .user = &s->answers };
    MT_TRY(mt_generate(s->engine, s->prompts, s->asks.n, &o, &stats, err));
    print_speed(&stats);
    return MT_OK;
}

static mt_rc report(session *s, mt_err *err)
{
    mt_str text = { 0 };
    mt_rc rc = MT_OK;
    mt_answers_report(&s->answers, &text);
    if (!mt_str_ok(&text)) rc = mt_fail(err, MT_ENOMEM, "no host memory for the report");
    if (!rc && (fputs(text.s, stdout) < 0 || fflush(stdout))) rc = mt_fail_errno(err, MT_EIO, "writing the report");
    mt_str_free(&text);
    return rc;
}

static mt_rc run(session *s, mt_err *err)
{
    if (!mt_dir_exists(s->args->model)) return mt_fail(err, MT_ENOENT, "%s is no directory; megatrain get ORG/NAME fetches a model and says where it is", s->args->model);
    MT_TRY(mt_tokenizer_open(&s->tok, s->args->model, err));
    MT_TRY(read_prompts(s, err));
    MT_TRY(open_model(s, err));
    MT_TRY(open_engine(s, err));
    MT_TRY(answer(s, err));
    return s->args->check ? report(s, err) : MT_OK;
}

static void close_session(session *s)
{
    mt_engine_free(s->engine);
    mt_device_close(s->dev);
    mt_plan_free(s->plan);
    mt_model_free(s->model);
    mt_shards_close(s->shards);
    mt_config_close(s->config);
    if (s->answers.items) mt_answers_deinit(&s->answers);
    mt_free(s->prompts);
    mt_asks_free(&s->asks);
    mt_tokenizer_close(s->tok);
}

int mt_cmd_generate(int argc, char **argv)
{
    mt_generate_args args;
    mt_err err = { 0 };
    if (mt_generate_args_parse(&args, argc, argv, &err)) {
        fprintf(stderr, "error: %s\n", err.msg);
        return 2;
    }
    if (args.help) return fputs(mt_generate_usage(), stdout) < 0;
    session s = { .args = &args };
    mt_rc rc = run(&s, &err);
    close_session(&s);
    if (rc) fprintf(stderr, "error: %s\n", err.msg);
    return rc ? 1 : 0;
}
