#include "cli/cmd_tokenize.h"

#include "base/value.h"
#include "ckpt/model_files.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/hub_bar.h"
#include "data/sampler.h"
#include "data/templates.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef struct options {
    const char *path, *template;
    bool decode, chat, no_special;
} options;

static mt_rc cmd_tokenize_parse(int argc, char **argv, options *o, bool *help, mt_err *err)
{
    const mt_flag flags[] = {
        { "--decode", MT_FLAG_BOOL, &o->decode, NULL, "lines are JSON arrays of ids; print each one's text as a JSON string",
          false },
        { "--chat", MT_FLAG_BOOL, &o->chat, NULL, "lines are JSON lists of messages, or {\"messages\", \"tools\", ...}", false },
        { "--template", MT_FLAG_STR, &o->template, "NAME", "with --chat: a built-in chat template instead of the model's own",
          false },
        { "--no-special", MT_FLAG_BOOL, &o->no_special, NULL,
          "without the tokens put around a text (with --decode: leave special tokens out)", false },
    };
    const mt_usage usage = {
        "tokenize",
        "DIR [--decode | --chat] [options] < lines",
        "Print the token ids of each line of standard input as a JSON array.  DIR is a model directory\n"
        "or its name on the hub, or a tokenizer.json, tokenizer.model or .gguf file.  With --chat each\n"
        "line prints {\"text\", \"input_ids\", \"labels\"}, -100 where nothing is trained, a line a sample.",
        "DIR",
        flags,
        MT_COUNT(flags),
        NULL,
    };
    MT_TRY(mt_flags_parse(&usage, argc, argv, &o->path, help, err));
    if (o->chat && o->decode)
        return mt_fail(err, MT_EINVAL, "tokenize: --decode and --chat read different lines; give one of the two");
    return MT_OK;
}

/* State of one run; line buffers are reused. */
typedef struct run {
    const options *o;
    mt_tokenizer *tok;
    mt_tok_scratch *scratch;
    mt_tokens tokens;
    mt_str out;
    mt_sampler *sampler; /* --chat */
    mt_sampler_scratch *sampler_scratch;
} run;

static void put_ids(mt_json_out *j, const char *key, const int32_t *ids, size_t n)
{
    mt_json_list(j, key, MT_JSON_FLAT);
    for (size_t i = 0; i < n; i++) mt_json_put_int(j, NULL, ids[i]);
    mt_json_end(j);
}

static mt_rc encode_line(run *r, const char *line, size_t n, mt_err *err)
{
    r->tokens.n = 0;
    MT_TRY(mt_tokenizer_encode(r->tok, r->scratch, line, n, r->o->no_special ? 0 : MT_ENCODE_SPECIAL, &r->tokens, err));
    put_ids(&(mt_json_out){ .to = &r->out }, NULL, r->tokens.ids, r->tokens.n);
    return MT_OK;
}

static mt_rc read_ids(const mt_value *list, mt_tokens *out, mt_err *err)
{
    if (list->type != MT_VALUE_LIST)
        return mt_fail(err, MT_EFORMAT, "a JSON array of ids was expected, this is %s", mt_value_type_name(list));
    MT_TRY(mt_grow(&out->ids, &out->cap_ids, list->list.n, sizeof *out->ids, err));
    for (size_t i = 0; i < list->list.n; i++) {
        const mt_value *v = &list->list.items[i];
        if (v->type != MT_VALUE_INT || v->i < 0 || v->i > INT32_MAX)
            return mt_fail(err, MT_EFORMAT, "entry %zu of the array is not an id", i);
        out->ids[i] = (int32_t)v->i;
    }
    out->n = list->list.n;
    return MT_OK;
}

static mt_rc decode_line(run *r, const char *line, size_t n, mt_err *err)
{
    mt_arena arena = { 0 };
    mt_str text = { 0 };
    mt_value list;
    mt_rc rc = mt_value_parse_json(&list, &arena, line, n, NULL, "the line", err);
    if (!rc) rc = read_ids(&list, &r->tokens, err);
    if (!rc) rc = mt_tokenizer_decode(r->tok, r->tokens.ids, r->tokens.n, r->o->no_special, &text, err);
    if (!rc) mt_str_json(&r->out, text.n ? text.s : "", text.n);
    mt_str_free(&text);
    mt_arena_free(&arena);
    return rc;
}

