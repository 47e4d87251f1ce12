/* percent.c - "%5.1f" % values. */
#include "jinja/format.h"

#include <ctype.h>
#include <math.h>

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
        open += (*f->p == '(') - (*f->p == ')');
        if (!open) break;
    }
    if (f->p >= f->end) return mt__j_fail(r, "incomplete format key");
    if (f->values.type != JV_DICT) return mt__j_fail(r, "format requires a mapping");
    const jval *hit;
    MT_TRY(mt__j_dict_text(r, f->values.dict, name, (size_t)(f->p - name), &hit));
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

static mt_rc read_percent_spec(jrender *r, percent *f, jspec *s)
{
    *s = (jspec){ .fill = " ", .fill_n = 1, .precision = -1 };
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
    if (s->zero && s->type != 's' && s->type != 'r' && s->type != 'c')
        s->fill[0] = '0';
    else
        s->zero = false;
    return MT_OK;
}

static mt_rc put_number(jrender *r, jspec *s, jval v)
{
    if (!mt__j_is_number(v)) {
        if (v.type == JV_UNDEFINED) return mt__j_use_undefined(r, v);
        return mt__j_fail(r, "%%%c format: a real number is required, not %s", s->type, mt__j_type_name(v));
    }
    if (strchr("eEfFgG", s->type)) return mt__j_put_double(r, s, mt__j_as_float(v));
    if (strchr("xXo", s->type) && v.type == JV_FLOAT)
        return mt__j_fail(r, "%%%c format: an integer is required, not float", s->type);
    if (v.type == JV_FLOAT && !(fabs(v.f) < 9e18)) return mt__j_fail(r, "cannot convert this float to an integer");
    int precision = s->precision;
    jspec plain = *s;
    if (precision > 0) { /* at least `precision` digits */
        char digits[64];
        int64_t i = v.type == JV_FLOAT ? (int64_t)v.f : mt__j_as_int(v);
        plain.alternate = false;
        plain.width = precision > 40 ? 40 : precision;
        if (i < 0) plain.width++;
        plain.zero = true, plain.fill[0] = '0', plain.align = 0;
        size_t mark = mt__j_mark(r);
        MT_TRY(mt__j_put_int(r, &plain, i));
        size_t n = r->out->n - mark < sizeof digits ? r->out->n - mark : sizeof digits;
        memcpy(digits, r->out->s + mark, n);
        r->out->n = mark;
        s->precision = -1;
        s->fill[0] = ' ';
        return mt__j_put_padded(r, s, digits, n, 0, '>');
    }
    if (s->type == 'i' || s->type == 'u') plain.type = 'd';
    return mt__j_put_int(r, &plain, v.type == JV_FLOAT ? (int64_t)v.f : mt__j_as_int(v));
}

static mt_rc put_percent(jrender *r, percent *f, bool safe)
{
    jspec s;
    MT_TRY(read_percent_spec(r, f, &s));
    if (s.type == '%') return mt_str_putc(r->out, '%'), MT_OK;
    if (!strchr("srdiufFeEgGxXoca", s.type) || !s.type) return mt__j_fail(r, "unsupported format character '%c'", s.type);
    jval v, text;
    MT_TRY(next_value(r, f, &v));
    if (s.type == 'c') return mt__j_put_char(r, &s, v);
    if (s.type != 's' && s.type != 'r' && s.type != 'a') return put_number(r, &s, v);
    size_t mark = mt__j_mark(r);
    if (s.type != 's')
        MT_TRY(mt__j_put_repr(r, v));
    else
        MT_TRY(safe ? mt__j_put_escaped(r, v) : mt__j_put_str(r, v));
    if (s.width == 0 && s.precision < 0) return MT_OK;
    MT_TRY(mt__j_cut(r, mark, &text));
    return mt__j_put_text(r, &s, text, '>');
}

mt_rc mt__j_percent(jrender *r, jval format, jval values, jval *out)
{
    percent f = {
        .p = format.s, .end = format.s + format.n, .values = values, .tuple = values.type == JV_TUPLE ? values.list : NULL
    };
    size_t mark = mt__j_mark(r);
    MT_TRY(mt__j_walk(r, format.n));
    while (f.p < f.end) {
        const char *stop = memchr(f.p, '%', (size_t)(f.end - f.p));
        const char *end = stop ? stop : f.end;
        mt_str_add(r->out, f.p, (size_t)(end - f.p));
        f.p = end;
        if (!stop) break;
        f.p++;
        MT_TRY(put_percent(r, &f, format.safe));
    }
    /* Python lets the format ignore whatever has items, which includes undefined values. */
    bool ignorable = values.type == JV_DICT || values.type == JV_LIST || values.type == JV_RANGE || values.type == JV_UNDEFINED;
    bool all = f.tuple ? f.used >= f.tuple->n : f.used > 0 || ignorable;
    if (!all) return mt__j_fail(r, "not all arguments converted during string formatting");
    MT_TRY(mt__j_cut(r, mark, out));
    out->safe = format.safe;
    return MT_OK;
}
