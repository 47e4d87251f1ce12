#include "cli/plot.h"

#include "base/utf8.h"
#include "cli/terminal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_WIDTH = 24, MIN_HEIGHT = 4, MAX_SIDE = 1000, LABEL = 8 };

/* Dots in a grid of characters; a character holds dots_x x dots_y of them. */
typedef struct grid {
    int columns, rows, dots_x, dots_y;
    unsigned char *cells; /* [rows * columns], a bit per dot: bit = y * dots_x + x */
} grid;

static int clamp(int v, int lo, int hi) { return (int)mt_clamp_i64(v, lo, hi); }

static void set_dot(grid *g, int x, int y) /* y from the bottom */
{
    x = clamp(x, 0, g->columns * g->dots_x - 1);
    y = g->rows * g->dots_y - 1 - clamp(y, 0, g->rows * g->dots_y - 1);
    g->cells[y / g->dots_y * g->columns + x / g->dots_x] |= (unsigned char)(1u << (y % g->dots_y * g->dots_x + x % g->dots_x));
}

/* Unicode numbers a braille character's dots down the left side, down the right, then the bottom row. */
static void put_cell(mt_str *out, const grid *g, unsigned char bits)
{
    static const unsigned char braille[] = { 0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80 };
    static const char ascii[] = { ' ', '\'', '.', ':' };
    if (g->dots_x == 1) {
        mt_str_putc(out, ascii[bits & 3]);
        return;
    }
    uint32_t cp = 0x2800;
    for (int i = 0; i < 8; i++)
        if (bits >> i & 1) cp |= braille[i];
    char utf8[4];
    if (bits)
        mt_str_add(out, utf8, (size_t)mt_utf8_encode(cp, utf8));
    else
        mt_str_putc(out, ' ');
}

typedef struct range {
    double lo, hi;
} range;

static bool usable(const mt_curve *c, size_t i) { return isfinite(c->x[i]) && isfinite(c->y[i]); }

static bool find_ranges(const mt_curve *c, range *x, range *y)
{
    *x = *y = (range){ INFINITY, -INFINITY };
    for (size_t i = 0; i < c->n; i++) {
        if (!usable(c, i)) continue;
        x->lo = fmin(x->lo, c->x[i]), x->hi = fmax(x->hi, c->x[i]);
        y->lo = fmin(y->lo, c->y[i]), y->hi = fmax(y->hi, c->y[i]);
    }
    if (!(x->lo <= x->hi)) return false;
    if (y->hi == y->lo) y->hi += fabs(y->hi) > 0 ? fabs(y->hi) : 1; /* draw a flat curve at the bottom */
    return true;
}

static int scale(double v, range r, int dots)
{
    double span = r.hi / 2 - r.lo / 2; /* halves, so that the difference of huge numbers is finite */
    return span > 0 ? clamp((int)lround((v / 2 - r.lo / 2) / span * (dots - 1)), 0, dots - 1) : 0;
}

/* Points that share a column of dots are averaged; consecutive columns are joined by a straight line. */
static void draw_curve(grid *g, const mt_curve *c, range x, range y)
{
    int dots_w = g->columns * g->dots_x, dots_h = g->rows * g->dots_y, last_x = -1, last_y = 0;
    for (size_t i = 0; i < c->n;) {
        if (!usable(c, i)) {
            i++;
            continue;
        }
        int at = scale(c->x[i], x, dots_w), n = 0;
        double mean = 0;
        for (; i < c->n && (!usable(c, i) || scale(c->x[i], x, dots_w) == at); i++)
            if (usable(c, i)) mean += (c->y[i] - mean) / ++n;
        int up = scale(mean, y, dots_h);
        int steps = last_x < 0 ? 1 : clamp(abs(at - last_x) > abs(up - last_y) ? abs(at - last_x) : abs(up - last_y), 1, 1 << 20);
        if (last_x < 0) last_x = at, last_y = up;
        for (int s = 1; s <= steps; s++)
            set_dot(g, last_x + (int)lround((double)(at - last_x) * s / steps),
                    last_y + (int)lround((double)(up - last_y) * s / steps));
        last_x = at, last_y = up;
    }
}

