/* parse_expr.c - expressions by recursive descent, one function for each level of Jinja's precedence:
 *     inline if < or < and < not < comparisons < + - < ~ < * / // % < ** < unary < filters, tests < . [] ()
 * Filters, tests and methods are looked up here, once, so that rendering never compares their names. */
#include "jinja/parser.h"

#include "jinja/filter.h"
#include "jinja/method.h"

static mt_rc parse_unary(jparser *p, jnode **out, bool with_filter);
static mt_rc parse_not(jparser *p, jnode **out);
static mt_rc parse_sum(jparser *p, jnode **out);

/* A node with one or two children that are already parsed. */
static mt_rc combine(jparser *p, jnode **out, jkind kind, const jtoken *at, jnode *a, jnode *b)
{
    size_t base = p->n_stack;
    MT_TRY(mt__j_node(p, out, kind, at));
    MT_TRY(mt__j_push(p, a));
    if (b) MT_TRY(mt__j_push(p, b));
    return mt__j_adopt(p, *out, base);
}

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
        p->uses |= mt__j_is_text(name, "loop")      ? USES_LOOP
                   : mt__j_is_text(name, "caller")  ? USES_CALLER
                   : mt__j_is_text(name, "kwargs")  ? USES_KWARGS
                   : mt__j_is_text(name, "varargs") ? USES_VARARGS
                                                    : 0;
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
    if (!s) return mt_fail(p->err, MT_ENOMEM, "no memory for the template %s", p->t->name);
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

static mt_rc parse_primary(jparser *p, jnode **out, bool with_namespace)
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

/* ---- behind a primary: .name [index] (call) |filter is test ---- */

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
    MT_TRY(combine(p, node, N_ITEM, open, *node, index));
    if (index->kind == N_CONST && index->value.type == JV_STR) (*node)->method = (uint16_t)mt__j_method_id(index->value);
    return MT_OK;
}

static mt_rc parse_dot(jparser *p, jnode **node)
{
    const jtoken *dot = p->tok++, *what = p->tok++;
    if (what->type == T_NAME) {
        MT_TRY(combine(p, node, N_ATTR, what, *node, NULL));
        (*node)->name = what->value;
        (*node)->method = (uint16_t)mt__j_method_id(what->value);
        return MT_OK;
    }
    if (what->type != T_INTEGER) {
        p->tok--;
        return mt__j_syntax(p, what, "a name or a number was expected behind '.'");
    }
    jnode *index;
    MT_TRY(mt__j_node(p, &index, N_CONST, what));
    index->value = what->value;
    return combine(p, node, N_ITEM, dot, *node, index);
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
            if (mt__j_same_text(a->kw_names[i], at->value.s, at->value.n)) return mt__j_syntax(p, at, "an argument that is given twice");
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
    if (!names) return mt_fail(p->err, MT_ENOMEM, "no memory for the template %s", p->t->name);
    if (a->n_kw) memcpy(names, a->kw_names, a->n_kw * sizeof *names);
    node->call = (jcall){ .n_pos = (uint32_t)a->n_pos, .n_kw = (uint32_t)a->n_kw, .star = a->star, .double_star = a->double_star, .kw_names = names };
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

/* `(a, b, c=d, *e, **f)`: the children of node behind `first`. */
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

static mt_rc parse_postfix(jparser *p, jnode **node)
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
        const char *end = p->tok->value.s + p->tok->value.n;
        MT_TRY(mt__j_expect(p, T_NAME));
        *name = mt__j_text(name->s, (size_t)(end - name->s));
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
            MT_TRY(parse_primary(p, &argument, false));
            MT_TRY(parse_postfix(p, &argument));
            MT_TRY(mt__j_push(p, argument));
            test->call.n_pos = 1;
        }
        MT_TRY(mt__j_adopt(p, test, base));
    }
    *node = test;
    return negated ? combine(p, node, N_NOT, is, test, NULL) : MT_OK;
}

static mt_rc parse_filter_expr(jparser *p, jnode **node)
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

/* ---- operators ---- */

static mt_rc parse_unary_inner(jparser *p, jnode **out, bool with_filter)
{
    const jtoken *at = p->tok;
    if (at->type == '-' || at->type == '+') {
        p->tok++;
        jnode *operand;
        MT_TRY(parse_unary(p, &operand, false));
        MT_TRY(combine(p, out, at->type == '-' ? N_NEG : N_POS, at, operand, NULL));
    } else
        MT_TRY(parse_primary(p, out, false));
    MT_TRY(parse_postfix(p, out));
    return with_filter ? parse_filter_expr(p, out) : MT_OK;
}

