/* unicode.h - the kind of each code point, as the reference tokenizers see it.
 *
 * Regular expressions, the Rust standard library and the crates for Bert's rules each define some sets differently;
 * unicode_data.c has all of them, taken from the reference once (make_unicode.py), so that our answers do not depend on which
 * library versions a machine has.
 *
 * mt_unicode is a lookup table built from those ranges: create it once, read it from any thread. */
#ifndef MT_TOKENIZER_UNICODE_H
#define MT_TOKENIZER_UNICODE_H

#include "base/mem.h"

typedef struct mt__range {
    uint32_t first; /* the row holds from here up to the next row's first */
    uint16_t value;
} mt__range;

typedef struct mt__case_run {
    uint32_t first, last;
    uint8_t step;
    int32_t distance; /* lower case = code point + distance */
} mt__case_run;

extern const mt__range mt__props_ranges[], mt__script_ranges[];
extern const size_t mt__props_ranges_n, mt__script_ranges_n;
extern const mt__case_run mt__lower_runs[];
extern const size_t mt__lower_runs_n;

/* General categories, in the order of the table's low five bits. */
enum {
    MT_GC_CN,
    MT_GC_LU,
    MT_GC_LL,
    MT_GC_LT,
    MT_GC_LM,
    MT_GC_LO,
    MT_GC_MN,
    MT_GC_MC,
    MT_GC_ME,
    MT_GC_ND,
    MT_GC_NL,
    MT_GC_NO,
    MT_GC_PC,
    MT_GC_PD,
    MT_GC_PS,
    MT_GC_PE,
    MT_GC_PI,
    MT_GC_PF,
    MT_GC_PO,
    MT_GC_SM,
    MT_GC_SC,
    MT_GC_SK,
    MT_GC_SO,
    MT_GC_ZS,
    MT_GC_ZL,
    MT_GC_ZP,
    MT_GC_CC,
    MT_GC_CF,
    MT_GC_CO,
};

/* The other bits. */
enum {
    MT_UC_GC_MASK = 31,
    MT_UC_SPACE = 1 << 5,      /* \s of a regular expression */
    MT_UC_WHITE = 1 << 6,      /* char::is_whitespace */
    MT_UC_NUMERIC = 1 << 7,    /* char::is_numeric */
    MT_UC_PUNCT = 1 << 8,      /* punctuation to Bert and the Punctuation pre-tokenizer */
    MT_UC_WORD = 1 << 9,       /* \w of the Whitespace pre-tokenizer */
    MT_UC_CONTROL = 1 << 10,   /* what Bert's clean_text removes */
    MT_UC_ACCENT = 1 << 11,    /* what Bert's strip_accents removes */
    MT_UC_MARK = 1 << 12,      /* what the StripAccents normalizer removes */
    MT_UC_NFC_INERT = 1 << 13, /* inert under NFC: unchanged, never joined to the character before it */
    MT_UC_INERT = 1 << 14,     /* the same under all four normal forms */
    MT_UC_OPAQUE = 1 << 15,    /* younger than the reference's normal forms: not even joined by what follows */
};

/* Sets of categories as bit masks over MT_GC_*: mt_gc_in(props, MT_GCS_LETTER). */
#define MT_GC_BIT(c) (1u << (c))
#define MT_GCS_LETTER                                                                                                            \
    (MT_GC_BIT(MT_GC_LU) | MT_GC_BIT(MT_GC_LL) | MT_GC_BIT(MT_GC_LT) | MT_GC_BIT(MT_GC_LM) | MT_GC_BIT(MT_GC_LO))
#define MT_GCS_MARK   (MT_GC_BIT(MT_GC_MN) | MT_GC_BIT(MT_GC_MC) | MT_GC_BIT(MT_GC_ME))
#define MT_GCS_NUMBER (MT_GC_BIT(MT_GC_ND) | MT_GC_BIT(MT_GC_NL) | MT_GC_BIT(MT_GC_NO))
#define MT_GCS_PUNCT                                                                                                             \
    (MT_GC_BIT(MT_GC_PC) | MT_GC_BIT(MT_GC_PD) | MT_GC_BIT(MT_GC_PS) | MT_GC_BIT(MT_GC_PE) | MT_GC_BIT(MT_GC_PI) |               \
     MT_GC_BIT(MT_GC_PF) | MT_GC_BIT(MT_GC_PO))
#define MT_GCS_SYMBOL (MT_GC_BIT(MT_GC_SM) | MT_GC_BIT(MT_GC_SC) | MT_GC_BIT(MT_GC_SK) | MT_GC_BIT(MT_GC_SO))

enum { MT_UC_BLOCKS = 0x110000 / 256 };

typedef struct mt_unicode {
    uint16_t block[MT_UC_BLOCKS]; /* which block of `props` holds code points 256*i .. */
    uint16_t *props;              /* [n_blocks][256], equal blocks stored once */
} mt_unicode;

mt_rc mt_unicode_init(mt_unicode *uc, mt_err *err);
void mt_unicode_deinit(mt_unicode *uc);

static inline uint16_t mt_unicode_props(const mt_unicode *uc, uint32_t cp)
{
    return uc->props[(size_t)uc->block[cp >> 8] * 256 + (cp & 255)];
}
static inline bool mt_gc_in(uint16_t props, uint32_t set) { return set >> (props & MT_UC_GC_MASK) & 1; }

/* The script class of a code point; only equality means something, 0 joins any. */
uint16_t mt_unicode_script(uint32_t cp);
/* Lower case of a code point; U+0130 has two, the second (U+0307) goes to *second, else 0. */
uint32_t mt_unicode_lower(uint32_t cp, uint32_t *second);

#endif
