/* The "decoder" of a tokenizer.json, read into a flat list of steps. */
#include "tokenizer/decode.h"
#include "tokenizer/json_read.h"

#include <string.h>

enum { MAX_STEPS = 256 };

mt_rc mt_decoder_push(mt_decoder *d, mt_decode_kind kind, mt_decode_step **out, mt_err *err)
{
    if (d->n >= MAX_STEPS) return mt_fail(err, MT_ERANGE, "more than %d decoders in a row", MAX_STEPS);
    MT_TRY(mt_grow(&d->steps, &d->cap, d->n + 1, sizeof *d->steps, err));
    *out = &d->steps[d->n++];
    **out = (mt_decode_step){ .kind = kind };
    d->given = true;
    return MT_OK;
}

void mt_decoder_deinit(mt_decoder *d)
{
    for (size_t i = 0; i < d->n; i++) {
        mt_free(d->steps[i].a);
        mt_free(d->steps[i].b);
        mt_regex_free(d->steps[i].re);
    }
    mt_free(d->steps);
    *d = (mt_decoder){ 0 };
}

/* A copy of the string at key, or of the fallback. */
static mt_rc text_or(const mt_value *v, const char *key, const char *fallback, char **out, size_t *n, const char *what,
                     mt_err *err)
{
    MT_TRY(mt__json_text(v, key, out, n, what, err));
    if (*out) return MT_OK;
    *out = mt_strdup(fallback);
    *n = strlen(fallback);
    return *out ? MT_OK : mt_no_memory(err, "%s", what);
}

static mt_rc parse_metaspace(mt_decode_step *s, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *scheme;
    bool prefix;
    MT_TRY(mt__json_bool(v, "add_prefix_space", true, &prefix, what, err));
    MT_TRY(mt__json_maybe(v, "prepend_scheme", MT_VALUE_STR, &scheme, what, err));
    s->keep_first = !prefix || (scheme && mt_value_is(scheme, "never"));
    return text_or(v, "replacement", "\xe2\x96\x81", &s->a, &s->n_a, what, err);
}

static mt_rc parse_strip(mt_decode_step *s, const mt_value *v, const char *what, mt_err *err)
{
    int64_t left, right;
    MT_TRY(text_or(v, "content", " ", &s->a, &s->n_a, what, err));
    MT_TRY(mt__json_int(v, "start", 0, &left, what, err));
    MT_TRY(mt__json_int(v, "stop", 0, &right, what, err));
    if (left < 0 || right < 0)
        return mt_fail(err, MT_ERANGE, "%s: \"start\" and \"stop\" of a decoder must not be negative", what);
    s->left = (size_t)left;
    s->right = (size_t)right;
    return MT_OK;
}

static mt_rc parse_replace(mt_decode_step *s, const mt_value *v, const char *what, mt_err *err)
{
    MT_TRY(mt__json_pattern(v, &s->a, &s->n_a, &s->re, what, err));
    return text_or(v, "content", "", &s->b, &s->n_b, what, err);
}

static mt_rc parse_wordpiece(mt_decode_step *s, const mt_value *v, const char *what, mt_err *err)
{
    MT_TRY(mt__json_bool(v, "cleanup", true, &s->cleanup, what, err));
    return text_or(v, "prefix", "##", &s->a, &s->n_a, what, err);
}

static mt_rc parse_bpe(mt_decode_step *s, const mt_value *v, const char *what, mt_err *err)
{
    return text_or(v, "suffix", "</w>", &s->a, &s->n_a, what, err);
}

static mt_rc parse_ctc(mt_decode_step *s, const mt_value *v, const char *what, mt_err *err)
{
    MT_TRY(mt__json_bool(v, "cleanup", true, &s->cleanup, what, err));
    MT_TRY(text_or(v, "pad_token", "<pad>", &s->a, &s->n_a, what, err));
    return text_or(v, "word_delimiter_token", "|", &s->b, &s->n_b, what, err);
}

static const struct {
    const char *name;
    mt_decode_kind kind;
    mt_rc (*parse)(mt_decode_step *, const mt_value *, const char *, mt_err *);
} kinds[] = {
    { "ByteLevel", MT_DECODE_BYTE_LEVEL, NULL },
    { "Metaspace", MT_DECODE_METASPACE, parse_metaspace },
    { "ByteFallback", MT_DECODE_BYTE_FALLBACK, NULL },
    { "Fuse", MT_DECODE_FUSE, NULL },
    { "Strip", MT_DECODE_STRIP, parse_strip },
    { "Replace", MT_DECODE_REPLACE, parse_replace },
    { "WordPiece", MT_DECODE_WORDPIECE, parse_wordpiece },
    { "BPEDecoder", MT_DECODE_BPE, parse_bpe },
    { "CTC", MT_DECODE_CTC, parse_ctc },
};

static mt_rc parse_sequence(mt_decoder *d, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *list;
    MT_TRY(mt__json_need(v, "decoders", MT_VALUE_LIST, &list, what, err));
    for (size_t i = 0; i < list->list.n; i++) MT_TRY(mt_decoder_parse(d, &list->list.items[i], what, err));
    return MT_OK;
}

mt_rc mt_decoder_parse(mt_decoder *d, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *type;
    if (!v || v->type == MT_VALUE_NULL) return MT_OK;
    d->given = true;
    MT_TRY(mt__json_need(v, "type", MT_VALUE_STR, &type, what, err));
    if (mt_value_is(type, "Sequence")) return parse_sequence(d, v, what, err);
    for (size_t i = 0; i < MT_COUNT(kinds); i++) {
        if (!mt_value_is(type, kinds[i].name)) continue;
        mt_decode_step *step;
        MT_TRY(mt_decoder_push(d, kinds[i].kind, &step, err));
        return kinds[i].parse ? kinds[i].parse(step, v, what, err) : MT_OK;
    }
    return mt_fail(err, MT_EUNSUPPORTED, "%s: decoder \"%.*s\" is not known", what, (int)mt_min_i64((int64_t)type->str.n, 60),
                   type->str.s);
}
