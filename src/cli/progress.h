/* progress.h - long work as a person sees it: one line with a bar and the time left on a terminal, a plain line
 * every few seconds elsewhere.
 *
 *     mt_progress p;
 *     mt_progress_start(&p, &terminal, "training", n_steps);
 *     for (...) mt_progress_update(&p, step, "loss 2.31  12.3K tokens/s");     // draws when it is time to
 *     mt_progress_say(&p, "checkpoint-500 saved");                             // a line that stays, above the bar
 *     mt_progress_finish(&p);
 *
 * Not thread-safe; only cli/ draws. */
#ifndef MT_CLI_PROGRESS_H
#define MT_CLI_PROGRESS_H

#include "cli/terminal.h"

/* One moment of the work, ready to be drawn. */
typedef struct mt_progress_view {
    const char *what;   /* "training" */
    const char *note;   /* extra information: "loss 2.31"; may be "" */
    double done, total; /* total 0: unknown */
    bool percent;       /* show the percentage only, without the two numbers */
    double elapsed_s;
    double left_s; /* negative: not known yet */
} mt_progress_view;

/* "training  [#####     ] 320/640  50%  loss 2.31  12 s left", at most `columns` wide, without a newline.  If space is short, the
 * bar shrinks first, then disappears, then the note is cut. */
void mt_progress_line(mt_str *out, const mt_progress_view *view, int columns, bool utf8, bool color);
/* For logs: "training 320/640 (50%), 12 s left: loss 2.31". */
void mt_progress_plain(mt_str *out, const mt_progress_view *view);

typedef struct mt_progress {
    const mt_terminal *terminal; /* borrowed; outlives the progress */
    double (*clock)(void);       /* monotonic seconds; tests put their own here after start */
    const char *what;            /* borrowed */
    char note[512];              /* the latest, for redrawing */
    double done, total;
    bool percent;            /* set after start: show the percentage only */
    double start_s, drawn_s; /* when it began and was last drawn */
    double drawn_done;       /* what was drawn last; negative: nothing */
    bool ended;              /* no time is left, whether or not the work is done */
    struct {
        double at_s, done;
    } marks[2]; /* the speed is taken from the older mark, half to one minute ago */
    bool open;  /* the bar is on screen */
} mt_progress;

void mt_progress_start(mt_progress *p, const mt_terminal *terminal, const char *what, double total);
/* The work began earlier, at this mt_now_s(). */
void mt_progress_begun(mt_progress *p, double at_s);
/* Starts at `done` instead of 0, so that earlier work does not count as speed. */
void mt_progress_skip(mt_progress *p, double done);
void mt_progress_update(mt_progress *p, double done, const char *note);
void mt_progress_say(mt_progress *p, const char *line);
void mt_progress_finish(mt_progress *p);
/* Seconds left at the recent speed; negative: not known. */
double mt_progress_left(const mt_progress *p);

#endif
