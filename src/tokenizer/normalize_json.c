/* The "normalizer" of a tokenizer.json, read into a flat list of steps. */
#include "tokenizer/json_read.h"
#include "tokenizer/bytes.h"
#include "tokenizer/normalize.h"

#include <string.h>

enum { MAX_STEPS = 256 };

mt_rc mt_normalizer_push(mt_normalizer *nz, mt_norm_kind kind, mt_norm_step **out, mt_err *err)
{
    if (nz->n >= MAX_STEPS) return mt_fail(err, MT_ERANGE, "more than %d normalizers in a row", MAX_STEPS);
    MT_TRY(mt_grow(&nz->steps, &nz->cap, nz->n + 1, sizeof *nz->steps, err));
    nz->steps[nz->n] = (mt_norm_step){ .kind = kind };
    if (out) *out = &nz->steps[nz->n];
    nz->n++;
    return MT_OK;
}

void mt_normalizer_deinit(mt_normalizer *nz)
{
    for (size_t i = 0; i < nz->n; i++) {
        mt_free(nz->steps[i].pattern);
        mt_free(nz->steps[i].content);
        mt_regex_free(nz->steps[i].re);
        mt_charsmap_deinit(&nz->steps[i].charsmap);
    }
    mt_free(nz->steps);
    *nz = (mt_normalizer){ 0 };
}

static mt_rc parse_content(mt_norm_step *step, const mt_value *v, const char *key, const char *what, mt_err *err)
{
    const mt_value *text;
    MT_TRY(mt__json_need(v, key, MT_VALUE_STR, &text, what, err));
    step->content = mt_strndup(text->str.s, text->str.n);
    step->n_content = text->str.n;
    return step->content ? MT_OK : mt_no_memory(err, "%s", what);
}

static mt_rc parse_precompiled(mt_norm_step *step, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *text;
    MT_TRY(mt__json_need(v, "precompiled_charsmap", MT_VALUE_STR, &text, what, err));
    char *blob = mt_malloc(text->str.n);
    if (!blob) return mt_no_memory(err, "%s", what);
    int64_t n = mt_base64_decode(text->str.s, text->str.n, blob);
    mt_rc rc = n < 0 ? mt_fail(err, MT_EFORMAT, "%s: \"precompiled_charsmap\" is not base64", what)
                     : mt_charsmap_init(&step->charsmap, blob, (size_t)n, what, err);
    mt_free(blob);
    return rc;
}

static mt_rc parse_bert(mt_normalizer *nz, const mt_value *v, const char *what, mt_err *err)
{
    bool clean, cjk, lower, accents;
    MT_TRY(mt__json_bool(v, "clean_text", true, &clean, what, err));
    MT_TRY(mt__json_bool(v, "handle_chinese_chars", true, &cjk, what, err));
    MT_TRY(mt__json_bool(v, "lowercase", true, &lower, what, err));
    MT_TRY(mt__json_bool(v, "strip_accents", lower, &accents, what, err));
    if (clean) MT_TRY(mt_normalizer_push(nz, MT_NORM_BERT_CLEAN, NULL, err));
    if (cjk) MT_TRY(mt_normalizer_push(nz, MT_NORM_BERT_CJK, NULL, err));
    if (accents) MT_TRY(mt_normalizer_push(nz, MT_NORM_NFD, NULL, err));
    if (accents) MT_TRY(mt_normalizer_push(nz, MT_NORM_BERT_ACCENTS, NULL, err));
    return lower ? mt_normalizer_push(nz, MT_NORM_LOWERCASE, NULL, err) : MT_OK;
}

static mt_rc parse_sequence(mt_normalizer *nz, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *list;
    MT_TRY(mt__json_need(v, "normalizers", MT_VALUE_LIST, &list, what, err));
    for (size_t i = 0; i < list->list.n; i++) MT_TRY(mt_normalizer_parse(nz, &list->list.items[i], what, err));
    return MT_OK;
}

static mt_rc fill_step(mt_norm_step *step, const mt_value *v, const char *what, mt_err *err)
{
    switch (step->kind) {
    case MT_NORM_REPLACE:
        MT_TRY(mt__json_pattern(v, &step->pattern, &step->n_pattern, &step->re, what, err));
        return parse_content(step, v, "content", what, err);
    case MT_NORM_PREPEND: return parse_content(step, v, "prepend", what, err);
    case MT_NORM_APPEND: return parse_content(step, v, "append", what, err);
    case MT_NORM_STRIP:
        MT_TRY(mt__json_bool(v, "strip_left", true, &step->left, what, err));
        return mt__json_bool(v, "strip_right", true, &step->right, what, err);
    case MT_NORM_PRECOMPILED: return parse_precompiled(step, v, what, err);
    default: return MT_OK;
    }
}

static const struct {
    const char *name;
    mt_norm_kind kind;
} simple[] = {
    { "NFC", MT_NORM_NFC },
    { "NFD", MT_NORM_NFD },
    { "NFKC", MT_NORM_NFKC },
    { "NFKD", MT_NORM_NFKD },
    { "Lowercase", MT_NORM_LOWERCASE },
    { "Replace", MT_NORM_REPLACE },
    { "Prepend", MT_NORM_PREPEND },
    { "Append", MT_NORM_APPEND },
    { "Strip", MT_NORM_STRIP },
    { "StripAccents", MT_NORM_STRIP_ACCENTS },
    { "Nmt", MT_NORM_NMT },
    { "Precompiled", MT_NORM_PRECOMPILED },
    { "ByteLevel", MT_NORM_BYTE_LEVEL },
};

mt_rc mt_normalizer_parse(mt_normalizer *nz, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *type;
    if (!v || v->type == MT_VALUE_NULL) return MT_OK;
    MT_TRY(mt__json_need(v, "type", MT_VALUE_STR, &type, what, err));
    if (mt_value_is(type, "Sequence")) return parse_sequence(nz, v, what, err);
    if (mt_value_is(type, "BertNormalizer")) return parse_bert(nz, v, what, err);
    for (size_t i = 0; i < MT_COUNT(simple); i++) {
        if (!mt_value_is(type, simple[i].name)) continue;
        mt_norm_step *step;
        MT_TRY(mt_normalizer_push(nz, simple[i].kind, &step, err));
        return fill_step(step, v, what, err);
    }
    return mt_fail(err, MT_EUNSUPPORTED, "%s: normalizer \"%.*s\" is not known", what, (int)mt_min_i64((int64_t)type->str.n, 60),
                   type->str.s);
}
