/* traits.h - what a model asks of the ops beyond their plain forms, and whether a device has it. */
#ifndef MT_MODEL_TRAITS_H
#define MT_MODEL_TRAITS_H

#include "model/config.h"

/* Refuses a model that needs what the device's ops lack, naming the first such trait. */
mt_rc mt_traits_check(const mt_config *c, const mt_ops *ops, const char *device, mt_err *err);

#endif
