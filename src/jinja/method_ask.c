/* method_ask.c - the methods of str that answer yes or no. */
#include "jinja/method.h"

#include "jinja/chars.h"

#define METHOD(name) mt_rc name(jrender *r, jval self, const jval *a, const jargs *args, jval *out)
#define UNUSED_ARGS  (void)a, (void)args

static mt_rc all_are(jrender *r, jval s, bool (*is)(uint32_t), bool empty, jval *out)
{
    bool all = s.n || empty;
    size_t i = 0;
    for (size_t len; all && i < s.n; i += len) all = is(mt__j_cp(s.s + i, s.n - i, &len));
    *out = mt__j_bool(all);
    return mt__j_walk(r, i);
}

static bool is_alnum(uint32_t cp) { return mt__j_is_alpha(cp) || mt__j_is_numeric(cp); }
static bool is_ascii(uint32_t cp) { return cp < 0x80; }

METHOD(mt__j_str_isdigit)
{
    UNUSED_ARGS;
    return all_are(r, self, mt__j_is_digit, false, out);
}
METHOD(mt__j_str_isdecimal)
{
    UNUSED_ARGS;
    return all_are(r, self, mt__j_is_decimal, false, out);
}
METHOD(mt__j_str_isnumeric)
{
    UNUSED_ARGS;
    return all_are(r, self, mt__j_is_numeric, false, out);
}
METHOD(mt__j_str_isalpha)
{
    UNUSED_ARGS;
    return all_are(r, self, mt__j_is_alpha, false, out);
}
METHOD(mt__j_str_isalnum)
{
    UNUSED_ARGS;
    return all_are(r, self, is_alnum, false, out);
}
METHOD(mt__j_str_isspace)
{
    UNUSED_ARGS;
    return all_are(r, self, mt__j_is_space, false, out);
}
METHOD(mt__j_str_isascii)
{
    UNUSED_ARGS;
    return all_are(r, self, is_ascii, true, out);
}
METHOD(mt__j_str_isprintable)
{
    UNUSED_ARGS;
    return all_are(r, self, mt__j_is_printable, true, out);
}

/* Cased characters exist and all are of the wanted case. */
static mt_rc is_cased(jrender *r, jval s, bool upper, jval *out)
{
    MT_TRY(mt__j_walk(r, s.n));
    bool any = false, all = true;
    for (size_t i = 0, len; i < s.n; i += len) {
        uint32_t cp = mt__j_cp(s.s + i, s.n - i, &len);
        any = any || (upper ? mt__j_is_upper(cp) : mt__j_is_lower(cp));
        all = all && !(upper ? mt__j_is_lower(cp) : mt__j_is_upper(cp)) && !mt__j_is_title(cp);
    }
    *out = mt__j_bool(any && all);
    return MT_OK;
}

METHOD(mt__j_str_isupper)
{
    UNUSED_ARGS;
    return is_cased(r, self, true, out);
}
METHOD(mt__j_str_islower)
{
    UNUSED_ARGS;
    return is_cased(r, self, false, out);
}

METHOD(mt__j_str_istitle)
{
    UNUSED_ARGS;
    MT_TRY(mt__j_walk(r, self.n));
    bool any = false, ok = true, inside = false;
    for (size_t i = 0, len; i < self.n; i += len) {
        uint32_t cp = mt__j_cp(self.s + i, self.n - i, &len);
        bool upper = mt__j_is_upper(cp) || mt__j_is_title(cp), lower = mt__j_is_lower(cp);
        ok = ok && !(upper && inside) && !(lower && !inside);
        any = any || upper || lower;
        inside = upper || lower;
    }
    *out = mt__j_bool(any && ok);
    return MT_OK;
}

METHOD(mt__j_str_isidentifier)
{
    UNUSED_ARGS;
    const size_t name = mt__j_identifier_prefix(self.s, self.n);
    *out = mt__j_bool(self.n && name == self.n);
    return mt__j_walk(r, name);
}
