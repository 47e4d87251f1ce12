/* lexer.h - template text to tokens, white space control already applied. */
#ifndef MT_JINJA_LEXER_H
#define MT_JINJA_LEXER_H

#include "jinja/object.h"

typedef struct mt_arena mt_arena;

/* Operators stand for themselves; two-character ones have names. */
typedef enum jtoken_type {
    T_EOF = 0,
    T_DATA = 256,
    T_PRINT_BEGIN,
    T_PRINT_END,
    T_TAG_BEGIN,
    T_TAG_END,
    T_NAME,
    T_STRING,
    T_INTEGER,
    T_FLOAT,
    T_EQ,
    T_NE,
    T_LE,
    T_GE,
    T_FLOORDIV,
    T_POW,
} jtoken_type;

typedef struct jtoken {
    int type;
    uint32_t line, col;
    jval value; /* the text of data, names and strings; the number */
} jtoken;

typedef struct jtokens {
    jtoken *items; /* ends with T_EOF; release with mt_free */
    size_t n, cap;
} jtokens;

/* text: valid UTF-8 with \n line ends, and outlives the tokens.  Decoded strings go to the arena. */
mt_rc mt__j_lex(jtokens *out, mt_arena *a, const char *text, size_t n, const char *name, mt_err *err);

#endif
