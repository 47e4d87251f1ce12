/* method_str.c - the methods of str.  Positions are counted in code points; slices of a string share its bytes. */
#include "jinja/method.h"

#include "jinja/chars.h"

#define METHOD(name) mt_rc name(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
#define UNUSED_ARGS  (void)a, (void)args

jval mt__j_part(jval s, size_t from, size_t to)
{
    jval p = mt__j_text(s.s + from, to - from);
    p.safe = s.safe;
    return p;
}

mt_rc mt__j_want_str(jrender *r, jval v, const char *what)
{
    if (v.type == JV_STR) return MT_OK;
    if (v.type == JV_UNDEFINED) return mt__j_fail(r, "%s must be str, not Undefined", what);
    return mt__j_fail(r, "%s must be str, not %s", what, mt__j_type_name(v));
}

mt_rc mt__j_want_int(jrender *r, jval v, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (!mt__j_given(v) || v.type == JV_NONE) return MT_OK;
    if (!mt__j_is_integer(v)) return mt__j_fail(r, "'%s' object cannot be interpreted as an integer", mt__j_type_name(v));
    *out = mt__j_as_int(v);
    return MT_OK;
}

/* ---- stripping ---- */

/* Characters to strip.  ASCII has a table; other characters are searched for, and the search is counted. */
typedef struct char_set {
    jval chars;
    bool ascii[128];
} char_set;

static mt_rc has_char(jrender *r, const char_set *set, const char *s, size_t n, bool *out)
{
    if (n == 1) return *out = set->ascii[(unsigned char)*s & 127], mt__j_steps(r, 1);
    *out = mt__j_find(set->chars.s, set->chars.n, s, n) != NULL;
    return mt__j_touch(r, JINJA_BYTES_PER_STEP + set->chars.n);
}

static mt_rc strip_chars(jrender *r, jval s, jval chars, bool left, bool right, size_t *from, size_t *to)
{
    size_t len;
    char_set set = { .chars = chars };
    MT_TRY(mt__j_touch(r, chars.n));
    for (size_t i = 0; i < chars.n; i++)
        if (!(chars.s[i] & 0x80)) set.ascii[(unsigned char)chars.s[i]] = true;
    for (bool hit = true; left && *from < *to && hit; *from += hit ? len : 0) {
        mt__j_cp(s.s + *from, *to - *from, &len);
        MT_TRY(has_char(r, &set, s.s + *from, len, &hit));
    }
    for (bool hit = true; right && *to > *from && hit;) {
        size_t i = *to - 1;
        while (i > *from && ((unsigned char)s.s[i] & 0xc0) == 0x80) i--;
        MT_TRY(has_char(r, &set, s.s + i, *to - i, &hit));
        if (hit) *to = i;
    }
    return MT_OK;
}

mt_rc mt__j_strip(jrender *r, jval s, jval chars, bool left, bool right, jval *out)
{
    size_t from = 0, to = s.n;
    if (mt__j_given(chars) && chars.type != JV_NONE) {
        MT_TRY(mt__j_want_str(r, chars, "strip arg"));
        MT_TRY(strip_chars(r, s, chars, left, right, &from, &to));
    } else {
        if (left) from = mt__j_space_prefix(s.s, s.n);
        if (right) to = from + mt__j_rstrip(s.s + from, to - from);
        MT_TRY(mt__j_walk(r, from + (s.n - to)));
    }
    *out = mt__j_part(s, from, to);
    return MT_OK;
}

METHOD(mt__j_str_strip) { return (void)args, mt__j_strip(r, self, a[0], true, true, out); }
METHOD(mt__j_str_lstrip) { return (void)args, mt__j_strip(r, self, a[0], true, false, out); }
METHOD(mt__j_str_rstrip) { return (void)args, mt__j_strip(r, self, a[0], false, true, out); }