/* As many digits as there is room for: 0.000894 has eight characters, -1.23e+100 ten. */
static void put_number(mt_str *out, double x)
{
    char text[32] = "";
    for (int digits = 3; digits >= 1; digits--)
        if (snprintf(text, sizeof text, "%.*g", digits, x) <= LABEL - 1) break;
    mt_str_printf(out, "%*s ", LABEL - 1, text);
}

static void put_axis(mt_str *out, const mt_curve *c, range x, int columns)
{
    char left[32], right[32];
    snprintf(left, sizeof left, "%.6g", x.lo);
    snprintf(right, sizeof right, "%.6g", x.hi);
    mt_str_printf(out, "%*s%s", LABEL, "", c->utf8 ? "└" : "+");
    for (int i = 0; i < columns; i++) mt_str_puts(out, c->utf8 ? "─" : "-");
    mt_str_printf(out, "\n%*s%s", LABEL + 1, "", left);
    int room = columns - (int)strlen(left) - (int)strlen(right), label = mt_text_columns(c->x_label);
    bool fits = label + 2 <= room;
    int before = fits ? (room - label) / 2 : (int)mt_max_i64(room, 1);
    mt_str_printf(out, "%*s", before, "");
    if (fits) mt_str_printf(out, "%s%*s", c->x_label, room - label - before, "");
    mt_str_printf(out, "%s\n", right);
}

void mt_plot_curve(mt_str *out, const mt_curve *c)
{
    range x, y;
    int width = clamp(c->width, MIN_WIDTH, MAX_SIDE), height = clamp(c->height, MIN_HEIGHT, MAX_SIDE);
    grid g = { .columns = width - LABEL - 1, .rows = height, .dots_x = c->utf8 ? 2 : 1, .dots_y = c->utf8 ? 4 : 2 };
    if (!find_ranges(c, &x, &y)) {
        mt_str_printf(out, "%s: nothing to draw\n", c->y_label);
        return;
    }
    g.cells = mt_calloc((size_t)g.rows * (size_t)g.columns, 1);
    if (!g.cells) {
        out->failed = true;
        return;
    }
    draw_curve(&g, c, x, y);
    mt_str_printf(out, "%*s %s\n", LABEL, "", c->y_label);
    for (int row = 0; row < g.rows; row++) {
        bool labelled = row == 0 || row == g.rows - 1 || row == (g.rows - 1) / 2;
        double at = y.lo + (y.hi - y.lo) * (g.rows - 1 - row) / (g.rows - 1);
        if (labelled)
            put_number(out, at);
        else
            mt_str_printf(out, "%*s", LABEL, "");
        const char *axis = labelled ? "┤" : "│";
        mt_str_puts(out, c->utf8 ? axis : "|");
        int end = g.columns;
        while (end > 0 && !g.cells[row * g.columns + end - 1]) end--; /* no spaces at the end of a line */
        for (int col = 0; col < end; col++) put_cell(out, &g, g.cells[row * g.columns + col]);
        mt_str_putc(out, '\n');
    }
    put_axis(out, c, x, g.columns);
    mt_free(g.cells);
}

void mt_plot_bars(mt_str *out, const mt_bar *bars, size_t n, int width, bool utf8)
{
    int label = 0, text = 0;
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        label = (int)mt_max_i64(label, mt_text_columns(bars[i].label));
        text = (int)mt_max_i64(text, mt_text_columns(bars[i].text));
        if (isfinite(bars[i].value)) largest = fmax(largest, bars[i].value);
    }
    int room = clamp(width, 0, MAX_SIDE) - label - text - 2;
    if (room < 4) room = 4;
    for (size_t i = 0; i < n; i++) {
        double v = isfinite(bars[i].value) && bars[i].value > 0 ? bars[i].value : 0;
        double cells = largest > 0 ? v / largest * room : 0, least = utf8 ? 0.125 : 1;
        mt_str_printf(out, "%*s%s ", label - mt_text_columns(bars[i].label), "", bars[i].label);
        mt_blocks_put(out, v > 0 ? fmax(cells, least) : 0, utf8); /* a positive value gets at least one cell */
        mt_str_printf(out, "%s%s\n", *bars[i].text ? " " : "", bars[i].text);
    }
}
