/* render.h - one rendering in progress, and the calls between the parts of the evaluator.
 *
 * Functions that can fail return mt_rc; the message is written by mt__j_fail, which knows the place (`at`).
 *
 * All text is built in one place: the output.  Text that becomes a value instead (a macro's result, a filter's text) is written
 * after the output's end and then cut off again, so nothing is copied twice:
 *     size_t mark = mt__j_mark(r);
 *     mt_str_puts(r->out, ...);
 *     MT_TRY(mt__j_cut(r, mark, out));          // *out: a string in the arena
 *
 * Templates are untrusted, so four counters bound all work.  Each is kept in one place:
 *   steps    Call mt__j_steps for nodes, items and entries, mt__j_touch for bytes that are copied, compared or searched at the
 *            speed of memory, and mt__j_walk for those that a loop looks at one by one.  Bytes that are written need no
 *            call: mt__j_cut and mt__j_capture_abandon count them when they leave the output.  cost.readers counts what
 *            each operation takes for a step.
 *   memory   The arena has a limit.  Code that allocates in proportion to its work needs no other count.
 *   output   `out` has a limit (base/str.h): an append past it fails, and mt__j_check_out reports it.
 *   depth    Call mt__j_deeper at every recursion over nodes, values or generators.  It checks the stack, too. */
#ifndef MT_JINJA_RENDER_H
#define MT_JINJA_RENDER_H

#include "base/stack.h"
#include "jinja/ast.h"
#include "jinja/jinja.h"

/* One call of a function: its variables, and the call it was defined in. */
typedef struct jactivation jactivation;
struct jactivation {
    jactivation *outer;
    jval *slots;
};

struct jmacro {
    const jnode *node;  /* N_MACRO or N_CALL_BLOCK */
    jactivation *outer; /* where it was defined */
};

/* The arguments of a call, as written. */
typedef struct jargs {
    const jval *pos;
    size_t n_pos;
    const jval *kw_names, *kw;
    size_t n_kw;
} jargs;

typedef enum jsignal { SIGNAL_NONE, SIGNAL_BREAK, SIGNAL_CONTINUE } jsignal;

typedef struct jrender {
    const mt_jinja *t;
    mt_arena *a;
    mt_str *out;
    mt_err *err;
    const jnode *at; /* the node that is being evaluated, for messages */
    jactivation *act;
    jval *globals; /* [t->n_globals] values from the context, MISSING where there is none */
    size_t steps_left;
    int depth;
    uintptr_t stack_floor; /* base/stack.h */
    jsignal signal;        /* a break or continue on its way to its loop */
    int captures;          /* how many callers will turn the current text into a value */
    size_t written;        /* while captures > 0: bytes that really are output */
    size_t out_start;      /* where this rendering began in out */
    mt_jinja_spans *spans;
    const struct tm *now;
    const char **digits; /* of the long integers in the context, in the arena */
    uint32_t n_digits, cap_digits;
} jrender;

