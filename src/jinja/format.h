/* format.h - what "%5.1f" % x and "{:>5}".format(x) have in common: a value laid out by a specification. */
#ifndef MT_JINJA_FORMAT_H
#define MT_JINJA_FORMAT_H

#include "jinja/render.h"

enum { MAX_WIDTH = 1 << 16 };

/* What both mini-languages boil down to. */
typedef struct jspec {
    char fill[8];
    size_t fill_n;
    char align; /* < > ^ =, 0 for the type's own */
    char sign;  /* + - or space */
    bool alternate, zero;
    char group;           /* , or _ */
    int width, precision; /* precision -1: not given */
    char type;            /* 0: not given */
} jspec;

/* Pad `body` to the width; `lead` bytes of it (sign, 0x) stay in front of '=' padding. */
mt_rc mt__j_put_padded(jrender *r, const jspec *s, const char *body, size_t n, size_t lead, char default_align);
mt_rc mt__j_put_int(jrender *r, const jspec *s, int64_t v);
mt_rc mt__j_put_double(jrender *r, const jspec *s, double v);
mt_rc mt__j_put_text(jrender *r, const jspec *s, jval v, char default_align);
mt_rc mt__j_put_char(jrender *r, jspec *s, jval v); /* a code point, or a string of one character */

#endif
