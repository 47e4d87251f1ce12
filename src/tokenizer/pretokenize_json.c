/* The "pre_tokenizer" of a tokenizer.json, read into a flat list of steps. */
#include "tokenizer/json_read.h"
#include "tokenizer/pretokenize.h"

#include <string.h>

enum { MAX_STEPS = 256 };

mt_rc mt_pretokenizer_push(mt_pretokenizer *pt, mt_pretok_kind kind, mt_pretok_step **out, mt_err *err)
{
    if (pt->n >= MAX_STEPS) return mt_fail(err, MT_ERANGE, "more than %d pre-tokenizers in a row", MAX_STEPS);
    MT_TRY(mt_grow(&pt->steps, &pt->cap, pt->n + 1, sizeof *pt->steps, err));
    *out = &pt->steps[pt->n++];
    **out = (mt_pretok_step){ .kind = kind, .behavior = MT_SPLIT_ISOLATED };
    return MT_OK;
}

void mt_pretokenizer_deinit(mt_pretokenizer *pt)
{
    for (size_t i = 0; i < pt->n; i++) {
        mt_free(pt->steps[i].text);
        mt_regex_free(pt->steps[i].re);
    }
    mt_free(pt->steps);
    *pt = (mt_pretokenizer){ 0 };
}

static mt_rc set_text(mt_pretok_step *step, const char *s, size_t n, mt_err *err)
{
    step->text = mt_strndup(s, n);
    step->n_text = n;
    return step->text ? MT_OK : mt_no_memory(err, "a pre-tokenizer");
}

static mt_rc parse_behavior(mt_pretok_step *step, const mt_value *v, mt_split_behavior fallback, const char *what, mt_err *err)
{
    static const char *const names[] = { "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous" };
    const mt_value *name;
    step->behavior = fallback;
    MT_TRY(mt__json_maybe(v, "behavior", MT_VALUE_STR, &name, what, err));
    if (!name) return MT_OK;
    for (size_t i = 0; i < MT_COUNT(names); i++)
        if (mt_value_is(name, names[i])) {
            step->behavior = (mt_split_behavior)i;
            return MT_OK;
        }
    return mt_fail(
        err, MT_EFORMAT,
        "%s: \"behavior\" is \"%.*s\", one of Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous was expected",
        what, (int)mt_min_i64((int64_t)name->str.n, 60), name->str.s);
}

static mt_rc parse_split(mt_pretok_step *step, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *pattern = mt_value_get(v, "pattern"), *regex = pattern ? mt_value_get(pattern, "Regex") : NULL;
    MT_TRY(mt__json_bool(v, "invert", false, &step->invert, what, err));
    MT_TRY(parse_behavior(step, v, MT_SPLIT_ISOLATED, what, err));
    if (regex && regex->type == MT_VALUE_STR) step->scan = mt_scan_for(regex->str.s, regex->str.n);
    if (step->scan) return MT_OK;
    return mt__json_pattern(v, &step->text, &step->n_text, &step->re, what, err);
}

static mt_rc parse_byte_level(mt_pretok_step *step, const mt_value *v, const char *what, mt_err *err)
{
    bool use_regex;
    MT_TRY(mt__json_bool(v, "add_prefix_space", true, &step->prefix_space, what, err));
    MT_TRY(mt__json_bool(v, "use_regex", true, &use_regex, what, err));
    if (use_regex) step->scan = mt_scan_for(MT_PATTERN_GPT2, strlen(MT_PATTERN_GPT2));
    return MT_OK;
}

/* Older files say add_prefix_space, newer ones prepend_scheme. */
static mt_rc parse_prepend(mt_pretok_step *step, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *scheme;
    bool prefix;
    MT_TRY(mt__json_bool(v, "add_prefix_space", true, &prefix, what, err));
    MT_TRY(mt__json_maybe(v, "prepend_scheme", MT_VALUE_STR, &scheme, what, err));
    step->prepend = prefix ? MT_PREPEND_ALWAYS : MT_PREPEND_NEVER;
    if (!scheme || !prefix) return MT_OK;
    if (mt_value_is(scheme, "always"))
        step->prepend = MT_PREPEND_ALWAYS;
    else if (mt_value_is(scheme, "first"))
        step->prepend = MT_PREPEND_FIRST;
    else if (mt_value_is(scheme, "never"))
        step->prepend = MT_PREPEND_NEVER;
    else
        return mt_fail(err, MT_EFORMAT, "%s: \"prepend_scheme\" is none of always, first, never", what);
    return MT_OK;
}

