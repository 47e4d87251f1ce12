/* arith.c - the operators of expressions, with Python's integers (64 bits of them) and floats. */
#include "jinja/render.h"

#include <math.h>

static const char *const op_names[] = { "+", "-", "*", "/", "//", "%", "** or pow()" };

static mt_rc wrong_types(jrender *r, jop op, jval a, jval b)
{
    if (a.type == JV_UNDEFINED) return mt__j_use_undefined(r, a);
    if (b.type == JV_UNDEFINED) return mt__j_use_undefined(r, b);
    return mt__j_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", op_names[op], mt__j_type_name(a),
                      mt__j_type_name(b));
}

static mt_rc too_large(jrender *r) { return mt__j_fail_rc(r, MT_ERANGE, "an integer that does not fit 64 bits"); }
static mt_rc by_zero(jrender *r) { return mt__j_fail(r, "division by zero"); }

static mt_rc int_power(jrender *r, int64_t a, int64_t b, jval *out)
{
    if (b < 0) {
        if (a == 0) return mt__j_fail(r, "0.0 cannot be raised to a negative power");
        *out = mt__j_float(pow((double)a, (double)b));
        return MT_OK;
    }
    int64_t result = 1;
    while (b) {
        if ((b & 1) && __builtin_mul_overflow(result, a, &result)) return too_large(r);
        b >>= 1;
        if (b && __builtin_mul_overflow(a, a, &a)) return too_large(r);
    }
    *out = mt__j_int(result);
    return MT_OK;
}

static mt_rc int_divide(jrender *r, jop op, int64_t a, int64_t b, jval *out)
{
    if (b == 0) return by_zero(r);
    if (op == OP_DIV) return *out = mt__j_float((double)a / (double)b), MT_OK;
    if (b == -1) { /* the one quotient that overflows */
        if (op == OP_FLOORDIV && a == INT64_MIN) return too_large(r);
        *out = mt__j_int(op == OP_MOD ? 0 : -a);
        return MT_OK;
    }
    int64_t q = a / b, m = a % b;
    if (m && (m < 0) != (b < 0)) q--, m += b;
    *out = mt__j_int(op == OP_MOD ? m : q);
    return MT_OK;
}

static mt_rc int_binary(jrender *r, jop op, int64_t a, int64_t b, jval *out)
{
    int64_t v;
    bool overflow;
    switch (op) {
    case OP_ADD: overflow = __builtin_add_overflow(a, b, &v); break;
    case OP_SUB: overflow = __builtin_sub_overflow(a, b, &v); break;
    case OP_MUL: overflow = __builtin_mul_overflow(a, b, &v); break;
    case OP_POW: return int_power(r, a, b, out);
    default: return int_divide(r, op, a, b, out);
    }
    if (overflow) return too_large(r);
    *out = mt__j_int(v);
    return MT_OK;
}

static mt_rc float_power(jrender *r, double a, double b, jval *out)
{
    if (a == 0 && b < 0) return mt__j_fail(r, "0.0 cannot be raised to a negative power");
    if (a < 0 && b != floor(b) && isfinite(a) && isfinite(b))
        return mt__j_fail(r, "a negative number has no such power (complex numbers are not supported)");
    double v = pow(a, b);
    if (isinf(v) && isfinite(a) && isfinite(b)) return mt__j_fail(r, "the result of a power is too large");
    *out = mt__j_float(v);
    return MT_OK;
}

static mt_rc float_divide(jrender *r, jop op, double a, double b, jval *out)
{
    if (b == 0) return by_zero(r);
    if (op == OP_DIV) return *out = mt__j_float(a / b), MT_OK;
    double m = fmod(a, b), q = (a - m) / b;
    if (m != 0) {
        if ((b < 0) != (m < 0)) m += b, q -= 1.0;
    } else
        m = copysign(0.0, b);
    if (q != 0) {
        double whole = floor(q);
        q = q - whole > 0.5 ? whole + 1.0 : whole;
    } else
        q = copysign(0.0, a / b);
    *out = mt__j_float(op == OP_MOD ? m : q);
    return MT_OK;
}

