/* value.h - data as records and templates see it: null, numbers, strings, lists and ordered maps.
 *
 * Values are small, passed by copy, and point into an arena (or into memory that outlives them): nothing
 * is freed one by one.  Readers of JSON, Parquet, CSV and Arrow make them; chat templates read them.
 * Strings are bytes with a length, always valid UTF-8, and NUL-terminated only when made by mt_value_str. */
#ifndef MT_BASE_VALUE_H
#define MT_BASE_VALUE_H

#include "base/arena.h"
#include "base/str.h"

typedef enum mt_value_type {
    MT_VALUE_NULL,
    MT_VALUE_BOOL,
    MT_VALUE_INT,
    MT_VALUE_FLOAT,
    MT_VALUE_STR,
    MT_VALUE_LIST,
    MT_VALUE_MAP,
} mt_value_type;

typedef struct mt_value mt_value;
typedef struct mt_pair mt_pair;

struct mt_value {
    mt_value_type type;
    uint32_t n_high_; /* padding made explicit, so values can be compared and hashed as bytes */
    union {
        bool b;
        int64_t i;
        struct {
            double f;
            const char *digits; /* of an integer that does not fit 64 bits, exactly, of which f is the nearest; else NULL */
        };
        struct {
            const char *s;
            size_t n;
        } str;
        struct {
            const mt_value *items;
            size_t n;
        } list;
        struct {
            const mt_pair *pairs; /* in the order they were written; keys are unique, the last one wins */
            size_t n;
        } map;
    };
};

struct mt_pair {
    const char *key;
    size_t key_n;
    mt_value value;
};

/* A copy of s in the arena; type NULL if memory runs out. */
mt_value mt_value_str(mt_arena *a, const char *s, size_t n);
/* All of v in the arena, its strings and keys too; false: no memory. */
bool mt_value_copy(mt_value *out, mt_arena *a, const mt_value *v);
/* The value at key, or NULL if v is not a map or lacks the key. */
const mt_value *mt_value_get(const mt_value *v, const char *key);
bool mt_value_equal(const mt_value *a, const mt_value *b); /* 1 == 1.0, maps in any order */
bool mt_value_is(const mt_value *v, const char *text);     /* a string equal to text */
const char *mt_value_type_name(const mt_value *v);         /* "a string", "a list", ... */

/* These accept NULL for a missing value. */
static inline bool mt_value_has(const mt_value *v, mt_value_type type) { return v && v->type == type; }
static inline bool mt_value_is_true(const mt_value *v) { return mt_value_has(v, MT_VALUE_BOOL) && v->b; }
static inline bool mt_value_is_false(const mt_value *v) { return mt_value_has(v, MT_VALUE_BOOL) && !v->b; }
bool mt_value_is_number(const mt_value *v); /* and finite */
/* The number; 0 for anything else. */
double mt_value_number(const mt_value *v);
static inline int64_t mt_value_int(const mt_value *v) { return mt_value_has(v, MT_VALUE_INT) ? v->i : 0; }
/* Items of a list, pairs of a map; 0 for other types.  Item i, or NULL if v is not a list or is shorter. */
static inline size_t mt_value_items(const mt_value *v) { return mt_value_has(v, MT_VALUE_LIST) ? v->list.n : 0; }
static inline size_t mt_value_pairs(const mt_value *v) { return mt_value_has(v, MT_VALUE_MAP) ? v->map.n : 0; }
static inline const mt_value *mt_value_at(const mt_value *v, size_t i)
{
    return i < mt_value_items(v) ? &v->list.items[i] : NULL;
}

/* One JSON document.  `what` names it in messages.  Deeper than 512 levels is refused; integers that do not fit 64 bits become
 * floats that keep their digits; duplicate keys keep the last.  *used (if given) is where it ended, so several may follow each
 * other; without it, a byte order mark may precede the document, and anything but white space after it is an error. */
mt_rc mt_value_parse_json(mt_value *out, mt_arena *a, const char *text, size_t n, size_t *used, const char *what, mt_err *err);

/* The same for callers that read many documents.  On failure *used is the place of the error.  Scratch memory is kept between
 * them, and messages count from the start of the surrounding text.  Zero-initialize; strings may point into the text, which must
 * outlive the values. */
typedef struct mt_value_reader {
    int64_t first_line; /* where the text starts, for messages; 0 means 1 */
    const char *whole;  /* what the text is part of, for columns; NULL: the text starts a line */
    size_t max_values;  /* refuse documents of more; 0: any number */
    bool too_many;      /* set: that is why the last one was refused */
    bool unique_keys;   /* refuse a map that has a key twice */
    mt_pair *stack;     /* items of the open lists and maps, innermost last (lists leave the key unset) */
    size_t cap_stack;
    char *scratch; /* the string being decoded */
    size_t cap_scratch;
} mt_value_reader;

mt_rc mt_value_reader_parse(mt_value_reader *r, mt_value *out, mt_arena *a, const char *text, size_t n, size_t *used,
                            const char *what, mt_err *err);
void mt_value_reader_free(mt_value_reader *r);

/* repr(float): the shortest digits that read back, in Python's choice of form; NaN, Infinity. */
void mt_value_write_float(mt_str *out, double f);
/* Python's json.dumps(v, ensure_ascii=False): ", " and ": " between items, floats as repr() gives them. */
void mt_value_write_json(mt_str *out, const mt_value *v);
/* json.dumps(v, ensure_ascii=False, indent=2). */
void mt_value_write_indented(mt_str *out, const mt_value *v);

#endif