METHOD(mt__j_str_removeprefix)
{
    (void)args;
    MT_TRY(mt__j_want_str(r, a[0], "prefix"));
    bool hit = self.n >= a[0].n && memcmp(self.s, a[0].s, a[0].n) == 0;
    *out = hit ? mt__j_part(self, a[0].n, self.n) : self;
    return MT_OK;
}

METHOD(mt__j_str_removesuffix)
{
    (void)args;
    MT_TRY(mt__j_want_str(r, a[0], "suffix"));
    bool hit = self.n >= a[0].n && memcmp(self.s + self.n - a[0].n, a[0].s, a[0].n) == 0;
    *out = hit ? mt__j_part(self, 0, self.n - a[0].n) : self;
    return MT_OK;
}

/* ---- searching ---- */

/* The bytes [from, to) that start and end name, as slices do; false if start is past the end. */
static mt_rc window(jrender *r, jval s, jval start, jval end, size_t *from, size_t *to, bool *ok)
{
    int64_t lo, hi, n = (int64_t)mt__j_count(s.s, s.n);
    MT_TRY(mt__j_want_int(r, start, 0, &lo));
    MT_TRY(mt__j_want_int(r, end, n, &hi));
    if (lo < 0) lo = lo < -n ? 0 : lo + n;
    if (hi < 0) hi = hi < -n ? 0 : hi + n;
    if (hi > n) hi = n;
    *ok = lo <= hi;
    *from = *ok ? mt__j_offset(s.s, s.n, (size_t)lo) : 0;
    *to = *ok ? mt__j_offset(s.s, s.n, (size_t)hi) : 0;
    return mt__j_touch(r, s.n + *from + *to);
}

/* Count a search for m bytes in n.  A forward search is one walk.  A backward search, which is rare, compares at every place. */
mt_rc mt__j_search(jrender *r, size_t n, size_t m, bool backwards)
{
    MT_TRY(mt__j_touch(r, n + m));
    return backwards ? mt__j_steps(r, (n / 64) * (m / 64)) : MT_OK;
}

static mt_rc method_str_find(jrender *r, jval s, const jval *a, bool backwards, int64_t *at)
{
    size_t from, to;
    bool ok;
    MT_TRY(mt__j_want_str(r, a[0], "the text to look for"));
    MT_TRY(window(r, s, a[1], a[2], &from, &to, &ok));
    MT_TRY(mt__j_search(r, s.n, a[0].n, backwards));
    const char *hit = NULL;
    if (ok && backwards)
        hit = mt__j_rfind(s.s + from, to - from, a[0].s, a[0].n);
    else if (ok)
        hit = mt__j_find(s.s + from, to - from, a[0].s, a[0].n);
    *at = hit ? (int64_t)mt__j_count(s.s, (size_t)(hit - s.s)) : -1;
    return mt__j_touch(r, hit ? (size_t)(hit - s.s) : 0);
}

static mt_rc find_method(jrender *r, jval s, const jval *a, bool backwards, bool must, jval *out)
{
    int64_t at;
    MT_TRY(method_str_find(r, s, a, backwards, &at));
    if (must && at < 0) return mt__j_fail(r, "substring not found");
    *out = mt__j_int(at);
    return MT_OK;
}

METHOD(mt__j_str_find) { return (void)args, find_method(r, self, a, false, false, out); }
METHOD(mt__j_str_rfind) { return (void)args, find_method(r, self, a, true, false, out); }
METHOD(mt__j_str_index) { return (void)args, find_method(r, self, a, false, true, out); }
METHOD(mt__j_str_rindex) { return (void)args, find_method(r, self, a, true, true, out); }

