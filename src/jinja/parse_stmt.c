/* parse_stmt.c - the tags between {% and %}.  One function a tag; the table is at the end. */
#include "jinja/parser.h"

typedef mt_rc tag_parser(jparser *p, jnode **out);

typedef struct tag {
    const char *name;
    tag_parser *parse;
} tag;

static const tag *tag_at(const jparser *p);
static mt_rc parse_tag(jparser *p, jnode **out);

/* NULL-terminated words that end a body. */
typedef const char *const *words;

static bool at_any(const jparser *p, words end)
{
    for (; end && *end; end++)
        if (mt__j_at_name(p, *end)) return true;
    return false;
}

static mt_rc parse_piece(jparser *p)
{
    jnode *node, *inner;
    const jtoken *at = p->tok;
    if (at->type == T_DATA) {
        p->tok++;
        MT_TRY(mt__j_node(p, &node, N_TEXT, at));
        node->value = at->value;
        return mt__j_push(p, node);
    }
    if (at->type == T_PRINT_BEGIN) {
        p->tok++;
        size_t base = p->n_stack;
        MT_TRY(mt__j_node(p, &node, N_PRINT, p->tok));
        MT_TRY(mt__j_parse_tuple(p, &inner, true, NULL, false));
        MT_TRY(mt__j_push(p, inner));
        MT_TRY(mt__j_adopt(p, node, base));
        MT_TRY(mt__j_expect(p, T_PRINT_END));
        return mt__j_push(p, node);
    }
    MT_TRY(parse_tag(p, &node));
    MT_TRY(mt__j_expect(p, T_TAG_END));
    return mt__j_push(p, node);
}

/* Statements up to a tag that begins with one of the words (the current token afterwards), or the end. */
static mt_rc parse_block(jparser *p, jnode **out, words end, const jtoken *opened)
{
    size_t base = p->n_stack;
    MT_TRY(mt__j_enter(p));
    MT_TRY(mt__j_node(p, out, N_BLOCK, p->tok));
    for (;;) {
        if (p->tok->type == T_EOF) {
            if (!end) break;
            return mt__j_syntax(p, opened, "'%.*s' is not closed: the template ends where '%s' was expected",
                                (int)opened->value.n, opened->value.s, *end);
        }
        if (mt__j_skip(p, T_TAG_BEGIN) && at_any(p, end)) break;
        MT_TRY(parse_piece(p));
    }
    mt__j_leave(p);
    return mt__j_adopt(p, *out, base);
}

/* ":"? "%}" statements "{% word": the body of a tag.  The closing word is left for the caller. */
static mt_rc parse_body(jparser *p, jnode **out, words end, const jtoken *opened)
{
    mt__j_skip(p, ':');
    MT_TRY(mt__j_expect(p, T_TAG_END));
    return parse_block(p, out, end, opened);
}

static mt_rc parse_last_body(jparser *p, jnode **out, const char *end, const jtoken *opened)
{
    MT_TRY(parse_body(p, out, (const char *const[]){ end, NULL }, opened));
    p->tok++;
    return MT_OK;
}

static mt_rc parse_if(jparser *p, jnode **out)
{
    static const char *const ends[] = { "endif", "elif", "else", NULL };
    const jtoken *opened = p->tok;
    size_t base = p->n_stack;
    jnode *part;
    MT_TRY(mt__j_node(p, out, N_IF, opened));
    p->in_if++;
    do {
        p->tok++;
        MT_TRY(mt__j_parse_tuple(p, &part, false, NULL, false));
        MT_TRY(mt__j_push(p, part));
        MT_TRY(parse_body(p, &part, ends, opened));
        MT_TRY(mt__j_push(p, part));
    } while (mt__j_at_name(p, "elif"));
    if (mt__j_at_name(p, "else")) {
        p->tok++;
        MT_TRY(parse_body(p, &part, (const char *const[]){ "endif", NULL }, opened));
        MT_TRY(mt__j_push(p, part));
    }
    p->tok++;
    p->in_if--;
    return mt__j_adopt(p, *out, base);
}

