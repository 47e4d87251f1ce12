/* cmd_bench.c - megatrain bench: how fast this machine trains a shape. */
#include "base/units.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/hub_bar.h"
#include "device/tuned.h"
#include "model/flops.h"
#include "plan/measure.h"
#include "plan/shapes.h"
#include "run/bench.h"
#include "schedule/deal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    const char *shape, *model, *dtype, *device, *devices, *lengths, *trained, *home, *optimizer, *adam_state, *deterministic,
        *freeze;
    uint64_t device_memory, ram, peer; /* peer: UINT64_MAX: measured */
    int64_t seq_len, tokens, steps, warmup, warmup_tokens, micro, head_rows, shares;
    bool no_clip, json, table, alias_layers, whole_units, tune;
    const char *trace;
    double product_rate; /* of the runs so far, in dtype rate_dtype */
    const char *rate_dtype;
} options;

/* "lognormal:300", or nothing. */
static mt_rc parse_lengths(const char *text, double *mean, mt_err *err)
{
    static const char word[] = "lognormal:";
    const size_t n = sizeof word - 1;
    char *end;
    if (!text || strcmp(text, "fixed") == 0) return MT_OK;
    if (strncmp(text, word, n) == 0) {
        *mean = strtod(text + n, &end);
        if (!*end && *mean > 1 && isfinite(*mean)) return MT_OK;
    }
    return mt_fail(err, MT_EINVAL, "--lengths %s: lognormal:MEAN expected, such as lognormal:300", text);
}

static mt_rc parse_trained(const char *text, double *share, mt_err *err)
{
    char *end;
    if (!text) return MT_OK;
    *share = strtod(text, &end);
    if (!*end && *share > 0 && *share <= 1) return MT_OK;
    return mt_fail(err, MT_EINVAL, "--trained %s: a share from 0 to 1 expected", text);
}

static mt_rc parse_numbers(const options *o, mt_bench_options *b, mt_err *err)
{
    *b = (mt_bench_options){ .seq_len = o->seq_len,
                             .tokens_per_step = o->tokens,
                             .trained = 1,
                             .steps = (int)o->steps,
                             .warmup = (int)o->warmup,
                             .warmup_tokens = o->warmup_tokens,
                             .clip = !o->no_clip,
                             .alias_layers = o->alias_layers,
                             .deterministic = strcmp(o->deterministic, "on") == 0,
                             .micro_tokens = o->micro,
                             .head_rows = o->head_rows,
                             .shares = o->shares,
                             .seed = 1,
                             .table = o->table,
                             .trace = o->trace };
    if (!mt_dtype_from_torch(o->dtype, &b->compute) || (b->compute != MT_DTYPE_F32 && b->compute != MT_DTYPE_BF16))
        return mt_fail(err, MT_EINVAL, "--dtype %s: float32 or bfloat16 expected", o->dtype);
    int64_t least = b->table || b->trace ? 0 : 1;
    if (o->seq_len < 2) return mt_fail(err, MT_EINVAL, "--seq-len %lld: at least 2 expected", (long long)o->seq_len);
    if (o->tokens < o->seq_len)
        return mt_fail(err, MT_EINVAL, "--tokens-per-step %lld: at least one document expected (--seq-len %lld)",
                       (long long)o->tokens, (long long)o->seq_len);
    if (o->steps < least)
        return mt_fail(err, MT_EINVAL, "--steps %lld: at least 1 expected (or 0 with --table or --trace)", (long long)o->steps);
    if (o->warmup < 0) return mt_fail(err, MT_EINVAL, "--warmup %lld: at least 0 expected", (long long)o->warmup);
    if (o->steps + o->warmup > 1000000)
        return mt_fail(err, MT_EINVAL, "--steps %lld and --warmup %lld: at most 1000000 in all expected", (long long)o->steps,
                       (long long)o->warmup);
    if (!mt_optimizer_from_name(o->optimizer, &b->optimizer))
        return mt_fail(err, MT_EINVAL, "--optimizer %s: adamw or lion expected", o->optimizer);
    if (!mt_moments_from_name(o->adam_state, &b->moments))
        return mt_fail(err, MT_EINVAL, "--adam-state %s: float32, bf16 or 8bit expected", o->adam_state);
    if (o->warmup_tokens && o->warmup_tokens < 2) return mt_fail(err, MT_EINVAL, "--warmup-tokens of at least 2 expected");
    if (o->micro < 0 || o->head_rows < 0)
        return mt_fail(err, MT_EINVAL, "--micro-tokens and --head-rows of at least 0 (chosen) expected");
    if (o->shares < 0 || o->shares > MT_MOST_SHARES)
        return mt_fail(err, MT_EINVAL, "--shares %lld: 1 to %d expected", (long long)o->shares, MT_MOST_SHARES);
    MT_TRY(parse_lengths(o->lengths, &b->lognormal_mean, err));
    return parse_trained(o->trained, &b->trained, err);
}

