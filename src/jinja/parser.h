/* parser.h - what the parts of the parser share: parse_primary.c, parse_expr.c and parse_stmt.c. */
#ifndef MT_JINJA_PARSER_H
#define MT_JINJA_PARSER_H

#include "base/arena.h"
#include "base/stack.h"
#include "jinja/ast.h"
#include "jinja/lexer.h"

typedef struct jparser {
    mt_jinja *t;
    const jtoken *tok; /* the current token; the one after T_EOF is never read */
    mt_err *err;
    int depth;
    uintptr_t stack_floor; /* base/stack.h */
    int in_if;             /* inside {% if %}: unknown filters fail when reached, not before */
    int in_loop;           /* loops of this function around here: where break may stand */
    int in_for;            /* {% for %} tags around here, functions or not: where `loop` is not to be assigned */
    uint8_t uses;          /* special names seen since it was last cleared */
    jnode **stack;         /* children of the nodes being parsed, innermost last */
    size_t n_stack, cap_stack;
} jparser;

mt_rc mt__j_syntax(jparser *p, const jtoken *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
mt_rc mt__j_node(jparser *p, jnode **out, jkind kind, const jtoken *at);
/* Give node the children on the stack from `base` on, and take them off. */
mt_rc mt__j_adopt(jparser *p, jnode *node, size_t base);
mt_rc mt__j_push(jparser *p, jnode *child);
/* A node with one or two children that are already parsed; b may be NULL. */
mt_rc mt__j_combine(jparser *p, jnode **out, jkind kind, const jtoken *at, jnode *a, jnode *b);
mt_rc mt__j_enter(jparser *p); /* one level deeper, or an error */
static inline void mt__j_leave(jparser *p) { p->depth--; }

static inline bool mt__j_at_name(const jparser *p, const char *name)
{
    return p->tok->type == T_NAME && mt__j_same_text(p->tok->value, name, strlen(name));
}
bool mt__j_skip_name(jparser *p, const char *name);
bool mt__j_skip(jparser *p, int type);
mt_rc mt__j_expect(jparser *p, int type);
mt_rc mt__j_expect_name(jparser *p, const char *name);
const char *mt__j_token_text(const jtoken *t, char buf[64]);

/* with_namespace: `ns.attr` may stand here as a target. */
mt_rc mt__j_parse_primary(jparser *p, jnode **out, bool with_namespace);
mt_rc mt__j_parse_postfix(jparser *p, jnode **node);     /* .name [index] (call), as many as follow */
mt_rc mt__j_parse_filter_expr(jparser *p, jnode **node); /* |filter, is test, (call) */
mt_rc mt__j_parse_expr(jparser *p, jnode **out, bool with_cond);
/* `a, b` is a tuple, `a` is a.  end_word: a word that ends it early ("in"), or NULL. */
mt_rc mt__j_parse_tuple(jparser *p, jnode **out, bool with_cond, const char *end_word, bool in_parens);
mt_rc mt__j_parse_target(jparser *p, jnode **out, const char *end_word, bool with_namespace);
mt_rc mt__j_parse_filters(jparser *p, jnode **out, jnode *input, bool first_is_bare);

mt_rc mt__j_parse_template(jparser *p, jnode **out);

/* scope.c: give every name its slot. */
mt_rc mt__j_resolve(mt_jinja *t, mt_err *err);

#endif
