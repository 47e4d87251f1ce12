/* Encodes JSON strings, one a line, and prints {"ids", "ranges", "text", "skipped"} for each: what compare_fuzz.py talks to.
 *     json_lines PATH [special]   where PATH is a model directory or a tokenizer file */
#include "base/file.h"
#include "base/value.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static mt_rc one(mt_tokenizer *tok, mt_tok_scratch *sc, unsigned flags, const char *line, size_t n, mt_err *err)
{
    mt_arena arena = { 0 };
    mt_value v;
    mt_tokens t = { 0 };
    mt_str text = { 0 }, skipped = { 0 }, out = { 0 };
    mt_rc rc = mt_value_parse_json(&v, &arena, line, n, NULL, "line", err);
    if (!rc) rc = mt_tokenizer_encode(tok, sc, v.str.s, v.str.n, flags | MT_ENCODE_RANGES, &t, err);
    mt_tokens plain = { 0 }; /* without ranges the path through the code differs: both must agree */
    if (!rc) rc = mt_tokenizer_encode(tok, sc, v.str.s, v.str.n, flags, &plain, err);
    if (!rc && (plain.n != t.n || memcmp(plain.ids, t.ids, t.n * sizeof *t.ids)))
        rc = mt_fail(err, MT_EINTERNAL, "with and without ranges differ");
    if (!rc) rc = mt_tokenizer_decode(tok, t.ids, t.n, false, &text, err);
    if (!rc) rc = mt_tokenizer_decode(tok, t.ids, t.n, true, &skipped, err);
    mt_str_puts(&out, "{\"ids\": [");
    for (size_t i = 0; i < t.n; i++) mt_str_printf(&out, i ? ", %d" : "%d", t.ids[i]);
    mt_str_puts(&out, "], \"ranges\": [");
    for (size_t i = 0; i < t.n; i++) mt_str_printf(&out, i ? ", [%u, %u]" : "[%u, %u]", t.ranges[i].start, t.ranges[i].end);
    mt_str_puts(&out, "], \"text\": ");
    mt_str_json(&out, text.n ? text.s : "", text.n);
    mt_str_puts(&out, ", \"skipped\": ");
    mt_str_json(&out, skipped.n ? skipped.s : "", skipped.n);
    if (rc)
        printf("{\"error\": \"%s\"}\n", mt_rc_name(rc));
    else
        printf("%s}\n", out.s);
    mt_str_free(&out);
    mt_str_free(&text);
    mt_str_free(&skipped);
    mt_tokens_free(&t);
    mt_tokens_free(&plain);
    mt_arena_free(&arena);
    return rc;
}

int main(int argc, char **argv)
{
    mt_err err = { 0 };
    mt_tokenizer *tok;
    mt_tok_scratch *sc;
    if (argc < 2) return 2;
    mt_rc rc = mt_dir_exists(argv[1]) ? mt_tokenizer_open(&tok, argv[1], &err) : mt_tokenizer_open_file(&tok, argv[1], &err);
    if (!rc) rc = mt_tok_scratch_create(&sc, tok, &err);
    if (rc) return fprintf(stderr, "%s\n", err.msg), 1;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0)
        if (one(tok, sc, argc > 2 ? MT_ENCODE_SPECIAL : 0, line, (size_t)n - 1, &err)) fprintf(stderr, "%s\n", err.msg);
    free(line);
    mt_tok_scratch_free(sc);
    mt_tokenizer_close(tok);
    return 0;
}
