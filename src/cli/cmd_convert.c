/* cmd_convert.c - megatrain convert IN OUT: converts any model we can read to a Hugging Face directory. */
#include "base/units.h"
#include "ckpt/convert.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/hub_bar.h"
#include "cli/progress.h"

#include <stdio.h>
#include <string.h>

typedef struct screen {
    mt_terminal terminal;
    mt_progress bar;
    bool started;
} screen;

static const double MIB = 1 << 20;

static void cmd_convert_show(void *user, size_t done, size_t total, const char *tensor)
{
    screen *s = user;
    if (!s->started) mt_progress_start(&s->bar, &s->terminal, "converting (MiB)", (double)total / MIB);
    s->started = true;
    mt_progress_update(&s->bar, (double)done / MIB, tensor);
}

static mt_rc check_out(const char *out, mt_err *err)
{
    const char *dot = strrchr(out, '.');
    if (!dot || strcmp(dot, ".gguf") != 0) return MT_OK;
    return mt_fail(err, MT_EINVAL,
                   "convert: GGUF is read, not written: OUT is a directory that gets config.json, safetensors and the tokenizer; "
                   "llama.cpp's convert_hf_to_gguf.py makes %s of it",
                   out);
}

static mt_rc read_dtype(mt_convert *c, const char *word, mt_err *err)
{
    if (!word) return MT_OK;
    c->recast = mt_dtype_from_torch(word, &c->dtype) &&
                (c->dtype == MT_DTYPE_F32 || c->dtype == MT_DTYPE_BF16 || c->dtype == MT_DTYPE_F16);
    return c->recast ? MT_OK : mt_fail(err, MT_EINVAL, "convert: --dtype %s: bfloat16, float32 or float16 expected", word);
}

static mt_rc convert(mt_convert *c, mt_err *err)
{
    mt_convert_result r;
    screen s = { .terminal = mt_terminal_of(stderr, MT_COLOR_AUTO) };
    c->progress = cmd_convert_show;
    c->user = &s;
    mt_rc rc = mt_convert_run(c, &r, err);
    if (s.started) mt_progress_finish(&s.bar);
    if (!rc)
        printf("%zu tensors, %s, written to %s%s\n", r.n_tensors, mt_bytes_text(r.bytes).s, c->out,
               r.tokenizer ? "" : " (without a tokenizer: none was found)");
    return rc;
}

int mt_cmd_convert(int argc, char **argv)
{
    mt_err err = { 0 };
    const char *paths[2], *dtype = NULL;
    uint64_t shard = UINT64_C(5000000000);
    bool help;
    const mt_flag flags[] = {
        { "--dtype", MT_FLAG_STR, &dtype, "TYPE",
          "bfloat16, float32 or float16 (default: each tensor keeps its own; quantized ones become bfloat16)", false },
        { "--max-shard-size", MT_FLAG_BYTES, &shard, "SIZE", "largest weight file: 5G (default), 500M", false },
    };
    const mt_usage usage = {
        "convert",
        "IN OUT [options]",
        "Write any model that can be read as a Hugging Face directory: config.json, safetensors,\n"
        "tokenizer files.  IN is a directory with safetensors or pytorch_model.bin files, or a .gguf\n"
        "file (or a directory with one), or a model's name on the hub.  OUT must be new or empty.",
        "IN OUT",
        flags,
        MT_COUNT(flags),
        NULL,
    };
    mt_rc rc = mt_flags_parse(&usage, argc, argv, paths, &help, &err);
    char *in = NULL;
    if (!rc && !help) {
        mt_convert c = { .out = paths[1], .max_shard_bytes = (size_t)shard };
        rc = check_out(paths[1], &err);
        if (!rc) rc = read_dtype(&c, dtype, &err);
        if (!rc) rc = mt_hub_bar_model(paths[0], "", MT_HUB_MODEL, &in, &err);
        c.in = in;
        if (!rc) rc = convert(&c, &err);
    }
    mt_free(in);
    return rc ? mt_cli_failed(&err) : 0;
}
