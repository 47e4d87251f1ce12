/* cmd_generate.c - megatrain generate: prints a model's answers. */
#include "base/file.h"
#include "base/units.h"
#include "base/utf8.h"
#include "ckpt/model_files.h"
#include "cli/answers.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/hub_bar.h"
#include "engine/load.h"
#include "plan/measure.h"

#include <stdio.h>
#include <unistd.h>

typedef struct options {
    const char *model, *file, *system, *dtype, *device, *assume;
    mt_flag_strs prompts;
    uint64_t device_memory;
    int64_t max_new_tokens, seed;
    mt_sampling sampling;
    bool chat, check, from_scratch, json;
} options;

typedef struct session {
    const options *o;
    char *dir; /* the model's */
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
    if (*text && mt_cli_shows(MT_LOG_INFO)) fprintf(stderr, "note: %s\n", text);
}

static mt_rc read_prompts(session *s, mt_err *err)
{
    const options *o = s->o;
    for (size_t i = 0; i < o->prompts.n; i++) MT_TRY(mt_asks_add(&s->asks, o->prompts.items[i], err));
    if (o->file) MT_TRY(mt_asks_read(&s->asks, o->file, err));
    if (!o->prompts.n && !o->file && !isatty(STDIN_FILENO)) MT_TRY(mt_asks_read_stdin(&s->asks, err));
    if (!s->asks.n)
        return mt_fail(err, MT_EINVAL, "no prompt given; use --prompt \"...\", --prompts FILE, or some text on standard input");
    for (size_t i = 0; o->check && i < s->asks.n; i++)
        if (!s->asks.items[i].expected)
            return mt_fail(err, MT_EINVAL, "--check compares with records' outputs, and prompt %zu has none", i + 1);
    return mt_asks_encode(&s->asks, &(mt_asks_encoding){ s->tok, o->chat, o->system }, err);
}

static mt_rc open_model(session *s, mt_err *err)
{
    char text[256] = "";
    const char *dir = s->dir;
    MT_TRY(mt_model_files_config(&s->config, dir, err));
    MT_TRY(mt_config_assume(&s->config, s->o->assume, err));
    MT_TRY(mt_config_check_known(s->config, err));
    if (!s->o->from_scratch) MT_TRY(mt_shards_open(&s->shards, dir, err));
    MT_TRY(mt_weights_model(&s->model, &s->config, s->shards, &(mt_model_options){ .forward_only = true }, text, err));
    notice(text);
    for (size_t i = 0; i < s->config->n_assumptions; i++) notice(s->config->assumptions[i]);
    MT_TRY(mt_model_files_stop_ids(&s->stops, dir, err));
    mt_stop_ids_add(&s->stops, mt_tokenizer_role_id(s->tok, MT_TOK_EOS));
    return MT_OK;
}

/* Prompt, and prompt and answer, of the longest sequence.  A table of learned positions ends; computed positions continue, and
 * "dynamic" scaling is meant for that. */
static mt_rc longest(const session *s, int64_t *prompt, int64_t *out, mt_err *err)
{
    int64_t n = 0, room = s->config->max_positions;
    const bool dynamic = s->config->rope.type == MT_ROPE_DYNAMIC;
    for (size_t i = 0; i < s->asks.n; i++) n = mt_max_i64(n, (int64_t)s->asks.items[i].n_ids);
    if (n > room && s->config->learned_positions)
        return mt_fail(err, MT_EINVAL, "a prompt has %lld tokens and the model %lld positions; shorten the prompt", (long long)n,
                       (long long)room);
    *prompt = n;
    *out = n > room || dynamic ? n + s->o->max_new_tokens : mt_min_i64(n + s->o->max_new_tokens, room);
    if (dynamic) return MT_OK;
    if (n > room)
        notice("a prompt is longer than the positions the model knows; expect poor answers");
    else if (n + s->o->max_new_tokens > room)
        notice("answers end at the model's last position");
    return MT_OK;
}

/* As requested, otherwise as the weights are stored; 16-bit weights are computed as bf16. */
static mt_rc compute_dtype(const session *s, mt_dtype *out, mt_err *err)
{
    const char *word = s->o->dtype;
    *out = s->config->dtype;
    if (word && (!mt_dtype_from_torch(word, out) || (*out != MT_DTYPE_F32 && *out != MT_DTYPE_BF16 && *out != MT_DTYPE_F16)))
        return mt_fail(err, MT_EINVAL, "--dtype %s: bfloat16 or float32 expected", word);
    if (*out != MT_DTYPE_F32) *out = MT_DTYPE_BF16;
    return MT_OK;
}