static mt_rc run_chat(run *r, const mt_value *record, mt_err *err)
{
    const mt_sample *samples;
    const mt_value *prompt = mt_value_get(record, "add_generation_prompt");
    size_t n = 1;
    mt_reason reason = MT_REASON_NONE;
    mt_oddities odd = { 0 };
    if (prompt && prompt->type == MT_VALUE_BOOL && prompt->b)
        MT_TRY(mt_sampler_prompt(r->sampler, r->sampler_scratch, record, &samples, &reason, err));
    else
        MT_TRY(mt_sampler_run(r->sampler, r->sampler_scratch, record, &samples, &n, &reason, &odd, err));
    if (reason != MT_REASON_NONE) return MT_EINVAL;
    for (size_t i = 0; i < n; i++) {
        mt_json_out j = { .to = &r->out };
        if (i) mt_str_putc(&r->out, '\n');
        mt_json_map(&j, NULL, MT_JSON_FLAT);
        mt_json_put_bytes(&j, "text", samples[i].text, samples[i].n_text);
        put_ids(&j, "input_ids", samples[i].ids, (size_t)samples[i].n);
        put_ids(&j, "labels", samples[i].labels, (size_t)samples[i].n);
        mt_json_end(&j);
    }
    return MT_OK;
}

/* A bare list is the messages. */
static mt_rc chat_line(run *r, const char *line, size_t n, mt_err *err)
{
    mt_arena arena = { 0 };
    mt_value v = { .type = MT_VALUE_NULL };
    mt_rc rc = mt_value_parse_json(&v, &arena, line, n, NULL, "the line", err);
    mt_pair pair = { .key = "messages", .key_n = 8, .value = v };
    mt_value record = { .type = MT_VALUE_MAP };
    record.map.pairs = &pair;
    record.map.n = 1;
    if (!rc) rc = run_chat(r, v.type == MT_VALUE_LIST ? &record : &v, err);
    mt_arena_free(&arena);
    return rc;
}

static mt_rc open_chat(run *r, mt_err *err)
{
    mt_record_layout layout = mt_record_layout_default(MT_FORMATTING_OPENAI);
    mt_sampler_config config = { .template = r->o->template, .as_is = true, .keep_text = true };
    MT_TRY(mt_template_adopt(r->o->template, r->tok, err));
    MT_TRY(mt_sampler_open(&r->sampler, r->tok, &layout, &config, err));
    return mt_sampler_scratch_create(&r->sampler_scratch, r->sampler, err);
}

static mt_rc one_line(run *r, const char *line, size_t n, mt_err *err)
{
    mt_str_clear(&r->out);
    if (r->o->decode)
        MT_TRY(decode_line(r, line, n, err));
    else
        MT_TRY(r->o->chat ? chat_line(r, line, n, err) : encode_line(r, line, n, err));
    mt_str_putc(&r->out, '\n');
    if (!mt_str_ok(&r->out)) return mt_no_memory(err, "a line of output");
    if (fwrite(r->out.s, 1, r->out.n, stdout) != r->out.n) return mt_fail_errno(err, MT_EIO, "writing the output");
    return MT_OK;
}

static mt_rc all_lines(run *r, mt_err *err)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    mt_rc rc = MT_OK;
    for (size_t number = 1; !rc && (n = getline(&line, &cap, stdin)) >= 0; number++) {
        if (n && line[n - 1] == '\n') n--;
        rc = one_line(r, line, (size_t)n, err);
        if (rc) mt_note(err, "line %zu", number);
    }
    free(line);
    if (!rc && fflush(stdout)) rc = mt_fail_errno(err, MT_EIO, "writing the output");
    return rc;
}

int mt_cmd_tokenize(int argc, char **argv)
{
    options o = { 0 };
    mt_err err = { 0 };
    bool help;
    if (cmd_tokenize_parse(argc, argv, &o, &help, &err)) return mt_cli_failed(&err);
    if (help) return 0;
    run r = { .o = &o };
    char *path = NULL;
    mt_rc rc = mt_hub_bar_model(o.path, "", MT_HUB_TOKENIZER, &path, &err);
    if (!rc) rc = mt_model_files_tokenizer(&r.tok, path, &err);
    mt_free(path);
    if (!rc) rc = mt_tok_scratch_create(&r.scratch, r.tok, &err);
    if (!rc && o.chat) rc = open_chat(&r, &err);
    bool opened = !rc;
    if (!rc) rc = all_lines(&r, &err);
    mt_sampler_scratch_free(r.sampler_scratch);
    mt_sampler_close(r.sampler);
    mt_tokens_free(&r.tokens);
    mt_str_free(&r.out);
    mt_tok_scratch_free(r.scratch);
    mt_tokenizer_close(r.tok);
    int status = rc ? mt_cli_failed(&err) : 0;
    return rc && opened ? 1 : status; /* a bad input line is a failure, not misuse */
}
