/* Applying decoders.  Most steps rewrite each string on its own; some join or drop strings. */
#define _GNU_SOURCE /* memmem */
#include "tokenizer/decode.h"

#include "base/utf8.h"
#include "tokenizer/bytes.h"

#include <string.h>

#define FFFD "\xef\xbf\xbd"

typedef struct work {
    const mt_decode_step *step;
    mt_arena *arena;
    mt_piece_text *p;
    size_t n;
    size_t limit; /* bytes all strings together may grow to: rules come from files */
    mt_str buf;   /* where a string is put together before it moves to the arena */
    mt_regex_state *regex;
} work;

/* The buffer becomes string i. */
static mt_rc decode_keep(work *w, size_t i, mt_err *err)
{
    char *copy = mt_str_ok(&w->buf) ? mt_arena_strndup(w->arena, w->buf.n ? w->buf.s : "", w->buf.n) : NULL;
    if (!copy) return mt_no_memory(err, "decoding tokens, or their text grows too much");
    w->p[i] = (mt_piece_text){ .s = copy, .n = w->buf.n };
    mt_str_clear(&w->buf);
    return MT_OK;
}

static void add_replaced(mt_str *out, size_t limit, const char *s, size_t n, const char *what, size_t n_what, const char *by,
                         size_t n_by)
{
    while (n_what && n) {
        const char *at = memmem(s, n, what, n_what);
        if (!at) break;
        if (out->n > limit) out->failed = true;
        if (out->failed) return;
        mt_str_add(out, s, (size_t)(at - s));
        mt_str_add(out, by, n_by);
        n -= (size_t)(at - s) + n_what;
        s = at + n_what;
    }
    mt_str_add(out, s, n);
}

static mt_rc replace_in(work *w, size_t i, const char *what, size_t n_what, const char *by, size_t n_by, mt_err *err)
{
    add_replaced(&w->buf, w->limit, w->p[i].s, w->p[i].n, what, n_what, by, n_by);
    return decode_keep(w, i, err);
}

/* ---- steps that join strings ---- */

static mt_rc decode_join(work *w, mt_err *err)
{
    for (size_t i = 0; i < w->n; i++) mt_str_add(&w->buf, w->p[i].s, w->p[i].n);
    if (!w->n) return MT_OK;
    w->n = 1;
    return decode_keep(w, 0, err);
}

static mt_rc byte_level(work *w, mt_err *err)
{
    mt_str bytes = { 0 };
    for (size_t i = 0; i < w->n; i++) {
        char *raw = mt_arena_alloc(w->arena, w->p[i].n + 1);
        int64_t n = raw ? mt_bytes_from_alphabet(w->p[i].s, w->p[i].n, raw) : -1;
        if (!raw)
            bytes.failed = true;
        else if (n >= 0)
            mt_str_add(&bytes, raw, (size_t)n);
        else
            mt_str_add(&bytes, w->p[i].s, w->p[i].n);
    }
    mt_str_add_lossy(&w->buf, bytes.n ? bytes.s : "", bytes.n);
    if (bytes.failed) w->buf.failed = true;
    mt_str_free(&bytes);
    w->n = w->n > 0;
    return w->n ? decode_keep(w, 0, err) : MT_OK;
}

static mt_rc raw_bytes(work *w, mt_err *err)
{
    mt_str bytes = { 0 };
    for (size_t i = 0; i < w->n; i++) mt_str_add(&bytes, w->p[i].s, w->p[i].n);
    mt_str_add_lossy(&w->buf, bytes.n ? bytes.s : "", bytes.n);
    if (bytes.failed) w->buf.failed = true;
    mt_str_free(&bytes);
    w->n = w->n > 0;
    return w->n ? decode_keep(w, 0, err) : MT_OK;
}

/* A run of byte tokens [first, last) becomes its text, or one U+FFFD a byte if it is none. */
static mt_rc put_bytes(work *w, size_t first, size_t last, size_t *n_out, mt_err *err)
{
    if (first == last) return MT_OK;
    for (size_t i = first; i < last; i++) mt_str_putc(&w->buf, (char)mt_byte_from_hex(w->p[i].s, w->p[i].n));
    if (!mt_str_ok(&w->buf)) return mt_no_memory(err, "decoding tokens, or their text grows too much");
    if (mt_utf8_valid(w->buf.s, w->buf.n, NULL)) return decode_keep(w, (*n_out)++, err);
    mt_str_clear(&w->buf);
    for (size_t i = first; i < last; i++) w->p[(*n_out)++] = (mt_piece_text){ .s = FFFD, .n = 3 };
    return MT_OK;
}

