/* regex_program.c - the tree of a pattern becomes a program for regex.c.
 *
 * What is repeated a number of times is written that many times, unless it is a single character: those run in one instruction.
 * A program has a bound, so a tower of repetitions is refused. */
#include "tokenizer/regex_impl.h"

#include "base/utf8.h"

#include <string.h>

enum { MAX_WORK = 1 << 18 }; /* nodes written, and so instructions */

typedef struct writer {
    mt_regex *re;
    size_t work;
    mt_err *err;
} writer;

static mt_rc write_node(writer *w, const mt__node *node);

static mt_rc put(writer *w, mt__insn insn)
{
    mt_regex *re = w->re;
    if (re->n_code == re->cap_code) MT_TRY(mt_grow(&re->code, &re->cap_code, re->n_code + 1, sizeof *re->code, w->err));
    re->code[re->n_code++] = insn;
    return MT_OK;
}
static mt_rc put_code(writer *w, mt__code code, uint32_t a) { return put(w, (mt__insn){ .code = (uint8_t)code, .a = a }); }
static uint32_t here(const writer *w) { return (uint32_t)w->re->n_code; }

/* A group of one alternative in which one thing stands is that thing. */
static const mt__node *unwrap(const mt__node *node)
{
    while ((node->kind == MT__NODE_ALT || node->kind == MT__NODE_CAT) && node->child && !node->child->next) node = node->child;
    return node;
}

/* ---- lengths in characters ---- */

static uint32_t times(uint32_t a, uint32_t b)
{
    uint64_t x = (uint64_t)a * b;
    return x > MT__NO_MOST || ((a == MT__NO_MOST || b == MT__NO_MOST) && x) ? MT__NO_MOST : (uint32_t)x;
}
static uint32_t plus(uint32_t a, uint32_t b) { return a > MT__NO_MOST - b ? MT__NO_MOST : a + b; }

typedef struct lengths {
    uint32_t least, most;
} lengths;

static lengths lengths_of(const mt__node *node)
{
    lengths all = { 0 };
    switch (node->kind) {
    case MT__NODE_CHAR:
    case MT__NODE_SET: return (lengths){ 1, 1 };
    case MT__NODE_AT:
    case MT__NODE_LOOK: return all;
    case MT__NODE_ATOMIC: return lengths_of(node->child);
    case MT__NODE_REPEAT:
        all = lengths_of(node->child);
        return (lengths){ times(all.least, node->least), times(all.most, node->most) };
    case MT__NODE_CAT:
    case MT__NODE_ALT: break;
    }
    for (const mt__node *c = node->child; c; c = c->next) {
        lengths one = lengths_of(c);
        if (node->kind == MT__NODE_CAT)
            all = (lengths){ plus(all.least, one.least), plus(all.most, one.most) };
        else if (c == node->child)
            all = one;
        else
            all = (lengths){ one.least < all.least ? one.least : all.least, one.most > all.most ? one.most : all.most };
    }
    return all;
}

/* ---- nodes ---- */

/* The characters from `node` on that stand for themselves; *node becomes what follows. */
static mt_rc write_chars(writer *w, const mt__node **node)
{
    mt_regex *re = w->re;
    const size_t begin = re->n_text;
    for (; *node && (*node)->kind == MT__NODE_CHAR; *node = (*node)->next) {
        MT_TRY(mt_grow(&re->text, &re->cap_text, re->n_text + 4, 1, w->err));
        re->n_text += (size_t)mt_utf8_encode((*node)->value, re->text + re->n_text);
    }
    return put(w, (mt__insn){ .code = MT__BYTES, .a = (uint32_t)begin, .b = (uint32_t)(re->n_text - begin) });
}

static mt_rc write_row(writer *w, const mt__node *node)
{
    for (const mt__node *c = node->child; c;) {
        if (c->kind == MT__NODE_CHAR) {
            MT_TRY(write_chars(w, &c));
            continue;
        }
        MT_TRY(write_node(w, c));
        c = c->next;
    }
    return MT_OK;
}

/* Each alternative but the last: SPLIT to it or the next one, and JUMP to the end.  Jumps are chained through `a` until it is known. */
static mt_rc write_alternatives(writer *w, const mt__node *node)
{
    uint32_t jumps = MT__NO_MOST;
    for (const mt__node *c = node->child; c; c = c->next) {
        const uint32_t split = here(w);
        if (c->next) MT_TRY(put_code(w, MT__SPLIT, split + 1));
        MT_TRY(write_node(w, c));
        if (!c->next) break;
        MT_TRY(put_code(w, MT__JUMP, jumps));
        jumps = here(w) - 1;
        w->re->code[split].b = here(w);
    }
    for (uint32_t next; jumps != MT__NO_MOST; jumps = next) {
        next = w->re->code[jumps].a;
        w->re->code[jumps].a = here(w);
    }
    return MT_OK;
}

/* A set for a repeated character. */
static mt_rc set_of(writer *w, const mt__node *one, uint32_t *set)
{
    mt_regex *re = w->re;
    mt__set s = { 0 };
    *set = one->value;
    if (one->kind == MT__NODE_SET) return MT_OK;
    MT_TRY(mt_grow(&re->sets, &re->cap_sets, re->n_sets + 1, sizeof *re->sets, w->err));
    MT_TRY(mt__set_add(&s, one->value, one->value, w->err));
    mt__set_seal(&s);
    *set = (uint32_t)re->n_sets;
    re->sets[re->n_sets++] = s;
    return MT_OK;
}