static mt_rc parse_unary(jparser *p, jnode **out, bool with_filter)
{
    MT_TRY(mt__j_enter(p));
    MT_TRY(parse_unary_inner(p, out, with_filter));
    mt__j_leave(p);
    return MT_OK;
}

static mt_rc parse_power(jparser *p, jnode **out)
{
    MT_TRY(parse_unary(p, out, true));
    while (p->tok->type == T_POW) {
        const jtoken *at = p->tok++;
        jnode *right;
        MT_TRY(parse_unary(p, &right, true));
        MT_TRY(combine(p, out, N_BINARY, at, *out, right));
        (*out)->op = OP_POW;
    }
    return MT_OK;
}

static mt_rc parse_product(jparser *p, jnode **out)
{
    MT_TRY(parse_power(p, out));
    for (;;) {
        const jtoken *at = p->tok;
        jop op = at->type == '*' ? OP_MUL : at->type == '/' ? OP_DIV : at->type == T_FLOORDIV ? OP_FLOORDIV : OP_MOD;
        if (op == OP_MOD && at->type != '%') return MT_OK;
        p->tok++;
        jnode *right;
        MT_TRY(parse_power(p, &right));
        MT_TRY(combine(p, out, N_BINARY, at, *out, right));
        (*out)->op = (uint8_t)op;
    }
}

static mt_rc parse_concat(jparser *p, jnode **out)
{
    const jtoken *at = p->tok;
    size_t base = p->n_stack;
    MT_TRY(parse_product(p, out));
    if (p->tok->type != '~') return MT_OK;
    MT_TRY(mt__j_push(p, *out));
    while (mt__j_skip(p, '~')) {
        MT_TRY(parse_product(p, out));
        MT_TRY(mt__j_push(p, *out));
    }
    MT_TRY(mt__j_node(p, out, N_CONCAT, at));
    return mt__j_adopt(p, *out, base);
}

static mt_rc parse_sum(jparser *p, jnode **out)
{
    MT_TRY(parse_concat(p, out));
    while (p->tok->type == '+' || p->tok->type == '-') {
        const jtoken *at = p->tok++;
        jnode *right;
        MT_TRY(parse_concat(p, &right));
        MT_TRY(combine(p, out, N_BINARY, at, *out, right));
        (*out)->op = at->type == '+' ? OP_ADD : OP_SUB;
    }
    return MT_OK;
}

static bool take_comparison(jparser *p, uint8_t *op)
{
    switch (p->tok->type) {
    case T_EQ: *op = OP_EQ; break;
    case T_NE: *op = OP_NE; break;
    case '<': *op = OP_LT; break;
    case T_LE: *op = OP_LE; break;
    case '>': *op = OP_GT; break;
    case T_GE: *op = OP_GE; break;
    default:
        if (mt__j_at_name(p, "in"))
            *op = OP_IN;
        else if (mt__j_at_name(p, "not") && p->tok[1].type == T_NAME && mt__j_is_text(p->tok[1].value, "in")) {
            *op = OP_NOT_IN;
            p->tok++;
        } else
            return false;
    }
    p->tok++;
    return true;
}

static mt_rc parse_compare(jparser *p, jnode **out)
{
    const jtoken *at = p->tok;
    size_t base = p->n_stack;
    MT_TRY(parse_sum(p, out));
    uint8_t op, ops[64];
    size_t n = 0;
    while (at = p->tok, take_comparison(p, &op)) {
        if (n == 0) MT_TRY(mt__j_push(p, *out));
        if (n == sizeof ops) return mt__j_syntax(p, at, "more than 64 comparisons in a row");
        ops[n++] = op;
        MT_TRY(parse_sum(p, out));
        MT_TRY(mt__j_push(p, *out));
    }
    if (n == 0) return MT_OK;
    MT_TRY(mt__j_node(p, out, N_COMPARE, at));
    const void *copy = mt_arena_strndup(&p->t->arena, (const char *)ops, n);
    if (!copy) return mt_fail(p->err, MT_ENOMEM, "no memory for the template %s", p->t->name);
    (*out)->ops = copy;
    return mt__j_adopt(p, *out, base);
}

static mt_rc parse_not(jparser *p, jnode **out)
{
    const jtoken *at = p->tok;
    if (!mt__j_skip_name(p, "not")) return parse_compare(p, out);
    jnode *operand;
    MT_TRY(mt__j_enter(p));
    MT_TRY(parse_not(p, &operand));
    mt__j_leave(p);
    return combine(p, out, N_NOT, at, operand, NULL);
}

