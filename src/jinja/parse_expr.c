/* parse_expr.c - operators by recursive descent, one function for each level of Jinja's precedence:
 *     inline if < or < and < not < comparisons < + - < ~ < * / // % < ** < unary < filters, tests < . [] ()
 * The last two levels are in parse_primary.c. */
#include "jinja/parser.h"

static mt_rc parse_unary(jparser *p, jnode **out, bool with_filter);

static mt_rc parse_unary_inner(jparser *p, jnode **out, bool with_filter)
{
    const jtoken *at = p->tok;
    if (at->type == '-' || at->type == '+') {
        p->tok++;
        jnode *operand;
        MT_TRY(parse_unary(p, &operand, false));
        MT_TRY(mt__j_combine(p, out, at->type == '-' ? N_NEG : N_POS, at, operand, NULL));
    } else
        MT_TRY(mt__j_parse_primary(p, out, false));
    MT_TRY(mt__j_parse_postfix(p, out));
    return with_filter ? mt__j_parse_filter_expr(p, out) : MT_OK;
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
        MT_TRY(mt__j_combine(p, out, N_BINARY, at, *out, right));
        (*out)->op = OP_POW;
    }
    return MT_OK;
}

static mt_rc parse_product(jparser *p, jnode **out)
{
    MT_TRY(parse_power(p, out));
    for (;;) {
        const jtoken *at = p->tok;
        jop op;
        switch (at->type) {
        case '*': op = OP_MUL; break;
        case '/': op = OP_DIV; break;
        case T_FLOORDIV: op = OP_FLOORDIV; break;
        case '%': op = OP_MOD; break;
        default: return MT_OK;
        }
        p->tok++;
        jnode *right;
        MT_TRY(parse_power(p, &right));
        MT_TRY(mt__j_combine(p, out, N_BINARY, at, *out, right));
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
        MT_TRY(mt__j_combine(p, out, N_BINARY, at, *out, right));
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
    if (!copy) return mt_no_memory(p->err, "the template %s", p->t->name);
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
    return mt__j_combine(p, out, N_NOT, at, operand, NULL);
}

static mt_rc parse_and(jparser *p, jnode **out)
{
    MT_TRY(parse_not(p, out));
    while (mt__j_at_name(p, "and")) {
        const jtoken *at = p->tok++;
        jnode *right;
        MT_TRY(parse_not(p, &right));
        MT_TRY(mt__j_combine(p, out, N_AND, at, *out, right));
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
        MT_TRY(mt__j_combine(p, out, N_OR, at, *out, right));
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
        MT_TRY(of >= OF_TARGETS ? mt__j_parse_primary(p, out, of == OF_NAMESPACE_TARGETS)
                                : mt__j_parse_expr(p, out, of == OF_EXPRESSIONS));
        MT_TRY(mt__j_push(p, *out));
        if (p->tok->type != ',') break;
        is_tuple = true;
    }
    if (!is_tuple && p->n_stack > base) {
        p->n_stack = base;
        return MT_OK;
    }
    if (!is_tuple && !in_parens)
        return mt__j_syntax(p, p->tok, "an expression was expected, not %s", mt__j_token_text(p->tok, buf));
    MT_TRY(mt__j_node(p, out, N_TUPLE, at));
    return mt__j_adopt(p, *out, base);
}

mt_rc mt__j_parse_tuple(jparser *p, jnode **out, bool with_cond, const char *end_word, bool in_parens)
{
    return parse_tuple_of(p, out, with_cond ? OF_EXPRESSIONS : OF_CONDITIONLESS, end_word, in_parens);
}

static mt_rc check_target(jparser *p, const jtoken *at, const jnode *n)
{
    if (n->kind == N_NAME && p->in_for && mt__j_is_text(n->name, "loop"))
        return mt__j_syntax(p, at, "'loop' cannot be assigned inside a loop");
    if (n->kind == N_NAME || n->kind == N_NSREF) return MT_OK;
    if (n->kind != N_TUPLE) return mt__j_syntax(p, at, "this cannot be assigned to");
    for (uint32_t i = 0; i < n->n; i++) MT_TRY(check_target(p, at, n->kid[i]));
    return MT_OK;
}

mt_rc mt__j_parse_target(jparser *p, jnode **out, const char *end_word, bool with_namespace)
{
    const jtoken *at = p->tok;
    uint8_t uses = p->uses; /* a target is not a use of the name */
    MT_TRY(parse_tuple_of(p, out, with_namespace ? OF_NAMESPACE_TARGETS : OF_TARGETS, end_word, false));
    p->uses = uses;
    return check_target(p, at, *out);
}