mt_rc mt__j_fail(jrender *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
mt_rc mt__j_fail_rc(jrender *r, mt_rc rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
mt_rc mt__j_too_much(jrender *r); /* past the bound on memory */
mt_rc mt__j_too_long(jrender *r); /* past the bound on steps */
mt_rc mt__j_too_deep(jrender *r);

/* Count n units of work, or fail with MT_ERANGE.  A unit is a node or an item and takes some 20 ns. */
static inline mt_rc mt__j_steps(jrender *r, size_t n)
{
    if (n > r->steps_left) return mt__j_too_long(r);
    r->steps_left -= n;
    return MT_OK;
}

/* Count n bytes of text that are read, compared or copied.  Short texts are part of the step that led to them. */
enum { JINJA_BYTES_PER_STEP = 16 };
static inline mt_rc mt__j_touch(jrender *r, size_t n) { return mt__j_steps(r, n / JINJA_BYTES_PER_STEP); }
/* Count n bytes that a loop looks at, classifies or writes one by one. */
enum { JINJA_WALKED_PER_STEP = 2 };
static inline mt_rc mt__j_walk(jrender *r, size_t n) { return mt__j_steps(r, n / JINJA_WALKED_PER_STEP); }
/* Count n small things that are looked at: names of a frame, entries of a dict. */
static inline mt_rc mt__j_look(jrender *r, size_t n) { return mt__j_steps(r, n / 8); }

/* Enter one level of recursion, or fail with MT_ERANGE.  Undo with r->depth--. */
enum { JINJA_MAX_DEPTH = 1500 };
static inline mt_rc mt__j_deeper(jrender *r)
{
    return ++r->depth > JINJA_MAX_DEPTH || mt_stack_low(r->stack_floor) ? mt__j_too_deep(r) : MT_OK;
}

static inline size_t mt__j_mark(const jrender *r) { return r->out->n; }
mt_rc mt__j_cut(jrender *r, size_t mark, jval *out);
mt_rc mt__j_check_out(jrender *r); /* the output is within bounds and has not run out of memory */

/* object.c: making values */
mt_rc mt__j_new(jrender *r, size_t bytes, void *out_ptr);
mt_rc mt__j_copy_text(jrender *r, const char *s, size_t n, jval *out);
mt_rc mt__j_new_list(jrender *r, jtype type, size_t n, jval *out, jval **items); /* items to be filled in */
mt_rc mt__j_new_pair(jrender *r, jval a, jval b, jval *out);
mt_rc mt__j_new_dict(jrender *r, size_t cap, jval *out, jdict **dict);
mt_rc mt__j_dict_put(jrender *r, jdict *d, jval key, jval value);                             /* room must be there */
mt_rc mt__j_dict_find(jrender *r, const jdict *d, jval key, const jval **out);                /* *out NULL: not there */
mt_rc mt__j_dict_text(jrender *r, const jdict *d, const char *s, size_t n, const jval **out); /* a string as key */
mt_rc mt__j_hashable(jrender *r, jval v, bool *out);                                          /* may be a key */
mt_rc mt__j_from_value(jrender *r, const mt_value *v, jval *out);
mt_rc mt__j_truth(jrender *r, jval v, bool *out);
mt_rc mt__j_length(jrender *r, jval v, int64_t *out); /* len(v) */

/* repr.c */
mt_rc mt__j_put_str(jrender *r, jval v);  /* append str(v) to the output */
mt_rc mt__j_put_repr(jrender *r, jval v); /* append repr(v) */
mt_rc mt__j_str(jrender *r, jval v, jval *out);
void mt__j_put_float(mt_str *out, double f);
void mt__j_put_digits(jrender *r, jval v);   /* a long integer */
mt_rc mt__j_put_escaped(jrender *r, jval v); /* & < > " ' as entities, unless it is markup already */

/* tojson.c */
typedef struct jjson {
    bool ensure_ascii, sort_keys, pretty;
    jval indent, item_sep, key_sep; /* strings */
} jjson;
mt_rc mt__j_put_json(jrender *r, jval v, const jjson *how);

/* compare.c */
mt_rc mt__j_equal(jrender *r, jval a, jval b, bool *out);
mt_rc mt__j_less(jrender *r, jval a, jval b, bool *out, const char *op); /* a < b, or TypeError naming op */
mt_rc mt__j_compare(jrender *r, jop op, jval a, jval b, bool *out);
mt_rc mt__j_contains(jrender *r, jval where, jval what, bool *out);
/* Stable; keys[i] belongs to items[i]; reverse keeps equal items in order. */
mt_rc mt__j_sort(jrender *r, jval *keys, jval *items, size_t n, bool reverse);

/* arith.c, format.c */
mt_rc mt__j_binary(jrender *r, jop op, jval a, jval b, jval *out);
mt_rc mt__j_negate(jrender *r, jval v, jval *out, bool minus);
mt_rc mt__j_percent(jrender *r, jval format, jval values, jval *out); /* "%s" % values */
mt_rc mt__j_str_format(jrender *r, jval format, const jargs *args, jval *out);
mt_rc mt__j_join(jrender *r, jval a, jval b, jval *out); /* two strings, markup minded */

/* attr.c */
mt_rc mt__j_getattr(jrender *r, jval v, jval name, int method, jval *out);
/* method: as in N_ATTR for a constant string, or -1 when it must be looked up. */
mt_rc mt__j_getitem(jrender *r, jval v, jval index, int method, jval *out);
mt_rc mt__j_use_undefined(jrender *r, jval v); /* the error for using an undefined value */

/* iter.c */
typedef mt_rc jnext(jrender *r, jiter *it, jval *out); /* *out is MISSING at the end */
struct jiter {
    jnext *next;
    jval over;
    size_t at, step;
    void *state;
    const char *what; /* Python's name for it */
};
mt_rc mt__j_iterate(jrender *r, jval v, jiter *it); /* start walking v, or TypeError */
mt_rc mt__j_new_iter(jrender *r, jnext *next, jval over, void *state, const char *what, jval *out); /* over: its own iterator */
mt_rc mt__j_collect(jrender *r, jval v, jval *list);                                                /* list(v) */
static inline mt_rc mt__j_next(jrender *r, jiter *it, jval *out)
{
    MT_TRY(mt__j_steps(r, 1));
    MT_TRY(mt__j_deeper(r)); /* generators are made of generators */
    MT_TRY(it->next(r, it, out));
    r->depth--;
    return MT_OK;
}

/* call.c */
mt_rc mt__j_call(jrender *r, jval callee, const jargs *args, jval *out);
mt_rc mt__j_call_method(jrender *r, int method, jval self, const jargs *args, jval *out);
/* Sort arguments into out[] by the names in spec ("width,first,blank"): MISSING where none was given. */
mt_rc mt__j_bind_args(jrender *r, const char *what, const char *spec, int n_required, const jargs *args, jval *out);

/* eval.c, exec.c, loop.c */
mt_rc mt__j_eval(jrender *r, const jnode *n, jval *out);
mt_rc mt__j_print(jrender *r, const jnode *n);                              /* append str() of an expression */
mt_rc mt__j_eval_filter(jrender *r, const jnode *n, jval input, jval *out); /* a chain whose first input is a block's text */
mt_rc mt__j_eval_args(jrender *r, const jnode *n, uint32_t first, jargs *out);
mt_rc mt__j_exec(jrender *r, const jnode *n);
mt_rc mt__j_assign(jrender *r, const jnode *target, jval v);
mt_rc mt__j_enter_frame(jrender *r, const jframe *f);
mt_rc mt__j_activate(jrender *r, const jframe *f, jactivation *outer, jactivation *act);
mt_rc mt__j_exec_for(jrender *r, const jnode *n);
mt_rc mt__j_loop_attr(jrender *r, jloop *loop, jval name, jval *out);
mt_rc mt__j_loop_call(jrender *r, jloop *loop, const jargs *args, jval *out);
mt_rc mt__j_loop_method(jrender *r, jloop *loop, bool is_cycle, const jargs *args, jval *out);
mt_rc mt__j_put_loop(jrender *r, jloop *loop);

/* Capturing what a body writes: between these two, output becomes a value (or, abandoned, nothing). */
size_t mt__j_capture(jrender *r);
mt_rc mt__j_captured(jrender *r, size_t mark, jval *out);
mt_rc mt__j_capture_abandon(jrender *r, size_t mark);

static inline jval *mt__j_slot(const jrender *r, jref ref)
{
    jactivation *a = r->act;
    for (uint32_t i = 0; i < ref.hops; i++) a = a->outer;
    return &a->slots[ref.slot];
}

#endif
