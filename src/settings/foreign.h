/* foreign.h - files of other trainers, recognized by their shape. */
#ifndef MT_SETTINGS_FOREIGN_H
#define MT_SETTINGS_FOREIGN_H

#include "base/yaml.h"

/* Refuses a file of LLaMA-Factory v1, axolotl, TRL, DeepSpeed or Accelerate, and those of LLaMA-Factory that do not train, in one sentence: what it is, and what to write here. */
mt_rc mt__foreign_check(const mt_yaml *root, const char *name, mt_err *err);

#endif