static mt_rc parse_and(jparser *p, jnode **out)
{
    MT_TRY(parse_not(p, out));
    while (mt__j_at_name(p, "and")) {
        const jtoken *at = p->tok++;
        jnode *right;
        MT_TRY(parse_not(p, &right));
        MT_TRY(combine(p, out, N_AND, at, *out, right));
    }
    return MT_OK;
}

static mt_rc parse_or(jparser *p, jnode **out)
{
    MT_TRY(parse_and(p, out));
    while (mt__j_at_name(p, "or")) {
        const jtoken *at = p->tok++;
        jnode *right;
        MT_TRY(parse_and(p, &right));
        MT_TRY(combine(p, out, N_OR, at, *out, right));
    }
    return MT_OK;
}

static mt_rc parse_condition(jparser *p, jnode **out)
{
    MT_TRY(parse_or(p, out));
    while (mt__j_at_name(p, "if")) {
        const jtoken *at = p->tok++;
        jnode *test, *other = NULL, *node;
        size_t base = p->n_stack;
        MT_TRY(parse_or(p, &test));
        if (mt__j_skip_name(p, "else")) MT_TRY(mt__j_parse_expr(p, &other, true));
        MT_TRY(mt__j_node(p, &node, N_COND, at));
        MT_TRY(mt__j_push(p, test));
        MT_TRY(mt__j_push(p, *out));
        MT_TRY(mt__j_push(p, other));
        MT_TRY(mt__j_adopt(p, node, base));
        *out = node;
    }
    return MT_OK;
}

mt_rc mt__j_parse_expr(jparser *p, jnode **out, bool with_cond)
{
    MT_TRY(mt__j_enter(p));
    MT_TRY(with_cond ? parse_condition(p, out) : parse_or(p, out));
    mt__j_leave(p);
    return MT_OK;
}

/* ---- tuples and targets ---- */

static bool tuple_ends(const jparser *p, const char *end_word)
{
    int t = p->tok->type;
    return t == T_PRINT_END || t == T_TAG_END || t == ')' || (end_word && mt__j_at_name(p, end_word));
}

typedef enum tuple_of { OF_EXPRESSIONS, OF_CONDITIONLESS, OF_TARGETS, OF_NAMESPACE_TARGETS } tuple_of;

static mt_rc parse_tuple_of(jparser *p, jnode **out, tuple_of of, const char *end_word, bool in_parens)
{
    const jtoken *at = p->tok;
    size_t base = p->n_stack;
    bool is_tuple = false;
    char buf[64];
    for (;;) {
        if (p->n_stack > base) MT_TRY(mt__j_expect(p, ','));
        if (tuple_ends(p, end_word)) break;
        MT_TRY(of >= OF_TARGETS ? parse_primary(p, out, of == OF_NAMESPACE_TARGETS) : mt__j_parse_expr(p, out, of == OF_EXPRESSIONS));
        MT_TRY(mt__j_push(p, *out));
        if (p->tok->type != ',') break;
        is_tuple = true;
    }
    if (!is_tuple && p->n_stack > base) {
        p->n_stack = base;
        return MT_OK;
    }
    if (!is_tuple && !in_parens) return mt__j_syntax(p, p->tok, "an expression was expected, not %s", mt__j_token_text(p->tok, buf));
    MT_TRY(mt__j_node(p, out, N_TUPLE, at));
    return mt__j_adopt(p, *out, base);
}

mt_rc mt__j_parse_tuple(jparser *p, jnode **out, bool with_cond, const char *end_word, bool in_parens)
{
    return parse_tuple_of(p, out, with_cond ? OF_EXPRESSIONS : OF_CONDITIONLESS, end_word, in_parens);
}

static mt_rc check_target(jparser *p, const jtoken *at, const jnode *n)
{
    if (n->kind == N_NAME && p->in_for && mt__j_is_text(n->name, "loop")) return mt__j_syntax(p, at, "'loop' cannot be assigned inside a loop");
    if (n->kind == N_NAME || n->kind == N_NSREF) return MT_OK;
    if (n->kind != N_TUPLE) return mt__j_syntax(p, at, "this cannot be assigned to");
    for (uint32_t i = 0; i < n->n; i++) MT_TRY(check_target(p, at, n->kid[i]));
    return MT_OK;
}

mt_rc mt__j_parse_target(jparser *p, jnode **out, const char *end_word, bool with_namespace)
{
    const jtoken *at = p->tok;
    uint8_t uses = p->uses; /* a target is no use of the name */
    MT_TRY(parse_tuple_of(p, out, with_namespace ? OF_NAMESPACE_TARGETS : OF_TARGETS, end_word, false));
    p->uses = uses;
    return check_target(p, at, *out);
}
