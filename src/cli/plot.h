/* plot.h - pictures made of characters: a curve with axes, and bars.  Braille dots (2 x 4 per character) and eighth blocks on
 * UTF-8 terminals, plain ASCII elsewhere. */
#ifndef MT_CLI_PLOT_H
#define MT_CLI_PLOT_H

#include "base/str.h"

typedef struct mt_curve {
    const double *x, *y; /* [n]; x ascending; points that are not finite are left out */
    size_t n;
    const char *x_label, *y_label;
    int width, height; /* columns of the picture, lines of the curve; at least 24 x 4 is used */
    bool utf8;
} mt_curve;

/* `height` lines of curve, with an axis and its labels below; only a sentence if there are no points. */
void mt_plot_curve(mt_str *out, const mt_curve *curve);

typedef struct mt_bar {
    const char *label, *text; /* before and after the bar; text may be "" */
    double value;             /* not negative */
} mt_bar;

/* One line per bar; the longest fills the part of `width` that labels and texts leave. */
void mt_plot_bars(mt_str *out, const mt_bar *bars, size_t n, int width, bool utf8);

#endif