static mt_rc byte_fallback(work *w, mt_err *err)
{
    size_t n_out = 0, first = 0; /* output never overtakes input */
    for (size_t i = 0; i < w->n; i++) {
        if (mt_byte_from_hex(w->p[i].s, w->p[i].n) >= 0) continue;
        mt_piece_text here = w->p[i];
        MT_TRY(put_bytes(w, first, i, &n_out, err));
        w->p[n_out++] = here;
        first = i + 1;
    }
    MT_TRY(put_bytes(w, first, w->n, &n_out, err));
    w->n = n_out;
    return MT_OK;
}

/* ---- steps that rewrite each string ---- */

static mt_rc metaspace(work *w, size_t i, mt_err *err)
{
    bool drop = i == 0 && !w->step->keep_first;
    return replace_in(w, i, w->step->a, w->step->n_a, drop ? "" : " ", drop ? 0 : 1, err);
}

static mt_rc strip(work *w, size_t i, mt_err *err)
{
    (void)err;
    const char *what = w->step->a;
    size_t n = w->step->n_a;
    mt_piece_text *p = &w->p[i];
    for (size_t k = 0; n && k < w->step->left && p->n >= n && !memcmp(p->s, what, n); k++) {
        p->s += n;
        p->n -= n;
    }
    for (size_t k = 0; n && k < w->step->right && p->n >= n && !memcmp(p->s + p->n - n, what, n); k++) p->n -= n;
    return MT_OK;
}

static mt_rc replace_regex(work *w, size_t i, mt_err *err)
{
    const char *s = w->p[i].s;
    size_t n = w->p[i].n, done = 0, from = 0, start, end, last_end = SIZE_MAX;
    if (!w->regex) {
        MT_TRY(mt_regex_state_create(&w->regex, err));
        mt_regex_state_begin(w->regex, w->limit);
    }
    while (from <= n) {
        bool found;
        uint32_t cp;
        MT_TRY(mt_regex_find(w->step->re, w->regex, s, n, from, &found, &start, &end, err));
        if (!found) break;
        if (start == end && end == last_end) {
            int len = mt_utf8_decode(s + from, n - from, &cp);
            from += len ? (size_t)len : 1;
            continue;
        }
        if (w->buf.n > w->limit) return mt_no_memory(err, "decoding tokens, or their text grows too much");
        mt_str_add(&w->buf, s + done, start - done);
        mt_str_add(&w->buf, w->step->b, w->step->n_b);
        done = from = last_end = end;
    }
    mt_str_add(&w->buf, s + done, n - done);
    return decode_keep(w, i, err);
}

static mt_rc replace(work *w, size_t i, mt_err *err)
{
    if (w->step->re) return replace_regex(w, i, err);
    return replace_in(w, i, w->step->a, w->step->n_a, w->step->b, w->step->n_b, err);
}

