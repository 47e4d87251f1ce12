/* ast.h - a parsed template: nodes in the template's arena, with every name already given its place.
 *
 * Nodes are uniform: a kind, children, and the few fields a kind needs.  Each kind below lists its children; a child may be NULL
 * if it says "or NULL".
 *
 * Names.  Jinja compiles templates to Python functions; a template, a macro, a call block, a generation block and a recursive
 * loop become functions, other blocks with a scope (loop bodies, with, block set, filter) share their function's variables under
 * other names.  Here a function has numbered slots, a reference is (functions outward, slot), and a frame lists the values to
 * load into its slots each time it is entered (scope.c). */
#ifndef MT_JINJA_AST_H
#define MT_JINJA_AST_H

#include "base/arena.h"
#include "jinja/jinja.h"
#include "jinja/object.h"

typedef enum jkind {
    /* expressions */
    N_CONST,   /* value */
    N_NAME,    /* name, ref */
    N_LIST,    /* items */
    N_TUPLE,   /* items */
    N_DICT,    /* key, value, key, value, ... */
    N_ATTR,    /* object; name, method */
    N_ITEM,    /* object, index; method if the index is a constant string */
    N_SLICE,   /* start, stop, step, each or NULL */
    N_CALL,    /* callee, arguments (call) */
    N_FILTER,  /* input (NULL: the text of the block), arguments; filter */
    N_TEST,    /* input, arguments; test */
    N_NOT,     /* operand */
    N_NEG,     /* operand */
    N_POS,     /* operand */
    N_BINARY,  /* left, right; op */
    N_CONCAT,  /* operands of ~ */
    N_AND,     /* left, right */
    N_OR,      /* left, right */
    N_COMPARE, /* first, then one operand for each of ops[] */
    N_COND,    /* test, then, else or NULL */
    /* statements */
    N_BLOCK,        /* statements */
    N_TEXT,         /* value */
    N_PRINT,        /* expression */
    N_IF,           /* test, block, test, block, ..., and a last block if there is an else */
    N_FOR,          /* iterable, target, block, else block or NULL, target of the test or NULL, test or NULL */
    N_SET,          /* target, expression */
    N_SET_BLOCK,    /* target, filter or NULL, block */
    N_NSREF,        /* (target) name.attr: name, ref, value is the attribute */
    N_MACRO,        /* block, parameters, their defaults or NULL; name, ref */
    N_CALL_BLOCK,   /* block, parameters, their defaults or NULL, the call */
    N_GENERATION,   /* block */
    N_WITH,         /* block, target, value, target, value, ... */
    N_FILTER_BLOCK, /* block, filter */
    N_SCOPE,        /* block: {% autoescape false %} */
    N_BREAK,
    N_CONTINUE,
} jkind;

typedef enum jop {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
} jop;

/* Special names whose use inside a body changes how it is run. */
enum { USES_LOOP = 1, USES_CALLER = 2, USES_KWARGS = 4, USES_VARARGS = 8 };

typedef struct jref {
    uint32_t hops, slot; /* functions outward, place there */
} jref;

typedef struct jload {
    uint32_t slot;
    enum { LOAD_UNDEFINED, LOAD_CONTEXT, LOAD_ALIAS } kind;
    jref from;       /* LOAD_ALIAS */
    uint32_t global; /* LOAD_CONTEXT: index into mt_jinja.globals */
} jload;

typedef struct jframe {
    jload *loads;
    uint32_t n_loads;
    uint32_t n_slots; /* of the function, where this frame is a function's outermost */
} jframe;

typedef struct jnode jnode;

typedef struct jcall {
    uint32_t n_pos, n_kw; /* children after the first: positional, keyword, *args, **kwargs */
    bool star, double_star;
    const jval *kw_names;
} jcall;

struct jnode {
    uint8_t kind, op;
    uint8_t uses;    /* USES_ bits of a body */
    bool recursive;  /* N_FOR */
    uint16_t height; /* of the tree below, bounded so that walking it is */
    uint16_t method; /* N_ATTR: the method this name may mean, 0 for none */
    uint32_t line, col;
    uint32_t n, n_params;
    jnode **kid;
    jval value;
    jval name;
    jref ref;        /* where name lives; N_FOR, with USES_LOOP: where `loop` does */
    jref special[3]; /* N_MACRO, N_CALL_BLOCK: caller, kwargs, varargs */
    jcall call;
    const uint8_t *ops;              /* N_COMPARE */
    const void *entry;               /* N_FILTER, N_TEST: its row in the table, NULL for an unknown name inside {% if %} */
    jframe *frame;                   /* of a body */
    jframe *else_frame, *test_frame; /* N_FOR */
};

typedef struct jglobal {
    jval name;
    jval builtin; /* the global function of that name, or MISSING */
} jglobal;

struct mt_jinja {
    mt_arena arena;
    const char *name;
    const char *text; /* newlines normalized; nodes point into it */
    jnode *body;
    jframe *frame;
    jglobal *globals; /* every name looked up in the context */
    uint32_t n_globals;
    bool has_generation;
};

#endif
