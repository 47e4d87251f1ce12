#include "cli/generate_args.h"

#include "base/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *mt_generate_usage(void)
{
    return "usage: megatrain generate MODEL [--prompt TEXT]... [--prompts FILE] [options]\n"
           "Continues each prompt, or answers it with --chat.  Without a prompt, standard input is one.\n"
           "  MODEL                a model directory\n"
           "  --prompt TEXT        a prompt; may be given several times, they share passes\n"
           "  --prompts FILE       more of them: a line each, or a .json list of texts or of records with instruction, input\n"
           "                       and output; - is standard input\n"
           "  --chat               a prompt is what the user says: wrap it in the model's chat template\n"
           "  --system TEXT        with --chat: the system message\n"
           "  --check              compare answers with the records' outputs and print the share that is right, by task\n"
           "  --max-new-tokens N   end an answer after N tokens (default 256)\n"
           "  --temperature X      0 takes the likeliest token each time (default 0)\n"
           "  --top-p X            draw from the fewest tokens whose probabilities reach X (default 1: all)\n"
           "  --top-k N            draw from the N likeliest (default 0: all)\n"
           "  --seed N             of the draws (default 0)\n"
           "  --dtype NAME         bfloat16 or float32 (default: as the weights are stored)\n"
           "  --device NAME        auto, cpu, cuda or cuda:N (default auto)\n"
           "  --device-memory SIZE use at most so much of it: 8G, 512Mi; layers that do not fit pass through\n"
           "  --from-scratch       random weights from config.json alone, to compare with\n";
}

typedef mt_rc (*setter)(mt_generate_args *a, const char *value, mt_err *err);

static mt_rc read_int(const char *value, int64_t least, int64_t *out, mt_err *err)
{
    char *end;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    if (errno || end == value || *end || n < least) return mt_fail(err, MT_EINVAL, "\"%s\" is not a whole number from %lld up", value, (long long)least);
    *out = n;
    return MT_OK;
}

static mt_rc read_number(const char *value, double *out, mt_err *err)
{
    char *end;
    *out = strtod(value, &end);
    return end == value || *end ? mt_fail(err, MT_EINVAL, "\"%s\" is not a number", value) : MT_OK;
}

static mt_rc set_prompt(mt_generate_args *a, const char *value, mt_err *err)
{
    if (a->n_prompts == MT_PROMPTS_MAX) return mt_fail(err, MT_ERANGE, "more than %d prompts; put them into a file and give --prompts FILE", MT_PROMPTS_MAX);
    a->prompts[a->n_prompts++] = value;
    return MT_OK;
}

static mt_rc set_file(mt_generate_args *a, const char *v, mt_err *err) { return (void)err, a->file = v, MT_OK; }
static mt_rc set_system(mt_generate_args *a, const char *v, mt_err *err) { return (void)err, a->system = v, MT_OK; }
static mt_rc set_device(mt_generate_args *a, const char *v, mt_err *err) { return (void)err, a->device = v, MT_OK; }
static mt_rc set_memory(mt_generate_args *a, const char *v, mt_err *err) { return mt_bytes_parse(v, &a->device_memory, err); }
static mt_rc set_max_new(mt_generate_args *a, const char *v, mt_err *err) { return read_int(v, 1, &a->max_new_tokens, err); }
static mt_rc set_temperature(mt_generate_args *a, const char *v, mt_err *err) { return read_number(v, &a->sampling.temperature, err); }
static mt_rc set_top_p(mt_generate_args *a, const char *v, mt_err *err) { return read_number(v, &a->sampling.top_p, err); }
static mt_rc set_top_k(mt_generate_args *a, const char *v, mt_err *err) { return read_int(v, 0, &a->sampling.top_k, err); }

static mt_rc set_seed(mt_generate_args *a, const char *v, mt_err *err)
{
    int64_t seed = 0;
    MT_TRY(read_int(v, 0, &seed, err));
    a->sampling.seed = (uint64_t)seed;
    return MT_OK;
}

static mt_rc set_dtype(mt_generate_args *a, const char *v, mt_err *err)
{
    if (mt_dtype_from_torch(v, &a->dtype) && (a->dtype == MT_DTYPE_F32 || a->dtype == MT_DTYPE_BF16)) return MT_OK;
    return mt_fail(err, MT_EINVAL, "\"%s\" is neither bfloat16 nor float32", v);
}

static mt_rc set_chat(mt_generate_args *a, const char *v, mt_err *err) { return (void)v, (void)err, a->chat = true, MT_OK; }
static mt_rc set_check(mt_generate_args *a, const char *v, mt_err *err) { return (void)v, (void)err, a->check = true, MT_OK; }
static mt_rc set_scratch(mt_generate_args *a, const char *v, mt_err *err) { return (void)v, (void)err, a->from_scratch = true, MT_OK; }
static mt_rc set_help(mt_generate_args *a, const char *v, mt_err *err) { return (void)v, (void)err, a->help = true, MT_OK; }

static const struct option {
    const char *name;
    bool takes_value;
    setter set;
} options[] = {
    { "--prompt", true, set_prompt },
    { "--prompts", true, set_file },
    { "--system", true, set_system },
    { "--max-new-tokens", true, set_max_new },
    { "--temperature", true, set_temperature },
    { "--top-p", true, set_top_p },
    { "--top-k", true, set_top_k },
    { "--seed", true, set_seed },
    { "--dtype", true, set_dtype },
    { "--device", true, set_device },
    { "--device-memory", true, set_memory },
    { "--chat", false, set_chat },
    { "--check", false, set_check },
    { "--from-scratch", false, set_scratch },
    { "--help", false, set_help },
    { "-h", false, set_help },
};

/* The option argv[*i] names, and its value: after "=", or the next argument. */
static mt_rc take_option(mt_generate_args *a, int argc, char **argv, int *i, mt_err *err)
{
    const char *word = argv[*i], *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    for (size_t k = 0; k < MT_COUNT(options); k++) {
        const struct option *o = &options[k];
        if (strlen(o->name) != n || strncmp(o->name, word, n) != 0) continue;
        if (!o->takes_value && equals) return mt_fail(err, MT_EINVAL, "%s takes no value", o->name);
        const char *value = equals ? equals + 1 : NULL;
        if (o->takes_value && !value && (*i + 1 == argc || !(value = argv[++*i]))) return mt_fail(err, MT_EINVAL, "%s needs a value", o->name);
        return o->set(a, value, err) ? mt_note(err, "%s", o->name) : MT_OK;
    }
    return mt_fail(err, MT_EINVAL, "unknown option %s; megatrain generate --help lists them", word);
}

mt_rc mt_generate_args_parse(mt_generate_args *a, int argc, char **argv, mt_err *err)
{
    *a = (mt_generate_args){ .device = "auto", .max_new_tokens = 256, .dtype = MT_DTYPE_COUNT };
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1])
            MT_TRY(take_option(a, argc, argv, &i, err));
        else if (a->model)
            return mt_fail(err, MT_EINVAL, "two models, %s and %s; a prompt needs --prompt before it", a->model, argv[i]);
        else
            a->model = argv[i];
    }
    if (a->help) return MT_OK;
    if (!a->model) return mt_fail(err, MT_EINVAL, "which model?  megatrain generate MODEL --prompt \"...\"");
    if (a->system && !a->chat) return mt_fail(err, MT_EINVAL, "--system is a part of a conversation; give --chat too");
    return mt_sampling_check(&a->sampling, err);
}
