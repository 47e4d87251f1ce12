#include "data/scalar.h"

#include "base/dtype.h"
#include "base/le.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static bool put_text(mt_value *out, mt_arena *arena, const char *s, size_t n)
{
    *out = mt_value_str(arena, s, n);
    return out->type == MT_VALUE_STR;
}

/* Days since 1970 to a date of the Gregorian calendar.  Counts in eras of 400 years that start on a 1st of March,
 * so the leap day is the last of its year and months need no table. */
static int write_date(char *s, size_t room, int64_t days)
{
    int64_t z = days + 719468, era = floor_div(z, 146097), day_of_era = z - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t shifted_month = (5 * day_of_year + 2) / 153, day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    int64_t month = shifted_month < 10 ? shifted_month + 3 : shifted_month - 9;
    int64_t year = year_of_era + era * 400 + (month <= 2);
    return snprintf(s, room, "%04lld-%02lld-%02lld", (long long)year, (long long)month, (long long)day);
}

/* hh:mm:ss, with six decimals if the second is not whole, nine if microseconds do not suffice. */
static int write_time(char *s, size_t room, int64_t units, int64_t per_second)
{
    long long sec = (long long)(units / per_second), frac = (long long)(units % per_second) * (1000000000 / per_second);
    int n = snprintf(s, room, "%02lld:%02lld:%02lld", sec / 3600, sec / 60 % 60, sec % 60);
    if (frac % 1000) return n + snprintf(s + n, room - (size_t)n, ".%09lld", frac);
    if (frac) return n + snprintf(s + n, room - (size_t)n, ".%06lld", frac / 1000);
    return n;
}

static bool put_timestamp(mt_value *out, mt_arena *arena, int64_t days, int64_t units, const mt_scalar *t)
{
    char s[96];
    int n = write_date(s, sizeof s, days);
    s[n++] = 'T';
    n += write_time(s + n, sizeof s - (size_t)n, units, t->per_second);
    n += snprintf(s + n, sizeof s - (size_t)n, "%s", t->utc ? "+00:00" : "");
    return put_text(out, arena, s, (size_t)n);
}

static bool timestamp_from_int(mt_value *out, const mt_scalar *t, int64_t v, mt_arena *arena)
{
    int64_t per_day = t->per_second * 86400, days = floor_div(v, per_day);
    int64_t units = v % per_day;
    return put_timestamp(out, arena, days, units < 0 ? units + per_day : units, t);
}

static bool time_from_int(mt_value *out, const mt_scalar *t, int64_t v, mt_arena *arena)
{
    char s[96];
    if (v < 0) return *out = (mt_value){ .type = MT_VALUE_INT, .i = v }, true;
    return put_text(out, arena, s, (size_t)write_time(s, sizeof s, v, t->per_second));
}

static bool date_from_int(mt_value *out, int64_t days, mt_arena *arena)
{
    char s[96];
    /* A number past a few million years is not a date, and the arithmetic above would overflow. */
    if (days > INT32_MAX || days < INT32_MIN) return *out = (mt_value){ .type = MT_VALUE_INT, .i = days }, true;
    return put_text(out, arena, s, (size_t)write_date(s, sizeof s, days));
}

enum { MAX_DECIMAL_BYTES = 32, MAX_DECIMAL_DIGITS = 80 };

/* Divides the big-endian number by ten in place; the remainder is its last digit. */
static int divide_by_ten(uint8_t *number, size_t n)
{
    int rest = 0;
    for (size_t i = 0; i < n; i++) {
        int x = rest << 8 | number[i];
        number[i] = (uint8_t)(x / 10);
        rest = x % 10;
    }
    return rest;
}

static bool is_zero(const uint8_t *number, size_t n)
{
    while (n && number[n - 1] == 0) n--;
    return n == 0;
}

static void negate(uint8_t *number, size_t n)
{
    int carry = 1;
    for (size_t i = n; i-- > 0;) {
        int x = (uint8_t)~number[i] + carry;
        number[i] = (uint8_t)x;
        carry = x >> 8;
    }
}

/* number: n bytes, big endian, two's complement; destroyed. */
static bool put_decimal(mt_value *out, mt_arena *arena, uint8_t *number, size_t n, int scale)
{
    char s[MAX_DECIMAL_DIGITS * 3];
    char *end = s + sizeof s, *p = end;
    bool negative = n && number[0] & 0x80;
    if (negative) negate(number, n);
    if (scale < 0 && !is_zero(number, n))
        for (int i = scale; i < 0; i++) *--p = '0';
    for (int digits = 0; digits <= scale || !is_zero(number, n) || digits == 0; digits++) {
        if (digits == scale && scale > 0) *--p = '.';
        *--p = (char)('0' + divide_by_ten(number, n));
    }
    if (negative) *--p = '-';
    return put_text(out, arena, p, (size_t)(end - p));
}

static bool decimal_from_bytes(mt_value *out, const mt_scalar *t, const uint8_t *p, size_t n, mt_arena *arena,
                               const char **trouble)
{
    uint8_t number[MAX_DECIMAL_BYTES];
    if (n > sizeof number || t->scale > MAX_DECIMAL_DIGITS || t->scale < -MAX_DECIMAL_DIGITS) {
        *trouble = "a decimal of more than 256 bits";
        return true;
    }
    for (size_t i = 0; i < n; i++) number[i] = p[t->big_endian ? i : n - 1 - i];
    return put_decimal(out, arena, number, n, t->scale);
}

static bool decimal_from_int(mt_value *out, const mt_scalar *t, int64_t v, mt_arena *arena)
{
    uint8_t bytes[8];
    const char *trouble = NULL;
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)v >> 8 * i);
    mt_scalar little = { .scale = t->scale };
    return decimal_from_bytes(out, &little, bytes, 8, arena, &trouble);
}

