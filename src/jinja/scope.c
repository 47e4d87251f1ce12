/* scope.c - where each name lives, by the rules of Jinja's compiler (jinja2/idtracking.py).
 *
 * A frame first collects the names its own statements load and store, then hands every name in it a slot:
 *   - a name that is only loaded belongs to the nearest frame outward that knows it, else it is looked up in
 *     the context when the frame is entered;
 *   - a name that is stored is the frame's own.  It starts as the outer one's value if there is one; otherwise it
 *     starts as the context's value when it is loaded first or stored inside an {% if %} only, else as undefined.
 * {% if %} opens no frame; loop bodies, macros, call blocks, with, filter and block set do.  That is why a
 * {% set %} inside a loop is gone after it, and each turn of the loop starts again from the outer value. */
#include "jinja/parser.h"

#include "base/hash.h"
#include "jinja/global.h"

enum { MAX_NAMES = 1024 };

typedef struct function {
    uint32_t depth, n_slots;
} function;

typedef struct symbol {
    jval name;
    uint32_t slot;
    bool stored, is_parameter;
    jload load;
} symbol;

typedef struct symbols symbols;
struct symbols {
    symbols *parent;
    function *fn;
    symbol *items;
    size_t n, cap;
    uint16_t *table; /* 1 + the position of each item by its hash, once there are many */
    size_t mask;
    int branches; /* {% if %} bodies around the statement being looked at */
};

typedef struct resolver {
    mt_jinja *t;
    mt_err *err;
    size_t cap_globals;
    jglobal *globals;
    uintptr_t stack_floor; /* base/stack.h */
} resolver;

static mt_rc bind(resolver *r, symbols *s, jnode *n);

/* ---- the table of a frame ---- */

/* A frame has a handful of names, and a scan finds them fastest.  A hostile template has a thousand in each of 150 frames. */
enum { FEW_NAMES = 16 };

static uint64_t hash_name(jval name) { return mt_hash_keyed(name.s, name.n); }

static symbol *own(const symbols *s, jval name)
{
    if (!s->table) {
        for (size_t i = 0; i < s->n; i++)
            if (mt__j_same_text(s->items[i].name, name.s, name.n)) return &s->items[i];
        return NULL;
    }
    for (size_t at = hash_name(name) & s->mask; s->table[at]; at = (at + 1) & s->mask) {
        symbol *hit = &s->items[s->table[at] - 1];
        if (mt__j_same_text(hit->name, name.s, name.n)) return hit;
    }
    return NULL;
}

static symbol *scope_find(const symbols *s, jval name, const symbols **owner)
{
    for (; s; s = s->parent) {
        symbol *hit = own(s, name);
        if (hit) return *owner = s, hit;
    }
    return NULL;
}

static void put_in_table(symbols *s, size_t i)
{
    size_t at = hash_name(s->items[i].name) & s->mask;
    while (s->table[at]) at = (at + 1) & s->mask;
    s->table[at] = (uint16_t)(i + 1);
}

static void free_symbols(symbols *s)
{
    mt_free(s->items);
    mt_free(s->table);
}

static jref reference(const symbols *from, const symbols *owner, const symbol *to)
{
    return (jref){ .hops = from->fn->depth - owner->fn->depth, .slot = to->slot };
}

static mt_rc global_index(resolver *r, jval name, uint32_t *out)
{
    for (uint32_t i = 0; i < r->t->n_globals; i++)
        if (mt__j_same_text(r->globals[i].name, name.s, name.n)) return *out = i, MT_OK;
    if (r->t->n_globals == MAX_NAMES) return mt_fail(r->err, MT_EFORMAT, "%s: more than %d variables", r->t->name, MAX_NAMES);
    MT_TRY(mt_grow(&r->globals, &r->cap_globals, r->t->n_globals + 1, sizeof *r->globals, r->err));
    *out = r->t->n_globals++;
    r->globals[*out] = (jglobal){ .name = name, .builtin = mt__j_global_named(name) };
    return MT_OK;
}

static mt_rc define(resolver *r, symbols *s, jval name, symbol **out)
{
    if (s->n == MAX_NAMES) return mt_fail(r->err, MT_EFORMAT, "%s: more than %d names in one block", r->t->name, MAX_NAMES);
    MT_TRY(mt_grow(&s->items, &s->cap, s->n + 1, sizeof *s->items, r->err));
    *out = &s->items[s->n++];
    **out = (symbol){ .name = name, .slot = s->fn->n_slots++ };
    (*out)->load.slot = (*out)->slot;
    if (s->n > FEW_NAMES && !s->table) {
        s->table = mt_calloc(2 * MAX_NAMES, sizeof *s->table);
        if (!s->table) return mt_no_memory(r->err, "the template %s", r->t->name);
        s->mask = 2 * MAX_NAMES - 1;
        for (size_t i = 0; i < s->n; i++) put_in_table(s, i);
    } else if (s->table)
        put_in_table(s, s->n - 1);
    return MT_OK;
}

