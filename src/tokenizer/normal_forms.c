/* NFC, NFD, NFKC and NFKD by utf8proc, a segment at a time.
 *
 * Most text is made of characters that a normal form neither changes nor joins to anything before them ("inert").
 * Only stretches of other characters, with the one before them, are handed to utf8proc.  All bytes a segment
 * becomes share the segment's origin: characters inside it may have been joined or swapped. */
#include "tokenizer/normalize.h"

#include <utf8proc.h>

enum { SEGMENT_CPS = 64 };

static utf8proc_option_t options_of(mt_norm_kind form)
{
    switch (form) {
    case MT_NORM_NFC: return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case MT_NORM_NFD: return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case MT_NORM_NFKC: return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    default: return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
    }
}

static void put_segment(mt_norm_kind form, const mt_view *in, size_t start, size_t end, mt_text *out)
{
    utf8proc_int32_t few[SEGMENT_CPS], *cps = few;
    utf8proc_option_t options = options_of(form);
    const utf8proc_uint8_t *s = (const utf8proc_uint8_t *)in->s + start;
    utf8proc_ssize_t n = utf8proc_decompose(s, (utf8proc_ssize_t)(end - start), cps, SEGMENT_CPS, options);
    if (n > SEGMENT_CPS) {
        cps = mt_malloc((size_t)n * sizeof *cps);
        if (!cps) {
            out->failed = true;
            return;
        }
        n = utf8proc_decompose(s, (utf8proc_ssize_t)(end - start), cps, n, options);
    }
    n = n < 0 ? n : utf8proc_normalize_utf32(cps, n, options);
    if (n < 0) out->failed = true;
    for (utf8proc_ssize_t i = 0; i < n; i++) mt_text_put_cp(out, (uint32_t)cps[i], in, start, end - start);
    if (cps != few) mt_free(cps);
}

/* The first character at or after i that is not inert; *before is the start of the one before it (or i). */
static size_t next_active(const mt_unicode *uc, const mt_view *in, size_t i, uint16_t inert, size_t *before)
{
    *before = i;
    while (i < in->n) {
        uint32_t cp;
        size_t len = mt_cp_at(in->s, in->n, i, &cp);
        uint16_t props = mt_unicode_props(uc, cp);
        if (!(props & inert)) return i;
        *before = props & MT_UC_OPAQUE ? i + len : i;
        i += len;
    }
    return in->n;
}

static size_t next_inert(const mt_unicode *uc, const mt_view *in, size_t i, uint16_t inert)
{
    uint32_t cp;
    while (i < in->n) {
        size_t len = mt_cp_at(in->s, in->n, i, &cp);
        if (mt_unicode_props(uc, cp) & inert) break;
        i += len;
    }
    return i;
}

bool mt__normal_form(mt_norm_kind form, const mt_unicode *uc, const mt_view *in, mt_text *out)
{
    uint16_t inert = form == MT_NORM_NFC ? MT_UC_NFC_INERT : MT_UC_INERT;
    size_t done = 0, before, active = next_active(uc, in, 0, inert, &before);
    if (active == in->n) return false;
    while (active < in->n) {
        mt_text_copy(out, in, done, before - done);
        size_t end = next_inert(uc, in, active, inert);
        put_segment(form, in, before, end, out);
        done = end;
        active = next_active(uc, in, end, inert, &before);
    }
    mt_text_copy(out, in, done, in->n - done);
    return true;
}