/* The ways of a SPLIT: into what is repeated, or past it. */
static void set_split(writer *w, uint32_t split, bool lazy, uint32_t in, uint32_t past)
{
    w->re->code[split].a = lazy ? past : in;
    w->re->code[split].b = lazy ? in : past;
}

/* What may match nothing must not do so forever: ENTER and LEAVE stand around it. */
static mt_rc write_guarded(writer *w, const mt__node *child, bool guarded, uint32_t *leave)
{
    const uint32_t slot = w->re->n_slots;
    *leave = MT__NO_MOST;
    if (!guarded) return write_node(w, child);
    w->re->n_slots++;
    MT_TRY(put_code(w, MT__ENTER, slot));
    MT_TRY(write_node(w, child));
    *leave = here(w);
    return put_code(w, MT__LEAVE, slot);
}

static mt_rc write_endless(writer *w, const mt__node *node, const mt__node *child)
{
    const bool guarded = lengths_of(child).least == 0, lazy = node->greed == MT__LAZY;
    const uint32_t begin = here(w);
    uint32_t leave, split = begin;
    if (!node->least) MT_TRY(put_code(w, MT__SPLIT, 0));
    MT_TRY(write_guarded(w, child, guarded, &leave));
    if (node->least) {
        split = here(w);
        MT_TRY(put_code(w, MT__SPLIT, 0));
        set_split(w, split, lazy, begin, here(w));
    } else {
        MT_TRY(put_code(w, MT__JUMP, begin));
        set_split(w, split, lazy, begin + 1, here(w));
    }
    if (guarded) w->re->code[leave].b = here(w);
    return MT_OK;
}

static mt_rc write_times(writer *w, const mt__node *node, const mt__node *child)
{
    const bool endless = node->most == MT__NO_MOST;
    uint32_t splits = MT__NO_MOST;
    for (uint32_t i = endless; i < node->least; i++) MT_TRY(write_node(w, child));
    if (endless) return write_endless(w, node, child);
    for (uint32_t i = node->least; i < node->most; i++) {
        MT_TRY(put_code(w, MT__SPLIT, splits));
        splits = here(w) - 1;
        MT_TRY(write_node(w, child));
    }
    for (uint32_t next; splits != MT__NO_MOST; splits = next) {
        next = w->re->code[splits].a;
        set_split(w, splits, node->greed == MT__LAZY, splits + 1, here(w));
    }
    return MT_OK;
}

static mt_rc write_repeat(writer *w, const mt__node *node)
{
    const mt__node *child = unwrap(node->child);
    if (child->kind == MT__NODE_CHAR || child->kind == MT__NODE_SET) {
        mt__insn run = { .code = MT__RUN, .greed = (uint8_t)node->greed, .least = node->least, .most = node->most };
        MT_TRY(set_of(w, child, &run.a));
        return put(w, run);
    }
    if (node->greed != MT__POSSESSIVE) return write_times(w, node, child);
    MT_TRY(put_code(w, MT__ATOM, 0));
    MT_TRY(write_times(w, node, child));
    return put_code(w, MT__CUT, 0);
}

static mt_rc write_look(writer *w, const mt__node *node)
{
    const uint32_t begin = here(w);
    MT_TRY(put_code(w, node->negative ? MT__NOT : MT__AHEAD, 0));
    lengths n = lengths_of(node->child);
    if (node->behind) MT_TRY(put(w, (mt__insn){ .code = MT__BEHIND, .least = n.least, .most = n.most }));
    MT_TRY(write_node(w, node->child));
    if (node->behind) MT_TRY(put_code(w, MT__BEHIND_END, 0));
    MT_TRY(put_code(w, node->negative ? MT__CUT_FAIL : MT__CUT_BACK, 0));
    if (node->negative) w->re->code[begin].a = here(w);
    return MT_OK;
}

static mt_rc write_node(writer *w, const mt__node *node)
{
    if (++w->work > MAX_WORK) return mt_fail(w->err, MT_ERANGE, "a regular expression whose repetitions multiply to too many");
    switch (node->kind) {
    case MT__NODE_CHAR: return write_chars(w, &node);
    case MT__NODE_SET: return put_code(w, MT__ONE, node->value);
    case MT__NODE_AT: return put_code(w, MT__AT, node->value);
    case MT__NODE_CAT: return write_row(w, node);
    case MT__NODE_ALT: return write_alternatives(w, node);
    case MT__NODE_REPEAT: return write_repeat(w, node);
    case MT__NODE_ATOMIC:
        MT_TRY(put_code(w, MT__ATOM, 0));
        MT_TRY(write_node(w, node->child));
        return put_code(w, MT__CUT, 0);
    case MT__NODE_LOOK: return write_look(w, node);
    }
    return MT_OK;
}

mt_rc mt__regex_compile(mt_regex *re, mt__tree *tree, mt_err *err)
{
    writer w = { .re = re, .err = err };
    re->sets = tree->sets;
    re->n_sets = tree->n_sets;
    re->cap_sets = tree->cap_sets;
    tree->sets = NULL;
    tree->n_sets = 0;
    MT_TRY(write_node(&w, tree->root));
    MT_TRY(put_code(&w, MT__MATCH, 0));
    MT_TRY(mt_grow(&re->sets, &re->cap_sets, re->n_sets + 1, sizeof *re->sets, err));
    mt__set *word = &re->sets[re->n_sets];
    *word = (mt__set){ 0 };
    re->n_sets++;
    MT_TRY(mt__set_add_word(word, err));
    mt__set_seal(word);
    return MT_OK;
}