static mt_rc machine_of(mt_machine *m, const mt_devices *devices, const options *o, mt_err *err)
{
    mt_device *dev = devices->first;
    mt_device_info d;
    dev->api->info(dev, &d);
    if (o->device_memory / 1.01 > (double)d.memory_limit) /* rounded down a little when the device was opened */
        return mt_fail(err, MT_EINVAL, "--device-memory %s: the first run opened the device with %s; give the largest first",
                       mt_bytes_text(o->device_memory).s, mt_bytes_text(d.memory_limit).s);
    size_t device_memory = (size_t)mt_min_i64((int64_t)o->device_memory, (int64_t)d.memory_limit);
    MT_TRY(mt_machine_here(m, dev, &(mt_machine_given){ .ram = (size_t)o->ram, .device_memory = device_memory }, true, err));
    m->home_host = strcmp(o->home, "host") == 0;
    m->limits.whole_units = o->whole_units;
    m->crowd = devices->per_device;
    m->device_bytes = mt_devices_memory(devices, m->device_bytes);
    m->peer = (double)o->peer;
    return o->peer == UINT64_MAX ? mt_devices_peer_rate(devices, &m->peer, err) : MT_OK;
}

static void print_spent(const options *o, const mt_bench_result *r)
{
    mt_str text = { 0 };
    if (!r->spent.n) return;
    mt_spent_text(&text, &r->spent, r->product_rate);
    printf("  one step under the trace, %.3f s from norm to norm\n%s", r->spent.seconds, mt_str_ok(&text) ? text.s : "");
    if (o->trace) printf("  trace written to %s\n", o->trace);
    mt_str_free(&text);
}

/* One line. */
static mt_rc print_json(const options *o, const char *name, const mt_bench_result *r, mt_err *err)
{
    mt_str s = { 0 };
    mt_json_out j = { .to = &s };
    mt_json_map(&j, NULL, MT_JSON_FLAT);
    mt_json_put_int(&j, "version", 1);
    mt_json_put_str(&j, "shape", name);
    mt_json_put_str(&j, "device", r->device.name);
    mt_json_put_bool(&j, "alias_layers", o->alias_layers);
    mt_json_put_num(&j, "tokens_per_step", "%.0f", r->tokens);
    mt_json_put_num(&j, "trained_tokens", "%.0f", r->trained);
    mt_json_put_num(&j, "seconds_per_step", "%.6f", r->seconds);
    mt_json_put_num(&j, "tokens_per_second", "%.1f", r->tokens / r->seconds);
    mt_json_put_num(&j, "flops_per_second", "%.6g", r->flops / r->seconds);
    mt_json_put_num(&j, "predicted_seconds", "%.6f", r->predicted_seconds);
    mt_json_put_num(&j, "wait_update_seconds", "%.6f", r->wait_update_seconds);
    if (r->n_lanes) {
        mt_json_put_num(&j, "wait_devices_seconds", "%.6f", r->wait_lanes_seconds);
        mt_json_list(&j, "device_seconds", MT_JSON_FLAT);
        for (int i = 0; i < r->n_lanes; i++) mt_json_put_num(&j, NULL, "%.6f", r->lanes[i].seconds);
        mt_json_end(&j);
    }
    mt_json_put_num(&j, "median_seconds", "%.6f", r->median);
    mt_json_put_num(&j, "slowest_seconds", "%.6f", r->slowest);
    mt_json_list(&j, "each_seconds", MT_JSON_FLAT); /* of the steps that were timed one by one */
    for (int i = 0; i < MT_BENCH_EACH && r->each[i] > 0; i++) mt_json_put_num(&j, NULL, "%.4f", r->each[i]);
    mt_json_end(&j);
    mt_json_put_num(&j, "product_rate", "%.6g", r->product_rate);
    mt_json_put_size(&j, "device_bytes", r->device_bytes);
    mt_json_put_size(&j, "host_bytes", r->host_bytes);
    mt_json_put_size(&j, "host_peak", r->host_peak);
    mt_json_put_num(&j, "loss", "%.6f", r->loss);
    mt_json_put_str(&j, "placement", r->placement);
    mt_spent_json(&j, "spent", &r->spent);
    mt_json_end(&j);
    return mt_cli_print_json(&j, err);
}

