#include "cli/cmd_tokenize.h"

#include "base/file.h"
#include "base/value.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static const char usage[] = "usage: megatrain tokenize [--decode] [--no-special] DIR < lines\n"
                            "  DIR           a model directory, or a tokenizer.json or tokenizer.model file\n"
                            "  --decode      lines are JSON arrays of ids; prints each one's text as a JSON string\n"
                            "  --no-special  without the tokens put around a text (with --decode: leave special tokens out)\n";

typedef struct options {
    const char *path;
    bool decode, no_special, help;
} options;

static bool parse(int argc, char **argv, options *o)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--decode"))
            o->decode = true;
        else if (!strcmp(argv[i], "--no-special"))
            o->no_special = true;
        else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            o->help = true;
        else if (argv[i][0] == '-' || o->path)
            return false;
        else
            o->path = argv[i];
    }
    return o->path || o->help;
}

/* What one run works with; line buffers are reused. */
typedef struct run {
    const options *o;
    mt_tokenizer *tok;
    mt_tok_scratch *scratch;
    mt_tokens tokens;
    mt_str out;
} run;

static mt_rc encode_line(run *r, const char *line, size_t n, mt_err *err)
{
    r->tokens.n = 0;
    MT_TRY(mt_tokenizer_encode(r->tok, r->scratch, line, n, r->o->no_special ? 0 : MT_ENCODE_SPECIAL, &r->tokens, err));
    mt_str_putc(&r->out, '[');
    for (size_t i = 0; i < r->tokens.n; i++) mt_str_printf(&r->out, i ? ", %d" : "%d", r->tokens.ids[i]);
    mt_str_putc(&r->out, ']');
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

static mt_rc one_line(run *r, const char *line, size_t n, mt_err *err)
{
    mt_str_clear(&r->out);
    MT_TRY(r->o->decode ? decode_line(r, line, n, err) : encode_line(r, line, n, err));
    mt_str_putc(&r->out, '\n');
    if (!mt_str_ok(&r->out)) return mt_fail(err, MT_ENOMEM, "no host memory for a line of output");
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
    if (!parse(argc, argv, &o)) {
        fputs(usage, stderr);
        return 2;
    }
    if (o.help) return fputs(usage, stdout) < 0;
    run r = { .o = &o };
    mt_rc rc = mt_dir_exists(o.path) ? mt_tokenizer_open(&r.tok, o.path, &err) : mt_tokenizer_open_file(&r.tok, o.path, &err);
    if (!rc) rc = mt_tok_scratch_create(&r.scratch, r.tok, &err);
    if (!rc) rc = all_lines(&r, &err);
    mt_tokens_free(&r.tokens);
    mt_str_free(&r.out);
    mt_tok_scratch_free(r.scratch);
    mt_tokenizer_close(r.tok);
    if (rc) fprintf(stderr, "error: %s\n", err.msg);
    return rc ? 1 : 0;
}