METHOD(mt__j_str_count)
{
    (void)args;
    size_t from, to;
    bool ok;
    int64_t n = 0;
    MT_TRY(mt__j_want_str(r, a[0], "the text to count"));
    MT_TRY(window(r, self, a[1], a[2], &from, &to, &ok));
    MT_TRY(mt__j_search(r, self.n, a[0].n, false));
    if (ok && a[0].n == 0) n = (int64_t)mt__j_count(self.s + from, to - from) + 1;
    for (const char *hit; ok && a[0].n && (hit = mt__j_find(self.s + from, to - from, a[0].s, a[0].n)); n++)
        from = (size_t)(hit - self.s) + a[0].n;
    *out = mt__j_int(n);
    return mt__j_look(r, 2 * (size_t)n);
}

static bool affix(const char *s, size_t n, jval what, bool at_end)
{
    return what.n <= n && memcmp(at_end ? s + n - what.n : s, what.s, what.n) == 0;
}

static mt_rc has_affix(jrender *r, jval s, const jval *a, bool at_end, jval *out)
{
    size_t from, to;
    bool ok, hit = false;
    MT_TRY(window(r, s, a[1], a[2], &from, &to, &ok));
    size_t n = a[0].type == JV_TUPLE ? a[0].list->n : 1;
    for (size_t i = 0; i < n; i++) {
        jval what = a[0].type == JV_TUPLE ? a[0].list->items[i] : a[0];
        MT_TRY(mt__j_want_str(r, what, at_end ? "endswith first arg" : "startswith first arg"));
        MT_TRY(mt__j_touch(r, JINJA_BYTES_PER_STEP + what.n));
        hit = hit || (ok && affix(s.s + from, to - from, what, at_end));
    }
    *out = mt__j_bool(hit);
    return MT_OK;
}

METHOD(mt__j_str_startswith) { return (void)args, has_affix(r, self, a, false, out); }
METHOD(mt__j_str_endswith) { return (void)args, has_affix(r, self, a, true, out); }

/* ---- changing ---- */

static mt_rc cut_as(jrender *r, size_t mark, jval like, jval *out)
{
    MT_TRY(mt__j_check_out(r));
    MT_TRY(mt__j_cut(r, mark, out));
    out->safe = like.safe;
    return MT_OK;
}

mt_rc mt__j_replace(jrender *r, jval s, jval from, jval to, int64_t count, jval *out)
{
    size_t mark = mt__j_mark(r), at = 0, len;
    MT_TRY(mt__j_search(r, s.n, from.n, false));
    if (from.n && !mt__j_find(s.s, s.n, from.s, from.n)) return *out = s, MT_OK;
    if (count < 0) count = INT64_MAX; /* all of them */
    for (; count != 0; count--) {
        const char *hit = mt__j_find(s.s + at, s.n - at, from.s, from.n);
        if (!hit) break;
        MT_TRY(mt__j_steps(r, 1));
        mt_str_add(r->out, s.s + at, (size_t)(hit - s.s) - at);
        mt_str_add(r->out, to.s, to.n);
        MT_TRY(mt__j_check_out(r));
        at = (size_t)(hit - s.s) + from.n;
        if (from.n) continue;
        if (at >= s.n) break; /* an empty pattern matches before every character and at the end */
        mt__j_cp(s.s + at, s.n - at, &len);
        mt_str_add(r->out, s.s + at, len);
        at += len;
    }
    mt_str_add(r->out, s.s + at, s.n - at);
    return cut_as(r, mark, s, out);
}

METHOD(mt__j_str_replace)
{
    (void)args;
    int64_t count;
    MT_TRY(mt__j_want_str(r, a[0], "replace() argument 1"));
    MT_TRY(mt__j_want_str(r, a[1], "replace() argument 2"));
    MT_TRY(mt__j_want_int(r, a[2], -1, &count));
    return mt__j_replace(r, self, a[0], a[1], count, out);
}

mt_rc mt__j_change_case(jrender *r, jval s, bool upper, jval *out)
{
    size_t mark = mt__j_mark(r);
    MT_TRY(mt__j_walk(r, s.n));
    if (upper)
        mt__j_put_upper(r->out, s.s, s.n);
    else
        mt__j_put_lower(r->out, s.s, s.n);
    return cut_as(r, mark, s, out);
}

