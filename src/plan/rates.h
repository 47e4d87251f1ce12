/* rates.h - rates that are measured once and remembered: small text files in the user's cache ($XDG_CACHE_HOME/megatrain, else
 * ~/.cache/megatrain).  Removing a file measures again.  A rate decides placements and predictions, never a result. */
#ifndef MT_PLAN_RATES_H
#define MT_PLAN_RATES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mt_kept_rate {
    const char *name;
    double *rate;
} mt_kept_rate;

/* "CACHE/KIND-HASH", to be freed; NULL: nothing can be remembered.  key: everything the rates depend on, in words. */
char *mt_rates_path(const char *kind, const char *key);
/* True if all rates are remembered; otherwise they stay as they are.  path NULL: false. */
bool mt_rates_recall(const char *path, const mt_kept_rate *rates, size_t n);
/* calm false: something else used the machine meanwhile, so the rates hold for a minute only.  path NULL: does nothing. */
void mt_rates_remember(const char *path, const mt_kept_rate *rates, size_t n, bool calm);

#endif
