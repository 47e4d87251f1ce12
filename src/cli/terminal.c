#include "cli/terminal.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

static bool locale_is_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        const char *v = getenv(names[i]);
        if (!v || !*v) continue; /* the first that is set decides */
        const char *encoding = strchr(v, '.');
        return encoding && (strncasecmp(encoding, ".utf8", 5) == 0 || strncasecmp(encoding, ".utf-8", 6) == 0);
    }
    return false;
}

mt_terminal mt_terminal_of(FILE *out, mt_color color)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    bool dumb = !term || !*term || strcmp(term, "dumb") == 0;
    mt_terminal t = { .out = out, .live = isatty(fileno(out)) && !dumb, .utf8 = locale_is_utf8() };
    t.color = color == MT_COLOR_ALWAYS || (color == MT_COLOR_AUTO && t.live && !(no_color && *no_color));
    return t;
}

static mt_verbosity verbosity = MT_USUAL;

void mt_verbosity_set(mt_verbosity v) { verbosity = v; }
mt_verbosity mt_verbosity_now(void) { return verbosity; }

int mt_terminal_columns(const mt_terminal *t)
{
    struct winsize size = { 0 };
    if (t->live && ioctl(fileno(t->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    const char *columns = getenv("COLUMNS");
    int n = columns ? atoi(columns) : 0;
    return n > 0 && n < 10000 ? n : 80;
}

void mt_style_put(mt_str *out, const char *text, mt_style style, bool color)
{
    static const char *const codes[] = {
        [MT_STYLE_PLAIN] = "0",  [MT_STYLE_BOLD] = "1",    [MT_STYLE_DIM] = "2",  [MT_STYLE_RED] = "31",
        [MT_STYLE_GREEN] = "32", [MT_STYLE_YELLOW] = "33", [MT_STYLE_CYAN] = "36"
    };
    if (!color || style == MT_STYLE_PLAIN || !*text)
        mt_str_puts(out, text);
    else
        mt_str_printf(out, "\x1b[%sm%s\x1b[0m", codes[style], text);
}

void mt_blocks_put(mt_str *out, double cells, bool utf8)
{
    static const char *const eighths[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
    int steps = (int)(cells * (utf8 ? 8 : 1) + 1e-6);
    for (int i = 0; i < (utf8 ? steps / 8 : steps); i++) mt_str_puts(out, utf8 ? "█" : "#");
    if (utf8) mt_str_puts(out, eighths[steps % 8]);
}

/* Bytes and columns of the character at text; a byte that is not UTF-8 is one column wide. */
static int next_char(const char *text, int *columns)
{
    uint32_t cp;
    int bytes = mt_utf8_decode(text, strnlen(text, 4), &cp);
    *columns = bytes ? utf8proc_charwidth((utf8proc_int32_t)cp) : 1;
    return bytes ? bytes : 1;
}

int mt_text_columns(const char *text)
{
    int total = 0, columns;
    for (; *text; total += columns) text += next_char(text, &columns);
    return total;
}

void mt_text_fit(mt_str *out, const char *text, int columns)
{
    bool cut = mt_text_columns(text) > columns;
    int dots = cut && columns > 6 ? 3 : 0, used = 0;
    while (*text) {
        int width, bytes = next_char(text, &width);
        if (used + width > columns - dots) break;
        mt_str_add(out, text, (size_t)bytes);
        used += width;
        text += bytes;
    }
    if (dots) mt_str_puts(out, "...");
}

void mt_text_wrap(mt_str *out, const char *text, int columns, int indent)
{
    int at = 0; /* columns of the line so far */
    for (const char *word = text; *word;) {
        size_t blanks = strspn(word, " "), n = blanks + strcspn(word + blanks, " \n");
        if (n == 0) { /* an explicit line end */
            mt_str_putc(out, *word++);
            at = 0;
            continue;
        }
        mt_str piece = { 0 };
        mt_str_add(&piece, word, n);
        int wide = mt_text_columns(piece.s ? piece.s : "");
        mt_str_free(&piece);
        if (at && at + wide > columns) {
            mt_str_printf(out, "\n%*s", indent, "");
            at = indent;
            word += blanks, n -= blanks, wide -= (int)blanks;
        }
        mt_str_add(out, word, n);
        at += wide;
        word += n;
    }
}