static mt_rc parse_metaspace(mt_pretok_step *step, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *mark;
    MT_TRY(mt__json_maybe(v, "replacement", MT_VALUE_STR, &mark, what, err));
    MT_TRY(set_text(step, mark ? mark->str.s : "\xe2\x96\x81", mark ? mark->str.n : 3, err));
    if (!step->n_text) return mt_fail(err, MT_EFORMAT, "%s: \"replacement\" is empty, one character was expected", what);
    MT_TRY(mt__json_bool(v, "split", true, &step->split, what, err));
    step->behavior = MT_SPLIT_MERGED_NEXT;
    return parse_prepend(step, v, what, err);
}

static mt_rc parse_delimiter(mt_pretok_step *step, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *delimiter;
    MT_TRY(mt__json_need(v, "delimiter", MT_VALUE_STR, &delimiter, what, err));
    step->behavior = MT_SPLIT_REMOVED;
    return set_text(step, delimiter->str.s, delimiter->str.n, err);
}

static mt_rc parse_digits(mt_pretok_step *step, const mt_value *v, const char *what, mt_err *err)
{
    bool each;
    MT_TRY(mt__json_bool(v, "individual_digits", false, &each, what, err));
    step->behavior = each ? MT_SPLIT_ISOLATED : MT_SPLIT_CONTIGUOUS;
    return MT_OK;
}

static mt_rc parse_fixed(mt_pretok_step *step, const mt_value *v, const char *what, mt_err *err)
{
    int64_t length;
    MT_TRY(mt__json_int(v, "length", 5, &length, what, err));
    if (length < 1) return mt_fail(err, MT_ERANGE, "%s: \"length\" is %lld, at least 1 was expected", what, (long long)length);
    step->length = (size_t)length;
    return MT_OK;
}

static mt_rc parse_punct(mt_pretok_step *step, const mt_value *v, const char *what, mt_err *err)
{
    return parse_behavior(step, v, MT_SPLIT_ISOLATED, what, err);
}

static mt_rc parse_removed(mt_pretok_step *step, const mt_value *v, const char *what, mt_err *err)
{
    (void)v, (void)what, (void)err;
    step->behavior = MT_SPLIT_REMOVED;
    return MT_OK;
}

static const struct {
    const char *name;
    mt_pretok_kind kind;
    mt_rc (*parse)(mt_pretok_step *, const mt_value *, const char *, mt_err *);
} kinds[] = {
    { "ByteLevel", MT_PRETOK_BYTE_LEVEL, parse_byte_level },
    { "Split", MT_PRETOK_SPLIT, parse_split },
    { "Metaspace", MT_PRETOK_METASPACE, parse_metaspace },
    { "Whitespace", MT_PRETOK_WORDS, NULL },
    { "WhitespaceSplit", MT_PRETOK_SPACES, parse_removed },
    { "Digits", MT_PRETOK_DIGITS, parse_digits },
    { "Punctuation", MT_PRETOK_PUNCT, parse_punct },
    { "UnicodeScripts", MT_PRETOK_SCRIPTS, NULL },
    { "CharDelimiterSplit", MT_PRETOK_SPLIT, parse_delimiter },
    { "FixedLength", MT_PRETOK_FIXED, parse_fixed },
};

static mt_rc parse_sequence(mt_pretokenizer *pt, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *list;
    MT_TRY(mt__json_need(v, "pretokenizers", MT_VALUE_LIST, &list, what, err));
    for (size_t i = 0; i < list->list.n; i++) MT_TRY(mt_pretokenizer_parse(pt, &list->list.items[i], what, err));
    return MT_OK;
}

static mt_rc parse_bert(mt_pretokenizer *pt, mt_err *err)
{
    mt_pretok_step *step;
    MT_TRY(mt_pretokenizer_push(pt, MT_PRETOK_SPACES, &step, err));
    step->behavior = MT_SPLIT_REMOVED;
    return mt_pretokenizer_push(pt, MT_PRETOK_PUNCT, &step, err);
}

mt_rc mt_pretokenizer_parse(mt_pretokenizer *pt, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *type;
    if (!v || v->type == MT_VALUE_NULL) return MT_OK;
    MT_TRY(mt__json_need(v, "type", MT_VALUE_STR, &type, what, err));
    if (mt_value_is(type, "Sequence")) return parse_sequence(pt, v, what, err);
    if (mt_value_is(type, "BertPreTokenizer")) return parse_bert(pt, err);
    for (size_t i = 0; i < MT_COUNT(kinds); i++) {
        if (!mt_value_is(type, kinds[i].name)) continue;
        mt_pretok_step *step;
        MT_TRY(mt_pretokenizer_push(pt, kinds[i].kind, &step, err));
        return kinds[i].parse ? kinds[i].parse(step, v, what, err) : MT_OK;
    }
    return mt_fail(err, MT_EUNSUPPORTED, "%s: pre-tokenizer \"%.*s\" is not known", what,
                   (int)mt_min_i64((int64_t)type->str.n, 60), type->str.s);
}