METHOD(mt__j_str_upper)
{
    UNUSED_ARGS;
    return mt__j_change_case(r, self, true, out);
}
METHOD(mt__j_str_lower)
{
    UNUSED_ARGS;
    return mt__j_change_case(r, self, false, out);
}

mt_rc mt__j_capitalize(jrender *r, jval s, jval *out)
{
    size_t mark = mt__j_mark(r), len = 0;
    MT_TRY(mt__j_walk(r, s.n));
    if (s.n) mt__j_put_case(r->out, mt__j_cp(s.s, s.n, &len), CASE_TITLE);
    for (size_t i = len; i < s.n;) i += mt__j_put_lower_at(r->out, s.s, s.n, i);
    return cut_as(r, mark, s, out);
}

METHOD(mt__j_str_capitalize)
{
    UNUSED_ARGS;
    return mt__j_capitalize(r, self, out);
}

METHOD(mt__j_str_title)
{
    UNUSED_ARGS;
    size_t mark = mt__j_mark(r);
    bool inside = false;
    MT_TRY(mt__j_walk(r, self.n));
    for (size_t i = 0, len; i < self.n; i += len) {
        uint32_t cp = mt__j_cp(self.s + i, self.n - i, &len);
        bool cased = mt__j_is_upper(cp) || mt__j_is_lower(cp) || mt__j_is_title(cp);
        if (cased && inside)
            mt__j_put_lower_at(r->out, self.s, self.n, i);
        else if (cased)
            mt__j_put_case(r->out, cp, CASE_TITLE);
        else
            mt_str_add(r->out, self.s + i, len);
        inside = cased;
    }
    return cut_as(r, mark, self, out);
}

METHOD(mt__j_str_swapcase)
{
    UNUSED_ARGS;
    size_t mark = mt__j_mark(r);
    MT_TRY(mt__j_walk(r, self.n));
    for (size_t i = 0, len; i < self.n; i += len) {
        uint32_t cp = mt__j_cp(self.s + i, self.n - i, &len);
        if (mt__j_is_upper(cp))
            mt__j_put_lower_at(r->out, self.s, self.n, i);
        else if (mt__j_is_lower(cp))
            mt__j_put_case(r->out, cp, CASE_UPPER);
        else
            mt_str_add(r->out, self.s + i, len);
    }
    return cut_as(r, mark, self, out);
}

mt_rc mt__j_pad(jrender *r, jval s, int64_t width, jval fill, char align, jval *out)
{
    int64_t have = (int64_t)mt__j_count(s.s, s.n);
    if (mt__j_given(fill) && (fill.type != JV_STR || mt__j_count(fill.s, fill.n) != 1))
        return mt__j_fail(r, "The fill character must be exactly one character long");
    if (width <= have) return *out = s, MT_OK;
    int64_t pad = width - have;
    if ((uint64_t)pad > r->a->max_bytes) return mt__j_too_much(r);
    MT_TRY(mt__j_steps(r, (size_t)pad));
    if (!mt__j_given(fill)) fill = mt__j_literal(" ");
    int64_t left = pad / 2 + (pad & width & 1);
    if (align == '<') left = 0;
    if (align == '>') left = pad;
    size_t mark = mt__j_mark(r);
    for (int64_t i = 0; i < left; i++) mt_str_add(r->out, fill.s, fill.n);
    mt_str_add(r->out, s.s, s.n);
    for (int64_t i = left; i < pad; i++) mt_str_add(r->out, fill.s, fill.n);
    return cut_as(r, mark, s, out);
}

static mt_rc pad_method(jrender *r, jval s, const jval *a, char align, jval *out)
{
    int64_t width;
    if (!mt__j_is_integer(a[0])) return mt__j_fail(r, "'%s' object cannot be interpreted as an integer", mt__j_type_name(a[0]));
    MT_TRY(mt__j_want_int(r, a[0], 0, &width));
    return mt__j_pad(r, s, width, a[1], align, out);
}

