/* jinja.c - from text to a parsed template, and from a context to a rendering under its bounds. */
#include "jinja/jinja.h"

#include "base/utf8.h"
#include "jinja/chars.h"
#include "jinja/parser.h"
#include "jinja/render.h"

#include <stdarg.h>
#include <stdio.h>

enum { MAX_TEMPLATE_BYTES = 1 << 20 };

/* ---- parsing ---- */

/* All line ends become \n, and one at the very end is dropped, as Jinja does before anything else. */
static size_t normalise_newlines(char *dst, const char *text, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n') continue;
        dst[k++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (k && dst[k - 1] == '\n') k--;
    dst[k] = '\0';
    return k;
}

static mt_rc jinja_parse(mt_jinja *t, jtokens *tokens, size_t n, mt_err *err)
{
    MT_TRY(mt__j_lex(tokens, &t->arena, t->text, n, t->name, err));
    jparser p = { .t = t, .tok = tokens->items, .err = err, .stack_floor = mt_stack_floor() };
    mt_rc rc = mt__j_parse_template(&p, &t->body);
    mt_free(p.stack);
    return rc ? rc : mt__j_resolve(t, err);
}

static mt_rc jinja_prepare(mt_jinja *t, const char *text, size_t n, const char *name, size_t *kept, mt_err *err)
{
    size_t bad_at;
    if (n > MAX_TEMPLATE_BYTES)
        return mt_fail(err, MT_ERANGE, "%s: a template of %zu bytes, at most %d", name, n, MAX_TEMPLATE_BYTES);
    if (!mt_utf8_valid(text, n, &bad_at)) return mt_fail(err, MT_EFORMAT, "%s: not valid UTF-8 at byte %zu", name, bad_at);
    char *copy = mt_arena_alloc(&t->arena, n + 1);
    t->name = mt_arena_strndup(&t->arena, name, strlen(name));
    if (!copy || !t->name) return mt_no_memory(err, "the template %s", name);
    *kept = normalise_newlines(copy, text, n);
    t->text = copy;
    return MT_OK;
}

mt_rc mt_jinja_parse(mt_jinja **out, const char *text, size_t n, const char *name, mt_err *err)
{
    *out = NULL;
    mt_jinja *t = mt_calloc(1, sizeof *t);
    if (!t) return mt_no_memory(err, "the template %s", name);
    jtokens tokens = { 0 };
    size_t kept = 0;
    mt_rc rc = jinja_prepare(t, text, n, name, &kept, err);
    if (!rc) rc = jinja_parse(t, &tokens, kept, err);
    mt_free(tokens.items);
    if (rc)
        mt_jinja_free(t);
    else
        *out = t;
    return rc;
}

bool mt_jinja_has_generation(const mt_jinja *t) { return t->has_generation; }

bool mt_jinja_reads(const mt_jinja *t, const char *name)
{
    for (uint32_t i = 0; i < t->n_globals; i++)
        if (mt__j_is_text(t->globals[i].name, name)) return true;
    return false;
}

void mt_jinja_free(mt_jinja *t)
{
    if (!t) return;
    mt_arena_free(&t->arena);
    mt_free(t);
}

void mt_jinja_spans_free(mt_jinja_spans *spans)
{
    mt_free(spans->items);
    *spans = (mt_jinja_spans){ 0 };
}

/* ---- messages and bounds of a rendering ---- */

static mt_rc fail_at(jrender *r, mt_rc rc, const char *fmt, va_list ap)
{
    char message[MT_ERR_MSG_BYTES];
    vsnprintf(message, sizeof message, fmt, ap);
    return mt_fail(r->err, rc, "%s:%u:%u: %s", r->t->name, r->at->line, r->at->col, message);
}

mt_rc mt__j_fail(jrender *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    mt_rc rc = fail_at(r, MT_EINVAL, fmt, ap);
    va_end(ap);
    return rc;
}

mt_rc mt__j_fail_rc(jrender *r, mt_rc rc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail_at(r, rc, fmt, ap);
    va_end(ap);
    return rc;
}

mt_rc mt__j_too_much(jrender *r)
{
    return mt__j_fail_rc(r, MT_ERANGE, "rendering needs more than %zu MiB of memory", r->a->max_bytes >> 20);
}

mt_rc mt__j_too_long(jrender *r) { return mt__j_fail_rc(r, MT_ERANGE, "rendering takes too many steps"); }

mt_rc mt__j_too_deep(jrender *r)
{
    if (r->depth > JINJA_MAX_DEPTH)
        return mt__j_fail_rc(r, MT_ERANGE, "calls or values nested deeper than %d levels", JINJA_MAX_DEPTH);
    return mt__j_fail_rc(r, MT_ERANGE, "calls or values nested deeper than the stack of this thread allows (%d levels)",
                         r->depth);
}

mt_rc mt__j_check_out(jrender *r)
{
    if (!r->out->failed) return MT_OK;
    if (!r->out->full) return mt__j_fail_rc(r, MT_ENOMEM, "no memory for the rendered text");
    return mt__j_fail_rc(r, MT_ERANGE, "the rendered text is longer than %zu bytes", r->out->max_bytes - r->out_start);
}

mt_rc mt__j_cut(jrender *r, size_t mark, jval *out)
{
    MT_TRY(mt__j_check_out(r));
    size_t n = r->out->n - mark;
    r->out->n = mark;
    MT_TRY(mt__j_touch(r, n));
    return n ? mt__j_copy_text(r, r->out->s + mark, n, out) : (*out = mt__j_text("", 0), MT_OK);
}

/* ---- rendering ---- */

static mt_rc load_globals(jrender *r, const mt_value *context)
{
    MT_TRY(mt__j_new(r, r->t->n_globals * sizeof *r->globals, &r->globals));
    for (uint32_t i = 0; i < r->t->n_globals; i++) {
        const jglobal *g = &r->t->globals[i];
        r->globals[i] = g->builtin;
        for (size_t k = 0; context && context->type == MT_VALUE_MAP && k < context->map.n; k++) {
            const mt_pair *p = &context->map.pairs[k];
            if (mt__j_same_text(g->name, p->key, p->key_n)) MT_TRY(mt__j_from_value(r, &p->value, &r->globals[i]));
        }
    }
    return MT_OK;
}

static mt_rc render(jrender *r, const mt_value *context)
{
    jactivation root;
    MT_TRY(load_globals(r, context));
    MT_TRY(mt__j_activate(r, r->t->frame, NULL, &root));
    r->act = &root;
    MT_TRY(mt__j_enter_frame(r, r->t->frame));
    return mt__j_exec(r, r->t->body);
}

/* Blocks inside a macro are placed where the macro's text was not yet: transformers' spans, kept inside the output. */
static void finish_spans(mt_jinja_spans *spans, size_t from, const char *text, size_t n)
{
    for (size_t i = from; i < spans->n; i++) {
        mt_jinja_span *s = &spans->items[i];
        if (s->begin > n) s->begin = n;
        s->end = s->begin + mt__j_offset(text + s->begin, n - s->begin, s->end);
    }
}

mt_rc mt_jinja_render(const mt_jinja *t, const mt_value *context, const mt_jinja_options *opt, mt_str *out,
                      mt_jinja_spans *generation, mt_err *err)
{
    mt_jinja_options none = { 0 };
    if (!opt) opt = &none;
    mt_arena own = { 0 }, *a = opt->scratch ? opt->scratch : &own;
    size_t memory_limit = a->max_bytes, out_limit = out->max_bytes, n_spans = generation ? generation->n : 0, start = out->n;
    size_t max_out = opt->max_output_bytes ? opt->max_output_bytes : (size_t)64 << 20;
    mt_arena_reset(a);
    a->max_bytes = opt->max_memory_bytes ? opt->max_memory_bytes : (size_t)256 << 20;
    out->max_bytes = out_limit && out_limit < start + max_out ? out_limit : start + max_out;
    jrender r = { .t = t,
                  .a = a,
                  .out = out,
                  .err = err,
                  .at = t->body,
                  .now = opt->now,
                  .spans = generation,
                  .steps_left = opt->max_steps ? opt->max_steps : 20000000,
                  .out_start = start,
                  .stack_floor = mt_stack_floor() };
    mt_rc rc = render(&r, context);
    if (!rc) rc = mt__j_check_out(&r);
    if (rc) {
        out->n = start;
        out->failed = out->full = false;
        if (generation) generation->n = n_spans;
    }
    if (!rc && generation && out->s) finish_spans(generation, n_spans, out->s + start, out->n - start);
    if (out->s) out->s[out->n] = '\0';
    a->max_bytes = memory_limit;
    out->max_bytes = out_limit;
    mt_arena_free(&own);
    return rc;
}
