/* rate.h - measures how fast a device multiplies: the reference for bench. */
#ifndef MT_RUN_RATE_H
#define MT_RUN_RATE_H

#include "base/dtype.h"
#include "device/device.h"

/* FLOP/s of a large product of random numbers of type t, the median of several. */
mt_rc mt_product_rate(mt_device *dev, mt_dtype t, double *out, mt_err *err);

#endif
