/* parser.c - what parsing expressions and statements has in common: tokens, nodes, limits, messages. */
#include "jinja/parser.h"

#include <stdarg.h>
#include <stdio.h>

enum { MAX_DEPTH = 150, MAX_HEIGHT = 1000 };

mt_rc mt__j_syntax(jparser *p, const jtoken *at, const char *fmt, ...)
{
    char message[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return mt_fail(p->err, MT_EFORMAT, "%s:%u:%u: %s", p->t->name, at->line, at->col, message);
}

mt_rc mt__j_enter(jparser *p)
{
    if (++p->depth > MAX_DEPTH) return mt__j_syntax(p, p->tok, "nested deeper than %d levels", MAX_DEPTH);
    if (!mt_stack_low(p->stack_floor)) return MT_OK;
    return mt__j_syntax(p, p->tok, "nested deeper than the stack of this thread allows (%d levels)", p->depth);
}

mt_rc mt__j_node(jparser *p, jnode **out, jkind kind, const jtoken *at)
{
    *out = mt_arena_calloc(&p->t->arena, 1, sizeof **out);
    if (!*out) return mt_no_memory(p->err, "the template %s", p->t->name);
    (*out)->kind = (uint8_t)kind;
    (*out)->line = at->line;
    (*out)->col = at->col;
    return MT_OK;
}

mt_rc mt__j_push(jparser *p, jnode *child)
{
    MT_TRY(mt_grow(&p->stack, &p->cap_stack, p->n_stack + 1, sizeof *p->stack, p->err));
    p->stack[p->n_stack++] = child;
    return MT_OK;
}

mt_rc mt__j_adopt(jparser *p, jnode *node, size_t base)
{
    size_t n = p->n_stack - base;
    node->kid = mt_arena_calloc(&p->t->arena, n, sizeof(jnode *));
    if (!node->kid) return mt_no_memory(p->err, "the template %s", p->t->name);
    if (n) memcpy(node->kid, p->stack + base, n * sizeof(jnode *));
    node->n = (uint32_t)n;
    p->n_stack = base;
    for (size_t i = 0; i < n; i++)
        if (node->kid[i] && node->kid[i]->height >= node->height) node->height = (uint16_t)(node->kid[i]->height + 1);
    if (node->height <= MAX_HEIGHT) return MT_OK;
    return mt_fail(p->err, MT_EFORMAT, "%s:%u:%u: more than %d operations on top of each other", p->t->name, node->line,
                   node->col, MAX_HEIGHT);
}

bool mt__j_skip(jparser *p, int type)
{
    if (p->tok->type != type) return false;
    p->tok++;
    return true;
}

bool mt__j_skip_name(jparser *p, const char *name)
{
    if (!mt__j_at_name(p, name)) return false;
    p->tok++;
    return true;
}

const char *mt__j_token_text(const jtoken *t, char buf[64])
{
    static const struct {
        int type;
        const char *text;
    } names[] = {
        { T_EOF, "the end of the template" },
        { T_DATA, "text" },
        { T_PRINT_BEGIN, "'{{'" },
        { T_PRINT_END, "'}}'" },
        { T_TAG_BEGIN, "'{%'" },
        { T_TAG_END, "'%}'" },
        { T_NAME, "a name" },
        { T_STRING, "a string" },
        { T_INTEGER, "a number" },
        { T_FLOAT, "a number" },
        { T_EQ, "'=='" },
        { T_NE, "'!='" },
        { T_LE, "'<='" },
        { T_GE, "'>='" },
        { T_FLOORDIV, "'//'" },
        { T_POW, "'**'" },
    };
    if (t->type == T_NAME && t->value.n && t->value.n < 48) {
        snprintf(buf, 64, "'%.*s'", (int)t->value.n, t->value.s);
        return buf;
    }
    for (size_t i = 0; i < MT_COUNT(names); i++)
        if (names[i].type == t->type) return names[i].text;
    snprintf(buf, 64, "'%c'", t->type);
    return buf;
}

mt_rc mt__j_expect(jparser *p, int type)
{
    if (p->tok->type == type) {
        p->tok++;
        return MT_OK;
    }
    char want[64], got[64];
    jtoken wanted = { .type = type };
    return mt__j_syntax(p, p->tok, "%s was expected, not %s", mt__j_token_text(&wanted, want), mt__j_token_text(p->tok, got));
}

mt_rc mt__j_expect_name(jparser *p, const char *name)
{
    char got[64];
    if (mt__j_skip_name(p, name)) return MT_OK;
    return mt__j_syntax(p, p->tok, "'%s' was expected, not %s", name, mt__j_token_text(p->tok, got));
}

mt_rc mt__j_combine(jparser *p, jnode **out, jkind kind, const jtoken *at, jnode *a, jnode *b)
{
    size_t base = p->n_stack;
    MT_TRY(mt__j_node(p, out, kind, at));
    MT_TRY(mt__j_push(p, a));
    if (b) MT_TRY(mt__j_push(p, b));
    return mt__j_adopt(p, *out, base);
}