METHOD(mt__j_str_center) { return (void)args, pad_method(r, self, a, '^', out); }
METHOD(mt__j_str_ljust) { return (void)args, pad_method(r, self, a, '<', out); }
METHOD(mt__j_str_rjust) { return (void)args, pad_method(r, self, a, '>', out); }

METHOD(mt__j_str_zfill)
{
    (void)args;
    if (!mt__j_is_integer(a[0])) return mt__j_fail(r, "'%s' object cannot be interpreted as an integer", mt__j_type_name(a[0]));
    bool sign = self.n && (self.s[0] == '-' || self.s[0] == '+');
    jval digits = mt__j_part(self, sign, self.n), padded;
    MT_TRY(mt__j_pad(r, digits, mt_max_i64(mt__j_as_int(a[0]), 0) - sign, mt__j_literal("0"), '>', &padded));
    if (!sign) return *out = padded, MT_OK;
    return mt__j_join(r, mt__j_part(self, 0, 1), padded, out);
}

METHOD(mt__j_str_expandtabs)
{
    (void)args;
    int64_t size, column = 0;
    MT_TRY(mt__j_want_int(r, a[0], 8, &size));
    if (size > 1024) return mt__j_fail_rc(r, MT_ERANGE, "tabs wider than 1024");
    size_t mark = mt__j_mark(r);
    MT_TRY(mt__j_walk(r, self.n));
    for (size_t i = 0, len; i < self.n; i += len) {
        uint32_t cp = mt__j_cp(self.s + i, self.n - i, &len);
        if (cp == '\t') {
            int64_t blanks = size > 0 ? size - column % size : 0;
            MT_TRY(mt__j_walk(r, (size_t)blanks));
            for (int64_t k = 0; k < blanks; k++) mt_str_putc(r->out, ' ');
            column += blanks;
            MT_TRY(mt__j_check_out(r));
            continue;
        }
        mt_str_add(r->out, self.s + i, len);
        column = cp == '\n' || cp == '\r' ? 0 : column + 1;
    }
    return cut_as(r, mark, self, out);
}

mt_rc mt__j_join_values(jrender *r, jval sep, jval values, bool strict, jval *out)
{
    jiter it;
    jval item;
    size_t mark = mt__j_mark(r);
    MT_TRY(mt__j_iterate(r, values, &it));
    for (size_t i = 0;; i++) {
        MT_TRY(mt__j_next(r, &it, &item));
        if (!mt__j_given(item)) break;
        MT_TRY(mt__j_steps(r, 1));
        if (strict && item.type != JV_STR)
            return mt__j_fail(r, "sequence item %zu: expected str instance, %s found", i, mt__j_type_name(item));
        if (i) mt_str_add(r->out, sep.s, sep.n);
        MT_TRY(mt__j_put_str(r, item));
    }
    return cut_as(r, mark, sep, out);
}

METHOD(mt__j_str_join) { return (void)args, mt__j_join_values(r, self, a[0], true, out); }
METHOD(mt__j_str_format_method) { return (void)a, mt__j_str_format(r, self, args, out); }

METHOD(mt__j_str_format_map)
{
    (void)args;
    if (a[0].type != JV_DICT) return mt__j_fail(r, "format_map() wants a mapping");
    size_t n = a[0].dict->n, k = 0;
    jval list, *names, other, *values;
    MT_TRY(mt__j_new_list(r, JV_LIST, n, &list, &names));
    MT_TRY(mt__j_new_list(r, JV_LIST, n, &other, &values));
    for (size_t i = 0; i < n; i++)
        if (a[0].dict->entries[i].key.type == JV_STR)
            names[k] = a[0].dict->entries[i].key, values[k++] = a[0].dict->entries[i].value;
    return mt__j_str_format(r, self, &(jargs){ .kw_names = names, .kw = values, .n_kw = k }, out);
}