static void say_streamed(const session *s)
{
    char text[160];
    int n = 0;
    for (int u = 0; u < s->model->n_units; u++) n += !s->plan->place.units[u].resident;
    if (!n) return;
    snprintf(text, sizeof text, "%d of %d units do not fit on the device and are streamed through it, from %s", n,
             s->model->n_units, s->plan->job.mapped ? "the files as they are mapped" : "a copy in host memory");
    notice(text);
}

static mt_rc open_engine(session *s, mt_err *err)
{
    mt_machine machine;
    int64_t prompt, rows;
    MT_TRY(longest(s, &prompt, &rows, err));
    MT_TRY(mt_device_open(&s->dev, s->o->device, &(mt_device_options){ .memory_limit = (size_t)s->o->device_memory }, err));
    MT_TRY(mt_machine_here(&machine, s->dev, &(mt_machine_given){ 0 }, true, err));
    mt_generation job = { .n_prompts = (int64_t)s->asks.n, .longest = rows, .prompt = prompt };
    MT_TRY(compute_dtype(s, &job.compute, err));
    job.mapped = s->shards && mt_weights_mapped(s->model, s->shards);
    MT_TRY(mt_plan_generation(&s->plan, s->model, &job, &machine, err));
    say_streamed(s);
    MT_TRY(mt_engine_create(&s->engine, s->dev, s->plan, &(mt_engine_options){ .n_workers = 1 }, err));
    if (s->o->from_scratch) return mt_engine_init(s->engine, s->model, s->o->sampling.seed, err);
    return mt_engine_load(s->engine, s->model, s->shards, err);
}

static void print_speed(const mt_generate_stats *st)
{
    double prompt_s = 1e-9 * (double)st->prompt_ns, decode_s = 1e-9 * (double)st->decode_ns;
    if (!mt_cli_shows(MT_LOG_INFO)) return;
    fprintf(stderr, "%lld prompt token%s in %s; %lld new token%s", (long long)st->n_prompt_tokens,
            st->n_prompt_tokens == 1 ? "" : "s", mt_seconds_text(prompt_s).s, (long long)st->n_new_tokens,
            st->n_new_tokens == 1 ? "" : "s");
    if (decode_s > 0) fprintf(stderr, ", %.1f a second", (double)st->n_decoded / decode_s);
    fputc('\n', stderr);
}

static mt_rc answer(session *s, mt_generate_stats *stats, mt_err *err)
{
    s->prompts = mt_calloc(s->asks.n, sizeof *s->prompts);
    if (!s->prompts) return mt_no_memory(err, "the prompts");
    for (size_t i = 0; i < s->asks.n; i++)
        s->prompts[i] = (mt_prompt){ s->asks.items[i].ids, (int64_t)s->asks.items[i].n_ids, s->asks.items[i].stream };
    MT_TRY(mt_answers_init(&s->answers, &s->asks, s->tok, s->o->check || s->o->json ? NULL : stdout, err));
    mt_generate_options o = { .sampling = s->o->sampling,
                              .max_new_tokens = s->o->max_new_tokens,
                              .stop_ids = s->stops.ids,
                              .n_stop_ids = s->stops.n,
                              .on_token = mt_answers_take,
                              .user = &s->answers };
    mt_rc rc = mt_generate(s->engine, s->prompts, s->asks.n, &o, stats, err);
    if (rc == MT_ENUMERIC && s->shards) MT_TRY(mt_weights_check_finite(s->shards, err)); /* which tensor it comes from, if one */
    MT_TRY(rc);
    print_speed(stats);
    return MT_OK;
}

static mt_rc report(session *s, const mt_generate_stats *stats, mt_err *err)
{
    mt_str text = { 0 };
    mt_rc rc = MT_OK;
    if (s->o->json)
        mt_answers_json(&s->answers, stats, &text);
    else
        mt_answers_report(&s->answers, &text);
    if (!mt_str_ok(&text)) rc = mt_no_memory(err, "the report");
    if (!rc && isatty(STDOUT_FILENO)) mt_utf8_tame(text.s);
    if (!rc && (fputs(text.s, stdout) < 0 || fflush(stdout))) rc = mt_fail_errno(err, MT_EIO, "writing the report");
    mt_str_free(&text);
    return rc;
}

