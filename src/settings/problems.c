#include "settings/problems.h"

#include "base/mem.h"

#include <string.h>

mt_rc mt__problems_add(mt__problems *p, mt_rc rc, const mt_err *one, mt_err *err)
{
    if (!rc) return MT_OK;
    if (rc == MT_ENOMEM) return mt_fail(err, rc, "%s", one->msg);
    bool fatal = rc == MT_EUNSUPPORTED;
    if (fatal ? !p->n_fatal : !p->n_fatal && !p->n_others) p->rc = rc;
    mt_str *to = fatal ? &p->fatal : &p->others;
    if (to->n) mt_str_putc(to, '\n');
    mt_str_puts(to, one->msg);
    if (!mt_str_ok(to)) return mt_no_memory(err, "listing what is wrong with a file");
    ++*(fatal ? &p->n_fatal : &p->n_others);
    return MT_OK;
}

/* As many lines as fit into a message, each moved in; the rest are counted. */
static void put_lines(mt_str *out, const char *lines, size_t *n_left_out)
{
    enum { ROOM = MT_ERR_MSG_BYTES - 64 };
    for (const char *line = lines; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t n = strcspn(line, "\n");
        if (*n_left_out || out->n + n + 3 > ROOM)
            ++*n_left_out;
        else
            mt_str_printf(out, "\n  %.*s", (int)n, line);
    }
}

mt_rc mt__problems_end(mt__problems *p, const char *file, mt_err *err)
{
    mt_str text = { 0 };
    size_t n = p->n_fatal + p->n_others, n_left_out = 0;
    mt_rc rc = MT_OK;
    if (n == 1) rc = mt_fail(err, p->rc, "%s", p->n_fatal ? p->fatal.s : p->others.s);
    if (n > 1) {
        mt_str_printf(&text, "%s: %zu things stop it:", file, n);
        if (p->n_fatal) put_lines(&text, p->fatal.s, &n_left_out);
        if (p->n_others) put_lines(&text, p->others.s, &n_left_out);
        if (n_left_out) mt_str_printf(&text, "\n  and %zu more", n_left_out);
        rc = mt_str_ok(&text) ? mt_fail(err, p->rc, "%s", text.s) : mt_no_memory(err, "listing what is wrong with %s", file);
    }
    mt_str_free(&text);
    mt__problems_drop(p);
    return rc;
}

void mt__problems_drop(mt__problems *p)
{
    mt_str_free(&p->fatal);
    mt_str_free(&p->others);
    *p = (mt__problems){ 0 };
}