/* A second copy of a loop's target: the loop's test assigns to separate slots (see N_FOR). */
static mt_rc copy_target(jparser *p, jnode **out, const jnode *from)
{
    const jtoken at = { .line = from->line, .col = from->col };
    size_t base = p->n_stack;
    MT_TRY(mt__j_node(p, out, from->kind, &at));
    (*out)->name = from->name;
    for (uint32_t i = 0; i < from->n; i++) {
        jnode *kid;
        MT_TRY(copy_target(p, &kid, from->kid[i]));
        MT_TRY(mt__j_push(p, kid));
    }
    return mt__j_adopt(p, *out, base);
}

static mt_rc parse_for_head(jparser *p, jnode *node, jnode *part[6])
{
    p->tok++;
    MT_TRY(mt__j_parse_target(p, &part[1], "in", false));
    MT_TRY(mt__j_expect_name(p, "in"));
    MT_TRY(mt__j_parse_tuple(p, &part[0], false, "recursive", false));
    if (mt__j_skip_name(p, "if")) {
        MT_TRY(copy_target(p, &part[4], part[1]));
        MT_TRY(mt__j_parse_expr(p, &part[5], true));
    }
    node->recursive = mt__j_skip_name(p, "recursive");
    return MT_OK;
}

static mt_rc parse_for(jparser *p, jnode **out)
{
    const jtoken *opened = p->tok;
    jnode *part[6] = { 0 };
    MT_TRY(mt__j_node(p, out, N_FOR, opened));
    p->in_for++;
    MT_TRY(parse_for_head(p, *out, part));
    uint8_t uses = p->uses;
    p->uses = 0;
    p->in_loop++;
    MT_TRY(parse_body(p, &part[2], (const char *const[]){ "endfor", "else", NULL }, opened));
    p->in_loop--;
    (*out)->uses = p->uses;
    if ((*out)->recursive) (*out)->uses |= USES_LOOP;
    p->uses |= uses;
    if (mt__j_skip_name(p, "else"))
        MT_TRY(parse_last_body(p, &part[3], "endfor", opened));
    else
        p->tok++;
    p->in_for--;
    size_t base = p->n_stack;
    for (int i = 0; i < 6; i++) MT_TRY(mt__j_push(p, part[i]));
    return mt__j_adopt(p, *out, base);
}

static mt_rc parse_set(jparser *p, jnode **out)
{
    const jtoken *opened = p->tok++;
    size_t base = p->n_stack;
    jnode *target, *part;
    MT_TRY(mt__j_parse_target(p, &target, NULL, true));
    bool inline_set = mt__j_skip(p, '=');
    MT_TRY(mt__j_node(p, out, inline_set ? N_SET : N_SET_BLOCK, opened));
    MT_TRY(mt__j_push(p, target));
    MT_TRY(inline_set ? mt__j_parse_tuple(p, &part, true, NULL, false) : mt__j_parse_filters(p, &part, NULL, false));
    MT_TRY(mt__j_push(p, part));
    if (!inline_set) {
        MT_TRY(parse_last_body(p, &part, "endset", opened));
        MT_TRY(mt__j_push(p, part));
    }
    return mt__j_adopt(p, *out, base);
}

static mt_rc parse_name_target(jparser *p, jnode **out)
{
    static const char *const constants[] = { "true", "false", "none", "True", "False", "None", NULL };
    if (at_any(p, constants)) return mt__j_syntax(p, p->tok, "this name is a constant");
    MT_TRY(mt__j_node(p, out, N_NAME, p->tok));
    (*out)->name = p->tok->value;
    return mt__j_expect(p, T_NAME);
}

/* "(a, b=1)": parameters are pushed; defaults[i] belongs to the i-th. */
static mt_rc parse_signature(jparser *p, jnode *node, jnode *defaults[], size_t max)
{
    MT_TRY(mt__j_expect(p, '('));
    while (p->tok->type != ')') {
        if (node->n_params) MT_TRY(mt__j_expect(p, ','));
        if (node->n_params == max) return mt__j_syntax(p, p->tok, "more than %zu parameters", max);
        jnode *name;
        const jtoken *at = p->tok;
        MT_TRY(parse_name_target(p, &name));
        MT_TRY(mt__j_push(p, name));
        jnode **value = &defaults[node->n_params];
        if (mt__j_skip(p, '='))
            MT_TRY(mt__j_parse_expr(p, value, true));
        else if (node->n_params && defaults[node->n_params - 1])
            return mt__j_syntax(p, at, "a parameter without a default follows one with");
        node->n_params++;
    }
    p->tok++;
    return MT_OK;
}