/* The tree may be a thousand nodes high, too high for a small stack. */
static mt_rc check_stack(const resolver *r, const jnode *n)
{
    if (!mt_stack_low(r->stack_floor)) return MT_OK;
    return mt_fail(r->err, MT_EFORMAT, "%s:%u:%u: nested deeper than the stack of this thread allows", r->t->name, n->line,
                   n->col);
}

/* The value a frame's own name starts with: the outer one's, or the context's. */
static mt_rc load_from_outside(resolver *r, const symbols *s, symbol *sym)
{
    const symbols *owner;
    const symbol *outer = s->parent ? scope_find(s->parent, sym->name, &owner) : NULL;
    if (outer) {
        sym->load.kind = LOAD_ALIAS;
        sym->load.from = reference(s, owner, outer);
        return MT_OK;
    }
    sym->load.kind = LOAD_CONTEXT;
    return global_index(r, sym->name, &sym->load.global);
}

static mt_rc load(resolver *r, symbols *s, jval name)
{
    const symbols *owner;
    if (scope_find(s, name, &owner)) return MT_OK;
    symbol *sym;
    MT_TRY(define(r, s, name, &sym));
    return load_from_outside(r, s, sym);
}

static mt_rc store(resolver *r, symbols *s, jval name)
{
    const symbols *owner;
    symbol *sym = own(s, name);
    bool is_new = !sym;
    if (sym && sym->stored) return MT_OK;
    if (is_new) MT_TRY(define(r, s, name, &sym));
    sym->stored = true;
    if (s->branches || (is_new && s->parent && scope_find(s->parent, name, &owner))) return load_from_outside(r, s, sym);
    if (is_new) sym->load.kind = LOAD_UNDEFINED;
    return MT_OK;
}

static mt_rc parameter(resolver *r, symbols *s, jval name, jref *ref)
{
    symbol *sym = own(s, name);
    if (!sym) MT_TRY(define(r, s, name, &sym));
    sym->stored = sym->is_parameter = true;
    if (ref) *ref = (jref){ .hops = 0, .slot = sym->slot };
    return MT_OK;
}

static mt_rc parameters(resolver *r, symbols *s, const jnode *target)
{
    if (target->kind == N_NAME) return parameter(r, s, target->name, NULL);
    for (uint32_t i = 0; i < target->n; i++) MT_TRY(parameters(r, s, target->kid[i]));
    return MT_OK;
}

/* ---- first pass: what a frame's own statements load and store ---- */

static mt_rc collect(resolver *r, symbols *s, const jnode *n);

static mt_rc collect_kids(resolver *r, symbols *s, const jnode *n)
{
    for (uint32_t i = 0; i < n->n; i++) MT_TRY(collect(r, s, n->kid[i]));
    return MT_OK;
}

static mt_rc collect_target(resolver *r, symbols *s, const jnode *n)
{
    if (n->kind == N_NAME) return store(r, s, n->name);
    if (n->kind == N_NSREF) return load(r, s, n->name);
    for (uint32_t i = 0; i < n->n; i++) MT_TRY(collect_target(r, s, n->kid[i]));
    return MT_OK;
}

static mt_rc collect_if(resolver *r, symbols *s, const jnode *n)
{
    for (uint32_t i = 0; i < n->n; i++) {
        bool is_test = i % 2 == 0 && i + 1 < n->n;
        /* tests after an elif run only if those before failed, but load nothing that depends on this */
        s->branches += !is_test;
        MT_TRY(collect(r, s, n->kid[i]));
        s->branches -= !is_test;
    }
    return MT_OK;
}

