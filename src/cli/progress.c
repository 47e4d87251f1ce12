#include "cli/progress.h"

#include "base/clock.h"
#include "base/units.h"

#include <math.h>

#define REDRAW_S 0.1 /* on a terminal */
#define LINE_S   5.0 /* between lines of a log */
#define MARK_S   30.0

enum { MIN_BAR = 5, MAX_BAR = 40, MIN_NOTE = 12, NOTE_COLUMNS = 120 };

static double share(const mt_progress_view *v)
{
    double s = v->total > 0 ? v->done / v->total : 0;
    return fmin(fmax(s, 0), 1);
}

static void put_bar(mt_str *out, double filled, int cells, bool utf8, bool color)
{
    mt_str bar = { 0 };
    mt_blocks_put(&bar, filled * cells, utf8);
    mt_str_puts(out, utf8 ? "▕" : "[");
    mt_style_put(out, bar.s ? bar.s : "", MT_STYLE_GREEN, color);
    for (int used = mt_text_columns(bar.s ? bar.s : ""); used < cells; used++) mt_str_putc(out, ' ');
    mt_str_puts(out, utf8 ? "▏" : "]");
    mt_str_free(&bar);
}

static void put_counts(mt_str *out, const mt_progress_view *v)
{
    const int percent = (int)(share(v) * 100 + 1e-9);
    if (v->percent)
        mt_str_printf(out, "%d%%", percent);
    else if (v->total > 0)
        mt_str_printf(out, "%.0f/%.0f  %d%%", v->done, v->total, percent);
    else
        mt_str_printf(out, "%.0f", v->done);
}

static void put_time(mt_str *out, const mt_progress_view *v)
{
    bool finished = v->total > 0 && v->done >= v->total;
    if (finished || v->left_s < 0)
        mt_str_printf(out, "%s", mt_seconds_text(v->elapsed_s).s);
    else
        mt_str_printf(out, "%s left", mt_seconds_text(v->left_s).s);
}

/* Measures the required parts first; the note (cut if needed) and then the bar get the rest. */
void mt_progress_line(mt_str *out, const mt_progress_view *v, int columns, bool utf8, bool color)
{
    mt_str counts = { 0 }, time = { 0 }, note = { 0 }, line = { 0 };
    put_counts(&counts, v);
    put_time(&time, v);
    const char *count_text = counts.s ? counts.s : "", *time_text = time.s ? time.s : "";
    int fixed = mt_text_columns(v->what) + mt_text_columns(count_text) + mt_text_columns(time_text) + 4;
    int room = columns - fixed;
    if (room - 2 >= MIN_NOTE || room - 2 >= mt_text_columns(v->note)) mt_text_fit(&note, v->note, room - 2);
    if (note.n) room -= mt_text_columns(note.s) + 2;
    int cells = room - 4 < MAX_BAR ? room - 4 : MAX_BAR; /* the bar's ends and the space after it */
    mt_style_put(&line, v->what, MT_STYLE_BOLD, color);
    mt_str_puts(&line, "  ");
    if (v->total > 0 && cells >= MIN_BAR) put_bar(&line, share(v), cells, utf8, color), mt_str_puts(&line, "  ");
    mt_str_printf(&line, "%s  ", count_text);
    if (note.n) mt_str_printf(&line, "%s  ", note.s);
    mt_style_put(&line, time_text, MT_STYLE_CYAN, color);
    if (fixed <= columns)
        mt_str_puts(out, line.s ? line.s : "");
    else
        mt_text_fit(out, count_text, columns);
    mt_str_free(&counts);
    mt_str_free(&time);
    mt_str_free(&note);
    mt_str_free(&line);
}

void mt_progress_plain(mt_str *out, const mt_progress_view *v)
{
    const int percent = (int)(share(v) * 100 + 1e-9);
    mt_str_printf(out, "%s ", v->what);
    if (v->percent)
        mt_str_printf(out, "%d%%", percent);
    else if (v->total > 0)
        mt_str_printf(out, "%.0f/%.0f (%d%%)", v->done, v->total, percent);
    else
        mt_str_printf(out, "%.0f", v->done);
    mt_str_puts(out, ", ");
    put_time(out, v);
    if (*v->note) mt_str_printf(out, ": %s", v->note);
}

void mt_progress_start(mt_progress *p, const mt_terminal *terminal, const char *what, double total)
{
    *p = (mt_progress){ .terminal = terminal, .clock = mt_now_s, .what = what, .total = total, .drawn_done = -1 };
    p->start_s = p->drawn_s = p->marks[0].at_s = p->marks[1].at_s = p->clock();
}

void mt_progress_begun(mt_progress *p, double at_s) { p->start_s = p->marks[0].at_s = p->marks[1].at_s = at_s; }

void mt_progress_skip(mt_progress *p, double done) { p->done = p->marks[0].done = p->marks[1].done = done; }

double mt_progress_left(const mt_progress *p)
{
    double seconds = p->clock() - p->marks[0].at_s, units = p->done - p->marks[0].done;
    if (!(p->total > 0) || units <= 0 || seconds <= 0) return -1;
    return (p->total - p->done) * seconds / units;
}

static mt_progress_view view_of(const mt_progress *p)
{
    return (mt_progress_view){ .what = p->what,
                               .note = p->note,
                               .done = p->done,
                               .total = p->total,
                               .percent = p->percent,
                               .elapsed_s = p->clock() - p->start_s,
                               .left_s = p->ended ? -1 : mt_progress_left(p) };
}

static void draw(mt_progress *p)
{
    mt_str s = { 0 };
    mt_progress_view v = view_of(p);
    const mt_terminal *t = p->terminal;
    if (mt_verbosity_now() == MT_QUIET) return;
    if (t->live) {
        mt_str_putc(&s, '\r');
        mt_progress_line(&s, &v, mt_terminal_columns(t) - 1, t->utf8, t->color); /* the last column would wrap */
        mt_str_puts(&s, "\x1b[K");
    } else {
        mt_progress_plain(&s, &v);
        mt_str_putc(&s, '\n');
    }
    if (mt_str_ok(&s)) fwrite(s.s, 1, s.n, t->out), fflush(t->out);
    p->open = t->live;
    p->drawn_s = p->clock();
    p->drawn_done = p->done;
    mt_str_free(&s);
}

void mt_progress_update(mt_progress *p, double done, const char *note)
{
    double now = p->clock();
    p->done = done;
    mt_str kept = { 0 };
    mt_text_fit(&kept, note ? note : "", NOTE_COLUMNS);
    snprintf(p->note, sizeof p->note, "%s", kept.s ? kept.s : "");
    mt_str_free(&kept);
    if (now - p->marks[1].at_s >= MARK_S) {
        p->marks[0] = p->marks[1];
        p->marks[1].at_s = now;
        p->marks[1].done = done;
    }
    if (now - p->drawn_s >= (p->terminal->live ? REDRAW_S : LINE_S)) draw(p);
}

void mt_progress_say(mt_progress *p, const char *line)
{
    FILE *out = p->terminal->out;
    fprintf(out, "%s%s\n", p->open ? "\r\x1b[K" : "", line);
    if (p->open) draw(p);
    fflush(out);
}

void mt_progress_finish(mt_progress *p)
{
    p->ended = true;
    if (p->terminal->live || p->drawn_done != p->done) draw(p); /* a log has the line already */
    if (p->open) fputc('\n', p->terminal->out);
    fflush(p->terminal->out);
    p->open = false;
}