/* Past the range of int64_t: the digits stay exact. */
static bool put_long(mt_value *out, mt_arena *arena, uint64_t v)
{
    char s[24];
    int n = snprintf(s, sizeof s, "%llu", (unsigned long long)v);
    *out = mt__scalar_float((double)v);
    return (out->digits = mt_arena_strndup(arena, s, (size_t)n)) != NULL;
}

bool mt__scalar_from_int(mt_value *out, const mt_scalar *t, int64_t v, mt_arena *arena)
{
    *out = (mt_value){ 0 };
    switch (t->kind) {
    case MT_SCALAR_NULL: return true;
    case MT_SCALAR_BOOL: return *out = (mt_value){ .type = MT_VALUE_BOOL, .b = v != 0 }, true;
    case MT_SCALAR_UINT:
        if (v < 0) return put_long(out, arena, (uint64_t)v);
        break;
    case MT_SCALAR_HALF: return *out = mt__scalar_float(mt_f16_to_f32((uint16_t)v)), true;
    case MT_SCALAR_DATE: return date_from_int(out, v, arena);
    case MT_SCALAR_DATE_MS: return date_from_int(out, floor_div(v, 86400000), arena);
    case MT_SCALAR_TIME: return time_from_int(out, t, v, arena);
    case MT_SCALAR_TIMESTAMP: return timestamp_from_int(out, t, v, arena);
    case MT_SCALAR_DECIMAL: return decimal_from_int(out, t, v, arena);
    default: break;
    }
    *out = (mt_value){ .type = MT_VALUE_INT, .i = v };
    return true;
}

static bool uuid_from_bytes(mt_value *out, const uint8_t *p, mt_arena *arena)
{
    char s[40];
    int n = 0;
    for (int i = 0; i < 16; i++)
        n += snprintf(s + n, sizeof s - (size_t)n, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", p[i]);
    return put_text(out, arena, s, (size_t)n);
}

static bool int96_from_bytes(mt_value *out, const uint8_t *p, mt_arena *arena)
{
    int64_t nanos = (int64_t)mt__le64(p);
    int32_t julian_day = (int32_t)mt__le32(p + 8);
    int64_t day_nanos = 86400 * (int64_t)1000000000, days = (int64_t)julian_day - 2440588 + floor_div(nanos, day_nanos);
    nanos %= day_nanos;
    return put_timestamp(out, arena, days, nanos < 0 ? nanos + day_nanos : nanos, &(mt_scalar){ .per_second = 1000000000 });
}

bool mt__scalar_from_bytes(mt_value *out, const mt_scalar *t, const uint8_t *p, size_t n, bool borrow, mt_arena *arena,
                           const char **trouble)
{
    *out = (mt_value){ 0 };
    if (t->kind == MT_SCALAR_DECIMAL) return decimal_from_bytes(out, t, p, n, arena, trouble);
    if (t->kind == MT_SCALAR_INT96 && n == 12) return int96_from_bytes(out, p, arena);
    if (t->kind == MT_SCALAR_UUID && n == 16) return uuid_from_bytes(out, p, arena);
    if (t->kind == MT_SCALAR_HALF && n == 2) return *out = mt__scalar_float(mt_f16_to_f32((uint16_t)(p[0] | p[1] << 8))), true;
    if (n && !mt_utf8_valid((const char *)p, n, NULL)) {
        *trouble = "not valid UTF-8";
        return true;
    }
    if (!borrow || n == 0) return put_text(out, arena, n ? (const char *)p : "", n);
    *out = (mt_value){ .type = MT_VALUE_STR };
    out->str.s = (const char *)p;
    out->str.n = n;
    return true;
}

static bool list_of_entries(mt_value *out, const mt_value *items, size_t n, mt_arena *arena)
{
    mt_value *entries = mt_arena_calloc(arena, n, sizeof *entries);
    mt_pair *pairs = mt_arena_calloc(arena, n, 2 * sizeof *pairs);
    if (!entries || !pairs) return false;
    for (size_t i = 0; i < n; i++) {
        pairs[2 * i] = (mt_pair){ .key = "key", .key_n = 3, .value = items[2 * i] };
        pairs[2 * i + 1] = (mt_pair){ .key = "value", .key_n = 5, .value = items[2 * i + 1] };
        entries[i] = (mt_value){ .type = MT_VALUE_MAP };
        entries[i].map.pairs = pairs + 2 * i;
        entries[i].map.n = 2;
    }
    *out = (mt_value){ .type = MT_VALUE_LIST };
    out->list.items = entries;
    out->list.n = n;
    return true;
}

/* The index of the key among the pairs so far, or their number.  Long maps are not checked for repeated keys. */
static size_t find_key(const mt_pair *pairs, size_t n, const mt_value *key)
{
    for (size_t i = 0; i < n && n <= 1024; i++)
        if (pairs[i].key_n == key->str.n && memcmp(pairs[i].key, key->str.s, key->str.n) == 0) return i;
    return n;
}

bool mt__map_from_items(mt_value *out, const mt_value *items, size_t n, mt_arena *arena)
{
    for (size_t i = 0; i < n; i++)
        if (items[2 * i].type != MT_VALUE_STR) return list_of_entries(out, items, n, arena);
    mt_pair *pairs = mt_arena_calloc(arena, n, sizeof *pairs);
    if (!pairs) return false;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const mt_value *key = &items[2 * i];
        size_t at = find_key(pairs, used, key);
        pairs[at] = (mt_pair){ .key = key->str.s, .key_n = key->str.n, .value = items[2 * i + 1] };
        used += at == used;
    }
    *out = (mt_value){ .type = MT_VALUE_MAP };
    out->map.pairs = pairs;
    out->map.n = used;
    return true;
}
