/* filter_value.c - filters that turn one value into another: numbers, defaults, attributes. */
#include "jinja/filter.h"

#include "jinja/chars.h"
#include "jinja/method.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FILTER(name) mt_rc name(jrender *r, jval v, const jval *a, const jargs *args, jval *out)
#define UNUSED_ARGS  (void)a, (void)args

FILTER(mt__j_f_default)
{
    (void)args;
    bool by_truth = false, truth = true;
    if (mt__j_given(a[1])) MT_TRY(mt__j_truth(r, a[1], &by_truth));
    if (by_truth) MT_TRY(mt__j_truth(r, v, &truth));
    *out = v;
    if (v.type == JV_UNDEFINED || !truth) *out = mt__j_given(a[0]) ? a[0] : mt__j_text("", 0);
    return MT_OK;
}

/* The characters of a number without blanks around and underscores between digits; false if it is none. */
static bool number_text(jval v, char *buf, size_t size)
{
    size_t from = mt__j_space_prefix(v.s, v.n), to = from + mt__j_rstrip(v.s + from, v.n - from), k = 0;
    for (size_t i = from; i < to; i++) {
        if (v.s[i] == '_') {
            if (i == from || i + 1 == to || !isalnum((unsigned char)v.s[i - 1]) || !isalnum((unsigned char)v.s[i + 1]))
                return false;
            continue;
        }
        if (k + 1 >= size || isspace((unsigned char)v.s[i]) || !v.s[i]) return false;
        buf[k++] = v.s[i];
    }
    buf[k] = '\0';
    return k > 0;
}

static bool parse_float(jval v, double *out)
{
    char buf[512];
    if (!number_text(v, buf, sizeof buf)) return false;
    const char *digits = buf + (*buf == '-' || *buf == '+');
    bool word = false;
    static const char *const words[] = { "inf", "infinity", "nan" };
    for (size_t i = 0; i < MT_COUNT(words); i++) {
        size_t n = 0;
        while (digits[n] && (digits[n] | 32) == words[i][n]) n++;
        word = word || (!digits[n] && !words[i][n]);
    }
    if (!word && (strspn(digits, "0123456789.eE+-") != strlen(digits) || (!isdigit((unsigned char)*digits) && *digits != '.')))
        return false;
    char *end;
    *out = strtod(buf, &end);
    return !*end;
}

typedef enum parsed { NOT_A_NUMBER, A_NUMBER, TOO_LARGE } parsed;

static parsed parse_int(jval v, int64_t base, int64_t *out)
{
    char buf[512];
    if (!number_text(v, buf, sizeof buf)) return NOT_A_NUMBER;
    char *digits = buf + (*buf == '-' || *buf == '+'), *end;
    char prefix = digits[0] == '0' ? (char)(digits[1] | 32) : 0;
    int64_t named = mt__j_base_of(prefix);
    bool has_prefix = named && (base == 0 || base == named);
    if (base == 0) base = has_prefix ? named : 10;
    const char *start = has_prefix ? digits + 2 : digits;
    if (!isalnum((unsigned char)*start)) return NOT_A_NUMBER;
    errno = 0;
    unsigned long long u = strtoull(start, &end, (int)base);
    if (*end) return NOT_A_NUMBER;
    if (errno || u > INT64_MAX) return TOO_LARGE;
    *out = *buf == '-' ? -(int64_t)u : (int64_t)u;
    return A_NUMBER;
}

static mt_rc int_of_float(jrender *r, double f, jval fallback, jval *out)
{
    if (!isfinite(f)) return *out = fallback, MT_OK;
    if (!(fabs(f) < 9.2e18)) return mt__j_fail_rc(r, MT_ERANGE, "an integer that does not fit 64 bits");
    *out = mt__j_int((int64_t)f);
    return MT_OK;
}

FILTER(mt__j_f_int)
{
    (void)args;
    jval fallback = mt__j_given(a[0]) ? a[0] : mt__j_int(0);
    int64_t base = mt__j_given(a[1]) && mt__j_is_integer(a[1]) ? mt__j_as_int(a[1]) : 10, i;
    double f;
    if (v.type == JV_UNDEFINED) return mt__j_use_undefined(r, v);
    if (mt__j_is_integer(v)) return *out = mt__j_int(mt__j_as_int(v)), MT_OK;
    if (mt__j_is_long(v)) return *out = v, MT_OK;
    if (v.type == JV_FLOAT && isinf(v.f)) return mt__j_fail(r, "cannot convert float infinity to integer");
    if (v.type == JV_FLOAT) return int_of_float(r, v.f, fallback, out);
    *out = fallback;
    if (v.type != JV_STR) return MT_OK;
    MT_TRY(mt__j_walk(r, v.n));
    parsed p = base == 0 || (base >= 2 && base <= 36) ? parse_int(v, base, &i) : NOT_A_NUMBER;
    if (p == TOO_LARGE) return mt__j_fail_rc(r, MT_ERANGE, "an integer that does not fit 64 bits");
    if (p == A_NUMBER) return *out = mt__j_int(i), MT_OK;
    return parse_float(v, &f) ? int_of_float(r, f, fallback, out) : MT_OK;
}

FILTER(mt__j_f_float)
{
    (void)args;
    double f;
    *out = mt__j_given(a[0]) ? a[0] : mt__j_float(0);
    if (v.type == JV_UNDEFINED) return mt__j_use_undefined(r, v);
    if (mt__j_is_number(v)) *out = mt__j_float(mt__j_as_float(v));
    if (v.type == JV_STR) MT_TRY(mt__j_walk(r, v.n));
    if (v.type == JV_STR && parse_float(v, &f)) *out = mt__j_float(f);
    return MT_OK;
}