/* English spacing put back, in this order, as the reference does it. */
static mt_rc clean_up(work *w, size_t i, mt_err *err)
{
    static const char *const rules[][2] = {
        { " .", "." },   { " ?", "?" },           { " !", "!" },   { " ,", "," },     { " ' ", "'" },    { " n't", "n't" },
        { " 'm", "'m" }, { " do not", " don't" }, { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
    };
    for (size_t r = 0; r < MT_COUNT(rules); r++)
        MT_TRY(replace_in(w, i, rules[r][0], strlen(rules[r][0]), rules[r][1], strlen(rules[r][1]), err));
    return MT_OK;
}

static mt_rc wordpiece(work *w, size_t i, mt_err *err)
{
    mt_piece_text p = w->p[i];
    size_t n = w->step->n_a;
    if (i > 0) {
        bool inside = p.n >= n && !memcmp(p.s, w->step->a, n);
        if (!inside) mt_str_putc(&w->buf, ' ');
        mt_str_add(&w->buf, p.s + (inside ? n : 0), p.n - (inside ? n : 0));
        MT_TRY(decode_keep(w, i, err));
    }
    return w->step->cleanup ? clean_up(w, i, err) : MT_OK;
}

static mt_rc bpe_suffix(work *w, size_t i, mt_err *err)
{
    bool last = i + 1 == w->n;
    return replace_in(w, i, w->step->a, w->step->n_a, last ? "" : " ", last ? 0 : 1, err);
}

/* Repeats fall together, padding goes, the delimiter is a space. */
static mt_rc ctc(work *w, mt_err *err)
{
    size_t n_out = 0;
    mt_piece_text last = { 0 };
    for (size_t i = 0; i < w->n; i++) {
        mt_piece_text here = w->p[i];
        bool repeat = i && here.n == last.n && !memcmp(here.s, last.s, here.n);
        last = here;
        if (repeat) continue;
        w->p[n_out] = here;
        MT_TRY(replace_in(w, n_out, w->step->a, w->step->n_a, "", 0, err));
        if (w->step->cleanup) {
            MT_TRY(clean_up(w, n_out, err));
            MT_TRY(replace_in(w, n_out, w->step->b, w->step->n_b, " ", 1, err));
        }
        if (w->p[n_out].n) n_out++;
    }
    w->n = n_out;
    return MT_OK;
}

/* SentencePiece's own: bytes fall together with the text around them.  A marker at the very start was the dummy prefix,
 * and so, where white space is folded (`cleanup`), are all before the first text. */
static mt_rc spm(work *w, mt_err *err)
{
    mt_str bytes = { 0 };
    bool at_start = !w->step->keep_first;
    for (size_t i = 0; i < w->n; i++) {
        mt_piece_text p = w->p[i];
        int byte = p.added ? -1 : mt_byte_from_hex(p.s, p.n);
        if (byte >= 0) {
            mt_str_putc(&bytes, (char)byte);
        } else if (p.added) {
            mt_str_add(&bytes, p.s, p.n);
        } else {
            size_t skip = at_start && !bytes.n && p.n >= 3 && !memcmp(p.s, "\xe2\x96\x81", 3) ? 3 : 0;
            add_replaced(&bytes, w->limit, p.s + skip, p.n - skip, "\xe2\x96\x81", 3, " ", 1);
            if (skip && !w->step->cleanup) at_start = false;
        }
    }
    mt_str_add_lossy(&w->buf, bytes.n ? bytes.s : "", bytes.n);
    if (bytes.failed) w->buf.failed = true;
    mt_str_free(&bytes);
    w->n = w->n > 0;
    return w->n ? decode_keep(w, 0, err) : MT_OK;
}

static mt_rc each(work *w, mt_rc (*fn)(work *, size_t, mt_err *), mt_err *err)
{
    for (size_t i = 0; i < w->n; i++) MT_TRY(fn(w, i, err));
    return MT_OK;
}

static mt_rc apply_step(work *w, mt_err *err)
{
    switch (w->step->kind) {
    case MT_DECODE_BYTE_LEVEL: return byte_level(w, err);
    case MT_DECODE_METASPACE: return each(w, metaspace, err);
    case MT_DECODE_BYTE_FALLBACK: return byte_fallback(w, err);
    case MT_DECODE_FUSE: return decode_join(w, err);
    case MT_DECODE_STRIP: return each(w, strip, err);
    case MT_DECODE_REPLACE: return each(w, replace, err);
    case MT_DECODE_WORDPIECE: return each(w, wordpiece, err);
    case MT_DECODE_BPE: return each(w, bpe_suffix, err);
    case MT_DECODE_CTC: return ctc(w, err);
    case MT_DECODE_RAW: return raw_bytes(w, err);
    case MT_DECODE_SPM: return spm(w, err);
    }
    return MT_OK;
}

mt_rc mt_decoder_apply(const mt_decoder *d, mt_arena *arena, mt_piece_text *pieces, size_t n, mt_str *out, mt_err *err)
{
    work w = { .arena = arena, .p = pieces, .n = n, .limit = 65536 };
    for (size_t i = 0; i < n; i++) w.limit += 64 * pieces[i].n;
    arena->max_bytes = arena->total_bytes + 64 * w.limit; /* every step leaves its strings there */
    mt_rc rc = MT_OK;
    for (size_t i = 0; i < d->n && !rc; i++) {
        w.step = &d->steps[i];
        rc = apply_step(&w, err);
    }
    for (size_t i = 0; i < w.n && !rc; i++) {
        if (i && !d->given) mt_str_putc(out, ' ');
        mt_str_add(out, w.p[i].s, w.p[i].n);
    }
    mt_str_free(&w.buf);
    mt_regex_state_free(w.regex);
    return rc || mt_str_ok(out) ? rc : mt_no_memory(err, "decoding tokens, or their text grows too much");
}
