/* SentencePiece's normalizer, all of it in one pass: characters mapped by the longest entry of the charsmap, runs of
 * spaces folded, spaces written as U+2581, one put in front.  User-defined pieces pass through untouched. */
#include "tokenizer/normalize.h"
#include "tokenizer/trie.h"

#include <string.h>

#define MARKER "\xe2\x96\x81"

/* Normalizes the text at i to *to, of *n_to bytes.  Returns the bytes of input that this replaces. */
static size_t map_prefix(const mt_norm_step *step, const mt_view *in, size_t i, const char **to, size_t *n_to)
{
    int32_t ignored;
    uint32_t cp;
    const char *s = in->s + i;
    size_t left = in->n - i;
    size_t used = step->user_defined ? mt_trie_longest(step->user_defined, s, left, &ignored) : 0;
    if (!used) {
        used = mt_charsmap_longest(&step->charsmap, s, left, to, n_to);
        if (used) return used;
        used = mt_cp_at(in->s, in->n, i, &cp);
    }
    *to = s;
    *n_to = used;
    return used;
}

static void put_space(const mt_norm_step *step, mt_text *out, uint32_t lo, uint32_t hi)
{
    if (step->escape)
        mt_text_put(out, MARKER, 3, lo, hi);
    else
        mt_text_put(out, " ", 1, lo, hi);
}

static void put_mapped(const mt_norm_step *step, const char *s, size_t n, mt_text *out, uint32_t lo, uint32_t hi)
{
    while (n) {
        const char *space = memchr(s, ' ', n);
        size_t plain = space ? (size_t)(space - s) : n;
        mt_text_put(out, s, plain, lo, hi);
        if (space) put_space(step, out, lo, hi);
        plain += space != NULL;
        s += plain;
        n -= plain;
    }
}

static size_t skip_leading(const mt_norm_step *step, const mt_view *in)
{
    size_t i = 0, n_to;
    const char *to;
    while (i < in->n) {
        size_t used = map_prefix(step, in, i, &to, &n_to);
        if (n_to != 1 || to[0] != ' ') break;
        i += used;
    }
    return i;
}

static void trim_trailing(const mt_norm_step *step, mt_text *out)
{
    const char *space = step->escape ? MARKER : " ";
    size_t n = strlen(space);
    while (out->n >= n && !memcmp(out->s + out->n - n, space, n)) out->n -= n;
}

bool mt__spm_normalize(const mt_norm_step *step, const mt_view *in, mt_text *out)
{
    size_t i = step->remove_extra ? skip_leading(step, in) : 0, n_to;
    const char *to;
    if (i == in->n) return true;
    if (step->dummy_prefix) put_space(step, out, mt_view_lo(in, i), mt_view_lo(in, i));
    bool after_space = step->remove_extra;
    while (i < in->n) {
        size_t used = map_prefix(step, in, i, &to, &n_to);
        while (after_space && n_to && to[0] == ' ') to++, n_to--;
        if (n_to) {
            put_mapped(step, to, n_to, out, mt_view_lo(in, i), mt_view_hi(in, i + used - 1));
            after_space = step->remove_extra && to[n_to - 1] == ' ';
        }
        i += used;
    }
    if (step->remove_extra) trim_trailing(step, out);
    return true;
}