static mt_rc collect(resolver *r, symbols *s, const jnode *n)
{
    if (!n) return MT_OK;
    MT_TRY(check_stack(r, n));
    switch (n->kind) {
    case N_NAME: return load(r, s, n->name);
    case N_IF: return collect_if(r, s, n);
    case N_FOR: return collect(r, s, n->kid[0]);
    case N_SET: MT_TRY(collect(r, s, n->kid[1])); return collect_target(r, s, n->kid[0]);
    case N_SET_BLOCK: return collect_target(r, s, n->kid[0]);
    case N_MACRO: return store(r, s, n->name);
    case N_CALL_BLOCK: return collect(r, s, n->kid[n->n - 1]);
    case N_FILTER_BLOCK: return collect(r, s, n->kid[1]);
    case N_WITH:
        for (uint32_t i = 2; i < n->n; i += 2) MT_TRY(collect(r, s, n->kid[i]));
        return MT_OK;
    case N_SCOPE:
    case N_GENERATION: return MT_OK;
    default: return collect_kids(r, s, n);
    }
}

/* ---- second pass: references, and the frames inside ---- */

static mt_rc finish_frame(resolver *r, const symbols *s, jframe **out)
{
    jframe *f = mt_arena_calloc(&r->t->arena, 1, sizeof *f);
    jload *loads = f ? mt_arena_calloc(&r->t->arena, s->n, sizeof *loads) : NULL;
    if (!loads) return mt_no_memory(r->err, "the template %s", r->t->name);
    f->loads = loads;
    for (size_t i = 0; i < s->n; i++)
        if (!s->items[i].is_parameter) loads[f->n_loads++] = s->items[i].load;
    *out = f;
    return MT_OK;
}

static mt_rc bind_name(resolver *r, symbols *s, jnode *n)
{
    const symbols *owner = s;
    const symbol *sym = scope_find(s, n->name, &owner);
    if (!sym) { /* no statement contains the arguments of a block set's filter */
        MT_TRY(load(r, s, n->name));
        sym = scope_find(s, n->name, &owner);
    }
    n->ref = reference(s, owner, sym);
    return MT_OK;
}

static mt_rc bind_kids(resolver *r, symbols *s, jnode *n)
{
    for (uint32_t i = 0; i < n->n; i++) MT_TRY(bind(r, s, n->kid[i]));
    return MT_OK;
}

static mt_rc bind_loop_body(resolver *r, symbols *s, jnode *n)
{
    jval loop = mt__j_literal("loop");
    if (n->uses & USES_LOOP) MT_TRY(parameter(r, s, loop, &n->ref));
    MT_TRY(parameters(r, s, n->kid[1]));
    MT_TRY(collect(r, s, n->kid[2]));
    MT_TRY(bind(r, s, n->kid[1]));
    MT_TRY(bind(r, s, n->kid[2]));
    return finish_frame(r, s, &n->frame);
}

static mt_rc bind_loop_test(resolver *r, symbols *s, jnode *n)
{
    MT_TRY(parameters(r, s, n->kid[4]));
    MT_TRY(collect(r, s, n->kid[5]));
    MT_TRY(bind(r, s, n->kid[4]));
    MT_TRY(bind(r, s, n->kid[5]));
    return finish_frame(r, s, &n->test_frame);
}

static mt_rc bind_loop_else(resolver *r, symbols *s, jnode *n)
{
    MT_TRY(collect(r, s, n->kid[3]));
    MT_TRY(bind(r, s, n->kid[3]));
    return finish_frame(r, s, &n->else_frame);
}

static mt_rc bind_for(resolver *r, symbols *s, jnode *n)
{
    MT_TRY(bind(r, s, n->kid[0]));
    function own_fn = { .depth = s->fn->depth + 1 }, *fn = n->recursive ? &own_fn : s->fn;
    symbols body = { .parent = s, .fn = fn }, test = body, other = body;
    mt_rc rc = bind_loop_body(r, &body, n);
    if (!rc && n->kid[5]) rc = bind_loop_test(r, &test, n);
    if (!rc && n->kid[3]) rc = bind_loop_else(r, &other, n);
    if (!rc) n->frame->n_slots = fn->n_slots;
    free_symbols(&body);
    free_symbols(&test);
    free_symbols(&other);
    return rc;
}

/* with, filter, block set, autoescape: a frame of the same function. */
static mt_rc bind_inner(resolver *r, symbols *inner, jnode *n, jnode *body, jnode *filter)
{
    if (n->kind == N_WITH)
        for (uint32_t i = 1; i < n->n; i += 2) {
            MT_TRY(parameters(r, inner, n->kid[i]));
            MT_TRY(bind(r, inner, n->kid[i]));
        }
    MT_TRY(collect(r, inner, body));
    MT_TRY(collect(r, inner, filter));
    if (filter) MT_TRY(bind(r, inner, filter));
    MT_TRY(bind(r, inner, body));
    return finish_frame(r, inner, &n->frame);
}

