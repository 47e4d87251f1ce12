/* loop.c - {% for %} and the `loop` variable inside it. */
#include "jinja/render.h"

struct jloop {
    const jnode *node;
    jactivation *outer; /* where the loop stands: what a recursive call runs in */
    jiter it;
    jval iterable;
    jval current, before;
    jval after; /* looked at early by loop.last or loop.nextitem; MISSING if not */
    bool peeked;
    jval changed;                   /* what loop.changed() saw last */
    int64_t index0, length, depth0; /* length -1: not requested yet */
};

/* ---- `for x in y if test` ---- */

typedef struct filtered {
    jiter source;
    const jnode *node;
    jactivation *act;
    bool entered;
} filtered;

static mt_rc next_filtered(jrender *r, jiter *it, jval *out)
{
    filtered *f = it->state;
    jactivation *caller = r->act;
    r->act = f->act; /* loop.last may ask from inside a macro */
    if (!f->entered) MT_TRY(mt__j_enter_frame(r, f->node->test_frame));
    f->entered = true;
    for (bool yes = false; !yes;) {
        jval v;
        MT_TRY(mt__j_next(r, &f->source, out));
        if (!mt__j_given(*out)) break;
        MT_TRY(mt__j_assign(r, f->node->kid[4], *out));
        MT_TRY(mt__j_eval(r, f->node->kid[5], &v));
        MT_TRY(mt__j_truth(r, v, &yes));
    }
    r->act = caller;
    return MT_OK;
}

static mt_rc filter_items(jrender *r, const jnode *n, jval iterable, jval *out)
{
    filtered *f;
    MT_TRY(mt__j_new(r, sizeof *f, &f));
    *f = (filtered){ .node = n, .act = r->act };
    MT_TRY(mt__j_iterate(r, iterable, &f->source));
    return mt__j_new_iter(r, next_filtered, (jval){ 0 }, f, "generator", out);
}

/* ---- running ---- */

static mt_rc next_turn(jrender *r, jloop *loop, jval *out)
{
    if (loop->peeked) {
        *out = loop->after;
        loop->peeked = false;
    } else
        MT_TRY(mt__j_next(r, &loop->it, out));
    if (!mt__j_given(*out)) return MT_OK;
    loop->index0++;
    loop->before = loop->current;
    loop->current = *out;
    return MT_OK;
}

/* *finished: some turn ran to its end; an {% else %} runs when none did, even if all were left by continue. */
static mt_rc run_turns(jrender *r, const jnode *n, jloop *loop, bool *finished)
{
    jval item;
    for (;;) {
        MT_TRY(next_turn(r, loop, &item));
        if (!mt__j_given(item)) return MT_OK;
        MT_TRY(mt__j_assign(r, n->kid[1], item));
        if (n->uses & USES_LOOP) r->act->slots[n->ref.slot] = (jval){ .type = JV_LOOP, .loop = loop };
        MT_TRY(mt__j_enter_frame(r, n->frame));
        MT_TRY(mt__j_exec(r, n->kid[2]));
        jsignal signal = r->signal;
        r->signal = SIGNAL_NONE;
        if (signal == SIGNAL_NONE) *finished = true;
        if (signal == SIGNAL_BREAK) return MT_OK;
    }
}

static mt_rc run_loop(jrender *r, const jnode *n, jval iterable, int64_t depth0, jactivation *outer)
{
    jloop *loop;
    bool finished = false;
    if (n->kid[5]) MT_TRY(filter_items(r, n, iterable, &iterable));
    MT_TRY(mt__j_new(r, sizeof *loop, &loop));
    *loop = (jloop){ .node = n, .outer = outer, .iterable = iterable, .index0 = -1, .length = -1, .depth0 = depth0 };
    MT_TRY(mt__j_iterate(r, iterable, &loop->it));
    MT_TRY(run_turns(r, n, loop, &finished));
    if (finished || !n->kid[3]) return MT_OK;
    MT_TRY(mt__j_enter_frame(r, n->else_frame));
    return mt__j_exec(r, n->kid[3]);
}

/* A recursive loop is a function: it has its own variables, and returns its text as a value. */
static mt_rc run_recursive(jrender *r, const jnode *n, jval iterable, int64_t depth0, jactivation *outer, jval *out)
{
    jactivation *caller = r->act, *act;
    MT_TRY(mt__j_deeper(r));
    MT_TRY(mt__j_new(r, sizeof *act, &act));
    MT_TRY(mt__j_activate(r, n->frame, outer, act));
    r->act = act;
    size_t mark = mt__j_capture(r);
    MT_TRY(run_loop(r, n, iterable, depth0, outer));
    MT_TRY(mt__j_captured(r, mark, out));
    r->act = caller;
    r->depth--;
    return MT_OK;
}

