/* format.c - numbers and text laid out by a specification, and "{:>5}".format(x). */
#include "jinja/format.h"

#include "jinja/chars.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void put_fill(jrender *r, const jspec *s, size_t n)
{
    for (size_t i = 0; i < n; i++) mt_str_add(r->out, s->fill, s->fill_n);
}

mt_rc mt__j_put_padded(jrender *r, const jspec *s, const char *body, size_t n, size_t lead, char default_align)
{
    size_t have = mt__j_count(body, n), want = (size_t)s->width, pad = want > have ? want - have : 0;
    char align = s->align ? s->align : default_align;
    MT_TRY(mt__j_walk(r, pad));
    size_t left = align == '^' ? pad / 2 : pad;
    if (align == '<') left = 0;
    if (align == '=') {
        mt_str_add(r->out, body, lead);
        put_fill(r, s, pad);
        mt_str_add(r->out, body + lead, n - lead);
    } else {
        put_fill(r, s, left);
        mt_str_add(r->out, body, n);
        put_fill(r, s, pad - left);
    }
    return mt__j_check_out(r);
}

/* Digits with a separator every three (or four, for other bases) from the right. */
static size_t group_digits(char *dst, const char *digits, size_t n, char sep, size_t every)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (sep && i && (n - i) % every == 0) dst[k++] = sep;
        dst[k++] = digits[i];
    }
    return k;
}