static mt_rc bind_scope(resolver *r, symbols *s, jnode *n)
{
    bool is_set = n->kind == N_SET_BLOCK;
    symbols inner = { .parent = s, .fn = s->fn };
    if (is_set) MT_TRY(bind(r, s, n->kid[0]));
    if (n->kind == N_WITH)
        for (uint32_t i = 2; i < n->n; i += 2) MT_TRY(bind(r, s, n->kid[i]));
    jnode *filter = is_set || n->kind == N_FILTER_BLOCK ? n->kid[1] : NULL;
    mt_rc rc = bind_inner(r, &inner, n, is_set ? n->kid[2] : n->kid[0], filter);
    free_symbols(&inner);
    return rc;
}

static bool has_parameter(const jnode *n, const char *name)
{
    for (uint32_t i = 1; i <= n->n_params; i++)
        if (mt__j_is_text(n->kid[i]->name, name)) return true;
    return false;
}

static mt_rc bind_function_body(resolver *r, symbols *s, jnode *n)
{
    static const char *const specials[] = { "caller", "kwargs", "varargs" };
    uint32_t end = 1 + 2 * n->n_params;
    for (uint32_t i = 1; i <= n->n_params; i++) MT_TRY(parameter(r, s, n->kid[i]->name, &n->kid[i]->ref));
    for (uint32_t i = 1 + n->n_params; i < end; i++) MT_TRY(collect(r, s, n->kid[i]));
    MT_TRY(collect(r, s, n->kid[0]));
    for (int i = 0; i < 3; i++) {
        uint8_t bit = (uint8_t)(USES_CALLER << i);
        if (!(n->uses & bit)) continue;
        if (has_parameter(n, specials[i]))
            n->uses &= (uint8_t)~bit;
        else
            MT_TRY(parameter(r, s, mt__j_literal(specials[i]), &n->special[i]));
    }
    for (uint32_t i = 1 + n->n_params; i < end; i++) MT_TRY(bind(r, s, n->kid[i]));
    MT_TRY(bind(r, s, n->kid[0]));
    MT_TRY(finish_frame(r, s, &n->frame));
    n->frame->n_slots = s->fn->n_slots;
    return MT_OK;
}

static mt_rc bind_function(resolver *r, symbols *s, jnode *n)
{
    function fn = { .depth = s->fn->depth + 1 };
    symbols inner = { .parent = s, .fn = &fn };
    if (n->kind == N_MACRO) MT_TRY(bind_name(r, s, n));
    if (n->kind == N_CALL_BLOCK) MT_TRY(bind(r, s, n->kid[n->n - 1]));
    mt_rc rc = bind_function_body(r, &inner, n);
    free_symbols(&inner);
    return rc;
}

static mt_rc bind(resolver *r, symbols *s, jnode *n)
{
    if (!n) return MT_OK;
    MT_TRY(check_stack(r, n));
    switch (n->kind) {
    case N_NAME:
    case N_NSREF: return bind_name(r, s, n);
    case N_FOR: return bind_for(r, s, n);
    case N_WITH:
    case N_SCOPE:
    case N_FILTER_BLOCK:
    case N_SET_BLOCK: return bind_scope(r, s, n);
    case N_MACRO:
    case N_CALL_BLOCK:
    case N_GENERATION: return bind_function(r, s, n);
    default: return bind_kids(r, s, n);
    }
}

static mt_rc bind_frame(resolver *r, symbols *s, jnode *body)
{
    MT_TRY(collect(r, s, body));
    MT_TRY(bind(r, s, body));
    MT_TRY(finish_frame(r, s, &r->t->frame));
    r->t->frame->n_slots = s->fn->n_slots;
    return MT_OK;
}

static mt_rc keep_globals(resolver *r)
{
    r->t->globals = mt_arena_calloc(&r->t->arena, r->t->n_globals, sizeof *r->globals);
    if (!r->t->globals) return mt_no_memory(r->err, "the template %s", r->t->name);
    if (r->t->n_globals) memcpy(r->t->globals, r->globals, r->t->n_globals * sizeof *r->globals);
    return MT_OK;
}

mt_rc mt__j_resolve(mt_jinja *t, mt_err *err)
{
    resolver r = { .t = t, .err = err, .stack_floor = mt_stack_floor() };
    function fn = { 0 };
    symbols root = { .fn = &fn };
    mt_rc rc = bind_frame(&r, &root, t->body);
    if (!rc) rc = keep_globals(&r);
    free_symbols(&root);
    mt_free(r.globals);
    return rc;
}
