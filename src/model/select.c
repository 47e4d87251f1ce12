#include "model/select.h"

#include "base/mem.h"

#include <fnmatch.h>
#include <string.h>

bool mt_select_match(const char *pattern, const char *name) { return fnmatch(pattern, name, 0) == 0; }

/* Trainer.get_decay_parameter_names: the regular expressions there as patterns, and the norms it knows by class, by their usual
 * names. */
bool mt_select_is_norm_or_bias(const char *name)
{
    static const char *const patterns[] = {
        "*bias*",
        "*[Ll]ayer[Nn]orm*",
        "*[Rr][Mm][Ss][Nn]orm*",
        "norm",
        "norm.*",
        "*[._]norm",
        "*[._]norm.*",
        "*[._]norm[0-9].*",  /* norm1, norm2 */
        "*[._]norm_[0-9].*", /* MPT's */
        "*.norm_f.*",        /* Mamba's last */
        "ln_*",
        "*.ln_*", /* ln_1, ln_f: GPT-2 and its kin */
    };
    /* Every pattern has one of these words.  Mixtures of experts have a hundred thousand names without any. */
    if (!strstr(name, "bias") && !strstr(name, "orm") && !strstr(name, "ln_")) return false;
    for (size_t i = 0; i < MT_COUNT(patterns); i++)
        if (mt_select_match(patterns[i], name)) return true;
    return false;
}

static size_t common_prefix(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

/* The name a misspelt pattern most likely meant: the one that agrees with it longest. */
static const char *nearest(const char *pattern, const char *const *names, size_t n)
{
    const char *best = names[0];
    for (size_t i = 1; i < n; i++)
        if (common_prefix(pattern, names[i]) > common_prefix(pattern, best)) best = names[i];
    return best;
}

static mt_rc freeze(mt_selected *out, const char *const *names, size_t n, const char *pattern, mt_err *err)
{
    size_t n_hits = 0;
    for (size_t i = 0; i < n; i++) {
        if (!mt_select_match(pattern, names[i])) continue;
        out[i].trained = false;
        n_hits++;
    }
    if (n_hits) return MT_OK;
    return mt_fail(err, MT_EINVAL, "freeze: \"%s\" matches none of the model's %zu parameters; their names look like \"%s\"",
                   pattern, n, nearest(pattern, names, n));
}

mt_rc mt_select(mt_selected *out, const char *const *names, size_t n, const mt_select_config *config, mt_err *err)
{
    if (!n) return mt_fail(err, MT_EINVAL, "a model without parameters cannot be trained");
    for (size_t i = 0; i < n; i++) out[i].trained = true;
    for (size_t p = 0; p < config->n_freeze; p++) MT_TRY(freeze(out, names, n, config->freeze[p], err));
    size_t n_trained = 0;
    for (size_t i = 0; i < n; i++) {
        out[i].decayed = out[i].trained && (config->decay_all || !mt_select_is_norm_or_bias(names[i]));
        n_trained += out[i].trained;
    }
    if (n_trained) return MT_OK;
    return mt_fail(err, MT_EINVAL, "freeze: the patterns match all %zu parameters, and nothing is left to train; take one away",
                   n);
}
