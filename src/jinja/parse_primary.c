/* parse_primary.c - the operands of expressions: literals and names, what follows them (.name [index] (call)), filters
 * and tests.  Filters, tests and methods are looked up here, once, so that rendering never compares their names. */
#include "jinja/filter.h"
#include "jinja/method.h"
#include "jinja/parser.h"

static mt_rc parse_primary_name(jparser *p, jnode **out, bool with_namespace)
{
    const jtoken *t = p->tok++;
    jval name = t->value;
    bool is_true = mt__j_is_text(name, "true") || mt__j_is_text(name, "True");
    MT_TRY(mt__j_node(p, out, N_CONST, t));
    jnode *n = *out;
    if (is_true || mt__j_is_text(name, "false") || mt__j_is_text(name, "False")) {
        n->value = mt__j_bool(is_true);
    } else if (mt__j_is_text(name, "none") || mt__j_is_text(name, "None")) {
        n->value = JV_NONE_VALUE;
    } else if (with_namespace && mt__j_skip(p, '.')) {
        n->kind = N_NSREF;
        n->name = name;
        if (p->tok->type != T_NAME) return mt__j_expect(p, T_NAME);
        n->value = p->tok++->value;
    } else {
        n->kind = N_NAME;
        n->name = name;
        if (mt__j_is_text(name, "loop")) p->uses |= USES_LOOP;
        if (mt__j_is_text(name, "caller")) p->uses |= USES_CALLER;
        if (mt__j_is_text(name, "kwargs")) p->uses |= USES_KWARGS;
        if (mt__j_is_text(name, "varargs")) p->uses |= USES_VARARGS;
    }
    return MT_OK;
}

/* Strings that follow each other are one. */
static mt_rc parse_strings(jparser *p, jnode **out)
{
    const jtoken *first = p->tok++;
    MT_TRY(mt__j_node(p, out, N_CONST, first));
    (*out)->value = first->value;
    size_t n = first->value.n;
    const jtoken *last = p->tok;
    for (; last->type == T_STRING; last++) n += last->value.n;
    if (last == p->tok) return MT_OK;
    char *s = mt_arena_alloc(&p->t->arena, n + 1), *dst = s;
    if (!s) return mt_no_memory(p->err, "the template %s", p->t->name);
    for (const jtoken *t = first; t < last; t++) {
        if (t->value.n) memcpy(dst, t->value.s, t->value.n);
        dst += t->value.n;
    }
    p->tok = last;
    (*out)->value = mt__j_text(s, n);
    return MT_OK;
}

static mt_rc parse_sequence(jparser *p, jnode **out, jkind kind, int close)
{
    size_t base = p->n_stack;
    MT_TRY(mt__j_node(p, out, kind, p->tok++));
    while (p->tok->type != close) {
        if (p->n_stack > base) MT_TRY(mt__j_expect(p, ','));
        if (p->tok->type == close) break;
        jnode *item;
        MT_TRY(mt__j_parse_expr(p, &item, true));
        MT_TRY(mt__j_push(p, item));
        if (kind != N_DICT) continue;
        MT_TRY(mt__j_expect(p, ':'));
        MT_TRY(mt__j_parse_expr(p, &item, true));
        MT_TRY(mt__j_push(p, item));
    }
    p->tok++;
    return mt__j_adopt(p, *out, base);
}

mt_rc mt__j_parse_primary(jparser *p, jnode **out, bool with_namespace)
{
    const jtoken *t = p->tok;
    char buf[64];
    switch (t->type) {
    case T_NAME: return parse_primary_name(p, out, with_namespace);
    case T_STRING: return parse_strings(p, out);
    case T_INTEGER:
    case T_FLOAT:
        p->tok++;
        MT_TRY(mt__j_node(p, out, N_CONST, t));
        (*out)->value = t->value;
        return MT_OK;
    case '(':
        p->tok++;
        MT_TRY(mt__j_parse_tuple(p, out, true, NULL, true));
        return mt__j_expect(p, ')');
    case '[': return parse_sequence(p, out, N_LIST, ']');
    case '{': return parse_sequence(p, out, N_DICT, '}');
    default: return mt__j_syntax(p, t, "an expression was expected, not %s", mt__j_token_text(t, buf));
    }
}

/* ---- after a primary: .name [index] (call) |filter is test ---- */

static mt_rc parse_slice_part(jparser *p, jnode **out)
{
    *out = NULL;
    if (p->tok->type == ':' || p->tok->type == ']' || p->tok->type == ',') return MT_OK;
    return mt__j_parse_expr(p, out, true);
}

static mt_rc parse_index(jparser *p, jnode **out)
{
    const jtoken *start = p->tok;
    jnode *part[3] = { 0 };
    if (p->tok->type != ':') {
        MT_TRY(mt__j_parse_expr(p, &part[0], true));
        if (p->tok->type != ':') {
            *out = part[0];
            return MT_OK;
        }
    }
    p->tok++;
    MT_TRY(parse_slice_part(p, &part[1]));
    if (mt__j_skip(p, ':')) MT_TRY(parse_slice_part(p, &part[2]));
    size_t base = p->n_stack;
    MT_TRY(mt__j_node(p, out, N_SLICE, start));
    for (int i = 0; i < 3; i++) MT_TRY(mt__j_push(p, part[i]));
    return mt__j_adopt(p, *out, base);
}

