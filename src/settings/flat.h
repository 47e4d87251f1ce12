/* flat.h - configuration files as LLaMA-Factory has them: flat, with its own and transformers' names and defaults. */
#ifndef MT_SETTINGS_FLAT_H
#define MT_SETTINGS_FLAT_H

#include "settings/table.h"

bool mt__flat_is(const mt_yaml *root);
mt_rc mt__flat_read(mt_settings *s, const mt_yaml *root, const char *name, mt_err *err);

#endif