/* The body of a function: break does not reach out of it, and its special names are its own. */
static mt_rc parse_function_body(jparser *p, jnode *node, jnode **body, const char *end, const jtoken *opened)
{
    int in_loop = p->in_loop;
    uint8_t uses = p->uses;
    p->in_loop = 0;
    p->uses = 0;
    MT_TRY(parse_last_body(p, body, end, opened));
    node->uses = p->uses;
    p->in_loop = in_loop;
    p->uses |= uses;
    return MT_OK;
}

enum { MAX_PARAMS = 64 };

static mt_rc check_caller_parameter(jparser *p, const jnode *node, const jtoken *opened, jnode *const *params,
                                    jnode *const *defaults)
{
    for (uint32_t i = 0; (node->uses & USES_CALLER) && i < node->n_params; i++)
        if (mt__j_is_text(params[i]->name, "caller") && !defaults[i])
            return mt__j_syntax(p, opened, "a parameter named 'caller' needs a default");
    return MT_OK;
}

/* Macros and call blocks: the signature's tokens come first, the body last; a call block also has its call. */
static mt_rc parse_function(jparser *p, jnode *node, bool has_signature, bool has_call, const char *end, const jtoken *opened)
{
    jnode *defaults[MAX_PARAMS] = { 0 }, *call = NULL, *body;
    size_t base = p->n_stack;
    MT_TRY(mt__j_push(p, NULL)); /* the body's place */
    if (has_signature) MT_TRY(parse_signature(p, node, defaults, MAX_PARAMS));
    if (has_call) {
        const jtoken *at = p->tok;
        MT_TRY(mt__j_parse_expr(p, &call, true));
        if (call->kind != N_CALL) return mt__j_syntax(p, at, "a call was expected");
    }
    MT_TRY(parse_function_body(p, node, &body, end, opened));
    MT_TRY(check_caller_parameter(p, node, opened, p->stack + base + 1, defaults));
    p->stack[base] = body;
    for (uint32_t i = 0; i < node->n_params; i++) MT_TRY(mt__j_push(p, defaults[i]));
    if (has_call) MT_TRY(mt__j_push(p, call));
    return mt__j_adopt(p, node, base);
}

static mt_rc parse_macro(jparser *p, jnode **out)
{
    const jtoken *opened = p->tok++;
    jnode *name;
    MT_TRY(mt__j_node(p, out, N_MACRO, opened));
    MT_TRY(parse_name_target(p, &name));
    (*out)->name = name->name;
    return parse_function(p, *out, true, false, "endmacro", opened);
}

static mt_rc parse_call_block(jparser *p, jnode **out)
{
    const jtoken *opened = p->tok++;
    MT_TRY(mt__j_node(p, out, N_CALL_BLOCK, opened));
    return parse_function(p, *out, p->tok->type == '(', true, "endcall", opened);
}

static mt_rc parse_generation(jparser *p, jnode **out)
{
    const jtoken *opened = p->tok++;
    MT_TRY(mt__j_node(p, out, N_GENERATION, opened));
    p->t->has_generation = true;
    return parse_function(p, *out, false, false, "endgeneration", opened);
}

static mt_rc parse_filter_block(jparser *p, jnode **out)
{
    const jtoken *opened = p->tok++;
    size_t base = p->n_stack;
    jnode *filter, *body;
    MT_TRY(mt__j_node(p, out, N_FILTER_BLOCK, opened));
    MT_TRY(mt__j_parse_filters(p, &filter, NULL, true));
    MT_TRY(parse_last_body(p, &body, "endfilter", opened));
    MT_TRY(mt__j_push(p, body));
    MT_TRY(mt__j_push(p, filter));
    return mt__j_adopt(p, *out, base);
}

