#include "cli/data_notices.h"

#include "base/log.h"
#include "cli/data_view.h"

#include <string.h>

/* Skipped records by reason, and the first three of them. */
static void say_left_out(const mt_feed *f)
{
    const mt_pipeline *p = mt_feed_pipeline(f);
    mt_str text = { 0 };
    for (size_t i = 0; i < mt_pipeline_stores(p); i++) {
        const mt_store *s = mt_pipeline_store(p, i);
        int64_t n_cut = mt_store_counted(s)->odd.trailing_user_cut;
        mt_str_clear(&text);
        mt_data_view_left_out(&text, mt_pipeline_name(p, i), s);
        if (text.n) mt_warn("%s", text.s);
        if (n_cut)
            mt_info("dataset %s: %lld conversations end with a user turn, which was cut off", mt_pipeline_name(p, i),
                    (long long)n_cut);
    }
    mt_str_free(&text);
}

static void say_findings(const mt_feed *f)
{
    const mt_findings *list = mt_feed_findings(f);
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].severity != MT_LINT_STOP)
            mt_log(list->items[i].severity == MT_LINT_WARN ? MT_LOG_WARN : MT_LOG_INFO, "%s", list->items[i].text);
}

/* Cuts the middle out of a long text, between characters. */
static void shorten(mt_str *t)
{
    enum { HEAD = 600, TAIL = 400 };
    static const char between[] = "\n[...]\n";
    if (t->n <= HEAD + TAIL + sizeof between) return;
    size_t head = HEAD, tail = t->n - TAIL;
    while (((unsigned char)t->s[head] & 0xc0) == 0x80) head--;
    while (((unsigned char)t->s[tail] & 0xc0) == 0x80) tail++;
    memcpy(t->s + head, between, sizeof between - 1);
    memmove(t->s + head + sizeof between - 1, t->s + tail, t->n - tail + 1);
    t->n = head + sizeof between - 1 + t->n - tail;
}

/* Shows a sample, the first in shuffled order, if the layout was detected, so that the user sees the result. */
static mt_rc show_found(const mt_feed *f, mt_err *err)
{
    mt_str text = { 0 };
    bool any = false;
    for (size_t i = 0; i < mt_pipeline_stores(mt_feed_pipeline(f)); i++) any |= *mt_feed_found(f, i) != '\0';
    mt_rc rc = any ? mt_data_view_samples(&text, f, 1, false, false, err) : MT_OK;
    while (text.n && text.s[text.n - 1] == '\n') text.s[--text.n] = '\0';
    if (!rc && text.n) {
        shorten(&text);
        mt_info("a sample, with trained parts in [[brackets]]:\n%s", text.s);
    }
    mt_str_free(&text);
    return rc;
}

mt_rc mt_data_notices(const mt_feed *f, mt_err *err)
{
    say_left_out(f);
    say_findings(f);
    return show_found(f, err);
}
