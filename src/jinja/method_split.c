/* method_split.c - methods of str that take it apart.  The pieces share the string's bytes. */
#include "jinja/method.h"

#include "jinja/chars.h"

#define METHOD(name) mt_rc name(jrender *r, jval self, const jval *a, const jargs *args, jval *out)

/* Pieces found so far, in an array that grows in the arena. */
typedef struct pieces {
    jval *items;
    size_t n, cap;
} pieces;

static mt_rc add_piece(jrender *r, pieces *p, jval v)
{
    if (p->n == p->cap) {
        jval *bigger;
        size_t cap = p->cap ? p->cap * 2 : 8;
        MT_TRY(mt__j_new(r, cap * sizeof *bigger, &bigger));
        if (p->n) memcpy(bigger, p->items, p->n * sizeof *bigger);
        p->items = bigger;
        p->cap = cap;
    }
    p->items[p->n++] = v;
    return mt__j_steps(r, 1);
}

static mt_rc finish_pieces(jrender *r, pieces *p, bool backwards, jval *out)
{
    jval *items;
    MT_TRY(mt__j_new_list(r, JV_LIST, p->n, out, &items));
    for (size_t i = 0; i < p->n; i++) items[i] = p->items[backwards ? p->n - 1 - i : i];
    return MT_OK;
}

static mt_rc split_white(jrender *r, jval s, int64_t max, pieces *p)
{
    size_t at = mt__j_space_prefix(s.s, s.n);
    while (at < s.n) {
        if (max >= 0 && (int64_t)p->n >= max) return add_piece(r, p, mt__j_part(s, at, s.n));
        size_t end = at, len;
        while (end < s.n && !mt__j_is_space(mt__j_cp(s.s + end, s.n - end, &len))) end += len;
        MT_TRY(add_piece(r, p, mt__j_part(s, at, end)));
        at = end + mt__j_space_prefix(s.s + end, s.n - end);
    }
    return MT_OK;
}

static mt_rc rsplit_white(jrender *r, jval s, int64_t max, pieces *p)
{
    size_t end = mt__j_rstrip(s.s, s.n);
    while (end > 0) {
        if (max >= 0 && (int64_t)p->n >= max) return add_piece(r, p, mt__j_part(s, 0, end));
        size_t at = end;
        while (at > 0) {
            size_t i = at - 1, len;
            while (i && ((unsigned char)s.s[i] & 0xc0) == 0x80) i--;
            if (mt__j_is_space(mt__j_cp(s.s + i, at - i, &len))) break;
            at = i;
        }
        MT_TRY(add_piece(r, p, mt__j_part(s, at, end)));
        end = mt__j_rstrip(s.s, at);
    }
    return MT_OK;
}

static mt_rc split_by(jrender *r, jval s, jval sep, int64_t max, pieces *p)
{
    size_t at = 0;
    for (const char *hit; (max < 0 || (int64_t)p->n < max) && (hit = mt__j_find(s.s + at, s.n - at, sep.s, sep.n)); at += sep.n) {
        MT_TRY(add_piece(r, p, mt__j_part(s, at, (size_t)(hit - s.s))));
        at = (size_t)(hit - s.s);
    }
    return add_piece(r, p, mt__j_part(s, at, s.n));
}

static mt_rc rsplit_by(jrender *r, jval s, jval sep, int64_t max, pieces *p)
{
    size_t end = s.n;
    for (const char *hit; (max < 0 || (int64_t)p->n < max) && (hit = mt__j_rfind(s.s, end, sep.s, sep.n));
         end = (size_t)(hit - s.s))
        MT_TRY(add_piece(r, p, mt__j_part(s, (size_t)(hit - s.s) + sep.n, end)));
    return add_piece(r, p, mt__j_part(s, 0, end));
}

static mt_rc split(jrender *r, jval s, const jval *a, bool backwards, jval *out)
{
    pieces p = { 0 };
    int64_t max;
    bool white = !mt__j_given(a[0]) || a[0].type == JV_NONE;
    MT_TRY(mt__j_want_int(r, a[1], -1, &max));
    if (!white) MT_TRY(mt__j_want_str(r, a[0], "separator"));
    if (!white && a[0].n == 0) return mt__j_fail(r, "empty separator");
    MT_TRY(white ? mt__j_walk(r, s.n) : mt__j_search(r, s.n, a[0].n, backwards));
    if (white)
        MT_TRY(backwards ? rsplit_white(r, s, max, &p) : split_white(r, s, max, &p));
    else
        MT_TRY(backwards ? rsplit_by(r, s, a[0], max, &p) : split_by(r, s, a[0], max, &p));
    return finish_pieces(r, &p, backwards, out);
}

METHOD(mt__j_str_split) { return (void)args, split(r, self, a, false, out); }
METHOD(mt__j_str_rsplit) { return (void)args, split(r, self, a, true, out); }

mt_rc mt__j_splitlines(jrender *r, jval s, bool keep_ends, jval *out)
{
    pieces p = { 0 };
    size_t at = 0, len;
    MT_TRY(mt__j_walk(r, s.n));
    for (size_t i = 0; i < s.n; i += len) {
        uint32_t cp = mt__j_cp(s.s + i, s.n - i, &len);
        if (!mt__j_is_break(cp)) continue;
        if (cp == '\r' && i + 1 < s.n && s.s[i + 1] == '\n') len = 2;
        MT_TRY(add_piece(r, &p, mt__j_part(s, at, keep_ends ? i + len : i)));
        at = i + len;
    }
    if (at < s.n) MT_TRY(add_piece(r, &p, mt__j_part(s, at, s.n)));
    return finish_pieces(r, &p, false, out);
}

METHOD(mt__j_str_splitlines)
{
    (void)args;
    bool keep;
    MT_TRY(mt__j_truth(r, a[0], &keep));
    return mt__j_splitlines(r, self, keep, out);
}

static mt_rc three(jrender *r, jval x, jval y, jval z, jval *out)
{
    jval *items;
    MT_TRY(mt__j_new_list(r, JV_TUPLE, 3, out, &items));
    items[0] = x, items[1] = y, items[2] = z;
    return MT_OK;
}

static mt_rc partition(jrender *r, jval s, jval sep, bool backwards, jval *out)
{
    MT_TRY(mt__j_want_str(r, sep, "separator"));
    if (sep.n == 0) return mt__j_fail(r, "empty separator");
    MT_TRY(mt__j_search(r, s.n, sep.n, backwards));
    const char *hit = backwards ? mt__j_rfind(s.s, s.n, sep.s, sep.n) : mt__j_find(s.s, s.n, sep.s, sep.n);
    jval empty = mt__j_text("", 0);
    if (!hit) return backwards ? three(r, empty, empty, s, out) : three(r, s, empty, empty, out);
    size_t at = (size_t)(hit - s.s);
    return three(r, mt__j_part(s, 0, at), sep, mt__j_part(s, at + sep.n, s.n), out);
}

METHOD(mt__j_str_partition) { return (void)args, partition(r, self, a[0], false, out); }
METHOD(mt__j_str_rpartition) { return (void)args, partition(r, self, a[0], true, out); }