/* With several lanes: seconds that each took for its shares of a step. */
static void print_lanes(const mt_bench_result *r)
{
    if (!r->n_lanes) return;
    printf("  devices:");
    for (int i = 0; i < r->n_lanes; i++) printf("%s %d %.3f s", i ? "," : "", r->lanes[i].number, r->lanes[i].seconds);
    printf(" a step; the first waited %.3f s for the others and their sums\n", r->wait_lanes_seconds);
}

static void print_text(const options *o, const char *name, const mt_bench_result *r)
{
    char several[24] = "";
    if (r->n_lanes) snprintf(several, sizeof several, "%d x ", r->n_lanes);
    printf("%s on %s%s%s\n", name, several, r->device.name,
           o->alias_layers ? " (ALIASED: all layers share one layer's host memory; measures speed only, nothing is learned)"
                           : "");
    printf("  %.0f tokens a step (%.0f trained), %.3f s a step (median %.3f, slowest %.3f), %.0f tokens/s\n", r->tokens,
           r->trained, r->seconds, r->median, r->slowest, r->tokens / r->seconds);
    printf("  %.4g TFLOP/s (%s), %.1f%% of the %.4g a large product reaches here\n", r->flops / r->seconds * 1e-12,
           MT_FLOPS_FORMULA, 100 * r->flops / r->seconds / r->product_rate, r->product_rate * 1e-12);
    printf("  waited %.3f s a step for updates; the plan predicted %.3f s a step\n", r->wait_update_seconds,
           r->predicted_seconds);
    print_lanes(r);
    printf("  %s\n", r->placement);
    printf("  device %s planned, %s at most; host %s planned, %s resident at most; loss %.4f\n", mt_bytes_text(r->device_bytes).s,
           mt_bytes_text(r->device.memory_peak).s, mt_bytes_text(r->host_bytes).s, mt_bytes_text(r->host_peak).s, r->loss);
    print_spent(o, r);
}

static mt_rc open_config(mt_config **out, const options *o, const char *name, mt_err *err)
{
    if (!o->model) return mt_misused(mt_shape_open(out, name, err), err);
    MT_TRY(mt_refuse_run(name, err));
    return mt_config_open(out, name, err);
}

enum { MAX_FREEZE = 64 };

