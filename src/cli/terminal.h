/* terminal.h - what an output stream can show, and text that fits it.
 *
 * Detected once, at start; only the width is read again each time, because users resize windows.  Everything that draws
 * (progress.h, plot.h) takes these facts as arguments and writes into a string, so it can be tested without a terminal. */
#ifndef MT_CLI_TERMINAL_H
#define MT_CLI_TERMINAL_H

#include "base/str.h"

#include <stdio.h>

typedef enum mt_color { MT_COLOR_AUTO, MT_COLOR_NEVER, MT_COLOR_ALWAYS } mt_color;

typedef struct mt_terminal {
    FILE *out;  /* borrowed; outlives the terminal */
    bool live;  /* interactive: lines can be redrawn */
    bool utf8;  /* the locale's encoding, by LC_ALL, LC_CTYPE or LANG */
    bool color; /* AUTO: live, TERM is not dumb and NO_COLOR is not set (no-color.org) */
} mt_terminal;

mt_terminal mt_terminal_of(FILE *out, mt_color color);
/* How much is printed besides results, warnings and errors: nothing (--quiet), notices and progress, or more of them (--verbose).
 * Set once, before a command runs. */
typedef enum mt_verbosity { MT_QUIET, MT_USUAL, MT_VERBOSE } mt_verbosity;
void mt_verbosity_set(mt_verbosity v);
mt_verbosity mt_verbosity_now(void);

/* Columns of the window now; COLUMNS, then 80, where there is no window. */
int mt_terminal_columns(const mt_terminal *t);

typedef enum mt_style {
    MT_STYLE_PLAIN,
    MT_STYLE_BOLD,
    MT_STYLE_DIM,
    MT_STYLE_RED,
    MT_STYLE_GREEN,
    MT_STYLE_YELLOW,
    MT_STYLE_CYAN
} mt_style;

/* `text` in a style, or unchanged if color is false. */
void mt_style_put(mt_str *out, const char *text, mt_style style, bool color);

/* A horizontal bar, `cells` characters long (0.3 is some of one): eighth blocks, or # without UTF-8. */
void mt_blocks_put(mt_str *out, double cells, bool utf8);

/* Columns that UTF-8 text takes: wide characters count two, combining ones none. */
int mt_text_columns(const char *text);
/* As much of text as fits into `columns`; cut text ends in "..." if that fits. */
void mt_text_fit(mt_str *out, const char *text, int columns);
/* All of it, broken at blanks into lines of `columns`; lines after the first are indented by `indent`; no newline after the last.
 * A word that is too long gets its own line. */
void mt_text_wrap(mt_str *out, const char *text, int columns, int indent);

#endif