static mt_rc float_binary(jrender *r, jop op, double a, double b, jval *out)
{
    switch (op) {
    case OP_ADD: *out = mt__j_float(a + b); return MT_OK;
    case OP_SUB: *out = mt__j_float(a - b); return MT_OK;
    case OP_MUL: *out = mt__j_float(a * b); return MT_OK;
    case OP_POW: return float_power(r, a, b, out);
    default: return float_divide(r, op, a, b, out);
    }
}

mt_rc mt__j_join(jrender *r, jval a, jval b, jval *out)
{
    size_t mark = mt__j_mark(r);
    bool safe = a.safe || b.safe; /* markup escapes what it is joined with */
    MT_TRY(safe ? mt__j_put_escaped(r, a) : mt__j_put_str(r, a));
    MT_TRY(safe ? mt__j_put_escaped(r, b) : mt__j_put_str(r, b));
    MT_TRY(mt__j_cut(r, mark, out));
    out->safe = safe;
    return MT_OK;
}

static mt_rc join_seqs(jrender *r, jval a, jval b, jval *out)
{
    jval *items;
    MT_TRY(mt__j_new_list(r, (jtype)a.type, a.list->n + b.list->n, out, &items));
    if (a.list->n) memcpy(items, a.list->items, a.list->n * sizeof *items);
    if (b.list->n) memcpy(items + a.list->n, b.list->items, b.list->n * sizeof *items);
    return MT_OK;
}

static mt_rc repeat(jrender *r, jval v, int64_t times, jval *out)
{
    size_t n = times > 0 ? (size_t)times : 0, unit = v.type == JV_STR ? v.n : v.list->n, total;
    if (!mt_mul_size(n, unit, &total) || total > r->a->max_bytes) return mt__j_too_much(r);
    if (!unit) n = 0;
    if (v.type != JV_STR) {
        jval *items;
        MT_TRY(mt__j_new_list(r, (jtype)v.type, total, out, &items));
        for (size_t i = 0; i < n; i++) memcpy(items + i * unit, v.list->items, unit * sizeof *items);
        return MT_OK;
    }
    char *s;
    MT_TRY(mt__j_steps(r, total / 64));
    MT_TRY(mt__j_new(r, total + 1, &s));
    for (size_t i = 0; i < n; i++) memcpy(s + i * unit, v.s, unit);
    *out = mt__j_text(s, total);
    out->safe = v.safe;
    return MT_OK;
}

static bool repeats(jval v) { return v.type == JV_STR || mt__j_is_seq(v); }

mt_rc mt__j_binary(jrender *r, jop op, jval a, jval b, jval *out)
{
    if (op == OP_ADD && a.type == JV_STR && b.type == JV_STR) return mt__j_join(r, a, b, out);
    if (mt__j_is_integer(a) && mt__j_is_integer(b)) return int_binary(r, op, mt__j_as_int(a), mt__j_as_int(b), out);
    if (mt__j_is_number(a) && mt__j_is_number(b)) return float_binary(r, op, mt__j_as_float(a), mt__j_as_float(b), out);
    if (op == OP_ADD && mt__j_is_seq(a) && a.type == b.type) return join_seqs(r, a, b, out);
    if (op == OP_MUL && repeats(a) && mt__j_is_integer(b)) return repeat(r, a, mt__j_as_int(b), out);
    if (op == OP_MUL && repeats(b) && mt__j_is_integer(a)) return repeat(r, b, mt__j_as_int(a), out);
    if (op == OP_MOD && a.type == JV_STR) return mt__j_percent(r, a, b, out);
    return wrong_types(r, op, a, b);
}

mt_rc mt__j_negate(jrender *r, jval v, jval *out, bool minus)
{
    if (v.type == JV_UNDEFINED) return mt__j_use_undefined(r, v);
    if (v.type == JV_FLOAT) return *out = mt__j_float(minus ? -v.f : v.f), MT_OK;
    if (!mt__j_is_integer(v)) return mt__j_fail(r, "bad operand type for unary %c: '%s'", minus ? '-' : '+', mt__j_type_name(v));
    int64_t i = mt__j_as_int(v);
    if (minus && i == INT64_MIN) return too_large(r);
    *out = mt__j_int(minus ? -i : i);
    return MT_OK;
}
