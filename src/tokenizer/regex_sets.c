/* regex_sets.c - sets of characters.  General categories, \s, \d and \w are those of the reference (unicode_data.c); other classes, such
 * as scripts, and what equals what ignoring case come from the tables of Oniguruma, whose Unicode may be older. */
#include "tokenizer/regex_impl.h"
#include "tokenizer/unicode.h"

#include <oniguruma.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LAST_CP = 0x10ffff };

mt_rc mt__set_add(mt__set *s, uint32_t first, uint32_t last, mt_err *err)
{
    if (s->n && first > 0 && s->spans[s->n - 1].last == first - 1) {
        s->spans[s->n - 1].last = last;
        return MT_OK;
    }
    if (s->n == s->cap) MT_TRY(mt_grow(&s->spans, &s->cap, s->n + 1, sizeof *s->spans, err));
    s->spans[s->n++] = (mt__cps){ first, last };
    return MT_OK;
}

mt_rc mt__set_add_all(mt__set *s, const mt__set *other, mt_err *err)
{
    for (size_t i = 0; i < other->n; i++) MT_TRY(mt__set_add(s, other->spans[i].first, other->spans[i].last, err));
    return MT_OK;
}

static int by_first(const void *a, const void *b)
{
    const mt__cps *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

void mt__set_sort(mt__set *s)
{
    size_t n = 0;
    if (s->n) qsort(s->spans, s->n, sizeof *s->spans, by_first);
    for (size_t i = 0; i < s->n; i++) {
        mt__cps next = s->spans[i], *last = n ? &s->spans[n - 1] : NULL;
        if (last && next.first <= last->last + 1) {
            if (next.last > last->last) last->last = next.last;
        } else
            s->spans[n++] = next;
    }
    s->n = n;
}

mt_rc mt__set_invert(mt__set *s, mt_err *err)
{
    mt__set out = { 0 };
    uint32_t from = 0;
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < s->n; i++) {
        if (s->spans[i].first > from) rc = mt__set_add(&out, from, s->spans[i].first - 1, err);
        from = s->spans[i].last + 1;
    }
    if (!rc && from <= LAST_CP) rc = mt__set_add(&out, from, LAST_CP, err);
    mt_free(s->spans);
    *s = out;
    return rc;
}

mt_rc mt__set_meet(mt__set *s, const mt__set *other, mt_err *err)
{
    mt__set out = { 0 };
    mt_rc rc = MT_OK;
    for (size_t i = 0, k = 0; !rc && i < s->n && k < other->n;) {
        mt__cps a = s->spans[i], b = other->spans[k];
        uint32_t first = a.first > b.first ? a.first : b.first, last = a.last < b.last ? a.last : b.last;
        if (first <= last) rc = mt__set_add(&out, first, last, err);
        if (a.last < b.last)
            i++;
        else
            k++;
    }
    mt_free(s->spans);
    *s = out;
    return rc;
}

void mt__set_seal(mt__set *s)
{
    mt__set_sort(s);
    memset(s->low, 0, sizeof s->low);
    for (size_t i = 0; i < s->n && s->spans[i].first < 256; i++)
        for (uint32_t c = s->spans[i].first; c <= s->spans[i].last && c < 256; c++) s->low[c >> 6] |= UINT64_C(1) << (c & 63);
}

/* ---- ignoring case ---- */

typedef struct folding {
    const mt__set *in;
    mt__set more;
    mt_rc rc;
    mt_err *err;
} folding;

static int fold_one(OnigCodePoint from, OnigCodePoint to[], int n, void *arg)
{
    folding *f = arg;
    if (n == 1 && !f->rc && mt__set_has(f->in, from)) f->rc = mt__set_add(&f->more, to[0], to[0], f->err);
    return 0;
}

mt_rc mt__set_fold(mt__set *s, mt_err *err)
{
    mt__set_seal(s);
    folding f = { .in = s, .err = err };
    ONIG_ENCODING_UTF8->apply_all_case_fold(0, fold_one, &f);
    mt_rc rc = f.rc ? f.rc : mt__set_add_all(s, &f.more, err);
    mt_free(f.more.spans);
    mt__set_sort(s);
    return rc;
}

/* ---- classes by name ---- */

/* The code points of some categories, or with some bits. */
static mt_rc add_props(mt__set *s, uint32_t categories, uint16_t bits, mt_err *err)
{
    for (size_t i = 0; i < mt__props_ranges_n; i++) {
        uint16_t props = mt__props_ranges[i].value;
        if (!mt_gc_in(props, categories) && !(props & bits)) continue;
        uint32_t end = i + 1 < mt__props_ranges_n ? mt__props_ranges[i + 1].first : LAST_CP + 1;
        MT_TRY(mt__set_add(s, mt__props_ranges[i].first, end - 1, err));
    }
    return MT_OK;
}

/* "L", "Lu" and so on, in any case: a set of MT_GC_*; 0: not a category. */
static uint32_t categories_named(const char *name, size_t n)
{
    static const char names[][3] = { "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
                                     "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co" };
    uint32_t set = 0;
    for (size_t i = 0; (n == 1 || n == 2) && i < MT_COUNT(names); i++)
        if (!strncasecmp(names[i], name, n)) set |= MT_GC_BIT(i);
    return set;
}

static mt_rc add_ctype(mt__set *s, OnigCtype type, mt_err *err)
{
    const OnigCodePoint *ranges;
    OnigCodePoint sb_out;
    if (ONIG_ENCODING_UTF8->get_ctype_code_range(type, &sb_out, &ranges)) return MT_OK;
    for (uint32_t i = 0; i < ranges[0]; i++) MT_TRY(mt__set_add(s, ranges[1 + 2 * i], ranges[2 + 2 * i], err));
    return MT_OK;
}

/* \w outside of brackets and \b: in Latin-1 Oniguruma has a table that also holds the superscripts and fractions. */
mt_rc mt__set_add_word(mt__set *s, mt_err *err)
{
    for (uint32_t c = 0; c < 256; c++)
        if (ONIG_ENCODING_UTF8->is_code_ctype(c, ONIGENC_CTYPE_WORD)) MT_TRY(mt__set_add(s, c, c, err));
    return add_ctype(s, ONIGENC_CTYPE_WORD, err);
}

mt_rc mt__set_add_class(mt__set *s, const char *name, size_t n, bool *known, mt_err *err)
{
    uint32_t categories = categories_named(name, n);
    OnigUChar text[64];
    *known = n > 0 && n < sizeof text;
    if (!*known) return MT_OK;
    if (categories) return add_props(s, categories, 0, err);
    if (n == 5 && !strncasecmp(name, "space", n)) return add_props(s, 0, MT_UC_SPACE, err);
    if (n == 5 && !strncasecmp(name, "digit", n)) return add_props(s, MT_GC_BIT(MT_GC_ND), 0, err);
    memcpy(text, name, n);
    int type = ONIG_ENCODING_UTF8->property_name_to_ctype(ONIG_ENCODING_UTF8, text, text + n);
    *known = type >= 0;
    return *known ? add_ctype(s, (OnigCtype)type, err) : MT_OK;
}
