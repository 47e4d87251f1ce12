/* regex_classes.c - definitions of \p{L} and the like, given to Oniguruma before it compiles anything.
 *
 * The library that a machine has may know an older Unicode than the reference's, and would then cut text elsewhere at the
 * characters added since.  unicode_data.c knows how the reference sees every character; Oniguruma looks at properties a program
 * has defined before its own.  It takes twenty, for the whole process: the categories that tokenizers are written with. */
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

#include <oniguruma.h>
#include <pthread.h>

#define CLASS(name) MT_GC_BIT(MT_GC_##name)

static const struct {
    const char *name;
    uint32_t categories;
} classes[] = {
    { "L", MT_GCS_LETTER }, { "Lu", CLASS(LU) },  { "Ll", CLASS(LL) },    { "Lt", CLASS(LT) },   { "Lm", CLASS(LM) },
    { "Lo", CLASS(LO) },    { "M", MT_GCS_MARK }, { "Mn", CLASS(MN) },    { "Mc", CLASS(MC) },   { "N", MT_GCS_NUMBER },
    { "Nd", CLASS(ND) },    { "Nl", CLASS(NL) },  { "No", CLASS(NO) },    { "P", MT_GCS_PUNCT }, { "Po", CLASS(PO) },
    { "Ps", CLASS(PS) },    { "Pe", CLASS(PE) },  { "S", MT_GCS_SYMBOL }, { "So", CLASS(SO) },   { "Cn", CLASS(CN) },
};

/* [n, first, last, first, last, ...]: the code points of some categories. */
static OnigCodePoint *ranges_of(uint32_t categories)
{
    OnigCodePoint *out = mt_calloc(2 * mt__props_ranges_n + 1, sizeof *out), n = 0;
    for (size_t i = 0; out && i < mt__props_ranges_n; i++) {
        uint32_t first = mt__props_ranges[i].first, end = i + 1 < mt__props_ranges_n ? mt__props_ranges[i + 1].first : 0x110000;
        if (!mt_gc_in(mt__props_ranges[i].value, categories)) continue;
        if (n && out[2 * n] == first - 1)
            out[2 * n] = end - 1;
        else {
            out[1 + 2 * n++] = first;
            out[2 * n] = end - 1;
        }
    }
    if (out) out[0] = n;
    return out;
}

mt_rc mt__regex_pin_classes(mt_err *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static size_t n_done; /* definitions last as long as the process */
    mt_rc rc = MT_OK;
    pthread_mutex_lock(&lock);
    for (; !rc && n_done < MT_COUNT(classes); n_done += !rc) {
        OnigCodePoint *ranges = ranges_of(classes[n_done].categories);
        if (!ranges)
            rc = mt_no_memory(err, "classes of characters");
        else if (onig_unicode_define_user_property(classes[n_done].name, ranges) != ONIG_NORMAL) {
            mt_free(ranges);
            rc = mt_fail(err, MT_ENOMEM, "Oniguruma does not take \\p{%s}", classes[n_done].name);
        }
    }
    pthread_mutex_unlock(&lock);
    return rc;
}
