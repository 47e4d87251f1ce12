/* select.h - which parameters are trained, and which of those decay, by their names in the checkpoint.
 *
 * Frozen: the name matches one of the user's patterns.  Patterns are the shell's: `*` any characters (dots included), `?` one,
 * `[a-c]` one of a set, `[!a-c]` one outside it; the whole name must match.  A pattern that matches nothing is an error: it is a
 * misspelling, and the run would train weights that should be frozen.
 *
 * Decayed: every trained parameter but norms and biases, identified by name as in transformers' Trainer (the list is in
 * select.c), or every one on request. */
#ifndef MT_MODEL_SELECT_H
#define MT_MODEL_SELECT_H

#include "base/err.h"

#include <stdbool.h>

typedef struct mt_select_config {
    const char *const *freeze; /* patterns; borrowed for the call */
    size_t n_freeze;
    bool decay_all; /* norms and biases too */
} mt_select_config;

typedef struct mt_selected {
    bool trained; /* gets a gradient and state */
    bool decayed; /* gets weight decay; only if trained */
} mt_selected;

/* out[i] for names[i].  Fails for a pattern that matches no name, and when nothing is left to train. */
mt_rc mt_select(mt_selected *out, const char *const *names, size_t n, const mt_select_config *config, mt_err *err);

bool mt_select_match(const char *pattern, const char *name);
/* A norm's weight, or a bias of anything. */
bool mt_select_is_norm_or_bias(const char *name);

#endif
