/* format.c - "%5.1f" % x and "{:>5}".format(x). */
#include "jinja/render.h"

#include "jinja/chars.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_WIDTH = 1 << 16 };

/* What both mini-languages boil down to. */
typedef struct spec {
    char fill[8];
    size_t fill_n;
    char align; /* < > ^ =, 0 for the type's own */
    char sign;  /* + - or space */
    bool alternate, zero;
    char group; /* , or _ */
    int width, precision; /* precision -1: not given */
    char type;            /* 0: not given */
} spec;

static void put_fill(jrender *r, const spec *s, size_t n)
{
    for (size_t i = 0; i < n; i++) mt_str_add(r->out, s->fill, s->fill_n);
}

/* Pad `body` to the width; `lead` bytes of it (sign, 0x) stay in front of '=' padding. */
static mt_rc put_padded(jrender *r, const spec *s, const char *body, size_t n, size_t lead, char default_align)
{
    size_t have = mt__j_count(body, n), want = (size_t)s->width, pad = want > have ? want - have : 0;
    char align = s->align ? s->align : default_align;
    size_t left = align == '<' ? 0 : align == '^' ? pad / 2 : pad;
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

static mt_rc put_int(jrender *r, const spec *s, int64_t v)
{
    char digits[72], body[160];
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    size_t n = 0, k = 0;
    unsigned base = s->type == 'x' || s->type == 'X' ? 16 : s->type == 'o' ? 8 : s->type == 'b' ? 2 : 10;
    do digits[sizeof digits - ++n] = (s->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
    while (u /= base);
    if (v < 0 || s->sign == '+' || s->sign == ' ') body[k++] = v < 0 ? '-' : s->sign;
    if (s->alternate && base != 10) {
        body[k++] = '0';
        body[k++] = s->type;
    }
    size_t lead = k;
    k += group_digits(body + k, digits + sizeof digits - n, n, s->group, base == 10 ? 3 : 4);
    return put_padded(r, s, body, k, lead, s->zero ? '=' : '>');
}

static mt_rc put_double(jrender *r, const spec *s, double v)
{
    char text[512], body[768], fmt[16];
    char type = s->type ? s->type : 'g';
    if (type == '%') v *= 100;
    int precision = s->precision < 0 ? 6 : s->precision > 300 ? 300 : s->precision;
    if (!s->type && s->precision < 0) { /* as str() shows it */
        mt_str own = { 0 };
        mt__j_put_float(&own, fabs(v));
        snprintf(text, sizeof text, "%s", own.s ? own.s : "");
        mt_str_free(&own);
    } else {
        snprintf(fmt, sizeof fmt, "%%%s.*%c", s->alternate ? "#" : "", type == '%' ? 'f' : type == 'n' ? 'g' : type);
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
    return put_padded(r, s, body, k, lead, s->zero ? '=' : '>');
}

static mt_rc put_text(jrender *r, const spec *s, jval v, char default_align)
{
    size_t n = s->precision < 0 ? v.n : mt__j_offset(v.s, v.n, (size_t)s->precision);
    return put_padded(r, s, v.s, n, 0, default_align);
}

/* ---- "..." % values ---- */

typedef struct percent {
    const char *p, *end;
    jval values;
    const jlist *tuple; /* the values in order, or NULL: there is one */
    size_t used;
    bool by_name; /* the current one was named */
    jval named;
} percent;

static mt_rc next_value(jrender *r, percent *f, jval *out)
{
    if (f->by_name) return *out = f->named, MT_OK;
    if (f->tuple ? f->used >= f->tuple->n : f->used > 0) return mt__j_fail(r, "not enough arguments for format string");
    *out = f->tuple ? f->tuple->items[f->used] : f->values;
    f->used++;
    return MT_OK;
}

static mt_rc read_name(jrender *r, percent *f)
{
    f->by_name = false;
    if (f->p >= f->end || *f->p != '(') return MT_OK;
    const char *name = ++f->p;
    for (int open = 1; f->p < f->end; f->p++) {
        open += *f->p == '(' ? 1 : *f->p == ')' ? -1 : 0;
        if (!open) break;
    }
    if (f->p >= f->end) return mt__j_fail(r, "incomplete format key");
    if (f->values.type != JV_DICT) return mt__j_fail(r, "format requires a mapping");
    const jval *hit = mt__j_dict_text(f->values.dict, name, (size_t)(f->p - name));
    if (!hit) return mt__j_fail(r, "the format names '%.*s', which is not there", (int)(f->p - name), name);
    f->p++;
    f->by_name = true;
    f->named = *hit;
    f->used = 1;
    return MT_OK;
}

/* A number, or * for the next value. */
static mt_rc read_size(jrender *r, percent *f, int *out)
{
    if (f->p < f->end && *f->p == '*') {
        jval v;
        f->p++;
        MT_TRY(next_value(r, f, &v));
        if (!mt__j_is_integer(v)) return mt__j_fail(r, "* wants int");
        int64_t i = mt__j_as_int(v);
        if (i < -MAX_WIDTH || i > MAX_WIDTH) return mt__j_fail_rc(r, MT_ERANGE, "a width past %d", MAX_WIDTH);
        *out = (int)i;
        return MT_OK;
    }
    for (*out = 0; f->p < f->end && isdigit((unsigned char)*f->p); f->p++)
        if ((*out = *out * 10 + (*f->p - '0')) > MAX_WIDTH) return mt__j_fail_rc(r, MT_ERANGE, "a width past %d", MAX_WIDTH);
    return MT_OK;
}

static mt_rc read_percent_spec(jrender *r, percent *f, spec *s)
{
    *s = (spec){ .fill = " ", .fill_n = 1, .precision = -1 };
    MT_TRY(read_name(r, f));
    bool left = false;
    for (; f->p < f->end && strchr("-+ #0", *f->p) && *f->p; f->p++) {
        if (*f->p == '-') left = true;
        if (*f->p == '+' || (*f->p == ' ' && !s->sign)) s->sign = *f->p;
        if (*f->p == '#') s->alternate = true;
        if (*f->p == '0') s->zero = true;
    }
    MT_TRY(read_size(r, f, &s->width));
    if (s->width < 0) s->width = -s->width, left = true;
    if (f->p < f->end && *f->p == '.') {
        f->p++;
        MT_TRY(read_size(r, f, &s->precision));
        if (s->precision < 0) s->precision = 0;
    }
    while (f->p < f->end && (*f->p == 'l' || *f->p == 'h' || *f->p == 'L')) f->p++;
    if (f->p >= f->end) return mt__j_fail(r, "incomplete format");
    s->type = *f->p++;
    if (left) s->align = '<', s->zero = false;
    if (s->zero && s->type != 's' && s->type != 'r' && s->type != 'c') s->fill[0] = '0';
    else s->zero = false;
    return MT_OK;
}

static mt_rc put_number(jrender *r, spec *s, jval v)
{
    if (!mt__j_is_number(v)) {
        if (v.type == JV_UNDEFINED) return mt__j_use_undefined(r, v);
        return mt__j_fail(r, "%%%c format: a real number is required, not %s", s->type, mt__j_type_name(v));
    }
    if (strchr("eEfFgG", s->type)) return put_double(r, s, mt__j_as_float(v));
    if (strchr("xXo", s->type) && v.type == JV_FLOAT) return mt__j_fail(r, "%%%c format: an integer is required, not float", s->type);
    if (v.type == JV_FLOAT && !(fabs(v.f) < 9e18)) return mt__j_fail(r, "cannot convert this float to an integer");
    int precision = s->precision;
    spec plain = *s;
    if (precision > 0) { /* at least so many digits */
        char digits[64];
        int64_t i = v.type == JV_FLOAT ? (int64_t)v.f : mt__j_as_int(v);
        plain.alternate = false;
        plain.width = precision > 40 ? 40 : precision;
        if (i < 0) plain.width++;
        plain.zero = true, plain.fill[0] = '0', plain.align = 0;
        size_t mark = mt__j_mark(r);
        MT_TRY(put_int(r, &plain, i));
        size_t n = r->out->n - mark < sizeof digits ? r->out->n - mark : sizeof digits;
        memcpy(digits, r->out->s + mark, n);
        r->out->n = mark;
        s->precision = -1;
        s->fill[0] = ' ';
        return put_padded(r, s, digits, n, 0, '>');
    }
    if (s->type == 'i' || s->type == 'u') plain.type = 'd';
    return put_int(r, &plain, v.type == JV_FLOAT ? (int64_t)v.f : mt__j_as_int(v));
}

static mt_rc put_char(jrender *r, spec *s, jval v)
{
    s->precision = -1;
    if (v.type == JV_STR && mt__j_count(v.s, v.n) == 1) return put_text(r, s, v, '>');
    if (!mt__j_is_integer(v) || mt__j_as_int(v) < 0 || mt__j_as_int(v) > 0x10ffff) return mt__j_fail(r, "%%c requires int or char");
    mt_str one = { 0 };
    mt__j_put_cp(&one, (uint32_t)mt__j_as_int(v));
    mt_rc rc = put_text(r, s, mt__j_text(one.s ? one.s : "", one.n), '>');
    mt_str_free(&one);
    return rc;
}

static mt_rc put_percent(jrender *r, percent *f, bool safe)
{
    spec s;
    MT_TRY(read_percent_spec(r, f, &s));
    if (s.type == '%') return mt_str_putc(r->out, '%'), MT_OK;
    if (!strchr("srdiufFeEgGxXoca", s.type) || !s.type) return mt__j_fail(r, "unsupported format character '%c'", s.type);
    jval v, text;
    MT_TRY(next_value(r, f, &v));
    if (s.type == 'c') return put_char(r, &s, v);
    if (s.type != 's' && s.type != 'r' && s.type != 'a') return put_number(r, &s, v);
    size_t mark = mt__j_mark(r);
    MT_TRY(s.type != 's' ? mt__j_put_repr(r, v) : safe ? mt__j_put_escaped(r, v) : mt__j_put_str(r, v));
    if (s.width == 0 && s.precision < 0) return MT_OK;
    MT_TRY(mt__j_cut(r, mark, &text));
    return put_text(r, &s, text, '>');
}

mt_rc mt__j_percent(jrender *r, jval format, jval values, jval *out)
{
    percent f = { .p = format.s, .end = format.s + format.n, .values = values, .tuple = values.type == JV_TUPLE ? values.list : NULL };
    size_t mark = mt__j_mark(r);
    while (f.p < f.end) {
        const char *stop = memchr(f.p, '%', (size_t)(f.end - f.p));
        const char *end = stop ? stop : f.end;
        mt_str_add(r->out, f.p, (size_t)(end - f.p));
        f.p = end;
        if (!stop) break;
        f.p++;
        MT_TRY(put_percent(r, &f, format.safe));
    }
    bool all = f.tuple ? f.used >= f.tuple->n : f.used > 0 || values.type == JV_DICT || values.type == JV_LIST || values.type == JV_NAMESPACE;
    if (!all) return mt__j_fail(r, "not all arguments converted during string formatting");
    MT_TRY(mt__j_cut(r, mark, out));
    out->safe = format.safe;
    return MT_OK;
}

/* ---- "...".format(values) ---- */

typedef struct braces {
    const jargs *args;
    size_t next; /* position of the next {} */
    bool numbered, automatic;
} braces;

static mt_rc read_format_spec(jrender *r, jval text, spec *s)
{
    const char *p = text.s, *end = p + text.n;
    *s = (spec){ .fill = " ", .fill_n = 1, .precision = -1 };
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
            if ((s->precision = s->precision * 10 + (*p - '0')) > MAX_WIDTH) return mt__j_fail_rc(r, MT_ERANGE, "a precision past %d", MAX_WIDTH);
        if (p == first) return mt__j_fail(r, "Format specifier missing precision");
    }
    if (p < end) s->type = *p++;
    return p == end ? MT_OK : mt__j_fail(r, "Invalid format specifier");
}

static mt_rc put_by_spec(jrender *r, jval v, jval text)
{
    spec s;
    if (text.n == 0) return mt__j_put_str(r, v);
    MT_TRY(read_format_spec(r, text, &s));
    if (v.type == JV_STR || (v.type == JV_BOOL && !s.type)) {
        jval own = v;
        if (v.type == JV_BOOL) MT_TRY(mt__j_str(r, v, &own));
        if (v.type == JV_STR && ((s.type && s.type != 's') || s.align == '=' || s.sign || s.group || s.alternate)) return mt__j_fail(r, "this format does not fit a string");
        return put_text(r, &s, own, '<');
    }
    if (mt__j_is_integer(v) && s.precision < 0 && (!s.type || strchr("dxXobn", s.type))) return put_int(r, &s, mt__j_as_int(v));
    if (mt__j_is_integer(v) && s.type == 'c') return put_char(r, &s, v);
    if (mt__j_is_number(v) && (v.type == JV_FLOAT || s.type) && (!s.type || strchr("eEfFgGn%", s.type))) return put_double(r, &s, mt__j_as_float(v));
    return mt__j_fail(r, "this format does not fit %s", mt__j_type_name(v));
}

static mt_rc first_of_field(jrender *r, braces *b, const char *s, size_t n, jval *out)
{
    bool digits = n > 0;
    for (size_t i = 0; i < n; i++) digits = digits && isdigit((unsigned char)s[i]);
    if (n == 0 || digits) {
        if (n == 0 ? b->numbered : b->automatic) return mt__j_fail(r, "cannot mix {} and {0} in one format");
        *(n == 0 ? &b->automatic : &b->numbered) = true;
        size_t i = n == 0 ? b->next++ : n > 9 ? SIZE_MAX : (size_t)strtoul(s, NULL, 10);
        if (i >= b->args->n_pos) return mt__j_fail(r, "Replacement index out of range for positional args tuple");
        *out = b->args->pos[i];
        return MT_OK;
    }
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
        if (is_item && i < n && s[i] != '.' && s[i] != '[') return mt__j_fail(r, "Only '.' or '[' may follow ']' in format field specifier");
        MT_TRY(digits    ? mt__j_getitem(r, *out, mt__j_int((int64_t)strtoul(name.s, NULL, 10)), -1, out)
               : is_item ? mt__j_getitem(r, *out, name, -1, out)
                         : mt__j_getattr(r, *out, name, 0, out));
    }
    return MT_OK;
}

static mt_rc put_format(jrender *r, braces *b, const char *p, const char *end, int depth);

/* Between the braces: name!conversion:spec. */
static mt_rc put_field(jrender *r, braces *b, const char *p, const char *end, int depth)
{
    const char *stop = p;
    for (int brackets = 0; stop < end && (brackets || (*stop != '!' && *stop != ':')); stop++) brackets += *stop == '[' ? 1 : *stop == ']' ? -1 : 0;
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
                open += *close == '{' ? 1 : *close == '}' ? -1 : 0;
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
    MT_TRY(put_format(r, &b, format.s, format.s + format.n, 0));
    MT_TRY(mt__j_cut(r, mark, out));
    out->safe = format.safe;
    return MT_OK;
}
