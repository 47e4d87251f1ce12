/* Each finder mirrors its pattern's alternatives in order; comments name the alternative.  What backtracking
 * would do is worked out by hand where it matters (white space, o200k's two cases of letters). */
#include "tokenizer/scan.h"

#include "tokenizer/text.h"

#include <string.h>

/* A character: its length in bytes and its properties. */
typedef struct chr {
    size_t n; /* 0 at the end of the text */
    uint32_t cp;
    uint16_t props;
} chr;

static inline chr at_(const mt_unicode *uc, const char *s, size_t n, size_t i)
{
    chr c = { 0 };
    if (i >= n) return c;
    unsigned char b = (unsigned char)s[i];
    if (b < 0x80) return (chr){ 1, b, uc->props[b] }; /* block 0 is first in the table */
    c.n = mt_cp_at(s, n, i, &c.cp);
    c.props = mt_unicode_props(uc, c.cp);
    return c;
}

static inline bool is(chr c, uint32_t set) { return c.n && mt_gc_in(c.props, set); }
static inline bool is_space(chr c) { return c.props & MT_UC_SPACE; }
static inline bool is_newline(chr c) { return c.cp == '\r' || c.cp == '\n'; }

#define LETTER_NUMBER (MT_GCS_LETTER | MT_GCS_NUMBER)
#define LETTER_MARK   (MT_GCS_LETTER | MT_GCS_MARK)
#define PUNCT_SYMBOL  (MT_GCS_PUNCT | MT_GCS_SYMBOL)
#define UPPERISH      (MT_GC_BIT(MT_GC_LU) | MT_GC_BIT(MT_GC_LT) | MT_GC_BIT(MT_GC_LM) | MT_GC_BIT(MT_GC_LO) | MT_GCS_MARK)
#define LOWERISH      (MT_GC_BIT(MT_GC_LL) | MT_GC_BIT(MT_GC_LM) | MT_GC_BIT(MT_GC_LO) | MT_GCS_MARK)

/* End of the run of characters of a set of categories. */
static inline size_t run_of(const mt_unicode *uc, const char *s, size_t n, size_t i, uint32_t set)
{
    for (;;) {
        chr c = at_(uc, s, n, i);
        if (!is(c, set)) return i;
        i += c.n;
    }
}

/* [^\s\p{L}\p{N}]* , or with marks among the excluded */
static inline size_t run_of_other(const mt_unicode *uc, const char *s, size_t n, size_t i, uint32_t excluded)
{
    for (;;) {
        chr c = at_(uc, s, n, i);
        if (!c.n || is_space(c) || mt_gc_in(c.props, excluded)) return i;
        i += c.n;
    }
}

