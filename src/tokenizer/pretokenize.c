/* Applying pre-tokenizers.  A splitting step marks each span's matches and the pieces between them, then its behavior decides
 * which marks become separate spans, join a neighbor, or vanish. */
#define _GNU_SOURCE /* memmem */
#include "tokenizer/pretokenize.h"

#include "tokenizer/bytes.h"

#include <string.h>

typedef struct run {
    const mt_pretok_step *step;
    const mt_unicode *uc;
    mt_pretok_state *st;
    mt_view *text;
    mt_words *out;
    size_t limit; /* bytes the text may grow to */
} run;

static mt_rc pretokenize_push(mt_words *out, size_t start, size_t end, mt_err *err)
{
    if (start >= end) return MT_OK;
    if (out->n == out->cap) MT_TRY(mt_grow(&out->items, &out->cap, out->n + 1, sizeof *out->items, err));
    out->items[out->n++] = (mt_word){ (uint32_t)start, (uint32_t)end };
    return MT_OK;
}

static mt_rc mark(mt_pretok_state *st, size_t start, size_t end, bool match, mt_err *err)
{
    if (st->n_marks == st->cap_marks) MT_TRY(mt_grow(&st->marks, &st->cap_marks, st->n_marks + 1, sizeof *st->marks, err));
    st->marks[st->n_marks++] = (mt__mark){ (uint32_t)start, (uint32_t)end, match };
    return MT_OK;
}

/* A mark joins the one before (or after) it, or starts a piece: the five behaviors. */
static mt_rc emit_marks(const run *r, mt_err *err)
{
    mt__mark *m = r->st->marks, piece = { 0 };
    bool have = false;
    for (size_t i = 0; i < r->st->n_marks; i++) {
        bool match = m[i].match, before = i > 0 && m[i - 1].match, join = false;
        switch (r->step->behavior) {
        case MT_SPLIT_REMOVED:
            if (match) continue;
            break;
        case MT_SPLIT_ISOLATED: break;
        case MT_SPLIT_CONTIGUOUS: join = match == before; break;
        case MT_SPLIT_MERGED_PREVIOUS: join = match && !before; break;
        case MT_SPLIT_MERGED_NEXT: join = !match && before; break;
        }
        if (have && join) {
            piece.end = m[i].end;
            continue;
        }
        if (have) MT_TRY(pretokenize_push(r->out, piece.start, piece.end, err));
        piece = m[i];
        have = true;
    }
    return have ? pretokenize_push(r->out, piece.start, piece.end, err) : MT_OK;
}

static mt_rc mark_regex(const run *r, mt_word w, mt_err *err)
{
    const char *s = r->text->s + w.start;
    size_t n = w.end - w.start, done = 0, from = 0, start, end, last_end = SIZE_MAX;
    while (from <= n) {
        bool found;
        uint32_t cp;
        MT_TRY(mt_regex_find(r->step->re, r->st->regex, s, n, from, &found, &start, &end, err));
        if (!found) break;
        if (start == end && end == last_end) { /* an empty match right after the last one does not count */
            from += from < n ? mt_cp_at(s, n, from, &cp) : 1;
            continue;
        }
        if (start > done) MT_TRY(mark(r->st, w.start + done, w.start + start, r->step->invert, err));
        MT_TRY(mark(r->st, w.start + start, w.start + end, !r->step->invert, err));
        done = from = last_end = end;
    }
    return done < n ? mark(r->st, w.start + done, w.end, r->step->invert, err) : MT_OK;
}

static mt_rc mark_scan(const run *r, mt_word w, mt_err *err)
{
    const char *s = r->text->s + w.start;
    size_t n = w.end - w.start, done = 0, start;
    while (done < n) {
        size_t end = r->step->scan(r->uc, s, n, done, &start);
        if (start > done) MT_TRY(mark(r->st, w.start + done, w.start + start, r->step->invert, err));
        if (end > start) MT_TRY(mark(r->st, w.start + start, w.start + end, !r->step->invert, err));
        done = end;
    }
    return MT_OK;
}

/* The common case of mark_scan, without the detour over marks: every match and every gap is a word. */
static mt_rc isolate_scan(const run *r, mt_word w, mt_err *err)
{
    const char *s = r->text->s + w.start;
    size_t n = w.end - w.start, done = 0, start;
    while (done < n) {
        size_t end = r->step->scan(r->uc, s, n, done, &start);
        if (start > done) MT_TRY(pretokenize_push(r->out, w.start + done, w.start + start, err));
        MT_TRY(pretokenize_push(r->out, w.start + start, w.start + end, err));
        done = end;
    }
    return MT_OK;
}

static mt_rc mark_literal(const run *r, mt_word w, mt_err *err)
{
    const char *s = r->text->s;
    size_t done = w.start, n = r->step->n_text;
    while (n && done < w.end) {
        const char *at = memmem(s + done, w.end - done, r->step->text, n);
        if (!at) break;
        size_t start = (size_t)(at - s);
        if (start > done) MT_TRY(mark(r->st, done, start, r->step->invert, err));
        MT_TRY(mark(r->st, start, start + n, !r->step->invert, err));
        done = start + n;
    }
    return done < w.end ? mark(r->st, done, w.end, r->step->invert, err) : MT_OK;
}

