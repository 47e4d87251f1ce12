/* Applying a normalizer: one small function per kind of step, each reading a view and writing a text. */
#define _GNU_SOURCE /* memmem */
#include "tokenizer/normalize.h"

#include "tokenizer/bytes.h"

#include <string.h>

/* Call `each` for every character of `in`. */
typedef void (*char_fn)(const mt_unicode *uc, uint32_t cp, const mt_view *in, size_t at, size_t n, mt_text *out);

static void for_each_char(const mt_unicode *uc, const mt_view *in, mt_text *out, char_fn each)
{
    for (size_t i = 0; i < in->n;) {
        uint32_t cp;
        size_t len = mt_cp_at(in->s, in->n, i, &cp);
        each(uc, cp, in, i, len, out);
        i += len;
    }
}

static void lower_char(const mt_unicode *uc, uint32_t cp, const mt_view *in, size_t at, size_t n, mt_text *out)
{
    (void)uc;
    uint32_t second;
    mt_text_put_cp(out, mt_unicode_lower(cp, &second), in, at, n);
    if (second) mt_text_put_cp(out, second, in, at, n);
}

static void drop_mark(const mt_unicode *uc, uint32_t cp, const mt_view *in, size_t at, size_t n, mt_text *out)
{
    if (!(mt_unicode_props(uc, cp) & MT_UC_MARK)) mt_text_copy(out, in, at, n);
}

static void drop_accent(const mt_unicode *uc, uint32_t cp, const mt_view *in, size_t at, size_t n, mt_text *out)
{
    if (!(mt_unicode_props(uc, cp) & MT_UC_ACCENT)) mt_text_copy(out, in, at, n);
}

static void clean_char(const mt_unicode *uc, uint32_t cp, const mt_view *in, size_t at, size_t n, mt_text *out)
{
    uint16_t props = mt_unicode_props(uc, cp);
    if (props & MT_UC_CONTROL) return;
    if (props & MT_UC_WHITE)
        mt_text_put_cp(out, ' ', in, at, n);
    else
        mt_text_copy(out, in, at, n);
}