static inline size_t run_of_newlines(const char *s, size_t n, size_t i, char extra)
{
    while (i < n && (s[i] == '\r' || s[i] == '\n' || s[i] == extra)) i++;
    return i;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+  at a white-space character; without the first alternative for GPT-2 */
static size_t space_run(const mt_unicode *uc, const char *s, size_t n, size_t i, bool newlines)
{
    size_t end = i, last = i, after_newline = 0;
    for (;;) {
        chr c = at_(uc, s, n, end);
        if (!c.n || !is_space(c)) break;
        last = end;
        end += c.n;
        if (is_newline(c)) after_newline = end;
    }
    if (newlines && after_newline) return after_newline;
    if (end == n || last == i) return end;
    return last; /* leave the last one to the word that follows */
}

/* 's|'t|'re|'ve|'m|'ll|'d : its bytes, 0 if it is none.  Ignoring case, the long s is an s. */
static size_t contraction(const char *s, size_t n, size_t i, bool any_case)
{
    if (i + 1 >= n || s[i] != '\'') return 0;
    int fold = any_case ? 0x20 : 0;
    char a = (char)(s[i + 1] | fold), b = (char)(i + 2 < n ? s[i + 2] | fold : 0);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    if (any_case && i + 2 < n && !memcmp(s + i + 1, "\xc5\xbf", 2)) return 3;
    return 0;
}

static size_t find_gpt2(const mt_unicode *uc, const char *s, size_t n, size_t from, size_t *start)
{
    *start = from;
    if (from >= n) return n;
    size_t len = contraction(s, n, from, false);
    if (len) return from + len;
    size_t i = from + (s[from] == ' ');
    chr c = at_(uc, s, n, i);
    if (is(c, MT_GCS_LETTER)) return run_of(uc, s, n, i, MT_GCS_LETTER);
    if (is(c, MT_GCS_NUMBER)) return run_of(uc, s, n, i, MT_GCS_NUMBER);
    if (c.n && !is_space(c)) return run_of_other(uc, s, n, i, LETTER_NUMBER);
    return space_run(uc, s, n, from, false);
}

/* The end of the digits from `from` on, of which at most `most` go together. */
static inline size_t run_of_digits(const mt_unicode *uc, const char *s, size_t n, size_t from, int most)
{
    size_t i = from;
    chr c = at_(uc, s, n, i);
    for (int d = 0; d < most && is(c, MT_GCS_NUMBER); d++, c = at_(uc, s, n, i)) i += c.n;
    return i;
}

/* cl100k and its relatives differ in how many digits go together and whether marks are letters. */
static inline size_t cl100k_like(const mt_unicode *uc, const char *s, size_t n, size_t from, int digits, uint32_t letters)
{
    size_t len = contraction(s, n, from, true);
    if (len) return from + len;
    chr c = at_(uc, s, n, from);
    if (is(c, letters)) return run_of(uc, s, n, from, letters);
    if (is(c, MT_GCS_NUMBER)) return run_of_digits(uc, s, n, from, digits);
    if (!is_newline(c) && is(at_(uc, s, n, from + c.n), letters)) return run_of(uc, s, n, from + c.n, letters);
    uint32_t excluded = letters | MT_GCS_NUMBER;
    size_t i = from + (c.cp == ' '), end = run_of_other(uc, s, n, i, excluded);
    if (end > i) return run_of_newlines(s, n, end, '\n');
    return space_run(uc, s, n, from, true);
}

static size_t find_cl100k(const mt_unicode *uc, const char *s, size_t n, size_t from, size_t *start)
{
    *start = from;
    return from < n ? cl100k_like(uc, s, n, from, 3, MT_GCS_LETTER) : n;
}

static size_t find_qwen2(const mt_unicode *uc, const char *s, size_t n, size_t from, size_t *start)
{
    *start = from;
    return from < n ? cl100k_like(uc, s, n, from, 1, MT_GCS_LETTER) : n;
}

static size_t find_qwen35(const mt_unicode *uc, const char *s, size_t n, size_t from, size_t *start)
{
    *start = from;
    return from < n ? cl100k_like(uc, s, n, from, 1, LETTER_MARK) : n;
}

/* U*W+ from i (U upper-like, W lower-like; modifiers, other letters and marks are both); i if no match.
 * U* takes all it can.  If no lower-case letter follows, it gives back up to the last character that is also W. */
static size_t upper_then_lower(const mt_unicode *uc, const char *s, size_t n, size_t i)
{
    size_t end = i, after_both = i;
    for (;;) {
        chr c = at_(uc, s, n, end);
        if (!is(c, UPPERISH)) break;
        end += c.n;
        if (is(c, LOWERISH)) after_both = end;
    }
    size_t lower = run_of(uc, s, n, end, LOWERISH);
    return lower > end ? lower : after_both;
}

/* U+W* from i */
static size_t upper_run(const mt_unicode *uc, const char *s, size_t n, size_t i)
{
    size_t end = run_of(uc, s, n, i, UPPERISH);
    return end > i ? run_of(uc, s, n, end, LOWERISH) : i;
}

/* The two letter alternatives of o200k, each first with and then without the one leading other character. */
static size_t cased_word(const mt_unicode *uc, const char *s, size_t n, size_t from, chr c)
{
    bool lead = !is_newline(c) && !is(c, LETTER_NUMBER);
    size_t i = from + c.n, end;
    if (lead && (end = upper_then_lower(uc, s, n, i)) > i) return end;
    if ((end = upper_then_lower(uc, s, n, from)) > from) return end;
    if (lead && (end = upper_run(uc, s, n, i)) > i) return end;
    return upper_run(uc, s, n, from);
}

static inline size_t o200k_like(const mt_unicode *uc, const char *s, size_t n, size_t from, int digits, bool contractions)
{
    chr c = at_(uc, s, n, from);
    size_t end = cased_word(uc, s, n, from, c);
    if (end > from) return end + (contractions ? contraction(s, n, end, true) : 0);
    if (is(c, MT_GCS_NUMBER)) return run_of_digits(uc, s, n, from, digits);
    size_t i = from + (c.cp == ' ');
    end = run_of_other(uc, s, n, i, LETTER_NUMBER);
    if (end > i) return run_of_newlines(s, n, end, '/');
    return space_run(uc, s, n, from, true);
}

static size_t find_o200k(const mt_unicode *uc, const char *s, size_t n, size_t from, size_t *start)
{
    *start = from;
    return from < n ? o200k_like(uc, s, n, from, 3, true) : n;
}

static size_t find_tekken(const mt_unicode *uc, const char *s, size_t n, size_t from, size_t *start)
{
    *start = from;
    return from < n ? o200k_like(uc, s, n, from, 1, false) : n;
}

/* \p{N}{1,3} */
static size_t find_numbers(const mt_unicode *uc, const char *s, size_t n, size_t from, size_t *start)
{
    for (size_t i = from; i < n;) {
        chr c = at_(uc, s, n, i);
        if (is(c, MT_GCS_NUMBER)) {
            *start = i;
            return run_of_digits(uc, s, n, i, 3);
        }
        i += c.n;
    }
    *start = n;
    return n;
}

static inline bool is_deepseek_cjk(uint32_t cp) { return (cp >= 0x4e00 && cp <= 0x9fa5) || (cp >= 0x3040 && cp <= 0x30ff); }

/* [一-龥぀-ゟ゠-ヿ]+ */
static size_t find_cjk(const mt_unicode *uc, const char *s, size_t n, size_t from, size_t *start)
{
    (void)uc;
    uint32_t cp;
    for (size_t i = from; i < n;) {
        if ((unsigned char)s[i] < 0xe3) { /* all of them are three bytes from here on up */
            i++;
            continue;
        }
        size_t end = i, len;
        while (end < n && (len = mt_cp_at(s, n, end, &cp)) && is_deepseek_cjk(cp)) end += len;
        if (end > i) {
            *start = i;
            return end;
        }
        i += mt_cp_at(s, n, i, &cp);
    }
    *start = n;
    return n;
}

static bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* DeepSeek's third cut; i itself where nothing matches (digits, control characters) */
static size_t deepseek_word(const mt_unicode *uc, const char *s, size_t n, size_t i)
{
    chr c = at_(uc, s, n, i), next = at_(uc, s, n, i + c.n);
    if (c.cp < 0x80 && is(c, PUNCT_SYMBOL) && next.cp < 0x80 && is(next, MT_GCS_LETTER)) {
        for (i++; i < n && is_ascii_letter(s[i]);) i++;
        return i;
    }
    if (is(c, LETTER_MARK)) return run_of(uc, s, n, i, LETTER_MARK);
    if (!is_newline(c) && !is(c, PUNCT_SYMBOL) && is(next, LETTER_MARK)) return run_of(uc, s, n, i + c.n, LETTER_MARK);
    size_t word = i + (c.cp == ' '), end = run_of(uc, s, n, word, PUNCT_SYMBOL);
    if (end > word) return run_of_newlines(s, n, end, '\n');
    return is_space(c) ? space_run(uc, s, n, i, true) : i;
}

static size_t find_deepseek(const mt_unicode *uc, const char *s, size_t n, size_t from, size_t *start)
{
    for (size_t i = from; i < n; i += at_(uc, s, n, i).n) {
        size_t end = deepseek_word(uc, s, n, i);
        if (end == i) continue;
        *start = i;
        return end;
    }
    *start = n;
    return n;
}

#define CASED_(contractions)                                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" contractions "|"                 \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" contractions "|"
#define CASED_TAIL_ "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *pattern;
    mt_scan_fn find;
} known[] = {
    { MT_PATTERN_GPT2, find_gpt2 },
    { MT_PATTERN_CL100K, find_cl100k },
    { MT_PATTERN_QWEN2, find_qwen2 },
    { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
      "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      find_qwen35 },
    { CASED_("(?i:'s|'t|'re|'ve|'m|'ll|'d)?") "\\p{N}{1,3}" CASED_TAIL_, find_o200k },
    { CASED_("") "\\p{N}" CASED_TAIL_, find_tekken },
    { "\\p{N}{1,3}", find_numbers },
    { "[一-龥぀-ゟ゠-ヿ]+", find_cjk },
    { "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
      "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
      find_deepseek },
};

mt_scan_fn mt_scan_for(const char *pattern, size_t n)
{
    for (size_t i = 0; i < MT_COUNT(known); i++)
        if (strlen(known[i].pattern) == n && !memcmp(known[i].pattern, pattern, n)) return known[i].find;
    return NULL;
}

const char *mt_scan_pattern(size_t i) { return i < MT_COUNT(known) ? known[i].pattern : NULL; }
