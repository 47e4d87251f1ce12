/* object.h - what expressions evaluate to: Python's values, as far as templates can see them.
 *
 * A jval is 16 bytes and passed by value; what it points to lives in the render's arena (or in the template, or
 * in the caller's context) and is never freed one by one.  Lists, tuples and dicts never change once made, as
 * the immutable sandbox wants; namespaces, loops, cyclers, joiners and iterators do. */
#ifndef MT_JINJA_OBJECT_H
#define MT_JINJA_OBJECT_H

#include "base/mem.h"

#include <string.h>

typedef enum jtype {
    JV_MISSING, /* no value at all: an unset slot or an argument not given; never seen by templates */
    JV_UNDEFINED,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_STR,
    JV_LIST,
    JV_TUPLE,
    JV_DICT,
    JV_VIEW, /* dict.keys(), .values(), .items() */
    JV_RANGE,
    JV_ITER,  /* a generator: can be walked once */
    JV_SLICE, /* 1:2 between brackets */
    JV_NAMESPACE,
    JV_MACRO,
    JV_FUNC,   /* a global: range, dict, ... */
    JV_METHOD, /* "x".upper, not yet called */
    JV_LOOP,
    JV_CYCLER,
    JV_JOINER,
} jtype;

typedef struct jval jval;
typedef struct jlist jlist;
typedef struct jdict jdict;
typedef struct jview jview;
typedef struct jrange jrange;
typedef struct jslice jslice;
typedef struct jiter jiter;
typedef struct jspace jspace;
typedef struct jmacro jmacro;
typedef struct jmethod jmethod;
typedef struct jloop jloop;
typedef struct jcycler jcycler;
typedef struct jjoiner jjoiner;
typedef struct jfunc jfunc;

struct jval {
    uint8_t type;
    uint8_t safe; /* a string that is Markup; an undefined name whose use the sandbox refuses */
    uint16_t of;  /* undefined: 1 + the jtype whose attribute it is, 0 for a variable, or UNDEFINED_TEXT */
    uint32_t n;   /* bytes of a string, or of an undefined value's name; of a long integer: 1 + its place in jrender.digits */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s;
        const jlist *list; /* also of tuples */
        const jdict *dict;
        const jview *view;
        const jrange *range;
        const jslice *slice;
        jiter *iter;
        jspace *space;
        const jmacro *macro;
        const jfunc *func;
        const jmethod *method;
        jloop *loop;
        jcycler *cycler;
        jjoiner *joiner;
    };
};

enum { UNDEFINED_TEXT = 0xffff }; /* the name of this undefined value is a whole message */

struct jlist {
    size_t n;
    bool named; /* a groupby pair: also .grouper and .list */
    jval *items;
};

typedef struct jentry {
    jval key, value;
} jentry;

struct jdict {
    size_t n;
    jentry *entries; /* in order of insertion */
};

struct jview {
    const jdict *dict;
    enum { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS } kind;
};

struct jrange {
    int64_t start, stop, step;
    size_t n;
};

struct jslice {
    jval start, stop, step;
};

struct jspace {
    jentry *entries;
    size_t n, cap;
};

struct jmethod {
    jval self;
    int id; /* method.h */
};

struct jcycler {
    const jlist *items;
    size_t at;
};

struct jjoiner {
    bool used; /* called before: then it gives the separator */
    jval sep;
};

#define JV_NONE_VALUE ((jval){ .type = JV_NONE })

static inline jval mt__j_bool(bool b) { return (jval){ .type = JV_BOOL, .b = b }; }
static inline jval mt__j_int(int64_t i) { return (jval){ .type = JV_INT, .i = i }; }
static inline jval mt__j_float(double f) { return (jval){ .type = JV_FLOAT, .f = f }; }
static inline jval mt__j_text(const char *s, size_t n) { return (jval){ .type = JV_STR, .n = (uint32_t)n, .s = s }; }
static inline jval mt__j_literal(const char *s) { return mt__j_text(s, strlen(s)); }
static inline jval mt__j_undefined(const char *name, size_t n)
{
    return (jval){ .type = JV_UNDEFINED, .n = (uint32_t)n, .s = name };
}

/* Undefined with a given message. */
static inline jval mt__j_undefined_because(const char *why)
{
    return (jval){ .type = JV_UNDEFINED, .of = UNDEFINED_TEXT, .n = (uint32_t)strlen(why), .s = why };
}

static inline bool mt__j_given(jval v) { return v.type != JV_MISSING; }
/* An integer of the context that does not fit 64 bits: written exactly, computed with as the nearest float. */
static inline bool mt__j_is_long(jval v) { return v.type == JV_FLOAT && v.n; }
static inline bool mt__j_is_seq(jval v) { return v.type == JV_LIST || v.type == JV_TUPLE; }
static inline bool mt__j_is_integer(jval v) { return v.type == JV_INT || v.type == JV_BOOL; }
static inline bool mt__j_is_number(jval v) { return mt__j_is_integer(v) || v.type == JV_FLOAT; }
static inline int64_t mt__j_as_int(jval v) { return v.type == JV_BOOL ? v.b : v.i; }
static inline double mt__j_as_float(jval v) { return v.type == JV_FLOAT ? v.f : (double)mt__j_as_int(v); }

static inline bool mt__j_same_text(jval a, const char *s, size_t n) { return a.n == n && memcmp(a.s, s, n) == 0; }
static inline bool mt__j_is_text(jval a, const char *s) { return a.type == JV_STR && mt__j_same_text(a, s, strlen(s)); }

/* Python's name of the type: "str", "dict", "NoneType". */
const char *mt__j_type_name(jval v);
const char *mt__j_view_name(const jview *view); /* "dict_keys" */
bool mt__j_callable(jval v);

#endif