/* Each character is a match or not by its properties. */
static mt_rc mark_chars(const run *r, mt_word w, uint16_t prop, mt_err *err)
{
    size_t done = w.start;
    for (size_t i = w.start; i < w.end;) {
        uint32_t cp;
        size_t len = mt_cp_at(r->text->s, w.end, i, &cp);
        if (mt_unicode_props(r->uc, cp) & prop) {
            if (i > done) MT_TRY(mark(r->st, done, i, false, err));
            MT_TRY(mark(r->st, i, i + len, true, err));
            done = i + len;
        }
        i += len;
    }
    return done < w.end ? mark(r->st, done, w.end, false, err) : MT_OK;
}

static mt_rc split_words(const run *r, mt_word w, mt_err *err)
{
    size_t start = w.start;
    int last = 0; /* 0 white space, 1 word, 2 other */
    for (size_t i = w.start; i < w.end;) {
        uint32_t cp;
        size_t len = mt_cp_at(r->text->s, w.end, i, &cp);
        uint16_t props = mt_unicode_props(r->uc, cp);
        int kind = props & MT_UC_WHITE ? 0 : 2;
        if (props & MT_UC_WORD) kind = 1;
        if (kind != last) {
            if (last) MT_TRY(pretokenize_push(r->out, start, i, err));
            start = i;
            last = kind;
        }
        i += len;
    }
    return last ? pretokenize_push(r->out, start, w.end, err) : MT_OK;
}

/* The reference lets white space before the first letter go, and so do we. */
static mt_rc split_scripts(const run *r, mt_word w, mt_err *err)
{
    size_t start = SIZE_MAX;
    uint16_t last = 0;
    for (size_t i = w.start; i < w.end;) {
        uint32_t cp;
        size_t len = mt_cp_at(r->text->s, w.end, i, &cp);
        uint16_t script = mt_unicode_script(cp);
        if (script && script != last) {
            if (start != SIZE_MAX) MT_TRY(pretokenize_push(r->out, start, i, err));
            start = i;
        }
        if (script) last = script;
        i += len;
    }
    return start == SIZE_MAX ? MT_OK : pretokenize_push(r->out, start, w.end, err);
}

static mt_rc split_fixed(const run *r, mt_word w, mt_err *err)
{
    size_t start = w.start, chars = 0;
    for (size_t i = w.start; i < w.end;) {
        uint32_t cp;
        i += mt_cp_at(r->text->s, w.end, i, &cp);
        if (++chars < r->step->length) continue;
        MT_TRY(pretokenize_push(r->out, start, i, err));
        start = i;
        chars = 0;
    }
    return pretokenize_push(r->out, start, w.end, err);
}

static mt_rc mark_span(const run *r, mt_word w, mt_err *err)
{
    switch (r->step->kind) {
    case MT_PRETOK_SPACES: return mark_chars(r, w, MT_UC_WHITE, err);
    case MT_PRETOK_PUNCT: return mark_chars(r, w, MT_UC_PUNCT, err);
    case MT_PRETOK_DIGITS: return mark_chars(r, w, MT_UC_NUMERIC, err);
    default: break;
    }
    if (r->step->scan) return mark_scan(r, w, err);
    return r->step->re ? mark_regex(r, w, err) : mark_literal(r, w, err);
}

static mt_rc split_span(const run *r, mt_word w, mt_err *err)
{
    switch (r->step->kind) {
    case MT_PRETOK_WORDS: return split_words(r, w, err);
    case MT_PRETOK_SCRIPTS: return split_scripts(r, w, err);
    case MT_PRETOK_FIXED: return split_fixed(r, w, err);
    default: break;
    }
    if (r->step->scan && r->step->behavior == MT_SPLIT_ISOLATED) return isolate_scan(r, w, err);
    r->st->n_marks = 0;
    MT_TRY(mark_span(r, w, err));
    return emit_marks(r, err);
}

/* One span rewritten with spaces replaced; the replacement put in front as the scheme says. */
static void metaspace_text(const run *r, mt_word w, bool first, mt_text *to)
{
    const mt_pretok_step *step = r->step;
    const mt_view *in = r->text;
    const char *s = in->s + w.start;
    size_t n = w.end - w.start;
    bool there = s[0] == ' ' || (n >= step->n_text && !memcmp(s, step->text, step->n_text));
    if (!there && (step->prepend == MT_PREPEND_ALWAYS || (step->prepend == MT_PREPEND_FIRST && first)))
        mt_text_put(to, step->text, step->n_text, mt_view_lo(in, w.start), mt_view_lo(in, w.start));
    for (size_t i = w.start; i < w.end;) {
        const char *space = memchr(in->s + i, ' ', w.end - i);
        size_t stop = space ? (size_t)(space - in->s) : w.end;
        mt_text_copy(to, in, i, stop - i);
        if (space) mt_text_put(to, step->text, step->n_text, mt_view_lo(in, stop), mt_view_hi(in, stop));
        i = stop + 1;
    }
}

