/* tiktoken's files: a line "base64 rank" for every token.  Merges follow from the ranks; the pattern words are cut with
 * and the special tokens are not in the file. */
#include "tokenizer/tokenizer_impl.h"

#include "tokenizer/bytes.h"

#include <stdio.h>
#include <string.h>

enum { MAX_LINE_BYTES = 1 << 16, MAX_RANK = 1 << 23 };

typedef struct line {
    const char *token; /* base64 */
    size_t n;
    int64_t rank;
} line;

/* The line at *s; false if it is not one.  *s moves past it. */
static bool read_line(const char **s, const char *end, line *out)
{
    const char *stop = memchr(*s, '\n', (size_t)(end - *s)), *next = stop ? stop + 1 : end;
    if (!stop) stop = end;
    if (stop > *s && stop[-1] == '\r') stop--;
    const char *space = memchr(*s, ' ', (size_t)(stop - *s));
    *out = (line){ .token = *s };
    if (!space || space == *s || stop - space < 2 || stop - space > 9 || stop - *s > MAX_LINE_BYTES) return false;
    out->n = (size_t)(space - *s);
    for (const char *p = space + 1; p < stop; p++) {
        if (*p < '0' || *p > '9') return false;
        out->rank = out->rank * 10 + (*p - '0');
    }
    *s = next;
    return true;
}

bool mt__looks_like_tiktoken(const char *text, size_t n)
{
    line l;
    char bytes[MAX_LINE_BYTES];
    const char *s = text;
    return n && read_line(&s, text + n, &l) && mt_base64_decode(l.token, l.n, bytes) > 0;
}

static mt_rc read_lines(mt_vocab *vocab, const char *text, size_t n, const char *what, mt_err *err)
{
    const char *s = text, *end = text + n;
    char bytes[MAX_LINE_BYTES];
    for (size_t number = 1; s < end; number++) {
        line l;
        if (*s == '\n') {
            s++;
            continue;
        }
        int64_t len = read_line(&s, end, &l) ? mt_base64_decode(l.token, l.n, bytes) : -1;
        if (len <= 0 || l.rank > MAX_RANK) return mt_fail(err, MT_EFORMAT, "%s: line %zu is not \"base64 rank\"", what, number);
        MT_TRY(mt_vocab_add(vocab, bytes, (size_t)len, l.rank, err));
    }
    return mt_vocab_finish(vocab, what, err);
}

static mt_rc fill_bpe(mt_word_model *m, const char *what, mt_err *err)
{
    mt_bpe *b = &m->bpe;
    b->raw = b->ignore_merges = true; /* a word that is a token is that token */
    b->unk_id = -1;
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        b->byte_ids[byte] = mt_vocab_id(&m->vocab, &c, 1);
        if (b->byte_ids[byte] < 0) return mt_fail(err, MT_EFORMAT, "%s: byte 0x%02x has no token", what, byte);
    }
    uint32_t *ranks = mt_malloc(m->vocab.n_ids * sizeof *ranks);
    if (!ranks) return mt_no_memory(err, "%s", what);
    for (size_t i = 0; i < m->vocab.n_ids; i++) ranks[i] = (uint32_t)i;
    mt_rc rc = mt_bpe_from_ranks(b, &m->vocab, ranks, true, err);
    mt_free(ranks);
    return rc ? rc : mt_bpe_finish(b, &m->vocab, err);
}

static mt_rc set_pattern(mt_tokenizer *tok, const char *pattern, mt_err *err)
{
    mt_pretok_step *step;
    mt_pretokenizer_deinit(&tok->pretokenizer);
    MT_TRY(mt_pretokenizer_push(&tok->pretokenizer, MT_PRETOK_SPLIT, &step, err));
    step->scan = mt_scan_for(pattern, strlen(pattern));
    return MT_OK;
}

mt_rc mt__load_tiktoken(mt_tokenizer *tok, const char *text, size_t n, const char *what, mt_err *err)
{
    mt_decode_step *step;
    tok->model.kind = MT_WORD_MODEL_BPE;
    MT_TRY(read_lines(&tok->model.vocab, text, n, what, err));
    MT_TRY(fill_bpe(&tok->model, what, err));
    MT_TRY(mt_decoder_push(&tok->decoder, MT_DECODE_RAW, &step, err));
    return set_pattern(tok, MT_PATTERN_CL100K, err); /* GLM-4's and Llama 3's */
}

static mt_rc add_special(mt_tokenizer *tok, char *name, mt_err *err)
{
    mt_added_token t = { .content = name, .n = strlen(name), .id = -1, .special = true };
    return mt_added_add(&tok->added, t, &tok->model.vocab, err);
}

mt_rc mt__make_qwen1(mt_tokenizer *tok, mt_err *err)
{
    char name[32];
    MT_TRY(set_pattern(tok, MT_PATTERN_QWEN2, err));
    MT_TRY(mt_normalizer_push(&tok->normalizer, MT_NORM_NFC, NULL, err));
    MT_TRY(add_special(tok, "<|endoftext|>", err));
    MT_TRY(add_special(tok, "<|im_start|>", err));
    MT_TRY(add_special(tok, "<|im_end|>", err));
    for (int i = 0; i < 205; i++) {
        snprintf(name, sizeof name, "<|extra_%d|>", i);
        MT_TRY(add_special(tok, name, err));
    }
    return MT_OK;
}
