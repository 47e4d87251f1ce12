/* iter.c - walking over values, one item at a time.  Generators stay lazy, as Python's are: an item that is never requested is
 * never computed, and a generator walked once is empty afterwards. */
#include "jinja/render.h"

#include "jinja/chars.h"

static mt_rc next_seq(jrender *r, jiter *it, jval *out)
{
    (void)r;
    const jlist *list = it->over.list;
    *out = it->at < list->n ? list->items[it->at++] : (jval){ 0 };
    return MT_OK;
}

static mt_rc next_char(jrender *r, jiter *it, jval *out)
{
    (void)r;
    jval s = it->over;
    *out = (jval){ 0 };
    if (it->at >= s.n) return MT_OK;
    size_t len;
    mt__j_cp(s.s + it->at, s.n - it->at, &len);
    *out = mt__j_text(s.s + it->at, len);
    it->at += len;
    return MT_OK;
}

static mt_rc next_key(jrender *r, jiter *it, jval *out)
{
    (void)r;
    const jdict *d = it->over.dict;
    *out = it->at < d->n ? d->entries[it->at++].key : (jval){ 0 };
    return MT_OK;
}

static mt_rc next_view(jrender *r, jiter *it, jval *out)
{
    const jview *v = it->over.view;
    *out = (jval){ 0 };
    if (it->at >= v->dict->n) return MT_OK;
    const jentry *e = &v->dict->entries[it->at++];
    if (v->kind == VIEW_ITEMS) return mt__j_new_pair(r, e->key, e->value, out);
    *out = v->kind == VIEW_KEYS ? e->key : e->value;
    return MT_OK;
}

static mt_rc next_range(jrender *r, jiter *it, jval *out)
{
    (void)r;
    const jrange *g = it->over.range;
    *out = it->at < g->n ? mt__j_int(g->start + (int64_t)it->at * g->step) : (jval){ 0 };
    it->at++;
    return MT_OK;
}

static mt_rc next_shared(jrender *r, jiter *it, jval *out) { return mt__j_next(r, it->over.iter, out); }

static mt_rc next_nothing(jrender *r, jiter *it, jval *out)
{
    (void)r, (void)it;
    *out = (jval){ 0 };
    return MT_OK;
}

mt_rc mt__j_iterate(jrender *r, jval v, jiter *it)
{
    *it = (jiter){ .over = v };
    switch (v.type) {
    case JV_UNDEFINED: it->next = next_nothing; break;
    case JV_LIST:
    case JV_TUPLE: it->next = next_seq; break;
    case JV_STR: it->next = next_char; break;
    case JV_DICT: it->next = next_key; break;
    case JV_VIEW: it->next = next_view; break;
    case JV_RANGE: it->next = next_range; break;
    case JV_ITER: it->next = next_shared; break;
    default: return mt__j_fail(r, "'%s' object is not iterable", mt__j_type_name(v));
    }
    return MT_OK;
}

mt_rc mt__j_new_iter(jrender *r, jnext *next, jval over, void *state, const char *what, jval *out)
{
    jiter *it;
    MT_TRY(mt__j_new(r, sizeof *it, &it));
    *it = (jiter){ .next = next, .over = over, .state = state, .what = what };
    *out = (jval){ .type = JV_ITER, .iter = it };
    return MT_OK;
}

/* Of unknown length: grow in the arena, and abandon the shorter copies. */
static mt_rc collect_all(jrender *r, jiter *it, jval *list)
{
    size_t n = 0, cap = 8;
    jval *items, *bigger, item;
    MT_TRY(mt__j_new(r, cap * sizeof *items, &items));
    for (;;) {
        MT_TRY(mt__j_steps(r, 1));
        MT_TRY(mt__j_next(r, it, &item));
        if (!mt__j_given(item)) break;
        if (n == cap) {
            cap *= 2;
            MT_TRY(mt__j_new(r, cap * sizeof *items, &bigger));
            memcpy(bigger, items, n * sizeof *items);
            items = bigger;
        }
        items[n++] = item;
    }
    jlist *made;
    MT_TRY(mt__j_new(r, sizeof *made, &made));
    *made = (jlist){ .n = n, .items = items };
    *list = (jval){ .type = JV_LIST, .list = made };
    return MT_OK;
}

mt_rc mt__j_collect(jrender *r, jval v, jval *list)
{
    if (v.type == JV_LIST) return *list = v, MT_OK; /* lists never change, so the same one will do */
    if (v.type == JV_TUPLE) {
        *list = v;
        list->type = JV_LIST;
        return MT_OK;
    }
    jiter it;
    MT_TRY(mt__j_iterate(r, v, &it));
    return collect_all(r, &it, list);
}
