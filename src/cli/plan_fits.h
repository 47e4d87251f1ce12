/* plan_fits.h - lists what can be trained on a machine: every known model with "fits", "tight", or what it needs. */
#ifndef MT_CLI_PLAN_FITS_H
#define MT_CLI_PLAN_FITS_H

#include "cli/plan_question.h"

/* A table, or one object of JSON (docs/plan-json.md).  Uses the settings' batch_size if given, otherwise steps of 32 samples. */
mt_rc mt_plan_what_fits(const mt_machine_asked *asked, const mt_settings *set, bool json, mt_err *err);

#endif
