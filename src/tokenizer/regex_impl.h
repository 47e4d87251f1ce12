/* regex_impl.h - what regular expressions are made of: sets of characters, the tree of a pattern, its program.
 * Private to regex*.c. */
#ifndef MT_TOKENIZER_REGEX_IMPL_H
#define MT_TOKENIZER_REGEX_IMPL_H

#include "base/arena.h"
#include "tokenizer/regex.h"

/* ---- sets of code points ---- */

typedef struct mt__cps {
    uint32_t first, last;
} mt__cps;

typedef struct mt__set {
    uint64_t low[4]; /* the first 256 code points as bits; mt__set_seal fills it */
    mt__cps *spans;  /* sorted and apart after mt__set_sort; owned */
    size_t n, cap;
} mt__set;

mt_rc mt__set_add(mt__set *s, uint32_t first, uint32_t last, mt_err *err);
mt_rc mt__set_add_all(mt__set *s, const mt__set *other, mt_err *err);
void mt__set_sort(mt__set *s);
mt_rc mt__set_invert(mt__set *s, mt_err *err);                     /* of a sorted set, in place */
mt_rc mt__set_meet(mt__set *s, const mt__set *other, mt_err *err); /* only what both sorted sets have */
mt_rc mt__set_fold(mt__set *s, mt_err *err); /* adds what equals a member of the sorted set, ignoring case */
void mt__set_seal(mt__set *s);               /* sorted, and ready for mt__set_has */
/* Add a class of characters by its name, such as "L", "Han" or "alpha"; *known: there is one. */
mt_rc mt__set_add_class(mt__set *s, const char *name, size_t n, bool *known, mt_err *err);
mt_rc mt__set_add_word(mt__set *s, mt_err *err);

static inline bool mt__set_has(const mt__set *s, uint32_t cp)
{
    if (cp < 256) return s->low[cp >> 6] >> (cp & 63) & 1;
    size_t lo = 0, hi = s->n; /* the first span that ends at cp or later */
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->spans[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->n && s->spans[lo].first <= cp;
}

/* ---- the tree ---- */

typedef enum mt__node_kind {
    MT__NODE_CHAR,   /* one code point */
    MT__NODE_SET,    /* one character of sets[set] */
    MT__NODE_AT,     /* a place between characters: an mt__place */
    MT__NODE_CAT,    /* children in a row; none: the empty text */
    MT__NODE_ALT,    /* the first child that leads to a match */
    MT__NODE_REPEAT, /* the child, least to most times */
    MT__NODE_ATOMIC, /* the child, without second thoughts */
    MT__NODE_LOOK    /* the child matches from here on (lookbehind: up to here), or does not (negative) */
} mt__node_kind;

typedef enum mt__place {
    MT__AT_START,      /* \A */
    MT__AT_END,        /* \z */
    MT__AT_LAST_LINE,  /* \Z: the end, or the newline before it */
    MT__AT_LINE_START, /* ^ */
    MT__AT_LINE_END,   /* $ */
    MT__AT_FROM,       /* \G: where the search began */
    MT__AT_EDGE,       /* \b */
    MT__AT_NO_EDGE     /* \B */
} mt__place;

typedef enum mt__greed { MT__GREEDY, MT__LAZY, MT__POSSESSIVE } mt__greed;

enum { MT__NO_MOST = UINT32_MAX };

typedef struct mt__node mt__node;
struct mt__node {
    mt__node_kind kind;
    mt__greed greed;
    bool behind, negative;
    uint32_t value; /* a code point, a set's number, an mt__place */
    uint32_t least, most;
    mt__node *child, *next; /* the first child, and the next of the same parent */
};

typedef struct mt__tree {
    mt_arena arena; /* holds the nodes */
    mt__node *root;
    mt__set *sets;
    size_t n_sets, cap_sets;
} mt__tree;

/* Fills a zeroed tree, also in part when it fails. */
mt_rc mt__regex_parse(mt__tree *tree, const char *pattern, size_t n, mt_err *err);

/* ---- the program ---- */

typedef enum mt__code {
    MT__MATCH,
    MT__BYTES,      /* a: where in `text`, b: how many */
    MT__ONE,        /* one character of set a */
    MT__RUN,        /* characters of set a, least to most, greed */
    MT__AT,         /* a: an mt__place */
    MT__JUMP,       /* to a */
    MT__SPLIT,      /* try a, then b */
    MT__ENTER,      /* slot a = here */
    MT__LEAVE,      /* nothing was matched since slot a was set: to b */
    MT__AHEAD,      /* begin a lookahead */
    MT__ATOM,       /* begin an atomic group */
    MT__NOT,        /* begin a negative look; it holds: to a */
    MT__BEHIND,     /* try what follows from least to most characters before here */
    MT__BEHIND_END, /* fail unless the text before it ends where the lookbehind began */
    MT__CUT,        /* end of ATOM: forget its other ways */
    MT__CUT_BACK,   /* end of AHEAD: also return to where it began */
    MT__CUT_FAIL    /* end of NOT: what must not match did */
} mt__code;

typedef struct mt__insn {
    uint8_t code, greed;
    uint32_t a, b;
    uint32_t least, most;
} mt__insn;

struct mt_regex {
    mt__insn *code;
    size_t n_code, cap_code;
    char *text;
    size_t n_text, cap_text;
    mt__set *sets; /* sealed; the last one is \w, for \b */
    size_t n_sets, cap_sets;
    uint32_t n_slots;
};

/* Fills a zeroed expression, also in part when it fails; takes over the tree's sets. */
mt_rc mt__regex_compile(mt_regex *re, mt__tree *tree, mt_err *err);

#endif