FILTER(mt__j_f_abs)
{
    UNUSED_ARGS;
    if (v.type == JV_UNDEFINED) return mt__j_use_undefined(r, v);
    if (!mt__j_is_number(v)) return mt__j_fail(r, "bad operand type for abs(): '%s'", mt__j_type_name(v));
    if (v.type == JV_FLOAT) return *out = mt__j_float(fabs(v.f)), MT_OK;
    int64_t i = mt__j_as_int(v);
    return i < 0 ? mt__j_negate(r, mt__j_int(i), out, true) : (*out = mt__j_int(i), MT_OK);
}

/* round(): to even, decided on the exact decimal value, which is what printf works with. */
static double round_to(double f, int64_t digits)
{
    if (!isfinite(f) || digits > 300) return f;
    if (digits < -300) return copysign(0.0, f);
    if (digits >= 0) {
        char text[700];
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        return strtod(text, NULL);
    }
    double unit = pow(10, (double)-digits);
    return nearbyint(f / unit) * unit;
}

static mt_rc round_int(jrender *r, int64_t i, int64_t digits, jval *out)
{
    if (digits >= 0 || i == 0) return *out = mt__j_int(i), MT_OK;
    if (digits < -18) return *out = mt__j_int(0), MT_OK;
    int64_t unit = 1, q, m;
    for (int64_t k = digits; k < 0; k++) unit *= 10;
    q = i / unit, m = i % unit;
    if (m < 0) m += unit, q--;
    if (m > unit - m || (m == unit - m && (q & 1))) q++;
    return mt__j_binary(r, OP_MUL, mt__j_int(q), mt__j_int(unit), out);
}

FILTER(mt__j_f_round)
{
    (void)args;
    jval method = mt__j_given(a[1]) ? a[1] : mt__j_literal("common");
    bool ceiling = mt__j_is_text(method, "ceil"), floored = mt__j_is_text(method, "floor");
    if (!ceiling && !floored && !mt__j_is_text(method, "common")) return mt__j_fail(r, "method must be common, ceil or floor");
    if (v.type == JV_UNDEFINED) return mt__j_use_undefined(r, v);
    if (!mt__j_is_number(v)) return mt__j_fail(r, "type %s doesn't define __round__ method", mt__j_type_name(v));
    bool to_whole = !ceiling && !floored && mt__j_given(a[0]) && a[0].type == JV_NONE;
    if (mt__j_given(a[0]) && !mt__j_is_integer(a[0]) && !to_whole) return mt__j_fail(r, "round wants a whole number of digits");
    int64_t digits = mt__j_given(a[0]) && !to_whole ? mt__j_as_int(a[0]) : 0;
    if (!ceiling && !floored) {
        if (v.type != JV_FLOAT) return round_int(r, mt__j_as_int(v), digits, out);
        if (to_whole) return int_of_float(r, nearbyint(v.f), mt__j_int(0), out);
        *out = mt__j_float(round_to(v.f, digits));
        return MT_OK;
    }
    jval unit, scaled, whole;
    MT_TRY(mt__j_binary(r, OP_POW, mt__j_int(10), mt__j_int(digits), &unit));
    MT_TRY(mt__j_binary(r, OP_MUL, v, unit, &scaled));
    double f = mt__j_as_float(scaled);
    if (!isfinite(f)) return mt__j_fail(r, "cannot convert this float to an integer");
    MT_TRY(int_of_float(r, ceiling ? ceil(f) : floor(f), mt__j_int(0), &whole));
    return mt__j_binary(r, OP_DIV, whole, unit, out);
}

FILTER(mt__j_f_attr)
{
    (void)args;
    if (v.type == JV_UNDEFINED) return mt__j_use_undefined(r, v);
    if (a[0].type != JV_STR) return mt__j_fail(r, "attribute name must be string, not '%s'", mt__j_type_name(a[0]));
    if (v.type != JV_DICT) return mt__j_getattr(r, v, a[0], mt__j_method_id(a[0]), out);
    jval empty; /* attributes only, not the keys */
    jdict *d;
    int id = mt__j_method_id(a[0]);
    if (id && mt__j_method_row(id, v) >= 0) return mt__j_getattr(r, v, a[0], id, out);
    MT_TRY(mt__j_new_dict(r, 0, &empty, &d));
    return mt__j_getattr(r, empty, a[0], 0, out);
}

FILTER(mt__j_f_filesizeformat)
{
    static const char *const decimal[] = { "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB" };
    static const char *const binary[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB" };
    bool is_binary = false;
    jval number, none[1] = { { 0 } };
    char text[64];
    if (mt__j_given(a[0])) MT_TRY(mt__j_truth(r, a[0], &is_binary));
    MT_TRY(mt__j_f_float(r, v, none, args, &number));
    if (v.type == JV_STR ? !parse_float(v, &(double){ 0 }) : !mt__j_is_number(v))
        return mt__j_fail(r, "filesizeformat wants a number");
    double bytes = number.f, base = is_binary ? 1024 : 1000, unit = base;
    if (bytes == 1) return mt__j_copy_text(r, "1 Byte", 6, out);
    if (bytes < base) {
        snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes));
        return mt__j_copy_text(r, text, strlen(text), out);
    }
    int i = 0;
    for (unit = base * base; i < 7 && bytes >= unit; i++) unit *= base;
    snprintf(text, sizeof text, "%.1f %s", base * bytes / unit, (is_binary ? binary : decimal)[i]);
    return mt__j_copy_text(r, text, strlen(text), out);
}

FILTER(mt__j_f_random)
{
    (void)v, (void)out;
    UNUSED_ARGS;
    return mt__j_fail_rc(r, MT_EUNSUPPORTED, "the random filter is refused: training must see the same text in every run");
}