static bool is_bert_cjk(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static void pad_cjk(const mt_unicode *uc, uint32_t cp, const mt_view *in, size_t at, size_t n, mt_text *out)
{
    (void)uc;
    bool pad = is_bert_cjk(cp);
    if (pad) mt_text_put_cp(out, ' ', in, at, n);
    mt_text_copy(out, in, at, n);
    if (pad) mt_text_put_cp(out, ' ', in, at, n);
}

static bool nmt_drops(uint32_t c)
{
    return (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
}

static bool nmt_is_space(uint32_t c)
{
    return c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) || c == 0x2028 ||
           c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
}

static void nmt_char(const mt_unicode *uc, uint32_t cp, const mt_view *in, size_t at, size_t n, mt_text *out)
{
    (void)uc;
    if (nmt_drops(cp)) return;
    mt_text_put_cp(out, nmt_is_space(cp) ? ' ' : cp, in, at, n);
}

static void to_alphabet(const mt_view *in, mt_text *out)
{
    for (size_t i = 0; i < in->n; i++) mt_text_put_cp(out, mt_byte_to_cp((uint8_t)in->s[i]), in, i, 1);
}

static void strip(const mt_norm_step *step, const mt_unicode *uc, const mt_view *in, mt_text *out)
{
    size_t start = 0, end = in->n;
    uint32_t cp;
    while (step->left && start < end) {
        size_t len = mt_cp_at(in->s, in->n, start, &cp);
        if (!(mt_unicode_props(uc, cp) & MT_UC_WHITE)) break;
        start += len;
    }
    while (step->right && end > start) {
        size_t last = end - 1;
        while (last > start && ((unsigned char)in->s[last] & 0xc0) == 0x80) last--;
        mt_cp_at(in->s, in->n, last, &cp);
        if (!(mt_unicode_props(uc, cp) & MT_UC_WHITE)) break;
        end = last;
    }
    mt_text_copy(out, in, start, end - start);
}

static void replace_range(const mt_norm_step *step, const mt_view *in, size_t start, size_t end, mt_text *out)
{
    uint32_t lo = mt_view_point(in, start), hi = end > start ? mt_view_hi(in, end - 1) : lo;
    mt_text_put(out, step->content, step->n_content, lo, hi);
}

static void replace_literal(const mt_norm_step *step, const mt_view *in, mt_text *out)
{
    size_t done = 0;
    while (done < in->n) {
        const char *at = memmem(in->s + done, in->n - done, step->pattern, step->n_pattern);
        if (!at) break;
        size_t start = (size_t)(at - in->s);
        mt_text_copy(out, in, done, start - done);
        replace_range(step, in, start, start + step->n_pattern, out);
        done = start + step->n_pattern;
    }
    mt_text_copy(out, in, done, in->n - done);
}

static mt_rc replace_regex(const mt_norm_step *step, mt_norm_state *st, const mt_view *in, mt_text *out, mt_err *err)
{
    size_t done = 0, from = 0, start, end, last_end = SIZE_MAX;
    while (from <= in->n) {
        bool found;
        MT_TRY(mt_regex_find(step->re, st->regex, in->s, in->n, from, &found, &start, &end, err));
        if (!found) break;
        uint32_t cp;
        if (start == end && end == last_end) { /* an empty match right after the last one does not count */
            from += from < in->n ? mt_cp_at(in->s, in->n, from, &cp) : 1;
            continue;
        }
        mt_text_copy(out, in, done, start - done);
        replace_range(step, in, start, end, out);
        done = from = last_end = end;
    }
    mt_text_copy(out, in, done, in->n - done);
    return MT_OK;
}

static void prepend(const mt_norm_step *step, const mt_view *in, mt_text *out)
{
    uint32_t at = mt_view_point(in, 0);
    mt_text_put(out, step->content, step->n_content, at, at);
    mt_text_copy(out, in, 0, in->n);
}

static void normalize_append(const mt_norm_step *step, const mt_view *in, mt_text *out)
{
    uint32_t at = mt_view_point(in, in->n);
    mt_text_copy(out, in, 0, in->n);
    mt_text_put(out, step->content, step->n_content, at, at);
}

/* Write the step's result to out; *changed says whether it did. */
static mt_rc apply_step(const mt_norm_step *step, const mt_unicode *uc, mt_norm_state *st, const mt_view *in, mt_text *out,
                        bool *changed, mt_err *err)
{
    *changed = true;
    switch (step->kind) {
    case MT_NORM_NFC:
    case MT_NORM_NFD:
    case MT_NORM_NFKC:
    case MT_NORM_NFKD: *changed = mt__normal_form(step->kind, uc, in, out); break;
    case MT_NORM_LOWERCASE: for_each_char(uc, in, out, lower_char); break;
    case MT_NORM_REPLACE:
        if (step->re) return replace_regex(step, st, in, out, err);
        if (step->n_pattern)
            replace_literal(step, in, out);
        else
            *changed = false;
        break;
    case MT_NORM_PREPEND: prepend(step, in, out); break;
    case MT_NORM_APPEND: normalize_append(step, in, out); break;
    case MT_NORM_STRIP: strip(step, uc, in, out); break;
    case MT_NORM_STRIP_ACCENTS: for_each_char(uc, in, out, drop_mark); break;
    case MT_NORM_NMT: for_each_char(uc, in, out, nmt_char); break;
    case MT_NORM_PRECOMPILED: mt_charsmap_apply(&step->charsmap, in, out); break;
    case MT_NORM_BERT_CLEAN: for_each_char(uc, in, out, clean_char); break;
    case MT_NORM_BERT_CJK: for_each_char(uc, in, out, pad_cjk); break;
    case MT_NORM_BERT_ACCENTS: for_each_char(uc, in, out, drop_accent); break;
    case MT_NORM_BYTE_LEVEL: to_alphabet(in, out); break;
    case MT_NORM_SPM: *changed = mt__spm_normalize(step, in, out); break;
    }
    return MT_OK;
}

mt_rc mt_normalizer_apply(const mt_normalizer *nz, const mt_unicode *uc, mt_norm_state *st, bool tracked, mt_view *text,
                          mt_err *err)
{
    int next = 0;
    size_t limit = mt_text_limit(text->n);
    for (size_t i = 0; i < nz->n && text->n; i++) {
        mt_text *out = &st->text[next];
        bool changed;
        mt_text_reset(out, tracked, limit);
        MT_TRY(apply_step(&nz->steps[i], uc, st, text, out, &changed, err));
        if (out->failed) return mt_no_memory(err, "normalizing %zu bytes of text, or it grows too much", text->n);
        if (!changed) continue;
        *text = mt_text_view(out);
        next = !next;
    }
    return MT_OK;
}
