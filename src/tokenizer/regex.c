#include "tokenizer/regex.h"

#include <oniguruma.h>

enum { MAX_PATTERN_BYTES = 1 << 16, MAX_STACK = 1 << 20 };
/* Attempts: FREE of each search are not counted (an ordinary search needs a few for each byte of a word); TEXT and BYTE for each
 * byte are the bound for a text. */
enum { FREE_RETRIES = 512, TEXT_RETRIES = 10000000, BYTE_RETRIES = 1024 };

struct mt_regex {
    regex_t *re;
};

struct mt_regex_state {
    OnigRegion *region;
    OnigMatchParam *param;
    size_t retries_left, text_bytes;
};

static mt_rc onig_fail(int code, OnigErrorInfo *info, const char *pattern, mt_err *err)
{
    UChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
    onig_error_code_to_str(text, code, info);
    return mt_fail(err, code == ONIGERR_MEMORY ? MT_ENOMEM : MT_EFORMAT, "regular expression \"%.200s\": %s", pattern,
                   (char *)text);
}

mt_rc mt_regex_create(mt_regex **out, const char *pattern, size_t n, mt_err *err)
{
    *out = NULL;
    if (n > MAX_PATTERN_BYTES)
        return mt_fail(err, MT_ERANGE, "a regular expression of %zu bytes, at most %d are accepted", n, MAX_PATTERN_BYTES);
    OnigEncoding utf8 = ONIG_ENCODING_UTF8;
    onig_initialize(&utf8, 1);
    MT_TRY(mt__regex_pin_classes(err));
    mt_regex *re = mt_calloc(1, sizeof *re);
    if (!re) return mt_no_memory(err, "a regular expression");
    OnigErrorInfo info = { 0 };
    const UChar *p = (const UChar *)pattern;
    int code = onig_new(&re->re, p, p + n, ONIG_OPTION_NONE, utf8, ONIG_SYNTAX_DEFAULT, &info);
    if (code != ONIG_NORMAL) {
        mt_free(re);
        return onig_fail(code, &info, pattern, err);
    }
    *out = re;
    return MT_OK;
}

void mt_regex_free(mt_regex *re)
{
    if (!re) return;
    onig_free(re->re);
    mt_free(re);
}

mt_rc mt_regex_state_create(mt_regex_state **out, mt_err *err)
{
    mt_regex_state *st = mt_calloc(1, sizeof *st);
    *out = st;
    if (st) st->region = onig_region_new();
    if (st) st->param = onig_new_match_param();
    if (!st || !st->region || !st->param) {
        mt_regex_state_free(st);
        *out = NULL;
        return mt_no_memory(err, "regular expressions");
    }
    onig_initialize_match_param(st->param);
    mt_regex_state_begin(st, 0);
    onig_set_match_stack_limit_size_of_match_param(st->param, MAX_STACK);
    return MT_OK;
}

void mt_regex_state_free(mt_regex_state *st)
{
    if (!st) return;
    if (st->region) onig_region_free(st->region, 1);
    if (st->param) onig_free_match_param(st->param);
    mt_free(st);
}

void mt_regex_state_begin(mt_regex_state *st, size_t n)
{
    st->text_bytes = n;
    st->retries_left = TEXT_RETRIES + BYTE_RETRIES * n;
}

/* Oniguruma stops a search at a limit but does not report how many attempts it took.  So a search starts with a small limit and
 * gets four times as much whenever that is too little.  It is charged at most about five times what it took. */
static int search(const mt_regex *re, mt_regex_state *st, const UChar *s, size_t n, size_t from)
{
    for (size_t limit = FREE_RETRIES;; limit *= 4) {
        if (limit > FREE_RETRIES && limit > st->retries_left) return ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER;
        onig_set_retry_limit_in_search_of_match_param(st->param, limit);
        int at = onig_search_with_param(re->re, s, s + n, s + from, s + n, st->region, ONIG_OPTION_NONE, st->param);
        if (limit > FREE_RETRIES) st->retries_left -= limit;
        if (at != ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER) return at;
    }
}

mt_rc mt_regex_find(const mt_regex *re, mt_regex_state *st, const char *s, size_t n, size_t from, bool *found, size_t *start,
                    size_t *end, mt_err *err)
{
    int at = search(re, st, (const UChar *)s, n, from);
    *found = at >= 0;
    if (at == ONIG_MISMATCH) return MT_OK;
    if (at == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER)
        return mt_fail(err, MT_ERANGE, "a regular expression of the tokenizer backtracks too much on a text of %zu bytes",
                       st->text_bytes ? st->text_bytes : n);
    if (at < 0) return onig_fail(at, NULL, "of the tokenizer", err);
    *start = (size_t)st->region->beg[0];
    *end = (size_t)st->region->end[0];
    return MT_OK;
}