static mt_rc parse_with(jparser *p, jnode **out)
{
    const jtoken *opened = p->tok++;
    size_t base = p->n_stack;
    jnode *part;
    MT_TRY(mt__j_node(p, out, N_WITH, opened));
    MT_TRY(mt__j_push(p, NULL));
    while (p->tok->type != T_TAG_END) {
        if (p->n_stack > base + 1) MT_TRY(mt__j_expect(p, ','));
        MT_TRY(mt__j_parse_target(p, &part, NULL, false));
        MT_TRY(mt__j_push(p, part));
        MT_TRY(mt__j_expect(p, '='));
        MT_TRY(mt__j_parse_expr(p, &part, true));
        MT_TRY(mt__j_push(p, part));
    }
    MT_TRY(parse_last_body(p, &part, "endwith", opened));
    p->stack[base] = part;
    return mt__j_adopt(p, *out, base);
}

/* Escaping is off in chat templates; a block that says so again is harmless, one that turns it on is refused. */
static mt_rc parse_autoescape(jparser *p, jnode **out)
{
    const jtoken *opened = p->tok++;
    size_t base = p->n_stack;
    jnode *part;
    MT_TRY(mt__j_node(p, out, N_SCOPE, opened));
    MT_TRY(mt__j_parse_expr(p, &part, true));
    if (part->kind != N_CONST || part->value.type != JV_BOOL || part->value.b)
        return mt_fail(p->err, MT_EUNSUPPORTED,
                       "%s:%u:%u: {%% autoescape %%} other than false is not supported in chat templates", p->t->name,
                       opened->line, opened->col);
    MT_TRY(parse_last_body(p, &part, "endautoescape", opened));
    MT_TRY(mt__j_push(p, part));
    return mt__j_adopt(p, *out, base);
}

static mt_rc parse_print(jparser *p, jnode **out)
{
    const jtoken *opened = p->tok++;
    size_t base = p->n_stack;
    MT_TRY(mt__j_node(p, out, N_BLOCK, opened));
    while (p->tok->type != T_TAG_END) {
        if (p->n_stack > base) MT_TRY(mt__j_expect(p, ','));
        jnode *print, *value;
        MT_TRY(mt__j_node(p, &print, N_PRINT, p->tok));
        MT_TRY(mt__j_parse_expr(p, &value, true));
        size_t own = p->n_stack;
        MT_TRY(mt__j_push(p, value));
        MT_TRY(mt__j_adopt(p, print, own));
        MT_TRY(mt__j_push(p, print));
    }
    return mt__j_adopt(p, *out, base);
}

static mt_rc parse_loop_control(jparser *p, jnode **out)
{
    const jtoken *at = p->tok++;
    bool is_break = mt__j_is_text(at->value, "break");
    if (!p->in_loop) return mt__j_syntax(p, at, "'%s' outside of a loop", is_break ? "break" : "continue");
    return mt__j_node(p, out, is_break ? N_BREAK : N_CONTINUE, at);
}

static mt_rc refuse(jparser *p, jnode **out)
{
    (void)out;
    return mt_fail(p->err, MT_EUNSUPPORTED, "%s:%u:%u: {%% %.*s %%} is not supported: a chat template is one file", p->t->name,
                   p->tok->line, p->tok->col, (int)p->tok->value.n, p->tok->value.s);
}

static const tag tags[] = {
    { "if", parse_if },
    { "for", parse_for },
    { "set", parse_set },
    { "macro", parse_macro },
    { "call", parse_call_block },
    { "filter", parse_filter_block },
    { "generation", parse_generation },
    { "with", parse_with },
    { "autoescape", parse_autoescape },
    { "print", parse_print },
    { "break", parse_loop_control },
    { "continue", parse_loop_control },
    { "include", refuse },
    { "import", refuse },
    { "from", refuse },
    { "extends", refuse },
    { "block", refuse },
};

static const tag *tag_at(const jparser *p)
{
    for (size_t i = 0; i < MT_COUNT(tags); i++)
        if (mt__j_at_name(p, tags[i].name)) return &tags[i];
    return NULL;
}

static mt_rc parse_tag(jparser *p, jnode **out)
{
    char buf[64];
    if (p->tok->type != T_NAME)
        return mt__j_syntax(p, p->tok, "the name of a tag was expected, not %s", mt__j_token_text(p->tok, buf));
    const tag *found = tag_at(p);
    if (!found) return mt__j_syntax(p, p->tok, "an unknown tag, %s", mt__j_token_text(p->tok, buf));
    return found->parse(p, out);
}

mt_rc mt__j_parse_template(jparser *p, jnode **out) { return parse_block(p, out, NULL, NULL); }