static mt_rc parse_brackets(jparser *p, jnode **node)
{
    const jtoken *open = p->tok++;
    size_t base = p->n_stack;
    jnode *index = NULL;
    while (p->tok->type != ']') {
        if (p->n_stack > base) MT_TRY(mt__j_expect(p, ','));
        MT_TRY(parse_index(p, &index));
        MT_TRY(mt__j_push(p, index));
    }
    p->tok++;
    if (p->n_stack == base + 1)
        p->n_stack = base;
    else {
        MT_TRY(mt__j_node(p, &index, N_TUPLE, open));
        MT_TRY(mt__j_adopt(p, index, base));
    }
    MT_TRY(mt__j_combine(p, node, N_ITEM, open, *node, index));
    if (index->kind == N_CONST && index->value.type == JV_STR) (*node)->method = (uint16_t)mt__j_method_id(index->value);
    return MT_OK;
}

static mt_rc parse_dot(jparser *p, jnode **node)
{
    const jtoken *dot = p->tok++, *what = p->tok++;
    if (what->type == T_NAME) {
        MT_TRY(mt__j_combine(p, node, N_ATTR, what, *node, NULL));
        (*node)->name = what->value;
        (*node)->method = (uint16_t)mt__j_method_id(what->value);
        return MT_OK;
    }
    if (what->type != T_INTEGER) {
        p->tok--;
        return mt__j_syntax(p, what, "expected a name or a number after '.'");
    }
    jnode *index;
    MT_TRY(mt__j_node(p, &index, N_CONST, what));
    index->value = what->value;
    return mt__j_combine(p, node, N_ITEM, dot, *node, index);
}

typedef struct arguments {
    size_t base; /* of the positional ones on the parser's stack */
    jval *kw_names;
    size_t n_kw, cap_kw;
    jnode **kw;
    size_t cap_kw_nodes;
    jnode *star, *double_star;
    size_t n_pos;
} arguments;

static mt_rc parse_argument(jparser *p, arguments *a)
{
    const jtoken *at = p->tok;
    jnode *value;
    if (at->type == '*' || at->type == T_POW) {
        jnode **dst = at->type == '*' ? &a->star : &a->double_star;
        if (*dst || a->double_star) return mt__j_syntax(p, at, "the arguments of a call are out of order");
        p->tok++;
        return mt__j_parse_expr(p, dst, true);
    }
    if (at->type == T_NAME && at[1].type == '=') {
        if (a->double_star) return mt__j_syntax(p, at, "the arguments of a call are out of order");
        for (size_t i = 0; i < a->n_kw; i++)
            if (mt__j_same_text(a->kw_names[i], at->value.s, at->value.n))
                return mt__j_syntax(p, at, "an argument that is given twice");
        p->tok += 2;
        MT_TRY(mt__j_parse_expr(p, &value, true));
        MT_TRY(mt_grow(&a->kw, &a->cap_kw_nodes, a->n_kw + 1, sizeof *a->kw, p->err));
        MT_TRY(mt_grow(&a->kw_names, &a->cap_kw, a->n_kw + 1, sizeof *a->kw_names, p->err));
        a->kw[a->n_kw] = value;
        a->kw_names[a->n_kw++] = at->value;
        return MT_OK;
    }
    if (a->star || a->double_star || a->n_kw) return mt__j_syntax(p, at, "the arguments of a call are out of order");
    MT_TRY(mt__j_parse_expr(p, &value, true));
    a->n_pos++;
    return mt__j_push(p, value);
}

static mt_rc finish_arguments(jparser *p, jnode *node, arguments *a)
{
    for (size_t i = 0; i < a->n_kw; i++) MT_TRY(mt__j_push(p, a->kw[i]));
    if (a->star) MT_TRY(mt__j_push(p, a->star));
    if (a->double_star) MT_TRY(mt__j_push(p, a->double_star));
    jval *names = mt_arena_calloc(&p->t->arena, a->n_kw, sizeof *names);
    if (!names) return mt_no_memory(p->err, "the template %s", p->t->name);
    if (a->n_kw) memcpy(names, a->kw_names, a->n_kw * sizeof *names);
    node->call = (jcall){
        .n_pos = (uint32_t)a->n_pos, .n_kw = (uint32_t)a->n_kw, .star = a->star, .double_star = a->double_star, .kw_names = names
    };
    return mt__j_adopt(p, node, a->base);
}

static mt_rc parse_arguments_into(jparser *p, jnode *node, arguments *a)
{
    for (bool more = false; p->tok->type != ')'; more = true) {
        if (more) MT_TRY(mt__j_expect(p, ','));
        if (p->tok->type == ')') break;
        MT_TRY(parse_argument(p, a));
    }
    p->tok++;
    return finish_arguments(p, node, a);
}