static mt_rc cmd_generate_run(session *s, mt_err *err)
{
    mt_generate_stats stats = { 0 };
    MT_TRY(mt_misused(mt_sampling_check(&s->o->sampling, err), err));
    if (s->o->sampling.temperature == 0 && (s->o->sampling.top_p > 0 || s->o->sampling.top_k > 0))
        notice("--top-p and --top-k have no effect without --temperature: at 0, the likeliest token is always taken");
    if (s->o->max_new_tokens < 1)
        return mt_fail(err, MT_EINVAL, "--max-new-tokens %lld: at least 1 expected", (long long)s->o->max_new_tokens);
    if (s->o->system && !s->o->chat) return mt_fail(err, MT_EINVAL, "--system is part of a conversation; give --chat too");
    MT_TRY(mt_hub_bar_model(s->o->model, "", s->o->from_scratch ? MT_HUB_CONFIG | MT_HUB_TOKENIZER : MT_HUB_MODEL, &s->dir, err));
    MT_TRY(mt_model_files_tokenizer(&s->tok, s->dir, err));
    MT_TRY(read_prompts(s, err));
    MT_TRY(open_model(s, err));
    MT_TRY(open_engine(s, err));
    MT_TRY(answer(s, &stats, err));
    return s->o->check || s->o->json ? report(s, &stats, err) : MT_OK;
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
    mt_free(s->dir);
}

int mt_cmd_generate(int argc, char **argv)
{
    mt_err err = { 0 };
    options o = { .device = "auto", .max_new_tokens = 256 };
    session s = { .o = &o };
    bool help;
    const mt_flag flags[] = {
        { "--prompt", MT_FLAG_STRS, &o.prompts, "TEXT", "a prompt; may be given several times, they share passes", false },
        { "--prompts", MT_FLAG_STR, &o.file, "FILE",
          "a data file that train reads, such as .jsonl or .parquet, or a prompt a line; - is standard input", false },
        { "--chat", MT_FLAG_BOOL, &o.chat, NULL, "treat a prompt as the user's message: wrap it in the model's chat template",
          false },
        { "--system", MT_FLAG_STR, &o.system, "TEXT", "with --chat: the system message", false },
        { "--check", MT_FLAG_BOOL, &o.check, NULL,
          "compare with the records' last answers; print the fraction of correct ones, by task", false },
        { "--json", MT_FLAG_BOOL, &o.json, NULL, "print JSON for scripts when all prompts are answered (docs/scripting.md)",
          false },
        { "--max-new-tokens", MT_FLAG_INT, &o.max_new_tokens, "N", "end an answer after N tokens (default 256)", false },
        { "--temperature", MT_FLAG_FLOAT, &o.sampling.temperature, "X", "0 (default): always the likeliest token", false },
        { "--top-p", MT_FLAG_FLOAT, &o.sampling.top_p, "X",
          "with --temperature: draw from the fewest tokens whose probabilities reach X", false },
        { "--top-k", MT_FLAG_INT, &o.sampling.top_k, "N", "with --temperature: draw from the N likeliest", false },
        { "--seed", MT_FLAG_INT, &o.seed, "N", "seed of the random draws (default 0)", false },
        { "--dtype", MT_FLAG_STR, &o.dtype, "TYPE", "bfloat16 or float32 (default: as the weights are stored)", false },
        { "--device", MT_FLAG_STR, &o.device, "WORD", "auto (default), cpu, cuda, cuda:N", false },
        { "--device-memory", MT_FLAG_MEMORY, &o.device_memory, "SIZE",
          "use at most this much: 64M, 8G; layers that do not fit are streamed", false },
        { "--assume", MT_FLAG_STR, &o.assume, "FAMILY", "the family of an unknown model_type, such as llama", false },
        { "--from-scratch", MT_FLAG_BOOL, &o.from_scratch, NULL, "use random weights from config.json, for comparison", false },
    };
    const mt_usage usage = {
        "generate",
        "MODEL --prompt TEXT [options]",
        "Continue each prompt, or answer it with --chat, and print the text as it comes.\n"
        "The end tokens come from generation_config.json; its sampling settings are not used.\n"
        "Without a prompt, standard input is the prompt.  Records are those one trains on: conversations,\n"
        "whose last answer is expected, or questions (instruction and input, prompt, ...) with an answer.\n"
        "A task in each reports results by kind.",
        "MODEL",
        flags,
        MT_COUNT(flags),
        NULL,
    };
    mt_rc rc = mt_flags_parse(&usage, argc, argv, &o.model, &help, &err);
    o.sampling.seed = (uint64_t)o.seed;
    if (!rc && !help) rc = cmd_generate_run(&s, &err);
    close_session(&s);
    return rc ? mt_cli_failed(&err) : 0;
}