static void byte_level_text(const run *r, mt_word w, mt_text *to)
{
    const mt_view *in = r->text;
    if (r->step->prefix_space && in->s[w.start] != ' ') mt_text_put(to, " ", 1, mt_view_lo(in, w.start), mt_view_lo(in, w.start));
    mt_text_copy(to, in, w.start, w.end - w.start);
}

/* The text of every span once more, as the step rewrites it; spans follow. */
static mt_rc rewrite(run *r, const mt_words *in, mt_words *out, bool tracked, mt_text *to, mt_err *err)
{
    mt_text_reset(to, tracked, r->limit);
    for (size_t i = 0; i < in->n; i++) {
        size_t start = to->n;
        bool first = i == 0 && mt_view_lo(r->text, in->items[0].start) == 0;
        if (r->step->kind == MT_PRETOK_METASPACE)
            metaspace_text(r, in->items[i], first, to);
        else
            byte_level_text(r, in->items[i], to);
        MT_TRY(pretokenize_push(out, start, to->n, err));
    }
    if (to->failed) return mt_no_memory(err, "cutting %zu bytes of text, or it grows too much", r->text->n);
    *r->text = mt_text_view(to);
    return MT_OK;
}

/* Bytes to GPT-2's alphabet, span by span. */
static mt_rc spell_bytes(run *r, const mt_words *in, mt_words *out, bool tracked, mt_text *to, mt_err *err)
{
    mt_text_reset(to, tracked, r->limit);
    for (size_t i = 0; i < in->n; i++) {
        size_t start = to->n;
        for (size_t k = in->items[i].start; k < in->items[i].end; k++)
            mt_text_put_cp(to, mt_byte_to_cp((uint8_t)r->text->s[k]), r->text, k, 1);
        MT_TRY(pretokenize_push(out, start, to->n, err));
    }
    if (to->failed) return mt_no_memory(err, "cutting %zu bytes of text, or it grows too much", r->text->n);
    *r->text = mt_text_view(to);
    return MT_OK;
}

/* Buffers are used in turn; a step may take several. */
typedef struct turns {
    mt_pretok_state *st;
    int spans, text;
    bool tracked;
} turns;

static mt_words *next_spans(turns *t)
{
    mt_words *out = &t->st->spans[t->spans = !t->spans];
    out->n = 0;
    return out;
}

static mt_text *next_text(turns *t) { return &t->st->text[t->text = !t->text]; }

static mt_rc split_all(run *r, turns *t, const mt_words **words, mt_err *err)
{
    const mt_words *in = *words;
    *words = r->out = next_spans(t);
    for (size_t i = 0; i < in->n; i++) MT_TRY(split_span(r, in->items[i], err));
    return MT_OK;
}

static mt_rc apply_byte_level(run *r, turns *t, const mt_words **words, mt_err *err)
{
    const mt_words *in = *words;
    if (r->step->prefix_space) {
        mt_words *out = next_spans(t);
        MT_TRY(rewrite(r, in, out, t->tracked, next_text(t), err));
        *words = out;
    }
    if (r->step->scan) MT_TRY(split_all(r, t, words, err));
    if (r->step->raw) return MT_OK;
    in = *words;
    mt_words *out = next_spans(t);
    *words = out;
    return spell_bytes(r, in, out, t->tracked, next_text(t), err);
}

static mt_rc apply_metaspace(run *r, turns *t, const mt_words **words, mt_err *err)
{
    const mt_words *in = *words;
    mt_words *out = next_spans(t);
    MT_TRY(rewrite(r, in, out, t->tracked, next_text(t), err));
    *words = out;
    return r->step->split ? split_all(r, t, words, err) : MT_OK;
}

mt_rc mt_pretokenizer_apply(const mt_pretokenizer *pt, const mt_unicode *uc, mt_pretok_state *st, bool tracked, mt_view *text,
                            const mt_words **words, mt_err *err)
{
    turns t = { .st = st, .tracked = tracked };
    size_t limit = mt_text_limit(text->n);
    mt_words *all = next_spans(&t);
    MT_TRY(pretokenize_push(all, 0, text->n, err));
    *words = all;
    for (size_t i = 0; i < pt->n; i++) {
        run r = { .step = &pt->steps[i], .uc = uc, .st = st, .text = text, .limit = limit };
        if (r.step->kind == MT_PRETOK_METASPACE)
            MT_TRY(apply_metaspace(&r, &t, words, err));
        else if (r.step->kind == MT_PRETOK_BYTE_LEVEL)
            MT_TRY(apply_byte_level(&r, &t, words, err));
        else
            MT_TRY(split_all(&r, &t, words, err));
    }
    return MT_OK;
}

void mt_pretok_state_deinit(mt_pretok_state *st)
{
    for (int i = 0; i < 2; i++) {
        mt_text_deinit(&st->text[i]);
        mt_free(st->spans[i].items);
    }
    mt_free(st->marks);
}