/* `(a, b, c=d, *e, **f)`: the children of node after `first`. */
static mt_rc parse_arguments(jparser *p, jnode *node, jnode *first)
{
    arguments a = { .base = p->n_stack };
    MT_TRY(mt__j_expect(p, '('));
    MT_TRY(mt__j_push(p, first));
    mt_rc rc = parse_arguments_into(p, node, &a);
    mt_free(a.kw);
    mt_free(a.kw_names);
    return rc;
}

static mt_rc parse_call(jparser *p, jnode **node)
{
    jnode *call;
    MT_TRY(mt__j_node(p, &call, N_CALL, p->tok));
    MT_TRY(parse_arguments(p, call, *node));
    *node = call;
    return MT_OK;
}

mt_rc mt__j_parse_postfix(jparser *p, jnode **node)
{
    for (;;) {
        if (p->tok->type == '.')
            MT_TRY(parse_dot(p, node));
        else if (p->tok->type == '[')
            MT_TRY(parse_brackets(p, node));
        else if (p->tok->type == '(')
            MT_TRY(parse_call(p, node));
        else
            return MT_OK;
    }
}

/* A filter's or a test's name, dots included. */
static mt_rc parse_dotted(jparser *p, jval *name)
{
    const jtoken *first = p->tok;
    MT_TRY(mt__j_expect(p, T_NAME));
    *name = first->value;
    while (p->tok->type == '.') {
        p->tok++;
        MT_TRY(mt__j_expect(p, T_NAME));
        const jval last = p->tok[-1].value;
        *name = mt__j_text(name->s, (size_t)(last.s + last.n - name->s));
    }
    return MT_OK;
}

static mt_rc check_entry(jparser *p, const jnode *node, const jtoken *at, const char *what)
{
    if (node->entry || p->in_if) return MT_OK;
    return mt__j_syntax(p, at, "no %s named '%.*s'", what, (int)node->name.n, node->name.s);
}

mt_rc mt__j_parse_filters(jparser *p, jnode **out, jnode *input, bool first_is_bare)
{
    *out = input;
    while (first_is_bare || p->tok->type == '|') {
        if (!first_is_bare) p->tok++;
        first_is_bare = false;
        const jtoken *at = p->tok;
        jnode *node;
        MT_TRY(mt__j_node(p, &node, N_FILTER, at));
        MT_TRY(parse_dotted(p, &node->name));
        node->entry = mt__j_filter_named(node->name.s, node->name.n);
        MT_TRY(check_entry(p, node, at, "filter"));
        if (p->tok->type == '(')
            MT_TRY(parse_arguments(p, node, *out));
        else {
            size_t base = p->n_stack;
            MT_TRY(mt__j_push(p, *out));
            MT_TRY(mt__j_adopt(p, node, base));
        }
        *out = node;
    }
    return MT_OK;
}

static bool starts_test_argument(const jparser *p)
{
    switch (p->tok->type) {
    case T_NAME: return !mt__j_at_name(p, "else") && !mt__j_at_name(p, "or") && !mt__j_at_name(p, "and");
    case T_STRING:
    case T_INTEGER:
    case T_FLOAT:
    case '[':
    case '{': return true;
    default: return false;
    }
}

static mt_rc parse_test(jparser *p, jnode **node)
{
    const jtoken *is = p->tok++;
    bool negated = mt__j_skip_name(p, "not");
    const jtoken *at = p->tok;
    jnode *test;
    MT_TRY(mt__j_node(p, &test, N_TEST, at));
    MT_TRY(parse_dotted(p, &test->name));
    test->entry = mt__j_test_named(test->name.s, test->name.n);
    MT_TRY(check_entry(p, test, at, "test"));
    if (p->tok->type == '(')
        MT_TRY(parse_arguments(p, test, *node));
    else {
        size_t base = p->n_stack;
        MT_TRY(mt__j_push(p, *node));
        if (starts_test_argument(p)) {
            if (mt__j_at_name(p, "is")) return mt__j_syntax(p, p->tok, "tests cannot be chained with 'is'");
            jnode *argument;
            MT_TRY(mt__j_parse_primary(p, &argument, false));
            MT_TRY(mt__j_parse_postfix(p, &argument));
            MT_TRY(mt__j_push(p, argument));
            test->call.n_pos = 1;
        }
        MT_TRY(mt__j_adopt(p, test, base));
    }
    *node = test;
    return negated ? mt__j_combine(p, node, N_NOT, is, test, NULL) : MT_OK;
}

mt_rc mt__j_parse_filter_expr(jparser *p, jnode **node)
{
    for (;;) {
        if (p->tok->type == '|')
            MT_TRY(mt__j_parse_filters(p, node, *node, false));
        else if (mt__j_at_name(p, "is"))
            MT_TRY(parse_test(p, node));
        else if (p->tok->type == '(')
            MT_TRY(parse_call(p, node));
        else
            return MT_OK;
    }
}
