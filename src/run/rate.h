/* rate.h - how fast a device multiplies: the yardstick that bench measures a step against. */
#ifndef MT_RUN_RATE_H
#define MT_RUN_RATE_H

#include "base/dtype.h"
#include "device/device.h"

/* FLOPs a second of a large product of random numbers in t, the median of several. */
mt_rc mt_product_rate(mt_device *dev, mt_dtype t, double *out, mt_err *err);

#endif