mt_rc mt__j_put_int(jrender *r, const jspec *s, int64_t v)
{
    char digits[72], body[160];
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    size_t n = 0, k = 0;
    const int named = mt__j_base_of(s->type == 'X' ? 'x' : s->type);
    unsigned base = named ? (unsigned)named : 10;
    do digits[sizeof digits - ++n] = (s->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
    while (u /= base);
    if (v < 0 || s->sign == '+' || s->sign == ' ') body[k++] = v < 0 ? '-' : s->sign;
    if (s->alternate && base != 10) {
        body[k++] = '0';
        body[k++] = s->type;
    }
    size_t lead = k;
    k += group_digits(body + k, digits + sizeof digits - n, n, s->group, base == 10 ? 3 : 4);
    return mt__j_put_padded(r, s, body, k, lead, s->zero ? '=' : '>');
}

mt_rc mt__j_put_double(jrender *r, const jspec *s, double v)
{
    char text[512], body[768], fmt[16];
    char type = s->type ? s->type : 'g';
    if (type == '%') v *= 100;
    int precision = s->precision < 0 ? 6 : (int)mt_min_i64(s->precision, 300);
    if (!s->type && s->precision < 0) { /* as str() shows it */
        mt_str own = { 0 };
        mt__j_put_float(&own, fabs(v));
        snprintf(text, sizeof text, "%s", own.s ? own.s : "");
        mt_str_free(&own);
    } else {
        char how = type == '%' ? 'f' : type;
        if (type == 'n') how = 'g';
        snprintf(fmt, sizeof fmt, "%%%s.*%c", s->alternate ? "#" : "", how);
        snprintf(text, sizeof text, fmt, precision, fabs(v));
        if (!s->type && isfinite(v) && !strpbrk(text, ".en")) strcat(text, ".0");
    }
    size_t k = 0, whole = strspn(text, "0123456789");
    if (signbit(v) && !isnan(v))
        body[k++] = '-';
    else if (s->sign == '+' || s->sign == ' ')
        body[k++] = s->sign;
    size_t lead = k;
    k += group_digits(body + k, text, whole, s->group, 3);
    k += (size_t)snprintf(body + k, sizeof body - k, "%s%s", text + whole, type == '%' ? "%" : "");
    return mt__j_put_padded(r, s, body, k, lead, s->zero ? '=' : '>');
}

mt_rc mt__j_put_text(jrender *r, const jspec *s, jval v, char default_align)
{
    size_t n = s->precision < 0 ? v.n : mt__j_offset(v.s, v.n, (size_t)s->precision);
    return mt__j_put_padded(r, s, v.s, n, 0, default_align);
}

mt_rc mt__j_put_char(jrender *r, jspec *s, jval v)
{
    s->precision = -1;
    if (v.type == JV_STR && mt__j_count(v.s, v.n) == 1) return mt__j_put_text(r, s, v, '>');
    if (!mt__j_is_integer(v) || mt__j_as_int(v) < 0 || mt__j_as_int(v) > 0x10ffff)
        return mt__j_fail(r, "%%c requires int or char");
    mt_str one = { 0 };
    mt__j_put_cp(&one, (uint32_t)mt__j_as_int(v));
    mt_rc rc = mt__j_put_text(r, s, mt__j_text(one.s ? one.s : "", one.n), '>');
    mt_str_free(&one);
    return rc;
}

/* ---- "...".format(values) ---- */

typedef struct braces {
    const jargs *args;
    size_t next; /* position of the next {} */
    bool numbered, automatic;
} braces;

static mt_rc read_format_spec(jrender *r, jval text, jspec *s)
{
    const char *p = text.s, *end = p + text.n;
    *s = (jspec){ .fill = " ", .fill_n = 1, .precision = -1 };
    size_t len = 0;
    if (p < end) mt__j_cp(p, text.n, &len);
    if (p + len < end && strchr("<>^=", p[len]) && p[len]) {
        memcpy(s->fill, p, len);
        s->fill_n = len;
        s->align = p[len];
        p += len + 1;
    } else if (p < end && strchr("<>^=", *p) && *p)
        s->align = *p++;
    if (p < end && (*p == '+' || *p == '-' || *p == ' ')) s->sign = *p++;
    if (p < end && *p == '#') s->alternate = true, p++;
    if (p < end && *p == '0') {
        if (!s->align) s->zero = true, s->fill[0] = '0', s->fill_n = 1;
        p++;
    }
    for (; p < end && isdigit((unsigned char)*p); p++)
        if ((s->width = s->width * 10 + (*p - '0')) > MAX_WIDTH) return mt__j_fail_rc(r, MT_ERANGE, "a width past %d", MAX_WIDTH);
    if (p < end && (*p == ',' || *p == '_')) s->group = *p++;
    if (p < end && *p == '.') {
        const char *first = ++p;
        for (s->precision = 0; p < end && isdigit((unsigned char)*p); p++)
            if ((s->precision = s->precision * 10 + (*p - '0')) > MAX_WIDTH)
                return mt__j_fail_rc(r, MT_ERANGE, "a precision past %d", MAX_WIDTH);
        if (p == first) return mt__j_fail(r, "Format specifier missing precision");
    }
    if (p < end) s->type = *p++;
    return p == end ? MT_OK : mt__j_fail(r, "Invalid format specifier");
}

static mt_rc put_by_spec(jrender *r, jval v, jval text)
{
    jspec s;
    if (text.n == 0) return mt__j_put_str(r, v);
    MT_TRY(read_format_spec(r, text, &s));
    if (v.type == JV_STR || (v.type == JV_BOOL && !s.type)) {
        jval own = v;
        if (v.type == JV_BOOL) MT_TRY(mt__j_str(r, v, &own));
        if (v.type == JV_STR && ((s.type && s.type != 's') || s.align == '=' || s.sign || s.group || s.alternate))
            return mt__j_fail(r, "this format does not fit a string");
        return mt__j_put_text(r, &s, own, '<');
    }
    if (mt__j_is_integer(v) && s.precision < 0 && (!s.type || strchr("dxXobn", s.type)))
        return mt__j_put_int(r, &s, mt__j_as_int(v));
    if (mt__j_is_integer(v) && s.type == 'c') return mt__j_put_char(r, &s, v);
    if (mt__j_is_number(v) && (v.type == JV_FLOAT || s.type) && (!s.type || strchr("eEfFgGn%", s.type)))
        return mt__j_put_double(r, &s, mt__j_as_float(v));
    return mt__j_fail(r, "this format does not fit %s", mt__j_type_name(v));
}

static mt_rc first_of_field(jrender *r, braces *b, const char *s, size_t n, jval *out)
{
    bool digits = n > 0;
    for (size_t i = 0; i < n; i++) digits = digits && isdigit((unsigned char)s[i]);
    if (n == 0 || digits) {
        if (n == 0 ? b->numbered : b->automatic) return mt__j_fail(r, "cannot mix {} and {0} in one format");
        *(n == 0 ? &b->automatic : &b->numbered) = true;
        size_t i = n > 9 ? SIZE_MAX : (size_t)strtoul(s, NULL, 10);
        if (n == 0) i = b->next++;
        if (i >= b->args->n_pos) return mt__j_fail(r, "Replacement index out of range for positional args tuple");
        *out = b->args->pos[i];
        return MT_OK;
    }
    MT_TRY(mt__j_look(r, b->args->n_kw));
    for (size_t i = 0; i < b->args->n_kw; i++)
        if (mt__j_same_text(b->args->kw_names[i], s, n)) return *out = b->args->kw[i], MT_OK;
    return mt__j_fail(r, "the format names '%.*s', which was not given", (int)n, s);
}

static mt_rc field_value(jrender *r, braces *b, const char *s, size_t n, jval *out)
{
    size_t i = 0;
    while (i < n && s[i] != '.' && s[i] != '[') i++;
    MT_TRY(first_of_field(r, b, s, i, out));
    while (i < n) {
        bool is_item = s[i] == '[';
        size_t from = ++i;
        while (i < n && (is_item ? s[i] != ']' : s[i] != '.' && s[i] != '[')) i++;
        jval name = mt__j_text(s + from, i - from);
        if (!name.n || (is_item && i == n)) return mt__j_fail(r, "a format field that cannot be read");
        bool digits = is_item && name.n < 10;
        for (uint32_t k = 0; k < name.n; k++) digits = digits && isdigit((unsigned char)name.s[k]);
        if (is_item) i++;
        if (is_item && i < n && s[i] != '.' && s[i] != '[')
            return mt__j_fail(r, "Only '.' or '[' may follow ']' in format field specifier");
        if (digits) name = mt__j_int((int64_t)strtoul(name.s, NULL, 10));
        MT_TRY(is_item ? mt__j_getitem(r, *out, name, -1, out) : mt__j_getattr(r, *out, name, 0, out));
    }
    return MT_OK;
}

static mt_rc put_format(jrender *r, braces *b, const char *p, const char *end, int depth);

/* Between the braces: name!conversion:spec. */
static mt_rc put_field(jrender *r, braces *b, const char *p, const char *end, int depth)
{
    const char *stop = p;
    for (int brackets = 0; stop < end && (brackets || (*stop != '!' && *stop != ':')); stop++)
        brackets += (*stop == '[') - (*stop == ']');
    jval v, text = mt__j_text("", 0);
    MT_TRY(field_value(r, b, p, (size_t)(stop - p), &v));
    if (stop < end && *stop == '!') {
        if (stop + 1 >= end || !strchr("rsa", stop[1])) return mt__j_fail(r, "a conversion that is not r, s or a");
        size_t mark = mt__j_mark(r);
        MT_TRY(stop[1] == 's' ? mt__j_put_str(r, v) : mt__j_put_repr(r, v));
        MT_TRY(mt__j_cut(r, mark, &v));
        stop += 2;
        if (stop < end && *stop != ':') return mt__j_fail(r, "expected ':' after conversion specifier");
    }
    if (stop < end) {
        size_t mark = mt__j_mark(r);
        MT_TRY(put_format(r, b, stop + 1, end, depth + 1));
        MT_TRY(mt__j_cut(r, mark, &text));
    }
    return put_by_spec(r, v, text);
}

static mt_rc put_format(jrender *r, braces *b, const char *p, const char *end, int depth)
{
    if (depth > 2) return mt__j_fail(r, "Max string recursion exceeded");
    while (p < end) {
        if ((*p == '{' || *p == '}') && p + 1 < end && p[1] == *p && depth == 0) {
            mt_str_putc(r->out, *p);
            p += 2;
        } else if (*p == '{') {
            const char *close = p + 1;
            for (int open = 1; close < end; close++) {
                open += (*close == '{') - (*close == '}');
                if (!open) break;
            }
            if (close >= end) return mt__j_fail(r, "expected '}' before end of string");
            MT_TRY(put_field(r, b, p + 1, close, depth));
            p = close + 1;
        } else if (*p == '}') {
            return mt__j_fail(r, "Single '}' encountered in format string");
        } else
            mt_str_putc(r->out, *p++);
    }
    return mt__j_check_out(r);
}

mt_rc mt__j_str_format(jrender *r, jval format, const jargs *args, jval *out)
{
    braces b = { .args = args };
    size_t mark = mt__j_mark(r);
    MT_TRY(mt__j_walk(r, format.n));
    MT_TRY(put_format(r, &b, format.s, format.s + format.n, 0));
    MT_TRY(mt__j_cut(r, mark, out));
    out->safe = format.safe;
    return MT_OK;
}