/* --freeze a,b: the patterns, which point into `words`. */
static mt_rc split_patterns(char *words, const char *out[MAX_FREEZE], size_t *n, mt_err *err)
{
    char *save = NULL;
    *n = 0;
    for (char *word = strtok_r(words, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        if (*n == MAX_FREEZE)
            return mt_fail(err, MT_EINVAL, "bench: --freeze takes up to %d patterns; let one match more (*, ?, [a-c])",
                           MAX_FREEZE);
        out[(*n)++] = word;
    }
    return MT_OK;
}

static mt_rc create_model(mt_model **out, const mt_config *config, const options *o, mt_err *err)
{
    const char *patterns[MAX_FREEZE];
    char *words = mt_strdup(o->freeze ? o->freeze : "");
    if (!words) return mt_no_memory(err, "the patterns of --freeze");
    size_t n;
    mt_rc rc = split_patterns(words, patterns, &n, err);
    if (!rc) rc = mt_model_create(out, config, &(mt_model_options){ .freeze = patterns, .n_freeze = n }, err);
    mt_free(words);
    return rc;
}

static mt_rc bench_one(options *o, const char *name, const mt_devices *devices, mt_bench_options *b, mt_err *err)
{
    mt_config *config;
    mt_model *model = NULL;
    mt_bench_result r = { 0 };
    MT_TRY(open_config(&config, o, name, err));
    mt_rc rc = create_model(&model, config, o, err);
    mt_machine machine;
    if (!rc) rc = machine_of(&machine, devices, o, err);
    b->product_rate = o->rate_dtype && strcmp(o->rate_dtype, o->dtype) == 0 ? o->product_rate : 0; /* measured once */
    if (!rc) rc = mt_bench_run(devices, model, &machine, b, &r, err);
    if (rc == MT_ENOMEM)
        mt_note(
            err,
            "%s (what settings are called here: max_grad_norm: 0 is --no-clip, adam_state --adam-state, max_seq_len --seq-len)",
            name);
    o->product_rate = r.product_rate;
    o->rate_dtype = o->dtype;
    if (!rc && o->json) rc = print_json(o, name, &r, err);
    if (!rc && !o->json) print_text(o, name, &r);
    mt_model_free(model);
    mt_config_close(config);
    return rc;
}

static mt_rc look_up(options *o, const char *name, const mt_devices *devices, mt_bench_options *b, mt_err *err)
{
    mt_config *config;
    (void)devices, (void)b;
    MT_TRY(open_config(&config, o, name, err));
    mt_config_close(config);
    return MT_OK;
}

typedef mt_rc (*run_fn)(options *o, const char *name, const mt_devices *devices, mt_bench_options *b, mt_err *err);

/* --shape a,b,c: one after the other. */
static mt_rc for_each_name(options *o, const mt_devices *devices, mt_bench_options *b, run_fn run, mt_err *err)
{
    char *save = NULL, *names;
    if (o->model) return run(o, o->model, devices, b, err);
    if (!(names = mt_strdup(o->shape))) return mt_no_memory(err, "the names of --shape");
    mt_rc rc = MT_OK;
    for (char *name = strtok_r(names, ",", &save); !rc && name; name = strtok_r(NULL, ",", &save))
        rc = run(o, name, devices, b, err);
    mt_free(names);
    return rc;
}

/* One run's options; earlier ones stay in effect. */
static mt_rc cmd_bench_parse(int argc, char **argv, options *o, mt_bench_options *b, bool *help, mt_err *err)
{
    const mt_flag flags[] = {
        { "--shape", MT_FLAG_STR, &o->shape, "NAME[,NAME]", "published models, such as qwen2.5-7b", false },
        { "--model", MT_FLAG_STR, &o->model, "DIR", "use the shape of a model directory instead", false },
        { "--seq-len", MT_FLAG_INT, &o->seq_len, "N", "tokens per document (default 1024)", false },
        { "--tokens-per-step", MT_FLAG_INT, &o->tokens, "N", "tokens of a step (default 65536)", false },
        { "--lengths", MT_FLAG_STR, &o->lengths, "lognormal:M",
          "documents of varying length with mean M (default: all of --seq-len)", false },
        { "--trained", MT_FLAG_STR, &o->trained, "SHARE", "fraction of tokens that are trained (default 1)", false },
        { "--steps", MT_FLAG_INT, &o->steps, "N", "timed steps (default 5); 0: time the step that --table traces", false },
        { "--warmup", MT_FLAG_INT, &o->warmup, "N", "steps before them (default 2)", false },
        { "--warmup-tokens", MT_FLAG_INT, &o->warmup_tokens, "N",
          "tokens of a warm-up step, to save time if no update is staged (default 0: a whole step)", false },
        { "--micro-tokens", MT_FLAG_INT, &o->micro, "N", "rows of a micro-batch (default 0: chosen by the plan)", false },
        { "--head-rows", MT_FLAG_INT, &o->head_rows, "N", "rows of logits at a time (default 0: chosen by the plan)", false },
        { "--freeze", MT_FLAG_STR, &o->freeze, "PATTERN[,PATTERN]",
          "patterns of tensors that are not trained, as in training.freeze", false },
        { "--no-clip", MT_FLAG_BOOL, &o->no_clip, NULL, "turn clipping off: update as gradients finish", false },
        { "--dtype", MT_FLAG_STR, &o->dtype, "TYPE", "bfloat16 (default) or float32", false },
        { "--device", MT_FLAG_STR, &o->device, "WORD", "auto (default), cpu, cuda, cuda:N; taken from the first run", false },
        { "--devices", MT_FLAG_STR, &o->devices, "N,N...",
          "several GPUs, such as 0,1; with --device cpu, lanes on the CPU; taken from the first run", false },
        { "--shares", MT_FLAG_INT, &o->shares, "N", "shares of a step, as training.shares (default 0: one per device)", false },
        { "--peer", MT_FLAG_BYTES, &o->peer, "SIZE",
          "bytes per second between devices to plan with (default: measured); 0: through host memory", false },
        { "--device-memory", MT_FLAG_MEMORY, &o->device_memory, "SIZE", "use at most this much: 64M, 80G", false },
        { "--ram", MT_FLAG_MEMORY, &o->ram, "SIZE", "host memory to plan with (default: free memory)", false },
        { "--optimizer", MT_FLAG_STR, &o->optimizer, "NAME", "adamw (default) or lion", false },
        { "--adam-state", MT_FLAG_STR, &o->adam_state, "FORM", "form of its state: float32 (default), bf16 or 8bit", false },
        { "--home", MT_FLAG_STR, &o->home, "WORD", "auto (default), or host: all state has its home in RAM", false },
        { "--deterministic", MT_FLAG_STR, &o->deterministic, "on|off", "on (default): repeatable kernels; off: the fastest",
          false },
        { "--tune", MT_FLAG_BOOL, &o->tune, NULL,
          "choose product kernels by timing, and store them (training.tune_products); taken from the first run", false },
        { "--whole-units", MT_FLAG_BOOL, &o->whole_units, NULL,
          "no updates in pieces, and two slots for activations on their way to host memory: for comparisons", false },
        { "--alias-layers", MT_FLAG_BOOL, &o->alias_layers, NULL,
          "all layers share one layer's host memory: measures the speed of a model larger than RAM", false },
        { "--table", MT_FLAG_BOOL, &o->table, NULL, "trace one more step and print where the time went", false },
        { "--trace", MT_FLAG_STR, &o->trace, "FILE", "also write it as a Chrome trace", false },
        { "--json", MT_FLAG_BOOL, &o->json, NULL, "one line of JSON per shape", false },
    };
    const mt_usage usage = { "bench",
                             "--shape NAME [options] [--and options]...",
                             "Train a shape for a few steps with random weights and tokens, without any files,\n"
                             "and print tokens/s.  The clock runs from the norm of the last warm-up step to\n"
                             "the norm of the last timed one: N steps, N updates.  --and starts another run in the\n"
                             "same process, with the options so far and those that follow.",
                             NULL,
                             flags,
                             MT_COUNT(flags),
                             NULL };
    MT_TRY(mt_flags_parse(&usage, argc, argv, NULL, help, err));
    if (*help) return MT_OK;
    if (o->shape && o->model)
        return mt_fail(err, MT_EINVAL, "bench: --shape %s and --model %s both name the model; give only one of them", o->shape,
                       o->model);
    if (!o->shape && !o->model)
        return mt_fail(err, MT_EINVAL, "bench: --shape NAME or --model DIR is needed; see megatrain bench --help");
    if (strcmp(o->home, "auto") && strcmp(o->home, "host"))
        return mt_fail(err, MT_EINVAL, "--home %s: auto or host expected", o->home);
    if (strcmp(o->deterministic, "on") && strcmp(o->deterministic, "off"))
        return mt_fail(err, MT_EINVAL, "--deterministic %s: on or off expected", o->deterministic);
    return parse_numbers(o, b, err);
}

/* --devices 0,1: the numbers. */
static mt_rc parse_devices(const char *text, int64_t numbers[MT_MOST_DEVICES], size_t *n, mt_err *err)
{
    *n = 0;
    for (const char *at = text; at && *n < MT_MOST_DEVICES;) {
        char *end;
        const long number = strtol(at, &end, 10);
        if (end == at || number < 0 || number > 1023 || (*end && *end != ',')) break;
        numbers[(*n)++] = number;
        if (!*end) return MT_OK;
        at = end + 1;
    }
    if (!text) return MT_OK;
    return mt_fail(err, MT_EINVAL, "--devices %s: numbers of at most %d devices expected, such as 0,1", text, MT_MOST_DEVICES);
}

/* --device cpu makes lanes on the CPU of --devices; a GPU must be the first of them. */
static mt_rc check_device(const options *o, const int64_t *numbers, size_t n, mt_err *err)
{
    char first[32];
    snprintf(first, sizeof first, "cuda:%d", n ? (int)numbers[0] : 0);
    if (!n || strncmp(o->device, "cuda:", 5) != 0 || strcmp(o->device, first) == 0) return MT_OK;
    return mt_misused(mt_fail(err, MT_EINVAL, "bench: --device %s and --devices %s name different GPUs; leave the first out",
                              o->device, o->devices),
                      err);
}

static mt_rc open_devices(mt_devices *out, const options *o, mt_err *err)
{
    int64_t numbers[MT_MOST_DEVICES];
    size_t n;
    char first[32];
    MT_TRY(parse_devices(o->devices, numbers, &n, err));
    MT_TRY(check_device(o, numbers, n, err));
    snprintf(first, sizeof first, "cuda:%d", n ? (int)numbers[0] : 0);
    const char *word = n && strcmp(o->device, "cpu") != 0 ? first : o->device;
    char *tune = o->tune ? mt_tuned_folder() : NULL;
    const mt_devices_wanted w = { .word = word,
                                  .numbers = numbers,
                                  .n = n,
                                  .deterministic = strcmp(o->deterministic, "on") == 0,
                                  .options = {
                                      .memory_limit = (size_t)o->device_memory, .keep_host_memory = true, .tune = tune } };
    mt_rc rc = mt_devices_open(out, &w, err);
    mt_free(tune);
    return rc;
}

/* Words of argv up to the next --and, from `first`; argv[first - 1] stands for the command's name. */
static int words_of_run(int argc, char **argv, int first)
{
    int end = first;
    while (end < argc && strcmp(argv[end], "--and") != 0) end++;
    return end - first;
}

/* Checks the options of all runs before the first one starts, so that a misspelled one is found at once. */
static mt_rc check_runs(int argc, char **argv, options o, bool *help, mt_err *err)
{
    *help = false;
    for (int first = 1; !*help && (first == 1 || first <= argc);) {
        mt_bench_options b;
        int n = words_of_run(argc, argv, first);
        MT_TRY(cmd_bench_parse(n + 1, argv + first - 1, &o, &b, help, err));
        if (!*help) MT_TRY(for_each_name(&o, NULL, &b, look_up, err));
        first += n + 1;
    }
    return MT_OK;
}

int mt_cmd_bench(int argc, char **argv)
{
    mt_err err = { 0 };
    options o = { .dtype = "bfloat16",
                  .device = "auto",
                  .home = "auto",
                  .optimizer = "adamw",
                  .adam_state = "float32",
                  .peer = UINT64_MAX,
                  .deterministic = "on",
                  .seq_len = 1024,
                  .tokens = 65536,
                  .steps = 5,
                  .warmup = 2 };
    mt_devices devices = { 0 };
    int failed = 0;
    bool help;
    mt_rc rc = check_runs(argc, argv, o, &help, &err);
    for (int first = 1; !rc && !help && (first == 1 || first <= argc);) {
        mt_bench_options b;
        int n = words_of_run(argc, argv, first);
        rc = cmd_bench_parse(n + 1, argv + first - 1, &o, &b, &help, &err);
        if (!rc && !devices.n) rc = open_devices(&devices, &o, &err);
        if (rc) break;
        /* A run that does not fit does not stop the others. */
        if (for_each_name(&o, &devices, &b, bench_one, &err)) failed = mt_cli_failed(&err);
        fflush(stdout);
        first += n + 1;
    }
    mt_devices_close(&devices);
    return rc ? mt_cli_failed(&err) : failed;
}