mt_rc mt__j_exec_for(jrender *r, const jnode *n)
{
    jval iterable, text;
    MT_TRY(mt__j_eval(r, n->kid[0], &iterable));
    r->at = n;
    if (!n->recursive) return run_loop(r, n, iterable, 0, r->act);
    MT_TRY(run_recursive(r, n, iterable, 0, r->act, &text));
    return mt__j_put_str(r, text);
}

mt_rc mt__j_loop_call(jrender *r, jloop *loop, const jargs *args, jval *out)
{
    jval iterable;
    MT_TRY(mt__j_bind_args(r, "loop", "iterable", 1, args, &iterable));
    if (!loop->node->recursive) return mt__j_fail(r, "The loop must have the 'recursive' marker to be called recursively.");
    return run_recursive(r, loop->node, iterable, loop->depth0 + 1, loop->outer, out);
}

/* ---- loop.something ---- */

static mt_rc loop_peek(jrender *r, jloop *loop)
{
    if (!loop->peeked) MT_TRY(mt__j_next(r, &loop->it, &loop->after));
    loop->peeked = true;
    return MT_OK;
}

/* A generator has no length: the rest of it is read and kept. */
static mt_rc length(jrender *r, jloop *loop)
{
    if (loop->length >= 0) return MT_OK;
    if (loop->iterable.type != JV_ITER) return mt__j_length(r, loop->iterable, &loop->length);
    jval rest;
    MT_TRY(mt__j_collect(r, loop->iterable, &rest));
    MT_TRY(mt__j_iterate(r, rest, &loop->it));
    bool waiting = loop->peeked && mt__j_given(loop->after);
    loop->length = (int64_t)rest.list->n + loop->index0 + 1 + waiting;
    return MT_OK;
}

static mt_rc neighbor(jrender *r, jloop *loop, bool next, jval *out)
{
    if (next) {
        MT_TRY(loop_peek(r, loop));
        *out = mt__j_given(loop->after) ? loop->after : mt__j_undefined_because("there is no next item");
    } else
        *out = loop->index0 > 0 ? loop->before : mt__j_undefined_because("there is no previous item");
    return MT_OK;
}

mt_rc mt__j_loop_attr(jrender *r, jloop *loop, jval name, jval *out)
{
    if (mt__j_is_text(name, "first")) return *out = mt__j_bool(loop->index0 == 0), MT_OK;
    if (mt__j_is_text(name, "index0")) return *out = mt__j_int(loop->index0), MT_OK;
    if (mt__j_is_text(name, "index")) return *out = mt__j_int(loop->index0 + 1), MT_OK;
    if (mt__j_is_text(name, "depth0")) return *out = mt__j_int(loop->depth0), MT_OK;
    if (mt__j_is_text(name, "depth")) return *out = mt__j_int(loop->depth0 + 1), MT_OK;
    if (mt__j_is_text(name, "nextitem")) return neighbor(r, loop, true, out);
    if (mt__j_is_text(name, "previtem")) return neighbor(r, loop, false, out);
    if (mt__j_is_text(name, "last")) {
        MT_TRY(loop_peek(r, loop));
        *out = mt__j_bool(!mt__j_given(loop->after));
        return MT_OK;
    }
    bool is_length = mt__j_is_text(name, "length"), is_rev = mt__j_is_text(name, "revindex"),
         is_rev0 = mt__j_is_text(name, "revindex0");
    *out = mt__j_undefined(name.s, name.n);
    if (!is_length && !is_rev && !is_rev0) return MT_OK;
    MT_TRY(length(r, loop));
    *out = mt__j_int(is_length ? loop->length : loop->length - loop->index0 - is_rev0);
    return MT_OK;
}

static mt_rc changed(jrender *r, jloop *loop, const jargs *args, jval *out)
{
    jval now, *items;
    bool same = false;
    MT_TRY(mt__j_new_list(r, JV_TUPLE, args->n_pos, &now, &items));
    if (args->n_pos) memcpy(items, args->pos, args->n_pos * sizeof *items);
    if (mt__j_given(loop->changed)) MT_TRY(mt__j_equal(r, loop->changed, now, &same));
    if (!same) loop->changed = now;
    *out = mt__j_bool(!same);
    return MT_OK;
}

mt_rc mt__j_loop_method(jrender *r, jloop *loop, bool is_cycle, const jargs *args, jval *out)
{
    if (args->n_kw) return mt__j_fail(r, "loop.%s takes no keyword arguments", is_cycle ? "cycle" : "changed");
    if (!is_cycle) return changed(r, loop, args, out);
    if (!args->n_pos) return mt__j_fail(r, "no items for cycling given");
    *out = args->pos[(size_t)loop->index0 % args->n_pos];
    return MT_OK;
}

mt_rc mt__j_put_loop(jrender *r, jloop *loop)
{
    MT_TRY(length(r, loop));
    mt_str_printf(r->out, "<LoopContext %lld/%lld>", (long long)loop->index0 + 1, (long long)loop->length);
    return MT_OK;
}
